/* Methods of strings. Results equal those of Python's str, and every byte of a result keeps its origin. */
#include "jinja_format.h"

#include <utf8proc.h>

/* ---- white space and character sets ---- */

static bool in_set(const jj_str *set, const char *p, size_t n) {
    uint32_t cp;
    if (!set) return utf8_next(p, &cp), jj_is_space(cp);
    for (size_t at = 0, k; at < set->n; at += k) {
        k = utf8_next(set->p + at, &cp);
        if (k == n && memcmp(set->p + at, p, n) == 0) return true;
    }
    return false;
}

ln_status jj_strip(jj_run *r, const jj_str *s, const jj_str *set, bool left, bool right, jj_val *out) {
    size_t from = 0, to = s->n;
    uint32_t cp;
    while (left && from < to) {
        size_t n = utf8_next(s->p + from, &cp);
        if (set) LN_TRY(jj_spend(r, set->n * 4));
        if (!in_set(set, s->p + from, n)) break;
        from += n;
    }
    while (right && to > from) {
        size_t at = to - 1;
        while (at > from && ((unsigned char)s->p[at] & 0xc0) == 0x80) at--;
        if (set) LN_TRY(jj_spend(r, set->n * 4));
        if (!in_set(set, s->p + at, to - at)) break;
        to = at;
    }
    return jj_str_cut(r, s, from, to, out);
}

/* An optional string argument: a string or none; a missing one counts as none. */
static ln_status optional(jj_run *r, jj_val v, const char *what, const jj_str **out) {
    *out = NULL;
    return v.kind == JJ_MISSING || v.kind == JJ_NONE ? LN_OK : jj_arg_text(r, v, what, out);
}

static ln_status strip(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    const jj_str *set;
    int how = r->how;
    (void)c;
    LN_TRY(optional(r, a[0], "strip()", &set));
    jj_val escaped = a[0];
    if (set && self.u.s->markup && !set->markup)
        LN_TRY(jj_escape(r, set, &escaped)); /* methods of Markup escape every argument */
    if (set) set = escaped.u.s;
    return jj_strip(r, self.u.s, set, how & 1, how & 2, out);
}

/* ---- splitting ---- */

/* Charges a search; from the right its worst case is the product of both lengths. */
static ln_status spend_search(jj_run *r, const jj_str *s, const jj_str *what, bool right) {
    return jj_spend(r, s->n * (what ? 1 : JJ_PER_CHAR) + (right && what ? s->n / 16 * what->n : 0));
}

typedef struct pieces {
    jj_val *v;
    size_t n, cap;
} pieces;

static ln_status piece(jj_run *r, pieces *p, const jj_str *s, size_t from, size_t to) {
    if (p->n == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 8;
        jj_val *v = jj_take(r, cap * sizeof *v);
        if (!v) return jj_nomem(r);
        if (p->n > 0) memcpy(v, p->v, p->n * sizeof *v);
        p->v = v;
        p->cap = cap;
    }
    LN_TRY(jj_spend(r, 0));
    const jj_str *part = jj_str_part(r, s, from, to); /* a new string even when the part is all of s */
    if (!part) return jj_nomem(r);
    p->v[p->n++] = jj_of(part);
    return LN_OK;
}

static void turn(pieces *p) {
    for (size_t i = 0; i < p->n / 2; i++) {
        jj_val t = p->v[i];
        p->v[i] = p->v[p->n - 1 - i];
        p->v[p->n - 1 - i] = t;
    }
}

static ln_status split_at(jj_run *r, const jj_str *s, const jj_str *by, int64_t most, bool right, pieces *p) {
    size_t from = 0, to = s->n;
    while (most < 0 || (int64_t)p->n < most) {
        size_t at = right ? jj_str_rfind(s, 0, to, by) : jj_str_find(s, from, to, by);
        if (at == SIZE_MAX) break;
        LN_TRY(piece(r, p, s, right ? at + by->n : from, right ? to : at));
        if (right) to = at;
        else from = at + by->n;
    }
    return piece(r, p, s, from, to);
}

/* Splits at runs of white space, from one side. The last piece holds the rest, stripped at the side from
 * which the search came. */
