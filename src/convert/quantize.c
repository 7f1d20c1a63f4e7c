/* Quantises a checkpoint into a new directory: first everything is planned, then the tensors are streamed.
 *
 * Names, shapes and offsets of all tensors follow from the configuration, so that the headers are written
 * before any element is read. Then the tensors are processed one after the other. Threads take blocks of 1 MB
 * of rows: they read them from the mapping, quantise them, write them to their offset in the file (pwrite)
 * and release their pages. Memory therefore stays at a few MB per thread. The directory gets its final name
 * when it is complete. */
#include "../base/thread_pool.h"
#include "convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 20 };

static const ln_st_dtype st_dtypes[] = {[LN_F32] = LN_ST_F32, [LN_BF16] = LN_ST_BF16, [LN_F16] = LN_ST_F16};

/* ---- how each weight is stored ---- */

ln_tensor_spec ln_convert_part(const ln_convert_item *x, int k, char name[224]) {
    static const char *const leaves[] = {"", ".scales", ".biases"};
    ln_tensor_spec s = {
        .name = name, .dtype = st_dtypes[x->dtype], .n_dims = x->w->d1 ? 2 : 1, .dims = {x->w->d0, x->w->d1}};
    (void)snprintf(name, 224, "%.*s%s", (int)(k ? x->path_bytes : strlen(x->name)), x->name, leaves[k]);
    if (!x->enc.bits) return s;
    s.dims[1] = k ? x->w->d1 / x->enc.group : x->w->d1 / 32 * x->enc.bits;
    if (k == 0) s.dtype = LN_ST_U32;
    return s;
}

static uint64_t part_bytes(const ln_convert_item *x, int k) {
    char name[224];
    ln_tensor_spec s = ln_convert_part(x, k, name);
    uint64_t n = s.dtype == LN_ST_F32 || s.dtype == LN_ST_U32 ? 4 : 2;
    for (int d = 0; d < s.n_dims; d++) n *= (uint64_t)s.dims[d];
    return n;
}

void ln_convert_shard_name(const ln_convert *c, int shard, char out[64]) {
    if (c->n_shards > 1) (void)snprintf(out, 64, "model-%05d-of-%05d.safetensors", shard + 1, c->n_shards);
    else (void)snprintf(out, 64, "model.safetensors");
}

/* The dtype to which mlx-lm casts: torch_dtype, else the text model's dtype. False: tensors keep their
 * dtype. */
static bool cast_dtype(const ln_config *c, ln_dtype *out) {
    static const char *const names[] = {[LN_F32] = "float32", [LN_BF16] = "bfloat16", [LN_F16] = "float16"};
    const json_t *v = json_object_get(c->root, "torch_dtype");
    if (!v || json_is_null(v)) v = json_object_get(json_object_get(c->root, "text_config"), "dtype");
    for (int t = 0; json_is_string(v) && t < (int)LN_COUNT(names); t++)
        if (strcmp(json_string_value(v), names[t]) == 0) {
            *out = (ln_dtype)t;
            return true;
        }
    return false;
}

/* Whether `name` is the module path or a run of whole components of it. */
static bool names_module(const char *name, const char *path, size_t path_bytes) {
    size_t n = strlen(name);
    for (size_t i = 0; n && i + n <= path_bytes; i++)
        if (memcmp(path + i, name, n) == 0 && (i == 0 || path[i - 1] == '.') &&
            (i + n == path_bytes || path[i + n] == '.'))
            return true;
    return false;
}

/* Decides the encoding of one weight; the last matching entry of opt->keep applies. Marks the matching
 * entries in used[opt->n_keep]. */
