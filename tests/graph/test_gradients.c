/* Gradients by finite differences in double, for every op of ops.def: an op has a case here, or a NOGRAD with
 * its reason.
 *
 * The loss is the sum of an op's output times fixed numbers. Parameters are multiples of 1/64, and steps
 * powers of two, so that perturbed parameters are exact in f32. The difference quotient is D = (4 D(h) -
 * D(2h)) / 3, whose error is of the order h^4 f''''', that of D(h) of the order h^2 f'''; the bound is h
 * times the difference of the two quotients, and the rounding of the loss over h. */
/* run: quick */
#include "run_graph.h"

enum { T = 7, N = 3, B = 2, IDS = 5, MOST = 8 };
static const int lengths[B] = {3, 4};

/* A graph under construction: parameters, and inputs that stay fixed. */
typedef struct maker {
    ln_graph g;
    run_graph r;
    ln_v wrt[MOST];
    int n_wrt;
    void *blocks[32];
    int n_blocks;
    uint64_t seed;
    void *bound[64]; /* by value */
} maker;

static float number(maker *m) { return (float)((int)(test_random(&m->seed) % 129u) - 64) / 64; }
static void *block(maker *m, size_t bytes) { return m->blocks[m->n_blocks++] = calloc(1, bytes ? bytes : 1); }
static int64_t rows_of(int64_t d) {
    const ln_bounds b = {T, N, B};
    return ln_dim(d, &b);
}

/* A parameter in memory, of one or two dimensions. */
static ln_v parameter(maker *m, const char *name, int64_t d0, int64_t d1) {
    const int64_t dims[2] = {d0, d1}, n = rows_of(d0) * (d1 ? d1 : 1);
    const ln_v v = ln_g_trainable(&m->g, name, m->n_wrt, LN_F32, d1 ? 2 : 1, dims);
    float *data = block(m, (size_t)n * sizeof *data);
    for (int64_t i = 0; i < n; i++) data[i] = number(m);
    m->bound[v] = data;
    m->wrt[m->n_wrt++] = v;
    return v;
}
static ln_v rows(maker *m, const char *name, int64_t d0, int64_t d1) {
    return ln_g_load(&m->g, name, parameter(m, "parameter", d0, d1));
}
static ln_v fixed(maker *m, int64_t d0, int64_t d1) {
    const int64_t dims[2] = {d0, d1}, n = rows_of(d0) * d1;
    const ln_v v = ln_g_input(&m->g, "fixed", 0, LN_F32, 2, dims);
    float *data = block(m, (size_t)n * sizeof *data);
    for (int64_t i = 0; i < n; i++) data[i] = number(m);
    m->bound[v] = data;
    return ln_g_load(&m->g, "fixed.rows", v);
}
static ln_v integers(maker *m, int64_t d0, int64_t d1, int32_t below) {
    const int64_t dims[2] = {d0, d1}, n = rows_of(d0) * d1;
    const ln_v v = ln_g_input(&m->g, "integers", 0, LN_I32, 2, dims);
    int32_t *data = block(m, (size_t)n * sizeof *data);
    for (int64_t i = 0; i < n; i++) data[i] = (int32_t)(test_random(&m->seed) % (uint32_t)(below + 1)) - 1;
    data[0] = 1;
    m->bound[v] = data;
    return v;
}
static ln_v table(maker *m, int E) {
    static const float freqs[] = {1, 0.25f, 0.0625f, 0.03125f};
    return ln_g_rope_table(&m->g, "table", &(ln_p_freqs){.freqs = freqs, .n = E / 2, .scale = 1});
}
static ln_v attention(maker *m, int v_dim, int64_t window, float softcap, bool with_sinks) {
    const ln_p_packed p = {.n_heads = 4,
                           .n_kv_heads = 2,
                           .head_dim = 3,
                           .v_dim = v_dim,
                           .scale = 0.5f,
                           .window = window,
                           .softcap = softcap};
    const ln_v q = rows(m, "q", LN_DIM_T, 12), k = rows(m, "k", LN_DIM_T, 6),
               v = rows(m, "v", LN_DIM_T, 2 * v_dim);
    ln_v sinks = -1;
    if (with_sinks) {
        sinks = ln_g_weight(&m->g, "sinks", LN_F32, 0, 4, 0);
        float *data = m->bound[sinks] = block(m, 4 * sizeof *data);
        for (int h = 0; h < 4; h++) data[h] = number(m);
    }
    return ln_g_attn(&m->g, "y", q, k, v, sinks, &p, NULL);
}

