/* The front door from outside: handles after close, NULL everywhere, options out of range, results that agree with the tokenizer, the
 * plan against what the process holds. Uses linnet.h alone (and the golden models). */
#include <linnet.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define MODEL LN_ROOT "/tests/golden/gemma3-text-bf16" /* its window is 16: old pages are dropped */
#define NO_WINDOW LN_ROOT "/tests/golden/qwen3-sharded-bf16"
#define TINY LN_ROOT "/models/tiny"

static void expect(ln_status st, ln_status want, const ln_error *e, const char *word, int line) {
    if (st != want || (st != LN_OK && word && !strstr(e->message, word))) fail_msg("line %d: status %d, expected %d with '%s': %s", line, st, want, word ? word : "", e->message);
}
#define EXPECT(want, word, x)                                                                                                            \
    do {                                                                                                                                 \
        ln_error err_ = {0};                                                                                                             \
        ln_error *err = &err_;                                                                                                           \
        (void)err;                                                                                                                       \
        ln_status st_ = (x);                                                                                                             \
        expect(st_, want, err, word, __LINE__);                                                                                          \
    } while (0)

static void test_handles(void **s) {
    (void)s;
    ln_model *m, *copy;
    ln_engine *e, *e2;
    ln_info info;
    EXPECT(LN_OK, NULL, ln_model_open(&m, MODEL, NULL, err));
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, NULL, err));
    copy = m, e2 = e;
    EXPECT(LN_EUSAGE, "engine handle", ln_score((ln_engine *)m, (const int32_t[]){1}, 1, 0, (ln_score_fn *)1, NULL, NULL, err)); /* the wrong kind */
    ln_engine_close(&e);
    assert_null(e);
    ln_engine_close(&e);
    ln_engine_close(&e2); /* a second close of the same ticket is nothing */
    ln_model_close(&m);
    EXPECT(LN_EUSAGE, "closed", ln_model_info(copy, &info, err));
    EXPECT(LN_EUSAGE, "NULL", ln_model_info(NULL, &info, err));
    ln_model *again;
    EXPECT(LN_OK, NULL, ln_model_open(&again, MODEL, NULL, err)); /* the slot is used again; the old ticket stays closed */
    EXPECT(LN_EUSAGE, "closed", ln_model_info(copy, &info, err));
    EXPECT(LN_OK, NULL, ln_model_info(again, &info, NULL));
    ln_model_close(&again);
}

static void test_arguments(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e;
    ln_result r;
    ln_sampling how;
    ln_prompt p = {0};
    EXPECT(LN_EUSAGE, "model", ln_model_open(&m, NULL, NULL, err));
    EXPECT(LN_EIO, "/nowhere", ln_model_open(&m, "/nowhere", NULL, err));
    ln_options o = {.n_ctx = -1};
    EXPECT(LN_EUSAGE, "negative", ln_model_open(&m, MODEL, &o, err));
    EXPECT(LN_OK, NULL, ln_model_open(&m, MODEL, NULL, err));
    o = (ln_options){.n_ctx = 1 << 30};
    EXPECT(LN_EUSAGE, "max_position_embeddings", ln_engine_open(&e, m, &o, err));
    o = (ln_options){.memory_bytes = 1000};
    EXPECT(LN_EMEMORY, "1000", ln_engine_open(&e, m, &o, err));
    o = (ln_options){.device = LN_DEVICE_CUDA};
    EXPECT(LN_EDEVICE, "CUDA", ln_engine_open(&e, m, &o, err));
    o = (ln_options){.n_ctx = 32};
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
    /* generation ends where the context does: 32 positions, and the last token needs none */
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

typedef struct collected {
    char text[4096];
    size_t n;
    int calls, stop_after;
} collected;
static ln_status collect(void *user, const char *text, size_t bytes, ln_error *err) {
    collected *c = user;
    assert_true(c->n + bytes < sizeof c->text);
    memcpy(c->text + c->n, text, bytes);
    c->n += bytes;
    (void)err;
    return ++c->calls != c->stop_after ? LN_OK : LN_ECANCELLED;
}

static void test_generate(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e;
    ln_result a, b;
    ln_sampling how;
    int32_t ids[] = {5, 9, 44, 7};
    ln_prompt p = {.ids = ids, .n_ids = 4};
    EXPECT(LN_OK, NULL, ln_model_open(&m, NO_WINDOW, NULL, err));
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, NULL, err));
    EXPECT(LN_OK, NULL, ln_sampling_default(m, &how, err));
    how.n_max = 60, how.temperature = 1.3, how.top_k = 0, how.ignore_eos = true, how.has_seed = true, how.seed = 42;
    collected c = {.stop_after = -1};
    EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, collect, &c, &a, err));
    assert_int_equal(a.n_ids, 60);
    assert_int_equal(a.text_bytes, c.n);
    assert_memory_equal(a.text, c.text, c.n);
    EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, NULL, NULL, &b, err)); /* the same seed: the same text, the prefix kept */
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