static ln_status split_blank(jj_run *r, const jj_str *s, int64_t most, bool right, pieces *p) {
    size_t from = 0, to = s->n;
    jj_val rest;
    for (;;) {
        jj_str left = {.p = s->p + from, .n = to - from};
        jj_str *view = jj_take(r, sizeof *view);
        if (!view) return jj_nomem(r);
        *view = left;
        view->chars = view->n; /* only the position of the result is used */
        LN_TRY(jj_strip(r, view, NULL, !right, right, &rest));
        from = (size_t)(rest.u.s->p - s->p);
        to = from + rest.u.s->n;
        if (from >= to) return LN_OK;
        if (most >= 0 && (int64_t)p->n >= most) break;
        size_t at = right ? to : from, n;
        uint32_t cp;
        while (right ? at > from : at < to) {
            n = 1;
            if (right)
                while (at - n > from && ((unsigned char)s->p[at - n] & 0xc0) == 0x80) n++;
            size_t here = right ? at - n : at;
            n = utf8_next(s->p + here, &cp);
            if (jj_is_space(cp)) break;
            at = right ? here : here + n;
        }
        LN_TRY(piece(r, p, s, right ? at : from, right ? to : at));
        if (right) to = at;
        else from = at;
    }
    return piece(r, p, s, from, to);
}

static ln_status split(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    const jj_str *by;
    int64_t most;
    pieces p = {0};
    bool right = r->how == 1;
    (void)c;
    LN_TRY(optional(r, a[0], "split()", &by));
    LN_TRY(jj_arg_int(r, a[1], "split()", -1, &most));
    if (by && by->n == 0) return jj_fail(r, "empty separator");
    LN_TRY(spend_search(r, self.u.s, by, right));
    if (by) LN_TRY(split_at(r, self.u.s, by, most, right, &p));
    else LN_TRY(split_blank(r, self.u.s, most, right, &p));
    if (right) turn(&p);
    return jj_seq_new(r, JJ_LIST, p.v, p.n, out);
}

ln_status jj_splitlines(jj_run *r, const jj_str *s, bool keep, jj_val *out) {
    pieces p = {0};
    size_t from = 0;
    LN_TRY(jj_spend(r, s->n));
    for (size_t at = 0, n; at < s->n; at += n) {
        uint32_t cp;
        n = utf8_next(s->p + at, &cp);
        if (!(cp == '\n' || cp == '\r' || cp == 0xb || cp == 0xc || (cp >= 0x1c && cp <= 0x1e) ||
              cp == 0x85 || cp == 0x2028 || cp == 0x2029))
            continue;
        size_t end = at;
        if (cp == '\r' && at + 1 < s->n && s->p[at + 1] == '\n') n = 2;
        LN_TRY(piece(r, &p, s, from, keep ? at + n : end));
        from = at + n;
    }
    if (from < s->n) LN_TRY(piece(r, &p, s, from, s->n));
    return jj_seq_new(r, JJ_LIST, p.v, p.n, out);
}

static ln_status splitlines(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    (void)c;
    return jj_splitlines(r, self.u.s, jj_truth(a[0]), out);
}

static ln_status partition(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    const jj_str *by, *s = self.u.s;
    pieces p = {0};
    bool right = r->how == 1;
    (void)c;
    LN_TRY(jj_arg_text(r, a[0], "partition()", &by));
    if (by->n == 0) return jj_fail(r, "empty separator");
    LN_TRY(spend_search(r, s, by, right));
    size_t at = right ? jj_str_rfind(s, 0, s->n, by) : jj_str_find(s, 0, s->n, by);
    bool none = at == SIZE_MAX;
    size_t one = none ? (right ? 0 : s->n) : at, two = none ? one : at + by->n;
    LN_TRY(piece(r, &p, s, 0, one));
    LN_TRY(piece(r, &p, s, one, two));
    LN_TRY(piece(r, &p, s, two, s->n));
    return jj_seq_new(r, JJ_TUPLE, p.v, p.n, out);
}

/* ---- searching ---- */

/* Converts a slice [start, end) in characters to a range of bytes. */
static ln_status window(jj_run *r, const jj_str *s, jj_val start, jj_val end, size_t *from, size_t *to,
                        bool *inside) {
    int64_t n = (int64_t)s->chars, a = 0, b = n;
    if (start.kind != JJ_NONE) LN_TRY(jj_arg_int(r, start, "start", 0, &a));
    if (end.kind != JJ_NONE) LN_TRY(jj_arg_int(r, end, "end", n, &b));
    if (a < 0) a = LN_MAX(a + n, 0);
    if (b < 0) b = LN_MAX(b + n, 0);
    b = LN_MIN(b, n);
    *inside = a <= b;
    *from = jj_str_at(s, (size_t)LN_MIN(a, n));
    *to = jj_str_at(s, (size_t)b);
    return jj_spend(r, s->n);
}

typedef enum search { FIND, RFIND, INDEX, RINDEX, COUNT } search;

