/* RMSNorm (part of rowwise.inc.h): y = x / sqrt(mean(x^2) + eps) (w + offset), for groups of a row (heads)
 * or whole rows.
 *
 *     for NORM_ROWS rows, or NORM_GROUPS groups of a row
 *       sum_squares      16 lanes, one FMA chain each, then their pairwise sum (ops.h): a long dependency
 *                        chain, so several groups run interleaved
 *       1 / sqrt         together
 *       normalize_one */
/* Sums of squares of M groups, `apart` from each other: 16 lanes each, added pairwise. A group is one
 * dependency chain, so several run interleaved. */
INLINE void sum_squares(const int M, const float *x, int64_t apart, int64_t n, float *out) {
    enum { VECTORS = 16 / VL, MOST = 4 };
    vf sum[MOST][VECTORS];
    int64_t i = 0;
    for (int m = 0; m < M; m++)
        for (int v = 0; v < VECTORS; v++) sum[m][v] = vf_zero();
    for (; i + 16 <= n; i += 16)
#pragma GCC unroll 4
        for (int m = 0; m < M; m++)
            for (int v = 0; v < VECTORS; v++) {
                const vf a = vf_load(x + m * apart + i + v * VL);
                sum[m][v] = vf_fma(a, a, sum[m][v]);
            }
    for (int m = 0; m < M; m++) {
        if (i < n) {
            float rest[16] = {0};
            memcpy(rest, x + m * apart + i, (size_t)(n - i) * sizeof *rest);
            for (int v = 0; v < VECTORS; v++)
                sum[m][v] = vf_fma(vf_load(rest + v * VL), vf_load(rest + v * VL), sum[m][v]);
        }
        out[m] = vf_reduce_add16(sum[m]);
    }
}
INLINE_ROW normalize_group(const float *x, float scale, void *y, int64_t n, const void *w,
                           const ln_dtype dtype, float offset, const int store) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        store_as(y, i, (x[i] * scale) * (ln_num_load(w, dtype, i) + offset), store);
}
INLINE_ROW add_offset(float *by, const void *w, const ln_dtype dtype, int64_t n, float offset) {
    for (int64_t i = 0; i < n; i++) by[i] = ln_num_load(w, dtype, i) + offset;
}
/* With the weight and its offset added up before. */
INLINE_ROW normalize_group_by(const float *x, float scale, void *y, int64_t n, const float *by,
                              const int store) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) store_as(y, i, (x[i] * scale) * by[i], store);
}
/* Without a weight. */
INLINE_ROW normalize_group_plain(const float *x, float scale, void *y, int64_t n, const int store) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) store_as(y, i, x[i] * scale, store);
}
/* Normalises a group whose squares are summed. */
INLINE_ROW normalize_one(const ln_call *c, const float *x, float scale, void *y, const float *by) {
    const ln_arg *w = &c->in[1];
    const float offset = c->node->p.norm.offset;
    if (c->node->n_in < 2) BY_STORE(c, normalize_group_plain, x, scale, y, c->node->p.norm.width);
    else if (by) BY_STORE(c, normalize_group_by, x, scale, y, w->cols, by);
    else if (w->dtype == LN_F32) BY_STORE(c, normalize_group, x, scale, y, w->cols, w->data, LN_F32, offset);
    else if (w->dtype == LN_BF16)
        BY_STORE(c, normalize_group, x, scale, y, w->cols, w->data, LN_BF16, offset);
    else BY_STORE(c, normalize_group, x, scale, y, w->cols, w->data, LN_F16, offset);
}
/* Groups go GROUPS_AT_ONCE at a time, whole rows ROWS_AT_ONCE: a sum and its root are a long chain, and those
 * of several run interleaved. Weight and offset are added up once where that is for MIN_GROUPS groups.
 */
static void rmsnorm_run(const ln_call *c) {
    enum {
        GROUPS_AT_ONCE = tune_rowwise_NORM_GROUPS_all,
        ROWS_AT_ONCE = tune_rowwise_NORM_ROWS_all,
        MIN_GROUPS = 4,
        WIDTH = 4096 /* elements of a group, at most, whose weights are added up before */
    };
    const ln_p_norm *p = &c->node->p.norm;
    const ln_arg *w = &c->in[1];
    const bool weighted = c->node->n_in > 1;
    const int64_t n = weighted ? w->cols : p->width, groups = c->in[0].cols / n;
    PARTITION_ROWS(c, lo, hi);
    float weights[WIDTH], *by = weighted && (hi - lo) * groups >= MIN_GROUPS && n <= WIDTH ? weights : NULL;
    if (by && w->dtype == LN_F32) add_offset(by, w->data, LN_F32, n, p->offset);
    else if (by && w->dtype == LN_BF16) add_offset(by, w->data, LN_BF16, n, p->offset);
    else if (by) add_offset(by, w->data, LN_F16, n, p->offset);
    int64_t r = lo;
    for (; groups == 1 && r + ROWS_AT_ONCE <= hi; r += ROWS_AT_ONCE) {
        float scale[ROWS_AT_ONCE];
        sum_squares(ROWS_AT_ONCE, row_in(c, 0, r), c->in[0].pitch, n, scale);
        for (int i = 0; i < ROWS_AT_ONCE; i++) scale[i] = 1 / sqrtf(scale[i] / (float)n + p->eps);
        for (int i = 0; i < ROWS_AT_ONCE; i++)
            normalize_one(c, row_in(c, 0, r + i), scale[i], row_out(c, r + i), by);
    }
    for (; r < hi; r++)
        for (int64_t g = 0; g < groups; g += GROUPS_AT_ONCE) {
            const int some = (int)LN_MIN((int64_t)GROUPS_AT_ONCE, groups - g);
            const float *x = row_in(c, 0, r) + g * n;
            float scale[GROUPS_AT_ONCE] = {0};
            for (int i = 0; i < some; i++) sum_squares(1, x + i * n, 0, n, &scale[i]);
            if (some > 1)
                for (int i = 0; i < GROUPS_AT_ONCE; i++) scale[i] = 1 / sqrtf(scale[i] / (float)n + p->eps);
            else scale[0] = 1 / sqrtf(scale[0] / (float)n + p->eps);
            for (int i = 0; i < some; i++)
                normalize_one(c, x + i * n, scale[i], output_at(c, r, (g + i) * n), by);
        }
}
