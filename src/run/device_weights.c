/* Loads weights in a device's layout, once per model and device (and numerics, where the device's layout
 * depends on them), and shares them among the engines that use them.
 *
 * A device says for each weight how many bytes its layout takes, or that its kernels read the weight in
 * place, from the mapped file (ln_weight_size). One block holds all weights of the first kind. Pages of the
 * file are released as they are read, so that a model is never in memory twice. Weights that training changes
 * (`changes`) belong to one user, are all in the block, and have a layout that does not depend on their
 * values. Weights that are read from the file are faulted in by all threads in parallel before the first
 * step: 0.1 s per GB from a warm page cache, instead of a page fault every few pages in the first prefill. */
#include "../base/file.h"
#include "../base/memory_use.h"
#include "run.h"

#include <sys/mman.h>

enum { ALIGN = 64 };

ln_weight_desc ln_weight_describe(const ln_weight *w, ln_numerics numerics) {
    ln_weight_desc d = {.size = sizeof d, .name = w->tensor->name, .enc = w->enc};
    if (w->n_experts && w->d1) d.n_dims = 3, d.dims[0] = w->n_experts, d.dims[1] = w->d0 / w->n_experts;
    else d.n_dims = w->d1 ? 2 : 1, d.dims[0] = w->d0;
    if (w->d1) d.dims[d.n_dims - 1] = w->d1;
    if (w->d1 && w->uses & LN_WEIGHT_MATMUL)
        d.uses |= numerics != LN_FAST            ? LN_USE_F32
                  : ln_encoding_is_fp8(w->enc)   ? LN_USE_F32 | LN_USE_FP8
                  : ln_encoding_is_coded(w->enc) ? LN_USE_F32
                  : ln_encoding_is_dense(w->enc) ? LN_USE_BF16
                                                 : LN_USE_BFP;
    if (w->d1 && w->uses & LN_WEIGHT_GATHER) d.uses |= LN_USE_GATHER;
    return d;
}

ln_status ln_rank_weights(ln_arena *arena, const ln_weights *w, int n_ranks, int rank, ln_weights *out,
                          ln_error *err) {
    *out = *w;
    out->arena = (ln_arena){0};
    if (n_ranks <= 1) return LN_OK;
    out->items = ln_arena_alloc(arena, (w->n + 1) * sizeof *out->items);
    out->source = ln_source_of_shares(arena, w->source);
    if (!out->items || !out->source) return LN_OOM(err, "the weights of a rank");
    for (size_t i = 0; i < w->n; i++) ln_source_take_share(&out->items[i], &w->items[i], n_ranks, rank);
    return LN_OK;
}

static ln_source_work work_of(const ln_run_options *opt) {
    return (ln_source_work){ln_run_pool(opt), opt->n_threads};
}

/* Rows of a weight as upload takes them. */
static ln_host_weight host_of(const ln_weight *w, const ln_encoded_rows *rows, int64_t row0, int64_t n) {
    return (ln_host_weight){.data = rows->data,
                            .scales = rows->scales,
                            .offsets = rows->offsets,
                            .columns = rows->columns,
                            .row0 = row0,
                            .n_rows = n,
                            .n_cols = w->d1 ? w->d1 : 1};
}

static ln_weight_desc desc_of(const ln_weight *w, ln_numerics numerics, bool changes) {
    ln_weight_desc d = ln_weight_describe(w, numerics);
    if (changes) d.uses |= LN_USE_CHANGES;
    return d;
}

static ln_status size_of(const ln_device_ops *ops, const ln_dev *dev, const ln_source *source,
                         const ln_weight *w, ln_numerics numerics, bool changes, ln_weight_size *out,
                         ln_error *err) {
    const ln_weight_desc d = desc_of(w, numerics, changes);
    ln_encoded_rows rows = {0};
    if (w->made) return ops->weight_size(dev, &d, NULL, out, err);
    LN_TRY(source->ops->rows(source, w, 0, w->d0, NULL, NULL, &rows, err));
    const ln_host_weight host = host_of(w, &rows, 0, w->d0);
    return ops->weight_size(dev, &d, &host, out, err);
}

