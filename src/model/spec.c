/* Reads config.json into a spec: the registry of families, and the checks that apply to all of them.
 *
 * A family file states facts and defaults. The checks that apply to every family are in this file: limits of
 * sizes, divisibility before any division, names of activations and layer kinds. A configuration that would
 * load but compute a different model (an unknown model_type, quantisation in an unsupported encoding) is
 * refused with the name of the field. Every spec returned from here describes a model that decoder.c can
 * build. */
#include "families/key_sets.h"
#include "family.h"

#include <math.h>
#include <string.h>

static const ln_family families[] = {
#define FAMILY(type, keys, reader, reads, ignores, text_types) \
    {type, LN_FAMILY_##keys, ln_family_##reader, reads, ignores, text_types},
#include "families/registry.def"
#undef FAMILY
};

/* Returns what a model type that is not read needs; NULL: not known. */
static const char *need_of(const char *type) {
    static const struct {
        const char *types, *what;
    } rows[] = {
#define NOT_READ(types, what) {types, what},
#include "families/not_read.def"
#undef NOT_READ
    };
    for (size_t i = 0; i < LN_COUNT(rows); i++)
        if (ln_key_listed(rows[i].types, type)) return rows[i].what;
    return NULL;
}

static ln_status unknown(const ln_config *c, ln_error *err) {
    static const char list[] = /* each name after ", " */
#define FAMILY(type, keys, reader, reads, ignores, text_types) ", " type
#include "families/registry.def"
#undef FAMILY
        ;
    const char *known = list + 2;
    char shown[LN_PATH_TEXT], text[80];
    ln_path_text(shown, c->path);
    if (!c->model_type[0])
        return ln_fail(err, LN_EUNSUPPORTED, "%s: names no model_type; linnet knows %s", shown, known);
    const char *needs = need_of(c->model_type);
    return ln_fail(err, LN_EUNSUPPORTED, "%s: model_type %s is not supported%s%s; linnet knows %s", shown,
                   ln_excerpt(text, c->model_type, strlen(c->model_type)), needs ? ": it needs " : "",
                   needs ? needs : "", known);
}

/* The model_type of a wrapper's text_config. */
static ln_status check_text_type(const ln_family *f, const ln_config *c, ln_error *err) {
    char shown[LN_PATH_TEXT], text[80], expected[120];
    const char *type = json_string_value(json_object_get(c->text, "model_type"));
    if (c->text == c->root || !f->text_types || !type || ln_key_listed(f->text_types, type)) return LN_OK;
    const char *second = strchr(f->text_types, ' '); /* at most two */
    (void)snprintf(expected, sizeof expected, "%.*s%s%s",
                   second ? (int)(second - f->text_types) : (int)strlen(f->text_types), f->text_types,
                   second ? " or" : "", second ? second : "");
    return ln_fail(err, LN_EUNSUPPORTED, "%s: text_config.model_type %s is not supported; expected %s",
                   ln_path_text(shown, c->path), ln_excerpt(text, type, strlen(type)), expected);
}

/* The dtype of the configuration: `dtype`, formerly `torch_dtype`. A first guess that ln_weights_bind
 * replaces by the dtype of the tensors. */
static ln_dtype read_dtype(const ln_config *c) {
    const char *name = NULL;
    const json_t *in[] = {c->text, c->root};
    static const char *const fields[] = {"dtype", "torch_dtype"};
    for (size_t i = 0; i < 4 && !name; i++)
        name = json_string_value(json_object_get(in[i / 2], fields[i % 2]));
    if (name && strcmp(name, "bfloat16") == 0) return LN_BF16;
    if (name && strcmp(name, "float16") == 0) return LN_F16;
    return LN_F32;
}

ln_status ln_spec_open(ln_spec *out, const ln_config *c, ln_error *err) {
    *out = (ln_spec){0};
    const ln_family *f = NULL;
    for (size_t i = 0; i < LN_COUNT(families); i++)
        if (strcmp(families[i].model_type, c->model_type) == 0) f = &families[i];
    if (!f) return unknown(c, err);
    LN_TRY(check_text_type(f, c, err));
    LN_TRY(ln_config_check(c, f, err));
    LN_TRY(ln_quant_open(&out->quant, c, err));
    memcpy(out->model_type, c->model_type, sizeof out->model_type);
    out->embed_scale = out->residual_scale = out->logit_scale = 1;
    out->dtype = read_dtype(c);
    const ln_status st = f->read(out, c, err);
    if (c->of_gguf) /* its norms have the weights that they multiply by */
        out->norm_shift = out->norm_offset, out->norm_offset = 0;
    for (int i = 0; i < out->n_attn; i++)
        if (!out->attn[i].Ev) out->attn[i].Ev = out->attn[i].E;
    if (st != LN_OK) ln_spec_close(out);
    return st;
}

void ln_spec_close(ln_spec *s) {
    ln_arena_free(&s->arena);
    ln_quant_close(&s->quant);
    *s = (ln_spec){0};
}

/* ---- sizes ---- */

/* Limits; each comment gives the largest value among known models of these families. */
#define MAX_WIDTH    ((int64_t)1 << 20) /* 16,384; inside the MLP, where 4 times as much may be, 53,248 */
#define MAX_VOCAB    ((int64_t)1 << 22) /* 262,208 */
#define MAX_HEADS    4096               /* 128 */
#define MAX_HEAD_DIM 1024               /* kernels buffer one head (ops/attention_op.c); 512 */

static ln_status bad(const ln_config *c, ln_error *err, const char *what, int64_t a, const char *against,
                     int64_t b) {
    char shown[LN_PATH_TEXT];
    return ln_fail(err, LN_EINVALID, "%s: %s is %lld, %s %lld", ln_path_text(shown, c->path), what,
                   (long long)a, against, (long long)b);
}

/* Returns 1 + pad_token_id, which may be counted from the end of the vocabulary (the `padding_idx` of
 * PyTorch's Embedding); 0 if there is none. Only training uses it, so that no value of it is an error. */
static int32_t read_padding(const ln_config *c, int64_t V) {
    const json_t *id = json_object_get(c->text, "pad_token_id");
    const int64_t n = json_is_integer(id) ? json_integer_value(id) : V;
    return n >= -V && n < V ? (int32_t)(1 + (n < 0 ? n + V : n)) : 0;
}

/* Reads an integer that the configuration class may allow to be null. *out = 0 stands for null, and for
 * absent if `dflt` is 0. */
static ln_status read_optional(const ln_config *c, const char *field, bool nullable, int64_t dflt, int64_t hi,
                               int64_t *out, ln_error *err) {
    if (nullable && json_is_null(json_object_get(c->text, field))) {
        *out = 0;
        return LN_OK;
    }
    return ln_config_int(c, field, dflt, 1, hi, out, err);
}

static ln_status read_heads(ln_spec *s, const ln_config *c, const ln_sizes *d, ln_error *err) {
    int64_t heads, kv, dim;
    LN_TRY(ln_config_int(c, "num_attention_heads", d->heads, 1, MAX_HEADS, &heads, err));
    LN_TRY(read_optional(c, "num_key_value_heads", d->null_kv_heads, d->kv_heads, MAX_HEADS, &kv, err));
    LN_TRY(read_optional(c, "head_dim", d->null_head_dim, d->head_dim, MAX_HEAD_DIM, &dim, err));
    if (kv == 0) kv = heads;
    if (kv > heads || heads % kv)
        return bad(c, err, "num_key_value_heads", kv, "expected a divisor of num_attention_heads,", heads);
    if (dim == 0) {
        if (s->D % heads)
            return bad(c, err, "hidden_size", s->D, "expected a multiple of num_attention_heads,", heads);
        dim = s->D / heads;
    }
    if (dim % 2 || dim > MAX_HEAD_DIM)
        return bad(c, err, "head_dim", dim, "expected an even number up to", MAX_HEAD_DIM);
    memset(s->attn, 0, sizeof *s->attn); /* rows are compared by their bytes, padding included */
    ln_attn_spec *a = s->attn;
    a->H = (int)heads, a->K = (int)kv, a->E = (int)dim;
    a->scale = (float)(1.0 / sqrt((double)dim));
    return LN_OK;
}

ln_status ln_read_sizes(ln_spec *s, const ln_config *c, const ln_sizes *d, ln_error *err) {
    int64_t layers;
    LN_TRY(ln_config_int(c, "num_hidden_layers", d->layers, 1, LN_MAX_LAYERS, &layers, err));
    s->attn = ln_arena_alloc(&s->arena, (size_t)layers * sizeof *s->attn);
    s->ffn = ln_arena_alloc(&s->arena, 2 * sizeof *s->ffn);
    s->ropes = ln_arena_alloc(&s->arena, (size_t)layers * sizeof *s->ropes);
    if (!s->attn || !s->ffn || !s->ropes) return LN_OOM(err, "the layers");
    s->n_attn = s->n_ffn = 1;
    s->ffn[0] = (ln_ffn_spec){0};
    LN_TRY(ln_config_int(c, "vocab_size", d->vocab, 1, MAX_VOCAB, &s->V, err));
    s->padding = read_padding(c, s->V);
    LN_TRY(ln_config_int(c, "hidden_size", d->hidden, 1, MAX_WIDTH, &s->D, err));
    LN_TRY(ln_config_int(c, "intermediate_size", d->ffn, 1, 4 * MAX_WIDTH, &s->ffn[0].F, err));
    LN_TRY(ln_config_int(c, "max_position_embeddings", d->positions, 1, INT32_MAX, &s->n_ctx, err));
    LN_TRY(ln_config_real(c, "rms_norm_eps", d->eps > 0 ? d->eps : 1e-6, 0, 1, &s->eps, err));
    if (s->eps == 0) {
        char shown[LN_PATH_TEXT];
        ln_log(LN_LOG_WARN, "%s: rms_norm_eps is 0; a row of zeros becomes NaN",
               ln_path_text(shown, c->path));
    }
    s->L = (int)layers;
    return read_heads(s, c, d, err);
}

ln_status ln_read_base(ln_spec *s, const ln_config *c, const ln_sizes *d, ln_error *err) {
    ln_config tied = *c;
    if (json_object_get(c->root, "tie_word_embeddings")) tied.text = c->root;
    LN_TRY(ln_read_sizes(s, c, d, err));
    LN_TRY(ln_read_act(s, c, "hidden_act", "silu", err));
    s->pre_norms = true;
    return ln_config_bool(&tied, "tie_word_embeddings", d->tied, &s->tied, err);
}

ln_status ln_read_biases(ln_spec *s, const ln_config *c, ln_error *err) {
    bool bias;
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = bias;
    return ln_config_bool(c, "mlp_bias", false, &s->ffn[0].bias, err);
}

ln_status ln_read_act(ln_spec *s, const ln_config *c, const char *field, const char *dflt, ln_error *err) {
    static const struct {
        const char *name;
        ln_act act;
    } known[] = {{"silu", LN_ACT_SILU},
                 {"swish", LN_ACT_SILU},
                 {"gelu_pytorch_tanh", LN_ACT_GELU_TANH},
                 {"gelu_new", LN_ACT_GELU_TANH},
                 {"gelu_python_tanh", LN_ACT_GELU_TANH},
                 {"relu2", LN_ACT_RELU2},
                 {"xielu", LN_ACT_XIELU}};
    const json_t *value = json_object_get(c->text, field);
    if (value && !json_is_string(value))
        return ln_config_fail(c, value, field, "the name of an activation", err);
    const char *name = ln_config_text(c, field, dflt);
    for (size_t i = 0; i < LN_COUNT(known); i++)
        if (strcmp(name, known[i].name) == 0) {
            s->ffn[0].act = known[i].act;
            return LN_OK;
        }
    char shown[LN_PATH_TEXT], text[80];
    return ln_fail(err, LN_EUNSUPPORTED,
                   "%s: %s %s is not supported; linnet knows silu, gelu_pytorch_tanh, relu2 and "
                   "xielu",
                   ln_path_text(shown, c->path), field, ln_excerpt(text, name, strlen(name)));
}

/* ---- layers ---- */

int ln_first_attention(const ln_spec *s) {
    for (int l = 0; l < s->L; l++)
        if (s->layers[l].attn >= 0) return l;
    return -1;
}

bool ln_spec_both_ways(const ln_spec *s) {
    for (int i = 0; i < s->n_attn; i++)
        if (s->attn[i].both_ways) return true;
    return false;
}

bool ln_attn_equal(const ln_attn_spec *a, const ln_attn_spec *b) {
    return a->H == b->H && a->K == b->K && a->E == b->E && a->Ev == b->Ev && a->rope == b->rope &&
           a->sliding == b->sliding && a->window == b->window && a->scale == b->scale &&
           a->qk_norm == b->qk_norm && a->qk_norm_last == b->qk_norm_last && a->clip == b->clip &&
           a->softcap == b->softcap && a->both_ways == b->both_ways && a->sinks == b->sinks &&
           a->k_is_v == b->k_is_v && a->v_norm == b->v_norm && a->out_gate == b->out_gate &&
           a->gate_in_q == b->gate_in_q && a->q_scale.factor == b->q_scale.factor &&
           a->q_scale.positions == b->q_scale.positions && a->q_bias == b->q_bias && a->k_bias == b->k_bias &&
           a->v_bias == b->v_bias && a->o_bias == b->o_bias;
}

int ln_attn_row(ln_spec *s, const ln_attn_spec *a) {
    for (int i = 0; i < s->n_attn; i++)
        if (ln_attn_equal(&s->attn[i], a)) return i;
    s->attn[s->n_attn] = *a;
    return s->n_attn++;
}

ln_status ln_set_layers(ln_spec *s, const bool *sliding, int64_t window, ln_error *err) {
    return ln_set_rotated_layers(s, sliding, window, NULL, err);
}

ln_status ln_set_one_layer(ln_spec *s, int64_t window, ln_error *err) {
    LN_TRY(ln_set_layers(s, NULL, 0, err));
    s->attn[0].window = window;
    return LN_OK;
}

ln_status ln_set_rotated_layers(ln_spec *s, const bool *sliding, int64_t window, const bool *rotated,
                                ln_error *err) {
    ln_attn_spec a = s->attn[0];
    s->layers = ln_arena_alloc(&s->arena, (size_t)s->L * sizeof *s->layers);
    if (!s->layers) return LN_OOM(err, "the layers");
    s->n_attn = 0;
    for (int l = 0; l < s->L; l++) {
        a.sliding = sliding && sliding[l];
        a.window = a.sliding ? window : 0;
        a.rope = rotated && !rotated[l] ? -1 : 0;
        s->layers[l] = (ln_layer){.attn = ln_attn_row(s, &a), .state_from = l};
    }
    return LN_OK;
}

ln_status ln_read_window(const ln_config *c, const char *field, int64_t dflt, int64_t *window,
                         ln_error *err) {
    *window = 0;
    if (json_is_null(json_object_get(c->text, field))) return LN_OK;
    return ln_config_int(c, field, dflt, dflt ? 1 : 0, INT32_MAX, window, err);
}

ln_status ln_read_pattern_layers(ln_spec *s, const ln_config *c, int64_t pattern, int64_t window,
                                 ln_error *err) {
    bool found, *sliding = ln_arena_alloc(&s->arena, (size_t)s->L * sizeof *sliding);
    if (!sliding) return LN_OOM(err, "the layers");
    LN_TRY(ln_read_layer_types(s, c, sliding, &found, err));
    for (int l = 0; l < s->L && !found; l++) sliding[l] = (l + 1) % pattern != 0;
    return ln_set_layers(s, sliding, window, err);
}

ln_status ln_read_layer_types(const ln_spec *s, const ln_config *c, bool *sliding, bool *found,
                              ln_error *err) {
    const json_t *types = json_object_get(c->text, "layer_types");
    *found = types && !json_is_null(types);
    if (!*found) return LN_OK;
    if (!json_is_array(types) || json_array_size(types) != (size_t)s->L) {
        char wanted[64];
        (void)snprintf(wanted, sizeof wanted, "a list of %d kinds, one a layer", s->L);
        return ln_config_fail(c, types, "layer_types", wanted, err);
    }
    size_t l;
    json_t *item;
    json_array_foreach(types, l, item) {
        const char *kind = json_string_value(item);
        if (!kind) return ln_config_fail(c, item, "layer_types", "the name of a kind", err);
        sliding[l] = strcmp(kind, "sliding_attention") == 0;
        if (sliding[l] || strcmp(kind, "full_attention") == 0) continue;
        char shown[LN_PATH_TEXT], text[80];
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: layer_types: %s is not supported; linnet knows full_attention and "
                       "sliding_attention",
                       ln_path_text(shown, c->path), ln_excerpt(text, kind, strlen(kind)));
    }
    return LN_OK;
}

