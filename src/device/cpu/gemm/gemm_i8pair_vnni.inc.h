/* linear_fixed_row, linear_fixed_row_swiglu and _geglu of up to four rows, codes of 4 or 8 bits, by VNNI: lines of packed codes meet limbs of x four columns at a time.
 *
 *   8 bits   W of even and of odd columns are words of L and H, side by side, and meet words of x in which the limbs lie likewise: of 0 and h, of h and l. So
 *            nothing is taken apart
 *   4 bits   H and L are linear in the codes, so it is enough to sum over these: of a group p = sum(h q), r = sum(l q), and what belongs to
 *            no output, sum(h) and sum(l). Then  sum(h H) = mh p + ch sum(h),  sum(h L + l H) = ml p + cl sum(h) + mh r + ch sum(l), all of them whole numbers below
 *            2^24, exact as floats; ch is here the H of code 0, middle and all
 *
 * One or two rows meet two neighbouring blocks at once, one row of 8 bits four; more rows one. Of a pair (gate, up) a share's blocks of the one weight come
 * first, whose numbers rest in y, then those of the other: memory is read faster in neighbouring blocks of one weight for long than in both at once, or in one
 * after the other block by block (docs/speed.md, Attempts: pairs in long runs). What is asked for ahead goes on, at a block's end, where the next ones begin, so
 * that memory is never idle between them, nor between the pieces of a share. Included once, after gemm_i8pair_amx.inc.h. */
enum { LINES_ROWS = 4, LINES_BLOCKS = 4, LINES_AHEAD = 3072 };

static bool lines_row_serves(const ln_call *c) {
    const ln_affine *w = c->in[1].data;
    return c->out[0].rows <= LINES_ROWS && (w->enc.bits == 4 || w->enc.bits == 8);
}
/* 4 bits: sums of the limbs of groups as floats, [row][group][h, l]. 8 bits: words of x, [row][0 h even, 0 h odd, h l even, h l odd][columns / 4]. */
static size_t lines_row_scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    const ln_value *x = &values[n->in[0]];
    (void)b;
    return first_bytes(n, LINES_ROWS) + (size_t)LINES_ROWS * LN_MAX((size_t)(x->dims[1] / x->enc.group * 2) * sizeof(float), (size_t)(4 * ln_fixed_limb(x->dims[1])));
}
static void words_of_8(const tiles *t, int64_t rows, uint8_t *to) {
    const uint32_t even = 0x00ff00ff, odd = 0xff00ff00;
    for (int64_t r = 0; r < rows; r++, to += 4 * t->P)
        for (int64_t i = 0; i < t->P; i += LINE) {
            const vi h = vi_load(t->x + r * t->ldx + i), l = vi_load(t->x + r * t->ldx + t->P + i);
            vi_store(to + i, vi_left(vi_mask(h, even), 8));
            vi_store(to + t->P + i, vi_mask(h, odd));
            vi_store(to + 2 * t->P + i, vi_or(vi_mask(h, even), vi_left(vi_mask(l, even), 8)));
            vi_store(to + 3 * t->P + i, vi_or(vi_right(vi_mask(h, odd), 8), vi_mask(l, odd)));
        }
}

INLINE vi limbs(const uint8_t *p) { return vi_set1(p); }

