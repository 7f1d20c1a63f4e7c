/* Graphs that a caller builds, behind handles (run/user_graph.h). */
#include "../run/user_graph.h"
#include "check.h"
#include "../args/handle.h"

#include <math.h>

static void free_graph(void *object) {
    ln_user_graph *own = object;
    ln_user_graph_close(&own);
}

ln_status ln_graph_new(ln_graph **out, const ln_options *opt, ln_error *err) {
    ln_options o;
    ln_user_graph *u;
    void *handle = NULL;
    ARG(out, "out must not be NULL");
    *out = NULL;
    LN_TRY(ln_api_options(opt, &o, err));
    const ln_run_options run = {.device = o.device, .n_threads = o.n_threads ? o.n_threads : ln_cores()};
    LN_TRY(ln_user_graph_open(&u, &run, err));
    ln_status st =
        ln_handle_new(LN_HANDLE_GRAPH, &(ln_handle_object){.object = u, .free = free_graph}, &handle, err);
    if (st != LN_OK) ln_user_graph_close(&u);
    *out = handle;
    return st;
}
void ln_graph_free(ln_graph **graph) {
    ENTER;
    if (!graph) return;
    ln_handle_close(LN_HANDLE_GRAPH, *graph);
    *graph = NULL;
}

/* The graph behind a handle, for a builder; NULL: there is none. ln_handle_done follows. */
static ln_user_graph *use(const ln_graph *graph) {
    void *u;
    return ln_handle_use(LN_HANDLE_GRAPH, graph, &u, ln_api_error(NULL)) == LN_OK ? u : NULL;
}
static int32_t done(const ln_graph *graph, int32_t value) {
    ln_handle_done(graph);
    return value;
}
int32_t ln_graph_input(ln_graph *graph, int64_t rows, int64_t cols) {
    ENTER;
    ln_user_graph *u = use(graph);
    return u ? done(graph, ln_user_graph_bound(u, false, rows, cols)) : -1;
}
int32_t ln_graph_trainable(ln_graph *graph, int64_t rows, int64_t cols) {
    ENTER;
    ln_user_graph *u = use(graph);
    return u ? done(graph, ln_user_graph_bound(u, true, rows, cols)) : -1;
}
int32_t ln_graph_labels(ln_graph *graph, int64_t rows) {
    ENTER;
    ln_user_graph *u = use(graph);
    return u ? done(graph, ln_user_graph_labels(u, rows)) : -1;
}
static int32_t op(ln_graph *graph, ln_user_op kind, int32_t a, int32_t b) {
    ENTER;
    ln_user_graph *u = use(graph);
    return u ? done(graph, ln_user_graph_op(u, kind, a, b)) : -1;
}
int32_t ln_graph_add(ln_graph *graph, int32_t a, int32_t b) { return op(graph, LN_USER_ADD, a, b); }
int32_t ln_graph_sub(ln_graph *graph, int32_t a, int32_t b) { return op(graph, LN_USER_SUB, a, b); }
int32_t ln_graph_mul(ln_graph *graph, int32_t a, int32_t b) { return op(graph, LN_USER_MUL, a, b); }
int32_t ln_graph_div(ln_graph *graph, int32_t a, int32_t b) { return op(graph, LN_USER_DIV, a, b); }
int32_t ln_graph_exp(ln_graph *graph, int32_t a) { return op(graph, LN_USER_EXP, a, -1); }
int32_t ln_graph_log(ln_graph *graph, int32_t a) { return op(graph, LN_USER_LOG, a, -1); }
int32_t ln_graph_sqrt(ln_graph *graph, int32_t a) { return op(graph, LN_USER_SQRT, a, -1); }
int32_t ln_graph_matmul(ln_graph *graph, int32_t a, int32_t b) { return op(graph, LN_USER_MATMUL, a, b); }
int32_t ln_graph_mse(ln_graph *graph, int32_t a, int32_t b) { return op(graph, LN_USER_MSE, a, b); }
int32_t ln_graph_square(ln_graph *graph, int32_t a) { return op(graph, LN_USER_SQUARE, a, -1); }
int32_t ln_graph_silu(ln_graph *graph, int32_t a) { return op(graph, LN_USER_SILU, a, -1); }
int32_t ln_graph_gelu(ln_graph *graph, int32_t a) { return op(graph, LN_USER_GELU, a, -1); }
int32_t ln_graph_softmax(ln_graph *graph, int32_t a) { return op(graph, LN_USER_SOFTMAX, a, -1); }
int32_t ln_graph_sum(ln_graph *graph, int32_t a) { return op(graph, LN_USER_SUM, a, -1); }
int32_t ln_graph_mean(ln_graph *graph, int32_t a) { return op(graph, LN_USER_MEAN, a, -1); }
int32_t ln_graph_cross_entropy(ln_graph *graph, int32_t logits, int32_t labels) {
    return op(graph, LN_USER_CROSS_ENTROPY, logits, labels);
}
int32_t ln_graph_matmul_nt(ln_graph *graph, int32_t a, int32_t b) {
    return op(graph, LN_USER_MATMUL_NT, a, b);
}
int32_t ln_graph_matmul_tn(ln_graph *graph, int32_t a, int32_t b) {
    return op(graph, LN_USER_MATMUL_TN, a, b);
}
int32_t ln_graph_concat(ln_graph *graph, int32_t a, int32_t b) { return op(graph, LN_USER_CONCAT, a, b); }
int32_t ln_graph_rows(ln_graph *graph, int32_t table, int32_t labels) {
    return op(graph, LN_USER_ROWS, table, labels);
}
int32_t ln_graph_transpose(ln_graph *graph, int32_t a) { return op(graph, LN_USER_TRANSPOSE, a, -1); }
int32_t ln_graph_relu(ln_graph *graph, int32_t a) { return op(graph, LN_USER_RELU, a, -1); }
int32_t ln_graph_tanh(ln_graph *graph, int32_t a) { return op(graph, LN_USER_TANH, a, -1); }
int32_t ln_graph_sigmoid(ln_graph *graph, int32_t a) { return op(graph, LN_USER_SIGMOID, a, -1); }
int32_t ln_graph_row_sums(ln_graph *graph, int32_t a) { return op(graph, LN_USER_ROW_SUMS, a, -1); }
int32_t ln_graph_column_sums(ln_graph *graph, int32_t a) { return op(graph, LN_USER_COLUMN_SUMS, a, -1); }
int32_t ln_graph_binary_cross_entropy(ln_graph *graph, int32_t logits, int32_t targets) {
    return op(graph, LN_USER_BINARY_CROSS_ENTROPY, logits, targets);
}
int32_t ln_graph_clamp(ln_graph *graph, int32_t a, float low, float high) {
    ENTER;
    ln_user_graph *u = use(graph);
    return u ? done(graph, ln_user_graph_clamp(u, a, low, high)) : -1;
}
int32_t ln_graph_slice(ln_graph *graph, int32_t a, int64_t at, int64_t cols) {
    ENTER;
    ln_user_graph *u = use(graph);
    return u ? done(graph, ln_user_graph_slice(u, a, at, cols)) : -1;
}
int32_t ln_graph_reshape(ln_graph *graph, int32_t a, int64_t rows, int64_t cols) {
    ENTER;
    ln_user_graph *u = use(graph);
    return u ? done(graph, ln_user_graph_reshape(u, a, rows, cols)) : -1;
}
void ln_graph_checkpoint(ln_graph *graph) {
    ENTER;
    ln_user_graph *u = use(graph);
    if (!u) return;
    ln_user_graph_checkpoint(u);
    ln_handle_done(graph);
}
int32_t ln_graph_spread(ln_graph *graph, int32_t a, int64_t rows, int64_t cols) {
    ENTER;
    ln_user_graph *u = use(graph);
    return u ? done(graph, ln_user_graph_spread(u, a, rows, cols)) : -1;
}
int32_t ln_graph_rmsnorm(ln_graph *graph, int32_t a, int32_t weight, float eps) {
    ENTER;
    ln_user_graph *u = use(graph);
    return u ? done(graph, ln_user_graph_rmsnorm(u, a, weight, eps)) : -1;
}
int32_t ln_graph_scale(ln_graph *graph, int32_t a, float by) {
    ENTER;
    ln_user_graph *u = use(graph);
    return u ? done(graph, ln_user_graph_scale(u, a, by)) : -1;
}
int32_t ln_graph_masked_cross_entropy(ln_graph *graph, int32_t logits, int32_t labels, int32_t mask) {
    ENTER;
    ln_user_graph *u = use(graph);
    return u ? done(graph, ln_user_graph_masked_cross_entropy(u, logits, labels, mask)) : -1;
}

