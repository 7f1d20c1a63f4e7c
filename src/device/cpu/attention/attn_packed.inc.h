/* Attention over the rows of a packed batch, and its gradient, with the bits of the reference
 * (ops/packed_attention_op.c). Part of gemm_rows.inc.h, whose products it consists of.
 *
 *     unit: a sequence and a KV head
 *       for query head of the group
 *         for tile of ATTN_ROWS rows
 *           for split of LN_ATTN_SPLIT positions that a row of the tile sees
 *             scores [rows][split] = q k^T; weights 0 where a row does not see a position
 *             forward:   merge maxima and sums; o = weights v
 *             backward:  dP = dy v^T; dS; dq += dS k; dk += dS^T q; dv += P^T dy
 *
 * A weight of 0 adds a zero to its chain, which changes no bit of it: chains begin at +0. Threads partition
 * units; all chains of a unit are one thread's. */
enum { ATTN_ROWS = 64 };

/* A tile of rows of one head against one split. Positions are those of the sequence. */
typedef struct attn_tile {
    const ln_call *c;
    int64_t start, pos0;    /* first row of the sequence, and its position */
    int64_t row, n;         /* first row of the tile, and how many */
    int64_t h, head;        /* query head, KV head */
    int64_t base, from, to; /* of the split: its first position; positions [from, to) are computed */
} attn_tile;
/* Buffers of a thread. */
typedef struct attn_work {
    float *s, *p;      /* [ATTN_ROWS][LN_ATTN_SPLIT] scores or dS; weights */
    float *o;          /* [ATTN_ROWS][Ev] */
    float *most, *sum; /* [ATTN_ROWS] */
} attn_work;

static size_t attn_packed_scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    (void)p, (void)b;
    return sizeof(float) * (size_t)(ATTN_ROWS * (2 * LN_ATTN_SPLIT + n->p.packed.v_dim + 2));
}
static attn_work attn_work_of(const ln_call *c) {
    attn_work w = {.s = c->scratch};
    w.p = w.s + ATTN_ROWS * LN_ATTN_SPLIT;
    w.o = w.p + ATTN_ROWS * LN_ATTN_SPLIT;
    w.most = w.o + ATTN_ROWS * c->node->p.packed.v_dim;
    w.sum = w.most + ATTN_ROWS;
    return w;
}
/* Head h of row r of an operand whose heads are `width` elements wide. */
static float *head_at(const ln_arg *a, int64_t r, int64_t h, int64_t width) {
    return (float *)a->data + r * a->pitch + h * width;
}
static int64_t first_seen(const attn_tile *t, int64_t pos) {
    const int64_t window = t->c->node->p.packed.window;
    return window > 0 ? LN_MAX(t->pos0, pos - window + 1) : t->pos0;
}
/* Row of the sequence at a position. */
static int64_t row_of(const attn_tile *t, int64_t pos) { return t->start + pos - t->pos0; }
static int64_t pos_of(const attn_tile *t, int64_t row) { return t->pos0 + row - t->start; }

/* s[i][j - base] = dot of head h of a (rows of the tile) and the KV head of b, `width` elements each, for
 * positions [from, to). */
