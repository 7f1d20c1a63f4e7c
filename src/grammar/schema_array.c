/* Arrays of JSON schemas. */
#include "json_schema.h"

#include <string.h>

enum { MOST_GIVEN = 1024, MOST_DIFFERENT = 128, MOST_PLACES = 1 << 14 };

void schema_items(json_t *s, json_t **given, json_t **rest) {
    json_t *items = json_object_get(s, "items");
    *given = json_object_get(s, "prefixItems");
    *rest = items;
    if (json_is_array(items)) { /* before draft 2020 */
        *given = items;
        *rest = json_object_get(s, "additionalItems");
    }
}

/* ---- arrays of items that differ ---- */

/* The values that items may have, where they are few: those of enum, const and boolean; NULL: others. */
static json_t *few_values(schema_reader *r, json_t *items) {
    json_t *many = json_object_get(items, "enum"), *one = json_object_get(items, "const");
    if (one) return schema_keep(r, json_pack("[O]", one));
    if (many) return many;
    if (ln_json_is_text(json_object_get(items, "type"), "boolean"))
        return schema_keep(r, json_pack("[b,b]", 0, 1));
    return ln_json_is_text(json_object_get(items, "type"), "null") ? schema_keep(r, json_pack("[n]")) : NULL;
}

/* The values, each once, that meet the schema. */
static ln_status differing(schema_reader *r, json_t *items, const json_t *many, const schema_place *at,
                           gr_node *value, size_t *n) {
    json_t *seen = schema_keep(r, json_array());
    *n = 0;
    if (!seen) return LN_OOM(r->err, "a schema");
    for (size_t i = 0; i < json_array_size(many); i++) {
        json_t *v = json_array_get(many, i);
        bool known = false, yes = true;
        for (size_t k = 0; k < json_array_size(seen); k++)
            known = known || schema_same_value(json_array_get(seen, k), v);
        if (!known) LN_TRY(schema_admits(r, items, at, v, &yes));
        if (known || !yes) continue;
        if (json_array_append(seen, v) != 0) return LN_OOM(r->err, "a schema");
        value[(*n)++] = gr_json_value(r->g, &r->json, v);
    }
    return gr_check(r->g, r->err);
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
    *out = GR_NOTHING;
    if (items) LN_TRY(schema_flat(r, items, &in, &items));
    const json_t *many = items ? few_values(r, items) : NULL;
    if (json_array_size(many) == 0 || json_array_size(many) > MOST_DIFFERENT)
        return schema_refuse(r, at, "uniqueItems",
                             "this keyword is supported where items is an enum of at most %d values, or "
                             "maxItems is 1; leave it out",
                             MOST_DIFFERENT);
    gr_node value[MOST_DIFFERENT], rest[MOST_DIFFERENT + 2];
    LN_TRY(differing(r, items, many, &in, value, &n));
    const gr_node all = in_order(r, value, n, min, max, rest);
    *out = gr_all(r->g, gr_texts(r->g, "["), r->json.blank, all, r->json.blank, gr_texts(r->g, "]"));
    LN_TRY(gr_check(r->g, r->err));
    if (*out != GR_NOTHING) return LN_OK;
    return schema_nothing(r, at, "minItems", "there are only %zu different values of items", n);
}

/* ---- items by their places ---- */

typedef struct array_reader {
    schema_reader *r;
    json_t *s, *given, *rest, *contains, *lacks; /* lacks: the negation of contains, where it counts */
    const schema_place *at;
    const char *given_keyword, *rest_keyword;
    uint32_t min, max, least, most; /* items, and those that `contains` asks for */
} array_reader;

static ln_status both(schema_reader *r, json_t *a, json_t *b, const schema_place *at, gr_node *out) {
    json_t *all = a;
    if (b) LN_TRY(schema_join(r, a, b, at, &all));
    return schema_value(r, all, at, out);
}

/* The item at a place: any one (or any that `contains` does not ask for), and one that it asks for. */
static ln_status item_at(const array_reader *a, size_t i, gr_node *any, gr_node *asked) {
    const size_t n = json_array_size(a->given);
    const schema_place in = {a->at, i < n ? a->given_keyword : a->rest_keyword, 0}, one = {&in, NULL, i};
    const schema_place *const at = i < n ? &one : &in;
    json_t *item = i < n ? json_array_get(a->given, i) : a->rest ? a->rest : json_true();
    *asked = GR_NOTHING;
    if (i >= n && n > 0 && !a->rest && !a->r->open) item = json_false(); /* closed, as objects are */
    LN_TRY(both(a->r, item, a->lacks, at, any));
    return a->contains ? both(a->r, item, a->contains, at, asked) : LN_OK;
}

/* What follows where i items and k of those that `contains` asks for have been written, for k from the most
 * to none: rest[k] is it for i + 1 items, on return for i. */
static void before(const array_reader *a, size_t i, uint32_t top, gr_node any, gr_node asked, gr_node *rest,
                   gr_node *scratch) {
    ln_grammar *g = a->r->g;
    const gr_node comma = i > 0 ? gr_seq(g, gr_texts(g, ","), a->r->json.blank) : GR_EMPTY;
    for (uint32_t k = 0; k <= top; k++) {
        const bool counts = a->most != GR_UNBOUNDED; /* k beyond the least are not all alike */
        const uint32_t next = counts ? k + 1 : LN_MIN(k + 1, top);
        const gr_node with = next <= top ? gr_seq(g, asked, rest[next]) : GR_NOTHING;
        const gr_node one = gr_seq(g, comma, gr_alt(g, gr_seq(g, any, rest[k]), with));
        const bool ends = i >= a->min && i <= a->max && k >= a->least && k <= a->most;
        scratch[k] = gr_alt(g, i < a->max ? one : GR_NOTHING, ends ? GR_EMPTY : GR_NOTHING);
    }
    memcpy(rest, scratch, ((size_t)top + 1) * sizeof *rest);
}

