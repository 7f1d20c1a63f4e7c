/* Generates text after one prompt: prefill in chunks, then a loop that samples a token, detokenises it, tests
 * the stop conditions and runs a step.
 *
 * The last token that n_max or the context allows is never run through the model: that saves a forward pass,
 * and the token needs no position of the context. Times exclude the caller's callbacks. A cancelled
 * generation is a result, not an error; an error in mid-generation comes with the text before it.
 *
 * Text goes through three filters: the detokenizer; reasoning.c, which splits off the reasoning; stop_text.c,
 * which sees the answer alone. */
#include "engine.h"

#include <sys/random.h>

/* RAW_TOKENS: the default of n_max for text without a chat template. */
enum { RAW_TOKENS = 256, MOST_STOPS = 16 + LN_STOP_MOST, MOST_END_IDS = LN_COUNT(((ln_genconfig *)0)->eos) };

typedef struct generation {
    ln_eng *e;
    const ln_sampling *how;
    int64_t n_max;                /* maximum number of tokens to generate */
    int32_t stop_ids[MOST_STOPS]; /* ids of stop texts that are single tokens without a text in the answer */
    int n_stop_ids;
    int32_t end_ids[MOST_END_IDS]; /* the model's stop ids, see find_end_ids */
    int n_end_ids;
    ln_text_fn *on_text;
    void *user;
    uint64_t seed;
    ln_ids all; /* prompt and generated tokens */
    size_t n_prompt;
    uint64_t *ends; /* [generated tokens] bytes that the detokenizer had given after each of them */
    size_t cap_ends;
    ln_detok detok;
    ln_reasoning think;
    ln_stop stop;
    const char **stops; /* stop texts of caller and model together; NULL: the caller's alone */
    ln_str text, reasoning;
    int64_t n_reasoning; /* generated tokens of reasoning */
    ln_ids end;          /* tokens that are forced when the budget of reasoning is spent: its end delimiter */
    size_t n_forced;     /* how many of them were taken */
    uint64_t detokenised; /* bytes that the detokenizer has given */
    ln_finish finish;
    bool refused;          /* a callback asked to stop, or failed */
    double caller_seconds; /* time spent in callbacks */
} generation;

/* Appends a piece of text to *all and hands it to the callback fn, unless that is NULL. */
static ln_status show(generation *g, ln_str *all, const ln_str *piece, ln_text_fn *fn, ln_error *err) {
    if (piece->len == 0) return LN_OK;
    ln_str_add(all, piece->data, piece->len);
    if (all->failed) return LN_OOM(err, "generated text");
    if (!fn || g->refused) return LN_OK; /* a callback that asked to stop is not called again */
    double start = ln_now();
    ln_status said = LN_CALLBACK(fn(g->user, piece->data, piece->len, err));
    g->caller_seconds += ln_now() - start;
    g->refused = said != LN_OK;
    return said == LN_ECANCELLED ? LN_OK : said;
}

/* Hands on what reasoning.c has split: the reasoning at once, the answer through stop_text.c. */
static ln_status show_both(generation *g, ln_error *err) {
    LN_TRY(show(g, &g->reasoning, &g->think.reasoning, g->how->on_reasoning, err));
    LN_TRY(ln_stop_push(&g->stop, g->think.answer.data, g->think.answer.len, err));
    return show(g, &g->text, &g->stop.ready, g->on_text, err);
}

