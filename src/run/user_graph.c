/* Graphs that a caller builds (contract: user_graph.h). */
#include "user_graph_parts.h"
#include "compile.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

static const ln_bounds one_row = {1, 1, 1};

ln_status ln_user_graph_open(ln_user_graph **out, const ln_run_options *opt, ln_error *err) {
    ln_status st = LN_OK;
    ln_user_graph *u = ln_zalloc(1, sizeof *u);
    *out = NULL;
    if (!u) return LN_OOM(err, "a graph");
    u->opt = *opt;
    if (!u->opt.device) u->opt.device = ln_device_auto(LN_CAN_GRADIENTS);
    ln_graph_open(&u->graph);
    ln_g_layer(&u->graph, 0, "");
    LN_GO(ln_pool_reserve(ln_run_pool(opt), opt->n_threads, err));
    LN_GO(ln_run_open_device(&u->opt, &u->ops, &u->dev, &u->info, err));
    const ln_queue_options queue = {.size = sizeof queue, .n_slots = 1, .n_blocks = 1};
    LN_GO(u->ops->queue_open(u->dev, &queue, &u->queue, err));
    const size_t bytes = (size_t)ln_step_bytes(&one_row, 0);
    u->step = ln_zalloc(1, bytes);
    if (!u->step) LN_GO(LN_OOM(err, "a step block"));
    ln_step_init(u->step, &one_row, 0);
    *out = u;
    return LN_OK;
out:
    ln_user_graph_close(&u);
    return st;
}

/* Bytes of input i of a program alone: those of a value of that shape. */
static size_t given_bytes(const program *p, size_t i) {
    const int64_t *dims = p->graph.values[p->kind == GRADIENT ? p->y : p->wrt[i]].dims;
    return (size_t)(dims[0] * dims[1]) * sizeof(float);
}
static void free_program(ln_user_graph *u, program *p) {
    if (p->exec) u->ops->release(&p->exec);
    if (p->temp) u->ops->free(u->dev, p->temp, (size_t)p->program.temp_bytes);
    for (size_t i = 0; p->given && i < LN_MAX(p->n_wrt, (size_t)1); i++) {
        if (p->device && p->device[i]) u->ops->free(u->dev, p->device[i], given_bytes(p, i));
        ln_free(p->given[i]);
    }
    ln_graph_close(&p->graph);
    ln_free(p->given);
    ln_free(p->device);
    ln_free(p->wrt);
    ln_free(p->out);
    ln_free(p);
}
void ln_user_graph_close(ln_user_graph **graph) {
    ln_user_graph *u = *graph;
    if (!u) return;
    for (program *p = u->programs, *next; p; p = next) next = p->next, free_program(u, p);
    for (size_t i = 0; i < u->n_bounds; i++) {
        if (u->bounds[i].device) u->ops->free(u->dev, u->bounds[i].device, (size_t)u->bounds[i].n * 4);
        ln_free(u->bounds[i].data);
        ln_free(u->bounds[i].m);
        ln_free(u->bounds[i].v);
    }
    if (u->queue) u->ops->queue_close(&u->queue);
    ln_device_release(&u->dev);
    ln_graph_close(&u->graph);
    ln_free(u->bounds);
    ln_free(u->step);
    ln_free(u);
    *graph = NULL;
}

/* ---- building ---- */

static const char *name_of(const ln_user_graph *u, char out[24]) {
    (void)snprintf(out, 24, "v%zu", u->graph.n_values);
    return out;
}
/* The first failure, which is the caller's mistake unless memory is short. */
ln_status ln_user_failure(const ln_user_graph *u, ln_error *err) {
    const ln_status st = u->graph.error.code;
    if (st == LN_OK) return LN_OK;
    return ln_fail(err, st == LN_EINTERNAL ? LN_EUSAGE : st, "%s", u->graph.error.message);
}
static int32_t refuse(ln_user_graph *u, const char *text) {
    if (u->graph.error.code == LN_OK) (void)ln_fail(&u->graph.error, LN_EUSAGE, "graph: %s", text);
    return -1;
}

