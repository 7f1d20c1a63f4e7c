/* Runs a graph on a device of host memory, for tests: passes, plan, bindings, one step. */
#ifndef LN_TESTS_RUN_GRAPH_H
#define LN_TESTS_RUN_GRAPH_H

#include "../common.h"
#include "device/device.h"
#include "graph/grad.h"
#include "graph/step.h"
#include "ops/ops.h"

/* A program that is prepared. The caller sets `bound` before rg_prepare: the memory of each weight, trainable
 * and input by value index. */
typedef struct run_graph {
    ln_graph *g;
    const ln_device_ops *ops;
    ln_dev *dev;
    ln_queue *queue;
    ln_exec *exec;
    ln_dev_info info;
    ln_lowering lowering;
    ln_program program;
    void *temp, *bound[512];
    uint32_t layout_id[512]; /* of weights: ln_device_weight.layout_id */
    ln_step_block *step;
    ln_bounds bounds;
} run_graph;

static inline void rg_open(run_graph *r, ln_graph *g, const ln_device_ops *ops, int n_threads,
                           ln_bounds bounds) {
    *r = (run_graph){.g = g, .ops = ops, .bounds = bounds};
    const ln_dev_options o = {.size = sizeof o, .n_threads = n_threads};
    OK(ops->open(&r->dev, &o, err));
    r->info.size = sizeof r->info;
    ops->describe(r->dev, &r->info);
    const ln_queue_options q = {.size = sizeof q, .n_slots = 1, .n_blocks = 1};
    OK(ops->queue_open(r->dev, &q, &r->queue, err));
}
/* policy: of the cast pass. */
static inline void rg_prepare(run_graph *r, ln_policy policy) {
    ln_graph *g = r->g;
    OK(ln_graph_check(g, "build", err));
    OK(ln_graph_cast(g, policy, err));
    ln_graph_prune(g);
    ln_graph_fuse(g);
    OK(ln_graph_check(g, "fuse", err));
    OK(ln_graph_lower(g, r->ops->lower, r->dev, r->ops->lower, r->dev, &r->bounds, r->info.real_bytes,
                      &r->lowering, err));
    OK(ln_graph_check(g, "lower", err));
    ln_temp_plan plan;
    r->lowering.early_converts = r->info.memory_total > 0; /* as in training */
    OK(ln_graph_plan(g, &r->lowering, &r->bounds, r->info.real_bytes, &plan, err));
    OK(ln_program_make(g, &r->lowering, &plan, &g->arena, &r->program, err));
    for (size_t v = 0; v < g->n_values; v++)
        r->program.values[v].data = r->bound[v], r->program.values[v].layout_id = r->layout_id[v];
    OK(r->ops->alloc(r->dev, (size_t)r->program.temp_bytes + 64, 0, &r->temp, err));
    OK(r->ops->prepare(r->queue, &r->program, r->temp, &r->exec, err));
    const size_t bytes = ((size_t)ln_step_bytes(&r->bounds, 0) + 63) / 64 * 64;
    r->step = aligned_alloc(64, bytes);
    memset(r->step, 0, bytes);
    ln_step_init(r->step, &r->bounds, 0);
}
/* Sequences of the given lengths, with ids 0, 1, ... modulo n_ids; every second row is an output row. */
static inline void rg_rows(run_graph *r, const int *lengths, int n, int n_ids) {
    ln_step_block *s = r->step;
    s->n_seqs = n;
    s->n_rows = 0;
    for (int b = 0; b < n; b++) {
        ln_step_row0(s)[b] = s->n_rows;
        for (int i = 0; i < lengths[b]; i++, s->n_rows++) {
            ln_step_ids(s)[s->n_rows] = (s->n_rows * 5 + 2) % n_ids;
            ln_step_pos(s)[s->n_rows] = i;
            ln_step_seq(s)[s->n_rows] = b;
            ln_step_adapter(s)[s->n_rows] = -1;
        }
        ln_step_slot(s)[b] = 0;
    }
    ln_step_row0(s)[n] = s->n_rows;
    s->n_out = s->n_rows / 2;
    for (int i = 0; i < s->n_out; i++) ln_step_out_rows(s)[i] = 2 * i + 1;
}
static inline void rg_run(run_graph *r) {
    uint64_t fence;
    OK(r->ops->submit(r->exec, r->step, NULL, &fence, err));
    OK(r->ops->wait(r->queue, fence, err));
}
/* Element [row][col] of a graph output. */
static inline double rg_at(const run_graph *r, ln_v v, int64_t row, int64_t col) {
    const ln_pvalue *x = ln_program_value(&r->program, v);
    const char *at = (const char *)r->temp + x->offset + row * x->row_bytes;
    return r->info.real_bytes == 8 ? ((const double *)(const void *)at)[col]
                                   : (double)((const float *)(const void *)at)[col];
}
static inline void rg_close(run_graph *r) {
    if (r->exec) r->ops->release(&r->exec);
    if (r->queue) r->ops->queue_close(&r->queue);
    if (r->temp) r->ops->free(r->dev, r->temp, (size_t)r->program.temp_bytes + 64);
    r->ops->close(&r->dev);
    free(r->step);
}
#endif
