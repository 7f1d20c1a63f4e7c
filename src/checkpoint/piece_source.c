/* Weights whose rows lie in pieces in a tensor: the projections of qwen3_next's delta rule, which have, of
 * each key head in turn, its query, its key, the values and the gates of its value heads.
 *
 * This source wraps that of the checkpoint's format, which finds the whole tensor, in any format. Rows are
 * copied piece by piece while a model is loaded, so that products and files know nothing of each other's
 * order. */
#include "scheme.h"

static ln_status find(const ln_source *s, const ln_source_ask *ask, ln_weight *w, bool *fits, ln_error *err) {
    const ln_row_pieces *p = ask->pieces;
    if (!p) return s->of->ops->find(s->of, ask, w, fits, err);
    ln_source_ask whole = *ask;
    ln_weight *part = ln_arena_alloc(s->arena, sizeof *part);
    if (!part) return LN_OOM(err, "the weights");
    *part = *w;
    part->d0 = p->n_periods * p->period;
    whole.pieces = NULL;
    LN_TRY(s->of->ops->find(s->of, &whole, part, fits, err));
    w->tensor = part->tensor;
    if (!part->tensor) return LN_OK;
    w->parts = part;
    w->n_parts = 1;
    if (!*fits) return LN_OK;
    ln_take_format(w, part);
    w->how = ln_scheme_keep(s, p, sizeof *p);
    return w->how ? LN_OK : LN_OOM(err, "the weights");
}

bool ln_source_is_in_pieces(const ln_weight *w) { return w->parts && !w->n_experts; }

/* Rows of the tensor into a place. */
static ln_status copy_rows(const ln_source *s, const ln_weight *w, int64_t first, int64_t n,
                           const ln_source_work *work, ln_row_place to, ln_encoded_rows *from,
                           ln_error *err) {
    void *made = w->parts->made ? ln_alloc(ln_source_bytes(w->parts, n)) : NULL;
    if (w->parts->made && !made) return LN_OOM(err, "rows of a weight");
    const ln_status st = s->of->ops->rows(s->of, w->parts, first, n, work, made, from, err);
    if (st == LN_OK) ln_rows_copy(w, to, from, n, 1);
    if (st == LN_OK && !made) ln_rows_release(w->parts, from, n);
    ln_free(made);
    return st;
}

static ln_status rows(const ln_source *s, const ln_weight *w, int64_t row0, int64_t n,
                      const ln_source_work *work, void *buffer, ln_encoded_rows *out, ln_error *err) {
    if (!ln_source_is_in_pieces(w)) return s->of->ops->rows(s->of, w, row0, n, work, buffer, out, err);
    ln_encoded_rows from = {0};
    for (int64_t at = 0, some; at < n; at += some) {
        some = n - at;
        const int64_t first = ln_pieces_row(w->how, row0 + at, &some);
        if (some == n) return s->of->ops->rows(s->of, w->parts, first, n, work, buffer, out, err);
        LN_TRY(copy_rows(s, w, first, some, work, ln_row_place_of(w, buffer, n, at), &from, err));
    }
    const ln_row_place all = ln_row_place_of(w, buffer, n, 0);
    *out = (ln_encoded_rows){
        .data = all.data, .scales = all.scales, .offsets = all.offsets, .columns = from.columns};
    return LN_OK;
}

static const ln_source_ops piece_ops = {.find = find, .rows = rows};

const ln_source *ln_source_of_pieces(ln_arena *arena, const ln_source *of) {
    ln_source *s = ln_arena_alloc(arena, sizeof *s);
    if (s)
        *s = (ln_source){
            .ops = &piece_ops, .tensors = of->tensors, .quant = of->quant, .of = of, .arena = arena};
    return s;
}
