/* The bundled model through the public API: the six prompts that transformers answered give the same ids and
 * the same text, streamed and in one piece; stop texts end the text at the right place. Uses linnet.h, and
 * base's JSON to read the reference. */
/* run: quick cuda */
#include <linnet.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"

#define TINY LN_ROOT "/models/tiny"

static ln_model *model;
static ln_engine *engine;

static int setup(void **s) {
    (void)s;
    ln_error err;
    ln_options o = ln_options_default();
    o.n_ctx = 512;
    if (ln_model_open(&model, TINY, &o, &err) != LN_OK || ln_engine_open(&engine, model, &o, &err) != LN_OK)
        fail_msg("%s", err.message);
    return 0;
}
static int teardown(void **s) {
    (void)s;
    ln_engine_close(&engine);
    ln_model_close(&model);
    return 0;
}

typedef struct streamed {
    char text[8192];
    size_t n;
} streamed;
static ln_status stream(void *user, const char *text, size_t bytes, ln_error *err) {
    streamed *s = user;
    (void)err;
    assert_true(s->n + bytes < sizeof s->text);
    assert_int_equal(ln_utf8_valid(text, bytes), bytes); /* a piece never ends within a UTF-8 character */
    memcpy(s->text + s->n, text, bytes);
    s->n += bytes;
    return LN_OK;
}

static void generate(const char *user, const char *stop, ln_result *out, streamed *st) {
    ln_error err;
    ln_sampling how = {.size = sizeof how};
    memset(st, 0, sizeof *st);
    ln_prompt p = {.size = sizeof(ln_prompt), .text = user, .text_bytes = strlen(user)};
    if (ln_sampling_default(model, &how, &err) != LN_OK) fail_msg("%s", err.message);
    how.stop = &stop, how.n_stop = stop ? 1 : 0;
    if (ln_generate(engine, &p, &how, stream, st, out, &err) != LN_OK) fail_msg("%s", err.message);
    assert_int_equal(st->n, out->text_bytes);
    assert_memory_equal(st->text, out->text, st->n);
}

static void test_reference(void **s) {
    (void)s;
    json_t *all;
    const json_t *row;
    size_t i;
    if (ln_json_load_file(&all, TINY "/reference.json", 1 << 20, NULL) != LN_OK)
        fail_msg("no reference.json");
    assert_true(json_array_size(all) >= 5);
    json_array_foreach(all, i, row) {
        ln_result r = {.size = sizeof r};
        streamed st;
        const json_t *prompt_ids = json_object_get(row, "prompt_ids"), *ids = json_object_get(row, "ids");
        generate(json_string_value(json_object_get(row, "user")), NULL, &r, &st);
        assert_int_equal(r.n_prompt_ids, json_array_size(prompt_ids));
        for (size_t k = 0; k < r.n_prompt_ids; k++)
            assert_int_equal(r.prompt_ids[k], json_integer_value(json_array_get(prompt_ids, k)));
        assert_int_equal(r.n_ids, json_array_size(ids) - 1); /* the reference keeps the stop token */
        for (size_t k = 0; k < r.n_ids; k++)
            assert_int_equal(r.ids[k], json_integer_value(json_array_get(ids, k)));
        assert_string_equal(r.text, json_string_value(json_object_get(row, "text")));
        assert_int_equal(r.finish, LN_FINISH_STOP);
        ln_result_free(&r);
    }
    json_decref(all);
}

static void test_stop_text(void **s) {
    (void)s;
    ln_result whole = {.size = sizeof whole}, cut = {.size = sizeof cut};
    streamed st;
    generate("What is the capital of France?", NULL, &whole, &st);
    const char *paris = strstr(whole.text, "Paris");
    assert_non_null(paris);
    generate("What is the capital of France?", "Paris", &cut, &st);
    assert_int_equal(cut.text_bytes, paris - whole.text);
    assert_memory_equal(cut.text, whole.text, cut.text_bytes);
    assert_int_equal(cut.finish, LN_FINISH_STOP);
    assert_true(cut.n_ids < whole.n_ids);
    assert_memory_equal(cut.ids, whole.ids, cut.n_ids * sizeof *cut.ids);
    ln_result_free(&cut);
    generate("What is the capital of France?", "no such text", &cut, &st);
    assert_string_equal(cut.text, whole.text);
    ln_result_free(&cut);
    ln_result_free(&whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference), cmocka_unit_test(test_stop_text)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
