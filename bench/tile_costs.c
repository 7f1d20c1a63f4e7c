/* Measures the cost of AMX tile instructions, alone and overlapped with AVX-512 instructions. The layout of
 * the AMX matrix products is based on these figures.
 *
 * A step is the work for a group of 64 columns, 16 rows and 16 outputs of a product that scales its sums
 * group by group (docs/decisions/011; 013 says why products no longer do): the tile products of both int8
 * digits (or of both representations of a code, into one sum), the loads of their tiles, the stores of the
 * sums, and the vector instructions that scale and add the sums. Each line leaves some of this out or orders
 * it differently. The lines are measured in interleaved runs, because other load on the host uses the tile
 * unit too. The program prints the median and the best time of a step in ns. Then it prints which processors
 * slow each other's tile products down, because they share a tile unit: such a pair must not be measured
 * together. On a machine with AVX-512 and without AMX, it measures the vector instructions alone.
 *
 * usage: tile_costs [ROUNDS [PROCESSOR]]   one thread, on that processor
 *        tile_costs quiet N                finds idle processors
 *
 * `quiet` prints the N allowed processors that are fastest when they run at the same time, and the time in ns
 * of a step of "whole rows" on the slowest of them, the worst of five runs: "3,7 19.2". A step of whole rows
 * has three tile products whose tiles come from L1 and L2; tile loads show that other software uses the SMT
 * sibling of a core, tile products alone do not (docs/performance.md). Each run takes a few milliseconds;
 * bench/peers runs `quiet` before and after its measurements. */
#include <stdio.h>

#include "../src/base/median.h"
#include "../src/base/base.h"

#ifdef __AVX512F__
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "../src/device/cpu/cpu.h"
#include "../src/device/cpu/simd/simd_avx512.h"
#include "../src/device/cpu/simd/simd_amx.h"
#include "../src/inspect/inspect.h"

enum {
    SIDE = 16,
    LINE = 64,
    TILE = 1024,
    GROUPS = 16,
    B_BYTES = 512 << 10,
    STEPS = 4096,
    ROUNDS_MOST = 1000
};
/* The parts of a step, as bits of `what`. */
enum {
    PRODUCTS = 1,
    A_LOADS = 2,
    B_LOADS = 4,
    B_ONCE = 8,
    STORES = 16,
    FINISH = 32,
    ONE_SUM = 64,
    SPREAD = 128,
    LATE = 256,
    ZEROS = 512,
    B_NEAR = 1024,
    BEFORE = 2048,
    TIMES = 4096 /* the bits from here on count units of 16 vector operations */
};

/* The operands of the steps: A tiles of GROUPS groups (in L1), B tiles (in L2), the sums of eight steps, and
 * the scales, biases and row terms that the vector instructions apply to the sums. */
static struct {
    _Alignas(64) uint8_t a[GROUPS * 2 * TILE], b[B_BYTES + 2 * TILE], sums[8 * 2 * TILE],
        numbers[GROUPS * 64];
    float terms[GROUPS * 2 * SIDE], y[4 * SIDE * SIDE];
} buf;

/* The epilogue of a group for four rows: combines the sums of both digits, scales them, adds them to y. */
INLINE void finish(const int what, int64_t step, int quarter, vf *y) {
    const uint8_t *sums = buf.sums + step % 8 * 2 * TILE;
    const float *terms = buf.terms + step % GROUPS * 2 * SIDE;
    const vf scale = vf_load_bf16((const uint16_t *)(const void *)(buf.numbers + step % GROUPS * 64));
    const vf bias = vf_load_bf16((const uint16_t *)(const void *)(buf.numbers + step % GROUPS * 64 + 32));
    __asm__("" : "+r"(sums));
    __asm__("" : "+r"(terms));
#pragma GCC unroll 4
    for (int r = 4 * quarter; r < 4 * quarter + 4; r++) {
        vi p = vi_load(sums + r * LINE);
        if (!(what & ONE_SUM)) p = vi_add(vi_shl32(p, 8), vi_load(sums + TILE + r * LINE));
        y[r] = vf_fma(bias, vf_set1(terms[SIDE + r]),
                      vf_fma(scale, vf_mul(vf_from_i32(p), vf_set1(terms[r])), y[r]));
    }
}

