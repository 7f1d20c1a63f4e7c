/* Values with Python's semantics: kinds, truth, lists, dictionaries, undefined, equality and order.
 *
 * Lists and dictionaries are immutable, so they cannot contain themselves. Their nesting depth is computed
 * and limited when they are created, so that code that walks them may recurse. A lazy list (the result of
 * map() and the like) can be iterated once. */
#include "jinja_big.h"

#include <math.h>

const char *jj_type(jj_val v) {
    static const char *const names[] = {
        "missing",   "Undefined", "NoneType",    "bool",     "int",
        "int",       "float",     "str",         "list",     "dict",
        "Namespace", "Macro",     "LoopContext", "function", "builtin_function_or_method",
        "Cycler",    "Joiner"};
    static const char *const seqs[] = {"list",        "tuple",      "range",    "dict_keys",
                                       "dict_values", "dict_items", "generator"};
    if (v.kind == JJ_SEQ) return seqs[v.u.q->kind];
    if (v.kind == JJ_STR && v.u.s->markup) return "Markup";
    return names[v.kind];
}

bool jj_truth(jj_val v) {
    switch (v.kind) {
    case JJ_MISSING:
    case JJ_UNDEF:
    case JJ_NONE: return false;
    case JJ_BOOL: return v.u.b;
    case JJ_INT: return v.u.i != 0;
    case JJ_BIG: return true;
    case JJ_FLOAT: return v.u.f != 0;
    case JJ_STR: return v.u.s->n > 0;
    case JJ_SEQ: return v.u.q->kind == JJ_LAZY || v.u.q->n > 0;
    case JJ_DICT: return v.u.d->n > 0;
    default: return true;
    }
}

bool jj_integer(jj_val v, int64_t *out) {
    *out = v.kind == JJ_BOOL ? v.u.b : v.u.i;
    return v.kind == JJ_BOOL || v.kind == JJ_INT;
}

bool jj_number(jj_val v, double *out) {
    if (v.kind == JJ_BIG) return *out = jj_big_double(v), true;
    *out = v.kind == JJ_FLOAT ? v.u.f : v.kind == JJ_BOOL ? (double)v.u.b : (double)v.u.i;
    return v.kind == JJ_FLOAT || v.kind == JJ_BOOL || v.kind == JJ_INT;
}

ln_status jj_real(jj_run *r, jj_val v, double *out) {
    (void)jj_number(v, out);
    return v.kind == JJ_BIG && isinf(*out) ? jj_fail(r, "int too large to convert to float") : LN_OK;
}

/* ---- undefined ---- */

static ln_status undef(jj_run *r, jj_undef u, jj_val *out) {
    jj_undef *p = jj_take(r, sizeof *p);
    if (!p) return jj_nomem(r);
    *p = u;
    *out = (jj_val){JJ_UNDEF, {.undef = p}};
    return LN_OK;
}

ln_status jj_undef_name(jj_run *r, const jj_str *name, jj_val *out) {
    return undef(r, (jj_undef){.name = name}, out);
}
ln_status jj_undef_attr(jj_run *r, jj_val of, jj_val key, jj_val *out) {
    return undef(r, (jj_undef){.of = jj_type(of), .key = key}, out);
}
ln_status jj_undef_form(jj_run *r, const char *form, jj_val *out) {
    return undef(r, (jj_undef){.form = form}, out);
}

ln_status jj_undef_fail(jj_run *r, jj_val v) {
    const jj_undef *u = v.u.undef;
    char shown[80];
    if (u->form && u->name) return jj_fail(r, "%s: '%s'", u->form, ln_excerpt(shown, u->name->p, u->name->n));
    if (u->form) return jj_fail(r, "%s", u->form);
    if (u->name) return jj_fail(r, "'%s' is undefined", ln_excerpt(shown, u->name->p, u->name->n));
    if (u->key.kind == JJ_STR)
        return jj_fail(r, "'%s object' has no attribute '%s'", u->of,
                       ln_excerpt(shown, u->key.u.s->p, u->key.u.s->n));
    if (u->key.kind == JJ_INT)
        return jj_fail(r, "%s object has no element %lld", u->of, (long long)u->key.u.i);
    return jj_fail(r, "%s object has no such element", u->of);
}

/* ---- lists and dictionaries ---- */

