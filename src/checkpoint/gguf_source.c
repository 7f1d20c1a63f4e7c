/* The source of GGUF files: matrices in blocks become encoded rows (gguf_blocks.h), rows of q and k that
 * in pairs and value heads of recurrent layers get the order of safetensors, and decays become the logarithms
 * that they were made of. All other weights are those of the dense source. */
#include "../base/elementary.h"
#include "../base/file.h"
#include "gguf_blocks.h"
#include "scheme.h"

#include <stdatomic.h>
#include <stdio.h>

ln_status ln_gguf_read(ln_quant *q, ln_error *err) {
    (void)q, (void)err; /* the block has no settings */
    return LN_OK;
}

static const ln_gguf_form *form_of(const ln_tensor *x) {
    return x->dtype < LN_ST_BLOCKS ? NULL : ln_gguf_form_of((uint32_t)x->dtype - LN_ST_BLOCKS);
}

static bool has_shape(const ln_source_ask *ask, const ln_weight *w) {
    const int64_t matrix[2] = {ln_source_stored_rows(w), w->d1},
                  experts[3] = {w->n_experts, w->n_experts ? w->d0 / w->n_experts : 0, w->d1};
    return w->n_experts ? ln_report_shape(ask->report, w->tensor, 3, experts, "")
                        : ln_report_shape(ask->report, w->tensor, 2, matrix, "");
}

static ln_status find(const ln_source *s, const ln_source_ask *ask, ln_weight *w, bool *fits, ln_error *err) {
    char types[160];
    const ln_tensor *x = NULL;
    for (size_t i = 0; i < ask->n_names && !x; i++) x = ln_tensors_find(s->tensors, ask->names[i]);
    if (!x || x->dtype < LN_ST_BLOCKS) {
        LN_TRY(s->of->ops->find(s->of, ask, w, fits, err));
        w->made = x && ln_tensor_is_remade(x);
        if (w->made && x->is_decay && x->dtype != LN_ST_F32)
            return ln_tensor_unsupported(s->tensors, x, "F32", err);
        return LN_OK;
    }
    const ln_gguf_form *form = form_of(x);
    ln_gguf_types_text(types);
    if (!form || !w->d1)
        return ln_tensor_unsupported(s->tensors, x, w->d1 ? types : "F32, F16 and BF16", err);
    w->tensor = x;
    w->enc = form->enc;
    if (x->columns.n_outer) w->enc.shared = 0; /* groups of several blocks follow each other */
    w->dtype = (ln_dtype)form->enc.scale;
    w->code = form->code;
    w->made = true;
    *fits = has_shape(ask, w);
    if (x->columns.n_outer && x->columns.unit % form->enc.group)
        return ln_tensor_unsupported(s->tensors, x, "types whose groups of columns divide a head", err);
    return LN_OK;
}

enum { ROWS = 16 }; /* of a unit of work */
typedef struct making {
    const ln_weight *w;
    const ln_gguf_form *form; /* NULL: rows are copied */
    int64_t row0, n, stored;  /* stored: bytes of a row in the file */
    ln_row_bytes row;
    uint8_t *codes, *scales, *offsets;
    atomic_bool bad; /* a scale is not finite, or too large; a decay is not below 0 */
} making;

