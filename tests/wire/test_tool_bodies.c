/* Bodies with tools: which calls a request asks for, and how answers and streams show them. */
/* run: quick */
#include "wire_test.h"

#define F                                                                                                  \
    "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"},\"strict\":" \
    "true}}"
#define G     "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}"
#define TOOLS "\"tools\":[" F "," G "]"

static void names_are(size_t n, const char *first) {
    assert_int_equal(q.sampling.n_tool_names, n);
    if (n > 0) assert_string_equal(q.sampling.tool_names[0], first);
}

static void choices(void **state) {
    (void)state;
    test_format = "hermes";
    good(WIRE_CHAT, TOOLS);
    assert_int_equal(q.sampling.tool_choice, LN_TOOLS_AUTO);
    names_are(0, NULL);
    assert_false(q.sampling.single_tool_call);
    assert_non_null(strstr(q.prompts[0].request, "\"tools\":[" F "," G "]"));
    good(WIRE_CHAT, TOOLS ",\"tool_choice\":\"auto\",\"parallel_tool_calls\":false");
    assert_int_equal(q.sampling.tool_choice, LN_TOOLS_AUTO);
    assert_true(q.sampling.single_tool_call);
    good(WIRE_CHAT, TOOLS ",\"tool_choice\":\"none\",\"parallel_tool_calls\":true");
    assert_int_equal(q.sampling.tool_choice, LN_TOOLS_OFF);
    good(WIRE_CHAT, TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\","
                          "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]}}");
    names_are(1, "g");
    good(WIRE_CHAT, TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\","
                          "\"tools\":[{\"type\":\"function\",\"name\":\"f\"},{\"name\":\"g\"}]}");
    names_are(2, "f");
    good(WIRE_CHAT, "\"tools\":[],\"tool_choice\":\"auto\"");
    assert_int_equal(q.sampling.tool_choice, LN_TOOLS_OFF);
}

#define FORMAT "\"response_format\":{\"type\":\"json_object\"}"

/* Calls that are required; their schemas must be ones that the arguments can be made to follow. */
static void required_calls(void **state) {
    (void)state;
    test_format = "hermes";
    good(WIRE_CHAT, TOOLS ",\"tool_choice\":\"required\"");
    assert_int_equal(q.sampling.tool_choice, LN_TOOLS_REQUIRED);
    names_are(0, NULL);
    assert_false(q.sampling.single_tool_call);
    good(WIRE_CHAT, TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}");
    assert_int_equal(q.sampling.tool_choice, LN_TOOLS_REQUIRED);
    names_are(1, "g");
    assert_true(q.sampling.single_tool_call);
    good(WIRE_CHAT, TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":["
                          "{\"name\":\"f\"}]}," FORMAT);
    assert_int_equal(q.sampling.tool_choice, LN_TOOLS_REQUIRED);
    assert_null(q.sampling.grammar); /* there is no text that could have it */
    good(WIRE_CHAT, TOOLS "," FORMAT);
    assert_int_equal(q.sampling.tool_choice, LN_TOOLS_AUTO);
    assert_non_null(q.sampling.grammar);
#define BAD(schema) \
    "\"tools\":[" G ",{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":" schema "}}]"
    bad(WIRE_CHAT, BAD("{\"type\":\"array\"}") ",\"tool_choice\":\"required\"",
        "tools[1].function.parameters", "found \"array\"");
    bad(WIRE_CHAT, BAD("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"text\"}}}") "," FORMAT,
        "tools[1].function.parameters", "properties.a.type");
    bad(WIRE_CHAT, BAD("{\"type\":\"array\"}"), "tools[1].function.parameters", "found \"array\"");
#define UNIQUE "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"uniqueItems\":true}}}"
#define CHOICE ",\"tool_choice\":\"required\""
    bad(WIRE_CHAT, BAD(UNIQUE), "tools[1].function.parameters", "properties.a.uniqueItems");
    bad(WIRE_CHAT, BAD(UNIQUE), "tools[1].function.parameters", "\"strict\": false");
    good(WIRE_CHAT, BAD(UNIQUE ",\"strict\":false"));
    bad(WIRE_CHAT, BAD(UNIQUE ",\"strict\":false") CHOICE, "tools[1].function.parameters",
        "properties.a.uniqueItems");
    good(WIRE_CHAT, BAD(UNIQUE) ",\"tool_choice\":\"none\"");
    good(WIRE_CHAT, BAD("{\"type\":\"array\"}") ",\"tool_choice\":{\"type\":\"function\",\"name\":\"g\"}");
}