static uint32_t nesting(const jj_val *v, size_t n) {
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t here = v[i].kind == JJ_SEQ    ? v[i].u.q->nesting
                        : v[i].kind == JJ_DICT ? v[i].u.d->nesting
                                               : 0;
        most = LN_MAX(most, here);
    }
    return most + 1;
}

ln_status jj_seq_new(jj_run *r, jj_seq_kind kind, const jj_val *v, size_t n, jj_val *out) {
    jj_seq *q = jj_take(r, sizeof *q);
    if (!q) return jj_nomem(r);
    if (n > JINJA_MAX_ITEMS)
        return jj_fail(r, "expected lists of at most %d items, found one of %zu", JINJA_MAX_ITEMS, n);
    *q = (jj_seq){.kind = kind, .n = n, .v = v, .nesting = nesting(v, n)};
    if (q->nesting > JINJA_MAX_NESTING) return jj_fail(r, "lists nested deeper than %d", JINJA_MAX_NESTING);
    *out = (jj_val){JJ_SEQ, {.q = q}};
    return jj_spend(r, n * sizeof *v);
}

ln_status jj_range_new(jj_run *r, int64_t start, int64_t stop, int64_t step, jj_val *out) {
    uint64_t n = 0;
    if (step == 0) return jj_fail(r, "range() with a step of 0");
    if (step > 0 && start < stop) n = ((uint64_t)stop - (uint64_t)start - 1) / (uint64_t)step + 1;
    if (step < 0 && start > stop) n = ((uint64_t)start - (uint64_t)stop - 1) / (0 - (uint64_t)step) + 1;
    if (n > JINJA_MAX_RANGE)
        return jj_fail(r, "expected a range of at most %d items, found one of %llu", JINJA_MAX_RANGE,
                       (unsigned long long)n);
    LN_TRY(jj_spend(r, (size_t)n * 48)); /* page faults of new memory cost more than the writes */
    jj_val *v = jj_take(r, (size_t)n * sizeof *v + 1);
    if (!v) return jj_nomem(r);
    for (uint64_t i = 0; i < n; i++) v[i] = jj_int((int64_t)((uint64_t)start + i * (uint64_t)step));
    LN_TRY(jj_seq_new(r, JJ_RANGE, v, (size_t)n, out));
    out->u.q->start = start, out->u.q->stop = stop, out->u.q->step = step;
    return LN_OK;
}

/* Equal numbers of any type have equal hashes, as in Python. */
static ln_status hash(jj_run *r, jj_val v, uint64_t *out, bool *hashable) {
    double f;
    *hashable = true;
    *out = (uint64_t)v.kind * 0x9e3779b97f4a7c15u;
    switch (v.kind) {
    case JJ_BOOL:
    case JJ_INT:
    case JJ_BIG:
    case JJ_FLOAT:
        (void)jj_number(v, &f);
        f = f == 0 ? 0 : f;
        memcpy(out, &f, sizeof f);
        *out = (*out ^ *out >> 29) * 0x9fb21c651e98df25u;
        return LN_OK;
    case JJ_STR: *out = strtab_hash(v.u.s->p, v.u.s->n); return jj_spend(r, v.u.s->n);
    case JJ_DICT: *hashable = false; return LN_OK;
    case JJ_SEQ:
        *hashable = v.u.q->kind != JJ_LIST;
        if (v.u.q->kind != JJ_TUPLE) return LN_OK;
        for (size_t i = 0; i < v.u.q->n && *hashable; i++) {
            uint64_t h;
            LN_TRY(hash(r, v.u.q->v[i], &h, hashable));
            *out = (*out ^ h) * 0x9fb21c651e98df25u;
        }
        return jj_spend(r, 0);
    default: return LN_OK;
    }
}

static ln_status find(jj_run *r, const jj_dict *d, jj_val key, uint64_t h, size_t *at) {
    bool same;
    *at = SIZE_MAX;
    if (!d->index) {
        for (size_t i = 0; i < d->n; i++) {
            LN_TRY(jj_equal(r, d->keys[i], key, &same));
            if (same) return *at = i, LN_OK;
        }
        return LN_OK;
    }
    size_t mask = ((size_t)1 << d->bits) - 1;
    for (size_t slot = (size_t)(h ^ h >> 32) & mask; d->index[slot]; slot = (slot + 1) & mask) {
        LN_TRY(jj_equal(r, d->keys[d->index[slot] - 1], key, &same));
        if (same) return *at = d->index[slot] - 1, LN_OK;
    }
    return LN_OK;
}

