/* Deterministic automata over bytes: what grammars need where texts must meet two conditions, or must not
 * meet one. An expression without nesting becomes an automaton, automata are combined, and the result becomes
 * rules of a grammar, one for each of its states. */
#ifndef LN_GRAMMAR_AUTOMATON_H
#define LN_GRAMMAR_AUTOMATON_H

#include "grammar_build.h"

/* An automaton. Zero: none; automaton_free. */
typedef struct automaton {
    uint32_t n, start; /* n states; state 0 is that which nothing continues */
    uint32_t n_classes;
    uint8_t class_of[256];
    uint32_t *next;   /* [n, n_classes] */
    uint64_t *labels; /* [n] 0: the text may not end here */
} automaton;
void automaton_free(automaton *a);

/* The most states of an automaton. */
enum { MOST_AUTOMATON = 1 << 14 };

/* The automaton of an expression of a grammar of its own (gr_begin), whose texts have the label 1. Ends the
 * grammar. LN_EINVALID: it needs more than MOST_AUTOMATON states; LN_EMEMORY. */
ln_status automaton_of(automaton *out, ln_grammar *g, gr_node root, ln_error *err);
/* The automaton of a regular expression over UTF-8 text (see gr_pattern). LN_EINVALID, LN_EMEMORY. */
ln_status automaton_of_pattern(automaton *out, const char *pattern, size_t bytes, bool anchored,
                               ln_error *err);
/* The same without look-ahead. */
ln_status automaton_of_marked(automaton *out, const char *pattern, size_t bytes, bool anchored,
                              ln_error *err);
/* The automaton of all UTF-8 texts; of one text. */
ln_status automaton_of_all(automaton *out, ln_error *err);
ln_status automaton_of_text(automaton *out, const char *text, size_t bytes, ln_error *err);
/* Replaces *a by the texts of both, with the labels of both; of `a` but not of `b`; of either. Minimises. */
typedef enum automaton_join { AUTOMATON_AND, AUTOMATON_MINUS, AUTOMATON_OR } automaton_join;
ln_status automaton_combine(automaton *a, const automaton *b, automaton_join how, ln_error *err);
/* Restricts UTF-8 texts to min .. max characters, by a state for each length. LN_EINVALID: it needs more than
 * MOST_AUTOMATON states. */
ln_status automaton_limit(automaton *a, uint32_t min, uint32_t max, ln_error *err);
/* Merges equal states and drops those from which no text ends. */
ln_status automaton_minimise(automaton *a, ln_error *err);
static inline bool automaton_is_empty(const automaton *a) { return a->start == 0; }
/* The label of a text; 0: it is none. */
uint64_t automaton_label(const automaton *a, const char *text, size_t bytes);

/* Sets free_chars[q] of each state to how many plain characters (see ln_alphabet) surely may follow,
 * whichever they are; GR_UNBOUNDED: any number. 0 inside a character. False: out of memory. */
bool automaton_free_chars(const automaton *a, uint32_t *free_chars);

/* What follows a text of a label. */
typedef gr_node automaton_tail(void *context, uint64_t label);
/* The texts as an expression in a spelling; `tail` NULL: nothing follows. GR_NOTHING where there are none. */
gr_node automaton_expression(ln_grammar *g, const automaton *a, gr_spelling how, automaton_tail *tail,
                             void *context);

/* The same for texts of min to max characters, which are counted. max may be lowered where the automaton is
 * large. LN_EINVALID: min is too high; LN_EMEMORY. */
ln_status automaton_counted(ln_grammar *g, const automaton *a, gr_spelling how, uint32_t min, uint32_t max,
                            gr_node *out, ln_error *err);

#endif
