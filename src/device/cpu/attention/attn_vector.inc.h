/* Attention over pages on a vector ISA level, with the bits of the reference (attn_paged).
 *
 *     scores    lanes along positions:           s[pair][16 positions] += q[pair][e] k[e][16 positions]
 *     outputs   lanes along the head's elements: o[pair][16 elements] += w[pair][j] v[j][16 elements]
 *
 * (pages store K and V each in the order that its product reads, kv_layout.h.) Only visible positions enter a
 * chain: invisible scores are computed where a line covers them, then overwritten. Over bf16 pages chains go
 * pair by pair of positions (ops.h).
 *
 * LN_BF16_DOT makes the copy for machines with AVX512_BF16: queries, which have to be bf16 values then, and
 * softmax weights are pairs in scratch. Included once per ISA level, after its simd header. */
#include "attn_core.inc.h"

enum {
    PAIRS = tune_attn_PAIRS_all, /* pairs of a unit */
    TILE_M = CORE_MR             /* pairs of a tile */
};
typedef float q_t;
#define Q_PITCH(W) ((W) / X_PAIR)
#include "attn_paged.inc.h"

#ifndef LN_BF16_DOT
CORES(0)
#endif
CORES(1)

/* The micro-kernel for m rows that takes as many of n blocks as is good, *bl. */
static core_fn *pick(bool bf, int64_t m, int64_t n, int64_t *bl) {
    *bl = m == 1 ? SMALL_M_BLOCKS_1 : SMALL_M_BLOCKS_2;
    const bool small_m = m <= SMALL_M && n >= *bl;
    if (!small_m)
        *bl = n == CORE_NR_BLOCKS + 1
                  ? (CORE_NR_BLOCKS + 1) / 2
                  : LN_MIN(n, (int64_t)CORE_NR_BLOCKS); /* 2 + 2 hides more latency than 3 + 1 */
#ifndef LN_BF16_DOT
    if (!bf) return small_m ? small_m_0[m - 1] : cores_0[*bl - 1][m - 1];
#endif
    (void)bf;
    return small_m ? small_m_1[m - 1] : cores_1[*bl - 1][m - 1];
}

static void load_q(float *to, const ln_arg *q, int64_t at, int64_t E, int64_t W) {
    const float *from = (const float *)q->data + at;
#ifdef LN_BF16_DOT /* pairs: these are bf16 values */
    uint16_t *half = (uint16_t *)(void *)to;
    for (int64_t e = 0; e < E; e++) half[e] = (uint16_t)(ln_f32_bits(from[e]) >> 16);
#else
    memcpy(to, from, (size_t)E * sizeof *to);
#endif
    (void)W; /* beyond E nothing is read */
}

static inline float output_divisor(float L) { return L; }
static inline float divide_output(float O, float by) { return O / by; }
static void store_bf16(uint16_t *to, const float *O, float by, int64_t E) {
    for (int64_t e = 0; e < E; e++) to[e] = ln_f32_bf16(divide_output(O[e], by));
}

/* Bytes of a block of K, and of one of V. */
static int64_t k_block_bytes(const attn_unit *u) {
    return LN_KV_SIDE * u->W * ln_dtype_bytes(u->p->kv.dtype);
}
static int64_t v_block_bytes(const attn_unit *u) {
    return LN_KV_SIDE * LN_KV_STEP * ln_dtype_bytes(u->p->kv.dtype);
}

/* The block of K that holds position `pos`, a multiple of LN_KV_SIDE. */
static const uint8_t *kv_keys(const attn_unit *u, int64_t pos) {
    return kv_piece(u, pos - pos % LN_KV_STEP, false) + pos % LN_KV_STEP / LN_KV_SIDE * k_block_bytes(u);
}

/* What few pairs prefetch while they read at w: `next`, which is read then; but f32 on 16 lanes a little
 * ahead in w itself, since `next` would be most of an L1 (docs/performance.md). */
static const uint8_t *prefetch_target(bool bf, const uint8_t *w, const uint8_t *next) {
    return LN_WIDE_MICROKERNEL && !bf ? w + tune_attn_F32_PREFETCH_BYTES_all : next;
}

/* Scores of m pairs from pair i0 for the positions [from, to) of the split at s0. What is read next are the
 * next positions, then the values of the first ones. */
