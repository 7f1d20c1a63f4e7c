/* How many rows of prompts a step takes while sequences decode: as many as cost one median decode step and
 * EXTRA seconds, by measured cost.
 *
 * The cost of a row grows with the depth of its prompt and depends on machine and model. So it is an average
 * of the last steps, in which steps of few rows, which mostly pay for reading the weights, count little. */
#include "scheduler.h"

#include <stdlib.h>
#include <string.h>

/* EXTRA: seconds. LEAST_ROWS: fewer would make prompts starve, and cost hardly less. UNKNOWN_ROWS: before
 * anything was measured. FULL_WEIGHT: rows from which on a step has the weight NEWEST in the average. */
#define EXTRA  0.030
#define NEWEST 0.3
enum { LEAST_ROWS = 16, UNKNOWN_ROWS = 64, FULL_WEIGHT = 64, MOST_ROWS = 1 << 20 };

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median time of the last steps without prefill; 0: there were none. */
static double median_decode(const ln_pace *p) {
    double sorted[LN_STEP_TIMES];
    if (p->n_decode == 0) return 0;
    memcpy(sorted, p->decode, (size_t)p->n_decode * sizeof *sorted);
    qsort(sorted, (size_t)p->n_decode, sizeof *sorted, by_size);
    return sorted[p->n_decode / 2];
}

void ln_pace_record(ln_pace *p, int64_t n_decode, int64_t n_prefill, double seconds) {
    if (n_prefill == 0) {
        if (n_decode == 0) return;
        p->decode[p->at_decode] = seconds;
        p->at_decode = (p->at_decode + 1) % LN_STEP_TIMES;
        p->n_decode = LN_MIN(p->n_decode + 1, LN_STEP_TIMES);
        return;
    }
    /* what the step would have taken anyway is not the rows' cost, but they never cost nothing */
    const double base = n_decode > 0 ? LN_MIN(median_decode(p), 0.9 * seconds) : 0;
    const double each = (seconds - base) / (double)n_prefill;
    const double weight = NEWEST * (double)LN_MIN(n_prefill, FULL_WEIGHT) / FULL_WEIGHT;
    p->row_seconds = p->row_seconds > 0 ? p->row_seconds + weight * (each - p->row_seconds) : each;
}

int64_t ln_pace_rows(const ln_pace *p) {
    if (!(p->row_seconds > 0)) return UNKNOWN_ROWS;
    const double rows = (median_decode(p) + EXTRA) / p->row_seconds;
    return rows < LEAST_ROWS ? LEAST_ROWS : rows > MOST_ROWS ? MOST_ROWS : (int64_t)rows;
}
