/* linear on AVX-512. */
#include "simd_avx512.h"
#include "linear_avx512.h"
