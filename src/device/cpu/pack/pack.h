/* Packed weights: the order in which vector and tile kernels read a matrix w[D, C], the same for all of them
 * and for every number of rows.
 *
 *     dense block of 16 outputs (LN_PACK_NR)
 *         f32   | w[0][c] | .. | w[15][c] |                          64 bytes a column
 *         bf16  | w[0][c], w[0][c+1] | .. | w[15][c], w[15][c+1] |   64 bytes a pair of columns
 *         f16   | w[0][c] | .. | w[15][c] |                          32 bytes a column
 *     affine block of 16 outputs, group after group
 *         | 32 bits of codes of output 0 | .. | of output 15 |       64 bytes, bits x group / 32 such lines
 *         | 16 scales | 16 biases |
 *       then the factors, if ln_pack_form.shared groups in sequence have them: scales and biases are int8, of
 *       which each times its factor is the number
 *         | 16 f32 of scales | 16 f32 of biases |                    128 bytes for so many groups
 *
 * So whole vectors are loaded in the order of memory, a vector's lanes are outputs, and a bf16 pair is one
 * 32-bit lane whose halves a shift and a mask widen. 16 lines of pairs are a B tile of AMX, 32 columns; a
 * bf16 block is whole tiles. What is missing in the last block, pair and tile is zero. A packed table also
 * serves the lookup of rows. Most bf16 matrices are compressed (bf12.h).
 *
 * Where int8 digit pair products read codes of up to 4 bits, dequantisation constants take the place of
 * scales and biases (ln_cpu_i8pair_constants_amx), 64 bytes a group, and a table that rows are looked up in
 * has its scales and biases apart, group by group in the same order, and of each block its factors. */
#ifndef LN_PACK_H
#define LN_PACK_H

#include "../../../quant/affine.h"
#include "../../../graph/program.h"

enum { LN_PACK_NR = 16 };

/* Bytes of one block of 16 outputs, a multiple of 32. */
static inline int64_t ln_pack_block_bytes(ln_dtype t, int64_t C) {
    return t == LN_F32 ? 64 * C : t == LN_BF16 ? 1024 * ((C + 31) / 32) : 32 * C;
}
static inline int64_t ln_pack_blocks(int64_t D) { return (D + LN_PACK_NR - 1) / LN_PACK_NR; }
/* Offset in bytes of element c of row d. */
static inline int64_t ln_pack_offset(ln_dtype t, int64_t C, int64_t d, int64_t c) {
    int64_t lane = d % LN_PACK_NR, block = d / LN_PACK_NR * ln_pack_block_bytes(t, C);
    return block + (t == LN_F32    ? 64 * c + 4 * lane
                    : t == LN_BF16 ? c / 2 * 64 + 4 * lane + c % 2 * 2
                                   : 32 * c + 2 * lane);
}

/* How scales and biases are stored: in a dtype or, if `shared` is not 0, in 8 bits with factors. */
typedef struct ln_pack_units {
    ln_dtype dtype;
    int shared; /* groups that share the factors of an output */
} ln_pack_units;
enum { LN_PACK_FACTOR_BYTES = 2 * LN_PACK_NR * (int)sizeof(float), LN_PACK_CONSTANT_BYTES = 64 };
/* Bytes of one group's scales and biases, and of the factors of n groups. */
static inline int64_t ln_pack_units_bytes(ln_pack_units u) {
    return 2 * LN_PACK_NR * (u.shared ? 1 : ln_dtype_bytes(u.dtype));
}
static inline int64_t ln_pack_factors_bytes(ln_pack_units u, int64_t n) {
    return u.shared ? n / u.shared * LN_PACK_FACTOR_BYTES : 0;
}
/* The same for affine groups: bytes of one group's codes, of one group and of one block. */
static inline int64_t ln_pack_codes_bytes(ln_groups e) { return 64 * (e.group * e.bits / 32); }
static inline int64_t ln_pack_group_bytes_q(ln_groups e, ln_pack_units u) {
    return ln_pack_codes_bytes(e) + ln_pack_units_bytes(u);
}
static inline int64_t ln_pack_block_bytes_q(ln_groups e, ln_pack_units u, int64_t C) {
    return C / e.group * ln_pack_group_bytes_q(e, u) + ln_pack_factors_bytes(u, C / e.group);
}
/* How a packed weight stores scales and biases: apart, or between its codes. In place of the latter there may
 * be constants, which have the size of scales and biases of 2 bytes. */
