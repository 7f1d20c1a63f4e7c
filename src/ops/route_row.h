/* The choice of experts of one row (route_op.c), for the reference and for vector levels: written over
 * `real`, `real_exp` and `real_load`, which the file that includes it defines. Loops over experts vectorise.
 * Sums are in order. */
#ifndef LN_ROUTE_ROW_H
#define LN_ROUTE_ROW_H

/* Turns n numbers into their softmax. */
static void softmax(real *s, int64_t n) {
    real max = s[0], sum = 0;
    for (int64_t i = 1; i < n; i++) max = s[i] <= max ? max : s[i];
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) s[i] = real_exp(s[i] - max);
    for (int64_t i = 0; i < n; i++) sum += s[i];
    for (int64_t i = 0; i < n; i++) s[i] = s[i] / sum;
}
/* Scores of all experts. */
static void score(ln_route_kind kind, const real *logits, int64_t X, real *s) {
    for (int64_t x = 0; x < X; x++)
        s[x] = kind == LN_ROUTE_SIGMOID ? 1 / (1 + real_exp(-logits[x])) : logits[x];
    if (kind == LN_ROUTE_SOFTMAX) softmax(s, X);
}

/* Sum of the two largest of n numbers. */
static real top_two(const real *m, int64_t n) {
    real first = -INFINITY, second = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (m[i] > first) second = first, first = m[i];
        else if (m[i] > second) second = m[i];
    }
    return n > 1 ? first + second : first;
}
/* Leaves the merits of the top groups; the others become -INFINITY. */
static void leave_groups(const ln_p_route *p, real *merit, int64_t X) {
    const int64_t n = X / p->n_groups;
    real of_group[LN_ROUTE_EXPERTS];
    for (int g = 0; g < p->n_groups; g++) of_group[g] = top_two(merit + g * n, n);
    for (int g = 0; g < p->n_groups; g++) {
        int before = 0;
        for (int o = 0; o < p->n_groups; o++)
            before += of_group[o] > of_group[g] || (of_group[o] == of_group[g] && o < g);
        for (int64_t i = g * n; before >= p->top_groups && i < (g + 1) * n; i++) merit[i] = -INFINITY;
    }
}
/* Writes the numbers of the top_k experts, ascending. NaN merits are taken in order. */
static void choose(const ln_p_route *p, const ln_arg *bias, const real *s, int64_t X, real *ids) {
    real merit[LN_ROUTE_EXPERTS];
    bool taken[LN_ROUTE_EXPERTS] = {false};
    for (int64_t x = 0; x < X; x++) merit[x] = bias ? s[x] + real_load(bias->data, bias->dtype, x) : s[x];
    if (p->n_groups > 1) leave_groups(p, merit, X);
    for (int k = 0; k < p->top_k; k++) {
        int64_t best = -1;
        for (int64_t x = 0; x < X; x++)
            if (!taken[x] && (best < 0 || merit[x] > merit[best])) best = x;
        taken[best] = true;
    }
    for (int64_t x = 0, k = 0; x < X; x++)
        if (taken[x]) ids[k++] = (real)x;
}

/* Scores of the chosen before norm and scale: [top_k]. */
static void chosen_scores(const ln_p_route *p, const real *s, const real *ids, real *out) {
    for (int k = 0; k < p->top_k; k++) out[k] = s[(int64_t)ids[k]];
    if (p->kind == LN_ROUTE_CHOSEN) softmax(out, p->top_k);
}
static real divisor_of(const ln_p_route *p, const real *s) {
    real sum = 0;
    for (int k = 0; p->normed && k < p->top_k; k++) sum += s[k];
    return p->normed ? sum + (real)p->eps : 1;
}

/* Chooses the experts of a row of X logits. scale: of each expert; NULL: 1. */
static void route_row(const ln_p_route *p, const ln_arg *bias, const ln_arg *scale, const real *logits,
                      int64_t X, real *ids, real *w) {
    real s[LN_ROUTE_EXPERTS];
    score(p->kind, logits, X, s);
    choose(p, bias, s, X, ids);
    chosen_scores(p, s, ids, w);
    const real by = divisor_of(p, w);
    for (int k = 0; k < p->top_k; k++) {
        if (p->normed) w[k] = w[k] / by;
        if (p->factor != 1) w[k] = w[k] * (real)p->factor;
        if (scale) w[k] = w[k] * real_load(scale->data, scale->dtype, (int64_t)ids[k]);
    }
}

#endif
