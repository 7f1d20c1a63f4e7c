/* Calls of tools over HTTP, in the three APIs, with a model that writes one call and ends: its
 * generation_config.json forbids every token but one, which is a text and a call, and the end. */
/* run: quick */
#include "server_test.h"
#include "../think_model.h"

#define CHAT "/v1/chat/completions"
#define SAID "\"messages\":[{\"role\":\"user\",\"content\":\"Q\"}]"
#define TOOL "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}"
#define BARE "{\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}"
#define FLAT "{\"type\":\"function\",\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}"
/* What a conversation is for the model: everything that the bodies of the API say differently. */
#define TEMPLATE                                                                                         \
    "{% for m in messages %}{{ m.role }}={{ m.content }}{{ m.reasoning_content or '' }}"                 \
    "{% for c in m.tool_calls or [] %}!{{ c.id }}{{ c.function.name }}{{ c.function.arguments.a }}"      \
    "{% endfor %}{{ m.tool_call_id or '' }};{% endfor %}{% for t in tools or [] %}{{ t.function.name }}" \
    "{{ t.function.parameters.type if t.function.parameters }}{% endfor %}{# <tool_call> arguments #}"

static char dir[100];

static void make_model(void) {
    char path[200], *json;
    size_t bytes;
    ln_str s = {0};
    char base[] = "/tmp/linnet-toolserver-XXXXXX";
    assert_non_null(mkdtemp(base));
    (void)snprintf(dir, sizeof dir, "%s/m", base);
    think_make(dir, TEMPLATE, false);
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    assert_int_equal(ln_read_file(path, 1 << 20, &json, &bytes, NULL), LN_OK);
    char *at = strstr(strstr(json, "\"<s4>\""), "\"special\": true");
    assert_non_null(at);
    memcpy(at, "\"special\":false", 15);
    json = think_rename(json, "\"<s4>\"",
                        "\"Let me.\\n<tool_call>\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": "
                        "\\\"\\u00e9\\\"}}\\n</tool_call>\"");
    think_write(dir, "tokenizer.json", json, strlen(json));
    ln_free(json);
    ln_str_adds(&s, "{\"eos_token_id\":257,\"begin_suppress_tokens\":[257],\"bad_words_ids\":[[260,260]],"
                    "\"suppress_tokens\":[0");
    for (int i = 1; i < 263; i++)
        if (i != ID_EOS && i != ID_OPEN) ln_str_addf(&s, ",%d", i);
    ln_str_adds(&s, "]}");
    think_write(dir, "generation_config.json", s.data, s.len);
    ln_str_free(&s);
}

static int start(void **state) {
    (void)state;
    make_model();
    server_model = dir;
    START("--name", "m");
    return 0;
}

static int end(void **state) {
    char path[200];
    (void)kill_server(state);
    (void)snprintf(path, sizeof path, "%s/generation_config.json", dir);
    assert_int_equal(unlink(path), 0);
    think_remove(dir);
    *strrchr(dir, '/') = '\0';
    assert_int_equal(rmdir(dir), 0);
    return 0;
}

/* The text of a stream, which must have each of `parts` in this order; NULL at the end. */
static void stream_has(const char *path, const char *body, const char *const *parts) {
    reply r = post(path, body);
    assert_int_equal(r.status, 200);
    const char *from = r.body.data;
    for (; *parts; parts++) {
        const char *found = strstr(from, *parts);
        if (!found) fail_msg("'%s' does not follow in %s", *parts, r.body.data);
        from = found + strlen(*parts);
    }
    drop_reply(&r);
}

static void refused(const char *path, const char *body, const char *param, const char *right) {
    reply r = post(path, body);
    json_t *root = json_of(&r);
    if (r.status != 400) fail_msg("%s %s: %d", path, body, r.status);
    text_is(root, "error.param", param);
    if (!strstr(text_at(root, "error.message"), right))
        fail_msg("%s: %s", body, text_at(root, "error.message"));
    json_decref(root);
    drop_reply(&r);
}

