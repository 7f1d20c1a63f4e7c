/* The variant of a kernel call that a test or a bench has made by hand, without a program: by its operands.
 */
#ifndef LN_CALL_VARIANT_H
#define LN_CALL_VARIANT_H

#include "../../src/ops/ops.h"

static inline int call_variant(const ln_call *c) {
    const bool embeds = c->node->op == LN_OP_EMBED;
    const ln_arg *w = &c->in[embeds ? 0 : 1];
    if (w->coded)
        return ln_variant_of(c->node->op, &c->node->p, c->in[0].format,
                             (ln_stored)((const ln_coded *)w->data)->enc.kind);
    const ln_encoding e = ln_encoding_of((ln_dtype)w->dtype, ln_format_groups(w->format));
    return ln_variant_of(c->node->op, &c->node->p, c->in[0].format, (ln_stored)e.kind);
}

#endif
