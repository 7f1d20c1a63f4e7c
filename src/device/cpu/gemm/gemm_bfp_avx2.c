/* linear over affine groups, x in BFP, on AVX2: micro-kernels of up to 6 rows x 16 outputs. */
#include "../simd/simd_avx2.h"
#define LN_MR        6
#define LN_NR_BLOCKS 1
#include "gemm_bfp_i16.inc.h"
