/* The CPU device from inside: kernel tables by ISA level, and what its files share.
 *
 * An ISA level is a whole table of kernels. The plain level is the reference kernels; each higher one starts
 * from the level below and overwrites what it does faster, with the same bits; only AMX has formulas of its
 * own, for bf16 weights and pages (gemm_bf16_amx.inc.h, attn_amx.inc.h), and asks for another program where
 * weights are in affine groups (ln_cpu_by_row). Files named *_avx2.c, *_avx512.c and *_amx.c are compiled
 * for those instructions and may only be called once ln_cpu_isa_here has said that the machine has them;
 * *_neon.c is for any aarch64. A build knows the levels of its own architecture only.
 *
 *     simd/       wrappers of vector and tile instructions, prefetch, elementary functions on vectors
 *     pack/       packed weights; bf16 compressed to 12 bits (bf12)
 *     gemm/       products with weights: dense, affine f32, block floating point, bf16, int8 digit pairs
 *     attention/  attention over pages
 *     rowwise/    everything that goes row by row
 *     measure/    what the machine gives at best
 *     tuning.def  every constant that a clock decided */
#ifndef LN_CPU_H
#define LN_CPU_H

#include "../../ops/ops.h"
#include "pack/bf12.h"

typedef enum ln_isa {
    LN_ISA_PLAIN = 0,
#if defined(__x86_64__)
    LN_ISA_AVX2,
    LN_ISA_AVX512,
    LN_ISA_AMX,
#elif defined(__aarch64__)
    LN_ISA_NEON,
#endif
    LN_ISA_COUNT
} ln_isa;

const char *ln_cpu_isa_name(ln_isa r);
/* Whether this machine, and this build, has it. */
bool ln_cpu_isa_here(ln_isa r);
/* The highest level here, or the one that LINNET_CPU names; LN_EUSAGE for an unknown name, LN_EUNSUPPORTED
 * for one that is not here. */
ln_status ln_cpu_isa_pick(ln_isa *out, ln_error *err);
/* Fills the table of one level, which must be here. */
void ln_cpu_kernels(ln_isa r, ln_kernel table[LN_OP_COUNT]);
/* See device.h. */
double ln_cpu_freedom(ln_isa r, const ln_node *n, const ln_value *values);
bool ln_cpu_reads_bf16(ln_isa r, const ln_node *n, const ln_value *values, int k);
bool ln_cpu_by_row(ln_isa r, const ln_node *n, const ln_value *values);
/* The same of a weight of so many columns. */
bool ln_cpu_columns_per_row(ln_isa r, int64_t columns);
/* The level whose kernel of an op the table of level r holds; NULL when there is none. */
const char *ln_cpu_kernel_isa(ln_isa r, int op);

/* What a core of a level can do at best (measure.c): read n floats, prefetching those `prefetch` further on;
 * multiply and add, returning the number of operations. `sink` takes 16 floats. */
typedef struct ln_cpu_ceilings {
    void (*read)(const float *data, int64_t n, int64_t prefetch, float *sink);
    double (*multiply)(int64_t rounds, float *sink);
} ln_cpu_ceilings;
extern const ln_cpu_ceilings ln_cpu_ceilings_avx2, ln_cpu_ceilings_avx512, ln_cpu_ceilings_amx,
    ln_cpu_ceilings_neon;

void ln_cpu_linear_avx2(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_avx512(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_vdpbf16(ln_kernel table[LN_OP_COUNT]); /* of AVX-512 with AVX512_BF16 */
void ln_cpu_linear_amx(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_q_avx2(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_fixed_avx2(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_q_avx512(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_fixed_avx512(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_fixed_vnni(ln_kernel table[LN_OP_COUNT]); /* of AVX-512 with VNNI; whatever has AMX does */
void ln_cpu_linear_fixed_vnni_amd(ln_kernel table[LN_OP_COUNT]); /* the same on AMD's */
void ln_cpu_linear_fixed_row_amx(ln_kernel table[LN_OP_COUNT]);
/* The dequantisation constants that its kernels read, up to 4 bits, in the place where ln_pack_q put scales
 * and biases: of packed blocks [lo, hi), block 0 being at `packed` and its output scales at `units`. */
void ln_cpu_i8pair_dequant_amx(void *packed, const float *units, ln_enc enc, ln_dtype dtype, int64_t C,
                               int64_t lo, int64_t hi);
void ln_cpu_rowwise_avx2(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_rowwise_avx512(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_attn_avx2(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_attn_avx512(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_attn_vdpbf16(ln_kernel table[LN_OP_COUNT]); /* as ln_cpu_linear_vdpbf16 */
void ln_cpu_attn_amx(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_neon(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_q_neon(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_fixed_neon(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_rowwise_neon(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_attn_neon(ln_kernel table[LN_OP_COUNT]);

/* y[rows][lo .. hi) + bias, by the thread that owns those outputs. */
static inline void ln_cpu_add_bias(const ln_arg *bias, float *y, int64_t ldy, int64_t rows, int64_t lo,
                                   int64_t hi) {
    for (int64_t d = lo; d < hi; d++) {
        const float f = ln_num_load(bias->data, bias->dtype, d);
        for (int64_t r = 0; r < rows; r++) y[r * ldy + d] = y[r * ldy + d] + f;
    }
}

/* What a partition of blocks [lo, hi) reads of a packed weight. */
static inline ln_reads ln_cpu_weight_reads(const void *weight, int64_t block, int64_t lo, int64_t hi,
                                           int64_t n) {
    return (ln_reads){(const uint8_t *)weight + lo * block, (const uint8_t *)weight + hi * block, block,
                      (int)n, 0};
}

/* A packed dense weight, uncompressed or bf12: bytes of a block, and what a partition of them reads. */
static inline int64_t ln_cpu_dense_block_bytes(const ln_arg *w, int64_t C) {
    return w->tight ? ln_bf12_block_bytes(C) : ln_pack_block_bytes(w->dtype, C);
}
static inline ln_reads ln_cpu_dense_reads(const ln_arg *w, int64_t C, int64_t lo, int64_t hi, int64_t n) {
    return ln_cpu_weight_reads((const uint8_t *)w->data + (w->tight ? LN_BF12_HEADER_BYTES : 0),
                               ln_cpu_dense_block_bytes(w, C), lo, hi, n);
}

/* Kernels themselves, for the level above where it has none for a type of weights or pages. */
extern const ln_kernel ln_cpu_attn_kernel_avx2, ln_cpu_attn_kernel_avx512, ln_cpu_attn_kernel_neon;
void ln_cpu_linear_run_avx2(const ln_call *c);
void ln_cpu_linear_run_avx512(const ln_call *c);
void ln_cpu_linear_run_vdpbf16(const ln_call *c); /* bf16 rows, bf16 weights */
void ln_cpu_linear_run_neon(const ln_call *c);

#endif