/* A fixed number for each of n experts. */
static ln_v of_each(maker *m, const char *name, int64_t n) {
    const ln_v v = ln_g_weight(&m->g, name, LN_F32, 0, n, 0);
    float *data = m->bound[v] = block(m, (size_t)n * sizeof *data);
    for (int64_t i = 0; i < n; i++) data[i] = number(m) + 2;
    return v;
}
/* The weights of chosen experts, of every kind of scores. */
static ln_v routed(maker *m, int form) {
    static const ln_p_route forms[] = {
        {.kind = LN_ROUTE_SOFTMAX, .top_k = 3, .factor = 1},
        {.kind = LN_ROUTE_SOFTMAX, .top_k = 3, .normed = true, .factor = 1},
        {.kind = LN_ROUTE_CHOSEN, .top_k = 3, .factor = 1},
        {.kind = LN_ROUTE_SIGMOID, .top_k = 2, .factor = 1},
        {.kind = LN_ROUTE_SIGMOID,
         .top_k = 2,
         .normed = true,
         .eps = 0.01f,
         .factor = 2.5f,
         .n_groups = 4,
         .top_groups = 2},
        {.kind = LN_ROUTE_SOFTMAX, .top_k = 2, .normed = true, .factor = 0.5f},
    };
    ln_v weights;
    if (form >= (int)LN_COUNT(forms)) return -1;
    const ln_v bias = form == 4 ? of_each(m, "bias", 8) : -1, scale = form == 5 ? of_each(m, "scale", 8) : -1;
    (void)ln_g_route(&m->g, "y", rows(m, "x", LN_DIM_T, 8), bias, scale, &forms[form], &weights);
    return weights;
}
/* A product with the matrices of fixed choices: of a row of x for all of them, of one for each, and back. */
static ln_v of_experts(maker *m, ln_op op, int form) {
    enum { X = 4, D = 3, C = 5, K = 2 };
    static const ln_p_route choice = {.kind = LN_ROUTE_CHOSEN, .top_k = K, .factor = 1};
    const int64_t dims[3] = {X, D, C}, each = ln_dim_times(LN_DIM_T, K);
    ln_graph *g = &m->g;
    ln_v weights;
    if (form > (op == LN_OP_EXPERTS)) return -1;
    const ln_v ids = ln_g_route(g, "ids", fixed(m, LN_DIM_T, X), -1, -1, &choice, &weights),
               w = ln_g_encoded(g, "w", ln_encoding_dense(LN_F32), 0, 3, dims);
    float *data = m->bound[w] = block(m, sizeof *data * X * D * C);
    for (int i = 0; i < X * D * C; i++) data[i] = number(m);
    if (op == LN_OP_EXPERTS)
        return ln_g_experts(g, "y", rows(m, "x", form ? each : LN_DIM_T, C), w, ids,
                            form ? of_each(m, "b", X * D) : -1, K);
    const ln_node back = {
        .op = op, .n_in = 3, .in = {rows(m, "dy", each, D), w, ids}, .p.experts = {.top_k = K}};
    return ln_g_node(g, "y", &back, NULL);
}

/* Recurrent mixers over sequences of 3 and 4 rows: a convolution of as many taps, or more, and its reverse;
 * the delta rule with one and with two value heads for each key head, and what its decays and betas are of.
 */
