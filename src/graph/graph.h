/* The program as data: values, nodes, and the passes:
 *
 *     build -> adapt -> shard -> grad -> recompute -> cast -> prune -> fuse -> lower -> check -> plan
 *
 * A graph is built once per (model, numerics mode) by calls that read like direct calls (build.c) and is then
 * transformed. A value is one tensor: its format says which numbers its elements are, its layout where
 * they are stored: in dense rows with an optional pitch, or in a layout of the device. Only its first
 * dimension may be symbolic: T rows, N output rows or B sequences. There is no broadcasting, there are no
 * general strides and no control flow. After `plan` every temporary value has a buffer in one block whose
 * size is known. After `lower` the program is a list of stages for a device: the nodes of a stage depend on
 * each other row by row at most, so a device needs a barrier between stages and none inside a stage.
 *
 * Everything is allocated in the graph's arena. Builders do not return errors: the graph keeps the first
 * failure, and ln_graph_check reports it. */
#ifndef LN_GRAPH_H
#define LN_GRAPH_H

#include "../base/transport.h"
#include "program.h"

typedef struct ln_value {
    char name[64]; /* `layers.7.attn.q` */
    ln_kind kind;
    ln_dtype dtype; /* of the elements; of encoded weights, of the scales. Temps: LN_F32 */
    /* weights and trainables: how they are stored; affine groups are bound to an ln_affine. Others: zero */
    ln_encoding enc;
    ln_format format; /* temps: which numbers the elements are */
    uint8_t layout;   /* temps: LN_LAYOUT_*; set by ln_graph_lower */
    unsigned flags;   /* states: LN_STATE_*, the same for all versions; else 0 */
    int n_dims;       /* a weight [D, C] or [X, F, D], a row value [T, C], a vector [C] */
    int64_t dims[4];  /* dims[0] may be symbolic */
    int layer;        /* layer that it belongs to; -1: none */
    int def;          /* node that produces it; -1: a weight, an input, or the first version of a state */
    int slot;         /* weights: index in the model's weight list; states: index of the state; else -1 */
    bool taken;       /* an output that is read from a trace, as soon as its node has run */
} ln_value;
typedef struct ln_node {
    ln_op op;
    int n_in, n_out;
    ln_v in[LN_NODE_IN], out[LN_NODE_OUT];
    int layer;
    bool dead; /* set by prune and fuse: the node does not run */
    ln_params p;
} ln_node;

/* Cost of a node in one step. */
typedef struct ln_cost {
    double flops;                  /* a multiply-add counts as two operations */
    double bytes;                  /* bytes read and written, all operands */
    double weight_bytes, kv_bytes; /* the parts of `bytes` that are read from weights and from KV pages */
} ln_cost;

/* Writes kind, dtype, dims, format, slot and flags of each output to out[], which is zero (slot: -1), from
 * the inputs and parameters alone: the rule changes nothing else, so that check can apply it again. Operands
 * may be of any kind whose shape fits. LN_EINTERNAL, with a message that names the operands, when they do not
 * fit. */
struct ln_graph;
typedef ln_status ln_shape_fn(const struct ln_graph *g, const ln_node *n, ln_value *out, ln_error *err);
/* Cost of a node with these live counts, each sequence having T / B rows and `depth` earlier positions in the
 * KV cache. */
typedef ln_cost ln_cost_fn(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth);
/* Adds the nodes of the gradient of a node. n is a copy, because adding moves g->nodes. dy[n_out]: the
 * gradients of the outputs, -1 where none arrives. Sets dx[k], for every k with wanted[k], to the gradient of
 * input k, -1 where it is zero. */
typedef ln_status ln_grad_fn(struct ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted,
                             ln_v *dx, ln_error *err);

/* Static description of an op, from ops.def; ops/ops.c defines the table. */
typedef struct ln_op_info {
    const char *name, *formula;
    int in_min, in_max, n_out, props;
    size_t params_bytes;
    ln_shape_fn *shape;
    ln_cost_fn *cost;
    ln_grad_fn *grad;   /* NULL if and only if nograd gives the reason */
    const char *nograd; /* NULL if and only if grad is not NULL */
} ln_op_info;
extern const ln_op_info ln_ops[LN_OP_COUNT];
/* Whether a node replaces the state that is its input k by the next version: output 0 of an EFFECT is that of
 * input 0. */
static inline bool ln_replaces(const ln_node *n, int k) {
    return k == 0 && (ln_ops[n->op].props & LN_PROP_EFFECT);
}

/* Whether a node can round its output 0 to bf16 as it stores it: an op with ROUNDS, but for linear_gated of
 * int8 pairs, whose epilogue stores f32. */
bool ln_node_rounds(const ln_node *n, const ln_value *values);

