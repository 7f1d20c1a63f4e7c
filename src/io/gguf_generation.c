/* What the metadata of a GGUF file say about generating: tokens that end an answer, and sampling.
 *
 * A file names at most one token for each purpose (eos, eot, eom), while models end answers by several, which
 * generation_config.json lists. Its readers therefore look for tokens with texts that end an answer in every
 * model that has them as a token. */
#include "gguf_generation.h"

#include <string.h>

static const char tokens_key[] = "tokenizer.ggml.tokens", types_key[] = "tokenizer.ggml.token_type";
enum { TYPE_CONTROL = 3, TYPE_USER = 4 };

/* Texts that end an answer if they are control tokens. */
static const char *const ends[] = {
    "<|eot_id|>",    "<|im_end|>",  "<|end|>",          "<|return|>",
    "<|call|>",      "<|flush|>",   "<|calls|>",        "<end_of_turn>",
    "<|endoftext|>", "</s>",        "<|eom_id|>",       "<EOT>",
    "[EOT]",         "[EOS]",       "<|end_of_text|>",  "<end_of_utterance>",
    "<eos>",         "<turn|>",     "<|tool_response>", "<｜end▁of▁sentence｜>",
    "[e~[",          "<|fim_pad|>", "<|repo_name|>",    "<|file_sep|>"};

typedef struct finding {
    const ln_gguf *g;
    ln_genconfig *out;
    int64_t vocab;
    int harmony_end; /* index in out->eos of <|end|>; -1: none */
    bool has_return, has_call;
} finding;

static ln_status add(finding *f, int64_t id, const char *key, ln_error *err) {
    char path[LN_PATH_TEXT];
    ln_genconfig *o = f->out;
    for (int i = 0; i < o->n_eos; i++)
        if (o->eos[i] == id) return LN_OK;
    if (o->n_eos == (int)LN_COUNT(o->eos))
        return ln_fail(err, LN_EINVALID,
                       "%s: key %s: expected at most %d tokens that end an answer, found more",
                       ln_path_text(path, f->g->files[0].path), key, (int)LN_COUNT(o->eos));
    o->eos[o->n_eos++] = (int32_t)id;
    return LN_OK;
}

static ln_status add_named(finding *f, ln_error *err) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    const ln_gguf_value *model = ln_gguf_find(f->g, "tokenizer.ggml.model");
    for (size_t i = 0; i < LN_COUNT(keys); i++) {
        int64_t id = -1;
        bool found;
        LN_TRY(ln_gguf_int(f->g, keys[i], 0, f->vocab - 1, &id, &found, err));
        if (i == 0 && !found && model && model->type == LN_GGUF_TEXT) { /* SentencePiece's usual one */
            const ln_gguf_text name = ln_gguf_text_at(model, 0);
            if (name.bytes == 5 && memcmp(name.data, "llama", 5) == 0 && f->vocab > 2) id = 2;
        }
        if (id >= 0) LN_TRY(add(f, id, keys[i], err));
    }
    return LN_OK;
}

static bool is_text(const ln_gguf_text *t, const char *text) {
    return t->bytes == strlen(text) && memcmp(t->data, text, t->bytes) == 0;
}

static ln_status add_by_text(finding *f, uint64_t i, const ln_gguf_text *text, ln_error *err) {
    if (text->bytes < 3 || (text->data[0] != '<' && text->data[0] != '[')) return LN_OK;
    for (size_t k = 0; k < LN_COUNT(ends); k++) {
        if (!is_text(text, ends[k])) continue;
        f->has_return |= is_text(text, "<|return|>");
        f->has_call |= is_text(text, "<|call|>") || is_text(text, "<|calls|>");
        LN_TRY(add(f, (int64_t)i, tokens_key, err));
        if (is_text(text, "<|end|>")) f->harmony_end = f->out->n_eos - 1;
        return LN_OK;
    }
    return LN_OK;
}

