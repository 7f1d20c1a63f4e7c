/* Fixed-point numbers as bytes, for tiles: v = 256 h + l, h signed, l not. */
#ifndef LN_LIMBS_H
#define LN_LIMBS_H

#include <stdint.h>

/* n numbers, a multiple of 32, of a row of base/fixed.h for codes of `bits`, into limbs in the order of columns in which a tile's bytes have the codes:
 * those of a word of 4 bits the even ones first, the others as they are. By AVX-512; tests/kernels/tile_model.h says it in C. */
void ln_cpu_limbs_amx(int bits, const int16_t *v, int64_t n, uint8_t *h, uint8_t *l);

#endif
