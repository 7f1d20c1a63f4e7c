/* The expression parser: recursive descent over Jinja2's grammar, one function per precedence level:
 *
 *   cond:    or [if or [else cond]]
 *   or:      and {or and}
 *   and:     not {and not}
 *   not:     'not' not | compare
 *   compare: sum {== != < <= > >= in 'not in' sum}
 *   sum:     concat {+ - concat}
 *   concat:  product {~ product}
 *   product: power {* / // % power}
 *   power:   unary {** unary}
 *   unary:   (+ - unary | primary) postfix filters
 *
 * Nested groups are limited by JINJA_MAX_NESTING and the height of every tree by JJ_MAX_HEIGHT, so that
 * code that walks a tree may recurse. */
#include "jinja_parse.h"

enum { JJ_MAX_HEIGHT = 500 };

static void raise_height(jj_node *n, const jj_node *child) {
    if (child && child->height >= n->height) n->height = (uint16_t)(child->height + 1);
    n->constant = n->constant && (!child || child->constant);
}

/* Completes a node: computes its height and whether it is constant. Every node with children passes here. */
static ln_status finish(jj_parser *p, jj_node *n) {
    n->constant = n->kind != N_CALL;
    raise_height(n, n->a);
    raise_height(n, n->b);
    raise_height(n, n->c);
    for (size_t i = 0; i < n->n; i++) raise_height(n, n->list[i]);
    if (n->args) {
        for (size_t i = 0; i < n->args->n_pos; i++) raise_height(n, n->args->pos[i]);
        for (size_t i = 0; i < n->args->n_named; i++) raise_height(n, n->args->named[i]);
        raise_height(n, n->args->star);
        raise_height(n, n->args->star_star);
    }
    if (n->height <= JJ_MAX_HEIGHT) return LN_OK;
    return jj_fail_at(p->t, n->at, p->err, "an expression of more than %d steps on one way down",
                      JJ_MAX_HEIGHT);
}

static ln_status make(jj_parser *p, jj_node_kind kind, size_t at, jj_node *a, jj_node *b, jj_node **out) {
    jj_node *n;
    LN_TRY(jj_node_new(p, kind, at, &n));
    n->a = a;
    n->b = b;
    *out = n;
    return finish(p, n);
}

/* ---- primary ---- */

static ln_status name(jj_parser *p, jj_node **out) {
    static const struct {
        char text[6];
        jj_kind kind;
        bool b;
    } words[] = {{"true", JJ_BOOL, true},   {"True", JJ_BOOL, true},  {"false", JJ_BOOL, false},
                 {"False", JJ_BOOL, false}, {"none", JJ_NONE, false}, {"None", JJ_NONE, false}};
    jj_token t = p->cur;
    LN_TRY(jj_advance(p));
    for (size_t i = 0; i < LN_COUNT(words); i++)
        if (jj_is_name(&t, words[i].text))
            return jj_constant(p, t.at, (jj_val){words[i].kind, {.b = words[i].b}}, out);
    LN_TRY(jj_node_new(p, N_NAME, t.at, out));
    LN_TRY(jj_name_number(p, t.p, t.n, &(*out)->name));
    p->caller = p->caller || (*out)->name == p->t->known.caller;
    p->kwargs = p->kwargs || (*out)->name == p->t->known.kwargs;
    p->varargs = p->varargs || (*out)->name == p->t->known.varargs;
    return LN_OK;
}

static ln_status close_list(jj_parser *p, jj_node *n, const jj_list *l) {
    n->list = (jj_node *const *)l->v;
    n->n = l->n;
    return finish(p, n);
}

