/* Rotary position embeddings of classes that keep their parameters per layer kind: rope_parameters with an
 * object for each, or the older rope_theta and rope_scaling. */
#include "family.h"

#include <string.h>

/* As convert_rope_params_to_dict of the configuration classes: one object per layer kind, with
 * rope_scaling merged into that of the full layers. Members of rope_parameters other than these two objects
 * are not read. In the older format a `type` does not replace the `rope_type` "default" with which the
 * class starts. *out is a new reference. */
static ln_status kind_params(const ln_config *c, const json_t *params, const json_t *scaling,
                             const char *kind, double theta, json_t **out, ln_error *err) {
    json_t *p = NULL;
    if (params) LN_TRY(ln_rope_object(c, params, kind, &p, err));
    if (!p) p = json_pack("{s:s}", "rope_type", "default");
    bool ok = p && (!scaling || json_object_update(p, (json_t *)(uintptr_t)scaling) == 0);
    if (ok && !json_object_get(p, "rope_theta"))
        ok = json_object_set_new(p, "rope_theta", json_real(theta)) == 0;
    if (!ok) {
        json_decref(p);
        return LN_OOM(err, "rope parameters");
    }
    *out = p;
    return LN_OK;
}

static ln_status add_kind(ln_spec *s, const ln_config *c, const json_t *params, const json_t *scaling,
                          const char *kind, double theta, int E, ln_error *err) {
    static const ln_rope_facts facts = {0};
    json_t *p = NULL;
    ln_rope_rule rule;
    LN_TRY(kind_params(c, params, scaling, kind, theta, &p, err));
    ln_status st = ln_rope_read(s, c, &facts, E, p, params, kind, &rule, err);
    json_decref(p);
    return st == LN_OK ? ln_rope_add(s, &rule, err) : st;
}

/* Warns of parameters directly in rope_parameters: other than the objects of the two layer kinds the
 * reference reads only `truncate` there. */
static void warn_unread(const ln_config *c, const json_t *params) {
    static const char *const read[] = {"full_attention", "sliding_attention", "truncate"};
    const char *field;
    json_t *value;
    char shown[LN_PATH_TEXT], text[80];
    json_object_foreach((json_t *)(uintptr_t)params, field, value) {
        bool known = json_is_null(value);
        for (size_t i = 0; i < LN_COUNT(read); i++) known |= strcmp(field, read[i]) == 0;
        if (known) continue;
        ln_log(LN_LOG_WARN,
               "%s: rope_parameters.%s is not read: this model has its parameters in full_attention and "
               "sliding_attention",
               ln_path_text(shown, c->path), ln_excerpt(text, field, strlen(field)));
    }
}

/* The row of `attn` of one kind that is rotated; -1: no layer is of it. */
static int row_of(const ln_spec *s, bool sliding) {
    for (int i = 0; i < s->n_attn; i++)
        if (s->attn[i].rope >= 0 && s->attn[i].sliding == sliding) return i;
    return -1;
}

ln_status ln_read_kind_ropes(ln_spec *s, const ln_config *c, double full, double sliding, ln_error *err) {
    json_t *params = NULL, *scaling = NULL;
    LN_TRY(ln_rope_object(c, c->text, "rope_parameters", &params, err));
    warn_unread(c, params);
    ln_status st = ln_rope_object(c, c->text, "rope_scaling", &scaling, err);
    for (int kind = 0; kind < LN_KINDS && st == LN_OK; kind++) {
        const int row = row_of(s, kind == LN_KIND_SLIDING), rope = s->n_ropes;
        if (row < 0) continue;
        st = kind == LN_KIND_FULL
                 ? add_kind(s, c, params, scaling, "full_attention", full, s->attn[row].E, err)
                 : add_kind(s, c, params, NULL, "sliding_attention", sliding, s->attn[row].E, err);
        for (int i = row; i < s->n_attn; i++)
            if (s->attn[i].rope >= 0 && s->attn[i].sliding == (kind == LN_KIND_SLIDING))
                s->attn[i].rope = rope;
    }
    json_decref(params);
    json_decref(scaling);
    ln_rope_settle_context(s);
    return st;
}