static ln_status find(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    const jj_str *what, *s = self.u.s;
    size_t from, to;
    bool inside;
    search how = (search)r->how;
    (void)c;
    LN_TRY(jj_arg_text(r, a[0], "find()", &what));
    LN_TRY(window(r, s, a[1], a[2], &from, &to, &inside));
    LN_TRY(spend_search(r, s, what, how == RFIND || how == RINDEX));
    if (how == COUNT) {
        int64_t n = 0;
        if (inside && what->n == 0) n = (int64_t)jj_chars(s->p + from, to - from) + 1;
        while (inside && what->n > 0) {
            size_t at = jj_str_find(s, from, to, what);
            if (at == SIZE_MAX) break;
            from = at + what->n;
            n++;
        }
        *out = jj_int(n);
        return LN_OK;
    }
    size_t at = !inside                         ? SIZE_MAX
                : how == RFIND || how == RINDEX ? jj_str_rfind(s, from, to, what)
                                                : jj_str_find(s, from, to, what);
    if (at == SIZE_MAX && how >= INDEX) return jj_fail(r, "substring not found");
    *out = jj_int(at == SIZE_MAX ? -1 : (int64_t)jj_chars(s->p, at));
    return LN_OK;
}

/* startswith, endswith: one prefix or suffix, or a tuple of them. */
static ln_status affix(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    const jj_str *s = self.u.s;
    const jj_val *v = &a[0];
    size_t n = 1, from, to;
    bool inside, end = r->how == 1, yes = false;
    (void)c;
    LN_TRY(window(r, s, a[1], a[2], &from, &to, &inside));
    if (a[0].kind == JJ_SEQ && a[0].u.q->kind == JJ_TUPLE) v = a[0].u.q->v, n = a[0].u.q->n;
    for (size_t i = 0; i < n && !yes; i++) {
        const jj_str *t;
        LN_TRY(jj_arg_text(r, v[i], end ? "endswith()" : "startswith()", &t));
        yes = inside && t->n <= to - from && memcmp(s->p + (end ? to - t->n : from), t->p, t->n) == 0;
    }
    *out = jj_bool(yes);
    return LN_OK;
}

static ln_status remove_affix(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    const jj_str *s = self.u.s, *t;
    bool end = r->how == 1;
    (void)c;
    LN_TRY(jj_arg_text(r, a[0], "removeprefix()", &t));
    bool yes = t->n > 0 && t->n <= s->n && memcmp(s->p + (end ? s->n - t->n : 0), t->p, t->n) == 0;
    LN_TRY(jj_plain(r, s, out)); /* the Markup flag is dropped */
    return jj_str_cut(r, out->u.s, yes && !end ? t->n : 0, s->n - (yes && end ? t->n : 0), out);
}

/* ---- construction ---- */

static bool has_data(const jj_str *s, size_t from, size_t to) {
    if (!s->origin) return s->data && from < to;
    return from < to && memchr(s->origin + from, 1, to - from);
}

/* Replaces occurrences of `old`; `most` < 0: all of them. A replacement of data is data, whatever the
 * origin of `new`: otherwise a message could contain text that the template turns into a control token by
 * undoing an escape. */
ln_status jj_replace(jj_run *r, const jj_str *s, const jj_str *old, const jj_str *new, int64_t most,
                     jj_val *out) {
    jj_buf b = {0};
    size_t from = 0, at = 0;
    uint32_t cp;
    LN_TRY(jj_spend(r, s->n));
    for (int64_t n = 0; most < 0 || n < most; n++) {
        size_t hit = at > s->n ? SIZE_MAX : jj_str_find(s, at, s->n, old);
        if (hit == SIZE_MAX) break;
        LN_TRY(jj_put_part(r, &b, s, from, hit));
        bool within =
            old->n > 0 ? has_data(s, hit, hit + old->n) : has_data(s, hit - (hit > 0), hit + (hit < s->n));
        if (within) LN_TRY(jj_put(r, &b, new->p, new->n, true));
        else LN_TRY(jj_put_str(r, &b, new));
        from = hit + old->n;
        at = old->n > 0 ? from : hit < s->n ? hit + utf8_next(s->p + hit, &cp) : s->n + 1;
    }
    if (from == 0 && b.n == 0 && old->n > 0) return jj_str_cut(r, s, 0, s->n, out);
    LN_TRY(jj_put_part(r, &b, s, from, s->n));
    return jj_buf_str(r, &b, out);
}

