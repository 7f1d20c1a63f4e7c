/* Strings: immutable, with their length in bytes and in characters, and with the origin of each byte.
 *
 * Substrings share the bytes and their origins. New strings are built in a jj_buf, which stores a single
 * origin as long as all its bytes have the same one, and then one per byte. White space, letters and case
 * follow Python's str. */
#include "jinja_internal.h"

#include <utf8proc.h>

void *jj_take(jj_run *r, size_t bytes) {
    if (r->arena.total + bytes > JINJA_MAX_MEMORY) return NULL;
    return ln_arena_alloc(&r->arena, bytes);
}

ln_status jj_nomem(jj_run *r) {
    if (r->arena.total < JINJA_MAX_MEMORY / 2) return LN_OOM(r->err, "a rendering");
    return jj_fail(r, "expected a rendering to need at most %d MiB", JINJA_MAX_MEMORY >> 20);
}

size_t jj_chars(const char *p, size_t n) {
    size_t tails = 0, i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t w;
        memcpy(&w, p + i, 8);
        if (w & 0x8080808080808080u) /* UTF-8 continuation bytes, 10xxxxxx */
            tails += (size_t)__builtin_popcountll(w & ~(w << 1) & 0x8080808080808080u);
    }
    for (; i < n; i++) tails += ((unsigned char)p[i] & 0xc0) == 0x80;
    return n - tails;
}

bool jj_is_space(uint32_t cp) { return unicode_is_space(cp) || (cp >= 0x1c && cp <= 0x1f); }

/* ---- construction ---- */

static ln_status wrap(jj_run *r, jj_str s, jj_val *out) {
    jj_str *p = jj_take(r, sizeof *p);
    if (!p) return jj_nomem(r);
    *p = s;
    *out = jj_of(p);
    return LN_OK;
}

/* Checks the size of a string of n bytes and charges the `fresh` bytes of it that are new. */
static ln_status check_size(jj_run *r, size_t n, size_t fresh) {
    if (n > JINJA_MAX_TEXT)
        return jj_fail(r, "expected texts of at most %d bytes, found one of %zu", JINJA_MAX_TEXT, n);
    return jj_spend(r, fresh);
}

ln_status jj_str_new(jj_run *r, const char *p, size_t n, bool data, jj_val *out) {
    LN_TRY(check_size(r, n, n));
    char *copy = jj_take(r, n + 1);
    if (!copy) return jj_nomem(r);
    if (n > 0) memcpy(copy, p, n);
    return wrap(r, (jj_str){.p = copy, .n = n, .chars = jj_chars(copy, n), .data = data}, out);
}

ln_status jj_str_lit(jj_run *r, const char *text, jj_val *out) {
    size_t n = strlen(text);
    return wrap(r, (jj_str){.p = text, .n = n, .chars = jj_chars(text, n)}, out);
}

static jj_str cut(const jj_str *s, size_t from, size_t to) {
    jj_str c = {.p = s->p + from,
                .origin = s->origin ? s->origin + from : NULL,
                .n = to - from,
                .data = s->data,
                .markup = s->markup};
    c.chars = s->chars == s->n ? c.n : jj_chars(c.p, c.n);
    return c;
}

const jj_str *jj_str_part(jj_run *r, const jj_str *s, size_t from, size_t to) {
    jj_str *p = jj_take(r, sizeof *p);
    if (p) *p = cut(s, from, to);
    return p;
}

ln_status jj_str_cut(jj_run *r, const jj_str *s, size_t from, size_t to, jj_val *out) {
    if (from == 0 && to == s->n) {
        *out = jj_of(s);
        return LN_OK;
    }
    LN_TRY(jj_spend(r, s->chars == s->n ? 0 : to - from));
    return wrap(r, cut(s, from, to), out);
}

size_t jj_str_at(const jj_str *s, size_t index) {
    if (s->chars == s->n) return index;
    size_t at = 0;
    while (index > 0 && at < s->n) {
        at++;
        while (at < s->n && ((unsigned char)s->p[at] & 0xc0) == 0x80) at++;
        index--;
    }
    return at;
}

bool jj_str_eq(const jj_str *a, const jj_str *b) {
    return a->n == b->n && (a->n == 0 || memcmp(a->p, b->p, a->n) == 0);
}
bool jj_str_is(const jj_str *a, const char *text) {
    return a->n == strlen(text) && memcmp(a->p, text, a->n) == 0;
}

int jj_str_cmp(const jj_str *a, const jj_str *b) { /* UTF-8 sorts by bytes as by code points */
    size_t n = LN_MIN(a->n, b->n);
    int c = n > 0 ? memcmp(a->p, b->p, n) : 0;
    return c != 0 ? (c > 0) - (c < 0) : (a->n > b->n) - (a->n < b->n);
}

