/* The configuration of a GGUF file: the config.json that its metadata describe.
 *
 * Most keys become a field as they are (gguf_keys.def). Others follow from a tensor: whether the head is tied
 * and projections have biases, the number of tokens, and the divisors of RoPE's frequencies, which stand for
 * the scaling that the model was made with. Some facts are in no file because llama.cpp implies them; the
 * readers of families have the same defaults, unless a function here says otherwise.
 *
 * A number of f32 becomes the shortest decimal number that rounds to it: 1e-05, as config.json has it. */
#include "gguf_making.h"

#include "../base/c_locale.h"

#include <stdio.h>
#include <string.h>

enum { PAIRS = 1, HALVES = 0 };
const ln_gguf_arch ln_gguf_archs[LN_GGUF_ARCH_COUNT] = {
#define LN_GGUF_ARCH(NAME, arch, model_type, class, order) {arch, model_type, class, order},
#include "gguf_archs.def"
#undef LN_GGUF_ARCH
};

#define IS(NAME) LN_GGUF_BIT(NAME)
enum { KIND_INT, KIND_REAL };
typedef struct key_row {
    uint64_t archs;
    const char *key, *field;
    int kind;
    bool must;
} key_row;

static const key_row *key_rows(size_t *n) {
    enum { INT = KIND_INT, REAL = KIND_REAL, MUST = 1, MAY = 0 };
#define ALL        LN_GGUF_ALL
#define NOT(archs) (ALL & ~(archs))
    static const key_row rows[] = {
#define LN_GGUF_KEY(archs, key, field, kind, need) {archs, key, field, kind, need},
#include "gguf_keys.def"
#undef LN_GGUF_KEY
    };
#undef NOT
#undef ALL
    *n = LN_COUNT(rows);
    return rows;
}

const char *ln_gguf_arch_key(char out[LN_GGUF_KEY_BYTES], ln_gguf_arch_id arch, const char *suffix) {
    (void)snprintf(out, LN_GGUF_KEY_BYTES, "%s.%s", ln_gguf_archs[arch].name, suffix);
    return out;
}

/* Stores a new value, which may be NULL: out of memory. */
ln_status ln_gguf_put(const ln_gguf_making *m, json_t *in, const char *field, json_t *value) {
    return json_object_set_new(in, field, value) == 0 ? LN_OK : LN_OOM(m->err, "a configuration");
}

/* The shortest decimal number that rounds to this f32, or the value itself if it is none. */
static double decimal(double v) {
    char text[40];
    double d;
    for (int digits = 1; digits <= 9 && v == (double)(float)v; digits++) {
        const int n = ln_snprintf(text, sizeof text, "%.*g", digits, v);
        if (n > 0 && ln_parse_f64(text, (size_t)n, &d) && (float)d == (float)v) return d;
    }
    return v;
}

json_t *ln_gguf_real_of(double v) { return json_real(decimal(v)); }

/* Reads an integer, or an array with the same one for each layer. */
ln_status ln_gguf_read_int(const ln_gguf_making *m, const char *suffix, int64_t *out, bool *found) {
    char key[LN_GGUF_KEY_BYTES];
    const ln_gguf_value *v = ln_gguf_find(m->g, ln_gguf_arch_key(key, m->arch, suffix));
    if (!v || !v->is_array) return ln_gguf_int(m->g, key, 0, INT32_MAX, out, found, m->err);
    LN_TRY(ln_gguf_array(m->g, key, LN_GGUF_I64, &v, m->err));
    *found = v->n > 0;
    for (uint64_t i = 0; i < v->n; i++)
        if (ln_gguf_int_at(v, i) != ln_gguf_int_at(v, 0) || ln_gguf_int_at(v, i) < 0)
            return ln_gguf_fail(m->g, key, "the same number in each layer", m->err);
    if (*found) *out = ln_gguf_int_at(v, 0);
    return LN_OK;
}

ln_status ln_gguf_read_real(const ln_gguf_making *m, const char *suffix, double *out, bool *found) {
    char key[LN_GGUF_KEY_BYTES];
    return ln_gguf_real(m->g, ln_gguf_arch_key(key, m->arch, suffix), out, found, m->err);
}

