/* The evaluator: walks the syntax tree of a compiled template.
 *
 * Expressions evaluate to values; statements append to the current string builder, which is the output or
 * captures the text of a macro, a block set or a filter block. Every node counts against the limits of
 * depth and steps. `break` and `continue` set jj_run.flow, which stops the execution of each enclosing
 * body up to the loop. */
#include "jinja_internal.h"

#include "../base/c_locale.h"

ln_status jj_fail(jj_run *r, const char *fmt, ...) {
    char text[640];
    va_list args;
    va_start(args, fmt);
    if (ln_vsnprintf(text, sizeof text, fmt, args) < 0) text[0] = '\0';
    va_end(args);
    return jj_fail_at(r->t, r->at, r->err, "%s", text);
}

/* ---- expressions ---- */

static ln_status items(jj_run *r, const jj_node *n, jj_val *out) {
    jj_val *v = jj_take(r, n->n * sizeof *v + 1);
    if (!v) return jj_nomem(r);
    for (size_t i = 0; i < n->n; i++) LN_TRY(jj_eval(r, n->list[i], &v[i]));
    return jj_seq_new(r, n->kind == N_LIST ? JJ_LIST : JJ_TUPLE, v, n->n, out);
}

static ln_status dict(jj_run *r, const jj_node *n, jj_val *out) {
    size_t k = n->n / 2;
    jj_val *keys = jj_take(r, k * sizeof *keys + 1), *values = jj_take(r, k * sizeof *values + 1);
    if (!keys || !values) return jj_nomem(r);
    for (size_t i = 0; i < k; i++) {
        LN_TRY(jj_eval(r, n->list[2 * i], &keys[i]));
        LN_TRY(jj_eval(r, n->list[2 * i + 1], &values[i]));
    }
    r->at = n->at;
    return jj_dict_new(r, keys, values, k, out);
}

static ln_status or_none(jj_run *r, const jj_node *n, jj_val *out) {
    *out = jj_none();
    return n ? jj_eval(r, n, out) : LN_OK;
}

static ln_status item(jj_run *r, const jj_node *n, jj_val *out) {
    jj_val v, part[3];
    LN_TRY(jj_eval(r, n->a, &v));
    if (n->b->kind == N_SLICE) {
        LN_TRY(or_none(r, n->b->a, &part[0]));
        LN_TRY(or_none(r, n->b->b, &part[1]));
        LN_TRY(or_none(r, n->b->c, &part[2]));
        r->at = n->at;
        /* Jinja2 evaluates a constant expression of a print at compile time; there a failing slice is
         * undefined */
        if (r->folding && v.kind != JJ_STR && (v.kind != JJ_SEQ || v.u.q->kind > JJ_RANGE))
            return jj_undef_attr(r, v, part[0], out);
        return jj_slice(r, v, part[0], part[1], part[2], out);
    }
    LN_TRY(jj_eval(r, n->b, &part[0]));
    r->at = n->at;
    return jj_item(r, v, part[0], out);
}

static ln_status call(jj_run *r, const jj_node *n, jj_val caller, jj_val *out) {
    jj_val f;
    jj_call c;
    LN_TRY(jj_eval(r, n->a, &f));
    LN_TRY(jj_call_args(r, n->args, caller, &c));
    r->at = n->at;
    return jj_call_value(r, f, &c, out);
}

/* Applies a filter or a test. */
static ln_status applied(jj_run *r, const jj_node *n, jj_val *out) {
    jj_val self = r->filtered;
    jj_call c = {0};
    char shown[80];
    const char *what = n->kind == N_FILTER ? "filter" : "test";
    if (n->a) LN_TRY(jj_eval(r, n->a, &self));
    if (n->args) LN_TRY(jj_call_args(r, n->args, (jj_val){0}, &c));
    r->at = n->at;
    if (!n->func)
        return jj_fail(r, "no %s named '%s'", what, ln_excerpt(shown, n->value.u.s->p, n->value.u.s->n));
    if (!n->func->fn) return jj_fail(r, "the %s '%s' is not supported", what, n->func->name);
    return jj_apply(r, n->func, self, &c, out);
}