/* Adds memory for a value of this shape; -1 after a failure. */
static int32_t add_bound(ln_user_graph *u, ln_kind kind, ln_dtype dtype, int64_t rows, int64_t cols) {
    const int64_t dims[2] = {rows, cols};
    char name[24];
    void *list = u->bounds;
    ln_graph *g = &u->graph;
    if (g->error.code != LN_OK) return -1;
    if (rows < 1 || cols < 1 || rows > INT32_MAX / cols)
        return refuse(u, "expected a shape of 1 to 2^31 - 1 elements");
    if (ln_grow(&list, &u->cap_bounds, u->n_bounds + 1, sizeof *u->bounds, &g->error) != LN_OK) return -1;
    u->bounds = list;
    bound *b = &u->bounds[u->n_bounds];
    *b = (bound){.n = rows * cols,
                 .trainable = kind == LN_KIND_TRAINABLE,
                 .below = INT64_MAX,
                 .inverse_of = -1,
                 .chosen_by = -1};
    b->data = ln_zalloc((size_t)b->n, 4);
    if (!b->data) return (void)LN_OOM(&g->error, "a value of a graph"), -1;
    u->n_bounds++;
    const int slot = (int)u->n_bounds - 1;
    b->bound = kind == LN_KIND_TRAINABLE ? ln_g_trainable(g, name_of(u, name), slot, dtype, 2, dims)
                                         : ln_g_input(g, name_of(u, name), slot, dtype, 2, dims);
    b->user = dtype == LN_I32 ? b->bound : ln_g_load(g, name_of(u, name), b->bound);
    return b->user;
}
int32_t ln_user_graph_bound(ln_user_graph *u, bool trainable, int64_t rows, int64_t cols) {
    return add_bound(u, trainable ? LN_KIND_TRAINABLE : LN_KIND_INPUT, LN_F32, rows, cols);
}
int32_t ln_user_graph_labels(ln_user_graph *u, int64_t rows) {
    return add_bound(u, LN_KIND_INPUT, LN_I32, rows, 1);
}

static bool is_value(const ln_user_graph *u, int32_t v) {
    return v >= 0 && (size_t)v < u->graph.n_values && u->graph.values[v].kind == LN_KIND_TEMP;
}
/* Whether v can be an operand: there was no failure, and v is no mistake. */
static bool is_operand(ln_user_graph *u, int32_t v) {
    return u->graph.error.code == LN_OK &&
           (is_value(u, v) || refuse(u, "an operand is no value of this graph") >= 0);
}
static int64_t elements(const ln_user_graph *u, int32_t v) {
    return u->graph.values[v].dims[0] * u->graph.values[v].dims[1];
}
bound *ln_user_bound(const ln_user_graph *u, int32_t v) {
    for (size_t i = 0; i < u->n_bounds; i++)
        if (u->bounds[i].user == v && u->bounds[i].inverse_of < 0 && u->bounds[i].chosen_by < 0)
            return &u->bounds[i];
    return NULL;
}

/* The negative log-likelihood of each row; remembers how large a label may be. */
static ln_v nll_of(ln_user_graph *u, int32_t logits, int32_t labels) {
    bound *b = ln_user_bound(u, labels);
    char name[24];
    if (!b || u->graph.values[b->bound].dtype != LN_I32)
        return refuse(u, "expected labels (ln_graph_labels) for a cross-entropy");
    b->below = LN_MIN(b->below, u->graph.values[logits].dims[1]);
    return ln_g_nll(&u->graph, name_of(u, name), logits, labels);
}
static ln_v mean_of(ln_user_graph *u, ln_v a) {
    char name[24];
    if (a < 0) return -1;
    const float by = (float)(1.0 / (double)elements(u, a));
    const ln_v sum = ln_g_sum(&u->graph, name_of(u, name), a, LN_SUM_ALL);
    return ln_g_scale(&u->graph, name_of(u, name), sum, by);
}
static ln_v difference(ln_user_graph *u, ln_v a, ln_v b) {
    char name[24];
    const ln_v minus = ln_g_scale(&u->graph, name_of(u, name), b, -1);
    return ln_g_add(&u->graph, name_of(u, name), a, minus);
}

