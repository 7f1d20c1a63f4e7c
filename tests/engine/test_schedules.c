/* Random schedules against the naive engine (naive.h): whatever else runs, whatever is cancelled, reused or
 * evicted, and however its tokens are cut into steps, its tokens, log-probabilities, texts and the logits of
 * its rows are those of the naive engine to the bit.
 *
 * A schedule is made from its number: a model, an engine's options, a pool from tight to ample, 1 to 17
 * requests with times of arrival, cancels, closes, and who drives the engine: steps, the engine's own thread,
 * or threads that wait for their results. One that fails prints its number and the requests that it needs:
 *   LN_SCHEDULE=number [LN_REQUESTS=mask] build/test_schedules
 * LN_SCHEDULES=n runs n schedules of each kind, from LN_SCHEDULES_FROM on; LN_LONG runs 10,000. */
/* run: slow cuda */
#include "../defects/defects.h"
#include "naive.h"
#include "schedule_worlds.h"

#include <pthread.h>
#include <time.h>

/* Schedules from REUSE on are about prefixes under windows, recurrent state and rotary frequencies that
 * change. */
enum { MOST_REQUESTS = 17, MOST_STEPS = 20000, REUSE = 1000000 };

/* What the schedules have met so far; a test that never meets them would prove nothing. */
static struct {
    int64_t cached, in_page, evicted, waited, finished, rows, in_queue, in_prompt, in_answer, closed;
    int64_t of_hybrids, of_experts; /* schedules of models with recurrent layers, with experts */
    _Atomic int64_t refused;        /* by any thread */
} met;

/* ---- failing without leaving the schedule ---- */

static char why[400]; /* the first failure of the schedule that runs; "": none */
static _Atomic bool any_failed;
static pthread_mutex_t why_lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((format(printf, 1, 2))) static bool fails(const char *format, ...) {
    va_list args;
    pthread_mutex_lock(&why_lock);
    va_start(args, format);
    if (!why[0]) (void)vsnprintf(why, sizeof why, format, args);
    va_end(args);
    pthread_mutex_unlock(&why_lock);
    atomic_store(&any_failed, true);
    return false;
}
static bool failed(void) { return atomic_load(&any_failed); }

/* ---- one request of a schedule ---- */

typedef enum when { NEVER = 0, AFTER_STEPS, IN_PROMPT, IN_ANSWER } when;

typedef struct live {
    int number; /* in the schedule */
    const world *w;
    const question *q;
    const answer *want;
    ln_eng *e;
    ln_req *r;
    uint64_t adapter;
    bool no_cache, score, cancelled, done;
    bool closes;                /* closed, not cancelled, when `cancel` says so */
    when cancel;                /* when it is cancelled */
    int64_t cancel_at;          /* steps after its arrival, or generated tokens */
    int64_t arrives, submitted; /* step numbers */
    int64_t n_allowed;          /* rows at a time; 0: all */
    int64_t stop_row;           /* its row function asks to stop there; -1: it does not */
    int64_t n_rows;             /* rows that it got */
    int64_t n_events;           /* tokens that were read as events */
    int64_t least;              /* rows may begin at this token: the first row that it asked for */
    ln_str text;                /* that was read as events */
} live;

static ln_status take_row(live *l, int64_t t, const float *logits) {
    if (t != l->least + l->n_rows)
        fails("request %d: row %lld came, expected row %lld", l->number, (long long)t,
              (long long)(l->least + l->n_rows));
    else if (row_hash(logits, l->w->V) != l->want->rows[t])
        fails("request %d: the logits of row %lld differ", l->number, (long long)t);
    l->n_rows++;
    return t == l->stop_row ? LN_ECANCELLED : LN_OK;
}
static ln_status on_row(void *user, int64_t t, int64_t row, const ln_scratch *x, ln_error *err) {
    live *l = user;
    LN_TRY(ln_run_logits(l->e->run, row, x->logits, err));
    return take_row(l, t, x->logits);
}
static ln_status on_score(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                          const float *logits, int64_t n_vocab, ln_error *err) {
    live *l = user;
    (void)top, (void)n_top, (void)n_vocab, (void)err;
    if (t > 0 && memcmp(&logprob, &l->want->prompt_logprobs[t], sizeof logprob) != 0)
        fails("request %d: the log-probability of token %lld differs", l->number, (long long)t);
    return take_row(l, t, logits);
}

