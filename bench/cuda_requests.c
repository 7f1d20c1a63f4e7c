/* Measures requests on a GPU, in one process and one run:
 *
 * long: the median decode step of SHORT sequences of 64 positions, alone and with one sequence of LENGTH
 * positions. Gate: with it a step takes at most 1.5 times as long as without, plus the time in which the GPU
 * reads the keys and values of the long sequence.
 *
 * kinds: tokens per second of STREAMS requests at once, of each kind of sampling: plain (greedy), draws
 * (temperature 0.7, top-p 0.8, top-k 20), and with draws also penalties, a bias, log-probabilities with the 5
 * likeliest tokens, top-p alone, a JSON schema (if the model has a tokenizer). Kinds alternate in ROUNDS
 * rounds; a row is the median, and its ratio to plain.
 *
 * usage: cuda_requests MODEL long LENGTH SHORT...
 *        cuda_requests MODEL kinds STREAMS TOKENS [ROUNDS] */
#include "../src/base/median.h"
#include "../src/engine/engine.h"
#include "../src/engine/request.h"
#include "../src/inspect/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHORT = 63, DEPTH = 64, STEPS = 30, WARM = 5, MOST_STREAMS = 512, MOST_ROUNDS = 9 };
static ln_error failure;
#define TRY(x)                                                       \
    do {                                                             \
        if (x) {                                                     \
            fprintf(stderr, "cuda_requests: %s\n", failure.message); \
            exit(failure.code);                                      \
        }                                                            \
    } while (0)

static ln_package *model;
static ln_eng *engine;
static int32_t *ids;

static void open_engine(const char *path, int64_t n_ctx, int n_seqs) {
    ln_options o = ln_options_default();
    o.device = LN_DEVICE_CUDA, o.numerics = LN_FAST;
    o.n_ctx = n_ctx, o.n_parallel = o.n_logits = n_seqs, o.n_chunk = 2048;
    TRY(ln_package_open(&model, path, &o, &failure));
    const double start = ln_now();
    TRY(ln_eng_open(&engine, model, &o, &failure));
    const double seconds = ln_now() - start, bytes = (double)engine->run->sizes.weights_bytes;
    printf("opened in %.2f s, %.2f GB of weights: %.1f GB/s\n", seconds, bytes * 1e-9,
           bytes * 1e-9 / seconds);
    ids = ln_eng_random_ids(model, n_ctx + MOST_STREAMS);
}

/* ---- long ---- */

/* The median seconds of a step of one row of each of these sequences. */
static double median_step(ln_seq **seqs, int n) {
    double times[STEPS];
    ln_batch_item items[MOST_SHORT + 1];
    for (int i = -WARM; i < STEPS; i++) {
        for (int s = 0; s < n; s++)
            items[s] = (ln_batch_item){seqs[s], ids + s + i + WARM, 1, LN_LOGITS_LAST};
        const double start = ln_now();
        TRY(ln_eng_step(engine, items, n, &failure));
        if (i >= 0) times[i] = ln_now() - start;
    }
    return ln_median(times, STEPS);
}
static bool measure_long(int64_t length, char **counts, int n_counts) {
    ln_seq *seqs[MOST_SHORT + 1] = {0};
    ln_dev_limits limits;
    bool holds = true;
    const ln_run *r = engine->run;
    TRY(r->ops->measure(r->dev, LN_MEASURE_LEAST, &limits, &failure));
    const int more = n_counts * 4 * (STEPS + WARM);
    const double bytes = (double)length * (double)r->kv.page_bytes / r->kv.page_len *
                         (double)(r->kv.groups[0].pages_per_block),
                 least = bytes / limits.read_bytes_s;
    TRY(ln_eng_set_context(engine, &seqs[0], ids, length, more, &failure));
    printf("copy %.2f TB/s; the long sequence of %lld positions has %.2f GB, read in %.2f ms\n",
           limits.read_bytes_s * 1e-12, (long long)length, bytes * 1e-9, least * 1e3);
    for (int c = 0; c < n_counts; c++) {
        const int n = atoi(counts[c]);
        if (n < 1 || n > MOST_SHORT) exit(LN_EUSAGE);
        for (int s = 1; s <= n; s++)
            TRY(ln_eng_set_context(engine, &seqs[s], ids + s, DEPTH + s, more, &failure));
        const double without = median_step(seqs + 1, n), with = median_step(seqs, n + 1),
                     most = 1.5 * without + least;
        printf("%2d short: %.2f ms, with the long one %.2f ms, allowed %.2f ms: %s\n", n, without * 1e3,
               with * 1e3, most * 1e3, with <= most ? "holds" : "MISSED");
        holds &= with <= most;
    }
    return holds;
}

