/* Programs of a few nodes that run on the CUDA device and on the reference device, lowered as the CUDA device
 * asks, for test_cuda_kernels. Memory is poisoned: temporaries, and the bytes behind each block, begin as
 * NaN, so that a kernel that reads what nothing has written, or beyond the end, shows in its outputs; the
 * bytes that follow the temporaries must stay as they are. */
#ifndef LN_CUDA_CASE_H
#define LN_CUDA_CASE_H

#include "../common.h"
#include "device/registry.h"
#include "graph/graph.h"
#include "graph/state_pool.h"

enum { CASE_WEIGHTS = 8, GUARD = 4096 };

static const ln_device_ops *cuda_ops;

/* Finds the CUDA device; false, with a message, if it cannot be opened. */
static inline bool cuda_here(void) {
    ln_error e = {0};
    ln_dev *dev = NULL;
    const ln_dev_options o = {.size = sizeof o, .n_threads = 1};
    ln_status st = ln_device_find("cuda", &cuda_ops, &e);
    if (st == LN_OK) st = cuda_ops->open(&dev, &o, &e);
    if (st == LN_OK) {
        cuda_ops->close(&dev);
        return true;
    }
    printf("SKIP: no CUDA device: %s\n", e.message);
    return false;
}

/* A weight in host memory. */
typedef struct case_weight {
    ln_weight_desc desc;
    ln_host_weight host;
    void *data[4]; /* elements, or codes, scales, biases, groups of columns */
} case_weight;

/* A weight of random elements; bits 0: dense, C = 0: a vector. */
static inline case_weight random_weight(const char *name, ln_dtype dtype, ln_groups e, int64_t D, int64_t C,
                                        uint64_t *seed) {
    const int64_t cols = C ? C : 1;
    case_weight w = {.desc = {.size = sizeof w.desc,
                              .name = name,
                              .enc = ln_encoding_of(dtype, e),
                              .n_dims = C ? 2 : 1,
                              .dims = {D, C},
                              .uses = C ? LN_USE_F32 | LN_USE_BF16 | LN_USE_GATHER : 0},
                     .host = {.n_rows = D, .n_cols = cols}};
    float *row = malloc((size_t)cols * sizeof *row);
    const int64_t size = ln_dtype_bytes(dtype), groups = e.bits ? cols / e.group : 0,
                  codes = e.bits ? ln_affine_row_bytes(e, cols) : cols * size;
    w.data[0] = malloc((size_t)(D * codes));
    for (int k = 1; k < 3; k++) w.data[k] = malloc((size_t)(D * groups * size) + 1);
    for (int64_t d = 0; d < D; d++) {
        for (int64_t c = 0; c < cols; c++) row[c] = test_normal(seed) * 0.5f;
        if (e.bits)
            ln_affine_quantize(row, cols, e, dtype, (uint8_t *)w.data[0] + d * codes,
                               (uint8_t *)w.data[1] + d * groups * size,
                               (uint8_t *)w.data[2] + d * groups * size);
        else
            for (int64_t c = 0; c < cols; c++) ln_num_store(w.data[0], dtype, d * cols + c, row[c]);
    }
    free(row);
    w.host.data = w.data[0], w.host.scales = w.data[1], w.host.offsets = w.data[2];
    return w;
}
/* A matrix in coded rows; of zero points with the groups of columns in no order. */
static inline case_weight coded_weight(const char *name, ln_encoding e, int64_t D, int64_t C,
                                       uint64_t *seed) {
    const ln_row_bytes row = ln_encoding_row(e, C);
    const int64_t groups = ln_coded_units(e, C), bytes[3] = {row.data, row.scales, row.offsets};
    case_weight w = {.desc = {.size = sizeof w.desc,
                              .name = name,
                              .enc = e,
                              .n_dims = 2,
                              .dims = {D, C},
                              .uses = LN_USE_F32 | LN_USE_GATHER},
                     .host = {.n_rows = D, .n_cols = C}};
    for (int k = 0; k < 3; k++) w.data[k] = calloc(1, (size_t)(D * bytes[k]) + 1);
    uint8_t *codes = w.data[0];
    for (int64_t i = 0; i < D * row.data; i++) {
        const uint8_t v = (uint8_t)(test_random(seed) >> 8);
        const bool special = (e.kind == LN_STORED_E4M3 && (v & 0x7f) == 0x7f) ||
                             (e.kind == LN_STORED_E5M2 && (v & 0x7c) == 0x7c);
        codes[i] = special ? 0 : v;
    }
    for (int64_t i = 0; i < D * groups; i++) {
        ln_num_store(w.data[1], (ln_dtype)e.scale, i, test_normal(seed) * 0.01f);
        if (e.kind == LN_STORED_ZEROED)
            ln_num_store(w.data[2], (ln_dtype)e.offset, i, (float)(test_random(seed) % (1u << e.bits)));
    }
    if (e.kind == LN_STORED_ZEROED) {
        uint16_t *columns = w.data[3] = calloc((size_t)C, sizeof *columns);
        for (int64_t c = 0; c < C; c++) columns[c] = (uint16_t)(test_random(seed) % (uint32_t)groups);
        w.host.columns = columns;
    }
    w.host.data = w.data[0], w.host.scales = w.data[1], w.host.offsets = w.data[2];
    return w;
}
/* A matrix in any encoding, as a program of this policy reads it. */
static inline case_weight encoded_weight(const char *name, ln_encoding e, int64_t D, int64_t C,
                                         ln_policy policy, uint64_t *seed) {
    case_weight w = ln_encoding_is_coded(e)
                        ? coded_weight(name, e, D, C, seed)
                        : random_weight(name, (ln_dtype)e.scale, ln_encoding_groups(e), D, C, seed);
    if (policy == LN_POLICY_FAST_FP8 && ln_encoding_is_fp8(e)) w.desc.uses |= LN_USE_FP8;
    return w;
}
static inline void free_weight(case_weight *w) {
    for (int k = 0; k < 4; k++) free(w->data[k]);
}

