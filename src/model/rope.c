/* Rotary tables: which rule a configuration asks for, and the inverse frequencies in f32.
 *
 * Two forms of the same facts: old files have `rope_theta` beside a `rope_scaling` object whose kind is called `rope_type` or, older,
 * `type`; new ones have everything in `rope_parameters`, sometimes one object per layer kind. The reference turns both into
 * standardised objects first (modeling_rope_utils.py, convert_rope_params_to_dict and standardize_rope_params); so does this file, and
 * then reads one form only.
 *
 * The frequencies must be the reference's to the last bit where that is possible: an angle at position 30,000 multiplies an error
 * of one part in 2^24 by 30,000. So every step is one f32 operation in the reference's order (a number divided by a tensor is, there,
 * reciprocal and product), and the power, which no two libraries round alike, is taken in double and rounded once. */
#include "family.h"

#include <string.h>

/* base ^ x for f32 operands, rounded once. */
static float power(float base, float x) { return (float)ln_exp64((double)x * ln_log64((double)base)); }

void ln_rope_freqs(const ln_rope_rule *r, int head_dim, float *freqs) {
    float base = (float)r->theta, factor = (float)r->factor;
    float low = (float)r->low, original = (float)r->original;
    float low_wave = (float)((double)r->original / r->low), high_wave = (float)((double)r->original / r->high);
    float span = (float)(r->high - r->low);
    for (int i = 0; i < head_dim / 2; i++) {
        float inv = 1.0f / power(base, (float)(2 * i) / (float)head_dim);
        freqs[i] = inv;
        if (r->type == LN_ROPE_LINEAR) freqs[i] = inv / factor;
        if (r->type != LN_ROPE_LLAMA3) continue;
        float wave = (1.0f / inv) * 6.283185307179586f;
        float slow = wave > low_wave ? inv / factor : inv;
        float smooth = ((1.0f / wave) * original - low) / span;
        bool medium = !(wave < high_wave) && !(wave > low_wave);
        float mixed = (1.0f - smooth) * slow / factor + smooth * slow;
        freqs[i] = medium ? mixed : slow;
    }
}

static ln_status real_at(const ln_config *c, const json_t *params, const char *where, const char *field, double lo, double hi, double *out,
                         ln_error *err) {
    char text[96];
    (void)snprintf(text, sizeof text, "%s.%s", where, field);
    return ln_config_real_at(c, json_object_get(params, field), text, lo, hi, out, err);
}

/* transformers, _compute_llama3_parameters; the original context is the model's own when it is not given. */
static ln_status read_llama3(const ln_spec *s, const ln_config *c, const json_t *params, const char *where, ln_rope_rule *r, ln_error *err) {
    LN_TRY(real_at(c, params, where, "low_freq_factor", 1e-6, 1e6, &r->low, err));
    LN_TRY(real_at(c, params, where, "high_freq_factor", 1e-6, 1e6, &r->high, err));
    if (r->high <= r->low) return ln_config_fail(c, json_object_get(params, "high_freq_factor"), where, "a high_freq_factor above low_freq_factor", err);
    r->original = s->n_ctx;
    const json_t *original = json_object_get(params, "original_max_position_embeddings");
    if (!original) return LN_OK;
    return ln_config_int_at(c, original, "original_max_position_embeddings", 1, INT32_MAX, &r->original, err);
}

ln_status ln_rope_read(const ln_spec *s, const ln_config *c, const json_t *params, const char *where, ln_rope_rule *out, ln_error *err) {
    *out = (ln_rope_rule){.factor = 1, .low = 1, .high = 4, .original = s->n_ctx};
    const json_t *type = json_object_get(params, "rope_type");
    if (!type) type = json_object_get(params, "type");
    if (type && !json_is_string(type)) return ln_config_fail(c, type, "rope_type", "the name of a rope type", err);
    const char *name = type ? json_string_value(type) : "default";
    LN_TRY(real_at(c, params, where, "rope_theta", 1e-6, 1e30, &out->theta, err));
    const json_t *partial = json_object_get(params, "partial_rotary_factor");
    if (partial && !json_is_null(partial) && json_number_value(partial) != 1) {
        char shown[LN_PATH_TEXT], text[80];
        return ln_fail(err, LN_EUNSUPPORTED, "%s: %s.partial_rotary_factor: one other than 1 is not supported, found %s", ln_path_text(shown, c->path), where,
                       ln_json_text(partial, text));
    }
    if (strcmp(name, "default") == 0) return LN_OK;
    out->type = strcmp(name, "linear") == 0 ? LN_ROPE_LINEAR : LN_ROPE_LLAMA3;
    if (out->type == LN_ROPE_LLAMA3 && strcmp(name, "llama3") != 0) {
        char shown[LN_PATH_TEXT], text[80];
        return ln_fail(err, LN_EUNSUPPORTED, "%s: %s: rope_type %s is not supported; linnet knows default, linear and llama3", ln_path_text(shown, c->path),
                       where, ln_excerpt(text, name, strlen(name)));
    }
    LN_TRY(real_at(c, params, where, "factor", 1e-6, 1e9, &out->factor, err));
    return out->type == LN_ROPE_LLAMA3 ? read_llama3(s, c, params, where, out, err) : LN_OK;
}

