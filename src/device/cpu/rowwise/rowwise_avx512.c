/* The row-wise ops on AVX-512: rowwise.inc.h compiled for it. */
#include "../simd/simd_avx512.h"
#include "rowwise.inc.h"
