/* Memory planning: stages, lifetimes and offsets of all temporary values, before any memory is allocated.
 *
 * Stages. Nodes run in the order of the graph, which is cut into stages; a device needs a barrier only
 * between stages. A node joins the current stage unless it reads a value that the stage produces under
 * another partition. Reading row r of what the same thread has just written to row r (both nodes ROWWISE over
 * the same rows) needs no barrier. Lifetimes are counted in stages, not in nodes: threads do not run in
 * lockstep within a stage, so the buffer of a value that dies in a stage is reused only in a later one.
 *
 * Buffers. The output of an INPLACE node, and of a PANELS node where input and output are in row panels,
 * takes over the buffer of input 0 when no other node needs it any more. A row-wise node takes over a buffer
 * whose last reader was the row-wise node before it. The other values are allocated in order of time,
 * alternately from both ends of a block as large as the lower bound (the largest sum of live bytes). Where
 * that does not fit, allocation is greedy by size: the largest value first, at the lowest offset that is free
 * over its whole lifetime. */
#include "graph.h"

#define PLAN_ALIGN 64

static bool rowwise(const ln_graph *g, const ln_node *n) {
    (void)g;
    return (ln_ops[n->op].props & LN_PROP_ROWWISE) != 0;
}

/* Rows by which a row-wise node is partitioned among threads: those of its first output, of input 1 for
 * effects. */
static int64_t node_rows(const ln_graph *g, const ln_node *n) {
    const ln_value *v = &g->values[ln_ops[n->op].props & LN_PROP_EFFECT ? n->in[1] : n->out[0]];
    return v->dims[0];
}

static int stage_nodes(ln_graph *g) {
    int stage = 0;
    bool any = false;
    for (size_t i = 0; i < g->n_nodes; i++) {
        ln_node *n = &g->nodes[i];
        if (n->dead) continue;
        for (int k = 0; k < n->n_in; k++) {
            int def = g->values[n->in[k]].def;
            if (def < 0 || g->nodes[def].dead || g->nodes[def].stage != stage || !any) continue;
            const ln_node *m = &g->nodes[def];
            /* successive versions of a state differ in rows of different layers: only a node that reads the
             * state needs the barrier, not its next writer */
            bool next_version = (ln_ops[n->op].props & LN_PROP_EFFECT) && k == 0;
            if (next_version || (rowwise(g, n) && rowwise(g, m) && node_rows(g, n) == node_rows(g, m)))
                continue;
            stage++;
            break;
        }
        n->stage = stage;
        any = true;
    }
    return any ? stage + 1 : 0;
}

static void lifetimes(ln_graph *g, int n_stages) {
    for (size_t i = 0; i < g->n_values; i++)
        g->values[i].first = g->values[i].last = g->values[i].alias = -1, g->values[i].offset = -1,
        g->values[i].tail_offset = 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const ln_node *n = &g->nodes[i];
        if (n->dead) continue;
        for (int k = 0; k < n->n_out; k++) g->values[n->out[k]].first = g->values[n->out[k]].last = n->stage;
        for (int k = 0; k < n->n_in; k++)
            g->values[n->in[k]].last = LN_MAX(g->values[n->in[k]].last, n->stage);
    }
    for (size_t i = 0; i < g->n_outputs; i++) g->values[g->outputs[i]].last = n_stages;
}

static bool places(const ln_value *v) { return v->kind == LN_KIND_TEMP && v->first >= 0; }

static ln_v root(const ln_graph *g, ln_v v) {
    while (g->values[v].alias >= 0) v = g->values[v].alias;
    return v;
}

static bool reads(const ln_node *n, ln_v v) {
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] == v) return true;
    return false;
}

/* Whether another node of node i's stage reads v. The nodes of a stage are consecutive in the graph, apart
 * from dead nodes between them. */
static bool read_beside(const ln_graph *g, size_t i, ln_v v) {
    int stage = g->nodes[i].stage;
    for (size_t j = i; j-- > 0 && (g->nodes[j].dead || g->nodes[j].stage == stage);)
        if (!g->nodes[j].dead && reads(&g->nodes[j], v)) return true;
    for (size_t j = i + 1; j < g->n_nodes && (g->nodes[j].dead || g->nodes[j].stage == stage); j++)
        if (!g->nodes[j].dead && reads(&g->nodes[j], v)) return true;
    return false;
}

