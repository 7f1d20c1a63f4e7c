/* Filters on single values: strings, numbers, JSON. Filters on lists are in jinja_filter_list.c. */
#include "jinja_internal.h"

#include "../base/c_locale.h"

#include <math.h>

#define FILTER(name) \
    static ln_status name(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out)
#define UNUSED (void)r, (void)self, (void)a, (void)c

/* ---- strings ---- */

FILTER(recase) {
    const jj_str *s;
    jj_case how = (jj_case)r->how;
    UNUSED;
    LN_TRY(jj_to_str(r, self, &s));
    return jj_recase(r, s, how, out);
}

/* Title case: a word begins after a hyphen, white space or an opening bracket; its first letter becomes
 * upper case, the rest lower case. */
FILTER(title) {
    const jj_str *s;
    jj_buf b = {0};
    UNUSED;
    LN_TRY(jj_to_str(r, self, &s));
    for (size_t at = 0, end; at < s->n; at = end) {
        uint32_t cp;
        size_t n = utf8_next(s->p + at, &cp);
        bool apart = (cp < 0x80 && cp && strchr("-({[<", (int)cp)) || jj_is_space(cp);
        for (end = at + n; end < s->n; end += n) {
            n = utf8_next(s->p + end, &cp);
            if (apart != ((cp < 0x80 && cp && strchr("-({[<", (int)cp)) || jj_is_space(cp))) break;
        }
        size_t one = at + utf8_next(s->p + at, &cp);
        jj_val head, tail;
        const jj_str *first = jj_str_part(r, s, at, one), *rest = jj_str_part(r, s, one, end);
        if (!first || !rest) return jj_nomem(r);
        LN_TRY(jj_recase(r, first, CASE_UPPER, &head));
        LN_TRY(jj_recase(r, rest, CASE_LOWER, &tail));
        LN_TRY(jj_put_str(r, &b, head.u.s));
        LN_TRY(jj_put_str(r, &b, tail.u.s));
    }
    return jj_buf_str(r, &b, out);
}

FILTER(trim) {
    const jj_str *s, *set = NULL;
    UNUSED;
    LN_TRY(jj_to_str(r, self, &s));
    if (a[0].kind != JJ_MISSING && a[0].kind != JJ_NONE) LN_TRY(jj_arg_text(r, a[0], "trim()", &set));
    return jj_strip(r, s, set, true, true, out);
}

FILTER(string) {
    const jj_str *s;
    UNUSED;
    LN_TRY(jj_to_str(r, self, &s));
    *out = jj_of(s);
    return LN_OK;
}

FILTER(safe) {
    const jj_str *s;
    UNUSED;
    LN_TRY(jj_to_str(r, self, &s));
    return jj_mark(r, s, out);
}

FILTER(escape) {
    const jj_str *s;
    bool force = r->how == 1;
    UNUSED;
    LN_TRY(jj_to_str(r, self, &s));
    return s->markup && !force ? jj_mark(r, s, out) : jj_escape(r, s, out);
}

FILTER(replace) {
    const jj_str *s, *old, *new;
    int64_t most = -1;
    UNUSED;
    LN_TRY(jj_to_str(r, self, &s));
    LN_TRY(jj_to_str(r, a[0], &old));
    LN_TRY(jj_to_str(r, a[1], &new));
    if (a[2].kind != JJ_NONE) LN_TRY(jj_arg_int(r, a[2], "replace()", -1, &most));
    LN_TRY(jj_replace(r, s, old, new, most, out));
    return jj_plain(r, out->u.s, out);
}

