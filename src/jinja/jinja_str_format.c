/* str.format(...) and str.format_map(mapping) as in Jinja2's sandbox: Python's string.Formatter, in which
 * attributes and items of a field ({0.name}, {a[key]}) are resolved by the rules of the template, so that a
 * format string has no more access than an expression. */
#include "jinja_format.h"

enum { MOST_NESTING = 2 }; /* nested fields within specifications */

typedef struct formatting {
    const jj_val *args;
    size_t n_args;
    const jj_call *named; /* keyword arguments, or NULL */
    jj_val map;           /* the argument of format_map */
    int64_t next;         /* next index of automatic field numbering; -1: fields have explicit numbers */
} formatting;

typedef struct field { /* a replacement field; byte ranges in the format string */
    size_t name, name_end, spec, spec_end;
    char conversion;
    bool nested; /* the specification contains fields */
} field;

/* ---- ascii() and chr() ---- */

ln_status jj_put_ascii(jj_run *r, jj_buf *b, jj_val v) {
    jj_buf own = {0};
    jj_val s;
    LN_TRY(jj_put_repr(r, &own, v));
    LN_TRY(jj_buf_str(r, &own, &s));
    for (size_t at = 0, n; at < s.u.s->n; at += n) {
        uint32_t cp;
        char piece[16];
        n = utf8_next(s.u.s->p + at, &cp);
        if (cp < 0x80) {
            LN_TRY(jj_put_part(r, b, s.u.s, at, at + n));
            continue;
        }
        (void)snprintf(piece, sizeof piece,
                       cp < 0x100     ? "\\x%02x"
                       : cp < 0x10000 ? "\\u%04x"
                                      : "\\U%08x",
                       (unsigned)cp);
        LN_TRY(jj_put_like(r, b, piece, strlen(piece), s.u.s, at));
    }
    return jj_spend(r, s.u.s->n * JJ_PER_CHAR);
}

ln_status jj_put_code_point(jj_run *r, jj_buf *b, jj_val v, const char *what) {
    int64_t cp;
    char utf8[4];
    bool good = jj_integer(v, &cp) && cp >= 0 && cp <= 0x10ffff;
    if (!good) return jj_fail(r, "%s: expected a character or the number of one, found %s", what, jj_type(v));
    if (cp >= 0xd800 && cp < 0xe000) return jj_fail(r, "%s: a surrogate is no character of a text", what);
    return jj_put(r, b, utf8, (size_t)ln_utf8_put(utf8, (uint32_t)cp), false);
}

ln_status jj_upper_digits(jj_run *r, const char **text) {
    size_t n = strlen(*text);
    char *copy = jj_take(r, n + 1);
    if (!copy) return jj_nomem(r);
    for (size_t i = 0; i < n; i++)
        copy[i] = (char)((*text)[i] >= 'a' && (*text)[i] <= 'z' ? (*text)[i] - 32 : (*text)[i]);
    *text = copy;
    return LN_OK;
}

/* ---- the value of a replacement field ---- */

/* Parses an unsigned integer; false: other characters than digits. From 19 digits on the result is INT64_MAX.
 */
static bool whole_number(const char *p, size_t n, int64_t *out) {
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9') return false;
        *out = i < 18 ? *out * 10 + (p[i] - '0') : INT64_MAX;
    }
    return n > 0;
}

static ln_status named_value(jj_run *r, const formatting *f, const jj_str *name, jj_val *out) {
    char shown[80];
    bool hashable;
    out->kind = JJ_MISSING;
    if (f->map.kind == JJ_DICT) LN_TRY(jj_dict_get(r, f->map.u.d, jj_of(name), out, &hashable));
    for (size_t i = 0; f->named && i < f->named->n_named; i++)
        if (jj_str_eq(f->named->names[i], name)) *out = f->named->named[i];
    if (out->kind != JJ_MISSING) return LN_OK;
    return jj_fail(r, "format: no argument for the field '%s'", ln_excerpt(shown, name->p, name->n));
}

/* Evaluates the argument at the beginning of a field: its name up to the first '.' or '['. */
static ln_status argument(jj_run *r, formatting *f, const jj_str *s, size_t from, size_t to, size_t *end,
                          jj_val *out) {
    int64_t index;
    for (*end = from; *end < to && s->p[*end] != '.' && s->p[*end] != '[';) ++*end;
    bool number = whole_number(s->p + from, *end - from, &index);
    if (from == to) {
        if (f->next < 0)
            return jj_fail(r, "cannot switch from manual field specification to automatic field numbering");
        index = f->next++;
    } else if (number && *end == to) {
        if (f->next > 0)
            return jj_fail(r, "cannot switch from manual field specification to automatic field numbering");
        f->next = -1;
    } else if (!number) {
        const jj_str *name = jj_str_part(r, s, from, *end);
        return name ? named_value(r, f, name, out) : jj_nomem(r);
    }
    if ((uint64_t)index >= f->n_args)
        return jj_fail(r, "format: expected more than %lld positional arguments, found %zu", (long long)index,
                       f->n_args);
    *out = f->args[index];
    return LN_OK;
}

