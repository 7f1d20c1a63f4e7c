/* linnet eval from outside: its kinds of output, windows as defined (by score), and what it rejects. */
/* run: quick */
#include "spawn.h"

static char *file_with(const char *text, size_t bytes) {
    char *path = at(3, "prompt.txt");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
    return path;
}

static const char story[] =
    "Once upon a time there was a small fox who lived in the forest. One day the fox met a bird. "
    "The bird had lost her nest, and the fox helped her to build a new one before the night.\n";
static char *story_file(void) { return file_with(story, sizeof story - 1); }

static double real_of(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    if (!json_is_number(v)) fail_msg("'%s' is no number", key);
    return json_number_value(v);
}

/* A text that one window holds has the perplexity that score has. */
static void one_window_is_a_score(void **state) {
    (void)state;
    char *file = story_file();
    json_t *e = json_of(RUN(S("eval"), S(TINY), file, S("--json"))),
           *s = json_of(RUN(S("score"), S(TINY), S("-f"), file, S("--json")));
    size_t n = json_array_size(json_object_get(s, "ids"));
    assert_int_equal(json_object_size(e), 6);
    assert_int_equal(int_of(e, "tokens"), n);
    assert_int_equal(int_of(e, "counted"), n - 1);
    assert_int_equal(int_of(e, "window"), 1024); /* the model's context */
    assert_int_equal(int_of(e, "stride"), 512);
    assert_true(real_of(e, "nll") == -real_of(s, "sum_logprob") / (double)(n - 1));
    assert_true(real_of(e, "perplexity") == real_of(s, "perplexity"));
    json_decref(s);
    /* the same from stdin */
    outcome *o = RUN_IN(story, S("eval"), S(TINY), S("--json"));
    json_t *piped = json_of(o);
    assert_true(json_equal(piped, e));
    json_decref(piped);
    piped = json_of(RUN_IN(story, S("eval"), S(TINY), S("-"), S("--json")));
    assert_true(json_equal(piped, e));
    json_decref(piped);
    json_decref(e);
}

/* Windows of 16 tokens at multiples of 6, each scored alone. */
static void windows_are_as_defined(void **state) {
    (void)state;
    enum { WINDOW = 16, STRIDE = 6 };
    char *file = story_file();
    json_t *whole = json_of(RUN(S("tokenize"), S(TINY), S("-f"), file, S("--json")));
    const json_t *ids = json_object_get(whole, "ids");
    const size_t n = json_array_size(ids);
    size_t counted = 0, seen = 0;
    double sum = 0;
    for (size_t begin = 0; seen < n; begin += STRIDE) {
        size_t end = LN_MIN(begin + WINDOW, n);
        double part = 0;
        ln_str list = {0};
        for (size_t i = begin; i < end; i++)
            ln_str_addf(&list, i > begin ? ",%lld" : "%lld",
                        (long long)json_integer_value(json_array_get(ids, i)));
        json_t *s = json_of(RUN(S("score"), S(TINY), S("--ids"), list.data, S("--json")));
        const json_t *logprobs = json_object_get(s, "logprobs");
        for (size_t i = LN_MAX(seen, begin + 1); i < end; i++) {
            part += json_real_value(json_array_get(logprobs, i - begin));
            counted++;
        }
        sum += part;
        seen = end;
        json_decref(s);
        ln_str_free(&list);
    }
    json_t *e =
        json_of(RUN(S("eval"), S(TINY), file, S("--window"), S("16"), S("--stride"), S("6"), S("--json")));
    assert_int_equal(int_of(e, "tokens"), n);
    assert_int_equal(int_of(e, "counted"), counted);
    assert_true(real_of(e, "nll") == -sum / (double)counted);
    json_decref(e);
    json_decref(whole);
}

static void for_people(void **state) {
    (void)state;
    expect(RUN(S("eval"), S(TINY), story_file(), S("--stats")), 0, "linnet: load ");
    assert_non_null(strstr(last->out, "tokens "));
    assert_non_null(strstr(last->out, "perplexity  "));
    assert_non_null(strstr(last->out, "window      1024, stride 512\n"));
}

static void a_large_window_is_cut(void **state) {
    (void)state;
    char *file = story_file();
    expect(RUN(S("eval"), S(TINY), file, S("--window"), S("4096"), S("--json")), 0,
           "--window 4096 is cut to the context of 1024 positions");
    json_t *e = json_of(last);
    assert_int_equal(int_of(e, "window"), 1024);
    json_decref(e);
    expect(RUN(S("eval"), S(TINY), file, S("--window"), S("100"), S("--ctx"), S("32"), S("--json")), 0,
           "32 positions");
    e = json_of(last);
    assert_true(int_of(e, "window") == 32 && int_of(e, "stride") == 16);
    json_decref(e);
    expect(RUN(S("eval"), S(TINY), file, S("--ctx"), S("4096")), 2, "--ctx");
}

static void refusals(void **state) {
    (void)state;
    char *file = story_file();
    expect(RUN(S("eval")), 2, "MODEL");
    expect(RUN(S("eval"), S(TINY), S("/nowhere")), 5, "/nowhere");
    expect(RUN(S("eval"), S(TINY), file, file), 2, "unexpected argument");
    expect(RUN(S("eval"), S(TINY), file, S("-f"), file), 2, "contradict");
    expect(RUN(S("eval"), S(TINY), file, S("--window"), S("1")), 2, "--window");
    expect(RUN(S("eval"), S(TINY), file, S("--stride"), S("0")), 2, "--stride");
    expect(RUN(S("eval"), S(TINY), file, S("--window"), S("16"), S("--stride"), S("17")), 2, "--stride 17");
    expect(RUN(S("eval"), S(TINY), file, S("--window"), S("4096"), S("--stride"), S("2048")), 2, NULL);
    expect(RUN(S("score"), S(TINY), S("x"), S("--window"), S("16")), 2, "eval");
    expect(RUN(S("plan"), S(TINY), S("--window"), S("16")), 2, "--for eval");
    file = file_with("", 0);
    expect(RUN(S("eval"), S(TINY), file), 3, "empty");
    file = file_with("a", 1);
    expect(RUN(S("eval"), S(TINY), file), 3, "1 token");
    file = file_with("ab\xff", 3);
    expect(RUN(S("eval"), S(TINY), file), 3, "byte 2: expected UTF-8");
}

static void plan_knows_eval(void **state) {
    (void)state;
    json_t *small =
               json_of(RUN(S("plan"), S(TINY), S("--for"), S("eval"), S("--window"), S("64"), S("--json"))),
           *large = json_of(RUN(S("plan"), S(TINY), S("--for"), S("eval"), S("--json")));
    assert_int_equal(int_of(small, "ctx"), 64);
    assert_int_equal(int_of(large, "ctx"), 1024);
    assert_true(int_of(small, "kv_bytes") < int_of(large, "kv_bytes"));
    json_decref(small);
    json_decref(large);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_window_is_a_score),
                                       cmocka_unit_test(windows_are_as_defined),
                                       cmocka_unit_test(for_people),
                                       cmocka_unit_test(a_large_window_is_cut),
                                       cmocka_unit_test(refusals),
                                       cmocka_unit_test(plan_knows_eval)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
