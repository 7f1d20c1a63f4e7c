/* Requests through the public API: handles, sizes of structs, waiting, cancels from other threads and signal
 * handlers, an engine that is closed under its requests, calls of several threads on one engine. */
/* run: quick tsan cuda */
#include <linnet.h>
#include <linnet_tools.h>

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define MODEL LN_ROOT "/tests/golden/qwen3-sharded-bf16"

static void ok(ln_status st, const ln_error *err, int line) {
    if (st == LN_OK) return;
    fprintf(stderr, "line %d: status %d: %s\n", line, st, err->message); /* on any thread */
    abort();
}
#define OK(x)                   \
    do {                        \
        ln_error err_ = {0};    \
        ln_error *err = &err_;  \
        ok((x), err, __LINE__); \
    } while (0)
#define USAGE(word, x)                                                                   \
    do {                                                                                 \
        if ((x) != LN_EUSAGE || !strstr(ln_last_error()->message, word))                 \
            fail_msg("%s: %d: %s", #x, ln_last_error()->code, ln_last_error()->message); \
    } while (0)

static const int32_t first_ids[] = {5, 9, 44, 7};
static const ln_prompt prompt = {.size = sizeof(ln_prompt), .ids = first_ids, .n_ids = 4};

typedef struct place {
    ln_model *model;
    ln_engine *engine;
    ln_sampling how;
    ln_request_options opt;
} place;

static void open_place(place *p, int n_parallel) {
    ln_options o = {.size = sizeof(ln_options), .n_threads = 2, .n_ctx = 128, .n_parallel = n_parallel};
    OK(ln_model_open(&p->model, MODEL, &o, err));
    OK(ln_engine_open(&p->engine, p->model, &o, err));
    p->how.size = sizeof p->how;
    OK(ln_sampling_default(p->model, &p->how, err));
    p->how.temperature = 0, p->how.ignore_eos = true, p->how.n_max = 20;
    p->opt = ln_request_options_default();
    p->opt.sampling = &p->how;
}

static void close_place(place *p) {
    ln_engine_close(&p->engine);
    ln_model_close(&p->model);
}

static ln_event next(ln_request *r, double seconds) {
    ln_event v = {.size = sizeof v};
    OK(ln_request_next(r, seconds, &v, err));
    return v;
}

static ln_event finish_of(ln_request *r) {
    for (;;) {
        const ln_event v = next(r, -1);
        if (v.kind == LN_EVENT_FINISH) return v;
    }
}

/* A request, its events and its result agree with ln_generate; the seed and the log-probabilities are set.
 */
static void a_request_is_what_generate_does(void **state) {
    (void)state;
    place p;
    ln_request *r;
    ln_result want = {.size = sizeof want}, got = {.size = sizeof got};
    open_place(&p, 2);
    p.how.temperature = 1;
    OK(ln_generate(p.engine, &prompt, &p.how, NULL, NULL, &want, err));
    assert_int_equal(want.n_ids, 20);
    p.how.has_seed = true, p.how.seed = want.seed;
    p.opt.n_logprobs = 4, p.opt.prompt_logprobs = true;
    OK(ln_request_open(&r, p.engine, &prompt, &p.opt, err));
    size_t n = 0;
    for (ln_event v = next(r, -1); v.kind != LN_EVENT_FINISH; v = next(r, -1)) {
        if (v.kind != LN_EVENT_TOKEN) continue;
        assert_int_equal(v.id, want.ids[n++]);
        assert_int_equal(v.n_top, 4);
        assert_true(v.logprob <= v.top[0].logprob && v.top[3].logprob <= v.top[0].logprob);
    }
    assert_int_equal(n, 20);
    OK(ln_request_result(r, &got, err));
    assert_true(got.seed == want.seed && got.n_ids == 20 && got.n_top == 4 && got.logprobs && got.top);
    assert_memory_equal(got.ids, want.ids, 20 * sizeof *want.ids);
    assert_true(isnan(got.prompt_logprobs[0]) && got.prompt_logprobs[3] < 0);
    assert_int_equal(got.metrics.cached_tokens, 0); /* nothing is reused with prompt_logprobs */
    assert_true(got.metrics.queue_seconds <= got.metrics.prefill_seconds &&
                got.metrics.first_token_seconds > got.metrics.prefill_seconds);
    ln_result_free(&got);
    ln_result_free(&want);
    ln_request_close(&r);
    assert_null(r);
    close_place(&p);
}

static void mistakes_are_refused(void **state) {
    (void)state;
    place p;
    ln_request *r;
    ln_event v = {.size = sizeof v};
    ln_engine_stats st = {.size = sizeof st};
    ln_result out = {.size = sizeof out};
    open_place(&p, 1);
    USAGE("NULL", ln_request_open(NULL, p.engine, &prompt, NULL, NULL));
    USAGE("NULL", ln_request_open(&r, p.engine, NULL, NULL, NULL));
    USAGE("NULL", ln_request_open(&r, NULL, &prompt, NULL, NULL));
    assert_null(r);
    p.opt.n_logprobs = 21;
    USAGE("n_logprobs", ln_request_open(&r, p.engine, &prompt, &p.opt, NULL));
    p.opt.n_logprobs = -1, p.opt.prompt_logprobs = true;
    USAGE("prompt_logprobs", ln_request_open(&r, p.engine, &prompt, &p.opt, NULL));
    p.opt.prompt_logprobs = false, p.opt.size = 0;
    USAGE("size", ln_request_open(&r, p.engine, &prompt, &p.opt, NULL));
    p.opt.size = sizeof p.opt;
    p.how.stop_ids = (const int32_t[]){1 << 30}, p.how.n_stop_ids = 1;
    USAGE("stop_ids", ln_request_open(&r, p.engine, &prompt, &p.opt, NULL));
    p.how.stop_ids = NULL;
    USAGE("stop_ids", ln_request_open(&r, p.engine, &prompt, &p.opt, NULL));
    p.how.n_stop_ids = 0;
    OK(ln_request_open(&r, p.engine, &prompt, &p.opt, err));
    USAGE("NULL", ln_request_next(r, 0, NULL, NULL));
    USAGE("NaN", ln_request_next(r, NAN, &v, NULL));
    USAGE("NULL", ln_request_result(r, NULL, NULL));
    v.size = 0;
    USAGE("size", ln_request_next(r, 0, &v, NULL));
    v.size = sizeof v;
    ln_request *copy = r;
    ln_request_close(&r);
    USAGE("request", ln_request_next(copy, 0, &v, NULL));
    USAGE("request", ln_request_result(copy, &out, NULL));
    ln_request_cancel(copy), ln_request_cancel(NULL);
    ln_request_close(&copy), ln_request_close(&copy), ln_request_close(NULL);
    USAGE("engine", ln_engine_step(NULL, NULL, NULL));
    USAGE("engine", ln_engine_start(NULL, NULL));
    USAGE("engine", ln_engine_get_stats(NULL, &st, NULL));
    st.size = 0;
    USAGE("size", ln_engine_get_stats(p.engine, &st, NULL));
    ln_engine_stop(NULL);
    close_place(&p);
}

/* A caller that was compiled with a smaller struct, or with a larger one. */
static void structs_of_other_sizes(void **state) {
    (void)state;
    place p;
    ln_request *r;
    struct {
        ln_request_options o;
        char more[16];
    } big;
    open_place(&p, 1);
    memset(&big, 0, sizeof big);
    big.o = p.opt, big.o.size = sizeof big;
    OK(ln_request_open(&r, p.engine, &prompt, &big.o, err)); /* newer, but it uses nothing new */
    ln_request_close(&r);
    big.more[7] = 1;
    USAGE("library", ln_request_open(&r, p.engine, &prompt, &big.o, NULL));
    p.opt.size = offsetof(ln_request_options, n_logprobs);
    p.opt.n_logprobs = 1000; /* beyond the size: not read */
    OK(ln_request_open(&r, p.engine, &prompt, &p.opt, err));
    struct {
        ln_event v;
        char after;
    } small = {.v = {.size = offsetof(ln_event, text), .bytes = 1234}};
    OK(ln_request_next(r, -1, &small.v, err));
    assert_true(small.v.kind == LN_EVENT_TOKEN && small.v.bytes == 1234); /* beyond the size: not written */
    assert_int_equal(small.v.size, offsetof(ln_event, text));
    ln_request_close(&r);
    struct {
        ln_batch_options o;
        char more[16];
    } batch;
    memset(&batch, 0, sizeof batch);
    batch.o = ln_batch_options_default(), batch.o.size = sizeof batch, batch.more[7] = 1;
    USAGE("library", ln_batch(p.engine, "in", "out", &batch.o, NULL, NULL));
    batch.o.size = 0;
    USAGE("ln_batch_options.size", ln_batch(p.engine, "in", "out", &batch.o, NULL, NULL));
    close_place(&p);
}

static void steps_of_the_callers_loop(void **state) {
    (void)state;
    place p;
    ln_request *r[3];
    ln_engine_stats st = {.size = sizeof st};
    size_t left = 7;
    open_place(&p, 2);
    OK(ln_engine_step(p.engine, &left, err));
    assert_int_equal(left, 0);
    for (int i = 0; i < 3; i++) OK(ln_request_open(&r[i], p.engine, &prompt, &p.opt, err));
    OK(ln_engine_step(p.engine, &left, err));
    assert_int_equal(left, 3);
    OK(ln_engine_get_stats(p.engine, &st, err));
    assert_true(st.n_running == 2 && st.n_waiting == 1 && st.n_parallel == 2 && st.n_requests == 3);
    assert_true(st.n_steps == 1 && st.prompt_tokens == 12 && st.step_seconds > 0 && st.page_bytes > 0);
    while (left > 0) OK(ln_engine_step(p.engine, &left, err));
    OK(ln_engine_get_stats(p.engine, &st, err));
    assert_true(st.n_running == 0 && st.n_waiting == 0 && st.generated_tokens == 60);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(finish_of(r[i]).finish, LN_FINISH_LENGTH);
        ln_request_close(&r[i]);
    }
    close_place(&p);
}

