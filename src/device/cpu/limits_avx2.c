#include "simd_avx2.h"
#include "limits_tmpl.h"
