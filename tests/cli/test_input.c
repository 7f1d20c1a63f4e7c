/* Sources of input text: pipes and devices, a text piped in addition to a prompt, byte order marks, and
 * arguments that begin with a dash. */
/* run: slow */
#include "spawn.h"

#define BOM   "\xef\xbb\xbf"
#define SHORT S("-n"), S("2"), S("--temp"), S("0"), S("--json")

/* Creates a pipe that holds `text` and has no writer; the command inherits it under the returned name. */
static const char *pipe_with(const char *text, int *fd) {
    static char name[4][32];
    static int next;
    int p[2];
    char *out = name[next++ % 4];
    assert_int_equal(pipe(p), 0);
    assert_int_equal(write(p[1], text, strlen(text)), strlen(text));
    close(p[1]);
    *fd = p[0];
    (void)snprintf(out, sizeof name[0], "/dev/fd/%d", p[0]);
    return out;
}

static char *copy_of(const char *name) {
    static char text[4][64];
    static int next;
    char *out = text[next++ % 4];
    (void)snprintf(out, sizeof text[0], "%s", name);
    return out;
}

/* The prompt's ids, as text, of a run that must succeed. */
static char *prompt_of(const outcome *o) {
    json_t *root = json_of(o);
    char *text = json_dumps(json_object_get(root, "prompt_ids"), JSON_COMPACT);
    json_decref(root);
    assert_non_null(text);
    return text;
}

static void same_prompt(const outcome *o, const char *want, const char *what) {
    char *got = prompt_of(o);
    if (strcmp(got, want) != 0) fail_msg("%s: %s, expected %s", what, got, want);
    ln_free(got);
}

