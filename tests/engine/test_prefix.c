/* Reused prefixes on models: whatever was shared, copied, evicted or left by a window, a text has the logits
 * of a fresh engine to the bit. The windows are of three pages, of pages and a part, and shorter than
 * a page; the golden models are small, so their windows are set here. */
/* run: quick cuda */
#include "../common.h"

#include <string.h>

enum { PAGE = 32, CTX = 256, CHUNK = 40, SEQS = 3, TEXTS = 6, MOST_VOCAB = 300, MOST_OPEN = SEQS };

static ln_package *model;
static int64_t V;
static uint64_t seed;
static int32_t texts[TEXTS][CTX];
static int64_t pick(int64_t n) { return (int64_t)(test_random(&seed) % (uint64_t)n); }

static ln_eng *engine(ln_device device, ln_numerics numerics, int chunk, int seqs) {
    ln_run_options r = test_options(model, device, 2, chunk, seqs);
    ln_eng *e;
    r.numerics = numerics, r.n_ctx = CTX, r.page_len = PAGE, r.n_logits = r.n_chunk = chunk;
    OK(ln_eng_open_with(&e, model, &r, err));
    return e;
}

/* One text on its way through the engine, and the logits that a fresh engine gives it. */
typedef struct work {
    ln_seq *seq;
    int32_t ids[CTX];
    int64_t n;
    float *want; /* [n, V] */
} work;

static void expect(ln_eng *fresh, work *w) {
    ln_seq *s = test_seq(fresh, w->n, w->n);
    w->want = calloc((size_t)(w->n * V), sizeof *w->want);
    assert_non_null(w->want);
    OK(ln_eng_step(fresh, &(ln_batch_item){s, w->ids, w->n, LN_LOGITS_ALL}, 1, err));
    for (int64_t i = 0; i < w->n; i++) OK(ln_run_logits(fresh->run, i, w->want + i * V, err));
    ln_seq_close(fresh, &s);
}

/* Opens a text that begins like one of the others. False: the pool cannot take it now. */
static bool begin(ln_eng *e, ln_eng *fresh, work *w) {
    const int64_t n_prompt = 1 + pick(CTX - 20);
    w->n = n_prompt + pick(20);
    memcpy(w->ids, texts[pick(TEXTS)], (size_t)w->n * sizeof *w->ids);
    if (pick(3) == 0) {
        const int64_t other = pick(n_prompt);
        w->ids[other] = (w->ids[other] + 1) % (int32_t)V;
    }
    const ln_seq_options o = {.ids = w->ids, .n_prompt = n_prompt, .n_most = w->n, .no_cache = pick(12) == 0};
    OK(ln_seq_open(e, &o, &w->seq, err));
    if (w->seq) expect(fresh, w);
    return w->seq;
}

/* A device that fails after it has written keys and values, or, every other time, before it does anything:
 * then it has not seen the changed entries of page tables either. */
static const ln_device_ops *whole_ops;
static int n_lost;
static ln_status lost(ln_exec *exec, const ln_step_block *s, const ln_trace *trace, uint64_t *fence,
                      ln_error *err) {
    if (s->n_rows == 0) return whole_ops->submit(exec, s, trace, fence, err);
    if (n_lost++ % 2) OK(whole_ops->submit(exec, s, trace, fence, err));
    return ln_fail(err, LN_EDEVICE, "the device was lost");
}
static void failing_step(ln_eng *e, const ln_batch_item *items, int n) {
    ln_device_ops broken = *(whole_ops = e->run->ops);
    const int64_t used = ln_kv_count(e->kv).n_used;
    broken.submit = lost;
    e->run->ops = &broken;
    FAILS(LN_EDEVICE, "lost", ln_eng_step(e, items, n, err));
    e->run->ops = whole_ops;
    assert_int_equal(ln_kv_count(e->kv).n_used, used);
}

