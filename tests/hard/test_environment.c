/* The command on a system in a bad state: closed descriptors, full disks, small limits, unusual locales,
 * no home directory, no /proc, and files that are truncated while they are mapped. The process never ends
 * by a signal; the result is the usual one or an error of the right kind that gives the reason. */
/* run: slow */
#include "change.h"

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

static bool sanitized(void) { return getenv("LN_SANITIZED") != NULL; }

static void one_of(const outcome *o, const char *what, int a, int b) {
    if (o->code != a && o->code != b) fail_msg("%s: exit %d, stderr: %s", what, o->code, o->err);
    if (o->code && strncmp(o->err, "linnet: ", 8) != 0)
        fail_msg("%s: exit %d, stderr: '%s'", what, o->code, o->err);
}

#define GENERATE S("run"), S(SMALL), S("--ids"), S("5,6"), S("-n"), S("4"), S("--temp"), S("0")

/* ---- variables ---- */

static const char *variable, *value;
static void set_variable(void) {
    if (value) setenv(variable, value, 1);
    else unsetenv(variable);
}

static void locales_change_nothing(void **state) {
    (void)state;
    static const char *const names[] = {"C",     "POSIX", "C.UTF-8",      "de_DE.UTF-8", "tr_TR.UTF-8",
                                        "xx_YY", "",      "../../../etc", "%s%n",        "\xff\xfe"};
    expect(RUN(S("score"), S(SMALL), S("--ids"), S("5,6,7")), 0, NULL);
    char *want = ln_strndup(last->out, last->out_bytes);
    before_exec = set_variable;
    static const char *const variables[] = {"LC_ALL", "LANG", "LC_NUMERIC"};
    for (size_t v = 0; v < LN_COUNT(variables); v++)
        for (size_t i = 0; i < LN_COUNT(names); i++) {
            variable = variables[v], value = names[i];
            expect(RUN(S("score"), S(SMALL), S("--ids"), S("5,6,7")), 0, NULL);
            char *figures = strstr(last->out, "perplexity");
            assert_non_null(figures);
            if (strcmp(strstr(want, "perplexity"), figures) != 0)
                fail_msg("%s=%s: %s", variable, value, last->out);
            expect(RUN(GENERATE, S("--top-p"), S("0.5")), 0, NULL); /* the decimal separator stays a point */
        }
    before_exec = NULL;
    ln_free(want);
}

static void no_home(void **state) {
    (void)state;
    before_exec = set_variable;
    variable = "HOME", value = NULL;
    expect(RUN(GENERATE), 0, NULL);
    expect(RUN(S("ls")), 0, NULL);
    expect(RUN(S("run"), S("org/name"), S("-p"), S("x")), 5, "org/name");
    value = "/nowhere";
    expect(RUN(GENERATE), 0, NULL);
    expect(RUN(S("run"), S("org/name"), S("-p"), S("x")), 5, "hf download org/name");
    value = "";
    expect(RUN(GENERATE), 0, NULL);
    variable = "TMPDIR", value = "/nowhere";
    expect(RUN(GENERATE), 0, NULL);
    variable = "LINNET_LOG", value = "loud";
    expect(RUN(GENERATE), 2, "LINNET_LOG: expected 0, 1, 2 or 3, found 'loud'");
    before_exec = NULL;
}

/* ---- limits ---- */

static int resource;
static rlim_t most;
static void set_limit(void) {
    const struct rlimit l = {most, most};
    (void)setrlimit(resource, &l);
}
static void set_soft_limit(void) {
    struct rlimit l;
    (void)getrlimit(resource, &l);
    l.rlim_cur = most;
    (void)setrlimit(resource, &l);
}

/* `ulimit -v`, from a limit at which the program barely starts to a sufficient one: the text, or exit 6. */
static void little_address_space(void **state) {
    (void)state;
    if (sanitized()) {
        print_message("SKIP: a sanitizer's shadow does not fit into an address space with a limit\n");
        return;
    }
    int good = 0, refused = 0;
    before_exec = set_limit;
    resource = RLIMIT_AS;
    for (most = 6 << 20; most <= (rlim_t)64 << 20; most += 1 << 20) {
        outcome *o = RUN(S("run"), S(TINY), S(STORY), S("-n"), S("3"), S("--threads"), S("2"));
        if (o->code == 127 || o->code == 98)
            continue; /* the dynamic loader or the kernel could not start
                         the program */
        one_of(o, "ulimit -v", 0, 6);
        good += o->code == 0;
        refused += o->code == 6;
    }
    before_exec = NULL;
    print_message("ulimit -v: %d runs refused, %d went through\n", refused, good);
    assert_true(good > 0 && refused > 0);
}