/* a at column `at` of `cols` columns, whose others are 0. */
static ln_v placed(ln_user_graph *u, ln_v a, int64_t at, int64_t cols) {
    const ln_node n = {.op = LN_OP_SLICE_BACK, .n_in = 1, .in = {a}, .p.slice = {.at = at, .cols = cols}};
    char name[24];
    return ln_g_node(&u->graph, name_of(u, name), &n, NULL);
}
static ln_v concat(ln_user_graph *u, ln_v a, ln_v b) {
    const int64_t *x = u->graph.values[a].dims, *y = u->graph.values[b].dims, cols = x[1] + y[1], at = x[1];
    char name[24];
    if (x[0] != y[0]) return refuse(u, "expected as many rows in both operands of a concatenation");
    const ln_v left = placed(u, a, 0, cols), right = placed(u, b, at, cols);
    return ln_g_add(&u->graph, name_of(u, name), left, right);
}
/* The product with the identity, a hidden input. */
static ln_v transposed(ln_user_graph *u, ln_v a) {
    const int64_t rows = u->graph.values[a].dims[0];
    char name[24];
    const ln_v identity = add_bound(u, LN_KIND_INPUT, LN_F32, rows, rows);
    if (identity < 0) return -1;
    bound *b = &u->bounds[u->n_bounds - 1];
    for (int64_t i = 0; i < rows; i++) ((float *)b->data)[i * rows + i] = 1;
    b->is_set = b->stale = true;
    return ln_g_matmul(&u->graph, name_of(u, name), a, identity, LN_MATMUL_TN);
}
/* The mean of log(1 + e^x) - x y, for x [R,1]: the logarithm is the nll of label 0 of the logits 0 and x. */
static ln_v binary_cross_entropy(ln_user_graph *u, ln_v x, ln_v y) {
    ln_graph *g = &u->graph;
    const int64_t rows = g->values[x].dims[0];
    char name[24];
    if (g->values[x].dims[1] != 1 || g->values[y].dims[1] != 1 || g->values[y].dims[0] != rows)
        return refuse(u, "expected logits and targets [rows,1] for a binary cross-entropy");
    const ln_v zeros = add_bound(u, LN_KIND_INPUT, LN_I32, rows, 1);
    if (zeros < 0) return -1;
    u->bounds[u->n_bounds - 1].is_set = u->bounds[u->n_bounds - 1].stale = true;
    const ln_v log = ln_g_nll(g, name_of(u, name), placed(u, x, 1, 2), zeros);
    return mean_of(u, difference(u, log, ln_g_mul(g, name_of(u, name), x, y)));
}

/* Rows of a table by labels: a product with a hidden input that has a 1 in the column of each row's label. */
static ln_v rows_of(ln_user_graph *u, ln_v table, ln_v labels) {
    const bound *b = ln_user_bound(u, labels);
    char name[24];
    if (!b || u->graph.values[b->bound].dtype != LN_I32)
        return refuse(u, "expected labels (ln_graph_labels) for rows of a table");
    const ln_v chosen = add_bound(u, LN_KIND_INPUT, LN_F32, b->n, u->graph.values[table].dims[0]);
    if (chosen < 0) return -1;
    u->bounds[u->n_bounds - 1].chosen_by = labels;
    return ln_g_matmul(&u->graph, name_of(u, name), chosen, table, LN_MATMUL_NN);
}

