/* --backend and --python from outside, with a mock in place of Python (tests/child/mock_child.h): each verb
 * that takes them, flags that are rejected by name, Ctrl-C, what doctor lists. */
/* run: slow */
#include "../child/mock_child.h"
#include "spawn.h"

#define MODEL LN_ROOT "/tests/golden/qwen2-f32"

static char self[4096];

static void behave(const char *how) { setenv("LN_MOCK", how, 1); }

/* Fails unless the command ended with this code and wrote these texts ("": any text). */
static void ends(outcome *o, int code, const char *out, const char *err) {
    if (o->code != code || !strstr(o->out, out) || !strstr(o->err, err))
        fail_msg("code %d, expected %d with '%s' and '%s'\nstdout: %s\nstderr: %s", o->code, code, out, err,
                 o->out, o->err);
}
#define BACKEND S("--backend"), S("mlx_lm"), S("--python"), self

static void run_writes_the_answer(void **state) {
    (void)state;
    behave("");
    outcome *o = RUN(S("run"), S(MODEL), S("Hi"), BACKEND);
    ends(o, 0, "Hello world!\n", "");
    assert_string_equal(o->out, "Hello world!\n");
    o = RUN(S("run"), S(MODEL), S("Hi"), BACKEND, S("--json"), S("--stats"), S("--temp"), S("0.5"),
            S("--stop"), S("x"));
    ends(o, 0, "\"prompt_ids\":[1,2,3],\"ids\":[100,101,102,103,104],\"text\":\"Hello world!\\n\"",
         "generated 5 tokens");
    ends(RUN(S("run"), S(MODEL), S("Hi"), S("--backend"), S("native"), S("--ids"), S("1,2"), S("-n"), S("2")),
         2, "", "");
    ends(RUN(S("run"), S(MODEL), S("--backend"), S("native"), S("--ids"), S("1,2"), S("-n"), S("2"),
             S("--json")),
         0, "\"generated_tokens\":2", "");
}

static void chat_answers_lines(void **state) {
    (void)state;
    behave("");
    outcome *o = RUN_IN("one\ntwo\n", S("chat"), S(MODEL), BACKEND);
    assert_string_equal(o->out, "Hello world!\n\nHello world!\n\n");
    assert_int_equal(o->code, 0);
}

static void classify_compares_labels(void **state) {
    (void)state;
    behave("");
    outcome *o = RUN_IN("a text\n", S("classify"), S(MODEL), BACKEND, S("--labels"), S("a,b"), S("--prompt"),
                        S("x {text}"));
    ends(o, 0, "b\t0.731059\n", "");
}

