/* Output generated from the tables of flags and verbs: help, man pages, completions. Each is compared with
 * `--help`, which is parsed here, and used: bash runs its completion script, zsh parses its script, and
 * groff formats the pages, if these programs are installed. */
/* run: quick */
#include "spawn.h"

#include <ctype.h>

enum { MOST_VERBS = 40, MOST_FLAGS = 160 };

static char verbs[MOST_VERBS][32];
static int n_verbs;

/* Reads the verbs that `linnet help` lists, except help itself. */
static int read_verbs(void **state) {
    if (make_dir(state)) return -1;
    expect(RUN(S("help")), 0, NULL);
    for (const char *line = last->out; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        size_t n = strspn(line + 2, "abcdefghijklmnopqrstuvwxyz");
        if (strncmp(line, "\nMODEL", 6) == 0) break;
        if (strncmp(line, "  ", 2) != 0 || n == 0 || strncmp(line + 2, "help ", 5) == 0 ||
            n_verbs == MOST_VERBS)
            continue;
        (void)snprintf(verbs[n_verbs++], sizeof verbs[0], "%.*s", (int)n, line + 2);
    }
    return n_verbs < 9 ? -1 : 0;
}

/* Reads the long flags that a verb's help lists; returns their number. */
static int flags_of(char *verb, char flags[MOST_FLAGS][40]) {
    int n = 0;
    expect(RUN(S("help"), verb), 0, NULL);
    const char *at = strstr(last->out, "\nflags:\n");
    assert_non_null(at);
    for (at = strstr(at, "--"); at && n < MOST_FLAGS;
         at = strchr(at, '\n') ? strstr(strchr(at, '\n'), "--") : NULL)
        (void)snprintf(flags[n++], sizeof flags[0], "%.*s", (int)strspn(at, "-abcdefghijklmnopqrstuvwxyz"),
                       at);
    assert_true(n > 0 && n < MOST_FLAGS);
    return n;
}

static void shell(const char *name, const char *script) {
    char words[2][32], *text = ln_strndup(script, strlen(script));
    (void)snprintf(words[0], sizeof words[0], "%s", name);
    (void)snprintf(words[1], sizeof words[1], "-c");
    program = name;
    (void)run_with("", 0, (char *const[]){words[0], words[1], text, NULL});
    program = LINNET;
    ln_free(text);
}

static bool there(const char *name) {
    char script[80];
    (void)snprintf(script, sizeof script, "command -v %s", name);
    shell("sh", script);
    return last->code == 0;
}

/* Asks bash for the completions of a line whose last word is incomplete; they are in last->out. */
static void complete(const char *line) {
    char script[1024];
    (void)snprintf(script, sizeof script,
                   "cd '" LN_ROOT "' && source <('" LINNET
                   "' completion bash) && COMP_WORDS=(%s) && COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) && "
                   "_linnet && "
                   "printf '%%s\\n' \"${COMPREPLY[@]}\"",
                   line);
    shell("bash", script);
    if (last->code != 0 || last->err_bytes > 0) fail_msg("%s: exit %d, %s", line, last->code, last->err);
}

static bool offers(const char *word) {
    size_t n = strlen(word);
    for (const char *at = last->out; (at = strstr(at, word)); at += n)
        if ((at == last->out || at[-1] == '\n') && at[n] == '\n') return true;
    return false;
}