int32_t ln_user_graph_op(ln_user_graph *u, ln_user_op op, int32_t a, int32_t b) {
    ln_graph *g = &u->graph;
    char name[24];
    if (!is_operand(u, a) || (op < LN_USER_CROSS_ENTROPY && !is_operand(u, b))) return -1;
    (void)name_of(u, name);
    switch (op) {
    case LN_USER_ADD: return ln_g_add(g, name, a, b);
    case LN_USER_SUB: return difference(u, a, b);
    case LN_USER_MUL: return ln_g_mul(g, name, a, b);
    case LN_USER_DIV: return ln_g_pointwise(g, name, LN_POINTWISE_DIV, a, b);
    case LN_USER_MATMUL: return ln_g_matmul(g, name, a, b, LN_MATMUL_NN);
    case LN_USER_MATMUL_NT: return ln_g_matmul(g, name, a, b, LN_MATMUL_NT);
    case LN_USER_MATMUL_TN: return ln_g_matmul(g, name, a, b, LN_MATMUL_TN);
    case LN_USER_CONCAT: return concat(u, a, b);
    case LN_USER_BINARY_CROSS_ENTROPY: return binary_cross_entropy(u, a, b);
    case LN_USER_MSE: {
        const ln_v d = difference(u, a, b);
        return mean_of(u, ln_g_mul(g, name_of(u, name), d, d));
    }
    case LN_USER_CROSS_ENTROPY: return mean_of(u, nll_of(u, a, b));
    case LN_USER_SUM: return ln_g_sum(g, name, a, LN_SUM_ALL);
    case LN_USER_MEAN: return mean_of(u, a);
    case LN_USER_SQUARE: return ln_g_mul(g, name, a, a);
    case LN_USER_SILU: return ln_g_silu(g, name, a);
    case LN_USER_GELU: return ln_g_gelu_tanh(g, name, a);
    case LN_USER_RELU: return ln_g_clamp(g, name, a, 0, FLT_MAX);
    case LN_USER_TANH: return ln_g_softcap(g, name, a, 1);
    case LN_USER_SIGMOID: return ln_g_sigmoid(g, name, a);
    case LN_USER_EXP: return ln_g_pointwise(g, name, LN_POINTWISE_EXP, a, -1);
    case LN_USER_LOG: return ln_g_pointwise(g, name, LN_POINTWISE_LOG, a, -1);
    case LN_USER_SQRT: return ln_g_pointwise(g, name, LN_POINTWISE_SQRT, a, -1);
    case LN_USER_ROW_SUMS: return ln_g_sum(g, name, a, LN_SUM_COLS);
    case LN_USER_COLUMN_SUMS: return ln_g_sum(g, name, a, LN_SUM_ROWS);
    case LN_USER_ROWS: return rows_of(u, a, b);
    case LN_USER_TRANSPOSE: return transposed(u, a);
    default: return ln_g_softmax(g, name, a);
    }
}
int32_t ln_user_graph_scale(ln_user_graph *u, int32_t a, float by) {
    char name[24];
    if (!is_operand(u, a)) return -1;
    return ln_g_scale(&u->graph, name_of(u, name), a, by);
}

int32_t ln_user_graph_clamp(ln_user_graph *u, int32_t a, float low, float high) {
    char name[24];
    if (!is_operand(u, a)) return -1;
    if (!(low <= high)) return refuse(u, "expected a lower bound of a clamp that is at most the upper one");
    return ln_g_clamp(&u->graph, name_of(u, name), a, low, high);
}
int32_t ln_user_graph_slice(ln_user_graph *u, int32_t a, int64_t at, int64_t cols) {
    char name[24];
    if (!is_operand(u, a)) return -1;
    if (at < 0 || cols < 1 || at > u->graph.values[a].dims[1] - cols)
        return refuse(u, "expected columns of the operand for a slice");
    return ln_g_slice(&u->graph, name_of(u, name), a, at, cols);
}
int32_t ln_user_graph_reshape(ln_user_graph *u, int32_t a, int64_t rows, int64_t cols) {
    char name[24];
    if (!is_operand(u, a)) return -1;
    if (rows < 1 || cols < 1 || rows > INT32_MAX / cols || rows * cols != elements(u, a))
        return refuse(u, "expected a shape of as many elements as the operand has");
    return ln_g_reshape(&u->graph, name_of(u, name), a, rows, cols);
}
void ln_user_graph_checkpoint(ln_user_graph *u) { ln_g_layer(&u->graph, ++u->n_ended, ""); }
int32_t ln_user_graph_spread(ln_user_graph *u, int32_t a, int64_t rows, int64_t cols) {
    char name[24];
    if (!is_operand(u, a)) return -1;
    const int64_t *x = u->graph.values[a].dims;
    if ((x[0] != 1 && x[0] != rows) || (x[1] != 1 && x[1] != cols) || rows < 1 || cols < 1 ||
        rows > INT32_MAX / cols)
        return refuse(u, "expected a number, a row or a column to spread to this shape");
    if (x[0] == rows && x[1] == cols) return a;
    return ln_g_spread(&u->graph, name_of(u, name), a, rows, cols, 1);
}
int32_t ln_user_graph_rmsnorm(ln_user_graph *u, int32_t a, int32_t weight, float eps) {
    char name[24];
    if (!is_operand(u, a) || (weight >= 0 && !is_operand(u, weight))) return -1;
    const int64_t rows = u->graph.values[a].dims[0], cols = u->graph.values[a].dims[1];
    if (!(eps >= 0 && eps <= 1)) return refuse(u, "expected an eps of 0 to 1 for an RMSNorm");
    const ln_v y = ln_g_rmsnorm_plain(&u->graph, name_of(u, name), a, cols, eps);
    const ln_v by = weight >= 0 ? ln_user_graph_spread(u, weight, rows, cols) : -1;
    return weight >= 0 ? ln_g_mul(&u->graph, name_of(u, name), y, by) : y;
}

