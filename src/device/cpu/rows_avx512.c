/* The row-wise ops on AVX-512: rows_tmpl.h compiled for it. */
#define LN_RUNG(name) name##_avx512
#include "rows_tmpl.h"
