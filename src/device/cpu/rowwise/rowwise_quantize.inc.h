/* Quantisation of activations, row by row (part of rowwise.inc.h): block floating point and
 * int8 digit pairs with a scale for each row, as quant/block_float.h defines both.
 *
 *     block floating point, a row   | int16 pairs of group 0 | of group 1 | .. | u of groups | t of groups |
 *     int8 digit pairs, a row       | h[P] | l[P] | u, sum(h), sum(l) |  or in panels (pack/panel.h)
 *
 *     for row (of a panel: all its rows together, as one stream of memory)
 *       amax over all columns                 f32 magnitudes as integers
 *       for line of 64 columns                scale, round, split into digits, add up
 *
 * A row's digits may take the place of its elements in panels: a line is stored when its elements are
 * loaded. */
/* One group in block floating point: pairs of mantissas, first and second being columns `per` apart, per
 * pairs at a time. */
INLINE_ROW bfp_group(const float *x, const ln_groups e, const int per, uint32_t *v, float *u, float *t) {
    const int n = e.group;
    uint32_t amax = 0;
    int32_t mantissas[128], sum = 0;
    for (int i = 0; i < n; i++) amax = LN_MAX(amax, ln_f32_bits(x[i]) & 0x7fffffffu);
    *u = ln_bfp_scale(amax, ln_bfp_bits(e.bits));
    const bool nonzero = *u > 0;
    const float by = nonzero ? 1 / *u : 0;
    for (int i = 0; i < n; i++) {
        mantissas[i] = nonzero ? (int32_t)rintf(x[i] * by) : 0;
        sum += mantissas[i];
    }
    for (int i = 0; i < n; i += 2 * per)
        for (int j = 0; j < per; j++)
            v[i / 2 + j] = ((uint32_t)mantissas[i + j] & 0xffffu) | (uint32_t)mantissas[i + j + per] << 16;
    *t = *u * (float)sum;
}
static void bfp_convert_run(const ln_call *c) {
    const ln_groups e = ln_format_groups(c->node->p.convert.to);
    const int64_t cols = c->in[0].cols, groups = cols / e.group;
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        float *row = row_out(c, r), *u = ln_bfp_scales(row, cols), *t = ln_bfp_sums(row, cols, e.group);
        for (int64_t g = 0; g < groups; g++) {
            const float *x = row_in(c, 0, r) + g * e.group;
            uint32_t *v = (uint32_t *)(void *)row + g * e.group / 2;
            if (e.bits == 4) bfp_group(x, e, 4, v, u + g, t + g);
            else if (e.bits == 8) bfp_group(x, e, 2, v, u + g, t + g);
            else bfp_group(x, e, 1, v, u + g, t + g);
        }
    }
}

/* The digits of a line of 64 columns, n of which are there, in order; adds them to the sums. */
typedef int8_t digits16 __attribute__((vector_size(16)));
INLINE_ROW split_line(const float *x, const int n, const int bits, float by, int8_t *h, int8_t *l,
                      int32_t *sum_h, int32_t *sum_l) {
    int8_t high[64] = {0}, low[64] = {0};
    int32_t a = 0, b = 0;
    for (int i = 0; i < n; i++) {
        const int32_t v = (int32_t)rintf(x[i] * by), up = ln_i8pair_high(bits, v),
                      down = v - ln_i8pair_radix(bits) * up;
        high[i] = (int8_t)up;
        low[i] = (int8_t)down;
        a += up;
        b += down;
    }
    *sum_h += a;
    *sum_l += b;
    for (int i = 0; i < 64 && bits == 4; i += 16) { /* ln_i8pair_column */
        digits16 v, w;
        memcpy(&v, high + i, sizeof v);
        memcpy(&w, low + i, sizeof w);
        v = __builtin_shufflevector(v, v, 0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
        w = __builtin_shufflevector(w, w, 0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
        memcpy(high + i, &v, sizeof v);
        memcpy(low + i, &w, sizeof w);
    }
    memcpy(h, high, sizeof high);
    memcpy(l, low, sizeof low);
}
#ifdef LN_HAS_PACK_I8
/* The largest magnitude of n elements, whole sixteens, as its bits: above those of infinity if one is NaN.
 * apart: elements from 16 of them to the next 16. */
INLINE uint32_t row_amax(const float *x, const int64_t apart, int64_t n) {
    vi amax[4] = {vi_zero(), vi_zero(), vi_zero(), vi_zero()};
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL, x += 4 * apart)
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++)
            amax[v] = vi_max_u32(amax[v], vi_and32(vi_load((const uint8_t *)(x + v * apart)), 0x7fffffffu));
    for (; i + VL <= n; i += VL, x += apart)
        amax[0] = vi_max_u32(amax[0], vi_and32(vi_load((const uint8_t *)x), 0x7fffffffu));
    return vi_reduce_max_u32(vi_max_u32(vi_max_u32(amax[0], amax[1]), vi_max_u32(amax[2], amax[3])));
}
/* Rows of a panel whose lines are in registers together; prefetch distance in elements. */
enum {
    PANEL_UNROLL = 8,                                   /* rows */
    PREFETCH_ELEMENTS = tune_rowwise_PANEL_PREFETCH_all /* distance */
};
/* The largest magnitudes of `rows` rows of a panel, a multiple of PANEL_UNROLL. All of a panel's rows go
 * together, as one stream; L2 has them when digits are made. */