static void few_descriptors(void **state) {
    (void)state;
    before_exec = set_limit;
    resource = RLIMIT_NOFILE;
    int good = 0, refused = 0;
    for (most = 3; most <= 16; most++) {
        outcome *o = RUN(S("run"), S(LN_ROOT "/tests/golden/qwen3-sharded-bf16"), S("--ids"), S("5,6"),
                         S("-n"), S("2"));
        if (o->code == 127 || o->code == 98) continue; /* the dynamic loader could open no file */
        one_of(o, "ulimit -n", 0, 5);
        good += o->code == 0;
        refused += o->code == 5;
    }
    before_exec = NULL;
    print_message("ulimit -n: %d runs refused, %d went through\n", refused, good);
    assert_true(good > 0);
}

static void small_stack(void **state) {
    (void)state;
    if (sanitized()) return; /* a sanitizer's stack frames are larger */
    before_exec = set_limit;
    resource = RLIMIT_STACK;
    for (most = 128 << 10; most <= 512 << 10; most *= 2) {
        expect(RUN(GENERATE, S("--threads"), S("2")), 0, NULL);
        expect(RUN(S("score"), S(TINY), S("Hello world")), 0, NULL);
        expect(RUN(S("ls"), S(LN_ROOT "/tests/golden")), 0, NULL);
    }
    most = 64 << 10; /* too little to run a model: a message if the limit is hard, else it is raised */
    expect(RUN(GENERATE), 6, "the stack is limited to 64 KiB; expected 512 or more: ulimit -s 512");
    before_exec = set_soft_limit;
    expect(RUN(GENERATE), 0, NULL);
    before_exec = NULL;
}

/* ---- descriptors ---- */

static void closed_descriptors(void **state) {
    (void)state;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    char *run[] = {S("linnet"), GENERATE, NULL}, *bare[] = {S("linnet"), S("run"), S(SMALL), NULL};
    for (int closed = 0; closed < 8; closed++) {
        int in = closed & 1 ? -1 : null, out = closed & 2 ? -1 : null, err = closed & 4 ? -1 : null;
        assert_int_equal(finish(start(run, in, out, err)), 0);
        assert_int_equal(finish(start(bare, in, out, err)), 2); /* no prompt: a closed stdin counts as
                                                                   empty */
    }
    close(null);
}

static void full_device(void **state) {
    (void)state;
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC), null = open("/dev/null", O_RDWR | O_CLOEXEC);
    char *verbs[][12] = {{S("linnet"), GENERATE},
                         {S("linnet"), GENERATE, S("--json")},
                         {S("linnet"), S("score"), S(SMALL), S("--ids"), S("5,6")},
                         {S("linnet"), S("ls"), S(LN_ROOT "/tests/golden")},
                         {S("linnet"), S("plan"), S(SMALL)},
                         {S("linnet"), S("help")},
                         {S("linnet"), S("tokenize"), S(SMALL), S("--ids"), S("5")}};
    for (size_t i = 0; i < LN_COUNT(verbs); i++) {
        int code = finish(start(verbs[i], null, full, null));
        if (code != 5) fail_msg("verb %zu on a full device: exit %d", i, code);
        assert_int_not_equal(finish(start(verbs[i], null, null, full)),
                             5); /* a run does not fail because its messages cannot be written */
    }
    close(full);
    close(null);
}

static void arguments_without_end(void **state) {
    (void)state;
    enum { MANY = 100000 };
    char **argv = ln_zalloc(MANY + 2, sizeof *argv);
    argv[0] = S("linnet");
    for (int i = 1; i <= MANY; i++) argv[i] = S("x");
    outcome *o = run_with("", 0, argv);
    if (o->code != 98) expect(o, 2, NULL); /* 98: the kernel did not start it */
    ln_free(argv);
    char *text = ln_zalloc(1, 130001);
    memset(text, 'a', 130000);
    expect(RUN(S("run"), S(SMALL), S("-p"), text), 3, "at least 26000 tokens, the context holds 256");
    ln_free(text);
    char *none[] = {NULL};
    o = run_with("", 0, none);
    assert_true(o->code == 0 || o->code == 98); /* without arguments: the help page */
}

/* ---- disks ---- */

/* Runs `fn` in a mount namespace of its own; returns false if the system does not permit that. */
static bool in_own_mounts(int (*fn)(void)) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) _exit(77);
        _exit(fn());
    }
    int code = finish(pid);
    if (code == 77) print_message("SKIP: no file system can be mounted here\n");
    else assert_int_equal(code, 0);
    return code != 77;
}

