/* Tests backward products on tiles (device/cpu/gemm/gemm_back_amx.inc.h) against sums in double with bounds
 * derived from the roundings, for odd sizes, weights in both encodings and any number of threads, all of
 * which must give the same bits, as must a row without the others. The kernels run on a model of the tile
 * instructions on every machine, and on the instructions, with the model's bits, if the machine has them. */
/* run: quick */
#include "kernels.h"

#include "tile_model.h"
#include "lanes_model.h"
#include "device/cpu/gemm/gemm_bf16_amx.inc.h"
#include "device/cpu/gemm/gemm_back_amx.inc.h"

#define U 0x1p-24 /* half a unit in the last place of f32, relative */

/* A product of w[D,C] in an encoding with bf16 values x. */
typedef struct back_case {
    int64_t rows, D, C;
    bool bf12, narrow;
    guarded w, packed, x, halved;
    ln_arg weight, wide, operand;
} back_case;

static float of_weight(const back_case *t, int64_t d, int64_t c) {
    return ln_num_load(t->w.data, LN_BF16, d * t->C + c);
}
static float of_x(const back_case *t, int64_t r, int64_t c) {
    return ((const float *)t->wide.data)[r * t->wide.pitch + c];
}
static void case_open(back_case *t, int64_t cols, float size) {
    const int64_t pitch = t->narrow ? cols + 32 : cols + 3, n = (t->rows - 1) * pitch + cols;
    int64_t full = 0;
    t->w = guard((size_t)(t->D * t->C * 2), true, 0);
    for (int64_t i = 0; i < t->D * t->C; i++) /* tight for bf12, except every third block */
        weight_put(t->w.data, LN_BF16, i,
                   t->bf12 && i / t->C / LN_PACK_NR % 3 ? ((float)random_in(-1000, 1000)) * 1e-3f
                                                        : random_f32());
    t->x = guard((size_t)n * 4, true, 0);
    for (int64_t i = 0; i < n; i++)
        ((float *)(void *)t->x.data)[i] = ln_bf16_f32(ln_f32_bf16(random_f32() * size));
    t->weight = (ln_arg){.data = t->w.data, .rows = t->D, .cols = t->C, .pitch = t->C, .dtype = LN_BF16};
    if (t->bf12) t->packed = tight_for(&t->weight, 1, &full);
    if (!t->packed.map) t->packed = packed_for(1, &t->weight);
    t->wide = (ln_arg){t->x.data, t->rows, cols, pitch, LN_F32, bf16_if(true)};
    t->operand = t->wide;
    if (t->narrow) {
        t->halved = narrow_of(&t->wide, &t->operand);
        t->operand.layout = LN_LAYOUT_NARROW;
    }
}
static void case_close(back_case *t) {
    unguard(&t->w), unguard(&t->packed), unguard(&t->x);
    if (t->narrow) unguard(&t->halved);
}

/* Runs a kernel on every number of threads, on the model and on the instructions, into outputs of so many
 * numbers each, and compares their bits with those of one thread on the model, which it returns in c. */
static void run_all(const ln_kernel *kernel, ln_call *c, const ln_pvalue *values, const guarded *want,
                    const char *what) {
    const ln_bounds bounds = {c->in[0].rows + random_in(0, 9), c->in[0].rows + 9, 1};
    ln_call d = *c;
    guarded got[2] = {{0}};
    for (int k = 0; k < c->node->n_out; k++) {
        got[k] = guard(want[k].bytes, true, 0);
        d.out[k].data = got[k].data;
    }
    run_this(kernel, c, values, &bounds, 1);
    for (int hardware = 0; hardware < 2; hardware++)
        for (size_t n = 0; n < LN_COUNT(thread_counts); n += (size_t)fewer(1, 2)) {
#if defined(__x86_64__)
            if (hardware && !isa_available(LN_ISA_AMX)) continue;
            for (int k = 0; k < c->node->n_out; k++) memset(got[k].data, 0xa5, got[k].bytes);
            if (hardware) run_kernel_with(LN_ISA_AMX, &d, values, &bounds, thread_counts[n]);
#else
            if (hardware) continue;
#endif
            if (!hardware) run_this(kernel, &d, values, &bounds, thread_counts[n]);
            char text[200];
            (void)snprintf(text, sizeof text, "%s, %s, %d threads", what, hardware ? "tiles" : "model",
                           thread_counts[n]);
            for (int k = 0; k < c->node->n_out; k++)
                assert_same((const float *)(const void *)want[k].data,
                            (const float *)(const void *)got[k].data, c->out[k].rows, c->out[k].cols,
                            c->out[k].pitch, text);
        }
    for (int k = 0; k < c->node->n_out; k++) unguard(&got[k]);
}

