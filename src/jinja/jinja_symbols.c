/* Computes which names a scope hides before it assigns them.
 *
 * Jinja2 decides at compile time, for each scope, where a name comes from. A name that a scope assigns,
 * without having read it before, and that no enclosing scope knows, is undefined at the scope's start:
 * even the caller's variable of that name is hidden from the scope and those inside it until the
 * assignment. A name that is assigned in branches of an `if` is looked up as usual. This pass finds the
 * names that are hidden at the start of each scope, with the same rules in the same order as Jinja2; all
 * other lookups are dynamic.
 *
 * The table of a scope has one byte of state per name. Branches share it: the changes of a branch are
 * logged, undone before the next branch, and merged at the end. */
#include "jinja_parse.h"

enum { KNOWN = 1, HIDDEN = 2, STORED = 4 };

typedef struct change {
    int32_t name;
    uint8_t before, after;
} change;

typedef struct scope {
    struct scope *parent;
    uint8_t *state; /* by name index */
    change *log;
    size_t n, cap;
} scope;

typedef struct pass {
    jinja *t;
    ln_error *err;
} pass;

static ln_status visit(pass *p, scope *s, const jj_node *n);
static ln_status scope_of(pass *p, scope *parent, const jj_node *n, const jj_node *target,
                          const jj_node *body, jj_hidden *out);

static ln_status change_to(pass *p, scope *s, int32_t name, uint8_t after) {
    if (s->state[name] == after) return LN_OK;
    LN_TRY(ln_grow((void **)&s->log, &s->cap, s->n + 1, sizeof *s->log, p->err));
    s->log[s->n++] = (change){name, s->state[name], after};
    s->state[name] = after;
    return LN_OK;
}

static bool known_outside(const scope *s, int32_t name) {
    for (s = s->parent; s; s = s->parent)
        if (s->state[name] & KNOWN) return true;
    return false;
}

static ln_status load(pass *p, scope *s, int32_t name) {
    if ((s->state[name] & KNOWN) || known_outside(s, name)) return LN_OK;
    return change_to(p, s, name, s->state[name] | KNOWN);
}

static ln_status store(pass *p, scope *s, int32_t name) {
    uint8_t now = s->state[name] | STORED;
    if (!(now & KNOWN)) now |= (uint8_t)(KNOWN | (known_outside(s, name) ? 0 : HIDDEN));
    return change_to(p, s, name, now);
}

static ln_status visit_target(pass *p, scope *s, const jj_node *n, bool parameter) {
    if (n->kind == N_NAME) return parameter ? change_to(p, s, n->name, KNOWN | STORED) : store(p, s, n->name);
    if (n->kind == N_SPACE_ATTR) return load(p, s, n->name);
    for (size_t i = 0; i < n->n; i++) LN_TRY(visit_target(p, s, n->list[i], parameter));
    return LN_OK;
}

static ln_status visit_args(pass *p, scope *s, const jj_args *a) {
    for (size_t i = 0; a && i < a->n_pos; i++) LN_TRY(visit(p, s, a->pos[i]));
    for (size_t i = 0; a && i < a->n_named; i++) LN_TRY(visit(p, s, a->named[i]));
    if (a && a->star) LN_TRY(visit(p, s, a->star));
    return a && a->star_star ? visit(p, s, a->star_star) : LN_OK;
}

static ln_status visit_body(pass *p, scope *s, const jj_node *n) {
    for (; n; n = n->next) LN_TRY(visit(p, s, n));
    return LN_OK;
}

/* ---- branches ---- */

typedef struct merging {
    change *all; /* the changes made by the branches so far, one branch after the other */
    size_t n, cap;
    size_t begin;
} merging;

static ln_status end_branch(pass *p, scope *s, merging *m) {
    for (size_t i = m->begin; i < s->n; i++) {
        LN_TRY(ln_grow((void **)&m->all, &m->cap, m->n + 1, sizeof *m->all, p->err));
        change c = s->log[i];
        m->all[m->n++] = c;
    }
    for (size_t i = s->n; i > m->begin; i--) s->state[s->log[i - 1].name] = s->log[i - 1].before;
    s->n = m->begin;
    return LN_OK;
}

static int by_name(const void *x, const void *y) {
    const change *a = x, *b = y;
    return (a->name > b->name) - (a->name < b->name);
}

/* A name that a branch assigns and that was not assigned before is not hidden. */
static ln_status merge(pass *p, scope *s, merging *m) {
    if (m->n > 1) qsort(m->all, m->n, sizeof *m->all, by_name);
    for (size_t i = 0, k; i < m->n; i = k) {
        uint8_t all = s->state[m->all[i].name];
        for (k = i; k < m->n && m->all[k].name == m->all[i].name; k++) all |= m->all[k].after;
        if ((all & STORED) && !(s->state[m->all[i].name] & STORED)) all &= (uint8_t)~HIDDEN;
        LN_TRY(change_to(p, s, m->all[i].name, all));
    }
    return LN_OK;
}

/* Visits the three branches of an `if`, each of which may be absent: its body, all its `elif` together,
 * its `else`. */
