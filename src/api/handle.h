/* Handles: what the public pointers are.
 *
 * An ln_model * or ln_engine * is no address but a ticket: the index of a slot and the slot's generation. Closing a handle raises the
 * generation, so a ticket used after close no longer matches and is refused with LN_EUSAGE instead of touching freed memory. */
#ifndef LN_HANDLE_H
#define LN_HANDLE_H

#include "../base/base.h"

typedef enum ln_handle_kind { LN_HANDLE_MODEL = 1, LN_HANDLE_ENGINE, LN_HANDLE_TOKENIZER } ln_handle_kind;

/* A ticket for `object`. LN_EMEMORY when all slots (4,096) are taken. */
ln_status ln_handle_new(ln_handle_kind kind, void *object, void **ticket, ln_error *err);
/* The object of a ticket; LN_EUSAGE when it is NULL, closed or of another kind. */
ln_status ln_handle_get(ln_handle_kind kind, const void *ticket, void **object, ln_error *err);
/* Takes a ticket back and returns its object; NULL when it is no live ticket. */
void *ln_handle_take(ln_handle_kind kind, const void *ticket);

#endif
