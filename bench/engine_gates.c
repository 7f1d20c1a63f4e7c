/* Measures what the engine promises of many requests at once, on one model:
 *
 * pace: four streams decode and a prompt of 8,000 tokens arrives. The 99th percentile of the gaps between
 * tokens is at most two median steps and 100 ms. The prompt is read for PACE_SECONDS at most, which a slow
 * machine needs for a part of it.
 *
 * turn: in the second turn of a chat of 2,000 tokens, with 32 new ones, the first token comes at least 20
 * times sooner than without the prefix.
 *
 * streams: 8 and 16 streams through requests reach 95 % of the tokens a second of bare steps (ln_eng_step in
 * a loop).
 *
 * constrained: 8 streams whose answers are held to a JSON schema reach 95 % of the tokens a second of the
 * same streams without one, greedy and sampled (temperature 0.8, top_p 0.95). The model needs a tokenizer.
 *
 * classify: 1,000 prompts of 5 to 60 tokens reach 90 % of the tokens a second of a prefill of 512 rows, and
 * their scores equal those of each prompt alone, to the bit.
 *
 * Each measurement and its reference alternate; a gate's ratio is the median of the ratios of the rounds.
 * Exit status 1: a gate is missed. docs/performance.md has the results.
 *
 * usage: engine_gates MODEL [pace|turn|streams|constrained|classify]... [ROUNDS] */
#include "../src/engine/engine.h"

#include <linnet.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_ROUNDS = 99, MOST_STREAMS = 16, MOST_TIMES = 1 << 16, PACE_SECONDS = 240 };

static const char *path;
static ln_model *model;
static ln_error failure;
static int rounds = 5;
static int64_t n_vocab;
static bool missed;

#define TRY(x)                                                      \
    do {                                                            \
        if (x) {                                                    \
            fprintf(stderr, "engine_gates: %s\n", failure.message); \
            exit(failure.code);                                     \
        }                                                           \
    } while (0)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *buffer(size_t n, size_t item) {
    void *p = calloc(n + 1, item);
    if (!p) fprintf(stderr, "engine_gates: out of memory\n"), exit(LN_EMEMORY);
    return p;
}

/* Pseudo-random ids; another text for each seed. */
static int32_t *text_of(size_t n, uint64_t seed) {
    int32_t *ids = buffer(n, sizeof *ids);
    seed = seed * 7919 + 1;
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((seed >> 33) % (uint64_t)(n_vocab - 1));
    }
    return ids;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
/* The value that the share `part` of v[0..n) does not exceed; sorts v. */
static double quantile(double *v, size_t n, double part) {
    qsort(v, n, sizeof *v, by_size);
    const size_t at = (size_t)(part * (double)n);
    return n == 0 ? 0 : v[at < n ? at : n - 1];
}

static void say(const char *gate, const char *measured, bool holds) {
    printf("%-32s %-72s %s\n", gate, measured, holds ? "holds" : "MISSED");
    fflush(stdout);
    missed = missed || !holds;
}

static ln_engine *engine(int64_t n_ctx, int n_parallel, int64_t positions) {
    ln_options o = ln_options_default();
    ln_plan plan = {.size = sizeof plan};
    ln_engine *e = NULL;
    ln_info info = {.size = sizeof info};
    o.n_ctx = n_ctx;
    o.n_parallel = 1;
    TRY(ln_model_info(model, &info, &failure));
    TRY(ln_plan_memory(info.path, &o, &plan, &failure));
    o.n_parallel = n_parallel;
    o.kv_bytes = plan.kv_bytes / (uint64_t)n_ctx * (uint64_t)(positions + 64 * n_parallel);
    TRY(ln_engine_open(&e, model, &o, &failure));
    return e;
}

static ln_sampling greedy(int64_t n_max) {
    return (ln_sampling){
        .size = sizeof(ln_sampling), .n_max = n_max, .top_p = 1, .repeat_penalty = 1, .ignore_eos = true};
}

static ln_request *ask_how(ln_engine *e, const int32_t *ids, size_t n, const ln_sampling *how,
                           bool no_cache) {
    const ln_prompt p = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = n};
    ln_request_options o = ln_request_options_default();
    ln_request *r = NULL;
    o.sampling = how;
    o.no_cache = no_cache;
    TRY(ln_request_open(&r, e, &p, &o, &failure));
    return r;
}

