/* Reads the small sections of tokenizer.json with jansson: typed fields, patterns, and chains of steps.
 *
 * A Sequence may contain Sequences. section_steps flattens them for normalizers, pre-tokenizers,
 * post-processors and decoders alike, with an explicit stack of (list, index). The depth limit of the JSON
 * parser bounds the stack, and TOK_MAX_STEPS bounds the number of steps. */
#include "tokenizer_internal.h"

const char *section_type(const json_t *o) {
    const char *type = json_string_value(json_object_get(o, "type"));
    return type ? type : "";
}

ln_status section_bool(const json_t *o, const char *what, const char *key, bool missing, bool *out,
                       ln_error *err) {
    const json_t *v = json_object_get(o, key);
    char found[80];
    *out = v && !json_is_null(v) ? json_is_true(v) : missing;
    if (!v || json_is_null(v) || json_is_boolean(v)) return LN_OK;
    return ln_fail(err, LN_EINVALID, "%s.%s: expected true or false, found %s", what, key,
                   ln_json_text(v, found));
}

ln_status section_size(const json_t *o, const char *what, const char *key, size_t missing, size_t *out,
                       ln_error *err) {
    const json_t *v = json_object_get(o, key);
    char found[80];
    *out = missing;
    if (!v || json_is_null(v)) return LN_OK;
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return ln_fail(err, LN_EINVALID, "%s.%s: expected an integer of at least 0, found %s", what, key,
                       ln_json_text(v, found));
    *out = (size_t)json_integer_value(v);
    return LN_OK;
}

ln_status section_str(const json_t *o, const char *what, const char *key, const char **text, size_t *bytes,
                      ln_error *err) {
    const json_t *v = json_object_get(o, key);
    char found[80];
    if (!json_is_string(v))
        return ln_fail(err, LN_EINVALID, "%s.%s: expected a string, found %s", what, key,
                       ln_json_text(v, found));
    *text = json_string_value(v);
    *bytes = json_string_length(v);
    return LN_OK;
}

ln_status section_char(const json_t *o, const char *what, const char *key, uint32_t *cp, ln_error *err) {
    const char *text;
    size_t bytes;
    LN_TRY(section_str(o, what, key, &text, &bytes, err));
    if (bytes > 0 && (size_t)ln_utf8_get(text, bytes, cp) == bytes) return LN_OK;
    char found[80];
    return ln_fail(err, LN_EINVALID, "%s.%s: expected one character, found '%s'", what, key,
                   ln_excerpt(found, text, bytes));
}

ln_status section_pattern(const json_t *o, const char *what, tok_regex *re, ln_error *err) {
    const json_t *v = json_object_get(o, "pattern");
    bool literal = json_object_get(v, "String") != NULL;
    const char *text;
    char found[80];
    size_t bytes;
    if (!json_is_object(v) || (!literal && !json_object_get(v, "Regex")))
        return ln_fail(err, LN_EINVALID,
                       "%s.pattern: expected {\"String\": ...} or {\"Regex\": ...}, found %s", what,
                       ln_json_text(v, found));
    LN_TRY(section_str(v, what, literal ? "String" : "Regex", &text, &bytes, err));
    return regex_open(re, what, text, bytes, literal && bytes > 0, err);
}

ln_status section_growth(double *all, double times, const char *what, ln_error *err) {
    *all = (*all > 0 ? *all : 1) * times;
    if (*all <= (double)TOK_MAX_GROWTH) return LN_OK;
    return ln_fail(err, LN_EINVALID,
                   "%s: expected steps that make a text at most %d times as long, found up to %.4g times",
                   what, TOK_MAX_GROWTH, *all);
}

ln_status section_steps(const json_t *section, const char *what, const char *list, section_step_fn *fn,
                        void *user, ln_error *err) {
    struct {
        const json_t *list;
        size_t i;
    } stack[LN_JSON_MAX_DEPTH + 1];
    size_t depth = 0, n = 0;
    char found[80];
    for (const json_t *step = section;;) {
        const char *type = section_type(step);
        if (!json_is_object(step) || !*type)
            return ln_fail(err, LN_EINVALID, "%s: expected an object with a \"type\", found %s", what,
                           ln_json_text(step, found));
        if (strcmp(type, "Sequence") == 0) {
            const json_t *items = json_object_get(step, list);
            if (!json_is_array(items))
                return ln_fail(err, LN_EINVALID, "%s.%s: expected an array, found %s", what, list,
                               ln_json_text(items, found));
            if (depth >= LN_COUNT(stack))
                return ln_fail(err, LN_EINVALID, "%s: expected at most %d nested Sequences", what,
                               LN_JSON_MAX_DEPTH);
            stack[depth].list = items;
            stack[depth++].i = 0;
        } else {
            if (++n > TOK_MAX_STEPS)
                return ln_fail(err, LN_EINVALID, "%s: expected at most %d steps, found more", what,
                               TOK_MAX_STEPS);
            LN_TRY(fn(user, step, type, err));
        }
        while (depth > 0 && stack[depth - 1].i >= json_array_size(stack[depth - 1].list)) depth--;
        if (depth == 0) return LN_OK;
        step = json_array_get(stack[depth - 1].list, stack[depth - 1].i++);
    }
}
