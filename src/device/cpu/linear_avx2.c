/* linear on AVX2: 6 x 16 micro-kernel, 8 x 16 tiles of bf16. The tuning that docs/speed.md gives reasons for. */
#include "simd_avx2.h"
#define LN_KC 256
#define LN_G1 2
#define LN_G2 4
#define LN_G3 2
#define LN_G4 2
#define LN_AHEAD_MAX (256 << 10)
#define LN_AHEAD_HINT 2 /* into L2 */
#include "linear_tmpl.h"
