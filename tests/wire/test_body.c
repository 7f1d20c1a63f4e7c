/* Bodies of requests: every field of body_fields.def, its type and its range, and what fields mean together.
 */
/* run: quick */
#include "wire_test.h"

static void defaults(void **state) {
    (void)state;
    good(WIRE_CHAT, "");
    assert_int_equal(q.n, 1);
    assert_int_equal(q.n_prompts, 1);
    assert_int_equal(q.n_logprobs, -1);
    assert_int_equal(q.model, 0);
    assert_int_equal(q.sampling.n_max, INT32_MAX); /* the context ends it */
    assert_false(q.sampling.has_seed);
    assert_true(q.sampling.temperature == 1);
    assert_int_equal(q.prompts[0].tmpl, LN_TEMPLATE_CHAT);
    assert_int_equal(q.prompts[0].n_messages, 1);
    assert_null(q.prompts[0].template_args);
    good(WIRE_COMPLETION, "");
    assert_int_equal(q.sampling.n_max, 16); /* OpenAI's default */
    assert_int_equal(q.prompts[0].tmpl, LN_TEMPLATE_RAW);
    assert_memory_equal(q.prompts[0].text, "Hi", 3);
}

/* null is what an absent field is. */
static void null_is_absent(void **state) {
    (void)state;
    static const char *const names[] = {
#define READ(name, kinds, fn)                name,
#define SAFE(name, kinds)                    name,
#define REFUSED(name, kinds, values, advice) name,
#include "wire/body_fields.def"
#undef READ
#undef SAFE
#undef REFUSED
    };
    char text[200];
    for (size_t i = 0; i < LN_COUNT(names); i++)
        for (int kind = 0; kind < 2; kind++) {
            if (strcmp(names[i], "messages") == 0 || strcmp(names[i], "prompt") == 0) continue;
            (void)snprintf(text, sizeof text, "\"%s\":null", names[i]);
            good((wire_kind)kind, text);
        }
}

static void numbers(void **state) {
    (void)state;
    static const struct {
        const char *name, *good[3], *bad[4];
    } rows[] = {
        {"temperature", {"0", "1e-30", "2"}, {"-0.1", "2.01", "\"hot\"", "1e308"}},
        {"top_p", {"0", "0.5", "1"}, {"-1", "1.01", "[]", "\"1\""}},
        {"min_p", {"0", "0.05", "1"}, {"-1", "2", "{}", "\"\""}},
        {"top_k", {"-1", "0", "40.0"}, {"-2", "1.5", "2147483648", "\"40\""}},
        {"presence_penalty", {"-2", "0.5", "2"}, {"-2.01", "2.01", "false", "\"0\""}},
        {"frequency_penalty", {"-2", "0.5", "2"}, {"-2.01", "2.01", "false", "\"0\""}},
        {"repetition_penalty", {"0.5", "1", "1.3"}, {"0", "-1", "1e7", "\"1\""}},
        {"repeat_penalty", {"0.5", "1", "1.3"}, {"0", "-1", "1e7", "\"1\""}},
        {"repeat_last_n", {"-1", "0", "64"}, {"-2", "1.5", "\"64\"", "[64]"}},
        {"max_tokens", {"0", "1", "-1"}, {"-2", "1.5", "\"10\"", "true"}},
        {"max_completion_tokens", {"0", "1", "9223372036854775807"}, {"-2", "1.5", "\"10\"", "1e30"}},
        {"min_tokens", {"0", "1", "100"}, {"-1", "0.5", "\"1\"", "1e10"}},
        {"n", {"1", "2", "128"}, {"0", "129", "1.5", "\"1\""}},
        {"seed",
         {"0", "-9223372036854775808", "18446744073709551615"},
         {"1.5", "\"1\"", "18446744073709551616", "-1e30"}},
        {"ignore_eos", {"true", "false", "true"}, {"1", "0", "\"true\"", "[]"}},
        {"stream", {"true", "false", "true"}, {"1", "0", "\"true\"", "[]"}},
    };
    char text[200];
    for (int kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < LN_COUNT(rows); i++) {
            for (int k = 0; k < 3; k++) {
                (void)snprintf(text, sizeof text, "\"%s\":%s", rows[i].name, rows[i].good[k]);
                good((wire_kind)kind, text);
            }
            for (int k = 0; k < 4; k++) {
                (void)snprintf(text, sizeof text, "\"%s\":%s", rows[i].name, rows[i].bad[k]);
                bad((wire_kind)kind, text, rows[i].name, "expected");
            }
        }
}

