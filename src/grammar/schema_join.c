/* Schemas that are made of others: $ref, allOf, and keywords beside alternatives.
 *
 * Two schemas are joined keyword by keyword. Where the result would need more than one value of a keyword
 * that cannot be combined, such as two patterns, the schema is refused. */
#include "json_schema.h"

#include <string.h>

enum { MOST_ALTERNATIVES = 256 };

bool schema_is_annotation(const char *keyword) {
    static const char *const names[] = {"title",
                                        "description",
                                        "default",
                                        "examples",
                                        "example",
                                        "$schema",
                                        "$id",
                                        "id",
                                        "$comment",
                                        "$anchor",
                                        "$defs",
                                        "definitions",
                                        "deprecated",
                                        "readOnly",
                                        "writeOnly",
                                        "$vocabulary",
                                        "strict",
                                        "contentEncoding",
                                        "contentMediaType",
                                        "externalDocs",
                                        "discriminator",
                                        "xml"};
    for (size_t i = 0; i < LN_COUNT(names); i++)
        if (strcmp(keyword, names[i]) == 0) return true;
    return strncmp(keyword, "x-", 2) == 0;
}

/* ---- references ---- */

/* Copies a part of a JSON pointer up to the next slash, with ~0, ~1 and %41 replaced. False: it is too long
 * or malformed. */
static bool pointer_part(const char **at, char *out, size_t room) {
    size_t n = 0;
    const char *p = *at;
    for (; *p && *p != '/'; p++) {
        static const char hex[] = "0123456789abcdef";
        const char *hi = NULL, *lo = NULL;
        if (n + 1 >= room) return false;
        if (*p == '%' && p[1] && p[2]) hi = strchr(hex, p[1] | 32), lo = strchr(hex, p[2] | 32);
        if (hi && lo) out[n++] = (char)((hi - hex) * 16 + (lo - hex)), p += 2;
        else if (*p == '~' && (p[1] == '0' || p[1] == '1')) out[n++] = *++p == '0' ? '~' : '/';
        else out[n++] = *p;
    }
    out[n] = '\0';
    *at = p;
    return true;
}

ln_status schema_target(const schema_reader *r, const json_t *s, const schema_place *at, json_t **out) {
    const json_t *ref = json_object_get(s, "$ref");
    const char *p = json_string_value(ref);
    char found[80], part[256];
    json_t *v = r->root;
    if (!p || p[0] != '#' || (p[1] && p[1] != '/'))
        return schema_refuse(r, at, "$ref",
                             "expected a reference within the schema, as in \"#/$defs/name\", found %s",
                             ln_json_text(ref, found));
    for (p++; v && *p == '/';) {
        int64_t index = -1;
        p++;
        if (!pointer_part(&p, part, sizeof part)) v = NULL;
        else if (json_is_array(v) && ln_parse_i64(part, strlen(part), &index) && index >= 0)
            v = json_array_get(v, (size_t)index);
        else v = json_object_get(v, part);
    }
    *out = v;
    return v ? LN_OK : schema_refuse(r, at, "$ref", "the schema has no %s", ln_json_text(ref, found));
}

/* ---- joining ---- */

/* Gives a value to the reader, which frees it in the end; NULL without memory. */
static json_t *keep(schema_reader *r, json_t *v) {
    return v && json_array_append_new(r->made, v) == 0 ? v : NULL;
}

json_t *schema_without(schema_reader *r, const json_t *s, const char *keyword) {
    json_t *copy = keep(r, ln_json_copy(s));
    if (copy) (void)json_object_del(copy, keyword);
    return copy;
}

typedef struct joining {
    schema_reader *r;
    json_t *into; /* the result so far */
    const schema_place *at;
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
        if (json_equal(json_array_get(list, i), v)) return true;
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
        return schema_refuse(j->r, j->at, key, "the schemas that are joined here have no type in common");
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
    if (ok) return set_new(j, key, out);
    json_decref(out);
    return LN_OOM(j->r->err, "a schema");
}

/* A schema within: both must hold. NULL is an absent one, which allows everything; one of them is present. */
static json_t *both_of(json_t *a, json_t *b) {
    if (!a || json_is_true(a) || a == b) return json_incref(b);
    if (!b || json_is_true(b) || json_is_false(a)) return json_incref(a);
    return json_is_false(b) ? json_incref(b) : json_pack("{s:[O,O]}", "allOf", a, b);
}

/* `properties`: those of both. One that only a schema lists must also meet what the other one asks of further
 * properties, which may exclude it. */
