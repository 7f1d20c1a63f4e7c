/* Steps of whole builds in turn, within one program: what two commands tell only where a machine stays as it is for minutes, this tells where it changes within seconds.
 *
 * A build is a shared object made by bench/steps.sh of a source tree. Each opens the model for itself (its packed weights and pages are there once for each build). A round goes
 * through the builds in another order each time; each does STEPS steps of ROWS rows of each of STREAMS sequences from DEPTH on. For each build: the median in ms, its ratio to the
 * first build's in the same round: median and quartiles; and whether the last logits sum to the first build's.
 * Where a build's numbers lie in memory tells too, by up to 23 % seen: let a copy of one object take part as well, and name builds in several orders.
 *
 * usage: steps ROUNDS MODEL STREAMS DEPTH ROWS STEPS BUILD.so ... */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUILDS = 8, ROUNDS_MOST = 10000, THREADS = 2 };
typedef struct build {
    const char *name;
    void *handle;
    double (*run)(void *, int, double *, char *, size_t);
    double seconds[ROUNDS_MOST], sum;
} build;
static build builds[BUILDS];
static char error[1000];

static int rising(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static void die(const char *name) {
    fprintf(stderr, "steps: %s: %s\n", name, error);
    exit(1);
}

int main(int argc, char **argv) {
    if (argc < 8 || argc > 7 + BUILDS) return fprintf(stderr, "usage: steps ROUNDS MODEL STREAMS DEPTH ROWS STEPS BUILD.so ..., at most %d builds\n", BUILDS), 2;
    const int rounds = atoi(argv[1]), streams = atoi(argv[3]), steps = atoi(argv[6]), n = argc - 7;
    const int64_t depth = atoll(argv[4]), rows = atoll(argv[5]);
    if (rounds < 1 || rounds > ROUNDS_MOST || streams < 1 || streams > 64 || depth < 0 || rows < 1 || steps < 1)
        return fprintf(stderr, "steps: 1 to %d rounds, 1 to 64 streams, a depth from 0, rows and steps from 1\n", ROUNDS_MOST), 2;
    for (int i = 0; i < n; i++) {
        build *b = &builds[i];
        void *object = dlopen(argv[7 + i], RTLD_NOW | RTLD_LOCAL);
        if (!object) return fprintf(stderr, "steps: %s\n", dlerror()), 1;
        void *(*open)(const char *, int, int64_t, int64_t, int, int, char *, size_t);
        *(void **)&open = dlsym(object, "form_open");
        *(void **)&b->run = dlsym(object, "form_run");
        if (!open || !b->run) return fprintf(stderr, "steps: %s is not made by bench/steps.sh\n", argv[7 + i]), 1;
        b->name = argv[7 + i];
        b->handle = open(argv[2], streams, depth, rows, steps, THREADS, error, sizeof error);
        if (!b->handle) die(b->name);
    }
    for (int r = -1; r < rounds; r++) /* the first one warms up */
        for (int k = 0; k < n; k++) {
            build *b = &builds[(r + 1 + (r & 1 ? k : n - k)) % n];
            const double s = b->run(b->handle, steps, &b->sum, error, sizeof error);
            if (s < 0) die(b->name);
            if (r >= 0) b->seconds[r] = s;
        }
    static double ratio[BUILDS][ROUNDS_MOST];
    for (int i = 0; i < n; i++)
        for (int r = 0; r < rounds; r++) ratio[i][r] = builds[i].seconds[r] / builds[0].seconds[r];
    for (int i = 0; i < n; i++) {
        qsort(ratio[i], (size_t)rounds, sizeof *ratio[i], rising);
        qsort(builds[i].seconds, (size_t)rounds, sizeof *builds[i].seconds, rising);
        const double *x = ratio[i];
        printf("%-24s %9.3f ms, ratio %.4f (%.4f .. %.4f)%s\n", builds[i].name, 1e3 * builds[i].seconds[rounds / 2] / steps, x[rounds / 2], x[rounds / 4], x[rounds - 1 - rounds / 4],
               builds[i].sum == builds[0].sum ? "" : ", other logits");
    }
    return 0;
}
