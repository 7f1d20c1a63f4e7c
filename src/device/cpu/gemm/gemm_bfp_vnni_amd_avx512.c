/* linear_fixed on AMD's AVX-512, with VNNI: few rows read one stream of blocks, which its processors follow better than three; Intel's follow three better than one (docs/speed.md). */
#define LN_VNNI
#include "../simd/simd_avx512.h"
#undef LN_RUNG
#define LN_RUNG(name) name##_amd
#define LN_BLOCKS(M) ((M) < 4 ? 1 : 3)
#define LN_SPLIT
#define LN_AHEAD_1 3072
#include "gemm_bfp_avx512.h"