static void batch_answers_a_file(void **state) {
    (void)state;
    static const char requests[] =
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":"
        "{\"prompt\":\"x\"}}\n";
    char *data;
    size_t bytes;
    behave("");
    FILE *f = fopen(at(0, "in.jsonl"), "we");
    fputs(requests, f);
    fclose(f);
    ends(RUN(S("batch"), S(MODEL), at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl"), BACKEND), 0,
         "1 of 1 requests", "");
    assert_int_equal(ln_read_file(at(1, "out.jsonl"), 1 << 20, &data, &bytes, NULL), LN_OK);
    assert_non_null(strstr(data, "\"text\":\"Hello world!\\n\""));
    ln_free(data);
    unlink(at(0, "in.jsonl")), unlink(at(1, "out.jsonl"));
}

static void bench_measures(void **state) {
    (void)state;
    behave("");
    ends(RUN(S("bench"), S(MODEL), BACKEND, S("--reps"), S("2"), S("--json")), 0,
         "{\"rows\":[{\"work\":\"prefill\",\"n\":512,\"depth\":0,\"streams\":1,\"tok_s\":6},{\"work\":"
         "\"decode\"",
         "");
    ends(RUN(S("bench"), S(MODEL), BACKEND, S("--depth"), S("0,8")), 0, "tg64 @ d8", "");
}

static void doctor_lists_them(void **state) {
    (void)state;
    behave("");
    ends(RUN(S("doctor"), S("--python"), self), 0, "backend     mlx_lm: mlx-lm in a Python process\n", "");
    ends(RUN(S("doctor"), S("--python"), self, S("--json")), 0,
         "\"backends\":[{\"name\":\"native\",\"available\":true},{\"name\":\"mlx_lm\",\"available\":true}]}",
         "");
    behave("x without");
    ends(RUN(S("doctor"), S("--python"), self), 0, "not available: ", "");
    ends(RUN(S("doctor"), S("--python"), S("/nonexistent"), S("--json")), 0,
         "\"available\":false,\"reason\":\"/nonexistent: expected a Python interpreter (--python), found "
         "nothing\"",
         "");
}

static void flags_are_refused_by_name(void **state) {
    (void)state;
    static const char *const flags[][2] = {
        {"--threads", "1"},      {"--numerics", "exact"}, {"--memory", "1G"},       {"--kv-memory", "1G"},
        {"--quantize", "4"},     {"--device", "cpu"},     {"--load-kv", "x"},       {"--save-kv", "x"},
        {"--think-budget", "4"}, {"--mlock", NULL},       {"--chat-template", "x"}, {"--skip-unknown", NULL},
        {"--kv-type", "q8"}};
    char wanted[80];
    behave("");
    for (size_t i = 0; i < LN_COUNT(flags); i++) {
        char *value = (char *)(uintptr_t)(flags[i][1] ? flags[i][1] : "-v");
        (void)snprintf(wanted, sizeof wanted, "%s is a flag of the native engine", flags[i][0]);
        ends(RUN(S("run"), S(MODEL), S("Hi"), BACKEND, (char *)(uintptr_t)flags[i][0], value), 2, "", wanted);
    }
    ends(RUN(S("bench"), S(MODEL), BACKEND, S("--streams"), S("2")), 2, "",
         "--streams is a flag of the native engine");
    ends(RUN(S("run"), S(MODEL), S("Hi"), S("--backend"), S("gpu")), 2, "",
         "expected native or mlx_lm, found 'gpu'");
    ends(RUN(S("run"), S(MODEL), S("Hi"), S("--python"), S("x")), 2, "",
         "--python is the interpreter of --backend");
    ends(RUN(S("score"), S(MODEL), S("Hi"), S("--backend"), S("mlx_lm")), 2, "",
         "--backend is no flag of score");
    ends(RUN(S("run"), S(MODEL), S("Hi"), BACKEND, S("--ctx"), S("8k")), 2, "",
         "--ctx is 8192; the model's maximum");
    ends(RUN(S("run"), S("/nonexistent"), S("Hi"), BACKEND), 5, "", "");
    ends(RUN(S("run"), S(MODEL), S("Hi"), S("--adapter"), S("x")), 5, "",
         "x: expected the directory of an adapter");
}

static void a_dead_process_is_an_error(void **state) {
    (void)state;
    behave("token die");
    ends(RUN(S("run"), S(MODEL), S("Hi"), BACKEND), 5, "",
         "the process has ended: exit status 3; it wrote: Traceback");
    behave("load die");
    ends(RUN(S("run"), S(MODEL), S("Hi"), BACKEND), 5, "", "the mock died");
}

/* Ctrl-C keeps the text so far and ends with 130; the child is not killed by it, but ends with the command.
 */
static void ctrl_c_keeps_the_text(void **state) {
    (void)state;
    char *argv[] = {S("linnet"), S("run"), S(MODEL), S("Hi"), BACKEND, NULL};
    int out[2];
    char text[1 << 16];
    size_t n = 0;
    behave("x slow");
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const pid_t pid = start(argv, null, out[1], null);
    close(out[1]);
    for (ssize_t got; n < 40 && (got = read(out[0], text + n, sizeof text - 1 - n)) > 0;) n += (size_t)got;
    kill(pid, SIGINT);
    const double begin = ln_now();
    for (ssize_t got; (got = read(out[0], text + n, sizeof text - 1 - n)) > 0;) n += (size_t)got;
    text[n] = '\0';
    assert_int_equal(finish(pid), 130);
    if (ln_now() - begin > 1) fail_msg("%.2f s from Ctrl-C to the end", ln_now() - begin);
    assert_true(strncmp(text, "Hello world!\n", 13) == 0);
    close(out[0]), close(null);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_writes_the_answer),
        cmocka_unit_test(chat_answers_lines),
        cmocka_unit_test(classify_compares_labels),
        cmocka_unit_test(batch_answers_a_file),
        cmocka_unit_test(bench_measures),
        cmocka_unit_test(doctor_lists_them),
        cmocka_unit_test(flags_are_refused_by_name),
        cmocka_unit_test(a_dead_process_is_an_error),
        cmocka_unit_test(ctrl_c_keeps_the_text),
    };
    mock_main(argc, argv);
    if (!realpath("/proc/self/exe", self)) return 1;
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