/* Waiting has its limit: nothing comes while another request has the only sequence and no thread steps. */
static void waiting_has_a_limit(void **state) {
    (void)state;
    place p;
    ln_request *r;
    ln_event v = {.size = sizeof v};
    open_place(&p, 1);
    OK(ln_request_open(&r, p.engine, &prompt, &p.opt, err));
    assert_int_equal(next(r, 0).kind, LN_EVENT_NONE);
    assert_true(next(r, 5).kind == LN_EVENT_TOKEN);
    ln_request_close(&r);
    (void)v;
    close_place(&p);
}

static ln_request *signalled;
static void on_signal(int number) {
    (void)number;
    ln_request_cancel(signalled);
}

/* A signal handler cancels one of two requests; the other goes on. */
static void cancel_from_a_signal_handler(void **state) {
    (void)state;
    place p;
    ln_request *other;
    open_place(&p, 2);
    p.how.n_max = 100;
    OK(ln_request_open(&signalled, p.engine, &prompt, &p.opt, err));
    OK(ln_request_open(&other, p.engine, &prompt, &p.opt, err));
    assert_int_equal(next(signalled, -1).kind, LN_EVENT_TOKEN);
    assert_true(signal(SIGUSR1, on_signal) != SIG_ERR);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_int_equal(finish_of(signalled).finish, LN_FINISH_CANCELLED);
    assert_int_equal(finish_of(other).finish, LN_FINISH_LENGTH);
    ln_request_close(&signalled);
    ln_request_close(&other);
    ln_cancel(p.engine, true); /* all requests, the coming ones too */
    OK(ln_request_open(&other, p.engine, &prompt, &p.opt, err));
    assert_int_equal(finish_of(other).finish, LN_FINISH_CANCELLED);
    ln_request_close(&other);
    ln_cancel(p.engine, false);
    OK(ln_request_open(&other, p.engine, &prompt, &p.opt, err));
    assert_int_equal(finish_of(other).finish, LN_FINISH_LENGTH);
    ln_request_close(&other);
    close_place(&p);
}