FILTER(indent) {
    const jj_str *s, *by = NULL;
    jj_buf b = {0};
    jj_val lines, text, blanks;
    int64_t width = 4;
    UNUSED;
    if (a[0].kind == JJ_STR) by = a[0].u.s;
    else LN_TRY(jj_arg_int(r, a[0], "indent()", 4, &width));
    LN_TRY(jj_str_lit(r, " ", &blanks));
    if (!by) {
        LN_TRY(jj_binary(r, JJ_MUL, blanks, jj_int(width), &blanks));
        by = blanks.u.s;
    }
    if (self.kind == JJ_UNDEF) return jj_undef_fail(r, self);
    LN_TRY(jj_arg_text(r, self, "indent()", &s));
    jj_str newline = {.p = "\n", .n = 1, .chars = 1};
    LN_TRY(jj_str_join(r, s, &newline, &text));
    LN_TRY(jj_splitlines(r, text.u.s, false, &lines));
    const jj_seq *q = lines.u.q;
    if (jj_truth(a[1])) LN_TRY(jj_put_str(r, &b, by));
    for (size_t i = 0; i < q->n; i++) {
        const jj_str *line = q->v[i].u.s;
        if (i > 0) LN_TRY(jj_put_lit(r, &b, "\n"));
        if (i > 0 && (line->n > 0 || jj_truth(a[2]))) LN_TRY(jj_put_str(r, &b, by));
        LN_TRY(jj_put_str(r, &b, line));
    }
    LN_TRY(jj_buf_str(r, &b, out));
    return s->markup ? jj_mark(r, out->u.s, out) : LN_OK;
}

FILTER(center) {
    static const jj_str blank = {.p = " ", .n = 1, .chars = 1};
    const jj_str *s;
    int64_t width;
    UNUSED;
    LN_TRY(jj_to_str(r, self, &s));
    LN_TRY(jj_arg_int(r, a[0], "center()", 80, &width));
    return jj_center(r, s, width, &blank, out);
}

FILTER(wordcount) {
    const jj_str *s;
    int64_t n = 0;
    bool in = false;
    UNUSED;
    LN_TRY(jj_to_str(r, self, &s));
    for (size_t at = 0; at < s->n;) {
        uint32_t cp;
        at += utf8_next(s->p + at, &cp);
        bool word = unicode_is_word(cp) && !unicode_is_mark(cp);
        n += word && !in;
        in = word;
    }
    *out = jj_int(n);
    return jj_spend(r, s->n * JJ_PER_CHAR);
}

FILTER(truncate) {
    const jj_str *s, *end;
    int64_t length, leeway, n;
    jj_val ending = a[2], cut;
    UNUSED;
    LN_TRY(jj_arg_int(r, a[0], "truncate()", 255, &length));
    LN_TRY(jj_arg_int(r, a[3].kind == JJ_NONE ? (jj_val){0} : a[3], "truncate()", 5, &leeway));
    if (ending.kind == JJ_MISSING) LN_TRY(jj_str_lit(r, "...", &ending));
    LN_TRY(jj_arg_text(r, ending, "truncate()", &end));
    if (length < (int64_t)end->chars || leeway < 0)
        return jj_fail(r, "truncate(): expected a length of at least %zu", end->chars);
    LN_TRY(jj_length(r, self, &n));
    *out = self;
    if (n <= length + leeway) return LN_OK;
    LN_TRY(jj_arg_text(r, self, "truncate()", &s));
    size_t to = jj_str_at(s, (size_t)(length - (int64_t)end->chars));
    static const jj_str blank = {.p = " ", .n = 1, .chars = 1};
    size_t last = jj_truth(a[1]) ? SIZE_MAX : jj_str_rfind(s, 0, to, &blank);
    LN_TRY(jj_str_cut(r, s, 0, last == SIZE_MAX ? to : last, &cut));
    return jj_str_join(r, cut.u.s, end, out);
}

