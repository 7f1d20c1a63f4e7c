/* Joining two schemas keyword by keyword: what meets both. Where the result would need more than one value of
 * a keyword that cannot be combined, the schema is refused. */
#include "json_schema.h"

#include <string.h>

enum { MOST_ALTERNATIVES = 256 };

typedef struct joining {
    schema_reader *r;
    json_t *into; /* the result so far */
    const schema_place *at;
    bool *nothing; /* set where no value meets both */
} joining;

/* Sets a keyword of the result to a new value, which it takes. */
static ln_status set_new(const joining *j, const char *key, json_t *v) {
    return v && json_object_set_new(j->into, key, v) == 0 ? LN_OK : LN_OOM(j->r->err, "a schema");
}

/* json_equal, which may visit all of both values: the work is counted. */
static ln_status alike(const joining *j, const json_t *a, const json_t *b, bool *same) {
    const size_t n = json_is_array(a) ? json_array_size(a) : json_object_size(a);
    json_t *const x = (json_t *)(uintptr_t)a, *const y = (json_t *)(uintptr_t)b;
    const char *key;
    json_t *v;
    *same = a == b || (n == 0 && json_equal(x, y));
    LN_TRY(schema_work(j->r, j->at, 1));
    if (*same || n == 0 || json_typeof(a) != json_typeof(b)) return LN_OK;
    *same = n == (json_is_array(b) ? json_array_size(b) : json_object_size(b));
    for (size_t i = 0; *same && i < n && json_is_array(a); i++)
        LN_TRY(alike(j, json_array_get(a, i), json_array_get(b, i), same));
    json_object_foreach(x, key, v) {
        const json_t *other = json_object_get(b, key);
        *same = *same && other;
        if (*same) LN_TRY(alike(j, v, other, same));
    }
    return LN_OK;
}

static bool holds(const json_t *list, const json_t *v) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (schema_same_value(json_array_get(list, i), v)) return true;
    return false;
}

/* `type`: the types that both have; an integer is a number. */
static ln_status join_types(const joining *j, const char *key, json_t *a, json_t *b) {
    json_t *common = json_array(), *x = json_is_array(a) ? json_incref(a) : json_pack("[O]", a),
           *y = json_is_array(b) ? json_incref(b) : json_pack("[O]", b);
    bool ok = common && x && y;
    for (size_t i = 0; ok && i < json_array_size(x); i++)
        for (size_t k = 0; ok && k < json_array_size(y); k++) {
            json_t *p = json_array_get(x, i), *q = json_array_get(y, k);
            json_t *both = json_equal(p, q)                                                ? p
                           : ln_json_is_text(p, "number") && ln_json_is_text(q, "integer") ? q
                           : ln_json_is_text(p, "integer") && ln_json_is_text(q, "number") ? p
                                                                                           : NULL;
            if (both && !holds(common, both)) ok = json_array_append(common, both) == 0;
        }
    json_decref(x);
    json_decref(y);
    if (ok && json_array_size(common) == 0) {
        json_decref(common);
        *j->nothing = true;
        return schema_nothing(j->r, j->at, key, "the schemas that are joined here have no type in common");
    }
    if (ok) return set_new(j, key, common);
    json_decref(common);
    return LN_OOM(j->r->err, "a schema");
}

/* Lists: `required` has the names of both, `enum` the values that both have. */
static ln_status join_lists(const joining *j, const char *key, json_t *a, json_t *b, bool both) {
    LN_TRY(schema_work(j->r, j->at, (json_array_size(a) + 1) * (json_array_size(b) + 1)));
    json_t *out = json_array();
    bool ok = out != NULL;
    for (size_t i = 0; ok && i < json_array_size(a); i++)
        if (!both || holds(b, json_array_get(a, i))) ok = json_array_append(out, json_array_get(a, i)) == 0;
    for (size_t i = 0; ok && !both && i < json_array_size(b); i++)
        if (!holds(out, json_array_get(b, i))) ok = json_array_append(out, json_array_get(b, i)) == 0;
    if (ok && both && json_array_size(out) == 0) {
        *j->nothing = true;
        LN_TRY(schema_nothing(j->r, j->at, key, "the schemas that are joined here have no value in common"));
    }
    if (ok) return set_new(j, key, out);
    json_decref(out);
    return LN_OOM(j->r->err, "a schema");
}

