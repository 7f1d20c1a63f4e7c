/* Formats and products (quant/formats.h): each reference kernel is within the bound of its row of formats.def
 * against the exact sum in double; rows are encoded and decoded as the format says; pairs without a row have
 * no product. */
/* run: quick */
#include "../kernels/kernels.h"

enum { ROWS = 6, D = 12, C = 384 };
static const ln_groups encodings[] = {{2, 32}, {3, 64}, {4, 64}, {4, 128},
                                      {5, 32}, {6, 64}, {8, 32}, {8, 128}};

/* Rows of several kinds: uniform, of one sign, with one large element, of one element, tiny. */
static void fill_row(float *x, int r) {
    for (int i = 0; i < C; i++) {
        x[i] = random_f32();
        if (r == 1) x[i] = fabsf(x[i]) + 0.1f;
        if (r == 2) x[i] *= i == 5 ? 100 : 1;
        if (r == 3) x[i] = i == 77 ? -3 : 0;
        if (r == 4) x[i] *= 1e-6f;
    }
}

/* The weight of a product: dense elements, affine groups or coded rows. */
enum { CODED_GROUP = 32, CODED_UNITS = (C + CODED_GROUP - 1) / CODED_GROUP };
typedef struct operand {
    weight groups;
    float dense[D * C];
    uint16_t half[D * C];
    ln_coded coded;
    uint8_t codes[D * C];
    float scales[D * CODED_UNITS];
    uint16_t zeros[D * CODED_UNITS];
} operand;
static bool is_coded(ln_stored stored) {
    return ln_encoding_is_coded((ln_encoding){.kind = (uint8_t)stored});
}
static void make_coded(operand *o, ln_stored stored) {
    const bool zeroed = stored == LN_STORED_ZEROED;
    for (int i = 0; i < D * C; i++) /* no NaN, no infinity */
        o->codes[i] =
            (uint8_t)((i * 37 + 11) % (zeroed ? 256 : 0x70) | (zeroed ? 0 : i % 2 << 7)); /* pairs in fp4 */
    for (int i = 0; i < D * CODED_UNITS; i++)
        o->scales[i] = random_f32(), o->zeros[i] = ln_f32_f16((float)(i * 7 % 256));
    o->coded = (ln_coded){.enc = zeroed ? ln_encoding_zeroed(8, LN_F32, CODED_GROUP)
                                        : ln_encoding_floats(stored, LN_F32, CODED_GROUP),
                          .rows = {o->codes, o->scales, o->zeros, NULL},
                          .cols = C};
}
static double element(const operand *o, ln_stored stored, ln_groups e, int d, int i) {
    if (is_coded(stored)) return (double)ln_coded_at(&o->coded, d, i);
    if (stored == LN_STORED_DENSE) return (double)o->dense[d * C + i];
    if (stored == LN_STORED_BF16) return (double)ln_bf16_f32(o->half[d * C + i]);
    const int g = d * (C / e.group) + i / e.group;
    return (double)ln_num_load(o->groups.a.scales, LN_F32, g) * code_at(&o->groups, d, i) +
           (double)ln_num_load(o->groups.a.biases, LN_F32, g);
}
/* The largest magnitude that an output's weights can have: of an affine one, over all codes. */
static double largest_of(const operand *o, ln_stored stored, ln_groups e, int d) {
    double most = 0;
    for (int i = 0; stored != LN_STORED_AFFINE && i < C; i++)
        most = LN_MAX(most, fabs(element(o, stored, e, d, i)));
    for (int g = d * (C / e.group); stored == LN_STORED_AFFINE && g < (d + 1) * (C / e.group); g++) {
        const double s = (double)ln_num_load(o->groups.a.scales, LN_F32, g),
                     b = (double)ln_num_load(o->groups.a.biases, LN_F32, g);
        most = LN_MAX(most, LN_MAX(fabs(b), fabs(b + s * ((1 << e.bits) - 1))));
    }
    return most;
}

