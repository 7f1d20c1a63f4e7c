/* What a core can do at best on AVX-512. */
#include "../simd/simd_avx512.h"
#include "measure.inc.h"
