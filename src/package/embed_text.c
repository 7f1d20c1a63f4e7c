/* Turns a text that is embedded into token ids: with a prompt before it, in lower case and cut to the longest
 * text if the model's files say so. */
#include "package.h"

#include "../model/spec.h"

#include <string.h>

/* The tokenizer of texts that are embedded. */
static const ln_tok *tokenizer(const ln_package *m) { return m->lower_tok ? m->lower_tok : m->tok; }

/* Stores how many tokens of a text belong to the prompt: those of the prompt alone, with the special tokens
 * before it and without one after it. */
static ln_status count_prompt(const ln_package *m, const char *prompt, size_t bytes, int64_t *out,
                              ln_error *err) {
    const ln_tok *tok = tokenizer(m);
    ln_ids ids = {0};
    const ln_status st = ln_tok_encode(tok, prompt, bytes, true, &ids, err);
    *out = (int64_t)ids.n;
    if (ids.n > 0 && ln_tok_is_special(tok, ids.data[ids.n - 1])) --*out;
    ln_ids_free(&ids);
    return st;
}

ln_status ln_package_encode_embedded(const ln_package *m, const ln_embedded_text *t, ln_ids *out,
                                     int64_t *n_prompt, int64_t *n_cut, ln_error *err) {
    const ln_emb_files *f = &m->embedding;
    ln_str joined = {0};
    size_t cut = 0;
    ln_status st = LN_OK;
    *n_prompt = 0;
    LN_TRY(ln_package_check_text("the text", t->text, t->bytes, err));
    if (t->prompt_bytes > 0) {
        ln_str_add(&joined, t->prompt, t->prompt_bytes);
        ln_str_add(&joined, t->text, t->bytes);
        if (joined.failed) LN_GO(LN_OOM(err, "a text with its prompt"));
        if (f->skip_prompt) LN_GO(count_prompt(m, t->prompt, t->prompt_bytes, n_prompt, err));
    }
    const char *text = joined.data ? joined.data : t->text;
    const size_t bytes = joined.data ? joined.len : t->bytes;
    const ln_tok_limit limit = {f->max_tokens ? (size_t)f->max_tokens : SIZE_MAX, f->cut_left};
    LN_GO(ln_tok_encode_limited(tokenizer(m), text, bytes, &limit, out, &cut, err));
    *n_cut = (int64_t)cut;
out:
    ln_str_free(&joined);
    return st;
}
