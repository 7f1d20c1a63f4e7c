/* The expressions of ln_sampling.grammar, from JSON. */
#include "grammar_build.h"

#include <stdio.h>
#include <string.h>

enum { MOST_DEPTH = 32, MOST_VALUES = 1 << 18, PLACE = 256 };

typedef struct grammar_reader {
    ln_grammar *g;
    int depth;
    ln_error *err;
} grammar_reader;

static ln_status expression(grammar_reader *r, const json_t *v, const char *place, gr_node *out);

/* The member of an expression that says what it is. */
static const char *kind_of(const json_t *v) {
    static const char *const kinds[] = {"schema", "text",   "regex", "token",   "sequence",
                                        "choice", "repeat", "prose", "without", "grammar"};
    const char *found = NULL;
    for (size_t i = 0; i < LN_COUNT(kinds); i++) {
        if (!json_object_get(v, kinds[i])) continue;
        if (found) return NULL; /* two of them */
        found = kinds[i];
    }
    return found;
}

static ln_status check_members(const grammar_reader *r, const json_t *v, const char *kind,
                               const char *place) {
    const char *key;
    char shown[80];
    json_t *one;
    json_object_foreach((json_t *)(uintptr_t)v, key, one) {
        const bool bound =
            (strcmp(kind, "repeat") == 0 && (strcmp(key, "min") == 0 || strcmp(key, "max") == 0)) ||
            (strcmp(kind, "prose") == 0 && strcmp(key, "at_start") == 0) ||
            (strcmp(kind, "schema") == 0 && strcmp(key, "open") == 0);
        if (strcmp(key, kind) != 0 && !bound)
            return ln_fail(r->err, LN_EINVALID, "%s: unknown member \"%s\" beside \"%s\"", place,
                           ln_excerpt(shown, key, strlen(key)), kind);
    }
    return LN_OK;
}

/* The items of a sequence or a choice, from the last to the first. */
static ln_status items_of(grammar_reader *r, const json_t *list, const char *place, bool choice,
                          gr_node *out) {
    char found[80], one[PLACE];
    const size_t n = json_array_size(list);
    size_t n_texts = 0;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return ln_fail(r->err, LN_EINVALID, "%s: expected a list of at least one expression, found %s", place,
                       ln_json_text(list, found));
    gr_span *texts = ln_alloc(n * sizeof *texts); /* of a choice */
    ln_status st = texts ? LN_OK : LN_OOM(r->err, "a grammar");
    *out = choice ? GR_NOTHING : GR_EMPTY;
    for (size_t i = n; st == LN_OK && i-- > 0;) {
        const json_t *v = json_array_get(list, i);
        gr_node item;
        if (choice && json_is_string(v)) {
            texts[n_texts++] = (gr_span){json_string_value(v), json_string_length(v)};
            continue;
        }
        (void)snprintf(one, sizeof one, "%.200s[%zu]", place, i);
        st = expression(r, v, one, &item);
        if (st == LN_OK) *out = choice ? gr_alt(r->g, item, *out) : gr_seq(r->g, item, *out);
    }
    if (st == LN_OK && choice) *out = gr_alt(r->g, gr_text_list(r->g, texts, n_texts), *out);
    ln_free(texts);
    LN_TRY(st);
    return gr_check(r->g, r->err);
}

static ln_status bound_of(const grammar_reader *r, const json_t *v, const char *name, const char *place,
                          uint32_t none, uint32_t *out) {
    const json_t *n = json_object_get(v, name);
    char found[80];
    *out = n ? (uint32_t)json_integer_value(n) : none;
    if (!n || (json_is_integer(n) && json_integer_value(n) >= 0 && json_integer_value(n) <= 65535))
        return LN_OK;
    return ln_fail(r->err, LN_EINVALID, "%s.%s: expected 0 .. 65535, found %s", place, name,
                   ln_json_text(n, found));
}

/* ---- free text ---- */

/* Appends the bytes of a mark: a text, or a special token as a vocabulary has it. */
static ln_status mark_text(grammar_reader *r, const json_t *v, const char *place, ln_str *out) {
    const json_t *token = json_object_get(v, "token"), *plain = json_object_get(v, "text");
    const json_t *text = token ? token : plain ? plain : v;
    char found[80];
    if (!json_is_string(text) || json_string_length(text) == 0)
        return ln_fail(r->err, LN_EINVALID, "%s: expected a text or a token, found %s", place,
                       ln_json_text(v, found));
    if (token) ln_str_add(out, "\xff", 1);
    ln_str_add(out, json_string_value(text), json_string_length(text));
    return out->failed ? LN_OOM(r->err, "a grammar") : LN_OK;
}

