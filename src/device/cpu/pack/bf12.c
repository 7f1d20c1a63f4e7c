/* Making tight blocks (bf12.h), and looking up rows in them. */
#include "bf12.h"

#include <stdatomic.h>

enum { NUMBERS = 512, KINDS = 8, BYTES = 16 /* in a vector */, PARTS = NUMBERS / BYTES };

typedef uint8_t bytes16 __attribute__((vector_size(BYTES)));

/* Number n of a tile in full as the low bytes and codes have it. */
static int place(int n) { return n / 64 * 64 + n % 32 / 8 * 16 + n / 32 % 2 * 8 + n % 8; }
static int number_at(int place) { return place / 64 * 64 + place / 8 % 2 * 32 + place / 16 % 4 * 8 + place % 8; }

int64_t ln_tight_most_full(int64_t blocks, int64_t C) {
    const int64_t full = ln_pack_block(LN_BF16, C);
    return LN_MAX((int64_t)0, (blocks * (full - ln_tight_block(C)) - LN_TIGHT_ROOM) / full);
}

/* Low and high bytes of a tile in full, in the order of low bytes. */
static void take_apart(const uint8_t *tile, uint8_t *low, uint8_t *high) {
    for (int j = 0; j < NUMBERS / 64; j++)
        for (int q = 0; q < 4; q++)
            for (int i = 0; i < 2; i++)
                for (int b = 0; b < 8; b++) {
                    const uint8_t *n = tile + 128 * j + 64 * i + 16 * q + 2 * b;
                    low[64 * j + 16 * q + 8 * i + b] = n[0];
                    high[64 * j + 16 * q + 8 * i + b] = n[1];
                }
}

