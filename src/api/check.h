/* Arguments that name an engine or an adapter: objects behind handles. */
#ifndef LN_CHECK_H
#define LN_CHECK_H

#include "../args/args.h"
#include "../engine/engine.h"

/* Acquires a reference to an engine; ln_handle_done(engine) releases it. */
ln_status ln_api_engine(const ln_engine *engine, ln_eng **out, ln_error *err);
/* Replaces the handle of a prompt's adapter by its object (ln_adapter_ref), which must be one of this
 * engine. *used: the handle, for ln_handle_done when the call has made its requests; NULL: there is none.
 * LN_EUSAGE. */
ln_status ln_api_use_adapter(const ln_eng *e, ln_prompt *p, const void **used, ln_error *err);
/* The same for an array: `prompts` is the caller's array, or a copy if a prompt has an adapter. After an
 * error too, ln_api_done_adapters releases the handles and frees the copy. */
typedef struct ln_api_adapted {
    const ln_prompt *prompts; /* [number of prompts] */
    ln_prompt *copy;
    const void **used; /* [n] handles */
    size_t n;
} ln_api_adapted;
ln_status ln_api_use_adapters(ln_api_adapted *out, const ln_eng *e, const ln_prompt *all, size_t n,
                              ln_error *err);
void ln_api_done_adapters(ln_api_adapted *p);

#endif
