/* linear over affine groups, x in BFP, on AMD's AVX-512 with VNNI: small M reads one stream of blocks, which
 * AMD's prefetchers follow better than three; Intel's follow three better than one (tuning.def). */
#define LN_VNNI
#include "../simd/simd_avx512.h"
#undef LN_ISA
#define LN_ISA(name) name##_vnni_amd
#include "gemm_bfp_avx512.h"
