/* How fast the linear kernel is, shape by shape, beside the ceilings that bench/ceiling.c measures.
 *
 * The shapes are those of a Qwen3-0.6B. Weights are walked through a block much larger than the caches, as the layers of a model
 * are, so that few rows are bound by memory and many rows by arithmetic. Each line is the best of several passes.
 *
 * usage: kernel_speed [-r plain|avx2|avx512|amx] [-t THREADS] [-d bf16|f16|f32] [-x exact|fast] [-g GB_PER_S] [-f GFLOP_PER_S] [-n ROWS] [-s SHAPE] [-w MB]
 *        [-q BITS]
 * -x fast: the numbers of x are bf16 numbers, as in fast numerics.
 * -g and -f: the ceilings of this machine for that many threads; shares are printed when they are given.
 * -q: affine groups of 64, scales and biases of type -d
 * -w: the size of the block that the weights are walked through; small, they stay in a cache. */
#include "../src/base/pool.h"
#include "../src/device/cpu/cpu.h"
#include "../src/device/cpu/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef struct shape {
    const char *name;
    int64_t D, C;
} shape;
static const shape shapes[] = {{"q", 2048, 1024}, {"k", 1024, 1024}, {"gate", 3072, 1024}, {"down", 1024, 3072}, {"head", 151936, 1024}};
static const int64_t row_counts[] = {1, 2, 4, 8, 16, 64, 512};

typedef struct run {
    ln_kernel kernel;
    ln_call call;
    void *scratch[256];
} run;

static void job(void *user, int thread, int n_threads) {
    const run *u = user;
    ln_call c = u->call;
    c.thread = thread;
    c.n_threads = n_threads;
    c.scratch = u->scratch[thread];
    u->kernel.fn(&c);
}