/* Submits a request to its engine; false: the pool could never hold it, or a failure. */
static bool submit(live *l, int64_t step) {
    ln_error err = {0};
    const question *q = l->q;
    const ln_req_options o = {.ids = q->ids,
                              .n_ids = q->n_ids,
                              .how = q->generate ? &q->how : NULL,
                              .logprobs = q->logprobs,
                              .n_top = q->n_top,
                              .prompt_logprobs = q->generate && q->prompt_logprobs,
                              .no_cache = l->no_cache,
                              .on_row = q->generate ? NULL : on_row,
                              .row_user = l,
                              .first_row = q->first_row,
                              .n_allowed = l->n_allowed,
                              .adapter = l->adapter};
    const int64_t n_new = q->generate && q->how.n_max > 1 ? LN_MIN(q->how.n_max, NAIVE_CTX) - 1 : 0;
    l->submitted = step;
    l->least = q->first_row;
    if (l->score) {
        l->least = 0;
        const ln_status st = ln_eng_score(l->e, q->ids, (size_t)q->n_ids, 0, on_score, l, NULL, &err);
        l->done = true;
        if (st == LN_OK || st == LN_EMEMORY) return st == LN_OK;
        return fails("request %d: scoring: %s", l->number, err.message);
    }
    const ln_status st = ln_req_new(&l->r, l->e, &o, &err);
    if (st == LN_OK) return true;
    l->done = true;
    if (st != LN_EMEMORY) return fails("request %d: %s", l->number, err.message);
    met.refused++;
    if (ln_seq_possible(l->e, LN_MIN(q->n_ids + n_new, l->w->n_ctx)))
        fails("request %d is refused although the pool could hold it", l->number);
    return false;
}

/* ---- comparing ---- */

static bool same_bits(const live *l, const void *a, const void *b, size_t n, size_t item, const char *what) {
    for (size_t i = 0; i < n; i++)
        if (memcmp((const char *)a + i * item, (const char *)b + i * item, item) != 0)
            return fails("request %d: %s %zu differs", l->number, what, i);
    return true;
}
static bool same_tops(const live *l, const ln_top *a, const ln_top *b, size_t n, const char *what) {
    size_t i = 0;
    while (i < n && a[i].id == b[i].id && same_logprob(a[i].logprob, b[i].logprob)) i++;
    return i == n || fails("request %d: %s %zu differs", l->number, what, i);
}

static bool same_logprobs(const live *l, const double *a, const double *b, size_t n) {
    size_t i = 0;
    while (i < n && same_logprob(a[i], b[i])) i++;
    return i == n || fails("request %d: log-probability of token %zu differs", l->number, i);
}

static bool same_prompt(const live *l, const ln_result *out) {
    const question *q = l->q;
    const size_t n = out->n_prompt_ids, k = out->n_top;
    if (n != (size_t)q->n_ids) return fails("request %d: %zu prompt ids", l->number, n);
    if (!q->prompt_logprobs || n < 2) return true;
    return same_bits(l, out->prompt_logprobs + 1, l->want->prompt_logprobs + 1, n - 1,
                     sizeof *out->prompt_logprobs, "log-probability of prompt token 1 +") &&
           same_tops(l, out->prompt_top + k, l->want->prompt_top + k, (n - 1) * k, "likely prompt token");
}

static bool same_text(const live *l, const ln_result *out, bool cut) {
    ln_str text = {0};
    if (cut) naive_text(l->w, l->q, l->want, out->n_ids, &text);
    else ln_str_add(&text, l->want->text.data, l->want->text.len);
    const bool same =
        text.len == out->text_bytes && memcmp(text.data ? text.data : "", out->text, text.len) == 0;
    ln_str_free(&text);
    return same || fails("request %d: its text differs", l->number);
}

