/* The lowered program: what a device prepares and runs. This header, step.h, state_pool.h and device/device.h
 * are the device interface; a plug-in is compiled from them and from quant/ alone, and sees no graph.
 *
 * A program is flat: an array of values, an array of nodes in the order of execution, cut into stages, and
 * everything that was decided about them: formats, layouts, strides, offsets in the block of temporary
 * values, addresses of weights and states. Nodes of one stage depend on each other row by row at most, so a
 * device needs a barrier between stages and none inside a stage.
 *
 * Also here: the words that a graph (graph.h) and its program share (kinds, layouts, ops and their
 * parameters), and the questions that lowering asks a device (ln_lower_fn). */
#ifndef LN_PROGRAM_H
#define LN_PROGRAM_H

#include "../quant/formats.h"

/* The version of the device interface. A plug-in built with another one is refused. */
#define LN_DEVICE_ABI 13

/* Symbolic first dimensions, and multiples of them: ln_dim_times. */
enum { LN_DIM_T = -1, LN_DIM_N = -2, LN_DIM_B = -3, LN_DIM_SYMBOLS = 4 };

typedef enum ln_kind {
    LN_KIND_TEMP,
    LN_KIND_WEIGHT,
    LN_KIND_TRAINABLE, /* a weight that training changes: dense, and stored as the file or the caller has it
                        */
    LN_KIND_STATE,
    LN_KIND_INPUT
} ln_kind;

/* Property of a state: successive versions write different parts of it, as the KV pages of different layers,
 * so that their writers need no barrier between them. */
enum { LN_STATE_DISJOINT = 1 };

/* The layout of the bytes of a value. Formats say which numbers they are (quant/formats.h). */
enum {
    LN_LAYOUT_ROWS = 0,   /* dense rows with a pitch */
    LN_LAYOUT_NARROW = 1, /* LN_LAYOUT_ROWS with two-byte bf16 elements */
    LN_LAYOUT_DEVICE = 16 /* 16 .. 31: the device's own */
};

typedef int32_t ln_v; /* index of a value; -1: none */

/* Parameters of ops, one struct for each set of parameters. */
typedef struct ln_p_none {
    char unused;
} ln_p_none;
typedef struct ln_p_embed {
    float scale;
    int32_t padding; /* 1 + the id of the padding token, whose row gets no gradient; 0: none */
} ln_p_embed;
typedef struct ln_p_convert {
    ln_format to;
} ln_p_convert;
/* The activation of a gated product. */
/* LN_ACT_RELU2: of act_back alone; no gated op has it. LN_ACT_XIELU: of models alone (ln_p_xielu). */
typedef enum ln_act { LN_ACT_SILU, LN_ACT_GELU_TANH, LN_ACT_RELU2, LN_ACT_XIELU } ln_act;
typedef struct ln_p_gate {
    ln_act act;
} ln_p_gate;
typedef struct ln_p_norm {
    float eps, offset;
    int64_t width; /* of a group if there is no weight; else 0 */
} ln_p_norm;
/* The factor of queries that grows with the position. */
typedef struct ln_p_pos_scale {
    float factor;
    int64_t positions;
} ln_p_pos_scale;
/* Dynamic NTK scaling of rotary frequencies: for a text of L > `positions` tokens the base is theta (factor L
 * / positions - factor + 1)^(E / (E - 2)). positions 0: the frequencies are fixed. */
typedef struct ln_ntk {
    double theta, factor;
    int64_t positions;
} ln_ntk;
/* freqs[n], n <= E/2, is borrowed and lives as long as the model. cos and sin are multiplied by `scale`,
 * YaRN's attention factor. */
typedef struct ln_p_freqs {
    const float *freqs;
    int n;
    float scale;
    ln_ntk ntk;
    const float *beyond; /* LongRoPE: frequencies of texts of more than ntk.positions tokens; else NULL */
} ln_p_freqs;
/* The pairs of numbers that are rotated in each head: (i, i + n) of n frequencies, or neighbours. */
typedef struct ln_p_heads {
    int n_heads, head_dim;
    bool interleaved; /* pairs (2i, 2i + 1) */
} ln_p_heads;
/* Address of a layer's keys and values in the pool (state_pool.h describes the pool). A page holds page_len
 * positions of some layers; layer address = base + page * page_bytes + layer_in_page * layer_bytes, page
 * being an entry of the step's page table. The layout inside a layer's part of a page is the device's. */
