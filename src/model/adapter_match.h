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
 * have been split (ln_adapter_split). slots and layers, [a->n], may be NULL. LN_EINVALID: a module that the
 * model does not have, or whose matrix has another shape. The message names the first of them and says how
 * many there are. */
ln_status ln_adapter_match(const ln_adapter_file *a, const ln_spec *s, int *slots, int *layers,
                           ln_error *err);

/* Compares copies of the embedding table and of the output head with the model's, whose bytes it reads then:
 * sets ln_adapter_change.differs, and a->n_copies to the tensors that change nothing. Copies of a quantised
 * table differ. */
ln_status ln_adapter_compare(ln_adapter_file *a, const ln_spec *s, const ln_weights *w, ln_error *err);

/* ---- changed_tables.c ---- */

/* An adapter, and the factor on what it changes. */
typedef struct ln_adapted {
    ln_adapter_file *file;
    double factor;
} ln_adapted;
/* Whether one of n adapters that were compared changes tensors of the model itself. */
bool ln_weights_will_change(const ln_adapted *by, size_t n);
/* Compares n adapters with the model, and has its weights be loaded with what they change. The vocabulary,
 * s->V, may grow, and the head of a tied model may become a weight of its own. The adapters must outlive *w.
 * LN_EINVALID: a module that the model lacks, or of another shape. LN_EUNSUPPORTED: one that is not replaced.
 */
ln_status ln_weights_change(ln_weights *w, ln_spec *s, const ln_adapted *by, size_t n, ln_error *err);

/* Returns for how many experts of a layer a module of a file is, at least; 0: it is for another matrix. */
int64_t ln_adapter_experts_of(const ln_adapter_module *m);
bool ln_adapter_has_experts(const ln_adapter_file *a);

/* The slot of the bias that belongs to the matrix of `slot`; LN_W_COUNT: no model has one. */
int ln_adapter_bias_slot(int slot);

#endif