static ln_status value_of(jj_run *r, formatting *f, const jj_str *s, size_t from, size_t to, jj_val *out) {
    size_t at, end;
    int64_t index;
    LN_TRY(argument(r, f, s, from, to, &at, out));
    while (at < to) {
        bool attribute = s->p[at] == '.';
        if (!attribute && s->p[at] != '[')
            return jj_fail(r, "Only '.' or '[' may follow ']' in format field specifier");
        for (end = ++at; end < to && (attribute ? s->p[end] != '.' && s->p[end] != '[' : s->p[end] != ']');)
            end++;
        if (!attribute && end == to) return jj_fail(r, "Missing ']' in format string");
        if (end == at) return jj_fail(r, "Empty attribute in format string");
        const jj_str *name = jj_str_part(r, s, at, end);
        if (!name) return jj_nomem(r);
        bool number = !attribute && whole_number(name->p, name->n, &index);
        if (number && index == INT64_MAX) return jj_fail(r, "Too many decimal digits in format string");
        if (attribute) LN_TRY(jj_attr(r, *out, name, out));
        else LN_TRY(jj_item(r, *out, number ? jj_int(index) : jj_of(name), out));
        at = attribute ? end : end + 1;
    }
    return LN_OK;
}

/* ---- the format string ---- */

/* Parses a field whose '{' precedes *at; *at is advanced past its '}'. */
static ln_status read_field(jj_run *r, const jj_str *s, size_t *at, field *f) {
    size_t i = *at;
    char c = '\0';
    *f = (field){.name = *at};
    for (; i < s->n; i++) {
        c = s->p[i];
        if (c == '{') return jj_fail(r, "unexpected '{' in field name");
        if (c == '[')
            while (i + 1 < s->n && s->p[i + 1] != ']') i++;
        if (c == '}' || c == ':' || c == '!') break;
    }
    if (i >= s->n) return jj_fail(r, "expected '}' before end of string");
    f->name_end = i++;
    *at = i;
    if (c == '}') return LN_OK;
    if (c == '!') {
        uint32_t cp;
        if (i >= s->n) return jj_fail(r, "end of string while looking for conversion specifier");
        i += utf8_next(s->p + i, &cp);
        f->conversion = (char)(cp < 0x80 && cp ? cp : '?');
        if (i < s->n) {
            c = s->p[i++];
            *at = i;
            if (c == '}') return LN_OK;
            if (c != ':') return jj_fail(r, "expected ':' after conversion specifier");
        }
    }
    f->spec = i;
    for (int open = 1; i < s->n; i++) {
        f->nested = f->nested || s->p[i] == '{';
        open += s->p[i] == '{' ? 1 : s->p[i] == '}' ? -1 : 0;
        if (open > 0) continue;
        f->spec_end = i;
        *at = i + 1;
        return LN_OK;
    }
    return jj_fail(r, "unmatched '{' in format spec");
}

static ln_status convert(jj_run *r, char how, jj_val v, jj_val *out) {
    jj_buf b = {0};
    *out = v;
    if (how == '\0') return LN_OK;
    if (how == 's') LN_TRY(jj_put_value(r, &b, v));
    else if (how == 'r') LN_TRY(jj_put_repr(r, &b, v));
    else if (how == 'a') LN_TRY(jj_put_ascii(r, &b, v));
    else return jj_fail(r, "Unknown conversion specifier %c", how);
    return jj_buf_str(r, &b, out);
}

static ln_status expand(jj_run *r, formatting *f, const jj_str *s, int nesting, jj_buf *b);

static ln_status put_field(jj_run *r, formatting *f, const jj_str *s, const field *at, int nesting,
                           jj_buf *b) {
    jj_val v, spec;
    jj_buf text = {0};
    LN_TRY(value_of(r, f, s, at->name, at->name_end, &v));
    LN_TRY(convert(r, at->conversion, v, &v));
    const jj_str *form = jj_str_part(r, s, at->spec, at->spec_end);
    if (!form) return jj_nomem(r);
    if (nesting == 0) return jj_fail(r, "Max string recursion exceeded");
    LN_TRY(expand(r, f, form, nesting - 1, &text)); /* doubled braces are escapes in there too */
    LN_TRY(jj_buf_str(r, &text, &spec));
    return jj_put_spec(r, b, v, spec.u.s);
}

static ln_status expand(jj_run *r, formatting *f, const jj_str *s, int nesting, jj_buf *b) {
    for (size_t at = 0, done = 0; at < s->n || done < s->n;) {
        size_t hit = at;
        while (hit < s->n && s->p[hit] != '{' && s->p[hit] != '}') hit++;
        LN_TRY(jj_put_part(r, b, s, done, hit));
        if (hit == s->n) break;
        char c = s->p[hit];
        at = hit + 1;
        if (at < s->n && s->p[at] == c) { /* a doubled brace stands for itself */
            done = at++;
            continue;
        }
        if (c == '}') return jj_fail(r, "Single '}' encountered in format string");
        if (at == s->n) return jj_fail(r, "Single '{' encountered in format string");
        field here;
        LN_TRY(jj_spend(r, 0));
        LN_TRY(read_field(r, s, &at, &here));
        LN_TRY(put_field(r, f, s, &here, nesting, b));
        done = at;
    }
    return LN_OK;
}

static ln_status run(jj_run *r, jj_val self, formatting *f, jj_val *out) {
    jj_buf b = {0};
    if (self.u.s->markup) return jj_fail(r, "formatting escaped text is not supported");
    LN_TRY(expand(r, f, self.u.s, MOST_NESTING, &b));
    return jj_buf_str(r, &b, out);
}

ln_status jj_str_format(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    formatting f = {.args = c->pos, .n_args = c->n_pos, .named = c};
    (void)a;
    return run(r, self, &f, out);
}

ln_status jj_str_format_map(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    (void)a;
    if (c->n_named > 0) return jj_fail(r, "format_map() takes no keyword arguments");
    if (c->n_pos != 1) return jj_fail(r, "format_map() takes exactly one argument (%zu given)", c->n_pos);
    formatting f = {.map = c->pos[0]};
    return run(r, self, &f, out);
}
