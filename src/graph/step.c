/* Size and offsets of a step block. Every array begins at a multiple of 64 bytes. */
#include "step.h"

#include "graph.h"

enum { ALIGN = 64 };

/* Appends an array of n elements to a block of *size bytes and returns its offset. */
static int64_t append(int64_t *size, int64_t n, size_t element) {
    const int64_t at = (*size + ALIGN - 1) / ALIGN * ALIGN;
    *size = at + n * (int64_t)element;
    return at;
}

/* Sets the offsets of a block and returns its size. No count is beyond INT32_MAX, so that no sum overflows.
 */
static int64_t lay_out(ln_step_block *s, const ln_bounds *b, int64_t max_changes) {
    int64_t size = sizeof *s;
    s->ids = (uint32_t)append(&size, b->T, sizeof(int32_t));
    s->pos = (uint32_t)append(&size, b->T, sizeof(int32_t));
    s->seq = (uint32_t)append(&size, b->T, sizeof(int32_t));
    s->adapter = (uint32_t)append(&size, b->T, sizeof(int32_t));
    s->row0 = (uint32_t)append(&size, b->B + 1, sizeof(int32_t));
    s->slot = (uint32_t)append(&size, b->B, sizeof(int32_t));
    s->n_prompt = (uint32_t)append(&size, b->B, sizeof(int32_t));
    s->out_rows = (uint32_t)append(&size, b->N, sizeof(int32_t));
    s->changes = (uint32_t)append(&size, max_changes, sizeof(ln_page_change));
    return append(&size, 0, 1);
}

int64_t ln_step_bytes(const ln_bounds *b, int64_t max_changes) {
    ln_step_block s;
    if (b->T > INT32_MAX || b->N > INT32_MAX || b->B > INT32_MAX || max_changes > INT32_MAX) return -1;
    const int64_t size = lay_out(&s, b, max_changes);
    return size <= UINT32_MAX ? size : -1;
}

void ln_step_init(ln_step_block *s, const ln_bounds *b, int64_t max_changes) {
    *s = (ln_step_block){0};
    s->size = (uint32_t)lay_out(s, b, max_changes);
}
