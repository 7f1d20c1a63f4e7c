/* The form of an answer with calls of tools, as an expression of ln_sampling.grammar: the text of a model's
 * calls (call_formats.def) with the JSON schema of each tool's parameters in its place. */
#include "tool_calls.h"
#include "../base/json_write.h"

#include <stdio.h>
#include <string.h>

enum { MOST_LEVELS = 6, MOST_CHOICES = 64 };

/* What the parts of a format share. */
typedef struct form_writer {
    ln_str *out;
    const ln_call_format *f;
    const ln_tok *tok;
    const json_t *tools;
    const char *const *names;
    size_t n_names;
    const bool *loose;
} form_writer;

/* ---- texts ---- */

static void put_piece(const form_writer *w, const char *kind, const char *text, size_t bytes, bool *first) {
    ln_str_addf(w->out, *first ? "{\"%s\":" : ",{\"%s\":", kind);
    ln_str_json(w->out, text, bytes);
    ln_str_adds(w->out, "}");
    *first = false;
}

static bool is_blank(char c) { return c == ' ' || c == '\n'; }

/* Appends the expressions of a text of the format, with the special tokens in it as such, separated by
 * commas. loose: a blank in it may be left out. */
static void put_pieces(const form_writer *w, const char *text, bool loose, bool *first) {
    const char *from = text, *at = text;
    int32_t id;
    while (*at) {
        const size_t n = ln_call_token_at(w->tok, at, &id);
        const bool blank = loose && is_blank(*at), mark = *at == '#' || *at == '@';
        if ((n > 0 || blank || mark) && at > from) put_piece(w, "text", from, (size_t)(at - from), first);
        if (n > 0) put_piece(w, "token", at, n, first);
        else if (blank) put_piece(w, "regex", *at == ' ' ? " ?" : "\n?", 2, first);
        else if (*at == '#') put_piece(w, "regex", "[0-9]{1,3}", strlen("[0-9]{1,3}"), first);
        else if (*at == '@') put_piece(w, "regex", "[a-zA-Z0-9]{9}", strlen("[a-zA-Z0-9]{9}"), first);
        at += n > 0 ? n : 1;
        if (n > 0 || blank || mark) from = at;
    }
    if (at > from) put_piece(w, "text", from, (size_t)(at - from), first);
}

/* Appends one expression for a text, which may be empty. */
static void put_exactly(const form_writer *w, const char *text) {
    bool first = true;
    ln_str_adds(w->out, *text ? "{\"sequence\":[" : "\"\"");
    put_pieces(w, text, false, &first);
    if (*text) ln_str_adds(w->out, "]}");
}

static void put_literal(const form_writer *w, const char *text) {
    bool first = true;
    ln_str_adds(w->out, *text ? "{\"sequence\":[" : "\"\"");
    put_pieces(w, text, true, &first);
    if (*text) ln_str_adds(w->out, "]}");
}

static void comma(const form_writer *w) { ln_str_adds(w->out, ","); }

/* ---- schemas ---- */

/* Appends a schema, which can refer to the definitions of `root`; an object where it has no type and is the
 * root itself. */
static void put_schema(const form_writer *w, const json_t *root, const json_t *schema) {
    static const char *const shared[] = {"$defs", "definitions"};
    const char *key;
    json_t *v;
    ln_str_adds(w->out, "{\"schema\":");
    if (!json_is_object(schema)) {
        ln_str_json_value(w->out, schema);
        ln_str_adds(w->out, "}");
        return;
    }
    ln_str_adds(w->out, "{");
    json_object_foreach((json_t *)(uintptr_t)schema, key, v) {
        put_key(w->out, key);
        ln_str_json_value(w->out, v);
    }
    for (size_t i = 0; i < LN_COUNT(shared) && schema != root; i++) {
        v = json_object_get(root, shared[i]);
        if (!v || json_object_get(schema, shared[i])) continue;
        put_key(w->out, shared[i]);
        ln_str_json_value(w->out, v);
    }
    if (schema == root && !json_object_get(schema, "type"))
        put_text(w->out, "type", "object"); /* arguments are one */
    ln_str_adds(w->out, "}}");
}