static ln_status on_row(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top, const float *logits, int64_t V, ln_error *err) {
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
    ln_status st;
    int calls, close_at;
} reentry;
static ln_status call_back(void *user, const char *text, size_t bytes, ln_error *err) {
    reentry *r = user;
    (void)text, (void)bytes, (void)err;
    const int32_t id = 1;
    r->st = ln_score(r->engine, &id, 1, 0, (ln_score_fn *)1, NULL, NULL, NULL);
    if (++r->calls == r->close_at) {
        ln_model_close(&r->model);
        ln_engine_close(&r->engine);
    }
    return LN_OK;
}

/* A second call on an engine is refused. Closing it (and its model) from its own callback is heard as a stop: the call keeps what it stands
 * on until it has returned. */
static void test_one_call_at_a_time(void **s) {
    (void)s;
    ln_result out;
    ln_sampling how;
    int32_t ids[] = {5, 9, 44, 7};
    ln_prompt p = {.ids = ids, .n_ids = 4};
    reentry r = {.st = LN_OK};
    EXPECT(LN_OK, NULL, ln_model_open(&r.model, NO_WINDOW, NULL, err));
    EXPECT(LN_OK, NULL, ln_engine_open(&r.engine, r.model, NULL, err));
    EXPECT(LN_OK, NULL, ln_sampling_default(r.model, &how, err));
    how.n_max = 30, how.ignore_eos = true, how.temperature = 0;
    EXPECT(LN_OK, NULL, ln_generate(r.engine, &p, &how, call_back, &r, &out, err));
    assert_int_equal(r.st, LN_EUSAGE);
    assert_non_null(strstr(ln_last_error()->message, "in use"));
    assert_int_equal(out.n_ids, 30);
    assert_true(r.calls > 2);
    ln_result_free(&out);
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
static ln_status fail_row(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top, const float *logits, int64_t V, ln_error *err) {
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

/* A caller's function that fails gives its error, code and message, with the text so far; one that says stop is no error. */
static void test_callbacks_fail(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e;
    ln_result all, r;
    ln_sampling how;
    int32_t ids[] = {5, 9, 44, 7};
    ln_prompt p = {.ids = ids, .n_ids = 4};
    ln_options o = {.keep_all = true};
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
        EXPECT(want, "mine", ln_attention(e, ids, 4, fail_keys, &f, err));
        assert_int_equal(f.calls, 2);
        f.calls = 0;
        EXPECT(want, "mine", ln_list(LN_ROOT "/tests/golden", fail_found, &f, err));
        assert_int_equal(f.calls, 2);
    }
    ln_engine_close(&e);
    ln_model_close(&m);
}

static ln_status count_row(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top, const float *logits, int64_t V, ln_error *err) {
    (void)err, (void)t, (void)logprob, (void)top, (void)logits, (void)V;
    assert_int_equal(n_top, 0);
    ++*(int *)user;
    return LN_OK;
}

/* ---- a model of our own, to be spoilt ---- */

static char own[64];
static const char *const own_files[] = {"config.json", "generation_config.json", "tokenizer.json", "model.safetensors"};

static void own_path(char out[400], const char *dir, const char *file) { (void)snprintf(out, 400, "%s/%s", dir, file); }

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

/* Weights that are cut short in the middle of a call: LN_ECHANGED with the text so far, and everything can be closed. */
static void test_weights_cut_short(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e;
    ln_result r;
    ln_sampling how;
    int calls = 0;
    int32_t ids[] = {5, 9, 44, 7};
    ln_prompt p = {.ids = ids, .n_ids = 4};
    own_make();
    EXPECT(LN_OK, NULL, ln_guard_files(err));
    EXPECT(LN_OK, NULL, ln_model_open(&m, own, NULL, err));
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, NULL, err));
    EXPECT(LN_OK, NULL, ln_sampling_default(m, &how, err));
    how.n_max = 100, how.ignore_eos = true, how.temperature = 0;
    EXPECT(LN_ECHANGED, "model.safetensors: changed", ln_generate(e, &p, &how, cut_it, &calls, &r, err));
    assert_true(calls >= 3); /* packed weights do not miss the file: it is looked at every quarter of a second */
    assert_true(r.n_ids > 0 && r.text_bytes > 0);
    ln_result_free(&r);
    EXPECT(LN_ECHANGED, "model.safetensors", ln_generate(e, &p, &how, NULL, NULL, &r, err));
    ln_result_free(&r);
    ln_engine_close(&e);
    ln_model_close(&m);
    own_remove();
}

