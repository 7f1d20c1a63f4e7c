/* GPTQ, as AutoGPTQ and GPTQModel write it:
 *
 *     X.qweight  I32 [in bits / 32, out]   codes of a column of the matrix, packed along `in`, low bits first
 *     X.qzeros   I32 [groups, out bits / 32]
 *     X.scales       [groups, out]
 *     X.g_idx    I32 [in]                  the group of each column; with act-order in no order
 *
 *     w[o][i] = s (q - z), all of group g_idx[i]
 *
 * A code of 3 bits may begin in one word and end in the next. In the first version of the format
 * (checkpoint_format gptq, or none) a zero point is stored minus 1, in `bits` bits; linnet adds the 1 in as
 * many bits, as AutoGPTQ does (other programs read 2^bits if all bits are set). gptq_v2 stores it as it
 * is.
 *
 * Bits and groups are those of the shapes: `dynamic` may give modules others than the block does. Without
 * `dynamic` they must be those of the block. */
#include "int_matrix.h"

#include <stdio.h>
#include <string.h>

ln_status ln_gptq_read(ln_quant *q, ln_error *err) {
    static const char *const bits_fields[2] = {"bits"}, *const group_fields[2] = {"group_size"};
    const json_t *dynamic = json_object_get(q->block, "dynamic"),
                 *form = json_object_get(q->block, "checkpoint_format");
    int64_t bits, group;
    LN_TRY(ln_scheme_int(q, bits_fields, 0, 2, 8, &bits, err));
    LN_TRY(ln_scheme_int(q, group_fields, 128, -1, 1 << 20, &group, err));
    if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
        return ln_scheme_unsupported(q, "bits", json_object_get(q->block, "bits"), "2, 3, 4 or 8", err);
    if (!form || json_is_null(form)) form = json_object_get(q->block, "format");
    const char *name = form && !json_is_null(form) ? json_string_value(form) : "gptq";
    if (!name || (strcmp(name, "gptq") != 0 && strcmp(name, "gptq_v2") != 0))
        return ln_scheme_unsupported(q, "checkpoint_format", form, "gptq or gptq_v2", err);
    q->code = (ln_groups){(int)bits, group < 1 ? 0 : (int)group};
    q->zeros_less_one = strcmp(name, "gptq") == 0;
    q->by_shapes = json_object_size(dynamic) > 0;
    return LN_OK;
}

static void unpack(const ln_int_matrix *m, int64_t d0, int64_t n, uint8_t *out) {
    for (int64_t i = 0; i < m->C; i++) /* along rows of the file, which hold the outputs of some columns */
        for (int64_t d = 0; d < n; d++)
            out[d * m->C + i] = (uint8_t)ln_int_code(m->codes->data + 4 * (d0 + d), m->D, m->bits, i);
}

static int zero(const ln_int_matrix *m, int64_t d, int64_t group) {
    const uint8_t *row = m->zeros->data + group * (m->D * m->bits / 32) * 4;
    return (int)((ln_int_code(row, 1, m->bits, d) + (uint32_t)m->added) & ((1u << m->bits) - 1));
}

/* Sets bits and groups by the shapes of qweight and scales. */
static ln_status read_shapes(const ln_source *s, ln_int_matrix *m, ln_error *err) {
    char text[160];
    const int64_t words = m->codes->dims[0];
    m->n_groups = m->scales->dims[0];
    m->bits = words > 0 && words * 32 % m->C == 0 && words * 32 / m->C <= 8 ? (int)(words * 32 / m->C) : 0;
    if (m->bits != 2 && m->bits != 3 && m->bits != 4 && m->bits != 8) {
        (void)snprintf(text, sizeof text,
                       "%lld rows of 32-bit words hold no codes of 2, 3, 4 or 8 bits of %lld columns",
                       (long long)words, (long long)m->C);
        return ln_scheme_bad_tensor(s, m->codes, text, err);
    }
    if (!s->quant->by_shapes && m->bits != s->quant->code.bits) {
        (void)snprintf(text, sizeof text, "%lld rows of words hold codes of %d bits; %s says %d",
                       (long long)words, m->bits, s->quant->where, s->quant->code.bits);
        return ln_scheme_bad_tensor(s, m->codes, text, err);
    }
    m->group = s->quant->code.group ? s->quant->code.group : m->C;
    if (s->quant->by_shapes && m->n_groups > 0) m->group = (m->C + m->n_groups - 1) / m->n_groups;
    m->group = LN_MIN(m->group, m->C);
    return LN_OK;
}

static bool has_shapes(const ln_source_ask *ask, const ln_int_matrix *m) {
    const int64_t groups = (m->C + m->group - 1) / m->group, codes[2] = {m->C * m->bits / 32, m->D},
                  scales[2] = {groups, m->D}, zeros[2] = {groups, m->D * m->bits / 32}, order[1] = {m->C};
    char why[64];
    (void)snprintf(why, sizeof why, " for %d bits in groups of %lld", m->bits, (long long)m->group);
    bool fits = ln_report_shape(ask->report, m->codes, 2, codes, why);
    fits &= ln_report_shape(ask->report, m->scales, 2, scales, why);
    fits &= ln_report_shape(ask->report, m->zeros, 2, zeros, why);
    return !m->order || (ln_report_shape(ask->report, m->order, 1, order, why) && fits) ? fits : false;
}

static ln_status find(const ln_source *s, const ln_source_ask *ask, ln_weight *w, bool *fits, ln_error *err) {
    const char *name;
    const ln_tensor *codes = w->d1 ? ln_scheme_find(s, ask, ".qweight", &name) : NULL;
    if (!codes) return s->of->ops->find(s->of, ask, w, fits, err);
    ln_int_matrix m = {.codes = codes,
                       .D = ln_source_stored_rows(w),
                       .C = w->d1,
                       .added = s->quant->zeros_less_one,
                       .by_group = true,
                       .unpack = unpack,
                       .zero = zero};
    char text[96];
    *fits = false;
    w->tensor = codes;
    w->transposed = true;
    ln_scheme_part(s, ask, name, ".scales", &m.scales);
    ln_scheme_part(s, ask, name, ".qzeros", &m.zeros);
    m.order = ln_source_sibling(s->tensors, name, ".g_idx");
    w->scales = m.scales, w->biases = m.zeros, w->more[0] = m.order;
    if (!m.scales || !m.zeros) return LN_OK;
    if (codes->dtype != LN_ST_I32 || codes->n_dims != 2 || w->n_experts)
        return ln_tensor_unsupported(s->tensors, codes, "a matrix of codes packed in I32", err);
    if (m.zeros->dtype != LN_ST_I32)
        return ln_tensor_unsupported(s->tensors, m.zeros, "zero points packed in I32", err);
    if (m.order && m.order->dtype != LN_ST_I32)
        return ln_tensor_unsupported(s->tensors, m.order, "groups of columns in I32", err);
    LN_TRY(read_shapes(s, &m, err));
    if (m.D * m.bits % 32) {
        (void)snprintf(text, sizeof text, ": zero points of %lld outputs in %d bits are no whole words of 32",
                       (long long)m.D, m.bits);
        ln_report_fault(ask->report, m.zeros->name, text);
        return LN_OK;
    }
    if (!has_shapes(ask, &m)) return LN_OK;
    *fits = true;
    return ln_int_matrix_settle(s, &m, w, err);
}

const ln_source_ops ln_gptq_ops = {.find = find, .rows = ln_int_matrix_rows};
