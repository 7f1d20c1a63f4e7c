/* Scores a text, and gathers its keys: the same steps as in generation, with the logits of all rows, or none.
 *
 * Log-probabilities are the log-softmax of the f32 logits, summed in double: log p = l - max - log(sum exp(l
 * - max)). */
#include "engine.h"

ln_status ln_eng_check_ids(const ln_eng *e, const int32_t *ids, size_t n, ln_error *err) {
    if (n > (size_t)e->run->opt.n_ctx)
        return ln_fail(err, LN_EINVALID,
                       "the prompt has %zu tokens, the context holds %lld%s a shorter prompt", n,
                       (long long)e->run->opt.n_ctx,
                       e->run->opt.n_ctx < e->model->spec.n_ctx ? "; use a larger ln_options.n_ctx or"
                                                                : ", as many as the model was made for; use");
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= e->run->spec->V)
            return ln_fail(err, LN_EINVALID, "token %zu is %d, expected 0 .. %lld", i, ids[i],
                           (long long)e->run->spec->V - 1);
    return LN_OK;
}

/* Computes log(sum exp) of a row of V logits. LN_ENUMERIC: a NaN, +infinity, or all minus infinity. */
static ln_status log_sum(const float *l, int64_t V, double *out, ln_error *err) {
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < V; i++) {
        if (l[i] != l[i])
            return ln_fail(err, LN_ENUMERIC,
                           "logits: NaN for token %lld; the weights or the arithmetic are broken",
                           (long long)i);
        if (l[i] > max) max = l[i];
    }
    if (max == INFINITY || max == -INFINITY)
        return ln_fail(err, LN_ENUMERIC, "logits: infinite; the weights or the arithmetic are broken");
    for (int64_t i = 0; i < V; i++) sum += ln_exp64((double)l[i] - max);
    *out = max + ln_log64(sum);
    return LN_OK;
}

/* Writes the n likeliest tokens to top[n] in descending order, the lowest id first on ties; `lse` is log_sum
 * of the row. The list is kept sorted by insertion. */
static void find_top(const float *l, int64_t V, double lse, ln_top *top, size_t n) {
    size_t have = 0;
    for (int64_t i = 0; i < V && n > 0; i++) {
        double lp = (double)l[i] - lse;
        if (have == n && lp <= top[n - 1].logprob) continue;
        size_t at = have < n ? have++ : n - 1;
        for (; at > 0 && top[at - 1].logprob < lp; at--) top[at] = top[at - 1];
        top[at] = (ln_top){(int32_t)i, lp};
    }
}

typedef struct scoring {
    ln_eng *e;
    const int32_t *ids;
    size_t n, n_top;
    ln_top *top;
    ln_score_fn *fn;
    void *user;
    double logprob; /* of the next row's token */
    double caller;  /* seconds spent in callbacks */
    int64_t rows;   /* scored */
    bool stopped;   /* the callback asked to stop */
} scoring;

/* Reports token t, whose logits are row `row` of the last step. */
static ln_status one_row(scoring *s, int64_t row, size_t t, ln_error *err) {
    ln_eng *e = s->e;
    int64_t V = e->run->spec->V;
    double lse = 0;
    LN_TRY(ln_run_logits(e->run, row, e->logits, err));
    LN_TRY(log_sum(e->logits, V, &lse, err));
    find_top(e->logits, V, lse, s->top, s->n_top);
    double start = ln_now();
    ln_status said = LN_CALLBACK(s->fn(s->user, (int64_t)t, s->logprob, s->top, s->n_top, e->logits, V, err));
    s->caller += ln_now() - start;
    s->rows++;
    s->stopped = said == LN_ECANCELLED;
    if (said != LN_OK) return s->stopped ? LN_OK : said;
    if (t + 1 < s->n) s->logprob = (double)e->logits[s->ids[t + 1]] - lse;
    return LN_OK;
}

/* A sequence for n tokens that reuses nothing. */
static ln_status open_seq(ln_eng *e, int64_t n, ln_seq **seq, ln_error *err) {
    const ln_seq_options o = {.n_prompt = n, .n_most = n, .no_cache = true};
    LN_TRY(ln_seq_open(e, &o, seq, err));
    return *seq ? LN_OK : ln_fail(err, LN_EMEMORY, "no sequence of the engine is free");
}

static ln_status score_all(scoring *s, ln_seq *seq, ln_error *err) {
    int64_t chunk = LN_MIN(s->e->run->opt.n_chunk, s->e->run->opt.n_logits);
    for (size_t at = 0; at < s->n;) {
        if (ln_eng_cancelled(s->e)) return ln_fail(err, LN_ECANCELLED, "stopped by the caller");
        int64_t k = LN_MIN((int64_t)(s->n - at), chunk);
        ln_batch_item f = {seq, s->ids + at, k, LN_LOGITS_ALL};
        LN_TRY(ln_eng_step(s->e, &f, 1, err));
        for (int64_t i = 0; i < k; i++) {
            LN_TRY(one_row(s, i, at + (size_t)i, err));
            if (s->stopped) return LN_OK;
        }
        at += (size_t)k;
        ln_say_progress(&s->e->run->opt, "reading", (int64_t)at, (int64_t)s->n);
    }
    return LN_OK;
}

