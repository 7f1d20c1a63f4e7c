/* Tests: the names that may follow `is`. */
#include "jinja_internal.h"

#include <utf8proc.h>

typedef enum kind_test {
    IS_DEFINED,
    IS_UNDEFINED,
    IS_NONE,
    IS_BOOLEAN,
    IS_TRUE,
    IS_FALSE,
    IS_INTEGER,
    IS_FLOAT,
    IS_NUMBER,
    IS_STRING,
    IS_MAPPING,
    IS_ITERABLE,
    IS_SEQUENCE,
    IS_CALLABLE,
    IS_ESCAPED
} kind_test;

static bool is_kind(jj_val v, kind_test what) {
    switch (what) {
    case IS_DEFINED: return v.kind != JJ_UNDEF;
    case IS_UNDEFINED: return v.kind == JJ_UNDEF;
    case IS_NONE: return v.kind == JJ_NONE;
    case IS_BOOLEAN: return v.kind == JJ_BOOL;
    case IS_TRUE: return v.kind == JJ_BOOL && v.u.b;
    case IS_FALSE: return v.kind == JJ_BOOL && !v.u.b;
    case IS_INTEGER: return v.kind == JJ_INT || v.kind == JJ_BIG;
    case IS_FLOAT: return v.kind == JJ_FLOAT;
    case IS_NUMBER: return jj_is_int(v) || v.kind == JJ_FLOAT;
    case IS_STRING: return v.kind == JJ_STR;
    case IS_MAPPING: return v.kind == JJ_DICT;
    case IS_ITERABLE: return jj_iterable(v);
    case IS_SEQUENCE:
        return v.kind == JJ_UNDEF || v.kind == JJ_STR || v.kind == JJ_DICT ||
               (v.kind == JJ_SEQ && v.u.q->kind <= JJ_RANGE);
    case IS_CALLABLE:
        return v.kind == JJ_MACRO || v.kind == JJ_FUNC || v.kind == JJ_METHOD || v.kind == JJ_LOOP ||
               v.kind == JJ_UNDEF || v.kind == JJ_JOINER;
    case IS_ESCAPED: return v.kind == JJ_STR && v.u.s->markup;
    }
    return false;
}

static ln_status kind(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    (void)a, (void)c;
    *out = jj_bool(is_kind(self, (kind_test)r->how));
    return LN_OK;
}

static ln_status order(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    bool yes;
    jj_op op = (jj_op)r->how;
    (void)c;
    if (op == JJ_EQ || op == JJ_NE) LN_TRY(jj_equal(r, self, a[0], &yes));
    else if (op == JJ_IN) LN_TRY(jj_contains(r, self, a[0], &yes));
    else LN_TRY(jj_less(r, self, a[0], op, &yes));
    *out = jj_bool(yes != (op == JJ_NE));
    return LN_OK;
}

static ln_status same_as(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    (void)r, (void)c;
    *out = jj_bool(jj_same(self, a[0]));
    return LN_OK;
}

/* odd, even, divisibleby */
static ln_status divides(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    jj_val by = r->how == 2 ? a[0] : jj_int(2), rest;
    double f;
    (void)c;
    int how = r->how;
    LN_TRY(jj_binary(r, JJ_MOD, self, by, &rest));
    *out = jj_bool(jj_number(rest, &f) && f == (how == 1));
    return LN_OK;
}

/* The tests lower and upper: str(v).islower(), str(v).isupper(). */
static ln_status letters(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    const jj_str *s;
    bool upper = r->how == 1;
    (void)a, (void)c;
    LN_TRY(jj_to_str(r, self, &s));
    *out = jj_bool(jj_is_case(s, upper));
    return jj_spend(r, s->n * JJ_PER_CHAR);
}

/* The tests filter and test: whether a built-in of that name exists. */
static ln_status known(jj_run *r, jj_val self, const jj_val *a, const jj_call *c, jj_val *out) {
    (void)a, (void)c;
    bool yes =
        self.kind == JJ_STR && (r->how ? jj_test_named : jj_filter_named)(self.u.s->p, self.u.s->n) != NULL;
    *out = jj_bool(yes);
    return LN_OK;
}

const jj_func *jj_test_named(const char *name, size_t n) {
    static const jj_func rows[] = {{"defined", "", kind, IS_DEFINED},
                                   {"undefined", "", kind, IS_UNDEFINED},
                                   {"none", "", kind, IS_NONE},
                                   {"boolean", "", kind, IS_BOOLEAN},
                                   {"true", "", kind, IS_TRUE},
                                   {"false", "", kind, IS_FALSE},
                                   {"integer", "", kind, IS_INTEGER},
                                   {"float", "", kind, IS_FLOAT},
                                   {"number", "", kind, IS_NUMBER},
                                   {"string", "", kind, IS_STRING},
                                   {"mapping", "", kind, IS_MAPPING},
                                   {"iterable", "", kind, IS_ITERABLE},
                                   {"sequence", "", kind, IS_SEQUENCE},
                                   {"callable", "", kind, IS_CALLABLE},
                                   {"escaped", "", kind, IS_ESCAPED},
                                   {"eq", "other|", order, JJ_EQ},
                                   {"equalto", "other|", order, JJ_EQ},
                                   {"==", "other|", order, JJ_EQ},
                                   {"ne", "other|", order, JJ_NE},
                                   {"!=", "other|", order, JJ_NE},
                                   {"lt", "other|", order, JJ_LT},
                                   {"lessthan", "other|", order, JJ_LT},
                                   {"<", "other|", order, JJ_LT},
                                   {"le", "other|", order, JJ_LE},
                                   {"<=", "other|", order, JJ_LE},
                                   {"gt", "other|", order, JJ_GT},
                                   {"greaterthan", "other|", order, JJ_GT},
                                   {">", "other|", order, JJ_GT},
                                   {"ge", "other|", order, JJ_GE},
                                   {">=", "other|", order, JJ_GE},
                                   {"in", "seq|", order, JJ_IN},
                                   {"sameas", "other|", same_as, 0},
                                   {"even", "", divides, 0},
                                   {"odd", "", divides, 1},
                                   {"divisibleby", "num|", divides, 2},
                                   {"lower", "", letters, 0},
                                   {"upper", "", letters, 1},
                                   {"filter", "", known, 0},
                                   {"test", "", known, 1}};
    return jj_find(rows, LN_COUNT(rows), name, n);
}
