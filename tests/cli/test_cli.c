/* The command from outside: spawned without a shell, judged by its exit code, its stdout and its stderr. */
#include "spawn.h"

#include <sys/resource.h>

/* ---- usage ---- */

static void usage_errors(void **state) {
    (void)state;
    static const struct {
        const char *args; /* blanks separate, ~ stands for an empty argument */
        const char *said;
    } bad[] = {
        {"rum tiny", "nearest is run"}, {"frobnicate", "unknown verb"}, {"RUN", "unknown verb"}, {"help frob", "unknown verb"}, {"help run x", "one verb"}, {"help --man frob", "unknown verb"}, {"completion", "bash or zsh"}, {"completion fish", "found 'fish'"}, {"completion bash --json", "no flag of completion"},
        {"run --tmp 0", "nearest is --temp"}, {"run --thread 2", "nearest is --threads"}, {"run --max-token 3", "nearest is --max-tokens"}, {"run -z", "unknown flag -z"},
        {"run --top 5 -p x", "belongs to score"}, {"show tiny --temp 0", "no flag of show"}, {"run --json=1", "takes no value"}, {"run -n", "needs a value"},
        {"run -n --json", "needs a value"}, {"run -p --json", "needs a value"}, {"run -n ~ -p x", "--max-tokens"}, {"run -n 1x -p x", "found '1x'"}, {"run -n 1e3 -p x", "--max-tokens"},
        {"run -n 0x10 -p x", "--max-tokens"}, {"run -n -1 -p x", "--max-tokens"}, {"run -n 18446744073709551616 -p x", "--max-tokens"}, {"run -n +1 -p x", "--max-tokens"},
        {"run -n 1.5 -p x", "--max-tokens"}, {"run -n 9000000000000M -p x", "--max-tokens"}, {"run --temp nan -p x", "--temp"}, {"run --temp -1 -p x", "--temp"}, {"run --temp 1, -p x", "--temp"},
        {"run --top-p 1.5 -p x", "--top-p"}, {"run --threads -1 -p x", "--threads"}, {"run --ctx 0 -p x", "--ctx"}, {"run --ctx 4G -p x", "--ctx"}, {"run --chunk 0 -p x", "--chunk"},
        {"run --seed 18446744073709551616 -p x", "--seed"}, {"run --seed 1.0 -p x", "--seed"}, {"run --seed -2 -p x", "--seed"}, {"run --numerics exakt -p x", "exact|fast"}, {"run --quantize 5 -p x", "4|8"},
        {"run --logit-bias 5 -p x", "ID=V"}, {"run --logit-bias a=1 -p x", "ID=V"}, {"run --logit-bias 1= -p x", "ID=V"},
        {"run tiny -p a -f b", "contradict"}, {"run tiny --ids 1 -p b", "contradict"}, {"run tiny x --ids 1", "contradict"}, {"run tiny x -p y", "contradict"}, {"run --raw --chat -p x", "contradict"},
        {"run --raw --system x -p x", "contradict"}, {"run --ids 1 --system x", "contradict"}, {"run --ids 1 --chat", "contradict"}, {"tokenize tiny --jsonl -p x", "contradict"}, {"tokenize tiny --jsonl x", "contradict"},
        {"run tiny a b", "unexpected argument"}, {"show tiny b", "unexpected argument"}, {"doctor b", "unexpected argument"}, {"ls a b", "unexpected argument"}, {"show", "needs a MODEL"}, {"score", "needs a MODEL"},
        {"tokenize", "needs a MODEL"}, {"plan", "needs a MODEL"}, {"attention", "needs a MODEL"}, {"attention tiny x", "-o FILE"}, {"score tiny x --force", "--force"}, {"run --ids 1,,2", "id 2"}, {"run --ids 1,", "id 2"},
        {"run --ids ,1", "id 1"}, {"run --ids -5", "id 1"}, {"run --ids 1;2", "id 1"}, {"run --ids 2147483648", "id 1"}, {"run --ids ~", "found none"}, {"run -- --json x y", "unexpected argument"}, {"run", "no prompt"}, {"run tiny", "no prompt"}};
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
        if (o->code != 2 || !strstr(o->err, bad[i].said)) fail_msg("linnet %s: exit %d, '%s' is not in: %s", bad[i].args, o->code, bad[i].said, o->err);
        said_once(o);
        assert_int_equal(o->out_bytes, 0);
    }
}

