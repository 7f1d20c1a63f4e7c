/* The sampler's order, filters, ties, errors and distribution; and stop texts cut at every byte. */
/* run: quick asan cuda */
#include "../row_sampling.h"
#include "device/cpu/exec.h"

static int32_t pick(const float *logits, int64_t V, const ln_sampling *how, uint64_t seed,
                    const int32_t *hist, int64_t n, int64_t n_gen) {
    ln_sampler *s;
    float *l = malloc((size_t)V * sizeof *l);
    int32_t id = -1, stop = 2;
    memcpy(l, logits, (size_t)V * sizeof *l);
    OK(ln_sampler_open(&s, V, err));
    OK(ln_sample(s, l, how, seed, hist, n, n_gen, &stop, 1, &id, err));
    ln_sampler_close(&s);
    free(l);
    return id;
}
static ln_sampling plain(void) { return (ln_sampling){.top_p = 1, .repeat_penalty = 1, .repeat_last = 64}; }

static void test_greedy(void **s) {
    (void)s;
    const float l[] = {1, 5, 5, 5, -2};
    ln_sampling h = plain();
    assert_int_equal(pick(l, 5, &h, 1, NULL, 0, 0), 1); /* ties: the lowest id */
    h.temperature = 1, h.top_k = 1;
    for (uint64_t seed = 0; seed < 20; seed++) assert_int_equal(pick(l, 5, &h, seed, NULL, 0, 0), 1);
    h.top_k = 0, h.temperature = 1e-30;
    for (uint64_t seed = 0; seed < 20; seed++) {
        int32_t id = pick(l, 5, &h, seed, NULL, 0, 0);
        assert_true(id >= 1 && id <= 3);
    }
    h = plain();
    h.ignore_eos = true;
    const float e[] = {0, 1, 9};
    assert_int_equal(pick(e, 3, &h, 1, NULL, 0, 0), 1);
}

static void test_penalties(void **s) {
    (void)s;
    /* logits [5, -3, 1, 0], history {0, 1, 0}, penalty 2 -> [2.5, -6, 1, 0] */
    const float l[] = {5, -3, 1, 2.6f};
    const int32_t hist[] = {0, 1, 0};
    ln_sampling h = plain();
    h.repeat_penalty = 2;
    assert_int_equal(pick(l, 4, &h, 1, hist, 3, 0), 3); /* 5 / 2 < 2.6: a logit is divided once though its
                                                           token occurs twice */
    h.repeat_last = 1;
    const int32_t hist2[] = {0, 1};
    assert_int_equal(pick(l, 4, &h, 1, hist2, 2, 0), 0); /* only the last token counts */
    h.repeat_last = 0;
    assert_int_equal(pick(l, 4, &h, 1, hist, 3, 0), 0);
    h = plain();
    h.frequency_penalty = 1.5;
    assert_int_equal(pick(l, 4, &h, 1, hist, 3, 0), 0); /* the prompt does not count */
    assert_int_equal(pick(l, 4, &h, 1, hist, 3, 3), 3); /* 5 - 2 * 1.5 */
    h.frequency_penalty = 0, h.presence_penalty = 2.5;
    assert_int_equal(pick(l, 4, &h, 1, hist, 3, 3), 3);
    h = plain();
    ln_logit_bias b = {2, 100};
    h.bias = &b, h.n_bias = 1;
    assert_int_equal(pick(l, 4, &h, 1, NULL, 0, 0), 2);
}

static void test_filters(void **s) {
    (void)s;
    /* probabilities 0.5, 0.25, 0.125, 0.125 */
    const float l[] = {0, -0.6931472f, -1.3862944f, -1.3862944f};
    static const struct {
        double top_p, min_p;
        int top_k, most;
    } rows[] = {{0.4, 0, 0, 0},
                {0.51, 0, 0, 1},
                {0.76, 0, 0, 2},
                {0.999, 0, 0, 3},
                {1, 0, 2, 1},
                {1, 0, 3, 2},
                {1, 0.6, 0, 0},
                {1, 0.4, 0, 1},
                {1, 0.2, 0, 3},
                {0, 0, 0, 0},
                /* top-p is a share of what top-k keeps: 0.667, 0.333 of two; 0.571, 0.286, 0.143 of three */
                {0.6, 0, 2, 0},
                {0.67, 0, 2, 1},
                {0.51, 0, 3, 0},
                {0.58, 0, 3, 1},
                {0.86, 0, 3, 2},
                {0.51, 0, 4, 1},
                {0.51, 0, 9, 1},
                {0.99, 0.3, 3, 1}};
    for (size_t r = 0; r < LN_COUNT(rows); r++) {
        ln_sampling h = plain();
        h.temperature = 1, h.top_p = rows[r].top_p, h.min_p = rows[r].min_p, h.top_k = rows[r].top_k;
        int seen = 0;
        for (uint64_t seed = 0; seed < 400; seed++) {
            int32_t id = pick(l, 4, &h, seed, NULL, 0, 0);
            if (id > rows[r].most) fail_msg("row %zu: token %d is filtered", r, id);
            seen |= 1 << id;
        }
        assert_int_equal(seen, (2 << rows[r].most) - 1); /* every token that is kept is sampled */
    }
}

