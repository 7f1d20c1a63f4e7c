/* Generates pages from the tables: `--help` and man pages.
 *
 * Every text about a verb or a flag exists once, in verbs.def or flags.def; a page is one layout of it.
 * The man pages are written by the built program during installation (`linnet help --man VERB`). */
#include "flags.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *code, *means;
} exits[] = {{"0", "done"},
             {"2", "usage"},
             {"3", "invalid input"},
             {"4", "not supported"},
             {"5", "system"},
             {"6", "memory"},
             {"7", "device"},
             {"8", "numbers"},
             {"9", "file changed"},
             {"70", "a defect of linnet"},
             {"130 and 143", "stopped by a signal"}};

static const char model_text[] = "a directory, else a cache id org/name[@rev], else tiny, the bundled model.";

/* ---- help ---- */

enum { HELP_COLUMN = 36, VERB_COLUMN = 35, NARROW = 72, INDENT = 8, MOST_VALUE = 40 };

/* Appends an entry: a name at the left and its meaning at `column`, or on the next line where the name is
 * too long or the terminal is narrow. */
static void entry(ln_str *s, const char *left, const char *what, int column, int columns) {
    int n = (int)strlen(left), at = column;
    if (columns > 0 && columns < NARROW) at = INDENT;
    const size_t blanks = strspn(left, " ");
    if (columns > 0 && n > columns) { /* the name, too, takes several lines */
        ln_str_addf(s, "%*s", (int)blanks, "");
        add_wrapped(s, left + blanks, strlen(left) - blanks, (int)blanks, INDENT, columns);
        s->len--; /* its line break: one follows */
        s->data[s->len] = '\0';
    } else {
        ln_str_adds(s, left);
    }
    if (columns > 0 && n >= at) ln_str_addf(s, "\n%*s", at, "");
    else ln_str_addf(s, "%*s", n < at ? at - n : 1, "");
    add_wrapped(s, what, strlen(what), columns > 0 ? at : 0, at, columns);
}

/* Whether the words of a flag are too many to stand after its name: its meaning lists them then. */
static bool has_many_words(const flag_row *r) { return has_words(r) && strlen(r->value) > MOST_VALUE; }
static const char *shown_value(const flag_row *r) { return has_many_words(r) ? "NAME" : r->value; }

/* Appends what a flag means. */
static void add_meaning(ln_str *s, const flag_row *r) {
    ln_str_adds(s, r->help);
    if (!has_many_words(r)) return;
    ln_str_adds(s, ": ");
    for (const char *p = r->value; *p; p++) ln_str_add(s, *p == '|' ? ", " : p, *p == '|' ? 2 : 1);
}

static void flag_line(ln_str *s, const flag_row *r, int columns) {
    char left[64];
    ln_str meaning = {0};
    const char *gap = r->value[0] ? " " : "";
    if (r->letter)
        (void)snprintf(left, sizeof left, "  -%c, %s%s%s", r->letter, r->name, gap, shown_value(r));
    else (void)snprintf(left, sizeof left, "      %s%s%s", r->name, gap, shown_value(r));
    add_meaning(&meaning, r);
    if (meaning.data) entry(s, left, meaning.data, HELP_COLUMN, columns);
    s->failed = s->failed || meaning.failed;
    ln_str_free(&meaning);
}

static void verb_help(ln_str *s, verb v, int columns) {
    const verb_row *r = &verb_rows[v];
    char title[160], usage[160];
    int n = snprintf(title, sizeof title, "%c%s.", r->what[0] - 'a' + 'A', r->what + 1);
    int usage_bytes = snprintf(usage, sizeof usage, "usage: linnet %s%s%s [flags]", r->name,
                               r->form[0] ? " " : "", r->form);
    add_wrapped(s, usage, (size_t)usage_bytes, 0, 7, columns);
    ln_str_adds(s, "\n");
    add_wrapped(s, title, (size_t)n, 0, 0, columns);
    add_prose(s, r->more, columns);
    ln_str_adds(s, "\nflags:\n");
    for (int f = 0; f < F_COUNT; f++)
        if (flag_rows[f].verbs & 1u << v) flag_line(s, &flag_rows[f], columns);
}