/* A schema within: both must hold. NULL is an absent one, which allows everything; one of them is present. */
static json_t *both_of(json_t *a, json_t *b) {
    if (!b || json_is_true(b) || json_is_false(a)) return json_incref(a ? a : b);
    if (!a || json_is_true(a) || a == b) return json_incref(b);
    return json_is_false(b) ? json_incref(b) : json_pack("{s:[O,O]}", "allOf", a, b);
}

/* Adds the properties of `a` that are not there yet. One that `b` does not list must also meet what `b` asks
 * of further properties, which may exclude it. */
static bool add_properties(json_t *out, const json_t *a, const json_t *b) {
    json_t *other = json_object_get(b, "properties"), *more = json_object_get(b, "additionalProperties"), *v;
    const char *name;
    bool ok = out != NULL;
    json_object_foreach(json_object_get(a, "properties"), name, v) {
        json_t *its = json_object_get(other, name);
        if (ok && !json_object_get(out, name))
            ok = json_object_set_new(out, name, both_of(v, its ? its : more)) == 0;
    }
    return ok;
}

/* `properties`: those of both. */
static ln_status join_properties(const joining *j, json_t *a, json_t *b, bool b_first) {
    const size_t n = json_object_size(json_object_get(a, "properties")),
                 k = json_object_size(json_object_get(b, "properties"));
    if (!json_object_get(a, "properties") && !json_object_get(b, "properties")) {
        (void)json_object_del(j->into, "properties");
        return LN_OK;
    }
    LN_TRY(schema_work(j->r, j->at, n + k));
    json_t *out = json_object();
    if (add_properties(out, b_first ? b : a, b_first ? a : b) &&
        add_properties(out, b_first ? a : b, b_first ? b : a))
        return set_new(j, "properties", out);
    json_decref(out);
    return LN_OOM(j->r->err, "a schema");
}

/* Bounds: the narrower one. */
static bool is_bound(const char *key, bool *lower) {
    static const char *const lows[] = {"minimum",  "exclusiveMinimum", "minLength",
                                       "minItems", "minProperties",    "minContains"};
    static const char *const highs[] = {"maximum",  "exclusiveMaximum", "maxLength",
                                        "maxItems", "maxProperties",    "maxContains"};
    for (size_t i = 0; i < LN_COUNT(lows); i++) {
        *lower = strcmp(key, lows[i]) == 0;
        if (*lower || strcmp(key, highs[i]) == 0) return true;
    }
    return false;
}

/* Alternatives on both sides: each pair of them that allows something. */
static ln_status join_alternatives(const joining *j, const char *key, json_t *a, json_t *b) {
    json_t *out = schema_keep(j->r, json_array()), *pair;
    if (!out) return LN_OOM(j->r->err, "a schema");
    for (size_t i = 0; i < json_array_size(a); i++)
        for (size_t k = 0; k < json_array_size(b); k++) {
            LN_TRY(schema_join(j->r, json_array_get(a, i), json_array_get(b, k), j->at, &pair));
            if (json_is_false(pair)) continue;
            if (json_array_size(out) == MOST_ALTERNATIVES)
                return schema_refuse(j->r, j->at, key, "there are more than %d combinations of alternatives",
                                     MOST_ALTERNATIVES);
            if (json_array_append(out, pair) != 0) return LN_OOM(j->r->err, "a schema");
        }
    *j->nothing = *j->nothing || json_array_size(out) == 0;
    return set_new(j, key, json_incref(out));
}

/* Keywords that hold one value, or where schemas were joined a list of all. */
static ln_status join_many(const joining *j, const char *key, json_t *a, json_t *b) {
    json_t *all = json_is_array(a) ? ln_json_copy(a) : json_pack("[O]", a);
    bool ok = all != NULL;
    for (size_t i = 0; ok && i < (json_is_array(b) ? json_array_size(b) : 1); i++) {
        json_t *v = json_is_array(b) ? json_array_get(b, i) : b;
        if (!holds(all, v)) ok = json_array_append(all, v) == 0;
    }
    if (ok) return set_new(j, key, all);
    json_decref(all);
    return LN_OOM(j->r->err, "a schema");
}

static bool is_one_of(const char *key, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(key, names[i]) == 0) return true;
    return false;
}