/* Fields of a sibling API are an error that names the right one. */
static void sibling_fields(void **state) {
    (void)state;
    refused("/v1/responses", "{\"input\":\"Q\",\"max_tokens\":2}", "max_tokens", "max_output_tokens");
    refused("/v1/responses", "{\"input\":\"Q\",\"response_format\":{}}", "response_format", "text.format");
    refused("/v1/messages", "{" SAID ",\"max_tokens\":2,\"stop\":[\"!\"]}", "stop", "stop_sequences");
    refused("/v1/messages", "{" SAID ",\"max_tokens\":2,\"response_format\":{}}", "response_format",
            "output_config.format");
    refused(CHAT, "{" SAID ",\"max_output_tokens\":2}", "max_output_tokens", "max_tokens");
}

/* Tools that a provider runs itself are left out, and the answer says so. */
static void foreign_tools(void **state) {
    (void)state;
    json_t *a =
        answer_to("/v1/responses", "{\"input\":\"Q\",\"tools\":[" FLAT ",{\"type\":\"web_search\"}]}");
    text_is(a, "warnings.0.code", "tool_skipped");
    json_decref(a);
    a = answer_to("/v1/messages",
                  "{" SAID ",\"max_tokens\":9,\"tools\":[" BARE ",{\"type\":\"web_search_20250305\","
                  "\"name\":\"web_search\"}]}");
    text_is(a, "warnings.0.code", "tool_skipped");
    text_is(a, "stop_reason", "tool_use");
    json_decref(a);
    refused("/v1/responses", "{\"input\":\"Q\",\"tools\":[{\"type\":\"web_search\"}]}", "tools[0]",
            "leave it out");
}

/* ---- OpenAI's chat completions ---- */

static void chat(void **state) {
    (void)state;
    json_t *a = answer_to(CHAT, "{" SAID ",\"tools\":[" TOOL "]}");
    text_is(a, "choices.0.message.content", "Let me.");
    text_is(a, "choices.0.message.tool_calls.0.function.name", "f");
    text_is(a, "choices.0.message.tool_calls.0.function.arguments", "{\"a\": \"\xc3\xa9\"}");
    text_is(a, "choices.0.message.tool_calls.0.type", "function");
    text_is(a, "choices.0.finish_reason", "tool_calls");
    assert_memory_equal(text_at(a, "choices.0.message.tool_calls.0.id"), "call_", 5);
    assert_int_equal(json_array_size(at(a, "choices.0.message.tool_calls")), 1);
    assert_int_equal(int_at(a, "usage.completion_tokens"), 1);
    json_decref(a);
    a = answer_to(CHAT, "{" SAID ",\"tools\":[" TOOL "],\"tool_choice\":\"none\"}");
    assert_non_null(strstr(text_at(a, "choices.0.message.content"), "</tool_call>"));
    text_is(a, "choices.0.finish_reason", "stop");
    json_decref(a);
    a = answer_to(CHAT, "{" SAID ",\"tools\":[" TOOL "],\"n\":2}");
    assert_string_not_equal(text_at(a, "choices.0.message.tool_calls.0.id"), text_at(a, "choices.1.message."
                                                                                        "tool_calls.0.id"));
    json_decref(a);
}

static void chat_stream(void **state) {
    (void)state;
    stream_has(CHAT, "{" SAID ",\"tools\":[" TOOL "],\"stream\":true,\"logprobs\":true}",
               (const char *const[]){
                   "\"delta\":{\"role\":\"assistant\"", "\"delta\":{\"content\":\"Let me.\"}",
                   "\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_",
                   "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": "
                   "\\\"\xc3\xa9\\\"}\"}}]}",
                   "\"finish_reason\":\"tool_calls\"", "data: [DONE]", NULL});
}

/* ---- Anthropic's messages ---- */

