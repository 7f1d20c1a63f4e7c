/* Tokens that the CUDA device chooses against those of the sampler of the host, for the same logits: all
 * combinations of filters, however many tokens they keep; penalties, biases, forbidden tokens, masks;
 * log-probabilities with lists of the likeliest; ties; rows that are left to the host. Skipped if there is no
 * GPU. */
/* run: quick cuda */
#include "../row_sampling.h"
#include "cuda_case.h"

enum { ROWS = 14, VOCAB = 151936, STOPS = 2, HISTORY = 400, TIED = 4, WITH_NAN = 12, WITH_INFINITY = 13 };
static const int32_t stops[STOPS] = {7, 150000};
static int32_t history[HISTORY];
static float *table; /* [ROWS][VOCAB] */

static void build(ln_graph *g, const void *user) {
    (void)user;
    ln_g_output(g,
                ln_g_gather_rows(g, "y",
                                 ln_g_embed(g, "x", ln_g_weight(g, "table", LN_F32, 0, ROWS, VOCAB), 1, 0)));
}

/* Logits of a kind: four widths of a normal distribution, one with ties, one of few tokens, a NaN, an
 * infinity. */
static void fill_rows(uint64_t *seed) {
    static const float widths[] = {0.5f, 2, 5, 12};
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < VOCAB; c++) {
            float x = test_normal(seed) * widths[r % 4];
            if (r == TIED) x = roundf(x);          /* thousands of equal logits */
            if (r == 5 && c % 1000) x = -INFINITY; /* few tokens */
            table[(int64_t)r * VOCAB + c] = x;
        }
    table[8 * VOCAB + 7] = 100; /* the likeliest is a stop id */
    table[WITH_NAN * VOCAB + 99] = NAN;
    table[WITH_INFINITY * VOCAB + 99] = INFINITY;
}

typedef struct sampler_case {
    double temperature, top_p, min_p;
    int top_k;
    bool ignore_eos, penalties, bias, forbids, mask, logprobs, forced;
} sampler_case;

static ln_sampling sampling_of(const sampler_case *c) {
    static const ln_logit_bias bias[] = {{3, 4.5f}, {11, -INFINITY}, {151935, 7}};
    static const int32_t suppress[] = {17, 18, 19};
    ln_sampling how = {.temperature = c->temperature,
                       .top_p = c->top_p,
                       .top_k = c->top_k,
                       .min_p = c->min_p,
                       .repeat_penalty = 1,
                       .ignore_eos = c->ignore_eos};
    if (c->penalties)
        how.repeat_penalty = 1.2, how.repeat_last = -1, how.presence_penalty = 0.6,
        how.frequency_penalty = 0.1;
    if (c->bias) how.bias = bias, how.n_bias = 3;
    if (c->forbids) how.suppress = suppress, how.n_suppress = 3, how.no_repeat_ngram = 2;
    return how;
}

typedef struct chosen {
    int32_t id;
    double logprob;
    ln_top top[LN_ROW_TOP];
} chosen;
/* What the host chooses from row `of` of the table. */
static chosen on_host(ln_sampler *s, int of, const sampler_case *c, const ln_row_sampling *r) {
    const ln_sampling how = sampling_of(c);
    const float *raw = table + (int64_t)of * VOCAB;
    float *copy = malloc(VOCAB * sizeof *copy);
    chosen x = {.id = r->token};
    double lse = 0;
    memcpy(copy, raw, VOCAB * sizeof *copy);
    if (c->logprobs) {
        OK(ln_log_sum(raw, VOCAB, &lse, err));
        ln_find_top(raw, VOCAB, lse, x.top, (size_t)r->n_top);
    }
    for (int64_t i = 0; r->mask && i < VOCAB; i++)
        if (!(r->mask[i / 64] >> (i % 64) & 1)) copy[i] = -INFINITY;
    if (x.id < 0)
        OK(ln_sample(s, copy, &how, r->seed, history, (int64_t)r->position, (int64_t)r->position / 2, stops,
                     STOPS, &x.id, err));
    x.logprob = (double)raw[x.id] - lse;
    free(copy);
    return x;
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-12 * LN_MAX(1.0, fabs(b)); }
static void compare(size_t number, int of, const sampler_case *c, const chosen *got, const chosen *want,
                    int n_top) {
    if (got->id != want->id) fail_msg("case %zu, row %d: %d, expected %d", number, of, got->id, want->id);
    if (!c->logprobs) return;
    if (!near(got->logprob, want->logprob))
        fail_msg("case %zu, row %d: log-probability %.17g, expected %.17g", number, of, got->logprob,
                 want->logprob);
    for (int k = 0; k < n_top; k++)
        if (got->top[k].id != want->top[k].id || !near(got->top[k].logprob, want->top[k].logprob))
            fail_msg("case %zu, row %d: place %d of the likeliest is %d (%.17g), expected %d (%.17g)", number,
                     of, k, got->top[k].id, got->top[k].logprob, want->top[k].id, want->top[k].logprob);
}

/* A random mask of a tenth of the tokens. */
static uint64_t *random_mask(uint64_t *seed) {
    uint64_t *mask = calloc((VOCAB + 63) / 64, sizeof *mask);
    for (int c = 0; c < VOCAB; c++)
        if (test_random(seed) % 10 == 0) mask[c / 64] |= UINT64_C(1) << (c % 64);
    return mask;
}

