/* The negation of a schema, as a schema: one alternative for each keyword that a value may break. A keyword
 * without a negation here gives no alternative, so that the result allows less than it could, never more.
 * `format` is one of them: it may be an annotation. */
#include "json_schema.h"

#include <string.h>

enum { MOST_PAIRS = 16 };

typedef struct negation {
    schema_reader *r;
    const schema_place *at;
    json_t *s, *any; /* the schema, and the alternatives so far */
} negation;

/* Adds an alternative, which it takes; NULL: without memory. */
static ln_status add(const negation *n, json_t *v) {
    if (json_is_false(v)) {
        json_decref(v);
        return LN_OK;
    }
    return v && json_array_append_new(n->any, v) == 0 ? LN_OK : LN_OOM(n->r->err, "a schema");
}

/* ---- types and values ---- */

static bool lists(const json_t *type, const char *name) {
    if (ln_json_is_text(type, name)) return true;
    for (size_t i = 0; i < json_array_size(type); i++)
        if (ln_json_is_text(json_array_get(type, i), name)) return true;
    return false;
}

static ln_status not_type(const negation *n, json_t *type) {
    static const char *const names[] = {"object", "array", "string", "boolean", "null"};
    json_t *others = json_array();
    bool ok = others != NULL;
    for (size_t i = 0; i < LN_COUNT(names); i++)
        if (!lists(type, names[i])) ok = ok && json_array_append_new(others, json_string(names[i])) == 0;
    if (!lists(type, "number") && !lists(type, "integer"))
        ok = ok && json_array_append_new(others, json_string("number")) == 0;
    if (ok && json_array_size(others) > 0) ok = add(n, json_pack("{s:O}", "type", others)) == LN_OK;
    json_decref(others);
    if (!ok) return LN_OOM(n->r->err, "a schema");
    if (!lists(type, "integer") || lists(type, "number")) return LN_OK;
    return add(n, json_pack("{s:s,s:b}", "type", "number", SCHEMA_FRACTION, 1));
}

/* ---- bounds ---- */

/* A bound of a count: those beyond it. */
static ln_status not_count(const negation *n, const char *keyword, const char *type, const char *opposite,
                           bool lower) {
    uint32_t count;
    LN_TRY(schema_count(n->r, n->s, n->at, keyword, 0, &count));
    if (lower && count == 0) return LN_OK; /* always met */
    return add(n, json_pack("{s:s,s:I}", "type", type, opposite, (json_int_t)count + (lower ? -1 : 1)));
}

static ln_status not_bound(const negation *n, const char *keyword, const char *exclusive, const char *open,
                           const char *closed) {
    json_t *v = json_object_get(n->s, keyword), *x = json_object_get(n->s, exclusive);
    if (json_is_number(v))
        LN_TRY(add(n, json_pack("{s:s,s:O}", "type", "number", json_is_true(x) ? closed : open, v)));
    return json_is_number(x) ? add(n, json_pack("{s:s,s:O}", "type", "number", closed, x)) : LN_OK;
}

/* ---- objects ---- */

static ln_status not_required(const negation *n, const json_t *names) {
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (name) LN_TRY(add(n, json_pack("{s:s,s:{s:b}}", "type", "object", SCHEMA_MEMBERS, name, 0)));
    }
    return LN_OK;
}

static ln_status not_properties(const negation *n, json_t *listed) {
    const char *name;
    json_t *v, *no;
    json_object_foreach(listed, name, v) {
        const schema_place in = {n->at, "properties", 0}, one = {&in, name, 0};
        LN_TRY(schema_negate(n->r, v, &one, &no));
        if (json_is_false(no)) continue;
        LN_TRY(add(n, json_pack("{s:s,s:[s],s:{s:O}}", "type", "object", "required", name, SCHEMA_MEMBERS,
                                name, no)));
    }
    return LN_OK;
}

static ln_status not_dependents(const negation *n, json_t *all) {
    const char *name;
    json_t *needs, *no;
    json_object_foreach(all, name, needs) {
        for (size_t i = 0; i < json_array_size(needs); i++) {
            const char *other = json_string_value(json_array_get(needs, i));
            if (other && strcmp(other, name) != 0)
                LN_TRY(add(n, json_pack("{s:s,s:[s],s:{s:b}}", "type", "object", "required", name,
                                        SCHEMA_MEMBERS, other, 0)));
        }
        if (!json_is_object(needs) && !json_is_boolean(needs)) continue;
        LN_TRY(schema_negate(n->r, needs, n->at, &no));
        if (!json_is_false(no))
            LN_TRY(add(n, json_pack("{s:[{s:s,s:[s]},O]}", "allOf", "type", "object", "required", name, no)));
    }
    return LN_OK;
}

/* ---- arrays ---- */

