/* linnet serve --lora and --lora-dir: adapters in /v1/models, chosen by `model` in every kind of body,
 * together with requests without one; loaded, replaced and unloaded while requests run. */
/* run: quick */
#include "server_test.h"

#include "base/file.h"
#include "io/io.h"

#include <sys/stat.h>

#define COMPLETIONS "/v1/completions"

static char dir[64];

/* Writes an adapter of go-mlx for the bundled model: one projection, rank 2, all values `value`. */
static void make_adapter(const char *name, float value) {
    enum { D = 192, R = 2 };
    const ln_tensor_spec specs[] = {
        {.name = "layers.0.self_attn.o_proj.lora_a", .dtype = LN_ST_F32, .n_dims = 2, .dims = {R, D}},
        {.name = "layers.0.self_attn.o_proj.lora_b", .dtype = LN_ST_F32, .n_dims = 2, .dims = {D, R}}};
    char path[200];
    ln_str s = {0};
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(ln_tensors_header(&s, specs, 2, NULL), LN_OK);
    for (int i = 0; i < 2 * R * D; i++) {
        const float v = i % 3 ? value : -value;
        ln_str_add(&s, (const char *)&v, sizeof v);
    }
    (void)snprintf(path, sizeof path, "%s/%s/adapter.safetensors", dir, name);
    FILE *f = fopen(path, "wbe");
    assert_true(f && fwrite(s.data, 1, s.len, f) == s.len && fclose(f) == 0);
    ln_str_free(&s);
    (void)snprintf(path, sizeof path, "%s/%s/adapter_config.json", dir, name);
    f = fopen(path, "wbe");
    assert_true(f && fputs("{\"rank\":2,\"alpha\":4}", f) >= 0 && fclose(f) == 0);
}

static void text_from(const char *model, char out[600]) {
    char body[300];
    (void)snprintf(body, sizeof body,
                   "{\"model\":\"%s\",\"prompt\":\"Once upon a "
                   "time\",\"max_tokens\":16,\"temperature\":0,\"logprobs\":0}",
                   model);
    reply r = post(COMPLETIONS, body);
    if (r.status != 200) fail_msg("%s: status %d: %s", model, r.status, r.body.data);
    const char *choices = strstr(r.body.data, "\"choices\"");
    assert_non_null(choices);
    assert_non_null(strstr(r.body.data, model));
    (void)snprintf(out, 600, "%s", choices);
    drop_reply(&r);
}

static void names_choose(void **state) {
    (void)state;
    char one[200], two[200], plain[600], with_one[600], with_two[600], again[600];
    (void)snprintf(one, sizeof one, "one=%s/one", dir);
    (void)snprintf(two, sizeof two, "two=%s/two:0", dir);
    START("--lora", one, "--lora", two);
    reply r = call("GET", "/v1/models", "", "");
    assert_int_equal(r.status, 200);
    const char *base = strstr(r.body.data, "\"id\":\"tiny\""), *first = strstr(r.body.data, "\"id\":\"one\""),
               *second = strstr(r.body.data, "\"id\":\"two\"");
    if (!base || !first || !second || base > first || first > second) fail_msg("%s", r.body.data);
    drop_reply(&r);
    r = call("GET", "/v1/models/two", "", "");
    assert_true(r.status == 200 && strstr(r.body.data, "\"parent\":\"tiny\""));
    drop_reply(&r);
    text_from("tiny", plain);
    text_from("one", with_one);
    text_from("two", with_two); /* a factor of 0 changes nothing */
    text_from("one", again);
    assert_string_not_equal(plain, with_one);
    assert_string_equal(plain, with_two);
    assert_string_equal(with_one, again);
    r = post(COMPLETIONS, "{\"model\":\"three\",\"prompt\":\"a\"}");
    assert_true(r.status == 404 && strstr(r.body.data, "tiny, one, two"));
    drop_reply(&r);
    assert_int_equal(stop(), 0);
}

/* --adapter: the adapter of all requests, whose files are read before the rules for files hold. */
static void one_for_all(void **state) {
    (void)state;
    char one[200], plain[600], adapted[600];
    START("--log-format", "none");
    text_from("tiny", plain);
    assert_int_equal(stop(), 0);
    (void)snprintf(one, sizeof one, "%s/one", dir);
    START("--adapter", one);
    text_from("tiny", adapted);
    assert_string_not_equal(plain, adapted);
    assert_int_equal(stop(), 0);
}

