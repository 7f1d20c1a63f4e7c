/* Methods of dictionaries and lists, and the names of methods that shadow keys: v.name is the method even if
 * v has a key of that name. */
#include "jinja_internal.h"

static ln_status get(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    bool hashable;
    (void)c;
    LN_TRY(jj_dict_get(r, self.u.d, a[0], out, &hashable));
    if (!hashable) return jj_fail(r, "unhashable type: '%s'", jj_type(a[0]));
    if (out->kind == JJ_MISSING) *out = a[1].kind == JJ_MISSING ? jj_none() : a[1];
    return LN_OK;
}

ln_status jj_dict_items(jj_run *r, const jj_dict *d, jj_seq_kind kind, jj_val *out) {
    jj_val *v = jj_take(r, d->n * sizeof *v + 1);
    if (!v) return jj_nomem(r);
    for (size_t i = 0; i < d->n; i++) {
        jj_val *pair = jj_take(r, 2 * sizeof *pair);
        if (!pair) return jj_nomem(r);
        pair[0] = d->keys[i];
        pair[1] = d->values[i];
        LN_TRY(jj_seq_new(r, JJ_TUPLE, pair, 2, &v[i]));
    }
    return jj_seq_new(r, kind, v, d->n, out);
}

static ln_status view(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    const jj_dict *d = self.u.d;
    (void)a, (void)c;
    if (r->how == JJ_ITEMS) return jj_dict_items(r, d, JJ_ITEMS, out);
    return jj_seq_new(r, (jj_seq_kind)r->how, r->how == JJ_KEYS ? d->keys : d->values, d->n, out);
}

static ln_status copy(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    (void)r, (void)a, (void)c;
    *out = self; /* values are immutable, so that a copy is the value itself */
    return LN_OK;
}

static ln_status count_or_index(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    int64_t n = 0;
    bool index = r->how == 1;
    (void)c;
    for (size_t i = 0; i < self.u.q->n; i++) {
        bool same;
        LN_TRY(jj_equal(r, self.u.q->v[i], a[0], &same));
        if (same && index) return *out = jj_int((int64_t)i), LN_OK;
        n += same;
    }
    *out = jj_int(n);
    return index ? jj_fail(r, "the value is not in the list") : LN_OK;
}

static bool one_of(const char *const *names, const char *name, size_t n) {
    for (; *names; names++)
        if (strlen(*names) == n && memcmp(*names, name, n) == 0) return true;
    return false;
}

const jj_func *jj_method_named(jj_val self, const char *name, size_t n, bool *unsafe) {
    static const jj_func dict[] = {{"get", "key|default", get, 0}, {"items", "", view, JJ_ITEMS},
                                   {"keys", "", view, JJ_KEYS},    {"values", "", view, JJ_VALUES},
                                   {"copy", "", copy, 0},          {"fromkeys", "", NULL, 0}};
    static const jj_func list[] = {{"count", "value|", count_or_index, 0},
                                   {"index", "value|", count_or_index, 1},
                                   {"copy", "", copy, 0}};
    static const char *const dict_changes[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    static const char *const dict_hidden[] = {
        /* attributes of every dictionary, which shadow a key of that name in d.name */
        "__class__",
        "__class_getitem__",
        "__contains__",
        "__delattr__",
        "__delitem__",
        "__dir__",
        "__doc__",
        "__eq__",
        "__format__",
        "__ge__",
        "__getattribute__",
        "__getitem__",
        "__getstate__",
        "__gt__",
        "__hash__",
        "__init__",
        "__init_subclass__",
        "__ior__",
        "__iter__",
        "__le__",
        "__len__",
        "__lt__",
        "__ne__",
        "__new__",
        "__or__",
        "__reduce__",
        "__reduce_ex__",
        "__repr__",
        "__reversed__",
        "__ror__",
        "__setattr__",
        "__setitem__",
        "__sizeof__",
        "__str__",
        "__subclasshook__",
        NULL};
    static const char *const list_changes[] = {"append", "clear",  "pop",    "reverse", "insert",
                                               "sort",   "extend", "remove", NULL};
    *unsafe = false;
    switch (self.kind) {
    case JJ_STR: return jj_string_method(name, n);
    case JJ_DICT:
        *unsafe = one_of(dict_changes, name, n) || (name[0] == '_' && one_of(dict_hidden, name, n));
        return jj_find(dict, LN_COUNT(dict), name, n);
    case JJ_SEQ:
        if (self.u.q->kind > JJ_RANGE) return jj_object_method(self, name, n);
        *unsafe = self.u.q->kind == JJ_LIST && one_of(list_changes, name, n);
        return jj_find(list, self.u.q->kind == JJ_LIST ? 3 : 2, name, n);
    default: return jj_object_method(self, name, n);
    }
}
