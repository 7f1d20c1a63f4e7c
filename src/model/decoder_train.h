/* The decoder as training needs it: attention over the packed rows of a step, low-rank adapters on chosen
 * matrices, and the cross-entropy of the targets. decoder.c builds it from the same description. */
#ifndef LN_DECODER_TRAIN_H
#define LN_DECODER_TRAIN_H

#include "../graph/grad.h"
#include "spec.h"

/* LoRA (Hu et al. 2021): y = x W^T + b + scale (dropout(x) A^T) B^T, with A[rank, n_in] and B[n_out, rank].
 */
typedef struct ln_lora {
    int rank;
    double scale;             /* alpha / rank, or alpha / sqrt(rank) for rsLoRA */
    double dropout;           /* probability, 0 .. below 1 */
    uint64_t seed;            /* of dropout */
    bool targets[LN_W_COUNT]; /* slots with LN_WF_LORA, in every layer that has them; not the head */
    ln_dtype dtype;           /* in which the program reads A and B: f32 or bf16 */
} ln_lora;

/* An adapted matrix: weight `weight` of ln_weights.items; A and B are the trainables with slots 2 i and 2 i +
 * 1 of module i. */
typedef struct ln_lora_module {
    int weight;
    ln_v a, b;
} ln_lora_module;

/* Slots of the inputs of the graph. */
enum {
    LN_TRAIN_TARGETS, /* int32 [N,1]: the id that an output row predicts; below 0: none */
    LN_TRAIN_WEIGHTS, /* f32 [N,1]: the weight of its loss */
    LN_TRAIN_SAMPLES, /* int32 [B,2]: the number of each sequence's sample, low word first, for dropout */
    LN_TRAIN_INPUTS
};
typedef struct ln_train_graph {
    ln_lora_module *modules; /* [n_modules] in the order of the layers and of weights.def; in the graph's
                                arena */
    int n_modules;
    ln_v targets, weights, samples; /* inputs; samples -1: no dropout */
    ln_v loss; /* [N,1]: the negative log-likelihood of each target, without its weight */
} ln_train_graph;

/* The number of matrices that `lora` adapts. */
int ln_lora_count(const ln_spec *s, const ln_weights *w, const ln_lora *lora);
/* Builds the graph of the model with adapters and loss in *g, which must be open; the caller adds gradients.
 * LN_EUNSUPPORTED: a target that cannot be adapted. LN_EINVALID: a rank below 1, or a dropout that is no
 * probability. Other errors as ln_decoder_build's. */
ln_status ln_decoder_build_train(ln_graph *g, const ln_spec *s, const ln_weights *w, const ln_lora *lora,
                                 ln_train_graph *out, ln_error *err);

#endif
