/* Weights that an adapter changes while they are loaded. */
#ifndef LN_CHANGED_SOURCE_H
#define LN_CHANGED_SOURCE_H

#include "source.h"

struct ln_adapter_change;
struct ln_adapter_file;

/* What one adapter changes of a weight, times a factor. The adapter must outlive the source. */
typedef struct ln_row_change {
    const struct ln_adapter_file *file;
    const struct ln_adapter_change *change;
    double factor;
} ln_row_change;

/* Returns a source of the weights of another one, of which some are changed; NULL: out of memory. */
const ln_source *ln_source_changing(ln_arena *arena, const ln_source *of);
/* Marks *w, which source s->of hands out, as a weight whose rows are changed, and which has `rows` of them.
 * LN_EMEMORY. */
ln_status ln_source_change(const ln_source *s, ln_weight *w, const ln_row_change *changes, size_t n,
                           int64_t rows, ln_error *err);

#endif