/* ---- every kind of body ---- */

/* What the answer says, without ids and times: the member at `path`. */
static void part_from(const char *route, const char *model, const char *rest, const char *path,
                      char out[900]) {
    char body[900];
    (void)snprintf(body, sizeof body, "{\"model\":\"%s\",%s}", model, rest);
    reply r = post(route, body);
    if (r.status != 200) fail_msg("%s %s: %d %.300s", route, model, r.status, r.body.data);
    json_t *root = json_of(&r);
    const json_t *v = at(root, path);
    assert_non_null(v);
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_SORT_KEYS);
    (void)snprintf(out, 900, "%s", text);
    ln_free(text);
    json_decref(root);
    drop_reply(&r);
}

#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a short story.\"}]"
static const struct {
    const char *route, *rest, *path;
} kinds[] = {
    {"/v1/chat/completions", MESSAGES ",\"max_tokens\":8,\"temperature\":0,\"logprobs\":true",
     "choices.0.logprobs"},
    {COMPLETIONS, "\"prompt\":\"Once upon a time\",\"max_tokens\":8,\"temperature\":0,\"logprobs\":1",
     "choices.0.logprobs"},
    {"/v1/messages", MESSAGES ",\"max_tokens\":30,\"temperature\":0", "content.0.text"},
    {"/v1/responses", "\"input\":\"Tell me a short story.\",\"max_output_tokens\":30,\"temperature\":0",
     "output.0.content.0.text"},
    {"/v1/embeddings", "\"input\":\"Once upon a time\",\"encoding_format\":\"base64\"", "data.0.embedding"},
    {"/v1/embeddings", "\"input\":[300,301],\"pooling\":\"mean\",\"encoding_format\":\"base64\"",
     "data.0.embedding"},
    {"/classify", "\"input\":\"It was good.\",\"labels\":[\"yes\",\"no\"]", "data.0.probs"},
    {"/score", "\"text_1\":\"a dog\",\"text_2\":\"the cat\"", "data.0.score"},
    {"/rerank", "\"query\":\"a dog\",\"documents\":[\"the cat\"]", "results.0.relevance_score"},
};

/* The adapter changes the answer of every route, one with factor 0 does not, and an unknown one is a 404. */
static void every_route_takes_adapters(void **state) {
    (void)state;
    char one[200], two[200], body[900];
    (void)snprintf(one, sizeof one, "one=%s/one", dir);
    (void)snprintf(two, sizeof two, "two=%s/two:0", dir);
    START("--log-format", "none", "--lora", one, "--lora", two);
    for (size_t i = 0; i < LN_COUNT(kinds); i++) {
        char plain[900], with_one[900], with_two[900], again[900];
        part_from(kinds[i].route, "tiny", kinds[i].rest, kinds[i].path, plain);
        part_from(kinds[i].route, "one", kinds[i].rest, kinds[i].path, with_one);
        part_from(kinds[i].route, "two", kinds[i].rest, kinds[i].path, with_two);
        part_from(kinds[i].route, "one", kinds[i].rest, kinds[i].path, again); /* from the prefix cache */
        if (strcmp(plain, with_one) == 0) fail_msg("%s does not use the adapter: %s", kinds[i].route, plain);
        assert_string_equal(plain, with_two);
        assert_string_equal(with_one, again);
        (void)snprintf(body, sizeof body, "{\"model\":\"three\",%s}", kinds[i].rest);
        reply r = post(kinds[i].route, body);
        if (r.status != 404 || !strstr(r.body.data, "tiny, one, two"))
            fail_msg("%s: %d %s", kinds[i].route, r.status, r.body.data);
        drop_reply(&r);
    }
    assert_int_equal(stop(), 0);
}

/* Requests of three models at once, two rounds: each gets what it gets alone, and a prompt that was computed
 * with another adapter is not reused. */
