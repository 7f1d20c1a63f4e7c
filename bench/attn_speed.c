/* How fast the attention kernel is, and kv_write before it: one layer at a time, over as many layers as a model has, so that pages come from memory
 * where those of a model would. Rows of one sequence that follow `depth` others; the shape is that of a Qwen3-0.6B unless said otherwise. Each line
 * is the best of several passes over all layers.
 *
 * usage: attn_speed [-r plain|avx2|avx512|amx] [-t THREADS] [-d bf16|f32] [-n ROWS] [-p DEPTH] [-s SEQUENCES] [-h HEADS] [-k KV_HEADS] [-e WIDTH]
 *        [-w WINDOW] [-l LAYERS]
 * Without -n: 512 rows at depth 0, then one row at depths 256, 4,096 and eight sequences at 256. */
#include "../src/base/pool.h"
#include "../src/device/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE_LEN = 64, PASSES = 7 };

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
    memset(p, 0, bytes);
    return p;
}

typedef struct shape {
    int heads, kv_heads, width, layers;
    int64_t window;
    ln_dtype dtype;
} shape;

static void measure(ln_rung rung, int threads, const shape *h, int rows, int depth, int seqs) {
    ln_kernel table[LN_OP_COUNT];
    ln_cpu_kernels(rung, table);
    const int T = rows * seqs, blocks = (depth + rows + PAGE_LEN - 1) / PAGE_LEN;
    const int64_t q_cols = (int64_t)h->heads * h->width, k_cols = (int64_t)h->kv_heads * h->width;
    ln_p_kv kv = {.n_sub = 1, .n_kv_heads = h->kv_heads, .head_dim = h->width, .page_len = PAGE_LEN, .dtype = h->dtype};
    kv.layer_bytes = ln_kv_numbers(h->kv_heads, h->width, PAGE_LEN) * ln_dtype_bytes(h->dtype);
    kv.page_bytes = kv.layer_bytes * h->layers;
    int32_t *pos = block((size_t)T * 4), *seq = block((size_t)T * 4), *row0 = block((size_t)(seqs + 1) * 4), *pages = block((size_t)(seqs * blocks) * 4);
    for (int i = 0; i < T; i++) pos[i] = depth + i % rows, seq[i] = i / rows;
    for (int i = 0; i <= seqs; i++) row0[i] = i * rows;
    for (int i = 0; i < seqs * blocks; i++) pages[i] = i;
    ln_step step = {.n_rows = T, .n_seqs = seqs, .pos = pos, .seq = seq, .row0 = row0, .pages = {pages}, .n_sub = {1}, .n_blocks = blocks};
    const size_t pool_bytes = (size_t)(seqs * blocks) * (size_t)kv.page_bytes;
    uint8_t *pool = block(pool_bytes);
    for (size_t i = 0; i + 2 <= pool_bytes; i += 2) pool[i] = (uint8_t)(i * 2654435761u >> 20), pool[i + 1] = (uint8_t)(0x38 + (i >> 1) % 3);
    float *q = block((size_t)(T * (q_cols + 16)) * 4), *k = block((size_t)(T * (k_cols + 16)) * 4), *y = block((size_t)(T * (q_cols + 16)) * 4);
    for (int64_t i = 0; i < T * (q_cols + 16); i++) q[i] = (float)(i % 17 - 8) / 8;
    for (int64_t i = 0; i < T * (k_cols + 16); i++) k[i] = (float)(i % 13 - 6) / 8;

    double best[2] = {1e30, 1e30};
    for (int op = 0; op < 2; op++) {
        ln_node node = {.op = op ? LN_OP_ATTN_PAGED : LN_OP_KV_WRITE, .n_in = op ? 2 : 3, .n_out = 1};
        if (op) node.p.attn = (ln_p_attn){.kv = kv, .n_heads = h->heads, .scale = 0.08f, .window = h->window};
        else node.p.kv = kv;
        run u = {.kernel = table[node.op], .call = {.node = &node, .step = &step}};
        const ln_arg state = {pool, 1, 1, 1, h->dtype, false}, kvs = {k, T, k_cols, k_cols + 16, LN_F32, false};
        for (int i = 0; i < threads; i++) u.scratch[i] = block(u.kernel.scratch ? u.kernel.scratch(&node, NULL, &(ln_bounds){T, 1, seqs}) : 64);
        u.call.in[op] = state;
        if (op) u.call.in[0] = (ln_arg){q, T, q_cols, q_cols + 16, LN_F32, false}, u.call.out[0] = (ln_arg){y, T, q_cols, q_cols + 16, LN_F32, false};
        else u.call.in[1] = u.call.in[2] = kvs, u.call.out[0] = state;
        for (int pass = 0; pass < PASSES; pass++) {
            double t0 = ln_now();
            for (int l = 0; l < h->layers; l++) {
                if (op) node.p.attn.kv.lane = l;
                else node.p.kv.lane = l;
                ln_pool_run(threads, job, &u);
            }
            best[op] = LN_MIN(best[op], (ln_now() - t0) / h->layers);
        }
    }
    const int64_t window = h->window ? h->window : INT32_MAX, read_rows = LN_MIN(window + rows, (int64_t)depth + rows);
    double seen = 0, read = (double)read_rows;
    for (int64_t i = 0; i < rows; i++) seen += (double)LN_MIN(window, depth + i + 1);
    printf("%3d x %3d rows at %5d: attention %8.4f ms a layer, %6.1f GB/s, %7.1f GFLOP/s; kv_write %7.4f ms; all layers %7.2f and %6.2f ms\n", seqs, rows, depth,
           best[1] * 1e3, 2 * read * (double)seqs * (double)k_cols * ln_dtype_bytes(h->dtype) / best[1] * 1e-9, 4 * seen * (double)seqs * (double)q_cols / best[1] * 1e-9,
           best[0] * 1e3, best[1] * 1e3 * h->layers, best[0] * 1e3 * h->layers);
    fflush(stdout);
    munmap(pool, pool_bytes);
}

