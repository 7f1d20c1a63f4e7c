/* The row-wise ops on NEON: rows_tmpl.h compiled for it. */
#define LN_RUNG(name) name##_neon
#include "rows_tmpl.h"
