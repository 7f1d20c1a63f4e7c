/* See memory_control.h. The limits are process-wide words; the list of open engines is the driver's. A cache
 * belongs to the holder of its engine's driver token, so other threads touch it only while they hold the lock
 * of a scheduler whose token is free. */
#include "../base/os.h"
#include "memory_control.h"
#include "../base/memory_use.h"
#include "../base/text_memory.h"
#include "scheduler.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic uint64_t cache_limit = UINT64_MAX, n_clears, reserved;

/* ---- what is kept for reuse ---- */

void ln_cache_apply(ln_eng *e) {
    const uint64_t bytes = atomic_load(&cache_limit), clears = atomic_load(&n_clears);
    if (e->cache_clears != clears) ln_kv_clear(e->kv);
    if (e->cache_limit != bytes)
        (void)ln_kv_set_limit(e->kv, bytes < UINT64_MAX ? (int64_t)(bytes / (uint64_t)e->run->kv.page_bytes)
                                                        : INT64_MAX);
    e->cache_clears = clears;
    e->cache_limit = bytes;
}

static void apply_if_idle(void *user, ln_sched *s) {
    (void)user;
    if (!s->busy && !s->lost) ln_cache_apply(s->e);
}

uint64_t ln_cache_limit_set(uint64_t bytes) {
    const uint64_t before = atomic_exchange(&cache_limit, bytes);
    ln_driver_each(apply_if_idle, NULL);
    return before;
}

void ln_cache_clear_all(void) {
    atomic_fetch_add(&n_clears, 1);
    ln_driver_each(apply_if_idle, NULL);
}

/* ---- what is planned and not resident ---- */

/* Bytes of a block that are not resident; 0 where the system does not say. */
static uint64_t not_resident(const void *block, size_t bytes) {
    enum { SOME = 8192 }; /* pages that are asked for at once */
    unsigned char in[SOME];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint64_t out = 0;
    uintptr_t at = ((uintptr_t)block + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)block + bytes) / page * page;
    while (at < end) {
        const size_t n = LN_MIN((end - at) / page, (size_t)SOME);
        if (!ln_os_pages_in_memory((void *)at, n * page, in)) return 0;
        for (size_t i = 0; i < n; i++) out += in[i] & 1 ? 0 : page;
        at += n * page;
    }
    return out;
}

static void add_untouched(void *user, ln_sched *s) {
    const ln_run *r = s->e->run;
    if (r->sizes.ready_bytes < r->pool_bytes)
        *(uint64_t *)user += not_resident(r->states[LN_STATE_PAGES], r->pool_bytes);
    if (r->sizes.recur_ready_bytes < r->recur_bytes)
        *(uint64_t *)user += not_resident(r->states[LN_STATE_RECURRENT], r->recur_bytes);
}

uint64_t ln_memory_to_come(void) {
    uint64_t bytes = atomic_load(&reserved) + ln_texts_unused();
    ln_driver_each(add_untouched, &bytes);
    return bytes;
}

uint64_t ln_memory_reserved(void) { return atomic_load(&reserved); }
bool ln_memory_reserve(uint64_t seen, uint64_t bytes) {
    return atomic_compare_exchange_strong(&reserved, &seen, seen + bytes);
}
void ln_memory_unreserve(uint64_t bytes) { atomic_fetch_sub(&reserved, bytes); }

/* ---- figures ---- */

void ln_eng_count(const ln_eng *e, bool add) {
    const ln_run_sizes *z = &e->run->sizes;
    const int64_t kv = (int64_t)(z->kv_bytes + z->recur_bytes),
                  activations = (int64_t)(z->temp_bytes + z->scratch_bytes);
    ln_memory_count(LN_MEMORY_KV, add ? kv : -kv);
    ln_memory_count(LN_MEMORY_ACTIVATIONS, add ? activations : -activations);
    const int64_t adapters = (int64_t)z->adapter_bytes;
    ln_memory_count(LN_MEMORY_ADAPTERS, add ? adapters : -adapters);
}

static void add_cached(void *user, ln_sched *s) {
    const ln_eng *e = s->e;
    const int64_t pages = s->busy ? s->stats.n_cached : ln_kv_count(e->kv).n_cached,
                  state = s->busy ? s->stats.n_state_cached : ln_kv_count_chunks(e->kv).n_cached;
    *(uint64_t *)user += (uint64_t)(pages * e->run->kv.page_bytes + state * e->run->kv.recur_page_bytes);
}

void ln_memory_figures(ln_memory *out) {
    const uint32_t size = out->size;
    *out = (ln_memory){.size = size,
                       .active_bytes = ln_memory_resident(),
                       .peak_bytes = ln_memory_peak(),
                       .weights_bytes = ln_memory_counted(LN_MEMORY_WEIGHTS),
                       .kv_bytes = ln_memory_counted(LN_MEMORY_KV),
                       .activation_bytes = ln_memory_counted(LN_MEMORY_ACTIVATIONS),
                       .adapter_bytes = ln_memory_counted(LN_MEMORY_ADAPTERS),
                       .text_bytes = ln_texts_used(),
                       .limit_bytes = ln_limit_get(),
                       .cache_limit_bytes = atomic_load(&cache_limit),
                       .kernel_peak = ln_peak_is_kernels()};
    ln_driver_each(add_cached, &out->cache_bytes);
    const uint64_t classes =
        out->weights_bytes + out->kv_bytes + out->activation_bytes + out->adapter_bytes + out->text_bytes;
    out->other_bytes = out->active_bytes > classes ? out->active_bytes - classes : 0;
}
