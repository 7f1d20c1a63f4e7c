/* What the server rejects: rows of protocol errors (P) and of bodies (R), each sent while eight streams run,
 * which must not change by a byte. test_http.c has the rows that need no socket. */
/* run: slow */
#include "server_test.h"

#define CHAT     "/v1/chat/completions"
#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
#define STORY                                                          \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a short " \
    "story.\"}],\"max_tokens\":150,\"seed\":7,"                        \
    "\"temperature\":0.8,\"stream\":true}"
enum { NEIGHBOURS = 8 };

static ln_str solo; /* the texts of a stream that runs alone */
static int neighbours[NEIGHBOURS];

static void add_text(void *user, const json_t *e) {
    const json_t *text = at(e, "choices.0.delta.content");
    if (text) ln_str_add(user, json_string_value(text), json_string_length(text));
}

static void read_stream(int fd, ln_str *text) {
    ln_str rest = {0};
    reply r = read_reply(fd, &rest, false);
    assert_int_equal(r.status, 200);
    assert_int_equal(each_event(&r.body, add_text, text), 1);
    drop_reply(&r);
    ln_str_free(&rest);
    (void)close(fd);
}

static int begin_neighbours(void **state) {
    (void)state;
    if (!solo.data) read_stream(begin(CHAT, STORY), &solo);
    for (int i = 0; i < NEIGHBOURS; i++) neighbours[i] = begin(CHAT, STORY);
    return 0;
}

static int end_neighbours(void **state) {
    (void)state;
    for (int i = 0; i < NEIGHBOURS; i++) {
        ln_str text = {0};
        read_stream(neighbours[i], &text);
        assert_int_equal(text.len, solo.len);
        assert_memory_equal(text.data, solo.data, solo.len);
        ln_str_free(&text);
    }
    reply r = call("GET", "/health", "", NULL);
    assert_int_equal(r.status, 200);
    drop_reply(&r);
    return 0;
}

/* Every error is {"error": {"message", "type", "param", "code"}}, and tells neither addresses nor paths. */
static json_t *error_of(const reply *r) {
    json_t *root = json_of(r);
    const json_t *e = at(root, "error");
    assert_true(json_is_string(at(e, "message")) && json_is_string(at(e, "type")));
    assert_non_null(json_object_get(e, "param"));
    assert_non_null(json_object_get(e, "code"));
    assert_null(strstr(r->body.data, "0x"));
    assert_null(strstr(r->body.data, LN_ROOT));
    assert_non_null(field_of(r, "x-request-id"));
    return root;
}

static void expect_raw(const char *bytes, size_t n, int status) {
    reply r = raw(bytes, n);
    if (r.status != status) fail_msg("'%.70s': %d, expected %d: %s", bytes, r.status, status, r.body.data);
    if (status >= 400 && strncmp(bytes, "HEAD", 4) != 0) json_decref(error_of(&r));
    drop_reply(&r);
}

