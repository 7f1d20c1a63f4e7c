/* The scheduler: the order of admission, what a step takes of each request, cancels wherever a request is,
 * the driver token among several threads, and the engine to oneself. */
/* run: quick tsan-long cuda */
#include "request_cases.h"

#include <pthread.h>
#include <unistd.h>

/* A request of n_ids tokens that generates n_max. */
static ln_req *ask(const ln_package *m, ln_eng *e, int64_t n_ids, int64_t n_max) {
    static const ln_sampling greedy = {.top_p = 1, .repeat_penalty = 1, .ignore_eos = true};
    int32_t ids[128];
    ln_sampling how = greedy;
    ln_req *r;
    how.n_max = n_max;
    for (int64_t i = 0; i < n_ids; i++) ids[i] = (int32_t)((i * 31 + n_ids) % m->spec.V);
    const ln_req_options o = {.ids = ids, .n_ids = n_ids, .how = &how};
    OK(ln_req_new(&r, e, &o, err));
    return r;
}

/* 64 requests through 4 sequences: they are admitted, and end, in their order. */
static void first_come_first_served(void **state) {
    (void)state;
    ln_package *m = open_package(QWEN);
    ln_eng *e = open_engine(m, 2, 16, 4);
    ln_req *r[64];
    size_t left = 1;
    int done = 0;
    for (int i = 0; i < 64; i++) r[i] = ask(m, e, 5, 3);
    while (left > 0) {
        OK(ln_driver_step(e->sched, &left, err));
        while (done < 64 && ln_req_look(r[done]).state == LN_REQ_DONE) done++;
        for (int i = done; i < 64; i++) assert_true(ln_req_look(r[i]).state != LN_REQ_DONE);
        ln_engine_stats st;
        ln_sched_stats(e->sched, &st);
        assert_int_equal(st.n_running + st.n_waiting, left);
        assert_true(st.n_running <= 4 && (st.n_waiting == 0 || left == 0 || st.n_running <= 4));
    }
    assert_int_equal(done, 64);
    for (int i = 0; i < 64; i++) ln_req_free(&r[i]);
    assert_int_equal(ln_kv_count(e->kv).n_used, 0);
    ln_eng_close(&e);
    ln_package_close(&m);
}

/* Decoding sequences have a row each and come first; prompts share the rest evenly, the oldest has what does
 * not divide. */
static void rows_are_shared(void **state) {
    (void)state;
    ln_package *m = open_package(QWEN);
    ln_eng *e = open_engine(m, 1, 20, 5);
    const ln_sched *s = e->sched;
    ln_req *r[5];
    r[0] = ask(m, e, 3, 60);
    r[1] = ask(m, e, 4, 60);
    OK(ln_driver_step(e->sched, NULL, err)); /* both prompts fit one step */
    assert_int_equal(s->n_items, 2);
    assert_true(s->items[0].n == 3 && s->items[1].n == 4);
    for (int i = 2; i < 5; i++) r[i] = ask(m, e, 50, 2);
    e->sched->prefill_budget = (ln_prefill_budget){.row_seconds = 1e-9}; /* rows cost nothing */
    OK(ln_driver_step(e->sched, NULL, err));
    assert_int_equal(s->n_items, 5);
    assert_true(s->items[0].n == 1 && s->items[1].n == 1); /* 18 rows for three prompts */
    assert_true(s->items[2].n == 6 && s->items[3].n == 6 && s->items[4].n == 6);
    ln_req_free(&r[1]);
    e->sched->prefill_budget = (ln_prefill_budget){.row_seconds = 1e-9};
    OK(ln_driver_step(e->sched, NULL, err)); /* 19 rows for three */
    assert_true(s->parts[1] == r[2] && s->items[1].n == 7 && s->items[2].n == 6 && s->items[3].n == 6);
    e->sched->prefill_budget =
        (ln_prefill_budget){.row_seconds = 1e9}; /* rows look expensive: the least number */
    OK(ln_driver_step(e->sched, NULL, err));
    assert_true(s->n_items == 2 && s->parts[1] == r[2] && s->items[1].n == 1);
    ln_req_free(&r[0]);
    e->sched->prefill_budget = (ln_prefill_budget){.row_seconds = 1e9};
    OK(ln_driver_step(e->sched, NULL, err)); /* no sequence decodes: all rows */
    assert_int_equal(s->items[0].n + s->items[1].n + s->items[2].n, 20);
    step_until_done(e, 100);
    for (int i = 2; i < 5; i++) ln_req_free(&r[i]);
    ln_eng_close(&e);
    ln_package_close(&m);
}

