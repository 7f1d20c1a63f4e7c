/* Products of temps and backward products on AVX2. */
#include "../simd/simd_avx2.h"
#define LN_ROWS_MR 4
#include "gemm_rows.inc.h"