size_t jj_str_find(const jj_str *a, size_t from, size_t to, const jj_str *b) {
    if (to < from || b->n > to - from) return SIZE_MAX;
    const char *p = b->n == 0 ? a->p + from : memmem(a->p + from, to - from, b->p, b->n);
    return p ? (size_t)(p - a->p) : SIZE_MAX;
}

size_t jj_str_rfind(const jj_str *a, size_t from, size_t to, const jj_str *b) {
    if (to < from || b->n > to - from) return SIZE_MAX;
    for (size_t at = to - b->n;; at--) {
        if (b->n == 0 || memcmp(a->p + at, b->p, b->n) == 0) return at;
        if (at == from) return SIZE_MAX;
    }
}

/* ---- string builder ---- */

static ln_status reserve(jj_run *r, jj_buf *b, size_t n) {
    if (n <= b->cap - b->n) return LN_OK;
    size_t cap = LN_MAX(b->cap * 2, b->n + n);
    cap = LN_MAX(cap, (size_t)64);
    char *p = jj_take(r, cap);
    if (!p) return jj_nomem(r);
    if (b->n > 0) memcpy(p, b->p, b->n);
    b->p = p;
    b->cap = cap;
    return LN_OK;
}

static ln_status reserve_origin(jj_run *r, jj_buf *b) {
    if (b->cap_origin >= b->cap) return LN_OK;
    uint8_t *o = jj_take(r, b->cap);
    if (!o) return jj_nomem(r);
    if (b->n > 0) {
        if (b->origin) memcpy(o, b->origin, b->n);
        else memset(o, b->data, b->n);
    }
    b->origin = o;
    b->cap_origin = b->cap;
    return LN_OK;
}

/* Appends n bytes with the origins at `origin`, or, if it is NULL, all with the origin `data`. */
static ln_status put(jj_run *r, jj_buf *b, const char *p, size_t n, size_t chars, const uint8_t *origin,
                     bool data) {
    if (n == 0) return LN_OK;
    LN_TRY(check_size(r, b->n + n, n));
    LN_TRY(reserve(r, b, n));
    if (b->n == 0 && !origin && !b->origin) b->data = data;
    if (origin || b->origin || b->data != data) {
        LN_TRY(reserve_origin(r, b));
        if (origin) memcpy(b->origin + b->n, origin, n);
        else memset(b->origin + b->n, data, n);
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
    b->chars += chars;
    return LN_OK;
}

ln_status jj_put(jj_run *r, jj_buf *b, const char *p, size_t n, bool data) {
    return put(r, b, p, n, jj_chars(p, n), NULL, data);
}
ln_status jj_put_like(jj_run *r, jj_buf *b, const char *p, size_t n, const jj_str *s, size_t at) {
    return jj_put(r, b, p, n, jj_byte_data(s, at));
}
ln_status jj_put_str(jj_run *r, jj_buf *b, const jj_str *s) {
    return put(r, b, s->p, s->n, s->chars, s->origin, s->data);
}
ln_status jj_put_lit(jj_run *r, jj_buf *b, const char *text) {
    return jj_put(r, b, text, strlen(text), false);
}

ln_status jj_put_part(jj_run *r, jj_buf *b, const jj_str *s, size_t from, size_t to) {
    jj_str c = cut(s, from, to);
    return jj_put_str(r, b, &c);
}

ln_status jj_buf_str(jj_run *r, jj_buf *b, jj_val *out) {
    return wrap(r,
                (jj_str){.p = b->p ? b->p : "",
                         .origin = b->origin,
                         .n = b->n,
                         .chars = b->chars,
                         .data = b->data},
                out);
}

/* a + b; if one of them is Markup, the other is escaped. */
ln_status jj_str_join(jj_run *r, const jj_str *a, const jj_str *b, jj_val *out) {
    jj_buf buf = {0};
    jj_val left = jj_of(a), right = jj_of(b);
    bool markup = a->markup || b->markup;
    if (markup && !a->markup) LN_TRY(jj_escape(r, a, &left));
    if (markup && !b->markup) LN_TRY(jj_escape(r, b, &right));
    LN_TRY(reserve(r, &buf, left.u.s->n + right.u.s->n));
    LN_TRY(jj_put_str(r, &buf, left.u.s));
    LN_TRY(jj_put_str(r, &buf, right.u.s));
    jj_str s = {.p = buf.p ? buf.p : "",
                .origin = buf.origin,
                .n = buf.n,
                .chars = buf.chars,
                .data = buf.data,
                .markup = markup};
    return wrap(r, s, out);
}

ln_status jj_plain(jj_run *r, const jj_str *s, jj_val *out) {
    jj_str m = *s;
    *out = jj_of(s);
    m.markup = false;
    return s->markup ? wrap(r, m, out) : LN_OK;
}

ln_status jj_mark(jj_run *r, const jj_str *s, jj_val *out) {
    jj_str m = *s;
    m.markup = true;
    return wrap(r, m, out);
}

ln_status jj_escape(jj_run *r, const jj_str *s, jj_val *out) {
    static const struct {
        char c;
        const char *text;
    } rows[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
    jj_buf b = {0};
    size_t done = 0;
    LN_TRY(jj_spend(r, s->n * JJ_PER_CHAR));
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < LN_COUNT(rows); k++) {
            if (s->p[i] != rows[k].c) continue;
            LN_TRY(jj_put_part(r, &b, s, done, i));
            LN_TRY(jj_put_like(r, &b, rows[k].text, strlen(rows[k].text), s, i));
            done = i + 1;
        }
    LN_TRY(jj_put_part(r, &b, s, done, s->n));
    return wrap(r,
                (jj_str){.p = b.p ? b.p : "",
                         .origin = b.origin,
                         .n = b.n,
                         .chars = b.chars,
                         .data = b.data,
                         .markup = true},
                out);
}

/* ---- case ---- */

typedef struct special {
    uint32_t cp, upper[3], title[3];
} special;
static const special specials[] = {
#include "jinja_case.def"
};

static int upper_or_title(uint32_t cp, bool title, uint32_t out[3]) {
    size_t lo = 0, hi = LN_COUNT(specials);
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (specials[mid].cp < cp) lo = mid + 1;
        else hi = mid;
    }
    if (cp >= 0x80 && lo < LN_COUNT(specials) && specials[lo].cp == cp) {
        const uint32_t *from = title ? specials[lo].title : specials[lo].upper;
        int n = 0;
        while (n < 3 && from[n]) {
            out[n] = from[n];
            n++;
        }
        return n;
    }
    out[0] =
        (uint32_t)(title ? utf8proc_totitle((utf8proc_int32_t)cp) : utf8proc_toupper((utf8proc_int32_t)cp));
    return 1;
}