static void back_check(back_case t) {
    case_open(&t, t.D, 1);
    const int64_t pitch = t.C + 5;
    guarded want = guard((size_t)((t.rows - 1) * pitch + t.C) * 4, true, 0);
    const ln_pvalue values[2] = {{.n_dims = 2, .dims = {LN_DIM_T, t.D}, .format = bf16_if(true)},
                                 {.n_dims = 2, .dims = {t.D, t.C}, .dtype = LN_BF16}};
    const ln_pnode node = {.op = LN_OP_LINEAR_BACK, .n_in = 2, .n_out = 1, .in = {0, 1}};
    ln_call c = {.node = &node, .in = {t.operand, t.weight}};
    c.out[0] = (ln_arg){want.data, t.rows, t.C, pitch, LN_F32};
    char what[120];
    (void)snprintf(what, sizeof what, "linear_back: %lld rows%s, D %lld, C %lld%s", (long long)t.rows,
                   t.narrow ? " in two bytes" : "", (long long)t.D, (long long)t.C,
                   t.weight.bf12 ? ", bf12" : "");
    run_all(&(ln_kernel){.fn = back_amx_run, .scratch = back_amx_scratch}, &c, values, &want, what);
    /* of a tile 16 FMAs and one addition; one addition for each tile and each part */
    const double roundings = 17 + (double)k_tile_count(t.D) * (1 + 1.0 / BACK_PART) + 1;
    for (int64_t r = 0; r < t.rows; r += LN_MAX((int64_t)1, t.rows / 7))
        for (int64_t i = 0; i < t.C; i++) {
            double sum = 0, size = 0;
            for (int64_t d = 0; d < t.D; d++) {
                const double y = (double)of_x(&t, r, d) * (double)of_weight(&t, d, i);
                sum += y, size += fabs(y);
            }
            const float y = ((const float *)(const void *)want.data)[r * pitch + i];
            if (!(fabs((double)y - sum) <= roundings * U * size))
                fail_msg("%s: row %lld, column %lld: expected %.9g, found %.9g", what, (long long)r,
                         (long long)i, sum, (double)y);
        }
    /* the last row alone */
    const int64_t last = t.rows - 1;
    guarded one = guard((size_t)t.C * 4, true, 0);
    c.in[0].data = (char *)c.in[0].data + last * c.in[0].pitch * (t.narrow ? 2 : 4);
    c.in[0].rows = c.out[0].rows = 1;
    c.out[0].data = one.data;
    run_this(&(ln_kernel){.fn = back_amx_run, .scratch = back_amx_scratch}, &c, values,
             &(ln_bounds){t.rows, 1, 1}, 2);
    assert_same((const float *)(const void *)want.data + last * pitch, (const float *)(const void *)one.data,
                1, t.C, t.C, "the last row alone");
    unguard(&one), unguard(&want);
    case_close(&t);
}
static void test_back(void **state) {
    (void)state;
    static const back_case cases[] = {{.rows = 1, .D = 16, .C = 1},
                                      {.rows = 17, .D = 33, .C = 45, .bf12 = true},
                                      {.rows = 40, .D = 96, .C = 70, .narrow = true},
                                      {.rows = 300, .D = 281, .C = 64, .bf12 = true},
                                      {.rows = 33, .D = 2080, .C = 40, .narrow = true},
                                      {.rows = 5, .D = 2100, .C = 100, .bf12 = true},
                                      {.rows = 290, .D = 64, .C = 33, .narrow = true, .bf12 = true}};
    for (size_t i = 0; i < LN_COUNT(cases); i += (size_t)fewer(1, 2)) back_check(cases[i]);
}

/* Row r of the cross-entropy in double: the loss, and softmax weights in p. */
static double loss_of(const back_case *t, int64_t r, int32_t target, double *p, double *most_size) {
    double most = -INFINITY, sum = 0, hit = 0;
    *most_size = 0;
    for (int64_t v = 0; v < t->D; v++) {
        double size = 0;
        p[v] = 0;
        for (int64_t i = 0; i < t->C; i++) {
            const double y = (double)of_x(t, r, i) * (double)of_weight(t, v, i);
            p[v] += y, size += fabs(y);
        }
        most = LN_MAX(most, p[v]), *most_size = LN_MAX(*most_size, size);
        if (v == target) hit = p[v];
    }
    for (int64_t v = 0; v < t->D; v++) sum += p[v] = exp(p[v] - most);
    for (int64_t v = 0; v < t->D; v++) p[v] /= sum;
    return target < 0 ? 0 : log(sum) + most - hit;
}
/* A logit is off by at most that of its product, and by the largest rounding of the subtraction of the
 * maximum; so are exponentials, whose own error is 2 units (base/elementary.h) and those of the rescaling,
 * one for each chunk; weights are rounded to bf16. */
