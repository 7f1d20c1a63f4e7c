/* Texts that the model writes while it trains, to watch what it learns (contract: trainer.h).
 *
 * They are computed by a forward pass over the whole text, as a validation is, so that they need no keys and
 * values and are exact for every method. A pass checks as many guessed tokens as there are: those of the
 * sample, then those of the text before. A text that repeats them takes one pass, another one a pass for each
 * token at most; the text is the same whatever was guessed. */
#include "trainer.h"

#include <string.h>

enum {
    SHORT = 256,    /* tokens of a prompt that is chosen from the data, if one is so short */
    BEGINNING = 16, /* tokens of a prompt if all tokens of samples count */
    LEAST_GUESSED = 4
};

/* ---- prompts ---- */

static ln_status bad_option(const char *name, const char *expected, ln_error *err) {
    return ln_fail(err, LN_EUSAGE, "ln_trainer_options.%s: expected %s", name, expected);
}

ln_status train_prompts_check(const ln_trainer_options *o, ln_error *err) {
    if (o->sample_every < 0) return bad_option("sample_every", "at least 0", err);
    if (o->sample_tokens < 1 || o->sample_tokens > 4096) return bad_option("sample_tokens", "1 to 4096", err);
    if (o->n_sample_prompts > 0 && o->sample_every == 0)
        return bad_option("sample_every", "above 0, because ln_trainer_options.sample_prompts is set", err);
    bool good = o->n_sample_prompts <= TRAIN_MOST_PROMPTS && (!o->n_sample_prompts || o->sample_prompts);
    for (size_t i = 0; good && i < o->n_sample_prompts; i++) good = o->sample_prompts[i];
    return good ? LN_OK : bad_option("sample_prompts", "at most 64 texts", err);
}

static ln_status keep_prompt(train_trainer *t, train_prompt *p, const int32_t *ids, size_t n,
                             const char *text, size_t bytes, ln_error *err) {
    const size_t most = (size_t)t->how.sample_tokens;
    if (n + most > (size_t)t->m->spec.n_ctx)
        return ln_fail(err, LN_EUSAGE,
                       "ln_trainer_options.sample_tokens: a prompt of %zu tokens and %zu more exceed the "
                       "context of %lld tokens",
                       n, most, (long long)t->m->spec.n_ctx);
    p->text = ln_arena_strndup(&t->arena, text, bytes);
    p->bytes = bytes;
    p->ids = ln_arena_alloc(&t->arena, (n + most) * sizeof *p->ids);
    p->n_prompt = (int32_t)n;
    if (!p->text || !p->ids) return LN_OOM(err, "a prompt");
    memcpy(p->ids, ids, n * sizeof *ids);
    t->program_options.n_text = LN_MAX(t->program_options.n_text, (int)(n + most - 1));
    return LN_OK;
}

/* Reads a prompt of the caller as samples are read. */
static ln_status read_prompt(train_trainer *t, train_prompt *p, const char *text, ln_error *err) {
    const bool talks = t->m->tmpl && (t->data.kind == TRAIN_CHAT || t->data.kind == TRAIN_PAIR);
    const ln_message turn = {"user", text, strlen(text)};
    const ln_conversation talk = {.messages = &turn, .n_messages = 1, .now = t->time};
    ln_ids ids = {0};
    ln_status st = talks ? ln_model_template_encode(t->m->tmpl, t->m->tok, &talk, &ids, err)
                         : train_text_ids(t->m, text, turn.content_bytes, &ids, err);
    if (st == LN_OK) st = train_ids_check(t->m, &ids, err);
    if (st == LN_OK && ids.n == 0)
        st = ln_fail(err, LN_EUSAGE, "ln_trainer_options.sample_prompts: expected texts, found an empty one");
    if (st == LN_OK) st = keep_prompt(t, p, ids.data, ids.n, text, turn.content_bytes, err);
    ln_ids_free(&ids);
    return st;
}

/* Returns the tokens of a sample before the first one that counts or, if all count, its beginning. */
static uint32_t prompt_of(const train_data *d, const train_sample *s) {
    uint32_t n = 1;
    while (n < s->n && !(d->ids[s->at + n] & TRAIN_COUNTED)) n++;
    return n > 1 ? n : LN_MAX(1u, LN_MIN((uint32_t)BEGINNING, s->n / 2));
}

/* Returns the sample whose prompt is taken: the first with a short one, else that with the shortest. */
static const train_sample *choose_sample(const train_trainer *t, const train_data **d) {
    const bool holds = t->n_valid > 0;
    const uint32_t *rows = holds ? t->valid_rows : t->train_rows;
    const size_t n = holds ? t->n_valid : t->n_train, per = train_per_unit(t);
    const train_sample *best = NULL;
    *d = holds && !t->valid_is_split ? &t->valid : &t->data;
    for (size_t i = 0; i < n && (!best || prompt_of(*d, best) > SHORT); i++) {
        const train_sample *s = &(*d)->samples[per * rows[i]];
        if (!best || prompt_of(*d, s) < prompt_of(*d, best)) best = s;
    }
    return best;
}

