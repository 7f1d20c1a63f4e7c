/* The row-wise ops on NEON. */
#include "../simd/simd_neon.h"
#include "rowwise.inc.h"
