/* What kernels read of the pool of adapters for one row. ln_p_lora (graph/program.h) describes the pool. */
#ifndef LN_LORA_SLOT_H
#define LN_LORA_SLOT_H

#include "ops.h"

/* The adapter of a row for the matrix of a node. rank 0, bias and gain NULL: the row keeps its bits. */
typedef struct ln_lora_slot {
    int64_t rank;
    const float *scale, *bias, *gain; /* [rank]; [n_out] or NULL */
    const void *a, *b;                /* [rank, n_in], [rank, n_out] */
} ln_lora_slot;

/* pool: index of the operand that is the pool. r: the row of output 0; rows of the values after gather_rows
 * are output rows of the step. expert: of that row; 0: one matrix. */
static inline ln_lora_slot ln_lora_slot_of(const ln_call *c, int pool, int64_t r, int64_t expert) {
    const ln_p_lora *p = &c->node->p.lora;
    const ln_step *s = c->step;
    ln_lora_slot out = {0};
    if (!s->adapter) return out;
    if (p->n_experts) r /= p->experts.top_k;
    const int32_t slot = s->adapter[p->of_outputs ? s->out_rows[r] : r];
    if (slot < 0 || slot >= p->n_slots) return out;
    const ln_lora_part o = ln_lora_part_of(p);
    const char *part = (const char *)c->in[pool].data + slot * p->slot_bytes + p->at + expert * o.bytes;
    const int32_t *head = (const int32_t *)(const void *)part;
    out.rank = head[0];
    out.scale = (const float *)(const void *)(part + o.scale);
    out.bias = head[1] & LN_LORA_HAS_BIAS ? (const float *)(const void *)(part + o.bias) : NULL;
    out.gain = head[1] & LN_LORA_HAS_GAIN ? (const float *)(const void *)(part + o.gain) : NULL;
    out.a = part + o.a;
    out.b = part + o.b;
    return out;
}

/* The row of x that row r of the output is computed of. */
static inline int64_t ln_lora_row(const ln_p_lora *p, int64_t r) {
    return p->n_experts && p->experts.shared ? r / p->experts.top_k : r;
}

#endif
