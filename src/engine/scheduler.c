/* The step of an engine: cancellations, admissions, one batch for all running requests, sampling, delivery.
 *
 * Admission is first come, first served: a request that the pool cannot commit pages for makes those behind
 * it wait. Every decoding sequence has one row in a step; prompts share the other rows evenly, and what does
 * not divide goes to the oldest, as do shares that would be very small. Rows of logits are granted one to
 * each request that needs some, then to those that want the logits of their prompt. An engine with fewer
 * rows of logits than sequences serves the request that has waited longest first.
 *
 * Errors. What concerns one request (its logits, its memory, its callbacks) ends that request alone. When the
 * step itself fails, all requests end with its error. */
#include "memory_control.h"
#include "memory_plan.h"
#include "scheduler.h"

#include <stdlib.h>
#include <string.h>

/* ---- queue and running requests, with the lock ---- */

void ln_sched_enqueue(ln_sched *s, ln_req *r) {
    r->next = NULL;
    r->prev = s->queue_end;
    if (s->queue_end) s->queue_end->next = r;
    else s->queue = r;
    s->queue_end = r;
    s->n_waiting++;
    s->stats.n_requests++;
    s->stats.prompt_tokens += (uint64_t)r->opt.n_ids;
}

bool ln_sched_waits(const ln_sched *s, const ln_req *r) { return r->prev || s->queue == r; }

void ln_sched_remove(ln_sched *s, ln_req *r) {
    if (ln_sched_waits(s, r)) {
        if (r->prev) r->prev->next = r->next;
        else s->queue = r->next;
        if (r->next) r->next->prev = r->prev;
        else s->queue_end = r->prev;
        r->next = r->prev = NULL;
        s->n_waiting--;
        return;
    }
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i] == r) {
            s->n_running--;
            memmove(s->running + i, s->running + i + 1, (size_t)(s->n_running - i) * sizeof *s->running);
            return;
        }
}

/* Copies the counts of pages to the statistics. With the lock, by the holder of the token or while nobody has
 * it. */
static void count_pages(ln_sched *s) {
    const ln_kv_counts c = ln_kv_count(s->e->kv);
    s->stats.n_pages = c.n_pages;
    s->stats.n_used = c.n_used;
    s->stats.n_cached = c.n_cached;
    const ln_kv_counts state = ln_kv_count_chunks(s->e->kv);
    s->stats.n_state_pages = state.n_pages;
    s->stats.n_state_used = state.n_used;
    s->stats.n_state_cached = state.n_cached;
}

void ln_sched_stats(ln_sched *s, ln_engine_stats *out) {
    pthread_mutex_lock(&s->lock);
    if (!s->busy) count_pages(s);
    const uint32_t size = out->size;
    *out = s->stats;
    out->size = size;
    out->n_running = s->n_running;
    out->n_waiting = s->n_waiting;
    out->n_parallel = s->e->run->opt.n_seqs;
    pthread_mutex_unlock(&s->lock);
}

/* ---- ends and beginnings ---- */

void ln_sched_end(ln_sched *s, ln_req *r, ln_finish how, const ln_error *error) {
    ln_error fault;
    if (!error && r->opt.how && ln_answer_flush(&r->answer, &fault) != LN_OK) error = &fault;
    if (r->seq) ln_seq_close(s->e, &r->seq);
    ln_lookup_close(&r->lookup);
    pthread_mutex_lock(&s->lock);
    count_pages(s);
    ln_sched_remove(s, r);
    ln_req_finish(r, how, error);
    pthread_mutex_unlock(&s->lock);
}

/* The running request, or one in the queue, that was asked to end; NULL: none. */
static ln_req *find_cancelled(ln_sched *s) {
    ln_req *found = NULL;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n_running && !found; i++)
        if (ln_req_cancelled(s->running[i])) found = s->running[i];
    for (ln_req *r = s->queue; r && !found; r = r->next)
        if (ln_req_cancelled(r)) found = r;
    if (found) found->state = LN_REQ_RUNNING; /* so that ln_req_free waits for the token */
    pthread_mutex_unlock(&s->lock);
    return found;
}

