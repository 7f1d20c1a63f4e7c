/* The description of a checkpoint: the spec (hyperparameters and features) and the bound weights from which
 * decoder.c builds the graph. One file in families/ per model family fills the spec.
 *
 * A spec describes features, never families: decoder.c may ask whether a norm follows attention, not which
 * family the model is of. */
#ifndef LN_SPEC_H
#define LN_SPEC_H

#include "../checkpoint/source.h"
#include "../graph/graph.h"
#include "../graph/state_pool.h"

/* One rotary position embedding: the inverse frequencies in f32, computed as the reference computes them. */
typedef struct ln_rope {
    double theta;
    int n;            /* frequencies: half the width of a head, less if a part of each head is rotated */
    bool interleaved; /* pairs are neighbours (2i, 2i + 1) instead of (i, i + n) */
    float *freqs;     /* [n], allocated in the spec's arena */
    int64_t n_ctx; /* positions to which YaRN or dynamic NTK scaling extends the context; 0: no extension */
    float scale;   /* factor of cos and sin: YaRN's attention factor, else 1 */
    ln_ntk ntk;    /* dynamic NTK: how the base grows with the length of the text */
    float *beyond; /* LongRoPE: the frequencies of texts of more than ntk.positions tokens; else NULL */
} ln_rope;

/* RMS norms of q and k: none, of each head by itself, or of all heads together. */
typedef enum ln_qk_norm {
    LN_QK_NORM_NONE,
    LN_QK_NORM_HEADS,
    LN_QK_NORM_PLAIN, /* of each head, without a weight */
    LN_QK_NORM_WHOLE
} ln_qk_norm;

static inline bool ln_qk_norm_has_weight(ln_qk_norm n) {
    return n == LN_QK_NORM_HEADS || n == LN_QK_NORM_WHOLE;
}

/* A kind of attention that layers of the model have. */
typedef struct ln_attn_spec {
    int H, K, E;    /* query heads, key/value heads, width of a query or key */
    int Ev;         /* width of a value; a family's reader may leave 0, which ln_spec_open sets to E */
    int rope;       /* index into ln_spec.ropes; -1: heads are not rotated (NoPE) */
    bool sliding;   /* its layers are called sliding_attention */
    int64_t window; /* positions that a query attends to; 0: all positions */
    bool both_ways; /* also to later positions: to less than `window` of them, or to all */
    float scale;    /* factor of q k: E^-1/2 or query_pre_attn_scalar^-1/2 */
    ln_qk_norm qk_norm;
    bool qk_norm_last; /* the norm of q and k follows RoPE instead of preceding it */
    float clip;        /* elements of q, k and v are at most so large, after norms and before RoPE; 0: any */
    float softcap;     /* a score s becomes softcap tanh(s / softcap); 0: it stays s */
    bool sinks;        /* each head has one more score, without a value */
    bool k_is_v;       /* values are keys as they are before norm and RoPE: there is no matrix for them */
    bool v_norm;       /* RMS norm of each head of v, without a weight */
    bool out_gate;     /* the output is multiplied by sigmoid(gate x), element by element */
    bool gate_in_q;    /* gate and queries are one product, of each head the query, then the gate */
    /* queries at position p are multiplied by 1 + by log(1 + floor(p / positions)) (llama_4_scaling_beta);
     * positions 0: they are not */
    ln_p_pos_scale q_scale;
    bool q_bias, k_bias, v_bias, o_bias;
} ln_attn_spec;
/* Whether two kinds of attention are one: all fields are equal. */
bool ln_attn_equal(const ln_attn_spec *a, const ln_attn_spec *b);

/* A kind of recurrent layer. Of the delta rule: q, k and v of `sizes.channels` columns go through a short
 * convolution with silu, decays and betas come from products of their own, and the output is normed and
 * multiplied by silu of a gate. Of a short convolution alone: C * conv(B * x), B, C and x one product. */
typedef struct ln_recur_spec {
    ln_recur_sizes sizes;
    double norm_eps; /* of the norm of the output */
    bool bias;       /* of a convolution alone: of its product, the convolution and its output */
} ln_recur_spec;
static inline bool ln_is_delta(const ln_recur_spec *r) { return r && r->sizes.n_v_heads > 0; }
static inline bool ln_is_conv(const ln_recur_spec *r) { return r && r->sizes.n_v_heads == 0; }

/* A mixture of experts: each row goes through the MLPs of its top_k experts, whose outputs are added with the
 * weights that the router gives (ln_p_route). */
