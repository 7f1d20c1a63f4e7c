/* Objects and arrays of JSON schemas. */
#include "json_schema.h"

#include <string.h>

enum { MOST_NAMES = 1024, MOST_PATTERNS = 64, MOST_DIFFERENT = 128, LONGEST_NAME = 512 };

/* ---- names of further properties ---- */

/* The characters that a name may have without an escape. */
static const gr_points plain[] = {{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x10ffff}};

/* One plain character that is none of cs[0..n), which ascend. */
static gr_node other_than(ln_grammar *g, const uint32_t *cs, size_t n) {
    gr_node all = GR_NOTHING;
    for (size_t i = 0; i < LN_COUNT(plain); i++) {
        uint32_t from = plain[i].lo;
        for (size_t k = 0; k < n; k++) {
            if (cs[k] < from || cs[k] > plain[i].hi) continue;
            if (cs[k] > from) all = gr_alt(g, all, gr_characters(g, &(gr_points){from, cs[k] - 1}, 1));
            from = cs[k] + 1;
        }
        if (from <= plain[i].hi) all = gr_alt(g, all, gr_characters(g, &(gr_points){from, plain[i].hi}, 1));
    }
    return all;
}

static void insert(uint32_t *cs, size_t *n, uint32_t c) {
    size_t i = *n;
    for (size_t k = 0; k < *n; k++)
        if (cs[k] == c) return;
    for (; i > 0 && cs[i - 1] > c; i--) cs[i] = cs[i - 1];
    cs[i] = c;
    ++*n;
}

/* What may follow where a name so far agrees with the beginnings of n listed names, whose rests are
 * name[0..n): anything but one of the rests; `any` is any number of plain characters. Each character of a
 * name is a call, at most LONGEST_NAME of them. */
static gr_node not_these(ln_grammar *g, const char *const *name, size_t n, gr_node any) {
    uint32_t *cs = ln_alloc((n + 1) * sizeof *cs);
    size_t n_cs = 0;
    bool ended = false;
    if (!cs) g->no_memory = true;
    if (g->no_memory || g->too_large) return ln_free(cs), GR_NOTHING;
    for (size_t i = 0; i < n; i++) {
        uint32_t c;
        if (!*name[i]) ended = true;
        else if (ln_utf8_get(name[i], strlen(name[i]), &c) > 0) insert(cs, &n_cs, c);
    }
    gr_node all = gr_alt(g, ended ? GR_NOTHING : GR_EMPTY, gr_seq(g, other_than(g, cs, n_cs), any));
    for (size_t k = 0; k < n_cs; k++) {
        const char **rest = ln_alloc((n + 1) * sizeof *rest);
        size_t n_rest = 0;
        if (!rest) {
            g->no_memory = true;
            break;
        }
        for (size_t i = 0; i < n; i++) {
            uint32_t c;
            const int bytes = *name[i] ? ln_utf8_get(name[i], strlen(name[i]), &c) : 0;
            if (bytes > 0 && c == cs[k]) rest[n_rest++] = name[i] + bytes;
        }
        if (cs[k] >= 0x20 && cs[k] != '"' && cs[k] != '\\') /* others are not written in plain characters */
            all = gr_alt(g, all,
                         gr_seq(g, gr_characters(g, &(gr_points){cs[k], cs[k]}, 1),
                                not_these(g, (const char *const *)rest, n_rest, any)));
        ln_free(rest);
    }
    ln_free(cs);
    return all;
}

/* The names of further properties: any string, or one that is none of the listed names. */
static ln_status further_names(schema_reader *r, json_t *s, const schema_place *at, gr_node *out) {
    json_t *listed = json_object_get(s, "properties"), *rule = json_object_get(s, "propertyNames"), *v;
    const char *key;
    size_t n = 0;
    if (rule) { /* `further` allows it without listed properties only */
        const schema_place in = {at, "propertyNames", 0};
        json_t *text = json_pack("{s:s}", "type", "string");
        if (!text || json_array_append_new(r->made, text) != 0) return LN_OOM(r->err, "a schema");
        LN_TRY(schema_join(r, rule, text, &in, &rule));
        return schema_value(r, rule, &in, out);
    }
    *out = r->json.string;
    if (json_object_size(listed) == 0) return LN_OK;
    const char **name = ln_alloc((json_object_size(listed) + 1) * sizeof *name);
    if (!name) return LN_OOM(r->err, "a schema");
    json_object_foreach(listed, key, v) {
        if (strlen(key) <= LONGEST_NAME) name[n++] = key;
    }
    if (n < json_object_size(listed)) {
        ln_free(name);
        return schema_refuse(r, at, "properties",
                             "a name is longer than %d bytes, which is supported only where further "
                             "properties are excluded; set additionalProperties to false",
                             LONGEST_NAME);
    }
    const gr_node any = gr_repeat(r->g, gr_characters(r->g, plain, LN_COUNT(plain)), 0, GR_UNBOUNDED);
    *out = gr_all(r->g, gr_texts(r->g, "\""), not_these(r->g, (const char *const *)name, n, any),
                  gr_texts(r->g, "\""));
    ln_free(name);
    return LN_OK;
}

