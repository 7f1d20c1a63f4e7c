/* The public API as a caller sees it: handles after close, NULL for every argument, options out of range,
 * results that agree with the tokenizer, the memory plan compared with the memory that the process holds.
 * Uses linnet.h alone (and the golden models). */
/* run: quick tsan */
#include <linnet.h>
#include <linnet_tools.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "collect.h"

static void test_handles(void **s) {
    (void)s;
    ln_model *m, *copy;
    ln_engine *e, *e2;
    ln_info info = {.size = sizeof info};
    EXPECT(LN_OK, NULL, ln_model_open(&m, MODEL, NULL, err));
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, NULL, err));
    copy = m, e2 = e;
    EXPECT(LN_EUSAGE, "engine handle",
           ln_score((ln_engine *)m, (const int32_t[]){1}, 1, 0, (ln_score_fn *)1, NULL, NULL,
                    err)); /* a handle of the wrong kind */
    ln_engine_close(&e);
    assert_null(e);
    ln_engine_close(&e);
    ln_engine_close(&e2); /* closing a handle twice has no effect */
    ln_model_close(&m);
    EXPECT(LN_EUSAGE, "closed", ln_model_info(copy, &info, err));
    EXPECT(LN_EUSAGE, "NULL", ln_model_info(NULL, &info, err));
    ln_model *again;
    EXPECT(LN_OK, NULL, ln_model_open(&again, MODEL, NULL, err)); /* the handle's slot is used again; the old
                                                                     handle stays closed */
    EXPECT(LN_EUSAGE, "closed", ln_model_info(copy, &info, err));
    EXPECT(LN_OK, NULL, ln_model_info(again, &info, NULL));
    ln_model_close(&again);
}

static void test_arguments(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e;
    ln_result r = {.size = sizeof r};
    ln_sampling how = {.size = sizeof how};
    ln_prompt p = {.size = sizeof(ln_prompt)};
    EXPECT(LN_EUSAGE, "model", ln_model_open(&m, NULL, NULL, err));
    EXPECT(LN_EIO, "/nowhere", ln_model_open(&m, "/nowhere", NULL, err));
    ln_options o = {.size = sizeof(ln_options), .n_ctx = -1};
    EXPECT(LN_EUSAGE, "n_ctx: expected 0 (the default) or more, found -1", ln_model_open(&m, MODEL, &o, err));
    EXPECT(LN_OK, NULL, ln_model_open(&m, MODEL, NULL, err));
    o = (ln_options){.size = sizeof(ln_options), .n_ctx = 1 << 30};
    EXPECT(LN_EUSAGE, "its context is", ln_engine_open(&e, m, &o, err));
    o = (ln_options){.size = sizeof(ln_options), .memory_bytes = 1000};
    EXPECT(LN_EMEMORY, "1000", ln_engine_open(&e, m, &o, err));
    o = (ln_options){.size = sizeof(ln_options), .device = LN_DEVICE_CUDA};
    if (!getenv("LN_TEST_DEVICE")) EXPECT(LN_EDEVICE, "device cuda", ln_engine_open(&e, m, &o, err));
    o = (ln_options){.size = sizeof(ln_options), .n_ctx = 32};
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, &o, err));
    EXPECT(LN_OK, NULL, ln_sampling_default(m, &how, err));
    EXPECT(LN_EUSAGE, "found none", ln_generate(e, &p, &how, NULL, NULL, &r, err));
    int32_t ids[40] = {1, 2, 3};
    p.ids = ids, p.n_ids = 33;
    EXPECT(LN_EINVALID, "33 tokens", ln_generate(e, &p, &how, NULL, NULL, &r, err));
    ids[1] = 1 << 20, p.n_ids = 3;
    EXPECT(LN_EINVALID, "token 1 is", ln_generate(e, &p, &how, NULL, NULL, &r, err));
    ids[1] = -1;
    EXPECT(LN_EINVALID, "token 1 is -1", ln_generate(e, &p, &how, NULL, NULL, &r, err));
    p.n_ids = 0;
    EXPECT(LN_EUSAGE, "empty", ln_generate(e, &p, &how, NULL, NULL, &r, err));
    ids[1] = 2, p.n_ids = 3;
    ln_sampling bad = how;
    bad.top_p = NAN;
    EXPECT(LN_EUSAGE, "top_p", ln_generate(e, &p, &bad, NULL, NULL, &r, err));
    bad = how, bad.repeat_penalty = 0;
    EXPECT(LN_EUSAGE, "repeat_penalty", ln_generate(e, &p, &bad, NULL, NULL, &r, err));
    ln_logit_bias b = {1 << 20, 1};
    bad = how, bad.bias = &b, bad.n_bias = 1;
    EXPECT(LN_EUSAGE, "logit bias", ln_generate(e, &p, &bad, NULL, NULL, &r, err));
    const char *empty = "";
    bad = how, bad.stop = &empty, bad.n_stop = 1;
    EXPECT(LN_EUSAGE, "stop text", ln_generate(e, &p, &bad, NULL, NULL, &r, err));
    /* Generation ends where the context does: 32 positions; the last token needs no position. */
    how.n_max = 100, how.ignore_eos = true, how.temperature = 0;
    EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, NULL, NULL, &r, err));
    assert_int_equal(r.n_prompt_ids + r.n_ids, 32 + 1);
    assert_int_equal(r.finish, LN_FINISH_LENGTH);
    ln_result_free(&r);
    how.n_max = 0;
    EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, NULL, NULL, &r, err));
    assert_int_equal(r.n_ids, 0);
    ln_result_free(&r);
    ln_engine_close(&e);
    ln_model_close(&m);
}

