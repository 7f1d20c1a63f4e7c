/* How fast the kernels are, one by one, at the sizes of real models, beside the ceilings that bench/ceiling.c measures.
 *
 * What is timed is what tests/kernels/declared.def declares and test_declared compares with the reference. Weights and pages are walked
 * through a block much larger than the caches, as the layers of a model are, so that few rows are bound by memory and many
 * by arithmetic; the inputs and outputs of row-wise ops stay in caches, as in a step. Each line is the best of several passes.
 *
 * usage: kernel_speed [-r plain|avx2|avx512|amx|neon] [-t THREADS] [-x exact|fast] [-d bf16|f16|f32|tight] [-q BITS] [-n ROWS] [-p DEPTH] [-s NAME] [-w MB]
 *        [-m OUTPUTSxCOLUMNS] [-y MB] [-g GB_PER_S] [-f GFLOP_PER_S]
 * -x fast: the numbers of x are bf16 numbers, or fixed point for encoded weights, and the pages bf16, as in fast numerics.
 * -d, -q: the type of weights (tight: bf16 in 12 bits, as an engine keeps them on all rungs but plain); affine groups of 64 with scales and biases of that type.
 * -p: tokens that precede the rows of attention (0; 4096 for one row). -s: the kernels of that name or op.
 * -g and -f: the ceilings of this machine for that many threads; shares are printed when they are given.
 * -w: the size of the block that weights are walked through; small, they stay in a cache.
 * -m: one product, of that shape (6912x1152), instead of those declared. -y: outputs are walked through a block of that size as well: in a step
 * those of a product have left the caches when the next layer writes them, which can cost more than all else that a kernel does. */
#include "../src/base/pool.h"
#include "../src/device/cpu/cpu.h"
#include "../src/device/cpu/pack/bf12.h"
#include "../tests/kernels/declared.h"

#include <stdio.h>

enum { PASSES = 6, MOST_THREADS = 256 };

typedef struct options {
    ln_isa rung;
    int threads, bits;
    ln_dtype dtype;
    bool fast, tight;
    int64_t rows, depth; /* -1: the usual ones */
    const char *only;
    size_t walk_bytes, y_bytes;
    int64_t shape[2]; /* of -m; 0: none */
    double gb, gflop;
} options;

typedef struct timed {
    ln_kernel kernel;
    ln_call call;
    void *scratch[MOST_THREADS];
} timed;

static void job(void *user, int thread, int n_threads) {
    const timed *u = user;
    ln_call c = u->call;
    c.thread = thread;
    c.n_threads = n_threads;
    c.scratch = u->scratch[thread];
    u->kernel.fn(&c);
}

/* Seconds of one run, the best of the passes. `walked`: where the data that a layer has of its own begins to lie, `bytes` for each layer; `outputs`: where
 * outputs are walked through, of y_bytes, or NULL. */
static double best_of(timed *u, int threads, const declared_call *m, const float *units, uint8_t *walked, size_t walk_bytes, size_t bytes, uint8_t *outputs, size_t y_bytes) {
    const bool product = m->node.op == LN_OP_LINEAR || m->node.op == LN_OP_LINEAR_Q || m->node.op == LN_OP_LINEAR_FIXED || m->node.op == LN_OP_LINEAR_FIXED_ROW, pages = m->pool_bytes > 0;
    ln_affine affine = {.dtype = m->values[1].dtype, .enc = m->values[1].enc, .units = units};
    double cost = LN_MAX(m->flops / 2e9, ((double)bytes + m->bytes) / 400e6), best = 1e30;
    int reps = (int)LN_MAX(1.0, LN_MIN(1 / LN_MAX(cost, 1e-9), 2000.0));
    const size_t of_outputs = (size_t)(m->rows * u->call.out[0].pitch) * sizeof(float);
    size_t at = 0, at_y = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        double start = ln_now();
        for (int i = 0; i < reps; i++) {
            if (at + bytes > walk_bytes - 64) at = 0;
            affine.codes = walked + at; /* packed: any bytes will do */
            if (product) u->call.in[1].data = m->values[1].enc.bits ? (void *)&affine : walked + at;
            else if (pages) u->call.in[m->node.op == LN_OP_ATTN_PAGED].data = walked + at;
            if (m->node.op == LN_OP_KV_WRITE) u->call.out[0].data = walked + at;
            if (outputs && m->node.op != LN_OP_KV_WRITE) { /* which walks through its own */
                if (at_y + of_outputs > y_bytes) at_y = 0;
                u->call.out[0].data = outputs + at_y;
                at_y += of_outputs;
            }
            ln_pool_run(threads, job, u);
            at += bytes;
        }
        best = LN_MIN(best, (ln_now() - start) / reps);
    }
    return best;
}

