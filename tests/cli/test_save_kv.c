/* run --save-kv and --load-kv: a longer prompt computes only what is new and has the same text; files are not
 * replaced unasked, and those of other options are rejected. --lookup: the same text in fewer steps. */
/* run: quick */
#include "spawn.h"

static outcome *generate(const char *prompt, const char *flag, const char *file, const char *more) {
    char words[3][400];
    (void)snprintf(words[0], sizeof words[0], "--prompt=%s", prompt);
    (void)snprintf(words[1], sizeof words[1], "%s=%s", flag, file);
    (void)snprintf(words[2], sizeof words[2], "%s", more);
    return RUN(S("run"), S(TINY), words[0], S("--raw"), S("-n"), S("12"), S("--temp"), S("0"), S("--ctx"),
               S("256"), S("--threads"), S("2"), S("--json"), words[1], words[2]);
}

static int64_t metric(const json_t *o, const char *key) { return int_of(json_object_get(o, "metrics"), key); }

static void what_was_saved_is_not_computed(void **state) {
    (void)state;
    char *file = at(1, "keys.st"), longer[300];
    json_t *first = json_of(generate("Once upon a time there was a small", "--save-kv", file, "-v"));
    assert_non_null(strstr(last->err, "--save-kv: keys and values of "));
    (void)snprintf(longer, sizeof longer, "Once upon a time there was a small%s And then",
                   text_of(first, "text"));
    json_t *with = json_of(generate(longer, "--load-kv", file, "-v"));
    assert_non_null(strstr(last->err, "--load-kv: keys and values of "));
    json_t *without = json_of(generate(longer, "--seed", "1", "-v"));
    assert_string_equal(text_of(with, "text"), text_of(without, "text"));
    assert_true(metric(with, "cached_tokens") >= metric(first, "prompt_tokens"));
    assert_int_equal(metric(without, "cached_tokens"), 0);
    assert_null(json_object_get(json_object_get(without, "metrics"), "cache_miss_reason"));
    json_decref(with);
    /* a text that goes on in another way: why less was reused is said */
    with = json_of(generate("Once upon a time there was a large dog that ran", "--load-kv", file, "--stats"));
    assert_string_equal(text_of(json_object_get(with, "metrics"), "cache_miss_reason"), "diverged");
    assert_non_null(strstr(last->err, " cached: diverged) in "));
    json_decref(first), json_decref(with), json_decref(without);
}

static void files_are_kept_and_checked(void **state) {
    (void)state;
    char *file = at(1, "keys.st");
    expect(generate("Hello", "--save-kv", file, "--seed=1"), 5, "exists already; --force overwrites it");
    expect(generate("Hello", "--save-kv", file, "--force"), 0, NULL);
    expect(generate("Hello", "--load-kv", file, "--numerics=exact"), 3, "the numerics: expected exact");
    expect(generate("Hello", "--load-kv", file, "--quantize=8"), 3, "quantised to at load: expected 8");
    expect(RUN(S("run"), S(SMALL), S("--ids"), S("1,2,3"), S("-n"), S("2"), S("--load-kv"), file), 3,
           "the weights: expected ");
    expect(generate("Hello", "--load-kv", at(2, "none"), "--seed=1"), 5, "/none");
    expect(generate("Hello", "--load-kv", TINY "/config.json", "--seed=1"), 3, "config.json");
    expect(generate("Hello", "--load-kv", TINY "/model.safetensors", "--seed=1"), 3, "linnet-kv");
}

/* Tokens that are computed ahead are counted, and change nothing else. */
static void lookup(void **state) {
    (void)state;
#define REPEATS \
    S("run"), S(TINY), S("Tell me"), S("--grammar"), S("{\"regex\":\"(yes no maybe ){9}\"}"), S("--json")
    json_t *plain = json_of(RUN(REPEATS)),
           *ahead = json_of(RUN(REPEATS, S("--lookup"), S("8"), S("--stats")));
    assert_string_equal(text_of(ahead, "text"), text_of(plain, "text"));
    assert_true(metric(ahead, "accepted_tokens") > 9);
    assert_true(metric(ahead, "proposed_tokens") >= metric(ahead, "accepted_tokens"));
    assert_null(json_object_get(json_object_get(plain, "metrics"), "proposed_tokens"));
    json_decref(plain);
    json_decref(ahead);
    expect(RUN(REPEATS, S("--lookup"), S("8"), S("--stats")), 0, " tokens ahead, ");
    expect(RUN(S("run"), S(TINY), S("Hi"), S("--lookup"), S("65")), 2, "--lookup");
    expect(RUN(S("classify"), S(TINY), S("--lookup"), S("4")), 2, "--lookup");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lookup),
                                       cmocka_unit_test(what_was_saved_is_not_computed),
                                       cmocka_unit_test(files_are_kept_and_checked)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
