/* Attention over pages on a vector rung, with the bits of the reference (the order of its arithmetic: ops.h, LN_ATTN_SPLIT).
 *
 * A pair is one query head of one row. A unit of work is up to PAIRS pairs that share a kv head of a sequence: consecutive rows, some
 * heads of the group. Split by split, tiles of CORE_M pairs go over its pages: scores by the micro-kernel with lanes along
 * positions (K pages lie that way), softmax weights, then outputs by the same micro-kernel with lanes along the head's width. A split's K
 * and V stay in L2 while the unit's tiles pass over them, so a long prompt reads them once per PAIRS pairs.
 * Pairs never mix, so threads may share units in any way: they are dealt by estimated work, and where there are few units (one
 * row, few kv heads) a group's heads are dealt out too.
 * Only pages with a visible position are touched, and only visible positions enter a chain: invisible scores are
 * computed where a vector covers them, then overwritten. Included once per rung, after its simd header. */
#include "../../base/pool.h"
#include "../../ops/ops.h"
#include "core_tmpl.h"
#include "cpu.h"

CORES(0)
CORES(1)
CORES_FEW(0)
CORES_FEW(1)

/* The micro-kernel for m rows that takes as many of n vectors as is good; *nv: how many. */
static core_fn *pick(bool bf, int64_t m, int64_t n, int64_t *nv) {
    if (m <= 2 && n >= 4) {
        int eight = n >= 8 && m * 8 <= FEW_VECTORS;
        *nv = eight ? 8 : 4;
        return bf ? few_1[m - 1][eight] : few_0[m - 1][eight];
    }
    *nv = n == CORE_NV + 1 ? 2 : LN_MIN(n, (int64_t)CORE_NV); /* 2 + 2 hides more latency than 3 + 1 */
    return bf ? cores_1[*nv - 1][m - 1] : cores_0[*nv - 1][m - 1];
}

enum { PAIRS = 48, SPLIT = LN_ATTN_SPLIT };

/* What one thread works on. */
typedef struct unit {
    const ln_call *c;
    const ln_p_attn *p;
    int b, kv_head;          /* sequence, kv head */
    int64_t row0, n_rows;    /* rows of the step */
    int64_t head0, n_heads;  /* query heads of each row */
    int64_t E, ldo;          /* head width; distance between outputs in scratch */
    float *q, *O, *o, *w;    /* scratch: [PAIRS][E], [PAIRS][ldo], [CORE_M][ldo], [CORE_M][SPLIT] */
    float M[PAIRS], L[PAIRS];
} unit;

static int64_t first_seen(const ln_p_attn *p, int64_t pos) { return p->window > 0 && pos >= p->window ? pos - p->window + 1 : 0; }
static int64_t pair_pos(const unit *u, int64_t i) { return u->c->step->pos[u->row0 + i / u->n_heads]; }

/* A page's part of this layer, K or V, of the unit's kv head. */
static const char *page_at(const unit *u, int64_t pos, bool v) {
    const ln_p_kv *kv = &u->p->kv;
    int64_t i = v ? ln_kv_v_index(kv, u->kv_head, 0, 0) : ln_kv_k_index(kv, u->kv_head, 0, 0);
    return (const char *)ln_kv_layer(kv, u->c->in[1].data, u->c->step, u->b, pos) + i * ln_dtype_bytes(kv->dtype);
}

/* Scores of m pairs from pair i0 for the positions of one split that lie in [from, to), into w[m][SPLIT]. */
static void scores(const unit *u, int64_t i0, int64_t m, int64_t s0, int64_t from, int64_t to) {
    const ln_p_kv *kv = &u->p->kv;
    const int64_t P = kv->page_len, size = ln_dtype_bytes(kv->dtype);
    for (int64_t page = from / P * P; page < to; page += P) {
        const char *k = page_at(u, page, false);
        int64_t at = LN_MAX(from, page) - page, end = LN_MIN(to - page, P);
        for (at -= at % VL; at < end;) {
            int64_t nv;
            core_fn *core = pick(kv->dtype == LN_BF16, m, (end - at + VL - 1) / VL, &nv);
            core(u->q + i0 * u->E, u->E, k + at * size, P, u->E, u->w + page + at - s0, SPLIT, false);
            at += nv * VL;
        }
    }
}

