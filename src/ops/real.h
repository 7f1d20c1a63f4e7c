/* The one number type of the reference kernels. Each source file of ops/ is compiled twice, with LN_REAL_FLOAT and with
 * LN_REAL_DOUBLE; LN_REAL(name) gives the two copies names of their own. Shape rules and costs belong to neither arithmetic
 * and are compiled once, under LN_REAL_FLOAT. */
#ifndef LN_REAL_H
#define LN_REAL_H

#include "ops.h"

#ifdef LN_REAL_DOUBLE
typedef double real;
#define LN_REAL(name) name##_double
#define real_fma fma
#define real_sqrt sqrt
#define real_exp ln_exp64
static inline real real_silu(real x) { return x / (1 + ln_exp64(-x)); }
static inline real real_gelu_tanh(real x) { return 0.5 * x * (1 + ln_tanh64(0.7978845608028654 * fma(0.044715 * x * x, x, x))); }
#else
typedef float real;
#define LN_REAL(name) name##_float
#define real_fma fmaf
#define real_sqrt sqrtf
#define real_exp ln_expf
#define real_silu ln_siluf
#define real_gelu_tanh ln_gelu_tanhf
#endif

/* One number of a weight as stored, at any alignment. */
static inline real real_load(const void *data, ln_dtype dtype, int64_t i) { return (real)ln_num_load(data, dtype, i); }
static inline real real_round_bf16(real x) { return (real)ln_bf16_f32(ln_f32_bf16((float)x)); }
static inline real *real_row(const ln_arg *a, int64_t r) { return (real *)a->data + r * a->pitch; }
/* A number as output 0 of an op that ROUNDS stores it. */
static inline real real_stored(const ln_call *c, real x) { return c->out[0].bf16 ? real_round_bf16(x) : x; }

/* Sums 16 lanes in halves: the order that every fast kernel repeats. */
static inline real real_lanes_sum(const real lane[16]) {
    real s[16];
    memcpy(s, lane, sizeof s);
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++) s[l] = s[l] + s[l + half];
    return s[0];
}

/* The rows of this thread's share. */
#define LN_MY_ROWS(c, n, lo, hi)                                                                                                         \
    int64_t lo, hi;                                                                                                                      \
    ln_share_rows((c), (n), &lo, &hi)
static inline void ln_share_rows(const ln_call *c, int64_t n, int64_t *lo, int64_t *hi) {
    *lo = n * c->thread / c->n_threads;
    *hi = n * (c->thread + 1) / c->n_threads;
}

/* Each op group's kernels, as the tables list them. */
#define LN_KERNEL(name) void LN_REAL(name)(const ln_call *c)
LN_KERNEL(ln_ref_embed);
LN_KERNEL(ln_ref_embed_q);
LN_KERNEL(ln_ref_linear);
LN_KERNEL(ln_ref_linear_q);
LN_KERNEL(ln_ref_fixed);
LN_KERNEL(ln_ref_linear_fixed);
LN_KERNEL(ln_ref_fixed_row);
LN_KERNEL(ln_ref_linear_fixed_row);
LN_KERNEL(ln_ref_linear_fixed_row_swiglu);
LN_KERNEL(ln_ref_linear_fixed_row_geglu);
LN_KERNEL(ln_ref_linear_swiglu);
LN_KERNEL(ln_ref_linear_geglu);
LN_KERNEL(ln_ref_rmsnorm);
LN_KERNEL(ln_ref_add);
LN_KERNEL(ln_ref_mul);
LN_KERNEL(ln_ref_silu);
LN_KERNEL(ln_ref_gelu_tanh);
LN_KERNEL(ln_ref_swiglu);
LN_KERNEL(ln_ref_geglu);
LN_KERNEL(ln_ref_rope_table);
LN_KERNEL(ln_ref_rope);
LN_KERNEL(ln_ref_round_bf16);
LN_KERNEL(ln_ref_kv_write);
LN_KERNEL(ln_ref_attn_paged);
LN_KERNEL(ln_ref_gather_rows);

/* Shape rules and costs, by op. */
typedef ln_status ln_shape_fn(ln_graph *g, ln_node *n, ln_error *err);
typedef void ln_cost_fn(const ln_graph *g, const ln_node *n, const ln_bounds *b, double *flops, double *bytes);
ln_shape_fn ln_shape_embed, ln_shape_embed_q, ln_shape_linear, ln_shape_linear_q, ln_shape_fixed, ln_shape_linear_fixed, ln_shape_fixed_row, ln_shape_linear_fixed_row,
    ln_shape_linear_fixed_row_swiglu, ln_shape_linear_fixed_row_geglu, ln_shape_linear_swiglu, ln_shape_linear_geglu, ln_shape_rmsnorm, ln_shape_add, ln_shape_mul,
    ln_shape_silu, ln_shape_gelu_tanh, ln_shape_swiglu, ln_shape_geglu, ln_shape_rope_table, ln_shape_rope, ln_shape_round_bf16, ln_shape_kv_write, ln_shape_attn_paged,
    ln_shape_gather_rows;

#ifdef LN_REAL_FLOAT
/* For shape rules: the operand, its last dimension, and the messages. */
static inline const ln_value *ln_in(const ln_graph *g, const ln_node *n, int i) { return &g->values[n->in[i]]; }
static inline int64_t ln_cols(const ln_value *v) { return v->dims[v->n_dims - 1]; }
ln_status ln_shape_fail(const ln_graph *g, const ln_node *n, ln_error *err, const char *rule);
/* Output 0 has the rows of input 0 and `cols` columns. */
void ln_shape_like(ln_graph *g, const ln_node *n, int64_t rows, int64_t cols);
#endif

#endif
