/* Python's printf-style string formatting, `format % values`. jj_float_digits also serves str.format(). */
#include "jinja_format.h"

#include "../base/c_locale.h"

#include <math.h>

typedef struct spec {
    bool left, plus, blank, zero, alternate;
    int64_t width, precision; /* precision -1: none */
    char letter;
} spec;

typedef struct values {
    jj_val all;
    bool tuple;
    size_t next;
} values;

ln_status jj_float_digits(jj_run *r, double v, char letter, bool alternate, int64_t precision,
                          const char **out) {
    char form[8];
    if (precision > JJ_MAX_PRECISION)
        return jj_fail(r, "expected a precision of at most %d, found %lld", JJ_MAX_PRECISION,
                       (long long)precision);
    size_t cap = (size_t)precision + 330;
    char *text = jj_take(r, cap);
    if (!text) return jj_nomem(r);
    (void)snprintf(form, sizeof form, alternate ? "%%#.*%c" : "%%.*%c", letter);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    (void)ln_snprintf(text, cap, form, (int)precision, isnan(v) ? (double)NAN : fabs(v));
#pragma GCC diagnostic pop
    *out = text[0] == '-' ? text + 1 : text; /* skip the sign, which a NaN may have */
    return jj_spend(r, cap);
}

static ln_status take(jj_run *r, values *v, jj_val *out) {
    if (!v->tuple && v->next == 0) {
        *out = v->all;
    } else {
        if (!v->tuple || v->next >= v->all.u.q->n)
            return jj_fail(r, "not enough arguments for format string");
        *out = v->all.u.q->v[v->next];
    }
    v->next++;
    return LN_OK;
}

/* Parses a width or a precision: a number, or '*' for the next argument. */
static ln_status size(jj_run *r, values *v, const jj_str *s, size_t *at, int64_t *out) {
    *out = 0;
    if (*at < s->n && s->p[*at] == '*') {
        jj_val n;
        ++*at;
        LN_TRY(take(r, v, &n));
        if (!jj_integer(n, out)) return jj_fail(r, "* wants int");
    }
    for (; *at < s->n && s->p[*at] >= '0' && s->p[*at] <= '9'; ++*at)
        if (*out <= JINJA_MAX_TEXT) *out = *out * 10 + (s->p[*at] - '0');
    return *out <= JINJA_MAX_TEXT ? LN_OK
                                  : jj_fail(r, "a width or precision of more than %d", JINJA_MAX_TEXT);
}

static ln_status parse(jj_run *r, values *v, const jj_str *s, size_t *at, spec *f) {
    *f = (spec){.precision = -1};
    for (; *at < s->n && s->p[*at] && strchr("-+ 0#", s->p[*at]); ++*at) {
        char c = s->p[*at];
        f->left = f->left || c == '-', f->plus = f->plus || c == '+', f->blank = f->blank || c == ' ';
        f->zero = f->zero || c == '0', f->alternate = f->alternate || c == '#';
    }
    LN_TRY(size(r, v, s, at, &f->width));
    if (f->width < 0) f->left = true, f->width = -f->width;
    if (*at < s->n && s->p[*at] == '.') {
        ++*at;
        LN_TRY(size(r, v, s, at, &f->precision));
        f->precision = LN_MAX(f->precision, 0);
    }
    while (*at < s->n && s->p[*at] && strchr("hlL", s->p[*at])) ++*at;
    if (*at >= s->n) return jj_fail(r, "incomplete format");
    f->letter = s->p[(*at)++];
    return LN_OK;
}

/* ---- numbers ---- */

static ln_status integer_digits(jj_run *r, const spec *f, jj_val v, bool *minus, const char **out) {
    bool decimal = strchr("diu", f->letter) != NULL;
    if (v.kind == JJ_FLOAT) {
        if (!decimal) return jj_fail(r, "%%%c format: an integer is required, not float", f->letter);
        LN_TRY(jj_int_of_double(r, v.u.f, &v));
    }
    LN_TRY(jj_int_text(r, v, decimal ? 10 : f->letter == 'o' ? 8 : 16, minus, out));
    return f->letter == 'X' ? jj_upper_digits(r, out) : LN_OK;
}

/* The digits of a number without its sign. */
static ln_status number(jj_run *r, const spec *f, jj_val v, const char **digits, bool *minus) {
    double d;
    bool integer = strchr("diuxXo", f->letter) != NULL;
    if (v.kind == JJ_UNDEF) return jj_undef_fail(r, v);
    if (!jj_number(v, &d))
        return jj_fail(r,
                       integer ? "%%%c format: a real number is required, not %s"
                               : "%%%c: must be real number, not %s",
                       f->letter, jj_type(v));
    if (integer) return integer_digits(r, f, v, minus, digits);
    LN_TRY(jj_real(r, v, &d));
    *minus = signbit(d) && !isnan(d);
    return jj_float_digits(r, d, f->letter, f->alternate, f->precision < 0 ? 6 : f->precision, digits);
}

static ln_status pad(jj_run *r, jj_buf *b, int64_t n, const char *with) {
    for (int64_t i = 0; i < n; i++) LN_TRY(jj_put_lit(r, b, with));
    return LN_OK;
}