static inline ln_pack_units ln_packed_numbers(const ln_affine *w) {
    return (ln_pack_units){w->dtype, w->shared};
}
static inline ln_pack_units ln_packed_units(const ln_affine *w) {
    return w->has_constants ? (ln_pack_units){LN_BF16, 0} : ln_packed_numbers(w);
}
static inline int64_t ln_packed_group_bytes(const ln_affine *w) {
    return ln_pack_group_bytes_q(w->code, ln_packed_units(w));
}
static inline int64_t ln_packed_block_bytes(const ln_affine *w, int64_t C) {
    return ln_pack_block_bytes_q(w->code, ln_packed_units(w), C);
}
/* The factors of group g, those of the block's first group being at `factors`; NULL: there are none. */
static inline const uint8_t *ln_pack_factors_at(ln_pack_units u, const uint8_t *factors, int64_t g) {
    return u.shared ? factors + g / u.shared * LN_PACK_FACTOR_BYTES : NULL;
}
/* Scale (i = lane) or bias (i = LN_PACK_NR + lane) of a group, whose scales are at `units`. A zero that has a
 * factor is positive. */
static inline float ln_pack_unit(ln_dtype t, const uint8_t *units, const uint8_t *factors, int64_t i) {
    return factors ? (float)(int8_t)units[i] * ln_num_load(factors, LN_F32, i) + 0.0F
                   : ln_num_load(units, t, i);
}
/* Code i of a group for one output: `words` points to its first 32 bits, the next ones are 64 bytes on. */
static inline uint32_t ln_pack_code(const uint8_t *words, int bits, int64_t i) {
    uint32_t lo, hi = 0;
    int64_t at = i * bits, off = at % 32;
    memcpy(&lo, words + at / 32 * 64, 4);
    if (off + bits > 32) memcpy(&hi, words + (at / 32 + 1) * 64, 4), hi <<= 32 - off;
    return (lo >> off | hi) & ((1u << bits) - 1);
}
/* Scales of blocks [lo, hi) for int8 digit pair products (quant/block_float.h), 1 / d and e of 16 outputs
 * each, into `out`, which points to those of block 0; 0 for outputs that are missing. */
enum { LN_PACK_OUTPUT_SCALES = 2 * LN_PACK_NR };
void ln_pack_output_scales(float *out, const ln_affine *w, int64_t D, int64_t C, int64_t lo, int64_t hi);
/* As ln_pack: codes, scales and biases as a file has them; w->shared says whether factors are wanted. Where
 * scales and biases have two dtypes, both are packed as f32. Returns false if a scale or a bias is no
 * multiple of a factor. */
bool ln_pack_q(void *out, const ln_affine *w, int64_t D, int64_t C, int64_t lo, int64_t hi);
/* The codes alone, each group's followed by `gap` bytes that stay. */
void ln_pack_codes(void *out, const ln_affine *w, int64_t gap, int64_t D, int64_t C, int64_t lo, int64_t hi);
/* The scales and biases of n groups from group g on of block b, in f32: out[n][scales, biases][16]; 0 for
 * outputs that are missing. */
void ln_pack_numbers(float *out, const ln_affine *w, int64_t D, int64_t C, int64_t b, int64_t g, int64_t n);
/* The scales and biases of blocks [lo, hi) for lookups, stored as ln_packed_numbers(w) says:
 * out[block][groups, factors], from block 0 on. Returns as ln_pack_q. */
bool ln_pack_scales(void *out, const ln_affine *w, int64_t D, int64_t C, int64_t lo, int64_t hi);

/* Blocks [lo, hi) of w[D, C], rows at any alignment, into the packed matrix that begins at `out`. */
void ln_pack(void *out, const void *w, ln_dtype t, int64_t D, int64_t C, int64_t lo, int64_t hi);

#endif
