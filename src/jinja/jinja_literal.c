/* Literals: strings with Python's escape sequences, and numbers in four bases.
 *
 * Adjacent string literals are concatenated. Escapes are decoded once, at compile time; named characters
 * (\\N{...}) and surrogates are errors. Integers and floats are converted exactly. */
#include "jinja_big.h"
#include "jinja_parse.h"

static int hex(unsigned char c) {
    int low = c | 0x20;
    return c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

/* Parses exactly `n` hexadecimal digits at *s; -1 when there are fewer. */
static int64_t hex_digits(const char *s, const char *end, int n) {
    int64_t v = 0;
    for (int i = 0; i < n; i++, s++) {
        int d = s < end ? hex((unsigned char)*s) : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* Decodes the escape sequence after a backslash at *s into out (up to 4 bytes). Returns its length, or -1. */
static int escape(const char **s, const char *end, char *out) {
    static const char plain[] = "\\'\"abfnrtv", stands[] = "\\'\"\a\b\f\n\r\t\v";
    char c = *(*s)++;
    const char *known = c ? strchr(plain, c) : NULL;
    if (c == '\n') return 0;
    if (known) {
        out[0] = stands[known - plain];
        return 1;
    }
    int64_t cp = 0;
    if (c >= '0' && c <= '7') {
        cp = c - '0';
        for (int i = 0; i < 2 && *s < end && **s >= '0' && **s <= '7'; i++) cp = cp * 8 + (*(*s)++ - '0');
    } else if (c == 'x' || c == 'u' || c == 'U') {
        int n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        cp = hex_digits(*s, end, n);
        if (cp < 0 || cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff)) return -1;
        *s += n;
    } else if (c == 'N') {
        return -1; /* \N{...}, named characters */
    } else {
        out[0] = '\\';
        out[1] = c;
        return 2;
    }
    return ln_utf8_put(out, (uint32_t)cp);
}

static ln_status unescape(jj_parser *p, const jj_token *t, char *to, size_t *n) {
    const char *s = t->p + 1, *end = t->p + t->n - 1;
    while (s < end) {
        if (*s != '\\') {
            to[(*n)++] = *s++;
            continue;
        }
        const char *from = s++;
        char piece[4];
        int length = escape(&s, end, piece);
        if (length < 0)
            return jj_fail_at(p->t, t->at + (size_t)(from - t->p), p->err,
                              "an escape that names no character");
        memcpy(to + *n, piece, (size_t)length);
        *n += (size_t)length;
    }
    return LN_OK;
}

ln_status jj_constant(jj_parser *p, size_t at, jj_val v, jj_node **out) {
    LN_TRY(jj_node_new(p, N_CONST, at, out));
    (*out)->value = v;
    (*out)->constant = true;
    return LN_OK;
}

/* Parses adjacent string literals into one string. */
ln_status jj_text_literal(jj_parser *p, jj_node **out) {
    size_t at = p->cur.at, n = 0, cap = 0;
    char *all = NULL;
    while (p->cur.kind == T_STR) {
        if (n + p->cur.n > cap) {
            cap = (n + p->cur.n) * 2;
            char *grown = jj_keep(p, cap);
            if (!grown) return jj_oom(p);
            if (n > 0) memcpy(grown, all, n);
            all = grown;
        }
        LN_TRY(unescape(p, &p->cur, all, &n));
        LN_TRY(jj_advance(p));
    }
    jj_str *s = jj_keep(p, sizeof *s);
    if (!s) return jj_oom(p);
    *s = (jj_str){.p = all, .n = n, .chars = jj_chars(all, n)};
    LN_TRY(jj_written(p, s));
    return jj_constant(p, at, jj_of(s), out);
}

static ln_status int_literal(jj_parser *p, const char *digits, size_t n, jj_val *out) {
    jj_wide w;
    int64_t i;
    bool prefixed = n > 2 && digits[0] == '0' && (digits[1] | 0x20) > '9';
    unsigned base = !prefixed ? 10 : (digits[1] | 0x20) == 'x' ? 16 : (digits[1] | 0x20) == 'o' ? 8 : 2;
    size_t skip = prefixed ? 2 : 0;
    bool good = (base != 10 || n <= JJ_BIG_DIGITS) && jj_wide_read(&w, digits + skip, n - skip, base);
    if (!good || w.n > JJ_BIG_BITS / 32)
        return jj_fail_at(p->t, p->cur.at, p->err, "an integer of more than %d digits or %d bits",
                          JJ_BIG_DIGITS, JJ_BIG_BITS);
    if (jj_wide_int(&w, &i)) return *out = jj_int(i), LN_OK;
    jj_big *buffer = jj_keep(p, jj_big_bytes(&w));
    if (!buffer) return jj_oom(p);
    *out = jj_big_put(&w, buffer);
    return LN_OK;
}

ln_status jj_number_literal(jj_parser *p, jj_node **out) {
    char *digits = jj_keep(p, p->cur.n + 1);
    size_t n = 0, zeros = 0, at = p->cur.at;
    jj_val v = jj_int(0);
    if (!digits) return jj_oom(p);
    for (size_t i = 0; i < p->cur.n; i++)
        if (p->cur.p[i] != '_') digits[n++] = p->cur.p[i];
    if (p->cur.kind == T_FLOAT) { /* Python allows leading zeros in floats */
        while (zeros + 1 < n && digits[zeros] == '0' && digits[zeros + 1] >= '0' && digits[zeros + 1] <= '9')
            zeros++;
        v.kind = JJ_FLOAT;
        if (!ln_parse_f64(digits + zeros, n - zeros, &v.u.f))
            return jj_fail_at(p->t, at, p->err, "a number beyond the range of a double");
    } else {
        LN_TRY(int_literal(p, digits, n, &v));
    }
    LN_TRY(jj_advance(p));
    return jj_constant(p, at, v, out);
}