static void sampling_fields(void **state) {
    (void)state;
    good(WIRE_CHAT, "\"temperature\":0.5,\"top_p\":0.9,\"top_k\":40,\"min_p\":0.1,\"presence_penalty\":1,"
                    "\"frequency_penalty\":-1,\"repetition_penalty\":1.2,\"max_tokens\":7,\"min_tokens\":3,"
                    "\"ignore_eos\":true,\"seed\":5,\"stop\":[\"a\",\"bc\"],\"stop_token_ids\":[1,299],"
                    "\"logit_bias\":{\"3\":-100,\"299\":1.5}");
    const ln_sampling *s = &q.sampling;
    assert_true(s->temperature == 0.5 && s->top_p == 0.9 && s->top_k == 40 && s->min_p == 0.1);
    assert_true(s->presence_penalty == 1 && s->frequency_penalty == -1 && s->repeat_penalty == 1.2);
    assert_int_equal(s->repeat_last, -1); /* as transformers: all tokens */
    assert_int_equal(s->n_max, 7);
    assert_int_equal(s->min_new, 3);
    assert_true(s->ignore_eos && s->has_seed && s->seed == 5);
    assert_int_equal(s->n_stop, 2);
    assert_string_equal(s->stop[1], "bc");
    assert_int_equal(s->n_stop_ids, 2);
    assert_int_equal(s->stop_ids[1], 299);
    assert_int_equal(s->n_bias, 2);
    assert_int_equal(s->bias[1].id, 299);
    assert_true(s->bias[0].bias == -100 && s->bias[1].bias == 1.5f);
    good(WIRE_CHAT, "\"stop\":\"x\",\"top_k\":-1,\"repeat_penalty\":1.1,\"repeat_last_n\":32");
    assert_int_equal(q.sampling.n_stop, 1);
    assert_string_equal(q.sampling.stop[0], "x");
    assert_int_equal(q.sampling.top_k, 0);
    assert_int_equal(q.sampling.repeat_last, 32);
}

static void lists(void **state) {
    (void)state;
    bad(WIRE_CHAT, "\"stop\":\"\"", "stop", "1 to 1024 bytes");
    bad(WIRE_CHAT, "\"stop\":[\"a\",\"\"]", "stop[1]", "1 to 1024 bytes");
    bad(WIRE_CHAT, "\"stop\":[\"a\\u0000b\"]", "stop[0]", "U+0000");
    bad(WIRE_CHAT, "\"stop\":5", "stop", "found 5");
    bad(WIRE_CHAT, "\"stop\":[1]", "stop[0]", "found 1");
    bad(WIRE_CHAT,
        "\"stop\":[\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\","
        "\"1\",\"1\"]",
        "stop", "at most 16");
    bad(WIRE_CHAT, "\"stop_token_ids\":[300]", "stop_token_ids[0]", "0 to 299");
    bad(WIRE_CHAT, "\"stop_token_ids\":[1,-1]", "stop_token_ids[1]", "0 to 299");
    bad(WIRE_CHAT, "\"stop_token_ids\":7", "stop_token_ids", "list");
    bad(WIRE_CHAT, "\"logit_bias\":{\"300\":1}", "logit_bias", "found \"300\"");
    bad(WIRE_CHAT, "\"logit_bias\":{\"x\":1}", "logit_bias", "found \"x\"");
    bad(WIRE_CHAT, "\"logit_bias\":{\"+1\":1}", "logit_bias", "as keys");
    bad(WIRE_CHAT, "\"logit_bias\":{\"1\":\"a\"}", "logit_bias", "for token 1");
    bad(WIRE_CHAT, "\"logit_bias\":[1]", "logit_bias", "object");
}

