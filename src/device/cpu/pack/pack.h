/* Packed weights: the order in which the vector rungs read a matrix w[D, C], the same for all of them and for
 * every number of rows.
 *
 * Outputs go in blocks of 16, and a block is one stream: for each column (bf16: for each pair of columns) the
 * 16 outputs side by side, 64 bytes of f32 or of bf16 pairs, 32 of f16. So whole vectors are loaded in the
 * order of memory, a vector's lanes are outputs, and a bf16 pair is one 32-bit word whose halves a shift and
 * a mask widen. 16 lines of pairs are a B tile of AMX, 32 columns; a bf16 block is whole tiles. What is
 * missing in the last block, pair and tile is zero. A packed table also serves the lookup of rows. Vector
 * rungs keep most bf16 matrices in fewer bytes (bf12.h).
 *
 * A weight in affine groups goes the same way, group by group of columns: each of the group's 32-bit words
 * (its bit stream, as in the file) of the 16 outputs side by side, 64 bytes; then the 16 scales; then the 16
 * biases. Where products by row read codes of up to 4 bits, what they need of both lies in their place
 * (ln_cpu_i8pair_dequant_amx), and a table that rows are looked up in has its scales and biases apart, group
 * by group in the same order. */
#ifndef LN_PACK_H
#define LN_PACK_H

#include "../../../base/affine.h"
#include "../../../graph/graph.h"

enum { LN_PACK_NR = 16 };

/* Bytes of one block of 16 outputs, a multiple of 32. */
static inline int64_t ln_pack_block_bytes(ln_dtype t, int64_t C) {
    return t == LN_F32 ? 64 * C : t == LN_BF16 ? 1024 * ((C + 31) / 32) : 32 * C;
}
static inline int64_t ln_pack_blocks(int64_t D) { return (D + LN_PACK_NR - 1) / LN_PACK_NR; }
/* Where number c of row d lies, in bytes. */
static inline int64_t ln_pack_offset(ln_dtype t, int64_t C, int64_t d, int64_t c) {
    int64_t lane = d % LN_PACK_NR, block = d / LN_PACK_NR * ln_pack_block_bytes(t, C);
    return block + (t == LN_F32    ? 64 * c + 4 * lane
                    : t == LN_BF16 ? c / 2 * 64 + 4 * lane + c % 2 * 2
                                   : 32 * c + 2 * lane);
}

/* The same for affine groups: bytes of one group's scales and biases, of one group and of one block. */
static inline int64_t ln_pack_scales_bytes_q(ln_dtype t) { return 2 * LN_PACK_NR * ln_dtype_bytes(t); }
static inline int64_t ln_pack_group_bytes_q(ln_enc e, ln_dtype t) {
    return 64 * (e.group * e.bits / 32) + ln_pack_scales_bytes_q(t);
}
static inline int64_t ln_pack_block_bytes_q(ln_enc e, ln_dtype t, int64_t C) {
    return C / e.group * ln_pack_group_bytes_q(e, t);
}
/* Code i of a group for one output: `words` is its first word, the next one is 64 bytes on. */
static inline uint32_t ln_pack_code(const uint8_t *words, int bits, int64_t i) {
    uint32_t lo, hi = 0;
    int64_t at = i * bits, off = at % 32;
    memcpy(&lo, words + at / 32 * 64, 4);
    if (off + bits > 32) memcpy(&hi, words + (at / 32 + 1) * 64, 4), hi <<= 32 - off;
    return (lo >> off | hi) & ((1u << bits) - 1);
}
/* Units of blocks [lo, hi) for products by row (base/fixed.h), LN_PACK_OUTPUT_SCALES floats a block, into
 * `out`, where those of block 0 lie; of outputs that are not there 0. */
enum { LN_PACK_OUTPUT_SCALES = 2 * LN_PACK_NR };
void ln_pack_output_scales(float *out, const ln_affine *w, int64_t D, int64_t C, int64_t lo, int64_t hi);
/* As ln_pack: rows and their scales and biases as a file has them. */
void ln_pack_q(void *out, const ln_affine *w, int64_t D, int64_t C, int64_t lo, int64_t hi);
/* The scales and biases of packed blocks [lo, hi), for lookups; out[block][group], where those of block 0
 * lie. */
void ln_pack_scales(void *out, const void *packed, ln_enc e, ln_dtype t, int64_t C, int64_t lo, int64_t hi);

/* Blocks [lo, hi) of w[D, C], rows at any alignment, into `out`, where the whole packed matrix begins. */
void ln_pack(void *out, const void *w, ln_dtype t, int64_t D, int64_t C, int64_t lo, int64_t hi);

#endif