/* The marks of an entry of "prose", each of which has its expression behind it. */
static ln_status marks_of(grammar_reader *r, const json_t *entry, const char *place, gr_mark *marks,
                          ln_str *texts, size_t *n) {
    const json_t *after = json_object_get(entry, "after");
    char found[80], in[PLACE];
    gr_node then;
    (void)snprintf(in, sizeof in, "%.200s.then", place);
    if (!json_is_array(after) || json_array_size(after) == 0 || !json_object_get(entry, "then"))
        return ln_fail(r->err, LN_EINVALID,
                       "%s: expected an object with a list \"after\" and \"then\", found %s", place,
                       ln_json_text(entry, found));
    LN_TRY(expression(r, json_object_get(entry, "then"), in, &then));
    (void)snprintf(in, sizeof in, "%.200s.after", place);
    for (size_t i = 0; i < json_array_size(after); i++) {
        const json_t *mark = json_array_get(after, i);
        const size_t from = texts->len;
        if (!json_is_array(mark)) LN_TRY(mark_text(r, mark, in, texts));
        for (size_t k = 0; k < json_array_size(mark); k++)
            LN_TRY(mark_text(r, json_array_get(mark, k), in, texts));
        marks[(*n)++] = (gr_mark){NULL, texts->len - from, then};
    }
    return LN_OK;
}

/* {"prose": [{"after": [M...], "then": E}...]}: any text in which E follows each M, which is a text, a
 * special token, or a list of them. With "at_start" M counts only where the text begins with it. */
static ln_status prose_of(grammar_reader *r, const json_t *v, const char *place, gr_node *out) {
    const json_t *list = json_object_get(v, "prose");
    const bool at_start = json_is_true(json_object_get(v, "at_start"));
    char found[80], in[PLACE];
    size_t n = 0, most = 0;
    ln_str texts = {0};
    if (!json_is_array(list))
        return ln_fail(r->err, LN_EINVALID, "%s: expected a list, found %s", place,
                       ln_json_text(list, found));
    for (size_t i = 0; i < json_array_size(list); i++)
        most += json_array_size(json_object_get(json_array_get(list, i), "after"));
    gr_mark *marks = ln_alloc((most + 1) * sizeof *marks);
    ln_status st = marks ? LN_OK : LN_OOM(r->err, "a grammar");
    for (size_t i = 0; st == LN_OK && i < json_array_size(list); i++) {
        (void)snprintf(in, sizeof in, "%.200s[%zu]", place, i);
        st = marks_of(r, json_array_get(list, i), in, marks, &texts, &n);
    }
    for (size_t i = 0, at = 0; st == LN_OK && i < n; at += marks[i++].bytes) marks[i].text = texts.data + at;
    if (st == LN_OK) *out = gr_prose(r->g, marks, n, at_start ? GR_MARKS_AT_START : GR_MARKS_ANYWHERE);
    ln_free(marks);
    ln_str_free(&texts);
    return st == LN_OK ? gr_check(r->g, r->err) : st;
}

/* {"without": [T...]}: a text that has none of these texts of ASCII. */
static ln_status without_of(grammar_reader *r, const json_t *list, const char *place, gr_node *out) {
    char found[80];
    const size_t n = json_array_size(list);
    gr_mark *marks = ln_alloc((n + 1) * sizeof *marks);
    ln_status st = !marks ? LN_OOM(r->err, "a grammar") : LN_OK;
    bool good = n > 0;
    for (size_t i = 0; st == LN_OK && good && i < n; i++) {
        const json_t *t = json_array_get(list, i);
        good = json_string_length(t) > 0;
        for (size_t k = 0; good && k < json_string_length(t); k++) good = json_string_value(t)[k] > 0;
        marks[i] = (gr_mark){json_string_value(t), json_string_length(t), GR_NOTHING};
    }
    if (st == LN_OK && !good)
        st = ln_fail(r->err, LN_EINVALID, "%s: expected a list of texts of ASCII, found %s", place,
                     ln_json_text(list, found));
    if (st == LN_OK) *out = gr_prose(r->g, marks, n, GR_MARKS_NOWHERE);
    ln_free(marks);
    return st == LN_OK ? gr_check(r->g, r->err) : st;
}

