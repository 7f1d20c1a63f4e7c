/* Products with the matrices of experts on NEON. */
#include "../simd/simd_neon.h"
#define LN_EXPERTS_PRODUCTS LN_VECTOR_PRODUCTS
#include "experts.inc.h"
