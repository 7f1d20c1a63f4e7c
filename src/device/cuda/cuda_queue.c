/* Queues of the CUDA device: a stream, page tables in device memory, copies, and jobs on KV pages.
 *
 * A layer of attention has in its part of a page the keys [K, page_len, width] and then the values in the
 * same layout, width being E rounded up to 8 elements, so that a position of a head is whole vectors of 16
 * bytes. A recurrent layer has the parts of ln_recur_part_of in their order, each at a multiple of 64 bytes,
 * S and decays in f32. */
#include "cuda_exchange.h"
#include "cuda_nccl.h"

#include "../../quant/affine.h"
#include "../../quant/block_int8.h"

#include <string.h>

void gpu_queue_close(ln_queue **queue) {
    ln_queue *q = *queue;
    if (!q) return;
    *queue = NULL;
    (void)gpu_use(q->dev, NULL);
    if (q->stream) (void)cudaStreamSynchronize(q->stream);
    for (int c = 0; c < LN_STATE_GROUPS; c++) (void)cudaFree(q->pages[c]);
    gpu_nccl_close(&q->nccl);
    if (q->stop) (void)cudaFreeHost(q->stop);
    if (q->stream) (void)cudaStreamDestroy(q->stream);
    ln_free(q);
}

/* Allocates the page table of window group c, in which no entry has a page. */
static ln_status open_table(ln_queue *q, int c, const ln_state_pool *kv, int n_slots, ln_error *err) {
    size_t n = (size_t)n_slots * (size_t)q->n_blocks, bytes = 0;
    void *table = NULL;
    if (!ln_mul_size(n, (size_t)kv->groups[c].pages_per_block, &n) ||
        !ln_mul_size(n, sizeof(int32_t), &bytes))
        return LN_OOM(err, "page tables");
    GPU_TRY(cudaMalloc(&table, LN_MAX(bytes, (size_t)1)), "allocating page tables");
    q->pages[c] = table;
    q->pages_per_block[c] = kv->groups[c].pages_per_block;
    GPU_TRY(cudaMemsetAsync(table, 0xff, bytes, q->stream), "allocating page tables");
    return LN_OK;
}

ln_status gpu_queue_open(ln_dev *d, const ln_queue_options *opt, ln_queue **out, ln_error *err) {
    ln_status st = LN_OK;
    *out = NULL;
    ln_queue *q = ln_zalloc(1, sizeof *q);
    if (!q) return LN_OOM(err, "a queue");
    q->dev = d;
    q->n_blocks = opt->n_blocks;
    q->ranks = opt->ranks && opt->ranks->size > 1 ? opt->ranks : NULL;
    LN_GO(gpu_use(d, err));
    GPU_GO(cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking), "opening a queue");
    for (int c = 0; opt->kv && c < opt->kv->n_groups; c++)
        LN_GO(open_table(q, c, opt->kv, opt->n_slots, err));
    GPU_GO(cudaStreamSynchronize(q->stream), "opening a queue");
    *out = q;
    return LN_OK;
out:
    gpu_queue_close(&q);
    return st;
}

ln_status gpu_copy(ln_queue *q, void *to, const void *from, size_t bytes, int how, ln_error *err) {
    LN_TRY(gpu_use(q->dev, err));
    const enum cudaMemcpyKind kind = how == LN_COPY_IN    ? cudaMemcpyHostToDevice
                                     : how == LN_COPY_OUT ? cudaMemcpyDeviceToHost
                                                          : cudaMemcpyDeviceToDevice;
    if (from) GPU_TRY(cudaMemcpyAsync(to, from, bytes, kind, q->stream), "copying");
    else GPU_TRY(cudaMemsetAsync(to, 0, bytes, q->stream), "clearing memory");
    if (from && how != LN_COPY_WITHIN) GPU_TRY(cudaStreamSynchronize(q->stream), "copying");
    return LN_OK;
}

/* ---- pages ---- */

