/* Tests linear on tiles (device/cpu/gemm/gemm_bf16_amx.inc.h) against its formula, computed value by value
 * from the unpacked weights: equality of bits, between guard pages, for odd sizes, gaps of any content and
 * any number of threads. The kernel runs on a model of the tile instructions on every machine, with scratch
 * so small that columns and rows are split into many blocks, and on the instructions if the machine has
 * them. */
/* run: slow */
#include "kernels.h"

#define LN_AMX_A_BYTES  (24 << 10)
#define LN_AMX_MC       80
#define LN_AMX_KC_TILES 3
#include "tile_model.h"
#include "lanes_model.h"
#include "device/cpu/gemm/gemm_bf16_amx.inc.h"

#include "engine/engine.h"

static const float specials[] = {NAN, INFINITY, -INFINITY, -0.0f, 1e-42f, 3e38f, 3.4e38f, 1e-38f, 1e-20f};

/* Splits x into n_terms bf16 terms, `apart` elements from each other. */
static void split(float x, int n_terms, uint16_t *to, int64_t apart) {
    for (int t = 0; t < n_terms; t++)
        to[t * apart] = (uint16_t)(ln_f32_bits(n_terms > 1 ? split_term(x, &x) : x) >> 16);
}
/* The dot product of w[C] and x, given as terms[3][C]; `fast`: as one term, [C]. */
static float formula(const uint16_t *x, bool fast, const uint16_t *w, int64_t C) {
    float y = 0;
    for (int64_t t = 0; t * 32 < C; t++)
        for (int i = 0; i < (fast ? 1 : MAX_TERMS); i++)
            y = flushed(y + model_sum(x + i * C + t * 32, w + t * 32, LN_MIN((int64_t)32, C - t * 32)));
    return y;
}

typedef struct linear_case {
    int64_t rows, D, C;
    bool fast; /* x is bf16-valued */
    int bias;  /* -1: no bias, else its type */
    bool special;
    bool bf12; /* the weight is compressed bf16, except for some uncompressed blocks */
} linear_case;

/* A weight element for the tests of compressed bf16: most values are like a model's; some are exceptions,
 * and each seventh block has so many that it is stored uncompressed. */
static float tight_number(int64_t d, int64_t C) {
    const bool odd =
        random_u32() % (uint32_t)(4 * C) == 0 || (d / LN_PACK_NR % 7 == 5 && random_u32() % 8 == 0);
    return odd ? ln_bf16_f32((uint16_t)(random_u32() & 0x3fff))
               : ((float)(random_u32() % 2001) - 1000) * 1e-5f;
}

