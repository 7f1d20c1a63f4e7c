/* Every flag that a message names exists. The library's messages name fields of its structs, which the
 * command replaces by flags of the verb that runs (src/cli/advice.c); the command's own messages name
 * flags directly. This test reads all string literals of the sources. */
/* run: slow */
#include "spawn.h"

#include "cli/adapter_flags.c"

#include "cli/flags.c"

#include "cli/flags_check.c"

#include "cli/settings_file.c"

#include "cli/names.c"

#include "cli/advice.c"

#include <ctype.h>
#include <ftw.h>
#include <sys/resource.h>

void note(const char *fmt, ...) { (void)fmt; } /* used by advice.c; never called here */

/* ---- the string literals of a source file ---- */

typedef void literal_fn(const char *file, const char *text);

/* Calls fn for each sequence of literals that the compiler concatenates, also in preprocessor lines.
 * Comments are skipped. */
static void each_literal(const char *path, literal_fn *fn) {
    char *data, joined[16384];
    size_t bytes, n = 0;
    bool open = false; /* a literal has ended, and only white space followed */
    assert_int_equal(ln_read_file(path, 1u << 22, &data, &bytes, NULL), LN_OK);
    for (const char *p = data; *p;) {
        if (p[0] == '/' && (p[1] == '*' || p[1] == '/')) {
            const char *end = p[1] == '*' ? strstr(p + 2, "*/") : strchr(p, '\n');
            p = end ? end + (p[1] == '*' ? 2 : 0) : p + strlen(p);
        } else if (*p == '\'') {
            p += p[1] == '\\' ? 3 : 2;
            while (*p && p[-1] != '\'') p++;
        } else if (*p == '"') {
            for (p++; *p && *p != '"'; p++) {
                const bool escaped = *p == '\\';
                p += escaped;
                assert_true(n + 1 < sizeof joined);
                joined[n++] = escaped && isalnum((unsigned char)*p) ? ' ' : *p;
            }
            p += *p == '"';
            open = true;
        } else {
            if (open && !isspace((unsigned char)*p) && *p != '\\') {
                joined[n] = 0;
                fn(path, joined);
                n = 0, open = false;
            }
            p++;
        }
    }
    ln_free(data);
}

static struct {
    bool cli;
    literal_fn *fn;
} walk;

static int on_file(const char *path, const struct stat *st, int kind, struct FTW *where) {
    (void)st, (void)where;
    const char *dot = strrchr(path, '.');
    const bool source = dot && (!strcmp(dot, ".c") || !strcmp(dot, ".h") || !strcmp(dot, ".def"));
    if (kind == FTW_F && source && walk.cli == !!strstr(path, "/src/cli/")) each_literal(path, walk.fn);
    return 0;
}

/* Reads all sources of the command or of the library. */
static void each_source(bool cli, literal_fn *fn) {
    walk.cli = cli, walk.fn = fn;
    assert_int_equal(nftw(LN_ROOT "/src", on_file, 8, FTW_PHYS), 0);
}

/* ---- flags and fields in a text ---- */

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Finds the next flag `--word` in a text; returns its length, 0 at the end. */
static size_t next_flag(const char **text) {
    for (const char *p = *text; (p = strstr(p, "--")); p += 2) {
        size_t n = 2 + strspn(p + 2, "abcdefghijklmnopqrstuvwxyz-");
        if (n > 2 && islower((unsigned char)p[2]) && (p == *text || (!is_word(p[-1]) && p[-1] != '-'))) {
            *text = p;
            while (p[n - 1] == '-') n--;
            return n;
        }
    }
    return 0;
}

static int flag_named(const char *text, size_t n) {
    for (int f = 0; f < F_COUNT; f++)
        if (strlen(flag_rows[f].name) == n && memcmp(flag_rows[f].name, text, n) == 0) return f;
    return F_COUNT;
}

/* Whether the verb has a flag of that name; two verbs may have different ones of one name. */
static bool has_flag(verb v, int flag) {
    for (int f = flag; f < F_COUNT; f++)
        if (strcmp(flag_rows[f].name, flag_rows[flag].name) == 0 && flag_rows[f].verbs & 1u << v) return true;
    return false;
}

static int n_seen;

/* The library's messages name no flag, and no field that is missing from fields.def. */
static void of_the_library(const char *file, const char *text) {
    const char *p = text;
    for (size_t n; (n = next_flag(&p)); p += n)
        if (n != 10 || memcmp(p, "--revision", n) != 0)
            fail_msg("%s: the library names the flag %.*s: %s", file, (int)n, p,
                     text); /* --revision is a flag of hf */
    if (strstr(text, "`linnet ")) fail_msg("%s: the library names the command: %s", file, text);
    for (p = text; (p = strstr(p, "ln_")); p++) {
        const char *dot = p + strspn(p, "abcdefghijklmnopqrstuvwxyz_");
        if ((p > text && is_word(p[-1])) || *dot != '.' || !islower((unsigned char)dot[1])) continue;
        n_seen++;
        if (!field_at(p)) fail_msg("%s: src/cli/fields.def has no row for %.40s, in: %s", file, p, text);
    }
}

