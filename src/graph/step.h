/* The step block: the implicit input of every program, one ragged batch of T rows. Each row is a token with
 * its position and its sequence. Rows of one sequence are consecutive, and their positions ascend by one.
 *
 * A step crosses the device interface as one contiguous block (ln_step_block). The byte offsets of its arrays
 * depend on the bounds alone, so a device may keep a copy at a fixed address. A device in host memory makes a
 * view of pointers from the block and its page tables once a step (ln_step, ops/host_queue.h); kernels read
 * the live counts and the arrays there.
 *
 *     | ln_step_block | ids pos seq adapter [T] | row0 [B + 1] | slot n_prompt [B] | out_rows [N] | changes |
 *
 * Page tables are state that a queue of the device holds between steps, one table for each slot; a step names
 * the slot of each of its sequences and carries the entries that have changed. For group c, the pages
 * that hold block `blk` (positions blk * page_len ...) of the sequence in slot s are
 * pages[c][(s * n_blocks + blk) * pages_per_block[c] + k] for k = 0 .. pages_per_block[c] - 1, each for some
 * of the group's layers (ln_p_kv.page_in_block). Entries of blocks that no row of the step attends to may be
 * -1 or stale. */
#ifndef LN_STEP_H
#define LN_STEP_H

#include <stdint.h>

/* The most groups of layers with one kind of state that a model may have (state_pool.h). */
enum { LN_STATE_GROUPS = 8 };

struct ln_bounds;

/* A changed entry of a page table: pages[group][at] becomes `page`. */
typedef struct ln_page_change {
    int32_t group, page;
    int64_t at;
} ln_page_change;

/* A step in one block of memory, aligned to 16 bytes. ids .. changes: offsets from its start, in bytes. */
typedef struct ln_step_block {
    uint32_t size;                 /* bytes of the block; those up to the last change are used */
    int32_t n_rows, n_out, n_seqs; /* live T, N, B. With n_rows = 0 the step only applies its changes */
    int32_t n_changes;
    uint32_t ids, pos, seq; /* int32 [T] */
    uint32_t adapter;       /* int32 [T] adapter slot of each row; -1: none */
    uint32_t row0;          /* int32 [B + 1] first row of each sequence; row0[B] = T */
    uint32_t slot;          /* int32 [B] slot of each sequence */
    uint32_t n_prompt; /* int32 [B] length of the prompt that each sequence began with, in tokens; 0: none */
    uint32_t out_rows; /* int32 [N] rows whose logits are wanted */
    /* ln_page_change [n_changes] entries that changed since the last step, in order; the device applies them
     * before the program runs */
    uint32_t changes;
} ln_step_block;

/* Bytes of a step block for these bounds and at most max_changes changes. -1: beyond 32 bits. */
int64_t ln_step_bytes(const struct ln_bounds *b, int64_t max_changes);
/* Sets size and offsets of a block of ln_step_bytes bytes, and all counts to 0. */
void ln_step_init(ln_step_block *s, const struct ln_bounds *b, int64_t max_changes);

/* The arrays of a block in host memory. */
static inline int32_t *ln_step_at(const ln_step_block *s, uint32_t offset) {
    return (int32_t *)((uintptr_t)s + offset);
}
static inline int32_t *ln_step_ids(const ln_step_block *s) { return ln_step_at(s, s->ids); }
static inline int32_t *ln_step_pos(const ln_step_block *s) { return ln_step_at(s, s->pos); }
static inline int32_t *ln_step_seq(const ln_step_block *s) { return ln_step_at(s, s->seq); }
static inline int32_t *ln_step_adapter(const ln_step_block *s) { return ln_step_at(s, s->adapter); }
static inline int32_t *ln_step_row0(const ln_step_block *s) { return ln_step_at(s, s->row0); }
static inline int32_t *ln_step_slot(const ln_step_block *s) { return ln_step_at(s, s->slot); }
static inline int32_t *ln_step_n_prompt(const ln_step_block *s) { return ln_step_at(s, s->n_prompt); }
static inline int32_t *ln_step_out_rows(const ln_step_block *s) { return ln_step_at(s, s->out_rows); }
static inline ln_page_change *ln_step_changes(const ln_step_block *s) {
    return (ln_page_change *)((uintptr_t)s + s->changes);
}

/* A step as kernels in host memory read it. All arrays are borrowed. */
typedef struct ln_step {
    int32_t n_rows, n_out, n_seqs;  /* T, N, B */
    const int32_t *ids, *pos, *seq; /* [T] */
    const int32_t *adapter;         /* [T] adapter slot of each row, -1: none; NULL: none has one */
    const int32_t *row0;            /* [B + 1] first row of each sequence; row0[B] = T */
    const int32_t *out_rows;        /* [N] rows whose logits are wanted */
    const int32_t *n_prompt; /* [B] length of the prompt that each sequence began with, in tokens; NULL: 0 for
                                all */
    const int32_t *slot;     /* [B] slot of each sequence; NULL: sequence b has slot b */
    const int32_t *pages[LN_STATE_GROUPS]; /* the queue's page tables */
    int32_t pages_per_block[LN_STATE_GROUPS];
    int32_t n_blocks;
} ln_step;

#endif
