/* Engines on models in the quantised formats of other tools: the same bits in any chunks, on any number of
 * threads and ISA level, alone and next to another sequence. And the bytes that the plan said, and what
 * quantising at load makes of fp8, which it rejects of integers. */
/* run: quick */
#include "../common.h"
#include "device/cpu/cpu.h"

#define DIR_OFFICIAL LN_ROOT "/tests/golden/official/"

enum { ROWS = 25 };
static const char *const models[] = {"fp8-block", "fp8-tensor", "gptq-act-order", "ct-channel", "awq"};
static int32_t ids[ROWS];

static ln_package *model_of(const char *name, int bits, ln_status want, const char *word) {
    char path[512];
    ln_package *m = NULL;
    ln_error err = {0};
    const ln_options o = {.quantize_bits = bits};
    (void)snprintf(path, sizeof path, DIR_OFFICIAL "%s", name);
    const ln_status st = ln_package_open(&m, path, &o, &err);
    if (st != want) fail_msg("%s: status %d: %s", name, st, err.message);
    if (st != LN_OK) assert_non_null(strstr(err.message, word));
    return m;
}

static ln_eng *engine_of(ln_package *m, ln_numerics numerics, int threads, int chunk) {
    ln_run_options r = test_options(m, LN_DEVICE_CPU, threads, chunk, 2);
    ln_eng *e;
    r.numerics = numerics;
    r.n_ctx = 64;
    r.n_chunk = r.n_logits = LN_MAX(chunk, 4);
    r.page_len = 32;
    OK(ln_eng_open_with(&e, m, &r, err));
    return e;
}

/* Computes the logits of all rows, `chunk` at a time, with `beside` rows of another text in each step. */
static void all_logits(ln_eng *e, int64_t V, int chunk, int beside, float *out) {
    ln_seq *s = test_seq(e, ROWS, ROWS), *other = beside ? test_seq(e, ROWS, ROWS) : NULL;
    while (s->n < ROWS) {
        const int64_t at = s->n, n = LN_MIN((int64_t)chunk, ROWS - at);
        const bool both = other && other->n + beside <= ROWS;
        ln_batch_item f[2] = {{s, ids + at, n, LN_LOGITS_ALL}};
        if (both) f[1] = (ln_batch_item){other, ids + ROWS - beside, beside, LN_LOGITS_NONE};
        OK(ln_eng_step(e, f, both ? 2 : 1, err));
        for (int64_t r = 0; r < n; r++) OK(ln_run_logits(e->run, r, out + (at + r) * V, err));
    }
    ln_seq_close(e, &s);
    if (other) ln_seq_close(e, &other);
}

static void check_same_bits(const char *name, ln_package *m, ln_numerics numerics) {
    static const int chunks[] = {1, 4, 7}, threads[] = {2, 3};
    const int64_t V = m->spec.V;
    const size_t bytes = (size_t)(ROWS * V) * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);
    ln_eng *e = engine_of(m, numerics, 1, ROWS);
    if (strcmp(e->run->info.isa, "plain") != 0)
        assert_int_equal(e->run->sizes.weights_bytes, e->run->resident->bytes);
    all_logits(e, V, ROWS, 0, want);
    ln_eng_close(&e);
    for (size_t i = 0; i < LN_COUNT(chunks) * LN_COUNT(threads); i++) {
        const int chunk = chunks[i % LN_COUNT(chunks)];
        e = engine_of(m, numerics, threads[i / LN_COUNT(chunks)], chunk + 2);
        all_logits(e, V, chunk, (int)(i % 3), got);
        ln_eng_close(&e);
        if (memcmp(want, got, bytes) != 0) fail_msg("%s: other bits in chunks of %d", name, chunk);
    }
    free(want);
    free(got);
}

/* Every ISA level but AMX, whose sums of bf16 weights have an order of their own, has the bits of the first.
 */
static void check_levels(const char *name, ln_package *m, ln_numerics numerics) {
    const int64_t V = m->spec.V;
    const size_t bytes = (size_t)(ROWS * V) * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);
    for (int isa = LN_ISA_PLAIN; isa < LN_ISA_COUNT; isa++) {
        const char *level = ln_cpu_isa_name((ln_isa)isa);
        if (!ln_cpu_isa_here((ln_isa)isa) || strcmp(level, "amx") == 0) continue;
        setenv("LINNET_CPU", level, 1);
        ln_eng *e = engine_of(m, numerics, 2, 5);
        all_logits(e, V, 5, 0, isa == LN_ISA_PLAIN ? want : got);
        ln_eng_close(&e);
        if (isa > LN_ISA_PLAIN && memcmp(want, got, bytes) != 0)
            fail_msg("%s: other bits on %s than on plain", name, level);
    }
    unsetenv("LINNET_CPU");
    free(want);
    free(got);
}