static void write_file(const char *leaf, const char *text, size_t bytes) {
    FILE *f = fopen(at(0, leaf), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

/* ---- pipes and devices ---- */

static void pipes_and_devices_are_read(void **state) {
    (void)state;
    int fd, other;
    char *want = prompt_of(RUN(S("run"), S(TINY), S(STORY), SHORT));
    same_prompt(RUN(S("run"), S(TINY), S("-f"), copy_of(pipe_with(STORY "\n", &fd)), SHORT), want,
                "-f of a pipe");
    close(fd);
    same_prompt(RUN_IN(STORY "\n", S("run"), S(TINY), S("-f"), S("/dev/stdin"), SHORT), want,
                "-f /dev/stdin");
    assert_int_equal(mkfifo(at(0, "fifo"), 0600), 0);
    pid_t writer = fork();
    if (writer == 0) {
        int w = open(at(0, "fifo"), O_WRONLY | O_CLOEXEC);
        _exit(write(w, STORY, strlen(STORY)) == (ssize_t)strlen(STORY) ? 0 : 1);
    }
    same_prompt(RUN(S("run"), S(TINY), S("-f"), at(1, "fifo"), SHORT), want, "-f of a FIFO");
    assert_int_equal(finish(writer), 0);
    assert_int_equal(unlink(at(0, "fifo")), 0);
    char at_pipe[40];
    (void)snprintf(at_pipe, sizeof at_pipe, "@%s", pipe_with(BOM "3, 1 2\n", &fd));
    same_prompt(RUN(S("run"), S(SMALL), S("--ids"), at_pipe, SHORT), "[3,1,2]", "--ids of a pipe");
    close(fd);
    same_prompt(RUN_IN("3,1,2", S("run"), S(SMALL), S("--ids"), S("@/dev/stdin"), SHORT), "[3,1,2]",
                "--ids @/dev/stdin");
    expect(RUN(S("tokenize"), S(TINY), S("-f"), copy_of(pipe_with("Hello world", &fd))), 0, NULL);
    close(fd);
    char *ids = ln_strndup(last->out, last->out_bytes);
    expect(RUN(S("tokenize"), S(TINY), S("Hello world")), 0, NULL);
    assert_string_equal(ids, last->out);
    ln_free(ids);
    /* Templates too: for run, for template alone, and for plan, which opens the model twice. */
    static const char tmpl[] = "T{{ messages[-1].content }}";
    json_t *o =
        json_of(RUN(S("run"), S(TINY), S("x"), S("--chat-template"), copy_of(pipe_with(tmpl, &fd)), SHORT));
    close(fd);
    json_t *raw = json_of(RUN(S("run"), S(TINY), S("--raw"), S("Tx"), SHORT));
    assert_true(json_equal(json_object_get(o, "prompt_ids"), json_object_get(raw, "prompt_ids")));
    json_decref(o);
    json_decref(raw);
    expect(RUN(S("template"), copy_of(pipe_with(BOM "T{{ x }}", &fd))), 0, NULL);
    assert_string_equal(last->out, "T{{ x }}");
    close(fd);
    expect(RUN(S("plan"), S(TINY), S("-f"), copy_of(pipe_with("x", &fd)), S("--chat-template"),
               copy_of(pipe_with(tmpl, &other))),
           0, NULL);
    close(fd);
    close(other);
    ln_free(want);
}

static void what_cannot_end_is_refused(void **state) {
    (void)state;
    expect(RUN(S("tokenize"), S(TINY), S("-f"), S("/dev/zero")), 3,
           "/dev/zero: more than the 67108864 bytes");
    expect(RUN(S("run"), S(TINY), S("--ids"), S("@/dev/zero")), 3, "/dev/zero: more than the 67108864 bytes");
    expect(RUN(S("run"), S(TINY), S("-f"), S("/tmp")), 3,
           "/tmp: expected a file, a pipe or a device, found a directory");
    expect(RUN(S("run"), S(TINY), S("-f"), S("/nowhere/x")), 5, "/nowhere/x");
    expect(RUN(S("run"), S(TINY), S("-f"), S("/dev/fd/99")), 5, "/dev/fd/99");
}

/* ---- a text piped in addition to a prompt ---- */

static void a_piped_text_goes_after_the_prompt(void **state) {
    (void)state;
    char *want = prompt_of(RUN(S("run"), S(TINY), S("one\n\ntwo\nthree"), SHORT)),
         *alone = prompt_of(RUN(S("run"), S(TINY), S("one"), SHORT));
    same_prompt(RUN_IN("two\nthree\n", S("run"), S(TINY), S("one"), SHORT), want, "PROMPT and a file");
    same_prompt(RUN_IN("two\nthree", S("run"), S(TINY), S("-p"), S("one"), SHORT), want, "-p and a file");
    write_file("prompt.txt", "one\n", 4);
    same_prompt(RUN_IN(BOM "two\nthree\r\n", S("run"), S(TINY), S("-f"), at(1, "prompt.txt"), SHORT), want,
                "-f and a file");
    same_prompt(RUN_IN("", S("run"), S(TINY), S("one"), SHORT), alone, "nothing");
    same_prompt(RUN_IN("\n", S("run"), S(TINY), S("one"), SHORT), alone, "a newline");
    same_prompt(RUN_IN(BOM, S("run"), S(TINY), S("one"), SHORT), alone, "a mark alone");
    same_prompt(RUN_IN("one", S("run"), S(TINY), S("-f"), at(1, "std0"), SHORT), alone,
                "the file that the prompt is read from");
    same_prompt(RUN_IN("9 9", S("run"), S(SMALL), S("--ids"), S("3,1,2"), SHORT), "[3,1,2]",
                "--ids and a file");
    expect(run_with("a\xff", 2, (char *const[]){S("linnet"), S("run"), S(TINY), S("one"), NULL}), 3, "UTF-8");
    /* From a pipe as well, but never from a device. */
    int in[2], out[2], zero = open("/dev/zero", O_RDONLY | O_CLOEXEC),
                       null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int device = 0; device < 2; device++) {
        static char text[1 << 16];
        size_t n = 0;
        assert_int_equal(pipe2(in, O_CLOEXEC), 0);
        assert_int_equal(pipe2(out, O_CLOEXEC), 0);
        assert_int_equal(write(in[1], "two\nthree\n", 10), 10);
        close(in[1]);
        char *argv[] = {S("linnet"), S("run"), S(TINY), S("one"), SHORT, NULL};
        pid_t pid = start(argv, device ? zero : in[0], out[1], null);
        close(out[1]);
        close(in[0]);
        for (ssize_t got; (got = read(out[0], text + n, sizeof text - n)) > 0;) n += (size_t)got;
        close(out[0]);
        assert_int_equal(finish(pid), 0);
        same_prompt(&(outcome){.out = text, .out_bytes = n}, device ? alone : want,
                    device ? "a device" : "a pipe");
    }
    close(zero);
    close(null);
    ln_free(want);
    ln_free(alone);
}

/* The command waits for a pipe without data, and says so after two seconds. */
static void waiting_is_said(void **state) {
    (void)state;
    int in[2], err[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
    char said[400] = {0};
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    char *argv[] = {S("linnet"), S("run"), S(TINY), S("one"), S("-n"), S("0"), NULL};
    pid_t pid = start(argv, in[0], null, err[1]);
    close(in[0]);
    close(err[1]);
    double begin = ln_now();
    assert_true(read(err[0], said, sizeof said - 1) > 0);
    assert_true(ln_now() - begin > 1.5);
    if (!strstr(said, "waiting for stdin") || !strstr(said, "< /dev/null")) fail_msg("%s", said);
    close(in[1]);
    assert_int_equal(finish(pid), 0);
    close(err[0]);
    close(null);
}

/* ---- byte order marks ---- */

static void marks_of_texts_are_dropped(void **state) {
    (void)state;
    char *want = prompt_of(RUN(S("run"), S(TINY), S(STORY), SHORT));
    same_prompt(RUN_IN(BOM STORY "\n", S("run"), S(TINY), SHORT), want, "stdin");
    same_prompt(RUN(S("run"), S(TINY), S("-p"), S(BOM STORY), SHORT), want, "-p");
    same_prompt(RUN(S("run"), S(TINY), S(BOM STORY), SHORT), want, "PROMPT");
    write_file("prompt.txt", BOM STORY, strlen(BOM STORY));
    same_prompt(RUN(S("run"), S(TINY), S("-f"), at(1, "prompt.txt"), SHORT), want, "-f");
    same_prompt(RUN_IN(BOM "1,2", S("run"), S(SMALL), S("--ids"), S("-"), SHORT), "[1,2]", "--ids");
    ln_free(want);
    expect(RUN_IN(BOM "{\"text\":\"Hello\"}\n" BOM "{\"text\":\"Hello\"}\n", S("tokenize"), S(TINY),
                  S("--jsonl")),
           0, NULL);
    char *second = strchr(last->out, '\n') + 1;
    assert_memory_equal(last->out, second, strlen(second)); /* a mark at the beginning of a later line, as
                                                               in files joined by `cat` */
    expect(RUN_IN(BOM "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", S("template"), S(TINY),
                  S("--jsonl")),
           0, NULL);
    assert_memory_equal(last->out, "{\"text\":", 8);
    expect(RUN_IN(BOM "/system x\n", S("chat"), S(TINY)), 0, NULL);
    assert_string_equal(last->err, "system text set\n");
}

static void other_encodings_are_named(void **state) {
    (void)state;
    static const char le[] = "\xff\xfeH\0i\0", be[] = "\xfe\xff\0H\0i", four[] = "\xff\xfe\0\0H\0\0\0",
                      json[] = "\xff\xfe{\0}\0\n\0";
    static char *const prompt[] = {"linnet", "run", TINY, NULL},
                       *const beside[] = {"linnet", "run", TINY, "one", NULL},
                       *const ids[] = {"linnet", "run", TINY, "--ids", "-", NULL},
                       *const jsonl[] = {"linnet", "tokenize", TINY, "--jsonl", NULL},
                       *const chat[] = {"linnet", "chat", TINY, NULL};
    expect(run_with(le, sizeof le - 1, prompt), 3, "stdin: expected UTF-8, found UTF-16LE");
    expect(run_with(be, sizeof be - 1, beside), 3, "UTF-16BE");
    expect(run_with(four, sizeof four - 1, prompt), 3, "UTF-32LE");
    expect(run_with(le, sizeof le - 1, ids), 3, "UTF-16LE");
    expect(run_with(json, sizeof json - 1, jsonl), 3, "UTF-16LE");
    expect(run_with(le, sizeof le - 1, chat), 3, "UTF-16LE");
    write_file("prompt.txt", le, sizeof le - 1);
    expect(RUN(S("run"), S(TINY), S("-f"), at(1, "prompt.txt")), 3,
           "prompt.txt: expected UTF-8, found UTF-16LE");
    assert_non_null(strstr(last->err, "iconv -f UTF-16LE -t UTF-8"));
    write_file("prompt.txt", le, sizeof le - 1);
    expect(RUN(S("run"), S(TINY), S("x"), S("--chat-template"), at(1, "prompt.txt")), 3, "UTF-16LE");
}

/* UTF-16 and UTF-32 without a byte order mark are recognised by their NUL bytes; U+0000 in a text is not. */
static void encodings_without_a_mark_are_named(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t bytes;
        const char *name;
    } rows[] = {{"H\0i\0", 4, "UTF-16LE"},
                {"\0H\0i\0\n", 6, "UTF-16BE"},
                {"H\0e\0l\0l\0o\0\x1c\x20!\0\n\0", 16, "UTF-16LE"}, /* a character above U+00FF */
                {"H\0\0\0i\0\0\0", 8, "UTF-32LE"},
                {"\0\0\0H\0\0\0i", 8, "UTF-32BE"},
                {"a\0bcdefg", 8, NULL},
                {"\0\0\0\0", 4, NULL}};
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        char want[100];
        write_file("prompt.txt", rows[i].text, rows[i].bytes);
        outcome *o = RUN(S("tokenize"), S(TINY), S("-f"), at(1, "prompt.txt"));
        if (!rows[i].name) {
            expect(o, 0, NULL);
            continue;
        }
        (void)snprintf(want, sizeof want, "prompt.txt: expected UTF-8, found %s (NUL bytes between",
                       rows[i].name);
        expect(o, 3, want);
        (void)snprintf(want, sizeof want, "iconv -f %s -t UTF-8", rows[i].name);
        assert_non_null(strstr(o->err, want));
    }
    static const char le[] = "H\0i\0\n", json[] = "{\0}\0\n"; /* with the NUL byte that ends the literal */
    static char *const prompt[] = {"linnet", "run", TINY, NULL},
                       *const beside[] = {"linnet", "run", TINY, "one", NULL},
                       *const ids[] = {"linnet", "run", TINY, "--ids", "-", NULL},
                       *const jsonl[] = {"linnet", "tokenize", TINY, "--jsonl", NULL},
                       *const chat[] = {"linnet", "chat", TINY, NULL};
    expect(run_with(le, sizeof le, prompt), 3, "stdin: expected UTF-8, found UTF-16LE");
    expect(run_with(le, sizeof le, beside), 3, "UTF-16LE");
    expect(run_with(le, sizeof le, ids), 3, "UTF-16LE");
    expect(run_with(json, sizeof json, jsonl), 3, "UTF-16LE");
    expect(run_with(le, sizeof le, chat), 3, "UTF-16LE");
    write_file("prompt.txt", le, sizeof le);
    expect(RUN(S("run"), S(TINY), S("x"), S("--chat-template"), at(1, "prompt.txt")), 3, "UTF-16LE");
}

