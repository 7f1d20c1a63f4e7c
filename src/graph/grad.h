/* Gradients of a graph, and the builders of the ops that training adds.
 *
 * ln_graph_grad is the first pass: it sees the mathematics alone, before formats and fusions. It walks the
 * nodes backwards and has each op's rule (ln_op_info.grad) add the nodes of its gradient; where a value has
 * several readers, their gradients are added by `add` nodes. Nodes that no trainable value reaches are left
 * out, and cost nothing. Gradients of a vector [C] are rows [1,C]. */
#ifndef LN_GRAD_H
#define LN_GRAD_H

#include "graph.h"

/* LoRA (Hu et al. 2021) as it is trained: y = x W^T + b + scale (dropout(x) A^T) B^T, with A[rank, n_in] and
 * B[n_out, rank].
 *
 * DoRA (Liu et al. 2024) divides each row of W + scale B A by its length, and multiplies it by a magnitude
 * m[n_out]: y = (x W^T + scale (x A^T) B^T) * m / length + b. As in PEFT the lengths are constants for the
 * gradient, which the caller computes and binds. */
typedef struct ln_lora_training {
    int rank;
    double scale;       /* alpha / rank, or alpha / sqrt(rank) for rsLoRA */
    double dropout;     /* probability, 0 .. below 1 */
    uint64_t seed;      /* of dropout */
    ln_dtype dtype;     /* in which the program reads A, B and magnitudes: f32 or bf16 */
    bool magnitudes;    /* DoRA; dropout is 0 */
    const bool *adapts; /* by the slot of a weight: whether products with it are adapted */
    /* whether rows of it that are looked up are: y = scale_e (table[id] + scale A[id] B^T). The caller looks
     * A up, into the input `looked_up`, f32 [T, rank], with respect to which the gradient is taken */
    const bool *lookups;
    int looked_up;
    /* Rows of tables that are trained themselves: `n_rows` of them, ascending. Trainables are what is added
     * to the rows of the model, [n_rows, D]; the input `chosen`, f32 [T, n_rows], has 1 if the token of a row
     * is that of the column, else 0. */
    const int32_t *rows;
    int n_rows, chosen;
    int table, head; /* slots of the weights of the embedding and of the head; the same one if it is tied */
    bool rows_of_head, rows_tied; /* the products with the head have such rows, those of the lookup */
    /* The table of lookups, and the head, are trained as a whole: the caller looks the rows of the table up,
     * into `looked_up`, f32 [T, D]; the head is a trainable [V, D]. */
    bool whole_table, whole_head;
    /* by the slot of a weight: the first of the weights with which it shares A, or itself. Products with
     * these have the same operand. */
    const int *shares;
} ln_lora_training;
/* The trainables of module i have the slots LN_LORA_PARTS i + part. LN_LORA_PER_LENGTH and LN_LORA_BIAS are
 * not trained: f32 constants that the caller binds. */
enum { LN_LORA_A, LN_LORA_B, LN_LORA_MAGNITUDE, LN_LORA_PER_LENGTH, LN_LORA_BIAS, LN_LORA_PARTS };
/* What a module adapts. PRODUCT: a product with a matrix. LOOKUP: lookups of a table, whose `a` is the input.
 * ROWS, HEAD_ROWS: rows of a table in lookups and in products with the head, which have `a` [n_rows, D]
 * alone. WHOLE_TABLE, WHOLE_HEAD: all rows in their place, `a` too, an input of the table.
 */
typedef enum ln_lora_kind {
    LN_LORA_PRODUCT,
    LN_LORA_LOOKUP,
    LN_LORA_ROWS,
    LN_LORA_HEAD_ROWS,
    LN_LORA_WHOLE_TABLE,
    LN_LORA_WHOLE_HEAD
} ln_lora_kind;
/* An adapted matrix: the slot of its weight, A and B. If it shares the A of an earlier module, first is that
 * module's number and a its A; else first is i. */
typedef struct ln_lora_module {
    int weight, first;
    ln_lora_kind kind;
    ln_v a, b; /* b -1: there is none */
    ln_v down; /* scale (dropout(x) A^T) */
    /* of DoRA, rows [1, n_out], else -1: the magnitudes, 1 / length of the rows, and the bias of the product
     * if it has one (else -1), which has the slot bias_weight */
    ln_v magnitude, per_length, bias;
    int bias_weight;
} ln_lora_module;
typedef struct ln_lora_graph {
    ln_lora_module *modules; /* [n_modules] in the order of the products; in the graph's arena */
    int n_modules;
    ln_v samples; /* input int32 [B,2]: the number of each sequence's sample, low word first, for dropout; -1:
                     there is no dropout */
} ln_lora_graph;
/* Adds trained adapters to a built graph, before ln_graph_grad (passes/pass_lora.c). samples: slot of that
 * input. LN_EMEMORY, LN_EINTERNAL. */
