/* Internal interface of the CPU device: kernel tables by ISA level, and what its files share.
 *
 * An ISA level is a complete table of kernels. The plain level is the reference kernels; each higher level
 * starts from the level below and overwrites the ops that it computes faster, with the same bits. Only the
 * AMX level has accumulation orders of its own, for bf16 weights and pages (gemm_bf16_amx.inc.h,
 * attn_amx.inc.h), and prefers int8 pairs where products read weights in affine groups (cpu_lower.c).
 * Files named *_avx2.c,
 * *_avx512.c and *_amx.c are compiled for those instruction sets and may only be called once ln_cpu_isa_here
 * has reported them; *_neon.c runs on any aarch64. A build contains the levels of its own architecture only.
 *
 *     simd/       wrappers of vector and tile instructions, prefetch, elementary functions on vectors
 *     pack/       packed weights; bf16 compressed to 12 bits (bf12)
 *     gemm/       products with weights: dense, affine f32, block floating point, bf16, int8 digit pairs,
 *                 coded rows
 *     attention/  attention over pages
 *     rowwise/    every op that is computed row by row
 *     measure/    measured ceilings of the machine: bandwidth and operations per second
 *     tuning.def  every constant that was chosen by measurement */
#ifndef LN_CPU_H
#define LN_CPU_H

#include "../../ops/ops.h"
#include "pack/bf12.h"
#include "pack/panel.h"

/* The vector kernels of this build: those of x86-64, those of aarch64, or none (LN_PLAIN_ONLY, for checks
 * whose subject is not arithmetic: they compile in a fraction of the time). */
#if defined(__x86_64__) && !defined(LN_PLAIN_ONLY)
#define LN_X86 1
#elif defined(__aarch64__) && !defined(LN_PLAIN_ONLY)
#define LN_ARM64 1
#endif

typedef enum ln_isa {
    LN_ISA_PLAIN = 0,
#ifdef LN_X86
    LN_ISA_AVX2,
    LN_ISA_AVX512,
    LN_ISA_AMX,
#elif defined(LN_ARM64)
    LN_ISA_NEON,
#endif
    LN_ISA_COUNT
} ln_isa;

const char *ln_cpu_isa_name(ln_isa r);
/* Whether this machine and this build support a level. */
bool ln_cpu_isa_here(ln_isa r);
/* Sets *out to the highest level that this machine supports, or to the one that the environment variable
 * LINNET_CPU names. LN_EUSAGE for an unknown name, LN_EUNSUPPORTED for a level that the machine lacks. */
ln_status ln_cpu_isa_pick(ln_isa *out, ln_error *err);
/* Fills the kernel table of one level. The kernels may run where the machine supports it. */
void ln_cpu_kernels(ln_isa r, ln_kernel_table *table);
/* Whether products with a weight in affine groups of so many columns read int8 pairs on this level. */
bool ln_cpu_columns_per_row(ln_isa r, int64_t columns);
/* Name of the level whose kernel of an op's variant the table of level r contains; NULL when there is none.
 */
const char *ln_cpu_kernel_isa(ln_isa r, ln_op op, int variant);

/* The same for all kernels of level r. */
void ln_cpu_kernel_levels(ln_isa r, const char *names[LN_OP_COUNT][LN_VARIANTS]);

/* Measurement loops of one level for one core (measure.c). read: loads n floats, prefetching `prefetch`
 * floats ahead. multiply: multiply-adds in registers; returns the number of operations. `sink` receives 16
 * floats, so that the compiler keeps the loop. */
typedef struct ln_cpu_ceilings {
    void (*read)(const float *data, int64_t n, int64_t prefetch, float *sink);
    double (*multiply)(int64_t rounds, float *sink);
} ln_cpu_ceilings;
extern const ln_cpu_ceilings ln_cpu_ceilings_avx2, ln_cpu_ceilings_avx512, ln_cpu_ceilings_amx,
    ln_cpu_ceilings_neon;

/* The kernels of each level, as lists (ln_kernels_add): those with dense weights, with affine groups and x in
 * f32, with affine groups and x in block floating point or as int8 pairs, the row-wise ones, attention. */
extern const ln_kernel_row ln_cpu_dense_avx2[], ln_cpu_affine_avx2[], ln_cpu_bfp_avx2[],
    ln_cpu_rowwise_avx2[], ln_cpu_attn_avx2[];