/* Compares a result; a cancelled one must be a beginning of what the naive engine gave. */
static bool same_result(const live *l, const ln_result *out) {
    const question *q = l->q;
    const answer *a = l->want;
    const bool cut = out->finish == LN_FINISH_CANCELLED;
    const size_t most = cut ? a->all.n - (size_t)q->n_ids : a->n_visible;
    if (cut && !l->cancelled) return fails("request %d was cancelled by nobody", l->number);
    if (out->n_ids > most || (!cut && out->n_ids != most))
        return fails("request %d: %zu tokens, expected %zu", l->number, out->n_ids, most);
    if (!same_bits(l, out->ids, a->all.data + q->n_ids, out->n_ids, sizeof *out->ids, "token")) return false;
    if (q->logprobs && (!same_logprobs(l, out->logprobs, a->logprobs, out->n_ids) ||
                        !same_tops(l, out->top, a->top, out->n_ids * out->n_top, "likely token")))
        return false;
    if (!same_text(l, out, cut)) return false;
    if (cut) return true;
    if (out->finish != a->finish || out->stop_id != a->stop_id || out->stop_text != a->stop_text)
        return fails("request %d: finish %d, stop id %d, stop text %d, expected %d, %d, %d", l->number,
                     out->finish, out->stop_id, out->stop_text, a->finish, a->stop_id, a->stop_text);
    return same_prompt(l, out);
}

/* The longest beginning that the prompt of l shares with anything that the cache may hold for it. */
static int64_t longest_shared(const live *l, const live *all, int n) {
    const int64_t rope = ln_spec_rope_length(&l->w->m->spec, l->q->n_ids);
    int64_t best = 0;
    for (int i = 0; i < n; i++) {
        const live *o = &all[i];
        if (o == l || o->submitted < 0 || o->adapter != l->adapter) continue;
        if (ln_spec_rope_length(&o->w->m->spec, o->q->n_ids) != rope) continue;
        int64_t k = 0;
        while (k < (int64_t)o->want->all.n && k < l->q->n_ids - 1 && o->want->all.data[k] == l->q->ids[k])
            k++;
        best = LN_MAX(best, k);
    }
    return best;
}

static bool check_metrics(const live *l, const ln_metrics *m, const live *all, int n) {
    const int64_t k = m->cached_tokens, len = l->e->run->opt.page_len;
    if (k > 0) met.cached++;
    met.in_page += k % len != 0;
    if (k > 0 && (l->no_cache || (l->q->generate && l->q->prompt_logprobs)))
        return fails("request %d reuses %lld tokens, which it must not", l->number, (long long)k);
    if (all && k > longest_shared(l, all, n))
        return fails("request %d reuses %lld tokens, but shares at most %lld", l->number, (long long)k,
                     (long long)longest_shared(l, all, n));
    return true;
}

/* Reads the available events; the tokens and texts of events are those of the result. */
static bool read_events(live *l, int64_t most) {
    ln_event v = {.size = sizeof v};
    ln_error err = {0};
    while (most-- > 0) {
        if (ln_req_next(l->r, 0, &v, &err) != LN_OK) return fails("request %d: %s", l->number, err.message);
        if (v.kind == LN_EVENT_NONE || v.kind == LN_EVENT_FINISH) break;
        if (v.kind == LN_EVENT_TEXT) ln_str_add(&l->text, v.text, v.bytes);
        if (v.kind != LN_EVENT_TOKEN) continue;
        const size_t i = (size_t)l->n_events++, at = (size_t)l->q->n_ids + i;
        if (at >= l->want->all.n || v.id != l->want->all.data[at])
            return fails("request %d: event of token %zu differs", l->number, i);
        if (l->q->logprobs && !same_logprob(v.logprob, l->want->logprobs[i]))
            return fails("request %d: event of token %zu has another log-probability", l->number, i);
    }
    return true;
}

