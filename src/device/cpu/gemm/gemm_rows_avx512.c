/* Products of temps and backward products on AVX-512. */
#include "../simd/simd_avx512.h"
#define LN_ROWS_MR 8
#include "gemm_rows.inc.h"
