/* Attention over pages of keys and values: what both products share, by vectors (attn_vector.inc.h) and by
 * tiles (attn_amx.inc.h): units of work and how threads partition them, softmax, merging of splits (order:
 * ops.h, LN_ATTN_SPLIT). The file that includes this brings both products.
 *
 *     pages (kv_layout.h), of a kv head:
 *         K: | 16 positions of lanes, element after element | ..     scores = q k
 *         V: | 16 elements of lanes, position after position | ..    outputs = w v
 *
 * A pair is one query head of one row. A unit of work is up to PAIRS pairs that share a kv head of a
 * sequence: consecutive rows, some heads of the group. Loop nest, in the style of flash attention:
 *
 *     for unit                        partitioned by estimated work
 *       for split of SPLIT positions  at absolute multiples, so that no bit depends on the threads;
 *                                     K and V of a split stay in L2 while the unit's tiles pass
 *         for tile of TILE_M pairs    scores, softmax weights, outputs; merge into O, M, L
 *     y = O / L
 *
 *     scratch:  O[pairs][ldo] | o[TILE_M][ldo] | w[TILE_M][W_PITCH] | q[pairs][Q_PITCH] | decoded
 *               rows an odd number of cache lines apart, else those of a tile would meet in a few sets
 *
 * Pairs never mix, so threads may partition units in any way; where there are few units (one row, few kv
 * heads) a group's heads are dealt out too. Only pages with a visible position are read. Pages of 8 bits are
 * decoded split by split (attn_q8.inc.h).
 *
 * The including file defines before this PAIRS, TILE_M, the type of q (q_t) and Q_PITCH(W), the elements
 * from one pair's q to the next's; after it load_q, output_divisor, divide_output, store_bf16 and attn_tile.
 */
#include "../../../base/thread_pool.h"
#include "../../../ops/ops.h"
#include "../cpu.h"

/* Elements of a split, and of scratch from one pair's scores to the next's. */
enum { SPLIT = LN_ATTN_SPLIT, W_PITCH = SPLIT + 16 };
/* Pairs of a unit over pages of 8 bits. */
enum { PAIRS_Q8 = 4 * PAIRS };
static int64_t unit_pairs(const ln_p_attn *p) { return p->kv.q8 ? PAIRS_Q8 : PAIRS; }
enum {
    VECTORS_PER_LINE16 = 16 / VL, /* vectors of 16 elements */
    EXP_VECTORS = VL == 8 ? 2 : 4 /* whose exponentials are computed together: AVX2 has 16 registers */
};
/* From one pair's outputs, or its query as vectors read it, to the next's. */
static int64_t out_pitch(int64_t W, int64_t Wv) { return (LN_MAX(W, Wv) / 16 | 1) * 16; }

/* What one thread works on. */
typedef struct attn_unit {
    const ln_call *c;
    const ln_p_attn *p;
    int b, kv_head;         /* sequence, kv head */
    int64_t row0, n_rows;   /* rows of the step */
    int64_t head0, n_heads; /* query heads of each row */
    int64_t E, W, Ev, Wv;   /* width of a key, as stored; of a value, as stored */
    int64_t ldo;            /* distance between outputs in scratch */
    const ln_arg *sinks;    /* of each query head; NULL: none */
    q_t *q;                 /* scratch: [pairs] of Q_PITCH */
    float *O, *o, *w;       /* O: [pairs], o: [TILE_M], of ldo; w: scores, then softmax weights (LN_BF16_DOT:
                               pairs), [TILE_M] of W_PITCH */
    uint8_t *decoded;       /* K and V of the split, of pages of 8 bits; else not used */
    int64_t configured;     /* tiles: for how many pairs the registers are configured; 0: none */
    float M[PAIRS_Q8], L[PAIRS_Q8];
    int64_t first[PAIRS_Q8],
        last[PAIRS_Q8]; /* of each pair: the first and the last position that its row sees */
} attn_unit;

/* Loads the pair's query, E elements from element `at` of the value on, into scratch, as the products read
 * it. */
