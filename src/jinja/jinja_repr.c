/* str() and repr(), and parsing numbers from strings. */
#include "jinja_big.h"

#include <math.h>
#include <utf8proc.h>

/* ---- floats ---- */

/* repr() of a float: the shortest digits that parse back to the same value, in exponent notation below
 * 1e-4 and from 1e16 on. */
ln_status jj_float_text(jj_run *r, char buf[40], double v) {
    if (isnan(v) || isinf(v)) {
        (void)snprintf(buf, 40, "%s", isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
        return LN_OK;
    }
    ln_str s = {0};
    char digit[32];
    int n = 0, exp = 0, e = 0;
    bool point = false, leading = true, minus = signbit(v) != 0, e_minus = false;
    ln_str_double(&s, fabs(v));
    if (s.failed) return LN_OOM(r->err, "a number");
    size_t i = 0;
    for (; i < s.len && s.data[i] != 'e'; i++) { /* value = 0.digits * 10^exp */
        if (s.data[i] == '.') point = true;
        else if (leading && s.data[i] == '0') exp -= point;
        else {
            leading = false;
            if (n < 30) digit[n++] = s.data[i];
            exp += !point;
        }
    }
    if (i < s.len) e_minus = s.data[i + 1] == '-';
    for (i += 1 + (size_t)e_minus; i < s.len; i++)
        if (s.data[i] >= '0' && s.data[i] <= '9') e = e * 10 + (s.data[i] - '0');
    ln_str_free(&s);
    exp += e_minus ? -e : e;
    while (n > 1 && digit[n - 1] == '0') n--;
    if (n == 0) digit[n++] = '0', exp = 1;
    int first = exp - 1, at = 0; /* the exponent of the first digit */
    if (minus) buf[at++] = '-';
    if (first < -4 || first >= 16) {
        buf[at++] = digit[0];
        if (n > 1) buf[at++] = '.';
        for (int k = 1; k < n; k++) buf[at++] = digit[k];
        (void)snprintf(buf + at, (size_t)(40 - at), "e%c%02d", first < 0 ? '-' : '+',
                       first < 0 ? -first : first);
        return LN_OK;
    }
    if (first < 0) {
        buf[at++] = '0', buf[at++] = '.';
        for (int k = -1; k > first; k--) buf[at++] = '0';
        for (int k = 0; k < n; k++) buf[at++] = digit[k];
    } else {
        for (int k = 0; k < LN_MAX(n, first + 1); k++) {
            if (k == first + 1) buf[at++] = '.';
            buf[at++] = k < n ? digit[k] : '0';
        }
        if (n <= first + 1) buf[at++] = '.', buf[at++] = '0';
    }
    buf[at] = '\0';
    return LN_OK;
}

/* Strips white space at both ends. */
static void strip(const jj_str *s, const char **p, size_t *n) {
    size_t from = 0, to = s->n;
    uint32_t cp;
    while (from < to) {
        size_t k = utf8_next(s->p + from, &cp);
        if (!jj_is_space(cp)) break;
        from += k;
    }
    while (to > from) {
        size_t at = to - 1;
        while (at > from && ((unsigned char)s->p[at] & 0xc0) == 0x80) at--;
        (void)utf8_next(s->p + at, &cp);
        if (!jj_is_space(cp)) break;
        to = at;
    }
    *p = s->p + from;
    *n = to - from;
}

static bool word(const char *p, size_t n, const char *text) {
    if (n != strlen(text)) return false;
    for (size_t i = 0; i < n; i++)
        if ((p[i] | 0x20) != text[i]) return false;
    return true;
}

bool jj_parse_float(const jj_str *s, double *out) {
    const char *p;
    char plain[420];
    size_t n, k = 0, digits = 0, points = 0;
    strip(s, &p, &n);
    bool minus = n > 0 && p[0] == '-', sign = n > 0 && (p[0] == '-' || p[0] == '+');
    p += sign, n -= sign;
    if (word(p, n, "inf") || word(p, n, "infinity")) return *out = minus ? -INFINITY : INFINITY, true;
    if (word(p, n, "nan")) return *out = NAN, true;
    if (n == 0 || n > 400) return false;
    size_t i = 0;
    while (i + 1 < n && p[i] == '0' && p[i + 1] >= '0' && p[i + 1] <= '9') i++, digits++; /* leading zeros */
    if (p[i] == '.') plain[k++] = '0';
    for (; i < n; i++) {
        bool digit = p[i] >= '0' && p[i] <= '9';
        if (p[i] == '_') {
            if (i == 0 || i + 1 == n || p[i - 1] < '0' || p[i - 1] > '9' || p[i + 1] < '0' || p[i + 1] > '9')
                return false;
            continue;
        }
        points += p[i] == '.';
        if (points > 1) return false; /* so that at most two zeros are added */
        bool after_point = k > 0 && plain[k - 1] == '.';
        if (!digit && after_point) { /* "1." and "1.e5" */
            plain[k++] = '0';
        }
        digits += digit;
        plain[k++] = p[i];
    }
    if (k > 0 && plain[k - 1] == '.') plain[k++] = '0';
    if (digits == 0) return false;
    if (!ln_parse_f64(plain, k, out)) {
        /* On overflow the mantissa parses as infinity, the right value whatever the exponent. */
        double mantissa;
        const char *e = memchr(plain, 'e', k);
        if (!e) e = memchr(plain, 'E', k);
        if (!e || !ln_parse_f64(plain, (size_t)(e - plain), &mantissa)) return false;
        for (const char *q = e + 1 + (e[1] == '+'); q < plain + k; q++)
            if (*q < '0' || *q > '9') return false;
        if (e + 1 + (e[1] == '+') == plain + k) return false;
        *out = mantissa == 0 ? 0 : INFINITY;
    }
    if (minus) *out = -*out;
    return true;
}

static ln_status int_of(jj_run *r, const char *digits, size_t n, unsigned base, bool minus, jj_val *out) {
    jj_wide w;
    LN_TRY(jj_spend(r, n * n / 16));
    if (!jj_wide_read(&w, digits, n, base)) return jj_too_large(r);
    w.minus = minus && w.n > 0;
    return jj_narrow(r, &w, out);
}

/* int(text, base): a sign, an optional prefix, and digits that may be separated by single underscores. */
ln_status jj_parse_int(jj_run *r, const jj_str *s, int64_t base, jj_val *out, bool *ok) {
    const char *p;
    size_t n, i = 0;
    *ok = false;
    if (base != 0 && (base < 2 || base > 36)) return LN_OK;
    strip(s, &p, &n);
    bool minus = n > 0 && p[0] == '-', digit_before = false;
    if (n > 0 && (p[0] == '-' || p[0] == '+')) i++;
    int64_t prefixed = 0;
    if (n - i > 2 && p[i] == '0')
        prefixed = (p[i + 1] | 0x20) == 'x'   ? 16
                   : (p[i + 1] | 0x20) == 'o' ? 8
                   : (p[i + 1] | 0x20) == 'b' ? 2
                                              : 0;
    if (prefixed && (base == 0 || base == prefixed)) {
        base = prefixed;
        i += 2;
        digit_before = true; /* one underscore may follow the prefix */
    } else if (base == 0) {
        base = 10;
    }
    bool any = false;
    size_t from = i, digits = 0;
    for (; i < n; i++) {
        int c = (unsigned char)p[i], d = c - '0' < 10 && c >= '0'                 ? c - '0'
                                         : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                                                  : 99;
        if (c == '_' && digit_before && i + 1 < n) {
            digit_before = false;
            continue;
        }
        if (d >= base) return LN_OK;
        digit_before = any = true;
        digits++;
    }
    *ok = any && digit_before;
    if (!*ok) return LN_OK;
    if (digits > JJ_BIG_DIGITS && (base & (base - 1)))
        return *ok = false, LN_OK; /* Python has the same limit */
    return int_of(r, p + from, n - from, (unsigned)base, minus, out);
}

/* ---- repr() ---- */

static bool printable(uint32_t cp) {
    if (cp < 0x7f) return cp >= 0x20;
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return !(c == UTF8PROC_CATEGORY_CN || (c >= UTF8PROC_CATEGORY_ZS && c <= UTF8PROC_CATEGORY_CO));
}

static ln_status repr_text(jj_run *r, jj_buf *b, const jj_str *s) {
    bool single = memchr(s->p, '\'', s->n) != NULL, both = single && memchr(s->p, '"', s->n);
    const char *quote = single && !both ? "\"" : "'";
    size_t done = 0;
    LN_TRY(jj_put_lit(r, b, s->markup ? "Markup(" : ""));
    LN_TRY(jj_put_lit(r, b, quote));
    for (size_t at = 0, n; at < s->n; at += n) {
        uint32_t cp;
        char piece[16];
        n = utf8_next(s->p + at, &cp);
        if (cp == '\\' || cp == (uint32_t)quote[0]) (void)snprintf(piece, sizeof piece, "\\%c", (char)cp);
        else if (printable(cp)) continue;
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            (void)snprintf(piece, sizeof piece, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else
            (void)snprintf(piece, sizeof piece,
                           cp < 0x100     ? "\\x%02x"
                           : cp < 0x10000 ? "\\u%04x"
                                          : "\\U%08x",
                           (unsigned)cp);
        LN_TRY(jj_put_part(r, b, s, done, at));
        LN_TRY(jj_put_like(r, b, piece, strlen(piece), s, at));
        done = at + n;
    }
    LN_TRY(jj_put_part(r, b, s, done, s->n));
    LN_TRY(jj_put_lit(r, b, quote));
    return jj_put_lit(r, b, s->markup ? ")" : "");
}

static ln_status repr_items(jj_run *r, jj_buf *b, const jj_val *v, size_t n, const char *open,
                            const char *close) {
    LN_TRY(jj_put_lit(r, b, open));
    for (size_t i = 0; i < n; i++) {
        if (i > 0) LN_TRY(jj_put_lit(r, b, ", "));
        LN_TRY(jj_put_repr(r, b, v[i]));
    }
    return jj_put_lit(r, b, close);
}

static ln_status repr_seq(jj_run *r, jj_buf *b, const jj_seq *q) {
    char text[80];
    switch (q->kind) {
    case JJ_LIST: return repr_items(r, b, q->v, q->n, "[", "]");
    case JJ_TUPLE: return repr_items(r, b, q->v, q->n, "(", q->n == 1 ? ",)" : ")");
    case JJ_KEYS: return repr_items(r, b, q->v, q->n, "dict_keys([", "])");
    case JJ_VALUES: return repr_items(r, b, q->v, q->n, "dict_values([", "])");
    case JJ_ITEMS: return repr_items(r, b, q->v, q->n, "dict_items([", "])");
    case JJ_LAZY: return jj_put_lit(r, b, "<generator object>");
    default: break;
    }
    if (q->step == 1)
        (void)snprintf(text, sizeof text, "range(%lld, %lld)", (long long)q->start, (long long)q->stop);
    else
        (void)snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)q->start, (long long)q->stop,
                       (long long)q->step);
    return jj_put_lit(r, b, text);
}

