/* The delta rule and the short convolution on a vector ISA level, with the bits of the reference (ops.h
 * says which sums these are). Included once per ISA level, after its simd header.
 *
 * The delta rule:
 *
 *     for (sequence, key head) of this thread's partition
 *       read the rows of the open chunk from its page into scratch, as f32
 *       for chunk of the step's rows
 *         q, k: unit vectors of all rows
 *         dots  [2 n, page_len] = k, q times the keys of the chunk      (lanes: keys)
 *         for value head of the group
 *           heads [2 n, Ev] = k, q times S                              (lanes: columns of a value)
 *           for row: substitute the earlier rows' values, then add them up for y
 *         write the rows to the page of the chunk
 *         S of the next chunk = decayed S + keys^T values               (lanes: columns of a value)
 *
 * Each product is a chain of fma for each output, so tiles of 4 rows by 4 vectors are free to choose. S is
 * read in place from the page as long as the chunk does not end. Keys lie transposed, [E, page_len], as in
 * pages. */
#include "../../../ops/ops.h"
#include "../../../ops/recur_layout.h"
#include "../cpu.h"
#include "../simd/simd_activation.inc.h"

enum { TILE_ROWS = 4, TILE_VECTORS = 4 };

/* y[r][0..n VL) = first + chain over i of x[r][i] m[i][..] for R rows and n vectors; first: 0, or `decay`
 * times `old`. */
INLINE void product_tile(const float *x, int64_t x_pitch, const float *m, int64_t m_pitch, int64_t depth,
                         float *y, int64_t y_pitch, const float *old, float decay, const int R, const int n) {
    vf acc[TILE_ROWS][TILE_VECTORS];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < n; v++)
            acc[r][v] = old ? vf_mul(vf_set1(decay), vf_load(old + r * y_pitch + v * VL)) : vf_zero();
    for (int64_t i = 0; i < depth; i++)
        for (int r = 0; r < R; r++) {
            const vf a = vf_set1(x[r * x_pitch + i]);
            for (int v = 0; v < n; v++) acc[r][v] = vf_fma(a, vf_load(m + i * m_pitch + v * VL), acc[r][v]);
        }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < n; v++) vf_store(y + r * y_pitch + v * VL, acc[r][v]);
}
/* The same for all rows, of `cols` columns, a multiple of VL. */
static void product(const float *x, int64_t x_pitch, int64_t rows, const float *m, int64_t cols,
                    int64_t m_pitch, int64_t depth, float *y, int64_t y_pitch, const float *old,
                    float decay) {
#define TILE(R, n)                                                                              \
    product_tile(x + r * x_pitch, x_pitch, m + c, m_pitch, depth, y + r * y_pitch + c, y_pitch, \
                 old ? old + r * y_pitch + c : NULL, decay, R, n)
    int64_t c = 0;
    for (; c + TILE_VECTORS * VL <= cols; c += TILE_VECTORS * VL) {
        int64_t r = 0;
        for (; r + TILE_ROWS <= rows; r += TILE_ROWS) TILE(TILE_ROWS, TILE_VECTORS);
        for (; r + 2 <= rows; r += 2) TILE(2, TILE_VECTORS);
        if (r < rows) TILE(1, TILE_VECTORS);
    }
    for (; c < cols; c += VL) {
        int64_t r = 0;
        for (; r + TILE_ROWS <= rows; r += TILE_ROWS) TILE(TILE_ROWS, 1);
        for (; r < rows; r++) TILE(1, 1);
    }
#undef TILE
}

/* One key head of one sequence. */
typedef struct head {
    const ln_p_recur *p;
    ln_recur_parts at;
    int64_t head, group;  /* the key head, and how many value heads it serves */
    const float *s;       /* [group, E, Ev] at the start of the chunk: `own`, or the page's */
    float *own;           /* [group, E, Ev] */
    float *keys, *values; /* [E, page_len], [group, page_len, Ev]: of the chunk */
    float *decays;        /* [group, page_len] */
    float *rows, *dots;   /* [2 n, E] k then q; [2 n, page_len] their products with the keys */
    float *heads;         /* [2 n, Ev] their products with S */
    float *w;             /* [2, page_len] */
} head;

static size_t delta_floats(const ln_p_recur *p) {
    const int64_t group = p->n_v_heads / p->n_k_heads, len = p->page_len;
    return (size_t)(group * p->v_dim * (p->k_dim + len) + (int64_t)p->k_dim * len + group * len +
                    2 * len * (p->k_dim + len + p->v_dim) + 2 * len);
}
static size_t delta_scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    (void)p, (void)b;
    return delta_floats(&n->p.recur) * sizeof(float);
}

