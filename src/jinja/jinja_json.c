/* JSON: parsing into values, and writing as Python's json.dumps.
 *
 * The parser consumes the tokens of the strict pull reader; open containers are on a stack as deep as the
 * reader allows. Keys of messages and tools are data like their strings. The writer keeps the origin of
 * each byte, including escape sequences. */
#include "jinja_big.h"

#include <math.h>

typedef struct frame {
    bool object;
    jj_val *keys, *values;
    size_t n, cap;
} frame;

typedef struct reading {
    jj_run *r;
    ln_json *j;
    const jj_str *from; /* the string being parsed, whose origins its values inherit; NULL: `data` holds */
    bool data;
    frame stack[LN_JSON_MAX_DEPTH + 1];
    int depth;
} reading;

static ln_status big_number(reading *d, jj_val *out) {
    const ln_json *j = d->j;
    size_t sign = j->text[0] == '-';
    jj_wide w;
    if (j->text_bytes - sign > JJ_BIG_DIGITS || !jj_wide_read(&w, j->text + sign, j->text_bytes - sign, 10))
        return ln_json_fail(d->j, d->r->err, "expected integers of at most %d digits", JJ_BIG_DIGITS);
    w.minus = sign > 0;
    LN_TRY(jj_spend(d->r, j->text_bytes * j->text_bytes / 16));
    return jj_narrow(d->r, &w, out);
}

static ln_status number(reading *d, jj_val *out) {
    const ln_json *j = d->j;
    bool real = memchr(j->text, '.', j->text_bytes) || memchr(j->text, 'e', j->text_bytes) ||
                memchr(j->text, 'E', j->text_bytes);
    if (!real && j->text_bytes == 2 && memcmp(j->text, "-0", 2) == 0) return *out = jj_int(0), LN_OK;
    if (!real && ln_parse_i64(j->text, j->text_bytes, &out->u.i)) return out->kind = JJ_INT, LN_OK;
    if (!real) return big_number(d, out);
    out->kind = JJ_FLOAT;
    return ln_parse_f64(j->text, j->text_bytes, &out->u.f)
               ? LN_OK
               : ln_json_fail(d->j, d->r->err, "expected numbers in the range of a double");
}

static ln_status text(reading *d, jj_val *out) {
    bool data = d->data;
    if (d->from) { /* a JSON string is data when any of its bytes is */
        data = false;
        for (size_t i = d->j->offset; i < d->j->at && !data; i++) data = jj_byte_data(d->from, i);
    }
    return jj_str_new(d->r, d->j->text, d->j->text_bytes, data, out);
}

static ln_status grow(reading *d, frame *l) {
    if (l->n < l->cap) return LN_OK;
    size_t cap = l->cap ? l->cap * 2 : 8;
    jj_val *v = jj_take(d->r, cap * sizeof *v), *k = l->object ? jj_take(d->r, cap * sizeof *k) : NULL;
    if (!v || (l->object && !k)) return jj_nomem(d->r);
    if (l->n > 0) memcpy(v, l->values, l->n * sizeof *v);
    if (l->n > 0 && k) memcpy(k, l->keys, l->n * sizeof *k);
    l->values = v;
    l->keys = k;
    l->cap = cap;
    return LN_OK;
}

static ln_status close(reading *d, jj_val *out) {
    frame *l = &d->stack[--d->depth];
    if (!l->object) return jj_seq_new(d->r, JJ_LIST, l->values, l->n, out);
    size_t given = l->n;
    LN_TRY(jj_dict_new(d->r, l->keys, l->values, l->n, out));
    return out->u.d->n == given ? LN_OK
                                : ln_json_fail(d->j, d->r->err, "expected each key once, found a duplicate");
}

ln_status jj_json_read(jj_run *r, ln_json *j, bool data, const jj_str *from, jj_val *out, ln_error *err) {
    reading d = {.r = r, .j = j, .from = from, .data = data};
    do {
        jj_val v = {0};
        LN_TRY(ln_json_next(j, err));
        switch (j->type) {
        case LN_J_OBJECT:
        case LN_J_ARRAY:
            if (d.depth > LN_JSON_MAX_DEPTH)
                return ln_json_fail(j, err, "nested deeper than %d", LN_JSON_MAX_DEPTH);
            d.stack[d.depth++] = (frame){.object = j->type == LN_J_OBJECT};
            continue;
        case LN_J_KEY: {
            frame *l = &d.stack[d.depth - 1];
            LN_TRY(grow(&d, l));
            LN_TRY(text(&d, &l->keys[l->n]));
            continue;
        }
        case LN_J_OBJECT_END:
        case LN_J_ARRAY_END: LN_TRY(close(&d, &v)); break;
        case LN_J_STRING: LN_TRY(text(&d, &v)); break;
        case LN_J_NUMBER: LN_TRY(number(&d, &v)); break;
        case LN_J_TRUE:
        case LN_J_FALSE: v = jj_bool(j->type == LN_J_TRUE); break;
        case LN_J_NULL: v = jj_none(); break;
        case LN_J_END: return ln_json_fail(j, err, "expected a value");
        }
        if (d.depth == 0) {
            *out = v;
            return LN_OK;
        }
        frame *l = &d.stack[d.depth - 1];
        LN_TRY(grow(&d, l));
        l->values[l->n++] = v;
    } while (true);
}

/* ---- writing ---- */