/* Bytes of a dense weight as the file stores it. */
static size_t dense_bytes(const ln_weight *w) {
    return (size_t)(w->d0 * LN_MAX(w->d1, 1) * ln_dtype_bytes(w->dtype));
}

/* Bytes of a weight in the block: in the device's layout, quantised at load, or a copy that changes; 0:
 * kernels read the file. `expected`: the estimate that a plan counts, else the upper bound. */
static size_t own_bytes(const ln_weight *w, const ln_weight_size *z, bool changes, bool expected) {
    if (!z->in_place) return expected ? z->expected : z->bound;
    return changes ? dense_bytes(w) : ln_source_bytes(w, w->d0);
}

/* Assigns a weight its offset in the block, at *at or the next multiple of ALIGN, and advances *at beyond it;
 * SIZE_MAX: kernels read the file. */
static size_t place(const ln_weight *w, const ln_weight_size *z, bool changes, bool expected, size_t *at) {
    size_t bytes = own_bytes(w, z, changes, expected), here = (*at + ALIGN - 1) / ALIGN * ALIGN;
    if (!bytes) return SIZE_MAX;
    *at = here + bytes;
    return here;
}

ln_status ln_device_weights_bytes(const ln_device_ops *ops, const ln_dev *dev, const ln_weights *w,
                                  ln_numerics numerics, bool changes, uint64_t *bytes, uint64_t *in_copies,
                                  ln_error *err) {
    size_t at = 0;
    uint64_t in_place = 0;
    *in_copies = 0;
    for (size_t i = 0; i < w->n; i++) {
        ln_weight_size z;
        LN_TRY(size_of(ops, dev, w->source, &w->items[i], numerics, changes, &z, err));
        if (place(&w->items[i], &z, changes, true, &at) == SIZE_MAX)
            for (int64_t k = 0; k < ln_weight_tensors(&w->items[i]); k++) {
                const ln_tensor *t = ln_weight_tensor(&w->items[i], k);
                if (!t) continue;
                in_place += ln_weight_tensor_bytes(&w->items[i], k);
                if (t->copied) *in_copies += ln_weight_tensor_bytes(&w->items[i], k);
            }
    }
    *bytes = at + in_place;
    return LN_OK;
}

/* Whether weight i is stored in the block, not read from the file. */
static bool own(const ln_device_weights *r, size_t i) {
    return own_bytes(&r->weights->items[i], &r->sizes[i], r->changes, false) > 0;
}

enum { PAGE_BYTES = 4096 };

/* A tensor, or the part of it with the rows of a rank's share: equally many bytes for each row. */
typedef struct mapped {
    const uint8_t *data;
    int64_t bytes;
} mapped;
static mapped mapped_of(const ln_weight *w, const ln_tensor *t) {
    if (!w->share_of) return (mapped){t->data, (int64_t)t->bytes};
    const int64_t row = (int64_t)t->bytes / ln_source_stored_rows(w->share_of);
    return (mapped){t->data + (w->share_of->row0 + w->share.first) * row, w->share.n * row};
}

/* Faults in pages [lo, hi) of a part of a file. */
static void map_pages(void *user, int thread, int64_t lo, int64_t hi) {
    const mapped *m = user;
    (void)thread;
    const int64_t end = LN_MIN(hi * PAGE_BYTES, m->bytes);
    ln_guard_fetch(m->data + lo * PAGE_BYTES, (size_t)(end - lo * PAGE_BYTES));
}

