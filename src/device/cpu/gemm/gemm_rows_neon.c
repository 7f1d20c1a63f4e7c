/* Products of temps and backward products on NEON. */
#include "../simd/simd_neon.h"
#define LN_ROWS_MR 4
#include "gemm_rows.inc.h"
