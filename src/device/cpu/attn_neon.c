/* attn_paged on NEON: attn_lanes_tmpl.h compiled for it. */
#include "simd_neon.h"
#include "attn_lanes_tmpl.h"
