/* Eight rows of tight weights (bf12.h) on a rung of 16 registers, which leave no chain free to wait while weights are unpacked in registers: a panel of some tiles of three blocks
 * is unpacked into L1, and four rows at a time meet three vectors of it, 12 chains. What panels are made of that come soon is asked for between products. A block alone
 * goes by two vectors. Columns are whole tiles. Part of gemm_dense_f32.inc.h; vectors of 8. */
enum { PANEL_TILES = 4, PANEL_BLOCKS = 3, PANEL_V = 3, PANEL_M = 4, PANEL_AHEAD = 1 /* tiles beyond the next panel */ };
_Static_assert(LN_TIGHT_PANEL == 2 * PANEL_M && VL == 8, "rows of a panel");
enum { PANEL_LINES = LN_TIGHT_COLS / 2 /* of a tile, two columns each */, PANEL_STEP = 4 * VL, PANEL_BYTES = PANEL_TILES * PANEL_LINES * PANEL_STEP /* of one vector */ };

/* What one call does: tiles of a panel, lines of V vectors side by side, and four rows of as many columns; chains go on from y, or begin. */
typedef struct panel {
    const uint8_t *w, *ask;  /* ask: packed tiles of a block that come soon, for each call of two row halves and two times three vectors one, of PANEL_BLOCKS blocks */
    int64_t tiles, block;
    const float *x;
    float *y;
    int64_t ldx, ldy;
    bool carry;
} panel;

INLINE void panel_body(const int V, const panel *o) {
    const int64_t ldx = o->ldx, block = o->block, ldy = o->ldy;
    const uint8_t *w = o->w, *ask = o->ask;
    const float *x = o->x, *x3 = x + 3 * ldx;
    vf acc[PANEL_M][PANEL_V];
#pragma GCC unroll 4
    for (int m = 0; m < PANEL_M; m++)
#pragma GCC unroll 3
        for (int v = 0; v < V; v++) acc[m][v] = o->carry ? vf_load(o->y + m * ldy + v * VL) : vf_zero();
    for (int64_t t = 0; t < o->tiles; t++) {
#pragma GCC unroll 16
        for (int i = 0; i < PANEL_LINES; i++) { /* three lines of each of three blocks, or six of one */
            if (V == PANEL_V && i % 2 == 0) vf_ahead(ask + i / 2 % 3 * block + i / 6 * 64);
            if (V == PANEL_V && i == 15) vf_ahead(ask + 2 * block + 128);
            if (V < PANEL_V && i % 3 == 0) vf_ahead(ask + i / 3 * 64);
            __asm__("" : "+r"(x), "+r"(x3), "+r"(ask), "+r"(w)); /* else gcc keeps a pointer for each row and line, in memory */
#pragma GCC unroll 2
            for (int odd = 1; odd >= 0; odd--) {
                vf b[PANEL_V];
#pragma GCC unroll 3
                for (int v = 0; v < V; v++) b[v] = odd ? vf_high_bf16(vi_load(w + (i * V + v) * PANEL_STEP)) : vf_low_bf16(vi_load(w + (i * V + v) * PANEL_STEP));
#pragma GCC unroll 4
                for (int m = 0; m < PANEL_M; m++) {
                    const vf a = vf_set1((m < 3 ? x + m * ldx : x3)[2 * i + odd]);
#pragma GCC unroll 3
                    for (int v = 0; v < V; v++) acc[m][v] = vf_fma(a, b[v], acc[m][v]);
                }
            }
        }
        w += PANEL_LINES * V * PANEL_STEP;
        x += LN_TIGHT_COLS, x3 += LN_TIGHT_COLS;
        ask += V == PANEL_V ? 3 * 64 : 6 * 64;
    }
#pragma GCC unroll 4
    for (int m = 0; m < PANEL_M; m++)
#pragma GCC unroll 3
        for (int v = 0; v < V; v++) vf_store(o->y + m * ldy + v * VL, acc[m][v]);
}
static void panel_two(const panel *o) { panel_body(2, o); }
static void panel_three(const panel *o) { panel_body(3, o); }

