/* Name lookup, assignment, loops, macros and calls.
 *
 * A name is looked up in the scopes from the innermost outwards, then among the template's global
 * variables, which are initialised with the caller's variables and the built-in functions. Loops, macros,
 * block sets, filter blocks and `with` have scopes; `if` has none. A macro sees the scopes that enclose
 * its definition, with the values that they have when it is called.
 *
 * A loop fetches at most one item ahead, because its filter may depend on variables that the body sets.
 * Its `else` branch runs unless some iteration reached the end of the body: also after `break` or
 * `continue` in every iteration, as in Jinja2. */
#include "jinja_internal.h"

/* ---- names ---- */

ln_status jj_lookup(jj_run *r, int32_t name, jj_val *out) {
    for (const jj_scope *s = r->scope; s; s = s->parent)
        for (size_t i = 0; i < s->n; i++)
            if (s->vars[i].name == name) {
                *out = s->vars[i].v;
                return out->kind == JJ_MISSING ? jj_undef_name(r, r->t->name_text[name], out) : LN_OK;
            }
    *out = r->root[name];
    return out->kind == JJ_MISSING ? jj_undef_name(r, r->t->name_text[name], out) : LN_OK;
}

static ln_status define(jj_run *r, jj_scope *s, int32_t name, jj_val v) {
    for (size_t i = 0; i < s->n; i++)
        if (s->vars[i].name == name) return s->vars[i].v = v, LN_OK;
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 4;
        struct jj_var *vars = jj_take(r, cap * sizeof *vars);
        if (!vars) return jj_nomem(r);
        if (s->n > 0) memcpy(vars, s->vars, s->n * sizeof *vars);
        s->vars = vars;
        s->cap = cap;
    }
    s->vars[s->n++] = (struct jj_var){name, v};
    return LN_OK;
}

static ln_status hide(jj_run *r, jj_scope *s, const jj_hidden *hidden) {
    for (size_t i = 0; hidden && i < hidden->n; i++) LN_TRY(define(r, s, hidden->names[i], (jj_val){0}));
    return LN_OK;
}

ln_status jj_push(jj_run *r, jj_scope *parent, const jj_hidden *hidden, jj_scope **out) {
    *out = jj_take(r, sizeof **out);
    if (!*out) return jj_nomem(r);
    (*out)->parent = parent;
    return hide(r, *out, hidden);
}

ln_status jj_define(jj_run *r, int32_t name, jj_val v) {
    if (r->scope) return define(r, r->scope, name, v);
    r->root[name] = v;
    return LN_OK;
}

static ln_status unpack(jj_run *r, const jj_node *target, jj_val v) {
    const jj_val *items;
    size_t n;
    if (!jj_iterable(v)) return jj_fail(r, "cannot unpack non-iterable %s object", jj_type(v));
    LN_TRY(jj_iterate(r, v, &items, &n));
    if (n < target->n) return jj_fail(r, "not enough values to unpack (expected %zu, got %zu)", target->n, n);
    if (n > target->n) return jj_fail(r, "too many values to unpack (expected %zu)", target->n);
    for (size_t i = 0; i < n; i++) LN_TRY(jj_assign(r, target->list[i], items[i]));
    return LN_OK;
}

ln_status jj_assign(jj_run *r, const jj_node *target, jj_val v) {
    r->at = target->at;
    if (target->kind == N_NAME) return jj_define(r, target->name, v);
    if (target->kind == N_TUPLE) return unpack(r, target, v);
    jj_val space;
    LN_TRY(jj_lookup(r, target->name, &space));
    if (space.kind != JJ_SPACE) return jj_fail(r, "cannot assign attribute on non-namespace object");
    return jj_space_set(r, space.u.space, target->value.u.s, v);
}

jj_val *jj_space_find(const jj_space *s, const jj_str *name) {
    for (size_t i = 0; i < s->n; i++)
        if (jj_str_eq(s->names[i], name)) return &s->values[i];
    return NULL;
}