/* Looks at all requests only when something in the process was stopped since the last look. */
static bool end_cancelled(ln_sched *s) {
    const uint64_t n_stops = atomic_load(&ln_stop_count);
    bool any = false;
    if (n_stops == s->n_stops && !ln_eng_cancelled(s->e)) return false;
    s->n_stops = n_stops;
    for (ln_req *r; (r = find_cancelled(s)); any = true) ln_sched_end(s, r, LN_FINISH_CANCELLED, NULL);
    return any;
}

static void end_all(ln_sched *s, const ln_error *error) {
    for (;;) {
        pthread_mutex_lock(&s->lock);
        ln_req *r = s->n_running > 0 ? s->running[0] : s->queue;
        if (r) r->state = LN_REQ_RUNNING;
        pthread_mutex_unlock(&s->lock);
        if (!r) return;
        ln_sched_end(s, r, LN_FINISH_CANCELLED, error);
    }
}

/* Whether the sequence of a request is computed again: what it reads is not only its prompt. */
static bool reads_again(const ln_req *r) { return r->n_prompt != r->opt.n_ids; }

/* Whether the rows of the prompt from first_row on have logits. */
static bool wants_rows(const ln_req *r) {
    return (r->opt.on_row || r->opt.prompt_logprobs) && !reads_again(r);
}

/* Closes the sequences of answers that have grown beyond the length from which on all rows of a text have
 * other frequencies. Their requests wait at the head of the queue, in their order, and read the whole text.
 */
static void restart_grown(ln_sched *s) {
    const int64_t most = ln_spec_rope_switch(s->e->run->spec);
    for (int i = s->n_running - 1; most > 0 && i >= 0; i--) {
        ln_req *r = s->running[i];
        if (!ln_req_generates(r) || r->state != LN_REQ_RUNNING || r->n_prompt > most ||
            (int64_t)r->all.n <= most)
            continue;
        ln_seq_close(s->e, &r->seq);
        pthread_mutex_lock(&s->lock);
        ln_sched_remove(s, r);
        r->n_prompt = (int64_t)r->all.n;
        r->state = LN_REQ_WAITING;
        r->next = s->queue;
        if (s->queue) s->queue->prev = r;
        else s->queue_end = r;
        s->queue = r;
        s->n_waiting++;
        pthread_mutex_unlock(&s->lock);
    }
}

/* Takes the sequence for the first request of the queue; NULL in r->seq: it must wait. */
static ln_status open_seq(ln_sched *s, ln_req *r, ln_error *err) {
    const size_t n = (size_t)r->opt.n_ids, n_top = (size_t)r->opt.n_top;
    const ln_seq_options o = {.ids = r->all.data,
                              .n_prompt = r->n_prompt,
                              .n_most = r->n_most,
                              .n_fresh = wants_rows(r) && r->opt.on_row ? r->opt.n_ids - r->opt.first_row : 0,
                              .n_share = r->opt.n_share,
                              .no_cache = r->opt.no_cache || r->opt.prompt_logprobs,
                              .adapter = r->opt.adapter,
                              .adapter_slot = r->opt.adapter_slot};
    if (r->opt.prompt_logprobs && !r->prompt_logprobs) {
        r->prompt_logprobs = ln_zalloc(n + 1, sizeof *r->prompt_logprobs);
        r->prompt_top = ln_zalloc(n * n_top + 1, sizeof *r->prompt_top);
        if (!r->prompt_logprobs || !r->prompt_top) return LN_OOM(err, "log-probabilities of a prompt");
    }
    if (r->opt.n_lookup > 0 && r->opt.how && r->how.n_max > 1 && !r->lookup.ends)
        LN_TRY(ln_lookup_open(&r->lookup, r->n_most + 1, r->opt.n_lookup, err));
    return ln_seq_open(s->e, &o, &r->seq, err);
}