/* sum(nll * mask) / sum(mask); the quotient comes from the host before a run, as a hidden input. */
int32_t ln_user_graph_masked_cross_entropy(ln_user_graph *u, int32_t logits, int32_t labels, int32_t mask) {
    ln_graph *g = &u->graph;
    char name[24];
    if (g->error.code != LN_OK) return -1;
    const bound *b = ln_user_bound(u, mask);
    if (!is_value(u, logits) || !is_value(u, mask) || !b || b->trainable)
        return refuse(u, "expected logits, labels and an input [rows,1] as the mask");
    const ln_v nll = nll_of(u, logits, labels), inverse = add_bound(u, LN_KIND_INPUT, LN_F32, 1, 1);
    if (inverse < 0) return -1;
    u->bounds[u->n_bounds - 1].inverse_of = mask;
    const ln_v counted = ln_g_mul(g, name_of(u, name), nll, mask);
    const ln_v sum = ln_g_sum(g, name_of(u, name), counted, LN_SUM_ALL);
    return ln_g_mul(g, name_of(u, name), sum, inverse);
}

/* ---- data ---- */

ln_status ln_user_graph_set(ln_user_graph *u, int32_t value, const float *data, ln_error *err) {
    LN_TRY(ln_user_failure(u, err));
    bound *b = ln_user_bound(u, value);
    if (!b || u->graph.values[b->bound].dtype != LN_F32)
        return ln_fail(err, LN_EUSAGE, "value %d of the graph: expected an input or a trainable", value);
    memcpy(b->data, data, (size_t)b->n * sizeof *data);
    b->is_set = b->stale = true;
    return LN_OK;
}
ln_status ln_user_graph_set_labels(ln_user_graph *u, int32_t value, const int32_t *ids, ln_error *err) {
    LN_TRY(ln_user_failure(u, err));
    bound *b = ln_user_bound(u, value);
    if (!b || u->graph.values[b->bound].dtype != LN_I32)
        return ln_fail(err, LN_EUSAGE, "value %d of the graph: expected labels", value);
    memcpy(b->data, ids, (size_t)b->n * sizeof *ids);
    b->is_set = b->stale = true;
    return LN_OK;
}
ln_status ln_user_graph_get(ln_user_graph *u, int32_t value, float *out, ln_error *err) {
    LN_TRY(ln_user_failure(u, err));
    const bound *b = ln_user_bound(u, value);
    if (!b || u->graph.values[b->bound].dtype != LN_F32)
        return ln_fail(err, LN_EUSAGE, "value %d of the graph: expected an input or a trainable", value);
    memcpy(out, b->data, (size_t)b->n * sizeof *out);
    return LN_OK;
}

/* ---- programs ---- */

