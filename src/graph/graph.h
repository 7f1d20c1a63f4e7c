/* The program as data: values, nodes, and the passes build -> check -> prune -> fuse -> plan -> lower.
 *
 * A graph is built once per (model, mode) by calls that read like direct calls (build.c), then transformed. A value is one
 * tensor: dense rows of `cols` numbers with an optional pitch, or panels of them (ln_panel_at). Only its first dimension may be symbolic: T rows, N output rows or B
 * sequences. No broadcasting, no general strides, no control flow. After `plan` every temp value has a place in one
 * block whose size is known; after `lower` the program is a list of stages for a device: the nodes of a stage do not depend on
 * each other except row by row, so that a device needs one barrier between stages and none inside.
 *
 * Everything lives in the graph's arena. Builders do not return errors: the first failure is kept in the graph
 * and reported by ln_graph_check. */
#ifndef LN_GRAPH_H
#define LN_GRAPH_H

#include "../base/fixed.h"

/* Symbolic first dimensions. */
enum { LN_DIM_T = -1, LN_DIM_N = -2, LN_DIM_B = -3 };

typedef enum ln_kind { LN_KIND_TEMP = 0, LN_KIND_WEIGHT, LN_KIND_STATE, LN_KIND_INPUT } ln_kind;

/* What the programs of a model do with a weight. */
enum { LN_USE_PRODUCT = 1, LN_USE_LOOKUP = 2 };

typedef struct ln_value {
    char name[64];     /* `layers.7.attn.q` */
    ln_kind kind;
    ln_dtype dtype;    /* LN_F32 means the device's real: float, or double on the reference device's double form */
    bool bf16;         /* temps: every number is a bf16 number; whoever makes it rounds as it stores. `dtype` says in how many bytes (narrow) */
    ln_enc enc;        /* weights: dense, or affine groups, whose scales and biases have `dtype`; bound to an ln_affine. Temps: f32, or fixed-point rows
                          for weights of this encoding (base/fixed.h) */
    bool by_row;       /* these have a scale a row, not a group */
    bool panels;       /* temps of f32 or in fixed point by row: rows may lie in panels (ln_in_panels), see ln_graph_panels */
    bool tight;        /* weights, once bound: the device keeps them in a form of its own, in fewer bytes than the file */
    unsigned uses;     /* of a weight whose form a device is asked for: LN_USE_*; else 0 */
    int n_dims;        /* 1 or 2 here; a weight [D, C], a row value [T, C], a vector [C] */
    int64_t dims[4];   /* dims[0] may be symbolic */
    int segment;       /* layer, -1 outside */
    int def;           /* node that makes it, -1 for weights, inputs and the first version of a state */
    int slot;          /* weights: index in the model's weight list; state: which state; else -1 */
    /* by plan */
    int first, last;   /* stages between which it must be kept; temps only */
    int alias;         /* value whose place it shares (INPLACE, state versions), -1 */
    int64_t offset;    /* bytes into the temp block; -1 when it has no place there */
    int64_t few_at;    /* bytes further on where rows lie that are too few for a panel, of a value that lies on the numbers it is made of */
    int64_t bytes;
} ln_value;
typedef int ln_v;      /* index of a value; -1: none */
/* 4-byte words of a fixed-point row. */
static inline int64_t ln_value_words(const ln_value *v) { return v->by_row ? ln_fixed_row_words(v->dims[1]) : ln_fixed_words(v->dims[1], v->enc.group); }
/* Numbers (words of fixed-point rows) from one row of a value to the next. Long rows of temps are an odd number of 64-byte lines apart: else all rows of
 * a column would meet in a few sets of the caches, which products that read or write 16 rows at a time feel (docs/decisions/008-amx-tiles.md). */
static inline int64_t ln_pitch(const ln_value *v) {
    int64_t cols = v->dims[v->n_dims - 1], line = v->dtype == LN_BF16 ? 32 : 16;
    if (v->kind == LN_KIND_TEMP && v->enc.bits && !v->panels) return (ln_value_words(v) + 31) / 32 * 32 + 16; /* in panels they lie where the numbers did that they are of */
    return v->kind == LN_KIND_TEMP && v->n_dims == 2 && cols >= 256 && cols % 32 == 0 ? (cols / line | 1) * line : cols;
}