static gr_node member_of(const schema_reader *r, gr_node name, gr_node value) {
    return gr_all(r->g, name, gr_texts(r->g, ":"), r->json.blank, value);
}

/* What the properties that are not listed must meet, and the keyword that says so; NULL: there is none. */
static json_t *rule_of_others(const json_t *s, const char **keyword) {
    json_t *more = json_object_get(s, "additionalProperties");
    *keyword = "additionalProperties";
    if (more) return more;
    more = json_object_get(s, "unevaluatedProperties");
    if (more) *keyword = "unevaluatedProperties";
    return more;
}

/* The text that every name of a pattern begins with: "^" and characters that stand for themselves. */
static size_t literal_start(const char *pattern) {
    size_t n = 0;
    if (pattern[0] != '^' || strchr(pattern, '|')) return 0;
    while (pattern[n + 1] && !strchr("\\^$.*+?()[]{}", pattern[n + 1])) n++;
    return n > 0 && pattern[n + 1] && strchr("*?{", pattern[n + 1]) ? n - 1 : n; /* a repeated one may lack */
}

/* Whether some name may have both patterns, as far as their beginnings say. */
static bool may_overlap(const char *a, const char *b) {
    const size_t n = LN_MIN(literal_start(a), literal_start(b));
    return strncmp(a + 1, b + 1, n) == 0 || n == 0;
}

/* A name that has two patterns would need to meet both schemas. */
static ln_status check_patterns(const schema_reader *r, json_t *patterns, const schema_place *at) {
    const char *a, *b;
    char first[80], second[80];
    json_t *x, *y;
    if (json_object_size(patterns) > MOST_PATTERNS)
        return schema_refuse(r, at, "patternProperties", "expected at most %d patterns, found %zu",
                             MOST_PATTERNS, json_object_size(patterns));
    json_object_foreach(patterns, a, x) {
        json_object_foreach(patterns, b, y) {
            if (strcmp(a, b) < 0 && may_overlap(a, b) && !json_equal(x, y))
                return schema_refuse(r, at, "patternProperties",
                                     "names may have both '%s' and '%s'; begin each pattern with ^ and "
                                     "a text of its own",
                                     ln_excerpt(first, a, strlen(a)), ln_excerpt(second, b, strlen(b)));
        }
    }
    return LN_OK;
}

static ln_status pattern_members(schema_reader *r, json_t *patterns, const schema_place *at, gr_node *out) {
    const char *key;
    gr_node name, value;
    uint32_t shortest, longest;
    json_t *v;
    LN_TRY(check_patterns(r, patterns, at));
    json_object_foreach(patterns, key, v) {
        const schema_place in = {at, "patternProperties", 0}, one = {&in, key, 0};
        shortest = 0, longest = GR_UNBOUNDED;
        LN_TRY(gr_pattern(r->g, key, strlen(key), GR_IN_STRING, false, &name, &shortest, &longest, r->err));
        LN_TRY(schema_value(r, v, &one, &value));
        name = gr_all(r->g, gr_texts(r->g, "\""), name, gr_texts(r->g, "\""));
        *out = gr_alt(r->g, *out, member_of(r, name, value));
    }
    return gr_check(r->g, r->err);
}

