/* Errors: one place fills a message, everyone else passes it on.
 *
 * A message is made where the failure is known best and is never rewritten on its way up; the only thing added is a prefix
 * (the file that was being read, say). Messages are cut at 1,023 bytes, never inside a UTF-8 character, and hold no line
 * breaks: what prints them may rely on one line.
 *
 * Untrusted bytes (paths, keys, tokens) come in through ln_excerpt or ln_path_text, which escape what a terminal would act
 * on: control characters, invalid UTF-8, and the code points that turn the direction of text. */
#include "c_locale.h"

#include <stdio.h>
#include <string.h>

/* Cuts half a character off the end of a message that vsnprintf had to shorten, and flattens line breaks. */
static void tidy(char *text, size_t cap) {
    size_t n = strnlen(text, cap - 1);
    text[ln_utf8_valid(text, n)] = '\0';
    for (char *p = text; *p; p++)
        if (*p == '\n' || *p == '\r') *p = ' ';
}

ln_status ln_fail(ln_error *err, ln_status code, const char *fmt, ...) {
    if (!err) return code;
    err->code = code;
    va_list args;
    va_start(args, fmt);
    if (ln_vsnprintf(err->message, sizeof err->message, fmt, args) < 0) err->message[0] = '\0';
    va_end(args);
    tidy(err->message, sizeof err->message);
    return code;
}

ln_status ln_prefix(ln_error *err, ln_status code, const char *fmt, ...) {
    if (!err) return code;
    char text[sizeof err->message];
    va_list args;
    va_start(args, fmt);
    int n = ln_vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0) return err->code;
    size_t used = strnlen(text, sizeof text - 1);
    (void)snprintf(text + used, sizeof text - used, ": %s", err->message);
    memcpy(err->message, text, sizeof text);
    err->message[sizeof err->message - 1] = '\0';
    tidy(err->message, sizeof err->message);
    return err->code;
}

/* Code points that a terminal may act on or that hide text: C0, DEL, C1, line separators, direction overrides, BOM. */
static bool unsafe(uint32_t cp) {
    return cp < 0x20 || (cp >= 0x7f && cp <= 0x9f) || cp == 0x2028 || cp == 0x2029 || (cp >= 0x200e && cp <= 0x200f) ||
           (cp >= 0x202a && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069) || cp == 0xfeff;
}

/* Escapes `data` into buf: at most `limit` bytes, then "..." when something was left out. buf holds limit + 4 bytes. */
static void escape(char *buf, size_t limit, const char *data, size_t bytes) {
    size_t out = 0, at = 0;
    while (at < bytes) {
        uint32_t cp = 0;
        int n = ln_utf8_get(data + at, bytes - at, &cp);
        char piece[16];
        int len;
        if (n == 0) {
            len = snprintf(piece, sizeof piece, "\\x%02x", (unsigned)(unsigned char)data[at]);
            n = 1;
        } else if (cp == '\n' || cp == '\t' || cp == '\r') {
            len = snprintf(piece, sizeof piece, "\\%c", cp == '\n' ? 'n' : cp == '\t' ? 't' : 'r');
        } else if (unsafe(cp)) {
            len = snprintf(piece, sizeof piece, "\\u%04x", (unsigned)cp);
        } else {
            memcpy(piece, data + at, (size_t)n);
            len = n;
        }
        if (out + (size_t)len > limit) break;
        memcpy(buf + out, piece, (size_t)len);
        out += (size_t)len;
        at += (size_t)n;
    }
    if (at < bytes) {
        memcpy(buf + out, "...", 3);
        out += 3;
    }
    buf[out] = '\0';
}

const char *ln_excerpt(char buf[80], const char *data, size_t bytes) {
    escape(buf, 64, data, bytes);
    return buf;
}

const char *ln_path_text(char buf[LN_PATH_TEXT], const char *path) {
    escape(buf, LN_PATH_TEXT - 4, path, strnlen(path, 8192));
    return buf;
}

/* strerror_r is one of two functions: the C library of GNU gives a text, which need not lie in the buffer; POSIX and musl give a status. */
static const char *text_given(char *buf, const char *text) {
    (void)buf;
    return text;
}
static const char *text_written(char *buf, int status) {
    if (status != 0) buf[0] = '\0';
    return buf;
}

const char *ln_errno_text(char buf[LN_ERRNO_TEXT], int number) {
    return _Generic(strerror_r(number, buf, LN_ERRNO_TEXT), char *: text_given, default: text_written)(buf, strerror_r(number, buf, LN_ERRNO_TEXT));
}
