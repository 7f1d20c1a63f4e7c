/* Queues and KV pages of the MLX device: page tables in host memory, and jobs on pages, which the host does
 * in place. A layer's part of a page has the keys [K, page_len, E] and then the values [K, page_len, Ev]. */
#include "mlx_device.h"

extern "C" {
#include "../../quant/affine.h"
}

#include <cstring>

void mlx_queue_close(ln_queue **queue) {
    delete *queue;
    *queue = nullptr;
}

ln_status mlx_queue_open(ln_dev *d, const ln_queue_options *opt, ln_queue **out, ln_error *err) {
    *out = nullptr;
    try {
        ln_queue *q = new ln_queue{};
        *out = q;
        q->dev = d;
        q->n_slots = opt->n_slots, q->n_blocks = opt->n_blocks;
        for (int c = 0; opt->kv && c < opt->kv->n_groups; c++) {
            q->pages_per_block[c] = opt->kv->groups[c].pages_per_block;
            q->pages[c].assign((size_t)opt->n_slots * (size_t)opt->n_blocks * (size_t)q->pages_per_block[c],
                               -1);
        }
    } catch (const std::exception &) {
        mlx_queue_close(out);
        return LN_OOM(err, "page tables");
    }
    return LN_OK;
}

/* Bytes of the keys, or of the values, of a layer in a page. */
static int64_t half_bytes(const ln_page_job *j, bool values) {
    return (int64_t)j->n_kv_heads * (values ? j->v_dim : j->head_dim) * j->page_len *
           ln_dtype_bytes(j->dtype);
}

int64_t mlx_kv_bytes(const ln_dev *, const ln_page_job *job) {
    int64_t bytes = (int64_t)(job->head_dim + job->v_dim) * job->page_len * ln_dtype_bytes(job->dtype);
    if (job->kind != LN_STATE_PAGED) return -1; /* the device has no kernels for recurrent state */
    return __builtin_mul_overflow(bytes, (int64_t)job->n_kv_heads, &bytes) ? -1 : bytes;
}

/* Keeps the first n positions of all heads, of the keys or of the values, and zeroes the others. */
static void copy_half(const ln_page_job *j, int layer, bool values) {
    const int64_t row = (values ? j->v_dim : j->head_dim) * ln_dtype_bytes(j->dtype),
                  piece = row * j->page_len;
    const int64_t at = layer * j->layer_bytes + (values ? half_bytes(j, false) : 0);
    char *to = (char *)j->pool + j->to + at;
    const char *from = (const char *)j->pool + j->from + at;
    for (int h = 0; h < j->n_kv_heads; h++, to += piece, from += piece) {
        if (to != from) memmove(to, from, (size_t)(row * j->n));
        memset(to + row * j->n, 0, (size_t)(piece - row * j->n));
    }
}

/* Converts keys, f32 [K, E, page_len], or values, f32 [K, page_len, Ev], to or from a page. */
static void convert_half(const ln_page_job *j, bool values, float *numbers) {
    if (!numbers) return;
    const bool pack = j->op == LN_PAGE_PACK;
    const int64_t E = values ? j->v_dim : j->head_dim, len = j->page_len;
    char *half = (char *)j->pool + (pack ? j->to : j->from) + (values ? half_bytes(j, false) : 0);
    for (int64_t h = 0; h < j->n_kv_heads; h++)
        for (int64_t p = 0; p < len; p++)
            for (int64_t e = 0; e < E; e++) {
                float *x = &numbers[h * E * len + (values ? p * E + e : e * len + p)];
                const int64_t at = (h * len + p) * E + e;
                if (pack) ln_num_store(half, j->dtype, at, *x);
                else *x = ln_num_load(half, j->dtype, at);
            }
}

ln_status mlx_page(ln_queue *q, const ln_page_job *job, ln_error *err) {
    return q->dev->thread.run(
        [&](ln_error *) {
            if (job->op == LN_PAGE_COPY)
                for (int i = 0; i < job->n_layers; i++) copy_half(job, i, false), copy_half(job, i, true);
            else convert_half(job, false, job->keys), convert_half(job, true, job->values);
            return LN_OK;
        },
        err);
}
