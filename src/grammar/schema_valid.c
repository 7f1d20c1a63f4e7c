/* Whether a value meets a schema, as the standard says: for values of enum and const, which are given, so
 * that any keyword may stand beside them. */
#include "automaton.h"
#include "json_schema.h"

#include <math.h>
#include <string.h>

enum { MOST_VALID_DEPTH = 64 };

bool schema_same_value(const json_t *a, const json_t *b) {
    const char *key;
    json_t *v;
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    if (json_typeof(a) != json_typeof(b)) return false;
    if (json_is_array(a)) {
        bool same = json_array_size(a) == json_array_size(b);
        for (size_t i = 0; same && i < json_array_size(a); i++)
            same = schema_same_value(json_array_get(a, i), json_array_get(b, i));
        return same;
    }
    if (!json_is_object(a)) return json_equal((json_t *)(uintptr_t)a, (json_t *)(uintptr_t)b);
    if (json_object_size(a) != json_object_size(b)) return false;
    json_object_foreach((json_t *)(uintptr_t)a, key, v) {
        const json_t *other = json_object_get(b, key);
        if (!other || !schema_same_value(v, other)) return false;
    }
    return true;
}

bool schema_has_type(const json_t *type, const json_t *v) {
    static const char *const names[] = {"object", "array",   "string",  "integer",
                                        "number", "boolean", "boolean", "null"};
    size_t i;
    json_t *one;
    if (!type) return true;
    if (json_is_array(type)) {
        json_array_foreach((json_t *)(uintptr_t)type, i, one) if (schema_has_type(one, v)) return true;
        return false;
    }
    const char *name = json_string_value(type);
    if (!name) return false;
    if (strcmp(name, names[json_typeof(v)]) == 0) return true;
    if (json_is_number(v) && strcmp(name, "number") == 0) return true;
    return json_is_real(v) && strcmp(name, "integer") == 0 && json_real_value(v) == floor(json_real_value(v));
}

typedef struct valid_reader {
    schema_reader *r;
    const schema_place *at;
    int depth;
} valid_reader;

static ln_status valid(valid_reader *q, json_t *s, const json_t *v, bool *yes);

static ln_status not_here(const valid_reader *q, const char *keyword) {
    return schema_refuse(q->r, q->at, keyword, "this keyword is not supported beside enum or const");
}

/* ---- scalars ---- */

static ln_status count_of(const valid_reader *q, const json_t *s, const char *low, const char *high, size_t n,
                          bool *yes) {
    uint32_t min, max;
    LN_TRY(schema_count(q->r, s, q->at, low, 0, &min));
    LN_TRY(schema_count(q->r, s, q->at, high, GR_UNBOUNDED, &max));
    *yes = *yes && n >= min && (max == GR_UNBOUNDED || n <= max);
    return LN_OK;
}

static ln_status valid_string(const valid_reader *q, json_t *s, const json_t *v, bool *yes) {
    const char *text = json_string_value(v);
    const size_t bytes = json_string_length(v);
    size_t chars = 0;
    automaton all = {0};
    for (size_t i = 0; i < bytes; i++) chars += (text[i] & 0xc0) != 0x80;
    LN_TRY(count_of(q, s, "minLength", "maxLength", chars, yes));
    if (!*yes) return LN_OK;
    const ln_status st = schema_string_automaton(q->r, s, q->at, &all);
    if (st == LN_OK && all.next) *yes = automaton_label(&all, text, bytes) != 0;
    automaton_free(&all);
    return st;
}

static ln_status valid_number(const valid_reader *q, const json_t *s, double x, bool *yes) {
    const json_t *step = json_object_get(s, "multipleOf");
    gr_bounds b;
    LN_TRY(schema_bounds(q->r, s, q->at, &b));
    if (b.has_lo) *yes = *yes && (b.above ? x > b.lo : x >= b.lo);
    if (b.has_hi) *yes = *yes && (b.below ? x < b.hi : x <= b.hi);
    const size_t n = json_is_array(step) ? json_array_size(step) : step != NULL;
    for (size_t i = 0; i < n; i++) {
        const double of = json_number_value(json_is_array(step) ? json_array_get(step, i) : step);
        const double k = x / of;
        *yes = *yes && of > 0 && fabs(k - nearbyint(k)) <= 1e-9 * fmax(1, fabs(k));
    }
    if (json_object_get(s, SCHEMA_FRACTION)) *yes = *yes && x != floor(x);
    return LN_OK;
}

