/* GEMM of weights in coded rows on AVX-512. */
#include "../simd/simd_avx512.h"
#include "gemm_coded.inc.h"