static ln_request *ask(ln_engine *e, const int32_t *ids, size_t n, int64_t n_max, bool no_cache) {
    const ln_sampling how = greedy(n_max);
    return ask_how(e, ids, n, &how, no_cache);
}

/* Reads the available events; returns the tokens among them, and whether the request has finished. */
static int tokens_of(ln_request *r, bool *finished) {
    ln_event v = {.size = sizeof v};
    int n = 0;
    for (;;) {
        TRY(ln_request_next(r, 0, &v, &failure));
        n += v.kind == LN_EVENT_TOKEN;
        *finished = v.kind == LN_EVENT_FINISH;
        if (v.kind == LN_EVENT_NONE || *finished) return n;
    }
}

/* ---- pace ---- */

typedef struct pace {
    ln_engine *e;
    ln_request *streams[4];
    double last[4], steps[MOST_TIMES], gaps[MOST_TIMES];
    size_t n_steps, n_gaps;
} pace;

/* One step; the gaps between tokens of the streams are kept if `gaps`, else the step's time. */
static void pace_step(pace *p, bool gaps) {
    const double start = now();
    TRY(ln_engine_step(p->e, NULL, &failure));
    const double end = now();
    bool finished;
    if (!gaps && p->n_steps < MOST_TIMES) p->steps[p->n_steps++] = end - start;
    for (int i = 0; i < 4; i++) {
        if (tokens_of(p->streams[i], &finished) == 0) continue;
        if (gaps && p->n_gaps < MOST_TIMES) p->gaps[p->n_gaps++] = end - p->last[i];
        p->last[i] = end;
    }
}

static void measure_pace(void) {
    enum { LONG = 8000, SHORT = 128, ALONE = 100, DECODED = 4000 };
    static pace p;
    char text[160];
    bool finished = false;
    int32_t *ids[5];
    p.e = engine(LONG + 64, 5, LONG + 4 * (SHORT + DECODED) + 64);
    for (int i = 0; i < 4; i++) {
        ids[i] = text_of(SHORT, (uint64_t)i);
        p.streams[i] = ask(p.e, ids[i], SHORT, DECODED, true);
    }
    for (int i = 0; i < 8; i++) TRY(ln_engine_step(p.e, NULL, &failure)); /* the prompts, and a warm-up */
    for (int i = 0; i < 4; i++) (void)tokens_of(p.streams[i], &finished);
    for (int i = 0; i < ALONE; i++) pace_step(&p, false);
    ids[4] = text_of(LONG, 4);
    const double start = now();
    ln_request *arrival = ask(p.e, ids[4], LONG, 1, true);
    for (finished = false; !finished && now() - start < PACE_SECONDS; (void)tokens_of(arrival, &finished))
        pace_step(&p, true);
    const double first = now() - start, step = quantile(p.steps, p.n_steps, 0.5),
                 p99 = quantile(p.gaps, p.n_gaps, 0.99), p50 = quantile(p.gaps, p.n_gaps, 0.5);
    snprintf(text, sizeof text,
             "%.0f ms (median %.0f) of %zu gaps; step %.1f ms, bound %.0f; prompt %.1f s%s", p99 * 1e3,
             p50 * 1e3, p.n_gaps, step * 1e3, (2 * step + 0.1) * 1e3, first,
             finished ? "" : ", not all of it");
    say("pace: p99 of gaps", text, p99 <= 2 * step + 0.1);
    ln_request_close(&arrival);
    for (int i = 0; i < 4; i++) ln_request_close(&p.streams[i]);
    for (int i = 0; i < 5; i++) free(ids[i]);
    ln_engine_close(&p.e);
}

/* ---- turn ---- */

/* Runs a request to its end; *out is to be freed. */
static void run(ln_request *r, ln_result *out) {
    ln_event v = {.size = sizeof v};
    while (v.kind != LN_EVENT_FINISH) TRY(ln_request_next(r, -1, &v, &failure));
    TRY(ln_request_result(r, out, &failure));
    ln_request_close(&r);
}

