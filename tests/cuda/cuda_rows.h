/* Cases of ops on rows of two texts (cuda_case.h): the outputs of the CUDA device against those of the
 * reference device, and a row's bits in steps of several sizes. */
#ifndef LN_CUDA_ROWS_H
#define LN_CUDA_ROWS_H

#include "cuda_case.h"

enum { V = 61 /* tokens */ };

/* Rows of a text that ends beyond position 90, and of one that does not. */
static const int rows_of[][2] = {{100, 30}, {1, 0}, {1, 1}, {9, 2}, {60, 20}};

/* What factors may differ by, if the last op has the bits of the reference: PAIR times as much as a product.
 */
static inline double of_factors(const side *s) {
    enum { PAIR = 4 };
    double most = 0;
    const ln_op last = ln_program_node(&s->p, s->p.n_nodes - 1)->op;
    if (last != LN_OP_MUL && last != LN_OP_GATED) return 0;
    for (int i = 0; i < s->p.n_nodes; i++)
        if (ln_program_node(&s->p, i)->op == LN_OP_LINEAR)
            most = LN_MAX(most, ln_program_node(&s->p, i)->tolerance);
    return PAIR * most;
}

/* Runs a step of these rows; returns output k, which the caller frees. */
static inline float *run_rows(side *s, const int rows[2], int k, int64_t *n) {
    const int from[2] = {0};
    set_rows(s, 2, rows, from, V);
    for (int q = 0; q < 2; q++) ln_step_n_prompt(s->step)[q] = rows_of[0][q];
    return run_side(s, k, n);
}
static inline void check_output(const char *what, side *gpu, side *ref, int k, double more) {
    int64_t n, m;
    float *all = run_rows(gpu, rows_of[0], k, &n), *want = run_rows(ref, rows_of[0], k, &m);
    assert_int_equal(n, m);
    compare_outputs(what, want, all, n, tolerance_of(gpu, k) + more + of_factors(gpu));
    for (size_t i = 1; i < LN_COUNT(rows_of); i++) {
        float *got = run_rows(gpu, rows_of[i], k, &n);
        const int64_t each = n / (rows_of[i][0] + rows_of[i][1]); /* numbers of a row of the step */
        if (memcmp(got, all, (size_t)(rows_of[i][0] * each) * sizeof *got) != 0)
            fail_msg("%s: output %d of a step of %d rows has other bits", what, k, gpu->step->n_rows);
        free(got);
    }
    free(all);
    free(want);
}
static inline void check_case(const char *what, const cuda_case *c, double more) {
    side gpu, ref;
    open_side(&gpu, cuda_ops, NULL, c);
    open_side(&ref, &ln_device_ref, &gpu, c);
    for (int k = 0; k < gpu.p.n_outputs; k++) check_output(what, &gpu, &ref, k, more);
    close_side(&gpu);
    close_side(&ref);
}
#endif
