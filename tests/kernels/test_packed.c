/* Weights in affine groups as the CPU device packs them: packing in one call and packing some rows at a
 * time, as quantisation at load does, give the same bytes and write exactly the weight's bytes; and which
 * layout a weight gets, by its uses and by its columns. */
/* run: quick */
#include "kernels.h"

#include "device/device.h"

#define FIRST 64 /* bytes of the ln_affine at the beginning, which holds addresses */

static ln_host_weight rows_from(const weight *w, int64_t d, int64_t n) {
    const int64_t numbers = w->C / w->a.code.group * ln_dtype_bytes(w->a.dtype);
    return (ln_host_weight){.data = w->a.codes + d * ln_affine_row_bytes(w->a.code, w->C),
                            .scales = w->a.scales + d * numbers,
                            .offsets = w->a.biases + d * numbers,
                            .row0 = d,
                            .n_rows = n,
                            .n_cols = w->C};
}

/* Packs `some` rows at a time. */
static void pack(ln_dev *dev, const ln_weight_desc *v, const weight *w, int64_t some, guarded *buffer) {
    ln_error err;
    ln_device_weight out = {0};
    for (int64_t d = 0; d < w->D; d += some) {
        const ln_host_weight h = rows_from(w, d, LN_MIN(some, w->D - d));
        assert_int_equal(ln_device_cpu.upload(dev, v, &h, buffer->data, &out, &err), LN_OK);
        assert_ptr_equal(out.data, buffer->data);
    }
}
/* Packs all rows from an array with padding behind each row. */
static void pack_padded(ln_dev *dev, const ln_weight_desc *v, const weight *w, guarded *buffer) {
    enum { PADDING = 12 };
    ln_error err;
    ln_device_weight out = {0};
    const int64_t row = ln_affine_row_bytes(w->a.code, w->C),
                  numbers = w->C / w->a.code.group * ln_dtype_bytes(w->a.dtype);
    ln_host_weight h = rows_from(w, 0, w->D);
    h.pitch = row + PADDING, h.scale_pitch = h.offset_pitch = numbers + PADDING;
    char *codes = malloc((size_t)(w->D * h.pitch)), *scales = malloc((size_t)(w->D * h.scale_pitch)),
         *biases = malloc((size_t)(w->D * h.scale_pitch));
    for (int64_t d = 0; d < w->D; d++) {
        memcpy(codes + d * h.pitch, w->a.codes + d * row, (size_t)row);
        memcpy(scales + d * h.scale_pitch, w->a.scales + d * numbers, (size_t)numbers);
        memcpy(biases + d * h.scale_pitch, w->a.biases + d * numbers, (size_t)numbers);
    }
    h.data = codes, h.scales = scales, h.offsets = biases;
    assert_int_equal(ln_device_cpu.upload(dev, v, &h, buffer->data, &out, &err), LN_OK);
    free(codes), free(scales), free(biases);
}

/* The offset of p in the buffer; -1 for NULL. */
static int64_t place(const void *p, const guarded *buffer) {
    if (!p) return -1;
    const int64_t at = (int64_t)((uintptr_t)p - (uintptr_t)buffer->data);
    assert_true(at >= FIRST && at < (int64_t)buffer->bytes);
    return at;
}

static void packed_check(int64_t D, int64_t C, ln_groups enc, ln_dtype dtype, uint32_t uses) {
    ln_error err;
    ln_dev *dev;
    ln_dev_info info = {.size = sizeof info};
    weight w = weight_new(D, C, enc, dtype, false);
    const ln_weight_desc v = {.size = sizeof v,
                              .name = "w",
                              .enc = ln_encoding_of(dtype, enc),
                              .n_dims = 2,
                              .dims = {D, C},
                              .uses = uses};
    ln_weight_size size;
    assert_int_equal(ln_device_cpu.open(&dev,
                                        &(ln_dev_options){.size = sizeof(ln_dev_options), .n_threads = 2},
                                        &err),
                     LN_OK);
    ln_device_cpu.describe(dev, &info);
    assert_int_equal(ln_device_cpu.weight_size(dev, &v, NULL, &size, &err), LN_OK);
    const size_t bytes = size.bound;
    assert_int_equal(size.expected, bytes);
    if (!size.in_place) { /* else the plain ISA level */
        guarded buffer[4];
        const int64_t some[] = {(D + 15) / 16 * 16, 16, 48};
        for (int i = 0; i < 4; i++) {
            buffer[i] = guard(bytes, true, 0);
            memset(buffer[i].data, i == 0 ? 0xa5 : 0x5a, bytes); /* a byte that is not written would differ */
            if (i < 3) pack(dev, &v, &w, some[i], &buffer[i]);
            else pack_padded(dev, &v, &w, &buffer[i]);
        }
        const bool per_row = info.layout_uses & uses & LN_USE_BFP && C <= LN_I8PAIR_MAX_COLS,
                   apart = per_row && enc.bits <= 4 && uses & LN_USE_GATHER;
        ln_affine first;
        memcpy(&first, buffer[0].data, sizeof first);
        assert_true((first.units != NULL) == per_row && (first.scales != NULL) == apart && !first.biases);
        for (int i = 1; i < 4; i++) {
            ln_affine a;
            memcpy(&a, buffer[i].data, sizeof a);
            assert_int_equal(place(a.codes, &buffer[i]), place(first.codes, &buffer[0]));
            assert_int_equal(place(a.units, &buffer[i]), place(first.units, &buffer[0]));
            assert_int_equal(place(a.scales, &buffer[i]), place(first.scales, &buffer[0]));
            for (size_t k = FIRST; k < bytes; k++)
                if (buffer[i].data[k] != buffer[0].data[k])
                    fail_msg("D %lld, C %lld, %d bits in %ds, dtype %d, uses %u: byte %zu of %zu "
                             "differs, %lld rows at a time",
                             (long long)D, (long long)C, enc.bits, enc.group, (int)dtype, uses, k, bytes,
                             i < 3 ? (long long)some[i] : -1);
        }
        for (int i = 0; i < 4; i++) unguard(&buffer[i]);
    }
    weight_free(&w);
    ln_device_cpu.close(&dev);
}

