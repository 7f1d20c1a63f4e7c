/* Benchmarks a model on this machine: prefill of a prompt, decoding at given depths, decoding of several
 * sequences in one batch.
 *
 * What is timed is what generation does: requests that the scheduler runs, from when they are opened to the
 * likeliest token and its text. Each row is the median of its repetitions, and each repetition begins at the
 * same depth; the tokens before it are reused. The prompt runs once before it is timed, as other benchmarks
 * do, so that page faults of memory that is touched for the first time do not count. A row also has the least
 * that a token costs (bytes of weights, keys and values to read, operations to do); divided by the machine's
 * ceilings, that gives the share of the roofline. */
#include "inspect.h"

#include "../base/median.h"
#include "../engine/scheduler.h"

enum { PREFILL = 512, DECODE = 64, STREAM_DEPTH = 256, REPS = 5, REPS_MOST = 1000 };

int32_t *ln_eng_random_ids(const ln_package *m, int64_t n) {
    int32_t *ids = ln_zalloc((size_t)n + 1, sizeof *ids);
    for (int64_t i = 0; ids && i < n; i += 4) {
        uint32_t counter[4] = {(uint32_t)i}, key[2] = {1}, four[4];
        ln_philox(counter, key, four);
        for (int64_t k = 0; k < 4 && i + k < n; k++) ids[i + k] = (int32_t)(four[k] % (uint64_t)m->spec.V);
    }
    return ids;
}

/* ---- for explain: a step that can be repeated ---- */

/* A sequence for n tokens, of which the first are the prompt, that neither reuses nor leaves anything. */
static ln_status open_seq(ln_eng *e, int64_t n_prompt, int64_t n, ln_seq **s, ln_error *err) {
    const ln_seq_options o = {.n_prompt = n_prompt, .n_most = n, .no_cache = true};
    LN_TRY(ln_seq_open(e, &o, s, err));
    return *s ? LN_OK : ln_fail(err, LN_EMEMORY, "no sequence of the engine is free");
}

ln_status ln_eng_set_context(ln_eng *e, ln_seq **s, const int32_t *ids, int64_t depth, int64_t more,
                             ln_error *err) {
    ln_error why = {0};
    if (*s && (*s)->n >= depth && (*s)->n_most >= depth + more &&
        memcmp((*s)->tokens, ids, (size_t)depth * sizeof *ids) == 0 &&
        ln_seq_cut(e, *s, depth, &why) == LN_OK)
        return LN_OK;
    ln_seq_close(e, s);
    LN_TRY(open_seq(e, depth + 1, depth + more, s, err));
    return ln_eng_prefill(e, *s, ids, depth, true, err);
}

/* ---- bench ---- */

typedef struct bench {
    const ln_package *m;
    const ln_options *opt;
    ln_bench_fn *fn;
    void *user;
    ln_bench_report *out;
    int n_reps;
    double times[REPS_MOST], first[REPS_MOST];
    int32_t *ids;
} bench;

/* Opens an engine for n_seqs sequences of n_positions each; options may ask for a larger context. */
static ln_status open_for(const bench *b, int n_seqs, int64_t n_positions, ln_eng **e, ln_error *err) {
    ln_options o = *b->opt;
    if (o.n_ctx == 0) o.n_ctx = n_positions;
    o.n_parallel = o.n_logits = n_seqs;
    ln_plan plan;
    LN_TRY(ln_eng_plan(b->m, &o, &plan, err));
    if (plan.fits && plan.n_contexts < n_seqs) /* the pool is smaller: some streams would wait for others */
        return ln_fail(err, LN_EMEMORY,
                       "the KV pool holds %lld of %d contexts of %lld positions in the memory that is %s by "
                       "%s; raise it or measure fewer streams",
                       (long long)plan.n_contexts, n_seqs, (long long)plan.n_ctx,
                       strcmp(plan.limit, "ln_options.memory_bytes") == 0 ? "allowed" : "left", plan.limit);
    return ln_eng_open(e, b->m, &o, err);
}

/* Completes a row from b->times and the cost of all steps of one repetition, and reports it. */
static ln_status report(bench *b, ln_bench_row *r, const ln_cost *cost, ln_error *err) {
    double tokens = (double)r->n * r->streams;
    r->tok_s = tokens / ln_median(b->times, b->n_reps);
    r->bytes_token = (cost->weight_bytes + cost->kv_bytes) / tokens;
    r->flops_token = cost->flops / tokens;
    return LN_CALLBACK(b->fn(b->user, r, err));
}

static void add_cost(ln_cost *sum, ln_cost c) {
    sum->flops += c.flops, sum->weight_bytes += c.weight_bytes, sum->kv_bytes += c.kv_bytes;
}

