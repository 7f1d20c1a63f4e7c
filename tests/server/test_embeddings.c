/* /v1/embeddings: kinds of input and answer, what is rejected with which field, and the values of a crowd of
 * requests with a conversation. tests/engine/test_embed.c has the values themselves. */
/* run: slow */
#include "server_test.h"

#include <math.h>

#define EMBED(body) post("/v1/embeddings", body)

static void forms_of_input_and_answer(void **state) {
    (void)state;
    START("--log-format", "none");
    reply r = EMBED("{\"input\":[\"Once upon\",\"a time\"],\"encoding_format\":\"float\"}");
    assert_int_equal(r.status, 200);
    json_t *a = json_of(&r);
    const json_t *row = at(a, "data.1.embedding");
    double squares = 0;
    for (size_t i = 0; i < json_array_size(row); i++)
        squares += json_real_value(json_array_get(row, i)) * json_real_value(json_array_get(row, i));
    assert_true(fabs(squares - 1) < 1e-5);
    assert_int_equal(json_array_size(at(a, "data")), 2);
    assert_int_equal(int_at(a, "data.1.index"), 1);
    assert_string_equal(text_at(a, "object"), "list");
    assert_string_equal(text_at(a, "model"), "tiny");
    const size_t width = json_array_size(row);
    drop_reply(&r);
    r = EMBED("{\"input\":\"a time\",\"encoding_format\":\"base64\",\"user\":\"x\",\"model\":\"\"}");
    json_t *b = json_of(&r);
    assert_int_equal(strlen(text_at(b, "data.0.embedding")), (width * 4 + 2) / 3 * 4);
    drop_reply(&r);
    json_decref(b);
    json_decref(a);
    r = EMBED("{\"input\":[300,301],\"dimensions\":3}");
    b = json_of(&r);
    assert_int_equal(json_array_size(at(b, "data.0.embedding")), 3);
    assert_int_equal(int_at(b, "usage.prompt_tokens"), 2);
    json_decref(b);
    drop_reply(&r);
    assert_int_equal(stop(), 0);
}

static void refusals_name_the_field(void **state) {
    (void)state;
    START("--log-format", "none");
    const struct {
        const char *body, *param;
        int status;
        const char *says; /* in the message; NULL: not looked at */
    } rows[] = {
        {"{\"input\":[\"a\",\"\"]}", "input[1]", 400, "input 1: the text is empty"},
        {"{\"input\":[\"a\",[99999999],\"b\"]}", "input[1]", 400, "input 1: token 0 is 99999999"},
        {"{}", "input", 400},
        {"{\"input\":null}", "input", 400},
        {"{\"input\":{}}", "input", 400},
        {"{\"input\":[]}", "input", 400},
        {"{\"input\":[[]]}", "input[0]", 400},
        {"{\"input\":[\"a\",[1,-1]]}", "input[1]", 400},
        {"{\"input\":[\"a\",null]}", "input[1]", 400},
        {"{\"input\":[1.5]}", "input[0]", 400},
        {"{\"input\":[99999999]}", "input", 400},
        {"{\"input\":\"a\",\"dimensions\":0}", "dimensions", 400},
        {"{\"input\":\"a\",\"dimensions\":1000000}", "dimensions", 400},
        {"{\"input\":\"a\",\"dimensions\":\"3\"}", "dimensions", 400},
        {"{\"input\":\"a\",\"encoding_format\":\"f16\"}", "encoding_format", 400},
        {"{\"input\":\"a\",\"pooling\":\"median\"}", "pooling", 400},
        {"{\"input\":\"a\",\"prompt_name\":\"title\"}", "prompt_name", 400,
         "prompt_name: expected the name of a prompt (query, document), found 'title'"},
        {"{\"input\":\"a\",\"prompt_name\":3}", "prompt_name", 400},
        {"{\"input\":\"a\",\"normalize\":1}", "normalize", 400},
        {"{\"input\":\"a\",\"model\":\"other\"}", "model", 404},
        {"{\"input\":\"a\",\"model\":3}", "model", 400},
    };
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        reply r = EMBED(rows[i].body);
        json_t *e = json_of(&r);
        if (r.status != rows[i].status || strcmp(text_at(e, "error.param"), rows[i].param) != 0)
            fail_msg("%s: %d %.300s", rows[i].body, r.status, r.body.data);
        if (rows[i].says && !strstr(text_at(e, "error.message"), rows[i].says))
            fail_msg("%s: %s", rows[i].body, text_at(e, "error.message"));
        json_decref(e);
        drop_reply(&r);
    }
    ln_str longer = {0};
    ln_str_adds(&longer, "{\"input\":\"");
    for (int i = 0; i < 3000; i++) ln_str_adds(&longer, "word ");
    ln_str_adds(&longer, "\"}");
    reply r = EMBED(longer.data);
    json_t *e = json_of(&r);
    assert_int_equal(r.status, 400);
    assert_string_equal(text_at(e, "error.code"), "context_length_exceeded");
    assert_non_null(strstr(text_at(e, "error.message"), "input 0: "));
    json_decref(e);
    drop_reply(&r);
    ln_str_free(&longer);
    assert_int_equal(stop(), 0);
}

/* Both give what they give alone. */
static void beside_a_conversation(void **state) {
    (void)state;
    static const char ask[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a short story.\"}],\"max_tokens\":60,"
        "\"temperature\":0}";
    static const char texts[] = "{\"input\":[\"Once upon\",\"a time there was a cat\"],\"pooling\":\"mean\"}";
    START("--log-format", "none");
    reply story = post("/v1/chat/completions", ask), alone = EMBED(texts);
    json_t *want = json_of(&story);
    ln_str rest = {0};
    const int fd = begin("/v1/chat/completions", ask);
    for (int i = 0; i < 5; i++) {
        reply r = EMBED(texts);
        assert_int_equal(r.status, 200);
        assert_string_equal(r.body.data, alone.body.data);
        drop_reply(&r);
    }
    reply again = read_reply(fd, &rest, false);
    json_t *got = json_of(&again);
    assert_string_equal(text_at(got, "choices.0.message.content"), text_at(want, "choices.0.message."
                                                                                 "content"));
    (void)close(fd);
    json_decref(got);
    json_decref(want);
    drop_reply(&again);
    drop_reply(&alone);
    drop_reply(&story);
    ln_str_free(&rest);
    assert_int_equal(stop(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(forms_of_input_and_answer, kill_server),
                                       cmocka_unit_test_teardown(refusals_name_the_field, kill_server),
                                       cmocka_unit_test_teardown(beside_a_conversation, kill_server)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