static const uint32_t uses_of[] = {LN_USE_F32,
                                   LN_USE_BFP,
                                   LN_USE_GATHER,
                                   LN_USE_F32 | LN_USE_GATHER,
                                   LN_USE_BFP | LN_USE_GATHER,
                                   LN_USE_BFP | LN_USE_F32 | LN_USE_GATHER};

static void test_in_slices(void **state) {
    (void)state;
    const ln_dtype dtypes[] = {LN_F32, LN_BF16, LN_F16};
    for (int i = 0; i < 160; i++)
        packed_check(random_in(1, 120), 128 * random_in(1, 4),
                     (ln_groups){widths[i % 6], groups[random_u32() % 3]}, dtypes[random_u32() % 3],
                     uses_of[random_u32() % LN_COUNT(uses_of)]);
}
static void test_wide(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(uses_of); i++)
        for (int64_t C = LN_I8PAIR_MAX_COLS; C <= LN_I8PAIR_MAX_COLS + 64; C += 64)
            packed_check(40, C, (ln_groups){4, 64}, LN_BF16, uses_of[i]);
}

/* Ranges that a device does not take are rejected with the weight's name, and vectors come in any pieces. */
static void test_ranges(void **state) {
    (void)state;
    const ln_device_ops *both[] = {&ln_device_cpu, &ln_device_ref};
    for (int k = 0; k < 2; k++) {
        ln_error err;
        ln_dev *dev;
        ln_device_weight out;
        ln_weight_size size;
        float numbers[64 * 4], buffer[64 * 32];
        for (int i = 0; i < 256; i++) numbers[i] = (float)i;
        assert_int_equal(both[k]->open(&dev,
                                       &(ln_dev_options){.size = sizeof(ln_dev_options), .n_threads = 1},
                                       &err),
                         LN_OK);
        const ln_weight_desc w = {
            .size = sizeof w, .name = "some.weight", .n_dims = 2, .dims = {64, 4}, .uses = LN_USE_F32};
        static const ln_host_weight bad[] = {{.row0 = 16, .n_rows = 49, .n_cols = 4},
                                             {.row0 = -16, .n_rows = 16, .n_cols = 4},
                                             {.n_rows = 64, .n_cols = 3},
                                             {.n_rows = 64, .col0 = 1, .n_cols = 3},
                                             {.row0 = 1, .n_rows = 16, .n_cols = 4},
                                             {.n_rows = -1, .n_cols = 4}};
        for (size_t i = 0; i < LN_COUNT(bad); i++) {
            ln_host_weight h = bad[i];
            h.data = numbers;
            assert_int_equal(both[k]->upload(dev, &w, &h, buffer, &out, &err), LN_EUNSUPPORTED);
            assert_non_null(strstr(err.message, "some.weight"));
        }
        const ln_weight_desc v = {.size = sizeof v, .name = "vector", .n_dims = 1, .dims = {40}};
        assert_int_equal(both[k]->weight_size(dev, &v, NULL, &size, &err), LN_OK);
        assert_true(size.bound == 160 && size.expected == 160 && !size.in_place);
        for (int i = 0; i < 40; i += 16) { /* every second number */
            const ln_host_weight h = {
                .data = numbers + 2 * i, .row0 = i, .n_rows = LN_MIN(16, 40 - i), .n_cols = 1, .pitch = 8};
            assert_int_equal(both[k]->upload(dev, &v, &h, buffer, &out, &err), LN_OK);
            assert_true(out.data == (void *)buffer && out.bytes == 160 && out.layout_id == 0);
        }
        for (int i = 0; i < 40; i++) assert_true(buffer[i] == (float)(2 * i));
        both[k]->close(&dev);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_slices), cmocka_unit_test(test_wide),
                                       cmocka_unit_test(test_ranges)};
    return cmocka_run_group_tests_name("packed", tests, NULL, NULL);
}