/* The output of an INPLACE node takes over the buffer of input 0 when this node is its last reader: no later
 * node reads it, and no other node of the same stage does. The value that owns the buffer then lives as long
 * as the output. The same holds for a PANELS node whose input and output are in row panels, but with f32
 * temps only: on the double device a row of 16 elements takes two cache lines, which the layout of the digits
 * does not allow for. With too few live rows for a panel the output is stored after the rows of its input
 * (ln_value.tail_offset), in the part of the buffer that the missing rows leave free: if it overwrote them,
 * it would write cache lines that other threads' products wrote and will write again. */
static void share_places(ln_graph *g, const ln_bounds *bounds, int real_bytes) {
    for (size_t i = 0; i < g->n_nodes; i++) {
        ln_node *n = &g->nodes[i];
        if (n->dead || n->n_in < 1) continue;
        ln_value *x = &g->values[n->in[0]], *y = &g->values[n->out[0]];
        const bool on_numbers = (ln_ops[n->op].props & LN_PROP_PANELS) && x->panels && y->panels &&
                                real_bytes == sizeof(float) &&
                                ln_dim(x->dims[0], bounds) >= 2 * LN_PANEL_ROWS;
        if (!(ln_ops[n->op].props & LN_PROP_INPLACE) && !on_numbers) continue;
        if (!places(x) || x->bytes != y->bytes || x->last != n->stage) continue;
        bool alone = !read_beside(g, i, n->in[0]);
        for (int k = 1; k < n->n_in; k++) alone = alone && n->in[k] != n->in[0];
        if (!alone) continue;
        ln_v r = root(g, n->in[0]);
        y->alias = r;
        if (on_numbers) y->tail_offset = y->bytes / ln_dim(y->dims[0], bounds) * LN_PANEL_ROWS;
        g->values[r].last = LN_MAX(g->values[r].last, y->last);
    }
}

/* Whether node i is the last reader of buffer r in its stage: no other node reads a value in it, apart from
 * earlier nodes that updated it in place. */
static bool last_reader(const ln_graph *g, size_t i, ln_v r) {
    const ln_node *n = &g->nodes[i];
    for (size_t j = 0; j < g->n_nodes; j++) {
        const ln_node *m = &g->nodes[j];
        if (j == i || m->dead || m->stage != n->stage) continue;
        for (int k = 0; k < m->n_in; k++)
            if (root(g, m->in[k]) == r && (j > i || !m->n_out || root(g, m->out[0]) != r)) return false;
    }
    return true;
}
/* The output of a row-wise node takes over a buffer whose last reader was the row-wise node before it: the
 * thread has finished reading those rows, which are still in its caches, whereas other free buffers left the
 * caches a layer ago. */
static void take_places(ln_graph *g) {
    for (size_t i = 0; i < g->n_nodes; i++) {
        const ln_node *n = &g->nodes[i];
        if (n->dead || !rowwise(g, n) || n->n_out != 1) continue;
        ln_value *y = &g->values[n->out[0]];
        const int def = g->values[n->in[0]].def;
        if (!places(y) || y->alias >= 0 || def < 0 || g->nodes[def].dead || g->nodes[def].stage != n->stage)
            continue;
        const ln_node *before = &g->nodes[def]; /* of the same stage, hence row-wise over the same rows */
        for (int k = 0; k < before->n_in && y->alias < 0; k++) {
            const ln_v r = root(g, before->in[k]);
            const ln_value *d = &g->values[r];
            const bool dead = places(d) && r != n->out[0] && !d->panels && d->dtype == y->dtype &&
                              ln_pitch(d) == ln_pitch(y) && d->dims[0] == y->dims[0] && d->last == n->stage &&
                              last_reader(g, (size_t)def, r);
            if (!dead) continue;
            y->alias = r;
            g->values[r].last = LN_MAX(g->values[r].last, y->last);
        }
    }
}

typedef struct placed {
    int64_t offset, bytes;
    int first, last;
} placed;

/* Both functions search the values already placed, p[n] sorted by offset, among those whose lifetimes overlap
 * v's. Returns the lowest offset with a free gap of v->bytes. */
static int64_t lowest_gap(const placed *p, size_t n, const ln_value *v) {
    int64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i].last < v->first || p[i].first > v->last) continue;
        if (p[i].offset - at >= v->bytes) break;
        at = LN_MAX(at, p[i].offset + p[i].bytes);
    }
    return at;
}
static int64_t highest_gap(const placed *p, size_t n, const ln_value *v, int64_t room) {
    int64_t end = room;
    for (size_t i = n; i-- > 0;) {
        if (p[i].last < v->first || p[i].first > v->last) continue;
        if (end - p[i].offset - p[i].bytes >= v->bytes) break;
        end = LN_MIN(end, p[i].offset);
    }
    return end - v->bytes;
}

