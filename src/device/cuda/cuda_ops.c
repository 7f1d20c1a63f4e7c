/* The table of the ops of the CUDA device, and what their rows share. */
#include "cuda_ops.h"

static const gpu_op *const ops[GPU_OP_COUNT] = {
    [LN_OP_EMBED] = &gpu_op_embed,
    [LN_OP_LINEAR] = &gpu_op_linear,
    [LN_OP_LINEAR_GATED] = &gpu_op_linear,
    [LN_OP_RMSNORM] = &gpu_op_rmsnorm,
    [LN_OP_ADD] = &gpu_op_pointwise,
    [LN_OP_MUL] = &gpu_op_pointwise,
    [LN_OP_SILU] = &gpu_op_pointwise,
    [LN_OP_GELU_TANH] = &gpu_op_pointwise,
    [LN_OP_RELU2] = &gpu_op_pointwise,
    [LN_OP_SIGMOID] = &gpu_op_pointwise,
    [LN_OP_SOFTCAP] = &gpu_op_pointwise,
    [LN_OP_SCALE] = &gpu_op_pointwise,
    [LN_OP_SCALE_ROWS] = &gpu_op_pointwise,
    [LN_OP_GATED] = &gpu_op_pointwise,
    [LN_OP_CENTRE] = &gpu_op_centre,
    [LN_OP_SLICE] = &gpu_op_slice,
    [LN_OP_POS_SCALE] = &gpu_op_pos_scale,
    [LN_OP_ROUTE] = &gpu_op_route,
    [LN_OP_EXPERTS] = &gpu_op_experts,
    [LN_OP_FOLD_ROWS] = &gpu_op_fold_rows,
    [LN_OP_SHORT_CONV] = &gpu_op_short_conv,
    [LN_OP_DELTA_GATES] = &gpu_op_delta_gates,
    [LN_OP_GATED_DELTA] = &gpu_op_gated_delta,
    [LN_OP_CONVERT] = &gpu_op_convert,
    [LN_OP_ROPE_TABLE] = &gpu_op_rope_table,
    [LN_OP_ROPE] = &gpu_op_rope,
    [LN_OP_KV_WRITE] = &gpu_op_kv_write,
    [LN_OP_ATTN_PAGED] = &gpu_op_attention,
    [LN_OP_GATHER_ROWS] = &gpu_op_gather_rows,
    [LN_OP_LORA_DOWN] = &gpu_op_lora_down,
    [LN_OP_LORA_UP] = &gpu_op_lora_up,
    [LN_OP_LOAD] = &gpu_op_load,
    [LN_OP_MATMUL] = &gpu_op_matmul,
    [LN_OP_LINEAR_BACK] = &gpu_op_linear_back,
    [LN_OP_SUM] = &gpu_op_sum,
    [LN_OP_SPREAD] = &gpu_op_spread,
    [LN_OP_SOFTMAX] = &gpu_op_softmax,
    [LN_OP_SOFTMAX_BACK] = &gpu_op_softmax_back,
    [LN_OP_NLL] = &gpu_op_nll,
    [LN_OP_NLL_BACK] = &gpu_op_nll_back,
    [LN_OP_ACT_BACK] = &gpu_op_pointwise,
    [LN_OP_XIELU] = &gpu_op_pointwise,
    [LN_OP_XIELU_BACK] = &gpu_op_pointwise,
    [LN_OP_CLAMP] = &gpu_op_pointwise,
    [LN_OP_RMSNORM_BACK] = &gpu_op_rmsnorm_back,
    [LN_OP_RMSNORM_DW] = &gpu_op_rmsnorm_dw,
    [LN_OP_ROPE_BACK] = &gpu_op_rope,
    [LN_OP_EMBED_BACK] = &gpu_op_embed_back,
    [LN_OP_SCATTER_ROWS] = &gpu_op_scatter_rows,
    [LN_OP_SLICE_BACK] = &gpu_op_slice_back,
    [LN_OP_ATTN] = &gpu_op_packed,
    [LN_OP_ATTN_BACK] = &gpu_op_packed_back,
    [LN_OP_LINEAR_CROSS_ENTROPY] = &gpu_op_cross_entropy,
    [LN_OP_DROPOUT] = &gpu_op_dropout,
    [LN_OP_POINTWISE] = &gpu_op_function,
    [LN_OP_RESHAPE] = &gpu_op_reshape,
    [LN_OP_ALL_GATHER] = &gpu_op_all_gather,
    [GPU_OP_HEADS] = &gpu_op_heads,
    [GPU_OP_ATTENTION] = &gpu_op_attention_heads,
    [GPU_OP_GATE] = &gpu_op_gate,
    [GPU_OP_GATE_BACK] = &gpu_op_gate_back,
    [GPU_OP_NORM_ROPE] = &gpu_op_norm_rope,
    [GPU_OP_ROPE_NORM_BACK] = &gpu_op_rope_norm_back,
};

const gpu_op *gpu_op_of(int op) { return ops[op]; }

ln_status gpu_array_of(const ln_exec *e, ln_v i, gpu_array *out, ln_error *err) {
    const ln_pvalue *v = ln_program_value(e->program, i);
    if (v->kind != LN_KIND_TEMP || v->offset < 0)
        return ln_fail(err, LN_EINTERNAL, "program: %s has no buffer", v->name);
    *out = (gpu_array){.data = (char *)e->temp + v->offset,
                       .pitch = ln_temp_pitch(e->program, v),
                       .cols = (int32_t)v->dims[v->n_dims - 1],
                       .rows = v->n_dims > 1 ? (int32_t)v->dims[0] : 1,
                       .type = v->layout == LN_LAYOUT_NARROW ? GPU_BF16 : GPU_F32};
    return LN_OK;
}
ln_status gpu_operand(const gpu_preparing *p, int k, gpu_array *out, ln_error *err) {
    return gpu_array_of(p->e, p->n->in[k], out, err);
}
ln_status gpu_weight_operand(const gpu_preparing *p, int k, gpu_weight *out, ln_error *err) {
    const ln_pvalue *v = ln_program_value(p->e->program, p->n->in[k]);
    if (!v->data) return ln_fail(err, LN_EINTERNAL, "program: %s has no address", v->name);
    *out = gpu_weight_of(p->e->queue->dev, v);
    return LN_OK;
}
void *gpu_state_operand(const gpu_preparing *p, int k) {
    return ln_program_value(p->e->program, p->n->in[k])->data;
}
static ln_status has_address(const ln_pvalue *v, ln_error *err) {
    if (v->data) return LN_OK;
    return ln_fail(err, LN_EINTERNAL, "program: %s has no address", v->name);
}
ln_status gpu_bound_operand(const gpu_preparing *p, int k, gpu_array *out, ln_error *err) {
    const ln_pvalue *v = ln_program_value(p->e->program, p->n->in[k]);
    const int64_t cols = v->dims[v->n_dims - 1];
    *out = (gpu_array){.data = v->data,
                       .pitch = cols,
                       .cols = (int32_t)cols,
                       .rows = v->n_dims > 1 ? (int32_t)v->dims[0] : 1,
                       .type = (int32_t)v->dtype};
    return has_address(v, err);
}
ln_status gpu_integers_operand(const gpu_preparing *p, int k, const int32_t **out, ln_error *err) {
    const ln_pvalue *v = ln_program_value(p->e->program, p->n->in[k]);
    *out = v->data;
    return has_address(v, err);
}
