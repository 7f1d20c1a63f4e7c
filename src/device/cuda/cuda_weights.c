/* Weights in device memory. Matrices of bf16, f16 and affine groups of 4 and 8 bits are packed for the tensor
 * cores (fragments.cuh), if they have a multiple of 32 columns and a row fits in a pinned buffer; the others
 * are stored row by row, as files have them.
 *
 *     rows      dense    elements [D][C]
 *               affine   codes [D][C * bits / 32] words | scales [D][C / group] | biases [D][C / group]
 *               coded    codes [D][row] | scales [D][groups] | zero points [D][groups], columns [C]
 *     packed    dense    fragments, D rounded up to 16
 *               affine   fragments of codes | pairs of a scale and a bias, D rounded up to 16
 *               fp8      the same as affine groups of 8 bits, whose biases are 0, with scales in f32; with
 *                        those of e4m3 for fast programs in bf16 (ln_pvalue.layout_id 1)
 *
 * Each part begins at a multiple of GPU_ALIGN bytes. The matrices of experts are stored as one matrix, whose
 * rows are theirs one after another.
 *
 * An upload copies pieces of the file to two pinned buffers alternately, on several threads. The GPU fetches
 * a piece while the next one is copied, by a copy of its own or by the kernel that packs the piece. */
#include "cuda_device.h"

#include <string.h>

void (*gpu_release_pages)(const void *data, size_t bytes);

static size_t aligned(size_t bytes) { return (bytes + GPU_ALIGN - 1) / GPU_ALIGN * GPU_ALIGN; }

/* The parts of a weight, in bytes: a row of codes or elements, of scales and of biases in the file, offsets
 * of scales and biases (packed: both in the part at `scales`) and of the groups of columns, all of it. */
typedef struct parts {
    size_t row, group_row, bias_row, scales, biases, columns, bytes;
    bool packed;
} parts;
static bool is_packed(const ln_weight_desc *w, ln_dtype dtype, int bits, int group, size_t row) {
    const bool has_form = (bits == 4 || bits == 8) ? group >= 32 : bits == 0 && dtype != LN_F32;
    return w->n_dims > 1 && ln_weight_desc_cols(w) % 32 == 0 && has_form && row <= GPU_STAGING;
}
int gpu_fp8_group(ln_encoding e, int64_t cols) {
    static const int sizes[] = {128, 64, 32};
    if (!ln_encoding_is_fp8(e) || cols > GPU_STAGING) return 0;
    for (size_t i = 0; i < LN_COUNT(sizes); i++)
        if (cols % sizes[i] == 0 && ln_coded_width(e, cols) % sizes[i] == 0) return sizes[i];
    return 0;
}
/* Whether a weight is stored in coded rows. */
static bool is_coded(const ln_weight_desc *w) {
    return ln_encoding_is_coded(w->enc) && (w->n_dims < 2 || !gpu_fp8_group(w->enc, ln_weight_desc_cols(w)));
}
static bool is_fp8(const ln_weight_desc *w) { return ln_encoding_is_fp8(w->enc) && !is_coded(w); }
static int bits_of(const ln_weight_desc *w) { return is_fp8(w) ? 8 : ln_encoding_groups(w->enc).bits; }
static int group_of(const ln_weight_desc *w) {
    return is_fp8(w) ? gpu_fp8_group(w->enc, ln_weight_desc_cols(w)) : ln_encoding_groups(w->enc).group;
}
static ln_dtype dtype_of(const ln_weight_desc *w) {
    if (!is_fp8(w)) return (ln_dtype)w->enc.scale;
    return w->uses & LN_USE_FP8 && w->enc.kind == LN_STORED_E4M3 ? LN_BF16 : LN_F32;
}
static parts coded_parts(const ln_weight_desc *w) {
    const int64_t C = ln_weight_desc_cols(w);
    const ln_row_bytes row = ln_encoding_row(w->enc, C);
    const size_t D = (size_t)ln_weight_desc_rows(w);
    parts p = {.row = (size_t)row.data, .group_row = (size_t)row.scales, .bias_row = (size_t)row.offsets};
    p.scales = aligned(p.row * D);
    p.biases = p.scales + aligned(p.group_row * D);
    p.columns = p.biases + aligned(p.bias_row * D);
    p.bytes = p.bias_row > 0 ? p.columns + (size_t)C * sizeof(uint16_t) : p.columns;
    return p;
}
static parts parts_of(const ln_weight_desc *w) {
    if (is_coded(w)) return coded_parts(w);
    const int64_t C = ln_weight_desc_cols(w), rows = ln_weight_desc_rows(w);
    const size_t element = (size_t)ln_dtype_bytes(dtype_of(w));
    parts p = {.row = bits_of(w) ? (size_t)(C / 32 * 4 * bits_of(w)) : (size_t)C * element};
    p.packed = is_packed(w, dtype_of(w), bits_of(w), group_of(w), p.row);
    const size_t D = (size_t)(p.packed ? (rows + 15) / 16 * 16 : rows);
    if (bits_of(w)) p.group_row = p.bias_row = (size_t)(C / group_of(w)) * element;
    p.scales = aligned(p.row * D);
    p.biases = p.packed ? p.scales : p.scales + aligned(p.group_row * D);
    p.bytes = !bits_of(w) ? p.row * D
              : p.packed  ? p.scales + 2 * p.group_row * D
                          : p.biases + (p.group_row * D + 3) / 4 * 4; /* whole words */
    return p;
}