/* Small numbers in any of the types. */
static void fill(uint8_t *walked, size_t bytes) {
    for (size_t i = 0; i + 2 <= bytes; i += 2) walked[i] = (uint8_t)(i * 2654435761u >> 20), walked[i + 1] = (uint8_t)(0x38 + (i >> 1) % 3);
}
/* One tight weight after the other, made of what lies at the end. */
static void fill_tight(uint8_t *walked, size_t walk_bytes, int64_t D, int64_t C, size_t bytes) {
    _Atomic int64_t n_full = 0;
    const uint8_t *rows = walked + walk_bytes - (size_t)(2 * D * C);
    fill(walked, walk_bytes);
    if (bytes + (size_t)(2 * D * C) > walk_bytes) exit((fputs("kernel_speed: -w: two such weights need more\n", stderr), 2));
    ln_bf12_init(walked, D, C);
    if (!ln_bf12_pack(walked, rows, D, C, 0, ln_pack_blocks(D), &n_full) || n_full) exit((fputs("kernel_speed: random weights that cannot be tight\n", stderr), 1));
    for (size_t at = bytes; at + bytes <= walk_bytes; at += bytes) memcpy(walked + at, walked, bytes);
}

static void measure(const options *o, const declared *d, int64_t rows, uint8_t *walked) {
    declared_call m;
    declared_how how = {rows, o->depth >= 0 ? o->depth : rows == 1 ? 4096 : 0, o->dtype, o->bits, o->fast, false};
    how.by_row = o->fast && o->bits && ln_cpu_by_row(o->rung, &(ln_node){.in = {0, 1}}, (ln_value[2]){{.n_dims = 2}, {.dims = {d->size[0], d->size[1]}}});
    declared_make(&m, d, &how);
    const ln_value *w = &m.values[1];
    size_t bytes = d->op == LN_OP_LINEAR ? (size_t)(ln_pack_blocks(d->size[0]) * (o->bits ? ln_pack_block_bytes_q(w->enc, w->dtype, d->size[1]) : ln_pack_block_bytes(w->dtype, d->size[1])))
                                         : (size_t)m.pool_bytes;
    const bool tight = o->tight && d->op == LN_OP_LINEAR;
    if (tight) bytes = (size_t)ln_bf12_bytes(ln_pack_blocks(d->size[0]), d->size[1], 0);
    if (bytes + 64 > o->walk_bytes) exit((fprintf(stderr, "kernel_speed: -w: %s walks through %zu MB and more\n", d->name, ((bytes + 64) >> 20) + 1), 2));
    ln_kernel table[LN_OP_COUNT];
    ln_cpu_kernels(o->rung, table);
    static timed u;
    u.kernel = table[m.node.op];
    u.call = declared_call_of(&m);
    u.call.in[1].tight = tight;
    if (tight) fill_tight(walked, o->walk_bytes, d->size[0], d->size[1], bytes);
    else fill(walked, o->walk_bytes);
    size_t scratch = u.kernel.scratch ? u.kernel.scratch(&m.node, m.values, &m.bounds) : 64;
    scratch = (scratch + 63) / 64 * 64;
    char *room = declared_block(&m, scratch * (size_t)o->threads);
    for (int i = 0; i < o->threads; i++) u.scratch[i] = room + (size_t)i * scratch;
    float *units = how.by_row && d->op == LN_OP_LINEAR ? declared_numbers(&m, ln_pack_blocks(d->size[0]) * LN_PACK_OUTPUT_SCALES, false) : NULL;
    const size_t y_bytes = LN_MAX(o->y_bytes, (size_t)(rows * u.call.out[0].pitch) * sizeof(float));
    uint8_t *outputs = o->y_bytes ? declared_block(&m, y_bytes) : NULL;
    double s = best_of(&u, o->threads, &m, units, walked, o->walk_bytes, bytes, outputs, y_bytes);
    double read = d->op == LN_OP_KV_WRITE ? 0 : d->op == LN_OP_ATTN_PAGED && d->size[3] ? LN_MIN((double)bytes, (double)bytes * (double)(d->size[3] + rows) / (double)(how.depth + rows)) : (double)bytes;
    double g = (read > 0 ? read : m.bytes) / s * 1e-9, f = m.flops / s * 1e-9;
    printf("%-10s %-10s rows %4lld  %9.3f us  %7.1f GB/s", d->name, ln_ops[m.node.op].name, (long long)rows, s * 1e6, g);
    if (m.flops > 0) printf("  %8.1f GFLOP/s", f);
    if (read > 0 && o->gb > 0 && o->gflop > 0) printf("   %3.0f %% of %s", 100 * LN_MAX(g / o->gb, f / o->gflop), g / o->gb > f / o->gflop ? "memory" : "arithmetic");
    putchar('\n');
    fflush(stdout);
    declared_free(&m);
}

