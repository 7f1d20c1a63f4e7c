/* Writes the tensors of a checkpoint: threads take blocks of 1 MB of rows, read them from the mapping, change
 * them, write them to their offset in the file (pwrite) and release their pages. Memory therefore stays at a
 * few MB per thread, whatever the size of the checkpoint.
 *
 * A row whose value changes (an adapter is added, or the source is quantised and the result is not) is
 * computed in f32 first, with sums in double, then rounded once to the dtype of the result, then quantised.
 */
#include "../base/thread_pool.h"
#include "convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 20 };

typedef struct worker {
    float *row, *block;               /* block: rows that are computed, in f32; NULL if no item's are */
    double *sum;                      /* a row of B A */
    uint8_t *turned;                  /* the matrix of an expert with outputs as its last axis, or NULL */
    uint8_t *parts[LN_CONVERT_PARTS]; /* one block of each part */
    ln_encoded_rows rows;             /* a block of the source */
    void *computed;                   /* for blocks that the source computes; NULL if it computes none */
    ln_affine_error sums;
    ln_error error;
} worker;

typedef struct shard {
    ln_out file;
    uint64_t data; /* byte offset of its data area in the file */
} shard;

/* What a module adds: of each of its matrices, which are 1 or those of experts, A [rank, n_in] and
 * B [n_out, rank], at distances of the largest rank. */
typedef struct delta {
    float *A, *B, *magnitude;     /* magnitude: [n_out] of DoRA, or NULL */
    const ln_adapter_module **of; /* the module whose rank and scale a matrix has; NULL: nothing is added */
    int64_t n, rank;
} delta;
typedef struct writing {
    const ln_convert *c;
    const ln_convert_item *x;
    shard *shards;   /* [n_shards], all open */
    worker *workers; /* [n_threads] */
    int n_threads;
    delta deltas[LN_FUSED_PARTS]; /* of the adapter's modules of the item x */
} writing;

static int64_t row_bytes(const ln_convert_item *x, int k) {
    return (int64_t)(ln_convert_part_bytes(x, k) / (uint64_t)x->w->d0);
}

static bool quantised_source(const ln_convert_item *x) {
    return !x->raw && !x->mxfp4 && !ln_encoding_is_dense(x->w->enc);
}
/* Whether the rows are computed in f32 before they are stored. */
static bool is_computed(const ln_convert_item *x) {
    return x->computed || x->values || x->n_modules > 0 || quantised_source(x);
}

/* Bytes of a row of the source's first tensor. */
static int64_t stored_bytes(const ln_convert_item *x) {
    if (x->raw) return 1;
    return ln_encoding_row(x->w->enc, LN_MAX(x->w->d1, 1)).data;
}

/* Sets me->rows to rows [lo, hi) of the source, in place or computed. A thread of the pool computes alone. */
static ln_status find_rows(const writing *w, worker *me, int64_t lo, int64_t hi) {
    const ln_source *s = w->c->weights.source;
    me->rows = (ln_encoded_rows){.data = w->x->raw ? w->x->raw->data + lo : NULL};
    if (w->x->raw || w->x->values || w->c->is_new || (w->x->halves[0] && is_computed(w->x))) return LN_OK;
    const ln_source_work alone = {ln_pool_default(), 1};
    const bool as_is = w->x->in && !is_computed(w->x); /* the tensor, with the rows of two weights */
    const ln_weight *from = as_is && w->x->w->parts ? w->x->w->parts : w->x->w;
    return s->ops->rows(s, from, lo, hi - lo, &alone, me->computed, &me->rows, &me->error);
}

/* Of DoRA: row += factor (m (row + scale B[r] A) / length - row), the sum B[r] A being in me->sum. */
static void direct_row(const writing *w, worker *me, const delta *d, int64_t r, float *row) {
    const ln_adapter_module *m = d->of[0];
    double square = 0;
    for (int64_t k = 0; k < m->n_in; k++) {
        me->sum[k] = (double)row[k] + m->scale * me->sum[k];
        square += me->sum[k] * me->sum[k];
    }
    const double g = square > 0 ? (double)d->magnitude[r] / sqrt(square) : 0;
    for (int64_t k = 0; k < m->n_in; k++)
        row[k] = (float)((double)row[k] + w->c->scale * (g * me->sum[k] - (double)row[k]));
}

