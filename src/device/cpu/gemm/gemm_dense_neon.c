/* linear on NEON: 6 rows x 16 outputs, 24 of 32 registers. The numbers follow from the registers, not from a clock. */
#include "../simd/simd_neon.h"
#define LN_KC 1024
#define LN_WIDE 1
#define LN_PIECES 8
#define LN_ROWS 6
#define LN_AHEAD 1024
#define LN_FEW_1 2
#define LN_FEW_2 2
#define LN_FEW_3 1
#define LN_FEW_4 1
#define LN_TIGHT_ROWS 4
#define LN_TIGHT_VECTORS(M) ((M) <= 2 ? 8 : 4)
#define LN_TIGHT_APART(M) false
#define LN_TIGHT_TURN 32
#define LN_TIGHT_AHEAD 5
#include "gemm_dense_f32.inc.h"