void help_page(ln_str *s, verb v) {
    static const char others[] = "Flags of llama.cpp, ollama, mlx-lm and vLLM that mean the same are taken "
                                 "by their names: --temperature, --n-predict, "
                                 "--ctx-size and others.";
    static const char usage[] = "usage: linnet VERB [MODEL] [ARGUMENT] [flags]";
    int columns = page_columns();
    if (v != VERB_COUNT) {
        verb_help(s, v, columns);
        return;
    }
    char title[120];
    int n = snprintf(title, sizeof title, "linnet %s: language models in Hugging Face layout", ln_version());
    add_wrapped(s, title, (size_t)n, 0, 0, columns);
    ln_str_adds(s, "\n");
    add_wrapped(s, usage, sizeof usage - 1, 0, 7, columns);
    ln_str_adds(s, "\n");
    for (int i = 0; i < VERB_COUNT; i++) {
        char left[64];
        (void)snprintf(left, sizeof left, "  %s %s", verb_rows[i].name, verb_rows[i].form);
        entry(s, left, verb_rows[i].what, VERB_COLUMN, columns);
    }
    entry(s, "  help [VERB]", "this page, or that of a verb", VERB_COLUMN, columns);
    ln_str_adds(s, "\nMODEL: ");
    add_wrapped(s, model_text, strlen(model_text), 7, 7, columns);
    add_wrapped(s, others, strlen(others), 0, 0, columns);
    ln_str codes = {0};
    for (size_t i = 0; i < LN_COUNT(exits); i++)
        ln_str_addf(&codes, "%s%s %s", i ? ", " : "", exits[i].code, exits[i].means);
    ln_str_adds(s, "exit: ");
    if (codes.data) add_wrapped(s, codes.data, codes.len, 6, 6, columns);
    s->failed = s->failed || codes.failed;
    ln_str_free(&codes);
    add_prose(s, "\n  linnet run tiny \"Tell me a short story.\"\n  linnet chat\n", columns);
}

/* ---- man ---- */

typedef struct man_entry {
    const char *name, *means;
    unsigned verbs;
} man_entry;

#define ALL      (~0u)
#define NO_MODEL (1u << VERB_DOCTOR | 1u << VERB_COMPLETION)
#define SPEAKS   (1u << VERB_RUN | 1u << VERB_CHAT)

static const man_entry files[] = {
    {"MODEL/config.json, tokenizer.json, *.safetensors",
     "a model: the directory that transformers writes and the Hugging Face hub holds; read in place",
     ALL & ~NO_MODEL},
    {"MODEL/generation_config.json", "the model's own sampling and its end tokens", SPEAKS | 1u << VERB_PLAN},
    {"MODEL/chat_template.jinja, MODEL/tokenizer_config.json", "its chat template",
     SPEAKS | 1u << VERB_CLASSIFY | 1u << VERB_TEMPLATE | 1u << VERB_PLAN},
    {"~/.cache/huggingface/hub", "the cache in which ORG/NAME is looked up; it is never written",
     ALL & ~NO_MODEL},
    {"PREFIX/share/linnet/models/tiny",
     "the bundled model; before it ../models/tiny, ../share/linnet/models/tiny and "
     "../../share/linnet/models/tiny are looked at, from the directory of the executable and then from that "
     "of "
     "the library",
     ALL & ~NO_MODEL},
    {"~/.local/state/linnet/history",
     "what was typed in a chat, for this user alone; --no-history leaves it alone", 1u << VERB_CHAT},
    {"PREFIX/share/bash-completion/completions/linnet, PREFIX/share/zsh/site-functions/_linnet",
     "the directories to which make install copies the scripts", 1u << VERB_COMPLETION},
    {"/proc/meminfo, /sys/fs/cgroup", "what the memory and the cores are limited by",
     ALL & ~(1u << VERB_COMPLETION)}};

static const man_entry variables[] = {
    {"HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE",
     "the cache of models; without them HF_HOME/hub, then XDG_CACHE_HOME/huggingface/hub, then "
     "~/.cache/huggingface/hub",
     ALL & ~NO_MODEL},
    {"HF_HOME, XDG_CACHE_HOME, HOME", "the folder of that cache, if the cache is not named itself",
     ALL & ~NO_MODEL},
    {"XDG_STATE_HOME", "the folder of the history of a chat, instead of ~/.local/state", 1u << VERB_CHAT},
    {"NO_COLOR, TERM", "no colours when NO_COLOR is set or TERM is dumb; --color goes before them", SPEAKS},
    {"COLUMNS", "the width of help pages, if the terminal does not tell its own", ALL},
    {"LINNET_LOG", "for debugging: 0, 1, 2 or 3: errors, warnings, information, details", ALL},
    {"LINNET_CPU", "for debugging: the kernels to use, one of those that linnet doctor names", ALL}};

/* Escapes text for roff: a hyphen becomes a minus, a backslash \e, and a line never begins a request. */
static void roff(ln_str *s, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if ((i == 0 || text[i - 1] == '\n') && (text[i] == '.' || text[i] == '\'')) ln_str_adds(s, "\\&");
        if (text[i] == '\\') ln_str_adds(s, "\\e");
        else if (text[i] == '-') ln_str_adds(s, "\\-");
        else ln_str_add(s, text + i, 1);
    }
}
static void roff_text(ln_str *s, const char *text) { roff(s, text, strlen(text)); }

static void man_head(ln_str *s, const char *name, const char *what) {
    ln_str_addf(s, ".TH \"%s\" 1 \"\" \"linnet %s\" \"linnet\"\n.SH NAME\n", name, ln_version());
    roff_text(s, name);
    ln_str_adds(s, " \\- ");
    roff_text(s, what);
    ln_str_adds(s, "\n.SH SYNOPSIS\n.B linnet\n");
}