/* Choice i samples with seed + i; seeds wrap. Seeds from 2^63 on keep their last digits. */
static void seeds(void **state) {
    (void)state;
    ln_prompt p;
    ln_sampling how;
    ln_request_options opt = {0};
    good(WIRE_CHAT, "\"n\":3,\"seed\":18446744073709551615");
    static const uint64_t expected[] = {UINT64_MAX, 0, 1};
    for (size_t i = 0; i < 3; i++) {
        wire_choice(&q, i, &p, &how, &opt);
        assert_true(how.has_seed && how.seed == expected[i] && opt.sampling == &how);
    }
    good(WIRE_CHAT, "\"seed\":9223372036854775809");
    assert_true(q.sampling.seed == 9223372036854775809u);
    good(WIRE_CHAT, "\"seed\":-5");
    assert_true(q.sampling.seed == (uint64_t)-5);
    good(WIRE_CHAT, "\"seed\":-1");
    assert_false(q.sampling.has_seed);
    read_body(WIRE_COMPLETION, "{\"prompt\":[\"a\",\"b\"],\"n\":2,\"seed\":10}");
    static const uint64_t per_prompt[] = {10, 11, 10, 11};
    for (size_t i = 0; i < 4; i++) {
        wire_choice(&q, i, &p, &how, &opt);
        assert_true(how.seed == per_prompt[i]);
        assert_int_equal(p.text[0], i < 2 ? 'a' : 'b');
    }
}

static void prompts(void **state) {
    (void)state;
    assert_int_equal(read_body(WIRE_COMPLETION, "{\"prompt\":[1,2,299]}"), LN_OK);
    assert_int_equal(q.n_prompts, 1);
    assert_int_equal(q.prompts[0].n_ids, 3);
    assert_int_equal(q.prompts[0].ids[2], 299);
    assert_int_equal(read_body(WIRE_COMPLETION, "{\"prompt\":[1.0,2,299.0]}"),
                     LN_OK); /* one type of number */
    assert_int_equal(q.prompts[0].ids[2], 299);
    assert_int_equal(read_body(WIRE_COMPLETION, "{\"prompt\":[[1],\"a\\u0000b\",[2,3]]}"), LN_OK);
    assert_int_equal(q.n_prompts, 3);
    assert_int_equal(q.prompts[1].text_bytes, 3);
    assert_int_equal(q.prompts[2].n_ids, 2);
    static const struct {
        const char *prompt, *param;
    } rows[] = {{"[]", "prompt"},           {"5", "prompt"},
                {"{}", "prompt"},           {"[[]]", "prompt[0]"},
                {"[1,\"a\"]", "prompt[1]"}, {"[\"a\",1]", "prompt[1]"},
                {"[300]", "prompt[0]"},     {"[[1,2.5]]", "prompt[0][1]"},
                {"[null]", "prompt[0]"},    {"true", "prompt"}};
    char body[200];
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        (void)snprintf(body, sizeof body, "{\"prompt\":%s}", rows[i].prompt);
        assert_int_equal(read_body(WIRE_COMPLETION, body), LN_EINVALID);
        assert_string_equal(why.param, rows[i].param);
    }
    assert_int_equal(read_body(WIRE_COMPLETION, "{}"), LN_EINVALID);
    assert_string_equal(why.param, "prompt");
    assert_int_equal(read_body(WIRE_CHAT, "{\"prompt\":\"a\"}"), LN_EINVALID);
    assert_string_equal(why.param, "messages");
}

/* The number of choices is bounded by prompts x n. */
static void most_choices(void **state) {
    (void)state;
    ln_str s = {0};
    ln_str_adds(&s, "{\"n\":2,\"prompt\":[\"a\"");
    for (int i = 1; i < WIRE_MOST_CHOICES / 2; i++) ln_str_adds(&s, ",\"a\"");
    size_t at = s.len;
    ln_str_adds(&s, "]}");
    assert_int_equal(read_body(WIRE_COMPLETION, s.data), LN_OK);
    assert_int_equal(wire_n_choices(&q), WIRE_MOST_CHOICES);
    s.len = at;
    ln_str_adds(&s, ",\"a\"]}");
    assert_int_equal(read_body(WIRE_COMPLETION, s.data), LN_EINVALID);
    assert_string_equal(why.param, "n");
    ln_str_free(&s);
}