static head head_of(const ln_call *c, int64_t number) {
    const ln_p_recur *p = &c->node->p.recur;
    const int64_t group = p->n_v_heads / p->n_k_heads, len = p->page_len;
    head h = {.p = p, .at = ln_recur_parts_of(p, sizeof(float)), .head = number, .group = group};
    h.own = c->scratch;
    h.values = h.own + group * p->k_dim * p->v_dim;
    h.keys = h.values + group * len * p->v_dim;
    h.rows = h.keys + p->k_dim * len;
    h.dots = h.rows + 2 * len * p->k_dim;
    h.heads = h.dots + 2 * len * len;
    h.decays = h.heads + 2 * len * p->v_dim;
    h.w = h.decays + group * len;
    h.s = h.own;
    return h;
}

/* n elements from or to a part of a page. */
static void load_part(const void *part, ln_dtype dtype, int64_t at, int64_t n, float *x) {
    if (dtype == LN_F32) memcpy(x, (const float *)part + at, (size_t)n * sizeof *x);
    else
        for (int64_t i = 0; i < n; i += VL) vf_store(x + i, vf_load_bf16((const uint16_t *)part + at + i));
}
static void store_part(void *part, ln_dtype dtype, int64_t at, int64_t n, const float *x) {
    if (dtype == LN_F32) memcpy((float *)part + at, x, (size_t)n * sizeof *x);
    else
        for (int64_t i = 0; i < n; i++) ((uint16_t *)part)[at + i] = (uint16_t)(ln_f32_bits(x[i]) >> 16);
}

/* The first n rows of a chunk from its page, whose S is read in place. */
static void load_rows(head *h, const char *page, int64_t n) {
    const ln_p_recur *p = h->p;
    const int64_t len = p->page_len, first = h->head * h->group;
    h->s = (const float *)(const void *)(page + h->at.s) + first * p->k_dim * p->v_dim;
    memcpy(h->decays, (const float *)(const void *)(page + h->at.decays) + first * len,
           (size_t)(h->group * len) * sizeof(float));
    load_part(page + h->at.keys, p->dtype, h->head * p->k_dim * len, p->k_dim * len, h->keys);
    for (int64_t g = 0; g < h->group; g++)
        load_part(page + h->at.values, p->dtype, (first + g) * len * p->v_dim, n * p->v_dim,
                  h->values + g * len * p->v_dim);
}

/* Rows from .. n - 1 of a chunk to its page and, if the first is among them, S. */
static void store_rows(const head *h, char *page, int64_t from, int64_t n) {
    const ln_p_recur *p = h->p;
    const int64_t len = p->page_len, first = h->head * h->group, matrix = (int64_t)p->k_dim * p->v_dim;
    if (from == 0)
        memcpy((float *)(void *)(page + h->at.s) + first * matrix, h->s,
               (size_t)(h->group * matrix) * sizeof(float));
    for (int64_t i = 0; i < p->k_dim; i++)
        store_part(page + h->at.keys, p->dtype, (h->head * p->k_dim + i) * len + from, n - from,
                   h->keys + i * len + from);
    for (int64_t g = 0; g < h->group; g++) {
        memcpy((float *)(void *)(page + h->at.decays) + (first + g) * len + from, h->decays + g * len + from,
               (size_t)(n - from) * sizeof(float));
        store_part(page + h->at.values, p->dtype, ((first + g) * len + from) * p->v_dim,
                   (n - from) * p->v_dim, h->values + (g * len + from) * p->v_dim);
    }
}

/* S of the next chunk, into h->own. */
static void advance(head *h) {
    const ln_p_recur *p = h->p;
    const int64_t len = p->page_len, matrix = (int64_t)p->k_dim * p->v_dim;
    for (int64_t g = 0; g < h->group; g++) {
        const float *d = h->decays + g * len, decay = ln_expf(d[len - 1]);
        float *u = h->values + g * len * p->v_dim;
        for (int64_t j = 0; j < len; j++) {
            const vf e = vf_set1(ln_expf(d[len - 1] - d[j]));
            for (int64_t i = 0; i < p->v_dim; i += VL)
                vf_store(u + j * p->v_dim + i, vf_mul(e, vf_load(u + j * p->v_dim + i)));
        }
        product(h->keys, len, p->k_dim, u, p->v_dim, p->v_dim, len, h->own + g * matrix, p->v_dim,
                h->s + g * matrix, decay);
    }
    h->s = h->own;
}