static void loss_compare(const back_case *t, const ln_call *c, const char *what) {
    const ln_arg *loss = &c->out[0], *slope = &c->out[1];
    double *p = calloc((size_t)t->D, sizeof *p), size;
    assert_non_null(p);
    for (int64_t r = 0; r < t->rows; r += LN_MAX((int64_t)1, t->rows / 7)) {
        const int32_t target = ((const int32_t *)c->in[2].data)[r];
        const double want = loss_of(t, r, target, p, &size),
                     logit = size * U * (18 + (double)k_tile_count(t->C)) + 4 * size * U,
                     chunks = (double)((t->D + LOSS_CHUNK - 1) / LOSS_CHUNK),
                     weight = 2 * logit + U * (8 + 8 * chunks + (double)t->D / 32 + 8),
                     got = (double)((const float *)loss->data)[r * loss->pitch];
        if (!(fabs(got - want) <= 2 * logit + weight + 4 * U * fabs(want)))
            fail_msg("%s: loss of row %lld: expected %.9g, found %.9g", what, (long long)r, want, got);
        for (int64_t i = 0; c->node->p.scale.factor != 0 && i < t->C; i++) {
            double sum = 0, sizes = 0;
            for (int64_t v = 0; v < t->D && target >= 0; v++) {
                sum += p[v] * (double)of_weight(t, v, i);
                sizes += p[v] * fabs((double)of_weight(t, v, i));
            }
            if (target >= 0) sum -= (double)of_weight(t, target, i);
            const double y = (double)((const float *)slope->data)[r * slope->pitch + i];
            if (!(fabs(y - sum) <= sizes * (0x1p-9 + 2 * weight) + 4 * U * (sizes + fabs(sum) + 2)))
                fail_msg("%s: slope of row %lld, column %lld: expected %.9g, found %.9g", what, (long long)r,
                         (long long)i, sum, y);
        }
    }
    free(p);
}
static void loss_check(back_case t, bool slope) {
    case_open(&t, t.C, 1.0f / 4);
    const int64_t pitch = t.C + 5;
    guarded want[2] = {guard((size_t)t.rows * 4, true, 0),
                       guard((size_t)((t.rows - 1) * pitch + t.C) * 4, true, 0)},
            targets = guard((size_t)t.rows * 4, true, 0);
    for (int64_t r = 0; r < t.rows; r++)
        ((int32_t *)(void *)targets.data)[r] = random_in(0, 5) ? random_in(0, (int)t.D - 1) : -1;
    const ln_pvalue values[2] = {{.n_dims = 2,
                                  .dims = {LN_DIM_T, t.C},
                                  .format = bf16_if(true),
                                  .layout = t.narrow ? LN_LAYOUT_NARROW : LN_LAYOUT_ROWS},
                                 {.n_dims = 2, .dims = {t.D, t.C}, .dtype = LN_BF16}};
    const ln_pnode node = {.op = LN_OP_LINEAR_CROSS_ENTROPY,
                           .n_in = 3,
                           .n_out = slope ? 2 : 1,
                           .in = {0, 1, 2},
                           .p.scale.factor = slope};
    ln_call c = {.node = &node, .in = {t.operand, t.weight}};
    c.in[2] = (ln_arg){targets.data, t.rows, 1, 1, LN_I32};
    c.out[0] = (ln_arg){want[0].data, t.rows, 1, 1, LN_F32};
    c.out[1] = (ln_arg){want[1].data, t.rows, t.C, pitch, LN_F32};
    char what[120];
    (void)snprintf(what, sizeof what, "cross-entropy: %lld rows%s, D %lld, C %lld%s", (long long)t.rows,
                   t.narrow ? " in two bytes" : "", (long long)t.D, (long long)t.C,
                   t.weight.bf12 ? ", bf12" : "");
    run_all(&(ln_kernel){.fn = loss_amx_run, .scratch = loss_amx_scratch}, &c, values, want, what);
    loss_compare(&t, &c, what);
    unguard(&want[0]), unguard(&want[1]), unguard(&targets);
    case_close(&t);
}
static void test_loss(void **state) {
    (void)state;
    static const back_case cases[] = {{.rows = 1, .D = 16, .C = 1},
                                      {.rows = 17, .D = 300, .C = 45, .bf12 = true},
                                      {.rows = 40, .D = 530, .C = 64, .narrow = true},
                                      {.rows = 270, .D = 281, .C = 33, .bf12 = true},
                                      {.rows = 33, .D = 1040, .C = 96, .narrow = true, .bf12 = true}};
    for (size_t i = 0; i < LN_COUNT(cases); i += (size_t)fewer(1, 2)) loss_check(cases[i], true);
    loss_check(cases[2], false);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_back), cmocka_unit_test(test_loss)};
    return cmocka_run_group_tests_name("amx_back", tests, NULL, NULL);
}