#define QUARTER(q) \
    if (what & FINISH && what & SPREAD && i >= lag) finish(what, i - lag, q, y);
/* Step i with its sums in tile registers h and l (ONE_SUM: only h); was_h, was_l: those of step i - 1. */
#define STEP(h, l, was_h, was_l)                                                                             \
    {                                                                                                        \
        const uint8_t *a = buf.a + i % GROUPS * 2 * TILE,                                                   \
                      *b = buf.b + (what & B_NEAR ? i % 4 : i) * (what & ONE_SUM ? 2 : 1) * TILE % B_BYTES; \
        uint8_t *sums = buf.sums + i % 8 * 2 * TILE;                                                        \
        if (what & ZEROS) {                                                                                  \
            tile_zero(h);                                                                                    \
            if (!(what & ONE_SUM)) tile_zero(l);                                                             \
        }                                                                                                    \
        if (what & B_LOADS && what & B_ONCE) tile_load_t1(6, b, LINE);                                       \
        if (what & B_LOADS && !(what & B_ONCE)) tile_load(6, b, LINE);                                       \
        if (what & A_LOADS) tile_load(4, a, LINE);                                                           \
        QUARTER(0)                                                                                           \
        if (what & PRODUCTS) tile_dpbsud(h, 4, 6);                                                           \
        if (what & B_LOADS && what & ONE_SUM) tile_load_t1(7, b + TILE, LINE);                               \
        if (what & A_LOADS) tile_load(5, a + TILE, LINE);                                                    \
        QUARTER(1)                                                                                           \
        if (what & PRODUCTS && what & ONE_SUM) tile_dpbuud(h, 5, 7);                                         \
        if (what & PRODUCTS && !(what & ONE_SUM)) tile_dpbuud(l, 5, 6);                                      \
        QUARTER(2)                                                                                           \
        if (what & STORES && !(what & BEFORE)) tile_store(h, sums, LINE);                                    \
        if (what & STORES && !(what & BEFORE) && !(what & ONE_SUM)) tile_store(l, sums + TILE, LINE);        \
        if (what & STORES && what & BEFORE) tile_store(was_h, sums, LINE);                                   \
        if (what & STORES && what & BEFORE && !(what & ONE_SUM)) tile_store(was_l, sums + TILE, LINE);       \
        QUARTER(3)                                                                                           \
        if (what & FINISH && !(what & SPREAD) && i >= lag) {                                                 \
            finish(what, i - lag, 0, y);                                                                     \
            finish(what, i - lag, 1, y);                                                                     \
            finish(what, i - lag, 2, y);                                                                     \
            finish(what, i - lag, 3, y);                                                                     \
        }                                                                                                    \
    }

INLINE void steps(const int what, int64_t n) {
    const int64_t lag = what & LATE ? 3 : 1; /* steps between a store and the vector loads of it */
    vf y[SIDE];
#pragma GCC unroll 16
    for (int r = 0; r < SIDE; r++) y[r] = vf_load(buf.y + r * SIDE);
    for (int64_t i = 0; i < n; i += 2) {
        STEP(0, 1, 2, 3)
        i++;
        STEP(2, 3, 0, 1)
        i--;
    }
    if (!(what & FINISH))
        return; /* nothing to store; two threads may run this at once, and buf.y is shared */
#pragma GCC unroll 16
    for (int r = 0; r < SIDE; r++) vf_store(buf.y + r * SIDE, y[r]);
}

