/* Operators, attributes, items and slices.
 *
 * Integers have 64 bits if they fit, else they are arbitrary-precision (jinja_big.c). Division and remainder
 * round towards minus infinity. v.name looks for an attribute first and a key second, v[key] the other way
 * round, as in Jinja2's sandbox. Methods that modify a list or a dictionary are rejected. */
#include "jinja_big.h"

#include <math.h>

static ln_status mismatch(jj_run *r, jj_op op, jj_val a, jj_val b) {
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
    if (a.kind == JJ_UNDEF) return jj_undef_fail(r, a);
    if (b.kind == JJ_UNDEF) return jj_undef_fail(r, b);
    if (op == JJ_ADD && (a.kind == JJ_STR || (a.kind == JJ_SEQ && a.u.q->kind <= JJ_TUPLE)))
        return jj_fail(r, "can only concatenate %s (not \"%s\") to %s", jj_type(a), jj_type(b), jj_type(a));
    return jj_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", names[op], jj_type(a), jj_type(b));
}

/* ---- numbers ---- */

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

static double float_mod(double a, double b) {
    double m = fmod(a, b);
    if (m == 0) return copysign(0.0, b);
    return (m < 0) != (b < 0) ? m + b : m;
}

static double float_floor_div(double a, double b) {
    double m = fmod(a, b), q = (a - m) / b;
    if (m != 0 && (b < 0) != (m < 0)) q -= 1;
    if (q == 0) return copysign(0.0, a / b);
    double f = floor(q);
    return q - f > 0.5 ? f + 1 : f;
}

static bool int_power(int64_t base, int64_t exp, int64_t *out) { /* false: overflow of 64 bits */
    *out = 1;
    for (int64_t e = exp, b = base; e > 0; e >>= 1) {
        if ((e & 1) && __builtin_mul_overflow(*out, b, out)) return false;
        if (b == -1) b = 1;
        else if (e > 1 && b != 0 && b != 1 && __builtin_mul_overflow(b, b, &b)) return false;
    }
    return true;
}

static ln_status float_power(jj_run *r, double a, double b, jj_val *out) {
    if (a == 0 && b < 0) return jj_fail(r, "0.0 cannot be raised to a negative power");
    if (a < 0 && isfinite(a) && isfinite(b) && floor(b) != b) return jj_fail(r, "a complex number");
    double v = pow(a, b);
    if (isinf(v) && isfinite(a) && isfinite(b)) return jj_fail(r, "a float out of range");
    *out = jj_float(v);
    return LN_OK;
}

#define EXACT (INT64_C(1) << 53) /* a double represents every integer up to here exactly */
static ln_status int_op(jj_run *r, jj_op op, int64_t a, int64_t b, jj_val *out) {
    int64_t v = 0;
    bool over = false;
    if (b == 0 && (op == JJ_DIV || op == JJ_FLOORDIV || op == JJ_MOD)) return jj_fail(r, "division by zero");
    switch (op) {
    case JJ_ADD: over = __builtin_add_overflow(a, b, &v); break;
    case JJ_SUB: over = __builtin_sub_overflow(a, b, &v); break;
    case JJ_MUL: over = __builtin_mul_overflow(a, b, &v); break;
    case JJ_DIV:
        over = a > EXACT || a < -EXACT || b > EXACT || b < -EXACT;
        if (!over) return *out = jj_float((double)a / (double)b), LN_OK;
        break;
    case JJ_FLOORDIV:
        over = a == INT64_MIN && b == -1;
        if (!over) v = floor_div(a, b);
        break;
    case JJ_MOD: v = b == -1 ? 0 : a - floor_div(a, b) * b; break;
    default:
        if (b < 0) return float_power(r, (double)a, (double)b, out);
        over = !int_power(a, b, &v);
    }
    if (over) return jj_big_op(r, op, jj_int(a), jj_int(b), out);
    *out = jj_int(v);
    return LN_OK;
}

/* An operation in which at least one operand is an integer beyond 64 bits. */
static ln_status big_op(jj_run *r, jj_op op, jj_val a, jj_val b, jj_val *out) {
    double x, y;
    bool negative = b.kind == JJ_BIG ? b.u.big->minus : b.kind == JJ_INT && b.u.i < 0;
    if (op != JJ_POW || !negative) return jj_big_op(r, op, a, b, out);
    LN_TRY(jj_real(r, a, &x));
    LN_TRY(jj_real(r, b, &y));
    return float_power(r, x, y, out);
}