static void adapters_share_steps(void **state) {
    (void)state;
    enum { N = 12 };
    static const char *const models[] = {"tiny", "one", "two"};
    char one[200], two[200], alone[3][600], body[300];
    int fd[N];
    (void)snprintf(one, sizeof one, "one=%s/one", dir);
    (void)snprintf(two, sizeof two, "two=%s/two:-2", dir);
    START("--log-format", "none", "--lora", one, "--lora", two);
    for (int i = 0; i < 3; i++) text_from(models[i], alone[i]);
    assert_string_not_equal(alone[0], alone[1]);
    assert_string_not_equal(alone[1], alone[2]);
    for (int i = 0; i < N; i++) {
        (void)snprintf(body, sizeof body,
                       "{\"model\":\"%s\",\"prompt\":\"Once upon a "
                       "time\",\"max_tokens\":16,\"temperature\":0,\"logprobs\":0}",
                       models[i % 3]);
        fd[i] = begin(COMPLETIONS, body);
    }
    for (int i = 0; i < N; i++) {
        ln_str rest = {0};
        reply r = read_reply(fd[i], &rest, false);
        assert_int_equal(r.status, 200);
        const char *choices = strstr(r.body.data, "\"choices\""), *usage = strstr(r.body.data, "\"usage\"");
        const char *expected = strstr(alone[i % 3], "\"usage\"");
        const size_t n = (size_t)(usage - choices);
        assert_int_equal(n, expected ? (size_t)(expected - alone[i % 3]) : n);
        assert_memory_equal(choices, alone[i % 3], LN_MIN(n, sizeof alone[0] - 1));
        drop_reply(&r);
        ln_str_free(&rest);
        (void)close(fd[i]);
    }
    assert_int_equal(stop(), 0);
}

/* ---- while the server runs ---- */

#define LOAD   "/v1/load_lora_adapter"
#define UNLOAD "/v1/unload_lora_adapter"
#define SCALES "/lora-adapters"

static void refused(const char *route, const char *body, int status, const char *part) {
    reply r = post(route, body);
    if (r.status != status || !strstr(r.body.data, part))
        fail_msg("%s %s: %d %.300s, expected %d with %s", route, body, r.status, r.body.data, status, part);
    drop_reply(&r);
}

static void adapters_are_fixed_without_the_flag(void **state) {
    (void)state;
    char one[200];
    (void)snprintf(one, sizeof one, "one=%s/one", dir);
    START("--log-format", "none", "--lora", one);
    refused(LOAD, "{\"lora_name\":\"a\",\"lora_path\":\"one\"}", 403, "--lora-dir");
    refused(UNLOAD, "{\"lora_name\":\"one\"}", 403, "--lora-dir");
    refused(SCALES, "[{\"id\":0,\"scale\":0}]", 403, "--lora-dir");
    reply r = call("GET", SCALES, "", NULL);
    assert_string_equal(r.body.data, "[{\"id\":0,\"name\":\"one\",\"scale\":1}]");
    drop_reply(&r);
    r = call("DELETE", SCALES, "", NULL);
    assert_int_equal(r.status, 405);
    assert_string_equal(field_of(&r, "allow"), "GET, HEAD, POST, OPTIONS");
    drop_reply(&r);
    assert_int_equal(stop(), 0);
}

/* Loaded, scaled, replaced and unloaded, with the texts that --lora gives. */
static void adapters_come_and_go(void **state) {
    (void)state;
    char one[200], plain[600], with_one[600], with_two[600], text[600];
    (void)snprintf(one, sizeof one, "one=%s/one", dir);
    START("--log-format", "none", "--lora", one, "--lora-dir", dir, "--max-loras", "2");
    text_from("tiny", plain);
    text_from("one", with_one);
    reply r = post(LOAD, "{\"lora_name\":\"two\",\"lora_path\":\"two\"}");
    if (r.status != 200) fail_msg("%d %s", r.status, r.body.data);
    assert_non_null(strstr(r.body.data, "\"parent\":\"tiny\""));
    drop_reply(&r);
    text_from("two", with_two); /* another adapter */
    assert_string_not_equal(with_two, with_one);
    assert_string_not_equal(with_two, plain);
    refused(LOAD, "{\"lora_name\":\"two\",\"lora_path\":\"one\"}", 409, "too_many_adapters");
    refused(SCALES, "[{\"id\":1,\"scale\":0}]", 200, "\"name\":\"two\",\"scale\":0}");
    text_from("two", text);
    assert_string_equal(strstr(text, "\"text\""), strstr(plain, "\"text\""));
    refused(SCALES, "[{\"name\":\"two\",\"scale\":1}]", 200, "\"scale\":1}]");
    text_from("two", text);
    assert_string_equal(text, with_two);
    refused(UNLOAD, "{\"lora_name\":\"one\"}", 200, "\"deleted\":true");
    refused(COMPLETIONS, "{\"model\":\"one\",\"prompt\":\"a\"}", 404, "known: tiny, two");
    refused(LOAD, "{\"lora_name\":\"two\",\"lora_path\":\"one\"}", 409, "adapter_exists");
    refused(LOAD, "{\"lora_name\":\"two\",\"lora_path\":\"one\",\"load_inplace\":true}", 200,
            "\"id\":\"two\"");
    text_from("two", text);
    assert_string_equal(strstr(text, "\"text\""), strstr(with_one, "\"text\""));
    assert_int_equal(stop(), 0);
}