static ln_status not_items(const negation *n) {
    json_t *given, *rest, *no;
    schema_items(n->s, &given, &rest);
    for (size_t i = 0; i < json_array_size(given); i++) {
        json_t *list = json_array();
        bool ok = list != NULL;
        LN_TRY(schema_negate(n->r, json_array_get(given, i), n->at, &no));
        for (size_t k = 0; k < i; k++) ok = ok && json_array_append_new(list, json_true()) == 0;
        ok = ok && json_array_append(list, no) == 0;
        if (ok && !json_is_false(no))
            ok = add(n, json_pack("{s:s,s:I,s:O,s:b}", "type", "array", "minItems", (json_int_t)i + 1,
                                  "prefixItems", list, "items", 1)) == LN_OK;
        json_decref(list);
        if (!ok) return LN_OOM(n->r->err, "a schema");
    }
    if (!rest || json_array_size(given) > 0) return LN_OK;
    LN_TRY(schema_negate(n->r, rest, n->at, &no));
    return json_is_false(no) ? LN_OK : add(n, json_pack("{s:s,s:O}", "type", "array", "contains", no));
}

static ln_status not_contains(const negation *n, json_t *contains) {
    uint32_t min, max;
    json_t *no;
    LN_TRY(schema_count(n->r, n->s, n->at, "minContains", 1, &min));
    LN_TRY(schema_count(n->r, n->s, n->at, "maxContains", GR_UNBOUNDED, &max));
    if (max != GR_UNBOUNDED)
        LN_TRY(add(n, json_pack("{s:s,s:O,s:I}", "type", "array", "contains", contains, "minContains",
                                (json_int_t)max + 1)));
    if (min == 0) return LN_OK;
    if (min > 1)
        return add(n, json_pack("{s:s,s:O,s:i,s:I}", "type", "array", "contains", contains, "minContains", 0,
                                "maxContains", (json_int_t)min - 1));
    LN_TRY(schema_negate(n->r, contains, n->at, &no));
    return add(n, json_pack("{s:s,s:O}", "type", "array", "items", no));
}

/* ---- combinations ---- */

/* The negations of a list's schemas: as alternatives, or all of them as one. */
static ln_status not_list(const negation *n, json_t *list, bool together) {
    json_t *all = json_array(), *one, *no;
    size_t i;
    ln_status st = all ? LN_OK : LN_OOM(n->r->err, "a schema");
    json_array_foreach(list, i, one) {
        if (st == LN_OK) st = schema_negate(n->r, one, n->at, &no);
        if (st == LN_OK && !together) st = add(n, json_incref(no));
        if (st == LN_OK && together && json_array_append(all, no) != 0) st = LN_OOM(n->r->err, "a schema");
    }
    if (st == LN_OK && together) st = add(n, json_pack("{s:O}", "allOf", all));
    json_decref(all);
    return st;
}

/* oneOf: none of them, or two. */
static ln_status not_one_of(const negation *n, json_t *list) {
    const size_t k = json_array_size(list);
    LN_TRY(not_list(n, list, true));
    for (size_t i = 0; i < k && k <= MOST_PAIRS && !n->r->unseen; i++)
        for (size_t j = 0; j < i; j++)
            LN_TRY(add(n, json_pack("{s:[O,O]}", "allOf", json_array_get(list, j), json_array_get(list, i))));
    return LN_OK;
}

static ln_status not_if(const negation *n, json_t *when) {
    json_t *then = json_object_get(n->s, "then"), *otherwise = json_object_get(n->s, "else"), *no;
    if (then && !n->r->unseen) {
        LN_TRY(schema_negate(n->r, then, n->at, &no));
        if (!json_is_false(no)) LN_TRY(add(n, json_pack("{s:[O,O]}", "allOf", when, no)));
    }
    if (!otherwise) return LN_OK;
    LN_TRY(schema_negate(n->r, otherwise, n->at, &no));
    if (json_is_false(no)) return LN_OK;
    return add(n, json_pack("{s:[{s:O},O]}", "allOf", "not", when, no));
}

/* ---- keywords ---- */

static ln_status not_values(const negation *n, const char *keyword, json_t *v) {
    if (strcmp(keyword, "enum") == 0) return add(n, json_pack("{s:O}", SCHEMA_WITHOUT, v));
    return add(n, json_pack("{s:[O]}", SCHEMA_WITHOUT, v));
}

