/* oneOf: exactly one of the schemas. Where a schema's texts cannot meet another one, the two need no more;
 * else the texts are those that meet the first and the negation of the other. */
#include "json_schema.h"

#include <string.h>

enum { MOST_EXCLUDE_DEPTH = 8 };

/* ---- types ---- */

enum { T_OBJECT = 1, T_ARRAY = 2, T_STRING = 4, T_INTEGER = 8, T_FRACTION = 16, T_BOOLEAN = 32, T_NULL = 64 };

static unsigned named_types(const json_t *type) {
    static const struct {
        const char *name;
        unsigned bits;
    } names[] = {{"object", T_OBJECT},   {"array", T_ARRAY},     {"string", T_STRING},
                 {"integer", T_INTEGER}, {"boolean", T_BOOLEAN}, {"number", T_INTEGER | T_FRACTION},
                 {"null", T_NULL}};
    unsigned bits = 0;
    for (size_t i = 0; i < LN_COUNT(names); i++) {
        bool has = ln_json_is_text(type, names[i].name);
        for (size_t k = 0; k < json_array_size(type); k++)
            has = has || ln_json_is_text(json_array_get(type, k), names[i].name);
        if (has) bits |= names[i].bits;
    }
    return bits;
}

static unsigned types_of(const json_t *s) {
    const json_t *type = json_object_get(s, "type");
    unsigned bits = type ? named_types(type) : 127;
    return json_is_true(json_object_get(s, "nullable")) ? bits | T_NULL : bits;
}

/* ---- values ---- */

/* Whether a schema names its values and the other one admits none of them. */
static ln_status values_differ(schema_reader *r, const json_t *named, json_t *other, const schema_place *at,
                               bool *yes) {
    json_t *one = json_object_get(named, "const"), *many = json_object_get(named, "enum"), *v;
    bool admits = false;
    size_t i;
    *yes = false;
    if ((!one && !many) || json_is_true(json_object_get(named, "nullable"))) return LN_OK;
    if (one) LN_TRY(schema_admits(r, other, at, one, &admits));
    json_array_foreach(many, i, v) {
        if (one || admits) break;
        LN_TRY(schema_admits(r, other, at, v, &admits));
    }
    *yes = !admits;
    return LN_OK;
}

/* ---- objects ---- */

/* Whether the texts of `a` have no other properties than those that it lists. */
static bool is_closed(const schema_reader *r, const json_t *a) {
    static const char *const more[] = {"anyOf", "oneOf", "allOf", "$ref", "if", "patternProperties"};
    for (size_t i = 0; i < LN_COUNT(more); i++)
        if (json_object_get(a, more[i])) return false;
    return !schema_allows_others(r, a);
}

static ln_status exclude(schema_reader *r, json_t *a, json_t *b, int depth, const schema_place *at,
                         bool *yes);

/* What a schema says of a property that it may list; NULL: nothing. */
static json_t *member_of(const json_t *s, const char *name) {
    json_t *listed = json_object_get(json_object_get(s, "properties"), name);
    json_t *own = json_object_get(json_object_get(s, SCHEMA_MEMBERS), name);
    return json_is_false(own) || !listed ? own : listed;
}

static bool requires(const json_t *s, const char *name) {
    json_t *v;
    size_t i;
    json_array_foreach(json_object_get(s, "required"), i, v) if (ln_json_is_text(v, name)) return true;
    return false;
}