/* Faults in the weights that are read from the file, with the threads of the pool. */
static void map_all(const ln_device_weights *r, const ln_run_options *opt) {
    for (size_t i = 0; i < LN_WEIGHT_TENSORS * r->weights->n; i++) { /* experts that are apart are copied */
        const ln_tensor *t =
            ln_weight_tensor(&r->weights->items[i / LN_WEIGHT_TENSORS], (int64_t)(i % LN_WEIGHT_TENSORS));
        if (!t || own(r, i / LN_WEIGHT_TENSORS)) continue;
        mapped m = mapped_of(&r->weights->items[i / LN_WEIGHT_TENSORS], t);
        ln_pool_run_units(ln_run_pool(opt), opt->n_threads, (m.bytes + PAGE_BYTES - 1) / PAGE_BYTES,
                          LN_POOL_SLICE_BYTES / PAGE_BYTES, map_pages, &m);
    }
}

/* Bytes of a weight's tensors in the file. */
static int64_t file_bytes(const ln_weight *w) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < ln_weight_tensors(w); i++) sum += ln_weight_tensor_bytes(w, i);
    return (int64_t)sum;
}

/* Computes the rows of a made weight and uploads them into `room`, the device's memory for the whole weight,
 * some at a time. */
static ln_status upload_slices(ln_device_weights *r, const ln_weight *w, const ln_weight_desc *desc,
                               const ln_run_options *opt, void *room, ln_device_weight *out, ln_error *err) {
    const ln_source *source = r->weights->source;
    const ln_source_work work = work_of(opt);
    const int64_t some = ln_source_slice(w);
    void *buffer = ln_alloc(ln_source_bytes(w, some));
    if (!buffer) return LN_OOM(err, "the rows that are quantised");
    ln_status st = LN_OK;
    for (int64_t d = 0; d < w->d0; d += some) {
        const int64_t n = LN_MIN(some, w->d0 - d);
        ln_encoded_rows rows;
        LN_GO(source->ops->rows(source, w, d, n, &work, buffer, &rows, err));
        const ln_host_weight host = host_of(w, &rows, d, n);
        LN_GO(r->ops->upload(r->dev, desc, &host, room, out, err));
    }
out:
    ln_free(buffer);
    return st;
}

/* Loads weight i into `to`, its part of the block; NULL: in place, from the file. */
static ln_status make_one(ln_device_weights *r, size_t i, void *to, const ln_run_options *opt,
                          ln_error *err) {
    const ln_weight *w = &r->weights->items[i];
    const ln_weight_size *z = &r->sizes[i];
    const ln_weight_desc d = desc_of(w, opt->numerics, r->changes);
    const ln_source_work work = work_of(opt);
    ln_encoded_rows rows;
    if (!z->in_place && w->made) return upload_slices(r, w, &d, opt, to, &r->placed[i], err);
    LN_TRY(r->weights->source->ops->rows(r->weights->source, w, 0, w->d0, &work, to, &rows, err));
    if (z->in_place && r->changes) {
        memcpy(to, rows.data, dense_bytes(w));
        ln_guard_release(rows.data, dense_bytes(w));
        rows.data = to;
    } else if (z->in_place) {
        to = z->bound ? ln_arena_alloc(&r->arena, z->bound) : NULL;
        if (z->bound && !to) return LN_OOM(err, "the table of weights");
    }
    const ln_host_weight host = host_of(w, &rows, 0, w->d0);
    return r->ops->upload(r->dev, &d, &host, to, &r->placed[i], err);
}

/* Called when weights take more than the estimate from some rows of each: a warning, or LN_EMEMORY when the
 * excess is more than the memory available. */
static ln_status beyond_plan(ln_device_weights *r, const ln_weight *w, ln_error *err) {
    const uint64_t more = r->bytes - r->expected, left = ln_memory_available();
    if (more > left)
        return ln_fail(err, LN_EMEMORY,
                       "weights take %zu bytes up to %s, expected %zu, to judge by some rows of each; %llu "
                       "more are available; "
                       "use a machine with more memory, or ln_options.quantize_bits 8",
                       r->bytes, w->tensor->name, r->expected, (unsigned long long)left);
    if (!r->warned)
        ln_log(LN_LOG_WARN,
               "weights take %zu bytes up to %s, expected %zu, to judge by some rows of each: more than "
               "ln_plan_memory says",
               r->bytes, w->tensor->name, r->expected);
    r->warned = true;
    return LN_OK;
}

