/* The source of GGUF files: matrices in blocks become encoded rows (gguf_blocks.h), and rows of q and k that
 * stand in pairs get the order of safetensors. All other weights are those of the dense source. */
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
        w->made = x && x->pairs_of_heads;
        return LN_OK;
    }
    const ln_gguf_form *form = form_of(x);
    ln_gguf_types_text(types);
    if (!form || !w->d1)
        return ln_tensor_unsupported(s->tensors, x, w->d1 ? types : "F32, F16 and BF16", err);
    w->tensor = x;
    w->enc = form->enc;
    w->dtype = (ln_dtype)form->enc.scale;
    w->code = form->code;
    w->made = true;
    *fits = has_shape(ask, w);
    return LN_OK;
}

/* The row of the tensor that holds row d of the matrix. */
static int64_t stored_row(const ln_tensor *x, int64_t d) {
    if (!x->pairs_of_heads) return d;
    const int64_t width = x->dims[0] / x->pairs_of_heads, i = d % width;
    return d - i + (i < width / 2 ? 2 * i : 2 * (i - width / 2) + 1);
}

enum { ROWS = 16 }; /* of a unit of work */
typedef struct making {
    const ln_weight *w;
    const ln_gguf_form *form; /* NULL: rows are copied */
    int64_t row0, n, stored;  /* stored: bytes of a row in the file */
    ln_row_bytes row;
    uint8_t *codes, *scales, *offsets;
    atomic_bool bad; /* a scale is not finite, or too large */
} making;

static void make_rows(void *user, int thread, int64_t lo, int64_t hi) {
    making *k = user;
    (void)thread;
    for (int64_t r = lo * ROWS; r < LN_MIN(hi * ROWS, k->n); r++) {
        const uint8_t *from = k->w->tensor->data + stored_row(k->w->tensor, k->row0 + r) * k->stored;
        uint8_t *codes = k->codes + r * k->row.data;
        if (!k->form) memcpy(codes, from, (size_t)k->stored);
        else if (!k->form->row(from, k->w->d1, codes, k->scales + r * k->row.scales,
                               k->offsets + r * k->row.offsets))
            k->bad = true;
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
    return k.bad ? ln_scheme_bad_value(w->tensor, "finite scales below 512", "another one", err) : LN_OK;
}

const ln_source_ops ln_gguf_ops = {.find = find, .rows = rows};
