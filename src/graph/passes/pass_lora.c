/* lora: adds to a built graph what the adapters of its matrices compute in addition. A model's description
 * knows nothing of adapters, and a program without any never passes through here.
 *
 * In inference A, B and the scale are in a pool that the rows of a step choose from (ln_p_lora):
 *
 *     y = linear(x, w)            y = linear(x, w)
 *     ...                   ->    t = lora_down(x, pool)
 *     z = op(y)                   ...
 *                                 y' = lora_up(y, t, pool)
 *                                 z = op(y')
 *
 * lora_down follows the product and lora_up precedes the first reader, so that both fall into the stages of
 * the nodes next to them and threads meet no additional barrier: the q, k and v projections stay one stage.
 *
 * In training A and B are trainables, and the ops are those that have gradients, directly after the product:
 *
 *     y = linear(x, w)      ->    y = linear(x, w)
 *     z = op(y)                   t = matmul(dropout(x), A^T) * scale
 *                                 y' = y + matmul(t, B^T)
 *                                 z = op(y')
 *
 * Products with the parts of one tensor share A, and t. In both cases all readers of y read y'. Of DoRA the
 * sum is multiplied by the magnitudes over the lengths, and a bias, which the product then lacks, is added
 * after that. */
#include "../grad.h"

#include <stdio.h>

typedef struct adapting {
    ln_graph *g;
    size_t n_values; /* of the graph as it was */
    ln_v *up;        /* [n_values] the value that replaces an adapted output; -1: none yet */
    /* inference */
    const ln_p_lora *places; /* [n_places] */
    size_t n_places;
    ln_v pool;
    ln_v *down;     /* [n_values] the lora_down of a product's output; -1: none */
    ln_p_lora *how; /* [n_values] parameters of both */
    ln_v *ids;      /* [n_values] the experts of its rows; -1: one matrix */
    /* training */
    const ln_lora_training *train; /* NULL: inference */
    ln_lora_graph *out;
} adapting;

/* The name of a new value without the prefix that builders add; the pass sets none. */
static const char *name_of(const ln_graph *g, ln_v v, const char *end, char out[80]) {
    (void)snprintf(out, 80, "%.60s.%s", g->values[v].name, end);
    return out;
}

static bool is_product(const adapting *a, const ln_node *n) {
    if (n->op != LN_OP_LINEAR && (n->op != LN_OP_EXPERTS || a->train)) return false;
    const ln_value *w = &a->g->values[n->in[1]];
    return w->kind == LN_KIND_WEIGHT && w->slot >= 0;
}

/* Adds the lora_down of a product that has a place in the pool. */
static void add_down(adapting *a, const ln_node *n) {
    char name[80];
    if (!is_product(a, n)) return;
    const ln_value *w = &a->g->values[n->in[1]];
    if ((size_t)w->slot >= a->n_places || a->places[w->slot].slot_bytes == 0) return;
    const ln_v y = n->out[0];
    a->how[y] = a->places[w->slot];
    a->how[y].rounds = ln_encoding_is_dense(w->enc);
    a->how[y].of_outputs = ln_dim_symbol(a->g->values[y].dims[0]) == LN_DIM_N;
    if (n->op == LN_OP_EXPERTS) a->how[y].experts = n->p.experts, a->ids[y] = n->in[2];
    a->down[y] =
        ln_g_lora_down(a->g, name_of(a->g, y, "lora_down", name), n->in[0], a->pool, a->ids[y], &a->how[y]);
}

#define NAME(end) name_of(g, y, end, name)

/* Adds what A of module i makes of the operand of a product. */
static void add_trained_down(adapting *a, const ln_node *n, int i) {
    ln_graph *g = a->g;
    const ln_lora_training *t = a->train;
    const ln_v y = n->out[0];
    ln_lora_module *m = &a->out->modules[i];
    char name[80];
    ln_v x = n->in[0];
    const ln_p_dropout p = {.p = (float)t->dropout,
                            .site = (uint32_t)i,
                            .seed = t->seed,
                            .of_outputs = g->values[x].dims[0] == LN_DIM_N};
    if (a->out->samples >= 0) x = ln_g_dropout(g, NAME("dropped"), x, a->out->samples, &p);
    const ln_v h = ln_g_matmul(g, NAME("down"), x, ln_g_load(g, NAME("a"), m->a), LN_MATMUL_NT);
    m->down = ln_g_scale(g, NAME("scaled"), h, (float)t->scale);
}

/* Starts a module that adapts the node of output y; the caller sets what it has. */
static ln_lora_module *add_module(adapting *a, int weight, ln_lora_kind kind, int *i) {
    *i = a->out->n_modules++;
    ln_lora_module *m = &a->out->modules[*i];
    *m = (ln_lora_module){weight, *i, kind, -1, -1, -1, -1, -1, -1, -1};
    return m;
}

