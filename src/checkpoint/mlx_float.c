/* MLX's modes of floats: mxfp4, mxfp8, nvfp4.
 *
 *     X.weight  U32 [out, in bits / 32]   codes, low bits first: fp4 e2m1, or fp8 e4m3
 *     X.scales  U8 [out, groups]          of 32 columns 2^(byte - 127), of nvfp4's 16 columns fp8 e4m3
 *
 *     w = s f
 *
 * Matrices of experts are stacked: [experts, out, ...].
 *
 * An nvfp4 matrix with a scale for the whole tensor (X.global_scale) is not read. */
#include "../quant/coded.h"
#include "mlx_float.h"

#include <math.h>
#include <stdio.h>

static float scale_of(ln_mlx_mode mode, uint8_t byte) {
    if (mode == LN_MLX_NVFP4) return ln_e4m3_f32(byte);
    return byte == 255 ? ln_bits_f32(0x7fc00000u) : byte ? ln_bits_f32((uint32_t)byte << 23) : 0x1p-127f;
}

ln_status ln_mlx_float_find(const ln_source *s, const ln_source_ask *ask, ln_mlx_mode mode, ln_weight *w,
                            bool *fits, ln_error *err) {
    const ln_groups code = ln_mlx_mode_groups[mode];
    const bool stacked = w->n_experts > 0;
    const int64_t rows = ln_source_stored_rows(w) / LN_MAX(1, w->n_experts),
                  codes[3] = {w->n_experts, rows, w->d1 * code.bits / 32},
                  scales[3] = {w->n_experts, rows, w->d1 / code.group};
    const ln_tensor *global = ln_source_sibling(s->tensors, w->tensor->name, ".global_scale");
    char why[64], text[96];
    *fits = false;
    ln_scheme_part(s, ask, w->tensor->name, ".scales", &w->scales);
    if (!w->scales) return LN_OK;
    if (w->tensor->dtype != LN_ST_U32)
        return ln_tensor_unsupported(s->tensors, w->tensor, "a matrix of codes packed in U32", err);
    if (w->scales->dtype != LN_ST_U8)
        return ln_tensor_unsupported(s->tensors, w->scales, "scales in U8 for this mode", err);
    if (global) return ln_tensor_unsupported(s->tensors, global, "nvfp4 without a scale of the tensor", err);
    if (w->d1 % code.group) {
        (void)snprintf(text, sizeof text, ": its %lld columns are no whole groups of %d", (long long)w->d1,
                       code.group);
        ln_report_fault(ask->report, w->tensor->name, text);
        return LN_OK;
    }
    (void)snprintf(why, sizeof why, " for %s", ln_mlx_mode_names[mode]);
    *fits = ln_report_shape(ask->report, w->tensor, 2 + stacked, codes + !stacked, why);
    *fits &= ln_report_shape(ask->report, w->scales, 2 + stacked, scales + !stacked, why);
    w->dtype = LN_BF16;
    w->code = code;
    w->enc = ln_encoding_floats(code.bits == 8 ? LN_STORED_E4M3 : LN_STORED_E2M1, LN_F32, code.group);
    w->made = true;
    w->how = &ln_mlx_mode_groups[mode];
    return LN_OK;
}

typedef struct making {
    const ln_weight *w;
    ln_mlx_mode mode;
    int64_t row0, n_scales;
    ln_row_bytes row;
    uint8_t *codes, *scales;
    _Atomic bool bad_code, bad_scale;
} making;

static void make_rows(void *user, int thread, int64_t lo, int64_t hi) {
    making *k = user;
    (void)thread;
    for (int64_t r = lo; r < hi; r++) {
        const uint8_t *row = k->w->tensor->data + (k->row0 + r) * k->row.data;
        for (int64_t i = 0; k->mode == LN_MLX_MXFP8 && i < k->row.data; i++)
            if ((row[i] & 0x7f) == 0x7f) k->bad_code = true;
        memcpy(k->codes + r * k->row.data, row, (size_t)k->row.data);
        for (int64_t i = 0; i < k->n_scales; i++) {
            const float s = scale_of(k->mode, k->w->scales->data[(k->row0 + r) * k->n_scales + i]);
            if (!isfinite(s * 448)) k->bad_scale = true;
            ln_num_store(k->scales + r * k->row.scales, LN_F32, i, s);
        }
    }
}

ln_status ln_mlx_float_rows(const ln_weight *w, int64_t row0, int64_t n, const ln_source_work *work,
                            void *buffer, ln_encoded_rows *out, ln_error *err) {
    making k = {.w = w,
                .mode = (ln_mlx_mode)((const ln_groups *)w->how - ln_mlx_mode_groups),
                .row0 = row0 + w->row0,
                .row = ln_encoding_row(w->enc, w->d1),
                .codes = buffer};
    k.n_scales = k.row.scales / 4;
    k.scales = k.codes + ln_source_aligned(n * k.row.data);
    ln_guard_fetch(w->tensor->data + k.row0 * k.row.data, (size_t)(n * k.row.data));
    ln_pool_run_units(work->pool, work->n_threads, n, LN_MAX((int64_t)1, LN_POOL_SLICE_BYTES / w->d1),
                      make_rows, &k);
    ln_guard_release(w->tensor->data + k.row0 * k.row.data, (size_t)(n * k.row.data));
    *out = (ln_encoded_rows){.data = k.codes, .scales = k.scales};
    if (k.bad_code) return ln_scheme_bad_value(w->tensor, "numbers in fp8", "a code that is a NaN", err);
    if (!k.bad_scale) return LN_OK;
    return ln_scheme_bad_value(w->scales, "finite scales", "a NaN, or a scale whose weights exceed f32", err);
}