ln_status jj_space_set(jj_run *r, jj_space *s, const jj_str *name, jj_val v) {
    jj_val *found = jj_space_find(s, name);
    if (found) return *found = v, LN_OK;
    if (s->n == 256) return jj_fail(r, "more than 256 attributes of one namespace");
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 8;
        const jj_str **names = jj_take(r, cap * sizeof *names);
        jj_val *values = jj_take(r, cap * sizeof *values);
        if (!names || !values) return jj_nomem(r);
        if (s->n > 0)
            memcpy(names, s->names, s->n * sizeof *names), memcpy(values, s->values, s->n * sizeof *values);
        s->names = names, s->values = values;
        s->cap = cap;
    }
    s->names[s->n] = name;
    s->values[s->n++] = v;
    return LN_OK;
}

/* ---- loops ---- */

/* Fetches the next item that the loop's filter accepts. */
static ln_status fetch(jj_run *r, jj_loop *l, jj_val *out) {
    out->kind = JJ_MISSING;
    while (l->pos < l->n) {
        jj_val v = l->v[l->pos++], yes;
        if (!l->node->c) return *out = v, LN_OK;
        jj_scope *s, *outer = r->scope;
        LN_TRY(jj_push(r, l->scope, NULL, &s));
        r->scope = s;
        LN_TRY(jj_assign(r, l->node->b, v));
        LN_TRY(jj_eval(r, l->node->c, &yes));
        r->scope = outer;
        if (jj_truth(yes)) return *out = v, LN_OK;
    }
    return LN_OK;
}

static ln_status peek(jj_run *r, jj_loop *l, jj_val *out) {
    if (l->after.kind == JJ_MISSING) LN_TRY(fetch(r, l, &l->after));
    *out = l->after;
    return LN_OK;
}

ln_status jj_loop_next(jj_run *r, jj_loop *l, jj_val *out) {
    LN_TRY(peek(r, l, out));
    if (out->kind == JJ_MISSING) return LN_OK;
    l->after.kind = JJ_MISSING;
    l->index0++;
    l->before = l->current;
    l->current = *out;
    return LN_OK;
}

/* Computes the number of iterations; with a filter all remaining items must be evaluated. */
static ln_status length(jj_run *r, jj_loop *l) {
    if (l->length >= 0) return LN_OK;
    if (!l->node->c) {
        l->length = (int64_t)l->n;
        return LN_OK;
    }
    size_t rest = 0;
    jj_val *kept = jj_take(r, (l->n - l->pos) * sizeof *kept + 1);
    if (!kept) return jj_nomem(r);
    for (;;) {
        jj_val v;
        LN_TRY(fetch(r, l, &v));
        if (v.kind == JJ_MISSING) break;
        kept[rest++] = v;
    }
    l->length = (int64_t)rest + l->index0 + 1 + (l->after.kind != JJ_MISSING);
    jj_node *plain = jj_take(r, sizeof *plain); /* the remaining items have passed the filter already */
    if (!plain) return jj_nomem(r);
    *plain = *l->node;
    plain->c = NULL;
    l->node = plain;
    l->v = kept;
    l->n = rest;
    l->pos = 0;
    return LN_OK;
}

static ln_status loop_call(jj_run *r, jj_loop *l, const char *name, jj_val *out) {
    jj_bound *b = jj_take(r, sizeof *b);
    if (!b) return jj_nomem(r);
    *b = (jj_bound){jj_loop_method(name), {JJ_LOOP, {.loop = l}}};
    *out = (jj_val){JJ_METHOD, {.bound = b}};
    return LN_OK;
}