static ln_status compare_with(jj_run *r, jj_op op, jj_val a, jj_val b, bool *yes) {
    ln_status st;
    switch (op) {
    case JJ_EQ: return jj_equal(r, a, b, yes);
    case JJ_NE:
        st = jj_equal(r, a, b, yes);
        *yes = !*yes;
        return st;
    case JJ_IN: return jj_contains(r, a, b, yes);
    case JJ_NOT_IN:
        st = jj_contains(r, a, b, yes);
        *yes = !*yes;
        return st;
    default: return jj_less(r, a, b, op, yes);
    }
}

static ln_status compare(jj_run *r, const jj_node *n, jj_val *out) {
    jj_val left, right;
    bool yes = true;
    LN_TRY(jj_eval(r, n->a, &left));
    for (size_t i = 0; i < n->n && yes; i++) {
        LN_TRY(jj_eval(r, n->list[i]->a, &right));
        r->at = n->list[i]->at;
        LN_TRY(compare_with(r, (jj_op)n->list[i]->op, left, right, &yes));
        left = right;
    }
    *out = jj_bool(yes);
    return LN_OK;
}

static ln_status concat(jj_run *r, const jj_node *n, jj_val *out) {
    jj_buf b = {0};
    for (size_t i = 0; i < n->n; i++) {
        jj_val v;
        LN_TRY(jj_eval(r, n->list[i], &v));
        LN_TRY(jj_put_value(r, &b, v));
    }
    return jj_buf_str(r, &b, out);
}

static ln_status binary(jj_run *r, const jj_node *n, jj_val *out) {
    jj_val a, b;
    LN_TRY(jj_eval(r, n->a, &a));
    LN_TRY(jj_eval(r, n->b, &b));
    r->at = n->at;
    return jj_binary(r, (jj_op)n->op, a, b, out);
}

static ln_status conditional(jj_run *r, const jj_node *n, jj_val *out) {
    jj_val test;
    LN_TRY(jj_eval(r, n->a, &test));
    const jj_node *pick = jj_truth(test) ? n->b : n->c;
    return pick ? jj_eval(r, pick, out)
                : jj_undef_form(r, "the inline if-expression evaluated to false and no else was given", out);
}

static ln_status eval(jj_run *r, const jj_node *n, jj_val *out) {
    switch (n->kind) {
    case N_CONST: *out = n->value; return LN_OK;
    case N_NAME: return jj_lookup(r, n->name, out);
    case N_LIST:
    case N_TUPLE: return items(r, n, out);
    case N_DICT: return dict(r, n, out);
    case N_ITEM: return item(r, n, out);
    case N_CALL: return call(r, n, (jj_val){0}, out);
    case N_FILTER:
    case N_TEST: return applied(r, n, out);
    case N_COMPARE: return compare(r, n, out);
    case N_CONCAT: return concat(r, n, out);
    case N_BINARY: return binary(r, n, out);
    case N_COND: return conditional(r, n, out);
    case N_SLICE: return jj_undef_form(r, "a slice among other indices", out);
    default: break;
    }
    jj_val v;
    LN_TRY(jj_eval(r, n->a, &v));
    r->at = n->at;
    switch (n->kind) {
    case N_ATTR: return jj_attr(r, v, n->value.u.s, out);
    case N_NOT: *out = jj_bool(!jj_truth(v)); return LN_OK;
    case N_NEG: return jj_negative(r, v, true, out);
    case N_POS: return jj_negative(r, v, false, out);
    default:
        if (jj_truth(v) != (n->kind == N_OR)) return jj_eval(r, n->b, out); /* and, or */
        *out = v;
        return LN_OK;
    }
}

ln_status jj_eval(jj_run *r, const jj_node *n, jj_val *out) {
    r->at = n->at;
    if (++r->depth > JINJA_MAX_DEPTH)
        return jj_fail(r, "more than %d steps deep; does a macro call itself for ever?", JINJA_MAX_DEPTH);
    LN_TRY(jj_spend(r, 0));
    LN_TRY(eval(r, n, out));
    r->depth--;
    return LN_OK;
}

/* ---- statements ---- */

static ln_status if_(jj_run *r, const jj_node *n) {
    for (; n; n = n->c) {
        jj_val v;
        LN_TRY(jj_eval(r, n->a, &v));
        if (jj_truth(v)) return jj_exec(r, n->body);
        if (n->otherwise) return jj_exec(r, n->otherwise);
    }
    return LN_OK;
}

