/* Reading a grammar: what its parts share. */
#ifndef LN_EBNF_H
#define LN_EBNF_H

#include "grammar_build.h"

typedef struct ebnf_rule {
    const char *name; /* in the grammar's text */
    size_t bytes;
    gr_node node;
    bool defined;
} ebnf_rule;
typedef struct ebnf_reader {
    ln_grammar *g;
    const char *text, *place;
    size_t bytes, at;
    bool lark, in_rule; /* in_rule: a rule of Lark, which ignores texts between terminals */
    int depth;
    ebnf_rule *rules;
    size_t n_rules, cap_rules;
    gr_node now; /* the rule that is read */
    gr_node ignored, ignored_body;
    ln_error *err;
} ebnf_reader;

/* Fails with LN_EINVALID and the line. */
ln_status ebnf_refuse(const ebnf_reader *r, const char *what);
/* The rule of a name, which need not be defined yet. */
ln_status ebnf_rule_of(ebnf_reader *r, const char *name, size_t bytes, ebnf_rule **out);
/* Reads one text, name, group or expression, with what repeats it. */
ln_status ebnf_item(ebnf_reader *r, gr_node *out);
void ebnf_skip(ebnf_reader *r, bool newlines);
/* Reads a directive of Lark, after its sign. */
ln_status ebnf_directive(ebnf_reader *r);
/* LN_EINVALID: a rule begins with itself by way of another one. */
ln_status ebnf_check_recursion(const ebnf_reader *r);

#endif