/* Returns the largest error of the product in parts of its bound. */
static double check_product(ln_product p, ln_groups e) {
    static float x[ROWS * C], rows[ROWS * 2 * C], y[ROWS * D];
    static operand o;
    const ln_stored stored = ln_products[p].w;
    const ln_format format = ln_format_of(ln_products[p].x, e);
    const int64_t pitch = ln_format_row_elements(format, C);
    if (stored == LN_STORED_AFFINE) o.groups = weight_new(D, C, e, LN_F32, false);
    if (is_coded(stored)) make_coded(&o, stored);
    for (int i = 0; i < D * C; i++) o.dense[i] = random_f32(), o.half[i] = ln_f32_bf16(random_f32());
    for (int r = 0; r < ROWS; r++) {
        fill_row(x + r * C, r);
        ln_format_encode(format, x + r * C, C, rows + r * pitch);
    }
    ln_pnode node = {.op = LN_OP_LINEAR, .n_in = 2, .n_out = 1};
    ln_call c = {.node = &node};
    c.in[0] = (ln_arg){rows, ROWS, C, pitch, LN_F32, format};
    c.in[1] = stored == LN_STORED_AFFINE
                  ? (ln_arg){&o.groups.a, D, C, C, LN_F32, ln_format_of(LN_FORMAT_F32, e)}
              : is_coded(stored)         ? (ln_arg){.data = &o.coded, D, C, C, LN_F32, .coded = true}
              : stored == LN_STORED_BF16 ? (ln_arg){o.half, D, C, C, LN_BF16}
                                         : (ln_arg){o.dense, D, C, C, LN_F32};
    c.out[0] = (ln_arg){y, ROWS, D, D, LN_F32};
    assert_int_equal(call_variant(&c), p);
    run_kernel(-1, &c, &(ln_bounds){ROWS, ROWS, 1}, 2);
    double worst = 0;
    for (int r = 0; r < ROWS; r++)
        for (int d = 0; d < D; d++) {
            double sum = 0, most = 0;
            for (int i = 0; i < C; i++) {
                sum += (double)x[r * C + i] * element(&o, stored, e, d, i);
                most = LN_MAX(most, fabs((double)x[r * C + i]));
            }
            const double bound = ln_product_bound(p, e, C) * C * most * largest_of(&o, stored, e, d);
            worst = LN_MAX(worst, fabs((double)y[r * D + d] - sum) / bound);
        }
    if (stored == LN_STORED_AFFINE) weight_free(&o.groups);
    return worst;
}
static void products_are_within_their_bounds(void **state) {
    (void)state;
    for (int p = 0; p < LN_PRODUCT_COUNT; p++) {
        double worst = 0;
        for (size_t i = 0; i < (ln_products[p].w == LN_STORED_AFFINE ? LN_COUNT(encodings) : 1); i++)
            for (int n = 0; n < 20; n++)
                worst = LN_MAX(worst, check_product((ln_product)p, ln_products[p].w == LN_STORED_AFFINE
                                                                       ? encodings[i]
                                                                       : (ln_groups){0}));
        print_message("  %-14s %.3f of the bound\n", ln_products[p].name, worst);
        if (worst > 1) fail_msg("%s: %g times its bound", ln_products[p].name, worst);
        assert_true(worst > 1e-5); /* chains lose far less than their worst case, which the bound is */
    }
}

static void only_listed_pairs_have_a_product(void **state) {
    (void)state;
    int n = 0;
    for (int x = 0; x < LN_FORMAT_COUNT; x++)
        for (int w = 0; w < LN_STORED_COUNT; w++) {
            const ln_product p = ln_product_of((ln_format){(uint8_t)x, 4, 64}, (ln_stored)w);
            if (p == LN_PRODUCT_COUNT) continue;
            n++;
            assert_true((int)ln_products[p].x == x && (int)ln_products[p].w == w);
        }
    assert_int_equal(n, LN_PRODUCT_COUNT); /* no pair twice */
    assert_int_equal(ln_product_of((ln_format){LN_FORMAT_BFP, 4, 64}, LN_STORED_BF16), LN_PRODUCT_COUNT);
}

static void rows_come_back(void **state) {
    (void)state;
    char text[16];
    for (int kind = 0; kind < LN_FORMAT_COUNT; kind++)
        for (size_t i = 0; i < LN_COUNT(encodings); i++) {
            const ln_format f = ln_format_of((ln_format_kind)kind, encodings[i]);
            float x[C], row[2 * C], once[C], again[C];
            fill_row(x, 0);
            ln_format_encode(f, x, C, row);
            ln_format_decode(f, row, C, once);
            ln_format_encode(f, once, C, row);
            ln_format_decode(f, row, C, again);
            if (kind != LN_FORMAT_I8PAIR) assert_memory_equal(once, again, sizeof once);
            for (int k = 0; k < C; k++)
                assert_true(fabsf(once[k] - x[k]) <= (kind == LN_FORMAT_F32 ? 0 : 0x1p-9f * 4));
        }
    assert_string_equal(ln_format_text((ln_format){LN_FORMAT_BFP, 4, 64}, text), "bfp4g64");
    assert_string_equal(ln_format_text((ln_format){LN_FORMAT_I8PAIR, 8, 128}, text), "i8pair8g128");
    assert_string_equal(ln_format_text((ln_format){LN_FORMAT_BF16, 0, 0}, text), "bf16");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_are_within_their_bounds),
                                       cmocka_unit_test(only_listed_pairs_have_a_product),
                                       cmocka_unit_test(rows_come_back)};
    return cmocka_run_group_tests_name("formats", tests, NULL, NULL);
}