static void models(void **state) {
    (void)state;
    good(WIRE_CHAT, "\"model\":\"poet\"");
    assert_int_equal(q.model, 1);
    good(WIRE_CHAT, "\"model\":\"\"");
    assert_int_equal(q.model, 0);
    bad(WIRE_CHAT, "\"model\":\"gpt-4\"", "model", "known: base, poet");
    assert_int_equal(why.http, 404);
    assert_string_equal(why.code, "model_not_found");
    bad(WIRE_CHAT, "\"model\":\"base\\u0000\"", "model", "known");
    bad(WIRE_CHAT, "\"model\":4", "model", "found 4");
    /* a path is understood, and not told to those who do not know it */
    good(WIRE_CHAT, "\"model\":\"/home/me/models/base\"");
    assert_int_equal(q.model, 2);
    bad(WIRE_CHAT, "\"model\":\"gpt-4\"", "model", "known: base");
    assert_null(strstr(why.error.message, "/home"));
}

static void message_refused(const char *messages, const char *param, const char *text) {
    char body[1000];
    (void)snprintf(body, sizeof body, "{\"messages\":%s}", messages);
    if (read_body(WIRE_CHAT, body) != LN_EINVALID) fail_msg("%s was taken", messages);
    if (strcmp(why.param, param) != 0 || !strstr(why.error.message, text))
        fail_msg("%s: param '%s': %s", messages, why.param, why.error.message);
}

static void messages(void **state) {
    (void)state;
    assert_int_equal(read_body(WIRE_CHAT, "{\"messages\":[{\"role\":\"developer\",\"content\":\"Be "
                                          "kind.\"},{\"role\":\"user\","
                                          "\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":"
                                          "\"text\",\"text\":\"b\\u0000\"}]},"
                                          "{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}]}"),
                     LN_OK);
    const ln_message *m = q.prompts[0].messages;
    assert_int_equal(q.prompts[0].n_messages, 3);
    assert_string_equal(m[0].role, "system");
    assert_int_equal(m[1].content_bytes, 4);
    assert_memory_equal(m[1].content, "a\nb\0", 5);
    assert_int_equal(m[2].content_bytes, 0);
    assert_null(q.prompts[0].request);
    message_refused("[]", "messages", "at least one");
    message_refused("5", "messages", "list");
    message_refused("[5]", "messages[0]", "object");
    message_refused("[{\"content\":\"a\"}]", "messages[0].role", "found nothing");
    message_refused("[{\"role\":\"usr\",\"content\":\"a\"}]", "messages[0].role", "usr");
    message_refused("[{\"role\":\"user\"}]", "messages[0].content", "found nothing");
    message_refused("[{\"role\":\"user\",\"content\":null}]", "messages[0].content", "found null");
    message_refused("[{\"role\":\"user\",\"content\":7}]", "messages[0].content", "found 7");
    message_refused("[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[{\"type\":"
                    "\"image_url\","
                    "\"image_url\":{\"url\":\"x\"}}]}]",
                    "messages[1].content[0]", "image_url");
    message_refused("[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"input_"
                    "audio\"}]}]",
                    "messages[0].content[1]", "input_audio");
    message_refused("[{\"role\":\"user\",\"content\":[\"a\"]}]", "messages[0].content[0]", "part of type");
    message_refused("[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", "messages[0].content[0]",
                    "text");
    message_refused("[{\"role\":\"user\",\"content\":\"a\",\"name\":5}]", "messages[0].name", "found 5");
    message_refused("[{\"role\":\"assistant\",\"content\":\"a\",\"function_call\":{}}]",
                    "messages[0].function_call", "not supported");
    message_refused("[{\"role\":\"assistant\",\"content\":\"a\",\"audio\":{\"id\":\"x\"}}]",
                    "messages[0].audio", "not supported");
}

