/* linnet completion: generates completion scripts for bash and zsh from the tables.
 *
 * A script contains every verb's flags as words, so that completing a word starts no process. A flag's value
 * is completed according to the VALUE column of flags.def: the words of a CHOICE, a FILE, a DIR. The first
 * positional argument of a verb that takes a model is completed as a directory or `tiny`, and the next one
 * as a file if the verb reads one. */
#include "flags.h"

#include <string.h>

static bool of_verb(int f, int v) { return (flag_rows[f].verbs & 1u << v) != 0; }

/* What the value of a flag names: 'f' a file (or a directory), 'd' a directory, 'm' a model, 0 no path. */
static char path_of(const flag_row *r) {
    static const char *const paths[][2] = {{"FILE", "f"}, {"FILE|DIR", "f"}, {"NAME|FILE", "f"},
                                           {"PATH", "f"}, {"DIR", "d"},      {"DIR[:SCALE]", "d"},
                                           {"MODEL", "m"}};
    for (size_t i = 0; i < LN_COUNT(paths); i++)
        if (strcmp(r->value, paths[i][0]) == 0) return paths[i][1][0];
    return 0;
}

/* Whether a positional argument of the verb is a file. */
static bool reads_file(int v) {
    return v == VERB_EVAL || v == VERB_BATCH || v == VERB_CLASSIFY || v == VERB_TEMPLATE;
}

/* Appends the words of a|b|c separated by blanks. */
static void add_words(ln_str *s, const char *bars) {
    for (; *bars; bars++) ln_str_add(s, *bars == '|' ? " " : bars, 1);
}

static const char *positional_words(const verb_row *r) {
    return r->takes == SHELL ? "bash zsh" : r->takes == MODEL || r->takes == OPTIONAL ? "tiny" : "";
}

/* ---- bash ---- */

static void bash_names(ln_str *s, const flag_row *r) {
    ln_str_addf(s, "    %s", r->name);
    if (r->letter) ln_str_addf(s, "|-%c", r->letter);
}

static void bash_values(ln_str *s) {
    ln_str_adds(s, "    case $prev in\n");
    for (int f = 0; f < F_COUNT; f++) {
        const flag_row *r = &flag_rows[f];
        if (r->kind == SWITCH) continue;
        bash_names(s, r);
        if (has_words(r)) {
            ln_str_adds(s, ") COMPREPLY=($(compgen -W \"");
            add_words(s, r->value);
            ln_str_adds(s, "\" -- \"$cur\")); return ;;\n");
        } else if (path_of(r)) {
            ln_str_addf(s,
                        ") compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(%scompgen -%c -- "
                        "\"$cur\"); return ;;\n",
                        path_of(r) == 'm' ? "compgen -W tiny -- \"$cur\"; " : "",
                        path_of(r) == 'f' ? 'f' : 'd');
        } else {
            ln_str_adds(s, ") return ;;\n");
        }
    }
    ln_str_adds(s, "    esac\n");
}

static void bash_verbs(ln_str *s) {
    ln_str_adds(s, "    case ${COMP_WORDS[1]} in\n");
    for (int v = 0; v < VERB_COUNT; v++) {
        const char *paths = verb_rows[v].takes == SHELL || verb_rows[v].takes == NOTHING ? ""
                            : reads_file(v)                                              ? "-f"
                                                                                         : "-d";
        ln_str_addf(s, "    %s) words=\"%s\" paths=%s flags=\"", verb_rows[v].name,
                    positional_words(&verb_rows[v]), paths);
        for (int f = 0; f < F_COUNT; f++) {
            if (!of_verb(f, v)) continue;
            ln_str_addf(s, "%s ", flag_rows[f].name);
            if (flag_rows[f].letter) ln_str_addf(s, "-%c ", flag_rows[f].letter);
        }
        ln_str_adds(s, "\" ;;\n");
    }
    ln_str_adds(s, "    help) words=\"");
    for (int v = 0; v < VERB_COUNT; v++) ln_str_addf(s, "%s ", verb_rows[v].name);
    ln_str_adds(s, "\" ;;\n    esac\n");
}

static void bash_script(ln_str *s) {
    ln_str_adds(s, "# bash completion of linnet; written by: linnet completion bash\n"
                   "_linnet() {\n"
                   "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words= paths= "
                   "flags=\n"
                   "    COMPREPLY=()\n"
                   "    if ((COMP_CWORD == 1)); then\n"
                   "        COMPREPLY=($(compgen -W \"");
    for (int v = 0; v < VERB_COUNT; v++) ln_str_addf(s, "%s ", verb_rows[v].name);
    ln_str_adds(s, "help --help --version\" -- \"$cur\"))\n"
                   "        return\n"
                   "    fi\n"
                   "    # bash cuts words at '='\n"
                   "    if [[ $cur == = ]]; then cur=\n"
                   "    elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}\n"
                   "    fi\n");
    bash_values(s);
    bash_verbs(s);
    ln_str_adds(s, "    if [[ $cur == -* ]]; then\n"
                   "        COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n"
                   "    else\n"
                   "        compopt -o filenames 2>/dev/null\n"
                   "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\"; [[ -z $paths ]] || "
                   "compgen $paths -- \"$cur\")\n"
                   "    fi\n"
                   "}\n"
                   "complete -F _linnet linnet\n");
}