ln_status gpu_weight_size(const ln_dev *d, const ln_weight_desc *w, const ln_host_weight *sample,
                          ln_weight_size *out, ln_error *err) {
    (void)d, (void)sample;
    if (ln_encoding_groups(w->enc).bits && w->enc.scale != w->enc.offset)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "weight %s: the CUDA device has no layout for scales and offsets of two types; use "
                       "ln_options.device = LN_DEVICE_CPU",
                       w->name);
    const size_t bytes = parts_of(w).bytes;
    *out = (ln_weight_size){.bound = bytes, .expected = bytes};
    return LN_OK;
}

/* Whether memory at `weight` belongs to a weight with large scales. */
static bool has_large_scales(const ln_dev *d, const void *weight) {
    for (size_t i = 0; i < d->n_large; i++)
        if ((uintptr_t)weight - (uintptr_t)d->large[i].from < d->large[i].bytes) return true;
    return false;
}
/* Notes after an upload that the weight has large scales. */
static ln_status note_scales(ln_dev *d, const void *weight, size_t bytes, ln_error *err) {
    if (!*d->found_large || has_large_scales(d, weight)) return LN_OK;
    gpu_range *grown = ln_realloc(d->large, (d->n_large + 1) * sizeof *grown);
    if (!grown) return LN_OOM(err, "a list of weights");
    d->large = grown;
    d->large[d->n_large++] = (gpu_range){weight, bytes};
    return LN_OK;
}
void gpu_forget_scales(ln_dev *d, const void *block, size_t bytes) {
    size_t kept = 0;
    (void)pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_large; i++)
        if ((uintptr_t)d->large[i].from - (uintptr_t)block >= bytes) d->large[kept++] = d->large[i];
    d->n_large = kept;
    (void)pthread_mutex_unlock(&d->lock);
}

static int numbers_of(ln_encoding e) {
    switch (e.kind) {
    case LN_STORED_E4M3: return GPU_E4M3;
    case LN_STORED_E5M2: return GPU_E5M2;
    case LN_STORED_E2M1: return GPU_E2M1;
    case LN_STORED_ZEROED: return GPU_ZEROED;
    default: return GPU_INTEGERS;
    }
}
/* What coded rows have in addition to addresses of codes, scales and zero points. */
static void set_coded(gpu_weight *w, ln_encoding e, size_t columns) {
    w->form = GPU_CODED;
    w->group = (int32_t)ln_coded_width(e, w->C);
    w->bits = ln_coded_bits(e);
    if (w->numbers == GPU_ZEROED)
        w->columns = (const uint16_t *)(const void *)((const char *)w->data + columns);
}

