/* Rotary position embeddings: reads the scaling rule of a configuration and computes the inverse frequencies
 * in f32.
 *
 * Configurations have two formats. Older files have `rope_theta` and a `rope_scaling` object whose kind is
 * called `rope_type` or, still older, `type`; newer files have everything in `rope_parameters`, sometimes
 * with one object per layer kind. The reference first converts both into standardised objects
 * (modeling_rope_utils.py, convert_rope_params_to_dict and standardize_rope_params); this file does the same
 * and then reads one format only.
 *
 * Context length: YaRN extends the context to `factor` times the original positions, a dynamic NTK rope to
 * `factor` times max_position_embeddings. The spec's n_ctx becomes that. A dynamic table holds the
 * frequencies of texts up to max_position_embeddings; ops/rope_op.c computes those of longer texts, row by
 * row.
 *
 * The frequencies must equal the reference's to the last bit where that is possible, because the angle at
 * position 30,000 multiplies a relative error of 2^-24 by 30,000. Therefore every step is one f32 operation
 * in the reference's order (PyTorch computes a number divided by a tensor as reciprocal and product). The
 * power, which no two libraries round alike, is computed in double and rounded once. */
#include "family.h"

#include <math.h>
#include <string.h>

static const double two_pi = 6.283185307179586;

/* The ramp of YaRN (modeling_rope_utils.py, _compute_yarn_parameters), in indices of frequencies: frequencies
 * below *low rotate often enough within the original context to stay unchanged, those above *high are
 * interpolated, and in between the two are mixed linearly. */
static void yarn_range(const ln_rope_rule *r, int head_dim, double *low, double *high) {
    const double per_log = head_dim / (2 * ln_log64(r->theta)), original = (double)r->original;
    *low = per_log * ln_log64(original / (r->beta_fast * two_pi));
    *high = per_log * ln_log64(original / (r->beta_slow * two_pi));
    if (r->truncate) *low = floor(*low), *high = ceil(*high);
    *low = LN_MAX(*low, 0.0);
    *high = LN_MIN(*high, head_dim - 1.0);
    if (*low == *high) *high += 0.001; /* as in the reference: avoids a division by zero */
}

static void yarn_freqs(const ln_rope_rule *r, int head_dim, float *freqs) {
    double low, high;
    yarn_range(r, head_dim, &low, &high);
    for (int i = 0; i < head_dim / 2; i++) {
        float wave = ln_powf((float)r->theta, (float)(2 * i) / (float)head_dim);
        float kept = 1.0f / wave, interpolated = 1.0f / ((float)r->factor * wave);
        float ramp = ((float)i - (float)low) / (float)(high - low);
        float share = 1.0f - (ramp > 1 ? 1.0f : ramp > 0 ? ramp : 0.0f);
        freqs[i] = interpolated * (1.0f - share) + kept * share;
    }
}

/* As in transformers, _compute_longrope_parameters. */
static void longrope_freqs(const ln_rope_rule *r, int head_dim, const json_t *divisors, float *freqs) {
    for (int i = 0; i < head_dim / 2; i++) {
        const float divisor = (float)json_number_value(json_array_get(divisors, (size_t)i));
        freqs[i] = 1.0f / (divisor * ln_powf((float)r->theta, (float)(2 * i) / (float)head_dim));
    }
}