/* An input of this program alone, of the shape of value v; memory *data. */
static ln_v given_input(program *p, ln_v v, float **data) {
    char name[24];
    const int64_t *dims = p->graph.values[v].dims;
    (void)snprintf(name, sizeof name, "given%d", v);
    *data = ln_zalloc((size_t)(dims[0] * dims[1]), sizeof **data);
    if (!*data) return -1;
    return ln_g_input(&p->graph, name, -1, LN_F32, 2, dims);
}
/* Copies the caller's graph and adds the nodes of the derivative; inputs[i] becomes the value of given[i]. */
static ln_status build(const ln_user_graph *u, program *p, ln_v *inputs, ln_error *err) {
    ln_graph *g = &p->graph;
    void *values = NULL, *nodes = NULL;
    LN_TRY(ln_grow(&values, &g->cap_values, u->graph.n_values, sizeof *g->values, err));
    g->values = values;
    LN_TRY(ln_grow(&nodes, &g->cap_nodes, u->graph.n_nodes, sizeof *g->nodes, err));
    g->nodes = nodes;
    memcpy(g->values, u->graph.values, u->graph.n_values * sizeof *g->values);
    memcpy(g->nodes, u->graph.nodes, u->graph.n_nodes * sizeof *g->nodes);
    g->n_values = u->graph.n_values;
    g->n_nodes = u->graph.n_nodes;
    ln_g_output(g, p->y);
    if (p->kind == GRADIENT) {
        ln_v dy = -1;
        if (p->has_cotangent) inputs[0] = given_input(p, p->y, &p->given[0]);
        if (p->has_cotangent) dy = ln_g_load(g, "cotangent", inputs[0]);
        const size_t n_forward = g->n_nodes;
        if (p->n_wrt) LN_TRY(ln_graph_grad(g, p->y, dy, p->wrt, p->n_wrt, p->out, err));
        LN_TRY(ln_graph_recompute(g, n_forward, u->n_ended, false, err));
    } else {
        ln_v *t = ln_arena_alloc(&g->arena, (p->n_wrt + 1) * sizeof *t);
        if (!t) return LN_OOM(err, "tangents");
        for (size_t i = 0; i < p->n_wrt; i++) {
            inputs[i] = given_input(p, p->wrt[i], &p->given[i]);
            t[i] = ln_g_load(g, "tangent", inputs[i]);
        }
        LN_TRY(ln_graph_tangent(g, p->y, p->wrt, t, p->n_wrt, &p->out[0], err));
    }
    const size_t n_out = p->kind == GRADIENT ? p->n_wrt : 1;
    for (size_t i = 0; i < n_out; i++)
        if (p->out[i] >= 0) ln_g_output(g, p->out[i]);
    return ln_graph_check(g, "build", err);
}

/* Allocates a copy of an input in the memory of the device, if it has its own and there is none yet. */
static ln_status take_copy(ln_user_graph *u, void **copy, size_t bytes, bool *stale, ln_error *err) {
    if (u->info.memory_total == 0 || *copy) return LN_OK;
    if (stale) *stale = true;
    return u->ops->alloc(u->dev, bytes, 0, copy, err);
}
static ln_status prepare(ln_user_graph *u, program *p, const ln_v *inputs, ln_error *err) {
    const ln_compile_options o = {.policy = LN_POLICY_EXACT,
                                  .fuses = true,
                                  .bounds = one_row,
                                  .real_bytes = u->info.real_bytes,
                                  .ops = u->ops,
                                  .dev = u->dev};
    LN_TRY(ln_compile(&p->graph, &o, &p->graph.arena, &p->program, err));
    for (size_t i = 0; i < u->n_bounds; i++) {
        bound *b = &u->bounds[i];
        if (b->bound >= p->program.n_values) continue;
        LN_TRY(take_copy(u, &b->device, (size_t)b->n * 4, &b->stale, err));
        p->program.values[b->bound].data = b->device ? b->device : b->data;
    }
    for (size_t i = 0; i < LN_MAX(p->n_wrt, (size_t)1); i++) {
        if (!p->given[i]) continue;
        LN_TRY(take_copy(u, &p->device[i], given_bytes(p, i), NULL, err));
        p->program.values[inputs[i]].data = p->device[i] ? p->device[i] : (void *)p->given[i];
    }
    LN_TRY(u->ops->alloc(u->dev, (size_t)p->program.temp_bytes, 0, &p->temp, err));
    return u->ops->prepare(u->queue, &p->program, p->temp, &p->exec, err);
}