/* Compares a request that has finished, and frees it. */
static bool finish(live *l, const live *all, int n) {
    ln_result out;
    ln_error err = {0};
    const ln_status st = ln_req_result(l->r, &out, &err);
    const int64_t rows = l->q->n_ids - l->least;
    bool ok = st == LN_OK || fails("request %d failed: %s", l->number, err.message);
    if (ok && l->q->generate) ok = same_result(l, &out);
    else if (ok && !l->cancelled && l->stop_row < 0 && l->n_rows != rows)
        ok = fails("request %d got %lld rows of %lld (state %d)", l->number, (long long)l->n_rows,
                   (long long)rows, l->r->state);
    ok = ok && check_metrics(l, &out.metrics, all, n) && read_events(l, INT64_MAX);
    if (ok && l->q->generate &&
        (l->text.len != out.text_bytes ||
         memcmp(l->text.data ? l->text.data : "", out.text, l->text.len) != 0))
        ok = fails("request %d: the text of its events is not that of its result", l->number);
    ln_result_free(&out);
    ln_req_free(&l->r);
    l->done = true;
    met.finished++;
    met.rows += l->n_rows;
    return ok;
}

/* ---- a schedule ---- */

typedef struct schedule {
    uint64_t number, seed;
    world *w;
    ln_eng *e;
    live all[MOST_REQUESTS];
    int n;
    bool one_thread; /* the caller's loop drives */
    bool in_turn;    /* requests arrive one after another: most find what earlier ones left */
} schedule;

static void make_request(schedule *s, live *l, int i, int range) {
    uint64_t seed = s->number * 1000003 + (uint64_t)i * 8191 + 5;
    for (int k = 0; k < 4; k++) (void)test_random(&seed);
    const int q = (int)draw_below(&seed, range);
    *l = (live){
        .number = i, .w = s->w, .e = s->e, .q = world_question(s->w, q), .stop_row = -1, .submitted = -1};
    l->want = world_answer(s->w, q);
    l->adapter = draw_below(&seed, 10) ? 0 : 1 + (uint64_t)draw_below(&seed, 2);
    l->no_cache = draw_below(&seed, 12) == 0;
    l->arrives = s->in_turn ? 25 * i : draw_below(&seed, 3) ? draw_below(&seed, 1 + 12 * i) : 0;
    const int64_t kind = draw_below(&seed, 10);
    l->cancel = kind < 6 ? NEVER : kind == 6 ? AFTER_STEPS : kind == 7 ? IN_PROMPT : IN_ANSWER;
    l->closes = draw_below(&seed, 4) == 0;
    l->cancel_at = draw_below(&seed, l->cancel == AFTER_STEPS ? 6 : 12);
    if (l->q->generate) return;
    /* scoring waits on the thread that allows rows: a schedule has the one or the other */
    l->score = s->one_thread && s->n % 2 && draw_below(&seed, 2);
    l->n_allowed = s->n % 2 || draw_below(&seed, 3) ? 0 : 1 + draw_below(&seed, 20);
    if (draw_below(&seed, 4) == 0) l->stop_row = l->q->first_row + draw_below(&seed, l->q->n_ids);
    if (l->stop_row >= l->q->n_ids) l->stop_row = -1;
}

/* Opens the engine with a pool of some size: from what one request needs to what all slots could. */
static void resize_pool(schedule *s) {
    const int64_t all = s->e->run->sizes.n_pages;
    const live *l = &s->all[draw_below(&s->seed, s->n)];
    const int64_t n_new = l->q->generate ? LN_MIN(l->q->how.n_max, (int64_t)NAIVE_CTX) : 0;
    const int64_t n = LN_MIN(LN_MAX(l->q->n_ids + n_new, 1), s->w->n_ctx);
    const int64_t most = s->in_turn ? LN_MIN(all, all / s->e->run->opt.n_seqs * 3 / 2) : all;
    int64_t pages = draw_below(&s->seed, 4) ? 1 + draw_below(&s->seed, most) : 1;
    for (;; pages++) {
        ln_seqs_close(s->e);
        s->e->run->sizes.n_pages = pages;
        OK(ln_seqs_open(s->e, err));
        if (pages >= all || ln_seq_possible(s->e, n)) return;
    }
}

/* Whether what a prompt may reuse depends on more than its tokens. */
static bool is_special(const world *w) {
    const ln_spec *spec = &w->m->spec;
    return spec->n_recur || ln_spec_rope_length(spec, 100) || spec->attn[0].window ||
           spec->attn[spec->n_attn - 1].window;
}