/* Executes a body in a new scope. */
static ln_status in_scope(jj_run *r, const jj_node *body, jj_scope *s) {
    jj_scope *outer = r->scope;
    r->scope = s;
    LN_TRY(jj_exec(r, body));
    r->scope = outer;
    return LN_OK;
}

ln_status jj_capture(jj_run *r, const jj_node *body, jj_val *out) {
    jj_buf b = {0}, *outer = r->out;
    r->out = &b;
    r->captures++;
    LN_TRY(jj_exec(r, body));
    r->captures--;
    r->out = outer;
    return jj_buf_str(r, &b, out);
}

/* The captured text of a block set or a filter block after its filters. */
static ln_status block_text(jj_run *r, const jj_node *n, jj_val *out) {
    jj_scope *s, *outer = r->scope;
    LN_TRY(jj_push(r, r->scope, &n->hidden, &s));
    r->scope = s;
    LN_TRY(jj_capture(r, n->body, out));
    r->scope = outer;
    r->filtered = *out;
    return n->a && r->flow == FLOW_ON ? jj_eval(r, n->a, out) : LN_OK;
}

static ln_status with(jj_run *r, const jj_node *n) {
    jj_scope *s, *outer = r->scope;
    LN_TRY(jj_push(r, r->scope, &n->hidden, &s));
    for (size_t i = 0; i + 1 < n->n; i += 2) {
        jj_val v;
        LN_TRY(jj_eval(r, n->list[i + 1], &v));
        r->scope = s;
        LN_TRY(jj_assign(r, n->list[i], v));
        r->scope = outer;
    }
    return in_scope(r, n->body, s);
}

/* Executes a {% generation %} block and records its byte range, unless its output is captured. */
static ln_status generation(jj_run *r, const jj_node *n) {
    jj_scope *s;
    size_t from = r->out->n;
    LN_TRY(jj_push(r, r->scope, &n->hidden, &s));
    LN_TRY(in_scope(r, n->body, s));
    if (r->captures > 0) return LN_OK;
    LN_TRY(ln_grow((void **)&r->spans, &r->cap_spans, r->n_spans + 1, sizeof *r->spans, r->err));
    r->spans[r->n_spans++] = (jinja_span){from, r->out->n};
    return LN_OK;
}

static ln_status call_block(jj_run *r, const jj_node *n) {
    jj_val caller, v;
    LN_TRY(jj_macro_new(r, n, NULL, &caller));
    LN_TRY(call(r, n->a, caller, &v));
    return jj_put_value(r, r->out, v);
}

static ln_status exec(jj_run *r, const jj_node *n) {
    jj_val v;
    switch (n->kind) {
    case N_DATA: return jj_put_str(r, r->out, n->value.u.s);
    case N_PRINT:
        r->folding = n->a->constant;
        LN_TRY(jj_eval(r, n->a, &v));
        r->folding = false;
        return jj_put_value(r, r->out, v);
    case N_IF: return if_(r, n);
    case N_FOR: return jj_for(r, n);
    case N_SET: LN_TRY(jj_eval(r, n->a, &v)); return jj_assign(r, n->b, v);
    case N_SET_BLOCK: LN_TRY(block_text(r, n, &v)); return r->flow == FLOW_ON ? jj_assign(r, n->b, v) : LN_OK;
    case N_FILTER_BLOCK:
        LN_TRY(block_text(r, n, &v));
        return r->flow == FLOW_ON ? jj_put_value(r, r->out, v) : LN_OK;
    case N_MACRO: LN_TRY(jj_macro_new(r, n, r->t->name_text[n->name], &v)); return jj_define(r, n->name, v);
    case N_CALL_BLOCK: return call_block(r, n);
    case N_WITH: return with(r, n);
    case N_GENERATION: return generation(r, n);
    case N_BREAK: r->flow = FLOW_BREAK; return LN_OK;
    case N_CONTINUE: r->flow = FLOW_CONTINUE; return LN_OK;
    default: return jj_fail(r, "a statement of unknown kind %d", n->kind);
    }
}

ln_status jj_exec(jj_run *r, const jj_node *n) {
    if (++r->depth > JINJA_MAX_DEPTH)
        return jj_fail(r, "more than %d steps deep; does a macro call itself for ever?", JINJA_MAX_DEPTH);
    for (; n && r->flow == FLOW_ON; n = n->next) {
        r->at = n->at;
        LN_TRY(jj_spend(r, 0));
        LN_TRY(exec(r, n));
    }
    r->depth--;
    return LN_OK;
}

