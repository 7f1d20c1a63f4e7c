/* Kernels of the ops of training and of user graphs: the part of cuda_kernels.h that inference does not
 * need. Sums are in f32, each in one order that depends on shapes alone: no kernel adds atomically. */
#ifndef LN_CUDA_TRAIN_KERNELS_H
#define LN_CUDA_TRAIN_KERNELS_H

#include "cuda_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- products (back_products.cu) ---- */

/* Which operand of a product of two arrays is transposed: the values of ln_matmul_kind. */
enum { GPU_NT, GPU_NN, GPU_TN };
/* Rows that one partial sum of a thin a^T b adds up. */
enum { GPU_PIECE = 256 };
/* Bytes of working memory for y = a^T b of so many rows of a and b; 0: the sums are whole. */
size_t gpu_matmul_scratch(int64_t rows, int64_t y_rows, int64_t y_cols);
/* other: an array that is added to the product, which gpu_adds_matmul allows; NULL: none. by: a factor of the
 * product, if gpu_scales_matmul allows it, else 1. */
int gpu_matmul(const gpu_launch *l, const gpu_step *s, int kind, const gpu_array *a, const gpu_array *b,
               const gpu_array *other, float by, const gpu_array *y, float *scratch);
bool gpu_adds_matmul(int kind, const gpu_array *a, const gpu_array *y);
bool gpu_scales_matmul(int kind, const gpu_array *a, const gpu_array *b, const gpu_array *y);
/* dx = dy w. Tensor cores multiply if dy is stored in bf16 and has a multiple of 64 columns, and w, packed
 * bf16 or in groups, has working memory of `bytes` for transposes. dy may have columns of zeros behind the
 * last. other NULL: nothing is added to the product. gpu_back_scratch: bytes for a weight, 0: tensor cores
 * have no product with it. */
size_t gpu_back_scratch(const gpu_weight *w);
int gpu_linear_back(const gpu_launch *l, const gpu_step *s, const gpu_array *dy, const gpu_weight *w,
                    const gpu_array *dx, const gpu_array *other, void *scratch, size_t bytes);
/* Whether gpu_linear_back can add another array to the product as it stores it. */
bool gpu_adds_back(const gpu_array *dy, size_t bytes);
/* Raises the limits of shared memory of the kernels of training, on the current device. hopper: it has
 * wgmma. */
int gpu_training_open(int32_t shared_limit, bool hopper);

/* ---- rows (back_rows.cu) ---- */

int gpu_load(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_array *y);
/* x NULL: y is `by` everywhere. */
int gpu_spread(const gpu_launch *l, const gpu_step *s, const gpu_array *x, float by, const gpu_array *y);
int gpu_slice_back(const gpu_launch *l, const gpu_step *s, const gpu_array *dy, int64_t at,
                   const gpu_array *dx);
int gpu_reshape(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_array *y);
int gpu_scatter_rows(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_array *y);
/* padding: the id whose row stays 0; -1: none. */
int gpu_embed_back(const gpu_launch *l, const gpu_step *s, const gpu_array *dy, float by, int32_t padding,
                   const gpu_array *table);
typedef struct gpu_dropout {
    uint64_t seed;
    uint32_t site, least; /* least: numbers from it on keep their element */
    float by;
    bool of_outputs;
    const int32_t *samples; /* [B][2] */
} gpu_dropout;
int gpu_drop(const gpu_launch *l, const gpu_step *s, const gpu_dropout *p, const gpu_array *x,
             const gpu_array *y);

/* ---- sums of rows (back_sums.cu) ---- */

/* What a sum adds up: the values of ln_sum_kind. */
enum { GPU_SUM_ALL, GPU_SUM_ROWS, GPU_SUM_COLS };
/* row_sums: working memory for GPU_SUM_ALL, one number for each row of x. */
int gpu_sum(const gpu_launch *l, const gpu_step *s, int kind, const gpu_array *x, float *row_sums,
            const gpu_array *y);
int gpu_softmax(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_array *y);
int gpu_softmax_back(const gpu_launch *l, const gpu_step *s, const gpu_array *y, const gpu_array *dy,
                     const gpu_array *dx);
/* targets: one for each row, in int32. */
int gpu_nll(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const int32_t *targets,
            const gpu_array *y);
int gpu_nll_back(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const int32_t *targets,
                 const gpu_array *dy, const gpu_array *dx);
