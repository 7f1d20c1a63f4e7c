/* linear on NEON: micro-kernels of up to 6 rows x 16 outputs, 24 accumulators of 32 registers. */
#include "../simd/simd_neon.h"
#define LN_MR           6
#define LN_NR_BLOCKS    1
#define LN_BF12_SMALL_M 4
#include "gemm_dense_f32.inc.h"