/* Many prompts do not get a row or two each: an eighth of the step, the oldest first. */
static void shares_are_not_tiny(void **state) {
    (void)state;
    ln_package *m = open_package(QWEN);
    ln_eng *e = open_engine(m, 1, 64, 32);
    const ln_sched *s = e->sched;
    ln_req *r[32];
    for (int i = 0; i < 32; i++) r[i] = ask(m, e, 12 + i, 1);
    OK(ln_driver_step(e->sched, NULL, err));
    assert_int_equal(s->n_items, 8);
    for (int i = 0; i < 8; i++) assert_true(s->parts[i] == r[i] && s->items[i].n == 8);
    OK(ln_driver_step(e->sched, NULL, err)); /* the rest of the first, and a share of later ones */
    assert_true(s->parts[0] == r[0] && s->items[0].n == 4 && s->n_items > 8);
    step_until_done(e, 100);
    for (int i = 0; i < 32; i++) ln_req_free(&r[i]);
    ln_eng_close(&e);
    ln_package_close(&m);
}

/* With fewer rows of logits than sequences each sequence gets one in turn. */
static void few_rows_of_logits(void **state) {
    (void)state;
    ln_package *m = open_package(QWEN);
    static alone_results a;
    run_all_alone(m, &a);
    ln_run_options o = test_options(m, LN_DEVICE_AUTO, 2, 32, 8);
    ln_eng *e;
    ln_req *r[CASES];
    size_t left = 1;
    o.n_ctx = 128, o.n_prefault = 128, o.n_logits = 3;
    OK(ln_eng_open_with(&e, m, &o, err));
    for (int i = 0; i < CASES; i++) OK(ln_req_new(&r[i], e, &a.cases[i].opt, err));
    while (left > 0) {
        uint64_t before[CASES];
        for (int i = 0; i < CASES; i++) before[i] = ln_req_look(r[i]).changes;
        for (int k = 0; k < 60 && left > 0; k++) OK(ln_driver_step(e->sched, &left, err));
        ln_engine_stats st;
        ln_sched_stats(e->sched, &st);
        for (int i = 0; i < e->sched->n_running; i++) /* no request starves */
            for (int k = 0; k < CASES; k++)
                if (e->sched->running[i] == r[k])
                    assert_true(ln_req_look(r[k]).changes > before[k] || st.n_steps < 60);
    }
    assert_all_alone(r, &a);
    ln_eng_close(&e);
    free_results(&a);
    ln_package_close(&m);
}

/* A cancel takes effect in the next step, in the queue, in a prompt and in an answer, and gives the pages
 * back. */
static void cancel_wherever_it_is(void **state) {
    (void)state;
    ln_package *m = open_package(QWEN);
    ln_eng *e = open_engine(m, 1, 4, 2);
    ln_event v;
    ln_req *decoding = ask(m, e, 3, 50), *reading = ask(m, e, 60, 5), *waiting = ask(m, e, 3, 5);
    size_t left;
    for (int i = 0; i < 3; i++) OK(ln_driver_step(e->sched, &left, err));
    assert_int_equal(left, 3);
    assert_true(ln_req_look(reading).n_read > 0 && ln_req_look(reading).n_read < 60);
    assert_int_equal(ln_req_look(waiting).state, LN_REQ_WAITING);
    ln_req_cancel(waiting);
    ln_req_cancel(reading);
    ln_req_cancel(decoding);
    OK(ln_driver_step(e->sched, &left, err));
    assert_int_equal(left, 0);
    assert_int_equal(ln_kv_count(e->kv).n_used, 0);
    ln_req *all[] = {decoding, reading, waiting};
    for (int i = 0; i < 3; i++) {
        do OK(ln_req_next(all[i], 0, &v, err));
        while (v.kind != LN_EVENT_FINISH);
        assert_true(v.finish == LN_FINISH_CANCELLED && v.status == LN_OK);
        ln_req_free(&all[i]);
    }
    ln_eng_close(&e);
    ln_package_close(&m);
}

/* ---- threads ---- */

typedef struct worker {
    pthread_t thread;
    ln_eng *e;
    const alone_results *a;
    int from, failures;
} worker;

static void *work(void *arg) {
    worker *w = arg;
    for (int k = 0; k < 6; k++) {
        const int i = (w->from + k * 5) % CASES;
        ln_req *r;
        ln_result got = {0};
        ln_error err;
        if (ln_req_new(&r, w->e, &w->a->cases[i].opt, &err) != LN_OK) {
            w->failures++;
            continue;
        }
        if (k % 2) { /* reads, with short waits */
            for (ln_event v = {0}; v.kind != LN_EVENT_FINISH;)
                if (ln_req_next(r, k % 3 == 0 ? 0.001 : -1, &v, &err) != LN_OK) w->failures++;
        } else if (ln_req_wait(r, &err) != LN_OK) {
            w->failures++;
        }
        if (ln_req_result(r, &got, &err) != LN_OK || got.n_ids != w->a->results[i].n_ids ||
            !same(got.ids, w->a->results[i].ids, got.n_ids * sizeof *got.ids))
            w->failures++;
        ln_result_free(&got);
        ln_req_free(&r);
    }
    return NULL;
}

