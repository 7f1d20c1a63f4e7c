/* Bodies of answers, member by member, from results made by hand. */
/* run: quick */
#include "wire_test.h"

#include <stdlib.h>
#include <unistd.h>

static json_t *body;
static char written[65536];

static void write_answer(const ln_result *results) {
    ln_str s = {0};
    ln_error err;
    wire_answer a = {"chatcmpl-1", 1700000000, target.names[q.model]};
    wire_put_answer(&s, &q, &a, results);
    assert_false(s.failed);
    json_decref(body);
    if (ln_json_load(&body, "answer", s.data, s.len, &err) != LN_OK) fail_msg("%s: %s", err.message, s.data);
    (void)snprintf(written, sizeof written, "%s", s.data);
    ln_str_free(&s);
}

static void has(const char *text) {
    if (!strstr(written, text)) fail_msg("'%s' is not in %s", text, written);
}

static ln_result result_of(const char *text, const char *reasoning, ln_finish finish) {
    ln_result r = {
        .text = (char *)(uintptr_t)text, .text_bytes = strlen(text), .finish = finish, .stop_id = -1};
    r.reasoning = (char *)(uintptr_t)reasoning;
    r.reasoning_bytes = strlen(reasoning);
    return r;
}

static void conversation(void **state) {
    (void)state;
    ln_result r = result_of("Hi \"you\"\n", "", LN_FINISH_STOP);
    r.n_prompt_ids = 7;
    r.metrics =
        (ln_metrics){.prompt_tokens = 7, .generated_tokens = 3, .cached_tokens = 4, .reasoning_tokens = 0};
    good(WIRE_CHAT, "\"model\":\"poet\"");
    write_answer(&r);
    assert_string_equal(written,
                        "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":"
                        "1700000000,\"model\":\"poet\",\"system_fingerprint\":null,\"choices\":[{\"index\":0,"
                        "\"message\":{\"role\":\"assistant\",\"content\":\"Hi "
                        "\\\"you\\\"\\n\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\"}],"
                        "\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,\"total_tokens\":10,"
                        "\"prompt_tokens_details\":{\"cached_tokens\":4},"
                        "\"completion_tokens_details\":{\"reasoning_tokens\":0}}}");
    r = result_of("4", "2 and 2", LN_FINISH_LENGTH);
    write_answer(&r);
    has("\"content\":\"4\",\"refusal\":null,\"reasoning_content\":\"2 and 2\"}");
    has("\"finish_reason\":\"length\"");
}

/* A prompt counts once, whatever the number of its choices; its cached tokens are those of its first. */
static void usage(void **state) {
    (void)state;
    ln_result r[4];
    assert_int_equal(read_body(WIRE_COMPLETION, "{\"prompt\":[\"a\",\"b\"],\"n\":2}"), LN_OK);
    for (size_t i = 0; i < 4; i++) {
        r[i] = result_of("x", "", LN_FINISH_STOP);
        r[i].n_prompt_ids = i < 2 ? 10 : 20;
        r[i].metrics =
            (ln_metrics){.generated_tokens = 1, .reasoning_tokens = 2, .cached_tokens = (int64_t)i};
    }
    write_answer(r);
    has("\"usage\":{\"prompt_tokens\":30,\"completion_tokens\":4,\"total_tokens\":34,\"prompt_tokens_"
        "details\":{\"cached_tokens\":2},"
        "\"completion_tokens_details\":{\"reasoning_tokens\":8}}");
    r[0].metrics.proposed_tokens = 5, r[2].metrics.proposed_tokens = 2; /* with lookup */
    r[0].metrics.accepted_tokens = 3, r[2].metrics.accepted_tokens = 1;
    write_answer(r);
    has("\"completion_tokens_details\":{\"reasoning_tokens\":8,\"accepted_prediction_tokens\":4,"
        "\"rejected_prediction_tokens\":3}}");
    for (size_t i = 0; i < 4; i++) {
        const json_t *c = json_array_get(json_object_get(body, "choices"), i);
        assert_int_equal(json_integer_value(json_object_get(c, "index")), i);
    }
    has("\"object\":\"text_completion\"");
}

