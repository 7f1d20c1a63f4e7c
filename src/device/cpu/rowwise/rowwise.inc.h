/* The row-wise ops on a vector ISA level: plain C over the functions of base/elementary.h, vectorised by the
 * compiler, and SIMD wrappers where it does not see how. Pointwise ops, gather and RoPE are here; the others
 * in files of their own (rowwise_quantize, _norm, _embed, _kv, _back, _lora), which are parts of this one.
 *
 *     for row in this thread's partition
 *       for element
 *
 * The source of the arithmetic is the reference's (base/elementary.h, and the 16 lanes of rmsnorm as ops.h
 * orders them), so the bits are too; what the ISA level adds are wide instructions, and fmaf as one of them.
 * Every kernel partitions rows by ln_partition(rows, 1), because the nodes of a stage follow each other row
 * by row without a barrier. Pointers are not restrict: an output may be stored in place of input 0, and no
 * loop reads an element after writing it. Included once per ISA level, after its simd header. */
#include "../../../base/thread_pool.h"
#include "../../../ops/lora_slot.h"
#include "../../../ops/ops.h"
#include "../cpu.h"
#include "../simd/simd_activation.inc.h"
#include "../pack/bf12.h"
#include "../tuning.h"

/* This thread's rows [lo, hi). */
#define PARTITION_ROWS(c, lo, hi) \
    int64_t lo, hi;               \
    ln_partition((c)->out[0].rows, 1, (c)->thread, (c)->n_threads, &lo, &hi)

static inline const float *row_in(const ln_call *c, int i, int64_t r) {
    return (const float *)c->in[i].data + r * c->in[i].pitch;
}
/* Element i of row r of output 0. */
static inline void *output_at(const ln_call *c, int64_t r, int64_t i) {
    return (char *)c->out[0].data + (r * c->out[0].pitch + i) * ln_dtype_bytes(c->out[0].dtype);
}
static inline float *row_out(const ln_call *c, int64_t r) { return output_at(c, r, 0); }

/* How an op that ROUNDS stores a value. `store` is a constant in every loop: BY_STORE makes one loop for
 * each. */
enum {
    STORE_F32,     /* as it is */
    STORE_ROUNDED, /* rounded to bf16, in f32 */
    STORE_BF16     /* rounded, in two bytes */
};
#define INLINE_ROW static inline __attribute__((always_inline)) void
INLINE_ROW store_as(void *y, int64_t i, float x, const int store) {
    if (store == STORE_BF16) ((uint16_t *)y)[i] = ln_f32_bf16(x);
    else ((float *)y)[i] = store == STORE_ROUNDED ? ln_bf16_f32(ln_f32_bf16(x)) : x;
}
#define BY_STORE(c, row, ...)                                                   \
    do {                                                                        \
        if ((c)->out[0].dtype == LN_BF16) row(__VA_ARGS__, STORE_BF16);         \
        else if (ln_arg_is_bf16(&(c)->out[0])) row(__VA_ARGS__, STORE_ROUNDED); \
        else row(__VA_ARGS__, STORE_F32);                                       \
    } while (0)

#define EACH_ROW(name)                                                                        \
    static void name##_run(const ln_call *c) {                                                \
        PARTITION_ROWS(c, lo, hi);                                                            \
        const int other = c->node->n_in - 1;                                                  \
        for (int64_t r = lo; r < hi; r++)                                                     \
            BY_STORE(c, name##_row, row_in(c, 0, r), row_in(c, other, r), output_at(c, r, 0), \
                     c->out[0].cols);                                                         \
    }
#define POINTWISE(name, expr)                                                                    \
    INLINE_ROW name##_row(const float *a, const float *b, void *y, int64_t n, const int store) { \
        (void)b;                                                                                 \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) store_as(y, i, (expr), store);      \
    }                                                                                            \
    EACH_ROW(name)