typedef struct ln_p_kv {
    int layer, window_group;                           /* layer index; which of the step's page tables */
    int pages_per_block, page_in_block, layer_in_page; /* entries of that table for each block of positions;
                                                          this layer's entry; its index in the page */
    int n_kv_heads, head_dim, v_dim, page_len;         /* head_dim: width of a key; v_dim: width of a value */
    ln_dtype dtype; /* of keys and values as attention reads them: f32 (exact) or bf16 (fast) */
    bool q8;        /* they are stored in 8 bits (quant/block_int8.h), and are exact in dtype */
    int64_t page_bytes, layer_bytes;
} ln_p_kv;
typedef struct ln_p_attn {
    ln_p_kv kv;
    int n_heads;
    float scale;
    int64_t window; /* 0: unlimited. A row at position p attends to keys j with p - window < j <= p */
    float softcap;  /* a scaled score s becomes softcap tanh(s / softcap); 0: it stays s */
    /* also to keys p < j < p + window of its sequence, which has no rows but those of the step */
    bool both_ways;
} ln_p_attn;

/* Place and sizes of a layer's recurrent state (state_pool.h, LN_STATE_CHUNKS), in the state of such pages.
 * The text is cut into chunks of page_len positions. A page holds what the rows of one chunk need of the text
 * before them, for some layers. These are the matrices S of the delta rule at the chunk's start and the last
 * inputs of the convolution before it. It also holds what each row of the chunk has added, which is the input
 * of the convolution, the key, the corrected value and the sum of the logarithms of the decays.
 * ops/recur_layout.h has the layout. */
typedef struct ln_p_recur {
    int layer, group;                                  /* layer index; which of the step's page tables */
    int pages_per_block, page_in_block, layer_in_page; /* as in ln_p_kv */
    int page_len;                                      /* positions of a chunk */
    int taps, channels; /* of the convolution: positions that an output sees, itself included; columns */
    int n_k_heads, n_v_heads, k_dim, v_dim; /* of the delta rule; n_v_heads 0: there is none */
    ln_dtype dtype;                         /* of what rows add: f32 (exact) or bf16 (fast); S is f32 */
    int64_t page_bytes, layer_bytes;
    int at;    /* short_conv: the first of the channels of this call */
    bool silu; /* short_conv: the output is silu of the sum */
} ln_p_recur;

/* What gated_delta adds to the squares of lengths (ops.h). */
#define LN_RECUR_EPS 1e-6f

/* Products of rows with the matrices of their experts. Row p of the output is that of choice p % top_k of row
 * p / top_k. */
typedef struct ln_p_experts {
    int top_k;
    bool shared; /* x has a row for all choices; else one for each */
} ln_p_experts;
/* The place of one matrix [n_out, n_in] in the pool of adapters: a state, n_slots slots of slot_bytes bytes.
 * Each slot holds, from byte `at` on, a part for this matrix, in which everything begins at a multiple of 64
 * bytes (ln_lora_part):
 *
 *     int32 rank, int32 flags (LN_LORA_HAS_*) | f32 scale[max_rank] | f32 bias[n_out] | f32 gain[n_out] |
 *     A[max_rank, n_in] | B[max_rank, n_out]
 *
 * A and B have elements of `dtype`, f32 or bf16; the first `rank` rows of them are used, 0: this adapter
 * leaves the matrix as it is. B is stored transposed, so that a kernel reads both as rows. The parts of the
 * experts of a layer follow each other; rows are then those of ln_p_experts, and an operand has the number of
 * each row's expert. */