/* A property that is none of the listed ones; GR_NOTHING where there may be none. */
static ln_status further(schema_reader *r, json_t *s, const schema_place *at, gr_node *out) {
    json_t *patterns = json_object_get(s, "patternProperties");
    const char *keyword;
    json_t *more = rule_of_others(s, &keyword);
    gr_node name, value;
    const bool listed = json_object_size(json_object_get(s, "properties")) > 0,
               patterned = json_object_size(patterns) > 0;
    *out = GR_NOTHING;
    if (patterned && listed)
        return schema_refuse(r, at, "patternProperties", "this keyword is supported without properties only");
    if ((patterned || listed) && json_object_get(s, "propertyNames"))
        return schema_refuse(r, at, "propertyNames",
                             "this keyword is supported without properties and patternProperties only");
    if (patterned) return pattern_members(r, patterns, at, out);
    if ((!more && listed) || json_is_false(more)) return LN_OK;
    value = r->json.value;
    const schema_place in = {at, keyword, 0};
    if (more) LN_TRY(schema_value(r, more, &in, &value));
    LN_TRY(further_names(r, s, at, &name));
    *out = member_of(r, name, value);
    return gr_check(r->g, r->err);
}

/* ---- objects ---- */

typedef struct property {
    gr_node member;
    bool required;
} property;

static bool is_required(const json_t *required, const char *name) {
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)(uintptr_t)required, i,
                       v) if (json_is_string(v) && strcmp(json_string_value(v), name) == 0) return true;
    return false;
}