static ln_status list_or_dict(jj_parser *p, bool dict, jj_node **out) {
    jj_tok end = dict ? T_RBRACE : T_RBRACKET;
    jj_list l = {0};
    jj_node *item;
    LN_TRY(jj_node_new(p, dict ? N_DICT : N_LIST, p->cur.at, out));
    LN_TRY(jj_advance(p));
    while (p->cur.kind != end) {
        if (l.n > 0) LN_TRY(jj_expect(p, T_COMMA));
        if (p->cur.kind == end) break;
        LN_TRY(jj_expression(p, true, &item));
        LN_TRY(jj_list_add(p, &l, item));
        if (!dict) continue;
        LN_TRY(jj_expect(p, T_COLON));
        LN_TRY(jj_expression(p, true, &item));
        LN_TRY(jj_list_add(p, &l, item));
    }
    LN_TRY(jj_advance(p));
    return close_list(p, *out, &l);
}

static ln_status primary(jj_parser *p, jj_node **out) {
    switch (p->cur.kind) {
    case T_NAME: return name(p, out);
    case T_STR: return jj_text_literal(p, out);
    case T_INT:
    case T_FLOAT: return jj_number_literal(p, out);
    case T_LBRACKET: return list_or_dict(p, false, out);
    case T_LBRACE: return list_or_dict(p, true, out);
    case T_LPAREN:
        LN_TRY(jj_advance(p));
        LN_TRY(jj_tuple(p, true, true, out));
        return jj_expect(p, T_RPAREN);
    default: return jj_unexpected(p, "an expression");
    }
}

static bool ends_tuple(const jj_parser *p) {
    return p->cur.kind == T_VAR_END || p->cur.kind == T_BLOCK_END || p->cur.kind == T_RPAREN;
}

ln_status jj_tuple(jj_parser *p, bool with_cond, bool in_parentheses, jj_node **out) {
    size_t at = p->cur.at;
    jj_list l = {0};
    bool is_tuple = false;
    while (!ends_tuple(p)) {
        LN_TRY(jj_expression(p, with_cond, out));
        LN_TRY(jj_list_add(p, &l, *out));
        if (p->cur.kind != T_COMMA) break;
        is_tuple = true;
        LN_TRY(jj_advance(p));
    }
    if (!is_tuple && l.n == 1) return LN_OK;
    if (l.n == 0 && !in_parentheses) return jj_unexpected(p, "an expression");
    LN_TRY(jj_node_new(p, N_TUPLE, at, out));
    return close_list(p, *out, &l);
}

static ln_status one_target(jj_parser *p, bool with_space, jj_node **out) {
    jj_token t = p->cur, next;
    if (t.kind == T_LPAREN) {
        LN_TRY(jj_enter(p));
        LN_TRY(jj_advance(p));
        LN_TRY(jj_target(p, with_space, out));
        jj_leave(p);
        return jj_expect(p, T_RPAREN);
    }
    static const char *const taken[] = {"true", "True", "false", "False", "none", "None"};
    for (size_t i = 0; i < LN_COUNT(taken); i++)
        if (jj_is_name(&t, taken[i]))
            return jj_fail_at(p->t, t.at, p->err, "'%s' is no variable: it cannot be set", taken[i]);
    if (t.kind != T_NAME) return jj_unexpected(p, "the name of a variable");
    LN_TRY(jj_look(p, &next));
    LN_TRY(jj_node_new(p, with_space && next.kind == T_DOT ? N_SPACE_ATTR : N_NAME, t.at, out));
    LN_TRY(jj_name_number(p, t.p, t.n, &(*out)->name));
    if (p->loops > 0 && (*out)->kind == N_NAME && (*out)->name == p->t->known.loop)
        return jj_fail_at(p->t, t.at, p->err, "'loop' cannot be set in a loop");
    LN_TRY(jj_advance(p));
    if ((*out)->kind == N_NAME) return LN_OK;
    LN_TRY(jj_advance(p));
    int32_t attr;
    if (p->cur.kind != T_NAME) return jj_unexpected(p, "the name of an attribute");
    LN_TRY(jj_name_number(p, p->cur.p, p->cur.n, &attr));
    (*out)->value = jj_of(p->t->name_text[attr]);
    return jj_advance(p);
}