static void test_generate(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e;
    ln_result a = {.size = sizeof a}, b = {.size = sizeof b};
    ln_sampling how = {.size = sizeof how};
    int32_t ids[] = {5, 9, 44, 7};
    ln_prompt p = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = 4};
    EXPECT(LN_OK, NULL, ln_model_open(&m, NO_WINDOW, NULL, err));
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, NULL, err));
    EXPECT(LN_OK, NULL, ln_sampling_default(m, &how, err));
    how.n_max = 60, how.temperature = 1.3, how.top_k = 0, how.ignore_eos = true, how.has_seed = true,
    how.seed = 42;
    collected c = {.stop_after = -1};
    EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, collect, &c, &a, err));
    assert_int_equal(a.n_ids, 60);
    assert_int_equal(a.text_bytes, c.n);
    assert_memory_equal(a.text, c.text, c.n);
    EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, NULL, NULL, &b, err)); /* the same seed gives the same text,
                                                                           and the prefix is kept */
    assert_true(b.metrics.cached_tokens == 3);
    assert_memory_equal(a.ids, b.ids, 60 * sizeof *a.ids);
    ln_result_free(&b);
    how.seed = 43;
    EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, NULL, NULL, &b, err));
    assert_memory_not_equal(a.ids, b.ids, 60 * sizeof *a.ids);
    ln_result_free(&b);
    how.seed = 42;
    collected d = {.stop_after = 5};
    EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, collect, &d, &b, err));
    assert_int_equal(b.finish, LN_FINISH_CANCELLED);
    assert_true(b.n_ids < 60 && memcmp(a.ids, b.ids, b.n_ids * sizeof *a.ids) == 0);
    ln_result_free(&b);
    ln_result_free(&a);
    ln_engine_close(&e);
    ln_model_close(&m);
}

static ln_status on_row(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                        const float *logits, int64_t V, ln_error *err) {
    double *sum = user;
    (void)logits, (void)V, (void)err;
    if (t == 0) assert_true(isnan(logprob));
    else sum[0] += logprob;
    assert_int_equal(n_top, 3);
    assert_true(top[0].logprob >= top[1].logprob && top[1].logprob >= top[2].logprob && top[0].logprob <= 0);
    sum[1] += 1;
    return LN_OK;
}

typedef struct reentry {
    ln_engine *engine;
    ln_model *model;
    const ln_prompt *prompt;
    const ln_sampling *how;
    ln_result inner;
    ln_status st;
    int calls, close_at;
} reentry;
static ln_status call_back(void *user, const char *text, size_t bytes, ln_error *err) {
    reentry *r = user;
    (void)text, (void)bytes;
    if (r->calls == 0) r->st = ln_generate(r->engine, r->prompt, r->how, NULL, NULL, &r->inner, err);
    if (++r->calls == r->close_at) {
        ln_model_close(&r->model);
        ln_engine_close(&r->engine);
    }
    return LN_OK;
}
static ln_status call_from_row(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                               const float *logits, int64_t n_vocab, ln_error *err) {
    reentry *r = user;
    (void)t, (void)logprob, (void)top, (void)n_top, (void)logits, (void)n_vocab;
    r->st = ln_generate(r->engine, r->prompt, r->how, NULL, NULL, &r->inner, err);
    return LN_OK;
}

/* A callback of ln_generate may call its engine, even if the engine has one sequence: the inner call gives
 * the same text. A callback of ln_score holds the sequence, so that its calls are rejected. Closing the
 * engine (and its model) from the engine's own callback stops the call; what the call uses is freed only
 * after it has returned. */