/* Adds what the adapter of a table adds to the rows that are looked up. There is no dropout, as in PEFT. */
static void add_lookup(adapting *a, const ln_node *n) {
    ln_graph *g = a->g;
    const ln_lora_training *t = a->train;
    char name[80];
    int i;
    const ln_v y = n->out[0];
    const ln_value w = g->values[n->in[0]];
    const int64_t down[2] = {LN_DIM_T, t->rank}, up[2] = {w.dims[1], t->rank};
    ln_lora_module *m = add_module(a, w.slot, LN_LORA_LOOKUP, &i);
    m->a = ln_g_input(g, "looked_up", t->looked_up, LN_F32, 2, down);
    m->b = ln_g_trainable(g, NAME("lora_b"), LN_LORA_PARTS * i + LN_LORA_B, t->dtype, 2, up);
    m->down = ln_g_scale(g, NAME("scaled"), ln_g_load(g, NAME("a"), m->a),
                         (float)(t->scale * (double)n->p.embed.scale));
    const ln_v h = ln_g_matmul(g, NAME("delta"), m->down, ln_g_load(g, NAME("b"), m->b), LN_MATMUL_NT);
    a->up[y] = ln_g_add(g, NAME("adapted"), y, h);
}

/* Adds to the rows that are looked up those of trained tokens. */
static void add_rows(adapting *a, const ln_node *n) {
    ln_graph *g = a->g;
    const ln_lora_training *t = a->train;
    char name[80];
    int i;
    const ln_v y = n->out[0];
    const ln_value w = g->values[n->in[0]];
    const int64_t size[2] = {t->n_rows, w.dims[1]}, of_step[2] = {LN_DIM_T, t->n_rows};
    ln_lora_module *m = add_module(a, w.slot, LN_LORA_ROWS, &i);
    m->a = ln_g_trainable(g, NAME("rows"), LN_LORA_PARTS * i + LN_LORA_A, LN_F32, 2, size);
    const ln_v chosen = ln_g_load(g, NAME("chosen"), ln_g_input(g, "chosen", t->chosen, LN_F32, 2, of_step));
    const ln_v rows = ln_g_matmul(g, NAME("added"), chosen, ln_g_load(g, NAME("row"), m->a), LN_MATMUL_NN);
    a->up[y] = ln_g_add(g, NAME("changed"), y, ln_g_scale(g, NAME("scaled"), rows, n->p.embed.scale));
}

/* Adds to the logits what the rows of trained tokens add: z[N, n_rows], whose columns are those of the
 * tokens. Tokens that follow each other are one part. */
static void add_head_rows(adapting *a, const ln_node *n) {
    ln_graph *g = a->g;
    const ln_lora_training *t = a->train;
    char name[80];
    int i;
    const ln_v y = n->out[0];
    const ln_value w = g->values[n->in[1]];
    const int64_t size[2] = {t->n_rows, w.dims[1]};
    ln_lora_module *m = add_module(a, w.slot, LN_LORA_HEAD_ROWS, &i);
    while (t->rows_tied && a->out->modules[m->first].kind != LN_LORA_ROWS) m->first--;
    if (t->rows_tied) m->a = a->out->modules[m->first].a;
    else m->a = ln_g_trainable(g, NAME("rows"), LN_LORA_PARTS * i + LN_LORA_A, LN_F32, 2, size);
    const ln_v z = ln_g_matmul(g, NAME("added"), n->in[0], ln_g_load(g, NAME("row"), m->a), LN_MATMUL_NT);
    a->up[y] = y;
    for (int from = 0, to; from < t->n_rows; from = to) {
        to = from + 1;
        while (to < t->n_rows && t->rows[to] == t->rows[to - 1] + 1) to++;
        const ln_v part = to - from == t->n_rows ? z : ln_g_slice(g, NAME("part"), z, from, to - from);
        a->up[y] = ln_g_add(g, NAME("changed"), a->up[y],
                            ln_g_slice_back(g, NAME("wide"), part, t->rows[from], w.dims[0]));
    }
}

/* Replaces the table of the model by the one that is trained: its rows of the tokens, which the caller
 * looks up, or the head. */
