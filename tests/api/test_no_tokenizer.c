/* A model directory without tokenizer.json: what takes token ids and gives numbers works as with one, and
 * what needs a text is rejected with the reason that opening the tokenizer has. */
/* run: quick */
#include "../test_dir.h"

#include <linnet.h>
#include <linnet_tools.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GOLDEN LN_ROOT "/tests/golden/qwen2-f32"
#define OK(x)                                                               \
    do {                                                                    \
        if ((x) != LN_OK) fail_msg("%s: %s", #x, ln_last_error()->message); \
    } while (0)
#define FAILS(status, word, x)                                                            \
    do {                                                                                  \
        const ln_status st_ = (x);                                                        \
        if (st_ != (status) || !strstr(ln_last_error()->message, word))                   \
            fail_msg("%s: status %d, expected %d with '%s': %s", #x, st_, (status), word, \
                     ln_last_error()->message);                                           \
    } while (0)

static const int32_t ids[] = {5, 6, 7, 200, 3};
enum { N = 5 };

static ln_status keep(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                      const float *logits, int64_t n_vocab, ln_error *err) {
    (void)top, (void)n_top, (void)logits, (void)n_vocab, (void)err;
    ((double *)user)[t] = logprob;
    return LN_OK;
}

static ln_engine *open_engine(const char *model, ln_model **m) {
    ln_engine *e = NULL;
    ln_options o = ln_options_default();
    o.n_ctx = 32, o.n_threads = 1;
    OK(ln_model_open(m, model, &o, NULL));
    OK(ln_engine_open(&e, *m, &o, NULL));
    return e;
}

static void ids_give_the_same_numbers(void **state) {
    (void)state;
    double logprobs[2][N];
    ln_evaluation eval[2] = {{.size = sizeof *eval}, {.size = sizeof *eval}};
    for (int i = 0; i < 2; i++) {
        ln_model *m = NULL;
        ln_engine *e = open_engine(i ? test_dir : GOLDEN, &m);
        OK(ln_score(e, ids, N, 0, keep, logprobs[i], NULL, NULL));
        OK(ln_evaluate(e, ids, N, 0, 0, &eval[i], NULL, NULL));
        ln_engine_close(&e);
        ln_model_close(&m);
    }
    assert_memory_equal(logprobs[0] + 1, logprobs[1] + 1, (N - 1) * sizeof *logprobs[0]);
    assert_memory_equal(&eval[0], &eval[1], sizeof *eval);
}

/* Ids are generated after ids, the same as with a tokenizer; what concerns texts is rejected. */
static void ids_are_generated(void **state) {
    (void)state;
    ln_result r[2] = {{.size = sizeof *r}, {.size = sizeof *r}};
    ln_sampling how = {.size = sizeof how, .n_max = 12, .repeat_penalty = 1, .top_p = 1, .ignore_eos = true};
    static const char *const stops[] = {"x"};
    for (int i = 0; i < 2; i++) {
        ln_model *m = NULL;
        ln_engine *e = open_engine(i ? test_dir : GOLDEN, &m);
        ln_prompt p = ln_prompt_default();
        p.ids = ids, p.n_ids = N;
        how.n_stop = 0;
        OK(ln_generate(e, &p, &how, NULL, NULL, &r[i], NULL));
        how.stop = stops, how.n_stop = 1;
        ln_result stopped = {.size = sizeof stopped};
        if (i) FAILS(LN_EIO, "no tokenizer.json", ln_generate(e, &p, &how, NULL, NULL, &stopped, NULL));
        ln_result_free(&stopped);
        ln_engine_close(&e);
        ln_model_close(&m);
    }
    assert_int_equal(r[0].n_ids, 12);
    assert_int_equal(r[1].n_ids, 12);
    assert_memory_equal(r[0].ids, r[1].ids, 12 * sizeof(int32_t));
    assert_int_equal(r[1].text_bytes, 0);
    for (int i = 0; i < 2; i++) ln_result_free(&r[i]);
}

static ln_status on_class(void *user, const ln_class *c, ln_error *err) {
    (void)user, (void)err;
    return c->status;
}

/* Checks that whatever would read or write a text returns `status`, with `word` in its message. */
static void refuses_texts(ln_status status, const char *word) {
    ln_model *m = NULL;
    ln_engine *e = open_engine(test_dir, &m);
    ln_prompt p = ln_prompt_default();
    ln_classify_options next = ln_classify_options_default();
    ln_result r = {.size = sizeof r};
    ln_request *request = NULL;
    int32_t out[8];
    char text[8];
    size_t n;
    const ln_tokenizer *tok = ln_model_tokenizer(m);
    assert_non_null(tok);
    FAILS(status, word, ln_tokenize(tok, "a", 1, false, out, 8, &n, NULL));
    FAILS(status, word, ln_tokenize(tok, "", 0, false, NULL, 0, &n, NULL));
    FAILS(status, word, ln_detokenize(tok, ids, 1, false, text, 8, &n, NULL));
    FAILS(status, word, ln_token_bytes(tok, 5, text, 8, &n, NULL, NULL));
    p.text = "a", p.text_bytes = 1;
    FAILS(status, word, ln_prompt_ids(m, &p, out, 8, &n, NULL));
    FAILS(status, word, ln_generate(e, &p, NULL, NULL, NULL, &r, NULL));
    ln_result_free(&r);
    p.text = NULL, p.text_bytes = 0, p.ids = ids, p.n_ids = N;
    OK(ln_prompt_ids(m, &p, out, 8, &n, NULL));
    assert_int_equal(n, N);
    OK(ln_request_open(&request, e, &p, NULL, NULL));
    ln_request_close(&request);
    FAILS(status, word, ln_classify(e, &p, 1, &next, on_class, NULL, NULL, NULL));
    FAILS(status, word, ln_batch(e, "/dev/null", "/nonexistent/out.jsonl", NULL, NULL, NULL));
    ln_engine_close(&e);
    ln_model_close(&m);
}

static void texts_are_refused(void **state) {
    (void)state;
    refuses_texts(LN_EIO, "no tokenizer.json");
    put_text("tokenizer.model", "x");
    refuses_texts(LN_EUNSUPPORTED, "only tokenizer.model");
    drop("tokenizer.model");
}

/* An existing tokenizer.json must be valid. */
static void a_broken_tokenizer_is_no_absent_one(void **state) {
    ln_model *m = NULL;
    (void)state;
    put_text("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
    FAILS(LN_EINVALID, "LFS", ln_model_open(&m, test_dir, NULL, NULL));
    put_text("tokenizer.json", "{");
    FAILS(LN_EINVALID, "tokenizer.json", ln_model_open(&m, test_dir, NULL, NULL));
    assert_null(m);
    drop("tokenizer.json");
}

static int set_up(void **state) {
    if (dir_make(state) != 0) return -1;
    link_to(GOLDEN "/config.json", "config.json");
    link_to(GOLDEN "/model.safetensors", "model.safetensors");
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_give_the_same_numbers), cmocka_unit_test(ids_are_generated),
        cmocka_unit_test(texts_are_refused), cmocka_unit_test(a_broken_tokenizer_is_no_absent_one)};
    return cmocka_run_group_tests(tests, set_up, dir_remove);
}
