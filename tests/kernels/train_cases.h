/* Cases of the ops of training and of experts, of sizes that are no multiples of tiles and weights in every
 * encoding: graphs that the kernels of a device compute like the reference device. A case runs in device
 * memory, whose temporaries begin as NaN. */
#ifndef LN_TRAIN_CASES_H
#define LN_TRAIN_CASES_H

#include "../graph/run_graph.h"

enum { T = 300, B = 3, MOST = 64 };
static const int lengths[B] = {5, 278, 17};

typedef struct bits_case {
    ln_graph g;
    run_graph r;
    uint64_t seed;
    void *bound[512];
    struct frozen {
        ln_v v;
        ln_weight_desc desc;
        ln_host_weight host;
    } weights[8];
    int n_weights;
    void *blocks[64];
    int n_blocks;
    struct device_block {
        void *p;
        size_t bytes;
    } on_device[64];
    int n_on_device;
} bits_case;

static void *block_of(bits_case *m, size_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes + 64)) abort();
    memset(p, 0, bytes + 64);
    return m->blocks[m->n_blocks++] = p;
}
static float some(bits_case *m) { return test_normal(&m->seed); }
static int64_t count_of(int64_t d) {
    const ln_bounds live = {T, T / 2, B};
    return ln_dim(d, &live);
}

static ln_v input(bits_case *m, int64_t d0, int64_t d1) {
    const int64_t dims[2] = {d0, d1}, n = count_of(d0) * d1;
    const ln_v v = ln_g_input(&m->g, "input", 0, LN_F32, 2, dims);
    float *data = block_of(m, (size_t)n * sizeof *data);
    for (int64_t i = 0; i < n; i++) data[i] = some(m);
    m->bound[v] = data;
    return ln_g_load(&m->g, "rows", v);
}
static ln_v targets(bits_case *m, int64_t d0, int32_t V) {
    const int64_t dims[2] = {d0, 1};
    const ln_v v = ln_g_input(&m->g, "targets", 0, LN_I32, 2, dims);
    int32_t *data = block_of(m, (size_t)count_of(d0) * sizeof *data);
    for (int64_t i = 0; i < count_of(d0); i++)
        data[i] = (int32_t)(test_random(&m->seed) % (uint32_t)(V + 1)) - 1;
    m->bound[v] = data;
    return v;
}
/* A weight of random values in an encoding; with `wild` some of bf16's exponents are rare ones. */
static ln_v frozen_matrices(bits_case *m, ln_dtype dtype, ln_groups enc, int64_t X, int64_t D, int64_t C);
static ln_v frozen(bits_case *m, ln_dtype dtype, ln_groups enc, int64_t D, int64_t C) {
    return frozen_matrices(m, dtype, enc, 0, D, C);
}
/* The matrices of X experts; 0: one matrix. */
static ln_v frozen_matrices(bits_case *m, ln_dtype dtype, ln_groups enc, int64_t X, int64_t D, int64_t C) {
    const int64_t matrix[2] = {D, C}, matrices[3] = {X, D, C};
    const ln_v v = ln_g_encoded(&m->g, "w", ln_encoding_of(dtype, enc), 0, X ? 3 : 2, X ? matrices : matrix);
    struct frozen *f = &m->weights[m->n_weights++];
    *f = (struct frozen){.v = v};
    f->desc = (ln_weight_desc){.size = sizeof f->desc,
                               .name = "w",
                               .enc = ln_encoding_of(dtype, enc),
                               .n_dims = 2,
                               .dims = {D, C},
                               .uses = LN_USE_F32};
    if (X) f->desc.n_dims = 3, memcpy(f->desc.dims, matrices, sizeof matrices), D *= X;
    f->host = (ln_host_weight){.n_rows = D, .n_cols = C};
    uint8_t *data = block_of(m, (size_t)(D * C * 4));
    f->host.data = data;
    if (!enc.bits) {
        for (int64_t i = 0; i < D * C; i++)
            ln_num_store(data, dtype, i, i % 97 == 0 ? some(m) * 0x1p-30f : some(m) * 0.1f);
        return v;
    }
    const size_t groups = (size_t)(C / enc.group * ln_dtype_bytes(dtype));
    uint8_t *scales = block_of(m, (size_t)D * groups), *biases = block_of(m, (size_t)D * groups);
    float *row = block_of(m, (size_t)C * sizeof *row);
    for (int64_t d = 0; d < D; d++) {
        for (int64_t i = 0; i < C; i++) row[i] = some(m);
        ln_affine_quantize(row, C, enc, dtype, data + d * ln_affine_row_bytes(enc, C),
                           scales + (size_t)d * groups, biases + (size_t)d * groups);
    }
    f->host.scales = scales;
    f->host.offsets = biases;
    return v;
}

