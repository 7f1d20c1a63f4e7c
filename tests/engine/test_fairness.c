/* Engines that share a thread pool take turns: a step of one waits for at most 3 steps of each other one, and
 * for one slice of a model that is being loaded.
 *
 * A step is at most 3 jobs of the pool, and each job waits for at most one job of each other engine. Both
 * numbers are counted by pool and scheduler; nothing is timed. Each engine decodes in a thread of its own,
 * on a pool that only this test uses. */
/* run: quick tsan-long */
#include "../common.h"
#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#define MODEL LN_ROOT "/models/tiny"
#ifdef __SANITIZE_THREAD__
enum { TOKENS = 16 }; /* each takes 20 times as long */
#else
enum { TOKENS = 96 };
#endif
enum { ENGINES = 3, JOBS_OF_A_STEP = 3 };

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
        assert_int_equal(before.most_passed[0], 0);
        for (int i = 0; i < n; i++) assert_int_equal(pthread_create(&p[i].thread, NULL, play, &p[i]), 0);
        for (int i = 0; i < n; i++) pthread_join(p[i].thread, NULL);
        const ln_pool_stats after = stats_of(pool);
        print_message("%d engines: %llu jobs, %llu of them waited, each for at most %llu\n", n,
                      (unsigned long long)(after.n_jobs - before.n_jobs), (unsigned long long)after.n_waited,
                      (unsigned long long)after.most_passed[0]);
        assert_true(after.n_waited > 0);
        /* a step waits for JOBS_OF_A_STEP jobs of each other engine, and so for as many of its steps at most
         */
        assert_in_range(after.most_passed[0], 1, n - 1);
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

/* Decodes until it is told to stop. */
static _Atomic bool loaded;
static _Atomic int n_texts;
static void *decode_on(void *arg) {
    player *p = arg;
    ln_error err;
    do {
        ln_result_free(&p->together);
        p->status = generate(p, &p->together, &err);
        n_texts++;
    } while (p->status == LN_OK && !loaded);
    return NULL;
}

/* Opens a model of its own for an engine, so that its weights are packed, or quantised and packed. */
static void load(ln_package **m, player *p, int bits, ln_pool *pool) {
    ln_options o = {.n_threads = 2, .n_ctx = 256, .quantize_bits = bits};
    OK(ln_package_open(m, MODEL, &o, err));
    open_player(p, 0, *m, pool);
}

/* A model is loaded while an engine decodes: no job of a step waits for more than one slice, and the packed
 * weights have the bytes that they have when nothing else runs. */
static void loading_leaves_turns(void **state) {
    (void)state;
    for (int bits = 0; bits <= 8; bits += 4) {
        ln_package *m, *quiet, *busy;
        player decoder, first, second;
        ln_pool *pool = NULL;
        OK(ln_pool_open(&pool, err));
        load(&m, &decoder, 0, pool);
        load(&quiet, &first, bits, pool);
        alone(&decoder, pool);
        loaded = false;
        n_texts = 0;
        assert_int_equal(pthread_create(&decoder.thread, NULL, decode_on, &decoder), 0);
        while (stats_of(pool).n_jobs == 0 || n_texts < 1) sched_yield();
        load(&busy, &second, bits, pool);
        loaded = true;
        pthread_join(decoder.thread, NULL);
        const ln_pool_stats s = stats_of(pool);
        print_message("%d bits: %llu of %llu jobs waited, a step's for at most %llu\n", bits,
                      (unsigned long long)s.n_waited, (unsigned long long)s.n_jobs,
                      (unsigned long long)s.most_passed[0]);
        assert_true(s.n_waited > 0 && s.most_passed[0] <= 1);
        assert_int_equal(decoder.status, LN_OK);
        assert_memory_equal(decoder.together.ids, decoder.alone.ids, TOKENS * sizeof(int32_t));
        alone(&first, pool), alone(&second, pool);
        assert_memory_equal(first.alone.ids, second.alone.ids, TOKENS * sizeof(int32_t));
        const ln_device_weights *a = first.e->run->resident, *b = second.e->run->resident;
        assert_int_equal(a->bytes, b->bytes);
        if (!bits && a->bytes) assert_memory_equal(a->room, b->room, a->bytes); /* else it has addresses */
        ln_result_free(&first.alone), ln_result_free(&second.alone);
        ln_result_free(&decoder.alone), ln_result_free(&decoder.together);
        ln_eng_close(&decoder.e), ln_eng_close(&first.e), ln_eng_close(&second.e);
        ln_package_close(&m), ln_package_close(&quiet), ln_package_close(&busy);
        ln_pool_close(&pool);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(engines_take_turns),
                                       cmocka_unit_test(loading_leaves_turns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
