/* Formatting independent of the locale.
 *
 * A host program may have called setlocale, or uselocale on the calling thread. printf then writes numbers
 * with that locale's decimal separator, and strftime its names of days and months. The functions here switch
 * the calling thread to the C locale for the duration of one call and restore its locale afterwards. */
#include "c_locale.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>

static locale_t c_locale;

static void open_c_locale(void) {
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
} /* allocates nothing in glibc and musl */

locale_t ln_locale_enter(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, open_c_locale);
    return c_locale == (locale_t)0 ? (locale_t)0 : uselocale(c_locale);
}

void ln_locale_leave(locale_t was) {
    if (was != (locale_t)0) (void)uselocale(was);
}

int ln_vsnprintf(char *buf, size_t cap, const char *fmt, va_list args) {
    locale_t was = ln_locale_enter();
    int n = vsnprintf(buf, cap, fmt, args);
    ln_locale_leave(was);
    return n;
}

int ln_snprintf(char *buf, size_t cap, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = ln_vsnprintf(buf, cap, fmt, args);
    va_end(args);
    return n;
}

size_t ln_strftime(char *buf, size_t cap, const char *fmt, const struct tm *t) {
    locale_t was = ln_locale_enter();
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(buf, cap, fmt, t);
#pragma GCC diagnostic pop
    ln_locale_leave(was);
    return n;
}

static char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c; }

bool ln_same_ascii(const char *a, const char *b) {
    while (*a && ascii_lower(*a) == ascii_lower(*b)) a++, b++;
    return ascii_lower(*a) == ascii_lower(*b);
}