/* Memory of the device of the case. */
static void *device_block(bits_case *m, size_t bytes) {
    struct device_block *b = &m->on_device[m->n_on_device++];
    b->bytes = bytes + 64;
    OK(m->r.ops->alloc(m->r.dev, b->bytes, 0, &b->p, err));
    return b->p;
}
/* Brings what is bound to the device. */
static void send_bound(bits_case *m) {
    for (size_t v = 0; v < m->g.n_values; v++) {
        const ln_value *x = &m->g.values[v];
        const size_t bytes = (size_t)(count_of(x->dims[0]) * (x->n_dims > 1 ? x->dims[1] : 1)) *
                             (size_t)ln_dtype_bytes(x->dtype);
        if (!m->bound[v]) continue;
        m->r.bound[v] = device_block(m, bytes);
        OK(m->r.ops->copy(m->r.queue, m->r.bound[v], m->bound[v], bytes, LN_COPY_IN, err));
    }
}
static void send_weights(bits_case *m) {
    for (int i = 0; i < m->n_weights; i++) {
        const struct frozen *f = &m->weights[i];
        ln_weight_size z;
        ln_device_weight w;
        OK(m->r.ops->weight_size(m->r.dev, &f->desc, &f->host, &z, err));
        void *at = z.in_place ? block_of(m, z.bound) : device_block(m, z.bound);
        OK(m->r.ops->upload(m->r.dev, &f->desc, &f->host, at, &w, err));
        m->r.bound[f->v] = w.data;
        m->r.layout_id[f->v] = w.layout_id;
    }
}
/* Opens the program on a device, with weights in its layout, and runs one step. */
static void run_on(bits_case *m, const ln_device_ops *ops, int n_threads, ln_policy policy) {
    rg_open(&m->r, &m->g, ops, n_threads, (ln_bounds){T, T, B});
    send_bound(m);
    send_weights(m);
    rg_prepare(&m->r, policy);
    rg_rows(&m->r, lengths, B, 11);
    const size_t bytes = (size_t)m->r.program.temp_bytes;
    void *nan = block_of(m, bytes);
    memset(nan, 0xff, bytes);
    OK(ops->copy(m->r.queue, m->r.temp, nan, bytes, LN_COPY_IN, err));
    rg_run(&m->r);
}
static void close_case(bits_case *m) {
    for (int i = 0; i < m->n_on_device; i++)
        m->r.ops->free(m->r.dev, m->on_device[i].p, m->on_device[i].bytes);
    rg_close(&m->r);
    ln_graph_close(&m->g);
    for (int i = 0; i < m->n_blocks; i++) free(m->blocks[i]);
}

/* An output of a case: its numbers, and the sum of the tolerances of the nodes that it comes from, the
 * largest of their operands'. */
