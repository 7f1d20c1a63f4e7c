/* Tests of the command: spawned without a shell, checked by exit code, stdout and stderr. */
/* run: slow */
#include "spawn.h"

#include <sys/resource.h>

/* ---- usage ---- */

static void usage_errors(void **state) {
    (void)state;
    static const struct {
        const char *args; /* separated by spaces; ~ is an empty argument */
        const char *said;
    } bad[] = {{"rum tiny", "nearest is run"},
               {"frobnicate", "unknown verb"},
               {"RUN", "unknown verb"},
               {"help frob", "unknown verb"},
               {"help run x", "one verb"},
               {"help --man frob", "unknown verb"},
               {"completion", "bash or zsh"},
               {"completion fish", "found 'fish'"},
               {"completion bash --json", "no flag of completion"},
               {"run --tmp 0", "nearest is --temp"},
               {"run --thread 2", "nearest is --threads"},
               {"run --max-token 3", "nearest is --max-tokens"},
               {"run -z", "unknown flag -z"},
               {"run --top 5 -p x", "belongs to score"},
               {"show tiny --temp 0", "no flag of show"},
               {"run --json=1", "takes no value"},
               {"run -n", "needs a value"},
               {"run -n --json", "needs a value"},
               {"run -p --json", "needs a value"},
               {"run -n ~ -p x", "--max-tokens"},
               {"run -n 1x -p x", "found '1x'"},
               {"run -n 1e3 -p x", "--max-tokens"},
               {"run -n 0x10 -p x", "--max-tokens"},
               {"run -n -2 -p x", "--max-tokens"},
               {"run -n 18446744073709551616 -p x", "--max-tokens"},
               {"run -n +1 -p x", "--max-tokens"},
               {"run -n 1.5 -p x", "--max-tokens"},
               {"run -n 9000000000000M -p x", "--max-tokens"},
               {"run --temp nan -p x", "--temp"},
               {"run --temp -1 -p x", "--temp"},
               {"run --temp 1, -p x", "--temp"},
               {"run --top-p 1.5 -p x", "--top-p"},
               {"run --threads -1 -p x", "--threads"},
               {"run --ctx 0 -p x", "--ctx"},
               {"run --ctx 4G -p x", "--ctx"},
               {"run --chunk 0 -p x", "--chunk"},
               {"run --seed 18446744073709551616 -p x", "--seed"},
               {"run --seed 1.0 -p x", "--seed"},
               {"run --seed -2 -p x", "--seed"},
               {"run --numerics exakt -p x", "exact|fast"},
               {"run --quantize 5 -p x", "4|8"},
               {"run --logit-bias 5 -p x", "ID=V"},
               {"run --logit-bias a=1 -p x", "ID=V"},
               {"run --logit-bias 1= -p x", "ID=V"},
               {"run tiny -p a -f b", "contradict"},
               {"run tiny --ids 1 -p b", "contradict"},
               {"run tiny x --ids 1", "contradict"},
               {"run tiny x -p y", "contradict"},
               {"run --raw --chat -p x", "contradict"},
               {"run --raw --system x -p x", "contradict"},
               {"run --ids 1 --system x", "contradict"},
               {"run --ids 1 --chat", "contradict"},
               {"tokenize tiny --jsonl -p x", "contradict"},
               {"tokenize tiny --jsonl x", "contradict"},
               {"run tiny a b", "unexpected argument"},
               {"show tiny b", "unexpected argument"},
               {"doctor b", "unexpected argument"},
               {"ls a b", "unexpected argument"},
               {"show", "needs a MODEL"},
               {"score", "needs a MODEL"},
               {"tokenize", "needs a MODEL"},
               {"plan", "needs a MODEL"},
               {"attention", "needs a MODEL"},
               {"attention tiny x", "-o FILE"},
               {"score tiny x --force", "--force"},
               {"run --ids 1,,2", "id 2"},
               {"run --ids 1,", "id 2"},
               {"run --ids ,1", "id 1"},
               {"run --ids -5", "id 1"},
               {"run --ids 1;2", "id 1"},
               {"run --ids 2147483648", "id 1"},
               {"run --ids ~", "found none"},
               {"run -- --json x y", "unexpected argument"},
               {"run", "no prompt"},
               {"run tiny", "no prompt"}};
    for (size_t i = 0; i < LN_COUNT(bad); i++) {
        char words[200], empty[] = "", *argv[MOST_ARGS] = {S("linnet")};
        int n = 1;
        (void)snprintf(words, sizeof words, "%s", bad[i].args);
        for (char *w = words, *next; w && *w; w = next) {
            next = strchr(w, ' ');
            if (next) *next++ = '\0';
            argv[n++] = strcmp(w, "~") == 0 ? empty : w;
        }
        outcome *o = run_with("", 0, argv);
        if (o->code != 2 || !strstr(o->err, bad[i].said))
            fail_msg("linnet %s: exit %d, '%s' is not in: %s", bad[i].args, o->code, bad[i].said, o->err);
        said_once(o);
        assert_int_equal(o->out_bytes, 0);
    }
}

