/* What the family readers share: sizes with the defaults of the reference's class, layer kinds, activations,
 * rotary tables. A family file states its defaults and peculiarities; how a field is read and checked is
 * defined here. Private to src/model.
 *
 * An absent field has the default of the reference's configuration class; a present field must have the
 * class's type. Unless said otherwise a function returns LN_EINVALID for a field of the wrong type or out of
 * range, LN_EUNSUPPORTED for a valid value that linnet does not compute, or LN_EMEMORY, with the file and the
 * field in the message. */
#ifndef LN_FAMILY_H
#define LN_FAMILY_H

#include "spec.h"

/* Each reads the configuration of one family into *s, which is zeroed but for what ln_spec_open sets
 * first. */
#define FAMILY(type, keys, reader, reads, ignores, text_types) \
    ln_status ln_family_##reader(ln_spec *s, const ln_config *c, ln_error *err);
#include "families/registry.def"
#undef FAMILY

/* The configuration class's defaults of the sizes. kv_heads 0: equal to heads. head_dim 0: hidden / heads.
 * null_*: the class allows null for this field, with the same meaning as 0. eps 0: 1e-6. tied: of
 * tie_word_embeddings, for ln_read_base. */
typedef struct ln_sizes {
    int64_t vocab, hidden, ffn, layers, heads, kv_heads, head_dim, positions;
    bool null_kv_heads, null_head_dim, tied;
    double eps;
} ln_sizes;
/* The kinds of layers that a family has rows for in the tables of its spec. */
enum { LN_KIND_FULL, LN_KIND_SLIDING, LN_KINDS };
/* Fills V, D, L, n_ctx, eps; row 0 of `attn`: H, K, E and the scale E^-1/2; row 0 of `ffn`: F. */
ln_status ln_read_sizes(ln_spec *s, const ln_config *c, const ln_sizes *dflt, ln_error *err);
/* What most families have in common: the sizes, hidden_act, tie_word_embeddings (of a wrapper the top-level
 * one, if it is present), norms before attention and MLP. */
ln_status ln_read_base(ln_spec *s, const ln_config *c, const ln_sizes *dflt, ln_error *err);
/* Reads attention_bias, the biases of q, k, v and o alike, and mlp_bias, both false if they are absent. */
ln_status ln_read_biases(ln_spec *s, const ln_config *c, ln_error *err);
/* Fills s->ffn[0].act, the activation of the gate in the MLP. `field`: the name of the config field; its
 * value must be a name that the reference maps to SiLU, to the tanh approximation of GELU or to relu2. */
ln_status ln_read_act(ln_spec *s, const ln_config *c, const char *field, const char *dflt, ln_error *err);

/* ---- moe_spec.c ---- */

/* The class's defaults of experts. moe_F: the field of their width. number, chosen: the fields of how many
 * there are and how many a row has; NULL: num_experts or num_local_experts, num_experts_per_tok or
 * experts_per_token. */
typedef struct ln_moe_sizes {
    int64_t experts, top_k, F;
    const char *moe_F, *number, *chosen;
} ln_moe_sizes;
/* Stores in row 0 of `ffn` experts alone, chosen by a softmax over all of them. */
ln_status ln_read_experts(ln_spec *s, const ln_config *c, const ln_moe_sizes *dflt, ln_error *err);
/* Reads decoder_sparse_step and mlp_only_layers: layers without experts have a dense MLP of
 * intermediate_size, which is ffn if it is absent. After the layers are set. */
ln_status ln_read_sparse_layers(ln_spec *s, const ln_config *c, int64_t ffn, ln_error *err);
/* Stores in row 1 of `ffn` a dense MLP of width F, for the layers whose `ffn` is 1. Rows that no layer has
 * are dropped. */
void ln_dense_layers(ln_spec *s, int64_t F);

/* ---- layers ---- */

/* Fills s->layers, and makes of row 0 of `attn` one row for each kind of layer that the model has, in the
 * order of their first layers. sliding[L]: which layers attend to the last `window` positions only; NULL:
 * none. window 0: no layer has a window. */
ln_status ln_set_layers(ln_spec *s, const bool *sliding, int64_t window, ln_error *err);
/* Fills s->layers of layers that are all alike. */
ln_status ln_set_one_layer(ln_spec *s, int64_t window, ln_error *err);
/* Does what ln_set_layers does; layers without rotated[l] have no RoPE. rotated NULL: all have it. */
ln_status ln_set_rotated_layers(ln_spec *s, const bool *sliding, int64_t window, const bool *rotated,
                                ln_error *err);
/* The row of `attn` that equals *a, which is added if there is none; `attn` has space for a row of each
 * layer. */
int ln_attn_row(ln_spec *s, const ln_attn_spec *a);
/* Reads a window that may be null or absent. *window 0: none. */
ln_status ln_read_window(const ln_config *c, const char *field, int64_t dflt, int64_t *window, ln_error *err);
/* For classes without windows: LN_EUNSUPPORTED if layer_types or sliding_window ask for one, because the
 * cache of the reference's generate applies it and its forward pass does not. */
ln_status ln_refuse_windows(const ln_spec *s, const ln_config *c, ln_error *err);
/* Reads `layer_types` into sliding[L]; without that field layer i has a window unless i + 1 is a multiple of
 * `pattern`. Makes the rows of `attn` as ln_set_layers does. */
ln_status ln_read_pattern_layers(ln_spec *s, const ln_config *c, int64_t pattern, int64_t window,
                                 ln_error *err);
/* Reads `layer_types` into sliding[L]. *found = false: the file has no such field, sliding is unchanged. */
ln_status ln_read_layer_types(const ln_spec *s, const ln_config *c, bool *sliding, bool *found,
                              ln_error *err);