INLINE void panel_amax(const float *x, int64_t apart, int64_t rows, int64_t cols, uint32_t *out) {
    vi amax[LN_PANEL_ROWS];
    for (int64_t r = 0; r < rows; r++) amax[r] = vi_zero();
    for (int64_t i = 0; i < cols; i += 4 * VL, x += 4 * apart)
        for (int64_t r = 0; r < rows; r += PANEL_UNROLL) {
            vi m[PANEL_UNROLL];
#pragma GCC unroll 8
            for (int k = 0; k < PANEL_UNROLL; k++) m[k] = amax[r + k];
#pragma GCC unroll 32
            for (int k = 0; k < 4 * PANEL_UNROLL; k++)
                prefetch_l2((const uint8_t *)(x + PREFETCH_ELEMENTS + k / PANEL_UNROLL * apart +
                                              (r + k % PANEL_UNROLL) * VL));
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
#pragma GCC unroll 8
                for (int k = 0; k < PANEL_UNROLL; k++)
                    m[k] = vi_max_u32(m[k], vi_and32(vi_load((const uint8_t *)(x + j * apart + (r + k) * VL)),
                                                     0x7fffffffu));
#pragma GCC unroll 8
            for (int k = 0; k < PANEL_UNROLL; k++) amax[r + k] = m[k];
        }
    for (int64_t r = 0; r < rows; r++) out[r] = vi_reduce_max_u32(amax[r]);
}
/* ln_i8pair_high of 16-bit elements. */
INLINE vi high_digits_of(const int bits, vi v) {
    const int k = ln_i8pair_radix(bits);
    if (k == 256) return vi_sra16(vi_add16(v, vi_set16(k / 2)), 8);
    return vi_sub16(vi_shr16(vi_mulhi_u16(vi_add16(v, vi_set16(k / 2 + 128 * k)), vi_set16(34953)), 4),
                    vi_set16(128)); /* 2^20 / 30, exact up to 8,000 */
}
/* split_line of a whole line, by SIMD; what digits sum to is added in 16 lanes. */
INLINE void split_line_simd(const float *x, const int64_t apart, const int bits, vf by, int8_t *h, int8_t *l,
                            vi *sum_h, vi *sum_l) {
    vi high[2], low[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++, x += 2 * apart) {
        const vf first = bits == 4 ? vf_deinterleave8(vf_load(x)) : vf_load(x),
                 second = bits == 4 ? vf_deinterleave8(vf_load(x + apart)) : vf_load(x + apart);
        const vi v = vi_pack_i16(vi_round_i32(vf_mul(first, by)), vi_round_i32(vf_mul(second, by)));
        high[i] = high_digits_of(bits, v);
        low[i] =
            vi_sub16(v, ln_i8pair_radix(bits) == 256 ? vi_shl16(high[i], 8)
                                                     : vi_mul16(high[i], vi_set16(ln_i8pair_radix(bits))));
    }
    *sum_h = vi_add(*sum_h, vi_add_pairs16(vi_add16(high[0], high[1])));
    *sum_l = vi_add(*sum_l, vi_add_pairs16(vi_add16(low[0], low[1])));
    vi_store((uint8_t *)h, vi_pack_i8(high[0], high[1]));
    vi_store((uint8_t *)l, vi_pack_i8(low[0], low[1]));
}
/* Whole lines of a row; returns how many columns they are. Meanwhile the next row, `pitch` elements on, is
 * prefetched: a wide product's rows have left the caches. */