/* A program on one device. */
typedef struct side {
    const ln_device_ops *ops;
    ln_dev *dev;
    ln_dev_info info;
    ln_queue *queue;
    ln_exec *exec;
    ln_program p;
    ln_arena arena;
    char *temp, *pool, *buffer[CASE_WEIGHTS];
    size_t temp_bytes, pool_bytes, buffer_bytes[CASE_WEIGHTS];
    ln_step_block *step; /* the next step */
} side;

/* What a case consists of. build: describes the graph, whose weights have the slots of `weights`. */
typedef struct cuda_case {
    void (*build)(ln_graph *g, const void *user);
    const void *user;
    ln_policy policy;
    ln_bounds bounds;
    case_weight *weights;
    int n_weights;
    const ln_state_pool *kv; /* NULL: no pages */
    int n_pages, n_slots, n_blocks;
    const void *state; /* [state_bytes] of the only state, if it is no pool of pages; NULL: none */
    size_t state_bytes;
} cuda_case;

/* Fills a block of device memory with the bytes of NaN. */
static inline void poison(side *s, void *p, size_t bytes) {
    void *nan = malloc(bytes + 1);
    memset(nan, 0xff, bytes);
    OK(s->ops->copy(s->queue, p, nan, bytes, LN_COPY_IN, err));
    free(nan);
}

/* Uploads a weight; a matrix in two ranges of rows, if the device does not read it in place. */
static inline void upload_ranges(side *s, const case_weight *w, bool in_place, void *buffer,
                                 ln_device_weight *out) {
    const int64_t D = ln_weight_desc_rows(&w->desc), C = ln_weight_desc_cols(&w->desc), cut = D / 3;
    const ln_row_bytes row = ln_encoding_row(w->desc.enc, C);
    if (in_place || w->desc.n_dims == 1 || cut == 0) {
        OK(s->ops->upload(s->dev, &w->desc, &w->host, buffer, out, err));
        return;
    }
    ln_host_weight first = w->host, second = w->host;
    first.n_rows = second.row0 = cut, second.n_rows = D - cut;
    second.data = (const char *)w->host.data + cut * row.data;
    second.scales = (const char *)w->host.scales + cut * row.scales;
    second.offsets = (const char *)w->host.offsets + cut * row.offsets;
    OK(s->ops->upload(s->dev, &w->desc, &first, buffer, out, err));
    OK(s->ops->upload(s->dev, &w->desc, &second, buffer, out, err));
}

