/* Eight rows of bf12 weights (bf12.h) on an ISA level of 16 registers, which leave no chain free to wait
 * while weights are decompressed in registers: a panel is decompressed into L1, and four rows at a time meet
 * three vectors of it, 12 chains.
 *
 *     for 3 blocks of outputs                    6 vectors of 8 lanes
 *       for PANEL_KC_TILES tiles of columns      decompress: | 3 vectors of line 0 | of line 1 | ..; twice
 *         for 4 of 8 rows                        MR = 4
 *           for 3 of 6 vectors                   NR = 24 outputs: panel_kernel; chains rest in y between KC
 *
 * Compressed tiles of the next panel are prefetched between products. A block alone goes by two vectors.
 * Columns are whole tiles. Part of gemm_bf12.inc.h; vectors of 8 lanes. */
enum {
    BF12_PANEL_M = 8,        /* rows */
    PANEL_KC_TILES = 4,      /* tiles of columns that are decompressed at a time */
    PANEL_BLOCKS = 3,        /* blocks of outputs */
    PANEL_VECTORS = 3,       /* of outputs in a micro-kernel */
    PANEL_MR = 4,            /* rows of a micro-kernel */
    PANEL_PREFETCH_TILES = 1 /* tiles beyond the next panel */
};
_Static_assert((int)BF12_PANEL_M == 2 * (int)PANEL_MR && VL == 8, "rows of a panel");
enum {
    PANEL_LINES = LN_BF12_TILE_COLS / 2 /* lines of a tile, two columns each */,
    PANEL_LINE_BYTES = 4 * VL,
    PANEL_BYTES = PANEL_KC_TILES * PANEL_LINES * PANEL_LINE_BYTES /* of one vector */
};

/* One run of the micro-kernel: tiles of a panel, whose lines have V vectors side by side, and four rows of as
 * many columns. */
typedef struct panel_call {
    const uint8_t *w,
        *next; /* `next`: compressed tiles that come soon, of PANEL_BLOCKS blocks; one tile for each run */
    int64_t tiles, block;
    const float *x;
    float *y;
    int64_t ldx, ldy;
    bool accumulate;
} panel_call;

INLINE void panel_kernel(const int V, const panel_call *o) {
    const int64_t ldx = o->ldx, block = o->block, ldy = o->ldy;
    const uint8_t *w = o->w, *next = o->next;
    const float *x = o->x, *x3 = x + 3 * ldx;
    vf acc[PANEL_MR][PANEL_VECTORS];
#pragma GCC unroll 4
    for (int m = 0; m < PANEL_MR; m++)
#pragma GCC unroll 3
        for (int v = 0; v < V; v++) acc[m][v] = o->accumulate ? vf_load(o->y + m * ldy + v * VL) : vf_zero();
    for (int64_t t = 0; t < o->tiles; t++) {
#pragma GCC unroll 16
        for (int i = 0; i < PANEL_LINES;
             i++) { /* prefetch three lines of each of three blocks, or six of one */
            if (V == PANEL_VECTORS && i % 2 == 0) prefetch_l1(next + i / 2 % 3 * block + i / 6 * 64);
            if (V == PANEL_VECTORS && i == 15) prefetch_l1(next + 2 * block + 128);
            if (V < PANEL_VECTORS && i % 3 == 0) prefetch_l1(next + i / 3 * 64);
            __asm__(""
                    : "+r"(x), "+r"(x3), "+r"(next),
                      "+r"(w)); /* else gcc keeps a pointer for each row and line, in memory */
#pragma GCC unroll 2
            for (int odd = 1; odd >= 0; odd--) {
                vf b[PANEL_VECTORS];
#pragma GCC unroll 3
                for (int v = 0; v < V; v++)
                    b[v] = odd ? vf_hi_bf16(vi_load(w + (i * V + v) * PANEL_LINE_BYTES))
                               : vf_lo_bf16(vi_load(w + (i * V + v) * PANEL_LINE_BYTES));
#pragma GCC unroll 4
                for (int m = 0; m < PANEL_MR; m++) {
                    const vf a = vf_set1((m < 3 ? x + m * ldx : x3)[2 * i + odd]);
#pragma GCC unroll 3
                    for (int v = 0; v < V; v++) acc[m][v] = vf_fma(a, b[v], acc[m][v]);
                }
            }
        }
        w += PANEL_LINES * V * PANEL_LINE_BYTES;
        x += LN_BF12_TILE_COLS, x3 += LN_BF12_TILE_COLS;
        next += V == PANEL_VECTORS ? 3 * 64 : 6 * 64;
    }
#pragma GCC unroll 4
    for (int m = 0; m < PANEL_MR; m++)
#pragma GCC unroll 3
        for (int v = 0; v < V; v++) vf_store(o->y + m * ldy + v * VL, acc[m][v]);
}
static void panel_kernel_2(const panel_call *o) { panel_kernel(2, o); }
static void panel_kernel_3(const panel_call *o) { panel_kernel(3, o); }

