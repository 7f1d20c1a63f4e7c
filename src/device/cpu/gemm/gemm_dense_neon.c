/* linear on NEON: 6 rows x 16 outputs, 24 of 32 registers. The numbers follow from the registers, not from a clock. */
#include "../simd/simd_neon.h"
#define LN_KC 1024
#define LN_NR_BLOCKS 1
#define LN_CHUNKS 8
#define LN_MR 6
#define LN_PREFETCH_BYTES 1024
#define LN_SMALL_M_BLOCKS_1 2
#define LN_SMALL_M_BLOCKS_2 2
#define LN_SMALL_M_BLOCKS_3 1
#define LN_SMALL_M_BLOCKS_4 1
#define LN_BF12_SMALL_M 4
#define LN_BF12_VECTORS(M) ((M) <= 2 ? 8 : 4)
#define LN_BF12_UNPACK_FIRST(M) false
#define LN_BF12_MC_TILES 32
#define LN_BF12_PREFETCH_TILES 5
#include "gemm_dense_f32.inc.h"