/* x[n] divided by its length, times a factor. */
static void unit(const float *x, int64_t n, float by, bool scaled, float *y) {
    float lane[16] = {0}, half[16];
    for (int64_t i = 0; i < n; i += 16)
        for (int k = 0; k < 16; k++) lane[k] = fmaf(x[i + k], x[i + k], lane[k]);
    memcpy(half, lane, sizeof half);
    for (int w = 8; w > 0; w /= 2)
        for (int k = 0; k < w; k++) half[k] = half[k] + half[k + w];
    const float r = 1 / sqrtf(half[0] + LN_RECUR_EPS);
    for (int64_t i = 0; i < n; i++) y[i] = scaled ? x[i] * r * by : x[i] * r;
}

static const float *operand(const ln_call *c, int which, int64_t row) {
    const ln_p_recur *p = &c->node->p.recur;
    const ln_arg *a = &c->in[c->node->n_in > 3 ? 2 + which : 2];
    return (const float *)a->data + row * a->pitch +
           (c->node->n_in > 3 ? 0 : which * (int64_t)p->n_k_heads * p->k_dim);
}

/* Unit keys and queries of rows r .. r + n - 1, which are rows t .. of the chunk, and their dots. */
static void keys_and_queries(const ln_call *c, const head *h, int64_t r, int64_t t, int64_t n) {
    const ln_p_recur *p = h->p;
    const int64_t E = p->k_dim, len = p->page_len;
    const float by = (float)(1 / sqrt((double)E));
    for (int64_t i = 0; i < n; i++) {
        float *k = h->rows + i * E;
        unit(operand(c, 1, r + i) + h->head * E, E, by, false, k);
        unit(operand(c, 0, r + i) + h->head * E, E, by, true, h->rows + (n + i) * E);
        for (int64_t e = 0; e < E; e++) {
            if (p->dtype == LN_BF16) k[e] = ln_bf16_f32(ln_f32_bf16(k[e]));
            h->keys[e * len + t + i] = k[e];
        }
    }
    const int64_t cols = (t + n + VL - 1) / VL * VL;
    product(h->rows, E, 2 * n, h->keys, cols, len, E, h->dots, len, NULL, 0);
}

/* x[Ev] minus or plus the sum over j < n of w[j] u[j][Ev]. */
INLINE void add_values(float *x, const float *w, const float *u, int64_t n, int64_t Ev, const bool minus,
                       const int vectors) {
    vf acc[8];
    for (int v = 0; v < vectors; v++) acc[v] = vf_load(x + v * VL);
    for (int64_t j = 0; j < n; j++) {
        const vf a = vf_set1(w[j]);
        for (int v = 0; v < vectors; v++) {
            const vf b = vf_load(u + j * Ev + v * VL);
            acc[v] = minus ? vf_fnma(a, b, acc[v]) : vf_fma(a, b, acc[v]);
        }
    }
    for (int v = 0; v < vectors; v++) vf_store(x + v * VL, acc[v]);
}
INLINE void add_all(float *x, const float *w, const float *u, int64_t n, int64_t Ev, const bool minus) {
    int64_t at = 0;
    for (; at + 8 * VL <= Ev; at += 8 * VL) add_values(x + at, w, u + at, n, Ev, minus, 8);
    for (; at + 2 * VL <= Ev; at += 2 * VL) add_values(x + at, w, u + at, n, Ev, minus, 2);
    for (; at < Ev; at += VL) add_values(x + at, w, u + at, n, Ev, minus, 1);
}

/* Row t of the chunk in value head g of the group: i-th of the n rows that `heads` and `dots` have. */
static void one_row(const head *h, int64_t g, int64_t t, int64_t i, int64_t n, float log_decay, float beta,
                    const float *v, float *y) {
    const ln_p_recur *p = h->p;
    const int64_t len = p->page_len, Ev = p->v_dim;
    float *d = h->decays + g * len, *u = h->values + g * len * Ev, *x = u + t * Ev, *w = h->w,
          *wq = h->w + len;
    const float *dk = h->dots + i * len, *dq = h->dots + (n + i) * len;
    d[t] = t ? d[t - 1] + log_decay : log_decay;
    const float decay = ln_expf(d[t]), now = d[t];
#pragma GCC ivdep
    for (int64_t j = 0; j <= t; j++) {
        const float e = ln_expf(now - d[j]);
        w[j] = e * dk[j];
        wq[j] = e * dq[j];
    }
    for (int64_t e = 0; e < Ev; e += VL) {
        vf_store(x + e, vf_fnma(vf_set1(decay), vf_load(h->heads + i * Ev + e), vf_load(v + e)));
        vf_store(y + e, vf_mul(vf_set1(decay), vf_load(h->heads + (n + i) * Ev + e)));
    }
    add_all(x, w, u, t, Ev, true);
    for (int64_t e = 0; e < Ev; e += VL) {
        const vf z = vf_mul(vf_set1(beta), vf_load(x + e));
        vf_store(x + e, z);
    }
    if (p->dtype == LN_BF16)
        for (int64_t e = 0; e < Ev; e++) x[e] = ln_bf16_f32(ln_f32_bf16(x[e]));
    add_all(y, wq, u, t + 1, Ev, false);
}