static ln_status of_kind(grammar_reader *r, const json_t *v, const char *kind, const char *place,
                         gr_node *out) {
    const json_t *what = json_object_get(v, kind);
    char found[80], in[PLACE];
    uint32_t a = 0, b = GR_UNBOUNDED;
    (void)snprintf(in, sizeof in, "%.200s%s%s", place, place[0] ? "." : "", kind);
    if (strcmp(kind, "schema") == 0) {
        const json_t *open = json_object_get(v, "open");
        if (open && !json_is_boolean(open))
            return ln_fail(r->err, LN_EINVALID, "%s.open: expected true or false, found %s",
                           place[0] ? place : "the grammar", ln_json_text(open, found));
        return gr_schema(r->g, what, json_is_true(open), in, out, r->err);
    }
    if (strcmp(kind, "sequence") == 0) return items_of(r, what, in, false, out);
    if (strcmp(kind, "choice") == 0) return items_of(r, what, in, true, out);
    if (strcmp(kind, "prose") == 0) return prose_of(r, v, in, out);
    if (strcmp(kind, "without") == 0) return without_of(r, what, in, out);
    if (strcmp(kind, "repeat") == 0) {
        LN_TRY(expression(r, what, in, out));
        LN_TRY(bound_of(r, v, "min", place, 0, &a));
        LN_TRY(bound_of(r, v, "max", place, GR_UNBOUNDED, &b));
        if (a > b) return ln_fail(r->err, LN_EINVALID, "%s: min is more than max", in);
        *out = gr_repeat(r->g, *out, a, b);
        return gr_check(r->g, r->err);
    }
    if (!json_is_string(what))
        return ln_fail(r->err, LN_EINVALID, "%s: expected a text, found %s", in, ln_json_text(what, found));
    const char *text = json_string_value(what);
    const size_t bytes = json_string_length(what);
    if (strcmp(kind, "regex") == 0) return gr_pattern(r->g, text, bytes, GR_RAW, true, out, r->err);
    if (strcmp(kind, "grammar") == 0) return gr_ebnf(r->g, text, bytes, in, out, r->err);
    *out = gr_text(r->g, text, bytes);
    if (strcmp(kind, "token") == 0) /* see ln_vocabulary */
        *out = gr_seq(r->g, gr_byte_range(r->g, 0xff, 0xff), *out);
    return gr_check(r->g, r->err);
}

/* Each level is a call, at most MOST_DEPTH of them. A text alone stands for {"text": ...}. */
static ln_status expression(grammar_reader *r, const json_t *v, const char *place, gr_node *out) {
    char found[80];
    const char *kind = kind_of(v);
    if (json_is_string(v)) {
        *out = gr_text(r->g, json_string_value(v), json_string_length(v));
        return gr_check(r->g, r->err);
    }
    if (!kind)
        return ln_fail(r->err, LN_EINVALID,
                       "%s: expected an object with one of schema, text, regex, token, sequence, choice, "
                       "repeat, prose, without; found %s",
                       place[0] ? place : "the grammar", ln_json_text(v, found));
    LN_TRY(check_members(r, v, kind, place[0] ? place : "the grammar"));
    if (++r->depth > MOST_DEPTH)
        return ln_fail(r->err, LN_EINVALID, "%s: expressions are nested deeper than %d levels", place,
                       MOST_DEPTH);
    const ln_status st = of_kind(r, v, kind, place, out);
    r->depth--;
    return st;
}

ln_status ln_grammar_open(ln_grammar **out, const char *grammar, size_t bytes, ln_error *err) {
    static const ln_json_limits limits = {.values = MOST_VALUES};
    json_t *v = NULL;
    gr_node root;
    bool ends;
    ln_status st = LN_OK;
    *out = NULL;
    LN_GO(ln_json_load_limited(&v, "the grammar", grammar, bytes, &limits, err));
    LN_GO(gr_begin(out, err));
    grammar_reader r = {.g = *out, .err = err};
    LN_GO(expression(&r, v, "", &root));
    if (json_object_get(v, "schema")) /* JSON may begin with white space, which models often write */
        root = gr_seq(*out, gr_json_rules(*out).blank, root);
    LN_GO(gr_check(*out, err));
    LN_GO(gr_find_heights(*out, root, &ends, err));
    if (!ends)
        LN_GO(ln_fail(err, LN_EINVALID, "%s",
                      (*out)->nothing[0] ? (*out)->nothing
                                         : "no text matches this grammar: a part of it allows nothing, or "
                                           "contains "
                                           "itself without end"));
    LN_GO(gr_finish(*out, root, err));
out:
    json_decref(v);
    if (st != LN_OK) ln_grammar_close(out);
    return st;
}