/* Reads `layer_types`, whose kinds are full_attention and `recurrent`; without that field layer i is
 * recurrent unless i + 1 is a multiple of `interval`. Makes the rows of `attn` as ln_set_layers does.
 * LN_EUNSUPPORTED: no layer has attention. */
ln_status ln_read_recurrent_layers(ln_spec *s, const ln_config *c, const char *recurrent, int64_t interval,
                                   ln_error *err);
/* Does what ln_read_recurrent_layers does; is[L]: which layers are recurrent. */
ln_status ln_set_recurrent_layers(ln_spec *s, const ln_config *c, const bool *is, ln_error *err);
/* Adds the row of all recurrent layers. */
ln_status ln_add_recurrent(ln_spec *s, const ln_recur_spec *row, ln_error *err);
/* Reads the layer kinds from layer_types, else from use_sliding_window, sliding_window and
 * max_window_layers, which is first_window if it is absent, and calls ln_set_layers. */
ln_status ln_read_late_windows(ln_spec *s, const ln_config *c, int64_t first_window, ln_error *err);

/* ---- config_keys.c ---- */

extern const ln_keys ln_config_keys;
/* Checks every key of config.json against config_keys.def, and the class in `architectures`. LN_EUNSUPPORTED:
 * a value that describes a model other than the one linnet would compute, or a class with another head. Logs
 * the keys that are not applied (warning) or not known (info). */
ln_status ln_config_check(const ln_config *c, const ln_family *family, ln_error *err);

/* ---- rope_scaling.c ---- */

/* A scaling rule of rotary frequencies, as read from the configuration. */

typedef struct ln_rope_rule {
    enum {
        LN_ROPE_DEFAULT,
        LN_ROPE_LINEAR,
        LN_ROPE_DYNAMIC,
        LN_ROPE_YARN,
        LN_ROPE_LLAMA3,
        LN_ROPE_LONGROPE,
        LN_ROPE_PROPORTIONAL
    } type;
    int width;   /* columns of a head that are rotated */
    int turning; /* proportional: so many of the width / 2 frequencies are not 0 */
    bool interleaved;
    double theta, factor, low, high;
    int64_t original; /* context length of the unscaled model */
    /* YaRN: full rotations within `original` positions at which interpolation begins and is complete */
    double beta_fast, beta_slow;
    bool truncate; /* YaRN: the bounds of the ramp are rounded outwards to integer dimensions */
    double scale;  /* YaRN, LongRoPE: attention factor of cos and sin; else 1 */
    /* LongRoPE: [width / 2] divisors of the frequencies of texts up to `original` tokens, and of longer ones;
     * borrowed from the configuration */
    const json_t *short_factor, *long_factor;
} ln_rope_rule;

/* What a configuration class says about RoPE. */
typedef struct ln_rope_facts {
    double theta;   /* of a file that states none */
    double partial; /* the part of a head that is rotated if the file does not say; 0: the class rotates whole
                       heads, and a file that asks for less is rejected */
    int64_t original; /* the class's original_max_position_embeddings; 0: it has none */
    bool interleaved;
    bool yarn_is_longrope; /* the types su and yarn are older names of longrope */
    bool q_scale;          /* queries grow with the position by llama_4_scaling_beta (ln_attn_spec.q_scale) */
    double forced_theta;   /* replaces every base that the file states; 0: it does not */
    bool alpha;            /* type dynamic with `alpha` raises the base once for all lengths */
    const char *absent;    /* JSON of the parameters of a file without any; NULL: type default */
} ln_rope_facts;

/* Fills freqs[width / 2] with the inverse frequencies in f32, in the reference's order of operations; of
 * LongRoPE those of short texts, or with `beyond` those of long ones. */
void ln_rope_freqs(const ln_rope_rule *rule, int width, bool beyond, float *freqs);
/* Reads one standardised parameter object, for heads of width E. `where` names it in messages. `outer`: the
 * object from which the reference reads `truncate`; that is rope_parameters itself even if `params` is the
 * part of one layer kind.
 * NULL: there is none. */
ln_status ln_rope_read(const ln_spec *s, const ln_config *c, const ln_rope_facts *facts, int E,
                       const json_t *params, const json_t *outer, const char *where, ln_rope_rule *out,
                       ln_error *err);
/* Computes the frequencies of a rule and appends them to s->ropes, which has room for one of each layer.
 * LN_EMEMORY. */
ln_status ln_rope_add(ln_spec *s, const ln_rope_rule *rule, ln_error *err);
/* Reads `rope_scaling` if it is present and not empty, else `rope_parameters`; `rope_theta` completes an
 * object that has none. Appends one table, or one per layer kind if the parameters are given per kind, and
 * sets the rope of each row of `attn` that is not -1. The layers must be set before. */
ln_status ln_read_rope(ln_spec *s, const ln_config *c, const ln_rope_facts *facts, ln_error *err);
/* Reads parameters that the class keeps per layer kind, completed with the type default: an older
 * `rope_scaling` belongs to the full layers alone. full, sliding: base of a kind without one. */
ln_status ln_read_kind_ropes(ln_spec *s, const ln_config *c, double full, double sliding, ln_error *err);
/* Raises s->n_ctx to the context that the scaled tables reach. Call it once, after the last ln_rope_add. */
void ln_rope_settle_context(ln_spec *s);
/* Copies the object under `field` of `in`. *out is a new reference that the caller releases with json_decref;
 * NULL if the field is absent, null or empty. */
ln_status ln_rope_object(const ln_config *c, const json_t *in, const char *field, json_t **out,
                         ln_error *err);

#endif