static ln_status visit_if(pass *p, scope *s, const jj_node *n) {
    merging m = {0};
    ln_status st;
    LN_GO(visit(p, s, n->a));
    m.begin = s->n;
    LN_GO(visit_body(p, s, n->body));
    LN_GO(end_branch(p, s, &m));
    const jj_node *last = n;
    for (const jj_node *e = n->c; e; e = e->c) { /* an elif is treated as an `if` without else */
        jj_node alone = *e;
        alone.c = alone.otherwise = NULL;
        LN_GO(visit_if(p, s, &alone));
        last = e;
    }
    LN_GO(end_branch(p, s, &m));
    LN_GO(visit_body(p, s, last->otherwise));
    LN_GO(end_branch(p, s, &m));
    LN_GO(merge(p, s, &m));
out:
    ln_free(m.all);
    return st;
}

/* ---- nodes ---- */

static ln_status visit(pass *p, scope *s, const jj_node *n) {
    switch (n->kind) {
    case N_NAME: return load(p, s, n->name);
    case N_IF: return visit_if(p, s, n);
    case N_FOR: return visit(p, s, n->a);
    case N_SET: LN_TRY(visit(p, s, n->a)); return visit_target(p, s, n->b, false);
    case N_SET_BLOCK: return visit_target(p, s, n->b, false);
    case N_MACRO: return store(p, s, n->name);
    case N_FILTER_BLOCK:
    case N_CALL_BLOCK: return visit(p, s, n->a);
    case N_WITH:
        for (size_t i = 1; i < n->n; i += 2) LN_TRY(visit(p, s, n->list[i]));
        return LN_OK;
    case N_GENERATION: return LN_OK;
    default: break;
    }
    if (n->a) LN_TRY(visit(p, s, n->a));
    if (n->b) LN_TRY(visit(p, s, n->b));
    if (n->c) LN_TRY(visit(p, s, n->c));
    for (size_t i = 0; i < n->n; i++) LN_TRY(visit(p, s, n->list[i]));
    return visit_args(p, s, n->args);
}

/* ---- nested scopes ---- */

/* Processes the scopes that open in a body. */
static ln_status inner(pass *p, scope *s, jj_node *first) {
    for (jj_node *n = first; n; n = n->next) {
        switch (n->kind) {
        case N_IF:
            for (jj_node *e = n; e; e = e->c) {
                LN_TRY(inner(p, s, e->body));
                LN_TRY(inner(p, s, e->otherwise));
            }
            break;
        case N_FOR:
            LN_TRY(scope_of(p, s, n, n->b, n->body, &n->hidden));
            LN_TRY(scope_of(p, s, n, NULL, n->otherwise, &n->hidden_else));
            break;
        case N_WITH:
        case N_MACRO:
        case N_CALL_BLOCK:
        case N_SET_BLOCK:
        case N_FILTER_BLOCK:
        case N_GENERATION: LN_TRY(scope_of(p, s, n, NULL, n->body, &n->hidden)); break;
        default: break;
        }
    }
    return LN_OK;
}

static ln_status parameters(pass *p, scope *s, const jj_node *n) {
    const jj_sig *g = n->sig;
    for (size_t i = 0; g && i < g->n; i++) LN_TRY(change_to(p, s, g->names[i], KNOWN | STORED));
    for (size_t i = 0; g && i < g->n_defaults; i++) LN_TRY(visit(p, s, g->defaults[i]));
    if (n->kind == N_FILTER_BLOCK) LN_TRY(visit(p, s, n->a));
    for (size_t i = 0; n->kind == N_WITH && i < n->n; i += 2) LN_TRY(visit_target(p, s, n->list[i], true));
    return LN_OK;
}

static ln_status list_hidden(pass *p, const scope *s, jj_hidden *out) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) n += (s->state[s->log[i].name] & HIDDEN) != 0;
    if (n == 0) return LN_OK;
    int32_t *names = ln_arena_alloc(&p->t->arena, n * sizeof *names);
    if (!names) return LN_OOM(p->err, "a chat template");
    for (size_t i = 0; i < s->n; i++) {
        uint8_t *state = &s->state[s->log[i].name];
        if (!(*state & HIDDEN)) continue;
        names[out->n++] = s->log[i].name;
        *state &= (uint8_t)~HIDDEN; /* list each name once */
    }
    out->names = names;
    return LN_OK;
}

/* Processes one scope: `n` is the node that opens it (NULL: the template), `target` the loop variables. */
static ln_status scope_of(pass *p, scope *parent, const jj_node *n, const jj_node *target,
                          const jj_node *body, jj_hidden *out) {
    scope s = {.parent = parent};
    ln_status st = LN_OK;
    s.state = ln_zalloc((size_t)p->t->n_names + 1, 1);
    if (!s.state) return LN_OOM(p->err, "a chat template");
    if (target) LN_GO(visit_target(p, &s, target, true));
    if (n && n->kind != N_FOR) LN_GO(parameters(p, &s, n));
    LN_GO(visit_body(p, &s, body));
    if (n && (n->sig || target)) { /* loop, caller, kwargs and varargs are defined by the scope itself */
        const int32_t own[] = {p->t->known.loop, p->t->known.caller, p->t->known.kwargs, p->t->known.varargs};
        for (size_t i = target ? 0 : 1; i < (target ? 1 : LN_COUNT(own)); i++) s.state[own[i]] = KNOWN;
    }
    LN_GO(list_hidden(p, &s, out));
    LN_GO(inner(p, &s, (jj_node *)(uintptr_t)(const void *)body));
out:
    ln_free(s.state);
    ln_free(s.log);
    return st;
}

ln_status jj_symbols(jinja *t, ln_error *err) {
    pass p = {t, err};
    return scope_of(&p, NULL, NULL, NULL, t->body, &t->hidden);
}