static void begin(ln_sched *s, ln_req *r) {
    ln_sched_remove(s, r);
    s->running[s->n_running++] = r;
    r->turn = s->n_steps;
    if (reads_again(r)) return;
    r->n_read = r->seq->n;
    r->metrics.cached_tokens = r->seq->n_cached;
    r->metrics.cache_miss_reason = r->seq->cache_miss_reason;
    r->metrics.queue_seconds = r->metrics.prefill_seconds = ln_now() - r->opt.opened;
    s->stats.cached_tokens += (uint64_t)r->seq->n_cached;
}

/* Admits requests from the head of the queue while there is room. */
static bool admit(ln_sched *s) {
    for (bool any = false;; any = true) {
        ln_error err;
        pthread_mutex_lock(&s->lock);
        ln_req *r = s->n_running < s->e->run->opt.n_seqs ? s->queue : NULL;
        if (r) r->state = LN_REQ_RUNNING; /* so that ln_req_free waits for the token */
        pthread_mutex_unlock(&s->lock);
        if (!r) return any;
        if (open_seq(s, r, &err) != LN_OK) {
            ln_sched_end(s, r, LN_FINISH_CANCELLED, &err);
            continue;
        }
        pthread_mutex_lock(&s->lock);
        const bool waits = !r->seq;
        if (waits) r->state = LN_REQ_WAITING;
        else begin(s, r);
        pthread_mutex_unlock(&s->lock);
        if (waits) return any;
    }
}

/* ---- what a step takes of each request ---- */

static int64_t left_of(const ln_req *r) { return r->n_prompt - r->seq->n; }

/* The first row of the prompt whose logits are wanted; n_prompt: none are. */
static int64_t first_out(const ln_req *r) {
    return wants_rows(r) ? (r->opt.prompt_logprobs ? 0 : r->opt.first_row)
                         : r->n_prompt - (ln_req_generates(r) ? 1 : 0);
}

/* Rows that a step may take of a prompt at most: up to the first row with logits, or from there on. */
static int64_t most_rows(const ln_req *r) {
    const int64_t out = first_out(r), n = r->seq->n;
    if (n < out) return (out < r->n_prompt - 1 ? out : r->n_prompt) - n;
    return r->opt.on_row && wants_rows(r) ? LN_MIN(left_of(r), atomic_load(&r->n_allowed)) : left_of(r);
}

/* Shares `rows`, and as many rows of output, among prompts that are computed whole (ln_spec_both_ways), the
 * oldest first. Those that do not fit wait. */
static void share_whole(ln_sched *s, int64_t rows) {
    for (int i = 0; i < s->n_running; i++) {
        ln_req *r = s->running[i];
        r->share = r->state == LN_REQ_RUNNING && left_of(r) <= rows ? left_of(r) : 0;
        r->grant = r->share;
        r->turn = s->n_steps;
        rows -= r->share;
    }
}

/* Shares `rows` evenly among the prompts that are read; what does not divide goes to the oldest. Prompts that
 * can take fewer leave the rest to the others. Where many prompts are read, the oldest take a page of rows
 * each, or an eighth of the step: attention and the writing of pages cost something for each prompt of a
 * step, however few its rows are, and short prompts end in one step. */
static void share_rows(ln_sched *s, int64_t rows) {
    const int64_t least = LN_MAX(LN_MIN((int64_t)s->e->run->kv.page_len, rows / 8), 1);
    int n = 0;
    for (int i = 0; i < s->n_running; i++) {
        ln_req *r = s->running[i];
        r->share = 0;
        if (r->state == LN_REQ_RUNNING && left_of(r) > 0 && most_rows(r) > 0) s->order[n++] = r;
    }
    while (rows > 0 && n > 0) {
        const int64_t each = LN_MAX(rows / n, least);
        int still = 0;
        for (int i = 0; i < n && rows > 0; i++) {
            ln_req *r = s->order[i];
            const int64_t k = LN_MIN(LN_MIN(each, most_rows(r) - r->share), rows);
            r->share += k;
            rows -= k;
            if (r->share < most_rows(r)) s->order[still++] = r;
        }
        n = still;
    }
}

