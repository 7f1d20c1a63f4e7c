/* The calls of a model that mlx-lm has loaded: generate, classify, inspect. */
#include "mlx_lm.h"

#include <math.h>
#include <string.h>

/* ---- generating ---- */

typedef struct hearing {
    ln_mlx_call call;
    const ln_backend_sink *sink;
    ln_backend_end *end;
    ln_status said; /* of a callback, once it is not LN_OK: nothing more is handed on */
    ln_error why;
    double began;
} hearing;

/* What a callback returns ends the request, but the messages up to its end are still read. */
static ln_status heard(hearing *h, ln_status said, ln_error *err) {
    if (said == LN_OK) return LN_OK;
    h->said = said;
    return ln_mlx_cancel(&h->call, err);
}

static ln_status on_ids(hearing *h, ln_error *err) {
    const json_t *list;
    LN_TRY(ln_mlx_list(&h->call, "ids", &list, err));
    const size_t n = json_array_size(list);
    int32_t *ids = ln_zalloc(n + 1, sizeof *ids);
    if (!ids) return LN_OOM(err, "token ids");
    for (size_t i = 0; i < n; i++) {
        const json_int_t id = json_integer_value(json_array_get(list, i)); /* 0 for another type */
        ids[i] = id >= 0 && id <= INT32_MAX ? (int32_t)id : 0;
    }
    const ln_status st = heard(h, h->sink->on_prompt(h->sink->user, ids, n, &h->why), err);
    ln_free(ids);
    return st;
}

static ln_status on_text(hearing *h, ln_error *err) {
    const char *text;
    size_t bytes;
    bool reasoning;
    LN_TRY(ln_mlx_text(&h->call, "text", &text, &bytes, err));
    LN_TRY(ln_mlx_bool(&h->call, "reasoning", &reasoning, err));
    if (bytes == 0 || h->said != LN_OK) return LN_OK;
    return heard(h, h->sink->on_text(h->sink->user, text, bytes, reasoning, &h->why), err);
}

static ln_status on_token(hearing *h, ln_error *err) {
    int64_t id;
    LN_TRY(ln_mlx_int(&h->call, "token", 0, INT32_MAX, &id, err));
    h->end->metrics.generated_tokens++;
    if (h->said == LN_OK) LN_TRY(heard(h, h->sink->on_token(h->sink->user, (int32_t)id, &h->why), err));
    return on_text(h, err);
}

static ln_status read_metrics(ln_mlx_call *call, ln_metrics *m, ln_error *err) {
    const int64_t most = INT64_MAX;
    int64_t active, peak;
    LN_TRY(ln_mlx_int(call, "prompt_tokens", 0, most, &m->prompt_tokens, err));
    LN_TRY(ln_mlx_int(call, "generated_tokens", 0, most, &m->generated_tokens, err));
    LN_TRY(ln_mlx_int(call, "reasoning_tokens", 0, most, &m->reasoning_tokens, err));
    LN_TRY(ln_mlx_int(call, "active_bytes", 0, most, &active, err));
    LN_TRY(ln_mlx_int(call, "peak_bytes", 0, most, &peak, err));
    LN_TRY(ln_mlx_real(call, "prefill_seconds", &m->prefill_seconds, err));
    LN_TRY(ln_mlx_real(call, "first_token_seconds", &m->first_token_seconds, err));
    LN_TRY(ln_mlx_real(call, "total_seconds", &m->total_seconds, err));
    m->active_bytes = (uint64_t)active;
    m->peak_bytes = (uint64_t)peak;
    m->decode_seconds = LN_MAX(m->total_seconds - m->prefill_seconds, 0);
    if (m->prefill_seconds > 0) m->prefill_tok_s = (double)m->prompt_tokens / m->prefill_seconds;
    if (m->decode_seconds > 0) m->decode_tok_s = (double)m->generated_tokens / m->decode_seconds;
    m->cache_miss_reason = "";
    return LN_OK;
}