FILTER(format) {
    const jj_str *s;
    jj_val with;
    UNUSED;
    LN_TRY(jj_to_str(r, self, &s));
    if (c->n_pos > 0 && c->n_named > 0)
        return jj_fail(r, "can't handle positional and keyword arguments at the same time");
    if (c->n_named > 0) {
        jj_val *keys = jj_take(r, c->n_named * sizeof *keys),
               *values = jj_take(r, c->n_named * sizeof *values);
        if (!keys || !values) return jj_nomem(r);
        for (size_t i = 0; i < c->n_named; i++) keys[i] = jj_of(c->names[i]), values[i] = c->named[i];
        LN_TRY(jj_dict_new(r, keys, values, c->n_named, &with));
    } else {
        LN_TRY(jj_seq_new(r, JJ_TUPLE, c->pos, c->n_pos, &with));
    }
    return jj_format(r, s, with, out);
}

/* ---- numbers ---- */

FILTER(to_int) {
    int64_t base;
    double f;
    jj_val v;
    bool ok = true;
    UNUSED;
    LN_TRY(jj_arg_int(r, a[1], "int()", 10, &base));
    *out = a[0].kind == JJ_MISSING ? jj_int(0) : a[0];
    if (self.kind == JJ_UNDEF) return jj_undef_fail(r, self);
    if (self.kind == JJ_STR) {
        LN_TRY(jj_parse_int(r, self.u.s, base, &v, &ok));
        if (ok) return *out = v, LN_OK;
        if (!jj_parse_float(self.u.s, &f)) return LN_OK;
    } else if (jj_is_int(self)) {
        return jj_negative(r, self, false, out);
    } else if (!jj_number(self, &f)) {
        return LN_OK;
    }
    if (isnan(f)) return LN_OK;
    if (isinf(f) && self.kind == JJ_STR) return LN_OK;
    return jj_int_of_double(r, f, out);
}

FILTER(to_float) {
    double f;
    UNUSED;
    *out = a[0].kind == JJ_MISSING ? jj_float(0) : a[0];
    if (self.kind == JJ_UNDEF) return jj_undef_fail(r, self);
    if (self.kind == JJ_BIG) LN_TRY(jj_real(r, self, &f));
    if (self.kind == JJ_STR ? jj_parse_float(self.u.s, &f) : jj_number(self, &f)) *out = jj_float(f);
    return LN_OK;
}

FILTER(absolute) {
    bool minus = false;
    UNUSED;
    if (self.kind == JJ_FLOAT) return *out = jj_float(fabs(self.u.f)), LN_OK;
    if (!jj_is_int(self)) return jj_fail(r, "bad operand type for abs(): '%s'", jj_type(self));
    LN_TRY(jj_less(r, self, jj_int(0), JJ_LT, &minus));
    return jj_negative(r, self, minus, out);
}

/* Rounds to a multiple of 10^k, ties to even. The exact value is `whole` >= 0, plus a fraction when
 * `more`. */
static ln_status round_tens(jj_run *r, jj_val whole, bool more, int64_t k, jj_val *out) {
    jj_val scale, q, rest, odd;
    bool up, tie;
    LN_TRY(jj_binary(r, JJ_POW, jj_int(10), jj_int(k), &scale));
    LN_TRY(jj_binary(r, JJ_FLOORDIV, whole, scale, &q));
    LN_TRY(jj_binary(r, JJ_MOD, whole, scale, &rest));
    LN_TRY(jj_binary(r, JJ_MUL, rest, jj_int(2), &rest));
    LN_TRY(jj_equal(r, rest, scale, &tie));
    LN_TRY(jj_less(r, rest, scale, JJ_GT, &up));
    LN_TRY(jj_binary(r, JJ_MOD, q, jj_int(2), &odd));
    if (up || (tie && (more || odd.u.i))) LN_TRY(jj_binary(r, JJ_ADD, q, jj_int(1), &q));
    return jj_binary(r, JJ_MUL, q, scale, out);
}