static void run_workers(ln_eng *e, const alone_results *a, bool own_thread) {
    enum { WORKERS = 8 };
    worker w[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        w[i] = (worker){.e = e, .a = a, .from = i * 3};
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (int k = 0; own_thread && k < 20; k++) { /* the engine's thread comes and goes */
        OK(ln_driver_start(e->sched, err));
        usleep(500);
        if (k < 19) ln_driver_stop(e->sched);
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].failures, 0);
    }
}

static void waiting_calls_share_the_steps(void **state) {
    (void)state;
    ln_package *m = open_package(QWEN);
    static alone_results a;
    run_all_alone(m, &a);
    ln_eng *e = open_engine(m, 2, 16, 3);
    for (int round = 0; round < 3; round++) run_workers(e, &a, false);
    for (int round = 0; round < 3; round++) run_workers(e, &a, true);
    FAILS(LN_EUSAGE, "own thread", ln_driver_step(e->sched, NULL, err));
    ln_driver_stop(e->sched);
    OK(ln_driver_step(e->sched, NULL, err));
    assert_int_equal(ln_kv_count(e->kv).n_used, 0);
    ln_eng_close(&e);
    free_results(&a);
    ln_package_close(&m);
}

/* The row of one of two requests. */
typedef struct meeting {
    atomic_int *n_here;
    bool met;
} meeting;

static ln_status meet(void *user, int64_t t, int64_t row, const ln_scratch *x, ln_error *error) {
    meeting *m = user;
    (void)t, (void)row, (void)x, (void)error;
    atomic_fetch_add(m->n_here, 1);
    for (const double until = ln_now() + 10; ln_now() < until && !m->met;)
        m->met = atomic_load(m->n_here) == 2;
    return LN_OK;
}

/* Rows of different requests are read at the same time: each of two waits for the other. */
static void rows_are_read_on_all_threads(void **state) {
    (void)state;
    ln_package *m = open_package(QWEN);
    ln_eng *e = open_engine(m, 2, 16, 2);
    const int32_t ids[] = {1, 2, 3};
    atomic_int n_here = 0;
    meeting at[2] = {{.n_here = &n_here}, {.n_here = &n_here}};
    ln_req *r[2];
    for (int i = 0; i < 2; i++) {
        const ln_req_options o = {.ids = ids, .n_ids = 3, .on_row = meet, .row_user = &at[i], .first_row = 2};
        OK(ln_req_new(&r[i], e, &o, err));
    }
    step_until_done(e, 10);
    for (int i = 0; i < 2; i++) {
        assert_true(at[i].met);
        ln_req_free(&r[i]);
    }
    ln_eng_close(&e);
    ln_package_close(&m);
}

/* A request that is not read: the engine's thread finishes it all the same, and the others. */
static void a_slow_reader_delays_nobody(void **state) {
    (void)state;
    ln_package *m = open_package(QWEN);
    ln_eng *e = open_engine(m, 1, 16, 2);
    ln_req *slow = ask(m, e, 4, 100), *fast = ask(m, e, 4, 5);
    ln_event v;
    OK(ln_driver_start(e->sched, err));
    OK(ln_req_wait(fast, err));
    while (ln_req_look(slow).state != LN_REQ_DONE) usleep(200);
    int n = 0;
    do {
        OK(ln_req_next(slow, 0, &v, err));
        n += v.kind == LN_EVENT_TOKEN;
    } while (v.kind != LN_EVENT_FINISH);
    assert_int_equal(n, 100);
    ln_req_free(&slow);
    ln_req_free(&fast);
    ln_eng_close(&e); /* with its thread running */
    ln_package_close(&m);
}

/* ---- the engine to oneself ---- */

static void alone_with_the_engine(void **state) {
    (void)state;
    ln_package *m = open_package(QWEN);
    ln_eng *e = open_engine(m, 1, 16, 2);
    ln_req *r = ask(m, e, 4, 5);
    FAILS(LN_EUSAGE, "1 requests", ln_driver_enter(e->sched, err));
    step_until_done(e, 100);
    OK(ln_driver_enter(e->sched, err));
    ln_driver_leave(e->sched);
    ln_req_free(&r);
    ln_eng_close(&e);
    ln_package_close(&m);
}

int main(void) {
    alarm(600);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_come_first_served),     cmocka_unit_test(rows_are_shared),
        cmocka_unit_test(shares_are_not_tiny),         cmocka_unit_test(few_rows_of_logits),
        cmocka_unit_test(cancel_wherever_it_is),       cmocka_unit_test(waiting_calls_share_the_steps),
        cmocka_unit_test(a_slow_reader_delays_nobody), cmocka_unit_test(rows_are_read_on_all_threads),
        cmocka_unit_test(alone_with_the_engine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