/* A step of two tile products (with PRODUCTS) and what / TIMES times 16 vector operations on registers. */
INLINE void beside(const int what, int64_t n) {
    const vf factor = vf_load(buf.y);
    vf y[SIDE];
#pragma GCC unroll 16
    for (int r = 0; r < SIDE; r++) y[r] = vf_load(buf.y + r * SIDE);
    for (int64_t i = 0; i < n; i += 2) {
        if (what & PRODUCTS) {
            tile_dpbsud(0, 4, 6);
            tile_dpbuud(1, 5, 7);
            tile_dpbsud(2, 4, 7);
            tile_dpbuud(3, 5, 6);
        }
#pragma GCC unroll 8
        for (int k = 0; k < 2 * (what / TIMES); k++)
#pragma GCC unroll 16
            for (int r = 0; r < SIDE; r++) y[r] = vf_fma(y[r], factor, factor);
    }
#pragma GCC unroll 16
    for (int r = 0; r < SIDE; r++) vf_store(buf.y + r * SIDE, y[r]);
}

/* A 2 x 2 register blocking: two row tiles times two blocks of outputs, one sum each. A turn is four steps
 * and loads two tiles for each step instead of four. y does not fit into registers and stays in L1;
 * square_rows is its epilogue, which finishes two groups of an earlier turn and uses the row terms for both
 * blocks. */
INLINE void square_rows(int64_t turn, int from, int to) {
    const int64_t last = turn / 2 - 1, tile = turn % 2; /* each turn finishes one of the two row tiles */
    const uint8_t *sums = buf.sums + last % 2 * 8 * TILE + tile * 2 * TILE;
    const float *terms = buf.terms + last * 4 % GROUPS * 2 * SIDE;
    vf scale[2][2], bias[2][2];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const uint16_t *numbers = (const uint16_t *)(const void *)(buf.numbers + i * 64);
        scale[i / 2][i % 2] = vf_load_bf16(numbers), bias[i / 2][i % 2] = vf_load_bf16(numbers + SIDE);
    }
    for (int r = from; r < to; r++) {
        float *y = buf.y + tile * 2 * SIDE * SIDE + r * SIDE;
#pragma GCC unroll 2
        for (int b = 0; b < 2; b++) {
            vf v = vf_load(y + b * SIDE * SIDE);
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++) {
                const vf p = vf_mul(vf_from_i32(vi_load(sums + (g * 4 + b) * TILE + r * LINE)),
                                    vf_set1(terms[g * 2 * SIDE + r]));
                v = vf_fma(bias[g][b], vf_set1(terms[(g * 2 + 1) * SIDE + r]), vf_fma(scale[g][b], p, v));
            }
            vf_store(y + b * SIDE * SIDE, v);
        }
    }
}
#define SOME_ROWS(q) \
    if (what & FINISH && what & SPREAD && turn > 1) square_rows(turn, 4 * (q), 4 * (q) + 4);
INLINE void square(const int what, int64_t n) {
    for (int64_t turn = 0; turn < n / 4; turn++) {
        const uint8_t *a = buf.a + turn * 4 % GROUPS * 2 * TILE, *b = buf.b + turn * 4 * TILE % B_BYTES;
        uint8_t *sums = buf.sums + turn % 4 * 4 * TILE;
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
        tile_load_t1(6, b, LINE);
        tile_load(4, a, LINE);
        tile_dpbsud(0, 4, 6);
        tile_load_t1(7, b + TILE, LINE);
        tile_dpbsud(1, 4, 7);
        SOME_ROWS(0)
        tile_load(5, a + TILE, LINE);
        tile_dpbsud(2, 5, 6);
        tile_dpbsud(3, 5, 7);
        SOME_ROWS(1)
        tile_load_t1(6, b + 2 * TILE, LINE);
        tile_load(4, a + 2 * TILE, LINE);
        tile_dpbuud(0, 4, 6);
        tile_load_t1(7, b + 3 * TILE, LINE);
        tile_dpbuud(1, 4, 7);
        SOME_ROWS(2)
        tile_load(5, a + 3 * TILE, LINE);
        tile_dpbuud(2, 5, 6);
        tile_dpbuud(3, 5, 7);
        SOME_ROWS(3)
        tile_store(0, sums, LINE);
        tile_store(1, sums + TILE, LINE);
        tile_store(2, sums + 2 * TILE, LINE);
        tile_store(3, sums + 3 * TILE, LINE);
        if (what & FINISH && !(what & SPREAD) && turn > 1) square_rows(turn, 0, SIDE);
    }
}

