/* Text through the public API: stop texts, UTF-8, conversations, and the memory plan. */
/* run: quick asan */
#include <linnet.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "collect.h"

/* A callback that has asked to stop is not called again, even when text is still held back. */
static void test_stop_is_heard(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e;
    ln_result r = {.size = sizeof r};
    ln_sampling how = {.size = sizeof how};
    int32_t ids[] = {5, 9, 44, 7};
    ln_prompt p = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = 4};
    EXPECT(LN_OK, NULL, ln_model_open(&m, NO_WINDOW, NULL, err));
    EXPECT(LN_OK, NULL, ln_engine_open(&e, m, NULL, err));
    EXPECT(LN_OK, NULL, ln_sampling_default(m, &how, err));
    how.temperature = 1.5, how.top_k = 0, how.ignore_eos = true, how.has_seed = true;
    for (how.seed = 0; how.seed < 40; how.seed++) { /* random bytes: many texts end within a UTF-8
                                                       character */
        collected c = {.stop_after = 3};
        EXPECT(LN_OK, NULL, ln_generate(e, &p, &how, collect, &c, &r, err));
        assert_int_equal(c.calls, 3);
        assert_int_equal(r.finish, LN_FINISH_CANCELLED);
        ln_result_free(&r);
    }
    ln_engine_close(&e);
    ln_model_close(&m);
}

/* A stop text whose first character came out of several tokens: none of these tokens is in the ids, and
 * the text is what the ids decode to. */
static void test_stop_within_characters(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e;
    ln_tokenizer *tok;
    ln_result r = {.size = sizeof r};
    ln_sampling how = {.size = sizeof how};
    int32_t ids[] = {5, 9, 44};
    int n_tried = 0;
    ln_prompt p = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = 3};
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

/* Every text that enters the API must be valid UTF-8 and is rejected otherwise. */
static void test_text_is_utf8(void **s) {
    (void)s;
    ln_model *m;
    ln_tokenizer *tok;
    size_t n;
    ln_prompt text = {.size = sizeof(ln_prompt), .text = "ab\xff", .text_bytes = 3},
              sys = {.size = sizeof(ln_prompt),
                     .text = "a",
                     .text_bytes = 1,
                     .system = "\xc3",
                     .system_bytes = 1,
                     .tmpl = LN_TEMPLATE_CHAT};
    EXPECT(LN_OK, NULL, ln_model_open(&m, NO_WINDOW, NULL, err));
    EXPECT(LN_EINVALID, "byte 2", ln_prompt_ids(m, &text, NULL, 0, &n, err));
    EXPECT(LN_EINVALID, "system", ln_prompt_ids(m, &sys, NULL, 0, &n, err));
    EXPECT(LN_OK, NULL, ln_tokenizer_open(&tok, NO_WINDOW, err));
    EXPECT(LN_EINVALID, "byte 1", ln_tokenize(tok, "a\x80", 2, true, NULL, 0, &n, err));
    ln_tokenizer_close(&tok);
    ln_model_close(&m);
}

/* A conversation gives the text that the chat template renders; a conversation of one user turn gives the
 * same prompt as that user's text alone. */
static void test_conversation(void **s) {
    (void)s;
    ln_model *m;
    size_t n, n_text;
    int32_t ids[256], same[256];
    static const ln_message turns[] = {
        {"system", "Be brief.", 9}, {"user", "Hi", 2}, {"assistant", "Yes?", 4}, {"user", "Bye", 3}};
    static const ln_message broken[] = {{"user", "a\xff", 2}}, nothing[] = {{"user", NULL, 0}},
                            null_role[] = {{NULL, "a", 1}}, null_text[] = {{"user", NULL, 1}};
    ln_prompt p = {.size = sizeof(ln_prompt), .messages = turns, .n_messages = 2},
              text = {.size = sizeof(ln_prompt),
                      .text = "Hi",
                      .text_bytes = 2,
                      .system = "Be brief.",
                      .system_bytes = 9};
    EXPECT(LN_OK, NULL, ln_model_open(&m, TINY, NULL, err));
    EXPECT(LN_OK, NULL, ln_prompt_ids(m, &p, ids, 256, &n, err));
    EXPECT(LN_OK, NULL, ln_prompt_ids(m, &text, same, 256, &n_text, err));
    assert_true(n > 2 && n == n_text);
    assert_memory_equal(ids, same, n * sizeof *ids);
    p.n_messages = 4; /* the earlier turns are a cached prefix, except for the header of the answer */
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
    ln_plan a = {.size = sizeof a}, b = {.size = sizeof b};
    ln_options o = {.size = sizeof(ln_options), .n_ctx = 64};
    EXPECT(LN_OK, NULL, ln_plan_memory(MODEL, &o, &a, err));
    o.n_ctx = 128;
    EXPECT(LN_OK, NULL, ln_plan_memory(MODEL, &o, &b, err));
    assert_true(b.kv_bytes > a.kv_bytes && a.weights_bytes == b.weights_bytes);
    assert_int_equal(a.peak_bytes,
                     a.weights_bytes + a.kv_bytes + a.activation_bytes + a.text_bytes + a.other_bytes);
    assert_int_equal(b.numerics, LN_FAST); /* the default for a bf16 checkpoint */
    o.numerics = LN_EXACT;
    EXPECT(LN_OK, NULL, ln_plan_memory(MODEL, &o, &a, err));
    assert_int_equal(a.kv_bytes, b.kv_bytes * 2);
    o.n_parallel = 3;
    EXPECT(LN_OK, NULL, ln_plan_memory(MODEL, &o, &b, err));
    assert_int_equal(a.kv_bytes * 3, b.kv_bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stop_is_heard),
                                       cmocka_unit_test(test_stop_within_characters),
                                       cmocka_unit_test(test_text_is_utf8),
                                       cmocka_unit_test(test_conversation), cmocka_unit_test(test_plan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