static ln_status on_end(hearing *h, ln_error *err) {
    static const char *const words[] = {"stop", "length", "cancelled"};
    const char *finish;
    size_t bytes, k = 0;
    int64_t stop_id, stop_text;
    LN_TRY(ln_mlx_text(&h->call, "finish", &finish, &bytes, err));
    LN_TRY(ln_mlx_int(&h->call, "stop_id", -1, INT32_MAX, &stop_id, err));
    LN_TRY(ln_mlx_int(&h->call, "stop_text", -1, INT32_MAX, &stop_text, err));
    LN_TRY(read_metrics(&h->call, &h->end->metrics, err));
    while (k < LN_COUNT(words) && strcmp(finish, words[k]) != 0) k++;
    if (k == LN_COUNT(words))
        return ln_mlx_broken(h->call.m, err,
                             "the message end: finish: expected stop, length or cancelled, "
                             "found '%.40s'",
                             finish);
    h->end->finish = (ln_finish)k;
    h->end->stop_id = (int32_t)stop_id;
    h->end->stop_text = (int)stop_text;
    return LN_OK;
}

static ln_status on_reading(ln_mlx_call *call, ln_error *err) {
    int64_t done, total;
    LN_TRY(ln_mlx_int(call, "done", 0, INT64_MAX, &done, err));
    LN_TRY(ln_mlx_int(call, "total", 0, INT64_MAX, &total, err));
    if (call->m->progress.fn) call->m->progress.fn(call->m->progress.user, "reading", done, total);
    return LN_OK;
}

static ln_status unknown(ln_mlx_call *call, ln_error *err) {
    return ln_mlx_broken(call->m, err, "the process sent the unknown message '%.40s'", call->event);
}

static ln_status hear(hearing *h, bool *ended, ln_error *err) {
    const char *event = h->call.event;
    if (strcmp(event, "prompt") == 0) return h->said == LN_OK ? on_ids(h, err) : LN_OK;
    if (strcmp(event, "token") == 0) return on_token(h, err);
    if (strcmp(event, "text") == 0) return on_text(h, err);
    if (strcmp(event, "reading") == 0) return on_reading(&h->call, err);
    if (strcmp(event, "end") != 0) return unknown(&h->call, err);
    *ended = true;
    return on_end(h, err);
}

/* Reads messages until the last one. A cancelled request may never send it; its end is then made here. */
static ln_status hear_all(hearing *h, ln_error *err) {
    bool ended = false;
    while (!ended) {
        LN_TRY(ln_mlx_next(&h->call, err));
        if (!h->call.event) {
            h->end->metrics.total_seconds = ln_now() - h->began;
            break;
        }
        LN_TRY(hear(h, &ended, err));
    }
    if (h->call.cancelled) h->end->finish = LN_FINISH_CANCELLED;
    if (h->said == LN_OK || h->said == LN_ECANCELLED) return LN_OK;
    return ln_fail(err, h->said, "%s", h->why.message);
}

ln_status ln_mlx_generate(void *model, const ln_prompt *prompt, const ln_sampling *how,
                          const ln_backend_sink *sink, ln_backend_end *end, ln_error *err) {
    ln_mlx *m = model;
    ln_str line = {0};
    hearing h = {.sink = sink, .end = end, .began = ln_now()};
    end->metrics.load_seconds = m->load_seconds;
    ln_mlx_begin(&h.call, m, "generate", sink, &line);
    ln_status st = ln_mlx_put_prompt(&line, "prompt", prompt, err);
    if (st == LN_OK) st = ln_mlx_put_sampling(&line, how, &end->seed, err);
    if (st != LN_OK) {
        ln_str_free(&line);
        return st;
    }
    put_int(&line, "n_max", how->n_max);
    if (m->n_ctx > 0) put_int(&line, "context", m->n_ctx);
    if (m->n_chunk > 0) put_int(&line, "chunk", m->n_chunk);
    ln_str_adds(&line, "}");
    st = ln_mlx_send(&h.call, &line, err);
    if (st == LN_OK) st = hear_all(&h, err);
    ln_mlx_done(&h.call);
    return st;
}