static void help_and_version(void **state) {
    (void)state;
    static const char *const verbs[] = {"run",  "score", "attention", "tokenize", "template",
                                        "show", "ls",    "plan",      "doctor",   "explain",
                                        "diff", "bench", "classify",  "eval",     "completion"};
    expect(RUN(S("--version")), 0, NULL);
    assert_string_equal(last->out, "linnet " LN_VERSION "\n");
    expect(RUN(S("help")), 0, NULL);
    for (size_t i = 0; i < LN_COUNT(verbs); i++) assert_non_null(strstr(last->out, verbs[i]));
    expect(RUN(S("--help")), 0, NULL);
    for (size_t i = 0; i < LN_COUNT(verbs); i++) {
        char verb[16];
        (void)snprintf(verb, sizeof verb, "%s", verbs[i]);
        expect(RUN(S("help"), verb), 0, NULL);
        char *page = ln_strndup(last->out, last->out_bytes);
        expect(RUN(verb, S("--help")), 0, NULL);
        assert_string_equal(last->out, page);
        assert_non_null(strstr(page, "--verbose"));
        ln_free(page);
    }
}

static void what_later_versions_do_is_refused(void **state) {
    (void)state;
    expect(RUN(S("run"), S(TINY), S("-p"), S("x"), S("--adapter"), S("/proc")), 5,
           "/proc: expected the directory of an adapter, with adapter_config.json");
    expect(RUN(S("score"), S(TINY), S("x"), S("--device"), S("cuda")), 7, "cuda");
}

static void models_that_are_not_there(void **state) {
    (void)state;
    expect(RUN(S("run"), S("/nowhere/at all"), S("-p"), S("x")), 5, "/nowhere");
    expect(RUN(S("show"), S("org/name")), 5, "hf download org/name");
    expect(RUN(S("show"), dir), 3, "config.json");
    expect(RUN(S("show"), S("/dev/zero")), RUN(S("show"), S("/dev/zero"))->code, NULL);
    assert_true(last->code == 3 || last->code == 5);
    expect(RUN(S("tokenize"), dir, S("x")), RUN(S("tokenize"), dir, S("x"))->code, NULL);
    assert_true(last->code == 3 || last->code == 5);
    if (ln_exists(LN_BIN "/../models/tiny/config.json")) {
        expect(RUN(S("show"), S("tiny"), S("--json")), 0, NULL);
        expect(RUN(S("run"), S("-p"), S(STORY), S("-n"), S("1")), 0, NULL);
    } else {
        print_message("SKIP: this build is not next to models/\n");
    }
}

/* ---- run ---- */

static void run_gives_its_object(void **state) {
    (void)state;
    json_t *a = json_of(RUN(S("run"), S(SMALL), S("--ids"), S("1,2,3"), S("-n"), S("7"), S("--temp"), S("0"),
                            S("--ignore-eos"), S("--json"), S("--seed"), S("18446744073709551615")));
    assert_non_null(strstr(last->out, "\"seed\":18446744073709551615"));
    assert_string_equal(last->err, "linnet: cut at 7 tokens (-n)\n");
    assert_int_equal(json_array_size(json_object_get(a, "prompt_ids")), 3);
    assert_int_equal(json_array_size(json_object_get(a, "ids")), 7);
    assert_string_equal(text_of(a, "finish_reason"), "length");
    const json_t *m = json_object_get(a, "metrics");
    assert_int_equal(int_of(m, "prompt_tokens"), 3);
    assert_int_equal(int_of(m, "generated_tokens"), 7);
    static const char *const reals[] = {"load_seconds",  "prefill_seconds",     "decode_seconds",
                                        "total_seconds", "first_token_seconds", "prefill_tok_s",
                                        "decode_tok_s"};
    for (size_t i = 0; i < LN_COUNT(reals); i++)
        assert_true(json_number_value(json_object_get(m, reals[i])) > 0);
    assert_true(int_of(m, "peak_bytes") >= int_of(m, "active_bytes"));
    json_t *b =
        json_of(RUN_IN("1 2\n3", S("run"), S(SMALL), S("--ids"), S("-"), S("-n"), S("7"), S("--temp"), S("0"),
                       S("--ignore-eos"), S("--json"), S("--threads"), S("1"), S("--chunk"), S("1")));
    assert_true(json_equal(json_object_get(a, "ids"), json_object_get(b, "ids")));
    json_t *none =
        json_of(RUN(S("run"), S(SMALL), S("--ids"), S("1"), S("-n"), S("0"), S("--json"), S("--seed=-1")));
    assert_int_equal(json_array_size(json_object_get(none, "ids")), 0);
    assert_string_equal(text_of(none, "text"), "");
    json_decref(a);
    json_decref(b);
    json_decref(none);
}

