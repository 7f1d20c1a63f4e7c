/* Pools hidden states in the ways of sentence-transformers, and applies Normalize, Dense and LayerNorm
 * modules. The weights of modules are read where their files are mapped. */
#include "embed_pool.h"

#include <math.h>
#include <string.h>

ln_status embed_pool_open(embed_pool *p, const ln_emb_files *f, const ln_pooling *ways, size_t n_ways,
                          int64_t width, ln_error *err) {
    int64_t n = (int64_t)n_ways * width, most = n;
    *p = (embed_pool){.ways = ways, .n_ways = n_ways, .width = width};
    for (size_t i = 0; i < f->n_modules; i++) {
        if (f->modules[i].n_in != n)
            return ln_fail(err, LN_EUSAGE,
                           "ln_embed_options.pooling: expected %lld values for the modules of this model, "
                           "found a way of pooling that gives %lld",
                           (long long)f->modules[i].n_in, (long long)n);
        n = f->modules[i].n_out;
        most = LN_MAX(most, n);
    }
    p->values = ln_zalloc((size_t)most, sizeof *p->values);
    p->scratch = ln_zalloc((size_t)most, sizeof *p->scratch);
    return p->values && p->scratch ? LN_OK : LN_OOM(err, "what embedding needs");
}

void embed_pool_close(embed_pool *p) {
    ln_free(p->values);
    ln_free(p->scratch);
    *p = (embed_pool){0};
}

int64_t embed_pool_first(const embed_pool *p, int64_t n) {
    return p->n_ways == 1 && p->ways[0] == LN_POOLING_LAST ? n - 1 : 0;
}

void embed_pool_begin(embed_pool *p, int64_t skip) {
    p->skip = skip;
    p->n = 0;
    p->weights = 0;
}

/* ---- pooling ---- */

static void add_to(double *sum, const float *x, int64_t n, double weight, bool first) {
    for (int64_t i = 0; i < n; i++) sum[i] = (first ? 0 : sum[i]) + weight * (double)x[i];
}

void embed_pool_add(embed_pool *p, int64_t t, const float *x) {
    if (t < p->skip) return;
    const bool first = p->n == 0;
    for (size_t k = 0; k < p->n_ways; k++) {
        double *v = p->values + (int64_t)k * p->width;
        switch (p->ways[k]) {
        case LN_POOLING_CLS:
            if (first) add_to(v, x, p->width, 1, true);
            break;
        case LN_POOLING_MAX:
            for (int64_t i = 0; i < p->width; i++)
                if (first || !((double)x[i] <= v[i])) v[i] = (double)x[i]; /* NaN stays */
            break;
        case LN_POOLING_WEIGHTED_MEAN: add_to(v, x, p->width, (double)(t + 1), first); break;
        case LN_POOLING_MEAN:
        case LN_POOLING_MEAN_SQRT_LEN: add_to(v, x, p->width, 1, first); break;
        default: add_to(v, x, p->width, 1, true); /* the last one stays */
        }
    }
    p->n++;
    p->weights += (double)(t + 1);
}

static void pool(embed_pool *p) {
    for (size_t k = 0; k < p->n_ways; k++) {
        double *v = p->values + (int64_t)k * p->width, by = 1;
        if (p->ways[k] == LN_POOLING_MEAN) by = (double)p->n;
        if (p->ways[k] == LN_POOLING_MEAN_SQRT_LEN) by = sqrt((double)p->n);
        if (p->ways[k] == LN_POOLING_WEIGHTED_MEAN) by = p->weights;
        for (int64_t i = 0; by != 1 && i < p->width; i++) v[i] /= by;
    }
}

/* ---- modules ---- */

/* Reads n values of a tensor, from element `at` on. */
static void read_values(const ln_tensor *t, int64_t at, int64_t n, float *out) {
    const uint8_t *from = t->data + (size_t)at * (t->dtype == LN_ST_F32 ? 4 : 2);
    if (t->dtype == LN_ST_F32) {
        memcpy(out, from, (size_t)n * sizeof *out);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, from + 2 * i, 2);
        out[i] = t->dtype == LN_ST_F16 ? ln_f16_f32(half) : ln_bits_f32((uint32_t)half << 16);
    }
}

