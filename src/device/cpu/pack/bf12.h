/* Tight blocks: bf16 matrices in 12 bits a number, every bit of them kept
 * (docs/decisions/015-tight-blocks.md).
 *
 * A bf16 number is a sign, eight bits of exponent and seven of fraction. Its low byte (the exponent's last
 * bit and the fraction) is as good as random; its high byte is not: the 512 numbers of a tile (32 columns of
 * 16 outputs) seldom have more than eight different ones, but for the sign. So a tile is
 *
 *   512 low bytes     two lines of the tile (pack.h) at a time, 16 bytes of each in turns of 8: byte 64 j +
 * 16 q + 8 i + b is that of number b of quarter q of line 2 j + i, so that interleaving them with high bytes,
 * quarter by quarter, makes both lines 512 codes         of 4 bits: a sign and which of eight high bytes, in
 * the order of the low bytes; those of 64 low bytes in the lower halves of 64 bytes, those of the next 64 in
 * the upper ones
 *
 * and a block of 16 outputs is
 *
 *   tables            8 high bytes without their signs for each tile; whole lines
 *   list              what no table has, by tile: one line a 1,024 columns. A tile with such numbers is
 * marked in its table (LN_BF12_HAS_EXCEPTIONS) tiles             768 bytes each
 *
 * A block that has more such numbers than its list holds is marked in its first table (LN_BF12_UNCOMPRESSED);
 * it lies as pack.h says behind all blocks, and its list begins with its place there. A matrix with so many
 * of them that nothing would be won is not made tight. */
#ifndef LN_BF12_H
#define LN_BF12_H

#include "pack.h"

/* What the data of a tight weight begins with; its blocks follow LN_BF12_HEADER_BYTES bytes on. */
typedef struct ln_bf12 {
    int64_t block;  /* bytes from block to block */
    int64_t blocks; /* of them; those in full lie behind, ln_pack_block_bytes bytes each */
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
/* From the beginning of a block to its list, and to its tiles; bytes of a block. */
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

/* An entry of a list: which number of which tile, as a tile in full has them (pack.h), and its high byte. The
 * list ends with an entry of ones, or where the tiles begin. */
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

/* Where a block in full lies, NULL: it is tight. */
static inline const uint8_t *ln_bf12_uncompressed(const void *weight, int64_t C, int64_t b) {
    ln_bf12 t;
    memcpy(&t, weight, sizeof t);
    const uint8_t *blocks = (const uint8_t *)weight + LN_BF12_HEADER_BYTES, *block = blocks + b * t.block;
    return ln_bf12_table(block, 0) & LN_BF12_UNCOMPRESSED
               ? blocks + t.blocks * t.block +
                     ln_bf12_list_entry(block, C, 0) * ln_pack_block_bytes(LN_BF16, C)
               : NULL;
}

/* Bytes of the whole weight of so many blocks, n_full of them in full; and how many may be, for something to
 * be won. */
static inline int64_t ln_bf12_bytes(int64_t blocks, int64_t C, int64_t n_full) {
    return LN_BF12_HEADER_BYTES + blocks * ln_bf12_block_bytes(C) + n_full * ln_pack_block_bytes(LN_BF16, C);
}
int64_t ln_bf12_max_uncompressed(int64_t blocks, int64_t C);

/* The beginning of a weight of D rows, before its blocks are made. */
static inline void ln_bf12_init(void *out, int64_t D, int64_t C) {
    const ln_bf12 t = {.block = ln_bf12_block_bytes(C), .blocks = ln_pack_blocks(D)};
    memcpy(out, &t, sizeof t);
}
/* Blocks [lo, hi) of w[D, C], rows at any alignment, into the weight at `out`, which was begun; *n_full
 * counts those in full, for all threads. false: there are more than ln_bf12_max_uncompressed, and what was
 * made is of no use. */
bool ln_bf12_pack(void *out, const void *w, int64_t D, int64_t C, int64_t lo, int64_t hi,
                  _Atomic int64_t *n_full);
/* Bytes that w[D, C] will take, to judge by up to `most` of its blocks, or -1: it cannot be tight. Some more
 * blocks are counted as lying in full than those tell; room is for a block in full and a tight one. Who reads
 * a file's pages gives them back: `how` is called with each block's rows before and after. */
typedef void ln_bf12_pages_fn(const void *rows, size_t bytes, bool after);
int64_t ln_bf12_estimate(const void *w, int64_t D, int64_t C, int64_t max_blocks, uint8_t *scratch,
                         ln_bf12_pages_fn *on_pages);
/* y[C] = scale * row d. */
void ln_bf12_row(float *y, const void *weight, int64_t C, int64_t d, float scale);
/* Gives the numbers of a tile in full (1,024 bytes at `to`, unpacked) what the list has. */
void ln_bf12_patch(uint8_t *to, const uint8_t *block, int64_t C, int64_t tile);

#endif
