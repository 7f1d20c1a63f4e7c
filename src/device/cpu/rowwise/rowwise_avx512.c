/* The row-wise ops on AVX-512. */
#include "../simd/simd_avx512.h"
#include "rowwise.inc.h"
