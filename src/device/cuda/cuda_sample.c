/* Chooses tokens on the GPU from the logits of the last step (contract: ln_device_ops.sample), up to
 * GPU_SAMPLE_ROWS rows at a time. Their parameters go to device memory in one copy behind the step, and the
 * kernels write tokens and log-probabilities to pinned memory, so that there is one wait for the step and the
 * choice.
 *
 *     parameters   draws | masks of the rows that have one | edits
 *     results      log-probabilities | likeliest tokens | ids */
#include "cuda_exchange.h"

#include <string.h>

_Static_assert(sizeof(gpu_edit) == sizeof(ln_logit_edit) &&
                   offsetof(gpu_edit, subtract) == offsetof(ln_logit_edit, subtract) &&
                   (int)GPU_EDIT_ADD == (int)LN_EDIT_ADD && (int)GPU_EDIT_REPEAT == (int)LN_EDIT_REPEAT &&
                   (int)GPU_EDIT_SUBTRACT == (int)LN_EDIT_SUBTRACT &&
                   (int)GPU_EDIT_FORBID == (int)LN_EDIT_FORBID && (int)GPU_TOP == (int)LN_ROW_TOP,
               "edits of the kernels are those of the interface");

enum { LEAST_EDITS = 1 << 16 }; /* there is space for that many, and one for each token */

static size_t mask_bytes(int64_t V) { return (size_t)(V + 63) / 64 * sizeof(uint64_t); }

gpu_sample_size gpu_sample_size_of(int64_t rows, int64_t V) {
    const int64_t n = LN_MIN(rows, (int64_t)GPU_SAMPLE_ROWS);
    if (n == 0) return (gpu_sample_size){0};
    gpu_sample_size s = {.n_edits = LN_MAX(V, (int64_t)LEAST_EDITS)};
    s.parameters = (size_t)n * (sizeof(gpu_draw) + mask_bytes(V)) + (size_t)s.n_edits * sizeof(gpu_edit);
    s.states = gpu_sample_scratch(n);
    s.results = (size_t)n * (sizeof(double) + GPU_TOP * sizeof(gpu_top) + sizeof(int32_t));
    return s;
}

/* The rows of one call as kernels take them. */
typedef struct batch {
    gpu_sampling s;
    gpu_draw *draws; /* in pinned memory, as all parameters */
    size_t masks;    /* bytes of draws and masks so far */
    int64_t n_edits;
} batch;

static void add_draw(batch *b, const ln_row_sampling *r) {
    gpu_draw *d = &b->draws[b->s.n++];
    *d = (gpu_draw){.seed = r->seed,
                    .position = r->position,
                    .top_p = r->top_p,
                    .min_p = r->min_p,
                    .temperature = r->temperature,
                    .repeat_penalty = r->repeat_penalty,
                    .row = (int32_t)r->row,
                    .token = r->token,
                    .top_k = r->top_k,
                    .n_edits = r->n_edits,
                    .first_edit = (int32_t)b->n_edits,
                    .n_top = r->logprob ? r->n_top : -1,
                    .mask = -1};
    const bool drawn = r->token < 0 && r->temperature > 0;
    b->n_edits += r->n_edits;
    b->s.n_edits += r->n_edits > 0;
    b->s.n_logprobs += r->logprob != NULL;
    b->s.n_drawn += drawn;
    b->s.n_filtered += drawn && (r->top_p < 1 || r->top_k > 0 || r->min_p > 0);
}
/* Writes the parameters of the first rows, as many as there is space for; the rows are b.s.n. */
static batch describe(const ln_exec *e, const ln_row_sampling *rows, int64_t n) {
    const gpu_sampler *g = &e->sampler;
    const int64_t most = LN_MIN(n, LN_MIN(e->program->bounds.N, (int64_t)GPU_SAMPLE_ROWS));
    const size_t mask = mask_bytes(e->logits.cols);
    batch b = {.draws = (gpu_draw *)(void *)g->parameters};
    for (int64_t i = 0; i < most && b.n_edits + rows[i].n_edits <= g->size.n_edits; i++)
        add_draw(&b, &rows[i]);
    b.masks = (size_t)b.s.n * sizeof *b.draws;
    for (int i = 0; i < b.s.n; i++) {
        if (!rows[i].mask) continue;
        b.draws[i].mask = (int64_t)b.masks;
        memcpy(g->parameters + b.masks, rows[i].mask, mask);
        b.masks += mask;
    }
    b.s.edits_at = (int64_t)b.masks;
    for (int i = 0; i < b.s.n; i++)
        if (rows[i].n_edits > 0)
            memcpy(g->parameters + b.masks + (size_t)b.draws[i].first_edit * sizeof(gpu_edit), rows[i].edits,
                   (size_t)rows[i].n_edits * sizeof(gpu_edit));
    return b;
}

