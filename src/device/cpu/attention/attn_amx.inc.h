/* Attention over bf16 pages on AMX: one formula for every number of rows, which differs from ops.h's
 * (LN_ATTN_SPLIT) in the products alone.
 *
 *     score[j] = chain over tiles of 32 elements of the head, ascending, from 0:  s = s + P(q, k[j])
 *     o[e]     = chain over tiles of 32 positions of the split, ascending, from 0:  o = o + P(w, v[.][e])
 *                w[j] = 0 where j is not visible
 *     y        = O (1 / L) + 0, so that a zero has one sign
 *     P(a, b)  = the FMA chain over the tile's even places, from 0, plus that over its odd ones;
 *                denormals are zero (gemm_bf16_amx.inc.h)
 *
 * q is rounded to bf16 (it is in fast numerics), softmax weights are already. Pages are zero where nothing
 * was written (kv_layout.h), so a head that is not whole tiles wide has zeros there. A pair's values depend
 * on no other row of a tile. Tiles in which a pair sees nothing add 0 to its chain, so it does not matter
 * which of them its neighbours bring along, as long as what the pages hold is finite.
 *
 *     K, a piece of 32 positions:  | W / 32 tiles: 32 elements of 16 positions | of the other 16 |
 *     V, a piece of 32 positions:  | Wv / 16 tiles: 32 positions of 16 elements |
 *
 *     more than 16 pairs   2 row tiles x 2 blocks of 16 positions (scores) or elements (outputs)
 *     16 pairs or fewer    a decoded row, bound by memory: a piece is read from end to end, and as much
 *                          of the next one is prefetched
 *     up to 4 pairs of a small context
 *                          over before the tile unit is ready: vectors compute P, in the unit's order
 *
 * Tile registers: 0-3 sums, 4-5 pairs, 6-7 pages. Included once, after simd_avx512.h and simd_amx.h, or
 * after the models of both in tests/kernels. */
#include "../../../ops/ops.h"
#include "../tuning.h"

enum {
    TILE_ROWS = 16,                              /* rows of a tile register */
    TILE_BYTES = 1024,                           /* of a whole tile */
    PAIRS = tune_attn_PAIRS_amx,                 /* pairs of a unit */
    TILE_M = 2 * TILE_ROWS,                      /* pairs of two row tiles */
    SMALL_CONTEXT = tune_attn_SMALL_CONTEXT_amx, /* elements of keys that few pairs see, for vectors */
    SMALL_CONTEXT_PAIRS = tune_attn_SMALL_CONTEXT_PAIRS_amx /* pairs then */
};
typedef uint16_t q_t; /* bits of bf16 */
#define Q_PITCH(W) (((W) / 32 | 1) * 32)
#include "attn_paged.inc.h"

enum { WEIGHTS_PITCH = 2 * W_PITCH }; /* softmax weights take the place of their scores, in half of it */

/* What one tile of pairs reads of a split: pieces of 32 positions of K, then of V; then the next split's
 * first, which is only prefetched. */
typedef struct kv_pieces {
    const uint8_t *at[2 * SPLIT / LN_KV_STEP + 1];
    int64_t n; /* pieces of K, as many of V */
} kv_pieces;

static void load_q(uint16_t *to, const ln_arg *q, int64_t at, int64_t E, int64_t W) {
    const float *wide = (const float *)q->data + at;
    const uint16_t *narrow = (const uint16_t *)q->data + at;
    int64_t e = 0;
    if (q->dtype == LN_BF16) {
        for (; e + 32 <= E; e += 32) memcpy(to + e, narrow + e, 64); /* a line at a time: no calls */
        for (; e < E; e++) to[e] = narrow[e];
    } else
        for (; e < E; e++) to[e] = ln_f32_bf16(wide[e]);
    for (; e < W; e++) to[e] = 0;
}