/* row += scale * B[r] A of matrix x of a delta, the sum in double. */
static void add_row(const writing *w, worker *me, const delta *d, int64_t x, int64_t r, float *row) {
    const ln_adapter_module *m = d->of[x];
    if (!m) return;
    for (int64_t k = 0; k < m->n_in; k++) me->sum[k] = 0;
    for (int64_t i = 0; i < m->rank; i++) {
        const double b = d->B[x * d->rank * m->n_out + r * m->rank + i];
        const float *A = d->A + (x * d->rank + i) * m->n_in;
        for (int64_t k = 0; k < m->n_in; k++) me->sum[k] += b * (double)A[k];
    }
    if (d->magnitude) {
        direct_row(w, me, d, r, row);
        return;
    }
    const double scale = m->scale * w->c->scale;
    for (int64_t k = 0; k < m->n_in; k++) row[k] = (float)((double)row[k] + scale * me->sum[k]);
}
/* The place of a row of a tensor with the experts of a layer: the expert, the half, and the row there. */
typedef struct expert_row {
    int64_t expert, half, row;
} expert_row;
static expert_row expert_row_of(const ln_convert_item *x, int64_t r) {
    const int64_t rows = x->w->d0 / LN_MAX((int64_t)1, x->w->n_experts), D = x->halves[0] ? rows / 2 : rows,
                  expert = r / rows, at = r % rows;
    if ((x->in & (LN_EXPERTS_OUT_LAST - 1)) == LN_EXPERTS_EVEN) return (expert_row){expert, at % 2, at / 2};
    return (expert_row){expert, at / D, at % D};
}
/* Adds the modules that have row r. */
static void add_delta(const writing *w, worker *me, int64_t r, float *row) {
    const ln_convert_item *x = w->x;
    for (int i = 0; i < x->n_modules; i++) {
        const ln_adapter_module *m = x->modules[i];
        const expert_row at = expert_row_of(x, r);
        if (m->n_experts && at.half == x->first_rows[i])
            add_row(w, me, &w->deltas[i], at.expert, at.row, row);
        else if (!m->n_experts && r >= x->first_rows[i] && r < x->first_rows[i] + m->n_out)
            add_row(w, me, &w->deltas[i], 0, r - x->first_rows[i], row);
    }
}

/* The element r of a bias. A holds the bias in its place, B that of B; see load_module. */
static void add_bias(const writing *w, int64_t r, float *row) {
    const ln_adapter_module *m = w->x->modules[0];
    double sum = m->b_bias ? m->scale * (double)w->deltas[0].B[r] : 0;
    if (m->bias) sum += (double)w->deltas[0].A[r] - (double)*row;
    *row = (float)((double)*row + w->c->scale * sum);
}

/* Decodes row r of a tensor that has the rows of two weights. */
static ln_status decode_joint(const writing *w, worker *me, int64_t r, int64_t cols, float *row) {
    const ln_source *s = w->c->weights.source;
    const ln_convert_item *x = w->x;
    const ln_source_work alone = {ln_pool_default(), 1};
    const expert_row at = expert_row_of(x, r);
    const ln_weight *half = x->halves[at.half];
    const int64_t D = half->d0 / half->n_experts;
    LN_TRY(s->ops->rows(s, half, at.expert * D + at.row, 1, &alone, me->computed, &me->rows, &me->error));
    ln_encoding_decode(half->enc, &me->rows, 0, cols, row);
    me->rows = (ln_encoded_rows){0};
    return LN_OK;
}

/* Computes rows [lo, hi) in me->block, rounded to the dtype of the result. */
static ln_status compute_rows(const writing *w, worker *me, int64_t lo, int64_t hi) {
    const ln_convert_item *x = w->x;
    const int64_t cols = LN_MAX(x->w->d1, 1);
    for (int64_t r = lo; r < hi; r++) {
        float *row = me->block + (r - lo) * cols;
        if (w->c->is_new) ln_initial_row(&x->initial, r, cols, row);
        else if (x->values) memcpy(row, x->values + r * cols, (size_t)cols * sizeof *row);
        else if (x->halves[0]) LN_TRY(decode_joint(w, me, r, cols, row));
        else ln_encoding_decode(x->w->enc, &me->rows, r - lo, cols, row);
        if (x->n_modules > 0 && x->w->d1) add_delta(w, me, r, row);
        else if (x->n_modules > 0) add_bias(w, r, row);
        for (int64_t k = 0; k < cols; k++) {
            uint8_t rounded[4];
            row[k] -= x->norm_shift;
            ln_num_store(rounded, x->dtype, 0, row[k]);
            row[k] = ln_num_load(rounded, x->dtype, 0);
            if (!isfinite(row[k]))
                return ln_fail(&me->error, LN_ENUMERIC,
                               "tensor %s: row %lld: %s is no finite number of the result's dtype%s",
                               x->same_name ? x->w->tensor->name : x->name, (long long)r,
                               x->n_modules ? "the sum of weight and adapter" : "a weight",
                               x->n_modules ? "; is the scale of the adapter right?" : "");
        }
    }
    return LN_OK;
}