void ln_rope_freqs(const ln_rope_rule *r, int head_dim, bool beyond, float *freqs) {
    float base = (float)r->theta, factor = (float)r->factor;
    float low = (float)r->low, original = (float)r->original;
    float low_wave = (float)((double)r->original / r->low),
          high_wave = (float)((double)r->original / r->high);
    float span = (float)(r->high - r->low);
    if (r->type == LN_ROPE_YARN) {
        yarn_freqs(r, head_dim, freqs);
        return;
    }
    if (r->type == LN_ROPE_LONGROPE) {
        longrope_freqs(r, head_dim, beyond ? r->long_factor : r->short_factor, freqs);
        return;
    }
    for (int i = 0; i < head_dim / 2; i++) {
        float inv = 1.0f / ln_powf(base, (float)(2 * i) / (float)head_dim);
        freqs[i] = inv;
        if (r->type == LN_ROPE_PROPORTIONAL) freqs[i] = i < r->turning ? inv / factor : 0;
        if (r->type == LN_ROPE_LINEAR) freqs[i] = inv / factor;
        if (r->type != LN_ROPE_LLAMA3) continue;
        float wave = (1.0f / inv) * (float)two_pi;
        float slow = wave > low_wave ? inv / factor : inv;
        float smooth = ((1.0f / wave) * original - low) / span;
        bool medium = !(wave < high_wave) && !(wave > low_wave);
        float mixed = (1.0f - smooth) * slow / factor + smooth * slow;
        freqs[i] = medium ? mixed : slow;
    }
}

/* ---- one parameter object ---- */

static ln_status real_at(const ln_config *c, const json_t *params, const char *where, const char *field,
                         double lo, double hi, double *out, ln_error *err) {
    char text[96];
    (void)snprintf(text, sizeof text, "%s.%s", where, field);
    return ln_config_real_at(c, json_object_get(params, field), text, lo, hi, out, err);
}

/* The same with a default for an absent field, null and 0: the reference writes `params.get(field) or
 * default`. */
static ln_status optional_at(const ln_config *c, const json_t *params, const char *where, const char *field,
                             double dflt, double hi, double *out, ln_error *err) {
    const json_t *value = json_object_get(params, field);
    *out = dflt;
    if (!value || json_is_null(value) || (json_is_number(value) && json_number_value(value) == 0))
        return LN_OK;
    return real_at(c, params, where, field, 1e-6, hi, out, err);
}

/* The original context; the model's own context if the field is absent. */
static ln_status read_original(const ln_spec *s, const ln_config *c, const json_t *params, ln_rope_rule *r,
                               ln_error *err) {
    const json_t *original = json_object_get(params, "original_max_position_embeddings");
    r->original = s->n_ctx;
    if (!original) return LN_OK;
    return ln_config_int_at(c, original, "original_max_position_embeddings", 1, INT32_MAX, &r->original, err);
}

/* As in transformers, _compute_llama3_parameters. */
static ln_status read_llama3(const ln_spec *s, const ln_config *c, const json_t *params, const char *where,
                             ln_rope_rule *r, ln_error *err) {
    LN_TRY(real_at(c, params, where, "low_freq_factor", 1e-6, 1e6, &r->low, err));
    LN_TRY(real_at(c, params, where, "high_freq_factor", 1e-6, 1e6, &r->high, err));
    if (r->high <= r->low)
        return ln_config_fail(c, json_object_get(params, "high_freq_factor"), where,
                              "a high_freq_factor above low_freq_factor", err);
    return read_original(s, c, params, r, err);
}

/* As get_mscale in transformers. */
static double yarn_scale(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * ln_log64(factor) + 1;
}

/* As in transformers, _compute_yarn_parameters. The attention factor is attention_factor if given, else it is
 * computed from both mscales if given, else from the factor. */
