/* The ops of the CUDA device: one row for each, in the file of its group. To add an op: its kernel (a .cu
 * file and a function in cuda_kernels.h), its row, and a line in the table of cuda_ops.c. */
#ifndef LN_CUDA_OPS_H
#define LN_CUDA_OPS_H

#include "cuda_device.h"

/* Device memory that nodes need in addition to temporary values. Nodes run one after the other, so they share
 * working memory; constants are each node's own. */
typedef struct gpu_need {
    size_t counters; /* that begin as zeros and are zeros between steps; */
    size_t scratch;  /* working memory; */
    size_t attended; /* outputs of attention in steps of few rows (cuda_fuse.c): the most that a node needs */
    size_t constants; /* the sum of what nodes send when they are prepared */
} gpu_need;

/* A node while it is prepared: `constants` is where it may send some, and advances. */
typedef struct gpu_preparing {
    const ln_exec *e;
    const ln_pnode *n;
    char *constants;
} gpu_preparing;

struct gpu_op {
    /* Whether there is a kernel for a node; NULL: for each. */
    bool (*can)(const ln_lower_ask *q);
    /* The largest relative difference from the reference kernel; NULL: none. */
    double (*tolerance)(const ln_lower_ask *q);
    /* Adds what a node needs; NULL: nothing. */
    void (*bytes)(const ln_dev *d, const ln_program *p, const ln_pnode *n, gpu_need *need);
    /* Sets the operands and parameters of a node, whose y is set. */
    ln_status (*prepare)(gpu_preparing *p, gpu_node *g, ln_error *err);
    /* Puts the kernel on the stream; returns the CUDA error. */
    int (*launch)(const gpu_launch *l, const gpu_step *s, const gpu_node *g);
    /* The number of rows, or its symbol, if it is not that of y; NULL: it is. */
    int32_t (*rows)(const gpu_node *g);
};

/* The op of a node (ln_op or GPU_OP_*); NULL: the device has no kernel. */
const gpu_op *gpu_op_of(int op);
/* Rows of the table. */
extern const gpu_op gpu_op_embed, gpu_op_rmsnorm, gpu_op_centre, gpu_op_pointwise, gpu_op_function,
    gpu_op_convert, gpu_op_gather_rows, gpu_op_slice, gpu_op_pos_scale;
extern const gpu_op gpu_op_linear;
extern const gpu_op gpu_op_route, gpu_op_experts, gpu_op_fold_rows;
extern const gpu_op gpu_op_short_conv, gpu_op_delta_gates, gpu_op_gated_delta;
extern const gpu_op gpu_op_rope_table, gpu_op_rope, gpu_op_kv_write, gpu_op_attention, gpu_op_heads,
    gpu_op_attention_heads;
extern const gpu_op gpu_op_lora_down, gpu_op_lora_up;
extern const gpu_op gpu_op_load, gpu_op_spread, gpu_op_slice_back, gpu_op_scatter_rows, gpu_op_embed_back,
    gpu_op_dropout, gpu_op_sum, gpu_op_softmax, gpu_op_softmax_back, gpu_op_nll, gpu_op_nll_back,
    gpu_op_rmsnorm_back, gpu_op_rmsnorm_dw, gpu_op_reshape;
extern const gpu_op gpu_op_gate, gpu_op_gate_back, gpu_op_norm_rope, gpu_op_rope_norm_back;
extern const gpu_op gpu_op_all_gather;
extern const gpu_op gpu_op_matmul, gpu_op_linear_back, gpu_op_cross_entropy, gpu_op_packed,
    gpu_op_packed_back;

/* Operand k of a node as an array, a weight; the address of a state. LN_EINTERNAL: it has no address. */
ln_status gpu_operand(const gpu_preparing *p, int k, gpu_array *out, ln_error *err);
ln_status gpu_weight_operand(const gpu_preparing *p, int k, gpu_weight *out, ln_error *err);
void *gpu_state_operand(const gpu_preparing *p, int k);
/* Operand k, a trainable or an input, as an array; of int32 the address alone. */
ln_status gpu_bound_operand(const gpu_preparing *p, int k, gpu_array *out, ln_error *err);
ln_status gpu_integers_operand(const gpu_preparing *p, int k, const int32_t **out, ln_error *err);
/* A value of a program as an array. LN_EINTERNAL: it has no buffer. */
ln_status gpu_array_of(const ln_exec *e, ln_v i, gpu_array *out, ln_error *err);

/* Factors of tolerances. Two sums of C products that are rounded to 24 bits at each step differ by a random
 * walk, of whose mean distance GPU_FAR times is not exceeded in millions of outputs. An output that is
 * rounded to bf16 may be rounded the other way: gpu_rounding. */
enum { GPU_FAR = 8 };
#define GPU_UNIT 0x1p-24
static inline double gpu_rounding(const ln_lower_ask *q) {
    return q->n_out > 0 && q->out[0].format.kind == LN_FORMAT_BF16 ? 0x1p-8 : 0;
}
/* The tolerance of a product with a row of C columns. Tensor cores cut the sum of 16 products to 24 bits
 * instead of rounding it; f16 is multiplied as two numbers (products_forms.cuh). */
double gpu_product_tolerance(ln_encoding e, int64_t cols);

#endif
