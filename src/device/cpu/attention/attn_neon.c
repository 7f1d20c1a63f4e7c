/* attn_paged on NEON: attn_vector.inc.h compiled for it. */
#include "../simd/simd_neon.h"
#include "attn_vector.inc.h"