static void changes_are_checked(void **state) {
    (void)state;
    char body[300];
    START("--log-format", "none", "--lora-dir", dir);
    refused(LOAD, "{}", 400, "\"param\":\"lora_name\"");
    refused(LOAD, "{\"lora_name\":\"\"}", 400, "expected a text that is not empty");
    refused(LOAD, "{\"lora_name\":\"a\\u0000b\"}", 400, "expected a text without U+0000");
    refused(LOAD, "[]", 400, "expected the body to be an object");
    refused(LOAD, "{\"lora_name\":\"tiny\",\"lora_path\":\"one\"}", 400, "name of the model itself");
    refused(LOAD, "{\"lora_name\":\"a\"}", 400, "\"param\":\"lora_path\"");
    refused(LOAD, "{\"lora_name\":\"a\",\"lora_path\":\"one\",\"load_inplace\":1}", 400,
            "\"param\":\"load_inplace\"");
    static const char *const outside[] = {"..", ".", "../..", "/", "/etc", "nothing", "one/../..", "/tmp"};
    for (size_t i = 0; i < LN_COUNT(outside); i++) {
        (void)snprintf(body, sizeof body, "{\"lora_name\":\"a\",\"lora_path\":\"%s\"}", outside[i]);
        refused(LOAD, body, 404, "adapter_not_found");
    }
    refused(LOAD, "{\"lora_name\":\"a\",\"lora_path\":\"broken\"}", 400, "\"param\":\"lora_path\"");
    (void)snprintf(body, sizeof body, "{\"lora_name\":\"a\",\"lora_path\":\"%s/one\"}", dir);
    refused(LOAD, body, 200, "\"id\":\"a\"");
    refused(UNLOAD, "{\"lora_name\":\"b\"}", 404, "known: tiny, a");
    refused(UNLOAD, "{\"lora_name\":\"tiny\"}", 400, "name of the model itself");
    refused(SCALES, "{}", 400, "expected a list");
    refused(SCALES, "[1]", 400, "[0]");
    refused(SCALES, "[{\"id\":1,\"scale\":1}]", 404, "no such adapter");
    refused(SCALES, "[{\"name\":\"tiny\",\"scale\":1}]", 404, "no such adapter");
    refused(SCALES, "[{\"id\":0,\"scale\":\"1\"}]", 400, "[0].scale");
    refused(SCALES, "[{\"id\":0,\"scale\":1e39}]", 400, "[0].scale"); /* factors are f32 */
    assert_int_equal(stop(), 0);
}

/* A stream with an adapter goes on while it is unloaded, another one is loaded in its place when the stream
 * has ended, and other requests go on during that time. */