/* Runs a call on the graph behind a handle. */
#define CALL(call)                                               \
    void *object;                                                \
    LN_TRY(ln_handle_use(LN_HANDLE_GRAPH, graph, &object, err)); \
    ln_user_graph *u = object;                                   \
    const ln_status st = (call);                                 \
    ln_handle_done(graph);                                       \
    return st

ln_status ln_graph_set(ln_graph *graph, int32_t value, const float *data, ln_error *err) {
    ARG(data, "data must not be NULL");
    CALL(ln_user_graph_set(u, value, data, err));
}
ln_status ln_graph_set_labels(ln_graph *graph, int32_t value, const int32_t *labels, ln_error *err) {
    ARG(labels, "labels must not be NULL");
    CALL(ln_user_graph_set_labels(u, value, labels, err));
}
ln_status ln_graph_get(ln_graph *graph, int32_t value, float *out, ln_error *err) {
    ARG(out, "out must not be NULL");
    CALL(ln_user_graph_get(u, value, out, err));
}

static bool all_set(const void *const *list, size_t n) {
    bool set = list || !n;
    for (size_t i = 0; set && i < n; i++) set = list[i] != NULL;
    return set;
}
ln_status ln_graph_value_and_grad(ln_graph *graph, int32_t y, const int32_t *wrt, size_t n, float *value,
                                  float *const *grads, ln_error *err) {
    ARG((wrt || !n) && all_set((const void *const *)grads, n), "wrt and grads must not be NULL");
    CALL(ln_user_graph_grad(u, y, NULL, wrt, n, value, grads, err));
}
ln_status ln_graph_vjp(ln_graph *graph, int32_t y, const float *cotangent, const int32_t *wrt, size_t n,
                       float *value, float *const *grads, ln_error *err) {
    ARG(cotangent && (wrt || !n) && all_set((const void *const *)grads, n), "cotangent, wrt and grads must "
                                                                            "not be NULL");
    CALL(ln_user_graph_grad(u, y, cotangent, wrt, n, value, grads, err));
}
ln_status ln_graph_jvp(ln_graph *graph, int32_t y, const int32_t *wrt, const float *const *tangents, size_t n,
                       float *value, float *tangent, ln_error *err) {
    ARG(n && wrt && all_set((const void *const *)tangents, n), "wrt and tangents must not be NULL or empty");
    CALL(ln_user_graph_jvp(u, y, wrt, tangents, n, value, tangent, err));
}

