/* The two tables of the command line as data: flags.c parses by them, pages.c writes them out for people and for shells. */
#ifndef LN_FLAGS_H
#define LN_FLAGS_H

#include "cli.h"

typedef enum kind { SWITCH, TEXT, COUNT, SIZE, BYTES, REAL, SEED, CHOICE, TEXTS, BIASES, KEEPS, LIST } kind;
typedef enum takes { NOTHING, MODEL, OPTIONAL, DIR, SHELL } takes;

typedef struct flag_row {
    const char *name;
    char letter;
    kind kind;
    unsigned verbs; /* a bit for each */
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

/* names.c: what was meant by a name that is unknown. A word has n bytes, dashes included. */
/* Our flag that other tools spell so, with the same meaning, or F_COUNT. */
flag flag_elsewhere(const char *word, size_t n);
/* What to do instead of a flag of another tool, or NULL. */
const char *flag_advice(const char *word, size_t n);
/* Other tools' spellings of our flag that are taken, with blanks between, or NULL. */
const char *flag_other_names(flag f);
/* Writes a phrase that names the nearest flag of the verb, or those that begin so; false for none. */
bool flag_suggest(char *out, size_t cap, verb v, const char *typed);

#endif
