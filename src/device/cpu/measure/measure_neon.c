#include "../simd/simd_neon.h"
#include "measure.inc.h"