static ln_status read_yarn(const ln_spec *s, const ln_config *c, const json_t *params, const json_t *outer,
                           const char *where, ln_rope_rule *r, ln_error *err) {
    const json_t *given = json_object_get(params, "attention_factor"),
                 *truncate = json_object_get(outer, "truncate");
    double mscale, all;
    LN_TRY(read_original(s, c, params, r, err));
    if (json_is_null(json_object_get(params, "factor"))) r->factor = (double)s->n_ctx / (double)r->original;
    else LN_TRY(real_at(c, params, where, "factor", 1e-6, 1e9, &r->factor, err));
    LN_TRY(optional_at(c, params, where, "mscale", 0, 1e6, &mscale, err));
    LN_TRY(optional_at(c, params, where, "mscale_all_dim", 0, 1e6, &all, err));
    LN_TRY(optional_at(c, params, where, "beta_fast", 32, 1e9, &r->beta_fast, err));
    LN_TRY(optional_at(c, params, where, "beta_slow", 1, 1e9, &r->beta_slow, err));
    r->scale = mscale != 0 && all != 0 ? yarn_scale(r->factor, mscale) / yarn_scale(r->factor, all)
                                       : yarn_scale(r->factor, 1);
    if (given && !json_is_null(given))
        LN_TRY(real_at(c, params, where, "attention_factor", 0, 1e6, &r->scale, err));
    if (truncate && !json_is_null(truncate) && !json_is_boolean(truncate))
        return ln_config_fail(c, truncate, "rope truncate", "true or false", err);
    r->truncate = !truncate || json_is_true(truncate);
    if (r->theta <= 1)
        return ln_config_fail(c, json_object_get(params, "rope_theta"), where,
                              "a rope_theta above 1 for yarn", err);
    return LN_OK;
}

static ln_status read_dynamic(const ln_config *c, const json_t *params, const char *where, ln_rope_rule *r,
                              ln_error *err) {
    if (r->width <= 2)
        return ln_config_fail(c, json_object_get(c->text, "head_dim"), "head_dim",
                              "more than 2 for a dynamic rope", err);
    if (r->width > 1024)
        return ln_config_fail(c, json_object_get(c->text, "head_dim"), "head_dim",
                              "at most 1024 for a dynamic rope", err);
    return real_at(c, params, where, "factor", 1, 1e6, &r->factor, err);
}

/* A list of width / 2 divisors. */
static ln_status read_divisors(const ln_config *c, const json_t *params, const char *where, const char *field,
                               int width, const json_t **out, ln_error *err) {
    char name[96], wanted[64];
    *out = json_object_get(params, field);
    (void)snprintf(name, sizeof name, "%s.%s", where, field);
    (void)snprintf(wanted, sizeof wanted, "a list of %d numbers from 1e-6 to 1e9", width / 2);
    bool ok = json_is_array(*out) && json_array_size(*out) == (size_t)(width / 2);
    for (size_t i = 0; ok && i < json_array_size(*out); i++) {
        const json_t *x = json_array_get(*out, i);
        ok = json_is_number(x) && json_number_value(x) >= 1e-6 && json_number_value(x) <= 1e9;
    }
    return ok ? LN_OK : ln_config_fail(c, *out, name, wanted, err);
}

/* As in transformers, _compute_longrope_parameters: the attention factor is attention_factor if given, else
 * it follows from the factor by which the context is extended. */
static ln_status read_longrope(const ln_spec *s, const ln_config *c, const json_t *params, const char *where,
                               ln_rope_rule *r, ln_error *err) {
    const json_t *given = json_object_get(params, "attention_factor");
    LN_TRY(read_divisors(c, params, where, "short_factor", r->width, &r->short_factor, err));
    LN_TRY(read_divisors(c, params, where, "long_factor", r->width, &r->long_factor, err));
    LN_TRY(read_original(s, c, params, r, err));
    if (json_is_null(json_object_get(params, "factor")) || !json_object_get(params, "factor"))
        r->factor = (double)s->n_ctx / (double)r->original;
    else LN_TRY(real_at(c, params, where, "factor", 1e-6, 1e9, &r->factor, err));
    r->scale = r->factor <= 1 || r->original <= 1
                   ? 1
                   : sqrt(1 + ln_log64(r->factor) / ln_log64((double)r->original));
    if (given && !json_is_null(given))
        LN_TRY(real_at(c, params, where, "attention_factor", 0, 1e6, &r->scale, err));
    return LN_OK;
}

/* `alpha` raises the base as dynamic NTK scaling does, for texts of any
 * length. Sets *found if the parameters have one. */
