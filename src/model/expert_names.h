/* The rows of expert_names.def as a table: names of the tensors that hold the matrices of experts. */
#ifndef LN_EXPERT_NAMES_H
#define LN_EXPERT_NAMES_H

#include "spec.h"

typedef struct ln_expert_row {
    int slot;
    const char *name;
    ln_experts_in in;
} ln_expert_row;
const ln_expert_row *ln_expert_rows(size_t *n);
/* Returns how a tensor of that name holds them in a model: in those whose files have gate and up in turn,
 * parameters of the reference's modules do. */
uint8_t ln_expert_row_in(const ln_expert_row *row, const ln_moe_spec *m);

/* Returns the slot of the experts that a module is for, LN_W_COUNT if it is for none, and sets *layer, and
 * *expert to the number of the only one that has it, or -1. path: `layers.3.mlp.experts.7.up_proj`,
 * `layers.3.mlp.switch_mlp.up_proj`. */
int ln_expert_slot(const char *path, int64_t *layer, int64_t *expert);
/* Whether a module is the one of all experts of a layer in the reference: `layers.3.mlp.experts`. */
bool ln_is_experts_module(const ln_spec *s, const char *path, int64_t *layer);

#endif
