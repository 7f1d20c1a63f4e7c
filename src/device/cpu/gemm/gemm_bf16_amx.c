/* linear and linear_gated of bf16 weights on AMX, by tiles. */
#include "../cpu.h"
#include "../simd/simd_avx512.h"
#include "../simd/simd_amx.h"
#include "gemm_bf16_amx.inc.h"

static void linear_reads(const ln_call *c, ln_reads *out) {
    int64_t lo, hi;
    bf16_amx_partition(c, &lo, &hi);
    *out = ln_cpu_dense_reads(&c->in[1], c->in[0].cols, lo, hi, c->in[1].bf12 ? BF12_BLOCKS : SMALL_M_BLOCKS);
}

#define GATED_ROWWISE_KERNEL ln_cpu_gated_run_avx512
#include "gemm_bf16_gated_amx.inc.h"

const ln_kernel_row ln_cpu_dense_amx[] = {
    {LN_OP_LINEAR,
     LN_ANY_BF16_PRODUCT,
     {.fn = bf16_amx_run,
      .scratch = bf16_amx_scratch,
      .pieces = tune_gemm_bf16_CHUNKS_amx,
      .reads = linear_reads}},
    {LN_OP_LINEAR_GATED,
     LN_ANY_BF16_PRODUCT,
     {.fn = gated_run, .scratch = gated_scratch, .pieces = tune_gemm_bf16_CHUNKS_amx, .reads = linear_reads}},
    {0},
};
