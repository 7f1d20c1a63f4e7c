/* linear over affine groups, x in f32, on AVX2: all code widths of affine groups, micro-kernels of up to 6
 * rows x 16 outputs. */
#include "../simd/simd_avx2.h"
#define LN_MR        6
#define LN_NR_BLOCKS 1
#include "gemm_affine_f32.inc.h"