typedef void build_fn(bits_case *m, int form);
typedef struct case_output {
    size_t at, n;
    double tolerance;
    char name[80];
} case_output;
static double tolerance_from(const ln_program *p, ln_v of) {
    double *sum = calloc((size_t)p->n_values, sizeof *sum), result;
    for (int i = 0; i < p->n_nodes; i++) {
        const ln_pnode *n = ln_program_node(p, i);
        double most = 0;
        for (int k = 0; k < n->n_in; k++) most = LN_MAX(most, sum[n->in[k]]);
        for (int k = 0; k < n->n_out; k++) sum[n->out[k]] = most + n->tolerance;
    }
    result = sum[of];
    free(sum);
    return result;
}
/* The outputs of a case, one after the other, as f32; the caller frees them. */
static float *outputs_of(build_fn *build, int form, const ln_device_ops *ops, int n_threads, ln_policy policy,
                         case_output out[24], size_t *n_out) {
    bits_case *m = calloc(1, sizeof *m);
    m->seed = 7;
    ln_graph_open(&m->g);
    build(m, form);
    run_on(m, ops, n_threads, policy);
    float *all = NULL;
    size_t n = 0;
    *n_out = 0;
    for (size_t i = 0; i < m->g.n_outputs; i++) {
        const ln_v v = m->g.outputs[i];
        const ln_pvalue *x = ln_program_value(&m->r.program, v);
        const int64_t rows = count_of(x->dims[0]);
        case_output *o = &out[(*n_out)++];
        *o = (case_output){.at = n, .n = (size_t)(rows * x->dims[1])};
        snprintf(o->name, sizeof o->name, "%s", x->name);
        o->tolerance = tolerance_from(&m->r.program, v);
        all = realloc(all, (n + o->n + 1) * sizeof *all);
        OK(ops->value(m->r.exec, v, 0, rows, all + n, false, err));
        n += o->n;
    }
    close_case(m);
    free(m);
    return all;
}

static void out(bits_case *m, ln_v v) { ln_g_output(&m->g, v); }

static void build_matmul(bits_case *m, int form) {
    static const int64_t sizes[][3] = {{8, 261, 45}, {3, 16, 300}, {70, 5, 1}};
    const int64_t d = sizes[form][0], c = sizes[form][1], e = sizes[form][2];
    const ln_v x = input(m, LN_DIM_T, c), w = input(m, d, c), y = input(m, LN_DIM_T, d), z = input(m, d, e);
    out(m, ln_g_matmul(&m->g, "nt", x, w, LN_MATMUL_NT));
    out(m, ln_g_matmul(&m->g, "nn", y, z, LN_MATMUL_NN));
    out(m, ln_g_matmul(&m->g, "tn", y, x, LN_MATMUL_TN));
    out(m, ln_g_matmul(&m->g, "tn2", x, y, LN_MATMUL_TN));
}

static const struct {
    ln_dtype dtype;
    int bits, group;
    int64_t D, C;
} stored[] = {{LN_F32, 0, 0, 281, 45},  {LN_BF16, 0, 0, 281, 45},   {LN_F16, 0, 0, 281, 70},
              {LN_BF16, 0, 0, 70, 545}, {LN_BF16, 4, 32, 281, 64},  {LN_F16, 3, 32, 281, 96},
              {LN_F32, 8, 64, 270, 64}, {LN_BF16, 5, 128, 40, 128}, {LN_BF16, 2, 32, 33, 32},
              {LN_F32, 6, 32, 33, 96},  {LN_BF16, 0, 0, 320, 128},  {LN_BF16, 4, 64, 192, 128}};
static void build_weights(bits_case *m, int form) {
    const int64_t D = stored[form].D, C = stored[form].C;
    const ln_groups enc = {stored[form].bits, stored[form].group};
    const ln_v w = frozen(m, stored[form].dtype, enc, D, C);
    const ln_v x = input(m, LN_DIM_N, C), dy = input(m, LN_DIM_N, D), up = input(m, LN_DIM_N, 1);
    const ln_v loss = ln_g_linear_cross_entropy(&m->g, "loss", x, w, targets(m, LN_DIM_N, (int32_t)D));
    ln_v dx;
    out(m, ln_g_linear_back(&m->g, "dx", dy, w));
    out(m, loss);
    OK(ln_graph_grad(&m->g, loss, up, &x, 1, &dx, err));
    out(m, dx);
}

