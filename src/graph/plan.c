/* Memory planning: stages, lifetimes and offsets of all temporary values, before any memory is allocated.
 *
 * Stages. Nodes run in the order of the graph, which is cut into stages; a device needs a barrier only
 * between stages. A node joins the current stage unless it reads a value that the stage produces under
 * another partition. Reading row r of what the same thread has just written to row r (both nodes ROWWISE over
 * the same rows) needs no barrier. All versions of a state are one piece of memory: a node that replaces
 * a version begins a stage if another node of the current stage reads or replaces one, unless the state is
 * LN_STATE_DISJOINT, and so does a reader after a node that replaced one. Lifetimes are counted in stages,
 * not in nodes: threads do not run in lockstep within a stage, so the buffer of a value that dies in a stage
 * is reused only in a later one.
 *
 * Buffers. The output of a node whose kernel can work in place (ln_lowered_node) takes over the buffer of
 * input 0 when no other node needs it any more. A row-wise node takes over a buffer
 * whose last reader was the row-wise node before it. place.c allocates the other values.
 *
 * All of it takes a time nearly proportional to the number of nodes, while stages are short. */
#include "place.h"

#define PLAN_ALIGN 64

/* A plan being made. */
typedef struct planning {
    const ln_graph *g;
    const ln_lowering *l;
    const ln_bounds *bounds;
    ln_storage *at; /* [n_values] ln_temp_plan.storage */
    int *stage;     /* [n_nodes] ln_temp_plan.stage */
} planning;

static bool rowwise(const ln_node *n) { return (ln_ops[n->op].props & LN_PROP_ROWWISE) != 0; }

/* Rows by which a row-wise node is partitioned among threads: those of its first output, of input 1 for
 * effects. */
static int64_t node_rows(const ln_graph *g, const ln_node *n) {
    const ln_value *v = &g->values[ln_ops[n->op].props & LN_PROP_EFFECT ? n->in[1] : n->out[0]];
    return v->dims[0];
}

/* The last stage in which a state was read and in which a version of it was replaced; -1: none. */
typedef struct last_use {
    int read, replaced;
} last_use;

/* Whether input k of a node, a state without LN_STATE_DISJOINT, is in use by another node of the stage in a
 * way that needs a barrier before this node. */
static bool state_in_use(const ln_graph *g, const ln_node *n, int k, const last_use *states, int stage) {
    const ln_value *v = &g->values[n->in[k]];
    if (v->kind != LN_KIND_STATE || v->flags & LN_STATE_DISJOINT) return false;
    const last_use *u = &states[v->slot];
    return u->replaced == stage || (u->read == stage && ln_replaces(n, k));
}

/* Whether a node reads a value that the stage makes, other than rows that the same thread has made. */
static bool needs_barrier(const planning *p, const ln_node *n, const last_use *states, int stage) {
    const ln_graph *g = p->g;
    for (int k = 0; k < n->n_in; k++) {
        if (state_in_use(g, n, k, states, stage)) return true;
        const ln_value *v = &g->values[n->in[k]];
        if (v->def < 0 || g->nodes[v->def].dead || p->stage[v->def] != stage) continue;
        if (v->kind == LN_KIND_STATE && ln_replaces(n, k)) continue; /* disjoint, or not in use */
        const ln_node *m = &g->nodes[v->def];
        if (!(rowwise(n) && rowwise(m) && node_rows(g, n) == node_rows(g, m))) return true;
    }
    return false;
}

static int stage_nodes(planning *p, last_use *states) {
    const ln_graph *g = p->g;
    int stage = 0;
    bool any = false;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const ln_node *n = &g->nodes[i];
        p->stage[i] = -1;
        if (n->dead) continue;
        if (any && needs_barrier(p, n, states, stage)) stage++;
        for (int k = 0; k < n->n_in; k++) {
            const ln_value *v = &g->values[n->in[k]];
            if (v->kind != LN_KIND_STATE) continue;
            if (ln_replaces(n, k)) states[v->slot].replaced = stage;
            else states[v->slot].read = stage;
        }
        p->stage[i] = stage;
        any = true;
    }
    return any ? stage + 1 : 0;
}

/* Whether the op that makes the input of a conversion may store its output (ln_lowering.early_converts), for
 * which it needs a buffer apart from what the op reads. An op that works in place stores over that, and needs
 * none. */
static bool converts_early(const planning *p, const ln_node *n) {
    const int def = n->op == LN_OP_CONVERT ? p->g->values[n->in[0]].def : -1;
    if (!p->l->early_converts || def < 0 || p->g->nodes[def].dead) return false;
    return !(ln_ops[p->g->nodes[def].op].props & LN_PROP_INPLACE);
}