/* The same for what the metadata must have. */
ln_status ln_gguf_need_int(const ln_gguf_making *m, const char *suffix, int64_t *out) {
    char key[LN_GGUF_KEY_BYTES];
    bool found;
    LN_TRY(ln_gguf_read_int(m, suffix, out, &found));
    return found ? LN_OK : ln_gguf_fail(m->g, ln_gguf_arch_key(key, m->arch, suffix), "an integer", m->err);
}

static ln_status put_key(const ln_gguf_making *m, const key_row *row) {
    char key[LN_GGUF_KEY_BYTES];
    int64_t n = 0;
    double v = 0;
    bool found;
    LN_TRY(row->kind == KIND_INT ? ln_gguf_read_int(m, row->key, &n, &found)
                                 : ln_gguf_read_real(m, row->key, &v, &found));
    if (!found && row->must)
        return ln_gguf_fail(m->g, ln_gguf_arch_key(key, m->arch, row->key), "a number", m->err);
    if (!found) return LN_OK;
    return ln_gguf_put(m, m->out, row->field, row->kind == KIND_INT ? json_integer(n) : ln_gguf_real_of(v));
}

bool ln_gguf_has(const ln_gguf_making *m, const char *name) { return ln_gguf_tensor_named(m->g, name); }

/* ---- what follows from tensors ---- */

static ln_status put_tokens(const ln_gguf_making *m) {
    const ln_gguf_tensor *table = ln_gguf_tensor_named(m->g, "token_embd.weight");
    const ln_gguf_value *tokens = ln_gguf_find(m->g, "tokenizer.ggml.tokens");
    const int64_t n = table && table->n_dims == 2 ? table->dims[1] : tokens ? (int64_t)tokens->n : 0;
    LN_TRY(ln_gguf_put(m, m->out, "tie_word_embeddings", json_boolean(!ln_gguf_has(m, "output.weight"))));
    return ln_gguf_put(m, m->out, "vocab_size", json_integer(n));
}

/* Whether a layer has a tensor of this name: not the first one if that is recurrent. */
static bool has_in_layer(const ln_gguf_making *m, const char *name) {
    for (size_t i = 0; i < m->g->n_tensors; i++) {
        const char *p = m->g->tensors[i].name;
        if (strncmp(p, "blk.", 4) != 0) continue;
        p += 4 + strspn(p + 4, "0123456789");
        if (*p == '.' && strcmp(p + 1, name) == 0) return true;
    }
    return false;
}

static ln_status put_biases(const ln_gguf_making *m) {
    static const struct {
        uint64_t archs;
        const char *tensor, *field;
    } biases[] = {
        {IS(LLAMA) | IS(GEMMA) | IS(ARCEE) | IS(QWEN3) | IS(QWEN3VL) | IS(GRANITE) | IS(SMOLLM3) | IS(OLMO2) |
             IS(COHERE2) | IS(GLM4) | IS(SEED_OSS) | IS(HUNYUAN) | IS(QWEN3MOE) | IS(GRANITEMOE) |
             IS(GLM4MOE) | IS(OLMOE) | IS(MUSE_GLIMMER) | IS(QWEN35) | IS(QWEN35MOE) | IS(APERTUS) |
             IS(GRANITE_SWA),
         "attn_q.bias", "attention_bias"},
        {IS(SEED_OSS), "attn_output.bias", "attention_out_bias"},
        {IS(LLAMA) | IS(ARCEE) | IS(GRANITE) | IS(GRANITE_SWA) | IS(SMOLLM3) | IS(SEED_OSS), "ffn_up.bias",
         "mlp_bias"},
        {IS(ERNIE4_5), "attn_q.bias", "use_bias"},
        {IS(GLM4MOE), "attn_q_norm.weight", "use_qk_norm"},
        {IS(LFM2MOE), "exp_probs_b.bias", "use_expert_bias"},
    };
    for (size_t i = 0; i < LN_COUNT(biases); i++)
        if (biases[i].archs & UINT64_C(1) << m->arch)
            LN_TRY(ln_gguf_put(m, m->out, biases[i].field, json_boolean(has_in_layer(m, biases[i].tensor))));
    return LN_OK;
}

/* ---- heads ---- */