static void bash_completes(void **state) {
    (void)state;
    if (!there("bash")) {
        print_message("SKIP: no bash here\n");
        skip();
    }
    static const struct {
        const char *line, *offered, *withheld;
    } cases[] = {{"linnet ''", "run", "--temp"},
                 {"linnet s", "score", "run"},
                 {"linnet --v", "--version", "run"},
                 {"linnet help at", "attention", "run"},
                 {"linnet run --te", "--temp", "--top-k"},
                 {"linnet show --", "--json", "--temp"},
                 {"linnet run tiny --numerics ''", "fast", "tiny"},
                 {"linnet run tiny --numerics = ''", "exact", "tiny"},
                 {"linnet run tiny --numerics = f", "fast", "exact"},
                 {"linnet run tiny --temp ''", "", "tiny"},
                 {"linnet run t", "tiny", "src"},
                 {"linnet run mod", "models", "tiny"},
                 {"linnet run --file READ", "README.md", "tiny"},
                 {"linnet run -f READ", "README.md", "tiny"},
                 {"linnet ls te", "tests", "tiny"},
                 {"linnet completion z", "zsh", "bash"},
                 {"linnet completion ''", "bash", "tests"},
                 {"linnet eval tiny READ", "README.md", "tiny"},
                 {"linnet template t", "tiny", "src"},
                 {"linnet template READ", "README.md", "tiny"},
                 {"linnet score tiny READ", "", "README.md"},
                 {"linnet run -m t", "tiny", "src"},
                 {"linnet run --adapter te", "tests", "tiny"},
                 {"linnet run --chat-template READ", "README.md", "tiny"},
                 {"linnet doctor ''", "", "tests"},
                 {"linnet frob ''", "", "tiny"}};
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        complete(cases[i].line);
        if (cases[i].offered[0] ? !offers(cases[i].offered) : last->out_bytes > 1)
            fail_msg("%s: '%s' is not what is offered: %s", cases[i].line, cases[i].offered, last->out);
        if (offers(cases[i].withheld)) fail_msg("%s: offers %s", cases[i].line, cases[i].withheld);
    }
}

static void every_flag_is_everywhere(void **state) {
    (void)state;
    char *zsh = (expect(RUN(S("completion"), S("zsh")), 0, NULL), ln_strndup(last->out, last->out_bytes));
    for (int v = 0; v < n_verbs; v++) {
        char flags[MOST_FLAGS][40], line[64], man[64];
        int n = flags_of(verbs[v], flags);
        expect(RUN(S("help"), S("--man"), verbs[v]), 0, NULL);
        for (int f = 0; f < n; f++) {
            size_t len = 0;
            for (const char *c = flags[f]; *c; c++)
                len += (size_t)snprintf(man + len, sizeof man - len, *c == '-' ? "\\-" : "%c", *c);
            if (!strstr(last->out, man)) fail_msg("man %s lacks %s", verbs[v], flags[f]);
        }
        (void)snprintf(line, sizeof line, "\n  %s)\n", verbs[v]);
        const char *from = strstr(zsh, line), *to = from ? strstr(from, ";;") : NULL;
        if (!to) fail_msg("zsh lacks %s", verbs[v]);
        for (int f = 0; f < n; f++) {
            const char *at = strstr(from, flags[f]);
            if (!at || at > to) fail_msg("zsh: %s lacks %s", verbs[v], flags[f]);
        }
        if ((from = strstr(from, "--device")) && from < to) { /* the value may follow '=' too */
            static const char with_value[] =
                "--device='[where to run; cuda\\:0,1 is two GPUs together, cuda\\:all all of them]:"
                "auto|ref|cpu|cuda|mlx:(auto ref cpu cuda mlx)'";
            if (strncmp(from, with_value, sizeof with_value - 1) != 0)
                fail_msg("zsh: %s has %.60s", verbs[v], from);
        }
        if (!there("bash")) continue;
        (void)snprintf(line, sizeof line, "linnet %s -", verbs[v]);
        complete(line);
        for (int f = 0; f < n; f++)
            if (!offers(flags[f])) fail_msg("bash: %s lacks %s", verbs[v], flags[f]);
    }
    ln_free(zsh);
}

static void zsh_reads_its_script(void **state) {
    (void)state;
    if (!there("zsh")) {
        print_message("SKIP: no zsh here\n");
        skip();
    }
    shell("sh", "'" LINNET "' completion zsh | zsh -n /dev/stdin");
    if (last->code != 0 || last->err_bytes > 0) fail_msg("zsh: %s", last->err);
}

static void groff_reads_the_pages(void **state) {
    (void)state;
    if (!there("groff")) {
        print_message("SKIP: no groff here\n");
        skip();
    }
    for (int v = -1; v < n_verbs; v++) {
        char script[512];
        (void)snprintf(script, sizeof script, "'" LINNET "' help --man %s | groff -man -Tutf8 -ww",
                       v < 0 ? "" : verbs[v]);
        shell("sh", script);
        if (last->code != 0 || last->err_bytes > 0) fail_msg("%s: %s", script, last->err);
        assert_true(last->out_bytes > 1000);
    }
}

