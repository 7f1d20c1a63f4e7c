#include "simd_neon.h"
#include "limits_tmpl.h"