/* Order of allocation: by size, the largest first; or by time, the earliest first. */
static bool before(const ln_value *a, const ln_value *b, bool by_time) {
    if (by_time && a->first != b->first) return a->first < b->first;
    if (by_time && a->last != b->last) return a->last > b->last;
    return a->bytes > b->bytes;
}

/* Assigns offsets to the n values of the queue in that order. By size: each at the lowest free gap. By time:
 * alternately at the lowest and at the highest free gap within `room` bytes, so that the input of a node is
 * near one end and its output near the other. `done` is working memory for n entries. Returns the bytes used;
 * -1 when `room` bytes are not enough. */
static int64_t place(ln_graph *g, ln_v *queue, size_t n, placed *done, bool by_time, int64_t room) {
    int64_t total = 0;
    for (size_t i = 1; i < n; i++) /* stable insertion sort: a few hundred values */
        for (size_t j = i; j > 0 && before(&g->values[queue[j]], &g->values[queue[j - 1]], by_time); j--) {
            ln_v t = queue[j];
            queue[j] = queue[j - 1], queue[j - 1] = t;
        }
    for (size_t i = 0; i < n; i++) {
        ln_value *v = &g->values[queue[i]];
        v->offset = by_time && i % 2 ? highest_gap(done, i, v, room) : lowest_gap(done, i, v);
        if (v->offset < 0 || (by_time && v->offset + v->bytes > room)) return -1;
        total = LN_MAX(total, v->offset + v->bytes);
        size_t at = i;
        for (; at > 0 && done[at - 1].offset > v->offset; at--) done[at] = done[at - 1];
        done[at] = (placed){v->offset, v->bytes, v->first, v->last};
    }
    return total;
}

static ln_status place_all(ln_graph *g, ln_program *out, ln_error *err) {
    ln_v *queue = ln_zalloc(g->n_values + 1, sizeof *queue);
    placed *done = ln_zalloc(g->n_values + 1, sizeof *done);
    size_t n = 0;
    if (!queue || !done) {
        ln_free(queue);
        ln_free(done);
        return LN_OOM(err, "the memory plan");
    }
    for (size_t i = 0; i < g->n_values; i++)
        if (places(&g->values[i]) && g->values[i].alias < 0) queue[n++] = (ln_v)i;
    out->temp_bytes = place(g, queue, n, done, true, out->temp_bound);
    if (out->temp_bytes < 0) out->temp_bytes = place(g, queue, n, done, false, 0);
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i].alias >= 0) g->values[i].offset = g->values[root(g, (ln_v)i)].offset;
    ln_free(queue);
    ln_free(done);
    return LN_OK;
}

/* Sets temp_bound to the largest sum of bytes live at one stage, the lower bound of every plan. */
static ln_status largest_stage(const ln_graph *g, ln_program *out, ln_error *err) {
    int64_t *change = ln_zalloc((size_t)out->n_stages + 2, sizeof *change), sum = 0;
    if (!change) return LN_OOM(err, "the memory plan");
    for (size_t i = 0; i < g->n_values; i++) {
        const ln_value *v = &g->values[i];
        if (!places(v) || v->alias >= 0) continue;
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

ln_status ln_graph_plan(ln_graph *g, const ln_bounds *bounds, int real_bytes, ln_program *out,
                        ln_error *err) {
    memset(out, 0, sizeof *out);
    out->graph = g;
    out->bounds = *bounds;
    out->real_bytes = real_bytes;
    for (size_t i = 0; i < g->n_values; i++) {
        ln_value *v = &g->values[i];
        int64_t bytes = v->dtype == LN_F32 && v->kind == LN_KIND_TEMP ? real_bytes : ln_dtype_bytes(v->dtype);
        for (int d = 0; d < v->n_dims; d++)
            if (__builtin_mul_overflow(bytes,
                                       d == v->n_dims - 1 && d > 0 ? ln_pitch(v) : ln_dim(v->dims[d], bounds),
                                       &bytes))
                return ln_fail(err, LN_EINVALID,
                               "plan: the size of %s does not fit in 64 bits; lower ln_options.n_chunk or "
                               "ln_options.n_ctx",
                               v->name);
        v->bytes = (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    }
    out->n_stages = stage_nodes(g);
    lifetimes(g, out->n_stages);
    share_places(g, bounds, real_bytes);
    take_places(g);
    LN_TRY(largest_stage(g, out, err));
    return place_all(g, out, err);
}
