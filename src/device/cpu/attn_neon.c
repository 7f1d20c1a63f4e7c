/* attn_paged on NEON: attn_tmpl.h compiled for it. */
#include "simd_neon.h"
#include "attn_tmpl.h"