static ln_v sinks_of(bits_case *m, int n_heads) {
    const int64_t dims[2] = {n_heads, 0};
    const ln_v w = ln_g_trainable(&m->g, "sinks", 0, LN_BF16, 1, dims);
    m->bound[w] = block_of(m, (size_t)n_heads * 2);
    for (int i = 0; i < n_heads; i++) ln_num_store(m->bound[w], LN_BF16, i, some(m));
    return w;
}
static const ln_p_packed heads[] = {{2, 1, 20, 20, 0.25f, 0, 0},    {4, 4, 9, 9, 0.5f, 33, 0},
                                    {6, 2, 32, 32, 0.2f, 270, 0},   {4, 2, 12, 21, 0.3f, 40, 0},
                                    {2, 1, 40, 16, 0.3f, 0, 0},     {4, 2, 16, 16, 0.4f, 0, 1.5f},
                                    {4, 4, 20, 12, 0.4f, 33, 0.8f}, {2, 1, 64, 64, 0.125f, 100, 2},
                                    {2, 2, 128, 128, 0.09f, 0, 0},  {1, 1, 256, 256, 0.06f, 50, 0}};
static void build_attention(bits_case *m, int form) {
    const ln_p_packed *p = &heads[form];
    const ln_v q = input(m, LN_DIM_T, p->n_heads * p->head_dim),
               k = input(m, LN_DIM_T, p->n_kv_heads * p->head_dim),
               v = input(m, LN_DIM_T, p->n_kv_heads * p->v_dim),
               dy = input(m, LN_DIM_T, p->n_heads * p->v_dim);
    const ln_v wrt[3] = {q, k, v};
    ln_v lse, grads[3],
        y = ln_g_attn(&m->g, "y", q, k, v, form > 4 && form < 8 ? sinks_of(m, p->n_heads) : -1, p, &lse);
    out(m, y), out(m, lse);
    OK(ln_graph_grad(&m->g, y, dy, wrt, 3, grads, err));
    for (int i = 0; i < 3; i++) out(m, grads[i]);
}

static void build_rowwise(bits_case *m, int form) {
    static const ln_dtype types[] = {LN_F32, LN_BF16, LN_F16};
    const int64_t n = form ? 37 : 64, C = 3 * n, dims[2] = {n, 0};
    const ln_v w = ln_g_trainable(&m->g, "w", 0, types[form], 1, dims);
    uint8_t *data = m->bound[w] = block_of(m, (size_t)n * 4);
    for (int64_t i = 0; i < n; i++) ln_num_store(data, types[form], i, some(m));
    const ln_v x = input(m, LN_DIM_T, C), dy = input(m, LN_DIM_T, C);
    out(m, ln_g_act_back(&m->g, "silu", x, dy, LN_ACT_SILU));
    out(m, ln_g_act_back(&m->g, "gelu", x, dy, LN_ACT_GELU_TANH));
    out(m, ln_g_act_back(&m->g, "relu2", x, dy, LN_ACT_RELU2));
    out(m, ln_g_scale(&m->g, "scaled", x, 0.3f));
    out(m, ln_g_scale_rows(&m->g, "scaled_rows", x, input(m, LN_DIM_T, 1)));
    const ln_v y = ln_g_rmsnorm(&m->g, "norm", x, w, 1e-5f, (float)form), wrt[2] = {x, w};
    ln_v grads[2];
    OK(ln_graph_grad(&m->g, y, dy, wrt, 2, grads, err));
    out(m, grads[0]), out(m, grads[1]);
    const ln_v plain = ln_g_rmsnorm_plain(&m->g, "plain", x, n, 1e-5f);
    OK(ln_graph_grad(&m->g, plain, dy, wrt, 1, grads, err));
    out(m, grads[0]);
}

/* Normed heads that are turned, and the gradient of both: of widths that a kernel has for two nodes, and of
 * another. */
