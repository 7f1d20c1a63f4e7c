/* Ops: shape rules, costs, and the reference kernels, which are plain C and the specification of every fast
 * kernel.
 *
 * The reference kernels are written once over the scalar type `real` and compiled twice, for float and double
 * (scalar_type.h). The float kernels fix the ORDER of every accumulation, so that a fast kernel can be
 * compared with them bit for bit. A "chain" is a sequential accumulation: one fma after the other into one
 * accumulator. "16 lanes" is an accumulation in 16 partial sums, lane = index mod 16, index ascending,
 * followed by a pairwise (tree) reduction of the lanes: l + (l+8), then +4, +2, +1.
 *
 *   linear      by the product of the format of x and the stored form of w (quant/formats.def):
 *     F32_DENSE, BF16_DENSE
 *               y[r][d] = chain of fma over c = 0 .. C-1, starting at 0, then + bias. There is no blocking
 *               and there are no lanes over C.
 *     F32_BF16, BF16_BF16
 *               the same, but the chain takes columns in pairs, the odd one first (1, 0, 3, 2, ...), as
 *               VDPBF16PS does.
 *     F32_AFFINE  the weight is s q + b, unrounded, factored by group of columns: p = chain of fma of
 *               q[c] * x[c] over the group's columns in order, from 0; t = sum of the group's x[c] in 16
 *               lanes (plain adds); then, groups in order, y = fma(s, p, y), y = fma(b, t, y), from 0; then
 *               + bias. An x[c] below LN_Q_TINY in magnitude counts as 0, so that a kernel need not shift a
 *               code out of its 32-bit word: it may multiply the code at bit k, which is 2^k times too
 *               large, by x 2^-k.
 *     BF16_AFFINE
 *               the weight is s q + b rounded to bf16 (of bf16 scales once, of others after a rounding to
 *               f32), x is rounded to bf16: chain of fma over c as F32_DENSE. Only GPUs use it.
 *     BFP_AFFINE  x is block floating point, v u by group, with t the sum of a group (quant/block_float.h):
 *               p = sum of q[c] v[c] over the group's columns, an integer below 2^30, exact in any order;
 *               then, groups in order, y = fma(s, (float)p u, y), y = fma(b, t, y), from 0; then + bias.
 *               The conversion of x rounds to nearest even.
 *     I8PAIR_AFFINE
 *               x and the weights of an output are integers of two int8 digits times one scale each:
 *               y = t (u e), t from sums of products of digits over all columns, exact in any order
 *               (quant/block_float.h); then + bias. Only the AMX level uses it.
 *     F32_E4M3, F32_E5M2, F32_E2M1, F32_ZEROED
 *               the weight of coded rows is a number in f32 (quant/coded.h): fma of w[c] * x[c] over
 *               c = 0 .. C-1 in 16 lanes; then + bias.
 *     BF16_E4M3, BF16_E5M2
 *               the same with the scale rounded to bf16, then the weight, and x. Only GPUs use them.
 *   linear_gated
 *               two such products, then the activation of the first times the second.
 *   embed       table[id] * scale; of affine groups fma(s, q, b) * scale, of coded rows their f32 number
 *               times scale.
 *   experts, experts_back
 *               as linear and linear_back, with the matrix of each row's expert.
 *   route       see route_op.c.
 *   fold_rows   y = fma(s, x, y), rows in order, from 0; without s plain adds.
 *   rmsnorm     the sum of squares in 16 lanes by fma. mean = sum / C; r = 1 / sqrtf(mean + eps);
 *               y = (x * r) * (w + offset).
 *   attn_paged  see LN_ATTN_SPLIT below.
 *   matmul      one chain of fma over what is summed, ascending, from 0.
 *   linear_back one chain of fma over d ascending, from 0, of dy[d] times the weight as a number: s q + b by
 *               fma, of coded rows in f32.
 *   sum         a row in 16 lanes by plain adds, reduced pairwise; all elements: the rows' sums in order; a
 *               column: rows in order.
 *   rmsnorm_back
 *               g = dy (w + offset); the sum of g x in 16 lanes by fma; dx = r (g - x (r^2 sum / C)).
 *   attn, attn_back
 *               see packed_attention_op.c.
 *   linear_cross_entropy
 *               see linear_back_op.c.
 *   exp, tanh, silu, gelu
 *               the float functions of base/elementary.h.
 *
 * Every fast kernel must give the same bits; tests/kernels compares for equality. The exceptions are on the
 * AMX level, whose accumulation orders differ: linear from bf16 weights by tiles
 * (device/cpu/gemm/gemm_bf16_amx.inc.h) and attention over bf16 pages (device/cpu/attention/attn_amx.inc.h);
 * tests/kernels has a model of each. */
