/* Which paths are answered, pages of other origins (--allow-origin), further names of the model (--alias) and
 * what llama.cpp's clients ask. */
/* run: quick */
#include "server_test.h"

#define REST "\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"Q\"}]}"
#define SAID "{" REST
#define CHAT "/v1/chat/completions"

/* The answer to a path as JSON; its status must be `status`. */
static json_t *at_path(const char *method, const char *path, const char *body, int status) {
    reply r = call(method, path, body ? JSON : "", body);
    if (r.status != status)
        fail_msg("%s %s: %d, expected %d: %s", method, path, r.status, status,
                 r.body.data ? r.body.data : "");
    json_t *root = json_of(&r);
    drop_reply(&r);
    return root;
}

static void message_has(const char *method, const char *path, const char *right) {
    json_t *root = at_path(method, path, strcmp(method, "POST") == 0 ? SAID : NULL, 404);
    if (!strstr(text_at(root, "error.message"), right))
        fail_msg("%s: '%s' has no '%s'", path, text_at(root, "error.message"), right);
    json_decref(root);
}

/* ---- paths ---- */

static void paths_are_answered_as_meant(void **state) {
    (void)state;
    static const struct {
        const char *path, *object;
    } rows[] = {{CHAT, "chat.completion"},
                {"/chat/completions", "chat.completion"},
                {"/v1/v1/chat/completions", "chat.completion"},
                {"/v1/v1/v1/chat/completions", "chat.completion"},
                {"/v1/chat/completions/", "chat.completion"},
                {"//v1//chat/completions//", "chat.completion"}};
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        json_t *root = at_path("POST", rows[i].path, SAID, 200);
        assert_string_equal(text_at(root, "object"), rows[i].object);
        json_decref(root);
    }
    json_t *root = at_path("POST", "/messages", SAID, 200);
    assert_string_equal(text_at(root, "type"), "message");
    json_decref(root);
    root = at_path("POST", "/v1/v1/messages", "{}", 400); /* errors are those of the path that is meant */
    assert_string_equal(text_at(root, "type"), "error");
    json_decref(root);
    root = at_path("GET", "/models/tiny", NULL, 200);
    assert_string_equal(text_at(root, "id"), "tiny");
    json_decref(root);
    static const char *const gets[] = {"/models",  "/v1/models/", "/v1/health", "/health/",
                                       "//health", "/ping",       "/version",   "/v1/version"};
    for (size_t i = 0; i < LN_COUNT(gets); i++) json_decref(at_path("GET", gets[i], NULL, 200));
    json_decref(at_path("POST", "/models", SAID, 405)); /* the method is that of the path that is meant */
}

static void other_paths_name_the_right_one(void **state) {
    (void)state;
    message_has("POST", "/openai/deployments/m/chat/completions", "use /v1/chat/completions");
    message_has("POST", "/generate", "TGI");
    message_has("POST", "/generate_stream", "/v1/completions");
    message_has("POST", "/completion", "/v1/completions");
    message_has("GET", "/v1", "base URL");
    message_has("GET", "/v1/", "base URL");
    message_has("GET", "/api", "/api/chat");
    message_has("POST", "/v1/batches", "one by one");
    message_has("GET", "/v1/responses/resp_1", "no response is kept");
    message_has("POST", "/x", "there is nothing at this path");
    /* what changes the server or tells of it is answered by one path, so that a proxy can close it */
    message_has("GET", "/v1/metrics", "use /metrics");
    message_has("GET", "/v1/lora-adapters", "use /lora-adapters");
    message_has("POST", "/load_lora_adapter", "nothing");
    message_has("POST", "//v1/load_lora_adapter", "nothing");
    message_has("GET", "/%76ersion", "nothing");
    message_has("GET", "/v1/./version", "nothing");
}

static void llama_paths(void **state) {
    (void)state;
    json_t *root = at_path("GET", "/props", NULL, 200);
    assert_int_equal(int_at(root, "total_slots"), 2);
    assert_int_equal(int_at(root, "default_generation_settings.n_ctx"), 512);
    assert_non_null(strstr(text_at(root, "chat_template"), "<|im_start|>"));
    assert_true(json_is_false(at(root, "modalities.vision")));
    json_decref(root);
    root = at_path("GET", "/slots", NULL, 200);
    assert_int_equal(json_array_size(root), 2);
    assert_true(json_is_false(at(root, "0.is_processing")));
    json_decref(root);
}

/* ---- names ---- */

static void aliases_are_names(void **state) {
    (void)state;
    json_t *root = at_path("GET", "/v1/models", NULL, 200);
    assert_int_equal(json_array_size(at(root, "data")), 2);
    assert_string_equal(text_at(root, "data.0.id"), "tiny");
    assert_string_equal(text_at(root, "data.1.id"), "gpt-4");
    assert_string_equal(text_at(root, "data.1.root"), "tiny");
    json_decref(root);
    root = at_path("POST", CHAT, "{\"model\":\"gpt-4\"," REST, 200);
    assert_string_equal(text_at(root, "model"), "gpt-4");
    json_decref(root);
    root = at_path("POST", CHAT, "{\"model\":\"gpt-5\"," REST, 404);
    assert_non_null(strstr(text_at(root, "error.message"), "known: tiny, gpt-4"));
    json_decref(root);
}