static void help_and_version(void **state) {
    (void)state;
    static const char *const verbs[] = {"run", "score", "attention", "tokenize", "template", "show", "ls", "plan", "doctor", "explain", "diff", "bench", "completion"};
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
    expect(RUN(S("run"), S(TINY), S("-p"), S("x"), S("--adapter"), S("/tmp")), 4, "--adapter");
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
        print_message("SKIP: this build does not lie beside models/\n");
    }
}

/* ---- run ---- */

static void run_gives_its_object(void **state) {
    (void)state;
    json_t *a = json_of(RUN(S("run"), S(SMALL), S("--ids"), S("1,2,3"), S("-n"), S("7"), S("--temp"), S("0"), S("--ignore-eos"), S("--json"), S("--seed"), S("18446744073709551615")));
    assert_non_null(strstr(last->out, "\"seed\":18446744073709551615"));
    assert_string_equal(last->err, "linnet: cut at 7 tokens (-n)\n");
    assert_int_equal(json_array_size(json_object_get(a, "prompt_ids")), 3);
    assert_int_equal(json_array_size(json_object_get(a, "ids")), 7);
    assert_string_equal(text_of(a, "finish_reason"), "length");
    const json_t *m = json_object_get(a, "metrics");
    assert_int_equal(int_of(m, "prompt_tokens"), 3);
    assert_int_equal(int_of(m, "generated_tokens"), 7);
    static const char *const reals[] = {"load_seconds", "prefill_seconds", "decode_seconds", "total_seconds", "first_token_seconds", "prefill_tok_s", "decode_tok_s"};
    for (size_t i = 0; i < LN_COUNT(reals); i++) assert_true(json_number_value(json_object_get(m, reals[i])) > 0);
    assert_true(int_of(m, "peak_bytes") >= int_of(m, "active_bytes"));
    json_t *b = json_of(RUN_IN("1 2\n3", S("run"), S(SMALL), S("--ids"), S("-"), S("-n"), S("7"), S("--temp"), S("0"), S("--ignore-eos"), S("--json"), S("--threads"), S("1"), S("--chunk"), S("1")));
    assert_true(json_equal(json_object_get(a, "ids"), json_object_get(b, "ids")));
    json_t *none = json_of(RUN(S("run"), S(SMALL), S("--ids"), S("1"), S("-n"), S("0"), S("--json"), S("--seed=-1")));
    assert_int_equal(json_array_size(json_object_get(none, "ids")), 0);
    assert_string_equal(text_of(none, "text"), "");
    json_decref(a);
    json_decref(b);
    json_decref(none);
}

static void all_ways_to_give_a_prompt_agree(void **state) {
    (void)state;
    FILE *f = fopen(at(0, "prompt.txt"), "w");
    fputs(STORY "\n", f);
    fclose(f);
    json_t *want = json_of(RUN(S("run"), S(TINY), S(STORY), S("-n"), S("3"), S("--json")));
    json_t *got[] = {
        json_of(RUN(S("run"), S(TINY), S("-p"), S(STORY), S("-n"), S("3"), S("--json"))), json_of(RUN(S("run"), S(TINY), S("-f"), at(0, "prompt.txt"), S("-n"), S("3"), S("--json"))),
        json_of(RUN_IN(STORY "\n", S("run"), S(TINY), S("-n"), S("3"), S("--json"))), json_of(RUN_IN(STORY, S("run"), S(TINY), S("-"), S("-n"), S("3"), S("--json"))),
        json_of(RUN_IN(STORY "\r\n", S("run"), S(TINY), S("-f"), S("-"), S("-n"), S("3"), S("--json")))};
    for (size_t i = 0; i < LN_COUNT(got); i++) {
        assert_true(json_equal(json_object_get(want, "prompt_ids"), json_object_get(got[i], "prompt_ids")));
        assert_true(json_equal(json_object_get(want, "ids"), json_object_get(got[i], "ids")));
        json_decref(got[i]);
    }
    json_t *raw = json_of(RUN(S("run"), S(TINY), S("--raw"), S(STORY), S("-n"), S("3"), S("--json")));
    assert_true(json_array_size(json_object_get(raw, "prompt_ids")) < json_array_size(json_object_get(want, "prompt_ids")));
    json_decref(raw);
    json_decref(want);
    expect(run_with("a\xff", 2, (char *const[]){S("linnet"), S("run"), S(TINY), NULL}), 3, "UTF-8");
    expect(run_with("a\0b", 3, (char *const[]){S("linnet"), S("run"), S(TINY), S("-n"), S("1"), NULL}), 0, NULL);
}