static ln_status put_heads(const ln_gguf_making *m) {
    char key[LN_GGUF_KEY_BYTES];
    int64_t heads = 0, kv, width = 0, dim, value;
    bool found;
    if (m->arch == LN_GGUF_ARCH_GEMMA4) return LN_OK;
    LN_TRY(ln_gguf_need_int(m, "attention.head_count", &heads));
    LN_TRY(ln_gguf_need_int(m, "embedding_length", &width));
    if (heads < 1)
        return ln_gguf_fail(m->g, ln_gguf_arch_key(key, m->arch, "attention.head_count"), "1 or more",
                            m->err);
    kv = heads;
    LN_TRY(m->arch == LN_GGUF_ARCH_LFM2 || m->arch == LN_GGUF_ARCH_LFM2MOE
               ? ln_gguf_put_conv_layers(m, &kv)
               : ln_gguf_read_int(m, "attention.head_count_kv", &kv, &found));
    LN_TRY(ln_gguf_put(m, m->out, "num_key_value_heads", json_integer(kv)));
    value = dim = width / heads;
    LN_TRY(ln_gguf_read_int(m, "attention.key_length", &dim, &found));
    LN_TRY(ln_gguf_read_int(m, "attention.value_length", &value, &found));
    if (value != dim)
        return ln_gguf_fail(m->g, ln_gguf_arch_key(key, m->arch, "attention.value_length"),
                            "the length of a key", m->err);
    if (m->arch != LN_GGUF_ARCH_COHERE2) LN_TRY(ln_gguf_put(m, m->out, "head_dim", json_integer(dim)));
    int64_t rotated = dim, layers = 0;
    LN_TRY(ln_gguf_read_int(m, "rope.dimension_count", &rotated, &found));
    if (m->arch == LN_GGUF_ARCH_GLM4 || m->arch == LN_GGUF_ARCH_GLM4MOE || m->arch == LN_GGUF_ARCH_QWEN35 ||
        (m->arch == LN_GGUF_ARCH_PHI3 && rotated != dim))
        LN_TRY(ln_gguf_put(m, m->out, "partial_rotary_factor",
                           json_real(dim ? (double)rotated / (double)dim : 0)));
    /* llama.cpp implies it: the largest model of each has its own (gemma2.cpp, gemma3.cpp) */
    LN_TRY(ln_gguf_need_int(m, "block_count", &layers));
    const bool largest =
        (m->arch == LN_GGUF_ARCH_GEMMA2 && layers == 46) || (m->arch == LN_GGUF_ARCH_GEMMA3 && layers == 62);
    if (m->arch == LN_GGUF_ARCH_GEMMA2 || m->arch == LN_GGUF_ARCH_GEMMA3)
        LN_TRY(ln_gguf_put(m, m->out, "query_pre_attn_scalar", json_integer(largest ? width / heads : dim)));
    return LN_OK;
}

/* ---- windows ---- */

/* The kinds of the layers, if the file lists them, or the period of the pattern. */
static ln_status put_pattern(const ln_gguf_making *m) {
    char key[LN_GGUF_KEY_BYTES];
    ln_gguf_arch_key(key, m->arch, "attention.sliding_window_pattern");
    const ln_gguf_value *v = ln_gguf_find(m->g, key);
    int64_t period = 0, layers = 0;
    if (!v) return LN_OK;
    if (!v->is_array) {
        LN_TRY(ln_gguf_int(m->g, key, 1, INT32_MAX, &period, NULL, m->err));
        return ln_gguf_put(m, m->out, "sliding_window_pattern", json_integer(period));
    }
    LN_TRY(ln_gguf_need_int(m, "block_count", &layers));
    LN_TRY(ln_gguf_array(m->g, key, v->type == LN_GGUF_BOOL ? LN_GGUF_BOOL : LN_GGUF_I64, &v, m->err));
    if (v->n < (uint64_t)layers) return ln_gguf_fail(m->g, key, "a value for each layer", m->err);
    json_t *list = json_array();
    LN_TRY(ln_gguf_put(m, m->out, "layer_types", list));
    for (int64_t l = 0; l < layers; l++)
        if (json_array_append_new(list, json_string(ln_gguf_int_at(v, (uint64_t)l) ? "sliding_attention"
                                                                                   : "full_attention")) != 0)
            return LN_OOM(m->err, "a configuration");
    return LN_OK;
}

