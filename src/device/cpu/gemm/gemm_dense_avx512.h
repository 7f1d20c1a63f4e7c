/* linear on AVX-512: 8 rows x 48 outputs. docs/speed.md gives reasons for the numbers. */
#define LN_KC 1024
#define LN_NR_BLOCKS 3
#define LN_CHUNKS 1
#define LN_MR 8
#define LN_PREFETCH_BYTES 2048
#define LN_SMALL_M_BLOCKS_1 4
#define LN_SMALL_M_BLOCKS_2 4
#define LN_SMALL_M_BLOCKS_3 4
#define LN_SMALL_M_BLOCKS_4 4
#define LN_BF12_SMALL_M 8
#ifdef LN_BF16_DOT /* AMD's */
#define LN_BF12_VECTORS(M) ((M) == 1 || (M) > 4 ? 1 : 2)
#define LN_BF12_PREFETCH_TILES 8
#define LN_BF12_PREFETCH(p) prefetch_l2(p)
#else
#define LN_BF12_VECTORS(M) ((M) > 4 ? 2 : 4)
#define LN_BF12_PREFETCH_TILES 4
#endif
#define LN_BF12_UNPACK_FIRST(M) false
#define LN_BF12_MC_TILES 32
#include "gemm_dense_f32.inc.h"