typedef struct ln_moe_spec {
    int n_experts;    /* 0: the layer has none */
    int64_t F;        /* width of an expert */
    int64_t shared_F; /* width of an MLP for all rows, whose output is added; 0: there is none */
    bool shared_gate; /* that output is multiplied by sigmoid(g x), g a vector */
    ln_p_route route;
    bool router_bias;   /* of the router's product */
    bool choice_bias;   /* added to scores for the choice alone (e_score_correction_bias) */
    bool router_norm;   /* its input is normed without a weight, times router.scale D^-1/2 */
    bool expert_scale;  /* a factor for each expert */
    bool bias;          /* of gate, up and down of experts */
    bool beside;        /* next to an MLP of its own, each with norms of its own */
    bool interleaved;   /* files hold the rows of gate and up in turn */
    float limit, alpha; /* swiglu_limit: (up + 1) gate sigmoid(alpha gate), gate <= limit, |up| <= limit; 0:
                             act(gate) up */
} ln_moe_spec;

/* A kind of feed-forward layer: down(act(gate x) * up x), without a gate down(act(up x)), experts, or
 * both. */
typedef struct ln_ffn_spec {
    int64_t F; /* intermediate_size; 0: the layer has experts alone */
    ln_act act;
    bool bias;    /* of gate, up and down alike */
    bool ungated; /* there is no gate */
    ln_moe_spec moe;
} ln_ffn_spec;

#define LN_MAX_LAYERS 4096 /* the largest known model has 126 */
/* One decoder layer: a mixer of positions and a feed-forward layer, each a row of a table of the spec. */
typedef struct ln_layer {
    int attn, ffn; /* rows of ln_spec.attn and ln_spec.ffn; attn -1: the layer is recurrent */
    int recur;     /* of a recurrent layer: row of ln_spec.recur */
    /* The layer whose keys and values it attends to: itself, or an earlier one whose attention has the same
     * K, E and Ev. A layer that reads another one's has no weights for keys and values, and no state. */
    int state_from;
    float scale;      /* factor of its output, if the model has them (ln_spec.layer_scales) */
    ln_p_xielu xielu; /* if its activation is that; ln_weights_bind computes it from tensors */
} ln_layer;

typedef struct ln_slot_name ln_slot_name; /* below: weights */

/* The hyperparameters and features of a model. Letters as in docs/glossary.md. Every field is used by two
 * models, or is a published feature under the name that its paper or configuration gives it. */
typedef struct ln_spec {
    ln_arena arena;
    char model_type[64];
    int64_t D, V;      /* hidden_size, vocab_size (rows of the embedding) */
    int32_t padding;   /* 1 + pad_token_id, whose row of the embedding gets no gradient; 0: none */
    int L;             /* layers */
    int64_t n_ctx;     /* context length: max_position_embeddings, or what YaRN or dynamic NTK extend it to */
    double eps;        /* of the RMS norms */
    float norm_offset; /* added to every norm weight; 1 where the checkpoint stores w - 1 */
    float norm_shift;  /* of a GGUF file: what its norms have more than those of a directory */
    float embed_scale; /* factor of the embedding */
    bool embed_scale_rounded; /* it is rounded to the checkpoint's dtype */
    float residual_scale; /* factor of the outputs of attention and of the MLP in the residual additions */
    float logit_scale;    /* factor of the logits */
    bool layer_scales;    /* each layer's output has a factor, which ln_weights_bind reads from its tensor */
    float logit_softcap;  /* a logit s becomes c tanh(s / c); 0: it stays s */
    bool embed_norm;      /* RMS norm of the embedding, without a weight */
    bool centred_norms;   /* norms subtract the mean first: LayerNorm without bias */
    bool parallel;        /* attention and MLP have one input, and both outputs are added to it */
    double post_eps;      /* of the norms of outputs; 0: eps */
    bool last_norm_plain; /* norm_offset is not added to the weight of the norm before the head */
    /* Inputs that each layer has of its own: width and rows of their embedding table; 0: none. Its rows are
     * multiplied by per_layer_scale. */
    int64_t per_layer, per_layer_rows;
    float per_layer_scale;
    bool pre_norms;     /* norms of the inputs of attention and of the MLP */
    bool post_norms;    /* norms of the outputs of attention and of the MLP, before the residual additions */
    bool tied;          /* the head is the embedding table; ln_weights_bind decides it by the tensors */
    ln_layer *layers;   /* [L]; this and the tables below are in the arena */
    ln_attn_spec *attn; /* [n_attn] */
    ln_recur_spec *recur; /* [n_recur] */
    ln_ffn_spec *ffn;     /* [n_ffn] */
    ln_rope *ropes;       /* [n_ropes] */
    int n_attn, n_recur, n_ffn, n_ropes;
    /* files whose convolutions have their last two axes exchanged, as mlx-lm writes them, store norm weights
     * with norm_offset added */
    bool conv_tells_norms;
    const ln_slot_name *names; /* [n_names] names of weights that differ from those of weights.def */
    size_t n_names;
    /* tensors that hold the rows of several slots hold, of each key head of a recurrent layer in turn, its
     * rows of these slots */
    bool parts_by_head;
    /* dtype of the checkpoint, to which embed_scale is rounded: dtype or torch_dtype of config.json, then
     * replaced by that of the tensors (ln_weights_bind) */
    ln_dtype dtype;
    /* the quantization block; it borrows the configuration, which must stay open until the weights are
     * bound */
    ln_quant quant;
} ln_spec;

