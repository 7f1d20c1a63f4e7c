/* attn_paged on NEON. */
#include "../simd/simd_neon.h"
#include "attn_vector.inc.h"