/* Rows r .. r + n - 1 of the step, which are rows t .. of the chunk. */
static void rows_of_chunk(const ln_call *c, const head *h, int64_t r, int64_t t, int64_t n) {
    const ln_p_recur *p = h->p;
    keys_and_queries(c, h, r, t, n);
    for (int64_t g = 0; g < h->group; g++) {
        const int64_t number = h->head * h->group + g;
        product(h->rows, p->k_dim, 2 * n, h->s + g * p->k_dim * p->v_dim, p->v_dim, p->v_dim, p->k_dim,
                h->heads, p->v_dim, NULL, 0);
        for (int64_t i = 0; i < n; i++) {
            const float *gates = (const float *)c->in[1].data + (r + i) * c->in[1].pitch;
            one_row(h, g, t + i, i, n, gates[number], gates[p->n_v_heads + number],
                    operand(c, 2, r + i) + number * p->v_dim,
                    (float *)c->out[1].data + (r + i) * c->out[1].pitch + number * p->v_dim);
        }
    }
}

static void one_sequence(const ln_call *c, int b, int64_t number) {
    const ln_p_recur *p = &c->node->p.recur;
    head h = head_of(c, number);
    const int64_t len = p->page_len, end = c->step->row0[b + 1];
    int64_t r = c->step->row0[b], pos = c->step->pos[r], at = pos % len;
    if (pos == 0) memset(h.own, 0, (size_t)(h.group * p->k_dim * p->v_dim) * sizeof(float));
    else load_rows(&h, ln_recur_page(p, c->in[0].data, c->step, b, (pos - 1) / len), at ? at : len);
    if (pos > 0 && at == 0) advance(&h);
    while (r < end) {
        const int64_t n = LN_MIN(len - at, end - r);
        char *page = ln_recur_page(p, c->in[0].data, c->step, b, pos / len);
        rows_of_chunk(c, &h, r, at, n);
        if (page) store_rows(&h, page, at, at + n);
        r += n, pos += n, at = 0;
        if (r < end) advance(&h);
    }
}

static void delta_run(const ln_call *c) {
    const int64_t heads = c->node->p.recur.n_k_heads, n = heads * c->step->n_seqs;
    const int64_t lo = n * c->thread / c->n_threads, hi = n * (c->thread + 1) / c->n_threads;
    for (int64_t i = lo; i < hi; i++) one_sequence(c, (int)(i / heads), i % heads);
}

/* ---- the short convolution: lanes are channels ---- */

enum { CONV_BLOCK = 64 }; /* channels at a time, whose taps stay in registers or the first cache */

/* Address of the input of the block's first channel at a position before the step; NULL: 0. */
static const void *before(const ln_call *c, int b, int64_t pos, int64_t first_pos) {
    const ln_p_recur *p = &c->node->p.recur;
    if (pos < 0) return NULL;
    const int64_t chunk = (first_pos - 1) / p->page_len;
    const char *inputs =
        ln_recur_page(p, c->in[0].data, c->step, b, chunk) + ln_recur_parts_of(p, sizeof(float)).inputs;
    return inputs +
           (pos - (chunk * p->page_len - (p->taps - 1))) * p->channels * ln_recur_element(p, sizeof(float));
}

