/* What the calls that run texts for numbers share: score.c, classify.c, evaluate.c, embed.c. Each hands texts
 * to the engine as requests and reads rows inside the steps. */
#ifndef LN_TEXT_CALLS_H
#define LN_TEXT_CALLS_H

#include "engine.h"
#include "request.h"

/* Whether an error of a request of n_positions ends that request's text only, so that the other texts of the
 * call can go on: the text is at fault, or the pool could never hold it. */
bool ln_eng_error_of_text(const ln_eng *e, ln_status st, int64_t n_positions);
/* Takes the result of a request that has finished, and frees it. *n_cached (NULL: not wanted): its tokens
 * that were not computed again. Returns the request's error; LN_ECANCELLED: it was cancelled. */
ln_status ln_eng_end_request(ln_req **req, int64_t *n_cached, ln_error *err);
/* Fills in the measurements of a call that read n_prompt tokens, n_cached of them from the cache, in
 * `seconds` without the callbacks'. It generated none. */
void ln_eng_fill_metrics(const ln_eng *e, int64_t n_prompt, int64_t n_cached, double seconds, ln_metrics *m);

#endif
