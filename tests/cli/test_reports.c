/* Tests of explain, diff and bench: their tables, their JSON objects, their errors, and the transcripts in
 * docs/.
 *
 * A transcript is a block whose first line is "$ linnet ...": the test runs the command and compares its
 * output with the rest of the block. Variable parts are masked in both: numbers with a decimal point,
 * units of bytes, names of ISA levels, and runs of spaces (columns move with the width of numbers).
 * Everything else - names, shapes, counts, words - must be equal. LN_TRANSCRIPTS=write writes the outputs
 * into docs/ instead. On AMX programs have other, fewer nodes: on such a machine the transcripts are run
 * on the ISA level below. */
/* run: slow */
#include "spawn.h"

#include "../fewer.h"

#include "device/cpu/cpu.h"

#include <ctype.h>
#include <poll.h>

/* ---- transcripts ---- */

static bool digit(char c) { return c >= '0' && c <= '9'; }

/* The length of an ISA level's name at `at`, or 0. */
static size_t isa_at(const char *at) {
    static const char *const isas[] = {"plain", "avx2", "avx512", "amx", "neon"};
    for (size_t i = LN_COUNT(isas); i-- > 0;) {
        size_t n = strlen(isas[i]);
        if (strncmp(at, isas[i], n) == 0 && !isalnum((unsigned char)at[n])) return n;
    }
    return 0;
}

static size_t unit_at(const char *at) {
    if (at[0] == 'B' && !isalnum((unsigned char)at[1])) return 1;
    return strchr("kMG", at[0]) && at[0] && at[1] == 'B' && !isalnum((unsigned char)at[2]) ? 2 : 0;
}

static void masked(ln_str *out, const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes;) {
        const char *at = text + i;
        bool word = i > 0 && isalnum((unsigned char)at[-1]);
        size_t n = digit(*at) ? strspn(at, "0123456789") : 0, isa = word ? 0 : isa_at(at),
               unit = word ? 0 : unit_at(at);
        const bool line_start = i == 0 || at[-1] == '\n';
        if (bytes - i >= 9 &&
            strncmp(at, " (cached)", 9) == 0) { /* of a share: the machine's caches decide */
            n = 9;
        } else if (bytes - i >= 2 && strncmp(at, "-\n", 2) == 0 && i > 0 && at[-1] == ' ') {
            ln_str_adds(out, "# %"); /* a share above 100 % */
            n = 1;
        } else if (line_start && bytes - i >= 3 && strncmp(at, "-: ", 3) == 0) { /* and its reason */
            n = strcspn(at, "\n") + 1;
        } else if (n && at[n] == '.' && digit(at[n + 1])) {
            n += 1 + strspn(at + n + 1, "0123456789");
            ln_str_add(out, "#", 1);
        } else if (n) {
            ln_str_add(out, at, n);
        } else if (isa || unit) {
            n = isa ? isa : unit;
            ln_str_adds(out, isa ? "ISA" : "BYTES");
        } else {
            n = *at == ' ' ? strspn(at, " ") : 1;
            if (*at != ' ' || (out->len && out->data[out->len - 1] != '\n')) ln_str_add(out, at, 1);
        }
        i += n;
    }
}

/* Runs the command of a line "$ linnet VERB tiny ..." into `last`; a quoted part is one argument, and a file
 * of examples/ is found wherever the test runs. */
static void run_line(const char *line, size_t n) {
    char words[300], file[300], tiny[] = TINY, *argv[MOST_ARGS] = {S("linnet")}, *at = words;
    int count = 1;
    assert_true(n < sizeof words && strncmp(line, "$ linnet ", 9) == 0);
    (void)snprintf(words, sizeof words, "%.*s", (int)(n - 9), line + 9);
    while (*at) {
        bool quoted = *at == '"';
        char *end = at + quoted + strcspn(at + quoted, quoted ? "\"" : " ");
        char after = *end ? end[quoted] : '\0';
        *end = '\0';
        argv[count] = at + quoted;
        if (count == 2 && strcmp(argv[count], "tiny") == 0) argv[count] = tiny;
        if (strncmp(argv[count], "examples/", 9) == 0) {
            (void)snprintf(file, sizeof file, LN_ROOT "/%s", argv[count]);
            argv[count] = file;
        }
        count++;
        at = end + (after || quoted) + (quoted && after);
    }
    expect(run_with("", 0, argv), 0, NULL);
}

