/* Compares the step times of whole builds of linnet in interleaved runs within one process. Two separate
 * commands can be compared only on a machine whose speed is constant for minutes; interleaved runs also work
 * if it changes within seconds.
 *
 * A build is a shared object that bench/steps.sh makes from a source tree. Each build opens the model itself,
 * so packed weights and KV pages are in memory once for each build. A round runs all builds, in another order
 * each time: each runs STEPS steps of ROWS rows of each of STREAMS sequences, which start at position DEPTH.
 * The program prints for each build the median time of a step in ms, the median and the quartiles of the
 * ratio to the first build's time in the same round, and whether the sum of the last logits equals the first
 * build's. The place of a build's data in memory affects its speed too, by up to 23 % in our measurements. To
 * see that effect, include a copy of one object, and repeat the comparison with the builds in other orders.
 *
 * usage: steps ROUNDS MODEL STREAMS DEPTH ROWS STEPS BUILD.so ...
 *
 * This file is compiled twice: without STEPS_BUILD it is the program; with it, together with the engine.h of
 * the source tree (bench/steps.sh), it is the interface of a build. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { STREAMS_MOST = 64, ERROR_BYTES = 1024 };
/* Opens an engine for a model, for `steps` steps of `rows` rows of each of `streams` sequences of `depth`
 * tokens. Returns its handle, which lives until the program ends; NULL: error has the message. */
typedef void *steps_open_fn(const char *model, int streams, int64_t depth, int64_t rows, int steps,
                            char error[ERROR_BYTES]);
/* Runs the steps and returns their time in seconds; negative: error has the message. *sum: the sum of the
 * logits of the last step. */
typedef double steps_run_fn(void *handle, double *sum, char error[ERROR_BYTES]);

#ifdef STEPS_BUILD
steps_open_fn steps_open;
steps_run_fn steps_run;

typedef struct work {
    ln_package *m;
    ln_eng *e;
    ln_seq *seqs[STREAMS_MOST];
    int32_t *ids;
    float *logits;
    int streams, steps;
    int64_t depth, rows;
} work;

static ln_status open_work(work *w, const char *model, ln_error *err) {
    enum { THREADS = 2, CHUNK = 1024 /* programs are planned for a whole chunk, as in the command */ };
    ln_options o = ln_options_default();
    o.n_threads = THREADS;
    o.n_ctx = LN_MAX(w->depth + w->rows * w->steps, (int64_t)CHUNK);
    o.n_parallel = o.n_logits = w->streams;
    LN_TRY(ln_package_open(&w->m, model, &o, err));
    LN_TRY(ln_eng_open(&w->e, w->m, &o, err));
    w->ids = ln_eng_random_ids(w->m, o.n_ctx + w->streams);
    w->logits = ln_alloc((size_t)w->m->spec.V * sizeof *w->logits);
    return w->ids && w->logits ? LN_OK : LN_OOM(err, "ids and logits");
}
void *steps_open(const char *model, int streams, int64_t depth, int64_t rows, int steps,
                 char error[ERROR_BYTES]) {
    ln_error err = {0};
    work *w = ln_zalloc(1, sizeof *w);
    if (!w) return snprintf(error, ERROR_BYTES, "memory is short"), NULL;
    *w = (work){.streams = streams, .depth = depth, .rows = rows, .steps = steps};
    if (open_work(w, model, &err))
        return snprintf(error, ERROR_BYTES, "%s", err.message), NULL; /* the program ends */
    return w;
}

static ln_status run_work(work *w, double *seconds, double *sum, ln_error *err) {
    ln_batch_item feeds[STREAMS_MOST];
    for (int s = 0; s < w->streams; s++)
        LN_TRY(ln_eng_set_context(w->e, &w->seqs[s], w->ids + s, w->depth, w->rows * w->steps, err));
    const double start = ln_now();
    for (int i = 0; i < w->steps; i++) {
        for (int s = 0; s < w->streams; s++)
            feeds[s] =
                (ln_batch_item){w->seqs[s], w->ids + s + w->depth + i * w->rows, w->rows, LN_LOGITS_LAST};
        LN_TRY(ln_eng_step(w->e, feeds, w->streams, err));
    }
    *seconds = ln_now() - start;
    *sum = 0;
    for (int s = 0; s < w->streams; s++) {
        LN_TRY(ln_run_logits(w->e->run, s, w->logits, err));
        for (int64_t i = 0; i < w->m->spec.V; i++) *sum += (double)w->logits[i];
    }
    return LN_OK;
}
double steps_run(void *handle, double *sum, char error[ERROR_BYTES]) {
    ln_error err = {0};
    double seconds;
    if (run_work(handle, &seconds, sum, &err)) return snprintf(error, ERROR_BYTES, "%s", err.message), -1;
    return seconds;
}

