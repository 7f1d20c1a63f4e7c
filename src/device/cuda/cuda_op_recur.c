/* Recurrent mixers: short_conv, delta_gates, gated_delta, with the bits of the reference. The kernels are in
 * recur.cu. */
#include "cuda_ops.h"

#include <math.h>

static ln_status prepare_state(gpu_preparing *p, gpu_node *g, ln_error *err) {
    const ln_p_recur *from = &p->n->p.recur;
    const ln_recur_sizes sizes = {.taps = from->taps,
                                  .channels = from->channels,
                                  .n_k_heads = from->n_k_heads,
                                  .n_v_heads = from->n_v_heads,
                                  .k_dim = from->k_dim,
                                  .v_dim = from->v_dim};
    int64_t at[LN_RECUR_PARTS + 1];
    gpu_recur_offsets(&sizes, from->page_len, from->dtype, at);
    g->recur = (gpu_recur){.pool = gpu_state_operand(p, 0),
                           .group = from->group,
                           .pages_per_block = from->pages_per_block,
                           .page_in_block = from->page_in_block,
                           .page_len = from->page_len,
                           .page_bytes = from->page_bytes,
                           .layer_offset = from->layer_in_page * from->layer_bytes,
                           .s = at[0],
                           .decays = at[1],
                           .keys = at[2],
                           .values = at[3],
                           .inputs = at[4],
                           .type = (int32_t)from->dtype,
                           .taps = from->taps,
                           .channels = from->channels,
                           .at = from->at,
                           .silu = from->silu,
                           .K = from->n_k_heads,
                           .H = from->n_v_heads,
                           .E = from->k_dim,
                           .Ev = from->v_dim,
                           .eps = (float)LN_RECUR_EPS,
                           .by = from->k_dim > 0 ? (float)(1 / sqrt((double)from->k_dim)) : 1};
    return gpu_array_of(p->e, p->n->out[1], &g->y, err);
}

static ln_status prepare_conv(gpu_preparing *p, gpu_node *g, ln_error *err) {
    LN_TRY(prepare_state(p, g, err));
    LN_TRY(gpu_operand(p, 1, &g->x, err));
    LN_TRY(gpu_weight_operand(p, 2, &g->w, err));
    return p->n->n_in > 3 ? gpu_weight_operand(p, 3, &g->bias, err) : LN_OK;
}
static int launch_conv(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_short_conv(l, s, &g->recur, &g->x, &g->w, &g->bias, &g->y);
}
const gpu_op gpu_op_short_conv = {.prepare = prepare_conv, .launch = launch_conv};

static ln_status prepare_gates(gpu_preparing *p, gpu_node *g, ln_error *err) {
    g->scale = p->n->p.scale.factor;
    LN_TRY(gpu_operand(p, 0, &g->x, err));
    LN_TRY(gpu_operand(p, 1, &g->second, err));
    LN_TRY(gpu_weight_operand(p, 2, &g->w, err));
    return gpu_weight_operand(p, 3, &g->bias, err);
}
static int launch_gates(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_delta_gates(l, s, &g->x, &g->second, &g->w, &g->bias, g->scale, &g->y);
}
const gpu_op gpu_op_delta_gates = {.prepare = prepare_gates, .launch = launch_gates};

static bool can_delta(const ln_lower_ask *q) {
    const ln_p_recur *p = q->params;
    return gpu_has_gated_delta(p->k_dim, p->page_len);
}
/* The columns of a value from `at` on. */
static gpu_array columns_from(gpu_array a, int64_t at) {
    a.data = (char *)a.data + at * (a.type == GPU_F32 ? 4 : 2);
    return a;
}
static ln_status prepare_delta(gpu_preparing *p, gpu_node *g, ln_error *err) {
    LN_TRY(prepare_state(p, g, err));
    LN_TRY(gpu_operand(p, 1, &g->x, err));
    LN_TRY(gpu_operand(p, 2, &g->delta[0], err));
    const int64_t keys = (int64_t)g->recur.K * g->recur.E;
    for (int k = 1; k < 3; k++) {
        if (p->n->n_in > 3) LN_TRY(gpu_operand(p, 2 + k, &g->delta[k], err));
        else g->delta[k] = columns_from(g->delta[0], k * keys);
    }
    return LN_OK;
}
static int launch_delta(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_gated_delta(l, s, &g->recur, &g->x, &g->delta[0], &g->delta[1], &g->delta[2], &g->y);
}
const gpu_op gpu_op_gated_delta = {.can = can_delta, .prepare = prepare_delta, .launch = launch_delta};