static ln_v recurrent(maker *m, ln_op op, int form) {
    ln_graph *g = &m->g;
    if (op == LN_OP_DELTA_GATES) {
        if (form > 1) return -1;
        const ln_v a = rows(m, "a", LN_DIM_T, 3), b = rows(m, "b", LN_DIM_T, 3);
        return ln_g_delta_gates(g, "y", a, b, of_each(m, "a_log", 3), of_each(m, "dt", 3), form ? 2 : 1);
    }
    if (op == LN_OP_CONV) {
        const ln_p_conv p = {.taps = form == 2 ? 5 : 3, .turned = form == 1};
        if (form > 2) return -1;
        return ln_g_conv(g, "y", rows(m, "x", LN_DIM_T, 4), of_each(m, "w", 4 * p.taps),
                         form == 0 ? of_each(m, "b", 4) : -1, &p);
    }
    const ln_p_delta p = {.n_k_heads = 2, .n_v_heads = form ? 4 : 2, .k_dim = 3, .v_dim = form ? 2 : 18};
    if (form > 1) return -1;
    return ln_g_delta(g, "y", rows(m, "gates", LN_DIM_T, 2 * p.n_v_heads),
                      rows(m, "qkv", LN_DIM_T, 2 * p.n_k_heads * p.k_dim + p.n_v_heads * p.v_dim), &p);
}

