/* The row-wise ops on NEON: rows_tmpl.h compiled for it. */
#include "simd_neon.h"
#include "rows_tmpl.h"