/* Sets which layers are recurrent. */
static ln_status read_recurrent(const ln_spec *s, const ln_config *c, const char *recurrent, int64_t interval,
                                bool *is, ln_error *err) {
    const json_t *types = json_object_get(c->text, "layer_types");
    char wanted[128], shown[LN_PATH_TEXT], text[80];
    size_t l;
    json_t *item;
    for (int i = 0; i < s->L; i++) is[i] = (i + 1) % interval != 0;
    if (!types || json_is_null(types)) return LN_OK;
    (void)snprintf(wanted, sizeof wanted, "a list of %d kinds, one a layer", s->L);
    if (!json_is_array(types) || json_array_size(types) != (size_t)s->L)
        return ln_config_fail(c, types, "layer_types", wanted, err);
    json_array_foreach(types, l, item) {
        const char *kind = json_string_value(item);
        if (!kind) return ln_config_fail(c, item, "layer_types", "the name of a kind", err);
        is[l] = strcmp(kind, recurrent) == 0;
        if (!is[l] && strcmp(kind, "full_attention") != 0)
            return ln_fail(err, LN_EUNSUPPORTED, "%s: layer_types: %s is not supported in %s models",
                           ln_path_text(shown, c->path), ln_excerpt(text, kind, strlen(kind)), c->model_type);
    }
    return LN_OK;
}

