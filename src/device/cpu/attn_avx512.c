/* attn_paged on AVX-512: attn_lanes_tmpl.h compiled for it. */
#include "simd_avx512.h"
#include "attn_lanes_tmpl.h"
