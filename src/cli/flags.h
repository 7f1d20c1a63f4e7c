/* The two tables of the command line (flags.def, verbs.def) as data: flags.c parses arguments with them,
 * help_pages.c and completion.c generate pages and completion scripts from them. */
#ifndef LN_FLAGS_H
#define LN_FLAGS_H

#include "cli.h"

/* The bit of a verb in flag_row.verbs. */
#define ON(v) (1u << VERB_##v)

typedef enum kind {
    SWITCH,
    TEXT,
    COUNT,
    SIZE,
    BYTES,
    REAL,
    SEED,
    CHOICE,
    DEVICES,
    TEXTS,
    BIASES,
    IDS,
    KEEPS,
    ADAPTERS,
    LORAS,
    NAMES,
    FIELDS,
    FILES,
    ORIGINS,
    LIST
} kind;
typedef enum takes { NOTHING, MODEL, OPTIONAL, DIR, SHELL } takes;

typedef struct flag_row {
    const char *name;
    char letter;
    kind kind;
    unsigned verbs; /* bit mask: 1 << VERB_x */
    const char *value;
    double lo, hi;
    const char *help;
} flag_row;

/* Whether the value is one of the words that `value` lists. */
static inline bool has_words(const flag_row *r) { return r->kind == CHOICE || r->kind == DEVICES; }

typedef struct verb_row {
    const char *name, *form;
    takes takes;
    const char *what, *more;
} verb_row;

extern const flag_row flag_rows[F_COUNT];
extern const verb_row verb_rows[VERB_COUNT];

/* flags.c: the flag whose spelling is the first n bytes of `word`; F_COUNT when there is none. */
flag flag_find(const char *word, size_t n);
/* Of two flags with one name, that of the verb. */
flag flag_of_verb(flag f, verb v);
/* Stores the value of a flag. LN_EUSAGE: the text is none. The text is borrowed. */
ln_status flag_take(args *a, flag f, const char *text, ln_error *err);
/* Whether the argument after MODEL is a file. */
bool takes_file(verb v);
/* flags_check.c: returns LN_EUSAGE if arguments contradict each other, or if the verb needs more. */
ln_status args_check(args *a, ln_error *err);
/* settings_file.c: adds the settings in the file of --config, of which the command line has none. */
ln_status args_config(args *a, ln_error *err);

/* names.c: suggestions for unknown names. `word` has n bytes, including its dashes. */
/* The flag for which `word` is another tool's spelling with the same meaning, or F_COUNT. */
flag flag_elsewhere(const char *word, size_t n);
/* What to do instead of using a flag of another tool, or NULL. */
const char *flag_advice(const char *word, size_t n);
/* The accepted spellings of a flag in other tools, separated by blanks, or NULL. */
const char *flag_other_names(flag f);
/* Writes a phrase that names the verb's flag nearest to `typed`, or those that begin with it; false when
 * there is none. */
bool flag_suggest(char *out, size_t cap, verb v, const char *typed);

#endif
