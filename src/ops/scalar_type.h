/* The scalar type of the reference kernels. Each source file of ops/ is compiled twice, with LN_REAL_FLOAT
 * and with LN_REAL_DOUBLE; LN_REAL(name) gives the functions of the two copies distinct names. Shape rules
 * and costs do not depend on the scalar type and are compiled once, under LN_REAL_FLOAT. */
#ifndef LN_SCALAR_TYPE_H
#define LN_SCALAR_TYPE_H

#include "../graph/graph.h"
#include "ops.h"

#ifdef LN_REAL_DOUBLE
typedef double real;
#define LN_REAL(name) name##_double
#define real_fma      fma
#define real_sqrt     sqrt
#define real_exp      ln_exp64
#define real_log      ln_log64
#define real_tanh     ln_tanh64
static inline real real_silu(real x) { return x / (1 + ln_exp64(-x)); }
static inline real real_gelu_tanh(real x) {
    return 0.5 * x * (1 + ln_tanh64(0.7978845608028654 * fma(0.044715 * x * x, x, x)));
}
#else
typedef float real;
#define LN_REAL(name)  name##_float
#define real_fma       fmaf
#define real_sqrt      sqrtf
#define real_exp       ln_expf
#define real_log(x)    ((float)ln_log64((double)(x)))
#define real_tanh      ln_tanhf
#define real_silu      ln_siluf
#define real_gelu_tanh ln_gelu_tanhf
#endif

static inline real real_act(ln_act act, real x) {
    return act == LN_ACT_SILU ? real_silu(x) : real_gelu_tanh(x);
}
/* A score of attention, scaled; cap 0: as it is. */
static inline real real_capped(real s, float cap) {
    return cap > 0 ? real_tanh(s / (real)cap) * (real)cap : s;
}

/* Element i of a weight in its storage format, at any alignment. */
static inline real real_load(const void *data, ln_dtype dtype, int64_t i) {
    return (real)ln_num_load(data, dtype, i);
}
static inline real real_round_bf16(real x) { return (real)ln_bf16_f32(ln_f32_bf16((float)x)); }
static inline real *real_row(const ln_arg *a, int64_t r) { return (real *)a->data + r * a->pitch; }
/* An element of output 0 of a ROUNDS op as it is stored: rounded to bf16 if the output is bf16-valued. */
static inline real real_stored(const ln_call *c, real x) {
    return ln_arg_is_bf16(&c->out[0]) ? real_round_bf16(x) : x;
}

/* Pairwise (tree) reduction of 16 lanes, in the order that every fast kernel repeats: l + (l+8), then +4, +2,
 * +1. */
static inline real real_lanes_sum(const real lane[16]) {
    real s[16];
    memcpy(s, lane, sizeof s);
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++) s[l] = s[l] + s[l + half];
    return s[0];
}

/* Declares lo and hi: the rows [lo, hi) of n that belong to this call's partition. */
#define LN_MY_ROWS(c, n, lo, hi) \
    int64_t lo, hi;              \
    ln_partition_rows((c), (n), &lo, &hi)
static inline void ln_partition_rows(const ln_call *c, int64_t n, int64_t *lo, int64_t *hi) {
    *lo = n * c->thread / c->n_threads;
    *hi = n * (c->thread + 1) / c->n_threads;
}

/* The reference kernels: one for each op or, where its variants differ (ln_kernel_table), one for each of
 * those. */
