/* Memory allocation: malloc with a byte count and with injected failures for tests.
 *
 * Every block is an ordinary malloc block without a header: its size is queried from the allocator when it is
 * allocated and when it is freed. A block that another library releases with free() is therefore valid
 * (jansson is given these functions). The count is one relaxed atomic: exact whenever no allocation is in
 * progress.
 *
 * A thread that works on a text has an account (text_memory.h), which may reject an allocation.
 *
 * ln_mem_fail_at arms a countdown: the n-th allocation from then on returns NULL, once or persistently. It
 * costs one relaxed load when it is off. Because of it no other file may call malloc. */
#include "memory_use.h"
#include "os.h"
#include "text_memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static _Atomic uint64_t held;
/* -1: off; otherwise the number of allocations that will still succeed */
static _Atomic int64_t countdown = -1;
static _Atomic bool persistent_failure;

static bool must_fail(void) {
    int64_t left = atomic_load_explicit(&countdown, memory_order_relaxed);
    if (left < 0) return false;
    left = atomic_fetch_sub(&countdown, 1);
    if (left > 0) return false;
    /* The countdown has ended: stay at 0 (fail again) or switch off. */
    atomic_store(&countdown, atomic_load(&persistent_failure) ? 0 : -1);
    return left == 0 || atomic_load(&persistent_failure);
}

/* Whether the account of this thread, if it has one, rejects `bytes` more. */
static bool is_refused(size_t bytes) {
    ln_account *a = ln_account_here;
    return a && !ln_account_ask(a, bytes);
}

static void *count_in(void *p) {
    if (!p) return NULL;
    const size_t bytes = ln_os_block_bytes(p);
    atomic_fetch_add_explicit(&held, bytes, memory_order_relaxed);
    if (ln_account_here) ln_account_took(ln_account_here, bytes);
    return p;
}

static void count_out(size_t bytes) {
    atomic_fetch_sub_explicit(&held, bytes, memory_order_relaxed);
    if (ln_account_here) ln_account_gave(ln_account_here, bytes);
}

int64_t ln_mem_fail_at(int64_t n, bool persistent) {
    atomic_store(&persistent_failure, persistent);
    return atomic_exchange(&countdown, n > 0 ? n - 1 : -1);
}

uint64_t ln_mem_bytes(void) { return atomic_load_explicit(&held, memory_order_relaxed); }

void *ln_alloc(size_t bytes) {
    if (must_fail() || is_refused(bytes)) return NULL;
    return count_in(malloc(bytes ? bytes : 1));
}

void *ln_zalloc(size_t count, size_t bytes) {
    size_t total;
    if (!ln_mul_size(count, bytes, &total) || must_fail() || is_refused(total)) return NULL;
    return count_in(calloc(1, total ? total : 1));
}

void *ln_realloc(void *p, size_t bytes) {
    if (must_fail()) return NULL;
    size_t before = p ? ln_os_block_bytes(p) : 0;
    if (bytes > before && is_refused(bytes - before)) return NULL;
    void *q = realloc(p, bytes ? bytes : 1);
    if (!q) return NULL;
    if (!p) return count_in(q);
    const size_t after = ln_os_block_bytes(q);
    atomic_fetch_add_explicit(&held, after - before, memory_order_relaxed);
    if (ln_account_here) ln_account_resized(ln_account_here, before, after);
    return q;
}

void ln_free(void *p) {
    if (!p) return;
    count_out(ln_os_block_bytes(p));
    free(p);
}

char *ln_strndup(const char *s, size_t bytes) {
    size_t total;
    char *copy = ln_add_size(bytes, 1, &total) ? ln_alloc(total) : NULL;
    if (!copy) return NULL;
    if (bytes) memcpy(copy, s, bytes);
    copy[bytes] = '\0';
    return copy;
}

ln_status ln_grow(void **p, size_t *cap, size_t need, size_t item, ln_error *err) {
    if (need <= *cap) return LN_OK;
    size_t want = *cap < 8 ? 16 : *cap + *cap / 2, bytes;
    if (want < need) want = need;
    if (!ln_mul_size(want, item, &bytes)) return LN_OOM(err, "a list (its size overflows)");
    void *q = ln_realloc(*p, bytes);
    if (!q) return ln_fail(err, LN_EMEMORY, "out of memory while growing a list to %zu bytes", bytes);
    *p = q;
    *cap = want;
    return LN_OK;
}

/* ---- classes ---- */

static _Atomic int64_t classes[LN_MEMORY_CLASSES];

void ln_memory_count(ln_memory_class c, int64_t bytes) {
    atomic_fetch_add_explicit(&classes[c], bytes, memory_order_relaxed);
}

uint64_t ln_memory_counted(ln_memory_class c) {
    return (uint64_t)LN_MAX(atomic_load_explicit(&classes[c], memory_order_relaxed), (int64_t)0);
}

/* ---- arenas ---- */

struct ln_arena_block {
    struct ln_arena_block *next;
    size_t unused; /* padding: keeps the payload 16-byte aligned */
};

enum { ARENA_FIRST = 4096, ARENA_MOST = 1 << 20 };

/* `used` and `cap` describe the head block. A piece larger than a quarter of the next block gets a block of
 * its own, which is linked after the head so that the rest of the head block stays usable. */
void *ln_arena_alloc(ln_arena *a, size_t bytes) {
    size_t size, total;
    if (!ln_add_size(bytes, 15, &size)) return NULL;
    size &= ~(size_t)15;
    if (size == 0) size = 16;
    if (a->head && size <= a->cap - a->used) {
        void *p = (char *)(a->head + 1) + a->used;
        a->used += size;
        return p;
    }
    size_t next = a->cap == 0 ? ARENA_FIRST : LN_MIN(a->cap * 2, (size_t)ARENA_MOST);
    bool own = size > next / 4;
    if (!ln_add_size(own ? size : next, sizeof(struct ln_arena_block), &total)) return NULL;
    struct ln_arena_block *b = ln_zalloc(1, total);
    if (!b) return NULL;
    a->total += total;
    if (own && a->head) {
        b->next = a->head->next;
        a->head->next = b;
        return b + 1;
    }
    b->next = a->head;
    a->head = b;
    a->cap = own ? size : next;
    a->used = size;
    return b + 1;
}

char *ln_arena_strndup(ln_arena *a, const char *s, size_t bytes) {
    size_t total;
    char *copy = ln_add_size(bytes, 1, &total) ? ln_arena_alloc(a, total) : NULL;
    if (copy && bytes) memcpy(copy, s, bytes);
    return copy;
}

void ln_arena_free(ln_arena *a) {
    for (struct ln_arena_block *b = a->head, *next; b; b = next) {
        next = b->next;
        ln_free(b);
    }
    *a = (ln_arena){0};
}

ln_status ln_lock(const void *p, size_t bytes, const char *what, ln_error *err) {
    char why[LN_ERRNO_TEXT];
    if (!bytes || mlock(p, bytes) == 0) return LN_OK;
    return ln_fail(err, LN_EMEMORY,
                   "ln_options.mlock: the system does not let %s be locked (%zu bytes: %s); raise the limit "
                   "(ulimit -l) or leave it out",
                   what, bytes, ln_errno_text(why, errno));
}