/* The five likeliest tokens of a model with top_k 5 and top_p 0.5, as transformers samples: of 0.157, 0.154,
 * 0.149, 0.125 and 0.100 the first three have 0.673 of the five. And a share that is reached exactly. */
static void test_top_k_before_top_p(void **s) {
    (void)s;
    static const double p[] = {0.157, 0.154, 0.149, 0.125, 0.1, 0.09, 0.08, 0.07, 0.075};
    float l[LN_COUNT(p)];
    static const float equal[] = {3, 3, 3, 3};
    ln_sampling h = plain();
    int seen = 0;
    for (size_t i = 0; i < LN_COUNT(p); i++) l[i] = (float)ln_log64(p[i]);
    h.temperature = 1, h.top_k = 5, h.top_p = 0.5;
    for (uint64_t seed = 0; seed < 400; seed++) seen |= 1 << pick(l, LN_COUNT(p), &h, seed, NULL, 0, 0);
    assert_int_equal(seen, 7);
    h.top_k = 2, seen = 0;
    for (uint64_t seed = 0; seed < 400; seed++) seen |= 1 << pick(equal, 4, &h, seed, NULL, 0, 0);
    assert_int_equal(seen, 1);
}

/* Chi-squared test over 60,000 samples: 9 degrees of freedom, p = 1e-6 at 43. */
static void test_distribution(void **s) {
    (void)s;
    float l[10];
    double p[10], sum = 0, chi2 = 0;
    int counts[10] = {0}, n = 60000;
    static const int32_t none[60000];
    ln_sampling h = plain();
    h.temperature = 0.7;
    for (int i = 0; i < 10; i++)
        l[i] = (float)((i * 7) % 10) * 0.3f, p[i] = ln_exp64((double)l[i] / 0.7), sum += p[i];
    for (int i = 0; i < n; i++)
        counts[pick(l, 10, &h, 99, none, i, 0)]++; /* the position is the random generator's
                                                      counter */
    for (int i = 0; i < 10; i++) {
        double want = n * p[i] / sum;
        chi2 += (counts[i] - want) * (counts[i] - want) / want;
    }
    print_message("  chi squared %.1f of 43\n", chi2);
    assert_true(chi2 < 43 && chi2 > 0.5);
}

/* The largest of many logits: at every index, with an equal one after it, and with a NaN at any index. */
static void test_greedy_of_many(void **s) {
    (void)s;
    enum { V = 333 };
    float l[V];
    ln_sampler *sm;
    ln_sampling h = plain();
    OK(ln_sampler_open(&sm, V, err));
    for (int at = 0; at < V; at++) {
        int32_t id;
        for (int i = 0; i < V; i++) l[i] = -1e30f + (float)i * 1e22f;
        l[at] = l[V - 1] = 7;
        OK(ln_sample(sm, l, &h, 1, NULL, 0, 0, NULL, 0, &id, err));
        assert_int_equal(id, at);
        l[at] = NAN;
        FAILS(LN_ENUMERIC, "NaN", ln_sample(sm, l, &h, 1, NULL, 0, 0, NULL, 0, &id, err));
    }
    ln_sampler_close(&sm);
}