#define LN_KERNEL(name) void LN_REAL(name)(const ln_call *c)
LN_KERNEL(ln_ref_embed_dense);
LN_KERNEL(ln_ref_embed_affine);
LN_KERNEL(ln_ref_embed_coded);
#define LN_PRODUCT(NAME, x, w, kernel, x_unit, w_unit, rest, formula) \
    LN_KERNEL(ln_ref_linear_##NAME);                                  \
    LN_KERNEL(ln_ref_linear_gated_##NAME);                            \
    LN_KERNEL(ln_ref_experts_##NAME);
#include "../quant/formats.def"
#undef LN_PRODUCT
LN_KERNEL(ln_ref_convert_bf16);
LN_KERNEL(ln_ref_convert_bfp);
LN_KERNEL(ln_ref_convert_i8pair);
LN_KERNEL(ln_ref_rmsnorm);
LN_KERNEL(ln_ref_add);
LN_KERNEL(ln_ref_mul);
LN_KERNEL(ln_ref_silu);
LN_KERNEL(ln_ref_gelu_tanh);
LN_KERNEL(ln_ref_relu2);
LN_KERNEL(ln_ref_xielu);
LN_KERNEL(ln_ref_xielu_back);
LN_KERNEL(ln_ref_sigmoid);
LN_KERNEL(ln_ref_softcap);
LN_KERNEL(ln_ref_centre);
LN_KERNEL(ln_ref_slice);
LN_KERNEL(ln_ref_gated);
LN_KERNEL(ln_ref_rope_table);
LN_KERNEL(ln_ref_rope);
LN_KERNEL(ln_ref_pos_scale);
LN_KERNEL(ln_ref_kv_write);
LN_KERNEL(ln_ref_attn_paged);
LN_KERNEL(ln_ref_short_conv);
LN_KERNEL(ln_ref_delta_gates);
LN_KERNEL(ln_ref_gated_delta);
size_t LN_REAL(ln_ref_delta_scratch)(const ln_program *p, const ln_pnode *n, const ln_bounds *b);
LN_KERNEL(ln_ref_gather_rows);
LN_KERNEL(ln_ref_load);
LN_KERNEL(ln_ref_matmul_nt);
LN_KERNEL(ln_ref_matmul_nn);
LN_KERNEL(ln_ref_matmul_tn);
LN_KERNEL(ln_ref_linear_back);
LN_KERNEL(ln_ref_scale);
LN_KERNEL(ln_ref_scale_rows);
LN_KERNEL(ln_ref_sum);
LN_KERNEL(ln_ref_spread);
LN_KERNEL(ln_ref_softmax);
LN_KERNEL(ln_ref_softmax_back);
LN_KERNEL(ln_ref_nll);
LN_KERNEL(ln_ref_nll_back);
LN_KERNEL(ln_ref_act_back);
LN_KERNEL(ln_ref_rmsnorm_back);
LN_KERNEL(ln_ref_rmsnorm_dw);
LN_KERNEL(ln_ref_rope_back);
LN_KERNEL(ln_ref_embed_back);
LN_KERNEL(ln_ref_scatter_rows);
LN_KERNEL(ln_ref_slice_back);
LN_KERNEL(ln_ref_pointwise);
LN_KERNEL(ln_ref_reshape);
LN_KERNEL(ln_ref_attn);
LN_KERNEL(ln_ref_attn_back);
LN_KERNEL(ln_ref_conv);
LN_KERNEL(ln_ref_delta_gates_back);
LN_KERNEL(ln_ref_delta);
LN_KERNEL(ln_ref_delta_back);
size_t LN_REAL(ln_ref_packed_delta_scratch)(const ln_program *p, const ln_pnode *n, const ln_bounds *b);
LN_KERNEL(ln_ref_linear_cross_entropy);
LN_KERNEL(ln_ref_dropout);
LN_KERNEL(ln_ref_clamp);
LN_KERNEL(ln_ref_route);
LN_KERNEL(ln_ref_route_back);
LN_KERNEL(ln_ref_fold_rows);
LN_KERNEL(ln_ref_repeat_rows);
LN_KERNEL(ln_ref_experts_back);
LN_KERNEL(ln_ref_lora_down);
LN_KERNEL(ln_ref_lora_up);
LN_KERNEL(ln_ref_all_gather);
size_t LN_REAL(ln_ref_gather_scratch)(const ln_program *p, const ln_pnode *n, const ln_bounds *b);

/* Shape rules and costs, one for each op. */
#define LN_OP(E, name, lo, hi, out, params, props, grad, formula) \
    ln_shape_fn ln_shape_##name;                                  \
    ln_cost_fn ln_cost_##name;
#include "../graph/ops.def"
#undef LN_OP

/* Gradients (ln_grad_fn), of the ops that have one. */
ln_grad_fn ln_grad_embed, ln_grad_linear, ln_grad_rmsnorm, ln_grad_add, ln_grad_mul, ln_grad_silu,
    ln_grad_gelu_tanh, ln_grad_relu2, ln_grad_xielu, ln_grad_sigmoid, ln_grad_softcap, ln_grad_centre,
    ln_grad_rope, ln_grad_gather_rows, ln_grad_load, ln_grad_matmul, ln_grad_linear_back, ln_grad_scale,
    ln_grad_scale_rows, ln_grad_sum, ln_grad_spread, ln_grad_softmax, ln_grad_nll, ln_grad_rope_back,
    ln_grad_scatter_rows, ln_grad_attn, ln_grad_conv, ln_grad_delta, ln_grad_delta_gates,
    ln_grad_linear_cross_entropy, ln_grad_dropout, ln_grad_slice, ln_grad_slice_back, ln_grad_clamp,
    ln_grad_route, ln_grad_experts, ln_grad_experts_back, ln_grad_fold_rows, ln_grad_repeat_rows,
    ln_grad_pointwise, ln_grad_reshape;

#ifdef LN_REAL_FLOAT
/* For shape rules: operand i, and its last dimension. */
static inline const ln_value *ln_in(const ln_graph *g, const ln_node *n, int i) {
    return &g->values[n->in[i]];
}
/* Whether the elements are floating-point numbers, in f32 or rounded to bf16. */
static inline bool ln_is_float(const ln_value *v) {
    return v->dtype == LN_F32 && v->format.kind <= LN_FORMAT_BF16;
}
/* Whether v is a matrix, or a vector, of constant size and floating-point or encoded elements, of any kind.
 */
static inline bool ln_is_matrix(const ln_value *v) {
    return v->n_dims == 2 && v->dims[0] > 0 && v->format.kind <= LN_FORMAT_BF16 &&
           ln_encoding_fits(v->enc, v->dims[1]);
}
/* Whether v is the matrices [X,D,C] of experts. */
static inline bool ln_is_experts(const ln_value *v) {
    return v->n_dims == 3 && v->dims[0] > 0 && v->dims[1] > 0 && v->format.kind <= LN_FORMAT_BF16 &&
           ln_encoding_fits(v->enc, v->dims[2]);
}
static inline bool ln_is_vector(const ln_value *v) {
    return v->n_dims == 1 && v->dims[0] > 0 && v->format.kind <= LN_FORMAT_BF16;
}
static inline int64_t ln_cols(const ln_value *v) { return v->dims[v->n_dims - 1]; }
ln_status ln_shape_fail(const ln_graph *g, const ln_node *n, ln_error *err, const char *rule);
/* The cost of an op that reads and writes each of its operands once and does nothing that is worth counting.
 */
ln_cost ln_cost_of_operands(const ln_program *p, const ln_pnode *n, const ln_bounds *live);
/* The same and n_products products of the first operand with the second: 2 operations for each row, column
 * and output of each. */
ln_cost ln_cost_of_products(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int n_products);
#define LN_COST_OF_OPERANDS(name)                                                                          \
    ln_cost ln_cost_##name(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) { \
        (void)depth;                                                                                       \
        return ln_cost_of_operands(p, n, live);                                                            \
    }
/* Makes an output an f32 temp [rows, cols]. */
void ln_shape_like(ln_value *y, int64_t rows, int64_t cols);
/* Makes an output the next version of a state, or of a trainable. */
void ln_shape_version(ln_value *y, const ln_value *state);
#endif

#endif
