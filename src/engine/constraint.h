/* The grammar of a request's answer: which tokens may come next, in addition to reasoning and stop ids. */
#ifndef LN_CONSTRAINT_H
#define LN_CONSTRAINT_H

#include "../grammar/grammar.h"
#include "answer_text.h"

struct ln_eng;

/* All zero: the answer has no grammar. Used by one thread at a time. */
typedef struct ln_constraint {
    ln_grammar *grammar;
    ln_matcher *matcher;
    uint64_t *allowed;   /* [(V + 63) / 64] one bit for each token; scratch */
    int32_t think_open;  /* the token that begins reasoning; -1: none */
    int32_t newlines[2]; /* the tokens of one newline and of two, which may stand after reasoning; -1 */
    bool whole;          /* the grammar has the reasoning too: the answer is messages with headers */
    bool after_newlines; /* one of them has been taken */
    bool prose;          /* the text is free but for calls of tools */
    bool free_between;   /* ... and no token is excluded where no call has begun */
    uint64_t bytes;      /* that it may take at most */
} ln_constraint;

/* Compiles how->grammar, if there is one. `a` is the answer, already open. The caller closes *c, after an
 * error too. LN_EINVALID: the grammar; LN_EUNSUPPORTED: the model has no tokenizer; LN_EMEMORY. */
ln_status ln_constraint_open(ln_constraint *c, struct ln_eng *e, const ln_sampling *how, bool prose,
                             const ln_answer *a, ln_error *err);
void ln_constraint_close(ln_constraint *c);
static inline bool ln_constrains(const ln_constraint *c) { return c->matcher != NULL; }
/* Whether some token may be excluded next. */
bool ln_constraint_binds(const ln_constraint *c, const ln_answer *a);
/* ln_answer_forced, but -1 while the grammar does not permit to end the reasoning: in the middle of a
 * character. */
int32_t ln_constraint_forced(ln_constraint *c, ln_answer *a);
/* Sets *mask to one bit for each of n_vocab tokens (id i is bit i % 64 of word i / 64), set if the token may
 * come next; valid until the next call. Errors: those of ln_matcher_mask. */
ln_status ln_constraint_mask(ln_constraint *c, const ln_answer *a, int64_t n_vocab, const uint64_t **mask,
                             ln_error *err);
/* Sets the logits f32 [n_vocab] of tokens that must not come next to minus infinity. */
ln_status ln_constraint_apply(ln_constraint *c, const ln_answer *a, float *logits, int64_t n_vocab,
                              ln_error *err);
/* What the answer was before a token; ln_constraint_take compares it with what the token has made of it. */
typedef struct ln_constraint_before {
    int state;
    bool answering;
} ln_constraint_before;
static inline ln_constraint_before ln_constraint_look(const ln_answer *a) {
    return (ln_constraint_before){(int)a->think.state, a->think.begun};
}
/* Advances over a token that the answer has taken. LN_EINVALID: it does not continue a text of the grammar,
 * which only tokens that were not chosen by ln_constraint_apply can do. */
ln_status ln_constraint_take(ln_constraint *c, const ln_answer *a, ln_constraint_before before, int32_t id,
                             ln_error *err);
/* Whether the answer is complete and nothing may follow. */
bool ln_constraint_done(const ln_constraint *c);

/* Makes the vocabulary of grammars of a tokenizer, for ids 0 .. n_vocab - 1. The caller frees *v, after an
 * error too. LN_EMEMORY. */
ln_status ln_grammar_vocabulary(ln_vocabulary *v, const ln_tok *tok, int64_t n_vocab, ln_error *err);
/* Frees the sorted vocabulary that an engine keeps for its grammars. */
void ln_constraint_forget(struct ln_eng *e);

#endif