static void measure_turn(void) {
    enum { CHAT = 2000, ANSWER = 16, NEW = 32 };
    double with[MOST_ROUNDS], without[MOST_ROUNDS], ratio[MOST_ROUNDS];
    char text[160];
    ln_engine *e = engine(CHAT + 256, 1, 2 * (CHAT + 256));
    for (int i = 0; i < rounds; i++) {
        int32_t *ids = text_of(CHAT + NEW, 100 + (uint64_t)i);
        ln_result first = {.size = sizeof first}, again = {.size = sizeof again},
                  fresh = {.size = sizeof fresh};
        run(ask(e, ids, CHAT - ANSWER, ANSWER, false), &first);
        memcpy(ids + CHAT - ANSWER, first.ids, first.n_ids * sizeof *ids);
        run(ask(e, ids, CHAT + NEW, 1, false), &again);
        run(ask(e, ids, CHAT + NEW, 1, true), &fresh);
        if (again.metrics.cached_tokens < CHAT - 1 || fresh.metrics.cached_tokens != 0)
            fprintf(stderr, "engine_gates: %lld tokens were reused (%s)\n",
                    (long long)again.metrics.cached_tokens, again.metrics.cache_miss_reason);
        with[i] = again.metrics.first_token_seconds;
        without[i] = fresh.metrics.first_token_seconds;
        ratio[i] = without[i] / with[i];
        ln_result_free(&first), ln_result_free(&again), ln_result_free(&fresh);
        free(ids);
    }
    const double times = quantile(ratio, (size_t)rounds, 0.5);
    snprintf(text, sizeof text, "%.1f x sooner (bound 20): %.0f ms, %.0f ms without the prefix", times,
             1e3 * quantile(with, (size_t)rounds, 0.5), 1e3 * quantile(without, (size_t)rounds, 0.5));
    say("turn: first token", text, times >= 20);
    ln_engine_close(&e);
}

/* ---- references ---- */

static ln_status keep_row(void *user, const ln_bench_row *row, ln_error *err) {
    (void)err;
    if (row->work == LN_WORK_PREFILL) *(double *)user = row->tok_s;
    return LN_OK;
}

/* Tokens a second of `linnet bench`'s prefill of 512 rows. */
static double prefill_of_512(void) {
    const ln_bench_options how = {.size = sizeof(ln_bench_options), .n_reps = 1, .n_prefill = 512};
    const ln_options o = ln_options_default();
    ln_bench_report report = {.size = sizeof report};
    double tok_s = 0;
    TRY(ln_bench(model, &o, &how, keep_row, &tok_s, &report, &failure));
    return tok_s;
}

enum { DEPTH = 256, TOKENS = 64 }; /* of a stream */

/* Tokens a second of steps of n sequences below the scheduler, as a loop without requests would run them. */
static double bare_steps(const ln_package *m, int n) {
    const ln_options o = {
        .size = sizeof(ln_options), .n_ctx = DEPTH + TOKENS, .n_parallel = n, .n_logits = n};
    ln_batch_item items[MOST_STREAMS];
    ln_seq *seqs[MOST_STREAMS];
    int32_t next[MOST_STREAMS];
    ln_eng *e;
    TRY(ln_eng_open(&e, m, &o, &failure));
    for (int i = 0; i < n; i++) {
        const ln_seq_options one = {.n_prompt = DEPTH, .n_most = DEPTH + TOKENS, .no_cache = true};
        int32_t *ids = text_of(DEPTH, 200 + (uint64_t)i);
        TRY(ln_seq_open(e, &one, &seqs[i], &failure));
        TRY(ln_eng_prefill(e, seqs[i], ids, DEPTH, true, &failure));
        ln_run_argmax(e->run, 0, 1, &next[i]);
        items[i] = (ln_batch_item){seqs[i], &next[i], 1, LN_LOGITS_LAST};
        free(ids);
    }
    const double start = now();
    for (int t = 0; t < TOKENS; t++) {
        TRY(ln_eng_step(e, items, n, &failure));
        ln_run_argmax(e->run, 0, n, next);
    }
    const double seconds = now() - start;
    for (int i = 0; i < n; i++) ln_seq_close(e, &seqs[i]);
    ln_eng_close(&e);
    return n * TOKENS / seconds;
}

/* ---- streams ---- */

static double processor_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Tokens a second of n streams through requests: 64 tokens each after texts of 256. Each has a seed of its
 * own. *per_cpu (NULL: not wanted): tokens a second of processor time, for machines with other work. */