static void add_whole(adapting *a, const ln_node *n) {
    ln_graph *g = a->g;
    const bool head = n->op == LN_OP_LINEAR;
    const ln_v y = n->out[0];
    const ln_value w = g->values[n->in[head ? 1 : 0]];
    const int64_t of_step[2] = {LN_DIM_T, w.dims[1]};
    char name[80];
    int i;
    ln_lora_module *m = add_module(a, w.slot, head ? LN_LORA_WHOLE_HEAD : LN_LORA_WHOLE_TABLE, &i);
    m->a = head ? ln_g_trainable(g, NAME("whole"), LN_LORA_PARTS * i + LN_LORA_A, LN_F32, 2, w.dims)
                : ln_g_input(g, "looked_up", a->train->looked_up, LN_F32, 2, of_step);
    const ln_v own = ln_g_load(g, NAME("own"), m->a);
    a->up[y] = head ? ln_g_matmul(g, NAME("changed"), n->in[0], own, LN_MATMUL_NT)
                    : ln_g_scale(g, NAME("changed"), own, n->p.embed.scale);
}

/* The number of the module whose A module i of this weight has. */
static int first_sharing(const adapting *a, int weight, int i) {
    const int *shares = a->train->shares;
    int k = 0;
    while (k < i && (a->out->modules[k].kind != LN_LORA_PRODUCT || a->out->modules[k].weight == weight ||
                     shares[a->out->modules[k].weight] != shares[weight]))
        k++;
    return k;
}

/* Whether a node is the product with the head: its rows are those whose logits are wanted. */
static bool is_head(const adapting *a, const ln_node *n) {
    return is_product(a, n) && a->g->values[n->in[1]].slot == a->train->head;
}

/* Adds what is trained of lookups, and of rows of the head. */
static void add_tables(adapting *a, const ln_node *n) {
    const ln_lora_training *t = a->train;
    const ln_value *w = n->op == LN_OP_EMBED ? &a->g->values[n->in[0]] : NULL;
    if (w && w->kind == LN_KIND_WEIGHT && w->slot == t->table) {
        if (t->whole_table) add_whole(a, n);
        else if (t->lookups[w->slot]) add_lookup(a, n);
        else if (t->n_rows > 0) add_rows(a, n);
    }
    if (t->whole_head && is_head(a, n)) add_whole(a, n);
    else if (t->n_rows > 0 && t->rows_of_head && is_head(a, n)) add_head_rows(a, n);
}

/* Whether an adapter is trained for a product. */
static bool is_trained(const adapting *a, const ln_node *n) {
    return a->train && is_product(a, n) && a->train->adapts[a->g->values[n->in[1]].slot];
}

/* Returns a row [1, n_out] in every row of the result of a product. */
static ln_v in_rows(ln_graph *g, const char *name, ln_v row, ln_v like) {
    const ln_value v = g->values[like];
    return ln_g_spread(g, name, row, v.dims[0], v.dims[1], 1);
}

/* Adds what DoRA makes of the sum of a product without its bias and of LoRA. */
static ln_v add_magnitude(adapting *a, ln_v y, int i, ln_v bias, ln_v sum) {
    ln_graph *g = a->g;
    ln_lora_module *m = &a->out->modules[i];
    const int64_t row[2] = {1, g->values[y].dims[1]};
    char name[80];
    m->magnitude =
        ln_g_trainable(g, NAME("magnitude"), LN_LORA_PARTS * i + LN_LORA_MAGNITUDE, a->train->dtype, 2, row);
    m->per_length =
        ln_g_trainable(g, NAME("per_length"), LN_LORA_PARTS * i + LN_LORA_PER_LENGTH, LN_F32, 2, row);
    const ln_v magnitude = ln_g_load(g, NAME("m"), m->magnitude),
               by = ln_g_load(g, NAME("by"), m->per_length);
    const ln_v gain = ln_g_mul(g, NAME("gain"), magnitude, by);
    const ln_v out = ln_g_mul(g, NAME("directed"), sum, in_rows(g, NAME("gains"), gain, y));
    if (bias < 0) return out;
    m->bias_weight = g->values[bias].slot;
    m->bias = ln_g_trainable(g, NAME("own_bias"), LN_LORA_PARTS * i + LN_LORA_BIAS, LN_F32, 2, row);
    return ln_g_add(g, NAME("biased"), out,
                    in_rows(g, NAME("biases"), ln_g_load(g, NAME("bias"), m->bias), y));
}

/* Adds what a trained adapter makes of the operand of a product, and the sum of both. bias: of the
 * product, to be added after DoRA; -1: none. */