/* The engine is closed first: its requests end, and can be read to their end. */
static void the_engine_is_closed_first(void **state) {
    (void)state;
    for (int thread = 0; thread < 2; thread++) {
        place p;
        ln_request *r[3];
        ln_result out = {.size = sizeof out};
        open_place(&p, 2);
        if (thread) OK(ln_engine_start(p.engine, err));
        p.how.n_max = 120;
        for (int i = 0; i < 3; i++) OK(ln_request_open(&r[i], p.engine, &prompt, &p.opt, err));
        assert_int_equal(next(r[0], -1).kind, LN_EVENT_TOKEN);
        close_place(&p);
        for (int i = 0; i < 3; i++) {
            const ln_finish how = i < 2 ? finish_of(r[i]).finish : LN_FINISH_CANCELLED;
            if (!thread) assert_int_equal(how, LN_FINISH_CANCELLED); /* the thread may have been faster */
            if (i == 0) {
                OK(ln_request_result(r[i], &out, err));
                assert_true(out.n_ids > 0 && (thread || out.n_ids < 120));
                ln_result_free(&out);
            }
            ln_request_close(&r[i]); /* the last one frees the engine */
        }
    }
}

/* ---- callbacks ---- */

static ln_status refuse(void *user, const char *text, size_t bytes, ln_error *err) {
    (void)text, (void)bytes;
    const ln_status st = *(const ln_status *)user;
    if (st == LN_EIO) (void)snprintf(err->message, sizeof err->message, "of the callback");
    return st;
}

