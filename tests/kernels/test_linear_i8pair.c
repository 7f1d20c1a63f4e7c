/* Tests convert to int8 pairs on every ISA level against the reference kernel, and linear of them with the
 * AMX ISA level's kernel if the machine has the instructions: equality of bits, at odd addresses, between
 * guard pages. Products of up to four rows with weights of 4 and 8 bits need only AVX-512 with VNNI; the
 * kernel on tiles runs here on AMX, and on a model of AMX in test_amx_i8pair. The values of the reference
 * itself are tested by tests/quant/test_block_float.c and, here, by a plain sum. */
/* run: quick */
#include "row_check.h"

static const float x_specials[] = {NAN,   INFINITY, -INFINITY, 0.0f,  -0.0f,  1e-42f, 1e-30f,
                                   3e38f, -3e38f,   0x1p-97f,  15.5f, -14.5f, 128.0f, -128.0f};

/* Copies a row of int8 pairs from one layout to another. */
static void copy_row(ln_i8pair_layout from, ln_i8pair_layout to, int64_t C) {
    for (int64_t i = 0; i < ln_i8pair_digit_bytes(C) / 64; i++)
        for (int digit = 0; digit < 2; digit++)
            memcpy(to.digits + i * to.step + digit * to.lower,
                   from.digits + i * from.step + digit * from.lower, 64);
    memcpy(to.terms, from.terms, sizeof(ln_i8pair_sums));
}
/* In place: the output overwrites its input x, both in panels. The rows must equal those of `want`, and
 * all other bytes must be unchanged. */