static void the_stream_is_the_text(void **state) {
    (void)state;
    json_t *o = json_of(RUN(S("run"), S(TINY), S(STORY), S("-n"), S("60"), S("--json")));
    char *want = ln_strndup(text_of(o, "text"), strlen(text_of(o, "text")));
    expect(RUN(S("run"), S(TINY), S(STORY), S("-n"), S("60"), S("--stats")), 0, "tok/s");
    assert_string_equal(last->out, want); /* no newline is added where no terminal is */
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
    char *argv[] = {S("linnet"), S("run"), S(TINY), S(STORY), S("-n"), S("1000"), S("--ignore-eos"), S("--device"), S("ref"), S("--json"), NULL}; /* ref: slow enough to be met */
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
        char *argv[] = {S("linnet"), S("run"), S(TINY), S(STORY), S("-n"), S("1000"), S("--ignore-eos"), NULL};
        pid_t pid = start(argv, null, out[1], null);
        close(out[1]);
        close(null);
        assert_true(writes(out[0], full)); /* it generates now */
        kill(pid, signals[i]);
        size_t n = drain(out[0]);
        assert_int_equal(finish(pid), 128 + signals[i]);
        assert_true(n > (size_t)full && n < (size_t)full + 200);
    }
}

/* The moment is found by trying later and later ones: before the load is done there is no object, after the end no cancelling. */
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
        assert_true(code == 130 || code == 1000 + SIGINT || code == 0); /* by the signal itself: before main took it over */
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
    assert_int_equal(futimens(fd, (const struct timespec[2]){{.tv_sec = 1}, {.tv_sec = 1}}), 0); /* long ago: the next write changes it, however coarse the clock */
    close(fd);
    ln_free(data);
}

/* Weights that are cut short, or written over, in the middle of a run: exit 9 with the file's name, and no signal. */
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
        char *argv[] = {S("linnet"), S("run"), dir, S(STORY), S("-n"), S("1000"), S("--ignore-eos"), S("--device"), S("ref"), NULL};
        pid_t pid = start(argv, null, out[1], err[1]);
        close(out[1]);
        close(err[1]);
        close(null);
        assert_true(writes(out[0], full)); /* it generates now */
        int fd = open(at(0, "model.safetensors"), O_WRONLY | O_CLOEXEC);
        if (cut) assert_int_equal(ftruncate(fd, 5000), 0);
        else assert_int_equal(pwrite(fd, "........", 8, 100000), 8);
        close(fd);
        usleep(300000); /* it looks at the files four times a second */
        (void)drain(out[0]);
        int code = finish(pid);
        assert_true(read(err[0], said, sizeof said - 1) > 0);
        close(err[0]);
        if (code != 9 || !strstr(said, "model.safetensors: changed while")) fail_msg("cut %d: exit %d: %s", cut, code, said);
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
        char *argv[] = {S("linnet"), S("run"), S(TINY), S(STORY), mode ? S("--json") : S("--ignore-eos"), S("-n"), S("300"), NULL};
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
    char *verbs[][8] = {{S("linnet"), S("--version")}, {S("linnet"), S("help"), S("run")}, {S("linnet"), S("show"), S(SMALL), S("--json")}, {S("linnet"), S("doctor")},
                        {S("linnet"), S("run"), S(TINY), S(STORY), S("-n"), S("5")}, {S("linnet"), S("tokenize"), S(TINY), S("x")}};
    for (size_t i = 0; i < LN_COUNT(verbs); i++) assert_int_equal(finish(start(verbs[i], null, full, null)), 5);
    close(full);
    close(null);
}