/* Which of the words, in their order, the value of a flag is; any other word ends the program. */
static int word(const char *flag, const char *text, int n, const char *const *words) {
    for (int i = 0; i < n; i++)
        if (!strcmp(text, words[i])) return i;
    exit((fprintf(stderr, "kernel_speed: %s %s: not a word it knows\n", flag, text), 2));
}

/* Numbers from the command line; -1 and a message for anything else. */
static int64_t number(const char *flag, const char *text) {
    uint64_t v;
    if (ln_parse_u64(text, strlen(text), &v) && v <= 1u << 30) return (int64_t)v;
    exit((fprintf(stderr, "kernel_speed: %s %s: expected a number\n", flag, text), 2));
}

/* OUTPUTSxCOLUMNS. */
static void shape(const char *flag, const char *text, int64_t *out) {
    const char *x = strchr(text, 'x');
    uint64_t v[2];
    if (x && ln_parse_u64(text, (size_t)(x - text), &v[0]) && ln_parse_u64(x + 1, strlen(x + 1), &v[1]) && v[0] && v[1] && v[0] <= 1u << 20 && v[1] <= LN_FIXED_ROW_COLS && v[1] % DECLARED_GROUP == 0) {
        out[0] = (int64_t)v[0], out[1] = (int64_t)v[1];
        return;
    }
    exit((fprintf(stderr, "kernel_speed: %s %s: expected OUTPUTSxCOLUMNS, columns a multiple of %d up to %d\n", flag, text, DECLARED_GROUP, LN_FIXED_ROW_COLS), 2));
}