static void transcript(const char *name) {
    char path[256], *doc;
    size_t bytes;
    (void)snprintf(path, sizeof path, LN_ROOT "/docs/%s.md", name);
    assert_int_equal(ln_read_file(path, 1 << 20, &doc, &bytes, NULL), LN_OK);
    char *line = strstr(doc, "\n$ linnet ");
    char *eol = line ? strchr(line + 1, '\n') : NULL, *end = eol ? strstr(eol, "\n```") : NULL;
    if (!end) fail_msg("%s holds no transcript", path);
    run_line(line + 1, (size_t)(eol - line - 1));
    if (getenv("LN_TRANSCRIPTS")) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fprintf(f, "%.*s\n%s%s", (int)(eol - doc), doc, last->out, end + 1);
        fclose(f);
    } else {
        ln_str want = {0}, got = {0};
        masked(&want, eol + 1, (size_t)(end - eol));
        masked(&got, last->out, last->out_bytes);
        assert_true(want.len > 60);
        const char *a = want.data, *b = got.data;
        while (strcspn(a, "\n") == strcspn(b, "\n") && strncmp(a, b, strcspn(a, "\n") + 1) == 0 && *a)
            a += strcspn(a, "\n") + 1, b += strcspn(b, "\n") + 1;
        if (*a || *b)
            fail_msg("%s is not what the command prints (LN_TRANSCRIPTS=write test_reports writes it "
                     "anew).\nthere: %.*s\nnow:   %.*s",
                     path, (int)strcspn(a, "\n"), a, (int)strcspn(b, "\n"), b);
        ln_str_free(&want);
        ln_str_free(&got);
    }
    ln_free(doc);
}

static bool has_amx(void) {
#if defined(__x86_64__) && !defined(LN_PLAIN_ONLY)
    return ln_cpu_isa_here(LN_ISA_AMX);
#else
    return false;
#endif
}
static void below_amx(void) { setenv("LINNET_CPU", "avx512", 1); }
static void transcripts_are_true(void **state) {
    (void)state;
    if (has_amx()) before_exec = below_amx;
    transcript("explain");
    transcript("diff");
    transcript("bench");
    transcript("classify");
    transcript("eval");
    before_exec = NULL;
}

/* ---- objects ---- */

static double real_of(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    if (!json_is_number(v)) fail_msg("'%s' is no number", key);
    return json_number_value(v);
}

static void explain_gives_its_object(void **state) {
    (void)state;
    json_t *o = json_of(RUN(S("explain"), S(SMALL), S("--json"), S("--mode"), S("prefill"), S("--chunk"),
                            S("9"), S("--reps"), S("1"), S("--threads"), S("1")));
    const json_t *nodes = json_object_get(o, "nodes");
    double sum = 0;
    assert_int_equal(int_of(o, "rows"), 9);
    assert_int_equal(int_of(o, "threads"), 1);
    assert_true(json_array_size(nodes) > 10 && real_of(o, "step_seconds") > 0);
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *n = json_array_get(nodes, i);
        assert_int_equal(int_of(n, "index"), i);
        assert_true(int_of(n, "layer") >= -1 && strlen(text_of(n, "op")) > 0 &&
                    strlen(text_of(n, "kernel")) > 0 && strlen(text_of(n, "makes")) > 0);
        sum += real_of(n, "seconds");
    }
    assert_true(fabs(sum - real_of(o, "nodes_seconds")) < 1e-9);
    json_decref(o);
    expect(RUN(S("explain"), S(SMALL), S("--reps"), S("1")), 0, NULL);
    size_t brief = last->out_bytes;
    assert_non_null(strstr(last->out, "layers.*.attn.q[T,"));
    expect(RUN(S("explain"), S(SMALL), S("--reps"), S("1"), S("-v")), 0, NULL);
    assert_non_null(strstr(last->out, "layers.1.attn.q[T,"));
    assert_true(last->out_bytes > brief);
    expect(RUN(S("explain"), S(SMALL), S("--depth"), S("1,2")), 2, "one depth");
    expect(RUN(S("explain"), S(SMALL), S("--depth"), S("100k")), 2, "");
}

