/* linear on AVX-512 with AVX512_BF16: bf16 rows and bf16 weights by pairs, twice as many multiply-adds an
 * instruction, with the same bits. */
#include "../simd/simd_avx512.h"
#undef LN_ISA
#define LN_ISA(name) name##_vdpbf16
#define LN_BF16_DOT
#include "gemm_dense_avx512.h"

const ln_kernel_row ln_cpu_dense_vdpbf16[] = {
    {LN_OP_LINEAR, 1 << LN_PRODUCT_BF16_BF16, {.fn = linear_run, .scratch = scratch, .reads = linear_reads}},
    {0},
};
