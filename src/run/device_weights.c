/* Loads weights in a device's layout, once per model and device (and numerics, where the device's layout
 * depends on them), and shares them among the engines that use them.
 *
 * A device reports how many bytes its layout of a weight takes; 0: its kernels read the mapped file. One
 * block holds all weights of the first kind. Pages of the file are released as they are read, so that a model
 * is never in memory twice. Weights that are read from the file are faulted in by all threads in parallel
 * before the first step: 0.1 s per GB from a warm page cache, instead of a page fault every few pages in the
 * first prefill. */
#include "../base/file.h"
#include "../base/memory_use.h"
#include "run.h"

#include <sys/mman.h>

enum { ALIGN = 64 };

ln_value ln_weight_value(const ln_weight *w) {
    ln_value v = {.kind = LN_KIND_WEIGHT,
                  .dtype = w->dtype,
                  .enc = w->enc,
                  .n_dims = w->d1 ? 2 : 1,
                  .dims = {w->d0, w->d1},
                  .uses = w->uses};
    return v;
}

/* Bytes of a weight in the block: in the device's layout, quantised at load, or a copy of a vector (a few KB,
 * for which the operating system would keep 64 KB of the file resident); 0: kernels read the file.
 * `expected`: the estimate that a plan counts, else the upper bound. */
static size_t own_bytes(const ln_device_ops *ops, const ln_dev *dev, const ln_weight *w, bool expected) {
    ln_value v = ln_weight_value(w);
    size_t bytes = expected ? ops->weight_estimate(dev, &v, w->tensor->data) : ops->weight_bytes(dev, &v);
    if (bytes) return bytes;
    return ln_weight_made(w) ? ln_encoded_bytes(w) : w->d1 ? 0 : (size_t)w->tensor->bytes;
}

/* Assigns a weight its offset in the block, at *at or the next multiple of ALIGN, and advances *at beyond it;
 * SIZE_MAX: kernels read the file. */
static size_t place(const ln_device_ops *ops, const ln_dev *dev, const ln_weight *w, bool expected,
                    size_t *at) {
    size_t bytes = own_bytes(ops, dev, w, expected), here = (*at + ALIGN - 1) / ALIGN * ALIGN;
    if (!bytes) return SIZE_MAX;
    *at = here + bytes;
    return here;
}

uint64_t ln_device_weights_bytes(const ln_device_ops *ops, const ln_dev *dev, const ln_weights *w,
                                 uint64_t *in_copies) {
    size_t at = 0;
    uint64_t in_place = 0;
    *in_copies = 0;
    for (size_t i = 0; i < w->n; i++)
        if (place(ops, dev, &w->items[i], true, &at) == SIZE_MAX)
            for (int k = 0; k < LN_WEIGHT_PARTS && ln_weight_part(&w->items[i], k); k++) {
                const ln_tensor *t = ln_weight_part(&w->items[i], k);
                in_place += t->bytes;
                if (t->copied) *in_copies += t->bytes;
            }
    return at + in_place;
}

/* Whether weight i is stored in the block, not read from the file. */
static bool own(const ln_device_weights *r, size_t i) {
    return own_bytes(r->ops, r->dev, &r->weights->items[i], false) > 0;
}

/* Faults in pages [lo, hi) of a tensor. */
enum { PAGE_BYTES = 4096 };
static void map_pages(void *user, int thread, int64_t lo, int64_t hi) {
    const ln_tensor *t = user;
    (void)thread;
    const int64_t end = LN_MIN(hi * PAGE_BYTES, (int64_t)t->bytes);
    ln_guard_fetch(t->data + lo * PAGE_BYTES, (size_t)(end - lo * PAGE_BYTES));
}

/* Faults in the weights that are read from the file, with the threads of the pool. */
static void map_all(const ln_device_weights *r, const ln_run_options *opt) {
    for (size_t i = 0; i < LN_WEIGHT_PARTS * r->weights->n; i++) {
        const ln_tensor *t =
            ln_weight_part(&r->weights->items[i / LN_WEIGHT_PARTS], (int)(i % LN_WEIGHT_PARTS));
        if (!t || own(r, i / LN_WEIGHT_PARTS)) continue;
        ln_pool_run_units(ln_run_pool(opt), opt->n_threads, ((int64_t)t->bytes + PAGE_BYTES - 1) / PAGE_BYTES,
                          LN_POOL_SLICE_BYTES / PAGE_BYTES, map_pages, (void *)(uintptr_t)t);
    }
}

/* Bytes of a weight's tensors in the file. */
static int64_t file_bytes(const ln_weight *w) {
    uint64_t sum = 0;
    for (int i = 0; i < LN_WEIGHT_PARTS && ln_weight_part(w, i); i++) sum += ln_weight_part(w, i)->bytes;
    return (int64_t)sum;
}