typedef struct ln_p_lora {
    int64_t at, slot_bytes;
    int n_slots, max_rank;
    int64_t n_in, n_out;
    ln_dtype dtype;
    bool rounds;     /* x is rounded to bf16 where the policy rounds the operand of the product */
    bool of_outputs; /* rows are N, the output rows of the step; else T */
    int n_experts;   /* 0: one matrix */
    ln_p_experts experts;
} ln_p_lora;
/* Offsets within a part, in bytes. */
typedef struct ln_lora_part {
    int64_t scale, bias, gain, a, b, bytes; /* bytes: of one matrix */
} ln_lora_part;
enum { LN_LORA_HAS_BIAS = 1, LN_LORA_HAS_GAIN = 2 };
static inline ln_lora_part ln_lora_part_of(const ln_p_lora *p) {
    enum { ALIGN = 64 };
    const int64_t element = ln_dtype_bytes(p->dtype);
    ln_lora_part o = {.scale = ALIGN};
    o.bias = o.scale + (p->max_rank * 4 + ALIGN - 1) / ALIGN * ALIGN;
    o.gain = o.bias + (p->n_out * 4 + ALIGN - 1) / ALIGN * ALIGN;
    o.a = o.gain + (p->n_out * 4 + ALIGN - 1) / ALIGN * ALIGN;
    o.b = o.a + (p->max_rank * p->n_in * element + ALIGN - 1) / ALIGN * ALIGN;
    o.bytes = o.b + (p->max_rank * p->n_out * element + ALIGN - 1) / ALIGN * ALIGN;
    return o;
}

/* Bytes of the part of a weight: those of one matrix, or of the matrices of all experts. */
static inline int64_t ln_lora_bytes_of(const ln_p_lora *p) {
    return ln_lora_part_of(p).bytes * (p->n_experts > 1 ? p->n_experts : 1);
}

/* How many ranks exchange their columns (base/transport.h), and how many columns these make. */
typedef struct ln_p_gather {
    int n_ranks;
    int64_t cols;
} ln_p_gather;

/* ---- parameters of the ops of training ---- */
/* Which operands of a product of two temps are transposed: a b^T, a b, a^T b. */
typedef enum ln_matmul_kind { LN_MATMUL_NT, LN_MATMUL_NN, LN_MATMUL_TN } ln_matmul_kind;
typedef struct ln_p_matmul {
    ln_matmul_kind kind;
} ln_p_matmul;
/* Elementwise functions of user graphs. DIV has two operands. */
typedef enum ln_pointwise {
    LN_POINTWISE_EXP,
    LN_POINTWISE_LOG,
    LN_POINTWISE_SQRT,
    LN_POINTWISE_DIV
} ln_pointwise;
typedef struct ln_p_pointwise {
    ln_pointwise kind;
} ln_p_pointwise;
/* xIELU (Huang et al. 2024): the numbers of a layer, alphas as they are used. */
typedef struct ln_p_xielu {
    float alpha_p, alpha_n, beta, eps;
} ln_p_xielu;
typedef struct ln_p_scale {
    float factor;
} ln_p_scale;
/* Of slice: columns at .. at + cols - 1 of each group of `every` columns, every 0: of the row. Of slice_back:
 * the first column, how many dx has, and the width of its groups. */
typedef struct ln_p_slice {
    int64_t at, cols, every;
} ln_p_slice;
/* The bounds of a clamp. */
typedef struct ln_p_clamp {
    float low, high;
} ln_p_clamp;
/* How the experts of a row and their weights follow from its logits. Scores are a softmax over all experts, a
 * softmax over the chosen ones alone, or the sigmoid of each logit. */
