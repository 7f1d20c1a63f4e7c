/* Messages for users who type what they know from other tools: their flags and verbs, a prompt in place of
 * the model, a GGUF file, sizes with units. Every row of others.def is tested, so that no advice names a
 * flag or a verb that does not exist. */
/* run: slow */
#include "spawn.h"

#include <ctype.h>

static outcome *run_line(const char *line) {
    char words[400], *argv[MOST_ARGS] = {S("linnet")};
    int n = 1;
    (void)snprintf(words, sizeof words, "%s", line);
    for (char *w = words, *next; w && *w && n + 1 < MOST_ARGS; w = next) {
        next = strchr(w, ' ');
        if (next) *next++ = '\0';
        argv[n++] = w;
    }
    return run_with("", 0, argv);
}

static const char *const verbs[] = {
#define VERB(ID, name, form, takes, what, more) #name,
#include "../../src/cli/verbs.def"
#undef VERB
};

static const char *const flags[] = {
#define FLAG(id, name, letter, kind, on, value, lo, hi, help) name,
#include "../../src/cli/flags.def"
#undef FLAG
};

static bool is_flag(const char *word, size_t n) {
    static const char *const more[] = {"--help", "--version", "--man"};
    for (size_t i = 0; i < LN_COUNT(flags); i++)
        if (strlen(flags[i]) == n && memcmp(flags[i], word, n) == 0) return true;
    for (size_t i = 0; i < LN_COUNT(more); i++)
        if (strlen(more[i]) == n && memcmp(more[i], word, n) == 0) return true;
    return false;
}

/* Asserts that each --flag and each `linnet VERB` in an advice exists. */
static void advice_is_true(const char *text) {
    for (const char *at = text; (at = strstr(at, "--")); at += 2) {
        size_t n = strspn(at, "-abcdefghijklmnopqrstuvwxyz");
        if (n > 2 && !is_flag(at, n)) fail_msg("no flag '%.*s': %s", (int)n, at, text);
    }
    for (const char *at = text; (at = strstr(at, "linnet ")); at += 7) {
        bool real = strncmp(at + 7, "--version", 9) == 0;
        size_t n = strspn(at + 7, "abcdefghijklmnopqrstuvwxyz");
        for (size_t i = 0; i < LN_COUNT(verbs); i++)
            real = real || (strlen(verbs[i]) == n && strncmp(verbs[i], at + 7, n) == 0);
        static const char *const phrases[] = {"downloads", "does", "has", "reads", "is", "under"};
        for (size_t i = 0; i < LN_COUNT(phrases); i++)
            real = real || (strlen(phrases[i]) == n && strncmp(phrases[i], at + 7, n) == 0);
        if (!real) fail_msg("no verb '%.*s': %s", (int)n, at + 7, text);
    }
}

/* ---- flags ---- */

static const struct {
    const char *flag, *names, *advice;
} others[] = {
#define SAME(id, spellings)   {#id, spellings, NULL},
#define ELSE(spellings, text) {NULL, spellings, text},
#define OTHER_VERB(words, text)
#include "../../src/cli/others.def"
#undef SAME
#undef ELSE
#undef OTHER_VERB
};

