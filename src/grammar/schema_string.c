/* Strings of JSON schemas: all that a schema says of a string becomes one automaton, unless a counter of
 * characters is enough. */
#include "automaton.h"
#include "json_schema.h"

#include <string.h>

/* Patterns with look-around inside that libraries write, as patterns without it that allow a part of their
 * texts. */
static const char *plain_pattern(const char *pattern) {
    static const char *const known[][2] = {{"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$", /* pydantic: Decimal */
                                            "^[+-]?([0-9]{1,18}(\\.[0-9]{0,17})?|\\.[0-9]{1,17})$"}};
    for (size_t i = 0; i < LN_COUNT(known); i++)
        if (strcmp(pattern, known[i][0]) == 0) return known[i][1];
    return NULL;
}

static ln_status keyword_failed(schema_reader *r, const schema_place *at, const char *keyword, ln_status st,
                                const ln_error *why) {
    if (st == LN_EINVALID) return schema_refuse(r, at, keyword, "%s", why->message);
    return st == LN_OK ? st : ln_fail(r->err, st, "%s", why->message);
}

/* The automaton of a pattern, or of the format of that name. */
static ln_status automaton_by(schema_reader *r, const char *keyword, const json_t *v, const schema_place *at,
                              automaton *out) {
    const bool format = strcmp(keyword, "format") == 0;
    const char *text = json_string_value(v);
    const char *known = format ? gr_format(text) : plain_pattern(text);
    ln_error why = {0};
    LN_TRY(schema_work(r, at, format ? 4096 : 1024));
    const ln_status st = automaton_of_pattern(out, known ? known : text,
                                              known ? strlen(known) : json_string_length(v), format, &why);
    return keyword_failed(r, at, keyword, st, &why);
}

/* Joins one automaton to `all`, which may be none yet: then it begins as all texts, unless it becomes `one`
 * itself. Takes `one`. */
static ln_status join_automaton(schema_reader *r, const schema_place *at, const char *keyword, automaton *all,
                                automaton *one, automaton_join how) {
    ln_error why = {0};
    ln_status st = LN_OK;
    if (!all->next && how == AUTOMATON_AND) {
        *all = *one;
        *one = (automaton){0};
        return LN_OK;
    }
    if (!all->next) st = automaton_of_all(all, &why);
    if (st == LN_OK) st = automaton_combine(all, one, how, &why);
    automaton_free(one);
    if (st == LN_OK) st = schema_work(r, at, all->n);
    return why.message[0] ? keyword_failed(r, at, keyword, st, &why) : st;
}

/* A keyword whose value is a text, or where schemas were joined a list of texts. */
static ln_status join_keyword_texts(schema_reader *r, const json_t *s, const schema_place *at,
                                    const char *keyword, const char *means, automaton_join how,
                                    automaton *all) {
    json_t *v = json_object_get(s, keyword);
    char found[80];
    const size_t n = json_is_array(v) ? json_array_size(v) : v != NULL;
    for (size_t i = 0; i < n; i++) {
        const json_t *text = json_is_array(v) ? json_array_get(v, i) : v;
        automaton one = {0};
        if (!json_is_string(text))
            return schema_refuse(r, at, keyword, "expected a text, found %s", ln_json_text(text, found));
        if (strcmp(means, "format") == 0 && !gr_format(json_string_value(text))) continue; /* an annotation */
        LN_TRY(automaton_by(r, means, text, at, &one));
        LN_TRY(join_automaton(r, at, keyword, all, &one, how));
    }
    return LN_OK;
}

/* Takes texts of a list away. */
static ln_status without_texts(schema_reader *r, const json_t *s, const schema_place *at, automaton *all) {
    json_t *list = json_object_get(s, SCHEMA_WITHOUT), *v;
    size_t i;
    json_array_foreach(list, i, v) {
        automaton one = {0};
        if (!json_is_string(v)) continue;
        LN_TRY(automaton_of_text(&one, json_string_value(v), json_string_length(v), r->err));
        LN_TRY(join_automaton(r, at, "not", all, &one, AUTOMATON_MINUS));
    }
    return LN_OK;
}

ln_status schema_string_automaton(schema_reader *r, const json_t *s, const schema_place *at, automaton *all) {
    LN_TRY(join_keyword_texts(r, s, at, "pattern", "pattern", AUTOMATON_AND, all));
    LN_TRY(join_keyword_texts(r, s, at, "format", "format", AUTOMATON_AND, all));
    LN_TRY(join_keyword_texts(r, s, at, SCHEMA_NOT_PATTERN, "pattern", AUTOMATON_MINUS, all));
    return without_texts(r, s, at, all);
}

/* A pattern that a counter is enough for. */
static ln_status counted(schema_reader *r, const json_t *s, uint32_t min, uint32_t max, bool *done,
                         gr_node *out) {
    const json_t *pattern = json_object_get(s, "pattern");
    ln_error why = {0};
    *done = false;
    if (!json_is_string(pattern) || json_object_get(s, "format") || json_object_get(s, SCHEMA_NOT_PATTERN) ||
        json_object_get(s, SCHEMA_WITHOUT))
        return LN_OK;
    const ln_status st = gr_counted_pattern(r->g, json_string_value(pattern), json_string_length(pattern),
                                            GR_IN_STRING, false, min, max, done, out, &why);
    return st == LN_EINVALID ? LN_OK : st; /* another reader says what is wrong */
}

ln_status schema_string(schema_reader *r, json_t *s, const schema_place *at, gr_node *out) {
    automaton all = {0};
    ln_error why = {0};
    bool done;
    uint32_t min, max;
    ln_status st = LN_OK;
    *out = GR_NOTHING;
    LN_TRY(schema_count(r, s, at, "minLength", 0, &min));
    LN_TRY(schema_count(r, s, at, "maxLength", GR_UNBOUNDED, &max));
    if (min > max) return schema_nothing(r, at, "minLength", "it is more than maxLength");
    LN_TRY(counted(r, s, min, max, &done, out));
    if (!done) {
        LN_GO(schema_string_automaton(r, s, at, &all));
        if (all.next && max != GR_UNBOUNDED) {
            LN_GO(schema_work(r, at, (size_t)all.n * (LN_MIN(max, 1 << 16) / 16)));
            st = automaton_counted(r->g, &all, GR_IN_STRING, min, max, out, &why);
            LN_GO(keyword_failed(r, at, "minLength", st, &why));
        } else if (all.next) {
            st = automaton_limit(&all, min, max, &why);
            LN_GO(keyword_failed(r, at, "minLength", st, &why));
            *out = automaton_expression(r->g, &all, GR_IN_STRING, NULL, NULL);
        } else {
            *out = gr_repeat(r->g, r->json.character, min, max);
        }
    }
    *out = gr_all(r->g, gr_texts(r->g, "\""), *out, gr_texts(r->g, "\""));
    LN_GO(gr_check(r->g, r->err));
    if (*out == GR_NOTHING)
        st = schema_nothing(r, at, json_object_get(s, "pattern") ? "pattern" : "type",
                            "no string meets this schema");
out:
    automaton_free(&all);
    return st;
}