static ln_status put_windows(const ln_gguf_making *m) {
    int64_t window = 0, layers = 0;
    bool found;
    LN_TRY(ln_gguf_read_int(m, "attention.sliding_window", &window, &found));
    switch (m->arch) {
    case LN_GGUF_ARCH_EXAONE4: /* llama.cpp implies 4,096 of 64 layers (exaone4.cpp) */
        LN_TRY(ln_gguf_need_int(m, "block_count", &layers));
        if (!found && layers == 64) window = 4096;
        LN_TRY(ln_gguf_put(m, m->out, "sliding_window", window > 0 ? json_integer(window) : json_null()));
        return window > 0 ? put_pattern(m) : LN_OK;
    case LN_GGUF_ARCH_OLMO2: /* with a window it is olmo3 */
        if (window == 0) return json_object_del(m->out, "sliding_window"), LN_OK;
        LN_TRY(ln_gguf_put(m, m->out, "model_type", json_string("olmo3")));
        LN_TRY(ln_gguf_put(m, m->out, "sliding_window", json_integer(window)));
        return put_pattern(m);
    case LN_GGUF_ARCH_MISTRAL3: return ln_gguf_put(m, m->out, "sliding_window", json_null());
    case LN_GGUF_ARCH_PHI3: return window > 0 ? LN_OK : ln_gguf_put(m, m->out, "sliding_window", json_null());
    case LN_GGUF_ARCH_GEMMA3:
        if (window == 0) LN_TRY(ln_gguf_put(m, m->out, "sliding_window", json_null()));
        return put_pattern(m);
    case LN_GGUF_ARCH_GEMMA2:
    case LN_GGUF_ARCH_GEMMA4:
    case LN_GGUF_ARCH_MUSE_GLIMMER:
    case LN_GGUF_ARCH_GRANITE_SWA:
    case LN_GGUF_ARCH_COHERE2: return put_pattern(m);
    default: return LN_OK;
    }
}

/* ---- RoPE ---- */

/* The numbers of a tensor of divisors as a list; *out NULL: there is no such tensor. */
ln_status ln_gguf_divisors(const ln_gguf_making *m, const char *name, json_t **out) {
    char path[LN_PATH_TEXT];
    const ln_gguf_tensor *x = ln_gguf_tensor_named(m->g, name);
    *out = NULL;
    if (!x) return LN_OK;
    if (x->type != LN_GGML_F32 || x->n_dims != 1)
        return ln_fail(m->err, LN_EINVALID, "%s: tensor %s: expected one dimension of F32, found %d of %s",
                       ln_path_text(path, m->g->files[x->file].path), name, x->n_dims,
                       ln_ggml_block_of((uint32_t)x->type).name);
    json_t *list = json_array();
    for (int64_t i = 0; list && i < x->dims[0]; i++) {
        float v;
        memcpy(&v, x->data + 4 * i, 4);
        if (json_array_append_new(list, json_real((double)v)) == 0) continue;
        json_decref(list);
        if (!(v == v) || v - v != 0)
            return ln_fail(m->err, LN_EINVALID, "%s: tensor %s: element %lld is not finite",
                           ln_path_text(path, m->g->files[x->file].path), name, (long long)i);
        return LN_OOM(m->err, "a configuration");
    }
    *out = list;
    return list ? LN_OK : LN_OOM(m->err, "a configuration");
}

/* Divisors of the frequencies as LongRoPE, whose two sets are the same if the file has one. */
static ln_status put_divisors(const ln_gguf_making *m, bool *done) {
    json_t *rope, *few, *many;
    int64_t context = 0;
    double factor = 1;
    bool found;
    LN_TRY(ln_gguf_need_int(m, "context_length", &context));
    LN_TRY(ln_gguf_read_int(m, "rope.scaling.original_context_length", &context, &found));
    LN_TRY(ln_gguf_read_real(m, "rope.scaling.attn_factor", &factor, &found));
    LN_TRY(ln_gguf_divisors(m, "rope_factors_short.weight", &few));
    if (!few) LN_TRY(ln_gguf_divisors(m, "rope_freqs.weight", &few));
    *done = few != NULL;
    if (!few) return LN_OK;
    ln_status st = ln_gguf_divisors(m, "rope_factors_long.weight", &many);
    if (st == LN_OK && !many) many = json_incref(few);
    rope = st == LN_OK ? json_object() : NULL;
    if (st == LN_OK) st = ln_gguf_put(m, m->out, "rope_scaling", rope);
    if (st == LN_OK) st = ln_gguf_put(m, rope, "short_factor", json_incref(few));
    if (st == LN_OK) st = ln_gguf_put(m, rope, "long_factor", json_incref(many));
    if (st == LN_OK) st = ln_gguf_put(m, rope, "rope_type", json_string("longrope"));
    if (st == LN_OK) st = ln_gguf_put(m, rope, "attention_factor", ln_gguf_real_of(factor));
    if (st == LN_OK) st = ln_gguf_put(m, rope, "original_max_position_embeddings", json_integer(context));
    json_decref(few);
    if (many) json_decref(many);
    return st;
}