/* Values in panels: 32 rows at a time, the last ones as many as there are, lie as 16 columns of each of them, one row after the other, then the next 16. What makes 16 outputs
 * of row after row, as products do, then writes one stream and not a line on each of so many pages. Numbers into such a value of `rows` rows, whose columns are whole
 * sixteens, for column c of row r. */
enum { LN_PANEL_ROWS = 32, LN_PANEL_COLS = 16 };
static inline int64_t ln_panel_at(int64_t rows, int64_t pitch, int64_t r, int64_t c) {
    const int64_t first = r - r % LN_PANEL_ROWS, n = LN_MIN(rows - first, (int64_t)LN_PANEL_ROWS);
    return first * pitch + c / LN_PANEL_COLS * LN_PANEL_COLS * n + (r - first) * LN_PANEL_COLS + c % LN_PANEL_COLS;
}
/* The same of rows in fixed point by row: of each 64 columns the rows' lines of h, then those of l; at the panel's end what rows sum to. Whoever multiplies 32 rows by 64 columns
 * then reads 4 KB in one stream. pitch is in bytes. Where the numbers that they are made of lie in a panel of the same pitch, in which something is left behind a row's columns, limbs may lie
 * on them: a row's lines take the places of lines of its own, of columns before or of the same, and what it sums to that of nobody's numbers. */
static inline ln_fixed_place ln_fixed_panel(const void *data, int64_t rows, int64_t pitch, int64_t r) {
    const int64_t first = r - r % LN_PANEL_ROWS, n = LN_MIN(rows - first, (int64_t)LN_PANEL_ROWS), i = r - first;
    int8_t *panel = (int8_t *)(uintptr_t)data + first * pitch;
    return (ln_fixed_place){panel + i * 64, n * 64, n * 128, panel + n * pitch - (i + 1) * (int64_t)sizeof(ln_fixed_terms)};
}

/* Whether so many live rows of it do: fewer than a panel's lie as in any other value. */
static inline bool ln_in_panels(const ln_value *v, int64_t rows) { return v->panels && rows >= LN_PANEL_ROWS; }
/* Bytes into the temp block of so many live rows of it. */
static inline int64_t ln_rows_offset(const ln_value *v, int64_t rows) { return v->offset + (ln_in_panels(v, rows) ? 0 : v->few_at); }

/* Typed parameters, one struct per shape of parameters, never positional numbers. */
typedef struct ln_p_none { char unused; } ln_p_none;
typedef struct ln_p_embed { float scale; } ln_p_embed;
typedef struct ln_p_fixed { ln_enc enc; } ln_p_fixed;                             /* of the weights that will read it */
typedef struct ln_p_norm { float eps, offset; } ln_p_norm;
/* Frequencies that grow with the text (dynamic NTK): beyond `positions` the base is theta (factor L /
 * positions - factor + 1)^(E / (E - 2))
 * for a text of L tokens. positions 0: they do not grow. */
typedef struct ln_ntk { double theta, factor; int64_t positions; } ln_ntk;
/* freqs[E/2] lives as long as the model. cos and sin are multiplied by `scale`, YaRN's attention factor. */
typedef struct ln_p_freqs { const float *freqs; int n; float scale; ln_ntk ntk; } ln_p_freqs;
typedef struct ln_p_heads { int n_heads, head_dim; } ln_p_heads;
/* Where a layer's keys and values lie in the pool (engine/kv.h describes the pool).
 * A page holds `unit` layers x page_len positions; layer address = base + page * page_bytes + lane * layer_bytes. pages.h: the order in there. */
typedef struct ln_p_kv {
    int layer, cls;        /* layer; window class: which page table of the step */
    int n_sub, sub, lane;  /* pages per block in that table, this layer's one of them, its place in the page */
    int n_kv_heads, head_dim, page_len;
    ln_dtype dtype;        /* of stored K and V: f32 (exact) or bf16 (fast) */
    int64_t page_bytes, layer_bytes;
} ln_p_kv;
typedef struct ln_p_attn {
    ln_p_kv kv;
    int n_heads;
    float scale;
    int64_t window;        /* 0: none. Key j is seen from position p when p - window < j <= p */
} ln_p_attn;

#define LN_NODE_IN 6
#define LN_NODE_OUT 3