/* The schema of a tool's arguments; any object for a tool that has none, or whose schema is not kept. */
static void put_arguments(const form_writer *w, size_t tool) {
    const json_t *schema = ln_call_tool_schema(json_array_get(w->tools, tool));
    if (schema && !(w->loose && w->loose[tool])) put_schema(w, schema, schema);
    else
        ln_str_adds(w->out, schema ? "{\"schema\":{\"type\":\"object\"}}"
                                   : "{\"schema\":{\"type\":\"object\",\"additionalProperties\":false}}");
}

/* ---- values that are no JSON ---- */

/* Appends a text that does not have `stop`, of a schema whose values are texts, and of its lengths. */
static void put_free_text(const form_writer *w, const json_t *s, const char *stop) {
    const json_t *min = json_object_get(s, "minLength"), *max = json_object_get(s, "maxLength");
    const char *pattern = json_string_value(json_object_get(s, "pattern"));
    bool first = true;
    if (pattern) {
        put_piece(w, "regex", pattern, strlen(pattern), &first); /* the whole text matches it */
    } else if (json_is_integer(min) || json_is_integer(max)) {
        ln_str_addf(w->out,
                    "{\"repeat\":{\"regex\":\"[^%c\\\\x00-\\\\x08\\\\x0b\\\\x0c\\\\x0e-\\\\x1f]\"},\"min\":%"
                    "lld",
                    stop[0], (long long)LN_MIN(json_integer_value(min), 65535));
        if (json_is_integer(max))
            ln_str_addf(w->out, ",\"max\":%lld", (long long)LN_MIN(json_integer_value(max), 65535));
        ln_str_adds(w->out, "}");
    } else {
        ln_str_adds(w->out, "{\"without\":[");
        ln_str_json(w->out, stop, strlen(stop));
        ln_str_adds(w->out, "]}");
    }
}

/* A given text stands between quotes, which may be "", another value as JSON. */
static void put_given(const form_writer *w, const json_t *v, const char *quote) {
    ln_str text = {0};
    if (json_is_string(v)) ln_str_add(&text, json_string_value(v), json_string_length(v));
    else ln_str_json_value(&text, v);
    ln_str_adds(w->out, "{\"sequence\":[");
    put_literal(w, json_is_string(v) ? quote : "");
    comma(w);
    ln_str_json(w->out, text.data ? text.data : "", text.len);
    comma(w);
    put_literal(w, json_is_string(v) ? quote : "");
    ln_str_adds(w->out, "]}");
    w->out->failed |= text.failed;
    ln_str_free(&text);
}

/* The list of alternatives of a schema; NULL: it has none. */
static const json_t *alternatives(const json_t *s) {
    const json_t *any = json_object_get(s, "anyOf"), *one = json_object_get(s, "oneOf");
    return json_array_size(any) > 0 ? any : json_array_size(one) > 0 ? one : NULL;
}

/* Appends a schema of the same root for one of the types that a schema lists. */
static void put_typed(const form_writer *w, const json_t *root, const json_t *s, const json_t *type) {
    json_t *copy = ln_json_copy(s);
    if (!copy || json_object_set(copy, "type", (json_t *)(uintptr_t)type) != 0) w->out->failed = true;
    else put_schema(w, root, copy);
    json_decref(copy);
}

/* The text that ends a value of a TAGS format. */
static void stop_of(const form_writer *w, char core[40]) {
    const char *stop = w->f->value_end;
    while (*stop == '\n') stop++;
    (void)snprintf(core, 40, "%.*s", (int)strcspn(stop, "\n"), stop);
}

/* Appends a parameter's value in a TAGS format: texts stand as they are, everything else as JSON. */
static void put_tag_value(const form_writer *w, const json_t *root, const json_t *schema, int level) {
    const json_t *s = ln_call_resolve(root, schema), *list = json_object_get(s, "enum");
    const json_t *one = json_object_get(s, "const"), *type = json_object_get(s, "type"),
                 *any = alternatives(s);
    char core[40];
    stop_of(w, core);
    if (!(ln_call_param_kinds(root, schema) & LN_PARAM_TEXT)) {
        put_schema(w, root, schema);
    } else if (one) {
        put_given(w, one, "");
    } else if (json_array_size(list) > 0) {
        ln_str_adds(w->out, "{\"choice\":[");
        for (size_t i = 0; i < json_array_size(list); i++) {
            if (i > 0) comma(w);
            put_given(w, json_array_get(list, i), "");
        }
        ln_str_adds(w->out, "]}");
    } else if (any && level < MOST_LEVELS) {
        ln_str_adds(w->out, "{\"choice\":[");
        for (size_t i = 0; i < json_array_size(any); i++) {
            if (i > 0) comma(w);
            put_tag_value(w, root, json_array_get(any, i), level + 1);
        }
        ln_str_adds(w->out, "]}");
    } else if (json_array_size(type) > 0) {
        ln_str_adds(w->out, "{\"choice\":[");
        for (size_t i = 0; i < json_array_size(type); i++) {
            if (i > 0) comma(w);
            if (ln_json_is_text(json_array_get(type, i), "string")) put_free_text(w, s, core);
            else put_typed(w, root, s, json_array_get(type, i));
        }
        ln_str_adds(w->out, "]}");
    } else {
        put_free_text(w, s, core);
    }
}

