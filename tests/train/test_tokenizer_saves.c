/* The tokenizer that training writes next to an adapter with added tokens, into a directory that holds an
 * earlier one: whatever call is the last, each file is one of the two, whole. */
/* run: slow */
#include "../fewer.h"
#include "../killed.h"

#include "package/package.h"
#include "train/checkpoint.h"
#include "train/tokenizer_files.h"

#define TINY LN_ROOT "/models/tiny"

static char dir[100];
static const char *const versions[] = {"<one>", "<one>,<two>"};
static const char *const files[] = {"tokenizer.json", "tokenizer_config.json"};

static void shell(const char *command) {
    char line[400];
    snprintf(line, sizeof line, "mkdir -p '%s' && cd '%s' && %s", dir, dir, command);
    if (system(line) != 0) fail_msg("%s", line);
}

/* Writes the tokenizer with the tokens of a version into a directory, as a run that begins there does. */
static ln_status save(int version, const char *to, ln_error *err) {
    ln_options o = ln_options_default();
    ln_package *m = NULL;
    o.add_tokens = versions[version];
    ln_status st = ln_package_open(&m, TINY, &o, err);
    train_files_sweep(to);
    if (st == LN_OK) st = train_tokenizer_write(m, to, err);
    ln_package_close(&m);
    return st;
}

/* Returns which version a file of the directory has; -1: it does not exist. */
static int version_of(const char *file) {
    char command[300];
    for (int v = 0; v < 2; v++) {
        snprintf(command, sizeof command, "cmp -s '%s/run/%s' '%s/whole%d/%s'", dir, file, dir, v, file);
        if (system(command) == 0) return v;
    }
    snprintf(command, sizeof command, "%s/run/%s", dir, file);
    if (access(command, F_OK) == 0) fail_msg("%s has neither version", file);
    return -1;
}

/* Kills a save of `version` at each call of a kind, or every step-th, until one is not killed. Returns how
 * many were killed. */
static int killed_at(const char *call, int version, int step) {
    char number[8], to[200], *const args[] = {"save", to, number, NULL};
    snprintf(number, sizeof number, "%d", version);
    snprintf(to, sizeof to, "%s/run", dir);
    int n = 0;
    for (int k = 1;; k += step, n++) {
        const int status = test_run_injected(args, call, "signal=KILL", k);
        for (size_t i = 0; i < LN_COUNT(files); i++) (void)version_of(files[i]);
        assert_true(k < 5000);
        if (!WIFEXITED(status)) continue;
        assert_int_equal(WEXITSTATUS(status), 0);
        for (size_t i = 0; i < LN_COUNT(files); i++) assert_int_equal(version_of(files[i]), version);
        shell("test -z \"$(find run -name '*.tmp*')\""); /* what killed ones left */
        return n;
    }
}

static void killed_at_every_call(void **state) {
    (void)state;
    static const char *const calls[] = {"rename", "fsync", "write", "openat", "close"};
    char to[200], *const args[] = {"save", to, "0", NULL};
    int n = 0;
    for (int v = 0; v < 2; v++) {
        snprintf(to, sizeof to, "%s/whole%d", dir, v);
        shell("mkdir -p whole0 whole1 run");
        OK(save(v, to, err));
    }
    shell("! cmp -s whole0/tokenizer.json whole1/tokenizer.json");
    snprintf(to, sizeof to, "%s/run", dir);
    if (!test_strace_works(args)) {
        print_message("SKIP: strace is not there or may not trace: saves are NOT killed at every call\n");
        skip();
    }
    const size_t most = (size_t)fewer((int64_t)LN_COUNT(calls), 1);
    for (size_t i = 0; i < most; i++)
        n += killed_at(calls[i], (int)(i + 1) % 2, i < 3 || getenv("LN_LONG") ? 1 : 23);
    print_message("  %d saves were killed\n", n);
    assert_true(n >= 2);
}

static int end(void **state) {
    (void)state;
    shell("rm -rf \"$PWD\"");
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "save") == 0) return (int)save(atoi(argv[3]), argv[2], NULL);
    snprintf(dir, sizeof dir, "/tmp/test_tokenizer_saves.%ld", (long)getpid());
    const struct CMUnitTest tests[] = {cmocka_unit_test(killed_at_every_call)};
    return cmocka_run_group_tests_name("saves of a tokenizer", tests, NULL, end);
}