POINTWISE(add, a[i] + b[i])
POINTWISE(mul, a[i] * b[i])
POINTWISE(scale_rows, a[i] * b[0])
POINTWISE(relu2, a[i] <= 0 ? 0 : a[i] * a[i])

/* silu or gelu of n elements, ACT_CHUNK or fewer. */
enum { ACT_CHUNK = tune_rowwise_ACT_CHUNK_all };
INLINE void activation_of(const bool gelu, const float *a, int64_t n, float *y) {
    float padded[ACT_CHUNK] = {0};
    if (n < ACT_CHUNK) memcpy(padded, a, (size_t)n * sizeof *padded), a = padded;
    for (int i = 0; i < ACT_CHUNK; i += VL)
        vf_store(y + i, gelu ? vf_gelu_tanh(vf_load(a + i)) : vf_silu(vf_load(a + i)));
}
#define ACTIVATION(name, gelu, expr)                                                             \
    INLINE_ROW name##_row(const float *a, const float *b, void *y, int64_t n, const int store) { \
        (void)b;                                                                                 \
        for (int64_t at = 0; at < n; at += ACT_CHUNK) {                                          \
            const int64_t m = LN_MIN((int64_t)ACT_CHUNK, n - at);                                \
            float f[ACT_CHUNK];                                                                  \
            activation_of(gelu, a + at, m, f);                                                   \
            if (m == ACT_CHUNK)                                                                  \
                _Pragma("GCC ivdep") for (int64_t i = 0; i < ACT_CHUNK; i++)                     \
                    store_as(y, at + i, (expr), store);                                          \
            else                                                                                 \
                for (int64_t i = 0; i < m; i++) store_as(y, at + i, (expr), store);              \
        }                                                                                        \
    }                                                                                            \
    EACH_ROW(name)
ACTIVATION(silu, false, f[i])
ACTIVATION(gelu_tanh, true, f[i])
ACTIVATION(swiglu, false, f[i] * b[at + i])
ACTIVATION(geglu, true, f[i] * b[at + i])
static void sigmoid_run(const ln_call *c) {
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const float *a = row_in(c, 0, r);
        float *y = row_out(c, r);
#pragma GCC ivdep
        for (int64_t i = 0; i < c->out[0].cols; i++) y[i] = 1 / (1 + ln_expf(-a[i]));
    }
}
static void softcap_run(const ln_call *c) {
    const float cap = c->node->p.scale.factor;
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const float *a = row_in(c, 0, r);
        float *y = row_out(c, r);
#pragma GCC ivdep
        for (int64_t i = 0; i < c->out[0].cols; i++) y[i] = ln_softcapf(a[i], cap);
    }
}
void LN_ISA(ln_cpu_gated_run)(const ln_call *c) {
    (c->node->p.gate.act == LN_ACT_SILU ? swiglu_run : geglu_run)(c);
}

INLINE_ROW copy_row(const float *a, void *y, int64_t n, const int store) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) store_as(y, i, a[i], store);
}
static void bf16_convert_run(const ln_call *c) {
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        copy_row(row_in(c, 0, r), output_at(c, r, 0), c->out[0].cols, STORE_ROUNDED);
}
static void gather_rows_run(const ln_call *c) {
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        BY_STORE(c, copy_row, row_in(c, 0, c->step->out_rows[r]), output_at(c, r, 0), c->out[0].cols);
}

#include "rowwise_quantize.inc.h"
#include "rowwise_norm.inc.h"
#include "rowwise_embed.inc.h"