typedef enum ln_route_kind { LN_ROUTE_SOFTMAX, LN_ROUTE_CHOSEN, LN_ROUTE_SIGMOID } ln_route_kind;
enum { LN_ROUTE_MOST = 64, LN_ROUTE_EXPERTS = 1024 }; /* of a row, and of a layer, at most */
typedef struct ln_p_route {
    ln_route_kind kind;
    int top_k;                /* experts of a row */
    bool normed;              /* weights are divided by their sum + eps */
    bool biased, scaled;      /* which optional operands there are, in this order */
    float eps, factor;        /* weights are multiplied by `factor` */
    int n_groups, top_groups; /* experts are chosen from the top groups alone; 1 group: from all */
} ln_p_route;
/* Rows that come by so many. */
typedef struct ln_p_fold {
    int n;
} ln_p_fold;
/* What a sum adds up: all elements, the rows of each column, the columns of each row. */
typedef enum ln_sum_kind { LN_SUM_ALL, LN_SUM_ROWS, LN_SUM_COLS } ln_sum_kind;
typedef struct ln_p_sum {
    ln_sum_kind kind;
} ln_p_sum;
/* Shape of an output that its inputs do not give, and a factor; rows may be symbolic. */
typedef struct ln_p_spread {
    int64_t rows, cols;
    float factor;
    int32_t padding; /* of embed_back, as in ln_p_embed */
} ln_p_spread;
/* Attention of a packed batch: the sequences of a step, each from its first row on. */
typedef struct ln_p_packed {
    int n_heads, n_kv_heads, head_dim, v_dim; /* widths as in ln_p_kv */
    float scale;
    int64_t window; /* as in ln_p_attn */
    float softcap;  /* likewise */
} ln_p_packed;
/* The convolution of one channel each over a packed batch; turned: of later rows, which is its gradient. */
typedef struct ln_p_conv {
    int taps;
    bool turned;
} ln_p_conv;
/* The delta rule over a packed batch: heads of keys and values, and their widths. */
typedef struct ln_p_delta {
    int n_k_heads, n_v_heads, k_dim, v_dim;
} ln_p_delta;
/* Each element is kept with probability 1 - p, and then divided by that. `site` tells the uses of one program
 * apart. */
typedef struct ln_p_dropout {
    float p;
    uint32_t site;
    uint64_t seed;
    bool of_outputs; /* row n of x is that of token out_rows[n], not n */
} ln_p_dropout;

typedef union ln_params {
    ln_p_none none;
    ln_p_embed embed;
    ln_p_convert convert;
    ln_p_gate gate;
    ln_p_norm norm;
    ln_p_pos_scale pos_scale;
    ln_p_freqs freqs;
    ln_p_heads heads;
    ln_p_kv kv;
    ln_p_attn attn;
    ln_p_matmul matmul;
    ln_p_scale scale;
    ln_p_slice slice;
    ln_p_clamp clamp;
    ln_p_route route;
    ln_p_experts experts;
    ln_p_fold fold;
    ln_p_xielu xielu;
    ln_p_pointwise pointwise;
    ln_p_sum sum;
    ln_p_spread spread;
    ln_p_packed packed;
    ln_p_dropout dropout;
    ln_p_lora lora;
    ln_p_recur recur;
    ln_p_conv conv;
    ln_p_delta delta;
    ln_p_gather gather;
} ln_params;

#define LN_NODE_IN  6
#define LN_NODE_OUT 3

typedef enum ln_op {
#define LN_OP(E, name, lo, hi, out, params, props, grad, formula) LN_OP_##E,
#include "ops.def"
#undef LN_OP
    LN_OP_COUNT
} ln_op;

static inline const char *ln_op_name(ln_op op) {
    static const char *const names[] = {
#define LN_OP(E, name, lo, hi, out, params, props, grad, formula) #name,
#include "ops.def"
#undef LN_OP
    };
    return names[op];
}

/* Properties of ops. ROWWISE: row r of every output depends on row r of the inputs only. INPLACE: output 0
 * may be written to the buffer of input 0. EFFECT: output 0 is the next version of the state that is input 0,
 * and is written to the memory of that state. FUSED: made by passes only. ROUNDS: can round output 0 to bf16
 * as it stores it. */
enum { LN_PROP_ROWWISE = 1, LN_PROP_INPLACE = 2, LN_PROP_EFFECT = 4, LN_PROP_FUSED = 8, LN_PROP_ROUNDS = 16 };

