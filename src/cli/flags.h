/* The two tables of the command line (flags.def, verbs.def) as data: flags.c parses arguments with them,
 * help_pages.c and completion.c generate pages and completion scripts from them. */
#ifndef LN_FLAGS_H
#define LN_FLAGS_H

#include "cli.h"

typedef enum kind {
    SWITCH,
    TEXT,
    COUNT,
    SIZE,
    BYTES,
    REAL,
    SEED,
    CHOICE,
    TEXTS,
    BIASES,
    IDS,
    KEEPS,
    ADAPTERS,
    LORAS,
    NAMES,
    FIELDS,
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

typedef struct verb_row {
    const char *name, *form;
    takes takes;
    const char *what, *more;
} verb_row;

extern const flag_row flag_rows[F_COUNT];
extern const verb_row verb_rows[VERB_COUNT];

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
