/* GEMM of weights in coded rows on AVX2. */
#include "../simd/simd_avx2.h"
#include "gemm_coded.inc.h"