static void flags_of_other_tools(void **state) {
    (void)state;
    int taken = 0, refused = 0;
    for (size_t i = 0; i < LN_COUNT(others); i++) {
        char names[1200];
        (void)snprintf(names, sizeof names, "%s", others[i].names);
        for (char *save, *name = strtok_r(names, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
            char line[200];
            /* a flag of linnet is never taken for another one; it may be rejected with advice by other verbs
             */
            if (!others[i].advice) assert_false(is_flag(name, strlen(name)));
            /* a name that is another spelling in one verb may be rejected with advice by another */
            bool as_said = false;
            for (size_t v = 0; v < 2 && !as_said; v++) {
                (void)snprintf(line, sizeof line, "%s %s x --help", v == 0 ? "run" : "train", name);
                outcome *o = run_line(line);
                /* a refusal of another kind shows that the name is known */
                as_said = others[i].advice
                              ? o->code == 2 && strstr(o->err, others[i].advice)
                              : o->code == 0 || strstr(o->err, "belongs to") || strstr(o->err, "found 'x'");
            }
            if (!as_said) fail_msg("%s is not %s", name, others[i].advice ? "refused with advice" : "taken");
            taken += !others[i].advice, refused += !!others[i].advice;
        }
        if (others[i].advice) advice_is_true(others[i].advice);
    }
    assert_true(taken > 40 && refused > 100);
}

/* A switch with a value, as other tools write it: what to write instead. */
static void a_switch_takes_no_value(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"--think=false", "--think takes no value: write --no-think"},
        {"--think=true", "--think takes no value: write --think alone"},
        {"--no-think=False", "--no-think takes no value: write --think"},
        {"--ignore-eos=0", "--ignore-eos takes no value: leave it out"},
        {"--raw=yes", "--raw takes no value: write --raw alone"},
        {"--think=high", "--think takes no value (see"},
        {"-l=3", "--logit-bias ID=V"},
        {"--max-length=20", "--max-tokens limits what is generated, --ctx both together"},
    };
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        char flag_text[40];
        (void)snprintf(flag_text, sizeof flag_text, "%s", rows[i][0]);
        expect(RUN(S("run"), S(TINY), S("x"), flag_text), 2, rows[i][1]);
    }
    json_t *o =
        json_of(RUN(S("run"), S(TINY), S("x"), S("--antiprompt"), S("e"), S("-n"), S("9"), S("--json")));
    assert_null(strchr(text_of(o, "text"), 'e'));
    json_decref(o);
}

/* An alternative spelling has the effect of the flag. */
static void the_same_by_another_name(void **state) {
    (void)state;
    static const char *const lines[] = {
        "run -m % -p Hello -n 5 --temp 0.5 --seed 7 --json",
        "run --model % --prompt Hello --n-predict 5 --temperature 0.5 --seed 7 --json",
        "run --model=% Hello --num-predict 5 --temperature=0.5 --seed 7 --ctx-size 1024 --json",
        "run % Hello --max-tokens 5 --temperature 0.5 --seed 7 --json",
        "run Hello --max-new-tokens 5 --temperature 0.5 --seed 7 -m % --num-ctx 512 --json"};
    json_t *want = NULL;
    for (size_t i = 0; i < LN_COUNT(lines); i++) {
        char line[400];
        const char *mark = strchr(lines[i], '%');
        (void)snprintf(line, sizeof line, "%.*s" TINY "%s", (int)(mark - lines[i]), lines[i], mark + 1);
        json_t *o = json_of(run_line(line)), *ids = json_incref(json_object_get(o, "ids"));
        if (!want) want = json_incref(ids);
        if (!json_equal(ids, want)) fail_msg("%s: other tokens", lines[i]);
        json_decref(ids), json_decref(o);
    }
    assert_int_equal(json_array_size(want), 5);
    json_decref(want);
    expect(RUN(S("show"), S("-m"), S(TINY), S("--json")), 0, NULL);
    expect(RUN(S("show"), S("-m"), S(TINY), S(TINY)), 2, "unexpected argument");
}

static int distance(const char *a, const char *b) { /* the textbook Levenshtein distance */
    size_t n = strlen(a), m = strlen(b);
    int d[64][64];
    assert_true(n < 64 && m < 64);
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            d[i][j] = i == 0   ? (int)j
                      : j == 0 ? (int)i
                               : LN_MIN(LN_MIN(d[i - 1][j], d[i][j - 1]) + 1,
                                        d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
        }
    return d[n][m];
}