ln_status jj_dict_new(jj_run *r, jj_val *keys, jj_val *values, size_t n, jj_val *out) {
    jj_dict *d = jj_take(r, sizeof *d);
    uint32_t *index = NULL;
    if (!d) return jj_nomem(r);
    if (n > JINJA_MAX_ITEMS)
        return jj_fail(r, "expected dictionaries of at most %d items, found one of %zu", JINJA_MAX_ITEMS, n);
    *d = (jj_dict){.keys = keys, .values = values};
    if (n > 8) {
        for (d->bits = 5; (size_t)1 << d->bits < n * 2; d->bits++) {
        }
        index = jj_take(r, sizeof *index << d->bits);
        if (!index) return jj_nomem(r);
        d->index = index;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t h;
        size_t at;
        bool hashable;
        LN_TRY(hash(r, keys[i], &h, &hashable));
        if (!hashable) return jj_fail(r, "unhashable type: '%s'", jj_type(keys[i]));
        LN_TRY(find(r, d, keys[i], h, &at));
        if (at != SIZE_MAX) {
            values[at] = values[i];
            continue;
        }
        keys[d->n] = keys[i];
        values[d->n++] = values[i];
        if (!index) continue;
        size_t mask = ((size_t)1 << d->bits) - 1, slot = (size_t)(h ^ h >> 32) & mask;
        while (index[slot]) slot = (slot + 1) & mask;
        index[slot] = (uint32_t)d->n;
    }
    d->nesting = LN_MAX(nesting(values, d->n), nesting(keys, d->n));
    if (d->nesting > JINJA_MAX_NESTING)
        return jj_fail(r, "dictionaries nested deeper than %d", JINJA_MAX_NESTING);
    *out = (jj_val){JJ_DICT, {.d = d}};
    return jj_spend(r, n * 2 * sizeof *keys);
}

ln_status jj_dict_get(jj_run *r, const jj_dict *d, jj_val key, jj_val *out, bool *hashable) {
    uint64_t h;
    size_t at = SIZE_MAX;
    out->kind = JJ_MISSING;
    LN_TRY(hash(r, key, &h, hashable));
    if (*hashable) LN_TRY(find(r, d, key, h, &at));
    if (at != SIZE_MAX) *out = d->values[at];
    return LN_OK;
}

/* ---- iterating ---- */

bool jj_iterable(jj_val v) {
    return v.kind == JJ_UNDEF || v.kind == JJ_STR || v.kind == JJ_SEQ || v.kind == JJ_DICT ||
           v.kind == JJ_LOOP;
}

static ln_status characters(jj_run *r, const jj_str *s, const jj_val **items, size_t *n) {
    jj_val *v = jj_take(r, s->chars * sizeof *v + 1);
    if (!v) return jj_nomem(r);
    if (s->chars > JINJA_MAX_ITEMS)
        return jj_fail(r, "expected texts of at most %d characters here, found one of %zu", JINJA_MAX_ITEMS,
                       s->chars);
    LN_TRY(jj_spend(r, s->chars * 16));
    jj_str *each = jj_take(r, s->chars * sizeof *each + 1);
    if (!each) return jj_nomem(r);
    *n = 0;
    for (size_t at = 0, to; at < s->n; at = to) {
        uint32_t cp;
        to = at + utf8_next(s->p + at, &cp);
        each[*n] = (jj_str){.p = s->p + at,
                            .origin = s->origin ? s->origin + at : NULL,
                            .n = to - at,
                            .chars = 1,
                            .data = s->data};
        v[*n] = jj_of(&each[*n]);
        ++*n;
    }
    *items = v;
    return LN_OK;
}

ln_status jj_iterate(jj_run *r, jj_val v, const jj_val **items, size_t *n) {
    *n = 0;
    *items = NULL;
    switch (v.kind) {
    case JJ_UNDEF: return LN_OK;
    case JJ_STR: return characters(r, v.u.s, items, n);
    case JJ_DICT:
        *items = v.u.d->keys;
        *n = v.u.d->n;
        return LN_OK;
    case JJ_SEQ:
        *n = v.u.q->n - v.u.q->taken;
        if (*n > 0) *items = v.u.q->v + v.u.q->taken;
        if (v.u.q->kind == JJ_LAZY) v.u.q->taken = v.u.q->n;
        return LN_OK;
    default: return jj_fail(r, "'%s' object is not iterable", jj_type(v));
    }
}

