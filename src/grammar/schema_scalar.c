/* Strings and numbers of JSON schemas. */
#include "json_schema.h"

#include <string.h>

enum { LONGEST_FORMAT = 2048 }; /* characters that a text of a known format may have, and more */

/* ---- strings ---- */

/* The formats of JSON schemas that are regular, as patterns that programs which read them agree on; RFC 3339,
 * 4122, 5322 and 3986 allow more. Repetitions are bounded, so that a text comes to an end. */
static const char *pattern_of_format(const char *format) {
#define YEAR "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
#define LEAP "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define DAY  "(0[1-9]|1[0-9]|2[0-8])"
#define DATE                                                                                          \
    "(" YEAR "-((0[13578]|1[02])-(" DAY "|29|3[01]|30)|(0[469]|11)-(" DAY "|29|30)|02-" DAY ")|" LEAP \
    "-02-29)"
#define HOUR  "([01][0-9]|2[0-3])"
#define TIME  HOUR ":[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]" HOUR ":[0-5][0-9])"
#define N     "[0-9]{1,6}"
#define CLOCK "T(" N "H(" N "M(" N "S)?)?|" N "M(" N "S)?|" N "S)"
#define LABEL "[A-Za-z0-9]{1,20}(-[A-Za-z0-9]{1,20}){0,2}"
#define NAME  "[A-Za-z0-9_+-]{1,30}"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4  OCTET "(\\." OCTET "){3}"
#define HEX16 "[0-9a-fA-F]{1,4}"
#define IPV6  "(" HEX16 ":){7}" HEX16
#define UUID(version, variant) \
    "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-" version "[0-9a-fA-F]{3}-" variant "[0-9a-fA-F]{3}-[0-9a-fA-F]{12}"
#define HOST      "((" LABEL "\\.){0,3}[A-Za-z][A-Za-z0-9]{0,20}|" IPV4 ")"
#define URI(more) "([A-Za-z0-9._~!$&'()*+,;=:@" more "-]|%[0-9A-Fa-f]{2})"
    static const struct {
        const char *format, *pattern;
    } known[] = {
        {"date", DATE},
        {"time", TIME},
        {"date-time", DATE "T" TIME},
        {"duration", "P(" N "W|(" N "Y(" N "M(" N "D)?)?|" N "M(" N "D)?|" N "D)(" CLOCK ")?|" CLOCK ")"},
        {"email", NAME "(\\." NAME ")?@" LABEL "(\\." LABEL "){0,2}\\.[A-Za-z]{2,10}"},
        {"hostname", LABEL "(\\." LABEL "){0,3}"},
        {"ipv4", IPV4},
        {"ipv6", IPV6},
        {"ipvanyaddress", IPV4 "|" IPV6}, /* pydantic's, like uuid1 .. uuid5 */
        {"uuid", UUID("[0-9a-fA-F]", "[0-9a-fA-F]")},
        {"uuid1", UUID("1", "[89abAB]")},
        {"uuid3", UUID("3", "[89abAB]")},
        {"uuid4", UUID("4", "[89abAB]")},
        {"uuid5", UUID("5", "[89abAB]")},
        {"uri", "[A-Za-z][A-Za-z0-9+.-]{0,15}://" HOST
                "(:[1-9][0-9]{0,3})?(/" URI("/") "{0,400})?(\\?" URI("/?") "{0,150})?(#" URI("/?") "{0,30})"
                                                                                                   "?"},
    };
    for (size_t i = 0; i < LN_COUNT(known); i++)
        if (strcmp(format, known[i].format) == 0) return known[i].pattern;
    return NULL;
}

/* Patterns with look-around that libraries write, as patterns without it that allow a part of their texts. */
static const char *plain_pattern(const char *pattern) {
    static const char *const known[][2] = {{"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$", /* pydantic: Decimal */
                                            "^[+-]?([0-9]{1,18}(\\.[0-9]{0,17})?|\\.[0-9]{1,17})$"},
                                           {"^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-"
                                            "Za-z0-9][A-Za-z0-9\\-]*\\.)+"
                                            "[A-Za-z]{2,}$", /* Zod: email */
                                            "^[A-Za-z0-9_+-]{1,30}(\\.[A-Za-z0-9_+-]{1,30})?@([A-Za-z0-9]{1,"
                                            "20}(-[A-Za-z0-9]{1,20}){0,2}\\.){1,3}"
                                            "[A-Za-z]{2,10}$"}};
    for (size_t i = 0; i < LN_COUNT(known); i++)
        if (strcmp(pattern, known[i][0]) == 0) return known[i][1];
    return NULL;
}

