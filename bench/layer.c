/* Compares variants of the int8-pair products in interleaved runs, call by call, within one process: q, then
 * gate, up and GELU (fused), TO_I8PAIR of the result, and down, of one layer in the shape of Gemma3-1B at 4
 * bits, 512 rows, 2 threads. Times of whole prompts differ by a tenth between processes and need minutes;
 * this program resolves about one percent in ten seconds. It needs AMX.
 *
 * A variant is a shared object that bench/form.sh builds from a source tree; its structs must be those of
 * the tree that this program is built from. Each round runs all variants, in another order, on the weights
 * of one of 8 layers chosen at random, so that neither caches nor pages favour a variant. The program
 * prints, for each variant and product, the median time in ms and the median of the ratios to the first
 * form's time in the same round. At the end it reports forms whose output of down differs in any bit from
 * that of the first form run.
 *
 * usage: layer ROUNDS [rows:|y:|apart:]FORM.so ...
 * rows:   all values row-major, for forms from before decision 016
 * y:      the output of gate and up in row panels, the int8 digits row-major
 * apart:  both in row panels, the digits in a buffer of their own instead of in place */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../src/base/thread_pool.h"
#include "../src/device/cpu/cpu.h"
#include "../src/device/cpu/pack/pack.h"
#include "../src/ops/ops.h"

enum {
    ROWS = 512,
    WIDTH = 1152,
    FFN = 6912,
    HEADS = 1024,
    LAYERS = 8,
    THREADS = 2,
    FORMS = 16,
    ROUNDS_MOST = 4000,
    SCRATCH = 24 << 20,
    HUGE_PAGE = 2 << 20
};
enum { GATED, FIXED, DOWN, Q, WORKS };
static const char *const names[WORKS] = {"gate, up, gelu", "convert", "down", "q"};

typedef struct form {
    const char *name;
    ln_kernel linear, gated, convert;
    bool y_panels, limb_panels, in_place;
    double seconds[WORKS][ROUNDS_MOST];
} form;
static form forms[FORMS];
static void *scratch[THREADS];

static uint64_t state = 88172645463325252u;
static uint32_t any(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 16);
}
static float gaussian(void) {
    float sum = 0;
    for (int i = 0; i < 12; i++) sum += (float)(any() & 0xffff) / 65536;
    return sum - 6;
}
/* Zeroed memory on huge pages, like an engine's; never freed. Ends the program when memory is short. */
static void *memory(int64_t bytes) {
    char *p =
        mmap(NULL, (size_t)bytes + 2 * HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "layer: no memory for %lld bytes\n", (long long)bytes);
        exit(1);
    }
    p += -(uintptr_t)p % HUGE_PAGE;
    (void)madvise(p, (size_t)bytes, MADV_HUGEPAGE);
    memset(p, 0, (size_t)bytes);
    return p;
}

typedef void coefficients_fn(uint8_t *out, int64_t pitch, const float *numbers, int64_t n, int bits,
                             const float *units);
/* Random weights of D outputs and C columns, 4 bits in groups of 64, packed as in fast numerics. */
static ln_affine weight(int64_t D, int64_t C, coefficients_fn *coefficients) {
    const ln_groups enc = {4, 64};
    const int64_t blocks = D / LN_PACK_NR, block = ln_pack_block_bytes_q(enc, (ln_pack_units){LN_BF16, 0}, C),
                  pitch = ln_pack_group_bytes_q(enc, (ln_pack_units){LN_BF16, 0}), words = 64 * (64 * 4 / 32);
    const float most = 0.02f * 8 * 1.3f, unit = most / ln_i8pair_weight_max(4);
    uint8_t *w = memory(blocks * block);
    float *units = memory(blocks * LN_PACK_OUTPUT_SCALES * (int64_t)sizeof *units);
    for (int64_t b = 0; b < blocks; b++) {
        for (int i = 0; i < LN_PACK_OUTPUT_SCALES; i++)
            units[b * LN_PACK_OUTPUT_SCALES + i] = i < LN_PACK_NR ? 1 / unit : 30 * unit;
        for (int64_t g = 0; g < C / 64; g++) {
            uint8_t *at = w + b * block + g * pitch;
            float numbers[2 * LN_PACK_NR];
            for (int64_t i = 0; i < words; i += 4) {
                const uint32_t codes = any() ^ any() << 13;
                memcpy(at + i, &codes, sizeof codes);
            }
            for (int64_t i = 0; i < LN_PACK_NR; i++) {
                const float s = 0.02f * (0.7f + 0.3f * (float)(any() & 255) / 255);
                numbers[i] = s, numbers[LN_PACK_NR + i] = -7.5f * s;
            }
            coefficients(at + words, pitch, numbers, 1, 4, units + b * LN_PACK_OUTPUT_SCALES);
        }
    }
    return (ln_affine){
        .codes = w, .units = units, .dtype = LN_BF16, .offset = LN_BF16, .code = enc, .has_constants = true};
}

