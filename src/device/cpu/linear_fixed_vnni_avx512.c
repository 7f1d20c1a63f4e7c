/* linear_fixed on AVX-512 with VNNI, where one instruction multiplies pairs and adds them. */
#define LN_VNNI
#include "simd_avx512.h"
#undef LN_RUNG
#define LN_RUNG(name) name##_vnni
#define LN_ROWS 8
#define LN_WIDE 3
#define LN_FEW 16
#define LN_AHEAD 1024
#include "linear_fixed_tmpl.h"