ln_status ln_rope_add(ln_spec *s, const ln_rope_rule *rule, ln_error *err) {
    float *freqs = ln_arena_alloc(&s->arena, (size_t)s->E / 2 * sizeof *freqs);
    if (!freqs) return LN_OOM(err, "a rotary table");
    ln_rope_freqs(rule, s->E, freqs);
    s->ropes[s->n_ropes++] = (ln_rope){.theta = rule->theta, .freqs = freqs};
    return LN_OK;
}

ln_status ln_rope_object(const ln_config *c, const json_t *in, const char *field, json_t **out, ln_error *err) {
    const json_t *value = json_object_get(in, field);
    *out = NULL;
    if (!value || json_is_null(value)) return LN_OK;
    if (!json_is_object(value)) return ln_config_fail(c, value, field, "an object", err);
    if (json_object_size(value) == 0) return LN_OK;
    *out = json_copy((json_t *)(uintptr_t)value); /* jansson's copy takes no const, and changes nothing */
    if (*out && json_object_size(*out) == json_object_size(value)) return LN_OK; /* without memory the copy lacks members */
    json_decref(*out);
    *out = NULL;
    return LN_OOM(err, "rope parameters");
}

/* One object, flat or of one layer kind, completed with the theta and the partial factor that stand outside it. */
static ln_status add_flat(ln_spec *s, const ln_config *c, json_t *params, const char *where, double theta, ln_error *err) {
    ln_rope_rule rule;
    json_t *partial = json_object_get(c->text, "partial_rotary_factor");
    bool ok = json_object_get(params, "rope_theta") || json_object_set_new(params, "rope_theta", json_real(theta)) == 0;
    if (ok && partial && !json_object_get(params, "partial_rotary_factor")) ok = json_object_set(params, "partial_rotary_factor", partial) == 0;
    if (!ok) return LN_OOM(err, "rope parameters");
    LN_TRY(ln_rope_read(s, c, params, where, &rule, err));
    return ln_rope_add(s, &rule, err);
}

/* Parameters per layer kind: a table for each kind that the model has. */
static ln_status add_kinds(ln_spec *s, const ln_config *c, const json_t *params, double theta, ln_error *err) {
    static const char *const kinds[] = {"full_attention", "sliding_attention"};
    int table[2] = {-1, -1};
    for (int l = 0; l < s->L; l++) {
        int k = s->classes[s->layers[l].cls].window > 0;
        if (table[k] < 0) {
            json_t *p = NULL;
            LN_TRY(ln_rope_object(c, params, kinds[k], &p, err));
            if (!p) return ln_config_fail(c, NULL, kinds[k], "rope parameters for this kind of layer", err);
            table[k] = s->n_ropes;
            ln_status st = add_flat(s, c, p, kinds[k], theta, err);
            json_decref(p);
            LN_TRY(st);
        }
        s->layers[l].rope = table[k];
    }
    return LN_OK;
}

ln_status ln_read_rope(ln_spec *s, const ln_config *c, ln_error *err) {
    double theta;
    json_t *params = NULL;
    const char *where = "rope_scaling";
    LN_TRY(ln_config_real(c, "rope_theta", 10000, 1e-6, 1e30, &theta, err));
    LN_TRY(ln_rope_object(c, c->text, "rope_scaling", &params, err));
    if (!params) {
        where = "rope_parameters";
        LN_TRY(ln_rope_object(c, c->text, "rope_parameters", &params, err));
    }
    if (!params) params = json_object();
    if (!params) return LN_OOM(err, "rope parameters");
    bool kinds = json_is_object(json_object_get(params, "full_attention")) || json_is_object(json_object_get(params, "sliding_attention"));
    ln_status st = kinds ? add_kinds(s, c, params, theta, err) : add_flat(s, c, params, where, theta, err);
    json_decref(params);
    return st;
}