static void requests_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int status;
    } rows[] = {
        {"\x16\x03\x01\x02\x00\x01", 400}, /* P-3 */
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
        {"GET / HTTP/1.2\r\nHost: localhost\r\n\r\n", 505},                                 /* P-4 */
        {"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n", 501},                                /* P-5 */
        {"GET /health HTTP/1.1\r\n\r\n", 400},                                              /* P-6 */
        {"GET /health HTTP/1.1\r\nHost: localhost\r\nX : a\r\n\r\n", 400},                  /* P-9 */
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1,1\r\n\r\n", 400}, /* P-10 */
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: "
         "chunked\r\n\r\n",
         400},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" JSON "\r\n", 411},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" JSON "Content-Length: 33554433\r\n\r\n",
         413}, /* P-19 */
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" JSON "Expect: x\r\nContent-Length: 2\r\n\r\n{}",
         417},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" JSON "Content-Encoding: gzip\r\nContent-Length: "
         "2\r\n\r\n{}",
         415},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 415}, /* P-26 */
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: "
         "2\r\n\r\n{}",
         415},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json; charset=utf-16\r\n"
         "Content-Length: 2\r\n\r\n{}",
         415},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json;charset=UTF-8\r\n"
         "Content-Length: 2\r\n\r\n{}",
         400},                                                          /* the body lacks its text */
        {"GET /v1/../health HTTP/1.1\r\nHost: localhost\r\n\r\n", 404}, /* P-27 */
        {"GET /metrics/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 404},
        {"GET //lora-adapters HTTP/1.1\r\nHost: localhost\r\n\r\n", 404},
        {"GET /%68ealth HTTP/1.1\r\nHost: localhost\r\n\r\n", 404},
        {"GET /health;x HTTP/1.1\r\nHost: localhost\r\n\r\n", 404},
        {"GET /health%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
        {"GET /health?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 200},
        {"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 200}, /* P-28 */
        {"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 204},
        {"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 200}, /* P-29 */
        {"OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", 204},
        {"TRACE /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 405},
        {"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost:1\r\n\r\n", 405},
        {"QUERY /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 405},
        {"DELETE /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", 405},
        {"GET " CHAT " HTTP/1.1\r\nHost: localhost\r\n\r\n", 405},
        {"POST /health HTTP/1.1\r\nHost: localhost\r\n" JSON "Content-Length: 2\r\n\r\n{}", 405},
        {"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403}, /* P-33 */
        {"GET /health HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n\r\n", 403},
        {"GET /health HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", 403},
        {"GET /health HTTP/1.1\r\nHost: 127.0.0.2:99\r\n\r\n", 200},
        {"GET /health HTTP/1.1\r\nHost: [::1]:99\r\n\r\n", 200},
        {"GET /health HTTP/1.0\r\n\r\n", 200},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil\r\n" JSON "Content-Length: "
         "2\r\n\r\n{}",
         403},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n" JSON "Content-Length: 2\r\n\r\n{}",
         403}, /* P-35 */
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nOrigin: file://\r\n" JSON "Content-Length: "
         "2\r\n\r\n{}",
         403},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nOrigin: "
         "https://evil\r\n" JSON "Content-Length: 2\r\n\r\n{}",
         403},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n" JSON
         "Content-Length: 15\r\n\r\n{\"content\":\"a\"}",
         200},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost:1\r\nOrigin: https://localhost:1\r\n" JSON
         "Content-Length: 15\r\n\r\n{\"content\":\"a\"}",
         200}, /* behind a proxy that speaks TLS */
    };
    for (size_t i = 0; i < LN_COUNT(rows); i++)
        expect_raw(rows[i].text, strlen(rows[i].text), rows[i].status);
    reply r = call("OPTIONS", CHAT, "Origin: https://evil\r\nAccess-Control-Request-Method: POST\r\n",
                   NULL); /* P-34 */
    assert_null(field_of(&r, "access-control-allow-origin"));
    drop_reply(&r);
    r = call("PUT", CHAT, JSON, "{}");
    assert_string_equal(field_of(&r, "allow"), "POST, OPTIONS");
    drop_reply(&r);
}

/* The body that is rejected before it is read does not take its answer away. */
static void large_bodies_are_refused(void **state) {
    (void)state;
    const size_t n = (32u << 20) + 1;
    char *text = ln_alloc(n + 200);
    const int k =
        snprintf(text, 200,
                 "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" JSON "Content-Length: %zu\r\n\r\n", n);
    memset(text + k, ' ', n);
    expect_raw(text, (size_t)k + n, 413);
    ln_free(text);
    ln_str s = {0}; /* chunked: what comes counts */
    ln_str_adds(&s, "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" JSON "Transfer-Encoding: "
                    "chunked\r\n\r\n");
    static char block[1 << 20];
    memset(block, ' ', sizeof block);
    for (int i = 0; i < 33; i++) {
        ln_str_addf(&s, "%zx\r\n", sizeof block);
        ln_str_add(&s, block, sizeof block);
        ln_str_adds(&s, "\r\n");
    }
    expect_raw(s.data, s.len, 413); /* P-18 */
    s.len = 0;
    ln_str_adds(&s, "GET /health HTTP/1.1\r\nHost: localhost\r\nX: ");
    ln_str_add(&s, block, sizeof block);
    expect_raw(s.data, s.len, 431); /* P-8 */
    ln_str_free(&s);
}

/* A hundred requests in one go are answered in their order, with a body among them (P-20, P-23). */
static void a_pipeline_is_answered_in_order(void **state) {
    (void)state;
    ln_str s = {0}, rest = {0};
    const int n = 1000, fd = dial();
    for (int i = 0; i < n; i++) {
        if (i % 100 == 50) request_text(&s, "POST", "/tokenize", JSON, "{\"content\":\"a b\"}");
        else if (i % 100 == 51) request_text(&s, "GET", "/health", "", "GET /nothing HTTP/1.1\r\n\r\n");
        else ln_str_addf(&s, "GET /v1/models/m%d HTTP/1.1\r\nHost: localhost\r\n\r\n", i);
    }
    put(fd, s.data, s.len);
    for (int i = 0; i < n; i++) {
        char name[20];
        reply r = read_reply(fd, &rest, false);
        const bool odd = i % 100 == 50 || i % 100 == 51;
        assert_int_equal(r.status, odd ? 200 : 404);
        (void)snprintf(name, sizeof name, "'m%d'", i);
        if (!odd && !strstr(r.body.data, name)) fail_msg("answer %d is %s", i, r.body.data);
        drop_reply(&r);
    }
    assert_int_equal(rest.len, 0);
    ln_str_free(&rest);
    ln_str_free(&s);
    (void)close(fd);
}

static void a_client_may_wait_for_100(void **state) {
    (void)state;
    static const char body[] = "{\"content\":\"a\"}";
    char buf[400] = "";
    const int fd = dial();
    put_text(fd, "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" JSON
                 "Expect: 100-continue\r\nContent-Length: 15\r\n\r\n");
    assert_true(recv(fd, buf, sizeof buf - 1, 0) > 0);
    assert_string_equal(buf, "HTTP/1.1 100 Continue\r\n\r\n");
    put_text(fd, body);
    ln_str rest = {0};
    reply r = read_reply(fd, &rest, false);
    assert_int_equal(r.status, 200);
    drop_reply(&r);
    (void)close(fd);
    const int other = dial(); /* rejected before the body is sent */
    put_text(other, "POST /nothing HTTP/1.1\r\nHost: localhost\r\n" JSON
                    "Expect: 100-continue\r\nContent-Length: 15\r\n\r\n");
    r = read_reply(other, &rest, false);
    assert_int_equal(r.status, 404);
    drop_reply(&r);
    (void)close(other);
    ln_str_free(&rest);
}

/* On the paths of Anthropic's API every refusal has its error format, also of paths and methods that are not
 * answered. */
static void refusals_have_the_form_of_the_api(void **state) {
    (void)state;
    static const struct {
        const char *method, *path, *fields;
        int status;
        const char *type;
    } cases[] = {{"GET", "/v1/messages", "", 405, "invalid_request_error"},
                 {"POST", "/v1/messages/batches", JSON, 404, "not_found_error"},
                 {"GET", "/v1/files", "anthropic-version: 2023-06-01\r\n", 404, "not_found_error"},
                 {"POST", "/v1/messages", "Content-Type: text/plain\r\n", 415, "invalid_request_error"}};
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        const char *body = strcmp(cases[i].method, "POST") == 0 ? "{}" : NULL;
        reply r = call(cases[i].method, cases[i].path, cases[i].fields, body);
        assert_int_equal(r.status, cases[i].status);
        json_t *root = json_of(&r);
        assert_string_equal(text_at(root, "type"), "error");
        assert_string_equal(text_at(root, "error.type"), cases[i].type);
        json_decref(root);
        drop_reply(&r);
    }
    reply r = call("GET", "/v1/messagesx", "", NULL);
    json_t *root = json_of(&r);
    assert_int_equal(r.status, 404);
    assert_null(json_object_get(root, "type"));
    json_decref(root);
    drop_reply(&r);
}

