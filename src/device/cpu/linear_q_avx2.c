/* linear_q on AVX2: all widths of affine groups. docs/speed.md gives reasons for the numbers. */
#include "simd_avx2.h"
#define LN_ROWS 6
#define LN_AHEAD 2048
#define LN_Q_FEW 5
#define LN_WIDE 1
#define LN_Q_BLOCKS(M) ((M) == 1 ? 4 : (M) == 2 ? 2 : 1)
#include "linear_q_tmpl.h"