/* ---- origins ---- */

#define PREFLIGHT                             \
    "Access-Control-Request-Method: POST\r\n" \
    "Access-Control-Request-Headers: authorization,content-type\r\n"

static void origin_is(const char *origin, const char *allowed) {
    char fields[400];
    (void)snprintf(fields, sizeof fields, "Origin: %s\r\n" PREFLIGHT, origin);
    reply r = call("OPTIONS", CHAT, fields, NULL);
    const char *found = field_of(&r, "access-control-allow-origin");
    assert_int_equal(r.status, 204);
    if ((found == NULL) != (allowed == NULL) || (found && strcmp(found, allowed) != 0))
        fail_msg("%s: '%s'", origin, found ? found : "nothing");
    if (allowed) {
        assert_string_equal(field_of(&r, "access-control-allow-headers"), "authorization,content-type");
        assert_string_equal(field_of(&r, "access-control-allow-methods"), "POST, OPTIONS");
    }
    drop_reply(&r);
    (void)snprintf(fields, sizeof fields, JSON "Origin: %s\r\n", origin);
    r = call("POST", CHAT, fields, SAID);
    assert_int_equal(r.status, allowed ? 200 : 403);
    found = field_of(&r, "access-control-allow-origin");
    assert_true((found == NULL) == (allowed == NULL));
    drop_reply(&r);
}

static void listed_origins_are_allowed(void **state) {
    (void)state;
    origin_is("http://localhost:3000", "http://localhost:3000");
    origin_is("HTTP://localhost:3000", "HTTP://localhost:3000");
    origin_is("http://127.0.0.1:9", "http://127.0.0.1:9"); /* any port */
    origin_is("http://127.0.0.1", "http://127.0.0.1");
    origin_is("vscode-webview://0a1b", "vscode-webview://0a1b"); /* any host */
    origin_is("http://localhost:3001", NULL);
    origin_is("http://localhost:30000", NULL);
    origin_is("https://localhost:3000", NULL);
    origin_is("http://127.0.0.1.evil", NULL);
    origin_is("http://127.0.0.1:9.evil", NULL);
    origin_is("http://127.0.0.1:", NULL);
    origin_is("vscode-webview://", NULL);
    origin_is("null", NULL);
}

/* A page reads streams and errors as well. */
static void answers_of_all_kinds_name_the_origin(void **state) {
    (void)state;
    static const char *const bodies[] = {"{\"stream\":true," REST, "{\"model\":\"x\"," REST, "{"};
    for (size_t i = 0; i < LN_COUNT(bodies); i++) {
        reply r = call("POST", CHAT, JSON "Origin: http://localhost:3000\r\n", bodies[i]);
        assert_string_equal(field_of(&r, "access-control-allow-origin"), "http://localhost:3000");
        assert_string_equal(field_of(&r, "vary"), "Origin");
        drop_reply(&r);
    }
    reply r = call("GET", "/nothing", "Origin: http://localhost:3000\r\n", NULL);
    assert_int_equal(r.status, 404);
    assert_string_equal(field_of(&r, "access-control-allow-origin"), "http://localhost:3000");
    drop_reply(&r);
}

/* With '*' for both: every name is the model's, every origin may ask. */
static void stars(void **state) {
    (void)state;
    START("--log-format", "none", "--allow-origin", "*", "--alias", "*");
    assert_non_null(strstr(server.said, "every origin"));
    origin_is("null", "*");
    origin_is("http://evil", "*");
    json_t *root = at_path("POST", CHAT, "{\"model\":\"gpt-5\"," REST, 200);
    assert_string_equal(text_at(root, "model"), "tiny");
    json_decref(root);
    assert_int_equal(stop(), 0);
}

static void bad_flags(void **state) {
    (void)state;
    static const char *const rows[][2] = {{"--allow-origin", "http://localhost/"},
                                          {"--allow-origin", "localhost:3000"},
                                          {"--allow-origin", "http://"},
                                          {"--allow-origin", "http://*.example.org"},
                                          {"--allow-origin", "http://loc*"},
                                          {"--allow-origin", ""},
                                          {"--alias", ""}};
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        SPAWN(rows[i][0], rows[i][1]);
        (void)wait_for("linnet: ");
        assert_int_equal(wait_end(), 2);
    }
}

static int start_server(void **state) {
    (void)state;
    START("--log-format", "none", "--parallel", "2", "--ctx", "512", "--alias", "gpt-4", "--alias", "tiny",
          "--allow-origin", "http://localhost:3000", "--allow-origin", "http://127.0.0.1:*", "--allow-origin",
          "vscode-webview://*");
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_are_answered_as_meant),
        cmocka_unit_test(other_paths_name_the_right_one),
        cmocka_unit_test(llama_paths),
        cmocka_unit_test(aliases_are_names),
        cmocka_unit_test(listed_origins_are_allowed),
        cmocka_unit_test(answers_of_all_kinds_name_the_origin),
    };
    const struct CMUnitTest alone[] = {
        cmocka_unit_test_teardown(stars, kill_server),
        cmocka_unit_test_teardown(bad_flags, kill_server),
    };
    const int failed = cmocka_run_group_tests(tests, start_server, end_with_0);
    return failed + cmocka_run_group_tests(alone, NULL, NULL);
}
