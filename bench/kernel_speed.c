/* Measures the speed of single kernels at the sizes of published models, and its share of the ceilings that
 * bench/ceiling.c measures.
 *
 * The cases are those of tests/kernels/declared.def, which test_declared compares with the reference device.
 * Each call reads other weights or KV pages, from a block much larger than the caches, as the layers of a
 * model do. So products of few rows are bound by memory and products of many rows by arithmetic. Inputs and
 * outputs of row-wise ops stay in the caches, as in a step. Each line is the best of several passes.
 *
 * usage: kernel_speed [-r plain|avx2|avx512|amx|neon] [-t THREADS] [-x exact|fast] [-d bf16|f16|f32|bf12]
 *        [-q BITS] [-n ROWS] [-p DEPTH] [-s NAME] [-w MB] [-m OUTPUTSxCOLUMNS] [-y MB]
 *        [-g GB_PER_S] [-f GFLOP_PER_S]
 * -r  ISA level (the highest one of this machine)
 * -x  fast: activations are bf16, or integers for quantised weights, and KV pages bf16, as in fast numerics
 * -d  type of the weights; bf12: compressed bf16, which an engine uses on all ISA levels but plain
 * -q  weights in affine groups of 64 columns with BITS bits each, scales and biases of the type of -d
 * -n  rows (several usual counts)
 * -p  tokens that precede the rows of attention (0; 4096 for one row)
 * -s  only the kernels of that name or op
 * -w  size of the block of weights or pages (800); with a small one they stay in a cache
 * -m  one product of that shape, such as 6912x1152, instead of the declared cases
 * -y  size of a block that outputs are spread over. In a step, the outputs of a product have left the caches
 *     when the next layer writes to them, which can cost more time than the rest of the kernel
 * -g, -f  the ceilings of this machine for that many threads; with them the program prints shares */
#include "../src/base/thread_pool.h"
#include "../src/device/cpu/cpu.h"
#include "../src/device/cpu/pack/bf12.h"
#include "../tests/kernels/call_variant.h"
#include "../tests/kernels/declared.h"

#include <stdio.h>

enum { PASSES = 6, MOST_THREADS = 256 };

typedef struct options {
    ln_isa isa;
    int threads, bits;
    ln_dtype dtype;
    bool fast, bf12;
    int64_t rows, depth; /* -1: the defaults */
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

/* Seconds of one run of the kernel, the best of the passes. `walked`: a block of walk_bytes with the weights
 * or pages of consecutive layers, `bytes` for each layer. `outputs`: a block of y_bytes that consecutive runs
 * write to, or NULL: all runs write to the same place. */
static double best_of(timed *u, int threads, const declared_call *m, const float *units, uint8_t *walked,
                      size_t walk_bytes, size_t bytes, uint8_t *outputs, size_t y_bytes) {
    const bool product = m->node.op == LN_OP_LINEAR, pages = m->pool_bytes > 0;
    ln_affine affine = {.dtype = m->values[1].dtype,
                        .offset = m->values[1].dtype,
                        .code = ln_encoding_groups(m->values[1].enc),
                        .units = units};
    double cost = LN_MAX(m->flops / 2e9, ((double)bytes + m->bytes) / 400e6), best = 1e30;
    int reps = (int)LN_MAX(1.0, LN_MIN(1 / LN_MAX(cost, 1e-9), 2000.0));
    const size_t of_outputs = (size_t)(m->rows * u->call.out[0].pitch) * sizeof(float);
    size_t at = 0, at_y = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        double start = ln_now();
        for (int i = 0; i < reps; i++) {
            if (at + bytes > walk_bytes - 64) at = 0;
            affine.codes = walked + at; /* packed weights: any bytes are valid */
            if (product)
                u->call.in[1].data = !ln_encoding_is_dense(m->values[1].enc) ? (void *)&affine : walked + at;
            else if (pages) u->call.in[m->node.op == LN_OP_ATTN_PAGED].data = walked + at;
            if (m->node.op == LN_OP_KV_WRITE) u->call.out[0].data = walked + at;
            if (outputs && m->node.op != LN_OP_KV_WRITE) { /* KV_WRITE writes to the pages in `walked` */
                if (at_y + of_outputs > y_bytes) at_y = 0;
                u->call.out[0].data = outputs + at_y;
                at_y += of_outputs;
            }
            ln_pool_run(ln_pool_default(), threads, job, u);
            at += bytes;
        }
        best = LN_MIN(best, (ln_now() - start) / reps);
    }
    return best;
}