/* Scores to weights for positions jf <= j < jt of a split: scaled, less their maximum, exp; zero beside them up to whole lanes. */
static void softmax(float *w, int64_t jf, int64_t jt, float scale, bool bf, float *max, float *sum) {
    int64_t a = jf - jf % 16, b = (jt + 15) / 16 * 16;
    float most[16], lane[16] = {0};
    for (int64_t j = a; j < b; j++) w[j] = w[j] * scale;
    for (int64_t j = a; j < jf; j++) w[j] = -INFINITY;
    for (int64_t j = jt; j < b; j++) w[j] = -INFINITY;
    for (int l = 0; l < 16; l++) most[l] = w[a + l];
    for (int64_t j = a; j < b; j += 16)
        for (int l = 0; l < 16; l++) most[l] = w[j + l] <= most[l] ? most[l] : w[j + l];
    float m = most[0];
    for (int l = 1; l < 16; l++) m = most[l] <= m ? m : most[l];
    for (int64_t j = a; j < b; j++) w[j] = ln_expf(w[j] - m);
    if (bf)
        for (int64_t j = a; j < b; j++) {
            uint32_t x = ln_f32_bits(w[j]);
            uint32_t even = (x + 0x7fffu + ((x >> 16) & 1u)) & 0xffff0000u, nan = (x & 0xffff0000u) | 0x400000u;
            w[j] = ln_bits_f32((x & 0x7fffffffu) > 0x7f800000u ? nan : even);
        }
    for (int64_t j = a; j < b; j += 16)
        for (int l = 0; l < 16; l++) lane[l] = lane[l] + w[j + l];
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] = lane[l] + lane[l + half];
    *max = m;
    *sum = lane[0];
}

/* Goes on with the chains of n pairs of the tile, from the i-th, over positions [from, to) of the split at s0. */
static void outputs(const unit *u, int64_t i, int64_t n, int64_t s0, int64_t from, int64_t to) {
    const ln_p_kv *kv = &u->p->kv;
    const int64_t P = kv->page_len, size = ln_dtype_bytes(kv->dtype), E = u->E, whole = E / VL;
    const bool bf = kv->dtype == LN_BF16;
    for (int64_t j = s0 + from; j < s0 + to;) {
        int64_t n_j = LN_MIN(P - j % P, s0 + to - j);
        const char *v = page_at(u, j, true) + j % P * E * size;
        const float *w = u->w + i * SPLIT + (j - s0);
        float *o = u->o + i * u->ldo;
        for (int64_t e = 0; e < whole;) {
            int64_t nv;
            core_fn *core = pick(bf, n, whole - e, &nv);
            core(w, SPLIT, v + e * VL * size, E, n_j, o + e * VL, u->ldo, true);
            e += nv;
        }
        if (whole * VL < E) { /* a vector would reach beyond the row: copied beside */
            char rest[256 * VL * sizeof(float)] = {0};
            for (int64_t k = 0; k < n_j; k++)
                memcpy(rest + k * VL * size, v + (k * E + whole * VL) * size, (size_t)((E - whole * VL) * size));
            (bf ? cores_1[0][n - 1] : cores_0[0][n - 1])(w, SPLIT, rest, VL, n_j, o + whole * VL, u->ldo, true);
        }
        j += n_j;
    }
}

/* Merges a split's maximum, sum and output into the pair's, as ops.h writes it. */
static void merge(unit *u, int64_t i, bool first, float m, float l, const float *o) {
    float *O = u->O + i * u->ldo;
    if (first) {
        u->M[i] = m;
        u->L[i] = l;
        memcpy(O, o, (size_t)u->E * sizeof *O);
        return;
    }
    float M = m <= u->M[i] ? u->M[i] : m, a = ln_expf(u->M[i] - M), f = ln_expf(m - M);
    u->L[i] = u->L[i] * a + l * f;
    for (int64_t e = 0; e < u->E; e++) O[e] = fmaf(o[e], f, O[e] * a);
    u->M[i] = M;
}

/* m pairs from pair i0 on the split at s0. The pairs that see position j are neighbours, because both ends of what a row sees
 * ascend with the row: the outputs go from one change of that set to the next. */
static void tile(unit *u, int64_t i0, int64_t m, int64_t s0) {
    int64_t jf[CORE_M], jt[CORE_M]; /* what each pair sees of this split */
    float max[CORE_M], sum[CORE_M];
    for (int64_t i = 0; i < m; i++) {
        int64_t pos = pair_pos(u, i0 + i);
        jf[i] = LN_MAX((int64_t)0, first_seen(u->p, pos) - s0);
        jt[i] = LN_MIN((int64_t)SPLIT, pos + 1 - s0);
    }
    if (jt[m - 1] <= jf[0]) return;
    scores(u, i0, m, s0, s0 + jf[0], s0 + LN_MIN((int64_t)SPLIT, jt[m - 1]));
    for (int64_t i = 0; i < m; i++)
        if (jf[i] < jt[i]) softmax(u->w + i * SPLIT, jf[i], jt[i], u->p->scale, u->p->kv.dtype == LN_BF16, &max[i], &sum[i]);
    memset(u->o, 0, (size_t)(m * u->ldo) * sizeof *u->o);
    for (int64_t j = jf[0], lo = 0, hi = 0; j < jt[m - 1];) { /* pairs lo .. hi - 1 see j */
        while (lo < m && jt[lo] <= j) lo++;
        while (hi < m && jf[hi] <= j) hi++;
        int64_t next = lo < hi ? jt[lo] : jt[m - 1];
        if (hi < m) next = LN_MIN(next, jf[hi]);
        if (lo < hi) outputs(u, lo, hi - lo, s0, j, next);
        j = next;
    }
    for (int64_t i = 0; i < m; i++)
        if (jf[i] < jt[i]) merge(u, i0 + i, s0 <= first_seen(u->p, pair_pos(u, i0 + i)), max[i], sum[i], u->o + i * u->ldo);
}

