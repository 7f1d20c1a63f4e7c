/* Filters on lists. If Jinja2 returns a generator, the result here is a lazy list: computed at once, but it
 * can be iterated only once. */
#include "jinja_internal.h"

#define FILTER(name) \
    static ln_status name(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out)
#define UNUSED (void)r, (void)self, (void)a, (void)c

/* ---- attribute paths ---- */

/* Resolves v.a.0.b: parts separated by dots; digits are indices. An integer as path is an index. */
static ln_status by_path(jj_run *r, jj_val v, jj_val path, const jj_val *otherwise, jj_val *out) {
    *out = v;
    if (path.kind == JJ_MISSING || path.kind == JJ_NONE) return LN_OK;
    if (path.kind != JJ_STR) {
        LN_TRY(jj_item(r, v, path, out));
        if (otherwise && otherwise->kind != JJ_MISSING && out->kind == JJ_UNDEF) *out = *otherwise;
        return LN_OK;
    }
    const jj_str *s = path.u.s;
    for (size_t from = 0, to; from <= s->n; from = to + 1) {
        const char *dot = from < s->n ? memchr(s->p + from, '.', s->n - from) : NULL;
        to = dot ? (size_t)(dot - s->p) : s->n;
        int64_t index = 0;
        bool digits = to > from && to - from < 18;
        for (size_t i = from; i < to && digits; i++) digits = s->p[i] >= '0' && s->p[i] <= '9';
        for (size_t i = from; i < to && digits; i++) index = index * 10 + (s->p[i] - '0');
        jj_val key = jj_int(index);
        if (!digits) LN_TRY(jj_str_cut(r, s, from, to, &key));
        LN_TRY(jj_item(r, *out, key, out));
        if (otherwise && otherwise->kind != JJ_MISSING && out->kind == JJ_UNDEF) *out = *otherwise;
    }
    return LN_OK;
}

/* The key for sorting or comparing: an attribute, in lower case unless `exact`. */
static ln_status key_of(jj_run *r, jj_val v, jj_val path, bool exact, jj_val *out) {
    LN_TRY(by_path(r, v, path, NULL, out));
    return !exact && out->kind == JJ_STR ? jj_recase(r, out->u.s, CASE_LOWER, out) : LN_OK;
}

static ln_status copy_items(jj_run *r, jj_val v, jj_val **items, size_t *n) {
    const jj_val *from;
    LN_TRY(jj_iterate(r, v, &from, n));
    *items = jj_take(r, *n * sizeof **items + 1);
    if (!*items) return jj_nomem(r);
    if (*n > 0) memcpy(*items, from, *n * sizeof **items);
    return LN_OK;
}

/* ---- whole lists ---- */

FILTER(list) {
    const jj_val *v;
    size_t n;
    UNUSED;
    LN_TRY(jj_iterate(r, self, &v, &n));
    return jj_seq_new(r, JJ_LIST, v, n, out);
}

FILTER(items) {
    UNUSED;
    if (self.kind == JJ_UNDEF) return jj_seq_new(r, JJ_LAZY, NULL, 0, out);
    if (self.kind != JJ_DICT) return jj_fail(r, "Can only get item pairs from a mapping.");
    return jj_dict_items(r, self.u.d, JJ_LAZY, out);
}

FILTER(join) {
    static const jj_str nothing = {.p = ""};
    const jj_val *v;
    const jj_str *by = &nothing;
    jj_buf b = {0};
    size_t n;
    UNUSED;
    LN_TRY(jj_iterate(r, self, &v, &n));
    if (a[0].kind != JJ_MISSING) LN_TRY(jj_to_str(r, a[0], &by));
    for (size_t i = 0; i < n; i++) {
        jj_val item;
        LN_TRY(by_path(r, v[i], a[1], NULL, &item));
        if (i > 0) LN_TRY(jj_put_str(r, &b, by));
        LN_TRY(jj_put_value(r, &b, item));
    }
    return jj_buf_str(r, &b, out);
}

