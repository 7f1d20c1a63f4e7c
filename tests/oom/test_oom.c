/* Every allocation fails in turn, from opening a small model to closing it: that one alone (transient), or
 * it and all later ones (persistent). Whichever fails, the call returns LN_EMEMORY with a message of one
 * line, or succeeds without that memory; what was opened can be closed, and no memory stays allocated. The
 * allocations are those of the whole process, also those of jansson and PCRE2, which use ln_alloc.
 *
 * `make test` tries a sample with a stride, `make check-long` (LN_LONG) all of them. */
/* run: slow asan */
#include "../base/cm.h"
#include "../fewer.h"

#include <linnet_tools.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define GOLDEN LN_ROOT "/tests/golden/"

/* A hash of the results; a use that succeeds in spite of a failed allocation must have the same results. */
static uint64_t digest;
static void add(const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) digest = (digest ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
}

static const char text[] = "the th<eos> \xc3\xa9";

static ln_status on_row(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                        const float *logits, int64_t n_vocab, ln_error *err) {
    (void)t, (void)logprob, (void)err;
    add(top, n_top * sizeof *top);
    add(logits, (size_t)n_vocab * sizeof *logits);
    ++*(int *)user;
    return LN_OK;
}

static ln_status on_keys(void *user, int layer, const float *keys, int n_kv_heads, int64_t n_rows,
                         int head_dim, ln_error *err) {
    (void)layer, (void)err;
    add(keys, (size_t)n_kv_heads * (size_t)n_rows * (size_t)head_dim * sizeof *keys);
    ++*(int *)user;
    return LN_OK;
}

static ln_status on_text(void *user, const char *piece, size_t bytes, ln_error *err) {
    (void)err;
    add(piece, bytes);
    *(size_t *)user += bytes;
    return LN_OK;
}

static ln_status on_class(void *user, const ln_class *c, ln_error *err) {
    if (c->status != LN_OK) return snprintf(err->message, sizeof err->message, "%s", c->error), c->status;
    if (c->scores) add(c->scores, 3 * sizeof *c->scores);
    add(c->logits, (size_t)c->n_vocab * sizeof *c->logits);
    ++*(int *)user;
    return LN_OK;
}

/* Classifies by labels of several tokens and by the next token, and evaluates, in windows that overlap. */
static ln_status use_classes(ln_engine *engine, ln_error *err) {
    static const char *const labels[] = {"the end", "a", "that"};
    static const int32_t ids[] = {5, 6, 7, 8, 9, 10, 11, 12};
    const ln_prompt prompts[] = {{.size = sizeof(ln_prompt), .ids = ids, .n_ids = 5},
                                 {.size = sizeof(ln_prompt), .text = text, .text_bytes = sizeof text - 1}};
    ln_classify_options o = ln_classify_options_default();
    ln_evaluation out = {.size = sizeof out};
    int n = 0;
    o.want_logits = true;
    LN_TRY(ln_classify(engine, prompts, 2, &o, on_class, &n, NULL, err));
    o.labels = labels;
    o.n_labels = 3;
    LN_TRY(ln_classify(engine, prompts, 2, &o, on_class, &n, NULL, err));
    assert_int_equal(n, 4);
    LN_TRY(ln_evaluate(engine, ids, 8, 4, 2, &out, NULL, err));
    add(&out.nll, sizeof out.nll);
    return LN_OK;
}

/* Everything that a program does with a model. */
static ln_status use_model(const char *name, ln_error *err) {
    static const char *const stop[] = {"never there"};
    static const ln_logit_bias bias[] = {{5, -1}};
    const int32_t ids[] = {5, 6, 7};
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    ln_options opt = ln_options_default();
    ln_result r = {.size = sizeof r};
    ln_sampling how = {.size = sizeof how};
    ln_info info = {.size = sizeof info};
    int rows = 0;
    size_t bytes = 0;
    ln_status st;
    opt.n_threads = 2;
    opt.n_ctx = 64;
    opt.n_chunk = 8;
    opt.keep_full_kv = true;
    LN_GO(ln_model_open(&model, name, &opt, err));
    LN_GO(ln_model_info(model, &info, err));
    LN_GO(ln_sampling_default(model, &how, err));
    LN_GO(ln_engine_open(&engine, model, &opt, err));
    how.stop = stop, how.n_stop = 1, how.bias = bias, how.n_bias = 1, how.n_max = 4, how.has_seed = true,
    how.ignore_eos = true;
    LN_GO(ln_generate(engine,
                      &(ln_prompt){.size = sizeof(ln_prompt), .text = text, .text_bytes = sizeof text - 1},
                      &how, on_text, &bytes, &r, err));
    assert_int_equal(r.n_ids, 4);
    add(r.ids, r.n_ids * sizeof *r.ids);
    add(info.eos_ids, sizeof info.eos_ids);
    add(&info.has_template, sizeof info.has_template);
    add(&how.temperature, sizeof how.temperature);
    LN_GO(ln_score(engine, ids, 3, 2, on_row, &rows, NULL, err));
    assert_int_equal(rows, 3);
    LN_GO(ln_inspect_keys(engine, ids, 3, on_keys, &rows, err));
    LN_GO(use_classes(engine, err));
out:
    ln_result_free(&r);
    ln_engine_close(&engine);
    ln_model_close(&model);
    return st;
}