static int by_turn(const void *a, const void *b) {
    const ln_req *x = *(ln_req *const *)a, *y = *(ln_req *const *)b;
    return (x->turn > y->turn) - (x->turn < y->turn);
}

/* Rows of logits that the share of a request could use. */
static int64_t could_use(const ln_req *r) {
    const int64_t from = LN_MAX(r->seq->n, first_out(r));
    return LN_MAX(r->seq->n + r->share - from, 0);
}

/* Whether a request embeds in the step that is being built, no request of the step needs logits, and the run
 * has the program for that. */
static bool is_headless(const ln_sched *s) {
    bool embeds = false;
    if (!s->e->run->programs[LN_RUN_HIDDEN].made) return false;
    for (int i = 0; i < s->n_running; i++) {
        const ln_req *r = s->running[i];
        if (r->share > 0 && !r->opt.no_logits && could_use(r) > 0) return false;
        embeds |= r->share > 0 && r->opt.no_logits;
    }
    return embeds;
}

/* Grants the rows of logits: one to each that needs some, then the rest to prompts whose rows are wanted. */
static void grant_logits(ln_sched *s) {
    int64_t outs = s->headless ? s->e->run->opt.n_chunk : s->e->run->opt.n_logits;
    int n = 0;
    for (int i = 0; i < s->n_running; i++) {
        ln_req *r = s->running[i];
        r->grant = 0;
        if (r->share > 0 && could_use(r) > 0) s->order[n++] = r;
    }
    if (n > outs) qsort(s->order, (size_t)n, sizeof(ln_req *), by_turn);
    n = (int)LN_MIN(n, outs);
    outs -= n;
    int64_t wanting = 0;
    for (int i = 0; i < n; i++) {
        s->order[i]->grant = 1;
        s->order[i]->turn = s->n_steps;
        wanting += could_use(s->order[i]) > 1;
    }
    for (int i = 0; i < n && wanting > 0; i++) {
        ln_req *r = s->order[i];
        if (could_use(r) <= 1) continue;
        const int64_t k = LN_MIN(could_use(r) - 1, outs / wanting);
        r->grant += k;
        outs -= k;
        wanting--;
    }
}

static void add_item(ln_sched *s, ln_req *r, int64_t n, ln_logits_mode want) {
    if (n == 0) return;
    s->parts[s->n_items] = r;
    s->items[s->n_items++] = (ln_batch_item){r->seq, r->all.data + r->seq->n, n, want};
}

/* Builds the items of a step: decoding sequences first. Returns the rows of prompts among them. */
static int64_t build(ln_sched *s, int64_t *n_decode) {
    const ln_run_options *o = &s->e->run->opt;
    int64_t n_prefill = 0;
    *n_decode = 0;
    for (int i = 0; i < s->n_running; i++)
        *n_decode += s->running[i]->state == LN_REQ_RUNNING && left_of(s->running[i]) <= 0;
    int64_t rows = o->n_chunk - *n_decode;
    if (*n_decode > 0) rows = LN_MIN(rows, ln_prefill_budget_rows(&s->prefill_budget));
    const bool whole = ln_spec_both_ways(s->e->run->spec);
    if (whole) share_whole(s, rows);
    else share_rows(s, rows);
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i]->state == LN_REQ_RUNNING && left_of(s->running[i]) <= 0) s->running[i]->share = 1;
    s->headless = is_headless(s);
    if (!whole) grant_logits(s);
    s->n_items = 0;
    *n_decode = 0;
    for (int i = 0; i < s->n_running; i++) {
        ln_req *r = s->running[i];
        if (r->share == 0 || left_of(r) > 0 || r->grant == 0) continue;
        add_item(s, r, 1, LN_LOGITS_LAST);
        ++*n_decode;
    }
    for (int i = 0; i < s->n_running; i++) {
        ln_req *r = s->running[i];
        const int before = s->n_items;
        if (r->share == 0 || left_of(r) <= 0) continue;
        if (r->seq->n >= first_out(r)) add_item(s, r, LN_MIN(r->share, r->grant), LN_LOGITS_ALL);
        else if (could_use(r) == 0) add_item(s, r, r->share, LN_LOGITS_NONE);
        else if (r->grant > 0) add_item(s, r, r->share, LN_LOGITS_LAST);
        else add_item(s, r, r->share - 1, LN_LOGITS_NONE);
        if (s->n_items > before) n_prefill += s->items[before].n;
    }
    if (o->n_lookup > 0) ln_sched_propose(s, (int)*n_decode);
    return n_prefill;
}

