/* linnet serve --lora: adapters in /v1/models, chosen by `model`, beside requests without one. */
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

static int make_dir(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/linnet-lora-XXXXXX");
    if (!mkdtemp(dir)) return -1;
    make_adapter("one", 0.05f);
    make_adapter("two", 0.05f);
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
                                         ""};
    for (size_t i = 0; i < LN_COUNT(leaves); i++) {
        char path[200];
        (void)snprintf(path, sizeof path, "%s/%s", dir, leaves[i]);
        (void)remove(path);
    }
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(names_choose, kill_server)};
    return cmocka_run_group_tests_name("adapters of the server", tests, make_dir, remove_dir);
}