static inline void upload_weights(side *s, const cuda_case *c, ln_device_weight *placed) {
    for (int i = 0; i < c->n_weights; i++) {
        const case_weight *w = &c->weights[i];
        ln_weight_size size;
        OK(s->ops->weight_size(s->dev, &w->desc, &w->host, &size, err));
        s->buffer_bytes[i] = size.bound + GUARD;
        void *buffer;
        OK(s->ops->alloc(s->dev, s->buffer_bytes[i], 0, &buffer, err));
        s->buffer[i] = buffer;
        poison(s, buffer, s->buffer_bytes[i]);
        upload_ranges(s, w, size.in_place, buffer, &placed[i]);
    }
}

static inline void open_side(side *s, const ln_device_ops *ops, const side *as, const cuda_case *c) {
    const ln_dev_options o = {.size = sizeof o, .n_threads = 1};
    *s = (side){.ops = ops, .info.size = sizeof s->info};
    OK(ops->open(&s->dev, &o, err));
    ops->describe(s->dev, &s->info);
    if (!as) as = s;
    const ln_queue_options q = {
        .size = sizeof q, .n_slots = c->n_slots, .n_blocks = c->n_blocks, .kv = c->kv};
    OK(ops->queue_open(s->dev, &q, &s->queue, err));
    ln_graph g;
    ln_lowering lowering;
    ln_temp_plan plan;
    ln_graph_open(&g);
    c->build(&g, c->user);
    OK(ln_graph_cast(&g, c->policy, err));
    ln_graph_prune(&g);
    ln_graph_fuse(&g);
    OK(ln_graph_lower(&g, as->ops->lower, as->dev, ops->lower, s->dev, &c->bounds, s->info.real_bytes,
                      &lowering, err));
    OK(ln_graph_check(&g, "lower", err));
    OK(ln_graph_plan(&g, &lowering, &c->bounds, s->info.real_bytes, &plan, err));
    OK(ln_program_make(&g, &lowering, &plan, &s->arena, &s->p, err));
    ln_graph_close(&g);
    void *p;
    s->temp_bytes = (size_t)s->p.temp_bytes + GUARD;
    OK(ops->alloc(s->dev, s->temp_bytes, 0, &p, err));
    s->temp = p;
    if (c->kv || c->state) {
        s->pool_bytes = c->kv ? (size_t)(c->n_pages * c->kv->page_bytes) : c->state_bytes;
        OK(ops->alloc(s->dev, s->pool_bytes, 0, &p, err));
        s->pool = p;
    }
    if (c->state) OK(ops->copy(s->queue, s->pool, c->state, c->state_bytes, LN_COPY_IN, err));
    ln_device_weight placed[CASE_WEIGHTS];
    upload_weights(s, c, placed);
    for (int i = 0; i < s->p.n_values; i++) {
        ln_pvalue *v = &s->p.values[i];
        if (v->kind == LN_KIND_WEIGHT)
            v->data = placed[v->slot].data, v->layout_id = placed[v->slot].layout_id;
        if (v->kind == LN_KIND_STATE) v->data = s->pool;
    }
    OK(ops->prepare(s->queue, &s->p, s->temp, &s->exec, err));
    const int changes = LN_MAX(256, c->n_slots * c->n_blocks);
    s->step = calloc(1, (size_t)ln_step_bytes(&c->bounds, changes));
    ln_step_init(s->step, &c->bounds, changes);
}