static ln_status read_alpha(const ln_config *c, const json_t *params, const char *where, int E,
                            ln_rope_rule *r, bool *found, ln_error *err) {
    double alpha;
    LN_TRY(optional_at(c, params, where, "alpha", 0, 1e9, &alpha, err));
    *found = alpha != 0;
    if (!*found) return LN_OK;
    if (E <= 2)
        return ln_config_fail(c, json_object_get(c->text, "head_dim"), "head_dim", "more than 2 for alpha",
                              err);
    r->theta *= ln_exp64((double)E / (double)(E - 2) * ln_log64(alpha));
    r->type = LN_ROPE_DEFAULT;
    return LN_OK;
}

/* The part of a head that is rotated, in columns. */
static ln_status read_width(const ln_config *c, const ln_rope_facts *facts, int E, bool proportional,
                            const json_t *params, const char *where, ln_rope_rule *r, ln_error *err) {
    char shown[LN_PATH_TEXT], text[80];
    const json_t *given = json_object_get(params, "partial_rotary_factor");
    double partial = facts->partial > 0 ? facts->partial : 1;
    r->width = E;
    if (given && !json_is_null(given))
        LN_TRY(real_at(c, params, where, "partial_rotary_factor", 1e-6, 1, &partial, err));
    r->turning = (int)(partial * E / 2); /* of frequencies that all columns share: proportional */
    if (proportional) return LN_OK;
    if (facts->partial == 0 && partial != 1)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: %s.partial_rotary_factor: one other than 1 is not supported, found %s",
                       ln_path_text(shown, c->path), where, ln_json_text(given, text));
    r->width = (int)(E * partial);
    if (r->width >= 2 && r->width % 2 == 0) return LN_OK;
    (void)snprintf(text, sizeof text, "a part of the %d columns of a head that is even", E);
    return ln_config_fail(c, given, "partial_rotary_factor", text, err);
}

/* The rope types that linnet computes, with the fields that the reference reads in addition to the four
 * common ones. */
static const struct {
    const char *name, *fields[8];
} types[] = {
    [LN_ROPE_DEFAULT] = {"default", {NULL}},
    [LN_ROPE_LINEAR] = {"linear", {"factor"}},
    [LN_ROPE_DYNAMIC] = {"dynamic", {"factor"}},
    [LN_ROPE_YARN] = {"yarn",
                      {"factor", "attention_factor", "mscale", "mscale_all_dim", "beta_fast", "beta_slow",
                       "truncate", "original_max_position_embeddings"}},
    [LN_ROPE_LLAMA3] = {"llama3",
                        {"factor", "low_freq_factor", "high_freq_factor",
                         "original_max_position_embeddings"}},
    [LN_ROPE_LONGROPE] = {"longrope",
                          {"factor", "attention_factor", "short_factor", "long_factor",
                           "original_max_position_embeddings"}},
    [LN_ROPE_PROPORTIONAL] = {"proportional", {"factor"}},
};
/* Names of types that transformers converts. mrope: of texts without images the three positions are one. */
static const struct {
    const char *name, *is;
    bool for_longrope;
} old_types[] = {{"mrope", "default", false}, {"su", "longrope", true}, {"yarn", "longrope", true}};

static const char *type_name(const ln_rope_facts *facts, const char *name) {
    for (size_t i = 0; i < LN_COUNT(old_types); i++)
        if (strcmp(name, old_types[i].name) == 0 && (!old_types[i].for_longrope || facts->yarn_is_longrope))
            return old_types[i].is;
    return name;
}

/* Warns of a field that has a value but is not read for this rope type. The reference warns of it too and
 * computes without it. */