/* A callback that rejects the last piece has stopped the generation, although the request ended by itself. */
static void refusing_the_last_piece(void **state) {
    (void)state;
    place p;
    ln_result out = {.size = sizeof out};
    ln_status how = LN_ECANCELLED;
    open_place(&p, 1);
    p.how.n_max = 1;
    OK(ln_generate(p.engine, &prompt, &p.how, refuse, &how, &out, err));
    assert_true(out.finish == LN_FINISH_CANCELLED && out.n_ids == 1);
    ln_result_free(&out);
    how = LN_EIO;
    assert_int_equal(ln_generate(p.engine, &prompt, &p.how, refuse, &how, &out, NULL), LN_EIO);
    assert_string_equal(ln_last_error()->message, "of the callback");
    assert_true(out.finish == LN_FINISH_CANCELLED && out.n_ids == 1);
    ln_result_free(&out);
    close_place(&p);
}

typedef struct two_places {
    place *outer, *inner;
    int n_refused;
} two_places;
static ln_status generate_on_outer(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                                   const float *logits, int64_t n_vocab, ln_error *err) {
    two_places *two = user;
    (void)t, (void)logprob, (void)top, (void)n_top, (void)logits, (void)n_vocab, (void)err;
    two->n_refused += ln_generate(two->outer->engine, &prompt, NULL, NULL, NULL, NULL, NULL) == LN_EUSAGE &&
                      strstr(ln_last_error()->message, "callback");
    return LN_OK;
}
static ln_status score_on_inner(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                                const float *logits, int64_t n_vocab, ln_error *err) {
    two_places *two = user;
    (void)t, (void)logprob, (void)top, (void)n_top, (void)logits, (void)n_vocab;
    return ln_score(two->inner->engine, first_ids, 2, 0, generate_on_outer, two, NULL, err);
}

/* A callback of one engine runs a call on another, whose callback must not wait for the first one either. */
static void callbacks_of_two_engines(void **state) {
    (void)state;
    place p, q;
    two_places two = {&p, &q, 0};
    open_place(&p, 1);
    open_place(&q, 1);
    OK(ln_score(p.engine, first_ids, 3, 0, score_on_inner, &two, NULL, err));
    assert_int_equal(two.n_refused, 3 * 2);
    OK(ln_generate(p.engine, &prompt, &p.how, NULL, NULL, NULL, err)); /* outside of callbacks */
    close_place(&q);
    close_place(&p);
}

/* ---- threads ---- */

static atomic_bool cancel_was_seen, holds;
static ln_status hold_sequence(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                               const float *logits, int64_t n_vocab, ln_error *err) {
    (void)logprob, (void)top, (void)n_top, (void)logits, (void)n_vocab, (void)err;
    atomic_store(&holds, true);
    for (int ms = 0; t == 0 && ms < 20000 && !atomic_load(&cancel_was_seen); ms++) usleep(1000);
    ++*(int *)user;
    return LN_OK;
}
static void *hold_and_score(void *arg) {
    int n = 0;
    OK(ln_score(((place *)arg)->engine, first_ids, 4, 0, hold_sequence, &n, NULL, err));
    return NULL;
}
static void *read_to_the_end(void *arg) {
    assert_int_equal(finish_of(arg).finish, LN_FINISH_CANCELLED);
    atomic_store(&cancel_was_seen, true);
    return NULL;
}

/* Two threads wait for requests that cannot begin. The one that looked whether something was stopped gives
 * up: the other one looks from then on. */
