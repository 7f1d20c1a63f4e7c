/* Ops of single rows (kernels: rows.cu): embed, rmsnorm, pointwise ops, convert, gather_rows. */
#include "cuda_ops.h"

static ln_status prepare_embed(gpu_preparing *p, gpu_node *g, ln_error *err) {
    g->scale = p->n->p.embed.scale;
    return gpu_weight_operand(p, 0, &g->w, err);
}
/* The scales of fp8 that is packed for fast products are rounded to bf16. */
static double embed_tolerance(const ln_lower_ask *q) {
    return gpu_fp8_group(q->in[0].enc, q->in[0].dims[1]) ? 0x1p-8 : 0;
}
static int launch_embed(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_embed(l, s, &g->w, &g->y, g->scale);
}
const gpu_op gpu_op_embed = {.tolerance = embed_tolerance, .prepare = prepare_embed, .launch = launch_embed};

static double rmsnorm_tolerance(const ln_lower_ask *q) {
    const int64_t width = q->n_in > 1 ? q->in[1].dims[0] : ((const ln_p_norm *)q->params)->width;
    return 2 * GPU_UNIT * ((double)width / 16 + 8) + gpu_rounding(q);
}
static ln_status prepare_rmsnorm(gpu_preparing *p, gpu_node *g, ln_error *err) {
    g->eps = p->n->p.norm.eps, g->offset = p->n->p.norm.offset;
    LN_TRY(gpu_operand(p, 0, &g->x, err));
    if (p->n->n_in > 1) return gpu_weight_operand(p, 1, &g->w, err);
    g->w = (gpu_weight){.D = 1, .C = p->n->p.norm.width};
    return LN_OK;
}
static int launch_rmsnorm(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_rmsnorm(l, s, &g->x, &g->w, &g->y, g->eps, g->offset);
}
const gpu_op gpu_op_rmsnorm = {
    .tolerance = rmsnorm_tolerance, .prepare = prepare_rmsnorm, .launch = launch_rmsnorm};

static ln_status prepare_centre(gpu_preparing *p, gpu_node *g, ln_error *err) {
    return gpu_operand(p, 0, &g->x, err);
}
static int launch_centre(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_centre(l, s, &g->x, &g->y);
}
const gpu_op gpu_op_centre = {.prepare = prepare_centre, .launch = launch_centre};

static int variant_of(const ln_pnode *n) {
    switch (n->op) {
    case LN_OP_ADD: return GPU_ADD;
    case LN_OP_MUL: return GPU_MUL;
    case LN_OP_SILU: return GPU_SILU;
    case LN_OP_GELU_TANH: return GPU_GELU_TANH;
    case LN_OP_RELU2: return GPU_RELU2;
    case LN_OP_SIGMOID: return GPU_SIGMOID;
    case LN_OP_SOFTCAP: return GPU_SOFTCAP;
    case LN_OP_SCALE: return GPU_SCALE;
    case LN_OP_SCALE_ROWS: return GPU_SCALE_ROWS;
    case LN_OP_CONVERT: return GPU_CONVERT;
    case LN_OP_XIELU: return GPU_XIELU;
    case LN_OP_XIELU_BACK: return GPU_XIELU_BACK;
    case LN_OP_CLAMP: return n->n_in > 1 ? GPU_CLAMP_BACK : GPU_CLAMP;
    case LN_OP_POINTWISE:
        return n->p.pointwise.kind == LN_POINTWISE_EXP    ? GPU_EXP
               : n->p.pointwise.kind == LN_POINTWISE_LOG  ? GPU_LOG
               : n->p.pointwise.kind == LN_POINTWISE_SQRT ? GPU_SQRT
                                                          : GPU_DIV;
    case LN_OP_ACT_BACK:
        return n->p.gate.act == LN_ACT_SILU        ? GPU_SILU_BACK
               : n->p.gate.act == LN_ACT_GELU_TANH ? GPU_GELU_BACK
                                                   : GPU_RELU2_BACK;
    default: return n->p.gate.act == LN_ACT_SILU ? GPU_GATED_SILU : GPU_GATED_GELU; /* LN_OP_GATED */
    }
}
static gpu_numbers numbers_of(const ln_pnode *n) {
    const ln_p_xielu *x = &n->p.xielu;
    switch (n->op) {
    case LN_OP_SOFTCAP:
    case LN_OP_SCALE: return (gpu_numbers){{n->p.scale.factor}};
    case LN_OP_CLAMP: return (gpu_numbers){{n->p.clamp.low, n->p.clamp.high}};
    case LN_OP_XIELU:
    case LN_OP_XIELU_BACK: return (gpu_numbers){{x->alpha_p, x->alpha_n, x->beta, x->eps}};
    default: return (gpu_numbers){{0}};
    }
}
static ln_status prepare_pointwise(gpu_preparing *p, gpu_node *g, ln_error *err) {
    g->variant = variant_of(p->n);
    g->numbers = numbers_of(p->n);
    LN_TRY(gpu_operand(p, 0, &g->x, err));
    return p->n->n_in > 1 ? gpu_operand(p, 1, &g->second, err) : LN_OK;
}
static int launch_pointwise(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_pointwise(l, s, g->variant, &g->x, g->second.data ? &g->second : NULL, g->numbers, &g->y);
}
const gpu_op gpu_op_pointwise = {.prepare = prepare_pointwise, .launch = launch_pointwise};

static double function_tolerance(const ln_lower_ask *q) {
    const bool log = ((const ln_p_pointwise *)q->params)->kind == LN_POINTWISE_LOG;
    return log ? 4 * GPU_UNIT : 0; /* of another library, computed in double and rounded once */
}
const gpu_op gpu_op_function = {
    .tolerance = function_tolerance, .prepare = prepare_pointwise, .launch = launch_pointwise};

static bool can_convert(const ln_lower_ask *q) {
    return ((const ln_p_convert *)q->params)->to.kind == LN_FORMAT_BF16;
}
const gpu_op gpu_op_convert = {.can = can_convert, .prepare = prepare_pointwise, .launch = launch_pointwise};

static ln_status prepare_gather(gpu_preparing *p, gpu_node *g, ln_error *err) {
    return gpu_operand(p, 0, &g->x, err);
}
static int launch_gather(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_gather_rows(l, s, &g->x, &g->y);
}
const gpu_op gpu_op_gather_rows = {.prepare = prepare_gather, .launch = launch_gather};

static ln_status prepare_slice(gpu_preparing *p, gpu_node *g, ln_error *err) {
    const ln_p_slice *c = &p->n->p.slice;
    LN_TRY(gpu_operand(p, 0, &g->x, err));
    g->at = c->at, g->cols = c->cols, g->every = c->every ? c->every : g->x.cols;
    return LN_OK;
}
static int launch_slice(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_slice(l, s, &g->x, g->at, g->cols, g->every, &g->y);
}
const gpu_op gpu_op_slice = {.prepare = prepare_slice, .launch = launch_slice};

static double pos_scale_tolerance(const ln_lower_ask *q) {
    (void)q;
    return 4 * GPU_UNIT; /* the logarithm of another library, computed in double and rounded once */
}
static ln_status prepare_pos_scale(gpu_preparing *p, gpu_node *g, ln_error *err) {
    (void)err;
    g->scale = p->n->p.pos_scale.factor, g->at = p->n->p.pos_scale.positions;
    return LN_OK;
}
static int launch_pos_scale(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_pos_scale(l, s, g->scale, g->at, &g->y);
}
const gpu_op gpu_op_pos_scale = {
    .tolerance = pos_scale_tolerance, .prepare = prepare_pos_scale, .launch = launch_pos_scale};