static void test_same_bits(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        ln_package *m = model_of(models[i], 0, LN_OK, "");
        for (int fast = 0; fast < 2; fast++) {
            check_same_bits(models[i], m, fast ? LN_FAST : LN_EXACT);
            check_levels(models[i], m, fast ? LN_FAST : LN_EXACT);
        }
        ln_package_close(&m);
    }
}

/* ---- quantised at load ---- */

/* Rows of a weight of fp8 that is quantised: MLX's rule on its numbers, rounded to bf16. */
static void check_quantised(const ln_weights *w, const ln_weight *x) {
    const ln_source_work work = {ln_pool_default(), 2};
    const ln_row_bytes row = ln_encoding_row(x->enc, x->d1), under = ln_encoding_row(x->under, x->d1);
    ln_weight stored = *x;
    stored.enc = x->under, stored.quantised = false;
    void *buffer = aligned_alloc(64, ln_source_bytes(x, x->d0) + 64),
         *from = aligned_alloc(64, ln_source_bytes(&stored, x->d0) + 64);
    float *numbers = malloc((size_t)x->d1 * sizeof *numbers);
    uint8_t *want = malloc((size_t)(row.data + row.scales + row.offsets));
    ln_encoded_rows got, coded;
    assert_true(under.offsets == 0);
    OK(w->source->ops->rows(w->source, x, 0, x->d0, &work, buffer, &got, err));
    OK(w->source->of->ops->rows(w->source->of, &stored, 0, x->d0, &work, from, &coded, err));
    for (int64_t r = 0; r < x->d0; r++) {
        ln_encoding_decode(x->under, &coded, r, x->d1, numbers);
        for (int64_t i = 0; i < x->d1; i++) numbers[i] = ln_bf16_f32(ln_f32_bf16(numbers[i]));
        ln_affine_quantize(numbers, x->d1, ln_encoding_groups(x->enc), LN_BF16, want, want + row.data,
                           want + row.data + row.scales);
        assert_memory_equal(want, (const char *)got.data + r * row.data, (size_t)row.data);
        assert_memory_equal(want + row.data, (const char *)got.scales + r * row.scales, (size_t)row.scales);
        assert_memory_equal(want + row.data + row.scales, (const char *)got.offsets + r * row.offsets,
                            (size_t)row.offsets);
    }
    free(buffer), free(from), free(numbers), free(want);
}

static void test_quantised_at_load(void **state) {
    (void)state;
    size_t n = 0;
    ln_package *m = model_of("fp8-tensor", 4, LN_OK, "");
    for (size_t i = 0; i < m->weights.n; i++) {
        const ln_weight *x = &m->weights.items[i];
        if (!x->quantised || !ln_encoding_is_coded(x->under)) continue;
        check_quantised(&m->weights, x);
        n++;
    }
    assert_int_equal(n, 12); /* of 14: 96 columns are no whole groups of 64 */
    ln_eng *e = engine_of(m, LN_FAST, 2, 8);
    float *logits = malloc((size_t)(ROWS * m->spec.V) * sizeof *logits);
    all_logits(e, m->spec.V, 8, 0, logits);
    for (int64_t i = 0; i < ROWS * m->spec.V; i++) assert_true(isfinite(logits[i]));
    free(logits);
    ln_eng_close(&e);
    ln_package_close(&m);
    m = model_of("awq", 4, LN_EUSAGE, "quantised already, to 4 bits");
    assert_null(m);
}

/* ---- values that are found while a model is loaded ---- */

static void test_bad_scale(void **state) {
    (void)state;
    char dir[] = "/tmp/linnet-official-XXXXXX", command[1024];
    ln_package *m;
    ln_eng *e = NULL;
    ln_error err = {0};
    const ln_options o = {0};
    assert_non_null(mkdtemp(dir));
    (void)snprintf(command, sizeof command, "cp " DIR_OFFICIAL "fp8-block/* %s", dir);
    assert_int_equal(system(command), 0);
    (void)snprintf(command, sizeof command, "%s/model.safetensors", dir);
    OK(ln_package_open(&m, dir, &o, err));
    const ln_tensor *scale = NULL;
    for (size_t i = 0; i < m->weights.n && !scale; i++) scale = m->weights.items[i].scales;
    const long at = (long)(scale->data - m->tensors.files[scale->file].map.data);
    char name[128];
    (void)snprintf(name, sizeof name, "%s", scale->name);
    ln_package_close(&m);
    FILE *f = fopen(command, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(&(float){NAN}, 4, 1, f), 1);
    assert_int_equal(fclose(f), 0);
    OK(ln_package_open(&m, dir, &o, err));
    const ln_run_options r = test_options(m, LN_DEVICE_CPU, 2, 8, 1);
    assert_int_equal(ln_eng_open_with(&e, m, &r, &err), LN_ENUMERIC);
    assert_non_null(strstr(err.message, name));
    ln_package_close(&m);
    (void)snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_quantised_at_load),
                                       cmocka_unit_test(test_bad_scale)};
    for (int i = 0; i < ROWS; i++) ids[i] = (i * 37 + 11) % 256;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
