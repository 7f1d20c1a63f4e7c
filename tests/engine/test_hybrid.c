/* Models with recurrent layers: the same bits however a text is cut into steps, in a batch, after its
 * prefix was reused or evicted, and how much of a text is reused. */
/* run: quick */
#include "../common.h"

#include "engine/kv_file.h"
#include "engine/kv_tree.h"

#include <string.h>
#include <unistd.h>

enum { PAGE = 64, TEXT = 1040, MOST_VOCAB = 300 };
#define MODEL LN_ROOT "/tests/golden/families/qwen3_5_text-last-linear-bf16"

static ln_package *model;
static int64_t V;
static int32_t ids[TEXT];
static float *want[2]; /* by numerics: [TEXT, V] logits of one row after another */

static ln_eng *engine(ln_numerics numerics, int chunk, int seqs, int64_t state_pages) {
    ln_run_options r = test_options(model, LN_DEVICE_AUTO, 1, chunk, seqs);
    ln_eng *e;
    r.numerics = numerics, r.n_ctx = TEXT, r.page_len = PAGE, r.n_logits = r.n_chunk = chunk;
    r.n_recur_pages = state_pages;
    OK(ln_eng_open_with(&e, model, &r, err));
    return e;
}

static void check_rows(ln_eng *e, int64_t row, const float *expected, int64_t n, const char *what,
                       int64_t number) {
    float got[MOST_VOCAB];
    for (int64_t i = 0; i < n; i++) {
        OK(ln_run_logits(e->run, row + i, got, err));
        if (memcmp(got, expected + i * V, (size_t)V * sizeof *got) != 0)
            fail_msg("%s %lld: row %lld of the step has other bits", what, (long long)number, (long long)i);
    }
}
static ln_numerics numerics_of(int k) { return k ? LN_FAST : LN_EXACT; }

static int open_all(void **state) {
    (void)state;
    uint64_t seed = 7;
    OK(ln_package_open(&model, MODEL, &(ln_options){0}, err));
    V = model->spec.V;
    for (int i = 0; i < TEXT; i++) ids[i] = (int32_t)(test_random(&seed) % (uint64_t)V);
    for (int k = 0; k < 2; k++) {
        ln_eng *e = engine(numerics_of(k), 1, 1, 0);
        ln_seq *s = test_seq(e, TEXT, TEXT);
        want[k] = malloc((size_t)(TEXT * V) * sizeof *want[k]);
        for (int64_t t = 0; t < TEXT; t++) {
            OK(ln_eng_step(e, &(ln_batch_item){s, ids + t, 1, LN_LOGITS_ALL}, 1, err));
            OK(ln_run_logits(e->run, 0, want[k] + t * V, err));
        }
        ln_seq_close(e, &s);
        ln_eng_close(&e);
    }
    return 0;
}
static int close_all(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) free(want[k]);
    ln_package_close(&model);
    return 0;
}

/* Runs tokens of the text from where a sequence is up to `end` in one step, and compares them. */
static void run_to(ln_eng *e, ln_seq *s, int64_t end, int k, const char *what, int64_t number) {
    const int64_t from = s->n;
    if (end == from) return;
    OK(ln_eng_step(e, &(ln_batch_item){s, ids + from, end - from, LN_LOGITS_ALL}, 1, err));
    check_rows(e, 0, want[k] + from * V, end - from, what, number);
}

static void pieces(void **state) {
    static const int64_t lengths[] = {1, 63, 64, 65, 200, 1000};
    (void)state;
    for (int k = 0; k < 2; k++) {
        ln_eng *e = engine(numerics_of(k), TEXT, 1, 0);
        for (size_t i = 0; i < LN_COUNT(lengths); i++) {
            ln_seq *s = test_seq(e, lengths[i], TEXT);
            run_to(e, s, lengths[i], k, "a prompt of tokens", lengths[i]);
            run_to(e, s, lengths[i] + 1, k, "the token after a prompt of", lengths[i]);
            ln_seq_close(e, &s);
        }
        for (int64_t cut = 1; cut < 200; cut += fewer(1, 7)) {
            ln_seq *s = test_seq(e, 200, TEXT);
            run_to(e, s, cut, k, "a prompt cut at", cut);
            run_to(e, s, 200, k, "after a cut at", cut);
            ln_seq_close(e, &s);
        }
        ln_eng_close(&e);
    }
}

/* Sequences of one step, each at a place of its own. */
static void batches(void **state) {
    (void)state;
    static const int64_t starts[] = {0, 64, 130}, rows[] = {65, 1, 30};
    for (int k = 0; k < 2; k++) {
        ln_eng *e = engine(numerics_of(k), 256, 3, 0);
        ln_batch_item items[3];
        int64_t row = 0;
        for (int i = 0; i < 3; i++) {
            ln_seq *s = test_seq(e, 200, TEXT);
            run_to(e, s, starts[i], k, "alone to", starts[i]);
            items[i] = (ln_batch_item){s, ids + starts[i], rows[i], LN_LOGITS_ALL};
        }
        OK(ln_eng_step(e, items, 3, err));
        for (int i = 0; i < 3; row += rows[i++])
            check_rows(e, row, want[k] + starts[i] * V, rows[i], "in a batch, sequence", i);
        for (int i = 0; i < 3; i++) ln_seq_close(e, &items[i].seq);
        ln_eng_close(&e);
    }
}

