/* linear_q on AVX-512: all widths of affine groups. docs/speed.md gives reasons for the numbers. */
#include "../simd/simd_avx512.h"
#define LN_ROWS 8
#define LN_AHEAD 1024
#define LN_Q_FEW 8
#define LN_WIDE 3
#define LN_Q_BLOCKS(M) ((M) == 1 ? 8 : (M) <= 4 ? 4 : 2)
#include "gemm_affine_f32.inc.h"
