/* linear_q by tiles, where x holds bf16 numbers: the formula of tiles_tmpl.h with the weight s q + b as unpack.h makes it, columns of a tile lying as
 * it says, one for every number of rows. Weights are unpacked into tiles in scratch just before they are multiplied.
 *
 *   more than 16 rows   two blocks x STEP tiles are unpacked as B tiles, and all rows pass over them as over dense ones
 *   others (decode)     the reading of codes decides. FEW streams of blocks are walked at once, each through a quarter of the thread's outputs, and
 *                       group g + 1 of a stream is unpacked beside the products of group g: a tile is not loaded soon after it was stored
 *   others, 4 bits      as lines of one output, which is A tiles, codes are unpacked in half the time. x is then the B operand, 32 columns x rows,
 *                       and y comes out as [outputs][rows]: TDPBF16PS adds the same products in the same order on either side
 *
 * Registers of the few: 0-3 sums, 4-5 weights, 6 x. Included once, after tiles_tmpl.h. */

enum { GROUP_MOST = 4, HALF = FEW * GROUP_MOST * B_TILE, ROOM = 2 * HALF > 2 * STEP * B_TILE ? 2 * HALF : 2 * STEP * B_TILE }; /* GROUP_MOST: in tiles */

typedef struct tiles_q {
    tiles t; /* first: unpack finds the rest behind it */
    const ln_affine *w;
    int64_t block, group_bytes, group, groups; /* of packed weights; group in tiles */
    bool lines;                                /* few rows: weights are unpacked as A tiles */
    uint8_t *room;                             /* unpacked tiles */
} tiles_q;

static const uint8_t *b_tiles(const tiles *l, int64_t b, int64_t n, int64_t k, int64_t n_k) {
    const tiles_q *q = (const tiles_q *)(const void *)l;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0, m; i < n_k; i += m) {
            const int64_t g = (k + i) / q->group, t = (k + i) % q->group;
            m = LN_MIN(q->group - t, n_k - i);
            tile_unpack(q->w, q->w->codes + (b + j) * q->block + g * q->group_bytes, t, m, q->room + j * l->block + i * B_TILE);
        }
    return q->room;
}

/* ---- few rows ---- */

INLINE void unpack_group(const bool lines, const tiles_q *q, const uint8_t *group, uint8_t *to) {
    if (lines) tile_unpack_lines(q->w, group, q->group, to);
    else tile_unpack(q->w, group, 0, q->group, to);
}

/* N streams of blocks, the first beginning at w, `apart` bytes from each other. sums[N][16 x 16]: of lines, [outputs][rows], else [rows][outputs]. */
#define STREAM(j, reg)                                                                                                                   \
    if (N > j) {                                                                                                                         \
        if (j % q->group == t && g + 1 < q->groups) unpack_group(lines, q, w + j * apart + (g + 1) * q->group_bytes, next + j * q->group * B_TILE); \
        tile_load(reg, now + (j * q->group + t) * B_TILE, LINE);                                                                         \
        if (lines) tile_dp(j, reg, 6);                                                                                                   \
        else tile_dp(j, 6, reg);                                                                                                         \
    }
INLINE void few_body(const int N, const bool lines, const tiles_q *q, const uint8_t *w, int64_t apart, int64_t rows) {
    const uint8_t *x = q->t.a;
    const int64_t ldx = lines ? 4 * rows : q->t.a_line, next_x = q->t.narrow ? LINE : rows * LINE, ld = lines && rows == 1 ? 4 : LINE;
    float *sums = q->t.sums;
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    for (int j = 0; j < N; j++) unpack_group(lines, q, w + j * apart, q->room + j * q->group * B_TILE);
    for (int64_t g = 0; g < q->groups; g++) {
        uint8_t *now = q->room + g % 2 * HALF, *next = q->room + (g + 1) % 2 * HALF;
        for (int64_t t = 0; t < q->group; t++, x += next_x) {
            tile_load(6, x, ldx);
            STREAM(0, 4)
            STREAM(1, 5)
            STREAM(2, 4)
            STREAM(3, 5)
        }
    }
    tile_store(0, sums, ld);
    if (N > 1) tile_store(1, sums + SIDE * SIDE, ld);
    if (N > 2) tile_store(2, sums + 2 * SIDE * SIDE, ld);
    if (N > 3) tile_store(3, sums + 3 * SIDE * SIDE, ld);
}
typedef void few_fn(const tiles_q *q, const uint8_t *w, int64_t apart, int64_t rows);
#define FEW_BODY(N)                                                                                                                      \
    static void few_##N(const tiles_q *q, const uint8_t *w, int64_t apart, int64_t rows) { few_body(N, false, q, w, apart, rows); }      \
    static void few_lines_##N(const tiles_q *q, const uint8_t *w, int64_t apart, int64_t rows) { few_body(N, true, q, w, apart, rows); }