/* ---- arrays ---- */

static bool differ(const json_t *v) {
    for (size_t i = 0; i < json_array_size(v); i++)
        for (size_t k = 0; k < i; k++)
            if (schema_same_value(json_array_get(v, i), json_array_get(v, k))) return false;
    return true;
}

static ln_status valid_items(valid_reader *q, json_t *s, const json_t *v, bool *yes) {
    json_t *given, *rest, *contains = json_object_get(s, "contains");
    size_t found = 0;
    uint32_t min, max;
    schema_items(s, &given, &rest);
    for (size_t i = 0; *yes && i < json_array_size(v); i++) {
        json_t *one = i < json_array_size(given) ? json_array_get(given, i) : rest;
        if (one) LN_TRY(valid(q, one, json_array_get(v, i), yes));
        bool is = contains != NULL;
        if (contains) LN_TRY(valid(q, contains, json_array_get(v, i), &is));
        found += is;
    }
    if (!contains) return LN_OK;
    LN_TRY(schema_count(q->r, s, q->at, "minContains", 1, &min));
    LN_TRY(schema_count(q->r, s, q->at, "maxContains", GR_UNBOUNDED, &max));
    *yes = *yes && found >= min && found <= max;
    return LN_OK;
}

static ln_status valid_array(valid_reader *q, json_t *s, const json_t *v, bool *yes) {
    if (json_object_get(s, "unevaluatedItems")) return not_here(q, "unevaluatedItems");
    LN_TRY(count_of(q, s, "minItems", "maxItems", json_array_size(v), yes));
    if (json_is_true(json_object_get(s, "uniqueItems"))) *yes = *yes && differ(v);
    return *yes ? valid_items(q, s, v, yes) : LN_OK;
}

/* ---- objects ---- */

static ln_status valid_member(valid_reader *q, json_t *s, const char *name, json_t *v, bool *yes) {
    json_t *one = json_object_get(json_object_get(s, "properties"), name),
           *names = json_object_get(s, "propertyNames"), *p;
    const char *pattern;
    bool known = one != NULL;
    if (one) LN_TRY(valid(q, one, v, yes));
    json_t *own = json_object_get(json_object_get(s, SCHEMA_MEMBERS), name);
    if (own && *yes) LN_TRY(valid(q, own, v, yes));
    json_object_foreach(json_object_get(s, "patternProperties"), pattern, p) {
        automaton a;
        LN_TRY(schema_work(q->r, q->at, 1024));
        LN_TRY(automaton_of_pattern(&a, pattern, strlen(pattern), false, q->r->err));
        const bool fits = automaton_label(&a, name, strlen(name)) != 0;
        automaton_free(&a);
        known = known || fits;
        if (fits && *yes) LN_TRY(valid(q, p, v, yes));
    }
    one = json_object_get(s, "additionalProperties");
    if (!known && one && *yes) LN_TRY(valid(q, one, v, yes));
    if (!names || !*yes) return LN_OK;
    json_t *text = json_string(name);
    if (!text) return LN_OOM(q->r->err, "a schema");
    const ln_status st = valid(q, names, text, yes);
    json_decref(text);
    return st;
}

/* dependentRequired, dependentSchemas, and dependencies, which may be of both kinds. */
static ln_status valid_dependents(valid_reader *q, json_t *s, const char *keyword, const json_t *v,
                                  bool *yes) {
    const char *name;
    json_t *needs, *one;
    size_t i;
    json_object_foreach(json_object_get(s, keyword), name, needs) {
        if (!json_object_get(v, name)) continue;
        json_array_foreach(needs, i, one) if (json_is_string(one)) *yes =
            *yes && json_object_get(v, json_string_value(one));
        if (json_is_string(needs)) *yes = *yes && json_object_get(v, json_string_value(needs));
        if ((json_is_object(needs) || json_is_boolean(needs)) && *yes) LN_TRY(valid(q, needs, v, yes));
    }
    return LN_OK;
}

