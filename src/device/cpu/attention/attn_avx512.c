/* attn_paged on AVX-512: attn_vector.inc.h compiled for it. */
#include "../simd/simd_avx512.h"
#include "attn_vector.inc.h"