extern const ln_kernel_row ln_cpu_dense_avx512[], ln_cpu_affine_avx512[], ln_cpu_bfp_avx512[],
    ln_cpu_rowwise_avx512[], ln_cpu_attn_avx512[];
extern const ln_kernel_row ln_cpu_dense_vdpbf16[], ln_cpu_attn_vdpbf16[]; /* require AVX512_BF16 */
extern const ln_kernel_row ln_cpu_bfp_vnni[];     /* requires VNNI, which every processor with AMX has */
extern const ln_kernel_row ln_cpu_bfp_vnni_amd[]; /* the same, tuned for AMD */
extern const ln_kernel_row ln_cpu_dense_amx[], ln_cpu_i8pair_amx[], ln_cpu_attn_amx[];
extern const ln_kernel_row ln_cpu_dense_neon[], ln_cpu_affine_neon[], ln_cpu_bfp_neon[],
    ln_cpu_rowwise_neon[], ln_cpu_attn_neon[];
/* Recurrent mixers (recurrent/recur.inc.h). */
extern const ln_kernel_row ln_cpu_recur_avx2[], ln_cpu_recur_avx512[];
/* Products with weights in coded rows (gemm_coded.inc.h). */
extern const ln_kernel_row ln_cpu_coded_avx2[], ln_cpu_coded_avx512[], ln_cpu_coded_neon[];
/* Products with the matrices of experts (experts.inc.h). */
extern const ln_kernel_row ln_cpu_experts_avx2[], ln_cpu_experts_avx512[], ln_cpu_experts_amx[],
    ln_cpu_experts_neon[];
/* Products of temps, attention over packed rows, and what reads weights backwards (gemm_rows.inc.h). */
extern const ln_kernel_row ln_cpu_train_avx2[], ln_cpu_train_avx512[], ln_cpu_train_neon[];
/* Writes the dequantisation constants that the kernels of int8 pairs read for codes of up to 4 bits: those of
 * n groups of a block to `out`, `pitch` bytes apart. numbers[n][scales, biases][16]; units: the output scales
 * of the block. */
void ln_cpu_i8pair_constants_amx(uint8_t *out, int64_t pitch, const float *numbers, int64_t n, int bits,
                                 const float *units);

/* Adds the bias to columns [lo, hi) of y, `rows` rows of pitch ldy; called by the thread that computes those
 * outputs. */
static inline void ln_cpu_add_bias(const ln_arg *bias, float *y, int64_t ldy, int64_t rows, int64_t lo,
                                   int64_t hi) {
    for (int64_t d = lo; d < hi; d++) {
        const float f = ln_num_load(bias->data, bias->dtype, d);
        for (int64_t r = 0; r < rows; r++) y[r * ldy + d] = y[r * ldy + d] + f;
    }
}

/* ln_reads of blocks [lo, hi) of a packed weight, `block` bytes each, n at a time. */
static inline ln_reads ln_cpu_weight_reads(const void *weight, int64_t block, int64_t lo, int64_t hi,
                                           int64_t n) {
    return (ln_reads){(const uint8_t *)weight + lo * block, (const uint8_t *)weight + hi * block, block,
                      (int)n, 0};
}

/* A packed dense weight of C columns, uncompressed or bf12: bytes of a block, and ln_reads of blocks [lo,
 * hi). */
static inline int64_t ln_cpu_dense_block_bytes(const ln_arg *w, int64_t C) {
    return w->bf12 ? ln_bf12_block_bytes(C) : ln_pack_block_bytes((ln_dtype)w->dtype, C);
}
static inline ln_reads ln_cpu_dense_reads(const ln_arg *w, int64_t C, int64_t lo, int64_t hi, int64_t n) {
    return ln_cpu_weight_reads((const uint8_t *)w->data + (w->bf12 ? LN_BF12_HEADER_BYTES : 0),
                               ln_cpu_dense_block_bytes(w, C), lo, hi, n);
}

/* Kernels of one level that another level calls for calls that it has no faster way for. */
extern const ln_kernel ln_cpu_attn_kernel_avx2, ln_cpu_attn_kernel_avx512, ln_cpu_attn_kernel_neon;
ln_kernel_fn ln_cpu_gated_run_avx2, ln_cpu_gated_run_avx512, ln_cpu_gated_run_neon;

#endif
