/* A device of three ops (embed, linear, gather_rows; all in f32), as another project would write one: it
 * includes device.h and links nothing of linnet. tests.cmake compiles it in a folder that has only the
 * headers of the device interface, so that the interface cannot come to need others; test_device_abi checks
 * the device as it checks linnet's own. It is also the shortest complete plug-in. */
#include "device/device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct ln_dev {
    int unused;
};
struct ln_queue {
    uint64_t n_submitted;
};
struct ln_exec {
    ln_queue *queue;
    const ln_program *program;
    char *temp;
    ln_bounds live; /* counts of the last step */
};

static ln_status refuse(ln_error *err, ln_status code, const char *format, ...) {
    va_list args;
    if (!err) return code;
    err->code = code;
    va_start(args, format);
    (void)vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return code;
}

static ln_status flat_open(ln_dev **out, const ln_dev_options *opt, ln_error *err) {
    *out = NULL;
    if (opt->ordinal != 0)
        return refuse(err, LN_EDEVICE, "device flat: there is one, found number %d", opt->ordinal);
    *out = calloc(1, sizeof **out);
    return *out ? LN_OK : refuse(err, LN_EMEMORY, "out of memory: a device");
}
static void flat_close(ln_dev **dev) {
    free(*dev);
    *dev = NULL;
}
static void flat_describe(const ln_dev *dev, ln_dev_info *out) {
    (void)dev;
    *out = (ln_dev_info){.size = out->size,
                         .name = "flat",
                         .isa = "plain",
                         .isas = "plain",
                         .quantised = "none",
                         .real_bytes = 4,
                         .n_threads = 1,
                         .upload_rows = 1};
}
static ln_status flat_queue_open(ln_dev *dev, const ln_queue_options *opt, ln_queue **out, ln_error *err) {
    (void)dev, (void)opt; /* no op reads KV pages, so the queue has no page tables */
    *out = calloc(1, sizeof **out);
    return *out ? LN_OK : refuse(err, LN_EMEMORY, "out of memory: a queue");
}
static void flat_queue_close(ln_queue **queue) {
    free(*queue);
    *queue = NULL;
}

/* ---- memory, weights, KV pages ---- */

/* Element i of f32 or bf16 data. */
static float load(const void *data, ln_dtype dtype, int64_t i) {
    return dtype == LN_BF16 ? ln_bf16_f32(((const uint16_t *)data)[i]) : ((const float *)data)[i];
}
static void store(void *data, ln_dtype dtype, int64_t i, float x) {
    if (dtype == LN_BF16) ((uint16_t *)data)[i] = ln_f32_bf16(x);
    else ((float *)data)[i] = x;
}

static ln_status flat_alloc(ln_dev *dev, size_t bytes, size_t ready, void **out, ln_error *err) {
    const size_t size = (bytes / 64 + 1) * 64;
    (void)dev, (void)ready;
    *out = aligned_alloc(64, size);
    if (!*out) return refuse(err, LN_EMEMORY, "out of memory: %zu bytes", bytes);
    memset(*out, 0, size);
    return LN_OK;
}
static void flat_free(ln_dev *dev, void *p, size_t bytes) { (void)dev, (void)bytes, free(p); }
static ln_status flat_copy(ln_queue *queue, void *to, const void *from, size_t bytes, int how,
                           ln_error *err) {
    (void)queue, (void)how, (void)err;
    if (from) memcpy(to, from, bytes);
    else memset(to, 0, bytes);
    return LN_OK;
}

static int64_t row_bytes(const ln_weight_desc *w) {
    return (w->n_dims == 2 ? w->dims[1] : 1) * ln_dtype_bytes((ln_dtype)w->enc.scale);
}
static ln_status flat_weight_size(const ln_dev *dev, const ln_weight_desc *w, const ln_host_weight *sample,
                                  ln_weight_size *out, ln_error *err) {
    (void)dev, (void)sample;
    if (!ln_encoding_is_dense(w->enc) || w->enc.scale == LN_F16)
        return refuse(err, LN_EUNSUPPORTED, "weight %s: device flat takes f32 and bf16", w->name);
    out->in_place = false;
    out->bound = out->expected = (size_t)(w->dims[0] * row_bytes(w));
    return LN_OK;
}
static ln_status flat_upload(ln_dev *dev, const ln_weight_desc *w, const ln_host_weight *host, void *buffer,
                             ln_device_weight *out, ln_error *err) {
    const int64_t row = row_bytes(w);
    (void)dev;
    if (host->col0 || host->n_cols * ln_dtype_bytes((ln_dtype)w->enc.scale) != row)
        return refuse(err, LN_EUNSUPPORTED, "weight %s: device flat takes whole rows", w->name);
    for (int64_t r = 0; r < host->n_rows; r++)
        memcpy((char *)buffer + (host->row0 + r) * row,
               (const char *)host->data + r * (host->pitch ? host->pitch : row), (size_t)row);
    *out = (ln_device_weight){.data = buffer, .bytes = (size_t)(w->dims[0] * row)};
    return LN_OK;
}