static void a_cancel_wakes_a_thread_that_waits(void **state) {
    (void)state;
    place p;
    ln_request *first, *second;
    pthread_t holder, reader;
    open_place(&p, 1);
    assert_int_equal(pthread_create(&holder, NULL, hold_and_score, &p), 0);
    while (!atomic_load(&holds)) usleep(1000);
    OK(ln_request_open(&first, p.engine, &prompt, &p.opt, err));
    OK(ln_request_open(&second, p.engine, &prompt, &p.opt, err));
    assert_int_equal(pthread_create(&reader, NULL, read_to_the_end, second), 0);
    assert_int_equal(next(first, 0.3).kind, LN_EVENT_NONE);
    ln_request_cancel(second);
    for (int ms = 0; ms < 5000 && !atomic_load(&cancel_was_seen); ms++) usleep(1000);
    assert_true(atomic_load(&cancel_was_seen));
    pthread_join(reader, NULL);
    pthread_join(holder, NULL);
    ln_request_close(&first);
    ln_request_close(&second);
    close_place(&p);
}

static ln_result alone = {.size = sizeof alone}; /* what ln_generate gives */
static void *generate(void *arg) {
    place *p = arg;
    for (int i = 0; i < 5; i++) {
        ln_result got = {.size = sizeof got};
        OK(ln_generate(p->engine, &prompt, &p->how, NULL, NULL, &got, err));
        if (got.n_ids != alone.n_ids || memcmp(got.ids, alone.ids, got.n_ids * sizeof *got.ids) != 0) abort();
        ln_result_free(&got);
    }
    return NULL;
}

static void *read_one(void *arg) {
    place *p = arg;
    for (int i = 0; i < 5; i++) {
        ln_request *r;
        OK(ln_request_open(&r, p->engine, &prompt, &p->opt, err));
        for (int k = 0; k < 3 * i; k++) (void)next(r, 0.01);
        if (i % 2) ln_request_cancel(r);
        if (i != 4) (void)finish_of(r);
        ln_request_close(&r);
    }
    return NULL;
}

static void *step_it(void *arg) {
    place *p = arg;
    for (int i = 0; i < 200; i++) OK(ln_engine_step(p->engine, NULL, err));
    return NULL;
}

static ln_status count_row(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                           const float *logits, int64_t n_vocab, ln_error *err) {
    (void)t, (void)logprob, (void)top, (void)n_top, (void)logits, (void)n_vocab, (void)err;
    ++*(int *)user;
    return LN_OK;
}
static void *score(void *arg) {
    place *p = arg;
    int32_t ids[40];
    for (int i = 0; i < 40; i++) ids[i] = 1 + i;
    for (int i = 0; i < 3; i++) {
        int n = 0;
        OK(ln_score(p->engine, ids, 40, 2, count_row, &n, NULL, err));
        if (n != 40) abort();
    }
    return NULL;
}

/* Every kind of call at once, on one engine with fewer sequences than calls. */
static void all_kinds_of_calls(void **state) {
    (void)state;
    place p;
    open_place(&p, 2);
    OK(ln_generate(p.engine, &prompt, &p.how, NULL, NULL, &alone, err));
    void *(*const kinds[])(void *) = {generate, read_one, score, generate, read_one, step_it};
    for (int thread = 0; thread < 2; thread++) {
        pthread_t t[6];
        const int n = thread ? 5 : 6; /* with the engine's thread no other thread may step */
        if (thread) OK(ln_engine_start(p.engine, err));
        for (int i = 0; i < n; i++) assert_int_equal(pthread_create(&t[i], NULL, kinds[i], &p), 0);
        for (int i = 0; i < n; i++) pthread_join(t[i], NULL);
    }
    USAGE("own thread", ln_engine_step(p.engine, NULL, NULL));
    OK(ln_engine_start(p.engine, err)); /* it runs already */
    ln_engine_stop(p.engine);
    ln_engine_stop(p.engine);
    OK(ln_engine_step(p.engine, NULL, err));
    ln_result_free(&alone);
    close_place(&p);
}

static void *stop_thread(void *arg) {
    ln_engine_stop(((place *)arg)->engine);
    return NULL;
}

static void *stop_and_step(void *arg) {
    ln_engine_stop(((place *)arg)->engine);
    OK(ln_engine_step(((place *)arg)->engine, NULL, err)); /* the thread has ended */
    return NULL;
}

