/* linear over affine groups, x in BFP, on AVX-512 with VNNI, where VPDPWSSD multiplies pairs of int16 and
 * adds them. */
#define LN_VNNI
#include "../simd/simd_avx512.h"
#undef LN_ISA
#define LN_ISA(name) name##_vnni
#include "gemm_bfp_avx512.h"