ln_status ln_set_recurrent_layers(ln_spec *s, const ln_config *c, const bool *is, ln_error *err) {
    char shown[LN_PATH_TEXT];
    LN_TRY(ln_set_layers(s, NULL, 0, err));
    for (int l = 0; l < s->L; l++)
        if (is[l]) s->layers[l].attn = -1, s->n_recur = 1;
    if (ln_first_attention(s) >= 0) return LN_OK;
    return ln_fail(err, LN_EUNSUPPORTED, "%s: layer_types: a model without full_attention is not supported",
                   ln_path_text(shown, c->path));
}
ln_status ln_read_recurrent_layers(ln_spec *s, const ln_config *c, const char *recurrent, int64_t interval,
                                   ln_error *err) {
    bool *is = ln_arena_alloc(&s->arena, (size_t)s->L * sizeof *is);
    if (!is) return LN_OOM(err, "the layers");
    LN_TRY(read_recurrent(s, c, recurrent, interval, is, err));
    return ln_set_recurrent_layers(s, c, is, err);
}

ln_status ln_add_recurrent(ln_spec *s, const ln_recur_spec *row, ln_error *err) {
    s->recur = ln_arena_alloc(&s->arena, sizeof *s->recur);
    if (!s->recur) return LN_OOM(err, "the layers");
    s->recur[0] = *row;
    return LN_OK;
}

