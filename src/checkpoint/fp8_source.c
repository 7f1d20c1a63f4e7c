/* quant_method fp8, as DeepSeek, Qwen and Mistral publish it:
 *
 *     X.weight            F8_E4M3 or F8_E5M2 [out, in]
 *     X.weight_scale_inv  one scale for the tensor, or [out / rows, in / columns] of blocks, rounded up
 *                         (128 x 128; weight_block_size, whose null means one for the tensor)
 *     X.activation_scale  of a program that quantises activations: not read
 *
 *     w = f8 s, a multiplication despite the name, in f32
 *
 * A scale is F32, BF16, F16, or an exponent alone (scale_fmt ue8m0). Other tools name it X.weight_scale and
 * the other one X.input_scale. Which matrices are in fp8 their dtype says, not modules_to_not_convert. */
#include "fp8_matrix.h"

#include <stdio.h>

ln_status ln_fp8_read(ln_quant *q, ln_error *err) {
    const json_t *size = json_object_get(q->block, "weight_block_size");
    int64_t block[2] = {128, 128};
    char where[96];
    if (size && json_is_null(size)) {
        q->block_rows = q->block_cols = INT64_MAX;
        return LN_OK;
    }
    (void)snprintf(where, sizeof where, "%s.weight_block_size", q->where);
    if (size && (!json_is_array(size) || json_array_size(size) != 2))
        return ln_config_fail(&q->from, size, where, "rows and columns of a block, or null", err);
    for (size_t i = 0; i < 2 && size; i++)
        LN_TRY(ln_config_int_at(&q->from, json_array_get(size, i), where, 1, 1 << 20, &block[i], err));
    q->block_rows = block[0];
    q->block_cols = block[1];
    return LN_OK;
}

static ln_status find(const ln_source *s, const ln_source_ask *ask, ln_weight *w, bool *fits, ln_error *err) {
    const char *name;
    const ln_tensor *codes = w->d1 ? ln_scheme_find(s, ask, ".weight", &name) : NULL;
    if (!codes || !ln_fp8_is(codes)) return s->of->ops->find(s->of, ask, w, fits, err);
    ln_fp8_matrix m = {.codes = codes,
                       .scales = ln_source_sibling(s->tensors, name, ".weight_scale"),
                       .D = ln_source_stored_rows(w),
                       .C = w->d1,
                       .block_rows = s->quant->block_rows,
                       .block_cols = s->quant->block_cols};
    *fits = false;
    w->tensor = codes;
    if (!m.scales) ln_scheme_part(s, ask, name, ".weight_scale_inv", &m.scales);
    w->scales = m.scales;
    w->more[0] = ln_source_sibling(s->tensors, name, ".activation_scale");
    w->more[1] = ln_source_sibling(s->tensors, name, ".input_scale");
    return m.scales ? ln_fp8_settle(s, ask, &m, w, fits, err) : LN_OK;
}

const ln_source_ops ln_fp8_ops = {.find = find, .rows = ln_fp8_rows};