#ifndef LN_OPS_H
#define LN_OPS_H

#include "../quant/coded.h"
#include "../quant/formats.h"
#include "../graph/program.h"
#include "kv_layout.h"

#define LN_Q_TINY 0x1p-96f
static inline float ln_q_x(float x) { return x < LN_Q_TINY && x > -LN_Q_TINY ? 0.0f : x; }

/* One operand of a call: a value of the program with its address and its live rows. `pitch` is the distance
 * between rows, in elements. The data of a weight in affine groups is an ln_affine and that of one in coded
 * rows an ln_coded, whose rows follow each other without padding. The data of a weight in compressed bf16
 * has the device's packed layout
 * (device/cpu/pack/bf12.h), which dtype, rows and cols do not describe. All data is borrowed. */
typedef struct ln_arg {
    void *data;
    int64_t rows, cols, pitch;
    uint8_t dtype;    /* ln_dtype of a stored element: LN_BF16 of temps whose layout is narrow */
    ln_format format; /* of temps; of an encoded weight bits and group are those of its encoding */
    uint8_t layout;   /* of temps: that of the live rows (ln_live_layout) */
    bool bf12;        /* a weight in compressed bf16 (ln_pvalue.layout_id of the CPU device) */
    bool coded;       /* a weight in coded rows */
} ln_arg;
static inline bool ln_arg_is_bf16(const ln_arg *a) { return a->format.kind == LN_FORMAT_BF16; }
/* A call of a kernel for partition `thread` of n_threads. The kernel computes that partition and nothing
 * else: ROWWISE ops partition the rows (ln_partition(rows, 1)); other ops partition the outputs in any way
 * that never splits a reduction. */
struct ln_kernel_table;
struct ln_transport;
typedef struct ln_call {
    const ln_pnode *node;
    struct ln_transport *ranks;          /* of collectives; NULL: there is one rank */
    const struct ln_kernel_table *table; /* the device's kernels, for one that is made of others; or NULL */
    ln_arg in[LN_NODE_IN], out[LN_NODE_OUT];
    const ln_step *step;
    int thread, n_threads;
    void *scratch; /* working memory of the calling thread: ln_kernel.scratch bytes, 64-byte aligned, not
                      initialised */
} ln_call;
typedef void ln_kernel_fn(const ln_call *c);

/* The order in which a partition of a small-M call (at least one row) reads its weights, for software
 * prefetch: blocks that are stored one after the other, n of them at a time, one cache line of each in
 * rotation. */
typedef struct ln_reads {
    const uint8_t *at, *end;
    int64_t block; /* bytes of a block */
    int n;
    int64_t second; /* byte offset from these lines to those of a second weight that is read at the same time;
                       0: none */
} ln_reads;

typedef struct ln_kernel {
    ln_kernel_fn *fn;
    /* bytes of scratch that each thread needs for this node at these bounds; NULL: none */
    size_t (*scratch)(const ln_program *p, const ln_pnode *n, const ln_bounds *b);
    /* The same for a kernel that runs others of the table; NULL: it runs none. */
    size_t (*composed_scratch)(const struct ln_kernel_table *t, const ln_program *p, const ln_pnode *n,
                               const ln_bounds *b);
    /* How a thread's partition may be cut into chunks, each a call with n_threads multiplied. Large M: into
     * `pieces` chunks (0 or 1: not cut). Small M: into chunks of any size where `reads` describes the weights
     * that a partition reads (NULL: not cut). */
    int pieces;
    void (*reads)(const ln_call *c, ln_reads *out);
} ln_kernel;

