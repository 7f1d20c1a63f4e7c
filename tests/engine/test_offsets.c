/* Scales and biases of two dtypes: a checkpoint whose biases are stored as f32 holds the same numbers as the
 * one that it was made from, so that every device and ISA level computes the same bits from it. */
/* run: quick */
#include "../common.h"
#include "../test_dir.h"
#include "base/file.h"

#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 40 };

static void copy_file(const char *from, const char *leaf) {
    char path[512], *data;
    size_t bytes;
    (void)snprintf(path, sizeof path, "%s/%s", from, leaf);
    OK(ln_read_file(path, 1 << 24, &data, &bytes, err));
    put(leaf, data, bytes);
    ln_free(data);
}

static bool is_biases(const ln_tensor *t) {
    const size_t n = strlen(t->name);
    return n > 7 && strcmp(t->name + n - 7, ".biases") == 0;
}

/* Writes the tensors of a package to `test_dir`, with biases as f32. */
static void write_wide(const ln_package *m) {
    ln_tensor_spec *specs = calloc(m->tensors.n, sizeof *specs);
    ln_str file = {0};
    for (size_t i = 0; i < m->tensors.n; i++) {
        const ln_tensor *t = &m->tensors.items[i];
        specs[i] = (ln_tensor_spec){.name = t->name, .dtype = t->dtype, .n_dims = t->n_dims};
        memcpy(specs[i].dims, t->dims, sizeof specs[i].dims);
        if (is_biases(t)) specs[i].dtype = LN_ST_F32;
    }
    OK(ln_tensors_header_as(&file, "mlx", specs, m->tensors.n, err));
    for (size_t i = 0; i < m->tensors.n; i++) {
        const ln_tensor *t = &m->tensors.items[i];
        const ln_dtype dtype = t->dtype == LN_ST_F32 ? LN_F32 : t->dtype == LN_ST_BF16 ? LN_BF16 : LN_F16;
        if (!is_biases(t)) {
            ln_str_add(&file, (const char *)t->data, (size_t)t->bytes);
            continue;
        }
        for (int64_t k = 0; k < (int64_t)t->bytes / ln_dtype_bytes(dtype); k++) {
            const float x = ln_num_load(t->data, dtype, k);
            ln_str_add(&file, (const char *)&x, sizeof x);
        }
    }
    assert_false(file.failed);
    put("model.safetensors", file.data, file.len);
    ln_str_free(&file);
    free(specs);
}

/* All logits of some tokens, f32 [ROWS, V]; NULL: this machine lacks the ISA level of LINNET_CPU. */
static float *logits_of(const ln_package *m, ln_device device, ln_numerics numerics) {
    const ln_options opt = {
        .n_chunk = 16, .n_logits = 16, .n_threads = 2, .device = device, .numerics = numerics};
    ln_eng *e;
    ln_error why;
    const ln_status st = ln_eng_open(&e, m, &opt, &why);
    if (st != LN_OK && strstr(why.message, "LINNET_CPU")) return NULL;
    if (st != LN_OK) fail_msg("%s", why.message);
    float *out = malloc((size_t)(ROWS * m->spec.V) * sizeof *out);
    int32_t ids[ROWS];
    for (int i = 0; i < ROWS; i++) ids[i] = (int32_t)((i * 37 + 5) % m->spec.V);
    ln_seq *s = test_seq(e, ROWS, ROWS);
    for (int at = 0; at < ROWS;) {
        const ln_batch_item item = {s, ids + at, LN_MIN(16, ROWS - at), LN_LOGITS_ALL};
        OK(ln_eng_step(e, &item, 1, err));
        for (int64_t r = 0; r < item.n; r++) OK(ln_run_logits(e->run, r, out + (at + r) * m->spec.V, err));
        at += (int)item.n;
    }
    ln_seq_close(e, &s);
    ln_eng_close(&e);
    return out;
}

static void compare(const char *source) {
    static const char *const levels[] = {"plain", "avx2", "avx512", "amx", "neon"};
    char path[512];
    ln_package *narrow, *wide;
    const ln_options o = {0};
    (void)snprintf(path, sizeof path, LN_ROOT "/tests/golden/quantised/%s", source);
    OK(ln_package_open(&narrow, path, &o, err));
    write_wide(narrow);
    copy_file(path, "config.json");
    copy_file(path, "tokenizer.json");
    OK(ln_package_open(&wide, test_dir, &o, err));
    const ln_weight *w = &wide->weights.items[wide->weights.index_layer[0][LN_W_Q]];
    assert_true(w->enc.scale != LN_F32 && w->enc.offset == LN_F32);
    for (size_t k = 0; k <= LN_COUNT(levels); k++)
        for (int fast = 0; fast < 2; fast++) {
            const ln_device device = k == 0 ? LN_DEVICE_REF : LN_DEVICE_CPU;
            if (k > 0) setenv("LINNET_CPU", levels[k - 1], 1);
            else unsetenv("LINNET_CPU");
            float *x = logits_of(narrow, device, fast ? LN_FAST : LN_EXACT),
                  *y = logits_of(wide, device, fast ? LN_FAST : LN_EXACT);
            if (!x && k > 1) continue;
            assert_true(x && y); /* the plain level and the reference device run everywhere */
            if (memcmp(x, y, (size_t)(ROWS * narrow->spec.V) * sizeof *x) != 0)
                fail_msg("%s, %s, %s: other bits with biases in f32", source, k ? levels[k - 1] : "reference",
                         fast ? "fast" : "exact");
            free(x), free(y);
        }
    unsetenv("LINNET_CPU");
    ln_package_close(&wide);
    ln_package_close(&narrow);
}

static void biases_of_another_dtype_give_the_same_bits(void **state) {
    (void)state;
    compare("llama-q4-g64-bf16");
    compare("qwen3-q8-g32-f16");
    compare("gemma3-text-q4-g32-bf16");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(biases_of_another_dtype_give_the_same_bits)};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
