/* What the families share when they read a config.json: sizes with the class's defaults, layer kinds, activations, rotary tables.
 * A family file says which defaults and which quirks; how a field is checked is said here, once. Private to src/model.
 *
 * An absent field is the default of the reference's configuration class, a field that is there must have the class's type. */
#ifndef LN_FAMILY_H
#define LN_FAMILY_H

#include "spec.h"

/* Reads one family's configuration into a zeroed spec. */
ln_status ln_family_llama(ln_spec *s, const ln_config *c, ln_error *err);
ln_status ln_family_qwen2(ln_spec *s, const ln_config *c, ln_error *err);
ln_status ln_family_qwen3(ln_spec *s, const ln_config *c, ln_error *err);
ln_status ln_family_gemma3(ln_spec *s, const ln_config *c, ln_error *err);

/* The class's defaults for the sizes. kv_heads 0: as many as heads. head_dim 0: hidden / heads. `null_`: what the class lets be null,
 * which then means the same 0. */
typedef struct ln_sizes {
    int64_t vocab, hidden, ffn, layers, heads, kv_heads, head_dim, positions;
    bool null_kv_heads, null_head_dim;
} ln_sizes;
/* Fills V, D, F, L, H, K, E, n_ctx, eps and the attention scale E^-1/2. */
ln_status ln_read_sizes(ln_spec *s, const ln_config *c, const ln_sizes *dflt, ln_error *err);
/* The activation of the MLP's gate: names that the reference maps to SiLU or to the tanh form of GELU. */
ln_status ln_read_act(ln_spec *s, const ln_config *c, const char *field, const char *dflt, ln_error *err);

/* Layers: `sliding[l]` says which attend to a window only; NULL: none. Fills layers and classes; a window of 0 is none. */
ln_status ln_set_layers(ln_spec *s, const bool *sliding, int64_t window, ln_error *err);
/* config's `layer_types` into sliding[L]; *found = false when the file has none. Kinds other than full and sliding: LN_EUNSUPPORTED. */
ln_status ln_read_layer_types(const ln_spec *s, const ln_config *c, bool *sliding, bool *found, ln_error *err);
/* Qwen's layer kinds: layer_types, else use_sliding_window, sliding_window and max_window_layers. */
ln_status ln_read_qwen_layers(ln_spec *s, const ln_config *c, ln_error *err);

/* ---- config_keys.c ---- */

/* Bits of the families in config_keys.def. */
enum { LN_FAMILY_LLAMA = 1, LN_FAMILY_QWEN2 = 2, LN_FAMILY_QWEN3 = 4, LN_FAMILY_GEMMA3 = 8 };
extern const ln_keys ln_config_keys;
/* Refuses the keys whose values describe another model than the one that would be computed, and the classes
 * that have another head (LN_EUNSUPPORTED); says what is not applied and what is not known. */
ln_status ln_config_check(const ln_config *c, unsigned family, ln_error *err);

/* ---- rope.c ---- */

typedef struct ln_rope_rule {
    enum { LN_ROPE_DEFAULT, LN_ROPE_LINEAR, LN_ROPE_DYNAMIC, LN_ROPE_YARN, LN_ROPE_LLAMA3 } type;
    double theta, factor, low, high;
    int64_t original;      /* positions before the context was extended */
    /* YaRN: turns within `original` at which interpolation begins and is complete */
    double beta_fast, beta_slow;
    bool truncate;         /* YaRN: the range between them is widened to whole dimensions */
    double scale;          /* YaRN: the attention factor; else 1 */
} ln_rope_rule;

/* Inverse frequencies freqs[head_dim / 2] in f32, in the reference's order of operations. */
void ln_rope_freqs(const ln_rope_rule *rule, int head_dim, float *freqs);
/* The rule that one standardised parameter object gives; `where` names it in messages. `outer` is the object
 * that the reference
 * reads `truncate` from: rope_parameters itself, even where `params` is one layer kind's part of it. NULL:
 * there is none. */
ln_status ln_rope_read(const ln_spec *s, const ln_config *c, const json_t *params, const json_t *outer,
                       const char *where, ln_rope_rule *out, ln_error *err);
/* Appends a table to s->ropes. */
ln_status ln_rope_add(ln_spec *s, const ln_rope_rule *rule, ln_error *err);
/* llama and qwen: `rope_scaling` when it says anything, else `rope_parameters`, with `rope_theta` (10,000) for what lacks one. One table,
 * or one per layer kind where the parameters are given per kind. Call it after the layers are set. */
ln_status ln_read_rope(ln_spec *s, const ln_config *c, ln_error *err);
/* Raises s->n_ctx to what the scaled tables reach; call it once, when all tables are there. */
void ln_rope_settle_context(ln_spec *s);
/* The object under `field`: a new reference to a copy, NULL in *out when the field is absent, null or empty. */
ln_status ln_rope_object(const ln_config *c, const json_t *in, const char *field, json_t **out, ln_error *err);

#endif