static int32_t argmax_of(int threads, const float *l, int64_t n) {
    int32_t id;
    ln_cpu_argmax_rows(ln_pool_default(), threads, l, n, n, 1, &id);
    return id;
}
/* Many rows at once have the results of each alone. */
static void test_top_of_rows(void **s) {
    (void)s;
    enum { ROWS = 37, COLS = 1003, PITCH = 1008 };
    static float l[ROWS * PITCH];
    uint64_t seed = 5;
    for (int i = 0; i < ROWS * PITCH; i++) l[i] = test_normal(&seed);
    l[3 * PITCH + 77] = NAN, l[9 * PITCH + COLS] = INFINITY; /* the latter behind the row */
    for (int i = 0; i < COLS; i++) l[20 * PITCH + i] = -INFINITY;
    for (int threads = 1; threads <= 3; threads++) {
        int32_t ids[ROWS];
        OK(ln_pool_reserve(ln_pool_default(), threads, err));
        ln_cpu_argmax_rows(ln_pool_default(), threads, l, PITCH, COLS, ROWS, ids);
        for (int r = 0; r < ROWS; r++)
            assert_int_equal(ids[r], r == 3 || r == 20 ? -1 : (int32_t)ln_argmax(l + r * PITCH, COLS));
    }
}

/* The index of the largest logit that the CPU device finds: the same on any number of threads. */
static void test_top(void **s) {
    (void)s;
    enum { MOST = 40000 };
    static float l[MOST];
    static const int64_t sizes[] = {1, 15, 64, 1000, 16383, 16384, 16400, MOST};
    for (int threads = 1; threads <= 5; threads += 2) {
        OK(ln_pool_reserve(ln_pool_default(), threads, err));
        for (size_t k = 0; k < LN_COUNT(sizes); k++)
            for (int round = 0; round < 60; round++) {
                const int64_t n = sizes[k],
                              at = (int64_t)test_random(&(uint64_t){(uint64_t)(round + 1) * 977}) % n,
                              again = n - 1 - at;
                for (int64_t i = 0; i < n; i++) l[i] = -1e3f - (float)(i % 977);
                l[at] = l[again] = 7; /* the first of equal logits */
                assert_int_equal(argmax_of(threads, l, n), LN_MIN(at, again));
                assert_int_equal(ln_argmax(l, n), LN_MIN(at, again));
                l[at] = NAN;
                assert_int_equal(argmax_of(threads, l, n), -1);
                for (int64_t i = 0; i < n; i++) l[i] = -INFINITY;
                assert_int_equal(argmax_of(threads, l, n), -1);
                l[at] = -3e38f;
                assert_int_equal(argmax_of(threads, l, n), at);
            }
    }
}

static void test_refusals(void **s) {
    (void)s;
    ln_sampler *sm;
    ln_sampling h = plain();
    int32_t id;
    OK(ln_sampler_open(&sm, 3, err));
    float nan[] = {1, NAN, 2}, none[] = {-INFINITY, -INFINITY, -INFINITY}, inf[] = {1, INFINITY, 0};
    FAILS(LN_ENUMERIC, "NaN", ln_sample(sm, nan, &h, 1, NULL, 0, 0, NULL, 0, &id, err));
    FAILS(LN_ENUMERIC, "excluded", ln_sample(sm, none, &h, 1, NULL, 0, 0, NULL, 0, &id, err));
    h.temperature = 1;
    FAILS(LN_ENUMERIC, "infinite", ln_sample(sm, inf, &h, 1, NULL, 0, 0, NULL, 0, &id, err));
    float huge[] = {3e38f, -3e38f, 3e38f};
    OK(ln_sample(sm, huge, &h, 1, NULL, 0, 0, NULL, 0, &id, err));
    assert_true(id == 0 || id == 2);
    ln_sampler_close(&sm);
}

static void test_stop(void **s) {
    (void)s;
    static const char *const stops[] = {"END", "\n\nUser:", "aab"};
    static const struct {
        const char *text, *shown;
        bool hit;
    } rows[] = {{"hello END of it", "hello ", true},
                {"no stop here EN", "no stop here EN", false},
                {"x\n\nUse", "x\n\nUse", false},
                {"x\n\nUser: y", "x", true},
                {"aaab", "a", true},
                {"ENEND", "EN", true},
                {"", "", false},
                {"\n\nUEND", "\n\nU", true}};
    for (size_t r = 0; r < LN_COUNT(rows); r++)
        for (size_t piece = 1; piece <= 5; piece++) {
            ln_stop st;
            ln_str shown = {0};
            size_t n = strlen(rows[r].text);
            ln_stop_open(&st, stops, NULL, LN_COUNT(stops));
            for (size_t at = 0; at < n; at += piece) {
                OK(ln_stop_push(&st, rows[r].text + at, LN_MIN(piece, n - at), err));
                ln_str_add(&shown, st.ready.data, st.ready.len);
                if (!st.hit)
                    assert_true(strncmp(shown.data ? shown.data : "", rows[r].shown, shown.len) ==
                                0); /* never more than what is certain */
            }
            OK(ln_stop_flush(&st, err));
            ln_str_add(&shown, st.ready.data, st.ready.len);
            assert_string_equal(shown.data ? shown.data : "", rows[r].shown);
            assert_int_equal(st.hit, rows[r].hit);
            assert_int_equal(st.shown, strlen(rows[r].shown));
            ln_str_free(&shown);
            ln_stop_close(&st);
        }
}