gpu_weight gpu_weight_of(ln_dev *d, const ln_pvalue *v) {
    const bool matrix = v->n_dims > 1;
    const ln_weight_desc desc = {.enc = v->enc,
                                 .n_dims = v->n_dims,
                                 .dims = {v->dims[0], v->dims[1], v->dims[2]},
                                 .uses = v->layout_id ? LN_USE_FP8 : 0};
    const parts p = parts_of(&desc);
    gpu_weight w = {.data = v->data,
                    .D = matrix ? ln_weight_desc_rows(&desc) : 1,
                    .C = matrix ? ln_weight_desc_cols(&desc) : v->dims[0],
                    .type = is_fp8(&desc) ? (int32_t)dtype_of(&desc) : (int32_t)v->dtype,
                    .numbers = numbers_of(v->enc),
                    .bits = bits_of(&desc),
                    .group = group_of(&desc),
                    .form = p.packed ? GPU_FRAGMENTS : GPU_ROWS};
    if (is_coded(&desc)) set_coded(&w, v->enc, p.columns);
    if (w.bits) w.scales = (char *)v->data + p.scales;
    if (w.bits && !p.packed) w.biases = (char *)v->data + p.biases;
    (void)pthread_mutex_lock(&d->lock);
    w.large_scales = has_large_scales(d, v->data);
    (void)pthread_mutex_unlock(&d->lock);
    return w;
}

/* Allocates the pinned buffers of uploads. */
static ln_status open_staging(ln_dev *d, ln_error *err) {
    for (int i = 0; i < 2; i++) {
        if (!d->staging[i]) GPU_TRY(cudaMallocHost(&d->staging[i], GPU_STAGING), "taking pinned memory");
        if (!d->staged[i])
            GPU_TRY(cudaEventCreateWithFlags(&d->staged[i], cudaEventDisableTiming), "opening an upload");
    }
    if (!d->found_large)
        GPU_TRY(cudaMallocHost((void **)&d->found_large, sizeof *d->found_large), "taking pinned memory");
    return LN_OK;
}

/* A copy of n pieces of `bytes` bytes, `step` bytes apart in `from`, to one block of memory. */
typedef struct gathering {
    char *to;
    const char *from;
    int64_t n, step;
    size_t bytes;
} gathering;
static void gather_part(void *user, int thread, int n_threads) {
    const gathering *g = user;
    int64_t lo, hi;
    ln_partition(g->n, 1, thread, n_threads, &lo, &hi);
    if (g->step == (int64_t)g->bytes) {
        memcpy(g->to + (size_t)lo * g->bytes, g->from + lo * g->step, (size_t)(hi - lo) * g->bytes);
        return;
    }
    for (int64_t i = lo; i < hi; i++) memcpy(g->to + (size_t)i * g->bytes, g->from + i * g->step, g->bytes);
}
/* Pages of a file that is mapped are read here, which one thread does more slowly than the GPU fetches. */
static void gather(const ln_dev *d, gathering g) {
    enum { LEAST = 1 << 20 }; /* bytes for which threads are woken */
    const bool many = d->copiers && (size_t)g.n * g.bytes >= LEAST;
    if (many) ln_pool_run(d->copiers, d->n_copiers, gather_part, &g);
    else gather_part(&g, 0, 1);
}

/* Sends `bytes` bytes, a piece of at most GPU_STAGING bytes at a time. *turn: which buffer is next. */
static ln_status send_dense(ln_dev *d, char *to, const char *from, size_t bytes, int *turn, ln_error *err) {
    for (size_t at = 0; at < bytes; at += GPU_STAGING) {
        const size_t n = LN_MIN(bytes - at, (size_t)GPU_STAGING);
        const int i = *turn;
        *turn = 1 - i;
        GPU_TRY(cudaEventSynchronize(d->staged[i]), "uploading a weight");
        enum { PART = 4096 };
        const size_t whole = n / PART * PART;
        gather(d, (gathering){d->staging[i], from + at, (int64_t)(n / PART), PART, PART});
        memcpy((char *)d->staging[i] + whole, from + at + whole, n - whole);
        GPU_TRY(cudaMemcpyAsync(to + at, d->staging[i], n, cudaMemcpyHostToDevice, d->uploads), "uploading a "
                                                                                                "weight");
        GPU_TRY(cudaEventRecord(d->staged[i], d->uploads), "uploading a weight");
        if (gpu_release_pages) gpu_release_pages(from + at, n);
    }
    return LN_OK;
}
/* Sends n rows of `row` bytes that are `pitch` bytes apart in host memory; 0: without padding. */
static ln_status send_rows(ln_dev *d, char *to, const void *from, int64_t n, size_t row, int64_t pitch,
                           int *turn, ln_error *err) {
    if (pitch == 0 || (size_t)pitch == row) return send_dense(d, to, from, row * (size_t)n, turn, err);
    for (int64_t r = 0; r < n; r++)
        LN_TRY(send_dense(d, to + (size_t)r * row, (const char *)from + r * pitch, row, turn, err));
    return LN_OK;
}

