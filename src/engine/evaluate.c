/* The perplexity of a text: one request for each window, several under way at once.
 *
 * Window k has the tokens from k * stride on. Its positions begin at 0, so that it computes what it would
 * compute alone, and only the rows that predict a counted token have logits. The log-probabilities of a
 * window are added in the order of its tokens, the sums in the order of the windows: the result does not
 * depend on which requests share a step, nor on which rank computes a window. Of N ranks, rank r has the
 * windows r, r + N, r + 2 N and so on. */
#include "evaluate.h"
#include "engine.h"
#include "logprob.h"
#include "scheduler.h"
#include "text_calls.h"

enum { WINDOW = 2048, WINDOWS_PER_SEQUENCE = 2 };

struct evaluator;

typedef struct window {
    struct evaluator *v;
    int64_t begin, n;  /* first token, tokens */
    int64_t from;      /* the first token that counts */
    double sum;        /* of the log-probabilities of [from, begin + n) */
    ln_req *req;       /* NULL: it has finished */
    atomic_bool ready; /* the request has finished */
    uint64_t seen;     /* of ln_req_wait_change */
    bool done;
} window;

typedef struct evaluator {
    ln_eng *e;
    const int32_t *ids; /* [n] */
    int64_t n, length, stride;
    int64_t n_all;       /* windows of all ranks */
    int64_t first, step; /* the first window of this rank, and the distance of two of its windows */
    int64_t n_windows, begun, added; /* its windows, those that have begun, and those whose sums were kept */
    window *ring;                    /* [n_ring] */
    int64_t n_ring;
    double *sums;     /* [most windows of a rank] of this rank's windows */
    double *all_sums; /* [ranks][most windows of a rank] */
    int64_t n_most;
    int64_t n_rows;
} evaluator;

static ln_status on_row(void *user, int64_t t, int64_t row, const ln_scratch *x, ln_error *err) {
    window *w = user;
    ln_run *run = w->v->e->run;
    double lse;
    if (t + 1 >= w->n) return LN_OK; /* predicts a token beyond the window */
    LN_TRY(ln_run_logits(run, row, x->logits, err));
    LN_TRY(ln_log_sum(x->logits, run->spec->V, &lse, err));
    w->sum += (double)x->logits[w->v->ids[w->begin + t + 1]] - lse;
    return LN_OK;
}

static void on_ready(void *user) {
    window *w = user;
    atomic_store(&w->ready, true);
}

/* Sets the tokens of window k. The first of its tokens that counts is the first that no window before it has,
 * but never its first one. */
static void place_window(const evaluator *v, int64_t k, window *w) {
    w->begin = k * v->stride;
    w->n = LN_MIN(v->length, v->n - w->begin);
    w->from = w->begin == 0 ? 1 : LN_MAX(w->begin - v->stride + v->length, w->begin + 1);
}

static ln_status begin_window(evaluator *v, ln_error *err) {
    window *w = &v->ring[v->begun % v->n_ring];
    w->v = v;
    place_window(v, v->first + v->begun++ * v->step, w);
    w->sum = 0;
    w->seen = 0;
    w->done = w->from >= w->begin + w->n;
    atomic_store(&w->ready, false);
    if (w->done) return LN_OK;
    const ln_req_options o = {.ids = v->ids + w->begin,
                              .n_ids = w->n,
                              .on_row = on_row,
                              .row_user = w,
                              .first_row = w->from - w->begin - 1,
                              .no_cache = true, /* no other window begins with these tokens */
                              .on_ready = on_ready,
                              .user = w};
    return ln_req_new(&w->req, v->e, &o, err);
}

/* Waits for a step, running it where no other thread does, and ends the windows that have finished. The
 * oldest one runs, because requests are admitted in their order, so that every step changes it. */
static ln_status collect(evaluator *v, ln_error *err) {
    window *first = &v->ring[v->added % v->n_ring];
    if (first->req && !atomic_load(&first->ready))
        first->seen = ln_req_wait_change(first->req, first->seen, -1);
    for (int64_t i = v->added; i < v->begun; i++) {
        window *w = &v->ring[i % v->n_ring];
        if (!w->req || !atomic_load(&w->ready)) continue;
        w->done = true;
        LN_TRY(ln_eng_end_request(&w->req, NULL, err));
    }
    return LN_OK;
}

/* Keeps the sums of finished windows. */
static void keep_sums(evaluator *v) {
    for (; v->added < v->begun && v->ring[v->added % v->n_ring].done; v->added++) {
        const window *w = &v->ring[v->added % v->n_ring];
        v->sums[v->added] = w->sum;
        v->n_rows += w->n;
        ln_say_progress(&v->e->run->opt, "reading", LN_MIN(w->begin + w->n, v->n), v->n);
    }
}

static ln_status evaluate_all(evaluator *v, ln_error *err) {
    while (v->added < v->n_windows) {
        if (ln_eng_cancelled(v->e)) return ln_fail(err, LN_ECANCELLED, "stopped by the caller");
        while (v->begun < v->n_windows && v->begun - v->added < v->n_ring) LN_TRY(begin_window(v, err));
        LN_TRY(collect(v, err));
        keep_sums(v);
    }
    return LN_OK;
}