ln_status jj_target(jj_parser *p, bool with_space, jj_node **out) {
    size_t at = p->cur.at;
    jj_list l = {0};
    bool is_tuple = false;
    do {
        LN_TRY(one_target(p, with_space, out));
        LN_TRY(jj_list_add(p, &l, *out));
        if (p->cur.kind != T_COMMA) break;
        is_tuple = true;
        LN_TRY(jj_advance(p));
    } while (!ends_tuple(p) && !jj_is_name(&p->cur, "in"));
    if (!is_tuple) return LN_OK;
    LN_TRY(jj_node_new(p, N_TUPLE, at, out));
    return close_list(p, *out, &l);
}

/* ---- postfix operators ---- */

static ln_status subscript_part(jj_parser *p, jj_node **out) {
    *out = NULL;
    if (p->cur.kind == T_COLON || p->cur.kind == T_RBRACKET || p->cur.kind == T_COMMA) return LN_OK;
    return jj_expression(p, true, out);
}

/* Parses a subscript: from:to:step, or an expression. */
static ln_status subscribed(jj_parser *p, jj_node **out) {
    size_t at = p->cur.at;
    jj_node *part[3] = {NULL, NULL, NULL};
    LN_TRY(subscript_part(p, &part[0]));
    if (p->cur.kind != T_COLON) {
        *out = part[0];
        return part[0] ? LN_OK : jj_unexpected(p, "an index");
    }
    for (int i = 1; i < 3 && p->cur.kind == T_COLON; i++) {
        LN_TRY(jj_advance(p));
        LN_TRY(subscript_part(p, &part[i]));
    }
    LN_TRY(make(p, N_SLICE, at, part[0], part[1], out));
    (*out)->c = part[2];
    return finish(p, *out);
}

static ln_status subscript(jj_parser *p, jj_node *of, jj_node **out) {
    size_t at = p->cur.at;
    jj_node *key = NULL;
    jj_list l = {0};
    LN_TRY(jj_advance(p));
    while (p->cur.kind != T_RBRACKET) {
        if (l.n > 0) LN_TRY(jj_expect(p, T_COMMA));
        LN_TRY(subscribed(p, &key));
        LN_TRY(jj_list_add(p, &l, key));
    }
    LN_TRY(jj_advance(p));
    if (l.n != 1) {
        LN_TRY(jj_node_new(p, N_TUPLE, at, &key));
        LN_TRY(close_list(p, key, &l));
    }
    return make(p, N_ITEM, at, of, key, out);
}

static ln_status attribute(jj_parser *p, jj_node *of, jj_node **out) {
    size_t at = p->cur.at;
    jj_node *key;
    LN_TRY(jj_advance(p));
    if (p->cur.kind == T_INT) {
        LN_TRY(jj_number_literal(p, &key));
        return make(p, N_ITEM, at, of, key, out);
    }
    int32_t number_of;
    if (p->cur.kind != T_NAME) return jj_unexpected(p, "a name or a number");
    LN_TRY(jj_name_number(p, p->cur.p, p->cur.n, &number_of));
    LN_TRY(make(p, N_ATTR, at, of, NULL, out));
    (*out)->value = jj_of(p->t->name_text[number_of]);
    return jj_advance(p);
}

typedef struct arg_lists {
    jj_list pos, named, names;
} arg_lists;

static ln_status one_arg(jj_parser *p, jj_args *a, arg_lists *l) {
    jj_token t = p->cur, next = {0};
    jj_node *v;
    bool good = true;
    if (t.kind == T_MUL || t.kind == T_POW) {
        good = !a->star_star && (t.kind == T_POW || !a->star);
        LN_TRY(jj_advance(p));
        LN_TRY(jj_expression(p, true, &v));
        *(t.kind == T_MUL ? &a->star : &a->star_star) = v;
    } else {
        if (t.kind == T_NAME) LN_TRY(jj_look(p, &next));
        if (t.kind == T_NAME && next.kind == T_ASSIGN) {
            int32_t number_of;
            good = !a->star_star;
            LN_TRY(jj_name_number(p, t.p, t.n, &number_of));
            LN_TRY(jj_advance(p));
            LN_TRY(jj_advance(p));
            LN_TRY(jj_expression(p, true, &v));
            LN_TRY(jj_list_add(p, &l->named, v));
            LN_TRY(jj_list_add(p, &l->names, (void *)(uintptr_t)(const void *)p->t->name_text[number_of]));
        } else {
            good = !a->star && !a->star_star && l->named.n == 0;
            LN_TRY(jj_expression(p, true, &v));
            LN_TRY(jj_list_add(p, &l->pos, v));
        }
    }
    return good ? LN_OK
                : jj_fail_at(p->t, t.at, p->err,
                             "an argument in the wrong place: expected plain, then named, then * and **");
}

