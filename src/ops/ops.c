/* The table of ops: names and properties from ops.def, shape rules, costs, and the tables of reference
 * kernels.
 *
 * Costs: a linear does 2 * rows * C * D operations and reads its weight once, in the bytes that it takes in
 * the file or, where the device names other ones (ln_device_weight.read_bytes), in those; attention does 4 *
 * H * E operations for each position that a row attends to, and reads each page once for all rows of a
 * sequence; every other op reads and writes its operands once. */
#include "scalar_type.h"

#define ROWWISE LN_PROP_ROWWISE
#define INPLACE LN_PROP_INPLACE
#define EFFECT  LN_PROP_EFFECT
#define FUSED   LN_PROP_FUSED
#define ROUNDS  LN_PROP_ROUNDS
/* The gradient column of ops.def: NOGRAD with the reason, or GRAD(function). */
#define NOGRAD_FUSED  .nograd = "none: made by the fuse pass, after gradients"
#define NOGRAD_CAST   .nograd = "none: made by the cast pass, after gradients"
#define NOGRAD_SECOND .nograd = "none: part of a gradient; second derivatives are not computed"
#define NOGRAD_INT    .nograd = "none: a function of positions, which are integers"
#define NOGRAD_STATE  .nograd = "none: reads or changes the KV state; training uses packed attention"
#define NOGRAD_RECUR  .nograd = "none: reads or changes recurrent state; training uses conv and delta"
#define NOGRAD_POOL   .nograd = "none: reads the pool of loaded adapters; training uses products with A and B"
#define NOGRAD_RANKS  .nograd = "none: training is data parallel, each rank computes whole outputs"
#define GRAD(f)       .grad = f

