/* Text primitives: appending to UTF-8 strings, character classes, lower case, normalisation forms, the
 * byte-level alphabet. Properties of characters are those of the package tokenizers ("the reference"),
 * whatever version of Unicode the installed libraries have. */
#ifndef LN_UNICODE_H
#define LN_UNICODE_H

#include "../base/base.h"
#include <string.h>

/* ---- growable UTF-8 strings (utf8_append.c); errors: LN_EMEMORY only ---- */

/* Reserves `more` bytes after s->len, and one for the terminating zero. The caller writes up to `more` bytes
 * at s->data + s->len and then calls utf8_grown with the number written. */
ln_status utf8_reserve(ln_str *s, size_t more, ln_error *err);
static inline void utf8_grown(ln_str *s, size_t more) {
    s->len += more;
    s->data[s->len] = '\0';
}
/* `data` must not point into s. */
ln_status utf8_append(ln_str *s, const char *data, size_t bytes, ln_error *err);
ln_status utf8_append_cp(ln_str *s, uint32_t cp, ln_error *err);
/* Appends `text` with each ill-formed subsequence (maximal subpart) replaced by one U+FFFD, as Rust's
 * from_utf8_lossy does. When `rest` is not NULL, a truncated character at the end of the text is not
 * appended; *rest is its length in bytes, or 0. */
ln_status utf8_append_lossy(ln_str *s, const char *text, size_t bytes, size_t *rest, ln_error *err);
/* Whether the `bytes` bytes at s are a truncated character: a proper prefix of some character. `bytes` is
 * more than 0 and no complete character begins at s. */
bool utf8_is_prefix(const char *s, size_t bytes);
/* Decodes the character at s, which is valid UTF-8; returns its length in bytes. */
static inline size_t utf8_next(const char *s, uint32_t *cp) {
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) return *cp = u[0], 1;
    if (u[0] < 0xe0) return *cp = (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu), 2;
    if (u[0] < 0xf0) return *cp = (u[0] & 0xfu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu), 3;
    return *cp = (u[0] & 7u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 | (u[3] & 0x3fu), 4;
}

/* ---- properties of characters (unicode.c) ---- */
bool unicode_is_space(uint32_t cp); /* White_Space */
bool unicode_is_word(uint32_t cp);
bool unicode_is_punct(uint32_t cp);
bool unicode_is_number(uint32_t cp);
bool unicode_is_mark(uint32_t cp);       /* general category M */
bool text_is_accent(uint32_t cp);        /* StripAccents removes it */
bool unicode_is_nonspacing(uint32_t cp); /* BertNormalizer removes it with strip_accents */
bool unicode_is_control(uint32_t cp);    /* BertNormalizer removes it with clean_text */
unsigned text_combining(uint32_t cp);    /* canonical combining class, 0 to 254 */
/* The lower case of cp. *second is the second character of the result for U+0130, else 0. */
uint32_t unicode_lower(uint32_t cp, uint32_t *second);
/* Characters assigned after Unicode 14, which the reference knows and PCRE2's tables lack: [first, last] have
 * the general category `cat`. Sorted. */
typedef struct unicode_newer {
    uint32_t first, last;
    char cat[3];
} unicode_newer;
extern const unicode_newer unicode_newer_table[];
extern const size_t unicode_n_newer;
typedef enum unicode_form { UNICODE_NFC = 0, UNICODE_NFD, UNICODE_NFKC, UNICODE_NFKD } unicode_form;
/* A quick check: true only if `text` is normalised so; may be false for a text that is. */
bool unicode_is_normalized(unicode_form form, const char *text, size_t bytes);
/* True only for a character that is its own NFC, has combining class 0 and is the second character of no
 * composition: a text of such characters is in NFC (test_unicode checks all of them). */
bool unicode_nfc_inert(uint32_t cp);
/* Appends the normalised `text` (valid UTF-8) to *out. */
ln_status unicode_normalize(unicode_form form, const char *text, size_t bytes, ln_str *out, ln_error *err);

/* The byte-level alphabet of GPT-2: a printable character for every byte. */
extern const uint16_t byte_level_cp[256];
int byte_level_byte(uint32_t cp); /* the byte of a character; -1: not in the alphabet */

#endif
