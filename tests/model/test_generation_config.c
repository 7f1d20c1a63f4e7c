/* generation_config.json: the union of stop ids, sampling defaults, and the sources of chat templates. */
/* run: quick asan */
#include "../io/io_test.h"

/* ---- generation_config.json and the stop set ---- */

static int32_t token_id(void *user, const char *text, size_t bytes) {
    (void)user;
    return bytes == 5 && memcmp(text, "<end>", 5) == 0   ? 77
           : bytes == 5 && memcmp(text, "<far>", 5) == 0 ? 5000
                                                         : -1;
}

/* Reads files with these contents (NULL: absent) and returns the stop ids as text. */
static ln_status read_gen(const char *config, const char *gen, const char *tok, ln_genconfig *g,
                          ln_error *err) {
    put_text("g/config.json", config);
    if (gen) put_text("g/generation_config.json", gen);
    else (void)unlink(at("g/generation_config.json"));
    if (tok) put_text("g/tokenizer_config.json", tok);
    else (void)unlink(at("g/tokenizer_config.json"));
    ln_config c;
    ln_status st = ln_config_open(&c, at("g"), err);
    if (st != LN_OK) return st;
    st = ln_genconfig_open(g, at("g"), &c, 1000, token_id, NULL, err);
    ln_config_close(&c);
    return st;
}

static void test_stop_ids(void **state) {
    (void)state;
    static const struct {
        const char *config, *gen, *tok, *want;
        ln_status status;
    } cases[] = {
        {"{}", NULL, NULL, "", LN_OK},
        {"{\"eos_token_id\":5}", NULL, NULL, "5 ", LN_OK},
        {"{\"eos_token_id\":null}", NULL, NULL, "", LN_OK},
        {"{\"eos_token_id\":[5,6,5]}", "{\"eos_token_id\":[6,7]}", "{\"eos_token\":\"<end>\"}", "5 6 7 77 ",
         LN_OK},
        {"{\"eos_token_id\":[1,106],\"text_config\":{\"eos_token_id\":3}}", "{\"eos_token_id\":1}", NULL,
         "1 106 3 ", LN_OK},
        {"{}", NULL, "{\"eos_token\":{\"content\":\"<end>\",\"special\":true}}", "77 ", LN_OK},
        {"{}", NULL, "{\"eos_token\":null}", "", LN_OK},
        {"{}", NULL, "{\"eos_token\":\"<unknown>\"}", "", LN_OK},
        {"{}", NULL, "{\"eos_token\":\"<far>\"}", "", LN_OK},
        {"{\"eos_token_id\":999}", NULL, NULL, "999 ", LN_OK},
        {"{\"eos_token_id\":1000}", NULL, NULL, "eos_token_id", LN_EINVALID},
        {"{\"eos_token_id\":-1}", NULL, NULL, "eos_token_id", LN_EINVALID},
        {"{\"eos_token_id\":\"5\"}", NULL, NULL, "eos_token_id", LN_EINVALID},
        {"{\"eos_token_id\":[5,\"6\"]}", NULL, NULL, "eos_token_id", LN_EINVALID},
        {"{\"text_config\":{\"eos_token_id\":1.5}}", NULL, NULL, "text_config.eos_token_id", LN_EINVALID},
        {"{}", "{\"eos_token_id\":1000}", NULL, "generation_config.json: eos_token_id", LN_EINVALID},
        {"{}", "[]", NULL, "generation_config.json", LN_EINVALID},
    };
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        ln_genconfig g;
        ln_error err = {0};
        expect(cases[i].config, cases[i].status, cases[i].want,
               read_gen(cases[i].config, cases[i].gen, cases[i].tok, &g, &err), &err);
        char ids[256] = "";
        for (int k = 0; k < g.n_eos && cases[i].status == LN_OK; k++)
            (void)snprintf(ids + strlen(ids), sizeof ids - strlen(ids), "%d ", g.eos[k]);
        if (cases[i].status == LN_OK) assert_string_equal(ids, cases[i].want);
    }
    /* C-18: as many stop ids as are allowed, one more, and a list of a million. */
    ln_str s = {0};
    ln_str_adds(&s, "{\"eos_token_id\":[0");
    for (int i = 1; i < 32; i++) ln_str_addf(&s, ",%d", i);
    size_t n = s.len;
    ln_str_adds(&s, "]}");
    ln_genconfig g;
    OK(read_gen(s.data, NULL, NULL, &g, err));
    assert_int_equal(g.n_eos, 32);
    s.len = n;
    ln_str_adds(&s, ",32]}");
    ln_error err = {0};
    expect("33 stop ids", LN_EINVALID, "at most 32", read_gen(s.data, NULL, NULL, &g, &err), &err);
    s.len = n;
    for (int i = 0; i < 1000000; i++) ln_str_adds(&s, ",1");
    ln_str_adds(&s, "]}");
    expect("C-18 a million", LN_EINVALID, "at most 32", read_gen(s.data, NULL, NULL, &g, &err), &err);
    ln_str_free(&s);
}

