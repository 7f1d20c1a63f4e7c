/* The register geometry of linear over affine groups, x in BFP, on AVX-512, with VNNI or without: micro-
 * kernels of up to 8 rows x 48 outputs. Included once, after simd_avx512.h. */
#define LN_MR        8
#define LN_NR_BLOCKS 3
#include "gemm_bfp_i16.inc.h"