ln_status jj_loop_attr(jj_run *r, jj_loop *l, const jj_str *name, jj_val *out) {
    static const char *const names[] = {"index0",    "index",    "first",    "last",     "length",
                                        "revindex0", "revindex", "previtem", "nextitem", "depth0",
                                        "depth",     "cycle",    "changed"};
    size_t k = 0;
    jj_val next;
    while (k < LN_COUNT(names) && !jj_str_is(name, names[k])) k++;
    out->kind = JJ_MISSING;
    if (k >= 4 && k <= 6) LN_TRY(length(r, l));
    if (k == 3 || k == 8) LN_TRY(peek(r, l, &next));
    switch (k) {
    case 0: *out = jj_int(l->index0); return LN_OK;
    case 1: *out = jj_int(l->index0 + 1); return LN_OK;
    case 2: *out = jj_bool(l->index0 == 0); return LN_OK;
    case 3: *out = jj_bool(next.kind == JJ_MISSING); return LN_OK;
    case 4: *out = jj_int(l->length); return LN_OK;
    case 5: *out = jj_int(l->length - l->index0 - 1); return LN_OK;
    case 6: *out = jj_int(l->length - l->index0); return LN_OK;
    case 7:
        *out = l->before;
        return l->index0 == 0 ? jj_undef_form(r, "there is no previous item", out) : LN_OK;
    case 8:
        *out = next;
        return next.kind == JJ_MISSING ? jj_undef_form(r, "there is no next item", out) : LN_OK;
    case 9: *out = jj_int(0); return LN_OK;
    case 10: *out = jj_int(1); return LN_OK;
    case 11:
    case 12: return loop_call(r, l, names[k], out);
    default: return LN_OK;
    }
}

static ln_status round_of(jj_run *r, const jj_node *n, jj_loop *l, jj_val item, jj_scope **s) {
    if (!*s || (*s)->captured) LN_TRY(jj_push(r, l->scope, NULL, s));
    (*s)->n = 0;
    LN_TRY(hide(r, *s, &n->hidden));
    r->scope = *s;
    LN_TRY(jj_assign(r, n->b, item));
    LN_TRY(jj_define(r, r->t->known.loop, (jj_val){JJ_LOOP, {.loop = l}}));
    return jj_exec(r, n->body);
}

ln_status jj_for(jj_run *r, const jj_node *n) {
    jj_val over, item;
    bool ended = false;
    jj_scope *outer = r->scope, *s = NULL;
    LN_TRY(jj_eval(r, n->a, &over));
    jj_loop *l = jj_take(r, sizeof *l);
    if (!l) return jj_nomem(r);
    *l = (jj_loop){.node = n, .scope = outer, .index0 = -1, .length = -1};
    r->at = n->a->at;
    LN_TRY(jj_iterate(r, over, &l->v, &l->n));
    while (r->flow != FLOW_BREAK) {
        r->flow = FLOW_ON;
        r->scope = outer;
        LN_TRY(jj_spend(r, 0));
        LN_TRY(jj_loop_next(r, l, &item));
        if (item.kind == JJ_MISSING) break;
        LN_TRY(round_of(r, n, l, item, &s));
        ended = ended || r->flow == FLOW_ON;
    }
    r->flow = FLOW_ON;
    r->scope = outer;
    if (ended || !n->otherwise) return LN_OK;
    LN_TRY(jj_push(r, outer, &n->hidden_else, &s));
    r->scope = s;
    LN_TRY(jj_exec(r, n->otherwise));
    r->scope = outer;
    return LN_OK;
}

/* ---- calls ---- */