/* The kernels of a device: for each op one for each of its variants.
 *
 *   linear, linear_gated, experts
 *                          the product (ln_product)
 *   embed                  the stored form of the table (ln_stored)
 *   convert                the format that it converts to (ln_format_kind)
 *   attn_paged             0: pages of f32; 1: of bf16; 2, 3: of 8 bits, read as f32 and as bf16
 *   short_conv             1: at most LN_RECUR_TAPS taps
 *   gated_delta            1: widths and chunks are multiples of 16
 *   matmul                 which operand is transposed (ln_matmul_kind)
 *   linear_back, experts_back, linear_cross_entropy
 *                          the stored form of the weight (ln_stored)
 *   other ops              0 */
enum {
    LN_VARIANTS = (int)LN_PRODUCT_COUNT > (int)LN_FORMAT_COUNT ? (int)LN_PRODUCT_COUNT : (int)LN_FORMAT_COUNT
};
_Static_assert((int)LN_STORED_COUNT <= LN_VARIANTS, "variants of an op");
typedef struct ln_kernel_table {
    ln_kernel of[LN_OP_COUNT][LN_VARIANTS]; /* fn NULL: the device has none */
} ln_kernel_table;
/* The variant of an op with these parameters (ln_p_*), format of operand 0 and stored form of the weight. */
int ln_variant_of(ln_op op, const void *params, ln_format x, ln_stored w);
/* The variant of a node of a program; -1: there is no product of its operands. */
int ln_node_variant(const ln_program *p, const ln_pnode *n);
/* The kernel of a node in a table; NULL: there is none. */
static inline const ln_kernel *ln_kernel_of(const ln_kernel_table *t, ln_op op, int variant) {
    return variant >= 0 && t->of[op][variant].fn ? &t->of[op][variant] : NULL;
}

/* A list of kernels as data, which ends with a row of no variants. */
typedef struct ln_kernel_row {
    ln_op op;
    unsigned variants; /* a bit for each */
    ln_kernel kernel;
} ln_kernel_row;
/* Puts the kernels of a list into the table. */
void ln_kernels_add(ln_kernel_table *t, const ln_kernel_row *rows);
/* Variants of linear by the stored form of the weight, of embed by that of the table. */
enum {
    LN_ANY_DENSE_PRODUCT = 1 << LN_PRODUCT_F32_DENSE | 1 << LN_PRODUCT_BF16_DENSE | 1 << LN_PRODUCT_F32_BF16 |
                           1 << LN_PRODUCT_BF16_BF16,
    LN_ANY_BF16_PRODUCT = 1 << LN_PRODUCT_F32_BF16 | 1 << LN_PRODUCT_BF16_BF16,
    LN_DENSE_TABLES = 1 << LN_STORED_DENSE | 1 << LN_STORED_BF16,
    LN_ANY_STORED = LN_DENSE_TABLES | 1 << LN_STORED_AFFINE,
    LN_CODED = 1 << LN_STORED_E4M3 | 1 << LN_STORED_E5M2 | 1 << LN_STORED_E2M1 | 1 << LN_STORED_ZEROED,
    LN_CODED_PRODUCTS = 1 << LN_PRODUCT_F32_E4M3 | 1 << LN_PRODUCT_F32_E5M2 | 1 << LN_PRODUCT_F32_E2M1 |
                        1 << LN_PRODUCT_F32_ZEROED,
    /* products of all vector levels of the CPU */
    LN_VECTOR_PRODUCTS =
        LN_ANY_DENSE_PRODUCT | 1 << LN_PRODUCT_F32_AFFINE | 1 << LN_PRODUCT_BFP_AFFINE | LN_CODED_PRODUCTS
};

/* Fill the table with the reference kernels of one scalar type. ln_ref_kernels_float is also the plain ISA
 * level of the CPU device. */
void ln_ref_kernels_float(ln_kernel_table *t);
void ln_ref_kernels_double(ln_kernel_table *t);

/* Resolves the operands of a lowered program whose bindings are set: *out is one call for each node, in the
 * order of the program, for thread 0 of 1 and the program's bounds, allocated in the caller's arena. `temp`:
 * a block of program.temp_bytes. A device copies a call, sets thread, n_threads and scratch, and runs its
 * kernel. ranks, borrowed: of collectives; NULL: there is one rank. LN_EMEMORY; LN_EINTERNAL when a value
 * has no address, or the program is one of another number of ranks. */
ln_status ln_calls_new(const ln_program *p, void *temp, struct ln_transport *ranks, ln_arena *arena,
                       ln_call **out, ln_error *err);