static void messages(void **state) {
    (void)state;
    json_t *a = answer_to("/v1/messages", "{\"max_tokens\":9," SAID ",\"tools\":[" BARE "]}");
    text_is(a, "content.0.type", "text");
    text_is(a, "content.0.text", "Let me.");
    text_is(a, "content.1.type", "tool_use");
    text_is(a, "content.1.name", "f");
    text_is(a, "content.1.input.a", "\xc3\xa9");
    assert_memory_equal(text_at(a, "content.1.id"), "toolu_", 6);
    text_is(a, "stop_reason", "tool_use");
    json_decref(a);
    a = answer_to("/v1/messages", "{\"max_tokens\":9," SAID ",\"tools\":[" BARE "],\"tool_choice\":{\"type\":"
                                  "\"none\"}}");
    text_is(a, "content.0.type", "text");
    text_is(a, "stop_reason", "end_turn");
    json_decref(a);
    stream_has("/v1/messages",
               "{\"max_tokens\":9," SAID ",\"stream\":true,\"tools\":[" BARE
               "],\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":true}}",
               (const char *const[]){
                   "message_start", "\"index\":0,\"content_block\":{\"type\":\"text\"", "text_delta",
                   "content_block_stop\",\"index\":0",
                   "\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"toolu_",
                   "\"name\":\"f\",\"input\":{}}",
                   "\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\": ",
                   "content_block_stop\",\"index\":1", "\"stop_reason\":\"tool_use\"", "message_stop", NULL});
}

/* ---- OpenAI's responses ---- */

static void responses(void **state) {
    (void)state;
    json_t *a =
        answer_to("/v1/responses", "{\"input\":\"Q\",\"tools\":[" FLAT "],\"parallel_tool_calls\":false}");
    text_is(a, "output.0.type", "message");
    text_is(a, "output.0.content.0.text", "Let me.");
    text_is(a, "output.1.type", "function_call");
    text_is(a, "output.1.name", "f");
    text_is(a, "output.1.arguments", "{\"a\": \"\xc3\xa9\"}");
    text_is(a, "status", "completed");
    text_is(a, "tools.0.name", "f");
    text_is(a, "tool_choice", "auto");
    assert_true(json_is_false(at(a, "parallel_tool_calls")));
    json_decref(a);
    stream_has("/v1/responses", "{\"input\":\"Q\",\"tools\":[" FLAT "],\"stream\":true}",
               (const char *const[]){"response.created",           "response.output_item.added",
                                     "\"output_index\":0",         "\"text\":\"Let me.\"",
                                     "response.output_item.done",  "response.output_item.added",
                                     "\"output_index\":1",         "\"type\":\"function_call\",\"id\":\"fc_",
                                     "\"arguments\":\"\"",         "response.function_call_arguments.delta",
                                     "\"delta\":\"{\\\"a\\\": ",   "response.function_call_arguments.done",
                                     "response.output_item.done",  "\"status\":\"completed\"",
                                     "response.completed",         "\"output\":[{\"type\":\"message\"",
                                     "\"text\":\"Let me.\"",       "{\"type\":\"function_call\",\"id\":\"fc_",
                                     "\"status\":\"completed\"}]", NULL});
}

/* ---- ollama's chat ---- */

static void ollama(void **state) {
    (void)state;
    json_t *a = answer_to("/api/chat", "{" SAID ",\"stream\":false,\"tools\":[" TOOL "]}");
    text_is(a, "message.content", "Let me.");
    text_is(a, "message.tool_calls.0.function.name", "f");
    text_is(a, "message.tool_calls.0.function.arguments.a", "\xc3\xa9");
    text_is(a, "done_reason", "stop");
    json_decref(a);
    stream_has("/api/chat", "{" SAID ",\"tools\":[" TOOL "]}",
               (const char *const[]){"\"content\":\"Let me.\"},\"done\":false}\n",
                                     "\"content\":\"\",\"tool_calls\":[{\"id\":\"call_",
                                     "\"function\":{\"index\":0,\"name\":\"f\",\"arguments\":{\"a\": "
                                     "\"\xc3\xa9\"}}}]},"
                                     "\"done\":false}\n",
                                     "\"done\":true,\"done_reason\":\"stop\"", NULL});
}