/* The n pairs of one head: x and y are their first numbers; the second ones are n elements on. */
INLINE_ROW rope_head(const float *x, const float *t, void *y, int64_t half, const int store) {
#pragma GCC ivdep
    for (int64_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half], co = t[i], s = t[i + half];
        store_as(y, i, a * co - b * s, store);
        store_as(y, i + half, b * co + a * s, store);
    }
}
/* The n pairs of one head that are neighbours. */
INLINE_ROW rope_pairs(const float *x, const float *t, void *y, int64_t half, const int store) {
#pragma GCC ivdep
    for (int64_t i = 0; i < half; i++) {
        float a = x[2 * i], b = x[2 * i + 1], co = t[i], s = t[i + half];
        store_as(y, 2 * i, a * co - b * s, store);
        store_as(y, 2 * i + 1, b * co + a * s, store);
    }
}
/* n columns as they are. */
INLINE_ROW rope_rest(const float *x, void *y, int64_t n, const int store) {
    for (int64_t i = 0; i < n; i++) store_as(y, i, x[i], store);
}
static void rope_run(const ln_call *c) {
    const ln_p_heads *p = &c->node->p.heads;
    const int64_t E = p->head_dim, d = c->in[1].cols;
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t h = 0; h < p->n_heads; h++) {
            const float *x = row_in(c, 0, r) + h * E, *t = row_in(c, 1, r);
            if (p->interleaved) BY_STORE(c, rope_pairs, x, t, output_at(c, r, h * E), d / 2);
            else BY_STORE(c, rope_head, x, t, output_at(c, r, h * E), d / 2);
            if (d < E) BY_STORE(c, rope_rest, x + d, output_at(c, r, h * E + d), E - d);
        }
}

#include "rowwise_kv.inc.h"
#include "rowwise_back.inc.h"
#include "rowwise_lora.inc.h"
#include "rowwise_experts.inc.h"

const ln_kernel_row LN_ISA(ln_cpu_rowwise)[] = {
    {LN_OP_EMBED, LN_DENSE_TABLES, {.fn = embed_run}},
    {LN_OP_EMBED, 1 << LN_STORED_AFFINE, {.fn = embed_q_run}},
    {LN_OP_RMSNORM, 1, {.fn = rmsnorm_run}},
    {LN_OP_ADD, 1, {.fn = add_run}},
    {LN_OP_MUL, 1, {.fn = mul_run}},
    {LN_OP_SILU, 1, {.fn = silu_run}},
    {LN_OP_GELU_TANH, 1, {.fn = gelu_tanh_run}},
    {LN_OP_RELU2, 1, {.fn = relu2_run}},
    {LN_OP_SIGMOID, 1, {.fn = sigmoid_run}},
    {LN_OP_SOFTCAP, 1, {.fn = softcap_run}},
    {LN_OP_CLAMP, 1, {.fn = clamp_run}},
    {LN_OP_ROUTE, 1, {.fn = route_run}},
    {LN_OP_FOLD_ROWS, 1, {.fn = fold_rows_run}},
    {LN_OP_GATED, 1, {.fn = LN_ISA(ln_cpu_gated_run)}},
    {LN_OP_ROPE, 1, {.fn = rope_run}},
    {LN_OP_CONVERT, 1 << LN_FORMAT_BF16, {.fn = bf16_convert_run}},
    {LN_OP_CONVERT, 1 << LN_FORMAT_BFP, {.fn = bfp_convert_run}},
    {LN_OP_CONVERT, 1 << LN_FORMAT_I8PAIR, {.fn = i8pair_convert_run}},
    {LN_OP_KV_WRITE, 1, {.fn = kv_write_run}},
    {LN_OP_GATHER_ROWS, 1, {.fn = gather_rows_run}},
    {LN_OP_LOAD, 1, {.fn = load_run}},
    {LN_OP_SCALE, 1, {.fn = scale_run}},
    {LN_OP_SCALE_ROWS, 1, {.fn = scale_rows_run}},
    {LN_OP_ACT_BACK, 1, {.fn = act_back_run}},
    {LN_OP_RMSNORM_BACK, 1, {.fn = rmsnorm_back_run}},
    {LN_OP_LORA_DOWN, 1, {.fn = lora_down_run}},
    {LN_OP_LORA_UP, 1, {.fn = lora_up_run}},
    {0},
};