static void test_calls_from_callbacks(void **s) {
    (void)s;
    ln_result out = {.size = sizeof out};
    ln_sampling how = {.size = sizeof how};
    int32_t ids[] = {5, 9, 44, 7};
    ln_prompt p = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = 4};
    reentry r = {.st = LN_EINTERNAL, .prompt = &p, .how = &how, .inner.size = sizeof r.inner};
    EXPECT(LN_OK, NULL, ln_model_open(&r.model, NO_WINDOW, NULL, err));
    EXPECT(LN_OK, NULL, ln_engine_open(&r.engine, r.model, NULL, err));
    EXPECT(LN_OK, NULL, ln_sampling_default(r.model, &how, err));
    how.n_max = 30, how.ignore_eos = true, how.temperature = 0;
    EXPECT(LN_OK, NULL, ln_generate(r.engine, &p, &how, call_back, &r, &out, err));
    assert_int_equal(r.st, LN_OK);
    assert_int_equal(out.n_ids, 30);
    assert_int_equal(r.inner.n_ids, 30);
    assert_memory_equal(r.inner.ids, out.ids, 30 * sizeof *out.ids);
    assert_true(r.calls > 2);
    ln_result_free(&out);
    ln_result_free(&r.inner);
    EXPECT(LN_OK, NULL, ln_score(r.engine, ids, 2, 0, call_from_row, &r, NULL, err));
    assert_int_equal(r.st, LN_EUSAGE);
    ln_result_free(&r.inner);
    r.close_at = r.calls + 2;
    ln_engine *copy = r.engine;
    EXPECT(LN_OK, NULL, ln_generate(r.engine, &p, &how, call_back, &r, &out, err));
    assert_null(r.engine);
    assert_null(r.model);
    assert_int_equal(out.finish, LN_FINISH_CANCELLED);
    assert_true(out.n_ids < 30 && r.calls == r.close_at);
    ln_result_free(&out);
    EXPECT(LN_EUSAGE, "closed", ln_generate(copy, &p, &how, NULL, NULL, &out, err));
}

typedef struct failing {
    int calls, fail_at;
    ln_status with;
    const char *message;
} failing;
static ln_status fail_later(void *user, const char *text, size_t bytes, ln_error *err) {
    failing *f = user;
    (void)text, (void)bytes;
    if (++f->calls < f->fail_at) return LN_OK;
    if (f->message) memcpy(err->message, f->message, strlen(f->message) + 1);
    return f->with;
}
static ln_status fail_row(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                          const float *logits, int64_t V, ln_error *err) {
    (void)t, (void)logprob, (void)top, (void)n_top, (void)logits, (void)V;
    return fail_later(user, NULL, 0, err);
}
static ln_status fail_keys(void *user, int layer, const float *keys, int K, int64_t T, int E, ln_error *err) {
    (void)layer, (void)keys, (void)K, (void)T, (void)E;
    return fail_later(user, NULL, 0, err);
}
static ln_status fail_found(void *user, const ln_found *found, ln_error *err) {
    (void)found;
    return fail_later(user, NULL, 0, err);
}

/* A call whose callback fails returns the callback's status and message, and the text so far; a callback
 * that asks to stop is no error. */
