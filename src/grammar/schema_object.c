/* Objects of JSON schemas. */
#include "schema_names.h"

#include <string.h>

enum { MOST_NAMES = 1024, MOST_COUNTED = 1 << 16 };

typedef struct property {
    gr_node member;
    bool required;
} property;

/* What is known of an object while its expression is made. */
typedef struct object_reader {
    schema_reader *r;
    json_t *s;
    const schema_place *at;
    property_names names;
    json_t *others;      /* the schema of properties that are neither listed nor of a pattern */
    const char *keyword; /* that says so */
    property *p;         /* listed ones in their order, then required ones that are not listed */
    gr_span *listed;
    size_t n, n_listed;
    gr_node other; /* a further property; GR_NOTHING: none */
} object_reader;

bool schema_allows_others(const schema_reader *r, const json_t *s) {
    json_t *more = json_object_get(s, "additionalProperties"), *v;
    const char *name;
    bool listed = json_object_size(json_object_get(s, "patternProperties")) > 0;
    if (!more) more = json_object_get(s, "unevaluatedProperties");
    if (more) return !json_is_false(more);
    json_object_foreach(json_object_get(s, "properties"), name, v) listed = listed || !json_is_false(v);
    return r->open || !listed;
}

static bool is_required(const json_t *required, const char *name) {
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)(uintptr_t)required, i,
                       v) if (json_is_string(v) && strcmp(json_string_value(v), name) == 0) return true;
    return false;
}

static ln_status check_object(const schema_reader *r, const json_t *s, const schema_place *at) {
    static const char *const objects[] = {"properties", "patternProperties"};
    const json_t *listed = json_object_get(s, "properties"), *required = json_object_get(s, "required");
    char found[80];
    for (size_t i = 0; i < LN_COUNT(objects); i++) {
        const json_t *v = json_object_get(s, objects[i]);
        if (v && !json_is_object(v))
            return schema_refuse(r, at, objects[i], "expected an object of schemas, found %s",
                                 ln_json_text(v, found));
    }
    if (required && !json_is_array(required) &&
        !json_is_boolean(required)) /* draft 3: a boolean of the property */
        return schema_refuse(r, at, "required", "expected a list of names, found %s",
                             ln_json_text(required, found));
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_is_string(json_array_get(required, i)))
            return schema_refuse(r, at, "required", "expected a list of names, found %s",
                                 ln_json_text(required, found));
    if (json_object_size(listed) > MOST_NAMES)
        return schema_refuse(r, at, "properties", "expected at most %d properties, found %zu", MOST_NAMES,
                             json_object_size(listed));
    if (json_array_size(required) > MOST_NAMES)
        return schema_refuse(r, at, "required", "expected at most %d names, found %zu", MOST_NAMES,
                             json_array_size(required));
    return LN_OK;
}

/* Adds a property: its own schema, which may be NULL, with those of its patterns. *impossible: it is required
 * and has no value. */
static ln_status add_property(object_reader *o, const char *name, json_t *own, bool required,
                              const schema_place *at, bool *impossible) {
    const uint64_t label = property_names_label(&o->names, name);
    json_t *also = json_object_get(json_object_get(o->s, SCHEMA_MEMBERS), name), *v;
    char shown[80];
    gr_node value = GR_NOTHING;
    o->listed[o->n_listed++] = (gr_span){name, strlen(name)};
    LN_TRY(property_names_value(o->r, &o->names, label, own, o->others, at, &v));
    if (also) LN_TRY(schema_join(o->r, v, also, at, &v));
    if (label != 0) LN_TRY(schema_value(o->r, v, at, &value));
    if (value == GR_NOTHING) {
        *impossible = *impossible || required;
        if (!required) return LN_OK;
        return schema_nothing(o->r, o->at, "required",
                              own ? "\"%s\" is required, and no value of it is allowed"
                                  : "\"%s\" is not among the properties, and others are not allowed",
                              ln_excerpt(shown, name, strlen(name)));
    }
    const gr_node member = gr_all(o->r->g, gr_json_string(o->r->g, name, strlen(name)),
                                  gr_texts(o->r->g, ":"), o->r->json.blank, value);
    o->p[o->n++] = (property){member, required};
    return LN_OK;
}