/* ---- earlier turns ---- */

/* The tokens of the prompt and those of them that the server already had: all but the last if two bodies are
 * the same conversation. */
static void is_same(const char *path, const char *body, const char *total, const char *cached, int64_t n) {
    json_t *a = answer_to(path, body);
    const bool apart = strcmp(total, "usage.input_tokens") == 0 && strcmp(path, "/v1/messages") == 0;
    const int64_t have = int_at(a, cached), all = int_at(a, total) + (apart ? have : 0);
    if (all != n || have != n - 1)
        fail_msg("%s: %d tokens, %d known, expected %d", path, (int)all, (int)have, (int)n);
    json_decref(a);
}

static void results_of_tools(void **state) {
    (void)state;
    static const char chat_body[] =
        "{\"max_tokens\":1,\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\","
        "\"content\":\"Q\"},"
        "{\"role\":\"assistant\",\"content\":\"Hm\",\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\","
        "\"function\":{"
        "\"name\":\"f\",\"arguments\":\"{\\\"a\\\": "
        "5}\"}},{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":{\"a\":6}}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"R\"},"
        "{\"role\":\"tool\",\"tool_call_id\":\"c2\",\"content\":\"T\\nU\"},"
        "{\"role\":\"user\",\"content\":\"So\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{"
        "\"id\":\"c3\","
        "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c3\","
        "\"content\":\"\"}],"
        "\"tools\":[" TOOL "]}";
    static const char messages_body[] =
        "{\"max_tokens\":1,\"system\":\"S\",\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":"
        "\"assistant\","
        "\"content\":[{\"type\":\"text\",\"text\":\"Hm\"},{\"type\":\"tool_use\",\"id\":\"c1\",\"name\":"
        "\"f\",\"input\":{\"a\":5}},"
        "{\"type\":\"tool_use\",\"id\":\"c2\",\"name\":\"f\",\"input\":{\"a\":6}}]},{\"role\":\"user\","
        "\"content\":["
        "{\"type\":\"tool_result\",\"tool_use_id\":\"c1\",\"content\":\"R\"},{\"type\":\"tool_result\","
        "\"tool_use_id\":\"c2\","
        "\"is_error\":true,\"content\":[{\"type\":\"text\",\"text\":\"T\"},{\"type\":\"text\",\"text\":\"U\"}"
        "]},"
        "{\"type\":\"text\",\"text\":\"So\"}]},{\"role\":\"assistant\",\"content\":[{\"type\":\"redacted_"
        "thinking\","
        "\"data\":\"x\"},{\"type\":\"tool_use\",\"id\":\"c3\",\"name\":\"f\",\"input\":{}}]},{\"role\":"
        "\"user\",\"content\":["
        "{\"type\":\"tool_result\",\"tool_use_id\":\"c3\"}]}],\"tools\":[" BARE "]}";
    static const char responses_body[] =
        "{\"max_output_tokens\":1,\"instructions\":\"S\",\"input\":[{\"role\":\"user\",\"content\":\"Q\"},{"
        "\"type\":\"message\","
        "\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"Hm\"}]},{\"type\":"
        "\"function_call\","
        "\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{\\\"a\\\":5}\"},{\"type\":\"function_call\","
        "\"call_id\":\"c2\","
        "\"name\":\"f\",\"arguments\":\"{\\\"a\\\":6}\"},{\"type\":\"function_call_output\",\"call_id\":"
        "\"c1\",\"output\":\"R\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c2\",\"output\":[{\"type\":\"input_text\",\"text\":"
        "\"T\"},"
        "{\"type\":\"input_text\",\"text\":\"U\"}]},{\"role\":\"user\",\"content\":\"So\"},{\"type\":"
        "\"reasoning\"},"
        "{\"type\":\"function_call\",\"call_id\":\"c3\",\"name\":\"f\",\"arguments\":\"{}\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c3\",\"output\":\"\"}],\"tools\":[" FLAT "]}";
    /* results without ids belong to the calls of their tool, or by their place */
    static const char ollama_body[] =
        "{\"stream\":false,\"options\":{\"num_predict\":1},\"messages\":[{\"role\":\"system\",\"content\":"
        "\"S\"},{"
        "\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":\"Hm\",\"tool_calls\":[{"
        "\"id\":"
        "\"c1\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":5}}},{\"id\":\"c2\",\"function\":{\"name\":"
        "\"f\",\"arguments\":{\"a\":6}}}]},{\"role\":\"tool\",\"content\":\"R\"},{\"role\":\"tool\","
        "\"content\":\"T\\nU\"},{\"role\":\"user\",\"content\":\"So\"},{\"role\":\"assistant\",\"tool_"
        "calls\":[{"
        "\"id\":\"c3\",\"function\":{\"name\":\"f\",\"arguments\":{}}}]},{\"role\":\"tool\",\"tool_name\":"
        "\"f\","
        "\"content\":\"\"}],\"tools\":[" TOOL "]}";
    json_t *a = answer_to(CHAT, chat_body);
    const int64_t n = int_at(a, "usage.prompt_tokens");
    assert_true(n > 80);
    json_decref(a);
    const int64_t reused = status_at("tokens.cached");
    a = answer_to("/api/chat", ollama_body);
    assert_int_equal(int_at(a, "prompt_eval_count"), n);
    assert_int_equal(status_at("tokens.cached") - reused, n - 1);
    json_decref(a);
    is_same(CHAT, chat_body, "usage.prompt_tokens", "usage.prompt_tokens_details.cached_tokens", n);
    is_same("/v1/messages", messages_body, "usage.input_tokens", "usage.cache_read_input_tokens", n);
    is_same("/v1/responses", responses_body, "usage.input_tokens", "usage.input_tokens_details.cached_tokens",
            n);
    a = answer_to("/v1/messages/count_tokens", messages_body);
    assert_int_equal(int_at(a, "input_tokens"), n);
    json_decref(a);
}

