/* Numbers of JSON schemas: bounds as expressions, digit by digit; what else is said of them by automata. */
#include "automaton.h"
#include "json_schema.h"

#include <math.h>
#include <string.h>

/* Reads a bound and its exclusive form, which is a number, or in draft 4 a boolean beside the bound. */
static ln_status read_bound(const schema_reader *r, const json_t *s, const schema_place *at,
                            const char *keyword, const char *exclusive, bool lower, bool *has, double *bound,
                            bool *excluded) {
    const json_t *v = json_object_get(s, keyword), *x = json_object_get(s, exclusive);
    char found[80];
    if (v && !json_is_number(v))
        return schema_refuse(r, at, keyword, "expected a number, found %s", ln_json_text(v, found));
    if (x && !json_is_number(x) && !json_is_boolean(x))
        return schema_refuse(r, at, exclusive, "expected a number, found %s", ln_json_text(x, found));
    *has = v != NULL;
    *bound = json_number_value(v);
    *excluded = v && json_is_true(x);
    if (!json_is_number(x)) return LN_OK;
    const double other = json_number_value(x);
    if (*has && (lower ? *bound > other : *bound < other)) return LN_OK;
    *has = *excluded = true;
    *bound = other;
    return LN_OK;
}

ln_status schema_bounds(const schema_reader *r, const json_t *s, const schema_place *at, gr_bounds *b) {
    *b = (gr_bounds){0};
    LN_TRY(read_bound(r, s, at, "minimum", "exclusiveMinimum", true, &b->has_lo, &b->lo, &b->above));
    return read_bound(r, s, at, "maximum", "exclusiveMaximum", false, &b->has_hi, &b->hi, &b->below);
}

/* Numbers within bounds in a grammar of either kind. `exact`: without exponents, so that a number has one
 * spelling but for zeros at its end. */
static gr_node within(ln_grammar *g, const gr_bounds *b, bool integer, bool exact, bool *fits) {
    if (integer) return gr_integers(g, b, fits);
    const gr_node all = gr_numbers(g, b, fits);
    return exact || !*fits ? all : gr_alt(g, all, gr_exponents(g, b));
}

/* ---- automata ---- */

typedef struct condition {
    schema_reader *r;
    const json_t *schema;
    const schema_place *at;
    bool integer;
    automaton all;
} condition;

/* Makes the automaton of an expression that `make` gives, and joins it. */
static ln_status join_expression(condition *c, ln_grammar *g, gr_node root, automaton_join how) {
    automaton one = {0};
    ln_status st = automaton_of(&one, g, root, c->r->err);
    if (st == LN_OK && !c->all.next) c->all = one, one = (automaton){0};
    else if (st == LN_OK) st = automaton_combine(&c->all, &one, how, c->r->err);
    automaton_free(&one);
    if (st == LN_OK) st = schema_work(c->r, c->at, 512 + c->all.n);
    return st;
}

/* The spellings of a number without an exponent. */
static gr_node spellings(ln_grammar *g, double x) {
    const gr_bounds b = {.has_lo = true, .has_hi = true, .lo = x, .hi = x};
    bool fits;
    return gr_numbers(g, &b, &fits);
}

/* Numbers that doubles tell apart: of at most 15 digits. */
static gr_node short_numbers(ln_grammar *g) {
    const gr_node digit = gr_byte_range(g, '0', '9');
    return gr_all(g, gr_optional(g, gr_texts(g, "-")), gr_repeat(g, digit, 1, 9),
                  gr_optional(g, gr_seq(g, gr_texts(g, "."), gr_repeat(g, digit, 1, 6))));
}

static ln_status join_new(condition *c, automaton_join how, const json_t *v, const char *keyword) {
    ln_grammar *g = NULL;
    gr_node root = GR_NOTHING;
    ln_status st = LN_OK;
    LN_GO(gr_begin(&g, c->r->err));
    if (strcmp(keyword, "multipleOf") == 0) {
        bool fits;
        root = gr_multiples(g, json_number_value(v), c->integer, how == AUTOMATON_MINUS, &fits);
        if (!fits)
            LN_GO(schema_refuse(c->r, c->at, keyword,
                                "expected a number above 0 whose digits, without the point and zeros at the "
                                "end, are at most %d",
                                MOST_MULTIPLE));
    } else if (strcmp(keyword, SCHEMA_FRACTION) == 0) {
        root = gr_fractions(g);
    } else {
        root = v ? spellings(g, json_number_value(v)) : short_numbers(g);
    }
    LN_GO(join_expression(c, g, root, how));
out:
    ln_grammar_close(&g);
    return st;
}