ln_status ln_gguf_put_real(const ln_gguf_making *m, json_t *in, const char *field, const char *suffix) {
    double v = 0;
    bool found;
    LN_TRY(ln_gguf_read_real(m, suffix, &v, &found));
    return found ? ln_gguf_put(m, in, field, ln_gguf_real_of(v)) : LN_OK;
}

static ln_status put_yarn(const ln_gguf_making *m, json_t *rope, double factor) {
    int64_t original = 0;
    double all = 0;
    bool found;
    LN_TRY(ln_gguf_need_int(m, "rope.scaling.original_context_length", &original));
    LN_TRY(ln_gguf_put(m, rope, "rope_type", json_string("yarn")));
    LN_TRY(ln_gguf_put(m, rope, "factor", ln_gguf_real_of(factor)));
    LN_TRY(ln_gguf_put(m, rope, "original_max_position_embeddings", json_integer(original)));
    LN_TRY(ln_gguf_put_real(m, rope, "beta_fast", "rope.scaling.yarn_beta_fast"));
    LN_TRY(ln_gguf_put_real(m, rope, "beta_slow", "rope.scaling.yarn_beta_slow"));
    LN_TRY(ln_gguf_put_real(m, rope, "attention_factor", "rope.scaling.yarn_attn_factor"));
    LN_TRY(ln_gguf_read_real(m, "rope.scaling.yarn_log_multiplier", &all, &found));
    if (!found || all == 0) return LN_OK;
    LN_TRY(ln_gguf_put(m, rope, "mscale", json_real(1)));
    return ln_gguf_put(m, rope, "mscale_all_dim", ln_gguf_real_of(all));
}

/* Ministral 3 also scales queries by their position. */
static ln_status put_mistral_rope(const ln_gguf_making *m, json_t *rope) {
    double beta = 0;
    bool found;
    LN_TRY(ln_gguf_put_real(m, rope, "rope_theta", "rope.freq_base"));
    if (!json_object_get(rope, "rope_type"))
        LN_TRY(ln_gguf_put(m, rope, "rope_type", json_string("default")));
    LN_TRY(ln_gguf_read_real(m, "attention.temperature_scale", &beta, &found));
    if (!found || beta == 0) return LN_OK;
    LN_TRY(ln_gguf_put(m, m->out, "model_type", json_string("ministral3")));
    return ln_gguf_put(m, rope, "llama_4_scaling_beta", ln_gguf_real_of(beta));
}

static ln_status put_rope(const ln_gguf_making *m) {
    char key[LN_GGUF_KEY_BYTES];
    ln_gguf_text type = {"none", 4};
    double factor = 1, old = 1;
    bool done, found;
    const bool mistral = m->arch == LN_GGUF_ARCH_MISTRAL3;
    LN_TRY(put_divisors(m, &done));
    if (done) return LN_OK;
    ln_gguf_arch_key(key, m->arch, "rope.scaling.type");
    LN_TRY(ln_gguf_get_text(m->g, key, &type, &found, m->err));
    LN_TRY(ln_gguf_read_real(m, "rope.scaling.factor", &factor, &found));
    LN_TRY(ln_gguf_read_real(m, "rope.scale_linear", &old, &found));
    if (found && factor == 1 && old != 1) factor = old, type = (ln_gguf_text){"linear", 6};
    const bool linear = type.bytes == 6 && memcmp(type.data, "linear", 6) == 0 && factor != 1;
    const bool yarn = type.bytes == 4 && memcmp(type.data, "yarn", 4) == 0;
    const bool none = type.bytes == 4 && memcmp(type.data, "none", 4) == 0;
    if (!linear && !yarn && !none && !(type.bytes == 6 && memcmp(type.data, "linear", 6) == 0))
        return ln_gguf_fail(m->g, key, "none, linear or yarn, or longrope with its tensors of factors",
                            m->err);
    /* without parameters these families have a scaling */
    const bool plain = m->arch == LN_GGUF_ARCH_APERTUS || m->arch == LN_GGUF_ARCH_GPT_OSS;
    if (!linear && !yarn && !mistral && !plain) return LN_OK;
    json_t *rope = json_object();
    LN_TRY(ln_gguf_put(m, m->out, mistral ? "rope_parameters" : "rope_scaling", rope));
    if (!linear && !yarn && plain) return ln_gguf_put(m, rope, "rope_type", json_string("default"));
    if (linear) {
        LN_TRY(ln_gguf_put(m, rope, "rope_type", json_string("linear")));
        LN_TRY(ln_gguf_put(m, rope, "factor", ln_gguf_real_of(factor)));
    }
    if (yarn) LN_TRY(put_yarn(m, rope, factor));
    if (yarn && m->arch == LN_GGUF_ARCH_GPT_OSS) /* as its config.json has it */
        LN_TRY(ln_gguf_put(m, rope, "truncate", json_false()));
    return mistral ? put_mistral_rope(m, rope) : LN_OK;
}