FEW_BODY(1) FEW_BODY(2) FEW_BODY(3) FEW_BODY(4)
static few_fn *const few_fns[2][FEW] = {{few_1, few_2, few_3, few_4}, {few_lines_1, few_lines_2, few_lines_3, few_lines_4}};

/* n blocks, b and every `apart` after it. */
static void few_blocks(const tiles_q *q, int64_t rows, int64_t b, int64_t n, int64_t apart) {
    const tiles *l = &q->t;
    few_fns[q->lines][n - 1](q, q->w->codes + b * q->block, apart * q->block, rows);
    for (int64_t j = 0; j < n; j++, b += apart) {
        const size_t bytes = (size_t)LN_MIN((int64_t)SIDE, l->D - b * SIDE) * sizeof(float);
        const bool turn = q->lines && rows > 1;
        float y[SIDE * SIDE], *sums = l->sums + j * SIDE * SIDE;
        if (turn) tile_transpose((const uint8_t *)sums, (uint8_t *)y);
        for (int64_t r = 0; r < rows; r++) memcpy(l->y + r * l->ldy + b * SIDE, (turn ? y : sums) + r * SIDE, bytes);
    }
}

/* A tiles of x as B tiles, where they lie: [tile][16 pairs of columns][rows]. Those of one row are both. */
static void turn_x(const tiles *l, int64_t rows) {
    uint8_t a[B_TILE] = {0}, b[B_TILE];
    for (int64_t k = 0; k < l->n_k && rows > 1; k++) {
        memcpy(a, l->room + k * rows * LINE, (size_t)(rows * LINE));
        tile_transpose(a, b);
        for (int i = 0; i < SIDE; i++) memcpy(l->room + (k * LINE + i * 4) * rows, b + i * LINE, (size_t)(4 * rows));
    }
}

static void few(tiles_q *q, const ln_call *c, int64_t lo, int64_t hi) {
    const ln_arg *x = &c->in[0];
    tiles *l = &q->t;
    const int64_t rows = x->rows, each = (hi - lo) / FEW, rest = (hi - lo) % FEW;
    tile_config config = {.palette = 1};
    q->lines = l->bits == 4;
    l->y = c->out[0].data;
    l->n_k = q->group * q->groups;
    take_rows(l, x, 0, rows, 0);
    if (q->lines) turn_x(l, rows);
    for (int t = 0; t < 7; t++) { /* weights are whole tiles; of x and the sums, rows are the columns or the lines */
        const bool whole = t == 4 || t == 5;
        config.rows[t] = (uint8_t)(whole || q->lines ? SIDE : rows);
        config.bytes[t] = (uint16_t)(whole || !q->lines ? LINE : 4 * rows);
    }
    tile_configure(&config);
    for (int64_t b = lo; b < lo + each; b++) few_blocks(q, rows, b, FEW, each);
    if (rest) few_blocks(q, rows, hi - rest, rest, 1);
    if (c->node->n_in > 2) add_bias(l, &c->in[2], rows, lo * SIDE, LN_MIN(hi * SIDE, l->D));
}

/* ---- both ---- */

static size_t tiles_q_scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    const size_t many = tiles_scratch(n, values, b), some = SUMS_BYTES + (size_t)(k_tiles(values[n->in[0]].dims[1]) * B_TILE);
    return ROOM + LN_MAX(many, some);
}

static void tiles_q_run(const ln_call *c) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_affine *w = c->in[1].data;
    tiles_q q = {.t = {.D = y->cols, .ldy = y->pitch, .terms = 1, .bits = w->enc.bits, .unpack = b_tiles, .block = STEP * B_TILE}, .w = w, .room = c->scratch,
                 .block = ln_pack_block_q(w->enc, w->dtype, x->cols), .group_bytes = ln_pack_group_q(w->enc, w->dtype), .group = w->enc.group / K_TILE,
                 .groups = x->cols / w->enc.group};
    int64_t lo, hi;
    ln_share(ln_pack_blocks(q.t.D), 1, c->thread, c->n_threads, &lo, &hi);
    if (lo >= hi || y->rows < 1) return;
    q.t.sums = (float *)(void *)(q.room + ROOM);
    q.t.room = (uint8_t *)q.t.sums + SUMS_BYTES;
    if (y->rows <= SIDE) few(&q, c, lo, hi);
    else all_rows(&q.t, c, lo, hi);
    tile_release();
}
