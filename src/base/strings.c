/* Growing byte strings, JSON literals appended to them, and lists of names.
 *
 * Failure is sticky: a writer appends many pieces and checks `failed` once. Nothing here depends on the
 * locale. */
#include "c_locale.h"

#include <stdio.h>
#include <string.h>

/* Ensures capacity for `more` bytes and the terminating NUL. */
static bool reserve(ln_str *s, size_t more) {
    if (s->failed) return false;
    size_t need;
    if (!ln_add_size(s->len, more, &need) || !ln_add_size(need, 1, &need)) {
        s->failed = true;
        return false;
    }
    if (need <= s->cap) return true;
    void *p = s->data;
    if (ln_grow(&p, &s->cap, LN_MAX(need, (size_t)64), 1, NULL) != LN_OK) {
        s->failed = true;
        return false;
    }
    s->data = p;
    return true;
}

void ln_str_add(ln_str *s, const char *data, size_t bytes) {
    if (!reserve(s, bytes)) return;
    if (bytes) memcpy(s->data + s->len, data, bytes);
    s->len += bytes;
    s->data[s->len] = '\0';
}

void ln_str_adds(ln_str *s, const char *text) { ln_str_add(s, text, strlen(text)); }

void ln_str_addf(ln_str *s, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = ln_vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0) s->failed = true;
    if (n >= 0 && reserve(s, (size_t)n)) {
        (void)ln_vsnprintf(s->data + s->len, (size_t)n + 1, fmt, again);
        s->len += (size_t)n;
    }
    va_end(again);
}

void ln_str_free(ln_str *s) {
    ln_free(s->data);
    *s = (ln_str){0};
}

/* Appends the escape of a byte below 0x20, a quote or a backslash. */
static void add_escape(ln_str *s, unsigned char c) {
    static const char hex[] = "0123456789abcdef";
    const char *short_form = c == '"'    ? "\\\""
                             : c == '\\' ? "\\\\"
                             : c == '\n' ? "\\n"
                             : c == '\r' ? "\\r"
                             : c == '\t' ? "\\t"
                                         : NULL;
    if (short_form) {
        ln_str_add(s, short_form, 2);
        return;
    }
    char u[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    ln_str_add(s, u, 6);
}

void ln_str_json(ln_str *s, const char *data, size_t bytes) {
    ln_str_add(s, "\"", 1);
    size_t at = 0, from = 0;
    while (at < bytes) {
        unsigned char c = (unsigned char)data[at];
        if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
            at++;
            continue;
        }
        uint32_t cp;
        int n = c < 0x80 ? 0 : ln_utf8_get(data + at, bytes - at, &cp);
        if (n > 0) {
            at += (size_t)n;
            continue;
        }
        ln_str_add(s, data + from, at - from);
        if (c < 0x80) add_escape(s, c);
        else ln_str_add(s, "\xef\xbf\xbd", 3);
        from = ++at;
    }
    ln_str_add(s, data + from, at - from);
    ln_str_add(s, "\"", 1);
}

/* ---- lists of names ---- */

static bool is_listed(const char *list, const char *name, const char *between) {
    const size_t n = strlen(name), gap = strlen(between);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at++) {
        const bool begins = at == list || ((size_t)(at - list) >= gap && memcmp(at - gap, between, gap) == 0);
        if (begins && (!at[n] || strncmp(at + n, between, gap) == 0)) return true;
    }
    return false;
}

void ln_list_once(char *list, size_t cap, const char *name, const char *between) {
    static const char more[] = "...";
    if (!name[0]) name = "\"\"";
    const size_t n = strlen(list), gap = n ? strlen(between) : 0, end = strlen(between) + strlen(more);
    if (is_listed(list, name, between)) return;
    if (n + gap + strlen(name) + end < cap) (void)snprintf(list + n, cap - n, "%s%s", n ? between : "", name);
    else if (!is_listed(list, more, between))
        (void)snprintf(list + n, cap - n, "%s%s", n ? between : "", more);
}
