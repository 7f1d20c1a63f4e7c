/* The exit codes: for each code a cause that leads to it, and `linnet help` names it. Code 70, a defect,
 * cannot be provoked from the command line: the comparison of devices ends with that status, which
 * tests/inspect/test_explain.c provokes, and main returns any status unchanged. */
/* run: slow */
#include "spawn.h"

static const char *const files[] = {"config.json", "tokenizer.json", "model.safetensors"};

/* Copies a model to `dir`; with `spoil`, the last weights are NaN. */
static void copy_model(const char *from, bool spoil) {
    for (size_t i = 0; i < LN_COUNT(files); i++) {
        char path[300], *data;
        size_t n;
        (void)snprintf(path, sizeof path, "%s/%s", from, files[i]);
        assert_int_equal(ln_read_file(path, 1u << 30, &data, &n, NULL), LN_OK);
        if (spoil && i == 2) memset(data + n - 4096, 0xff, 4096);
        FILE *f = fopen(at(0, files[i]), "w");
        assert_int_equal(fwrite(data, 1, n, f), n);
        assert_int_equal(fclose(f), 0);
        ln_free(data);
    }
}

static void drop_model(void) {
    for (size_t i = 0; i < LN_COUNT(files); i++) assert_int_equal(unlink(at(0, files[i])), 0);
}

/* Starts a generation in a copy of tiny and waits until its output blocks; it continues when the pipe is
 * drained. Returns the process id; *out is the pipe. */
static pid_t start_long(int *out) {
    int p[2], null = open("/dev/null", O_RDWR | O_CLOEXEC), full = narrow_pipe(p);
    char *argv[] = {S("linnet"), S("run"),          dir,           S(STORY), S("-n"),
                    S("1000"),   S("--ignore-eos"), S("--device"), S("ref"), NULL};
    copy_model(TINY, false);
    pid_t pid = start(argv, null, p[1], null);
    close(p[1]);
    close(null);
    assert_true(writes(p[0], full));
    *out = p[0];
    return pid;
}

static int stopped_by(int number) {
    int out;
    pid_t pid = start_long(&out);
    kill(pid, number);
    (void)drain(out);
    int code = finish(pid);
    drop_model();
    return code;
}

static int done(void) { return RUN(S("--version"))->code; }
static int usage(void) { return RUN(S("run"), S("--frobnicate"))->code; }
static int invalid(void) { return RUN(S("show"), dir)->code; }
static int unsupported(void) { /* it is quantised already */
    return RUN(S("quantize"), S(LN_ROOT "/tests/golden/quantised/qwen2-q3-g64-f32"), S("-o"),
               S("/tmp/linnet-none"))
        ->code;
}
static int absent(void) { return RUN(S("show"), S("/nowhere"))->code; }
static int memory(void) { return RUN(S("run"), S(TINY), S("x"), S("--memory"), S("1M"))->code; }
static int device(void) { return RUN(S("run"), S(TINY), S("x"), S("--device"), S("cuda"))->code; }
static int numbers(void) {
    copy_model(LN_ROOT "/tests/golden/llama-plain-f32", true);
    int code = RUN(S("run"), dir, S("--ids"), S("1,2"))->code;
    drop_model();
    return code;
}
static int changed(void) {
    int out;
    pid_t pid = start_long(&out);
    assert_int_equal(truncate(at(0, "model.safetensors"), 5000), 0);
    (void)drain(out);
    int code = finish(pid);
    drop_model();
    return code;
}
static int interrupted(void) { return stopped_by(SIGINT); }
static int terminated(void) { return stopped_by(SIGTERM); }

/* A background job of a script inherits SIGINT as ignored, a child of nohup SIGHUP: such a signal must not
 * end the run. */
static void ignore_stops(void) {
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
}

static void ignored_signals_stay_ignored(void **state) {
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    char *argv[] = {S("linnet"), S("run"), S(TINY), S(STORY), S("-n"), S("300"), S("--ignore-eos"), NULL};
    for (size_t i = 0; i < LN_COUNT(signals); i++) {
        int p[2], null = open("/dev/null", O_RDWR | O_CLOEXEC), full = narrow_pipe(p);
        before_exec = ignore_stops;
        pid_t pid = start(argv, null, p[1], null);
        before_exec = NULL;
        close(p[1]);
        close(null);
        assert_true(writes(p[0], full)); /* generation has begun */
        kill(pid, signals[i]);
        size_t n = drain(p[0]);
        assert_int_equal(finish(pid), 0);
        assert_true(n > (size_t)full + 400); /* all tokens, not only those written before the signal */
    }
}

static const struct {
    int code;
    int (*provoke)(void);
} table[] = {{0, done},   {2, usage},   {3, invalid}, {4, unsupported},   {5, absent},      {6, memory},
             {7, device}, {8, numbers}, {9, changed}, {130, interrupted}, {143, terminated}};

static void each_code_has_its_cause(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(table); i++) {
        int code = table[i].provoke();
        if (code != table[i].code)
            fail_msg("exit %d, expected %d: %s", code, table[i].code, last ? last->err : "");
    }
}

/* The help page names exactly the codes of the table, and 70. */
static void help_names_them(void **state) {
    (void)state;
    expect(RUN(S("help")), 0, NULL);
    const char *at = strstr(last->out, "\nexit: "), *end = at ? strstr(at, "\n\n") : NULL;
    int named = 0;
    assert_non_null(end);
    for (; at < end; at++) {
        if (*at < '0' || *at > '9') continue;
        int code = 0, known = 0;
        for (; *at >= '0' && *at <= '9'; at++) code = 10 * code + (*at - '0');
        for (size_t i = 0; i < LN_COUNT(table); i++) known += table[i].code == code;
        if (!known && code != 70) fail_msg("help names exit code %d", code);
        named++;
    }
    assert_int_equal(named, LN_COUNT(table) + 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_code_has_its_cause),
                                       cmocka_unit_test(help_names_them),
                                       cmocka_unit_test(ignored_signals_stay_ignored)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