static int64_t n_tight, n_in_full; /* cases with compressed bf16 weights, and uncompressed blocks in them */
static void linear_check(const linear_case *t) {
    const int64_t ldx = t->C + 3, ldy = t->D + 5, y_count = (t->rows - 1) * ldy + t->D;
    guarded w = guard((size_t)(t->D * t->C * 2), true, (size_t)random_in(0, 1)),
            x = guard((size_t)((t->rows - 1) * ldx + t->C) * 4, true, 0);
    guarded b = guard(t->bias >= 0 ? (size_t)(t->D * ln_dtype_bytes((ln_dtype)t->bias)) : 0, true, 1);
    guarded want = guard((size_t)y_count * 4, true, 0), got = guard((size_t)y_count * 4, true, 0);
    float *px = (float *)(void *)x.data, *py = (float *)(void *)want.data;
    uint16_t *row = calloc((size_t)t->C, 2), *terms = calloc((size_t)t->C, 2 * MAX_TERMS);
    assert_true(row && terms);
    for (int64_t i = 0; i < t->D * t->C; i++)
        weight_put(w.data, LN_BF16, i,
                   t->special && random_u32() % 199 == 0 ? specials[random_u32() % 9]
                   : t->bf12                             ? tight_number(i / t->C, t->C)
                                                         : random_f32());
    for (int64_t i = 0; t->bias >= 0 && i < t->D; i++) weight_put(b.data, (ln_dtype)t->bias, i, random_f32());
    fill_f32(px, (t->rows - 1) * ldx + t->C);
    for (int64_t i = 0; t->special && i < (t->rows - 1) * ldx + t->C; i++)
        if (random_u32() % 199 == 0) px[i] = specials[random_u32() % 9];
    for (int64_t i = 0; t->fast && i < (t->rows - 1) * ldx + t->C; i++)
        px[i] = ln_bf16_f32(ln_f32_bf16(px[i]));
    for (int64_t r = 0; r < t->rows; r++) {
        for (int64_t i = 0; i < t->C; i++) split(px[r * ldx + i], t->fast ? 1 : MAX_TERMS, terms + i, t->C);
        for (int64_t d = 0; d < t->D; d++) {
            memcpy(row, w.data + d * t->C * 2, (size_t)t->C * 2);
            float y = formula(terms, t->fast, row, t->C);
            py[r * ldy + d] = t->bias >= 0 ? flushed(y + ln_num_load(b.data, (ln_dtype)t->bias, d)) : y;
        }
    }
    ln_pvalue values[2] = {{.n_dims = 2, .dims = {LN_DIM_T, t->C}, .format = bf16_if(t->fast)},
                           {.n_dims = 2, .dims = {t->D, t->C}, .dtype = LN_BF16}};
    ln_pnode node = {.op = LN_OP_LINEAR, .n_in = t->bias >= 0 ? 3 : 2, .n_out = 1, .in = {0, 1, 2}};
    ln_bounds bounds = {t->rows + random_in(0, 40), 1, 1};
    ln_call c = {.node = &node};
    c.in[0] = (ln_arg){x.data, t->rows, t->C, ldx, LN_F32, bf16_if(t->fast)};
    c.in[1] = (ln_arg){w.data, t->D, t->C, t->C, LN_BF16};
    c.in[2] = (ln_arg){b.data, 1, t->D, t->D, (ln_dtype)LN_MAX(t->bias, 0)};
    c.out[0] = (ln_arg){got.data, t->rows, t->D, ldy, LN_F32};
    int64_t n_full = 0;
    guarded packed = t->bf12 ? tight_for(&c.in[1], 1, &n_full) : packed_for(1, &c.in[1]);
    if (!packed.map) packed = packed_for(1, &c.in[1]);
    n_tight += c.in[1].bf12, n_in_full += n_full;
    ln_arg wide = c.in[0], narrow;
    guarded halved = narrow_of(&wide, &narrow);
    const bool whole = t->fast && t->C % 32 == 0; /* then x may be stored as bf16 */
    for (int kind = 0; kind < (whole ? 4 : 2); kind++)
        for (size_t n = 0; n < LN_COUNT(thread_counts); n++) {
            const bool hardware = kind % 2;
            char what[160];
            snprintf(what, sizeof what,
                     "linear by %s%s: %lld rows%s, D %lld, C %lld, %s, bias %d, %d threads",
                     c.in[1].bf12 ? "tight " : "", hardware ? "tiles" : "the model of tiles",
                     (long long)t->rows, kind > 1 ? " in two bytes" : "", (long long)t->D, (long long)t->C,
                     t->fast ? "fast" : "exact", t->bias, thread_counts[n]);
            c.in[0] = kind > 1 ? narrow : wide;
            values[0].layout = kind > 1 ? LN_LAYOUT_NARROW : LN_LAYOUT_ROWS;
            memset(got.data, 0xa5, got.bytes);
#if defined(__x86_64__)
            if (hardware && !isa_available(LN_ISA_AMX)) continue;
            if (hardware) run_kernel_with(LN_ISA_AMX, &c, values, &bounds, thread_counts[n]);
#endif
            if (!hardware)
                run_this(&(ln_kernel){.fn = bf16_amx_run, .scratch = bf16_amx_scratch}, &c, values, &bounds,
                         thread_counts[n]);
            assert_same(py, (float *)(void *)got.data, 1, y_count, 0, what);
        }
    unguard(&w), unguard(&x), unguard(&b), unguard(&want), unguard(&got), unguard(&packed), unguard(&halved);
    free(row), free(terms);
}