/* Builds the output of an op, of some of them in several variants; -1: there are no more variants. */
static ln_v build(maker *m, ln_op op, int form) {
    ln_graph *g = &m->g;
    const int64_t R = LN_DIM_T;
    switch (op) {
    case LN_OP_EMBED: return form ? -1 : ln_g_embed(g, "y", parameter(m, "table", IDS, 4), 1.5f, 0);
    case LN_OP_LINEAR:
        if (form == 0) return ln_g_linear(g, "y", rows(m, "x", R, 5), parameter(m, "w", 3, 5), -1);
        if (form == 1)
            return ln_g_linear(g, "y", rows(m, "x", R, 5), parameter(m, "w", 3, 5), parameter(m, "b", 3, 0));
        return -1;
    case LN_OP_RMSNORM:
        if (form < 2)
            return ln_g_rmsnorm(g, "y", rows(m, "x", R, 20), parameter(m, "w", form ? 5 : 20, 0), 1e-3f,
                                (float)form);
        return form > 2 ? -1 : ln_g_rmsnorm_plain(g, "y", rows(m, "x", R, 20), 5, 1e-3f);
    case LN_OP_CONV:
    case LN_OP_DELTA_GATES:
    case LN_OP_DELTA: return recurrent(m, op, form);
    case LN_OP_SIGMOID: return form ? -1 : ln_g_sigmoid(g, "y", rows(m, "x", R, 3));
    case LN_OP_SOFTCAP: return form ? -1 : ln_g_softcap(g, "y", rows(m, "x", R, 3), 0.5f);
    case LN_OP_CENTRE: return form ? -1 : ln_g_centre(g, "y", rows(m, "x", R, 20));
    case LN_OP_ADD: return form ? -1 : ln_g_add(g, "y", rows(m, "a", R, 3), rows(m, "b", R, 3));
    case LN_OP_MUL:
        if (form == 0) return ln_g_mul(g, "y", rows(m, "a", R, 3), rows(m, "b", R, 3));
        if (form == 1) {
            const ln_v x = rows(m, "a", R, 3);
            return ln_g_mul(g, "y", x, ln_g_mul(g, "square", x, x));
        }
        return -1;
    case LN_OP_SILU: return form ? -1 : ln_g_silu(g, "y", rows(m, "x", R, 3));
    case LN_OP_GELU_TANH: return form ? -1 : ln_g_gelu_tanh(g, "y", rows(m, "x", R, 3));
    case LN_OP_XIELU: { /* not at 0, at which its slope jumps by alpha_n */
        if (form) return -1;
        const ln_v x = ln_g_add(g, "x'", rows(m, "x", R, 7), ln_g_spread(g, "off", -1, R, 7, 0.003f));
        return ln_g_xielu(g, "y", x, &(ln_p_xielu){0.8f, 0.7f, 0.5f, -1e-6f});
    }
    case LN_OP_RELU2: return form ? -1 : ln_g_relu2(g, "y", rows(m, "x", R, 3));
    case LN_OP_ROPE: /* whole heads and parts of them, halves and neighbours */
    case LN_OP_ROPE_BACK: {
        if (form == 4) return -1;
        const int E = form < 2 ? 4 : 5;
        const ln_node n = {.op = op,
                           .n_in = 2,
                           .in = {rows(m, "x", R, 2 * E), table(m, 4)},
                           .p.heads = {.n_heads = 2, .head_dim = E, .interleaved = form % 2 == 1}};
        return ln_g_node(g, "y", &n, NULL);
    }
    case LN_OP_GATHER_ROWS: return form ? -1 : ln_g_gather_rows(g, "y", rows(m, "x", R, 3));
    case LN_OP_SCATTER_ROWS: {
        const ln_node n = {.op = op, .n_in = 1, .in = {rows(m, "x", LN_DIM_N, 3)}};
        return form ? -1 : ln_g_node(g, "y", &n, NULL);
    }
    case LN_OP_SLICE: /* of the row, or of each of 2 groups of columns */
        return form == 0   ? ln_g_slice(g, "y", rows(m, "x", R, 7), 2, 3)
               : form == 1 ? ln_g_slice_groups(g, "y", rows(m, "x", R, 14), 2, 3, 7)
                           : -1;
    case LN_OP_SLICE_BACK: {
        const ln_p_slice p = {2, form ? 14 : 7, form ? 7 : 0};
        if (form > 1) return -1;
        const ln_node n = {.op = op, .n_in = 1, .in = {rows(m, "x", R, form ? 6 : 3)}, .p.slice = p};
        return ln_g_node(g, "y", &n, NULL);
    }
    case LN_OP_LOAD: return form ? -1 : rows(m, "y", R, 3);
    case LN_OP_MATMUL:
        if (form == 0) return ln_g_matmul(g, "y", rows(m, "a", R, 5), rows(m, "b", 3, 5), LN_MATMUL_NT);
        if (form == 1) return ln_g_matmul(g, "y", rows(m, "a", R, 5), rows(m, "b", 5, 3), LN_MATMUL_NN);
        if (form == 2) return ln_g_matmul(g, "y", rows(m, "a", R, 5), rows(m, "b", R, 3), LN_MATMUL_TN);
        return -1;
    case LN_OP_LINEAR_BACK:
        if (form) return -1;
        m->bound[ln_g_weight(g, "w", LN_F32, 0, 5, 3)] = block(m, 60);
        for (int i = 0; i < 15; i++) ((float *)m->blocks[m->n_blocks - 1])[i] = number(m);
        return ln_g_linear_back(g, "y", rows(m, "dy", R, 5), 0);
    case LN_OP_SCALE: return form ? -1 : ln_g_scale(g, "y", rows(m, "x", R, 3), -0.75f);
    case LN_OP_SCALE_ROWS: return form ? -1 : ln_g_scale_rows(g, "y", rows(m, "x", R, 3), rows(m, "s", R, 1));
    case LN_OP_SUM: return form > 2 ? -1 : ln_g_sum(g, "y", rows(m, "x", R, 20), (ln_sum_kind)form);
    case LN_OP_SPREAD:
        if (form == 0) return ln_g_spread(g, "y", rows(m, "s", 1, 1), R, 4, 0.5f);
        if (form == 1) return ln_g_spread(g, "y", rows(m, "s", 1, 4), R, 4, 0.5f);
        if (form == 2) return ln_g_spread(g, "y", rows(m, "s", R, 1), R, 4, 0.5f);
        if (form == 3) return ln_g_spread(g, "y", rows(m, "s", R, 4), R, 4, 0.5f);
        return -1;
    case LN_OP_POINTWISE: { /* of positive numbers, far from 0 */
        if (form > LN_POINTWISE_DIV) return -1;
        const ln_v off = ln_g_spread(g, "off", -1, R, 3, 1.5f),
                   x = ln_g_add(g, "x'", rows(m, "x", R, 3), off);
        return ln_g_pointwise(g, "y", (ln_pointwise)form, form == LN_POINTWISE_DIV ? rows(m, "a", R, 3) : x,
                              form == LN_POINTWISE_DIV ? x : -1);
    }
    case LN_OP_RESHAPE: return form ? -1 : ln_g_reshape(g, "y", rows(m, "x", 4, 9), 12, 3);
    case LN_OP_SOFTMAX: return form ? -1 : ln_g_softmax(g, "y", rows(m, "x", R, 18));
    case LN_OP_NLL: return form ? -1 : ln_g_nll(g, "y", rows(m, "x", R, 18), integers(m, R, 1, 18));
    case LN_OP_ATTN:
        return form > 4 ? -1
                        : attention(m, form < 2 ? 3 : 5, form % 2 ? 2 : 0, form > 2 ? 0.6f : 0, form == 4);
    case LN_OP_LINEAR_CROSS_ENTROPY: {
        if (form) return -1;
        const ln_v w = ln_g_weight(g, "w", LN_F32, 0, LN_CE_SPLIT + 30, 5);
        float *data = m->bound[w] = block(m, sizeof(float) * 5 * (LN_CE_SPLIT + 30));
        for (int i = 0; i < 5 * (LN_CE_SPLIT + 30); i++) data[i] = number(m);
        return ln_g_linear_cross_entropy(g, "y", rows(m, "x", LN_DIM_N, 5), w,
                                         integers(m, LN_DIM_N, 1, LN_CE_SPLIT + 30));
    }
    case LN_OP_CLAMP: {
        if (form == 0) return ln_g_clamp(g, "y", rows(m, "x", R, 9), -0.41f, 0.3f);
        const ln_node back = {.op = op,
                              .n_in = 2,
                              .in = {fixed(m, R, 9), rows(m, "dy", R, 9)},
                              .p.clamp = {.low = -0.41f, .high = 0.3f}};
        return form > 1 ? -1 : ln_g_node(g, "y", &back, NULL);
    }
    case LN_OP_ROUTE: return routed(m, form);
    case LN_OP_EXPERTS:
    case LN_OP_EXPERTS_BACK: return of_experts(m, op, form);
    case LN_OP_FOLD_ROWS:
        if (form > 1) return -1;
        return ln_g_fold_rows(g, "y", rows(m, "x", ln_dim_times(R, 3), 5),
                              form ? rows(m, "s", ln_dim_times(R, 3), 1) : -1, 3);
    case LN_OP_REPEAT_ROWS: {
        const ln_node n = {.op = op, .n_in = 1, .in = {rows(m, "x", R, 5)}, .p.fold = {.n = 3}};
        return form ? -1 : ln_g_node(g, "y", &n, NULL);
    }
    case LN_OP_DROPOUT: {
        if (form > 1) return -1;
        const ln_v x = rows(m, "x", form ? LN_DIM_N : R, 9);
        return ln_g_dropout(g, "y", x, integers(m, LN_DIM_B, 2, 9),
                            &(ln_p_dropout){.p = 0.4f, .site = 3, .seed = 77, .of_outputs = form == 1});
    }
    default: fail_msg("ops.def has a gradient for %s, but there is no test of it", ln_ops[op].name);
    }
    return -1;
}

