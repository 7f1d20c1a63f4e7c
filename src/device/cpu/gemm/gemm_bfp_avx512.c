/* linear_bfp on AVX-512, without VNNI. */
#include "../simd/simd_avx512.h"
#include "gemm_bfp_avx512.h"
