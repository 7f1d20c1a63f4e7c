/* linear_fixed on AMD's AVX-512, with VNNI: few rows read one stream of blocks, which its processors follow better than three; Intel's follow three better than one (docs/speed.md). */
#define LN_VNNI
#include "../simd/simd_avx512.h"
#undef LN_ISA
#define LN_ISA(name) name##_vnni_amd
#define LN_SMALL_M_BLOCKS(M) ((M) < 4 ? 1 : 3)
#define LN_SPLIT_SUMS
#define LN_PREFETCH_BYTES_1 3072
#include "gemm_bfp_avx512.h"