static double streams_of(ln_engine *e, int n, ln_sampling how, double *per_cpu) {
    ln_request *r[MOST_STREAMS];
    int have[MOST_STREAMS] = {0}, left = n;
    bool done[MOST_STREAMS] = {0}, finished;
    double start = 0, used = 0;
    int before = 0, after = 0, all = 0;
    for (int i = 0; i < n; i++) {
        int32_t *ids = text_of(DEPTH, 200 + (uint64_t)i);
        how.n_max = TOKENS + 24;
        how.has_seed = true;
        how.seed = (uint64_t)i + 1;
        r[i] = ask_how(e, ids, DEPTH, &how, true);
        free(ids);
    }
    /* timed from the moment when all streams decode until the first one is near its end */
    while (left > 0) {
        int least = TOKENS + 24, most = 0;
        TRY(ln_engine_step(e, NULL, &failure));
        for (int i = 0; i < n; i++) {
            if (done[i]) continue;
            have[i] += tokens_of(r[i], &finished);
            done[i] = finished;
            left -= finished;
        }
        all = 0;
        for (int i = 0; i < n; i++) {
            least = have[i] < least ? have[i] : least;
            most = have[i] > most ? have[i] : most;
            all += have[i];
        }
        if (start == 0 && least >= 2) start = now(), used = processor_time(), before = all;
        if (start > 0 && most >= TOKENS + 22) {
            after = all;
            break;
        }
    }
    const double seconds = now() - start;
    if (per_cpu) *per_cpu = (after - before) / (processor_time() - used);
    for (int i = 0; i < n; i++) ln_request_close(&r[i]);
    return (after - before) / seconds;
}

static void measure_streams(void) {
    static const int counts[] = {8, 16};
    const ln_options o = ln_options_default();
    ln_package *m;
    TRY(ln_package_open(&m, path, &o, &failure));
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        const int n = counts[k];
        double here[MOST_ROUNDS], there[MOST_ROUNDS], ratio[MOST_ROUNDS];
        char text[160], gate[64];
        for (int i = 0; i < rounds; i++) {
            ln_engine *e = engine(512, n, 512 * n);
            here[i] = streams_of(e, n, greedy(0), NULL);
            ln_engine_close(&e);
            there[i] = bare_steps(m, n);
            ratio[i] = here[i] / there[i];
        }
        const double part = quantile(ratio, (size_t)rounds, 0.5);
        snprintf(gate, sizeof gate, "streams: %d through requests", n);
        snprintf(text, sizeof text, "%.1f %% of bare steps (bound 95): %.1f tok/s, bare %.1f", 100 * part,
                 quantile(here, (size_t)rounds, 0.5), quantile(there, (size_t)rounds, 0.5));
        say(gate, text, part >= 0.95);
    }
    ln_package_close(&m);
}

/* ---- constrained ---- */

/* Answers that go on until they are cut, of objects, numbers, choices and strings. */
static const char people[] = "{\"schema\":{\"type\":\"array\",\"minItems\":1000,\"items\":{\"type\":"
                             "\"object\",\"properties\":{\"name\":{\"type\":"
                             "\"string\",\"maxLength\":40},\"age\":{\"type\":\"integer\",\"minimum\":0,"
                             "\"maximum\":130},\"role\":{\"enum\":"
                             "[\"reader\",\"writer\",\"editor\"]},\"tags\":{\"type\":\"array\",\"items\":{"
                             "\"type\":\"string\",\"maxLength\":20},"
                             "\"maxItems\":4}},\"required\":[\"name\",\"age\",\"role\",\"tags\"]}}}";

static void measure_constrained(void) {
    enum { STREAMS = 8 };
    for (int sampled = 0; sampled < 2; sampled++) {
        double with[MOST_ROUNDS], without[MOST_ROUNDS], ratio[MOST_ROUNDS], cpu[MOST_ROUNDS], plain, held;
        char text[160];
        ln_sampling how = greedy(0);
        if (sampled) how.temperature = 0.8, how.top_p = 0.95;
        for (int i = 0; i < rounds; i++) {
            ln_engine *e = engine(512, STREAMS, 512 * STREAMS);
            how.grammar = NULL, how.grammar_bytes = 0;
            if (i == 0) (void)streams_of(e, STREAMS, how, NULL); /* reads the weights */
            without[i] = streams_of(e, STREAMS, how, &plain);
            how.grammar = people, how.grammar_bytes = sizeof people - 1;
            if (i == 0) (void)streams_of(e, STREAMS, how, NULL);
            with[i] = streams_of(e, STREAMS, how, &held);
            cpu[i] = held / plain;
            ratio[i] = with[i] / without[i];
            ln_engine_close(&e);
        }
        const double part = quantile(ratio, (size_t)rounds, 0.5);
        snprintf(text, sizeof text,
                 "%.1f %% of free ones (bound 95), %.1f %% by processor time: %.1f tok/s, free %.1f",
                 100 * part, 100 * quantile(cpu, (size_t)rounds, 0.5), quantile(with, (size_t)rounds, 0.5),
                 quantile(without, (size_t)rounds, 0.5));
        say(sampled ? "constrained: 8 streams, sampled" : "constrained: 8 streams, greedy", text,
            part >= 0.95);
    }
}

