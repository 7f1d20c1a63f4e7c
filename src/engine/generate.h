/* Generating text after one prompt: a client of requests. */
#ifndef LN_GENERATE_H
#define LN_GENERATE_H

#include "request.h"

/* Opens a request for a prompt. Of `opt`, ids, split_reasoning and opened are filled in here; opt->how may
 * have n_max -1, the default. Errors: those of ln_prompt_ids and ln_req_new. The caller owns *out;
 * ln_req_free. */
ln_status ln_eng_request(ln_req **out, struct ln_eng *e, const ln_prompt *p, const ln_req_options *opt,
                         ln_error *err);
/* ln_generate. *out is overwritten. */
ln_status ln_eng_generate(struct ln_eng *e, const ln_prompt *p, const ln_sampling *how, ln_text_fn *on_text,
                          void *user, ln_result *out, ln_error *err);

/* Calls the caller's progress function where more of the prompt is computed than *said. On the calling
 * thread.
 */
void ln_eng_say_read(const ln_req *r, const ln_req_view *v, int64_t *said);

#endif