/* Opens a sequence for n_prompt tokens of the text, the last ones replaced from `other` on. */
static ln_seq *begin(ln_eng *e, int64_t n_prompt, int64_t other, int64_t n_most) {
    int32_t prompt[TEXT];
    for (int64_t i = 0; i < n_prompt; i++) prompt[i] = i < other ? ids[i] : (ids[i] + 1) % (int32_t)V;
    return test_prompt(e, prompt, n_prompt, n_most);
}

/* A prompt that leaves another one in its last block or in the one before is reused up to there, to the
 * token; one that leaves it earlier has no snapshot, and says so. */
static void reuse(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++)
        for (int64_t d = 60; d < 200; d += fewer(1, 9)) {
            ln_eng *e = engine(numerics_of(k), 256, 1, 0);
            ln_seq *s = begin(e, 200, 200, 300);
            run_to(e, s, 200, k, "first", d);
            run_to(e, s, 230, k, "its answer", d);
            ln_seq_close(e, &s);
            s = begin(e, 220, d, 300);
            assert_int_equal(s->n_cached, d > 128 ? d : 0);
            assert_string_equal(s->cache_miss_reason, d > 128 ? "diverged" : "state");
            run_to(e, s, 230, k, "again, whatever it was opened for, from", d);
            ln_seq_close(e, &s);
            ln_eng_close(&e);
        }
}

/* A turn goes on exactly at the end of the turn before, at any place in a block; a prompt that left a text
 * leaves a snapshot there. */
static void turns(void **state) {
    (void)state;
    for (int64_t end = 190; end < 260; end += fewer(1, 5)) {
        ln_eng *e = engine(LN_FAST, 128, 1, 0);
        ln_seq *s = begin(e, 100, 100, 400);
        for (int64_t n = 100; n <= end; n = n < end ? LN_MIN(n + 37, end) : n + 1)
            run_to(e, s, n, 1, "turn that ends at", end);
        ln_seq_close(e, &s);
        s = begin(e, end + 90, end + 90, 400);
        assert_int_equal(s->n_cached, end);
        run_to(e, s, end + 90, 1, "the turn after", end);
        ln_seq_close(e, &s);
        s = begin(e, 99, 99, 400); /* within the first prompt */
        assert_int_equal(s->n_cached, 98);
        ln_seq_close(e, &s);
        ln_eng_close(&e);
    }
    ln_eng *e = engine(LN_FAST, 128, 1, 0);
    for (int i = 0; i < 3; i++) { /* 300 tokens in common, no snapshot near them until the second text */
        ln_seq *s = begin(e, 700, i ? 300 : 700, 800);
        assert_int_equal(s->n_cached, i == 2 ? 699 : 0);
        while (s->n < 700) {
            int32_t next[128];
            const int64_t n = LN_MIN((int64_t)128, 700 - s->n);
            for (int64_t t = 0; t < n; t++)
                next[t] = s->n + t < (i ? 300 : 700) ? ids[s->n + t] : (ids[s->n + t] + 1) % (int32_t)V;
            OK(ln_eng_step(e, &(ln_batch_item){s, next, n, LN_LOGITS_NONE}, 1, err));
        }
        ln_seq_close(e, &s);
    }
    ln_seq *s = begin(e, 500, 300, 800);
    assert_int_equal(s->n_cached, 320); /* the end of the block in which the second text left the first */
    ln_seq_close(e, &s);
    ln_eng_close(&e);
}

/* Snapshots at intervals: 16 blocks apart, twice as far when the share of a text is used up. */
static void intervals(void **state) {
    (void)state;
    ln_run_options r = test_options(model, LN_DEVICE_AUTO, 1, 256, 1);
    ln_eng *e;
    r.n_ctx = 2040, r.page_len = 32, r.n_logits = 1, r.n_recur_pages = 6; /* 4 snapshots, 2 at intervals */
    r.numerics = LN_FAST;
    OK(ln_eng_open_with(&e, model, &r, err));
    int32_t *text = malloc(2040 * sizeof *text);
    for (int i = 0; i < 2040; i++) text[i] = ids[(i * 7 + i / TEXT) % TEXT];
    for (int end = 600; end <= 2000; end += 700) {
        ln_kv_clear(e->kv);
        ln_seq *s = test_prompt(e, text, end, 2040);
        OK(ln_eng_prefill(e, s, text, end, false, err));
        ln_seq_close(e, &s);
        /* 512 apart up to two of them, then 1,024 */
        const int64_t interval = end < 1536 ? 512 : 1024, spaced = end / interval * interval;
        int32_t other = text[spaced];
        text[spaced] = (other + 1) % (int32_t)V;
        assert_int_equal(ln_kv_match_length(e->kv, 0, 0, text, end), spaced);
        text[spaced] = other;
    }
    free(text);
    ln_eng_close(&e);
}

