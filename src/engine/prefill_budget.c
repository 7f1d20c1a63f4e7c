/* How many rows of prompts a step takes while sequences decode: as many as cost one median decode step and
 * EXTRA seconds, by measured cost.
 *
 * The cost of a row grows with the depth of its prompt and depends on machine and model. So it is an average
 * of the last steps, in which steps of few rows, which mostly pay for reading the weights, count little. Deep
 * in a long prompt one row may cost as much as a decode step (its attention reads all positions before it),
 * so a step may take a single row. A step that the system has interrupted counts as SPIKE times the average.
 *
 * While a long prompt is read the decoding sequences grow, and their steps become slower. If the rows' share
 * grew with them, the gap between two tokens would grow twice as fast. So a step with rows of prompts takes
 * no longer than two decode steps and SLACK seconds, counting a decode step as it was when as many sequences
 * as now first decoded together with a prompt. Its rows keep at least half a present decode step.
 *
 * While a long prompt is read every step has rows of it, and what decoding costs alone would become old: if
 * the machine had slowed down since, rows would look expensive and become fewer and fewer. So every
 * REFRESH-th step is left without them. */
#include "../base/median.h"
#include "scheduler.h"

#include <string.h>

/* EXTRA, SLACK: seconds. UNKNOWN_ROWS: before anything was measured. FULL_WEIGHT: rows from which on a step
 * has the weight NEWEST in the average; LEAST_WEIGHT: rows below which it is not reduced further. */
#define EXTRA  0.020
#define SLACK  0.040
#define NEWEST 0.3
enum {
    LEAST_ROWS = 1,
    UNKNOWN_ROWS = 64,
    LEAST_WEIGHT = 8,
    FULL_WEIGHT = 64,
    MOST_ROWS = 1 << 20,
    SPIKE = 4,
    REFRESH = 16
};

/* The median time of the last steps without prefill; 0: there were none. */
static double median_decode(const ln_prefill_budget *p) {
    double times[LN_STEP_TIMES];
    if (p->n_decode == 0) return 0;
    memcpy(times, p->decode, (size_t)p->n_decode * sizeof *times);
    return ln_median(times, p->n_decode);
}

void ln_prefill_budget_record(ln_prefill_budget *p, int64_t n_decode, int64_t n_prefill, double seconds) {
    if (n_prefill == 0) {
        if (n_decode == 0) return;
        if (p->n_mixed == 0) p->start_rows = 0; /* two steps without rows: no prompt is being read */
        p->n_mixed = 0;
        p->decode[p->at_decode] = seconds;
        p->at_decode = (p->at_decode + 1) % LN_STEP_TIMES;
        p->n_decode = LN_MIN(p->n_decode + 1, LN_STEP_TIMES);
        return;
    }
    p->n_mixed = n_decode > 0 ? p->n_mixed + 1 : 0;
    if (p->start_rows != n_decode) {
        p->start_rows = n_decode;
        p->start_seconds = median_decode(p);
    }
    /* what the step would have taken anyway is not the rows' cost, but they never cost nothing */
    const double base = n_decode > 0 ? LN_MIN(median_decode(p), 0.9 * seconds) : 0;
    double each = (seconds - base) / (double)n_prefill;
    if (p->row_seconds > 0) each = LN_MIN(each, SPIKE * p->row_seconds);
    const double rows = (double)LN_MIN(LN_MAX(n_prefill, LEAST_WEIGHT), FULL_WEIGHT);
    p->row_seconds =
        p->row_seconds > 0 ? p->row_seconds + NEWEST * rows / FULL_WEIGHT * (each - p->row_seconds) : each;
}

int64_t ln_prefill_budget_rows(const ln_prefill_budget *p) {
    if (p->n_mixed >= REFRESH - 1) return 0;
    if (!(p->row_seconds > 0)) return UNKNOWN_ROWS;
    const double step = median_decode(p), most = 2 * p->start_seconds + SLACK;
    double seconds = step + EXTRA;
    if (p->start_rows > 0) seconds = LN_MIN(seconds, LN_MAX(most - step, step / 2));
    const double rows = seconds / p->row_seconds;
    return rows < LEAST_ROWS ? LEAST_ROWS : rows > MOST_ROWS ? MOST_ROWS : (int64_t)rows;
}
