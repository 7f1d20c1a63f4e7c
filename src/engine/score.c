/* Scores a text: a request whose rows of logits are copied inside the steps and reported outside of them.
 *
 * The caller's function runs on the calling thread, while others may run the engine's steps. So the rows of a
 * step are copied to a buffer, and the request goes on when the caller has seen them: a slow function delays
 * no other request. */
#include "score.h"

#include "engine.h"
#include "generate.h"
#include "logprob.h"
#include "text_calls.h"

#include <math.h>
#include <string.h>

enum { MOST_ROWS = 64 }; /* of a step: more would cost memory and save little */

typedef struct scoring {
    ln_eng *e;
    const int32_t *ids;
    size_t n, n_top;
    ln_top *top;
    ln_score_fn *fn;
    void *user;
    float *rows;    /* [n_rows, V] row t of the text is rows[t % n_rows] */
    int64_t n_rows; /* that the buffer holds */
    double logprob; /* of the next row's token */
    double caller;  /* seconds spent in callbacks */
    int64_t n_done; /* rows that were reported */
    bool stopped;   /* the callback asked to stop */
} scoring;

/* Copies a row, on a thread of the step; the caller's thread waits meanwhile. */
static ln_status copy_row(void *user, int64_t t, int64_t row, const struct ln_scratch *x, ln_error *err) {
    scoring *s = user;
    (void)x;
    return ln_run_logits(s->e->run, row, s->rows + t % s->n_rows * s->e->run->spec->V, err);
}

/* Reports token t. */
static ln_status one_row(scoring *s, int64_t t, ln_error *err) {
    const int64_t V = s->e->run->spec->V;
    const float *logits = s->rows + t % s->n_rows * V;
    double lse = 0;
    LN_TRY(ln_log_sum(logits, V, &lse, err));
    ln_find_top(logits, V, lse, s->top, s->n_top);
    const double start = ln_now();
    ln_req_callback here;
    ln_req_callback_begin(&here, s->e);
    ln_status said = LN_CALLBACK(s->fn(s->user, t, s->logprob, s->top, s->n_top, logits, V, err));
    ln_req_callback_end(&here);
    s->caller += ln_now() - start;
    s->n_done++;
    s->stopped = said == LN_ECANCELLED;
    if (said != LN_OK) return s->stopped ? LN_OK : said;
    if ((size_t)t + 1 < s->n) s->logprob = (double)logits[s->ids[t + 1]] - lse;
    return LN_OK;
}

static ln_status score_all(scoring *s, ln_error *err) {
    ln_req *r;
    ln_status st = LN_OK;
    ln_req_view v = {0};
    int64_t said = 0;
    const ln_req_options o = {.ids = s->ids,
                              .n_ids = (int64_t)s->n,
                              .on_row = copy_row,
                              .row_user = s,
                              .n_allowed = s->n_rows,
                              .no_cache = true};
    LN_TRY(ln_req_new(&r, s->e, &o, err));
    while (s->n_done < (int64_t)s->n && !s->stopped) {
        v = ln_req_look(r);
        if (v.n_read <= s->n_done) {
            if (v.state == LN_REQ_DONE) break;
            (void)ln_req_wait_change(r, v.changes, -1);
            continue;
        }
        const int64_t n_new = v.n_read - s->n_done;
        while (s->n_done < v.n_read && !s->stopped) LN_GO(one_row(s, s->n_done, err));
        if (s->stopped) break;
        ln_eng_say_read(r, &v, &said);
        ln_req_allow(r, n_new);
    }
    if (s->n_done < (int64_t)s->n && !s->stopped) {
        st = ln_req_wait(r, err);
        if (st == LN_OK) st = ln_fail(err, LN_ECANCELLED, "stopped by the caller");
    }
out:
    ln_req_free(&r);
    return st;
}

ln_status ln_eng_score(ln_eng *e, const int32_t *ids, size_t n, size_t n_top, ln_score_fn *fn, void *user,
                       ln_metrics *metrics, ln_error *err) {
    const int64_t V = e->run->spec->V;
    LN_TRY(ln_eng_check_ids(e, ids, n, err));
    if (n == 0) return ln_fail(err, LN_EUSAGE, "there are no tokens to score");
    n_top = LN_MIN(n_top, (size_t)V);
    scoring s = {.e = e, .ids = ids, .n = n, .n_top = n_top, .fn = fn, .user = user, .logprob = NAN};
    s.n_rows = LN_MIN(LN_MIN((int64_t)e->run->opt.n_logits, MOST_ROWS), (int64_t)n);
    s.top = ln_zalloc(n_top + 1, sizeof *s.top);
    s.rows = ln_zalloc((size_t)s.n_rows, (size_t)V * sizeof *s.rows);
    const double start = ln_now();
    ln_status st = s.top && s.rows ? score_all(&s, err) : LN_OOM(err, "rows of logits");
    ln_free(s.top);
    ln_free(s.rows);
    if (metrics) ln_eng_fill_metrics(e, s.n_done, 0, ln_now() - start - s.caller, metrics);
    return st;
}