/* y = O (1 / L): a division each would take as long as the products. */
static inline float output_divisor(float L) { return 1 / L; }
static inline float divide_output(float O, float by) { return O * by + 0.0f; }
static void store_bf16(uint16_t *to, const float *O, float by, int64_t E) {
    const vf f = vf_set1(by), zero = vf_zero();
    int64_t e = 0;
    for (; e + 2 * VL <= E; e += 2 * VL)
        vf_store_round_bf16(to + e, vf_add(vf_mul(vf_load(O + e), f), zero),
                            vf_add(vf_mul(vf_load(O + e + VL), f), zero));
    for (; e < E; e++) to[e] = ln_f32_bf16(divide_output(O[e], by));
}

/* Shapes of the tile registers for m pairs. */
static void configure_tiles(attn_unit *u, int64_t m) {
    tile_config c = {.palette = 1};
    if (u->configured == m) return;
    u->configured = m;
    for (int t = 0; t < 8; t++) {
        const bool second = t == 2 || t == 3 || t == 5;
        c.rows[t] = (uint8_t)(t > 5 ? TILE_ROWS : m <= TILE_ROWS ? m : second ? m - TILE_ROWS : TILE_ROWS);
        c.bytes[t] = 64;
    }
    tile_configure(&c);
}

/* Prefetches tile i of the piece that is read next. */
INLINE void prefetch_tile(const kv_pieces *p, int64_t piece, int64_t i) {
    for (int line = 0; line < TILE_BYTES; line += 64) prefetch_l2(p->at[piece + 1] + i * TILE_BYTES + line);
}

/* Scores of up to 16 pairs for the positions of one piece. */
static void scores_small_m(const kv_pieces *p, int64_t piece, const uint16_t *q, int64_t pitch, int64_t n_k,
                           float *s) {
    const uint8_t *k = p->at[piece], *a = (const uint8_t *)q;
    tile_zero(0);
    tile_zero(1);
    for (int64_t i = 0; i < n_k; i++) {
        prefetch_tile(p, piece, i);
        prefetch_tile(p, piece, n_k + i);
        tile_load(6, k + i * TILE_BYTES, 64);
        tile_load(4, a + i * 64, pitch * 2);
        tile_dpbf16(0, 4, 6);
        tile_load(7, k + (n_k + i) * TILE_BYTES, 64);
        tile_dpbf16(1, 4, 7);
    }
    tile_store(0, s, W_PITCH * 4);
    tile_store(1, s + TILE_ROWS, W_PITCH * 4);
}

/* The same of more than 16. */
static void scores_large_m(const uint8_t *k, const uint16_t *q, int64_t pitch, int64_t n_k, float *s) {
    const uint8_t *a = (const uint8_t *)q, *a1 = (const uint8_t *)(q + TILE_ROWS * pitch);
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    for (int64_t i = 0; i < n_k; i++) {
        tile_load(6, k + i * TILE_BYTES, 64);
        tile_load(4, a + i * 64, pitch * 2);
        tile_dpbf16(0, 4, 6);
        tile_load(7, k + (n_k + i) * TILE_BYTES, 64);
        tile_dpbf16(1, 4, 7);
        tile_load(5, a1 + i * 64, pitch * 2);
        tile_dpbf16(2, 5, 6);
        tile_dpbf16(3, 5, 7);
    }
    tile_store(0, s, W_PITCH * 4);
    tile_store(1, s + TILE_ROWS, W_PITCH * 4);
    tile_store(2, s + TILE_ROWS * W_PITCH, W_PITCH * 4);
    tile_store(3, s + TILE_ROWS * W_PITCH + TILE_ROWS, W_PITCH * 4);
}

/* Outputs of up to 16 pairs over one piece: chains go on from o[pairs][ldo]. */
static void outputs_small_m(const kv_pieces *p, int64_t piece, const uint16_t *w, int64_t blocks, float *o,
                            int64_t ldo) {
    const uint8_t *v = p->at[piece];
    tile_load(4, w, WEIGHTS_PITCH * 2);
    for (int64_t b = 0; b < blocks; b += 2) {
        prefetch_tile(p, piece, b);
        prefetch_tile(p, piece, b + 1);
        tile_load(0, o + b * TILE_ROWS, ldo * 4);
        tile_load(6, v + b * TILE_BYTES, 64);
        tile_dpbf16(0, 4, 6);
        tile_load(1, o + (b + 1) * TILE_ROWS, ldo * 4);
        tile_load(7, v + (b + 1) * TILE_BYTES, 64);
        tile_dpbf16(1, 4, 7);
        tile_store(0, o + b * TILE_ROWS, ldo * 4);
        tile_store(1, o + (b + 1) * TILE_ROWS, ldo * 4);
    }
}