static void refused_choices(void **state) {
    (void)state;
    static const char *const forms[] = {"{}",
                                        "{\"type\":\"function\"}",
                                        "{\"type\":\"function\",\"function\":{}}",
                                        "{\"type\":\"function\",\"function\":{\"name\":5}}",
                                        "{\"type\":\"allowed_tools\"}",
                                        "{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[]}",
                                        "{\"type\":\"allowed_tools\",\"mode\":\"any\",\"tools\":[{\"name\":"
                                        "\"f\"}]}",
                                        "\"always\""};
    char text[400];
    test_format = "hermes";
    for (size_t i = 0; i < LN_COUNT(forms); i++) {
        (void)snprintf(text, sizeof text, TOOLS ",\"tool_choice\":%s", forms[i]);
        bad(WIRE_CHAT, text, "tool_choice", "expected none, auto, required");
    }
    bad(WIRE_CHAT, "\"tool_choice\":\"required\"", "tool_choice", "needs \"tools\"");
    bad(WIRE_CHAT, "\"tools\":[],\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"}", "tool_choice",
        "needs");
    bad(WIRE_CHAT,
        TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[{\"name\":\"h\"}]}",
        "tool_choice", "found \"h\"");
    bad(WIRE_CHAT, TOOLS ",\"parallel_tool_calls\":1", "parallel_tool_calls", "true or false");
}

/* Tools that are no functions are left out, with a warning, if others remain. */
static void foreign_tools(void **state) {
    (void)state;
    static const char *const rows[] = {"{\"type\":\"web_search\"}",
                                       "{\"type\":\"custom\",\"name\":\"apply_patch\"}",
                                       "{\"type\":\"local_shell\"}"};
    char text[300];
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        (void)snprintf(text, sizeof text, "\"tools\":[%s," F "]", rows[i]);
        good(WIRE_CHAT, text);
        assert_non_null(strstr(q.prompts[0].request, "\"tools\":[" F "]"));
        assert_int_equal(q.sampling.tool_choice, LN_TOOLS_AUTO);
        ln_result r = {.size = sizeof r};
        ln_str out = {0};
        wire_put_warnings(&out, &q, &r, 1);
        assert_non_null(strstr(out.data, "tool_skipped"));
        ln_str_free(&out);
        (void)snprintf(text, sizeof text, "\"tools\":[%s]", rows[i]);
        bad(WIRE_CHAT, text, "tools[0]", "leave it out");
    }
}

#define CALLS                                                                                                \
    "{\"messages\":[{\"role\":\"assistant\",\"content\":\"T\",\"tool_calls\":[{\"id\":\"a\",\"function\":{"  \
    "\"name\":\"f\",\"arguments\":\"{}\"}},{\"id\":\"b\",\"function\":{\"name\":\"g\",\"arguments\":{}}}]}," \
    "{\"role\":\"tool\",\"tool_call_id\":\"b\",\"content\":\"B\"},"                                          \
    "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"A\"},{\"role\":\"user\",\"content\":\"U\"}]}"

static void request_is(const char *body, const char *text) {
    assert_int_equal(read_body(WIRE_CHAT, body), LN_OK);
    if (!strstr(q.prompts[0].request, text)) fail_msg("no %s in %s", text, q.prompts[0].request);
}

/* The history is given as the template accepts it: null or an empty text next to calls, arguments as objects
 * or texts, one call a message with its result behind it. */
static void earlier_calls(void **state) {
    (void)state;
    static const char empty[] = "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\","
                                "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}]}";
    test_format = "hermes";
    request_is(empty, "\"content\":\"\",");
    request_is(CALLS, "\"arguments\":{}}},{\"id\":\"b\"");
    test_null = test_texts = true;
    request_is(empty, "\"content\":null,");
    request_is(CALLS, "\"arguments\":\"{}\"}},{\"id\":\"b\",\"function\":{\"name\":\"g\",\"arguments\":\"{}"
                      "\"");
    test_null = test_texts = false;
    test_single = true;
    request_is(CALLS, "\"content\":\"T\",\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\","
                      "\"arguments\":{}}}]},"
                      "{\"role\":\"tool\",\"content\":\"A\",\"tool_call_id\":\"a\"},{\"role\":\"assistant\","
                      "\"content\":\"\","
                      "\"tool_calls\":[{\"id\":\"b\",\"function\":{\"name\":\"g\",\"arguments\":{}}}]},"
                      "{\"role\":\"tool\",\"content\":\"B\",\"tool_call_id\":\"b\"},{\"role\":\"user\","
                      "\"content\":\"U\"}]");
    test_single = false;
}

/* ---- answers ---- */

static ln_tool_call calls[] = {{"f", "{\"a\": \"\\n\"}", 11}, {"g", "{}", 2}};

