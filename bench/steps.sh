#!/bin/sh
# Builds a source tree's whole library as one shared object, for bench/steps.c to run steps of it in turn with those of other trees.
# usage: bench/steps.sh TREE OUT.so [BUILD]
# TREE is a checkout in which `make` has run; BUILD names another build folder of it than `build`.
set -eu
tree=$(cd "${1:?a source tree}" && pwd); out=${2:?the file to make}; build=${3:-$tree/build}
entry=$(mktemp --suffix=.c)
trap 'rm -f "$entry"' EXIT
cat >"$entry" <<C
#include "$tree/src/engine/engine.h"

typedef struct form { ln_loaded *m; ln_eng *e; int32_t *ids; int streams; int64_t depth, rows; } form;

/* NULL: error has the message. */
void *form_open(const char *model, int streams, int64_t depth, int64_t rows, int steps, int threads, char *error, size_t room);
/* Seconds of so many steps from that depth on; negative: error has the message. *sum: what the last logits sum to. */
double form_run(void *handle, int steps, double *sum, char *error, size_t room);

void *form_open(const char *model, int streams, int64_t depth, int64_t rows, int steps, int threads, char *error, size_t room) {
    ln_error err = {0};
    form *f = calloc(1, sizeof *f);
    ln_options o = ln_options_default();
    f->streams = streams, f->depth = depth, f->rows = rows;
    o.n_threads = threads;
    o.n_ctx = depth + rows * steps < 1024 ? 1024 : depth + rows * steps; /* so that programs are those of a whole chunk, as in the command */
    o.n_parallel = o.n_logits = streams;
    if (ln_loaded_open(&f->m, model, &o, &err) || ln_eng_open(&f->e, f->m, &o, &err) || !(f->ids = ln_eng_random_ids(f->m, o.n_ctx + streams + 1)))
        return snprintf(error, room, "%s", err.message), NULL;
    return f;
}
double form_run(void *handle, int steps, double *sum, char *error, size_t room) {
    enum { MOST = 64 };
    form *f = handle;
    ln_feed feeds[MOST];
    ln_error err = {0};
    for (int s = 0; s < f->streams; s++) {
        if (!f->depth) ln_seq_clear(f->e, s);
        else if (ln_eng_stand(f->e, s, f->ids + s, f->depth, &err)) return snprintf(error, room, "%s", err.message), -1;
    }
    const double start = ln_now();
    for (int i = 0; i < steps; i++) {
        for (int s = 0; s < f->streams; s++) feeds[s] = (ln_feed){s, f->ids + s + f->depth + i * f->rows, f->rows, LN_WANT_LAST};
        if (ln_eng_step(f->e, LN_MODE_LOGITS, feeds, f->streams, &err)) return snprintf(error, room, "%s", err.message), -1;
    }
    const double seconds = ln_now() - start;
    const int64_t V = f->m->spec.V;
    float *logits = malloc((size_t)V * sizeof *logits);
    *sum = 0;
    for (int s = 0; s < f->streams; s++) {
        if (ln_run_logits(f->e->run, s, logits, &err)) return snprintf(error, room, "%s", err.message), -1;
        for (int64_t i = 0; i < V; i++) *sum += (double)logits[i];
    }
    free(logits);
    return seconds;
}
C
exec "${CC:-cc}" -shared -fPIC -std=c17 -D_GNU_SOURCE -O2 -I"$tree/include" "$entry" -o "$out" "$build/liblinnet.a" -Wl,-Bsymbolic -ljansson -lpcre2-8 -lutf8proc -lm
