/* The reference devices: the reference kernels of ops/, run one after the other on one thread, in float or in
 * double.
 *
 * In float the device is the specification: the CPU device must give the same bits, but for the tolerances of
 * its AMX level. In double it is the baseline of error bounds. LN_F32 temps and f32 KV pages hold the
 * device's scalar type; weights are read in their storage format. */
#include "../../base/transport.h"
#include "../../ops/host_queue.h"
#include "../../ops/kv_pages.h"
#include "../../ops/value_rows.h"
#include "../device.h"

#include <sys/mman.h>

struct ln_dev {
    ln_kernel_table table;
    int real_bytes;
    bool mlock;
};

struct ln_queue {
    const ln_dev *dev;
    ln_transport *ranks;
    ln_host_queue host;
};

struct ln_exec {
    ln_arena arena;
    const ln_program *program;
    ln_queue *queue;
    void *temp;
    ln_call *calls;
    ln_step step;              /* the calls point to it */
    const ln_kernel **kernels; /* [n_nodes] */
    void *scratch;             /* of all calls, which run one after another */
};

static ln_status ref_open(ln_dev **out, int real_bytes, const ln_dev_options *opt, ln_error *err) {
    *out = NULL;
    if (opt && opt->ordinal != 0)
        return ln_fail(err, LN_EDEVICE, "device ref: there is one, number 0; found number %d", opt->ordinal);
    ln_dev *d = ln_zalloc(1, sizeof *d);
    if (!d) return LN_OOM(err, "the reference device");
    d->real_bytes = real_bytes;
    d->mlock = opt && opt->mlock;
    if (real_bytes == 4) ln_ref_kernels_float(&d->table);
    else ln_ref_kernels_double(&d->table);
    *out = d;
    return LN_OK;
}
static ln_status open_float(ln_dev **out, const ln_dev_options *opt, ln_error *err) {
    return ref_open(out, 4, opt, err);
}
static ln_status open_double(ln_dev **out, const ln_dev_options *opt, ln_error *err) {
    return ref_open(out, 8, opt, err);
}

static void ref_close(ln_dev **dev) {
    ln_free(*dev);
    *dev = NULL;
}

static void copy_text(char *to, size_t cap, const char *text) {
    size_t n = LN_MIN(strlen(text), cap - 1);
    memcpy(to, text, n);
    to[n] = 0;
}

static void ref_describe(const ln_dev *d, ln_dev_info *out) {
    *out = (ln_dev_info){.size = out->size};
    copy_text(out->name, sizeof out->name, "ref");
    copy_text(out->isa, sizeof out->isa, d->real_bytes == 4 ? "plain" : "double");
    copy_text(out->isas, sizeof out->isas, out->isa);
    copy_text(out->quantised, sizeof out->quantised, "fast: integers, x in fixed point; exact: by group");
    out->real_bytes = d->real_bytes;
    out->n_threads = 1;
    out->upload_rows = 1;
    out->can = LN_CAN_ADAPTERS | LN_CAN_GRADIENTS | LN_CAN_EXPERT_GRADIENTS | LN_CAN_CODED | LN_CAN_EXPERTS |
               LN_CAN_RECURRENT | LN_CAN_COLLECTIVES | LN_CAN_BOTH_WAYS | LN_CAN_EXPERT_ADAPTERS |
               LN_CAN_RECURRENT_GRADIENTS | LN_CAN_KV_Q8;
}

static void ref_queue_close(ln_queue **queue) {
    if (!*queue) return;
    ln_host_queue_close(&(*queue)->host);
    ln_free(*queue);
    *queue = NULL;
}

static ln_status ref_queue_open(ln_dev *d, const ln_queue_options *opt, ln_queue **out, ln_error *err) {
    ln_queue *q = ln_zalloc(1, sizeof *q);
    *out = NULL;
    if (!q) return LN_OOM(err, "a queue");
    q->dev = d;
    q->ranks = opt->ranks;
    ln_status st = ln_host_queue_open(&q->host, opt->kv, opt->n_slots, opt->n_blocks, err);
    if (st != LN_OK) ref_queue_close(&q);
    *out = q;
    return st;
}