static void lifetimes(planning *p, int n_stages) {
    const ln_graph *g = p->g;
    for (size_t i = 0; i < g->n_values; i++) {
        p->at[i].first = p->at[i].last = p->at[i].alias = -1;
        p->at[i].offset = -1;
        p->at[i].tail_offset = 0;
    }
    for (size_t i = 0; i < g->n_nodes; i++) {
        const ln_node *n = &g->nodes[i];
        if (n->dead) continue;
        for (int k = 0; k < n->n_out; k++) p->at[n->out[k]].first = p->at[n->out[k]].last = p->stage[i];
        for (int k = 0; k < n->n_in; k++) p->at[n->in[k]].last = LN_MAX(p->at[n->in[k]].last, p->stage[i]);
        if (converts_early(p, n)) p->at[n->out[0]].first = p->stage[g->values[n->in[0]].def];
    }
    for (size_t i = 0; i < g->n_outputs; i++)
        if (!g->values[g->outputs[i]].taken) p->at[g->outputs[i]].last = n_stages;
}

/* Counts, for each value, the nodes of its last stage that read it. Lifetimes must be those of lifetimes().
 */
static void count_last_readers(const planning *p, int *readers) {
    const ln_graph *g = p->g;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const ln_node *n = &g->nodes[i];
        for (int k = 0; !n->dead && k < n->n_in; k++) {
            bool again = false;
            for (int j = 0; j < k; j++) again = again || n->in[j] == n->in[k];
            readers[n->in[k]] += !again && p->at[n->in[k]].last == p->stage[i];
        }
    }
}

static bool places(const planning *p, ln_v v) {
    return p->g->values[v].kind == LN_KIND_TEMP && p->at[v].first >= 0;
}

static ln_v root(const planning *p, ln_v v) {
    while (p->at[v].alias >= 0) v = p->at[v].alias;
    return v;
}
/* Has a value share the buffer r. */
static void share(planning *p, ln_v v, ln_v r) {
    p->at[v].alias = r;
    p->at[r].last = LN_MAX(p->at[r].last, p->at[v].last);
}

/* The output of a node whose kernel can work in place takes over the buffer of input 0 when this node is its
 * last reader: no later node reads it, and no other node of the same stage does. The value that owns the
 * buffer then lives as long as the output. With fewer live rows than its layout needs (ln_lowering.tail_rows)
 * the output is stored after the rows of its input (ln_storage.tail_offset), in the part of the buffer that
 * the missing rows leave free: if it overwrote them, it would write cache lines that other threads' products
 * wrote and will write again. */
static void share_places(planning *p, const int *last_readers) {
    for (size_t i = 0; i < p->g->n_nodes; i++) {
        const ln_node *n = &p->g->nodes[i];
        if (n->dead || n->n_in < 1 || !p->l->nodes[i].in_place) continue;
        const ln_storage *x = &p->at[n->in[0]];
        ln_storage *y = &p->at[n->out[0]];
        if (!places(p, n->in[0]) || x->bytes != y->bytes || x->last != p->stage[i]) continue;
        bool alone = last_readers[n->in[0]] == 1; /* x->last is this stage: the reader is this node */
        for (int k = 1; k < n->n_in; k++) alone = alone && n->in[k] != n->in[0];
        const int64_t rows = ln_dim(p->g->values[n->out[0]].dims[0], p->bounds);
        if (!alone || rows < 2 * p->l->tail_rows[n->out[0]]) continue; /* the rows of a tail would not fit */
        share(p, n->out[0], root(p, n->in[0]));
        y->tail_offset = y->bytes / rows * p->l->tail_rows[n->out[0]];
    }
}

/* Whether node j reads a value in buffer r. Nodes before i may also have updated the buffer in place. */
static bool reads_buffer(const planning *p, size_t i, size_t j, ln_v r) {
    const ln_node *m = &p->g->nodes[j];
    for (int k = 0; !m->dead && k < m->n_in; k++)
        if (root(p, m->in[k]) == r && (j > i || !m->n_out || root(p, m->out[0]) != r)) return true;
    return false;
}
/* Whether node i is the last reader of buffer r in its stage: no other node reads a value in it, apart from
 * earlier nodes that updated it in place. The nodes of a stage are consecutive in the graph, apart from dead
 * nodes between them. */
static bool last_reader(const planning *p, size_t i, ln_v r) {
    const ln_graph *g = p->g;
    const int stage = p->stage[i];
    for (size_t j = i; j-- > 0 && (g->nodes[j].dead || p->stage[j] == stage);)
        if (reads_buffer(p, i, j, r)) return false;
    for (size_t j = i + 1; j < g->n_nodes && (g->nodes[j].dead || p->stage[j] == stage); j++)
        if (reads_buffer(p, i, j, r)) return false;
    return true;
}
/* The output of a row-wise node takes over a buffer whose last reader was the row-wise node before it: the
 * thread has finished reading those rows, which are still in its caches, whereas other free buffers left the
 * caches a layer ago. */