static ln_status members_exclude(schema_reader *r, const json_t *a, const json_t *b, int depth,
                                 const schema_place *at, bool *yes) {
    json_t *v;
    size_t i;
    json_array_foreach(json_object_get(b, "required"), i, v) {
        const char *name = json_string_value(v);
        json_t *mine = name ? member_of(a, name) : NULL, *its = name ? member_of(b, name) : NULL;
        if (name && !mine && !requires(a, name) && is_closed(r, a)) *yes = true;
        if (mine && json_is_false(mine)) *yes = true;
        if (mine && its && !*yes) LN_TRY(exclude(r, mine, its, depth + 1, at, yes));
        if (*yes) return LN_OK;
    }
    json_array_foreach(json_object_get(a, "required"), i, v) {
        const char *name = json_string_value(v);
        json_t *mine = name ? member_of(a, name) : NULL, *its = name ? member_of(b, name) : NULL;
        if (name && !its && json_is_false(json_object_get(b, "additionalProperties")) &&
            !json_object_get(b, "patternProperties"))
            *yes = true;
        if (its && json_is_false(its)) *yes = true;
        if (mine && its && !*yes) LN_TRY(exclude(r, mine, its, depth + 1, at, yes));
        if (*yes) return LN_OK;
    }
    return LN_OK;
}

/* ---- all ---- */

static double number_of(const json_t *s, const char *keyword, double none) {
    const json_t *v = json_object_get(s, keyword);
    return json_is_number(v) ? json_number_value(v) : none;
}

static bool ranges_differ(const json_t *a, const json_t *b, const char *low, const char *high) {
    return number_of(a, high, 1e308) < number_of(b, low, -1e308) ||
           number_of(b, high, 1e308) < number_of(a, low, -1e308);
}

/* Whether no text of `a` meets `b`; false where that is not known. */
static ln_status exclude(schema_reader *r, json_t *a, json_t *b, int depth, const schema_place *at,
                         bool *yes) {
    *yes = false;
    if (depth > MOST_EXCLUDE_DEPTH) return LN_OK;
    LN_TRY(schema_flat(r, a, at, &a));
    LN_TRY(schema_flat(r, b, at, &b));
    LN_TRY(schema_work(r, at, 16));
    *yes = json_is_false(a) || json_is_false(b);
    if (!json_is_object(a) || !json_is_object(b)) return LN_OK;
    const unsigned types = types_of(a) & types_of(b);
    *yes = types == 0;
    if (!*yes) LN_TRY(values_differ(r, a, b, at, yes));
    if (!*yes) LN_TRY(values_differ(r, b, a, at, yes));
    if (!*yes && types == T_OBJECT) LN_TRY(members_exclude(r, a, b, depth, at, yes));
    if (!*yes && types == T_STRING) *yes = ranges_differ(a, b, "minLength", "maxLength");
    if (!*yes && types == T_ARRAY) *yes = ranges_differ(a, b, "minItems", "maxItems");
    if (!*yes && (types & ~(unsigned)(T_INTEGER | T_FRACTION)) == 0)
        *yes = ranges_differ(a, b, "minimum", "maximum");
    return LN_OK;
}

ln_status schema_exclusive(schema_reader *r, json_t *list, size_t which, json_t *branch,
                           const schema_place *at, json_t **out) {
    json_t *others = json_array();
    *out = branch;
    if (!others || json_array_append_new(r->made, others) != 0) return LN_OOM(r->err, "a schema");
    for (size_t i = 0; i < json_array_size(list); i++) {
        bool yes = false;
        if (i == which) continue;
        const ln_status st = exclude(r, branch, json_array_get(list, i), 0, at, &yes);
        if (st != LN_OK && st != LN_EINVALID) return st; /* one that cannot be judged may be met */
        LN_TRY(schema_work(r, at, 1));
        if (!yes && json_array_append(others, json_array_get(list, i)) != 0)
            return LN_OOM(r->err, "a schema");
    }
    if (json_array_size(others) == 0 || json_is_false(branch)) return LN_OK;
    json_t *no = json_pack("{s:O}", "anyOf", others), *mine = json_object_get(branch, "not");
    if (mine) no = json_pack("{s:[O,o]}", "anyOf", mine, no);
    *out = schema_keep(r, json_is_object(branch) ? ln_json_copy(branch) : json_object());
    return *out && json_object_set_new(*out, "not", no) == 0 ? LN_OK : LN_OOM(r->err, "a schema");
}