/* What a plain message cannot hold reaches the template as a request, with arguments of calls as objects. */
static void calls(void **state) {
    (void)state;
    assert_int_equal(read_body(WIRE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"W\",\"name\":"
                                          "\"Ann\"},{\"role\":\"assistant\","
                                          "\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":"
                                          "\"function\",\"function\":{\"name\":"
                                          "\"f\",\"arguments\":\"{\\\"x\\\": "
                                          "1.0}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\","
                                          "\"content\":\"7\"}],\"tools\":[{\"type\":\"function\","
                                          "\"function\":{\"name\":\"f\"}}],"
                                          "\"tool_choice\":\"none\"}"),
                     LN_OK);
    assert_null(q.prompts[0].messages);
    assert_string_equal(q.prompts[0].request, "{\"messages\":[{\"role\":\"user\",\"content\":\"W\",\"name\":"
                                              "\"Ann\"},{\"role\":\"assistant\",\"content\":\"\","
                                              "\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\","
                                              "\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1.0}}}]},"
                                              "{\"role\":\"tool\",\"content\":\"7\",\"tool_call_id\":\"c1\"}]"
                                              ",\"tools\":[{\"type\":\"function\",\"function\":"
                                              "{\"name\":\"f\"}}]}");
    message_refused("[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[]}]", "messages[0].content",
                    "null");
    message_refused("[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":5}]", "messages[0].content",
                    "null");
}

/* Every member of a call that a template takes apart is present, with its type. */
static void calls_are_checked(void **state) {
    (void)state;
    static const char *const bad_calls[] = {"5",
                                            "{}",
                                            "{\"function\":5}",
                                            "{\"function\":{}}",
                                            "{\"function\":{\"name\":5,\"arguments\":\"{}\"}}",
                                            "{\"function\":{\"name\":\"f\"}}",
                                            "{\"function\":{\"name\":\"f\",\"arguments\":[]}}"};
    char text[300];
    for (size_t i = 0; i < LN_COUNT(bad_calls); i++) {
        (void)snprintf(text, sizeof text, "[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[%s]}]",
                       bad_calls[i]);
        message_refused(text, "messages[0].tool_calls[0]", "expected");
    }
}

/* A model whose template has no tool-call format: tools are shown, and not called. */
/* A field of a sibling API names the right one; nothing that would change an answer is ignored. */
static void sibling_fields(void **state) {
    (void)state;
    static const char *const rows[][3] = {
        {"\"max_output_tokens\":2", "max_output_tokens", "max_tokens"},
        {"\"stop_sequences\":[\"!\"]", "stop_sequences", "\"stop\""},
        {"\"format\":\"json\"", "format", "response_format"},
        {"\"text\":{\"format\":{}}", "text", "response_format"},
        {"\"options\":{\"seed\":1}", "options", "the other fields themselves"},
        {"\"system\":\"Speak French.\"", "system", "role system"},
        {"\"instructions\":\"x\"", "instructions", "role system"},
        {"\"input\":\"x\"", "input", "messages"},
        {"\"think\":true", "think", "enable_thinking"},
        {"\"thinking\":{\"type\":\"enabled\"}", "thinking", "enable_thinking"},
    };
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        bad(WIRE_CHAT, rows[i][0], rows[i][1], rows[i][2]);
        assert_string_equal(why.code, "unsupported_parameter");
    }
    good(WIRE_CHAT, "\"system\":null,\"options\":{}");
}

/* An answer that was cut goes on after its text; vLLM's clients send the two fields together. */
static void answers_go_on(void **state) {
    (void)state;
#define TALK(last) "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}" last "]"
    good(WIRE_CHAT, "\"continue_final_message\":false,\"add_generation_prompt\":true");
    assert_false(q.prompts[0].continue_last);
    assert_int_equal(read_body(WIRE_CHAT,
                               "{" TALK(",{\"role\":\"assistant\",\"content\":\"b\"}") ",\"continue_final_"
                                                                                       "message\":true,"
                                                                                       "\"add_generation_"
                                                                                       "prompt\":false}"),
                     LN_OK);
    assert_true(q.prompts[0].continue_last);
    bad(WIRE_CHAT, "\"continue_final_message\":true", "continue_final_message", "role assistant");
    bad(WIRE_CHAT, "\"add_generation_prompt\":false", "add_generation_prompt", "continue_final_message");
#undef TALK
}

/* A model that reasons in any case: what would turn that off is warned about, not ignored in silence. */
static void reasoning_without_a_switch(void **state) {
    (void)state;
    static const char *const off[] = {"\"enable_thinking\":false", "\"reasoning_effort\":\"none\"",
                                      "\"chat_template_kwargs\":{\"enable_thinking\":false}"};
    for (size_t i = 0; i < LN_COUNT(off); i++) {
        good(WIRE_CHAT, off[i]);
        assert_string_equal(q.note, "");
        test_reasons = true;
        good(WIRE_CHAT, off[i]);
        assert_non_null(strstr(q.note, "cannot be turned off"));
        good(WIRE_CHAT, "\"reasoning_effort\":\"low\"");
        assert_string_equal(q.note, "");
        test_reasons = false;
    }
}

