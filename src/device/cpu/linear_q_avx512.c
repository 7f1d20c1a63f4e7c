/* linear_q on AVX-512: all widths of affine groups. */
#include "simd_avx512.h"
#include "linear_q_tmpl.h"
