/* KV pages in host memory, in the layout of kv_layout.h: pack, unpack, and copy with zeros behind the end. */
#include "kv_pages.h"

#include "kv_layout.h"
#include "recur_layout.h"

#include <string.h>

#ifdef LN_REAL_FLOAT

static ln_p_kv geometry(const ln_page_job *job) {
    return (ln_p_kv){.n_kv_heads = job->n_kv_heads,
                     .head_dim = job->head_dim,
                     .v_dim = job->v_dim,
                     .page_len = job->page_len,
                     .dtype = job->dtype,
                     .q8 = job->q8};
}
static size_t element_bytes(const ln_page_job *job, int real_bytes) {
    return job->q8 ? 1 : job->dtype == LN_BF16 ? 2 : (size_t)real_bytes;
}

/* Element i of a layer in a page. */
static float load(const void *layer, ln_dtype t, int real_bytes, int64_t i) {
    if (t == LN_F32 && real_bytes == 8) return (float)((const double *)layer)[i];
    return ln_num_load(layer, t, i);
}
static void store(void *layer, ln_dtype t, int real_bytes, int64_t i, float x) {
    if (t == LN_F32 && real_bytes == 8) ((double *)layer)[i] = x;
    else ln_num_store(layer, t, i, x);
}

/* ---- recurrent state ---- */

static ln_p_recur recur_of(const ln_page_job *job) {
    const ln_recur_sizes *z = &job->recur;
    return (ln_p_recur){.page_len = job->page_len,
                        .taps = z->taps,
                        .channels = z->channels,
                        .n_k_heads = z->n_k_heads,
                        .n_v_heads = z->n_v_heads,
                        .k_dim = z->k_dim,
                        .v_dim = z->v_dim,
                        .dtype = job->dtype};
}

/* Offsets of the parts in a page, and their types. */
static void recur_offsets(const ln_page_job *job, int real_bytes, int64_t at[LN_RECUR_PARTS],
                          ln_dtype dtype[LN_RECUR_PARTS]) {
    const ln_p_recur p = recur_of(job);
    const ln_recur_parts all = ln_recur_parts_of(&p, real_bytes);
    const int64_t offsets[LN_RECUR_PARTS] = {all.s, all.decays, all.keys, all.values, all.inputs};
    for (int i = 0; i < LN_RECUR_PARTS; i++) at[i] = offsets[i], dtype[i] = i < 2 ? LN_F32 : p.dtype;
}

static void recur_copy(const ln_page_job *job, int real_bytes, char *to, const char *from) {
    int64_t offsets[LN_RECUR_PARTS];
    ln_dtype dtype[LN_RECUR_PARTS];
    if (to != from) memcpy(to, from, (size_t)job->layer_bytes);
    recur_offsets(job, real_bytes, offsets, dtype);
    for (int i = 0; i < LN_RECUR_PARTS; i++) {
        ln_recur_part p;
        (void)ln_recur_part_of(&job->recur, job->page_len, i, &p);
        const size_t width = dtype[i] == LN_BF16 ? 2 : (size_t)real_bytes;
        const int64_t kept = p.lead + job->n;
        char *at = to + offsets[i];
        for (int64_t k = 0; p.by_row && k < p.outer; k++)
            memset(at + (size_t)((k * p.rows + kept) * p.cols) * width, 0,
                   (size_t)((p.rows - kept) * p.cols) * width);
        for (int64_t k = 0; p.by_col && k < p.outer * p.rows; k++)
            memset(at + (size_t)(k * p.cols + kept) * width, 0, (size_t)(p.cols - kept) * width);
    }
}