/* ---- kinds ---- */

/* An answer that cannot end early. */
static const char schema[] =
    "{\"schema\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"minItems\":400}}";
typedef struct kind {
    const char *name;
    bool draws, penalties, bias, logprobs, schema, top_p;
} kind;
static const kind kinds[] = {{.name = "plain"},
                             {.name = "draws", .draws = true},
                             {.name = "penalties", .draws = true, .penalties = true},
                             {.name = "bias", .draws = true, .bias = true},
                             {.name = "logprobs 5", .draws = true, .logprobs = true},
                             {.name = "top-p 0.95 of all", .draws = true, .top_p = true},
                             {.name = "JSON schema", .draws = true, .schema = true}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* Seconds in which n requests of this kind generate `tokens` tokens each, from the first token of the last.
 */
static double run_requests(const kind *k, int n, int64_t tokens) {
    static ln_req *r[MOST_STREAMS];
    static const ln_logit_bias bias[] = {{11, 2}, {13, -3}, {15, 1}};
    ln_sampling how = {.size = sizeof how};
    how.n_max = tokens, how.ignore_eos = true, how.has_seed = true;
    how.temperature = k->draws ? 0.7 : 0, how.top_p = k->draws ? 0.8 : 1, how.top_k = k->draws ? 20 : 0;
    how.repeat_penalty = 1;
    if (k->top_p) how.temperature = 1, how.top_p = 0.95, how.top_k = 0;
    if (k->penalties) how.presence_penalty = 1.5, how.frequency_penalty = 0.1, how.repeat_penalty = 1.05;
    if (k->penalties) how.repeat_last = -1;
    if (k->bias) how.bias = bias, how.n_bias = 3;
    if (k->schema) how.grammar = schema, how.grammar_bytes = strlen(schema), how.ignore_eos = false;
    const double start = ln_now();
    for (int i = 0; i < n; i++) {
        how.seed = (uint64_t)i;
        TRY(ln_req_new(&r[i], engine,
                       &(ln_req_options){.ids = ids + i,
                                         .n_ids = DEPTH,
                                         .how = &how,
                                         .logprobs = k->logprobs,
                                         .n_top = k->logprobs ? 5 : 0},
                       &failure));
    }
    int64_t generated = 0;
    for (int i = 0; i < n; i++) {
        ln_result res;
        TRY(ln_req_wait(r[i], &failure));
        TRY(ln_req_result(r[i], &res, &failure));
        generated += (int64_t)res.n_ids;
    }
    const double seconds = ln_now() - start;
    for (int i = 0; i < n; i++) ln_req_free(&r[i]);
    return (double)generated / seconds;
}
static void measure_kinds(int n, int64_t tokens, int rounds) {
    static double rate[KINDS][MOST_ROUNDS];
    const int n_kinds = model->tok ? KINDS : KINDS - 1;
    double plain = 0;
    for (int round = -1; round < rounds; round++)
        for (int k = 0; k < n_kinds; k++) {
            const double x = run_requests(&kinds[k], n, round < 0 ? 8 : tokens);
            if (round >= 0) rate[k][round] = x;
        }
    for (int k = 0; k < n_kinds; k++) {
        const double x = ln_median(rate[k], rounds);
        if (k == 0) plain = x;
        printf("%3d streams  %-18s %8.0f tok/s  %5.1f %%\n", n, kinds[k].name, x, 100 * x / plain);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    const bool is_long = argc >= 5 && strcmp(argv[2], "long") == 0,
               is_kinds = argc >= 5 && argc <= 6 && strcmp(argv[2], "kinds") == 0;
    if (!is_long && !is_kinds) return fprintf(stderr, "usage: see bench/cuda_requests.c\n"), LN_EUSAGE;
    const int64_t first = atoll(argv[3]);
    if (is_long) {
        open_engine(argv[1], first + 1024, MOST_SHORT + 1);
        return measure_long(first, argv + 4, argc - 4) ? 0 : 1;
    }
    const int n = (int)first, rounds = argc > 5 ? atoi(argv[5]) : 3;
    if (n < 1 || n > MOST_STREAMS || rounds < 1 || rounds > MOST_ROUNDS) return LN_EUSAGE;
    open_engine(argv[1], DEPTH + atoll(argv[4]) + 8, n);
    measure_kinds(n, atoll(argv[4]), rounds);
    return 0;
}
