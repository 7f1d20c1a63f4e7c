/* linear on NEON: 8 x 12 micro-kernel, 4 x 8 tiles of bf16. The numbers below follow from the registers, not from a clock: one row
 * takes 16 outputs at once since a vector is only 4 of them, more rows 8, so that chains and a tile stay in 32 registers. */
#include "simd_neon.h"
#define LN_KC 256
#define LN_G1 4
#define LN_G2 2
#define LN_G3 2
#define LN_G4 2
#define LN_AHEAD_MAX (256 << 10)
#define LN_AHEAD_HINT 2 /* into L2 */
#include "linear_tmpl.h"