/* Width of a key, or of a value, and bytes of a position of a head. */
static int32_t head_width(const ln_page_job *job, bool values) { return values ? job->v_dim : job->head_dim; }
static size_t row_bytes(const ln_page_job *job, bool values) {
    return (size_t)gpu_kv_width(head_width(job, values)) * (job->q8 ? 1 : (size_t)ln_dtype_bytes(job->dtype));
}
/* Scales of a position of a head in pages of 8 bits, else 0. */
static size_t row_scales(const ln_page_job *job, bool values) {
    return job->q8 ? (size_t)(gpu_kv_width(head_width(job, values)) + LN_BLOCK_INT8 - 1) / LN_BLOCK_INT8 : 0;
}
/* Bytes of the keys, or of the values, of a layer in a page. */
static size_t half_bytes(const ln_page_job *job, bool values) {
    return row_bytes(job, values) * (size_t)job->page_len * (size_t)job->n_kv_heads;
}

int64_t gpu_kv_bytes(const ln_dev *d, const ln_page_job *job) {
    int64_t bytes = (int64_t)(row_bytes(job, false) + row_bytes(job, true) + row_scales(job, false) +
                              row_scales(job, true)) *
                    job->page_len;
    (void)d;
    if (job->kind == LN_STATE_CHUNKS) {
        int64_t at[LN_RECUR_PARTS + 1];
        gpu_recur_offsets(&job->recur, job->page_len, job->dtype, at);
        return at[LN_RECUR_PARTS];
    }
    return __builtin_mul_overflow(bytes, (int64_t)job->n_kv_heads, &bytes) ? -1 : bytes;
}

/* Returns the offset of the scales of the keys, or of the values, in a layer's part of a page. */
static size_t scales_at(const ln_page_job *job, bool values) {
    const size_t keys = row_scales(job, false) * (size_t)job->page_len * (size_t)job->n_kv_heads;
    return half_bytes(job, false) + half_bytes(job, true) + (values ? keys : 0);
}

/* Copies the first n positions of all heads of the keys, or of the values, or their scales, and zeroes the
 * others: K pieces of page_len rows. */
static ln_status copy_half(ln_queue *q, const ln_page_job *job, int layer, bool values, bool scales,
                           ln_error *err) {
    const size_t row = scales ? row_scales(job, values) : row_bytes(job, values),
                 piece = row * (size_t)job->page_len, pieces = (size_t)job->n_kv_heads,
                 kept = row * (size_t)job->n,
                 at = scales   ? scales_at(job, values)
                      : values ? half_bytes(job, false)
                               : 0;
    char *to = (char *)job->pool + job->to + layer * job->layer_bytes + at;
    const char *from = (const char *)job->pool + job->from + layer * job->layer_bytes + at;
    if (to != from && kept)
        GPU_TRY(cudaMemcpy2DAsync(to, piece, from, piece, kept, pieces, cudaMemcpyDeviceToDevice, q->stream),
                "copying a page");
    if (kept < piece)
        GPU_TRY(cudaMemset2DAsync(to + kept, piece, 0, piece - kept, pieces, q->stream), "clearing a page");
    return LN_OK;
}

