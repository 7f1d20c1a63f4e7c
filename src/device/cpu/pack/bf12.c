/* Making bf12 blocks (bf12.h), and looking up rows in them. */
#include "bf12.h"

#include <stdatomic.h>

enum {
    ELEMENTS = 512, /* of a tile */
    TABLE_SIZE = 8, /* high bytes of a table */
    BYTES = 16,     /* of a vector */
    PARTS = ELEMENTS / BYTES
};

typedef uint8_t bytes16 __attribute__((vector_size(BYTES)));

/* Where element n of an uncompressed tile is in the order of low bytes and codes; and back. */
static int element_place(int n) { return n / 64 * 64 + n % 32 / 8 * 16 + n / 32 % 2 * 8 + n % 8; }
static int element_at(int element_place) {
    return element_place / 64 * 64 + element_place / 8 % 2 * 32 + element_place / 16 % 4 * 8 +
           element_place % 8;
}

int64_t ln_bf12_max_uncompressed(int64_t blocks, int64_t C) {
    const int64_t full = ln_pack_block_bytes(LN_BF16, C);
    return LN_MAX((int64_t)0, (blocks * (full - ln_bf12_block_bytes(C)) - LN_BF12_HEADER_BYTES) / full);
}

/* Splits an uncompressed tile into low and high bytes, in the order of low bytes. */
static void split_bytes(const uint8_t *tile, uint8_t *low, uint8_t *high) {
    for (int j = 0; j < ELEMENTS / 64; j++)
        for (int q = 0; q < 4; q++)
            for (int i = 0; i < 2; i++)
                for (int b = 0; b < 8; b++) {
                    const uint8_t *n = tile + 128 * j + 64 * i + 16 * q + 2 * b;
                    low[64 * j + 16 * q + 8 * i + b] = n[0];
                    high[64 * j + 16 * q + 8 * i + b] = n[1];
                }
}

/* Encodes high bytes by a table, a code a byte; returns whether the table has all. */
static bool encode(const uint8_t *high, const uint8_t *table, uint8_t *codes, uint8_t *known) {
    bytes16 all = ~(bytes16){0};
    for (int p = 0; p < PARTS; p++) {
        bytes16 h, kind = {0}, seen = {0};
        memcpy(&h, high + BYTES * p, BYTES);
        const bytes16 sign = h >> 4 & 8;
        h &= 0x7f;
        for (int k = 0; k < TABLE_SIZE; k++) {
            const bytes16 is = (bytes16)(h == table[k]);
            kind |= is & (uint8_t)k;
            seen |= is;
        }
        kind |= sign;
        all &= seen;
        memcpy(codes + BYTES * p, &kind, BYTES);
        memcpy(known + BYTES * p, &seen, BYTES);
    }
    uint64_t two[2];
    memcpy(two, &all, sizeof two);
    return (two[0] & two[1]) == UINT64_MAX;
}

/* The table of the eight commonest high bytes; unused entries get what is below the least of them, for the
 * next tile may need it. No two are alike. */
static void choose_table(const uint8_t *high, uint8_t *table) {
    enum { TAKEN = UINT16_MAX };
    uint16_t count[128] = {0};
    for (int i = 0; i < ELEMENTS; i++) count[high[i] & 0x7f]++;
    for (int k = 0, least = 128; k < TABLE_SIZE; k++) {
        int best = -1;
        for (int p = 0; p < 128; p++)
            best = count[p] && count[p] != TAKEN && (best < 0 || count[p] > count[best]) ? p : best;
        for (int p = (least + 127) % 128; best < 0; p = (p + 127) % 128) best = count[p] != TAKEN ? p : best;
        least = LN_MIN(least, best);
        table[k] = (uint8_t)best;
        count[best] = TAKEN;
    }
}

/* Compresses one tile; *n entries of the exception list are used. false: the list is full. */
static bool compress_tile(const uint8_t *tile, int64_t at, uint8_t *table, uint8_t *to, uint8_t *list,
                          int64_t capacity, int64_t *n, bool first) {
    uint8_t high[ELEMENTS], codes[ELEMENTS], known[ELEMENTS];
    split_bytes(tile, to, high);
    if (first || !encode(high, table, codes, known)) {
        choose_table(high, table);
        if (!encode(high, table, codes, known))
            for (int i = 0; i < ELEMENTS; i++) {
                if (known[i]) continue;
                if (*n == capacity) return false;
                const uint32_t entry =
                    ln_bf12_exception_encode((ln_bf12_exception){at, element_at(i), high[i]});
                memcpy(list + 4 * (*n)++, &entry, 4);
            }
    }
    for (int j = 0; j < ELEMENTS / 128; j++)
        for (int i = 0; i < 64; i++)
            to[LN_BF12_LOW_BYTES + 64 * j + i] = (uint8_t)(codes[128 * j + i] | codes[128 * j + 64 + i] << 4);
    return true;
}

/* Compresses an uncompressed block; false: it has too many exceptions. */
static bool compress_block(const uint8_t *full, int64_t C, uint8_t *to) {
    uint8_t *list = to + ln_bf12_list_offset(C), *tiles = to + ln_bf12_tiles_offset(C), table[TABLE_SIZE];
    int64_t n = 0;
    memset(to, 0, (size_t)ln_bf12_list_offset(C));
    memset(list, 0xff, (size_t)(tiles - list));
    for (int64_t i = 0; i < ln_bf12_tile_count(C); i++) {
        const int64_t before = n;
        if (!compress_tile(full + 1024 * i, i, table, tiles + LN_BF12_TILE_BYTES * i, list,
                           ln_bf12_list_length(C), &n, i == 0))
            return false;
        memcpy(to + 8 * i, table, TABLE_SIZE);
        to[8 * i] |= n > before ? LN_BF12_HAS_EXCEPTIONS : 0;
    }
    return true;
}

