/* The library under several threads: models that run concurrently, engines of one model, a stop from
 * another thread, handles closed under running calls.
 *
 * What a thread generates must equal what it generates alone, and a closed handle must give LN_EUSAGE: a
 * race shows as a different result here, and as a report under ThreadSanitizer (`make tsan`) and
 * AddressSanitizer (`make asan`). */
/* run: quick tsan cuda */
#include <linnet.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define A LN_ROOT "/tests/golden/gemma3-text-bf16"
#define B LN_ROOT "/tests/golden/qwen3-sharded-bf16"
enum { N_TOKENS = 24 };

static void must(ln_status st, const ln_error *e, int line) {
    if (st != LN_OK) { /* cmocka's assertions may be used by the main thread only */
        fprintf(stderr, "line %d: status %d: %s\n", line, st, e->message);
        abort();
    }
}
#define OK(x)                     \
    do {                          \
        ln_error err_ = {0};      \
        ln_error *err = &err_;    \
        must((x), err, __LINE__); \
    } while (0)
#define CHECK(cond)                                                          \
    do {                                                                     \
        if (!(cond)) {                                                       \
            fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #cond); \
            abort();                                                         \
        }                                                                    \
    } while (0)

static const int32_t first_ids[] = {5, 9, 44, 7};
static const ln_prompt prompt = {.size = sizeof(ln_prompt), .ids = first_ids, .n_ids = 4};

static ln_sampling greedy(const ln_model *m) {
    ln_sampling how = {.size = sizeof how};
    OK(ln_sampling_default(m, &how, err));
    how.temperature = 0, how.n_max = N_TOKENS, how.ignore_eos = true;
    return how;
}

/* A model with its engine, and the text it generates alone. */
typedef struct place {
    const char *path;
    ln_model *model;
    ln_engine *engine;
    int32_t ids[N_TOKENS];
    bool shared; /* the model belongs to another place */
} place;

static void open_place(place *p, const char *path, ln_model *shared) {
    ln_result r = {.size = sizeof r};
    ln_options o = {.size = sizeof(ln_options), .n_threads = 2, .n_ctx = 128};
    *p = (place){.path = path, .model = shared, .shared = shared != NULL};
    if (!shared) OK(ln_model_open(&p->model, path, &o, err));
    OK(ln_engine_open(&p->engine, p->model, &o, err));
    ln_sampling how = greedy(p->model);
    OK(ln_generate(p->engine, &prompt, &how, NULL, NULL, &r, err));
    CHECK(r.n_ids == N_TOKENS);
    memcpy(p->ids, r.ids, sizeof p->ids);
    ln_result_free(&r);
}

static void close_place(place *p) {
    if (!p->shared) ln_model_close(&p->model);
    ln_engine_close(&p->engine);
}

static void *generate_often(void *arg) {
    place *p = arg;
    ln_sampling how = greedy(p->model);
    for (int i = 0; i < 6; i++) {
        ln_result r = {.size = sizeof r};
        size_t n;
        ln_info info = {.size = sizeof info};
        ln_prompt text = {.size = sizeof(ln_prompt), .text = "ab cd", .text_bytes = 5};
        OK(ln_generate(p->engine, &prompt, &how, NULL, NULL, &r, err));
        CHECK(r.n_ids == N_TOKENS && memcmp(r.ids, p->ids, sizeof p->ids) == 0);
        ln_result_free(&r);
        OK(ln_prompt_ids(p->model, &text, NULL, 0, &n, err));
        OK(ln_model_info(p->model, &info, err));
    }
    return NULL;
}

static void run_two(place *a, place *b) {
    pthread_t t[2];
    CHECK(pthread_create(&t[0], NULL, generate_often, a) == 0);
    CHECK(pthread_create(&t[1], NULL, generate_often, b) == 0);
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
}

static void two_threads_on_two_models(void **s) {
    (void)s;
    place a, b;
    open_place(&a, A, NULL);
    open_place(&b, B, NULL);
    run_two(&a, &b);
    close_place(&a);
    close_place(&b);
}

static void two_engines_of_one_model(void **s) {
    (void)s;
    place a, b;
    open_place(&a, A, NULL);
    open_place(&b, A, a.model);
    run_two(&a, &b);
    close_place(&b);
    close_place(&a);
}

/* ---- a stop from a third thread ---- */

typedef struct stopping {
    place place;
    int pieces;       /* pieces of text shown in this call */
    atomic_int state; /* Each change of the state has one author: the callback sets WAITING, the third
                         thread sets STOPPED, the caller sets RUNNING. */
} stopping;
enum { RUNNING, WAITING, STOPPED, DONE };

static ln_status wait_for_stop(void *user, const char *text, size_t bytes, ln_error *err) {
    stopping *x = user;
    (void)text, (void)bytes, (void)err;
    if (x->pieces++ == 1) {
        atomic_store(&x->state, WAITING);
        while (atomic_load(&x->state) != STOPPED) usleep(100);
    }
    return LN_OK;
}

