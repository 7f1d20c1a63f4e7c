/* Building a grammar: what the readers of grammars, schemas and patterns share. */
#ifndef LN_GRAMMAR_BUILD_H
#define LN_GRAMMAR_BUILD_H

#include "../base/json.h"
#include "grammar.h"

typedef uint32_t gr_node; /* the number of an expression of a grammar */
/* The expressions that every grammar has. GR_NOTHING matches no text at all. */
enum { GR_EMPTY = 0, GR_NOTHING = 1 };
#define GR_UNBOUNDED UINT32_MAX
#define GR_ENDLESS   UINT16_MAX

typedef enum gr_kind {
    GR_IS_EMPTY,
    GR_IS_NOTHING,
    GR_IS_SET,
    GR_IS_SEQ,
    GR_IS_ALT,
    GR_IS_REPEAT,
    GR_IS_RULE
} gr_kind;
/* An expression. Equal ones are stored once. */
typedef struct gr_expr {
    uint32_t kind;
    uint32_t a,
        b; /* SET: a: number of the set; SEQ, ALT: both parts; REPEAT: a; RULE: a: its body, once known */
    uint32_t min, max;   /* REPEAT; RULE: min: its number */
    uint32_t free_chars; /* RULE: how many plain characters surely may follow (automaton_free_chars) */
    /* A RULE whose b is GR_ANY_PLAIN and whose max is 0 takes any plain character of a JSON string, and more.
     * A RULE whose max is not 0 is state b of an automaton, whose characters are counted: lengths[max - 1].
     */
} gr_expr;
/* The lengths that the texts of an automaton may have, in characters. */
typedef struct gr_lengths {
    uint32_t min, max;
    size_t states, words;
    uint64_t *ends; /* [states, words] bit n: a text may end after n more characters */
    uint32_t *free; /* [max + 1] the length up to which all states may go on, from a length on */
} gr_lengths;
/* Whether a text may end within the bounds, after n characters that lead to a state. */
bool gr_lengths_allow(const gr_lengths *l, uint32_t state, uint32_t n);
#define GR_ANY_PLAIN UINT32_MAX
/* The plain characters by the first byte, the bounds of the second one, and how many bytes follow the
 * first. */
typedef struct gr_byte_kind {
    uint8_t lo, hi, second_lo, second_hi, more;
} gr_byte_kind;
enum { GR_PLAIN_KINDS = 9 };
extern const gr_byte_kind gr_plain_kinds[GR_PLAIN_KINDS]; /* '"' and '\\' excepted */
typedef struct gr_bytes {
    uint64_t bits[4]; /* byte c is bit c % 64 of word c / 64 */
} gr_bytes;

struct ln_grammar {
    gr_expr *exprs;
    gr_bytes *sets;
    gr_lengths *lengths;
    /* Hash tables of expressions and sets: number + 1, 0: free; freed when the grammar is complete. */
    uint32_t *slots, *set_slots;
    size_t n_exprs, cap_exprs, n_sets, cap_sets, n_lengths, cap_lengths, n_slots, n_set_slots;
    uint32_t n_rules;
    gr_node root;
    /* [n_exprs] How many frames of a matcher an expression's text needs above the frame that comes after it,
     * if always the lowest way is taken; GR_ENDLESS: there is none. */
    uint16_t *height;
    /* Bytes that no set tells apart have one class. */
    uint8_t class_of[256];
    uint8_t example[256]; /* [n_classes] a byte of each class */
    uint32_t n_classes;
    char nothing[512];         /* why a part of a schema allows nothing; may be empty */
    bool no_memory, too_large; /* sticky: an allocation failed, or there are too many expressions */
};

/* Begins a grammar; gr_finish makes `root` its text and completes it. The caller closes *out, after an error
 * too. */
