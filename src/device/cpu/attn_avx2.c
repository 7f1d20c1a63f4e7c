/* attn_paged on AVX2: attn_tmpl.h compiled for it. */
#include "simd_avx2.h"
#include "attn_tmpl.h"