/* ---- classify ---- */

enum { PROMPTS = 1000 };
static double scores[PROMPTS][2];
static int labels_of[PROMPTS], n_wrong;

static ln_status keep_class(void *user, const ln_class *c, ln_error *err) {
    (void)user, (void)err;
    if (c->status) return LN_ECANCELLED;
    memcpy(scores[c->index], c->scores, sizeof scores[0]);
    labels_of[c->index] = c->label;
    return LN_OK;
}
static ln_status compare_class(void *user, const ln_class *c, ln_error *err) {
    const int i = *(const int *)user;
    (void)err;
    n_wrong += c->status || labels_of[i] != c->label || memcmp(scores[i], c->scores, sizeof scores[0]) != 0;
    return LN_OK;
}

static void measure_classify(void) {
    static const char *const labels[] = {"A", "B"};
    static ln_prompt prompts[PROMPTS];
    double here[MOST_ROUNDS], there[MOST_ROUNDS], ratio[MOST_ROUNDS];
    char text[160];
    int64_t n_tokens = 0;
    ln_classify_options o = ln_classify_options_default();
    o.labels = labels;
    o.n_labels = 2;
    for (int i = 0; i < PROMPTS; i++) {
        prompts[i] = ln_prompt_default();
        prompts[i].n_ids = 5 + (size_t)(i * 37 % 56);
        prompts[i].ids = text_of(prompts[i].n_ids, 300 + (uint64_t)i);
        n_tokens += (int64_t)prompts[i].n_ids;
    }
    ln_engine *e = engine(512, 64, 64 * 128);
    for (int i = 0; i < rounds; i++) {
        ln_cache_clear(); /* the prompts of the round before */
        const double start = now();
        TRY(ln_classify(e, prompts, PROMPTS, &o, keep_class, NULL, NULL, &failure));
        here[i] = (double)n_tokens / (now() - start);
        there[i] = prefill_of_512();
        ratio[i] = here[i] / there[i];
    }
    for (int i = 0; i < PROMPTS; i++)
        TRY(ln_classify(e, prompts + i, 1, &o, compare_class, &i, NULL, &failure));
    const double part = quantile(ratio, (size_t)rounds, 0.5);
    snprintf(text, sizeof text, "%.1f %% of pp512 (bound 90): %.0f tok/s, bench %.0f; %d differ alone",
             100 * part, quantile(here, (size_t)rounds, 0.5), quantile(there, (size_t)rounds, 0.5), n_wrong);
    say("classify: 1,000 prompts", text, part >= 0.9 && n_wrong == 0);
    for (int i = 0; i < PROMPTS; i++) free((void *)prompts[i].ids);
    ln_engine_close(&e);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*measure)(void);
    } gates[] = {{"pace", measure_pace},
                 {"turn", measure_turn},
                 {"streams", measure_streams},
                 {"constrained", measure_constrained},
                 {"classify", measure_classify}};
    enum { N = sizeof gates / sizeof *gates };
    bool wanted[N] = {0}, any = false;
    ln_info info = {.size = sizeof info};
    for (int i = 2; i < argc; i++) {
        int k = 0;
        while (k < N && strcmp(argv[i], gates[k].name) != 0) k++;
        if (k < N) wanted[k] = any = true;
        else if ((rounds = atoi(argv[i])) < 1 || rounds > MOST_ROUNDS) argc = 0;
    }
    if (argc < 2) {
        fprintf(stderr, "usage: engine_gates MODEL [pace|turn|streams|constrained|classify]... [ROUNDS]\n");
        return LN_EUSAGE;
    }
    path = argv[1];
    TRY(ln_model_open(&model, path, NULL, &failure));
    TRY(ln_model_info(model, &info, &failure));
    n_vocab = info.vocab_size;
    for (int k = 0; k < N; k++)
        if (wanted[k] || !any) gates[k].measure();
    ln_model_close(&model);
    return missed;
}
