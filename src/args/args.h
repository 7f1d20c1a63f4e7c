/* Arguments of public functions, checked: sizes of structs, ranges of options and samplings, results of
 * callers of other versions. What api/ and the clients within the library have in common. */
#ifndef LN_ARGS_H
#define LN_ARGS_H

#include "../base/float_env.h"
#include "../base/public_limits.h"

/* The caller's err or, for NULL, the thread's error that ln_last_error returns. */
ln_error *ln_api_error(ln_error *err);
/* Begins a public function that computes: until it returns, the calling thread has the library's
 * floating-point environment. tools/lint_rules checks that every public function begins with this or ARG. */
#define ENTER                                                                          \
    ln_float_env callers_float_env __attribute__((cleanup(ln_api_restore_float_env))); \
    ln_float_env_default(&callers_float_env)
static inline void ln_api_restore_float_env(ln_float_env *callers) { ln_float_env_restore(callers); }
/* Begins a public function that takes `err`: in addition to ENTER, err is not NULL after it, and the
 * condition on arguments holds. */
#define ARG(cond, text)      \
    ENTER;                   \
    err = ln_api_error(err); \
    NEED(cond, text)
/* A further condition on arguments. */
#define NEED(cond, text)                                                       \
    do {                                                                       \
        if (!(cond)) return ln_fail(err, LN_EUSAGE, "%s: %s", __func__, text); \
    } while (0)

/* LN_EUSAGE unless every field is in its range, for a vocabulary of V tokens. */
ln_status ln_api_check_sampling(const ln_sampling *s, int64_t V, ln_error *err);
/* Copies a caller's options (NULL: the defaults) and checks their ranges. */
ln_status ln_api_options(const ln_options *opt, ln_options *out, ln_error *err);
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
/* Stores the prompts of an array whose elements have the size that the first one states. If that is this
 * library's, *out is the caller's array and *copy NULL; else both are a copy, which ln_free frees. */
ln_status ln_api_prompts(const ln_prompt *prompts, size_t n, const ln_prompt **out, ln_prompt **copy,
                         ln_error *err);
/* Copies a caller's sampling options to *out, which holds the defaults, and checks them for a vocabulary of
 * V. */
ln_status ln_api_sampling(const ln_sampling *sampling, int64_t V, ln_sampling *out, ln_error *err);

#endif