static void a_running_request_keeps_its_adapter(void **state) {
    (void)state;
    static const char body[] = "{\"model\":\"%s\",\"prompt\":\"Once upon a "
                               "time\",\"max_tokens\":%d,\"temperature\":0,\"ignore_eos\":true%s}";
    char text[300], whole[900], rest[300];
    START("--log-format", "none", "--ctx", "1024", "--lora-dir", dir, "--max-loras", "1");
    refused(LOAD, "{\"lora_name\":\"one\",\"lora_path\":\"one\"}", 200, "\"id\":\"one\"");
    (void)snprintf(rest, sizeof rest,
                   "\"prompt\":\"Once upon a "
                   "time\",\"max_tokens\":60,\"temperature\":0,\"ignore_eos\":true");
    part_from(COMPLETIONS, "one", rest, "choices.0.text", whole);
    (void)snprintf(text, sizeof text, body, "one", 60, "");
    const int fd = begin(COMPLETIONS, text);
    (void)snprintf(text, sizeof text, body, "tiny", 300, "");
    const int other = begin(COMPLETIONS, text);
    (void)seconds_until("requests.running", 2);
    refused(SCALES, "[{\"id\":0,\"scale\":0.5}]", 409, "adapter_in_use");
    refused(UNLOAD, "{\"lora_name\":\"one\"}", 200, "\"deleted\":true");
    refused(COMPLETIONS, "{\"model\":\"one\",\"prompt\":\"a\"}", 404, "known: tiny");
    ln_str left = {0};
    reply r = read_reply(fd, &left, false);
    assert_int_equal(r.status, 200);
    json_t *root = json_of(&r);
    char *got = json_dumps(at(root, "choices.0.text"), JSON_ENCODE_ANY);
    assert_string_equal(got, whole);
    ln_free(got);
    json_decref(root);
    drop_reply(&r);
    refused(LOAD, "{\"lora_name\":\"two\",\"lora_path\":\"two\"}", 200, "\"id\":\"two\"");
    r = read_reply(other, &left, false);
    assert_int_equal(r.status, 200);
    drop_reply(&r);
    ln_str_free(&left);
    (void)close(fd), (void)close(other);
    assert_int_equal(stop(), 0);
}

/* P-65: clients that leave, while their requests wait and run, let go of the adapter. */
static void leaving_frees_the_adapter(void **state) {
    (void)state;
    enum { N = 6 };
    int fd[N];
    START("--log-format", "none", "--ctx", "1024", "--parallel", "2", "--lora-dir", dir, "--max-loras", "1");
    for (int round = 0; round < 3; round++) {
        refused(LOAD,
                round % 2 ? "{\"lora_name\":\"a\",\"lora_path\":\"one\"}"
                          : "{\"lora_name\":\"a\",\"lora_path\":\"two\"}",
                200, "\"id\":\"a\"");
        for (int i = 0; i < N; i++)
            fd[i] = begin(COMPLETIONS, "{\"model\":\"a\",\"prompt\":\"Once\",\"max_tokens\":900,\"ignore_"
                                       "eos\":true,\"stream\":true}");
        (void)seconds_until("requests.running", 2);
        (void)seconds_until("requests.waiting", N - 2);
        for (int i = 0; i < N; i++) (void)close(fd[i]);
        (void)seconds_until("requests.running", 0);
        (void)seconds_until("requests.waiting", 0);
        refused(SCALES, "[{\"id\":0,\"scale\":2}]", 200, "\"scale\":2"); /* nothing uses it */
        refused(UNLOAD, "{\"lora_name\":\"a\"}", 200, "\"deleted\":true");
    }
    assert_int_equal(stop(), 0);
}

static int make_dir(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/linnet-lora-XXXXXX");
    if (!mkdtemp(dir)) return -1;
    make_adapter("one", 0.9f);
    make_adapter("two", 0.3f);
    char path[200];
    (void)snprintf(path, sizeof path, "%s/broken", dir);
    if (mkdir(path, 0700) != 0) return -1;
    return 0;
}
static int remove_dir(void **state) {
    (void)state;
    static const char *const leaves[] = {"one/adapter.safetensors",
                                         "one/adapter_config.json",
                                         "one",
                                         "two/adapter.safetensors",
                                         "two/adapter_config.json",
                                         "two",
                                         "broken",
                                         ""};
    for (size_t i = 0; i < LN_COUNT(leaves); i++) {
        char path[200];
        (void)snprintf(path, sizeof path, "%s/%s", dir, leaves[i]);
        (void)remove(path);
    }
    return 0;
}

#define SERVED(fn) cmocka_unit_test_teardown(fn, kill_server)

int main(void) {
    const struct CMUnitTest tests[] = {SERVED(names_choose),
                                       SERVED(one_for_all),
                                       SERVED(every_route_takes_adapters),
                                       SERVED(adapters_share_steps),
                                       SERVED(adapters_are_fixed_without_the_flag),
                                       SERVED(adapters_come_and_go),
                                       SERVED(changes_are_checked),
                                       SERVED(a_running_request_keeps_its_adapter),
                                       SERVED(leaving_frees_the_adapter)};
    return cmocka_run_group_tests_name("adapters of the server", tests, make_dir, remove_dir);
}