static void read_results(const gpu_sampling *s, const ln_row_sampling *rows, int32_t *ids) {
    for (int i = 0; i < s->n; i++) {
        ids[i] = s->ids[i];
        if (ids[i] < 0 || !rows[i].logprob) continue;
        *rows[i].logprob = s->logprobs[i];
        for (int k = 0; k < rows[i].n_top; k++) {
            const gpu_top *t = &s->tops[i * GPU_TOP + k];
            rows[i].top[k] = (ln_top){t->id, t->logprob};
        }
    }
}

/* Chooses the tokens of the first rows; *done: how many. */
static ln_status sample_some(ln_exec *e, const ln_row_sampling *rows, int64_t n, int32_t *ids, int64_t *done,
                             ln_error *err) {
    const gpu_launch l = {.stream = e->queue->stream, .overlap = e->queue->dev->major >= 9};
    const gpu_sampler *g = &e->sampler;
    const int64_t room = LN_MIN(e->program->bounds.N, (int64_t)GPU_SAMPLE_ROWS);
    batch b = describe(e, rows, n);
    const size_t bytes = b.masks + (size_t)b.n_edits * sizeof(gpu_edit);
    b.s.parameters = g->device, b.s.states = g->states;
    b.s.logprobs = (double *)(void *)g->results;
    b.s.tops = (gpu_top *)(void *)(b.s.logprobs + room);
    b.s.ids = (int32_t *)(void *)(b.s.tops + room * GPU_TOP);
    *done = b.s.n;
    if (b.s.n == 0) { /* more edits than a row can have */
        ids[0] = -1, *done = 1;
        return LN_OK;
    }
    GPU_TRY(cudaMemcpyAsync(g->device, g->parameters, bytes, cudaMemcpyHostToDevice, l.stream), "choosing "
                                                                                                "tokens");
    GPU_TRY(gpu_sample(&l, &e->logits, &b.s), "choosing tokens");
    LN_TRY(gpu_sync(e->queue, "choosing tokens", err));
    read_results(&b.s, rows, ids);
    return LN_OK;
}

ln_status gpu_sample_rows(ln_exec *e, int v, const ln_row_sampling *rows, int64_t n, int32_t *ids,
                          ln_error *err) {
    for (int64_t i = 0; i < n; i++)
        if (v != e->argmax || rows[i].row < 0 || rows[i].row >= e->live.N || rows[i].n_top > GPU_TOP)
            return ln_fail(err, LN_EINTERNAL,
                           "sampling row %lld of value %d, with %d likeliest tokens: the logits are value "
                           "%d, "
                           "of %lld rows",
                           (long long)rows[i].row, v, rows[i].n_top, (int)e->argmax, (long long)e->live.N);
    LN_TRY(gpu_use(e->queue->dev, err));
    for (int64_t i = 0, k; i < n; i += k) LN_TRY(sample_some(e, rows + i, n - i, ids + i, &k, err));
    return LN_OK;
}