/* Outputs of more than 16 pairs in two blocks of 16 places, from b on: whole chains. */
static void outputs_large_m(const kv_pieces *p, const uint16_t *w, int64_t b, float *o, int64_t ldo) {
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    for (int64_t i = 0; i < p->n; i++) {
        const uint8_t *v = p->at[p->n + i] + b * TILE_BYTES;
        tile_load(6, v, 64);
        tile_load(4, w + i * LN_KV_STEP, WEIGHTS_PITCH * 2);
        tile_dpbf16(0, 4, 6);
        tile_load(7, v + TILE_BYTES, 64);
        tile_dpbf16(1, 4, 7);
        tile_load(5, w + TILE_ROWS * WEIGHTS_PITCH + i * LN_KV_STEP, WEIGHTS_PITCH * 2);
        tile_dpbf16(2, 5, 6);
        tile_dpbf16(3, 5, 7);
    }
    o += b * TILE_ROWS;
    tile_store(0, o, ldo * 4);
    tile_store(1, o + TILE_ROWS, ldo * 4);
    tile_store(2, o + TILE_ROWS * ldo, ldo * 4);
    tile_store(3, o + TILE_ROWS * ldo + TILE_ROWS, ldo * 4);
}

/* ---- few pairs of a small context, by vectors ---- */

/* n tiles, `pitch` elements from one pair's row to the next, as the vectors read them: of each row of 32 bf16
 * the even ones in f32, then the odd ones. */
static void deinterleave_pairs(const uint16_t *a, int64_t pitch, int64_t m, int64_t n, float *to,
                               int64_t ld_to) {
    for (int64_t i = 0; i < m; i++, a += pitch, to += ld_to)
        for (int64_t k = 0; k < n; k++) {
            const vi line = vi_load((const uint8_t *)(a + k * 2 * TILE_ROWS));
            vf_store(to + k * 2 * TILE_ROWS, vf_lo_bf16(line));
            vf_store(to + k * 2 * TILE_ROWS + TILE_ROWS, vf_hi_bf16(line));
        }
}
/* What TDPBF16PS adds of M rows a, deinterleaved, and two tiles of a page, `apart` bytes from each other:
 * sum[i][j] += P(a[i], page[j]). prefetches: as much of the two pages that are read next. */
INLINE void vector_tiles(const int M, const bool prefetches, const float *a, int64_t lda, const uint8_t *page,
                         int64_t apart, const uint8_t *next, const uint8_t *next1,
                         vf sum[SMALL_CONTEXT_PAIRS][2]) {
    vf even[SMALL_CONTEXT_PAIRS][2], odd[SMALL_CONTEXT_PAIRS][2];
    const float *at[SMALL_CONTEXT_PAIRS];
    const uint8_t *p1 = page + apart, *next_1 = next + apart, *next1_1 = next1 + apart;
    __asm__(""
            : "+r"(page), "+r"(p1), "+r"(next), "+r"(next_1), "+r"(next1),
              "+r"(next1_1)); /* else gcc keeps an offset for each line */
    for (int i = 0; i < M; i++) {
        at[i] = a + i * lda;
        __asm__("" : "+r"(at[i]));
        even[i][0] = even[i][1] = odd[i][0] = odd[i][1] = vf_zero();
    }
#pragma GCC unroll 16
    for (int k = 0; k < TILE_ROWS; k++) {
        if (prefetches)
            prefetch_l2(next + k * 64), prefetch_l2(next_1 + k * 64), prefetch_l2(next1 + k * 64),
                prefetch_l2(next1_1 + k * 64);
        const vi line = vi_load(page + k * 64), line1 = vi_load(p1 + k * 64);
        const vf low = vf_lo_bf16(line), high = vf_hi_bf16(line), low1 = vf_lo_bf16(line1),
                 high1 = vf_hi_bf16(line1);
        for (int i = 0; i < M; i++) {
            const vf a_even = vf_set1(at[i][k]), a_odd = vf_set1(at[i][TILE_ROWS + k]);
            even[i][0] = vf_fma(a_even, low, even[i][0]);
            even[i][1] = vf_fma(a_even, low1, even[i][1]);
            odd[i][0] = vf_fma(a_odd, high, odd[i][0]);
            odd[i][1] = vf_fma(a_odd, high1, odd[i][1]);
        }
    }
    for (int i = 0; i < M; i++)
        for (int j = 0; j < 2; j++) sum[i][j] = vf_add(sum[i][j], vf_add(even[i][j], odd[i][j]));
}
/* Scores of M pairs over all pieces, of q, deinterleaved, to s, while the next piece's keys and this one's
 * values are prefetched; or outputs of weights w, deinterleaved, to o. */