static bool is_required(const json_t *schema, const char *name) {
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (ln_json_is_text(json_array_get(list, i), name)) return true;
    return false;
}

/* Appends the parameters of a TAGS format, in their order; those that are not required may be left out. */
static void put_tags(const form_writer *w, const json_t *schema, bool loose) {
    json_t *properties = json_object_get(schema, "properties"), *property;
    const char *key;
    char stop[40];
    stop_of(w, stop);
    ln_str_adds(w->out, "{\"sequence\":[\"\"");
    json_object_foreach(properties, key, property) {
        const bool required = is_required(schema, key);
        ln_str_adds(w->out, required ? ",{\"sequence\":[" : ",{\"repeat\":{\"sequence\":[");
        put_literal(w, w->f->key);
        comma(w);
        ln_str_json(w->out, key, strlen(key));
        comma(w);
        put_exactly(w, w->f->key_end);
        comma(w);
        if (loose) put_free_text(w, NULL, stop);
        else put_tag_value(w, schema, property, 0);
        comma(w);
        put_exactly(w, w->f->value_end);
        ln_str_adds(w->out, required ? "]}" : "]},\"max\":1}");
    }
    ln_str_adds(w->out, "]}");
}

/* ---- members with commas between them ---- */

typedef void value_fn(const form_writer *w, const json_t *root, const json_t *schema, int level);

/* Appends KEY behind VALUE. */
static void put_member(const form_writer *w, const json_t *root, const char *key, const json_t *schema,
                       const char *behind, value_fn *value, int level) {
    ln_str name = {0};
    ln_str_addf(&name, "%s%s", key, behind);
    ln_str_adds(w->out, "{\"sequence\":[");
    ln_str_json(w->out, name.data ? name.data : "", name.len);
    w->out->failed |= name.failed;
    ln_str_free(&name);
    comma(w);
    value(w, root, schema, level);
    ln_str_adds(w->out, "]}");
}

/* Appends the members of an object's schema from member `from` on, each after a comma where it may be left
 * out. */
static void put_others(const form_writer *w, const json_t *root, const json_t *schema, size_t from,
                       const char *behind, const char *between, value_fn *value, int level) {
    json_t *properties = json_object_get(schema, "properties"), *property;
    const char *key;
    size_t i = 0;
    json_object_foreach(properties, key, property) {
        if (i++ < from) continue;
        const bool required = is_required(schema, key);
        ln_str_adds(w->out, required ? ",{\"sequence\":[" : ",{\"repeat\":{\"sequence\":[");
        ln_str_json(w->out, between, strlen(between));
        comma(w);
        put_member(w, root, key, property, behind, value, level);
        ln_str_adds(w->out, required ? "]}" : "]},\"max\":1}");
    }
}

/* Appends a choice by the first member that is present. */
static void put_members(const form_writer *w, const json_t *root, const json_t *schema, const char *behind,
                        const char *between, value_fn *value, int level) {
    json_t *properties = json_object_get(schema, "properties"), *property;
    const char *key;
    size_t i = 0;
    bool empty = true, first = true;
    ln_str_adds(w->out, "{\"choice\":[");
    json_object_foreach(properties, key, property) {
        i++;
        if (!empty) continue; /* a required one was before it */
        if (!first) comma(w);
        first = false;
        ln_str_adds(w->out, "{\"sequence\":[");
        put_member(w, root, key, property, behind, value, level);
        put_others(w, root, schema, i, behind, between, value, level);
        ln_str_adds(w->out, "]}");
        empty = !is_required(schema, key);
    }
    if (empty) ln_str_adds(w->out, first ? "\"\"" : ",\"\"");
    ln_str_adds(w->out, "]}");
}