static bool is_among(const int32_t *ids, int n, int32_t id) {
    for (int i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

static bool is_stop_id(const generation *g, int32_t id) {
    return is_among(g->stop_ids, g->n_stop_ids, id) ||
           (!g->how->ignore_eos && is_among(g->end_ids, g->n_end_ids, id));
}

/* Finds the stop texts that cannot occur in the answer's text, because they are tokens that it leaves out:
 * special tokens and the delimiters of reasoning. Their ids end the generation instead. */
static void find_stop_ids(generation *g) {
    const ln_tok *tok = g->e->model->tok;
    const ln_reasoning_delims *delims = g->think.delims;
    g->n_stop_ids = 0;
    for (size_t i = 0; i < g->stop.n_texts && g->n_stop_ids < MOST_STOPS; i++) {
        const char *text = g->stop.texts[i];
        int32_t id = ln_tok_id(tok, text, strlen(text));
        bool is_mark = delims && (strcmp(text, delims->open) == 0 || strcmp(text, delims->end) == 0);
        if (id >= 0 && (is_mark || ln_tok_is_special(tok, id))) g->stop_ids[g->n_stop_ids++] = id;
    }
}

/* Collects the model's stop ids. ignore_eos excludes them from the text, except those that the caller names
 * as stop texts: they must be generated to end it. */
static void find_end_ids(generation *g) {
    const ln_genconfig *c = &g->e->model->gen;
    g->n_end_ids = 0;
    for (int i = 0; i < c->n_eos; i++) {
        bool named = false;
        for (size_t k = 0; k < g->how->n_stop; k++)
            named =
                named || ln_tok_id(g->e->model->tok, g->how->stop[k], strlen(g->how->stop[k])) == c->eos[i];
        if (!(named && g->how->ignore_eos)) g->end_ids[g->n_end_ids++] = c->eos[i];
    }
}

/* The special token in a stop text that is more than that token, -1: none. Such a text never occurs, because
 * the text leaves special tokens out. */
static ln_status mixed_token(const generation *g, const char *text, int32_t *id, ln_error *err) {
    const ln_tok *tok = g->e->model->tok;
    ln_ids ids = {0};
    *id = -1;
    if (ln_tok_id(tok, text, strlen(text)) >= 0) return LN_OK;
    ln_status st = ln_tok_encode(tok, text, strlen(text), false, &ids, err);
    for (size_t i = 0; st == LN_OK && *id < 0 && i < ids.n; i++)
        if (ln_tok_is_special(tok, ids.data[i]) || is_among(g->detok.keep, 2, ids.data[i])) *id = ids.data[i];
    ln_ids_free(&ids);
    return st == LN_EINVALID ? LN_OK : st; /* no text that the tokenizer knows: it has no special token */
}

/* Warns about stop texts that never occur, once as long as they are the same. */
static ln_status warn_of_mixed(generation *g, ln_error *err) {
    uint64_t hash = 1;
    int32_t id[MOST_STOPS] = {0};
    for (size_t i = 0; i < LN_MIN(g->stop.n_texts, (size_t)MOST_STOPS); i++) {
        LN_TRY(mixed_token(g, g->stop.texts[i], &id[i], err));
        for (const char *c = g->stop.texts[i]; id[i] >= 0 && *c; c++)
            hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3); /* FNV-1a */
    }
    for (size_t i = 0; hash != g->e->stops_warned && i < LN_MIN(g->stop.n_texts, (size_t)MOST_STOPS); i++) {
        char shown[80], token[80];
        size_t bytes = 0;
        const char *name = id[i] >= 0 ? ln_tok_content(g->e->model->tok, id[i], &bytes) : NULL;
        if (!name) continue;
        ln_log(LN_LOG_WARN,
               "%s '%s' never ends the text: it contains the special token %s, which the text leaves out; a "
               "stop text that is this token alone ends the text there",
               i < g->how->n_stop ? "ln_sampling.stop" : "stop_strings of generation_config.json:",
               ln_excerpt(shown, g->stop.texts[i], strlen(g->stop.texts[i])), ln_excerpt(token, name, bytes));
    }
    g->e->stops_warned = hash;
    return LN_OK;
}

/* Appends a sampled token and hands on its text; sets *done when it ends the generation. */
static ln_status take(generation *g, int32_t id, bool *done, ln_error *err) {
    if (is_stop_id(g, id)) {
        g->finish = LN_FINISH_STOP;
        *done = true;
        return LN_OK;
    }
    if (g->think.state == LN_REASONING_INSIDE) g->n_reasoning++;
    LN_TRY(ln_ids_add(&g->all, id, err));
    LN_TRY(ln_detok_push(&g->detok, id, err));
    size_t n = g->all.n - g->n_prompt;
    void *p = g->ends;
    LN_TRY(ln_grow(&p, &g->cap_ends, n, sizeof *g->ends, err));
    g->ends = p;
    g->detokenised += g->detok.text.len;
    g->ends[n - 1] = g->detokenised;
    LN_TRY(ln_reasoning_push(&g->think, g->detok.text.data, g->detok.text.len, err));
    LN_TRY(show_both(g, err));
    if (g->stop.hit) {
        g->finish = LN_FINISH_STOP;
        *done = true;
    } else if (g->refused || ln_eng_cancelled(g->e)) {
        g->finish = LN_FINISH_CANCELLED;
        *done = true;
    } else if ((int64_t)n >= g->n_max || (int64_t)g->all.n > g->e->run->opt.n_ctx) {
        g->finish = LN_FINISH_LENGTH;
        *done = true;
    }
    return LN_OK;
}

/* Chooses the next token: a sampled one or, once the budget of reasoning is spent, the tokens of its end
 * delimiter one after the other. */
static ln_status choose(generation *g, int32_t *id, ln_error *err) {
    ln_eng *e = g->e;
    bool spent = g->how->has_think_budget && g->think.state == LN_REASONING_INSIDE &&
                 g->n_reasoning >= g->how->think_budget;
    if ((spent || g->n_forced > 0) && g->n_forced < g->end.n) {
        *id = g->end.data[g->n_forced++];
        return LN_OK;
    }
    return ln_eng_choose(e, 0, g->how, g->seed, g->all.data, (int64_t)g->all.n,
                         (int64_t)(g->all.n - g->n_prompt), g->end_ids, g->n_end_ids, id, err);
}

/* Generates tokens, the first from the prefill's logits; *first becomes the seconds to the first token. */
static ln_status decode(generation *g, double *first, ln_error *err) {
    ln_eng *e = g->e;
    bool done = false;
    double start = ln_now();
    while (!done) {
        int32_t id;
        LN_TRY(choose(g, &id, err));
        if (*first < 0) *first = ln_now() - start;
        LN_TRY(take(g, id, &done, err));
        if (done) break;
        ln_batch_item f = {0, &g->all.data[g->all.n - 1], 1, LN_LOGITS_LAST};
        LN_TRY(ln_eng_step(e, LN_MODE_LOGITS, &f, 1, err));
    }
    return LN_OK;
}

/* Hands on the text that the detokenizer, reasoning.c and stop_text.c still hold back. The last bytes may
 * complete a stop text. */
static ln_status finish_text(generation *g, ln_error *err) {
    if (g->stop.hit) return LN_OK;
    LN_TRY(ln_detok_flush(&g->detok, err));
    LN_TRY(ln_reasoning_push(&g->think, g->detok.text.data, g->detok.text.len, err));
    LN_TRY(show_both(g, err));
    LN_TRY(ln_reasoning_flush(&g->think, err));
    LN_TRY(show_both(g, err));
    if (g->stop.hit) {
        g->finish = LN_FINISH_STOP;
        return LN_OK;
    }
    LN_TRY(ln_stop_flush(&g->stop, err));
    return show(g, &g->text, &g->stop.ready, g->on_text, err);
}

/* A detokenizer that leaves out special tokens but keeps the delimiters of reasoning, which reasoning.c
 * needs. */
static void open_detok(const generation *g, ln_detok *d) {
    const ln_tok *tok = g->e->model->tok;
    const ln_reasoning_delims *delims = g->think.delims;
    ln_detok_open(d, tok, true);
    if (delims)
        d->keep[0] = ln_tok_id(tok, delims->open, strlen(delims->open)),
        d->keep[1] = ln_tok_id(tok, delims->end, strlen(delims->end));
}

/* Sets up the split of a conversation's answer into reasoning and answer. The prompt's ids are known: where
 * they end with the opening delimiter, the answer begins with reasoning. */
static ln_status open_think(generation *g, const ln_prompt *p, ln_error *err) {
    const ln_package *m = g->e->model;
    bool opened = false;
    ln_str end = {0};
    if (!m->delims || !ln_package_uses_template(m, p)) return LN_OK;
    LN_TRY(ln_reasoning_opened(m->delims, m->tok, g->all.data, g->n_prompt, &opened, err));
    ln_reasoning_open(&g->think, m->delims, opened);
    open_detok(g, &g->detok);
    if (!g->how->has_think_budget) return LN_OK;
    ln_str_addf(&end, "\n%s\n\n", m->delims->end); /* with the newlines that templates write around it */
    ln_status st =
        end.failed ? LN_OOM(err, "a mark") : ln_tok_encode(m->tok, end.data, end.len, false, &g->end, err);
    ln_str_free(&end);
    return st;
}

static ln_status run_all(generation *g, const ln_prompt *p, ln_metrics *m, ln_error *err) {
    ln_eng *e = g->e;
    double start = ln_now(), first = -1;
    LN_TRY(ln_package_encode_prompt(e->model, p, &g->all, err));
    g->n_prompt = g->all.n;
    if (g->n_prompt == 0)
        return ln_fail(err, LN_EUSAGE,
                       "the prompt is empty and this model adds no token of its own; give some text");
    LN_TRY(ln_eng_check_ids(e, g->all.data, g->all.n, err));
    LN_TRY(open_think(g, p, err));
    find_stop_ids(g);
    find_end_ids(g);
    LN_TRY(warn_of_mixed(g, err));
    m->prompt_tokens = (int64_t)g->n_prompt;
    g->n_max = g->how->n_max >= 0                      ? g->how->n_max
               : ln_package_uses_template(e->model, p) ? INT64_MAX
                                                       : RAW_TOKENS;
    if (g->n_max == 0) return LN_OK;
    int64_t kept = ln_seq_match_prefix(e, 0, g->all.data, (int64_t)g->n_prompt);
    m->cached_tokens = kept;
    ln_status st = ln_eng_prefill(e, LN_MODE_LOGITS, 0, g->all.data + kept, (int64_t)g->n_prompt - kept, err);
    m->prefill_seconds = ln_now() - start;
    if (st == LN_ECANCELLED) {
        g->finish = LN_FINISH_CANCELLED;
        return LN_OK;
    }
    LN_TRY(st);
    double begin = ln_now();
    st = decode(g, &first, err);
    if (st == LN_OK) st = finish_text(g, err);
    m->decode_seconds = ln_now() - begin - g->caller_seconds;
    if (first >= 0) m->first_token_seconds = m->prefill_seconds + first;
    return st;
}

static void fill_metrics(const generation *g, ln_metrics *m) {
    m->generated_tokens = (int64_t)(g->all.n - g->n_prompt);
    m->reasoning_tokens = g->n_reasoning;
    m->load_seconds = g->e->load_seconds;
    m->total_seconds = m->prefill_seconds + m->decode_seconds;
    if (m->prefill_seconds > 0)
        m->prefill_tok_s = (double)(m->prompt_tokens - m->cached_tokens) / m->prefill_seconds;
    /* the first token comes from the prefill's logits, without a decode step */
    if (m->decode_seconds > 0 && m->generated_tokens > 1)
        m->decode_tok_s = (double)(m->generated_tokens - 1) / m->decode_seconds;
    m->active_bytes = ln_memory_resident();
    m->peak_bytes = ln_memory_peak();
}

/* Computes the bytes of text of the first n generated tokens when the text ends after them. */
static ln_status bytes_of(const generation *g, size_t n, uint64_t *bytes, ln_error *err) {
    ln_detok d;
    ln_status st = LN_OK;
    *bytes = 0;
    open_detok(g, &d);
    for (size_t i = 0; i < n; i++) {
        LN_GO(ln_detok_push(&d, g->all.data[g->n_prompt + i], err));
        *bytes += d.text.len;
    }
    LN_GO(ln_detok_flush(&d, err));
    *bytes += d.text.len;
out:
    ln_detok_close(&d);
    return st;
}

/* Computes how many generated ids the result has. Where a stop text ended the generation, ids whose text ends
 * beyond the released text belong to the stop text. So do the ids before them that hold the first bytes of
 * its first character, which the detokenizer gave only with a later token. */
static ln_status visible_ids(const generation *g, size_t *out, ln_error *err) {
    size_t n = g->all.n - g->n_prompt;
    uint64_t bytes = UINT64_MAX, shown = g->think.before + g->stop.shown;
    if (g->stop.hit) {
        while (n > 0 && g->ends[n - 1] > shown) n--;
        while (n > 0) {
            LN_TRY(bytes_of(g, n, &bytes, err));
            if (bytes <= shown) break;
            n--;
        }
    }
    *out = n;
    return LN_OK;
}

/* Copies ids and texts into *out, which then owns them; on LN_EMEMORY *out is unchanged. */
static ln_status fill_result(generation *g, ln_result *out, ln_error *err) {
    size_t n;
    LN_TRY(visible_ids(g, &n, err));
    int32_t *prompt_ids = ln_alloc((g->n_prompt + 1) * sizeof *prompt_ids),
            *ids = ln_alloc((n + 1) * sizeof *ids);
    char *text = ln_strndup(g->text.data ? g->text.data : "", g->text.len),
         *reasoning = ln_strndup(g->reasoning.data ? g->reasoning.data : "", g->reasoning.len);
    if (!prompt_ids || !ids || !text || !reasoning) {
        ln_free(prompt_ids);
        ln_free(ids);
        ln_free(text);
        ln_free(reasoning);
        return LN_OOM(err, "the result");
    }
    memcpy(prompt_ids, g->all.data, g->n_prompt * sizeof *prompt_ids);
    if (n > 0) memcpy(ids, g->all.data + g->n_prompt, n * sizeof *ids);
    out->prompt_ids = prompt_ids;
    out->ids = ids;
    out->text = text;
    out->n_prompt_ids = g->n_prompt;
    out->n_ids = n;
    out->text_bytes = g->text.len;
    out->reasoning = reasoning;
    out->reasoning_bytes = g->reasoning.len;
    out->finish = g->finish;
    out->seed = g->seed;
    fill_metrics(g, &out->metrics);
    return LN_OK;
}

/* Sets up the stop texts: the caller's and those of generation_config.json. */
static ln_status open_stop(generation *g, ln_error *err) {
    const ln_sampling *how = g->how;
    const size_t n = how->n_stop + how->n_model_stop;
    ln_stop_open(&g->stop, how->stop, how->n_stop);
    if (how->n_model_stop == 0) return LN_OK;
    g->stops = ln_alloc(n * sizeof *g->stops);
    if (!g->stops) return LN_OOM(err, "the stop texts");
    for (size_t i = 0; i < n; i++)
        g->stops[i] = i < how->n_stop ? how->stop[i] : how->model_stop[i - how->n_stop];
    ln_stop_open(&g->stop, g->stops, n);
    return LN_OK;
}

ln_status ln_eng_generate(ln_eng *e, const ln_prompt *p, const ln_sampling *how, ln_text_fn *on_text,
                          void *user, ln_result *out, ln_error *err) {
    ln_status st = LN_OK;
    generation g = {
        .e = e, .how = how, .on_text = on_text, .user = user, .seed = how->seed, .finish = LN_FINISH_LENGTH};
    memset(out, 0, sizeof *out);
    if (!how->has_seed && getrandom(&g.seed, sizeof g.seed, 0) != (ssize_t)sizeof g.seed)
        g.seed = (uint64_t)(ln_now() * 1e9);
    ln_reasoning_open(&g.think, NULL, false);
    open_detok(&g, &g.detok);
    st = open_stop(&g, err);
    if (st == LN_OK) st = run_all(&g, p, &out->metrics, err);
    if (st == LN_OK) st = fill_result(&g, out, err);
    else if (g.all.n > g.n_prompt) {
        g.finish = LN_FINISH_CANCELLED;
        (void)fill_result(&g, out, NULL); /* its error is not reported: an earlier one ended the text */
    }
    ln_stop_close(&g.stop);
    ln_reasoning_close(&g.think);
    ln_detok_close(&g.detok);
    ln_str_free(&g.text);
    ln_str_free(&g.reasoning);
    ln_ids_free(&g.all);
    ln_ids_free(&g.end);
    ln_free(g.ends);
    ln_free(g.stops);
    return st;
}
