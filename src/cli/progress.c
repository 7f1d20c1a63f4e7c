/* Progress: one line on stderr, if that is a terminal, which is overwritten in place. It appears only
 * after half a second, so that quick operations show nothing, and is erased before any other output. The log
 * of a server has a line every few seconds instead.
 *
 * Loading is reported after each tensor, and the first one may take seconds: a model of LARGE bytes or more
 * is shown from the start. */
#include "cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LARGE = 64 << 20 };
static const double LOG_SECONDS = 5;

static struct {
    const char *what; /* the operation that is in progress */
    double start, last;
    bool shown;
} now;

static void put(const char *text, int n) {
    ssize_t done = n > 0 ? write(STDERR_FILENO, text, (size_t)n) : 0;
    (void)done;
}

void progress_wipe(void) {
    static const char text[] = "\r\033[K";
    if (now.shown) put(text, sizeof text - 1);
    now.shown = false;
}

/* A line that is wider than the terminal would be wrapped, and only its last row erased. */
void progress_show(const char *text) {
    enum { MOST = 180 };
    char line[MOST + 20];
    const int columns = terminal_columns(STDERR_FILENO),
              most = columns > 0 ? LN_MIN(columns - 1, (int)MOST) : MOST;
    put(line, snprintf(line, sizeof line, "\r\033[K%.*s", most, text));
    now.shown = true;
}

static void on_progress(void *user, const char *what, int64_t done, int64_t total) {
    double t = ln_now();
    char line[80];
    (void)user;
    if (!now.what || strcmp(now.what, what) != 0) now.what = what, now.start = t;
    if (done >= total) {
        progress_wipe();
        now.what = NULL;
    } else if ((t - now.start > 0.5 && t - now.last > 0.1) ||
               (done == 0 && total >= LARGE && strcmp(what, "loading") == 0)) {
        put(line, snprintf(line, sizeof line, "\r\033[K%s: %d %%", what,
                           (int)(100 * (double)done / (double)total)));
        now.shown = true;
        now.last = t;
    }
}

static void on_log_progress(void *user, const char *what, int64_t done, int64_t total) {
    static double said; /* loading is the work of one thread */
    const double t = ln_now();
    char size[32];
    (void)user;
    if (strcmp(what, "loading") != 0) return;
    if (done == 0) said = total >= LARGE ? t - LOG_SECONDS : t;
    if (done >= total || t - said < LOG_SECONDS) return;
    said = t;
    note("loading: %d %% of %s", (int)(100 * (double)done / (double)total),
         bytes_text(size, (uint64_t)total));
}

ln_progress progress_log(void) { return (ln_progress){on_log_progress, NULL}; }

ln_progress progress_line(void) { return (ln_progress){isatty(STDERR_FILENO) ? on_progress : NULL, NULL}; }