/* Bits of numbers for a weight in an encoding. */
static void *weight_data(maker *m, ln_dtype dtype, ln_groups enc, int64_t D, int64_t C) {
    if (!enc.bits) {
        uint8_t *data = block(m, (size_t)(D * C * 4));
        for (int64_t i = 0; i < D * C; i++) ln_num_store(data, dtype, i, number(m));
        return data;
    }
    const size_t codes = (size_t)(D * ln_affine_row_bytes(enc, C)), groups = (size_t)(D * C / enc.group) * 4;
    float *row = block(m, (size_t)C * sizeof *row);
    uint8_t *data = block(m, codes + 2 * groups);
    ln_affine *a = block(m, sizeof *a);
    *a = (ln_affine){.codes = data,
                     .scales = data + codes,
                     .biases = data + codes + groups,
                     .dtype = dtype,
                     .offset = dtype,
                     .code = enc};
    const size_t row_groups = (size_t)(C / enc.group * ln_dtype_bytes(dtype));
    for (int64_t d = 0; d < D; d++) {
        for (int64_t i = 0; i < C; i++) row[i] = number(m);
        ln_affine_quantize(row, C, enc, dtype, data + (size_t)d * codes / (size_t)D,
                           data + codes + (size_t)d * row_groups,
                           data + codes + groups + (size_t)d * row_groups);
    }
    return a;
}