/* Sets the live rows of all calls from the step's counts, and c->step, which is borrowed. */
void ln_calls_live(const ln_program *p, ln_call *calls, const ln_step *step);

/* Attention: the order of its arithmetic in float, for one row and query head h, whose KV head is h / (H /
 * K). Positions are cut into splits at absolute multiples of LN_ATTN_SPLIT. For each split that holds a
 * visible position:
 *
 *   s[j] = (chain of fma over e = 0 .. E-1 of q[e] * k[j][e], from 0) * scale for visible j, else -inf;
 *          over bf16 pages in pairs, the odd e first, a last one without a partner alone; with a softcap c
 *          then ln_softcapf(s[j], c)
 *   m    = max s
 *   w[j] = ln_expf(s[j] - m), 0 when not visible; over bf16 pages w[j] is rounded to bf16
 *   (pages of 8 bits that are read as bf16 count as bf16 pages)
 *   l    = sum of w in 16 lanes (lane = j mod 16, ascending, plain adds), reduced pairwise
 *   o[e] = chain of fma over j ascending of w[j] * v[j][e], from 0; over bf16 pages in pairs, the odd j
 *          first where both are visible
 *
 * Splits are merged in ascending order (online softmax). First split: M = m, L = l, O = o. Each further
 * split:
 *
 *   M' = max(M, m); a = ln_expf(M - M'); b = ln_expf(m - M')
 *   L  = L * a + l * b
 *   O  = O * a + o * b (a multiplication, then an fma: fmaf(o, b, O * a))
 *
 * A head with a sink begins with it as a split before the first: M = sink, L = 1, O = 0, and the first split
 * is merged, too.
 *
 * y = O / L. Splits without a visible position are never read, so their pages may have been freed. */
#define LN_ATTN_SPLIT 256
/* The first and the last position that a row at position pos of sequence b attends to. */
static inline int64_t ln_attn_first(const ln_p_attn *p, int64_t pos) {
    return p->window > 0 && pos >= p->window ? pos - p->window + 1 : 0;
}
static inline int64_t ln_attn_last(const ln_p_attn *p, const ln_step *s, int b, int64_t pos) {
    if (!p->both_ways) return pos;
    const int64_t end = s->pos[s->row0[b + 1] - 1];
    return p->window > 0 ? LN_MIN(end, pos + p->window - 1) : end;
}
/* The delta rule: the order of its arithmetic in float, for row t of a chunk and one value head. The chunk
 * begins at an absolute multiple of the page length. S is the state before its first row, k_j and u_j are
 * what its row j has stored, g_t is the plain sum of the logarithms of the decays of rows 0 .. t.
 *
 *   k, q  x r with r = 1 / sqrtf(sum + LN_RECUR_EPS), the sum of squares in 16 lanes by fma; q then times
 *         1 / sqrt(E); k is rounded to bf16 if the state is
 *   x[e]  fma(-ln_expf(g_t), p[e], v[e]), p[e] = chain of fma over i of S[i][e] k[i], from 0; then, j
 *         ascending from 0 to t - 1, x = fma(-w_j, u_j[e], x), w_j = ln_expf(g_t - g_j) times the chain over
 *         i of k_j[i] k[i]
 *   u_t   beta x, rounded to bf16 if the state is
 *   y[e]  ln_expf(g_t) times the chain over i of S[i][e] q[i]; then, j from 0 to t, y = fma(w_j, u_j[e], y),
 *         w_j as above with q in place of k
 *   S     of the next chunk of n rows: x = ln_expf(g_(n-1)) S[i][e]; then, j ascending, x = fma(k_j[i],
 *         ln_expf(g_(n-1) - g_j) u_j[e], x)
 *
 * short_conv: one chain of fma over the taps, the oldest first, from 0, of inputs that are rounded to bf16
 * if the state is. Then + b, then ln_siluf. delta_gates: -ln_expf(A_log) times softplus, max(x, 0) +
 * (float)log(1 + (double)ln_expf(-|x|)). */
#define LN_RECUR_TAPS 32 /* of the convolutions that vector kernels compute */
/* Outputs of a split of linear_cross_entropy (linear_back_op.c). */
#define LN_CE_SPLIT 256

#endif
