#include "../simd/simd_avx512.h"
#include "measure.inc.h"