/* Fills a block with bytes that are small finite values in each of the types. */
static void fill(uint8_t *walked, size_t bytes) {
    for (size_t i = 0; i + 2 <= bytes; i += 2)
        walked[i] = (uint8_t)(i * 2654435761u >> 20), walked[i + 1] = (uint8_t)(0x38 + (i >> 1) % 3);
}
/* Fills the block with copies of one compressed bf16 weight, packed from bf16 values at the block's end. */
static void fill_bf12(uint8_t *walked, size_t walk_bytes, int64_t D, int64_t C, size_t bytes) {
    _Atomic int64_t n_full = 0;
    const uint8_t *rows = walked + walk_bytes - (size_t)(2 * D * C);
    fill(walked, walk_bytes);
    if (bytes + (size_t)(2 * D * C) > walk_bytes)
        exit((fputs("kernel_speed: -w: two such weights need more\n", stderr), 2));
    ln_bf12_init(walked, D, C);
    if (!ln_bf12_pack(walked, rows, D, C, 0, ln_pack_blocks(D), &n_full) || n_full)
        exit((fputs("kernel_speed: random weights that cannot be bf12\n", stderr), 1));
    for (size_t at = bytes; at + bytes <= walk_bytes; at += bytes) memcpy(walked + at, walked, bytes);
}

static void measure(const options *o, const declared *d, int64_t rows, uint8_t *walked) {
    declared_call m;
    declared_how how = {rows, o->depth >= 0 ? o->depth : rows == 1 ? 4096 : 0, o->dtype, o->bits, o->fast,
                        false};
    how.per_row = o->fast && o->bits && ln_cpu_columns_per_row(o->isa, d->size[1]);
    declared_make(&m, d, &how);
    const ln_pvalue *w = &m.values[1];
    size_t bytes =
        d->op == LN_OP_LINEAR
            ? (size_t)(ln_pack_blocks(d->size[0]) *
                       (o->bits ? ln_pack_block_bytes_q(ln_encoding_groups(w->enc),
                                                        (ln_pack_units){(ln_dtype)w->dtype, 0}, d->size[1])
                                : ln_pack_block_bytes(w->dtype, d->size[1])))
            : (size_t)m.pool_bytes;
    const bool bf12 = o->bf12 && d->op == LN_OP_LINEAR;
    if (bf12) bytes = (size_t)ln_bf12_bytes(ln_pack_blocks(d->size[0]), d->size[1], 0);
    if (bytes + 64 > o->walk_bytes)
        exit((fprintf(stderr, "kernel_speed: -w: %s walks through %zu MB and more\n", d->name,
                      ((bytes + 64) >> 20) + 1),
              2));
    ln_kernel_table table;
    ln_cpu_kernels(o->isa, &table);
    static timed u;
    u.call = declared_call_of(&m);
    u.kernel = table.of[m.node.op][call_variant(&u.call)];
    u.call.in[1].bf12 = bf12;
    if (bf12) fill_bf12(walked, o->walk_bytes, d->size[0], d->size[1], bytes);
    else fill(walked, o->walk_bytes);
    const ln_program program = {.values = m.values, .value_size = sizeof *m.values};
    size_t scratch = u.kernel.scratch ? u.kernel.scratch(&program, &m.node, &m.bounds) : 64;
    scratch = (scratch + 63) / 64 * 64;
    char *buffer = declared_block(&m, scratch * (size_t)o->threads);
    for (int i = 0; i < o->threads; i++) u.scratch[i] = buffer + (size_t)i * scratch;
    float *units = how.per_row && d->op == LN_OP_LINEAR
                       ? declared_numbers(&m, ln_pack_blocks(d->size[0]) * LN_PACK_OUTPUT_SCALES, false)
                       : NULL;
    const size_t y_bytes = LN_MAX(o->y_bytes, (size_t)(rows * u.call.out[0].pitch) * sizeof(float));
    uint8_t *outputs = o->y_bytes ? declared_block(&m, y_bytes) : NULL;
    double s = best_of(&u, o->threads, &m, units, walked, o->walk_bytes, bytes, outputs, y_bytes);
    double read =
        d->op == LN_OP_KV_WRITE ? 0
        : d->op == LN_OP_ATTN_PAGED && d->size[3]
            ? LN_MIN((double)bytes, (double)bytes * (double)(d->size[3] + rows) / (double)(how.depth + rows))
            : (double)bytes;
    double g = (read > 0 ? read : m.bytes) / s * 1e-9, f = m.flops / s * 1e-9;
    printf("%-10s %-10s rows %4lld  %9.3f us  %7.1f GB/s", d->name, ln_op_name(m.node.op), (long long)rows,
           s * 1e6, g);
    if (m.flops > 0) printf("  %8.1f GFLOP/s", f);
    if (read > 0 && o->gb > 0 && o->gflop > 0)
        printf("   %3.0f %% of %s", 100 * LN_MAX(g / o->gb, f / o->gflop),
               g / o->gb > f / o->gflop ? "memory" : "arithmetic");
    putchar('\n');
    fflush(stdout);
    declared_free(&m);
}

/* The index in `words` of the value of a flag; any other value ends the program with status 2. */
static int word(const char *flag, const char *text, int n, const char *const *words) {
    for (int i = 0; i < n; i++)
        if (!strcmp(text, words[i])) return i;
    exit((fprintf(stderr, "kernel_speed: %s %s: not a word it knows\n", flag, text), 2));
}

/* The value of a flag as an integer of at most 2^30; anything else ends the program with status 2. */
static int64_t number(const char *flag, const char *text) {
    uint64_t v;
    if (ln_parse_u64(text, strlen(text), &v) && v <= 1u << 30) return (int64_t)v;
    exit((fprintf(stderr, "kernel_speed: %s %s: expected a number\n", flag, text), 2));
}