/* Adds the loss of y, its gradients, and prepares the program. */
static void prepare(maker *m, ln_v y, ln_v *loss, ln_v *grads) {
    const ln_value *v = &m->g.values[y];
    const ln_v weights = fixed(m, v->dims[0], v->dims[1]);
    *loss = ln_g_sum(&m->g, "loss", ln_g_mul(&m->g, "weighted", y, weights), LN_SUM_ALL);
    ln_g_output(&m->g, *loss);
    OK(ln_graph_grad(&m->g, *loss, -1, m->wrt, (size_t)m->n_wrt, grads, err));
    for (int i = 0; i < m->n_wrt; i++)
        if (grads[i] >= 0) ln_g_output(&m->g, grads[i]);
    rg_open(&m->r, &m->g, &ln_device_ref_double, 1, (ln_bounds){T, N, B});
    memcpy(m->r.bound, m->bound, sizeof m->bound);
    rg_prepare(&m->r, LN_POLICY_EXACT);
    rg_rows(&m->r, lengths, B, IDS);
}
static double loss_at(maker *m, ln_v loss, float *x, float value) {
    const float was = *x;
    *x = value;
    assert_true(*x == value);
    rg_run(&m->r);
    *x = was;
    return rg_at(&m->r, loss, 0, 0);
}

/* Compares the gradient of each element of each parameter with its difference quotient. */
static void compare(maker *m, const char *name, ln_v loss, const ln_v *grads) {
    const float h = 0x1p-10f;
    for (int k = 0; k < m->n_wrt; k++) {
        const ln_value *v = &m->g.values[m->wrt[k]];
        const int64_t cols = v->n_dims > 1 ? v->dims[1] : v->dims[0],
                      n = v->n_dims > 1 ? rows_of(v->dims[0]) : 1;
        float *x = m->bound[m->wrt[k]];
        assert_true(grads[k] >= 0);
        for (int64_t i = 0; i < n * cols; i++) {
            const double d1 = (loss_at(m, loss, x + i, x[i] + h) - loss_at(m, loss, x + i, x[i] - h)) /
                              (2 * h),
                         d2 =
                             (loss_at(m, loss, x + i, x[i] + 2 * h) - loss_at(m, loss, x + i, x[i] - 2 * h)) /
                             (4 * h),
                         want = (4 * d1 - d2) / 3, value = loss_at(m, loss, x + i, x[i]),
                         got = rg_at(&m->r, grads[k], i / cols, i % cols),
                         bound = fabs(d1 - d2) * h + 0x1p-44 * (1 + fabs(value)) / h;
            if (!(fabs(got - want) <= bound))
                fail_msg("%s, parameter %d, element %lld: gradient %.12g, difference quotient %.12g (bound "
                         "%g)",
                         name, k, (long long)i, got, want, bound);
        }
    }
}
static void close_maker(maker *m) {
    rg_close(&m->r);
    ln_graph_close(&m->g);
    for (int i = 0; i < m->n_blocks; i++) free(m->blocks[i]);
}

static void every_gradient_is_a_difference_quotient(void **state) {
    (void)state;
    for (int op = 0; op < LN_OP_COUNT; op++) {
        assert_true((ln_ops[op].grad == NULL) == (ln_ops[op].nograd != NULL));
        for (int form = 0; ln_ops[op].grad && form < 8; form++) {
            maker m = {.seed = 11};
            ln_v loss, grads[MOST];
            ln_graph_open(&m.g);
            const ln_v y = build(&m, (ln_op)op, form);
            if (m.g.error.code != LN_OK) fail_msg("%s: %s", ln_ops[op].name, m.g.error.message);
            if (y < 0) {
                assert_true(form > 0);
                ln_graph_close(&m.g);
                for (int i = 0; i < m.n_blocks; i++) free(m.blocks[i]);
                break;
            }
            prepare(&m, y, &loss, grads);
            compare(&m, ln_ops[op].name, loss, grads);
            close_maker(&m);
        }
    }
}