static void load_q(q_t *to, const ln_arg *q, int64_t at, int64_t E, int64_t W);
/* A pair's output: the sum over its splits by its sum of weights L, as divided(O, divisor(L)). */
static inline float output_divisor(float L);
static inline float divide_output(float O, float by);
/* Divides E elements and stores them as bf16. */
static void store_bf16(uint16_t *to, const float *O, float by, int64_t E);
/* m pairs from pair i0 on the split at s0. */
static void attn_tile(attn_unit *u, int64_t i0, int64_t m, int64_t s0);

/* What pair i sees of the split at s0: positions s0 + *from .. s0 + *to - 1. Both ascend with the pair. */
static inline void pair_visible(const attn_unit *u, int64_t i, int64_t s0, int64_t *from, int64_t *to) {
    *from = LN_MAX((int64_t)0, u->first[i] - s0);
    *to = LN_MIN((int64_t)SPLIT, u->last[i] + 1 - s0);
}

#include "attn_q8.inc.h"

/* K or V of the unit's kv head from position `pos` on, which is a multiple of LN_KV_STEP: a piece of that
 * many. Of pages of 8 bits in the split that was decoded last. */
static const uint8_t *kv_piece(const attn_unit *u, int64_t pos, bool v) {
    const ln_p_kv *kv = &u->p->kv;
    if (kv->q8) return decoded_piece(u, pos % SPLIT, v);
    const int64_t at = pos % kv->page_len,
                  i = v ? ln_kv_v_index(kv, u->kv_head, 0, at) : ln_kv_k_index(kv, u->kv_head, 0, at);
    return (const uint8_t *)ln_kv_layer(kv, u->c->in[1].data, u->c->step, u->b, pos) +
           i * ln_dtype_bytes(kv->dtype);
}

/* exp(s - max) of n vectors of scaled scores, rounded to bf16 where pages are. exp is ln_exp_downf, lane by
 * lane: the same bits for x <= 0, NaN for NaN (what it computes below the least x is dropped). Step by step
 * for all n: a vector's chain is 60 cycles long, and the reorder window holds a few. */
INLINE void vf_softmax_exp(const float *s, vf max, const bool bf, vf *e, const int n) {
#define EACH _Pragma("GCC unroll 4") for (int i = 0; i < n; i++)
    vf x[EXP_VECTORS], t[EXP_VECTORS], whole[EXP_VECTORS], r[EXP_VECTORS];
    EACH x[i] = vf_sub(vf_load(s + i * VL), max);
    EACH t[i] = vf_fma(x[i], vf_set1(ln_exp_log2e), vf_set1(ln_exp_round));
    EACH whole[i] = vf_sub(t[i], vf_set1(ln_exp_round));
    EACH r[i] = vf_fma(whole[i], vf_set1(ln_exp_hi), x[i]);
    EACH r[i] = vf_fma(whole[i], vf_set1(ln_exp_lo), r[i]);
    EACH e[i] = vf_fma(vf_set1(ln_exp_terms[0]), r[i], vf_set1(ln_exp_terms[1]));
    EACH e[i] = vf_fma(e[i], r[i], vf_set1(ln_exp_terms[2]));
    EACH e[i] = vf_fma(e[i], r[i], vf_set1(ln_exp_terms[3]));
    EACH e[i] = vf_fma(e[i], r[i], vf_set1(ln_exp_terms[4]));
    EACH e[i] = vf_fma(e[i], r[i], vf_set1(ln_exp_terms[5]));
    EACH e[i] = vf_fma(e[i], r[i], vf_set1(1));
    EACH e[i] = vf_apply_exp2(e[i], t[i], x[i], ln_exp_least);
    if (!bf) return;
    /* added to 2^16 times its own power of two a number keeps the 8 bits of a bf16 number: the sum is rounded
     * to even, its difference is exact */
    EACH x[i] = vf_cast(vi_and32(vi_cast(e[i]), 0x7f800000u));
    EACH e[i] = vf_fma(x[i], vf_set1(0x1p16f), e[i]);
    EACH e[i] = vf_fnma(x[i], vf_set1(0x1p16f), e[i]);
#undef EACH
}
/* Scales a pair's scores of a split, of which it sees jf <= j < jt; others in whole lines of 16 from position
 * `a` on become -inf. Returns the largest. A NaN is left out: its weight is NaN whatever the largest is, and
 * so is the sum. */
