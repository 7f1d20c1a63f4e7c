/* The row-wise ops on AVX2: rows_tmpl.h compiled for it. */
#define LN_RUNG(name) name##_avx2
#include "rows_tmpl.h"