static void no_suggestion_is_far(void **state) {
    (void)state;
    static const char *const typed[] = {
        "--tmp",    "--temprature", "--max-tokns", "--max_tokens", "--repaet-penalty", "--foo",
        "--ab",     "--xyzzy",      "--jsno",      "--reasons",    "--quant",          "--top",
        "--list",   "--test",       "--size",      "--mode",       "--kind",           "--sed",
        "--contex", "--no-stat",    "--log"};
    static const char *const words[] = {"rum",  "rnu",  "ruin",     "shwo",  "foo", "a",       "xy",
                                        "plam", "chta", "tokenise", "bnech", "doc", "help-me", "hlep"};
    int near = 0;
    for (size_t i = 0; i < LN_COUNT(typed) + LN_COUNT(words); i++) {
        bool flag = i < LN_COUNT(typed);
        char line[80], name[40], plain[40];
        const char *word = flag ? typed[i] : words[i - LN_COUNT(typed)];
        (void)snprintf(line, sizeof line, flag ? "run %s 1" : "%s", word);
        outcome *o = run_line(line);
        expect(o, 2, NULL);
        const char *at = strstr(o->err, "nearest is ");
        if (!at) continue;
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 11, " \n;"), at + 11);
        (void)snprintf(plain, sizeof plain, "%s", word);
        for (char *c = plain; *c; c++) *c = *c == '_' ? '-' : *c;
        if (distance(plain, name) > 2) fail_msg("%s: %s", word, o->err);
        near++;
    }
    assert_true(near >= 14);
    expect(run_line("run --max-tok 3"), 2,
           "--max-tokens"); /* an abbreviation is rejected, and the message names the flag that it begins */
    expect(run_line("run --temprature 0 -p x"), 2, "--temp");
    expect(run_line("run -n5 -p x"), 2, "-n 5");
}

static void of_a_flag_given_twice_the_last_counts(void **state) {
    (void)state;
    json_t *a =
        json_of(RUN(S("run"), S(TINY), S("-n"), S("9"), S("-p"), S("no"), S("--prompt"), S(STORY), S("-n"),
                    S("3"), S("--json"), S("--json"), S("--seed"), S("5"), S("--seed"), S("6")));
    json_t *b =
        json_of(RUN(S("run"), S(TINY), S("-p"), S(STORY), S("-n"), S("3"), S("--json"), S("--seed"), S("6")));
    assert_true(json_equal(json_object_get(a, "ids"), json_object_get(b, "ids")));
    assert_true(json_equal(json_object_get(a, "prompt_ids"), json_object_get(b, "prompt_ids")));
    assert_int_equal(int_of(a, "seed"), 6);
    json_decref(a), json_decref(b);
    expect(run_line("bench tiny --depth 1,x --depth 1 --help"), 2,
           "--depth"); /* each value is validated, also one that is overridden */
    expect(run_line("run --temp x --temp 1 -p x"), 2, "found 'x'");
}

/* ---- verbs ---- */

static void verbs_of_other_tools(void **state) {
    (void)state;
    static const struct {
        const char *words, *advice;
    } rows[] = {
#define SAME(id, spellings)
#define ELSE(spellings, text)
#define OTHER_VERB(words, text) {words, text},
#include "../../src/cli/others.def"
#undef SAME
#undef ELSE
#undef OTHER_VERB
    };
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        char words[400];
        (void)snprintf(words, sizeof words, "%s", rows[i].words);
        for (char *save, *word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save))
            expect(run_line(word), 2, rows[i].advice);
        advice_is_true(rows[i].advice);
    }
    expect(run_line("generate --model x"), 2, "linnet run");
    expect(run_line("perplexity"), 2, "linnet eval");
    expect(run_line("list"), 2, "linnet ls");
    expect(run_line("-m tiny x"), 2, "linnet run [MODEL] [PROMPT] -m");
    expect(run_line("tiny"), 2, "linnet run tiny");
    expect(RUN(S("Tell me a story")), 2, "linnet run tiny \"Tell me a story\"");
}

static void alone_it_prints_the_help_page(void **state) {
    (void)state;
    expect(RUN(S("help")), 0, NULL);
    char *page = ln_strndup(last->out, last->out_bytes), *argv[] = {S("linnet"), NULL};
    expect(run_with("", 0, argv), 0, NULL);
    assert_memory_equal(last->out, page, strlen(page)); /* next steps may follow, by what this machine has */
    assert_int_equal(last->err_bytes, 0);
    assert_non_null(strstr(page, "usage: linnet VERB"));
    ln_free(page);
}

/* ---- a text in place of MODEL ---- */