/* A byte order mark before every text file of a model's directory changes nothing. */
static void a_model_with_marks_is_the_same(void **state) {
    (void)state;
    static const char *const files[] = {"config.json", "generation_config.json", "tokenizer.json",
                                        "tokenizer_config.json"};
    char path[300];
    assert_int_equal(mkdir(at(0, "m"), 0700), 0);
    for (size_t i = 0; i < LN_COUNT(files); i++) {
        char *data, leaf[64];
        size_t bytes;
        ln_str marked = {0};
        (void)snprintf(path, sizeof path, TINY "/%s", files[i]);
        assert_int_equal(ln_read_file(path, 1 << 24, &data, &bytes, NULL), LN_OK);
        ln_str_adds(&marked, BOM);
        ln_str_add(&marked, data, bytes);
        (void)snprintf(leaf, sizeof leaf, "m/%s", files[i]);
        write_file(leaf, marked.data, marked.len);
        ln_str_free(&marked);
        ln_free(data);
    }
    assert_int_equal(symlink(TINY "/model.safetensors", at(0, "m/model.safetensors")), 0);
    json_t *want = json_of(RUN(S("run"), S(TINY), S(STORY), SHORT)),
           *got = json_of(RUN(S("run"), at(1, "m"), S(STORY), SHORT));
    assert_true(json_equal(json_object_get(want, "prompt_ids"), json_object_get(got, "prompt_ids")));
    assert_true(json_equal(json_object_get(want, "ids"), json_object_get(got, "ids")));
    json_decref(want);
    json_decref(got);
    for (size_t i = 0; i < LN_COUNT(files); i++) {
        (void)snprintf(path, sizeof path, "m/%s", files[i]);
        assert_int_equal(unlink(at(0, path)), 0);
    }
    assert_int_equal(unlink(at(0, "m/model.safetensors")), 0);
    assert_int_equal(rmdir(at(0, "m")), 0);
}

