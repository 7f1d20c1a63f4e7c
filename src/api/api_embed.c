/* The public API of embeddings: checks arguments, resolves handles, forwards the call. */
#include "../engine/embed.h"
#include "check.h"
#include "../args/handle.h"

static ln_status check(const ln_embed_options *o, ln_error *err) {
    if (o->pooling < LN_POOLING_AUTO || o->pooling > LN_POOLING_WEIGHTED_MEAN)
        return ln_fail(err, LN_EUSAGE, "ln_embed_options.pooling is %d, expected an ln_pooling",
                       (int)o->pooling);
    if (o->normalize < LN_UNIT_LENGTH_AUTO || o->normalize > LN_UNIT_LENGTH_NO)
        return ln_fail(err, LN_EUSAGE, "ln_embed_options.normalize is %d, expected an ln_unit_length",
                       (int)o->normalize);
    if (o->dimensions < 0)
        return ln_fail(err, LN_EUSAGE, "ln_embed_options.dimensions: expected 0 (all) or more, found %lld",
                       (long long)o->dimensions);
    return LN_OK;
}

ln_status ln_embed(ln_engine *engine, const ln_prompt *prompts, size_t n, const ln_embed_options *opt,
                   ln_embed_fn *fn, void *user, ln_metrics *metrics, ln_error *err) {
    struct ln_eng *e;
    ln_embed_options o = ln_embed_options_default();
    ARG(fn && (prompts || n == 0), "prompts and fn must not be NULL");
    if (opt) LN_TRY(ln_api_copy_sized(&o, sizeof o, opt, "ln_embed_options", err));
    LN_TRY(check(&o, err));
    LN_TRY(ln_api_engine(engine, &e, err));
    const ln_prompt *all;
    ln_prompt *copy = NULL;
    ln_status st = ln_api_prompts(prompts, n, &all, &copy, err);
    ln_api_adapted by_slot = {0};
    if (st == LN_OK) st = ln_api_use_adapters(&by_slot, e, all, n, err);
    if (st == LN_OK) st = ln_eng_embed(e, by_slot.prompts, n, &o, fn, user, metrics, err);
    ln_api_done_adapters(&by_slot);
    ln_free(copy);
    ln_handle_done(engine);
    return st;
}