static void store_rows(const ln_convert_item *x, uint8_t *to, const void *from, ln_dtype dtype, int64_t n) {
    for (int64_t i = 0; i < n; i++) ln_num_store(to, x->dtype, i, ln_num_load(from, dtype, i));
}

/* Writes the scales of n rows in mxfp4 as the exponents that they are, with 127 added. */
static ln_status store_exponents(const ln_convert_item *x, worker *me, int64_t n) {
    const int64_t some = n * (x->w->d1 / x->code.group);
    for (int64_t i = 0; i < some; i++) {
        const uint32_t bits = ln_f32_bits(ln_num_load(me->rows.scales, (ln_dtype)x->w->enc.scale, i));
        if ((bits & 0x7fffffu) && bits != 0x400000u)
            return ln_fail(&me->error, LN_ENUMERIC, "tensor %s: expected scales that are powers of 2",
                           x->w->tensor->name);
        me->parts[1][i] = (uint8_t)(bits >> 23);
    }
    return LN_OK;
}

/* Quantises, casts or copies the rows [lo, hi), at most one block, and writes them to the file. */
static ln_status write_rows(const writing *w, worker *me, int64_t lo, int64_t hi) {
    const ln_convert_item *x = w->x;
    const int64_t cols = LN_MAX(x->w->d1, 1);
    const bool computes = is_computed(x);
    const void *parts[LN_CONVERT_PARTS] = {me->parts[0], me->parts[1], me->parts[2]};
    if (computes) LN_TRY(compute_rows(w, me, lo, hi));
    if (x->mxfp4) {
        parts[0] = me->rows.data;
        LN_TRY(store_exponents(x, me, hi - lo));
    } else if (x->code.bits) {
        ln_affine_job j = {.w = computes ? (const uint8_t *)me->block : me->rows.data,
                           .stored = computes ? LN_F32 : x->w->dtype,
                           .dtype = x->dtype,
                           .code = x->code,
                           .cols = cols,
                           .codes = me->parts[0],
                           .scales = me->parts[1],
                           .biases = me->parts[2]};
        if (!ln_affine_rows(&j, 0, hi - lo, me->row, &me->sums))
            return ln_fail(&me->error, LN_ENUMERIC,
                           "tensor %s: expected finite numbers to quantise, found a NaN or an infinity; get "
                           "the weights again",
                           x->w->tensor->name);
    } else if (computes) {
        store_rows(x, me->parts[0], me->block, LN_F32, (hi - lo) * cols);
    } else if (x->raw || x->dtype == x->w->dtype) {
        parts[0] = me->rows.data;
    } else {
        store_rows(x, me->parts[0], me->rows.data, x->w->dtype, (hi - lo) * cols);
    }
    for (int k = 0; k < ln_convert_parts(x); k++) {
        int64_t n = row_bytes(x, k);
        const shard *to = &w->shards[x->shard[k]];
        LN_TRY(ln_out_at(&to->file, to->data + x->at[k] + (uint64_t)(lo * n), parts[k],
                         (size_t)((hi - lo) * n), &me->error));
    }
    return LN_OK;
}

static int64_t block_rows(const ln_weight *w) { return LN_MAX(1, BLOCK_BYTES / (LN_MAX(w->d1, 1) * 4)); }
/* Writes the matrix of an expert with outputs as its last axis. */
static ln_status write_turned(const writing *w, worker *me, int64_t expert) {
    const ln_convert_item *x = w->x;
    const int64_t some = LN_MIN((int64_t)16, block_rows(x->w)), rows = x->w->d0 / x->w->n_experts,
                  cols = x->w->d1, first = expert * rows;
    for (int64_t lo = 0; lo < rows; lo += some) {
        const int64_t hi = LN_MIN(rows, lo + some);
        LN_TRY(find_rows(w, me, first + lo, first + hi));
        LN_TRY(compute_rows(w, me, first + lo, first + hi));
        for (int64_t c = 0; c < cols; c++)
            for (int64_t r = lo; r < hi; r++)
                ln_num_store(me->turned, x->dtype, c * rows + r, me->block[(r - lo) * cols + c]);
    }
    const uint64_t bytes = x->bytes / (uint64_t)x->w->n_experts;
    const shard *to = &w->shards[x->shard[0]];
    return ln_out_at(&to->file, to->data + x->at[0] + (uint64_t)expert * bytes, me->turned, (size_t)bytes,
                     &me->error);
}