/* Adds a property that is not listed. Without a word on further ones it may still come if it is required. */
static ln_status add_other(object_reader *o, const char *name, bool required, bool *impossible) {
    const schema_place in = {o->at, o->keyword, 0};
    json_t *const others = o->others;
    for (size_t k = 0; k < o->n_listed; k++)
        if (strcmp(o->listed[k].text, name) == 0) return LN_OK;
    if (required && !json_object_get(o->s, o->keyword)) o->others = json_true();
    const ln_status st = add_property(o, name, NULL, required, &in, impossible);
    o->others = others;
    return st;
}

static ln_status add_properties(object_reader *o, bool *impossible) {
    json_t *required = json_object_get(o->s, "required"), *v;
    const char *name;
    size_t i;
    json_object_foreach(json_object_get(o->s, "properties"), name, v) {
        const schema_place in = {o->at, "properties", 0}, one = {&in, name, 0};
        LN_TRY(add_property(o, name, v, is_required(required, name), &one, impossible));
    }
    json_array_foreach(required, i, v) LN_TRY(add_other(o, json_string_value(v), true, impossible));
    json_object_foreach(json_object_get(o->s, SCHEMA_MEMBERS), name, v)
        LN_TRY(add_other(o, name, false, impossible));
    return LN_OK;
}

/* ---- members ---- */

/* The listed properties in their order, then further ones (`more`: at least one of them). What may follow a
 * comma is built from the last property to the first: it is one of the properties up to the next required
 * one, with what follows that. */
static gr_node members(const object_reader *o, gr_node more, bool may_be_empty) {
    ln_grammar *g = o->r->g;
    const gr_node comma = gr_seq(g, gr_texts(g, ","), o->r->json.blank);
    bool required = false; /* one of those from i on */
    for (size_t i = o->n; i-- > 0;) {
        const gr_node rest = gr_seq(g, comma, more);
        const gr_node one = gr_seq(g, o->p[i].member, required ? rest : gr_optional(g, rest));
        more = o->p[i].required ? one : gr_alt(g, one, more);
        required = required || o->p[i].required;
    }
    return required || !may_be_empty ? more : gr_optional(g, more);
}

/* `min` to `max` further properties, after k others. Their names may repeat, so that of several only one is
 * sure to count. */
static gr_node further_members(const object_reader *o, uint32_t k, uint32_t min, uint32_t max) {
    ln_grammar *g = o->r->g;
    const gr_node comma = gr_seq(g, gr_texts(g, ","), o->r->json.blank), more = gr_seq(g, comma, o->other);
    if (min > 1 || (min == 1 && (max == 0 || o->other == GR_NOTHING))) return GR_NOTHING;
    if (max == 0 || o->other == GR_NOTHING) return GR_EMPTY;
    const gr_node first = k == 0 ? o->other : more;
    const gr_node all = gr_seq(g, first, gr_repeat(g, more, 0, max == GR_UNBOUNDED ? max : max - 1));
    return min == 0 ? gr_optional(g, all) : all;
}