/* ---- arguments that begin with a dash ---- */

static void texts_may_begin_with_a_dash(void **state) {
    (void)state;
    static const char *const texts[] = {"- buy milk",      "- ",           "---",
                                        "-5 degrees",      "-- and so on", "-buy milk",
                                        "\xe2\x80\x94 so", "-v please",    "--verbose please",
                                        "--temp rises",    "-n 5 apples"};
    for (size_t i = 0; i < LN_COUNT(texts); i++) {
        char text[32], joined[40];
        (void)snprintf(text, sizeof text, "%s", texts[i]);
        (void)snprintf(joined, sizeof joined, "--prompt=%s", texts[i]);
        char *want = prompt_of(RUN(S("run"), S(TINY), joined, SHORT));
        same_prompt(RUN(S("run"), S(TINY), S("-p"), text, SHORT), want, text);
        same_prompt(RUN(S("run"), S(TINY), text, SHORT), want, text);
        same_prompt(RUN(S("run"), S(TINY), S("--stop"), text, S("-p"), text, SHORT), want, text);
        ln_free(want);
    }
    static const char *const flags[] = {"--json",   "--jsno", "-n",        "-z",
                                        "--temp=0", "--",     "--top-k 5", "-n 5"};
    for (size_t i = 0; i < LN_COUNT(flags); i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "%s", flags[i]);
        expect(RUN(S("run"), S(TINY), S("-p"), text), 2, "--prompt needs a value");
    }
    expect(RUN(S("run"), S(TINY), S("--top-k 5"), S("x")), 2, "--top-k 5");
}