/* The loop of a product with one scale a row (device/cpu/gemm/gemm_i8pair_amx.inc.h): a row tile times two
 * blocks of outputs, three tile products a step, no epilogue between groups. The kernel multiplies two row
 * tiles by one block instead, which loads as many tiles, but more of A and fewer of B. Here the B tiles of
 * both digits stay in L1, and A tiles come from L2. */
INLINE void whole_rows(const int what, int64_t n) {
    for (int64_t i = 0; i < n; i += 2) {
        const uint8_t *a = buf.b + i * TILE % B_BYTES, *b = buf.a + i / 2 % (GROUPS / 2) * 4 * TILE;
        if (what & A_LOADS) tile_load_t1(4, a, LINE);
        tile_load(6, b, LINE);
        tile_dpbsud(0, 4, 6);
        tile_load(7, b + TILE, LINE);
        tile_dpbsud(2, 4, 7);
        if (what & A_LOADS) tile_load_t1(5, a + TILE, LINE);
        tile_dpbsud(1, 5, 6);
        tile_dpbsud(3, 5, 7);
        tile_load(6, b + 2 * TILE, LINE);
        tile_dpbsud(1, 4, 6);
        tile_load(7, b + 3 * TILE, LINE);
        tile_dpbsud(3, 4, 7);
    }
}

