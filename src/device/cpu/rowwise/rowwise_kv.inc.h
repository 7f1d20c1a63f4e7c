/* Writing keys and values into pages (part of rowwise.inc.h), in the order in which attention reads them
 * (kv_layout.h):
 *
 *     K, 16 positions of lanes   f32   | k[0][e] | .. | k[15][e] |                    a line an element
 *                                bf16  | k[0][e], k[0][e+1] | .. | k[15][e], .. |     a line two elements
 *     V, 16 elements of lanes    f32   | v[p][0] | .. | v[p][15] |                    a line a position
 *                                bf16  | v[p][0], v[p+1][0] | .. | v[p][15], .. |     a line two positions
 *
 *     for rows that go into one block of K     as many at once as are there
 *       for kv head                            transpose 8 positions x 16 elements in registers */
/* Transposes pairs of bf16: those of 8 rows become those of 8 lines. */
typedef uint32_t pairs8 __attribute__((vector_size(32)));
static inline void transpose_pairs(pairs8 v[8]) {
#define EXCHANGE(d, first, second)                              \
    for (int i = 0; i < 8; i++)                                 \
        if (!(i & (d))) {                                       \
            const pairs8 a = v[i], b = v[i + (d)];              \
            v[i] = __builtin_shufflevector(a, b, first);        \
            v[i + (d)] = __builtin_shufflevector(a, b, second); \
        }
#define LIST(...) __VA_ARGS__
    EXCHANGE(1, LIST(0, 8, 2, 10, 4, 12, 6, 14), LIST(1, 9, 3, 11, 5, 13, 7, 15))
    EXCHANGE(2, LIST(0, 1, 8, 9, 4, 5, 12, 13), LIST(2, 3, 10, 11, 6, 7, 14, 15))
    EXCHANGE(4, LIST(0, 1, 2, 3, 8, 9, 10, 11), LIST(4, 5, 6, 7, 12, 13, 14, 15))
#undef LIST
#undef EXCHANGE
}
/* Keys of 8 positions, from element e on, 16 elements each, into 8 lines from `to` on. */
static inline void store_keys_8(uint16_t *to, const float *k, int64_t pitch) {
    pairs8 v[8];
    for (int r = 0; r < 8; r++) {
        uint16_t some[16];
        for (int i = 0; i < 16; i++) some[i] = ln_f32_bf16(k[r * pitch + i]);
        memcpy(&v[r], some, sizeof some);
    }
    transpose_pairs(v);
    for (int i = 0; i < 8; i++) memcpy(to + i * 2 * LN_KV_SIDE, &v[i], sizeof v[i]);
}
/* A head's keys of n positions of one block (kv_layout.h), from lane `at` of it on; k[n][E], `pitch` elements
 * apart. */
