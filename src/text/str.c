/* Byte strings of the tokenizer: room made once and filled by hand, characters, and the one rule for bytes that are no UTF-8.
 *
 * ln_str_add is made for messages; here whole texts are rewritten, so that the loops reserve first and write plainly. The invariant of
 * ln_str stays: data is terminated when it is not NULL.
 *
 * Invalid bytes: each maximal beginning of a character that is not completed becomes one U+FFFD, every other stray byte one of its
 * own. This is what Rust's from_utf8_lossy does, and therefore what the reference sees. */
#include "tok.h"

ln_status text_room(ln_str *s, size_t more, ln_error *err) {
    size_t need;
    if (s->failed || !ln_add_size(s->len, more, &need) || !ln_add_size(need, 1, &need)) return LN_OOM(err, "a text");
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

ln_status text_add(ln_str *s, const char *data, size_t bytes, ln_error *err) {
    LN_TRY(text_room(s, bytes, err));
    if (bytes > 0) memcpy(s->data + s->len, data, bytes);
    text_grown(s, bytes);
    return LN_OK;
}

ln_status text_add_cp(ln_str *s, uint32_t cp, ln_error *err) {
    LN_TRY(text_room(s, 4, err));
    text_grown(s, (size_t)ln_utf8_put(s->data + s->len, cp));
    return LN_OK;
}

/* The length of the maximal beginning of a character at u, which holds no whole one; *cut: the text ends within it. */
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

ln_status text_add_lossy(ln_str *s, const char *text, size_t bytes, size_t *rest, ln_error *err) {
    if (rest) *rest = 0;
    for (size_t at = 0; at < bytes;) {
        size_t good = ln_utf8_valid(text + at, bytes - at);
        LN_TRY(text_add(s, text + at, good, err));
        at += good;
        if (at >= bytes) break;
        bool cut;
        size_t n = beginning((const unsigned char *)text + at, bytes - at, &cut);
        if (cut && rest) {
            *rest = bytes - at;
            break;
        }
        LN_TRY(text_add(s, "\xef\xbf\xbd", 3, err));
        at += n;
    }
    return LN_OK;
}

bool text_is_beginning(const char *s, size_t bytes) {
    bool cut;
    size_t n = beginning((const unsigned char *)s, bytes, &cut);
    return cut && n == bytes;
}