static void expect(ln_str *s, const char *text) {
    json_t *root;
    ln_error err;
    assert_false(s->failed);
    if (ln_json_load(&root, "a body", s->data, s->len, &err) != LN_OK)
        fail_msg("%s: %s", err.message, s->data);
    json_decref(root);
    if (!strstr(s->data, text)) fail_msg("'%s' is not in %s", text, s->data);
    s->len = 0;
}

static void answers(void **state) {
    (void)state;
    ln_str s = {0};
    ln_result r = {
        .text = "", .reasoning = "", .tool_calls = calls, .n_tool_calls = 2, .finish = LN_FINISH_STOP};
    const wire_answer a = {"chatcmpl-0123456789abcdef01234567", 1700000000, "base"};
    test_format = "hermes";
    good(WIRE_CHAT, TOOLS);
    wire_put_answer(&s, &q, &a, &r);
    expect(&s,
           "\"message\":{\"role\":\"assistant\",\"content\":null,\"refusal\":null,\"tool_calls\":[{\"id\":"
           "\"call_0123456789abcdef00000000\",\"type\":\"function\",\"function\":{\"name\":\"f\","
           "\"arguments\":\"{\\\"a\\\": \\\"\\\\n\\\"}\"}},{\"id\":\"call_0123456789abcdef00000001\","
           "\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]},"
           "\"logprobs\":null,\"finish_reason\":\"tool_calls\"}");
    r.text = "Let me", r.text_bytes = 6;
    r.finish = LN_FINISH_LENGTH;
    wire_put_answer(&s, &q, &a, &r);
    expect(&s, "\"content\":\"Let me\",\"refusal\":null,\"tool_calls\":[{");
    wire_put_answer(&s, &q, &a, &r);
    expect(&s, "\"finish_reason\":\"length\"");
    r.cut_tool_call = &(ln_tool_call){"f", "{\"a", 3}; /* the text ended in a third call */
    wire_put_answer(&s, &q, &a, &r);
    expect(&s, "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\"}}]}");
    wire_put_answer(&s, &q, &a, &r);
    expect(&s, "\"warnings\":[{\"code\":\"tool_call_cut\",\"choice\":0,\"message\":");
    r.cut_tool_call = NULL;
    r.n_malformed_calls = 1;
    wire_put_answer(&s, &q, &a, &r);
    expect(&s, "\"warnings\":[{\"code\":\"tool_call_malformed\"");
    r.n_malformed_calls = 0;
    r.n_tool_calls = 0;
    r.finish = LN_FINISH_STOP;
    wire_put_answer(&s, &q, &a, &r);
    expect(&s, "\"content\":\"Let me\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\"");
    ln_str_free(&s);
}

static void streams(void **state) {
    (void)state;
    ln_str s = {0};
    const ln_event call = {.kind = LN_EVENT_TOOL_ARGUMENTS, .name = "g", .text = "{}", .bytes = 2};
    const wire_answer a = {"chatcmpl-0123456789abcdef01234567", 1700000000, "base"};
    test_format = "hermes";
    good(WIRE_CHAT, TOOLS ",\"n\":2,\"stream\":true");
    wire_put_delta(&s, &q, &a, &(wire_delta){.index = 1, .call = &call, .n_call = 1, .begins_call = true});
    expect(&s, "\"choices\":[{\"index\":1,\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":"
               "\"call_0123456789abcdef00010001\",\"type\":\"function\",\"function\":{\"name\":\"g\","
               "\"arguments\":\"{}\"}}]},\"logprobs\":null,\"finish_reason\":null}]");
    wire_put_delta(&s, &q, &a, &(wire_delta){.index = 1, .call = &call, .n_call = 1});
    expect(&s, "\"delta\":{\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\"{}\"}}]}");
    test_format = "kimi"; /* whose template shows the id */
    good(WIRE_CHAT, TOOLS);
    wire_put_delta(&s, &q, &a, &(wire_delta){.call = &call, .n_call = 2, .begins_call = true});
    expect(&s, "\"id\":\"functions.g:2\"");
    test_format = "mistral"; /* whose templates take ids of nine characters only */
    good(WIRE_CHAT, TOOLS);
    wire_put_delta(&s, &q, &a, &(wire_delta){.call = &call, .n_call = 2, .begins_call = true});
    expect(&s, "\"id\":\"012340002\"");
    ln_str_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(choices),         cmocka_unit_test(required_calls),
                                       cmocka_unit_test(refused_choices), cmocka_unit_test(earlier_calls),
                                       cmocka_unit_test(foreign_tools),   cmocka_unit_test(answers),
                                       cmocka_unit_test(streams)};
    return cmocka_run_group_tests(tests, NULL, close_last);
}