/* Runs a step of all rows, and chooses from each; `early`: before the step has been waited for. */
static void check_case(side *s, ln_sampler *sampler, const sampler_case *c, size_t number, bool early) {
    ln_row_sampling rows[ROWS];
    static ln_logit_edit edits[ROWS][VOCAB];
    chosen got[ROWS];
    int32_t ids[ROWS];
    uint64_t fence, seed = 99 + number;
    uint64_t *mask = random_mask(&seed);
    const ln_sampling how = sampling_of(c);
    for (int r = 0; r < ROWS; r++) {
        const int64_t n = 5 + r * 28;
        rows[r] = (ln_row_sampling){.row = ROWS - 1 - r,
                                    .token = c->forced ? r * 1000 : -1,
                                    .temperature = (float)how.temperature,
                                    .top_k = how.top_k,
                                    .repeat_penalty = (float)how.repeat_penalty,
                                    .top_p = how.top_p,
                                    .min_p = how.min_p,
                                    .seed = 1000 + number,
                                    .position = (uint64_t)n,
                                    .mask = c->mask ? mask : NULL,
                                    .edits = edits[r]};
        if (!c->forced)
            rows[r].n_edits =
                (int32_t)ln_edits_make(sampler, &how, history, n, n / 2, stops, STOPS, edits[r]);
        if (c->logprobs)
            rows[r].logprob = &got[r].logprob, rows[r].top = got[r].top, rows[r].n_top = r % (LN_ROW_TOP + 1);
    }
    OK(s->ops->submit(s->exec, s->step, NULL, &fence, err));
    if (!early) OK(s->ops->wait(s->queue, fence, err));
    OK(s->ops->sample(s->exec, s->p.outputs[0], rows, ROWS, ids, err));
    if (early) OK(s->ops->wait(s->queue, fence, err));
    for (int r = 0; r < ROWS; r++) {
        const int of = ln_step_ids(s->step)[rows[r].row];
        got[r].id = ids[r];
        /* a greedy choice among finite logits is the same with a masked NaN */
        if (of >= WITH_NAN) {
            if (!c->forced && !c->mask && ids[r] >= 0 && of == WITH_NAN) fail_msg("case %zu: a NaN", number);
            continue;
        }
        const chosen want = on_host(sampler, of, c, &rows[r]);
        compare(number, of, c, &got[r], &want, rows[r].n_top);
    }
    float *back = malloc(VOCAB * sizeof *back);
    for (int r = 0; r < ROWS; r++) {                       /* the edits are undone */
        if (ln_step_ids(s->step)[r] == WITH_NAN) continue; /* whose bits the embedding may change */
        OK(s->ops->value(s->exec, s->p.outputs[0], r, 1, back, false, err));
        assert_memory_equal(back, table + (int64_t)ln_step_ids(s->step)[r] * VOCAB, VOCAB * sizeof *back);
    }
    free(back);
    free(mask);
}

static void choices_are_the_hosts(void **state) {
    static const sampler_case cases[] = {
        {1, 1, 0, 0},
        {0.7, 1, 0, 0, .ignore_eos = true},
        {1.5, 1, 0, 0},
        {0.7, 0.8, 0, 20},
        {1, 0.95, 0, 0, .ignore_eos = true},
        {1, 1, 0.05, 0},
        {0.3, 0.9, 0.1, 50, .ignore_eos = true},
        {1, 1, 0, 1000},
        {1, 1, 0, 40000},
        {1, 0.5, 0, 0},
        {2, 1, 0.02, 40},
        {0.01, 0.9, 0, 0},
        {1, 0, 0, 0},
        {1, 0.999999, 0, 0},
        {1.5, 0.97, 0.0001, 100000, .mask = true},
        {1, 0.9, 0.001, 0, .penalties = true},
        {0, 1, 0, 0, .penalties = true},
        {0, 1, 0, 0, .logprobs = true},
        {0, 1, 0, 0, .mask = true, .ignore_eos = true},
        {0.7, 0.8, 0, 20, .penalties = true, .bias = true, .forbids = true, .logprobs = true},
        {0.7, 0.8, 0, 20, .mask = true, .bias = true, .logprobs = true},
        {1, 1, 0, 0, .mask = true, .penalties = true, .ignore_eos = true},
        {0.7, 0.8, 0, 20, .forced = true, .logprobs = true}};
    uint64_t seed = 11;
    (void)state;
    case_weight w[] = {random_weight("table", LN_F32, (ln_groups){0}, ROWS, 8, &seed)};
    table = malloc((size_t)ROWS * VOCAB * sizeof *table);
    fill_rows(&seed);
    for (int i = 0; i < HISTORY; i++) history[i] = (int32_t)(test_random(&seed) % (i % 2 ? 50 : VOCAB));
    free(w[0].data[0]);
    w[0].data[0] = table;
    w[0].host.data = table, w[0].host.n_cols = w[0].desc.dims[1] = VOCAB;
    const cuda_case c = {.build = build,
                         .policy = LN_POLICY_EXACT,
                         .bounds = {ROWS, ROWS, 1},
                         .weights = w,
                         .n_weights = 1,
                         .n_slots = 1,
                         .n_blocks = 1};
    side s;
    ln_sampler *sampler;
    open_side(&s, cuda_ops, NULL, &c);
    OK(ln_sampler_open(&sampler, VOCAB, err));
    set_rows(&s, 1, &(int){ROWS}, &(int){0}, ROWS);
    for (size_t i = 0; i < LN_COUNT(cases); i++) check_case(&s, sampler, &cases[i], i, i % 2 == 1);
    ln_sampler_close(&sampler);
    close_side(&s);
    free_weight(&w[0]);
}

int main(void) {
    if (!cuda_here()) return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(choices_are_the_hosts)};
    return cmocka_run_group_tests_name("cuda_sampler", tests, NULL, NULL);
}