/* The attention of layer l, NULL if it is recurrent. Its recurrent mixer, NULL if it has attention. Its
 * feed-forward layer. Whether it has a state of its own. */
static inline const ln_attn_spec *ln_attn_of(const ln_spec *s, int l) {
    return s->layers[l].attn < 0 ? NULL : &s->attn[s->layers[l].attn];
}
static inline const ln_recur_spec *ln_recur_of(const ln_spec *s, int l) {
    return s->layers[l].attn < 0 ? &s->recur[s->layers[l].recur] : NULL;
}
/* The first layer with attention, -1: there is none. */
int ln_first_attention(const ln_spec *s);
static inline const ln_ffn_spec *ln_ffn_of(const ln_spec *s, int l) { return &s->ffn[s->layers[l].ffn]; }
static inline bool ln_owns_state(const ln_spec *s, int l) { return s->layers[l].state_from == l; }

/* Fills *out from config.json with the reader of the family that model_type names. LN_EUNSUPPORTED: an
 * unknown model_type (the message lists the known ones) or a feature that linnet does not compute.
 * LN_EINVALID: a field with a wrong type or an impossible value. LN_EMEMORY. On failure *out needs no
 * ln_spec_close. */
ln_status ln_spec_open(ln_spec *out, const ln_config *c, ln_error *err);
/* Releases the spec and zeroes it. */
void ln_spec_close(ln_spec *s);

/* A number that is equal for prompts that use the same rotary frequencies, so that keys can be reused. Under
 * dynamic NTK scaling these depend on the length of the prompt: the number is the length whose frequencies
 * rows at positions below it have. 0: all prompts use the same. */
int64_t ln_spec_rope_length(const ln_spec *s, int64_t n_prompt);
/* The length beyond which a text has other frequencies in all of its rows (LongRoPE), so that a text that
 * grows beyond it is computed again; 0: there is none. */
int64_t ln_spec_rope_switch(const ln_spec *s);
/* Whether tokens attend to later ones (ln_attn_spec.both_ways): texts are computed whole, in one step, and
 * have embeddings, but no next token. */
bool ln_spec_both_ways(const ln_spec *s);

/* One row of the family registry. */
typedef struct ln_family {
    const char *model_type;
    unsigned keys; /* LN_FAMILY_*: which rows of config_keys.def apply */
    ln_status (*read)(ln_spec *s, const ln_config *c, ln_error *err);
    /* Keys of config.json that the family's file reads, and keys that its class ignores whatever their value
     * is, separated by blanks; they precede the rows of config_keys.def. NULL: none */
    const char *reads, *ignores;
    const char *text_types; /* the values that text_config.model_type of a wrapper may have; NULL: any */
} ln_family;

/* ---- weights: weights.def, weights.c ---- */

typedef enum ln_slot {
#define LN_WEIGHT(E, name, shape, flags, split, when) LN_W_##E,
#include "weights.def"
#undef LN_WEIGHT
    LN_W_COUNT
} ln_slot;
/* How the rows of a weight are split among ranks: not at all; LN_SPLIT_UNIT of them at a time; or all rows of
 * a KV head, and of the query heads that read it, at a time. */
typedef enum ln_split { LN_SPLIT_NONE, LN_SPLIT_ROWS, LN_SPLIT_HEADS } ln_split;
enum { LN_SPLIT_UNIT = 16 };
/* The name of the tensor that holds the weight of a slot in a family's checkpoints. n_parts > 0: the tensor
 * holds the rows of several slots, one after another, in this order; `slot` is one of them. */
#define LN_FUSED_PARTS 3
struct ln_slot_name {
    ln_slot slot;
    const char *name; /* as in weights.def */
    int n_parts;
    ln_slot parts[LN_FUSED_PARTS];
};

/* Flags of a slot: one weight per layer; norm; embedding table; LoRA applies; weight decay applies; may be
 * missing; a matrix or a vector for each expert; a convolution of one channel each,
 * [C, 1, taps] or [C, taps, 1], which is read as a vector. */