static ln_status join_steps(condition *c, const char *keyword, automaton_join how) {
    const json_t *v = json_object_get(c->schema, keyword);
    char found[80];
    const size_t n = json_is_array(v) ? json_array_size(v) : v != NULL;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_number(one))
            return schema_refuse(c->r, c->at, "multipleOf", "expected a number, found %s",
                                 ln_json_text(one, found));
        LN_TRY(join_new(c, how, one, "multipleOf"));
    }
    return LN_OK;
}

static bool excludes_numbers(const json_t *s) {
    json_t *v;
    size_t i;
    json_array_foreach(json_object_get(s, SCHEMA_WITHOUT), i, v) if (json_is_number(v)) return true;
    return false;
}

static ln_status join_all(condition *c, const gr_bounds *b, bool *fits) {
    ln_grammar *g = NULL;
    json_t *v;
    size_t i;
    ln_status st = LN_OK;
    LN_GO(gr_begin(&g, c->r->err));
    const gr_node root = within(g, b, c->integer, true, fits);
    if (!*fits) goto out;
    LN_GO(join_expression(c, g, root, AUTOMATON_AND));
    LN_GO(join_steps(c, "multipleOf", AUTOMATON_AND));
    if (json_object_get(c->schema, SCHEMA_NOT_MULTIPLE))
        LN_GO(join_new(c, AUTOMATON_AND, NULL, SCHEMA_WITHOUT));
    LN_GO(join_steps(c, SCHEMA_NOT_MULTIPLE, AUTOMATON_MINUS));
    if (json_object_get(c->schema, SCHEMA_FRACTION)) LN_GO(join_new(c, AUTOMATON_AND, NULL, SCHEMA_FRACTION));
    if (excludes_numbers(c->schema)) LN_GO(join_new(c, AUTOMATON_AND, NULL, SCHEMA_WITHOUT));
    json_array_foreach(json_object_get(c->schema, SCHEMA_WITHOUT), i, v) {
        if (json_is_number(v)) LN_GO(join_new(c, AUTOMATON_MINUS, v, SCHEMA_WITHOUT));
    }
out:
    ln_grammar_close(&g);
    return st;
}

ln_status schema_number(schema_reader *r, json_t *s, bool integer, const schema_place *at, gr_node *out) {
    gr_bounds b;
    bool fits = true;
    *out = GR_NOTHING;
    LN_TRY(schema_bounds(r, s, at, &b));
    const bool exact = json_object_get(s, "multipleOf") || json_object_get(s, SCHEMA_FRACTION) ||
                       json_object_get(s, SCHEMA_NOT_MULTIPLE) || excludes_numbers(s);
    if (exact) {
        condition c = {r, s, at, integer, {0}};
        const ln_status st = join_all(&c, &b, &fits);
        if (st == LN_OK) *out = automaton_expression(r->g, &c.all, GR_RAW, NULL, NULL);
        automaton_free(&c.all);
        LN_TRY(st);
    } else if (!b.has_lo && !b.has_hi) {
        *out = integer ? r->json.integer : r->json.number;
    } else {
        *out = within(r->g, &b, integer, false, &fits);
    }
    if (integer && r->open && *out != GR_NOTHING) /* 2.0 is an integer */
        *out = gr_seq(r->g, *out,
                      gr_optional(r->g, gr_seq(r->g, gr_texts(r->g, "."),
                                               gr_repeat(r->g, gr_byte_range(r->g, '0', '0'), 1, 17))));
    LN_TRY(gr_check(r->g, r->err));
    if (*out != GR_NOTHING) return LN_OK;
    return schema_nothing(r, at,
                          exact      ? "multipleOf"
                          : b.has_lo ? "minimum"
                                     : "maximum",
                          "no number meets the schema, or a bound has more than 15 digits before or 17 after "
                          "the point");
}
