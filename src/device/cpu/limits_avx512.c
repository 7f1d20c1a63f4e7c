#include "simd_avx512.h"
#include "limits_tmpl.h"
