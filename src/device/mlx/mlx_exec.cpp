/* Programs and steps of the MLX device: a node at a time becomes part of MLX's graph, and the graph is
 * evaluated once at the end of a step. */
#include "mlx_device.h"

#include <cstring>

static int64_t bytes_of(const ln_program *p, const ln_pvalue *x) {
    int64_t bytes = 4;
    for (int i = 0; i < x->n_dims; i++) bytes *= ln_dim(x->dims[i], &p->bounds);
    return bytes;
}

/* What a node makes: its outputs, as much again inside, and the f32 copy of a weight or of its scales. */
static int64_t made_by(const ln_program *p, const ln_pnode *n) {
    int64_t bytes = 0;
    for (int k = 0; k < n->n_out; k++) {
        const ln_pvalue *y = ln_program_value(p, n->out[k]);
        if (y->kind == LN_KIND_TEMP) bytes += 2 * bytes_of(p, y);
    }
    if (n->op != LN_OP_LINEAR) return bytes;
    const ln_pvalue *w = ln_program_value(p, n->in[1]);
    const ln_groups code = ln_encoding_groups(w->enc);
    if (code.bits) return bytes + 2 * bytes_of(p, w) / code.group;
    return bytes + (w->enc.scale == LN_F32 || mlx_multiplies_bf16(p, n) ? 0 : bytes_of(p, w));
}

/* Estimates what MLX holds at once of a step's intermediates: the values that are live at one stage, and what
 * the nodes make that run at once. MLX begins up to a hundred operations before the first has ended, about
 * those of AHEAD nodes. Keys and values of earlier positions, which attention gathers, are left out. */
size_t mlx_scratch_bytes(const ln_dev *, const ln_program *p) {
    enum { AHEAD = 24 };
    int64_t most = 0, running = 0, most_running = 0, keys = 0;
    for (int stage = 0; stage < p->n_stages; stage++) {
        int64_t live = 0;
        for (int v = 0; v < p->n_values; v++) {
            const ln_pvalue *x = ln_program_value(p, v);
            if (x->kind == LN_KIND_TEMP && x->first <= stage && x->last >= stage) live += bytes_of(p, x);
        }
        most = LN_MAX(most, live);
    }
    for (int i = 0; i < p->n_nodes; i++) {
        const ln_pnode *n = ln_program_node(p, i);
        running += made_by(p, n);
        if (i >= AHEAD) running -= made_by(p, ln_program_node(p, i - AHEAD));
        most_running = LN_MAX(most_running, running);
        if (n->op != LN_OP_KV_WRITE) continue; /* of all layers, until the step's end */
        const ln_p_kv *kv = &n->p.kv;
        keys += p->bounds.T * kv->n_kv_heads * (kv->head_dim + kv->v_dim) * ln_dtype_bytes(kv->dtype);
    }
    return (size_t)(most + most_running + keys);
}

void mlx_release(ln_exec **exec) {
    ln_exec *e = *exec;
    if (!e) return;
    *exec = nullptr;
    (void)e->queue->dev->thread.run([&](ln_error *) { return delete e, LN_OK; }, nullptr);
}

static ln_status build_exec(ln_exec *e, ln_error *err) {
    const ln_program *p = e->program;
    e->weights.resize((size_t)p->n_values);
    e->values.resize((size_t)p->n_values);
    e->last.assign((size_t)p->n_values, -1);
    e->is_output.assign((size_t)p->n_values, false);
    for (int i = 0; i < p->n_outputs; i++) e->is_output[(size_t)p->outputs[i]] = true;
    for (int i = 0; i < p->n_nodes; i++) {
        const ln_pnode *n = ln_program_node(p, i);
        if (!mlx_has_op(n->op))
            return ln_fail(err, LN_EUNSUPPORTED,
                           "the mlx device has no function for the op %s; use ln_options.device = "
                           "LN_DEVICE_CPU",
                           ln_op_name(n->op));
        for (int k = 0; k < n->n_in; k++) e->last[(size_t)n->in[k]] = i;
        for (int k = 0; k < n->n_out; k++) e->last[(size_t)n->out[k]] = LN_MAX(e->last[(size_t)n->out[k]], i);
    }
    for (int v = 0; v < p->n_values; v++) {
        const ln_pvalue *x = ln_program_value(p, v);
        if (x->kind == LN_KIND_WEIGHT && x->data) e->weights[(size_t)v] = mlx_weight_of(e->queue->dev, x);
    }
    return LN_OK;
}

ln_status mlx_prepare(ln_queue *q, const ln_program *p, void *, ln_exec **out, ln_error *err) {
    *out = nullptr;
    ln_exec *e = nullptr;
    const ln_status st = q->dev->thread.run(
        [&](ln_error *why) {
            e = new ln_exec{};
            e->queue = q;
            e->program = p;
            return build_exec(e, why);
        },
        err);
    if (st != LN_OK) mlx_release(&e);
    *out = e;
    return st;
}

