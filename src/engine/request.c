/* Requests: creation, the reader's side, waiting, the end. record.c has what a request gathers. */
#include "../base/text_memory.h"
#include "engine.h"
#include "../base/stop_count.h"
#include "memory_plan.h"
#include "scheduler.h"

#include <math.h>
#include <string.h>

static _Thread_local const ln_req_callback *in_callback; /* the innermost of this thread; NULL: none */

void ln_req_callback_begin(ln_req_callback *c, const ln_eng *e) {
    *c = (ln_req_callback){.e = e, .outer = in_callback};
    in_callback = c;
}

void ln_req_callback_end(const ln_req_callback *c) { in_callback = c->outer; }

/* Whether this thread is inside such a callback of a call on the engine. */
static bool in_callback_of(const ln_eng *e) {
    for (const ln_req_callback *c = in_callback; c; c = c->outer)
        if (c->e == e) return true;
    return false;
}

/* ---- creation ---- */

/* The largest number of positions that the pool could hold for one sequence. */
static int64_t most_possible(const ln_eng *e) {
    int64_t fits = 0, beyond = e->run->opt.n_ctx + 1;
    while (fits + 1 < beyond) {
        const int64_t n = fits + (beyond - fits) / 2;
        if (ln_seq_possible(e, n)) fits = n;
        else beyond = n;
    }
    return fits;
}

/* Prompt and answer may need n_most positions: the last token needs none. */
static ln_status check_room(ln_req *r, ln_error *err) {
    const int64_t n = r->opt.n_ids, n_ctx = r->e->run->opt.n_ctx;
    const int64_t n_new = r->opt.how && r->how.n_max > 1 ? r->how.n_max - 1 : 0;
    r->n_most = n_new < n_ctx - n ? n + n_new : n_ctx;
    if (ln_seq_possible(r->e, r->n_most)) return LN_OK;
    const int64_t most = most_possible(r->e);
    if (most < n)
        return ln_fail(err, LN_EMEMORY,
                       "the prompt has %lld tokens, the KV pool (ln_options.kv_bytes) holds %lld of one "
                       "sequence; use a shorter prompt or a larger pool",
                       (long long)n, (long long)most);
    return ln_fail(err, LN_EMEMORY,
                   "prompt and answer may need %lld positions, the KV pool (ln_options.kv_bytes) holds %lld "
                   "of one sequence; ln_sampling.n_max %lld would fit",
                   (long long)r->n_most, (long long)most, (long long)(most - n + 1));
}

/* Tokens of some models attend to later ones (ln_spec_both_ways). Their texts are computed whole, in one
 * step, and their hidden states are all that is defined. */
static ln_status check_whole(ln_req *r, ln_error *err) {
    const ln_run *run = r->e->run;
    if (!ln_spec_both_ways(run->spec)) return LN_OK;
    if (!r->opt.no_logits)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: its tokens attend to later ones, so that it predicts no next token; it embeds "
                       "texts "
                       "(ln_embed)",
                       run->spec->model_type);
    if (r->opt.n_ids > run->opt.n_chunk)
        return ln_fail(err, LN_EUSAGE,
                       "the text has %lld tokens, and this model computes texts whole, in a step of at most "
                       "%d "
                       "rows; give a shorter text or a larger ln_options.n_chunk",
                       (long long)r->opt.n_ids, run->opt.n_chunk);
    r->opt.first_row = 0;
    r->opt.no_cache = true;
    return LN_OK;
}