/* ---- after the step's model run ---- */

/* Lists what is read of the rows of one item, from row `row` of the step's logits on. A request has at most
 * one entry for each row: LN_SAMPLE_ROWS stands for all of them. The sequence has not advanced yet. */
static void list_rows(ln_sched *s, ln_req *r, const ln_batch_item *item, int64_t row) {
    const int64_t n = ln_sched_rows_out(item), end = r->seq->n + item->n, first = end - n;
    const bool of_prompt = n > 0 && r->seq->n < r->n_prompt && wants_rows(r),
               rows = of_prompt && r->opt.on_row;
    if (rows)
        ln_sched_add_job(s, (ln_sample_job){.r = r, .kind = LN_SAMPLE_ROWS, .row = row, .t = first, .n = n});
    for (int64_t i = 0; i < n && of_prompt && r->opt.prompt_logprobs; i++)
        if (first + i + 1 < r->opt.n_ids)
            ln_sched_add_job(s, (ln_sample_job){
                                    .r = r, .kind = LN_SAMPLE_SCORE, .row = row + i, .t = first + i});
    if (ln_req_generates(r) && end >= r->n_prompt && !rows)
        ln_sched_add_job(s, (ln_sample_job){
                                .r = r, .kind = LN_SAMPLE_TOKEN, .row = row + n - 1 - r->n_proposed});
}

static void list_all_rows(ln_sched *s) {
    int64_t row = 0;
    s->n_jobs = 0;
    for (int i = 0; i < s->n_items; i++) {
        s->parts[i]->fault.code = LN_OK;
        list_rows(s, s->parts[i], &s->items[i], row);
        row += ln_sched_rows_out(&s->items[i]);
    }
}

/* While the device computes the step. */
static void on_submitted(void *user) {
    list_all_rows(user);
    ln_sched_sample_on_device(user);
}

/* Times: start, and after the run and the sampling of this step; `late`: of delivery in the step before. */
typedef struct step_times {
    double start, ran, sampled, late;
} step_times;

/* Publishes how far each request is, and the time that it took. */
static void publish(ln_sched *s, const step_times *t) {
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n_items; i++) {
        ln_req *r = s->parts[i];
        ln_metrics *m = &r->metrics;
        const bool prompt = r->n_read < r->opt.n_ids;
        if (prompt) {
            m->prefill_seconds += t->ran - t->start;
            r->n_read = r->seq->n;
            if (r->n_read == r->opt.n_ids) {
                m->decode_seconds = t->sampled - t->ran;
                m->first_token_seconds = m->prefill_seconds + m->decode_seconds;
            } else {
                ln_req_changed(r);
            }
        } else {
            m->decode_seconds += t->sampled - t->start + t->late;
        }
        m->reasoning_tokens = r->opt.how ? r->answer.n_reasoning : 0;
        m->proposed_tokens += r->n_proposed, m->accepted_tokens += r->n_accepted;
        s->stats.proposed_tokens += (uint64_t)r->n_proposed;
        s->stats.accepted_tokens += (uint64_t)r->n_accepted;
    }
    count_pages(s);
    s->stats.n_steps++;
    s->stats.step_seconds = t->sampled - t->start;
    pthread_mutex_unlock(&s->lock);
}