static ln_status write_text(jj_run *r, jj_buf *b, const jj_str *s, bool ascii) {
    static const char short_form[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    size_t done = 0;
    LN_TRY(jj_put_lit(r, b, "\""));
    for (size_t at = 0, n; at < s->n; at += n) {
        uint32_t cp;
        char piece[16];
        n = utf8_next(s->p + at, &cp);
        const char *known = cp > 0 && cp < 0x80 ? strchr(short_form, (int)cp) : NULL;
        bool is_first = known && (known - short_form) % 2 == 0;
        if (is_first) (void)snprintf(piece, sizeof piece, "\\%c", known[1]);
        else if (cp < 0x20) (void)snprintf(piece, sizeof piece, "\\u%04x", (unsigned)cp);
        else if (cp < 0x7f || !ascii) continue;
        else if (cp < 0x80) continue; /* DEL */
        else if (cp < 0x10000) (void)snprintf(piece, sizeof piece, "\\u%04x", (unsigned)cp);
        else
            (void)snprintf(piece, sizeof piece, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (cp >> 10)),
                           (unsigned)(0xdc00 + (cp & 0x3ff)));
        LN_TRY(jj_put_part(r, b, s, done, at));
        LN_TRY(jj_put_like(r, b, piece, strlen(piece), s, at));
        done = at + n;
    }
    LN_TRY(jj_put_part(r, b, s, done, s->n));
    return jj_put_lit(r, b, "\"");
}

static ln_status write_float(jj_run *r, jj_buf *b, double v) {
    char text[40];
    if (isnan(v)) return jj_put_lit(r, b, "NaN");
    if (isinf(v)) return jj_put_lit(r, b, v < 0 ? "-Infinity" : "Infinity");
    LN_TRY(jj_float_text(r, text, v));
    return jj_put_lit(r, b, text);
}

static ln_status new_line(jj_run *r, jj_buf *b, const jj_json_how *how, int level) {
    if (!how->indent) return LN_OK;
    LN_TRY(jj_put_lit(r, b, "\n"));
    for (int i = 0; i < level; i++) LN_TRY(jj_put_str(r, b, how->indent));
    return LN_OK;
}

/* Writes a dictionary key; keys that are not strings are written as JSON in quotes. */
static ln_status write_key(jj_run *r, jj_buf *b, jj_val key, const jj_json_how *how) {
    if (key.kind == JJ_STR) return write_text(r, b, key.u.s, how->ascii);
    if (key.kind != JJ_INT && key.kind != JJ_BIG && key.kind != JJ_FLOAT && key.kind != JJ_BOOL &&
        key.kind != JJ_NONE)
        return jj_fail(r, "keys must be str, int, float, bool or None, not %s", jj_type(key));
    LN_TRY(jj_put_lit(r, b, "\""));
    LN_TRY(jj_json_write(r, b, key, how, 0));
    return jj_put_lit(r, b, "\"");
}

static ln_status write_many(jj_run *r, jj_buf *b, const jj_val *keys, const jj_val *values, size_t n,
                            const jj_json_how *how, int level) {
    LN_TRY(jj_put_lit(r, b, keys ? "{" : "["));
    for (size_t i = 0; i < n; i++) {
        if (i > 0) LN_TRY(jj_put_str(r, b, how->comma));
        LN_TRY(new_line(r, b, how, level + 1));
        if (keys) LN_TRY(write_key(r, b, keys[i], how));
        if (keys) LN_TRY(jj_put_str(r, b, how->colon));
        LN_TRY(jj_json_write(r, b, values[i], how, level + 1));
    }
    if (n > 0) LN_TRY(new_line(r, b, how, level));
    return jj_put_lit(r, b, keys ? "}" : "]");
}

static ln_status write_dict(jj_run *r, jj_buf *b, const jj_dict *d, const jj_json_how *how, int level) {
    static const jj_val nothing = {0};
    const jj_val *keys = d->n > 0 ? d->keys : &nothing, *values = d->values;
    if (how->sort && d->n > 0) {
        jj_val *k = jj_take(r, d->n * sizeof *k), *v = jj_take(r, d->n * sizeof *v);
        if (!k || !v) return jj_nomem(r);
        memcpy(k, d->keys, d->n * sizeof *k);
        memcpy(v, d->values, d->n * sizeof *v);
        LN_TRY(jj_sort(r, k, v, d->n, false));
        keys = k;
        values = v;
    }
    return write_many(r, b, keys, values, d->n, how, level);
}

ln_status jj_json_write(jj_run *r, jj_buf *b, jj_val v, const jj_json_how *how, int level) {
    char text[32];
    LN_TRY(jj_spend(r, 0));
    switch (v.kind) {
    case JJ_NONE: return jj_put_lit(r, b, "null");
    case JJ_BOOL: return jj_put_lit(r, b, v.u.b ? "true" : "false");
    case JJ_INT: (void)snprintf(text, sizeof text, "%lld", (long long)v.u.i); return jj_put_lit(r, b, text);
    case JJ_BIG: return jj_put_repr(r, b, v);
    case JJ_FLOAT: return write_float(r, b, v.u.f);
    case JJ_STR: return write_text(r, b, v.u.s, how->ascii);
    case JJ_DICT: return write_dict(r, b, v.u.d, how, level);
    case JJ_SEQ:
        if (v.u.q->kind <= JJ_TUPLE) return write_many(r, b, NULL, v.u.q->v, v.u.q->n, how, level);
        break;
    default: break;
    }
    return jj_fail(r, "Object of type %s is not JSON serializable", jj_type(v));
}