static ln_status copy_options(ln_req *r, const ln_req_options *opt, ln_error *err) {
    r->opt = *opt;
    r->opt.ids = NULL;
    if (r->opt.opened == 0) r->opt.opened = ln_now();
    r->opt.n_lookup = r->e->run->opt.n_lookup;
    if (!r->opt.logprobs) r->opt.n_top = 0;
    r->opt.n_top = (int)LN_MIN((int64_t)LN_MIN(r->opt.n_top, LN_TOP_MOST), r->e->run->spec->V);
    r->stop_id = r->stop_text = -1;
    r->metrics.cache_miss_reason = "";
    atomic_init(&r->n_allowed, opt->n_allowed > 0 ? opt->n_allowed : INT64_MAX);
    r->all.data = ln_alloc((size_t)opt->n_ids * sizeof *r->all.data);
    if (!r->all.data) return LN_OOM(err, "a request");
    memcpy(r->all.data, opt->ids, (size_t)opt->n_ids * sizeof *r->all.data);
    r->all.n = r->all.cap = (size_t)opt->n_ids;
    r->n_prompt = opt->n_ids;
    if (!opt->how) return LN_OK;
    LN_TRY(ln_sampling_copy(&r->arena, opt->how, &r->how, err));
    r->opt.how = &r->how;
    r->seed = ln_sampling_seed(&r->how);
    LN_TRY(ln_call_tools_copy(&r->arena, opt->tools.list, opt->tools.n, &r->opt.tools.list, err));
    LN_TRY(ln_answer_open(&r->answer, r->e->model, &r->how, &r->opt.tools, opt->split_reasoning, opt->ids,
                          (size_t)opt->n_ids, err));
    LN_TRY(ln_constraint_open(&r->constraint, r->e, &r->how, opt->prose, &r->answer, err));
    r->how.grammar = NULL; /* it belongs to the caller */
    return ln_answer_warn(&r->answer, &r->e->stops_warned, err);
}

/* ---- memory ---- */

enum { TEXT_BYTES = 16, RESERVE = 1 << 20 };

uint64_t ln_req_bytes(const ln_req_options *o, int64_t n_most) {
    const uint64_t n_top = o->logprobs ? (uint64_t)LN_MIN(o->n_top, (int)LN_TOP_MOST) : 0;
    /* a list that grows by half of itself may be copied meanwhile: 2.5 times its items */
    uint64_t token = sizeof(int32_t) + 2 * sizeof(ln_req_event) + sizeof(uint64_t) + TEXT_BYTES, prompt = 0;
    if (o->logprobs) token += sizeof(double) + n_top * sizeof(ln_top);
    if (o->prompt_logprobs) prompt = sizeof(double) + n_top * sizeof(ln_top);
    const uint64_t n_new = o->how ? (uint64_t)(n_most - o->n_ids + 1) : 0;
    const uint64_t lookup = o->how && o->n_lookup > 0 ? ln_lookup_bytes(n_most + 1) : 0;
    return sizeof(ln_req) + (uint64_t)o->n_ids * (sizeof(int32_t) + prompt) + n_new * token * 5 / 2 + lookup;
}

/* Counts a request among those of its engine. Beyond the memory that was planned for them it asks what the
 * limit leaves, for RESERVE bytes more, so that a queue of small requests asks rarely. As many stay free,
 * because the system's count of resident memory is not exact. */
static ln_status count_memory(ln_req *r, ln_error *err) {
    ln_sched *s = r->e->sched;
    const uint64_t touched = sizeof *r + (uint64_t)r->opt.n_ids * sizeof *r->all.data + r->arena.total;
    const uint64_t bytes = ln_req_bytes(&r->opt, r->n_most) + r->arena.total + r->constraint.bytes;
    const char *limit;
    char need[32], left[32];
    pthread_mutex_lock(&s->lock);
    bool fits = s->request_bytes + bytes <= s->request_allowed;
    pthread_mutex_unlock(&s->lock);
    const uint64_t room = fits ? UINT64_MAX : ln_memory_room(r->e->memory_bytes, &limit);
    pthread_mutex_lock(&s->lock);
    const uint64_t untouched = s->request_untouched + (bytes - LN_MIN(bytes, touched));
    if (!fits && untouched + 2 * RESERVE <= room) {
        s->request_allowed = s->request_bytes + bytes + RESERVE;
        fits = true;
    }
    if (fits) {
        r->bytes = bytes;
        r->untouched = bytes - LN_MIN(bytes, touched);
        s->request_bytes += r->bytes;
        s->request_untouched += r->untouched;
    }
    pthread_mutex_unlock(&s->lock);
    if (fits) return LN_OK;
    return ln_fail(err, LN_EMEMORY,
                   "this request and those that are open may take %s more, and %s leaves %s; close requests "
                   "that have ended, wait for others, or raise that limit",
                   ln_bytes_text(need, untouched), limit, ln_bytes_text(left, room));
}

