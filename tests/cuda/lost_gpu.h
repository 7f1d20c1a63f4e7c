/* A small program of a table and a norm, and an error that the driver keeps, which the program provokes by
 * reading an address that is not mapped. */
#ifndef LN_TESTS_LOST_GPU_H
#define LN_TESTS_LOST_GPU_H

#include "cuda_case.h"

enum { V = 97, C = 64, N_NORM_WEIGHTS = 2 };

static inline void build_norm(ln_graph *g, const void *user) {
    (void)user;
    const ln_v x = ln_g_embed(g, "x", ln_g_weight(g, "table", LN_F32, 0, V, C), 1, 0);
    ln_g_output(g, ln_g_rmsnorm(g, "y", x, ln_g_weight(g, "w", LN_F32, 1, C, 0), 1e-6f, 0));
}
/* Opens the program with random weights w, which close_norm frees. */
static inline void open_norm(side *s, case_weight w[N_NORM_WEIGHTS]) {
    uint64_t seed = 3;
    w[0] = random_weight("table", LN_F32, (ln_groups){0}, V, C, &seed);
    w[1] = random_weight("w", LN_F32, (ln_groups){0}, C, 0, &seed);
    const cuda_case c = {.build = build_norm,
                         .policy = LN_POLICY_EXACT,
                         .bounds = {4, 4, 1},
                         .weights = w,
                         .n_weights = N_NORM_WEIGHTS,
                         .n_slots = 1,
                         .n_blocks = 1};
    open_side(s, cuda_ops, NULL, &c);
}
static inline void close_norm(side *s, case_weight w[N_NORM_WEIGHTS]) {
    close_side(s);
    for (size_t i = 0; i < N_NORM_WEIGHTS; i++) free_weight(&w[i]);
}
/* Provokes that error. Each later call of the device in this process fails and says what to do. */
static inline void lose_gpu(void) {
    uint64_t fence;
    case_weight w[N_NORM_WEIGHTS];
    side s;
    open_norm(&s, w);
    s.ops->release(&s.exec);
    for (int i = 0; i < s.p.n_values; i++)
        if (s.p.values[i].kind == LN_KIND_WEIGHT) s.p.values[i].data = (void *)((uintptr_t)1 << 46);
    OK(s.ops->prepare(s.queue, &s.p, s.temp, &s.exec, err));
    set_rows(&s, 1, &(int){3}, &(int){0}, V);
    OK(s.ops->submit(s.exec, s.step, NULL, &fence, err));
    FAILS(LN_EDEVICE, "restart it, or use ln_options.device", s.ops->wait(s.queue, fence, err));
    FAILS(LN_EDEVICE, "device cuda", s.ops->copy(s.queue, s.temp, w[0].data[0], 16, LN_COPY_IN, err));
    close_norm(&s, w);
}

#endif