static void *generate_stopped(void *arg) {
    stopping *x = arg;
    ln_sampling how = greedy(x->place.model);
    for (int i = 0; i < 10; i++) {
        ln_result r = {.size = sizeof r};
        ln_cancel(x->place.engine, false);
        x->pieces = 0;
        atomic_store(&x->state, RUNNING);
        OK(ln_generate(x->place.engine, &prompt, &how, wait_for_stop, x, &r, err));
        CHECK(r.finish == LN_FINISH_CANCELLED && r.n_ids > 0 && r.n_ids < N_TOKENS);
        CHECK(memcmp(r.ids, x->place.ids, r.n_ids * sizeof *r.ids) == 0);
        ln_result_free(&r);
    }
    atomic_store(&x->state, DONE);
    return NULL;
}

static void a_third_thread_stops_both(void **s) {
    (void)s;
    static stopping x[2];
    pthread_t t[2];
    open_place(&x[0].place, A, NULL);
    open_place(&x[1].place, B, NULL);
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&t[i], NULL, generate_stopped, &x[i]) == 0);
    for (bool left = true; left;) {
        left = false;
        for (int i = 0; i < 2; i++) {
            const int state = atomic_load(&x[i].state);
            left = left || state != DONE;
            if (state != WAITING) continue;
            ln_cancel(x[i].place.engine, true);
            atomic_store(&x[i].state, STOPPED);
        }
        usleep(50);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], NULL);
        close_place(&x[i].place);
    }
}

/* A prompt in prefill, one token a chunk; `state` as above. */
typedef struct reading {
    ln_engine *engine;
    int64_t stop_at, done;
    atomic_int state;
} reading;

static void wait_in_the_midst(void *user, const char *what, int64_t done, int64_t total) {
    reading *x = user;
    if (strcmp(what, "reading") != 0) return;
    x->done = done;
    if (done != x->stop_at || done == total) return;
    atomic_store(&x->state, WAITING);
    while (atomic_load(&x->state) != STOPPED) usleep(100);
}

static void *stop_waiting(void *arg) {
    reading *x = arg;
    while (atomic_load(&x->state) != WAITING) usleep(50);
    ln_cancel(x->engine, true);
    atomic_store(&x->state, STOPPED);
    return NULL;
}

/* A prompt is stopped between its chunks: no chunk begins after the stop. */
static void a_long_prompt_is_stopped(void **s) {
    (void)s;
    enum { LONG = 200 };
    ln_model *m;
    ln_result r = {.size = sizeof r};
    pthread_t t;
    int32_t ids[LONG];
    static reading x = {.stop_at = LONG / 4};
    ln_prompt p = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = LONG};
    ln_options o = {
        .size = sizeof(ln_options), .n_ctx = 256, .n_chunk = 1, .progress = {wait_in_the_midst, &x}};
    for (int i = 0; i < LONG; i++) ids[i] = 1 + i % 90;
    OK(ln_model_open(&m, B, &o, err));
    OK(ln_engine_open(&x.engine, m, &o, err));
    ln_sampling how = greedy(m);
    how.n_max = 1;
    CHECK(pthread_create(&t, NULL, stop_waiting, &x) == 0);
    OK(ln_generate(x.engine, &p, &how, NULL, NULL, &r, err));
    CHECK(r.finish == LN_FINISH_CANCELLED && r.n_ids == 0 && x.done == x.stop_at);
    ln_result_free(&r);
    pthread_join(t, NULL);
    ln_cancel(x.engine, false); /* the stop is withdrawn: the rest of the prompt is processed */
    x.stop_at = LONG;
    OK(ln_generate(x.engine, &p, &how, NULL, NULL, &r, err));
    CHECK(r.finish == LN_FINISH_LENGTH && r.n_ids == 1 && r.metrics.cached_tokens == LONG / 4 &&
          x.done == LONG - LONG / 4);
    ln_result_free(&r);
    ln_engine_close(&x.engine);
    ln_model_close(&m);
}

/* ---- handles closed under running calls ---- */

typedef struct hammer {
    ln_model *model;
    ln_engine *engine;
    ln_tokenizer *tok;
    atomic_int ready;
    atomic_int refused;
} hammer;

static void wait_all(hammer *h, int n) {
    atomic_fetch_add(&h->ready, 1);
    while (atomic_load(&h->ready) < n) sched_yield();
}

