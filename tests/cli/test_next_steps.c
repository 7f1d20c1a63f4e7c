/* What a new user meets first: `linnet` alone, the end of doctor, and the offer to fetch a model that is not
 * on this machine, with a program in the place of Hugging Face's. */
/* run: quick */
#include "talk.h"

#include <errno.h>
#include <sys/stat.h>

/* The beginning of PATH; a program hf there notes its arguments and does what `does` says. */
static void stand_in(const char *does) {
    char text[2000], path[600];
    (void)snprintf(path, sizeof path, "%s/bin", dir);
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    (void)snprintf(path, sizeof path, "%s/bin/hf", dir);
    (void)snprintf(text, sizeof text, "#!/bin/sh\necho \"$*\" >>'%s/asked'\n%s\n", dir, does);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
    assert_int_equal(chmod(path, 0755), 0);
}

/* The environment of the commands: a cache in the test's folder, and in PATH the stand-in and the
 * system's own programs. */
static void own_cache(void) {
    char text[600];
    (void)snprintf(text, sizeof text, "%s/hf", dir);
    (void)setenv("HF_HOME", text, 1);
    (void)snprintf(text, sizeof text, "%s/bin:/usr/bin:/bin", dir);
    (void)setenv("PATH", text, 1);
}

#define FETCHES                                                                       \
    "m=\"$HF_HOME/hub/models--some--model\"; mkdir -p \"$m/refs\" \"$m/snapshots\"\n" \
    "printf 1234 >\"$m/refs/main\"; cp -r '" TINY "' \"$m/snapshots/1234\""

#define SIT_RUN(...) \
    sit_down("xterm", (char *const[]){(char[]){"linnet"}, (char[]){"run"}, __VA_ARGS__, NULL})

static void asked_for(const char *expected) {
    char path[600];
    ln_str text = {0};
    (void)snprintf(path, sizeof path, "%s/asked", dir);
    FILE *f = fopen(path, "r");
    for (int c; f && (c = fgetc(f)) != EOF;) ln_str_add(&text, &(char){(char)c}, 1);
    if (f) (void)fclose(f);
    assert_string_equal(text.data ? text.data : "", expected);
    ln_str_free(&text);
    (void)unlink(path);
}

static void a_model_is_fetched_if_the_user_says_so(void **state) {
    (void)state;
    before_exec = own_cache;
    stand_in(FETCHES);
    SIT_RUN(S("some/model"), S("Tell me a short story."), S("-n"), S("4"), S("--temp"), S("0"));
    until("not in the Hugging Face cache");
    until("linnet: run it now: hf download some/model [y/N] ");
    type("y\r");
    until("Near the hill lived");
    assert_int_equal(stand_up(), 0);
    asked_for("download some/model\n");
    before_exec = NULL;
}

static void a_revision_is_fetched(void **state) {
    (void)state;
    before_exec = own_cache;
    stand_in("echo no such revision; exit 3");
    SIT_RUN(S("other/model@v2"), S("Hi"));
    until("[y/N] ");
    type("yes\r");
    until("no such revision");
    until("hf download other/model --revision v2 failed");
    assert_int_equal(stand_up(), 5);
    asked_for("download other/model --revision v2\n");
    before_exec = NULL;
}

static void nothing_is_fetched_otherwise(void **state) {
    (void)state;
    before_exec = own_cache;
    stand_in(FETCHES);
    SIT_RUN(S("third/model"), S("Hi"));
    until("[y/N] ");
    type("\r");
    assert_int_equal(stand_up(), 5);
    asked_for("");
    /* a directory that does not exist, and no terminal: no question */
    SIT_RUN(S("./absent/model"), S("Hi"));
    until("no such directory");
    assert_int_equal(stand_up(), 5);
    outcome *o = RUN(S("run"), S("third/model"), S("Hi"));
    expect(o, 5, "fetch it: hf download third/model");
    assert_null(strstr(o->err, "[y/N]"));
    asked_for("");
    before_exec = NULL;
}

static void three_steps_are_named(void **state) {
    (void)state;
    before_exec = own_cache;
    outcome *o = RUN(S("doctor"));
    assert_int_equal(o->code, 0);
    /* the cache has the copy of the bundled model that a test above has fetched, under another name */
    assert_non_null(strstr(o->out, "\nnext        linnet chat some/model "));
    assert_non_null(strstr(o->out, "\n            linnet bench some/model "));
    assert_non_null(strstr(o->out, "\n            linnet serve some/model "));
    before_exec = NULL;
    char *const alone[] = {(char[]){"linnet"}, NULL};
    o = run_with("", 0, alone);
    assert_int_equal(o->code, 0);
    assert_non_null(strstr(o->out, "\nnext        hf download Qwen/Qwen3-"));
}

static int remove_all(void **state) {
    (void)state;
    char command[200];
    drop_last();
    (void)snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_fetched_if_the_user_says_so),
        cmocka_unit_test(a_revision_is_fetched),
        cmocka_unit_test(nothing_is_fetched_otherwise),
        cmocka_unit_test(three_steps_are_named),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_all);
}
