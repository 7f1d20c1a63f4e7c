/* AWQ, version gemm, as AutoAWQ writes it:
 *
 *     X.qweight  I32 [in, out / 8]      a word holds 8 outputs of one column of the matrix
 *     X.qzeros   I32 [groups, out / 8]
 *     X.scales       [groups, out]
 *
 *     w[o][i] = s (q - z), all of group i / group_size
 *
 * The 4 bits at 4 p of a word belong to output order[p] of its eight. */
#include "int_matrix.h"

#include <stdio.h>
#include <string.h>

static const uint8_t shift_of[8] = {0, 16, 4,  20,
                                    8, 24, 12, 28}; /* of outputs 0 .. 7: order 0 2 4 6 1 3 5 7 */

ln_status ln_awq_read(ln_quant *q, ln_error *err) {
    static const char *const bits_fields[2] = {"bits", "w_bit"}, *const group_fields[2] = {"group_size",
                                                                                           "q_group_size"};
    const json_t *version = json_object_get(q->block, "version");
    int64_t bits, group;
    LN_TRY(ln_scheme_int(q, bits_fields, 4, 1, 32, &bits, err));
    LN_TRY(ln_scheme_int(q, group_fields, 128, -1, 1 << 20, &group, err));
    if (bits != 4) return ln_scheme_unsupported(q, "bits", json_object_get(q->block, "bits"), "4", err);
    if (!version || json_is_null(version)) version = json_object_get(q->block, "format");
    const char *name = version && !json_is_null(version) ? json_string_value(version) : "gemm";
    if (!name || (strcmp(name, "gemm") != 0 && strcmp(name, "GEMM") != 0 && strcmp(name, "exllama") != 0))
        return ln_scheme_unsupported(q, "version", version, "gemm", err); /* gemv packs otherwise */
    q->code = (ln_groups){(int)bits, group < 1 ? 0 : (int)group};
    return LN_OK;
}

static uint32_t word_at(const ln_tensor *x, int64_t i) {
    uint32_t word;
    memcpy(&word, x->data + 4 * i, 4);
    return word;
}

static void unpack(const ln_int_matrix *m, int64_t d0, int64_t n, uint8_t *out) {
    for (int64_t i = 0; i < m->C; i++)
        for (int64_t d = 0; d < n; d++) {
            const int64_t at = d0 + d;
            out[d * m->C + i] =
                (uint8_t)(word_at(m->codes, i * (m->D / 8) + at / 8) >> shift_of[at % 8] & 15);
        }
}

static int zero(const ln_int_matrix *m, int64_t d, int64_t group) {
    return (int)(word_at(m->zeros, group * (m->D / 8) + d / 8) >> shift_of[d % 8] & 15);
}

static bool has_shapes(const ln_source_ask *ask, const ln_int_matrix *m) {
    const int64_t codes[2] = {m->C, m->D / 8}, scales[2] = {m->n_groups, m->D},
                  zeros[2] = {m->n_groups, m->D / 8};
    char why[64];
    (void)snprintf(why, sizeof why, " for 4 bits in groups of %lld", (long long)m->group);
    bool fits = ln_report_shape(ask->report, m->codes, 2, codes, why);
    fits &= ln_report_shape(ask->report, m->scales, 2, scales, why);
    return ln_report_shape(ask->report, m->zeros, 2, zeros, why) && fits;
}

static ln_status find(const ln_source *s, const ln_source_ask *ask, ln_weight *w, bool *fits, ln_error *err) {
    const char *name;
    const ln_tensor *codes = w->d1 ? ln_scheme_find(s, ask, ".qweight", &name) : NULL;
    if (!codes) return s->of->ops->find(s->of, ask, w, fits, err);
    ln_int_matrix m = {.codes = codes,
                       .D = ln_source_stored_rows(w),
                       .C = w->d1,
                       .bits = 4,
                       .group = s->quant->code.group ? LN_MIN(s->quant->code.group, w->d1) : w->d1,
                       .by_group = true,
                       .unpack = unpack,
                       .zero = zero};
    char text[96];
    *fits = false;
    w->tensor = codes;
    w->transposed = true;
    ln_scheme_part(s, ask, name, ".scales", &m.scales);
    ln_scheme_part(s, ask, name, ".qzeros", &m.zeros);
    w->scales = m.scales, w->biases = m.zeros;
    if (!m.scales || !m.zeros) return LN_OK;
    if (codes->dtype != LN_ST_I32 || w->n_experts)
        return ln_tensor_unsupported(s->tensors, codes, "a matrix of codes packed in I32", err);
    if (m.zeros->dtype != LN_ST_I32)
        return ln_tensor_unsupported(s->tensors, m.zeros, "zero points packed in I32", err);
    m.n_groups = m.C / m.group;
    if (m.C % m.group || m.D % 8) {
        (void)snprintf(text, sizeof text, ": [%lld, %lld] are no whole groups of %lld and words of 8",
                       (long long)m.C, (long long)m.D, (long long)m.group);
        ln_report_fault(ask->report, codes->name, text);
        return LN_OK;
    }
    if (!has_shapes(ask, &m)) return LN_OK;
    *fits = true;
    return ln_int_matrix_settle(s, &m, w, err);
}

const ln_source_ops ln_awq_ops = {.find = find, .rows = ln_int_matrix_rows};
