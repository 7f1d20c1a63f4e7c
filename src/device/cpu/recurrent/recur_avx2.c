/* Recurrent mixers on AVX2. */
#include "../simd/simd_avx2.h"
#include "recur.inc.h"
