/* The program's entry point: prepares the process, dispatches the verb, prints the error and returns the
 * exit code.
 *
 * The exit code is the status of the library (linnet.h), or 130 or 143 when a signal asked to stop. Before
 * any file is opened, file descriptors 0 to 2 are opened on /dev/null if the caller closed them, so that
 * no message can be written into a model's file. */
#include "../base/os.h"
#include "cli.h"
#include "../base/c_locale.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

extern char **environ;

static verb_fn *const commands[VERB_COUNT] = {
#define VERB(ID, name, form, takes, what, more) cmd_##name,
#include "verbs.def"
#undef VERB
};

static bool reopen_closed(void) {
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) != fd) return false;
    return true;
}

/* LINNET_ variables are for debugging; a misspelt one must be reported and not ignored. */
static ln_status check_environment(ln_error *err) {
    static const char *const known[] = {"LINNET_LOG=", "LINNET_TRACE=", "LINNET_CPU="};
    char shown[80];
    for (char **e = environ; e && *e; e++) {
        if (strncmp(*e, "LINNET_", 7) != 0) continue;
        bool ok = false;
        for (size_t i = 0; i < LN_COUNT(known); i++) ok = ok || strncmp(*e, known[i], strlen(known[i])) == 0;
        if (!ok) note("warning: unknown variable %s", ln_excerpt(shown, *e, strcspn(*e, "=")));
        if (strncmp(*e, "LINNET_LOG=", 11) == 0 && !((*e)[11] >= '0' && (*e)[11] <= '3' && (*e)[12] == '\0'))
            return ln_fail(err, LN_EUSAGE, "LINNET_LOG: expected 0, 1, 2 or 3, found '%s'",
                           ln_excerpt(shown, *e + 11, strnlen(*e + 11, 100)));
    }
    return LN_OK;
}

/* Raises the limit of the stack to what the library asks for (docs/library.md), as far as the hard limit
 * allows. LN_EMEMORY: it stays below what running a model takes, which would end in a segmentation fault. */
static ln_status check_stack(ln_error *err) {
    enum { WANTED = 512 << 10, LEAST = 128 << 10 };
    struct rlimit l;
    if (getrlimit(RLIMIT_STACK, &l) != 0 || l.rlim_cur >= WANTED) return LN_OK;
    l.rlim_cur = LN_MIN(l.rlim_max, (rlim_t)WANTED);
    (void)setrlimit(RLIMIT_STACK, &l);
    if (getrlimit(RLIMIT_STACK, &l) != 0 || l.rlim_cur >= LEAST) return LN_OK;
    return ln_fail(err, LN_EMEMORY, "the stack is limited to %llu KiB; expected %d or more: ulimit -s %d",
                   (unsigned long long)l.rlim_cur >> 10, WANTED >> 10, WANTED >> 10);
}

static ln_status show_help(verb v, bool man, ln_error *err) {
    ln_str s = {0};
    if (man) man_page(&s, v);
    else help_page(&s, v);
    return out_str(&s, err);
}

/* A text as a word for a shell: in double quotes, or in single ones if a shell would interpret it. */
static const char *shell_word(char buf[400], const char *text) {
    size_t n = 0;
    if (!strpbrk(text, "\"$`\\!")) return (void)snprintf(buf, 400, "\"%s\"", text), buf;
    buf[n++] = '\'';
    for (; *text && n < 400 - 8; text++) {
        if (*text == '\'') memcpy(buf + n, "'\\''", 4), n += 4;
        else buf[n++] = *text;
    }
    buf[n++] = '\'';
    buf[n] = '\0';
    return buf;
}

/* Explains a first argument that is not a verb: misspelt, a verb of another tool, a flag before its verb,
 * a model, or a text. */
static ln_status unknown_verb(const char *word, ln_error *err) {
    char shown[80], quoted[400];
    const char *near = verb_nearest(word), *advice = verb_advice(word);
    (void)ln_excerpt(shown, word, strnlen(word, 200));
    if (advice) return ln_fail(err, LN_EUSAGE, "unknown verb '%s'; %s", shown, advice);
    if (near) return ln_fail(err, LN_EUSAGE, "unknown verb '%s'; the nearest is %s", shown, near);
    if (word[0] == '-')
        return ln_fail(err, LN_EUSAGE,
                       "expected a verb, found the flag '%s'; flags follow the verb: linnet run [MODEL] "
                       "[PROMPT] %s ...",
                       shown, shown);
    if (strcmp(word, "tiny") == 0 || strchr(word, '/') || ln_exists(word))
        return ln_fail(err, LN_EUSAGE,
                       "expected a verb, found '%s'; if it is a model: linnet run %s \"TEXT\", or linnet "
                       "chat %s",
                       shown, shown, shown);
    if (strpbrk(word, " \t\n"))
        return ln_fail(err, LN_EUSAGE, "expected a verb, found '%s'; if it is a prompt: linnet run tiny %s",
                       shown, shell_word(quoted, shown));
    return ln_fail(err, LN_EUSAGE, "unknown verb '%s'", shown);
}

/* Whether MODEL is more likely a text: it is not an existing path, and not a cache id (a text with blanks
 * is not one). */
static bool like_text(const args *a, ln_status st) {
    const char *word = a->model;
    if (!word[0] || has(a, F_MODEL) || strcmp(word, "tiny") == 0 || ln_exists(word) || word[0] == '/' ||
        word[0] == '.')
        return false;
    size_t n = strlen(word);
    if (n > 5 && ln_same_ascii(word + n - 5, ".gguf")) return false;
    return strpbrk(word, " \t\n") || (!strchr(word, '/') && (st == LN_EUSAGE || a->verb == VERB_CHAT));
}

