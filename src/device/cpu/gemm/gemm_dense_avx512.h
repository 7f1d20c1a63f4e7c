/* The register geometry of linear on AVX-512, with AVX512_BF16 or without: micro-kernels of up to 8 rows x
 * 48 outputs, 24 accumulators of 32 registers. Included once, after simd_avx512.h. */
#define LN_MR           8
#define LN_NR_BLOCKS    3
#define LN_BF12_SMALL_M 8
#include "gemm_dense_f32.inc.h"