INLINE int64_t split_lines(const float *x, const int64_t apart, int64_t pitch, int64_t cols, const int bits,
                           float by, ln_i8pair_layout to, ln_i8pair_sums *sums) {
    vi sum_h = vi_zero(), sum_l = vi_zero();
    int32_t of_h[VL], of_l[VL];
    int64_t i = 0;
    for (; i + 64 <= cols; i += 64, x += 4 * apart, to.digits += to.step) {
        for (int j = 0; j < 4; j++) prefetch_l2((const uint8_t *)(x + pitch + j * apart));
        split_line_simd(x, apart, bits, vf_set1(by), to.digits, to.digits + to.lower, &sum_h, &sum_l);
    }
    vi_store((uint8_t *)of_h, sum_h);
    vi_store((uint8_t *)of_l, sum_l);
    for (int j = 0; j < VL; j++) sums->h += of_h[j], sums->l += of_l[j];
    return i;
}
/* Digits of those rows; to: of the first row, others' are `pitch` bytes apart. */
INLINE void split_panel(const float *x, int64_t apart, int64_t rows, int64_t cols, const int bits,
                        const float *by, ln_i8pair_layout to, int64_t pitch, ln_i8pair_sums *terms) {
    vi sum_h[LN_PANEL_ROWS], sum_l[LN_PANEL_ROWS];
    int32_t of_h[VL], of_l[VL];
    for (int64_t r = 0; r < rows; r++) sum_h[r] = sum_l[r] = vi_zero();
    for (int64_t i = 0; i < cols; i += 64, x += 4 * apart, to.digits += to.step)
        for (int64_t r = 0; r < rows; r++)
            split_line_simd(x + r * VL, apart, bits, vf_set1(by[r]), to.digits + r * pitch,
                            to.digits + r * pitch + to.lower, &sum_h[r], &sum_l[r]);
    for (int64_t r = 0; r < rows; r++) {
        vi_store((uint8_t *)of_h, sum_h[r]);
        vi_store((uint8_t *)of_l, sum_l[r]);
        for (int j = 0; j < VL; j++) terms[r].h += of_h[j], terms[r].l += of_l[j];
    }
}
#else
INLINE uint32_t row_amax(const float *x, const int64_t apart, int64_t n) {
    uint32_t amax = 0;
    for (int64_t i = 0; i < n; i++)
        amax = LN_MAX(amax, ln_f32_bits(x[i / LN_PANEL_COLS * apart + i % LN_PANEL_COLS]) & 0x7fffffffu);
    return amax;
}
INLINE int64_t split_lines(const float *x, const int64_t apart, int64_t pitch, int64_t cols, const int bits,
                           float by, ln_i8pair_layout to, ln_i8pair_sums *sums) {
    (void)pitch;
    int64_t i = 0;
    for (; i + 64 <= cols; i += 64, to.digits += to.step) {
        float line[64];
        for (int j = 0; j < 64; j++) line[j] = x[(i + j) / LN_PANEL_COLS * apart + j % LN_PANEL_COLS];
        split_line(line, 64, bits, by, to.digits, to.digits + to.lower, &sums->h, &sums->l);
    }
    return i;
}
#endif
/* A row whose largest magnitude is known. */
INLINE void split_row(const float *x, const int64_t apart, int64_t pitch, int64_t cols, int bits,
                      uint32_t amax, ln_i8pair_layout to) {
    ln_i8pair_sums terms = {0};
    float by;
    ln_i8pair_scale(amax, bits, &terms.u, &by);
    if (!(by > 0))
        for (int64_t i = 0; i < cols; i += 64, to.digits += to.step)
            memset(to.digits, 0, 64), memset(to.digits + to.lower, 0, 64);
    else {
        const int64_t i = bits == 4   ? split_lines(x, apart, pitch, cols, 4, by, to, &terms)
                          : bits == 8 ? split_lines(x, apart, pitch, cols, 8, by, to, &terms)
                                      : split_lines(x, apart, pitch, cols, bits, by, to, &terms);
        if (i < cols) { /* half a line */
            float line[32];
            for (int j = 0; j < 32; j++) line[j] = x[(i + j) / LN_PANEL_COLS * apart + j % LN_PANEL_COLS];
            int8_t *h = to.digits + i / 64 * to.step;
            split_line(line, 32, bits, by, h, h + to.lower, &terms.h, &terms.l);
        }
    }
    memcpy(to.terms, &terms, sizeof terms);
}
#ifdef LN_HAS_PACK_I8
/* n rows from r on, of one panel at x, a multiple of PANEL_UNROLL. Returns false where one of them has
 * nothing to scale; then nothing was done. */
