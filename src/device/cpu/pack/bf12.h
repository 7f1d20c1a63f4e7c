/* bf12: bf16 matrices compressed to 12 bits an element, losslessly (docs/decisions/015-compressed-bf16.md).
 *
 * A bf16 number is a sign, eight bits of exponent and seven of fraction. Its low byte (the exponent's last
 * bit and the fraction) is as good as random; its high byte is not: the 512 elements of a tile (32 columns
 * of 16 outputs) seldom have more than eight different ones, the sign aside. So a tile of 768 bytes is
 *
 *     | 512 low bytes | 512 codes of 4 bits |
 *
 *   low bytes   two lines of the tile (pack.h) at a time, 16 bytes of each in turns of 8: byte
 *               64 j + 16 q + 8 i + b is that of element b of quarter q of line 2 j + i, so that
 *               interleaving them with high bytes, quarter by quarter, gives both lines
 *   codes       a sign and which of eight high bytes, in the order of the low bytes; those of 64 low
 *               bytes in the lower halves of 64 bytes, those of the next 64 in the upper halves
 *
 * and a block of 16 outputs is
 *
 *     | tables: 8 high bytes without sign for each tile; whole cache lines |
 *     | exceptions: what no table has, by tile; one cache line for 1,024 columns |
 *     | tiles, 768 bytes each |
 *
 * A tile with exceptions is flagged in its table (LN_BF12_HAS_EXCEPTIONS). A block that has more of them
 * than its list holds stays uncompressed: it is flagged in its first table (LN_BF12_UNCOMPRESSED), stored as
 * pack.h says behind all blocks, and its list begins with its number there. A matrix with so many of these
 * that nothing would be saved is not compressed. */
#ifndef LN_BF12_H
#define LN_BF12_H

#include "pack.h"

/* The header of a bf12 weight; its blocks follow LN_BF12_HEADER_BYTES on. */
typedef struct ln_bf12 {
    int64_t block;  /* bytes from block to block */
    int64_t blocks; /* number of blocks; uncompressed ones follow them, ln_pack_block_bytes bytes each */
} ln_bf12;
enum {
    LN_BF12_HEADER_BYTES = 64,
    LN_BF12_TILE_COLS = 32,
    LN_BF12_TILE_BYTES = 768,
    LN_BF12_LOW_BYTES = 512,
    LN_BF12_MIN_COLS = 512,
    LN_BF12_MAX_COLS = 1 << 19 /* columns: more than, at most */
};
#define LN_BF12_HAS_EXCEPTIONS 0x80ull
#define LN_BF12_UNCOMPRESSED   0x8000ull

static inline int64_t ln_bf12_tile_count(int64_t C) {
    return (C + LN_BF12_TILE_COLS - 1) / LN_BF12_TILE_COLS;
}
/* Offsets in a block of its list and of its tiles; bytes of a block. */
static inline int64_t ln_bf12_list_offset(int64_t C) { return (8 * ln_bf12_tile_count(C) + 63) / 64 * 64; }
static inline int64_t ln_bf12_tiles_offset(int64_t C) {
    return ln_bf12_list_offset(C) + (C + 1023) / 1024 * 64;
}
static inline int64_t ln_bf12_block_bytes(int64_t C) {
    return ln_bf12_tiles_offset(C) + LN_BF12_TILE_BYTES * ln_bf12_tile_count(C);
}
static inline uint64_t ln_bf12_table(const uint8_t *block, int64_t tile) {
    uint64_t t;
    memcpy(&t, block + 8 * tile, 8);
    return t;
}

/* An entry of an exception list: an element of a tile, as an uncompressed tile has them (pack.h), and its
 * high byte. The list ends with an entry of all ones, or where the tiles begin. */
typedef struct ln_bf12_exception {
    int64_t tile;
    int number;
    uint8_t high;
} ln_bf12_exception;
#define LN_BF12_LIST_END UINT32_MAX
static inline uint32_t ln_bf12_exception_encode(ln_bf12_exception o) {
    return (uint32_t)o.tile << 17 | (uint32_t)o.number << 8 | o.high;
}
static inline ln_bf12_exception ln_bf12_exception_decode(uint32_t entry) {
    return (ln_bf12_exception){entry >> 17, (int)(entry >> 8 & 511), (uint8_t)entry};
}
static inline uint32_t ln_bf12_list_entry(const uint8_t *block, int64_t C, int64_t i) {
    uint32_t entry;
    memcpy(&entry, block + ln_bf12_list_offset(C) + 4 * i, 4);
    return entry;
}
static inline int64_t ln_bf12_list_length(int64_t C) {
    return (ln_bf12_tiles_offset(C) - ln_bf12_list_offset(C)) / 4;
}

/* An uncompressed block's data; NULL: block b is compressed. */
static inline const uint8_t *ln_bf12_uncompressed(const void *weight, int64_t C, int64_t b) {
    ln_bf12 t;
    memcpy(&t, weight, sizeof t);
    const uint8_t *blocks = (const uint8_t *)weight + LN_BF12_HEADER_BYTES, *block = blocks + b * t.block;
    return ln_bf12_table(block, 0) & LN_BF12_UNCOMPRESSED
               ? blocks + t.blocks * t.block +
                     ln_bf12_list_entry(block, C, 0) * ln_pack_block_bytes(LN_BF16, C)
               : NULL;
}

/* Bytes of the whole weight of so many blocks, n_full of them uncompressed; and how many may be, for
 * something to be saved. */
static inline int64_t ln_bf12_bytes(int64_t blocks, int64_t C, int64_t n_full) {
    return LN_BF12_HEADER_BYTES + blocks * ln_bf12_block_bytes(C) + n_full * ln_pack_block_bytes(LN_BF16, C);
}
int64_t ln_bf12_max_uncompressed(int64_t blocks, int64_t C);

/* Writes the header of a weight of D rows, before its blocks are made. */
static inline void ln_bf12_init(void *out, int64_t D, int64_t C) {
    const ln_bf12 t = {.block = ln_bf12_block_bytes(C), .blocks = ln_pack_blocks(D)};
    memcpy(out, &t, sizeof t);
}
/* Blocks [lo, hi) of w[D, C], rows at any alignment, into the weight at `out`, which was initialised; *n_full
 * counts uncompressed blocks, for all threads. false: there are more than ln_bf12_max_uncompressed, and what
 * was made is of no use. */
bool ln_bf12_pack(void *out, const void *w, int64_t D, int64_t C, int64_t lo, int64_t hi,
                  _Atomic int64_t *n_full);
/* Bytes that w[D, C] will take, judged by up to max_blocks of its blocks, or -1: compression saves nothing.
 * Some more blocks are counted as uncompressed than those tell; scratch is for an uncompressed block and a
 * compressed one. on_pages is called with each block's rows before and after they are read, so that a file's
 * pages can be given back. */
typedef void ln_bf12_pages_fn(const void *rows, size_t bytes, bool after);
int64_t ln_bf12_estimate(const void *w, int64_t D, int64_t C, int64_t max_blocks, uint8_t *scratch,
                         ln_bf12_pages_fn *on_pages);
/* y[C] = scale * row d. */
void ln_bf12_row(float *y, const void *weight, int64_t C, int64_t d, float scale);
/* Patches the exceptions of a tile into its 1,024 decompressed bytes at `to`. */
void ln_bf12_patch(uint8_t *to, const uint8_t *block, int64_t C, int64_t tile);

#endif