static ln_status new_program(ln_user_graph *u, const program *like, program **out, ln_error *err) {
    const size_t n = LN_MAX(like->n_wrt, (size_t)1);
    ln_status st = LN_OK;
    program *p = ln_zalloc(1, sizeof *p);
    ln_v *inputs = ln_zalloc(n, sizeof *inputs);
    if (!p || !inputs) LN_GO(LN_OOM(err, "a program"));
    *p = *like;
    ln_graph_open(&p->graph);
    p->given = ln_zalloc(n, sizeof *p->given);
    p->device = ln_zalloc(n, sizeof *p->device);
    p->wrt = ln_zalloc(n, sizeof *p->wrt);
    p->out = ln_zalloc(n, sizeof *p->out);
    if (!p->given || !p->device || !p->wrt || !p->out) LN_GO(LN_OOM(err, "a program"));
    if (like->n_wrt) memcpy(p->wrt, like->wrt, like->n_wrt * sizeof *p->wrt);
    LN_GO(build(u, p, inputs, err));
    LN_GO(prepare(u, p, inputs, err));
    p->next = u->programs;
    u->programs = p;
    *out = p;
    p = NULL;
out:
    ln_free(inputs);
    if (p) free_program(u, p);
    return st;
}

/* Finds or makes the program that `like` asks for. */
static ln_status program_for(ln_user_graph *u, const program *like, program **out, ln_error *err) {
    for (program *p = u->programs; p; p = p->next)
        if (p->kind == like->kind && p->y == like->y && p->n_wrt == like->n_wrt &&
            p->has_cotangent == like->has_cotangent &&
            (!p->n_wrt || memcmp(p->wrt, like->wrt, p->n_wrt * sizeof *p->wrt) == 0)) {
            *out = p;
            return LN_OK;
        }
    return new_program(u, like, out, err);
}

static ln_status check_values(const ln_user_graph *u, int32_t y, const int32_t *wrt, size_t n,
                              ln_error *err) {
    LN_TRY(ln_user_failure(u, err));
    if (!is_value(u, y)) return ln_fail(err, LN_EUSAGE, "%d is no value of this graph", y);
    for (size_t i = 0; i < n; i++)
        if (!is_value(u, wrt[i])) return ln_fail(err, LN_EUSAGE, "%d is no value of this graph", wrt[i]);
    return LN_OK;
}
static bool reads(const program *p, ln_v v) {
    for (size_t i = 0; i < p->graph.n_nodes; i++)
        for (int k = 0; !p->graph.nodes[i].dead && k < p->graph.nodes[i].n_in; k++)
            if (p->graph.nodes[i].in[k] == v) return true;
    return false;
}
static ln_status check_labels(const bound *b, ln_error *err) {
    const int32_t *labels = b->data;
    for (int64_t k = 0; k < b->n; k++)
        if (labels[k] < 0 || labels[k] >= b->below)
            return ln_fail(err, LN_EINVALID, "label %lld of value %d: expected 0 to %lld, found %d",
                           (long long)k, b->user, (long long)b->below - 1, labels[k]);
    return LN_OK;
}
/* Sets the hidden input to 1 in the column of each row's label, and 0 elsewhere. */
static ln_status choose_columns(const ln_user_graph *u, bound *b, ln_error *err) {
    const bound *labels = ln_user_bound(u, b->chosen_by);
    const int64_t cols = b->n / labels->n;
    if (!labels->is_set)
        return ln_fail(err, LN_EUSAGE, "value %d of the graph has no data; set it before a run",
                       labels->user);
    bound limited = *labels;
    limited.below = LN_MIN(labels->below, cols);
    LN_TRY(check_labels(&limited, err));
    memset(b->data, 0, (size_t)b->n * sizeof(float));
    for (int64_t r = 0; r < labels->n; r++)
        ((float *)b->data)[r * cols + ((const int32_t *)labels->data)[r]] = 1;
    b->stale = true;
    return LN_OK;
}
/* Sets the hidden input to the inverse of the sum of its mask. */
static ln_status invert_mask(const ln_user_graph *u, bound *b, ln_error *err) {
    const bound *mask = ln_user_bound(u, b->inverse_of);
    double sum = 0;
    for (int64_t k = 0; k < mask->n; k++) sum += (double)((const float *)mask->data)[k];
    *(float *)b->data = (float)(1 / sum);
    b->stale = true;
    if (!mask->is_set || sum != 0) return LN_OK;
    return ln_fail(err, LN_EINVALID,
                   "value %d of the graph: the mask of a cross-entropy is empty; expected at least one "
                   "element "
                   "that is not 0",
                   mask->user);
}
/* Checks the data that a program is about to read. */
static ln_status check_data(const ln_user_graph *u, const program *p, ln_error *err) {
    for (size_t i = 0; i < u->n_bounds; i++) {
        bound *b = &u->bounds[i];
        if ((size_t)b->bound >= p->graph.n_values || !reads(p, b->bound)) continue;
        if (b->inverse_of >= 0) LN_TRY(invert_mask(u, b, err));
        else if (b->chosen_by >= 0) LN_TRY(choose_columns(u, b, err));
        else if (!b->is_set)
            return ln_fail(err, LN_EUSAGE, "value %d of the graph has no data; set it before a run", b->user);
        if (u->graph.values[b->bound].dtype == LN_I32) LN_TRY(check_labels(b, err));
    }
    return LN_OK;
}

