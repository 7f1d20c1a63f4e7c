/* Compressed bf16 weights: every element comes back unchanged by each way of reading it; products and
 * lookups have the bits of the uncompressed weights. Most values are like a model's; some are so small
 * that the exponent dictionary has no code for them (exceptions), and some blocks have too many
 * exceptions. */
/* run: slow */
#include "kernels.h"

#include "device/cpu/exec.h"

typedef enum kind { USUAL, ODD, FULL, KINDS } kind;

/* A weight element: bell-shaped with a width of 1/100. ODD and FULL: on average one of max(400, 2 C)
 * elements has random bits. FULL: so has one of 8 elements in each fifth block. */
static uint16_t number(kind k, int64_t d, int64_t C) {
    static const uint16_t specials[] = {0, 0x8000, 0x7f80, 0xff80, 0x7fc1, 0x0001, 0x8011, 0x7f7f};
    float sum = 0;
    for (int i = 0; i < 6; i++) sum += (float)(random_u32() % 2001) - 1000;
    const bool full = k == FULL && d / LN_PACK_NR % 5 == 2;
    if ((k != USUAL && random_u32() % (uint32_t)LN_MAX(400, 2 * C) == 0) || (full && random_u32() % 8 == 0))
        return random_u32() % 2 ? specials[random_u32() % LN_COUNT(specials)]
                                : (uint16_t)(random_u32() & 0xffff);
    return ln_f32_bf16(sum * 1e-5f);
}

typedef struct made {
    guarded numbers, bf12;
    ln_arg w, t; /* as the file has it, and compressed */
    int64_t n_full, n_odd;
} made;

static made make(int64_t D, int64_t C, kind k, int shares) {
    made m = {.numbers = guard((size_t)(D * C * 2), random_u32() % 2, 2 * (random_u32() % 2))};
    for (int64_t i = 0; i < D * C; i++) {
        const uint16_t n = number(k, i / C, C);
        memcpy(m.numbers.data + 2 * i, &n, 2);
    }
    m.w = m.t = (ln_arg){m.numbers.data, D, C, C, LN_BF16};
    m.bf12 = tight_for(&m.t, shares, &m.n_full);
    if (!m.bf12.map) return m;
    for (int64_t b = 0; b < ln_pack_blocks(D); b++)
        for (int64_t i = 0; i < ln_bf12_tile_count(C) && !ln_bf12_uncompressed(m.t.data, C, b); i++)
            m.n_odd += (ln_bf12_table(m.bf12.data + LN_BF12_HEADER_BYTES + b * ln_bf12_block_bytes(C), i) &
                        LN_BF12_HAS_EXCEPTIONS) != 0;
    return m;
}
static void drop(made *m) {
    unguard(&m->numbers);
    if (m->bf12.map) unguard(&m->bf12);
}

/* Element c of row d, decoded by a second implementation of the format in bf12.h. */
static uint16_t read_back(const made *m, int64_t d, int64_t c) {
    const int64_t C = m->w.cols, b = d / 16, tile = c / 32, line = c % 32 / 2, word = d % 16 * 2 + c % 2,
                  blocks = (m->w.rows + 15) / 16;
    const int64_t tables = (8 * ((C + 31) / 32) + 63) / 64 * 64, list = 64 * ((C + 1023) / 1024),
                  bytes = tables + list + 768 * ((C + 31) / 32);
    const uint8_t *block = m->bf12.data + 64 + b * bytes, *p = block + tables + list + 768 * tile;
    uint16_t u;
    if (block[1] & 0x80) {
        uint32_t which;
        memcpy(&which, block + tables, 4);
        memcpy(&u,
               m->bf12.data + 64 + blocks * bytes + which * (1024 * ((C + 31) / 32)) + 1024 * tile +
                   64 * line + 2 * word,
               2);
        return u;
    }
    const int64_t low = 64 * (line / 2) + 16 * (word / 8) + 8 * (line % 2) + word % 8;
    const int code = p[512 + 64 * (low / 128) + low % 64] >> 4 * (low / 64 % 2) & 15;
    uint8_t high = (uint8_t)((block[8 * tile + code % 8] & 0x7f) | (code / 8) << 7);
    for (int64_t i = 0; i < list / 4 && block[8 * tile] & 0x80; i++) {
        uint32_t entry;
        memcpy(&entry, block + tables + 4 * i, 4);
        if (entry == UINT32_MAX) break;
        if (entry >> 17 == (uint32_t)tile && (entry >> 8 & 511) == (uint32_t)(32 * line + word))
            high = (uint8_t)entry;
    }
    return (uint16_t)(high << 8 | p[low]);
}