ln_status jj_length(jj_run *r, jj_val v, int64_t *out) {
    switch (v.kind) {
    case JJ_UNDEF: *out = 0; return LN_OK;
    case JJ_STR: *out = (int64_t)v.u.s->chars; return LN_OK;
    case JJ_DICT: *out = (int64_t)v.u.d->n; return LN_OK;
    case JJ_SEQ:
        if (v.u.q->kind == JJ_LAZY) break;
        *out = (int64_t)v.u.q->n;
        return LN_OK;
    default: break;
    }
    return jj_fail(r, "object of type '%s' has no len()", jj_type(v));
}

/* ---- equality and order ---- */

static ln_status equal_lists(jj_run *r, const jj_val *a, const jj_val *b, size_t n, bool *out) {
    *out = true;
    for (size_t i = 0; i < n && *out; i++) LN_TRY(jj_equal(r, a[i], b[i], out));
    return LN_OK;
}

static ln_status equal_dicts(jj_run *r, const jj_dict *a, const jj_dict *b, bool *out) {
    *out = a->n == b->n;
    for (size_t i = 0; i < a->n && *out; i++) {
        jj_val other;
        bool hashable;
        LN_TRY(jj_dict_get(r, b, a->keys[i], &other, &hashable));
        *out = other.kind != JJ_MISSING;
        if (*out) LN_TRY(jj_equal(r, a->values[i], other, out));
    }
    return LN_OK;
}

/* Compares an integer with a float exactly; beyond 2^53 a conversion would round. */
static int order_int_float(int64_t i, double f) {
    if (f >= 9223372036854775808.0) return -1;
    if (f < -9223372036854775808.0) return 1;
    int64_t whole = (int64_t)f;
    if (i != whole) return i < whole ? -1 : 1;
    double rest = f - (double)whole;
    return rest > 0 ? -1 : rest < 0;
}

/* -1, 0 or 1, or 2 when one of the two is NaN. */
static int order_numbers(jj_val a, jj_val b) {
    int64_t i, k;
    if (a.kind == JJ_BIG || b.kind == JJ_BIG) return jj_big_order(a, b);
    bool ai = jj_integer(a, &i), bi = jj_integer(b, &k);
    if (ai && bi) return (i > k) - (i < k);
    if ((!ai && a.u.f != a.u.f) || (!bi && b.u.f != b.u.f)) return 2;
    if (ai) return order_int_float(i, b.u.f);
    if (bi) return -order_int_float(k, a.u.f);
    return (a.u.f > b.u.f) - (a.u.f < b.u.f);
}

static bool is_number(jj_val v) { return jj_is_int(v) || v.kind == JJ_FLOAT; }

ln_status jj_equal(jj_run *r, jj_val a, jj_val b, bool *out) {
    LN_TRY(jj_spend(r, 0));
    *out = false;
    if (is_number(a) && is_number(b)) return *out = order_numbers(a, b) == 0, LN_OK;
    if (a.kind != b.kind) return LN_OK;
    switch (a.kind) {
    case JJ_UNDEF:
    case JJ_NONE: *out = true; return LN_OK;
    case JJ_STR: *out = jj_str_eq(a.u.s, b.u.s); return jj_spend(r, a.u.s->n == b.u.s->n ? a.u.s->n : 0);
    case JJ_DICT: return equal_dicts(r, a.u.d, b.u.d, out);
    case JJ_SEQ:
        if (a.u.q->kind >= JJ_KEYS) return *out = a.u.q == b.u.q, LN_OK;
        if (a.u.q->kind != b.u.q->kind || a.u.q->n != b.u.q->n) return LN_OK;
        return equal_lists(r, a.u.q->v, b.u.q->v, a.u.q->n, out);
    default: *out = jj_same(a, b); return LN_OK;
    }
}

bool jj_same(jj_val a, jj_val b) {
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case JJ_NONE: return true;
    case JJ_BOOL: return a.u.b == b.u.b;
    case JJ_INT: return a.u.i == b.u.i;
    case JJ_FLOAT: return a.u.f == b.u.f;
    case JJ_STR: return a.u.s == b.u.s || (jj_str_eq(a.u.s, b.u.s) && a.u.s->chars <= 1);
    default: return a.u.d == b.u.d; /* compares pointers, for any kind */
    }
}