/* A string by a pattern, whose own lengths must lie within those of the schema. */
static ln_status by_pattern(schema_reader *r, const char *pattern, size_t bytes, bool anchored, uint32_t min,
                            uint32_t max, const schema_place *at, const char *keyword, gr_node *out) {
    uint32_t shortest, longest;
    ln_error why = {0};
    shortest = min, longest = max;
    const ln_status st =
        gr_pattern(r->g, pattern, bytes, GR_IN_STRING, anchored, out, &shortest, &longest, &why);
    if (st == LN_EINVALID) return schema_refuse(r, at, keyword, "%s", why.message);
    if (st != LN_OK) return ln_fail(r->err, st, "%s", why.message);
    if (shortest < min)
        return schema_refuse(r, at, "minLength",
                             "beside a %s it is supported up to the %u characters that the %s needs "
                             "itself; put the length into the pattern",
                             keyword, shortest, keyword);
    if (longest > max)
        return schema_refuse(r, at, "maxLength",
                             "beside a %s it is supported only where one repeated character decides the "
                             "length "
                             "or the %s has no longer texts; put the length into the pattern, as in "
                             "^[a-z]{1,8}$",
                             keyword, keyword);
    *out = gr_all(r->g, gr_texts(r->g, "\""), *out, gr_texts(r->g, "\""));
    return gr_check(r->g, r->err);
}

ln_status schema_string(schema_reader *r, json_t *s, const schema_place *at, gr_node *out) {
    const json_t *pattern = json_object_get(s, "pattern");
    const char *format = json_string_value(json_object_get(s, "format"));
    const char *known = format ? pattern_of_format(format) : NULL;
    char found[80];
    uint32_t min, max;
    LN_TRY(schema_count(r, s, at, "minLength", 0, &min));
    LN_TRY(schema_count(r, s, at, "maxLength", GR_UNBOUNDED, &max));
    if (min > max) return schema_refuse(r, at, "minLength", "it is more than maxLength");
    if (pattern && !json_is_string(pattern))
        return schema_refuse(r, at, "pattern", "expected a text, found %s", ln_json_text(pattern, found));
    const char *plain = pattern ? plain_pattern(json_string_value(pattern)) : NULL;
    if (plain) return by_pattern(r, plain, strlen(plain), false, min, max, at, "pattern", out);
    if (pattern) /* a format beside it is an annotation, as in the standard */
        return by_pattern(r, json_string_value(pattern), json_string_length(pattern), false, min, max, at,
                          "pattern", out);
    if (known && min <= 1 && max >= LONGEST_FORMAT) /* shorter bounds are kept instead of the format */
        return by_pattern(r, known, strlen(known), true, 0, max, at, "format", out);
    *out = gr_all(r->g, gr_texts(r->g, "\""), gr_repeat(r->g, r->json.character, min, max),
                  gr_texts(r->g, "\""));
    return gr_check(r->g, r->err);
}

/* ---- numbers ---- */

/* Reads a bound and its exclusive form, which is a number, or in draft 4 a boolean beside the bound. */
static ln_status read_bound(const schema_reader *r, const json_t *s, const schema_place *at,
                            const char *keyword, const char *exclusive, bool lower, bool *has, double *bound,
                            bool *excluded) {
    const json_t *v = json_object_get(s, keyword), *x = json_object_get(s, exclusive);
    char found[80];
    if (v && !json_is_number(v))
        return schema_refuse(r, at, keyword, "expected a number, found %s", ln_json_text(v, found));
    if (x && !json_is_number(x) && !json_is_boolean(x))
        return schema_refuse(r, at, exclusive, "expected a number, found %s", ln_json_text(x, found));
    *has = v != NULL;
    *bound = json_number_value(v);
    *excluded = v && json_is_true(x);
    if (!json_is_number(x)) return LN_OK;
    const double other = json_number_value(x);
    if (*has && (lower ? *bound > other : *bound < other)) return LN_OK;
    *has = *excluded = true;
    *bound = other;
    return LN_OK;
}

ln_status schema_number(schema_reader *r, json_t *s, bool integer, const schema_place *at, gr_node *out) {
    const json_t *step = json_object_get(s, "multipleOf");
    gr_bounds b = {0};
    bool fits;
    LN_TRY(read_bound(r, s, at, "minimum", "exclusiveMinimum", true, &b.has_lo, &b.lo, &b.above));
    LN_TRY(read_bound(r, s, at, "maximum", "exclusiveMaximum", false, &b.has_hi, &b.hi, &b.below));
    if (step && json_number_value(step) == 1) integer = true;
    else if (step) return schema_refuse(r, at, "multipleOf", "only 1 is supported; leave the keyword out");
    if (!b.has_lo && !b.has_hi) {
        *out = integer ? r->json.integer : r->json.number;
        return LN_OK;
    }
    *out = integer ? gr_integers(r->g, &b, &fits) : gr_numbers(r->g, &b, &fits);
    if (fits) return gr_check(r->g, r->err);
    LN_TRY(gr_check(r->g, r->err));
    return schema_refuse(r, at, b.has_lo ? "minimum" : "maximum",
                         "no number lies within the bounds, or a bound has more than 15 digits before or 17 "
                         "after the "
                         "point");
}