/* Runs one prompt of n tokens: seconds until its logits are computed, and until the first token is chosen. */
static ln_status prompt(const bench *b, ln_eng *e, int64_t n, double *seconds, double *first, ln_error *err) {
    const ln_sampling how = {.top_p = 1, .repeat_penalty = 1, .ignore_eos = true, .n_max = 1};
    const ln_req_options o = {.ids = b->ids, .n_ids = n, .how = &how, .no_cache = true};
    const double start = ln_now();
    ln_req *r;
    LN_TRY(ln_req_new(&r, e, &o, err));
    const ln_status st = ln_req_wait(r, err);
    *first = ln_now() - start;
    *seconds = *first - r->metrics.decode_seconds; /* of the choice */
    ln_req_free(&r);
    return st;
}

static ln_status prefill(bench *b, ln_eng *e, int64_t n, ln_error *err) {
    ln_bench_row row = {.work = LN_WORK_PREFILL, .n = n, .streams = 1};
    ln_cost cost = {0};
    LN_TRY(prompt(b, e, n, &b->times[0], &b->first[0], err)); /* warm-up */
    for (int rep = 0; rep < b->n_reps; rep++) LN_TRY(prompt(b, e, n, &b->times[rep], &b->first[rep], err));
    for (int64_t at = 0, k; at < n; at += k) {
        k = LN_MIN(n - at, e->run->opt.n_chunk);
        ln_bounds live = {k, at + k == n, 1};
        add_cost(&cost, ln_run_cost(e->run, &live, at));
    }
    b->out->first_token_seconds = ln_median(b->first, b->n_reps);
    return report(b, &row, &cost, err);
}

/* ---- decoding ---- */

/* The fewest and the most tokens that any of the streams has generated. */
static void tokens_of(ln_req **r, int n, int64_t *fewest, int64_t *most, int64_t *sum) {
    *fewest = INT64_MAX, *most = *sum = 0;
    for (int s = 0; s < n; s++) {
        const int64_t k = ln_req_look(r[s]).n_generated;
        *fewest = LN_MIN(*fewest, k);
        *most = LN_MAX(*most, k);
        *sum += k;
    }
}

/* Runs the steps from the first in which all streams decode to the last: seconds that row->n tokens of each
 * would have taken. A stream that was ahead by some tokens ends the measurement as much earlier. */
static ln_status stream_steps(ln_eng *e, const ln_bench_row *row, ln_req **r, int64_t n_max, double *seconds,
                              ln_error *err) {
    int64_t fewest, most, before, after;
    double start = 0;
    for (bool begun = false;;) {
        tokens_of(r, row->streams, &fewest, &most, begun ? &after : &before);
        if (fewest > 0 && !begun) begun = true, start = ln_now();
        if (begun && most >= n_max) break;
        LN_TRY(ln_driver_step(e->sched, NULL, err));
    }
    *seconds = (ln_now() - start) * (double)(row->n * row->streams) / (double)LN_MAX(after - before, 1);
    return LN_OK;
}

static ln_status one_stream_run(bench *b, ln_eng *e, const ln_bench_row *row, double *seconds,
                                ln_error *err) {
    ln_req *r[LN_BENCH_STREAMS] = {0};
    const int64_t n_prompt = LN_MAX(row->depth, 1);
    const ln_sampling how = {.size = sizeof(ln_sampling),
                             .top_p = 1,
                             .repeat_penalty = 1,
                             .ignore_eos = true,
                             .n_max = row->depth + row->n - n_prompt + 1};
    ln_status st = LN_OK;
    for (int s = 0; s < row->streams; s++) { /* every stream has a text of its own */
        const ln_req_options o = {.ids = b->ids + s, .n_ids = n_prompt, .how = &how};
        LN_GO(ln_req_new(&r[s], e, &o, err));
    }
    LN_GO(stream_steps(e, row, r, how.n_max, seconds, err));
out:
    for (int s = 0; s < row->streams; s++) ln_req_free(&r[s]);
    return st;
}

/* Decodes row.n tokens of each of row.streams texts, after row.depth others. */
static ln_status decode(bench *b, ln_eng *e, ln_bench_row row, ln_error *err) {
    ln_cost cost = {0};
    for (int rep = 0; rep < b->n_reps; rep++) LN_TRY(one_stream_run(b, e, &row, &b->times[rep], err));
    for (int64_t i = 0; i < row.n; i++) {
        ln_bounds live = {row.streams, row.streams, row.streams};
        add_cost(&cost, ln_run_cost(e->run, &live, row.depth + i));
    }
    return report(b, &row, &cost, err);
}

/* The positions that a measurement may use: the model's, or those of a smaller context that was asked for. */
static int64_t positions(const ln_package *m, const ln_options *opt) {
    return opt->n_ctx > 0 ? LN_MIN(opt->n_ctx, m->spec.n_ctx) : m->spec.n_ctx;
}

