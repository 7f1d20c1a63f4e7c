/* What this machine can do, as `linnet doctor` prints it: cores, rung, memory, and on request the read bandwidth
 * that decode speed is a share of.
 *
 * Bandwidth: all threads read their share of a buffer that no cache holds, best of several passes. The kernels' own ceilings,
 * f32 arithmetic among them, are printed by bench/ceiling. */
#include "doctor.h"
#include "run.h"
#include "../base/pool.h"

#include <stdio.h>

enum { MAX_THREADS = 256 };

typedef struct reading {
    const uint64_t *data;
    int64_t words;
    uint64_t sums[MAX_THREADS * 8];
} reading;

static void read_share(void *user, int thread, int n_threads) {
    reading *r = user;
    int64_t lo, hi;
    ln_share(r->words, 64, thread, n_threads, &lo, &hi);
    uint64_t s[8] = {0};
    for (int64_t i = lo; i + 8 <= hi; i += 8)
        for (int k = 0; k < 8; k++) s[k] += r->data[i + k];
    for (int k = 0; k < 8; k++) r->sums[thread * 8 + k] = s[k]; /* used: the loop cannot be dropped */
}

static ln_status measure_read(ln_machine *m, int n_threads, ln_error *err) {
    const size_t bytes = (size_t)256 << 20;
    uint64_t *data = ln_alloc(bytes);
    reading *r = ln_zalloc(1, sizeof *r);
    ln_status st = LN_OK;
    if (!data || !r) LN_GO(LN_OOM(err, "the bandwidth test (256 MiB)"));
    memset(data, 1, bytes);
    r->data = data;
    r->words = (int64_t)(bytes / 8);
    for (int pass = 0; pass < 5; pass++) {
        double start = ln_now();
        ln_pool_run(n_threads, read_share, r);
        m->read_gb_s = LN_MAX(m->read_gb_s, (double)bytes / (ln_now() - start) / 1e9);
    }
out:
    ln_free(data);
    ln_free(r);
    return st;
}

static void cpu_name(char *out, size_t cap) {
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        size_t n = strcspn(colon + 2, "\n");
        n = LN_MIN(n, cap - 1);
        memcpy(out, colon + 2, n);
        out[n] = 0;
        break;
    }
    if (f) fclose(f);
}

ln_status ln_run_doctor(bool measure, ln_machine *out, ln_error *err) {
    const ln_device_ops *ops;
    ln_dev *dev = NULL;
    ln_dev_info info;
    memset(out, 0, sizeof *out);
    out->n_cores = ln_cores();
    out->memory_bytes = ln_memory_total();
    out->available_bytes = ln_memory_available();
    out->n_logical = ln_logical_cores();
    cpu_name(out->cpu, sizeof out->cpu);
    int n_threads = LN_MIN(out->n_cores, MAX_THREADS);
    LN_TRY(ln_pool_reserve(n_threads, err));
    LN_TRY(ln_run_device(LN_DEVICE_CPU, &ops, err));
    ln_dev_options o = {.n_threads = n_threads};
    LN_TRY(ops->open(&dev, &o, err));
    ops->describe(dev, &info);
    ops->close(&dev);
    memcpy(out->rung, info.rung, sizeof out->rung);
    memcpy(out->rungs, info.rungs, sizeof out->rungs);
    memcpy(out->quantised, info.quantised, sizeof out->quantised);
    snprintf(out->devices, sizeof out->devices, "cpu, ref");
    return measure ? measure_read(out, n_threads, err) : LN_OK;
}