/* round(v, precision) as in Python: the exact decimal expansion is rounded, ties to even. */
static ln_status round_common(jj_run *r, jj_val v, int64_t precision, jj_val *out) {
    double f = v.kind == JJ_FLOAT ? v.u.f : 0;
    bool minus = false;
    char text[700];
    jj_val whole = v;
    *out = v;
    if (v.kind != JJ_FLOAT && precision >= 0) return jj_negative(r, v, false, out);
    if (!isfinite(f) || precision > 323) return LN_OK; /* a double has no more decimal places than that */
    if (precision < 0) {
        if (v.kind == JJ_FLOAT) LN_TRY(jj_int_of_double(r, f, &whole));
        LN_TRY(jj_less(r, whole, jj_int(0), JJ_LT, &minus));
        LN_TRY(jj_negative(r, whole, minus, &whole));
        LN_TRY(round_tens(r, whole, f != trunc(f), -precision, &whole));
        LN_TRY(jj_negative(r, whole, minus, out));
        if (v.kind != JJ_FLOAT) return LN_OK;
        LN_TRY(jj_real(r, *out, &f));
        *out = jj_float(copysign(f, v.u.f));
        return LN_OK;
    }
    (void)ln_snprintf(text, sizeof text, "%.*f", (int)precision, f);
    return ln_parse_f64(text, strlen(text), &out->u.f) ? LN_OK : jj_fail(r, "a float out of range");
}

FILTER(round_to) {
    int64_t precision;
    double f;
    jj_val scale, scaled;
    UNUSED;
    LN_TRY(jj_arg_int(r, a[0], "round()", 0, &precision));
    bool common = a[1].kind == JJ_MISSING || (a[1].kind == JJ_STR && jj_str_is(a[1].u.s, "common"));
    bool ceiling = a[1].kind == JJ_STR && jj_str_is(a[1].u.s, "ceil");
    bool known = common || ceiling || (a[1].kind == JJ_STR && jj_str_is(a[1].u.s, "floor"));
    if (!known) return jj_fail(r, "method must be common, ceil or floor");
    if (self.kind == JJ_UNDEF) return jj_undef_fail(r, self);
    if (!jj_number(self, &f)) return jj_fail(r, "type %s doesn't define __round__ method", jj_type(self));
    if (common) return round_common(r, self, precision, out);
    LN_TRY(jj_binary(r, JJ_POW, jj_int(10), jj_int(precision), &scale));
    LN_TRY(jj_binary(r, JJ_MUL, self, scale, &scaled));
    if (scaled.kind == JJ_FLOAT)
        LN_TRY(jj_int_of_double(r, ceiling ? ceil(scaled.u.f) : floor(scaled.u.f), &scaled));
    return jj_binary(r, JJ_DIV, scaled, scale, out);
}

/* ---- any value ---- */

FILTER(otherwise) {
    bool use = self.kind == JJ_UNDEF || (jj_truth(a[1]) && !jj_truth(self));
    UNUSED;
    if (!use) *out = self;
    else if (a[0].kind == JJ_MISSING) return jj_str_lit(r, "", out);
    else *out = a[0];
    return LN_OK;
}

FILTER(length) {
    int64_t n;
    UNUSED;
    LN_TRY(jj_length(r, self, &n));
    *out = jj_int(n);
    return LN_OK;
}

FILTER(attr) {
    const jj_str *name;
    jj_val v;
    UNUSED;
    LN_TRY(jj_to_str(r, a[0], &name));
    if (self.kind == JJ_DICT) { /* attributes only, no keys */
        bool unsafe;
        if (!jj_method_named(self, name->p, name->n, &unsafe)) return jj_undef_attr(r, self, a[0], out);
    }
    LN_TRY(jj_attr(r, self, name, &v));
    *out = v;
    return LN_OK;
}

static ln_status separators(jj_run *r, jj_val v, jj_json_how *how) {
    const jj_val *two;
    size_t n;
    if (v.kind == JJ_MISSING || v.kind == JJ_NONE) return LN_OK;
    LN_TRY(jj_iterate(r, v, &two, &n));
    if (n != 2) return jj_fail(r, "separators: expected two, found %zu", n);
    LN_TRY(jj_arg_text(r, two[0], "separators", &how->comma));
    return jj_arg_text(r, two[1], "separators", &how->colon);
}

