/* What the public functions have in common: checks of arguments, and objects behind handles. */
#ifndef LN_CHECK_H
#define LN_CHECK_H

#include "../engine/engine.h"

/* LN_EUSAGE unless every field is in its range, for a vocabulary of V tokens. */
ln_status ln_api_check_sampling(const ln_sampling *s, int64_t V, ln_error *err);
/* Copies a caller's options (NULL: the defaults) and checks their ranges (api.c). */
ln_status ln_api_options(const ln_options *opt, ln_options *out, ln_error *err);
/* Takes a reference to an engine; ln_handle_done(engine) releases it. */
ln_status ln_api_engine(const ln_engine *engine, ln_eng **out, ln_error *err);
/* Copies a caller's struct whose first field is `size` to a struct of `known` bytes that holds the defaults:
 * a smaller size is an older caller. The copy's size is `known`. LN_EUSAGE: the size is too small to be one,
 * or bytes beyond the known ones are set. */
ln_status ln_api_copy_sized(void *to, size_t known, const void *from, const char *what, ln_error *err);
/* Checks the size of a struct that the caller wants filled: at least `least` bytes. LN_EUSAGE. */
ln_status ln_api_check_size(const void *out, size_t least, const char *what, ln_error *err);
/* Fills such a struct from one of `known` bytes: an older caller gets the beginning; bytes of a newer caller
 * that this library does not know become zero. The caller's size stays. */
void ln_api_give_sized(void *out, size_t known, const void *from);
/* Checks the size of a caller's result and empties it. LN_EUSAGE. */
ln_status ln_api_open_result(ln_result *out, ln_error *err);
/* The same for an array, whose elements all have the size of the first, which is their distance. */
ln_status ln_api_open_results(ln_result *results, size_t n, ln_error *err);
ln_result *ln_api_result_at(ln_result *results, size_t i);
/* Moves a result into such a struct of the caller, and frees what that has no field for; NULL: all of it. */
void ln_api_give_result(ln_result *out, ln_result *all);
/* Copies a caller's prompt. */
ln_status ln_api_prompt(const ln_prompt *prompt, ln_prompt *out, ln_error *err);
/* Gives the prompts of an array whose elements have the size that the first one states. Where that is this
 * library's, *out is the caller's array and *copy NULL; else both are a copy, which ln_free frees. */
ln_status ln_api_prompts(const ln_prompt *prompts, size_t n, const ln_prompt **out, ln_prompt **copy,
                         ln_error *err);
/* Replaces the handle of a prompt's adapter by its object (ln_adapter_ref), which must be one of this
 * engine. *used: the handle, for ln_handle_done when the call has made its requests; NULL: there is none.
 * LN_EUSAGE. */
ln_status ln_api_use_adapter(const ln_eng *e, ln_prompt *p, const void **used, ln_error *err);
/* The same for an array: `prompts` is the caller's array, or a copy where a prompt has an adapter. After an
 * error too, ln_api_done_adapters lets go of the handles and frees the copy. */
typedef struct ln_api_adapted {
    const ln_prompt *prompts; /* [number of prompts] */
    ln_prompt *copy;
    const void **used; /* [n] handles */
    size_t n;
} ln_api_adapted;
ln_status ln_api_use_adapters(ln_api_adapted *out, const ln_eng *e, const ln_prompt *all, size_t n,
                              ln_error *err);
void ln_api_done_adapters(ln_api_adapted *p);
/* Copies a caller's sampling options to *out, which holds the defaults, and checks them for a vocabulary of
 * V. */
ln_status ln_api_sampling(const ln_sampling *sampling, int64_t V, ln_sampling *out, ln_error *err);

#endif