/* The product of row `row` of a matrix of n columns with x: eight sums, so that it can be vectorised. */
static double product(const ln_tensor *t, int64_t row, const double *x, int64_t n) {
    enum { PART = 512, LANES = 8 };
    float w[PART];
    double sums[LANES] = {0};
    for (int64_t at = 0; at < n; at += PART) {
        const int64_t m = LN_MIN(n - at, (int64_t)PART), whole = m / LANES * LANES;
        read_values(t, row * n + at, m, w);
        for (int64_t i = 0; i < whole; i += LANES)
            for (int k = 0; k < LANES; k++) sums[k] += (double)w[i + k] * x[at + i + k];
        for (int64_t i = whole; i < m; i++) sums[i - whole] += (double)w[i] * x[at + i];
    }
    return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

/* The error function: 2 / sqrt(pi) exp(-x^2) sum of x (2 x^2)^k / (1 3 5 ... (2 k + 1)), whose terms have one
 * sign. */
static double error_function(double x) {
    double term = x, sum = x;
    if (!(x > -6 && x < 6)) return x < 0 ? -1 : x > 0 ? 1 : x;
    for (int k = 1; k < 400 && fabs(term) > fabs(sum) * 0x1p-54; k++) {
        term *= 2 * x * x / (2 * k + 1);
        sum += term;
    }
    return 0x1.20dd750429b6dp0 * ln_exp64(-x * x) * sum;
}

static double activate(ln_emb_activation a, double x) {
    switch (a) {
    case LN_EMB_TANH: return ln_tanh64(x);
    case LN_EMB_RELU: return x < 0 ? 0 : x;
    case LN_EMB_SIGMOID: return 1 / (1 + ln_exp64(-x));
    case LN_EMB_SILU: return x / (1 + ln_exp64(-x));
    case LN_EMB_GELU: return 0.5 * x * (1 + error_function(x * 0x1.6a09e667f3bcdp-1));
    default: return x;
    }
}

static double value_at(const ln_tensor *t, int64_t i) {
    float v;
    read_values(t, i, 1, &v);
    return (double)v;
}

static void dense(const ln_emb_module *m, const double *x, double *y) {
    for (int64_t j = 0; j < m->n_out; j++) {
        const double sum = product(m->weight, j, x, m->n_in) + (m->bias ? value_at(m->bias, j) : 0);
        y[j] = activate(m->activation, sum);
        if (m->adds_input) y[j] += m->residual ? product(m->residual, j, x, m->n_in) : x[j];
    }
}

static void layer_norm(const ln_emb_module *m, const double *x, double *y) {
    const double n = (double)m->n_in;
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < m->n_in; i++) mean += x[i] / n;
    for (int64_t i = 0; i < m->n_in; i++) squares += (x[i] - mean) * (x[i] - mean) / n;
    const double by = sqrt(squares + 1e-5); /* PyTorch's epsilon */
    for (int64_t i = 0; i < m->n_in; i++)
        y[i] = (x[i] - mean) / by * value_at(m->weight, i) + value_at(m->bias, i);
}

static void normalise(const double *x, double *y, int64_t n) {
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += x[i] * x[i];
    const double length = LN_MAX(sqrt(squares), 1e-12); /* PyTorch's epsilon */
    for (int64_t i = 0; i < n; i++) y[i] = x[i] / length;
}

ln_status embed_pool_finish(embed_pool *p, const ln_emb_files *f, ln_error *err) {
    if (p->n == 0)
        return ln_fail(err, LN_EINVALID,
                       "the text has no token after its prompt, which this model does not pool; give some "
                       "text");
    pool(p);
    for (size_t i = 0; i < f->n_modules; i++) {
        const ln_emb_module *m = &f->modules[i];
        double *from = p->values;
        if (m->kind == LN_EMB_DENSE) dense(m, from, p->scratch);
        else if (m->kind == LN_EMB_LAYER_NORM) layer_norm(m, from, p->scratch);
        else normalise(from, p->scratch, m->n_in);
        p->values = p->scratch;
        p->scratch = from;
    }
    return LN_OK;
}