static void test_sampling(void **state) {
    (void)state;
    ln_genconfig g;
    OK(read_gen("{\"bos_token_id\":2}", NULL, NULL, &g, err));
    assert_false(g.present);
    assert_false(g.do_sample);
    assert_int_equal(g.bos, 2);
    OK(read_gen("{}", "{\"do_sample\":true}", NULL, &g, err));
    assert_true(g.present && g.do_sample);
    assert_true(g.temperature == 1 && g.top_p == 1 && g.min_p == 0 && g.repeat_penalty == 1 && g.top_k == 50);
    assert_int_equal(g.bos, -1);
    OK(read_gen("{}",
                "{\"do_sample\":true,\"temperature\":0.6,\"top_k\":20,\"top_p\":0.95,\"min_p\":0.05,"
                "\"repetition_penalty\":1.1,\"x\":[{}]}",
                NULL, &g, err));
    assert_true(g.temperature == 0.6 && g.top_p == 0.95 && g.min_p == 0.05 && g.repeat_penalty == 1.1 &&
                g.top_k == 20);
    OK(read_gen("{}", "{\"temperature\":null,\"top_k\":-1,\"top_p\":null,\"do_sample\":null}", NULL, &g,
                err));
    assert_true(g.temperature == 1 && !g.do_sample);
    OK(read_gen("{}", "{\"temperature\":null,\"top_k\":-1,\"do_sample\":true}", NULL, &g, err));
    assert_true(g.temperature == 1 && g.top_k == 0);
    static const char *const bad[] = {"\"temperature\":-1", "\"temperature\":\"hot\"",
                                      "\"top_p\":1.5",      "\"top_k\":1.5",
                                      "\"top_k\":-2",       "\"min_p\":2"};
    static const char *const bad_always[] = {"{\"repetition_penalty\":0}", "{\"do_sample\":1}"};
    char text[80];
    for (size_t i = 0; i < LN_COUNT(bad); i++) {
        ln_error err = {0};
        (void)snprintf(text, sizeof text, "{\"do_sample\":true,%s}", bad[i]);
        expect(bad[i], LN_EINVALID, "generation_config.json", read_gen("{}", text, NULL, &g, &err), &err);
        /* without do_sample these fields have no effect, and are not judged */
        (void)snprintf(text, sizeof text, "{\"do_sample\":false,%s}", bad[i]);
        expect(bad[i], LN_OK, "", read_gen("{}", text, NULL, &g, &err), &err);
    }
    for (size_t i = 0; i < LN_COUNT(bad_always); i++) {
        ln_error err = {0};
        expect(bad_always[i], LN_EINVALID, "generation_config.json",
               read_gen("{}", bad_always[i], NULL, &g, &err), &err);
    }
}

static bool has_template(const char *dir) {
    bool has;
    OK(ln_has_template(dir, &has, err));
    return has;
}

static void test_template(void **state) {
    (void)state;
    make_dirs("t0/x");
    assert_false(has_template(at("t0")));
    put_text("t1/chat_template.jinja", "x");
    assert_true(has_template(at("t1")));
    put_text("t2/chat_templates/default.jinja", "x");
    assert_true(has_template(at("t2")));
    put_text("t2b/additional_chat_templates/tool_use.jinja", "x");
    assert_true(has_template(at("t2b")));
    put_text("t3/chat_templates/readme.txt", "x");
    assert_false(has_template(at("t3")));
    static const struct {
        const char *json;
        bool want;
    } cases[] = {{"{\"chat_template\":\"x\"}", true},
                 {"{\"chat_template\":[{\"name\":\"default\",\"template\":\"x\"}]}", true},
                 {"{\"chat_template\":null}", false},
                 {"{\"chat_template\":\"\"}", false},
                 {"{\"chat_template\":7}", true},
                 {"{\"chat_template\":{}}", true},
                 {"{\"chat_template\":[]}", false},
                 {"{}", false}};
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        put_text("t4/tokenizer_config.json", cases[i].json);
        assert_int_equal(has_template(at("t4")), cases[i].want);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stop_ids), cmocka_unit_test(test_sampling),
                                       cmocka_unit_test(test_template)};
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
