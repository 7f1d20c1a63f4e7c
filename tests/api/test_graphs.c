/* Graphs of the public API: known values and gradients, losses, AdamW, Jacobian products, mistakes. The first
 * vectors are those of go-mlx, which linnet's users come from. */
/* run: quick cuda */
#include <linnet.h>
#include <linnet_train.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define OK(x)                                                                    \
    do {                                                                         \
        ln_error e_ = {0};                                                       \
        ln_error *err = &e_;                                                     \
        ln_status s_ = (x);                                                      \
        if (s_ != LN_OK) fail_msg("%s: status %d: %s", #x, (int)s_, e_.message); \
    } while (0)
#define FAILS(status, word, x)                                                                           \
    do {                                                                                                 \
        ln_error e_ = {0};                                                                               \
        ln_error *err = &e_;                                                                             \
        ln_status s_ = (x);                                                                              \
        if (s_ != (status))                                                                              \
            fail_msg("%s: status %d, expected %d: %s", #x, (int)s_, (int)(status), e_.message);          \
        if (!strstr(e_.message, word)) fail_msg("%s: the message lacks '%s': %s", #x, word, e_.message); \
    } while (0)

/* The reference, and the CPU or, with LN_TEST_DEVICE=cuda, the GPU. */
static ln_device devices[] = {LN_DEVICE_REF, LN_DEVICE_CPU};
__attribute__((constructor)) static void set_device(void) {
    const char *name = getenv("LN_TEST_DEVICE");
    if (name && strcmp(name, "cuda") == 0) devices[1] = LN_DEVICE_CUDA;
}
static ln_graph *new_graph(ln_device device) {
    ln_options o = ln_options_default();
    ln_graph *g = NULL;
    o.device = device;
    OK(ln_graph_new(&g, &o, err));
    return g;
}
static int32_t scalar(ln_graph *g, float x) {
    const int32_t v = ln_graph_trainable(g, 1, 1);
    OK(ln_graph_set(g, v, &x, err));
    return v;
}
static void expect(ln_graph *g, int32_t y, const int32_t *wrt, size_t n, float value, const float *grads) {
    float got, d[4];
    float *to[4] = {d, d + 1, d + 2, d + 3};
    for (int again = 0; again < 2; again++) {
        OK(ln_graph_value_and_grad(g, y, wrt, n, &got, to, err));
        assert_true(got == value);
        for (size_t i = 0; i < n; i++) assert_true(d[i] == grads[i]);
    }
}

static void scalars_have_the_known_gradients(void **s) {
    (void)s;
    for (size_t i = 0; i < 2; i++) {
        ln_graph *g = new_graph(devices[i]);
        const int32_t x = scalar(g, 3), y = scalar(g, 4), one = scalar(g, 1);
        const int32_t both[] = {x, y};
        expect(g, ln_graph_square(g, x), &x, 1, 9, (float[]){6});
        expect(g, ln_graph_add(g, x, y), both, 2, 7, (float[]){1, 1});
        expect(g, ln_graph_square(g, ln_graph_add(g, x, one)), &x, 1, 16, (float[]){8});
        expect(g, ln_graph_mul(g, x, y), both, 2, 12, (float[]){4, 3});
        expect(g, ln_graph_sub(g, x, y), both, 2, -1, (float[]){1, -1});
        expect(g, ln_graph_scale(g, x, 2), both, 2, 6, (float[]){2, 0}); /* y does not occur */
        ln_graph_free(&g);
        assert_null(g);
    }
}

static void matrices_have_the_known_gradients(void **s) {
    (void)s;
    for (size_t i = 0; i < 2; i++) {
        ln_graph *g = new_graph(devices[i]);
        const int32_t W = ln_graph_trainable(g, 2, 2), x = ln_graph_input(g, 2, 1);
        OK(ln_graph_set(g, W, (float[]){1, 0, 0, 1}, err));
        OK(ln_graph_set(g, x, (float[]){1, 2}, err));
        const int32_t y = ln_graph_sum(g, ln_graph_matmul(g, W, x));
        float value, dW[4], *to[] = {dW};
        OK(ln_graph_value_and_grad(g, y, &W, 1, &value, to, err));
        assert_true(value == 3 && dW[0] == 1 && dW[1] == 2 && dW[2] == 1 && dW[3] == 2);
        const int32_t v = ln_graph_trainable(g, 1, 3);
        OK(ln_graph_set(g, v, (float[]){1, 2, 3}, err));
        OK(ln_graph_value_and_grad(g, ln_graph_sum(g, ln_graph_square(g, v)), &v, 1, &value, to, err));
        assert_true(value == 14 && dW[0] == 2 && dW[1] == 4 && dW[2] == 6);
        ln_graph_free(&g);
    }
}

static void losses_have_the_known_values(void **s) {
    (void)s;
    for (size_t i = 0; i < 2; i++) {
        ln_graph *g = new_graph(devices[i]);
        float value, grad[6], *to[] = {grad};
        const int32_t logits = ln_graph_trainable(g, 1, 3), label = ln_graph_labels(g, 1);
        OK(ln_graph_set(g, logits, (float[]){1, 2, 3}, err));
        OK(ln_graph_set_labels(g, label, (int32_t[]){2}, err));
        OK(ln_graph_value_and_grad(g, ln_graph_cross_entropy(g, logits, label), &logits, 1, &value, to, err));
        assert_true(fabs((double)value - 0.40760596) < 1e-6);
        assert_true(fabs((double)grad[0] - 0.09003057) < 1e-6 && fabs((double)grad[2] + 0.33475904) < 1e-6);
        const int32_t two = ln_graph_trainable(g, 2, 3), labels = ln_graph_labels(g, 2),
                      mask = ln_graph_input(g, 2, 1);
        OK(ln_graph_set(g, two, (float[]){1, 2, 3, 5, 5, 5}, err));
        OK(ln_graph_set_labels(g, labels, (int32_t[]){2, 0}, err));
        OK(ln_graph_set(g, mask, (float[]){1, 0}, err));
        const int32_t masked = ln_graph_masked_cross_entropy(g, two, labels, mask);
        OK(ln_graph_value_and_grad(g, masked, &two, 1, &value, to, err));
        assert_true(fabs((double)value - 0.40760596) < 1e-6 && grad[3] == 0 && grad[5] == 0);
        OK(ln_graph_value_and_grad(g, ln_graph_cross_entropy(g, two, labels), NULL, 0, &value, NULL, err));
        assert_true(fabs((double)value - (0.40760596 + log(3)) / 2) < 1e-6);
        OK(ln_graph_set(g, mask, (float[]){0, 0}, err));
        FAILS(LN_EINVALID, "mask", ln_graph_value_and_grad(g, masked, &two, 1, &value, to, err));
        OK(ln_graph_set_labels(g, labels, (int32_t[]){2, 3}, err));
        FAILS(LN_EINVALID, "label 1",
              ln_graph_value_and_grad(g, ln_graph_cross_entropy(g, two, labels), &two, 1, &value, to, err));
        const int32_t a = ln_graph_input(g, 2, 2), b = ln_graph_input(g, 2, 2);
        OK(ln_graph_set(g, a, (float[]){1, 2, 3, 4}, err));
        OK(ln_graph_set(g, b, (float[]){1.5f, 2.5f, 3.5f, 4.5f}, err));
        OK(ln_graph_value_and_grad(g, ln_graph_mse(g, a, b), NULL, 0, &value, NULL, err));
        assert_true(value == 0.25f);
        ln_graph_free(&g);
    }
}

static void adamw_minimises_and_decays(void **s) {
    (void)s;
    ln_graph *g = new_graph(devices[1]);
    const int32_t x = scalar(g, 10), y = ln_graph_square(g, x), p = scalar(g, 1);
    float value, grad, *to[] = {&grad};
    const float *from[] = {&grad};
    ln_adamw how = ln_adamw_default();
    assert_true(how.lr == 1e-5 && how.weight_decay == 0.01 && how.beta2 == 0.999);
    how.lr = 0.1;
    for (int step = 0; step < 300; step++) {
        OK(ln_graph_value_and_grad(g, y, &x, 1, &value, to, err));
        if (step == 0) assert_true(value == 100);
        OK(ln_graph_adamw(g, &how, &x, from, 1, err));
    }
    OK(ln_graph_get(g, x, &value, err));
    assert_true(fabsf(value) < 0.5f);
    OK(ln_graph_adamw_reset(g, err));
    how.lr = 0.01, how.weight_decay = 0.5, grad = 0;
    double want = 1;
    for (int step = 0; step < 10; step++) {
        OK(ln_graph_adamw(g, &how, &p, from, 1, err));
        want = (double)(float)(want * (1 - 0.01 * 0.5));
    }
    OK(ln_graph_get(g, p, &value, err));
    assert_true(value > 0 && value < 1 && fabs((double)value - want) < 1e-6);
    ln_graph_free(&g);
}

/* A step that would store NaN or infinity is rejected, and changes neither values nor moments nor t. */
static void adamw_keeps_values_finite(void **s) {
    (void)s;
    static const float bad[] = {NAN, INFINITY, -INFINITY, 1e30f};
    ln_graph *g = new_graph(devices[1]), *fresh = new_graph(devices[1]);
    const int32_t x = scalar(g, 10), y = scalar(g, 2), xy[] = {x, y}, twice[] = {x, x};
    const int32_t fx = scalar(fresh, 10), fy = scalar(fresh, 2), fxy[] = {fx, fy};
    float good = 0.5f, wrong, value, want;
    const float *const mixed[] = {&good, &wrong}, *const grads[] = {&good, &good};
    ln_adamw how = ln_adamw_default();
    how.lr = 0.1;
    for (int step = 0; step < 4; step++) {
        wrong = bad[step];
        FAILS(LN_ENUMERIC, "NaN or infinite", ln_graph_adamw(g, &how, xy, mixed, 2, err));
        OK(ln_graph_adamw(g, &how, xy, grads, 2, err));
        OK(ln_graph_adamw(fresh, &how, fxy, grads, 2, err));
    }
    how.lr = 1e300;
    FAILS(LN_ENUMERIC, "lr", ln_graph_adamw(g, &how, xy, grads, 2, err));
    FAILS(LN_EUSAGE, "twice", ln_graph_adamw(g, &how, twice, grads, 2, err));
    OK(ln_graph_get(g, x, &value, err));
    OK(ln_graph_get(fresh, fx, &want, err));
    assert_true(value == want);
    OK(ln_graph_get(g, y, &value, err));
    OK(ln_graph_get(fresh, fy, &want, err));
    assert_true(value == want);
    ln_graph_free(&g);
    ln_graph_free(&fresh);
}

/* v . (J t), by both products, for a graph of all ops with a rule. */
static void jacobian_products_agree(void **s) {
    (void)s;
    for (size_t i = 0; i < 2; i++) {
        ln_graph *g = new_graph(devices[i]);
        const int32_t a = ln_graph_trainable(g, 2, 3), b = ln_graph_trainable(g, 3, 4),
                      labels = ln_graph_labels(g, 2);
        float A[6], B[12], tA[6], tB[12], v[8] = {1, -2, 0.5f, 1, 3, 0.25f, -1, 2}, y[8], ty[8], dA[6],
                                          dB[12];
        for (int k = 0; k < 12; k++) {
            B[k] = (float)(k * 7 % 5 - 2) / 4, tB[k] = (float)(k % 3 - 1) / 2;
            if (k < 6) A[k] = (float)(k * 5 % 7 - 3) / 4, tA[k] = (float)(k % 4 - 1) / 2;
        }
        OK(ln_graph_set(g, a, A, err));
        OK(ln_graph_set(g, b, B, err));
        OK(ln_graph_set_labels(g, labels, (int32_t[]){1, 3}, err));
        const int32_t m = ln_graph_matmul(g, ln_graph_silu(g, a), b), wrt[] = {a, b};
        const int32_t z = ln_graph_mul(g, ln_graph_softmax(g, m),
                                       ln_graph_gelu(g, ln_graph_sub(g, m, ln_graph_square(g, m))));
        const float *tangents[] = {tA, tB};
        float *grads[] = {dA, dB};
        OK(ln_graph_jvp(g, z, wrt, tangents, 2, y, ty, err));
        OK(ln_graph_vjp(g, z, v, wrt, 2, y, grads, err));
        double forward = 0, reverse = 0;
        for (int k = 0; k < 8; k++) forward += (double)v[k] * (double)ty[k];
        for (int k = 0; k < 12; k++)
            reverse += (double)tB[k] * (double)dB[k] + (k < 6 ? (double)tA[k] * (double)dA[k] : 0);
        if (!(fabs(forward - reverse) < 1e-5)) fail_msg("v (J t) is %.9g, (v J) t %.9g", forward, reverse);
        assert_true(fabs(forward) > 0.01);
        /* of a loss: the tangent is the gradient times the direction */
        const int32_t loss = ln_graph_cross_entropy(g, m, labels);
        OK(ln_graph_jvp(g, loss, wrt, tangents, 2, y, ty, err));
        OK(ln_graph_value_and_grad(g, loss, wrt, 2, y, grads, err));
        reverse = 0;
        for (int k = 0; k < 12; k++)
            reverse += (double)tB[k] * (double)dB[k] + (k < 6 ? (double)tA[k] * (double)dA[k] : 0);
        assert_true(fabs((double)ty[0] - reverse) < 1e-5);
        ln_graph_free(&g);
    }
}

/* Values of the builders of networks against those worked out by hand, and v . (J t) by both products. */
static void networks_are_differentiated(void **s) {
    (void)s;
    for (size_t i = 0; i < 2; i++) {
        ln_graph *g = new_graph(devices[i]);
        const int32_t x = ln_graph_trainable(g, 3, 2), w = ln_graph_trainable(g, 4, 2),
                      b = ln_graph_trainable(g, 1, 4), n = ln_graph_trainable(g, 1, 4),
                      y = ln_graph_input(g, 3, 1), wrt[] = {x, w, b, n};
        float X[6] = {0.5f, -1, 2, 0.25f, -0.75f, 1.5f}, W[8] = {1, -0.5f, 0.25f, 2, -1, 0.75f, 0.5f, 1},
              B[4] = {0.1f, -0.2f, 0.3f, 0.4f}, N[4] = {1, 0.5f, -2, 1.5f}, Y[3] = {1, 0, 0.25f}, value[12],
              tangent[12];
        float tX[6] = {1, 0, -1, 0.5f, 2, 1}, tW[8] = {0, 1, 0.5f, -1, 1, 0, 2, -0.5f},
              tB[4] = {1, -1, 0.5f, 0}, tN[4] = {0.5f, 1, -1, 0}, dX[6], dW[8], dB[4], dN[4];
        const float *tangents[] = {tX, tW, tB, tN};
        float *grads[] = {dX, dW, dB, dN};
        static const size_t sizes[] = {6, 8, 4, 4};
        OK(ln_graph_set(g, x, X, err));
        OK(ln_graph_set(g, w, W, err));
        OK(ln_graph_set(g, b, B, err));
        OK(ln_graph_set(g, n, N, err));
        OK(ln_graph_set(g, y, Y, err));
        const int32_t h = ln_graph_add(g, ln_graph_matmul_nt(g, x, w), ln_graph_spread(g, b, 3, 4));
        const int32_t parts[] = {ln_graph_relu(g, h),
                                 ln_graph_tanh(g, h),
                                 ln_graph_sigmoid(g, h),
                                 ln_graph_clamp(g, h, -1, 0.5f),
                                 ln_graph_rmsnorm(g, h, n, 1e-5f),
                                 ln_graph_transpose(g, h),
                                 ln_graph_concat(g, ln_graph_slice(g, h, 2, 2), ln_graph_slice(g, h, 0, 2)),
                                 ln_graph_mul(g, h, ln_graph_spread(g, ln_graph_row_sums(g, h), 3, 4)),
                                 ln_graph_mul(g, h, ln_graph_spread(g, ln_graph_column_sums(g, h), 3, 4)),
                                 ln_graph_matmul_tn(g, h, h),
                                 ln_graph_binary_cross_entropy(g, ln_graph_slice(g, h, 1, 1), y)};
        float H[12];
        OK(ln_graph_jvp(g, h, wrt, tangents, 4, H, tangent, err));
        for (int k = 0; k < 12; k++) { /* the sums by hand */
            const int r = k / 4, c = k % 4;
            const float want = X[2 * r] * W[2 * c] + X[2 * r + 1] * W[2 * c + 1] + B[c];
            assert_true(fabsf(H[k] - want) <= 1e-6f);
        }
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            const int32_t z = ln_graph_sum(g, ln_graph_square(g, parts[p]));
            OK(ln_graph_jvp(g, z, wrt, tangents, 4, value, tangent, err));
            OK(ln_graph_value_and_grad(g, z, wrt, 4, value, grads, err));
            double reverse = 0;
            for (int k = 0; k < 4; k++)
                for (size_t j = 0; j < sizes[k]; j++) reverse += (double)tangents[k][j] * (double)grads[k][j];
            if (!(fabs((double)tangent[0] - reverse) < 1e-4 * (1 + fabs(reverse))))
                fail_msg("part %zu: forward %.9g, reverse %.9g", p, (double)tangent[0], reverse);
            assert_true(fabs(reverse) > 1e-3);
        }
        OK(ln_graph_jvp(g, parts[0], wrt, tangents, 4, value, tangent, err));
        for (int k = 0; k < 12; k++) assert_true(value[k] == fmaxf(H[k], 0));
        OK(ln_graph_jvp(g, parts[1], wrt, tangents, 4, value, tangent, err));
        for (int k = 0; k < 12; k++) assert_true(fabs((double)value[k] - tanh((double)H[k])) < 1e-6);
        OK(ln_graph_jvp(g, parts[3], wrt, tangents, 4, value, tangent, err));
        for (int k = 0; k < 12; k++) assert_true(value[k] == fminf(fmaxf(H[k], -1), 0.5f));
        OK(ln_graph_jvp(g, parts[5], wrt, tangents, 4, value, tangent, err));
        for (int k = 0; k < 12; k++) assert_true(value[k] == H[k % 3 * 4 + k / 3]);
        OK(ln_graph_jvp(g, parts[6], wrt, tangents, 4, value, tangent, err));
        for (int k = 0; k < 12; k++) assert_true(value[k] == H[k / 4 * 4 + (k % 4 + 2) % 4]);
        OK(ln_graph_jvp(g, parts[10], wrt, tangents, 4, value, tangent, err));
        double want = 0;
        for (int r = 0; r < 3; r++)
            want += (log1p(exp((double)H[4 * r + 1])) - (double)H[4 * r + 1] * (double)Y[r]) / 3;
        assert_true(fabs((double)value[0] - want) < 1e-6);
        ln_graph_free(&g);
    }
}

/* exp, log, square root, quotient and reshape: values of the C library, and both products. */
static void functions_are_differentiated(void **s) {
    (void)s;
    enum { N = 12 };
    for (size_t i = 0; i < 2; i++) {
        ln_graph *g = new_graph(devices[i]);
        const int32_t x = ln_graph_trainable(g, 3, 4), y = ln_graph_trainable(g, 3, 4), wrt[] = {x, y};
        float X[N], Y[N], tX[N], tY[N], dX[N], dY[N], v[N], value[N], tangent[N];
        const float *tangents[] = {tX, tY};
        float *grads[] = {dX, dY};
        for (int k = 0; k < N; k++) {
            X[k] = 0.25f + (float)(k * 5 % N) / 3, Y[k] = (float)(k % 5 - 2) - 0.5f;
            tX[k] = (float)(k % 3 - 1) / 2, tY[k] = (float)(k % 4 - 1) / 4, v[k] = (float)(k * 7 % 5 - 2) / 2;
        }
        OK(ln_graph_set(g, x, X, err));
        OK(ln_graph_set(g, y, Y, err));
        const int32_t parts[] = {ln_graph_exp(g, y),
                                 ln_graph_log(g, x),
                                 ln_graph_sqrt(g, x),
                                 ln_graph_div(g, y, x),
                                 ln_graph_div(g, x, y),
                                 ln_graph_reshape(g, ln_graph_mul(g, x, y), 2, 6),
                                 ln_graph_div(g, x, ln_graph_add(g, x, ln_graph_square(g, x)))};
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            double forward = 0, reverse = 0;
            OK(ln_graph_jvp(g, parts[p], wrt, tangents, 2, value, tangent, err));
            for (int k = 0; k < N; k++) {
                const double a = (double)X[k], b = (double)Y[k];
                const double want[] = {exp(b), log(a), sqrt(a), b / a, a / b, a * b, 1 / (1 + a)};
                if (!(fabs((double)value[k] - want[p]) <= 3e-7 * fmax(1, fabs(want[p]))))
                    fail_msg("part %zu, %d: %.9g, expected %.9g", p, k, (double)value[k], want[p]);
                forward += (double)v[k] * (double)tangent[k];
            }
            OK(ln_graph_vjp(g, parts[p], v, wrt, 2, value, grads, err));
            for (int k = 0; k < N; k++)
                reverse += (double)tX[k] * (double)dX[k] + (double)tY[k] * (double)dY[k];
            if (!(fabs(forward - reverse) < 1e-5 * (1 + fabs(reverse))))
                fail_msg("part %zu: forward %.9g, reverse %.9g", p, forward, reverse);
            assert_true(fabs(reverse) > 1e-3);
        }
        X[0] = 0, X[1] = -1, X[2] = INFINITY;
        OK(ln_graph_set(g, x, X, err));
        OK(ln_graph_value_and_grad(g, parts[1], NULL, 0, value, NULL, err));
        assert_true(value[0] == -INFINITY && isnan(value[1]) && value[2] == INFINITY);
        assert_int_equal(ln_graph_reshape(g, x, 5, 2), -1);
        FAILS(LN_EUSAGE, "as many elements", ln_graph_set(g, x, X, err));
        ln_graph_free(&g);
    }
}

/* A deep network has the same loss and gradients with and without checkpoints. */
static void checkpoints_change_no_bit(void **s) {
    (void)s;
    enum { LAYERS = 6, D = 8 };
    float loss[2], grads[2][LAYERS][D * D], W[D * D], X[4 * D];
    for (int k = 0; k < D * D; k++) W[k] = (float)(k * 7 % 11 - 5) / 16;
    for (int k = 0; k < 4 * D; k++) X[k] = (float)(k * 3 % 7 - 3) / 4;
    for (size_t i = 0; i < 2; i++) {
        for (int kept = 0; kept < 2; kept++) {
            ln_graph *g = new_graph(devices[i]);
            int32_t wrt[LAYERS], h = ln_graph_input(g, 4, D);
            float *to[LAYERS];
            OK(ln_graph_set(g, h, X, err));
            for (int l = 0; l < LAYERS; l++) {
                to[l] = grads[kept][l];
                wrt[l] = ln_graph_trainable(g, D, D);
                OK(ln_graph_set(g, wrt[l], W, err));
                const int32_t gate = ln_graph_exp(g, ln_graph_tanh(g, ln_graph_matmul_nt(g, h, wrt[l])));
                h = ln_graph_add(g, h, ln_graph_silu(g, ln_graph_rmsnorm(g, gate, -1, 1e-5f)));
                if (!kept) ln_graph_checkpoint(g);
            }
            const int32_t y = ln_graph_mean(g, ln_graph_square(g, h));
            OK(ln_graph_value_and_grad(g, y, wrt, LAYERS, &loss[kept], to, err));
            ln_graph_free(&g);
        }
        assert_true(loss[0] == loss[1] && loss[0] > 0);
        assert_memory_equal(grads[0], grads[1], sizeof grads[0]);
    }
    ln_graph_checkpoint(NULL);
}

/* Rows of a table by labels: gradients of a row that several labels choose are added, and labels are checked.
 */
static void rows_are_looked_up(void **s) {
    (void)s;
    for (size_t i = 0; i < 2; i++) {
        ln_graph *g = new_graph(devices[i]);
        const int32_t table = ln_graph_trainable(g, 4, 2), labels = ln_graph_labels(g, 3),
                      y = ln_graph_rows(g, table, labels), z = ln_graph_sum(g, ln_graph_square(g, y));
        float T[8] = {1, 2, 3, 4, 5, 6, 7, 8}, value[6], grad[8], *grads[] = {grad};
        static const float rows[] = {7, 8, 3, 4, 7, 8}, slopes[] = {0, 0, 6, 8, 0, 0, 28, 32},
                           cotangent[] = {1, 0, 0, 0, 0, 0};
        OK(ln_graph_set(g, table, T, err));
        FAILS(LN_EUSAGE, "no data", ln_graph_value_and_grad(g, z, &table, 1, value, grads, err));
        OK(ln_graph_set_labels(g, labels, (int32_t[]){3, 1, 3}, err));
        OK(ln_graph_value_and_grad(g, z, &table, 1, value, grads, err));
        for (int k = 0; k < 8; k++) assert_true(grad[k] == slopes[k]);
        OK(ln_graph_vjp(g, y, cotangent, &table, 1, value, grads, err));
        for (int k = 0; k < 6; k++) assert_true(value[k] == rows[k]);
        for (int k = 0; k < 8; k++) assert_true(grad[k] == (k == 6));
        OK(ln_graph_set_labels(g, labels, (int32_t[]){3, 4, 0}, err));
        FAILS(LN_EINVALID, "expected 0 to 3, found 4",
              ln_graph_value_and_grad(g, z, &table, 1, value, grads, err));
        ln_graph_free(&g);
    }
}

/* The first mistake is named, with what was expected. */
static void shapes_of_networks(void **s) {
    (void)s;
    float x[6] = {0};
    for (int kind = 0; kind < 5; kind++) {
        static const char *const words[] = {"columns of the operand", "as many rows", "to spread", "[rows,1]",
                                            "lower bound"};
        ln_graph *g = new_graph(devices[1]);
        const int32_t a = ln_graph_input(g, 2, 3), b = ln_graph_input(g, 3, 1);
        const int32_t bad = kind == 0   ? ln_graph_slice(g, a, 2, 2)
                            : kind == 1 ? ln_graph_concat(g, a, b)
                            : kind == 2 ? ln_graph_spread(g, a, 4, 3)
                            : kind == 3 ? ln_graph_binary_cross_entropy(g, a, a)
                                        : ln_graph_clamp(g, a, 1, 0);
        assert_int_equal(bad, -1);
        FAILS(LN_EUSAGE, words[kind], ln_graph_set(g, a, x, err));
        ln_graph_free(&g);
    }
}

static void mistakes_are_named(void **s) {
    (void)s;
    float x[6] = {0}, *to[] = {x};
    ln_graph *g = new_graph(devices[1]), *closed = g;
    const int32_t a = ln_graph_input(g, 2, 3), b = ln_graph_input(g, 2, 3);
    FAILS(LN_EUSAGE, "no data", ln_graph_value_and_grad(g, ln_graph_sum(g, a), &a, 1, x, to, err));
    OK(ln_graph_set(g, a, x, err));
    FAILS(LN_EUSAGE, "scalar", ln_graph_value_and_grad(g, a, &a, 1, x, to, err));
    FAILS(LN_EUSAGE, "value", ln_graph_value_and_grad(g, 1000, &a, 1, x, to, err));
    FAILS(LN_EUSAGE, "NULL", ln_graph_value_and_grad(g, a, NULL, 1, x, to, err));
    FAILS(LN_EUSAGE, "trainable", ln_graph_adamw(g, NULL, &a, (const float *const *)to, 1, err));
    ln_adamw bad = ln_adamw_default();
    bad.beta1 = 1;
    FAILS(LN_EUSAGE, "beta1", ln_graph_adamw(g, &bad, &a, (const float *const *)to, 1, err));
    FAILS(LN_EUSAGE, "trainable", ln_graph_set(g, ln_graph_add(g, a, b), x, err));
    assert_int_equal(ln_graph_matmul(g, a, b), -1);
    assert_int_equal(ln_graph_add(g, a, b), -1); /* the first mistake stays */
    FAILS(LN_EUSAGE, "matmul", ln_graph_set(g, a, x, err));
    ln_graph_free(&g);
    assert_int_equal(ln_graph_add(closed, a, b), -1);
    FAILS(LN_EUSAGE, "closed", ln_graph_set(closed, a, x, err));
    FAILS(LN_EUSAGE, "out", ln_graph_new(NULL, NULL, err));
    ln_graph_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(scalars_have_the_known_gradients),
                                       cmocka_unit_test(matrices_have_the_known_gradients),
                                       cmocka_unit_test(losses_have_the_known_values),
                                       cmocka_unit_test(adamw_minimises_and_decays),
                                       cmocka_unit_test(adamw_keeps_values_finite),
                                       cmocka_unit_test(jacobian_products_agree),
                                       cmocka_unit_test(networks_are_differentiated),
                                       cmocka_unit_test(functions_are_differentiated),
                                       cmocka_unit_test(checkpoints_change_no_bit),
                                       cmocka_unit_test(shapes_of_networks),
                                       cmocka_unit_test(rows_are_looked_up),
                                       cmocka_unit_test(mistakes_are_named)};
    return cmocka_run_group_tests_name("graphs", tests, NULL, NULL);
}