ln_status jj_call_args(jj_run *r, const jj_args *a, jj_val caller, jj_call *out) {
    jj_val star = {0}, stars = {0};
    const jj_val *more = NULL;
    size_t n_more = 0;
    jj_val *early = jj_take(r, a->n_pos * sizeof *early + 1);
    if (!early) return jj_nomem(r);
    for (size_t i = 0; i < a->n_pos; i++) LN_TRY(jj_eval(r, a->pos[i], &early[i]));
    if (a->star) {
        LN_TRY(jj_eval(r, a->star, &star));
        LN_TRY(jj_iterate(r, star, &more, &n_more));
    }
    jj_val *pos = early;
    if (n_more > 0) {
        pos = jj_take(r, (a->n_pos + n_more) * sizeof *pos);
        if (!pos) return jj_nomem(r);
        memcpy(pos, early, a->n_pos * sizeof *pos);
        memcpy(pos + a->n_pos, more, n_more * sizeof *pos);
    }
    jj_val *named = jj_take(r, (a->n_named + 1) * sizeof *named);
    if (!named) return jj_nomem(r);
    for (size_t i = 0; i < a->n_named; i++) LN_TRY(jj_eval(r, a->named[i], &named[i]));
    if (a->star_star) LN_TRY(jj_eval(r, a->star_star, &stars));
    if (a->star_star && stars.kind != JJ_DICT)
        return jj_fail(r, "expected a mapping after **, found %s", jj_type(stars));
    size_t n_stars = a->star_star ? stars.u.d->n : 0, n = a->n_named + n_stars + (caller.kind != JJ_MISSING),
           at = a->n_named;
    const jj_str **names = jj_take(r, (n + 1) * sizeof *names);
    jj_val *values = jj_take(r, (n + 1) * sizeof *values);
    if (!names || !values) return jj_nomem(r);
    for (size_t i = 0; i < a->n_named; i++) names[i] = a->names[i], values[i] = named[i];
    for (size_t i = 0; i < n_stars; i++) {
        if (stars.u.d->keys[i].kind != JJ_STR) return jj_fail(r, "keywords must be strings");
        names[at] = stars.u.d->keys[i].u.s;
        values[at++] = stars.u.d->values[i];
    }
    if (caller.kind != JJ_MISSING) names[at] = r->t->name_text[r->t->known.caller], values[at++] = caller;
    for (size_t i = 0; i < at; i++)
        for (size_t k = 0; k < i && at < 64; k++)
            if (jj_str_eq(names[i], names[k]))
                return jj_fail(r, "got multiple values for one keyword argument");
    *out = (jj_call){.pos = pos, .named = values, .names = names, .n_pos = a->n_pos + n_more, .n_named = at};
    return LN_OK;
}

ln_status jj_macro_new(jj_run *r, const jj_node *n, const jj_str *name, jj_val *out) {
    jj_macro *m = jj_take(r, sizeof *m);
    if (!m) return jj_nomem(r);
    *m = (jj_macro){.name = name, .node = n, .scope = r->scope};
    for (jj_scope *s = r->scope; s && !s->captured; s = s->parent) s->captured = true;
    *out = (jj_val){JJ_MACRO, {.macro = m}};
    return LN_OK;
}

/* Binds the parameters of a macro: to an argument, the default or undefined. `used` marks the keyword
 * arguments that were bound. */
static ln_status bind(jj_run *r, const jj_macro *m, const jj_call *c, bool *used) {
    const jj_sig *s = m->node->sig;
    /* A default must not see a variable of an outer scope with the parameter's name. */
    for (size_t i = 0; i < s->n; i++) LN_TRY(jj_define(r, s->names[i], (jj_val){0}));
    for (size_t i = 0; i < s->n; i++) {
        jj_val v = {0};
        if (i < c->n_pos) v = c->pos[i];
        for (size_t k = 0; k < c->n_named && i >= c->n_pos; k++) {
            if (!jj_str_eq(c->names[k], s->texts[i])) continue;
            v = c->named[k];
            used[k] = true;
        }
        size_t first = s->n - s->n_defaults;
        if (v.kind == JJ_MISSING && i >= first) LN_TRY(jj_eval(r, s->defaults[i - first], &v));
        if (v.kind == JJ_MISSING) LN_TRY(jj_undef_form(r, "a parameter was not provided", &v));
        LN_TRY(jj_define(r, s->names[i], v));
    }
    return LN_OK;
}