static void warn_unread(const ln_config *c, const ln_rope_facts *facts, const json_t *params,
                        const char *where, const ln_rope_rule *r) {
    static const char *const common[] = {
        "rope_type", "type", "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved"};
    static const char *const of_scale[] = {"llama_4_scaling_beta", "original_max_position_embeddings",
                                           "max_position_embeddings"};
    const char *field;
    json_t *value;
    char shown[LN_PATH_TEXT], text[80];
    json_object_foreach((json_t *)(uintptr_t)params, field, value) {
        bool read = json_is_null(value);
        for (size_t i = 0; i < LN_COUNT(common); i++) read |= strcmp(field, common[i]) == 0;
        for (size_t i = 0; facts->q_scale && i < LN_COUNT(of_scale); i++)
            read |= strcmp(field, of_scale[i]) == 0;
        for (size_t i = 0; i < LN_COUNT(types[0].fields) && types[r->type].fields[i]; i++)
            read |= strcmp(field, types[r->type].fields[i]) == 0;
        if (!read)
            ln_log(LN_LOG_WARN, "%s: %s.%s is not read: rope_type %s has no such field",
                   ln_path_text(shown, c->path), where, ln_excerpt(text, field, strlen(field)),
                   types[r->type].name);
    }
}

ln_status ln_rope_read(const ln_spec *s, const ln_config *c, const ln_rope_facts *facts, int E,
                       const json_t *params, const json_t *outer, const char *where, ln_rope_rule *out,
                       ln_error *err) {
    char shown[LN_PATH_TEXT], text[80];
    *out = (ln_rope_rule){.factor = 1,
                          .low = 1,
                          .high = 4,
                          .original = s->n_ctx,
                          .scale = 1,
                          .interleaved = facts->interleaved};
    const json_t *type = json_object_get(params, "rope_type");
    if (!type) type = json_object_get(params, "type");
    if (type && !json_is_string(type))
        return ln_config_fail(c, type, "rope_type", "the name of a rope type", err);
    const char *name = type_name(facts, type ? json_string_value(type) : "default");
    bool alpha = false;
    LN_TRY(real_at(c, params, where, "rope_theta", 1e-6, 1e30, &out->theta, err));
    LN_TRY(read_width(c, facts, E, strcmp(name, "proportional") == 0, params, where, out, err));
    size_t t = 0;
    while (t < LN_COUNT(types) && strcmp(name, types[t].name) != 0) t++;
    if (t == LN_COUNT(types))
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: %s: rope_type %s is not supported; linnet knows default, linear, dynamic, yarn, "
                       "llama3, longrope and proportional",
                       ln_path_text(shown, c->path), where, ln_excerpt(text, name, strlen(name)));
    out->type = (unsigned)t;
    if (facts->alpha && out->type == LN_ROPE_DYNAMIC)
        LN_TRY(read_alpha(c, params, where, E, out, &alpha, err));
    if (alpha) return LN_OK;
    warn_unread(c, facts, params, where, out);
    if (out->type == LN_ROPE_DEFAULT) return LN_OK;
    if (out->type == LN_ROPE_YARN) return read_yarn(s, c, params, outer, where, out, err);
    if (out->type == LN_ROPE_LONGROPE) return read_longrope(s, c, params, where, out, err);
    if (out->type == LN_ROPE_DYNAMIC) return read_dynamic(c, params, where, out, err);
    if (out->type == LN_ROPE_PROPORTIONAL)
        return optional_at(c, params, where, "factor", 1, 1e9, &out->factor, err);
    LN_TRY(real_at(c, params, where, "factor", 1e-6, 1e9, &out->factor, err));
    return out->type == LN_ROPE_LLAMA3 ? read_llama3(s, c, params, where, out, err) : LN_OK;
}

