/* JSON schemas (draft 2020-12, and the older spellings in use) as grammars.
 *
 * The grammar's values all meet the schema; it need not have every value that does: listed properties come in
 * their order, no others come beside them unless additionalProperties asks for them, and numbers are bounded.
 * What a grammar cannot guarantee is refused with the keyword's name. */
#include "json_schema.h"

#include "../base/c_locale.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_PLACE = 16 }; /* names of a place in a message */

/* ---- messages ---- */

static void put_place(const schema_place *at, ln_str *out) {
    const schema_place *up[MOST_SCHEMA_DEPTH * 2];
    char shown[80];
    size_t n = 0;
    for (; at && n < LN_COUNT(up); at = at->outer) up[n++] = at;
    const size_t all = n;
    while (n-- > 0) {
        if (all > MOST_PLACE && n == all - MOST_PLACE / 2) { /* the middle of a long one is left out */
            ln_str_adds(out, "...");
            n = MOST_PLACE / 2 - 1;
        }
        if (up[n]->name) ln_str_addf(out, ".%s", ln_excerpt(shown, up[n]->name, strlen(up[n]->name)));
        else ln_str_addf(out, "[%zu]", up[n]->index);
    }
}

ln_status schema_refuse(const schema_reader *r, const schema_place *at, const char *keyword, const char *fmt,
                        ...) {
    ln_str place = {0};
    char text[512];
    LN_TRY(gr_check(r->g, r->err)); /* after a failure nothing matches, which is not the schema's fault */
    va_list args;
    va_start(args, fmt);
    (void)ln_vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    put_place(at, &place);
    const ln_status st = ln_fail(r->err, LN_EINVALID, "%s%s%s%s: %s", r->where, place.data ? place.data : "",
                                 keyword ? "." : "", keyword ? keyword : "", text);
    ln_str_free(&place);
    return st;
}

ln_status schema_nothing(schema_reader *r, const schema_place *at, const char *keyword, const char *fmt,
                         ...) {
    ln_str place = {0};
    char text[256];
    LN_TRY(gr_check(r->g, r->err)); /* after a failure nothing matches */
    if (r->g->nothing[0]) return LN_OK;
    va_list args;
    va_start(args, fmt);
    (void)ln_vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    put_place(at, &place);
    (void)snprintf(r->g->nothing, sizeof r->g->nothing, "%s%.200s%s%s: %s", r->where,
                   place.data ? place.data : "", keyword ? "." : "", keyword ? keyword : "", text);
    ln_str_free(&place);
    return LN_OK;
}

ln_status schema_count(const schema_reader *r, const json_t *s, const schema_place *at, const char *keyword,
                       uint32_t none, uint32_t *out) {
    const json_t *v = json_object_get(s, keyword);
    char found[80];
    *out = none;
    if (!v) return LN_OK;
    const double n = json_number_value(v);
    if (!json_is_number(v) || n < 0 || n != (double)(int64_t)LN_MIN(n, 1e18))
        return schema_refuse(r, at, keyword, "expected an integer that is not negative, found %s",
                             ln_json_text(v, found));
    *out = n >= GR_UNBOUNDED ? GR_UNBOUNDED - 1 : (uint32_t)n;
    return LN_OK;
}

ln_status schema_work(schema_reader *r, const schema_place *at, size_t amount) {
    r->work += (uint32_t)LN_MIN(amount, MOST_WORK);
    if (r->work <= MOST_WORK) return LN_OK;
    return schema_refuse(r, at, NULL,
                         "the schema is too large once its references and allOf are resolved; refer to fewer "
                         "schemas, or join them by hand");
}

/* ---- keywords ---- */

static ln_status check_keywords(const schema_reader *r, const json_t *s, const schema_place *at) {
    static const char *const refused[] = {"$dynamicRef", "$recursiveRef"};
    for (size_t i = 0; i < LN_COUNT(refused); i++)
        if (json_object_get(s, refused[i]))
            return schema_refuse(r, at, refused[i], "this keyword is not supported; leave it out");
    return LN_OK;
}

/* ---- types ---- */

/* The types to whose values the keywords belong. */
static const struct {
    const char *keyword, *type;
} implied[] = {{"properties", "object"},
               {"required", "object"},
               {SCHEMA_MEMBERS, "object"},
               {"additionalProperties", "object"},
               {"unevaluatedProperties", "object"},
               {"patternProperties", "object"},
               {"propertyNames", "object"},
               {"minProperties", "object"},
               {"maxProperties", "object"},
               {"unevaluatedItems", "array"},
               {"contains", "array"},
               {"format", "string"},
               {"items", "array"},
               {"prefixItems", "array"},
               {"minItems", "array"},
               {"maxItems", "array"},
               {"uniqueItems", "array"},
               {"pattern", "string"},
               {"minLength", "string"},
               {"maxLength", "string"},
               {"minimum", "number"},
               {"maximum", "number"},
               {"exclusiveMinimum", "number"},
               {"exclusiveMaximum", "number"},
               {"multipleOf", "number"}};