ln_status ln_graph_adapt_training(ln_graph *g, const ln_lora_training *train, int samples, ln_lora_graph *out,
                                  ln_error *err);

/* Appends the nodes that compute the gradient of sum(dy * y) with respect to wrt[i], for i < n. dy: a value
 * of y's shape; -1: ones. Sets grads[i] to the gradient, of the shape of wrt[i]; -1: y does not depend on it.
 * LN_EUNSUPPORTED: an op on the way has no gradient (the message names it and the reason); LN_EMEMORY. */
ln_status ln_graph_grad(ln_graph *g, ln_v y, ln_v dy, const ln_v *wrt, size_t n, ln_v *grads, ln_error *err);

/* Appends the nodes that compute the tangent of y: the sum over i of its derivative with respect to wrt[i]
 * times tangents[i], a value of the same shape. Sets *dy to it; -1: y does not depend on wrt.
 * LN_EUNSUPPORTED: an op on the way has no tangent rule (passes/pass_tangent.c); the message names it.
 * LN_EMEMORY. */
ln_status ln_graph_tangent(ln_graph *g, ln_v y, const ln_v *wrt, const ln_v *tangents, size_t n, ln_v *dy,
                           ln_error *err);

/* Has the reverse pass of layers 0 .. n_layers - 1 compute again what it reads of the forward pass of its
 * layer, which is the first n_forward nodes; then those values live during the reverse pass of their layer
 * only. cheap: of the other layers, too, what costs little and is made of values that it reads in any case.
 * The bits of all outputs stay. After ln_graph_grad. LN_EMEMORY. */
ln_status ln_graph_recompute(ln_graph *g, size_t n_forward, int n_layers, bool cheap, ln_error *err);

/* The name of the gradient of a value: `d.` and its name, cut to fit. Returns out. */
const char *ln_grad_name(const ln_graph *g, ln_v v, char out[64]);

/* ---- build_train.c: see ops.def for shapes ---- */
ln_v ln_g_load(ln_graph *g, const char *name, ln_v x);
ln_v ln_g_matmul(ln_graph *g, const char *name, ln_v a, ln_v b, ln_matmul_kind kind);
ln_v ln_g_linear_back(ln_graph *g, const char *name, ln_v dy, ln_v w);
ln_v ln_g_scale(ln_graph *g, const char *name, ln_v x, float by);
ln_v ln_g_scale_rows(ln_graph *g, const char *name, ln_v x, ln_v s);
ln_v ln_g_sum(ln_graph *g, const char *name, ln_v x, ln_sum_kind kind);
/* s in every place of [rows, cols], times `by`; s -1: `by` itself. */
ln_v ln_g_spread(ln_graph *g, const char *name, ln_v s, int64_t rows, int64_t cols, float by);
ln_v ln_g_softmax(ln_graph *g, const char *name, ln_v x);
ln_v ln_g_softmax_back(ln_graph *g, const char *name, ln_v y, ln_v dy);
ln_v ln_g_nll(ln_graph *g, const char *name, ln_v x, ln_v targets);
ln_v ln_g_nll_back(ln_graph *g, const char *name, ln_v x, ln_v targets, ln_v dy);
ln_v ln_g_act_back(ln_graph *g, const char *name, ln_v x, ln_v dy, ln_act act);
/* Returns y; *lse, unless NULL, becomes the logarithms that the gradient needs. */
/* sinks: -1 for none. */
ln_v ln_g_conv(ln_graph *g, const char *name, ln_v x, ln_v w, ln_v bias, const ln_p_conv *p);
ln_v ln_g_delta(ln_graph *g, const char *name, ln_v gates, ln_v qkv, const ln_p_delta *p);
ln_v ln_g_attn(ln_graph *g, const char *name, ln_v q, ln_v k, ln_v v, ln_v sinks, const ln_p_packed *p,
               ln_v *lse);
/* Returns the loss of each row. Taking its gradient has the op compute that in the same pass. */
ln_v ln_g_linear_cross_entropy(ln_graph *g, const char *name, ln_v x, ln_v w, ln_v targets);
ln_v ln_g_dropout(ln_graph *g, const char *name, ln_v x, ln_v samples, const ln_p_dropout *p);
/* x in the columns from `at` on of [R, cols], 0 in the others. */
ln_v ln_g_slice_back(ln_graph *g, const char *name, ln_v x, int64_t at, int64_t cols);
/* b: the divisor, else -1. */
ln_v ln_g_pointwise(ln_graph *g, const char *name, ln_pointwise kind, ln_v a, ln_v b);
ln_v ln_g_reshape(ln_graph *g, const char *name, ln_v x, int64_t rows, int64_t cols);

#endif