static inline float scale_scores(float *s, int64_t a, int64_t jf, int64_t jt, float scale) {
    const vf by = vf_set1(scale);
    vf most = vf_set1(-INFINITY);
    for (int64_t j = a; j < jt; j += 16)
        for (int l = 0; l < 16; l += VL) {
            vf x = vf_mul(vf_load(s + j + l), by);
            if (j < jf || j + 16 > jt) x = vf_mask_range(x, (int)(jf - j) - l, (int)(jt - j) - l);
            vf_store(s + j + l, x);
            most = vf_max(x, most);
        }
    return vf_reduce_max(most);
}
/* The same with a softcap: each visible score s becomes c tanh(s / c). */
static float cap_scores(float *s, int64_t a, int64_t jf, int64_t jt, float scale, float c) {
#pragma GCC ivdep
    for (int64_t j = jf; j < jt; j++) s[j] = ln_softcapf(s[j] * scale, c);
    return scale_scores(s, a, jf, jt, 1);
}
static inline float finish_scores(const ln_p_attn *p, float *s, int64_t a, int64_t jf, int64_t jt) {
    return p->softcap > 0 ? cap_scores(s, a, jf, jt, p->scale, p->softcap)
                          : scale_scores(s, a, jf, jt, p->scale);
}
/* Merges maxima, sums and outputs of pairs i0 .. i0 + m - 1 on the split at s0 into M, L and O, as ops.h
 * writes it: of those that see some of it. */
static void merge(attn_unit *u, int64_t i0, int64_t m, int64_t s0, const int64_t *jf, const int64_t *jt,
                  const float *max, const float *sum, const float *o) {
    for (int64_t i = 0; i < m; i++, o += u->ldo) {
        const int64_t to = i0 + i;
        float *O = u->O + to * u->ldo;
        if (jf[i] >= jt[i]) continue;
        if (s0 <= u->first[to] && !u->sinks) {
            u->M[to] = max[i];
            u->L[to] = sum[i];
            if (o != O) memcpy(O, o, (size_t)u->Wv * sizeof *O);
            continue;
        }
        const float M = max[i] <= u->M[to] ? u->M[to] : max[i], a = ln_exp_downf(u->M[to] - M),
                    f = ln_exp_downf(max[i] - M);
        const vf by_a = vf_set1(a), by_f = vf_set1(f);
        u->M[to] = M;
        u->L[to] = u->L[to] * a + sum[i] * f;
        for (int64_t e = 0; e < u->Wv; e += VL)
            vf_store(O + e, vf_fma(vf_load(o + e), by_f, vf_mul(vf_load(O + e), by_a)));
    }
}

/* Stores the output of a pair, divided, from element `at` of the value on. */
static void store_output(const ln_arg *y, int64_t at, const float *O, float by, int64_t E) {
    float *to = (float *)y->data + at;
    if (y->dtype == LN_BF16) store_bf16((uint16_t *)y->data + at, O, by, E);
    else if (ln_arg_is_bf16(y))
        for (int64_t e = 0; e < E; e++) to[e] = ln_bf16_f32(ln_f32_bf16(divide_output(O[e], by)));
    else
        for (int64_t e = 0; e < E; e++) to[e] = divide_output(O[e], by);
}

/* Begins the sums of pair i with the sink of its head: a split whose largest score is the sink, and whose
 * value is 0. */
static void begin_with_sink(attn_unit *u, int64_t i, int64_t head) {
    u->M[i] = ln_num_load(u->sinks->data, (ln_dtype)u->sinks->dtype, head);
    u->L[i] = 1;
    memset(u->O + i * u->ldo, 0, (size_t)u->Wv * sizeof *u->O);
}

static void unit_run(attn_unit *u) {
    const ln_arg *q = &u->c->in[0], *y = &u->c->out[0];
    const int64_t E = u->E, Ev = u->Ev, begin = u->head0 * E, out = u->head0 * Ev;
    int64_t n = 0;
    for (int64_t r = u->row0; r < u->row0 + u->n_rows; r++)
        for (int64_t h = 0; h < u->n_heads; h++, n++) {
            u->first[n] = ln_attn_first(u->p, u->c->step->pos[r]);
            u->last[n] = ln_attn_last(u->p, u->c->step, u->b, u->c->step->pos[r]);
            load_q(u->q + n * Q_PITCH(u->W), q, r * q->pitch + begin + h * E, E, u->W);
            if (u->sinks) begin_with_sink(u, n, u->head0 + h);
        }
    for (int64_t s0 = u->first[0] / SPLIT * SPLIT; s0 <= u->last[n - 1]; s0 += SPLIT) {
        if (u->p->kv.q8) decode_split(u, n, s0);
        for (int64_t i = 0; i < n; i += TILE_M) attn_tile(u, i, LN_MIN((int64_t)TILE_M, n - i), s0);
    }
    n = 0;
    for (int64_t r = u->row0; r < u->row0 + u->n_rows; r++)
        for (int64_t h = 0; h < u->n_heads; h++, n++)
            store_output(y, r * y->pitch + out + h * Ev, u->O + n * u->ldo, output_divisor(u->L[n]), Ev);
}