#define KERNEL (ZEROS | PRODUCTS | A_LOADS | B_LOADS | B_ONCE | STORES | FINISH)
#define LINES(ROW)                                                                                         \
    ROW(products, "two products, operands in registers", steps, PRODUCTS)                                  \
    ROW(zeroed, "the same, sums zeroed", steps, PRODUCTS | ZEROS)                                          \
    ROW(a_loads, "two A tiles loaded from L1", steps, A_LOADS)                                             \
    ROW(b_near, "a B tile loaded from L1", steps, B_LOADS | B_NEAR)                                        \
    ROW(b_load, "a B tile loaded from L2", steps, B_LOADS)                                                 \
    ROW(b_once, "the same by tileloaddt1", steps, B_LOADS | B_ONCE)                                        \
    ROW(stores, "two sums stored", steps, STORES)                                                          \
    ROW(finish_two, "two sums finished by vectors", steps, FINISH)                                         \
    ROW(finish_one, "one sum finished", steps, FINISH | ONE_SUM)                                           \
    ROW(no_stores, "products and loads", steps, ZEROS | PRODUCTS | A_LOADS | B_LOADS | B_ONCE)             \
    ROW(no_loads, "products and stores", steps, ZEROS | PRODUCTS | STORES)                                 \
    ROW(before, "products and stores of the step before", steps, ZEROS | PRODUCTS | STORES | BEFORE)       \
    ROW(alone_32, "32 vector operations on registers", beside, 2 * TIMES)                                  \
    ROW(alone_48, "48 of them", beside, 3 * TIMES)                                                         \
    ROW(alone_64, "64 of them", beside, 4 * TIMES)                                                         \
    ROW(beside_32, "products beside 32 of them", beside, PRODUCTS | 2 * TIMES)                             \
    ROW(beside_48, "products beside 48 of them", beside, PRODUCTS | 3 * TIMES)                             \
    ROW(beside_64, "products beside 64 of them", beside, PRODUCTS | 4 * TIMES)                             \
    ROW(vectors_after, "products, then vectors that wait for nothing", steps, ZEROS | PRODUCTS | FINISH)   \
    ROW(vectors_among, "products among vectors that wait for nothing", steps,                              \
        ZEROS | PRODUCTS | FINISH | SPREAD)                                                                \
    ROW(loads_vectors, "loads and vectors that wait for nothing", steps,                                   \
        A_LOADS | B_LOADS | B_ONCE | FINISH)                                                               \
    ROW(stored_soon, "stores and a finish one step later", steps, STORES | FINISH)                         \
    ROW(stored_late, "stores and a finish three steps later", steps, STORES | FINISH | LATE)               \
    ROW(unfinished, "all but the finish", steps, KERNEL & ~FINISH)                                         \
    ROW(two, "all, two sums", steps, KERNEL)                                                               \
    ROW(two_before, "all, two sums, stored one step later, finished two", steps, KERNEL | BEFORE)          \
    ROW(two_late, "all, two sums, finished three steps later", steps, KERNEL | LATE)                       \
    ROW(two_among, "all, two sums, rows among tile instructions", steps, KERNEL | SPREAD)                  \
    ROW(two_both, "all, two sums, both", steps, KERNEL | SPREAD | LATE)                                    \
    ROW(two_near, "all, two sums, B from L1", steps, KERNEL | B_NEAR)                                      \
    ROW(one, "all, one sum", steps, KERNEL | ONE_SUM)                                                      \
    ROW(one_before, "all, one sum, stored one step later, finished two", steps, KERNEL | ONE_SUM | BEFORE) \
    ROW(one_late, "all, one sum, three steps later", steps, KERNEL | ONE_SUM | LATE)                       \
    ROW(one_among, "all, one sum, rows among tile instructions", steps, KERNEL | ONE_SUM | SPREAD)         \
    ROW(one_both, "all, one sum, both", steps, KERNEL | ONE_SUM | SPREAD | LATE)                           \
    ROW(rows_near, "whole rows: three products, B tiles from L1", whole_rows, PRODUCTS | B_LOADS)          \
    ROW(rows_all, "whole rows: A tiles as well, from L2", whole_rows, PRODUCTS | A_LOADS | B_LOADS)        \
    ROW(square_open, "all but the finish, one sum, 2 x 2 tiles", square, PRODUCTS)                         \
    ROW(square_whole, "all, one sum, 2 x 2 tiles", square, PRODUCTS | FINISH)                              \
    ROW(square_among, "all, one sum, 2 x 2 tiles, rows among tile instructions", square,                   \
        PRODUCTS | FINISH | SPREAD)

#define FUNCTION(id, name, fn, what) \
    static void id(int64_t n) { fn(what, n); }
LINES(FUNCTION)
#define ENTRY(id, name, fn, what) {name, id, ((what) % TIMES & ~(FINISH | ONE_SUM)) != 0},
static const struct line {
    const char *name;
    void (*run)(int64_t n);
    bool tiles;
} lines[] = {LINES(ENTRY)};

static void all_tiles(void) {
    tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) c.rows[t] = SIDE, c.bytes[t] = LINE;
    tile_configure(&c);
}
static bool stay_on(int processor) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)processor, &one);
    return pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0;
}
static double ns_a_step(void (*run)(int64_t n), int64_t n) {
    const double start = ln_now();
    run(n);
    return (ln_now() - start) * 1e9 / (double)n;
}

/* ---- processors that share a tile unit ---- */

static _Atomic bool stop;
static void *multiply_until(void *processor) {
    if (!stay_on((int)(intptr_t)processor)) return NULL;
    all_tiles();
    while (!atomic_load(&stop)) products(STEPS);
    tile_release();
    return NULL;
}
static void neighbours(int here, const cpu_set_t *may) {
    for (int p = 0; p < CPU_SETSIZE; p++) {
        pthread_t other;
        if (p == here || !CPU_ISSET((size_t)p, may)) continue;
        atomic_store(&stop, false);
        if (pthread_create(&other, NULL, multiply_until, (void *)(intptr_t)p)) continue;
        ns_a_step(products, 16 * STEPS); /* until it runs */
        const double beside = ns_a_step(products, 64 * STEPS);
        atomic_store(&stop, true);
        pthread_join(other, NULL);
        const double alone = ns_a_step(products, 64 * STEPS);
        printf("processor %d beside %d: %.1f ns, alone %.1f%s\n", here, p, beside, alone,
               beside > 1.5 * alone ? "  they share a tile unit" : "");
    }
}