static const struct shape {
    int64_t D, C;
} shapes[] = {{16, 32},  {1, 64},    {17, 40},  {80, 1},     {90, 33},   {100, 95},
              {240, 64}, {161, 127}, {96, 513}, {200, 1024}, {97, 1056}, {176, 3001}};

static void test_numbers(void **state) {
    (void)state;
    int64_t n_full = 0, n_odd = 0;
    for (size_t i = 0; i < LN_COUNT(shapes); i++)
        for (kind k = 0; k < KINDS; k++) {
            const int64_t D = shapes[i].D, C = shapes[i].C;
            made m = make(D, C, k, random_in(1, 4));
            if (k == USUAL && C >= 64) assert_non_null(m.bf12.map);
            if (k == FULL && D >= 5 * 16 && C >= 64 && m.bf12.map) assert_true(m.n_full >= 1);
            float *row = malloc((size_t)C * sizeof *row);
            for (int64_t d = 0; d < D && m.bf12.map; d++) {
                ln_bf12_row(row, m.t.data, C, d, 0.5f);
                for (int64_t c = 0; c < C; c++) {
                    uint16_t want;
                    memcpy(&want, m.numbers.data + 2 * (d * C + c), 2);
                    if (read_back(&m, d, c) != want)
                        fail_msg("row %lld, column %lld of %lld x %lld: expected %04x, found %04x",
                                 (long long)d, (long long)c, (long long)D, (long long)C, want,
                                 read_back(&m, d, c));
                    assert_true(same_bits(row[c], ln_bf16_f32(want) * 0.5f));
                }
            }
            n_full += m.n_full, n_odd += m.n_odd;
            free(row);
            drop(&m);
        }
    print_message("%lld blocks in full, %lld tiles with odd numbers\n", (long long)n_full, (long long)n_odd);
    assert_true(n_full >= 5 && n_odd >= 50); /* both uncompressed blocks and exceptions were read */
}

/* The zeros that pad the last tile may be missing in its dictionary: they belong to no row. */
static void test_padding(void **state) {
    (void)state;
    enum { C = 31 };
    guarded w = guard(16 * C * 2, true, 0), row = guard(C * 4, true, 0);
    for (int i = 0; i < 16 * C; i++)
        w.data[2 * i] = (uint8_t)random_u32(), w.data[2 * i + 1] = (uint8_t)(0x38 + i % 8);
    ln_arg a = {w.data, 16, C, C, LN_BF16};
    int64_t n_full = 0;
    guarded t = tight_for(&a, 1, &n_full);
    assert_non_null(t.map);
    assert_true(n_full == 0 && ln_bf12_table(t.data + LN_BF12_HEADER_BYTES, 0) & LN_BF12_HAS_EXCEPTIONS);
    for (int64_t d = 0; d < 16; d++) {
        ln_bf12_row((float *)(void *)row.data, t.data, C, d, 1);
        for (int64_t c = 0; c < C; c++)
            assert_true(same_bits(((float *)(void *)row.data)[c], ln_num_load(w.data, LN_BF16, d * C + c)));
    }
    unguard(&w), unguard(&row), unguard(&t);
}

/* Random bits do not compress: no block is made. And the greatest number of uncompressed blocks that is
 * allowed takes no more bytes than compression saves. */
static void test_no_gain(void **state) {
    (void)state;
    guarded w = guard(64 * 640 * 2, true, 0);
    for (size_t i = 0; i < w.bytes; i++) w.data[i] = (uint8_t)random_u32();
    ln_arg a = {w.data, 64, 640, 640, LN_BF16};
    int64_t n_full = 0;
    guarded none = tight_for(&a, 2, &n_full);
    assert_null(none.map);
    unguard(&w);
    for (int64_t blocks = 1; blocks < 3000; blocks += 7)
        for (int64_t C = 1; C < 9000; C += 613) {
            const int64_t most = ln_bf12_max_uncompressed(blocks, C),
                          plain = blocks * ln_pack_block_bytes(LN_BF16, C);
            assert_true(most >= 0 && (most == 0 || ln_bf12_bytes(blocks, C, most) <= plain) &&
                        ln_bf12_bytes(blocks, C, most + 1) > plain);
        }
}

