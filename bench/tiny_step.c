/* Measures the overhead of a step: its time minus the time to read its weights, for the bundled model, whose
 * weights fit in a cache, on one thread.
 *
 * A step of a small model shows the cost of everything but the products: scheduling of nodes, norms, the
 * sampler, the detokenizer. Each round generates tokens greedily after 64 tokens of prompt, as `run` does,
 * and then reads a block of the size of the weights with vector loads (the best of several passes). The
 * overhead is computed within a round, whose two halves ran under the same load of the host. The program
 * prints medians over the rounds and the best round to stderr, and one JSON object with the medians to stdout
 * (times in us).
 *
 * usage: tiny_step MODEL [exact|fast] [ROUNDS] */
#include "../src/base/median.h"
#include "../src/device/cpu/exec.h"
#include "../src/engine/generate.h"
#include "../src/inspect/inspect.h"

#include <stdio.h>
#include <stdlib.h>

enum { DEPTH = 64, TOKENS = 33, ROUNDS_MOST = 1000 };

static void die(const ln_error *err) {
    fprintf(stderr, "tiny_step: %s\n", err->message);
    exit(err->code);
}

/* Mean seconds of a step, including sampling and detokenizing of its token. */
static double step_seconds(ln_eng *e, const int32_t *ids) {
    ln_prompt p = {.ids = ids, .n_ids = DEPTH};
    ln_sampling greedy = {.n_max = TOKENS, .top_p = 1, .repeat_penalty = 1, .ignore_eos = true};
    ln_result r = {.size = sizeof r};
    ln_error err;
    if (ln_eng_generate(e, &p, &greedy, NULL, NULL, &r, &err)) die(&err);
    double s = r.metrics.decode_seconds /
               (double)(r.metrics.generated_tokens - 1); /* the first token needs no step */
    ln_result_free(&r);
    return s;
}

int main(int argc, char **argv) {
    static double step[ROUNDS_MOST], gb_s[ROUNDS_MOST], over[ROUNDS_MOST];
    const bool fast = argc > 2 && strcmp(argv[2], "fast") == 0,
               known = argc <= 2 || fast || strcmp(argv[2], "exact") == 0;
    uint64_t asked = 101;
    const bool counted = argc <= 3 || ln_parse_u64(argv[3], strlen(argv[3]), &asked);
    ln_options o = ln_options_default();
    ln_package *m;
    ln_eng *e;
    ln_dev *dev;
    ln_dev_options one = {.size = sizeof one, .n_threads = 1};
    ln_error err;
    void *block;
    if (argc < 2 || argc > 4 || !known || !counted || asked < 1 || asked > ROUNDS_MOST)
        return fprintf(stderr, "usage: tiny_step MODEL [exact|fast] [ROUNDS], at most %d\n", ROUNDS_MOST),
               LN_EUSAGE;
    const int rounds = (int)asked;
    o.n_threads = 1;
    if (argc > 2) o.numerics = fast ? LN_FAST : LN_EXACT;
    if (ln_package_open(&m, argv[1], &o, &err) || ln_eng_open(&e, m, &o, &err) ||
        ln_device_cpu.open(&dev, &one, &err))
        die(&err);
    ln_bounds live = {1, 1, 1};
    size_t bytes = (size_t)ln_run_cost(e->run, &live, DEPTH).weight_bytes;
    if (ln_device_cpu.alloc(dev, bytes, bytes, &block, &err)) die(&err);
    memset(block, 0, bytes);
    int32_t *ids = ln_eng_random_ids(m, DEPTH);
    if (!ids) return LN_EMEMORY;
    for (int i = -1; i < rounds; i++) { /* the first round warms up */
        double s = step_seconds(e, ids), r;
        if (ln_cpu_measure_read(dev, block, bytes, &r, &err)) die(&err);
        if (i >= 0) step[i] = s * 1e6, gb_s[i] = r * 1e-9, over[i] = (s - (double)bytes / r) * 1e6;
    }
    double median = ln_median(over, rounds), least = over[0]; /* ln_median sorts over */
    fprintf(stderr,
            "%s, %s: step %.1f us, %.2f MB of weights, cache read at %.1f GB/s: %.1f us over it (best round "
            "%.1f)\n",
            e->run->info.isa, e->run->opt.numerics == LN_FAST ? "fast" : "exact", ln_median(step, rounds),
            (double)bytes * 1e-6, ln_median(gb_s, rounds), median, least);
    printf("{\"isa\":\"%s\",\"step_us\":%.2f,\"weight_bytes\":%zu,\"cache_gb_s\":%.3f,\"over_us\":%.2f}\n",
           e->run->info.isa, ln_median(step, rounds), bytes, ln_median(gb_s, rounds), median);
    ln_device_cpu.free(dev, block, bytes);
    ln_device_cpu.close(&dev);
    ln_free(ids);
    ln_eng_close(&e);
    ln_package_close(&m);
    return 0;
}