static void library(void **s) {
    (void)s;
    n_seen = 0;
    each_source(false, of_the_library);
    assert_true(n_seen > 25); /* fields were found at all */
}

/* A flag in the command's own messages exists: in the file of a verb it is a flag of that verb, elsewhere
 * of any verb. */
static void of_the_command(const char *file, const char *text) {
    /* flags of `linnet`, of `linnet help`, and of `hf` */
    static const char *const words[] = {"--version", "--man", "--revision"};
    const char *base = strrchr(file, '/') + 1, *p = text;
    char name[64];
    const char *stem = strncmp(base, "verb_", 5) == 0 ? base + 5 : base; /* verb_run.c: run */
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(stem, "."), stem);
    const verb v = verb_named(name);
    if (strcmp(base, "others.def") == 0) return; /* a table of other programs' flags */
    for (size_t n; (n = next_flag(&p)); p += n) {
        int flag = flag_named(p, n);
        if (flag == F_COUNT) flag = flag_elsewhere(p, n); /* other programs' names of linnet's flags */
        bool known = flag < F_COUNT && (v == VERB_COUNT || strstr(base, ".def") || has_flag(v, flag));
        for (size_t i = 0; i < LN_COUNT(words); i++)
            known |= strlen(words[i]) == n && memcmp(words[i], p, n) == 0;
        n_seen++;
        if (!known)
            fail_msg("%s: %.*s is no flag of %s: %s", file, (int)n, p, v < VERB_COUNT ? name : "any verb",
                     text);
    }
}

static void command(void **s) {
    (void)s;
    n_seen = 0;
    each_source(true, of_the_command);
    assert_true(n_seen > 100);
}

/* For each verb, each field is replaced by a flag that the verb has, or by a phrase whose flags exist in
 * the verb that the phrase names; the field's own name never remains. */
static void every_field_for_every_verb(void **s) {
    (void)s;
    for (int v = 0; v <= VERB_COUNT; v++)
        for (size_t i = 0; i < LN_COUNT(fields); i++) {
            ln_str out = {0};
            char message[200];
            advice_for((verb)v);
            (void)snprintf(message, sizeof message, "a/%s: lower %s, please", "ln_else", fields[i].text);
            advice_add(&out, message);
            ln_str_add(&out, "", 1);
            if (strstr(out.data, fields[i].text))
                fail_msg("%s is not exchanged: %s", fields[i].text, out.data);
            assert_true(strncmp(out.data, "a/ln_else: lower ", 17) == 0 && strstr(out.data, ", please"));
            const char *p = out.data, *said = strstr(p, "`linnet ");
            verb named = (verb)v;
            if (said) {
                char word[32];
                (void)snprintf(word, sizeof word, "%.*s", (int)strcspn(said + 8, " `"), said + 8);
                named = verb_named(word);
                assert_true(named < VERB_COUNT);
            }
            for (size_t n; (n = next_flag(&p)); p += n)
                if (named >= VERB_COUNT || !has_flag(named, flag_named(p, n)))
                    fail_msg("%s in verb %d: no such flag: %s", fields[i].text, v, out.data);
            ln_str_free(&out);
        }
    advice_for(VERB_COUNT);
}

/* Text that is no field stays unchanged. */
static void others_stay(void **s) {
    (void)s;
    static const char *const texts[] = {"",
                                        "n_ctx",
                                        "ln_options.n_ctx_train is",
                                        "xln_options",
                                        "ln_",
                                        "/models/ln_optionsn_ctx",
                                        "ln_options.nothing"};
    advice_for(VERB_RUN);
    for (size_t i = 0; i < LN_COUNT(texts); i++) {
        ln_str out = {0};
        advice_add(&out, texts[i]);
        ln_str_add(&out, "", 1);
        assert_string_equal(out.data, texts[i]);
        ln_str_free(&out);
    }
    advice_for(VERB_COUNT);
}

/* ---- the command ---- */

static rlim_t space; /* bytes */
static void limit_space(void) {
    struct rlimit r = {space, space};
    if (setrlimit(RLIMIT_AS, &r) != 0) _exit(97);
}