static void a_text_read_as_model(void **state) {
    (void)state;
    expect(RUN(S("run"), S("Tell me a story")), 2, "'Tell me a story' was read as MODEL");
    assert_non_null(strstr(last->err, "linnet run tiny \"Tell me a story\""));
    expect(RUN(S("run"), S("Hello")), 2, "linnet run tiny \"Hello\"");
    expect(RUN_IN("more text", S("run"), S("Tell me a story")), 5, "linnet run tiny \"Tell me a story\"");
    expect(RUN(S("score"), S("The capital of France")), 2, "linnet score tiny \"The capital of France\"");
    expect(RUN(S("tokenize"), S("Hello world")), 2, "linnet tokenize tiny \"Hello world\"");
    expect(RUN(S("chat"), S("Hello there")), 5, "linnet run tiny \"Hello there\"");
    expect(RUN(S("chat"), S("Hello")), 5, "linnet run tiny \"Hello\"; for a conversation: linnet chat");
    expect(RUN(S("chat"), S("no/where")), 5, "hf download no/where");
    expect(RUN(S("chat"), S("-m"), S("Hello")), 5, "no such directory");
    expect(RUN(S("chat"), S(TINY), S("Hello")), 2, "linnet run " TINY " \"Hello\"");
    expect(RUN(S("run"), S("no/where")), 5,
           "hf download no/where"); /* an id and no prompt: the message about the model comes first */
    expect(RUN(S("run"), S(TINY)), 2, "no prompt");
}

/* A mistyped directory: the nearest one that exists, one component of it differing. */
static void mistyped_directories(void **state) {
    (void)state;
    expect(RUN(S("run"), S("tiyn"), S("Hi")), 5, "tiyn: no such directory; the nearest is tiny");
    expect(RUN(S("show"), S(LN_ROOT "/modls/tiny")), 5, "the nearest is " TINY);
    expect(RUN(S("show"), S(LN_ROOT "/models/tny/")), 5, "the nearest is " TINY "/");
    expect(RUN(S("show"), S(LN_ROOT "/models/other")), 5, "no such directory; a model is");
    expect(RUN(S("show"), S(LN_ROOT "/modls/none")), 5, "no such directory; a model is");
    expect(RUN(S("train"), S(TINY), S("--output_dir=x")), 2,
           "the nearest is --output-dir (that is --output)");
}

static void put_file(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* A GGUF file is a model, whatever its name; so is a directory, or a cached copy, with one of them and no
 * safetensors. Of several one must be named. Faults name the file. */
static void gguf_files_are_models(void **state) {
    (void)state;
    put_file(at(1, "sha256-00"), "GGUF\3");
    expect(RUN(S("show"), at(1, "sha256-00")), 3, "sha256-00: not a GGUF file"); /* too short for a header */
    put_file(at(0, "x.gguf"), "GGUF\1...");
    expect(RUN(S("show"), at(0, "x.gguf")), 4, "GGUF version");
    expect(RUN(S("show"), dir), 4, "x.gguf: GGUF version");
    expect(RUN(S("run"), dir, S("-p"), S("x")), 4, "x.gguf: GGUF version");
    put_file(at(2, "config.json"), "{}"); /* repositories of GGUF files may have a config.json */
    expect(RUN(S("show"), dir), 4, "x.gguf: GGUF version");
    put_file(at(3, "mmproj-x.gguf"), "GGUF");
    expect(RUN(S("show"), dir), 4, "/x.gguf: GGUF version");
    unlink(at(3, "mmproj-x.gguf"));
    put_file(at(3, "y-00001-of-00002.gguf"), "GGUF");
    put_file(at(2, "y-00002-of-00002.gguf"), "GGUF");
    expect(RUN(S("show"), dir), 3, "2 GGUF files: x.gguf, y-00001-of-00002.gguf; name one of them: ");
    put_file(at(1, "model.safetensors"), "");
    expect(RUN(S("show"), dir), 4, "names no model_type"); /* the directory is a model */
    static const char *const leaves[] = {"x.gguf",      "sha256-00",         "y-00001-of-00002.gguf",
                                         "config.json", "model.safetensors", "y-00002-of-00002.gguf"};
    for (size_t i = 0; i < LN_COUNT(leaves); i++) assert_int_equal(unlink(at(0, leaves[i])), 0);
    expect(RUN(S("show"), S("models/x.gguf")), 5, "models/x.gguf: no such file");
    expect(RUN(S("show"), S("org/Qwen3-0.6B-GGUF")), 5, "hf download org/Qwen3-0.6B-GGUF");
}

/* ---- sizes and ids ---- */

static void sizes_have_units(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes; /* 0: rejected */
    } sizes[] = {{"50000000", 50000000},
                 {"50000000B", 50000000},
                 {"48M", 48 << 20},
                 {"48m", 48 << 20},
                 {"48MiB", 48 << 20},
                 {"48MB", 48000000},
                 {"48mb", 48000000},
                 {"50000k", 50000 << 10},
                 {"50000kB", 50000000},
                 {"50000KiB", 50000 << 10},
                 {"0.05G", 53687091},
                 {"0.05GB", 50000000},
                 {"0.00005T", 54975581},
                 {"0.00005TB", 50000000},
                 {"48Mi", 0},
                 {"48X", 0},
                 {"48MBB", 0},
                 {"48 MB", 0},
                 {"1.5", 0},
                 {".", 0},
                 {"M", 0},
                 {"1.2.3M", 0},
                 {"-1M", 0},
                 {"9999999T", 0},
                 {"1e3M", 0},
                 {"", 0}};
    for (size_t i = 0; i < LN_COUNT(sizes); i++) {
        char word[40];
        (void)snprintf(word, sizeof word, "--memory=%s", sizes[i].text);
        outcome *o = RUN(S("plan"), S(TINY), S("--ctx"), S("64"), word, S("--json"));
        if (sizes[i].bytes == 0) {
            expect(o, 2, "--memory: expected a size");
            continue;
        }
        json_t *p = json_of(o);
        if (int_of(p, "available_bytes") != sizes[i].bytes)
            fail_msg("%s: %lld bytes", sizes[i].text, (long long)int_of(p, "available_bytes"));
        json_decref(p);
    }
    static const char *const large[] = {"16GB", "16GiB", "16G", "1T", "1TB", "1TiB"};
    for (size_t i = 0; i < LN_COUNT(large); i++) {
        char size[16];
        (void)snprintf(size, sizeof size, "%s", large[i]);
        expect(RUN(S("plan"), S(TINY), S("--memory"), size, S("--ctx"), S("64")), 0, NULL);
    }
}