FILTER(reverse) {
    jj_val *v;
    size_t n;
    UNUSED;
    if (self.kind == JJ_STR) return jj_slice(r, self, jj_none(), jj_none(), jj_int(-1), out);
    bool generator = self.kind == JJ_SEQ && self.u.q->kind == JJ_LAZY;
    LN_TRY(copy_items(r, self, &v, &n));
    for (size_t i = 0; i < n / 2; i++) {
        jj_val t = v[i];
        v[i] = v[n - 1 - i];
        v[n - 1 - i] = t;
    }
    return jj_seq_new(r, generator ? JJ_LIST : JJ_LAZY, v, n, out);
}

/* first, last */
FILTER(end_of) {
    const jj_val *v;
    size_t n;
    bool last = r->how == 1;
    UNUSED;
    if (last && self.kind == JJ_SEQ && self.u.q->kind == JJ_LAZY)
        return jj_fail(r, "'generator' object is not reversible");
    if (self.kind == JJ_SEQ && self.u.q->kind == JJ_LAZY) {
        jj_seq *q = self.u.q;
        if (q->taken < q->n) return *out = q->v[q->taken++], LN_OK;
        n = 0;
    } else {
        LN_TRY(jj_iterate(r, self, &v, &n));
        if (n > 0) return *out = v[last ? n - 1 : 0], LN_OK;
    }
    return jj_undef_form(r, last ? "No last item, sequence was empty." : "No first item, sequence was empty.",
                         out);
}

FILTER(sum) {
    const jj_val *v;
    size_t n;
    UNUSED;
    jj_val total = a[1].kind == JJ_MISSING ? jj_int(0) : a[1];
    LN_TRY(jj_iterate(r, self, &v, &n));
    if (total.kind == JJ_STR) return jj_fail(r, "sum() can't sum strings");
    for (size_t i = 0; i < n; i++) {
        jj_val item;
        LN_TRY(by_path(r, v[i], a[0], NULL, &item));
        LN_TRY(jj_binary(r, JJ_ADD, total, item, &total));
    }
    *out = total;
    return LN_OK;
}

/* ---- order ---- */

FILTER(sort) {
    jj_val *v, *keys;
    size_t n;
    bool exact = jj_truth(a[1]), reverse_order = jj_truth(a[0]);
    UNUSED;
    LN_TRY(copy_items(r, self, &v, &n));
    keys = jj_take(r, n * sizeof *keys + 1);
    if (!keys) return jj_nomem(r);
    for (size_t i = 0; i < n; i++) { /* several attributes separated by commas are compared in that order */
        if (a[2].kind != JJ_STR || !memchr(a[2].u.s->p, ',', a[2].u.s->n)) {
            jj_val *one = jj_take(r, sizeof *one);
            if (!one) return jj_nomem(r);
            LN_TRY(key_of(r, v[i], a[2], exact, one));
            LN_TRY(jj_seq_new(r, JJ_LIST, one, 1, &keys[i]));
            continue;
        }
        jj_val parts[16];
        size_t k = 0;
        const jj_str *s = a[2].u.s;
        for (size_t from = 0, to; from <= s->n && k < LN_COUNT(parts); from = to + 1) {
            const char *comma = from < s->n ? memchr(s->p + from, ',', s->n - from) : NULL;
            jj_val path;
            to = comma ? (size_t)(comma - s->p) : s->n;
            LN_TRY(jj_str_cut(r, s, from, to, &path));
            LN_TRY(key_of(r, v[i], path, exact, &parts[k++]));
        }
        jj_val *many = jj_take(r, k * sizeof *many);
        if (!many) return jj_nomem(r);
        memcpy(many, parts, k * sizeof *many);
        LN_TRY(jj_seq_new(r, JJ_LIST, many, k, &keys[i]));
    }
    LN_TRY(jj_sort(r, keys, v, n, reverse_order));
    return jj_seq_new(r, JJ_LIST, v, n, out);
}

