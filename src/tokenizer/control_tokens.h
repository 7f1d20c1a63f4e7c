/* Internals of the tokenizer: the table of control tokens, which text from a message must never become. */
#ifndef LN_CONTROL_TOKENS_H
#define LN_CONTROL_TOKENS_H

#include "tokenizer_internal.h"

struct ln_controls {
    uint8_t *added; /* 1 for a control token, indexed by added token */
    uint8_t *ids;   /* 1 for a control token, indexed by id, [n_ids] */
    int32_t n_ids;
};

#endif