static void decide(const ln_convert *c, ln_convert_item *x, const ln_quantize_options *opt, bool *used) {
    if (!x->w->d1) return;
    x->enc = c->enc;
    for (size_t i = 0; i < opt->n_keep; i++) {
        bool head = c->spec.tied && x->w->slot == LN_W_EMBED &&
                    strcmp(opt->keep[i].name, "lm_head") == 0; /* a tied table is the head */
        if (!head && !names_module(opt->keep[i].name, x->name, x->path_bytes)) continue;
        used[i] = true;
        x->enc.bits = opt->keep[i].bits == 16 ? 0 : opt->keep[i].bits;
    }
    if (!x->enc.bits || x->w->d1 % c->enc.group != 0) x->enc = (ln_enc){0, 0};
    x->entry = x->enc.bits && x->enc.bits != c->enc.bits;
}

/* Sets the tensor's name in the new model, which does not depend on the prefix in the source. */
static void name_item(const ln_convert *c, ln_convert_item *x) {
    const char *outer = c->config.text != c->config.root ? "language_model." : "";
    char slot[160];
    ln_weight_name(slot, x->w->slot, x->w->layer);
    (void)snprintf(x->name, sizeof x->name, "%s%s%s", outer, x->w->slot == LN_W_HEAD ? "" : "model.", slot);
    x->path_bytes = (size_t)(strrchr(x->name, '.') - x->name);
}

/* Sort key for mlx-lm's order of modules, which determines the shard of a tensor: embedding table, layers,
 * last norm, head. */
static int64_t place_of(const ln_weight *w) {
    static const ln_slot in_layer[] = {LN_W_Q,         LN_W_Q_BIAS,    LN_W_K,       LN_W_K_BIAS,
                                       LN_W_V,         LN_W_V_BIAS,    LN_W_O,       LN_W_O_BIAS,
                                       LN_W_Q_NORM,    LN_W_K_NORM,    LN_W_GATE,    LN_W_GATE_BIAS,
                                       LN_W_DOWN,      LN_W_DOWN_BIAS, LN_W_UP,      LN_W_UP_BIAS,
                                       LN_W_ATTN_NORM, LN_W_POST_ATTN, LN_W_PRE_FFN, LN_W_POST_FFN};
    if (w->slot == LN_W_EMBED) return -1;
    if (w->layer < 0) return INT64_MAX - (w->slot == LN_W_NORM);
    for (size_t i = 0; i < LN_COUNT(in_layer); i++)
        if (in_layer[i] == w->slot) return w->layer * 64 + (int64_t)i;
    return w->layer * 64 + 63;
}
static int by_place(const void *a, const void *b) {
    int64_t x = place_of(((const ln_convert_item *)a)->w), y = place_of(((const ln_convert_item *)b)->w);
    return (x > y) - (x < y);
}

static void lay_out(ln_convert *c, uint64_t shard_bytes) {
    uint64_t at = 0;
    for (size_t i = 0; i < c->weights.n; i++) {
        ln_convert_item *x = &c->items[i];
        for (int k = 0; k < ln_convert_parts(x); k++) {
            uint64_t n = part_bytes(x, k);
            if (c->n_shards == 0 || at + n > shard_bytes) c->n_shards++, at = 0;
            x->shard[k] = c->n_shards - 1;
            x->at[k] = at;
            at += n;
            x->bytes += n;
        }
        c->bytes += x->bytes;
    }
}

