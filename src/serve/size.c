/* How large the server's contexts and their pool become, where no flag says it.
 *
 * The context is the model's own, cut to what fits. The pool holds one full context and 4,096 positions for
 * each further request that may run, within half of what the limit leaves beyond one context. */
#include "../base/os.h"
#include "serve.h"

enum { USUAL_POSITIONS = 4096, PAGE = 64 };

/* Plans with a pool of one context. */
static ln_status plan_one(const char *model, const ln_options *o, ln_plan *out, ln_error *err) {
    ln_options one = *o;
    one.pool_positions = o->n_ctx;
    *out = (ln_plan){.size = sizeof *out};
    return ln_plan_memory(model, &one, out, err);
}

static ln_status find_sizes(const char *model, ln_options *o, ln_error *err) {
    ln_info info = {.size = sizeof info};
    ln_plan p;
    const bool chosen = o->n_ctx > 0;
    if (!chosen) {
        LN_TRY(ln_show(model, o, &info, err));
        o->n_ctx = info.n_ctx_max;
    }
    LN_TRY(plan_one(model, o, &p, err));
    if (!chosen && !p.fits && p.largest_ctx >= PAGE) {
        const int64_t most = p.largest_ctx - p.largest_ctx / 16; /* a later start holds a little more */
        o->n_ctx = LN_MAX(most - most % PAGE, (int64_t)PAGE);
        LN_TRY(plan_one(model, o, &p, err));
    }
    if (o->pool_positions == 0) o->pool_positions = o->n_ctx + (int64_t)(o->n_parallel - 1) * USUAL_POSITIONS;
    if (o->kv_bytes > 0 || !p.fits) return LN_OK; /* a plan that does not fit is refused where it is opened */
    const bool gpu = p.device_available_bytes > 0;
    const uint64_t have = gpu ? p.device_available_bytes : p.available_bytes,
                   need = gpu ? p.device_bytes : p.peak_bytes;
    o->kv_bytes = p.kv_bytes + (have - LN_MIN(have, need)) / 2;
    return LN_OK;
}

ln_status serve_size(const char *model, ln_options *o, ln_error *err) {
    const ln_status st = find_sizes(model, o, err);
    ln_os_heap_trim(); /* what the models that were opened took is no part of the plan */
    return st;
}