ln_status ln_eng_score(ln_eng *e, const int32_t *ids, size_t n, size_t n_top, ln_score_fn *fn, void *user,
                       ln_metrics *metrics, ln_error *err) {
    LN_TRY(ln_eng_check_ids(e, ids, n, err));
    if (n == 0) return ln_fail(err, LN_EUSAGE, "there are no tokens to score");
    n_top = LN_MIN(n_top, (size_t)e->run->spec->V);
    scoring s = {.e = e, .ids = ids, .n = n, .n_top = n_top, .fn = fn, .user = user, .logprob = NAN};
    s.top = ln_zalloc(n_top + 1, sizeof *s.top);
    if (!s.top) return LN_OOM(err, "the likeliest tokens");
    double start = ln_now();
    ln_seq *seq = NULL;
    ln_status st = open_seq(e, (int64_t)n, &seq, err);
    if (st == LN_OK) st = score_all(&s, seq, err);
    ln_seq_close(e, &seq);
    ln_free(s.top);
    if (metrics) {
        *metrics = (ln_metrics){.prompt_tokens = s.rows, .load_seconds = e->load_seconds};
        metrics->prefill_seconds = metrics->total_seconds = ln_now() - start - s.caller;
        if (metrics->prefill_seconds > 0) metrics->prefill_tok_s = (double)s.rows / metrics->prefill_seconds;
        metrics->active_bytes = ln_memory_resident();
        metrics->peak_bytes = ln_memory_peak();
    }
    return st;
}

/* Gathers the keys of one layer from the pages: f32 [K, E, page_len] of each block becomes keys [K, T, E].
 * `page` is scratch of K x E x page_len floats. */
static ln_status layer_keys(ln_eng *e, const ln_seq *seq, int layer, int64_t T, float *page, float *keys,
                            ln_error *err) {
    const ln_kv_shape *kv = &e->run->kv;
    const ln_spec *s = e->run->spec;
    int window_group = s->layers[layer].window_group, len = kv->page_len;
    for (int64_t block = 0; block * len < T; block++) {
        int32_t number =
            seq->tables[window_group][block * kv->pages_per_block[window_group] + kv->page_in_block[layer]];
        if (number < 0)
            return ln_fail(err, LN_EUSAGE,
                           "layer %d: positions below %lld were dropped; open the engine with keep_full_kv",
                           layer, (long long)(block + 1) * len);
        LN_TRY(ln_run_page_keys(e->run, layer, number, page, err));
        for (int64_t h = 0; h < s->K; h++)
            for (int64_t t = block * len; t < LN_MIN(T, (block + 1) * len); t++)
                for (int64_t i = 0; i < s->E; i++)
                    keys[(h * T + t) * s->E + i] = page[(h * s->E + i) * len + (t - block * len)];
    }
    return LN_OK;
}

ln_status ln_eng_inspect_keys(ln_eng *e, const int32_t *ids, size_t n, ln_keys_fn *fn, void *user,
                              ln_error *err) {
    const ln_spec *s = e->run->spec;
    LN_TRY(ln_eng_check_ids(e, ids, n, err));
    if (n == 0) return ln_fail(err, LN_EUSAGE, "there are no tokens to look at");
    if (!e->run->opt.keep_full_kv)
        return ln_fail(err, LN_EUSAGE,
                       "the engine drops positions below the window; open it with keep_full_kv");
    ln_status st = LN_OK;
    ln_seq *seq = NULL;
    size_t head = (size_t)s->K * (size_t)s->E;
    float *page = ln_zalloc(head * (size_t)e->run->kv.page_len, sizeof *page),
          *keys = ln_zalloc(head * n, sizeof *keys);
    if (!page || !keys) LN_GO(LN_OOM(err, "keys"));
    LN_GO(open_seq(e, (int64_t)n, &seq, err));
    LN_GO(ln_eng_prefill(e, seq, ids, (int64_t)n, false, err));
    for (int l = 0; l < s->L; l++) {
        LN_GO(layer_keys(e, seq, l, (int64_t)n, page, keys, err));
        ln_status said = LN_CALLBACK(fn(user, l, keys, s->K, (int64_t)n, s->E, err));
        if (said == LN_ECANCELLED) break;
        LN_GO(said);
    }
out:
    ln_seq_close(e, &seq);
    ln_free(page);
    ln_free(keys);
    return st;
}