static void diff_gives_its_object(void **state) {
    (void)state;
    char *const numerics[] = {S("exact"), S("fast")};
    for (size_t i = 0; i < LN_COUNT(numerics); i++) {
        json_t *o = json_of(RUN(S("diff"), S(SMALL), S("--ids"), S("1,2,3,4,5"), S("--json"), S("--numerics"),
                                numerics[i]));
        assert_true(json_is_true(json_object_get(o, "agree")));
        const json_t *nodes = json_object_get(o, "nodes");
        assert_true(json_array_size(nodes) > 10);
        for (size_t k = 0; k < json_array_size(nodes); k++) {
            const double difference = real_of(json_array_get(nodes, k), "difference"),
                         bound = real_of(json_array_get(nodes, k), "bound");
            assert_true(has_amx() ? difference <= bound : difference == 0 && bound == 0);
        }
        json_decref(o);
    }
    expect(RUN(S("diff"), S(TINY), S("Hello"), S("-v")), 0, NULL);
    assert_non_null(strstr(last->out, "layers.1.attn.kv\n"));
    expect(RUN(S("diff"), S(SMALL), S("--ids"), S("99999")), 3, "99999");
    expect(RUN(S("diff"), S(SMALL), S("--ids"), S("1,2,3"), S("--ctx"), S("2")), 3, "--ctx");
}

/* Asserts that an object has exactly the keys of the contract, in this order. */
static void keys_are(const json_t *o, const char *const *want, size_t n) {
    size_t i = 0;
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)o, key, v) {
        if (i >= n || strcmp(key, want[i]) != 0) fail_msg("key %zu is '%s'", i, key);
        i++;
    }
    assert_int_equal(i, n);
}

static void bench_gives_its_object(void **state) {
    (void)state;
    static const char *const top[] = {"rows",       "read_gb_s",    "peak_flop_s",
                                      "peak_bytes", "load_seconds", "first_token_seconds",
                                      "bits",       "numerics",     "isa"},
                             *const each[] = {"work",          "n",    "depth", "streams", "tok_s",
                                              "ceiling_tok_s", "share"},
                             *const works[] = {"prefill", "decode", "streams"};
    json_t *o = json_of(RUN(S("bench"), S(TINY), S("--prefill"), S("20"), S("--streams"), S("2"), S("--reps"),
                            S("1"), S("--json"), S("--threads"), S("1")));
    assert_int_equal(last->err_bytes, 0);       /* no progress line if stderr is no terminal */
    if (json_object_get(o, "tile_read_gb_s")) { /* with tiles, the ceiling is the larger of two, and both
                                                   are reported */
        assert_true(fmax(real_of(o, "vector_read_gb_s"), real_of(o, "tile_read_gb_s")) == real_of(o, "read_"
                                                                                                     "gb_s"));
        json_object_del(o, "vector_read_gb_s");
        json_object_del(o, "tile_read_gb_s");
    }
    keys_are(o, top, LN_COUNT(top));
    const json_t *rows = json_object_get(o, "rows");
    assert_int_equal(json_array_size(rows), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *r = json_array_get(rows, i);
        keys_are(r, each, LN_COUNT(each));
        assert_string_equal(text_of(r, "work"), works[i]);
        assert_int_equal(int_of(r, "n"), i ? 64 : 20);
        assert_true(fabs(real_of(r, "share") - real_of(r, "tok_s") / real_of(r, "ceiling_tok_s")) < 1e-9 &&
                    real_of(r, "tok_s") > 0);
    }
    assert_true(real_of(o, "read_gb_s") > 0 && real_of(o, "peak_flop_s") > 0 &&
                int_of(o, "peak_bytes") > 1000000 && real_of(o, "load_seconds") > 0);
    json_decref(o);
}

/* Rows have llama-bench's names; a share above 100 % is marked as cached. */
static void bench_in_the_words_of_the_field(void **state) {
    (void)state;
    expect(RUN(S("bench"), S(TINY), S("--prefill"), S("20"), S("--depth"), S("0,100"), S("--streams"), S("2"),
               S("--reps"), S("1"), S("--threads"), S("1")),
           0, NULL);
    static const char *const said[] = {
        "\npp20 ",  "\ntg64 ",           "\ntg64 @ d100 ", "\ntg64 @ d256, 2 streams ",
        "roofline", "prompt processing", "generation"};
    for (size_t i = 0; i < LN_COUNT(said); i++)
        if (!strstr(last->out, said[i])) fail_msg("'%s' is not in: %s", said[i], last->out);
    int shares = 0;
    for (const char *line = last->out; *line; line += strcspn(line, "\n") + 1) {
        size_t n = strcspn(line, "\n");
        const char *percent = memchr(line, '%', n), *from = percent;
        if (!percent || (strncmp(line, "pp", 2) != 0 && strncmp(line, "tg", 2) != 0)) continue;
        for (from--; from > line && (from[-1] == '.' || digit(from[-1])); from--) {
        }
        shares++;
        if (atof(from) > 100 && !memmem(line, n, "cached", 6)) fail_msg("%.*s", (int)n, line);
    }
    assert_true(shares >= 1);
}