/* A body may come byte by byte, in chunks, or split anywhere. */
static void the_cut_of_a_request_does_not_matter(void **state) {
    (void)state;
    static const char text[] = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" JSON
                               "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"con\r\n"
                               "A;x\r\ntent\":\"a\"}\r\n0\r\nX: y\r\n\r\n";
    ln_str first = {0};
    for (size_t step = 1; step < sizeof text; step += step < 4 ? 1 : 7) {
        ln_str rest = {0};
        const int fd = dial();
        for (size_t i = 0; i < sizeof text - 1; i += step) {
            put(fd, text + i, LN_MIN(step, sizeof text - 1 - i));
            if (step > 3) (void)usleep(500);
        }
        reply r = read_reply(fd, &rest, false);
        assert_int_equal(r.status, 200);
        if (!first.data) ln_str_add(&first, r.body.data, r.body.len);
        assert_string_equal(r.body.data, first.data);
        drop_reply(&r);
        ln_str_free(&rest);
        (void)close(fd);
    }
    ln_str_free(&first);
}

static void expect_body(const char *path, const char *body, size_t n, int status, const char *param) {
    ln_str s = {0};
    ln_str_addf(&s, "POST %s HTTP/1.1\r\nHost: localhost\r\n" JSON "Content-Length: %zu\r\n\r\n", path, n);
    ln_str_add(&s, body, n);
    reply r = raw(s.data, s.len);
    if (r.status != status)
        fail_msg("%s %.100s: %d, expected %d: %s", path, body, r.status, status, r.body.data);
    if (status != 200) {
        json_t *root = error_of(&r);
        const char *found = json_string_value(at(root, "error.param"));
        if (strcmp(found ? found : "", param) != 0)
            fail_msg("%.100s: param '%s', expected '%s'", body, found, param);
        json_decref(root);
    }
    drop_reply(&r);
    ln_str_free(&s);
}

