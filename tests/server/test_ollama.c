/* ollama's API: bodies, options, streams of lines, counts, errors, facts of the model. Calls of tools are in
 * test_call_protocols. */
/* run: quick */
#include "server_test.h"

#define SAID  "\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a short story.\"}]"
#define SHORT "\"options\":{\"temperature\":0,\"num_predict\":12}"
#define STORY "Near the hill lived a little boy called Peter. It was"

/* Calls fn for each line of a stream, which must be an object. Returns how many there are. */
static size_t each_line(const ln_str *body, void (*fn)(void *user, const json_t *line), void *user) {
    size_t n = 0;
    for (const char *p = body->data, *end; p && *p; p = end + 1, n++) {
        end = strchr(p, '\n');
        if (!end) fail_msg("a line does not end: '%s'", p);
        json_t *line = parse(p, (size_t)(end - p));
        assert_true(json_is_object(line));
        fn(user, line);
        json_decref(line);
    }
    return n;
}

typedef struct streamed {
    ln_str text, tokens;
    const char *path; /* of the text in a line */
    size_t n_done;
    json_t *last;
} streamed;

static void read_line(void *user, const json_t *line) {
    streamed *s = user;
    size_t i;
    json_t *token;
    assert_int_equal(s->n_done, 0); /* nothing follows the end */
    ln_str_adds(&s->text, text_at(line, s->path));
    json_array_foreach((json_t *)(uintptr_t)at(line, "logprobs"), i, token) {
        ln_str_adds(&s->tokens, text_at(token, "token"));
        assert_int_equal(json_array_size(at(token, "top_logprobs")), 2);
    }
    s->n_done += json_is_true(at(line, "done"));
    json_decref(s->last);
    s->last = json_deep_copy(line);
}

static streamed stream(const char *path, const char *body, const char *text_path) {
    streamed s = {.path = text_path};
    reply r = post(path, body);
    if (r.status != 200) fail_msg("%s: %d %s", body, r.status, r.body.data);
    assert_string_equal(field_of(&r, "content-type"), "application/x-ndjson");
    assert_true(each_line(&r.body, read_line, &s) > 1);
    assert_int_equal(s.n_done, 1);
    drop_reply(&r);
    return s;
}

static void drop(streamed *s) {
    ln_str_free(&s->text);
    ln_str_free(&s->tokens);
    json_decref(s->last);
}

/* ---- answers ---- */

static void counts_are_true(const json_t *a, int64_t prompt, int64_t generated) {
    assert_int_equal(int_at(a, "prompt_eval_count"), prompt);
    assert_int_equal(int_at(a, "eval_count"), generated);
    assert_int_equal(int_at(a, "load_duration"), 0);
    const int64_t total = int_at(a, "total_duration"), read = int_at(a, "prompt_eval_duration"),
                  wrote = int_at(a, "eval_duration");
    assert_true(read > 0 && wrote > 0 && total >= read + wrote && total < 600000000000);
}

static void chat(void **state) {
    (void)state;
    json_t *a = answer_to("/api/chat", "{\"model\":\"tiny:latest\"," SAID "," SHORT ",\"stream\":false}");
    text_is(a, "message.content", STORY);
    text_is(a, "message.role", "assistant");
    text_is(a, "model", "tiny");
    text_is(a, "done_reason", "length");
    assert_true(json_is_true(at(a, "done")));
    assert_int_equal(strlen(text_at(a, "created_at")), strlen("2026-11-28T07:06:32.683219346Z"));
    counts_are_true(a, 14, 12);
    assert_null(at(a, "warnings"));
    json_decref(a);
    /* a stream is the default, and the same text; log-probabilities go with their tokens */
    streamed s =
        stream("/api/chat", "{" SAID "," SHORT ",\"logprobs\":true,\"top_logprobs\":2}", "message.content");
    assert_string_equal(s.text.data, STORY);
    assert_string_equal(s.tokens.data, STORY);
    text_is(s.last, "done_reason", "length");
    counts_are_true(s.last, 14, 12);
    drop(&s);
}