static void tools(void **state) {
    (void)state;
    bad(WIRE_CHAT, "\"tools\":[{\"type\":\"function\"}]", "tools[0]", "leave it out");
    bad(WIRE_CHAT, "\"tools\":[{}],\"tool_choice\":\"auto\"", "tools[0]", "leave it out");
    bad(WIRE_CHAT, "\"tools\":5", "tools", "list");
    bad(WIRE_CHAT, "\"tools\":[5],\"tool_choice\":\"none\"", "tools[0]", "object");
    bad(WIRE_CHAT, "\"tool_choice\":5", "tool_choice", "found 5");
    good(WIRE_CHAT, "\"tools\":[]");
    assert_non_null(q.prompts[0].messages);
    good(WIRE_CHAT, "\"tool_choice\":\"auto\"");
    good(WIRE_CHAT, "\"tools\":[{\"type\":\"function\"}],\"tool_choice\":\"none\"");
    assert_non_null(strstr(q.prompts[0].request, "\"tools\":[{\"type\":\"function\"}]"));
    assert_int_equal(q.sampling.tool_choice, LN_TOOLS_OFF);
}

static void arguments(void **state) {
    (void)state;
    good(WIRE_CHAT, "\"chat_template_kwargs\":{\"enable_thinking\":false,\"a\":[1,\"b\"]}");
    assert_string_equal(q.prompts[0].template_args, "{\"enable_thinking\":false,\"a\":[1,\"b\"]}");
    good(WIRE_CHAT, "\"reasoning_effort\":\"low\",\"enable_thinking\":true");
    assert_string_equal(q.prompts[0].template_args, "{\"reasoning_effort\":\"low\",\"enable_thinking\":"
                                                    "true,\"thinking\":true}");
    good(WIRE_CHAT, "\"reasoning_effort\":\"none\""); /* turns the switch off, by both names that it has */
    assert_string_equal(q.prompts[0].template_args, "{\"enable_thinking\":false,\"thinking\":false}");
    good(WIRE_CHAT, "\"reasoning_effort\":\"high\"");
    assert_string_equal(q.prompts[0].template_args, "{\"reasoning_effort\":\"high\",\"enable_thinking\":true,"
                                                    "\"thinking\":true}");
    good(WIRE_CHAT, "\"reasoning_effort\":\"none\",\"chat_template_kwargs\":{\"thinking\":true}");
    assert_string_equal(q.prompts[0].template_args, "{\"thinking\":true}");
    good(WIRE_CHAT, "\"reasoning_effort\":\"none\",\"enable_thinking\":true");
    assert_string_equal(q.prompts[0].template_args, "{\"enable_thinking\":true,\"thinking\":true}");
    good(WIRE_CHAT, "\"enable_thinking\":true,\"chat_template_kwargs\":{\"enable_thinking\":false}");
    assert_string_equal(q.prompts[0].template_args, "{\"enable_thinking\":false}");
    good(WIRE_CHAT, "\"chat_template_kwargs\":{}");
    assert_null(q.prompts[0].template_args);
    bad(WIRE_CHAT, "\"chat_template_kwargs\":[]", "chat_template_kwargs", "object");
    bad(WIRE_CHAT, "\"reasoning_effort\":3", "reasoning_effort", "text");
    bad(WIRE_CHAT, "\"enable_thinking\":\"no\"", "enable_thinking", "true or false");
    good(WIRE_CHAT, "\"documents\":[{\"title\":\"t\"}]");
    assert_non_null(strstr(q.prompts[0].request, "\"documents\":[{\"title\":\"t\"}]"));
    bad(WIRE_CHAT, "\"documents\":{}", "documents", "list");
}