/* Gives one request its part of the step: its token, its end. */
static void deliver(ln_sched *s, ln_req *r) {
    ln_error err;
    bool done = false;
    ln_finish how = LN_FINISH_LENGTH;
    if (r->fault.code != LN_OK) {
        err = r->fault; /* r may be gone before its error was copied */
        ln_sched_end(s, r, LN_FINISH_CANCELLED, err.code == LN_ECANCELLED ? NULL : &err);
        return;
    }
    if (r->seq->n < r->n_prompt) return; /* its prompt goes on */
    if (r->over) {
        ln_sched_end(s, r, r->over_how, NULL);
    } else if (ln_req_generates(r)) {
        if (ln_req_take(r, &done, &how, &err) != LN_OK) ln_sched_end(s, r, LN_FINISH_CANCELLED, &err);
        else if (done) ln_sched_end(s, r, how, NULL);
    } else if (r->opt.hold) {
        pthread_mutex_lock(&s->lock);
        r->state = LN_REQ_HELD;
        ln_req_changed(r);
        pthread_mutex_unlock(&s->lock);
    } else {
        ln_sched_end(s, r, LN_FINISH_LENGTH, NULL);
    }
}

/* Computes the rows of the step, and keeps all of those that were not proposed. */
static ln_status run_items(ln_sched *s, ln_error *err) {
    if (s->headless) return ln_eng_step_headless(s->e, s->items, s->n_items, err);
    LN_TRY(ln_eng_run(s->e, s->items, s->n_items, err));
    for (int i = 0; i < s->n_items; i++)
        if (s->parts[i]->n_proposed == 0) LN_TRY(ln_eng_commit(s->e, &s->items[i], s->items[i].n, err));
    return LN_OK;
}

ln_status ln_sched_step(ln_sched *s, bool *worked, ln_error *err) {
    step_times t = {.late = s->late_seconds};
    int64_t n_decode;
    ln_error own;
    err = err ? err : &own;
    ln_cache_apply(s->e);
    *worked = end_cancelled(s);
    restart_grown(s);
    *worked = admit(s) || *worked;
    t.start = ln_now();
    const int64_t n_prefill = build(s, &n_decode);
    if (s->n_items == 0) return LN_OK;
    *worked = true;
    s->n_steps++;
    s->e->run->submitted = on_submitted, s->e->run->submitted_user = s;
    ln_status st = run_items(s, err);
    s->e->run->submitted = NULL;
    t.ran = ln_now();
    if (st == LN_OK) {
        ln_sched_sample(s);
        st = ln_sched_accept(s, err);
    }
    if (st != LN_OK) {
        end_all(s, err);
        return st;
    }
    t.sampled = ln_now();
    ln_prefill_budget_record(&s->prefill_budget, n_decode, n_prefill, t.sampled - t.start);
    publish(s, &t);
    for (int i = 0; i < s->n_items; i++) deliver(s, s->parts[i]);
    ln_cache_apply(s->e);
    pthread_mutex_lock(&s->lock);
    count_pages(s);
    pthread_mutex_unlock(&s->lock);
    s->late_seconds = ln_now() - t.sampled;
    return LN_OK;
}

/* ---- opening ---- */

static int scratch_of(const ln_run_options *o) { return LN_MIN(o->n_threads, o->n_logits); }

/* The most jobs of a step: one for each row of logits or, without logits, for each sequence. */
static int most_jobs(const ln_run_options *o) { return LN_MAX(o->n_logits, o->n_seqs); }

