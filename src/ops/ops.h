/* Everything about an op except fast: shape rules, costs, and the slow reference kernels, which are the specification.
 *
 * The reference kernels are written once over `real` and compiled twice (float, double). The float ones fix the ORDER of every
 * accumulation, so that a fast kernel can be compared with them bit for bit:
 *   linear    y[r][d] = fma chain over c = 0 .. C-1 starting at 0, then + b. Nothing else: no lanes, no blocks. From bf16 weights the chain takes
 *             columns in pairs, 1, 0, 3, 2, ..., as VDPBF16PS does.
 *   linear_swiglu, linear_geglu   two of these, then the function of each pair.
 *   linear_q  the weight is s q + b, unrounded, factored by group of columns: p = fma chain of q[c] * x[c] over the group's columns in order,
 *             from 0; t = sum of its x[c] in 16 lanes (lane = c mod 16, ascending, plain adds), added in halves; then, groups in order,
 *             y = fma(s, p, y), y = fma(b, t, y), from 0; then + bias. An x[c] below LN_Q_TINY in magnitude counts as 0, so that a
 *             kernel may multiply codes where they lie in a word, 2^k times too large, by x 2^-k.
 *   linear_fixed  x is v u by group, t the sum of a group (base/fixed.h): p = sum of q[c] v[c] over the group's columns, a whole number below 2^30, exact in
 *             any order; then, groups in order, y = fma(s, (float)p u, y), y = fma(b, t, y), from 0; then + bias. The conversion rounds to nearest even.
 *   linear_fixed_row   x and the weights of an output are whole numbers times one scale each, of two limbs: y = t (u e), t by sums of products of limbs over all columns,
 *             exact in any order (base/fixed.h); then + bias. Only AMX asks for it.
 *   linear_fixed_row_swiglu, linear_fixed_row_geglu   two of these, then the function of each pair.
 *   embed_q   fma(s, q, b) * scale.
 *   rmsnorm   the sum of squares in 16 lanes: lane l takes c = l, l+16, ... by fma, then lanes are added in halves (l + (l+8),
 *             +4, +2, +1). mean = sum / C; r = 1 / sqrtf(mean + eps); y = (x * r) * (w + offset).
 *   attn      see ln_attn_split below.
 *   exp, tanh, silu, gelu: base/num.h, float forms.
 * Every fast kernel must give the same bits; tests/kernels compares for equality. AMX alone has orders of its own: linear from bf16 weights by
 * tiles (device/cpu/gemm/gemm_bf16_amx.inc.h), attention over bf16 pages (attn_amx.inc.h), with a model of them in tests/kernels. */
#ifndef LN_OPS_H
#define LN_OPS_H

#include "../base/fixed.h"
#include "../graph/pages.h"

#define LN_Q_TINY 0x1p-96f
static inline float ln_q_x(float x) { return x < LN_Q_TINY && x > -LN_Q_TINY ? 0.0f : x; }

/* One operand of a call, resolved: live rows, columns, distance between rows in elements. The data of an encoded weight is an ln_affine,
 * whose rows follow each other without gaps. That of a tight one is in a form of the device's own (device/cpu/pack/bf12.h), of which dtype, rows and cols say nothing. */
typedef struct ln_arg {
    void *data;
    int64_t rows, cols, pitch;
    ln_dtype dtype;
    bool bf16;                 /* every number is a bf16 number (ln_value.bf16) */
    bool tight;                /* a weight in fewer bytes (ln_value.tight) */
    bool panels;               /* rows lie in panels (ln_panel_at) */
} ln_arg;
/* Numbers from data to column c of row r. */
static inline int64_t ln_arg_at(const ln_arg *a, int64_t r, int64_t c) { return a->panels ? ln_panel_at(a->rows, a->pitch, r, c) : r * a->pitch + c; }
/* The same of a row in fixed point by row; `real`: bytes of a number. */
static inline ln_fixed_place ln_arg_fixed(const ln_arg *a, int64_t r, int64_t real) {
    return a->panels ? ln_fixed_panel(a->data, a->rows, a->pitch * real, r) : ln_fixed_row_place((const char *)a->data + r * a->pitch * real, a->cols);
}

/* One call of a kernel by one of n_threads threads. The kernel does its own share and nothing else: ROWWISE ops take
 * ln_share(rows, 1), others any partition of the outputs that never splits a reduction. */
typedef struct ln_call {
    const ln_node *node;
    ln_arg in[LN_NODE_IN], out[LN_NODE_OUT];
    const ln_step *step;
    int thread, n_threads;
    void *scratch;             /* this thread's, ln_kernel.scratch bytes, 64-byte aligned */
} ln_call;
typedef void ln_kernel_fn(const ln_call *c);

/* Weights as a share of few rows, one at least, reads them: blocks that lie one after the other, `n` at a time, a line of each in turn. */
typedef struct ln_reads {
    const uint8_t *at, *end;
    int64_t block;             /* bytes */
    int n;
    int64_t second;            /* bytes from these lines to those of another weight, which are read beside them; 0: there is none */
} ln_reads;

typedef struct ln_kernel {
    ln_kernel_fn *fn;
    /* scratch bytes a thread needs for this node at these bounds; NULL: none */
    size_t (*scratch)(const ln_node *n, const ln_value *values, const ln_bounds *b);
    /* A thread's share may be asked for in pieces, each as a share of one of so many more threads: of many rows so many pieces (0 or 1: in one); of few rows
     * pieces of any size, where `reads` says what weights a share reads (NULL: in one) */
    int pieces;
    void (*reads)(const ln_call *c, ln_reads *out);
} ln_kernel;

/* Fill the table with the reference kernels. The CPU device's plain rung is ln_ref_kernels_float. */
void ln_ref_kernels_float(ln_kernel table[LN_OP_COUNT]);
void ln_ref_kernels_double(ln_kernel table[LN_OP_COUNT]);

/* The calls of a lowered and bound program, for thread 0 of 1 and the program's bounds, in the order of the program, allocated in
 * the caller's arena. A device copies a call, sets thread, n_threads and scratch, and runs its kernel. */
ln_status ln_calls_new(const ln_program *p, void *temp, ln_arena *arena, ln_call **out, ln_error *err);
/* Sets the live rows of all calls from a step, and the step itself. */
void ln_calls_live(const ln_program *p, ln_call *calls, const ln_step *step);

/* Attention, the order of its arithmetic (float). For one row t and head h, with kv head h / (H / K):
 *   positions are cut at absolute multiples of LN_ATTN_SPLIT. For each split that holds a visible position:
 *     s[j] = (fma chain over e = 0 .. E-1 of q[e] * k[j][e], from 0) * scale     for visible j, else -inf; over bf16 pages pair by pair, the odd e first, a lone last one alone
 *     m = max s;  w[j] = ln_expf(s[j] - m), 0 when not visible; over bf16 pages w[j] is rounded to bf16
 *     l = sum of w in 16 lanes (lane = j mod 16, ascending, plain adds), added in halves
 *     o[e] = fma chain over j ascending of w[j] * v[j][e], from 0; over bf16 pages pair by pair, the odd j first where both are visible
 *   splits are merged in ascending order: first split: M = m, L = l, O = o. Then for each next:
 *     M' = max(M, m); a = ln_expf(M - M'); b = ln_expf(m - M'); L = L * a + l * b; O = O * a + o * b (mul, then fma: fmaf(o, b, O * a))
 *   y = O / L.
 * Splits without a visible position are never touched, so dropped pages are never read. */
#define LN_ATTN_SPLIT 256

#endif