/* Whether an item is written an expert at a time: one that is copied has its rows in the order of the file.
 */
static bool is_turned(const ln_convert_item *x) {
    return (x->in & LN_EXPERTS_OUT_LAST) != 0 && is_computed(x);
}

/* Writes blocks [lo, hi) of block_rows rows, up to a thread's first error. */
static void write_blocks(void *user, int thread, int64_t lo, int64_t hi) {
    const writing *w = user;
    worker *me = &w->workers[thread];
    const ln_weight *x = w->x->w;
    const int64_t n = block_rows(x), stored = stored_bytes(w->x);
    for (int64_t b = lo; b < hi && me->error.code == LN_OK; b++) {
        const int64_t from = b * n, to = LN_MIN(from + n, x->d0);
        if (is_turned(w->x)) {
            (void)write_turned(w, me, b);
            continue;
        }
        const size_t bytes = (size_t)((to - from) * stored);
        if (find_rows(w, me, from, to) != LN_OK) return;
        const bool mapped = me->rows.data && me->rows.data != me->computed;
        if (mapped) ln_guard_fetch(me->rows.data, bytes);
        if (write_rows(w, me, from, to) != LN_OK) return;
        if (mapped) ln_guard_release(me->rows.data, bytes);
    }
}

static uint64_t source_bytes(const ln_weight *w) {
    uint64_t n = 0;
    for (int64_t i = 0; i < ln_weight_tensors(w); i++) n += ln_weight_tensor_bytes(w, i);
    return n;
}
/* Elements of a row of a tensor; 0 for a vector. */
static int64_t columns_of(const ln_tensor *t) {
    int64_t n = t->n_dims > 1 ? 1 : 0;
    for (int d = 1; d < t->n_dims; d++) n *= t->dims[d];
    return n;
}

static void report(const writing *w, ln_quantized *out) {
    const ln_convert_item *x = w->x;
    ln_affine_error sum = {0};
    for (int t = 0; t < w->n_threads; t++) {
        sum.lost2 += w->workers[t].sums.lost2;
        sum.all2 += w->workers[t].sums.all2;
        sum.most = LN_MAX(sum.most, w->workers[t].sums.most);
        w->workers[t].sums = (ln_affine_error){0};
    }
    *out =
        (ln_quantized){.name = x->same_name ? x->w->tensor->name : x->name,
                       .rows = x->raw && x->raw->n_dims > 0 ? x->raw->dims[0] : x->w->d0,
                       .cols = x->raw ? columns_of(x->raw) : x->w->d1,
                       .bits = x->code.bits,
                       .group = x->code.group,
                       .bytes_before = x->halves[0] ? source_bytes(x->halves[0]) + source_bytes(x->halves[1])
                                                    : source_bytes(x->w),
                       .bytes = x->bytes,
                       .rms_error = sum.all2 > 0 ? sqrt(sum.lost2 / sum.all2) : 0,
                       .max_error = sum.most};
}