ln_status ln_rope_add(ln_spec *s, const ln_rope_rule *rule, ln_error *err) {
    const size_t n = (size_t)rule->width / 2;
    float *freqs = ln_arena_alloc(&s->arena, 2 * n * sizeof *freqs);
    if (!freqs) return LN_OOM(err, "a rotary table");
    ln_rope_freqs(rule, rule->width, false, freqs);
    ln_rope r = {.theta = rule->theta,
                 .n = (int)n,
                 .interleaved = rule->interleaved,
                 .freqs = freqs,
                 .scale = (float)rule->scale};
    if (rule->type == LN_ROPE_LONGROPE) {
        r.beyond = freqs + n;
        ln_rope_freqs(rule, rule->width, true, r.beyond);
        r.ntk.positions = rule->original;
    }
    const double reach = rule->factor * (double)(rule->type == LN_ROPE_YARN ? rule->original : s->n_ctx);
    if (rule->type == LN_ROPE_DYNAMIC) r.ntk = (ln_ntk){rule->theta, rule->factor, s->n_ctx};
    if (rule->type == LN_ROPE_DYNAMIC || rule->type == LN_ROPE_YARN)
        r.n_ctx = (int64_t)LN_MIN(reach, (double)INT32_MAX);
    s->ropes[s->n_ropes++] = r;
    return LN_OK;
}

void ln_rope_settle_context(ln_spec *s) {
    for (int i = 0; i < s->n_ropes; i++) s->n_ctx = LN_MAX(s->n_ctx, s->ropes[i].n_ctx);
}

/* The least length from which on a table depends on it; 0: none does. *two_sets: each such table has one set
 * of frequencies for shorter texts and one for longer ones. */
static int64_t depends_from(const ln_spec *s, bool *two_sets) {
    int64_t from = 0;
    *two_sets = true;
    for (int i = 0; i < s->n_ropes; i++) {
        const int64_t here = s->ropes[i].ntk.positions;
        if (here > 0) from = from > 0 ? LN_MIN(from, here) : here;
        if (here > 0) *two_sets = *two_sets && s->ropes[i].beyond;
    }
    return from;
}

int64_t ln_spec_rope_length(const ln_spec *s, int64_t n_prompt) {
    bool two_sets;
    const int64_t from = depends_from(s, &two_sets);
    if (from > 0 && two_sets)
        return n_prompt > from ? INT64_MAX : from; /* LongRoPE: all rows of longer texts are alike */
    return from > 0 ? LN_MAX(n_prompt, from) : 0;
}

int64_t ln_spec_rope_switch(const ln_spec *s) {
    bool two_sets;
    const int64_t from = depends_from(s, &two_sets);
    return two_sets ? from : 0;
}

/* ---- locating the parameter objects ---- */

ln_status ln_rope_object(const ln_config *c, const json_t *in, const char *field, json_t **out,
                         ln_error *err) {
    const json_t *value = json_object_get(in, field);
    *out = NULL;
    if (!value || json_is_null(value)) return LN_OK;
    if (!json_is_object(value)) return ln_config_fail(c, value, field, "an object", err);
    if (json_object_size(value) == 0) return LN_OK;
    *out = ln_json_copy(value);
    return *out ? LN_OK : LN_OOM(err, "rope parameters");
}

/* Both numbers are members of the object. */
static ln_status read_q_scale(ln_spec *s, const ln_config *c, const json_t *params, const char *where,
                              ln_error *err) {
    static const char field[] = "original_max_position_embeddings";
    const json_t *original = json_object_get(params, field);
    ln_p_pos_scale scale = {0};
    double beta;
    LN_TRY(real_at(c, params, where, "llama_4_scaling_beta", 0, 1e6, &beta, err));
    if (!original) return ln_config_fail(c, NULL, field, "the positions of llama_4_scaling_beta", err);
    LN_TRY(ln_config_int_at(c, original, field, 1, INT32_MAX, &scale.positions, err));
    scale.factor = (float)beta;
    for (int i = 0; i < s->n_attn && beta != 0; i++) s->attn[i].q_scale = scale;
    return LN_OK;
}

/* Adds the table of one object (flat, or of one layer kind), completed with rope_theta and
 * partial_rotary_factor of the configuration. Changes `params`. */