/* Brings what a program is about to read to the device's own memory. */
static ln_status send_data(ln_user_graph *u, const program *p, ln_error *err) {
    for (size_t i = 0; i < u->n_bounds; i++) {
        bound *b = &u->bounds[i];
        if (!b->device || !b->stale || (size_t)b->bound >= p->graph.n_values) continue;
        LN_TRY(u->ops->copy(u->queue, b->device, b->data, (size_t)b->n * 4, LN_COPY_IN, err));
        b->stale = false;
    }
    for (size_t i = 0; i < LN_MAX(p->n_wrt, (size_t)1); i++)
        if (p->device[i])
            LN_TRY(u->ops->copy(u->queue, p->device[i], p->given[i], given_bytes(p, i), LN_COPY_IN, err));
    return LN_OK;
}
static ln_status run(ln_user_graph *u, program *p, ln_error *err) {
    uint64_t fence;
    LN_TRY(check_data(u, p, err));
    LN_TRY(send_data(u, p, err));
    u->step->n_rows = u->step->n_seqs = 1;
    ln_step_row0(u->step)[1] = 1;
    LN_TRY(u->ops->submit(p->exec, u->step, NULL, &fence, err));
    return u->ops->wait(u->queue, fence, err);
}
/* Reads value v of a program, zeros for -1, with the shape of `like`. */
static ln_status read_value(ln_user_graph *u, program *p, ln_v v, ln_v like, float *out, ln_error *err) {
    if (!out) return LN_OK;
    if (v < 0) return memset(out, 0, (size_t)elements(u, like) * sizeof *out), LN_OK;
    return u->ops->value(p->exec, v, 0, p->graph.values[v].dims[0], out, false, err);
}

ln_status ln_user_graph_grad(ln_user_graph *u, int32_t y, const float *cotangent, const int32_t *wrt,
                             size_t n, float *value, float *const *grads, ln_error *err) {
    program *p, like = {.kind = GRADIENT, .y = y, .n_wrt = n, .has_cotangent = cotangent != NULL};
    LN_TRY(check_values(u, y, wrt, n, err));
    if (!cotangent && n && elements(u, y) != 1)
        return ln_fail(err, LN_EUSAGE,
                       "value %d is no scalar [1,1]; reduce it by a sum or a mean, or give a cotangent", y);
    like.wrt = (ln_v *)(uintptr_t)wrt; /* only read */
    LN_TRY(program_for(u, &like, &p, err));
    if (cotangent) memcpy(p->given[0], cotangent, (size_t)elements(u, y) * sizeof *cotangent);
    LN_TRY(run(u, p, err));
    LN_TRY(read_value(u, p, y, y, value, err));
    for (size_t i = 0; i < n; i++) LN_TRY(read_value(u, p, p->out[i], wrt[i], grads[i], err));
    return LN_OK;
}
ln_status ln_user_graph_jvp(ln_user_graph *u, int32_t y, const int32_t *wrt, const float *const *tangents,
                            size_t n, float *value, float *tangent, ln_error *err) {
    program *p, like = {.kind = TANGENT, .y = y, .n_wrt = n};
    LN_TRY(check_values(u, y, wrt, n, err));
    like.wrt = (ln_v *)(uintptr_t)wrt; /* only read */
    LN_TRY(program_for(u, &like, &p, err));
    for (size_t i = 0; i < n; i++)
        memcpy(p->given[i], tangents[i], (size_t)elements(u, wrt[i]) * sizeof *tangents[i]);
    LN_TRY(run(u, p, err));
    LN_TRY(read_value(u, p, y, y, value, err));
    return read_value(u, p, p->out[0], y, tangent, err);
}