INLINE void line_of_8(const int M, const tiles *t, const uint8_t *at, int64_t ahead, const maker *k, const uint8_t *x, vi *sums) {
    vf_ahead(at + ahead);
    const vi w = vi_load(at), e = vi_words_add(vi_words_round(even_of_8(w), k->a), k->b), o = vi_words_add(vi_words_round(odd_of_8(w), k->a), k->b);
#pragma GCC unroll 4
    for (int m = 0; m < M; m++, x += 4 * t->P) {
        sums[2 * m] = vi_dot_bytes(o, limbs(x + t->P), vi_dot_bytes(e, limbs(x), sums[2 * m]));
        sums[2 * m + 1] = vi_dot_bytes(o, limbs(x + 3 * t->P), vi_dot_bytes(e, limbs(x + 2 * t->P), sums[2 * m + 1]));
    }
}
INLINE void line_of_4(const int M, const tiles *t, const uint8_t *at, int64_t ahead, const uint8_t *x, vi *sums) {
    vf_ahead(at + ahead);
    const vi w = vi_load(at), even = vi_mask(w, 0x0f0f0f0f), odd = vi_mask(vi_right(w, 4), 0x0f0f0f0f);
#pragma GCC unroll 4
    for (int m = 0; m < M; m++, x += t->ldx) {
        sums[2 * m] = vi_dot_bytes(odd, limbs(x + 4), vi_dot_bytes(even, limbs(x), sums[2 * m]));
        sums[2 * m + 1] = vi_dot_bytes(odd, limbs(x + t->P + 4), vi_dot_bytes(even, limbs(x + t->P), sums[2 * m + 1]));
    }
}
/* What a group's sums over codes add to those of H and L. */
INLINE void add_group_of_4(const int M, const uint8_t *coefficients, const float *of_limbs, int64_t groups, const vi *p, vi *sums) {
    const vi at = vi_load(coefficients);
    const linear k = {.mh = vf_int(vi_signed_byte(at, 0)), .ch = vf_int(vi_mask(vi_right(at, 8), 0xff)), .ml = vf_int(vi_signed_byte(at, 2)), .cl = vf_int(vi_right(at, 24))};
#pragma GCC unroll 4
    for (int m = 0; m < M; m++, of_limbs += 2 * groups) {
        const vf ph = vf_int(p[2 * m]), pl = vf_int(p[2 * m + 1]), h = vf_set1(of_limbs[0]), l = vf_set1(of_limbs[1]);
        sums[2 * m] = vi_add(sums[2 * m], vi_whole(vf_fma(k.mh, ph, vf_mul(k.ch, h))));
        sums[2 * m + 1] = vi_add(sums[2 * m + 1], vi_whole(vf_fma(k.ml, ph, vf_fma(k.cl, h, vf_fma(k.mh, pl, vf_mul(k.ch, l))))));
    }
}

/* Numbers of row r and block b: a pair's first rest in y until its second's come. */
INLINE void put_line(const tiles *t, int64_t r, int64_t b, vf v) {
    const int64_t d = block_of(t, b) * SIDE, outputs = LN_MIN((int64_t)SIDE, t->D - d);
    float *y = y_at(t, r, b);
    if (t->function && b % 2) {
        float rest[SIDE] = {0};
        const float *first = outputs < SIDE ? memcpy(rest, y, (size_t)outputs * sizeof *y) : y;
        v = vf_mul(t->function == SILU ? silu_of(vf_load(first)) : gelu_of(vf_load(first)), v);
    }
    vf_store_first(y, outputs, v);
}
/* M rows times N blocks of a weight from b on, counted as weight_of says, so that those of a pair's one weight are two apart; `next`: where the walk goes on. */
INLINE void lines_body(const int M, const int N, const int bits, const tiles *t, const void *made, int64_t b, const uint8_t *next) {
    const int64_t group = t->w->enc.group, groups = t->C / group, lines = group * bits / 32;
    const int64_t soon = LN_MIN((LINES_AHEAD + t->group_bytes - 1) / t->group_bytes, groups), turn = groups - soon;
    const int64_t by = t->function ? 2 : 1, over = (int64_t)((uintptr_t)next - (uintptr_t)codes_of(t, b)) - t->block; /* from a block's end to the next one's beginning */
    const uint8_t *at[LINES_BLOCKS], *x = bits == 8 ? made : t->x;
    const float *of_limbs = made;
    vi sums[LINES_BLOCKS][2 * LINES_ROWS];
    vf unit[LINES_BLOCKS];
#pragma GCC unroll 4
    for (int j = 0; j < N; j++) {
        at[j] = codes_of(t, b + j * by);
        unit[j] = unit_of(t, b + j * by);
#pragma GCC unroll 8
        for (int i = 0; i < 2 * M; i++) sums[j][i] = vi_zero();
    }
    for (int64_t g = 0; g < groups; g++, of_limbs += 2) {
        const int64_t numbers = lines * LINE, ahead = soon * t->group_bytes + (g < turn ? 0 : over);
        if (bits == 8) {
            maker k[LINES_BLOCKS];
#pragma GCC unroll 4
            for (int j = 0; j < N; j++) k[j] = make(8, t->w->dtype, at[j] + numbers, unit[j]);
            for (int64_t i = 0; i < lines; i++, x += 4)
#pragma GCC unroll 4
                for (int j = 0; j < N; j++) line_of_8(M, t, at[j] + i * LINE, ahead, &k[j], x, sums[j]);
        } else {
            vi p[LINES_BLOCKS][2 * LINES_ROWS];
#pragma GCC unroll 4
            for (int j = 0; j < N; j++)
#pragma GCC unroll 8
                for (int i = 0; i < 2 * M; i++) p[j][i] = vi_zero();
            for (int64_t i = 0; i < lines; i++, x += 8)
#pragma GCC unroll 4
                for (int j = 0; j < N; j++) line_of_4(M, t, at[j] + i * LINE, ahead, x, p[j]);
#pragma GCC unroll 4
            for (int j = 0; j < N; j++) add_group_of_4(M, at[j] + numbers, of_limbs, groups, p[j], sums[j]);
        }
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) vf_ahead(at[j] + numbers + ahead), at[j] += t->group_bytes;
    }