/* A verb's man page lists the files that the verb reads and the environment variables that it uses; the
 * library has a page of its own, with every function of the header. */
/* The page of a header in section 3 has all of its functions, and groff has nothing to say about it. */
static void page_of_header(const char *name_of_page) {
    char command[2048], path[1024], *header;
    size_t bytes;
    int n = 0;
    (void)snprintf(path, sizeof path, "%s/include/%s.h", LN_ROOT, name_of_page);
    (void)snprintf(command, sizeof command, "awk -v version=1 -f '%s/tools/man3.awk' '%s'", LN_ROOT, path);
    shell("sh", command);
    if (last->code != 0 || last->err_bytes > 0) fail_msg("man3.awk: %s", last->err);
    (void)snprintf(command, sizeof command, ".TH \"%s\" 3", name_of_page);
    if (strncmp(last->out, command, strlen(command)) != 0)
        fail_msg("%s(3) begins with another name", name_of_page);
    char *page = ln_strndup(last->out, last->out_bytes);
    assert_int_equal(ln_read_file(path, 1 << 20, &header, &bytes, NULL), LN_OK);
    for (const char *at = header; (at = strstr(at, "\nLN_API ")); at++) {
        char name[80];
        const char *paren = strchr(at, '('), *from = paren;
        while (from[-1] == '_' || isalnum((unsigned char)from[-1])) from--;
        (void)snprintf(name, sizeof name, "%.*s(", (int)(paren - from), from);
        if (!strstr(page, name)) fail_msg("%s(3) lacks %s", name_of_page, name);
        n++;
    }
    assert_true(n > 10);
    ln_free(page);
    ln_free(header);
    if (!there("groff")) return;
    (void)snprintf(command, sizeof command,
                   "awk -v version=1 -f '%s/tools/man3.awk' '%s' | groff -man -Tutf8 -ww", LN_ROOT, path);
    shell("sh", command);
    if (last->code != 0 || last->err_bytes > 0) fail_msg("%s(3): %s", name_of_page, last->err);
}

static void pages_tell_files_and_variables(void **state) {
    (void)state;
    static const struct {
        char verb[16];
        const char *has;
    } rows[] = {{"run", "HF_HUB_CACHE"},
                {"run", "generation_config.json"},
                {"run", "NO_COLOR"},
                {"chat", "XDG_STATE_HOME"},
                {"chat", "linnet/history"},
                {"plan", "/proc/meminfo"},
                {"template", "chat_template.jinja"},
                {"bench", "LINNET_CPU"},
                {"run", "(also \\-\\-temperature)"},
                {"show", "linnet/models/tiny"},
                {"doctor", "LINNET_CPU"},
                {"tokenize", "HF_HOME"}};
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        char verb[16];
        (void)snprintf(verb, sizeof verb, "%s", rows[i].verb);
        expect(RUN(S("help"), S("--man"), verb), 0, NULL);
        if (!strstr(last->out, "\n.SH FILES\n") || !strstr(last->out, "\n.SH ENVIRONMENT\n") ||
            !strstr(last->out, rows[i].has))
            fail_msg("man %s lacks %s", verb, rows[i].has);
    }
    expect(RUN(S("help"), S("--man")), 0, NULL);
    assert_true(strstr(last->out, "\n.SH FILES\n") && strstr(last->out, "\n.SH ENVIRONMENT\n") &&
                strstr(last->out, "linnet (3)"));
    static const char *const headers[] = {"linnet", "linnet_tools", "linnet_train", "linnet_backend"};
    for (size_t i = 0; i < LN_COUNT(headers); i++) page_of_header(headers[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bash_completes), cmocka_unit_test(every_flag_is_everywhere),
        cmocka_unit_test(zsh_reads_its_script), cmocka_unit_test(groff_reads_the_pages),
        cmocka_unit_test(pages_tell_files_and_variables)};
    return cmocka_run_group_tests(tests, read_verbs, remove_dir);
}