static void a_low_ceiling_fails(void **state) {
    (void)state;
    static const struct {
        const char *text, *said;
        int code;
    } cases[] = {
        {"{\"ceilings\":[{\"threads\":1,\"read_gb_s\":0.001,\"peak_flop_s\":1}]}", "", 0},
        {"{\"ceilings\":[{\"threads\":1,\"read_gb_s\":1e6,\"peak_flop_s\":1}]}", "under 90 %", 7},
        {"{\"ceilings\":[{\"threads\":1,\"read_gb_s\":0.001,\"peak_flop_s\":1e18}]}", "under 90 %", 7},
        {"{\"ceilings\":[{\"threads\":2,\"read_gb_s\":1,\"peak_flop_s\":1}]}", "1 thread", 3},
        {"{", "prompt.txt", 3}};
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        FILE *f = fopen(at(0, "prompt.txt"), "w");
        fputs(cases[i].text, f);
        fclose(f);
        expect(RUN(S("bench"), S(TINY), S("--prefill"), S("2"), S("--reps"), S("1"), S("--threads"), S("1"),
                   S("--ceiling"), at(0, "prompt.txt")),
               cases[i].code, cases[i].said);
    }
    FILE *f = fopen(at(0, "prompt.txt"), "w");
    fputs(cases[3].text, f);
    fclose(f);
    expect(RUN(S("bench"), S("/nowhere/model"), S("--threads"), S("1"), S("--ceiling"), at(0, "prompt.txt")),
           3, "1 thread"); /* before any other work */
    expect(RUN(S("bench"), S(TINY), S("--ceiling"), S("/nowhere/x")), 5, "/nowhere/x");
    expect(RUN(S("bench"), S(TINY), S("--depth"), S("1000")), 2, "--depth 1000");
    expect(RUN(S("bench"), S(TINY), S("--streams"), S("0")), 2, "--streams");
    expect(RUN(S("bench"), S(TINY), S("--depth"), S("1,,2")), 2, "--depth");
}

/* A progress line if stderr is a terminal, erased at the end; none otherwise. It appears after half a
 * second, which the work may not take on every machine: the test stops the command for that long while it
 * is silent. */
static void progress_is_for_terminals(void **state) {
    (void)state;
    ln_str ids = {0};
    for (int i = 0; i < fewer(200, 80); i++) ln_str_addf(&ids, "%d ", i);
    for (int tty = 0; tty < 2; tty++) {
        int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC),
            null = open("/dev/null", O_RDWR | O_CLOEXEC);
        char text[8192], *argv[] = {S("linnet"),   S("score"), S(TINY),      S("--ids"), ids.data,
                                    S("--device"), S("ref"),   S("--chunk"), S("2"),     NULL};
        size_t n = 0;
        assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
        int terminal = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC), pipes[2];
        assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
        pid_t pid = start(argv, null, null, tty ? terminal : pipes[1]);
        close(terminal);
        close(pipes[1]);
        struct pollfd from = {.fd = tty ? master : pipes[0], .events = POLLIN};
        int patience = 30;
        for (ssize_t got = 1; got > 0;) { /* until the last writer closes it */
            if (poll(&from, 1, n > 0 ? -1 : patience) != 0) {
                got = read(from.fd, text + n, sizeof text - 1 - n);
                n += got > 0 ? (size_t)got : 0;
            } else {
                kill(pid, SIGSTOP);
                usleep(600000);
                kill(pid, SIGCONT);
                patience *= 3; /* stops once while it loads and at least once during prefill */
            }
        }
        text[n] = '\0';
        assert_int_equal(finish(pid), 0);
        if (!tty) assert_int_equal(n, 0);
        else if (!strstr(text, "\r\033[Kreading: ") || strcmp(text + n - 4, "\r\033[K") != 0)
            fail_msg("'%s'", text);
        close(master);
        close(pipes[0]);
        close(null);
    }
    ln_str_free(&ids);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(transcripts_are_true),
                                       cmocka_unit_test(explain_gives_its_object),
                                       cmocka_unit_test(diff_gives_its_object),
                                       cmocka_unit_test(bench_gives_its_object),
                                       cmocka_unit_test(bench_in_the_words_of_the_field),
                                       cmocka_unit_test(a_low_ceiling_fails),
                                       cmocka_unit_test(progress_is_for_terminals)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
