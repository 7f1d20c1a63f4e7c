/* linear on AVX2: micro-kernels of up to 6 rows x 16 outputs, 12 accumulators of 16 registers. */
#include "../simd/simd_avx2.h"
#define LN_MR             6
#define LN_NR_BLOCKS      1
#define LN_BF12_SMALL_M   8
#define LN_BF12_PANEL     /* eight rows by panels in L1 */
#define LN_SHORT_K_KERNEL /* one row of few columns has a kernel of its own */
#include "gemm_dense_f32.inc.h"