typedef struct ln_graph {
    ln_arena arena;
    ln_value *values;
    size_t n_values, cap_values;
    ln_node *nodes;
    size_t n_nodes, cap_nodes;
    ln_v *outputs; /* values that the caller reads after a run: live to the last stage, unless taken */
    size_t n_outputs, cap_outputs;
    int layer;       /* layer of the nodes being built */
    char prefix[32]; /* prefix of the names being built, e.g. `layers.7.` */
    ln_error error;  /* first failure of a builder */
} ln_graph;

void ln_graph_open(ln_graph *g);
void ln_graph_close(ln_graph *g);
/* The number of states: one more than the largest slot of a state. */
size_t ln_graph_states(const ln_graph *g);

/* ---- build.c ---- */
void ln_g_layer(ln_graph *g, int layer, const char *prefix);
ln_v ln_g_weight(ln_graph *g, const char *name, ln_dtype dtype, int slot, int64_t d0,
                 int64_t d1); /* d1 = 0: a vector [d0] */
/* A weight of 1 to 3 dimensions; of three, [X, F, D], the matrices of X experts one after another. */
ln_v ln_g_encoded(ln_graph *g, const char *name, ln_encoding enc, int slot, int n_dims, const int64_t *dims);
/* The first version of a state of 1 to 4 constant dimensions. flags: LN_STATE_*. KV pages, whose layout only
 * the device knows, are a state [1]. */
ln_v ln_g_state(ln_graph *g, const char *name, int slot, ln_dtype dtype, unsigned flags, int n_dims,
                const int64_t *dims);
/* A dense weight that training changes, of 1 to 4 dimensions. */
ln_v ln_g_trainable(ln_graph *g, const char *name, int slot, ln_dtype dtype, int n_dims, const int64_t *dims);
/* A value in memory that the caller fills before a run, of 1 to 4 dimensions; the first may be symbolic. */
ln_v ln_g_input(ln_graph *g, const char *name, int slot, ln_dtype dtype, int n_dims, const int64_t *dims);
void ln_g_output(ln_graph *g, ln_v v);
/* Marks v as an output that the caller reads from a trace (ln_trace), right after its node has run. Its
 * buffer is reused in the next stage. */
void ln_g_taken_output(ln_graph *g, ln_v v);
/* Adds a node of any op and returns its first output; -1 after a failure. *n holds op, inputs and parameters,
 * and in n_out the number of outputs (0: that of the op's row). out, unless NULL, receives all outputs, then
 * -1. A single output is named `name`, several are `name.0`, `name.1`, ... */
ln_v ln_g_node(ln_graph *g, const char *name, const ln_node *n, ln_v out[LN_NODE_OUT]);
ln_v ln_g_embed(ln_graph *g, const char *name, ln_v table, float scale, int32_t padding);
ln_v ln_g_linear(ln_graph *g, const char *name, ln_v x, ln_v w, ln_v bias_or_none);
/* x in another format. Returns the existing value when it was called with the same x and format before. */
ln_v ln_g_convert(ln_graph *g, const char *name, ln_v x, ln_format to);
ln_v ln_g_rmsnorm(ln_graph *g, const char *name, ln_v x, ln_v w, float eps, float offset);
/* Without a weight, of groups of `width` columns. */
ln_v ln_g_rmsnorm_plain(ln_graph *g, const char *name, ln_v x, int64_t width, float eps);
ln_v ln_g_add(ln_graph *g, const char *name, ln_v a, ln_v b);
ln_v ln_g_mul(ln_graph *g, const char *name, ln_v a, ln_v b);
ln_v ln_g_silu(ln_graph *g, const char *name, ln_v a);
ln_v ln_g_sigmoid(ln_graph *g, const char *name, ln_v a);
ln_v ln_g_centre(ln_graph *g, const char *name, ln_v x);
ln_v ln_g_slice(ln_graph *g, const char *name, ln_v x, int64_t at, int64_t cols);
ln_v ln_g_clamp(ln_graph *g, const char *name, ln_v x, float low, float high);
/* Returns ids; *weights becomes the weights. bias, scale: -1 for none; p->biased and p->scaled need not be
 * set. */
ln_v ln_g_route(ln_graph *g, const char *name, ln_v logits, ln_v bias, ln_v scale, const ln_p_route *p,
                ln_v *weights);
