/* Errors: a message is written once, by the function that fails.
 *
 * The only change that callers make to a message is a prefix, for example the file that was being read.
 * Messages are cut at 1,023 bytes, never inside a UTF-8 character, and contain no line breaks, so that every
 * message prints as one line.
 *
 * Untrusted bytes (paths, keys, tokens) enter a message through ln_excerpt or ln_path_text, which shorten
 * them and escape everything that a terminal would interpret: control characters, invalid UTF-8, and code
 * points that change the direction of text. ln_printable does the same to the whole message, so that no
 * message can carry such bytes. */
#include "c_locale.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Code points that a terminal interprets or that hide text: C0, DEL, C1, line separators, bidirectional
 * controls, BOM. */
static bool unsafe(uint32_t cp) {
    return cp < 0x20 || (cp >= 0x7f && cp <= 0x9f) || cp == 0x2028 || cp == 0x2029 ||
           (cp >= 0x200e && cp <= 0x200f) || (cp >= 0x202a && cp <= 0x202e) ||
           (cp >= 0x2066 && cp <= 0x2069) || cp == 0xfeff;
}

/* Escapes `data` into buf: at most `limit` bytes, followed by "..." if it was cut. buf holds limit + 4
 * bytes. */
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

/* The length of a text that a buffer may have cut: without the first bytes of a character at its end. */
static size_t without_half(const char *text, size_t n) {
    size_t at = n;
    while (at > 0 && n - at < 3 && ((unsigned char)text[at - 1] & 0xc0) == 0x80) at--;
    if (at == 0 || (unsigned char)text[at - 1] < 0xc0) return n;
    return ln_utf8_valid(text + at - 1, n - at + 1) == n - at + 1 ? n : at - 1;
}

void ln_printable(char *text, size_t cap) {
    char copy[1500];
    size_t n = strnlen(text, cap - 1);
    if (n == cap - 1) n = without_half(text, n);
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\n' || text[i] == '\r') text[i] = ' ';
    n = LN_MIN(n, sizeof copy - 1);
    memcpy(copy, text, n);
    copy[n] = '\0';
    escape(text, cap - 4, copy, n);
}

ln_status ln_fail(ln_error *err, ln_status code, const char *fmt, ...) {
    if (!err) return code;
    err->code = code;
    va_list args;
    va_start(args, fmt);
    if (ln_vsnprintf(err->message, sizeof err->message, fmt, args) < 0) err->message[0] = '\0';
    va_end(args);
    ln_printable(err->message, sizeof err->message);
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
    ln_printable(err->message, sizeof err->message);
    return err->code;
}

const char *ln_excerpt(char buf[80], const char *data, size_t bytes) {
    escape(buf, 64, data, bytes);
    return buf;
}

const char *ln_path_text(char buf[LN_PATH_TEXT], const char *path) {
    escape(buf, LN_PATH_TEXT - 4, path, strnlen(path, 8192));
    return buf;
}

/* strerror_r has two versions: GNU's returns the text, which need not be in the buffer; that of POSIX and
 * musl returns a status. */
static const char *text_given(char *buf, const char *text) {
    (void)buf;
    return text;
}
static const char *text_written(char *buf, int status) {
    if (status != 0) buf[0] = '\0';
    return buf;
}

const char *ln_errno_text(char buf[LN_ERRNO_TEXT], int number) {
    /* clang-format off: it does not know _Generic */
    return _Generic(strerror_r(number, buf, LN_ERRNO_TEXT), char *: text_given, default: text_written)(
        buf, strerror_r(number, buf, LN_ERRNO_TEXT));
    /* clang-format on */
}

const char *ln_errno_hint(int number) {
    if (number == EACCES) return "; check its permissions and those of the directories above it";
    if (number == EPERM)
        return "; it is immutable (lsattr shows that), or a rule of this system or container forbids it";
    if (number == ENAMETOOLONG)
        return "; a path, made absolute, may have 4095 bytes, and a name in it 255: use a shorter one";
    return "";
}

ln_status ln_callback_status(ln_status said, ln_error *err) {
    if (said == LN_OK || said == LN_ECANCELLED) return said;
    err->code = said;
    err->message[sizeof err->message - 1] = '\0';
    if (err->message[0]) return said;
    return ln_fail(err, said, "the caller's function failed with status %d", said);
}