static ln_status use_rest(const char *name, ln_error *err) {
    ln_tokenizer *tok = NULL;
    ln_options opt = ln_options_default();
    ln_plan plan = {.size = sizeof plan};
    ln_info info = {.size = sizeof info};
    int32_t ids[64];
    char out_text[256];
    size_t n, bytes;
    ln_status st;
    opt.n_ctx = 64;
    LN_GO(ln_tokenizer_open(&tok, name, err));
    LN_GO(ln_tokenize(tok, text, sizeof text - 1, true, ids, 64, &n, err));
    LN_GO(ln_detokenize(tok, ids, n, false, out_text, sizeof out_text, &bytes, err));
    LN_GO(ln_plan_memory(name, &opt, &plan, err));
    LN_GO(ln_show(name, &opt, &info, err));
    add(ids, n * sizeof *ids);
    add(out_text, bytes);
    add(&plan.kv_bytes, sizeof plan.kv_bytes);
    add(&info.has_template, sizeof info.has_template);
out:
    ln_tokenizer_close(&tok);
    return st;
}

typedef ln_status use_fn(const char *name, ln_error *err);

static int64_t count_of(use_fn *use, const char *name) {
    ln_error err = {0};
    const int64_t most = INT64_C(1) << 40;
    (void)ln_mem_fail_at(most, false);
    ln_status st = use(name, &err);
    int64_t left = ln_mem_fail_at(-1, false);
    if (st != LN_OK) fail_msg("%s: %s", name, err.message);
    return most - 1 - left;
}

/* Runs the use with the n-th allocation failing; returns whether the use failed. */
static bool fail_at(use_fn *use, const char *name, int64_t n, bool persistent, uint64_t before,
                    uint64_t want) {
    ln_error err = {0};
    digest = 0;
    (void)ln_mem_fail_at(n, persistent);
    ln_status st = use(name, &err);
    (void)ln_mem_fail_at(-1, false);
    if (ln_mem_bytes() != before)
        fail_msg("%s: allocation %d%s: %lld bytes stay", name, (int)n, persistent ? " and on" : "",
                 (long long)(ln_mem_bytes() - before));
    if (st == LN_OK && digest != want)
        fail_msg("%s: allocation %d: it did without and came to something else", name, (int)n);
    if (st == LN_OK) return false;
    if (st != LN_EMEMORY || err.code != st || !err.message[0] || strchr(err.message, '\n'))
        fail_msg("%s: allocation %d%s: status %d: %s", name, (int)n, persistent ? " and on" : "", st,
                 err.message);
    return true;
}

static void sweep(use_fn *use, const char *what) {
    static const char *const models[] = {"qwen3-sharded-bf16", "gemma3-text-bf16", "llama-llama3-bf16",
                                         "quantised/qwen3-q8-g32-f16", "../../models/tiny"};
    for (size_t m = 0; m < LN_COUNT(models); m++) {
        char name[512];
        (void)snprintf(name, sizeof name, "%s%s", GOLDEN, models[m]);
        (void)count_of(use, name); /* allocations that last for the process's life are made now */
        uint64_t before = ln_mem_bytes();
        int64_t total = count_of(use, name), stride = getenv("LN_LONG") ? 1 : 1 + total / fewer(60, 20),
                tried = 0, failed = 0;
        assert_int_equal(ln_mem_bytes(), before);
        digest = 0;
        ln_error err = {0};
        assert_int_equal(use(name, &err), LN_OK);
        uint64_t want = digest;
        for (int persistent = 0; persistent < 2; persistent++)
            for (int64_t n = 1 + (int64_t)m % stride; n <= total; n += stride) {
                tried++;
                bool broke = fail_at(use, name, n, persistent, before, want);
                failed += broke;
                if (persistent && !broke)
                    fail_msg("%s: allocation %d and all later ones fail, and all is well?", name, (int)n);
            }
        print_message("%s, %s: %d allocations, %d failures tried, %d of them ended in an error\n", models[m],
                      what, (int)total, (int)tried, (int)failed);
        assert_true(total > 100 && failed > tried / 2);
    }
}

static void a_model(void **state) {
    (void)state;
    sweep(use_model, "open, generate, score, close");
}

static void the_rest(void **state) {
    (void)state;
    sweep(use_rest, "tokenize, plan, show");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_model), cmocka_unit_test(the_rest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
