/* The weights of a rank: a share of the rows of each matrix of another source (base/transport.h).
 *
 * The rows of a matrix lie one after another, so that its share is handed out as the other source hands it
 * out, in place if that does. Of experts each matrix has a share; these lie apart and are copied. */
#include "../base/file.h"
#include "source.h"

#include <string.h>

/* Rows of a matrix, or of that of each expert. */
static int64_t rows_of(const ln_weight *w) { return w->n_experts ? w->d0 / w->n_experts : w->d0; }

ln_share ln_source_share_of(const ln_weight *w, int size, int rank) {
    const int64_t rows = rows_of(w);
    /* A device chooses the kernel of experts by whether their rows are whole units, and its bits with it. */
    const bool stays = w->n_experts && w->split_rows && rows % w->split_rows != 0;
    return w->split_rows && !stays ? ln_share_of(rows, w->split_rows, size, rank) : (ln_share){rows, 0, rows};
}

void ln_source_take_share(ln_weight *w, const ln_weight *all, int size, int rank) {
    const ln_share s = ln_source_share_of(all, size, rank);
    *w = *all;
    if (s.n == s.all) return;
    w->share_of = all;
    w->share = s;
    w->d0 = s.n * (all->n_experts ? all->n_experts : 1);
    w->made = all->made || all->n_experts;
}

/* The parts of a buffer for n rows, from row `at` on. */
static ln_encoded_rows part_of(const ln_weight *w, void *buffer, int64_t n, int64_t at, ln_row_bytes row) {
    uint8_t *data = buffer, *scales = data + ln_source_aligned(n * row.data),
            *offsets = scales + ln_source_aligned(n * row.scales);
    (void)w;
    return (ln_encoded_rows){.data = data + at * row.data,
                             .scales = row.scales ? scales + at * row.scales : NULL,
                             .offsets = row.offsets ? offsets + at * row.offsets : NULL};
}
static void copy_part(const void *to, const void *from, int64_t bytes) {
    if (bytes) memcpy((void *)(uintptr_t)to, from, (size_t)bytes);
}

/* Copies n rows of one expert, from row r of its share on, to row `at` of a buffer for `total` rows. */
static ln_status copy_rows(const ln_source *s, const ln_weight *w, int64_t x, int64_t r, int64_t n,
                           const ln_source_work *work, void *buffer, int64_t total, int64_t at,
                           ln_error *err) {
    const ln_weight *all = w->share_of;
    const ln_row_bytes row = ln_encoding_row(w->enc, w->d1 ? w->d1 : 1);
    const ln_encoded_rows to = part_of(w, buffer, total, at, row);
    void *copy = all->made ? ln_alloc(ln_source_bytes(all, n)) : NULL;
    ln_encoded_rows from;
    if (all->made && !copy) return LN_OOM(err, "rows of an expert");
    const ln_status st =
        s->of->ops->rows(s->of, all, x * rows_of(all) + w->share.first + r, n, work, copy, &from, err);
    if (st == LN_OK) {
        copy_part(to.data, from.data, n * row.data);
        copy_part(to.scales, from.scales, n * row.scales);
        copy_part(to.offsets, from.offsets, n * row.offsets);
        if (!copy) ln_guard_release(from.data, (size_t)(n * row.data));
    }
    ln_free(copy);
    return st;
}

static ln_status rows(const ln_source *s, const ln_weight *w, int64_t row0, int64_t n,
                      const ln_source_work *work, void *buffer, ln_encoded_rows *out, ln_error *err) {
    const ln_weight *all = w->share_of;
    if (!all) return s->of->ops->rows(s->of, w, row0, n, work, buffer, out, err);
    if (!all->n_experts)
        return s->of->ops->rows(s->of, all, w->share.first + row0, n, work, buffer, out, err);
    const int64_t D = w->share.n;
    for (int64_t at = 0, some; at < n; at += some) {
        const int64_t x = (row0 + at) / D, r = (row0 + at) % D;
        some = LN_MIN(n - at, D - r);
        LN_TRY(copy_rows(s, w, x, r, some, work, buffer, n, at, err));
    }
    *out = part_of(w, buffer, n, 0, ln_encoding_row(w->enc, w->d1 ? w->d1 : 1));
    return LN_OK;
}

static ln_status find(const ln_source *s, const ln_source_ask *ask, ln_weight *w, bool *fits, ln_error *err) {
    return s->of->ops->find(s->of, ask, w, fits, err);
}

static const ln_source_ops share_ops = {.find = find, .rows = rows};

const ln_source *ln_source_of_shares(ln_arena *arena, const ln_source *of) {
    ln_source *s = ln_arena_alloc(arena, sizeof *s);
    if (s)
        *s = (ln_source){
            .ops = &share_ops, .tensors = of->tensors, .quant = of->quant, .of = of, .arena = arena};
    return s;
}