/* Converts keys or values to or from codes and scales in host memory, block by block. */
static void convert_q8(const ln_page_job *job, bool values, bool pack, float *numbers, int8_t *codes,
                       uint8_t *scales) {
    const int64_t E = head_width(job, values), len = job->page_len, width = gpu_kv_width((int32_t)E),
                  blocks = (int64_t)row_scales(job, values), apart = values ? 1 : len;
    for (int64_t h = 0; h < job->n_kv_heads; h++)
        for (int64_t j = 0; j < len; j++)
            for (int64_t e = 0; e < E; e += LN_BLOCK_INT8) {
                const int n = (int)LN_MIN(E - e, (int64_t)LN_BLOCK_INT8);
                float *x = &numbers[h * E * len + (values ? j * E + e : e * len + j)], block[LN_BLOCK_INT8];
                int8_t *code = codes + (h * len + j) * width + e;
                uint8_t *scale = scales + (h * len + j) * blocks + e / LN_BLOCK_INT8;
                for (int i = 0; i < n; i++) block[i] = x[i * apart];
                if (pack) *scale = ln_block_int8_encode(block, n, code);
                for (int i = 0; i < n && !pack; i++) x[i * apart] = ln_block_int8_value(code[i], *scale);
            }
}
/* Packs or unpacks the keys or the values of a layer of 8 bits by way of host memory. */
static ln_status convert_layer_q8(ln_queue *q, const ln_page_job *job, bool values, float *numbers,
                                  ln_error *err) {
    const bool pack = job->op == LN_PAGE_PACK;
    const size_t bytes = half_bytes(job, values),
                 more = row_scales(job, values) * (size_t)job->page_len * (size_t)job->n_kv_heads;
    char *layer = (char *)job->pool + (pack ? job->to : job->from),
         *codes = layer + (values ? half_bytes(job, false) : 0), *scales = layer + scales_at(job, values),
         *host = ln_zalloc(1, bytes + more);
    ln_status st = LN_OK;
    if (!host) return LN_OOM(err, "a KV page");
    if (!pack) st = gpu_copy(q, host, codes, bytes, LN_COPY_OUT, err);
    if (!pack && st == LN_OK) st = gpu_copy(q, host + bytes, scales, more, LN_COPY_OUT, err);
    if (st == LN_OK) convert_q8(job, values, pack, numbers, (int8_t *)host, (uint8_t *)host + bytes);
    if (pack) st = gpu_copy(q, codes, host, bytes, LN_COPY_IN, err);
    if (pack && st == LN_OK) st = gpu_copy(q, scales, host + bytes, more, LN_COPY_IN, err);
    ln_free(host);
    return st;
}

/* Converts the keys, f32 [K, E, page_len], or the values, f32 [K, page_len, Ev], to or from `half`: this
 * layout in host memory. */
static void convert_half(const ln_page_job *job, bool values, bool pack, float *numbers, void *half) {
    const int64_t E = head_width(job, values), len = job->page_len, width = gpu_kv_width((int32_t)E);
    for (int64_t h = 0; h < job->n_kv_heads; h++)
        for (int64_t j = 0; j < len; j++)
            for (int64_t e = 0; e < E; e++) {
                float *x = &numbers[h * E * len + (values ? j * E + e : e * len + j)];
                const int64_t at = (h * len + j) * width + e;
                if (pack) ln_num_store(half, job->dtype, at, *x);
                else *x = ln_num_load(half, job->dtype, at);
            }
}

/* Packs or unpacks the keys or the values of a layer by way of host memory. */
static ln_status convert_layer(ln_queue *q, const ln_page_job *job, bool values, float *numbers,
                               ln_error *err) {
    const bool pack = job->op == LN_PAGE_PACK;
    if (job->q8) return convert_layer_q8(q, job, values, numbers, err);
    const size_t bytes = half_bytes(job, values);
    char *at = (char *)job->pool + (pack ? job->to : job->from) + (values ? half_bytes(job, false) : 0);
    void *half = ln_zalloc(1, bytes);
    if (!half) return LN_OOM(err, "a KV page");
    ln_status st = LN_OK;
    if (pack) convert_half(job, values, true, numbers, half);
    st =
        pack ? gpu_copy(q, at, half, bytes, LN_COPY_IN, err) : gpu_copy(q, half, at, bytes, LN_COPY_OUT, err);
    if (st == LN_OK && !pack) convert_half(job, values, false, numbers, half);
    ln_free(half);
    return st;
}

/* ---- recurrent state ---- */