/* Thinking of an earlier turn is its reasoning. */
static void thinking(void **state) {
    (void)state;
    json_t *a = answer_to(CHAT, "{\"max_tokens\":1,\"messages\":[{\"role\":\"assistant\",\"content\":\"a\","
                                "\"reasoning_content\":\"because\"}],\"tools\":[" TOOL "]}");
    const int64_t n = int_at(a, "usage.prompt_tokens");
    json_decref(a);
    is_same("/v1/messages",
            "{\"max_tokens\":1,\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\","
            "\"thinking\":"
            "\"because\",\"signature\":\"\"},{\"type\":\"text\",\"text\":\"a\"}]}],\"tools\":[" BARE "]}",
            "usage.input_tokens", "usage.cache_read_input_tokens", n);
}

/* The OpenAPI document has tools if the model's calls are read. */
static void document(void **state) {
    (void)state;
    reply r = call("GET", "/openapi.json", "", NULL);
    json_t *a = json_of(&r);
    assert_non_null(at(a, "components.schemas.ChatRequest.properties.tools"));
    assert_non_null(at(a, "components.schemas.ChatRequest.properties.messages"));
    assert_non_null(at(a, "components.schemas.Tool.properties.function"));
    json_decref(a);
    drop_reply(&r);
}

/* ---- refusals ---- */

