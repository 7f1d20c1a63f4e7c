/* linear on AVX-512: 8 rows x 48 outputs. docs/speed.md gives reasons for the numbers. */
#define LN_KC 1024
#define LN_WIDE 3
#define LN_PIECES 1
#define LN_ROWS 8
#define LN_AHEAD 2048
#define LN_FEW_1 4
#define LN_FEW_2 4
#define LN_FEW_3 4
#define LN_FEW_4 4
#define LN_TIGHT_ROWS 8
#ifdef LN_DOT /* AMD's */
#define LN_TIGHT_VECTORS(M) ((M) == 1 || (M) > 4 ? 1 : 2)
#define LN_TIGHT_AHEAD 8
#define LN_TIGHT_ASK(p) vf_ahead_far(p)
#else
#define LN_TIGHT_VECTORS(M) ((M) > 4 ? 2 : 4)
#define LN_TIGHT_AHEAD 4
#endif
#define LN_TIGHT_APART(M) false
#define LN_TIGHT_TURN 32
#include "gemm_dense_f32.inc.h"
