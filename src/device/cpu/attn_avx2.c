/* attn_paged on AVX2: attn_lanes_tmpl.h compiled for it. */
#include "simd_avx2.h"
#include "attn_lanes_tmpl.h"