static ln_status replace(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    const jj_str *old, *new;
    int64_t most;
    (void)c;
    LN_TRY(jj_arg_text(r, a[0], "replace()", &old));
    LN_TRY(jj_arg_text(r, a[1], "replace()", &new));
    LN_TRY(jj_arg_int(r, a[2], "replace()", -1, &most));
    if (!self.u.s->markup) return jj_replace(r, self.u.s, old, new, most, out);
    jj_val o = a[0], n = a[1];
    if (!old->markup) LN_TRY(jj_escape(r, old, &o));
    if (!new->markup) LN_TRY(jj_escape(r, new, &n));
    LN_TRY(jj_replace(r, self.u.s, o.u.s, n.u.s, most, out));
    return jj_mark(r, out->u.s, out);
}

static ln_status join(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    const jj_val *v;
    size_t n;
    jj_buf b = {0};
    (void)c;
    LN_TRY(jj_iterate(r, a[0], &v, &n));
    for (size_t i = 0; i < n; i++) {
        if (v[i].kind != JJ_STR)
            return jj_fail(r, "sequence item %zu: expected str instance, %s found", i, jj_type(v[i]));
        jj_val item = v[i];
        if (self.u.s->markup && !item.u.s->markup) LN_TRY(jj_escape(r, item.u.s, &item));
        if (i > 0) LN_TRY(jj_put_str(r, &b, self.u.s));
        LN_TRY(jj_put_str(r, &b, item.u.s));
    }
    LN_TRY(jj_buf_str(r, &b, out));
    return self.u.s->markup ? jj_mark(r, out->u.s, out) : LN_OK;
}

static ln_status recase(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    (void)a, (void)c;
    return jj_recase(r, self.u.s, (jj_case)r->how, out);
}

/* Pads to a width. */
static ln_status fill_up(jj_run *r, const jj_str *s, int64_t left, int64_t right, const jj_str *fill,
                         jj_val *out) {
    jj_buf b = {0};
    if (left > JINJA_MAX_TEXT || right > JINJA_MAX_TEXT)
        return jj_fail(r, "expected texts of at most %d bytes", JINJA_MAX_TEXT);
    for (int64_t i = 0; i < left; i++) LN_TRY(jj_put_str(r, &b, fill));
    LN_TRY(jj_put_str(r, &b, s));
    for (int64_t i = 0; i < right; i++) LN_TRY(jj_put_str(r, &b, fill));
    LN_TRY(jj_buf_str(r, &b, out));
    return s->markup ? jj_mark(r, out->u.s, out) : LN_OK;
}

ln_status jj_center(jj_run *r, const jj_str *s, int64_t width, const jj_str *fill, jj_val *out) {
    int64_t pad = LN_MAX(width - (int64_t)s->chars, 0), left = pad / 2 + (pad & width & 1);
    return fill_up(r, s, left, pad - left, fill, out);
}

static ln_status justify(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    static const jj_str blank = {.p = " ", .n = 1, .chars = 1};
    const jj_str *s = self.u.s, *fill = &blank;
    int64_t width;
    int how = r->how;
    (void)c;
    LN_TRY(jj_arg_int(r, a[0], "width", 0, &width));
    if (a[1].kind != JJ_MISSING) LN_TRY(jj_arg_text(r, a[1], "fill", &fill));
    if (fill->chars != 1) return jj_fail(r, "The fill character must be exactly one character long");
    if (how == 0) return jj_center(r, s, width, fill, out);
    int64_t pad = LN_MAX(width - (int64_t)s->chars, 0);
    return fill_up(r, s, how == 2 ? pad : 0, how == 1 ? pad : 0, fill, out);
}

static ln_status zfill(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    static const jj_str zero = {.p = "0", .n = 1, .chars = 1};
    const jj_str *s = self.u.s;
    jj_val rest, padded;
    int64_t width;
    (void)c;
    LN_TRY(jj_arg_int(r, a[0], "width", 0, &width));
    size_t sign = s->n > 0 && (s->p[0] == '+' || s->p[0] == '-');
    LN_TRY(jj_str_cut(r, s, sign, s->n, &rest));
    LN_TRY(fill_up(r, rest.u.s, LN_MAX(width - (int64_t)s->chars, 0), 0, &zero, &padded));
    const jj_str *mark = jj_str_part(r, s, 0, sign);
    return mark ? jj_str_join(r, mark, padded.u.s, out) : jj_nomem(r);
}

/* ---- predicates ---- */

bool jj_is_case(const jj_str *s, bool upper) {
    bool any = false;
    for (size_t at = 0, n; at < s->n; at += n) {
        uint32_t cp;
        n = utf8_next(s->p + at, &cp);
        utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
        if (k == UTF8PROC_CATEGORY_LT || k == (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU))
            return false;
        any = any || k == (upper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL);
    }
    return any;
}