ln_status gr_begin(ln_grammar **out, ln_error *err);
ln_status gr_finish(ln_grammar *g, gr_node root, ln_error *err);
/* Constructors; after a failure, which is sticky, they return GR_NOTHING. */
gr_node gr_set(ln_grammar *g, const gr_bytes *bytes);
gr_node gr_byte_range(ln_grammar *g, unsigned lo, unsigned hi); /* one byte lo .. hi */
gr_node gr_text(ln_grammar *g, const char *text, size_t bytes);
gr_node gr_texts(ln_grammar *g, const char *text); /* of a string that NUL ends */
gr_node gr_seq(ln_grammar *g, gr_node a, gr_node b);
gr_node gr_alt(ln_grammar *g, gr_node a, gr_node b);
gr_node gr_repeat(ln_grammar *g, gr_node a, uint32_t min, uint32_t max); /* max may be GR_UNBOUNDED */
gr_node gr_optional(ln_grammar *g, gr_node a);
/* A sequence of expressions, ended by GR_END. */
#define GR_END         UINT32_MAX
#define gr_all(g, ...) gr_all_of(g, (const gr_node[]){__VA_ARGS__, GR_END})
gr_node gr_all_of(ln_grammar *g, const gr_node *parts);
/* A rule that gets its body later, which may contain it. */
gr_node gr_rule(ln_grammar *g);
void gr_define(ln_grammar *g, gr_node rule, gr_node body);
/* Finds the heights of all expressions, and closes those that no text completes, such as an object that must
 * contain itself: a way into them would have no end. *ends: some text of the root does. */
ln_status gr_find_heights(ln_grammar *g, gr_node root, bool *ends, ln_error *err);
/* LN_OK, LN_EMEMORY, or LN_EINVALID when the grammar has become too large. */
ln_status gr_check(const ln_grammar *g, ln_error *err);

/* ---- code_points.c ---- */

typedef struct gr_points {
    uint32_t lo, hi;
} gr_points;
/* One character of a list of n ranges of code points, ascending and disjoint, in UTF-8. Surrogates are left
 * out. */
gr_node gr_characters(ln_grammar *g, const gr_points *ranges, size_t n);

/* ---- text_list.c ---- */

typedef struct gr_span {
    const char *text;
    size_t bytes;
} gr_span;
/* One of n texts, which it sorts; GR_NOTHING where n is 0. */
gr_node gr_text_list(ln_grammar *g, gr_span *texts, size_t n);

/* ---- prose.c ---- */

/* Where marks count: nowhere (the text has none of them, is UTF-8 and has no control characters but white
 * space), anywhere, or only at the beginning, after white space. */
typedef enum gr_prose_kind { GR_MARKS_NOWHERE, GR_MARKS_ANYWHERE, GR_MARKS_AT_START } gr_prose_kind;
/* A text, at least one byte long, and what must follow it. */
typedef struct gr_mark {
    const char *text;
    size_t bytes;
    gr_node then;
} gr_mark;
/* Any text, also an empty one, in which each of n marks is followed by its expression; special tokens may
 * stand in it. It changes `then`. */
gr_node gr_prose(ln_grammar *g, gr_mark *marks, size_t n, gr_prose_kind kind);

/* ---- json_text.c: expressions for JSON ---- */

/* How a text is written: as it is, or inside a JSON string, where some characters are escaped. */
typedef enum gr_spelling { GR_RAW, GR_IN_STRING } gr_spelling;
/* One character of the ranges in a spelling. In a JSON string it is written as json.dumps writes it with
 * ensure_ascii off: only quotation marks, backslashes and control characters are escaped. */
gr_node gr_spelt(ln_grammar *g, gr_spelling how, const gr_points *ranges, size_t n);
/* Whether a character is escaped in a JSON string. */
bool gr_is_escaped(uint32_t c);
/* One of the characters that are escaped, which are a set (character c is bit c % 64 of word c / 64), as it
 * is written: a state of a matcher waits for their first byte once. */