/* ---- zsh ---- */

/* Escapes text for single quotes inside an argument of _arguments or _describe: quotes, brackets and
 * colons lose their special meaning. */
static void zsh_text(ln_str *s, const char *text) {
    for (; *text; text++) {
        if (*text == '\'') ln_str_adds(s, "'\\'");
        else if (strchr("[]:\\", *text)) ln_str_add(s, "\\", 1);
        ln_str_add(s, text, 1);
    }
}

static void zsh_flag(ln_str *s, const flag_row *r) {
    bool many = r->kind == TEXTS || r->kind == BIASES || r->kind == IDS || r->kind == KEEPS ||
                r->kind == ADAPTERS || r->kind == LORAS || r->kind == FILES;
    ln_str_adds(s, "      ");
    if (many) ln_str_adds(s, "'*'");
    else if (r->letter) ln_str_addf(s, "'(-%c %s)'", r->letter, r->name);
    const char *equals = r->kind == SWITCH ? "" : "="; /* the value follows, after '=' or as the next word */
    if (r->letter) ln_str_addf(s, "{-%c,%s%s}", r->letter, r->name, equals);
    else ln_str_addf(s, "%s%s", r->name, equals);
    ln_str_adds(s, "'[");
    zsh_text(s, r->help);
    ln_str_adds(s, "]");
    if (r->kind != SWITCH) {
        ln_str_adds(s, ":");
        zsh_text(s, r->value);
        ln_str_adds(s, ":");
        if (has_words(r)) {
            ln_str_adds(s, "(");
            add_words(s, r->value);
            ln_str_adds(s, ")");
        } else if (path_of(r)) {
            ln_str_adds(s, path_of(r) == 'f' ? "_files" : path_of(r) == 'm' ? "_linnet_model" : "_files -/");
        }
    }
    ln_str_adds(s, "' \\\n");
}

static void zsh_positional(ln_str *s, int v) {
    switch (verb_rows[v].takes) {
    case NOTHING: ln_str_adds(s, "      && return\n"); return;
    case SHELL: ln_str_adds(s, "      '1:shell:(bash zsh)' && return\n"); return;
    case DIR: ln_str_adds(s, "      '1:directory:_files -/' && return\n"); return;
    default: break;
    }
    if (v == VERB_TEMPLATE) ln_str_adds(s, "      '1:model or template:_linnet_model_or_file' && return\n");
    else
        ln_str_addf(s, "      '1:model:_linnet_model' '2:%s' && return\n",
                    reads_file(v)    ? "file:_files"
                    : v == VERB_FUSE ? "adapter:_files -/"
                                     : "text: ");
}

static void zsh_script(ln_str *s) {
    ln_str_adds(s, "#compdef linnet\n"
                   "# zsh completion of linnet; written by: linnet completion zsh\n"
                   "_linnet_model() { compadd tiny; _files -/ }\n"
                   "_linnet_model_or_file() { compadd tiny; _files }\n"
                   "_linnet() {\n"
                   "  local -a verbs\n"
                   "  verbs=(\n");
    for (int v = 0; v < VERB_COUNT; v++) {
        ln_str_addf(s, "    '%s:", verb_rows[v].name);
        zsh_text(s, verb_rows[v].what);
        ln_str_adds(s, "'\n");
    }
    ln_str_adds(s, "    'help:the page of a verb'\n"
                   "  )\n"
                   "  if (( CURRENT == 2 )) || [[ $words[2] == help && CURRENT == 3 ]]; then\n"
                   "    _describe verb verbs\n"
                   "    return\n"
                   "  fi\n"
                   "  local verb=$words[2]\n"
                   "  shift words\n"
                   "  (( CURRENT-- ))\n"
                   "  case $verb in\n");
    for (int v = 0; v < VERB_COUNT; v++) {
        ln_str_addf(s, "  %s)\n    _arguments -s \\\n", verb_rows[v].name);
        for (int f = 0; f < F_COUNT; f++)
            if (of_verb(f, v)) zsh_flag(s, &flag_rows[f]);
        zsh_positional(s, v);
        ln_str_adds(s, "    ;;\n");
    }
    ln_str_adds(s, "  esac\n"
                   "}\n"
                   "_linnet \"$@\"\n");
}

ln_status cmd_completion(const args *a, ln_error *err) {
    ln_str s = {0};
    char shown[80];
    if (a->model && strcmp(a->model, "bash") == 0) bash_script(&s);
    else if (a->model && strcmp(a->model, "zsh") == 0) zsh_script(&s);
    else
        return ln_fail(err, LN_EUSAGE, "completion: expected bash or zsh, found '%s'",
                       ln_excerpt(shown, a->model ? a->model : "", a->model ? strnlen(a->model, 200) : 0));
    return out_str(&s, err);
}