/* A start that comes while the thread ends waits for the end; so does a second stop. */
static void starting_while_it_ends(void **state) {
    (void)state;
    place p;
    open_place(&p, 1);
    p.how.n_max = 120;
    for (int i = 0; i < 20; i++) {
        pthread_t t[2];
        ln_request *r;
        OK(ln_request_open(&r, p.engine, &prompt, &p.opt, err));
        OK(ln_engine_start(p.engine, err));
        (void)next(r, 5);
        assert_int_equal(pthread_create(&t[0], NULL, stop_thread, &p), 0);
        usleep((useconds_t)(50 * i));
        OK(ln_engine_start(p.engine, err)); /* before the stop, while it waits, or after it */
        pthread_join(t[0], NULL);
        OK(ln_engine_start(p.engine, err));
        USAGE("own thread", ln_engine_step(p.engine, NULL, NULL));
        for (int k = 0; k < 2; k++) assert_int_equal(pthread_create(&t[k], NULL, stop_and_step, &p), 0);
        for (int k = 0; k < 2; k++) pthread_join(t[k], NULL);
        ln_request_close(&r);
    }
    close_place(&p);
}

typedef struct queued {
    place *p;
    ln_request *r;
    int n_refused;
} queued;
static void *open_queued(void *user) {
    queued *q = user;
    OK(ln_request_open(&q->r, q->p->engine, &prompt, &q->p->opt, err));
    return NULL;
}
static ln_status wait_for_queued(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                                 const float *logits, int64_t n_vocab, ln_error *err) {
    queued *q = user;
    ln_event v = {.size = sizeof v};
    pthread_t other;
    (void)logprob, (void)top, (void)n_top, (void)logits, (void)n_vocab, (void)err;
    if (t > 0) return LN_OK;
    assert_int_equal(pthread_create(&other, NULL, open_queued, q), 0);
    pthread_join(other, NULL);
    assert_int_equal(ln_request_next(q->r, 0, &v, NULL), LN_OK); /* a look that does not wait is allowed */
    assert_int_equal(v.kind, LN_EVENT_NONE);
    q->n_refused += ln_request_next(q->r, -1, &v, NULL) == LN_EUSAGE &&
                    strstr(ln_last_error()->message, "no sequence yet");
    return LN_OK;
}

/* A callback of ln_score holds a sequence: waiting there for a request that waits for one would never end. */
static void a_callback_does_not_wait_for_the_queue(void **state) {
    (void)state;
    place p;
    open_place(&p, 1);
    queued q = {.p = &p};
    OK(ln_score(p.engine, first_ids, 3, 0, wait_for_queued, &q, NULL, err));
    assert_int_equal(q.n_refused, 1);
    assert_int_equal(finish_of(q.r).finish, LN_FINISH_LENGTH);
    ln_request_close(&q.r);
    close_place(&p);
}

/* More handles than a small table holds. */
static void many_requests_at_once(void **state) {
    (void)state;
    enum { MANY = 6000 };
    place p;
    static ln_request *r[MANY];
    open_place(&p, 4);
    p.how.n_max = 1;
    for (int i = 0; i < MANY; i++) OK(ln_request_open(&r[i], p.engine, &prompt, &p.opt, err));
    assert_int_equal(finish_of(r[7]).finish, LN_FINISH_LENGTH);
    for (int i = MANY - 1; i >= 0; i--) ln_request_close(&r[i]);
    close_place(&p);
}

int main(void) {
    alarm(600);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_request_is_what_generate_does),
                                       cmocka_unit_test(mistakes_are_refused),
                                       cmocka_unit_test(structs_of_other_sizes),
                                       cmocka_unit_test(steps_of_the_callers_loop),
                                       cmocka_unit_test(waiting_has_a_limit),
                                       cmocka_unit_test(cancel_from_a_signal_handler),
                                       cmocka_unit_test(the_engine_is_closed_first),
                                       cmocka_unit_test(refusing_the_last_piece),
                                       cmocka_unit_test(callbacks_of_two_engines),
                                       cmocka_unit_test(a_cancel_wakes_a_thread_that_waits),
                                       cmocka_unit_test(all_kinds_of_calls),
                                       cmocka_unit_test(starting_while_it_ends),
                                       cmocka_unit_test(a_callback_does_not_wait_for_the_queue),
                                       cmocka_unit_test(many_requests_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