static inline void store_keys(void *block, ln_dtype t, int64_t at, const float *k, int64_t pitch, int64_t n,
                              int64_t E) {
    enum { GROUPS_AT_ONCE = 64 };
    uint16_t some[GROUPS_AT_ONCE];
    int64_t r = 0;
    for (; t == LN_BF16 && E % 16 == 0 && r + 8 <= n; r += 8, k += 8 * pitch)
        for (int64_t e = 0; e < E; e += 16)
            store_keys_8((uint16_t *)block + 2 * (at + r) + e * LN_KV_SIDE, k + e, pitch);
    for (; r < n; r++, k += pitch)
        if (t == LN_F32) {
            float *to = (float *)block + at + r;
            for (int64_t e = 0; e < E; e++) to[e * LN_KV_SIDE] = k[e];
        } else {
            uint16_t *to = (uint16_t *)block + 2 * (at + r);
            for (int64_t e = 0; e < E;
                 e += GROUPS_AT_ONCE, to += GROUPS_AT_ONCE *
                                            LN_KV_SIDE) { /* rounded by vectors, then stored pair by pair */
                const int64_t m = LN_MIN((int64_t)GROUPS_AT_ONCE, E - e);
                for (int64_t i = 0; i < m; i++) some[i] = ln_f32_bf16(k[e + i]);
                for (int64_t i = 0; i + 2 <= m; i += 2)
                    memcpy(to + i * LN_KV_SIDE, some + i, 2 * sizeof *some);
                if (m % 2) to[(m - 1) * LN_KV_SIDE] = some[m - 1];
            }
        }
}
/* Values of two positions as one line of n lanes. */
static inline void store_value_pairs(uint16_t *line, const float *even, const float *odd, int64_t n) {
    uint32_t pairs[LN_KV_SIDE];
    for (int64_t i = 0; i < n; i++)
        pairs[i] = (uint32_t)ln_f32_bf16(even[i]) | (uint32_t)ln_f32_bf16(odd[i]) << 16;
    memcpy(line, pairs, (size_t)n * sizeof *pairs);
}
/* A head's values of n positions from `at` on of a piece of LN_KV_STEP: v[n][Ev]. */
static inline void store_values(void *piece, ln_dtype t, int64_t at, const float *v, int64_t pitch, int64_t n,
                                int64_t Ev) {
    for (int64_t e = 0; e < Ev; e += LN_KV_SIDE) {
        const int64_t lanes = LN_MIN((int64_t)LN_KV_SIDE, Ev - e), block = ln_kv_at(t, LN_KV_STEP, e, 0);
        for (int64_t r = 0, two; r < n; r += 1 + two) {
            const float *from = v + r * pitch + e;
            two = t == LN_BF16 && (at + r) % 2 == 0 && r + 1 < n;
            uint16_t *line = (uint16_t *)piece + block + (at + r) / 2 * 2 * LN_KV_SIDE + (at + r) % 2;
            if (t == LN_F32)
                memcpy((float *)piece + block + (at + r) * LN_KV_SIDE, from, (size_t)lanes * sizeof *v);
            else if (!two)
                for (int64_t i = 0; i < lanes; i++) line[2 * i] = ln_f32_bf16(from[i]);
            else if (lanes == LN_KV_SIDE) store_value_pairs(line, from, from + pitch, LN_KV_SIDE);
            else store_value_pairs(line, from, from + pitch, lanes);
        }
    }
}
/* A head's keys, or values, of n positions from `at` of the page on into a page of 8 bits: x[n][width]. */
static inline void store_q8(const ln_p_kv *p, char *layer, bool values, int64_t head, int64_t at,
                            const float *x, int64_t pitch, int64_t n) {
    const int64_t width = values ? p->v_dim : p->head_dim;
    for (int64_t r = 0; r < n; r++, at++, x += pitch)
        for (int64_t e = 0; e < width; e += LN_BLOCK_INT8) {
            const int count = (int)LN_MIN(width - e, (int64_t)LN_BLOCK_INT8);
            if (count < LN_BLOCK_INT8 || !values) {
                ln_kv_put_q8(p, layer, values, head, e, at, x + e, count);
                continue;
            }
            int8_t code[LN_BLOCK_INT8]; /* a line of each of two blocks of V */
            layer[ln_kv_v_scale(p, head, e, at)] = (char)ln_block_int8_encode(x + e, LN_BLOCK_INT8, code);
            memcpy(layer + ln_kv_v_index(p, head, e, at), code, LN_KV_SIDE);
            memcpy(layer + ln_kv_v_index(p, head, e + LN_KV_SIDE, at), code + LN_KV_SIDE, LN_KV_SIDE);
        }
}
/* As many rows at once as go into one block of K: whole pairs and lines are written where both halves are at
 * hand. */
static void kv_write_run(const ln_call *c) {
    const ln_p_kv *p = &c->node->p.kv;
    const ln_step *s = c->step;
    const int64_t E = p->head_dim, Ev = p->v_dim, size = ln_dtype_bytes(p->dtype);
    int64_t lo, hi, n;
    ln_partition(c->in[1].rows, 1, c->thread, c->n_threads, &lo, &hi);
    for (int64_t r = lo; r < hi; r += n) {
        const int64_t pos = s->pos[r], at = pos % p->page_len, lane = at % LN_KV_SIDE;
        n = LN_MIN(LN_MIN(hi, (int64_t)s->row0[s->seq[r] + 1]) - r, LN_KV_SIDE - lane);
        /* the pool is the only thing that kernels write besides temps */
        char *layer = (char *)(uintptr_t)ln_kv_layer(p, c->in[0].data, s, s->seq[r], pos);
        for (int64_t h = 0; h < p->n_kv_heads && p->q8; h++) {
            store_q8(p, layer, false, h, at, row_in(c, 1, r) + h * E, c->in[1].pitch, n);
            store_q8(p, layer, true, h, at, row_in(c, 2, r) + h * Ev, c->in[2].pitch, n);
        }
        for (int64_t h = 0; h < p->n_kv_heads && !p->q8; h++) {
            store_keys(layer + ln_kv_k_index(p, h, 0, at - lane) * size, p->dtype, lane,
                       row_in(c, 1, r) + h * E, c->in[1].pitch, n, E);
            store_values(layer + ln_kv_v_index(p, h, 0, at - at % LN_KV_STEP) * size, p->dtype,
                         at % LN_KV_STEP, row_in(c, 2, r) + h * Ev, c->in[2].pitch, n, Ev);
        }
    }
}