/* --grammar takes GBNF, EBNF and an expression; --form is another spelling. */
static void a_grammar_constrains_the_answer(void **state) {
    (void)state;
    static char *rows[][2] = {{"--grammar", "root ::= \"yes\" | \"no\""},
                              {"--grammar", "start: (\"yes\" | \"no\")\n"},
                              {"--grammar", " {\"choice\": [\"yes\", \"no\"]}"},
                              {"--form", "{\"choice\": [\"yes\", \"no\"]}"}};
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        expect(RUN(S("run"), S(TINY), S("Is it?"), rows[i][0], rows[i][1]), 0, NULL);
        if (strcmp(last->out, "yes") != 0 && strcmp(last->out, "no") != 0)
            fail_msg("%s %s gives '%s'", rows[i][0], rows[i][1], last->out);
    }
    expect(RUN(S("run"), S(TINY), S("Is it?"), S("--grammar"), S("root ::= x")), 2,
           "--grammar: grammar: the rule \"x\" is not defined");
    expect(RUN(S("run"), S(TINY), S("Is it?"), S("--grammar"), S("[\"a\"]")), 2, "--grammar: the grammar");
    expect(RUN(S("run"), S(TINY), S("Is it?"), S("--grammar"), S("@/nowhere/x")), 5, "/nowhere/x");
    expect(RUN(S("run"), S(TINY), S("Is it?"), S("--grammar"), S("\"a\""), S("--json-schema"), S("{}")), 2,
           "--grammar");
}

static void all_ways_to_give_a_prompt_agree(void **state) {
    (void)state;
    FILE *f = fopen(at(0, "prompt.txt"), "w");
    fputs(STORY "\n", f);
    fclose(f);
    json_t *want = json_of(RUN(S("run"), S(TINY), S(STORY), S("-n"), S("3"), S("--json")));
    json_t *got[] = {
        json_of(RUN(S("run"), S(TINY), S("-p"), S(STORY), S("-n"), S("3"), S("--json"))),
        json_of(RUN(S("run"), S(TINY), S("-f"), at(0, "prompt.txt"), S("-n"), S("3"), S("--json"))),
        json_of(RUN_IN(STORY "\n", S("run"), S(TINY), S("-n"), S("3"), S("--json"))),
        json_of(RUN_IN(STORY, S("run"), S(TINY), S("-"), S("-n"), S("3"), S("--json"))),
        json_of(RUN_IN(STORY "\r\n", S("run"), S(TINY), S("-f"), S("-"), S("-n"), S("3"), S("--json")))};
    for (size_t i = 0; i < LN_COUNT(got); i++) {
        assert_true(json_equal(json_object_get(want, "prompt_ids"), json_object_get(got[i], "prompt_ids")));
        assert_true(json_equal(json_object_get(want, "ids"), json_object_get(got[i], "ids")));
        json_decref(got[i]);
    }
    json_t *raw = json_of(RUN(S("run"), S(TINY), S("--raw"), S(STORY), S("-n"), S("3"), S("--json")));
    assert_true(json_array_size(json_object_get(raw, "prompt_ids")) <
                json_array_size(json_object_get(want, "prompt_ids")));
    json_decref(raw);
    json_decref(want);
    expect(run_with("a\xff", 2, (char *const[]){S("linnet"), S("run"), S(TINY), NULL}), 3, "UTF-8");
    expect(run_with("a\0b", 3, (char *const[]){S("linnet"), S("run"), S(TINY), S("-n"), S("1"), NULL}), 0,
           NULL);
}

