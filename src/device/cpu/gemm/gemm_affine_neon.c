/* linear_q on NEON: all widths of affine groups. docs/speed.md gives reasons for the numbers. */
#include "../simd/simd_neon.h"
#define LN_ROWS 6
#define LN_AHEAD 1024
#define LN_Q_FEW 6
#define LN_WIDE 1
#define LN_Q_BLOCKS(M) ((M) == 1 ? 2 : 1)
#include "gemm_affine_f32.inc.h"