static ln_status float_op(jj_run *r, jj_op op, double a, double b, jj_val *out) {
    if (b == 0 && (op == JJ_DIV || op == JJ_FLOORDIV || op == JJ_MOD))
        return jj_fail(r, "float division by zero");
    double v = op == JJ_ADD        ? a + b
               : op == JJ_SUB      ? a - b
               : op == JJ_MUL      ? a * b
               : op == JJ_DIV      ? a / b
               : op == JJ_FLOORDIV ? float_floor_div(a, b)
                                   : float_mod(a, b);
    if (op == JJ_POW) return float_power(r, a, b, out);
    *out = jj_float(v);
    return LN_OK;
}

ln_status jj_negative(jj_run *r, jj_val v, bool minus, jj_val *out) {
    int64_t i;
    if (v.kind == JJ_UNDEF) return jj_undef_fail(r, v);
    if (v.kind == JJ_FLOAT) {
        *out = jj_float(minus ? -v.u.f : v.u.f);
        return LN_OK;
    }
    if (v.kind == JJ_BIG && !minus) return *out = v, LN_OK;
    if (minus && (v.kind == JJ_BIG || (v.kind == JJ_INT && v.u.i == INT64_MIN)))
        return jj_big_negative(r, v, out);
    if (!jj_integer(v, &i))
        return jj_fail(r, "bad operand type for unary %c: '%s'", minus ? '-' : '+', jj_type(v));
    *out = jj_int(minus ? -i : i);
    return LN_OK;
}

/* ---- strings and lists ---- */

static ln_status join_lists(jj_run *r, const jj_seq *a, const jj_seq *b, jj_val *out) {
    jj_val *v = jj_take(r, (a->n + b->n) * sizeof *v + 1);
    if (!v) return jj_nomem(r);
    if (a->n > 0) memcpy(v, a->v, a->n * sizeof *v);
    if (b->n > 0) memcpy(v + a->n, b->v, b->n * sizeof *v);
    return jj_seq_new(r, a->kind, v, a->n + b->n, out);
}

static ln_status repeat(jj_run *r, jj_val v, int64_t times, jj_val *out) {
    uint64_t n = times > 0 ? (uint64_t)times : 0, size = v.kind == JJ_STR ? v.u.s->n : v.u.q->n, total;
    uint64_t most = v.kind == JJ_STR ? JINJA_MAX_TEXT : JINJA_MAX_ITEMS;
    if (__builtin_mul_overflow(n, size, &total) || total > most)
        return jj_fail(r, "expected at most %llu bytes or items, found a repetition of more",
                       (unsigned long long)most);
    if (size == 0) n = 0;
    if (v.kind == JJ_STR) {
        jj_buf b = {0};
        for (uint64_t i = 0; i < n; i++) LN_TRY(jj_put_str(r, &b, v.u.s));
        LN_TRY(jj_buf_str(r, &b, out));
        return v.u.s->markup ? jj_mark(r, out->u.s, out) : LN_OK;
    }
    jj_val *items = jj_take(r, (size_t)total * sizeof *items + 1);
    if (!items) return jj_nomem(r);
    for (uint64_t i = 0; i < n; i++) memcpy(items + i * size, v.u.q->v, size * sizeof *items);
    return jj_seq_new(r, v.u.q->kind, items, (size_t)total, out);
}

static bool plain_list(jj_val v) { return v.kind == JJ_SEQ && v.u.q->kind <= JJ_TUPLE; }

