/* The weights of a model as parameters: what the programs of full training (train_program.h) do with them. A
 * parameter is a tensor of the files in f32; programs compute with its rows in the dtype of the files. */
#ifndef LN_TRAINED_WEIGHTS_H
#define LN_TRAINED_WEIGHTS_H

#include "../graph/graph.h"
#include "run.h"

/* Rejects weights that cannot be trained, with LN_EUNSUPPORTED and the name of the first one: quantised ones,
 * those that are computed while they are loaded, and those of experts. */
ln_status ln_trained_weights_check(const ln_weights *w, ln_error *err);
/* Stores the values of a graph that are weights in out[0 .. *n), each weight once; `out` has w->n elements or
 * more. LN_EUNSUPPORTED: a weight that the graph has as a constant. */
ln_status ln_trained_weights_values(const ln_graph *g, const ln_weights *w, ln_v *out, size_t *n,
                                    ln_error *err);
/* Reads weight i into `out`, f32 [d0, d1]. */
ln_status ln_trained_weights_read(const ln_weights *w, size_t i, float *out, ln_error *err);
/* Returns the bytes of the buffer that ln_trained_weights_store needs for this weight; 0: it needs none. */
size_t ln_trained_weights_buffer(const ln_weight *w);
/* Replaces weight i of *r by f32 values, rounded to the dtype of the files. */
ln_status ln_trained_weights_store(ln_device_weights *r, size_t i, const float *values, void *buffer,
                                   ln_error *err);

#endif
