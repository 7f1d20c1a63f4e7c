/* What the CUDA device chooses for a program (contract: ln_lower_fn in graph/program.h).
 *
 * Products with weights in affine groups read x in bf16 (formats.def, BF16_AFFINE), where the policy asks for
 * block floating point: tensor cores multiply bf16. Values in bf16 are stored in two bytes. A pair of gated
 * products is one node. */
#include "cuda_device.h"

#include <math.h>

static bool is_product(const ln_lower_ask *q) { return q->op == LN_OP_LINEAR || q->op == LN_OP_LINEAR_GATED; }

static bool choose_formats(const ln_lower_ask *q, ln_lower_answer *a) {
    const bool weights = q->in[1].kind == LN_KIND_WEIGHT && (q->n_in < 3 || q->in[2].kind == LN_KIND_WEIGHT);
    if (q->candidate) return q->op == LN_OP_LINEAR_GATED && weights;
    if (is_product(q) && q->in[0].format.kind == LN_FORMAT_BFP)
        a->in_format[0] = (ln_format){LN_FORMAT_BF16, 0, 0};
    return true;
}

/* The largest relative difference from the reference kernel. Two sums of C products that are rounded to 24
 * bits at each step differ by a random walk, of whose mean distance FAR times is not exceeded in millions of
 * outputs; tensor cores cut the sum of 16 products to 24 bits instead of rounding it. Both factors of a gated
 * pair differ, and its largest gate and its largest other factor need not meet in one output. An output that
 * is rounded to bf16 may be rounded the other way. */
static double tolerance(const ln_lower_ask *q) {
    enum { FAR = 8, PAIR = 4, SCORES = 64 /* the largest magnitude of a score that is covered */ };
    const bool bf16 = q->n_out > 0 && q->out[0].format.kind == LN_FORMAT_BF16;
    const double rounding = bf16 ? 0x1p-8 : 0, unit = 0x1p-24;
    if (is_product(q)) {
        const double C = (double)q->in[1].dims[1];
        return (q->op == LN_OP_LINEAR_GATED ? PAIR : 1) * (FAR * unit * sqrt(C) + 2 * unit * C / 16) +
               rounding;
    }
    if (q->op == LN_OP_LORA_DOWN) return FAR * unit * sqrt((double)((const ln_p_lora *)q->params)->n_in);
    if (q->op == LN_OP_RMSNORM) return 2 * unit * ((double)q->in[1].dims[0] / 16 + 8) + rounding;
    if (q->op == LN_OP_ATTN_PAGED) {
        const ln_p_attn *p = q->params;
        if (p->kv.dtype == LN_BF16) return 0x1p-8 + rounding; /* a softmax weight rounded the other way */
        return FAR * unit * sqrt((double)p->kv.head_dim) * SCORES + rounding;
    }
    /* sine and cosine of another library, computed in double and rounded once */
    return q->op == LN_OP_ROPE_TABLE ? 4 * unit : 0;
}

static bool has_kernel(const ln_lower_ask *q) {
    switch (q->op) {
    case LN_OP_LINEAR:
    case LN_OP_LINEAR_GATED: return q->in[1].kind == LN_KIND_WEIGHT && q->in[0].format.kind <= LN_FORMAT_BF16;
    case LN_OP_CONVERT: return ((const ln_p_convert *)q->params)->to.kind == LN_FORMAT_BF16;
    case LN_OP_EMBED:
    case LN_OP_RMSNORM:
    case LN_OP_ADD:
    case LN_OP_MUL:
    case LN_OP_SILU:
    case LN_OP_GELU_TANH:
    case LN_OP_GATED:
    case LN_OP_ROPE_TABLE:
    case LN_OP_ROPE:
    case LN_OP_KV_WRITE:
    case LN_OP_ATTN_PAGED:
    case LN_OP_GATHER_ROWS:
    case LN_OP_LORA_DOWN:
    case LN_OP_LORA_UP: return true;
    default: return false;
    }
}

static void choose_storage(const ln_lower_ask *q, ln_lower_answer *a) {
    enum { VECTOR = 16 }; /* rows are whole vectors apart */
    a->kernel = has_kernel(q) ? "cuda" : NULL;
    a->tolerance = tolerance(q);
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