static void chat_logprobs(void **state) {
    (void)state;
    int32_t ids[] = {257, 258};
    double logprobs[] = {-0.5, -INFINITY};
    ln_top top[] = {{257, -0.5}, {'a', -1.25}, {259, -0.25}, {256, -3}};
    ln_result r = result_of(" the\xef\xbf\xbd", "", LN_FINISH_LENGTH);
    r.ids = ids, r.n_ids = 2, r.logprobs = logprobs, r.top = top, r.n_top = 2;
    good(WIRE_CHAT, "\"logprobs\":true,\"top_logprobs\":2");
    write_answer(&r);
    has("\"logprobs\":{\"content\":[{\"token\":\" "
        "the\",\"logprob\":-0.5,\"bytes\":[32,116,104,101],\"top_logprobs\":["
        "{\"token\":\" "
        "the\",\"logprob\":-0.5,\"bytes\":[32,116,104,101]},{\"token\":\"a\",\"logprob\":-1.25,\"bytes\":[97]"
        "}]},"
        "{\"token\":\"\\\\xe2\\\\x82\",\"logprob\":-9999,\"bytes\":[226,130],\"top_logprobs\":["
        "{\"token\":\"\\\\xac\",\"logprob\":-0.25,\"bytes\":[172]},{\"token\":\"<bos>\",\"logprob\":-3,"
        "\"bytes\":[60,98,111,115,62]}]}],"
        "\"refusal\":null}");
    r.top = NULL, r.n_top = 0;
    good(WIRE_CHAT, "\"logprobs\":true");
    write_answer(&r);
    has("\"bytes\":[226,130],\"top_logprobs\":[]}");
    r.n_ids = 0;
    write_answer(&r);
    has("\"logprobs\":{\"content\":[],\"refusal\":null}");
}

/* The chosen token is among the likeliest even if it is not one of them; tokens that are spelt alike share a
 * member. */
static void completion_logprobs(void **state) {
    (void)state;
    int32_t ids[] = {'a', 258, 259, 'b'};
    double logprobs[] = {-4, -1, -2, -3};
    ln_top top[] = {{257, -0.5}, {258, -1}, {259, -2}, {'b', -3}};
    ln_result r = result_of("a\xe2\x82\xac"
                            "b",
                            "", LN_FINISH_LENGTH);
    r.ids = ids, r.n_ids = 4, r.logprobs = logprobs, r.top = top, r.n_top = 1;
    good(WIRE_COMPLETION, "\"logprobs\":1");
    write_answer(&r);
    has("\"logprobs\":{\"tokens\":[\"a\",\"bytes:\\\\xe2\\\\x82\",\"bytes:\\\\xac\",\"b\"],\"token_"
        "logprobs\":[-4,-1,-2,-3],"
        "\"top_logprobs\":[{\" "
        "the\":-0.5,\"a\":-4},{\"bytes:\\\\xe2\\\\x82\":-1},{\"bytes:\\\\xac\":-2},{\"b\":-3}],"
        "\"text_offset\":[0,1,2,2]}");
    good(WIRE_COMPLETION, "\"logprobs\":0");
    r.n_top = 0, r.top = NULL;
    write_answer(&r);
    has("\"top_logprobs\":[{\"a\":-4},");
}

static void echo(void **state) {
    (void)state;
    int32_t prompt[] = {256, 'H', 'i'}, ids[] = {257};
    double before[] = {(double)NAN, -1, -2}, after[] = {-3};
    ln_top prompt_top[] = {{0, 0}, {'H', -1}, {'o', -0.5}}, top[] = {{257, -3}};
    ln_result r = result_of(" the", "", LN_FINISH_LENGTH);
    r.prompt_ids = prompt, r.n_prompt_ids = 3, r.prompt_logprobs = before, r.prompt_top = prompt_top;
    r.ids = ids, r.n_ids = 1, r.logprobs = after, r.top = top, r.n_top = 1;
    good(WIRE_COMPLETION, "\"echo\":true,\"logprobs\":1");
    write_answer(&r);
    has("\"text\":\"Hi the\"");
    has("\"tokens\":[\"<bos>\",\"H\",\"i\",\" "
        "the\"],\"token_logprobs\":[null,-1,-2,-3],\"top_logprobs\":[null,{\"H\":-1},"
        "{\"o\":-0.5,\"i\":-2},{\" the\":-3}],\"text_offset\":[0,0,1,2]}");
    r.n_ids = 0, r.text_bytes = 0, r.text = (char *)(uintptr_t) ""; /* max_tokens 0: the prompt is scored */
    write_answer(&r);
    has("\"text\":\"Hi\"");
    has("\"token_logprobs\":[null,-1,-2]");
    good(WIRE_COMPLETION, "\"echo\":true");
    write_answer(&r);
    has("\"text\":\"Hi\",\"logprobs\":null");
    assert_int_equal(read_body(WIRE_COMPLETION, "{\"prompt\":[256,72,105],\"echo\":true}"), LN_OK);
    write_answer(&r);
    has("\"text\":\"Hi\"");
}