static void test_callbacks_fail(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e;
    ln_result all = {.size = sizeof all}, r = {.size = sizeof r};
    ln_sampling how = {.size = sizeof how};
    int32_t ids[] = {5, 9, 44, 7};
    ln_prompt p = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = 4};
    ln_options o = {.size = sizeof(ln_options), .keep_full_kv = true};
    EXPECT(LN_OK, NULL, ln_model_open(&m, NO_WINDOW, NULL, err));
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, &o, err));
    EXPECT(LN_OK, NULL, ln_sampling_default(m, &how, err));
    how.n_max = 40, how.ignore_eos = true, how.temperature = 0;
    EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, NULL, NULL, &all, err));
    failing f = {.fail_at = 3, .with = LN_EIO, .message = "the pipe is full"};
    EXPECT(LN_EIO, "the pipe is full", ln_generate(e, &p, &how, fail_later, &f, &r, err));
    assert_int_equal(f.calls, 3);
    assert_int_equal(r.finish, LN_FINISH_CANCELLED);
    assert_true(r.n_ids >= 3 && r.n_ids < 40 && r.text_bytes > 0 && r.text_bytes < all.text_bytes);
    assert_memory_equal(r.ids, all.ids, r.n_ids * sizeof *r.ids);
    assert_memory_equal(r.text, all.text, r.text_bytes);
    assert_true(r.metrics.generated_tokens == (int64_t)r.n_ids && r.metrics.first_token_seconds > 0);
    ln_result_free(&r);
    f = (failing){.fail_at = 1, .with = LN_EIO};
    EXPECT(LN_EIO, "status 5", ln_generate(e, &p, &how, fail_later, &f, &r, err));
    ln_result_free(&r);
    assert_int_equal(ln_generate(e, &p, &how, fail_later, &f, &r, NULL), LN_EIO);
    assert_int_equal(ln_last_error()->code, LN_EIO);
    ln_result_free(&r);
    ln_result_free(&all);
    for (int stop = 0; stop < 2; stop++) {
        f = (failing){.fail_at = 2, .with = stop ? LN_ECANCELLED : LN_EMEMORY, .message = "mine"};
        ln_status want = stop ? LN_OK : LN_EMEMORY;
        EXPECT(want, "mine", ln_score(e, ids, 4, 0, fail_row, &f, NULL, err));
        assert_int_equal(f.calls, 2);
        f.calls = 0;
        EXPECT(want, "mine", ln_inspect_keys(e, ids, 4, fail_keys, &f, err));
        assert_int_equal(f.calls, 2);
        f.calls = 0;
        EXPECT(want, "mine", ln_list(LN_ROOT "/tests/golden", fail_found, &f, err));
        assert_int_equal(f.calls, 2);
    }
    ln_engine_close(&e);
    ln_model_close(&m);
}

static ln_status count_row(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                           const float *logits, int64_t V, ln_error *err) {
    (void)err, (void)t, (void)logprob, (void)top, (void)logits, (void)V;
    assert_int_equal(n_top, 0);
    ++*(int *)user;
    return LN_OK;
}

/* ---- a model of this test's own, to be damaged ---- */

static char own[64];
static const char *const own_files[] = {"config.json", "generation_config.json", "tokenizer.json",
                                        "model.safetensors"};

static void own_path(char out[400], const char *dir, const char *file) {
    (void)snprintf(out, 400, "%s/%s", dir, file);
}

static void own_make(void) {
    static char bytes[1 << 22];
    strcpy(own, "/tmp/linnet-api-XXXXXX");
    assert_non_null(mkdtemp(own));
    for (size_t i = 0; i < sizeof own_files / sizeof *own_files; i++) {
        char path[400];
        own_path(path, MODEL, own_files[i]);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        size_t n = fread(bytes, 1, sizeof bytes, f);
        fclose(f);
        own_path(path, own, own_files[i]);
        f = fopen(path, "wb");
        assert_int_equal(fwrite(bytes, 1, n, f), n);
        fclose(f);
    }
}

static void own_remove(void) {
    for (size_t i = 0; i < sizeof own_files / sizeof *own_files; i++) {
        char path[400];
        own_path(path, own, own_files[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(own), 0);
}

static ln_status cut_it(void *user, const char *text, size_t bytes, ln_error *err) {
    char path[400];
    (void)text, (void)bytes, (void)err;
    own_path(path, own, "model.safetensors");
    if (++*(int *)user == 3) assert_int_equal(truncate(path, 4096), 0);
    usleep(5000);
    return LN_OK;
}

/* A weight file that is truncated during a call: LN_ECHANGED with the text so far, and every handle can be
 * closed. */
static void test_weights_cut_short(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e;
    ln_result r = {.size = sizeof r};
    ln_sampling how = {.size = sizeof how};
    int calls = 0;
    int32_t ids[] = {5, 9, 44, 7};
    ln_prompt p = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = 4};
    own_make();
    EXPECT(LN_OK, NULL, ln_guard_files(err));
    EXPECT(LN_OK, NULL, ln_model_open(&m, own, NULL, err));
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, NULL, err));
    EXPECT(LN_OK, NULL, ln_sampling_default(m, &how, err));
    how.n_max = 100, how.ignore_eos = true, how.temperature = 0;
    EXPECT(LN_ECHANGED, "model.safetensors: changed", ln_generate(e, &p, &how, cut_it, &calls, &r, err));
    assert_true(calls >=
                3); /* packed weights do not read the file; the engine checks it every quarter of a second */
    assert_true(r.n_ids > 0 && r.text_bytes > 0);
    ln_result_free(&r);
    EXPECT(LN_ECHANGED, "model.safetensors", ln_generate(e, &p, &how, NULL, NULL, &r, err));
    ln_result_free(&r);
    ln_engine_close(&e);
    ln_model_close(&m);
    own_remove();
}

/* A request to stop (ln_cancel) holds until it is withdrawn, whether it comes before or during a call; on
 * a closed handle it has no effect. */