static void recur_convert(const ln_page_job *job, int real_bytes, float *numbers) {
    int64_t offsets[LN_RECUR_PARTS];
    ln_dtype dtype[LN_RECUR_PARTS];
    char *layer = (char *)job->pool + (job->op == LN_PAGE_PACK ? job->to : job->from);
    recur_offsets(job, real_bytes, offsets, dtype);
    for (int i = 0; i < LN_RECUR_PARTS; i++) {
        ln_recur_part p;
        const int64_t n = ln_recur_part_of(&job->recur, job->page_len, i, &p);
        for (int64_t k = 0; k < n; k++, numbers++) {
            if (job->op == LN_PAGE_PACK) store(layer + offsets[i], dtype[i], real_bytes, k, *numbers);
            else *numbers = load(layer + offsets[i], dtype[i], real_bytes, k);
        }
    }
}

static void recur_page(const ln_page_job *job, int real_bytes) {
    char *pool = job->pool;
    for (int i = 0; job->op == LN_PAGE_COPY && i < job->n_layers; i++)
        recur_copy(job, real_bytes, pool + job->to + i * job->layer_bytes,
                   pool + job->from + i * job->layer_bytes);
    if (job->op != LN_PAGE_COPY && job->keys) recur_convert(job, real_bytes, job->keys);
}

int64_t ln_host_kv_bytes(const ln_page_job *job, int real_bytes) {
    if (job->kind == LN_STATE_CHUNKS) {
        const ln_p_recur p = recur_of(job);
        return ln_recur_parts_of(&p, real_bytes).bytes;
    }
    ln_p_kv one = geometry(job);
    one.n_kv_heads = 1;
    int64_t bytes = ln_kv_layer_bytes(&one, real_bytes);
    return __builtin_mul_overflow(bytes, (int64_t)job->n_kv_heads, &bytes) ? -1 : bytes;
}

/* Zeroes the keys and values of positions n .. page_len - 1 in one layer's part of a page, which has elements
 * of `width` bytes. kv_layout.h has the order: K in blocks of 16 positions, whose lines hold 16 positions of
 * one column, or in bf16 of two; V in groups of 32 positions, and in them blocks of 16 columns of the head,
 * whose lines hold one position, or in bf16 two. */
static void zero_positions(const ln_p_kv *p, char *layer, int64_t n, size_t width) {
    const int64_t wk = ln_kv_width(p->head_dim), wv = ln_kv_width(p->v_dim), len = p->page_len,
                  pair = ln_kv_order(p) == LN_BF16 ? 2 : 1;
    const int64_t lane = n % LN_KV_SIDE, next = (n + LN_KV_SIDE - 1) / LN_KV_SIDE * LN_KV_SIDE;
    const int64_t at = n % LN_KV_STEP, even = (at + pair - 1) / pair * pair,
                  group = (n + LN_KV_STEP - 1) / LN_KV_STEP * LN_KV_STEP;
    for (int64_t h = 0; h < p->n_kv_heads; h++) {
        char *k = layer + (size_t)(h * wk * len) * width,
             *v = layer + (size_t)((p->n_kv_heads * wk + h * wv) * len) * width;
        memset(k + (size_t)(next * wk) * width, 0, (size_t)((len - next) * wk) * width);
        memset(v + (size_t)(group * wv) * width, 0, (size_t)((len - group) * wv) * width);
        for (int64_t line = 0; lane > 0 && line < wk / pair; line++)
            memset(k + (size_t)((n - lane) * wk + (line * LN_KV_SIDE + lane) * pair) * width, 0,
                   (size_t)((LN_KV_SIDE - lane) * pair) * width);
        for (int64_t row = 0; at > 0 && row < wv; row += LN_KV_SIDE) {
            char *block = v + (size_t)((n - at) * wv + row * LN_KV_STEP) * width;
            for (int64_t i = 0; even > at && i < LN_KV_SIDE; i++)
                memset(block + (size_t)ln_kv_at(ln_kv_order(p), LN_KV_STEP, i, at) * width, 0, width);
            memset(block + (size_t)(even * LN_KV_SIDE) * width, 0,
                   (size_t)((LN_KV_STEP - even) * LN_KV_SIDE) * width);
        }
    }
}

