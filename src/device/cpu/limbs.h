/* Fixed-point numbers as bytes, for tiles: v = 2^low h + l, h signed, l not; low is 8, or 4 for v of 12 bits. */
#ifndef LN_LIMBS_H
#define LN_LIMBS_H

#include <stdint.h>

/* A row of base/fixed.h for codes of `bits` as lines of tiles: of n lines of `width` numbers, 32 or 64, line i goes to h + i * step and l + i * step, its limbs in
 * the order of columns in which a tile's bytes have the codes: those of a word of 4 bits the even ones first, the others as they are. By AVX-512;
 * tests/kernels/tile_model.h says it in C. */
void ln_cpu_limbs_amx(int bits, int low, const int16_t *v, int64_t width, int64_t n, uint8_t *h, uint8_t *l, int64_t step);

#endif
