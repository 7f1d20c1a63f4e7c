/* The interface between the CUDA device's host code (C) and its kernels (CUDA C++): operands and parameters
 * of each op as plain structs, and one function for each op that puts its kernels on a stream.
 *
 * All addresses in these structs are addresses of device memory. A kernel reads the live counts of a step
 * from the step block in device memory; the counts of gpu_launch only decide the size of its grid. So a
 * captured CUDA graph may be launched again for any step whose counts are not larger.
 *
 * Functions return the CUDA error of the launch as an int: 0 is cudaSuccess. */
#ifndef LN_CUDA_KERNELS_H
#define LN_CUDA_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../graph/step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Types of stored elements: those of ln_dtype. */
enum { GPU_F32 = 0, GPU_BF16 = 1, GPU_F16 = 2 };

/* What gpu_array.rows is where the number of rows is a count of the step: the values of LN_DIM_T, LN_DIM_N
 * and LN_DIM_B (graph/program.h), which the kernels do not see. n times a count is the count less
 * GPU_ROW_SYMBOLS (n - 1): ln_dim_times. */
enum { GPU_ROWS_T = -1, GPU_ROWS_N = -2, GPU_ROWS_B = -3, GPU_ROW_SYMBOLS = 4 };

/* A value in device memory: rows >= 0 is their number, else it is GPU_ROWS_* or a multiple of one. Elements
 * are f32 or bf16; pitch is the distance of rows in elements. */
typedef struct gpu_array {
    void *data;
    int64_t pitch;
    int32_t cols, rows;
    int32_t type;
} gpu_array;

/* A weight [D, C] or a vector [C] (D = 1). GPU_ROWS: dense elements of `type`, row by row; in affine groups
 * (bits > 0) codes as quant/affine.h describes them, scales and biases [D, C / group] of `type`.
 * GPU_FRAGMENTS: packed as fragments.cuh describes, a dense matrix of bf16 or f16, or codes of 4 or 8 bits
 * with pairs of a scale and a bias at `scales` (biases is NULL); C is a multiple of 32. large_scales: these
 * are bf16, and one has a magnitude of 0.5 or more, or is NaN. GPU_CODED: coded rows (quant/coded.h), whose
 * codes are `numbers`; of GPU_ZEROED biases are the zero points, in f16, and `columns` has the group of each
 * column. */
enum { GPU_ROWS, GPU_FRAGMENTS, GPU_CODED };
enum { GPU_INTEGERS, GPU_E4M3, GPU_E5M2, GPU_E2M1, GPU_ZEROED };
typedef struct gpu_weight {
    const void *data, *scales, *biases;
    const uint16_t *columns;
    int64_t D, C;
    int32_t type, bits, group, form, numbers;
    bool large_scales;
} gpu_weight;

/* Rows [row0, row0 + n) of a part of a packed weight (GPU_FRAGMENTS): `from`, in pinned host memory, has
 * their elements or codes row by row; `to` is the part in device memory. n_zero: rows after them that are set
 * to zeros, those that complete the last 16. cols: columns of the weight, of scales and biases the groups of
 * a row, whose elements have `element` bytes; bits: of a code, 4 or 8. Scales and biases are one part.
 * large_scales: of bf16 scales, pinned host memory where 1 is stored if one of them is large (gpu_weight);
 * else NULL. */
enum { GPU_PACK_DENSE, GPU_PACK_CODES, GPU_PACK_SCALES, GPU_PACK_BIASES };
typedef struct gpu_packing {
    void *to;
    const void *from;
    int64_t row0, n, n_zero, cols;
    int32_t part, element, bits;
    int32_t *large_scales;
} gpu_packing;
int gpu_pack_rows(void *stream, const gpu_packing *p);

/* The step block in device memory and the queue's page tables (graph/step.h). */
typedef struct gpu_step {
    const ln_step_block *head;
    const int32_t *ids, *pos, *seq, *adapter, *row0, *slot, *n_prompt, *out_rows;
    int32_t *pages[LN_STATE_GROUPS];
    int32_t n_blocks;
} gpu_step;

/* Where to launch a kernel, and for how many rows: the largest counts of rows, outputs and sequences of a
 * step (T, N, B). */
