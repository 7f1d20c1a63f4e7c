/* AdamW on the trainables of a graph that a caller builds (contract: user_graph.h). */
#include "user_graph_parts.h"

#include <string.h>

ln_status ln_user_graph_adamw(ln_user_graph *u, const ln_adamw_rates *rates, const int32_t *params,
                              const float *const *grads, size_t n, ln_error *err) {
    LN_TRY(ln_user_failure(u, err));
    for (size_t i = 0; i < n; i++) {
        bound *b = ln_user_bound(u, params[i]);
        if (!b || !b->trainable)
            return ln_fail(err, LN_EUSAGE, "value %d of the graph: expected a trainable", params[i]);
        for (size_t k = 0; k < i; k++)
            if (params[k] == params[i])
                return ln_fail(err, LN_EUSAGE, "value %d of the graph: expected it once, found it twice",
                               params[i]);
        if (!b->m) b->m = ln_zalloc((size_t)b->n, sizeof *b->m);
        if (!b->v) b->v = ln_zalloc((size_t)b->n, sizeof *b->v);
        if (!b->m || !b->v) return LN_OOM(err, "moments of AdamW");
    }
    for (size_t i = 0; i < n; i++) {
        const bound *b = ln_user_bound(u, params[i]);
        if (!ln_adamw_is_finite(rates, u->t + 1, b->n, b->data, grads[i], 1, b->m, b->v))
            return ln_fail(err, LN_ENUMERIC,
                           "value %d of the graph: its gradient, or what the step makes of it, is NaN or "
                           "infinite; nothing was updated: lower ln_adamw.lr, or leave this step out",
                           params[i]);
    }
    u->t++;
    for (size_t i = 0; i < n; i++) {
        bound *b = ln_user_bound(u, params[i]);
        b->stale = true;
        ln_adamw_update(rates, u->t, b->n, b->data, grads[i], 1, b->m, b->v);
    }
    return LN_OK;
}
void ln_user_graph_adamw_reset(ln_user_graph *u) {
    u->t = 0;
    for (size_t i = 0; i < u->n_bounds; i++) {
        bound *b = &u->bounds[i];
        if (b->m) memset(b->m, 0, (size_t)b->n * sizeof *b->m);
        if (b->v) memset(b->v, 0, (size_t)b->n * sizeof *b->v);
    }
}
