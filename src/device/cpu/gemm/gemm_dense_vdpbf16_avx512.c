/* linear on AVX-512 with AVX512_BF16: bf16 rows and bf16 weights by pairs, twice as many multiply-adds an
 * instruction, with the same bits; other types as without it. */
#include "../simd/simd_avx512.h"
#undef LN_ISA
#define LN_ISA(name) name##_vdpbf16
#define LN_BF16_DOT
#include "gemm_dense_avx512.h"

static void linear_run(const ln_call *c) {
    if (c->in[0].bf16 && c->in[1].dtype == LN_BF16) ln_cpu_linear_run_vdpbf16(c);
    else ln_cpu_linear_run_avx512(c);
}

void ln_cpu_linear_vdpbf16(ln_kernel table[LN_OP_COUNT]) {
    table[LN_OP_LINEAR] = (ln_kernel){.fn = linear_run, .scratch = scratch, .reads = linear_reads};
}
