/* References by name: $id, $anchor and $dynamicAnchor. A schema that has them is copied, and each of its
 * references that they resolve becomes a JSON pointer from the root, as in #/$defs/a. */
#include "json_schema.h"

#include <string.h>

enum { MOST_TARGETS = 4096 };

/* A schema that has a name: the address without a fragment, with an empty one for the schema itself, and the
 * pointer to it. */
typedef struct target {
    char *name, *pointer;
    bool dynamic;
} target;
typedef struct id_reader {
    target *targets;
    size_t n, cap;
    bool rewrite; /* the second pass */
    ln_error *err;
} id_reader;

/* ---- addresses ---- */

/* The bytes of an address up to its path: its scheme and host. */
static size_t root_bytes(const char *uri) {
    const char *colon = strchr(uri, ':'), *host = strstr(uri, "://");
    if (host) return strcspn(host + 3, "/") + (size_t)(host + 3 - uri);
    return colon ? (size_t)(colon + 1 - uri) : 0;
}

static bool has_scheme(const char *s) {
    const size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");
    return n > 0 && s[n] == ':';
}

/* Appends `ref` as it is seen from the address `base`; both without fragments. */
static void resolve(ln_str *out, const char *base, const char *ref, size_t bytes) {
    if (bytes == 0 || has_scheme(ref)) {
        ln_str_add(out, bytes == 0 ? base : ref, bytes == 0 ? strlen(base) : bytes);
        return;
    }
    const char *slash = strrchr(base, '/');
    size_t keep = ref[0] == '/' ? root_bytes(base) : slash ? (size_t)(slash + 1 - base) : 0;
    keep = LN_MAX(keep, root_bytes(base));
    while (bytes >= 2 && ref[0] == '.' && (ref[1] == '/' || (ref[1] == '.' && bytes > 2 && ref[2] == '/'))) {
        const size_t dots = ref[1] == '/' ? 1 : 2;
        ref += dots + 1, bytes -= dots + 1;
        if (dots == 2 && keep > root_bytes(base) + 1) keep--; /* the slash, then the name before it */
        while (dots == 2 && keep > root_bytes(base) + 1 && base[keep - 1] != '/') keep--;
    }
    ln_str_add(out, base, keep);
    if (keep > 0 && base[keep - 1] != '/' && ref[0] != '/' && strstr(base, "://")) ln_str_adds(out, "/");
    ln_str_add(out, ref, bytes);
}

/* ---- names ---- */

static ln_status add_target(id_reader *d, const char *base, const char *fragment, const char *pointer,
                            bool dynamic) {
    void *p = d->targets;
    ln_str name = {0}, place = {0};
    if (d->n == MOST_TARGETS)
        return ln_fail(d->err, LN_EINVALID, "the schema has more than %d names ($id, $anchor)", MOST_TARGETS);
    ln_str_addf(&name, "%s#%s", base, fragment);
    ln_str_adds(&place, pointer);
    ln_status st = name.failed || place.failed ? LN_OOM(d->err, "a schema") : LN_OK;
    if (st == LN_OK) st = ln_grow(&p, &d->cap, d->n + 1, sizeof *d->targets, d->err);
    d->targets = p;
    if (st == LN_OK) {
        d->targets[d->n++] = (target){name.data, place.data, dynamic};
        return LN_OK;
    }
    ln_str_free(&name);
    ln_str_free(&place);
    return st;
}

static const target *find(const id_reader *d, const char *name) {
    for (size_t i = 0; i < d->n; i++)
        if (strcmp(d->targets[i].name, name) == 0) return &d->targets[i];
    return NULL;
}

/* Replaces a reference by a pointer from the root, where a name resolves it. `key` is $ref or $dynamicRef. */
static ln_status rewrite(const id_reader *d, json_t *s, const char *key, const char *base) {
    const char *ref = json_string_value(json_object_get(s, key));
    ln_str name = {0};
    if (!ref) return LN_OK;
    const char *hash = strchr(ref, '#'), *fragment = hash ? hash + 1 : "";
    resolve(&name, base, ref, hash ? (size_t)(hash - ref) : strlen(ref));
    if (fragment[0] != '/') ln_str_addf(&name, "#%s", fragment);
    else ln_str_adds(&name, "#");
    if (name.failed) return ln_str_free(&name), LN_OOM(d->err, "a schema");
    const target *to = find(d, name.data);
    size_t dynamic = 0; /* schemas of this dynamic name: with one the reference is like any other */
    for (size_t i = 0; i < d->n; i++) {
        const char *its = strchr(d->targets[i].name, '#');
        dynamic += d->targets[i].dynamic && its && strcmp(its + 1, fragment) == 0;
    }
    const bool is_dynamic = strcmp(key, "$dynamicRef") == 0;
    ln_str_free(&name);
    if (!to || (is_dynamic && (dynamic > 1 || json_object_get(s, "$ref")))) return LN_OK;
    ln_str pointer = {0};
    ln_str_addf(&pointer, "#%s%s", to->pointer, fragment[0] == '/' ? fragment : "");
    bool ok = !pointer.failed && json_object_set_new(s, "$ref", json_string(pointer.data)) == 0;
    if (is_dynamic) (void)json_object_del(s, key);
    ln_str_free(&pointer);
    return ok ? LN_OK : LN_OOM(d->err, "a schema");
}

