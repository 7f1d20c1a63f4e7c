/* Properties of characters that the tokenizer needs: classes, lower case, the four normalisation forms.
 *
 * The reference, the package `tokenizers`, contains libraries with different versions of Unicode: its word
 * characters are those of Unicode 16, its combining classes those of Unicode 10. unicode.def has its classes;
 * tools/unicode_tables.py obtained them by calling the package for every code point. So no class depends on
 * the version of the installed utf8proc. utf8proc provides the decomposition mappings of the characters that
 * unicode.def lists as decomposable; Unicode guarantees that these never change. test_normal compares all of
 * them with those of the reference.
 *
 * Normalisation: a quick check of the characters suffices for most texts. Otherwise each character is
 * decomposed, each run of combining marks is sorted stably by combining class (canonical ordering), and pairs
 * are composed (canonical composition). Both steps use the combining classes of unicode.def. */
#include "unicode.h"

#include <utf8proc.h>

/* For patterns: the characters that Oniguruma in the reference knows and PCRE2's tables (Unicode 14) lack. */
const unicode_newer unicode_newer_table[] = {
    {0x897, 0x897, "Mn"},     {0xCF3, 0xCF3, "Mc"},     {0xECE, 0xECE, "Mn"},     {0x1B4E, 0x1B4F, "Po"},
    {0x1B7F, 0x1B7F, "Po"},   {0x1C89, 0x1C89, "Lu"},   {0x1C8A, 0x1C8A, "Ll"},   {0x2427, 0x2429, "So"},
    {0x2FFC, 0x2FFF, "So"},   {0x31E4, 0x31E5, "So"},   {0x31EF, 0x31EF, "So"},   {0xA7CB, 0xA7CC, "Lu"},
    {0xA7CD, 0xA7CD, "Ll"},   {0xA7DA, 0xA7DA, "Lu"},   {0xA7DB, 0xA7DB, "Ll"},   {0xA7DC, 0xA7DC, "Lu"},
    {0x105C0, 0x105F3, "Lo"}, {0x10D40, 0x10D49, "Nd"}, {0x10D4A, 0x10D4D, "Lo"}, {0x10D4E, 0x10D4E, "Lm"},
    {0x10D4F, 0x10D4F, "Lo"}, {0x10D50, 0x10D65, "Lu"}, {0x10D69, 0x10D6D, "Mn"}, {0x10D6E, 0x10D6E, "Pd"},
    {0x10D6F, 0x10D6F, "Lm"}, {0x10D70, 0x10D85, "Ll"}, {0x10D8E, 0x10D8F, "Sm"}, {0x10EC2, 0x10EC4, "Lo"},
    {0x10EFC, 0x10EFF, "Mn"}, {0x1123F, 0x11240, "Lo"}, {0x11241, 0x11241, "Mn"}, {0x11380, 0x11389, "Lo"},
    {0x1138B, 0x1138B, "Lo"}, {0x1138E, 0x1138E, "Lo"}, {0x11390, 0x113B5, "Lo"}, {0x113B7, 0x113B7, "Lo"},
    {0x113B8, 0x113BA, "Mc"}, {0x113BB, 0x113C0, "Mn"}, {0x113C2, 0x113C2, "Mc"}, {0x113C5, 0x113C5, "Mc"},
    {0x113C7, 0x113CA, "Mc"}, {0x113CC, 0x113CD, "Mc"}, {0x113CE, 0x113CE, "Mn"}, {0x113CF, 0x113CF, "Mc"},
    {0x113D0, 0x113D0, "Mn"}, {0x113D1, 0x113D1, "Lo"}, {0x113D2, 0x113D2, "Mn"}, {0x113D3, 0x113D3, "Lo"},
    {0x113D4, 0x113D5, "Po"}, {0x113D7, 0x113D8, "Po"}, {0x113E1, 0x113E2, "Mn"}, {0x116D0, 0x116E3, "Nd"},
    {0x11B00, 0x11B09, "Po"}, {0x11BC0, 0x11BE0, "Lo"}, {0x11BE1, 0x11BE1, "Po"}, {0x11BF0, 0x11BF9, "Nd"},
    {0x11F00, 0x11F01, "Mn"}, {0x11F02, 0x11F02, "Lo"}, {0x11F03, 0x11F03, "Mc"}, {0x11F04, 0x11F10, "Lo"},
    {0x11F12, 0x11F33, "Lo"}, {0x11F34, 0x11F35, "Mc"}, {0x11F36, 0x11F3A, "Mn"}, {0x11F3E, 0x11F3F, "Mc"},
    {0x11F40, 0x11F40, "Mn"}, {0x11F41, 0x11F41, "Mc"}, {0x11F42, 0x11F42, "Mn"}, {0x11F43, 0x11F4F, "Po"},
    {0x11F50, 0x11F59, "Nd"}, {0x11F5A, 0x11F5A, "Mn"}, {0x1342F, 0x1342F, "Lo"}, {0x13439, 0x1343F, "Cf"},
    {0x13440, 0x13440, "Mn"}, {0x13441, 0x13446, "Lo"}, {0x13447, 0x13455, "Mn"}, {0x13460, 0x143FA, "Lo"},
    {0x16100, 0x1611D, "Lo"}, {0x1611E, 0x16129, "Mn"}, {0x1612A, 0x1612C, "Mc"}, {0x1612D, 0x1612F, "Mn"},
    {0x16130, 0x16139, "Nd"}, {0x16D40, 0x16D42, "Lm"}, {0x16D43, 0x16D6A, "Lo"}, {0x16D6B, 0x16D6C, "Lm"},
    {0x16D6D, 0x16D6F, "Po"}, {0x16D70, 0x16D79, "Nd"}, {0x18CFF, 0x18CFF, "Lo"}, {0x1B132, 0x1B132, "Lo"},
    {0x1B155, 0x1B155, "Lo"}, {0x1CC00, 0x1CCEF, "So"}, {0x1CCF0, 0x1CCF9, "Nd"}, {0x1CD00, 0x1CEB3, "So"},
    {0x1D2C0, 0x1D2D3, "No"}, {0x1DF25, 0x1DF2A, "Ll"}, {0x1E030, 0x1E06D, "Lm"}, {0x1E08F, 0x1E08F, "Mn"},
    {0x1E4D0, 0x1E4EA, "Lo"}, {0x1E4EB, 0x1E4EB, "Lm"}, {0x1E4EC, 0x1E4EF, "Mn"}, {0x1E4F0, 0x1E4F9, "Nd"},
    {0x1E5D0, 0x1E5ED, "Lo"}, {0x1E5EE, 0x1E5EF, "Mn"}, {0x1E5F0, 0x1E5F0, "Lo"}, {0x1E5F1, 0x1E5FA, "Nd"},
    {0x1E5FF, 0x1E5FF, "Po"}, {0x1F6DC, 0x1F6DC, "So"}, {0x1F774, 0x1F776, "So"}, {0x1F77B, 0x1F77F, "So"},
    {0x1F7D9, 0x1F7D9, "So"}, {0x1F8B2, 0x1F8BB, "So"}, {0x1F8C0, 0x1F8C1, "So"}, {0x1FA75, 0x1FA77, "So"},
    {0x1FA87, 0x1FA89, "So"}, {0x1FA8F, 0x1FA8F, "So"}, {0x1FAAD, 0x1FAAF, "So"}, {0x1FABB, 0x1FABF, "So"},
    {0x1FAC6, 0x1FAC6, "So"}, {0x1FACE, 0x1FACF, "So"}, {0x1FADA, 0x1FADC, "So"}, {0x1FADF, 0x1FADF, "So"},
    {0x1FAE8, 0x1FAE9, "So"}, {0x1FAF7, 0x1FAF8, "So"}, {0x1FBCB, 0x1FBEF, "So"}, {0x2B739, 0x2B739, "Lo"},
    {0x2EBF0, 0x2EE5D, "Lo"}, {0x31350, 0x323AF, "Lo"},
};
const size_t unicode_n_newer = LN_COUNT(unicode_newer_table);

