/* attn_paged on AVX2: attn_vector.inc.h compiled for it. */
#include "../simd/simd_avx2.h"
#include "attn_vector.inc.h"