/* The gradient of x through frozen weights in every encoding. */
static void frozen_weights_of_every_form(void **state) {
    (void)state;
    static const int bits[] = {2, 3, 4, 5, 6, 8};
    for (int form = 0; form < 3 + (int)LN_COUNT(bits); form++)
        for (int head = 0; head < 2; head++) {
            maker m = {.seed = 5};
            ln_v loss, grads[MOST];
            const ln_groups enc = form < 3 ? (ln_groups){0} : (ln_groups){bits[form - 3], 32};
            const ln_dtype dtype = form < 3 ? (ln_dtype)form : LN_BF16;
            const int64_t C = form < 3 ? 7 : 64, D = 9;
            ln_graph_open(&m.g);
            const ln_v w = ln_g_encoded(&m.g, "w", ln_encoding_of(dtype, enc), 0, 2, (const int64_t[]){D, C});
            m.bound[w] = weight_data(&m, dtype, enc, D, C);
            const ln_v x = rows(&m, "x", LN_DIM_N, C);
            const ln_v y = head
                               ? ln_g_linear_cross_entropy(&m.g, "y", x, w, integers(&m, LN_DIM_N, 1, (int)D))
                               : ln_g_linear(&m.g, "y", x, w, -1);
            prepare(&m, y, &loss, grads);
            compare(&m, head ? "linear_cross_entropy" : "linear", loss, grads);
            close_maker(&m);
        }
}

/* A value that no parameter reaches takes no part in the reverse pass, and one that nothing depends on has no
 * gradient. */
static void what_no_trainable_reaches_costs_nothing(void **state) {
    (void)state;
    maker m = {.seed = 3};
    ln_v grads[2];
    ln_graph_open(&m.g);
    const ln_v a = fixed(&m, LN_DIM_T, 4), w = ln_g_weight(&m.g, "w", LN_F32, 0, 4, 4);
    const ln_v frozen = ln_g_linear(&m.g, "frozen", ln_g_silu(&m.g, "act", a), w, -1),
               x = rows(&m, "x", LN_DIM_T, 4);
    parameter(&m, "unused", 2, 2);
    const ln_v y = ln_g_sum(&m.g, "y", ln_g_add(&m.g, "sum", frozen, x), LN_SUM_ALL);
    const size_t before = m.g.n_nodes;
    OK(ln_graph_grad(&m.g, y, -1, m.wrt, 2, grads, err));
    assert_true(grads[0] >= 0 && grads[1] < 0);
    assert_int_equal(m.g.n_nodes - before, 2); /* ones, and their spread over the sum */
    ln_graph_close(&m.g);
    for (int i = 0; i < m.n_blocks; i++) free(m.blocks[i]);
}

/* An op without a gradient on the way to a parameter is rejected by name. */
static void refusals_name_the_op(void **state) {
    (void)state;
    maker m = {.seed = 3};
    ln_v grads[1];
    ln_graph_open(&m.g);
    const ln_v x = rows(&m, "x", LN_DIM_T, 4);
    const ln_v y = ln_g_act_back(&m.g, "y", x, x, LN_ACT_SILU);
    FAILS(LN_EUNSUPPORTED, "act_back", ln_graph_grad(&m.g, y, -1, m.wrt, 1, grads, err));
    ln_graph_close(&m.g);
    for (int i = 0; i < m.n_blocks; i++) free(m.blocks[i]);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_gradient_is_a_difference_quotient),
                                       cmocka_unit_test(frozen_weights_of_every_form),
                                       cmocka_unit_test(what_no_trainable_reaches_costs_nothing),
                                       cmocka_unit_test(refusals_name_the_op)};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("gradients", tests, NULL, NULL);
}
