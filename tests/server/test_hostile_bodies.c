/* Bodies at the ends of what is allowed, answered by a running server: lengths around the context, stops and
 * log-probabilities that meet, large texts, and pairs of sampling fields. test_hostile has the cases that
 * need no model; numbers in brackets are those of the catalogue of bad inputs. */
/* run: slow */
#include "server_test.h"

#include <math.h>

#define CHAT       "/v1/chat/completions"
#define COMPLETION "/v1/completions"
#define ASK        "\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a short story.\"}]"

static json_t *ask(const char *path, const char *body, int status) {
    reply r = post(path, body);
    if (r.status != status) fail_msg("%.200s: %d: %.300s", body, r.status, r.body.data);
    json_t *root = json_of(&r);
    drop_reply(&r);
    return root;
}

/* ---- lengths ---- */

static void put_ids(ln_str *s, int n) {
    ln_str_adds(s, "{\"temperature\":0,\"ignore_eos\":true,\"prompt\":[");
    for (int i = 0; i < n; i++) ln_str_addf(s, i ? ",%d" : "%d", 300 + i % 50);
}

/* the context has 256 positions. max_tokens is cut by it, with the finish "length"; the
 * last token needs no position, because nothing follows it. */
static void prompts_around_the_context(void **state) {
    (void)state;
    static const struct {
        int prompt, max, status, generated;
    } rows[] = {{10, 300, 200, 247}, {254, 1, 200, 1},  {255, 9, 200, 2},  {256, 9, 200, 1},
                {257, 1, 400, 0},    {2000, 1, 400, 0}, {10, -1, 200, 247}};
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        ln_str s = {0};
        put_ids(&s, rows[i].prompt);
        ln_str_addf(&s, "],\"max_tokens\":%d}", rows[i].max);
        json_t *a = ask(COMPLETION, s.data, rows[i].status);
        if (rows[i].status == 200) {
            assert_int_equal(int_at(a, "usage.completion_tokens"), rows[i].generated);
            assert_string_equal(text_at(a, "choices.0.finish_reason"), "length");
        } else {
            char number[16];
            (void)snprintf(number, sizeof number, "%d", rows[i].prompt);
            assert_string_equal(text_at(a, "error.code"), "context_length_exceeded");
            assert_string_equal(text_at(a, "error.param"), "prompt");
            assert_non_null(strstr(text_at(a, "error.message"), number));
            assert_non_null(strstr(text_at(a, "error.message"), "256"));
        }
        json_decref(a);
        ln_str_free(&s);
    }
}

