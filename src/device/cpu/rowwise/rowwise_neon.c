/* The row-wise ops on NEON: rowwise.inc.h compiled for it. */
#include "../simd/simd_neon.h"
#include "rowwise.inc.h"