static void lengths(void **state) {
    (void)state;
    good(WIRE_CHAT, "\"max_tokens\":5,\"max_completion_tokens\":5");
    assert_int_equal(q.sampling.n_max, 5);
    good(WIRE_CHAT, "\"max_completion_tokens\":6");
    assert_int_equal(q.sampling.n_max, 6);
    good(WIRE_COMPLETION, "\"max_tokens\":0");
    assert_int_equal(q.sampling.n_max, 0);
    good(WIRE_COMPLETION, "\"max_tokens\":-1");
    assert_int_equal(q.sampling.n_max, INT32_MAX);
    good(WIRE_COMPLETION, "\"max_tokens\":9223372036854775807");
    assert_int_equal(q.sampling.n_max, INT32_MAX);
    bad(WIRE_CHAT, "\"max_tokens\":5,\"max_completion_tokens\":6", "max_completion_tokens", "contradicts");
}

static void choices(void **state) {
    (void)state;
    good(WIRE_COMPLETION, "\"n\":2,\"best_of\":2");
    bad(WIRE_COMPLETION, "\"n\":2,\"best_of\":1", "best_of", "at least n");
    bad(WIRE_COMPLETION, "\"best_of\":2", "best_of", "not ranked");
    bad(WIRE_COMPLETION, "\"best_of\":0", "best_of", "1 to 128");
}

static void log_probabilities(void **state) {
    (void)state;
    ln_prompt p;
    ln_sampling how;
    ln_request_options opt = {0};
    good(WIRE_CHAT, "\"logprobs\":true");
    assert_int_equal(q.n_logprobs, 0);
    good(WIRE_CHAT, "\"logprobs\":true,\"top_logprobs\":20");
    assert_int_equal(q.n_logprobs, 20);
    good(WIRE_CHAT, "\"logprobs\":false,\"top_logprobs\":0");
    assert_int_equal(q.n_logprobs, -1);
    bad(WIRE_CHAT, "\"top_logprobs\":3", "top_logprobs", "needs");
    bad(WIRE_CHAT, "\"logprobs\":true,\"top_logprobs\":21", "top_logprobs", "0 to 20");
    bad(WIRE_CHAT, "\"logprobs\":5", "logprobs", "true or false");
    good(WIRE_COMPLETION, "\"logprobs\":0,\"echo\":true");
    assert_int_equal(q.n_logprobs, 0);
    wire_choice(&q, 0, &p, &how, &opt);
    assert_true(opt.prompt_logprobs && opt.n_logprobs == 0);
    good(WIRE_COMPLETION, "\"echo\":true");
    wire_choice(&q, 0, &p, &how, &opt);
    assert_true(!opt.prompt_logprobs && opt.n_logprobs == -1 && q.echo);
    bad(WIRE_COMPLETION, "\"logprobs\":true", "logprobs", "integer");
    bad(WIRE_COMPLETION, "\"logprobs\":21", "logprobs", "0 to 20");
    bad(WIRE_COMPLETION, "\"echo\":1", "echo", "true or false");
}

static void streams(void **state) {
    (void)state;
    good(WIRE_CHAT, "\"stream\":true,\"stream_options\":{\"include_usage\":true,\"include_obfuscation\":"
                    "false}");
    assert_true(q.stream && q.include_usage);
    bad(WIRE_CHAT, "\"stream_options\":{}", "stream_options", "needs"); /* */
    bad(WIRE_CHAT, "\"stream_options\":5", "stream_options", "object");
    bad(WIRE_CHAT, "\"stream_options\":{\"include_usage\":5}", "stream_options.include_usage",
        "true or false");
}

/* Every rejected field: 400 with its name for a value that means something, accepted for the values in its
 * row. */
static void refused(void **state) {
    (void)state;
    enum { CHAT = 1, COMPLETION = 2, BOTH = 3 };
    static const struct {
        const char *name;
        int kinds;
        const char *values;
    } rows[] = {
#define READ(name, kinds, fn)
#define SAFE(name, kinds)
#define REFUSED(name, kinds, values, advice) {name, kinds, values},
#include "wire/body_fields.def"
#undef READ
#undef SAFE
#undef REFUSED
    };
    char text[300];
    for (size_t i = 0; i < LN_COUNT(rows); i++)
        for (int kind = 0; kind < 2; kind++) {
            if (!(rows[i].kinds & 1 << kind)) continue;
            (void)snprintf(text, sizeof text, "\"%s\":{\"type\":\"json_object\"}", rows[i].name);
            bad((wire_kind)kind, text, rows[i].name, "not supported");
            assert_string_equal(why.code, "unsupported_parameter");
            for (const char *at = rows[i].values; *at; at += strcspn(at, "|"), at += *at == '|') {
                (void)snprintf(text, sizeof text, "\"%s\":%.*s", rows[i].name, (int)strcspn(at, "|"), at);
                good((wire_kind)kind, text);
            }
        }
}

