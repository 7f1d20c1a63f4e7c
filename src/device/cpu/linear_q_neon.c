/* linear_q on NEON: all widths of affine groups. */
#include "simd_neon.h"
#include "linear_q_tmpl.h"
