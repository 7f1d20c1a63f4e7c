/* One prompt in, text out: prefill in chunks, then sample, detokenise, stop, step.
 *
 * The last allowed token is never fed: no forward pass is wasted. The clock stops while the caller's function runs. A cancelled
 * generation is a result, not an error; and an error in its middle comes with the text before it. */
#include "engine.h"

#include <sys/random.h>

ln_status ln_said(ln_status said, ln_error *err) {
    if (said == LN_OK || said == LN_ECANCELLED) return said;
    err->code = said;
    err->message[sizeof err->message - 1] = '\0';
    if (err->message[0]) return said;
    return ln_fail(err, said, "the caller's function failed with status %d", said);
}

typedef struct generation {
    ln_eng *e;
    const ln_sampling *how;
    ln_text_fn *on_text;
    void *user;
    uint64_t seed;
    ln_ids all;           /* prompt and generated */
    size_t n_prompt;
    uint64_t *ends;       /* bytes of text certain or pending after each generated token */
    size_t cap_ends;
    ln_detok detok;
    ln_stop stop;
    ln_str text;
    uint64_t detokenised; /* bytes that came out of the detokenizer */
    ln_finish finish;
    bool refused;         /* the caller's function said stop, or failed */
    double caller_seconds;
} generation;

static ln_status show(generation *g, ln_error *err) {
    if (g->stop.ready.len == 0) return LN_OK;
    ln_str_add(&g->text, g->stop.ready.data, g->stop.ready.len);
    if (g->text.failed) return LN_OOM(err, "generated text");
    if (!g->on_text || g->refused) return LN_OK; /* who said stop is not called again */
    double start = ln_now();
    ln_status said = LN_CALL(g->on_text(g->user, g->stop.ready.data, g->stop.ready.len, err));
    g->caller_seconds += ln_now() - start;
    g->refused = said != LN_OK;
    return said == LN_ECANCELLED ? LN_OK : said;
}

static bool is_stop_id(const generation *g, int32_t id) {
    const ln_genconfig *c = &g->e->model->gen;
    for (int i = 0; i < c->n_eos; i++)
        if (c->eos[i] == id) return true;
    return false;
}

/* Takes a sampled token: its text may be shown, held back, or end the generation (*done). */
static ln_status take(generation *g, int32_t id, bool *done, ln_error *err) {
    if (!g->how->ignore_eos && is_stop_id(g, id)) {
        g->finish = LN_FINISH_STOP;
        *done = true;
        return LN_OK;
    }
    LN_TRY(ln_ids_add(&g->all, id, err));
    LN_TRY(ln_detok_push(&g->detok, id, err));
    size_t n = g->all.n - g->n_prompt;
    void *p = g->ends;
    LN_TRY(ln_grow(&p, &g->cap_ends, n, sizeof *g->ends, err));
    g->ends = p;
    g->detokenised += g->detok.text.len;
    g->ends[n - 1] = g->detokenised;
    LN_TRY(ln_stop_push(&g->stop, g->detok.text.data, g->detok.text.len, err));
    LN_TRY(show(g, err));
    if (g->stop.hit) {
        g->finish = LN_FINISH_STOP;
        *done = true;
    } else if (g->refused || ln_eng_cancelled(g->e)) {
        g->finish = LN_FINISH_CANCELLED;
        *done = true;
    } else if ((int64_t)n >= g->how->n_max || (int64_t)g->all.n >= g->e->run->opt.n_ctx) {
        g->finish = LN_FINISH_LENGTH;
        *done = true;
    }
    return LN_OK;
}

static ln_status decode(generation *g, double *first, ln_error *err) {
    ln_eng *e = g->e;
    bool done = false;
    double start = ln_now();
    while (!done) {
        int32_t id;
        LN_TRY(ln_run_logits(e->run, 0, e->logits, err));
        LN_TRY(ln_sample(e->sampler, e->logits, g->how, g->seed, g->all.data, (int64_t)g->all.n, (int64_t)(g->all.n - g->n_prompt), e->model->gen.eos,
                         e->model->gen.n_eos, &id, err));
        if (*first < 0) *first = ln_now() - start;
        LN_TRY(take(g, id, &done, err));
        if (done) break;
        ln_feed f = {0, &g->all.data[g->all.n - 1], 1, LN_WANT_LAST};
        LN_TRY(ln_eng_step(e, LN_MODE_LOGITS, &f, 1, err));
    }
    return LN_OK;
}