#define CHECK(x)                                                                               \
    do {                                                                                       \
        if (!(x)) {                                                                            \
            fprintf(stderr, "line %d: %s; exit %d, %s\n", __LINE__, #x, last ? last->code : 0, \
                    last ? last->err : "");                                                    \
            return 1;                                                                          \
        }                                                                                      \
    } while (0)

static bool only_file(const char *folder, const char *leaf) {
    char command[300];
    (void)snprintf(command, sizeof command, "test \"$(ls -A '%s')\" = '%s'", folder, leaf);
    return system(command) == 0;
}

/* Tensor files on a disk that becomes full at each point of writing: exit 5, the old file is unchanged,
 * and no other file remains. */
static int on_small_disks(void) {
    char folder[200], file[256], options[32];
    (void)snprintf(folder, sizeof folder, "%s/disk", dir);
    (void)snprintf(file, sizeof file, "%s/x.st", folder);
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) return 77;
    int full = 0, fits = 0;
    for (int pages = 2; pages < 40; pages += 3) {
        (void)snprintf(options, sizeof options, "size=%dk", pages * 4);
        if (mount("none", folder, "tmpfs", 0, options) != 0) return 77;
        write_file(file, "old", 3);
        outcome *o = RUN(S("score"), S(SMALL), S("--ids"),
                         S("5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30"),
                         S("--logits"), file, S("--force"));
        CHECK(o->code == 0 || o->code == 5);
        full += o->code == 5;
        fits += o->code == 0;
        if (o->code == 5) {
            CHECK(strstr(o->err, "x.st") && strstr(o->err, "No space left"));
            ln_str s = read_whole(file);
            CHECK(s.len == 3 && memcmp(s.data, "old", 3) == 0);
            ln_str_free(&s);
        }
        CHECK(only_file(folder, "x.st"));
        if (umount(folder) != 0) return 1;
    }
    CHECK(full > 0 && fits > 0);
    return 0;
}

static void full_disks(void **state) {
    (void)state;
    (void)in_own_mounts(on_small_disks);
}

static const char *folder_to_enter;
static void enter_folder(void) {
    if (chdir(folder_to_enter) != 0) _exit(97);
}

/* A read-only working directory and output. */
static int on_read_only_disk(void) {
    char folder[200], file[256];
    (void)snprintf(folder, sizeof folder, "%s/disk", dir);
    (void)snprintf(file, sizeof file, "%s/x.st", folder);
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) return 77;
    if (mount("none", folder, "tmpfs", 0, "size=64k") != 0 ||
        mount("none", folder, "tmpfs", MS_REMOUNT | MS_RDONLY, "size=64k") != 0)
        return 77;
    folder_to_enter = folder;
    before_exec = enter_folder;
    outcome *o = RUN(GENERATE);
    CHECK(o->code == 0);
    o = RUN(S("score"), S(SMALL), S("--ids"), S("5,6"), S("--logits"), S("x.st"));
    CHECK(o->code == 5 && strstr(o->err, "x.st") && strstr(o->err, "Read-only"));
    o = RUN(S("attention"), S(SMALL), S("--ids"), S("5,6"), S("-o"), file);
    CHECK(o->code == 5 && strstr(o->err, "x.st") && strstr(o->err, "Read-only"));
    before_exec = NULL;
    return 0;
}

static void read_only_places(void **state) {
    (void)state;
    (void)in_own_mounts(on_read_only_disk);
}

static int without_proc(void) {
    if (mount("none", "/sys", "tmpfs", 0, "size=4k") != 0 ||
        mount("none", "/proc", "tmpfs", 0, "size=4k") != 0)
        return 77;
    outcome *o = RUN(GENERATE);
    CHECK(o->code == 0);
    o = RUN(S("doctor"));
    CHECK(o->code == 0);
    o = RUN(S("plan"), S(SMALL));
    CHECK(o->code == 0);
    o = RUN(S("ls"), S(LN_ROOT "/tests/golden"));
    CHECK(o->code == 0);
    return 0;
}

static void no_proc(void **state) {
    (void)state;
    if (sanitized()) return; /* a sanitizer reads /proc itself */
    (void)in_own_mounts(without_proc);
}

/* ---- files that are truncated while they are mapped ---- */

static void fresh_tiny(void) {
    char command[600];
    (void)snprintf(command, sizeof command,
                   "rm -rf '%s/m' && mkdir '%s/m' && cp '%s/'*.json '%s/'model.safetensors '%s/m'", dir, dir,
                   TINY, TINY, dir);
    assert_int_equal(system(command), 0);
}

