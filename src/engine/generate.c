/* One prompt in, text out: prefill in chunks, then sample, detokenise, stop, step.
 *
 * The last allowed token is never fed: no forward pass is wasted, and it needs no position of the context.
 * The clock stops while the caller's function runs. A cancelled generation is a result, not an error; and an
 * error in its middle comes with the text before it.
 *
 * Text passes the detokenizer, then think.c, which takes the reasoning out, then stop.c, which looks at the
 * answer alone. */
#include "engine.h"

#include <sys/random.h>

ln_status ln_said(ln_status said, ln_error *err) {
    if (said == LN_OK || said == LN_ECANCELLED) return said;
    err->code = said;
    err->message[sizeof err->message - 1] = '\0';
    if (err->message[0]) return said;
    return ln_fail(err, said, "the caller's function failed with status %d", said);
}

enum { RAW_TOKENS = 256, MOST_STOPS = 16 + LN_STOP_MOST };

typedef struct generation {
    ln_eng *e;
    const ln_sampling *how;
    int64_t n_max;                /* tokens */
    int32_t stop_ids[MOST_STOPS]; /* of stop texts that are tokens of their own */
    int n_stop_ids;
    ln_text_fn *on_text;
    void *user;
    uint64_t seed;
    ln_ids all;           /* prompt and generated */
    size_t n_prompt;
    uint64_t *ends;       /* bytes of text certain or pending after each generated token */
    size_t cap_ends;
    ln_detok detok;
    ln_think think;
    ln_stop stop;
    const char **stops;   /* the caller's and the model's, where there are both */
    ln_str text, reasoning;
    int64_t n_reasoning;  /* tokens */
    ln_ids end;           /* what ends the reasoning when its budget is spent, */
    size_t n_forced;      /* and how many of them were taken */
    uint64_t detokenised; /* bytes that came out of the detokenizer */
    ln_finish finish;
    bool refused;         /* the caller's function said stop, or failed */
    double caller_seconds;
} generation;

static ln_status show(generation *g, ln_str *all, const ln_str *piece, ln_text_fn *fn, ln_error *err) {
    if (piece->len == 0) return LN_OK;
    ln_str_add(all, piece->data, piece->len);
    if (all->failed) return LN_OOM(err, "generated text");
    if (!fn || g->refused) return LN_OK; /* who said stop is not called again */
    double start = ln_now();
    ln_status said = LN_CALL(fn(g->user, piece->data, piece->len, err));
    g->caller_seconds += ln_now() - start;
    g->refused = said != LN_OK;
    return said == LN_ECANCELLED ? LN_OK : said;
}

/* Shows what think.c gave. */
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
    const ln_genconfig *c = &g->e->model->gen;
    return is_among(g->stop_ids, g->n_stop_ids, id) ||
           (!g->how->ignore_eos && is_among(c->eos, c->n_eos, id));
}

/* Finds the stop texts that can never be met in the answer's text, because they are tokens that it leaves
 * out: special ones, and the marks around reasoning. Their ids end the generation instead. */
static void find_stop_ids(generation *g) {
    const ln_tok *tok = g->e->model->tok;
    const ln_marks *marks = g->think.marks;
    g->n_stop_ids = 0;
    for (size_t i = 0; i < g->stop.n_texts && g->n_stop_ids < MOST_STOPS; i++) {
        const char *text = g->stop.texts[i];
        int32_t id = ln_tok_id(tok, text, strlen(text));
        bool is_mark = marks && (strcmp(text, marks->open) == 0 || strcmp(text, marks->end) == 0);
        if (id >= 0 && (is_mark || ln_tok_is_special(tok, id))) g->stop_ids[g->n_stop_ids++] = id;
    }
}

/* Takes a sampled token: its text may be shown, held back, or end the generation (*done). */
static ln_status take(generation *g, int32_t id, bool *done, ln_error *err) {
    if (is_stop_id(g, id)) {
        g->finish = LN_FINISH_STOP;
        *done = true;
        return LN_OK;
    }
    if (g->think.state == LN_THINK_REASONING) g->n_reasoning++;
    LN_TRY(ln_ids_add(&g->all, id, err));
    LN_TRY(ln_detok_push(&g->detok, id, err));
    size_t n = g->all.n - g->n_prompt;
    void *p = g->ends;
    LN_TRY(ln_grow(&p, &g->cap_ends, n, sizeof *g->ends, err));
    g->ends = p;
    g->detokenised += g->detok.text.len;
    g->ends[n - 1] = g->detokenised;
    LN_TRY(ln_think_push(&g->think, g->detok.text.data, g->detok.text.len, err));
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

/* The next token: a sampled one, or, when the budget of reasoning is spent, those of the mark that ends it. */
static ln_status choose(generation *g, int32_t *id, ln_error *err) {
    ln_eng *e = g->e;
    bool spent = g->how->has_think_budget && g->think.state == LN_THINK_REASONING && g->n_reasoning >= g->how->think_budget;
    if ((spent || g->n_forced > 0) && g->n_forced < g->end.n) {
        *id = g->end.data[g->n_forced++];
        return LN_OK;
    }
    return ln_eng_choose(e, 0, g->how, g->seed, g->all.data, (int64_t)g->all.n, (int64_t)(g->all.n - g->n_prompt), id, err);
}

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
        ln_feed f = {0, &g->all.data[g->all.n - 1], 1, LN_WANT_LAST};
        LN_TRY(ln_eng_step(e, LN_MODE_LOGITS, &f, 1, err));
    }
    return LN_OK;
}