/* ---- classifying ---- */

enum { CLASSIFY_PROMPTS = 32 }; /* in one request */

typedef struct classing {
    ln_mlx_call call;
    const ln_classify_options *opt;
    ln_class_fn *fn;
    void *user;
    size_t first, n;         /* prompts of this request */
    size_t next;             /* the prompt whose class comes next */
    double *scores, *shares; /* [n_labels] */
    float *logits;           /* of `next`; NULL: none have come */
    size_t n_logits;
    bool stopped; /* by the callback */
    ln_metrics *metrics;
} classing;

static void softmax(const double *scores, size_t n, double *out) {
    double top = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) top = LN_MAX(top, scores[i]);
    for (size_t i = 0; i < n; i++) sum += out[i] = ln_exp64(scores[i] - top);
    for (size_t i = 0; i < n; i++) out[i] /= sum;
}

static ln_status read_scores(classing *c, ln_class *out, ln_error *err) {
    const json_t *list;
    LN_TRY(ln_mlx_list(&c->call, "scores", &list, err));
    if (json_array_size(list) != c->opt->n_labels)
        return ln_mlx_broken(c->call.m, err, "the message class: expected %zu scores, found %zu",
                             c->opt->n_labels, json_array_size(list));
    out->label = 0;
    for (size_t i = 0; i < c->opt->n_labels; i++) {
        c->scores[i] = json_number_value(json_array_get(list, i));
        if (c->scores[i] > c->scores[out->label]) out->label = (int)i;
    }
    softmax(c->scores, c->opt->n_labels, c->shares);
    out->scores = c->scores;
    out->probabilities = c->shares;
    return LN_OK;
}

static ln_status read_token(classing *c, ln_class *out, ln_error *err) {
    int64_t token;
    LN_TRY(ln_mlx_int(&c->call, "token", 0, INT32_MAX, &token, err));
    LN_TRY(ln_mlx_text(&c->call, "text", &out->text, &out->text_bytes, err));
    LN_TRY(ln_mlx_real(&c->call, "logprob", &out->logprob, err));
    out->token = (int32_t)token;
    return LN_OK;
}

static ln_status on_class(classing *c, ln_error *err) {
    ln_class out = {.size = sizeof out, .index = c->first + c->next, .label = -1};
    int64_t index;
    size_t bytes;
    LN_TRY(ln_mlx_int(&c->call, "index", (int64_t)c->next, (int64_t)c->next, &index, err));
    if (c->next == c->n) return unknown(&c->call, err);
    if (json_object_get(c->call.message, "error")) {
        LN_TRY(ln_mlx_text(&c->call, "error", &out.error, &bytes, err));
        out.status = LN_EINVALID;
    } else if (c->opt->n_labels > 0) {
        LN_TRY(read_scores(c, &out, err));
    } else {
        LN_TRY(read_token(c, &out, err));
    }
    out.logits = out.status == LN_OK ? c->logits : NULL;
    out.n_vocab = (int64_t)c->n_logits;
    c->next++;
    ln_status said = LN_CALLBACK(c->fn(c->user, &out, err));
    ln_free(c->logits);
    c->logits = NULL;
    if (said == LN_ECANCELLED) c->stopped = true;
    return c->stopped ? ln_mlx_cancel(&c->call, err) : said;
}

static ln_status on_class_end(classing *c, ln_error *err) {
    ln_metrics m = {0};
    LN_TRY(read_metrics(&c->call, &m, err));
    c->metrics->prompt_tokens += m.prompt_tokens;
    c->metrics->generated_tokens += m.generated_tokens;
    c->metrics->prefill_seconds += m.total_seconds;
    c->metrics->total_seconds += m.total_seconds;
    c->metrics->active_bytes = m.active_bytes;
    c->metrics->peak_bytes = m.peak_bytes;
    if (c->next < c->n)
        return ln_mlx_broken(c->call.m, err, "the process sent %zu of %zu classes", c->next, c->n);
    return LN_OK;
}

