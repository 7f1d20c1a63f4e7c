/* Finding GGUF files: one in a directory, several, what is no choice, the manifests of ollama by path and by
 * name, and the list of all models. */
/* run: quick */
#include "io_test.h"

#include "io/gguf_files.h"

static void test_choice(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bool is;
    } names[] = {{"a.gguf", true},
                 {"a.GGUF", true},
                 {"a-00001-of-00002.gguf", true},
                 {"a-00002-of-00002.gguf", false},
                 {"mmproj-a.gguf", false},
                 {"a.mmproj-f16.gguf", false},
                 {"MMPROJ-a.gguf", false},
                 {".gguf", false},
                 {"gguf", false},
                 {"a.gguf.part", false}};
    for (size_t i = 0; i < LN_COUNT(names); i++)
        if (ln_gguf_is_choice(names[i].name) != names[i].is) fail_msg("%s", names[i].name);
}

static void choose(const char *dir, ln_status want, const char *word) {
    char path[LN_PATH_MAX];
    ln_error err = {0};
    bool found = false;
    (void)snprintf(path, sizeof path, "%s", at(dir));
    const ln_status st = ln_gguf_choose(path, &found, &err);
    expect(dir, want, word, st, &err);
    if (st == LN_OK && strcmp(word, "") == 0) assert_false(found);
    if (st == LN_OK && found && !strstr(path, word)) fail_msg("%s: %s", dir, path);
}

static void test_choose(void **state) {
    (void)state;
    put_text("none/config.json", "{}");
    choose("none", LN_OK, "");
    put_text("one/mmproj-x.gguf", "");
    put_text("one/m-00001-of-00002.gguf", "");
    put_text("one/m-00002-of-00002.gguf", "");
    choose("one", LN_OK, "/one/m-00001-of-00002.gguf");
    put_text("two/b.gguf", "");
    put_text("two/a.gguf", "");
    choose("two", LN_EINVALID, "2 GGUF files: a.gguf, b.gguf; name one of them");
    bool alone;
    OK(ln_gguf_alone(at("two"), &alone, err));
    assert_true(alone);
    put_text("two/model.safetensors", "");
    OK(ln_gguf_alone(at("two"), &alone, err));
    assert_false(alone);
    choose("absent", LN_OK, "");
}

#define MANIFEST "manifests/registry.ollama.ai/library/llama3.2/1b"
#define LAYER(type, digest) \
    "{\"mediaType\": \"application/vnd.ollama.image." type "\", \"digest\": \"sha256:" digest "\"}"

static void test_ollama(void **state) {
    (void)state;
    char path[LN_PATH_MAX];
    bool found;
    ln_error err;
    put_text("o/" MANIFEST, "{\"layers\": [" LAYER("template", "11") ", " LAYER("model", "abc1") "]}");
    put_text("o/blobs/sha256-abc1", "GGUF");
    put_text("o/manifests/registry.ollama.ai/someone/x/latest", "{\"layers\": []}");
    put_text("o/manifests/hf.co/org/name/Q4_K_M", "{\"layers\": [" LAYER("model", "../../etc/passwd") "]}");
    OK(ln_ollama_blob(at("o/" MANIFEST), path, &found, err));
    assert_true(found && strstr(path, "/o/blobs/sha256-abc1"));
    OK(ln_ollama_blob(at("o/manifests/registry.ollama.ai/someone/x/latest"), path, &found, err));
    assert_false(found);
    OK(ln_ollama_blob(at("o/manifests/hf.co/org/name/Q4_K_M"), path, &found, err));
    assert_false(found);
    OK(ln_ollama_blob(at("o/blobs/sha256-abc1"), path, &found, err));
    assert_false(found);
    (void)setenv("OLLAMA_MODELS", at("o"), 1);
    OK(ln_ollama_find("llama3.2:1b", path, &found, err));
    assert_true(found && strstr(path, "sha256-abc1"));
    OK(ln_find_model("llama3.2:1b", path, sizeof path, err));
    assert_non_null(strstr(path, "sha256-abc1"));
    static const char *const others[] = {"llama3.2",  "llama3.2:2b",          "../x:1b", "a/b/c/d:1b", ":1b",
                                         "llama3.2:", "hf.co/org/name:Q4_K_M"};
    for (size_t i = 0; i < LN_COUNT(others); i++) {
        OK(ln_ollama_find(others[i], path, &found, err));
        if (found) fail_msg("%s", others[i]);
    }
    drop("o/blobs/sha256-abc1");
    expect("missing", LN_EIO, "names a file that is missing",
           ln_ollama_blob(at("o/" MANIFEST), path, &found, &err), &err);
    put_text("o/blobs/sha256-abc1", "GGUF");
    (void)unsetenv("OLLAMA_MODELS");
}

static ln_status on_model(void *user, const char *path, ln_error *err) {
    (void)err;
    ln_str_addf(user, "%s\n", path + strlen(test_dir));
    return LN_OK;
}

static void test_list(void **state) {
    (void)state;
    ln_str s = {0};
    put_text("l/a/x.gguf", "1");
    put_text("l/a/mmproj.gguf", "2");
    put_text("l/m/config.json", "{}");
    put_text("l/m/model.safetensors", "");
    put_text("l/m/y.gguf", "3");
    link_to("../a/x.gguf", "l/z/again.gguf");
    OK(ln_each_model(at("l"), on_model, &s, err));
    assert_string_equal(s.data, "/l/a/x.gguf\n/l/m\n/l/m/y.gguf\n");
    ln_str_free(&s);
    OK(ln_each_model(at("o"), on_model, &s, err));
    assert_string_equal(s.data, "/o/" MANIFEST "\n");
    ln_str_free(&s);
    put_text("home/.cache/llama.cpp/c.gguf", "4");
    put_text("home/.lmstudio/models/org/name/d.gguf", "5");
    (void)setenv("HOME", at("home"), 1);
    (void)setenv("HF_HUB_CACHE", at("nowhere"), 1);
    (void)setenv("OLLAMA_MODELS", at("o"), 1);
    OK(ln_each_model(NULL, on_model, &s, err));
    assert_non_null(strstr(s.data, "/home/.lmstudio/models/org/name/d.gguf\n/home/.cache/llama.cpp/c.gguf\n/"
                                   "o/" MANIFEST));
    ln_str_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice), cmocka_unit_test(test_choose),
                                       cmocka_unit_test(test_ollama), cmocka_unit_test(test_list)};
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
