/* Lookup of rows in packed tables (part of rowwise.inc.h): the table of a tied head is stored once, in the
 * layout of the matrix product, and a row is one lane of a block (pack.h).
 *
 *     block:  | lane 0 | .. | the row's lane | .. | lane 15 |    64 bytes for each column, or pair of bf16
 *             | lane 0 | .. | the row's lane | .. | lane 15 |    columns, or 32 bits of codes */
/* A row of a packed table (pack.h): one lane of a block, a step apart from column to column. */
static inline void embed_row(const uint8_t *w, ln_dtype dtype, int64_t n, float scale, float *y) {
    const int64_t step = dtype == LN_F16 ? 32 : 64;
    if (dtype == LN_BF16)
        for (int64_t i = 0; i + 2 <= n; i += 2, w += step)
            y[i] = ln_num_load(w, LN_BF16, 0) * scale, y[i + 1] = ln_num_load(w, LN_BF16, 1) * scale;
    else
        for (int64_t i = 0; i < n; i++, w += step) y[i] = ln_num_load(w, dtype, 0) * scale;
    if (dtype == LN_BF16 && n % 2) y[n - 1] = ln_num_load(w, LN_BF16, 0) * scale; /* w is at the half pair */
}
static void embed_run(const ln_call *c) {
    const ln_arg *t = &c->in[0];
    float scale = c->node->p.embed.scale;
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        int64_t n = c->out[0].cols;
        if (t->bf12) {
            ln_bf12_row(row_out(c, r), t->data, n, c->step->ids[r], scale);
            continue;
        }
        const uint8_t *w = (const uint8_t *)t->data + ln_pack_offset(t->dtype, n, c->step->ids[r], 0);
        if (t->dtype == LN_F32) embed_row(w, LN_F32, n, scale, row_out(c, r));
        else if (t->dtype == LN_BF16) embed_row(w, LN_BF16, n, scale, row_out(c, r));
        else embed_row(w, LN_F16, n, scale, row_out(c, r));
    }
}

/* Prefetches a row's codes and scales: cache lines of its own, far from the row before. */
static void prefetch_row_q(const uint8_t *at, const uint8_t *scales, int64_t codes_bytes,
                           int64_t scales_bytes, int64_t group_bytes, int64_t next, int64_t groups) {
    for (int64_t g = 0; g < groups; g++, at += group_bytes, scales += next) {
        for (int64_t i = 0; i < codes_bytes; i += 64) prefetch_l1(at + i);
        for (int64_t i = 0; i < scales_bytes; i += 64) prefetch_l1(scales + i);
    }
}
/* embed of an encoded table: affine groups, whose scales and biases may be stored apart (ln_pack_scales). */
static void embed_q_run(const ln_call *c) {
    const ln_affine *w = c->in[0].data;
    const ln_pack_units units = ln_packed_numbers(w);
    const int64_t cols = c->out[0].cols, group = w->code.group, groups = cols / group,
                  codes_bytes = ln_pack_codes_bytes(w->code), group_bytes = ln_packed_group_bytes(w),
                  block = ln_packed_block_bytes(w, cols), units_bytes = ln_pack_units_bytes(units);
    /* from a group's scales to the next ones, and of a block */
    const int64_t next = w->scales ? units_bytes : group_bytes,
                  apart = groups * units_bytes + ln_pack_factors_bytes(units, groups);
    float scale = c->node->p.embed.scale;
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const int64_t id = c->step->ids[r], lane = id % LN_PACK_NR, b = id / LN_PACK_NR,
                      soon = r + 1 < hi ? c->step->ids[r + 1] / LN_PACK_NR : -1;
        const uint8_t *at = w->codes + b * block,
                      *scales = w->scales ? w->scales + b * apart : at + codes_bytes,
                      *factors = w->scales ? scales + groups * units_bytes : at + groups * group_bytes;
        if (soon >= 0)
            prefetch_row_q(w->codes + soon * block,
                           w->scales ? w->scales + soon * apart : w->codes + soon * block + codes_bytes,
                           codes_bytes, units_bytes, group_bytes, next, groups);
        float *y = row_out(c, r);
        for (int64_t g = 0; g < groups; g++, at += group_bytes, scales += next) {
            const uint8_t *f = ln_pack_factors_at(units, factors, g);
            const float s = ln_pack_unit(units.dtype, scales, f, lane),
                        bias = ln_pack_unit(units.dtype, scales, f, LN_PACK_NR + lane);
            for (int64_t i = 0; i < group; i++)
                y[g * group + i] = fmaf(s, (float)ln_pack_code(at + 4 * lane, w->code.bits, i), bias) * scale;
        }
    }
}
