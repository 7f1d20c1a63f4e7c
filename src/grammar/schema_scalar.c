/* Strings and numbers of JSON schemas. */
#include "json_schema.h"

#include <math.h>
#include <string.h>

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
static ln_status by_pattern(schema_reader *r, const json_t *pattern, uint32_t min, uint32_t max,
                            const schema_place *at, gr_node *out) {
    const char *text = json_string_value(pattern), *plain = plain_pattern(text);
    const size_t bytes = plain ? strlen(plain) : json_string_length(pattern);
    uint32_t shortest = min, longest = max;
    ln_error why = {0};
    const ln_status st =
        gr_pattern(r->g, plain ? plain : text, bytes, GR_IN_STRING, false, out, &shortest, &longest, &why);
    if (st == LN_EINVALID) return schema_refuse(r, at, "pattern", "%s", why.message);
    if (st != LN_OK) return ln_fail(r->err, st, "%s", why.message);
    if (shortest < min)
        return schema_refuse(r, at, "minLength",
                             "beside a pattern it is supported where one repeated character decides the "
                             "length, or up to the %u characters that the pattern needs itself; put the "
                             "length "
                             "into the pattern, as in ^[a-z]{3,}$",
                             shortest);
    if (longest > max)
        return schema_refuse(r, at, "maxLength",
                             "beside a pattern it is supported only where one repeated character decides the "
                             "length, or the pattern has no longer texts; put the length into the pattern, "
                             "as in ^[a-z]{1,8}$");
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
    if (pattern) /* a format beside it is an annotation, as in the standard */
        return by_pattern(r, pattern, min, max, at, out);
    if (known) { /* where its lengths are not within the bounds, these are kept instead of it */
        uint32_t shortest = min, longest = max;
        LN_TRY(gr_pattern(r->g, known, strlen(known), GR_IN_STRING, true, out, &shortest, &longest, r->err));
        if (shortest >= min && longest <= max) {
            *out = gr_all(r->g, gr_texts(r->g, "\""), *out, gr_texts(r->g, "\""));
            return gr_check(r->g, r->err);
        }
    }
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
    const double of = json_number_value(step);
    if (step && !(of >= 1 && of <= MOST_MULTIPLE && of == floor(of)))
        return schema_refuse(r, at, "multipleOf",
                             "only integers from 1 to %d are supported; leave the keyword out",
                             MOST_MULTIPLE);
    if (step && of > 1) {
        *out = gr_multiples(r->g, (uint32_t)of, &b, &fits);
        if (fits) return gr_check(r->g, r->err);
        return schema_refuse(r, at, "multipleOf",
                             "beside bounds it is supported where at most %d multiples lie between them, or "
                             "where the only bound is a minimum from 0 to the number itself",
                             MOST_LISTED);
    }
    if (step) integer = true;
    if (!b.has_lo && !b.has_hi) {
        *out = integer ? r->json.integer : r->json.number;
        return LN_OK;
    }
    *out = integer ? gr_integers(r->g, &b, &fits) : gr_numbers(r->g, &b, &fits);
    if (fits) return gr_check(r->g, r->err);
    LN_TRY(gr_check(r->g, r->err));
    return schema_refuse(r, at, b.has_lo ? "minimum" : "maximum",
                         "no number lies within the bounds, or a bound has more than 15 digits before or 17 "
                         "after the point");
}