static void closed_descriptors_do_no_harm(void **state) {
    (void)state;
    char *argv[] = {S("linnet"), S("score"), S(TINY), S("-p"), S("Hello there"), S("--logits"), at(3, "closed.st"), S("--json"), NULL};
    assert_int_equal(finish(start(argv, -1, -1, -1)), 0);
    outcome *o = RUN(S("score"), S(TINY), S("-p"), S("Hello there"), S("--logits"), at(2, "open.st"), S("--json"));
    expect(o, 0, NULL);
    char *a, *b;
    size_t n, m;
    assert_int_equal(ln_read_file(at(3, "closed.st"), 1 << 28, &a, &n, NULL), LN_OK);
    assert_int_equal(ln_read_file(at(2, "open.st"), 1 << 28, &b, &m, NULL), LN_OK);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n); /* nothing of the result ran into it */
    ln_free(a);
    ln_free(b);
}

static void variables_are_checked(void **state) {
    (void)state;
    setenv("LINNET_NONSENSE", "1", 1);
    expect(RUN(S("--version")), 0, "LINNET_NONSENSE");
    unsetenv("LINNET_NONSENSE");
}

/* ---- score, attention ---- */

/* Reads a safetensors file: shape of tensor `name`, pointer to its data. */
static const float *tensor(const char *data, size_t bytes, const char *name, int64_t shape[3]) {
    uint64_t n = 0;
    ln_error err;
    json_t *root;
    assert_true(bytes > 8);
    memcpy(&n, data, 8);
    assert_true(n < bytes && n % 8 == 0);
    if (ln_json_load(&root, "header", data + 8, n, &err)) fail_msg("%s", err.message);
    const json_t *t = json_object_get(root, name);
    if (!t) fail_msg("no tensor %s", name);
    assert_string_equal(text_of(t, "dtype"), "F32");
    size_t product = 4;
    for (size_t i = 0; i < json_array_size(json_object_get(t, "shape")); i++) {
        shape[i] = json_integer_value(json_array_get(json_object_get(t, "shape"), i));
        product *= (size_t)shape[i];
    }
    json_int_t from = json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 0));
    json_int_t to = json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 1));
    assert_int_equal(to - from, product);
    assert_true((size_t)to + 8 + n <= bytes);
    json_decref(root);
    return (const float *)(const void *)(data + 8 + n + from);
}

