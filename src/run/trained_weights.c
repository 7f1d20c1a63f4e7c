/* The weights of a model as parameters (contract: trained_weights.h). */
#include "trained_weights.h"

#include "../base/file.h"
#include "../model/weight_slots.h"

enum {
    SOME = 1 << 20, /* numbers that are rounded at once */
    UPLOAD_ROWS = 16
};

static int64_t columns_of(const ln_weight *w) { return LN_MAX(w->d1, 1); }

static ln_status untrainable(const ln_weight *w, const char *why, ln_error *err) {
    char shown[120];
    return ln_fail(err, LN_EUNSUPPORTED,
                   "tensor %s: %s, and cannot be trained itself; train an adapter, or take a model without "
                   "such tensors",
                   ln_excerpt(shown, w->tensor->name, strlen(w->tensor->name)), why);
}

ln_status ln_trained_weights_check(const ln_weights *w, ln_error *err) {
    for (size_t i = 0; i < w->n; i++) {
        const ln_weight *x = &w->items[i];
        if (x->n_experts) return untrainable(x, "is of experts", err);
        if (!ln_encoding_is_dense(x->enc)) return untrainable(x, "is quantised", err);
        if (x->made) return untrainable(x, "is not stored as it is computed with", err);
    }
    return LN_OK;
}

ln_status ln_trained_weights_values(const ln_graph *g, const ln_weights *w, ln_v *out, size_t *n,
                                    ln_error *err) {
    bool *found = ln_zalloc(w->n + 1, sizeof *found);
    if (!found) return LN_OOM(err, "the trained weights");
    ln_status st = LN_OK;
    *n = 0;
    for (size_t v = 0; v < g->n_values && st == LN_OK; v++) {
        const ln_value *x = &g->values[v];
        if (x->kind != LN_KIND_WEIGHT || x->slot < 0) continue;
        if (found[x->slot]) st = ln_fail(err, LN_EINTERNAL, "graph: two values are weight %s", x->name);
        found[x->slot] = true;
        out[(*n)++] = (ln_v)v;
    }
    for (size_t i = 0; i < w->n && st == LN_OK; i++) /* optional ones are no parameters elsewhere either */
        if (!found[i] && !(ln_slot_rows[w->items[i].slot].flags & LN_WF_OPTIONAL))
            st = untrainable(&w->items[i], "is a constant of the programs", err);
    ln_free(found);
    return st;
}

ln_status ln_trained_weights_read(const ln_weights *w, size_t i, float *out, ln_error *err) {
    const ln_weight *x = &w->items[i];
    const int64_t cols = columns_of(x), some = LN_MAX(1, SOME / cols);
    for (int64_t r = 0; r < x->d0; r += some) {
        ln_encoded_rows rows;
        const int64_t n = LN_MIN(some, x->d0 - r);
        LN_TRY(w->source->ops->rows(w->source, x, r, n, NULL, NULL, &rows, err));
        for (int64_t k = 0; k < n * cols; k++) out[r * cols + k] = ln_num_load(rows.data, x->dtype, k);
        ln_guard_release(rows.data, (size_t)(n * cols * ln_dtype_bytes(x->dtype)));
    }
    return LN_OK;
}

/* Rows that are rounded at once. */
static int64_t some_rows(const ln_weight *w) {
    return LN_MIN(w->d0, LN_MAX(1, SOME / columns_of(w) / UPLOAD_ROWS) * UPLOAD_ROWS);
}

size_t ln_trained_weights_buffer(const ln_weight *w) {
    return w->dtype == LN_F32 ? 0 : (size_t)(some_rows(w) * columns_of(w) * ln_dtype_bytes(w->dtype));
}

ln_status ln_trained_weights_store(ln_device_weights *r, size_t i, const float *values, void *buffer,
                                   ln_error *err) {
    const ln_weight *w = &r->weights->items[i];
    const int64_t cols = columns_of(w), some = some_rows(w);
    if (w->dtype == LN_F32) return ln_device_weights_store(r, i, 0, w->d0, values, err);
    for (int64_t row = 0; row < w->d0; row += some) {
        const int64_t n = LN_MIN(some, w->d0 - row);
        for (int64_t k = 0; k < n * cols; k++) ln_num_store(buffer, w->dtype, k, values[row * cols + k]);
        LN_TRY(ln_device_weights_store(r, i, row, n, buffer, err));
    }
    return LN_OK;
}
