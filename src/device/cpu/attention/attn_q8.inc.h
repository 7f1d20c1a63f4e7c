/* Pages of 8 bits for attention: the keys and values of a split, decoded to scratch as a page of the kernel's
 * dtype would hold them (kv_layout.h), so that the kernels are those of such pages. A part of
 * attn_paged.inc.h.
 *
 *     K, 16 positions, from block to block of the head:   each line of codes x the 16 scales
 *     V, 32 positions, from block to block of the head:   two columns of lines, each x its position's scale
 *
 *     scratch   K[SPLIT][W] | V[SPLIT][Wv]
 *
 * Units have 4 times as many pairs as over other pages, so that a split is decoded once for all of them. */
static bool is_bf16(const attn_unit *u) { return u->p->kv.dtype == LN_BF16; }
/* Bytes of a decoded element. */
static int64_t decoded_bytes(const ln_p_kv *kv) { return ln_dtype_bytes(kv->dtype); }
static size_t decoded_split_bytes(const ln_p_kv *kv) {
    return kv->q8 ? (size_t)(SPLIT * (ln_kv_width(kv->head_dim) + ln_kv_width(kv->v_dim)) * decoded_bytes(kv))
                  : 0;
}
/* K or V of a split in scratch, from position `at` of the split on, a multiple of LN_KV_STEP. */
static uint8_t *decoded_piece(const attn_unit *u, int64_t at, bool v) {
    return u->decoded + (v ? SPLIT * u->W + at * u->Wv : at * u->W) * decoded_bytes(&u->p->kv);
}

/* Stores VL lanes from lane l on of two adjacent lines, the first of which is line `at`. Of bf16 the low bits
 * of both are zero. */
INLINE void store_lines(const bool bf, uint8_t *to, int64_t at, int l, vf even, vf odd) {
    if (bf) {
        vi_store(to + at * 2 * LN_KV_SIDE + 4 * l, vi_or(vi_shr32(vi_cast(even), 16), vi_cast(odd)));
        return;
    }
    vf_store((float *)(void *)to + at * LN_KV_SIDE + l, even);
    vf_store((float *)(void *)to + (at + 1) * LN_KV_SIDE + l, odd);
}
INLINE vf scale_factors(const uint8_t *scale) { return vf_cast(vi_shl32(vi_load_u8(scale), 23)); }

/* 16 positions of K. */
INLINE void decode_keys(const bool bf, const uint8_t *code, const uint8_t *scale, int64_t W, uint8_t *to) {
    for (int64_t e0 = 0; e0 < W; e0 += LN_BLOCK_INT8, scale += LN_KV_SIDE) {
        vf by[VECTORS_PER_LINE16];
        for (int v = 0; v < VECTORS_PER_LINE16; v++) by[v] = scale_factors(scale + v * VL);
        for (int64_t e = e0; e < e0 + LN_BLOCK_INT8; e += 2, code += 2 * LN_KV_SIDE)
            for (int v = 0; v < VECTORS_PER_LINE16; v++)
                store_lines(bf, to, e, v * VL, vf_mul(vf_load_i8(code + v * VL), by[v]),
                            vf_mul(vf_load_i8(code + LN_KV_SIDE + v * VL), by[v]));
    }
}
/* A piece of V. */
INLINE void decode_values(const bool bf, const uint8_t *code, const uint8_t *scale, int64_t Wv, uint8_t *to) {
    float by[LN_KV_STEP];
    for (int64_t e = 0; e < Wv; e += LN_KV_SIDE) {
        const uint8_t *block = scale + e / LN_BLOCK_INT8 * LN_KV_STEP;
        for (int p = 0; p < LN_KV_STEP && e % LN_BLOCK_INT8 == 0; p += VL)
            vf_store(by + p, scale_factors(block + p));
        for (int p = 0; p < LN_KV_STEP; p += 2, code += 2 * LN_KV_SIDE)
            for (int v = 0; v < VECTORS_PER_LINE16; v++)
                store_lines(bf, to, e / LN_KV_SIDE * LN_KV_STEP + p, v * VL,
                            vf_mul(vf_load_i8(code + v * VL), vf_set1(by[p])),
                            vf_mul(vf_load_i8(code + LN_KV_SIDE + v * VL), vf_set1(by[p + 1])));
    }
}
INLINE void decode_piece(const attn_unit *u, const bool bf, int64_t s0, int64_t at) {
    const ln_p_kv *kv = &u->p->kv;
    const int64_t in_page = (s0 + at) % kv->page_len, h = u->kv_head;
    const uint8_t *layer = ln_kv_layer(kv, u->c->in[1].data, u->c->step, u->b, s0 + at);
    for (int side = 0; side < LN_KV_STEP; side += LN_KV_SIDE)
        decode_keys(bf, layer + ln_kv_k_index(kv, h, 0, in_page + side),
                    layer + ln_kv_k_scale(kv, h, 0, in_page + side), u->W,
                    decoded_piece(u, at, false) + side * u->W * decoded_bytes(kv));
    decode_values(bf, layer + ln_kv_v_index(kv, h, 0, in_page), layer + ln_kv_v_scale(kv, h, 0, in_page),
                  u->Wv, decoded_piece(u, at, true));
}
/* Decodes what some of n pairs see of the split at s0, whole pieces. */
static void decode_split(const attn_unit *u, int64_t n, int64_t s0) {
    const int64_t from = LN_MAX((int64_t)0, u->first[0] - s0) / LN_KV_STEP * LN_KV_STEP,
                  to = LN_MIN((int64_t)SPLIT, u->last[n - 1] + 1 - s0);
    for (int64_t at = from; at < to; at += LN_KV_STEP)
        if (is_bf16(u)) decode_piece(u, true, s0, at);
        else decode_piece(u, false, s0, at);
}
