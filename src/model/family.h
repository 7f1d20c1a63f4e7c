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
ln_status ln_family_llama(ln_spec *s, const ln_config *c, ln_error *err);
ln_status ln_family_qwen2(ln_spec *s, const ln_config *c, ln_error *err);
ln_status ln_family_qwen3(ln_spec *s, const ln_config *c, ln_error *err);
ln_status ln_family_gemma3(ln_spec *s, const ln_config *c, ln_error *err);

/* The configuration class's defaults of the sizes. kv_heads 0: equal to heads. head_dim 0: hidden / heads.
 * null_*: the class allows null for this field, with the same meaning as 0. */
typedef struct ln_sizes {
    int64_t vocab, hidden, ffn, layers, heads, kv_heads, head_dim, positions;
    bool null_kv_heads, null_head_dim;
} ln_sizes;
/* The kinds of layers that a family has rows for in the tables of its spec. */
enum { LN_KIND_FULL, LN_KIND_SLIDING, LN_KINDS };
/* Fills V, D, L, n_ctx, eps; row 0 of `attn`: H, K, E and the scale E^-1/2; row 0 of `ffn`: F. */
ln_status ln_read_sizes(ln_spec *s, const ln_config *c, const ln_sizes *dflt, ln_error *err);
/* Fills s->ffn[0].act, the activation of the gate in the MLP. `field`: the name of the config field; its
 * value must be a name that the reference maps to SiLU or to the tanh approximation of GELU. */
ln_status ln_read_act(ln_spec *s, const ln_config *c, const char *field, const char *dflt, ln_error *err);

/* Fills s->layers, and makes of row 0 of `attn` one row for each kind of layer that the model has, in the
 * order of their first layers. sliding[L]: which layers attend to the last `window` positions only; NULL:
 * none. window 0: no layer has a window. */
ln_status ln_set_layers(ln_spec *s, const bool *sliding, int64_t window, ln_error *err);
/* Reads `layer_types` into sliding[L]. *found = false: the file has no such field, sliding is unchanged. */
ln_status ln_read_layer_types(const ln_spec *s, const ln_config *c, bool *sliding, bool *found,
                              ln_error *err);
/* Qwen: reads the layer kinds from layer_types, else from use_sliding_window, sliding_window and
 * max_window_layers, and calls ln_set_layers. */
ln_status ln_read_qwen_layers(ln_spec *s, const ln_config *c, ln_error *err);

/* ---- config_keys.c ---- */

/* Bits of the families in config_keys.def. */
enum { LN_FAMILY_LLAMA = 1, LN_FAMILY_QWEN2 = 2, LN_FAMILY_QWEN3 = 4, LN_FAMILY_GEMMA3 = 8 };
extern const ln_keys ln_config_keys;
/* Checks every key of config.json against config_keys.def, and the class in `architectures`. LN_EUNSUPPORTED:
 * a value that describes a model other than the one linnet would compute, or a class with another head. Logs
 * the keys that are not applied (warning) or not known (info). */
ln_status ln_config_check(const ln_config *c, unsigned family, ln_error *err);

/* ---- rope_scaling.c ---- */

/* A scaling rule of rotary frequencies, as read from the configuration. */

typedef struct ln_rope_rule {
    enum { LN_ROPE_DEFAULT, LN_ROPE_LINEAR, LN_ROPE_DYNAMIC, LN_ROPE_YARN, LN_ROPE_LLAMA3 } type;
    double theta, factor, low, high;
    int64_t original; /* context length of the unscaled model */
    /* YaRN: full rotations within `original` positions at which interpolation begins and is complete */
    double beta_fast, beta_slow;
    bool truncate; /* YaRN: the bounds of the ramp are rounded outwards to integer dimensions */
    double scale;  /* YaRN: attention factor of cos and sin; else 1 */
} ln_rope_rule;

/* Fills freqs[head_dim / 2] with the inverse frequencies in f32, in the reference's order of operations. */
void ln_rope_freqs(const ln_rope_rule *rule, int head_dim, float *freqs);
/* Reads one standardised parameter object. `where` names it in messages. `outer`: the object from which the
 * reference reads `truncate`; that is rope_parameters itself even if `params` is the part of one layer kind.
 * NULL: there is none. */
ln_status ln_rope_read(const ln_spec *s, const ln_config *c, const json_t *params, const json_t *outer,
                       const char *where, ln_rope_rule *out, ln_error *err);
/* Computes the frequencies of a rule for heads of width E and appends them to s->ropes, which has room for
 * one of each kind of layer. LN_EMEMORY. */
ln_status ln_rope_add(ln_spec *s, const ln_rope_rule *rule, int E, ln_error *err);
/* llama and qwen: reads `rope_scaling` if it is present and not empty, else `rope_parameters`; `rope_theta`
 * (default 10,000) completes an object that has none. Appends one table, or one per layer kind if the
 * parameters are given per kind. The layers must be set before. */
ln_status ln_read_rope(ln_spec *s, const ln_config *c, ln_error *err);
/* Raises s->n_ctx to the context that the scaled tables reach. Call it once, after the last ln_rope_add. */
void ln_rope_settle_context(ln_spec *s);
/* Copies the object under `field` of `in`. *out is a new reference that the caller releases with json_decref;
 * NULL if the field is absent, null or empty. */
ln_status ln_rope_object(const ln_config *c, const json_t *in, const char *field, json_t **out,
                         ln_error *err);

#endif