/* A wish to stop stands until it is taken back, whether it comes before a call or in its middle; closed handles do not mind. */
static ln_status cancel_it(void *user, const char *text, size_t bytes, ln_error *err) {
    (void)text, (void)bytes, (void)err;
    ln_cancel(*(ln_engine **)user, true);
    return LN_OK;
}
static void test_cancel(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e, *other;
    ln_result r;
    ln_sampling how;
    int rows = 0;
    int32_t ids[] = {5, 9, 44, 7};
    ln_prompt p = {.ids = ids, .n_ids = 4};
    EXPECT(LN_OK, NULL, ln_model_open(&m, NO_WINDOW, NULL, err));
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, NULL, err));
    EXPECT(LN_OK, NULL, ln_engine_open(&other, m, NULL, err));
    EXPECT(LN_OK, NULL, ln_sampling_default(m, &how, err));
    how.n_max = 20, how.ignore_eos = true, how.temperature = 0;
    ln_cancel(e, true);
    for (int i = 0; i < 2; i++) { /* before the first token, and it stands */
        EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, NULL, NULL, &r, err));
        assert_true(r.finish == LN_FINISH_CANCELLED && r.n_ids == 0 && r.n_prompt_ids == 4);
        ln_result_free(&r);
    }
    EXPECT(LN_ECANCELLED, "stopped", ln_score(e, ids, 4, 0, count_row, &rows, NULL, err));
    assert_int_equal(rows, 0);
    EXPECT(LN_OK, NULL, ln_generate(other, &p, &how, NULL, NULL, &r, err)); /* nobody else hears it */
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
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, NULL, err)); /* the same slot: the late wish was not meant for it */
    ln_cancel(closed, true);
    EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, NULL, NULL, &r, err));
    assert_int_equal(r.n_ids, 20);
    ln_result_free(&r);
    ln_model_close(&m); /* its engines keep what they need */
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
    ln_options o = {.n_logits = 64};
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, &o, err));
    EXPECT(LN_OK, NULL, ln_score(e, ids, 50, 3, on_row, whole, NULL, err));
    ln_engine_close(&e);
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, NULL, err));
    EXPECT(LN_OK, NULL, ln_score(e, ids, 50, 3, on_row, byone, NULL, err));
    assert_true(whole[0] == byone[0] && whole[1] == 50 && byone[1] == 50);
    assert_true(whole[0] < -50);
    EXPECT(LN_EUSAGE, "no tokens", ln_score(e, ids, 0, 0, on_row, byone, NULL, err));
    EXPECT(LN_EUSAGE, "keep_all", ln_attention(e, ids, 50, (ln_keys_fn *)1, NULL, err));
    ln_engine_close(&e);
    ln_model_close(&m);
}

/* No likeliest tokens wanted: nothing may be written to their list. */
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

