/* The CPU device from inside: the ladder of kernel tables and what its files share.
 *
 * A rung is a whole table of kernels. The plain rung is the reference kernels; each higher rung starts from the one below and
 * overwrites what it does faster, with the same bits; only AMX has formulas of its own, for bf16 weights and pages (gemm_bf16_amx.inc.h, attn_amx.inc.h), and asks for
 * another program where weights are in affine groups (ln_cpu_by_row). Files named
 * *_avx2.c, *_avx512.c and *_amx.c are compiled for those instructions and may
 * only be called once ln_cpu_rung_here has said that the machine has them; *_neon.c is for any aarch64. A build knows the rungs of
 * its own architecture only. */
#ifndef LN_CPU_H
#define LN_CPU_H

#include "../../ops/ops.h"
#include "pack/bf12.h"

typedef enum ln_rung {
    LN_RUNG_PLAIN = 0,
#if defined(__x86_64__)
    LN_RUNG_AVX2,
    LN_RUNG_AVX512,
    LN_RUNG_AMX,
#elif defined(__aarch64__)
    LN_RUNG_NEON,
#endif
    LN_RUNG_COUNT
} ln_rung;

const char *ln_cpu_rung_name(ln_rung r);
/* Whether this machine, and this build, has it. */
bool ln_cpu_rung_here(ln_rung r);
/* The highest rung here, or the one that LINNET_CPU names; LN_EUSAGE for an unknown name, LN_EUNSUPPORTED for one not here. */
ln_status ln_cpu_rung_pick(ln_rung *out, ln_error *err);
/* Fills the table of one rung, which must be here. */
void ln_cpu_kernels(ln_rung r, ln_kernel table[LN_OP_COUNT]);
/* See device.h. */
double ln_cpu_freedom(ln_rung r, const ln_node *n, const ln_value *values);
bool ln_cpu_reads_bf16(ln_rung r, const ln_node *n, const ln_value *values, int k);
bool ln_cpu_by_row(ln_rung r, const ln_node *n, const ln_value *values);
/* The same of a weight of so many columns. */
bool ln_cpu_columns_by_row(ln_rung r, int64_t columns);
/* The rung whose kernel of an op the table of rung r holds; NULL when there is none. */
const char *ln_cpu_kernel_rung(ln_rung r, int op);

/* What a core of a rung can do at best (measure.c): read n floats, asking for those `ahead` further on; multiply and add, giving the number of
 * operations. `sink` takes 16 floats. */
typedef struct ln_cpu_limits {
    void (*read)(const float *data, int64_t n, int64_t ahead, float *sink);
    double (*multiply)(int64_t rounds, float *sink);
} ln_cpu_limits;
extern const ln_cpu_limits ln_cpu_limits_avx2, ln_cpu_limits_avx512, ln_cpu_limits_amx, ln_cpu_limits_neon;

void ln_cpu_linear_avx2(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_avx512(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_dot(ln_kernel table[LN_OP_COUNT]); /* of AVX-512 where the machine multiplies pairs of bf16 numbers */
void ln_cpu_linear_amx(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_q_avx2(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_fixed_avx2(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_q_avx512(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_fixed_avx512(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_fixed_vnni(ln_kernel table[LN_OP_COUNT]); /* of AVX-512 where the machine has VNNI; whatever has AMX does */
void ln_cpu_linear_fixed_amd(ln_kernel table[LN_OP_COUNT]);  /* the same on AMD's */
void ln_cpu_linear_fixed_row_amx(ln_kernel table[LN_OP_COUNT]);
/* What its kernels read, up to 4 bits, where ln_pack_q put scales and biases: of packed blocks [lo, hi), block 0 being at `packed` and its units at `units`. */
void ln_cpu_row_coefficients_amx(void *packed, const float *units, ln_enc enc, ln_dtype dtype, int64_t C, int64_t lo, int64_t hi);
void ln_cpu_rows_avx2(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_rows_avx512(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_attn_avx2(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_attn_avx512(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_attn_dot(ln_kernel table[LN_OP_COUNT]); /* as ln_cpu_linear_dot */
void ln_cpu_attn_amx(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_neon(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_q_neon(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_linear_fixed_neon(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_rows_neon(ln_kernel table[LN_OP_COUNT]);
void ln_cpu_attn_neon(ln_kernel table[LN_OP_COUNT]);

/* y[rows][lo .. hi) + bias, by the owner of those outputs. */
static inline void ln_cpu_add_bias(const ln_arg *bias, float *y, int64_t ldy, int64_t rows, int64_t lo, int64_t hi) {
    for (int64_t d = lo; d < hi; d++) {
        const float f = ln_num_load(bias->data, bias->dtype, d);
        for (int64_t r = 0; r < rows; r++) y[r * ldy + d] = y[r * ldy + d] + f;
    }
}

/* What a share of blocks [lo, hi) reads of a packed weight. */
static inline ln_reads ln_cpu_reads(const void *weight, int64_t block, int64_t lo, int64_t hi, int64_t n) {
    return (ln_reads){(const uint8_t *)weight + lo * block, (const uint8_t *)weight + hi * block, block, (int)n, 0};
}

/* A packed weight of numbers, in full or tight: the bytes of a block, and what a share of them reads. */
static inline int64_t ln_cpu_block(const ln_arg *w, int64_t C) { return w->tight ? ln_tight_block(C) : ln_pack_block(w->dtype, C); }
static inline ln_reads ln_cpu_reads_numbers(const ln_arg *w, int64_t C, int64_t lo, int64_t hi, int64_t n) {
    return ln_cpu_reads((const uint8_t *)w->data + (w->tight ? LN_TIGHT_ROOM : 0), ln_cpu_block(w, C), lo, hi, n);
}

/* Kernels themselves, for the rung above where it has none for a type of weights or pages. */
extern const ln_kernel ln_cpu_attn_kernel_avx2, ln_cpu_attn_kernel_avx512, ln_cpu_attn_kernel_neon;
void ln_cpu_linear_run_avx2(const ln_call *c);
void ln_cpu_linear_run_avx512(const ln_call *c);
void ln_cpu_linear_run_dot(const ln_call *c); /* rows of bf16 numbers, bf16 weights */
void ln_cpu_linear_run_neon(const ln_call *c);

#endif