/* Schemas by names: those of both. */
static ln_status join_members(const joining *j, const char *key, json_t *a, json_t *b) {
    json_t *all = ln_json_copy(a), *v;
    const char *name;
    bool ok = all != NULL;
    json_object_foreach(b, name, v) {
        json_t *mine = json_object_get(a, name);
        ok = ok && json_object_set_new(all, name, both_of(v, mine)) == 0;
    }
    if (ok) return set_new(j, key, all);
    json_decref(all);
    return LN_OOM(j->r->err, "a schema");
}

/* Keywords whose values differ. */
static ln_status join_values(const joining *j, const char *key, json_t *a, json_t *b) {
    static const char *const schemas[] = {"additionalProperties", "unevaluatedProperties", "unevaluatedItems",
                                          "propertyNames"};
    static const char *const alternatives[] = {"anyOf", "oneOf"};
    static const char *const many[] = {"pattern",          "format",       "multipleOf",
                                       SCHEMA_NOT_PATTERN, SCHEMA_WITHOUT, SCHEMA_NOT_MULTIPLE};
    static const char *const apart[] = {"contains", "$dynamicRef", "$recursiveRef", "unevaluatedItems"};
    bool lower;
    if (strcmp(key, "type") == 0) return join_types(j, key, a, b);
    if (strcmp(key, "required") == 0) return join_lists(j, key, a, b, false);
    if (strcmp(key, "enum") == 0) return join_lists(j, key, a, b, true);
    if (strcmp(key, "const") == 0) {
        *j->nothing = *j->nothing || !schema_same_value(a, b);
        return schema_nothing(j->r, j->at, key, "the schemas that are joined here have no value in common");
    }
    if (strcmp(key, "not") == 0) return set_new(j, key, json_pack("{s:[O,O]}", "anyOf", a, b));
    if (strcmp(key, SCHEMA_MEMBERS) == 0) return join_members(j, key, a, b);
    if (strcmp(key, "uniqueItems") == 0) return set_new(j, key, json_true());
    if (is_one_of(key, alternatives, LN_COUNT(alternatives))) return join_alternatives(j, key, a, b);
    if (is_one_of(key, many, LN_COUNT(many))) return join_many(j, key, a, b);
    if (is_one_of(key, schemas, LN_COUNT(schemas))) return set_new(j, key, both_of(a, b));
    if (is_bound(key, &lower) && json_is_number(a) && json_is_number(b))
        return set_new(j, key, json_incref((json_number_value(a) > json_number_value(b)) == lower ? a : b));
    if (is_bound(key, &lower) || is_one_of(key, apart, LN_COUNT(apart)))
        return schema_refuse(j->r, j->at, key,
                             "two different values of this keyword cannot be joined; write one schema");
    return LN_OK; /* the keyword is not known */
}

/* prefixItems and items: those of both at each place. */
static ln_status join_items(const joining *j, json_t *a, json_t *b) {
    static const char *const names[] = {"prefixItems", "items", "additionalItems"};
    json_t *given_a, *rest_a, *given_b, *rest_b, *list = json_array();
    schema_items(a, &given_a, &rest_a);
    schema_items(b, &given_b, &rest_b);
    const size_t n = json_array_size(given_a), k = json_array_size(given_b);
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < LN_MAX(n, k); i++) {
        json_t *x = i < n ? json_array_get(given_a, i) : rest_a,
               *y = i < k ? json_array_get(given_b, i) : rest_b;
        ok = json_array_append_new(list, x || y ? both_of(x, y) : json_true()) == 0;
    }
    for (size_t i = 0; i < LN_COUNT(names); i++) (void)json_object_del(j->into, names[i]);
    if (ok && json_array_size(list) > 0) ok = json_object_set(j->into, names[0], list) == 0;
    if (ok && (rest_a || rest_b)) ok = json_object_set_new(j->into, names[1], both_of(rest_a, rest_b)) == 0;
    json_decref(list);
    return ok ? LN_OK : LN_OOM(j->r->err, "a schema");
}

/* patternProperties: those of both. A pattern of one schema must also meet what the other one asks of further
 * properties, even where the other one lists a name of the pattern. */
