/* What a core can do at best on NEON. */
#include "../simd/simd_neon.h"
#include "measure.inc.h"