static void scores(const attn_unit *u, int64_t i0, int64_t m, int64_t s0, int64_t from, int64_t to) {
    const int64_t P = u->p->kv.page_len, block = k_block_bytes(u);
    const bool bf = u->p->kv.dtype == LN_BF16;
    core_args o = {
        .x = u->q + i0 * Q_PITCH(u->W), .ldx = Q_PITCH(u->W), .ldy = W_PITCH, .block = block, .to = u->E};
    for (int64_t at = from - from % LN_KV_SIDE, bl; at < to; at += bl * LN_KV_SIDE) {
        const int64_t end = LN_MIN(to, at - at % P + P);
        core_fn *core = pick(bf, m, (end - at + LN_KV_SIDE - 1) / LN_KV_SIDE, &bl);
        const int64_t next = at + bl * LN_KV_SIDE;
        o.w = kv_keys(u, s0 + at);
        if (m <= PREFETCH_M)
            o.prefetch = prefetch_target(bf, o.w,
                                         next < to ? kv_keys(u, s0 + next)
                                                   : kv_piece(u, s0 + from - from % LN_KV_STEP, true));
        o.y = u->w + at;
        core(&o);
    }
}

/* Outputs: goes on with the chains of n pairs of the tile, from the i-th, over positions [from, to) of the
 * split at s0. What is read next are the next positions, then the next split's keys, if pair `last` sees it.
 */
static void outputs(const attn_unit *u, int64_t i, int64_t n, int64_t s0, int64_t from, int64_t to,
                    int64_t last) {
    const int64_t blocks = (u->Ev + LN_KV_SIDE - 1) / LN_KV_SIDE, block = v_block_bytes(u);
    const bool bf = u->p->kv.dtype == LN_BF16;
    core_args o = {.ldx = W_PITCH, .ldy = u->ldo, .block = block, .accumulate = true};
    for (int64_t piece = from - from % LN_KV_STEP; piece < to; piece += LN_KV_STEP) {
        const uint8_t *v = kv_piece(u, s0 + piece, true), *next = v;
        if (n <= PREFETCH_M && piece + LN_KV_STEP < to) next = kv_piece(u, s0 + piece + LN_KV_STEP, true);
        else if (n <= PREFETCH_M && s0 + SPLIT <= u->last[last]) next = kv_keys(u, s0 + SPLIT);
        o.x = u->w + i * W_PITCH + piece / X_PAIR;
        o.from = LN_MAX(from, piece) - piece;
        o.to = LN_MIN(to - piece, LN_KV_STEP);
        for (int64_t b = 0, bl; b < blocks; b += bl) {
            core_fn *core = pick(bf, n, blocks - b, &bl);
            o.w = v + b * block;
            o.prefetch = prefetch_target(bf, o.w, next + b * block);
            o.y = u->o + i * u->ldo + b * LN_KV_SIDE;
            core(&o);
        }
    }
}

INLINE void exp_weights(float *to, const float *w, vf max, const bool bf, vf *sum, const int n) {
    vf e[EXP_VECTORS];
    vf_softmax_exp(w, max, bf, e, n);
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
#ifndef LN_BF16_DOT
        vf_store(to + i * VL, e[i]);
#endif
        sum[i % VECTORS_PER_LINE16] = vf_add(sum[i % VECTORS_PER_LINE16], e[i]);
    }
#ifdef LN_BF16_DOT
    for (int i = 0; i < n; i += 2)
        vf_store_bf16((uint16_t *)(void *)to + i * VL, e[i], i + 1 < n ? e[i + 1] : vf_zero());