static ln_status decide_all(ln_convert *c, const ln_quantize_options *opt, uint64_t shard_bytes,
                            ln_error *err) {
    ln_dtype cast;
    bool casts = cast_dtype(&c->config, &cast), any = false;
    bool *used = ln_zalloc(opt->n_keep + 1, sizeof *used);
    char shown[80];
    ln_status st = LN_OK;
    c->enc = (ln_enc){opt->bits ? opt->bits : 4, opt->group ? opt->group : 64};
    c->items = ln_zalloc(c->weights.n, sizeof *c->items);
    if (!used || !c->items) LN_GO(LN_OOM(err, "the list of tensors"));
    for (size_t i = 0; i < c->weights.n; i++) {
        ln_convert_item *x = &c->items[i];
        x->w = &c->weights.items[i];
        x->dtype = casts ? cast : x->w->dtype;
        name_item(c, x);
        decide(c, x, opt, used);
        any |= x->enc.bits != 0;
    }
    for (size_t i = 0; i < opt->n_keep; i++)
        if (!used[i])
            LN_GO(ln_fail(err, LN_EUSAGE,
                          "ln_quantize_options.keep %s: no matrix of this model is called so; a name is a "
                          "module's path or a part of it, such as lm_head or down_proj",
                          ln_excerpt(shown, opt->keep[i].name, strnlen(opt->keep[i].name, 200))));
    if (!any)
        LN_GO(ln_fail(err, LN_EUNSUPPORTED,
                      "nothing to quantise: no matrix that is not kept has whole groups of %d columns; try "
                      "ln_quantize_options.group 32",
                      c->enc.group));
    qsort(c->items, c->weights.n, sizeof *c->items, by_place);
    lay_out(c, shard_bytes);
out:
    ln_free(used);
    return st;
}

static ln_status open_model(ln_convert *c, const char *model, ln_error *err) {
    LN_TRY(ln_find_model(model, c->from, sizeof c->from, err));
    LN_TRY(ln_config_open(&c->config, c->from, err));
    LN_TRY(ln_spec_open(&c->spec, &c->config, err));
    LN_TRY(ln_tensors_open(&c->tensors, c->from, false, err));
    c->tied_there = c->spec.tied;
    LN_TRY(ln_weights_bind(&c->weights, &c->spec, &c->tensors, err));
    if (!c->weights.enc.bits) return LN_OK;
    char shown[LN_PATH_TEXT];
    return ln_fail(err, LN_EUNSUPPORTED,
                   "%s: is quantised already, to %d bits; quantise the dense model that it was made from",
                   ln_path_text(shown, c->from), c->weights.enc.bits);
}

static void close_model(ln_convert *c) {
    ln_weights_close(&c->weights);
    ln_tensors_close(&c->tensors);
    ln_spec_close(&c->spec);
    ln_config_close(&c->config);
    ln_free(c->items);
}

/* LN_EUSAGE if the output directory is the source model or contains it. */
static ln_status check_out(const ln_convert *c, const char *out, ln_error *err) {
    char *to = realpath(out, NULL), *from = realpath(c->from, NULL), shown[LN_PATH_TEXT];
    size_t n = to ? strlen(to) : 0;
    bool inside = to && from && strncmp(from, to, n) == 0 && (from[n] == '\0' || from[n] == '/');
    free(to);
    free(from);
    return inside ? ln_fail(err, LN_EUSAGE,
                            "%s: the output directory holds the model that is read; name another directory",
                            ln_path_text(shown, out))
                  : LN_OK;
}

/* ---- writing the tensors ---- */

typedef struct worker {
    float *row;
    uint8_t *parts[LN_WEIGHT_PARTS]; /* one block of each part */
    ln_affine_error sum;
    ln_error error;
} worker;

typedef struct shard {
    ln_out file;
    uint64_t data; /* byte offset of its data area in the file */
} shard;

typedef struct writing {
    const ln_convert *c;
    const ln_convert_item *x;
    shard *shards;   /* [n_shards], all open */
    worker *workers; /* [n_threads] */
    int n_threads;
} writing;

static int64_t row_bytes(const ln_convert_item *x, int k) {
    return (int64_t)(part_bytes(x, k) / (uint64_t)x->w->d0);
}