static void the_stream_is_the_text(void **state) {
    (void)state;
    json_t *o = json_of(RUN(S("run"), S(TINY), S(STORY), S("-n"), S("60"), S("--json")));
    char *want = ln_strndup(text_of(o, "text"), strlen(text_of(o, "text")));
    expect(RUN(S("run"), S(TINY), S(STORY), S("-n"), S("60"), S("--stats")), 0, "tok/s");
    assert_memory_equal(last->out, want, strlen(want));
    assert_string_equal(last->out + strlen(want), "\n"); /* messages follow: they begin a line */
    assert_true(strlen(want) > 20);
    assert_non_null(strstr(last->err, "seed "));
    ln_free(want);
    json_decref(o);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    expect(RUN(S("run"), S(TINY), S("-p"), S("x"), S("--memory"), S("1M")), 6, "MB are needed");
    expect(RUN(S("run"), S(TINY), S("-p"), S(STORY), S("--ctx"), S("2")), 3, "the context holds 2");
    expect(RUN(S("run"), S(TINY), S("-p"), S("x"), S("--ctx"), S("1M")), 2, "--ctx 1048576");
    expect(RUN(S("run"), S(SMALL), S("--ids"), S("1,99999"), S("-n"), S("1")), 3, "99999");
}

/* ---- signals and descriptors ---- */

static pid_t start_long(int *out) {
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    char *argv[] = {S("linnet"),       S("run"),      S(TINY),  S(STORY),    S("-n"), S("1000"),
                    S("--ignore-eos"), S("--device"), S("ref"), S("--json"), NULL}; /* ref is slow */
    pid_t pid = start(argv, null, p[1], null);
    close(p[1]);
    close(null);
    *out = p[0];
    return pid;
}

static void ctrl_c_keeps_the_text(void **state) {
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < LN_COUNT(signals); i++) {
        int out[2], null = open("/dev/null", O_RDWR | O_CLOEXEC), full = narrow_pipe(out);
        char *argv[] = {S("linnet"), S("run"),  S(TINY),           S(STORY),
                        S("-n"),     S("1000"), S("--ignore-eos"), NULL};
        pid_t pid = start(argv, null, out[1], null);
        close(out[1]);
        close(null);
        assert_true(writes(out[0], full)); /* generation has begun */
        kill(pid, signals[i]);
        size_t n = drain(out[0]);
        assert_int_equal(finish(pid), 128 + signals[i]);
        assert_true(n > (size_t)full && n < (size_t)full + 200);
    }
}

/* Tries increasing delays: before the model is loaded there is no object, after the end nothing can be
 * cancelled. */
static void ctrl_c_still_gives_the_object(void **state) {
    (void)state;
    static char text[65536];
    for (unsigned delay = 20000; delay < 20000000; delay += delay / 2) {
        int out;
        size_t n = 0;
        pid_t pid = start_long(&out);
        usleep(delay);
        kill(pid, SIGINT);
        for (ssize_t got; (got = read(out, text + n, sizeof text - 1 - n)) > 0;) n += (size_t)got;
        close(out);
        text[n] = '\0';
        int code = finish(pid);
        assert_true(code == 130 || code == 1000 + SIGINT ||
                    code == 0); /* killed by the signal itself, before main installed its handler */
        if (code == 0) fail_msg("never cancelled: through after %u us", delay);
        if (n == 0) continue;
        assert_non_null(strstr(text, "\"finish_reason\":\"cancelled\""));
        assert_int_equal(text[n - 1], '\n');
        return;
    }
    fail_msg("no object came");
}

static void copy_file(const char *from, const char *leaf) {
    char *data;
    size_t n;
    ln_error err;
    assert_int_equal(ln_read_file(from, 1u << 30, &data, &n, &err), LN_OK);
    int fd = open(at(0, leaf), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, data, n), n);
    assert_int_equal(futimens(fd, (const struct timespec[2]){{.tv_sec = 1}, {.tv_sec = 1}}),
                     0); /* an old time stamp: the next write changes it even with a coarse clock */
    close(fd);
    ln_free(data);
}

/* Weights that are truncated or overwritten during a run: exit 9 with the file's name, and no signal. */
static void weights_that_change_are_named(void **state) {
    (void)state;
    static const char *const files[] = {"config.json", "tokenizer.json", "model.safetensors"};
    for (int cut = 0; cut < 2; cut++) {
        int out[2], err[2], full = narrow_pipe(out);
        char said[800] = {0};
        for (size_t i = 0; i < LN_COUNT(files); i++) {
            char from[300];
            (void)snprintf(from, sizeof from, "%s/%s", TINY, files[i]);
            copy_file(from, files[i]);
        }
        assert_int_equal(pipe2(err, O_CLOEXEC), 0);
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        char *argv[] = {S("linnet"), S("run"),          dir,           S(STORY), S("-n"),
                        S("1000"),   S("--ignore-eos"), S("--device"), S("ref"), NULL};
        pid_t pid = start(argv, null, out[1], err[1]);
        close(out[1]);
        close(err[1]);
        close(null);
        assert_true(writes(out[0], full)); /* generation has begun */
        int fd = open(at(0, "model.safetensors"), O_WRONLY | O_CLOEXEC);
        if (cut) assert_int_equal(ftruncate(fd, 5000), 0);
        else assert_int_equal(pwrite(fd, "........", 8, 100000), 8);
        close(fd);
        usleep(300000); /* the files are checked four times a second */
        (void)drain(out[0]);
        int code = finish(pid);
        assert_true(read(err[0], said, sizeof said - 1) > 0);
        close(err[0]);
        if (code != 9 || !strstr(said, "model.safetensors: changed while"))
            fail_msg("cut %d: exit %d: %s", cut, code, said);
        for (size_t i = 0; i < LN_COUNT(files); i++) assert_int_equal(unlink(at(0, files[i])), 0);
    }
}

