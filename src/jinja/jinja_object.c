/* Attributes that are values and not methods ((5).real, range(3).stop, a macro's name), and the stateful
 * objects cycler() and joiner().
 *
 * An attribute that Python's object has but that is not implemented here is an error that names it; an
 * attribute that it does not have is undefined, as in Jinja2. */
#include "jinja_internal.h"

struct jj_counter { /* the state of a cycler or a joiner */
    const jj_val *items;
    size_t n, pos;
    jj_val sep;
    bool used;
};

/* ---- cycler and joiner ---- */

ln_status jj_cycler(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    jj_counter *k = jj_take(r, sizeof *k);
    (void)self, (void)a;
    if (!k) return jj_nomem(r);
    if (c->n_named > 0) return jj_fail(r, "cycler() takes no keyword arguments");
    if (c->n_pos == 0) return jj_fail(r, "at least one item has to be provided");
    *k = (jj_counter){.items = c->pos, .n = c->n_pos};
    *out = (jj_val){JJ_CYCLER, {.counter = k}};
    return LN_OK;
}

ln_status jj_joiner(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    jj_counter *k = jj_take(r, sizeof *k);
    (void)self, (void)c;
    if (!k) return jj_nomem(r);
    k->sep = a[0];
    if (a[0].kind == JJ_MISSING) LN_TRY(jj_str_lit(r, ", ", &k->sep));
    *out = (jj_val){JJ_JOINER, {.counter = k}};
    return LN_OK;
}

ln_status jj_join_next(jj_run *r, jj_counter *k, const jj_call *c, jj_val *out) {
    if (c->n_pos + c->n_named > 0) return jj_fail(r, "a joiner takes no arguments");
    *out = k->sep;
    bool first = !k->used;
    k->used = true;
    return first ? jj_str_lit(r, "", out) : LN_OK;
}

static ln_status cycle_next(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    jj_counter *k = self.u.counter;
    bool reset = r->how == 1;
    (void)a, (void)c;
    *out = reset ? jj_none() : k->items[k->pos];
    k->pos = reset ? 0 : (k->pos + 1) % k->n;
    return LN_OK;
}

/* ---- numbers ---- */

static ln_status bit_length(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    (void)r, (void)a, (void)c;
    *out = jj_int((int64_t)jj_int_bits(self));
    return LN_OK;
}

static ln_status conjugate(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    (void)a, (void)c;
    return jj_negative(r, self, false, out);
}

static ln_status is_integer(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    jj_val whole;
    bool same = false;
    (void)a, (void)c;
    if (self.u.f - self.u.f == 0) { /* false for infinities and NaN */
        LN_TRY(jj_int_of_double(r, self.u.f, &whole));
        LN_TRY(jj_equal(r, whole, self, &same));
    }
    *out = jj_bool(same);
    return LN_OK;
}

const jj_func *jj_object_method(jj_val self, const char *name, size_t n) {
    static const jj_func of_int[] = {{"bit_length", "", bit_length, 0}, {"conjugate", "", conjugate, 0},
                                     {"bit_count", "", NULL, 0},        {"as_integer_ratio", "", NULL, 0},
                                     {"to_bytes", "", NULL, 0},         {"from_bytes", "", NULL, 0}};
    static const jj_func of_float[] = {{"is_integer", "", is_integer, 0},
                                       {"conjugate", "", conjugate, 0},
                                       {"as_integer_ratio", "", NULL, 0},
                                       {"hex", "", NULL, 0},
                                       {"fromhex", "", NULL, 0}};
    static const jj_func of_cycler[] = {{"next", "", cycle_next, 0}, {"reset", "", cycle_next, 1}};
    static const jj_func of_view[] = {{"isdisjoint", "", NULL, 0}}, of_generator[] = {{"close", "", NULL, 0},
                                                                                      {"send", "", NULL, 0},
                                                                                      {"throw", "", NULL, 0}};
    switch (self.kind) {
    case JJ_BOOL:
    case JJ_INT:
    case JJ_BIG: return jj_find(of_int, LN_COUNT(of_int), name, n);
    case JJ_FLOAT: return jj_find(of_float, LN_COUNT(of_float), name, n);
    case JJ_CYCLER: return jj_find(of_cycler, LN_COUNT(of_cycler), name, n);
    case JJ_SEQ:
        if (self.u.q->kind == JJ_KEYS || self.u.q->kind == JJ_ITEMS)
            return jj_find(of_view, LN_COUNT(of_view), name, n);
        return self.u.q->kind == JJ_LAZY ? jj_find(of_generator, LN_COUNT(of_generator), name, n) : NULL;
    default: return NULL;
    }
}

/* ---- attributes ---- */

static ln_status unsupported(jj_run *r, jj_val v, const jj_str *name) {
    char shown[80];
    return jj_fail(r, "the attribute '%s' of %s is not supported", ln_excerpt(shown, name->p, name->n),
                   jj_type(v));
}