/* ---- QUOTED ---- */

/* Whether the schema of an object lists its members, few enough to be written one by one. */
static bool is_plain_object(const json_t *s) {
    const json_t *more = json_object_get(s, "additionalProperties");
    return ln_json_is_text(json_object_get(s, "type"), "object") &&
           json_object_size(json_object_get(s, "properties")) > 0 &&
           json_object_size(json_object_get(s, "properties")) <= MOST_CHOICES &&
           (!more || json_is_boolean(more));
}

static void put_quoted_value(const form_writer *w, const json_t *root, const json_t *schema, int level) {
    const json_t *s = ln_call_resolve(root, schema), *list = json_object_get(s, "enum"),
                 *any = alternatives(s);
    const json_t *type = json_object_get(s, "type"), *items = json_object_get(s, "items");
    const char *quote = w->f->key;
    bool first = true;
    if (level >= MOST_LEVELS || !s) {
        put_schema(w, root, schema);
    } else if (json_array_size(list) > 0 || any) {
        const json_t *all = any ? any : list;
        ln_str_adds(w->out, "{\"choice\":[");
        for (size_t i = 0; i < json_array_size(all); i++) {
            if (i > 0) comma(w);
            if (any) put_quoted_value(w, root, json_array_get(all, i), level + 1);
            else put_given(w, json_array_get(all, i), quote);
        }
        ln_str_adds(w->out, "]}");
    } else if (ln_json_is_text(type, "string") && !json_object_get(s, "const")) {
        ln_str_adds(w->out, "{\"sequence\":[");
        put_pieces(w, quote, false, &first);
        comma(w);
        put_free_text(w, s, quote);
        comma(w);
        first = true;
        put_pieces(w, quote, false, &first);
        ln_str_adds(w->out, "]}");
    } else if (is_plain_object(s)) {
        ln_str_adds(w->out, "{\"sequence\":[\"{\",");
        put_members(w, root, s, ":", ",", put_quoted_value, level + 1);
        ln_str_adds(w->out, ",\"}\"]}");
    } else if (ln_json_is_text(type, "array") && json_is_object(items) && !json_object_get(s, "minItems") &&
               !json_object_get(s, "maxItems") && !json_object_get(s, "uniqueItems")) {
        ln_str_adds(w->out, "{\"sequence\":[\"[\",{\"repeat\":{\"sequence\":[");
        put_quoted_value(w, root, items, level + 1);
        ln_str_adds(w->out, ",{\"repeat\":{\"sequence\":[\",\",");
        put_quoted_value(w, root, items, level + 1);
        ln_str_adds(w->out, "]}}]},\"max\":1},\"]\"]}");
    } else {
        put_schema(w, root, schema);
    }
}

/* ---- PYTHON ---- */

/* Words of Python at the top, JSON within values: a reader takes both. */
static void put_python_value(const form_writer *w, const json_t *root, const json_t *schema, int level) {
    const json_t *s = ln_call_resolve(root, schema), *type = json_object_get(s, "type"),
                 *any = alternatives(s);
    if (ln_json_is_text(type, "boolean")) {
        ln_str_adds(w->out, "{\"choice\":[\"True\",\"False\"]}");
    } else if (ln_json_is_text(type, "null")) {
        ln_str_adds(w->out, "\"None\"");
    } else if (any && level < MOST_LEVELS) {
        ln_str_adds(w->out, "{\"choice\":[");
        for (size_t i = 0; i < json_array_size(any); i++) {
            if (i > 0) comma(w);
            put_python_value(w, root, json_array_get(any, i), level + 1);
        }
        ln_str_adds(w->out, "]}");
    } else {
        put_schema(w, root, schema);
    }
}

/* ---- calls ---- */

static void put_any_value(const form_writer *w, const json_t *root, const json_t *schema, int level) {
    (void)root, (void)schema, (void)level;
    ln_str_adds(w->out, "{\"schema\":{}}");
}

