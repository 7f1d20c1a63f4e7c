/* linear, linear_swiglu and linear_geglu on AMX: bf16 weights by tiles, other types as on AVX-512. */
#include "../cpu.h"
#include "../simd/simd_avx512.h"
#include "../simd/simd_amx.h"
#include "gemm_bf16_amx.inc.h"

static void linear_run(const ln_call *c) {
    if (c->in[1].dtype == LN_BF16) bf16_amx_run(c);
    else ln_cpu_linear_run_avx512(c);
}

static void linear_reads(const ln_call *c, ln_reads *out) {
    int64_t lo, hi;
    bf16_amx_partition(c, &lo, &hi);
    *out = ln_cpu_dense_reads(&c->in[1], c->in[0].cols, lo, hi, c->in[1].bf12 ? BF12_BLOCKS : SMALL_M_BLOCKS);
}

#define GATED_ROWWISE_TABLE ln_cpu_rowwise_avx512
#include "gemm_bf16_gated_amx.inc.h"

void ln_cpu_linear_amx(ln_kernel table[LN_OP_COUNT]) {
    table[LN_OP_LINEAR] = (ln_kernel){.fn = linear_run,
                                      .scratch = bf16_amx_scratch,
                                      .pieces = tune_gemm_bf16_CHUNKS_amx,
                                      .reads = linear_reads};
    table[LN_OP_LINEAR_SWIGLU] = table[LN_OP_LINEAR_GEGLU] = (ln_kernel){.fn = gated_run,
                                                                         .scratch = gated_scratch,
                                                                         .pieces = tune_gemm_bf16_CHUNKS_amx,
                                                                         .reads = linear_reads};
}