static void a_closed_pipe_is_quiet(void **state) {
    (void)state;
    int p[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
    char name[300];
    (void)snprintf(name, sizeof name, "%s/quiet", dir);
    int err = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (int mode = 0; mode < 2; mode++) {
        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        char *argv[] = {S("linnet"), S("run"), S(TINY), S(STORY), mode ? S("--json") : S("--ignore-eos"),
                        S("-n"),     S("300"), NULL};
        pid_t pid = start(argv, null, p[1], err);
        close(p[1]);
        char byte;
        if (mode == 0) assert_int_equal(read(p[0], &byte, 1), 1);
        close(p[0]);
        assert_int_equal(finish(pid), 0);
    }
    struct stat st;
    assert_int_equal(fstat(err, &st), 0);
    assert_int_equal(st.st_size, 0);
    close(err);
    close(null);
}

static void a_full_disk_is_an_error(void **state) {
    (void)state;
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC), null = open("/dev/null", O_RDWR | O_CLOEXEC);
    char *verbs[][8] = {{S("linnet"), S("--version")},
                        {S("linnet"), S("help"), S("run")},
                        {S("linnet"), S("show"), S(SMALL), S("--json")},
                        {S("linnet"), S("doctor")},
                        {S("linnet"), S("run"), S(TINY), S(STORY), S("-n"), S("5")},
                        {S("linnet"), S("tokenize"), S(TINY), S("x")}};
    for (size_t i = 0; i < LN_COUNT(verbs); i++)
        assert_int_equal(finish(start(verbs[i], null, full, null)), 5);
    close(full);
    close(null);
}

static void closed_descriptors_do_no_harm(void **state) {
    (void)state;
    char *argv[] = {S("linnet"),   S("score"),         S(TINY),     S("-p"), S("Hello there"),
                    S("--logits"), at(3, "closed.st"), S("--json"), NULL};
    assert_int_equal(finish(start(argv, -1, -1, -1)), 0);
    outcome *o =
        RUN(S("score"), S(TINY), S("-p"), S("Hello there"), S("--logits"), at(2, "open.st"), S("--json"));
    expect(o, 0, NULL);
    char *a, *b;
    size_t n, m;
    assert_int_equal(ln_read_file(at(3, "closed.st"), 1 << 28, &a, &n, NULL), LN_OK);
    assert_int_equal(ln_read_file(at(2, "open.st"), 1 << 28, &b, &m, NULL), LN_OK);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n); /* no output was written into the result file */
    ln_free(a);
    ln_free(b);
}

static void variables_are_checked(void **state) {
    (void)state;
    setenv("LINNET_NONSENSE", "1", 1);
    expect(RUN(S("--version")), 0, "LINNET_NONSENSE");
    unsetenv("LINNET_NONSENSE");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(usage_errors),
                                       cmocka_unit_test(help_and_version),
                                       cmocka_unit_test(what_later_versions_do_is_refused),
                                       cmocka_unit_test(models_that_are_not_there),
                                       cmocka_unit_test(run_gives_its_object),
                                       cmocka_unit_test(a_grammar_constrains_the_answer),
                                       cmocka_unit_test(all_ways_to_give_a_prompt_agree),
                                       cmocka_unit_test(the_stream_is_the_text),
                                       cmocka_unit_test(what_does_not_fit_is_refused),
                                       cmocka_unit_test(ctrl_c_keeps_the_text),
                                       cmocka_unit_test(ctrl_c_still_gives_the_object),
                                       cmocka_unit_test(weights_that_change_are_named),
                                       cmocka_unit_test(a_closed_pipe_is_quiet),
                                       cmocka_unit_test(a_full_disk_is_an_error),
                                       cmocka_unit_test(closed_descriptors_do_no_harm),
                                       cmocka_unit_test(variables_are_checked)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