static void refusals(void **state) {
    (void)state;
#define ASK             "{\"max_tokens\":1,"
#define USER(content)   "\"messages\":[{\"role\":\"user\",\"content\":[" content "]}]}"
#define HELPER(content) "\"messages\":[{\"role\":\"assistant\",\"content\":[" content "]}]}"
    static const struct {
        const char *path, *body, *param;
    } rows[] = {
        {CHAT, "{" SAID ",\"tools\":[{\"type\":\"web_search\"}]}", "tools[0]"},
        {"/v1/messages", ASK SAID ",\"tools\":5}", "tools"},
        {"/v1/messages", ASK SAID ",\"tools\":[5]}", "tools[0]"},
        {"/v1/messages", ASK SAID ",\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]}",
         "tools[0]"},
        {"/v1/messages", ASK SAID ",\"tools\":[{\"name\":\"a b\"}]}", "tools[0].name"},
        {"/v1/messages", ASK SAID ",\"tools\":[" BARE "],\"tool_choice\":\"auto\"}", "tool_choice"},
        {"/v1/messages", ASK SAID ",\"tools\":[" BARE "],\"tool_choice\":{\"type\":\"tool\"}}",
         "tool_choice"},
        {"/v1/messages", ASK SAID ",\"tools\":[" BARE "],\"tool_choice\":{\"type\":\"tool\",\"name\":\"g\"}}",
         "tool_choice"},
        {"/v1/messages", ASK SAID ",\"tool_choice\":{\"type\":\"any\"}}", "tool_choice"},
        {"/v1/messages",
         ASK SAID ",\"tools\":[" BARE "],\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":1}"
                  "}",
         "tool_choice.disable_parallel_tool_use"},
        {"/v1/messages", ASK USER("{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":{}}"),
         "messages[0].content"},
        {"/v1/messages", ASK USER("{\"type\":\"tool_result\"}"), "messages[0].content"},
        {"/v1/messages",
         ASK USER("{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"content\":[{\"type\":\"image\"}]}"),
         "messages[0].content"},
        {"/v1/messages", ASK HELPER("{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":\"{}\"}"),
         "messages[0].content"},
        {"/v1/messages", ASK HELPER("{\"type\":\"tool_result\",\"tool_use_id\":\"a\"}"),
         "messages[0].content"},
        {"/v1/responses", "{\"input\":\"Q\",\"tools\":{}}", "tools"},
        {"/v1/responses", "{\"input\":\"Q\",\"tools\":[{\"type\":\"web_search\"}]}", "tools[0]"},
        {"/v1/responses", "{\"input\":\"Q\",\"tools\":[" FLAT "],\"tool_choice\":{\"type\":\"web_search\"}}",
         "tool_choice"},
        {"/v1/responses",
         "{\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":{}}]}",
         "input[0]"},
        {"/v1/responses", "{\"input\":[{\"type\":\"function_call_output\",\"output\":\"x\"}]}", "input[0]"},
        {"/v1/responses", "{\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":5}]}",
         "input[0].output"},
    };
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        reply r = post(rows[i].path, rows[i].body);
        json_t *a = json_of(&r);
        if (r.status != 400 || strcmp(text_at(a, "error.param"), rows[i].param) != 0)
            fail_msg("%s: %d %s", rows[i].body, r.status, r.body.data);
        json_decref(a);
        drop_reply(&r);
    }
}