/* Asks the device for the sizes of all weights, and allocates the block. *total: bytes of the files. */
static ln_status take_block(ln_device_weights *r, const ln_run_options *opt, int64_t *total, ln_error *err) {
    size_t at = 0;
    r->placed = ln_zalloc(r->weights->n + 1, sizeof *r->placed);
    r->sizes = ln_zalloc(r->weights->n + 1, sizeof *r->sizes);
    if (!r->placed || !r->sizes) return LN_OOM(err, "the table of weights");
    for (size_t i = 0; i < r->weights->n; i++) {
        const ln_weight *w = &r->weights->items[i];
        LN_TRY(size_of(r->ops, r->dev, r->weights->source, w, opt->numerics, r->changes, &r->sizes[i], err));
        (void)place(w, &r->sizes[i], r->changes, false, &at);
        (void)place(w, &r->sizes[i], r->changes, true, &r->expected);
        *total += file_bytes(w);
    }
    r->room_bytes = at;
    /* Where weights may take less than their upper bound, each begins where the one before it ends, and the
     * block is faulted in by the threads that write to it. */
    return at ? r->ops->alloc(r->dev, at, r->expected == at ? at : 0, &r->room, err) : LN_OK;
}

/* Loads all weights. */
static ln_status fill(ln_device_weights *r, const ln_run_options *opt, ln_error *err) {
    int64_t done = 0, total = 0;
    LN_TRY(take_block(r, opt, &total, err));
    ln_say_progress(opt, "loading", 0, total);
    for (size_t i = 0; i < r->weights->n; i++) {
        const ln_weight *w = &r->weights->items[i];
        size_t at = r->bytes;
        const size_t here = place(w, &r->sizes[i], r->changes, false, &at);
        LN_TRY(make_one(r, i, here == SIZE_MAX ? NULL : (char *)r->room + here, opt, err));
        r->bytes = r->sizes[i].in_place ? at : here + r->placed[i].bytes;
        if (r->bytes > r->expected) LN_TRY(beyond_plan(r, w, err));
        done += file_bytes(w);
        ln_say_progress(opt, "loading", done, total);
    }
    map_all(r, opt);
    return LN_OK;
}

static void drop(ln_device_weights *r) {
    if (!r) return;
    ln_memory_count(LN_MEMORY_WEIGHTS, -(int64_t)r->counted);
    if (r->room && r->locked) (void)munlock(r->room, r->bytes); /* the allocator may reuse its pages */
    if (r->room) r->ops->free(r->dev, r->room, r->room_bytes);
    ln_device_release(&r->dev);
    ln_free(r->placed);
    ln_free(r->sizes);
    ln_arena_free(&r->arena);
    ln_free(r);
}

/* Bytes of the weights that kernels read from the files. */
static size_t in_place(const ln_device_weights *r) {
    size_t sum = 0;
    for (size_t i = 0; i < r->weights->n; i++)
        if (!own(r, i)) sum += (size_t)file_bytes(&r->weights->items[i]);
    return sum;
}

/* The union of the uses of all weights. */
static uint32_t uses_of(const ln_weights *w, ln_numerics numerics) {
    uint32_t uses = 0;
    for (size_t i = 0; i < w->n; i++) uses |= ln_weight_describe(&w->items[i], numerics).uses;
    return uses;
}

