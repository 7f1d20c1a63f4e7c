/* Affine groups of packed blocks (pack.h) as tiles of bf16 numbers, for AMX: unpack_amx.c does it by vectors, tests/kernels/tile_model.h says it.
 *
 * A number is the upper half of fma(s', q', b') in f32, where s' = s c, b' = b c and q' = q, but for 8 bits q' = 2^15 + q, which needs no conversion, and
 * b' = fma(-2^15, s', b c). c = 1 + 1/384 makes up for the cut, which takes half a step off on average: the error is 0.30 steps rms (rounding: 0.29), and
 * at most 0.67. Where column c of a tile's 32 lies depends on the width alone,
 * and x is brought into the same order: codes of 4 bits come out of their words fastest when they may lie where ln_tile_column says. */
#ifndef LN_UNPACK_H
#define LN_UNPACK_H

#include "../../base/affine.h"

#define LN_TILE_CUT (1.0f + 1.0f / 384)
#define LN_TILE_BYTE 32768.0f

/* Which of a tile's 32 columns lies in place p of a line. */
static inline int64_t ln_tile_column(int bits, int64_t p) { return bits == 4 ? 4 * (p % 8) + p / 8 : p; }

/* Tiles [t, t + n) of the 16 outputs of one packed group as B tiles of 1 KB: 16 lines of pairs of columns. w says dtype, width and group; its
 * codes are not looked at. */
void ln_cpu_unpack_amx(const ln_affine *w, const uint8_t *group, int64_t t, int64_t n, uint8_t *to);
/* All tiles of a group of 4-bit codes, n of them, as A tiles: 16 lines, one an output, of 32 columns. */
void ln_cpu_unpack_lines_amx(const ln_affine *w, const uint8_t *group, int64_t n, uint8_t *to);
/* n lines of 32 columns of x, as bf16 numbers, into that order. */
void ln_cpu_places_amx(int bits, uint8_t *lines, int64_t n);
/* 16 lines of 16 32-bit words, transposed: an A tile of AMX becomes a B tile, and the other way. */
void ln_cpu_transpose_amx(const uint8_t *from, uint8_t *to);

#endif
