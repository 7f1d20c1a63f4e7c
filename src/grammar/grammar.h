/* Grammars of generated text: a grammar in JSON becomes a grammar over bytes, and a matcher says which bytes,
 * and which tokens of a vocabulary, may come next.
 *
 * A grammar is a graph of expressions: the empty text, one byte of a set, a sequence, a choice, a repetition
 * with bounds, and rules, which may contain themselves. It is not a finite automaton, because JSON nests. The
 * matcher follows all ways through it at once: a state is the set of its pending stacks. Equal stacks and
 * equal states are stored once, and the transitions between states are remembered, so that a state that comes
 * back (the inside of a string) costs one lookup a byte. */
#ifndef LN_GRAMMAR_H
#define LN_GRAMMAR_H

#include "../base/base.h"

/* A compiled grammar; immutable, so that threads may share it. */
typedef struct ln_grammar ln_grammar;
/* Compiles a grammar, a JSON text as ln_sampling.grammar describes it. The caller owns *out;
 * ln_grammar_close. LN_EINVALID: the grammar or a schema in it is malformed, cannot be met, or has a keyword
 * that is not supported; the message begins with the place, as in "schema.properties.a.type". LN_EMEMORY. */
ln_status ln_grammar_open(ln_grammar **out, const char *grammar, size_t bytes, ln_error *err);
/* Frees *g and sets it to NULL; does nothing when it is NULL. */
void ln_grammar_close(ln_grammar **g);
/* Bytes that the grammar takes. */
uint64_t ln_grammar_bytes(const ln_grammar *g);

/* ---- vocabularies ---- */

/* A byte of some token's text: the tokens whose texts begin with the bytes on the way to it are a tree of
 * nodes, which stand in the order of a walk that visits a node before what is below it. */
typedef struct ln_trie_node {
    uint32_t after; /* the node after all that are below this one */
    uint32_t first; /* those below are tokens ids[first .. nodes[after].first), this one's own come first */
    uint16_t depth; /* bytes on the way; at least 1 */
    uint8_t byte;
    uint8_t below; /* characters that begin below, in the longest text; LN_TRIE_DEEP: that, or more */
} ln_trie_node;
#define LN_TRIE_DEEP 255
typedef struct ln_trie {
    size_t n;            /* nodes[n] is the end */
    ln_trie_node *nodes; /* [n + 1] */
    int32_t *ids;        /* [nodes[n].first] ascending by text, then by id */
} ln_trie;

/* The alphabets of tokens that often may all follow: letters, digits and _; plain characters of JSON strings
 * (whole ones, no quotation mark, backslash or control character). */
typedef enum ln_alphabet { LN_WORD, LN_PLAIN, LN_ALPHABETS } ln_alphabet;
/* Tokens of an alphabet whose texts have up to so many characters, and more than in the slice before. */
typedef struct ln_slice {
    ln_trie trie;
    uint64_t *mask; /* [(V + 63) / 64] these tokens */
    size_t longest; /* characters of the longest text; 0: there are none */
} ln_slice;
enum { LN_SLICES = 4, LN_ALL_SLICES = LN_ALPHABETS * LN_SLICES }; /* of one alphabet, of all */

/* The texts of a vocabulary's tokens, of at most 65,535 bytes each. Those of an alphabet are apart from the
 * others, because inside a string any of them may follow. The text of a special token is the byte 0xFF, which
 * no UTF-8 text has, and its name: only {"token": name} of a grammar matches it. Immutable after
 * ln_vocabulary_sort. */
typedef struct ln_vocabulary {
    int64_t n_vocab; /* V: ids are 0 .. V - 1 */
    uint32_t *at;    /* [V + 1] the text of id i is text[at[i] .. at[i + 1]); of no bytes: none */
    char *text;
    ln_slice slices[LN_ALL_SLICES]; /* those of an alphabet are neighbours */
    ln_trie other;
    bool strips_blank; /* a decoded text loses one blank at its beginning (SentencePiece's) */
    size_t longest;    /* bytes of the longest text */
} ln_vocabulary;
/* Sorts a vocabulary whose n_vocab, at and text are set (both owned by the struct from now on, also after an
 * error). LN_EMEMORY. */
ln_status ln_vocabulary_sort(ln_vocabulary *v, ln_error *err);
void ln_vocabulary_free(ln_vocabulary *v);
uint64_t ln_vocabulary_bytes(const ln_vocabulary *v);

/* ---- matching ---- */

/* How far a text has matched a grammar. For one thread at a time. */
typedef struct ln_matcher ln_matcher;
/* Opens a matcher at the beginning of a text. Grammar and vocabulary must outlive it; the caller owns *out.
 * LN_EINVALID: the grammar is nested too deep, or needs too many states; LN_EMEMORY. */
ln_status ln_matcher_open(ln_matcher **out, const ln_grammar *g, const ln_vocabulary *v, ln_error *err);
void ln_matcher_close(ln_matcher **m);
/* The most bytes that a matcher of a vocabulary of n_vocab tokens ever takes. */
uint64_t ln_matcher_bytes(int64_t n_vocab);
/* Advances over a text of at most 1,000 bytes, so that its states have room. *fits: whether it continues the
 * text so far; if not, the state is unchanged. LN_EINVALID: the grammar needs more states at once than a
 * matcher may hold; LN_EMEMORY: an allocation failed. */
ln_status ln_matcher_push(ln_matcher *m, const char *text, size_t bytes, bool *fits, ln_error *err);
/* Sets *fits to whether token `id` may come next. Errors as above. */
ln_status ln_matcher_allows(ln_matcher *m, int32_t id, bool *fits, ln_error *err);
/* Sets *mask to one bit for each id of the vocabulary (id i is bit i % 64 of word i / 64), set where the
 * token may come next; valid until the next call. Errors as above. */
ln_status ln_matcher_mask(ln_matcher *m, const uint64_t **mask, ln_error *err);
/* Advances over token `id`, as ln_matcher_push does over its text. */
ln_status ln_matcher_take(ln_matcher *m, int32_t id, bool *fits, ln_error *err);
/* Whether the text so far is complete, and whether nothing may follow it. */
bool ln_matcher_complete(const ln_matcher *m);
bool ln_matcher_final(const ln_matcher *m);
/* Whether nothing was matched yet. ln_matcher_follows: other text stands before, so that the first token
 * keeps a blank at its beginning. */
bool ln_matcher_begins(const ln_matcher *m);
void ln_matcher_follows(ln_matcher *m);

#endif
