/* Translates messages of the library to the vocabulary of the command line: fields of its structs become
 * flags of the verb that runs.
 *
 * The library cannot know how a program names its options, so its messages name fields, as in "lower
 * ln_options.n_ctx". Before a message is printed, each field is replaced by the flag that sets it, or, if
 * the verb does not have that flag, by a phrase (fields.def). Such names do not occur in paths or in keys of
 * files by chance. */
#include "flags.h"

#include <stdlib.h>
#include <string.h>

typedef struct field {
    const char *text;
    int flag; /* F_COUNT: no flag sets it */
    const char *rest, *otherwise;
} field;

static const field fields[] = {
#define FIELD(text, flag, rest, otherwise) {text, F_##flag, rest, otherwise},
#include "fields.def"
#undef FIELD
};

static verb running = VERB_COUNT;
static ln_level level = LN_LOG_WARN;

void advice_for(verb v) { running = v; }

/* The field whose name is at the beginning of `text`; NULL: none. */
static const field *field_at(const char *text) {
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    if (strncmp(text, "ln_", 3) != 0) return NULL;
    for (size_t i = 0; i < LN_COUNT(fields); i++) {
        size_t n = strlen(fields[i].text);
        if (strncmp(text, fields[i].text, n) == 0 && (text[n] == '\0' || !strchr(word, text[n])))
            return &fields[i];
    }
    return NULL;
}

void advice_add(ln_str *out, const char *message) {
    const char *from = message, *at = message;
    while (*at) {
        const field *f = field_at(at);
        if (!f) {
            at++;
            continue;
        }
        const bool has_flag =
            f->flag < F_COUNT && running < VERB_COUNT && flag_rows[f->flag].verbs & 1u << running;
        ln_str_add(out, from, (size_t)(at - from));
        if (has_flag) ln_str_adds(out, flag_rows[f->flag].name);
        ln_str_adds(out, has_flag ? f->rest : f->otherwise);
        from = at += strlen(f->text);
    }
    ln_str_add(out, from, (size_t)(at - from));
}

/* ---- the library's log ---- */

static void on_remark(void *user, ln_level how, const char *text) {
    static const char *const names[] = {"error: ", "warning: ", "", "debug: "};
    (void)user;
    if (how <= level) note("%s%s", names[how], text);
}

void log_to_stderr(void) {
    const char *text = getenv("LINNET_LOG");
    if (text && text[0] >= '0' && text[0] <= '3' && text[1] == '\0') level = (ln_level)(text[0] - '0');
    ln_log_set(on_remark, NULL);
}

void log_more(void) { level = LN_MAX(level, LN_LOG_INFO); }