/* The type of a schema without `type`: that to which its keywords belong. */
static const char *implied_type(const json_t *s) {
    for (size_t i = 0; i < LN_COUNT(implied); i++)
        if (json_object_get(s, implied[i].keyword)) return implied[i].type;
    return NULL;
}

/* ---- given values ---- */

/* `const` and `enum`: the given values that meet all of the schema. */
static ln_status given_values(schema_reader *r, json_t *s, const schema_place *at, gr_node *out) {
    json_t *one = json_object_get(s, "const"), *many = json_object_get(s, "enum"),
           *list = schema_keep(r, json_array()), *v;
    char found[80];
    bool yes;
    size_t i;
    if (!list) return LN_OOM(r->err, "a schema");
    if (many && !json_is_array(many))
        return schema_refuse(r, at, "enum", "expected a list of values, found %s", ln_json_text(many, found));
    json_t *beside = schema_without(r, s, "enum"); /* each value is one of them */
    if (!beside) return LN_OOM(r->err, "a schema");
    json_array_foreach(many, i, v) {
        if (one) break;
        LN_TRY(schema_admits(r, beside, at, v, &yes));
        if (yes && json_array_append(list, v) != 0) return LN_OOM(r->err, "a schema");
    }
    yes = false;
    if (one) LN_TRY(schema_admits(r, s, at, one, &yes));
    if (yes && json_array_append(list, one) != 0) return LN_OOM(r->err, "a schema");
    *out = gr_json_values(r->g, &r->json, list);
    LN_TRY(gr_check(r->g, r->err));
    if (json_array_size(list) > 0) return LN_OK;
    return schema_nothing(r, at, one ? "const" : "enum", "no value of it meets the schema beside it");
}

/* Whether values of a kind are among those that a negation excludes. */
static bool excludes(const json_t *s, bool (*is)(const json_t *)) {
    json_t *v;
    size_t i;
    json_array_foreach(json_object_get(s, SCHEMA_WITHOUT), i, v) if (is(v)) return true;
    return false;
}
static bool is_null(const json_t *v) { return json_is_null(v); }
static bool is_true(const json_t *v) { return json_is_true(v); }
static bool is_false(const json_t *v) { return json_is_false(v); }
static bool is_object(const json_t *v) { return json_is_object(v); }
static bool is_array(const json_t *v) { return json_is_array(v); }

static ln_status value_of_type(schema_reader *r, json_t *s, const char *type, const schema_place *at,
                               gr_node *out) {
    char shown[80];
    *out = GR_NOTHING; /* a list or object that is not excluded could be any but one; none is made */
    if (strcmp(type, "object") == 0) return excludes(s, is_object) ? LN_OK : schema_object(r, s, at, out);
    if (strcmp(type, "array") == 0) return excludes(s, is_array) ? LN_OK : schema_array(r, s, at, out);
    if (strcmp(type, "string") == 0) return schema_string(r, s, at, out);
    if (strcmp(type, "number") == 0) return schema_number(r, s, false, at, out);
    if (strcmp(type, "integer") == 0) return schema_number(r, s, true, at, out);
    if (strcmp(type, "boolean") == 0) {
        if (!excludes(s, is_true)) *out = gr_texts(r->g, "true");
        if (!excludes(s, is_false)) *out = gr_alt(r->g, *out, gr_texts(r->g, "false"));
    } else if (strcmp(type, "null") == 0) {
        if (!excludes(s, is_null)) *out = gr_texts(r->g, "null");
    } else {
        return schema_refuse(r, at, "type",
                             "expected object, array, string, number, integer, boolean or null, found "
                             "\"%s\"",
                             ln_excerpt(shown, type, strlen(type)));
    }
    return LN_OK;
}

static ln_status listed_types(schema_reader *r, json_t *s, const json_t *type, const schema_place *at,
                              gr_node *out) {
    char found[80];
    bool number = false;
    for (size_t i = 0; i < json_array_size(type); i++)
        number = number || ln_json_is_text(json_array_get(type, i), "number");
    *out = GR_NOTHING;
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *name = json_string_value(json_array_get(type, i));
        gr_node one;
        if (!name)
            return schema_refuse(r, at, "type", "expected a type or a list of types, found %s",
                                 ln_json_text(type, found));
        if (number && strcmp(name, "integer") == 0) continue; /* it is one */
        LN_TRY(value_of_type(r, s, name, at, &one));
        *out = gr_alt(r->g, *out, one);
    }
    if (json_array_size(type) > 0) return LN_OK;
    return schema_refuse(r, at, "type", "expected a type or a list of types, found %s",
                         ln_json_text(type, found));
}

