/* The row-wise ops on AVX2. */
#include "../simd/simd_avx2.h"
#include "rowwise.inc.h"