/* Packs the rows of `p`, of `row` bytes that are `pitch` bytes apart in host memory (0: without padding), as
 * many at a time as a pinned buffer has room for. p->n, p->row0: all of them; p->from is not read. */
static ln_status send_packed(ln_dev *d, const gpu_packing *p, const void *from, size_t row, int64_t pitch,
                             int *turn, ln_error *err) {
    const int64_t most = LN_MAX((int64_t)(GPU_STAGING / row), 1), step = pitch ? pitch : (int64_t)row;
    for (int64_t r = 0; r < p->n; r += most) {
        const int i = *turn;
        gpu_packing piece = *p;
        piece.from = d->staging[i], piece.row0 = p->row0 + r, piece.n = LN_MIN(most, p->n - r);
        if (r + piece.n < p->n) piece.n_zero = 0;
        *turn = 1 - i;
        GPU_TRY(cudaEventSynchronize(d->staged[i]), "uploading a weight");
        const char *at = (const char *)from + r * step;
        gather(d, (gathering){d->staging[i], at, piece.n, step, row});
        GPU_TRY(gpu_pack_rows(d->uploads, &piece), "uploading a weight");
        GPU_TRY(cudaEventRecord(d->staged[i], d->uploads), "uploading a weight");
        if (gpu_release_pages) gpu_release_pages(at, (size_t)((piece.n - 1) * step) + row);
    }
    return LN_OK;
}
/* Packs the scales of fp8, each for as many groups as it has, and biases of 0. */
static ln_status pack_fp8_scales(ln_dev *d, const ln_weight_desc *w, const ln_host_weight *h, gpu_packing *g,
                                 int *turn, ln_error *err) {
    const int64_t C = ln_weight_desc_cols(w), width = ln_coded_width(w->enc, C), each = group_of(w),
                  n = g->cols * h->n_rows, row = ln_encoding_row(w->enc, C).scales,
                  pitch = h->scale_pitch ? h->scale_pitch : row;
    const size_t bytes = (size_t)(g->cols * g->element);
    char *scales = ln_zalloc((size_t)n + 1, (size_t)g->element);
    if (!scales) return LN_OOM(err, "the scales of a weight");
    for (int64_t i = 0; i < n; i++) {
        const float s = ln_num_load((const char *)h->scales + i / g->cols * pitch, (ln_dtype)w->enc.scale,
                                    i % g->cols * each / width);
        ln_num_store(scales, dtype_of(w), i, w->uses & LN_USE_FP8 ? ln_bf16_f32(ln_f32_bf16(s)) : s);
    }
    g->part = GPU_PACK_SCALES;
    ln_status st = send_packed(d, g, scales, bytes, 0, turn, err);
    memset(scales, 0, (size_t)(n * g->element));
    g->part = GPU_PACK_BIASES;
    if (st == LN_OK) st = send_packed(d, g, scales, bytes, 0, turn, err);
    ln_free(scales);
    return st;
}
static ln_status pack_all(ln_dev *d, const ln_weight_desc *w, const ln_host_weight *h, char *room, int *turn,
                          ln_error *err) {
    const parts p = parts_of(w);
    const int64_t D = ln_weight_desc_rows(w), C = ln_weight_desc_cols(w);
    gpu_packing g = {.to = room, .row0 = h->row0, .n = h->n_rows, .cols = C, .bits = bits_of(w)};
    if (h->row0 + h->n_rows == D) g.n_zero = (D + 15) / 16 * 16 - D;
    g.part = bits_of(w) ? GPU_PACK_CODES : GPU_PACK_DENSE;
    LN_TRY(send_packed(d, &g, h->data, p.row, h->pitch, turn, err));
    if (!bits_of(w)) return LN_OK;
    g.to = room + p.scales, g.cols = C / group_of(w), g.element = ln_dtype_bytes(dtype_of(w));
    if (is_fp8(w)) return pack_fp8_scales(d, w, h, &g, turn, err);
    g.part = GPU_PACK_SCALES;
    g.large_scales = dtype_of(w) == LN_BF16 ? d->found_large : NULL;
    LN_TRY(send_packed(d, &g, h->scales, p.group_row, h->scale_pitch, turn, err));
    g.part = GPU_PACK_BIASES;
    return send_packed(d, &g, h->offsets, p.group_row, h->offset_pitch, turn, err);
}

