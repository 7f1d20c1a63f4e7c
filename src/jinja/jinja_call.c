/* Calling built-ins: looking up a table entry and binding arguments to its parameters. Also the global
 * functions. */
#include "jinja_internal.h"

#include "../base/c_locale.h"

const jj_func *jj_find(const jj_func *rows, size_t n_rows, const char *name, size_t n) {
    for (size_t i = 0; i < n_rows; i++)
        if (strlen(rows[i].name) == n && memcmp(rows[i].name, name, n) == 0) return &rows[i];
    return NULL;
}

/* The k-th name of a parameter list, NULL beyond its end. Names before '|' are required. */
static const char *word_at(const char *words, size_t k, size_t *n, bool *required) {
    *required = strchr(words, '|') == NULL;
    bool before = strchr(words, '|') != NULL;
    for (const char *p = words; *p;) {
        if (*p == ' ' || *p == '|') {
            before = before && *p != '|';
            p++;
            continue;
        }
        *n = strcspn(p, " |");
        if (k-- == 0) {
            *required = before;
            return p;
        }
        p += *n;
    }
    return NULL;
}

/* Stores the arguments in the order of the entry's parameters; arguments that were not given stay
 * JJ_MISSING. */
static ln_status bind(jj_run *r, const jj_func *f, const jj_call *c, jj_val *a) {
    size_t n_params = 0, n, taken = 0;
    bool required;
    char shown[80];
    for (const char *w; n_params < JJ_MAX_ARGS && (w = word_at(f->params, n_params, &n, &required)) != NULL;
         n_params++) {
        if (n_params < c->n_pos) a[n_params] = c->pos[n_params];
        for (size_t k = 0; k < c->n_named; k++) {
            if (c->names[k]->n != n || memcmp(c->names[k]->p, w, n) != 0) continue;
            if (a[n_params].kind != JJ_MISSING)
                return jj_fail(r, "%s() got multiple values for argument '%.*s'", f->name, (int)n, w);
            a[n_params] = c->named[k];
            taken++;
        }
        if (required && a[n_params].kind == JJ_MISSING)
            return jj_fail(r, "%s() missing the argument '%.*s'", f->name, (int)n, w);
    }
    if (c->n_pos > n_params)
        return jj_fail(r, "%s() takes at most %zu argument(s), found %zu", f->name, n_params, c->n_pos);
    if (taken == c->n_named) return LN_OK;
    for (size_t k = 0; k < c->n_named; k++) {
        bool known = false;
        const char *w;
        for (size_t i = 0; i < n_params && (w = word_at(f->params, i, &n, &required)) != NULL; i++)
            known = known || (c->names[k]->n == n && memcmp(c->names[k]->p, w, n) == 0);
        if (!known)
            return jj_fail(r, "%s() got an unexpected keyword argument '%s'", f->name,
                           ln_excerpt(shown, c->names[k]->p, c->names[k]->n));
    }
    return LN_OK;
}

ln_status jj_apply(jj_run *r, const jj_func *f, jj_val self, const jj_call *call, jj_val *out) {
    jj_val a[JJ_MAX_ARGS] = {{0}};
    if (f->params[0] != '*') LN_TRY(bind(r, f, call, a));
    r->how = f->how;
    return f->fn(r, self, a, call, out);
}

ln_status jj_arg_text(jj_run *r, jj_val v, const char *what, const jj_str **out) {
    if (v.kind == JJ_UNDEF) return jj_undef_fail(r, v);
    if (v.kind != JJ_STR) return jj_fail(r, "%s: expected str, found %s", what, jj_type(v));
    *out = v.u.s;
    return LN_OK;
}

ln_status jj_arg_int(jj_run *r, jj_val v, const char *what, int64_t otherwise, int64_t *out) {
    *out = otherwise;
    if (v.kind == JJ_MISSING || jj_integer(v, out)) return LN_OK;
    if (v.kind == JJ_UNDEF) return jj_undef_fail(r, v);
    if (v.kind == JJ_BIG) return jj_fail(r, "%s: expected an integer of at most 64 bits", what);
    return jj_fail(r, "%s: expected an integer, found %s", what, jj_type(v));
}

/* ---- globals ---- */

static ln_status range(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    int64_t from, to, step;
    (void)self, (void)c;
    LN_TRY(jj_arg_int(r, a[0], "range()", 0, &from));
    LN_TRY(jj_arg_int(r, a[1], "range()", 0, &to));
    LN_TRY(jj_arg_int(r, a[2], "range()", 1, &step));
    if (a[1].kind == JJ_MISSING) return jj_range_new(r, 0, from, 1, out);
    return jj_range_new(r, from, to, step, out);
}