/* Whether a keyword says something of values. */
static bool says_something(const json_t *s) {
    static const char *const made[] = {SCHEMA_WITHOUT, SCHEMA_NOT_PATTERN, SCHEMA_NOT_MULTIPLE,
                                       SCHEMA_FRACTION};
    for (size_t i = 0; i < LN_COUNT(made); i++)
        if (json_object_get(s, made[i])) return true;
    return implied_type(s) != NULL;
}

static ln_status typed(schema_reader *r, json_t *s, const schema_place *at, gr_node *out) {
    static const char *const names[] = {"object", "array", "string", "number", "boolean", "null"};
    const json_t *type = json_object_get(s, "type");
    const char *only = r->open ? NULL : implied_type(s);
    if (!type && !says_something(s)) {
        *out = r->json.value;
        return LN_OK;
    }
    if (json_is_string(type)) return value_of_type(r, s, json_string_value(type), at, out);
    if (type) return listed_types(r, s, type, at, out);
    if (only) return value_of_type(r, s, only, at, out);
    *out = GR_NOTHING;
    for (size_t i = 0; i < LN_COUNT(names); i++) {
        gr_node one;
        LN_TRY(value_of_type(r, s, names[i], at, &one));
        *out = gr_alt(r->g, *out, one);
    }
    return LN_OK;
}

/* What stands beside a negation, with the type that its keywords imply: a negation has values of all types.
 */
static ln_status with_implied_type(schema_reader *r, json_t **s) {
    const char *only = r->open || json_object_get(*s, "type") ? NULL : implied_type(*s);
    if (!only) return LN_OK;
    json_t *copy = schema_keep(r, ln_json_copy(*s));
    if (!copy || json_object_set_new(copy, "type", json_string(only)) != 0) return LN_OOM(r->err, "a schema");
    *s = copy;
    return LN_OK;
}

/* ---- combinations ---- */

static bool is_bare(const json_t *s, const char *keyword) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)s, key,
                        v) if (strcmp(key, keyword) != 0 && !schema_is_annotation(key)) return false;
    return true;
}

/* anyOf and oneOf: each alternative together with what stands beside the keyword. */
static ln_status alternatives_of(schema_reader *r, json_t *s, const char *keyword, const schema_place *at,
                                 gr_node *out) {
    json_t *list = json_object_get(s, keyword), *beside = NULL;
    char found[80];
    *out = GR_NOTHING;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return schema_refuse(r, at, keyword, "expected a list of schemas, found %s",
                             ln_json_text(list, found));
    if (!is_bare(s, keyword) && !(beside = schema_without(r, s, keyword))) return LN_OOM(r->err, "a schema");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const schema_place in = {at, keyword, 0}, one = {&in, NULL, i};
        json_t *branch = json_array_get(list, i);
        gr_node node;
        if (beside)
            LN_TRY(schema_join_ordered(r, branch, beside, schema_names_first(s, keyword), &one, &branch));
        if (strcmp(keyword, "oneOf") == 0) LN_TRY(schema_exclusive(r, list, i, branch, &one, &branch));
        LN_TRY(schema_value(r, branch, &one, &node));
        *out = gr_alt(r->g, *out, node);
    }
    return gr_check(r->g, r->err);
}

/* `not`: what stands beside it, together with the negation. */
static ln_status negation_of(schema_reader *r, json_t *s, const schema_place *at, gr_node *out) {
    const schema_place in = {at, "not", 0};
    json_t *beside = schema_without(r, s, "not"), *no;
    if (!beside) return LN_OOM(r->err, "a schema");
    LN_TRY(with_implied_type(r, &beside));
    json_t *rest = json_object_get(beside, "unevaluatedItems");
    if (rest && !json_object_get(beside, "items")) { /* the negation's items are not evaluated */
        beside = schema_without(r, beside, "unevaluatedItems");
        if (!beside || json_object_set(beside, "items", rest) != 0) return LN_OOM(r->err, "a schema");
    }
    r->unseen = json_object_get(beside, "unevaluatedProperties") != NULL;
    const ln_status st = schema_negate(r, json_object_get(s, "not"), &in, &no);
    r->unseen = false;
    LN_TRY(st);
    LN_TRY(schema_join_ordered(r, no, beside, true, at, &no));
    *out = GR_NOTHING;
    if (!json_is_false(no)) return schema_value(r, no, at, out);
    return schema_nothing(r, at, "not", "nothing is left, or the keywords in it cannot be negated");
}