/* a text of 31 MiB is rejected for its length within seconds, and /health answers during that time. */
static void a_long_text_is_refused_soon(void **state) {
    (void)state;
    const size_t n = fewer(31, 2) << 20;
    ln_str s = {0};
    ln_str_adds(&s, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    while (s.len < n) ln_str_adds(&s, "All work and no play makes Jack a dull boy. ");
    ln_str_adds(&s, "\"}]}");
    const double start = ln_now();
    const int fd = begin(CHAT, s.data);
    double slowest = 0;
    for (int i = 0; i < 10; i++) {
        const double from = ln_now();
        reply r = call("GET", "/health", "", NULL);
        assert_int_equal(r.status, 200);
        drop_reply(&r);
        slowest = LN_MAX(slowest, ln_now() - from);
    }
    ln_str rest = {0};
    reply r = read_reply(fd, &rest, false);
    assert_int_equal(r.status, 400);
    assert_non_null(strstr(r.body.data, "context_length_exceeded"));
    if (!getenv("LN_SANITIZED")) assert_true(slowest < 2 * patience() && ln_now() - start < 30 * patience());
    drop_reply(&r);
    ln_str_free(&rest);
    ln_str_free(&s);
    (void)close(fd);
}

/* a million tiny messages. */
static void many_messages_are_refused(void **state) {
    (void)state;
    static const char one[] = "{\"role\":\"user\",\"content\":\"\"}";
    ln_str s = {0};
    ln_str_adds(&s, "{\"messages\":[");
    for (int64_t i = 0, n = fewer(1000000, 20000); i < n; i++) {
        if (i) ln_str_adds(&s, ",");
        ln_str_adds(&s, one);
    }
    ln_str_adds(&s, "]}");
    const double start = ln_now();
    json_t *a = ask(CHAT, s.data, 400);
    if (!getenv("LN_SANITIZED")) assert_true(ln_now() - start < 10 * patience());
    json_decref(a);
    ln_str_free(&s);
}

/* ---- stops and probabilities ---- */

/* a stop text that is the whole answer, or its first token; one that is a special token's text.
 */
static void stops_meet_the_text(void **state) {
    (void)state;
    json_t *plain = ask(CHAT, "{" ASK ",\"max_tokens\":6,\"temperature\":0,\"logprobs\":true}", 200);
    const char *text = text_at(plain, "choices.0.message.content");
    char body[600], first[64];
    (void)snprintf(first, sizeof first, "%s", text_at(plain, "choices.0.logprobs.content.0.token"));
    for (int i = 0; i < 2; i++) {
        (void)snprintf(body, sizeof body,
                       "{" ASK ",\"max_tokens\":6,\"temperature\":0,\"logprobs\":true,\"stop\":[\"%s\"]}",
                       i ? text : first);
        json_t *a = ask(CHAT, body, 200);
        assert_string_equal(text_at(a, "choices.0.message.content"), "");
        assert_string_equal(text_at(a, "choices.0.finish_reason"), "stop");
        const json_t *content = at(a, "choices.0.logprobs.content");
        ln_str all = {0};
        ln_str_adds(&all, "");
        for (size_t k = 0; k < json_array_size(content); k++)
            ln_str_adds(&all, text_at(json_array_get(content, k), "token"));
        assert_string_equal(all.data, ""); /* log-probabilities of the text that is given, which is none */
        ln_str_free(&all);
        json_decref(a);
    }
    json_decref(plain);
    json_t *a = ask(CHAT, "{" ASK ",\"max_tokens\":6,\"temperature\":0,\"stop\":\"<|im_end|>\"}", 200);
    assert_int_equal(int_at(a, "usage.completion_tokens"), 6);
    json_decref(a);
}

/* a bias may leave any token; a flood of them is one answer, not an error of the engine. */
static void biases_leave_an_answer(void **state) {
    (void)state;
    ln_str s = {0};
    ln_str_adds(&s, "{" ASK ",\"max_tokens\":4,\"temperature\":0,\"logit_bias\":{");
    for (int i = 0; i < 1024; i++) ln_str_addf(&s, "%s\"%d\":-100", i ? "," : "", i);
    ln_str_adds(&s, "},\"logprobs\":true}");
    json_t *a = ask(CHAT, s.data, 200);
    assert_int_equal(int_at(a, "usage.completion_tokens"), 4);
    json_decref(a);
    ln_str_free(&s);
}

/* ids from the tokenizer's size to the width of the logits are ids of the model; beyond it they are
 * not. */
static void ids_end_with_the_logits(void **state) {
    (void)state;
    json_t *a = ask(COMPLETION, "{\"prompt\":[4095],\"max_tokens\":2}", 200);
    json_decref(a);
    a = ask(COMPLETION, "{\"prompt\":[4096],\"max_tokens\":2}", 400);
    assert_string_equal(text_at(a, "error.param"), "prompt[0]");
    json_decref(a);
}

/* what looks like an image in a text is text. R-40: fields that are not for the model may be long. */
static void texts_stay_texts(void **state) {
    (void)state;
    json_t *a = ask(CHAT,
                    "{\"messages\":[{\"role\":\"user\",\"content\":\"![x](http://169.254.169.254/"
                    "latest)\"}],\"max_tokens\":2}",
                    200);
    json_decref(a);
    ln_str s = {0};
    ln_str_adds(&s, "{" ASK ",\"max_tokens\":2,\"user\":\"");
    for (int i = 0; i < 1 << 16; i++) ln_str_adds(&s, "\\u001b[31m\\nGET ");
    ln_str_adds(&s, "\"}");
    a = ask(CHAT, s.data, 200);
    json_decref(a);
    ln_str_free(&s);
}

/* ---- choices ---- */

/* as many choices as are allowed, each of them whole. */
static void many_choices_are_whole(void **state) {
    (void)state;
    json_t *a = ask(CHAT, "{" ASK ",\"max_tokens\":2,\"n\":128,\"seed\":1}", 200);
    assert_int_equal(json_array_size(at(a, "choices")), 128);
    for (size_t i = 0; i < 128; i++) {
        const json_t *c = json_array_get(at(a, "choices"), i);
        assert_int_equal(int_at(c, "index"), i);
        assert_true(json_is_string(at(c, "finish_reason")));
    }
    json_decref(a);
    const double start = ln_now();
    a = ask(CHAT, "{" ASK ",\"n\":1000000}", 400);
    assert_string_equal(text_at(a, "error.param"), "n");
    assert_true(ln_now() - start < patience());
    json_decref(a);
}

/* pairs of sampling fields at the ends of their ranges, twice: the bytes are the same. */
static void pairs_of_fields_are_answered_alike(void **state) {
    (void)state;
    static const char *const fields[] = {"\"temperature\":0",
                                         "\"temperature\":2",
                                         "\"temperature\":1e-30",
                                         "\"top_p\":0",
                                         "\"top_p\":1e-9",
                                         "\"top_k\":1",
                                         "\"top_k\":4096",
                                         "\"top_k\":2147483647",
                                         "\"min_p\":1",
                                         "\"min_p\":1e-300",
                                         "\"presence_penalty\":-2",
                                         "\"frequency_penalty\":2",
                                         "\"repetition_penalty\":1e6",
                                         "\"repetition_penalty\":1e-6",
                                         "\"repeat_last_n\":0",
                                         "\"repeat_last_n\":2147483647",
                                         "\"logit_bias\":{\"4095\":100}",
                                         "\"logit_bias\":{\"300\":-100}",
                                         "\"stop\":[\" \"]",
                                         "\"stop\":\"e\"",
                                         "\"stop_token_ids\":[0,4095]",
                                         "\"ignore_eos\":true",
                                         "\"min_tokens\":3",
                                         "\"max_tokens\":0",
                                         "\"logprobs\":true,\"top_logprobs\":20",
                                         "\"n\":3"};
    const size_t stride = getenv("LN_LONG") ? 1 : (size_t)fewer(7, 41);
    size_t k = 0;
    for (size_t i = 0; i < LN_COUNT(fields); i++)
        for (size_t j = 0; j < i; j++) {
            char body[500];
            ln_str text[2] = {0};
            if (k++ % stride || strcspn(fields[i], ":") == strcspn(fields[j], ":")) continue;
            (void)snprintf(body, sizeof body, "{" ASK ",\"seed\":9%s,%s,%s}",
                           strstr(fields[i], "max_tokens") || strstr(fields[j], "max_tokens")
                               ? ""
                               : ",\"max_tokens\":5",
                           fields[i], fields[j]);
            for (int t = 0; t < 2; t++) {
                reply r = post(CHAT, body);
                if (r.status != 200) fail_msg("%s: %d: %s", body, r.status, r.body.data);
                const char *from = strstr(r.body.data, "\"choices\":"),
                           *to = strstr(r.body.data, "\"usage\":");
                assert_true(from && to);
                ln_str_add(&text[t], from, (size_t)(to - from));
                drop_reply(&r);
            }
            if (strcmp(text[0].data, text[1].data) != 0)
                fail_msg("%s: '%s' and '%s'", body, text[0].data, text[1].data);
            ln_str_free(&text[0]);
            ln_str_free(&text[1]);
        }
}

/* ---- other kinds of input ---- */

typedef struct form {
    const char *path;
    const char *needed[2][2]; /* fields that the body must have, and texts for them */
    const char *fields[12];
} form;

/* Sends the form's required fields, and `field` with a hostile value. */
static void send_hostile(const form *f, const char *field, const char *value) {
    const bool broken = strcmp(value, "1e309") == 0 || strcmp(value, "NaN") == 0 || strstr(value, "ud800");
    ln_str s = {0};
    ln_str_addf(&s, "{\"%s\":%s", field, value);
    for (size_t i = 0; i < 2 && f->needed[i][0]; i++)
        if (strcmp(f->needed[i][0], field) != 0)
            ln_str_addf(&s, ",\"%s\":%s", f->needed[i][0], f->needed[i][1]);
    ln_str_adds(&s, "}");
    reply r = post(f->path, s.data);
    if (r.status != 200 && r.status != 400 && r.status != 404)
        fail_msg("%s %s: %d: %s", f->path, s.data, r.status, r.body.data);
    json_t *root = r.status == 200 ? NULL : json_of(&r); /* a stream is no JSON */
    const char *param = json_string_value(at(root, "error.param"));
    if (r.status != 200 && !broken && (!param || strncmp(param, field, strlen(field)) != 0))
        fail_msg("%s %s: param '%s': %s", f->path, s.data, param ? param : "", r.body.data);
    json_decref(root);
    ln_str_free(&s);
    drop_reply(&r);
}

#define MESSAGES "[{\"role\":\"user\",\"content\":\"a\"}]"

/* R-1 for the bodies that are not OpenAI's chat: a wrong type names the field, and nothing ends the server.
 */
static void other_forms_take_hostile_values(void **state) {
    (void)state;
    static const form forms[] = {
        {"/tokenize", {{"content", "\"a\""}}, {"content", "add_special", "parse_special"}},
        {"/detokenize", {{"tokens", "[1]"}}, {"tokens"}},
        {"/apply-template", {{"messages", MESSAGES}}, {"messages", "tools", "chat_template_kwargs"}},
        {"/classify",
         {{"input", "\"a\""}, {"labels", "[\"x\"]"}},
         {"input", "labels", "system", "prompt", "normalize", "raw", "model"}},
        {"/score", {{"text_1", "\"a\""}, {"text_2", "\"b\""}}, {"text_1", "text_2", "instruction", "model"}},
        {"/rerank",
         {{"query", "\"a\""}, {"documents", "[\"b\"]"}},
         {"query", "documents", "top_n", "return_documents", "instruction"}},
        {"/v1/messages",
         {{"messages", MESSAGES}, {"max_tokens", "1"}},
         {"messages", "system", "max_tokens", "temperature", "top_k", "top_p", "stop_sequences", "stream",
          "thinking", "tools", "tool_choice", "metadata"}},
        {"/v1/responses",
         {{"input", "\"a\""}, {"max_output_tokens", "1"}},
         {"input", "instructions", "max_output_tokens", "temperature", "top_p", "text", "reasoning", "tools",
          "tool_choice", "truncation", "store"}},
    };
    static const char *const values[] = {
        "true", "\"\"", "\"1\"",  "[]",          "{}",         "0",
        "-1",   "1.5",  "1e308",  "1e309",       "NaN",        "18446744073709551616",
        "[[]]", "[{}]", "[null]", "\"\\u0000\"", "\"\\ud800\""};
    size_t k = 0;
    for (size_t i = 0; i < LN_COUNT(forms); i++)
        for (size_t f = 0; f < LN_COUNT(forms[i].fields) && forms[i].fields[f]; f++)
            for (size_t v = 0; v < LN_COUNT(values); v++)
                if (k++ % (size_t)fewer(1, 3) == 0) send_hostile(&forms[i], forms[i].fields[f], values[v]);
}

static int start_server(void **state) {
    (void)state;
    START("--log-format", "none", "--ctx", "256");
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_around_the_context),
        cmocka_unit_test(a_long_text_is_refused_soon),
        cmocka_unit_test(many_messages_are_refused),
        cmocka_unit_test(stops_meet_the_text),
        cmocka_unit_test(biases_leave_an_answer),
        cmocka_unit_test(ids_end_with_the_logits),
        cmocka_unit_test(texts_stay_texts),
        cmocka_unit_test(many_choices_are_whole),
        cmocka_unit_test(pairs_of_fields_are_answered_alike),
        cmocka_unit_test(other_forms_take_hostile_values),
    };
    return cmocka_run_group_tests(tests, start_server, end_with_0);
}