static ln_status cancel_it(void *user, const char *text, size_t bytes, ln_error *err) {
    (void)text, (void)bytes, (void)err;
    ln_cancel(*(ln_engine **)user, true);
    return LN_OK;
}
static void test_cancel(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e, *other;
    ln_result r = {.size = sizeof r};
    ln_sampling how = {.size = sizeof how};
    int rows = 0;
    int32_t ids[] = {5, 9, 44, 7};
    ln_prompt p = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = 4};
    EXPECT(LN_OK, NULL, ln_model_open(&m, NO_WINDOW, NULL, err));
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, NULL, err));
    EXPECT(LN_OK, NULL, ln_engine_open(&other, m, NULL, err));
    EXPECT(LN_OK, NULL, ln_sampling_default(m, &how, err));
    how.n_max = 20, how.ignore_eos = true, how.temperature = 0;
    ln_cancel(e, true);
    for (int i = 0; i < 2; i++) { /* the stop comes before the first token and holds for the second call
                                     too */
        EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, NULL, NULL, &r, err));
        assert_true(r.finish == LN_FINISH_CANCELLED && r.n_ids == 0 && r.n_prompt_ids == 4);
        ln_result_free(&r);
    }
    EXPECT(LN_ECANCELLED, "stopped", ln_score(e, ids, 4, 0, count_row, &rows, NULL, err));
    assert_int_equal(rows, 0);
    EXPECT(LN_OK, NULL, ln_generate(other, &p, &how, NULL, NULL, &r, err)); /* no other engine is stopped */
    assert_int_equal(r.n_ids, 20);
    ln_result_free(&r);
    ln_cancel(e, false);
    EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, cancel_it, &e, &r, err));
    assert_true(r.finish == LN_FINISH_CANCELLED && r.n_ids > 0 && r.n_ids < 20);
    ln_result_free(&r);
    ln_engine *closed = e;
    ln_engine_close(&e);
    ln_cancel(closed, true);
    ln_cancel(NULL, true);
    ln_cancel((ln_engine *)m, true);
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, NULL, err)); /* The same slot of handles: the stop that arrives
                                                              late was for the closed engine. */
    ln_cancel(closed, true);
    EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, NULL, NULL, &r, err));
    assert_int_equal(r.n_ids, 20);
    ln_result_free(&r);
    ln_model_close(&m); /* its engines keep what they need of it */
    EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, NULL, NULL, &r, err));
    ln_result_free(&r);
    ln_engine_close(&e);
    ln_engine_close(&other);
}

static void test_score(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e;
    int32_t ids[50];
    double whole[2] = {0}, byone[2] = {0};
    for (int i = 0; i < 50; i++) ids[i] = (i * 37 + 11) % 100;
    EXPECT(LN_OK, NULL, ln_model_open(&m, MODEL, NULL, err));
    ln_options o = {.size = sizeof(ln_options), .n_logits = 64};
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, &o, err));
    EXPECT(LN_OK, NULL, ln_score(e, ids, 50, 3, on_row, whole, NULL, err));
    ln_engine_close(&e);
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, NULL, err));
    EXPECT(LN_OK, NULL, ln_score(e, ids, 50, 3, on_row, byone, NULL, err));
    assert_true(whole[0] == byone[0] && whole[1] == 50 && byone[1] == 50);
    assert_true(whole[0] < -50);
    EXPECT(LN_EUSAGE, "no tokens", ln_score(e, ids, 0, 0, on_row, byone, NULL, err));
    EXPECT(LN_EUSAGE, "keep_full_kv", ln_inspect_keys(e, ids, 50, (ln_keys_fn *)1, NULL, err));
    ln_engine_close(&e);
    ln_model_close(&m);
}

/* n_top = 0: ln_score must not write to the list of the likeliest tokens. */
static void test_score_without_top(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e;
    int rows = 0;
    EXPECT(LN_OK, NULL, ln_model_open(&m, MODEL, NULL, err));
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, NULL, err));
    EXPECT(LN_OK, NULL, ln_score(e, (const int32_t[]){1, 2, 3}, 3, 0, count_row, &rows, NULL, err));
    assert_int_equal(rows, 3);
    ln_engine_close(&e);
    ln_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handles),          cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_generate),         cmocka_unit_test(test_calls_from_callbacks),
        cmocka_unit_test(test_callbacks_fail),   cmocka_unit_test(test_weights_cut_short),
        cmocka_unit_test(test_cancel),           cmocka_unit_test(test_score),
        cmocka_unit_test(test_score_without_top)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