typedef struct range {
    uint32_t first, last;
} range;

static bool in_ranges(const range *r, size_t n, uint32_t cp) {
    size_t lo = 0;
    while (n > 0) {
        size_t half = n / 2;
        if (cp > r[lo + half].last) {
            lo += half + 1;
            n -= half + 1;
        } else if (cp < r[lo + half].first) {
            n = half;
        } else {
            return true;
        }
    }
    return false;
}

static const range words[] = {
#define UNICODE_WORD
#include "unicode.def"
#undef UNICODE_WORD
};
static const range puncts[] = {
#define UNICODE_PUNCT
#include "unicode.def"
#undef UNICODE_PUNCT
};
static const range numbers[] = {
#define UNICODE_NUMBER
#include "unicode.def"
#undef UNICODE_NUMBER
};
static const range accents[] = {
#define UNICODE_ACCENT
#include "unicode.def"
#undef UNICODE_ACCENT
};
static const range nonspacing[] = {
#define UNICODE_NONSPACING
#include "unicode.def"
#undef UNICODE_NONSPACING
};
static const range controls[] = {
#define UNICODE_CONTROL
#include "unicode.def"
#undef UNICODE_CONTROL
};
static const range canonical[] = {
#define UNICODE_CANONICAL
#include "unicode.def"
#undef UNICODE_CANONICAL
};
static const range compatible[] = {
#define UNICODE_COMPAT
#include "unicode.def"
#undef UNICODE_COMPAT
};
static const range seconds[] = {
#define UNICODE_SECOND
#include "unicode.def"
#undef UNICODE_SECOND
};
static const struct {
    uint32_t first, last;
    unsigned combining;
} combining_classes[] = {
#define UNICODE_CLASS
#include "unicode.def"
#undef UNICODE_CLASS
};
static const struct {
    uint32_t first, last, step;
    int32_t distance;
} lowers[] = {
#define UNICODE_LOWER
#include "unicode.def"
#undef UNICODE_LOWER
};