static ln_status not_scalar_keyword(const negation *n, const char *key, json_t *v, bool *known) {
    *known = true;
    if (strcmp(key, "type") == 0) return not_type(n, v);
    if (strcmp(key, "enum") == 0 || strcmp(key, "const") == 0) return not_values(n, key, v);
    if (strcmp(key, "minimum") == 0)
        return not_bound(n, key, "exclusiveMinimum", "exclusiveMaximum", "maximum");
    if (strcmp(key, "maximum") == 0)
        return not_bound(n, key, "exclusiveMaximum", "exclusiveMinimum", "minimum");
    if (strcmp(key, "exclusiveMinimum") == 0 && !json_object_get(n->s, "minimum"))
        return not_bound(n, "minimum", key, "", "maximum");
    if (strcmp(key, "exclusiveMaximum") == 0 && !json_object_get(n->s, "maximum"))
        return not_bound(n, "maximum", key, "", "minimum");
    if (strcmp(key, "multipleOf") == 0)
        return add(n, json_pack("{s:s,s:[O]}", "type", "number", SCHEMA_NOT_MULTIPLE, v));
    if (strcmp(key, "minLength") == 0) return not_count(n, key, "string", "maxLength", true);
    if (strcmp(key, "maxLength") == 0) return not_count(n, key, "string", "minLength", false);
    if (strcmp(key, "pattern") == 0)
        return add(n, json_pack("{s:s,s:[O]}", "type", "string", SCHEMA_NOT_PATTERN, v));
    *known = false;
    return LN_OK;
}

static ln_status not_keyword(const negation *n, const char *key, json_t *v) {
    bool known;
    LN_TRY(not_scalar_keyword(n, key, v, &known));
    if (known) return LN_OK;
    if (strcmp(key, "minItems") == 0) return not_count(n, key, "array", "maxItems", true);
    if (strcmp(key, "maxItems") == 0) return not_count(n, key, "array", "minItems", false);
    if (strcmp(key, "minProperties") == 0) return not_count(n, key, "object", "maxProperties", true);
    if (strcmp(key, "maxProperties") == 0) return not_count(n, key, "object", "minProperties", false);
    if (strcmp(key, "required") == 0) return not_required(n, v);
    if (strcmp(key, "properties") == 0) return not_properties(n, v);
    if (strcmp(key, "dependentRequired") == 0 || strcmp(key, "dependentSchemas") == 0 ||
        strcmp(key, "dependencies") == 0)
        return not_dependents(n, v);
    if (strcmp(key, "prefixItems") == 0 || (strcmp(key, "items") == 0 && !json_object_get(n->s, "prefixItem"
                                                                                                "s")))
        return not_items(n);
    if (strcmp(key, "contains") == 0) return not_contains(n, v);
    if (strcmp(key, "allOf") == 0) return not_list(n, v, false);
    if (strcmp(key, "anyOf") == 0) return not_list(n, v, true);
    if (strcmp(key, "oneOf") == 0) return not_one_of(n, v);
    if (strcmp(key, "not") == 0) return n->r->unseen ? LN_OK : add(n, json_incref(v));
    return strcmp(key, "if") == 0 ? not_if(n, v) : LN_OK;
}

static ln_status not_object(const negation *n) {
    const char *key;
    json_t *v, *no;
    if (json_object_get(n->s, "$ref")) {
        LN_TRY(schema_target(n->r, n->s, n->at, &v));
        LN_TRY(schema_negate(n->r, v, n->at, &no));
        LN_TRY(add(n, json_incref(no)));
    }
    json_object_foreach(n->s, key, v) LN_TRY(not_keyword(n, key, v));
    return LN_OK;
}

/* The alternatives as one schema. */
static json_t *as_schema(const json_t *any, bool nullable) {
    json_t *out =
        json_array_size(any) == 1 ? json_incref(json_array_get(any, 0)) : json_pack("{s:O}", "anyOf", any);
    if (json_array_size(any) == 0) {
        json_decref(out);
        out = json_false();
    }
    if (!nullable || !out) return out;
    return json_pack("{s:[o,{s:[s,s,s,s,s]}]}", "allOf", out, "type", "object", "array", "string", "number",
                     "boolean");
}

ln_status schema_negate(schema_reader *r, json_t *s, const schema_place *at, json_t **out) {
    char found[80];
    *out = json_is_true(s) ? json_false() : json_true();
    if (json_is_boolean(s)) return LN_OK;
    if (!json_is_object(s))
        return schema_refuse(r, at, NULL, "expected a schema (an object), found %s", ln_json_text(s, found));
    LN_TRY(schema_work(r, at, 64));
    if (r->depth == MOST_SCHEMA_DEPTH)
        return schema_refuse(r, at, NULL, "a schema that contains itself cannot be negated (not, oneOf, if)");
    const negation n = {r, at, s, json_array()};
    if (!n.any) return LN_OOM(r->err, "a schema");
    r->depth++;
    ln_status st = not_object(&n);
    r->depth--;
    if (st == LN_OK) {
        *out = as_schema(n.any, json_is_true(json_object_get(s, "nullable")));
        if (!*out || json_array_append_new(r->made, *out) != 0) st = LN_OOM(r->err, "a schema");
    }
    json_decref(n.any);
    return st;
}