/* ---- the whole ---- */

static ln_status unknown_arch(const ln_gguf *g, ln_gguf_text arch, ln_error *err) {
    char path[LN_PATH_TEXT], shown[80], known[400] = "";
    for (size_t i = 0, n = 0; i < LN_GGUF_ARCH_COUNT && n < sizeof known; i++)
        if (i != LN_GGUF_ARCH_MIXTRAL)
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", ln_gguf_archs[i].name);
    return ln_fail(err, LN_EUNSUPPORTED, "%s: general.architecture %s is not supported; linnet knows %s",
                   ln_path_text(path, g->files[0].path), ln_excerpt(shown, arch.data, arch.bytes), known);
}

static bool is_text(ln_gguf_text t, const char *text) {
    return t.bytes == strlen(text) && memcmp(t.data, text, t.bytes) == 0;
}

/* Files of Mixtral name the architecture llama. */
static ln_status find_mixtral(const ln_gguf *g, ln_gguf_arch_id *out, ln_error *err) {
    int64_t experts = 0;
    LN_TRY(ln_gguf_int(g, "llama.expert_count", 0, INT32_MAX, &experts, NULL, err));
    if (experts > 0) *out = LN_GGUF_ARCH_MIXTRAL;
    return LN_OK;
}

static ln_status arch_named(const ln_gguf *g, ln_gguf_text arch, ln_gguf_arch_id *out, ln_error *err) {
    for (int i = 0; i < LN_GGUF_ARCH_COUNT; i++)
        if (is_text(arch, ln_gguf_archs[i].name)) {
            *out = (ln_gguf_arch_id)i;
            return i == LN_GGUF_ARCH_LLAMA ? find_mixtral(g, out, err) : LN_OK;
        }
    return unknown_arch(g, arch, err);
}

ln_status ln_gguf_find_arch(const ln_gguf *g, ln_gguf_arch_id *out, ln_error *err) {
    char path[LN_PATH_TEXT];
    ln_gguf_text arch = {"", 0}, type = {"model", 5};
    bool found;
    LN_TRY(ln_gguf_get_text(g, "general.type", &type, NULL, err));
    LN_TRY(ln_gguf_get_text(g, "general.architecture", &arch, &found, err));
    ln_path_text(path, g->files[0].path);
    if (is_text(type, "adapter"))
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: an adapter, not a model; give its base model, and this file as the adapter",
                       path);
    if (is_text(type, "mmproj") || is_text(arch, "clip"))
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: the vision or audio tower of a model (mmproj), which is not read; give the file "
                       "of "
                       "the language model",
                       path);
    if (is_text(type, "imatrix"))
        return ln_fail(err, LN_EUNSUPPORTED, "%s: an importance matrix, not a model", path);
    if (!found) return ln_gguf_fail(g, "general.architecture", "the name of an architecture", err);
    return arch_named(g, arch, out, err);
}