int64_t ln_bf12_estimate(const void *w, int64_t D, int64_t C, int64_t most, uint8_t *scratch,
                         ln_bf12_pages_fn *on_pages) {
    const int64_t blocks = ln_pack_blocks(D), n = LN_MIN(blocks, most);
    int64_t full = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t d = blocks * (2 * i + 1) / (2 * n) * LN_PACK_NR,
                      rows = LN_MIN((int64_t)LN_PACK_NR, D - d);
        const uint8_t *from = (const uint8_t *)w + d * C * 2;
        on_pages(from, (size_t)(rows * C * 2), false);
        ln_pack(scratch, from, LN_BF16, rows, C, 0, 1);
        full += !compress_block(scratch, C, scratch + ln_pack_block_bytes(LN_BF16, C));
        on_pages(from, (size_t)(rows * C * 2), true);
    }
    const int64_t max_full = ln_bf12_max_uncompressed(blocks, C), some = LN_MIN((blocks + 63) / 64, max_full);
    full = full ? blocks * full / n + blocks / 8 + some : some;
    return full > max_full ||
                   (max_full == 0 && ln_bf12_bytes(blocks, C, 0) > blocks * ln_pack_block_bytes(LN_BF16, C))
               ? -1
               : ln_bf12_bytes(blocks, C, full);
}

bool ln_bf12_pack(void *out, const void *w, int64_t D, int64_t C, int64_t lo, int64_t hi,
                  _Atomic int64_t *n_full) {
    ln_bf12 t;
    memcpy(&t, out, sizeof t);
    const int64_t most = ln_bf12_max_uncompressed(t.blocks, C), bytes = ln_pack_block_bytes(LN_BF16, C);
    uint8_t *blocks = (uint8_t *)out + LN_BF12_HEADER_BYTES, *full = ln_alloc((size_t)bytes);
    bool wins = full != NULL;
    for (int64_t b = lo; b < hi && wins; b++) {
        uint8_t *to = blocks + b * t.block;
        const int64_t d = b * LN_PACK_NR;
        ln_pack(full, (const uint8_t *)w + d * C * 2, LN_BF16, LN_MIN((int64_t)LN_PACK_NR, D - d), C, 0, 1);
        if (compress_block(full, C, to)) continue;
        const int64_t at = atomic_fetch_add(n_full, 1);
        wins = at < most;
        if (!wins) break;
        const uint64_t mark = LN_BF12_UNCOMPRESSED;
        const uint32_t which = (uint32_t)at;
        memcpy(to, &mark, sizeof mark);
        memcpy(to + ln_bf12_list_offset(C), &which, sizeof which);
        memcpy(blocks + t.blocks * t.block + at * bytes, full, (size_t)bytes);
    }
    ln_free(full);
    return wins;
}

void ln_bf12_patch(uint8_t *to, const uint8_t *block, int64_t C, int64_t tile) {
    for (int64_t i = 0; i < ln_bf12_list_length(C); i++) {
        const uint32_t entry = ln_bf12_list_entry(block, C, i);
        if (entry == LN_BF12_LIST_END) return;
        const ln_bf12_exception o = ln_bf12_exception_decode(entry);
        if (o.tile == tile) to[2 * o.number + 1] = o.high;
    }
}

void ln_bf12_row(float *y, const void *weight, int64_t C, int64_t d, float scale) {
    ln_bf12 t;
    memcpy(&t, weight, sizeof t);
    const int64_t b = d / LN_PACK_NR, lane = d % LN_PACK_NR;
    const uint8_t *block = (const uint8_t *)weight + LN_BF12_HEADER_BYTES + b * t.block,
                  *full = ln_bf12_uncompressed(weight, C, b), *tiles = block + ln_bf12_tiles_offset(C);
    for (int64_t c = 0; c < C; c++) {
        if (full) {
            y[c] = ln_num_load(full + ln_pack_offset(LN_BF16, C, lane, c), LN_BF16, 0) * scale;
            continue;
        }
        const int64_t tile = c / LN_BF12_TILE_COLS;
        const int at = element_place((int)(c % LN_BF12_TILE_COLS / 2 * 32 + lane * 2 + c % 2));
        const uint8_t *p = tiles + tile * LN_BF12_TILE_BYTES;
        const int nibble = p[LN_BF12_LOW_BYTES + at / 128 * 64 + at % 64] >> at / 64 % 2 * 4;
        y[c] = ln_bf16_f32((uint16_t)((block[8 * tile + (nibble & 7)] & 0x7f) << 8 | (nibble & 8) << 12 |
                                      p[at])) *
               scale;
    }
    for (int64_t i = 0; i < ln_bf12_list_length(C) && !full; i++) {
        const uint32_t entry = ln_bf12_list_entry(block, C, i);
        if (entry == LN_BF12_LIST_END) return;
        const ln_bf12_exception o = ln_bf12_exception_decode(entry);
        const int64_t c = o.tile * LN_BF12_TILE_COLS + o.number / 32 * 2 + o.number % 2;
        if (o.number % 32 / 2 == lane && c < C)
            y[c] = ln_bf16_f32((uint16_t)(o.high << 8 |
                                          tiles[o.tile * LN_BF12_TILE_BYTES + element_place(o.number)])) *
                   scale;
    }
}