static ln_status check_object(const schema_reader *r, const json_t *s, const schema_place *at) {
    const json_t *listed = json_object_get(s, "properties"), *required = json_object_get(s, "required");
    char found[80];
    if (listed && !json_is_object(listed))
        return schema_refuse(r, at, "properties", "expected an object of schemas, found %s",
                             ln_json_text(listed, found));
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

/* The listed properties in their order, then required ones that are not listed. */
static ln_status listed_properties(schema_reader *r, json_t *s, const schema_place *at, gr_node other,
                                   property *p, size_t *n) {
    json_t *listed = json_object_get(s, "properties"), *required = json_object_get(s, "required"), *v;
    const char *name, *keyword;
    json_t *more = rule_of_others(s, &keyword);
    char shown[80];
    size_t i;
    gr_node value;
    *n = 0;
    json_object_foreach(listed, name, v) {
        const schema_place in = {at, "properties", 0}, one = {&in, name, 0};
        const bool must = is_required(required, name);
        LN_TRY(schema_value(r, v, &one, &value));
        if (value == GR_NOTHING && must)
            return schema_refuse(r, at, "required", "\"%s\" is required, and no value of it is allowed",
                                 ln_excerpt(shown, name, strlen(name)));
        if (value == GR_NOTHING) continue;
        p[(*n)++] = (property){member_of(r, gr_json_string(r->g, name, strlen(name)), value), must};
    }
    json_array_foreach(required, i, v) {
        const schema_place in = {at, keyword, 0};
        name = json_string_value(v);
        if (json_object_get(listed, name)) continue;
        if (json_object_get(s, "patternProperties") || json_object_get(s, "propertyNames"))
            return schema_refuse(r, at, "required", "\"%s\" is not among the properties",
                                 ln_excerpt(shown, name, strlen(name)));
        if (other == GR_NOTHING && json_is_false(more))
            return schema_refuse(r, at, "required",
                                 "\"%s\" is not among the properties, and others are not allowed",
                                 ln_excerpt(shown, name, strlen(name)));
        value = r->json.value;
        if (more) LN_TRY(schema_value(r, more, &in, &value));
        p[(*n)++] = (property){member_of(r, gr_json_string(r->g, name, strlen(name)), value), true};
    }
    return LN_OK;
}

/* The members of an object: listed properties in their order, then further ones (`more`: at least one of
 * them). What may follow a comma is built from the last property to the first: it is one of the properties up
 * to the next required one, with what follows that. */
static gr_node members(const schema_reader *r, const property *p, size_t n, gr_node more, bool may_be_empty) {
    const gr_node comma = gr_seq(r->g, gr_texts(r->g, ","), r->json.blank);
    bool required = false; /* one of those from i on */
    for (size_t i = n; i-- > 0;) {
        const gr_node rest = gr_seq(r->g, comma, more);
        const gr_node one = gr_seq(r->g, p[i].member, required ? rest : gr_optional(r->g, rest));
        more = p[i].required ? one : gr_alt(r->g, one, more);
        required = required || p[i].required;
    }
    return required || !may_be_empty ? more : gr_optional(r->g, more);
}

/* `least`: the least number of properties beside the required ones, 0 or 1. */
static gr_node object_of(const schema_reader *r, const property *p, size_t n, gr_node other, uint32_t least,
                         uint32_t max_others) {
    const gr_node comma = gr_seq(r->g, gr_texts(r->g, ","), r->json.blank);
    gr_node more = GR_NOTHING;
    if (n == 0) return gr_json_list(r->g, &r->json, '{', other, least, max_others, '}');
    if (max_others > 0)
        more = gr_seq(r->g, other,
                      gr_repeat(r->g, gr_seq(r->g, comma, other), 0,
                                max_others == GR_UNBOUNDED ? max_others : max_others - 1));
    return gr_all(r->g, gr_texts(r->g, "{"), r->json.blank, members(r, p, n, more, least == 0), r->json.blank,
                  gr_texts(r->g, "}"));
}

/* Bounds of the number of properties. They are met by bounding how many others there are; otherwise they are
 * refused. Names of others may repeat, so that at most one of them is sure to count. */
static ln_status bound_others(const schema_reader *r, const json_t *s, const schema_place *at,
                              const property *p, size_t n, gr_node other, uint32_t *min, uint32_t *max) {
    uint32_t least, most, must = 0;
    LN_TRY(schema_count(r, s, at, "minProperties", 0, &least));
    LN_TRY(schema_count(r, s, at, "maxProperties", GR_UNBOUNDED, &most));
    for (size_t i = 0; i < n; i++) must += p[i].required;
    *min = least > must;
    *max = other == GR_NOTHING ? 0 : GR_UNBOUNDED;
    if (least > LN_MAX(must, 1))
        return schema_refuse(r, at, "minProperties",
                             "at most %u is supported here; list as many properties as required",
                             LN_MAX(must, 1));
    if (most == GR_UNBOUNDED) return LN_OK;
    if (most < n)
        return schema_refuse(r, at, "maxProperties", "fewer than the %zu listed properties are not supported",
                             n);
    if (other != GR_NOTHING) *max = most - (uint32_t)n;
    return most < least ? schema_refuse(r, at, "maxProperties", "it is less than minProperties") : LN_OK;
}

ln_status schema_object(schema_reader *r, json_t *s, const schema_place *at, gr_node *out) {
    gr_node other;
    size_t n;
    uint32_t min, max;
    ln_status st = LN_OK;
    LN_TRY(check_object(r, s, at));
    LN_TRY(further(r, s, at, &other));
    const size_t room = json_object_size(json_object_get(s, "properties")) +
                        json_array_size(json_object_get(s, "required")) + 1;
    property *p = ln_zalloc(room, sizeof *p);
    if (!p) return LN_OOM(r->err, "a schema");
    LN_GO(listed_properties(r, s, at, other, p, &n));
    LN_GO(bound_others(r, s, at, p, n, other, &min, &max));
    *out = object_of(r, p, n, other, min, max);
    st = gr_check(r->g, r->err);
out:
    ln_free(p);
    return st;
}

/* ---- arrays ---- */

/* Items from number i on, each after a comma where `comma` is not GR_EMPTY; `more` is an item after the given
 * ones. */
static gr_node items_from(const schema_reader *r, const gr_node *first, size_t i, size_t n, gr_node more,
                          uint32_t min, uint32_t max) {
    const gr_node comma = i == 0 ? GR_EMPTY : gr_seq(r->g, gr_texts(r->g, ","), r->json.blank);
    if (i >= max) return GR_EMPTY;
    if (i >= n && i == 0) return GR_EMPTY; /* never: gr_json_list */
    if (i >= n)
        return gr_repeat(r->g, gr_seq(r->g, comma, more), min > i ? min - (uint32_t)i : 0,
                         max == GR_UNBOUNDED ? max : max - (uint32_t)i);
    const gr_node all = gr_all(r->g, comma, first[i], items_from(r, first, i + 1, n, more, min, max));
    return i < min ? all : gr_optional(r->g, all);
}

static ln_status given_items(schema_reader *r, json_t *list, const char *keyword, const schema_place *at,
                             gr_node *out) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const schema_place in = {at, keyword, 0}, one = {&in, NULL, i};
        LN_TRY(schema_value(r, json_array_get(list, i), &one, &out[i]));
    }
    return LN_OK;
}

/* ---- arrays of items that differ ---- */