FILTER(dictsort) {
    jj_val pairs, *keys, *v;
    bool exact = jj_truth(a[0]), by_value = a[1].kind == JJ_STR && jj_str_is(a[1].u.s, "value");
    UNUSED;
    if (self.kind == JJ_UNDEF) return jj_undef_fail(r, self);
    if (self.kind != JJ_DICT) return jj_fail(r, "'%s object' has no attribute 'items'", jj_type(self));
    if (!by_value && a[1].kind != JJ_MISSING && !(a[1].kind == JJ_STR && jj_str_is(a[1].u.s, "key")))
        return jj_fail(r, "You can only sort by either \"key\" or \"value\"");
    LN_TRY(jj_dict_items(r, self.u.d, JJ_LIST, &pairs));
    size_t n = pairs.u.q->n;
    keys = jj_take(r, n * sizeof *keys + 1);
    v = jj_take(r, n * sizeof *v + 1);
    if (!keys || !v) return jj_nomem(r);
    for (size_t i = 0; i < n; i++) {
        v[i] = pairs.u.q->v[i];
        LN_TRY(key_of(r, v[i].u.q->v[by_value], (jj_val){0}, exact, &keys[i]));
    }
    LN_TRY(jj_sort(r, keys, v, n, jj_truth(a[2])));
    return jj_seq_new(r, JJ_LIST, v, n, out);
}

/* min, max */
FILTER(extreme) {
    const jj_val *v;
    size_t n, best = 0;
    jj_val key, best_key;
    jj_op op = r->how ? JJ_GT : JJ_LT;
    UNUSED;
    LN_TRY(jj_iterate(r, self, &v, &n));
    if (n == 0) return jj_undef_form(r, "No aggregated item, sequence was empty.", out);
    LN_TRY(key_of(r, v[0], a[1], jj_truth(a[0]), &best_key));
    for (size_t i = 1; i < n; i++) {
        bool better;
        LN_TRY(key_of(r, v[i], a[1], jj_truth(a[0]), &key));
        LN_TRY(jj_less(r, key, best_key, op, &better));
        if (better) best = i, best_key = key;
    }
    *out = v[best];
    return LN_OK;
}

FILTER(unique) {
    const jj_val *v;
    jj_val *keys, *values, *kept, seen;
    size_t n, k = 0;
    UNUSED;
    LN_TRY(jj_iterate(r, self, &v, &n));
    keys = jj_take(r, n * sizeof *keys + 1);
    values = jj_take(r, n * sizeof *values + 1);
    kept = jj_take(r, n * sizeof *kept + 1);
    if (!keys || !values || !kept) return jj_nomem(r);
    for (size_t i = 0; i < n; i++) LN_TRY(key_of(r, v[i], a[1], jj_truth(a[0]), &keys[i]));
    for (size_t i = 0; i < n; i++) values[i] = jj_int((int64_t)(n - 1 - i));
    /* A dictionary keeps the last value of equal keys. Filled in reverse order, that is the index of the
     * first occurrence. */
    for (size_t i = 0; i < n / 2; i++) {
        jj_val t = keys[i];
        keys[i] = keys[n - 1 - i];
        keys[n - 1 - i] = t;
    }
    LN_TRY(jj_dict_new(r, keys, values, n, &seen));
    bool *first = jj_take(r, n + 1);
    if (!first) return jj_nomem(r);
    for (size_t i = 0; i < seen.u.d->n; i++) first[seen.u.d->values[i].u.i] = true;
    for (size_t i = 0; i < n; i++)
        if (first[i]) kept[k++] = v[i];
    return jj_seq_new(r, JJ_LAZY, kept, k, out);
}

/* ---- parts ---- */

static bool fills(jj_val with) { return with.kind != JJ_MISSING && with.kind != JJ_NONE; }

/* The list of n items, padded with `with` up to `width`. */
static ln_status filled(jj_run *r, const jj_val *v, size_t n, size_t width, jj_val with, jj_val *out) {
    jj_val *row = jj_take(r, width * sizeof *row + 1);
    if (!row) return jj_nomem(r);
    if (n > 0) memcpy(row, v, n * sizeof *row);
    for (size_t i = n; i < width; i++) row[i] = with;
    return jj_seq_new(r, JJ_LIST, row, width, out);
}