static inline void close_side(side *s) {
    s->ops->release(&s->exec);
    s->ops->free(s->dev, s->temp, s->temp_bytes);
    if (s->pool) s->ops->free(s->dev, s->pool, s->pool_bytes);
    for (int i = 0; i < CASE_WEIGHTS; i++)
        if (s->buffer[i]) s->ops->free(s->dev, s->buffer[i], s->buffer_bytes[i]);
    s->ops->queue_close(&s->queue);
    s->ops->close(&s->dev);
    ln_arena_free(&s->arena);
    free(s->step);
}

/* Runs the step that s->step describes and returns output `k`, [rows, columns], which the caller frees. */
static inline float *run_side(side *s, int k, int64_t *n) {
    uint64_t fence;
    const ln_bounds live = {s->step->n_rows, s->step->n_out, s->step->n_seqs};
    poison(s, s->temp, s->temp_bytes);
    OK(s->ops->submit(s->exec, s->step, NULL, &fence, err));
    OK(s->ops->wait(s->queue, fence, err));
    s->step->n_changes = 0;
    uint8_t behind[GUARD];
    OK(s->ops->copy(s->queue, behind, s->temp + s->p.temp_bytes, GUARD, LN_COPY_OUT, err));
    for (int i = 0; i < GUARD; i++)
        if (behind[i] != 0xff) fail_msg("byte %d behind the temporaries was written", i);
    const ln_pvalue *v = ln_program_value(&s->p, s->p.outputs[k]);
    const int64_t rows = ln_dim(v->dims[0], &live), cols = v->dims[1];
    float *out = malloc((size_t)(rows * cols + 1) * sizeof *out);
    OK(s->ops->value(s->exec, s->p.outputs[k], 0, rows, out, false, err));
    *n = rows * cols;
    return out;
}
/* The tolerance of the node that makes output k, as the device declares it. */
static inline double tolerance_of(const side *s, int k) {
    for (int i = 0; i < s->p.n_nodes; i++)
        if (ln_program_node(&s->p, i)->n_out && ln_program_node(&s->p, i)->out[0] == s->p.outputs[k])
            return ln_program_node(&s->p, i)->tolerance;
    return 0;
}

/* Fails if two outputs differ by more than the tolerance; NaN must meet NaN. */
static inline void compare_outputs(const char *what, const float *want, const float *got, int64_t n,
                                   double tolerance) {
    double most = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        if (want[i] != want[i] || got[i] != got[i]) {
            if ((want[i] != want[i]) != (got[i] != got[i]))
                fail_msg("%s: element %lld of %lld: %g, expected %g", what, (long long)i, (long long)n,
                         (double)got[i], (double)want[i]);
            continue;
        }
        most = LN_MAX(most, fabs((double)want[i] - (double)got[i]));
        largest = LN_MAX(largest, fabs((double)want[i]));
    }
    if (most > tolerance * largest)
        fail_msg("%s: the largest difference is %g, %g of the largest magnitude; allowed is %g", what, most,
                 most / largest, tolerance);
}

/* Sets rows, one after the other, of sequences; ids are pseudo-random below V. */
static inline void set_rows(side *s, int n_seqs, const int *n, const int *from, int V) {
    ln_step_block *b = s->step;
    int r = 0;
    for (int q = 0; q < n_seqs; q++) {
        ln_step_row0(b)[q] = r;
        ln_step_slot(b)[q] = q;
        ln_step_n_prompt(b)[q] = 0;
        for (int i = 0; i < n[q]; i++, r++) {
            ln_step_ids(b)[r] = ((from[q] + i) * 11 + q * 7 + 3) % V;
            ln_step_pos(b)[r] = from[q] + i;
            ln_step_seq(b)[r] = q;
            ln_step_adapter(b)[r] = -1;
            ln_step_out_rows(b)[r] = r;
        }
    }
    ln_step_row0(b)[n_seqs] = r;
    b->n_rows = b->n_out = r;
    b->n_seqs = n_seqs;
}
#endif