static ln_status hear_classes(classing *c, ln_error *err) {
    for (;;) {
        bool full;
        LN_TRY(ln_mlx_next(&c->call, err));
        const char *event = c->call.event;
        if (!event && c->stopped) return LN_OK;
        if (!event) return ln_fail(err, LN_ECANCELLED, "stopped by ln_backend_cancel");
        if (strcmp(event, "end") == 0) return c->stopped ? LN_OK : on_class_end(c, err);
        if (strcmp(event, "logits") == 0 && !c->stopped)
            LN_TRY(ln_mlx_array(&c->call, &c->logits, &c->n_logits, SIZE_MAX, &full, err));
        else if (strcmp(event, "reading") == 0) continue;
        else if (strcmp(event, "class") == 0 && !c->stopped) LN_TRY(on_class(c, err));
        else if (!c->stopped) return unknown(&c->call, err);
    }
}

static ln_status put_labels(ln_str *s, const ln_classify_options *opt, ln_error *err) {
    put_list(s, "labels");
    for (size_t i = 0; i < opt->n_labels; i++) {
        const size_t n = strlen(opt->labels[i]);
        if (n == 0) return ln_fail(err, LN_EUSAGE, "label %zu is empty", i + 1);
        if (ln_utf8_valid(opt->labels[i], n) < n)
            return ln_fail(err, LN_EINVALID, "label %zu: expected UTF-8", i + 1);
        if (i) ln_str_adds(s, ",");
        ln_str_json(s, opt->labels[i], n);
    }
    ln_str_adds(s, "]");
    put_bool(s, "logits", opt->want_logits);
    put_bool(s, "mean", opt->normalize == LN_NORMALIZE_TOKENS);
    return LN_OK;
}

static ln_status classify_some(classing *c, ln_mlx *m, const ln_prompt *prompts, const ln_sampling *how,
                               const ln_backend_sink *sink, ln_error *err) {
    ln_str line = {0};
    uint64_t seed;
    ln_status st;
    ln_mlx_begin(&c->call, m, "classify", sink, &line);
    c->next = 0;
    put_list(&line, "prompts");
    for (size_t i = 0; i < c->n; i++) {
        if (i) ln_str_adds(&line, ",");
        LN_GO(ln_mlx_put_prompt(&line, NULL, &prompts[c->first + i], err));
    }
    ln_str_adds(&line, "]");
    LN_GO(put_labels(&line, c->opt, err));
    LN_GO(ln_mlx_put_sampling(&line, how, &seed, err));
    if (m->n_ctx > 0) put_int(&line, "context", m->n_ctx);
    if (m->n_chunk > 0) put_int(&line, "chunk", m->n_chunk);
    ln_str_adds(&line, "}");
    LN_GO(ln_mlx_send(&c->call, &line, err));
    st = hear_classes(c, err);
    if (st == LN_ECANCELLED && c->stopped) st = LN_OK;
    if (st != LN_OK) (void)ln_mlx_cancel(&c->call, NULL);
out:
    ln_str_free(&line);
    ln_mlx_done(&c->call);
    ln_free(c->logits);
    c->logits = NULL;
    return st;
}

