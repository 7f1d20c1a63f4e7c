/* Products with the matrices of experts on AVX-512. */
#include "../simd/simd_avx512.h"
#define LN_EXPERTS_PRODUCTS LN_VECTOR_PRODUCTS
#include "experts.inc.h"