/* Documents of /v1/messages are text of the message: the same conversation as one text. */
static void text_documents(void **state) {
    (void)state;
    static const char plain[] = "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":"
                                "\"Title\\nFor you\\nFirst\\nSecond\\nThird"
                                "\\nFound\\nhttp://a\\nFourth\\nWhat?\"}]}";
    static const char documents[] =
        "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":["
        "{\"type\":\"document\",\"title\":\"Title\",\"context\":\"For you\",\"source\":{\"type\":\"text\","
        "\"media_type\":\"text/plain\",\"data\":\"First\"}},"
        "{\"type\":\"document\",\"source\":{\"type\":\"content\",\"content\":[{\"type\":\"text\",\"text\":"
        "\"Second\"},{\"type\":\"text\",\"text\":\"Third\"}]},\"citations\":{\"enabled\":false}},"
        "{\"type\":\"search_result\",\"title\":\"Found\",\"source\":\"http://"
        "a\",\"content\":[{\"type\":\"text\","
        "\"text\":\"Fourth\"}]},"
        "{\"type\":\"text\",\"text\":\"What?\"}]}]}";
    json_t *a = answer_to("/v1/messages", plain);
    const int64_t n = int_at(a, "usage.input_tokens") + int_at(a, "usage.cache_read_input_tokens");
    assert_true(n > 30);
    json_decref(a);
    is_same("/v1/messages", documents, "usage.input_tokens", "usage.cache_read_input_tokens", n);
    refused("/v1/messages",
            "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"document\","
            "\"source\":{"
            "\"type\":\"base64\",\"media_type\":\"application/pdf\",\"data\":\"JVBE\"}}]}]}",
            "messages[0].content", "text/plain");
    refused("/v1/messages",
            "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"document\","
            "\"source\":{"
            "\"type\":\"text\",\"data\":\"a\"},\"citations\":{\"enabled\":true}}]}]}",
            "messages[0].content", "citations");
}

/* Errors of tools name the field as the client sent it, also at the beginning of the message. */
static void errors_name_the_clients_fields(void **state) {
    (void)state;
    refused("/v1/messages", "{" SAID ",\"max_tokens\":1,\"tools\":[" BARE ",{\"name\":\"a b\"}]}",
            "tools[1].name", "tools[1].name: ");
    refused("/v1/messages", "{" SAID ",\"max_tokens\":1,\"tools\":[{\"name\":\"a\",\"input_schema\":[]}]}",
            "tools[0].input_schema", "tools[0].input_schema: ");
    refused("/v1/messages",
            "{" SAID ",\"max_tokens\":1,\"tool_choice\":{\"type\":\"any\"},\"tools\":[{\"name\":\"a\","
            "\"input_schema\":"
            "{\"type\":\"string\"}}]}",
            "tools[0].input_schema", "tools[0].input_schema: ");
    refused("/v1/messages", "{" SAID ",\"max_tokens\":1,\"stop_sequences\":[\"a\",\"\"]}",
            "stop_sequences[1]", "stop_sequences[1]: ");
    refused("/v1/responses", "{\"input\":\"Q\",\"tools\":[{\"type\":\"function\",\"name\":\"a b\"}]}",
            "tools[0].name", "tools[0].name: ");
    refused("/v1/responses",
            "{\"input\":\"Q\",\"tools\":[{\"type\":\"function\",\"name\":\"a\",\"parameters\":7}]}",
            "tools[0].parameters", "tools[0].parameters: ");
    refused("/v1/responses", "{\"input\":\"Q\",\"max_output_tokens\":-2}", "max_output_tokens",
            "max_output_tokens: ");
    refused(CHAT, "{" SAID ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]}",
            "tools[0].function.name", "tools[0].function.name: ");
    /* messages without content are named, whatever comes before them */
    refused(CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\"}]}",
            "messages[1].content", "messages[1].content: ");
    refused("/v1/messages",
            "{\"max_tokens\":1,\"system\":\"S\",\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{"
            "\"role\":"
            "\"assistant\",\"content\":null}]}",
            "messages[1].content", "messages[1].content: ");
    refused("/v1/responses",
            "{\"instructions\":\"S\",\"input\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":"
            "\"assistant\"}]}",
            "input[1].content", "input[1].content: ");
    refused("/v1/responses", "{\"instructions\":\"S\",\"input\":[{\"role\":\"wizard\",\"content\":\"Q\"}]}",
            "input[0].role", "input[0].role: ");
}

/* ---- calls that are required, of the bundled model with a template of this format ---- */

#define SCHEMA                                                                                               \
    "{\"type\":\"object\",\"properties\":{\"city\":{\"enum\":[\"Paris\",\"Rome\"]}},\"required\":[\"city\"]" \
    ","                                                                                                      \
    "\"additionalProperties\":false}"