/* ---- a rendering ---- */

ln_status jinja_begin(jinja_run **out, const jinja *t, const struct tm *now, ln_error *err) {
    *out = NULL;
    jinja_run *h = ln_zalloc(1, sizeof *h);
    if (!h) return LN_OOM(err, "a rendering");
    jj_run *r = &h->run;
    r->t = t;
    if (now) {
        r->now = *now;
    } else {
        time_t clock = time(NULL);
        if (!localtime_r(&clock, &r->now)) memset(&r->now, 0, sizeof r->now);
    }
    r->root = ln_arena_alloc(&r->arena, (size_t)(t->n_names + 1) * sizeof *r->root);
    if (!r->root) {
        jinja_end(&h);
        return LN_OOM(err, "a rendering");
    }
    for (int32_t i = 0; i < t->n_names; i++) {
        const jj_func *f = jj_global_named(t->name_text[i]->p, t->name_text[i]->n);
        if (f) r->root[i] = (jj_val){JJ_FUNC, {.func = f}};
    }
    *out = h;
    return LN_OK;
}

void jinja_end(jinja_run **r) {
    if (!*r) return;
    ln_free((*r)->run.spans);
    ln_arena_free(&(*r)->run.arena);
    ln_free(*r);
    *r = NULL;
}

static jj_run *enter(jinja_run *h, ln_error *err) {
    h->run.err = err ? err : &h->run.spare;
    return &h->run;
}

/* The slot of a global variable; NULL: the template does not mention that name. */
static jj_val *variable(jj_run *r, const char *name, size_t n) {
    int32_t at = strtab_find(&r->t->names, name, n);
    return at < 0 ? NULL : &r->root[at];
}

ln_status jinja_set_text(jinja_run *h, const char *name, const char *text, size_t bytes, bool trusted,
                         ln_error *err) {
    jj_run *r = enter(h, err);
    jj_val *v = variable(r, name, strlen(name));
    if (!v) return LN_OK;
    if (text) return jj_str_new(r, text, bytes, !trusted, v);
    *v = jj_none();
    return LN_OK;
}

ln_status jinja_set_bool(jinja_run *h, const char *name, bool b, ln_error *err) {
    jj_val *v = variable(enter(h, err), name, strlen(name));
    if (v) *v = jj_bool(b);
    return LN_OK;
}

ln_status jinja_set_json(jinja_run *h, const char *name, size_t name_bytes, ln_json *j, bool trusted,
                         ln_error *err) {
    jj_run *r = enter(h, err);
    jj_val *v = variable(r, name, name_bytes), unused;
    return jj_json_read(r, j, !trusted, NULL, v ? v : &unused, r->err);
}

ln_status jinja_set_messages(jinja_run *h, const ln_message *m, size_t n, ln_error *err) {
    jj_run *r = enter(h, err);
    jj_val *to = variable(r, "messages", 8), *list = jj_take(r, n * sizeof *list + 1);
    if (!list) return jj_nomem(r);
    for (size_t i = 0; i < n; i++) {
        jj_val *keys = jj_take(r, 2 * sizeof *keys), *values = jj_take(r, 2 * sizeof *values);
        if (!keys || !values) return jj_nomem(r);
        LN_TRY(jj_str_lit(r, "role", &keys[0]));
        LN_TRY(jj_str_lit(r, "content", &keys[1]));
        LN_TRY(jj_str_new(r, m[i].role, strlen(m[i].role), true, &values[0]));
        LN_TRY(jj_str_new(r, m[i].content ? m[i].content : "", m[i].content_bytes, true, &values[1]));
        LN_TRY(jj_dict_new(r, keys, values, 2, &list[i]));
    }
    jj_val all;
    LN_TRY(jj_seq_new(r, JJ_LIST, list, n, &all));
    if (to) *to = all;
    return LN_OK;
}

static const jj_seq *messages(const jinja_run *h) {
    int32_t at = strtab_find(&h->run.t->names, "messages", 8);
    const jj_val *v = at < 0 ? NULL : &h->run.root[at];
    return v && v->kind == JJ_SEQ ? v->u.q : NULL;
}

