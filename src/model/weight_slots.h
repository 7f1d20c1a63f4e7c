/* The rows of weights.def as a table: the names, shapes and flags of the matrices and vectors that a model
 * can have. Binding of tensors (weights.c) and matching of adapters (adapter_match.c) read it. */
#ifndef LN_WEIGHT_SLOTS_H
#define LN_WEIGHT_SLOTS_H

#include "spec.h"

typedef struct ln_slot_row {
    const char *name, *shape; /* weights.def describes both; "{}" in a name is the number of the layer */
    int flags;                /* LN_WF_* */
    ln_split split;
} ln_slot_row;
extern const ln_slot_row ln_slot_rows[LN_W_COUNT];

/* Whether layer l has this slot: the column `when` of weights.def. l: -1 for slots outside the layers. */
bool ln_slot_wanted(const ln_spec *s, int slot, int l);
/* The name that the model's family has for the tensor of a slot; NULL: that of weights.def. */
const ln_slot_name *ln_slot_name_of(const ln_spec *s, int slot);
/* Sets *out to the pieces of a weight of layer l in a tensor that holds rows by heads
 * (ln_spec.parts_by_head). */
void ln_slot_pieces(const ln_spec *s, const ln_slot_name *own, int slot, int l, ln_row_pieces *out);
/* The size that a letter of a shape gives in layer l; 0: no such letter. */
int64_t ln_slot_size(const ln_spec *s, char letter, int l);

#endif