static void errors(void **state) {
    (void)state;
    ln_str s = {0};
    (void)read_with(WIRE_CHAT, "\"temperature\":\"hot\"");
    wire_put_error(&s, &why);
    assert_string_equal(s.data, "{\"error\":{\"message\":\"temperature: expected a number from 0 to 2, "
                                "found \\\"hot\\\"\","
                                "\"type\":\"invalid_request_error\",\"param\":\"temperature\",\"code\":"
                                "\"invalid_value\"}}");
    s.len = 0;
    good(WIRE_CHAT, "");
    static const struct {
        ln_status st;
        int http;
        const char *code;
    } rows[] = {{LN_EINVALID, 400, NULL},
                {LN_EUSAGE, 400, NULL},
                {LN_EUNSUPPORTED, 400, NULL},
                {LN_ENUMERIC, 500, "internal_error"},
                {LN_EMEMORY, 503, "out_of_memory"}}; /* perhaps not the next time */
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        why = (wire_error){0};
        (void)ln_fail(&why.error, rows[i].st, "what");
        assert_int_equal(wire_fail_request(&why, &q, rows[i].st), rows[i].st);
        assert_int_equal(why.http, rows[i].http);
        assert_true(rows[i].code ? why.code && strcmp(why.code, rows[i].code) == 0 : !why.code);
    }
    (void)ln_fail(&why.error, LN_EINVALID, "9 tokens are more than the context of 8");
    (void)wire_fail_request(&why, &q, LN_EINVALID);
    assert_string_equal(why.code, "context_length_exceeded");
    assert_string_equal(why.param, "messages");
    (void)ln_fail(&why.error, LN_EMEMORY,
                  "the prompt has 9 tokens, the KV pool (ln_options.kv_bytes) holds 8");
    (void)wire_fail_request(&why, &q, LN_EMEMORY);
    assert_int_equal(why.http, 400);
    assert_string_equal(why.code, "insufficient_memory");
    ln_str_free(&s);
}

static void identities(void **state) {
    (void)state;
    good(WIRE_CHAT, "");
    wire_answer a = wire_answer_of(&q), b = wire_answer_of(&q);
    assert_memory_equal(a.id, "chatcmpl-", 9);
    assert_int_equal(strlen(a.id), 33);
    assert_string_not_equal(a.id, b.id);
    assert_true(a.created > 1700000000);
    good(WIRE_COMPLETION, "");
    a = wire_answer_of(&q);
    assert_memory_equal(a.id, "cmpl-", 5);
}

/* ---- the sampling of absent fields ---- */

static ln_sampling defaults_of(const char *json, ln_sampling model) {
    char dir[] = "/tmp/linnet-wire-XXXXXX", path[100];
    ln_error err;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/generation_config.json", dir);
    if (json) {
        FILE *f = fopen(path, "w");
        assert_true(f && fputs(json, f) >= 0 && fclose(f) == 0);
    }
    assert_int_equal(wire_sampling_default(&model, dir, &err), LN_OK);
    (void)unlink(path);
    assert_int_equal(rmdir(dir), 0);
    return model;
}

static void absent_fields(void **state) {
    (void)state;
    const ln_sampling greedy = {.top_p = 1, .repeat_penalty = 1.1, .repeat_last = -1},
                      drawn = {.temperature = 0.6,
                               .top_p = 0.95,
                               .top_k = 50,
                               .min_p = 0.1,
                               .repeat_penalty = 1.1};
    ln_sampling s = defaults_of(NULL, greedy);
    assert_true(s.temperature == 1 && s.top_p == 1 && s.top_k == 0 && s.repeat_penalty == 1.1);
    s = defaults_of("{\"do_sample\":false,\"temperature\":0.6,\"top_k\":5}", greedy);
    assert_true(s.temperature == 1 && s.top_k == 0);
    s = defaults_of("{\"do_sample\":true,\"temperature\":0.6}", drawn); /* 50 is not the file's */
    assert_true(s.temperature == 0.6 && s.top_p == 0.95 && s.top_k == 0 && s.min_p == 0.1);
    s = defaults_of("{\"do_sample\":true,\"top_k\":50}", drawn);
    assert_int_equal(s.top_k, 50);
    s = defaults_of("{\"do_sample\":true,\"top_k\":null}", drawn);
    assert_int_equal(s.top_k, 0);
}

static int end(void **state) {
    json_decref(body);
    return close_last(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(conversation),  cmocka_unit_test(usage),
                                       cmocka_unit_test(chat_logprobs), cmocka_unit_test(completion_logprobs),
                                       cmocka_unit_test(echo),          cmocka_unit_test(errors),
                                       cmocka_unit_test(identities),    cmocka_unit_test(absent_fields)};
    return cmocka_run_group_tests(tests, NULL, end);
}