static ln_status refuse_window(const ln_config *c, const char *field, ln_error *err) {
    char shown[LN_PATH_TEXT], text[80];
    return ln_fail(err, LN_EUNSUPPORTED,
                   "%s: %s: a window of attention is not supported in %s models, found %s; linnet would "
                   "compute another model than "
                   "this one, use software that knows this key",
                   ln_path_text(shown, c->path), field, c->model_type,
                   ln_json_text(json_object_get(c->text, field), text));
}

ln_status ln_refuse_windows(const ln_spec *s, const ln_config *c, ln_error *err) {
    int64_t window = 0;
    bool found, *sliding = ln_alloc((size_t)s->L * sizeof *sliding);
    if (!sliding) return LN_OOM(err, "the layers");
    ln_status st = ln_read_layer_types(s, c, sliding, &found, err);
    bool any = false;
    for (int l = 0; l < s->L && st == LN_OK && found; l++) any = any || sliding[l];
    ln_free(sliding);
    LN_TRY(st);
    if (any) return refuse_window(c, "layer_types", err);
    if (found) return LN_OK;
    if (!ln_config_has(c, "sliding_window") || json_is_false(json_object_get(c->text, "use_sliding_window")))
        return LN_OK;
    LN_TRY(ln_config_int(c, "sliding_window", 0, 1, INT32_MAX, &window, err));
    return window < s->n_ctx ? refuse_window(c, "sliding_window", err) : LN_OK;
}