static void in_place_check(ln_call c, const ln_bounds *bounds, const ln_arg *want, const char *what) {
    const ln_arg *x = &c.in[0];
    const size_t bytes = (size_t)(x->rows * x->pitch) * 4;
    guarded expected = guard(bytes, true, 0), got = guard(bytes, true, 0);
    const void *numbers = x->data;
    memcpy(expected.data, numbers, bytes);
    c.out[0] = *x;
    c.out[0].data = expected.data;
    for (int64_t r = 0; r < x->rows; r++)
        copy_row(ln_arg_i8pair(want, r), ln_arg_i8pair(&c.out[0], r), x->cols);
    c.in[0].data = c.out[0].data = got.data;
    for (int isa = 1; isa < LN_ISA_COUNT; isa++)
        for (size_t n = 0; n < LN_COUNT(thread_counts) && isa_available(isa); n++) {
            memcpy(got.data, numbers, bytes);
            run_kernel(isa, &c, bounds, thread_counts[n]);
            if (memcmp(expected.data, got.data, bytes) != 0)
                fail_msg("%s, in place, %s: other bits", what, ln_cpu_isa_name((ln_isa)isa));
        }
    unguard(&expected), unguard(&got);
}
static void fixed_check(int64_t rows, int64_t C, int bits, bool special) {
    const int64_t ldx = C + 3, pitch = ln_i8pair_words(C) + 1;
    const size_t bytes = (size_t)(rows * pitch) * 4;
    guarded x = guard((size_t)((rows - 1) * ldx + C) * 4, true, 0), want = guard(bytes, true, 0),
            got = guard(bytes, true, 0);
    float *px = (float *)(void *)x.data;
    for (int64_t r = 0; r < rows; r++) row_fill(px + r * ldx, C, false);
    for (int64_t i = 0; special && i < (rows - 1) * ldx + C; i++)
        if (random_u32() % 61 == 0) px[i] = x_specials[random_u32() % LN_COUNT(x_specials)];
    const ln_format to = {LN_FORMAT_I8PAIR, (uint8_t)bits, 32};
    ln_pnode node = {.op = LN_OP_CONVERT, .n_in = 1, .n_out = 1, .p.convert = {to}};
    ln_bounds bounds = {rows, rows, 1};
    ln_call c = {.node = &node};
    c.in[0] = (ln_arg){px, rows, C, ldx, LN_F32};
    c.out[0] = (ln_arg){want.data, rows, C, pitch, LN_F32, to};
    memset(want.data, 0xa5, bytes);
    run_kernel(-1, &c, &bounds, 1);
    float back[4096];
    for (int64_t r = 0; r < rows; r++) { /* the reference: no value is off by more than half a unit u */
        const ln_i8pair_sums terms = *ln_i8pair_row_sums(want.data + r * pitch * 4, C);
        ln_i8pair_decode(want.data + r * pitch * 4, C, bits, back);
        for (int64_t i = 0; i < C && terms.u >= 0; i++)
            if (fabs((double)back[i] - (double)px[r * ldx + i]) > 0.51 * (double)terms.u + 0x1p-96)
                fail_msg("%d bits: %g came back as %g, unit %g", bits, (double)px[r * ldx + i],
                         (double)back[i], (double)terms.u);
    }
    char what[100];
    snprintf(what, sizeof what, "convert to int8 pairs: %lld rows, C %lld, %d bits", (long long)rows,
             (long long)C, bits);
    each_isa_bytes(&c, &bounds, &want, &got, what);
    const ln_arg made = c.out[0];
    guarded panels = guard((size_t)(rows * ldx) * 4, true, 0);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < C; i++)
            memcpy(panels.data + ln_panel_at(rows, ldx, r, i) * 4, px + r * ldx + i, 4);
    c.in[0].data = panels.data;
    c.in[0].layout = LN_CPU_PANELS;
    snprintf(what, sizeof what, "convert to int8 pairs in panels: %lld rows, C %lld, %d bits",
             (long long)rows, (long long)C, bits);
    each_isa_bytes(&c, &bounds, &want, &got, what);
    in_place_check(c, &bounds, &made, what);
    guarded moved = guard(bytes, true, 0); /* Output in panels: the same bytes at other offsets. */
    c.out[0] = (ln_arg){
        .data = moved.data, .rows = rows, .cols = C, .pitch = pitch, .format = to, .layout = LN_CPU_PANELS};
    memset(moved.data, 0xa5, bytes);
    for (int64_t r = 0; r < rows; r++) copy_row(ln_arg_i8pair(&made, r), ln_arg_i8pair(&c.out[0], r), C);
    for (int k = 0; k < 2; k++) {
        c.in[0].data = k ? panels.data : x.data;
        c.in[0].layout = k ? LN_CPU_PANELS : LN_LAYOUT_ROWS;
        snprintf(what, sizeof what, "convert to int8 pairs %s panels: %lld rows, C %lld, %d bits",
                 k ? "from panels to" : "to", (long long)rows, (long long)C, bits);
        each_isa_bytes(&c, &bounds, &moved, &got, what);
    }
    unguard(&moved);
    unguard(&x), unguard(&panels), unguard(&want), unguard(&got);
}
static void test_rows_made(void **state) {
    (void)state;
    for (int i = 0; i < 120; i++)
        fixed_check(random_in(1, i % 3 ? 20 : 70), 32 * random_in(1, 80), widths[i % 6], i % 2);
}

/* The reference's product of rows of int8 pairs, C 4-byte words apart. */
static void row_reference(float *rows, int64_t n_rows, weight *w, float *y) {
    ln_pnode node = {.op = LN_OP_LINEAR, .n_in = 2, .n_out = 1, .in = {0, 1}};
    ln_bounds bounds = {n_rows, n_rows, 1};
    ln_call c = {.node = &node};
    c.in[0] = (ln_arg){rows, n_rows, w->C, w->C, LN_F32, ln_format_of(LN_FORMAT_I8PAIR, w->a.code)};
    c.in[1] = (ln_arg){&w->a, w->D, w->C, w->C, LN_F32, ln_format_of(LN_FORMAT_F32, w->a.code)};
    c.out[0] = (ln_arg){y, n_rows, w->D, w->D, LN_F32};
    run_kernel(-1, &c, &bounds, 1);
}