/* Values of the symbolic dimensions: those of a step, or their upper bounds. */
typedef struct ln_bounds {
    int64_t T, N, B;
} ln_bounds;
/* The symbol of a dimension below 0, and by what it is multiplied. */
static inline int64_t ln_dim_symbol(int64_t d) { return -(-(d + 1) % LN_DIM_SYMBOLS + 1); }
static inline int64_t ln_dim_factor(int64_t d) { return -(d + 1) / LN_DIM_SYMBOLS + 1; }
/* n times a dimension, and the n-th part of one; 0: it has no n-th part. */
static inline int64_t ln_dim_times(int64_t d, int64_t n) {
    return d >= 0 ? d * n : ln_dim_symbol(d) - LN_DIM_SYMBOLS * (ln_dim_factor(d) * n - 1);
}
static inline int64_t ln_dim_part(int64_t d, int64_t n) {
    if ((d >= 0 ? d : ln_dim_factor(d)) % n) return 0;
    return d >= 0 ? d / n : ln_dim_symbol(d) - LN_DIM_SYMBOLS * (ln_dim_factor(d) / n - 1);
}
static inline int64_t ln_dim(int64_t d, const ln_bounds *b) {
    if (d >= 0) return d;
    const int64_t s = ln_dim_symbol(d), rows = s == LN_DIM_T ? b->T : s == LN_DIM_N ? b->N : b->B;
    return rows * ln_dim_factor(d);
}
/* Writes a dimension as text: `64`, `T`, `8T`. Returns out. */
enum { LN_DIM_TEXT = 48 };
const char *ln_dim_text(int64_t d, char out[LN_DIM_TEXT]);

/* A value of a program. Its index is that of the graph's value. */
typedef struct ln_pvalue {
    const char *name; /* `layers.7.attn.q`, for messages and reports */
    ln_kind kind;
    ln_dtype dtype;      /* of stored elements; of encoded weights, of the scales; temps: LN_F32 */
    ln_encoding enc;     /* weights: how they are stored */
    ln_format format;    /* temps: which numbers the elements are */
    uint8_t layout;      /* temps: LN_LAYOUT_*, or the device's own */
    uint32_t flags;      /* states: LN_STATE_* */
    int32_t n_dims;      /* 1 to 4 */
    int64_t dims[4];     /* dims[0] may be symbolic */
    int32_t layer;       /* layer that it belongs to; -1: none */
    int32_t slot;        /* of a weight, trainable or state (all versions of a state share it); else -1 */
    int32_t first, last; /* first and last stage in which its buffer is live; -1: no node uses it */
    int32_t tail_rows;   /* temps: with fewer live rows they are stored in rows, whatever `layout` says */
    int64_t row_bytes;   /* temps: distance between rows */
    int64_t offset;      /* temps: bytes from the start of the temp block; -1: it has no buffer */
    int64_t tail_offset; /* bytes added to `offset` while fewer than tail_rows rows are live */
    int64_t bytes;       /* temps: of the buffer */
    /* Set by run/ before `prepare`. data: the address of a weight, trainable or state, as upload or alloc
     * gave it; all versions of a state have the same. layout_id, read_bytes: those of ln_device_weight. */
    void *data;
    uint32_t layout_id;
    uint64_t read_bytes;
} ln_pvalue;

typedef struct ln_pnode {
    ln_op op;
    uint32_t props; /* LN_PROP_* of the op */
    int32_t n_in, n_out;
    ln_v in[LN_NODE_IN], out[LN_NODE_OUT];
    int32_t layer, stage;
    const char *kernel; /* as the device answered: static name of the ISA level; NULL: it has no kernel */
    double tolerance;   /* as the device answered */
    ln_params p;        /* last: a later version may have longer parameters */
} ln_pnode;

typedef struct ln_program {
    uint32_t abi, size;             /* LN_DEVICE_ABI; of this struct */
    uint32_t value_size, node_size; /* distances in bytes of the elements of the two arrays */
    int32_t n_values, n_nodes, n_stages, n_outputs;
    ln_pvalue *values;          /* [n_values] by ln_program_value */
    const ln_pnode *nodes;      /* [n_nodes] in order of execution, by ln_program_node */
    const int32_t *stage_begin; /* [n_stages + 1] the first node of each stage, then n_nodes */
    const ln_v *outputs;        /* [n_outputs] values that the caller reads after a step */
    ln_bounds bounds;           /* most live rows, output rows and sequences of a step */
    int32_t real_bytes;         /* bytes of an LN_F32 element of a temp: 4, or 8 on ln_device_ref_double */
    int64_t temp_bytes;         /* size of the temp block in bytes */
    int64_t temp_bound; /* largest sum of the bytes live at one stage: the least that temp_bytes can be */
} ln_program;