/* Appends what stands between a call's name and its end. */
static void put_body(const form_writer *w, size_t tool) {
    const json_t *schema = ln_call_tool_schema(json_array_get(w->tools, tool));
    const bool loose = w->loose && w->loose[tool];
    switch (w->f->body) {
    case LN_CALLS_TAGS: put_tags(w, schema, loose); break;
    case LN_CALLS_PYTHON:
        put_members(w, schema, schema, "=", ", ", loose ? put_any_value : put_python_value, 0);
        break;
    case LN_CALLS_QUOTED:
        if (loose || !schema || !is_plain_object(schema)) {
            put_arguments(w, tool);
            break;
        }
        ln_str_adds(w->out, "{\"sequence\":[\"{\",");
        put_members(w, schema, schema, ":", ",", put_quoted_value, 1);
        ln_str_adds(w->out, ",\"}\"]}");
        break;
    default: put_arguments(w, tool);
    }
}

/* Appends the name of a tool as the format writes it. */
static void add_name(const form_writer *w, size_t tool, ln_str *out) {
    const json_t *name = ln_call_tool_name(json_array_get(w->tools, tool));
    if (w->f->body == LN_CALLS_OBJECT) ln_str_json(out, json_string_value(name), json_string_length(name));
    else ln_str_adds(out, json_string_value(name));
}

static bool in_channel(const form_writer *w) { return w->f->place == LN_CALLS_IN_CHANNEL; }

/* Appends a call; `begun`: what stands before its name, and a quotation mark, is there already. */
static void put_call(const form_writer *w, size_t tool, bool begun) {
    ln_str name = {0};
    add_name(w, tool, &name);
    ln_str_adds(w->out, "{\"sequence\":[");
    put_literal(w, begun ? "" : w->f->begin);
    comma(w);
    if (name.failed) w->out->failed = true;
    else ln_str_json(w->out, name.data + begun, name.len - begun);
    ln_str_free(&name);
    comma(w);
    if (in_channel(w)) ln_str_adds(w->out, ln_channel_grammar_text);
    else put_literal(w, w->f->middle);
    comma(w);
    put_body(w, tool);
    if (w->f->body == LN_CALLS_OBJECT) ln_str_adds(w->out, ",\"}\"");
    comma(w);
    put_literal(w, w->f->end);
    ln_str_adds(w->out, "]}");
}

static bool may_call(const form_writer *w, size_t tool) {
    const json_t *name = ln_call_tool_name(json_array_get(w->tools, tool));
    for (size_t i = 0; name && i < w->n_names; i++)
        if (strcmp(w->names[i], json_string_value(name)) == 0) return true;
    return false;
}

/* Appends the choice of the calls. */
static void put_calls(const form_writer *w, bool begun) {
    bool first = true;
    ln_str_adds(w->out, "{\"choice\":[");
    for (size_t i = 0; i < json_array_size(w->tools); i++) {
        if (!may_call(w, i)) continue;
        if (!first) comma(w);
        put_call(w, i, begun);
        first = false;
    }
    ln_str_adds(w->out, "]}");
}

/* Appends the further calls of a group, and its end. */
static void put_more(const form_writer *w, bool single) {
    if (!single && w->f->sep) {
        ln_str_adds(w->out, ",{\"repeat\":{\"sequence\":[");
        put_literal(w, w->f->sep);
        comma(w);
        put_calls(w, false);
        ln_str_adds(w->out, "]}}");
    }
    comma(w);
    put_literal(w, w->f->close);
}

/* Appends a group of calls behind its tag. */
static void put_group(const form_writer *w, bool single) {
    ln_str_adds(w->out, "{\"sequence\":[");
    put_literal(w, w->f->open);
    comma(w);
    put_calls(w, false);
    put_more(w, single);
    ln_str_adds(w->out, "]}");
}

/* ---- answers ---- */

static void put_tagged(const form_writer *w, bool single) {
    ln_str_adds(w->out, "{\"sequence\":[");
    put_literal(w, w->f->place == LN_CALLS_AT_START ? "" : w->f->tag);
    comma(w);
    put_group(w, single);
    ln_str_adds(w->out, "]}");
}

static void put_must(const form_writer *w, bool single) {
    if (in_channel(w)) {
        ln_str_addf(w->out, "%s,", ln_channel_grammar_must);
        put_calls(w, false);
        ln_str_adds(w->out, "]}");
        return;
    }
    if (single || w->f->sep) {
        put_tagged(w, single);
        return;
    }
    ln_str_adds(w->out, "{\"repeat\":{\"sequence\":[");
    put_tagged(w, true);
    ln_str_adds(w->out, ",{\"repeat\":\"\\n\",\"max\":1}]},\"min\":1}");
}

