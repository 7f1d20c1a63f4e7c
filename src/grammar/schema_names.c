/* The names of properties that a schema does not list: an automaton of all names that may come, in which each
 * name has a label that says which patterns it has. So a name that has several patterns meets all of their
 * schemas, and no listed name comes with the value of another. */
#include "schema_names.h"

#include <string.h>

#define ANY_NAME (UINT64_C(1) << MOST_PATTERNS)

static ln_status failed(schema_reader *r, const schema_place *at, const char *keyword, ln_status st,
                        const ln_error *why) {
    if (st == LN_EINVALID) return schema_refuse(r, at, keyword, "%s", why->message);
    return st == LN_OK ? st : ln_fail(r->err, st, "%s", why->message);
}

static void set_labels(automaton *a, uint64_t label) {
    for (uint32_t q = 0; q < a->n; q++)
        if (a->labels[q]) a->labels[q] = label;
}

/* Combines `all` with `one`, which it takes. */
static ln_status combine(schema_reader *r, const schema_place *at, const char *keyword, automaton *all,
                         automaton *one, automaton_join how) {
    ln_error why = {0};
    const ln_status st = automaton_combine(all, one, how, &why);
    automaton_free(one);
    LN_TRY(failed(r, at, keyword, st, &why));
    return schema_work(r, at, all->n);
}

/* ---- the names that propertyNames allows ---- */

static ln_status names_of(schema_reader *r, json_t *s, const schema_place *at, automaton *out);

/* The names of enum and const that meet the schema. */
static ln_status given_names(schema_reader *r, json_t *s, const schema_place *at, automaton *out) {
    json_t *one = json_object_get(s, "const"), *many = json_object_get(s, "enum"), *v;
    ln_grammar *g = NULL;
    gr_node all = GR_NOTHING;
    ln_status st = LN_OK;
    size_t i;
    bool yes;
    LN_GO(gr_begin(&g, r->err));
    json_t *list = one ? json_pack("[O]", one) : json_incref(many);
    json_array_foreach(list, i, v) {
        if (!json_is_string(v) || st != LN_OK) continue;
        st = schema_admits(r, s, at, v, &yes);
        if (st == LN_OK && yes) all = gr_alt(g, gr_text(g, json_string_value(v), json_string_length(v)), all);
    }
    json_decref(list);
    if (st == LN_OK) st = automaton_of(out, g, all, r->err);
out:
    ln_grammar_close(&g);
    return st;
}

/* Each alternative with what stands beside the keyword. */
static ln_status alternative_names(schema_reader *r, json_t *s, const char *keyword, const schema_place *at,
                                   automaton *out) {
    json_t *list = json_object_get(s, keyword), *beside = schema_without(r, s, keyword);
    if (!beside) return LN_OOM(r->err, "a schema");
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *branch;
        automaton one = {0};
        LN_TRY(schema_join(r, json_array_get(list, i), beside, at, &branch));
        if (strcmp(keyword, "oneOf") == 0) LN_TRY(schema_exclusive(r, list, i, branch, at, &branch));
        LN_TRY(names_of(r, branch, at, &one));
        if (out->next) LN_TRY(combine(r, at, keyword, out, &one, AUTOMATON_OR));
        else *out = one;
    }
    return LN_OK;
}

static ln_status no_names(schema_reader *r, automaton *out) {
    ln_grammar *g = NULL;
    ln_status st = gr_begin(&g, r->err);
    if (st == LN_OK) st = automaton_of(out, g, GR_NOTHING, r->err);
    ln_grammar_close(&g);
    return st;
}

static ln_status all_names_of(schema_reader *r, json_t *s, const schema_place *at, automaton *out) {
    json_t *no;
    ln_error why = {0};
    uint32_t min, max;
    LN_TRY(schema_flat(r, s, at, &s));
    if (json_is_true(s)) return automaton_of_all(out, r->err);
    const json_t *type = json_object_get(s, "type");
    json_t *text = json_string("");
    if (!text) return LN_OOM(r->err, "a schema");
    const bool is_string = !type || schema_has_type(type, text);
    json_decref(text);
    if (!json_is_object(s) || !is_string) return no_names(r, out);
    if (json_object_get(s, "const") || json_object_get(s, "enum")) return given_names(r, s, at, out);
    if (json_object_get(s, "anyOf")) return alternative_names(r, s, "anyOf", at, out);
    if (json_object_get(s, "oneOf")) return alternative_names(r, s, "oneOf", at, out);
    if (json_object_get(s, "not")) {
        LN_TRY(schema_negate(r, json_object_get(s, "not"), at, &no));
        LN_TRY(schema_join(r, schema_without(r, s, "not"), no, at, &no));
        return names_of(r, no, at, out);
    }
    LN_TRY(schema_string_automaton(r, s, at, out));
    if (!out->next) LN_TRY(automaton_of_all(out, r->err));
    LN_TRY(schema_count(r, s, at, "minLength", 0, &min));
    LN_TRY(schema_count(r, s, at, "maxLength", GR_UNBOUNDED, &max));
    if (min > max) return automaton_free(out), no_names(r, out);
    const ln_status st = automaton_limit(out, min, max, &why);
    return failed(r, at, "maxLength", st, &why);
}

static ln_status names_of(schema_reader *r, json_t *s, const schema_place *at, automaton *out) {
    if (r->depth == MOST_SCHEMA_DEPTH)
        return schema_refuse(r, at, NULL, "schemas are nested deeper than %d levels", MOST_SCHEMA_DEPTH);
    r->depth++;
    const ln_status st = all_names_of(r, s, at, out);
    r->depth--;
    if (st != LN_OK) automaton_free(out);
    return st;
}

/* ---- further names ---- */

