/* Progress of loading, on a clock of the test: a line on a terminal, lines in a server's log. */
/* run: quick */
#include "../base/cm.h"

#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static double clock_now;
static char shown[1000], noted[1000];

static ssize_t show(int fd, const char *text, size_t n) {
    (void)fd;
    (void)snprintf(shown + strlen(shown), sizeof shown - strlen(shown), "%.*s|", (int)n, text);
    return (ssize_t)n;
}

void note(const char *fmt, ...) {
    va_list list;
    va_start(list, fmt);
    const size_t n = strlen(noted);
    (void)vsnprintf(noted + n, sizeof noted - n, fmt, list);
    va_end(list);
    (void)snprintf(noted + strlen(noted), sizeof noted - strlen(noted), "|");
}

static int columns; /* of the terminal; 0: unknown */
int terminal_columns(int fd) {
    (void)fd;
    return columns;
}

const char *bytes_text(char buf[32], uint64_t bytes) { return ln_bytes_text(buf, bytes); }

#define write     show
#define ln_now()  clock_now
#define isatty(x) true
#include "cli/progress.c"

enum { GB = 1 << 30 };

/* A large model is shown before its first tensor is loaded, a small one only if it takes long. */
static void on_a_terminal(void **state) {
    (void)state;
    const ln_progress p = progress_line();
    p.fn(p.user, "loading", 0, GB);
    assert_string_equal(shown, "\r\033[Kloading: 0 %|");
    clock_now += 2;
    shown[0] = '\0';
    p.fn(p.user, "loading", GB / 2, GB);
    assert_string_equal(shown, "\r\033[Kloading: 50 %|");
    shown[0] = '\0';
    p.fn(p.user, "loading", GB, GB);
    assert_string_equal(shown, "\r\033[K|"); /* wiped */
    shown[0] = '\0';
    p.fn(p.user, "loading", 0, 1000);
    clock_now += 0.4;
    p.fn(p.user, "loading", 400, 1000);
    assert_string_equal(shown, "");
    clock_now += 0.2;
    p.fn(p.user, "loading", 600, 1000);
    assert_string_equal(shown, "\r\033[Kloading: 60 %|");
    p.fn(p.user, "loading", 1000, 1000);
}

/* A line is never wider than the terminal, less the last column, in which some terminals wrap. */
static void in_a_narrow_terminal(void **state) {
    (void)state;
    shown[0] = '\0', columns = 20;
    progress_show("[##########----------] 5/10, 0:12 left");
    assert_string_equal(shown, "\r\033[K[##########--------|");
    shown[0] = '\0', columns = 0;
    progress_show("[##########----------] 5/10, 0:12 left");
    assert_string_equal(shown, "\r\033[K[##########----------] 5/10, 0:12 left|");
    progress_wipe();
    shown[0] = '\0';
}

static void in_a_log(void **state) {
    (void)state;
    const ln_progress p = progress_log();
    p.fn(p.user, "loading", 0, GB);
    clock_now += 4;
    p.fn(p.user, "loading", GB / 4, GB);
    clock_now += 2;
    p.fn(p.user, "loading", GB / 2, GB);
    p.fn(p.user, "loading", GB, GB);
    p.fn(p.user, "reading", 1, 100);
    assert_string_equal(noted, "loading: 0 % of 1.07 GB|loading: 50 % of 1.07 GB|");
    noted[0] = '\0';
    p.fn(p.user, "loading", 0, 1000);
    clock_now += 1;
    p.fn(p.user, "loading", 500, 1000);
    assert_string_equal(noted, ""); /* quick, and small */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(on_a_terminal),
                                       cmocka_unit_test(in_a_narrow_terminal), cmocka_unit_test(in_a_log)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