static void scores_and_logits_agree(void **state) {
    (void)state;
    char *file = at(0, "logits.st");
    json_t *o = json_of(RUN(S("score"), S(SMALL), S("--ids"), S("5,6,7,8"), S("--json"), S("--top"), S("3"), S("--logits"), file));
    char *data;
    size_t bytes;
    int64_t shape[3];
    assert_int_equal(ln_read_file(file, 1 << 28, &data, &bytes, NULL), LN_OK);
    const float *l = tensor(data, bytes, "logits", shape);
    assert_int_equal(shape[0], 4);
    const json_t *lp = json_object_get(o, "logprobs"), *top = json_object_get(o, "top");
    assert_int_equal(json_array_size(lp), 4);
    assert_int_equal(json_array_size(top), 4);
    assert_true(json_is_null(json_array_get(lp, 0)));
    double sum = 0;
    for (int64_t t = 0; t < 4; t++) {
        const float *row = l + t * shape[1];
        double z = 0;
        int64_t best = 0;
        for (int64_t i = 0; i < shape[1]; i++) {
            z += exp((double)row[i]);
            if (row[i] > row[best]) best = i;
        }
        const json_t *first = json_array_get(json_array_get(top, (size_t)t), 0);
        assert_int_equal(json_array_size(json_array_get(top, (size_t)t)), 3);
        assert_int_equal(int_of(first, "id"), best);
        assert_true(fabs(json_number_value(json_object_get(first, "logprob")) - ((double)row[best] - log(z))) < 1e-9);
        if (t == 3) break;
        double want = (double)row[5 + t + 1] - log(z);
        sum += want;
        assert_true(fabs(json_number_value(json_array_get(lp, (size_t)t + 1)) - want) < 1e-9);
    }
    assert_true(fabs(json_number_value(json_object_get(o, "sum_logprob")) - sum) < 1e-9);
    assert_true(fabs(json_number_value(json_object_get(o, "perplexity")) - exp(-sum / 3)) < 1e-6);
    json_decref(o);
    ln_free(data);
    /* an existing file is safe, and one token has no perplexity */
    expect(RUN(S("score"), S(SMALL), S("--ids"), S("5"), S("--logits"), file), 5, "--force");
    o = json_of(RUN(S("score"), S(SMALL), S("--ids"), S("5"), S("--json"), S("--logits"), file, S("--force")));
    assert_true(json_is_null(json_object_get(o, "perplexity")) && !json_object_get(o, "top"));
    json_decref(o);
    expect(RUN(S("score"), S(SMALL), S("--ids"), S("5"), S("--logits"), S("/dev/full")), 5, "/dev/full");
    expect(RUN(S("score"), S(SMALL), S("--ids"), S("5"), S("--logits"), S("/nowhere/x")), 5, "/nowhere/x");
    expect(RUN(S("score"), S(SMALL), S("--ids"), S("99999"), S("--logits"), at(1, "never.st")), 3, "99999");
    assert_false(ln_exists(at(1, "never.st")));
    assert_int_equal(RUN(S("score"), S(TINY), S("Hello world"))->code, 0);
    assert_non_null(strstr(last->out, "perplexity"));
}

static void keys_have_their_shapes(void **state) {
    (void)state;
    char *file = at(0, "keys.st"), *data;
    size_t bytes;
    json_t *show = json_of(RUN(S("show"), S(SMALL), S("--json")));
    expect(RUN(S("attention"), S(SMALL), S("--ids"), S("1,2,3,4,5"), S("-o"), file), 0, NULL);
    assert_int_equal(last->out_bytes, 0);
    assert_int_equal(ln_read_file(file, 1 << 28, &data, &bytes, NULL), LN_OK);
    for (int64_t layer = 0; layer < int_of(show, "layers"); layer++) {
        char name[32];
        int64_t shape[3];
        (void)snprintf(name, sizeof name, "keys.%lld", (long long)layer);
        const float *k = tensor(data, bytes, name, shape);
        assert_int_equal(shape[0], int_of(show, "kv_heads"));
        assert_int_equal(shape[1], 5);
        assert_int_equal(shape[2], int_of(show, "head_dim"));
        double sum = 0;
        for (int64_t i = 0; i < shape[0] * shape[1] * shape[2]; i++) sum += fabs((double)k[i]);
        assert_true(sum > 0 && isfinite(sum));
    }
    ln_free(data);
    json_decref(show);
    expect(RUN(S("attention"), S(SMALL), S("--ids"), S("1"), S("-o"), file), 5, "--force");
}

/* ---- the rest ---- */