ln_status jj_binary(jj_run *r, jj_op op, jj_val a, jj_val b, jj_val *out) {
    int64_t i, k;
    double x, y;
    if (a.kind == JJ_STR && b.kind == JJ_STR && op == JJ_ADD) return jj_str_join(r, a.u.s, b.u.s, out);
    if (jj_integer(a, &i) && jj_integer(b, &k)) return int_op(r, op, i, k, out);
    if (jj_is_int(a) && jj_is_int(b)) return big_op(r, op, a, b, out);
    if (jj_number(a, &x) && jj_number(b, &y)) {
        LN_TRY(jj_real(r, a, &x));
        LN_TRY(jj_real(r, b, &y));
        return float_op(r, op, x, y, out);
    }
    if (op == JJ_ADD && plain_list(a) && plain_list(b) && a.u.q->kind == b.u.q->kind)
        return join_lists(r, a.u.q, b.u.q, out);
    if (op == JJ_MUL && (a.kind == JJ_STR || plain_list(a)) && jj_integer(b, &k)) return repeat(r, a, k, out);
    if (op == JJ_MUL && (b.kind == JJ_STR || plain_list(b)) && jj_integer(a, &i)) return repeat(r, b, i, out);
    bool listed = a.kind == JJ_STR || b.kind == JJ_STR || plain_list(a) || plain_list(b);
    if (op == JJ_MUL && listed && (a.kind == JJ_BIG || b.kind == JJ_BIG))
        return jj_fail(r, "cannot repeat by an integer beyond 64 bits");
    if (op == JJ_MOD && a.kind == JJ_STR) return jj_format(r, a.u.s, b, out);
    return mismatch(r, op, a, b);
}

/* ---- attributes and items ---- */

static ln_status refused(jj_run *r, jj_val of, const jj_str *name, jj_val *out) {
    (void)of;
    LN_TRY(jj_undef_form(r, "the sandbox forbids this attribute", out));
    jj_undef *u = jj_take(r, sizeof *u);
    if (!u) return jj_nomem(r);
    *u = *out->u.undef;
    u->name = name;
    out->u.undef = u;
    return LN_OK;
}

/* An attribute that is not an item; JJ_MISSING when there is none. */
static ln_status own_attr(jj_run *r, jj_val v, const jj_str *name, jj_val *out) {
    bool unsafe = false;
    out->kind = JJ_MISSING;
    if (v.kind == JJ_SPACE) {
        jj_val *found = jj_space_find(v.u.space, name);
        if (found && name->n > 0 && name->p[0] == '_') return refused(r, v, name, out);
        if (found) *out = *found;
        return LN_OK;
    }
    if (v.kind == JJ_LOOP) return jj_loop_attr(r, v.u.loop, name, out);
    LN_TRY(jj_object_attr(r, v, name, out));
    if (out->kind != JJ_MISSING) return LN_OK;
    const jj_func *f = jj_method_named(v, name->p, name->n, &unsafe);
    if (unsafe) return refused(r, v, name, out);
    if (!f) return LN_OK;
    jj_bound *b = jj_take(r, sizeof *b);
    if (!b) return jj_nomem(r);
    *b = (jj_bound){f, v};
    *out = (jj_val){JJ_METHOD, {.bound = b}};
    return LN_OK;
}

/* An item; JJ_MISSING when there is none or the key has the wrong type. */
static ln_status own_item(jj_run *r, jj_val v, jj_val key, jj_val *out) {
    int64_t i;
    bool hashable;
    out->kind = JJ_MISSING;
    if (v.kind == JJ_DICT) return jj_dict_get(r, v.u.d, key, out, &hashable);
    if (!jj_integer(key, &i)) return LN_OK;
    if (v.kind == JJ_SEQ && v.u.q->kind <= JJ_RANGE) {
        int64_t n = (int64_t)v.u.q->n;
        if (i < 0) i += n;
        if (i >= 0 && i < n) *out = v.u.q->v[i];
    } else if (v.kind == JJ_STR) {
        const jj_str *s = v.u.s;
        int64_t n = (int64_t)s->chars;
        if (i < 0) i += n;
        if (i < 0 || i >= n) return LN_OK;
        LN_TRY(jj_spend(r, s->chars == s->n ? 0 : s->n));
        size_t from = jj_str_at(s, (size_t)i);
        uint32_t cp;
        return jj_str_cut(r, s, from, from + utf8_next(s->p + from, &cp), out);
    }
    return LN_OK;
}

ln_status jj_attr(jj_run *r, jj_val v, const jj_str *name, jj_val *out) {
    if (v.kind == JJ_UNDEF) return jj_undef_fail(r, v);
    LN_TRY(own_attr(r, v, name, out));
    if (out->kind == JJ_MISSING) LN_TRY(own_item(r, v, jj_of(name), out));
    return out->kind == JJ_MISSING ? jj_undef_attr(r, v, jj_of(name), out) : LN_OK;
}