static void build_turned(bits_case *m, int form) {
    enum { HEADS = 3 };
    static const int64_t widths[] = {64, 128, 96};
    const int64_t E = widths[form], dims[2] = {E, 0};
    const ln_v w = ln_g_trainable(&m->g, "w", 0, LN_BF16, 1, dims);
    m->bound[w] = block_of(m, (size_t)E * 2);
    for (int64_t i = 0; i < E; i++) ln_num_store(m->bound[w], LN_BF16, i, some(m));
    const ln_v x = input(m, LN_DIM_T, HEADS * E), dy = input(m, LN_DIM_T, HEADS * E),
               table = input(m, LN_DIM_T, E);
    const ln_p_heads heads_of = {.n_heads = HEADS, .head_dim = (int32_t)E};
    const ln_v y = ln_g_rope(&m->g, "y", ln_g_rmsnorm(&m->g, "norm", x, w, 1e-5f, 1), table, &heads_of);
    ln_v dx;
    out(m, y);
    OK(ln_graph_grad(&m->g, y, dy, &x, 1, &dx, err));
    out(m, dx);
}

/* Experts of some rows, of all, and more rows of one than a kernel takes at a time. D and C as in
 * `stored`. */
static void build_experts(bits_case *m, int form) {
    static const ln_route_kind kinds[] = {LN_ROUTE_SOFTMAX, LN_ROUTE_CHOSEN, LN_ROUTE_SIGMOID};
    const int X = form % 3 ? 7 : 3, k = 3;
    const int64_t D = stored[form].D, C = stored[form].C, each = ln_dim_times(LN_DIM_T, k);
    const ln_groups enc = {stored[form].bits, stored[form].group};
    const ln_p_route p = {.kind = kinds[form % 3],
                          .top_k = k,
                          .normed = form % 2 == 0,
                          .eps = 1e-20f,
                          .factor = 1.5f,
                          .n_groups = 1};
    ln_v weights, grads[3];
    const ln_v w = frozen_matrices(m, stored[form].dtype, enc, X, D, C), x = input(m, LN_DIM_T, C),
               logits = input(m, LN_DIM_T, X), ids = ln_g_route(&m->g, "ids", logits, -1, -1, &p, &weights),
               shared = ln_g_experts(&m->g, "shared", x, w, ids, -1, k), own = input(m, each, C),
               apart = ln_g_experts(&m->g, "apart", own, w, ids, -1, k);
    out(m, weights), out(m, shared), out(m, apart);
    const ln_v bound = ln_g_clamp(&m->g, "bound", apart, -0.7f, 0.4f),
               y = ln_g_fold_rows(&m->g, "y", ln_g_add(&m->g, "both", shared, bound), weights, k),
               wrt[3] = {x, logits, own};
    out(m, y);
    OK(ln_graph_grad(&m->g, y, input(m, LN_DIM_T, D), wrt, 3, grads, err));
    for (int i = 0; i < 3; i++) out(m, grads[i]);
}

