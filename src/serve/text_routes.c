/* Routes that turn texts into tokens and back: /tokenize, /detokenize, /apply-template. */
#include "../wire/body.h"
#include "dialect.h"

#include <string.h>

enum { MOST_IDS = 1 << 20 };

static request_context *of(work *w) { return (request_context *)(void *)w; }

static void fail(request_context *x, ln_status st) { (void)wire_fail(&x->why, st); }

static ln_status read_switch(request_context *x, const json_t *root, const char *a, const char *b,
                             bool *out) {
    const char *name;
    char found[80];
    const json_t *v = body_member(root, a, b, &name);
    if (v && !json_is_boolean(v))
        return wire_refuse(&x->why, name, "expected true or false, found %s", ln_json_text(v, found));
    if (v) *out = json_is_true(v);
    return LN_OK;
}

/* Logs the members that nothing reads, as of other bodies. */
static void note_others(const json_t *root, const char *const *known, size_t n) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)root, key, v) {
        bool is = false;
        for (size_t i = 0; i < n && !is; i++) is = strcmp(known[i], key) == 0;
        if (!is) body_unknown("", key);
    }
}

/* ---- /tokenize ---- */

/* Tokenises into a buffer for the usual number of ids, and again if there are more. The caller frees *ids,
 * after an error too. */
static ln_status read_text(request_context *x, const char *text, size_t bytes, bool special, int32_t **ids,
                           size_t *n) {
    size_t cap = bytes / 4 + 64; /* a token has about four bytes */
    for (int tries = 0; tries < 2; tries++, cap = *n) {
        ln_free(*ids);
        *ids = ln_alloc(cap * sizeof **ids + 1);
        if (!*ids) return LN_OOM(&x->why.error, "token ids");
        LN_TRY(ln_tokenize(x->s->tok, text, bytes, special, *ids, cap, n, &x->why.error));
        if (*n <= cap) break;
    }
    return LN_OK;
}

/* Appends a number that is not negative; printf would take longer than the tokenizer. */
static void put_number(ln_str *out, int32_t v) {
    char digits[12];
    size_t at = sizeof digits;
    do digits[--at] = (char)('0' + v % 10);
    while ((v /= 10) > 0);
    ln_str_add(out, digits + at, sizeof digits - at);
}

static ln_status put_ids(request_context *x, const char *text, size_t bytes, bool special) {
    size_t n = 0;
    int32_t *ids = NULL;
    const ln_status st = read_text(x, text, bytes, special, &ids, &n);
    ln_str_adds(&x->out, "{\"tokens\":[");
    for (size_t i = 0; st == LN_OK && i < n; i++) {
        if (i > 0) ln_str_add(&x->out, ",", 1);
        put_number(&x->out, ids[i]);
    }
    ln_str_addf(&x->out, "],\"count\":%zu,\"max_model_len\":%lld}", n, (long long)x->s->plan.n_ctx);
    ln_free(ids);
    return st == LN_OK ? LN_OK : wire_fail(&x->why, st);
}

static void tokenize(work *w) {
    static const char *const known[] = {"content", "prompt",       "add_special", "add_special_tokens",
                                        "model",   "parse_special"};
    request_context *x = of(w);
    json_t *root = NULL;
    const char *name;
    char found[80];
    bool special = false, parse = true;
    ln_status st;
    LN_GO(request_read_object(x, &root));
    note_others(root, known, LN_COUNT(known));
    const json_t *text = body_member(root, "content", "prompt", &name);
    if (!json_is_string(text))
        LN_GO(wire_refuse(&x->why, name, "expected a text, found %s", ln_json_text(text, found)));
    LN_GO(read_switch(x, root, "add_special", "add_special_tokens", &special));
    LN_GO(read_switch(x, root, "parse_special", NULL, &parse));
    if (!parse)
        LN_GO(wire_refuse(&x->why, "parse_special", "special tokens in the text are always recognised"));
    st = put_ids(x, json_string_value(text), json_string_length(text), special);
out:
    json_decref(root);
    (void)st;
}

/* ---- /detokenize ---- */

static ln_status read_ids(request_context *x, const json_t *list, const char *name, int32_t *ids) {
    char item[64], found[80];
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        int64_t id = -1;
        (void)ln_excerpt(found, name, strlen(name));
        if (!body_integer(v, &id) || id < 0 || id >= x->s->info.vocab_size) {
            ln_str at = {0};
            ln_str_addf(&at, "%s[%zu]", name, i);
            memcpy(item, at.data ? at.data : "", LN_MIN(at.len + 1, sizeof item));
            item[sizeof item - 1] = '\0';
            ln_str_free(&at);
            return wire_refuse(&x->why, item, "expected a token id from 0 to %lld, found %s",
                               (long long)x->s->info.vocab_size - 1, ln_json_text(v, found));
        }
        ids[i] = (int32_t)id;
    }
    return LN_OK;
}

