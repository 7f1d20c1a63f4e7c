/* What the CPU device chooses for a program, by ISA level (contract: ln_lower_fn in graph/program.h).
 *
 * Only AMX deviates from dense rows of f32, because tiles load their operands from memory: bf16 operands are
 * stored in two bytes, backward products read them (the other levels read f32, which costs them nothing),
 * products with affine groups read int8 pairs (tiles cannot scale partial sums, so scales by group would cost
 * more than the products, docs/decisions/013-int8-pair-products.md), gate and up projections are one product,
 * and its output is in row panels where a conversion to int8 pairs reads it
 * (docs/decisions/016-row-panels.md). Long rows are padded on every level (ln_cpu_pitch). */
#include "exec.h"
#include "pack/panel.h"

#include <math.h>

#ifdef LN_X86
static bool has_tiles(ln_isa isa) { return isa >= LN_ISA_AMX; }
#else
static bool has_tiles(ln_isa isa) { return (void)isa, false; }
#endif

bool ln_cpu_columns_per_row(ln_isa isa, int64_t columns) {
    return has_tiles(isa) && columns <= LN_I8PAIR_MAX_COLS;
}

static ln_stored stored(const ln_lower_operand *w) { return (ln_stored)w->enc.kind; }
static bool is_product(const ln_lower_ask *q) {
    return q->op == LN_OP_LINEAR || q->op == LN_OP_LINEAR_GATED || q->op == LN_OP_EXPERTS;
}
static bool is_backward(const ln_lower_ask *q) {
    return q->op == LN_OP_LINEAR_BACK || q->op == LN_OP_EXPERTS_BACK || q->op == LN_OP_LINEAR_CROSS_ENTROPY;
}
/* Rows and columns of the matrix that is operand 1, or of each of its matrices. */
static int64_t weight_rows(const ln_lower_ask *q) { return q->in[1].dims[q->in[1].n_dims - 2]; }
static int64_t weight_cols(const ln_lower_ask *q) { return q->in[1].dims[q->in[1].n_dims - 1]; }
/* Whether operand 1 is a weight in the device's layout. */
static bool reads_weight(const ln_lower_ask *q) { return is_product(q) || is_backward(q); }
static bool is_i8pair_product(const ln_lower_ask *q) {
    return is_product(q) && q->in[0].format.kind == LN_FORMAT_I8PAIR;
}
/* Whether a kernel by tiles multiplies operand 0 with bf16 weights or pages. */
static bool is_bf16_by_tiles(ln_isa isa, const ln_lower_ask *q) {
    if (!has_tiles(isa)) return false;
    if (q->op == LN_OP_ATTN_PAGED) return ((const ln_p_attn *)q->params)->kv.dtype == LN_BF16;
    return (is_product(q) || (is_backward(q) && q->in[0].format.kind == LN_FORMAT_BF16)) &&
           stored(&q->in[1]) == LN_STORED_BF16;
}

/* Whether training asks for bf16 and every level reads f32: next to weights in affine groups, and without
 * weights. */
static bool reads_f32(const ln_lower_ask *q) {
    switch (q->op) {
    case LN_OP_ATTN:
    case LN_OP_ATTN_BACK:
    case LN_OP_SILU:
    case LN_OP_GELU_TANH:
    case LN_OP_ACT_BACK:
    case LN_OP_MUL:
    case LN_OP_MATMUL:
    case LN_OP_RMSNORM:
    case LN_OP_RMSNORM_BACK: return true;
    default: return reads_weight(q) && stored(&q->in[1]) == LN_STORED_AFFINE;
    }
}

static bool choose_formats(ln_isa isa, const ln_lower_ask *q, ln_lower_answer *a) {
    const uint8_t x = q->in[0].format.kind;
    if (q->candidate)
        return q->op == LN_OP_LINEAR_GATED && has_tiles(isa) &&
               (x == LN_FORMAT_I8PAIR || (x == LN_FORMAT_BF16 && is_bf16_by_tiles(isa, q)));
    if (is_product(q) && x == LN_FORMAT_BFP && ln_cpu_columns_per_row(isa, weight_cols(q)))
        a->in_format[0].kind = LN_FORMAT_I8PAIR;
    if (is_backward(q) && !has_tiles(isa)) a->in_format[0].kind = LN_FORMAT_F32;
    for (int k = 0; reads_f32(q) && k < q->n_in; k++)
        if (q->in[k].format.kind == LN_FORMAT_BF16) a->in_format[k].kind = LN_FORMAT_F32;
    return true;
}

static bool converts_to_i8pair(const ln_lower_ask *q) {
    return q->op == LN_OP_CONVERT && ((const ln_p_convert *)q->params)->to.kind == LN_FORMAT_I8PAIR;
}

static void say_what_is_readable(ln_isa isa, const ln_lower_ask *q, ln_lower_answer *a) {
    if (q->in[0].format.kind == LN_FORMAT_BF16 && is_bf16_by_tiles(isa, q))
        a->readable[0] |= 1u << LN_LAYOUT_NARROW;
    if (q->op == LN_OP_LORA_DOWN) a->readable[0] |= 1u << LN_LAYOUT_NARROW;
    if ((is_i8pair_product(q) && q->op != LN_OP_EXPERTS) || converts_to_i8pair(q))
        a->readable[0] |= 1u << LN_CPU_PANELS;
}

