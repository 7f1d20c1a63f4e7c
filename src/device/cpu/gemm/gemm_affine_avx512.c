/* linear_q on AVX-512: all widths of affine groups. docs/speed.md gives reasons for the numbers. */
#include "../simd/simd_avx512.h"
#define LN_MR 8
#define LN_PREFETCH_BYTES 1024
#define LN_SMALL_M_MR 8
#define LN_NR_BLOCKS 3
#define LN_SMALL_M_BLOCKS(M) ((M) == 1 ? 8 : (M) <= 4 ? 4 : 2)
#include "gemm_affine_f32.inc.h"
