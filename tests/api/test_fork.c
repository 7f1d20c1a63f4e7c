/* fork() while other threads are inside the library: the child finds no lock held, and the library works
 * in it.
 *
 * The test replaces pthread_mutex_unlock by a function that waits 2 ms first on this test's threads, so
 * that a lock is held at nearly every moment at which this program forks. A child that waits for ever is
 * ended by its alarm. */
/* run: slow */
#include <linnet.h>

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define TINY LN_ROOT "/models/tiny"
enum { CHILDREN = 25, CHILD_SECONDS = 60 };

static _Thread_local bool slow;

int pthread_mutex_unlock(pthread_mutex_t *m) {
    static _Atomic(void *) real;
    void *fn = atomic_load(&real);
    if (!fn) atomic_store(&real, fn = dlsym(RTLD_NEXT, "pthread_mutex_unlock"));
    if (slow) usleep(2000);
    int (*unlock)(pthread_mutex_t *);
    memcpy(&unlock, &fn, sizeof unlock);
    return unlock(m);
}

static ln_options small(int n_threads) {
    ln_options opt = ln_options_default();
    opt.n_ctx = 256, opt.n_threads = n_threads;
    return opt;
}

static ln_status says(ln_model *model, int n_threads) {
    ln_options opt = small(n_threads);
    ln_engine *e = NULL;
    ln_sampling how = {.size = sizeof how};
    ln_result result = {.size = sizeof result};
    ln_prompt p = {.size = sizeof(ln_prompt), .text = "Once", .text_bytes = 4};
    ln_error err;
    ln_status st = ln_engine_open(&e, model, &opt, &err);
    if (st == LN_OK) st = ln_sampling_default(model, &how, &err);
    if (st == LN_OK)
        how.n_max = 2, how.ignore_eos = true, st = ln_generate(e, &p, &how, NULL, NULL, &result, &err);
    if (st == LN_OK && result.n_ids != 2) st = LN_EINTERNAL;
    ln_result_free(&result);
    ln_engine_close(&e);
    return st;
}

/* Runs everything that takes a lock: handles, mappings, weights, the thread pool. */
static ln_status whole_life(int n_threads) {
    ln_model *m = NULL;
    ln_options opt = small(n_threads);
    ln_error err;
    ln_status st = ln_model_open(&m, TINY, &opt, &err);
    if (st == LN_OK) st = says(m, n_threads);
    ln_model_close(&m);
    return st;
}

static ln_model *shared;
static atomic_bool stop;

static void *lives(void *arg) {
    (void)arg;
    slow = true;
    while (!atomic_load(&stop))
        if (whole_life(2) != LN_OK) abort();
    return NULL;
}

static void *asks(void *arg) {
    ln_info info = {.size = sizeof info};
    (void)arg;
    slow = true;
    while (!atomic_load(&stop))
        if (ln_model_info(shared, &info, NULL) != LN_OK) abort();
    return NULL;
}

static int ended(pid_t pid) {
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void children_work(void **state) {
    (void)state;
    pthread_t t[3];
    ln_options opt = small(2);
    assert_int_equal(ln_model_open(&shared, TINY, &opt, NULL), LN_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&t[i], NULL, i == 0 ? lives : asks, NULL), 0);
    for (int i = 0; i < CHILDREN; i++) {
        usleep(3000 + 700 * (unsigned)i);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            ln_info info = {.size = sizeof info};
            alarm(CHILD_SECONDS);
            ln_status st = ln_model_info(shared, &info, NULL);
            if (st == LN_OK) st = says(shared, 2);
            if (st == LN_OK) st = whole_life(2);
            _exit(st);
        }
        assert_int_equal(ended(pid), 0); /* 1014 (1000 + SIGALRM) means that the child was still waiting
                                            when its alarm came */
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++) (void)pthread_join(t[i], NULL);
    ln_model_close(&shared);
}

/* Two forks while this thread packs weights: one in its progress callback, one by another thread at that
 * moment. */
typedef struct forking {
    pid_t here, elsewhere;
    ln_model *model;
} forking;

static void *fork_elsewhere(void *arg) {
    forking *f = arg;
    f->elsewhere = fork();
    if (f->elsewhere == 0) {
        alarm(CHILD_SECONDS);
        _exit(says(f->model, 1)); /* the child packs again the weights that were being packed */
    }
    return NULL;
}

static void on_progress(void *user, const char *what, int64_t done, int64_t total) {
    forking *f = user;
    pthread_t t;
    (void)done, (void)total;
    if (f->here != -1 || strcmp(what, "loading") != 0) return;
    f->here = fork();
    if (f->here == 0) return; /* the child goes on loading */
    if (pthread_create(&t, NULL, fork_elsewhere, f) == 0) (void)pthread_join(t, NULL);
}

static void fork_while_loading(void **state) {
    (void)state;
    forking f = {-1, -1, NULL};
    ln_options opt = small(1);
    ln_engine *e = NULL;
    ln_error err;
    assert_int_equal(ln_model_open(&f.model, TINY, &opt, &err), LN_OK);
    opt.progress.fn = on_progress, opt.progress.user = &f;
    alarm(2 * CHILD_SECONDS);
    ln_status st = ln_engine_open(&e, f.model, &opt, &err);
    if (f.here == 0) _exit(st == LN_OK ? says(f.model, 1) : st);
    assert_int_equal(st, LN_OK);
    assert_true(f.here > 0 && f.elsewhere > 0);
    assert_int_equal(ended(f.here), 0);
    assert_int_equal(ended(f.elsewhere), 0);
    alarm(0);
    ln_engine_close(&e);
    ln_model_close(&f.model);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(children_work), cmocka_unit_test(fork_while_loading)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