FILTER(tojson) {
    static const jj_str comma = {.p = ", ", .n = 2, .chars = 2}, narrow = {.p = ",", .n = 1, .chars = 1},
                        colon = {.p = ": ", .n = 2, .chars = 2};
    jj_json_how how = {.ascii = jj_truth(a[0]), .sort = jj_truth(a[3]), .comma = &comma, .colon = &colon};
    jj_buf b = {0};
    int64_t width;
    UNUSED;
    if (a[1].kind == JJ_STR) {
        how.indent = a[1].u.s;
    } else if (a[1].kind != JJ_MISSING && a[1].kind != JJ_NONE) {
        jj_val blanks;
        LN_TRY(jj_arg_int(r, a[1], "indent", 0, &width));
        LN_TRY(jj_str_lit(r, " ", &blanks));
        LN_TRY(jj_binary(r, JJ_MUL, blanks, jj_int(width), &blanks));
        how.indent = blanks.u.s;
    }
    if (how.indent) how.comma = &narrow;
    LN_TRY(separators(r, a[2], &how));
    LN_TRY(jj_json_write(r, &b, self, &how, 0));
    return jj_buf_str(r, &b, out);
}

FILTER(from_json) {
    const jj_str *s;
    ln_json j;
    UNUSED;
    LN_TRY(jj_arg_text(r, self, "from_json()", &s));
    if (s->n >= 3 && memcmp(s->p, "\xef\xbb\xbf", 3) == 0)
        return jj_fail(r, "from_json(): a byte order mark before the value");
    ln_json_open(&j, "from_json()", s->p, s->n, LN_JSON_MAX_DEPTH);
    ln_status st = jj_json_read(r, &j, s->data, s, out, r->err);
    if (st == LN_OK) st = ln_json_next(&j, r->err);
    if (st == LN_OK && j.type != LN_J_END) st = jj_fail(r, "from_json(): text after the value");
    ln_json_close(&j);
    return st;
}

const jj_func *jj_filter_named(const char *name, size_t n) {
    static const jj_func rows[] = {{"tojson", "|ensure_ascii indent separators sort_keys", tojson, 0},
                                   {"length", "", length, 0},
                                   {"count", "", length, 0},
                                   {"trim", "|chars", trim, 0},
                                   {"string", "", string, 0},
                                   {"safe", "", safe, 0},
                                   {"default", "|default_value boolean", otherwise, 0},
                                   {"d", "|default_value boolean", otherwise, 0},
                                   {"lower", "", recase, CASE_LOWER},
                                   {"upper", "", recase, CASE_UPPER},
                                   {"capitalize", "", recase, CASE_CAPITAL},
                                   {"title", "", title, 0},
                                   {"replace", "old new|count", replace, 0},
                                   {"indent", "|width first blank", indent, 0},
                                   {"int", "|default base", to_int, 0},
                                   {"float", "|default", to_float, 0},
                                   {"abs", "", absolute, 0},
                                   {"round", "|precision method", round_to, 0},
                                   {"escape", "", escape, 0},
                                   {"e", "", escape, 0},
                                   {"forceescape", "", escape, 1},
                                   {"center", "|width", center, 0},
                                   {"wordcount", "", wordcount, 0},
                                   {"truncate", "|length killwords end leeway", truncate, 0},
                                   {"format", "*", format, 0},
                                   {"attr", "name|", attr, 0},
                                   {"from_json", "", from_json, 0},
                                   {"filesizeformat", "", NULL, 0},
                                   {"pprint", "", NULL, 0},
                                   {"random", "", NULL, 0},
                                   {"striptags", "", NULL, 0},
                                   {"urlencode", "", NULL, 0},
                                   {"urlize", "", NULL, 0},
                                   {"wordwrap", "", NULL, 0},
                                   {"xmlattr", "", NULL, 0}};
    const jj_func *f = jj_find(rows, LN_COUNT(rows), name, n);
    return f ? f : jj_list_filter(name, n);
}
