/* linear_fixed on AVX-512, without VNNI. */
#include "simd_avx512.h"
#include "linear_fixed_avx512.h"