static void tokenize_both_ways(void **state) {
    (void)state;
    expect(RUN_IN("Hello world", S("tokenize"), S(TINY)), 0, NULL);
    char *want = ln_strndup(last->out, last->out_bytes);
    expect(RUN(S("tokenize"), S(TINY), S("Hello world")), 0, NULL);
    assert_string_equal(last->out, want);
    expect(RUN_IN("{\"text\":\"Hello world\"}\n{\"text\":\"\"}\n", S("tokenize"), S(TINY), S("--jsonl")), 0, NULL);
    assert_int_equal(strncmp(last->out, want, strlen(want)), 0);
    assert_string_equal(last->out + strlen(want), "{\"ids\":[]}\n");
    char *ids = strchr(want, '[') + 1, line[200];
    *strchr(ids, ']') = '\0';
    expect(RUN(S("tokenize"), S(TINY), S("--ids"), ids), 0, NULL);
    assert_string_equal(last->out, "{\"text\":\"Hello world\"}\n");
    (void)snprintf(line, sizeof line, "{\"ids\":[%s]}", ids); /* the last line needs no newline */
    expect(RUN_IN(line, S("tokenize"), S(TINY), S("--jsonl"), S("--skip-special")), 0, NULL);
    assert_string_equal(last->out, "{\"text\":\"Hello world\"}\n");
    ln_free(want);
}

static void jsonl_answers_before_it_waits(void **state) {
    (void)state;
    int in[2], out[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    char *argv[] = {S("linnet"), S("tokenize"), S(TINY), S("--jsonl"), NULL}, text[100];
    pid_t pid = start(argv, in[0], out[1], null);
    close(in[0]);
    close(out[1]);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(write(in[1], "{\"text\":\"a\"}\n", 13), 13);
        assert_true(read(out[0], text, sizeof text) > 0); /* a conversation, not a batch */
    }
    close(in[1]);
    assert_int_equal(finish(pid), 0);
    close(out[0]);
    close(null);
}

static void facts(void **state) {
    (void)state;
    json_t *o = json_of(RUN(S("show"), S(TINY), S("--json")));
    assert_string_equal(text_of(o, "model_type"), "qwen3");
    assert_string_equal(text_of(o, "numerics"), "fast");
    assert_true(int_of(o, "layers") > 0 && int_of(o, "width") > 0 && int_of(o, "parameters") > 1000000 && json_is_boolean(json_object_get(o, "template")));
    json_decref(o);
    static struct {
        const char *model;
        char asked[8], used[8]; /* what a load uses, by the checkpoint and what is asked for */
    } of[] = {{"gemma3-text-f16", "", "fast"}, {"gemma3-text-f16", "exact", "exact"}, {"gemma3-text-f32", "", "exact"}, {"gemma3-text-f32", "fast", "exact"},
              {"quantised/qwen2-q3-g64-f32", "", "fast"}};
    for (size_t i = 0; i < LN_COUNT(of); i++) {
        char path[512];
        (void)snprintf(path, sizeof path, LN_ROOT "/tests/golden/%s", of[i].model);
        o = json_of(of[i].asked[0] ? RUN(S("plan"), path, S("--numerics"), of[i].asked, S("--json")) : RUN(S("plan"), path, S("--json")));
        assert_string_equal(text_of(o, "numerics"), of[i].used);
        json_decref(o);
    }
    expect(RUN(S("show"), S(TINY)), 0, NULL);
    o = json_of(RUN(S("ls"), S(LN_ROOT "/tests/golden"), S("--json")));
    assert_true(json_array_size(json_object_get(o, "models")) >= 10);
    assert_true(int_of(json_array_get(json_object_get(o, "models"), 0), "bytes") > 0);
    json_decref(o);
    o = json_of(RUN(S("doctor"), S("--json")));
    assert_true(int_of(o, "cores") >= 1 && int_of(o, "memory_bytes") > 0 && strlen(text_of(o, "rung")) > 0);
    json_decref(o);
    expect(RUN(S("doctor")), 0, NULL);
}