static ln_status arguments(jj_parser *p, const jj_args **out) {
    jj_args *a = jj_keep(p, sizeof *a);
    arg_lists l = {0};
    if (!a) return jj_oom(p);
    LN_TRY(jj_advance(p));
    for (bool first = true; p->cur.kind != T_RPAREN; first = false) {
        if (!first) LN_TRY(jj_expect(p, T_COMMA));
        if (p->cur.kind == T_RPAREN) break;
        LN_TRY(one_arg(p, a, &l));
    }
    LN_TRY(jj_advance(p));
    a->pos = (jj_node *const *)l.pos.v;
    a->named = (jj_node *const *)l.named.v;
    a->names = (const jj_str *const *)l.names.v;
    a->n_pos = l.pos.n;
    a->n_named = l.named.n;
    *out = a;
    return LN_OK;
}

static ln_status call(jj_parser *p, jj_node *of, jj_node **out) {
    LN_TRY(jj_node_new(p, N_CALL, p->cur.at, out));
    (*out)->a = of;
    LN_TRY(arguments(p, &(*out)->args));
    return finish(p, *out);
}

static ln_status postfix(jj_parser *p, jj_node **node) {
    for (;;) {
        if (p->cur.kind == T_DOT) LN_TRY(attribute(p, *node, node));
        else if (p->cur.kind == T_LBRACKET) LN_TRY(subscript(p, *node, node));
        else if (p->cur.kind == T_LPAREN) LN_TRY(call(p, *node, node));
        else return LN_OK;
    }
}

/* Parses the name of a filter or test, dots included, looks it up and keeps it in the node for error
 * messages. */
static ln_status row_name(jj_parser *p, jj_node *n) {
    int32_t number_of;
    jj_token t = p->cur;
    if (t.kind != T_NAME) return jj_unexpected(p, "the name of a filter or test");
    LN_TRY(jj_advance(p));
    while (p->cur.kind == T_DOT) { /* a dotted name; no built-in has one */
        LN_TRY(jj_advance(p));
        if (p->cur.kind != T_NAME) return jj_unexpected(p, "a name");
        t.n = (size_t)(p->cur.p - t.p) + p->cur.n;
        LN_TRY(jj_advance(p));
    }
    LN_TRY(jj_name_number(p, t.p, t.n, &number_of));
    n->value = jj_of(p->t->name_text[number_of]);
    n->func = (n->kind == N_FILTER ? jj_filter_named : jj_test_named)(t.p, t.n);
    if (!n->func && !p->soft && !p->unknown) p->unknown = n;
    return LN_OK;
}

ln_status jj_filters(jj_parser *p, jj_node *value, bool first, jj_node **out) {
    while (first || p->cur.kind == T_PIPE) {
        jj_node *n;
        LN_TRY(jj_node_new(p, N_FILTER, p->cur.at, &n));
        if (!first) LN_TRY(jj_advance(p));
        n->at = (uint32_t)p->cur.at;
        LN_TRY(row_name(p, n));
        if (p->cur.kind == T_LPAREN) LN_TRY(arguments(p, &n->args));
        n->a = value;
        LN_TRY(finish(p, n));
        value = n;
        first = false;
    }
    *out = value;
    return LN_OK;
}