static ln_status ref_alloc(ln_dev *d, size_t bytes, size_t ready, void **out, ln_error *err) {
    (void)ready; /* the memset below touches all of it */
    *out = ln_zalloc(1, bytes ? bytes : 1);
    if (!*out) return ln_fail(err, LN_EMEMORY, "out of memory: the reference device needs %zu bytes", bytes);
    memset(*out, 0, bytes);
    ln_status st = d->mlock ? ln_lock(*out, bytes, "memory", err) : LN_OK;
    if (st != LN_OK) ln_free(*out), *out = NULL;
    return st;
}
static void ref_free(ln_dev *d, void *p, size_t bytes) {
    if (d->mlock && p) (void)munlock(p, bytes);
    ln_free(p);
}
static bool is_encoded(const ln_weight_desc *w) { return !ln_encoding_is_dense(w->enc); }
static bool is_coded(const ln_weight_desc *w) { return ln_encoding_is_coded(w->enc); }

/* Matrices are read in place, encoded ones by way of an ln_affine or ln_coded; vectors are copied. */
static ln_status ref_weight_size(const ln_dev *d, const ln_weight_desc *w, const ln_host_weight *sample,
                                 ln_weight_size *out, ln_error *err) {
    (void)d, (void)sample, (void)err;
    *out = (ln_weight_size){.in_place = w->n_dims > 1};
    out->bound = w->n_dims == 1  ? (size_t)(w->dims[0] * ln_dtype_bytes((ln_dtype)w->enc.scale))
                 : is_coded(w)   ? sizeof(ln_coded)
                 : is_encoded(w) ? sizeof(ln_affine)
                                 : 0;
    out->expected = out->bound;
    return LN_OK;
}
static ln_status ref_upload(ln_dev *d, const ln_weight_desc *w, const ln_host_weight *h, void *room,
                            ln_device_weight *out, ln_error *err) {
    const int64_t D = ln_weight_desc_rows(w), C = ln_weight_desc_cols(w),
                  element = ln_dtype_bytes((ln_dtype)w->enc.scale);
    ln_weight_size size;
    LN_TRY(ref_weight_size(d, w, NULL, &size, err));
    const bool whole = h->row0 == 0 && h->n_rows == D && !h->pitch && !h->scale_pitch && !h->offset_pitch;
    if (h->row0 < 0 || h->n_rows < 0 || h->row0 > D - h->n_rows || h->col0 != 0 || h->n_cols != C ||
        (size.in_place && !whole))
        return ln_fail(err, LN_EUNSUPPORTED,
                       "weight %s: the reference device takes a whole matrix without padding, found rows "
                       "%lld "
                       "+ %lld, columns %lld + %lld of [%lld, %lld]",
                       w->name, (long long)h->row0, (long long)h->n_rows, (long long)h->col0,
                       (long long)h->n_cols, (long long)D, (long long)C);
    *out = (ln_device_weight){.data = room, .bytes = size.bound};
    if (is_coded(w))
        *(ln_coded *)out->data = (ln_coded){.enc = w->enc,
                                            .rows = {h->data, h->scales, h->offsets, h->columns},
                                            .cols = ln_weight_desc_cols(w)};
    else if (is_encoded(w))
        *(ln_affine *)room = (ln_affine){.codes = h->data,
                                         .scales = h->scales,
                                         .biases = h->offsets,
                                         .dtype = (ln_dtype)w->enc.scale,
                                         .offset = (ln_dtype)w->enc.offset,
                                         .code = ln_encoding_groups(w->enc)};
    else if (size.in_place) out->data = (void *)(uintptr_t)h->data; /* kernels only read weights */
    else
        for (int64_t r = 0; r < h->n_rows; r++)
            memcpy((char *)room + (h->row0 + r) * element,
                   (const char *)h->data + r * (h->pitch ? h->pitch : element), (size_t)element);
    return LN_OK;
}
static ln_status ref_copy(ln_queue *q, void *to, const void *from, size_t bytes, int how, ln_error *err) {
    (void)q, (void)how, (void)err; /* all memory is host memory */
    if (from) memcpy(to, from, bytes);
    else memset(to, 0, bytes);
    return LN_OK;
}
static int64_t ref_kv_bytes(const ln_dev *d, const ln_page_job *job) {
    return ln_host_kv_bytes(job, d->real_bytes);
}
static ln_status ref_page(ln_queue *q, const ln_page_job *job, ln_error *err) {
    (void)err;
    ln_host_page(job, q->dev->real_bytes);
    return LN_OK;
}
/* Dense rows, and formats as the policy names them: the defaults. A candidate for fusion is refused: the
 * reference computes what its parts compute. */
