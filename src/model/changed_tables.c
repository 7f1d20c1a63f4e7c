/* Binds what an adapter changes of a model's own tensors (io/adapter_changes.c) to the weights.
 *
 * A model whose head is its embedding table keeps one table for both as long as both change alike, which is
 * what PEFT makes of rows of trained tokens, and of everything with ensure_weight_tying. Anything else is of
 * one of the two alone: the head becomes a weight of its own. */
#include "../base/dir_names.h"
#include "../checkpoint/changed_source.h"
#include "adapter_match.h"
#include "weight_slots.h"

#include <string.h>

enum { MOST = 32 }; /* changes of one weight: one of each adapter of a sum */

/* The changes of the embedding and of the head. */
typedef struct tables {
    ln_weights *w;
    ln_spec *s;
    const ln_adapted *by;
    size_t n;
    ln_row_change embed[MOST], head[MOST];
    size_t n_embed, n_head;
    bool apart; /* the embedding and the head of a tied model differ */
    ln_error *err;
} tables;

static ln_status refuse(const tables *t, const ln_adapter_file *a, const ln_adapter_change *x, ln_status st,
                        const char *why) {
    char shown[80];
    return ln_fail(t->err, st, "%s: module %s: %s", a->path, ln_excerpt(shown, x->path, strlen(x->path)),
                   why);
}

/* Whether a change does anything. */
static bool is_real(const ln_adapter_change *x) { return !x->is_copy || x->differs || x->a || x->rows; }

static const ln_adapter_change *find_change(const ln_adapter_file *a, bool head) {
    for (size_t i = 0; i < a->n_changes; i++)
        if (head ? ln_adapter_is_head(&a->changes[i]) : ln_adapter_is_embedding(&a->changes[i]))
            return is_real(&a->changes[i]) ? &a->changes[i] : NULL;
    return NULL;
}

/* Whether two changes list the same rows, and have nothing else. */
static bool same_rows(const ln_adapter_change *x, const ln_adapter_change *y) {
    if (!x->rows || !y->rows || x->n_listed != y->n_listed || x->a || y->a) return false;
    for (int64_t i = 0; i < x->n_listed; i++)
        if (x->listed[i].id != y->listed[i].id || x->listed[i].at != y->listed[i].at) return false;
    return x->rows->bytes == y->rows->bytes && x->rows->dtype == y->rows->dtype &&
           memcmp(x->rows->data, y->rows->data, x->rows->bytes) == 0;
}

/* Whether what an adapter has for the embedding of a tied model is of the head, too. */
static bool is_of_both(const ln_adapter_file *a, const ln_adapter_change *embed,
                       const ln_adapter_change *head) {
    if (a->tied) return embed != NULL;
    if (!embed || !embed->rows || embed->a) return false;
    return !head || same_rows(embed, head);
}

/* Whether the head of a tied model has the embedding's rows of trained tokens with LoRA of its own added to
 * them: PEFT wraps the tied head for the rows, and LoRA wraps that. */
static bool has_rows_below(const ln_adapter_change *embed, const ln_adapter_change *head) {
    return embed->rows && !embed->a && head && head->a && !head->rows && !head->whole;
}

static ln_status add_change(tables *t, const ln_adapted *by, const ln_adapter_change *x, bool head) {
    ln_row_change *list = head ? t->head : t->embed;
    size_t *n = head ? &t->n_head : &t->n_embed;
    const ln_weight *table = &t->w->items[t->w->index_fixed[LN_W_EMBED]];
    const int64_t cols = x->whole                     ? x->whole->dims[1]
                         : x->rows                    ? x->rows->dims[1]
                         : ln_adapter_is_embedding(x) ? x->b->dims[0]
                                                      : x->a->dims[1];
    if (cols != table->d1 || (x->whole && x->whole->n_dims != 2) || x->is_bias)
        return refuse(t, by->file, x, LN_EINVALID,
                      "its width is not that of the model's table; the adapter was made for another model");
    if (x->whole && x->whole->dims[0] < t->s->V)
        return refuse(t, by->file, x, LN_EINVALID,
                      "it has fewer rows than the model's; the adapter was made for another model");
    if (*n == MOST) return refuse(t, by->file, x, LN_EUNSUPPORTED, "too many adapters change this module");
    list[(*n)++] = (ln_row_change){by->file, x, by->factor};
    return LN_OK;
}

/* Lists the changes of the tables. */
static ln_status list_tables(tables *t) {
    for (size_t i = 0; i < t->n; i++) {
        const ln_adapted *by = &t->by[i];
        const ln_adapter_change *embed = find_change(by->file, false), *head = find_change(by->file, true);
        const bool both = t->s->tied && is_of_both(by->file, embed, head);
        if (embed) LN_TRY(add_change(t, by, embed, false));
        if (embed && (both || (t->s->tied && has_rows_below(embed, head))))
            LN_TRY(add_change(t, by, embed, true));
        if (!both && head) LN_TRY(add_change(t, by, head, true));
        t->apart = t->apart || (t->s->tied && !both && (embed || head));
    }
    return LN_OK;
}

/* Rows of both tables with all changes: of a vocabulary that may have grown. */
static int64_t vocabulary(const tables *t) {
    int64_t most = t->s->V;
    for (size_t i = 0; i < t->n_embed; i++) most = LN_MAX(most, ln_adapter_rows_of(t->embed[i].change));
    for (size_t i = 0; i < t->n_head; i++) most = LN_MAX(most, ln_adapter_rows_of(t->head[i].change));
    return most;
}

