/* The decoder as training needs it: attention over the packed rows of a step, the cross-entropy of the
 * targets, and which matrices low-rank adapters are trained for. decoder.c builds it from the same
 * description; adapters are added by a pass (graph/grad.h). */
#ifndef LN_DECODER_TRAIN_H
#define LN_DECODER_TRAIN_H

#include "../graph/grad.h"
#include "spec.h"

/* The adapters that are trained; ln_lora_training has the meaning of the fields. */
typedef struct ln_lora {
    int rank;
    double scale, dropout;
    uint64_t seed;
    bool magnitudes; /* DoRA */
    /* slots with LN_WF_LORA, in every layer that has them, and the embedding. Of slots that share a tensor
     * all are targets, or none. If the head is the embedding, each has an adapter of its own */
    bool targets[LN_W_COUNT];
    /* Trained tokens, ascending: their rows of the embedding, and of the head, which has its own unless it is
     * the embedding. The table then is no target, nor is the head */
    const int32_t *tokens;
    int n_tokens;
    bool whole_table, whole_head; /* the embedding, and the head, are trained as a whole, next to adapters */
    const bool *layers; /* [L] the layers whose matrices are adapted; NULL: all, and matrices outside of
                           layers */
    ln_dtype dtype;
} ln_lora;

/* Slots of the inputs of the graph. */
enum {
    LN_TRAIN_TARGETS,   /* int32 [N,1]: the id that an output row predicts; below 0: none */
    LN_TRAIN_WEIGHTS,   /* f32 [N,1]: the weight of its loss */
    LN_TRAIN_SAMPLES,   /* int32 [B,2]: ln_lora_graph.samples */
    LN_TRAIN_LOOKED_UP, /* f32 [T, rank] or [T, D]: ln_lora_training.looked_up */
    LN_TRAIN_CHOSEN,    /* f32 [T, n_tokens]: ln_lora_training.chosen */
    LN_TRAIN_INPUTS
};
typedef struct ln_train_graph {
    ln_v targets, weights; /* inputs */
    ln_v loss;             /* [N,1]: the negative log-likelihood of each target, without its weight */
} ln_train_graph;

/* Builds the graph of the model with its loss in *g, which must be open. trains_head: the loss has a gradient
 * with respect to the head, too. Errors as ln_decoder_build's. */
ln_status ln_decoder_build_train(ln_graph *g, const ln_spec *s, const ln_weights *w, bool trains_head,
                                 ln_train_graph *out, ln_error *err);
/* Builds the same forward pass with the logits of the output rows, [N,V], as its output, before a cap. Errors
 * as ln_decoder_build's. */
ln_status ln_decoder_build_packed(ln_graph *g, const ln_spec *s, const ln_weights *w, ln_error *err);

/* ---- lora_targets.c ---- */

/* Sets *out to the adapters of a model, and allocates out->adapts, by index in w->items, in the arena.
 * LN_EUNSUPPORTED: a target that cannot be adapted. LN_EINVALID: a rank below 1, a dropout that is no
 * probability, or nothing to adapt. LN_EMEMORY. */
ln_status ln_lora_targets(const ln_lora *lora, const ln_weights *w, const ln_spec *s, ln_arena *arena,
                          ln_lora_training *out, ln_error *err);

/* The number of matrices that are adapted, or have rows that are trained. */
size_t ln_lora_count(const ln_lora *lora, const ln_weights *w);
/* Whether the loss must have a gradient with respect to the head, or to what is added to its logits. */
static inline bool ln_lora_needs_logits(const ln_lora *lora) {
    return lora->targets[LN_W_HEAD] || lora->whole_head || lora->n_tokens > 0;
}

#endif
