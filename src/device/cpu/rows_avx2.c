/* The row-wise ops on AVX2: rows_tmpl.h compiled for it. */
#include "simd_avx2.h"
#include "rows_tmpl.h"