/* A layer's part of a page has of each position the keys, [K, E], then the values, [K, Ev]. */
static int64_t position_bytes(const ln_page_job *j) {
    int64_t n;
    if (__builtin_mul_overflow((int64_t)ln_dtype_bytes(j->dtype) * j->n_kv_heads,
                               (int64_t)j->head_dim + j->v_dim, &n))
        return -1;
    return n;
}
static int64_t flat_kv_bytes(const ln_dev *dev, const ln_page_job *j) {
    int64_t n = position_bytes(j), bytes;
    (void)dev;
    return n < 0 || __builtin_mul_overflow(n, (int64_t)j->page_len, &bytes) ? -1 : bytes;
}
/* An element between the page and the job's keys (part 0, [K, E, page_len]) or values (1, [K, page_len, Ev]).
 */
static void move_element(const ln_page_job *j, char *layer, int part, int64_t at, int64_t k, int64_t e) {
    const int64_t K = j->n_kv_heads, E = j->head_dim, Ev = j->v_dim, len = j->page_len,
                  stored = at * K * (E + Ev) + (part ? K * E + k * Ev : k * E) + e;
    float *host = part ? j->values + (k * len + at) * Ev + e : j->keys + (k * E + e) * len + at;
    if (j->op == LN_PAGE_PACK) store(layer, j->dtype, stored, *host);
    else *host = load(layer, j->dtype, stored);
}
static ln_status flat_page(ln_queue *queue, const ln_page_job *j, ln_error *err) {
    (void)queue, (void)err;
    const int64_t kept = j->n * position_bytes(j), all = j->page_len * position_bytes(j);
    for (int64_t layer = 0; layer < j->n_layers; layer++) {
        char *to = (char *)j->pool + j->to + layer * j->layer_bytes;
        char *from = (char *)j->pool + j->from + layer * j->layer_bytes;
        if (j->op == LN_PAGE_COPY) {
            memmove(to, from, (size_t)kept);
            memset(to + kept, 0, (size_t)(all - kept));
            continue;
        }
        for (int part = 0; part < 2; part++)
            for (int64_t at = 0; at < j->page_len && (part ? j->values : j->keys); at++)
                for (int64_t k = 0; k < j->n_kv_heads; k++)
                    for (int64_t e = 0; e < (part ? j->v_dim : j->head_dim); e++)
                        move_element(j, j->op == LN_PAGE_PACK ? to : from, part, at, k, e);
    }
    return LN_OK;
}

/* ---- programs ---- */

static bool flat_lower(const ln_dev *dev, const ln_lower_ask *ask, ln_lower_answer *answer) {
    const bool has = ask->op == LN_OP_EMBED || ask->op == LN_OP_GATHER_ROWS ||
                     (ask->op == LN_OP_LINEAR && ask->n_in == 2 && ask->in[0].format.kind == LN_FORMAT_F32);
    (void)dev;
    answer->kernel = has ? "plain" : NULL; /* all else is the default: dense rows */
    return false;                          /* no fusion */
}
static size_t flat_scratch_bytes(const ln_dev *dev, const ln_program *p) { return (void)dev, (void)p, 0; }

static ln_status flat_prepare(ln_queue *queue, const ln_program *p, void *temp, ln_exec **out,
                              ln_error *err) {
    *out = NULL;
    for (int i = 0; i < p->n_nodes; i++)
        if (!ln_program_node(p, i)->kernel)
            return refuse(err, LN_EUNSUPPORTED, "device flat has no kernel for %s",
                          ln_op_name(ln_program_node(p, i)->op));
    ln_exec *e = calloc(1, sizeof *e);
    if (!e) return refuse(err, LN_EMEMORY, "out of memory: a prepared program");
    *e = (ln_exec){.queue = queue, .program = p, .temp = temp};
    *out = e;
    return LN_OK;
}
static void flat_release(ln_exec **exec) {
    free(*exec);
    *exec = NULL;
}