ln_status jj_item(jj_run *r, jj_val v, jj_val key, jj_val *out) {
    if (v.kind == JJ_UNDEF) return jj_undef_fail(r, v);
    LN_TRY(own_item(r, v, key, out));
    if (out->kind == JJ_MISSING && key.kind == JJ_STR) LN_TRY(own_attr(r, v, key.u.s, out));
    return out->kind == JJ_MISSING ? jj_undef_attr(r, v, key, out) : LN_OK;
}

/* ---- slices ---- */

/* Converts a bound of a slice, clamped to [lo, hi]; `otherwise` when it is none. */
static bool bound(jj_val v, int64_t n, int64_t lo, int64_t hi, int64_t otherwise, int64_t *out) {
    *out = otherwise;
    if (v.kind == JJ_NONE || v.kind == JJ_MISSING) return true;
    if (v.kind == JJ_BIG) *out = v.u.big->minus ? INT64_MIN : INT64_MAX;
    else if (!jj_integer(v, out)) return false;
    if (*out < 0) *out = *out < -n ? lo : *out + n;
    *out = LN_MIN(LN_MAX(*out, lo), hi);
    return true;
}

static ln_status slice_text(jj_run *r, const jj_str *s, int64_t start, int64_t step, size_t count,
                            jj_val *out) {
    if (step == 1 || count == 0) {
        size_t from = count > 0 ? jj_str_at(s, (size_t)start) : 0;
        LN_TRY(jj_spend(r, s->chars == s->n ? 0 : s->n));
        jj_str rest = {.p = s->p + from,
                       .n = s->n - from,
                       .chars = s->chars == s->n ? s->n - from : s->chars - (size_t)start};
        return jj_str_cut(r, s, from, count > 0 ? from + jj_str_at(&rest, count) : 0, out);
    }
    const jj_val *items;
    size_t n;
    jj_buf b = {0};
    LN_TRY(jj_iterate(r, jj_of(s), &items, &n));
    for (size_t i = 0; i < count; i++) LN_TRY(jj_put_str(r, &b, items[start + (int64_t)i * step].u.s));
    return jj_buf_str(r, &b, out);
}

ln_status jj_slice(jj_run *r, jj_val v, jj_val from, jj_val to, jj_val step, jj_val *out) {
    int64_t by = 1, start, stop;
    if (v.kind == JJ_UNDEF) return jj_undef_fail(r, v);
    bool text = v.kind == JJ_STR, list = v.kind == JJ_SEQ && v.u.q->kind <= JJ_RANGE;
    bool good = (text || list) && (step.kind == JJ_NONE || step.kind == JJ_MISSING || step.kind == JJ_BIG ||
                                   jj_integer(step, &by));
    if (step.kind == JJ_BIG) by = step.u.big->minus ? -INT64_MAX : INT64_MAX;
    int64_t n = text ? (int64_t)v.u.s->chars : list ? (int64_t)v.u.q->n : 0;
    int64_t lo = by < 0 ? -1 : 0, hi = by < 0 ? n - 1 : n;
    if (step.kind == JJ_NONE || step.kind == JJ_MISSING) by = 1;
    good = good && bound(from, n, lo, hi, by < 0 ? n - 1 : 0, &start) &&
           bound(to, n, lo, hi, by < 0 ? -1 : n, &stop);
    if (!good) return jj_fail(r, "'%s' object is not subscriptable so", jj_type(v));
    if (by == 0) return jj_fail(r, "slice step cannot be zero");
    uint64_t count = by > 0 ? (start < stop ? ((uint64_t)(stop - start) - 1) / (uint64_t)by + 1 : 0)
                            : (start > stop ? ((uint64_t)(start - stop) - 1) / (0 - (uint64_t)by) + 1 : 0);
    if (text) return slice_text(r, v.u.s, start, by, (size_t)count, out);
    const jj_seq *q = v.u.q;
    jj_val *items = jj_take(r, (size_t)count * sizeof *items + 1);
    if (!items) return jj_nomem(r);
    for (uint64_t i = 0; i < count; i++) items[i] = q->v[start + (int64_t)i * by];
    LN_TRY(jj_seq_new(r, q->kind, items, (size_t)count, out));
    if (q->kind == JJ_RANGE) {
        out->u.q->start = q->start + start * q->step;
        out->u.q->stop = q->start + stop * q->step;
        if (__builtin_mul_overflow(q->step, by, &out->u.q->step))
            return jj_fail(r, "a range with a step beyond 64 bits");
    }
    return LN_OK;
}
