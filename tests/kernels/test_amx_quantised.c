/* linear_q by tiles (device/cpu/tiles_q_tmpl.h) against its formula, number by number from the codes: equality of bits for every width, group, type
 * of scales and number of rows, between guard pages. The kernel runs on a model of the tile instructions, with weights unpacked by plain C
 * everywhere and by vectors where there is AVX-512 with bf16; and on the instructions where the machine has them. */
#include "kernels.h"

#define LN_TILES_A_BYTES (24 << 10)
#define LN_TILES_ROWS 80
#define LN_TILES_STEP 3
#include "tile_model.h"
#include "device/cpu/tiles_tmpl.h"

static bool by_vectors;
#if defined(__x86_64__)
static bool vectors_here(void) { return ln_cpu_rung_here(LN_RUNG_AVX512); }
#undef tile_unpack
#undef tile_unpack_lines
#undef tile_transpose
#define tile_unpack (by_vectors ? ln_cpu_unpack_amx : model_unpack)
#define tile_unpack_lines (by_vectors ? ln_cpu_unpack_lines_amx : model_unpack_lines)
#define tile_transpose (by_vectors ? ln_cpu_transpose_amx : model_transpose)
#else
static bool vectors_here(void) { return false; }
#endif
#include "device/cpu/tiles_q_tmpl.h"

enum { PLAIN, VECTORS, TILES, HOW_COUNT };
static const char *const how_names[] = {"the model of tiles", "the model of tiles, by vectors", "tiles"};
static bool how_here(int how) {
    static bool said;
    if (how == VECTORS && !vectors_here() && !said) fprintf(stderr, "SKIP: this machine lacks AVX-512; its unpacking is NOT tested here\n"), said = true;
#if defined(__x86_64__)
    if (how == TILES) return rung_here(LN_RUNG_AMX);
#endif
    return how == PLAIN || (how == VECTORS && vectors_here());
}

/* The columns of a row in the order of tiles. */
static int64_t column(int bits, int64_t i) { return i / 32 * 32 + ln_tile_column(bits, i % 32); }

