/* linear_q on AVX2: all widths of affine groups. */
#include "simd_avx2.h"
#include "linear_q_tmpl.h"