ln_status ln_gguf_find_lora_arch(const ln_gguf *g, ln_gguf_arch_id *out, ln_error *err) {
    ln_gguf_text arch = {"", 0}, type = {"model", 5}, kind = {"lora", 4};
    char path[LN_PATH_TEXT];
    bool found;
    LN_TRY(ln_gguf_get_text(g, "general.type", &type, NULL, err));
    LN_TRY(ln_gguf_get_text(g, "adapter.type", &kind, NULL, err));
    LN_TRY(ln_gguf_get_text(g, "general.architecture", &arch, &found, err));
    if (!is_text(type, "adapter") || !is_text(kind, "lora"))
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: expected LoRA (general.type adapter, adapter.type lora), found another GGUF file",
                       ln_path_text(path, g->files[0].path));
    if (!found) return ln_gguf_fail(g, "general.architecture", "the name of an architecture", err);
    return arch_named(g, arch, out, err);
}

/* Rejects layers of experts in an architecture whose family has none. */
static ln_status refuse_experts(const ln_gguf_making *m) {
    static const uint64_t with_experts = IS(MIXTRAL) | IS(QWEN3MOE) | IS(GPT_OSS) | IS(GRANITEMOE) |
                                         IS(GLM4MOE) | IS(OLMOE) | IS(QWEN35MOE) | IS(LFM2MOE);
    char key[LN_GGUF_KEY_BYTES];
    int64_t n = 0;
    bool found;
    LN_TRY(ln_gguf_read_int(m, "expert_count", &n, &found));
    if (m->arch == LN_GGUF_ARCH_GEMMA4)
        return n ? ln_gguf_put(m, m->out, "enable_moe_block", json_true()) : LN_OK;
    if (with_experts & UINT64_C(1) << m->arch) return LN_OK;
    if (n == 0) return LN_OK;
    char path[LN_PATH_TEXT];
    return ln_fail(m->err, LN_EUNSUPPORTED,
                   "%s: key %s: layers of %lld experts are not supported in %s models",
                   ln_path_text(path, m->g->files[0].path), ln_gguf_arch_key(key, m->arch, "expert_count"),
                   (long long)n, ln_gguf_archs[m->arch].name);
}

static ln_status make(const ln_gguf_making *m) {
    size_t n;
    const key_row *rows = key_rows(&n);
    json_t *classes = json_array(), *block = json_object();
    LN_TRY(ln_gguf_put(m, m->out, "model_type", json_string(ln_gguf_archs[m->arch].model_type)));
    LN_TRY(ln_gguf_put(m, m->out, "architectures", classes));
    LN_TRY(ln_gguf_put(m, m->out, "quantization_config", block));
    LN_TRY(ln_gguf_put(m, block, "quant_method", json_string("gguf")));
    if (json_array_append_new(classes, json_string(ln_gguf_archs[m->arch].class)) != 0)
        return LN_OOM(m->err, "a configuration");
    LN_TRY(refuse_experts(m));
    for (size_t i = 0; i < n; i++)
        if (rows[i].archs & UINT64_C(1) << m->arch) LN_TRY(put_key(m, &rows[i]));
    LN_TRY(put_tokens(m));
    LN_TRY(put_heads(m));
    LN_TRY(put_biases(m));
    LN_TRY(put_windows(m));
    if (m->arch != LN_GGUF_ARCH_GEMMA4) LN_TRY(put_rope(m));
    return ln_gguf_put_facts(m);
}

bool ln_is_gguf(const char *path) { return !ln_is_dir(path) && ln_gguf_is_file(path); }

ln_status ln_config_of_gguf(ln_config *out, const char *path, ln_error *err) {
    char shown[LN_PATH_TEXT];
    ln_gguf *g;
    if (strlen(path) >= sizeof out->path)
        return ln_fail(err, LN_EINVALID, "%s: the path is too long", ln_path_text(shown, path));
    LN_TRY(ln_gguf_open(&g, path, err));
    ln_gguf_making m = {.g = g, .out = json_object(), .err = err};
    ln_status st = m.out ? ln_gguf_find_arch(g, &m.arch, err) : LN_OOM(err, "a configuration");
    if (st == LN_OK) st = make(&m);
    ln_gguf_close(&g);
    if (st != LN_OK) {
        json_decref(m.out);
        return st;
    }
    out->root = out->text = m.out;
    out->of_gguf = true;
    memcpy(out->path, path, strlen(path) + 1);
    (void)snprintf(out->model_type, sizeof out->model_type, "%s",
                   json_string_value(json_object_get(m.out, "model_type")));
    return LN_OK;
}
