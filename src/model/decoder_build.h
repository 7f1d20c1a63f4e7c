/* What the files of the decoder share: the builder of one graph. Private to src/model.
 *
 * A layer is built by the rows that it names: its mixer of positions (mixers.c) and its feed-forward layer
 * (ffn.c), each a function of normed rows. decoder.c puts them together. */
#ifndef LN_DECODER_BUILD_H
#define LN_DECODER_BUILD_H

#include "decoder_train.h"

typedef struct ln_builder {
    ln_graph *g;
    const ln_spec *s;
    const ln_weights *w;
    const ln_state_pool *pool; /* of paged rows; NULL: the rows of a step are whole sequences (training) */
    ln_v embed;                /* embedding table [V, D]; a tied head uses the same value */
    ln_v *tables;              /* [n_ropes] cos and sin */
    ln_v q_scale;              /* the latest factors of queries by position, */
    const ln_p_pos_scale *q_scale_of; /* and their parameters; NULL: there are none yet */
    ln_v inputs;                      /* [T, L * per_layer]: what each layer adds of its own; -1: nothing */
    ln_v state;          /* the latest version of the pages; every ln_g_kv_write returns a new one */
    ln_v recurrent;      /* the latest version of the pages of recurrent state */
    ln_v *keys, *values; /* [L] of whole sequences: what later layers may read; else NULL */
} ln_builder;

/* The value of a weight, or -1 if the model has no such weight (biases are optional). `layer` is -1 for
 * weights outside the layers. */
ln_v ln_build_weight(const ln_builder *b, const char *name, ln_slot slot, int layer);
/* RMS norm of x[R,D] or, with a weight of length E, of each head. */
ln_v ln_build_norm(const ln_builder *b, const char *name, ln_v x, ln_slot slot, int layer);
/* Matrix product with bias: x[R,C] -> y[R,O] = x W^T + b, with W[O,C] in `slot`. */
ln_v ln_build_linear(const ln_builder *b, const char *name, ln_v x, ln_slot slot, ln_slot bias_slot,
                     int layer);
/* After the keys and values of the last layer are written, only the rows whose logits are wanted are needed:
 * the last row of a prompt, or all rows when the prompt is scored. Reduces x[T,C] to [N,C] in the last layer
 * l; returns x unchanged in every other layer. */
ln_v ln_build_wanted_rows(const ln_builder *b, const char *name, ln_v x, int l);

/* mixers.c: normed x[T,D] -> y[T,D], or [N,D] in the last layer. */
ln_v ln_mix_attention(ln_builder *b, ln_v x, int l);
/* recurrent.c: the delta rule, and a short convolution alone; inference only. */
ln_v ln_mix_delta(ln_builder *b, ln_v x, int l);
ln_v ln_mix_conv(ln_builder *b, ln_v x, int l);
/* ffn.c: the inputs of all layers, from the ids and from their embedding x[T,D]. */
ln_v ln_layer_inputs(const ln_builder *b, ln_v x);
/* ffn.c: the residual stream x[R,D] with what layer l makes of its input. */
ln_v ln_add_layer_input(ln_builder *b, ln_v x, int l);
/* ffn.c: the activation of layer l's MLP or experts. */
ln_v ln_build_activation(const ln_builder *b, const char *name, ln_v x, int l);
/* ffn.c: normed x[R,D] -> y[R,D], the dense MLP. */
ln_v ln_ffn_gated(ln_builder *b, ln_v x, int l);
/* ffn.c: the residual stream x[R,D] -> y[R,D], with the norm of its input. */
ln_v ln_ffn(ln_builder *b, ln_v x, int l);
/* experts.c: normed x[R,D], of which the router reads `routed`, -> y[R,D]. */
ln_v ln_ffn_experts(ln_builder *b, ln_v x, ln_v routed, int l);

#endif
