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
    static const char *const refused[] = {
        "not",          "if",       "then",        "else",        "dependentRequired", "dependentSchemas",
        "dependencies", "contains", "minContains", "maxContains", "unevaluatedItems",  "$dynamicRef",
        "$recursiveRef"};
    for (size_t i = 0; i < LN_COUNT(refused); i++)
        if (json_object_get(s, refused[i]))
            return schema_refuse(r, at, refused[i], "this keyword is not supported; leave it out");
    return LN_OK;
}

/* Whether a value has a type of the schema's `type`, which may be absent. */
static bool has_type(const json_t *type, const json_t *v) {
    static const char *const names[] = {"object", "array",   "string",  "integer",
                                        "number", "boolean", "boolean", "null"};
    size_t i;
    json_t *one;
    if (!type) return true;
    if (json_is_array(type)) {
        json_array_foreach((json_t *)(uintptr_t)type, i, one) if (has_type(one, v)) return true;
        return false;
    }
    const char *name = json_string_value(type);
    if (!name) return false;
    if (strcmp(name, names[json_typeof(v)]) == 0) return true;
    if (json_is_number(v) && strcmp(name, "number") == 0) return true;
    return json_is_real(v) && strcmp(name, "integer") == 0 &&
           json_real_value(v) == (double)(int64_t)LN_MIN(LN_MAX(json_real_value(v), -1e18), 1e18);
}

/* ---- types ---- */

/* The types to whose values the keywords belong. */
static const struct {
    const char *keyword, *type;
} implied[] = {{"properties", "object"},
               {"required", "object"},
               {"additionalProperties", "object"},
               {"unevaluatedProperties", "object"},
               {"patternProperties", "object"},
               {"propertyNames", "object"},
               {"minProperties", "object"},
               {"maxProperties", "object"},
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

/* Values of `const` and `enum` are taken as they are: a keyword that could exclude some is refused. */
static ln_status check_given(const schema_reader *r, json_t *s, const schema_place *at, const json_t *v) {
    for (size_t i = 0; i < LN_COUNT(implied); i++) {
        json_t *type = json_object_get(s, implied[i].keyword) ? json_string(implied[i].type) : NULL;
        const bool applies = type && has_type(type, v);
        json_decref(type);
        if (applies)
            return schema_refuse(r, at, implied[i].keyword,
                                 "this keyword is not supported beside enum or const; leave it out");
    }
    return LN_OK;
}

/* `const` and `enum`: the values that are given. */
static ln_status given_values(schema_reader *r, json_t *s, const schema_place *at, gr_node *out) {
    json_t *one = json_object_get(s, "const"), *many = json_object_get(s, "enum"), *list = json_array();
    const json_t *type = json_object_get(s, "type");
    char found[80];
    json_t *v;
    size_t i;
    bool is_in = !many;
    if (!list || json_array_append_new(r->made, list) != 0) return LN_OOM(r->err, "a schema");
    if (many && !json_is_array(many))
        return schema_refuse(r, at, "enum", "expected a list of values, found %s", ln_json_text(many, found));
    json_array_foreach(many, i, v) {
        is_in = is_in || (one && json_equal(v, one));
        if (one || !has_type(type, v)) continue;
        LN_TRY(check_given(r, s, at, v));
        if (json_array_append(list, v) != 0) return LN_OOM(r->err, "a schema");
    }
    if (one && is_in && has_type(type, one)) {
        LN_TRY(check_given(r, s, at, one));
        if (json_array_append(list, one) != 0) return LN_OOM(r->err, "a schema");
    }
    *out = gr_json_values(r->g, &r->json, list);
    LN_TRY(gr_check(r->g, r->err));
    if (json_array_size(list) > 0) return LN_OK;
    return schema_refuse(r, at, one ? "const" : "enum", "no value of it has the schema's type");
}

static ln_status value_of_type(schema_reader *r, json_t *s, const char *type, const schema_place *at,
                               gr_node *out) {
    char shown[80];
    if (strcmp(type, "object") == 0) return schema_object(r, s, at, out);
    if (strcmp(type, "array") == 0) return schema_array(r, s, at, out);
    if (strcmp(type, "string") == 0) return schema_string(r, s, at, out);
    if (strcmp(type, "number") == 0) return schema_number(r, s, false, at, out);
    if (strcmp(type, "integer") == 0) return schema_number(r, s, true, at, out);
    if (strcmp(type, "boolean") == 0) *out = gr_alt(r->g, gr_texts(r->g, "true"), gr_texts(r->g, "false"));
    else if (strcmp(type, "null") == 0) *out = gr_texts(r->g, "null");
    else
        return schema_refuse(r, at, "type",
                             "expected object, array, string, number, integer, boolean or null, found "
                             "\"%s\"",
                             ln_excerpt(shown, type, strlen(type)));
    return LN_OK;
}

static ln_status typed(schema_reader *r, json_t *s, const schema_place *at, gr_node *out) {
    const json_t *type = json_object_get(s, "type");
    char found[80];
    const char *only = implied_type(s);
    if (!type && !only) {
        *out = r->json.value;
        return LN_OK;
    }
    if (!type) return value_of_type(r, s, only, at, out);
    if (json_is_string(type)) return value_of_type(r, s, json_string_value(type), at, out);
    *out = GR_NOTHING;
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *name = json_string_value(json_array_get(type, i));
        gr_node one;
        if (!name)
            return schema_refuse(r, at, "type", "expected a type or a list of types, found %s",
                                 ln_json_text(type, found));
        LN_TRY(value_of_type(r, s, name, at, &one));
        *out = gr_alt(r->g, *out, one);
    }
    if (json_array_size(type) > 0) return LN_OK;
    return schema_refuse(r, at, "type", "expected a type or a list of types, found %s",
                         ln_json_text(type, found));
}

/* ---- combinations ---- */

static bool is_bare(const json_t *s, const char *keyword) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)s, key,
                        v) if (strcmp(key, keyword) != 0 && !schema_is_annotation(key)) return false;
    return true;
}

/* anyOf and oneOf: each alternative together with what stands beside the keyword. oneOf is read as anyOf: its
 * alternatives exclude each other in schemas that mean to be generated from. */
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
        if (beside) LN_TRY(schema_join(r, branch, beside, &one, &branch));
        LN_TRY(schema_value(r, branch, &one, &node));
        *out = gr_alt(r->g, *out, node);
    }
    return gr_check(r->g, r->err);
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
        if (r->rules[i].schema == target) {
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
    if (parts || json_object_get(s, "$ref")) return by_rule(r, s, at, out);
    if (json_object_get(s, "anyOf")) return alternatives_of(r, s, "anyOf", at, out);
    if (json_object_get(s, "oneOf")) return alternatives_of(r, s, "oneOf", at, out);
    if (json_object_get(s, "const") || json_object_get(s, "enum")) LN_TRY(given_values(r, s, at, out));
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

ln_status gr_schema(ln_grammar *g, const json_t *schema, const char *place, gr_node *out, ln_error *err) {
    schema_reader r = {.g = g, .root = (json_t *)(uintptr_t)schema, .where = place, .err = err};
    r.json = gr_json_rules(g);
    r.made = json_array();
    ln_status st = r.made ? schema_value(&r, r.root, NULL, out) : LN_OOM(err, "a schema");
    json_decref(r.made);
    ln_free(r.rules);
    return st;
}
