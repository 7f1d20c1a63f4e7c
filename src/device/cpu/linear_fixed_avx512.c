/* linear_fixed on AVX-512: 8 rows x 48 outputs. docs/speed.md gives reasons for the numbers. */
#include "simd_avx512.h"
#define LN_ROWS 8
#define LN_WIDE 3
#define LN_FEW 16
#define LN_AHEAD 1024
#include "linear_fixed_tmpl.h"