static void open_schedule(schedule *s, uint64_t number) {
    static const int page_lens[] = {32, 32, 32, 64, 128}, ranges[] = {6, 12, 24, NAIVE_QUESTIONS};
    const bool reuse = number >= REUSE;
    *s = (schedule){.number = number, .seed = number * 2654435761u + 99};
    for (int k = 0; k < 4; k++) (void)test_random(&s->seed);
    do s->w = &worlds[draw_below(&s->seed, n_worlds)];
    while (reuse && !is_special(s->w));
    s->n = 1 + (int)draw_below(&s->seed, MOST_REQUESTS);
    const int seqs = 1 + (int)draw_below(&s->seed, draw_below(&s->seed, 3) ? 5 : MOST_REQUESTS);
    const int chunk = 1 + (int)draw_below(&s->seed, draw_below(&s->seed, 3) ? 40 : 200);
    /* seldom more than one thread: if others use the cores, each op waits until all threads had their turn */
    const int threads = draw_below(&s->seed, 8) ? 1 : 2 + (int)draw_below(&s->seed, 2);
    ln_run_options r = test_options(s->w->m, LN_DEVICE_AUTO, threads, chunk, seqs);
    r.n_ctx = r.n_prefault = s->w->n_ctx;
    r.numerics = s->w->numerics;
    r.page_len = s->w->m->spec.n_recur ? NAIVE_CHUNK : page_lens[draw_below(&s->seed, LN_COUNT(page_lens))];
    if (draw_below(&s->seed, 2)) r.n_logits = 1 + (int)draw_below(&s->seed, r.n_chunk);
    OK(ln_eng_open_with(&s->e, s->w->m, &r, err));
    met.of_hybrids += s->w->m->spec.n_recur > 0;
    met.of_experts += ln_weights_have_experts(&s->w->m->weights);
    s->one_thread = draw_below(&s->seed, 6) > 0 || reuse;
    s->in_turn = draw_below(&s->seed, 2) == 0 || reuse;
    /* few questions: the same texts again and again; many: other texts and options */
    const int range = ranges[draw_below(&s->seed, reuse ? 3 : LN_COUNT(ranges))];
    for (int i = 0; i < s->n; i++) make_request(s, &s->all[i], i, range);
    resize_pool(s);
}

static bool check_pages(const schedule *s) {
    const ln_kv_counts c = ln_kv_count(s->e->kv);
    if (c.n_free + c.n_used + c.n_cached == c.n_pages) return true;
    return fails("%lld pages free, %lld used, %lld kept, of %lld", (long long)c.n_free, (long long)c.n_used,
                 (long long)c.n_cached, (long long)c.n_pages);
}

/* Whether the time of a running request's cancel has come. */
static bool due(const live *l, int64_t step) {
    if (!l->r || l->done || l->cancelled || l->r->state == LN_REQ_DONE) return false;
    const int64_t n = (int64_t)l->r->all.n - l->q->n_ids;
    if (l->cancel == AFTER_STEPS) return step >= l->submitted + l->cancel_at;
    if (l->cancel == IN_PROMPT) return l->r->n_read > 0 && l->r->n_read < l->q->n_ids;
    return l->cancel == IN_ANSWER && n >= LN_MAX(l->cancel_at, 1);
}

static void cancel(live *l) {
    if (l->r->state == LN_REQ_WAITING) met.in_queue++;
    else if (l->r->n_read < l->q->n_ids) met.in_prompt++;
    else met.in_answer++;
    l->cancelled = true;
    if (!l->closes) {
        ln_req_cancel(l->r);
        return;
    }
    met.closed++;
    ln_req_free(&l->r);
    l->done = true;
}