typedef enum class { ALPHA, ALNUM, DIGIT, DECIMAL, NUMERIC, SPACE, ASCII, PRINTABLE } class;

static bool is_class(uint32_t cp, class what) {
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
    bool alpha = k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO,
         number = k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
    switch (what) {
    case ALPHA: return alpha;
    case ALNUM: return alpha || number;
    case DECIMAL: return k == UTF8PROC_CATEGORY_ND;
    case DIGIT:
        return k == UTF8PROC_CATEGORY_ND || cp == 0xb2 || cp == 0xb3 || cp == 0xb9 || cp == 0x2070 ||
               (cp >= 0x2074 && cp <= 0x2079) || (cp >= 0x2080 && cp <= 0x2089) ||
               (cp >= 0x2460 && cp <= 0x2468);
    case NUMERIC: return number;
    case SPACE: return jj_is_space(cp);
    case ASCII: return cp < 0x80;
    case PRINTABLE: return cp == ' ' || !(k == UTF8PROC_CATEGORY_CN || k >= UTF8PROC_CATEGORY_ZS);
    }
    return false;
}

static ln_status is_all(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    const jj_str *s = self.u.s;
    class what = (class)r->how;
    bool yes = s->n > 0 || what == ASCII || what == PRINTABLE;
    (void)a, (void)c;
    for (size_t at = 0; at < s->n && yes;) {
        uint32_t cp;
        at += utf8_next(s->p + at, &cp);
        yes = is_class(cp, what);
    }
    *out = jj_bool(yes);
    return jj_spend(r, s->n * JJ_PER_CHAR);
}

static ln_status is_case(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    (void)a, (void)c;
    *out = jj_bool(jj_is_case(self.u.s, r->how == 1));
    return jj_spend(r, self.u.s->n * JJ_PER_CHAR);
}

const jj_func *jj_string_method(const char *name, size_t n) {
    static const jj_func rows[] = {{"strip", "|chars", strip, 3},
                                   {"lstrip", "|chars", strip, 1},
                                   {"rstrip", "|chars", strip, 2},
                                   {"split", "|sep maxsplit", split, 0},
                                   {"rsplit", "|sep maxsplit", split, 1},
                                   {"splitlines", "|keepends", splitlines, 0},
                                   {"partition", "sep|", partition, 0},
                                   {"rpartition", "sep|", partition, 1},
                                   {"find", "sub|start end", find, FIND},
                                   {"rfind", "sub|start end", find, RFIND},
                                   {"index", "sub|start end", find, INDEX},
                                   {"rindex", "sub|start end", find, RINDEX},
                                   {"count", "sub|start end", find, COUNT},
                                   {"startswith", "prefix|start end", affix, 0},
                                   {"endswith", "suffix|start end", affix, 1},
                                   {"removeprefix", "prefix|", remove_affix, 0},
                                   {"removesuffix", "suffix|", remove_affix, 1},
                                   {"replace", "old new|count", replace, 0},
                                   {"join", "iterable|", join, 0},
                                   {"lower", "", recase, CASE_LOWER},
                                   {"upper", "", recase, CASE_UPPER},
                                   {"title", "", recase, CASE_TITLE},
                                   {"capitalize", "", recase, CASE_CAPITAL},
                                   {"swapcase", "", recase, CASE_SWAP},
                                   {"center", "width|fillchar", justify, 0},
                                   {"ljust", "width|fillchar", justify, 1},
                                   {"rjust", "width|fillchar", justify, 2},
                                   {"zfill", "width|", zfill, 0},
                                   {"isalpha", "", is_all, ALPHA},
                                   {"isalnum", "", is_all, ALNUM},
                                   {"isdigit", "", is_all, DIGIT},
                                   {"isdecimal", "", is_all, DECIMAL},
                                   {"isnumeric", "", is_all, NUMERIC},
                                   {"isspace", "", is_all, SPACE},
                                   {"isascii", "", is_all, ASCII},
                                   {"isprintable", "", is_all, PRINTABLE},
                                   {"islower", "", is_case, 0},
                                   {"isupper", "", is_case, 1},
                                   {"casefold", "", NULL, 0},
                                   {"encode", "", NULL, 0},
                                   {"expandtabs", "", NULL, 0},
                                   {"format", "*", jj_str_format, 0},
                                   {"format_map", "*", jj_str_format_map, 0},
                                   {"isidentifier", "", NULL, 0},
                                   {"istitle", "", NULL, 0},
                                   {"maketrans", "", NULL, 0},
                                   {"translate", "", NULL, 0}};
    return jj_find(rows, LN_COUNT(rows), name, n);
}