#pragma GCC unroll 4
    for (int j = 0; j < N; j++)
#pragma GCC unroll 4
        for (int m = 0; m < M; m++) {
            const vf v = finished(vf_set1((float)ln_fixed_radix(bits)), sums[j][2 * m], sums[j][2 * m + 1], &t->terms[m], e_of(t, b + j * by));
            put_line(t, m, b + j * by, v);
        }
}
typedef void lines_fn(const tiles *t, const void *made, int64_t b, const uint8_t *next);
#define LINES(M, N, bits) \
    static void lines_##M##_##N##_##bits(const tiles *t, const void *made, int64_t b, const uint8_t *next) { lines_body(M, N, bits, t, made, b, next); }
#define LINES_OF(bits) LINES(1, 1, bits) LINES(1, 2, bits) LINES(2, 1, bits) LINES(2, 2, bits) LINES(3, 1, bits) LINES(4, 1, bits)
LINES_OF(4) LINES_OF(8) LINES(1, 4, 8)
#define LINES_ROW(bits, ...)                                                                                                             \
    {[1] = {lines_1_1_##bits, lines_1_2_##bits, __VA_ARGS__}, {lines_2_1_##bits, lines_2_2_##bits}, {lines_3_1_##bits}, {lines_4_1_##bits}}
static lines_fn *const lines_fns[2][LINES_ROWS + 1][LINES_BLOCKS] = {LINES_ROW(4, NULL), LINES_ROW(8, NULL, lines_1_4_8)}; /* [bits == 8][rows][blocks - 1] */
static int64_t lines_blocks(int bits, int64_t rows) { return rows > 2 ? 1 : rows > 1 || bits == 4 ? 2 : LINES_BLOCKS; }

/* Sums of a row's limbs, group by group. */
static void group_sums(const tiles *t, int64_t rows, float *to) {
    const int64_t group = t->w->enc.group, groups = t->C / group;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < groups; g++, to += 2)
            for (int limb = 0; limb < 2; limb++) {
                const int8_t *x = (const int8_t *)(t->x + r * t->ldx + limb * t->P + g * group);
                int32_t sum = 0;
                for (int64_t i = 0; i < group; i++) sum += x[i];
                to[limb] = (float)sum;
            }
}

/* Blocks of y in a share; how many are taken at once. */
static int64_t lines_share(const ln_call *c, int64_t *lo, int64_t *hi) {
    const ln_affine *w = c->in[1].data;
    const int64_t n = lines_blocks(w->enc.bits, c->out[0].rows);
    ln_share(ln_pack_blocks(c->out[0].cols), n, c->thread, c->n_threads, lo, hi);
    return n;
}

static void lines_row_run(const ln_call *c) {
    const ln_arg *y = &c->out[0];
    if (y->rows < 1) return;
    ln_fixed_terms terms[LINES_ROWS];
    tiles t = tiles_of_call(c);
    t.terms = terms;
    for (int64_t r = 0; r < y->rows; r++) terms[r] = terms_of(&t, r, ln_fixed_middle(t.w->enc.bits));
    void *made = t.room;
    int64_t lo, hi, n = lines_share(c, &lo, &hi);
    if (lo >= hi) return;
    lines_fn *const *fns = lines_fns[t.w->enc.bits == 8][y->rows];
    if (t.w->enc.bits == 4) group_sums(&t, y->rows, made);
    else words_of_8(&t, y->rows, made);
    const int of = t.function ? 2 : 1; /* blocks for each of y's */
    for (int which = 0; which < of; which++) {
        const uint8_t *codes = which ? t.second->codes : t.w->codes, *then = which + 1 < of ? t.second->codes + lo * t.block : codes + hi * t.block;
        for (int64_t b = lo, some = n; b < hi; b += some) {
            while (b + some > hi) some /= 2;
            fns[some - 1](&t, made, of * b + which, b + some < hi ? codes + (b + some) * t.block : then);
        }
    }
    if (!t.function && c->node->n_in > 2) ln_cpu_add_bias(&c->in[2], y->data, t.ldy, y->rows, lo * SIDE, LN_MIN(hi * SIDE, t.D));
}
