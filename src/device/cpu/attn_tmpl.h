/* Attention over pages, what its two forms share: units of work and how threads deal them, softmax, merging (the order of the arithmetic: ops.h,
 * LN_ATTN_SPLIT). The form that includes this, attn_lanes_tmpl.h or attn_tiles_tmpl.h, brings both products.
 *
 * A pair is one query head of one row. A unit of work is up to PAIRS pairs that share a kv head of a sequence: consecutive rows, some
 * heads of the group. Split by split, tiles of TILE_M pairs go over its pages: scores, softmax weights, then outputs. A split's K
 * and V stay in L2 while the unit's tiles pass over them, so a long prompt reads them once per PAIRS pairs.
 * Pairs never mix, so threads may share units in any way: they are dealt by estimated work, and where there are few units (one
 * row, few kv heads) a group's heads are dealt out too. Only pages with a visible position are touched.
 *
 * The form defines, before it includes this, PAIRS, TILE_M, the type of q (q_t), Q_PITCH(W), the numbers from one pair's q to the next's, and
 * OWN_BYTES, scratch of its own behind the unit's; after it put_q, divide and tile. */
#include "../../base/pool.h"
#include "../../ops/ops.h"
#include "cpu.h"
#include "lanes.h"

/* Rows of scratch lie an odd number of cache lines apart: else those of a tile would meet in a few sets. */
enum { SPLIT = LN_ATTN_SPLIT, W_PITCH = SPLIT + 16 };
static int64_t out_pitch(int64_t W) { return (W / 16 | 1) * 16; }

/* What one thread works on. */
typedef struct attn_unit {
    const ln_call *c;
    const ln_p_attn *p;
    int b, kv_head;          /* sequence, kv head */
    int64_t row0, n_rows;    /* rows of the step */
    int64_t head0, n_heads;  /* query heads of each row */
    int64_t E, W, ldo;       /* head width, as stored; distance between outputs in scratch */
    q_t *q;                  /* scratch: [PAIRS] of Q_PITCH */
    float *O, *o, *w;        /* [PAIRS] and [TILE_M] of ldo; scores, then softmax weights: [TILE_M] of W_PITCH */
    void *own;
    int64_t shaped;          /* tiles: for how many pairs registers are set, 0: none */
    float M[PAIRS], L[PAIRS];
} attn_unit;

/* The pair's query, of E numbers from number `at` of the value on, into scratch, as the products read it. */
static void put_q(q_t *to, const ln_arg *q, int64_t at, int64_t E, int64_t W);
/* A pair's output where it lies: the sum over its splits becomes that by its sum of weights. */
static void divide(float *O, float L, int64_t E);
/* m pairs from pair i0 on the split at s0. */
static void tile(attn_unit *u, int64_t i0, int64_t m, int64_t s0);

static int64_t first_seen(const ln_p_attn *p, int64_t pos) { return p->window > 0 && pos >= p->window ? pos - p->window + 1 : 0; }
static int64_t pair_pos(const attn_unit *u, int64_t i) { return u->c->step->pos[u->row0 + i / u->n_heads]; }
/* What pair i sees of the split at s0: positions s0 + *from .. s0 + *to - 1. Both ascend with the pair. */
static void pair_sees(const attn_unit *u, int64_t i, int64_t s0, int64_t *from, int64_t *to) {
    const int64_t pos = pair_pos(u, i);
    *from = LN_MAX((int64_t)0, first_seen(u->p, pos) - s0);
    *to = LN_MIN((int64_t)SPLIT, pos + 1 - s0);
}

/* K or V of the unit's kv head from position `pos` on, which is a multiple of LN_KV_STEP: a piece of that many. */
static const uint8_t *piece_at(const attn_unit *u, int64_t pos, bool v) {
    const ln_p_kv *kv = &u->p->kv;
    const int64_t at = pos % kv->page_len, i = v ? ln_kv_v_index(kv, u->kv_head, 0, at) : ln_kv_k_index(kv, u->kv_head, 0, at);
    return (const uint8_t *)ln_kv_layer(kv, u->c->in[1].data, u->c->step, u->b, pos) + i * ln_dtype_bytes(kv->dtype);
}