INLINE void scores_vector(const int M, const kv_pieces *p, const float *q, int64_t ldq, int64_t n_k, float *s,
                          int64_t lds) {
    for (int64_t piece = 0; piece < p->n; piece++, s += 2 * TILE_ROWS) {
        vf sum[SMALL_CONTEXT_PAIRS][2];
        for (int i = 0; i < M; i++) sum[i][0] = sum[i][1] = vf_zero();
        for (int64_t k = 0; k < n_k; k++)
            vector_tiles(M, true, q + k * 2 * TILE_ROWS, ldq, p->at[piece] + k * TILE_BYTES, n_k * TILE_BYTES,
                         p->at[piece + 1] + k * TILE_BYTES, p->at[p->n + piece] + k * TILE_BYTES, sum);
        for (int i = 0; i < M; i++)
            vf_store(s + i * lds, sum[i][0]), vf_store(s + i * lds + TILE_ROWS, sum[i][1]);
    }
}
INLINE void outputs_vector(const int M, const kv_pieces *p, const float *w, int64_t ldw, int64_t blocks,
                           float *o, int64_t ldo) {
    for (int64_t b = 0; b < blocks; b += 2) {
        vf sum[SMALL_CONTEXT_PAIRS][2];
        for (int i = 0; i < M; i++) sum[i][0] = sum[i][1] = vf_zero();
        for (int64_t k = 0; k < p->n; k++) {
            const uint8_t *v = p->at[p->n + k] + b * TILE_BYTES;
            vector_tiles(M, false, w + k * 2 * TILE_ROWS, ldw, v, TILE_BYTES, v, v, sum);
        }
        for (int i = 0; i < M; i++)
            vf_store(o + i * ldo + b * TILE_ROWS, sum[i][0]),
                vf_store(o + i * ldo + b * TILE_ROWS + TILE_ROWS, sum[i][1]);
    }
}
typedef void vector_fn(const kv_pieces *p, const float *a, int64_t lda, int64_t n, float *to, int64_t ld_to);
#define VECTOR_FNS(M)                                                                                   \
    static void scores_near_##M(const kv_pieces *p, const float *q, int64_t ldq, int64_t n_k, float *s, \
                                int64_t lds) {                                                          \
        scores_vector(M, p, q, ldq, n_k, s, lds);                                                       \
    }                                                                                                   \
    static void outputs_near_##M(const kv_pieces *p, const float *w, int64_t ldw, int64_t n, float *o,  \
                                 int64_t ldo) {                                                         \
        outputs_vector(M, p, w, ldw, n, o, ldo);                                                        \
    }
VECTOR_FNS(1)
VECTOR_FNS(2)
VECTOR_FNS(3)
VECTOR_FNS(4)
/* Of 1 to 4 pairs. */
static vector_fn *const scores_vector_fns[SMALL_CONTEXT_PAIRS] = {scores_near_1, scores_near_2, scores_near_3,
                                                                  scores_near_4};
static vector_fn *const outputs_vector_fns[SMALL_CONTEXT_PAIRS] = {outputs_near_1, outputs_near_2,
                                                                   outputs_near_3, outputs_near_4};
