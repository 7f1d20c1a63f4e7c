/* Recurrent mixers on AVX-512. */
#include "../simd/simd_avx512.h"
#include "recur.inc.h"
