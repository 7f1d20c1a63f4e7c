/* Classifying many prompts: ln_classify as a client of requests. */
#ifndef LN_CLASSIFY_H
#define LN_CLASSIFY_H

#include <linnet_tools.h>

#include "../base/base.h"
#include "../base/rank_exchange.h"

struct ln_eng;

/* The contract is that of ln_classify; *opt is complete and checked. */
ln_status ln_eng_classify(struct ln_eng *e, const ln_prompt *prompts, size_t n,
                          const ln_classify_options *opt, ln_class_fn *fn, void *user, ln_metrics *metrics,
                          ln_error *err);
/* The same if all ranks of a group make this call (classify_ranks.c): each classifies a share of the prompts
 * and gets the results of all. */
ln_status ln_eng_classify_shared(struct ln_eng *e, ln_transport *ranks, const ln_prompt *prompts, size_t n,
                                 const ln_classify_options *opt, ln_class_fn *fn, void *user,
                                 ln_metrics *metrics, ln_error *err);

#endif