static ln_status make(ln_device_weights **out, const ln_weights *w, const ln_device_ops *ops,
                      const ln_run_options *opt, bool changes, ln_error *err) {
    const ln_dev_options o = ln_run_dev_options(opt, ops, false); /* lock_all locks what is in use */
    ln_dev_info info = {.size = sizeof info};
    ln_device_weights *r = ln_zalloc(1, sizeof *r);
    if (!r) return LN_OOM(err, "weights");
    r->weights = &r->mine;
    r->n_ranks = opt->n_ranks;
    r->ops = ops;
    r->changes = changes;
    ln_status st = ln_rank_weights(&r->arena, w, opt->n_ranks, opt->rank, &r->mine, err);
    if (st == LN_OK) st = ln_device_acquire(ops, &o, &r->dev, err);
    if (st == LN_OK) {
        ops->describe(r->dev, &info);
        r->layout_uses = info.layout_uses;
        r->uses = uses_of(&r->mine, opt->numerics) & info.layout_uses;
        st = fill(r, opt, err);
    }
    if (st == LN_OK) ln_memory_count(LN_MEMORY_WEIGHTS, (int64_t)(r->counted = r->bytes + in_place(r)));
    if (st != LN_OK) drop(r);
    else *out = r;
    return st;
}

static ln_status lock_all(ln_device_weights *r, ln_error *err) {
    r->locked = true;
    if (r->room) LN_TRY(ln_lock(r->room, r->bytes, "the weights", err));
    for (size_t i = 0; i < LN_WEIGHT_TENSORS * r->weights->n; i++) {
        const ln_tensor *t =
            ln_weight_tensor(&r->weights->items[i / LN_WEIGHT_TENSORS], (int64_t)(i % LN_WEIGHT_TENSORS));
        if (!t || own(r, i / LN_WEIGHT_TENSORS)) continue;
        const mapped m = mapped_of(&r->weights->items[i / LN_WEIGHT_TENSORS], t);
        LN_TRY(ln_lock(m.data, (size_t)m.bytes, "a weight", err));
    }
    return LN_OK;
}

/* The list of open caches, for the child of a fork. Loading weights may take seconds and calls the program's
 * callbacks, so fork must not wait for a cache's lock. Instead the child initialises all locks anew, except
 * one that the forking thread holds itself because it forked in such a callback. Weights that another thread
 * was loading do not exist in the child; their memory is lost to it. */
static ln_weight_cache *open_ones;
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local const ln_weight_cache *held; /* the cache whose lock this thread holds */