/* x: a row for each row of a step, or for each of its top_k choices. bias: -1 for none. */
ln_v ln_g_experts(ln_graph *g, const char *name, ln_v x, ln_v w, ln_v ids, ln_v bias, int top_k);
/* s: -1 for none. */
ln_v ln_g_fold_rows(ln_graph *g, const char *name, ln_v x, ln_v s, int n);
/* Of each group of `every` columns by itself. */
ln_v ln_g_slice_groups(ln_graph *g, const char *name, ln_v x, int64_t at, int64_t cols, int64_t every);
ln_v ln_g_softcap(ln_graph *g, const char *name, ln_v a, float cap);
ln_v ln_g_pos_scale(ln_graph *g, const char *name, const ln_p_pos_scale *p);
ln_v ln_g_gelu_tanh(ln_graph *g, const char *name, ln_v a);
ln_v ln_g_relu2(ln_graph *g, const char *name, ln_v a);
ln_v ln_g_xielu(ln_graph *g, const char *name, ln_v a, const ln_p_xielu *p);
ln_v ln_g_rope_table(ln_graph *g, const char *name, const ln_p_freqs *p);
ln_v ln_g_rope(ln_graph *g, const char *name, ln_v x, ln_v table, const ln_p_heads *p);
ln_v ln_g_kv_write(ln_graph *g, const char *name, ln_v kv, ln_v k, ln_v v, const ln_p_kv *p);
/* sinks: -1 for none. */
ln_v ln_g_attn_paged(ln_graph *g, const char *name, ln_v q, ln_v kv, ln_v sinks, const ln_p_attn *p);
/* The convolution and the delta rule read and write the recurrent state: *state becomes its next version.
 * bias: -1 for none. q, k, v: one value with the columns of all three if k is -1. */
ln_v ln_g_short_conv(ln_graph *g, const char *name, ln_v *state, ln_v x, ln_v w, ln_v bias,
                     const ln_p_recur *p);
ln_v ln_g_delta_gates(ln_graph *g, const char *name, ln_v a, ln_v b, ln_v a_log, ln_v dt_bias, float by);
ln_v ln_g_gated_delta(ln_graph *g, const char *name, ln_v *state, ln_v gates, ln_v q, ln_v k, ln_v v,
                      const ln_p_recur *p);
ln_v ln_g_gather_rows(ln_graph *g, const char *name, ln_v x);
/* ids: of experts, the number of each row's; -1: one matrix. */
ln_v ln_g_lora_down(ln_graph *g, const char *name, ln_v x, ln_v pool, ln_v ids, const ln_p_lora *p);
ln_v ln_g_lora_up(ln_graph *g, const char *name, ln_v y, ln_v t, ln_v pool, ln_v ids, const ln_p_lora *p);
ln_v ln_g_all_gather(ln_graph *g, const char *name, ln_v x, const ln_p_gather *p);

/* What the op of a node makes of its inputs, by its shape rule: n_out descriptions. Errors as ln_shape_fn's.
 */
ln_status ln_node_shape(const ln_graph *g, const ln_node *n, ln_value out[LN_NODE_OUT], ln_error *err);
/* Appends a node whose outputs exist: for passes. */
void ln_g_append(ln_graph *g, const ln_node *n);

/* Slots of the states of a model's programs: KV pages, adapters, pages of recurrent state. */
enum { LN_STATE_PAGES, LN_STATE_ADAPTERS, LN_STATE_RECURRENT, LN_STATES };

/* ---- passes, in this order ---- */
/* Adds the nodes of adapters to a built graph (passes/pass_lora.c): for each product with weight i (slot of
 * the value) that has a place, places[i].slot_bytes > 0, a lora_down right after it and a lora_up before its
 * first reader. The pool becomes the state LN_STATE_ADAPTERS. LN_EMEMORY, LN_EINTERNAL. grad.h has the same
 * for adapters that are trained. */
ln_status ln_graph_adapt(ln_graph *g, const ln_p_lora *places, size_t n_places, ln_error *err);
/* Turns a built graph into that of a rank (passes/pass_shard.c): of split weights, which products and
 * attention alone read, it has the rank's rows. weights: by the slots of weights. LN_EMEMORY, LN_EINTERNAL.
 */
typedef struct ln_split_weight {
    ln_share share; /* of the rows of a matrix, or of that of each expert; n == all: it is not split */
} ln_split_weight;
ln_status ln_graph_shard(ln_graph *g, const ln_split_weight *weights, int size, int rank, ln_error *err);
/* The numerics of a program: f32 alone; operands of products and of attention in few bits, also on devices
 * that multiply fp8 with bf16 (LN_CAN_FP8); the same in training, where activations are never quantised. */
typedef enum ln_policy { LN_POLICY_EXACT, LN_POLICY_FAST, LN_POLICY_FAST_FP8, LN_POLICY_TRAIN } ln_policy;
/* The format in which a policy has node n read operand k, a temp. There is a product for the format and the
 * weight that it names. */
ln_format ln_policy_operand(ln_policy p, const ln_node *n, int k, const ln_value *values);
/* Inserts the conversions that the policy asks for, each before its first consumer (passes/pass_cast.c).
 * LN_EMEMORY. */
