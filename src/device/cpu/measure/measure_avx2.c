/* What a core can do at best on AVX2. */
#include "../simd/simd_avx2.h"
#include "measure.inc.h"