/* Appends paragraphs; lines that begin with two blanks are examples. */
static void man_text(ln_str *s, const char *text) {
    bool example = false;
    while (*text) {
        size_t n = strcspn(text, "\n");
        bool is = strncmp(text, "  ", 2) == 0;
        if (is != example) ln_str_adds(s, is ? ".PP\n.nf\n.RS 4\n" : ".RE\n.fi\n");
        example = is;
        if (n == 0 && text[1] && strncmp(text + 1, "  ", 2) != 0) ln_str_adds(s, ".PP\n");
        roff(s, is ? text + 2 : text, is ? n - 2 : n);
        if (n) ln_str_adds(s, "\n");
        text += n + (text[n] == '\n');
    }
    if (example) ln_str_adds(s, ".RE\n.fi\n");
}

static flag flag_of(const flag_row *r) { return (flag)(r - flag_rows); }

static void man_flag(ln_str *s, const flag_row *r) {
    ln_str meaning = {0};
    ln_str_adds(s, ".TP\n\\fB");
    if (r->letter) ln_str_addf(s, "\\-%c\\fR, \\fB", r->letter);
    roff_text(s, r->name);
    ln_str_adds(s, "\\fR");
    if (r->value[0]) {
        ln_str_adds(s, " \\fI");
        roff_text(s, shown_value(r));
        ln_str_adds(s, "\\fR");
    }
    ln_str_adds(s, "\n");
    add_meaning(&meaning, r);
    if (meaning.data) roff(s, meaning.data, meaning.len);
    s->failed = s->failed || meaning.failed;
    ln_str_free(&meaning);
    const char *others = flag_other_names(flag_of(r));
    if (others) {
        ln_str_adds(s, " (also ");
        roff_text(s, others);
        ln_str_adds(s, ")");
    }
    ln_str_adds(s, "\n");
}

static void man_entries(ln_str *s, const char *heading, const man_entry *e, size_t n, unsigned verbs) {
    ln_str_addf(s, ".SH %s\n", heading);
    for (size_t i = 0; i < n; i++) {
        if (!(e[i].verbs & verbs)) continue;
        ln_str_adds(s, ".TP\n\\fB");
        roff_text(s, e[i].name);
        ln_str_adds(s, "\\fR\n");
        roff_text(s, e[i].means);
        ln_str_adds(s, "\n");
    }
}

/* Appends the sections about files and environment variables; entries have a bit mask of the verbs that
 * they concern. */
static void man_surroundings(ln_str *s, unsigned verbs) {
    man_entries(s, "FILES", files, LN_COUNT(files), verbs);
    man_entries(s, "ENVIRONMENT", variables, LN_COUNT(variables), verbs);
}

static void man_exits(ln_str *s) {
    ln_str_adds(s, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < LN_COUNT(exits); i++)
        ln_str_addf(s, ".TP\n.B %s\n%s\n", exits[i].code, exits[i].means);
}

static void man_overview(ln_str *s) {
    man_head(s, "linnet", "language models in Hugging Face layout");
    ln_str_adds(s, ".I VERB\n[\\fIMODEL\\fR] [\\fIARGUMENT\\fR] [\\fIflags\\fR]\n.SH "
                   "DESCRIPTION\n\\fIMODEL\\fR is ");
    roff_text(s, model_text);
    ln_str_adds(s, "\nThe result goes to standard output, everything else to standard error. Each verb has a "
                   "page of its own.\n.SH VERBS\n");
    for (int v = 0; v < VERB_COUNT; v++) {
        ln_str_addf(s, ".TP\n\\fB%s\\fR \\fI", verb_rows[v].name);
        roff_text(s, verb_rows[v].form);
        ln_str_adds(s, "\\fR\n");
        roff_text(s, verb_rows[v].what);
        ln_str_adds(s, "\n");
    }
    man_exits(s);
    man_surroundings(s, ALL);
    ln_str_adds(s, ".SH SEE ALSO\n.BR linnet (3),\n");
    for (int v = 0; v < VERB_COUNT; v++)
        ln_str_addf(s, ".BR linnet\\-%s (1)%s\n", verb_rows[v].name, v + 1 < VERB_COUNT ? "," : "");
}

void man_page(ln_str *s, verb v) {
    if (v == VERB_COUNT) {
        man_overview(s);
        return;
    }
    const verb_row *r = &verb_rows[v];
    char name[64];
    (void)snprintf(name, sizeof name, "linnet-%s", r->name);
    man_head(s, name, r->what);
    ln_str_addf(s, ".B %s\n.I ", r->name);
    roff_text(s, r->form);
    ln_str_adds(s, r->form[0] ? "\n" : "\\&\n");
    ln_str_addf(s, "[\\fIflags\\fR]\n.SH DESCRIPTION\n%c", r->what[0] - 'a' + 'A');
    roff_text(s, r->what + 1);
    ln_str_adds(s, ".\n");
    if (r->more[0] && r->more[0] != '\n') ln_str_adds(s, ".PP\n");
    man_text(s, r->more);
    ln_str_adds(s, ".SH OPTIONS\n");
    for (int f = 0; f < F_COUNT; f++)
        if (flag_rows[f].verbs & 1u << v) man_flag(s, &flag_rows[f]);
    man_exits(s);
    man_surroundings(s, 1u << v);
    ln_str_adds(s, ".SH SEE ALSO\n.BR linnet (1),\n.BR linnet (3)\n");
}