static void flags_in_messages(void **s) {
    (void)s;
    outcome *o = RUN(S("run"), S(SMALL), S("--ids"), S("5"), S("--ctx"), S("1M"));
    assert_true(o->code == 2 && strstr(o->err, "--ctx 1048576 is more than") && !strstr(o->err, "ln_"));
    o = RUN(S("run"), S(SMALL), S("--ids"), S("5"), S("--memory"), S("1M"));
    assert_true(o->code == 6 && strstr(o->err, "--memory") && strstr(o->err, "--ctx") &&
                !strstr(o->err, "ln_"));
    o = RUN(S("chat"), S(SMALL), S("--chat"), S("--memory"), S("1M"));
    assert_true(o->code == 6 && !strstr(o->err, "ln_"));
    o = RUN(S("quantize"), S(SMALL), S("-o"), dir, S("--keep"), S("nothing=8"));
    assert_true(o->code == 2 && strstr(o->err, "--keep nothing:") && !strstr(o->err, "ln_"));
    /* Both devices of diff hold the weights: no context makes them fit. */
    o = RUN(S("diff"), S(TINY), S("--memory"), S("9M"));
    assert_true(o->code == 6 && strstr(o->err, "no --ctx or --chunk is small enough, since both devices "
                                               "hold"));
    o = RUN(S("bench"), S(SMALL), S("--depth"), S("1M"));
    assert_true(o->code == 2 && strstr(o->err, "--depth 1048576") && !strstr(o->err, "ln_"));
}

/* In a process with little address space: exit 6 with both amounts, no signal, and no advice that cannot
 * be followed. */
static void measuring_in_little_memory(void **s) {
    (void)s;
    if (getenv("LN_SANITIZED")) {
        print_message("SKIP: under a sanitizer the address space cannot be limited\n");
        return;
    }
    space = (rlim_t)300 << 20;
    before_exec = limit_space;
    outcome *o = RUN(S("doctor"), S("--measure"));
    assert_true(o->code == 6 && strstr(o->err, "are available") && !strstr(o->err, "--"));
    assert_true(strstr(o->err, "needs 536.9 MB and 67.1 MB to spare") && strstr(o->err, " MB are available"));
    o = RUN(S("bench"), S(SMALL), S("--reps"), S("1"));
    assert_true(o->code == 6 && strstr(o->err, "are available") && !strstr(o->err, "--parallel") &&
                o->out_bytes == 0);
    o = RUN(S("doctor"));
    assert_true(o->code == 0);
    before_exec = NULL;
}

/* The same in a memory cgroup of 512 MB, if the system lets this test make one (root, cgroup v1 or v2):
 * without the check the process would be killed. */
static char group_procs[300];
static void enter_group(void) {
    int fd = open(group_procs, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1) _exit(96);
    close(fd);
}

static bool write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return good;
}

static void measuring_in_a_group(void **s) {
    (void)s;
    static const char *const roots[][2] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                                           {"/sys/fs/cgroup", "memory.max"}};
    char group[200] = "", limit[300];
    for (size_t i = 0; i < LN_COUNT(roots); i++) {
        (void)snprintf(group, sizeof group, "%s/linnet-test-%d", roots[i][0], (int)getpid());
        if (mkdir(group, 0755) != 0) continue;
        (void)snprintf(limit, sizeof limit, "%s/%s", group, roots[i][1]);
        (void)snprintf(group_procs, sizeof group_procs, "%s/cgroup.procs", group);
        if (write_file(limit, "536870912")) break;
        (void)rmdir(group);
        group[0] = 0;
    }
    struct stat st;
    if (!group[0] || stat(group, &st) != 0) {
        print_message("SKIP: no memory cgroup can be made here: measuring in one of 512 MB is not tried\n");
        return;
    }
    before_exec = enter_group;
    outcome *o = RUN(S("doctor"), S("--measure"));
    const int code = o->code;
    const bool told = strstr(o->err, "are available");
    o = RUN(S("bench"), S(SMALL), S("--reps"), S("1"));
    const int bench_code = o->code;
    /* What is available includes what the process holds, but not twice: never more than the group's limit. */
    o = RUN(S("plan"), S(TINY), S("--json"));
    const char *available = strstr(o->out, "\"available_bytes\":");
    const long long left = available ? strtoll(available + 18, NULL, 10) : -1;
    const bool by_group = strstr(o->out, "\"cgroup\"");
    before_exec = NULL;
    for (int i = 0; i < 100 && rmdir(group) != 0; i++) (void)usleep(20000);
    if (code == 1096 || code == 96) {
        print_message("SKIP: processes cannot be moved to a memory cgroup here\n");
        return;
    }
    assert_true(code == 6 && told && bench_code == 6);
    if (!by_group || left <= 0 || left > 536870912) fail_msg("%lld bytes available in 512 MiB", left);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(library),
        cmocka_unit_test(command),
        cmocka_unit_test(every_field_for_every_verb),
        cmocka_unit_test(others_stay),
        cmocka_unit_test(flags_in_messages),
        cmocka_unit_test(measuring_in_little_memory),
        cmocka_unit_test(measuring_in_a_group),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
