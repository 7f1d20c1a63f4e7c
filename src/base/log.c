/* The log: passes messages of the library to the function that the program has set, one sanitised line per
 * call.
 *
 * If no function is set, which is the default, messages are dropped before they are formatted: the library
 * never writes to a descriptor on its own. A lock is held while the function runs, so that calls do not
 * overlap and no thread is inside the function when ln_log_set returns. After fork() the child finds the lock
 * free. */
#include "c_locale.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic bool wanted;
static ln_log_fn *sink;
static void *sink_user;

static _Thread_local bool inside; /* this thread is inside the function and holds the lock */

static void take(void) {
    if (!inside) (void)pthread_mutex_lock(&lock);
}
static void give(void) {
    if (!inside) (void)pthread_mutex_unlock(&lock);
}
static void on_first_use(void) { (void)pthread_atfork(take, give, give); }

void ln_log_set(ln_log_fn *fn, void *user) {
    (void)pthread_once(&once, on_first_use);
    take();
    sink = fn;
    sink_user = user;
    atomic_store(&wanted, fn != NULL);
    give();
}

void ln_log(ln_level level, const char *fmt, ...) {
    if (!atomic_load_explicit(&wanted, memory_order_relaxed) || inside) return;
    char line[1400];
    va_list args;
    va_start(args, fmt);
    int n = ln_vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (n < 0) return;
    ln_printable(line, sizeof line);
    take();
    inside = true;
    if (sink) sink(sink_user, level, line);
    inside = false;
    give();
}
