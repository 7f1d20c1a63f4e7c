/* UTF-8: decoding, encoding, validation.
 *
 * Strict as in RFC 3629: no overlong encodings, no surrogates, nothing above U+10FFFF, no truncated
 * sequences. A length of 0 means that no valid code point was found; the caller decides whether that is an
 * error or a byte to escape. Validation processes ASCII eight bytes at a time. */
#include "base.h"

#include <string.h>

static bool is_tail(unsigned char c) { return (c & 0xc0) == 0x80; }

int ln_utf8_get(const char *s, size_t bytes, uint32_t *cp) {
    const unsigned char *u = (const unsigned char *)s;
    if (bytes == 0) return 0;
    uint32_t c = u[0];
    if (c < 0x80) {
        *cp = c;
        return 1;
    }
    if (c < 0xc2 || c > 0xf4) return 0;
    if (c < 0xe0) {
        if (bytes < 2 || !is_tail(u[1])) return 0;
        *cp = (c & 0x1fu) << 6 | (u[1] & 0x3fu);
        return 2;
    }
    if (c < 0xf0) {
        if (bytes < 3 || !is_tail(u[1]) || !is_tail(u[2])) return 0;
        uint32_t v = (c & 0xfu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
        if (v < 0x800 || (v >= 0xd800 && v <= 0xdfff)) return 0;
        *cp = v;
        return 3;
    }
    if (bytes < 4 || !is_tail(u[1]) || !is_tail(u[2]) || !is_tail(u[3])) return 0;
    uint32_t v = (c & 0x7u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 | (u[3] & 0x3fu);
    if (v < 0x10000 || v > 0x10ffff) return 0;
    *cp = v;
    return 4;
}

int ln_utf8_put(char out[4], uint32_t cp) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

size_t ln_utf8_valid(const char *s, size_t bytes) {
    size_t at = 0;
    while (at < bytes) {
        uint64_t w;
        while (at + 8 <= bytes) {
            memcpy(&w, s + at, 8);
            if (w & 0x8080808080808080u) break;
            at += 8;
        }
        if (at >= bytes) break;
        uint32_t cp;
        int n = ln_utf8_get(s + at, bytes - at, &cp);
        if (n == 0) return at;
        at += (size_t)n;
    }
    return at;
}

/* The encoding that the NUL bytes of a text without a byte order mark show; NULL: none. In UTF-16 most
 * characters of most texts are below U+0100, so that one byte of each pair is NUL; in UTF-32 at least one
 * byte of four is, and two if the character is below U+10000. Text in UTF-8 may contain U+0000 as well, but
 * not as every second byte. */
static const char *encoding_by_nuls(const char *data, size_t bytes) {
    enum { SAMPLE = 4096 };
    size_t n = LN_MIN(bytes, (size_t)SAMPLE) / 4, nul[4] = {0};
    for (size_t i = 0; i < 4 * n; i++) nul[i % 4] += data[i] == '\0';
    if (n == 0) return NULL;
    if (nul[3] == n && nul[2] == n && nul[0] == 0) return "UTF-32LE";
    if (nul[0] == n && nul[1] == n && nul[3] == 0) return "UTF-32BE";
    if (nul[0] + nul[2] == 0 && nul[1] + nul[3] >= n + n / 2) return "UTF-16LE";
    if (nul[1] + nul[3] == 0 && nul[0] + nul[2] >= n + n / 2) return "UTF-16BE";
    return NULL;
}

/* The encoding whose byte order mark the bytes begin with; NULL: none. */
static const char *encoding_by_mark(const char *data, size_t bytes) {
    static const struct {
        const char *mark;
        size_t bytes;
        const char *name;
    } marks[] = {{"\xff\xfe\0\0", 4, "UTF-32LE"},
                 {"\0\0\xfe\xff", 4, "UTF-32BE"},
                 {"\xff\xfe", 2, "UTF-16LE"},
                 {"\xfe\xff", 2, "UTF-16BE"}};
    for (size_t i = 0; i < LN_COUNT(marks); i++)
        if (bytes >= marks[i].bytes && memcmp(data, marks[i].mark, marks[i].bytes) == 0) return marks[i].name;
    return NULL;
}

const char *ln_other_encoding(const char *data, size_t bytes) {
    const char *name = encoding_by_mark(data, bytes);
    return name ? name : encoding_by_nuls(data, bytes);
}

ln_status ln_utf8_mark(const char *name, const char *data, size_t bytes, size_t *skip, ln_error *err) {
    char shown[LN_PATH_TEXT];
    const char *other = ln_other_encoding(data, bytes);
    *skip = bytes >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    if (!other) return LN_OK;
    return ln_fail(err, LN_EINVALID, "%s: expected UTF-8, found %s (%s); convert it: iconv -f %s -t UTF-8",
                   ln_path_text(shown, name), other,
                   encoding_by_mark(data, bytes) ? "it begins with that byte order mark"
                                                 : "NUL bytes between its characters",
                   other);
}
