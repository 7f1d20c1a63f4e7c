/* The guard of mapped files: a SIGBUS in a mapping becomes an error instead of ending the process.
 *
 * If a file is truncated while it is mapped, or cannot be read, a thread that accesses the lost pages gets
 * SIGBUS. The handler looks up the address in a table of all mappings. If it finds it, it replaces the rest
 * of that mapping, which is lost too, with zero pages, marks the mapping broken, and lets the thread
 * continue. The user of the mapping calls ln_map_check afterwards and discards the results. Every other
 * SIGBUS is passed on to the previous handler.
 *
 * The handler takes no lock: an entry of the table does not change while a thread reads its mapping. When the
 * table is full, further mappings are not guarded. */
#include "file.h"
#include "os.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { GUARDS = 8192 };

static struct guard {
    _Atomic uintptr_t lo, hi; /* page-aligned; lo 0: the entry is free */
    atomic_bool broken;
} guards[GUARDS];
static atomic_int n_guards; /* entries in use at some time */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool installed;
static struct sigaction before;

/* After fork the child finds the lock free and the table consistent: fork waits for a thread that holds the
 * lock, which it does only briefly. */
static void before_fork(void) { (void)pthread_mutex_lock(&lock); }
static void after_fork(void) { (void)pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void watch_forks(void) {
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

int ln_guard_add(const void *data, size_t bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), lo = (uintptr_t)data;
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < GUARDS && !found; i++) {
        struct guard *g = &guards[i];
        if (atomic_load(&g->lo)) continue;
        atomic_store(&g->broken, false);
        atomic_store(&g->hi, (lo + bytes + page - 1) & ~(page - 1));
        atomic_store(&g->lo, lo);
        if (atomic_load(&n_guards) <= i) atomic_store(&n_guards, i + 1);
        found = i + 1;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void ln_guard_drop(int guard) {
    if (guard > 0) atomic_store(&guards[guard - 1].lo, 0);
}

bool ln_guard_broken(int guard) { return guard > 0 && atomic_load(&guards[guard - 1].broken); }

/* Calls `hint` for a range, rounded to units of `unit` bytes, if it is part of a guarded mapping. */
static void advise(const void *data, size_t bytes, uintptr_t unit, void (*hint)(void *, size_t)) {
    uintptr_t lo = (uintptr_t)data, hi = lo + bytes;
    for (int i = 0, n = atomic_load(&n_guards); i < n; i++) {
        uintptr_t from = atomic_load(&guards[i].lo), to = atomic_load(&guards[i].hi);
        if (!from || lo < from || hi > to) continue;
        lo = LN_MAX(lo & ~(unit - 1), from);
        hi = LN_MIN((hi + unit - 1) & ~(unit - 1), to);
        hint((void *)lo, hi - lo);
        return;
    }
}

void ln_guard_fetch(const void *data, size_t bytes) {
    advise(data, bytes, (uintptr_t)sysconf(_SC_PAGESIZE), ln_os_fetch_pages);
}

/* A fault maps the pages around the address too, at most one large folio of the page cache; the range is
 * rounded so that these are released as well. */
void ln_guard_release(const void *data, size_t bytes) {
    advise(data, bytes, (uintptr_t)2 << 20, ln_os_drop_pages);
}

/* Replaces the mapping from `at` to its end with zero pages; false if `at` is not in a guarded mapping. */
static bool replace(uintptr_t at) {
    int n = atomic_load(&n_guards);
    for (int i = 0; i < n; i++) {
        struct guard *g = &guards[i];
        uintptr_t lo = atomic_load(&g->lo), hi = atomic_load(&g->hi);
        if (!lo || at < lo || at >= hi) continue;
        atomic_store(&g->broken, true);
        uintptr_t from = at & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
        return ln_os_zero_pages(from, hi - from);
    }
    return false;
}

/* Passes the signal to the previous handler, or restores its default effect. */
static void pass_on(int number, siginfo_t *info, void *context) {
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler == SIG_IGN &&
               info->si_code <= 0) { /* sent by a process, not caused by an access: may be ignored */
    } else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
        struct sigaction a = {0};
        a.sa_handler = SIG_DFL;
        (void)sigaction(number, &a, NULL);
        if (info->si_code <= 0) (void)raise(number); /* an access faults again by itself */
    } else {
        before.sa_handler(number);
    }
}

static void on_bus(int number, siginfo_t *info, void *context) {
    int saved = errno;
    if (info->si_code != BUS_ADRERR || !replace((uintptr_t)info->si_addr)) pass_on(number, info, context);
    errno = saved;
}

ln_status ln_guard_install(ln_error *err) {
    struct sigaction a = {0};
    char why[LN_ERRNO_TEXT];
    ln_status st = LN_OK;
    sigemptyset(&a.sa_mask);
    a.sa_flags = SA_SIGINFO | SA_ONSTACK;
    a.sa_sigaction = on_bus;
    pthread_mutex_lock(&lock);
    if (!installed && (sigaction(SIGBUS, NULL, &before) != 0 || sigaction(SIGBUS, &a, NULL) != 0))
        st =
            ln_fail(err, LN_EIO, "SIGBUS: the system does not take a handler: %s", ln_errno_text(why, errno));
    else installed = true;
    pthread_mutex_unlock(&lock);
    return st;
}