/* `ulimit -f`: a failed write with its reason, neither death by SIGXFSZ nor a file left behind. */
static void a_file_over_the_limit_is_an_error(void **state) {
    (void)state;
    struct rlimit was, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small = was;
    small.rlim_cur = 65536;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    outcome *o = RUN(S("score"), S(TINY), S("--ids"), S("1,2,3,4,5,6,7,8"), S("--logits"), at(0, "large.st"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    expect(o, 5, "large.st: cannot write: File too large");
}

static void plans_follow_the_flags(void **state) {
    (void)state;
    json_t *a = json_of(RUN(S("plan"), S(TINY), S("--ctx"), S("512"), S("--json"))),
           *b = json_of(RUN(S("plan"), S(TINY), S("--ctx"), S("1k"), S("--numerics"), S("exact"), S("--json"))), *c = json_of(RUN(S("plan"), S(TINY), S("--ids"), S("1,2,3"), S("-n"), S("20"), S("--ctx"), S("1k"), S("--chunk"), S("16"), S("--temp"), S("0"), S("--ignore-eos"), S("--json")));
    assert_int_equal(int_of(a, "ctx"), 512);
    assert_int_equal(int_of(b, "ctx"), 1024);
    assert_true(int_of(b, "kv_bytes") == 4 * int_of(a, "kv_bytes")); /* twice as many positions, in f32 */
    assert_true(int_of(c, "kv_bytes") < int_of(b, "kv_bytes") && int_of(c, "activation_bytes") < int_of(b, "activation_bytes"));
    assert_string_equal(text_of(c, "numerics"), "fast");
    assert_int_equal(int_of(a, "peak_bytes"), int_of(a, "weights_bytes") + int_of(a, "kv_bytes") + int_of(a, "activation_bytes") + int_of(a, "other_bytes"));
    json_decref(a);
    json_decref(b);
    json_decref(c);
    for (int bits = 4; bits <= 8; bits += 4) { /* codes, and a scale and a bias in bf16 for 64 columns; the head is the table. `fast` on AMX has a few numbers more */
        json_t *q = json_of(RUN(S("plan"), S(TINY), S("--quantize"), bits == 4 ? S("4") : S("8"), S("--ctx"), S("512"), S("--numerics"), S("exact"), S("--json")));
        json_t *m = json_of(RUN(S("show"), S(TINY), S("--json")));
        assert_true(int_of(q, "weights_bytes") < int_of(m, "parameters") * (bits + 0.5) / 8 * 1.02);
        assert_true(int_of(q, "weights_bytes") > int_of(m, "parameters") * (bits + 0.5) / 8);
        json_decref(q);
        json_decref(m);
    }
    expect(RUN(S("run"), S(TINY), S(STORY), S("--quantize"), S("8"), S("-n"), S("3")), 0, NULL);
    expect(RUN(S("plan"), S(TINY), S(STORY)), 0, NULL);
    assert_non_null(strstr(last->out, "peak"));
    /* the rows of logits that score holds, the positions that attention keeps */
    a = json_of(RUN(S("plan"), S(TINY), S("--ctx"), S("512"), S("--chunk"), S("64"), S("--json")));
    b = json_of(RUN(S("plan"), S(TINY), S("--ctx"), S("512"), S("--chunk"), S("64"), S("--for"), S("score"), S("--json")));
    c = json_of(RUN(S("plan"), S(TINY), S("--ctx"), S("512"), S("--chunk"), S("64"), S("--for"), S("attention"), S("--json")));
    assert_true(int_of(b, "activation_bytes") > int_of(a, "activation_bytes") && int_of(b, "kv_bytes") == int_of(a, "kv_bytes"));
    json_t *tiny = json_of(RUN(S("show"), S(TINY), S("--json")));
    assert_true(int_of(c, "activation_bytes") == int_of(a, "activation_bytes") + 512 * int_of(tiny, "kv_heads") * int_of(tiny, "head_dim") * 4);
    json_decref(tiny);
    json_decref(a);
    json_decref(b);
    json_decref(c);
}

/* A model quantised from the command line: what is said, what is there, and that nothing is there when it fails or is stopped. */
static void quantizes(void **state) {
    (void)state;
    expect(RUN(S("quantize"), S(TINY)), 2, "needs -o DIR");
    expect(RUN(S("quantize"), S(TINY), S("-o"), at(0, "q"), S("--bits"), S("7")), 2, "2|3|4|5|6|8");
    expect(RUN(S("quantize"), S(TINY), S("-o"), at(0, "q"), S("--keep"), S("lm_head")), 2, "NAME=BITS");
    expect(RUN(S("quantize"), S(TINY), S("-o"), at(0, "q"), S("--keep"), S("lm_head=7")), 2, "NAME=BITS");
    expect(RUN(S("quantize"), S(TINY), S("-o"), at(0, "q"), S("--keep"), S("nobody=8")), 2, "nobody");
    expect(RUN(S("show"), at(0, "q")), 5, "q");
    json_t *q = json_of(RUN(S("quantize"), S(TINY), S("-o"), at(0, "q"), S("--bits"), S("3"), S("--group"), S("32"), S("--keep"), S("lm_head=8"), S("--json")));
    json_t *first = json_array_get(json_object_get(q, "tensors"), 0);
    assert_string_equal(text_of(first, "name"), "model.embed_tokens.weight");
    assert_int_equal(int_of(first, "bits"), 8);
    assert_int_equal(int_of(q, "bits"), 3);
    json_t *m = json_of(RUN(S("show"), at(0, "q"), S("--json"))), *plan = json_of(RUN(S("plan"), at(0, "q"), S("--ctx"), S("512"), S("--numerics"), S("exact"), S("--json")));
    assert_int_equal(int_of(m, "bits"), 3);
    assert_int_equal(int_of(m, "group"), 32);
    assert_int_equal(int_of(m, "bytes"), int_of(q, "bytes"));
    assert_true(int_of(plan, "weights_bytes") <= int_of(q, "bytes") * 1.02);
    json_decref(q), json_decref(m), json_decref(plan);
    expect(RUN(S("run"), at(0, "q"), S(STORY), S("-n"), S("3")), 0, NULL);
    assert_string_equal(last->err, "linnet: cut at 3 tokens (-n)\n");
    expect(RUN(S("quantize"), at(0, "q"), S("-o"), at(1, "r")), 4, "quantised already");
    expect(RUN(S("run"), at(0, "q"), S(STORY), S("--quantize"), S("4")), 2, "quantised already");
    expect(RUN(S("quantize"), S(TINY), S("-o"), at(0, "q")), 5, "--force");
    expect(RUN(S("quantize"), S(TINY), S("-o"), at(0, "q"), S("--force")), 0, NULL);
    assert_non_null(strstr(last->out, "4 bit g64"));
    assert_non_null(strstr(last->out, "bits a weight"));
    static const char *const files[] = {"LICENSE", "config.json", "generation_config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json",
                                        "tokenizer_config.json"};
    for (size_t i = 0; i < LN_COUNT(files); i++) { /* these, and nothing else */
        char name[80];
        snprintf(name, sizeof name, "q/%s", files[i]);
        assert_int_equal(unlink(at(0, name)), 0);
    }
    assert_int_equal(rmdir(at(0, "q")), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_errors), cmocka_unit_test(quantizes), cmocka_unit_test(help_and_version), cmocka_unit_test(what_later_versions_do_is_refused), cmocka_unit_test(models_that_are_not_there),
        cmocka_unit_test(run_gives_its_object), cmocka_unit_test(all_ways_to_give_a_prompt_agree), cmocka_unit_test(the_stream_is_the_text),
        cmocka_unit_test(what_does_not_fit_is_refused), cmocka_unit_test(ctrl_c_keeps_the_text), cmocka_unit_test(ctrl_c_still_gives_the_object),
        cmocka_unit_test(weights_that_change_are_named), cmocka_unit_test(a_closed_pipe_is_quiet), cmocka_unit_test(a_full_disk_is_an_error),
        cmocka_unit_test(closed_descriptors_do_no_harm), cmocka_unit_test(variables_are_checked), cmocka_unit_test(scores_and_logits_agree),
        cmocka_unit_test(keys_have_their_shapes), cmocka_unit_test(tokenize_both_ways), cmocka_unit_test(jsonl_answers_before_it_waits), cmocka_unit_test(facts),
        cmocka_unit_test(a_file_over_the_limit_is_an_error), cmocka_unit_test(plans_follow_the_flags)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
