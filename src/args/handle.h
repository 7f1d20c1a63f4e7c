/* Generational handles: the values behind the public pointers (docs/decisions/005).
 *
 * An ln_model *, ln_engine * or ln_request * is not an address but a handle: the index of a slot and the
 * slot's generation. A closed handle matches no slot's generation and is rejected with LN_EUSAGE; no freed
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

#include "args.h"

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

/* What a handle stands for. */
typedef struct ln_handle_object {
    void *object;
    void (*free)(void *object); /* called by the last release */
    void *tokenizer;            /* of a model: what the handle of its tokenizer stands for; or NULL */
    const void *base;           /* a handle in use, whose reference passes to the object; or NULL */
} ln_handle_object;
/* Creates a handle and takes ownership of its object. LN_EMEMORY: all 16,384 slots are taken; the caller
 * keeps the object and the reference to base. */
ln_status ln_handle_new(ln_handle_kind kind, const ln_handle_object *o, void **handle, ln_error *err);
/* Acquires a reference for a call; *object is borrowed until ln_handle_done. LN_EUSAGE: the handle is NULL,
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

#endif