static bool is_small_context(const attn_unit *u, int64_t i0, int64_t m) {
    return m <= SMALL_CONTEXT_PAIRS && (u->last[i0 + m - 1] + 1 - u->first[i0]) * u->W <= SMALL_CONTEXT;
}

/* The pieces of positions [from, to) of the split at s0, whole ones. */
static void kv_pieces_of(const attn_unit *u, int64_t s0, int64_t from, int64_t to, int64_t last,
                         kv_pieces *p) {
    const int64_t page = u->p->kv.page_len, k_bytes = LN_KV_STEP * u->W * (int64_t)sizeof(uint16_t),
                  v_bytes = LN_KV_STEP * u->Wv * (int64_t)sizeof(uint16_t);
    p->n = (to - from) / LN_KV_STEP;
    for (int64_t i = 0;
         i < p->n;) { /* those of a page follow each other: looking up each would take divisions */
        const int64_t pos = s0 + from + i * LN_KV_STEP;
        const uint8_t *k = kv_piece(u, pos, false), *v = kv_piece(u, pos, true);
        for (int64_t at = pos % page; at < page && i < p->n;
             at += LN_KV_STEP, i++, k += k_bytes, v += v_bytes)
            p->at[i] = k, p->at[p->n + i] = v;
    }
    p->at[2 * p->n] = s0 + SPLIT <= last ? kv_piece(u, s0 + SPLIT, false) : p->at[2 * p->n - 1];
}

INLINE vf exp_weights(const float *s, uint16_t *w, vf max, vf sum, const int n) {
    vf e[EXP_VECTORS];
    vf_softmax_exp(s, max, true, e, n);
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) sum = vf_add(sum, e[i]);
#pragma GCC unroll 2
    for (int i = 0; i < n; i += 2) vf_store_bf16(w + i * TILE_ROWS, e[i], i + 1 < n ? e[i + 1] : vf_zero());
    return sum;
}
/* Softmax weights of a pair, in bf16, for positions [from, to) of the split, whole pieces: from the scaled
 * scores of lines [a, b), 0 elsewhere. w may begin where s does: what is written there was read. Returns
 * their sum. */
static inline float softmax_weights(const float *s, uint16_t *w, int64_t a, int64_t b, int64_t from,
                                    int64_t to, float max) {
    const vf m = vf_set1(max);
    vf sum = vf_zero();
    int64_t j = from;
    for (; j < a; j += LN_KV_STEP) vf_store_bf16(w + j, vf_zero(), vf_zero());
    for (; j + EXP_VECTORS * TILE_ROWS <= b; j += EXP_VECTORS * TILE_ROWS)
        sum = exp_weights(s + j, w + j, m, sum, EXP_VECTORS);
    if (j + 2 * TILE_ROWS <= b) sum = exp_weights(s + j, w + j, m, sum, 2), j += 2 * TILE_ROWS;
    if (j < b) sum = exp_weights(s + j, w + j, m, sum, 1), j += 2 * TILE_ROWS;
    for (; j < to; j += LN_KV_STEP) vf_store_bf16(w + j, vf_zero(), vf_zero());
    return vf_reduce_add16(&sum);
}

/* Prefetch for writing where the output of pair i will be stored, and the query that takes its place in the
 * next unit of these heads: both are far away. A pair at a time, while vectors work on what is near: all
 * outputs stored at once would keep the next unit's scores waiting. */
static void prefetch_output(const attn_unit *u, int64_t i) {
    const ln_arg *y = &u->c->out[0];
    const int64_t size = ln_dtype_bytes(y->dtype);
    const char *to = (const char *)y->data +
                     ((u->row0 + i / u->n_heads) * y->pitch + (u->head0 + i % u->n_heads) * u->Ev) * size;
    for (int64_t e = 0; e < u->Ev * size; e += 64) prefetch_w(to + e);
}
static void prefetch_query(const attn_unit *u, int64_t i) {
    const ln_arg *q = &u->c->in[0];
    const int64_t size = ln_dtype_bytes(q->dtype),
                  r = LN_MIN(u->row0 + u->n_rows + i / u->n_heads, q->rows - 1);
    const char *from = (const char *)q->data + (r * q->pitch + (u->head0 + i % u->n_heads) * u->E) * size;
    for (int64_t e = 0; e < u->E * size; e += 64) prefetch_l2(from + e);
}