static ln_status test(jj_parser *p, jj_node **node) {
    jj_node *n;
    bool negated;
    LN_TRY(jj_node_new(p, N_TEST, p->cur.at, &n));
    LN_TRY(jj_advance(p));
    negated = jj_is_name(&p->cur, "not");
    if (negated) LN_TRY(jj_advance(p));
    LN_TRY(row_name(p, n));
    n->a = *node;
    jj_tok k = p->cur.kind;
    bool word = jj_is_name(&p->cur, "else") || jj_is_name(&p->cur, "or") || jj_is_name(&p->cur, "and");
    if (jj_is_name(&p->cur, "is"))
        return jj_fail_at(p->t, p->cur.at, p->err, "tests cannot be chained with 'is'");
    if (k == T_LPAREN) {
        LN_TRY(arguments(p, &n->args));
    } else if (!word && (k == T_NAME || k == T_STR || k == T_INT || k == T_FLOAT || k == T_LBRACKET ||
                         k == T_LBRACE)) {
        jj_args *a = jj_keep(p, sizeof *a);
        jj_list l = {0};
        jj_node *v;
        if (!a) return jj_oom(p);
        LN_TRY(primary(p, &v));
        LN_TRY(postfix(p, &v));
        LN_TRY(jj_list_add(p, &l, v));
        a->pos = (jj_node *const *)l.v;
        a->n_pos = 1;
        n->args = a;
    }
    LN_TRY(finish(p, n));
    *node = n;
    return negated ? make(p, N_NOT, n->at, n, NULL, node) : LN_OK;
}

static ln_status filters_and_tests(jj_parser *p, jj_node **node) {
    for (;;) {
        if (p->cur.kind == T_PIPE) LN_TRY(jj_filters(p, *node, false, node));
        else if (jj_is_name(&p->cur, "is")) LN_TRY(test(p, node));
        else if (p->cur.kind == T_LPAREN) LN_TRY(call(p, *node, node));
        else return LN_OK;
    }
}

/* ---- operators ---- */

static ln_status unary(jj_parser *p, bool with_filters, jj_node **out) {
    jj_token t = p->cur;
    LN_TRY(jj_enter(p));
    if (t.kind == T_SUB || t.kind == T_ADD) {
        LN_TRY(jj_advance(p));
        LN_TRY(unary(p, false, out));
        LN_TRY(make(p, t.kind == T_SUB ? N_NEG : N_POS, t.at, *out, NULL, out));
    } else {
        LN_TRY(primary(p, out));
    }
    jj_leave(p);
    LN_TRY(postfix(p, out));
    return with_filters ? filters_and_tests(p, out) : LN_OK;
}

typedef struct level {
    struct {
        uint8_t token, op;
    } row[4];
    int n;
} level;

/* Left-associative binary operators by precedence level: 0 sums, 1 concatenations, 2 products, 3 powers. */
static ln_status binary(jj_parser *p, int depth, jj_node **out) {
    static const level levels[] = {
        {{{T_ADD, JJ_ADD}, {T_SUB, JJ_SUB}}, 2},
        {{{0, 0}}, 0},
        {{{T_MUL, JJ_MUL}, {T_DIV, JJ_DIV}, {T_FLOORDIV, JJ_FLOORDIV}, {T_MOD, JJ_MOD}}, 4},
        {{{T_POW, JJ_POW}}, 1}};
    if (depth == 4) return unary(p, true, out);
    LN_TRY(binary(p, depth + 1, out));
    if (depth == 1 && p->cur.kind == T_TILDE) {
        jj_list l = {0};
        size_t at = p->cur.at;
        LN_TRY(jj_list_add(p, &l, *out));
        while (p->cur.kind == T_TILDE) {
            LN_TRY(jj_advance(p));
            LN_TRY(binary(p, depth + 1, out));
            LN_TRY(jj_list_add(p, &l, *out));
        }
        LN_TRY(jj_node_new(p, N_CONCAT, at, out));
        return close_list(p, *out, &l);
    }
    for (int i = 0; i < levels[depth].n; i++) {
        if (p->cur.kind != levels[depth].row[i].token) continue;
        size_t at = p->cur.at;
        jj_node *left = *out, *right;
        LN_TRY(jj_advance(p));
        LN_TRY(binary(p, depth + 1, &right));
        LN_TRY(make(p, N_BINARY, at, left, right, out));
        (*out)->op = levels[depth].row[i].op;
        i = -1;
    }
    return LN_OK;
}