/* Runs a step of some of the open texts and compares every row. */
static void step(ln_eng *e, work *open) {
    ln_batch_item items[MOST_OPEN];
    work *of[MOST_OPEN];
    float got[MOST_VOCAB];
    int n = 0;
    int64_t left = CHUNK, row = 0;
    for (int i = 0; i < MOST_OPEN; i++) {
        work *w = &open[i];
        if (!w->seq || w->seq->n == w->n || left == 0 || pick(4) == 0) continue;
        const int64_t wanted = 1 + pick(w->seq->n < w->seq->n_prompt ? CHUNK : 1),
                      rows = LN_MIN(wanted, LN_MIN(left, w->n - w->seq->n));
        items[n] = (ln_batch_item){w->seq, w->ids + w->seq->n, rows, LN_LOGITS_ALL};
        of[n++] = w;
        left -= rows;
    }
    if (n == 0) return;
    if (pick(10) == 0) failing_step(e, items, n);
    OK(ln_eng_step(e, items, n, err));
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < items[i].n; k++, row++) {
            const int64_t t = of[i]->seq->n - items[i].n + k;
            OK(ln_run_logits(e->run, row, got, err));
            if (memcmp(got, of[i]->want + t * V, (size_t)V * sizeof *got) != 0)
                fail_msg("row %lld of %lld, of which %lld were reused, has other bits", (long long)t,
                         (long long)of[i]->n, (long long)of[i]->seq->n_cached);
        }
}

static void finish(ln_eng *e, work *w) {
    ln_seq_close(e, &w->seq);
    free(w->want);
    w->want = NULL;
}

/* What the schedules were about. */
static int64_t n_reused, n_partial, n_window, n_evicted;

static void schedule(ln_device device, ln_numerics numerics, int64_t rounds) {
    ln_eng *e = engine(device, numerics, CHUNK, SEQS), *fresh = engine(device, numerics, CTX, 1);
    work open[MOST_OPEN] = {0};
    const int32_t cap_changes = e->run->cap_changes;
    for (int64_t r = 0; r < rounds; r++) {
        /* a short list of changed page-table entries is applied in the middle of an admission or a step */
        e->run->cap_changes = r % 2 ? cap_changes : LN_MIN(cap_changes, 1 + (int32_t)(r % 5));
        for (int i = 0; i < MOST_OPEN; i++) {
            work *w = &open[i];
            if (w->seq && (w->seq->n == w->n || pick(40) == 0)) finish(e, w); /* some end early */
            if (w->seq || pick(3) == 0 || !begin(e, fresh, w)) continue;
            n_reused += w->seq->n_cached > 0;
            n_partial += w->seq->n_cached % PAGE > 0;
            n_window += strcmp(w->seq->cache_miss_reason, "window") == 0;
        }
        if (pick(30) == 0) (void)ln_kv_set_limit(e->kv, pick(2) ? INT64_MAX : pick(40));
        step(e, open);
    }
    for (int i = 0; i < MOST_OPEN; i++)
        if (open[i].seq) finish(e, &open[i]);
    ln_kv_counts n = ln_kv_count(e->kv);
    n_evicted += (int64_t)n.n_evicted;
    assert_int_equal(n.n_used, 0);
    assert_int_equal(n.n_free + n.n_cached, n.n_pages);
    ln_kv_clear(e->kv);
    assert_int_equal(ln_kv_count(e->kv).n_free, n.n_pages);
    ln_eng_close(&e);
    ln_eng_close(&fresh);
}