/* The inputs of n channels, from `channel` on, at a position: as f32, rounded as they are stored. */
static void conv_inputs(const ln_call *c, int b, int64_t pos, int64_t channel, int64_t n, float *x) {
    const ln_p_recur *p = &c->node->p.recur;
    const int64_t first = c->step->row0[b], first_pos = c->step->pos[first];
    if (pos >= first_pos) {
        const float *in = (const float *)c->in[1].data + (first + pos - first_pos) * c->in[1].pitch + channel;
        for (int64_t i = 0; i < n; i++) x[i] = p->dtype == LN_BF16 ? ln_bf16_f32(ln_f32_bf16(in[i])) : in[i];
        return;
    }
    const void *kept = before(c, b, pos, first_pos);
    if (!kept) memset(x, 0, (size_t)n * sizeof *x);
    else
        for (int64_t i = 0; i < n; i++) x[i] = ln_num_load(kept, p->dtype, p->at + channel + i);
}

/* Stores the inputs of a row, and at the start of a chunk those before it, if the chunk has a page. */
static void conv_keep(const ln_call *c, int b, int64_t pos, int64_t channel, int64_t n, float *x) {
    const ln_p_recur *p = &c->node->p.recur;
    const int64_t at = pos % p->page_len;
    char *page = ln_recur_page(p, c->in[0].data, c->step, b, pos / p->page_len);
    if (!page) return;
    void *inputs = page + ln_recur_parts_of(p, sizeof(float)).inputs;
    for (int64_t i = at ? p->taps - 1 : 0; i < p->taps; i++) {
        conv_inputs(c, b, pos - (p->taps - 1) + i, channel, n, x);
        store_part(inputs, p->dtype, (at + i) * p->channels + p->at + channel, n, x);
    }
}

static void conv_block(const ln_call *c, int b, int64_t channel, int64_t n, const float *w) {
    const ln_p_recur *p = &c->node->p.recur;
    const ln_arg *bias = c->node->n_in > 3 ? &c->in[3] : NULL;
    const int64_t first = c->step->row0[b], first_pos = c->step->pos[first];
    float ring[LN_RECUR_TAPS][CONV_BLOCK] = {0}, kept[CONV_BLOCK];
    for (int64_t i = 0; i < p->taps - 1; i++)
        conv_inputs(c, b, first_pos - (p->taps - 1) + i, channel, n, ring[i % LN_RECUR_TAPS]);
    for (int64_t r = 0; r < c->step->row0[b + 1] - first; r++) {
        float *y = (float *)c->out[1].data + (first + r) * c->out[1].pitch + channel, sum[CONV_BLOCK] = {0};
        conv_inputs(c, b, first_pos + r, channel, n, ring[(r + p->taps - 1) % LN_RECUR_TAPS]);
        for (int64_t i = 0; i < p->taps; i++) {
            const float *x = ring[(r + i) % LN_RECUR_TAPS];
            for (int64_t k = 0; k < CONV_BLOCK; k += VL)
                vf_store(sum + k, vf_fma(vf_load(w + i * CONV_BLOCK + k), vf_load(x + k), vf_load(sum + k)));
        }
        for (int64_t k = 0; bias && k < n; k++)
            sum[k] = sum[k] + ln_num_load(bias->data, (ln_dtype)bias->dtype, channel + k);
        for (int64_t k = 0; p->silu && k < CONV_BLOCK; k += VL) vf_store(sum + k, vf_silu(vf_load(sum + k)));
        memcpy(y, sum, (size_t)n * sizeof *y);
        conv_keep(c, b, first_pos + r, channel, n, kept);
    }
}

static void conv_run(const ln_call *c) {
    const ln_p_recur *p = &c->node->p.recur;
    const ln_arg *w = &c->in[2];
    const int64_t blocks = (c->in[1].cols + CONV_BLOCK - 1) / CONV_BLOCK;
    float taps[LN_RECUR_TAPS * CONV_BLOCK];
    const int64_t lo = blocks * c->thread / c->n_threads, hi = blocks * (c->thread + 1) / c->n_threads;
    for (int64_t k = lo; k < hi; k++) {
        const int64_t channel = k * CONV_BLOCK, n = LN_MIN((int64_t)CONV_BLOCK, c->in[1].cols - channel);
        memset(taps, 0, sizeof taps);
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < p->taps; i++)
                taps[i * CONV_BLOCK + j] =
                    ln_num_load(w->data, (ln_dtype)w->dtype, (channel + j) * p->taps + i);
        for (int b = 0; b < c->step->n_seqs; b++) conv_block(c, b, channel, n, taps);
    }
}

const ln_kernel_row LN_ISA(ln_cpu_recur)[] = {
    {LN_OP_SHORT_CONV, 1 << 1, {.fn = conv_run}},
    {LN_OP_GATED_DELTA, 1 << 1, {.fn = delta_run, .scratch = delta_scratch}},
    {0},
};