/* What the caller's loop does between two steps. */
static bool between(schedule *s, int64_t step) {
    if (draw_below(&s->seed, 400) == 0) ln_kv_clear(s->e->kv);
    if (draw_below(&s->seed, 200) == 0)
        (void)ln_kv_set_limit(s->e->kv, draw_below(&s->seed, 3) ? INT64_MAX : draw_below(&s->seed, 9));
    for (int i = 0; i < s->n; i++) {
        live *l = &s->all[i];
        if (!l->r && !l->done && step >= l->arrives && !submit(l, step) && failed()) return false;
        if (!l->r || l->done) continue;
        if (due(l, step)) cancel(l);
        if (l->done) continue;
        if (l->n_allowed > 0 && draw_below(&s->seed, 3) == 0) ln_req_allow(l->r, l->n_allowed);
        if (draw_below(&s->seed, 4) == 0 && !read_events(l, 3)) return false;
    }
    return true;
}

static bool step_through(schedule *s) {
    size_t n_active = 1;
    int64_t left = s->n;
    ln_error err = {0};
    for (int64_t step = 0; left > 0 && step < MOST_STEPS; step++) {
        if (!between(s, step)) return false;
        if (ln_driver_step(s->e->sched, &n_active, &err) != LN_OK) return fails("a step: %s", err.message);
        if (!check_pages(s)) return false;
        left = 0;
        for (int i = 0; i < s->n; i++) {
            live *l = &s->all[i];
            left += !l->done;
            if (!l->r || l->done) continue;
            met.waited += l->r->state == LN_REQ_WAITING;
            const bool ended = l->r->state == LN_REQ_DONE;
            if (l->cancelled && !ended) return fails("request %d runs on, although cancelled", l->number);
            if (ended && draw_below(&s->seed, 3) && !finish(l, s->all, s->n)) return false;
        }
    }
    return left == 0 || fails("%lld requests have not finished after %d steps", (long long)left, MOST_STEPS);
}

/* ---- other drivers: the engine's thread, and threads that wait ---- */

typedef struct client {
    schedule *s;
    int first, every;
    uint64_t seed;
} client;

static void nap(uint64_t *seed) {
    const struct timespec t = {0, 1000 * draw_below(seed, 100)};
    if (draw_below(seed, 2)) (void)nanosleep(&t, NULL);
}

/* Submits some of the requests, cancels, and waits for each. */
static void *be_client(void *arg) {
    client *c = arg;
    schedule *s = c->s;
    for (int i = c->first; i < s->n && !failed(); i += c->every) {
        nap(&c->seed);
        if (!s->all[i].done) (void)submit(&s->all[i], 0);
    }
    for (int i = c->first; i < s->n && !failed(); i += c->every) {
        live *l = &s->all[i];
        if (l->done) continue;
        if (l->n_allowed > 0) ln_req_allow(l->r, l->q->n_ids);
        if (l->cancel != NEVER) {
            l->cancelled = true;
            nap(&c->seed);
            ln_req_cancel(l->r);
        }
        if (draw_below(&c->seed, 2) && !read_events(l, 2)) break;
        (void)ln_req_wait(l->r, NULL);
    }
    return NULL;
}

static bool run_threads(schedule *s) {
    enum { MOST = 4 };
    client clients[MOST];
    pthread_t threads[MOST];
    const int n = 1 + (int)draw_below(&s->seed, MOST);
    const bool own = n == 1 || draw_below(&s->seed, 2);
    if (own) OK(ln_driver_start(s->e->sched, err));
    for (int i = 0; i < n; i++) {
        clients[i] = (client){s, i, n, s->number * 31 + (uint64_t)i};
        assert_int_equal(pthread_create(&threads[i], NULL, be_client, &clients[i]), 0);
    }
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    if (own) ln_driver_stop(s->e->sched);
    return !failed();
}

/* ---- running schedules ---- */

/* Runs a schedule with the requests of `mask`; false: it fails, and `why` says how. */
static bool run_schedule(uint64_t number, uint32_t mask) {
    static schedule s;
    why[0] = 0;
    atomic_store(&any_failed, false);
    open_schedule(&s, number);
    for (int i = 0; i < s.n; i++) s.all[i].done = !(mask >> i & 1);
    bool ok = s.one_thread ? step_through(&s) : run_threads(&s);
    for (int i = 0; i < s.n; i++) {
        live *l = &s.all[i];
        if (l->r && ok) ok = finish(l, s.one_thread ? s.all : NULL, s.n);
        ln_req_free(&l->r);
        ln_str_free(&l->text);
    }
    const ln_kv_counts c = ln_kv_count(s.e->kv);
    met.evicted += (int64_t)c.n_evicted;
    if (ok && c.n_used > 0) ok = fails("%lld pages are used when all is over", (long long)c.n_used);
    ok = ok && check_pages(&s);
    ln_kv_clear(s.e->kv);
    if (ok && ln_kv_count(s.e->kv).n_free != c.n_pages) ok = fails("pages are lost");
    ln_eng_close(&s.e);
    return ok;
}

