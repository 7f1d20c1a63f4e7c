/* linear over affine groups, x in f32, on AVX-512: all code widths of affine groups, micro-kernels of up to
 * 8 rows x 48 outputs. */
#include "../simd/simd_avx512.h"
#define LN_MR        8
#define LN_NR_BLOCKS 3
#include "gemm_affine_f32.inc.h"
