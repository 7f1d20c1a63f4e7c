/* Products of adapters (kernels: lora.cu): lora_down, lora_up. */
#include "cuda_ops.h"

#include <math.h>

static gpu_lora lora_of(const ln_p_lora *p, const void *pool) {
    const ln_lora_part o = ln_lora_part_of(p);
    return (gpu_lora){.pool = pool,
                      .at = p->at,
                      .slot_bytes = p->slot_bytes,
                      .scale = o.scale,
                      .bias = o.bias,
                      .gain = o.gain,
                      .a = o.a,
                      .b = o.b,
                      .n_in = p->n_in,
                      .n_out = p->n_out,
                      .n_slots = p->n_slots,
                      .type = (int32_t)p->dtype,
                      .of_outputs = p->of_outputs};
}

static double down_tolerance(const ln_lower_ask *q) {
    return GPU_FAR * GPU_UNIT * sqrt((double)((const ln_p_lora *)q->params)->n_in);
}
static ln_status prepare_down(gpu_preparing *p, gpu_node *g, ln_error *err) {
    g->lora = lora_of(&p->n->p.lora, gpu_state_operand(p, 1));
    return gpu_operand(p, 0, &g->x, err);
}
static int launch_down(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_lora_down(l, s, &g->lora, &g->x, &g->y);
}
const gpu_op gpu_op_lora_down = {.tolerance = down_tolerance, .prepare = prepare_down, .launch = launch_down};

static ln_status prepare_up(gpu_preparing *p, gpu_node *g, ln_error *err) {
    g->lora = lora_of(&p->n->p.lora, gpu_state_operand(p, 2));
    LN_TRY(gpu_operand(p, 0, &g->x, err));
    return gpu_operand(p, 1, &g->second, err);
}
static int launch_up(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_lora_up(l, s, &g->lora, &g->x, &g->second, &g->y);
}
const gpu_op gpu_op_lora_up = {.prepare = prepare_up, .launch = launch_up};
