/* Reading a call of a tool: what tool_calls.c and call_reader.c share. */
#ifndef LN_CALL_READER_H
#define LN_CALL_READER_H

#include "tool_calls.h"

/* A longer run of blanks belongs to no call. A name of a call stands within MOST_HEAD bytes of an object,
 * else its arguments are given only when they are complete. */
enum { MOST_BLANKS = 64, MOST_HEAD = 512, ID_CHARACTERS = 9 };

typedef enum match { NO, PART, YES } match; /* PART: more text decides */

/* A place in the held text. */
typedef struct cursor {
    const char *s;
    size_t n, at;
} cursor;

static inline bool call_is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
static inline cursor at_place(const ln_calls *t, size_t at) {
    return (cursor){t->held.data, t->held.len, at};
}
static inline bool next_is(const cursor *c, char what) { return c->at < c->n && c->s[c->at] == what; }
void take_blanks(cursor *c);
/* Takes a text of the format, in which white space stands for any, '#' for a number, '@' for a call's id. */
match take(cursor *c, const char *what);
/* LN_EMEMORY where one of the parser's texts could not grow. */
ln_status calls_done(const ln_calls *t, ln_error *err);

/* The members of a call's object that were found. */
typedef struct members {
    bool name, arguments, others;
} members;

/* Reads on; YES: the arguments, or the object, are complete. */
match read_on(ln_calls *t);
/* Whether text of the arguments is certain and was not given yet: t->text has it. */
bool tell_arguments(ln_calls *t);
/* Fills in the arguments of a call that is complete. */
ln_status finish_arguments(ln_calls *t, bool *is_call, members *m, ln_error *err);

#endif
