/* Generational handles: the values behind the public pointers (docs/decisions/005).
 *
 * An ln_model *, ln_engine * or ln_request * is not an address but a handle: the index of a slot and the
 * slot's generation. A closed handle matches no slot's generation and is refused with LN_EUSAGE; no freed
 * memory is accessed.
 *
 * An object is reference-counted: by its open handle, by each running call, and by handles that depend on it
 * (an engine on its model, a request on its engine). The last release frees it, so handles may be closed at
 * any time, in any order, from any thread.
 *
 * A stop request is a word in the slot, which is never freed. It holds the handle that it is for, so that it
 * can be written from a signal handler, and a stop request for a closed handle does not reach its slot's next
 * owner. */
#ifndef LN_HANDLE_H
#define LN_HANDLE_H

#include "../base/float_env.h"

#include <stdatomic.h>

typedef enum ln_handle_kind {
    LN_HANDLE_NONE = 0,
    LN_HANDLE_MODEL,
    LN_HANDLE_ENGINE,
    LN_HANDLE_TOKENIZER,
    LN_HANDLE_TEMPLATE,
    LN_HANDLE_REQUEST,
    LN_HANDLE_BACKEND, /* an ln_backend_model */
    LN_HANDLE_GRAPH,
    LN_HANDLE_ADAPTER,
    LN_HANDLE_TRAINER
} ln_handle_kind;

/* Makes a handle for `object` and takes ownership of it: its last release frees it. `base`: a handle in use,
 * whose reference passes to the new handle's object; or NULL. LN_EMEMORY: all 16,384 slots are taken; the
 * caller keeps the object and the reference to base. */
ln_status ln_handle_new(ln_handle_kind kind, void *object, const void *base, void **handle, ln_error *err);
/* Takes a reference for a call; *object is borrowed until ln_handle_done. LN_EUSAGE: the handle is NULL,
 * closed or of another kind. */
ln_status ln_handle_use(ln_handle_kind kind, const void *handle, void **object, ln_error *err);
/* Returns the handle of a part that belongs to a model: its tokenizer. It is the model's handle with another
 * kind: a reference to it is one to the model, closing it does nothing, and it is closed together with the
 * model. */
const void *ln_handle_part(const void *model, ln_handle_kind part);
/* Releases the reference that ln_handle_use took. */
void ln_handle_done(const void *handle);
/* Closes a handle and asks its running calls to stop; ignores what is not an open handle of this kind. */
void ln_handle_close(ln_handle_kind kind, const void *handle);

/* Whether a value has this kind; it may be closed. Async-signal-safe. */
bool ln_handle_is(ln_handle_kind kind, const void *handle);
/* Sets (stop true) or clears the stop request of an engine, a request or a backend's model; other handles are
 * ignored.
 * Async-signal-safe. */
void ln_handle_stop(const void *handle, bool stop);
/* Returns the slot's stop word: it equals the handle's value while a stop is requested. Never freed. */
const _Atomic(uintptr_t) *ln_handle_stop_word(const void *handle);

/* The caller's err or, for NULL, the thread's error that ln_last_error returns (api.c). */
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

#endif