ln_status ln_graph_cast(ln_graph *g, ln_policy p, ln_error *err);
/* Checks operand counts, definition before use, one writer per value, that every node uses the newest version
 * of its state (all versions are one piece of memory), and that each output is what the op's shape rule makes
 * of the inputs. `after` names the pass that ran last, for the message. Returns the first failure of a
 * builder, else LN_EINTERNAL for a malformed graph, else LN_OK. */
ln_status ln_graph_check(const ln_graph *g, const char *after, ln_error *err);
/* Dead-code elimination: marks nodes dead whose outputs no live node and no graph output uses; nodes with
 * effects stay. Returns the number of nodes removed. */
int ln_graph_prune(ln_graph *g);
/* Fuses silu or gelu_tanh and mul to gated. Returns the number of fusions. */
int ln_graph_fuse(ln_graph *g);
/* Fuses conversions to bf16 into the nodes that produce their inputs, where those can round (ln_node_rounds)
 * and no other node reads the input: its consumers then read that input, which is bf16-valued. Part of lower.
 */
int ln_graph_fuse_rounding(ln_graph *g);

/* ---- lower: what a device chooses (passes/pass_lower.c). These structs hold no pointer into the graph ----
 */
typedef struct ln_lowered_node {
    const char *kernel;
    double tolerance;
    bool in_place;
} ln_lowered_node;
/* What a device chose for a graph, in the graph's arena. */
typedef struct ln_lowering {
    ln_lowered_node *nodes; /* [n_nodes] */
    int64_t *row_bytes;     /* [n_values] of temps: distance between rows */
    int32_t *tail_rows;     /* [n_values] of temps: ln_lower_answer.tail_rows */
    /* Set by the caller of ln_graph_plan: the output of a conversion has its buffer from the op on that makes
     * its input, unless that op works in place. A device may then do both in one kernel. */
    bool early_converts;
} ln_lowering;
/* Asks `choose` for formats and fusions, `store` for storage, sets the layouts of values and fills *out. Both
 * are the same but in a comparison of devices. real_bytes: of an F32 element on the device of `store`.
 * LN_EINTERNAL: an answer that does not fit the graph; LN_EMEMORY. */
ln_status ln_graph_lower(ln_graph *g, ln_lower_fn *choose, const struct ln_dev *choose_dev,
                         ln_lower_fn *store, const struct ln_dev *store_dev, const ln_bounds *b,
                         int real_bytes, ln_lowering *out, ln_error *err);

/* Where a plan stores a value. */
typedef struct ln_storage {
    int first, last;     /* first and last stage in which it is live; -1: no node uses it */
    ln_v alias;          /* value whose buffer it shares (in-place reuse); -1: it has a buffer of its own */
    int64_t offset;      /* bytes from the start of the temp block; -1: it has no buffer there */
    int64_t tail_offset; /* bytes added to `offset` while fewer than ln_lowering.tail_rows rows are live, of a
                            value that shares the buffer of rows that it is computed from; else 0 */
    int64_t bytes;       /* of its buffer */
} ln_storage;
/* A memory plan of a graph for some bounds. One graph may have several. Its lists are in the graph's arena.
 */
typedef struct ln_temp_plan {
    ln_bounds bounds;
    int real_bytes; /* bytes of an LN_F32 element of a temp */
    int n_stages;
    const int *stage;          /* [n_nodes] stage of a node; -1: it is dead */
    const ln_storage *storage; /* [n_values] */
    int64_t temp_bytes;        /* size of the temp block in bytes */
    int64_t temp_bound;        /* largest sum of the bytes live at one stage: the lower bound of temp_bytes */
} ln_temp_plan;
/* Memory planning (plan.c): assigns stages, lifetimes and offsets in the temp block for at most `bounds` rows
 * and sequences. LN_EINVALID when a size overflows 64 bits, LN_EMEMORY. */
ln_status ln_graph_plan(ln_graph *g, const ln_lowering *l, const ln_bounds *bounds, int real_bytes,
                        ln_temp_plan *out, ln_error *err);

/* ---- the program (program_make.c) ---- */
/* Makes the flat program of a lowered and planned graph, without addresses of weights and states. Its arrays
 * are in `arena`; nothing of it refers to the graph. LN_EMEMORY. */
ln_status ln_program_make(const ln_graph *g, const ln_lowering *l, const ln_temp_plan *t, ln_arena *arena,
                          ln_program *out, ln_error *err);
/* Appends the outputs and the inputs of node i as text: names, shapes, and formats other than f32. */
void ln_program_node_text(const ln_program *p, int i, ln_str *makes, ln_str *reads);

#endif