/* ---- the walk ---- */

static bool is_one_of(const char *key, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(key, names[i]) == 0) return true;
    return false;
}
/* Whether the members of a keyword's value are schemas by names that are not keywords. */
static bool holds_names(const char *key) {
    static const char *const names[] = {"properties",  "patternProperties", "$defs",
                                        "definitions", "dependentSchemas",  "dependencies"};
    return is_one_of(key, names, LN_COUNT(names));
}
/* Whether a keyword has a schema, or a list of them. */
static bool holds_schemas(const char *key) {
    static const char *const names[] = {"allOf",
                                        "anyOf",
                                        "oneOf",
                                        "not",
                                        "if",
                                        "then",
                                        "else",
                                        "items",
                                        "contains",
                                        "prefixItems",
                                        "additionalItems",
                                        "additionalProperties",
                                        "propertyNames",
                                        "unevaluatedItems",
                                        "unevaluatedProperties"};
    return is_one_of(key, names, LN_COUNT(names));
}

static ln_status names_of(id_reader *d, const json_t *s, const char *base, const char *pointer) {
    const char *anchor = json_string_value(json_object_get(s, "$anchor")),
               *dynamic = json_string_value(json_object_get(s, "$dynamicAnchor"));
    if (json_is_string(json_object_get(s, "$id")) || !*pointer)
        LN_TRY(add_target(d, base, "", pointer, false));
    if (anchor) LN_TRY(add_target(d, base, anchor, pointer, false));
    return dynamic ? add_target(d, base, dynamic, pointer, true) : LN_OK;
}

/* Visits a schema, or a value that holds schemas by names; each level is a call, at most LN_JSON_MAX_DEPTH.
 */
static ln_status visit(id_reader *d, json_t *s, bool is_schema, const char *base, const char *pointer) {
    ln_str own = {0}, in = {0};
    const char *key, *id = is_schema ? json_string_value(json_object_get(s, "$id")) : NULL;
    json_t *v;
    size_t i;
    ln_status st = LN_OK;
    if (id) {
        resolve(&own, base, id, strcspn(id, "#"));
        if (own.failed) LN_GO(LN_OOM(d->err, "a schema"));
        base = own.data ? own.data : "";
    }
    if (is_schema && json_is_object(s) && !d->rewrite) LN_GO(names_of(d, s, base, pointer));
    if (is_schema && d->rewrite) {
        LN_GO(rewrite(d, s, "$ref", base));
        LN_GO(rewrite(d, s, "$dynamicRef", base));
    }
    json_object_foreach(s, key, v) {
        if (is_schema && !holds_names(key) && !holds_schemas(key)) continue;
        in.len = 0;
        ln_str_addf(&in, "%s/", pointer);
        for (const char *p = key; *p; p++) {
            if (*p == '~' || *p == '/') ln_str_adds(&in, *p == '~' ? "~0" : "~1");
            else if (*p == '%') ln_str_adds(&in, "%25");
            else ln_str_add(&in, p, 1);
        }
        if (in.failed) LN_GO(LN_OOM(d->err, "a schema"));
        LN_GO(visit(d, v, !(is_schema && holds_names(key)), base, in.data));
    }
    json_array_foreach(s, i, v) {
        in.len = 0;
        ln_str_addf(&in, "%s/%zu", pointer, i);
        if (in.failed) LN_GO(LN_OOM(d->err, "a schema"));
        LN_GO(visit(d, v, true, base, in.data));
    }
out:
    ln_str_free(&own);
    ln_str_free(&in);
    return st;
}

/* Whether some schema has a name, or a reference is no pointer. */
static bool has_names(json_t *s, bool is_schema) {
    const char *key, *ref = json_string_value(json_object_get(s, "$ref"));
    json_t *v;
    size_t i;
    if (is_schema && json_is_object(s) &&
        (json_is_string(json_object_get(s, "$anchor")) ||
         json_is_string(json_object_get(s, "$dynamicAnchor")) || (ref && ref[0] != '#') ||
         (ref && ref[0] == '#' && ref[1] && ref[1] != '/')))
        return true;
    json_object_foreach(s, key, v) {
        const bool schema = !(is_schema && holds_names(key));
        if (is_schema && !holds_names(key) && !holds_schemas(key)) continue;
        if (schema && strcmp(key, "properties") != 0 && json_is_string(json_object_get(v, "$id")))
            return true;
        if (has_names(v, schema)) return true;
    }
    json_array_foreach(s, i,
                       v) if (json_is_string(json_object_get(v, "$id")) || has_names(v, true)) return true;
    return false;
}

ln_status schema_resolve_names(schema_reader *r) {
    id_reader d = {.err = r->err};
    ln_status st = LN_OK;
    if (!has_names(r->root, true)) return LN_OK;
    json_t *copy = schema_keep(r, ln_json_deep_copy(r->root));
    if (!copy) return LN_OOM(r->err, "a schema");
    LN_GO(visit(&d, copy, true, "", ""));
    d.rewrite = true;
    LN_GO(visit(&d, copy, true, "", ""));
    r->root = copy;
out:
    for (size_t i = 0; i < d.n; i++) {
        ln_free(d.targets[i].name);
        ln_free(d.targets[i].pointer);
    }
    ln_free(d.targets);
    return st;
}
