/* Row-wise ops of mixtures of experts and bounds, with the bits of the reference (ops/route_op.c). Part of
 * rowwise.inc.h. */

#define real                      float
#define real_exp                  ln_expf
#define real_load(data, dtype, i) ln_num_load(data, dtype, i)
#include "../../../ops/route_row.h"
#undef real
#undef real_exp
#undef real_load

static void route_run(const ln_call *c) {
    const ln_arg *logits = &c->in[0];
    const ln_p_route *p = &c->node->p.route;
    const ln_arg *bias = p->biased ? &c->in[1] : NULL, *scale = p->scaled ? &c->in[1 + p->biased] : NULL;
    int64_t lo, hi;
    ln_partition(logits->rows, 1, c->thread, c->n_threads, &lo, &hi);
    for (int64_t r = lo; r < hi; r++)
        route_row(p, bias, scale, row_in(c, 0, r), logits->cols, (float *)c->out[0].data + r * p->top_k,
                  (float *)c->out[1].data + r * p->top_k);
}

/* Whole vectors of the sum of n rows, in registers; the rest of the columns one by one. */
static void fold_rows_run(const ln_call *c) {
    const int n = c->node->p.fold.n;
    const int64_t cols = c->out[0].cols, pitch = c->in[0].pitch;
    const float *s = c->node->n_in > 1 ? c->in[1].data : NULL;
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const float *x = row_in(c, 0, r * n);
        float *y = row_out(c, r);
        int64_t i = 0;
        for (; i + VL <= cols; i += VL) {
            vf sum = vf_zero();
            for (int k = 0; k < n; k++) {
                const vf a = vf_load(x + k * pitch + i);
                sum = s ? vf_fma(vf_set1(s[r * n + k]), a, sum) : vf_add(sum, a);
            }
            vf_store(y + i, sum);
        }
        for (; i < cols; i++) {
            float sum = 0;
            for (int k = 0; k < n; k++)
                sum = s ? fmaf(s[r * n + k], x[k * pitch + i], sum) : sum + x[k * pitch + i];
            y[i] = sum;
        }
    }
}

static void clamp_run(const ln_call *c) {
    const float low = c->node->p.clamp.low, high = c->node->p.clamp.high;
    const bool back = c->node->n_in > 1;
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const float *a = row_in(c, 0, r), *b = row_in(c, back ? 1 : 0, r);
        float *y = row_out(c, r);
#pragma GCC ivdep
        for (int64_t i = 0; i < c->out[0].cols; i++) {
            const float f = a[i] < low ? low : a[i] > high ? high : a[i];
            y[i] = !back ? f : f == a[i] ? b[i] : 0;
        }
    }
}