static ln_dtype recur_dtype(ln_dtype dtype, int part) { return part < 2 ? LN_F32 : dtype; }
void gpu_recur_offsets(const ln_recur_sizes *z, int64_t len, ln_dtype dtype, int64_t at[LN_RECUR_PARTS + 1]) {
    enum { ALIGN = 64 };
    at[0] = 0;
    for (int i = 0; i < LN_RECUR_PARTS; i++) {
        ln_recur_part p;
        const int64_t bytes = ln_recur_part_of(z, len, i, &p) * ln_dtype_bytes(recur_dtype(dtype, i));
        at[i + 1] = at[i] + (bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
}

/* Zeroes what positions n .. page_len - 1 have in a part. */
static ln_status clear_part(ln_queue *q, const ln_page_job *job, int i, char *part, ln_error *err) {
    ln_recur_part p;
    (void)ln_recur_part_of(&job->recur, job->page_len, i, &p);
    const size_t width = (size_t)ln_dtype_bytes(recur_dtype(job->dtype, i)), row = (size_t)p.cols * width,
                 kept = (size_t)(p.lead + job->n) * (p.by_row ? row : width),
                 pitch = p.by_row ? (size_t)p.rows * row : row,
                 n = (size_t)(p.by_row ? p.outer : p.outer * p.rows);
    if ((p.by_row || p.by_col) && n > 0 && kept < pitch)
        GPU_TRY(cudaMemset2DAsync(part + kept, pitch, 0, pitch - kept, n, q->stream), "clearing a page");
    return LN_OK;
}
static ln_status copy_state(ln_queue *q, const ln_page_job *job, int layer, ln_error *err) {
    char *to = (char *)job->pool + job->to + layer * job->layer_bytes;
    const char *from = (const char *)job->pool + job->from + layer * job->layer_bytes;
    int64_t at[LN_RECUR_PARTS + 1];
    gpu_recur_offsets(&job->recur, job->page_len, job->dtype, at);
    if (to != from)
        GPU_TRY(cudaMemcpyAsync(to, from, (size_t)at[LN_RECUR_PARTS], cudaMemcpyDeviceToDevice, q->stream),
                "copying a page");
    for (int i = 0; i < LN_RECUR_PARTS; i++) LN_TRY(clear_part(q, job, i, to + at[i], err));
    return LN_OK;
}
/* Packs or unpacks the state of a layer by way of host memory. */
static ln_status convert_state(ln_queue *q, const ln_page_job *job, ln_error *err) {
    const bool pack = job->op == LN_PAGE_PACK;
    int64_t at[LN_RECUR_PARTS + 1];
    gpu_recur_offsets(&job->recur, job->page_len, job->dtype, at);
    const size_t bytes = (size_t)at[LN_RECUR_PARTS];
    char *layer = (char *)job->pool + (pack ? job->to : job->from), *copy = ln_zalloc(1, bytes);
    float *numbers = job->keys;
    if (!copy) return LN_OOM(err, "a page of recurrent state");
    ln_status st = pack ? LN_OK : gpu_copy(q, copy, layer, bytes, LN_COPY_OUT, err);
    for (int i = 0; st == LN_OK && i < LN_RECUR_PARTS; i++) {
        ln_recur_part p;
        const int64_t n = ln_recur_part_of(&job->recur, job->page_len, i, &p);
        for (int64_t k = 0; k < n; k++, numbers++) {
            if (pack) ln_num_store(copy + at[i], recur_dtype(job->dtype, i), k, *numbers);
            else *numbers = ln_num_load(copy + at[i], recur_dtype(job->dtype, i), k);
        }
    }
    if (st == LN_OK && pack) st = gpu_copy(q, layer, copy, bytes, LN_COPY_IN, err);
    ln_free(copy);
    return st;
}
static ln_status recur_page(ln_queue *q, const ln_page_job *job, ln_error *err) {
    for (int i = 0; job->op == LN_PAGE_COPY && i < job->n_layers; i++) LN_TRY(copy_state(q, job, i, err));
    return job->op != LN_PAGE_COPY && job->keys ? convert_state(q, job, err) : LN_OK;
}

ln_status gpu_page(ln_queue *q, const ln_page_job *job, ln_error *err) {
    LN_TRY(gpu_use(q->dev, err));
    if (job->kind == LN_STATE_CHUNKS) return recur_page(q, job, err);
    for (int i = 0; job->op == LN_PAGE_COPY && i < 2 * job->n_layers; i++)
        for (int scales = 0; scales <= job->q8; scales++)
            LN_TRY(copy_half(q, job, i / 2, i % 2, scales, err));
    if (job->op == LN_PAGE_COPY) return LN_OK;
    if (job->keys) LN_TRY(convert_layer(q, job, false, job->keys, err));
    if (job->values) LN_TRY(convert_layer(q, job, true, job->values, err));
    return LN_OK;
}
