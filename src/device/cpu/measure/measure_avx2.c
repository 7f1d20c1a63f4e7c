#include "../simd/simd_avx2.h"
#include "measure.inc.h"
