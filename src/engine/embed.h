/* Embeddings of prompts: ln_embed as a client of requests. */
#ifndef LN_EMBED_H
#define LN_EMBED_H

#include <linnet_tools.h>

#include "../base/base.h"

struct ln_eng;

/* The contract is that of ln_embed; *opt is complete and checked. */
ln_status ln_eng_embed(struct ln_eng *e, const ln_prompt *prompts, size_t n, const ln_embed_options *opt,
                       ln_embed_fn *fn, void *user, ln_metrics *metrics, ln_error *err);

#endif