static void same_bits(const char *name, ln_numerics numerics) {
    static const int64_t windows[] = {3 * PAGE, 50, 7};
    OK(ln_package_open(&model, name, &(ln_options){0}, err));
    V = model->spec.V;
    assert_true(V <= MOST_VOCAB);
    assert_int_equal(model->spec.attn[0].window == 0, model->spec.attn[1].window != 0);
    for (size_t k = 0; k < LN_COUNT(windows); k++) {
        seed = 5 + k;
        for (int t = 0; t < TEXTS; t++) {
            const int64_t same = t ? pick(CTX) : 0;
            for (int64_t i = 0; i < CTX; i++) texts[t][i] = i < same ? texts[t - 1][i] : (int32_t)pick(V);
        }
        for (int c = 0; c < 2; c++)
            if (model->spec.attn[c].window) model->spec.attn[c].window = windows[k];
        schedule(LN_DEVICE_AUTO, numerics, fewer(250, 40));
        schedule(LN_DEVICE_REF, numerics, fewer(40, 10));
    }
    ln_package_close(&model);
    print_message("  reused %lld, to within a block %lld, window moved on %lld; evicted pages %lld\n",
                  (long long)n_reused, (long long)n_partial, (long long)n_window, (long long)n_evicted);
    assert_true(n_reused > 0 && n_partial > 0 && n_window > 0 && n_evicted > 0);
}
static void exact(void **state) { (void)state, same_bits(LN_ROOT "/tests/golden/gemma3-text-f32", LN_EXACT); }
static void fast(void **state) { (void)state, same_bits(LN_ROOT "/tests/golden/gemma3-text-bf16", LN_FAST); }

/* Element e of a head's key, or value, at position t. */
static float number(int64_t h, int64_t e, int64_t t, bool value) {
    return (float)(1 + (h * 37 + e * 5 + t * 3 + (value ? 64 : 0)) % 128);
}
/* Writes keys or values of n positions to x, in the order of a page; behind them NaN, or zeros. */
static void numbers(const ln_run *r, int64_t n, bool value, float behind, float *x) {
    const int64_t K = r->kv.groups[0].n_kv_heads, E = r->kv.groups[0].head_dim, len = r->kv.page_len;
    for (int64_t h = 0; h < K; h++)
        for (int64_t e = 0; e < E; e++)
            for (int64_t t = 0; t < len; t++)
                x[value ? (h * len + t) * E + e : (h * E + e) * len + t] =
                    t < n ? number(h, e, t, value) : behind;
}

/* A page copied up to a position has zeros behind it, even if there were NaNs. */
static void check_copies(ln_eng *e) {
    enum { MOST = 4096 };
    static float in[2][MOST], want[2][MOST], got[2][MOST];
    ln_run *r = e->run;
    const size_t bytes =
        (size_t)(r->kv.groups[0].n_kv_heads * r->kv.groups[0].head_dim * r->kv.page_len) * sizeof(float);
    assert_true(bytes <= sizeof in[0]);
    for (int64_t n = 0; n <= r->kv.page_len; n++)
        for (int64_t to = 0; to < 2; to++) { /* to itself, to another page */
            for (int value = 0; value < 2; value++) {
                numbers(r, n, value, NAN, in[value]);
                numbers(r, n, value, 0, want[value]);
            }
            for (int layer = 0; layer < r->spec->L; layer++)
                OK(ln_run_write_page(r, layer, 0, in[0], in[1], err));
            OK(ln_run_copy_page(r, 0, to, 0, n, err));
            for (int layer = 0; layer < r->spec->L; layer++) {
                OK(ln_run_read_page(r, layer, to, got[0], got[1], err));
                for (int value = 0; value < 2; value++)
                    if (memcmp(got[value], want[value], bytes) != 0)
                        fail_msg("%s of %lld positions of layer %d differ", value ? "values" : "keys",
                                 (long long)n, layer);
            }
        }
}
static void copies(void **state) {
    (void)state;
    OK(ln_package_open(&model, LN_ROOT "/tests/golden/gemma3-text-f32", &(ln_options){0}, err));
    for (int i = 0; i < 4; i++) {
        ln_run_options o = test_options(model, i & 1 ? LN_DEVICE_REF : LN_DEVICE_AUTO, 1, 8, 1);
        ln_eng *e;
        o.numerics = i & 2 ? LN_FAST : LN_EXACT, o.page_len = 64;
        OK(ln_eng_open_with(&e, model, &o, err));
        check_copies(e);
        ln_eng_close(&e);
    }
    ln_package_close(&model);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* for tools/mutants */
    const struct CMUnitTest tests[] = {cmocka_unit_test(copies), cmocka_unit_test(exact),
                                       cmocka_unit_test(fast)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