/* The same where the number of properties is bounded, by how many have been written: rest[k]. */
static ln_status counted_members(const object_reader *o, uint32_t min, uint32_t max, gr_node *out) {
    ln_grammar *g = o->r->g;
    const gr_node comma = gr_seq(g, gr_texts(g, ","), o->r->json.blank);
    const uint32_t top = max == GR_UNBOUNDED ? min : LN_MIN(max, (uint32_t)o->n); /* k beyond are alike */
    if ((o->n + 1) * ((size_t)top + 1) > MOST_COUNTED)
        return schema_refuse(o->r, o->at, "minProperties", "a bound of so many properties is not supported");
    gr_node *rest = ln_alloc(((size_t)top + 1) * sizeof *rest);
    if (!rest) return LN_OOM(o->r->err, "a schema");
    for (uint32_t k = 0; k <= top; k++)
        rest[k] = further_members(o, k, min - LN_MIN(min, k), max == GR_UNBOUNDED ? max : max - k);
    for (size_t i = o->n; i-- > 0;)
        for (uint32_t k = 0; k <= top; k++) { /* rest[k + 1] is that of the property after this one still */
            const uint32_t next = max == GR_UNBOUNDED ? LN_MIN(k + 1, top) : k + 1;
            const gr_node after = next <= top ? rest[next] : GR_NOTHING;
            const gr_node with = gr_all(g, k == 0 ? GR_EMPTY : comma, o->p[i].member, after);
            rest[k] = o->p[i].required ? with : gr_alt(g, with, rest[k]);
        }
    *out = rest[0];
    ln_free(rest);
    return gr_check(g, o->r->err);
}

static ln_status all_members(const object_reader *o, gr_node *out) {
    ln_grammar *g = o->r->g;
    uint32_t min, max, must = 0;
    LN_TRY(schema_count(o->r, o->s, o->at, "minProperties", 0, &min));
    LN_TRY(schema_count(o->r, o->s, o->at, "maxProperties", GR_UNBOUNDED, &max));
    *out = GR_NOTHING;
    if (min > max) return schema_nothing(o->r, o->at, "maxProperties", "it is less than minProperties");
    for (size_t i = 0; i < o->n; i++) must += o->p[i].required;
    if (max == GR_UNBOUNDED && min <= must) {
        const gr_node more = further_members(o, 0, 1, GR_UNBOUNDED);
        *out = o->n == 0 ? gr_optional(g, more) : members(o, more, true);
        return gr_check(g, o->r->err);
    }
    LN_TRY(counted_members(o, min, max, out));
    if (*out != GR_NOTHING) return LN_OK;
    return schema_nothing(o->r, o->at, min > must ? "minProperties" : "maxProperties",
                          "no object meets it; the names of further properties may repeat, so that at most "
                          "one "
                          "of them counts: list as many properties as required");
}

static ln_status read_object(object_reader *o, gr_node *out) {
    ln_grammar *g = o->r->g;
    bool impossible = false;
    const schema_place in = {o->at, o->keyword, 0};
    LN_TRY(property_names_open(o->r, o->s, o->at, &o->names));
    LN_TRY(add_properties(o, &impossible));
    *out = GR_NOTHING;
    if (impossible) return LN_OK;
    LN_TRY(property_names_further(o->r, &o->names, o->listed, o->n_listed, o->others, &in, &o->other));
    LN_TRY(all_members(o, out));
    *out = gr_all(g, gr_texts(g, "{"), o->r->json.blank, *out, o->r->json.blank, gr_texts(g, "}"));
    return gr_check(g, o->r->err);
}

ln_status schema_object(schema_reader *r, json_t *s, const schema_place *at, gr_node *out) {
    object_reader o = {.r = r, .s = s, .at = at, .keyword = "additionalProperties"};
    LN_TRY(check_object(r, s, at));
    o.others = json_object_get(s, o.keyword);
    if (!o.others && json_object_get(s, "unevaluatedProperties"))
        o.others = json_object_get(s, o.keyword = "unevaluatedProperties");
    if (!o.others) o.others = schema_allows_others(r, s) ? json_true() : json_false();
    const size_t room = json_object_size(json_object_get(s, "properties")) +
                        json_array_size(json_object_get(s, "required")) +
                        json_object_size(json_object_get(s, SCHEMA_MEMBERS)) + 1;
    o.p = ln_zalloc(room, sizeof *o.p);
    o.listed = ln_zalloc(room, sizeof *o.listed);
    const ln_status st = o.p && o.listed ? read_object(&o, out) : LN_OOM(r->err, "a schema");
    property_names_close(&o.names);
    ln_free(o.p);
    ln_free(o.listed);
    return st;
}