/* ---- lines of JSON ---- */

static void bad_lines_are_answered(void **state) {
    (void)state;
    static const char *const bad[] = {
        "nonsense", "{\"txt\":\"a\"}",        "{\"text\":5}",       "{\"ids\":[1.5]}", "{\"ids\":[-7]}",
        "[]",       "{\"text\":\"\\ud800\"}", "{\"text\":\"\xff\"}"};
    expect(RUN_IN("{\"text\":\"x\"}\n", S("tokenize"), S(TINY), S("--jsonl")), 0, NULL);
    char *good = ln_strndup(last->out, last->out_bytes);
    size_t n = strlen(good);
    for (size_t i = 0; i < LN_COUNT(bad); i++) {
        char lines[200];
        (void)snprintf(lines, sizeof lines, "{\"text\":\"x\"}\n\n%s\n \t\r\n{\"text\":\"x\"}", bad[i]);
        expect(RUN_IN(lines, S("tokenize"), S(TINY), S("--jsonl")), 3, "stdin: line 3: ");
        assert_memory_equal(last->out, good, n);
        assert_memory_equal(last->out + n, "{\"error\":\"", 10);
        const char *third = strchr(last->out + n, '\n') + 1;
        assert_string_equal(third, good);
    }
    expect(RUN_IN("a\nb\nc\n", S("tokenize"), S(TINY), S("--jsonl")), 3, "stdin: line 1: ");
    assert_non_null(strstr(last->err, "(and 2 more bad lines)"));
    expect(RUN_IN("\n\n \n", S("tokenize"), S(TINY), S("--jsonl")), 0, NULL);
    assert_int_equal(last->out_bytes, 0);
    expect(RUN_IN("\nnonsense\n{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}\n", S("template"),
                  S(TINY), S("--jsonl")),
           3, "stdin: line 2: ");
    assert_memory_equal(last->out, "{\"error\":\"", 10);
    assert_memory_equal(strchr(last->out, '\n') + 1, "{\"text\":\"", 9);
    /* The message of a template's raise_exception is a valid answer, not an error. */
    expect(RUN_IN("{\"template\":\"{{ raise_exception('no') }}\",\"context\":{}}\n", S("template"),
                  S("--jsonl")),
           0, NULL);
    assert_string_equal(last->out, "{\"error\":\"no\"}\n");
    ln_free(good);
}