/* dict(pairs or mapping, name=value): keys and values in order of insertion. */
static ln_status pairs_of(jj_run *r, const jj_call *c, jj_val **keys, jj_val **values, size_t *n) {
    const jj_val *items = NULL;
    size_t k = 0;
    *n = 0;
    if (c->n_pos > 1) return jj_fail(r, "expected at most 1 argument, found %zu", c->n_pos);
    if (c->n_pos == 1) LN_TRY(jj_iterate(r, c->pos[0], &items, &k));
    *keys = jj_take(r, (k + c->n_named) * sizeof **keys + 1);
    *values = jj_take(r, (k + c->n_named) * sizeof **values + 1);
    if (!*keys || !*values) return jj_nomem(r);
    for (size_t i = 0; i < k; i++) {
        const jj_val *pair;
        size_t two = 2;
        if (c->pos[0].kind == JJ_DICT) {
            (*keys)[*n] = items[i];
            (*values)[(*n)++] = c->pos[0].u.d->values[i];
            continue;
        }
        LN_TRY(jj_iterate(r, items[i], &pair, &two));
        if (two != 2) return jj_fail(r, "expected pairs, found an item of %zu", two);
        (*keys)[*n] = pair[0];
        (*values)[(*n)++] = pair[1];
    }
    for (size_t i = 0; i < c->n_named; i++) {
        (*keys)[*n] = jj_of(c->names[i]);
        (*values)[(*n)++] = c->named[i];
    }
    return LN_OK;
}

static ln_status dict(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    jj_val *keys, *values;
    size_t n;
    (void)self, (void)a;
    LN_TRY(pairs_of(r, c, &keys, &values, &n));
    return jj_dict_new(r, keys, values, n, out);
}

static ln_status namespace(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    jj_val *keys, *values;
    size_t n;
    jj_space *s = jj_take(r, sizeof *s);
    (void)self, (void)a;
    if (!s) return jj_nomem(r);
    LN_TRY(pairs_of(r, c, &keys, &values, &n));
    for (size_t i = 0; i < n; i++) {
        if (keys[i].kind != JJ_STR)
            return jj_fail(r, "namespace(): expected names, found %s", jj_type(keys[i]));
        LN_TRY(jj_space_set(r, s, keys[i].u.s, values[i]));
    }
    *out = (jj_val){JJ_SPACE, {.space = s}};
    return LN_OK;
}

static ln_status raise_exception(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    const jj_str *s = NULL;
    char shown[80];
    (void)self, (void)c, (void)out;
    LN_TRY(jj_to_str(r, a[0], &s));
    r->refused = s;
    return jj_fail(r, "the template rejects this conversation: %s", ln_excerpt(shown, s->p, s->n));
}

/* Formats one directive of strftime ("%Y", "%-d"). Directives that need a time zone give an empty string,
 * as for Python's naive datetimes. */
static ln_status directive(jj_run *r, jj_buf *b, const char *p, size_t n, bool data) {
    char form[8], text[128];
    memcpy(form, p, n);
    form[n] = '\0';
    if (form[n - 1] == 'f') return jj_put(r, b, "000000", 6, data);
    if (form[n - 1] == 'z' || form[n - 1] == 'Z' || form[n - 1] == 's') return LN_OK;
    size_t length = ln_strftime(text, sizeof text, form, &r->now);
    return jj_put(r, b, text, length, data);
}

static ln_status strftime_now(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    const jj_str *s = NULL;
    jj_buf b = {0};
    size_t done = 0;
    (void)self, (void)c;
    LN_TRY(jj_arg_text(r, a[0], "strftime_now()", &s));
    for (size_t at = 0; at < s->n; at++) {
        if (s->p[at] != '%') continue;
        size_t n = 1;
        while (at + n < s->n && n < 3 && strchr("-_0^#EO", s->p[at + n]) && s->p[at + n]) n++;
        if (at + n >= s->n || (unsigned char)s->p[at + n] >= 0x80 || s->p[at + n] == '\0') continue;
        LN_TRY(jj_put_part(r, &b, s, done, at));
        LN_TRY(directive(r, &b, s->p + at, n + 1, jj_byte_data(s, at)));
        at += n;
        done = at + 1;
    }
    LN_TRY(jj_put_part(r, &b, s, done, s->n));
    return jj_buf_str(r, &b, out);
}

const jj_func *jj_global_named(const char *name, size_t n) {
    static const jj_func rows[] = {{"range", "start|stop step", range, 0},
                                   {"dict", "*", dict, 0},
                                   {"namespace", "*", namespace, 0},
                                   {"raise_exception", "message|", raise_exception, 0},
                                   {"strftime_now", "format|", strftime_now, 0},
                                   {"cycler", "*", jj_cycler, 0},
                                   {"joiner", "|sep", jj_joiner, 0},
                                   {"lipsum", "*", NULL, 0}};
    return jj_find(rows, LN_COUNT(rows), name, n);
}

/* ---- methods of `loop` ---- */

static ln_status cycle(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    (void)a;
    if (c->n_pos == 0) return jj_fail(r, "no items for cycling given");
    *out = c->pos[(size_t)self.u.loop->index0 % c->n_pos];
    return LN_OK;
}

static ln_status changed(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    jj_val now;
    bool same = false;
    (void)a;
    LN_TRY(jj_seq_new(r, JJ_TUPLE, c->pos, c->n_pos, &now));
    if (self.u.loop->changed.kind != JJ_MISSING) LN_TRY(jj_equal(r, now, self.u.loop->changed, &same));
    self.u.loop->changed = now;
    *out = jj_bool(!same);
    return LN_OK;
}

const jj_func *jj_loop_method(const char *name) {
    static const jj_func rows[] = {{"cycle", "*", cycle, 0}, {"changed", "*", changed, 0}};
    return jj_find(rows, LN_COUNT(rows), name, strlen(name));
}
