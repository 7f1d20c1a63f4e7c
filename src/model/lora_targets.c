/* Which matrices of a model adapters are trained for. */
#include "decoder_train.h"

/* Whether the model has a matrix in this slot, in any layer or outside of them. */
static bool has_matrix(const ln_spec *s, const ln_weights *w, int slot) {
    for (int l = 0; l < s->L; l++)
        if (w->index_layer[l][slot] >= 0 && w->items[w->index_layer[l][slot]].d1) return true;
    if (slot == LN_W_HEAD) return true; /* if it is tied, the embedding */
    return w->index_fixed[slot] >= 0 && w->items[w->index_fixed[slot]].d1;
}

static ln_status check(const ln_lora *lora, const ln_spec *s, const ln_weights *w, ln_error *err) {
    for (int slot = 0; slot < LN_W_COUNT; slot++) {
        char name[160];
        ln_weight_name(name, NULL, (ln_slot)slot, 0);
        if (lora->targets[slot] && !has_matrix(s, w, slot))
            return ln_fail(err, LN_EUNSUPPORTED,
                           "%s: expected a matrix of the layers to adapt; choose among q_proj, k_proj, "
                           "v_proj, "
                           "o_proj, gate_proj, up_proj and down_proj",
                           name);
    }
    for (size_t i = 0; lora->magnitudes && s->parts_by_head && i < s->n_names; i++)
        if (s->names[i].n_parts > 0 && lora->targets[s->names[i].slot])
            return ln_fail(err, LN_EUNSUPPORTED,
                           "%s: DoRA is not trained on tensors whose rows lie by key heads; name other "
                           "matrices, or train LoRA",
                           s->names[i].name);
    if (lora->magnitudes && (lora->targets[LN_W_EMBED] || lora->targets[LN_W_HEAD]))
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: DoRA is trained on matrices of the layers; train LoRA, or leave it out",
                       lora->targets[LN_W_EMBED] ? "embed_tokens" : "lm_head");
    const bool whole[2] = {lora->whole_table, lora->whole_head};
    for (int i = 0; i < 2; i++)
        if (whole[i] && (lora->magnitudes || lora->n_tokens > 0 || lora->targets[i ? LN_W_HEAD : LN_W_EMBED]))
            return ln_fail(err, LN_EUNSUPPORTED, "%s: is trained as a whole, %s",
                           i ? "lm_head" : "embed_tokens",
                           lora->magnitudes     ? "which is not done next to DoRA; train LoRA"
                           : lora->n_tokens > 0 ? "which is not done next to added tokens; leave it out"
                                                : "and has no LoRA then; leave it out of the targets");
    if (lora->magnitudes && lora->n_tokens > 0)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "DoRA: expected no added tokens: their rows are trained next to LoRA alone");
    for (int i = 0; lora->n_tokens > 0 && i < 2; i++)
        if (lora->targets[i ? LN_W_HEAD : LN_W_EMBED])
            return ln_fail(err, LN_EUNSUPPORTED,
                           "%s: has rows of trained tokens, and PEFT has no LoRA next to them; leave it "
                           "out of the targets",
                           i ? "lm_head" : "embed_tokens");
    if (lora->rank < 1 || !(lora->dropout >= 0 && lora->dropout < 1))
        return ln_fail(err, LN_EINVALID,
                       "LoRA: expected a rank of at least 1 and a dropout from 0 to below 1, found %d and %g",
                       lora->rank, lora->dropout);
    if (lora->magnitudes && lora->dropout > 0)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "DoRA: expected a dropout of 0: with one, the frozen matrix would be multiplied with "
                       "x and, once "
                       "more, with what dropout leaves of it");
    return LN_OK;
}

static bool is_adapted(const ln_lora *lora, const ln_weight *w) {
    if (!lora->targets[w->slot] || w->slot == LN_W_EMBED) return false;
    return !lora->layers || (w->layer >= 0 && lora->layers[w->layer]);
}

/* The first weight of the tensor that holds weight i. */
static int leader_of(const ln_weights *w, size_t i) {
    size_t k = i;
    if (ln_source_is_in_pieces(&w->items[i])) {
        for (size_t j = i; j-- > 0 && w->items[j].layer == w->items[i].layer;)
            if (w->items[j].tensor == w->items[i].tensor) k = j;
        return (int)k;
    }
    while (w->items[k].tensor != w->items[i].tensor || w->items[k].row0 > 0) k--; /* it precedes the others */
    return (int)k;
}

size_t ln_lora_count(const ln_lora *lora, const ln_weights *w) {
    size_t n = 0;
    for (size_t i = 0; i < w->n; i++) n += is_adapted(lora, &w->items[i]);
    const bool tied = w->index_fixed[LN_W_HEAD] < 0;
    n += (size_t)lora->targets[LN_W_EMBED] + (size_t)(tied && lora->targets[LN_W_HEAD]);
    n += (size_t)lora->whole_table + (size_t)lora->whole_head;
    return lora->n_tokens > 0 ? n + (tied ? 1 : 2) : n;
}

ln_status ln_lora_targets(const ln_lora *lora, const ln_weights *w, const ln_spec *s, ln_arena *arena,
                          ln_lora_training *out, ln_error *err) {
    bool *adapts = ln_arena_alloc(arena, w->n + 1), *lookups = ln_arena_alloc(arena, w->n + 1);
    const int table = w->index_fixed[LN_W_EMBED], own = w->index_fixed[LN_W_HEAD];
    int *shares = ln_arena_alloc(arena, (w->n + 1) * sizeof *shares);
    if (!adapts || !lookups || !shares) return LN_OOM(err, "the adapted matrices");
    LN_TRY(check(lora, s, w, err));
    for (size_t i = 0; i < w->n; i++) {
        adapts[i] = is_adapted(lora, &w->items[i]);
        lookups[i] = (int)i == table && lora->targets[LN_W_EMBED];
        shares[i] = leader_of(w, i);
    }
    if (own < 0) adapts[table] = lora->targets[LN_W_HEAD];
    if (ln_lora_count(lora, w) == 0)
        return ln_fail(err, LN_EINVALID,
                       "LoRA: no matrix is to be adapted; name at least one, such as q_proj");
    *out = (ln_lora_training){.rank = lora->rank,
                              .scale = lora->scale,
                              .dropout = lora->dropout,
                              .seed = lora->seed,
                              .dtype = lora->dtype,
                              .magnitudes = lora->magnitudes,
                              .adapts = adapts,
                              .lookups = lookups,
                              .looked_up = LN_TRAIN_LOOKED_UP,
                              .whole_table = lora->whole_table,
                              .whole_head = lora->whole_head,
                              .shares = shares,
                              .rows = lora->tokens,
                              .n_rows = lora->n_tokens,
                              .chosen = LN_TRAIN_CHOSEN,
                              .rows_of_head = true,
                              .rows_tied = own < 0,
                              .table = table,
                              .head = own < 0 ? table : own};
    return LN_OK;
}