enum {
    LN_WF_LAYER = 1,
    LN_WF_NORM = 2,
    LN_WF_EMBED = 4,
    LN_WF_LORA = 8,
    LN_WF_DECAY = 16,
    LN_WF_OPTIONAL = 32,
    LN_WF_EXPERTS = 64,
    LN_WF_CONV = 128
};

/* How the programs of a model use a matrix: as the operand of a product, as an embedding table. */
enum { LN_WEIGHT_MATMUL = 1, LN_WEIGHT_GATHER = 2 };

/* All weights of a model, bound by ln_weights_bind. */
typedef struct ln_weights {
    ln_weight *items; /* weights outside the layers first, then layer by layer */
    size_t n;
    int index_fixed[LN_W_COUNT]; /* index into items of a weight outside the layers; -1: the model has none */
    int (*index_layer)[LN_W_COUNT]; /* [L]: the same for the weights of a layer */
    uint64_t bytes, n_parameters;
    uint64_t n_active; /* parameters that a row is multiplied with: of experts, those of top_k */
    ln_groups code;    /* of quantised weights without an entry of their own in the quantization block, and of
                       those that are quantised at load; bits 0: all weights are dense */
    const ln_source *source; /* that their rows come from; in the arena */
    ln_arena arena;
} ln_weights;

/* Binds every slot of weights.def that the spec calls for to a tensor, under any of the known name prefixes;
 * *out borrows from *t, which must outlive it. The tensors decide whether the head is tied. Sets s->tied,
 * s->dtype and, for a family whose embedding scale depends on the dtype, s->embed_scale.
 *
 * LN_EINVALID: missing or misshapen tensors, all in one message (their count and the first 8 names).
 * LN_EUNSUPPORTED: a storage type that linnet does not compute with. LN_EMEMORY. Unused tensors give one
 * warning. */
ln_status ln_weights_bind(ln_weights *out, ln_spec *s, const ln_tensors *t, ln_error *err);
/* Whether any weight is quantised, other than experts to mxfp4, in which models are published. */
bool ln_weights_are_quantised(const ln_weights *w);
/* Requests quantisation at load: every dense matrix whose columns are a multiple of code.group gets
 * codes of code.bits bits. LN_EUSAGE: the checkpoint is quantised already. LN_EUNSUPPORTED: no matrix has
 * such a width. */
ln_status ln_weights_encode(ln_weights *w, ln_spec *s, ln_groups code, ln_error *err);
/* Whether quantising leaves a matrix dense unless it is named: those that choose and weigh experts, and those
 * of decays and betas, which decide over thousands of positions. They are small, and official quantised files
 * keep them, too. */
static inline bool ln_weight_stays_dense(const ln_weight *w) {
    return w->slot == LN_W_ROUTER || w->slot == LN_W_S_SHARE || w->slot == LN_W_DELTA_A ||
           w->slot == LN_W_DELTA_B;
}
/* Whether a device must be able to multiply with coded rows (quant/coded.h). */
bool ln_weights_are_coded(const ln_weights *w);
/* Whether a weight is the matrices of experts. */
bool ln_weights_have_experts(const ln_weights *w);
void ln_weights_close(ln_weights *w);
/* The tensor name of a slot without prefix, for example `layers.3.mlp.up_proj.weight`: that of weights.def,
 * or with a spec that of the model's family. */
void ln_weight_name(char out[160], const ln_spec *s, ln_slot slot, int layer);
/* Writes the name of the matrix of one expert in files that hold experts one by one. Returns false if files
 * of the family hold the experts of a layer in one tensor. */
bool ln_expert_name(char out[160], const ln_spec *s, ln_slot slot, int layer, int64_t expert);
/* Writes the name of the tensor that holds a weight of all experts of a layer in files of mlx-lm: [X,D,C], or
 * of biases [X,D]. */
void ln_stacked_name(char out[160], const ln_spec *s, ln_slot slot, int layer);
/* Writes the name of the tensor of a layer's experts in files of the reference, if it holds all of them, and
 * sets *in to how it holds this weight (ln_experts_in). Returns false if there is none. */
bool ln_joint_name(char out[160], const ln_spec *s, ln_slot slot, int layer, uint8_t *in);

/* ---- decoder.c ---- */

/* Builds the graph of the whole model in *g, which must be open. *logits becomes the value [N, V]. s, w and
 * pool are read during the call only, except for the frequencies s->ropes[].freqs, which the graph borrows.
 * Returns the first error of the graph builders or of ln_graph_check. */
ln_status ln_decoder_build(ln_graph *g, const ln_spec *s, const ln_weights *w, const ln_state_pool *pool,
                           ln_v *logits, ln_error *err);

#endif