/* The gated pair of products and its activation, a strip of outputs at a time, on the model of tiles. */
static void best_gated(const ln_call *c) {
    ln_kernel_table table;
    ln_isa r = LN_ISA_PLAIN;
    while (r + 1 < LN_ISA_COUNT && ln_cpu_isa_here(r + 1)) r++;
    ln_cpu_kernels(r, &table);
    table.of[LN_OP_GATED][0].fn(c);
}
#define GATED_ROWWISE_KERNEL best_gated
#include "device/cpu/gemm/gemm_bf16_gated_amx.inc.h"

static void gated_check(int64_t rows, int64_t F, int64_t C, bool narrow, bool bf12) {
    const int64_t ldx = C + 32, ldy = F + 5, count = (rows - 1) * ldy + F;
    guarded x = guard((size_t)((rows - 1) * ldx + C) * 4, true, 0),
            w[2] = {guard((size_t)(F * C * 2), true, 0), guard((size_t)(F * C * 2), true, 0)};
    guarded want = guard((size_t)count * 4, true, 0), got = guard((size_t)count * 4, true, 0);
    float *px = (float *)(void *)x.data, *py = (float *)(void *)want.data;
    uint16_t *terms = calloc((size_t)C, 2);
    assert_non_null(terms);
    fill_f32(px, (rows - 1) * ldx + C);
    for (int64_t i = 0; i < (rows - 1) * ldx + C; i++) px[i] = ln_bf16_f32(ln_f32_bf16(px[i]));
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < F * C; i++)
            weight_put(w[k].data, LN_BF16, i, bf12 ? tight_number(i / C, C) : random_f32());
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < C; i++) split(px[r * ldx + i], 1, terms + i, C);
        for (int64_t d = 0; d < F; d++) {
            const float g = formula(terms, true, (const uint16_t *)(const void *)w[0].data + d * C, C);
            const float u = formula(terms, true, (const uint16_t *)(const void *)w[1].data + d * C, C);
            py[r * ldy + d] = ln_bf16_f32(ln_f32_bf16(ln_siluf(g) * u));
        }
    }
    ln_pvalue values[4] = {{.n_dims = 2,
                            .dims = {LN_DIM_T, C},
                            .format = bf16_if(true),
                            .layout = narrow ? LN_LAYOUT_NARROW : LN_LAYOUT_ROWS},
                           {.n_dims = 2, .dims = {F, C}, .dtype = LN_BF16},
                           {.n_dims = 2, .dims = {F, C}, .dtype = LN_BF16}};
    ln_pnode node = {.op = LN_OP_LINEAR_GATED, .n_in = 3, .n_out = 1, .in = {0, 1, 2}, .out = {3}};
    ln_bounds bounds = {rows + random_in(0, 40), 1, 1};
    ln_call c = {.node = &node};
    c.in[0] = (ln_arg){x.data, rows, C, ldx, LN_F32, bf16_if(true)};
    for (int k = 0; k < 2; k++) c.in[1 + k] = (ln_arg){w[k].data, F, C, C, LN_BF16};
    c.out[0] = (ln_arg){got.data, rows, F, ldy, LN_F32, bf16_if(true)};
    guarded packed[2], halved;
    for (int k = 0; k < 2; k++) {
        int64_t n_full = 0;
        packed[k] = bf12 ? tight_for(&c.in[1 + k], 1, &n_full) : packed_for(1, &c.in[1 + k]);
        if (!packed[k].map) packed[k] = packed_for(1, &c.in[1 + k]);
        n_tight += c.in[1 + k].bf12;
    }
    const ln_arg wide = c.in[0];
    ln_arg half;
    halved = narrow_of(&wide, &half);
    if (narrow) c.in[0] = half;
    for (int kind = 0; kind < 4; kind++)
        for (size_t n = 0; n < LN_COUNT(thread_counts); n++) {
            enum { VARIANT = LN_PRODUCT_BF16_BF16 };
            ln_kernel_table table = {.of[LN_OP_LINEAR_GATED][VARIANT] = {gated_run, gated_scratch}};
            char what[160];
            snprintf(what, sizeof what,
                     "linear_gated by %s: %lld rows, F %lld, C %lld, narrow %d, %d, %d threads",
                     kind % 2 ? "tiles" : "the model of tiles", (long long)rows, (long long)F, (long long)C,
                     narrow, kind / 2, thread_counts[n]);
#if defined(__x86_64__)
            if (kind % 2 && !isa_available(LN_ISA_AMX)) continue;
            if (kind % 2) ln_cpu_kernels(LN_ISA_AMX, &table);
            if (kind / 2 && !isa_available(LN_ISA_AVX2)) continue;
#else
            if (kind % 2) continue;
#endif
            memset(got.data, 0xa5, got.bytes);
            if (kind / 2) run_narrow(&table.of[node.op][VARIANT], &c, values, &bounds, thread_counts[n]);
            else run_this(&table.of[node.op][VARIANT], &c, values, &bounds, thread_counts[n]);
            assert_same(py, (float *)(void *)got.data, 1, count, 0, what);
        }
    unguard(&x), unguard(&w[0]), unguard(&w[1]), unguard(&want), unguard(&got), unguard(&packed[0]),
        unguard(&packed[1]), unguard(&halved);
    free(terms);
}
static void test_gated(void **state) {
    (void)state;
    const bool less = fewer(0, 1);
    n_tight = 0;
    static const int64_t rows[] = {1, 3, 16, 17, 60, 100}, outputs[] = {1, 16, 50, 130};
    for (size_t i = 0; i < LN_COUNT(rows); i += (size_t)fewer(1, 2))
        for (size_t k = 0; k < LN_COUNT(outputs); k++)
            for (int narrow = 0; narrow < 2; narrow++)
                for (int bf12 = 0; bf12 < (less && (i + k) % 2 ? 1 : 2); bf12++)
                    gated_check(rows[i], outputs[k],
                                narrow ? 32 * random_in(1 + bf12, 4) : random_in(1 + 99 * bf12, 100), narrow,
                                bf12);
    assert_true(n_tight > (less ? 10 : 50));
}