/* The largest of n numbers, in the order of integers that is theirs too: a loop that becomes vectors, whose order does not matter. */
static inline float largest(const float *x, int64_t n) {
    int32_t most = INT32_MIN;
    for (int64_t i = 0; i < n; i++) {
        int32_t u = (int32_t)ln_f32_bits(x[i]), key = u ^ (u >> 31 & INT32_MAX);
        most = LN_MAX(most, key);
    }
    return ln_bits_f32((uint32_t)(most ^ (most >> 31 & INT32_MAX)));
}
/* exp(x - m), rounded where pages are bf16. */
static inline void exponentials(float *x, int64_t n, float m, const bool bf) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = ln_f32_bits(ln_exp_downf(x[i] - m)), even = u + 0x7fffu + ((u >> 16) & 1u), nan = u | 0x400000u;
        x[i] = ln_bits_f32(!bf ? u : (u > 0x7f800000u ? nan : even) & 0xffff0000u); /* it is not negative */
    }
}
/* 16 lanes, added in halves. */
static inline float lanes_sum(const float *x, int64_t n) {
    float lane[16] = {0};
    for (int64_t i = 0; i < n; i += 16)
        for (int l = 0; l < 16; l++) lane[l] = lane[l] + x[i + l];
    return ln_lanes_sum(lane);
}
/* Scores to weights for positions jf <= j < jt of a split: scaled, less their maximum, exp; zero beside them up to whole lanes. */
static void softmax(const ln_p_attn *p, float *w, int64_t jf, int64_t jt, float *max, float *sum) {
    const int64_t a = jf - jf % 16, n = (jt + 15) / 16 * 16 - a;
    w += a;
    for (int64_t j = 0; j < n; j++) w[j] = w[j] * p->scale;
    for (int64_t j = 0; j < jf - a; j++) w[j] = -INFINITY;
    for (int64_t j = jt - a; j < n; j++) w[j] = -INFINITY;
    *max = largest(w, n);
    if (p->kv.dtype == LN_BF16) exponentials(w, n, *max, true);
    else exponentials(w, n, *max, false);
    *sum = lanes_sum(w, n);
}

/* Merges a split's maximum, sum and output into the pair's, as ops.h writes it. */
static void merge(attn_unit *u, int64_t i, bool first, float m, float l, const float *o) {
    float *O = u->O + i * u->ldo;
    if (first) {
        u->M[i] = m;
        u->L[i] = l;
        if (o != O) memcpy(O, o, (size_t)u->E * sizeof *O);
        return;
    }
    float M = m <= u->M[i] ? u->M[i] : m, a = ln_expf(u->M[i] - M), f = ln_expf(m - M);
    u->L[i] = u->L[i] * a + l * f;
    for (int64_t e = 0; e < u->E; e++) O[e] = fmaf(o[e], f, O[e] * a);
    u->M[i] = M;
}

/* Numbers of the output from number `at` of the value on. */
static void put_y(const ln_arg *y, int64_t at, const float *O, int64_t E) {
    float *to = (float *)y->data + at;
    uint16_t *narrow = (uint16_t *)y->data + at;
    if (y->dtype == LN_BF16)
        for (int64_t e = 0; e < E; e++) narrow[e] = ln_f32_bf16(O[e]);
    else if (y->bf16)
        for (int64_t e = 0; e < E; e++) to[e] = ln_bf16_f32(ln_f32_bf16(O[e]));
    else memcpy(to, O, (size_t)E * sizeof *to);
}

static void unit_run(attn_unit *u) {
    const ln_arg *q = &u->c->in[0], *y = &u->c->out[0];
    const int64_t pairs = u->n_rows * u->n_heads, E = u->E;
    for (int64_t i = 0; i < pairs; i++)
        put_q(u->q + i * Q_PITCH(u->W), q, (u->row0 + i / u->n_heads) * q->pitch + (u->head0 + i % u->n_heads) * E, E, u->W);
    for (int64_t s0 = first_seen(u->p, pair_pos(u, 0)) / SPLIT * SPLIT; s0 <= pair_pos(u, pairs - 1); s0 += SPLIT)
        for (int64_t i = 0; i < pairs; i += TILE_M) tile(u, i, LN_MIN((int64_t)TILE_M, pairs - i), s0);
    for (int64_t i = 0; i < pairs; i++) {
        divide(u->O + i * u->ldo, u->L[i], E);
        put_y(y, (u->row0 + i / u->n_heads) * y->pitch + (u->head0 + i % u->n_heads) * E, u->O + i * u->ldo, E);
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
    const int64_t W = ln_kv_width(n->p.attn.kv.head_dim);
    return (size_t)((PAIRS + TILE_M) * out_pitch(W) + TILE_M * W_PITCH) * sizeof(float) + (size_t)(PAIRS * Q_PITCH(W)) * sizeof(q_t) + OWN_BYTES;
}

static void attn_run(const ln_call *c) {
    const ln_p_attn *p = &c->node->p.attn;
    const ln_step *s = c->step;
    const int64_t E = p->kv.head_dim, W = ln_kv_width(E), group = p->n_heads / p->kv.n_kv_heads, ldo = out_pitch(W);
    attn_unit u = {.c = c, .p = p, .E = E, .W = W, .ldo = ldo};
    u.O = c->scratch;
    u.o = u.O + PAIRS * ldo;
    u.w = u.o + TILE_M * ldo;
    u.q = (q_t *)(void *)(u.w + TILE_M * W_PITCH);
    u.own = u.q + PAIRS * Q_PITCH(W);
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