/* ---- idle processors ---- */

enum { TOGETHER_MOST = 64, TRIED = 8, AGAIN = 5 };
static struct { _Atomic int ready, n; } start;
typedef struct together {
    int processor;
    double ns; /* time of a step of whole rows; 0: the thread could not run on the processor */
} together;
static void *work_together(void *user) {
    together *t = user;
    const bool here = stay_on(t->processor);
    if (here) all_tiles(), rows_all(STEPS);
    atomic_fetch_add(&start.ready, 1);
    while (atomic_load(&start.ready) < atomic_load(&start.n)) sched_yield();
    t->ns = here ? ns_a_step(rows_all, 32 * STEPS) : 0;
    if (here) tile_release();
    return NULL;
}
/* Runs steps of whole rows on n processors at the same time. Returns the time of a step in ns on the slowest
 * one; 0 when one of them cannot be used. */
static double slowest_of(const int *processors, int n) {
    together all[TOGETHER_MOST];
    pthread_t threads[TOGETHER_MOST];
    double most = 0;
    bool some_missing = false;
    int begun = 0;
    atomic_store(&start.ready, 0);
    atomic_store(&start.n, n);
    for (; begun < n; begun++) {
        all[begun] = (together){.processor = processors[begun]};
        if (pthread_create(&threads[begun], NULL, work_together, &all[begun])) break;
    }
    atomic_store(&start.n, begun);
    for (int i = 0; i < begun; i++) {
        pthread_join(threads[i], NULL);
        some_missing = some_missing || all[i].ns <= 0;
        most = LN_MAX(most, all[i].ns);
    }
    return some_missing || begun < n ? 0 : most;
}
/* Sorts the allowed processors by their time of a step when only one runs, fastest first; returns their
 * number. */
static int by_quiet(const cpu_set_t *may, int *processors) {
    double ns[CPU_SETSIZE];
    int n = 0;
    for (int p = 0; p < CPU_SETSIZE; p++) {
        const double alone = CPU_ISSET((size_t)p, may) ? slowest_of(&p, 1) : 0;
        if (alone <= 0) continue;
        int at = n++;
        for (; at > 0 && ns[at - 1] > alone; at--) ns[at] = ns[at - 1], processors[at] = processors[at - 1];
        ns[at] = alone;
        processors[at] = p;
    }
    return n;
}
/* Adds to a group of k processors the one with which the slowest of the group is fastest, of the first TRIED
 * candidates. Returns the time of a step in ns; 0: no processor could be added. */
static double one_more(int *group, int k, const int *known, int n) {
    double least = 0;
    int with = 0;
    for (int i = 0, tried = 0; i < n && tried < TRIED; i++) {
        bool in = false;
        for (int j = 0; j < k; j++) in = in || group[j] == known[i];
        if (in) continue;
        tried++;
        group[k] = known[i];
        const double t = slowest_of(group, k + 1);
        if (t > 0 && (least <= 0 || t < least)) least = t, with = known[i];
    }
    group[k] = with;
    return least;
}
/* Builds a group greedily from each of the TRIED fastest processors, and prints the best group. */
static int quiet(const cpu_set_t *may, int want) {
    int known[CPU_SETSIZE], best[TOGETHER_MOST] = {0}, group[TOGETHER_MOST];
    double best_ns = 0;
    const int n = by_quiet(may, known);
    if (n < want)
        return fprintf(stderr, "tile_costs: %d processors wanted, %d may be used\n", want, n), LN_EUSAGE;
    memcpy(best, known, sizeof *best * (size_t)want); /* all of them, or one */
    for (int first = 0; want > 1 && n > want && first < LN_MIN(n, TRIED); first++) {
        double ns = 1;
        group[0] = known[first];
        for (int k = 1; k < want && ns > 0; k++) ns = one_more(group, k, known, n);
        if (ns <= 0 || (best_ns > 0 && ns >= best_ns)) continue;
        best_ns = ns;
        memcpy(best, group, sizeof best);
    }
    best_ns = 0; /* the minimum of many runs is biased: report the maximum of AGAIN further runs */
    for (int k = 0; k < AGAIN; k++) {
        const double t = slowest_of(best, want);
        if (t <= 0) return fputs("tile_costs: the processors could not be had\n", stderr), LN_EUSAGE;
        best_ns = LN_MAX(best_ns, t);
    }
    for (int k = 0; k < want; k++) printf("%s%d", k ? "," : "", best[k]);
    printf(" %.1f\n", best_ns);
    return 0;
}