/* Runs the command and truncates a file after `wait` microseconds, or while the text is being generated if
 * wait is negative. Returns the exit code. */
static int cut_while_running(const char *leaf, off_t size, long wait, char *const argv[], char said[1000]) {
    int out[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
    char path[200], name[200];
    fresh_tiny();
    (void)snprintf(path, sizeof path, "%s/m/%s", dir, leaf);
    (void)snprintf(name, sizeof name, "%s/said", dir);
    int err = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int full = narrow_pipe(out);
    pid_t pid = start(argv, null, out[1], err);
    close(out[1]);
    if (wait >= 0) usleep((useconds_t)wait);
    else (void)writes(out[0], full);
    assert_int_equal(truncate(path, size), 0);
    if (wait < 0)
        usleep(300000); /* packed weights are not read from the file again: the engine checks the files
                           four times a second */
    (void)drain(out[0]);
    int code = finish(pid);
    ssize_t n = pread(err, said, 999, 0);
    said[n > 0 ? n : 0] = '\0';
    close(err), close(null);
    return code;
}

/* While a text is generated, on one thread and on several, with the weights locked or not: always exit 9. */
static void cut_in_the_midst(void **state) {
    (void)state;
    static char model[200], said[1000];
    (void)snprintf(model, sizeof model, "%s/m", dir);
    char *more[][2] = {{S("--threads"), S("1")},
                       {S("--threads"), S("3")},
                       {S("--mlock"), S("--stats")},
                       {S("--device"), S("ref")},
                       {S("--numerics"), S("fast")}};
    for (size_t i = 0; i < LN_COUNT(more); i++)
        for (int half = 0; half < 2; half++) {
            char *argv[] = {S("linnet"), S("run"),          model,      S(STORY),   S("-n"),
                            S("100000"), S("--ignore-eos"), more[i][0], more[i][1], NULL};
            int code = cut_while_running("model.safetensors", half ? 4000000 : 0, -1, argv, said);
            if (code != 9 || !strstr(said, "model.safetensors: changed"))
                fail_msg("%s %s: exit %d: %s", more[i][0], more[i][1], code, said);
        }
}

/* At any time from the start on: a file truncated before it was opened is rejected (3), one truncated later
 * gives 9, and a command that had finished gives 0. The process never ends by a signal. */
static void cut_at_any_moment(void **state) {
    (void)state;
    static const char *const leaves[] = {"model.safetensors", "tokenizer.json", "config.json"};
    static char model[200], said[1000];
    int seen[10] = {0}, rounds = getenv("LN_LONG") ? 400 : 60;
    (void)snprintf(model, sizeof model, "%s/m", dir);
    for (int i = 0; i < rounds; i++) {
        bool lock = i % 3 == 0;
        char *run[] = {S("linnet"),
                       S("run"),
                       model,
                       S(STORY),
                       S("-n"),
                       S("60"),
                       S("--threads"),
                       S("2"),
                       lock ? S("--mlock") : S("--ignore-eos"),
                       NULL};
        char *score[] = {S("linnet"), S("score"), model, S(STORY), S("--threads"), S("2"), NULL},
             *show[] = {S("linnet"), S("show"), model, NULL};
        char *const *argv = i % 5 == 4 ? show : i % 5 == 3 ? score : run;
        int code = cut_while_running(leaves[i % 7 < 5 ? 0 : i % 7 - 4], i % 2 ? 5000 : 100000,
                                     300 * (i % 60) + 50, (char *const *)argv, said);
        if (code != 0 && code != 3 && code != 9) fail_msg("round %d: exit %d: %s", i, code, said);
        if (code && !strstr(said, "linnet: ")) fail_msg("round %d: exit %d without a word", i, code);
        seen[code]++;
    }
    print_message("cut at any moment: %d were done, %d refused it, %d noticed\n", seen[0], seen[3], seen[9]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(locales_change_nothing),
                                       cmocka_unit_test(no_home),
                                       cmocka_unit_test(little_address_space),
                                       cmocka_unit_test(few_descriptors),
                                       cmocka_unit_test(small_stack),
                                       cmocka_unit_test(closed_descriptors),
                                       cmocka_unit_test(full_device),
                                       cmocka_unit_test(arguments_without_end),
                                       cmocka_unit_test(full_disks),
                                       cmocka_unit_test(read_only_places),
                                       cmocka_unit_test(no_proc),
                                       cmocka_unit_test(cut_in_the_midst),
                                       cmocka_unit_test(cut_at_any_moment)};
    return cmocka_run_group_tests(tests, make_dir, remove_all);
}