static void bodies_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *path, *body;
        int status;
        const char *param;
    } rows[] = {
        {CHAT, "", 400, ""}, /* */
        {CHAT, "null", 400, ""},
        {CHAT, "[]", 400, ""},
        {CHAT, "3", 400, ""},
        {CHAT, "{} {}", 400, ""},
        {CHAT, "{" MESSAGES "}x", 400, ""},
        {CHAT, "{" MESSAGES ",\"n\":1,\"n\":2}", 400, ""},                               /* */
        {CHAT, "{" MESSAGES ",\"max_tokens\":1,\"unheard_of\":[1]}", 200, ""},           /* */
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}", 400, ""}, /* */
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", 400, ""},
        {CHAT, "{" MESSAGES ",\"a\\u0000\":1}", 400, ""},
        {CHAT, "{\"model\":\"other\"," MESSAGES "}", 404, "model"}, /* */
        {CHAT, "{\"model\":7," MESSAGES "}", 400, "model"},
        {CHAT, "{\"model\":\"../tiny\"," MESSAGES "}", 404, "model"},
        {CHAT, "{" MESSAGES ",\"temperature\":-0.1}", 400, "temperature"}, /* */
        {CHAT, "{" MESSAGES ",\"temperature\":\"1\"}", 400, "temperature"},
        {CHAT, "{" MESSAGES ",\"top_p\":1.01}", 400, "top_p"},       /* */
        {CHAT, "{" MESSAGES ",\"top_k\":4294967296}", 400, "top_k"}, /* */
        {CHAT, "{" MESSAGES ",\"min_p\":2}", 400, "min_p"},          /* */
        {CHAT, "{" MESSAGES ",\"repetition_penalty\":0}", 400, "repetition_penalty"},
        {CHAT, "{" MESSAGES ",\"max_tokens\":-2}", 400, "max_tokens"}, /* */
        {CHAT, "{" MESSAGES ",\"max_tokens\":1.5}", 400, "max_tokens"},
        {CHAT, "{" MESSAGES ",\"n\":0}", 400, "n"}, /* */
        {CHAT, "{" MESSAGES ",\"n\":1000000}", 400, "n"},
        {CHAT, "{" MESSAGES ",\"stop\":\"\"}", 400, "stop"}, /* */
        {CHAT, "{" MESSAGES ",\"stop\":[\"a\",\"\"]}", 400, "stop[1]"},
        {CHAT, "{" MESSAGES ",\"seed\":1.5}", 400, "seed"},                    /* */
        {CHAT, "{" MESSAGES ",\"logit_bias\":{\"-1\":1}}", 400, "logit_bias"}, /* */
        {CHAT, "{" MESSAGES ",\"logit_bias\":{\"4096\":1}}", 400, "logit_bias"},
        {CHAT, "{" MESSAGES ",\"logprobs\":true,\"top_logprobs\":21}", 400, "top_logprobs"}, /* */
        {CHAT, "{" MESSAGES ",\"top_logprobs\":3}", 400, "top_logprobs"},
        {"/v1/completions", "{\"prompt\":[-1]}", 400, "prompt[0]"}, /* */
        {"/v1/completions", "{\"prompt\":[5,4096]}", 400, "prompt[1]"},
        {"/v1/completions", "{\"prompt\":[]}", 400, "prompt"},
        {"/v1/completions", "{\"prompt\":[[1],[]]}", 400, "prompt[1]"},
        {"/v1/completions", "{\"prompt\":\"\"}", 400, ""}, /* this model adds no token of its own */
        {CHAT, "{\"messages\":[]}", 400, "messages"},
        {CHAT, "{\"messages\":[{\"role\":\"wizard\",\"content\":\"\"}]}", 400, "messages[0].role"},
        {CHAT, "{" MESSAGES ",\"response_format\":{\"type\":\"xml\"}}", 400, "response_format.type"},
        {CHAT, "{" MESSAGES ",\"tools\":[{\"type\":\"function\"}]}", 400, "tools[0]"}, /* */
        {CHAT, "{" MESSAGES ",\"stream\":\"yes\"}", 400, "stream"},                    /* */
        {CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":"
         "\"file:///etc/passwd\"}}]}]}",
         400, "messages[0].content[0]"},                                        /* */
        {CHAT, "{" MESSAGES ",\"chat_template\":\"x\"}", 400, "chat_template"}, /* R-45, J-13 */
        {"/tokenize", "{}", 400, "content"},
        {"/tokenize", "{\"content\":7}", 400, "content"},
        {"/tokenize", "{\"content\":\"a\",\"add_special\":1}", 400, "add_special"},
        {"/detokenize", "{}", 400, "tokens"},
        {"/detokenize", "{\"tokens\":[1,-1]}", 400, "tokens[1]"},
        {"/detokenize", "{\"tokens\":[\"a\"]}", 400, "tokens[0]"},
        {"/apply-template", "{}", 400, "messages"},
        {"/classify", "{\"labels\":[\"a\"]}", 400, "input"},
        {"/classify", "{\"input\":\"a\"}", 400, "labels"},
        {"/classify", "{\"input\":\"a\",\"labels\":[]}", 400, "labels"},
        {"/classify", "{\"input\":\"a\",\"labels\":[\"\"]}", 400, "labels"},
        {"/classify", "{\"input\":[\"a\",7],\"labels\":[\"x\"]}", 400, "input[1]"},
        {"/classify", "{\"input\":\"a\\u0000\",\"labels\":[\"x\"]}", 400, "input[0]"},
        {"/classify", "{\"input\":\"a\",\"labels\":[\"x\"],\"prompt\":\"no place\"}", 400, "prompt"},
        {"/classify", "{\"input\":\"a\",\"labels\":[\"x\"],\"normalize\":\"max\"}", 400, "normalize"},
        {"/classify", "{\"input\":\"a\",\"labels\":[\"x\"],\"raw\":1}", 400, "raw"},
        {"/classify", "{\"input\":[\"a\",\"\"],\"labels\":[\"x\"],\"raw\":true}", 400, "input[1]"},
        {"/classify", "{\"input\":\"a\",\"labels\":[\"x\"],\"model\":\"y\"}", 404, "model"},
        {"/score", "{\"text_1\":\"a\"}", 400, "text_2"},
        {"/score", "{\"text_1\":[\"a\",\"b\"],\"text_2\":[\"a\",\"b\",\"c\"]}", 400, "text_2"},
        {"/rerank", "{\"documents\":[\"a\"]}", 400, "query"},
        {"/rerank", "{\"query\":\"a\",\"documents\":[]}", 400, "documents"},
        {"/rerank", "{\"query\":\"a\",\"documents\":[\"a\"],\"top_n\":0}", 400, "top_n"},
        {"/v1/messages", "[]", 400, ""},
        {"/v1/messages", "{" MESSAGES "}", 400, "max_tokens"},
        {"/v1/messages", "{\"max_tokens\":1,\"messages\":[]}", 400, "messages"},
        {"/v1/messages", "{\"max_tokens\":1,\"messages\":[{\"role\":\"system\",\"content\":\"\"}]}", 400,
         "messages[0].role"},
        {"/v1/messages", "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":7}]}", 400,
         "messages[0].content"},
        {"/v1/messages", "{\"max_tokens\":1," MESSAGES ",\"stop_sequences\":[\"\"]}", 400,
         "stop_sequences[0]"},
        {"/v1/messages", "{\"max_tokens\":1," MESSAGES ",\"tools\":5}", 400, "tools"},
        {"/v1/messages", "{\"model\":\"x\",\"max_tokens\":1," MESSAGES "}", 404, "model"},
        {"/v1/messages",
         "{\"max_tokens\":1," MESSAGES ",\"system\":[{\"type\":\"text\",\"text\":\"S\"}],\"metadata\":{}}",
         200, ""},
        {"/v1/messages/count_tokens", "{" MESSAGES "}", 200, ""},
        {"/v1/messages/count_tokens", "{}", 400, "messages"},
        {"/v1/messages", "{\"max_tokens\":1," MESSAGES ",\"stop_sequences\":\"a\"}", 400, "stop_sequences"},
        {"/v1/responses", "{\"input\":[{\"type\":{},\"role\":\"user\",\"content\":\"\"}]}", 400, "input[0]"},
        {"/v1/responses", "{}", 400, "input"},
        {"/v1/responses", "{\"input\":[]}", 400, "input"},
        {"/v1/responses", "{\"input\":[{\"type\":\"function_call\"}]}", 400, "input[0]"},
        {"/v1/responses", "{\"input\":[{\"role\":\"wizard\",\"content\":\"\"}]}", 400, "input[0].role"},
        {"/v1/responses", "{\"input\":\"a\",\"max_output_tokens\":\"7\"}", 400, "max_output_tokens"},
        {"/v1/responses", "{\"input\":\"a\",\"background\":true}", 400, "background"},
        {"/v1/responses", "{\"input\":\"a\",\"text\":{\"format\":{\"type\":\"xml\"}}}", 400,
         "text.format.type"},
        {"/v1/responses", "{\"input\":\"a\",\"max_output_tokens\":1,\"store\":true}", 200, ""},
    };
    for (size_t i = 0; i < LN_COUNT(rows); i++)
        expect_body(rows[i].path, rows[i].body, strlen(rows[i].body), rows[i].status, rows[i].param);
}