/* The list of edits for a device gives the token of ln_sample, for random penalties, biases and histories;
 * two biases of one token cannot be listed. */
static void test_edits(void **state) {
    enum { V = 300, N = 80, STOPS = 2, CASES = 400 };
    static const int32_t stops[STOPS] = {4, 290}, list[] = {9, 10, 11};
    static const ln_logit_bias bias[] = {{5, 2.5f}, {9, -INFINITY}, {11, -1.25f}};
    static const ln_id_list words[] = {{.ids = list, .n = 1}, {.ids = list + 1, .n = 2}};
    (void)state;
    ln_sampler *s;
    uint64_t seed = 5;
    int n_listed = 0;
    OK(ln_sampler_open(&s, V, err));
    for (int i = 0; i < CASES; i++) {
        float l[V];
        int32_t history[N], want, got;
        const int64_t n = (int64_t)(test_random(&seed) % N) + 1,
                      made = (int64_t)(test_random(&seed) % (uint64_t)n);
        for (int c = 0; c < V; c++) l[c] = test_normal(&seed) * 3;
        for (int64_t t = 0; t < n; t++) history[t] = (int32_t)(test_random(&seed) % 40);
        ln_sampling h = plain();
        h.temperature = i % 3 ? 0.8 : 0, h.top_k = i % 4 ? 0 : 5;
        if (i & 1) h.repeat_penalty = 1.3, h.repeat_last = i & 2 ? -1 : 20;
        if (i & 4) h.presence_penalty = 0.7, h.frequency_penalty = -0.3;
        if (i & 8) h.bias = bias, h.n_bias = 3;
        if (i & 16) h.ignore_eos = true;
        if (i & 32) h.suppress = list, h.n_suppress = 2, h.begin_suppress = list, h.n_begin_suppress = 3;
        if (i & 64) h.no_repeat_ngram = 2, h.min_new = 10, h.bad_words = words, h.n_bad_words = 2;
        ln_logit_edit e[V];
        const int64_t most = ln_edits_most(&h, V, n, made, STOPS),
                      n_edits = ln_edits_make(s, &h, history, n, made, stops, STOPS, e);
        assert_true(n_edits >= 0 && n_edits <= most);
        n_listed += n_edits > 0;
        const ln_row_sampling r = {.token = -1,
                                   .temperature = (float)h.temperature,
                                   .top_k = h.top_k,
                                   .repeat_penalty = (float)h.repeat_penalty,
                                   .top_p = 1,
                                   .seed = seed,
                                   .position = (uint64_t)n,
                                   .edits = e,
                                   .n_edits = (int32_t)n_edits};
        float copy[V];
        memcpy(copy, l, sizeof l);
        got = sample_row(s, copy, V, &r);
        OK(ln_sample(s, l, &h, seed, history, n, made, stops, STOPS, &want, err));
        assert_int_equal(got, want);
    }
    assert_true(n_listed > CASES / 2);
    const ln_logit_bias twice[] = {{5, 2.5f}, {5, 1}};
    ln_sampling h = plain();
    ln_logit_edit e[V];
    h.bias = twice, h.n_bias = 2;
    assert_int_equal(ln_edits_make(s, &h, NULL, 0, 0, stops, STOPS, e), -1);
    ln_sampler_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_greedy),
                                       cmocka_unit_test(test_penalties),
                                       cmocka_unit_test(test_filters),
                                       cmocka_unit_test(test_top_k_before_top_p),
                                       cmocka_unit_test(test_edits),
                                       cmocka_unit_test(test_distribution),
                                       cmocka_unit_test(test_greedy_of_many),
                                       cmocka_unit_test(test_top),
                                       cmocka_unit_test(test_top_of_rows),
                                       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_stop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