#endif
}
/* Scaled scores to softmax weights, whole lines; as pairs where x are such. Returns their sum. */
INLINE float softmax_weights(float *to, const float *w, int64_t n, float max, const bool bf) {
    const vf m = vf_set1(max);
    vf sum[VECTORS_PER_LINE16];
    int64_t j = 0;
    for (int v = 0; v < VECTORS_PER_LINE16; v++) sum[v] = vf_zero();
    for (; j + EXP_VECTORS * VL <= n; j += EXP_VECTORS * VL)
        exp_weights(to + j / X_PAIR, w + j, m, bf, sum, EXP_VECTORS);
    if (VECTORS_PER_LINE16 == 1 && n - j >= 2 * VL)
        exp_weights(to + j / X_PAIR, w + j, m, bf, sum, 2), j += 2 * VL;
    if (VECTORS_PER_LINE16 == 1 && j < n) exp_weights(to + j / X_PAIR, w + j, m, bf, sum, 1);
    return vf_reduce_add16(sum);
}
static void softmax(const ln_p_attn *p, float *w, int64_t jf, int64_t jt, float *max, float *sum) {
    const int64_t a = jf - jf % 16, n = (jt + 15) / 16 * 16 - a;
    *max = finish_scores(p, w, a, jf, jt);
    float *to = w + a / X_PAIR; /* never beyond what was already read of w */
    *sum = p->kv.dtype == LN_BF16 ? softmax_weights(to, w + a, n, *max, true)
                                  : softmax_weights(to, w + a, n, *max, false);
}

/* Outputs of m pairs: pair i over positions from[i] .. to[i] - 1. Both ascend with the pair, as the ends of
 * what a row sees do: so the pairs at position j are neighbours, and this goes from one change of that set to
 * the next. */
static void outputs_of(const attn_unit *u, int64_t m, int64_t s0, const int64_t *from, const int64_t *to,
                       int64_t last) {
    for (int64_t j = from[0], lo = 0, hi = 0; j < to[m - 1];) { /* pairs lo .. hi - 1 are at j */
        while (lo < m && to[lo] <= j) lo++;
        while (hi < m && from[hi] <= j) hi++;
        int64_t next = lo < hi ? to[lo] : to[m - 1];
        if (hi < m) next = LN_MIN(next, from[hi]);
        if (lo < hi) outputs(u, lo, hi - lo, s0, j, next, last);
        j = next;
    }
}
/* Over bf16 pages a row takes positions pair by pair where it sees both: first the odd one that it sees
 * alone, where its window begins; last the even one. */
static void outputs_by_pairs(const attn_unit *u, int64_t m, int64_t s0, const int64_t *jf, const int64_t *jt,
                             int64_t last) {
    int64_t begin[TILE_M], end[TILE_M], rest[TILE_M]; /* of whole pairs; where the single even one begins */
    for (int64_t i = 0; i < m; i++) {
        begin[i] = LN_MIN((jf[i] + 1) / 2 * 2, jt[i]);
        end[i] = jt[i] / 2 * 2;
        rest[i] = LN_MAX(end[i], jf[i]);
    }
    outputs_of(u, m, s0, jf, begin, last);
    outputs_of(u, m, s0, begin, end, last);
    outputs_of(u, m, s0, rest, jt, last);
}

static void attn_tile(attn_unit *u, int64_t i0, int64_t m, int64_t s0) {
    int64_t jf[TILE_M], jt[TILE_M]; /* what each pair sees of this split */
    float max[TILE_M], sum[TILE_M];
    for (int64_t i = 0; i < m; i++) pair_visible(u, i0 + i, s0, &jf[i], &jt[i]);
    if (jt[m - 1] <= jf[0]) return;
    scores(u, i0, m, s0, jf[0], jt[m - 1]);
    for (int64_t i = 0; i < m; i++)
        if (jf[i] < jt[i]) softmax(u->p, u->w + i * W_PITCH, jf[i], jt[i], &max[i], &sum[i]);
    memset(u->o, 0, (size_t)(m * u->ldo) * sizeof *u->o);
    if (u->p->kv.dtype == LN_BF16) outputs_by_pairs(u, m, s0, jf, jt, i0 + m - 1);
    else outputs_of(u, m, s0, jf, jt, i0 + m - 1);
    merge(u, i0, m, s0, jf, jt, max, sum, u->o);
}

#ifndef LN_BF16_DOT
#define ATTN_KERNEL \
    { .fn = attn_run, .scratch = attn_scratch, .pieces = tune_attn_CHUNKS_all }
const ln_kernel LN_ISA(ln_cpu_attn_kernel) = ATTN_KERNEL;
const ln_kernel_row LN_ISA(ln_cpu_attn)[] = {
    {LN_OP_ATTN_PAGED, 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3, ATTN_KERNEL},
    {0},
};
#endif
