/* Chat templates and special tokens of a GGUF file: tokenizer.chat_template, and tokenizer.chat_template.NAME
 * for named ones. */
#include "../base/gguf.h"
#include "template_source.h"

#include <stdio.h>
#include <string.h>

static const char main_key[] = "tokenizer.chat_template";

static ln_status look_for(const ln_gguf *g, const char *key, template_text *t, ln_error *err) {
    ln_gguf_text text = {"", 0};
    LN_TRY(ln_gguf_get_text(g, key, &text, NULL, err));
    return text.bytes > 0 ? template_set_text(t, key, text.data, text.bytes, err) : LN_OK;
}

static ln_status look_for_named(const ln_gguf *g, const char *name, template_text *t, ln_error *err) {
    char key[256];
    if (snprintf(key, sizeof key, "%s.%s", main_key, name) >= (int)sizeof key) return LN_OK;
    return look_for(g, key, t, err);
}

static ln_status read_tokens(const ln_gguf *g, template_source *s, ln_error *err) {
    static const char *const names[TEMPLATE_TOKENS] = {"bos",     "eos", "unknown", "seperator",
                                                       "padding", "cls", "mask"};
    const ln_gguf_value *tokens;
    LN_TRY(ln_gguf_array(g, "tokenizer.ggml.tokens", LN_GGUF_TEXT, &tokens, err));
    for (size_t i = 0; tokens && i < TEMPLATE_TOKENS; i++) {
        char key[80];
        int64_t id = -1;
        (void)snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", names[i]);
        LN_TRY(ln_gguf_int(g, key, 0, (int64_t)tokens->n - 1, &id, NULL, err));
        if (id < 0) continue;
        const ln_gguf_text text = ln_gguf_text_at(tokens, (uint64_t)id);
        s->token[i] = ln_strndup(text.data, text.bytes);
        s->token_bytes[i] = text.bytes;
        s->bos_told = s->bos_told || i == 0;
        if (!s->token[i]) return LN_OOM(err, "a special token");
    }
    return LN_OK;
}

static ln_status read_all(const ln_gguf *g, template_source *s, const char *choice, bool chosen,
                          ln_error *err) {
    LN_TRY(read_tokens(g, s, err));
    if (chosen) return LN_OK; /* a file */
    if (!choice || strcmp(choice, "default") == 0) LN_TRY(look_for(g, main_key, &s->plain, err));
    if (choice && !s->plain.text) LN_TRY(look_for_named(g, choice, &s->plain, err));
    return choice ? LN_OK : look_for_named(g, "tool_use", &s->tools, err);
}

ln_status template_source_gguf(template_source *s, const char *path, const char *choice, ln_error *err) {
    ln_gguf *g;
    LN_TRY(ln_gguf_open(&g, path, err));
    const ln_status st = read_all(g, s, choice, s->plain.text != NULL, err);
    ln_gguf_close(&g);
    return st;
}