/* The same for the scales of a page of 8 bits. */
static void zero_scales(const ln_p_kv *p, char *layer, int64_t n) {
    for (int64_t h = 0; h < p->n_kv_heads; h++)
        for (int64_t at = n; at < p->page_len; at++) {
            for (int64_t e = 0; e < p->head_dim; e += LN_BLOCK_INT8) layer[ln_kv_k_scale(p, h, e, at)] = 0;
            for (int64_t e = 0; e < p->v_dim; e += LN_BLOCK_INT8) layer[ln_kv_v_scale(p, h, e, at)] = 0;
        }
}

static void copy_layers(const ln_page_job *job, int real_bytes) {
    const ln_p_kv p = geometry(job);
    char *to = (char *)job->pool + job->to;
    if (job->to != job->from)
        memcpy(to, (const char *)job->pool + job->from, (size_t)(job->n_layers * job->layer_bytes));
    for (int i = 0; i < job->n_layers; i++) {
        zero_positions(&p, to + i * job->layer_bytes, job->n, element_bytes(job, real_bytes));
        if (p.q8) zero_scales(&p, to + i * job->layer_bytes, job->n);
    }
}

/* Of a page of 8 bits: packs or unpacks block by block. */
static void convert_q8(const ln_page_job *job, bool values, float *rows) {
    const ln_p_kv p = geometry(job);
    const bool pack = job->op == LN_PAGE_PACK;
    char *layer = (char *)job->pool + (pack ? job->to : job->from);
    const int64_t width = values ? p.v_dim : p.head_dim, apart = values ? 1 : p.page_len;
    for (int64_t h = 0; h < p.n_kv_heads; h++)
        for (int64_t at = 0; at < p.page_len; at++)
            for (int64_t e = 0; e < width; e += LN_BLOCK_INT8) {
                const int n = (int)LN_MIN(width - e, (int64_t)LN_BLOCK_INT8);
                float *from = rows + (values ? (h * p.page_len + at) * width + e
                                             : (h * width + e) * p.page_len + at),
                      block[LN_BLOCK_INT8];
                for (int i = 0; i < n && pack; i++) block[i] = from[i * apart];
                if (pack) ln_kv_put_q8(&p, layer, values, h, e, at, block, n);
                for (int i = 0; i < n && !pack; i++)
                    from[i * apart] = ln_kv_q8(&p, layer, values, h, e + i, at);
            }
}

/* Packs or unpacks the keys, f32 [K, E, page_len], or the values, f32 [K, page_len, Ev], of one layer. */
static void convert(const ln_page_job *job, int real_bytes, bool values, float *rows) {
    const ln_p_kv p = geometry(job);
    const bool pack = job->op == LN_PAGE_PACK;
    void *layer = (char *)job->pool + (pack ? job->to : job->from);
    if (p.q8) {
        convert_q8(job, values, rows);
        return;
    }
    const int64_t n_rows = values ? p.page_len : p.head_dim, n_cols = values ? p.v_dim : p.page_len;
    for (int64_t h = 0; h < p.n_kv_heads; h++)
        for (int64_t i = 0; i < n_rows; i++)
            for (int64_t k = 0; k < n_cols; k++, rows++) {
                const int64_t at = values ? ln_kv_v_index(&p, h, k, i) : ln_kv_k_index(&p, h, i, k);
                if (pack) store(layer, p.dtype, real_bytes, at, *rows);
                else *rows = load(layer, p.dtype, real_bytes, at);
            }
}

void ln_host_page(const ln_page_job *job, int real_bytes) {
    if (job->kind == LN_STATE_CHUNKS) {
        recur_page(job, real_bytes);
        return;
    }
    if (job->op == LN_PAGE_COPY) copy_layers(job, real_bytes);
    else if (job->keys) convert(job, real_bytes, false, job->keys);
    if (job->op != LN_PAGE_COPY && job->values) convert(job, real_bytes, true, job->values);
}
#endif