static mlx_step step_of(const ln_step_block *b) {
    return {b->n_rows,          b->n_out,           b->n_seqs,       ln_step_ids(b),  ln_step_pos(b),
            ln_step_seq(b),     ln_step_adapter(b), ln_step_row0(b), ln_step_slot(b), ln_step_n_prompt(b),
            ln_step_out_rows(b)};
}

static bool has_rows(const ln_exec *e, const ln_pnode *n) {
    const ln_bounds live = {e->step.T, e->step.N, e->step.B};
    const ln_pvalue *y = ln_program_value(e->program, n->out[0]);
    return y->kind != LN_KIND_TEMP || ln_dim(y->dims[0], &live) > 0;
}

/* Evaluates what is to outlive the step: its outputs, and the keys and values of its rows. */
static void evaluate(ln_exec *e) {
    std::vector<mx::array> wanted;
    for (const auto &v : e->values)
        if (v) wanted.push_back(*v);
    for (const mlx_kv_write &w : e->writes) wanted.push_back(w.keys), wanted.push_back(w.values);
    mx::eval(wanted);
}

static void run_step(ln_exec *e, const ln_trace *trace) {
    for (int i = 0; i < e->program->n_nodes; i++) {
        const ln_pnode *n = ln_program_node(e->program, i);
        const double start = trace ? ln_now() : 0;
        if (has_rows(e, n)) mlx_build(e, n);
        if (trace) {
            evaluate(e);
            if (n->op == LN_OP_KV_WRITE) mlx_store_kv(e); /* the trace may read the pages */
            trace->fn(trace->user, i, ln_now() - start);
        }
        for (int k = 0; k < n->n_in + n->n_out; k++) {
            const size_t v = (size_t)(k < n->n_in ? n->in[k] : n->out[k - n->n_in]);
            if (e->last[v] == i && !e->is_output[v]) e->values[v].reset();
        }
    }
    evaluate(e);
    mlx_store_kv(e);
    e->writes.clear();
}

ln_status mlx_submit(ln_exec *e, const ln_step_block *block, const ln_trace *trace, uint64_t *fence,
                     ln_error *err) {
    ln_queue *q = e->queue;
    *fence = ++q->fence;
    const ln_page_change *c = ln_step_changes(block);
    for (int32_t i = 0; i < block->n_changes; i++) q->pages[c[i].group][(size_t)c[i].at] = c[i].page;
    if (block->n_rows == 0) return LN_OK;
    return q->dev->thread.run(
        [&](ln_error *) {
            for (auto &v : e->values) v.reset();
            e->writes.clear();
            e->step = step_of(block);
            run_step(e, trace);
            return LN_OK;
        },
        err);
}

ln_status mlx_wait(ln_queue *q, uint64_t fence, ln_error *err) {
    if (fence <= q->fence) return LN_OK;
    return ln_fail(err, LN_EINTERNAL, "no step has the fence %llu", (unsigned long long)fence);
}

static ln_status copy_value(ln_exec *e, int v, int64_t row, int64_t n, float *rows, bool write,
                            ln_error *err) {
    const bool known = v >= 0 && v < e->program->n_values && e->values[(size_t)v];
    const int64_t R = known ? e->values[(size_t)v]->shape(0) : 0;
    if (!known || row < 0 || n < 0 || row > R - n)
        return ln_fail(err, LN_EINTERNAL, "value %d has no rows %lld + %lld", v, (long long)row,
                       (long long)n);
    mx::array x = mx::contiguous(mlx_f32(*e->values[(size_t)v]));
    mx::eval({x});
    const size_t C = (size_t)x.shape(1);
    if (!write) {
        memcpy(rows, x.data<float>() + (size_t)row * C, (size_t)n * C * sizeof *rows);
        return LN_OK;
    }
    std::vector<float> all(x.data<float>(), x.data<float>() + x.size());
    memcpy(all.data() + (size_t)row * C, rows, (size_t)n * C * sizeof *rows);
    e->values[(size_t)v] =
        mx::astype(mx::array(all.data(), x.shape(), mx::float32), e->values[(size_t)v]->dtype());
    return LN_OK;
}

ln_status mlx_value(ln_exec *e, int v, int64_t row, int64_t n, float *rows, bool write, ln_error *err) {
    const mlx_thread &t = e->queue->dev->thread;
    if (t.is_here()) return copy_value(e, v, row, n, rows, write, err); /* from a trace */
    return e->queue->dev->thread
        .run([&](ln_error *why) { return copy_value(e, v, row, n, rows, write, why); }, err);
}
