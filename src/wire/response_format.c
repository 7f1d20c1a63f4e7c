/* The grammar of an answer: OpenAI's response_format, and the names that other engines have for constraints.
 * Each becomes ln_sampling.grammar. */
#include "body.h"
#include "../base/json_write.h"

#include <stdio.h>
#include <string.h>

/* Sets the grammar, which is {"kind": value}, and for a schema perhaps "open". `field` is what the body calls
 * it. */
static ln_status set_form_of(body_reader *b, const char *field, const char *kind, const json_t *value,
                             bool open) {
    wire_request *q = b->q;
    ln_error why;
    if (q->grammar.len > 0)
        return wire_refuse(b->why, field, "the grammar of the answer is given twice; give one of the fields");
    ln_str_adds(&q->grammar, "{");
    put_key(&q->grammar, kind);
    ln_str_json_value(&q->grammar, value);
    ln_str_adds(&q->grammar, open ? ",\"open\":true}" : "}");
    if (q->grammar.failed) return wire_fail(b->why, LN_OOM(&b->why->error, "a request"));
    const ln_status st = ln_grammar_check(q->grammar.data, q->grammar.len, &why);
    if (st == LN_EINVALID) return wire_refuse(b->why, field, "%s", why.message);
    if (st != LN_OK) {
        b->why->error = why;
        return wire_fail(b->why, st);
    }
    q->sampling.grammar = q->grammar.data;
    q->sampling.grammar_bytes = q->grammar.len;
    return LN_OK;
}

static ln_status set_form(body_reader *b, const char *field, const char *kind, const json_t *value) {
    return set_form_of(b, field, kind, value, false);
}

static ln_status set_object(body_reader *b, const char *field) {
    json_t *any = json_pack("{s:s}", "type", "object");
    if (!any) return wire_fail(b->why, LN_OOM(&b->why->error, "a request"));
    const ln_status st = set_form(b, field, "schema", any);
    json_decref(any);
    return st;
}

/* A schema, or the text of one; `open`: as the standard reads it. */
static ln_status set_schema_of(body_reader *b, const char *field, const json_t *v, bool open) {
    char found[80];
    json_t *read = NULL;
    if (json_is_object(v) || json_is_boolean(v)) return set_form_of(b, field, "schema", v, open);
    if (!json_is_string(v))
        return wire_refuse(b->why, field, "expected a JSON schema (an object), found %s",
                           ln_json_text(v, found));
    ln_error why;
    ln_status st = ln_json_load(&read, "the schema", json_string_value(v), json_string_length(v), &why);
    st = st == LN_OK ? set_form_of(b, field, "schema", read, open)
                     : wire_refuse(b->why, field, "%s", why.message);
    json_decref(read);
    return st;
}

static ln_status set_schema(body_reader *b, const char *field, const json_t *v) {
    return set_schema_of(b, field, v, false);
}

/* Logs the members that nothing reads: a schema under an unknown name would be ignored otherwise. */
static void note_others(const json_t *format) {
    static const char *const known[] = {"type", "json_schema", "schema",     "value",
                                        "name", "strict",      "description"};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)format, key, v) {
        bool is = false;
        for (size_t i = 0; i < LN_COUNT(known) && !is; i++) is = strcmp(known[i], key) == 0;
        if (!is) body_unknown("response_format.", key);
    }
}

/* {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "json_schema": {"schema": ...}}. A
 * schema may also be the member `schema`, as llama.cpp has it, or `value`, which TGI and Hugging Face's
 * client send with the types json, json_object and regex. */
ln_status body_response_format(body_reader *b, const char *name, const json_t *v) {
    const json_t *type = json_object_get(v, "type"), *named = json_object_get(v, "json_schema");
    const json_t *direct = json_object_get(v, "schema"), *value = json_object_get(v, "value");
    const char *kind = json_string_value(type);
    char found[80];
    if (!json_is_object(v))
        return wire_refuse(b->why, name, "expected an object, found %s", ln_json_text(v, found));
    if (kind && strcmp(kind, "text") == 0) return LN_OK;
    note_others(v);
    const bool json = kind && strcmp(kind, "json") == 0 && value;
    if (json || (kind && strcmp(kind, "json_object") == 0 && value))
        return set_schema(b, "response_format.value", value);
    if (kind && strcmp(kind, "regex") == 0 && value) return body_regex(b, "response_format.value", value);
    if (kind && strcmp(kind, "json_object") == 0)
        return direct ? set_schema(b, "response_format.schema", direct) : set_object(b, name);
    if (!kind || strcmp(kind, "json_schema") != 0)
        return wire_refuse(b->why, "response_format.type",
                           "expected text, json_object or json_schema, found %s", ln_json_text(type, found));
    if (!named && direct) return set_schema(b, "response_format.schema", direct);
    if (!json_is_object(named))
        return wire_refuse(b->why, "response_format.json_schema",
                           "expected an object with a schema, found %s", ln_json_text(named, found));
    const json_t *schema = json_object_get(named, "schema"), *called = json_object_get(named, "name");
    if (called && !json_is_null(called) && !json_is_string(called))
        return wire_refuse(b->why, "response_format.json_schema.name", "expected a text, found %s",
                           ln_json_text(called, found));
    if (!schema || json_is_null(schema))
        return wire_refuse(b->why, "response_format.json_schema.schema", "expected a JSON schema, found %s",
                           ln_json_text(schema, found));
    return set_schema(b, "response_format.json_schema.schema", schema);
}

