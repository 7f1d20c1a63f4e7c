/* The two ceilings of this machine: how fast memory can be read and how many f32 multiply-adds a second the cores can do.
 *
 * Every speed in docs/speed.md is given as a share of these. Reading is measured over blocks much larger than the caches, in
 * private memory with huge pages and in a mapped file with small pages (what weights are), each line loaded once, with 1 and 2
 * threads; the best of a few passes counts, because a shared machine only ever takes time away. The multiply-adds are chains in
 * registers, enough of them to hide the latency.
 *
 * usage: ceiling [FILE]   FILE: something of 256 MB or more to map; without it the mapped rows are left out */
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 64, PASSES = 5 };

typedef struct job {
    const uint8_t *data;
    size_t bytes;
    double units;          /* multiply-adds done */
    int ahead;             /* bytes of software prefetch, 0: none */
    pthread_barrier_t *gate;
    void (*fn)(struct job *);
    volatile float sink;
} job;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

__attribute__((target("avx512f"))) static void read_512(job *j) {
    __m512i s[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    for (size_t i = 0; i + 256 <= j->bytes; i += 256)
        for (size_t k = 0; k < 4; k++) {
            if (j->ahead > 0) _mm_prefetch((const char *)(j->data + i + 64 * k + (size_t)j->ahead), _MM_HINT_T0);
            s[k] = _mm512_add_epi32(s[k], _mm512_loadu_si512(j->data + i + 64 * k));
        }
    j->sink = (float)_mm512_reduce_add_epi32(_mm512_add_epi32(_mm512_add_epi32(s[0], s[1]), _mm512_add_epi32(s[2], s[3])));
}
__attribute__((target("avx2"))) static void read_256(job *j) {
    __m256i s[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    for (size_t i = 0; i + 128 <= j->bytes; i += 128)
        for (size_t k = 0; k < 4; k++) {
            if (j->ahead > 0 && k % 2 == 0) _mm_prefetch((const char *)(j->data + i + 32 * k + (size_t)j->ahead), _MM_HINT_T0);
            s[k] = _mm256_add_epi32(s[k], _mm256_loadu_si256((const __m256i *)(const void *)(j->data + i + 32 * k)));
        }
    __m256i t = _mm256_add_epi32(_mm256_add_epi32(s[0], s[1]), _mm256_add_epi32(s[2], s[3]));
    j->sink = (float)_mm256_extract_epi32(t, 0);
}
__attribute__((target("avx512f"))) static void fma_512(job *j) {
    __m512 a[16], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) a[i] = _mm512_set1_ps((float)i);
    for (long n = 0; n < 20000000; n++) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) a[i] = _mm512_fmadd_ps(a[i], x, y);
        __asm__ volatile("" : "+v"(x));
    }
#pragma GCC unroll 16
    for (int i = 1; i < 16; i++) a[0] = _mm512_add_ps(a[0], a[i]);
    j->sink = _mm512_reduce_add_ps(a[0]);
    j->units = 20000000.0 * 16 * 16;
}
__attribute__((target("avx2,fma"))) static void fma_256(job *j) {
    __m256 a[12], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
#pragma GCC unroll 12
    for (int i = 0; i < 12; i++) a[i] = _mm256_set1_ps((float)i);
    for (long n = 0; n < 20000000; n++) {
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) a[i] = _mm256_fmadd_ps(a[i], x, y);
        __asm__ volatile("" : "+x"(x));
    }
#pragma GCC unroll 12
    for (int i = 1; i < 12; i++) a[0] = _mm256_add_ps(a[0], a[i]);
    j->sink = _mm256_cvtss_f32(a[0]);
    j->units = 20000000.0 * 12 * 8;
}

static void *thread_main(void *arg) {
    job *j = arg;
    for (int p = 0; p < PASSES; p++) {
        pthread_barrier_wait(j->gate);
        j->fn(j);
        pthread_barrier_wait(j->gate);
    }
    return NULL;
}

/* The best time of a few passes, all threads beginning together. */
static double best(int n, job jobs[]) {
    pthread_t threads[MAX_THREADS];
    pthread_barrier_t gate;
    double least = 1e30;
    pthread_barrier_init(&gate, NULL, (unsigned)n + 1);
    for (int t = 0; t < n; t++) {
        jobs[t].gate = &gate;
        if (pthread_create(&threads[t], NULL, thread_main, &jobs[t])) exit(1);
    }
    for (int p = 0; p < PASSES; p++) {
        pthread_barrier_wait(&gate);
        double t0 = now();
        pthread_barrier_wait(&gate);
        double t = now() - t0;
        least = t < least ? t : least;
    }
    for (int t = 0; t < n; t++) pthread_join(threads[t], NULL);
    pthread_barrier_destroy(&gate);
    return least;
}

static void read_row(const char *what, const uint8_t *data, size_t bytes, int n, int ahead, void (*fn)(job *)) {
    static job jobs[MAX_THREADS];
    size_t part = bytes / (size_t)n & ~(size_t)4095;
    for (int t = 0; t < n; t++) jobs[t] = (job){.data = data + part * (size_t)t, .bytes = part - 8192, .ahead = ahead, .fn = fn};
    double s = best(n, jobs);
    printf("read %-28s %2d threads, prefetch %5d   %7.1f GB/s\n", what, n, ahead, (double)part * n / s * 1e-9);
}

static void fma_row(const char *what, int n, void (*fn)(job *)) {
    static job jobs[MAX_THREADS];
    for (int t = 0; t < n; t++) jobs[t] = (job){.fn = fn};
    double s = best(n, jobs);
    printf("fma  %-28s %2d threads                   %7.1f GFLOP/s\n", what, n, 2 * jobs[0].units * n / s * 1e-9);
}

int main(int argc, char **argv) {
    size_t bytes = (size_t)1 << 30;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int most = cores > MAX_THREADS ? MAX_THREADS : (int)cores;
    int wide = __builtin_cpu_supports("avx512f");
    void (*reader)(job *) = wide ? read_512 : read_256;
    static const int aheads[] = {0, 512, 2048, 4096};
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return puts("no AVX2 here: nothing to measure"), 0;
    uint8_t *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mem == MAP_FAILED) return perror("mmap"), 1;
    madvise(mem, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < bytes; i += 8) *(uint64_t *)(void *)(mem + i) = i;
    for (int n = 1; n <= most; n = n < most && 2 * n > most ? most : 2 * n)
        for (int a = 0; a < 4; a++) read_row("memory, huge pages", mem, bytes, n, aheads[a], reader);
    munmap(mem, bytes);
    if (argc > 1) {
        struct stat st;
        int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) || st.st_size < 1 << 28) return fprintf(stderr, "%s: no file of 256 MB or more\n", argv[1]), 1;
        size_t size = (size_t)st.st_size;
        uint8_t *map = mmap(NULL, size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
        if (map == MAP_FAILED) return perror("mmap"), 1;
        for (int n = 1; n <= most; n = n < most && 2 * n > most ? most : 2 * n)
            for (int a = 0; a < 4; a++) read_row("mapped file, small pages", map, size, n, aheads[a], reader);
    }
    for (int n = 1; n <= most; n = n < most && 2 * n > most ? most : 2 * n) {
        if (wide) fma_row("AVX-512", n, fma_512);
        fma_row("AVX2", n, fma_256);
    }
    return 0;
}