/* Appends a mark in the spellings in which models write it: with the blanks of the format, without them, and
 * each also behind the tag. */
static void put_marks(const form_writer *w, const char *text) {
    ln_str bare = {0};
    bool first = true;
    for (const char *c = text; *c; c++)
        if (*c != ' ') ln_str_add(&bare, c, 1);
    const char *const spellings[] = {text, bare.failed ? "" : bare.data};
    for (size_t i = 0; i < LN_COUNT(spellings); i++) {
        if (i > 0 && strcmp(spellings[0], spellings[1]) == 0) break;
        ln_str_adds(w->out, i > 0 ? ",[" : "[");
        first = true;
        put_piece(w, "text", spellings[i], strlen(spellings[i]), &first);
        ln_str_adds(w->out, "]");
        if (!w->f->tag[0]) continue;
        ln_str_adds(w->out, ",[");
        first = true;
        put_pieces(w, w->f->tag, false, &first);
        put_piece(w, "text", spellings[i], strlen(spellings[i]), &first);
        ln_str_adds(w->out, "]");
    }
    w->out->failed |= bare.failed;
    ln_str_free(&bare);
}

/* A group that the answer begins with is recognised by what stands before the first name, and where that is
 * little, by the name too. */
static void put_start_marks(const form_writer *w, bool single) {
    const bool named = w->f->body != LN_CALLS_OBJECT;
    bool first = true;
    for (size_t i = 0; i < json_array_size(w->tools); i++) {
        ln_str mark = {0};
        if (!may_call(w, i) || (!named && !first)) continue;
        ln_str_addf(&mark, "%s%s", w->f->open, w->f->begin);
        if (named) add_name(w, i, &mark);
        ln_str_adds(&mark, named ? w->f->middle : "\"");
        ln_str_adds(w->out, first ? "{\"after\":[" : ",{\"after\":[");
        put_marks(w, mark.failed ? "" : mark.data);
        ln_str_adds(w->out, "],\"then\":{\"sequence\":[");
        if (named) {
            put_body(w, i);
            comma(w);
            put_literal(w, w->f->end);
        } else {
            put_calls(w, true);
        }
        put_more(w, single);
        ln_str_adds(w->out, "]}}");
        w->out->failed |= mark.failed;
        ln_str_free(&mark);
        first = false;
    }
}

static void put_may(const form_writer *w, bool single) {
    const bool start = w->f->place == LN_CALLS_AT_START;
    bool first = true;
    if (in_channel(w)) {
        ln_str_adds(w->out, ln_channel_grammar_may);
        put_calls(w, false);
        ln_str_adds(w->out, "}]}");
        return;
    }
    ln_str_adds(w->out, start ? "{\"at_start\":true,\"prose\":[" : "{\"prose\":[{\"after\":[[");
    if (start) {
        put_start_marks(w, single);
    } else {
        put_piece(w, "text", w->f->tag, strlen(w->f->tag),
                  &first); /* a token of this name has the same bytes */
        ln_str_adds(w->out, "]],\"then\":");
        put_group(w, single);
        ln_str_adds(w->out, "}");
    }
    ln_str_adds(w->out, "]}");
}

void ln_call_grammar_put(ln_str *out, const ln_call_format *f, const ln_tok *tok, const json_t *tools,
                         const char *const *names, size_t n, const bool *loose, ln_call_need need,
                         bool single) {
    const form_writer w = {out, f, tok, tools, names, n, loose};
    if (need == LN_CALLS_MUST) put_must(&w, single);
    else put_may(&w, single);
}

/* ---- calls as texts ---- */

void ln_call_text_put(ln_str *out, const ln_call_format *f, const char *name, const char *arguments,
                      size_t bytes) {
    ln_str_addf(out, "%s%s%s", f->tag, f->open, f->begin);
    if (f->body == LN_CALLS_OBJECT) ln_str_json(out, name, strlen(name));
    else ln_str_adds(out, name);
    ln_str_adds(out, f->middle);
    ln_str_add(out, arguments, bytes);
    if (f->body == LN_CALLS_OBJECT) ln_str_adds(out, "}");
    ln_str_addf(out, "%s%s", f->end, f->close);
}