/* Whether two schemas are one, or both the same pair of schemas that were joined. */
static bool same_schema(const json_t *a, const json_t *b) {
    const json_t *p = json_object_get(a, "allOf"), *q = json_object_get(b, "allOf");
    if (a == b) return true;
    return json_object_size(a) == 1 && json_object_size(b) == 1 && json_array_size(p) == 2 &&
           json_array_size(q) == 2 && json_array_get(p, 0) == json_array_get(q, 0) &&
           json_array_get(p, 1) == json_array_get(q, 1);
}

/* The rule of a schema that a $ref names, or that has a $ref or allOf among its keywords: made when it is
 * first met, so that a schema may contain itself. */
static ln_status by_rule(schema_reader *r, json_t *s, const schema_place *at, gr_node *out) {
    json_t *target = s;
    void *p = r->rules;
    gr_node body;
    const bool is_reference = json_object_get(s, "$ref") && is_bare(s, "$ref");
    if (is_reference) LN_TRY(schema_target(r, s, at, &target));
    for (size_t i = 0; i < r->n_rules; i++)
        if (same_schema(r->rules[i].schema, target)) {
            *out = r->rules[i].rule;
            return LN_OK;
        }
    if (r->n_rules == MOST_REFERENCES)
        return schema_refuse(r, at, NULL, "there are more than %d references", MOST_REFERENCES);
    LN_TRY(ln_grow(&p, &r->cap_rules, r->n_rules + 1, sizeof *r->rules, r->err));
    r->rules = p;
    const gr_node rule = *out = gr_rule(r->g);
    r->rules[r->n_rules++] = (schema_rule){target, rule};
    if (!json_object_get(target, "$ref") || !is_bare(target, "$ref"))
        LN_TRY(schema_flat(r, target, at, &target)); /* or it would ask for its own rule */
    LN_TRY(schema_value(r, target, at, &body));
    gr_define(r->g, rule, body);
    if (body == GR_NOTHING) *out = GR_NOTHING;
    return gr_check(r->g, r->err);
}

static ln_status value_of(schema_reader *r, json_t *s, const schema_place *at, gr_node *out) {
    char found[80];
    if (json_is_true(s)) {
        *out = r->json.value;
        return LN_OK;
    }
    if (json_is_false(s)) {
        *out = GR_NOTHING;
        return LN_OK;
    }
    if (!json_is_object(s))
        return schema_refuse(r, at, NULL, "expected a schema (an object), found %s", ln_json_text(s, found));
    LN_TRY(check_keywords(r, s, at));
    json_t *parts = json_object_get(s, "allOf");
    if (json_array_size(parts) == 1 &&
        is_bare(s, "allOf")) /* a $ref with a description is often written so */
        return schema_value(r, json_array_get(parts, 0), at, out);
    if (json_object_get(s, "const") || json_object_get(s, "enum")) LN_TRY(given_values(r, s, at, out));
    else if (schema_has_parts(s)) return by_rule(r, s, at, out);
    else if (json_object_get(s, "anyOf")) return alternatives_of(r, s, "anyOf", at, out);
    else if (json_object_get(s, "oneOf")) return alternatives_of(r, s, "oneOf", at, out);
    else if (json_object_get(s, "not")) return negation_of(r, s, at, out);
    else LN_TRY(typed(r, s, at, out));
    if (json_is_true(json_object_get(s, "nullable"))) *out = gr_alt(r->g, *out, gr_texts(r->g, "null"));
    return gr_check(r->g, r->err);
}

ln_status schema_value(schema_reader *r, json_t *s, const schema_place *at, gr_node *out) {
    if (r->depth == MOST_SCHEMA_DEPTH)
        return schema_refuse(r, at, NULL,
                             "schemas are nested deeper than %d levels, or one contains itself without "
                             "an object or array between",
                             MOST_SCHEMA_DEPTH);
    LN_TRY(schema_work(r, at, 64));
    r->depth++;
    const ln_status st = value_of(r, s, at, out);
    r->depth--;
    return st;
}

ln_status gr_schema(ln_grammar *g, const json_t *schema, bool open, const char *place, gr_node *out,
                    ln_error *err) {
    schema_reader r = {.g = g, .root = (json_t *)(uintptr_t)schema, .where = place, .open = open, .err = err};
    r.json = gr_json_rules(g);
    r.json.open = open;
    r.made = json_array();
    ln_status st = r.made ? schema_resolve_names(&r) : LN_OOM(err, "a schema");
    if (st == LN_OK) st = schema_value(&r, r.root, NULL, out);
    json_decref(r.made);
    ln_free(r.rules);
    return st;
}