static void product_check(const made *m, int64_t rows, bool fast, bool biased) {
    const int64_t D = m->w.rows, C = m->w.cols, ldx = C + 5, ldy = D + 3;
    guarded x = guard((size_t)((rows - 1) * ldx + C) * 4, true, 0), b = guard((size_t)D * 4, true, 0);
    const size_t count = (size_t)((rows - 1) * ldy + D);
    guarded want = guard(count * 4, true, 0), got = guard(count * 4, true, 0);
    float *numbers = (float *)(void *)x.data;
    fill_f32(numbers, (rows - 1) * ldx + C);
    fill_f32((float *)(void *)b.data, D);
    for (int64_t i = 0; fast && i < (rows - 1) * ldx + C; i++)
        numbers[i] = ln_bf16_f32(ln_f32_bf16(numbers[i]));
    const ln_pvalue values[2] = {{.n_dims = 2, .dims = {LN_DIM_T, C}, .format = bf16_if(fast)},
                                 {.n_dims = 2, .dims = {D, C}, .dtype = LN_BF16}};
    const ln_pnode node = {.op = LN_OP_LINEAR, .n_in = biased ? 3 : 2, .n_out = 1, .in = {0, 1}};
    const ln_bounds bounds = {rows, rows, 1};
    ln_call c = {.node = &node,
                 .in = {{x.data, rows, C, ldx, LN_F32, bf16_if(fast)}, m->w, {b.data, 1, D, D, LN_F32}}};
    c.out[0] = (ln_arg){want.data, rows, D, ldy, LN_F32};
    run_kernel(-1, &c, &bounds, 2);
    for (int isa = 1; isa < LN_ISA_COUNT; isa++) {
        if (!isa_available(isa)) continue;
        c.in[1] = m->w;
        if (own_order(isa, LN_OP_LINEAR, LN_BF16)) { /* the expected values come from the same kernel with
                                                        the uncompressed weight */
            guarded full = packed_for(isa, &c.in[1]);
            c.out[0].data = want.data;
            run_kernel_with(isa, &c, values, &bounds, 2);
            unguard(&full);
        }
        c.out[0].data = got.data;
        c.in[1] = m->t;
        for (size_t n = 0; n < LN_COUNT(thread_counts); n++) {
            char what[160];
            snprintf(what, sizeof what, "%s: %lld rows%s, D %lld, C %lld, %d threads",
                     ln_cpu_isa_name((ln_isa)isa), (long long)rows, fast ? " of bf16 numbers" : "",
                     (long long)D, (long long)C, thread_counts[n]);
            memset(got.data, 0xa5, got.bytes);
            run_kernel_with(isa, &c, values, &bounds, thread_counts[n]);
            assert_same((float *)(void *)want.data, (float *)(void *)got.data, 1, (int64_t)count, 0, what);
        }
    }
    unguard(&x), unguard(&b), unguard(&want), unguard(&got);
}
static void test_products(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(shapes); i++)
        for (kind k = 0; k < KINDS; k++) {
            made m = make(shapes[i].D, shapes[i].C, k, 1);
            for (int64_t rows = 1; rows <= 20 && m.bf12.map; rows += rows < 9 ? 1 : 3)
                product_check(&m, rows, rows % 2, k == ODD);
            for (int fast = 0; fast < 2 && m.bf12.map; fast++)
                product_check(&m, 1 + random_in(0, 7), fast, false);
            drop(&m);
        }
}
/* More rows than one pass takes, more columns than one KC block, more blocks than the tile registers hold. */
static void test_many_rows(void **state) {
    (void)state;
    static const struct shape large[] = {{96, 700}, {93, 2500}, {130, 1024}};
    for (size_t i = 0; i < LN_COUNT(large); i++)
        for (int fast = 0; fast < 2; fast++) {
            made m = make(large[i].D, large[i].C, fast ? ODD : FULL, 2);
            assert_non_null(m.bf12.map);
            product_check(&m, 33, fast, false);
            product_check(&m, i == 0 ? 530 : 270, fast, false);
            drop(&m);
        }
}

static void test_lookups(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(shapes); i++)
        for (kind k = 0; k < KINDS; k++) {
            made m = make(shapes[i].D, shapes[i].C, k, 1);
            enum { ROWS = 9 };
            int32_t ids[ROWS];
            for (int r = 0; r < ROWS; r++) ids[r] = (int32_t)(random_u32() % (uint32_t)shapes[i].D);
            guarded want = guard((size_t)(ROWS * shapes[i].C) * 4, true, 0),
                    got = guard((size_t)(ROWS * shapes[i].C) * 4, true, 0);
            const ln_pnode node = {.op = LN_OP_EMBED, .n_in = 1, .n_out = 1, .p.embed = {.scale = 33.9411f}};
            const ln_step step = {.ids = ids, .n_rows = ROWS};
            const ln_bounds bounds = {ROWS, ROWS, 1};
            ln_call c = {.node = &node,
                         .step = &step,
                         .in = {m.w},
                         .out = {{want.data, ROWS, shapes[i].C, shapes[i].C, LN_F32}}};
            run_kernel(-1, &c, &bounds, 1);
            c.in[0] = m.t;
            if (m.bf12.map)
                for (int isa = 1; isa < LN_ISA_COUNT; isa++)
                    if (isa_available(isa)) {
                        c.out[0].data = got.data;
                        memset(got.data, 0xa5, got.bytes);
                        run_kernel(isa, &c, &bounds, 2);
                        assert_same((float *)(void *)want.data, (float *)(void *)got.data, ROWS, shapes[i].C,
                                    shapes[i].C, ln_cpu_isa_name((ln_isa)isa));
                    }
            unguard(&want), unguard(&got);
            drop(&m);
        }
}