/* Copies the prompt of a sample; what it goes on with is the first guess. */
static ln_status take_prompt(train_trainer *t, train_prompt *p, ln_error *err) {
    const train_data *d;
    const train_sample *s = choose_sample(t, &d);
    const uint32_t n = prompt_of(d, s);
    ln_str text = {0};
    ln_ids ids = {0};
    ln_status st = LN_OK;
    for (uint32_t k = 0; k < s->n && st == LN_OK; k++)
        st = ln_ids_add(&ids, (int32_t)(d->ids[s->at + k] & ~TRAIN_COUNTED), err);
    if (st == LN_OK) st = ln_tok_decode(t->m->tok, ids.data, n, false, &text, err);
    if (st == LN_OK) st = keep_prompt(t, p, ids.data, n, text.data ? text.data : "", text.len, err);
    if (st == LN_OK) {
        p->n_guess = LN_MIN((int32_t)(s->n - n), (int32_t)t->how.sample_tokens);
        memcpy(p->ids + n, ids.data + n, (size_t)p->n_guess * sizeof *p->ids);
    }
    ln_str_free(&text);
    ln_ids_free(&ids);
    return st;
}

ln_status train_prompts_read(train_trainer *t, ln_error *err) {
    const ln_trainer_options *o = &t->how;
    if (o->sample_every == 0) return LN_OK;
    const size_t n = LN_MAX(o->n_sample_prompts, (size_t)1);
    t->prompts = ln_arena_alloc(&t->arena, n * sizeof *t->prompts);
    t->next = ln_arena_alloc(&t->arena, (size_t)o->sample_tokens * sizeof *t->next);
    if (!t->prompts || !t->next) return LN_OOM(err, "prompts");
    memset(t->prompts, 0, n * sizeof *t->prompts);
    for (size_t i = 0; i < o->n_sample_prompts; i++)
        LN_TRY(read_prompt(t, &t->prompts[i], o->sample_prompts[i], err));
    if (o->n_sample_prompts == 0) LN_TRY(take_prompt(t, &t->prompts[0], err));
    t->n_prompts = n;
    t->program_options.n_predicted = o->sample_tokens;
    return LN_OK;
}

/* ---- texts ---- */

static bool is_stop(const train_trainer *t, int32_t id) {
    for (int i = 0; i < t->m->gen.n_eos; i++)
        if (t->m->gen.eos[i] == id) return true;
    return false;
}

/* Appends predicted tokens, n of which were guessed, to a text of `have` tokens: those whose guesses before
 * them were right. The rest become guesses. Returns how many were taken; *ended: the last one
 * ends the text. */
static int32_t take_tokens(const train_trainer *t, train_prompt *p, int32_t have, int32_t n, bool *ended) {
    int32_t *ids = p->ids + p->n_prompt + have, taken = 0;
    for (bool right = true; right && taken <= n && !*ended; taken++) {
        const int32_t id = t->next[taken];
        right = taken < n && ids[taken] == id;
        *ended = id < 0 || is_stop(t, id);
        ids[taken] = id;
    }
    for (int32_t i = taken; i <= n; i++) ids[i] = LN_MAX(t->next[i], 0);
    p->n_guess = LN_MIN(n + 1 - taken, LN_MAX((int32_t)LEAST_GUESSED, 2 * taken));
    return taken;
}

ln_status train_text(train_trainer *t, size_t i, ln_str *text, ln_text_report *out, ln_error *err) {
    train_prompt *p = &t->prompts[i];
    const int32_t most = (int32_t)t->how.sample_tokens;
    int32_t have = 0;
    bool ended = false;
    while (have < most && !ended) {
        const int32_t n = LN_MIN(p->n_guess, most - have - 1);
        const ln_train_text all = {.ids = p->ids, .n = p->n_prompt + have + n, .n_prompt = p->n_prompt};
        LN_TRY(ln_train_predict(t->program, &all, t->next, n + 1, err));
        have += take_tokens(t, p, have, n, &ended);
    }
    const bool broken = p->ids[p->n_prompt + have - 1] < 0; /* the logits are NaN */
    p->n_guess = have - broken;
    have -= ended;
    LN_TRY(ln_tok_decode(t->m->tok, p->ids + p->n_prompt, (size_t)have, true, text, err));
    *out = (ln_text_report){.size = sizeof *out,
                            .step = t->state.step,
                            .index = i,
                            .n = t->n_prompts,
                            .prompt = p->text,
                            .prompt_bytes = p->bytes,
                            .text = text->data ? text->data : "",
                            .text_bytes = text->len,
                            .n_tokens = have,
                            .ended = ended && !broken};
    return LN_OK;
}