/* Codes by a table, a byte each; whether the table has all. */
static bool code(const uint8_t *high, const uint8_t *table, uint8_t *codes, uint8_t *known) {
    bytes16 all = ~(bytes16){0};
    for (int p = 0; p < PARTS; p++) {
        bytes16 h, kind = {0}, seen = {0};
        memcpy(&h, high + BYTES * p, BYTES);
        const bytes16 sign = h >> 4 & 8;
        h &= 0x7f;
        for (int k = 0; k < KINDS; k++) {
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

/* The table of the eight commonest; places nobody needs get what lies below the least of them, for the next tile may need it. No two are alike. */
static void choose(const uint8_t *high, uint8_t *table) {
    enum { TAKEN = UINT16_MAX };
    uint16_t count[128] = {0};
    for (int i = 0; i < NUMBERS; i++) count[high[i] & 0x7f]++;
    for (int k = 0, least = 128; k < KINDS; k++) {
        int best = -1;
        for (int p = 0; p < 128; p++) best = count[p] && count[p] != TAKEN && (best < 0 || count[p] > count[best]) ? p : best;
        for (int p = (least + 127) % 128; best < 0; p = (p + 127) % 128) best = count[p] != TAKEN ? p : best;
        least = LN_MIN(least, best);
        table[k] = (uint8_t)best;
        count[best] = TAKEN;
    }
}

/* One tile; *n entries of the list are taken. false: the list has no room. */
static bool tight_tile(const uint8_t *tile, int64_t at, uint8_t *table, uint8_t *to, uint8_t *list, int64_t room, int64_t *n, bool first) {
    uint8_t high[NUMBERS], codes[NUMBERS], known[NUMBERS];
    take_apart(tile, to, high);
    if (first || !code(high, table, codes, known)) {
        choose(high, table);
        if (!code(high, table, codes, known))
            for (int i = 0; i < NUMBERS; i++) {
                if (known[i]) continue;
                if (*n == room) return false;
                const uint32_t word = ln_odd_word((ln_odd){at, number_at(i), high[i]});
                memcpy(list + 4 * (*n)++, &word, 4);
            }
    }
    for (int j = 0; j < NUMBERS / 128; j++)
        for (int i = 0; i < 64; i++) to[LN_TIGHT_LOW + 64 * j + i] = (uint8_t)(codes[128 * j + i] | codes[128 * j + 64 + i] << 4);
    return true;
}

/* A block from one in full. */
static bool tight_block(const uint8_t *full, int64_t C, uint8_t *to) {
    uint8_t *list = to + ln_tight_list(C), *tiles = to + ln_tight_head(C), table[KINDS];
    int64_t n = 0;
    memset(to, 0, (size_t)ln_tight_list(C));
    memset(list, 0xff, (size_t)(tiles - list));
    for (int64_t i = 0; i < ln_tight_tiles(C); i++) {
        const int64_t before = n;
        if (!tight_tile(full + 1024 * i, i, table, tiles + LN_TIGHT_TILE * i, list, ln_tight_entries(C), &n, i == 0)) return false;
        memcpy(to + 8 * i, table, KINDS);
        to[8 * i] |= n > before ? LN_TIGHT_ODD : 0;
    }
    return true;
}

int64_t ln_tight_expected(const void *w, int64_t D, int64_t C, int64_t most, uint8_t *room, ln_tight_pages_fn *how) {
    const int64_t blocks = ln_pack_blocks(D), n = LN_MIN(blocks, most);
    int64_t full = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t d = blocks * (2 * i + 1) / (2 * n) * LN_PACK_D, rows = LN_MIN((int64_t)LN_PACK_D, D - d);
        const uint8_t *from = (const uint8_t *)w + d * C * 2;
        how(from, (size_t)(rows * C * 2), false);
        ln_pack(room, from, LN_BF16, rows, C, 0, 1);
        full += !tight_block(room, C, room + ln_pack_block(LN_BF16, C));
        how(from, (size_t)(rows * C * 2), true);
    }
    const int64_t most_full = ln_tight_most_full(blocks, C), some = LN_MIN((blocks + 63) / 64, most_full);
    full = full ? blocks * full / n + blocks / 8 + some : some;
    return full > most_full || (most_full == 0 && ln_tight_bytes(blocks, C, 0) > blocks * ln_pack_block(LN_BF16, C)) ? -1 : ln_tight_bytes(blocks, C, full);
}

bool ln_tight_pack(void *out, const void *w, int64_t D, int64_t C, int64_t lo, int64_t hi, _Atomic int64_t *n_full) {
    ln_tight t;
    memcpy(&t, out, sizeof t);
    const int64_t most = ln_tight_most_full(t.blocks, C), bytes = ln_pack_block(LN_BF16, C);
    uint8_t *blocks = (uint8_t *)out + LN_TIGHT_ROOM, *full = ln_alloc((size_t)bytes);
    bool won = full != NULL;
    for (int64_t b = lo; b < hi && won; b++) {
        uint8_t *to = blocks + b * t.block;
        const int64_t d = b * LN_PACK_D;
        ln_pack(full, (const uint8_t *)w + d * C * 2, LN_BF16, LN_MIN((int64_t)LN_PACK_D, D - d), C, 0, 1);
        if (tight_block(full, C, to)) continue;
        const int64_t at = atomic_fetch_add(n_full, 1);
        won = at < most;
        if (!won) break;
        const uint64_t mark = LN_TIGHT_FULL;
        const uint32_t which = (uint32_t)at;
        memcpy(to, &mark, sizeof mark);
        memcpy(to + ln_tight_list(C), &which, sizeof which);
        memcpy(blocks + t.blocks * t.block + at * bytes, full, (size_t)bytes);
    }
    ln_free(full);
    return won;
}

void ln_tight_mend(uint8_t *to, const uint8_t *block, int64_t C, int64_t tile) {
    for (int64_t i = 0; i < ln_tight_entries(C); i++) {
        const uint32_t word = ln_tight_entry(block, C, i);
        if (word == LN_TIGHT_END) return;
        const ln_odd o = ln_odd_of(word);
        if (o.tile == tile) to[2 * o.number + 1] = o.high;
    }
}

void ln_tight_row(float *y, const void *weight, int64_t C, int64_t d, float scale) {
    ln_tight t;
    memcpy(&t, weight, sizeof t);
    const int64_t b = d / LN_PACK_D, lane = d % LN_PACK_D;
    const uint8_t *block = (const uint8_t *)weight + LN_TIGHT_ROOM + b * t.block, *full = ln_tight_full(weight, C, b), *tiles = block + ln_tight_head(C);
    for (int64_t c = 0; c < C; c++) {
        if (full) {
            y[c] = ln_num_load(full + ln_pack_at(LN_BF16, C, lane, c), LN_BF16, 0) * scale;
            continue;
        }
        const int64_t tile = c / LN_TIGHT_COLS;
        const int at = place((int)(c % LN_TIGHT_COLS / 2 * 32 + lane * 2 + c % 2));
        const uint8_t *p = tiles + tile * LN_TIGHT_TILE;
        const int code = p[LN_TIGHT_LOW + at / 128 * 64 + at % 64] >> at / 64 % 2 * 4;
        y[c] = ln_bf16_f32((uint16_t)((block[8 * tile + (code & 7)] & 0x7f) << 8 | (code & 8) << 12 | p[at])) * scale;
    }
    for (int64_t i = 0; i < ln_tight_entries(C) && !full; i++) {
        const uint32_t word = ln_tight_entry(block, C, i);
        if (word == LN_TIGHT_END) return;
        const ln_odd o = ln_odd_of(word);
        const int64_t c = o.tile * LN_TIGHT_COLS + o.number / 32 * 2 + o.number % 2;
        if (o.number % 32 / 2 == lane && c < C) y[c] = ln_bf16_f32((uint16_t)(o.high << 8 | tiles[o.tile * LN_TIGHT_TILE + place(o.number)])) * scale;
    }
}
