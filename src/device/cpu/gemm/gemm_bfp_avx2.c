/* linear_fixed on AVX2: 6 rows x 16 outputs. docs/speed.md gives reasons for the numbers. */
#include "../simd/simd_avx2.h"
#define LN_CHUNKS 8
#define LN_MR 6
#define LN_NR_BLOCKS 1
#define LN_SMALL_M_BLOCKS(M) 1
#define LN_SMALL_M 12
#define LN_PREFETCH_BYTES 4096
#include "gemm_bfp_i16.inc.h"