static void attn_dots(const attn_tile *t, const ln_arg *a, const ln_arg *b, int64_t width, float *s) {
    rows_run(&(rows_product){.M = t->n,
                             .N = t->to - t->from,
                             .K = width,
                             .a = head_at(a, t->row, t->h, width),
                             .a_m = a->pitch,
                             .a_k = 1,
                             .b = head_at(b, row_of(t, t->from), t->head, width),
                             .b_k = 1,
                             .b_n = b->pitch,
                             .y = s + (t->from - t->base),
                             .ldy = LN_ATTN_SPLIT});
}
/* y[i][e] (+)= sum over j of s[i][j] b[j][e], for rows of the tile and e below `width`. */
static void attn_mix(const attn_tile *t, const float *s, const ln_arg *b, int64_t width, float *y,
                     int64_t ldy, bool accumulate) {
    rows_run(&(rows_product){.M = t->n,
                             .N = width,
                             .K = t->to - t->from,
                             .a = s + (t->from - t->base),
                             .a_m = LN_ATTN_SPLIT,
                             .a_k = 1,
                             .b = head_at(b, row_of(t, t->from), t->head, width),
                             .b_k = b->pitch,
                             .b_n = 1,
                             .y = y,
                             .ldy = ldy,
                             .accumulate = accumulate});
}
/* y[j][e] += sum over the rows i of the tile of s[i][j] a[i][e], for e below `width`. */
static void attn_spread(const attn_tile *t, const float *s, const ln_arg *a, int64_t width, const ln_arg *y) {
    rows_run(&(rows_product){.M = t->to - t->from,
                             .N = width,
                             .K = t->n,
                             .a = s + (t->from - t->base),
                             .a_m = 1,
                             .a_k = LN_ATTN_SPLIT,
                             .b = head_at(a, t->row, t->h, width),
                             .b_k = a->pitch,
                             .b_n = 1,
                             .y = head_at(y, row_of(t, t->from), t->head, width),
                             .ldy = y->pitch,
                             .accumulate = true});
}

/* Positions of the split that row i of the tile sees, [*lo, *hi) from the split's base. */
static void seen_by(const attn_tile *t, int64_t i, int64_t *lo, int64_t *hi) {
    const int64_t pos = pos_of(t, t->row + i);
    *lo = LN_MAX(first_seen(t, pos), t->from) - t->base;
    *hi = LN_MIN(pos + 1, t->to) - t->base;
}

/* The scores of a row become its softmax weights in this split, 0 where it does not see. */
static void attn_weights(const attn_tile *t, int64_t i, float *s, float *max, float *sum) {
    const float scale = t->c->node->p.packed.scale, cap = t->c->node->p.packed.softcap;
    float lane[16] = {0}, m = -INFINITY;
    int64_t lo, hi;
    seen_by(t, i, &lo, &hi);
    for (int64_t j = lo; j < hi; j++) s[j] = s[j] * scale;
    if (cap > 0)
        for (int64_t j = lo; j < hi; j++) s[j] = ln_softcapf(s[j], cap);
    for (int64_t j = lo; j < hi; j++) m = s[j] <= m ? m : s[j];
    for (int64_t j = lo; j < hi; j++) s[j] = ln_expf(s[j] - m);
    memset(s, 0, (size_t)lo * sizeof *s);
    memset(s + hi, 0, (size_t)(LN_ATTN_SPLIT - hi) * sizeof *s);
    for (int64_t j = 0; j < LN_ATTN_SPLIT; j += 16)
        for (int l = 0; l < 16; l++) lane[l] = lane[l] + s[j + l];
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] = lane[l] + lane[l + half];
    *max = m;
    *sum = lane[0];
}
/* Merges the output o of a split into the output y of row i. */
static void attn_merge(const attn_work *w, int64_t i, float m, float l, const float *o, float *y, int64_t E,
                       bool is_first) {
    if (is_first) {
        w->most[i] = m;
        w->sum[i] = l;
        memcpy(y, o, (size_t)E * sizeof *y);
        return;
    }
    const float most = m <= w->most[i] ? w->most[i] : m, a = ln_expf(w->most[i] - most),
                f = ln_expf(m - most);
    w->sum[i] = w->sum[i] * a + l * f;
    for (int64_t e = 0; e < E; e++) y[e] = fmaf(o[e], f, y[e] * a);
    w->most[i] = most;
}