static bool split_panel_rows(const ln_call *c, int64_t r, int64_t n, const float *x, int64_t apart,
                             int bits) {
    const int64_t cols = c->in[0].cols,
                  pitch = ln_arg_in_panels(&c->out[0]) ? 64 : c->out[0].pitch * (int64_t)sizeof(float);
    const ln_i8pair_layout to = ln_arg_i8pair(&c->out[0], r);
    ln_i8pair_sums terms[LN_PANEL_ROWS] = {0};
    float by[LN_PANEL_ROWS];
    uint32_t amax[LN_PANEL_ROWS];
    panel_amax(x, apart, n, cols, amax);
    for (int64_t i = 0; i < n; i++) {
        ln_i8pair_scale(amax[i], bits, &terms[i].u, &by[i]);
        if (!(by[i] > 0)) return false;
    }
    if (bits == 4) split_panel(x, apart, n, cols, 4, by, to, pitch, terms);
    else if (bits == 8) split_panel(x, apart, n, cols, 8, by, to, pitch, terms);
    else split_panel(x, apart, n, cols, bits, by, to, pitch, terms);
    for (int64_t i = 0; i < n; i++)
        memcpy(ln_arg_i8pair(&c->out[0], r + i).terms, &terms[i], sizeof terms[i]);
    return true;
}
#endif
/* In panels digits may take the place of the elements they are made of: a line is stored when those of its
 * columns are loaded, the row sums when no element is needed any more. */
static void i8pair_convert_run(const ln_call *c) {
    const int bits = c->node->p.convert.to.bits;
    const ln_arg *x = &c->in[0];
    PARTITION_ROWS(c, lo, hi);
    if (!ln_arg_in_panels(x)) {
        for (int64_t r = lo; r < hi; r++)
            split_row(row_in(c, 0, r), LN_PANEL_COLS, x->pitch, x->cols, bits,
                      row_amax(row_in(c, 0, r), LN_PANEL_COLS, x->cols), ln_arg_i8pair(&c->out[0], r));
        return;
    }
    for (int64_t r = lo; r < hi; r++) {
        const int64_t first = r - r % LN_PANEL_ROWS,
                      of_panel = LN_MIN(x->rows - first, (int64_t)LN_PANEL_ROWS),
                      apart = LN_PANEL_COLS * of_panel;
        const float *row = (const float *)x->data + ln_panel_at(x->rows, x->pitch, r, 0);
#ifdef LN_HAS_PACK_I8
        const int64_t n = (LN_MIN(hi, first + of_panel) - r) / PANEL_UNROLL * PANEL_UNROLL;
        if (x->cols % 64 == 0 && n && split_panel_rows(c, r, n, row, apart, bits)) {
            r += n - 1;
            continue;
        }
#endif
        split_row(row, apart, 0, x->cols, bits, row_amax(row, apart, x->cols), ln_arg_i8pair(&c->out[0], r));
    }
}