static void *block(size_t bytes) {
    const size_t huge = (size_t)2 << 20;
    char *p = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit((perror("mmap"), 1));
    p += huge - (uintptr_t)p % huge;
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

/* A packed weight. */
static size_t bytes_of(int64_t D, int64_t C, ln_dtype t, ln_enc e) {
    return (size_t)(ln_pack_blocks(D) * (e.bits ? ln_pack_block_q(e, t, C) : ln_pack_block(t, C)));
}

int main(int argc, char **argv) {
    int threads = 1, opt_i = 1;
    ln_rung rung = LN_RUNG_PLAIN;
    ln_dtype dtype = LN_BF16;
    double gb = 0, gflop = 0;
    int64_t only_rows = 0;
    ln_enc enc = {0, 64};
    const char *only = NULL;
    bool fast = false;
    size_t weights_bytes = (size_t)800 << 20;
    while (rung + 1 < LN_RUNG_COUNT && ln_cpu_rung_here(rung + 1)) rung++;
    for (; opt_i + 1 < argc; opt_i += 2) {
        const char *v = argv[opt_i + 1];
        switch (argv[opt_i][1]) {
        case 'r':
            for (int i = 0; i < LN_RUNG_COUNT; i++)
                if (!strcmp(v, ln_cpu_rung_name((ln_rung)i))) rung = (ln_rung)i;
            break;
        case 't': threads = (int)strtol(v, NULL, 10); break;
        case 'd': dtype = !strcmp(v, "f32") ? LN_F32 : !strcmp(v, "f16") ? LN_F16 : LN_BF16; break;
        case 'g': gb = strtod(v, NULL); break;
        case 'f': gflop = strtod(v, NULL); break;
        case 'x': fast = !strcmp(v, "fast"); break;
        case 'n': only_rows = strtol(v, NULL, 10); break;
        case 's': only = v; break;
        case 'q': enc.bits = (int)strtol(v, NULL, 10); break;
        case 'w': weights_bytes = (size_t)strtol(v, NULL, 10) << 20; break;
        default: return fprintf(stderr, "unknown flag %s\n", argv[opt_i]), 2;
        }
    }
    if (threads < 1 || threads > 256 || !ln_cpu_rung_here(rung)) return fputs("no such rung or thread count here\n", stderr), 2;
    if (ln_pool_reserve(threads, NULL) != LN_OK) return 1;

    ln_kernel table[LN_OP_COUNT];
    ln_node node = {.op = enc.bits ? LN_OP_LINEAR_Q : LN_OP_LINEAR, .n_in = 2, .n_out = 1, .in = {0, 1}};
    ln_value values[2] = {{.n_dims = 2, .dims = {LN_DIM_T, 3072}, .bf16 = fast}, {.n_dims = 2, .dims = {1, 3072}, .dtype = dtype, .enc = enc}};
    run u = {0};
    ln_cpu_kernels(rung, table);
    u.kernel = table[node.op];
    for (int i = 0; i < threads; i++) u.scratch[i] = block(u.kernel.scratch ? u.kernel.scratch(&node, values, &(ln_bounds){512, 512, 1}) : 64);
    uint8_t *weights = block(weights_bytes);
    for (size_t i = 0; i + 2 <= weights_bytes; i += 2) /* small numbers in any of the types */
        weights[i] = (uint8_t)(i * 2654435761u >> 20), weights[i + 1] = (uint8_t)(0x38 + (i >> 1) % 3);
    float *x = block(512 * 3072 * sizeof *x), *y = block(512 * (size_t)151952 * sizeof *y);
    for (int i = 0; i < 512 * 3072; i++) x[i] = (float)(i % 17 - 8) / 8;

    printf("%s, %s, %s, %d threads\n", ln_cpu_rung_name(rung), fast ? "fast" : "exact", dtype == LN_F32 ? "f32" : dtype == LN_F16 ? "f16" : "bf16", threads);
    for (size_t s = 0; s < LN_COUNT(shapes); s++)
        for (size_t n = 0; n < LN_COUNT(row_counts); n++) {
            int64_t rows = only_rows ? only_rows : row_counts[n], D = shapes[s].D, C = shapes[s].C;
            if ((only_rows && n) || (only && strcmp(only, shapes[s].name)) || bytes_of(D, C, dtype, enc) + 64 > weights_bytes || (D > 100000 && rows > 16)) continue;
            size_t bytes = bytes_of(D, C, dtype, enc), at = 0;
            ln_affine affine = {.dtype = dtype, .enc = enc};
            double flops = 2.0 * (double)(D * C * rows), best = 1e30;
            int reps = (int)LN_MAX(1.0, LN_MIN(2e9 / flops, 400e6 / (double)bytes));
            u.call.node = &node;
            u.call.in[0] = (ln_arg){x, rows, C, C, LN_F32, fast};
            u.call.out[0] = (ln_arg){y, rows, D, ln_pitch(&(ln_value){.n_dims = 2, .dims = {0, D}}), LN_F32, false};
            for (int pass = 0; pass < 6; pass++) {
                double t0 = ln_now();
                for (int i = 0; i < reps; i++) {
                    if (at + bytes > weights_bytes - 64) at = 0;
                    affine.codes = weights + at;
                    u.call.in[1] = (ln_arg){enc.bits ? (void *)&affine : weights + at, D, C, C, dtype, false}; /* packed: any bytes will do */
                    ln_pool_run(threads, job, &u);
                    at += bytes;
                }
                best = LN_MIN(best, (ln_now() - t0) / reps);
            }
            double g = (double)bytes / best * 1e-9, f = flops / best * 1e-9;
            printf("%-5s rows %4lld  %8.3f ms  %7.1f GB/s  %8.1f GFLOP/s", shapes[s].name, (long long)rows, best * 1e3, g, f);
            if (gb > 0 && gflop > 0) printf("   %3.0f %% of %s", 100 * LN_MAX(g / gb, f / gflop), g / gb > f / gflop ? "memory" : "arithmetic");
            putchar('\n');
        }
    return 0;
}
