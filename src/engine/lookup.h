/* Proposals of next tokens: if the last tokens of a text stand earlier in it, what followed there may follow
 * again. A step computes the rows of proposed tokens together with that of the last token; the rows
 * are kept as far as the tokens are the ones that are sampled (eng_step.h), so that the text is that of steps
 * of one token. */
#ifndef LN_LOOKUP_H
#define LN_LOOKUP_H

#include "../base/base.h"

enum { LN_LOOKUP_MOST = 64 }; /* tokens that are proposed at once, at most */

/* What is known of one text. All zero: nothing is proposed. */
typedef struct ln_lookup {
    int32_t *ends; /* [1 << bits] by the hash of some tokens in sequence: the index after their last place */
    int bits;
    int64_t n;  /* places that end at most here are in `ends` */
    int64_t at; /* index of the token proposed after the first n_at tokens; 0: none */
    int64_t n_at;
    int64_t most, width; /* tokens to propose: at most, and next */
    int misses;          /* proposals in sequence of which no token was sampled */
    int64_t resume;      /* nothing is proposed before the text has so many tokens */
} ln_lookup;

/* Bytes of the table for a text of up to n tokens. */
uint64_t ln_lookup_bytes(int64_t n);
/* Opens a table for a text of up to n tokens, of which up to `most` are proposed at once, at most
 * LN_LOOKUP_MOST. The caller closes *l. LN_EMEMORY. */
ln_status ln_lookup_open(ln_lookup *l, int64_t n, int64_t most, ln_error *err);
void ln_lookup_close(ln_lookup *l);
/* Writes up to `most` tokens that may follow ids[0..n) to `out` and returns their number. The text only
 * grows between two calls. */
int64_t ln_lookup_propose(ln_lookup *l, const int32_t *ids, int64_t n, int64_t most, int32_t *out);
/* Notes that of n proposed tokens the first n_accepted were sampled: decides how many are proposed next. */
void ln_lookup_judge(ln_lookup *l, int64_t n, int64_t n_accepted);

#endif