/* What the detokenizer and the stop texts still hold back. A stop text may complete with the last bytes. */
static ln_status finish_text(generation *g, ln_error *err) {
    if (g->stop.hit) return LN_OK;
    LN_TRY(ln_detok_flush(&g->detok, err));
    LN_TRY(ln_stop_push(&g->stop, g->detok.text.data, g->detok.text.len, err));
    LN_TRY(show(g, err));
    if (g->stop.hit) {
        g->finish = LN_FINISH_STOP;
        return LN_OK;
    }
    LN_TRY(ln_stop_flush(&g->stop, err));
    return show(g, err);
}

static ln_status run_all(generation *g, const ln_prompt *p, ln_metrics *m, ln_error *err) {
    ln_eng *e = g->e;
    double start = ln_now(), first = -1;
    LN_TRY(ln_loaded_prompt(e->model, p, &g->all, err));
    g->n_prompt = g->all.n;
    if (g->n_prompt == 0) return ln_fail(err, LN_EUSAGE, "the prompt is empty and this model adds no token of its own; give some text");
    LN_TRY(ln_eng_check_ids(e, g->all.data, g->all.n, err));
    m->prompt_tokens = (int64_t)g->n_prompt;
    if (g->how->n_max <= 0) return LN_OK;
    int64_t kept = ln_seq_sync(e, 0, g->all.data, (int64_t)g->n_prompt);
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
    m->load_seconds = g->e->load_seconds;
    m->total_seconds = m->prefill_seconds + m->decode_seconds;
    if (m->prefill_seconds > 0) m->prefill_tok_s = (double)(m->prompt_tokens - m->cached_tokens) / m->prefill_seconds;
    /* the first token comes out of the prefill's logits */
    if (m->decode_seconds > 0 && m->generated_tokens > 1) m->decode_tok_s = (double)(m->generated_tokens - 1) / m->decode_seconds;
    m->active_bytes = ln_memory_resident();
    m->peak_bytes = ln_memory_peak();
}

/* Bytes of the first n generated tokens when nothing follows them. */
static ln_status bytes_of(const generation *g, size_t n, uint64_t *bytes, ln_error *err) {
    ln_detok d;
    ln_status st = LN_OK;
    *bytes = 0;
    ln_detok_open(&d, g->e->model->tok, true);
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

/* Ids whose text ends after the shown text belong to the stop text; so do those before them that hold the first bytes of its first
 * character, which came out only later. */
static ln_status visible_ids(const generation *g, size_t *out, ln_error *err) {
    size_t n = g->all.n - g->n_prompt;
    uint64_t bytes = UINT64_MAX;
    if (g->stop.hit) {
        while (n > 0 && g->ends[n - 1] > g->stop.shown) n--;
        while (n > 0) {
            LN_TRY(bytes_of(g, n, &bytes, err));
            if (bytes <= g->stop.shown) break;
            n--;
        }
    }
    *out = n;
    return LN_OK;
}

static ln_status fill_result(generation *g, ln_result *out, ln_error *err) {
    size_t n;
    LN_TRY(visible_ids(g, &n, err));
    int32_t *prompt_ids = ln_alloc((g->n_prompt + 1) * sizeof *prompt_ids), *ids = ln_alloc((n + 1) * sizeof *ids);
    char *text = ln_strndup(g->text.data ? g->text.data : "", g->text.len);
    if (!prompt_ids || !ids || !text) {
        ln_free(prompt_ids);
        ln_free(ids);
        ln_free(text);
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
    out->finish = g->finish;
    out->seed = g->seed;
    fill_metrics(g, &out->metrics);
    return LN_OK;
}

ln_status ln_eng_generate(ln_eng *e, const ln_prompt *p, const ln_sampling *how, ln_text_fn *on_text, void *user, ln_result *out, ln_error *err) {
    ln_status st = LN_OK;
    generation g = {.e = e, .how = how, .on_text = on_text, .user = user, .seed = how->seed, .finish = LN_FINISH_LENGTH};
    memset(out, 0, sizeof *out);
    if (!how->has_seed && getrandom(&g.seed, sizeof g.seed, 0) != (ssize_t)sizeof g.seed) g.seed = (uint64_t)(ln_now() * 1e9);
    ln_detok_open(&g.detok, e->model->tok, true);
    ln_stop_open(&g.stop, how->stop, how->n_stop);
    st = run_all(&g, p, &out->metrics, err);
    if (st == LN_OK) st = fill_result(&g, out, err);
    else if (g.all.n > g.n_prompt) {
        g.finish = LN_FINISH_CANCELLED;
        (void)fill_result(&g, out, NULL); /* the error that ended it is the one to report */
    }
    ln_stop_close(&g.stop);
    ln_detok_close(&g.detok);
    ln_str_free(&g.text);
    ln_ids_free(&g.all);
    ln_free(g.ends);
    return st;
}