/* Compares the reference with the exact definition in block_float.h: with x = u v and weights d W, sum(v
 * W) = k (k upper + lower) + sum(l L) in integers, from which the unrounded lower follows. Its correction
 * is 64 sum(l) / 15, whose distance from a half is at least 1/30 and whose magnitude is below 2^18, so
 * that the float value, off by 2^-23 of it, is rounded to the same integer; or sum(l) / 2, which is exact. */
static void test_exact(void **state) {
    (void)state;
    enum { ROWS = 3, D = 8, C = 2048 };
    for (int i = 0; i < 18; i++) {
        const ln_groups enc = {widths[i % 6], groups[i / 6]};
        const int bits = enc.bits, radix = ln_i8pair_radix(bits);
        weight w = weight_new(D, C, enc, LN_F32, false);
        float x[C], y[ROWS * D], rows[ROWS][C];
        for (int r = 0; r < ROWS; r++) { /* row 0: both signs; row 1: one sign, with one outlier, so that
                                            sum(l) is large; row 2: one sign, all values of similar size,
                                            so that sums exceed the integers of a float */
            fill_f32(x, C);
            for (int k = 0; k < C && r > 0; k++) x[k] = r == 2 ? 1 + fabsf(x[k]) / 4 : k ? fabsf(x[k]) : 200;
            ln_i8pair_encode(x, C, bits, rows[r]);
        }
        row_reference(rows[0], ROWS, &w, y);
        for (int r = 0; r < ROWS; r++)
            for (int d = 0; d < D; d++) {
                const int8_t *digits = (const int8_t *)rows[r];
                const int64_t n = C / enc.group;
                const uint8_t *scales = w.scales.data + d * n * 4, *biases = w.biases.data + d * n * 4;
                float by, e;
                int64_t products = 0, upper = 0, left_out = 0;
                int32_t sum = 0;
                ln_i8pair_output_scale(scales, biases, LN_F32, LN_F32, n, bits, &by, &e);
                for (int p = 0; p < C; p++) {
                    const int64_t at = ln_i8pair_column(bits, p), g = at / enc.group;
                    int H, L;
                    ln_i8pair_weight(bits, ln_num_load(scales, LN_F32, g), ln_num_load(biases, LN_F32, g), by,
                                     code_at(&w, d, at), &H, &L);
                    products += (int64_t)(radix * digits[p] + digits[C + p]) *
                                (radix * (H - ln_i8pair_zero_point(bits)) + L);
                    upper += digits[p] * (H - ln_i8pair_zero_point(bits));
                    left_out += digits[C + p] * L;
                    sum += digits[C + p];
                }
                assert_true((products - left_out) % radix == 0);
                const int64_t lower =
                    (products - left_out) / radix - radix * upper + (int64_t)rint(128.0 * sum / radix);
                const float want =
                    fmaf((float)upper, (float)radix, (float)lower) * (ln_i8pair_row_sums(rows[r], C)->u * e);
                if (y[r * D + d] != want)
                    fail_msg("%d bits, row %d, output %d: %a, expected %a", bits, r, d, (double)y[r * D + d],
                             (double)want);
            }
        weight_free(&w);
    }
}

/* Compares the reference with the plain sum over s q + b in double, within the errors of x, of the weights
 * and of the omitted product. The last row has one sign and one outlier, for which sum(l) is large: without
 * ln_i8pair_correction its error would be several times as large. */