/* Adds the sums in the order of the windows. */
static void add_sums(const evaluator *v, double *sum, int64_t *counted) {
    *sum = 0, *counted = 0;
    for (int64_t k = 0; k < v->n_all; k++) {
        window w;
        place_window(v, k, &w);
        *sum += v->all_sums[k % v->step * v->n_most + k / v->step];
        *counted += LN_MAX(w.begin + w.n - w.from, 0);
    }
}

/* Divides the windows among the ranks. */
static ln_status divide(evaluator *v, const ln_transport *ranks, ln_error *err) {
    v->first = ranks ? ranks->rank : 0, v->step = ranks ? ranks->size : 1;
    v->n_most = (v->n_all + v->step - 1) / v->step;
    v->n_windows = v->first < v->n_all ? (v->n_all - v->first + v->step - 1) / v->step : 0;
    v->n_ring = LN_MAX(LN_MIN((int64_t)WINDOWS_PER_SEQUENCE * v->e->run->opt.n_seqs, v->n_windows), 1);
    v->ring = ln_zalloc((size_t)v->n_ring, sizeof *v->ring);
    v->sums = ln_zalloc((size_t)v->n_most, sizeof *v->sums);
    v->all_sums = ranks ? ln_zalloc((size_t)(v->n_most * v->step), sizeof *v->sums) : v->sums;
    return v->ring && v->sums && v->all_sums ? LN_OK : LN_OOM(err, "the windows");
}

static ln_status check(const evaluator *v, ln_error *err) {
    if (v->n < 2)
        return ln_fail(err, LN_EINVALID, "the text has %lld token%s; a perplexity needs at least 2",
                       (long long)v->n, v->n == 1 ? "" : "s");
    if (v->length < 2)
        return ln_fail(err, LN_EUSAGE, "the window has %lld token; expected at least 2",
                       (long long)v->length);
    if (v->stride < 1 || v->stride > v->length)
        return ln_fail(err, LN_EUSAGE, "the stride is %lld; expected 1 to the window, %lld",
                       (long long)v->stride, (long long)v->length);
    for (int64_t i = 0; i < v->n; i++)
        if (v->ids[i] < 0 || v->ids[i] >= v->e->run->spec->V)
            return ln_fail(err, LN_EINVALID, "token %lld is %d, expected 0 .. %lld", (long long)i, v->ids[i],
                           (long long)v->e->run->spec->V - 1);
    return LN_OK;
}

static void release(evaluator *v) {
    for (int64_t i = 0; v->ring && i < v->n_ring; i++)
        if (v->ring[i].req) ln_req_cancel(v->ring[i].req);
    for (int64_t i = 0; v->ring && i < v->n_ring; i++) ln_req_free(&v->ring[i].req);
    ln_free(v->ring);
    if (v->all_sums != v->sums) ln_free(v->all_sums);
    ln_free(v->sums);
}

/* Computes the windows of this rank, and collects the sums of all. */
static ln_status evaluate_shared(evaluator *v, ln_transport *ranks, ln_error *err) {
    ln_status st = evaluate_all(v, err);
    if (!ranks) return st;
    LN_TRY(ln_ranks_agree(ranks, st, 0, "", err));
    st = ranks->all_gather(ranks, v->sums, (size_t)v->n_most * sizeof *v->sums, v->all_sums);
    return st == LN_OK ? st : ln_ranks_failed(ranks, err);
}

ln_status ln_eng_evaluate(ln_eng *e, ln_transport *ranks, const int32_t *ids, size_t n, int64_t window_tokens,
                          int64_t stride, ln_evaluation *out, ln_metrics *metrics, ln_error *err) {
    const int64_t n_ctx = e->run->opt.n_ctx;
    evaluator v = {.e = e, .ids = ids, .n = (int64_t)LN_MIN(n, (size_t)INT64_MAX)};
    ln_status st = LN_OK;
    double start = ln_now();
    v.length = LN_MIN(window_tokens > 0 ? window_tokens : (int64_t)WINDOW, n_ctx);
    v.stride = stride > 0 ? stride : LN_MAX(v.length / 2, 1);
    LN_GO(check(&v, err));
    /* the last window is the first that reaches the end of the text */
    v.n_all = v.n <= v.length ? 1 : 1 + (v.n - v.length + v.stride - 1) / v.stride;
    LN_GO(divide(&v, ranks, err));
    LN_GO(evaluate_shared(&v, ranks, err));
    double sum;
    int64_t counted;
    add_sums(&v, &sum, &counted);
    const double nll = -sum / (double)counted;
    *out = (ln_evaluation){.size = sizeof *out,
                           .tokens = v.n,
                           .counted = counted,
                           .nll = nll,
                           .perplexity = ln_exp64(nll),
                           .window = v.length,
                           .stride = v.stride};
out:
    release(&v);
    if (metrics) ln_eng_fill_metrics(e, v.n_rows, 0, ln_now() - start, metrics);
    return st;
}
