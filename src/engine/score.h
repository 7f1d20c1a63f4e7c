/* Scoring a text, and the keys of a text: clients of requests. */
#ifndef LN_SCORE_H
#define LN_SCORE_H

#include <linnet_tools.h>

#include "../base/base.h"

struct ln_eng;

/* ln_score, ln_inspect_keys. */
ln_status ln_eng_score(struct ln_eng *e, const int32_t *ids, size_t n, size_t n_top, ln_score_fn *fn,
                       void *user, ln_metrics *metrics, ln_error *err);
ln_status ln_eng_inspect_keys(struct ln_eng *e, const int32_t *ids, size_t n, ln_keys_fn *fn, void *user,
                              ln_error *err);

#endif
