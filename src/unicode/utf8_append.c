/* Appends to the tokenizer's UTF-8 strings: bytes, characters, and text that may be invalid UTF-8.
 *
 * ln_str_add is meant for messages. The tokenizer rewrites whole texts, so its loops reserve a buffer once
 * and write into it directly. The invariant of ln_str holds: data is zero-terminated when it is not NULL.
 *
 * Invalid bytes: each maximal subpart of an ill-formed sequence (a truncated character) becomes one U+FFFD,
 * and so does every other invalid byte. Rust's from_utf8_lossy does the same, so the reference sees the same
 * text. */
#include "unicode.h"

ln_status utf8_reserve(ln_str *s, size_t more, ln_error *err) {
    size_t need;
    if (s->failed || !ln_add_size(s->len, more, &need) || !ln_add_size(need, 1, &need))
        return LN_OOM(err, "a text");
    if (need <= s->cap) return LN_OK;
    size_t cap = s->cap + s->cap / 2;
    if (cap < need) cap = need;
    if (cap < 64) cap = 64;
    char *data = ln_realloc(s->data, cap);
    if (!data) return LN_OOM(err, "a text");
    s->data = data;
    s->cap = cap;
    s->data[s->len] = '\0';
    return LN_OK;
}

ln_status utf8_append(ln_str *s, const char *data, size_t bytes, ln_error *err) {
    LN_TRY(utf8_reserve(s, bytes, err));
    if (bytes > 0) memcpy(s->data + s->len, data, bytes);
    utf8_grown(s, bytes);
    return LN_OK;
}

ln_status utf8_append_cp(ln_str *s, uint32_t cp, ln_error *err) {
    LN_TRY(utf8_reserve(s, 4, err));
    utf8_grown(s, (size_t)ln_utf8_put(s->data + s->len, cp));
    return LN_OK;
}

/* The length in bytes of the maximal subpart of a character at u, at which no complete character begins.
 * *cut: the text ends within that character. */
static size_t beginning(const unsigned char *u, size_t bytes, bool *cut) {
    unsigned lo = 0x80, hi = 0xbf, c = u[0];
    size_t need = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1, i = 0;
    *cut = false;
    if (c < 0xc2 || c > 0xf4) return 1;
    if (c == 0xe0) lo = 0xa0;
    if (c == 0xed) hi = 0x9f;
    if (c == 0xf0) lo = 0x90;
    if (c == 0xf4) hi = 0x8f;
    while (i < need) {
        if (1 + i >= bytes) {
            *cut = true;
            break;
        }
        if (u[1 + i] < lo || u[1 + i] > hi) break;
        lo = 0x80;
        hi = 0xbf;
        i++;
    }
    return 1 + i;
}

ln_status utf8_append_lossy(ln_str *s, const char *text, size_t bytes, size_t *rest, ln_error *err) {
    if (rest) *rest = 0;
    for (size_t at = 0; at < bytes;) {
        size_t good = ln_utf8_valid(text + at, bytes - at);
        LN_TRY(utf8_append(s, text + at, good, err));
        at += good;
        if (at >= bytes) break;
        bool cut;
        size_t n = beginning((const unsigned char *)text + at, bytes - at, &cut);
        if (cut && rest) {
            *rest = bytes - at;
            break;
        }
        LN_TRY(utf8_append(s, "\xef\xbf\xbd", 3, err));
        at += n;
    }
    return LN_OK;
}

bool utf8_is_prefix(const char *s, size_t bytes) {
    bool cut;
    size_t n = beginning((const unsigned char *)s, bytes, &cut);
    return cut && n == bytes;
}
