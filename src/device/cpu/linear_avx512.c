/* linear on AVX-512: 8 x 48 micro-kernel, 16 x 32 tiles of bf16. The tuning that docs/speed.md gives reasons for. */
#include "simd_avx512.h"
#define LN_KC 1024
#define LN_G1 1
#define LN_G2 1
#define LN_G3 1
#define LN_G4 1
#define LN_AHEAD_MAX (256 << 10)
#define LN_AHEAD_HINT 2 /* into L2 */
#include "linear_tmpl.h"