/* Adds the label of each pattern. */
static ln_status add_patterns(schema_reader *r, property_names *names, const schema_place *at) {
    const char *pattern;
    json_t *v;
    int i = 0;
    if (json_object_size(names->patterns) > MOST_PATTERNS)
        return schema_refuse(r, at, "patternProperties", "expected at most %d patterns, found %zu",
                             MOST_PATTERNS, json_object_size(names->patterns));
    json_object_foreach(names->patterns, pattern, v) {
        automaton one = {0};
        ln_error why = {0};
        LN_TRY(schema_work(r, at, 1024));
        const ln_status st = automaton_of_pattern(&one, pattern, strlen(pattern), false, &why);
        LN_TRY(failed(r, at, "patternProperties", st, &why));
        set_labels(&one, UINT64_C(1) << i++);
        LN_TRY(combine(r, at, "patternProperties", &names->all, &one, AUTOMATON_OR));
    }
    return LN_OK;
}

ln_status property_names_open(schema_reader *r, json_t *s, const schema_place *at, property_names *names) {
    json_t *rule = json_object_get(s, "propertyNames");
    const schema_place in = {at, "propertyNames", 0};
    *names = (property_names){.patterns = json_object_get(s, "patternProperties")};
    if (json_object_size(names->patterns) == 0 && !rule) return LN_OK;
    LN_TRY(automaton_of_all(&names->all, r->err));
    set_labels(&names->all, ANY_NAME);
    LN_TRY(add_patterns(r, names, at));
    if (!rule) return LN_OK;
    automaton one = {0};
    LN_TRY(names_of(r, rule, &in, &one));
    set_labels(&one, ANY_NAME);
    return combine(r, at, "propertyNames", &names->all, &one, AUTOMATON_AND);
}

void property_names_close(property_names *names) { automaton_free(&names->all); }

uint64_t property_names_label(const property_names *names, const char *name) {
    return names->all.next ? automaton_label(&names->all, name, strlen(name)) : ANY_NAME;
}

ln_status property_names_value(schema_reader *r, const property_names *names, uint64_t label, json_t *own,
                               json_t *others, const schema_place *at, json_t **out) {
    const char *pattern;
    json_t *v, *all = own;
    int i = 0;
    json_object_foreach(names->patterns, pattern, v) {
        if (!(label >> i++ & 1)) continue;
        if (!all) all = v;
        else LN_TRY(schema_join(r, all, v, at, &all));
    }
    *out = all ? all : others;
    return LN_OK;
}

/* Takes the listed names away. */
static ln_status without_listed(schema_reader *r, const schema_place *at, automaton *all,
                                const gr_span *listed, size_t n) {
    ln_grammar *g = NULL;
    automaton one = {0};
    ln_status st = LN_OK;
    gr_span *spans = ln_alloc((n + 1) * sizeof *spans);
    if (!spans) return LN_OOM(r->err, "a schema");
    if (n > 0) memcpy(spans, listed, n * sizeof *spans);
    LN_GO(gr_begin(&g, r->err));
    ln_error why = {0};
    st = automaton_of(&one, g, gr_text_list(g, spans, n), &why);
    LN_GO(failed(r, at, "properties", st, &why));
    LN_GO(combine(r, at, "properties", all, &one, AUTOMATON_MINUS));
out:
    ln_free(spans);
    ln_grammar_close(&g);
    return st;
}

typedef struct name_tails {
    schema_reader *r;
    const property_names *names;
    json_t *others;
    const schema_place *at;
    ln_status st;
    struct {
        uint64_t label;
        gr_node node;
    } known[MOST_LABELS];
    size_t n;
} name_tails;

/* The end of a name of a label, and its value. */
static gr_node tail_of(void *context, uint64_t label) {
    name_tails *t = context;
    json_t *v;
    gr_node value = GR_NOTHING;
    for (size_t i = 0; i < t->n; i++)
        if (t->known[i].label == label) return t->known[i].node;
    if (t->st == LN_OK && t->n == MOST_LABELS)
        t->st = schema_refuse(t->r, t->at, "patternProperties",
                              "names may have more than %d sets of patterns", MOST_LABELS);
    if (t->st == LN_OK) t->st = property_names_value(t->r, t->names, label, NULL, t->others, t->at, &v);
    if (t->st == LN_OK) t->st = schema_value(t->r, v, t->at, &value);
    if (t->st != LN_OK) return GR_NOTHING;
    const gr_node node = gr_all(t->r->g, gr_texts(t->r->g, "\":"), t->r->json.blank, value);
    t->known[t->n].label = label;
    t->known[t->n++].node = node;
    return node;
}

ln_status property_names_further(schema_reader *r, property_names *names, const gr_span *listed, size_t n,
                                 json_t *others, const schema_place *at, gr_node *out) {
    name_tails tails = {.r = r, .names = names, .others = others, .at = at};
    gr_node value;
    *out = GR_NOTHING;
    if (!names->all.next && json_is_false(others)) return LN_OK;
    if (!names->all.next && n == 0) { /* any string, escapes included */
        LN_TRY(schema_value(r, others, at, &value));
        *out = gr_all(r->g, r->json.string, gr_texts(r->g, ":"), r->json.blank, value);
        return gr_check(r->g, r->err);
    }
    if (!names->all.next) {
        LN_TRY(automaton_of_all(&names->all, r->err));
        set_labels(&names->all, ANY_NAME);
    }
    LN_TRY(without_listed(r, at, &names->all, listed, n));
    *out = automaton_expression(r->g, &names->all, GR_IN_STRING, tail_of, &tails);
    LN_TRY(tails.st);
    *out = gr_seq(r->g, gr_texts(r->g, "\""), *out);
    return gr_check(r->g, r->err);
}
