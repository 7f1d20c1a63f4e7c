/* What the public functions have in common: checks of arguments, and objects behind handles. */
#ifndef LN_CHECK_H
#define LN_CHECK_H

#include "../engine/engine.h"

/* LN_EUSAGE unless every field is in its range, for a vocabulary of V tokens. */
ln_status ln_api_check_sampling(const ln_sampling *s, int64_t V, ln_error *err);
/* LN_EUSAGE unless the options are in their ranges (api.c). */
ln_status ln_api_check_options(const ln_options *o, ln_error *err);
/* Takes a reference to an engine; ln_handle_done(engine) releases it. */
ln_status ln_api_engine(const ln_engine *engine, ln_eng **out, ln_error *err);
/* Copies a caller's struct whose first field is `size` to a struct of `known` bytes that holds the defaults:
 * a smaller size is an older caller. LN_EUSAGE: the size is too small to be one, or bytes beyond the known
 * ones are set. */
ln_status ln_api_copy_sized(void *to, size_t known, const void *from, const char *what, ln_error *err);
/* The reverse: copies a struct of `known` bytes to a caller's, whose `size` stays. An older caller gets its
 * beginning; the fields that a newer one has beyond it become zero. */
void ln_api_give_sized(void *to, const void *from, size_t known);

#endif
