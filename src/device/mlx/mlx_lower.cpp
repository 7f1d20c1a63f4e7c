/* What the MLX device chooses for the nodes of a program, and how far their outputs may lie from those of the
 * reference device: tolerances are relative to the largest magnitude of an output (graph/program.h). */
#include "mlx_device.h"

#include <cmath>

/* Half of the spacing of f32 relative to a number, and what one of MLX's elementary functions may be away
 * from the true value: two spacings. */
static const double UNIT = 0x1p-24, FUNCTION = 4 * UNIT;

/* MLX adds the terms of a product in another order than the reference. Two sums of `terms` terms that are
 * rounded at each step differ by a random walk, of whose mean distance FAR times is not exceeded in millions
 * of outputs. */
static double sum_of(double terms) {
    static const double FAR = 8;
    return FAR * UNIT * std::sqrt(terms);
}

/* A row's mean square, added by lanes of eight, and what follows: a root, a quotient, a product, a weight. */
static double of_rows(const ln_lower_ask *q) {
    const int64_t width = q->op == LN_OP_RMSNORM && q->n_in > 1 ? q->in[1].dims[0]
                          : q->op == LN_OP_RMSNORM              ? ((const ln_p_norm *)q->params)->width
                                                                : q->in[0].dims[1];
    return UNIT * ((double)width / 8 + 16);
}

/* From x in bf16: with weights in bf16 MLX rounds a result to two numbers of bf16. Of affine groups the reference rounds the weights s q + b, and MLX does not. */
static double of_product(const ln_lower_ask *q) {
    const ln_encoding enc = q->in[1].enc;
    const double sum = sum_of((double)q->in[1].dims[1]);
    if (q->in[0].format.kind != LN_FORMAT_BF16) return sum;
    if (!ln_encoding_is_dense(enc)) return sum + 0x1p-8;
    return sum + (enc.scale == LN_BF16 ? 0x1p-16 : 0);
}

static double of_attention(const ln_lower_ask *q) {
    static const double SCORES = 64; /* the largest magnitude of a score that is covered */
    const ln_p_attn *p = (const ln_p_attn *)q->params;
    if (p->kv.dtype == LN_BF16) return 0x1p-8; /* the reference rounds softmax weights to bf16 */
    return sum_of(p->kv.head_dim) * SCORES;
}

static double tolerance(const ln_lower_ask *q) {
    static const double PAIR = 4; /* the largest factors of a gated pair need not meet in one output */
    const double activation = 2 * FUNCTION; /* one function, and at most eight roundings */
    switch (q->op) {
    case LN_OP_EMBED: return ln_encoding_is_dense(q->in[0].enc) ? 0 : 2 * UNIT; /* s q + b, fused or not */
    case LN_OP_LINEAR: return of_product(q);
    case LN_OP_LORA_DOWN: return sum_of((double)((const ln_p_lora *)q->params)->n_in);
    case LN_OP_LORA_UP: return sum_of((double)((const ln_p_lora *)q->params)->max_rank);
    case LN_OP_RMSNORM:
    case LN_OP_CENTRE: return of_rows(q);
    case LN_OP_ROPE: return 4 * UNIT; /* two products and a sum, fused or not */
    case LN_OP_POS_SCALE: return FUNCTION;
    case LN_OP_ATTN_PAGED: return of_attention(q);
    case LN_OP_SILU:
    case LN_OP_GELU_TANH:
    case LN_OP_SIGMOID:
    case LN_OP_SOFTCAP:
    case LN_OP_XIELU: return activation;
    case LN_OP_GATED: return PAIR * activation;
    default: return 0;
    }
}

bool mlx_multiplies_bf16(const ln_program *p, const ln_pnode *n) {
    const ln_pvalue *x = ln_program_value(p, n->in[0]), *w = ln_program_value(p, n->in[1]);
    return ln_encoding_is_dense(w->enc) && w->enc.scale == LN_BF16 && x->format.kind == LN_FORMAT_BF16;
}

/* Products with quantised weights read x in bf16 if the policy asks for block floating point. Temps are
 * arrays of MLX's. In the block of temps they have the least rows that a plan can have. */
bool mlx_lower(const ln_dev *, const ln_lower_ask *q, ln_lower_answer *a) {
    if (q->candidate) return false;
    if (q->sweep == LN_LOWER_FORMATS)
        for (int k = 0; k < q->n_in; k++)
            if (q->in[k].kind == LN_KIND_TEMP && q->in[k].format.kind > LN_FORMAT_BF16)
                a->in_format[k] = ln_format{LN_FORMAT_BF16, 0, 0};
    if (q->sweep == LN_LOWER_STORAGE) {
        a->kernel = mlx_has_op(q->op) ? "mlx" : nullptr;
        a->tolerance = tolerance(q);
        for (int k = 0; k < q->n_out; k++) a->row_bytes[k] = MLX_ALIGN;
    }
    return true;
}