static void unit_run(unit *u) {
    const ln_arg *q = &u->c->in[0], *y = &u->c->out[0];
    const int64_t pairs = u->n_rows * u->n_heads, E = u->E;
    for (int64_t i = 0; i < pairs; i++)
        memcpy(u->q + i * E, (const float *)q->data + (u->row0 + i / u->n_heads) * q->pitch + (u->head0 + i % u->n_heads) * E, (size_t)E * sizeof(float));
    for (int64_t s0 = first_seen(u->p, pair_pos(u, 0)) / SPLIT * SPLIT; s0 <= pair_pos(u, pairs - 1); s0 += SPLIT)
        for (int64_t i = 0; i < pairs; i += CORE_M) tile(u, i, LN_MIN((int64_t)CORE_M, pairs - i), s0);
    for (int64_t i = 0; i < pairs; i++) {
        float *to = (float *)y->data + (u->row0 + i / u->n_heads) * y->pitch + (u->head0 + i % u->n_heads) * E, *O = u->O + i * u->ldo, L = u->L[i];
        for (int64_t e = 0; e < E; e++) to[e] = O[e] / L;
    }
}

/* Rows of a unit when a row brings n heads. */
static int64_t unit_rows(int64_t n_heads) { return LN_MAX((int64_t)1, (int64_t)PAIRS / n_heads); }
/* The work of rows row0 .. row0 + n - 1, roughly: positions seen, and what each row costs besides. */
static int64_t rows_cost(const ln_p_attn *p, const ln_step *s, int64_t row0, int64_t n) {
    int64_t last = s->pos[row0 + n - 1];
    return n * (last - first_seen(p, s->pos[row0]) + 1 + 64);
}

static size_t attn_scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    (void)values, (void)b;
    size_t E = (size_t)n->p.attn.kv.head_dim, ldo = (E + VL - 1) / VL * VL;
    return sizeof(float) * (PAIRS * E + 16 + (PAIRS + CORE_M) * ldo + CORE_M * SPLIT);
}

static void attn_run(const ln_call *c) {
    const ln_p_attn *p = &c->node->p.attn;
    const ln_step *s = c->step;
    const int64_t E = p->kv.head_dim, group = p->n_heads / p->kv.n_kv_heads, ldo = (E + VL - 1) / VL * VL;
    unit u = {.c = c, .p = p, .E = E, .ldo = ldo};
    u.O = c->scratch;
    u.o = u.O + PAIRS * ldo;
    u.w = u.o + CORE_M * ldo;
    u.q = u.w + CORE_M * SPLIT;
    /* heads of a group are dealt out where rows and kv heads alone would leave threads without work */
    int64_t n_units = 0, parts = (group + PAIRS - 1) / PAIRS, total = 0, before = 0;
    for (int b = 0; b < s->n_seqs; b++) n_units += (s->row0[b + 1] - s->row0[b] + unit_rows(group) - 1) / unit_rows(group) * p->kv.n_kv_heads;
    if (n_units < 1) return;
    if (n_units < 2 * c->n_threads) parts = LN_MIN(group, LN_MAX(parts, (2 * c->n_threads + n_units - 1) / n_units));
    /* twice over the same units: first their work, then this thread's share of it */
    for (int pass = 0; pass < 2; pass++)
        for (u.b = 0; u.b < s->n_seqs; u.b++)
            for (u.kv_head = 0; u.kv_head < p->kv.n_kv_heads; u.kv_head++)
                for (int64_t part = 0; part < parts; part++) {
                    u.n_heads = group * (part + 1) / parts - group * part / parts;
                    u.head0 = u.kv_head * group + group * part / parts;
                    for (u.row0 = s->row0[u.b]; u.row0 < s->row0[u.b + 1]; u.row0 += u.n_rows) {
                        u.n_rows = LN_MIN(unit_rows(u.n_heads), s->row0[u.b + 1] - u.row0);
                        int64_t cost = rows_cost(p, s, u.row0, u.n_rows) * u.n_heads;
                        if (pass == 0) {
                            total += cost;
                            continue;
                        }
                        int64_t owner = (before + cost / 2) * c->n_threads / total;
                        before += cost;
                        if (owner == c->thread) unit_run(&u);
                    }
                }
}

void LN_RUNG(ln_cpu_attn)(ln_kernel table[LN_OP_COUNT]) { table[LN_OP_ATTN_PAGED] = (ln_kernel){attn_run, attn_scratch}; }