static bool ref_lower(const ln_dev *d, const ln_lower_ask *ask, ln_lower_answer *answer) {
    answer->kernel = d->real_bytes == 4 ? "plain" : "double";
    return !ask->candidate;
}
/* The most scratch that a kernel of the program needs. */
static size_t ref_scratch(const ln_dev *d, const ln_program *p) {
    size_t most = 0;
    for (int i = 0; i < p->n_nodes; i++) {
        const ln_pnode *n = ln_program_node(p, i);
        const ln_kernel *k = ln_kernel_of(&d->table, n->op, ln_node_variant(p, n));
        if (k && k->scratch) most = LN_MAX(most, k->scratch(p, n, &p->bounds));
    }
    return most;
}

static void ref_release(ln_exec **exec) {
    if (!*exec) return;
    ln_free((*exec)->scratch);
    ln_arena_free(&(*exec)->arena);
    ln_free(*exec);
    *exec = NULL;
}

static ln_status find_kernels(ln_exec *e, ln_error *err) {
    const int n = e->program->n_nodes;
    e->kernels = ln_arena_alloc(&e->arena, (size_t)(n + 1) * sizeof *e->kernels);
    if (!e->kernels) return LN_OOM(err, "a prepared program");
    for (int i = 0; i < n; i++) {
        const ln_call *c = &e->calls[i];
        e->kernels[i] =
            ln_kernel_of(&e->queue->dev->table, c->node->op, ln_node_variant(e->program, c->node));
        if (!e->kernels[i])
            return ln_fail(err, LN_EUNSUPPORTED, "the reference device has no kernel for %s",
                           ln_op_name(c->node->op));
    }
    return LN_OK;
}
static ln_status ref_prepare(ln_queue *q, const ln_program *p, void *temp, ln_exec **out, ln_error *err) {
    ln_exec *e = ln_zalloc(1, sizeof *e);
    if (!e) return LN_OOM(err, "a prepared program");
    e->program = p;
    e->queue = q;
    e->temp = temp;
    ln_status st = ln_calls_new(p, temp, q->ranks, &e->arena, &e->calls, err);
    if (st == LN_OK) st = find_kernels(e, err);
    if (st == LN_OK) {
        e->scratch = ln_alloc(ref_scratch(q->dev, p) + 1);
        if (!e->scratch) st = LN_OOM(err, "a prepared program");
        for (int i = 0; i < p->n_nodes; i++) e->calls[i].scratch = e->scratch;
    }
    if (st != LN_OK) ref_release(&e);
    *out = e;
    return st;
}

static ln_status ref_submit(ln_exec *e, const ln_step_block *block, const ln_trace *trace, uint64_t *fence,
                            ln_error *err) {
    ln_queue *q = e->queue;
    *fence = ln_host_queue_submit(&q->host, block, &e->step);
    if (block->n_rows == 0) return LN_OK;
    ln_calls_live(e->program, e->calls, &e->step);
    for (int i = 0; i < e->program->n_nodes; i++) {
        double start = trace ? ln_now() : 0;
        e->kernels[i]->fn(&e->calls[i]);
        if (trace) trace->fn(trace->user, i, ln_now() - start);
    }
    return ln_ranks_failed(q->ranks, err);
}

static ln_status ref_wait(ln_queue *q, uint64_t fence, ln_error *err) {
    return ln_host_queue_wait(&q->host, fence, err);
}

static ln_status ref_value(ln_exec *e, int v, int64_t row, int64_t n, float *rows, bool write,
                           ln_error *err) {
    const ln_bounds live = {e->step.n_rows, e->step.n_out, e->step.n_seqs};
    return ln_host_value(e->program, e->temp, &live, v, row, n, rows, write, err);
}

#define REF_OPS(its_name, its_open)                                                                         \
    {                                                                                                       \
        .abi = LN_DEVICE_ABI, .size = sizeof(ln_device_ops), .name = its_name, .open = its_open,            \
        .close = ref_close, .describe = ref_describe, .queue_open = ref_queue_open,                         \
        .queue_close = ref_queue_close, .alloc = ref_alloc, .free = ref_free,                               \
        .weight_size = ref_weight_size, .upload = ref_upload, .copy = ref_copy, .kv_bytes = ref_kv_bytes,   \
        .page = ref_page, .lower = ref_lower, .scratch_bytes = ref_scratch, .prepare = ref_prepare,         \
        .release = ref_release, .submit = ref_submit, .wait = ref_wait, .value = ref_value, .argmax = NULL, \
        .measure = NULL,                                                                                    \
    }
const ln_device_ops ln_device_ref = REF_OPS("ref", open_float);
const ln_device_ops ln_device_ref_double = REF_OPS("ref-double", open_double);
