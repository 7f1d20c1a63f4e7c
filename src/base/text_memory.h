/* Memory whose size an input decides: bodies, JSON trees, rendered and tokenised texts.
 *
 * An account is what one piece of work on a text holds. While a thread is inside an account, every allocation
 * of base.h on that thread is counted in it, and is asked for before memory is taken. An account reserves its
 * bytes in steps from a budget. A budget that has too few left rejects them; the allocation then fails as it
 * does without memory, and ln_account_error turns the LN_EMEMORY of the caller into a message with both
 * numbers.
 *
 * Budgets are a tree, whose root is the process. The root holds what open engines have planned for texts
 * (ln_texts_plan) and, beyond that, what the limit of the process leaves.
 *
 * Memory that is freed outside its account stays counted until the account is closed. Memory that outlives
 * its account must be counted elsewhere. An account is used by one thread at a time; a budget by any. */
#ifndef LN_TEXT_MEMORY_H
#define LN_TEXT_MEMORY_H

#include "base.h"

#include <stdatomic.h>

typedef struct ln_budget {
    struct ln_budget *parent; /* NULL: the process */
    const char *limited_by;   /* what sets the limit, for messages; static */
    uint64_t limit;
    _Atomic uint64_t used;
} ln_budget;

typedef struct ln_account {
    ln_budget *budget; /* NULL: the process */
    uint64_t bytes;    /* held now, with the allocator's overhead */
    uint64_t reserved; /* of the budget */
    uint64_t peak;     /* largest `bytes` so far */
    /* The first refusal: what the account would have held (0: no refusal), what the budget that rejected
     * has, and what other accounts held of it. */
    uint64_t asked, limit, others;
    const char *limited_by;
} ln_account;

/* Sets the account of the calling thread to `a` (NULL: none) and returns the previous one, which the caller
 * restores by ln_account_leave. */
ln_account *ln_account_enter(ln_account *a);
/* Returns what the account has reserved and does not hold, and makes `outer` the account of the thread. */
void ln_account_leave(ln_account *outer);
/* Whether the account could hold so many bytes more; notes the refusal if not. Takes nothing. */
bool ln_account_fits(ln_account *a, uint64_t bytes);
/* Counts bytes that the account holds although it did not allocate them. False: rejected, and not
 * counted. */
bool ln_account_add(ln_account *a, uint64_t bytes);
/* Counts `bytes` fewer: they are counted elsewhere from now on, or were freed outside the account. */
void ln_account_subtract(ln_account *a, uint64_t bytes);
/* Counts bytes in another account from now on, even beyond its budget: they are held already. */
void ln_account_move(ln_account *from, ln_account *to, uint64_t bytes);
/* Returns everything to the budget. The account may be used again. */
void ln_account_close(ln_account *a);
/* Whether a smaller text, rather than a later try, is what helps: the rejected bytes exceed the budget. */
bool ln_account_never_fits(const ln_account *a);
/* Replaces the message of an LN_EMEMORY that the account's budget has caused. Returns st. */
ln_status ln_account_error(const ln_account *a, ln_status st, ln_error *err);

/* Work on a text for a caller that may have an account already: begin enters an account of its own if the
 * thread has none, end leaves it and explains a refusal. What is still held belongs to the caller then. */
typedef struct ln_text_work {
    ln_account own;
    bool is_outermost;
} ln_text_work;
void ln_text_begin(ln_text_work *w);
ln_status ln_text_end(ln_text_work *w, ln_status st, ln_error *err);

/* ---- the process ---- */

/* Bytes that all accounts have reserved. */
uint64_t ln_texts_used(void);
/* Bytes that engines have planned for texts and no account has reserved. */
uint64_t ln_texts_unused(void);
/* Adds to the bytes that engines have planned for texts; negative: an engine is closed. */
void ln_texts_plan(int64_t bytes);
/* The limit of ln_memory_set_limit, 0: none; _set returns the previous one. */
uint64_t ln_limit_get(void);
uint64_t ln_limit_set(uint64_t bytes);
/* Sets the function that returns the bytes that are planned and not resident yet; NULL: there are none. */
void ln_texts_to_come(uint64_t (*fn)(void));

/* ---- for memory.c ---- */

extern _Thread_local ln_account *ln_account_here;
/* Asks for an allocation of so many bytes. False: it is rejected. */
bool ln_account_ask(ln_account *a, uint64_t bytes);
/* Counts a block of this usable size that was allocated, or freed. */
void ln_account_took(ln_account *a, uint64_t usable);
void ln_account_gave(ln_account *a, uint64_t usable);
void ln_account_resized(ln_account *a, uint64_t before, uint64_t after);

#endif
