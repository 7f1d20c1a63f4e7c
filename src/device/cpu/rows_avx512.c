/* The row-wise ops on AVX-512: rows_tmpl.h compiled for it. */
#include "simd_avx512.h"
#include "rows_tmpl.h"