int main(int argc, char **argv) {
    enum { N = LN_COUNT(lines) };
    static double ns[LN_COUNT(lines)][ROUNDS_MOST];
    const bool tiles = ln_cpu_isa_here(LN_ISA_AMX);
    uint64_t rounds = 31, here = (uint64_t)sched_getcpu();
    cpu_set_t may;
    if (!ln_cpu_isa_here(LN_ISA_AVX512))
        return puts("tile_costs: this machine has no AVX-512"), LN_EUNSUPPORTED;
    if (argc == 3 && strcmp(argv[1], "quiet") == 0) {
        uint64_t want;
        if (!ln_parse_u64(argv[2], strlen(argv[2]), &want) || want < 1 || want > TOGETHER_MOST)
            return fprintf(stderr, "usage: tile_costs quiet N, 1 to %d\n", TOGETHER_MOST), LN_EUSAGE;
        if (!tiles) return puts("tile_costs: this machine has no AMX"), LN_EUNSUPPORTED;
        return sched_getaffinity(0, sizeof may, &may) ? (perror("tile_costs"), LN_EUSAGE)
                                                      : quiet(&may, (int)want);
    }
    if ((argc > 1 && !ln_parse_u64(argv[1], strlen(argv[1]), &rounds)) || rounds < 1 ||
        rounds > ROUNDS_MOST || argc > 3)
        return fprintf(stderr, "usage: tile_costs [ROUNDS, 1 to %d [PROCESSOR]]\n", ROUNDS_MOST), LN_EUSAGE;
    if (sched_getaffinity(0, sizeof may, &may)) return perror("tile_costs"), LN_EUSAGE;
    if ((argc > 2 && !ln_parse_u64(argv[2], strlen(argv[2]), &here)) || here >= CPU_SETSIZE ||
        !CPU_ISSET((size_t)here, &may) || !stay_on((int)here))
        return fprintf(stderr, "tile_costs: processor %s: not one of those allowed\n",
                       argc > 2 ? argv[2] : "?"),
               LN_EUSAGE;
    if (tiles) all_tiles();
    for (uint64_t i = 0; i < rounds; i++)
        for (int k = 0; k < N; k++) {
            if (lines[k].tiles && !tiles) continue;
            lines[k].run(STEPS / 8); /* warms the caches */
            ns[k][i] = ns_a_step(lines[k].run, STEPS);
        }
    for (int k = 0; k < N; k++) {
        if (lines[k].tiles && !tiles) continue;
        const double median = ln_median(ns[k], (int)rounds); /* also sorts ns[k] */
        printf("%7.1f ns (best %6.1f)  %s\n", median, ns[k][0], lines[k].name);
    }
    if (!tiles) return puts("tile_costs: this machine has no AMX: vectors alone"), 0;
    neighbours((int)here, &may);
    tile_release();
    return 0;
}

#else
int main(void) {
    puts("tile_costs: this build has no AVX-512");
    return LN_EUNSUPPORTED;
}
#endif