static float *row_of(const ln_exec *e, ln_v v, int64_t row) {
    const ln_pvalue *x = ln_program_value(e->program, v);
    return (float *)(void *)(e->temp + x->offset + row * x->row_bytes);
}
static void run_node(const ln_exec *e, const ln_pnode *n, const ln_step_block *step) {
    const ln_pvalue *y = ln_program_value(e->program, n->out[0]);
    const ln_pvalue *table = ln_program_value(e->program, n->in[n->op == LN_OP_LINEAR]);
    const int64_t rows = ln_dim(y->dims[0], &e->live), cols = y->dims[1];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            float *to = row_of(e, n->out[0], r) + c, sum = 0;
            if (n->op == LN_OP_EMBED)
                sum = load(table->data, table->dtype, ln_step_ids(step)[r] * cols + c) * n->p.embed.scale;
            else if (n->op == LN_OP_GATHER_ROWS) sum = row_of(e, n->in[0], ln_step_out_rows(step)[r])[c];
            else
                for (int64_t k = 0; k < table->dims[1]; k++)
                    sum +=
                        load(table->data, table->dtype, c * table->dims[1] + k) * row_of(e, n->in[0], r)[k];
            *to = sum;
        }
}
static double now(void) {
    struct timespec t;
    (void)timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static ln_status flat_submit(ln_exec *e, const ln_step_block *step, const ln_trace *trace, uint64_t *fence,
                             ln_error *err) {
    (void)err;
    *fence = ++e->queue->n_submitted;
    if (step->n_rows == 0) return LN_OK;
    e->live = (ln_bounds){step->n_rows, step->n_out, step->n_seqs};
    for (int s = 0; s < e->program->n_stages; s++) /* a device with threads has a barrier here */
        for (int i = e->program->stage_begin[s]; i < e->program->stage_begin[s + 1]; i++) {
            const double start = now();
            run_node(e, ln_program_node(e->program, i), step);
            const double seconds = now() - start;
            if (trace) trace->fn(trace->user, i, seconds > 0 ? seconds : 0);
        }
    return LN_OK;
}
static ln_status flat_wait(ln_queue *queue, uint64_t fence, ln_error *err) {
    const bool known = fence >= 1 && fence <= queue->n_submitted;
    return known ? LN_OK : refuse(err, LN_EINTERNAL, "no step has the fence %llu", (unsigned long long)fence);
}
static ln_status flat_value(ln_exec *e, int v, int64_t row, int64_t n, float *rows, bool write,
                            ln_error *err) {
    const ln_pvalue *x = v >= 0 && v < e->program->n_values ? ln_program_value(e->program, v) : NULL;
    if (!x || x->kind != LN_KIND_TEMP || x->offset < 0)
        return refuse(err, LN_EINTERNAL, "value %d of the program has no buffer", v);
    if (row < 0 || n < 0 || row > ln_dim(x->dims[0], &e->live) - n)
        return refuse(err, LN_EINTERNAL, "%s has fewer rows than %lld", x->name, (long long)(row + n));
    const size_t bytes = (size_t)x->dims[1] * sizeof *rows;
    for (int64_t r = 0; r < n; r++) {
        float *at = row_of(e, v, row + r), *host = rows + r * x->dims[1];
        memcpy(write ? at : host, write ? host : at, bytes);
    }
    return LN_OK;
}

static const ln_device_ops flat = {
    .abi = LN_DEVICE_ABI,
    .size = sizeof(ln_device_ops),
    .name = "flat",
    .open = flat_open,
    .close = flat_close,
    .describe = flat_describe,
    .queue_open = flat_queue_open,
    .queue_close = flat_queue_close,
    .alloc = flat_alloc,
    .free = flat_free,
    .weight_size = flat_weight_size,
    .upload = flat_upload,
    .copy = flat_copy,
    .kv_bytes = flat_kv_bytes,
    .page = flat_page,
    .lower = flat_lower,
    .scratch_bytes = flat_scratch_bytes,
    .prepare = flat_prepare,
    .release = flat_release,
    .submit = flat_submit,
    .wait = flat_wait,
    .value = flat_value,
};

__attribute__((visibility("default"))) ln_device_plugin_fn ln_device_plugin;
const ln_device_ops *ln_device_plugin(const ln_device_host *host) {
    return host->abi == LN_DEVICE_ABI ? &flat : NULL;
}
