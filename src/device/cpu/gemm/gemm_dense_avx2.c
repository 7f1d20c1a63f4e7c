/* linear on AVX2: 6 rows x 16 outputs. docs/speed.md gives reasons for the numbers. */
#include "../simd/simd_avx2.h"
#define LN_KC 1024
#define LN_NR_BLOCKS 1
#define LN_CHUNKS 8
#define LN_MR 6
#define LN_PREFETCH_BYTES 2048
#define LN_PREFETCHES(M, BL) ((BL) < 4)
#define LN_SMALL_M_BLOCKS_1 4
#define LN_SHORT_K_BLOCKS 6
#define LN_SMALL_M_BLOCKS_2 2
#define LN_SMALL_M_BLOCKS_3 1
#define LN_SMALL_M_BLOCKS_4 1
#define LN_BF12_SMALL_M 8
#define LN_BF12_VECTORS(M) ((M) == 1 ? 4 : (M) <= 4 ? 2 : 1)
#define LN_BF12_UNPACK_FIRST(M) ((M) == 5 || (M) == 6)
#define LN_BF12_PANEL_M 8
#define LN_BF12_MC_TILES 32
#define LN_BF12_PREFETCH_TILES 16
#define LN_BF12_PREFETCH(p) prefetch_l2(p)
#include "gemm_dense_f32.inc.h"
