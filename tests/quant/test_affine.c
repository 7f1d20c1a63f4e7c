/* Affine groups compared with MLX: the data that MLX's CPU build wrote (tools/mlx_affine.py) and what
 * linnet writes and reads back have the same bits, for 6 bit widths x 3 group sizes x 3 types, including
 * special values. */
/* run: quick */
#include "../io/io_test.h"

#include <linnet.h>
#include <linnet_tools.h>

#include "quant/affine.h"
#include "base/thread_pool.h"

#define FILE_MLX LN_ROOT "/tests/quant/mlx_affine.safetensors"
static const int widths[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
static const struct {
    ln_dtype dtype;
    const char *key, *name;
} dtypes[] = {{LN_F32, "f32", "float32"}, {LN_BF16, "bf16", "bfloat16"}, {LN_F16, "f16", "float16"}};

static ln_tensors mlx;
static const ln_tensor *want(int bits, int group, const char *dtype, const char *leaf) {
    char name[64];
    snprintf(name, sizeof name, "%d.%d.%s.%s", bits, group, dtype, leaf);
    const ln_tensor *t = ln_tensors_find(&mlx, name);
    if (!t) fail_msg("no tensor %s", name);
    return t;
}
static void same(const ln_tensor *t, int64_t row, const void *got, size_t bytes) {
    const uint8_t *p = t->data + (size_t)row * bytes, *g = got;
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != g[i])
            fail_msg("%s: row %lld, byte %zu: MLX has %02x, linnet %02x", t->name, (long long)row, i, p[i],
                     g[i]);
}

static int open_mlx(void **state) {
    (void)state;
    OK(ln_tensors_open_file(&mlx, FILE_MLX, err));
    return 0;
}
static int close_mlx(void **state) {
    (void)state;
    ln_tensors_close(&mlx);
    return 0;
}

/* Also runs in a job of the thread pool, in which denormals count as zero: no byte may depend on that. */
static void quantise_all(void *user, int thread, int n_threads) {
    (void)user, (void)thread, (void)n_threads;
    const ln_tensor *w = ln_tensors_find(&mlx, "w");
    assert_non_null(w);
    const int64_t rows = w->dims[0], cols = w->dims[1];
    int n = 0;
    for (size_t b = 0; b < LN_COUNT(widths); b++)
        for (size_t g = 0; g < LN_COUNT(groups); g++)
            for (size_t t = 0; t < LN_COUNT(dtypes); t++, n++)
                for (int64_t r = 0; r < rows; r++) {
                    const ln_groups e = {widths[b], groups[g]};
                    const size_t size = (size_t)ln_dtype_bytes(dtypes[t].dtype),
                                 n_groups = (size_t)(cols / e.group);
                    float x[256];
                    uint8_t codes[256], scales[32], biases[32];
                    assert_int_equal(cols, 256);
                    for (int64_t i = 0; i < cols; i++) { /* rounded to the type, as in MLX */
                        ln_num_store(scales, dtypes[t].dtype, 0, ln_num_load(w->data, LN_F32, r * cols + i));
                        x[i] = ln_num_load(scales, dtypes[t].dtype, 0);
                    }
                    ln_affine_quantize(x, cols, e, dtypes[t].dtype, codes, scales, biases);
                    same(want(e.bits, e.group, dtypes[t].key, "weight"), r, codes,
                         (size_t)ln_affine_row_bytes(e, cols));
                    same(want(e.bits, e.group, dtypes[t].key, "scales"), r, scales, n_groups * size);
                    same(want(e.bits, e.group, dtypes[t].key, "biases"), r, biases, n_groups * size);
                }
    assert_int_equal(n, 54);
}
static void test_quantise(void **state) {
    (void)state;
    quantise_all(NULL, 0, 1);
    ln_pool_run(ln_pool_default(), 1, quantise_all, NULL);
}

static void test_dequantize(void **state) {
    (void)state;
    int n = 0;
    for (size_t b = 0; b < LN_COUNT(widths); b++)
        for (size_t g = 0; g < LN_COUNT(groups); g++)
            for (size_t t = 0; t < LN_COUNT(dtypes); t++, n++) {
                const char *key = dtypes[t].key;
                const ln_tensor *out = want(widths[b], groups[g], key, "out");
                uint8_t *got = calloc(1, out->bytes);
                OK(ln_dequantize(want(widths[b], groups[g], key, "weight")->data,
                                 want(widths[b], groups[g], key, "scales")->data,
                                 want(widths[b], groups[g], key, "biases")->data, dtypes[t].name, widths[b],
                                 groups[g], out->dims[0], out->dims[1], got, err));
                same(out, 0, got, out->bytes);
                free(got);
            }
    assert_int_equal(n, 54);
}

static void test_refusals(void **state) {
    (void)state;
    uint8_t in[64] = {0}, out[256];
    ln_error err = {0};
    OK(ln_dequantize(in, in, in, "float16", 4, 32, 1, 64, out, err));
    OK(ln_dequantize(NULL, NULL, NULL, "float16", 4, 32, 0, 64, NULL, err));
    expect("bits", LN_EUSAGE, "bits", ln_dequantize(in, in, in, "float16", 7, 32, 1, 64, out, &err), &err);
    expect("group", LN_EUSAGE, "group", ln_dequantize(in, in, in, "float16", 4, 16, 1, 64, out, &err), &err);
    expect("columns", LN_EUSAGE, "whole groups",
           ln_dequantize(in, in, in, "float16", 4, 64, 1, 96, out, &err), &err);
    expect("rows", LN_EUSAGE, "rows", ln_dequantize(in, in, in, "float16", 4, 64, -1, 64, out, &err), &err);
    expect("size", LN_EUSAGE, "too large",
           ln_dequantize(in, in, in, "float16", 4, 64, INT64_MAX / 2, 64, out, &err), &err);
    expect("dtype", LN_EUSAGE, "int8", ln_dequantize(in, in, in, "int8", 4, 64, 1, 64, out, &err), &err);
    expect("pointers", LN_EUSAGE, "NULL", ln_dequantize(in, NULL, in, "float32", 4, 64, 1, 64, out, &err),
           &err);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_quantise), cmocka_unit_test(test_dequantize),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, open_mlx, close_mlx);
}
