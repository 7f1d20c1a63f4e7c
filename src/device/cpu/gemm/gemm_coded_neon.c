/* GEMM of weights in coded rows on NEON. */
#include "../simd/simd_neon.h"
#include "gemm_coded.inc.h"