/* Leaves out requests as long as the schedule still fails. */
static void shrink_and_fail(uint64_t number, uint32_t mask) {
    char first[sizeof why];
    memcpy(first, why, sizeof why);
    for (int i = 0; i < MOST_REQUESTS; i++)
        if ((mask >> i & 1) && (mask & (mask - 1)) && !run_schedule(number, mask & ~(1u << i))) {
            mask &= ~(1u << i);
            memcpy(first, why, sizeof why);
        }
    (void)run_schedule(number, mask);
    fail_msg("schedule %llu: %s\nagain: LN_SCHEDULE=%llu LN_REQUESTS=0x%x build/test_schedules",
             (unsigned long long)number, first, (unsigned long long)number, mask);
}

static uint64_t from_env(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

/* Runs n schedules from number `first` on, or the one of this kind that LN_SCHEDULE names. */
static void run_schedules(uint64_t first, uint64_t n) {
    const uint64_t one = from_env("LN_SCHEDULE", first);
    const uint32_t mask = (uint32_t)from_env("LN_REQUESTS", 0x1ffff);
    memset(&met, 0, sizeof met);
    if (getenv("LN_SCHEDULE")) n = (one >= REUSE) == (first >= REUSE);
    for (uint64_t i = one; i < one + n; i++) {
        if (!run_schedule(i, mask)) shrink_and_fail(i, mask);
        if ((i + 1 - one) % 500 == 0)
            print_message("%llu of %llu\n", (unsigned long long)(i + 1 - one), (unsigned long long)n);
    }
    print_message("%llu schedules (%lld of models with recurrent layers, %lld with experts): %lld requests "
                  "finished, %lld reused a prefix, %lld of them into a page; "
                  "%lld rows; %lld waits, %lld refused; %lld pages evicted; cancelled: %lld in the queue, "
                  "%lld in the prompt, %lld in the answer, %lld closed\n",
                  (unsigned long long)n, (long long)met.of_hybrids, (long long)met.of_experts,
                  (long long)met.finished, (long long)met.cached, (long long)met.in_page, (long long)met.rows,
                  (long long)met.waited, (long long)atomic_load(&met.refused), (long long)met.evicted,
                  (long long)met.in_queue, (long long)met.in_prompt, (long long)met.in_answer,
                  (long long)met.closed);
}
static uint64_t n_schedules(int64_t usual, int64_t sanitized) {
    return from_env("LN_SCHEDULES", getenv("LN_LONG") ? 10000 : (uint64_t)fewer(usual, sanitized));
}

static void random_schedules(void **state) {
    const uint64_t n = n_schedules(50, 8);
    (void)state;
    run_schedules(from_env("LN_SCHEDULES_FROM", 0), n);
    if (n >= 50 && !getenv("LN_SCHEDULE"))
        assert_true(met.cached > 0 && met.in_page > 0 && met.evicted > 0 && met.waited > 0 && met.rows > 0 &&
                    met.in_queue > 0 && met.in_prompt > 0 && met.in_answer > 0 && met.closed > 0 &&
                    met.of_hybrids > 0 && met.of_experts > 0);
}
static void schedules_of_prefixes(void **state) {
    const uint64_t n = n_schedules(40, 4);
    (void)state;
    run_schedules(REUSE + from_env("LN_SCHEDULES_FROM", 0), n);
    if (n >= 40 && !getenv("LN_SCHEDULE")) assert_true(met.cached > 20);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_schedules),
                                       cmocka_unit_test(schedules_of_prefixes)};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, open_models, close_models);
}