static void put_text(request_context *x, const int32_t *ids, size_t n, bool skip, const char *key) {
    size_t bytes = 0;
    char *text = NULL;
    ln_status st = ln_detokenize(x->s->tok, ids, n, skip, NULL, 0, &bytes, &x->why.error);
    if (st == LN_OK) text = ln_alloc(bytes + 1);
    if (st == LN_OK)
        st = text ? ln_detokenize(x->s->tok, ids, n, skip, text, bytes, &bytes, &x->why.error)
                  : LN_OOM(&x->why.error, "a text");
    if (st == LN_OK) {
        ln_str_addf(&x->out, "{\"%s\":", key);
        ln_str_json(&x->out, text, bytes);
    } else {
        fail(x, st);
    }
    ln_free(text);
}

static void detokenize(work *w) {
    static const char *const known[] = {"tokens", "model"};
    request_context *x = of(w);
    json_t *root = NULL;
    const char *name;
    char found[80];
    int32_t *ids = NULL;
    ln_status st;
    LN_GO(request_read_object(x, &root));
    note_others(root, known, LN_COUNT(known));
    const json_t *list = body_member(root, "tokens", NULL, &name);
    if (!json_is_array(list) || json_array_size(list) > MOST_IDS)
        LN_GO(wire_refuse(&x->why, name, "expected a list of at most %d token ids, found %s", MOST_IDS,
                          ln_json_text(list, found)));
    ids = ln_alloc((json_array_size(list) + 1) * sizeof *ids);
    if (!ids) LN_GO(wire_fail(&x->why, LN_OOM(&x->why.error, "token ids")));
    LN_GO(read_ids(x, list, name, ids));
    put_text(x, ids, json_array_size(list), false, "content");
    if (x->why.http) goto out;
    const size_t from = strlen("{\"content\":"), n = x->out.len - from;
    char *again = ln_strndup(x->out.data + from, n); /* vLLM's name for the same */
    ln_str_adds(&x->out, ",\"prompt\":");
    ln_str_add(&x->out, again ? again : "", n * (again != NULL));
    ln_str_adds(&x->out, "}");
    x->out.failed |= !again;
    ln_free(again);
out:
    ln_free(ids);
    json_decref(root);
    (void)st;
}

/* ---- /apply-template ---- */

/* The text of the tokens that the model would get: exactly what the template and the tokenizer make of the
 * conversation. */
static void apply_template(work *w) {
    request_context *x = of(w);
    ln_prompt prompt;
    ln_sampling how;
    ln_request_options o = ln_request_options_default();
    size_t n = 0;
    int32_t *ids = NULL;
    if (!generation_read(x, WIRE_CHAT)) return;
    wire_choice(&x->q, 0, &prompt, &how, &o);
    ln_status st = ln_prompt_ids(x->s->model, &prompt, NULL, 0, &n, &x->why.error);
    if (st == LN_OK) {
        ids = ln_alloc((n + 1) * sizeof *ids);
        st = ids ? ln_prompt_ids(x->s->model, &prompt, ids, n, &n, &x->why.error)
                 : LN_OOM(&x->why.error, "token ids");
    }
    if (st == LN_OK) put_text(x, ids, n, false, "prompt");
    else (void)wire_fail_request(&x->why, &x->q, st);
    if (!x->why.http) ln_str_adds(&x->out, "}");
    ln_free(ids);
}

/* ---- /v1/messages/count_tokens ---- */

static void count_tokens(work *w) {
    request_context *x = of(w);
    ln_prompt prompt;
    ln_sampling how;
    ln_request_options o = ln_request_options_default();
    size_t n = 0;
    if (!generation_read(x, WIRE_CHAT)) return;
    wire_choice(&x->q, 0, &prompt, &how, &o);
    const ln_status st = ln_prompt_ids(x->s->model, &prompt, NULL, 0, &n, &x->why.error);
    if (st != LN_OK) (void)wire_fail_request(&x->why, &x->q, st);
    ln_str_addf(&x->out, "{\"input_tokens\":%zu}", n);
}

void handle_count_tokens(request_context *x) {
    x->dialect = &dialect_messages;
    request_work(x, &x->s->preparing, count_tokens, request_answer);
}

void handle_tokenize(request_context *x) { request_work(x, &x->s->preparing, tokenize, request_answer); }
void handle_detokenize(request_context *x) { request_work(x, &x->s->preparing, detokenize, request_answer); }
void handle_apply_template(request_context *x) {
    request_work(x, &x->s->preparing, apply_template, request_answer);
}