ln_status body_json_schema(body_reader *b, const char *name, const json_t *v) {
    return set_schema(b, name, v);
}

ln_status body_regex(body_reader *b, const char *name, const json_t *v) {
    char found[80];
    if (json_is_string(v)) return set_form(b, name, "regex", v);
    return wire_refuse(b->why, name, "expected a regular expression (a text), found %s",
                       ln_json_text(v, found));
}

/* An expression as linnet.h has it. */
ln_status body_form(body_reader *b, const char *name, const json_t *v) {
    json_t *one = json_pack("[O]", v);
    if (!one) return wire_fail(b->why, LN_OOM(&b->why->error, "a request"));
    const ln_status st = json_object_get(v, "schema")
                             ? set_form(b, name, "schema", json_object_get(v, "schema"))
                             : set_form(b, name, "sequence", one);
    json_decref(one);
    return st;
}

/* A text in GBNF or EBNF, as llama.cpp and vLLM have it, or an expression. */
ln_status body_grammar(body_reader *b, const char *name, const json_t *v) {
    char found[80];
    if (json_is_string(v) && json_string_length(v) == 0) return LN_OK; /* llama.cpp's clients send it */
    if (json_is_string(v)) return set_form(b, name, "grammar", v);
    if (json_is_object(v)) return body_form(b, name, v);
    return wire_refuse(b->why, name,
                       "expected a grammar in GBNF or Lark's EBNF (a text), or an expression (an object), "
                       "found %s",
                       ln_json_text(v, found));
}

ln_status body_texts(body_reader *b, const char *name, const json_t *v) {
    char found[80];
    bool ok = json_array_size(v) > 0;
    for (size_t i = 0; ok && i < json_array_size(v); i++) ok = json_is_string(json_array_get(v, i));
    if (ok) return set_form(b, name, "choice", v);
    return wire_refuse(b->why, name, "expected a list of texts, found %s", ln_json_text(v, found));
}

/* vLLM's object of one constraint. */
ln_status body_structured(body_reader *b, const char *name, const json_t *v) {
    static const struct {
        const char *member, *field;
        ln_status (*read)(body_reader *b, const char *name, const json_t *v);
    } known[] = {{"regex", "structured_outputs.regex", body_regex},
                 {"grammar", "structured_outputs.grammar", body_grammar},
                 {"choice", "structured_outputs.choice", body_texts}};
    char found[80], field[96];
    const char *key;
    json_t *one;
    if (!json_is_object(v))
        return wire_refuse(b->why, name, "expected an object, found %s", ln_json_text(v, found));
    const bool open = json_is_false(json_object_get(v, "disable_additional_properties"));
    json_object_foreach((json_t *)(uintptr_t)v, key, one) {
        bool read = json_is_null(one) || json_is_false(one) ||
                    (strcmp(key, "disable_additional_properties") == 0 && json_is_true(one));
        if (strcmp(key, "json") == 0 && !read) {
            LN_TRY(set_schema_of(b, "structured_outputs.json", one, open));
            read = true;
        }
        if (strcmp(key, "json_object") == 0 && json_is_true(one)) {
            LN_TRY(set_object(b, "structured_outputs.json_object"));
            read = true;
        }
        for (size_t i = 0; i < LN_COUNT(known) && !read; i++) {
            if (strcmp(key, known[i].member) != 0) continue;
            LN_TRY(known[i].read(b, known[i].field, one));
            read = true;
        }
        (void)snprintf(field, sizeof field, "structured_outputs.%.60s", key);
        if (!read) {
            const ln_status st =
                wire_refuse(b->why, field,
                            "%s is not supported; use json, regex, choice, grammar or json_object",
                            ln_json_text(one, found));
            b->why->code = "unsupported_parameter";
            return st;
        }
    }
    return LN_OK;
}