static ln_status of_number(jj_run *r, jj_val v, const jj_str *name, jj_val *out) {
    bool integer = v.kind != JJ_FLOAT;
    if (jj_str_is(name, "real") || (integer && jj_str_is(name, "numerator")))
        return jj_negative(r, v, false, out);
    if (jj_str_is(name, "imag")) *out = integer ? jj_int(0) : jj_float(0);
    else if (integer && jj_str_is(name, "denominator")) *out = jj_int(1);
    return LN_OK;
}

static ln_status of_seq(jj_run *r, jj_val v, const jj_str *name, jj_val *out) {
    const jj_seq *q = v.u.q;
    static const char *const generator[] = {"gi_running", "gi_suspended", "gi_yieldfrom"};
    if (q->grouped && jj_str_is(name, "grouper")) *out = q->v[0];
    else if (q->grouped && jj_str_is(name, "list")) *out = q->v[1];
    if (q->kind == JJ_RANGE && jj_str_is(name, "start")) *out = jj_int(q->start);
    else if (q->kind == JJ_RANGE && jj_str_is(name, "stop")) *out = jj_int(q->stop);
    else if (q->kind == JJ_RANGE && jj_str_is(name, "step")) *out = jj_int(q->step);
    bool view = q->kind == JJ_KEYS || q->kind == JJ_VALUES || q->kind == JJ_ITEMS,
         known = view && jj_str_is(name, "mapping");
    for (size_t i = 0; q->kind == JJ_LAZY && i < LN_COUNT(generator); i++)
        known = known || jj_str_is(name, generator[i]);
    return known ? unsupported(r, v, name) : LN_OK;
}

static ln_status of_macro(jj_run *r, const jj_macro *m, const jj_str *name, jj_val *out) {
    const jj_sig *s = m->node->sig;
    bool explicit_caller = false;
    for (size_t i = 0; i < s->n; i++) explicit_caller = explicit_caller || jj_str_is(s->texts[i], "caller");
    if (jj_str_is(name, "name")) *out = m->name ? jj_of(m->name) : jj_none();
    else if (jj_str_is(name, "catch_kwargs")) *out = jj_bool(s->kwargs);
    else if (jj_str_is(name, "catch_varargs")) *out = jj_bool(s->varargs);
    else if (jj_str_is(name, "caller")) *out = jj_bool(s->caller);
    else if (jj_str_is(name, "explicit_caller")) *out = jj_bool(explicit_caller);
    if (!jj_str_is(name, "arguments")) return LN_OK;
    jj_val *v = jj_take(r, s->n * sizeof *v + 1);
    if (!v) return jj_nomem(r);
    for (size_t i = 0; i < s->n; i++) v[i] = jj_of(s->texts[i]);
    return jj_seq_new(r, JJ_TUPLE, v, s->n, out);
}

static ln_status of_counter(jj_run *r, jj_val v, const jj_str *name, jj_val *out) {
    const jj_counter *k = v.u.counter;
    if (v.kind == JJ_JOINER) {
        if (jj_str_is(name, "sep")) *out = k->sep;
        else if (jj_str_is(name, "used")) *out = jj_bool(k->used);
        return LN_OK;
    }
    if (jj_str_is(name, "pos")) *out = jj_int((int64_t)k->pos);
    else if (jj_str_is(name, "current")) *out = k->items[k->pos];
    return jj_str_is(name, "items") ? jj_seq_new(r, JJ_TUPLE, k->items, k->n, out) : LN_OK;
}

/* In Python range and dict are classes: the methods of a range are attributes of `range`, and dict[name]
 * is a type. */
static ln_status of_function(jj_run *r, jj_val v, const jj_str *name) {
    jj_seq range = {.kind = JJ_RANGE};
    bool unsafe = false, known = strcmp(v.u.func->name, "dict") == 0;
    if (strcmp(v.u.func->name, "range") == 0)
        known = jj_method_named((jj_val){JJ_SEQ, {.q = &range}}, name->p, name->n, &unsafe) != NULL;
    return known ? unsupported(r, v, name) : LN_OK;
}

ln_status jj_object_attr(jj_run *r, jj_val v, const jj_str *name, jj_val *out) {
    switch (v.kind) {
    case JJ_BOOL:
    case JJ_INT:
    case JJ_BIG:
    case JJ_FLOAT: return of_number(r, v, name, out);
    case JJ_SEQ: return of_seq(r, v, name, out);
    case JJ_MACRO: return of_macro(r, v.u.macro, name, out);
    case JJ_CYCLER:
    case JJ_JOINER: return of_counter(r, v, name, out);
    case JJ_FUNC: return of_function(r, v, name);
    default: return LN_OK;
    }
}