FILTER(batch) {
    const jj_val *v;
    jj_val *rows;
    size_t n, k = 0;
    int64_t size;
    UNUSED;
    LN_TRY(jj_arg_int(r, a[0], "batch()", 1, &size));
    LN_TRY(jj_iterate(r, self, &v, &n));
    size_t by = size > 0 && (uint64_t)size < n ? (size_t)size : LN_MAX(n, (size_t)1);
    if (size <= 0) return jj_fail(r, "batch(): expected a size of at least 1");
    if (size > JINJA_MAX_ITEMS) return jj_fail(r, "batch(): expected a size of at most %d", JINJA_MAX_ITEMS);
    rows = jj_take(r, (n / by + 2) * sizeof *rows);
    if (!rows) return jj_nomem(r);
    for (size_t from = 0; from < n; from += by) {
        size_t here = LN_MIN(by, n - from);
        LN_TRY(filled(r, v + from, here, fills(a[1]) ? (size_t)size : here, a[1], &rows[k++]));
    }
    return jj_seq_new(r, JJ_LAZY, rows, k, out);
}

FILTER(slice) {
    const jj_val *v;
    jj_val *rows;
    size_t n, at = 0;
    int64_t slices;
    UNUSED;
    LN_TRY(jj_arg_int(r, a[0], "slice()", 1, &slices));
    LN_TRY(jj_iterate(r, self, &v, &n));
    if (slices <= 0 || slices > JINJA_MAX_RANGE)
        return jj_fail(r, "slice(): expected 1 to %d slices", JINJA_MAX_RANGE);
    size_t per = n / (size_t)slices, more = n % (size_t)slices;
    rows = jj_take(r, (size_t)slices * sizeof *rows);
    if (!rows) return jj_nomem(r);
    for (size_t i = 0; i < (size_t)slices; i++) {
        size_t here = per + (i < more);
        LN_TRY(filled(r, here ? v + at : NULL, here, here + (fills(a[1]) && i >= more), a[1], &rows[i]));
        at += here;
    }
    return jj_seq_new(r, JJ_LAZY, rows, (size_t)slices, out);
}

/* Groups items with equal keys after sorting by the key: tuples of (key, list). */
FILTER(groupby) {
    jj_val *v, *keys, *rows;
    size_t n, k = 0;
    bool exact = jj_truth(a[2]);
    UNUSED;
    LN_TRY(copy_items(r, self, &v, &n));
    keys = jj_take(r, n * sizeof *keys + 1);
    rows = jj_take(r, n * sizeof *rows + 1);
    if (!keys || !rows) return jj_nomem(r);
    for (size_t i = 0; i < n; i++) {
        LN_TRY(by_path(r, v[i], a[0], &a[1], &keys[i]));
        if (!exact && keys[i].kind == JJ_STR) LN_TRY(jj_recase(r, keys[i].u.s, CASE_LOWER, &keys[i]));
    }
    LN_TRY(jj_sort(r, keys, v, n, false));
    for (size_t from = 0, to; from < n; from = to) {
        bool same = true;
        for (to = from + 1; to < n && same; to += same) LN_TRY(jj_equal(r, keys[from], keys[to], &same));
        jj_val *pair = jj_take(r, 2 * sizeof *pair);
        if (!pair) return jj_nomem(r);
        LN_TRY(by_path(r, v[from], a[0], &a[1], &pair[0]));
        LN_TRY(jj_seq_new(r, JJ_LIST, v + from, to - from, &pair[1]));
        LN_TRY(jj_seq_new(r, JJ_TUPLE, pair, 2, &rows[k]));
        rows[k++].u.q->grouped = true;
    }
    return jj_seq_new(r, JJ_LIST, rows, k, out);
}

/* ---- map, select, reject ---- */

static ln_status named_row(jj_run *r, const jj_call *c, size_t at, bool test, const jj_func **f,
                           jj_call *rest) {
    const jj_str *name;
    char shown[80];
    LN_TRY(jj_arg_text(r, c->pos[at], test ? "the name of a test" : "the name of a filter", &name));
    *f = (test ? jj_test_named : jj_filter_named)(name->p, name->n);
    if (!*f || !(*f)->fn)
        return jj_fail(r, "no %s named '%s'", test ? "test" : "filter", ln_excerpt(shown, name->p, name->n));
    *rest = (jj_call){.pos = c->pos + at + 1,
                      .n_pos = c->n_pos - at - 1,
                      .named = c->named,
                      .names = c->names,
                      .n_named = c->n_named};
    return LN_OK;
}