static void before_fork(void) { (void)pthread_mutex_lock(&registry); }
static void in_parent(void) { (void)pthread_mutex_unlock(&registry); }
static void in_child(void) {
    for (ln_weight_cache *s = open_ones; s; s = s->next)
        if (s != held) (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_mutex_unlock(&registry);
}
__attribute__((constructor)) static void watch_forks(void) {
    (void)pthread_atfork(before_fork, in_parent, in_child);
}

static void hold(ln_weight_cache *s) {
    (void)pthread_mutex_lock(&s->lock);
    held = s;
}

static void release(ln_weight_cache *s) {
    held = NULL;
    (void)pthread_mutex_unlock(&s->lock);
}

void ln_weight_cache_open(ln_weight_cache *s) {
    memset(s, 0, sizeof *s);
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_mutex_lock(&registry);
    s->next = open_ones;
    s->link = &open_ones;
    if (s->next) s->next->link = &s->next;
    open_ones = s;
    (void)pthread_mutex_unlock(&registry);
}

void ln_weight_cache_close(ln_weight_cache *s) {
    for (ln_device_weights *r = s->items, *next; r; r = next) {
        next = r->next;
        drop(r);
    }
    (void)pthread_mutex_lock(&registry);
    if (s->link) *s->link = s->next;
    if (s->link && s->next) s->next->link = s->link;
    s->link = NULL;
    (void)pthread_mutex_unlock(&registry);
    (void)pthread_mutex_destroy(&s->lock);
}

/* The loaded weights that these options use; NULL: none. Weights that were loaded for the other numerics are
 * used where the device has one layout for both. */
static ln_device_weights *find_loaded(const ln_weight_cache *s, const ln_device_ops *ops, const ln_weights *w,
                                      const ln_run_options *opt) {
    const uint32_t uses = uses_of(w, opt->numerics);
    ln_device_weights *r = s->items;
    while (r && (r->ops != ops || r->n_ranks != opt->n_ranks || (uses & r->layout_uses) != r->uses))
        r = r->next;
    return r;
}

bool ln_weight_cache_has(ln_weight_cache *s, const ln_weights *w, const ln_run_options *opt) {
    const ln_device_ops *ops;
    if (ln_run_device(opt, &ops, NULL) != LN_OK) return false;
    hold(s);
    const bool has = find_loaded(s, ops, w, opt);
    release(s);
    return has;
}

/* Takes weights out of the list. */
static void unlink_weights(ln_weight_cache *s, const ln_device_weights *r) {
    ln_device_weights **at = &s->items;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
}

ln_status ln_weight_cache_acquire(ln_weight_cache *s, const ln_weights *w, const ln_run_options *opt,
                                  const ln_device_weights **out, ln_error *err) {
    const ln_device_ops *ops;
    LN_TRY(ln_run_device(opt, &ops, err));
    hold(s);
    ln_device_weights *r = find_loaded(s, ops, w, opt);
    ln_status st = r ? LN_OK : make(&r, w, ops, opt, false, err);
    if (st == LN_OK && r->n_users == 0) r->next = s->items, s->items = r;
    if (st == LN_OK && opt->mlock) st = lock_all(r, err);
    if (st == LN_OK) r->n_users++, *out = r;
    else if (r && r->n_users == 0) {
        unlink_weights(s, r);
        drop(r);
    }
    release(s);
    return st;
}

void ln_weight_cache_release(ln_weight_cache *s, const ln_device_weights *r) {
    if (!r) return;
    hold(s);
    ln_device_weights *last = s->items;
    while (last != r) last = last->next;
    if (--last->n_users == 0) {
        unlink_weights(s, r);
        drop(last); /* under the lock: a forked child never sees half-freed weights */
    }
    release(s);
}

void ln_device_weights_bind(const ln_device_weights *r, ln_program *p) {
    for (int i = 0; i < p->n_values; i++) {
        ln_pvalue *v = &p->values[i];
        if (v->kind != LN_KIND_WEIGHT) continue;
        const ln_device_weight *w = &r->placed[v->slot];
        v->data = w->data;
        v->layout_id = w->layout_id;
        v->read_bytes = w->read_bytes;
    }
}

ln_status ln_device_weights_open(ln_device_weights **out, const ln_weights *w, const ln_run_options *opt,
                                 ln_error *err) {
    const ln_device_ops *ops;
    *out = NULL;
    LN_TRY(ln_run_device(opt, &ops, err));
    return make(out, w, ops, opt, true, err);
}

void ln_device_weights_close(ln_device_weights **r) {
    drop(*r);
    *r = NULL;
}

ln_status ln_device_weights_store(ln_device_weights *r, size_t i, int64_t row0, int64_t n, const void *rows,
                                  ln_error *err) {
    const ln_weight *w = &r->weights->items[i];
    const ln_weight_desc d = desc_of(w, LN_EXACT, true);
    const ln_encoded_rows encoded = {.data = rows};
    const ln_host_weight host = host_of(w, &encoded, row0, n);
    const size_t row = (size_t)(LN_MAX(w->d1, 1) * ln_dtype_bytes(w->dtype));
    if (!r->sizes[i].in_place)
        return r->ops->upload(r->dev, &d, &host, r->placed[i].data, &r->placed[i], err);
    memcpy((char *)r->placed[i].data + (size_t)row0 * row, rows, (size_t)n * row);
    return LN_OK;
}