/* Without use_sliding_window no layer has a window, whatever sliding_window and max_window_layers are. */
ln_status ln_read_late_windows(ln_spec *s, const ln_config *c, int64_t first_window, ln_error *err) {
    bool use, found, any = false;
    int64_t window = 0, first = 0;
    LN_TRY(ln_config_bool(c, "use_sliding_window", false, &use, err));
    if (use && !json_is_null(json_object_get(c->text, "sliding_window")))
        LN_TRY(ln_config_int(c, "sliding_window", 4096, 1, INT32_MAX, &window, err));
    if (use) LN_TRY(ln_config_int(c, "max_window_layers", first_window, 0, INT32_MAX, &first, err));
    bool *sliding = ln_arena_alloc(&s->arena, (size_t)s->L * sizeof *sliding);
    if (!sliding) return LN_OOM(err, "the layers");
    LN_TRY(ln_read_layer_types(s, c, sliding, &found, err));
    for (int l = 0; l < s->L; l++) {
        if (!found) sliding[l] = window > 0 && l >= first;
        any |= sliding[l];
    }
    if (any && window == 0) {
        char shown[LN_PATH_TEXT];
        return ln_fail(err, LN_EINVALID,
                       "%s: layer_types has sliding_attention, expected use_sliding_window true and a "
                       "sliding_window, found neither or one",
                       ln_path_text(shown, c->path));
    }
    return ln_set_layers(s, sliding, window, err);
}
