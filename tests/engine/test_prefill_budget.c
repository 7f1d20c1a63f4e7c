/* How many rows of prompts a step takes while sequences decode (prefill_budget.c), on a simulated machine.
 * The gaps between tokens stay bounded while the decoding sequences grow, rows are not starved, and the bound
 * follows the machine. */
/* run: quick */
#include "../common.h"

static void budget_follows_measured_costs(void **state) {
    (void)state;
    ln_prefill_budget p = {0};
    assert_true(ln_prefill_budget_rows(&p) >= 16);
    for (int i = 0; i < 100; i++)
        ln_prefill_budget_record(&p, 4, 0, i % 10 == 0 ? 5 : 0.030); /* outliers do not count */
    for (int i = 0; i < 50; i++) ln_prefill_budget_record(&p, 4, 100, 0.030 + 100 * 0.001);
    assert_int_equal(ln_prefill_budget_rows(&p), 0); /* a step without them is due */
    p.n_mixed = 0;
    assert_in_range(ln_prefill_budget_rows(&p), 45, 55); /* (30 + 20 ms) / 1 ms */
    ln_prefill_budget_record(&p, 4, 100, 30);            /* the system has interrupted a step */
    assert_true(ln_prefill_budget_rows(&p) > 20);
    for (int i = 0; i < 50; i++) ln_prefill_budget_record(&p, 4, 100, 0.030 + 100 * 0.002); /* deeper */
    p.n_mixed = 0;
    assert_in_range(ln_prefill_budget_rows(&p), 23, 27);
    for (int i = 0; i < 50; i++) ln_prefill_budget_record(&p, 4, 100, 10);
    p.n_mixed = 0;
    assert_int_equal(ln_prefill_budget_rows(&p), 1);
    for (int i = 0; i < 500; i++)
        ln_prefill_budget_record(&p, 4, 100, 0.001); /* faster than a step without them */
    p.n_mixed = 0;
    assert_true(ln_prefill_budget_rows(&p) > 1000);
}

/* What decoding costs is measured again while a prompt is read, so that its rows do not dwindle on a machine
 * that becomes three times slower. They keep half a decode step. */
static void budget_follows_a_slower_machine(void **state) {
    (void)state;
    ln_prefill_budget p = {0};
    int64_t rows = 0;
    for (int i = 0; i < 20; i++) ln_prefill_budget_record(&p, 4, 0, 0.030);
    for (int i = 0; i < 1600; i++) {
        const double slow = i < 800 ? 1 : 3, n = (double)ln_prefill_budget_rows(&p);
        if (n > 0) rows = (int64_t)n;
        ln_prefill_budget_record(&p, 4, (int64_t)n, slow * (0.030 + n * 0.001));
        if (i == 799) assert_in_range(rows, 45, 55); /* (30 + 20 ms) / 1 ms */
    }
    assert_in_range(rows, 13, 16); /* max(2 * 30 + 40 - 90, 90 / 2) ms / 3 ms */
}

/* Four streams decode; their step takes base seconds and grows by `growth` a step. A row of the prompt takes
 * row seconds and grows by `depth` a row before it. */
typedef struct machine {
    double base, growth, row, depth;
    int64_t decode, rows_read, most_rows;
    double longest; /* of the steps since the prompt came */
    int steps;
} machine;

static double step(ln_prefill_budget *budget, machine *m, int64_t n_prefill) {
    const double seconds = m->base + (double)n_prefill * (m->row + m->depth * (double)m->rows_read);
    ln_prefill_budget_record(budget, m->decode, n_prefill, seconds);
    m->rows_read += n_prefill;
    m->base += m->growth;
    m->steps++;
    m->longest = LN_MAX(m->longest, seconds);
    return seconds;
}

/* Decodes alone, then with a prompt of `prompt` rows. */
static void read_prompt(ln_prefill_budget *budget, machine *m, int64_t prompt) {
    for (int i = 0; i < 20; i++) step(budget, m, 0);
    m->longest = 0;
    m->steps = 0;
    m->rows_read = 0;
    step(budget, m,
         LN_MIN(ln_prefill_budget_rows(budget),
                8)); /* the first guess is made before anything was measured */
    while (m->rows_read < prompt && m->steps < 100000)
        step(budget, m, LN_MIN(ln_prefill_budget_rows(budget), prompt - m->rows_read));
    assert_int_equal(m->rows_read, prompt);
}

/* The streams' step grows from 27 to over 60 ms, and a row from 4 to 28 ms: each gap stays below two steps of
 * the beginning and 100 ms. */
static void gaps_stay_bounded(void **state) {
    (void)state;
    ln_prefill_budget budget = {0};
    machine m = {.base = 0.027, .growth = 20e-6, .row = 0.004, .depth = 3e-6, .decode = 4};
    read_prompt(&budget, &m, 8000);
    assert_true(m.base > 0.060);
    assert_true(m.longest <= 2 * 0.027 + 0.100);
}

/* If a step takes long because the model is large, rows of prompts still get as long as decoding. */
static void large_models_read_on(void **state) {
    (void)state;
    ln_prefill_budget budget = {0};
    machine m = {.base = 0.400, .row = 0.050, .decode = 1};
    read_prompt(&budget, &m, 800);
    assert_true(m.steps <= 800 / 7);
    assert_true(m.longest <= 2 * 0.400 + 0.100);
}

/* A prompt that comes later is measured against the streams as they are then. */
static void a_later_prompt(void **state) {
    (void)state;
    ln_prefill_budget budget = {0};
    machine m = {.base = 0.027, .row = 0.002, .decode = 4};
    read_prompt(&budget, &m, 400);
    m.base = 0.200;
    read_prompt(&budget, &m, 2000);
    assert_true(m.steps <= 2000 / (0.200 / 0.002) * 17 / 16 + 5 * 17);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gaps_stay_bounded), cmocka_unit_test(large_models_read_on),
        cmocka_unit_test(budget_follows_measured_costs), cmocka_unit_test(budget_follows_a_slower_machine),
        cmocka_unit_test(a_later_prompt)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