/* Sets the split that begins at or before `pos`, as far as the tile sees it. */
static void set_split(attn_tile *t, int64_t pos) {
    const int64_t last = pos_of(t, t->row + t->n - 1);
    t->base = pos / LN_ATTN_SPLIT * LN_ATTN_SPLIT;
    t->from = LN_MAX(t->base, first_seen(t, pos_of(t, t->row)));
    t->to = LN_MIN(t->base + LN_ATTN_SPLIT, last + 1);
}
static void attn_forward_tile(attn_tile *t, const attn_work *w) {
    const ln_call *c = t->c;
    const int64_t Ev = c->node->p.packed.v_dim, last = pos_of(t, t->row + t->n - 1);
    const ln_arg *sinks = c->node->n_in > 3 ? &c->in[3] : NULL;
    for (int64_t i = 0; sinks && i < t->n; i++) {
        w->most[i] = ln_num_load(sinks->data, (ln_dtype)sinks->dtype, t->h);
        w->sum[i] = 1;
        memset(head_at(&c->out[0], t->row + i, t->h, Ev), 0, (size_t)Ev * sizeof(float));
    }
    for (int64_t pos = first_seen(t, pos_of(t, t->row)); pos <= last; pos = t->base + LN_ATTN_SPLIT) {
        float max[ATTN_ROWS], sum[ATTN_ROWS];
        int64_t lo, hi;
        set_split(t, pos);
        attn_dots(t, &c->in[0], &c->in[1], c->node->p.packed.head_dim, w->s);
        for (int64_t i = 0; i < t->n; i++) {
            seen_by(t, i, &lo, &hi);
            if (lo < hi) attn_weights(t, i, w->s + i * LN_ATTN_SPLIT, &max[i], &sum[i]);
            else memset(w->s + i * LN_ATTN_SPLIT, 0, LN_ATTN_SPLIT * sizeof *w->s);
        }
        attn_mix(t, w->s, &c->in[2], Ev, w->o, Ev, false);
        for (int64_t i = 0; i < t->n; i++) {
            seen_by(t, i, &lo, &hi);
            if (lo < hi)
                attn_merge(w, i, max[i], sum[i], w->o + i * Ev, head_at(&c->out[0], t->row + i, t->h, Ev), Ev,
                           !sinks && first_seen(t, pos_of(t, t->row + i)) >= t->base);
        }
    }
    for (int64_t i = 0; i < t->n; i++) {
        float *y = head_at(&c->out[0], t->row + i, t->h, Ev);
        for (int64_t e = 0; e < Ev; e++) y[e] = y[e] / w->sum[i];
        ((float *)c->out[1].data)[(t->row + i) * c->out[1].pitch + t->h] =
            w->most[i] + (float)ln_log64((double)w->sum[i]);
    }
}

