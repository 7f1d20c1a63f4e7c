/* Fuzzes the parser of calls of tools (chat/tool_calls.c). The first byte chooses the format, the second how
 * long the pieces are in which the text comes; the rest is the text. In pieces it must give what it gives at
 * once; no byte is lost or comes twice; each call names a tool, and its arguments are an object. Text of a
 * format of channels goes through chat/channels.c first. */
#include "fuzz.h"

#include "chat/reasoning.h"
#include "chat/tool_calls.h"

static const ln_call_param params[] = {{"t", LN_PARAM_TEXT}, {"n", LN_PARAM_INTEGER | LN_PARAM_NULL}};
static const ln_call_tool tools[] = {{"f", params, LN_COUNT(params)}, {"get", NULL, 0}};

static const ln_reasoning_delims channels = {"<|channel|>analysis<|message|>", "<|end|>", "", "", true};

static void fuzz_open(void) {}

typedef struct seen {
    ln_str text, calls, reasoning;
    uint64_t before; /* bytes that were taken for calls */
} seen;

static ln_status see_call(seen *w, const ln_calls *t, ln_error *err) {
    json_t *root = NULL;
    const ln_status st = ln_json_load(&root, "arguments", t->arguments.data, t->arguments.len, err);
    if (st == LN_OK) must(json_is_object(root));
    json_decref(root);
    must(strcmp(t->name.data, tools[0].name) == 0 || strcmp(t->name.data, tools[1].name) == 0);
    ln_str_addf(&w->calls, "%s%s\n", t->name.data, t->arguments.data);
    return st == LN_EMEMORY ? st : LN_OK; /* the loader rejects keys that occur twice, the parser does not */
}

static ln_status take(seen *w, ln_calls *t, bool final, ln_error *err) {
    for (ln_calls_piece piece = LN_CALLS_TEXT; piece != LN_CALLS_NOTHING;) {
        LN_TRY(ln_calls_next(t, final, &piece, err));
        if (piece == LN_CALLS_TEXT) ln_str_add(&w->text, t->text.data, t->text.len);
        if (piece == LN_CALLS_CALL) LN_TRY(see_call(w, t, err));
        if (piece == LN_CALLS_CUT)
            ln_str_addf(&w->calls, "?%s%s\n", t->name.data, t->arguments.data ? t->arguments.data : "");
    }
    return LN_OK;
}

/* Pushes text through the parser of channels, if the format is one of them, to that of calls. */
static ln_status push(seen *w, ln_reasoning *r, ln_calls *t, const char *text, size_t bytes, ln_error *err) {
    if (!r->delims) return ln_calls_push(t, text, bytes, err);
    LN_TRY(ln_reasoning_push(r, text, bytes, err));
    if (r->reasoning.len > 0) ln_str_add(&w->reasoning, r->reasoning.data, r->reasoning.len);
    return ln_calls_push(t, r->answer.data, r->answer.len, err);
}

static ln_status parse(seen *w, const char *text, size_t bytes, unsigned form, size_t step, ln_error *err) {
    ln_calls t;
    ln_status st = LN_OK;
    size_t n = 0;
    while (ln_call_format_at(n)) n++;
    ln_calls_open(&t, ln_call_format_at((form >> 1) % (n + 1)), tools, LN_COUNT(tools), form & 1);
    const bool in_channel = t.format && t.format->place == LN_CALLS_IN_CHANNEL;
    ln_reasoning r;
    ln_reasoning_open(&r, NULL, false);
    if (in_channel) st = ln_reasoning_open_channels(&r, &channels, "\xff<|start|>assistant", 19, true, err);
    for (size_t at = 0; st == LN_OK && at < bytes; at += step) {
        st = push(w, &r, &t, text + at, LN_MIN(step, bytes - at), err);
        if (st == LN_OK) st = take(w, &t, false, err);
    }
    if (st == LN_OK && in_channel) st = ln_reasoning_flush(&r, err);
    if (st == LN_OK) st = take(w, &t, true, err);
    w->before = t.before + r.before;
    ln_calls_close(&t);
    ln_reasoning_close(&r);
    return st == LN_OK && (w->text.failed || w->calls.failed || w->reasoning.failed)
               ? LN_OOM(err, "what a parser has found")
               : st;
}

static bool same(const ln_str *a, const ln_str *b) {
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    seen whole = {0}, pieces = {0};
    if (bytes < 2) return LN_OK;
    const char *text = (const char *)data + 2;
    ln_status st = parse(&whole, text, bytes - 2, data[0], bytes, err);
    if (st == LN_OK) st = parse(&pieces, text, bytes - 2, data[0], 1 + data[1] % 16, err);
    if (st == LN_OK) {
        must(same(&whole.text, &pieces.text) && same(&whole.calls, &pieces.calls));
        must(same(&whole.reasoning, &pieces.reasoning));
        must(whole.before == pieces.before && whole.before + whole.text.len == bytes - 2);
    }
    ln_str_free(&whole.text);
    ln_str_free(&whole.calls);
    ln_str_free(&pieces.text);
    ln_str_free(&pieces.calls);
    ln_str_free(&whole.reasoning);
    ln_str_free(&pieces.reasoning);
    return st;
}
