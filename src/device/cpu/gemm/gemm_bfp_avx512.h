/* linear_fixed on AVX-512, with VNNI or without: 8 rows x 48 outputs. docs/speed.md gives reasons for the numbers. */
#define LN_PIECES 1
#define LN_ROWS 8
#define LN_WIDE 3
#ifndef LN_BLOCKS
#define LN_BLOCKS(M) 3
#endif
#define LN_FEW 16
#define LN_AHEAD 1024
#include "gemm_bfp_i16.inc.h"
