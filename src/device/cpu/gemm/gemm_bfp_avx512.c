/* linear over affine groups, x in BFP, on AVX-512, without VNNI. */
#include "../simd/simd_avx512.h"
#include "gemm_bfp_avx512.h"