/* Loads one weight into `room`, its part of the block; NULL: in place, from the file. */
static ln_status make_one(ln_device_weights *r, const ln_weight *w, void *room, const ln_run_options *opt,
                          ln_device_weight *out, ln_error *err) {
    const ln_value v = ln_weight_value(w);
    const bool own_form = r->ops->weight_bytes(r->dev, &v) > 0;
    const void *host = w->tensor->data;
    if (own_form && ln_weight_made(w))
        return ln_encode_into(r->ops, r->dev, w, room, ln_run_pool(opt), opt->n_threads, out, err);
    if (w->enc.bits) { /* kernels get a quantised weight as an ln_affine */
        ln_affine *a = ln_arena_alloc(&r->arena, sizeof *a);
        if (!a) return LN_OOM(err, "the table of weights");
        if (ln_weight_made(w)) LN_TRY(ln_encode(w, room, ln_run_pool(opt), opt->n_threads, a, err));
        else
            *a = (ln_affine){.codes = w->tensor->data,
                             .scales = w->scales->data,
                             .biases = w->biases->data,
                             .dtype = w->dtype,
                             .enc = w->enc};
        host = a;
    } else if (!w->d1) {
        host = memcpy(room, host, (size_t)w->tensor->bytes);
        ln_guard_release(w->tensor->data, (size_t)w->tensor->bytes);
    }
    return r->ops->upload(r->dev, &v, 0, w->d0, host, own_form ? room : NULL, out, err);
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

/* Allocates the block and loads all weights. */
static ln_status fill(ln_device_weights *r, const ln_run_options *opt, ln_error *err) {
    size_t at = 0;
    int64_t done = 0, total = 0;
    r->placed = ln_zalloc(r->weights->n + 1, sizeof *r->placed);
    if (!r->placed) return LN_OOM(err, "the table of weights");
    for (size_t i = 0; i < r->weights->n; i++) {
        (void)place(r->ops, r->dev, &r->weights->items[i], false, &at);
        (void)place(r->ops, r->dev, &r->weights->items[i], true, &r->expected);
        total += file_bytes(&r->weights->items[i]);
    }
    r->room_bytes = at;
    /* Where weights may take less than their upper bound, each begins where the one before it ends, and the
     * block is faulted in by the threads that write to it. */
    if (at) LN_TRY(r->ops->alloc(r->dev, at, r->expected == at ? at : 0, &r->room, err));
    for (size_t i = 0; i < r->weights->n; i++) {
        const ln_weight *w = &r->weights->items[i];
        at = r->bytes;
        const size_t here = place(r->ops, r->dev, w, false, &at);
        LN_TRY(make_one(r, w, here == SIZE_MAX ? NULL : (char *)r->room + here, opt, &r->placed[i], err));
        r->bytes = r->placed[i].bf12 ? here + r->placed[i].bytes : at;
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
    if (r->dev) r->ops->close(&r->dev);
    ln_free(r->placed);
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

static ln_status make(ln_device_weights **out, const ln_weights *w, const ln_device_ops *ops,
                      const ln_run_options *opt, ln_error *err) {
    ln_dev_options o = {.n_threads = opt->n_threads, .fast = opt->numerics == LN_FAST, .pool = opt->pool};
    ln_dev_info info;
    ln_device_weights *r = ln_zalloc(1, sizeof *r);
    if (!r) return LN_OOM(err, "weights");
    r->weights = w;
    r->ops = ops;
    ln_status st = ops->open(&r->dev, &o, err);
    if (st == LN_OK) {
        ops->describe(r->dev, &info);
        r->by_numerics = info.by_numerics;
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
    for (size_t i = 0; i < LN_WEIGHT_PARTS * r->weights->n; i++) {
        const ln_tensor *t =
            ln_weight_part(&r->weights->items[i / LN_WEIGHT_PARTS], (int)(i % LN_WEIGHT_PARTS));
        if (t && !own(r, i / LN_WEIGHT_PARTS)) LN_TRY(ln_lock(t->data, (size_t)t->bytes, "a weight", err));
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
    for (size_t i = 0; i < LN_COUNT(s->items); i++)
        for (size_t k = 0; k < LN_COUNT(s->items[i]); k++) drop(s->items[i][k]);
    (void)pthread_mutex_lock(&registry);
    if (s->link) *s->link = s->next;
    if (s->link && s->next) s->next->link = s->link;
    s->link = NULL;
    (void)pthread_mutex_unlock(&registry);
    (void)pthread_mutex_destroy(&s->lock);
}

/* Returns the slot of the weights that these options use; it holds NULL where they are not loaded. Weights
 * that were loaded for the other numerics are used where the device has one layout for both. */
static ln_device_weights **place_of(ln_weight_cache *s, const ln_weights *w, const ln_run_options *opt) {
    const bool fast = opt->numerics == LN_FAST && w->enc.bits;
    ln_device_weights **own = &s->items[opt->device][fast], **other = &s->items[opt->device][!fast];
    return *own || !*other || (*other)->by_numerics ? own : other;
}

bool ln_weight_cache_has(ln_weight_cache *s, const ln_weights *w, const ln_run_options *opt) {
    hold(s);
    bool has = *place_of(s, w, opt);
    release(s);
    return has;
}

ln_status ln_weight_cache_acquire(ln_weight_cache *s, const ln_weights *w, const ln_run_options *opt,
                                  const ln_device_weights **out, ln_error *err) {
    const ln_device_ops *ops;
    LN_TRY(ln_run_device(opt->device, &ops, err));
    hold(s);
    ln_device_weights **r = place_of(s, w, opt), *gone = NULL;
    ln_status st = *r ? LN_OK : make(r, w, ops, opt, err);
    if (st == LN_OK && opt->mlock) st = lock_all(*r, err);
    if (st == LN_OK) (*r)->n_users++, *out = *r;
    else if (*r && (*r)->n_users == 0) gone = *r, *r = NULL;
    drop(gone);
    release(s);
    return st;
}

void ln_weight_cache_release(ln_weight_cache *s, const ln_device_weights *r) {
    ln_device_weights *gone = NULL;
    if (!r) return;
    hold(s);
    for (size_t i = 0; i < LN_COUNT(s->items); i++)
        for (size_t k = 0; k < LN_COUNT(s->items[i]); k++)
            if (s->items[i][k] == r && --s->items[i][k]->n_users == 0)
                gone = s->items[i][k], s->items[i][k] = NULL;
    drop(gone); /* under the lock: a forked child never sees half-freed weights */
    release(s);
}