static void generate(void **state) {
    (void)state;
    json_t *a =
        answer_to("/api/generate", "{\"prompt\":\"Tell me a short story.\"," SHORT ",\"stream\":false}");
    text_is(a, "response", STORY); /* through the template */
    json_decref(a);
    streamed s = stream("/api/generate", "{\"prompt\":\"Tell me a short story.\"," SHORT "}", "response");
    assert_string_equal(s.text.data, STORY);
    drop(&s);
    a = answer_to("/api/generate", "{\"prompt\":\"Once upon\",\"raw\":true," SHORT ",\"stream\":false}");
    assert_memory_equal(text_at(a, "response"), " a time", 7);
    json_decref(a);
    json_t *b = answer_to("/api/generate", "{\"prompt\":\"Q\",\"system\":\"S\"," SHORT ",\"stream\":false}");
    a = answer_to("/api/chat", "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\","
                               "\"content\":\"Q\"}]," SHORT ",\"stream\":false}");
    text_is(a, "message.content", text_at(b, "response"));
    assert_int_equal(int_at(a, "prompt_eval_count"), int_at(b, "prompt_eval_count"));
    json_decref(a);
    json_decref(b);
}

/* Options mean what the same fields of the other paths mean. */
static void options_are_read(void **state) {
    (void)state;
    static const struct {
        const char *ollama, *chat;
    } rows[] = {
        {"\"seed\":7,\"temperature\":0.9", "\"seed\":7,\"temperature\":0.9"},
        {"\"seed\":7,\"top_k\":3,\"top_p\":0.8,\"min_p\":0.1", "\"seed\":7,\"top_k\":3,\"top_p\":0.8,\"min_"
                                                               "p\":0.1"},
        {"\"seed\":7,\"repeat_penalty\":1.5", "\"seed\":7,\"repetition_penalty\":1.5,\"repeat_last_n\":64"},
        {"\"seed\":7,\"repeat_penalty\":1.5,\"repeat_last_n\":2", "\"seed\":7,\"repetition_penalty\":1.5,"
                                                                  "\"repeat_last_n\":2"},
        {"\"seed\":7,\"presence_penalty\":1,\"frequency_penalty\":1", "\"seed\":7,\"presence_penalty\":1,"
                                                                      "\"frequency_penalty\":1"},
        {"\"temperature\":0,\"stop\":[\" boy\"]", "\"temperature\":0,\"stop\":[\" boy\"]"},
        {"\"temperature\":0,\"stop\":\" boy\",\"num_gpu\":1,\"num_thread\":3,\"typical_p\":1,\"mirostat\":0,"
         "\"mirostat_tau\":5,\"num_ctx\":64,\"penalize_newline\":true",
         "\"temperature\":0,\"stop\":[\" boy\"]"},
    };
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        char body[600];
        (void)snprintf(body, sizeof body, "{" SAID ",\"stream\":false,\"options\":{\"num_predict\":24,%s}}",
                       rows[i].ollama);
        json_t *a = answer_to("/api/chat", body);
        (void)snprintf(body, sizeof body, "{" SAID ",\"max_tokens\":24,%s}", rows[i].chat);
        json_t *b = answer_to("/v1/chat/completions", body);
        text_is(a, "message.content", text_at(b, "choices.0.message.content"));
        text_is(a, "done_reason", text_at(b, "choices.0.finish_reason"));
        json_decref(a);
        json_decref(b);
    }
}

/* Without num_predict, or with a negative one, an answer goes to its end or the context's, raw ones too. */
static void lengths(void **state) {
    (void)state;
    static const char *const rows[] = {"{}", "{\"num_predict\":-1}", "{\"num_predict\":-2}"};
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        char body[300];
        (void)snprintf(body, sizeof body,
                       "{\"prompt\":\"Once upon\",\"raw\":true,\"stream\":false,\"options\":%s}", rows[i]);
        json_t *a = answer_to("/api/generate", body);
        assert_true(int_at(a, "eval_count") > 16);
        json_decref(a);
    }
    json_t *a = answer_to("/api/chat", "{" SAID ",\"stream\":false,\"options\":{\"num_predict\":0}}");
    assert_int_equal(int_at(a, "eval_count"), 0);
    json_decref(a);
}