static ln_status valid_object(valid_reader *q, json_t *s, const json_t *v, bool *yes) {
    json_t *required = json_object_get(s, "required"), *one;
    const char *name;
    size_t i;
    if (json_object_get(s, "unevaluatedProperties")) return not_here(q, "unevaluatedProperties");
    LN_TRY(count_of(q, s, "minProperties", "maxProperties", json_object_size(v), yes));
    json_array_foreach(required, i, one) if (json_is_string(one)) *yes =
        *yes && json_object_get(v, json_string_value(one));
    json_object_foreach((json_t *)(uintptr_t)v, name, one) {
        if (*yes) LN_TRY(valid_member(q, s, name, one, yes));
    }
    LN_TRY(valid_dependents(q, s, "dependentRequired", v, yes));
    LN_TRY(valid_dependents(q, s, "dependentSchemas", v, yes));
    return valid_dependents(q, s, "dependencies", v, yes);
}

/* ---- all ---- */

static ln_status valid_parts(valid_reader *q, json_t *s, const json_t *v, bool *yes) {
    static const char *const keywords[] = {"allOf", "anyOf", "oneOf"};
    for (size_t k = 0; k < LN_COUNT(keywords); k++) {
        json_t *list = json_object_get(s, keywords[k]), *one;
        size_t n = 0, i;
        if (!list || !*yes) continue;
        json_array_foreach(list, i, one) {
            bool is = true;
            LN_TRY(valid(q, one, v, &is));
            n += is;
        }
        *yes = k == 0 ? n == json_array_size(list) : k == 1 ? n > 0 : n == 1;
    }
    return LN_OK;
}

static ln_status valid_conditions(valid_reader *q, json_t *s, const json_t *v, bool *yes) {
    json_t *no = json_object_get(s, "not"), *when = json_object_get(s, "if");
    bool is = true;
    if (no && *yes) {
        LN_TRY(valid(q, no, v, &is));
        *yes = !is;
    }
    if (!when || !*yes) return LN_OK;
    is = true;
    LN_TRY(valid(q, when, v, &is));
    json_t *then = json_object_get(s, is ? "then" : "else");
    return then ? valid(q, then, v, yes) : LN_OK;
}

static bool given(const json_t *s, const json_t *v) {
    const json_t *one = json_object_get(s, "const"), *many = json_object_get(s, "enum"),
                 *without = json_object_get(s, SCHEMA_WITHOUT);
    bool is = !many;
    if (one && !schema_same_value(one, v)) return false;
    for (size_t i = 0; !is && i < json_array_size(many); i++)
        is = schema_same_value(json_array_get(many, i), v);
    for (size_t i = 0; is && i < json_array_size(without); i++)
        is = !schema_same_value(json_array_get(without, i), v);
    return is;
}

static ln_status valid_all(valid_reader *q, json_t *s, const json_t *v, bool *yes) {
    json_t *target;
    if (json_is_boolean(s)) return *yes = json_is_true(s), LN_OK;
    if (json_object_get(s, "$dynamicRef")) return not_here(q, "$dynamicRef");
    if (json_object_get(s, "$ref")) {
        LN_TRY(schema_target(q->r, s, q->at, &target));
        LN_TRY(valid(q, target, v, yes));
    }
    if (json_is_null(v) && json_is_true(json_object_get(s, "nullable"))) return LN_OK;
    *yes = *yes && schema_has_type(json_object_get(s, "type"), v) && given(s, v);
    if (*yes && json_is_string(v)) LN_TRY(valid_string(q, s, v, yes));
    if (*yes && json_is_number(v)) LN_TRY(valid_number(q, s, json_number_value(v), yes));
    if (*yes && json_is_array(v)) LN_TRY(valid_array(q, s, v, yes));
    if (*yes && json_is_object(v)) LN_TRY(valid_object(q, s, v, yes));
    LN_TRY(valid_parts(q, s, v, yes));
    return valid_conditions(q, s, v, yes);
}

static ln_status valid(valid_reader *q, json_t *s, const json_t *v, bool *yes) {
    if (q->depth == MOST_VALID_DEPTH)
        return schema_refuse(q->r, q->at, NULL,
                             "schemas beside enum or const are nested deeper than %d levels",
                             MOST_VALID_DEPTH);
    LN_TRY(schema_work(q->r, q->at, 4));
    q->depth++;
    const ln_status st = valid_all(q, s, v, yes);
    q->depth--;
    return st;
}

ln_status schema_admits(schema_reader *r, json_t *s, const schema_place *at, const json_t *v, bool *yes) {
    valid_reader q = {r, at, 0};
    *yes = true;
    return valid(&q, s, v, yes);
}