/* Binds the remaining arguments to caller, kwargs and varargs if the macro's body mentions them; otherwise
 * they are an error. */
static ln_status bind_rest(jj_run *r, const jj_macro *m, const jj_call *c, bool *used) {
    const jj_sig *s = m->node->sig;
    jj_val v;
    char shown[80];
    bool explicit_caller = false;
    for (size_t i = 0; i < s->n; i++) explicit_caller = explicit_caller || s->names[i] == r->t->known.caller;
    if (s->caller && !explicit_caller) {
        LN_TRY(jj_undef_form(r, "no caller defined", &v));
        for (size_t k = 0; k < c->n_named; k++)
            if (!used[k] && jj_str_is(c->names[k], "caller")) v = c->named[k], used[k] = true;
        LN_TRY(jj_define(r, r->t->known.caller, v));
    }
    size_t n = 0;
    jj_val *keys = jj_take(r, c->n_named * sizeof *keys + 1),
           *values = jj_take(r, c->n_named * sizeof *values + 1);
    if (!keys || !values) return jj_nomem(r);
    for (size_t k = 0; k < c->n_named; k++) {
        if (used[k]) continue;
        if (!s->kwargs)
            return jj_fail(r, "the macro takes no keyword argument '%s'",
                           ln_excerpt(shown, c->names[k]->p, c->names[k]->n));
        keys[n] = jj_of(c->names[k]);
        values[n++] = c->named[k];
    }
    if (s->kwargs) {
        LN_TRY(jj_dict_new(r, keys, values, n, &v));
        LN_TRY(jj_define(r, r->t->known.kwargs, v));
    }
    size_t given = LN_MIN(c->n_pos, s->n);
    if (!s->varargs && c->n_pos > s->n)
        return jj_fail(r, "the macro takes not more than %zu argument(s)", s->n);
    if (!s->varargs) return LN_OK;
    LN_TRY(jj_seq_new(r, JJ_TUPLE, c->pos + given, c->n_pos - given, &v));
    return jj_define(r, r->t->known.varargs, v);
}

static ln_status call_macro(jj_run *r, const jj_macro *m, const jj_call *c, jj_val *out) {
    jj_scope *s, *outer = r->scope;
    bool *used = jj_take(r, c->n_named + 1);
    if (!used) return jj_nomem(r);
    if (++r->depth > JINJA_MAX_DEPTH)
        return jj_fail(r, "more than %d steps deep; does a macro call itself for ever?", JINJA_MAX_DEPTH);
    LN_TRY(jj_push(r, m->scope, &m->node->hidden, &s));
    r->scope = s;
    LN_TRY(bind(r, m, c, used));
    LN_TRY(bind_rest(r, m, c, used));
    LN_TRY(jj_capture(r, m->node->body, out));
    r->scope = outer;
    r->depth--;
    return LN_OK;
}

ln_status jj_call_value(jj_run *r, jj_val f, const jj_call *c, jj_val *out) {
    switch (f.kind) {
    case JJ_MACRO: return call_macro(r, f.u.macro, c, out);
    case JJ_JOINER: return jj_join_next(r, f.u.counter, c, out);
    case JJ_FUNC:
        if (!f.u.func->fn) return jj_fail(r, "the function '%s' is not supported", f.u.func->name);
        return jj_apply(r, f.u.func, (jj_val){0}, c, out);
    case JJ_METHOD:
        if (!f.u.bound->func->fn)
            return jj_fail(r, "the method '%s' of %s is not supported", f.u.bound->func->name,
                           jj_type(f.u.bound->self));
        return jj_apply(r, f.u.bound->func, f.u.bound->self, c, out);
    case JJ_UNDEF: return jj_undef_fail(r, f);
    case JJ_LOOP: return jj_fail(r, "recursive loops are not supported");
    default: return jj_fail(r, "'%s' object is not callable", jj_type(f));
    }
}