/* rest[k] where all places from `i` on are alike. */
static ln_status endless(const array_reader *a, size_t i, uint32_t top, gr_node *rest, gr_node *scratch) {
    ln_grammar *g = a->r->g;
    gr_node any, asked;
    LN_TRY(item_at(a, i, &any, &asked));
    for (uint32_t k = 0; k <= top; k++) rest[k] = gr_rule(g);
    gr_node *rules = scratch + top + 1;
    memcpy(rules, rest, ((size_t)top + 1) * sizeof *rules);
    before(a, LN_MAX(i, 1), top, any, asked, rest, scratch);
    for (uint32_t k = 0; k <= top; k++) {
        gr_define(g, rules[k], rest[k]);
        rest[k] = rules[k];
    }
    return LN_OK;
}

static ln_status by_places(const array_reader *a, gr_node *out) {
    ln_grammar *g = a->r->g;
    const size_t n = json_array_size(a->given);
    const bool bounded = a->max != GR_UNBOUNDED;
    const size_t places = bounded ? a->max : LN_MAX(LN_MAX(n, a->min), 1); /* places beyond are alike */
    const uint32_t top = !a->contains ? 0 : a->most != GR_UNBOUNDED ? a->most : a->least;
    ln_status st = LN_OK;
    if (places > MOST_PLACES || top > MOST_PLACES || (places + 1) * ((size_t)top + 1) > MOST_PLACES)
        return schema_refuse(a->r, a->at, a->contains ? "contains" : a->given_keyword,
                             "beside bounds of so many items it is not supported");
    gr_node *rest = ln_alloc(3 * ((size_t)top + 1) * sizeof *rest), *scratch = rest + top + 1;
    if (!rest) return LN_OOM(a->r->err, "a schema");
    if (bounded) before(a, places, top, GR_NOTHING, GR_NOTHING, rest, scratch);
    else LN_GO(endless(a, places, top, rest, scratch));
    for (size_t i = places; i-- > 0;) {
        gr_node any, asked;
        LN_GO(item_at(a, i, &any, &asked));
        before(a, i, top, any, asked, rest, scratch);
    }
    *out = gr_all(g, gr_texts(g, "["), a->r->json.blank, rest[0], a->r->json.blank, gr_texts(g, "]"));
    st = gr_check(g, a->r->err);
out:
    ln_free(rest);
    return st;
}

/* ---- all ---- */

static ln_status read_contains(array_reader *a) {
    a->contains = json_object_get(a->s, "contains");
    a->least = 0, a->most = GR_UNBOUNDED;
    if (!a->contains) return LN_OK;
    LN_TRY(schema_count(a->r, a->s, a->at, "minContains", 1, &a->least));
    LN_TRY(schema_count(a->r, a->s, a->at, "maxContains", GR_UNBOUNDED, &a->most));
    if (a->least == 0 && a->most == GR_UNBOUNDED) a->contains = NULL;
    if (a->most == GR_UNBOUNDED) return LN_OK;
    const schema_place in = {a->at, "contains", 0};
    return schema_negate(a->r, a->contains, &in, &a->lacks);
}

ln_status schema_array(schema_reader *r, json_t *s, const schema_place *at, gr_node *out) {
    array_reader a = {.r = r, .s = s, .at = at, .given_keyword = "prefixItems", .rest_keyword = "items"};
    schema_items(s, &a.given, &a.rest);
    if (json_is_array(json_object_get(s, "items")))
        a.given_keyword = "items", a.rest_keyword = "additionalItems";
    if (!a.rest && json_object_get(s, "unevaluatedItems"))
        a.rest = json_object_get(s, a.rest_keyword = "unevaluatedItems");
    *out = GR_NOTHING;
    LN_TRY(schema_count(r, s, at, "minItems", 0, &a.min));
    LN_TRY(schema_count(r, s, at, "maxItems", GR_UNBOUNDED, &a.max));
    if (a.min > a.max) return schema_nothing(r, at, "minItems", "it is more than maxItems");
    LN_TRY(read_contains(&a));
    const size_t n = json_array_size(a.given);
    if (json_is_true(json_object_get(s, "uniqueItems")) && a.max > 1) {
        if (a.contains) return schema_refuse(r, at, "contains", "it is not supported beside uniqueItems");
        return unique_items(r, n > 0 ? NULL : a.rest, a.min, a.max, at, out);
    }
    if (n > MOST_GIVEN)
        return schema_refuse(r, at, a.given_keyword, "expected at most %d items, found %zu", MOST_GIVEN, n);
    if (n == 0 && !a.contains) { /* a counter is enough */
        const schema_place in = {at, a.rest_keyword, 0};
        gr_node more = r->json.value;
        if (a.rest) LN_TRY(schema_value(r, a.rest, &in, &more));
        *out = gr_json_list(r->g, &r->json, '[', more, a.min, a.max, ']');
    } else {
        LN_TRY(by_places(&a, out));
    }
    LN_TRY(gr_check(r->g, r->err));
    if (*out != GR_NOTHING) return LN_OK;
    return schema_nothing(r, at, a.contains ? "contains" : "items", "no array meets this schema");
}
