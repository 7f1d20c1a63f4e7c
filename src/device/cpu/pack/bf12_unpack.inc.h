/* Decompressing bf12 tiles (bf12.h) by vectors.
 *
 *     low bytes, 64 | a b c .. |  codes, 4 bits each  --lookup-->  high bytes | A B C .. |
 *     interleave:   | aA bB cC .. |                                two lines of bf16 pairs
 *
 * Included once, after a simd header. */
#include "bf12.h"

enum { VECTORS_PER_LINE = LN_PACK_NR / VL }; /* vectors of a line of 16 32-bit lanes */

/* Vector `of` of lines 2 j and 2 j + 1 of the tile at p. */
INLINE void bf12_unpack_lines(vi b[2], const uint8_t *p, int j, int of, vi table) {
    const vi low = vi_load(p + 64 * j + 4 * VL * of),
             codes = vi_load(p + LN_BF12_LOW_BYTES + j / 2 * 64 + 4 * VL * of);
    const vi high = vi_lut_bytes(table, vi_and32(j % 2 ? vi_shr32(codes, 4) : codes, 0x0f0f0f0f));
    b[0] = vi_unpack_lo8(low, high);
    b[1] = vi_unpack_hi8(low, high);
}
/* Decompresses the tile at p, whose table is `table_bits`, into 1,024 bytes at `to`, exceptions apart.
 * prefetches: 768 bytes from `next` on meanwhile, a line at a time, as they are read. */
INLINE void bf12_unpack_tile_lines(const bool prefetches, uint8_t *to, const uint8_t *p, uint64_t table_bits,
                                   const uint8_t *next) {
    const vi table = vi_lut_load(table_bits & 0x7f7f7f7f7f7f7f7f);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        if (prefetches) prefetch_l1(next + 64 * j);
        if (prefetches && j % 2 == 0) prefetch_l1(next + LN_BF12_LOW_BYTES + 32 * j);
#pragma GCC unroll 4
        for (int of = 0; of < VECTORS_PER_LINE; of++) {
            vi b[2];
            bf12_unpack_lines(b, p, j, of, table);
            for (int i = 0; i < 2; i++) vi_store(to + 128 * j + 64 * i + 4 * VL * of, b[i]);
        }
    }
}
/* The same of any tile of a block, exceptions patched. */
static void bf12_unpack_tile(uint8_t *to, const uint8_t *block, int64_t C, int64_t tile) {
    const uint64_t table_bits = ln_bf12_table(block, tile);
    bf12_unpack_tile_lines(false, to, block + ln_bf12_tiles_offset(C) + tile * LN_BF12_TILE_BYTES, table_bits,
                           NULL);
    if (table_bits & LN_BF12_HAS_EXCEPTIONS) ln_bf12_patch(to, block, C, tile);
}
