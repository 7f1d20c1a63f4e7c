/* The logits of a fused model differ from those of base and adapter by the rounding of the stored weights
 * alone (docs/training.md, Fusing).
 *
 * A stored weight is the sum W + scale * B A, rounded once: its error is at most half a unit in the last
 * place (ulp). To first order the logits are linear in these errors. The test moves every rounded weight by
 * one whole ulp, up or down at random: that moves the logits as errors of twice the largest size would, and
 * half of the movement is the bound. Errors of rounding are spread evenly up to half an ulp, with an rms of
 * sqrt(1/12) ulp, so that the difference is expected at 0.58 of the bound. */
/* run: quick */
#include "../common.h"
#include "io/io.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GOLDEN LN_ROOT "/tests/golden/"
enum { ROWS = 16, MOST_VOCAB = 1024 };

static char top[200];

typedef struct table {
    float at[ROWS][MOST_VOCAB];
    int64_t n_vocab;
} table;

static ln_status keep_row(void *user, int64_t t, double logprob, const ln_top *best, size_t n_top,
                          const float *logits, int64_t n_vocab, ln_error *err) {
    table *x = user;
    (void)logprob, (void)best, (void)n_top, (void)err;
    assert_true(n_vocab <= MOST_VOCAB);
    x->n_vocab = n_vocab;
    memcpy(x->at[t], logits, (size_t)n_vocab * sizeof *logits);
    return LN_OK;
}

/* The exact logits of ROWS tokens; with the adapter in the directory `adapter` unless it is NULL. */
static void run(const char *path, const char *adapter, table *out) {
    const ln_adapter_part part = {adapter, 1};
    ln_options o = ln_options_default();
    ln_model *model;
    ln_engine *engine;
    ln_info info = {.size = sizeof info};
    int32_t ids[ROWS];
    o.numerics = LN_EXACT;
    o.n_threads = 2;
    if (adapter) o.adapter = &part, o.n_adapter_parts = 1;
    o.n_ctx = o.n_chunk = o.n_logits = ROWS;
    OK(ln_model_open(&model, path, &o, err));
    OK(ln_model_info(model, &info, err));
    for (int i = 0; i < ROWS; i++) ids[i] = (int32_t)((i + 1) * 37 % info.vocab_size);
    OK(ln_engine_open(&engine, model, &o, err));
    OK(ln_score(engine, ids, ROWS, 0, keep_row, out, NULL, err));
    ln_engine_close(&engine);
    ln_model_close(&model);
}

static double difference(const table *a, const table *b) {
    double most = 0;
    for (int t = 0; t < ROWS; t++)
        for (int64_t i = 0; i < a->n_vocab; i++)
            most = fmax(most, fabs((double)a->at[t][i] - (double)b->at[t][i]));
    return most;
}

/* Whether a tensor of the fused model was rounded: it is not that of the base. */
static bool was_rounded(const ln_tensor *x, const ln_tensors *base) {
    const ln_tensor *w = ln_tensors_find(base, x->name);
    return !w || w->bytes != x->bytes || memcmp(w->data, x->data, x->bytes) != 0;
}

/* Moves each rounded bf16 weight of the fused model `path`, which has one file, by one ulp in the copy
 * `file`. Returns how many tensors that are. */
static int move_weights(const char *path, const char *base_path, const char *file, uint64_t *seed) {
    ln_tensors x, base;
    int n = 0;
    OK(ln_tensors_open(&x, path, false, err));
    OK(ln_tensors_open(&base, base_path, false, err));
    assert_int_equal(x.n_files, 1);
    FILE *f = fopen(file, "r+b");
    assert_non_null(f);
    for (size_t i = 0; i < x.n; i++) {
        const ln_tensor *t = &x.items[i];
        if (!was_rounded(t, &base)) continue;
        assert_int_equal(t->dtype, LN_ST_BF16);
        assert_int_equal(fseek(f, (long)(t->data - (const uint8_t *)x.files[0].map.data), SEEK_SET), 0);
        for (uint64_t k = 0; k < t->bytes / 2; k++) {
            uint16_t v;
            memcpy(&v, t->data + 2 * k, sizeof v);
            if (v & 0x7fff) v = (uint16_t)(test_random(seed) % 2 ? v + 1 : v - 1);
            assert_int_equal(fwrite(&v, sizeof v, 1, f), 1);
        }
        n++;
    }
    assert_int_equal(fclose(f), 0);
    ln_tensors_close(&base);
    ln_tensors_close(&x);
    return n;
}

static void the_difference_is_that_of_rounding(void **state) {
    (void)state;
    static const struct {
        const char *base, *adapter;
    } rows[] = {{GOLDEN "llama-bias-bf16", GOLDEN "lora/llama-bias-all"},
                {GOLDEN "llama-bias-bf16", GOLDEN "lora/llama-bias-only"},
                {GOLDEN "quantised/gemma3-text-q4-g32-bf16", GOLDEN "lora/gemma3-q4"}};
    static table applied, fused, moved;
    char f[300], m[300], file[400], command[800];
    uint64_t seed = 1;
    (void)snprintf(f, sizeof f, "%s/fused", top);
    (void)snprintf(m, sizeof m, "%s/moved", top);
    (void)snprintf(file, sizeof file, "%s/model.safetensors", m);
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        ln_fuse_options o = ln_fuse_options_default();
        ln_fuse_report r = {.size = sizeof r};
        double bound = 0;
        o.force = true, o.n_threads = 2;
        OK(ln_fuse(rows[i].base, rows[i].adapter, f, &o, NULL, NULL, &r, err));
        run(rows[i].base, rows[i].adapter, &applied);
        run(f, NULL, &fused);
        (void)snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s'", m, f, m);
        assert_int_equal(system(command), 0);
        assert_true(move_weights(f, rows[i].base, file, &seed) > 0);
        run(m, NULL, &moved);
        bound = difference(&moved, &fused) / 2;
        const double off = difference(&fused, &applied);
        print_message("%s: fused and applied differ by %.2g, bound %.2g, change %.2g\n",
                      strrchr(rows[i].adapter, '/') + 1, off, bound, r.change);
        assert_true(off > 0 && off <= bound);
        assert_true(bound < r.change / 2); /* what the adapter does is not lost in it */
    }
}

static int begin(void **state) {
    (void)state;
    (void)snprintf(top, sizeof top, "%s/linnet-bound-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(top) ? 0 : -1;
}
static int end(void **state) {
    (void)state;
    char command[300];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", top);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_difference_is_that_of_rounding)};
    return cmocka_run_group_tests(tests, begin, end);
}