/* The request uses its adapter from now on. */
static void hold_adapter(ln_req *r) {
    if (r->opt.adapter_slot == 0) return;
    pthread_mutex_lock(&r->e->sched->lock);
    r->opt.adapter = ln_adapters_hold(r->e, r->opt.adapter_slot - 1);
    r->holds_adapter = true;
    pthread_mutex_unlock(&r->e->sched->lock);
}

/* Lets go of what a request is counted for. With the lock. */
static void uncount(ln_req *r) {
    ln_sched *s = r->e->sched;
    if (r->holds_adapter) ln_adapters_let_go(r->e, r->opt.adapter_slot - 1);
    r->holds_adapter = false;
    s->request_bytes -= r->bytes;
    s->request_untouched -= r->untouched;
    if (s->request_bytes <= s->request_planned) s->request_allowed = s->request_planned;
    r->bytes = r->untouched = 0;
}

static void free_all(ln_req *r) {
    ln_answer_close(&r->answer);
    ln_constraint_close(&r->constraint);
    ln_lookup_close(&r->lookup);
    ln_ids_free(&r->all);
    ln_free(r->logprobs);
    ln_free(r->top);
    ln_free(r->prompt_logprobs);
    ln_free(r->prompt_top);
    ln_free(r->events);
    ln_str_free(&r->text);
    ln_str_free(&r->reasoning);
    ln_str_free(&r->calls);
    ln_str_free(&r->call_pieces);
    ln_str_free(&r->piece);
    ln_arena_free(&r->arena);
    ln_free(r);
}

/* A request that asks for no step: no token, and nothing of its prompt. */
static bool asks_nothing(const ln_req *r) {
    return r->opt.how && r->how.n_max <= 0 && !r->opt.prompt_logprobs && !r->opt.on_row;
}

