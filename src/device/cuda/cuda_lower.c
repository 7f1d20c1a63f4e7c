/* What the CUDA device chooses for a program (contract: ln_lower_fn in graph/program.h).
 *
 * Products with weights in affine groups read x in bf16 (formats.def, BF16_AFFINE), where the policy asks for
 * block floating point: tensor cores multiply bf16. Values in bf16 are stored in two bytes. A pair of gated
 * products is one node. */
#include "cuda_ops.h"

static bool is_product(const ln_lower_ask *q) {
    return q->op == LN_OP_LINEAR || q->op == LN_OP_LINEAR_GATED || q->op == LN_OP_EXPERTS;
}

static bool choose_formats(const ln_lower_ask *q, ln_lower_answer *a) {
    const bool weights = q->in[1].kind == LN_KIND_WEIGHT && (q->n_in < 3 || q->in[2].kind == LN_KIND_WEIGHT);
    if (q->candidate)
        return q->op == LN_OP_LINEAR_GATED && weights && ln_encoding_same(q->in[1].enc, q->in[2].enc);
    if (is_product(q) && q->in[0].format.kind == LN_FORMAT_BFP)
        a->in_format[0] = (ln_format){LN_FORMAT_BF16, 0, 0};
    return true;
}

static void choose_storage(const ln_lower_ask *q, ln_lower_answer *a) {
    enum { VECTOR = 16 }; /* rows are whole vectors apart */
    const gpu_op *op = gpu_op_of((int)q->op);
    a->kernel = op && (!op->can || op->can(q)) ? "cuda" : NULL;
    a->tolerance = op && op->tolerance ? op->tolerance(q) : 0;
    for (int k = 0; k < q->n_out; k++) {
        const ln_lower_operand *y = &q->out[k];
        if (y->kind != LN_KIND_TEMP) continue;
        const bool narrow = y->format.kind == LN_FORMAT_BF16 && q->readable[k] >> LN_LAYOUT_NARROW & 1;
        if (narrow) a->layout[k] = LN_LAYOUT_NARROW;
        const int64_t bytes = narrow ? 2 * y->dims[y->n_dims - 1] : a->row_bytes[k];
        a->row_bytes[k] = (bytes + VECTOR - 1) / VECTOR * VECTOR;
    }
}

bool gpu_lower(const ln_dev *d, const ln_lower_ask *q, ln_lower_answer *a) {
    (void)d;
    switch (q->sweep) {
    case LN_LOWER_FORMATS: return choose_formats(q, a);
    case LN_LOWER_READS: /* every kernel reads both layouts */
        for (int k = 0; k < q->n_in; k++) a->readable[k] |= 1u << LN_LAYOUT_NARROW;
        return true;
    default: choose_storage(q, a); return true;
    }
}
