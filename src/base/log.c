/* The log: one sanitised line to stderr per call, in one write, so that lines of several threads do not mix.
 *
 * It never fails and never blocks the work on its own account: a line that cannot be written is lost. LINNET_LOG sets the level
 * for debugging; the command's -v sets it for people. */
#include "c_locale.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Atomic int level_now = -1; /* -1: not read from the environment yet */

static int level_of_environment(void) {
    const char *text = getenv("LINNET_LOG");
    if (text && text[0] >= '0' && text[0] <= '3' && text[1] == '\0') return text[0] - '0';
    return LN_LOG_WARN;
}

void ln_log_level(ln_level level) { atomic_store(&level_now, (int)level); }

void ln_log(ln_level level, const char *fmt, ...) {
    int now = atomic_load_explicit(&level_now, memory_order_relaxed);
    if (now < 0) {
        now = level_of_environment();
        atomic_store(&level_now, now);
    }
    if ((int)level > now) return;
    static const char *const names[] = {"error: ", "warning: ", "", "debug: "};
    char line[1400];
    size_t used = (size_t)snprintf(line, sizeof line - 1, "linnet: %s", names[level]);
    va_list args;
    va_start(args, fmt);
    int n = ln_vsnprintf(line + used, sizeof line - 1 - used, fmt, args);
    va_end(args);
    if (n < 0) return;
    size_t len = strnlen(line, sizeof line - 2);
    len = ln_utf8_valid(line, len);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f) line[i] = ' ';
    line[len++] = '\n';
    ssize_t done = write(STDERR_FILENO, line, len);
    (void)done;
}