static ln_status add_flat(ln_spec *s, const ln_config *c, const ln_rope_facts *facts, int E, json_t *params,
                          const json_t *outer, const char *where, double theta, ln_error *err) {
    ln_rope_rule rule;
    json_t *partial = json_object_get(c->text, "partial_rotary_factor");
    const bool forced = facts->forced_theta > 0;
    bool ok = (!forced && json_object_get(params, "rope_theta")) ||
              json_object_set_new(params, "rope_theta", json_real(forced ? facts->forced_theta : theta)) == 0;
    if (ok && partial && !json_object_get(params, "partial_rotary_factor"))
        ok = json_object_set(params, "partial_rotary_factor", partial) == 0;
    if (!ok) return LN_OOM(err, "rope parameters");
    LN_TRY(ln_rope_read(s, c, facts, E, params, outer, where, &rule, err));
    if (facts->q_scale) LN_TRY(read_q_scale(s, c, params, where, err));
    return ln_rope_add(s, &rule, err);
}

/* Parameters per layer kind: adds a table for each kind of attention that the model has. */
static ln_status add_kinds(ln_spec *s, const ln_config *c, const ln_rope_facts *facts, const json_t *params,
                           double theta, ln_error *err) {
    static const char *const kinds[] = {"full_attention", "sliding_attention"};
    for (int i = 0; i < s->n_attn; i++) {
        const char *kind = kinds[s->attn[i].sliding];
        json_t *p = NULL;
        if (s->attn[i].rope < 0) continue;
        LN_TRY(ln_rope_object(c, params, kind, &p, err));
        if (!p) return ln_config_fail(c, NULL, kind, "rope parameters for this kind of layer", err);
        s->attn[i].rope = s->n_ropes;
        const ln_status st = add_flat(s, c, facts, s->attn[i].E, p, params, kind, theta, err);
        json_decref(p);
        LN_TRY(st);
    }
    return LN_OK;
}

static bool reads_original(const json_t *params) {
    const json_t *type = json_object_get(params, "rope_type");
    const char *name = json_string_value(type ? type : json_object_get(params, "type"));
    return name && (strcmp(name, "llama3") == 0 || strcmp(name, "yarn") == 0 ||
                    strcmp(name, "longrope") == 0 || strcmp(name, "su") == 0);
}

ln_status ln_read_rope(ln_spec *s, const ln_config *c, const ln_rope_facts *facts, ln_error *err) {
    double theta;
    json_t *params = NULL;
    const char *where = "rope_scaling";
    LN_TRY(ln_config_real(c, "rope_theta", facts->theta, 1e-6, 1e30, &theta, err));
    LN_TRY(ln_rope_object(c, c->text, "rope_scaling", &params, err));
    if (!params) {
        where = "rope_parameters";
        LN_TRY(ln_rope_object(c, c->text, "rope_parameters", &params, err));
    }
    if (!params && facts->absent)
        LN_TRY(ln_json_load(&params, "the parameters of RoPE", facts->absent, strlen(facts->absent), err));
    if (!params) params = json_object();
    if (!params) return LN_OOM(err, "rope parameters");
    bool kinds = json_is_object(json_object_get(params, "full_attention")) ||
                 json_is_object(json_object_get(params, "sliding_attention"));
    /* standardize_rope_params: original_max_position_embeddings outside the object takes precedence, if the
     * rope type reads it and the parameters are not given per layer kind. */
    json_t *original = json_object_get(c->text, "original_max_position_embeddings"), *made = NULL;
    if ((!original || json_is_null(original)) && facts->original)
        original = made = json_integer(facts->original);
    ln_status st = LN_OK;
    if (!kinds && original && !json_is_null(original) && reads_original(params) &&
        json_object_set(params, "original_max_position_embeddings", original) != 0)
        st = LN_OOM(err, "rope parameters");
    json_decref(made);
    if (st == LN_OK)
        st = kinds ? add_kinds(s, c, facts, params, theta, err)
                   : add_flat(s, c, facts, s->attn[0].E, params, params, where, theta, err);
    json_decref(params);
    ln_rope_settle_context(s);
    return st;
}