static bool equal_values(json_t *a, json_t *b) { /* 1 and 1.0 are */
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

/* The values of an enum, each once. */
static ln_status differing(schema_reader *r, json_t *s, const schema_place *at, gr_node *value, size_t *n) {
    const schema_place in = {at, "items", 0};
    json_t *many = json_object_get(s, "enum"), *seen = json_array();
    *n = 0;
    if (!seen || json_array_append_new(r->made, seen) != 0) return LN_OOM(r->err, "a schema");
    for (size_t i = 0; i < json_array_size(many); i++) {
        json_t *v = json_array_get(many, i), *one = schema_without(r, s, "enum");
        bool known = false;
        for (size_t k = 0; k < *n; k++) known = known || equal_values(json_array_get(seen, k), v);
        if (known) continue;
        if (!one || json_array_append(seen, v) != 0 || json_object_set(one, "const", v) != 0)
            return LN_OOM(r->err, "a schema");
        LN_TRY(schema_value(r, one, &in, &value[(*n)++]));
    }
    return LN_OK;
}

/* min to max of the n values, each at most once, in their order: of the many orders that the schema allows, a
 * grammar follows one. rest[k]: what follows where k values have been written. */
static gr_node in_order(const schema_reader *r, const gr_node *value, size_t n, uint32_t min, uint32_t max,
                        gr_node *rest) {
    const gr_node comma = gr_seq(r->g, gr_texts(r->g, ","), r->json.blank);
    for (size_t k = 0; k <= n + 1; k++) rest[k] = k >= min && k <= max ? GR_EMPTY : GR_NOTHING;
    for (size_t i = n; i-- > 0;)
        for (size_t k = 0; k <= i; k++) { /* rest[k + 1] is that of the value after this one still */
            const gr_node with = gr_all(r->g, k > 0 ? comma : GR_EMPTY, value[i], rest[k + 1]);
            rest[k] = gr_alt(r->g, with, rest[k]);
        }
    return rest[0];
}

static ln_status unique_items(schema_reader *r, json_t *items, uint32_t min, uint32_t max,
                              const schema_place *at, gr_node *out) {
    const schema_place in = {at, "items", 0};
    size_t n;
    if (items) LN_TRY(schema_flat(r, items, &in, &items));
    const size_t most = json_array_size(json_object_get(items, "enum"));
    if (most == 0 || most > MOST_DIFFERENT)
        return schema_refuse(r, at, "uniqueItems",
                             "this keyword is supported where items is an enum of at most %d values, or "
                             "maxItems "
                             "is 1; leave it out",
                             MOST_DIFFERENT);
    gr_node value[MOST_DIFFERENT], rest[MOST_DIFFERENT + 2];
    LN_TRY(differing(r, items, at, value, &n));
    const gr_node all = in_order(r, value, n, min, max, rest);
    if (all == GR_NOTHING && !r->g->no_memory)
        return schema_refuse(r, at, "minItems", "there are only %zu different values of items", n);
    *out = gr_all(r->g, gr_texts(r->g, "["), r->json.blank, all, r->json.blank, gr_texts(r->g, "]"));
    return gr_check(r->g, r->err);
}

ln_status schema_array(schema_reader *r, json_t *s, const schema_place *at, gr_node *out) {
    json_t *items = json_object_get(s, "items"), *given = json_object_get(s, "prefixItems");
    const char *keyword = "prefixItems", *rest = "items";
    uint32_t min, max;
    ln_status st = LN_OK;
    if (json_is_array(items)) /* before draft 2020 */
        given = items, items = json_object_get(s, "additionalItems"), keyword = "items",
        rest = "additionalItems";
    LN_TRY(schema_count(r, s, at, "minItems", 0, &min));
    LN_TRY(schema_count(r, s, at, "maxItems", GR_UNBOUNDED, &max));
    if (min > max) return schema_refuse(r, at, "minItems", "it is more than maxItems");
    if (json_is_true(json_object_get(s, "uniqueItems")) && max > 1)
        return unique_items(r, given ? NULL : items, min, max, at, out);
    const size_t n = json_array_size(given);
    const schema_place in = {at, rest, 0};
    gr_node more = n > 0 ? GR_NOTHING : r->json.value;
    if (items) LN_TRY(schema_value(r, items, &in, &more));
    if (n == 0) {
        *out = gr_json_list(r->g, &r->json, '[', more, min, max, ']');
        return gr_check(r->g, r->err);
    }
    if (n > MOST_NAMES)
        return schema_refuse(r, at, keyword, "expected at most %d items, found %zu", MOST_NAMES, n);
    gr_node *first = ln_zalloc(n, sizeof *first);
    if (!first) return LN_OOM(r->err, "a schema");
    LN_GO(given_items(r, given, keyword, at, first));
    *out = gr_all(r->g, gr_texts(r->g, "["), r->json.blank, items_from(r, first, 0, n, more, min, max),
                  r->json.blank, gr_texts(r->g, "]"));
    st = gr_check(r->g, r->err);
out:
    ln_free(first);
    return st;
}
