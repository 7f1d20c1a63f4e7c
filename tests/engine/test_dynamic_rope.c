/* Dynamic RoPE (frequencies that change with the length of the text): the values of a row depend on the
 * length of its prompt and on its position, never on how the prompt is cut into steps, on the other
 * sequences of a batch, or on what was resident before. */
/* run: quick cuda */
#include "../common.h"

#include <string.h>

#define DIR LN_ROOT "/tests/golden/llama-dynamic-f32"
enum {
    FROM = 40,
    LONG = 60,
    CAPACITY = 80,
    VOCAB = 266
}; /* FROM: the model's context, up to which
      frequencies do not change */

static ln_package *model;
static int32_t ids[CAPACITY];

static ln_eng *engine(int chunk, int seqs) {
    ln_options o = {.n_chunk = chunk, .n_parallel = seqs, .n_logits = chunk, .n_threads = 2, .n_ctx = 120};
    ln_run_options r;
    ln_eng *e;
    OK(ln_eng_options(model, &o, &r, err));
    r.page_len = 32;
    OK(ln_eng_open_with(&e, model, &r, err));
    return e;
}

/* Computes the last logits of a prompt of n tokens, after any earlier content of the sequence; returns how
 * many tokens were kept. */
static int64_t last_logits(ln_eng *e, int64_t n, float out[VOCAB]) {
    ln_seq *seq = test_prompt(e, ids, n, n);
    const int64_t kept = seq->n_cached;
    OK(ln_eng_prefill(e, seq, ids + kept, n - kept, true, err));
    OK(ln_run_logits(e->run, 0, out, err));
    ln_seq_close(e, &seq);
    return kept;
}

static void chunks_do_not_matter(void **state) {
    (void)state;
    static const int chunks[] = {64, 16, 7, 1};
    float want[VOCAB], got[VOCAB];
    for (size_t i = 0; i < LN_COUNT(chunks); i++) {
        ln_eng *e = engine(chunks[i], 1);
        (void)last_logits(e, LONG, i ? got : want);
        if (i) assert_memory_equal(got, want, sizeof want);
        ln_eng_close(&e);
    }
}

/* A prompt has the logits of a fresh engine whatever the sequence held before: longer and shorter texts,
 * with tokens kept if that is allowed. */
static void what_was_there_does_not_matter(void **state) {
    (void)state;
    static const struct {
        int64_t n, kept;
    } turns[] = {{20, 0},
                 {30, 20},
                 {LONG, 0},
                 {LONG, LONG - 1},
                 {LONG + 1, 0},
                 {FROM, 30},
                 {FROM - 1, FROM - 2},
                 {FROM + 1, 0},
                 {LONG, LONG - 1}};
    ln_eng *e = engine(16, 3); /* its pool holds all turns */
    for (size_t i = 0; i < LN_COUNT(turns); i++) {
        float want[VOCAB], got[VOCAB];
        ln_eng *fresh = engine(64, 1);
        assert_int_equal(last_logits(fresh, turns[i].n, want), 0);
        ln_eng_close(&fresh);
        if (last_logits(e, turns[i].n, got) != turns[i].kept)
            fail_msg("turn %zu: expected %lld tokens to be kept", i, (long long)turns[i].kept);
        assert_memory_equal(got, want, sizeof want);
    }
    ln_eng_close(&e);
}

/* A long and a short text in one step have the logits that each has alone. */
static void neighbours_do_not_matter(void **state) {
    (void)state;
    static float want[LONG][VOCAB];
    float got[VOCAB];
    ln_eng *e = engine(100, 2);
    ln_seq *seq = test_seq(e, LONG, LONG);
    OK(ln_eng_step(e, &(ln_batch_item){seq, ids, LONG, LN_LOGITS_ALL}, 1, err));
    for (int r = 0; r < LONG; r++) OK(ln_run_logits(e->run, r, want[r], err));
    ln_seq_close(e, &seq);
    ln_batch_item both[] = {{test_seq(e, 10, 10), ids + 3, 10, LN_LOGITS_NONE},
                            {test_seq(e, LONG, LONG), ids, LONG, LN_LOGITS_ALL}};
    OK(ln_eng_step(e, both, 2, err));
    for (int r = 0; r < LONG; r++) {
        OK(ln_run_logits(e->run, r, got, err));
        assert_memory_equal(got, want[r], sizeof got);
    }
    ln_eng_close(&e);
}

/* The context may be up to `factor` times the model's positions, and no longer. */
static void how_far_it_goes(void **state) {
    (void)state;
    ln_run_options r;
    assert_int_equal(model->spec.n_ctx, 4 * FROM);
    OK(ln_eng_options(model, &(ln_options){.n_ctx = 4 * FROM}, &r, err));
    FAILS(LN_EUSAGE, "ln_options.n_ctx 161",
          ln_eng_options(model, &(ln_options){.n_ctx = 4 * FROM + 1}, &r, err));
}

static int setup(void **state) {
    (void)state;
    ln_options o = {0};
    uint64_t seed = 3;
    for (int i = 0; i < CAPACITY; i++) ids[i] = (int32_t)(test_random(&seed) % VOCAB);
    OK(ln_package_open(&model, DIR, &o, err));
    assert_int_equal(model->spec.V, VOCAB);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    ln_package_close(&model);
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_do_not_matter), cmocka_unit_test(what_was_there_does_not_matter),
        cmocka_unit_test(neighbours_do_not_matter), cmocka_unit_test(how_far_it_goes)};
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* for tools/mutants */
    return cmocka_run_group_tests(tests, setup, teardown);
}