/* A pool of few snapshots under many texts: what is evicted is computed again, and two sequences that hold
 * all pages make a third one wait. */
static void evictions(void **state) {
    (void)state;
    ln_eng *e = engine(LN_EXACT, 128, 3, 4);
    uint64_t seed = 3;
    ln_seq *open[3] = {0};
    int64_t reused = 0, waited = 0;
    for (int i = 0; i < fewer(400, 100); i++) {
        const int which = (int)(test_random(&seed) % 3);
        if (!open[which]) {
            const int64_t n = 1 + test_random(&seed) % 500;
            const ln_seq_options o = {.ids = ids, .n_prompt = n, .n_most = n + 100};
            OK(ln_seq_open(e, &o, &open[which], err));
            waited += !open[which];
            reused += open[which] && open[which]->n_cached > 0;
            continue;
        }
        ln_seq *s = open[which];
        const int64_t n = 1 + test_random(&seed) % 128, end = LN_MIN(s->n + n, s->n_most);
        run_to(e, s, end, 0, "among evictions, step", i);
        if (end == s->n_most || test_random(&seed) % 8 == 0) ln_seq_close(e, &open[which]);
    }
    for (int i = 0; i < 3; i++) ln_seq_close(e, &open[i]);
    assert_true(reused > fewer(20, 4) && waited > 0);
    const ln_kv_counts c = ln_kv_count_chunks(e->kv);
    assert_int_equal(c.n_pages, 4);
    assert_int_equal(c.n_used, 0);
    assert_int_equal(c.n_free + c.n_cached, 4);
    ln_kv_clear(e->kv);
    assert_int_equal(ln_kv_count_chunks(e->kv).n_free, 4);
    assert_int_equal(e->kv->promised[LN_KV_CHUNKS], 0);
    ln_eng_close(&e);
}

/* A text goes on from a file as from the cache, and the file has nothing of rows that the text does not
 * have. */
static void files(void **state) {
    static const int64_t ends[] = {1, 63, 64, 65, 128, 150};
    char path[2][64];
    (void)state;
    for (int i = 0; i < 2; i++)
        (void)snprintf(path[i], sizeof path[i], "/tmp/linnet-hybrid-%d-%d", (int)getpid(), i);
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < LN_COUNT(ends); i++) {
            size_t n;
            ln_eng *e = engine(numerics_of(k), 256, 1, 0);
            ln_seq *s = begin(e, ends[i], ends[i], 300);
            run_to(e, s, ends[i], k, "to be saved", ends[i]);
            ln_seq_close(e, &s);
            OK(ln_eng_seq_save(e, ids, (size_t)ends[i], path[0], &n, err));
            assert_int_equal(n, ends[i]);
            ln_eng_close(&e);
            e = engine(numerics_of(k), 256, 1, 0);
            s = begin(e, 200, 0, 300); /* another text has used the page */
            OK(ln_eng_prefill(e, s, ids + 300, 200, false, err));
            ln_seq_close(e, &s);
            ln_kv_clear(e->kv);
            OK(ln_eng_seq_load(e, path[0], &n, err));
            assert_int_equal(n, ends[i]);
            OK(ln_eng_seq_save(e, ids, (size_t)ends[i], path[1], &n, err));
            s = begin(e, 200, 200, 300);
            assert_int_equal(s->n_cached, ends[i]);
            run_to(e, s, 200, k, "after a file of", ends[i]);
            ln_seq_close(e, &s);
            ln_eng_close(&e);
            char command[160];
            (void)snprintf(command, sizeof command, "cmp %s %s", path[0], path[1]);
            assert_int_equal(system(command), 0);
        }
    for (int i = 0; i < 2; i++) unlink(path[i]);
}

/* Rows that are not kept leave no trace in the state. */
static void rejected(void **state) {
    (void)state;
    for (int64_t at = 56; at < 72; at++)
        for (int64_t kept = 0; kept < 8; kept += 3) {
            ln_eng *e = engine(LN_FAST, 128, 1, 0);
            ln_seq *s = test_seq(e, 200, 300);
            run_to(e, s, at, 1, "before", at);
            int32_t next[8];
            for (int i = 0; i < 8; i++) next[i] = i < kept ? ids[at + i] : (ids[at + i] + 1) % (int32_t)V;
            const ln_batch_item item = {s, next, 8, LN_LOGITS_ALL};
            OK(ln_eng_run(e, &item, 1, err));
            OK(ln_eng_commit(e, &item, kept, err));
            run_to(e, s, at + 90, 1, "after rejected rows at", at);
            ln_seq_close(e, &s);
            ln_eng_close(&e);
        }
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces),    cmocka_unit_test(batches),
                                       cmocka_unit_test(reuse),     cmocka_unit_test(turns),
                                       cmocka_unit_test(intervals), cmocka_unit_test(evictions),
                                       cmocka_unit_test(rejected),  cmocka_unit_test(files)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
