/* linear on AVX-512. */
#include "../simd/simd_avx512.h"
#include "gemm_dense_avx512.h"
