/* linear_fixed on NEON: 6 rows x 16 outputs. docs/speed.md gives reasons for the numbers. */
#include "../simd/simd_neon.h"
#define LN_PIECES 8
#define LN_ROWS 6
#define LN_WIDE 1
#define LN_BLOCKS(M) 1
#define LN_FEW 12
#define LN_AHEAD 1024
#include "gemm_bfp_i16.inc.h"
