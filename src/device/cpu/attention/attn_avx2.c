/* attn_paged on AVX2. */
#include "../simd/simd_avx2.h"
#include "attn_vector.inc.h"