/* A caller that said stop is not called again, whatever is still held back. */
static void test_stop_is_heard(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e;
    ln_result r;
    ln_sampling how;
    int32_t ids[] = {5, 9, 44, 7};
    ln_prompt p = {.ids = ids, .n_ids = 4};
    EXPECT(LN_OK, NULL, ln_model_open(&m, NO_WINDOW, NULL, err));
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, NULL, err));
    EXPECT(LN_OK, NULL, ln_sampling_default(m, &how, err));
    how.temperature = 1.5, how.top_k = 0, how.ignore_eos = true, how.has_seed = true;
    for (how.seed = 0; how.seed < 40; how.seed++) { /* bytes at random: many texts end in half a character */
        collected c = {.stop_after = 3};
        EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, collect, &c, &r, err));
        assert_int_equal(c.calls, 3);
        assert_int_equal(r.finish, LN_FINISH_CANCELLED);
        ln_result_free(&r);
    }
    ln_engine_close(&e);
    ln_model_close(&m);
}

/* A stop text whose first character came out of several tokens: none of them is in the ids, and the text is what they decode to. */
static void test_stop_within_characters(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e;
    ln_tokenizer *tok;
    ln_result r;
    ln_sampling how;
    int32_t ids[] = {5, 9, 44};
    int n_tried = 0;
    ln_prompt p = {.ids = ids, .n_ids = 3};
    EXPECT(LN_OK, NULL, ln_model_open(&m, NO_WINDOW, NULL, err));
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, NULL, err));
    EXPECT(LN_OK, NULL, ln_tokenizer_open(&tok, NO_WINDOW, err));
    EXPECT(LN_OK, NULL, ln_sampling_default(m, &how, err));
    how.temperature = 1.5, how.top_k = 0, how.ignore_eos = true, how.has_seed = true, how.n_max = 60;
    for (how.seed = 0; how.seed < 40; how.seed++) {
        char text[4096], stop[4] = "";
        size_t at = 0, bytes;
        how.n_stop = 0;
        EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, NULL, NULL, &r, err));
        while (at + 1 < r.text_bytes && ((unsigned char)r.text[at] & 0xe0) != 0xc0) at++;
        if (at + 1 < r.text_bytes) memcpy(stop, r.text + at, 2);
        ln_result_free(&r);
        if (!stop[0]) continue;
        const char *stops[] = {stop};
        how.stop = stops, how.n_stop = 1;
        EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, NULL, NULL, &r, err));
        EXPECT(LN_OK, NULL, ln_detokenize(tok, r.ids, r.n_ids, true, text, sizeof text, &bytes, err));
        assert_int_equal(bytes, r.text_bytes);
        assert_memory_equal(text, r.text, bytes);
        ln_result_free(&r);
        n_tried++;
    }
    assert_true(n_tried > 10);
    ln_tokenizer_close(&tok);
    ln_engine_close(&e);
    ln_model_close(&m);
}

/* Whatever is text is UTF-8, and is refused where it comes in. */
static void test_text_is_utf8(void **s) {
    (void)s;
    ln_model *m;
    ln_tokenizer *tok;
    size_t n;
    ln_prompt text = {.text = "ab\xff", .text_bytes = 3}, sys = {.text = "a", .text_bytes = 1, .system = "\xc3", .system_bytes = 1, .tmpl = LN_TEMPLATE_CHAT};
    EXPECT(LN_OK, NULL, ln_model_open(&m, NO_WINDOW, NULL, err));
    EXPECT(LN_EINVALID, "byte 2", ln_prompt_ids(m, &text, NULL, 0, &n, err));
    EXPECT(LN_EINVALID, "system", ln_prompt_ids(m, &sys, NULL, 0, &n, err));
    EXPECT(LN_OK, NULL, ln_tokenizer_open(&tok, NO_WINDOW, err));
    EXPECT(LN_EINVALID, "byte 1", ln_tokenize(tok, "a\x80", 2, true, NULL, 0, &n, err));
    ln_tokenizer_close(&tok);
    ln_model_close(&m);
}

