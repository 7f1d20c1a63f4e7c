/* linnet bench --backend NAME: tokens per second of a backend, by its own clock. There is no roofline: what a
 * backend reads and computes for a token is not known. */
#include "cli.h"

#include "../base/c_locale.h"

#include <stdio.h>
#include <stdlib.h>

enum { DECODED = 64, PREFILL = 512, REPS = 5 };

typedef struct bench_run {
    const args *a;
    ln_backend_model *model;
    ln_info info;
    int n_reps;
    ln_str rows; /* of the table, or of the JSON array */
    double first_token_seconds, load_seconds;
    uint64_t peak_bytes;
} bench_run;

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_size);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Answers a prompt of n pseudo-random tokens with n_max tokens. */
static ln_status answer(bench_run *b, int64_t n, int64_t n_max, ln_metrics *m, ln_error *err) {
    ln_sampling how = {.size = sizeof(ln_sampling),
                       .top_p = 1,
                       .repeat_penalty = 1,
                       .n_max = n_max,
                       .ignore_eos = true,
                       .has_seed = true};
    ln_result r = {.size = sizeof r};
    uint64_t state = 1;
    int32_t *ids = ln_alloc((size_t)n * sizeof *ids);
    if (!ids) return LN_OOM(err, "a prompt");
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((state >> 33) % (uint64_t)LN_MAX(b->info.vocab_size, 1));
    }
    const ln_prompt p = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = (size_t)n};
    ln_status st = ln_backend_generate(b->model, &p, &how, NULL, NULL, &r, err);
    if (st == LN_OK && r.finish == LN_FINISH_CANCELLED) st = ln_fail(err, LN_ECANCELLED, "stopped");
    *m = r.metrics;
    b->peak_bytes = LN_MAX(b->peak_bytes, m->peak_bytes);
    ln_result_free(&r);
    ln_free(ids);
    return st;
}

static void add_row(bench_run *b, const char *work, int64_t n, int64_t depth, double tok_s) {
    ln_str *s = &b->rows;
    char name[64], more[32] = "";
    if (has(b->a, F_JSON)) {
        ln_str_adds(s, s->len > 0 ? ",{" : "{");
        put_text(s, "work", work);
        put_int(s, "n", n);
        put_int(s, "depth", depth);
        put_int(s, "streams", 1);
        put_real(s, "tok_s", tok_s);
        ln_str_adds(s, "}");
        return;
    }
    if (depth > 0) (void)snprintf(more, sizeof more, " @ d%lld", (long long)depth);
    (void)snprintf(name, sizeof name, "%s%lld%s", work[0] == 'p' ? "pp" : "tg", (long long)n, more);
    ln_str_addf(s, "%-24s %10.1f\n", name, tok_s);
}

/* The prompt once without timing, then n_reps times. */
static ln_status run_prefill(bench_run *b, ln_error *err) {
    const int64_t wanted = has(b->a, F_PREFILL) ? b->a->flag[F_PREFILL].i : PREFILL;
    const int64_t n = b->info.n_ctx_max > 0 ? LN_MIN(wanted, b->info.n_ctx_max) : wanted;
    double tok_s[1000], first[1000];
    ln_metrics m;
    LN_TRY(answer(b, n, 1, &m, err));
    for (int i = 0; i < b->n_reps; i++) {
        LN_TRY(answer(b, n, 1, &m, err));
        tok_s[i] = m.prefill_tok_s;
        first[i] = m.first_token_seconds;
    }
    b->first_token_seconds = median(first, b->n_reps);
    add_row(b, "prefill", n, 0, median(tok_s, b->n_reps));
    return LN_OK;
}

static ln_status run_decode(bench_run *b, int64_t depth, ln_error *err) {
    double tok_s[1000];
    ln_metrics m;
    for (int i = 0; i < b->n_reps; i++) {
        LN_TRY(answer(b, LN_MAX(depth, 1), DECODED, &m, err));
        tok_s[i] = m.decode_tok_s;
    }
    add_row(b, "decode", DECODED, depth, median(tok_s, b->n_reps));
    return LN_OK;
}

static ln_status print(bench_run *b, ln_error *err) {
    ln_str s = {0};
    char peak[32];
    const char *name = b->a->flag[F_BACKEND].text;
    const char *rows = b->rows.data ? b->rows.data : "";
    if (b->rows.failed) return LN_OOM(err, "the rows");
    if (has(b->a, F_JSON)) {
        ln_str_addf(&s, "{\"rows\":[%s]", rows);
        put_uint(&s, "peak_bytes", b->peak_bytes);
        put_real(&s, "load_seconds", b->load_seconds);
        put_real(&s, "first_token_seconds", b->first_token_seconds);
        put_text(&s, "backend", name);
        ln_str_adds(&s, "}\n");
        return out_str(&s, err);
    }
    ln_str_addf(&s, "%-24s %10s\n%s", "test", "tok/s", rows);
    ln_str_addf(&s, "\nload %.3f s, first token %.3f s, peak memory %s\nbackend %s, %s\n", b->load_seconds,
                b->first_token_seconds, bytes_text(peak, b->peak_bytes), name, b->info.dtype);
    return out_str(&s, err);
}

ln_status bench_backend(const args *a, ln_error *err) {
    bench_run *b = ln_zalloc(1, sizeof *b);
    ln_status st;
    const flag_value *depth = &a->flag[F_DEPTH];
    if (!b) return LN_OOM(err, "a benchmark");
    b->a = a;
    b->n_reps = has(a, F_REPS) ? (int)a->flag[F_REPS].i : REPS;
    const double begin = ln_now();
    LN_GO(backend_open(a, a->model, &b->model, err));
    b->load_seconds = ln_now() - begin;
    b->info.size = sizeof b->info;
    LN_GO(ln_backend_info(b->model, &b->info, err));
    signals_working_on(b->model);
    LN_GO(run_prefill(b, err));
    if (depth->n_list == 0) LN_GO(run_decode(b, 0, err));
    for (size_t i = 0; i < depth->n_list; i++) LN_GO(run_decode(b, depth->list[i], err));
    LN_GO(print(b, err));
out:
    signals_working_on(NULL);
    ln_backend_close(&b->model);
    ln_str_free(&b->rows);
    ln_free(b);
    return st;
}
