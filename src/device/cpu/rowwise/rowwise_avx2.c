/* The row-wise ops on AVX2: rowwise.inc.h compiled for it. */
#include "../simd/simd_avx2.h"
#include "rowwise.inc.h"