static bool all_finite(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* Reads the matrices of one of the adapter's modules for the item. */
static void read_matrices(const ln_adapter_file *a, const ln_convert_item *x, const ln_adapter_module *m,
                          delta *d) {
    for (int64_t k = 0; k < d->n; k++) {
        float *A = d->A + k * d->rank * m->n_in, *B = d->B + k * d->rank * m->n_out;
        d->of[k] = m;
        if (m->n_experts) d->of[k] = ln_adapter_read_expert(a, m, x->expert + k, A, B);
        else ln_adapter_file_read(a, m, A, B);
    }
}
/* Reads one of the adapter's modules for the item; for a bias, both vectors. */
static ln_status load_module(writing *w, int part, ln_error *err) {
    const ln_adapter_module *m = w->x->modules[part];
    const bool matrix = w->x->w->d1 != 0;
    delta *d = &w->deltas[part];
    *d = (delta){.n = LN_MAX((int64_t)1, w->x->w->n_experts), .rank = m->rank};
    const int64_t n_a = matrix ? d->n * m->rank * m->n_in : m->n_out,
                  n_b = matrix ? d->n * m->rank * m->n_out : m->n_out;
    d->A = ln_zalloc((size_t)n_a, sizeof *d->A);
    d->B = ln_zalloc((size_t)n_b, sizeof *d->B);
    d->of = ln_zalloc((size_t)d->n, sizeof *d->of);
    d->magnitude = matrix && m->magnitude ? ln_zalloc((size_t)m->n_out, sizeof *d->magnitude) : NULL;
    if (!d->A || !d->B || !d->of || (matrix && m->magnitude && !d->magnitude))
        return LN_OOM(err, "a module of an adapter");
    if (d->magnitude) ln_adapter_vector(m, m->magnitude, d->magnitude);
    if (matrix) read_matrices(w->c->adapter, w->x, m, d);
    if (!matrix && m->bias) ln_adapter_vector(m, m->bias, d->A);
    if (!matrix && m->b_bias) ln_adapter_vector(m, m->b_bias, d->B);
    if (all_finite(d->A, n_a) && all_finite(d->B, n_b) &&
        (!d->magnitude || all_finite(d->magnitude, m->n_out)))
        return LN_OK;
    return ln_fail(err, LN_ENUMERIC, "%s: module %s: the adapter has a NaN or an infinity",
                   w->c->adapter->path, m->path);
}

static void free_modules(writing *w) {
    for (int i = 0; i < LN_FUSED_PARTS; i++) {
        ln_free(w->deltas[i].A), ln_free(w->deltas[i].B), ln_free(w->deltas[i].of),
            ln_free(w->deltas[i].magnitude);
        w->deltas[i] = (delta){0};
    }
}

static ln_status load_modules(writing *w, ln_error *err) {
    free_modules(w);
    for (int i = 0; i < w->x->n_modules; i++) LN_TRY(load_module(w, i, err));
    return LN_OK;
}

static ln_status write_item(writing *w, ln_quantized_fn *fn, void *user, ln_error *err) {
    ln_quantized facts;
    const ln_weight *x = w->x->w;
    const int64_t n = block_rows(x), slice = LN_POOL_SLICE_BYTES / (n * stored_bytes(w->x));
    LN_TRY(load_modules(w, err));
    ln_pool_run_units(ln_pool_default(), w->n_threads, is_turned(w->x) ? x->n_experts : (x->d0 + n - 1) / n,
                      slice, write_blocks, w);
    for (int t = 0; t < w->n_threads; t++)
        if (w->workers[t].error.code != LN_OK) {
            if (err) *err = w->workers[t].error;
            return w->workers[t].error.code;
        }
    LN_TRY(ln_tensors_check(&w->c->tensors, true, err));
    report(w, &facts);
    return fn ? LN_CALLBACK(fn(user, &facts, err)) : LN_OK;
}

/* Creates a shard and writes its header. */
static ln_status begin_shard(const ln_convert *c, int i_shard, const char *to, shard *out, ln_error *err) {
    ln_tensor_spec *specs = ln_zalloc(c->n_items * LN_CONVERT_PARTS, sizeof *specs);
    char(*names)[224] = ln_zalloc(c->n_items * LN_CONVERT_PARTS, sizeof *names), name[64], path[4096 + 128];
    ln_str s = {0};
    size_t n = 0;
    ln_status st = LN_OK;
    if (!specs || !names) LN_GO(LN_OOM(err, "a safetensors header"));
    for (size_t i = 0; i < c->n_items; i++)
        for (int k = 0; k < ln_convert_parts(&c->items[i]); k++)
            if (c->items[i].shard[k] == i_shard) specs[n] = ln_convert_part(&c->items[i], k, names[n]), n++;
    LN_GO(ln_tensors_header_as(&s, c->code.bits ? "mlx" : "pt", specs, n, err));
    ln_convert_shard_name(c, i_shard, name);
    (void)snprintf(path, sizeof path, "%s/%s", to, name);
    LN_GO(ln_out_open(&out->file, path, false, err));
    LN_GO(ln_out_write(&out->file, s.data, s.len, err));
    out->data = s.len;
out:
    ln_str_free(&s);
    ln_free(names);
    ln_free(specs);
    return st;
}

static ln_status write_tensors(writing *w, const char *to, ln_quantized_fn *fn, void *user, ln_error *err) {
    const ln_convert *c = w->c;
    for (int s = 0; s < c->n_shards; s++) LN_TRY(begin_shard(c, s, to, &w->shards[s], err));
    for (size_t i = 0; i < c->n_items; i++) {
        w->x = &c->items[i];
        LN_TRY(write_item(w, fn, user, err));
    }
    for (int s = 0; s < c->n_shards; s++) LN_TRY(ln_out_commit(&w->shards[s].file, err));
    return LN_OK;
}

/* Allocates each thread's buffers: a row as f32, and the largest block of each part. */
static ln_status new_workers(const ln_convert *c, worker *workers, int n_threads, ln_error *err) {
    int64_t cols = 1, most[LN_CONVERT_PARTS] = {0}, block = 0;
    size_t computed = 0, turned = 0;
    for (size_t i = 0; i < c->n_items; i++) {
        const ln_convert_item *x = &c->items[i];
        if (is_turned(x)) turned = LN_MAX(turned, (size_t)x->bytes / (size_t)x->w->n_experts);
        if (is_computed(x)) block = LN_MAX(block, block_rows(x->w) * LN_MAX(x->w->d1, 1));
        cols = LN_MAX(cols, x->w->d1);
        computed = LN_MAX(computed, ln_source_bytes(x->w, LN_MIN(block_rows(x->w), x->w->d0)));
        for (int k = 0; k < ln_convert_parts(x); k++)
            most[k] = LN_MAX(most[k], block_rows(x->w) * row_bytes(x, k));
    }
    for (int t = 0; t < n_threads; t++) {
        workers[t].row = ln_zalloc((size_t)cols, sizeof(float));
        workers[t].sum = ln_zalloc((size_t)cols, sizeof(double));
        workers[t].computed = computed > 0 ? ln_alloc(computed) : NULL;
        workers[t].turned = turned > 0 ? ln_alloc(turned) : NULL;
        workers[t].block = block > 0 ? ln_zalloc((size_t)block, sizeof(float)) : NULL;
        if (!workers[t].row || !workers[t].sum || (block > 0 && !workers[t].block) ||
            (computed > 0 && !workers[t].computed) || (turned > 0 && !workers[t].turned))
            return LN_OOM(err, "rows that are quantised");
        for (int k = 0; k < LN_CONVERT_PARTS; k++)
            if (!(workers[t].parts[k] = ln_zalloc(1, (size_t)most[k] + 1)))
                return LN_OOM(err, "rows that are quantised");
    }
    return LN_OK;
}

ln_status ln_convert_write(const ln_convert *c, const char *to, int n_threads, ln_quantized_fn *fn,
                           void *user, ln_error *err) {
    ln_status st = LN_OK;
    writing w = {.c = c, .n_threads = n_threads};
    w.workers = ln_zalloc((size_t)n_threads, sizeof *w.workers);
    w.shards = ln_zalloc((size_t)c->n_shards, sizeof *w.shards);
    if (!w.workers || !w.shards) LN_GO(LN_OOM(err, "threads and shards"));
    LN_GO(new_workers(c, w.workers, n_threads, err));
    LN_GO(write_tensors(&w, to, fn, user, err));
    LN_GO(ln_convert_config(c, to, err));
    LN_GO(c->config.of_gguf ? ln_convert_gguf_files(c, to, err) : ln_convert_files(c, to, err));
    LN_GO(ln_tensors_check(&c->tensors, false, err));
    if (c->adapter) LN_GO(ln_tensors_check(&c->adapter->tensors, false, err));
out:
    for (int s = 0; w.shards && s < c->n_shards; s++) ln_out_abort(&w.shards[s].file);
    for (int t = 0; w.workers && t < n_threads; t++) {
        ln_free(w.workers[t].row);
        ln_free(w.workers[t].sum);
        ln_free(w.workers[t].block);
        ln_free(w.workers[t].turned);
        ln_free(w.workers[t].computed);
        for (int k = 0; k < LN_CONVERT_PARTS; k++) ln_free(w.workers[t].parts[k]);
    }
    free_modules(&w);
    ln_free(w.shards);
    ln_free(w.workers);
    return st;
}

ln_status ln_convert_save(const ln_convert *c, const char *out, bool force, int n_threads,
                          ln_quantized_fn *fn, void *user, ln_error *err) {
    ln_out_dir dir = {0};
    ln_status st = LN_OK;
    LN_GO(ln_convert_check_out(c, out, err));
    LN_GO(ln_out_dir_open(&dir, out, force, err));
    LN_GO(ln_convert_write(c, dir.tmp, n_threads, fn, user, err));
    LN_GO(ln_out_dir_commit(&dir, err));
out:
    ln_out_dir_abort(&dir);
    return st;
}
