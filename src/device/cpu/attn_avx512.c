/* attn_paged on AVX-512: attn_tmpl.h compiled for it. */
#include "simd_avx512.h"
#include "attn_tmpl.h"