typedef struct gpu_launch {
    void *stream;
    int32_t T, N, B;
    int32_t n_multiprocessors;
    int32_t shared_limit; /* bytes of shared memory that a block may have */
    int32_t clusters;     /* the most blocks of a cluster of the wgmma kernels: 8, 2; 0: no such kernels */
    bool bad_clusters;    /* for tests: launches of clusters fail */
    bool overlap; /* a kernel may begin before the one before it ends: compute capability 9.0 and later */
} gpu_launch;

/* What the GPUs of several ranks exchange (exchange.cu, decision 062). Addresses of all ranks are those under
 * which this rank reaches their memory. */
enum { GPU_MOST_RANKS = 16, GPU_INBOX_HEAD = 8192 };
typedef struct gpu_exchange {
    int32_t size, rank;
    char *temp[GPU_MOST_RANKS];  /* blocks of temporary values, laid out equally */
    char *inbox[GPU_MOST_RANKS]; /* GPU_INBOX_HEAD bytes and slots from each rank; zeros at the start */
    int64_t slot_bytes;
    const uint32_t *stop; /* in host memory; not 0: another rank has failed, all waiting ends */
} gpu_exchange;
/* y [R, C] is made of the parts x [R, S] of all ranks: that of rank r begins at column min(r S, C - S).
 * residual [R, C]: added to it before it is stored; data NULL: none. x is f32 or of y's type. */
typedef struct gpu_gather {
    gpu_array x, residual, y;
    bool placed;  /* x is in its columns of y already */
    bool single;  /* in an exchange by words each element has a flag of its own */
    int32_t slot; /* of the exchange by words: not that of the exchange before it */
} gpu_gather;
/* A gather, in single words, of the part that a product makes: kernels of up to GPU_FUSED_ROWS rows do it. */
typedef struct gpu_tail {
    gpu_exchange exchange;
    gpu_gather gather;
} gpu_tail;
/* Bytes of a slot that an exchange by words of so many rows takes. */
size_t gpu_words_bytes(const gpu_gather *g, int64_t rows);
/* The exchange by words: for few bytes; it takes at most e->slot_bytes. By pulling: for many. All ranks do
 * the same. */
int gpu_exchange_words(const gpu_launch *l, const gpu_step *s, const gpu_exchange *e, const gpu_gather *g);
int gpu_exchange_pull(const gpu_launch *l, const gpu_step *s, const gpu_exchange *e, const gpu_gather *g);
/* Between which NCCL gathers: rows row0 .. row0 + n - 1 of the rank's part, to `to` [n, S] of y's type; those
 * of all ranks, from `from` [size, n, S], to y. */
int gpu_pack_part(const gpu_launch *l, const gpu_step *s, int rank, const gpu_gather *g, int64_t row0,
                  int64_t n, void *to);
int gpu_place_parts(const gpu_launch *l, const gpu_step *s, int size, const gpu_gather *g, int64_t row0,
                    int64_t n, const void *from);

/* Pages of a layer: see ln_p_kv. Within a layer's part of a page, keys are [K, page_len, width] and values
 * [K, page_len, v_width] follow; width is E rounded up to 8 elements, the rest zeros, v_width likewise Ev. */
typedef struct gpu_kv {
    char *pool;
    int32_t window_group, pages_per_block, page_in_block, n_kv_heads, head_dim, v_dim, width, v_width;
    int32_t page_len, type;
    bool q8; /* stored in 8 bits (kv_q8.cuh), read as `type` */
    int64_t page_bytes, layer_offset;
} gpu_kv;

typedef struct gpu_attention {
    gpu_kv kv;
    int32_t n_heads;
    float scale, softcap; /* softcap 0: none */
    bool both_ways;       /* as in ln_p_attn */
    const void *sinks;    /* [n_heads] of sink_type; NULL: none */
    int32_t sink_type;
    int64_t window;
    int32_t room;     /* splits for which the working memory has space */
    int32_t patience; /* how often a block that merges looks whether the others have finished, every 50 ns */
    /* Working memory for partial results of splits: gpu_attention_scratch bytes, and counters, which are zero
     * between steps. */
    void *results;
    int32_t *counters;
} gpu_attention;

/* ln_p_freqs; freqs and beyond in device memory. */
typedef struct gpu_freqs {
    const float *freqs, *beyond;
    int32_t n;
    float scale;
    double theta, factor;
    int64_t positions;
} gpu_freqs;