/* Whether the output of a gated product of int8 pairs goes into row panels: its only reader converts it to
 * int8 pairs, its rows are whole panels wide, and their pitch leaves padding for the sums
 * (ln_cpu_i8pair_panel). */
static bool goes_to_panels(const ln_lower_ask *q) {
    const int64_t cols = q->out[0].dims[1];
    return q->op == LN_OP_LINEAR_GATED && is_i8pair_product(q) && q->reader_op[0] == LN_OP_CONVERT &&
           q->reader_format[0] == LN_FORMAT_I8PAIR && cols % LN_PANEL_COLS == 0 &&
           ln_cpu_pitch(q->out[0].format, LN_LAYOUT_ROWS, cols) != cols;
}

static bool rounds(const ln_lower_ask *q) { return (q->props & LN_PROP_ROUNDS) && !is_i8pair_product(q); }

static uint8_t layout_of(const ln_lower_ask *q) {
    const ln_lower_operand *y = &q->out[0];
    if (y->format.kind == LN_FORMAT_BF16 && rounds(q) && y->dims[1] % 32 == 0 &&
        q->readable[0] >> LN_LAYOUT_NARROW & 1)
        return LN_LAYOUT_NARROW;
    const bool panels = goes_to_panels(q) || (converts_to_i8pair(q) && q->in[0].layout == LN_CPU_PANELS);
    return panels && q->readable[0] >> LN_CPU_PANELS & 1 ? LN_CPU_PANELS : LN_LAYOUT_ROWS;
}

/* Relative tolerance of AMX. Its products with bf16 weights accumulate in another order: two sums of C terms
 * that are rounded to 24 bits at each step differ by a random walk. FAR times its mean distance was not
 * exceeded in a few million outputs. In a gated pair both factors differ, and the largest gate and the
 * largest up projection need not meet in one output, so PAIR is a further factor. */
static double tolerance(ln_isa isa, const ln_lower_ask *q) {
    enum {
        FAR = 8, /* tolerance in mean distances of the random walk */
        PAIR = 4 /* further factor of a gated pair */
    };
    if (!is_bf16_by_tiles(isa, q)) return 0;
    if (q->op == LN_OP_ATTN_PAGED) return 0x1p-8;           /* a softmax weight rounded the other way */
    if (q->op == LN_OP_LINEAR_CROSS_ENTROPY) return 0x1p-8; /* softmax weights are rounded to bf16 */
    if (q->op == LN_OP_LINEAR_BACK || q->op == LN_OP_EXPERTS_BACK)
        return FAR * 0x1p-24 * sqrt((double)weight_rows(q));
    return (q->op == LN_OP_LINEAR_GATED ? PAIR : 1) * FAR * 0x1p-24 * sqrt((double)weight_cols(q));
}

static void choose_storage(const ln_dev *d, const ln_lower_ask *q, ln_lower_answer *a) {
    const int variant =
        ln_variant_of((ln_op)q->op, q->params, q->in[0].format, stored(&q->in[q->op == LN_OP_EMBED ? 0 : 1]));
    /* kernels of matrices read packed weights, which the plain kernels cannot read; coded rows are as they
     * are */
    const int w = q->op == LN_OP_EMBED ? 0 : reads_weight(q) ? 1 : -1;
    const bool packed = w < 0 || q->in[w].kind == LN_KIND_WEIGHT || d->isa == LN_ISA_PLAIN,
               rows = w >= 0 && ln_encoding_is_coded(q->in[w].enc);
    a->kernel = variant < 0 || !packed ? NULL : d->levels[q->op][variant];
    if (w >= 0 && !rows && d->isa > LN_ISA_PLAIN && a->kernel == ln_cpu_isa_name(LN_ISA_PLAIN))
        a->kernel = NULL;
    a->tolerance = tolerance(d->isa, q);
    if (q->n_out < 1 || q->out[0].kind != LN_KIND_TEMP) return;
    const ln_lower_operand *y = &q->out[0];
    a->layout[0] = layout_of(q);
    a->row_bytes[0] = ln_cpu_pitch(y->format, a->layout[0], y->dims[1]) *
                      (a->layout[0] == LN_LAYOUT_NARROW ? 2 : (int64_t)sizeof(float));
    if (a->layout[0] != LN_CPU_PANELS) return;
    a->tail_rows = LN_PANEL_ROWS;
    a->in_place = q->op == LN_OP_CONVERT; /* the digits of a row take the place of its elements */
}

bool ln_cpu_lower(const ln_dev *d, const ln_lower_ask *q, ln_lower_answer *a) {
    switch (q->sweep) {
    case LN_LOWER_FORMATS: return choose_formats(d->isa, q, a);
    case LN_LOWER_READS: say_what_is_readable(d->isa, q, a); return true;
    default: choose_storage(d, q, a); return true;
    }
}