/* The value of a flag as OUTPUTSxCOLUMNS, into out[0] and out[1]; anything else ends the program. */
static void shape(const char *flag, const char *text, int64_t *out) {
    const char *x = strchr(text, 'x');
    uint64_t v[2];
    if (x && ln_parse_u64(text, (size_t)(x - text), &v[0]) && ln_parse_u64(x + 1, strlen(x + 1), &v[1]) &&
        v[0] && v[1] && v[0] <= 1u << 20 && v[1] <= LN_I8PAIR_MAX_COLS && v[1] % DECLARED_GROUP == 0) {
        out[0] = (int64_t)v[0], out[1] = (int64_t)v[1];
        return;
    }
    exit((fprintf(stderr,
                  "kernel_speed: %s %s: expected OUTPUTSxCOLUMNS, columns a multiple of %d up to %d\n", flag,
                  text, DECLARED_GROUP, LN_I8PAIR_MAX_COLS),
          2));
}

static options parse(int argc, char **argv) {
    static const char *const dtypes[] = {"f32", "bf16", "f16", "bf12"}, *const numerics[] = {"exact", "fas"
                                                                                                      "t"};
    static const ln_dtype dtype_of[] = {LN_F32, LN_BF16, LN_F16, LN_BF16};
    const char *isas[LN_ISA_COUNT];
    for (int r = 0; r < LN_ISA_COUNT; r++) isas[r] = ln_cpu_isa_name((ln_isa)r);
    options o = {.threads = 1, .dtype = LN_BF16, .rows = -1, .depth = -1, .walk_bytes = (size_t)800 << 20};
    while (o.isa + 1 < LN_ISA_COUNT && ln_cpu_isa_here(o.isa + 1)) o.isa++;
    for (int i = 1; i < argc; i += 2) {
        const char *flag = argv[i], *v = argv[i + 1];
        if (!v) exit((fprintf(stderr, "kernel_speed: %s: a value is missing\n", flag), 2));
        switch (flag[0] == '-' && strlen(flag) == 2 ? flag[1] : 0) {
        case 'r': o.isa = (ln_isa)word(flag, v, LN_ISA_COUNT, isas); break;
        case 'd':
            o.dtype = dtype_of[word(flag, v, (int)LN_COUNT(dtypes), dtypes)], o.bf12 = !strcmp(v, "bf12");
            break;
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
    if (o.bits && !ln_affine_bits_ok(o.bits))
        exit((fprintf(stderr, "kernel_speed: -q %d: no such width\n", o.bits), 2));
    if (o.bf12 && (o.bits || o.isa == LN_ISA_PLAIN))
        exit((fputs("kernel_speed: -d bf12: weights in bf16, on any ISA level but plain\n", stderr), 2));
    if (o.threads < 1 || o.threads > MOST_THREADS || !ln_cpu_isa_here(o.isa))
        exit((fputs("no such ISA level or thread count here\n", stderr), 2));
    return o;
}

int main(int argc, char **argv) {
    static const int64_t usual[] = {1, 2, 4, 8, 16, 64, 512};
    options o = parse(argc, argv);
    const declared one = {"product", LN_OP_LINEAR, 2, {o.shape[0], o.shape[1]}},
                   *all = o.shape[0] ? &one : all_declared;
    const size_t n_all = o.shape[0] ? 1 : LN_COUNT(all_declared);
    bool found = !o.only;
    for (size_t i = 0; i < n_all; i++)
        found |= o.only && (!strcmp(o.only, all[i].name) || !strcmp(o.only, ln_op_name(all[i].op)));
    if (!found) return fprintf(stderr, "kernel_speed: -s %s: no such kernel or op\n", o.only), 2;
    if (ln_pool_reserve(ln_pool_default(), o.threads, NULL) != LN_OK) return 1;
    static declared_call walk;
    uint8_t *walked = declared_block(&walk, o.walk_bytes);
    printf("%s, %s, %s, %d threads\n", ln_cpu_isa_name(o.isa), o.fast ? "fast" : "exact",
           o.dtype == LN_F32   ? "f32"
           : o.dtype == LN_F16 ? "f16"
           : o.bf12            ? "bf12 bf16"
                               : "bf16",
           o.threads);
    for (size_t i = 0; i < n_all; i++) {
        const declared *d = &all[i];
        if (o.only && strcmp(o.only, d->name) != 0 && strcmp(o.only, ln_op_name(d->op)) != 0) continue;
        for (size_t n = 0; n < (o.rows < 0 ? LN_COUNT(usual) : 1); n++) {
            int64_t rows = o.rows < 0 ? usual[n] : o.rows;
            if (d->op != LN_OP_LINEAR && o.rows < 0 && rows != 1 && rows != 8 && rows != 512) continue;
            if (d->op == LN_OP_LINEAR && !o.shape[0] && d->size[0] > 100000 && rows > 16)
                continue; /* the output layer runs only for rows whose logits are wanted */
            measure(&o, d, rows, walked);
        }
    }
    declared_free(&walk);
    return 0;
}
