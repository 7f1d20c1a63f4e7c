/* The parts of which a schema is made: $ref, allOf, if, and what a property's presence asks for. */
#include "json_schema.h"

#include <string.h>

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

/* ---- parts ---- */

json_t *schema_keep(schema_reader *r, json_t *v) {
    return v && json_array_append_new(r->made, v) == 0 ? v : NULL;
}

json_t *schema_without(schema_reader *r, const json_t *s, const char *keyword) {
    json_t *copy = schema_keep(r, ln_json_copy(s));
    if (copy) (void)json_object_del(copy, keyword);
    return copy;
}

/* A keyword of what is not evaluated sees its own schema only: it becomes the keyword of the others. */
static ln_status closed_part(schema_reader *r, const char *keyword, const char *others, json_t **s) {
    json_t *rest = json_object_get(*s, keyword);
    if (!rest) return LN_OK;
    json_t *copy = schema_without(r, *s, keyword);
    if (!copy || (!json_object_get(copy, others) && json_object_set(copy, others, rest) != 0))
        return LN_OOM(r->err, "a schema");
    *s = copy;
    return LN_OK;
}

ln_status schema_part(schema_reader *r, json_t *s, const schema_place *at, json_t **out) {
    LN_TRY(schema_flat(r, s, at, out));
    LN_TRY(closed_part(r, "unevaluatedProperties", "additionalProperties", out));
    return closed_part(r, "unevaluatedItems", "items", out);
}

static const char *const part_keywords[] = {
    "$ref", "allOf", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies"};

bool schema_has_parts(const json_t *s) {
    for (size_t i = 0; i < LN_COUNT(part_keywords); i++)
        if (json_object_get(s, part_keywords[i])) return true;
    return false;
}

static ln_status append(schema_reader *r, json_t *parts, json_t *v) {
    return v && json_array_append_new(parts, v) == 0 ? LN_OK : LN_OOM(r->err, "a schema");
}

/* if, then, else: both conditions that can be met. */
static ln_status add_condition(schema_reader *r, const json_t *s, json_t *parts) {
    json_t *when = json_object_get(s, "if"), *then = json_object_get(s, "then"),
           *otherwise = json_object_get(s, "else");
    const bool sees = json_object_get(s, "unevaluatedProperties") || json_object_get(s, "unevaluatedItems");
    if (!when || (!then && !otherwise && !sees)) return LN_OK;
    return append(r, parts,
                  json_pack("{s:[{s:[O,O]},{s:[{s:O},O]}]}", "anyOf", "allOf", when,
                            then ? then : json_true(), "allOf", "not", when,
                            otherwise ? otherwise : json_true()));
}

/* What the presence of properties asks for: names, one name, or a schema. */
static ln_status add_dependents(schema_reader *r, const json_t *s, const char *keyword, json_t *parts,
                                const schema_place *at) {
    json_t *all = json_object_get(s, keyword), *needs, *with;
    const char *name;
    char found[80];
    if (all && !json_is_object(all))
        return schema_refuse(r, at, keyword, "expected an object, found %s", ln_json_text(all, found));
    json_object_foreach(all, name, needs) {
        if (json_is_array(needs)) with = json_pack("{s:O}", "required", needs);
        else with = json_is_string(needs) ? json_pack("{s:[O]}", "required", needs) : json_incref(needs);
        LN_TRY(append(r, parts,
                      json_pack("{s:[{s:{s:b}},{s:[{s:[s]},o]}]}", "anyOf", SCHEMA_MEMBERS, name, 0, "allOf",
                                "required", name, with)));
    }
    return LN_OK;
}

static ln_status find_parts(schema_reader *r, const json_t *s, const schema_place *at, json_t *parts) {
    json_t *all = json_object_get(s, "allOf"), *target, *one;
    char found[80];
    size_t i;
    if (json_object_get(s, "$ref")) {
        LN_TRY(schema_target(r, s, at, &target));
        LN_TRY(append(r, parts, json_incref(target)));
    }
    if (all && (!json_is_array(all) || json_array_size(all) == 0))
        return schema_refuse(r, at, "allOf", "expected a list of schemas, found %s",
                             ln_json_text(all, found));
    json_array_foreach(all, i, one) LN_TRY(append(r, parts, json_incref(one)));
    LN_TRY(add_condition(r, s, parts));
    LN_TRY(add_dependents(r, s, "dependentRequired", parts, at));
    LN_TRY(add_dependents(r, s, "dependentSchemas", parts, at));
    return add_dependents(r, s, "dependencies", parts, at);
}

/* Joins the parts with what stands beside them. */
static ln_status flatten(schema_reader *r, json_t *s, const schema_place *at, json_t **out) {
    json_t *parts = schema_keep(r, json_array()), *rest = schema_without(r, s, part_keywords[0]), *one,
           *all = NULL;
    size_t i;
    if (!parts || !rest) return LN_OOM(r->err, "a schema");
    for (i = 1; i < LN_COUNT(part_keywords); i++) (void)json_object_del(rest, part_keywords[i]);
    LN_TRY(find_parts(r, s, at, parts));
    const size_t first = json_object_get(s, "$ref") != NULL; /* that of allOf */
    json_array_foreach(parts, i, one) {
        const bool listed = i >= first && i < first + json_array_size(json_object_get(s, "allOf"));
        const schema_place in = {at, "allOf", 0}, item = {&in, NULL, listed ? i - first : 0};
        const schema_place *const where = listed ? &item : at;
        LN_TRY(schema_part(r, one, where, &one));
        if (!all) all = one;
        else LN_TRY(schema_join(r, all, one, where, &all));
    }
    *out = rest;
    if (!all) return LN_OK;
    const char *const keyword = first ? "$ref" : json_object_get(s, "allOf") ? "allOf" : NULL;
    return schema_join_ordered(r, all, rest, !keyword || schema_names_first(s, keyword), at, out);
}

ln_status schema_flat(schema_reader *r, json_t *s, const schema_place *at, json_t **out) {
    *out = s;
    if (!json_is_object(s) || !schema_has_parts(s)) return LN_OK;
    LN_TRY(schema_work(r, at, 64));
    if (r->depth == MOST_SCHEMA_DEPTH)
        return schema_refuse(r, at, NULL, "schemas refer to each other without end, or deeper than %d levels",
                             MOST_SCHEMA_DEPTH);
    r->depth++;
    const ln_status st = flatten(r, s, at, out);
    r->depth--;
    return st;
}