static void formats(void **state) {
    (void)state;
    json_t *a = answer_to("/api/chat", "{" SAID ",\"stream\":false,\"format\":{\"type\":\"object\","
                                       "\"properties\":{\"ok\":{\"type\":"
                                       "\"boolean\"}},\"required\":[\"ok\"]}}");
    json_t *o = parse(text_at(a, "message.content"), strlen(text_at(a, "message.content")));
    assert_true(json_is_boolean(at(o, "ok")) && json_object_size(o) == 1);
    json_decref(o);
    json_decref(a);
    a = answer_to("/api/generate",
                  "{\"prompt\":\"Q\",\"stream\":false,\"format\":\"json\",\"options\":{\"seed\":1,"
                  "\"num_predict\":300}}");
    if (strcmp(text_at(a, "done_reason"), "stop") == 0) {
        o = parse(text_at(a, "response"), strlen(text_at(a, "response")));
        assert_true(json_is_object(o));
        json_decref(o);
    }
    json_decref(a);
}

/* What cannot be had is said. */
static void warnings(void **state) {
    (void)state;
    json_t *a = answer_to("/api/chat", "{" SAID ",\"stream\":false,\"options\":{\"num_ctx\":4096,\"num_"
                                                "predict\":1}}");
    text_is(a, "warnings.0.code", "option_ignored");
    assert_non_null(strstr(text_at(a, "warnings.0.message"), "512"));
    json_decref(a);
}

/* A request without a text asks for the model to be loaded. */
static void loading(void **state) {
    (void)state;
    json_t *a = answer_to("/api/generate", "{\"model\":\"tiny\",\"keep_alive\":-1}");
    text_is(a, "done_reason", "load");
    text_is(a, "response", "");
    json_decref(a);
    a = answer_to("/api/chat", "{\"model\":\"tiny\",\"messages\":[]}");
    text_is(a, "message.content", "");
    assert_true(json_is_true(at(a, "done")));
    json_decref(a);
}

/* ---- errors ---- */