/* Which matrices a device compresses, and their size in bytes; other matrices are stored uncompressed. */
static void test_upload(void **state) {
    (void)state;
    static const struct {
        int64_t D, C;
        kind k;
        bool noise, bf12;
    } cases[] = {{64, 512, USUAL, false, false},
                 {64, 513, USUAL, false, true},
                 {70, 640, ODD, false, true},
                 {400, 640, FULL, false, true},
                 {64, 640, USUAL, true, false}};
    for (int isa = 1; isa < LN_ISA_COUNT; isa++)
        for (size_t i = 0; i < LN_COUNT(cases) && isa_available(isa); i++) {
            ln_error err;
            ln_dev *dev;
            const int64_t D = cases[i].D, C = cases[i].C,
                          plain = ln_pack_blocks(D) * ln_pack_block_bytes(LN_BF16, C);
            const ln_weight_desc v = {.size = sizeof v,
                                      .name = "w",
                                      .enc = ln_encoding_dense(LN_BF16),
                                      .n_dims = 2,
                                      .dims = {D, C},
                                      .uses = LN_USE_BF16};
            made m = make(D, C, cases[i].k, 1);
            for (size_t k = 0; cases[i].noise && k < m.numbers.bytes; k++)
                m.numbers.data[k] = (uint8_t)random_u32();
            setenv("LINNET_CPU", ln_cpu_isa_name((ln_isa)isa), 1);
            assert_int_equal(ln_device_cpu.open(&dev,
                                                &(ln_dev_options){.size = sizeof(ln_dev_options),
                                                                  .n_threads = 3},
                                                &err),
                             LN_OK);
            unsetenv("LINNET_CPU");
            const bool bf12 = cases[i].bf12;
            const ln_host_weight h = {.data = m.numbers.data, .n_rows = D, .n_cols = C};
            ln_weight_size size;
            assert_int_equal(ln_device_cpu.weight_size(dev, &v, &h, &size, &err), LN_OK);
            assert_false(size.in_place);
            const int64_t bytes = (int64_t)size.bound, expected = (int64_t)size.expected;
            assert_int_equal(bytes, plain + (C > LN_BF12_MIN_COLS ? LN_BF12_HEADER_BYTES : 0));
            guarded buffer = guard((size_t)bytes, true, 0);
            ln_device_weight out;
            assert_int_equal(ln_device_cpu.upload(dev, &v, &h, buffer.data, &out, &err), LN_OK);
            assert_ptr_equal(out.data, buffer.data);
            assert_int_equal(out.layout_id, bf12 ? LN_CPU_LAYOUT_BF12 : 0);
            if (bf12) {
                assert_int_equal(out.bytes, ln_bf12_bytes(ln_pack_blocks(D), C, m.n_full));
                assert_true((int64_t)out.bytes < plain &&
                            (cases[i].k == FULL || ((int64_t)out.bytes <= expected && expected < plain)));
                float row[640];
                for (int64_t d = 0; d < D; d++) {
                    ln_bf12_row(row, buffer.data, C, d, 1);
                    for (int64_t c = 0; c < C; c++)
                        assert_true(same_bits(row[c], ln_num_load(m.numbers.data, LN_BF16, d * C + c)));
                }
            } else {
                assert_int_equal(expected, bytes);
                guarded want = guard((size_t)plain, true, 0);
                ln_pack(want.data, m.numbers.data, LN_BF16, D, C, 0, ln_pack_blocks(D));
                assert_memory_equal(want.data, buffer.data, (size_t)plain);
                unguard(&want);
            }
            ln_device_cpu.close(&dev);
            unguard(&buffer);
            drop(&m);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers),   cmocka_unit_test(test_padding),
                                       cmocka_unit_test(test_no_gain),   cmocka_unit_test(test_products),
                                       cmocka_unit_test(test_many_rows), cmocka_unit_test(test_lookups),
                                       cmocka_unit_test(test_upload)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