enum {
    GPU_ADD,
    GPU_MUL,
    GPU_GATED_SILU,
    GPU_GATED_GELU,
    GPU_SCALE_ROWS,
    GPU_SILU_BACK, /* of a and dy: dy times the slope at a */
    GPU_GELU_BACK,
    GPU_RELU2_BACK,
    GPU_XIELU_BACK,
    GPU_CLAMP_BACK,
    GPU_DIV, /* those that read b */
    GPU_SILU,
    GPU_GELU_TANH,
    GPU_RELU2,
    GPU_SIGMOID,
    GPU_SOFTCAP,
    GPU_SCALE,
    GPU_XIELU,
    GPU_CLAMP,
    GPU_EXP,
    GPU_LOG,
    GPU_SQRT,
    GPU_CONVERT
};
/* Parameters of pointwise ops. v[0] is the cap or the factor. clamp has two bounds, xIELU alpha_p, alpha_n,
 * beta and eps. */
typedef struct gpu_numbers {
    float v[4];
} gpu_numbers;
enum { GPU_NO_GATE = -1, GPU_GATE_SILU = 0, GPU_GATE_GELU = 1 };

/* Applies the changes of the step block to the page tables, in order. count < 0: as many as the block says.
 */
int gpu_apply_changes(const gpu_launch *l, const gpu_step *s, const ln_page_change *changes, int32_t count);
int gpu_embed(const gpu_launch *l, const gpu_step *s, const gpu_weight *table, const gpu_array *y,
              float scale);
/* A pointwise op. */
int gpu_pointwise(const gpu_launch *l, const gpu_step *s, int op, const gpu_array *a, const gpu_array *b,
                  gpu_numbers by, const gpu_array *y);
/* Columns at .. at + cols - 1 of each group of `every` columns. */
int gpu_slice(const gpu_launch *l, const gpu_step *s, const gpu_array *x, int64_t at, int64_t cols,
              int64_t every, const gpu_array *y);
int gpu_pos_scale(const gpu_launch *l, const gpu_step *s, float by, int64_t positions, const gpu_array *y);
int gpu_centre(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_array *y);
/* w.data NULL: no weight, in groups of w.C columns. */
int gpu_rmsnorm(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_weight *w,
                const gpu_array *y, float eps, float offset);
int gpu_rope_table(const gpu_launch *l, const gpu_step *s, const gpu_freqs *f, const gpu_array *y);
/* back: by minus the angle. */
int gpu_rope(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_array *table,
             const gpu_array *y, int32_t n_heads, int32_t head_dim, bool interleaved, bool back);
int gpu_kv_write(const gpu_launch *l, const gpu_step *s, const gpu_kv *kv, const gpu_array *k,
                 const gpu_array *v);
int gpu_gather_rows(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_array *y);
/* Up to GPU_PRODUCTS products of one x. gate GPU_NO_GATE: y[i] = x w[i]^T + bias[i] (data NULL: none), and
 * with n = 1 plus `residual` (data NULL: none). Else y[0] is linear_gated of w[0] and w[1], n is 1. The
 * weights have one type and one encoding.
 *
 * norm.data not NULL: x is f32, and the products are those of its rmsnorm, whose bits are those of
 * gpu_rmsnorm into `normed`; whether `normed` is written depends on the number of rows. */
enum { GPU_PRODUCTS = 3 };
typedef struct gpu_product {
    gpu_array x, residual, y[GPU_PRODUCTS];
    gpu_weight w[GPU_PRODUCTS], bias[GPU_PRODUCTS];
    int32_t n, gate;
    gpu_weight norm;
    gpu_array normed;
    float eps, offset;
    /* Working memory in which weights in groups become bf16 for products of many rows, if
     * gpu_unpacks(w[0]); NULL: they do not. */
    void *unpacked;
    size_t unpacked_bytes;
    /* In host memory: the gather that follows, and whether the kernel does it; NULL: none follows. */
    const gpu_tail *tail;
    bool *did_tail;
} gpu_product;
/* Whether no kernel for many rows reads the codes of a weight. clusters: gpu_launch.clusters. */
bool gpu_unpacks(const gpu_weight *w, int32_t clusters);
int gpu_linear(const gpu_launch *l, const gpu_step *s, const gpu_product *p);