/* The group of each column, also if the groups follow each other. */
static ln_status send_columns(ln_dev *d, const ln_weight_desc *w, const ln_host_weight *h, char *to,
                              int *turn, ln_error *err) {
    const int64_t C = ln_weight_desc_cols(w), group = ln_coded_width(w->enc, C);
    uint16_t *columns = ln_zalloc((size_t)C, sizeof *columns);
    if (!columns) return LN_OOM(err, "the groups of columns");
    for (int64_t c = 0; c < C; c++) columns[c] = h->columns ? h->columns[c] : (uint16_t)(c / group);
    const ln_status st = send_dense(d, to, (const char *)columns, (size_t)C * sizeof *columns, turn, err);
    ln_free(columns);
    return st;
}
static ln_status send_all(ln_dev *d, const ln_weight_desc *w, const ln_host_weight *h, char *to, int *turn,
                          ln_error *err) {
    const parts p = parts_of(w);
    const size_t row0 = (size_t)h->row0;
    LN_TRY(send_rows(d, to + p.row * row0, h->data, h->n_rows, p.row, h->pitch, turn, err));
    if (p.group_row > 0)
        LN_TRY(send_rows(d, to + p.scales + p.group_row * row0, h->scales, h->n_rows, p.group_row,
                         h->scale_pitch, turn, err));
    if (p.bias_row > 0)
        LN_TRY(send_rows(d, to + p.biases + p.bias_row * row0, h->offsets, h->n_rows, p.bias_row,
                         h->offset_pitch, turn, err));
    return p.columns > 0 && p.bias_row > 0 ? send_columns(d, w, h, to + p.columns, turn, err) : LN_OK;
}
static ln_status upload_rows(ln_dev *d, const ln_weight_desc *w, const ln_host_weight *h, char *room,
                             ln_error *err) {
    int turn = 0;
    LN_TRY(gpu_use(d, err));
    LN_TRY(open_staging(d, err));
    *d->found_large = 0;
    if (parts_of(w).packed) LN_TRY(pack_all(d, w, h, room, &turn, err));
    else LN_TRY(send_all(d, w, h, room, &turn, err));
    GPU_TRY(cudaStreamSynchronize(d->uploads), "uploading a weight");
    return note_scales(d, room, parts_of(w).bytes, err);
}

ln_status gpu_upload(ln_dev *d, const ln_weight_desc *w, const ln_host_weight *h, void *room,
                     ln_device_weight *out, ln_error *err) {
    const int64_t D = ln_weight_desc_rows(w), C = ln_weight_desc_cols(w);
    if (h->row0 < 0 || h->n_rows < 0 || h->row0 > D - h->n_rows || h->col0 != 0 || h->n_cols != C)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "weight %s: the CUDA device takes all columns of rows, found rows %lld + %lld, "
                       "columns "
                       "%lld + %lld of [%lld, %lld]",
                       w->name, (long long)h->row0, (long long)h->n_rows, (long long)h->col0,
                       (long long)h->n_cols, (long long)D, (long long)C);
    const size_t bytes = parts_of(w).bytes;
    const uint32_t layout = is_fp8(w) && dtype_of(w) == LN_BF16;
    *out = (ln_device_weight){.data = room, .bytes = bytes, .layout_id = layout, .read_bytes = bytes};
    (void)pthread_mutex_lock(&d->lock);
    const ln_status st = upload_rows(d, w, h, room, err);
    (void)pthread_mutex_unlock(&d->lock);
    return st;
}