/* w as gpu_rmsnorm's. other is added to dx, if gpu_adds_rmsnorm_back allows it, and then `also` may get the
 * sum, too, rounded to bf16. Either may have no data. */
int gpu_rmsnorm_back(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_weight *w,
                     const gpu_array *dy, const gpu_array *dx, float eps, float offset,
                     const gpu_array *other, const gpu_array *also);
bool gpu_adds_rmsnorm_back(const gpu_array *x, const gpu_weight *w, const gpu_array *dy,
                           const gpu_array *other, const gpu_array *dx);
/* The gradients of rope, of whole heads whose pairs are half a head apart, and of the rmsnorm of these heads
 * before it, with the bits of both. Whether there is a kernel for these. */
bool gpu_fuses_rope_norm_back(const gpu_array *x, const gpu_weight *w, const gpu_array *dy,
                              const gpu_array *table, const gpu_array *dx);
int gpu_rope_norm_back(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_weight *w,
                       const gpu_array *dy, const gpu_array *table, const gpu_array *dx, float eps,
                       float offset);
/* scratch: gpu_rmsnorm_dw_scratch bytes for so many groups of C columns. */
size_t gpu_rmsnorm_dw_scratch(int64_t groups, int64_t C);
int gpu_rmsnorm_dw(const gpu_launch *l, const gpu_step *s, const gpu_array *x, int64_t C, const gpu_array *dy,
                   const gpu_array *dw, float eps, float *scratch);

/* ---- cross-entropy of a product (cross_entropy.cu) ---- */

/* linear_cross_entropy of x and w; slope.data NULL: only the loss. logits: working memory for `rows` rows of
 * w.D numbers in f32, rounded up to GPU_LOGITS, which are computed at a time. */
enum { GPU_LOGITS = 64 };
typedef struct gpu_cross_entropy {
    gpu_array x, loss, slope;
    gpu_weight w;
    const int32_t *targets;
    void *logits;
    int32_t rows;
    void *scratch; /* of gpu_linear_back */
    size_t scratch_bytes;
} gpu_cross_entropy;
/* The rows that are computed at a time, of so many with V outputs. */
int32_t gpu_cross_entropy_rows(int64_t rows, int64_t V);
int gpu_linear_cross_entropy(const gpu_launch *l, const gpu_step *s, const gpu_cross_entropy *p);

/* ---- attention over the rows of a step (packed_*.cu) ---- */

/* Operands of attn and attn_back: ln_p_packed. q, k, v and dy are f32 or bf16. delta: working memory, a
 * number for each row and query head. */
typedef struct gpu_packed {
    gpu_array q, k, v, y, lse, dy, dq, dk, dv;
    int32_t n_heads, n_kv_heads, head_dim, v_dim;
    float scale, softcap; /* softcap 0: none */
    int64_t window;       /* 0: none */
    const void *sinks;    /* [n_heads] of sink_type; NULL: none */
    int32_t sink_type;
    float *delta;
} gpu_packed;
int gpu_packed_attention(const gpu_launch *l, const gpu_step *s, const gpu_packed *p);
int gpu_packed_attention_back(const gpu_launch *l, const gpu_step *s, const gpu_packed *p);

/* ---- several nodes in one (train_fused.cu), with their bits ---- */

/* y = activation(gate), rounded to bf16, times up; act: GPU_GATE_*. Whether there is a kernel for these: gate
 * and up are bf16. */
bool gpu_fuses_gate(const gpu_array *gate, const gpu_array *up, const gpu_array *y);
int gpu_gate(const gpu_launch *l, const gpu_step *s, int act, const gpu_array *gate, const gpu_array *up,
             const gpu_array *y);
/* Its gradients: dup = dy times the rounded activation; dgate = dy up, rounded to bf16, times the slope. Each
 * output may be one of the inputs. */
int gpu_gate_back(const gpu_launch *l, const gpu_step *s, int act, const gpu_array *gate, const gpu_array *up,
                  const gpu_array *dy, const gpu_array *dgate, const gpu_array *dup);
/* rmsnorm of bf16 heads, then rope of whole heads whose pairs are half a head apart. y may be x. */
bool gpu_fuses_norm_rope(const gpu_array *x, const gpu_weight *w, const gpu_array *table);
int gpu_norm_rope(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_weight *w,
                  const gpu_array *table, const gpu_array *y, float eps, float offset);

#ifdef __cplusplus
}
#endif
#endif