static void unknown_names(void **state) {
    (void)state;
    ln_log_set(on_log, NULL);
    told = 0;
    good(WIRE_CHAT, "\"user\":\"me\",\"metadata\":{\"a\":1},\"store\":false");
    assert_int_equal(told, 0);
    good(WIRE_CHAT, "\"frobnicate\":5");
    assert_int_equal(told, 1);
    assert_non_null(strstr(told_last, "frobnicate"));
    good(WIRE_COMPLETION, "\"frobnicate\":{\"a\":[]}");
    assert_int_equal(told, 1); /* once */
    assert_int_equal(read_body(WIRE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"weight\":1}]"
                                          "}"),
                     LN_OK);
    assert_int_equal(told, 2);
    assert_non_null(strstr(told_last, "messages[].weight"));
    ln_log_set(NULL, NULL);
}

static void documents_of_json(void **state) {
    (void)state;
    static const char *const rows[] = {"",     "[]", "5", "{", "{\"messages\":[],}", "{\"n\":1,\"n\":2}",
                                       "\"a\""};
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        assert_int_equal(read_body(WIRE_CHAT, rows[i]), LN_EINVALID);
        assert_int_equal(why.http, 400);
        assert_string_equal(why.type, "invalid_request_error");
    }
    ln_str deep = {0};
    ln_str_adds(&deep, "{\"messages\":");
    for (int i = 0; i < 100000; i++) ln_str_adds(&deep, "[");
    assert_int_equal(read_body(WIRE_CHAT, deep.data), LN_EINVALID);
    assert_int_equal(why.http, 400);
    ln_str_free(&deep);
}

/* Every allocation fails in turn; the answer is that memory is short, or the request as without a failure. */
static void no_memory(void **state) {
    (void)state;
    static const char body[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}],\"name\":\"A\"}],"
        "\"stop\":[\"x\"],"
        "\"logit_bias\":{\"1\":1},\"stop_token_ids\":[1],\"chat_template_kwargs\":{\"a\":1},\"tools\":[]}";
    wire_request_close(&q);
    uint64_t before = ln_mem_bytes();
    int failed = 0;
    for (int64_t n = 1; n < 1000; n++) {
        ln_mem_fail_at(n, n & 1);
        ln_status st = read_body(WIRE_CHAT, body);
        int64_t left = ln_mem_fail_at(0, false);
        if (st == LN_OK) assert_non_null(q.prompts[0].request);
        else assert_true(st == LN_EMEMORY && why.http == 503);
        failed += st != LN_OK;
        wire_request_close(&q);
        assert_true(ln_mem_bytes() == before);
        if (left > 0) break;
    }
    assert_true(failed > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),      cmocka_unit_test(null_is_absent),
        cmocka_unit_test(numbers),       cmocka_unit_test(sampling_fields),
        cmocka_unit_test(lists),         cmocka_unit_test(seeds),
        cmocka_unit_test(prompts),       cmocka_unit_test(most_choices),
        cmocka_unit_test(models),        cmocka_unit_test(messages),
        cmocka_unit_test(calls),         cmocka_unit_test(calls_are_checked),
        cmocka_unit_test(tools),         cmocka_unit_test(sibling_fields),
        cmocka_unit_test(answers_go_on), cmocka_unit_test(reasoning_without_a_switch),
        cmocka_unit_test(arguments),     cmocka_unit_test(lengths),
        cmocka_unit_test(choices),       cmocka_unit_test(log_probabilities),
        cmocka_unit_test(streams),       cmocka_unit_test(refused),
        cmocka_unit_test(unknown_names), cmocka_unit_test(documents_of_json),
        cmocka_unit_test(no_memory)};
    return cmocka_run_group_tests(tests, NULL, close_last);
}