static ln_status join_properties(const joining *j, json_t *a, json_t *b) {
    json_t *p = json_object_get(a, "properties"), *q = json_object_get(b, "properties"), *v;
    json_t *more_a = json_object_get(a, "additionalProperties"),
           *more_b = json_object_get(b, "additionalProperties");
    const char *name;
    if (!p && !q) return LN_OK;
    LN_TRY(schema_work(j->r, j->at, json_object_size(p) + json_object_size(q)));
    json_t *out = json_object();
    bool ok = out != NULL;
    json_object_foreach(p, name, v) {
        json_t *other = json_object_get(q, name), *joined = both_of(v, other ? other : more_b);
        ok = ok && joined && json_object_set(out, name, joined) == 0;
        json_decref(joined);
    }
    json_object_foreach(q, name, v) {
        if (json_object_get(p, name)) continue;
        json_t *joined = both_of(v, more_a);
        ok = ok && joined && json_object_set(out, name, joined) == 0;
        json_decref(joined);
    }
    if (ok) return set_new(j, "properties", out);
    json_decref(out);
    return LN_OOM(j->r->err, "a schema");
}

/* Bounds: the narrower one. */
static bool is_bound(const char *key, bool *lower) {
    static const char *const lows[] = {"minimum", "exclusiveMinimum", "minLength", "minItems",
                                       "minProperties"};
    static const char *const highs[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                        "maxProperties"};
    for (size_t i = 0; i < LN_COUNT(lows); i++) {
        *lower = strcmp(key, lows[i]) == 0;
        if (*lower || strcmp(key, highs[i]) == 0) return true;
    }
    return false;
}

/* Alternatives on both sides: each pair of them. */
static ln_status join_alternatives(const joining *j, const char *key, json_t *a, json_t *b) {
    json_t *out = json_array();
    bool ok = out != NULL;
    if (json_array_size(a) * json_array_size(b) > MOST_ALTERNATIVES) {
        json_decref(out);
        return schema_refuse(j->r, j->at, key, "there are more than %d combinations of alternatives",
                             MOST_ALTERNATIVES);
    }
    for (size_t i = 0; ok && i < json_array_size(a); i++)
        for (size_t k = 0; ok && k < json_array_size(b); k++) {
            json_t *pair = both_of(json_array_get(a, i), json_array_get(b, k));
            ok = pair && json_array_append_new(out, pair) == 0;
        }
    if (ok) return set_new(j, key, out);
    json_decref(out);
    return LN_OOM(j->r->err, "a schema");
}

static bool is_one_of(const char *key, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(key, names[i]) == 0) return true;
    return false;
}

static ln_status join_keyword(const joining *j, const char *key, json_t *a, json_t *b) {
    static const char *const schemas[] = {"additionalProperties", "unevaluatedProperties", "items",
                                          "propertyNames"};
    static const char *const many[] = {"anyOf", "oneOf"};
    bool lower, same;
    LN_TRY(alike(j, a, b, &same));
    if (same) return LN_OK;
    if (strcmp(key, "type") == 0) return join_types(j, key, a, b);
    if (strcmp(key, "required") == 0) return join_lists(j, key, a, b, false);
    if (strcmp(key, "enum") == 0) return join_lists(j, key, a, b, true);
    if (is_one_of(key, many, LN_COUNT(many))) return join_alternatives(j, key, a, b);
    if (is_one_of(key, schemas, LN_COUNT(schemas)) && !json_is_array(a) && !json_is_array(b))
        return set_new(j, key, both_of(a, b));
    if (is_bound(key, &lower) && json_is_number(a) && json_is_number(b))
        return set_new(j, key, json_incref((json_number_value(a) > json_number_value(b)) == lower ? a : b));
    return schema_refuse(j->r, j->at, key,
                         "two different values of this keyword cannot be joined; write one schema");
}

/* Keywords of one schema whose meaning depends on others beside them, which the other schema has: joined in
 * one schema they would mean something else. */
static ln_status check_apart(const joining *j, const json_t *a, const json_t *b) {
    static const struct {
        const char *keyword, *beside[3];
    } bound[] = {{"prefixItems", {"items", "additionalItems"}},
                 {"patternProperties", {"additionalProperties", "unevaluatedProperties", "properties"}}};
    for (size_t i = 0; i < LN_COUNT(bound); i++) {
        if (!json_object_get(a, bound[i].keyword) || json_object_get(b, bound[i].keyword)) continue;
        for (size_t k = 0; k < LN_COUNT(bound[i].beside) && bound[i].beside[k]; k++) {
            const json_t *v = json_object_get(b, bound[i].beside[k]);
            if (v && !json_is_true(v))
                return schema_refuse(j->r, j->at, bound[i].keyword,
                                     "it cannot be joined with %s of another schema; write one schema",
                                     bound[i].beside[k]);
        }
    }
    return LN_OK;
}

