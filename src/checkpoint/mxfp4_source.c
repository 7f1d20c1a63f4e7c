/* quant_method mxfp4, as gpt-oss publishes it (OCP Microscaling formats):
 *
 *     X_blocks  U8 [experts, out, in / 32, 16]   fp4 e2m1, of two columns the first the lower 4 bits
 *     X_scales  U8 [experts, out, in / 32]       2^(byte - 127) of 32 columns
 *
 *     w = 2^(byte - 127) f
 *
 * X is the name of a parameter without .weight. Outputs are rows here, whichever axis they are in the dense
 * parameter. A scale of 255 is a NaN and rejected when the weight is loaded. Which matrices are in mxfp4
 * their names say, not modules_to_not_convert. */
#include "../base/file.h"
#include "../quant/coded.h"
#include "scheme.h"

#include <stdio.h>

enum { GROUP = 32, NAN_SCALE = 255 };

ln_status ln_mxfp4_read(ln_quant *q, ln_error *err) { return (void)q, (void)err, LN_OK; }

static const ln_tensor *with_end(const ln_source *s, const char *name, const char *end,
                                 char text[LN_SOURCE_NAME]) {
    (void)snprintf(text, LN_SOURCE_NAME, "%s%s", name, end);
    return ln_tensors_find(s->tensors, text);
}

/* Checks both tensors of a weight, and chooses its encoding. */
static ln_status settle(const ln_source *s, const ln_source_ask *ask, const char *name, ln_weight *w,
                        bool *fits, ln_error *err) {
    char text[LN_SOURCE_NAME];
    const int64_t X = w->n_experts, rows = ln_source_stored_rows(w) / LN_MAX(X, 1),
                  blocks[4] = {X, rows, w->d1 / GROUP, GROUP / 2};
    *fits = false;
    w->scales = with_end(s, name, "_scales", text);
    if (!w->scales) {
        if (!ln_report_misplaced(ask->report, text)) ln_report_fault(ask->report, text, " is missing");
        return LN_OK;
    }
    if (w->tensor->dtype != LN_ST_U8)
        return ln_tensor_unsupported(s->tensors, w->tensor, "blocks of mxfp4 in U8", err);
    if (w->scales->dtype != LN_ST_U8)
        return ln_tensor_unsupported(s->tensors, w->scales, "scales of mxfp4 in U8", err);
    if (w->d1 % GROUP) {
        (void)snprintf(text, sizeof text, ": its %lld columns are no whole groups of %d", (long long)w->d1,
                       GROUP);
        ln_report_fault(ask->report, w->tensor->name, text);
        return LN_OK;
    }
    *fits = ln_report_shape(ask->report, w->tensor, 4, blocks, " for mxfp4");
    *fits &= ln_report_shape(ask->report, w->scales, 3, blocks, " for mxfp4");
    w->dtype = LN_BF16;
    w->code = (ln_groups){4, GROUP};
    w->enc = ln_encoding_floats(LN_STORED_E2M1, LN_BF16, GROUP);
    w->made = true;
    return LN_OK;
}
static ln_status find(const ln_source *s, const ln_source_ask *ask, ln_weight *w, bool *fits, ln_error *err) {
    char text[LN_SOURCE_NAME];
    for (size_t i = 0; i < ask->n_names && w->n_experts && w->d1; i++) {
        w->tensor = with_end(s, ask->names[i], "_blocks", text);
        if (w->tensor) return settle(s, ask, ask->names[i], w, fits, err);
    }
    return s->of->ops->find(s->of, ask, w, fits, err);
}

typedef struct making {
    const uint8_t *bytes; /* of the scales */
    uint16_t *scales;
    _Atomic bool bad;
} making;
static void make_scales(void *user, int thread, int64_t lo, int64_t hi) {
    making *m = user;
    (void)thread;
    for (int64_t i = lo; i < hi; i++) {
        const uint8_t b = m->bytes[i];
        if (b == NAN_SCALE) m->bad = true;
        m->scales[i] = (uint16_t)(b ? b << 7 : 0x40); /* the exponent of bf16; 2^-127 is below it */
    }
}

/* Codes are in place, scales become bf16. */
static ln_status rows(const ln_source *s, const ln_weight *w, int64_t row0, int64_t n,
                      const ln_source_work *work, void *buffer, ln_encoded_rows *out, ln_error *err) {
    if (!w->made || w->enc.kind != LN_STORED_E2M1)
        return s->of->ops->rows(s->of, w, row0, n, work, buffer, out, err);
    const ln_row_bytes row = ln_encoding_row(w->enc, w->d1);
    const uint8_t *codes = w->tensor->data + row0 * row.data;
    making m = {.bytes = w->scales->data + row0 * (w->d1 / GROUP),
                .scales = (uint16_t *)(void *)((uint8_t *)buffer + ln_source_aligned(n * row.data))};
    ln_guard_fetch(codes, (size_t)(n * row.data));
    memcpy(buffer, codes, (size_t)(n * row.data));
    ln_pool_run_units(work->pool, work->n_threads, n * (w->d1 / GROUP), LN_POOL_SLICE_BYTES, make_scales, &m);
    ln_guard_release(codes, (size_t)(n * row.data));
    *out = (ln_encoded_rows){.data = buffer, .scales = m.scales};
    if (!m.bad) return LN_OK;
    return ln_scheme_bad_value(w->scales, "scales up to 254", "255, which is a NaN", err);
}

const ln_source_ops ln_mxfp4_ops = {.find = find, .rows = rows};