#else
#include <dlfcn.h>
#include <string.h>

#include "../src/base/median.h"
#include "../src/inspect/inspect.h"

enum { BUILDS = 8, ROUNDS_MOST = 10000 };
typedef struct build {
    const char *name;
    void *handle;
    steps_run_fn *run;
    double seconds[ROUNDS_MOST], ratio[ROUNDS_MOST], sum;
} build;
static build builds[BUILDS];

static int die(const char *name, const char *why) {
    fprintf(stderr, "steps: %s: %s\n", name, why);
    exit(1);
}
/* The integer in s if it is in [least, most], else -1. */
static int64_t number(const char *s, uint64_t least, uint64_t most) {
    uint64_t n;
    return ln_parse_u64(s, strlen(s), &n) && n >= least && n <= most ? (int64_t)n : -1;
}

int main(int argc, char **argv) {
    if (argc < 8 || argc > 7 + BUILDS)
        return fprintf(stderr,
                       "usage: steps ROUNDS MODEL STREAMS DEPTH ROWS STEPS BUILD.so ..., at most %d builds\n",
                       BUILDS),
               LN_EUSAGE;
    const int64_t rounds = number(argv[1], 1, ROUNDS_MOST), streams = number(argv[3], 1, STREAMS_MOST),
                  depth = number(argv[4], 0, 1 << 20), rows = number(argv[5], 1, 1 << 20),
                  steps = number(argv[6], 1, 1 << 20);
    const int n = argc - 7;
    if (rounds < 0 || streams < 0 || depth < 0 || rows < 0 || steps < 0)
        return fprintf(stderr,
                       "steps: ROUNDS is 1 to %d, STREAMS 1 to %d, DEPTH from 0, ROWS and STEPS from 1\n",
                       ROUNDS_MOST, STREAMS_MOST),
               LN_EUSAGE;
    for (int i = 0; i < n; i++) {
        build *b = &builds[i];
        char error[ERROR_BYTES];
        b->name = argv[7 + i];
        void *object = dlopen(b->name, RTLD_NOW | RTLD_LOCAL);
        if (!object) die(b->name, dlerror());
        steps_open_fn *open;
        *(void **)&open = dlsym(object, "steps_open");
        *(void **)&b->run = dlsym(object, "steps_run");
        if (!open || !b->run) die(b->name, "not made by bench/steps.sh");
        b->handle = open(argv[2], (int)streams, depth, rows, (int)steps, error);
        if (!b->handle) die(b->name, error);
    }
    for (int64_t r = -1; r < rounds; r++) /* the first round warms up */
        for (int k = 0; k < n; k++) {
            build *b = &builds[(r + 1 + (r & 1 ? k : n - k)) % n];
            char error[ERROR_BYTES];
            const double s = b->run(b->handle, &b->sum, error);
            if (s < 0) die(b->name, error);
            if (r >= 0) b->seconds[r] = s;
        }
    for (int i = 0; i < n; i++)
        for (int64_t r = 0; r < rounds; r++) builds[i].ratio[r] = builds[i].seconds[r] / builds[0].seconds[r];
    for (int i = 0; i < n; i++) {
        build *b = &builds[i];
        const double ms = 1e3 * ln_median(b->seconds, (int)rounds) / (double)steps,
                     ratio = ln_median(b->ratio, (int)rounds); /* also sorts b->ratio */
        printf("%-24s %9.3f ms, ratio %.4f (%.4f .. %.4f)%s\n", b->name, ms, ratio, b->ratio[rounds / 4],
               b->ratio[rounds - 1 - rounds / 4], b->sum == builds[0].sum ? "" : ", other logits");
    }
    return 0;
}
#endif