/* A schema as a part of another one: without $ref and allOf at its top, and its unevaluatedProperties, which
 * see its own properties only, are additionalProperties. */
static ln_status part_of(schema_reader *r, json_t *s, const schema_place *at, json_t **out) {
    LN_TRY(schema_flat(r, s, at, out));
    json_t *rest = json_object_get(*out, "unevaluatedProperties");
    if (!rest) return LN_OK;
    json_t *copy = schema_without(r, *out, "unevaluatedProperties");
    if (!copy) return LN_OOM(r->err, "a schema");
    if (!json_object_get(copy, "additionalProperties") &&
        json_object_set(copy, "additionalProperties", rest) != 0)
        return LN_OOM(r->err, "a schema");
    *out = copy;
    return LN_OK;
}

ln_status schema_join(schema_reader *r, json_t *a, json_t *b, const schema_place *at, json_t **out) {
    char found[80];
    const char *key;
    json_t *v;
    LN_TRY(part_of(r, a, at, &a));
    LN_TRY(schema_flat(r, b, at, &b));
    LN_TRY(schema_work(r, at, 64));
    *out = json_is_true(a) ? b : a;
    if (json_is_boolean(a) || json_is_true(b)) return LN_OK;
    *out = b;
    if (json_is_false(b)) return LN_OK;
    if (!json_is_object(a) || !json_is_object(b))
        return schema_refuse(r, at, NULL, "expected a schema (an object), found %s",
                             ln_json_text(json_is_object(a) ? b : a, found));
    json_t *into = keep(r, ln_json_copy(a));
    if (!into) return LN_OOM(r->err, "a schema");
    const joining j = {r, into, at};
    LN_TRY(check_apart(&j, a, b));
    LN_TRY(check_apart(&j, b, a));
    json_object_foreach(b, key, v) {
        json_t *has = json_object_get(a, key);
        if (schema_is_annotation(key) && has) continue;
        if (strcmp(key, "properties") == 0) continue; /* below */
        if (!has) {
            if (json_object_set(into, key, v) != 0) return LN_OOM(r->err, "a schema");
        } else {
            LN_TRY(join_keyword(&j, key, has, v));
        }
    }
    *out = into;
    return join_properties(&j, a, b);
}

/* Joins what a $ref names, and the parts of allOf, with what stands beside them. */
static ln_status flatten(schema_reader *r, json_t *s, const schema_place *at, json_t **out) {
    json_t *parts = json_object_get(s, "allOf"), *target;
    char found[80];
    if (json_object_get(s, "$ref")) {
        json_t *rest = schema_without(r, s, "$ref");
        if (!rest) return LN_OOM(r->err, "a schema");
        LN_TRY(schema_target(r, s, at, &target));
        return schema_join(r, target, rest, at, out);
    }
    if (!json_is_array(parts) || json_array_size(parts) == 0)
        return schema_refuse(r, at, "allOf", "expected a list of schemas, found %s",
                             ln_json_text(parts, found));
    json_t *rest = schema_without(r, s, "allOf"), *all = json_array_get(parts, 0);
    if (!rest) return LN_OOM(r->err, "a schema");
    for (size_t i = 1; i < json_array_size(parts); i++) {
        const schema_place in = {at, "allOf", 0}, one = {&in, NULL, i};
        json_t *part;
        LN_TRY(part_of(r, json_array_get(parts, i), &one, &part));
        LN_TRY(schema_join(r, all, part, &one, &all));
    }
    return schema_join(r, all, rest, at, out);
}

ln_status schema_flat(schema_reader *r, json_t *s, const schema_place *at, json_t **out) {
    *out = s;
    if (!json_is_object(s) || (!json_object_get(s, "$ref") && !json_object_get(s, "allOf"))) return LN_OK;
    LN_TRY(schema_work(r, at, 64));
    if (r->depth == MOST_SCHEMA_DEPTH)
        return schema_refuse(r, at, NULL, "schemas refer to each other without end, or deeper than %d levels",
                             MOST_SCHEMA_DEPTH);
    r->depth++;
    const ln_status st = flatten(r, s, at, out);
    r->depth--;
    return st;
}