static void what_tokenize_prints_is_ids(void **state) {
    (void)state;
    json_t *t = json_of(RUN(S("tokenize"), S(TINY), S("Once upon a time"), S("--json")));
    char *text = ln_strndup(last->out, last->out_bytes);
    json_t *r = json_of(RUN_IN(text, S("run"), S(TINY), S("--ids"), S("-"), S("-n"), S("2"), S("--json")));
    assert_true(json_equal(json_object_get(r, "prompt_ids"), json_object_get(t, "ids")));
    json_decref(r);
    r = json_of(RUN_IN(" [1, 2,3]\n", S("run"), S(TINY), S("--ids"), S("-"), S("-n"), S("2"), S("--json")));
    assert_int_equal(json_array_size(json_object_get(r, "prompt_ids")), 3);
    put_file(at(0, "prompt.txt"), text);
    char word[300];
    (void)snprintf(word, sizeof word, "@%s", at(0, "prompt.txt"));
    expect(RUN(S("tokenize"), S(TINY), S("--ids"), word), 0, NULL);
    assert_string_equal(last->out, "{\"text\":\"Once upon a time\"}\n");
    static const char *const bad[] = {
        "{}",    "[]",   "{\"ids\":[]}", "{\"ids\":5}", "[1,\"a\"]",
        "[1.5]", "[-1]", "[2147483648]", "[1",          "{\"ids\":[1]}{\"ids\":[2]}",
        "[[1]]"};
    for (size_t i = 0; i < LN_COUNT(bad); i++)
        expect(RUN_IN(bad[i], S("run"), S(TINY), S("--ids"), S("-")), 3, NULL);
    ln_free(text);
    json_decref(t), json_decref(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(flags_of_other_tools),
                                       cmocka_unit_test(a_switch_takes_no_value),
                                       cmocka_unit_test(the_same_by_another_name),
                                       cmocka_unit_test(no_suggestion_is_far),
                                       cmocka_unit_test(of_a_flag_given_twice_the_last_counts),
                                       cmocka_unit_test(verbs_of_other_tools),
                                       cmocka_unit_test(alone_it_prints_the_help_page),
                                       cmocka_unit_test(a_text_read_as_model),
                                       cmocka_unit_test(mistyped_directories),
                                       cmocka_unit_test(gguf_files_are_models),
                                       cmocka_unit_test(sizes_have_units),
                                       cmocka_unit_test(what_tokenize_prints_is_ids)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
