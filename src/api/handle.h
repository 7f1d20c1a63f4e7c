/* Handles: what the public pointers are.
 *
 * An ln_model * or ln_engine * is no address but a ticket: the index of a slot and the slot's generation. A closed ticket matches no
 * slot any more and is refused with LN_EUSAGE instead of touching freed memory.
 *
 * An object lives as long as it is used: by its open handle, by each running call, and by handles made on top of it (an engine uses its
 * model). Whoever ends the last use frees it, so closing is right at any time, in any order, from any thread.
 *
 * A wish to stop is a word in the slot, which is never freed, and holds the ticket that it is meant for: it can be written from a signal
 * handler, and one that comes too late means nobody. */
#ifndef LN_HANDLE_H
#define LN_HANDLE_H

#include "../base/base.h"

#include <stdatomic.h>

typedef enum ln_handle_kind { LN_HANDLE_NONE = 0, LN_HANDLE_MODEL, LN_HANDLE_ENGINE, LN_HANDLE_TOKENIZER, LN_HANDLE_TEMPLATE } ln_handle_kind;

/* A ticket for `object`, which is freed when its last use ends. `base`: a used ticket whose use passes to this one, or NULL. LN_EMEMORY when
 * all slots (4,096) are taken: object and use then stay the caller's. */
ln_status ln_handle_new(ln_handle_kind kind, void *object, const void *base, void **ticket, ln_error *err);
/* Begins a use. LN_EUSAGE when the ticket is NULL, closed or of another kind, or an engine's that is in use. */
ln_status ln_handle_use(ln_handle_kind kind, const void *ticket, void **object, ln_error *err);
/* The ticket of a part of a model that lives as long as it does: its tokenizer. It is the model's ticket with another kind: using it is a use
 * of the model, closing it does nothing, and it is closed when the model is. */
const void *ln_handle_part(const void *model, ln_handle_kind part);
/* Ends a use. */
void ln_handle_done(const void *ticket);
/* Closes a ticket and asks a running call to stop; nothing when it is none of this kind that is open. */
void ln_handle_close(ln_handle_kind kind, const void *ticket);

/* An engine's wish to stop, set or taken back; nothing for other tickets. Async-signal-safe. */
void ln_handle_stop(const void *ticket, bool stop);
/* The word that is the ticket's own value while a stop is wished. */
const _Atomic(uintptr_t) *ln_handle_stop_word(const void *ticket);

#endif
