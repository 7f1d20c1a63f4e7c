/* attn_paged on AVX-512. */
#include "../simd/simd_avx512.h"
#include "attn_vector.inc.h"