static bool holds(jj_op op, int order) {
    if (order == 2) return false;
    return op == JJ_LT ? order < 0 : op == JJ_LE ? order <= 0 : op == JJ_GT ? order > 0 : order >= 0;
}

ln_status jj_less(jj_run *r, jj_val a, jj_val b, jj_op op, bool *out) {
    static const char *const names[] = {[JJ_LT] = "<", [JJ_LE] = "<=", [JJ_GT] = ">", [JJ_GE] = ">="};
    LN_TRY(jj_spend(r, 0));
    if (a.kind == JJ_UNDEF) return jj_undef_fail(r, a);
    if (b.kind == JJ_UNDEF) return jj_undef_fail(r, b);
    if (is_number(a) && is_number(b)) return *out = holds(op, order_numbers(a, b)), LN_OK;
    if (a.kind == JJ_STR && b.kind == JJ_STR) {
        *out = holds(op, jj_str_cmp(a.u.s, b.u.s));
        return jj_spend(r, LN_MIN(a.u.s->n, b.u.s->n));
    }
    if (a.kind != JJ_SEQ || b.kind != JJ_SEQ || a.u.q->kind != b.u.q->kind || a.u.q->kind > JJ_TUPLE)
        return jj_fail(r, "'%s' not supported between instances of '%s' and '%s'", names[op], jj_type(a),
                       jj_type(b));
    const jj_seq *x = a.u.q, *y = b.u.q;
    for (size_t i = 0; i < x->n && i < y->n; i++) {
        bool same;
        LN_TRY(jj_equal(r, x->v[i], y->v[i], &same));
        if (!same) return jj_less(r, x->v[i], y->v[i], op, out);
    }
    *out = holds(op, (x->n > y->n) - (x->n < y->n));
    return LN_OK;
}

ln_status jj_contains(jj_run *r, jj_val item, jj_val in, bool *out) {
    const jj_val *v;
    size_t n;
    bool hashable;
    *out = false;
    if (in.kind == JJ_STR) {
        if (item.kind != JJ_STR)
            return jj_fail(r, "'in <string>' requires string as left operand, not %s", jj_type(item));
        *out = jj_str_find(in.u.s, 0, in.u.s->n, item.u.s) != SIZE_MAX;
        return jj_spend(r, in.u.s->n);
    }
    if (in.kind == JJ_DICT) {
        jj_val found;
        LN_TRY(jj_dict_get(r, in.u.d, item, &found, &hashable));
        *out = found.kind != JJ_MISSING;
        return hashable ? LN_OK : jj_fail(r, "unhashable type: '%s'", jj_type(item));
    }
    if (in.kind != JJ_SEQ && in.kind != JJ_UNDEF)
        return jj_fail(r, "argument of type '%s' is not iterable", jj_type(in));
    LN_TRY(jj_iterate(r, in, &v, &n));
    for (size_t i = 0; i < n && !*out; i++) {
        LN_TRY(jj_equal(r, v[i], item, out));
        *out = *out || jj_same(v[i], item);
    }
    return LN_OK;
}

/* A stable merge sort; equal keys keep their order in both directions. */
ln_status jj_sort(jj_run *r, jj_val *keys, jj_val *items, size_t n, bool reverse) {
    jj_val *k2 = jj_take(r, n * sizeof *k2 + 1), *i2 = jj_take(r, n * sizeof *i2 + 1);
    if (!k2 || !i2) return jj_nomem(r);
    jj_val *k1 = keys, *i1 = items;
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t from = 0; from < n; from += 2 * run) {
            size_t mid = LN_MIN(from + run, n), to = LN_MIN(from + 2 * run, n), a = from, b = mid, at = from;
            while (a < mid || b < to) {
                bool second = a == mid;
                if (a < mid && b < to)
                    LN_TRY(jj_less(r, reverse ? k1[a] : k1[b], reverse ? k1[b] : k1[a], JJ_LT, &second));
                size_t pick = second ? b++ : a++;
                k2[at] = k1[pick];
                i2[at++] = i1[pick];
            }
        }
        jj_val *k = k1, *i = i1;
        k1 = k2, i1 = i2;
        k2 = k, i2 = i;
    }
    if (i1 != items && n > 0) {
        memcpy(keys, k1, n * sizeof *keys);
        memcpy(items, i1, n * sizeof *items);
    }
    return LN_OK;
}
