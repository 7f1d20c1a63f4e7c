/* The fixed chat forms, one turn each, for as long as templates are not interpreted.
 *
 *   gemma3       <start_of_turn>user\n{system}\n\n{user}<end_of_turn>\n<start_of_turn>model\n
 *   qwen2, qwen3 <|im_start|>{role}\n{text}<|im_end|>\n ... <|im_start|>assistant\n
 *   llama        <|begin_of_text|><|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|> ... assistant header
 *
 * One bos, never two: Gemma's comes from the post-processor (or is written here when there is none), Llama's is part of the form, Qwen has
 * none. A llama whose tokenizer has Qwen's marks and not Llama's (SmolLM) takes Qwen's form. */
#include "tok.h"

static bool knows(const ln_tok *tok, const char *token) { return ln_tok_id(tok, token, strlen(token)) >= 0; }

static void turn(ln_str *out, const char *before, const char *role, const char *between, const char *text, size_t bytes, const char *after) {
    ln_str_addf(out, "%s%s%s", before, role, between);
    ln_str_add(out, text, bytes);
    ln_str_adds(out, after);
}

static void gemma(const ln_tok *tok, const char *system, size_t n_system, const char *user, size_t n_user, ln_str *out, bool *add_special) {
    bool adds = false;
    for (size_t i = 0; i < tok->post.n; i++) adds = adds || tok->post.items[i] >= 0;
    *add_special = adds || !knows(tok, "<bos>");
    if (!*add_special) ln_str_adds(out, "<bos>");
    ln_str_adds(out, "<start_of_turn>user\n");
    if (system) {
        ln_str_add(out, system, n_system);
        ln_str_adds(out, "\n\n");
    }
    ln_str_add(out, user, n_user);
    ln_str_adds(out, "<end_of_turn>\n<start_of_turn>model\n");
}

static void qwen(const char *system, size_t n_system, const char *user, size_t n_user, ln_str *out, bool *add_special) {
    *add_special = false;
    if (system) turn(out, "<|im_start|>", "system", "\n", system, n_system, "<|im_end|>\n");
    turn(out, "<|im_start|>", "user", "\n", user, n_user, "<|im_end|>\n");
    ln_str_adds(out, "<|im_start|>assistant\n");
}

static void llama(const char *system, size_t n_system, const char *user, size_t n_user, ln_str *out, bool *add_special) {
    static const char header[] = "<|start_header_id|>", end[] = "<|end_header_id|>\n\n";
    *add_special = false;
    ln_str_adds(out, "<|begin_of_text|>");
    if (system) turn(out, header, "system", end, system, n_system, "<|eot_id|>");
    turn(out, header, "user", end, user, n_user, "<|eot_id|>");
    turn(out, header, "assistant", end, "", 0, "");
}

ln_status ln_chat_form(const ln_tok *tok, const char *model_type, const char *system, size_t system_bytes, const char *user, size_t user_bytes,
                       ln_str *out, bool *add_special, ln_error *err) {
    if (strcmp(model_type, "gemma3") == 0 || strcmp(model_type, "gemma3_text") == 0) {
        gemma(tok, system, system_bytes, user, user_bytes, out, add_special);
    } else if (strcmp(model_type, "qwen2") == 0 || strcmp(model_type, "qwen3") == 0) {
        qwen(system, system_bytes, user, user_bytes, out, add_special);
    } else if (strcmp(model_type, "llama") == 0) {
        bool as_qwen = !knows(tok, "<|start_header_id|>") && knows(tok, "<|im_start|>");
        (as_qwen ? qwen : llama)(system, system_bytes, user, user_bytes, out, add_special);
    } else {
        char name[80];
        return ln_fail(err, LN_EUNSUPPORTED, "model_type '%s' has no fixed chat form; continue raw text with --raw",
                       ln_excerpt(name, model_type, strlen(model_type)));
    }
    return out->failed ? LN_OOM(err, "a prompt") : LN_OK;
}