static void test_columns(void **state) {
    (void)state;
    for (int64_t C = 1; C <= 330; C += (C < 70 ? 1 : 13) * fewer(1, 3))
        for (int fast = 0; fast < 2; fast++)
            linear_check(&(linear_case){random_in(1, 20), random_in(1, 60), C, fast, random_in(-1, 2),
                                        false});
}
static void test_rows(void **state) {
    (void)state;
    for (int64_t rows = 1; rows <= 70; rows += fewer(1, 3))
        for (int fast = 0; fast < 2; fast++)
            linear_check(&(linear_case){rows, random_in(33, 80), random_in(30, 100), fast, random_in(-1, 2),
                                        false});
}
static void test_outputs(void **state) {
    (void)state;
    for (int64_t D = 1; D <= 100; D += fewer(1, 3))
        linear_check(&(linear_case){random_in(1, 40), D, random_in(1, 100), D % 2, random_in(-1, 2), false});
}
static void test_long(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 2, 8, 16, 17, 33, 100, 163};
    for (size_t i = 0; i < LN_COUNT(rows); i += (size_t)fewer(1, 3))
        for (int fast = 0; fast < 3; fast++)
            linear_check(&(linear_case){rows[i], 37, fast == 2 ? 1504 : 1500, fast, -1, false});
}
static void test_special(void **state) {
    (void)state;
    for (int i = 0; i < 60; i += (int)fewer(1, 3))
        linear_check(&(linear_case){random_in(1, 40), random_in(1, 60), random_in(1, 200), i % 2,
                                    random_in(-1, 2), true});
}
static void test_bf12(void **state) {
    (void)state;
    const int64_t some = fewer(1, 4);
    n_tight = n_in_full = 0;
    for (int64_t C = 31; C <= 330; C += (C < 70 ? 3 : 17) * some)
        for (int fast = 0; fast < 2; fast++)
            linear_check(&(linear_case){random_in(1, 20), random_in(17, 130), C, fast, random_in(-1, 2),
                                        false, true});
    for (int64_t rows = 1; rows <= 70; rows += (rows < 18 ? 1 : 5) * some)
        for (int fast = 0; fast < 2; fast++)
            linear_check(&(linear_case){rows, random_in(33, 150), 32 * random_in(2, 5), fast,
                                        random_in(-1, 2), false, true});
    for (int64_t D = 64; D <= 160; D += 8 * some)
        linear_check(&(linear_case){random_in(1, 40), D, random_in(64, 100), D % 2, random_in(-1, 2), false,
                                    true});
    static const int64_t rows[] = {1, 2, 8, 16, 17, 33, 100, 163};
    for (size_t i = 0; i < LN_COUNT(rows); i += (size_t)some)
        for (int fast = 0; fast < 3; fast++)
            linear_check(&(linear_case){rows[i], 37 + 69 * random_in(0, 2), fast == 2 ? 1504 : 1500, fast, -1,
                                        false, true});
    for (int64_t i = 0; i < 20; i += some)
        linear_check(&(linear_case){random_in(1, 40), random_in(60, 90), random_in(100, 200), i % 2,
                                    random_in(-1, 2), true, true});
    print_message("%lld cases were tight, %lld blocks in full\n", (long long)n_tight, (long long)n_in_full);
    assert_true(n_tight > 100 / some && n_in_full > 20 / some);
}
/* More columns and rows than the scratch of the real size holds. Runs on the instructions only, as the
 * model has its own limits. */
