/* text % values: Python's printf-like formatting. */
#include "jj.h"

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

static ln_status take(jj_run *r, values *v, jj_val *out) {
    if (!v->tuple && v->next == 0) {
        *out = v->all;
    } else {
        if (!v->tuple || v->next >= v->all.u.q->n) return jj_fail(r, "not enough arguments for format string");
        *out = v->all.u.q->v[v->next];
    }
    v->next++;
    return LN_OK;
}

/* A number, or '*'. */
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
    return *out <= JINJA_MAX_TEXT ? LN_OK : jj_fail(r, "a width or precision of more than %d", JINJA_MAX_TEXT);
}

static ln_status parse(jj_run *r, values *v, const jj_str *s, size_t *at, spec *f) {
    *f = (spec){.precision = -1};
    for (; *at < s->n && s->p[*at] && strchr("-+ 0#", s->p[*at]); ++*at) {
        char c = s->p[*at];
        f->left = f->left || c == '-', f->plus = f->plus || c == '+', f->blank = f->blank || c == ' ', f->zero = f->zero || c == '0', f->alternate = f->alternate || c == '#';
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

/* The digits of a number with its sign apart. */
static ln_status number(jj_run *r, const spec *f, jj_val v, char text[400], bool *minus) {
    char form[8];
    double d;
    int64_t i;
    bool integer = strchr("diuxXo", f->letter) != NULL;
    if (v.kind == JJ_UNDEF) return jj_undef_fail(r, v);
    if (!jj_number(v, &d)) return jj_fail(r, integer ? "%%%c format: a real number is required, not %s" : "%%%c: must be real number, not %s", f->letter, jj_type(v));
    if (integer) {
        if (!jj_integer(v, &i)) {
            if (strchr("xXo", f->letter)) return jj_fail(r, "%%%c format: an integer is required, not float", f->letter);
            if (!(d > -9.2e18 && d < 9.2e18)) return jj_fail(r, "an integer beyond 64 bits");
            i = (int64_t)d;
        }
        *minus = i < 0;
        uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
        const char *prefix = !f->alternate || strchr("diu", f->letter) ? "" : f->letter == 'x' ? "0x" : f->letter == 'X' ? "0X" : "0o";
        char digits[32];
        if (f->letter == 'x') (void)snprintf(digits, sizeof digits, "%llx", (unsigned long long)u);
        else if (f->letter == 'X') (void)snprintf(digits, sizeof digits, "%llX", (unsigned long long)u);
        else if (f->letter == 'o') (void)snprintf(digits, sizeof digits, "%llo", (unsigned long long)u);
        else (void)snprintf(digits, sizeof digits, "%llu", (unsigned long long)u);
        int zeros = (int)LN_MIN(LN_MAX(f->precision - (int64_t)strlen(digits), 0), (int64_t)300);
        (void)snprintf(text, 400, "%s%0*d%s", prefix, zeros, 0, digits);
        if (zeros == 0) (void)snprintf(text, 400, "%s%s", prefix, digits);
        return LN_OK;
    }
    int precision = (int)(f->precision < 0 ? 6 : f->precision);
    if (precision > 60) return jj_fail(r, "expected a precision of at most 60");
    *minus = __builtin_signbit(d) && d == d;
    (void)snprintf(form, sizeof form, f->alternate ? "%%#.*%c" : "%%.*%c", f->letter);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    (void)snprintf(text, 400, form, precision, *minus ? -d : d);
#pragma GCC diagnostic pop
    return LN_OK;
}

static ln_status pad(jj_run *r, jj_buf *b, int64_t n, const char *with) {
    for (int64_t i = 0; i < n; i++) LN_TRY(jj_put_lit(r, b, with));
    return LN_OK;
}

static ln_status put_number(jj_run *r, jj_buf *b, const spec *f, jj_val v) {
    char text[400];
    bool minus = false;
    LN_TRY(number(r, f, v, text, &minus));
    const char *sign = minus ? "-" : f->plus ? "+" : f->blank ? " " : "";
    int64_t n = f->width - (int64_t)(strlen(text) + strlen(sign));
    size_t prefix = f->alternate && strchr("xXo", f->letter) ? 2 : 0;
    if (!f->left && !f->zero) LN_TRY(pad(r, b, n, " "));
    LN_TRY(jj_put_lit(r, b, sign));
    LN_TRY(jj_put(r, b, text, prefix, false));
    if (!f->left && f->zero) LN_TRY(pad(r, b, n, "0"));
    LN_TRY(jj_put_lit(r, b, text + prefix));
    return f->left ? pad(r, b, n, " ") : LN_OK;
}

static ln_status put_text(jj_run *r, jj_buf *b, const spec *f, jj_val v) {
    jj_buf own = {0};
    jj_val s;
    if (f->letter == 's') LN_TRY(jj_put_value(r, &own, v));
    else if (f->letter == 'r') LN_TRY(jj_put_repr(r, &own, v));
    else { /* c */
        int64_t cp;
        char utf8[4];
        if (v.kind == JJ_STR && v.u.s->chars == 1) LN_TRY(jj_put_str(r, &own, v.u.s));
        else if (!jj_integer(v, &cp) || cp < 0 || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) return jj_fail(r, "%%c requires int or char");
        else LN_TRY(jj_put(r, &own, utf8, (size_t)ln_utf8_put(utf8, (uint32_t)cp), false));
    }
    LN_TRY(jj_buf_str(r, &own, &s));
    size_t chars = s.u.s->chars, to = s.u.s->n;
    if (f->precision >= 0 && (size_t)f->precision < chars) chars = (size_t)f->precision, to = jj_str_at(s.u.s, chars);
    int64_t n = f->width - (int64_t)chars;
    if (!f->left) LN_TRY(pad(r, b, n, " "));
    LN_TRY(jj_put_part(r, b, s.u.s, 0, to));
    return f->left ? pad(r, b, n, " ") : LN_OK;
}

/* %(name)s: the value of a key. */
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

ln_status jj_format(jj_run *r, const jj_str *s, jj_val with, jj_val *out) {
    values v = {.all = with, .tuple = with.kind == JJ_SEQ && with.u.q->kind == JJ_TUPLE};
    jj_buf b = {0};
    bool mapped = with.kind == JJ_DICT || with.kind == JJ_UNDEF || (with.kind == JJ_SEQ && (with.u.q->kind == JJ_LIST || with.u.q->kind == JJ_RANGE));
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
        if (!strchr("srcdiuxXofFeEgG", f.letter) || !f.letter) return jj_fail(r, "unsupported format character");
        if (value.kind == JJ_MISSING) LN_TRY(take(r, &v, &value));
        LN_TRY(strchr("src", f.letter) ? put_text(r, &b, &f, value) : put_number(r, &b, &f, value));
    }
    bool left = v.tuple ? v.next < with.u.q->n : v.next == 0 && !mapped;
    return left ? jj_fail(r, "not all arguments converted during string formatting") : jj_buf_str(r, &b, out);
}