int main(int argc, char **argv) {
    int threads = 1, rows = 0, depth = 0, seqs = 1;
    shape h = {16, 8, 128, 28, 0, LN_BF16};
    ln_rung rung = LN_RUNG_PLAIN;
    while (rung + 1 < LN_RUNG_COUNT && ln_cpu_rung_here(rung + 1)) rung++;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *v = argv[i + 1];
        const int n = (int)strtol(v, NULL, 10);
        switch (argv[i][1]) {
        case 'r':
            for (int r = 0; r < LN_RUNG_COUNT; r++)
                if (!strcmp(v, ln_cpu_rung_name((ln_rung)r))) rung = (ln_rung)r;
            break;
        case 't': threads = n; break;
        case 'd': h.dtype = !strcmp(v, "f32") ? LN_F32 : LN_BF16; break;
        case 'n': rows = n; break;
        case 'p': depth = n; break;
        case 's': seqs = n; break;
        case 'h': h.heads = n; break;
        case 'k': h.kv_heads = n; break;
        case 'e': h.width = n; break;
        case 'w': h.window = n; break;
        case 'l': h.layers = n; break;
        default: return fprintf(stderr, "unknown flag %s\n", argv[i]), 2;
        }
    }
    if (threads < 1 || threads > 256 || !ln_cpu_rung_here(rung)) return fputs("no such rung or thread count here\n", stderr), 2;
    if (ln_pool_reserve(threads, NULL) != LN_OK) return 1;
    printf("%s, %s, %d threads, %d heads over %d of width %d\n", ln_cpu_rung_name(rung), h.dtype == LN_F32 ? "f32" : "bf16", threads, h.heads, h.kv_heads, h.width);
    if (rows) return measure(rung, threads, &h, rows, depth, seqs), 0;
    measure(rung, threads, &h, 512, 0, 1);
    measure(rung, threads, &h, 1, 256, 1);
    measure(rung, threads, &h, 1, 4096, 1);
    measure(rung, threads, &h, 1, 256, 8);
    return 0;
}