/* Asserts that the text is {"city": ...}. */
static void is_city(const char *arguments) {
    json_t *a = parse(arguments, strlen(arguments));
    const char *city = text_at(a, "city");
    if (json_object_size(a) != 1 || (strcmp(city, "Paris") != 0 && strcmp(city, "Rome") != 0))
        fail_msg("arguments %s", arguments);
    json_decref(a);
}

static void required(void **state) {
    (void)state;
    char path[] = "/tmp/linnet-required-XXXXXX.jinja";
    const int fd = mkstemps(path, 6);
    assert_true(fd >= 0);
    (void)dprintf(fd, "{%% for m in messages %%}{{ m.content }}{%% endfor %%}{# <tool_call> arguments #}");
    (void)close(fd);
    assert_int_equal(stop(), 0);
    server_model = LN_ROOT "/models/tiny";
    START("--chat-template", path);
    (void)unlink(path);
    json_t *a = answer_to(CHAT, "{" SAID ",\"max_tokens\":200,\"parallel_tool_calls\":false,\"tool_choice\":"
                                         "\"required\","
                                "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"w\","
                                "\"parameters\":" SCHEMA "}}]}");
    text_is(a, "choices.0.finish_reason", "tool_calls");
    assert_true(json_is_null(at(a, "choices.0.message.content")));
    assert_int_equal(json_array_size(at(a, "choices.0.message.tool_calls")), 1);
    is_city(text_at(a, "choices.0.message.tool_calls.0.function.arguments"));
    json_decref(a);
    a = answer_to("/v1/messages",
                  "{" SAID ",\"max_tokens\":200,\"tool_choice\":{\"type\":\"tool\",\"name\":\"w\"},"
                  "\"tools\":[" BARE ",{\"name\":\"w\",\"input_schema\":" SCHEMA "}]}");
    text_is(a, "stop_reason", "tool_use");
    text_is(a, "content.0.type", "tool_use");
    text_is(a, "content.0.name", "w");
    assert_int_equal(json_array_size(at(a, "content")), 1);
    assert_true(json_is_string(at(a, "content.0.input.city")));
    json_decref(a);
    a = answer_to("/v1/messages", "{" SAID ",\"max_tokens\":200,\"tool_choice\":{\"type\":\"any\","
                                  "\"disable_parallel_tool_use\":true},\"tools\":[{\"name\":\"w\",\"input_"
                                  "schema\":" SCHEMA "}]}");
    text_is(a, "content.0.name", "w");
    json_decref(a);
    a = answer_to("/v1/responses", "{\"input\":\"Q\",\"tool_choice\":{\"type\":\"function\",\"name\":\"w\"},"
                                   "\"tools\":[{\"type\":\"function\",\"name\":\"w\",\"strict\":true,"
                                   "\"parameters\":" SCHEMA "}]}");
    text_is(a, "output.0.type", "function_call");
    is_city(text_at(a, "output.0.arguments"));
    json_decref(a);
    a = answer_to(CHAT, "{" SAID ",\"max_tokens\":3,\"tool_choice\":\"required\",\"tools\":[" TOOL "]}");
    text_is(a, "choices.0.finish_reason", "length"); /* a call that was cut is text */
    const char *text = text_at(a, "choices.0.message.content");
    assert_true(*text && strncmp("<tool_call>\n", text, strlen(text)) == 0);
    json_decref(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sibling_fields),
                                       cmocka_unit_test(foreign_tools),
                                       cmocka_unit_test(chat),
                                       cmocka_unit_test(chat_stream),
                                       cmocka_unit_test(messages),
                                       cmocka_unit_test(responses),
                                       cmocka_unit_test(ollama),
                                       cmocka_unit_test(thinking),
                                       cmocka_unit_test(results_of_tools),
                                       cmocka_unit_test(document),
                                       cmocka_unit_test(refusals),
                                       cmocka_unit_test(text_documents),
                                       cmocka_unit_test(errors_name_the_clients_fields),
                                       cmocka_unit_test(required)};
    return cmocka_run_group_tests(tests, start, end);
}
