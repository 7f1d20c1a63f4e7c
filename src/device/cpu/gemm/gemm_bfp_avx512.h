/* linear_fixed on AVX-512, with VNNI or without: 8 rows x 48 outputs. docs/speed.md gives reasons for the numbers. */
#define LN_CHUNKS 1
#define LN_MR 8
#define LN_NR_BLOCKS 3
#ifndef LN_SMALL_M_BLOCKS
#define LN_SMALL_M_BLOCKS(M) 3
#endif
#define LN_SMALL_M 16
#define LN_PREFETCH_BYTES 1024
#include "gemm_bfp_i16.inc.h"