/* Decompresses `tiles` tiles from tile `first` of block g, at w, into the lines of V vectors of the panel. */
INLINE void panel_unpack(const int V, const dense_gemm *l, const uint8_t *w, int g, int64_t first,
                         int64_t tiles, uint8_t *panel) {
    for (int64_t t = 0; t < tiles; t++) {
        const uint64_t table_bits = ln_bf12_table(w, first + t);
        const uint8_t *p = w + ln_bf12_tiles_offset(l->C) + (first + t) * LN_BF12_TILE_BYTES;
        _Alignas(64) uint8_t patched[2 * PANEL_LINES * PANEL_LINE_BYTES];
        if (table_bits & LN_BF12_HAS_EXCEPTIONS) bf12_unpack_tile(patched, w, l->C, first + t);
#pragma GCC unroll 2
        for (int of = 0; of < VECTORS_PER_LINE; of++) {
            const int at = VECTORS_PER_LINE * g + of;
            uint8_t *to =
                panel + at / V * V * PANEL_BYTES + (t * PANEL_LINES * V + at % V) * PANEL_LINE_BYTES;
            if (table_bits & LN_BF12_HAS_EXCEPTIONS) {
                for (int i = 0; i < PANEL_LINES; i++)
                    vi_store(to + i * V * PANEL_LINE_BYTES,
                             vi_load(patched + (VECTORS_PER_LINE * i + of) * PANEL_LINE_BYTES));
                continue;
            }
            const vi table = vi_lut_load(table_bits);
#pragma GCC unroll 8
            for (int j = 0; j < PANEL_LINES / 2; j++) {
                vi b[2];
                bf12_unpack_lines(b, p, j, of, table);
                vi_store(to + 2 * j * V * PANEL_LINE_BYTES, b[0]);
                vi_store(to + (2 * j + 1) * V * PANEL_LINE_BYTES, b[1]);
            }
        }
    }
}
/* Eight rows of n_blocks bf12 blocks, one or three, at w; next: the blocks that come then. */
INLINE void run_panel_blocks(const int n_blocks, const dense_gemm *l, const uint8_t *w, const uint8_t *next,
                             float *y) {
    const int V = n_blocks == PANEL_BLOCKS ? PANEL_VECTORS : VECTORS_PER_LINE;
    const int64_t tiles = l->C / LN_BF12_TILE_COLS, head = ln_bf12_tiles_offset(l->C);
    _Alignas(64) uint8_t panel[PANEL_BLOCKS * VECTORS_PER_LINE * PANEL_BYTES];
    for (int g = 0; g < n_blocks; g++)
        for (int64_t i = 0; i < head; i += 64) prefetch_l1(next + g * l->block + i);
    for (int64_t t = 0; t < tiles; t += PANEL_KC_TILES) {
        panel_call o = {.tiles = LN_MIN((int64_t)PANEL_KC_TILES, tiles - t),
                        .block = l->block,
                        .ldx = l->ldx,
                        .ldy = l->ldy,
                        .accumulate = t > 0};
        int64_t prefetch_tile = t + PANEL_KC_TILES + PANEL_PREFETCH_TILES;
#pragma GCC unroll 3
        for (int g = 0; g < n_blocks; g++) panel_unpack(V, l, w + g * l->block, g, t, o.tiles, panel);
        for (int64_t r = 0; r < 2 * PANEL_MR; r += PANEL_MR) {
            o.x = l->x + r * l->ldx + t * LN_BF12_TILE_COLS;
            o.w = panel;
            for (int v = 0; v < VECTORS_PER_LINE * n_blocks; v += V) {
                o.y = y + r * l->ldy + v * VL;
                o.next = head + (prefetch_tile < tiles ? w + prefetch_tile * LN_BF12_TILE_BYTES
                                                       : next + (prefetch_tile - tiles) * LN_BF12_TILE_BYTES);
                if (V == PANEL_VECTORS) panel_kernel_3(&o);
                else panel_kernel_2(&o);
                o.w += V * PANEL_BYTES;
                prefetch_tile += V == PANEL_VECTORS ? 1 : 2;
            }
        }
    }
}
static void run_bf12_panel(const dense_gemm *l, const uint8_t *w, const uint8_t *next, int n_blocks,
                           float *y) {
    if (n_blocks == PANEL_BLOCKS) run_panel_blocks(PANEL_BLOCKS, l, w, next, y);
    else run_panel_blocks(1, l, w, next, y);
}