typedef struct work {
    const ln_kernel *kernel;
    ln_call call;
} work;
static void share(void *user, int thread, int n_threads) {
    ln_call c = ((work *)user)->call;
    c.thread = thread;
    c.n_threads = n_threads;
    c.scratch = scratch[thread];
    ((work *)user)->kernel->fn(&c);
}
static double timed(const ln_kernel *kernel, const ln_pnode *node, ln_arg x, ln_affine *w, ln_affine *second,
                    ln_arg y) {
    work j = {.kernel = kernel, .call = {.node = node, .in = {x}, .out = {y}}};
    if (w)
        j.call.in[1] = (ln_arg){.data = w, .rows = y.cols, .cols = x.cols, .pitch = x.cols, .dtype = LN_BF16};
    if (second)
        j.call.in[2] =
            (ln_arg){.data = second, .rows = y.cols, .cols = x.cols, .pitch = x.cols, .dtype = LN_BF16};
    const double start = ln_now();
    ln_pool_run(ln_pool_default(), THREADS, share, &j);
    return ln_now() - start;
}

static const ln_format pairs = {LN_FORMAT_I8PAIR, 4, 64};
static int64_t pitch_of(int64_t cols, bool fixed) {
    return ln_cpu_pitch(fixed ? pairs : (ln_format){0}, LN_LAYOUT_ROWS, cols);
}
static ln_arg rows_of(int64_t cols, bool fixed, int64_t *at) {
    const ln_arg a = {.rows = ROWS, .cols = cols, .pitch = pitch_of(cols, fixed)};
    *at += ROWS * a.pitch;
    return a;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(const double *from, int n) {
    static double sorted[ROUNDS_MOST];
    memcpy(sorted, from, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    return sorted[n / 2];
}

static coefficients_fn *load(form *f, const char *arg) {
    f->y_panels = strncmp(arg, "rows:", 5) != 0;
    f->limb_panels = f->y_panels && strncmp(arg, "y:", 2) != 0;
    f->in_place = f->limb_panels && strncmp(arg, "apart:", 6) != 0;
    f->name = strchr(arg, ':') ? strchr(arg, ':') + 1 : arg;
    void *object = dlopen(f->name, RTLD_NOW | RTLD_LOCAL);
    void (*kernels)(ln_kernel *, ln_kernel *, ln_kernel *) = NULL;
    coefficients_fn *coefficients = NULL;
    if (object) {
        *(void **)&kernels = dlsym(object, "form_kernels");
        *(void **)&coefficients = dlsym(object, "ln_cpu_i8pair_constants_amx");
    }
    if (!kernels || !coefficients) {
        fprintf(stderr, "layer: %s: %s\n", f->name,
                object ? "no form: make one with bench/form.sh" : dlerror());
        exit(2);
    }
    kernels(&f->linear, &f->gated, &f->convert);
    return coefficients;
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 0, n = argc - 2;
    ln_error err = {0};
    if (rounds < 1 || rounds > ROUNDS_MOST || n < 1 || n > FORMS) {
        fprintf(stderr, "usage: layer ROUNDS [rows:|y:|apart:]FORM.so ...  (up to %d forms and %d rounds)\n",
                FORMS, ROUNDS_MOST);
        return 2;
    }
    if (!ln_cpu_isa_here(LN_ISA_AMX)) {
        fprintf(stderr, "layer: this machine has no AMX\n");
        return 3;
    }
    if (ln_pool_reserve(ln_pool_default(), THREADS, &err) != LN_OK) {
        fprintf(stderr, "layer: %s\n", err.message);
        return 1;
    }
    coefficients_fn *coefficients = NULL;
    for (int i = 0; i < n; i++) coefficients = load(&forms[i], argv[i + 2]);
    for (int i = 0; i < THREADS; i++) scratch[i] = memory(SCRATCH);
    static ln_affine gate[LAYERS], up[LAYERS], down[LAYERS], q[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        gate[i] = weight(FFN, WIDTH, coefficients), up[i] = weight(FFN, WIDTH, coefficients);
        down[i] = weight(WIDTH, FFN, coefficients), q[i] = weight(HEADS, WIDTH, coefficients);
    }
    int64_t numbers = 0; /* floats; the values follow each other in one block, as in an engine */
    int64_t at[5];
    ln_arg x, made, digits, out, queries;
    at[0] = numbers, x = rows_of(WIDTH, true, &numbers);
    at[1] = numbers, made = rows_of(FFN, false, &numbers);
    at[2] = numbers, digits = rows_of(FFN, true, &numbers);
    at[3] = numbers, out = rows_of(WIDTH, false, &numbers);
    at[4] = numbers, queries = rows_of(HEADS, false, &numbers);
    float *block = memory(numbers * (int64_t)sizeof *block), row[WIDTH], *first = NULL;
    x.data = block + at[0], made.data = block + at[1], digits.data = block + at[2], out.data = block + at[3],
    queries.data = block + at[4];
    for (int64_t r = 0; r < ROWS; r++) {
        for (int c = 0; c < WIDTH; c++) row[c] = gaussian();
        ln_i8pair_encode(row, WIDTH, 4, (float *)x.data + r * x.pitch);
    }
    const ln_pnode product = {.op = LN_OP_LINEAR, .n_in = 2, .n_out = 1, .in = {0, 1}},
                   pair = {.op = LN_OP_LINEAR_GATED,
                           .n_in = 3,
                           .n_out = 1,
                           .in = {0, 1, 2},
                           .p.gate = {LN_ACT_GELU_TANH}};
    const ln_pnode fixed = {.op = LN_OP_CONVERT, .n_in = 1, .n_out = 1, .p.convert = {pairs}};
    for (int r = 0; r <= rounds; r++) /* the last round only compares bits */
        for (int k = 0; k < n; k++) {
            const int i = (k + r) % n, layer = r < rounds ? (int)(any() % LAYERS) : 0,
                      to = LN_MIN(r, rounds - 1);
            form *f = &forms[i];
            made.layout = f->y_panels ? LN_CPU_PANELS : LN_LAYOUT_ROWS;
            ln_arg v = digits;
            if (f->in_place) v = made;
            v.layout = f->limb_panels ? LN_CPU_PANELS : LN_LAYOUT_ROWS;
            const double t[WORKS] = {[Q] = timed(&f->linear, &product, x, &q[layer], NULL, queries),
                                     [GATED] = timed(&f->gated, &pair, x, &gate[layer], &up[layer], made),
                                     [FIXED] = timed(&f->convert, &fixed, made, NULL, NULL, v),
                                     [DOWN] = timed(&f->linear, &product, v, &down[layer], NULL, out)};
            for (int j = 0; j < WORKS && r < rounds; j++) f->seconds[j][to] = t[j];
            if (r < rounds) continue;
            const size_t bytes = (size_t)(ROWS * out.pitch) * sizeof *first;
            if (!first && (first = malloc(bytes))) memcpy(first, out.data, bytes);
            if (first && memcmp(first, out.data, bytes) != 0)
                printf("%s: other bits than the first to be asked, %s\n", f->name, forms[rounds % n].name);
        }
    printf("%-40s", "");
    for (int j = 0; j < WORKS; j++) printf("%20s", names[j]);
    printf("\n");
    for (int i = 0; i < n; i++) {
        printf("%-40s", forms[i].name);
        for (int j = 0; j < WORKS; j++) {
            double ratio[ROUNDS_MOST];
            for (int r = 0; r < rounds; r++) ratio[r] = forms[i].seconds[j][r] / forms[0].seconds[j][r];
            printf("%10.3f ms x%.3f ", median(forms[i].seconds[j], rounds) * 1e3, median(ratio, rounds));
        }
        printf("\n");
    }
    free(first);
    return 0;
}
