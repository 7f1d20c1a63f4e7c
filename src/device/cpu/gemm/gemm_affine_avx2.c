/* linear_q on AVX2: all widths of affine groups. docs/speed.md gives reasons for the numbers. */
#include "../simd/simd_avx2.h"
#define LN_MR 6
#define LN_PREFETCH_BYTES 2048
#define LN_SMALL_M_MR 5
#define LN_NR_BLOCKS 1
#define LN_SMALL_M_BLOCKS(M) ((M) == 1 ? 4 : (M) == 2 ? 2 : 1)
#include "gemm_affine_f32.inc.h"
