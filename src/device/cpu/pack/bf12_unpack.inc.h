/* Unpacking tight blocks (bf12.h) by vectors. Included once, after a simd header. */
#include "bf12.h"

enum { PER_LINE = LN_PACK_D / VL }; /* vectors of 32 bits an output */

/* Vector `of` of lines 2 j and 2 j + 1 of the tile at p. */
INLINE void tight_lines(vi b[2], const uint8_t *p, int j, int of, vi table) {
    const vi low = vi_load(p + 64 * j + 4 * VL * of), codes = vi_load(p + LN_TIGHT_LOW + j / 2 * 64 + 4 * VL * of);
    const vi high = vi_bytes_at(table, vi_mask(j % 2 ? vi_right(codes, 4) : codes, 0x0f0f0f0f));
    b[0] = vi_zip_low(low, high);
    b[1] = vi_zip_high(low, high);
}
/* The tile at p, whose table is `word`, as 1,024 bytes at `to`, but for odd numbers. `asks`: 768 bytes from `ask` on are asked for meanwhile, a line at a time, as they are read. */
INLINE void unpack_lines(const bool asks, uint8_t *to, const uint8_t *p, uint64_t word, const uint8_t *ask) {
    const vi table = vi_table(word & 0x7f7f7f7f7f7f7f7f);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        if (asks) vf_ahead(ask + 64 * j);
        if (asks && j % 2 == 0) vf_ahead(ask + LN_TIGHT_LOW + 32 * j);
#pragma GCC unroll 4
        for (int of = 0; of < PER_LINE; of++) {
            vi b[2];
            tight_lines(b, p, j, of, table);
            for (int i = 0; i < 2; i++) vi_store(to + 128 * j + 64 * i + 4 * VL * of, b[i]);
        }
    }
}
static void unpack_tile(uint8_t *to, const uint8_t *block, int64_t C, int64_t tile) {
    const uint64_t word = ln_tight_table(block, tile);
    unpack_lines(false, to, block + ln_tight_head(C) + tile * LN_TIGHT_TILE, word, NULL);
    if (word & LN_TIGHT_ODD) ln_tight_mend(to, block, C, tile);
}
