/* Built-in templates: the text format that each model family was trained on, for models without a
 * template.
 *
 *   gemma3       <start_of_turn>user\n{system}\n\n{user}<end_of_turn>\n
 *                <start_of_turn>model\n{assistant}<end_of_turn>\n ... <start_of_turn>model\n
 *   qwen2, qwen3 <|im_start|>{role}\n{text}<|im_end|>\n ... <|im_start|>assistant\n
 *   llama        <|begin_of_text|><|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|> ...
 *                <|start_header_id|>assistant<|end_header_id|>\n\n
 *
 * Each prompt has at most one bos: for Gemma the post-processor adds it (or the format writes it when
 * there is none), for Llama it is part of the format, Qwen has none. A model of type llama whose
 * vocabulary has Qwen's delimiters but not Llama's (SmolLM) uses Qwen's format. Gemma has no system role:
 * the system text is put before the first user text. Gemma's turns must alternate; other orders are
 * refused. */
#include "../tokenizer/tokenizer_internal.h"
#include "builtin_templates.h"

typedef enum role { SYSTEM = 0, USER, ASSISTANT, N_ROLES } role;
static const char *const role_names[N_ROLES] = {"system", "user", "assistant"};

static bool knows(const ln_tok *tok, const char *token) { return ln_tok_id(tok, token, strlen(token)) >= 0; }

static role role_of(const ln_message *m) {
    int r = 0;
    while (r < N_ROLES && strcmp(m->role, role_names[r]) != 0) r++;
    return (role)r;
}

static ln_status check_roles(const ln_message *messages, size_t n, ln_error *err) {
    char shown[80];
    if (n == 0) return ln_fail(err, LN_EUSAGE, "the conversation is empty: expected at least one message");
    for (size_t i = 0; i < n; i++)
        if (role_of(&messages[i]) == N_ROLES)
            return ln_fail(err, LN_EINVALID,
                           "message %zu: role: expected system, user or assistant, found '%s'", i + 1,
                           ln_excerpt(shown, messages[i].role, strnlen(messages[i].role, 100)));
    return LN_OK;
}

/* Appends the content of a message. `origin`, unless NULL, gets one byte for each byte of *out so far: 1
 * where it comes from a message, else 0. */
static void content(const ln_message *m, ln_str *out, ln_str *origin) {
    while (origin && origin->len < out->len && !origin->failed) ln_str_add(origin, "\0", 1);
    ln_str_add(out, m->content, m->content_bytes);
    while (origin && origin->len < out->len && !origin->failed) ln_str_add(origin, "\1", 1);
}

/* Formats without alternation: each turn is its role between two delimiters, its text and an end-of-turn
 * token. */
static void turns(const ln_message *messages, size_t n, const char *before, const char *after_role,
                  const char *end, ln_str *out, ln_str *origin) {
    for (size_t i = 0; i < n; i++) {
        ln_str_addf(out, "%s%s%s", before, messages[i].role, after_role);
        content(&messages[i], out, origin);
        ln_str_adds(out, end);
    }
    ln_str_addf(out, "%sassistant%s", before, after_role);
}

static ln_status gemma(const ln_tok *tok, const ln_message *messages, size_t n, ln_str *out, ln_str *origin,
                       bool *add_special, ln_error *err) {
    bool adds = false, has_system = role_of(&messages[0]) == SYSTEM;
    for (size_t i = 0; i < tok->post.n; i++) adds = adds || tok->post.items[i] >= 0;
    *add_special = adds || !knows(tok, "<bos>");
    if (!*add_special) ln_str_adds(out, "<bos>");
    if (n == has_system)
        return ln_fail(err, LN_EINVALID,
                       "message 2: expected the role user after the system text, found the end of the "
                       "conversation");
    for (size_t i = has_system; i < n; i++) {
        bool user = (i - has_system) % 2 == 0;
        role want = user ? USER : ASSISTANT, found = role_of(&messages[i]);
        if (found != want)
            return ln_fail(err, LN_EINVALID,
                           "message %zu: role: expected %s, found %s; this model's template takes an "
                           "optional "
                           "system text, then user and assistant in turns",
                           i + 1, role_names[want], role_names[found]);
        ln_str_adds(out, user ? "<start_of_turn>user\n" : "<start_of_turn>model\n");
        if (has_system && i == 1) {
            content(&messages[0], out, origin);
            ln_str_adds(out, "\n\n");
        }
        content(&messages[i], out, origin);
        ln_str_adds(out, "<end_of_turn>\n");
    }
    ln_str_adds(out, "<start_of_turn>model\n");
    return LN_OK;
}

static ln_status write_chat(const ln_tok *tok, const char *model_type, const ln_message *messages, size_t n,
                            ln_str *out, ln_str *origin, bool *add_special, ln_error *err) {
    char name[80];
    bool llama = strcmp(model_type, "llama") == 0;
    LN_TRY(check_roles(messages, n, err));
    *add_special = false;
    if (strcmp(model_type, "gemma3") == 0 || strcmp(model_type, "gemma3_text") == 0) {
        LN_TRY(gemma(tok, messages, n, out, origin, add_special, err));
    } else if (strcmp(model_type, "qwen2") == 0 || strcmp(model_type, "qwen3") == 0 ||
               (llama && !knows(tok, "<|start_header_id|>") && knows(tok, "<|im_start|>"))) {
        turns(messages, n, "<|im_start|>", "\n", "<|im_end|>\n", out, origin);
    } else if (llama) {
        ln_str_adds(out, "<|begin_of_text|>");
        turns(messages, n, "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", out, origin);
    } else {
        return ln_fail(err, LN_EUNSUPPORTED,
                       "model_type '%s' has no built-in template; continue raw text (ln_prompt.tmpl = "
                       "LN_TEMPLATE_RAW)",
                       ln_excerpt(name, model_type, strlen(model_type)));
    }
    while (origin && origin->len < out->len && !origin->failed) ln_str_add(origin, "\0", 1);
    return out->failed || (origin && origin->failed) ? LN_OOM(err, "a prompt") : LN_OK;
}

ln_status ln_chat_text(const ln_tok *tok, const char *model_type, const ln_message *messages, size_t n,
                       ln_str *out, bool *add_special, ln_error *err) {
    return write_chat(tok, model_type, messages, n, out, NULL, add_special, err);
}

ln_status ln_chat_encode(const ln_tok *tok, const ln_controls *controls, const char *model_type,
                         const ln_message *messages, size_t n, ln_ids *out, ln_error *err) {
    ln_str text = {0}, origin = {0};
    bool add_special = false;
    ln_status st = write_chat(tok, model_type, messages, n, &text, &origin, &add_special, err);
    ln_guard guard = {.origin = (const uint8_t *)origin.data, .controls = controls};
    if (st == LN_OK)
        st = ln_tok_encode_guarded(tok, text.data ? text.data : "", text.len, add_special, &guard, out, err);
    ln_str_free(&text);
    ln_str_free(&origin);
    return st;
}