/* Ops that move elements, and those of user graphs. */
static void build_elements(bits_case *m, int form) {
    const int64_t C = form ? 37 : 300;
    const ln_v x = input(m, LN_DIM_T, C), y = input(m, LN_DIM_T, C), few = input(m, LN_DIM_N, C);
    ln_graph *g = &m->g;
    ln_v grad[2];
    const ln_node scatter = {.op = LN_OP_SCATTER_ROWS, .n_in = 1, .in = {few}},
                  slice = {.op = LN_OP_SLICE_BACK, .n_in = 1, .in = {x}, .p.slice = {.at = 5, .cols = C + 9}},
                  embed = {
                      .op = LN_OP_EMBED_BACK, .n_in = 1, .in = {x}, .p.spread = {11, C, 1.5f, form ? 4 : 0}};
    out(m, ln_g_node(g, "scattered", &scatter, NULL));
    out(m, ln_g_node(g, "sliced", &slice, NULL));
    out(m, ln_g_node(g, "embedded", &embed, NULL));
    for (int kind = 0; kind < 3; kind++) out(m, ln_g_sum(g, "sum", x, (ln_sum_kind)kind));
    out(m, ln_g_spread(g, "spread", ln_g_sum(g, "of rows", y, LN_SUM_ROWS), LN_DIM_T, C, 0.7f));
    out(m, ln_g_spread(g, "spread2", ln_g_sum(g, "of columns", y, LN_SUM_COLS), LN_DIM_T, C, 0.7f));
    for (int kind = 0; kind <= LN_POINTWISE_DIV; kind++)
        out(m, ln_g_pointwise(g, "pointwise", (ln_pointwise)kind, x, kind == LN_POINTWISE_DIV ? y : -1));
    const ln_v block = ln_g_spread(g, "block", ln_g_sum(g, "of rows", x, LN_SUM_ROWS), 6, C, 1);
    out(m, ln_g_reshape(g, "reshaped", block, 2 * C, 3));
    const ln_v soft = ln_g_softmax(g, "soft", x),
               loss = ln_g_nll(g, "nll", y, targets(m, LN_DIM_T, (int32_t)C));
    out(m, soft), out(m, loss);
    OK(ln_graph_grad(g, soft, input(m, LN_DIM_T, C), &x, 1, grad, err));
    out(m, grad[0]);
    OK(ln_graph_grad(g, loss, input(m, LN_DIM_T, 1), &y, 1, grad, err));
    out(m, grad[0]);
}
/* Ops of single elements. */
static void build_pointwise(bits_case *m, int form) {
    const ln_p_xielu xielu = {0.8f, 0.7f, 0.5f, -1e-6f};
    const ln_p_dropout drop = {.p = 0.4f, .site = 3, .seed = 77, .of_outputs = form == 1};
    const int64_t C = form ? 39 : 2100, dims[2] = {LN_DIM_B, 2}, R = form == 1 ? LN_DIM_N : LN_DIM_T;
    ln_graph *g = &m->g;
    const ln_v x = input(m, LN_DIM_T, C), dy = input(m, LN_DIM_T, C),
               samples = ln_g_input(g, "samples", 0, LN_I32, 2, dims);
    int32_t *numbers = m->bound[samples] = block_of(m, sizeof *numbers * 2 * B);
    for (int i = 0; i < 2 * B; i++) numbers[i] = (int32_t)(test_random(&m->seed) % 1000);
    out(m, ln_g_dropout(g, "dropped", input(m, R, C), samples, &drop));
    ln_v grad;
    const ln_v y = ln_g_xielu(g, "xielu", x, &xielu), z = ln_g_clamp(g, "clamped", x, -0.4f, 0.3f);
    out(m, y), out(m, z);
    OK(ln_graph_grad(g, y, dy, &x, 1, &grad, err));
    out(m, grad);
    OK(ln_graph_grad(g, z, dy, &x, 1, &grad, err));
    out(m, grad);
    for (int i = 0; i < 2; i++) {
        const int E = i ? 13 : 12;
        const ln_node back = {.op = LN_OP_ROPE_BACK,
                              .n_in = 2,
                              .in = {input(m, LN_DIM_T, 3 * E), input(m, LN_DIM_T, 12 - 4 * i)},
                              .p.heads = {.n_heads = 3, .head_dim = E, .interleaved = form == 1}};
        out(m, ln_g_node(g, "turned", &back, NULL));
    }
}

static const struct {
    const char *name;
    build_fn *build;
    int forms;
    bool experts;
} train_cases[] = {{"matmul", build_matmul, 3, false},
                   {"products with weights", build_weights, (int)LN_COUNT(stored), false},
                   {"attention", build_attention, (int)LN_COUNT(heads), false},
                   {"row-wise ops", build_rowwise, 3, false},
                   {"normed heads that are turned", build_turned, 3, false},
                   {"ops that move elements", build_elements, 2, false},
                   {"ops of single elements", build_pointwise, 2, false},
                   {"experts", build_experts, (int)LN_COUNT(stored), true}};
#endif