static ln_status scan_tokens(finding *f, ln_error *err) {
    const ln_gguf_value *tokens, *types;
    LN_TRY(ln_gguf_array(f->g, tokens_key, LN_GGUF_TEXT, &tokens, err));
    LN_TRY(ln_gguf_array(f->g, types_key, LN_GGUF_I64, &types, err));
    if (!tokens || !types || types->n != tokens->n) return LN_OK; /* reported by the tokenizer */
    for (uint64_t i = 0; i < tokens->n && (int64_t)i < f->vocab; i++) {
        const int64_t type = ln_gguf_int_at(types, i);
        if (type != TYPE_CONTROL && type != TYPE_USER) continue;
        const ln_gguf_text text = ln_gguf_text_at(tokens, i);
        LN_TRY(add_by_text(f, i, &text, err));
    }
    return LN_OK;
}

/* Removes <|end|>, which ends a part of an answer, if the vocabulary has the tokens that end a whole one. */
static void drop_end_of_part(finding *f) {
    ln_genconfig *o = f->out;
    if (f->harmony_end < 0 || !f->has_return || !f->has_call) return;
    memmove(o->eos + f->harmony_end, o->eos + f->harmony_end + 1,
            (size_t)(o->n_eos - f->harmony_end - 1) * sizeof *o->eos);
    o->n_eos--;
}

static ln_status read_sampling(finding *f, ln_error *err) {
    ln_genconfig *o = f->out;
    int64_t top_k = o->top_k;
    bool found[5];
    LN_TRY(ln_gguf_real(f->g, "general.sampling.temp", &o->temperature, &found[0], err));
    LN_TRY(ln_gguf_int(f->g, "general.sampling.top_k", -1, INT32_MAX, &top_k, &found[1], err));
    LN_TRY(ln_gguf_real(f->g, "general.sampling.top_p", &o->top_p, &found[2], err));
    LN_TRY(ln_gguf_real(f->g, "general.sampling.min_p", &o->min_p, &found[3], err));
    LN_TRY(ln_gguf_real(f->g, "general.sampling.penalty_repeat", &o->repeat_penalty, &found[4], err));
    const struct {
        const char *key;
        double value, lo, hi;
    } ranges[] = {{"general.sampling.temp", o->temperature, 0, 1e6},
                  {"general.sampling.top_p", o->top_p, 0, 1},
                  {"general.sampling.min_p", o->min_p, 0, 1},
                  {"general.sampling.penalty_repeat", o->repeat_penalty, 1e-6, 1e6}};
    for (size_t i = 0; i < LN_COUNT(ranges); i++)
        if (!(ranges[i].value >= ranges[i].lo && ranges[i].value <= ranges[i].hi))
            return ln_gguf_fail(f->g, ranges[i].key, "a number in its range", err);
    o->top_k = top_k < 0 ? 0 : (int)top_k;
    o->do_sample = (found[0] || found[1] || found[2] || found[3]) && o->temperature > 0;
    o->present = o->do_sample || found[4];
    return LN_OK;
}

static ln_status read_suppressed(finding *f, ln_error *err) {
    const ln_gguf_value *list;
    ln_genconfig *o = f->out;
    LN_TRY(ln_gguf_array(f->g, "tokenizer.ggml.suppress_tokens", LN_GGUF_I64, &list, err));
    if (!list || list->n == 0) return LN_OK;
    o->suppress = ln_arena_alloc(&o->arena, (size_t)list->n * sizeof *o->suppress);
    if (!o->suppress) return LN_OOM(err, "tokens that are not generated");
    for (uint64_t i = 0; i < list->n; i++) {
        const int64_t id = ln_gguf_int_at(list, i);
        if (id >= 0 && id < f->vocab) o->suppress[o->n_suppress++] = (int32_t)id;
    }
    o->present = o->present || o->n_suppress > 0;
    return LN_OK;
}

ln_status ln_genconfig_of_gguf(ln_genconfig *out, const char *path, int64_t vocab, ln_error *err) {
    ln_gguf *g;
    LN_TRY(ln_gguf_open(&g, path, err));
    finding f = {.g = g, .out = out, .vocab = vocab, .harmony_end = -1};
    int64_t bos = -1;
    ln_status st;
    LN_GO(ln_gguf_int(g, "tokenizer.ggml.bos_token_id", 0, vocab - 1, &bos, NULL, err));
    out->bos = (int32_t)bos;
    LN_GO(add_named(&f, err));
    LN_GO(scan_tokens(&f, err));
    drop_end_of_part(&f);
    LN_GO(read_sampling(&f, err));
    LN_GO(read_suppressed(&f, err));
out:
    ln_gguf_close(&g);
    return st;
}
