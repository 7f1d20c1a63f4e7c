/* The tables as pages for people: `--help` and man.
 *
 * Everything that is said about a verb or a flag is said once, in verbs.def and flags.def; a page is one way of laying it out. The man pages
 * are written by the built command when it is installed (`linnet help --man VERB`). */
#include "flags.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *code, *means;
} exits[] = {{"0", "done"}, {"2", "usage"}, {"3", "invalid input"}, {"4", "not supported"}, {"5", "system"}, {"6", "memory"}, {"7", "device"},
             {"8", "numbers"}, {"9", "file changed"}, {"70", "a defect of linnet"}, {"130 and 143", "stopped by a signal"}};

static const char model_text[] = "a directory, else a cache id org/name[@rev], else tiny, the bundled model.";

/* ---- help ---- */

static void flag_line(ln_str *s, const flag_row *r) {
    char left[64];
    if (r->letter) (void)snprintf(left, sizeof left, "-%c, %s %s", r->letter, r->name, r->value);
    else (void)snprintf(left, sizeof left, "    %s %s", r->name, r->value);
    ln_str_addf(s, "  %-33s %s\n", left, r->help);
}

static void verb_help(ln_str *s, verb v) {
    const verb_row *r = &verb_rows[v];
    ln_str_addf(s, "usage: linnet %s%s%s [flags]\n\n%c%s.\n%s\nflags:\n", r->name, r->form[0] ? " " : "", r->form, r->what[0] - 'a' + 'A', r->what + 1, r->more);
    for (int f = 0; f < F_COUNT; f++)
        if (flag_rows[f].verbs & 1u << v) flag_line(s, &flag_rows[f]);
}

void help_page(ln_str *s, verb v) {
    if (v != VERB_COUNT) {
        verb_help(s, v);
        return;
    }
    ln_str_addf(s, "linnet %s: language models in Hugging Face layout\n\nusage: linnet VERB [MODEL] [ARGUMENT] [flags]\n\n", ln_version());
    for (int i = 0; i < VERB_COUNT; i++) {
        char left[64];
        (void)snprintf(left, sizeof left, "%s %s", verb_rows[i].name, verb_rows[i].form);
        ln_str_addf(s, "  %-32s %s\n", left, verb_rows[i].what);
    }
    ln_str_addf(s, "  %-32s %s\n\nMODEL: %s\nexit:", "help [VERB]", "this page, or that of a verb", model_text);
    for (size_t i = 0; i < LN_COUNT(exits); i++)
        ln_str_addf(s, "%s %s %s", !i ? "" : strcmp(exits[i].code, "70") == 0 ? ",\n     " : ",", exits[i].code, exits[i].means);
    ln_str_adds(s, "\n\n  linnet run tiny \"Tell me a short story.\"\n");
}

/* ---- man ---- */

/* Text in roff: a hyphen is a minus, a backslash is \e, and no line begins a request. */
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

/* Paragraphs, and examples: runs of lines that begin with two blanks. */
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

static void man_flag(ln_str *s, const flag_row *r) {
    ln_str_adds(s, ".TP\n\\fB");
    if (r->letter) ln_str_addf(s, "\\-%c\\fR, \\fB", r->letter);
    roff_text(s, r->name);
    ln_str_adds(s, "\\fR");
    if (r->value[0]) {
        ln_str_adds(s, " \\fI");
        roff_text(s, r->value);
        ln_str_adds(s, "\\fR");
    }
    ln_str_adds(s, "\n");
    roff_text(s, r->help);
    ln_str_adds(s, "\n");
}

static void man_exits(ln_str *s) {
    ln_str_adds(s, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < LN_COUNT(exits); i++) ln_str_addf(s, ".TP\n.B %s\n%s\n", exits[i].code, exits[i].means);
}

static void man_overview(ln_str *s) {
    man_head(s, "linnet", "language models in Hugging Face layout");
    ln_str_adds(s, ".I VERB\n[\\fIMODEL\\fR] [\\fIARGUMENT\\fR] [\\fIflags\\fR]\n.SH DESCRIPTION\n\\fIMODEL\\fR is ");
    roff_text(s, model_text);
    ln_str_adds(s, "\nThe result goes to standard output, everything else to standard error. Each verb has a page of its own.\n.SH VERBS\n");
    for (int v = 0; v < VERB_COUNT; v++) {
        ln_str_addf(s, ".TP\n\\fB%s\\fR \\fI", verb_rows[v].name);
        roff_text(s, verb_rows[v].form);
        ln_str_adds(s, "\\fR\n");
        roff_text(s, verb_rows[v].what);
        ln_str_adds(s, "\n");
    }
    man_exits(s);
    ln_str_adds(s, ".SH ENVIRONMENT\nFor debugging only.\n.TP\n.B LINNET_LOG\n0, 1, 2 or 3: errors, warnings, information, details\n"
                   ".TP\n.B LINNET_CPU\nthe kernels to use, one of those that\n.B linnet doctor\nnames\n.SH SEE ALSO\n");
    for (int v = 0; v < VERB_COUNT; v++) ln_str_addf(s, ".BR linnet\\-%s (1)%s\n", verb_rows[v].name, v + 1 < VERB_COUNT ? "," : "");
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
    ln_str_adds(s, ".SH SEE ALSO\n.BR linnet (1)\n");
}