/* The reference kernels. */
static const ln_kernel_row LN_REAL(rows)[] = {
    {LN_OP_EMBED, LN_DENSE_TABLES, {.fn = LN_REAL(ln_ref_embed_dense)}},
    {LN_OP_EMBED, 1 << LN_STORED_AFFINE, {.fn = LN_REAL(ln_ref_embed_affine)}},
    {LN_OP_EMBED, LN_CODED, {.fn = LN_REAL(ln_ref_embed_coded)}},
#define LN_PRODUCT(NAME, x, w, kernel, x_unit, w_unit, rest, formula)                              \
    {LN_OP_LINEAR, 1 << LN_PRODUCT_##NAME, {.fn = LN_REAL(ln_ref_linear_##NAME)}},                 \
        {LN_OP_LINEAR_GATED, 1 << LN_PRODUCT_##NAME, {.fn = LN_REAL(ln_ref_linear_gated_##NAME)}}, \
        {LN_OP_EXPERTS, 1 << LN_PRODUCT_##NAME, {.fn = LN_REAL(ln_ref_experts_##NAME)}},
#include "../quant/formats.def"
#undef LN_PRODUCT
    {LN_OP_CONVERT, 1 << LN_FORMAT_BF16, {.fn = LN_REAL(ln_ref_convert_bf16)}},
    {LN_OP_CONVERT, 1 << LN_FORMAT_BFP, {.fn = LN_REAL(ln_ref_convert_bfp)}},
    {LN_OP_CONVERT, 1 << LN_FORMAT_I8PAIR, {.fn = LN_REAL(ln_ref_convert_i8pair)}},
    {LN_OP_RMSNORM, 1, {.fn = LN_REAL(ln_ref_rmsnorm)}},
    {LN_OP_ADD, 1, {.fn = LN_REAL(ln_ref_add)}},
    {LN_OP_MUL, 1, {.fn = LN_REAL(ln_ref_mul)}},
    {LN_OP_SILU, 1, {.fn = LN_REAL(ln_ref_silu)}},
    {LN_OP_GELU_TANH, 1, {.fn = LN_REAL(ln_ref_gelu_tanh)}},
    {LN_OP_XIELU, 1, {.fn = LN_REAL(ln_ref_xielu)}},
    {LN_OP_XIELU_BACK, 1, {.fn = LN_REAL(ln_ref_xielu_back)}},
    {LN_OP_RELU2, 1, {.fn = LN_REAL(ln_ref_relu2)}},
    {LN_OP_SIGMOID, 1, {.fn = LN_REAL(ln_ref_sigmoid)}},
    {LN_OP_SOFTCAP, 1, {.fn = LN_REAL(ln_ref_softcap)}},
    {LN_OP_CENTRE, 1, {.fn = LN_REAL(ln_ref_centre)}},
    {LN_OP_SLICE, 1, {.fn = LN_REAL(ln_ref_slice)}},
    {LN_OP_GATED, 1, {.fn = LN_REAL(ln_ref_gated)}},
    {LN_OP_ROPE_TABLE, 1, {.fn = LN_REAL(ln_ref_rope_table)}},
    {LN_OP_ROPE, 1, {.fn = LN_REAL(ln_ref_rope)}},
    {LN_OP_POS_SCALE, 1, {.fn = LN_REAL(ln_ref_pos_scale)}},
    {LN_OP_KV_WRITE, 1, {.fn = LN_REAL(ln_ref_kv_write)}},
    {LN_OP_ATTN_PAGED, 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3, {.fn = LN_REAL(ln_ref_attn_paged)}},
    {LN_OP_SHORT_CONV, 1 << 0 | 1 << 1, {.fn = LN_REAL(ln_ref_short_conv)}},
    {LN_OP_DELTA_GATES, 1, {.fn = LN_REAL(ln_ref_delta_gates)}},
    {LN_OP_GATED_DELTA,
     1 << 0 | 1 << 1,
     {.fn = LN_REAL(ln_ref_gated_delta), .scratch = LN_REAL(ln_ref_delta_scratch)}},
    {LN_OP_GATHER_ROWS, 1, {.fn = LN_REAL(ln_ref_gather_rows)}},
    {LN_OP_LOAD, 1, {.fn = LN_REAL(ln_ref_load)}},
    {LN_OP_MATMUL, 1 << LN_MATMUL_NT, {.fn = LN_REAL(ln_ref_matmul_nt)}},
    {LN_OP_MATMUL, 1 << LN_MATMUL_NN, {.fn = LN_REAL(ln_ref_matmul_nn)}},
    {LN_OP_MATMUL, 1 << LN_MATMUL_TN, {.fn = LN_REAL(ln_ref_matmul_tn)}},
    {LN_OP_LINEAR_BACK, LN_ANY_STORED | LN_CODED, {.fn = LN_REAL(ln_ref_linear_back)}},
    {LN_OP_SCALE, 1, {.fn = LN_REAL(ln_ref_scale)}},
    {LN_OP_SCALE_ROWS, 1, {.fn = LN_REAL(ln_ref_scale_rows)}},
    {LN_OP_SUM, 1, {.fn = LN_REAL(ln_ref_sum)}},
    {LN_OP_SPREAD, 1, {.fn = LN_REAL(ln_ref_spread)}},
    {LN_OP_SOFTMAX, 1, {.fn = LN_REAL(ln_ref_softmax)}},
    {LN_OP_SOFTMAX_BACK, 1, {.fn = LN_REAL(ln_ref_softmax_back)}},
    {LN_OP_NLL, 1, {.fn = LN_REAL(ln_ref_nll)}},
    {LN_OP_NLL_BACK, 1, {.fn = LN_REAL(ln_ref_nll_back)}},
    {LN_OP_ACT_BACK, 1, {.fn = LN_REAL(ln_ref_act_back)}},
    {LN_OP_RMSNORM_BACK, 1, {.fn = LN_REAL(ln_ref_rmsnorm_back)}},
    {LN_OP_RMSNORM_DW, 1, {.fn = LN_REAL(ln_ref_rmsnorm_dw)}},
    {LN_OP_ROPE_BACK, 1, {.fn = LN_REAL(ln_ref_rope_back)}},
    {LN_OP_EMBED_BACK, 1, {.fn = LN_REAL(ln_ref_embed_back)}},
    {LN_OP_SCATTER_ROWS, 1, {.fn = LN_REAL(ln_ref_scatter_rows)}},
    {LN_OP_SLICE_BACK, 1, {.fn = LN_REAL(ln_ref_slice_back)}},
    {LN_OP_POINTWISE, 1, {.fn = LN_REAL(ln_ref_pointwise)}},
    {LN_OP_RESHAPE, 1, {.fn = LN_REAL(ln_ref_reshape)}},
    {LN_OP_ATTN, 1, {.fn = LN_REAL(ln_ref_attn)}},
    {LN_OP_ATTN_BACK, 1, {.fn = LN_REAL(ln_ref_attn_back)}},
    {LN_OP_CONV, 1, {.fn = LN_REAL(ln_ref_conv)}},
    {LN_OP_DELTA_GATES_BACK, 1, {.fn = LN_REAL(ln_ref_delta_gates_back)}},
    {LN_OP_DELTA, 1, {.fn = LN_REAL(ln_ref_delta), .scratch = LN_REAL(ln_ref_packed_delta_scratch)}},
    {LN_OP_DELTA_BACK,
     1,
     {.fn = LN_REAL(ln_ref_delta_back), .scratch = LN_REAL(ln_ref_packed_delta_scratch)}},
    {LN_OP_LINEAR_CROSS_ENTROPY, LN_ANY_STORED | LN_CODED, {.fn = LN_REAL(ln_ref_linear_cross_entropy)}},
    {LN_OP_DROPOUT, 1, {.fn = LN_REAL(ln_ref_dropout)}},
    {LN_OP_CLAMP, 1, {.fn = LN_REAL(ln_ref_clamp)}},
    {LN_OP_ROUTE, 1, {.fn = LN_REAL(ln_ref_route)}},
    {LN_OP_ROUTE_BACK, 1, {.fn = LN_REAL(ln_ref_route_back)}},
    {LN_OP_FOLD_ROWS, 1, {.fn = LN_REAL(ln_ref_fold_rows)}},
    {LN_OP_REPEAT_ROWS, 1, {.fn = LN_REAL(ln_ref_repeat_rows)}},
    {LN_OP_EXPERTS_BACK, LN_ANY_STORED | LN_CODED, {.fn = LN_REAL(ln_ref_experts_back)}},
    {LN_OP_LORA_DOWN, 1, {.fn = LN_REAL(ln_ref_lora_down)}},
    {LN_OP_LORA_UP, 1, {.fn = LN_REAL(ln_ref_lora_up)}},
    {LN_OP_ALL_GATHER, 1, {.fn = LN_REAL(ln_ref_all_gather), .scratch = LN_REAL(ln_ref_gather_scratch)}},
    {0},
};
void LN_REAL(ln_ref_kernels)(ln_kernel_table *t) {
    memset(t, 0, sizeof *t);
    ln_kernels_add(t, LN_REAL(rows));
}

#ifdef LN_REAL_FLOAT
const ln_op_info ln_ops[LN_OP_COUNT] = {
#define LN_OP(E, op, lo, hi, outputs, params, properties, gradient, text) \
    [LN_OP_##E] = {.name = #op,                                           \
                   .formula = text,                                       \
                   .in_min = lo,                                          \
                   .in_max = hi,                                          \
                   .n_out = outputs,                                      \
                   .props = properties,                                   \
                   .params_bytes = sizeof(params),                        \
                   .shape = ln_shape_##op,                                \
                   .cost = ln_cost_##op,                                  \
                   gradient},
#include "../graph/ops.def"
#undef LN_OP
};

ln_status ln_shape_fail(const ln_graph *g, const ln_node *n, ln_error *err, const char *rule) {
    ln_str s = {0};
    for (int i = 0; i < n->n_in; i++) {
        const ln_value *v = ln_in(g, n, i);
        ln_str_addf(&s, " %s[%lld%s", v->name, (long long)v->dims[0], v->n_dims > 1 ? "" : "]");
        if (v->n_dims > 1) ln_str_addf(&s, ",%lld]", (long long)v->dims[1]);
    }
    ln_status st = ln_fail(err, LN_EINTERNAL, "graph: op %s -> %s wants %s, got%s", ln_ops[n->op].name,
                           n->n_out ? g->values[n->out[0]].name : "", rule, s.data ? s.data : " nothing");
    ln_str_free(&s);
    return st;
}

void ln_shape_like(ln_value *y, int64_t rows, int64_t cols) {
    y->kind = LN_KIND_TEMP;
    y->dtype = LN_F32;
    y->n_dims = 2;
    y->dims[0] = rows;
    y->dims[1] = cols;
}

void ln_shape_version(ln_value *y, const ln_value *state) {
    y->kind = state->kind;
    y->slot = state->slot;
    y->flags = state->flags;
    y->dtype = state->dtype;
    y->n_dims = state->n_dims;
    memcpy(y->dims, state->dims, sizeof y->dims);
}

void ln_kernels_add(ln_kernel_table *t, const ln_kernel_row *rows) {
    for (; rows->variants; rows++)
        for (int v = 0; v < LN_VARIANTS; v++)
            if (rows->variants >> v & 1) t->of[rows->op][v] = rows->kernel;
}

/* Whether vectors of 16 fit the widths of a delta rule and the rows of a chunk. */
static bool recur_by_vectors(const ln_p_recur *p) {
    return p->k_dim % 16 == 0 && p->v_dim % 16 == 0 && p->page_len % 16 == 0;
}
/* Of attention: by the dtype that it reads, and whether that is stored in 8 bits. */
static int attn_variant(const ln_p_kv *p) { return (p->dtype == LN_BF16) + 2 * p->q8; }
int ln_variant_of(ln_op op, const void *params, ln_format x, ln_stored w) {
    switch (op) {
    case LN_OP_LINEAR:
    case LN_OP_LINEAR_GATED:
    case LN_OP_EXPERTS: {
        const ln_product p = ln_product_of(x, w);
        return p < LN_PRODUCT_COUNT ? (int)p : -1;
    }
    case LN_OP_EMBED:
    case LN_OP_LINEAR_BACK:
    case LN_OP_EXPERTS_BACK:
    case LN_OP_LINEAR_CROSS_ENTROPY: return (int)w;
    case LN_OP_MATMUL: return (int)((const ln_p_matmul *)params)->kind;
    case LN_OP_CONVERT: return ((const ln_p_convert *)params)->to.kind;
    case LN_OP_ATTN_PAGED: return attn_variant(&((const ln_p_attn *)params)->kv);
    case LN_OP_SHORT_CONV: return ((const ln_p_recur *)params)->taps <= LN_RECUR_TAPS;
    case LN_OP_GATED_DELTA: return recur_by_vectors(params);
    default: return 0;
    }
}
/* The weight among the operands: of embed the first, of products the second. */
static int weight_operand(ln_op op) { return op == LN_OP_EMBED ? 0 : 1; }
int ln_node_variant(const ln_program *p, const ln_pnode *n) {
    if (n->n_in < 1) return 0;
    const ln_pvalue *w = ln_program_value(p, n->in[LN_MIN(weight_operand(n->op), n->n_in - 1)]);
    return ln_variant_of(n->op, &n->p, ln_program_value(p, n->in[0])->format, (ln_stored)w->enc.kind);
}

static double value_bytes(const ln_pvalue *v, const ln_bounds *b) {
    if (v->kind == LN_KIND_STATE) return 0;
    if (v->read_bytes) return (double)v->read_bytes;
    double n = (double)ln_dim(v->dims[0], b);
    for (int i = 1; i < v->n_dims; i++) n *= (double)v->dims[i];
    if (v->kind == LN_KIND_TEMP && v->format.kind >= LN_FORMAT_BFP)
        return n * 4 * (double)ln_format_row_elements(v->format, v->dims[1]) / (double)v->dims[1];
    if (v->layout == LN_LAYOUT_NARROW) return n * 2;
    if (v->kind != LN_KIND_WEIGHT || ln_encoding_is_dense(v->enc)) return n * ln_dtype_bytes(v->dtype);
    const double cols = (double)v->dims[v->n_dims - 1];
    const ln_row_bytes row = ln_encoding_row(v->enc, v->dims[v->n_dims - 1]);
    return n / cols * (double)(row.data + row.scales + row.offsets);
}

ln_cost ln_cost_of_operands(const ln_program *p, const ln_pnode *n, const ln_bounds *live) {
    ln_cost c = {0};
    for (int i = 0; i < n->n_in; i++) {
        const ln_pvalue *v = ln_program_value(p, n->in[i]);
        const double bytes = value_bytes(v, live);
        if (v->kind == LN_KIND_WEIGHT) c.weight_bytes += bytes;
        c.bytes += bytes;
    }
    for (int i = 0; i < n->n_out; i++) c.bytes += value_bytes(ln_program_value(p, n->out[i]), live);
    return c;
}
ln_cost ln_cost_of_products(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int n_products) {
    const ln_pvalue *x = ln_program_value(p, n->in[0]), *w = ln_program_value(p, n->in[1]);
    ln_cost c = ln_cost_of_operands(p, n, live);
    c.flops = 2.0 * n_products * (double)ln_dim(x->dims[0], live) * (double)w->dims[0] * (double)w->dims[1];
    return c;
}
#endif