/* Mixtures of experts (ops/route_op.c). ln_p_route; bias, scale: of each expert, data NULL: none. */
typedef struct gpu_route {
    gpu_weight bias, scale;
    int32_t kind, top_k, n_groups, top_groups;
    bool normed;
    float eps, factor;
} gpu_route;
enum { GPU_ROUTE_SOFTMAX, GPU_ROUTE_CHOSEN, GPU_ROUTE_SIGMOID };
int gpu_route_rows(const gpu_launch *l, const gpu_step *s, const gpu_route *p, const gpu_array *logits,
                   const gpu_array *ids, const gpu_array *weights);
/* y[r] = the sum of n rows of x, each times its s (data NULL: 1). */
int gpu_fold_rows(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_array *by, int32_t n,
                  const gpu_array *y);
/* Row p of y is the product of row p of x, or if x is shared row p / top_k, and the D rows of w that belong
 * to expert ids[p], + bias [n_experts * D] (data NULL: none). The most rows of y are n_pairs, for which
 * gpu_experts_scratch bytes of working memory are at `lists`. */
typedef struct gpu_experts {
    gpu_array x, ids, y;
    gpu_weight w, bias;
    int64_t D, n_pairs;
    int32_t top_k, n_experts;
    bool shared;
    int32_t *lists;
} gpu_experts;
size_t gpu_experts_scratch(int64_t pairs, int32_t n_experts);
int gpu_run_experts(const gpu_launch *l, const gpu_step *s, const gpu_experts *e);

/* Recurrent mixers (ops/recur_op.c). The place of a layer's state and its sizes: ln_p_recur; s .. inputs: the
 * offsets of the parts in a layer's part of a page. type: of keys, values and inputs. */
typedef struct gpu_recur {
    char *pool;
    int64_t page_bytes, layer_offset, s, decays, keys, values, inputs;
    int32_t group, pages_per_block, page_in_block, page_len, type;
    int32_t taps, channels, at; /* of the convolution; the first channel of the call */
    bool silu;
    int32_t K, H, E, Ev; /* heads of keys and of values, and their widths */
    float eps, by;       /* under the root of lengths; the factor of queries */
} gpu_recur;
/* w [cols * taps], bias [cols] (data NULL: none). */
int gpu_short_conv(const gpu_launch *l, const gpu_step *s, const gpu_recur *p, const gpu_array *x,
                   const gpu_weight *w, const gpu_weight *bias, const gpu_array *y);
int gpu_delta_gates(const gpu_launch *l, const gpu_step *s, const gpu_array *a, const gpu_array *b,
                    const gpu_weight *a_log, const gpu_weight *dt, float by, const gpu_array *y);
/* Whether the state of a head fits in the shared memory of every GPU. */
bool gpu_has_gated_delta(int32_t key_dim, int32_t page_len);
int gpu_gated_delta(const gpu_launch *l, const gpu_step *s, const gpu_recur *p, const gpu_array *gates,
                    const gpu_array *q, const gpu_array *k, const gpu_array *v, const gpu_array *y);

/* Bytes of gpu_attention.results for this op, and of its counters, which begin as zeros. */
size_t gpu_attention_scratch(const gpu_attention *a, size_t *counters);
int gpu_attention_paged(const gpu_launch *l, const gpu_step *s, const gpu_attention *a, const gpu_array *q,
                        const gpu_array *y);
/* A matrix's place in the pool of adapters: ln_p_lora, with the offsets of ln_lora_part from the start of a
 * part. `type`: of the elements of A and B, GPU_F32 or GPU_BF16. */
typedef struct gpu_lora {
    const char *pool;
    int64_t at, slot_bytes, scale, bias, gain, a, b, n_in, n_out;
    int32_t n_slots, type;
    bool of_outputs;
} gpu_lora;
/* t = s (A x) of each row's adapter; y = x + (B t + bias), where y may be x. */
int gpu_lora_down(const gpu_launch *l, const gpu_step *s, const gpu_lora *p, const gpu_array *x,
                  const gpu_array *t);
int gpu_lora_up(const gpu_launch *l, const gpu_step *s, const gpu_lora *p, const gpu_array *x,
                const gpu_array *t, const gpu_array *y);
/* Argmax of the live rows of x: see ln_device_ops.argmax. ids [rows] and the scratch, gpu_argmax_scratch
 * bytes for so many rows, are in device memory. */
