/* linear on AVX2: 6 rows x 16 outputs. docs/speed.md gives reasons for the numbers. */
#include "../simd/simd_avx2.h"
#define LN_KC 1024
#define LN_WIDE 1
#define LN_PIECES 8
#define LN_ROWS 6
#define LN_AHEAD 2048
#define LN_ASKS(M, BL) ((BL) < 4)
#define LN_FEW_1 4
#define LN_SHORT_1 6
#define LN_FEW_2 2
#define LN_FEW_3 1
#define LN_FEW_4 1
#define LN_TIGHT_ROWS 8
#define LN_TIGHT_VECTORS(M) ((M) == 1 ? 4 : (M) <= 4 ? 2 : 1)
#define LN_TIGHT_APART(M) ((M) == 5 || (M) == 6)
#define LN_TIGHT_PANEL 8
#define LN_TIGHT_TURN 32
#define LN_TIGHT_AHEAD 16
#define LN_TIGHT_ASK(p) vf_ahead_far(p)
#include "gemm_dense_f32.inc.h"