ln_status ln_req_start(ln_req *r, ln_error *err) {
    ln_sched *s = r->e->sched;
    ln_status st = LN_OK;
    pthread_mutex_lock(&s->lock);
    const bool first = !r->queued;
    r->queued = true;
    if (s->lost) {
        st = ln_fail(err, LN_EUSAGE, "%s", ln_driver_lost);
    } else if (!first) {
        st = LN_OK;
    } else if (asks_nothing(r)) {
        ln_req_finish(r, LN_FINISH_LENGTH, NULL);
    } else {
        ln_sched_enqueue(s, r);
        ln_driver_poke(s);
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

ln_status ln_req_new(ln_req **out, ln_eng *e, const ln_req_options *opt, ln_error *err) {
    ln_status st = LN_OK;
    *out = NULL;
    if (in_callback_of(e))
        return ln_fail(err, LN_EUSAGE,
                       "a callback of ln_score or ln_inspect_keys must not call its own engine, whose "
                       "sequence "
                       "it holds");
    if (opt->n_ids < 1) return ln_fail(err, LN_EUSAGE, "the prompt is empty; give at least one token");
    ln_account *const texts = ln_account_here;
    const uint64_t before = texts ? texts->bytes : 0;
    ln_req *r = ln_zalloc(1, sizeof *r);
    if (!r) return LN_OOM(err, "a request");
    r->e = e;
    LN_GO(copy_options(r, opt, err));
    LN_GO(check_room(r, err));
    LN_GO(check_whole(r, err));
    hold_adapter(r);
    LN_GO(count_memory(r, err));
    if (texts) ln_account_subtract(texts, texts->bytes - LN_MIN(before, texts->bytes));
    if (!opt->defer) LN_GO(ln_req_start(r, err));
    *out = r;
    return LN_OK;
out:
    pthread_mutex_lock(&e->sched->lock);
    uncount(r);
    pthread_mutex_unlock(&e->sched->lock);
    free_all(r);
    return st;
}

/* ---- stopping ---- */

bool ln_req_cancelled(const ln_req *r) {
    return r->cancel || ln_eng_cancelled(r->e) ||
           (r->stop && atomic_load_explicit(r->stop, memory_order_relaxed) == r->stop_at);
}

void ln_req_watch(ln_req *r, const _Atomic(uintptr_t) *stop, uintptr_t stop_at) {
    pthread_mutex_lock(&r->e->sched->lock);
    r->stop = stop;
    r->stop_at = stop_at;
    pthread_mutex_unlock(&r->e->sched->lock);
}

void ln_req_mute(ln_req *r) {
    pthread_mutex_lock(&r->e->sched->lock);
    r->opt.on_ready = NULL;
    pthread_mutex_unlock(&r->e->sched->lock);
}

void ln_req_cancel(ln_req *r) {
    pthread_mutex_lock(&r->e->sched->lock);
    r->cancel = true;
    atomic_fetch_add(&ln_stop_count, 1);
    ln_driver_poke(r->e->sched);
    pthread_mutex_unlock(&r->e->sched->lock);
}

void ln_req_free(ln_req **out) {
    ln_req *r = *out;
    if (!r) return;
    ln_sched *s = r->e->sched;
    pthread_mutex_lock(&s->lock);
    if (r->state == LN_REQ_WAITING) {
        ln_sched_remove(s, r);
        r->state = LN_REQ_DONE;
        ln_driver_poke(s); /* the next one in the queue may fit */
    } else if (r->state != LN_REQ_DONE) {
        ln_driver_take(s);
        const bool done = r->state == LN_REQ_DONE; /* while this thread waited */
        r->opt.on_ready = NULL;
        pthread_mutex_unlock(&s->lock);
        if (!done) ln_sched_end(s, r, LN_FINISH_CANCELLED, NULL);
        pthread_mutex_lock(&s->lock);
        s->idle = false;
        ln_driver_release(s);
    }
    uncount(r);
    pthread_mutex_unlock(&s->lock);
    free_all(r);
    *out = NULL;
}

/* ---- reading ---- */

static bool readable(const ln_req *r) { return r->cursor < r->n_events || r->state == LN_REQ_DONE; }

void ln_req_changed(ln_req *r) {
    r->changes++;
    ln_driver_wake(r->e->sched, r);
    if (!readable(r) || r->told) return;
    r->told = true;
    if (r->opt.on_ready) r->opt.on_ready(r->opt.user);
}

/* Copies the next event to the reader's buffers. After LN_EMEMORY it is still the next. */
static ln_status read_event(ln_req *r, ln_event *out, ln_error *err) {
    const ln_req_event *v = &r->events[r->cursor];
    const size_t n_top = (size_t)r->opt.n_top;
    out->kind = v->kind;
    if (v->kind == LN_EVENT_TOKEN) {
        out->id = r->all.data[(size_t)r->opt.n_ids + v->at];
        if (r->opt.logprobs) {
            out->logprob = r->logprobs[v->at];
            if (n_top > 0) memcpy(r->read_top, r->top + v->at * n_top, n_top * sizeof *r->top);
            out->top = r->read_top;
            out->n_top = n_top;
        }
    } else {
        const ln_str *all = v->kind == LN_EVENT_TEXT             ? &r->text
                            : v->kind == LN_EVENT_TOOL_CALL      ? &r->calls
                            : v->kind == LN_EVENT_TOOL_ARGUMENTS ? &r->call_pieces
                                                                 : &r->reasoning;
        r->piece.len = 0;
        ln_str_add(&r->piece, all->data + v->at, v->n);
        if (r->piece.failed) {
            r->piece.failed = false;
            return LN_OOM(err, "an event");
        }
        out->text = r->piece.data;
        out->bytes = v->n;
        if (v->kind == LN_EVENT_TOOL_CALL || v->kind == LN_EVENT_TOOL_ARGUMENTS) {
            out->name = r->piece.data;
            out->text = out->name + strlen(out->name) + 1;
            out->bytes = strlen(out->text);
        }
    }
    r->cursor++;
    if (!readable(r)) r->told = false;
    return LN_OK;
}

static void read_finish(const ln_req *r, ln_event *out) {
    out->kind = LN_EVENT_FINISH;
    out->finish = r->finish;
    out->status = r->error.code;
    if (r->error.code == LN_OK) return;
    out->text = r->error.message; /* it does not change any more */
    out->bytes = strlen(r->error.message);
}

ln_status ln_req_next(ln_req *r, double seconds, ln_event *out, ln_error *err) {
    ln_sched *s = r->e->sched;
    ln_status st = LN_OK;
    const double until = seconds < 0 ? INFINITY : seconds > 0 ? ln_now() + seconds : 0;
    *out = (ln_event){.size = out->size, .id = -1, .logprob = NAN};
    if (atomic_exchange(&r->reading, true))
        return ln_fail(err, LN_EUSAGE, "another thread reads this request: one thread at a time");
    pthread_mutex_lock(&s->lock);
    while (!readable(r) && until > 0 && ln_now() < until && st == LN_OK) {
        if (ln_sched_waits(s, r) && in_callback_of(r->e))
            st = ln_fail(err, LN_EUSAGE,
                         "a callback of ln_score or ln_inspect_keys must not wait for a request that has no "
                         "sequence yet; read it after the call");
        else ln_driver_wait(s, r, r->changes, until);
    }
    if (st != LN_OK) out->kind = LN_EVENT_NONE;
    else if (r->cursor < r->n_events) st = read_event(r, out, err);
    else if (r->state == LN_REQ_DONE) read_finish(r, out);
    pthread_mutex_unlock(&s->lock);
    atomic_store(&r->reading, false);
    return st;
}

uint64_t ln_req_wait_change(ln_req *r, uint64_t seen, double seconds) {
    ln_sched *s = r->e->sched;
    pthread_mutex_lock(&s->lock);
    ln_driver_wait(s, r, seen, seconds < 0 ? INFINITY : ln_now() + seconds);
    const uint64_t now = r->changes;
    pthread_mutex_unlock(&s->lock);
    return now;
}

ln_status ln_req_wait(ln_req *r, ln_error *err) {
    ln_sched *s = r->e->sched;
    pthread_mutex_lock(&s->lock);
    while (r->state != LN_REQ_DONE) ln_driver_wait(s, r, r->changes, INFINITY);
    const ln_error error = r->error;
    pthread_mutex_unlock(&s->lock);
    return error.code == LN_OK ? LN_OK : ln_fail(err, error.code, "%s", error.message);
}

void ln_req_allow(ln_req *r, int64_t n) {
    pthread_mutex_lock(&r->e->sched->lock);
    atomic_fetch_add(&r->n_allowed, n);
    ln_driver_poke(r->e->sched);
    pthread_mutex_unlock(&r->e->sched->lock);
}

ln_req_view ln_req_look(ln_req *r) {
    pthread_mutex_lock(&r->e->sched->lock);
    const ln_req_view v = {r->state, r->changes, r->n_read, r->metrics.cached_tokens,
                           (int64_t)r->all.n - r->opt.n_ids};
    pthread_mutex_unlock(&r->e->sched->lock);
    return v;
}
