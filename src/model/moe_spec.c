/* What families with experts share: reading their sizes, and which layers have them. */
#include "family.h"

#include <stdio.h>

/* The first of two names that the file has; the first if it has neither. */
static const char *field_of(const ln_config *c, const char *name, const char *other) {
    return !ln_config_has(c, name) && ln_config_has(c, other) ? other : name;
}

ln_status ln_read_experts(ln_spec *s, const ln_config *c, const ln_moe_sizes *d, ln_error *err) {
    const char *number = field_of(c, "num_experts", "num_local_experts"),
               *chosen = d->chosen ? d->chosen : field_of(c, "num_experts_per_tok", "experts_per_token");
    int64_t n, k;
    ln_moe_spec *m = &s->ffn[0].moe;
    LN_TRY(ln_config_int(c, d->number ? d->number : number, d->experts, 1, LN_ROUTE_EXPERTS, &n, err));
    LN_TRY(ln_config_int(c, chosen, d->top_k, 1, LN_ROUTE_MOST, &k, err));
    LN_TRY(ln_config_int(c, d->moe_F, d->F, 1, 1 << 22, &m->F, err));
    if (k > n) {
        char wanted[64];
        (void)snprintf(wanted, sizeof wanted, "at most the number of experts, %lld", (long long)n);
        return ln_config_fail(c, json_object_get(c->text, chosen), chosen, wanted, err);
    }
    m->n_experts = (int)n;
    m->route = (ln_p_route){.kind = LN_ROUTE_SOFTMAX, .top_k = (int)k, .factor = 1, .n_groups = 1};
    s->ffn[0].F = 0;
    return LN_OK;
}

/* The row of layers without experts, of this width. */
static void add_dense(ln_spec *s, int64_t F) {
    s->ffn[1] = s->ffn[0];
    s->ffn[1].moe = (ln_moe_spec){0};
    s->ffn[1].F = F;
    s->n_ffn = 2;
}

ln_status ln_read_sparse_layers(ln_spec *s, const ln_config *c, int64_t ffn, ln_error *err) {
    static const char field[] = "mlp_only_layers";
    const json_t *list = json_object_get(c->text, field);
    int64_t step, F;
    LN_TRY(ln_config_int(c, "decoder_sparse_step", 1, 1, INT32_MAX, &step, err));
    LN_TRY(ln_config_int(c, "intermediate_size", ffn, 1, 1 << 22, &F, err));
    if (list && !json_is_null(list) && !json_is_array(list))
        return ln_config_fail(c, list, field, "a list of layers", err);
    for (int l = 0; l < s->L; l++) s->layers[l].ffn = (l + 1) % step != 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        int64_t l;
        LN_TRY(ln_config_int_at(c, json_array_get(list, i), field, 0, INT32_MAX, &l, err));
        if (l < s->L) s->layers[l].ffn = 1;
    }
    ln_dense_layers(s, F);
    return LN_OK;
}

void ln_dense_layers(ln_spec *s, int64_t F) {
    bool any = false, all = true;
    for (int l = 0; l < s->L; l++) {
        any |= s->layers[l].ffn == 1;
        all &= s->layers[l].ffn == 1;
    }
    if (any) add_dense(s, F);
    if (!all) return;
    s->ffn[0] = s->ffn[1];
    s->n_ffn = 1;
    for (int l = 0; l < s->L; l++) s->layers[l].ffn = 0;
}