ln_status ln_mlx_classify(void *model, const ln_prompt *prompts, size_t n, const ln_classify_options *opt,
                          ln_class_fn *fn, void *user, const ln_backend_sink *sink, ln_metrics *metrics,
                          ln_error *err) {
    const ln_sampling greedy = {.size = sizeof(ln_sampling), .top_p = 1, .repeat_penalty = 1};
    ln_sampling how = opt->sampling ? *opt->sampling : greedy;
    classing c = {.opt = opt, .fn = fn, .user = user, .metrics = metrics};
    metrics->load_seconds = ((const ln_mlx *)model)->load_seconds;
    ln_status st = LN_OK;
    if (!how.has_seed) { /* one seed for all prompts */
        ln_str none = {0};
        st = ln_mlx_put_sampling(&none, &how, &how.seed, err);
        ln_str_free(&none);
        how.has_seed = true;
    }
    c.scores = ln_zalloc(opt->n_labels + 1, sizeof *c.scores);
    c.shares = ln_zalloc(opt->n_labels + 1, sizeof *c.shares);
    if (st == LN_OK && (!c.scores || !c.shares)) st = LN_OOM(err, "scores");
    for (c.first = 0; st == LN_OK && c.first < n && !c.stopped; c.first += c.n) {
        c.n = LN_MIN(n - c.first, (size_t)CLASSIFY_PROMPTS);
        st = classify_some(&c, model, prompts, &how, sink, err);
    }
    if (metrics->prefill_seconds > 0)
        metrics->prefill_tok_s = (double)metrics->prompt_tokens / metrics->prefill_seconds;
    metrics->cache_miss_reason = "";
    ln_free(c.scores);
    ln_free(c.shares);
    return st;
}

/* ---- inspecting ---- */

static ln_status on_keys(ln_mlx_call *call, float **keys, size_t *n, int64_t *layer, ln_keys_fn *fn,
                         void *user, ln_error *err) {
    int64_t heads, rows, width, which;
    bool full;
    LN_TRY(ln_mlx_int(call, "layer", *layer, *layer, &which, err));
    LN_TRY(ln_mlx_int(call, "heads", 1, 1 << 16, &heads, err));
    LN_TRY(ln_mlx_int(call, "rows", 1, 1 << 30, &rows, err));
    LN_TRY(ln_mlx_int(call, "width", 1, 1 << 16, &width, err));
    LN_TRY(ln_mlx_array(call, keys, n, SIZE_MAX, &full, err));
    if ((uint64_t)*n != (uint64_t)heads * (uint64_t)rows * (uint64_t)width)
        return ln_mlx_broken(call->m, err, "the message keys: %zu values are not [%lld,%lld,%lld]", *n,
                             (long long)heads, (long long)rows, (long long)width);
    if (!full) return LN_OK;
    const ln_status said = LN_CALLBACK(fn(user, (int)*layer, *keys, (int)heads, rows, (int)width, err));
    ln_free(*keys);
    *keys = NULL;
    (*layer)++;
    return said;
}

static ln_status hear_keys(ln_mlx_call *call, float **keys, ln_keys_fn *fn, void *user, ln_error *err) {
    int64_t layer = 0;
    size_t n = 0;
    for (;;) {
        LN_TRY(ln_mlx_next(call, err));
        if (!call->event) return ln_fail(err, LN_ECANCELLED, "stopped by ln_backend_cancel");
        if (strcmp(call->event, "end") == 0) return LN_OK;
        if (strcmp(call->event, "reading") == 0) continue;
        if (strcmp(call->event, "keys") != 0) return unknown(call, err);
        LN_TRY(on_keys(call, keys, &n, &layer, fn, user, err));
    }
}

ln_status ln_mlx_inspect(void *model, const int32_t *ids, size_t n_ids, ln_keys_fn *fn, void *user,
                         const ln_backend_sink *sink, ln_error *err) {
    ln_mlx *m = model;
    ln_mlx_call call;
    ln_str line = {0};
    float *keys = NULL;
    ln_mlx_begin(&call, m, "inspect", sink, &line);
    put_ids(&line, "ids", ids, n_ids);
    ln_str_adds(&line, "}");
    ln_status st = ln_mlx_send(&call, &line, err);
    if (st == LN_OK) st = hear_keys(&call, &keys, fn, user, err);
    if (st != LN_OK && st != LN_EIO) (void)ln_mlx_cancel(&call, NULL);
    if (st == LN_ECANCELLED && call.sink && !call.sink->stopped(call.sink->user)) st = LN_OK;
    ln_mlx_done(&call);
    ln_free(keys);
    return st;
}