static options parse(int argc, char **argv) {
    static const char *const dtypes[] = {"f32", "bf16", "f16", "tight"}, *const numerics[] = {"exact", "fast"};
    static const ln_dtype dtype_of[] = {LN_F32, LN_BF16, LN_F16, LN_BF16};
    const char *rungs[LN_ISA_COUNT];
    for (int r = 0; r < LN_ISA_COUNT; r++) rungs[r] = ln_cpu_isa_name((ln_isa)r);
    options o = {.threads = 1, .dtype = LN_BF16, .rows = -1, .depth = -1, .walk_bytes = (size_t)800 << 20};
    while (o.rung + 1 < LN_ISA_COUNT && ln_cpu_isa_here(o.rung + 1)) o.rung++;
    for (int i = 1; i < argc; i += 2) {
        const char *flag = argv[i], *v = argv[i + 1];
        if (!v) exit((fprintf(stderr, "kernel_speed: %s: a value is missing\n", flag), 2));
        switch (flag[0] == '-' && strlen(flag) == 2 ? flag[1] : 0) {
        case 'r': o.rung = (ln_isa)word(flag, v, LN_ISA_COUNT, rungs); break;
        case 'd': o.dtype = dtype_of[word(flag, v, (int)LN_COUNT(dtypes), dtypes)], o.tight = !strcmp(v, "tight"); break;
        case 'x': o.fast = word(flag, v, (int)LN_COUNT(numerics), numerics); break;
        case 's': o.only = v; break;
        case 't': o.threads = (int)number(flag, v); break;
        case 'n': o.rows = number(flag, v); break;
        case 'p': o.depth = number(flag, v); break;
        case 'q': o.bits = (int)number(flag, v); break;
        case 'w': o.walk_bytes = (size_t)number(flag, v) << 20; break;
        case 'm': shape(flag, v, o.shape); break;
        case 'y': o.y_bytes = (size_t)number(flag, v) << 20; break;
        case 'g': o.gb = (double)number(flag, v); break;
        case 'f': o.gflop = (double)number(flag, v); break;
        default: exit((fprintf(stderr, "kernel_speed: unknown flag %s\n", flag), 2));
        }
    }
    if (o.bits && !ln_enc_bits_ok(o.bits)) exit((fprintf(stderr, "kernel_speed: -q %d: no such width\n", o.bits), 2));
    if (o.tight && (o.bits || o.rung == LN_ISA_PLAIN)) exit((fputs("kernel_speed: -d tight: weights in bf16, on any rung but plain\n", stderr), 2));
    if (o.threads < 1 || o.threads > MOST_THREADS || !ln_cpu_isa_here(o.rung)) exit((fputs("no such rung or thread count here\n", stderr), 2));
    return o;
}

int main(int argc, char **argv) {
    static const int64_t usual[] = {1, 2, 4, 8, 16, 64, 512};
    options o = parse(argc, argv);
    const declared one = {"product", LN_OP_LINEAR, 2, {o.shape[0], o.shape[1]}}, *all = o.shape[0] ? &one : all_declared;
    const size_t n_all = o.shape[0] ? 1 : LN_COUNT(all_declared);
    bool found = !o.only;
    for (size_t i = 0; i < n_all; i++) found |= o.only && (!strcmp(o.only, all[i].name) || !strcmp(o.only, ln_ops[all[i].op].name));
    if (!found) return fprintf(stderr, "kernel_speed: -s %s: no such kernel or op\n", o.only), 2;
    if (ln_pool_reserve(o.threads, NULL) != LN_OK) return 1;
    static declared_call walk;
    uint8_t *walked = declared_block(&walk, o.walk_bytes);
    printf("%s, %s, %s, %d threads\n", ln_cpu_isa_name(o.rung), o.fast ? "fast" : "exact", o.dtype == LN_F32 ? "f32" : o.dtype == LN_F16 ? "f16" : o.tight ? "tight bf16" : "bf16", o.threads);
    for (size_t i = 0; i < n_all; i++) {
        const declared *d = &all[i];
        if (o.only && strcmp(o.only, d->name) != 0 && strcmp(o.only, ln_ops[d->op].name) != 0) continue;
        for (size_t n = 0; n < (o.rows < 0 ? LN_COUNT(usual) : 1); n++) {
            int64_t rows = o.rows < 0 ? usual[n] : o.rows;
            if (d->op != LN_OP_LINEAR && o.rows < 0 && rows != 1 && rows != 8 && rows != 512) continue;
            if (d->op == LN_OP_LINEAR && !o.shape[0] && d->size[0] > 100000 && rows > 16) continue; /* the head: rows whose logits are wanted */
            measure(&o, d, rows, walked);
        }
    }
    declared_free(&walk);
    return 0;
}