ln_status ln_graph_adamw(ln_graph *graph, const ln_adamw *how, const int32_t *params,
                         const float *const *grads, size_t n, ln_error *err) {
    ln_adamw a = ln_adamw_default();
    ARG((params || !n) && all_set((const void *const *)grads, n), "params and grads must not be NULL");
    if (how) LN_TRY(ln_api_copy_sized(&a, sizeof a, how, "ln_adamw", err));
    if (!(a.lr >= 0) || !(a.beta1 >= 0 && a.beta1 < 1) || !(a.beta2 >= 0 && a.beta2 < 1) || !(a.eps > 0) ||
        !(a.weight_decay >= 0) || !isfinite(a.lr + a.eps + a.weight_decay))
        return ln_fail(err, LN_EUSAGE,
                       "ln_adamw: expected lr and weight_decay of 0 or more, beta1 and beta2 from 0 to below "
                       "1 "
                       "and eps above 0");
    const ln_adamw_rates rates = {a.lr, a.beta1, a.beta2, a.eps, a.weight_decay};
    CALL(ln_user_graph_adamw(u, &rates, params, grads, n, err));
}
ln_status ln_graph_adamw_reset(ln_graph *graph, ln_error *err) {
    ARG(true, "");
    CALL((ln_user_graph_adamw_reset(u), LN_OK));
}