/* Rejects rows beyond the model's that no adapter has. */
static ln_status check_rows(const tables *t, const ln_row_change *list, size_t n, int64_t V,
                            const char *what) {
    for (int64_t r = t->s->V; r < V; r++) {
        size_t i = 0;
        while (i < n && !ln_adapter_has_row(list[i].change, r)) i++;
        if (i == n)
            return ln_fail(t->err, LN_EINVALID,
                           "%s: the vocabulary grows from %lld to %lld, and row %lld of %s is neither the "
                           "model's nor the adapter's",
                           t->by[0].file->path, (long long)t->s->V, (long long)V, (long long)r, what);
    }
    return LN_OK;
}

static ln_status change(tables *t, ln_weight *w, const ln_row_change *list, size_t n, int64_t rows) {
    for (int64_t k = 0; k < ln_weight_tensors(w); k++) t->w->bytes -= ln_weight_tensor_bytes(w, k);
    t->w->n_parameters += (uint64_t)((rows - w->d0) * LN_MAX(w->d1, 1));
    LN_TRY(ln_source_change(t->w->source, w, list, n, rows, t->err));
    t->w->bytes += (uint64_t)(rows * LN_MAX(w->d1, 1) * ln_dtype_bytes(w->dtype));
    return LN_OK;
}

/* Adds the head of a tied model as a weight of its own. */
static void part_tables(tables *t) {
    ln_weight *embed = &t->w->items[t->w->index_fixed[LN_W_EMBED]], *head = &t->w->items[t->w->n];
    *head = *embed;
    head->slot = LN_W_HEAD;
    head->uses = LN_WEIGHT_MATMUL;
    head->split_rows = LN_SPLIT_UNIT;
    embed->uses = LN_WEIGHT_GATHER;
    embed->split_rows = 0;
    t->w->index_fixed[LN_W_HEAD] = (int)t->w->n++;
    t->w->n_parameters += (uint64_t)(head->d0 * head->d1);
    for (int64_t k = 0; k < ln_weight_tensors(head); k++) t->w->bytes += ln_weight_tensor_bytes(head, k);
    t->s->tied = false;
}

static ln_status change_tables(tables *t) {
    LN_TRY(list_tables(t));
    if (t->n_embed + t->n_head == 0) return LN_OK;
    const int64_t V = vocabulary(t);
    LN_TRY(check_rows(t, t->embed, t->n_embed, V, "the embedding"));
    if (!t->s->tied || t->apart) LN_TRY(check_rows(t, t->head, t->n_head, V, "the output head"));
    if (t->apart) part_tables(t);
    if (t->n_embed > 0)
        LN_TRY(change(t, &t->w->items[t->w->index_fixed[LN_W_EMBED]], t->embed, t->n_embed, V));
    if (!t->s->tied && t->n_head > 0)
        LN_TRY(change(t, &t->w->items[t->w->index_fixed[LN_W_HEAD]], t->head, t->n_head, V));
    t->s->V = V;
    return LN_OK;
}

/* The weight of another module that is saved whole. */
static ln_weight *weight_of(const tables *t, const ln_adapter_change *x) {
    for (size_t i = 0; i < t->w->n; i++) {
        ln_weight *w = &t->w->items[i];
        char name[160], own[224];
        ln_weight_name(name, t->s, (ln_slot)w->slot, w->layer);
        (void)snprintf(own, sizeof own, "%s%s", x->path, x->is_bias ? ".bias" : ".weight");
        if (strcmp(name, own) == 0) return w;
    }
    return NULL;
}

static ln_status change_module(tables *t, const ln_adapted *by, const ln_adapter_change *x) {
    ln_weight *w = weight_of(t, x);
    if (!w)
        return refuse(t, by->file, x, LN_EINVALID,
                      "the model has no module of this name; the adapter was made for another model");
    if (w->whole || w->parts || w->n_experts || w->taps)
        return refuse(t, by->file, x, LN_EUNSUPPORTED,
                      "its tensor holds several weights or a convolution, and is not replaced");
    if (x->whole->n_dims != (w->d1 ? 2 : 1) || x->whole->dims[0] != w->d0 ||
        (w->d1 && x->whole->dims[1] != w->d1))
        return refuse(t, by->file, x, LN_EINVALID,
                      "it has another shape in the model; the adapter was made for another model");
    if (w->changed)
        return refuse(t, by->file, x, LN_EUNSUPPORTED, "two adapters of a sum replace this module");
    const ln_row_change one = {by->file, x, by->factor};
    return change(t, w, &one, 1, w->d0);
}

bool ln_weights_will_change(const ln_adapted *by, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (ln_adapter_changes_model(by[i].file)) return true;
    return false;
}

ln_status ln_weights_change(ln_weights *w, ln_spec *s, const ln_adapted *by, size_t n, ln_error *err) {
    tables t = {.w = w, .s = s, .by = by, .n = n, .err = err};
    for (size_t i = 0; i < n; i++) LN_TRY(ln_adapter_compare(by[i].file, s, w, err));
    if (!ln_weights_will_change(by, n)) return LN_OK;
    const ln_source *source = ln_source_changing(&w->arena, w->source);
    if (!source) return LN_OOM(err, "the weights");
    w->source = source;
    LN_TRY(change_tables(&t));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < by[i].file->n_changes; k++) {
            const ln_adapter_change *x = &by[i].file->changes[k];
            if (ln_adapter_is_embedding(x) || ln_adapter_is_head(x)) continue;
            LN_TRY(change_module(&t, &by[i], x));
        }
    return LN_OK;
}