bool unicode_is_space(uint32_t cp) {
    if (cp < 0x80) return cp == ' ' || (cp >= 9 && cp <= 13);
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 ||
           cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

bool unicode_is_word(uint32_t cp) {
    if (cp < 0x80) return (cp | 0x20) - 'a' < 26 || cp - '0' < 10 || cp == '_';
    return in_ranges(words, LN_COUNT(words), cp);
}

bool unicode_is_punct(uint32_t cp) {
    if (cp < 0x80) return cp - 33 < 15 || cp - 58 < 7 || cp - 91 < 6 || cp - 123 < 4;
    return in_ranges(puncts, LN_COUNT(puncts), cp);
}

bool unicode_is_number(uint32_t cp) {
    if (cp < 0x80) return cp - '0' < 10;
    return in_ranges(numbers, LN_COUNT(numbers), cp);
}

bool unicode_is_mark(uint32_t cp) {
    if (cp < 0x300) return false;
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME;
}

bool text_is_accent(uint32_t cp) { return cp >= 0x300 && in_ranges(accents, LN_COUNT(accents), cp); }

bool unicode_is_nonspacing(uint32_t cp) {
    return cp >= 0x300 && in_ranges(nonspacing, LN_COUNT(nonspacing), cp);
}

bool unicode_is_control(uint32_t cp) { return in_ranges(controls, LN_COUNT(controls), cp); }

uint32_t unicode_lower(uint32_t cp, uint32_t *second) {
    *second = 0;
    if (cp < 0x80) return cp - 'A' < 26 ? cp + 32 : cp;
    if (cp == 0x130) {
        *second = 0x307;
        return 'i';
    }
    size_t lo = 0, n = LN_COUNT(lowers);
    while (n > 0) {
        size_t half = n / 2;
        if (cp > lowers[lo + half].last) {
            lo += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    if (lo == LN_COUNT(lowers) || cp < lowers[lo].first || (cp - lowers[lo].first) % lowers[lo].step != 0)
        return cp;
    return (uint32_t)((int32_t)cp + lowers[lo].distance);
}

/* ---- the byte-level alphabet ---- */

/* A printable byte of Latin-1 maps to the same code point; the other 68 map to U+0100 and up, in order. */
#define R4(a)  (a), (a) + 1, (a) + 2, (a) + 3
#define R16(a) R4(a), R4((a) + 4), R4((a) + 8), R4((a) + 12)
const uint16_t byte_level_cp[256] = {
    R16(0x100), R16(0x110), 0x120,     0x21,      0x22,       0x23,       R4(0x24), R4(0x28),
    R4(0x2c),   R16(0x30),  R16(0x40), R16(0x50), R16(0x60),  R4(0x70),   R4(0x74), R4(0x78),
    0x7c,       0x7d,       0x7e,      0x121,     R16(0x122), R16(0x132), 0x142,    0xa1,
    0xa2,       0xa3,       R4(0xa4),  R4(0xa8),  0xac,       0x143,      0xae,     0xaf,
    R16(0xb0),  R16(0xc0),  R16(0xd0), R16(0xe0), R16(0xf0)};
#undef R4
#undef R16

int byte_level_byte(uint32_t cp) {
    if (cp < 0x100) return byte_level_cp[cp] == cp ? (int)cp : -1;
    if (cp <= 0x120) return (int)cp - 0x100;
    if (cp <= 0x142) return (int)cp - 0x121 + 0x7f;
    return cp == 0x143 ? 0xad : -1;
}

/* ---- normalisation forms ---- */

bool unicode_nfc_inert(uint32_t cp) {
    static const range inert[] = {{0x0, 0x2ff},       {0x370, 0x373},    {0x375, 0x37d},   {0x38e, 0x482},
                                  {0x48a, 0x558},     {0x5d0, 0x5ea},    {0x620, 0x64a},   {0x660, 0x66f},
                                  {0xe01, 0xe37},     {0xe40, 0xe46},    {0x10a0, 0x1100}, {0x1e00, 0x1eff},
                                  {0x2010, 0x205e},   {0x20a0, 0x20bf},  {0x2100, 0x2125}, {0x2150, 0x2328},
                                  {0x232b, 0x2adb},   {0x3000, 0x3029},  {0x3030, 0x3098}, {0x309b, 0x312f},
                                  {0x3400, 0xa66e},   {0xac00, 0xd7a3},  {0xfb50, 0xfdff}, {0xfe30, 0xffef},
                                  {0x1f000, 0x1fbff}, {0x20000, 0x2f7ff}};
    return in_ranges(inert, LN_COUNT(inert), cp);
}

bool unicode_is_normalized(unicode_form form, const char *text, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        uint64_t w;
        while (at + 8 <= bytes && (memcpy(&w, text + at, 8), (w & 0x8080808080808080u) == 0)) at += 8;
        if (at >= bytes) break;
        uint32_t cp;
        size_t n = utf8_next(text + at, &cp);
        if (cp >= 0x80 && (form != UNICODE_NFC || !unicode_nfc_inert(cp))) return false;
        at += n;
    }
    return true;
}

unsigned text_combining(uint32_t cp) {
    size_t lo = 0, n = LN_COUNT(combining_classes);
    if (cp < combining_classes[0].first) return 0;
    while (n > 0) {
        size_t half = n / 2;
        if (cp > combining_classes[lo + half].last) {
            lo += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return lo < LN_COUNT(combining_classes) && cp >= combining_classes[lo].first
               ? combining_classes[lo].combining
               : 0;
}

/* A decomposed character: the code point and, above its 21 bits, the combining class. */
enum { CP_BITS = 21 };
static uint32_t marked(uint32_t cp) { return text_combining(cp) << CP_BITS | cp; }
static uint32_t cp_of(uint32_t c) { return c & ((1u << CP_BITS) - 1); }
static unsigned class_of(uint32_t c) { return c >> CP_BITS; }

/* Sorts c[0, n) stably by combining class (counting sort); tmp has n elements too. */
static void order_marks(uint32_t *c, uint32_t *tmp, size_t n) {
    bool sorted = true;
    for (size_t i = 1; i < n && sorted; i++) sorted = class_of(c[i - 1]) <= class_of(c[i]);
    if (sorted) return;
    size_t count[256] = {0};
    for (size_t i = 0; i < n; i++) count[class_of(c[i]) & 255]++;
    for (size_t k = 0, at = 0; k < 256; k++) {
        size_t here = count[k];
        count[k] = at;
        at += here;
    }
    for (size_t i = 0; i < n; i++) tmp[count[class_of(c[i]) & 255]++] = c[i];
    memcpy(c, tmp, n * sizeof *c);
}

static void order_all(uint32_t *c, uint32_t *tmp, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t j = i;
        while (j < n && class_of(c[j]) != 0) j++;
        if (j - i > 1) order_marks(c + i, tmp, j - i);
        i = j > i ? j : i + 1;
    }
}

/* Appends the decomposition of each character of `text` to *list, without canonical ordering. */
static ln_status decompose(unicode_form form, const char *text, size_t bytes, uint32_t **list, size_t *n,
                           size_t *cap, ln_error *err) {
    bool compat = form >= UNICODE_NFKC;
    const range *known = compat ? compatible : canonical;
    size_t n_known = compat ? LN_COUNT(compatible) : LN_COUNT(canonical);
    utf8proc_option_t how = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE;
    if (compat) how |= UTF8PROC_COMPAT;
    for (size_t at = 0; at < bytes;) {
        uint32_t cp;
        at += utf8_next(text + at, &cp);
        if (*n + 32 > *cap) LN_TRY(ln_grow((void **)list, cap, *n + 32, sizeof **list, err));
        if (cp < 0x80 || !in_ranges(known, n_known, cp)) {
            (*list)[(*n)++] = marked(cp);
            continue;
        }
        int last = 0;
        utf8proc_int32_t parts[32];
        utf8proc_ssize_t got = utf8proc_decompose_char((utf8proc_int32_t)cp, parts, 32, how, &last);
        if (got < 0 || got > 32)
            return ln_fail(err, LN_EINTERNAL, "normalizing U+%04X: expected at most 32 characters, found %ld",
                           cp, (long)got);
        for (utf8proc_ssize_t i = 0; i < got; i++) (*list)[(*n)++] = marked((uint32_t)parts[i]);
    }
    return LN_OK;
}

/* The primary composite of a and b; 0 when they do not compose. */
static uint32_t pair(uint32_t a, uint32_t b) {
    if (!in_ranges(seconds, LN_COUNT(seconds), b)) return 0;
    utf8proc_int32_t both[2] = {(utf8proc_int32_t)a, (utf8proc_int32_t)b};
    utf8proc_ssize_t n = utf8proc_normalize_utf32(both, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    return n == 1 && in_ranges(canonical, LN_COUNT(canonical), (uint32_t)both[0]) ? (uint32_t)both[0] : 0;
}

/* Composes c[0, n) in place and returns the new count. A mark composes with the last starter (a character of
 * class 0) unless a character of its own class or a higher one is between them, which blocks it; a starter
 * composes only with the starter directly before it. */
static size_t compose(uint32_t *c, size_t n) {
    size_t kept = 0, starter = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        unsigned k = class_of(c[i]);
        bool adjacent = starter != SIZE_MAX && kept == starter + 1;
        bool open = starter != SIZE_MAX && (adjacent || class_of(c[kept - 1]) < k);
        uint32_t both = open ? pair(cp_of(c[starter]), cp_of(c[i])) : 0;
        if (both) {
            c[starter] = marked(both);
            continue;
        }
        if (k == 0) starter = kept;
        c[kept++] = c[i];
    }
    return kept;
}

ln_status unicode_normalize(unicode_form form, const char *text, size_t bytes, ln_str *out, ln_error *err) {
    uint32_t *list = NULL, *tmp = NULL;
    size_t n = 0, cap = 0;
    ln_status st;
    LN_GO(decompose(form, text, bytes, &list, &n, &cap, err));
    tmp = ln_alloc(n * sizeof *tmp + 1);
    if (!tmp) LN_GO(LN_OOM(err, "a normalised text"));
    order_all(list, tmp, n);
    if (form == UNICODE_NFC || form == UNICODE_NFKC) n = compose(list, n);
    LN_GO(utf8_reserve(out, n * 4, err));
    for (size_t i = 0; i < n; i++) utf8_grown(out, (size_t)ln_utf8_put(out->data + out->len, cp_of(list[i])));
out:
    ln_free(list);
    ln_free(tmp);
    return st;
}
