/* Inside the tokenizer: the tokens that messages must not spell. */
#ifndef LN_TEXT_GUARD_H
#define LN_TEXT_GUARD_H

#include "tok.h"

struct ln_controls {
    uint8_t *added; /* by added token */
    uint8_t *ids;   /* by id, [n_ids] */
    int32_t n_ids;
};

#endif
