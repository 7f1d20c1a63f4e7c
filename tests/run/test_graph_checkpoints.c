/* Parts of a caller's graph whose values are computed again for gradients: less memory, the same bits. */
/* run: quick */
#include "../common.h"
#include "run/user_graph_parts.h"

#include <string.h>

enum { LAYERS = 12, ROWS = 64, D = 32 };

/* Computes the gradients of a deep network. Returns the memory of the program for its values. */
static uint64_t gradients(bool ends_parts, float *loss, float grads[LAYERS][D * D]) {
    const ln_run_options o = {.device = LN_DEVICE_CPU, .n_threads = 1};
    static float X[ROWS * D], W[D * D];
    ln_user_graph *u;
    int32_t wrt[LAYERS];
    float *to[LAYERS];
    OK(ln_user_graph_open(&u, &o, err));
    for (int k = 0; k < ROWS * D; k++) X[k] = (float)(k * 3 % 7 - 3) / 4;
    for (int k = 0; k < D * D; k++) W[k] = (float)(k * 7 % 11 - 5) / 64;
    int32_t h = ln_user_graph_bound(u, false, ROWS, D);
    OK(ln_user_graph_set(u, h, X, err));
    for (int l = 0; l < LAYERS; l++) {
        to[l] = grads[l];
        wrt[l] = ln_user_graph_bound(u, true, D, D);
        OK(ln_user_graph_set(u, wrt[l], W, err));
        int32_t x = ln_user_graph_op(u, LN_USER_MATMUL_NT, h, wrt[l]);
        x = ln_user_graph_op(u, LN_USER_EXP, ln_user_graph_op(u, LN_USER_TANH, x, -1), -1);
        x = ln_user_graph_op(u, LN_USER_SILU, ln_user_graph_op(u, LN_USER_MUL, x, x), -1);
        h = ln_user_graph_op(u, LN_USER_ADD, h, ln_user_graph_rmsnorm(u, x, -1, 1e-5f));
        if (ends_parts) ln_user_graph_checkpoint(u);
    }
    const int32_t y = ln_user_graph_op(u, LN_USER_MEAN, ln_user_graph_op(u, LN_USER_SQUARE, h, -1), -1);
    OK(ln_user_graph_grad(u, y, NULL, wrt, LAYERS, loss, to, err));
    const uint64_t bytes = (uint64_t)u->programs->program.temp_bytes;
    ln_user_graph_close(&u);
    return bytes;
}

static void take_less_memory(void **state) {
    (void)state;
    static float grads[2][LAYERS][D * D];
    float loss[2];
    const uint64_t kept = gradients(false, &loss[0], grads[0]), again = gradients(true, &loss[1], grads[1]);
    print_message("%llu bytes of values, with checkpoints %llu\n", (unsigned long long)kept,
                  (unsigned long long)again);
    assert_true(again < kept / 2);
    assert_true(loss[0] == loss[1] && loss[0] > 0);
    assert_memory_equal(grads[0], grads[1], sizeof grads[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(take_less_memory)};
    return cmocka_run_group_tests_name("checkpoints of graphs", tests, NULL, NULL);
}
