/* The ceilings that speeds are shares of, measured: reading memory, and multiply-adds, in f32 or, where
 * there are tiles, in bf16.
 *
 * Reading: LN_MEASURE_LEAST bytes at least, which no cache holds, in huge pages where the system gives them,
 * each thread its partition. Whether software prefetch helps depends on the machine, so several distances are
 * tried; where there are tiles they read it too, for they may be faster. The best run counts: other programs
 * only ever take time away. `doctor --measure`, `bench` and bench/ceiling all ask here. */
#include "../exec.h"

enum { REPEATS = 4, ROUNDS = 4000000, PLAIN_CHAINS = 8 };

/* The plain level: what a compiler makes of C. */
static void plain_read(const float *data, int64_t n, int64_t prefetch, float *sink) {
    uint64_t s[8] = {0}, word[8];
    for (int64_t i = 0; i + 16 <= n; i += 16) {
        if (prefetch) __builtin_prefetch(data + i + prefetch);
        memcpy(word, data + i, sizeof word);
        for (int k = 0; k < 8; k++) s[k] += word[k];
    }
    memcpy(sink, s, sizeof s);
}

static double plain_multiply(int64_t rounds, float *sink) {
    float a[PLAIN_CHAINS] = {0}, x = 0.999f, y = 1e-3f;
    for (int64_t i = 0; i < rounds; i++) {
        for (int k = 0; k < PLAIN_CHAINS; k++) a[k] = a[k] * x + y;
        __asm__ volatile("" ::: "memory");
    }
    memcpy(sink, a, sizeof a);
    return (double)(2 * PLAIN_CHAINS) * (double)rounds;
}

static const ln_cpu_ceilings *ceilings_of(ln_isa r) {
    static const ln_cpu_ceilings plain = {plain_read, plain_multiply};
#ifdef LN_X86
    if (r == LN_ISA_AMX) return &ln_cpu_ceilings_amx;
    if (r == LN_ISA_AVX512) return &ln_cpu_ceilings_avx512;
    if (r == LN_ISA_AVX2) return &ln_cpu_ceilings_avx2;
#elif defined(LN_ARM64)
    if (r == LN_ISA_NEON) return &ln_cpu_ceilings_neon;
#endif
    (void)r;
    return &plain;
}

typedef struct measurement {
    const ln_cpu_ceilings *ceilings;
    const float *data;
    int64_t n, prefetch;
    double flops[LN_POOL_MAX];
    float sink[LN_POOL_MAX][16]; /* used, so that no pass can be optimised away */
} measurement;

static void read_partition(void *user, int thread, int n_threads) {
    measurement *m = user;
    int64_t lo, hi;
    ln_partition(m->n, 1024, thread, n_threads, &lo, &hi);
    m->ceilings->read(m->data + lo, hi - lo, m->prefetch, m->sink[thread]);
}

static void multiply_partition(void *user, int thread, int n_threads) {
    measurement *m = user;
    (void)n_threads;
    m->flops[thread] = m->ceilings->multiply(ROUNDS, m->sink[thread]);
}

static bool has_tiles(ln_isa r) {
#ifdef LN_X86
    return r == LN_ISA_AMX;
#else
    return (void)r, false;
#endif
}

/* What reads by vectors, on any level. */
static const ln_cpu_ceilings *vector_ceilings_of(ln_isa r) {
    return ceilings_of(has_tiles(r) ? (ln_isa)(r - 1) : r);
}

static double seconds(const ln_dev *d, ln_job_fn *fn, measurement *m) {
    double start = ln_now();
    ln_pool_run(d->pool, d->n_threads, fn, m);
    return ln_now() - start;
}

static ln_status measure_read(const ln_dev *d, const ln_cpu_ceilings *ceilings, const void *data,
                              size_t bytes, double *bytes_s, ln_error *err) {
    static const int64_t prefetch_distances[] = {0, 128, 512, 1024}; /* floats */
    measurement *m = ln_zalloc(1, sizeof *m);
    if (!m) return LN_OOM(err, "the measurement");
    *m = (measurement){.ceilings = ceilings, .data = data, .n = (int64_t)(bytes / sizeof(float))};
    *bytes_s = 0;
    for (int p = 0; p < REPEATS; p++)
        for (size_t a = 0; a < LN_COUNT(prefetch_distances); a++) {
            m->prefetch = prefetch_distances[a];
            *bytes_s = LN_MAX(*bytes_s, (double)bytes / seconds(d, read_partition, m));
        }
    ln_free(m);
    return LN_OK;
}

ln_status ln_cpu_measure_read(const ln_dev *d, const void *data, size_t bytes, double *bytes_s,
                              ln_error *err) {
    return measure_read(d, vector_ceilings_of(d->isa), data, bytes, bytes_s, err);
}

static ln_status measure_multiply(const ln_dev *d, double *flop_s, ln_error *err) {
    measurement *m = ln_zalloc(1, sizeof *m);
    if (!m) return LN_OOM(err, "the measurement");
    m->ceilings = ceilings_of(d->isa);
    for (int p = 0; p < REPEATS; p++) {
        double s = seconds(d, multiply_partition, m);
        *flop_s = LN_MAX(*flop_s, m->flops[0] * d->n_threads / s);
    }
    ln_free(m);
    return LN_OK;
}

ln_status ln_cpu_measure(ln_dev *d, size_t bytes, ln_dev_limits *out, ln_error *err) {
    void *data;
    *out = (ln_dev_limits){0};
    LN_TRY(ln_device_cpu.alloc(d, bytes, bytes, &data, err));
    for (size_t i = 0; i < bytes / sizeof(float); i++) ((float *)data)[i] = 1;
    ln_status st = ln_cpu_measure_read(d, data, bytes, &out->read_bytes_s, err);
    if (st == LN_OK && has_tiles(d->isa))
        st = measure_read(d, ceilings_of(d->isa), data, bytes, &out->tile_bytes_s, err);
    ln_device_cpu.free(d, data, bytes);
    LN_TRY(st);
    return measure_multiply(d, &out->flop_s, err);
}