/* Errors of /v1/messages have Anthropic's types, those of the other paths OpenAI's. */
static void types_of_errors(void **state) {
    (void)state;
    static const struct {
        const char *path, *body, *type;
    } rows[] = {
        {"/v1/messages", "{\"model\":\"x\",\"max_tokens\":1," MESSAGES "}", "not_found_error"},
        {"/v1/messages", "{" MESSAGES "}", "invalid_request_error"},
        {CHAT, "{\"model\":\"x\"," MESSAGES "}", "invalid_request_error"},
    };
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        reply r = post(rows[i].path, rows[i].body);
        json_t *o = json_of(&r);
        assert_string_equal(text_at(o, "error.type"), rows[i].type);
        json_decref(o);
        drop_reply(&r);
    }
}

/* Nesting in known and unknown fields, long numbers and keys, many prompts, a prompt beyond the context. */
static void extreme_bodies_are_refused(void **state) {
    (void)state;
    static const char *const fields[] = {
        "", "\"x\":", "\"tools\":", "\"logit_bias\":", "\"chat_template_kwargs\":"};
    for (size_t i = 0; i < LN_COUNT(fields); i++)
        for (int depth = 65; depth <= 1000000; depth = depth == 65 ? 3000 : depth * 20) { /* */
            ln_str s = {0};
            if (fields[i][0]) ln_str_addf(&s, "{" MESSAGES ",%s", fields[i]);
            for (int k = 0; k < depth; k++) ln_str_adds(&s, i == 3 ? "{\"a\":" : "[");
            expect_body(CHAT, s.data, s.len, 400, "");
            ln_str_free(&s);
        }
    ln_str s = {0};
    ln_str_adds(&s, "{" MESSAGES ",\"max_tokens\":1");
    for (int i = 0; i < 1000000; i++) ln_str_adds(&s, "0"); /* */
    ln_str_adds(&s, "}");
    expect_body(CHAT, s.data, s.len, 400, "");
    s.len = 0;
    ln_str_adds(&s, "{\"prompt\":[");
    for (int i = 0; i < 100000; i++) ln_str_adds(&s, i ? ",\"a\"" : "\"a\""); /* */
    ln_str_adds(&s, "]}");
    expect_body("/v1/completions", s.data, s.len, 400, "prompt");
    s.len = 0;
    ln_str_adds(&s, "{\"prompt\":[\"a\",\"b\"],\"n\":65}");
    expect_body("/v1/completions", s.data, s.len, 400, "prompt");
    s.len = 0;
    ln_str_adds(&s, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < 5000; i++) ln_str_adds(&s, "word ");
    ln_str_adds(&s, "\"}]}");
    reply r = post(CHAT, s.data); /* J-27 */
    json_t *root = error_of(&r);
    assert_int_equal(r.status, 400);
    assert_string_equal(text_at(root, "error.code"), "context_length_exceeded");
    assert_non_null(strstr(text_at(root, "error.message"), "1024"));
    json_decref(root);
    drop_reply(&r);
    ln_str_free(&s);
}

static int start_server(void **state) {
    (void)state;
    START("--log-format", "none", "--parallel", "9");
    return 0;
}

static int end_server(void **state) {
    ln_str_free(&solo);
    if (server.pid > 0 && stop() != 0) fail_msg("the server did not end with 0");
    return kill_server(state);
}

#define BESIDE(fn) cmocka_unit_test_setup_teardown(fn, begin_neighbours, end_neighbours)

int main(void) {
    const struct CMUnitTest tests[] = {
        BESIDE(requests_are_refused),
        BESIDE(large_bodies_are_refused),
        BESIDE(a_pipeline_is_answered_in_order),
        BESIDE(a_client_may_wait_for_100),
        BESIDE(refusals_have_the_form_of_the_api),
        BESIDE(the_cut_of_a_request_does_not_matter),
        BESIDE(bodies_are_refused),
        BESIDE(types_of_errors),
        BESIDE(extreme_bodies_are_refused),
    };
    return cmocka_run_group_tests(tests, start_server, end_server);
}