typedef enum ln_op {
#define LN_OP(E, name, lo, hi, out, params, props, grad, formula) LN_OP_##E,
#include "ops.def"
#undef LN_OP
    LN_OP_COUNT
} ln_op;

enum { LN_PROP_ROWWISE = 1, LN_PROP_INPLACE = 2, LN_PROP_EFFECT = 4, LN_PROP_FUSED = 8, LN_PROP_ROUNDS = 16, LN_PROP_PANELS = 32 };

typedef struct ln_node {
    ln_op op;
    int n_in, n_out;
    ln_v in[LN_NODE_IN], out[LN_NODE_OUT];
    int segment;
    int stage;             /* by plan */
    bool dead;             /* by prune and fuse */
    union {
        ln_p_none none;
        ln_p_embed embed;
        ln_p_fixed fixed;
        ln_p_norm norm;
        ln_p_freqs freqs;
        ln_p_heads heads;
        ln_p_kv kv;
        ln_p_attn attn;
    } p;
} ln_node;

/* The live or largest counts of the symbolic sizes. */
typedef struct ln_bounds {
    int64_t T, N, B;
} ln_bounds;
static inline int64_t ln_dim(int64_t d, const ln_bounds *b) { return d >= 0 ? d : d == LN_DIM_T ? b->T : d == LN_DIM_N ? b->N : b->B; }

/* Operator facts, from ops.def and from ops/. */
typedef struct ln_op_info {
    const char *name, *formula, *grad;
    int in_min, in_max, n_out, props;
    size_t params_bytes;
} ln_op_info;
extern const ln_op_info ln_ops[LN_OP_COUNT];

/* What a node costs in one step. */
typedef struct ln_cost {
    double flops;                  /* a multiply-add counts as two */
    double bytes;                  /* read and written in all */
    double weight_bytes, kv_bytes; /* those of them that are read from weights and from the pages */
} ln_cost;

/* What a room above plugs in so that graph/ needs no op's details: shapes and costs (ops/ops.h implements it). */
struct ln_graph;
typedef struct ln_op_rules {
    /* Fills dims and dtype of the outputs from the inputs, or fails with a message that names the operands. */
    ln_status (*shape)(struct ln_graph *g, ln_node *n, ln_error *err);
    /* With these counts, the rows shared out evenly among the sequences, each of which holds `depth` positions already. */
    ln_cost (*cost)(const struct ln_graph *g, const ln_node *n, const ln_bounds *live, int64_t depth);
} ln_op_rules;
extern const ln_op_rules ln_op_rules_all; /* of every op: defined by ops/ */

typedef struct ln_graph {
    ln_arena arena;
    const ln_op_rules *rules;
    ln_value *values;
    size_t n_values, cap_values;
    ln_node *nodes;
    size_t n_nodes, cap_nodes;
    ln_v *outputs;           /* values that must survive: kept to the end */
    size_t n_outputs, cap_outputs;
    int segment;             /* of what is built now */
    char prefix[32];         /* of names built now, e.g. `layers.7.` */
    ln_error error;          /* the first failure of a builder */
} ln_graph;

void ln_graph_open(ln_graph *g, const ln_op_rules *rules);
void ln_graph_close(ln_graph *g);

/* ---- build.c ---- */
void ln_g_segment(ln_graph *g, int segment, const char *prefix);
ln_v ln_g_weight(ln_graph *g, const char *name, ln_dtype dtype, int slot, int64_t d0, int64_t d1); /* d1 = 0: a vector */
ln_v ln_g_encoded(ln_graph *g, const char *name, ln_dtype dtype, ln_enc enc, int slot, int64_t d0, int64_t d1);
ln_v ln_g_state(ln_graph *g, const char *name, int slot);
void ln_g_output(ln_graph *g, ln_v v);
/* The encoding of the table or weight decides between embed and embed_q, and with that of x among linear, linear_q and linear_fixed. */
ln_v ln_g_embed(ln_graph *g, const char *name, ln_v table, float scale);
ln_v ln_g_linear(ln_graph *g, const char *name, ln_v x, ln_v w, ln_v bias_or_none);
/* x for products with weights of an encoding. This one and ln_g_round_bf16 give the value again that they made of the same x before. */
ln_v ln_g_fixed(ln_graph *g, const char *name, ln_v x, ln_enc enc);
ln_v ln_g_rmsnorm(ln_graph *g, const char *name, ln_v x, ln_v w, float eps, float offset);
ln_v ln_g_add(ln_graph *g, const char *name, ln_v a, ln_v b);
ln_v ln_g_mul(ln_graph *g, const char *name, ln_v a, ln_v b);
ln_v ln_g_silu(ln_graph *g, const char *name, ln_v a);
ln_v ln_g_gelu_tanh(ln_graph *g, const char *name, ln_v a);
ln_v ln_g_rope_table(ln_graph *g, const char *name, const ln_p_freqs *p);
ln_v ln_g_rope(ln_graph *g, const char *name, ln_v x, ln_v table, int n_heads, int head_dim);
ln_v ln_g_round_bf16(ln_graph *g, const char *name, ln_v a);
ln_v ln_g_kv_write(ln_graph *g, const char *name, ln_v kv, ln_v k, ln_v v, const ln_p_kv *p);
ln_v ln_g_attn_paged(ln_graph *g, const char *name, ln_v q, ln_v kv, const ln_p_attn *p);
ln_v ln_g_gather_rows(ln_graph *g, const char *name, ln_v x);

