/* Running a program on the pool: every thread walks the same stages, does its share of each node, and meets the others at a
 * barrier between stages.
 *
 * Inside a stage there is no barrier: its nodes depend on each other row by row at most, and all row-wise kernels share
 * rows alike, so a thread only ever reads rows that it made itself. Pointers are resolved when a program is prepared, scratch is taken then,
 * and a run writes nothing but the live row counts. */
#include "exec.h"

struct ln_exec {
    ln_dev *dev;
    const ln_program *program;
    ln_arena arena;
    ln_call *calls;
    ln_kernel_fn **fns;       /* [n_live] */
    uint8_t *scratch;         /* [n_threads][thread_bytes] */
    size_t thread_bytes;
    const ln_watch *watch;    /* of the run that is going on */
};

/* The largest need of any node, in whole cache lines and a page more, so that threads do not meet in the same sets. */
static size_t thread_bytes(const ln_dev *d, const ln_program *p) {
    size_t most = 0;
    for (int i = 0; i < p->n_live; i++) {
        const ln_node *n = &p->graph->nodes[p->order[i]];
        const ln_kernel *k = &d->table[n->op];
        if (k->scratch) most = LN_MAX(most, k->scratch(n, p->graph->values, &p->bounds));
    }
    return most ? (most + 63) / 64 * 64 + 4096 : 0;
}

size_t ln_cpu_scratch_bytes(const ln_dev *d, const ln_program *p) {
    size_t lists = (size_t)(p->n_live + 1) * (sizeof(ln_call) + sizeof(ln_kernel_fn *));
    return thread_bytes(d, p) * (size_t)d->n_threads + lists + sizeof(ln_exec);
}

void ln_cpu_release(ln_exec **exec) {
    ln_exec *e = *exec;
    if (!e) return;
    if (e->scratch) ln_device_cpu.free(e->dev, e->scratch, e->thread_bytes * (size_t)e->dev->n_threads);
    ln_arena_free(&e->arena);
    ln_free(e);
    *exec = NULL;
}

ln_status ln_cpu_prepare(ln_dev *d, const ln_program *p, void *temp, ln_exec **out, ln_error *err) {
    *out = NULL;
    ln_status st = LN_OK;
    ln_exec *e = ln_zalloc(1, sizeof *e);
    if (!e) return LN_OOM(err, "a prepared program");
    e->dev = d;
    e->program = p;
    e->thread_bytes = thread_bytes(d, p);
    LN_GO(ln_calls_new(p, temp, &e->arena, &e->calls, err));
    e->fns = ln_arena_alloc(&e->arena, (size_t)(p->n_live + 1) * sizeof *e->fns);
    if (!e->fns) LN_GO(LN_OOM(err, "a prepared program"));
    for (int i = 0; i < p->n_live; i++) {
        e->fns[i] = d->table[e->calls[i].node->op].fn;
        if (!e->fns[i]) LN_GO(ln_fail(err, LN_EUNSUPPORTED, "the CPU device has no kernel for %s", ln_ops[e->calls[i].node->op].name));
    }
    if (e->thread_bytes) {
        void *scratch;
        LN_GO(ln_device_cpu.alloc(d, e->thread_bytes * (size_t)d->n_threads, &scratch, err));
        e->scratch = scratch;
    }
    *out = e;
    return LN_OK;
out:
    ln_cpu_release(&e);
    return st;
}

static void run_node(const ln_exec *e, int i, int thread, int n_threads) {
    ln_call c = e->calls[i];
    c.thread = thread;
    c.n_threads = n_threads;
    c.scratch = e->scratch + e->thread_bytes * (size_t)thread;
    e->fns[i](&c);
}

static void job(void *user, int thread, int n_threads) {
    const ln_exec *e = user;
    const ln_program *p = e->program;
    for (int s = 0; s < p->n_stages; s++) {
        if (s && n_threads > 1) ln_pool_barrier(thread);
        for (int i = p->stage_begin[s]; i < p->stage_begin[s + 1]; i++) run_node(e, i, thread, n_threads);
    }
}

static void watched_job(void *user, int thread, int n_threads) {
    const ln_exec *e = user;
    for (int i = 0; i < e->program->n_live; i++) {
        double start = ln_now();
        run_node(e, i, thread, n_threads);
        if (n_threads > 1) ln_pool_barrier(thread);
        if (thread == 0) e->watch->fn(e->watch->user, i, ln_now() - start);
        if (n_threads > 1) ln_pool_barrier(thread);
    }
}

ln_status ln_cpu_run(ln_exec *e, const ln_step *step, const ln_watch *watch, ln_error *err) {
    (void)err;
    ln_calls_live(e->program, e->calls, step);
    e->watch = watch;
    ln_pool_run(e->dev->n_threads, watch ? watched_job : job, e);
    return LN_OK;
}