static ln_status join_patterns(const joining *j, json_t *a, json_t *b) {
    json_t *p = json_object_get(a, "patternProperties"), *q = json_object_get(b, "patternProperties"), *v;
    json_t *more_a = json_object_get(a, "additionalProperties"),
           *more_b = json_object_get(b, "additionalProperties");
    const char *name;
    if (!p && !q) return LN_OK;
    json_t *out = json_object();
    bool ok = out != NULL;
    json_object_foreach(p, name, v) {
        json_t *other = json_object_get(q, name);
        ok = ok && json_object_set_new(out, name, both_of(v, other ? other : more_b)) == 0;
    }
    json_object_foreach(q, name, v) {
        if (!json_object_get(p, name)) ok = ok && json_object_set_new(out, name, both_of(v, more_a)) == 0;
    }
    if (ok) return set_new(j, "patternProperties", out);
    json_decref(out);
    return LN_OOM(j->r->err, "a schema");
}

/* minContains and maxContains mean something beside contains only: joined with contains of another schema
 * they would mean something else. */
static ln_status check_apart(const joining *j, const json_t *a, const json_t *b) {
    static const char *const beside[] = {"minContains", "maxContains"};
    if (!json_object_get(a, "contains") || json_object_get(b, "contains")) return LN_OK;
    for (size_t i = 0; i < LN_COUNT(beside); i++)
        if (json_object_get(b, beside[i]))
            return schema_refuse(j->r, j->at, "contains",
                                 "it cannot be joined with %s of another schema; write one schema",
                                 beside[i]);
    return LN_OK;
}

static ln_status join_keyword(const joining *j, const json_t *a, const char *key, json_t *v) {
    static const char *const other[] = {"properties", "patternProperties", "prefixItems", "items",
                                        "additionalItems"};
    json_t *has = json_object_get(a, key);
    bool same = false;
    if ((schema_is_annotation(key) && has) || is_one_of(key, other, LN_COUNT(other))) return LN_OK;
    if (!has) return json_object_set(j->into, key, v) == 0 ? LN_OK : LN_OOM(j->r->err, "a schema");
    LN_TRY(alike(j, has, v, &same));
    return same ? LN_OK : join_values(j, key, has, v);
}

ln_status schema_join(schema_reader *r, json_t *a, json_t *b, const schema_place *at, json_t **out) {
    return schema_join_ordered(r, a, b, false, at, out);
}

bool schema_names_first(const json_t *s, const char *keyword) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)s, key, v) {
        if (strcmp(key, "properties") == 0) return true;
        if (strcmp(key, keyword) == 0) return false;
    }
    return false;
}

ln_status schema_join_ordered(schema_reader *r, json_t *a, json_t *b, bool b_first, const schema_place *at,
                              json_t **out) {
    char found[80];
    const char *key;
    json_t *v;
    bool nothing = false;
    LN_TRY(schema_part(r, a, at, &a));
    LN_TRY(schema_flat(r, b, at, &b));
    LN_TRY(schema_work(r, at, 64));
    *out = json_is_true(a) ? b : a;
    if (json_is_boolean(a) || json_is_true(b)) return LN_OK;
    *out = b;
    if (json_is_false(b)) return LN_OK;
    if (!json_is_object(a) || !json_is_object(b))
        return schema_refuse(r, at, NULL, "expected a schema (an object), found %s",
                             ln_json_text(json_is_object(a) ? b : a, found));
    json_t *into = schema_keep(r, json_object());
    if (!into || (b_first && json_object_set_new(into, "properties", json_object()) != 0) ||
        json_object_update(into, a) != 0) /* the order of keywords says which properties come first */
        return LN_OOM(r->err, "a schema");
    const joining j = {r, into, at, &nothing};
    LN_TRY(check_apart(&j, a, b));
    LN_TRY(check_apart(&j, b, a));
    json_object_foreach(b, key, v) LN_TRY(join_keyword(&j, a, key, v));
    if (json_is_true(json_object_get(a, "nullable")) != json_is_true(json_object_get(b, "nullable")))
        (void)json_object_del(into,
                              "nullable"); /* one of them says that null is allowed: the other does not */
    LN_TRY(join_items(&j, a, b));
    LN_TRY(join_patterns(&j, a, b));
    LN_TRY(join_properties(&j, a, b, b_first));
    *out = nothing ? json_false() : into;
    return LN_OK;
}