static void check(int64_t rows, int64_t D, int64_t C, ln_enc enc, ln_dtype dtype, int bias, bool special) {
    const int64_t ldx = C + 3, ldy = D + 5, y_count = (rows - 1) * ldy + D;
    weight w = weight_new(D, C, enc, dtype, special);
    guarded x = guard((size_t)((rows - 1) * ldx + C) * 4, true, 0), b = guard(bias >= 0 ? (size_t)(D * ln_dtype_bytes((ln_dtype)bias)) : 0, true, 1);
    guarded want = guard((size_t)y_count * 4, true, 0), got = guard((size_t)y_count * 4, true, 0);
    float *px = (float *)(void *)x.data, *py = (float *)(void *)want.data;
    uint16_t *row = calloc((size_t)C, 2), *xs = calloc((size_t)(rows * C), 2);
    assert_true(row && xs);
    fill_f32(px, (rows - 1) * ldx + C);
    for (int i = 0; special && i < 3; i++) px[random_u32() % (uint32_t)C] = weight_specials[random_u32() % LN_COUNT(weight_specials)];
    for (int64_t i = 0; i < (rows - 1) * ldx + C; i++) px[i] = ln_bf16_f32(ln_f32_bf16(px[i]));
    for (int64_t i = 0; bias >= 0 && i < D; i++) ln_num_store(b.data, (ln_dtype)bias, i, random_f32());
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < C; i++) xs[r * C + i] = ln_f32_bf16(px[r * ldx + column(enc.bits, i)]);
    for (int64_t d = 0; d < D; d++) {
        for (int64_t i = 0; i < C; i++) {
            const int64_t c = column(enc.bits, i), g = d * (C / enc.group) + c / enc.group;
            row[i] = model_number(enc.bits, (float)code_at(&w, d, c), ln_num_load(w.scales.data, dtype, g), ln_num_load(w.biases.data, dtype, g));
        }
        for (int64_t r = 0; r < rows; r++) {
            float y = 0;
            for (int64_t t = 0; t < C; t += 32) y = flushed(y + model_sum(xs + r * C + t, row + t, 32));
            py[r * ldy + d] = bias >= 0 ? flushed(y + ln_num_load(b.data, (ln_dtype)bias, d)) : y;
        }
    }
    ln_value values[2] = {{.n_dims = 2, .dims = {LN_DIM_T, C}, .bf16 = true}, {.n_dims = 2, .dims = {D, C}, .dtype = dtype, .enc = enc}};
    ln_node node = {.op = LN_OP_LINEAR_Q, .n_in = bias >= 0 ? 3 : 2, .n_out = 1, .in = {0, 1, 2}};
    ln_bounds bounds = {rows + random_in(0, 40), 1, 1};
    ln_call c = {.node = &node};
    c.in[0] = (ln_arg){x.data, rows, C, ldx, LN_F32, true};
    c.in[1] = (ln_arg){&w.a, D, C, C, dtype};
    c.in[2] = (ln_arg){b.data, 1, D, D, (ln_dtype)LN_MAX(bias, 0)};
    c.out[0] = (ln_arg){got.data, rows, D, ldy, LN_F32};
    guarded packed = packed_q_for(1, &w.a, D, C);
    ln_arg wide = c.in[0], narrow;
    guarded halved = narrow_of(&wide, &narrow);
    for (int how = 0; how < HOW_COUNT; how++)
        for (size_t n = 0; n < LN_COUNT(thread_counts) && how_here(how); n++) {
            char what[160];
            snprintf(what, sizeof what, "linear_q by %s: %lld rows, D %lld, C %lld, %d bits, group %d, dtype %d, bias %d, %d threads", how_names[how],
                     (long long)rows, (long long)D, (long long)C, enc.bits, enc.group, (int)dtype, bias, thread_counts[n]);
            memset(got.data, 0xa5, got.bytes);
            c.in[0] = n % 2 && enc.bits != 4 ? narrow : wide; /* ln_cpu_reads_bf16 */
            values[0].dtype = c.in[0].dtype;
            by_vectors = how == VECTORS;
#if defined(__x86_64__)
            if (how == TILES) run_kernel_with(LN_RUNG_AMX, &c, values, &bounds, thread_counts[n]);
#endif
            if (how != TILES) run_this(&(ln_kernel){tiles_q_run, tiles_q_scratch}, &c, values, &bounds, thread_counts[n]);
            assert_same(py, (float *)(void *)got.data, 1, y_count, 0, what);
        }
    weight_free(&w);
    unguard(&x), unguard(&b), unguard(&want), unguard(&got), unguard(&packed), unguard(&halved);
    free(row), free(xs);
}

static void test_forms(void **state) {
    (void)state;
    for (size_t w = 0; w < LN_COUNT(widths); w++)
        for (size_t g = 0; g < LN_COUNT(groups); g++)
            for (int dtype = 0; dtype < 3; dtype++) {
                const ln_enc enc = {widths[w], groups[g]};
                check(random_in(1, 16), random_in(1, 100), enc.group * random_in(1, 6), enc, (ln_dtype)dtype, random_in(-1, 2), false);
                check(random_in(17, 40), random_in(1, 60), enc.group * random_in(1, 6), enc, (ln_dtype)dtype, random_in(-1, 2), false);
                check(1, random_in(1, 100), enc.group * random_in(1, 6), enc, (ln_dtype)dtype, -1, false);
                check(random_in(1, 20), random_in(1, 60), enc.group * random_in(1, 4), enc, (ln_dtype)dtype, -1, true);
            }
}
static void test_rows(void **state) {
    (void)state;
    for (int rows = 1; rows <= 70; rows++) check(rows, random_in(33, 80), 192, (ln_enc){widths[rows % 6], 64}, LN_BF16, random_in(-1, 2), false);
}
static void test_outputs(void **state) {
    (void)state;
    for (int D = 1; D <= 150; D++) check(random_in(1, 20), D, 96, (ln_enc){widths[D % 6], 32}, LN_F16, random_in(-1, 2), false);
}
/* Columns and rows that are cut into several blocks. */
static void test_long(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 8, 33, 96, 163};
    for (size_t w = 0; w < LN_COUNT(widths); w++)
        for (size_t i = 0; i < LN_COUNT(rows); i++) check(rows[i], 37, 1408, (ln_enc){widths[w], i % 2 ? 128 : 64}, LN_BF16, -1, false);
}
/* More of both than scratch of the real size holds: on the instructions only, the model has its own limits. */
static void test_real_blocks(void **state) {
    (void)state;
    if (!how_here(TILES)) skip();
    check(600, 20, 3008, (ln_enc){4, 64}, LN_BF16, -1, false);
    check(1100, 18, 704, (ln_enc){8, 32}, LN_F16, 0, false);
}