static inline const ln_pvalue *ln_program_value(const ln_program *p, ln_v v) {
    return (const ln_pvalue *)(const void *)((const char *)p->values + (size_t)v * p->value_size);
}
static inline const ln_pnode *ln_program_node(const ln_program *p, int i) {
    return (const ln_pnode *)(const void *)((const char *)p->nodes + (size_t)i * p->node_size);
}
/* Whether a node replaces the state that is its input k by the next version, output k. */
static inline bool ln_pnode_replaces(const ln_pnode *n, int k) {
    return k == 0 && (n->props & LN_PROP_EFFECT);
}
/* The layout of a temp of so many live rows, and its offset in the temp block. */
static inline uint8_t ln_live_layout(const ln_pvalue *v, int64_t rows) {
    return rows < v->tail_rows ? LN_LAYOUT_ROWS : v->layout;
}
static inline int64_t ln_live_offset(const ln_pvalue *v, int64_t rows) {
    return v->offset + (rows < v->tail_rows ? v->tail_offset : 0);
}
/* Bytes of a stored element of a temp, and the distance between its rows in such elements. */
static inline int ln_element_bytes(const ln_program *p, const ln_pvalue *v) {
    return v->layout == LN_LAYOUT_NARROW ? 2 : p->real_bytes;
}
static inline int64_t ln_temp_pitch(const ln_program *p, const ln_pvalue *v) {
    return v->row_bytes / ln_element_bytes(p, v);
}

/* ---- lower: what a device chooses for each node (ln_device_ops.lower) ---- */
enum {
    LN_LOWER_FORMATS, /* formats of operands, and candidates for fusion */
    LN_LOWER_READS,   /* layouts that the node's kernel can read */
    LN_LOWER_STORAGE  /* layouts and pitch of outputs, reuse in place, kernel */
};
typedef struct ln_lower_operand {
    uint8_t kind, dtype, n_dims, layout;
    ln_encoding enc; /* of a weight */
    ln_format format;
    int64_t dims[4];
    int64_t row_bytes; /* of a temp, once its producer has been asked for STORAGE */
} ln_lower_operand;
typedef struct ln_lower_ask {
    uint32_t size;
    uint8_t sweep, op, n_in, n_out;
    uint32_t props; /* LN_PROP_* of the op */
    bool candidate; /* FORMATS: the node would replace several: a linear_gated for two linear and a gated */
    ln_lower_operand in[LN_NODE_IN], out[LN_NODE_OUT];
    const void *params; /* of the op: ln_p_* */
    uint32_t params_size;
    ln_bounds bounds;
    int16_t reader_op[LN_NODE_OUT]; /* op of the only reader of an output; -1: several, or a graph output */
    uint8_t reader_format[LN_NODE_OUT]; /* ln_format_kind to which that reader converts, if it is a convert */
    uint32_t readable[LN_NODE_OUT]; /* STORAGE: bits of the layouts that all readers of an output can read */
} ln_lower_ask;
/* Filled in with defaults, which the comments give, before the device is asked. */
typedef struct ln_lower_answer {
    uint32_t size;
    ln_format in_format[LN_NODE_IN]; /* FORMATS: as asked. Another format where a convert makes the operand */
    uint32_t readable[LN_NODE_IN];   /* READS: bits of layouts; that of LN_LAYOUT_ROWS */
    uint8_t layout[LN_NODE_OUT];     /* STORAGE: LN_LAYOUT_ROWS */
    int64_t row_bytes[LN_NODE_OUT];  /* STORAGE: distance between rows; without padding */
    bool in_place;                   /* STORAGE: output 0 may take the buffer of input 0; the op's INPLACE */
    int32_t tail_rows;  /* STORAGE: with fewer live rows output 0 is stored in rows, whatever its layout; 0 */
    const char *kernel; /* STORAGE: static name of the ISA level whose kernel runs the node; NULL: none */
    /* STORAGE: relative tolerance of the output against the reference kernel on the same inputs: the largest
     * absolute difference divided by the largest magnitude of the output. 0: the bits are equal. */
    double tolerance;
} ln_lower_answer;
struct ln_dev; /* an open device, which only the device itself looks into */
/* Whether the device has a kernel for a candidate; in the other cases the result is not read. */
typedef bool ln_lower_fn(const struct ln_dev *dev, const ln_lower_ask *ask, ln_lower_answer *answer);

#endif