/* What the detokenizer and the stop texts still hold back. A stop text may complete with the last bytes. */
static ln_status finish_text(generation *g, ln_error *err) {
    if (g->stop.hit) return LN_OK;
    LN_TRY(ln_detok_flush(&g->detok, err));
    LN_TRY(ln_think_push(&g->think, g->detok.text.data, g->detok.text.len, err));
    LN_TRY(show_both(g, err));
    LN_TRY(ln_think_flush(&g->think, err));
    LN_TRY(show_both(g, err));
    if (g->stop.hit) {
        g->finish = LN_FINISH_STOP;
        return LN_OK;
    }
    LN_TRY(ln_stop_flush(&g->stop, err));
    return show(g, &g->text, &g->stop.ready, g->on_text, err);
}

static void open_detok(const generation *g, ln_detok *d) {
    const ln_tok *tok = g->e->model->tok;
    const ln_marks *marks = g->think.marks;
    ln_detok_open(d, tok, true);
    if (marks) d->keep[0] = ln_tok_id(tok, marks->open, strlen(marks->open)), d->keep[1] = ln_tok_id(tok, marks->end, strlen(marks->end));
}

/* What a conversation's answer is split by, once the prompt's ids are known. */
static ln_status open_think(generation *g, const ln_prompt *p, ln_error *err) {
    const ln_loaded *m = g->e->model;
    bool opened = false;
    ln_str end = {0};
    if (!m->marks || !ln_loaded_chats(m, p)) return LN_OK;
    LN_TRY(ln_marks_opened(m->marks, m->tok, g->all.data, g->n_prompt, &opened, err));
    ln_think_open(&g->think, m->marks, opened);
    open_detok(g, &g->detok);
    if (!g->how->has_think_budget) return LN_OK;
    ln_str_addf(&end, "\n%s\n\n", m->marks->end); /* as templates write it */
    ln_status st = end.failed ? LN_OOM(err, "a mark") : ln_tok_encode(m->tok, end.data, end.len, false, &g->end, err);
    ln_str_free(&end);
    return st;
}

static ln_status run_all(generation *g, const ln_prompt *p, ln_metrics *m, ln_error *err) {
    ln_eng *e = g->e;
    double start = ln_now(), first = -1;
    LN_TRY(ln_loaded_prompt(e->model, p, &g->all, err));
    g->n_prompt = g->all.n;
    if (g->n_prompt == 0) return ln_fail(err, LN_EUSAGE, "the prompt is empty and this model adds no token of its own; give some text");
    LN_TRY(ln_eng_check_ids(e, g->all.data, g->all.n, err));
    LN_TRY(open_think(g, p, err));
    find_stop_ids(g);
    m->prompt_tokens = (int64_t)g->n_prompt;
    g->n_max = g->how->n_max >= 0 ? g->how->n_max : ln_loaded_chats(e->model, p) ? INT64_MAX : RAW_TOKENS;
    if (g->n_max == 0) return LN_OK;
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
    m->reasoning_tokens = g->n_reasoning;
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

/* Ids whose text ends after the shown text belong to the stop text; so do those before them that hold the first bytes of its first
 * character, which came out only later. */
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

static ln_status fill_result(generation *g, ln_result *out, ln_error *err) {
    size_t n;
    LN_TRY(visible_ids(g, &n, err));
    int32_t *prompt_ids = ln_alloc((g->n_prompt + 1) * sizeof *prompt_ids), *ids = ln_alloc((n + 1) * sizeof *ids);
    char *text = ln_strndup(g->text.data ? g->text.data : "", g->text.len), *reasoning = ln_strndup(g->reasoning.data ? g->reasoning.data : "", g->reasoning.len);
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

/* The text ends by the caller's stop texts and by the model's own. */
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

ln_status ln_eng_generate(ln_eng *e, const ln_prompt *p, const ln_sampling *how, ln_text_fn *on_text, void *user, ln_result *out, ln_error *err) {
    ln_status st = LN_OK;
    generation g = {.e = e, .how = how, .on_text = on_text, .user = user, .seed = how->seed, .finish = LN_FINISH_LENGTH};
    memset(out, 0, sizeof *out);
    if (!how->has_seed && getrandom(&g.seed, sizeof g.seed, 0) != (ssize_t)sizeof g.seed) g.seed = (uint64_t)(ln_now() * 1e9);
    ln_think_open(&g.think, NULL, false);
    open_detok(&g, &g.detok);
    st = open_stop(&g, err);
    if (st == LN_OK) st = run_all(&g, p, &out->metrics, err);
    if (st == LN_OK) st = fill_result(&g, out, err);
    else if (g.all.n > g.n_prompt) {
        g.finish = LN_FINISH_CANCELLED;
        (void)fill_result(&g, out, NULL); /* the error that ended it is the one to report */
    }
    ln_stop_close(&g.stop);
    ln_think_close(&g.think);
    ln_detok_close(&g.detok);
    ln_str_free(&g.text);
    ln_str_free(&g.reasoning);
    ln_ids_free(&g.all);
    ln_ids_free(&g.end);
    ln_free(g.ends);
    ln_free(g.stops);
    return st;
}
