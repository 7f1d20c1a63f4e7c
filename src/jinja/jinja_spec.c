/* Python's format(value, spec) with the format specification mini-language,
 * [[fill]align][sign][z][#][0][width][,|_][.precision][type], for strings, integers and floats. Other
 * values accept an empty specification only. */
#include "jinja_format.h"

#include <math.h>

typedef struct spec {
    /* Byte range of the fill character in the specification; fill_n 0: `fill` holds. */
    size_t fill_at, fill_n;
    char fill, align, sign, grouping, type;
    bool no_minus_zero, alternate;
    int64_t width, precision; /* -1: none */
} spec;

/* The parts of a formatted number in the order of output. */
typedef struct pieces {
    const char *sign, *prefix, *digits, *rest; /* rest: the point, fraction and exponent, or inf and nan */
    size_t n_digits;
} pieces;

/* ---- parsing the specification ---- */

static bool is_align(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

static bool skip(const jj_str *s, size_t *at, char c) {
    if (*at >= s->n || s->p[*at] != c) return false;
    ++*at;
    return true;
}

static bool digits(const jj_str *s, size_t *at, int64_t *out) { /* false: no digits */
    size_t from = *at;
    for (*out = 0; *at < s->n && s->p[*at] >= '0' && s->p[*at] <= '9'; ++*at)
        if (*out <= JINJA_MAX_TEXT) *out = *out * 10 + (s->p[*at] - '0');
    return *at > from;
}

static ln_status grouping(jj_run *r, const jj_str *s, size_t *at, spec *f) {
    if (skip(s, at, ',')) f->grouping = ',';
    if (skip(s, at, '_')) {
        if (f->grouping) return jj_fail(r, "Cannot specify both ',' and '_'.");
        f->grouping = '_';
    }
    if (*at < s->n && s->p[*at] == ',' && f->grouping) return jj_fail(r, "Cannot specify both ',' and '_'.");
    return LN_OK;
}

static ln_status parse(jj_run *r, const jj_str *s, char align, const char *of, spec *f) {
    uint32_t cp;
    char shown[80];
    size_t at = 0, first = s->n > 0 ? utf8_next(s->p, &cp) : 0;
    bool aligned = true;
    *f = (spec){.fill = ' ', .align = align, .width = -1, .precision = -1};
    if (first < s->n && is_align(s->p[first])) f->fill_n = first, f->align = s->p[first], at = first + 1;
    else if (s->n > 0 && is_align(s->p[0])) f->align = s->p[0], at = 1;
    else aligned = false;
    if (at < s->n && s->p[at] && strchr(" +-", s->p[at])) f->sign = s->p[at++];
    f->no_minus_zero = skip(s, &at, 'z');
    f->alternate = skip(s, &at, '#');
    if (f->fill_n == 0 && skip(s, &at, '0')) {
        f->fill = '0';
        if (!aligned && align == '>') f->align = '=';
    }
    if (!digits(s, &at, &f->width)) f->width = -1;
    LN_TRY(grouping(r, s, &at, f));
    if (skip(s, &at, '.') && !digits(s, &at, &f->precision))
        return jj_fail(r, "Format specifier missing precision");
    if (f->width > JINJA_MAX_TEXT || f->precision > JINJA_MAX_TEXT)
        return jj_fail(r, "a width or precision of more than %d", JINJA_MAX_TEXT);
    if (at + 1 < s->n)
        return jj_fail(r, "Invalid format specifier '%s' for object of type '%s'",
                       ln_excerpt(shown, s->p, s->n), of);
    if (at < s->n) f->type = s->p[at];
    if (!f->grouping || !f->type || strchr("defgEG%F", f->type)) return LN_OK;
    if (f->grouping == '_' && strchr("boxX", f->type)) return LN_OK;
    return jj_fail(r, "Cannot specify '%c' with '%c'.", f->grouping, f->type);
}

static ln_status unknown_type(jj_run *r, const spec *f, const char *of) {
    return jj_fail(r, "Unknown format code '%c' for object of type '%s'",
                   f->type >= ' ' && f->type < 0x7f ? f->type : '?', of);
}

/* ---- padding and grouping ---- */

static ln_status fill(jj_run *r, jj_buf *b, const jj_str *s, const spec *f, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        LN_TRY(f->fill_n ? jj_put_part(r, b, s, f->fill_at, f->fill_at + f->fill_n)
                         : jj_put(r, b, &f->fill, 1, false));
    return n > 0 ? jj_spend(r, (size_t)n) : LN_OK;
}

static int64_t left_of(const spec *f, int64_t padding) {
    return f->align == '<' || f->align == '=' ? 0 : f->align == '^' ? padding / 2 : padding;
}

static ln_status put_text(jj_run *r, jj_buf *b, const jj_str *v, const jj_str *s) {
    spec f;
    LN_TRY(parse(r, s, '<', "str", &f));
    if (f.type && f.type != 's') return unknown_type(r, &f, "str");
    if (f.sign)
        return jj_fail(r, f.sign == ' ' ? "Space not allowed in string format specifier"
                                        : "Sign not allowed in string format specifier");
    if (f.no_minus_zero)
        return jj_fail(r, "Negative zero coercion (z) not allowed in string format specifier");
    if (f.alternate) return jj_fail(r, "Alternate form (#) not allowed in string format specifier");
    if (f.grouping) return jj_fail(r, "Cannot specify '%c' with 's'.", f.grouping);
    if (f.align == '=') return jj_fail(r, "'=' alignment not allowed in string format specifier");
    size_t chars = v->chars, to = v->n;
    if (f.precision >= 0 && (size_t)f.precision < chars)
        chars = (size_t)f.precision, to = jj_str_at(v, chars);
    int64_t padding = LN_MAX(f.width - (int64_t)chars, 0), left = left_of(&f, padding);
    LN_TRY(fill(r, b, s, &f, left));
    LN_TRY(jj_put_part(r, b, v, 0, to));
    return fill(r, b, s, &f, padding - left);
}

/* The digits with a separator between groups, padded with leading zeros to at least `least` characters. */
static ln_status grouped(jj_run *r, const pieces *p, int group, char separator, int64_t least,
                         const char **out) {
    size_t cap = (p->n_digits + (size_t)LN_MAX(least, 0)) * 2 + 8, at = cap - 1;
    int64_t left = (int64_t)p->n_digits;
    char *text = jj_take(r, cap);
    if (!text) return jj_nomem(r);
    for (bool first = true; left > 0 || least > 0 || first; first = false) {
        if (!first && separator) text[--at] = separator, least--;
        int64_t n = LN_MIN(separator ? group : INT64_MAX,
                           LN_MAX(LN_MAX(left, least), first && p->n_digits > 0 ? 1 : 0));
        if (!first) n = LN_MAX(n, 1); /* a separator is never the first character */
        for (int64_t i = 0; i < n; i++) text[--at] = left > 0 ? p->digits[--left] : '0';
        least -= n;
        if (!separator) break;
    }
    *out = text + at;
    return jj_spend(r, cap);
}

static ln_status put_number(jj_run *r, jj_buf *b, const spec *f, const jj_str *s, const pieces *p) {
    const char *body = "";
    int64_t around = (int64_t)(strlen(p->sign) + strlen(p->prefix) + strlen(p->rest));
    bool zeros = p->n_digits > 0 && f->align == '=' && f->fill == '0' && f->fill_n == 0;
    zeros = zeros || (p->n_digits > 0 && f->align == '=' && f->fill_n == 1 && s->p[f->fill_at] == '0');
    LN_TRY(grouped(r, p, f->type && strchr("boxX", f->type) ? 4 : 3, f->grouping,
                   zeros ? f->width - around : 0, &body));
    int64_t padding = LN_MAX(f->width - around - (int64_t)strlen(body), 0), left = left_of(f, padding);
    LN_TRY(fill(r, b, s, f, left));
    LN_TRY(jj_put_lit(r, b, p->sign));
    LN_TRY(jj_put_lit(r, b, p->prefix));
    if (f->align == '=') LN_TRY(fill(r, b, s, f, padding));
    LN_TRY(jj_put_lit(r, b, body));
    LN_TRY(jj_put_lit(r, b, p->rest));
    return f->align == '=' ? LN_OK : fill(r, b, s, f, padding - left);
}

static const char *sign_of(const spec *f, bool minus) {
    return minus ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
}

/* ---- floats ---- */

/* The float format of an empty type with a precision: like g, but with at least one digit after the point,
 * and with exponent notation from a smaller exponent on. */
static ln_status plain_digits(jj_run *r, double v, bool alternate, int64_t precision, const char **out) {
    const char *e, *text = "";
    int64_t keep = LN_MAX(precision, 1), exp = 0;
    if (!isfinite(v)) return jj_float_digits(r, v, 'f', false, 0, out);
    LN_TRY(jj_float_digits(r, v, 'e', false, keep - 1, &text));
    e = strchr(text, 'e');
    for (const char *c = e + 2; *c; c++) exp = exp * 10 + (*c - '0');
    exp = e[1] == '-' ? -exp : exp;
    if (exp < -4 || exp >= keep - 1) { /* exponent notation: like g, which drops trailing zeros */
        char *short_text = jj_take(r, strlen(text) + 2);
        size_t n = (size_t)(e - text);
        if (!short_text) return jj_nomem(r);
        while (!alternate && n > 1 && memchr(text, '.', n) && (text[n - 1] == '0' || text[n - 1] == '.'))
            if (text[--n] == '.') break;
        memcpy(short_text, text, n);
        if (alternate && !memchr(text, '.', n)) short_text[n++] = '.';
        memcpy(short_text + n, e, strlen(e) + 1);
        *out = short_text;
        return LN_OK;
    }
    LN_TRY(jj_float_digits(r, v, 'f', alternate, keep - 1 - exp, &text));
    size_t n = strlen(text), point = strcspn(text, ".");
    while (!alternate && n > point + 2 && text[n - 1] == '0') n--;
    char *cut = jj_take(r, n + 1);
    if (!cut) return jj_nomem(r);
    memcpy(cut, text, n);
    *out = cut;
    return LN_OK;
}

/* The float format of an empty type without a precision: str(), and with '#' always with a point. */
static ln_status shortest_digits(jj_run *r, double v, bool alternate, const char **out) {
    char *text = jj_take(r, 40);
    if (!text) return jj_nomem(r);
    *out = text;
    LN_TRY(jj_float_text(r, text, isnan(v) ? (double)NAN : fabs(v)));
    char *e = strchr(text, 'e');
    if (!alternate || !isfinite(v) || !e || strchr(text, '.')) return LN_OK;
    memmove(e + 1, e, strlen(e) + 1); /* 1e+16 becomes 1.e+16 */
    *e = '.';
    return LN_OK;
}

static bool all_zero(const char *text) {
    for (; *text && *text != 'e' && *text != 'E'; text++)
        if (*text >= '1' && *text <= '9') return false;
    return true;
}

static ln_status put_float(jj_run *r, jj_buf *b, double v, const jj_str *s, const spec *f, const char *of) {
    char letter = f->type == 'n' ? 'g' : f->type == '%' ? 'f' : f->type;
    const char *text;
    int64_t precision = f->precision < 0 ? 6 : f->precision;
    if (f->type && !strchr("eEfFgGn%", f->type)) return unknown_type(r, f, of);
    if (f->type == '%') v *= 100;
    bool minus = signbit(v) && !isnan(v);
    if (f->type) LN_TRY(jj_float_digits(r, v, letter, f->alternate, precision, &text));
    else if (f->precision >= 0) LN_TRY(plain_digits(r, v, f->alternate, f->precision, &text));
    else LN_TRY(shortest_digits(r, v, f->alternate, &text));
    if (f->no_minus_zero && minus && isfinite(v) && all_zero(text)) minus = false;
    size_t n = strspn(text, "0123456789");
    char *rest = jj_take(r, strlen(text + n) + 2);
    if (!rest) return jj_nomem(r);
    memcpy(rest, text + n, strlen(text + n));
    if (f->type == '%') rest[strlen(rest)] = '%';
    pieces p = {.sign = sign_of(f, minus), .prefix = "", .digits = text, .n_digits = n, .rest = rest};
    return put_number(r, b, f, s, &p);
}

/* ---- integers ---- */

static ln_status put_character(jj_run *r, jj_buf *b, jj_val v, const jj_str *s, const spec *f) {
    jj_buf one = {0};
    if (f->sign) return jj_fail(r, "Sign not allowed with integer format specifier 'c'");
    if (f->alternate) return jj_fail(r, "Alternate form (#) not allowed with integer format specifier 'c'");
    LN_TRY(jj_put_code_point(r, &one, v, "%c"));
    int64_t padding = LN_MAX(f->width - 1, 0), left = f->align == '=' ? padding : left_of(f, padding);
    LN_TRY(fill(r, b, s, f, left));
    LN_TRY(jj_put(r, b, one.p, one.n, false));
    return fill(r, b, s, f, padding - left);
}

static ln_status put_int(jj_run *r, jj_buf *b, jj_val v, const jj_str *s) {
    spec f;
    double d;
    const char *of = v.kind == JJ_BOOL ? "bool" : "int";
    LN_TRY(parse(r, s, '>', of, &f));
    if (f.type && strchr("eEfFgG%", f.type)) {
        LN_TRY(jj_real(r, v, &d));
        return put_float(r, b, d, s, &f, of);
    }
    if (f.type && !strchr("bcdoxXn", f.type)) return unknown_type(r, &f, of);
    if (f.precision >= 0) return jj_fail(r, "Precision not allowed in integer format specifier");
    if (f.no_minus_zero)
        return jj_fail(r, "Negative zero coercion (z) not allowed in format specifier with integer format "
                          "code");
    if (f.type == 'c') return put_character(r, b, v, s, &f);
    bool minus, decimal = !f.type || f.type == 'd' || f.type == 'n';
    pieces p = {.rest = ""};
    LN_TRY(jj_int_text(r, v, decimal ? 10 : f.type == 'b' ? 2 : f.type == 'o' ? 8 : 16, &minus, &p.digits));
    if (f.type == 'X') LN_TRY(jj_upper_digits(r, &p.digits));
    p.n_digits = strlen(p.digits);
    p.sign = sign_of(&f, minus);
    p.prefix = !f.alternate || decimal ? ""
               : f.type == 'b'         ? "0b"
               : f.type == 'o'         ? "0o"
               : f.type == 'x'         ? "0x"
                                       : "0X";
    return put_number(r, b, &f, s, &p);
}

ln_status jj_put_spec(jj_run *r, jj_buf *b, jj_val v, const jj_str *s) {
    spec f;
    if (s->n == 0) return jj_put_value(r, b, v);
    if (v.kind == JJ_STR) return put_text(r, b, v.u.s, s);
    if (jj_is_int(v)) return put_int(r, b, v, s);
    if (v.kind != JJ_FLOAT)
        return jj_fail(r, "unsupported format string passed to %s.__format__", jj_type(v));
    LN_TRY(parse(r, s, '>', "float", &f));
    return put_float(r, b, v.u.f, s, &f, "float");
}