/* Codes of every value, with scales and biases that are special: the vectors give what plain C does, bit for bit. */
static void test_unpack(void **state) {
    (void)state;
#if defined(__x86_64__)
    for (int i = 0; i < 3000; i++) {
        const ln_enc enc = {widths[i % 6], groups[i / 6 % 3]};
        const ln_dtype dtype = (ln_dtype)(i / 18 % 3);
        const int64_t tiles = enc.group / 32, t = random_in(0, (int)tiles - 1), n = random_in(1, (int)(tiles - t));
        weight w = weight_new(16, enc.group, enc, dtype, i % 2);
        guarded packed = packed_q_for(1, &w.a, 16, enc.group);
        uint16_t want[4 * 512], got[4 * 512] __attribute__((aligned(64)));
        if (!how_here(VECTORS)) skip();
        for (int lines = 0; lines < (enc.bits == 4 ? 2 : 1); lines++) {
            const int64_t m = lines ? tiles : n;
            const unsigned mode = __builtin_ia32_stmxcsr();
            if (lines) model_unpack_lines(&w.a, packed.data, m, (uint8_t *)want);
            else model_unpack(&w.a, packed.data, t, m, (uint8_t *)want);
            __builtin_ia32_ldmxcsr(mode | 0x8040u); /* as the pool's threads have it */
            if (lines) ln_cpu_unpack_lines_amx(&w.a, packed.data, m, (uint8_t *)got);
            else ln_cpu_unpack_amx(&w.a, packed.data, t, m, (uint8_t *)got);
            __builtin_ia32_ldmxcsr(mode);
            for (int64_t k = 0; k < m * 512; k++)
                if (!same_bits(flushed(ln_bf16_f32(want[k])), flushed(ln_bf16_f32(got[k]))))
                    fail_msg("%d bits, group %d, tile %lld of %lld, place %lld: expected %04x, found %04x", enc.bits, enc.group, (long long)(k / 512), (long long)m,
                             (long long)(k % 512), want[k], got[k]);
        }
        ln_cpu_transpose_amx((const uint8_t *)got, (uint8_t *)want);
        ln_cpu_places_amx(enc.bits, (uint8_t *)want, 16);
        uint16_t mine[512];
        model_transpose((const uint8_t *)got, (uint8_t *)mine);
        model_places(enc.bits, (uint8_t *)mine, 16);
        assert_memory_equal(mine, want, sizeof mine);
        weight_free(&w), unguard(&packed);
    }
#else
    skip();
#endif
}

/* Exact numbers of x are not for tiles of rounded weights: that product has the bits of the rungs below (test_quantised compares them). */
static void test_freedom(void **state) {
    (void)state;
#if defined(__x86_64__)
    ln_value values[2] = {{.n_dims = 2, .dims = {LN_DIM_T, 64}}, {.n_dims = 2, .dims = {8, 64}, .dtype = LN_BF16, .enc = {4, 64}}};
    ln_node node = {.op = LN_OP_LINEAR_Q, .n_in = 2, .n_out = 1, .in = {0, 1}};
    assert_true(ln_cpu_freedom(LN_RUNG_AMX, &node, values) == 0);
    values[0].bf16 = true;
    assert_true(ln_cpu_freedom(LN_RUNG_AVX512, &node, values) == 0);
    assert_true(ln_cpu_freedom(LN_RUNG_AMX, &node, values) > 0);
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_rows),   cmocka_unit_test(test_outputs), cmocka_unit_test(test_long),
                                       cmocka_unit_test(test_real_blocks), cmocka_unit_test(test_unpack), cmocka_unit_test(test_freedom)};
    return cmocka_run_group_tests_name("amx quantised", tests, NULL, NULL);
}
