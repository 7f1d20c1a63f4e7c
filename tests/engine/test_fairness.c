/* Engines that share a thread pool take turns: a step of one waits for at most 3 steps of each other one.
 *
 * A step is at most 3 jobs of the pool, and each job waits for at most one job of each other engine. Both
 * numbers are counted by pool and scheduler; nothing is timed. Each engine decodes in a thread of its own, on
 * a pool of the test's own, which nobody else uses. */
#include "../common.h"
#include "base/thread_pool.h"

#include <pthread.h>

#define MODEL LN_ROOT "/models/tiny"
enum { ENGINES = 3, TOKENS = 160, JOBS_OF_A_STEP = 3 };

/* An engine that generates on one thread of its own. */
typedef struct player {
    ln_eng *e;
    ln_sampling how;
    ln_result alone, together; /* its text alone, and while the others generate */
    ln_status status;
    pthread_t thread;
    pthread_barrier_t *start;
} player;

static const int32_t ids[] = {5, 9, 44, 7};
static const ln_prompt prompt = {.ids = ids, .n_ids = 4};

static ln_status generate(player *p, ln_result *out, ln_error *err) {
    return ln_eng_generate(p->e, &prompt, &p->how, NULL, NULL, out, err);
}

static void *play(void *arg) {
    player *p = arg;
    ln_error err;
    pthread_barrier_wait(p->start);
    p->status = generate(p, &p->together, &err);
    return NULL;
}

static ln_pool_stats stats_of(ln_pool *pool) {
    ln_pool_stats s;
    ln_pool_get_stats(pool, &s);
    return s;
}

/* Opens an engine on the pool. Even ones are greedy, odd ones sample, which makes a job of each token. */
static void open_player(player *p, int i, const ln_package *m, ln_pool *pool) {
    ln_options o = {.n_threads = 2, .n_ctx = 256};
    ln_run_options run;
    *p = (player){0};
    OK(ln_eng_options(m, &o, &run, err));
    run.pool = pool;
    OK(ln_eng_open_with(&p->e, m, &run, err));
    ln_package_sampling(m, &p->how);
    p->how.n_max = TOKENS, p->how.ignore_eos = true;
    p->how.temperature = i % 2 ? 0.8 : 0, p->how.has_seed = true, p->how.seed = (uint64_t)i;
}

/* The text that each engine generates alone. A step is one to three jobs. */
static void alone(player *p, ln_pool *pool) {
    const uint64_t jobs = stats_of(pool).n_jobs, steps = p->e->sched->n_steps;
    OK(generate(p, &p->alone, err));
    const uint64_t n_jobs = stats_of(pool).n_jobs - jobs, n_steps = p->e->sched->n_steps - steps;
    assert_int_equal(p->alone.n_ids, TOKENS);
    assert_true(n_steps >= TOKENS);
    assert_in_range(n_jobs, n_steps, JOBS_OF_A_STEP * n_steps);
}

static void engines_take_turns(void **state) {
    (void)state;
    ln_package *m;
    ln_options o = {.n_threads = 2, .n_ctx = 256};
    OK(ln_package_open(&m, MODEL, &o, err));
    for (int n = 2; n <= ENGINES; n++) {
        player p[ENGINES];
        ln_pool *pool = NULL;
        pthread_barrier_t start;
        OK(ln_pool_open(&pool, err));
        assert_int_equal(pthread_barrier_init(&start, NULL, (unsigned)n), 0);
        for (int i = 0; i < n; i++) {
            open_player(&p[i], i, m, pool);
            p[i].start = &start;
            alone(&p[i], pool);
        }
        const ln_pool_stats before = stats_of(pool);
        assert_int_equal(before.n_waited, 0);
        assert_int_equal(before.most_passed, 0);
        for (int i = 0; i < n; i++) assert_int_equal(pthread_create(&p[i].thread, NULL, play, &p[i]), 0);
        for (int i = 0; i < n; i++) pthread_join(p[i].thread, NULL);
        const ln_pool_stats after = stats_of(pool);
        print_message("%d engines: %llu jobs, %llu of them waited, each for at most %llu\n", n,
                      (unsigned long long)(after.n_jobs - before.n_jobs), (unsigned long long)after.n_waited,
                      (unsigned long long)after.most_passed);
        assert_true(after.n_waited > 0);
        /* a step waits for JOBS_OF_A_STEP jobs of each other engine, and so for as many of its steps at most
         */
        assert_in_range(after.most_passed, 1, n - 1);
        for (int i = 0; i < n; i++) {
            assert_int_equal(p[i].status, LN_OK);
            assert_int_equal(p[i].together.n_ids, TOKENS);
            assert_memory_equal(p[i].together.ids, p[i].alone.ids, TOKENS * sizeof(int32_t));
            ln_result_free(&p[i].alone);
            ln_result_free(&p[i].together);
            ln_eng_close(&p[i].e);
        }
        ln_pool_close(&pool);
        pthread_barrier_destroy(&start);
    }
    ln_package_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(engines_take_turns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