/* delta of row i: the sum of dy y in 16 lanes. */
static float attn_delta(const attn_tile *t, int64_t i) {
    const ln_call *c = t->c;
    const int64_t Ev = c->node->p.packed.v_dim;
    const float *dy = head_at(&c->in[5], t->row + i, t->h, Ev), *y = head_at(&c->in[3], t->row + i, t->h, Ev);
    float lane[16] = {0};
    for (int64_t e = 0; e < Ev; e++) lane[e % 16] = fmaf(dy[e], y[e], lane[e % 16]);
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] = lane[l] + lane[l + half];
    return lane[0];
}
/* Of row i: scores s and products dP in `p` become dS in s and P in `p`. */
static void attn_slopes(const attn_tile *t, int64_t i, float *s, float *p, float delta) {
    const ln_call *c = t->c;
    const float scale = c->node->p.packed.scale, cap = c->node->p.packed.softcap,
                lse = ((const float *)c->in[4].data)[(t->row + i) * c->in[4].pitch + t->h];
    int64_t lo, hi;
    seen_by(t, i, &lo, &hi);
    hi = LN_MAX(hi, lo);
    if (cap > 0)
        for (int64_t j = lo; j < hi; j++) {
            const float x = ln_softcapf(s[j] * scale, cap), weight = ln_expf(x - lse);
            s[j] = weight * (p[j] - delta) * (1 - x / cap * (x / cap));
            p[j] = weight;
        }
    else {
        for (int64_t j = lo; j < hi; j++) s[j] = ln_expf(s[j] * scale - lse);
        for (int64_t j = lo; j < hi; j++) {
            const float weight = s[j];
            s[j] = weight * (p[j] - delta);
            p[j] = weight;
        }
    }
    const int64_t width = LN_ATTN_SPLIT;
    memset(s, 0, (size_t)LN_MIN(lo, width) * sizeof *s), memset(p, 0, (size_t)LN_MIN(lo, width) * sizeof *p);
    if (hi < width) {
        memset(s + hi, 0, (size_t)(width - hi) * sizeof *s);
        memset(p + hi, 0, (size_t)(width - hi) * sizeof *p);
    }
}
static void attn_backward_tile(attn_tile *t, const attn_work *w) {
    const ln_call *c = t->c;
    const int64_t E = c->node->p.packed.head_dim, Ev = c->node->p.packed.v_dim,
                  last = pos_of(t, t->row + t->n - 1);
    const ln_arg *dq = &c->out[0];
    float delta[ATTN_ROWS];
    bool go_on = false;
    for (int64_t i = 0; i < t->n; i++) delta[i] = attn_delta(t, i);
    for (int64_t pos = first_seen(t, pos_of(t, t->row)); pos <= last; pos = t->base + LN_ATTN_SPLIT) {
        set_split(t, pos);
        attn_dots(t, &c->in[0], &c->in[1], E, w->s);
        attn_dots(t, &c->in[5], &c->in[2], Ev, w->p);
        for (int64_t i = 0; i < t->n; i++)
            attn_slopes(t, i, w->s + i * LN_ATTN_SPLIT, w->p + i * LN_ATTN_SPLIT, delta[i]);
        attn_mix(t, w->s, &c->in[1], E, head_at(dq, t->row, t->h, E), dq->pitch, go_on);
        attn_spread(t, w->s, &c->in[0], E, &c->out[1]);
        attn_spread(t, w->p, &c->in[5], Ev, &c->out[2]);
        go_on = true;
    }
    for (int64_t i = 0; i < t->n; i++) {
        float *to = head_at(dq, t->row + i, t->h, E);
        for (int64_t e = 0; e < E; e++) to[e] = to[e] * c->node->p.packed.scale;
    }
}

/* Calls `tile` for the tiles of all heads of this thread's units. */
static void each_tile(const ln_call *c, void (*tile)(attn_tile *t, const attn_work *w)) {
    const ln_p_packed *p = &c->node->p.packed;
    const attn_work w = attn_work_of(c);
    const int64_t group = p->n_heads / p->n_kv_heads, E = p->head_dim;
    const bool back = tile == attn_backward_tile;
    int64_t lo, hi;
    ln_partition((int64_t)c->step->n_seqs * p->n_kv_heads, 1, c->thread, c->n_threads, &lo, &hi);
    for (int64_t u = lo; u < hi; u++) {
        const int64_t b = u / p->n_kv_heads, start = c->step->row0[b], end = c->step->row0[b + 1];
        attn_tile t = {.c = c, .start = start, .pos0 = c->step->pos[start], .head = u % p->n_kv_heads};
        for (int64_t r = start; back && r < end; r++) {
            memset(head_at(&c->out[1], r, t.head, E), 0, (size_t)E * sizeof(float));
            memset(head_at(&c->out[2], r, t.head, p->v_dim), 0, (size_t)p->v_dim * sizeof(float));
        }
        for (t.h = t.head * group; t.h < (t.head + 1) * group; t.h++)
            for (t.row = start; t.row < end; t.row += ATTN_ROWS) {
                t.n = LN_MIN((int64_t)ATTN_ROWS, end - t.row);
                tile(&t, &w);
            }
        for (int64_t r = start; back && r < end; r++) {
            float *dk = head_at(&c->out[1], r, t.head, E);
            for (int64_t e = 0; e < E; e++) dk[e] = dk[e] * p->scale;
        }
    }
}
static void attn_packed_run(const ln_call *c) { each_tile(c, attn_forward_tile); }
static void attn_packed_back_run(const ln_call *c) { each_tile(c, attn_backward_tile); }