static bool cased(uint32_t cp) {
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}
static bool ignorable(uint32_t cp) {
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF ||
           c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK || cp == '\'' || cp == '.' || cp == ':' ||
           cp == 0xb7 || cp == 0x2019;
}

/* Whether a capital sigma at `at` ends a word: a letter precedes and none follows. */
static bool final_sigma(const jj_str *s, size_t at) {
    uint32_t cp = 0;
    bool before = false;
    for (size_t i = at; i > 0 && !before;) {
        do i--;
        while (i > 0 && ((unsigned char)s->p[i] & 0xc0) == 0x80);
        (void)utf8_next(s->p + i, &cp);
        if (ignorable(cp)) continue;
        if (!cased(cp)) return false;
        before = true;
    }
    if (!before) return false;
    for (size_t i = at + 2; i < s->n;) {
        i += utf8_next(s->p + i, &cp);
        if (!ignorable(cp)) return !cased(cp);
    }
    return true;
}

static int lower(const jj_str *s, size_t at, uint32_t cp, uint32_t out[3]) {
    uint32_t second;
    if (cp == 0x3a3) return out[0] = final_sigma(s, at) ? 0x3c2 : 0x3c3, 1;
    out[0] = unicode_lower(cp, &second);
    out[1] = second;
    return second ? 2 : 1;
}

ln_status jj_recase(jj_run *r, const jj_str *s, jj_case how, jj_val *out) {
    jj_buf b = {0};
    bool in_word = false;
    LN_TRY(jj_spend(r, s->n * 4 * JJ_PER_CHAR)); /* covers the case tables and building the result character
                                                    by character */
    LN_TRY(reserve(r, &b, s->n + 1));
    for (size_t at = 0, n; at < s->n; at += n) {
        uint32_t cp, to[3] = {0, 0, 0};
        char piece[12];
        size_t bytes = 0;
        n = utf8_next(s->p + at, &cp);
        bool letter = cased(cp), up = how == CASE_UPPER,
             title = (how == CASE_TITLE && !in_word) || (how == CASE_CAPITAL && at == 0);
        if (how == CASE_SWAP) up = utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_LL;
        int count = up || title ? upper_or_title(cp, title, to) : lower(s, at, cp, to);
        if (how == CASE_SWAP && !letter) to[0] = cp, count = 1;
        in_word = letter;
        for (int i = 0; i < count; i++) bytes += (size_t)ln_utf8_put(piece + bytes, to[i]);
        LN_TRY(reserve(r, &b, bytes));
        if (s->origin) LN_TRY(reserve_origin(r, &b));
        if (b.origin) memset(b.origin + b.n, jj_byte_data(s, at), bytes);
        memcpy(b.p + b.n, piece, bytes);
        b.n += bytes;
        b.chars += (size_t)count;
    }
    LN_TRY(check_size(r, b.n, b.n));
    b.data = s->data;
    return wrap(r,
                (jj_str){.p = b.p,
                         .origin = b.origin,
                         .n = b.n,
                         .chars = b.chars,
                         .data = b.data,
                         .markup = s->markup},
                out);
}