static void *use_while_closed(void *arg) {
    hammer *h = arg;
    ln_sampling how = greedy(h->model);
    how.n_max = 4;
    wait_all(h, 4);
    for (int left = 3; left > 0;) { /* until all three handles are closed */
        ln_result r = {.size = sizeof r};
        ln_info info = {.size = sizeof info};
        ln_error said = {0};
        size_t n;
        ln_status st[3] = {ln_generate(h->engine, &prompt, &how, NULL, NULL, &r, &said),
                           ln_model_info(h->model, &info, NULL),
                           ln_tokenize(h->tok, "ab", 2, true, NULL, 0, &n, NULL)};
        ln_result_free(&r);
        left = 3;
        for (int i = 0; i < 3; i++) {
            CHECK(st[i] == LN_OK || st[i] == LN_EUSAGE);
            left -= st[i] == LN_EUSAGE && (i > 0 || strstr(said.message, "closed"));
        }
        ln_cancel(h->engine, false);
    }
    atomic_fetch_add(&h->refused, 1);
    return NULL;
}

static void *close_all(void *arg) {
    hammer *h = arg;
    ln_model *m = h->model;
    ln_engine *e = h->engine;
    ln_tokenizer *t = h->tok;
    wait_all(h, 4);
    usleep(300);
    ln_model_close(&m); /* the model first, which the engine uses */
    ln_cancel(e, true);
    ln_engine_close(&e);
    ln_tokenizer_close(&t);
    CHECK(!m && !e && !t);
    return NULL;
}

static void *open_and_close(void *arg) {
    enum { EACH = 12 };
    hammer *h = arg;
    ln_options o = ln_options_default();
    ln_engine *e[EACH] = {0};
    o.n_ctx = 16, o.n_threads = 1, o.n_chunk = 8;
    for (int round = 1; round <= 15; round++) {
        for (int i = 0; i < EACH; i++) OK(ln_engine_open(&e[i], h->model, &o, err));
        wait_all(h, 4 * round);
        for (int i = 0; i < EACH; i++) ln_engine_close(&e[i]);
    }
    return NULL;
}

/* Engines are in one list, from which neighbours take themselves at the same time. */
static void engines_close_at_once(void **s) {
    (void)s;
    pthread_t t[4];
    hammer h = {0};
    OK(ln_model_open(&h.model, B, NULL, err));
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, open_and_close, &h), 0);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_join(t[i], NULL), 0);
    ln_model_close(&h.model);
}

static void closing_races_with_use(void **s) {
    (void)s;
    for (int round = 0; round < 8; round++) {
        pthread_t t[4];
        hammer h = {0};
        ln_options o = {.size = sizeof(ln_options), .n_threads = 1, .n_ctx = 64};
        OK(ln_model_open(&h.model, B, &o, err));
        OK(ln_engine_open(&h.engine, h.model, &o, err));
        OK(ln_tokenizer_open(&h.tok, B, err));
        for (int i = 0; i < 4; i++)
            CHECK(pthread_create(&t[i], NULL, i < 2 ? use_while_closed : close_all, &h) ==
                  0); /* two threads use the handles, two close the same handles */
        for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
        CHECK(atomic_load(&h.refused) == 2);
    }
}

/* A generation that waits in its callback while another thread closes the engine. */
typedef struct waiting {
    ln_engine *engine;
    ln_model *model;
    atomic_bool began, go_on;
    ln_result result;
} waiting;

static ln_status wait_in_text(void *user, const char *text, size_t bytes, ln_error *error) {
    waiting *w = user;
    (void)text, (void)bytes, (void)error;
    atomic_store(&w->began, true);
    while (!atomic_load(&w->go_on)) usleep(100);
    return LN_OK;
}

static void *generate_and_wait(void *arg) {
    waiting *w = arg;
    ln_sampling how = greedy(w->model);
    ln_error said;
    how.n_max = 100;
    w->result.size = sizeof w->result;
    CHECK(ln_generate(w->engine, &prompt, &how, wait_in_text, w, &w->result, &said) == LN_OK);
    return NULL;
}

/* The handle is closed, so that no thread could stop the call again: what the close asked for stays. */
static void a_closed_handle_clears_no_stop(void **s) {
    (void)s;
    ln_options o = {.size = sizeof(ln_options), .n_threads = 1, .n_ctx = 128};
    waiting w = {0};
    pthread_t t;
    OK(ln_model_open(&w.model, B, &o, err));
    OK(ln_engine_open(&w.engine, w.model, &o, err));
    ln_engine *copy = w.engine;
    CHECK(pthread_create(&t, NULL, generate_and_wait, &w) == 0);
    while (!atomic_load(&w.began)) usleep(100);
    ln_engine_close(&copy);
    ln_cancel(w.engine, false);
    atomic_store(&w.go_on, true);
    pthread_join(t, NULL);
    CHECK(w.result.finish == LN_FINISH_CANCELLED && w.result.n_ids < 100);
    ln_result_free(&w.result);
    ln_model_close(&w.model);
}

int main(void) {
    alarm(600);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_threads_on_two_models),     cmocka_unit_test(two_engines_of_one_model),
        cmocka_unit_test(a_third_thread_stops_both),     cmocka_unit_test(a_long_prompt_is_stopped),
        cmocka_unit_test(engines_close_at_once),         cmocka_unit_test(closing_races_with_use),
        cmocka_unit_test(a_closed_handle_clears_no_stop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