static void add_trained(adapting *a, const ln_node *n, ln_v bias) {
    ln_graph *g = a->g;
    const ln_lora_training *t = a->train;
    char name[80];
    const ln_v y = n->out[0];
    const ln_value w = g->values[n->in[1]];
    const int64_t down[2] = {t->rank, w.dims[1]}, up[2] = {w.dims[0], t->rank};
    int i;
    ln_lora_module *m = add_module(a, w.slot, LN_LORA_PRODUCT, &i);
    const int first = m->first = first_sharing(a, w.slot, i);
    m->a = a->out->modules[first].a, m->down = a->out->modules[first].down;
    if (first == i)
        m->a = ln_g_trainable(g, NAME("lora_a"), LN_LORA_PARTS * i + LN_LORA_A, t->dtype, 2, down);
    m->b = ln_g_trainable(g, NAME("lora_b"), LN_LORA_PARTS * i + LN_LORA_B, t->dtype, 2, up);
    if (first == i) add_trained_down(a, n, i);
    const ln_v h = ln_g_matmul(g, NAME("delta"), m->down, ln_g_load(g, NAME("b"), m->b), LN_MATMUL_NT);
    a->up[y] = ln_g_add(g, NAME("adapted"), y, h);
    if (t->magnitudes) a->up[y] = add_magnitude(a, y, i, bias, a->up[y]);
}
#undef NAME

/* The value that stands for v from now on: v itself, or the output of its lora_up, which is added here. */
static ln_v adapted(adapting *a, ln_v v) {
    char name[80];
    if (v < 0 || (size_t)v >= a->n_values) return v;
    if (a->up[v] < 0 && a->down[v] >= 0)
        a->up[v] =
            ln_g_lora_up(a->g, name_of(a->g, v, "lora", name), v, a->down[v], a->pool, a->ids[v], &a->how[v]);
    return a->up[v] < 0 ? v : a->up[v];
}

static void adapt_all(adapting *a, const ln_node *old, size_t n) {
    ln_graph *g = a->g;
    for (size_t i = 0; i < n && g->error.code == LN_OK; i++) {
        ln_node node = old[i];
        ln_g_layer(g, node.layer, "");
        for (int k = 0; k < node.n_in; k++) node.in[k] = adapted(a, node.in[k]);
        const bool trained = is_trained(a, &node);
        const ln_v bias = trained && a->train->magnitudes && node.n_in == 3 ? node.in[2] : -1;
        if (bias >= 0) node.n_in = 2;
        ln_g_append(g, &node);
        if (trained) add_trained(a, &node, bias);
        else if (a->train) add_tables(a, &node);
        else if (!a->train) add_down(a, &node);
    }
    for (size_t i = 0; i < g->n_outputs && g->error.code == LN_OK; i++)
        g->outputs[i] = adapted(a, g->outputs[i]);
}

static ln_status adapt(adapting *a, ln_error *err) {
    ln_graph *g = a->g;
    ln_node *old = g->nodes;
    const size_t n = g->n_nodes;
    a->n_values = g->n_values;
    a->down = ln_alloc((a->n_values + 1) * sizeof *a->down);
    a->up = ln_alloc((a->n_values + 1) * sizeof *a->up);
    a->how = ln_zalloc(a->n_values + 1, sizeof *a->how);
    a->ids = ln_alloc((a->n_values + 1) * sizeof *a->ids);
    ln_status st = a->down && a->up && a->how && a->ids ? LN_OK : LN_OOM(err, "a graph");
    if (st == LN_OK) {
        for (size_t i = 0; i < a->n_values; i++) a->down[i] = a->up[i] = a->ids[i] = -1;
        g->nodes = NULL; /* the list is rebuilt, in the same order */
        g->n_nodes = g->cap_nodes = 0;
        adapt_all(a, old, n);
        ln_free(old);
        ln_g_layer(g, -1, "");
        if (err) *err = g->error;
        st = g->error.code;
    }
    ln_free(a->down);
    ln_free(a->up);
    ln_free(a->how);
    ln_free(a->ids);
    return st;
}

ln_status ln_graph_adapt(ln_graph *g, const ln_p_lora *places, size_t n_places, ln_error *err) {
    adapting a = {.g = g, .places = places, .n_places = n_places};
    const int64_t one = 1; /* ln_p_lora describes what is in it */
    ln_g_layer(g, -1, "");
    a.pool = ln_g_state(g, "adapters", LN_STATE_ADAPTERS, LN_F32, 0, 1, &one);
    return adapt(&a, err);
}

ln_status ln_graph_adapt_training(ln_graph *g, const ln_lora_training *train, int samples, ln_lora_graph *out,
                                  ln_error *err) {
    static const int64_t pair[2] = {LN_DIM_B, 2};
    adapting a = {.g = g, .train = train, .out = out};
    size_t most = 0;
    *out = (ln_lora_graph){.samples = -1};
    for (size_t i = 0; i < g->n_nodes; i++)
        most += g->nodes[i].op == LN_OP_LINEAR || g->nodes[i].op == LN_OP_EMBED;
    out->modules = ln_arena_alloc(&g->arena, (most + 1) * sizeof *out->modules);
    if (!out->modules) return LN_OOM(err, "the adapted matrices");
    ln_g_layer(g, -1, "");
    if (train->dropout > 0) out->samples = ln_g_input(g, "samples", samples, LN_I32, 2, pair);
    return adapt(&a, err);
}