/* Quantises, casts or copies the rows [lo, hi), at most one block, and writes them to the file. */
static ln_status write_rows(const writing *w, worker *me, int64_t lo, int64_t hi) {
    const ln_convert_item *x = w->x;
    const int64_t cols = LN_MAX(x->w->d1, 1), stored = ln_dtype_bytes(x->w->dtype);
    const uint8_t *from = x->w->tensor->data + lo * cols * stored;
    const void *parts[LN_WEIGHT_PARTS] = {me->parts[0], me->parts[1], me->parts[2]};
    if (x->enc.bits) {
        ln_affine_job j = {.w = x->w->tensor->data,
                           .stored = x->w->dtype,
                           .dtype = x->dtype,
                           .enc = x->enc,
                           .cols = cols,
                           .row0 = lo,
                           .codes = me->parts[0],
                           .scales = me->parts[1],
                           .biases = me->parts[2]};
        if (!ln_affine_rows(&j, lo, hi, me->row, &me->sum))
            return ln_fail(&me->error, LN_ENUMERIC,
                           "tensor %s: expected finite numbers to quantise, found a NaN or an infinity; get "
                           "the weights again",
                           x->w->tensor->name);
    } else if (x->dtype == x->w->dtype) {
        parts[0] = from;
    } else {
        for (int64_t i = 0; i < (hi - lo) * cols; i++)
            ln_num_store(me->parts[0], x->dtype, i, ln_num_load(from, x->w->dtype, i));
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

/* Writes blocks [lo, hi) of block_rows rows, up to a thread's first error. */
static void write_blocks(void *user, int thread, int64_t lo, int64_t hi) {
    const writing *w = user;
    worker *me = &w->workers[thread];
    const ln_weight *x = w->x->w;
    const int64_t n = block_rows(x), stored = LN_MAX(x->d1, 1) * ln_dtype_bytes(x->dtype);
    for (int64_t b = lo; b < hi && me->error.code == LN_OK; b++) {
        const int64_t from = b * n, to = LN_MIN(from + n, x->d0);
        ln_guard_fetch(x->tensor->data + from * stored, (size_t)((to - from) * stored));
        if (write_rows(w, me, from, to) != LN_OK) return;
        ln_guard_release(x->tensor->data + from * stored, (size_t)((to - from) * stored));
    }
}

static void report(const writing *w, ln_quantized *out) {
    const ln_convert_item *x = w->x;
    ln_affine_error sum = {0};
    for (int t = 0; t < w->n_threads; t++) {
        sum.lost2 += w->workers[t].sum.lost2;
        sum.all2 += w->workers[t].sum.all2;
        sum.most = LN_MAX(sum.most, w->workers[t].sum.most);
        w->workers[t].sum = (ln_affine_error){0};
    }
    *out = (ln_quantized){.name = x->name,
                          .rows = x->w->d0,
                          .cols = x->w->d1,
                          .bits = x->enc.bits,
                          .group = x->enc.group,
                          .bytes_before = x->w->tensor->bytes,
                          .bytes = x->bytes,
                          .rms_error = sum.all2 > 0 ? sqrt(sum.lost2 / sum.all2) : 0,
                          .max_error = sum.most};
}

static ln_status write_item(writing *w, ln_quantized_fn *fn, void *user, ln_error *err) {
    ln_quantized facts;
    const ln_weight *x = w->x->w;
    const int64_t n = block_rows(x),
                  slice = LN_POOL_SLICE_BYTES / (n * LN_MAX(x->d1, 1) * ln_dtype_bytes(x->dtype));
    ln_pool_run_units(ln_pool_default(), w->n_threads, (x->d0 + n - 1) / n, slice, write_blocks, w);
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
    ln_tensor_spec *specs = ln_zalloc(c->weights.n * LN_WEIGHT_PARTS, sizeof *specs);
    char(*names)[224] = ln_zalloc(c->weights.n * LN_WEIGHT_PARTS, sizeof *names), name[64], path[4096 + 128];
    ln_str s = {0};
    size_t n = 0;
    ln_status st = LN_OK;
    if (!specs || !names) LN_GO(LN_OOM(err, "a safetensors header"));
    for (size_t i = 0; i < c->weights.n; i++)
        for (int k = 0; k < ln_convert_parts(&c->items[i]); k++)
            if (c->items[i].shard[k] == i_shard) specs[n] = ln_convert_part(&c->items[i], k, names[n]), n++;
    LN_GO(ln_tensors_header_as(&s, "mlx", specs, n, err));
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
    for (size_t i = 0; i < c->weights.n; i++) {
        w->x = &c->items[i];
        LN_TRY(write_item(w, fn, user, err));
    }
    for (int s = 0; s < c->n_shards; s++) LN_TRY(ln_out_commit(&w->shards[s].file, err));
    return LN_OK;
}

/* Allocates each thread's buffers: a row as f32, and the largest block of each part. */
static ln_status new_workers(const ln_convert *c, worker *workers, int n_threads, ln_error *err) {
    int64_t cols = 1, most[LN_WEIGHT_PARTS] = {0};
    for (size_t i = 0; i < c->weights.n; i++) {
        const ln_convert_item *x = &c->items[i];
        cols = LN_MAX(cols, x->w->d1);
        for (int k = 0; k < ln_convert_parts(x); k++)
            most[k] = LN_MAX(most[k], block_rows(x->w) * row_bytes(x, k));
    }
    for (int t = 0; t < n_threads; t++) {
        workers[t].row = ln_zalloc((size_t)cols, sizeof(float));
        if (!workers[t].row) return LN_OOM(err, "rows that are quantised");
        for (int k = 0; k < LN_WEIGHT_PARTS; k++)
            if (!(workers[t].parts[k] = ln_zalloc(1, (size_t)most[k] + 1)))
                return LN_OOM(err, "rows that are quantised");
    }
    return LN_OK;
}

static ln_status write_all(const ln_convert *c, const char *to, int n_threads, ln_quantized_fn *fn,
                           void *user, ln_error *err) {
    ln_status st = LN_OK;
    writing w = {.c = c, .n_threads = n_threads};
    w.workers = ln_zalloc((size_t)n_threads, sizeof *w.workers);
    w.shards = ln_zalloc((size_t)c->n_shards, sizeof *w.shards);
    if (!w.workers || !w.shards) LN_GO(LN_OOM(err, "threads and shards"));
    LN_GO(new_workers(c, w.workers, n_threads, err));
    LN_GO(write_tensors(&w, to, fn, user, err));
    LN_GO(ln_convert_config(c, to, err));
    LN_GO(ln_convert_files(c, to, err));
    LN_GO(ln_tensors_check(&c->tensors, false, err));
out:
    for (int s = 0; w.shards && s < c->n_shards; s++) ln_out_abort(&w.shards[s].file);
    for (int t = 0; w.workers && t < n_threads; t++) {
        ln_free(w.workers[t].row);
        for (int k = 0; k < LN_WEIGHT_PARTS; k++) ln_free(w.workers[t].parts[k]);
    }
    ln_free(w.shards);
    ln_free(w.workers);
    return st;
}

ln_status ln_convert_quantize(const char *model, const char *out, const ln_quantize_options *opt,
                              uint64_t shard_bytes, ln_quantized_fn *fn, void *user, ln_error *err) {
    ln_convert *c = ln_zalloc(1, sizeof *c);
    ln_out_dir dir = {0};
    ln_status st = LN_OK;
    int n_threads = LN_MIN(opt->n_threads > 0 ? opt->n_threads : ln_cores(), 256);
    if (!c) return LN_OOM(err, "a model");
    LN_GO(ln_pool_reserve(ln_pool_default(), n_threads, err));
    LN_GO(open_model(c, model, err));
    LN_GO(decide_all(c, opt, shard_bytes, err));
    LN_GO(check_out(c, out, err));
    LN_GO(ln_out_dir_open(&dir, out, opt->force, err));
    LN_GO(write_all(c, dir.tmp, n_threads, fn, user, err));
    LN_GO(ln_out_dir_commit(&dir, err));
out:
    ln_out_dir_abort(&dir);
    close_model(c);
    ln_free(c);
    return st;
}