/* Writes a row whose columns stand in another order: of blocks one after another, group by group. */
static bool make_reordered(const making *k, const uint8_t *from, uint8_t *codes, uint8_t *scales,
                           uint8_t *offsets) {
    enum { MOST = 256 }; /* columns of a block */
    uint8_t block_codes[MOST], block_scales[MOST], block_offsets[MOST];
    const ln_tensor_order there = k->w->tensor->columns,
                          here = {there.first, there.n_inner, there.n_outer, there.unit};
    const int64_t cols = k->w->d1, group = k->form ? k->w->enc.group : there.unit;
    const ln_row_bytes each = {k->row.data * group / cols, k->row.scales * group / cols,
                               k->row.offsets * group / cols};
    if (!k->form) {
        for (int64_t c = 0; c < cols; c += group)
            memcpy(codes + c / group * each.data, from + ln_tensor_order_at(&there, c) / group * each.data,
                   (size_t)each.data);
        return true;
    }
    bool good = true;
    const ln_ggml_block block = ln_ggml_block_of((uint32_t)k->form->type);
    for (int64_t c = 0; c < cols; c += block.elements, from += block.bytes) {
        good &= k->form->row(from, block.elements, block_codes, block_scales, block_offsets);
        for (int64_t g = 0; g < block.elements / group; g++) {
            const int64_t to = ln_tensor_order_at(&here, c + g * group) / group;
            memcpy(codes + to * each.data, block_codes + g * each.data, (size_t)each.data);
            memcpy(scales + to * each.scales, block_scales + g * each.scales, (size_t)each.scales);
            memcpy(offsets + to * each.offsets, block_offsets + g * each.offsets, (size_t)each.offsets);
        }
    }
    return good;
}

/* The logarithm that a decay, -exp of it, was made of. */
static bool make_log(const uint8_t *from, uint8_t *to) {
    float decay, log;
    memcpy(&decay, from, sizeof decay);
    log = (float)ln_log64(-(double)decay);
    memcpy(to, &log, sizeof log);
    return decay < 0 && decay - decay == 0;
}

static void make_rows(void *user, int thread, int64_t lo, int64_t hi) {
    making *k = user;
    (void)thread;
    for (int64_t r = lo * ROWS; r < LN_MIN(hi * ROWS, k->n); r++) {
        const ln_tensor *x = k->w->tensor;
        const uint8_t *from = x->data + ln_tensor_order_at(&x->rows, k->row0 + r) * k->stored;
        uint8_t *codes = k->codes + r * k->row.data, *scales = k->scales + r * k->row.scales,
                *offsets = k->offsets + r * k->row.offsets;
        if (x->columns.n_outer) {
            if (!make_reordered(k, from, codes, scales, offsets)) k->bad = true;
        } else if (x->is_decay) {
            if (!make_log(from, codes)) k->bad = true;
        } else if (!k->form) memcpy(codes, from, (size_t)k->stored);
        else if (!k->form->row(from, k->w->d1, codes, scales, offsets)) k->bad = true;
    }
}

static ln_status rows(const ln_source *s, const ln_weight *w, int64_t row0, int64_t n,
                      const ln_source_work *work, void *buffer, ln_encoded_rows *out, ln_error *err) {
    if (!w->made) return s->of->ops->rows(s->of, w, row0, n, work, buffer, out, err);
    const int64_t cols = w->d1 ? w->d1 : 1;
    making k = {.w = w,
                .form = form_of(w->tensor),
                .row0 = row0 + w->row0,
                .n = n,
                .row = ln_encoding_row(w->enc, cols),
                .codes = buffer};
    k.stored = k.row.data;
    if (k.form) {
        const ln_ggml_block block = ln_ggml_block_of((uint32_t)k.form->type);
        k.stored = cols / block.elements * block.bytes;
    }
    k.scales = k.codes + ln_source_aligned(n * k.row.data);
    k.offsets = k.scales + ln_source_aligned(n * k.row.scales);
    ln_pool_run_units(work->pool, work->n_threads, (n + ROWS - 1) / ROWS,
                      LN_MAX((int64_t)1, LN_POOL_SLICE_BYTES / (ROWS * k.stored)), make_rows, &k);
    ln_guard_release(w->tensor->data + k.row0 * k.stored, (size_t)(n * k.stored));
    *out = (ln_encoded_rows){.data = k.codes,
                             .scales = k.row.scales ? k.scales : NULL,
                             .offsets = k.row.offsets ? k.offsets : NULL};
    return k.bad ? ln_scheme_bad_value(w->tensor,
                                       w->tensor->is_decay ? "finite numbers below 0"
                                                           : "finite scales below 512",
                                       "another one", err)
                 : LN_OK;
}

const ln_source_ops ln_gguf_ops = {.find = find, .rows = rows};
