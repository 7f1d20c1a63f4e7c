/* Where the modules of an adapter belong in a model. */
#ifndef LN_ADAPTER_MATCH_H
#define LN_ADAPTER_MATCH_H

#include "../io/adapter.h"
#include "spec.h"

/* Replaces each module for a tensor that holds the rows of several weights, q, k and v for instance, by one
 * module for each of these: A is the same for all, and each has its rows of B. Modules of single experts
 * become one for each weight of experts. A module that does not fit stays, for ln_adapter_match to reject.
 * LN_EINVALID: the adapter has a module of one of the weights, too; LN_EMEMORY. */
ln_status ln_adapter_split(ln_adapter_file *a, const ln_spec *s, ln_error *err);

/* Finds the weight (slot of weights.def) and the layer, -1 outside the layers, of each module. The modules
 * have been split (ln_adapter_split). slots and layers, [a->n], may be NULL. Compares the embedding table and
 * the output head that the file may have with the model's, whose bytes it reads then. LN_EINVALID: a module
 * that the model does not have, or whose matrix has another shape. The message names the first of them and
 * says how many there are. LN_EUNSUPPORTED: the table or head of the file is not the model's, or the model's
 * is quantised. */
ln_status ln_adapter_match(const ln_adapter_file *a, const ln_spec *s, const ln_weights *w, int *slots,
                           int *layers, ln_error *err);

/* Returns for how many experts of a layer a module of a file is, at least; 0: it is for another matrix. */
int64_t ln_adapter_experts_of(const ln_adapter_module *m);
bool ln_adapter_has_experts(const ln_adapter_file *a);

/* The slot of the bias that belongs to the matrix of `slot`; LN_W_COUNT: no model has one. */
int ln_adapter_bias_slot(int slot);

#endif