static void attn_tile(attn_unit *u, int64_t i0, int64_t m, int64_t s0) {
    const int64_t Wv = u->Wv, n_k = u->W / 32, pitch = Q_PITCH(u->W);
    const uint16_t *q = u->q + i0 * pitch;
    uint16_t *w = (uint16_t *)(void *)u->w;
    int64_t jf[TILE_M], jt[TILE_M], a[TILE_M],
        b[TILE_M]; /* what each pair sees of this split, and in lines */
    float max[TILE_M], sum[TILE_M];
    kv_pieces p;
    for (int64_t i = 0; i < m; i++) pair_visible(u, i0 + i, s0, &jf[i], &jt[i]);
    if (jt[m - 1] <= jf[0]) return;
    const int64_t from = jf[0] / LN_KV_STEP * LN_KV_STEP,
                  to = (jt[m - 1] + LN_KV_STEP - 1) / LN_KV_STEP * LN_KV_STEP;
    kv_pieces_of(u, s0, from, to, u->last[i0 + m - 1], &p);
    const bool small_context = is_small_context(u, i0, m);
    float *vector_q = u->o + TILE_ROWS * u->ldo,
          *vector_w = u->w + TILE_ROWS * W_PITCH; /* what few pairs leave free of scratch */
    if (small_context) {
        deinterleave_pairs(q, pitch, m, n_k, vector_q, u->ldo);
        scores_vector_fns[m - 1](&p, vector_q, u->ldo, n_k, u->w + from, W_PITCH);
    } else configure_tiles(u, m);
    for (int64_t i = 0; i < p.n && !small_context; i++) {
        float *s = u->w + from + i * LN_KV_STEP;
        if (m <= TILE_ROWS) scores_small_m(&p, i, q, pitch, n_k, s);
        else scores_large_m(p.at[i], q, pitch, n_k, s);
    }
    const bool last = m > TILE_ROWS && u->last[i0 + m - 1] < s0 + SPLIT;
    for (int64_t i = 0; i < m; i++) { /* a loop of its own, so that no row waits for its largest score */
        const bool visible = jf[i] < jt[i];
        a[i] = visible ? jf[i] / LN_KV_STEP * LN_KV_STEP : to;
        b[i] = visible ? (jt[i] + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS : to;
        max[i] = finish_scores(u->p, u->w + i * W_PITCH, a[i], jf[i], jt[i]);
        if (last) prefetch_query(u, i0 + i);
    }
    for (int64_t i = 0; i < m; i++) {
        sum[i] = softmax_weights(u->w + i * W_PITCH, w + i * WEIGHTS_PITCH, a[i], b[i], from, to, max[i]);
        if (last) prefetch_output(u, i0 + i);
    }
    const bool first = s0 <= u->first[i0] && !u->sinks; /* of all of them: nothing to merge with */
    float *o = first ? u->O + i0 * u->ldo : u->o;
    if (small_context) {
        deinterleave_pairs(w + from, WEIGHTS_PITCH, m, p.n, vector_w, W_PITCH);
        outputs_vector_fns[m - 1](&p, vector_w, W_PITCH, Wv / TILE_ROWS, o, u->ldo);
    } else if (m <= TILE_ROWS) {
        memset(o, 0, (size_t)(m * u->ldo) * sizeof *o);
        for (int64_t i = 0; i < p.n; i++)
            outputs_small_m(&p, p.n + i, w + from + i * LN_KV_STEP, Wv / TILE_ROWS, o, u->ldo);
    } else {
        for (int64_t e = 0; e < Wv / TILE_ROWS; e += 2) outputs_large_m(&p, w + from, e, o, u->ldo);
    }
    merge(u, i0, m, s0, jf, jt, max, sum, o);
}

static void attn_amx_tiles_run(const ln_call *c) {
    attn_run(c);
    tile_release();
}