/* `tiles` tiles from tile `first` of block g of a panel of V vectors side by side; it begins at w. */
INLINE void panel_unpack(const int V, const lin *l, const uint8_t *w, int g, int64_t first, int64_t tiles, uint8_t *room) {
    for (int64_t t = 0; t < tiles; t++) {
        const uint64_t word = ln_tight_table(w, first + t);
        const uint8_t *p = w + ln_tight_head(l->C) + (first + t) * LN_TIGHT_TILE;
        _Alignas(64) uint8_t mended[2 * PANEL_LINES * PANEL_STEP];
        if (word & LN_TIGHT_ODD) unpack_tile(mended, w, l->C, first + t);
#pragma GCC unroll 2
        for (int of = 0; of < PER_LINE; of++) {
            const int at = PER_LINE * g + of;
            uint8_t *to = room + at / V * V * PANEL_BYTES + (t * PANEL_LINES * V + at % V) * PANEL_STEP;
            if (word & LN_TIGHT_ODD) {
                for (int i = 0; i < PANEL_LINES; i++) vi_store(to + i * V * PANEL_STEP, vi_load(mended + (PER_LINE * i + of) * PANEL_STEP));
                continue;
            }
            const vi table = vi_table(word);
#pragma GCC unroll 8
            for (int j = 0; j < PANEL_LINES / 2; j++) {
                vi b[2];
                tight_lines(b, p, j, of, table);
                vi_store(to + 2 * j * V * PANEL_STEP, b[0]);
                vi_store(to + (2 * j + 1) * V * PANEL_STEP, b[1]);
            }
        }
    }
}
/* Eight rows of n_blocks tight blocks, one or three, that begin at w; `next`: where those begin that come then. */
INLINE void panels(const int n_blocks, const lin *l, const uint8_t *w, const uint8_t *next, float *y) {
    const int V = n_blocks == PANEL_BLOCKS ? PANEL_V : PER_LINE;
    const int64_t tiles = l->C / LN_TIGHT_COLS, head = ln_tight_head(l->C);
    _Alignas(64) uint8_t room[PANEL_BLOCKS * PER_LINE * PANEL_BYTES];
    for (int g = 0; g < n_blocks; g++)
        for (int64_t i = 0; i < head; i += 64) vf_ahead(next + g * l->block + i);
    for (int64_t t = 0; t < tiles; t += PANEL_TILES) {
        panel o = {.tiles = LN_MIN((int64_t)PANEL_TILES, tiles - t), .block = l->block, .ldx = l->ldx, .ldy = l->ldy, .carry = t > 0};
        int64_t soon = t + PANEL_TILES + PANEL_AHEAD;
#pragma GCC unroll 3
        for (int g = 0; g < n_blocks; g++) panel_unpack(V, l, w + g * l->block, g, t, o.tiles, room);
        for (int64_t r = 0; r < 2 * PANEL_M; r += PANEL_M) {
            o.x = l->x + r * l->ldx + t * LN_TIGHT_COLS;
            o.w = room;
            for (int v = 0; v < PER_LINE * n_blocks; v += V) {
                o.y = y + r * l->ldy + v * VL;
                o.ask = head + (soon < tiles ? w + soon * LN_TIGHT_TILE : next + (soon - tiles) * LN_TIGHT_TILE);
                if (V == PANEL_V) panel_three(&o);
                else panel_two(&o);
                o.w += V * PANEL_BYTES;
                soon += V == PANEL_V ? 1 : 2;
            }
        }
    }
}
static void panel_rows(const lin *l, const uint8_t *w, const uint8_t *next, int n_blocks, float *y) {
    if (n_blocks == PANEL_BLOCKS) panels(PANEL_BLOCKS, l, w, next, y);
    else panels(1, l, w, next, y);
}