uint64_t ln_sched_bytes(const ln_run_options *o, int64_t n_vocab) {
    return sizeof(ln_sched) + (uint64_t)o->n_seqs * (sizeof(ln_batch_item) + 3 * sizeof(ln_req *)) +
           (o->n_lookup > 0 ? (uint64_t)o->n_logits * sizeof(int32_t) : 0) +
           (uint64_t)most_jobs(o) *
               (sizeof(ln_sample_job) + sizeof(ln_row_sampling) + sizeof(int32_t) + sizeof(int)) +
           (uint64_t)scratch_of(o) *
               (sizeof(ln_scratch) + ln_sampler_bytes(n_vocab) + (uint64_t)n_vocab * sizeof(float));
}

static ln_status open_arrays(ln_sched *s, ln_error *err) {
    const ln_run_options *o = &s->e->run->opt;
    const int64_t V = s->e->run->spec->V;
    const size_t n = (size_t)o->n_seqs;
    s->running = ln_zalloc(n, sizeof *s->running);
    s->parts = ln_zalloc(n, sizeof *s->parts);
    s->order = ln_zalloc(n, sizeof *s->order);
    s->items = ln_zalloc(n, sizeof *s->items);
    s->proposed = ln_zalloc(o->n_lookup > 0 ? (size_t)o->n_logits : 1, sizeof *s->proposed);
    s->jobs = ln_zalloc((size_t)most_jobs(o), sizeof *s->jobs);
    s->rows = ln_zalloc((size_t)most_jobs(o), sizeof *s->rows);
    s->row_ids = ln_zalloc((size_t)most_jobs(o), sizeof *s->row_ids);
    s->row_jobs = ln_zalloc((size_t)most_jobs(o), sizeof *s->row_jobs);
    s->scratch = ln_zalloc((size_t)scratch_of(o), sizeof *s->scratch);
    if (!s->running || !s->parts || !s->order || !s->items || !s->proposed || !s->jobs || !s->scratch ||
        !s->rows || !s->row_ids || !s->row_jobs)
        return LN_OOM(err, "the scheduler");
    for (; s->n_scratch < scratch_of(o); s->n_scratch++) {
        ln_scratch *x = &s->scratch[s->n_scratch];
        x->logits = ln_zalloc((size_t)V, sizeof *x->logits);
        if (!x->logits) return LN_OOM(err, "the scheduler");
        const ln_status st = ln_sampler_open(&x->sampler, V, err);
        if (st != LN_OK) {
            ln_free(x->logits);
            return st;
        }
    }
    return LN_OK;
}

ln_status ln_sched_open(ln_sched **out, ln_eng *e, ln_error *err) {
    ln_sched *s = *out = ln_zalloc(1, sizeof *s);
    if (!s) return LN_OOM(err, "the scheduler");
    s->e = e;
    s->stats.page_bytes = (uint64_t)e->run->kv.page_bytes;
    s->stats.state_page_bytes = (uint64_t)e->run->kv.recur_page_bytes;
    s->request_planned = s->request_allowed = ln_requests_bytes(&e->run->opt, &e->run->sizes, 0);
    count_pages(s);
    ln_status st = ln_driver_open(s, err);
    if (st == LN_OK) st = open_arrays(s, err);
    if (st != LN_OK) ln_sched_close(out);
    return st;
}

void ln_sched_close(ln_sched **out) {
    ln_sched *s = *out;
    if (!s) return;
    ln_driver_close(s);
    for (int i = 0; i < s->n_scratch; i++) {
        ln_free(s->scratch[i].logits);
        ln_sampler_close(&s->scratch[i].sampler);
    }
    ln_free(s->running);
    ln_free(s->parts);
    ln_free(s->order);
    ln_free(s->items);
    ln_free(s->proposed);
    ln_free(s->jobs);
    ln_free(s->rows);
    ln_free(s->row_ids);
    ln_free(s->row_jobs);
    ln_free(s->edits);
    ln_free(s->scratch);
    ln_free(s);
    *out = NULL;
}