static ln_status compare_op(jj_parser *p, jj_op *op, bool *found) {
    static const struct {
        uint8_t token, op;
    } rows[] = {{T_EQ, JJ_EQ}, {T_NE, JJ_NE}, {T_LT, JJ_LT}, {T_LE, JJ_LE}, {T_GT, JJ_GT}, {T_GE, JJ_GE}};
    *found = true;
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        if (p->cur.kind != rows[i].token) continue;
        *op = (jj_op)rows[i].op;
        return jj_advance(p);
    }
    *op = JJ_IN;
    if (jj_is_name(&p->cur, "in")) return jj_advance(p);
    *op = JJ_NOT_IN;
    jj_token next = {0};
    if (jj_is_name(&p->cur, "not")) LN_TRY(jj_look(p, &next));
    if (next.kind == T_NAME && jj_is_name(&next, "in")) {
        LN_TRY(jj_advance(p));
        return jj_advance(p);
    }
    *found = false;
    return LN_OK;
}

/* Parses a chained comparison (a < b <= c): each operand is wrapped in a node that carries its operator. */
static ln_status compare(jj_parser *p, jj_node **out) {
    size_t at = p->cur.at;
    jj_list l = {0};
    jj_op op;
    bool found;
    LN_TRY(binary(p, 0, out));
    for (;;) {
        jj_node *right, *operand;
        size_t op_at = p->cur.at;
        LN_TRY(compare_op(p, &op, &found));
        if (!found) break;
        LN_TRY(binary(p, 0, &right));
        LN_TRY(make(p, N_POS, op_at, right, NULL, &operand));
        operand->op = (uint8_t)op;
        LN_TRY(jj_list_add(p, &l, operand));
    }
    if (l.n == 0) return LN_OK;
    LN_TRY(make(p, N_COMPARE, at, *out, NULL, out));
    return close_list(p, *out, &l);
}

static ln_status not_(jj_parser *p, jj_node **out) {
    size_t at = p->cur.at;
    if (!jj_is_name(&p->cur, "not")) return compare(p, out);
    LN_TRY(jj_enter(p));
    LN_TRY(jj_advance(p));
    LN_TRY(not_(p, out));
    jj_leave(p);
    return make(p, N_NOT, at, *out, NULL, out);
}

static ln_status logic(jj_parser *p, bool is_or, jj_node **out) {
    LN_TRY(is_or ? logic(p, false, out) : not_(p, out));
    while (jj_is_name(&p->cur, is_or ? "or" : "and")) {
        size_t at = p->cur.at;
        jj_node *left = *out, *right;
        LN_TRY(jj_advance(p));
        LN_TRY(is_or ? logic(p, false, &right) : not_(p, &right));
        LN_TRY(make(p, is_or ? N_OR : N_AND, at, left, right, out));
    }
    return LN_OK;
}

ln_status jj_expression(jj_parser *p, bool with_cond, jj_node **out) {
    const jj_node *unknown = p->unknown;
    bool soft = p->soft;
    LN_TRY(jj_enter(p));
    LN_TRY(logic(p, true, out));
    while (with_cond && jj_is_name(&p->cur, "if")) {
        size_t at = p->cur.at;
        p->unknown = unknown;
        p->soft = true;
        jj_node *then = *out, *when, *otherwise = NULL;
        LN_TRY(jj_advance(p));
        LN_TRY(logic(p, true, &when));
        if (jj_is_name(&p->cur, "else")) {
            LN_TRY(jj_advance(p));
            LN_TRY(jj_expression(p, true, &otherwise));
        }
        LN_TRY(make(p, N_COND, at, when, then, out));
        (*out)->c = otherwise;
        LN_TRY(finish(p, *out));
    }
    p->soft = soft;
    jj_leave(p);
    return LN_OK;
}