static void errors(void **state) {
    (void)state;
    static const struct {
        const char *path, *body;
        int status;
        const char *param, *says;
    } rows[] = {
        {"/api/chat", "{\"model\":\"x\"," SAID "}", 404, "model", "'x'"},
        {"/api/chat", "{\"model\":\"x\"}", 404, "model", "'x'"},
        {"/api/chat", "{\"model\":7}", 400, "model", "text"},
        {"/api/chat", "{}", 400, "messages", "is required"},
        {"/api/generate", "{\"stream\":false}", 400, "prompt", "is required"},
        {"/api/chat", "{" SAID ",\"options\":[]}", 400, "options", "object"},
        {"/api/chat", "{" SAID ",\"options\":{\"temperature\":7}}", 400, "options.temperature", "0 to 2"},
        {"/api/chat", "{" SAID ",\"options\":{\"num_predict\":\"7\"}}", 400, "options.num_predict",
         "integer"},
        {"/api/chat", "{" SAID ",\"options\":{\"repeat_penalty\":0}}", 400, "options.repeat_penalty",
         "number"},
        {"/api/chat", "{" SAID ",\"options\":{\"mirostat\":2}}", 400, "options.mirostat", "not supported"},
        {"/api/chat", "{" SAID ",\"options\":{\"stop\":[\"a\",\"\"]}}", 400, "options.stop[1]", "1 to"},
        {"/api/chat", "{" SAID ",\"options\":{\"num_ctx\":0}}", 400, "options.num_ctx", "positive"},
        {"/api/chat", "{" SAID ",\"options\":{\"penalize_newline\":false}}", 400, "options.penalize_newline",
         "newlines"},
        {"/api/chat", "{" SAID ",\"max_tokens\":7}", 400, "max_tokens", "options.num_predict"},
        {"/api/chat", "{" SAID ",\"format\":\"yaml\"}", 400, "format", "json"},
        {"/api/chat", "{" SAID ",\"format\":{\"not\":{}}}", 400, "format", "format: "},
        {"/api/chat", "{" SAID ",\"think\":true}", 400, "think", "does not support"},
        {"/api/chat", "{" SAID ",\"think\":\"much\"}", 400, "think", "high"},
        {"/api/chat", "{" SAID ",\"stream\":1}", 400, "stream", "true or false"},
        {"/api/chat", "{\"messages\":5}", 400, "messages", "list"},
        {"/api/chat", "{\"messages\":[{\"role\":\"user\",\"content\":\"\",\"tool_calls\":false}]}", 400,
         "messages[0].tool_calls", "list"},
        {"/api/chat", "{\"messages\":[{\"role\":\"user\",\"content\":\"\",\"tool_calls\":\"\"}]}", 400,
         "messages[0].tool_calls", "list"},
        {"/api/chat", "{\"messages\":[{\"role\":\"tool\",\"content\":\"\",\"tool_call_id\":{}}]}", 400,
         "messages[0].tool_call_id", "text"},
        {"/api/chat", "{" SAID ",\"options\":{\"num_predict\":-3}}", 400, "options.num_predict", "-2"},
        {"/api/chat", "{\"model\":\"tiny\",\"messages\":false}", 400, "messages", "list"},
        {"/api/chat", "{" SAID ",\"format\":false}", 400, "format", "json"},
        {"/api/chat", "{\"messages\":[5]}", 400, "messages[0]", "object"},
        {"/api/chat", "{\"messages\":[{\"role\":\"user\"}]}", 400, "messages[0].content", "nothing"},
        {"/api/chat", "{\"messages\":[{\"role\":\"user\",\"content\":\"\",\"images\":[\"aGk=\"]}]}", 400,
         "messages[0].images", "text"},
        {"/api/chat",
         "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":"
         "\"f\"}}]}]}",
         400, "messages[0].tool_calls", "arguments"},
        {"/api/chat", "{\"prompt\":\"Q\"}", 400, "prompt", "/api/generate"},
        {"/api/generate", "{" SAID "}", 400, "messages", "/api/chat"},
        {"/api/generate", "{\"prompt\":5}", 400, "prompt", "text"},
        {"/api/generate", "{\"prompt\":\"Q\",\"context\":[1]}", 400, "context", "/api/chat"},
        {"/api/generate", "{\"prompt\":\"Q\",\"template\":\"T\"}", 400, "template", "raw"},
        {"/api/generate", "{\"prompt\":\"Q\",\"suffix\":\"T\"}", 400, "suffix", "filled in"},
        {"/api/generate", "{\"prompt\":\"Q\",\"images\":[\"aGk=\"]}", 400, "images", "text"},
        {"/api/generate", "{\"prompt\":\"Q\",\"raw\":true,\"system\":\"S\"}", 400, "system", "raw"},
        {"/api/generate", "{\"prompt\":\"Q\",\"raw\":1}", 400, "raw", "true or false"},
        {"/api/embed", "{}", 400, "input", "text"},
        {"/api/embed", "{\"input\":[\"a\",[1]]}", 400, "input[1]", "text"},
        {"/api/embed", "{\"input\":\"a\",\"model\":\"x\"}", 404, "model", "'x'"},
        {"/api/embeddings", "{\"prompt\":[\"a\"]}", 400, "prompt", "text"},
        {"/api/show", "{}", 400, "model", "text"},
        {"/api/show", "{\"model\":\"x\"}", 404, "model", "'x'"},
        {"/api/pull", "{\"model\":\"x\"}", 404, "", "not downloaded"},
    };
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        reply r = post(rows[i].path, rows[i].body);
        json_t *a = json_of(&r);
        const char *param = json_string_value(at(a, "param"));
        if (r.status != rows[i].status || strcmp(param ? param : "", rows[i].param) != 0 ||
            !strstr(text_at(a, "error"), rows[i].says))
            fail_msg("%s %s: %d %s", rows[i].path, rows[i].body, r.status, r.body.data);
        json_decref(a);
        drop_reply(&r);
    }
    reply r = call("GET", "/api/chat", "", NULL);
    json_t *a = json_of(&r);
    assert_int_equal(r.status, 405);
    assert_true(json_is_string(at(a, "error")));
    json_decref(a);
    drop_reply(&r);
}

