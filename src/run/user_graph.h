/* Graphs that a caller builds value by value: evaluation, gradients, vector-Jacobian and Jacobian-vector
 * products, AdamW (the functions ln_graph_* of linnet.h, whose contracts hold here too).
 *
 * All values are matrices [rows, cols] of f32 in constant sizes. The graph that the caller builds is kept as
 * it is; each derivative that is asked for is a program of its own, a copy of the graph with the nodes of
 * that derivative, prepared at its first use and kept. */
#ifndef LN_USER_GRAPH_H
#define LN_USER_GRAPH_H

#include "../graph/grad.h"
#include "adamw.h"
#include "run.h"

typedef struct ln_user_graph ln_user_graph;
typedef enum ln_user_op {
    LN_USER_ADD,
    LN_USER_SUB,
    LN_USER_MUL,
    LN_USER_DIV,
    LN_USER_MATMUL,
    LN_USER_MATMUL_NT,
    LN_USER_MATMUL_TN,
    LN_USER_CONCAT,
    LN_USER_BINARY_CROSS_ENTROPY,
    LN_USER_MSE,
    LN_USER_CROSS_ENTROPY,
    LN_USER_SUM,
    LN_USER_MEAN,
    LN_USER_SQUARE,
    LN_USER_SILU,
    LN_USER_GELU,
    LN_USER_SOFTMAX,
    LN_USER_RELU,
    LN_USER_TANH,
    LN_USER_SIGMOID,
    LN_USER_EXP,
    LN_USER_LOG,
    LN_USER_SQRT,
    LN_USER_ROW_SUMS,
    LN_USER_COLUMN_SUMS,
    LN_USER_TRANSPOSE,
    LN_USER_ROWS
} ln_user_op;

ln_status ln_user_graph_open(ln_user_graph **out, const ln_run_options *opt, ln_error *err);
void ln_user_graph_close(ln_user_graph **u);

/* Builders return the number of a value, -1 after a failure. The first failure is kept, and every later call
 * returns it. b is not read of ops with one operand. */
int32_t ln_user_graph_bound(ln_user_graph *u, bool trainable, int64_t rows, int64_t cols);
int32_t ln_user_graph_labels(ln_user_graph *u, int64_t rows);
int32_t ln_user_graph_op(ln_user_graph *u, ln_user_op op, int32_t a, int32_t b);
int32_t ln_user_graph_scale(ln_user_graph *u, int32_t a, float by);
int32_t ln_user_graph_clamp(ln_user_graph *u, int32_t a, float low, float high);
int32_t ln_user_graph_slice(ln_user_graph *u, int32_t a, int64_t at, int64_t cols);
int32_t ln_user_graph_reshape(ln_user_graph *u, int32_t a, int64_t rows, int64_t cols);
int32_t ln_user_graph_spread(ln_user_graph *u, int32_t a, int64_t rows, int64_t cols);
int32_t ln_user_graph_rmsnorm(ln_user_graph *u, int32_t a, int32_t weight, float eps); /* weight -1: none */
int32_t ln_user_graph_masked_cross_entropy(ln_user_graph *u, int32_t logits, int32_t labels, int32_t mask);

void ln_user_graph_checkpoint(ln_user_graph *u);

/* Data of inputs, trainables and labels. */
ln_status ln_user_graph_set(ln_user_graph *u, int32_t value, const float *data, ln_error *err);
ln_status ln_user_graph_set_labels(ln_user_graph *u, int32_t value, const int32_t *ids, ln_error *err);
ln_status ln_user_graph_get(ln_user_graph *u, int32_t value, float *out, ln_error *err);

/* value: y as [rows, cols], or NULL. cotangent NULL: ones, for a scalar y only. */
ln_status ln_user_graph_grad(ln_user_graph *u, int32_t y, const float *cotangent, const int32_t *wrt,
                             size_t n, float *value, float *const *grads, ln_error *err);
ln_status ln_user_graph_jvp(ln_user_graph *u, int32_t y, const int32_t *wrt, const float *const *tangents,
                            size_t n, float *value, float *tangent, ln_error *err);
ln_status ln_user_graph_adamw(ln_user_graph *u, const ln_adamw_rates *rates, const int32_t *params,
                              const float *const *grads, size_t n, ln_error *err);
void ln_user_graph_adamw_reset(ln_user_graph *u);

#endif