/* The value of the first of these keys that is present and not none. */
static jj_val member(const jj_dict *d, const char *const *names) {
    for (; *names; names++)
        for (size_t i = 0; i < d->n; i++)
            if (d->keys[i].kind == JJ_STR && jj_str_is(d->keys[i].u.s, *names) &&
                d->values[i].kind != JJ_NONE)
                return d->values[i];
    return (jj_val){0};
}

static ln_status tidy(jj_run *r, const jj_dict *d, jj_val *out) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning", NULL};
    jj_val *keys = jj_take(r, (d->n + 2) * sizeof *keys), *values = jj_take(r, (d->n + 2) * sizeof *values);
    jj_val reasoning = member(d, names);
    size_t n = 0;
    if (!keys || !values) return jj_nomem(r);
    /* Stored first and again at the end: of equal keys the last value counts. */
    if (reasoning.kind != JJ_MISSING) {
        LN_TRY(jj_str_lit(r, names[1], &keys[n]));
        values[n++] = reasoning;
    }
    for (size_t i = 0; i < d->n; i++)
        if (d->values[i].kind != JJ_NONE) keys[n] = d->keys[i], values[n++] = d->values[i];
    if (reasoning.kind != JJ_MISSING) {
        LN_TRY(jj_str_lit(r, names[0], &keys[n]));
        values[n++] = reasoning;
    }
    return jj_dict_new(r, keys, values, n, out);
}

ln_status jinja_tidy_messages(jinja_run *h, ln_error *err) {
    jj_run *r = enter(h, err);
    const jj_seq *q = messages(h);
    jj_val *list = q ? jj_take(r, q->n * sizeof *list + 1) : NULL;
    if (!q) return LN_OK;
    if (!list) return jj_nomem(r);
    for (size_t i = 0; i < q->n; i++) {
        list[i] = q->v[i];
        if (list[i].kind == JJ_DICT) LN_TRY(tidy(r, list[i].u.d, &list[i]));
    }
    return jj_seq_new(r, JJ_LIST, list, q->n, variable(r, "messages", 8));
}

size_t jinja_messages(const jinja_run *h) { return h->run.given ? h->run.given->n : 0; }

bool jinja_is_assistant(const jinja_run *h, size_t i) {
    static const char *const role[] = {"role", NULL};
    const jj_val m = h->run.given->v[i], v = m.kind == JJ_DICT ? member(m.u.d, role) : (jj_val){0};
    return v.kind == JJ_STR && jj_str_is(v.u.s, "assistant");
}

ln_status jinja_weight(const jinja_run *h, size_t i, bool *counts, ln_error *err) {
    static const char *const weight[] = {"weight", NULL};
    const jj_val m = h->run.given->v[i], v = m.kind == JJ_DICT ? member(m.u.d, weight) : (jj_val){0};
    *counts = true;
    if (v.kind == JJ_MISSING) return LN_OK;
    if (v.kind != JJ_INT || (v.u.i != 0 && v.u.i != 1))
        return ln_fail(err, LN_EINVALID, "messages[%zu].weight: expected 0 (the turn does not count) or 1",
                       i);
    *counts = v.u.i == 1;
    return LN_OK;
}

ln_status jinja_cut_messages(jinja_run *h, size_t n, ln_error *err) {
    jj_run *r = enter(h, err);
    const jj_seq *q = messages(h);
    if (!q || n >= q->n) return LN_OK;
    return jj_seq_new(r, JJ_LIST, q->v, n, variable(r, "messages", 8));
}

ln_status jinja_render(jinja_run *h, jinja_text *out, ln_error *err) {
    jj_run *r = enter(h, err);
    jj_buf b = {0};
    memset(out, 0, sizeof *out);
    r->out = &b;
    r->steps = 0;
    r->captures = 0;
    r->scope = NULL;
    r->n_spans = 0;
    r->refused = NULL;
    r->given = messages(h);
    r->depth = 0;
    r->flow = FLOW_ON;
    for (size_t i = 0; i < r->t->hidden.n; i++) r->root[r->t->hidden.names[i]].kind = JJ_MISSING;
    ln_status st = jj_exec(r, r->t->body);
    if (r->refused) {
        out->refused = r->refused->p;
        out->n_refused = r->refused->n;
    }
    if (st != LN_OK) return st;
    *out = (jinja_text){.text = b.p ? b.p : "",
                        .bytes = b.n,
                        .origin = b.origin,
                        .all_data = b.data,
                        .generated = r->spans,
                        .n_generated = r->n_spans};
    return LN_OK;
}