/* Programs send any Content-Type or none; what a page's script sends unasked is rejected. */
static void types_of_bodies(void **state) {
    (void)state;
    static const struct {
        const char *path, *fields;
        int status;
    } rows[] = {
        {"/api/chat", "", 200},
        {"/api/chat", "Content-Type: application/x-www-form-urlencoded\r\n", 200},
        {"/api/chat", "Content-Type: text/plain\r\nReferer: http://evil/\r\n", 415},
        {"/api/chat", "Content-Type: text/plain\r\nSec-Fetch-Site: cross-site\r\n", 415},
        {"/api/chat", "Content-Type: text/plain\r\nOrigin: http://evil\r\n", 403},
        {"/api/chat", "Content-Encoding: gzip\r\n", 415},
        {"/v1/chat/completions", "Content-Type: text/plain\r\n", 415},
    };
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        reply r = call("POST", rows[i].path, rows[i].fields, "{" SAID "," SHORT "}");
        if (r.status != rows[i].status) fail_msg("%s %s: %d", rows[i].path, rows[i].fields, r.status);
        drop_reply(&r);
    }
}

/* ---- models ---- */

static void models(void **state) {
    (void)state;
    reply r = call("GET", "/api/tags", "", NULL);
    json_t *a = json_of(&r);
    text_is(a, "models.0.name", "tiny");
    text_is(a, "models.1.model", "gpt-4");
    assert_true(int_at(a, "models.0.size") > 1000000);
    text_is(a, "models.0.details.format", "safetensors");
    json_decref(a);
    drop_reply(&r);
    a = answer_to("/api/show", "{\"model\":\"tiny:latest\"}");
    text_is(a, "model_info.general.architecture", "(none)"); /* the dots are part of the name */
    assert_true(ln_json_is_text(json_object_get(at(a, "model_info"), "general.architecture"), "qwen3"));
    assert_int_equal(json_integer_value(json_object_get(at(a, "model_info"), "qwen3.context_length")), 512);
    assert_non_null(strstr(text_at(a, "template"), "<|im_start|>"));
    assert_non_null(strstr(text_at(a, "parameters"), "temperature"));
    text_is(a, "capabilities.0", "completion");
    json_decref(a);
    static const char *const gets[] = {"/api/ps", "/api/version"};
    for (size_t i = 0; i < LN_COUNT(gets); i++) {
        r = call("GET", gets[i], "", NULL);
        assert_int_equal(r.status, 200);
        drop_reply(&r);
    }
}

/* The vectors of /v1/embeddings. */
static void embeddings(void **state) {
    (void)state;
    json_t *a = answer_to("/api/embed", "{\"input\":[\"Once upon\",\"a "
                                        "time\"],\"truncate\":true,\"keep_alive\":\"5m\"}");
    json_t *b = answer_to("/v1/embeddings", "{\"input\":[\"Once upon\",\"a time\"]}");
    assert_int_equal(json_array_size(at(a, "embeddings")), 2);
    assert_true(json_equal(at(a, "embeddings.0"), at(b, "data.0.embedding")));
    assert_true(json_equal(at(a, "embeddings.1"), at(b, "data.1.embedding")));
    assert_int_equal(int_at(a, "prompt_eval_count"), int_at(b, "usage.prompt_tokens"));
    json_decref(b);
    json_decref(a);
    a = answer_to("/api/embeddings", "{\"prompt\":\"Once upon\"}");
    b = answer_to("/v1/embeddings", "{\"input\":\"Once upon\",\"normalize\":false}");
    assert_true(json_equal(at(a, "embedding"), at(b, "data.0.embedding")));
    json_decref(b);
    json_decref(a);
}

static int start_server(void **state) {
    (void)state;
    START("--log-format", "none", "--parallel", "2", "--ctx", "512", "--alias", "gpt-4");
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat),       cmocka_unit_test(generate),        cmocka_unit_test(options_are_read),
        cmocka_unit_test(lengths),    cmocka_unit_test(formats),         cmocka_unit_test(warnings),
        cmocka_unit_test(loading),    cmocka_unit_test(errors),          cmocka_unit_test(models),
        cmocka_unit_test(embeddings), cmocka_unit_test(types_of_bodies),
    };
    return cmocka_run_group_tests(tests, start_server, end_with_0);
}