/* Rows of a unit when a row brings n heads. */
static int64_t unit_rows(const ln_p_attn *p, int64_t n_heads) {
    return LN_MAX((int64_t)1, unit_pairs(p) / n_heads);
}
/* The work of rows row0 .. row0 + n - 1, roughly: positions seen, and what each row costs besides. */
static int64_t rows_cost(const ln_p_attn *p, const ln_step *s, int b, int64_t row0, int64_t n) {
    const int64_t last = ln_attn_last(p, s, b, s->pos[row0 + n - 1]);
    return n * (last - ln_attn_first(p, s->pos[row0]) + 1 + 64);
}

static size_t attn_scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    (void)p, (void)b;
    const int64_t W = ln_kv_width(n->p.attn.kv.head_dim), Wv = ln_kv_width(n->p.attn.kv.v_dim),
                  pairs = unit_pairs(&n->p.attn);
    return (size_t)((pairs + TILE_M) * out_pitch(W, Wv) + TILE_M * W_PITCH) * sizeof(float) +
           (size_t)(pairs * Q_PITCH(W)) * sizeof(q_t) + decoded_split_bytes(&n->p.attn.kv);
}

static void attn_run(const ln_call *c) {
    const ln_p_attn *p = &c->node->p.attn;
    const ln_step *s = c->step;
    const int64_t E = p->kv.head_dim, W = ln_kv_width(E), Ev = p->kv.v_dim, Wv = ln_kv_width(Ev),
                  group = p->n_heads / p->kv.n_kv_heads, ldo = out_pitch(W, Wv), pairs = unit_pairs(p);
    attn_unit u = {.c = c, .p = p, .E = E, .W = W, .Ev = Ev, .Wv = Wv, .ldo = ldo};
    u.sinks = c->node->n_in > 2 ? &c->in[2] : NULL;
    u.O = c->scratch;
    u.o = u.O + pairs * ldo;
    u.w = u.o + TILE_M * ldo;
    u.q = (q_t *)(void *)(u.w + TILE_M * W_PITCH);
    u.decoded = (uint8_t *)(u.q + pairs * Q_PITCH(W));
    /* heads of a group are dealt out where rows and kv heads alone would leave threads idle */
    int64_t n_units = 0, parts = (group + pairs - 1) / pairs, total = 0, before = 0;
    const int64_t rows = unit_rows(p, group);
    for (int b = 0; b < s->n_seqs; b++)
        n_units += (s->row0[b + 1] - s->row0[b] + rows - 1) / rows * p->kv.n_kv_heads;
    if (n_units < 1) return;
    if (n_units < 2 * c->n_threads)
        parts = LN_MIN(group, LN_MAX(parts, (2 * c->n_threads + n_units - 1) / n_units));
    /* twice over the same units: first their total work, then this thread's part of it */
    for (int pass = 0; pass < 2; pass++)
        for (u.b = 0; u.b < s->n_seqs; u.b++)
            for (u.kv_head = 0; u.kv_head < p->kv.n_kv_heads; u.kv_head++)
                for (int64_t part = 0; part < parts; part++) {
                    u.n_heads = group * (part + 1) / parts - group * part / parts;
                    u.head0 = u.kv_head * group + group * part / parts;
                    for (u.row0 = s->row0[u.b]; u.row0 < s->row0[u.b + 1]; u.row0 += u.n_rows) {
                        u.n_rows = LN_MIN(unit_rows(p, u.n_heads), s->row0[u.b + 1] - u.row0);
                        int64_t cost = rows_cost(p, s, u.b, u.row0, u.n_rows) * u.n_heads;
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