static void test_real_blocks(void **state) {
    (void)state;
#if defined(__x86_64__)
    if (isa_available(LN_ISA_AMX)) {
        linear_check(&(linear_case){600, 20, 3000, true, -1, false});
        if (fewer(1, 0)) {
            linear_check(&(linear_case){600, 20, 3008, true, -1, false});
            linear_check(&(linear_case){1100, 18, 700, false, -1, false});
        }
        for (int bf12 = (int)fewer(0, 1); bf12 < 2; bf12++)
            for (int fast = 0; fast < 2; fast++) {
                linear_check(&(linear_case){130, 100, 1024 + 32 * random_in(0, 10), fast, -1, false, bf12});
                linear_check(&(linear_case){random_in(1, 16), 40, 11000, fast, -1, false, bf12});
            }
        return;
    }
#endif
    skip();
}

/* The sum of the three terms is the value, if that is finite; an infinity or a NaN is the first term
 * alone. */
static void test_split(void **state) {
    (void)state;
    for (int i = 0; i < 2000000; i++) {
        uint32_t u = random_u32() << 1 ^ random_u32();
        float x = i < (int)LN_COUNT(specials) ? specials[i] : ln_bits_f32(u);
        uint16_t t[MAX_TERMS];
        split(x, MAX_TERMS, t, 1);
        double a = (double)ln_bf16_f32(t[0]), b = (double)ln_bf16_f32(t[1]), c = (double)ln_bf16_f32(t[2]);
        if (x != x) assert_true(a != a && b == 0 && c == 0);
        else if (isinf(x)) assert_true(a == (double)x && b == 0 && c == 0);
        else if (!(fabs((double)x - (a + b + c)) <=
                   (fabs((double)x) < 1e-30 ? 1.2e-38 : 0))) /* terms that would be denormal are lost */
            fail_msg("%.9g is split into %.9g, %.9g and %.9g", (double)x, a, b, c);
    }
}