enum { GPU_ARGMAX_PARTS = 32 };
size_t gpu_argmax_scratch(int64_t rows);
int gpu_argmax(const gpu_launch *l, const gpu_step *s, const gpu_array *x, void *scratch, int32_t *ids);

/* How a row's token is chosen: ln_row_sampling. mask: byte offset in gpu_sampling.parameters, -1: none. n_top
 * -1: no log-probabilities. */
enum { GPU_TOP = 20, GPU_EDIT_ADD = 1, GPU_EDIT_REPEAT = 2, GPU_EDIT_SUBTRACT = 4, GPU_EDIT_FORBID = 8 };
typedef struct gpu_draw {
    uint64_t seed, position;
    double top_p, min_p;
    float temperature, repeat_penalty;
    int32_t row, token, top_k, n_edits, first_edit, n_top;
    int64_t mask;
} gpu_draw;
typedef struct gpu_edit { /* ln_logit_edit */
    int32_t id;
    uint32_t what;
    float add, subtract;
} gpu_edit;
typedef struct gpu_top {
    double logprob;
    int32_t id;
} gpu_top;
/* The rows of one call: n draws, then masks, and from `edits_at` on edits, in device memory at `parameters`.
 * n_*: how many draws have edits, log-probabilities, a temperature, filters. states: gpu_sample_scratch bytes
 * in device memory. ids [n], logprobs [n], tops [n][GPU_TOP]: in pinned memory. */
typedef struct gpu_sampling {
    void *parameters, *states;
    int64_t edits_at;
    int32_t n, n_edits, n_logprobs, n_drawn, n_filtered;
    int32_t *ids;
    double *logprobs;
    gpu_top *tops;
#ifdef __CUDACC__
    __device__ const gpu_draw *draws(void) const { return (const gpu_draw *)parameters; }
    __device__ gpu_edit *edits(void) const { return (gpu_edit *)((char *)parameters + edits_at); }
#endif
} gpu_sampling;
/* Chooses tokens from rows of the logits x, f32; see ln_device_ops.sample. */
size_t gpu_sample_scratch(int64_t rows);
int gpu_sample(const gpu_launch *l, const gpu_array *x, const gpu_sampling *in);
/* Parts of gpu_sample (logprobs.cu): log-probabilities before the edits; the edits; their end, and the
 * log-probabilities of the chosen tokens. */
void gpu_log_sums(const gpu_launch *l, const gpu_array *x, const gpu_sampling *in);
void gpu_edit_rows(const gpu_launch *l, const gpu_array *x, const gpu_sampling *in);
void gpu_end_rows(const gpu_launch *l, const gpu_array *x, const gpu_sampling *in);

/* Several ops as one kernel (cuda_fuse.c), with the bits of the separate ones. */
/* rmsnorm of the heads of q and k (data NULL: none), rope of both, kv_write of k and v. y: q after rope. */
typedef struct gpu_heads {
    gpu_array q, k, v, table, y;
    gpu_weight q_norm, k_norm;
    float eps, offset;
    int32_t n_heads;
    bool interleaved; /* as in ln_p_heads */
    gpu_kv kv;
} gpu_heads;
int gpu_run_heads(const gpu_launch *l, const gpu_step *s, const gpu_heads *h);
/* gpu_run_heads and attention over the pages that it writes, in one kernel, for steps of up to GPU_FUSED_ROWS
 * rows; h.y is not written. y must be apart from the operands of h. Only where gpu_has_attention_heads. */
enum {
    GPU_FEW_ROWS = 64, /* rows of a step up to which attention computes each row by itself */
    GPU_FUSED_ROWS = 8 /* with more, blocks of attention would compute the same keys many times */
};
bool gpu_has_attention_heads(const gpu_attention *a, const gpu_heads *h, int32_t shared_limit);
int gpu_attention_heads(const gpu_launch *l, const gpu_step *s, const gpu_attention *a, const gpu_heads *h,
                        const gpu_array *y);
/* Raise the limits of shared memory of the kernels that need more than 48 KB, on the current device. */
int gpu_attention_open(int32_t shared_limit);
int gpu_products_open(bool hopper, int32_t *clusters);

#ifdef __cplusplus
}
#endif
#endif
