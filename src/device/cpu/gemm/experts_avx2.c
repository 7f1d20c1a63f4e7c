/* Products with the matrices of experts on AVX2. */
#include "../simd/simd_avx2.h"
#define LN_EXPERTS_PRODUCTS LN_VECTOR_PRODUCTS
#include "experts.inc.h"