static const jj_val *named(const jj_call *c, const char *name) {
    for (size_t i = 0; i < c->n_named; i++)
        if (jj_str_is(c->names[i], name)) return &c->named[i];
    return NULL;
}

FILTER(map) {
    const jj_val *v, *path = named(c, "attribute"), *otherwise = named(c, "default");
    const jj_func *f = NULL;
    jj_call rest = {0};
    size_t n;
    UNUSED;
    bool by = c->n_pos == 0 && path;
    if (by && c->n_named > 1 + (otherwise != NULL)) return jj_fail(r, "map(): unexpected keyword argument");
    if (!by && c->n_pos == 0) return jj_fail(r, "map requires a filter argument");
    if (!jj_truth(self)) return jj_seq_new(r, JJ_LAZY, NULL, 0, out);
    if (!by) LN_TRY(named_row(r, c, 0, false, &f, &rest));
    LN_TRY(jj_iterate(r, self, &v, &n));
    jj_val *made = jj_take(r, n * sizeof *made + 1);
    if (!made) return jj_nomem(r);
    for (size_t i = 0; i < n; i++) {
        LN_TRY(jj_spend(r, 0));
        if (by) LN_TRY(by_path(r, v[i], *path, otherwise, &made[i]));
        else LN_TRY(jj_apply(r, f, v[i], &rest, &made[i]));
    }
    return jj_seq_new(r, JJ_LAZY, made, n, out);
}

/* select, reject, selectattr, rejectattr. Bits of `how`: 0 reject, 1 by attribute. */
FILTER(choose) {
    const jj_val *v;
    const jj_func *f = NULL;
    jj_call rest = {0};
    size_t n, k = 0, first = r->how & 2 ? 1 : 0;
    bool reject = r->how & 1;
    UNUSED;
    if (!jj_truth(self)) return jj_seq_new(r, JJ_LAZY, NULL, 0, out);
    if (c->n_pos < first) return jj_fail(r, "Missing parameter for attribute name");
    if (c->n_pos > first) LN_TRY(named_row(r, c, first, true, &f, &rest));
    LN_TRY(jj_iterate(r, self, &v, &n));
    jj_val *made = jj_take(r, n * sizeof *made + 1);
    if (!made) return jj_nomem(r);
    for (size_t i = 0; i < n; i++) {
        jj_val item = v[i], yes;
        LN_TRY(jj_spend(r, 0));
        if (first) LN_TRY(by_path(r, v[i], c->pos[0], NULL, &item));
        yes = item;
        if (f) LN_TRY(jj_apply(r, f, item, &rest, &yes));
        if (jj_truth(yes) != reject) made[k++] = v[i];
    }
    return jj_seq_new(r, JJ_LAZY, made, k, out);
}

const jj_func *jj_list_filter(const char *name, size_t n) {
    static const jj_func rows[] = {{"items", "", items, 0},
                                   {"join", "|d attribute", join, 0},
                                   {"list", "", list, 0},
                                   {"map", "*", map, 0},
                                   {"select", "*", choose, 0},
                                   {"reject", "*", choose, 1},
                                   {"selectattr", "*", choose, 2},
                                   {"rejectattr", "*", choose, 3},
                                   {"dictsort", "|case_sensitive by reverse", dictsort, 0},
                                   {"sort", "|reverse case_sensitive attribute", sort, 0},
                                   {"unique", "|case_sensitive attribute", unique, 0},
                                   {"first", "", end_of, 0},
                                   {"last", "", end_of, 1},
                                   {"reverse", "", reverse, 0},
                                   {"min", "|case_sensitive attribute", extreme, 0},
                                   {"max", "|case_sensitive attribute", extreme, 1},
                                   {"sum", "|attribute start", sum, 0},
                                   {"batch", "linecount|fill_with", batch, 0},
                                   {"slice", "slices|fill_with", slice, 0},
                                   {"groupby", "attribute|default case_sensitive", groupby, 0}};
    return jj_find(rows, LN_COUNT(rows), name, n);
}
