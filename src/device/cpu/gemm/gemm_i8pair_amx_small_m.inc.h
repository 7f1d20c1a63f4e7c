/* Products by row of up to 16 rows, by tiles. A part of gemm_i8pair_amx.inc.h, whose names it uses. */
/* tiles_of, which asks for what comes AHEAD bytes later. */
INLINE void few_unpack(const int bits, const int64_t group, const tiles *t, stream *s, bool first, int64_t k, uint8_t *h) {
    const uint8_t *ahead = s->group + (k & (LN_MAX(group, LINE) - 1)) * LINE * bits / 32 + AHEAD;
    const int64_t bytes = group == LINE ? 2 * LINE * bits + LINE /* of scales in two bytes */ : t->tile_bytes;
    for (int64_t i = 0; i < bytes; i += LINE) vf_ahead(ahead + i);
    tiles_of(bits, group, t, s, first, k, h);
}
/* The products of 64 columns of x, at a, and a block at w. */
#define FEW_ONE(u, l, w)                                                                                                                 \
    tile_load(4, a, x.row);                                                                                                              \
    tile_load(6, w, LINE);                                                                                                               \
    tile_dp_su(u, 4, 6);                                                                                                                 \
    tile_load(7, (w) + TILE, LINE);                                                                                                      \
    tile_dp_su(l, 4, 7);                                                                                                                 \
    tile_load(5, a + x.lower, x.row);                                                                                                    \
    tile_dp_su(l, 5, 6);
/* Those of two blocks, which share the A tiles, and what goes on in between. */
#define FEW_BOTH(first, second)                                                                                                          \
    tile_load(4, a, x.row);                                                                                                              \
    tile_load(6, now, LINE);                                                                                                             \
    tile_dp_su(0, 4, 6);                                                                                                                 \
    tile_load(7, now + TILE, LINE);                                                                                                      \
    tile_dp_su(1, 4, 7);                                                                                                                 \
    tile_load(5, a + x.lower, x.row);                                                                                                    \
    tile_load(7, now + 2 * TILE, LINE);                                                                                                  \
    first;                                                                                                                               \
    tile_dp_su(1, 5, 6);                                                                                                                 \
    tile_dp_su(2, 4, 7);                                                                                                                 \
    tile_load(6, now + 3 * TILE, LINE);                                                                                                  \
    tile_dp_su(3, 4, 6);                                                                                                                 \
    second;                                                                                                                              \
    tile_dp_su(3, 5, 7);
/* Up to two blocks, `apart` from each other, whose sums lie in `last` and are finished beside the next ones' products: a pair's function takes long. */
typedef struct few {
    int64_t n, b, apart;
} few;
static void few_finish(const tiles *t, const few *w, int64_t from, int64_t to) {
    for (int64_t j = 0; j < w->n; j++) {
        finishing f = finishing_of(t, t->last + j * SUMS + from * SIDE, SUMS / 2 * sizeof(int32_t), from, to - from, w->b + j * w->apart);
        finish_as(becomes_of(t, w->b + j * w->apart, false), &f);
    }
}
/* All columns of N blocks from b, `apart` from each other; beside them `before` is finished, a row at each 64 columns, what is left at the last. */
INLINE void few_body(const int N, const int bits, const int64_t group, tiles *t, int64_t rows, int64_t b, int64_t apart, const few *before) {
    const lying x = lying_of(IN_EITHER, t, 0);
    const int64_t ring = FEW * 2 * TILE;
    uint8_t *now = t->room, *then = now + ring, *later = then + ring;
    stream s[FEW];
#pragma GCC unroll 2
    for (int j = 0; j < FEW; j++) {
        s[j] = stream_at(t, j < N ? b + j * apart : b, 0);
        if (j >= N) continue;
        few_unpack(bits, group, t, &s[j], true, 0, now + j * 2 * TILE);
        if (LINE < t->C) few_unpack(bits, group, t, &s[j], false, LINE, then + j * 2 * TILE);
    }
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    const uint8_t *a = t->x;
    for (int64_t k = 0, r = 0; k < t->C; k += LINE, a += x.step) {
        const int64_t soon = k + 2 * LINE;
        if (N > 1 && bits <= 4) {
            FEW_BOTH(if (soon < t->C) few_unpack(bits, group, t, &s[0], false, soon, later), if (soon < t->C) few_unpack(bits, group, t, &s[1], false, soon, later + 2 * TILE))
        } else { /* at 8 bits sharing is slower (docs/speed.md) */
            FEW_ONE(0, 1, now)
            if (soon < t->C) few_unpack(bits, group, t, &s[0], false, soon, later);
            if (N > 1) {
                FEW_ONE(2, 3, now + 2 * TILE)
                if (soon < t->C) few_unpack(bits, group, t, &s[1], false, soon, later + 2 * TILE);
            }
        }
        const int64_t some = k + LINE < t->C ? LN_MIN(r + 1, rows) : rows;
        few_finish(t, before, r, some);
        r = some;
        uint8_t *done = now;
        now = then;
        then = later;
        later = done;
    }
    SUMS_STORE(0, 1, t->last, SUMS / 2)
    if (N > 1) SUMS_STORE(2, 3, t->last + SUMS, SUMS / 2)
}
#define FEW_ARGS tiles *t, int64_t rows, int64_t b, int64_t apart, const few *before
typedef void few_fn(FEW_ARGS);
#define FEW_BITS(bits, name, group)                                                                                                      \
    static void few_1_##name(FEW_ARGS) { few_body(1, bits, group, t, rows, b, apart, before); }                                          \
    static void few_2_##name(FEW_ARGS) { few_body(2, bits, group, t, rows, b, apart, before); }
#define ANY(bits) FEW_BITS(bits, bits, t->w->enc.group)
ANY(2) ANY(3) ANY(4) ANY(5) ANY(6) ANY(8) FEW_BITS(4, 4_of_64, LINE) FEW_BITS(8, 8_of_64, LINE)
#undef ANY
#define FEW_ROW(bits, name) [bits] = {few_1_##name, few_2_##name}
static few_fn *const few_fns[9][FEW] = {FEW_ROW(2, 2), FEW_ROW(3, 3), FEW_ROW(4, 4), FEW_ROW(5, 5), FEW_ROW(6, 6), FEW_ROW(8, 8)};
static few_fn *const few_fns_of_64[9][FEW] = {FEW_ROW(4, 4_of_64), FEW_ROW(8, 8_of_64)}; /* groups of 64, where loops have no ends */

static void few_rows(tiles *t, int64_t rows, int64_t lo, int64_t hi) {
    few_fn *const *fns = (t->w->enc.group == LINE && few_fns_of_64[t->w->enc.bits][0] ? few_fns_of_64 : few_fns)[t->w->enc.bits];
    const int64_t each = (hi - lo) / FEW, blocks = t->function ? hi - lo : each, by = t->function ? FEW : 1, apart = t->function ? 1 : each;
    few before = {0};
    shape(t, rows, rows);
    for (int64_t b = lo; b < lo + blocks; b += by) {
        fns[1](t, rows, b, apart, &before);
        before = (few){FEW, b, apart};
    }
    if ((hi - lo) % FEW) {
        fns[0](t, rows, hi - 1, 1, &before);
        before = (few){1, hi - 1, 1};
    }
    few_finish(t, &before, 0, rows);
}