static ln_status put_number(jj_run *r, jj_buf *b, const spec *f, jj_val v) {
    const char *digits;
    bool minus = false, integer = strchr("diuxXo", f->letter) != NULL;
    LN_TRY(number(r, f, v, &digits, &minus));
    const char *sign = minus ? "-" : f->plus ? "+" : f->blank ? " " : "";
    const char *prefix = !f->alternate      ? ""
                         : f->letter == 'x' ? "0x"
                         : f->letter == 'X' ? "0X"
                         : f->letter == 'o' ? "0o"
                                            : "";
    int64_t have = (int64_t)strlen(digits), zeros = integer ? LN_MAX(f->precision - have, 0) : 0;
    int64_t n = f->width - (int64_t)(strlen(sign) + strlen(prefix)) - have - zeros;
    if (zeros > JINJA_MAX_TEXT) return jj_fail(r, "a width or precision of more than %d", JINJA_MAX_TEXT);
    if (!f->left && !f->zero) LN_TRY(pad(r, b, n, " "));
    LN_TRY(jj_put_lit(r, b, sign));
    LN_TRY(jj_put_lit(r, b, prefix));
    if (!f->left && f->zero) LN_TRY(pad(r, b, n, "0"));
    LN_TRY(pad(r, b, zeros, "0"));
    LN_TRY(jj_put_lit(r, b, digits));
    return f->left ? pad(r, b, n, " ") : LN_OK;
}

/* ---- strings ---- */

static ln_status put_text(jj_run *r, jj_buf *b, const spec *f, jj_val v) {
    jj_buf own = {0};
    jj_val s;
    if (f->letter == 's') LN_TRY(jj_put_value(r, &own, v));
    else if (f->letter == 'r') LN_TRY(jj_put_repr(r, &own, v));
    else if (f->letter == 'a') LN_TRY(jj_put_ascii(r, &own, v));
    else if (v.kind == JJ_STR && v.u.s->chars == 1) LN_TRY(jj_put_str(r, &own, v.u.s)); /* %c of a string */
    else LN_TRY(jj_put_code_point(r, &own, v, "%c"));
    LN_TRY(jj_buf_str(r, &own, &s));
    size_t chars = s.u.s->chars, to = s.u.s->n;
    if (f->precision >= 0 && (size_t)f->precision < chars)
        chars = (size_t)f->precision, to = jj_str_at(s.u.s, chars);
    int64_t n = f->width - (int64_t)chars;
    if (!f->left) LN_TRY(pad(r, b, n, " "));
    LN_TRY(jj_put_part(r, b, s.u.s, 0, to));
    return f->left ? pad(r, b, n, " ") : LN_OK;
}

/* %(name)s: the value of the key in a mapping. */
static ln_status keyed(jj_run *r, const jj_str *s, size_t *at, const values *v, jj_val *out) {
    size_t from = *at + 1;
    const char *end = memchr(s->p + from, ')', s->n - from);
    bool hashable;
    if (!end) return jj_fail(r, "incomplete format key");
    if (v->all.kind != JJ_DICT) return jj_fail(r, "format requires a mapping");
    *at = (size_t)(end - s->p) + 1;
    const jj_str *key = jj_str_part(r, s, from, *at - 1);
    if (!key) return jj_nomem(r);
    LN_TRY(jj_dict_get(r, v->all.u.d, jj_of(key), out, &hashable));
    return out->kind == JJ_MISSING ? jj_fail(r, "a format key that the mapping does not have") : LN_OK;
}

static bool mapped(jj_val v) {
    bool list = v.kind == JJ_SEQ && (v.u.q->kind == JJ_LIST || v.u.q->kind == JJ_RANGE);
    return v.kind == JJ_DICT || v.kind == JJ_UNDEF || list;
}

ln_status jj_format(jj_run *r, const jj_str *s, jj_val with, jj_val *out) {
    values v = {.all = with, .tuple = with.kind == JJ_SEQ && with.u.q->kind == JJ_TUPLE};
    jj_buf b = {0};
    if (s->markup) return jj_fail(r, "formatting escaped text is not supported");
    for (size_t at = 0, done = 0;; done = at) {
        const char *mark = at < s->n ? memchr(s->p + at, '%', s->n - at) : NULL;
        size_t hit = mark ? (size_t)(mark - s->p) : s->n;
        jj_val value = {0};
        spec f;
        LN_TRY(jj_put_part(r, &b, s, done, hit));
        if (!mark) break;
        at = hit + 1;
        if (at < s->n && s->p[at] == '(') LN_TRY(keyed(r, s, &at, &v, &value));
        LN_TRY(parse(r, &v, s, &at, &f));
        if (f.letter == '%') {
            LN_TRY(jj_put_part(r, &b, s, hit, hit + 1));
            continue;
        }
        if (!strchr("sracdiuxXofFeEgG", f.letter) || !f.letter)
            return jj_fail(r, "unsupported format character");
        if (value.kind == JJ_MISSING) LN_TRY(take(r, &v, &value));
        LN_TRY(strchr("srac", f.letter) ? put_text(r, &b, &f, value) : put_number(r, &b, &f, value));
    }
    bool left = v.tuple ? v.next < with.u.q->n : v.next == 0 && !mapped(with);
    return left ? jj_fail(r, "not all arguments converted during string formatting") : jj_buf_str(r, &b, out);
}