static void test_near(void **state) {
    (void)state;
    enum { ROWS = 3, D = 40, C = 512 };
    for (int i = 0; i < 40; i++) {
        const ln_groups enc = i < 36 ? (ln_groups){widths[i % 6], groups[i / 6 % 3]} : small_groups[i - 36];
        weight w = weight_new(D, C, enc, LN_F32, false);
        float x[ROWS * C], y[ROWS * D], rows[ROWS][C];
        double off[2] = {0}, all[2] = {0}; /* the last row is counted separately */
        for (int r = 0; r < ROWS; r++) {
            fill_f32(x + r * C, C);
            for (int k = 0; k < C && r == ROWS - 1; k++) x[r * C + k] = k ? fabsf(x[r * C + k]) : 200;
            ln_i8pair_encode(x + r * C, C, enc.bits, rows[r]);
        }
        row_reference(rows[0], ROWS, &w, y);
        for (int r = 0; r < ROWS; r++)
            for (int d = 0; d < D; d++) {
                double sum = 0;
                for (int k = 0; k < C; k++) {
                    const int64_t g = d * (C / enc.group) + k / enc.group;
                    sum += ((double)ln_num_load(w.scales.data, LN_F32, g) * code_at(&w, d, k) +
                            (double)ln_num_load(w.biases.data, LN_F32, g)) *
                           (double)x[r * C + k];
                }
                off[r == ROWS - 1] += (sum - (double)y[r * D + d]) * (sum - (double)y[r * D + d]);
                all[r == ROWS - 1] += sum * sum;
            }
        for (int k = 0; k < 2; k++) {
            static const double bounds_of[2][2] = {
                {2e-3, 2e-4}, {4e-3, 7e-4}}; /* bf16 loses 2.2e-3 (tools/fixed_error.py) */
            const double rms = sqrt(off[k] / all[k]), bound = bounds_of[k][enc.bits > 4];
            if (rms > bound)
                fail_msg("%d bits, group %d, row of one sign %d: rms %g, expected at most %g", enc.bits,
                         enc.group, k, rms, bound);
        }
        weight_free(&w);
    }
}

#if defined(__x86_64__)
static void check(int64_t rows, int64_t D, int64_t C, ln_groups enc, ln_dtype dtype, int bias, bool special) {
    const bool lines = rows <= 4 && (enc.bits == 4 || enc.bits == 8);
    if (!isa_available(LN_ISA_AMX) &&
        !(lines && isa_available(LN_ISA_AVX512) && __builtin_cpu_supports("avx512vnni")))
        return;
    row_check(&ln_cpu_i8pair_amx[0].kernel, lines ? "lines" : "tiles", rows, D, C, enc, dtype, bias, special);
}
static void test_lines(void **state) {
    (void)state;
    for (int i = 0; i < 200; i++)
        check(1 + i / 2 % 4, random_in(1, 150), groups[i / 4 % 3] * random_in(1, 20),
              (ln_groups){i % 2 ? 4 : 8, groups[i / 4 % 3]}, (ln_dtype)(i / 12 % 3), random_in(-1, 2),
              i % 5 == 0);
    for (int i = 0; i < 32; i++)
        check(1 + i / 4 % 20, random_in(1, 150), 32 * random_in(1, 40), small_groups[i % 4], LN_F32,
              random_in(-1, 2), i % 5 == 0);
    for (int i = 0; i < 12; i++)
        check(1 + i / 2 % 4, random_in(20, 60), 64 * random_in(96, 150), (ln_groups){i % 2 ? 4 : 8, 64},
              LN_BF16, -1, false); /* scratch has the size that these rows need, less than tiles would */
}
#else
static void check(int64_t rows, int64_t D, int64_t C, ln_groups enc, ln_dtype dtype, int bias, bool special) {
    (void)rows, (void)D, (void)C, (void)enc, (void)dtype, (void)bias, (void)special;
}
static void test_lines(void **state) { (void)state; }
#endif

/* Blocks of the library's real size: more than 3,072 columns, outputs in more than one group of blocks. Not
 * under sanitizers, with which it takes a quarter of an hour: the model of tiles runs the same code with
 * smaller blocks. */
static void test_wide(void **state) {
    (void)state;
    if (getenv("LN_SANITIZED")) return;
    check(fewer(200, 34), fewer(420, 100), 4608, (ln_groups){4, 64}, LN_BF16, -1, false);
    check(fewer(211, 35), fewer(410, 90), 4128, (ln_groups){8, 32}, LN_F32, LN_F32, false);
}

#define SUITE "linear fixed row"
#define MORE_CASES                                                                               \
    cmocka_unit_test(test_rows_made), cmocka_unit_test(test_near), cmocka_unit_test(test_exact), \
        cmocka_unit_test(test_lines), cmocka_unit_test(test_wide),
#include "row_cases.h"
