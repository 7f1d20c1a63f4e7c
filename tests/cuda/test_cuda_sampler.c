/* Tokens that the CUDA device draws against those of the sampler of the host, for the same logits: all
 * combinations of filters, excluded tokens, ties, rows that are left to the host; and in steps that follow
 * each other, where the device draws ahead. Skipped where there is no GPU. */
/* run: quick cuda */
#include "cuda_case.h"
#include "engine/sampler.h"

enum { ROWS = 12, VOCAB = 151936, STOPS = 2, TIED = 4 };
static const int32_t stops[STOPS] = {7, 150000};

static void build(ln_graph *g, const void *user) {
    (void)user;
    ln_g_output(g, ln_g_gather_rows(g, "y",
                                    ln_g_embed(g, "x", ln_g_weight(g, "table", LN_F32, 0, ROWS, VOCAB), 1)));
}

/* Logits of a kind: three widths of a normal distribution, one with ties, and one of few tokens. */
static void fill_rows(float *table, uint64_t *seed) {
    static const float widths[] = {0.5f, 2, 5, 12};
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < VOCAB; c++) {
            float x = test_normal(seed) * widths[r % 4];
            if (r == TIED) x = roundf(x);          /* thousands of equal logits */
            if (r == 5 && c % 1000) x = -INFINITY; /* few tokens */
            table[(int64_t)r * VOCAB + c] = x;
        }
    table[8 * VOCAB + 7] = 100; /* the likeliest is a stop id */
}

static int32_t on_host(ln_sampler *s, const float *logits, const ln_sampling *how, uint64_t seed, int64_t n) {
    static float copy[VOCAB];
    int32_t *history = calloc((size_t)n, sizeof *history), id = -1;
    memcpy(copy, logits, sizeof copy);
    OK(ln_sample(s, copy, how, seed, history, n, 0, stops, STOPS, &id, err));
    free(history);
    return id;
}

static void run_step(side *s) {
    uint64_t fence;
    OK(s->ops->submit(s->exec, s->step, NULL, &fence, err));
    OK(s->ops->wait(s->queue, fence, err));
}

/* Steps of four rows, each drawn at the next position, so that each step draws ahead of the next. What the
 * device has drawn must not show where the parameters of a row, the rows, or the logits are others. */
static void check_steps(side *s, ln_sampler *sampler, const float *table) {
    enum { STEPS = 7, N = 4, OTHER_HOW = 2, OTHER_SEED = 3, OTHER_ROWS = 4, OTHER_LOGITS = 5 };
    for (int t = 0; t < STEPS; t++) {
        const int first = t == OTHER_ROWS, n = N - first;
        const ln_sampling how = {
            .temperature = t >= OTHER_HOW ? 1.5 : 0.7, .top_p = 0.9, .top_k = 20, .repeat_penalty = 1};
        ln_row_sampling rows[N];
        int32_t ids[N], of[N];
        set_rows(s, 1, &(int){N}, &(int){t * N}, ROWS);
        run_step(s);
        for (int r = 0; r < N; r++) of[r] = ln_step_ids(s->step)[r];
        for (int r = 0; r < N; r++)
            rows[r] = (ln_row_sampling){.temperature = (float)how.temperature,
                                        .top_k = how.top_k,
                                        .top_p = how.top_p,
                                        .seed = r == 1 && t >= OTHER_SEED ? 8 : 7,
                                        .position = (uint64_t)(5 + t),
                                        .excluded = stops};
        if (t == OTHER_LOGITS) {
            of[0] = (of[0] + 1) % ROWS;
            OK(s->ops->value(s->exec, s->p.outputs[0], 0, 1,
                             (float *)(uintptr_t)(table + (int64_t)of[0] * VOCAB), true, err));
        }
        OK(s->ops->sample(s->exec, s->p.outputs[0], first, rows + first, n, ids, err));
        for (int i = 0; i < n; i++) {
            const int r = first + i;
            const int32_t want = on_host(sampler, table + (int64_t)of[r] * VOCAB, &how, rows[r].seed, 5 + t);
            if (ids[i] != want && (ids[i] >= 0 || of[r] != TIED))
                fail_msg("step %d, row %d: %d, expected %d", t, r, ids[i], want);
        }
    }
}