/* --jsonl reads its lines from --file as well: a file, a pipe or stdin. */
static void lines_come_from_a_file(void **state) {
    (void)state;
    static const char text[] = "{\"text\":\"Hello\"}\n{\"text\":\"x\"}\n",
                      chats[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}\n";
    int fd;
    expect(RUN_IN(text, S("tokenize"), S(TINY), S("--jsonl")), 0, NULL);
    char *want = ln_strndup(last->out, last->out_bytes);
    write_file("prompt.txt", text, sizeof text - 1);
    expect(RUN_IN("nonsense", S("tokenize"), S(TINY), S("--jsonl"), S("-f"), at(1, "prompt.txt")), 0, NULL);
    assert_string_equal(last->out, want);
    expect(RUN(S("tokenize"), S(TINY), S("--jsonl"), S("-f"), copy_of(pipe_with(text, &fd))), 0, NULL);
    close(fd);
    assert_string_equal(last->out, want);
    expect(RUN_IN(text, S("tokenize"), S(TINY), S("--jsonl"), S("-f"), S("-")), 0, NULL);
    assert_string_equal(last->out, want);
    expect(RUN_IN(text, S("tokenize"), S(TINY), S("-"), S("--jsonl")), 0, NULL);
    assert_string_equal(last->out, want);
    ln_free(want);
    write_file("prompt.txt", "\nnonsense\n", 10);
    expect(RUN(S("tokenize"), S(TINY), S("--jsonl"), S("-f"), at(1, "prompt.txt")), 3,
           "prompt.txt: line 2: ");
    expect(RUN(S("tokenize"), S(TINY), S("--jsonl"), S("-f"), S("/nowhere/x")), 5, "/nowhere/x");
    expect(RUN(S("tokenize"), S(TINY), S("--jsonl"), S("-f"), S("/tmp")), 3, "found a directory");
    expect(RUN(S("tokenize"), S(TINY), S("--jsonl"), S("-p"), S("x")), 2, "contradict");
    expect(RUN_IN(chats, S("template"), S(TINY), S("--jsonl")), 0, NULL);
    want = ln_strndup(last->out, last->out_bytes);
    write_file("prompt.txt", chats, sizeof chats - 1);
    expect(RUN(S("template"), S(TINY), S("--jsonl"), S("-f"), at(1, "prompt.txt")), 0, NULL);
    assert_string_equal(last->out, want);
    expect(RUN(S("template"), S(TINY), S("-f"), at(1, "prompt.txt")), 2, "--file has the conversations");
    ln_free(want);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pipes_and_devices_are_read),
                                       cmocka_unit_test(what_cannot_end_is_refused),
                                       cmocka_unit_test(a_piped_text_goes_after_the_prompt),
                                       cmocka_unit_test(waiting_is_said),
                                       cmocka_unit_test(marks_of_texts_are_dropped),
                                       cmocka_unit_test(other_encodings_are_named),
                                       cmocka_unit_test(encodings_without_a_mark_are_named),
                                       cmocka_unit_test(lines_come_from_a_file),
                                       cmocka_unit_test(a_model_with_marks_is_the_same),
                                       cmocka_unit_test(texts_may_begin_with_a_dash),
                                       cmocka_unit_test(bad_lines_are_answered)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