/* A conversation is its form's text, wherever it comes from: one user turn is the same as a text. */
static void test_conversation(void **s) {
    (void)s;
    ln_model *m;
    size_t n, n_text;
    int32_t ids[256], same[256];
    static const ln_message turns[] = {{"system", "Be brief.", 9}, {"user", "Hi", 2}, {"assistant", "Yes?", 4}, {"user", "Bye", 3}};
    static const ln_message broken[] = {{"user", "a\xff", 2}}, nothing[] = {{"user", NULL, 0}}, null_role[] = {{NULL, "a", 1}}, null_text[] = {{"user", NULL, 1}};
    ln_prompt p = {.messages = turns, .n_messages = 2}, text = {.text = "Hi", .text_bytes = 2, .system = "Be brief.", .system_bytes = 9};
    EXPECT(LN_OK, NULL, ln_model_open(&m, TINY, NULL, err));
    EXPECT(LN_OK, NULL, ln_prompt_ids(m, &p, ids, 256, &n, err));
    EXPECT(LN_OK, NULL, ln_prompt_ids(m, &text, same, 256, &n_text, err));
    assert_true(n > 2 && n == n_text);
    assert_memory_equal(ids, same, n * sizeof *ids);
    p.n_messages = 4; /* what was said before is a prefix, but for the header of the answer */
    EXPECT(LN_OK, NULL, ln_prompt_ids(m, &p, same, 256, &n_text, err));
    assert_true(n_text > n && n_text < 256);
    assert_memory_equal(ids, same, n * sizeof *ids);
    p.system = "x", p.system_bytes = 1;
    EXPECT(LN_EUSAGE, "first message", ln_prompt_ids(m, &p, ids, 256, &n, err));
    p.system = NULL, p.text = "x", p.text_bytes = 1;
    EXPECT(LN_EUSAGE, "one of text, ids and messages", ln_prompt_ids(m, &p, ids, 256, &n, err));
    p.text = NULL, p.tmpl = LN_TEMPLATE_RAW;
    EXPECT(LN_EUSAGE, "LN_TEMPLATE_CHAT", ln_prompt_ids(m, &p, ids, 256, &n, err));
    p.tmpl = LN_TEMPLATE_AUTO, p.n_messages = 0;
    EXPECT(LN_EUSAGE, "empty", ln_prompt_ids(m, &p, ids, 256, &n, err));
    p.messages = broken, p.n_messages = 1;
    EXPECT(LN_EINVALID, "message 1: byte 1", ln_prompt_ids(m, &p, ids, 256, &n, err));
    p.messages = nothing;
    EXPECT(LN_OK, NULL, ln_prompt_ids(m, &p, ids, 256, &n, err));
    p.messages = null_role;
    EXPECT(LN_EUSAGE, "NULL", ln_prompt_ids(m, &p, ids, 256, &n, err));
    p.messages = null_text;
    EXPECT(LN_EUSAGE, "NULL", ln_prompt_ids(m, &p, ids, 256, &n, err));
    ln_model_close(&m);
}

static void test_plan(void **s) {
    (void)s;
    ln_plan a, b;
    ln_options o = {.n_ctx = 64};
    EXPECT(LN_OK, NULL, ln_plan_memory(MODEL, &o, &a, err));
    o.n_ctx = 128;
    EXPECT(LN_OK, NULL, ln_plan_memory(MODEL, &o, &b, err));
    assert_true(b.kv_bytes > a.kv_bytes && a.weights_bytes == b.weights_bytes);
    assert_int_equal(a.peak_bytes, a.weights_bytes + a.kv_bytes + a.activation_bytes + a.other_bytes);
    assert_int_equal(b.numerics, LN_FAST); /* of a bf16 checkpoint */
    o.numerics = LN_EXACT;
    EXPECT(LN_OK, NULL, ln_plan_memory(MODEL, &o, &a, err));
    assert_int_equal(a.kv_bytes, b.kv_bytes * 2);
    o.n_parallel = 3;
    EXPECT(LN_OK, NULL, ln_plan_memory(MODEL, &o, &b, err));
    assert_int_equal(a.kv_bytes * 3, b.kv_bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handles), cmocka_unit_test(test_arguments), cmocka_unit_test(test_generate), cmocka_unit_test(test_one_call_at_a_time),
        cmocka_unit_test(test_callbacks_fail), cmocka_unit_test(test_weights_cut_short), cmocka_unit_test(test_cancel), cmocka_unit_test(test_score), cmocka_unit_test(test_score_without_top),
        cmocka_unit_test(test_stop_is_heard), cmocka_unit_test(test_stop_within_characters), cmocka_unit_test(test_text_is_utf8),
        cmocka_unit_test(test_conversation), cmocka_unit_test(test_plan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