gr_node gr_escapes(ln_grammar *g, const uint64_t chars[2]);
/* The rules of JSON values, made when they are first asked for. */
typedef struct gr_json {
    gr_node blank;     /* white space that may stand after an opening bracket, a comma or a colon */
    gr_node character; /* one character of a string, escapes included */
    gr_node string, number, integer, value;
    bool open; /* 2.0 is an integer, and equal to 2 */
} gr_json;
gr_json gr_json_rules(ln_grammar *g);
/* Exactly this JSON value; white space in arrays and objects is free. */
gr_node gr_json_value(ln_grammar *g, const gr_json *j, const json_t *value);
/* One of a list's values. */
gr_node gr_json_values(ln_grammar *g, const gr_json *j, const json_t *list);
/* A JSON string with this content. */
gr_node gr_json_string(ln_grammar *g, const char *text, size_t bytes);
/* {} with members, [] with items: a list that is empty or separated by commas, with min to max items. */
gr_node gr_json_list(ln_grammar *g, const gr_json *j, char open, gr_node item, uint32_t min, uint32_t max,
                     char end);

/* ---- number_range.c ---- */

/* Bounds of a number; without one the side is open. */
typedef struct gr_bounds {
    bool has_lo, has_hi, above, below; /* above, below: the bound itself is excluded */
    double lo, hi;
} gr_bounds;
/* JSON integers or numbers within bounds, without an exponent where there is a bound. *fits is false where no
 * number is (the result is GR_NOTHING), or where a bound has too many digits. */
gr_node gr_integers(ln_grammar *g, const gr_bounds *b, bool *fits);
gr_node gr_numbers(ln_grammar *g, const gr_bounds *b, bool *fits);

/* Numbers with an exponent within bounds: those that a bound of 0 or more cannot tell apart, that is without
 * a bound on a side, or with bounds that numbers between 0 and 1 meet. */
gr_node gr_exponents(ln_grammar *g, const gr_bounds *b);

/* Multiples of a number, without exponents; `integer`: without a point; `zeros`: with any number of zeros at
 * the end of a fraction. *fits is false where the number is
 * not above 0, or has more digits than MOST_MULTIPLE without its point and zeros at its end. */
enum { MOST_MULTIPLE = 1000 };
gr_node gr_multiples(ln_grammar *g, double step, bool integer, bool zeros, bool *fits);
/* Numbers that are no integers, without exponents, of at most 7 digits on each side of the point. */
gr_node gr_fractions(ln_grammar *g);

/* ---- pattern.c ---- */

/* The marks of a text's beginning and end, which ^ and $ match: bytes that no UTF-8 text has. */
enum { GR_BEGIN = 0xfe, GR_FINISH = 0xff };
/* The texts that a regular expression matches, each between GR_BEGIN and GR_FINISH, and other sequences of
 * bytes; `anchored`: it must match the whole text, else a part of it, as in a JSON schema. LN_EINVALID: the
 * message says where and what is not supported. */
ln_status gr_marked_pattern(ln_grammar *g, const char *pattern, size_t bytes, bool anchored, gr_node *out,
                            ln_error *err);
/* The texts of min to max characters of an expression in which one character at its end is repeated, and all
 * others are single ones: a counter takes the place of a state for each length. *counted: it is of this
 * kind; *out is GR_NOTHING where no text has such a length. LN_EINVALID as above. */
ln_status gr_counted_pattern(ln_grammar *g, const char *pattern, size_t bytes, gr_spelling how, bool anchored,
                             uint32_t min, uint32_t max, bool *counted, gr_node *out, ln_error *err);
/* The texts of a regular expression in a spelling. */
ln_status gr_pattern(ln_grammar *g, const char *pattern, size_t bytes, gr_spelling how, bool anchored,
                     gr_node *out, ln_error *err);

/* ---- ebnf.c ---- */

/* A grammar in GBNF or in Lark's EBNF. `place` is its place in the grammar. LN_EINVALID: the message begins
 * with it and says the line. */
ln_status gr_ebnf(ln_grammar *g, const char *text, size_t bytes, const char *place, gr_node *out,
                  ln_error *err);

/* ---- json_schema.c ---- */

/* A value that a JSON schema describes; `open`: as the standard says, with other properties and other types
 * than those that are named. `place` is the schema's place in the grammar. LN_EINVALID, LN_EMEMORY. */
ln_status gr_schema(ln_grammar *g, const json_t *schema, bool open, const char *place, gr_node *out,
                    ln_error *err);

#endif