static void take_places(planning *p) {
    const ln_graph *g = p->g;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const ln_node *n = &g->nodes[i];
        if (n->dead || !rowwise(n) || n->n_out != 1 || converts_early(p, n)) continue;
        const ln_v v = n->out[0];
        const ln_value *y = &g->values[v];
        const int def = n->n_in ? g->values[n->in[0]].def : -1;
        if (!places(p, v) || p->at[v].alias >= 0 || def < 0 || g->nodes[def].dead ||
            p->stage[def] != p->stage[i])
            continue;
        const ln_node *before = &g->nodes[def]; /* of the same stage, hence row-wise over the same rows */
        for (int k = 0; k < before->n_in && p->at[v].alias < 0; k++) {
            const ln_v r = root(p, before->in[k]);
            const ln_value *d = &g->values[r];
            const bool dead = places(p, r) && r != v && d->layout < LN_LAYOUT_DEVICE &&
                              (d->layout == LN_LAYOUT_NARROW) == (y->layout == LN_LAYOUT_NARROW) &&
                              p->l->row_bytes[r] == p->l->row_bytes[v] && d->dims[0] == y->dims[0] &&
                              p->at[r].last == p->stage[i] && last_reader(p, (size_t)def, r);
            if (dead) share(p, v, r);
        }
    }
}

static ln_status place_all(planning *p, ln_temp_plan *out, ln_error *err) {
    const ln_graph *g = p->g;
    ln_v *queue = ln_zalloc(g->n_values + 1, sizeof *queue);
    size_t n = 0;
    if (!queue) return LN_OOM(err, "the memory plan");
    for (size_t i = 0; i < g->n_nodes; i++) /* in the order of the nodes, which decides between equals */
        for (int k = 0; !g->nodes[i].dead && k < g->nodes[i].n_out; k++) {
            const ln_v v = g->nodes[i].out[k];
            if (places(p, v) && p->at[v].alias < 0) queue[n++] = v;
        }
    ln_status st = ln_graph_place(p->at, g->n_values, queue, n, out->temp_bound, &out->temp_bytes, err);
    ln_free(queue);
    LN_TRY(st);
    for (size_t i = 0; i < g->n_values; i++)
        if (p->at[i].alias >= 0) p->at[i].offset = p->at[root(p, (ln_v)i)].offset;
    return LN_OK;
}

/* Sets temp_bound to the largest sum of bytes live at one stage, the lower bound of every plan. */
static ln_status largest_stage(const planning *p, ln_temp_plan *out, ln_error *err) {
    int64_t *change = ln_zalloc((size_t)out->n_stages + 2, sizeof *change), sum = 0;
    if (!change) return LN_OOM(err, "the memory plan");
    for (size_t i = 0; i < p->g->n_values; i++) {
        const ln_storage *v = &p->at[i];
        if (!places(p, (ln_v)i) || v->alias >= 0) continue;
        change[v->first] += v->bytes;
        change[v->last + 1] -= v->bytes;
    }
    for (int s = 0; s <= out->n_stages; s++) {
        sum += change[s];
        out->temp_bound = LN_MAX(out->temp_bound, sum);
    }
    ln_free(change);
    return LN_OK;
}

/* The bytes of each value's buffer. */
static ln_status set_sizes(planning *p, ln_error *err) {
    for (size_t i = 0; i < p->g->n_values; i++) {
        const ln_value *v = &p->g->values[i];
        int64_t bytes = 0;
        if (v->kind == LN_KIND_TEMP &&
            __builtin_mul_overflow(p->l->row_bytes[i], ln_dim(v->dims[0], p->bounds), &bytes))
            return ln_fail(err, LN_EINVALID,
                           "plan: the size of %s does not fit in 64 bits; lower ln_options.n_chunk or "
                           "ln_options.n_ctx",
                           v->name);
        p->at[i].bytes = (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    }
    return LN_OK;
}

ln_status ln_graph_plan(ln_graph *g, const ln_lowering *l, const ln_bounds *bounds, int real_bytes,
                        ln_temp_plan *out, ln_error *err) {
    memset(out, 0, sizeof *out);
    out->bounds = *bounds;
    out->real_bytes = real_bytes;
    planning p = {.g = g, .l = l, .bounds = bounds};
    p.at = ln_arena_alloc(&g->arena, (g->n_values + 1) * sizeof *p.at);
    p.stage = ln_arena_alloc(&g->arena, (g->n_nodes + 1) * sizeof *p.stage);
    if (!p.at || !p.stage) return LN_OOM(err, "the memory plan");
    out->storage = p.at;
    out->stage = p.stage;
    LN_TRY(set_sizes(&p, err));
    const size_t n_states = ln_graph_states(g);
    last_use *states = ln_zalloc(n_states + 1, sizeof *states);
    if (!states) return LN_OOM(err, "the memory plan");
    for (size_t i = 0; i < n_states; i++) states[i] = (last_use){-1, -1};
    out->n_stages = stage_nodes(&p, states);
    ln_free(states);
    lifetimes(&p, out->n_stages);
    int *last_readers = ln_zalloc(g->n_values + 1, sizeof *last_readers);
    if (!last_readers) return LN_OOM(err, "the memory plan");
    count_last_readers(&p, last_readers);
    share_places(&p, last_readers);
    ln_free(last_readers);
    take_places(&p);
    LN_TRY(largest_stage(&p, out, err));
    return place_all(&p, out, err);
}