/* How many tokens top-p and min-p keep is not known here. A row may be left to the host only where they are
 * the filters, or where the last token of top-k is one of thousands with the same logit. */
static void draws_are_the_hosts(void **state) {
    (void)state;
    static const struct {
        double temperature, top_p, min_p;
        int top_k;
        bool ignore_eos;
    } hows[] = {{1, 1, 0, 0, false},       {0.7, 1, 0, 0, true},     {1.5, 1, 0, 0, false},
                {0.7, 0.8, 0, 20, false},  {1, 0.95, 0, 0, true},    {1, 1, 0.05, 0, false},
                {0.3, 0.9, 0.1, 50, true}, {1, 1, 0, 1000, false},   {1, 0.5, 0, 0, false},
                {2, 1, 0.02, 40, false},   {0.01, 0.9, 0, 0, false}, {1, 0, 0, 0, false}};
    uint64_t seed = 11;
    case_weight w[] = {random_weight("table", LN_F32, (ln_groups){0}, ROWS, 8, &seed)};
    float *table = malloc((size_t)ROWS * VOCAB * sizeof *table);
    fill_rows(table, &seed);
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
    int left = 0, drawn = 0;
    open_side(&s, cuda_ops, NULL, &c);
    OK(ln_sampler_open(&sampler, VOCAB, err));
    set_rows(&s, 1, &(int){ROWS}, &(int){0}, ROWS);
    run_step(&s);
    for (size_t h = 0; h < LN_COUNT(hows); h++) {
        ln_row_sampling rows[ROWS];
        int32_t ids[ROWS];
        const ln_sampling how = {.temperature = hows[h].temperature,
                                 .top_p = hows[h].top_p,
                                 .min_p = hows[h].min_p,
                                 .top_k = hows[h].top_k,
                                 .repeat_penalty = 1,
                                 .ignore_eos = hows[h].ignore_eos};
        for (int r = 0; r < ROWS; r++)
            rows[r] = (ln_row_sampling){.temperature = (float)how.temperature,
                                        .top_k = how.top_k,
                                        .n_excluded = how.ignore_eos ? STOPS : 0,
                                        .top_p = how.top_p,
                                        .min_p = how.min_p,
                                        .seed = 1000 + h,
                                        .position = 5 + (uint64_t)r,
                                        .excluded = stops};
        OK(s.ops->sample(s.exec, s.p.outputs[0], 0, rows, ROWS, ids, err));
        for (int r = 0; r < ROWS; r++) {
            const int32_t want =
                on_host(sampler, table + (int64_t)ln_step_ids(s.step)[r] * VOCAB, &how, 1000 + h, 5 + r);
            if (ids[r] < 0) {
                if ((how.top_k > 0 && ln_step_ids(s.step)[r] != TIED) ||
                    (how.top_p >= 1 && how.min_p <= 0 && how.top_k <= 0))
                    fail_msg("case %zu, row %d: left to the host", h, r);
                left++;
            } else if (ids[r] != want) fail_msg("case %zu, row %d: %d, expected %d", h, r, ids[r], want);
            else drawn++;
        }
    }
    print_message("%d drawn, %d left to the host\n", drawn, left);
    assert_true(left < drawn / 5);
    check_steps(&s, sampler, table);
    ln_sampler_close(&sampler);
    close_side(&s);
    free_weight(&w[0]);
}

int main(void) {
    if (!cuda_here()) return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(draws_are_the_hosts)};
    return cmocka_run_group_tests_name("cuda_sampler", tests, NULL, NULL);
}