static ln_status text_as_model(const args *a, ln_status st, ln_error *err) {
    char shown[80], word[400];
    (void)ln_excerpt(shown, a->model, strnlen(a->model, 200));
    (void)shell_word(word, shown);
    if (a->verb == VERB_CHAT)
        return ln_fail(err, st,
                       "'%s' was read as MODEL, and there is no such directory; for one answer: linnet run "
                       "tiny %s; for a conversation: linnet chat",
                       shown, word);
    return ln_fail(err, st,
                   "'%s' was read as MODEL, and there is no such directory; if it is the %s: linnet %s tiny "
                   "%s%s",
                   shown, planned_verb(a) == VERB_RUN ? "prompt" : "text", verb_name(a->verb), word,
                   strpbrk(shown, " \\") ? "" : "; if it is a model of the Hugging Face cache: ORG/NAME");
}

/* Improves the message for `linnet run "Tell me a story"`: the error is a missing prompt or model, but the
 * helpful answer is how the argument was interpreted. If both the prompt and the model are missing, the
 * model is reported first. */
static ln_status explain_model(const args *a, ln_status st, ln_error *err) {
    char near[LN_PATH_TEXT], shown[LN_PATH_TEXT];
    if (a->model && st == LN_EIO && strstr(err->message, "no such directory") &&
        path_nearest(near, sizeof near, a->model))
        return ln_fail(err, st, "%s: no such directory; the nearest is %s", ln_path_text(shown, a->model),
                       ln_path_text((char[LN_PATH_TEXT]){0}, near));
    if (!a->model || input_given(a) || !(takes_prompt(a->verb) || a->verb == VERB_CHAT) ||
        (st != LN_EUSAGE && st != LN_EIO))
        return st;
    if (like_text(a, st)) return text_as_model(a, st, err);
    if (st != LN_EUSAGE) return st;
    ln_error why;
    ln_info *info = ln_zalloc(1, sizeof *info);
    if (info) info->size = sizeof *info;
    ln_status found = info ? ln_show(a->model, NULL, info, &why) : LN_OK;
    ln_free(info);
    return found == LN_OK ? st : ln_fail(err, found, "%s", why.message);
}

/* help [--man] [VERB] */
static ln_status help_verb(int argc, char **argv, ln_error *err) {
    bool man = argc > 2 && strcmp(argv[2], "--man") == 0;
    int at = man ? 3 : 2;
    if (argc > at + 1) return ln_fail(err, LN_EUSAGE, "help takes one verb");
    if (argc == at) return show_help(VERB_COUNT, man, err);
    verb v = verb_named(argv[at]);
    return v == VERB_COUNT ? unknown_verb(argv[at], err) : show_help(v, man, err);
}

/* `linnet` alone: the verbs, and what to do next on this machine. */
static ln_status begin_page(ln_error *err) {
    ln_machine m = {.size = sizeof m};
    ln_str s = {0};
    LN_TRY(show_help(VERB_COUNT, false, err));
    if (ln_doctor(false, 0, &m, err) != LN_OK) return LN_OK;
    ln_str_add(&s, "\n", 1);
    add_next_steps(&s, &m, false);
    return out_str(&s, err);
}

static ln_status dispatch(int argc, char **argv, const char **page, ln_error *err) {
    if (argc < 2) return begin_page(err);
    const char *word = argv[1];
    if (strcmp(word, "help") == 0) return help_verb(argc, argv, err);
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return show_help(VERB_COUNT, false, err);
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        ln_str s = {0};
        ln_str_addf(&s, "linnet %s\n", ln_version());
        return out_str(&s, err);
    }
    verb v = verb_named(word);
    if (v == VERB_COUNT) return unknown_verb(word, err);
    *page = verb_name(v);
    advice_for(v);
    args a;
    ln_status st = args_parse(&a, v, argc - 2, argv + 2, err);
    if (st == LN_OK && has(&a, F_HELP)) {
        st = show_help(v, false, err);
    } else if (st == LN_OK) {
        if (has(&a, F_VERBOSE)) log_more();
        if (has(&a, F_MEMORY)) (void)ln_memory_set_limit((uint64_t)a.flag[F_MEMORY].i); /* of texts too */
        bool follows;
        st = ranks_begin(&a, &follows, err);
        if (st == LN_OK && !follows && ranks_first()) st = outputs_try(&a, err);
        if (st == LN_OK && !follows) st = commands[v](&a, err);
        if (!follows && fetch_offered(&a, st, err)) st = commands[v](&a, err);
        if (!follows) st = explain_model(&a, st, err);
    }
    args_free(&a);
    return st;
}

/* Prints the error, if any, and returns the exit code. */
static int conclude(ln_status st, const ln_error *err, const char *page) {
    progress_wipe();
    if (signals_seen() && (st == LN_OK || st == LN_ECANCELLED)) return 128 + signals_seen();
    if (out_closed() && (st == LN_OK || st == LN_ECANCELLED)) return 0; /* the reader closed the pipe */
    if (st == LN_OK) return 0;
    out_end_line();
    if (st == LN_EUSAGE) note("%s (see linnet help%s%s)", err->message, page ? " " : "", page ? page : "");
    else note("%s", err->message);
    return (int)st;
}

int main(int argc, char **argv) {
    ln_error err = {0};
    const char *page = NULL;
    if (!reopen_closed()) return LN_EIO;
    ln_os_heap_return_large();
    signals_install();
    log_to_stderr();
    ln_status st = ln_guard_files(&err);
    if (st == LN_OK) st = check_stack(&err);
    if (st == LN_OK) st = check_environment(&err);
    if (st == LN_OK) st = dispatch(argc, argv, &page, &err);
    const int code = conclude(st, &err, page);
    ln_ranks_leave(
        st); /* after the message: a launcher ends all ranks when the first has left with an error */
    return code;
}
