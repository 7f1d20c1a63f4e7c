/* Weights in affine groups as the CPU device packs them: packing in one call and packing some rows at a
 * time, as quantisation at load does, give the same bytes and write exactly the weight's bytes; and which
 * layout a weight gets, by numerics mode, by its uses and by its columns. */
#include "kernels.h"

#include "device/device.h"

#define FIRST 64 /* bytes of the ln_affine at the beginning, which holds addresses */

static ln_affine rows_from(const weight *w, int64_t d) {
    const int64_t numbers = w->C / w->a.enc.group * ln_dtype_bytes(w->a.dtype);
    ln_affine a = w->a;
    a.codes += d * ln_affine_row_bytes(w->a.enc, w->C);
    a.scales += d * numbers;
    a.biases += d * numbers;
    return a;
}

/* Packs `some` rows at a time. */
static void pack(ln_dev *dev, const ln_value *v, const weight *w, int64_t some, guarded *room) {
    ln_error err;
    ln_device_weight out = {0};
    for (int64_t d = 0; d < w->D; d += some) {
        const ln_affine a = rows_from(w, d);
        assert_int_equal(ln_device_cpu.upload(dev, v, d, LN_MIN(some, w->D - d), &a, room->data, &out, &err),
                         LN_OK);
        assert_ptr_equal(out.data, room->data);
    }
}

/* The offset of p in the buffer; -1 for NULL. */
static int64_t place(const void *p, const guarded *room) {
    if (!p) return -1;
    const int64_t at = (int64_t)((uintptr_t)p - (uintptr_t)room->data);
    assert_true(at >= FIRST && at < (int64_t)room->bytes);
    return at;
}

static void packed_check(int64_t D, int64_t C, ln_enc enc, ln_dtype dtype, unsigned uses, bool fast) {
    ln_error err;
    ln_dev *dev;
    ln_dev_info info;
    weight w = weight_new(D, C, enc, dtype, false);
    const ln_value v = {
        .kind = LN_KIND_WEIGHT, .dtype = dtype, .enc = enc, .n_dims = 2, .dims = {D, C}, .uses = uses};
    assert_int_equal(ln_device_cpu.open(&dev, &(ln_dev_options){.n_threads = 2, .fast = fast}, &err), LN_OK);
    ln_device_cpu.describe(dev, &info);
    const size_t bytes = ln_device_cpu.weight_bytes(dev, &v);
    if (bytes) { /* otherwise the plain ISA level, which reads the file in place */
        guarded room[3];
        const int64_t some[] = {(D + 15) / 16 * 16, 16, 48};
        for (int i = 0; i < 3; i++) {
            room[i] = guard(bytes, true, 0);
            memset(room[i].data, i == 0 ? 0xa5 : 0x5a, bytes); /* a byte that is not written would differ */
            pack(dev, &v, &w, some[i], &room[i]);
        }
        const bool per_row = info.by_numerics && fast && uses != LN_USE_GATHER && C <= LN_I8PAIR_MAX_COLS,
                   apart = per_row && enc.bits <= 4 && uses != LN_USE_MATMUL;
        ln_affine first;
        memcpy(&first, room[0].data, sizeof first);
        assert_true((first.units != NULL) == per_row && (first.scales != NULL) == apart && !first.biases);
        for (int i = 1; i < 3; i++) {
            ln_affine a;
            memcpy(&a, room[i].data, sizeof a);
            assert_int_equal(place(a.codes, &room[i]), place(first.codes, &room[0]));
            assert_int_equal(place(a.units, &room[i]), place(first.units, &room[0]));
            assert_int_equal(place(a.scales, &room[i]), place(first.scales, &room[0]));
            for (size_t k = FIRST; k < bytes; k++)
                if (room[i].data[k] != room[0].data[k])
                    fail_msg("D %lld, C %lld, %d bits in %ds, dtype %d, uses %u, fast %d: byte %zu of %zu "
                             "differs, %lld rows at a time",
                             (long long)D, (long long)C, enc.bits, enc.group, (int)dtype, uses, fast, k,
                             bytes, (long long)some[i]);
        }
        for (int i = 0; i < 3; i++) unguard(&room[i]);
    }
    weight_free(&w);
    ln_device_cpu.close(&dev);
}

static void test_in_slices(void **state) {
    (void)state;
    const ln_dtype dtypes[] = {LN_F32, LN_BF16, LN_F16};
    for (int i = 0; i < 160; i++)
        packed_check(random_in(1, 120), 128 * random_in(1, 4),
                     (ln_enc){widths[i % 6], groups[random_u32() % 3]}, dtypes[random_u32() % 3],
                     random_u32() % 4, i % 4 != 0);
}
static void test_wide(void **state) {
    (void)state;
    for (unsigned uses = 1; uses < 4; uses++)
        for (int64_t C = LN_I8PAIR_MAX_COLS; C <= LN_I8PAIR_MAX_COLS + 64; C += 64)
            packed_check(40, C, (ln_enc){4, 64}, LN_BF16, uses, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_slices), cmocka_unit_test(test_wide)};
    return cmocka_run_group_tests_name("packed", tests, NULL, NULL);
}