static ln_status all_rows(bench *b, const ln_bench_options *how, int64_t n_prefill, ln_error *err) {
    int64_t most = positions(b->m, b->opt), n = LN_MIN((int64_t)DECODE, most), deepest = 0, zero = 0;
    const int64_t *depths = how->n_depths ? how->depths : &zero;
    size_t n_depths = how->n_depths ? how->n_depths : 1;
    ln_status st = LN_OK;
    ln_eng *e = NULL;
    ln_error why;
    for (size_t i = 0; i < n_depths; i++) deepest = LN_MAX(deepest, depths[i]);
    LN_GO(open_for(b, 1, LN_MAX(n_prefill, deepest + n), &e, err));
    b->out->load_seconds = e->load_seconds;
    b->out->n_threads = e->run->info.n_threads;
    b->out->numerics = e->run->opt.numerics;
    memcpy(b->out->isa, e->run->info.isa, sizeof b->out->isa);
    LN_GO(prefill(b, e, n_prefill, err));
    for (size_t i = 0; i < n_depths; i++)
        LN_GO(decode(b, e, (ln_bench_row){LN_WORK_DECODE, n, depths[i], 1, 0, 0, 0}, err));
    for (size_t i = 0; i < how->n_streams; i++) {
        int64_t depth = LN_MIN((int64_t)STREAM_DEPTH, most - n);
        ln_eng_close(&e);
        st = open_for(b, how->streams[i], depth + n, &e, &why);
        if (st == LN_EMEMORY) {
            ln_log(LN_LOG_WARN, "%d stream%s not measured: %s", how->streams[i],
                   how->streams[i] == 1 ? " is" : "s are", why.message);
            st = LN_OK;
            continue;
        }
        if (st != LN_OK) LN_GO(ln_fail(err, st, "%s", why.message));
        LN_GO(decode(b, e, (ln_bench_row){LN_WORK_STREAMS, n, depth, how->streams[i], 0, 0, 0}, err));
    }
out:
    b->out->peak_bytes = ln_memory_peak();
    ln_eng_close(&e);
    return st == LN_ECANCELLED ? LN_OK : st;
}

static ln_status check(const ln_package *m, const ln_options *opt, const ln_bench_options *how,
                       int64_t *n_ids, ln_error *err) {
    int64_t most = positions(m, opt), n = LN_MIN((int64_t)DECODE, most);
    const char *whose =
        most < m->spec.n_ctx ? "the context (ln_options.n_ctx) has" : "the model was made for";
    *n_ids = LN_MAX(how->n_prefill, PREFILL);
    if (how->n_reps < 0 || how->n_reps > REPS_MOST)
        return ln_fail(err, LN_EUSAGE, "ln_bench_options.n_reps %d: expected 1 to %d, or 0 for the default",
                       how->n_reps, REPS_MOST);
    if (how->n_prefill < 0 || how->n_prefill > most)
        return ln_fail(err, LN_EUSAGE, "ln_bench_options.n_prefill %lld: %s %lld positions",
                       (long long)how->n_prefill, whose, (long long)most);
    for (size_t i = 0; i < how->n_depths; i++) {
        if (how->depths[i] < 0 || how->depths[i] > most - n)
            return ln_fail(err, LN_EUSAGE, "ln_bench_options.depths %lld and %lld tokens: %s %lld positions",
                           (long long)how->depths[i], (long long)n, whose, (long long)most);
        *n_ids = LN_MAX(*n_ids, how->depths[i]);
    }
    for (size_t i = 0; i < how->n_streams; i++)
        if (how->streams[i] < 1 || how->streams[i] > LN_BENCH_STREAMS)
            return ln_fail(err, LN_EUSAGE, "ln_bench_options.streams %d: expected 1 to %d", how->streams[i],
                           LN_BENCH_STREAMS);
    *n_ids += LN_BENCH_STREAMS + 1;
    return LN_OK;
}

ln_status ln_bench_model(const ln_package *m, const ln_options *opt, const ln_bench_options *how,
                         ln_bench_fn *fn, void *user, ln_bench_report *out, ln_error *err) {
    int64_t n_ids;
    LN_TRY(check(m, opt, how, &n_ids, err));
    *out = (ln_bench_report){.size = sizeof *out};
    bench *b = ln_zalloc(1, sizeof *b);
    if (!b) return LN_OOM(err, "the times");
    *b = (bench){.m = m,
                 .opt = opt,
                 .fn = fn,
                 .user = user,
                 .out = out,
                 .n_reps = how->n_reps ? how->n_reps : REPS,
                 .ids = ln_eng_random_ids(m, n_ids)};
    ln_status st =
        b->ids ? all_rows(b, how,
                          how->n_prefill ? how->n_prefill : LN_MIN((int64_t)PREFILL, positions(m, opt)), err)
               : LN_OOM(err, "token ids");
    ln_free(b->ids);
    ln_free(b);
    return st;
}