/* ---- passes, in this order ---- */
/* Operand counts, kinds, shapes, definition before use, one writer per value, states used in their newest version. */
ln_status ln_graph_check(const ln_graph *g, ln_error *err);
/* Marks nodes dead whose outputs nobody needs; effects stay. Returns how many. */
int ln_graph_prune(ln_graph *g);
/* What a device says of input k of a node, whose numbers are bf16 numbers: device.h, reads_bf16. */
struct ln_dev;
typedef bool ln_reads_bf16_fn(const struct ln_dev *dev, const ln_node *n, const ln_value *values, int k);
/* What a device says of a linear_fixed: device.h, by_row. */
typedef bool ln_by_row_fn(const struct ln_dev *dev, const ln_node *n, const ln_value *values);
/* fixed and linear_fixed -> fixed_row and linear_fixed_row, where a device wants that. Returns how many were changed. */
int ln_graph_by_row(ln_graph *g, const struct ln_dev *dev, ln_by_row_fn *wants);
/* silu+mul -> swiglu, gelu_tanh+mul -> geglu; these and both products before them -> linear_swiglu, linear_geglu where a device reads bf16 numbers of x in two
 * bytes, -> linear_fixed_row_swiglu, linear_fixed_row_geglu where products are by row; round_bf16 -> into the op before it. Returns how many were made. */
int ln_graph_fuse(ln_graph *g, const struct ln_dev *dev, ln_reads_bf16_fn *reads);
/* Values of bf16 numbers are stored in two bytes a number where all that read them want that and rows are whole tiles. Returns how many. */
int ln_graph_narrow(ln_graph *g, const struct ln_dev *dev, ln_reads_bf16_fn *reads);
/* Values that linear_fixed_row_swiglu or _geglu makes and fixed_row alone reads lie in panels, where their columns are whole sixteens and something is left behind them (ln_pitch), and so does what that makes of
 * them, in their place (plan). Returns how many of the former. */
int ln_graph_panels(ln_graph *g);

/* A program: what a device prepares. Borrowed from the graph; lives in its arena. */
typedef struct ln_program {
    const ln_graph *graph;
    ln_bounds bounds;
    int real_bytes;          /* 4, or 8 on the double form of the reference device */
    int n_stages;
    int n_live;              /* nodes that run */
    const int *order;        /* [n_live] node indices, stage by stage */
    const int *stage_begin;  /* [n_stages + 1] into order */
    int64_t temp_bytes;      /* size of the temp block */
    int64_t temp_bound;      /* the largest sum of values alive at one stage: no plan is smaller */
    /* where weights and states lie, by value index; filled by run/ before a device prepares the program */
    void **binding;          /* [n_values] */
} ln_program;
/* Stages, lifetimes, places (greedy by size). */
ln_status ln_graph_plan(ln_graph *g, const ln_bounds *bounds, int real_bytes, ln_program *out, ln_error *err);
/* Writes the order by stages; the program is complete but for its bindings. */
ln_status ln_graph_lower(ln_graph *g, ln_program *p, ln_error *err);

/* What the i-th node that runs makes and what it reads: names, shapes, and encodings other than f32. */
void ln_graph_node_text(const ln_program *p, int i, ln_str *makes, ln_str *reads);

#endif
