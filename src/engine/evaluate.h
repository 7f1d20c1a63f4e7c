/* The perplexity of a text in windows: ln_evaluate as a client of requests. */
#ifndef LN_EVALUATE_H
#define LN_EVALUATE_H

#include <linnet_tools.h>

#include "../base/base.h"
#include "../base/rank_exchange.h"

struct ln_eng;

/* The contract is that of ln_evaluate; *out is written whole. ranks: the group whose ranks all make this
 * call, each with a share of the windows; NULL: this process is alone. */
ln_status ln_eng_evaluate(struct ln_eng *e, ln_transport *ranks, const int32_t *ids, size_t n, int64_t window,
                          int64_t stride, ln_evaluation *out, ln_metrics *metrics, ln_error *err);

#endif