static ln_status repr_pairs(jj_run *r, jj_buf *b, const jj_val *keys, const jj_str **names,
                            const jj_val *values, size_t n) {
    LN_TRY(jj_put_lit(r, b, "{"));
    for (size_t i = 0; i < n; i++) {
        if (i > 0) LN_TRY(jj_put_lit(r, b, ", "));
        LN_TRY(jj_put_repr(r, b, keys ? keys[i] : jj_of(names[i])));
        LN_TRY(jj_put_lit(r, b, ": "));
        LN_TRY(jj_put_repr(r, b, values[i]));
    }
    return jj_put_lit(r, b, "}");
}

static ln_status repr(jj_run *r, jj_buf *b, jj_val v) {
    char text[64];
    const char *digits;
    bool minus;
    switch (v.kind) {
    case JJ_MISSING:
    case JJ_UNDEF: return jj_put_lit(r, b, "Undefined");
    case JJ_NONE: return jj_put_lit(r, b, "None");
    case JJ_BOOL: return jj_put_lit(r, b, v.u.b ? "True" : "False");
    case JJ_INT: (void)snprintf(text, sizeof text, "%lld", (long long)v.u.i); return jj_put_lit(r, b, text);
    case JJ_BIG:
        LN_TRY(jj_int_text(r, v, 10, &minus, &digits));
        LN_TRY(jj_put_lit(r, b, minus ? "-" : ""));
        return jj_put_lit(r, b, digits);
    case JJ_FLOAT: LN_TRY(jj_float_text(r, text, v.u.f)); return jj_put_lit(r, b, text);
    case JJ_STR: return repr_text(r, b, v.u.s);
    case JJ_SEQ: return repr_seq(r, b, v.u.q);
    case JJ_DICT: return repr_pairs(r, b, v.u.d->keys, NULL, v.u.d->values, v.u.d->n);
    case JJ_SPACE:
        LN_TRY(jj_put_lit(r, b, "<Namespace "));
        LN_TRY(repr_pairs(r, b, NULL, v.u.space->names, v.u.space->values, v.u.space->n));
        return jj_put_lit(r, b, ">");
    case JJ_MACRO:
        LN_TRY(jj_put_lit(r, b, "<Macro "));
        if (v.u.macro->name) LN_TRY(repr_text(r, b, v.u.macro->name));
        return jj_put_lit(r, b, v.u.macro->name ? ">" : "anonymous>");
    default: return jj_put_lit(r, b, v.kind == JJ_LOOP ? "<LoopContext>" : "<function>");
    }
}

ln_status jj_put_repr(jj_run *r, jj_buf *b, jj_val v) {
    LN_TRY(jj_spend(r, 0));
    if (++r->depth > JINJA_MAX_DEPTH) /* Only namespaces can contain themselves. */
        return jj_fail(r, "a value that contains itself, or is nested too deep to show");
    LN_TRY(repr(r, b, v));
    r->depth--;
    return LN_OK;
}

ln_status jj_put_value(jj_run *r, jj_buf *b, jj_val v) {
    if (v.kind == JJ_STR) return jj_put_str(r, b, v.u.s);
    if (v.kind == JJ_UNDEF) return LN_OK;
    return jj_put_repr(r, b, v);
}

ln_status jj_to_str(jj_run *r, jj_val v, const jj_str **out) {
    jj_buf b = {0};
    jj_val s = v;
    if (v.kind != JJ_STR) {
        LN_TRY(jj_put_value(r, &b, v));
        LN_TRY(jj_buf_str(r, &b, &s));
    }
    *out = s.u.s;
    return LN_OK;
}
