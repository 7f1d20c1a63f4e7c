/* What a checkpoint is: the facts that decoder.c needs, read by one family file each.
 *
 * A spec describes features, never families: decoder.c may ask "is there a norm after attention?", not "is this Gemma?". */
#ifndef LN_SPEC_H
#define LN_SPEC_H

#include "../io/io.h"
#include "../graph/graph.h"

typedef enum ln_act { LN_ACT_SILU, LN_ACT_GELU_TANH } ln_act;

/* One rotary table: inverse frequencies in f32, computed as the reference computes them. */
typedef struct ln_rope {
    double theta;
    float *freqs;          /* [E/2], in the spec's arena */
    int64_t n_ctx;         /* positions that YaRN or dynamic scaling extends the context to; 0: it does not */
    float scale;           /* of cos and sin: YaRN's attention factor, else 1 */
    ln_ntk ntk;            /* dynamic: how the frequencies grow with the text */
} ln_rope;

#define LN_MAX_LAYERS 4096 /* 126 (Llama 3.1 405B) */
typedef struct ln_layer {
    int rope;              /* index into ropes */
    int cls;               /* window class: index into classes */
} ln_layer;

typedef struct ln_class {
    int64_t window;        /* 0: all positions */
    int n_layers;
} ln_class;

typedef struct ln_spec {
    ln_arena arena;
    char model_type[64];
    int64_t D, F, V;       /* width, ffn width, vocabulary (rows of the embedding) */
    int L, H, K, E;        /* layers, heads, kv heads, head width */
    int64_t n_ctx;         /* max_position_embeddings, or what YaRN or dynamic scaling make of it */
    double eps;
    ln_act act;
    float norm_offset;     /* 1 where the norm weight is stored as w - 1 */
    float embed_scale;     /* 1, or sqrt(D) rounded to the checkpoint's dtype */
    float attn_scale;      /* E^-1/2 or query_pre_attn_scalar^-1/2 */
    bool q_bias, k_bias, v_bias, o_bias, mlp_bias;
    bool qk_norm;          /* RMS norm of each head of q and k before RoPE */
    bool post_norms;       /* norms after attention and after the MLP, before their residual adds */
    bool tied;             /* the head is the embedding; settled by the tensors */
    ln_layer *layers;      /* [L] */
    ln_rope ropes[2];
    int n_ropes;
    ln_class classes[2];
    int n_classes;
    ln_dtype dtype;        /* of the checkpoint, for what is rounded to it (dtype or torch_dtype; the tensors decide) */
    ln_quant quant;        /* the quantization block; borrows the configuration, which must live until weights are bound */
} ln_spec;

/* Reads config.json through the family that model_type names. LN_EUNSUPPORTED lists the known ones. */
ln_status ln_spec_open(ln_spec *out, const ln_config *c, ln_error *err);
void ln_spec_close(ln_spec *s);

/* Whether rows of a text that begins with n tokens have the frequencies of rows of one that begins with m
 * tokens. */
bool ln_spec_same_ropes(const ln_spec *s, int64_t n, int64_t m);

/* One row of the family registry. */
typedef struct ln_family {
    const char *model_type;
    unsigned keys;         /* LN_FAMILY_*: its rows of config_keys.def */
    ln_status (*read)(ln_spec *s, const ln_config *c, ln_error *err);
} ln_family;

/* ---- weights.def ---- */

typedef enum ln_slot {
#define LN_WEIGHT(E, name, shape, flags, when) LN_W_##E,
#include "weights.def"
#undef LN_WEIGHT
    LN_W_COUNT
} ln_slot;
enum { LN_WF_LAYER = 1, LN_WF_NORM = 2, LN_WF_EMBED = 4, LN_WF_LORA = 8, LN_WF_DECAY = 16 };

/* A weight that the model has: where it is, what it is. */
typedef struct ln_weight {
    ln_slot slot;
    int layer;             /* -1 outside layers */
    const ln_tensor *tensor, *scales, *biases; /* the last two of an encoded weight only */
    ln_dtype dtype;        /* of its numbers; of an encoded weight, of its scales */
    ln_enc enc;
    int64_t d0, d1;        /* [d0, d1]; vectors have d1 = 0 */
    unsigned uses;         /* of a matrix: LN_USE_* */
} ln_weight;
/* Its tensors, i = 0 .. LN_WEIGHT_PARTS - 1; NULL beyond the last. */
#define LN_WEIGHT_PARTS 3
/* To be quantised when it is made resident: its tensor is the dense one. */
static inline bool ln_weight_made(const ln_weight *w) { return w->enc.bits && !w->scales; }
static inline const ln_tensor *ln_weight_part(const ln_weight *w, int i) { return i == 0 ? w->tensor : i == 1 ? w->scales : w->biases; }

typedef struct ln_weights {
    ln_weight *items;      /* non-layer slots, then layer by layer */
    size_t n;
    int index_fixed[LN_W_COUNT];             /* index of a non-layer slot, -1: the model has none */
    int (*index_layer)[LN_W_COUNT];          /* [L] */
    uint64_t bytes, n_parameters;
    ln_enc enc;                              /* of the quantised weights, as the block has it; bits 0: all are dense */
    ln_arena arena;
} ln_weights;

/* Binds every slot that the spec calls for to a tensor under any of the known prefixes; settles `tied` by the tensors. Missing and
 * misshapen ones are refused, all listed at once (at most 8 names, and how many more); surplus ones give one warning. May set
 * s->tied, s->dtype and, for a family whose embedding scale depends on the dtype, s->embed_scale. */
ln_status ln_weights_bind(ln_weights *out, ln_spec *s, const ln_tensors *t, ln_error *err);
/* Asks for quantisation at load: every dense matrix of whole groups is to become `enc`. LN_EUSAGE when some are quantised already. */
ln_status ln_weights_encode(ln_weights *w, ln_spec *s, ln_enc enc, ln_error *err);
void ln_weights_close(ln_weights *w);
/* The name of a slot without any prefix: `layers.3.mlp.up_proj.weight`. */
void ln_weight_name(char out[160], ln_slot slot, int layer);

/* ---- decoder.c ---- */

/* Where keys and values lie, decided by run/ for a KV type and page length. */
typedef struct ln_kv_shape {
    int page_len, unit;            /* positions, layers in a page */
    ln_dtype dtype;
    int64_t page_bytes, layer_bytes;
    int n_sub[2];                  /* pages per block, by class */
    int *sub, *lane;               /* [L] */
} ln_kv_shape;

typedef struct ln_decoder_options {
    ln_numerics numerics;
    bool logits;                   /* with the head; without: keys only */
} ln_decoder_options;

/* Describes the whole model as a program. *logits is [N, V] (or -1). */
ln_status ln_decoder_build(ln_graph *g, const ln_spec *s, const ln_weights *w, const ln_kv_shape *kv, const ln_decoder_options *opt, ln_v *logits,
                           ln_error *err);

#endif