/* Compared with the sum in double: the difference is at most what 3 C / 32 + 17 additions round. */
static void test_close(void **state) {
    (void)state;
    enum { C = 1000 };
    float x[C];
    uint16_t w[C], terms[MAX_TERMS * C];
    for (int i = 0; i < 400; i++) {
        bool fast = i % 2;
        double sum = 0, size = 0;
        for (int k = 0; k < C; k++) {
            x[k] = random_f32();
            w[k] = ln_f32_bf16(random_f32());
            if (fast) x[k] = ln_bf16_f32(ln_f32_bf16(x[k]));
            split(x[k], fast ? 1 : MAX_TERMS, terms + k, C);
            sum += (double)x[k] * (double)ln_bf16_f32(w[k]);
            size += fabs((double)x[k] * (double)ln_bf16_f32(w[k]));
        }
        double off = fabs((double)formula(terms, fast, w, C) - sum),
               bound = size * ldexp(3.0 * C / 32 + 17, -24);
        if (!(off <= bound)) fail_msg("%s: off by %g, bound %g", fast ? "fast" : "exact", off, bound);
    }
}

/* Packing pads with zeros: a tile that is read as a whole never contains other memory. */
static void test_packing(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{1, 1}, {16, 31}, {17, 32}, {5, 33}, {40, 100}};
    for (size_t i = 0; i < LN_COUNT(sizes); i++) {
        const int64_t D = sizes[i][0], C = sizes[i][1], whole = (C + 31) / 32 * 32;
        uint16_t *w = calloc((size_t)(D * C), 2);
        assert_non_null(w);
        for (int64_t k = 0; k < D * C; k++) w[k] = (uint16_t)(k + 1);
        ln_arg a = {w, D, C, C, LN_BF16};
        assert_int_equal(ln_pack_block_bytes(LN_BF16, C), 16 * whole * 2);
        guarded g = packed_for(1, &a);
        for (int64_t d = 0; d < ln_pack_blocks(D) * 16; d++)
            for (int64_t c = 0; c < whole; c++) {
                uint16_t h;
                memcpy(&h, g.data + ln_pack_offset(LN_BF16, C, d, c), 2);
                assert_int_equal(h, d < D && c < C ? d * C + c + 1 : 0);
            }
        unguard(&g);
        free(w);
    }
}

/* Which values are bf16-valued follows from the graph: rounding to bf16 makes such values, gather_rows
 * keeps them, no other op does. */
static void test_flag(void **state) {
    (void)state;
    ln_graph g;
    ln_graph_open(&g);
    ln_v table = ln_g_weight(&g, "table", LN_BF16, 0, 10, 8), x = ln_g_embed(&g, "x", table, 1, 0);
    ln_v rounded = ln_g_convert(&g, "rounded", x, bf16_if(true)),
         rows = ln_g_gather_rows(&g, "rows", rounded), plain = ln_g_gather_rows(&g, "plain", x);
    ln_v sum = ln_g_add(&g, "sum", rounded, rounded), y = ln_g_linear(&g, "y", rounded, table, -1);
    assert_int_equal(g.error.code, LN_OK);
    const ln_v all[] = {table, x, rounded, rows, plain, sum};
    for (size_t i = 0; i < LN_COUNT(all); i++)
        assert_int_equal(g.values[all[i]].format.kind == LN_FORMAT_BF16, all[i] == rounded || all[i] == rows);
    (void)y;
    ln_graph_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns), cmocka_unit_test(test_rows),    cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_long),    cmocka_unit_test(test_special), cmocka_unit_test(test_real_blocks),
        cmocka_unit_test(test_split),   cmocka_unit_test(test_close),   cmocka_unit_test(test_packing),
        cmocka_unit_test(test_flag),    cmocka_unit_test(test_gated),   cmocka_unit_test(test_bf12)};
    return cmocka_run_group_tests_name("amx", tests, NULL, NULL);
}
