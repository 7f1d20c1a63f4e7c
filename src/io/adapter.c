/* Opening an adapter: its file, pairs of tensors, shapes, the one form of all layouts; its digest.
 *
 * Every tensor of the file is one half of a pair, or it is refused by name: an adapter of which a part does
 * nothing would answer as if it were another one. */
#include "adapter.h"

#include "../base/elementary.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const layout_names[] = {"PEFT", "mlx-lm", "go-mlx"};
const char *ln_adapter_layout_name(ln_adapter_layout l) { return layout_names[l]; }

/* ---- the file ---- */

static bool is_weights(const char *name) {
    const size_t n = strlen(name);
    return n > 12 && strcmp(name + n - 12, ".safetensors") == 0;
}

/* go-mlx reads any safetensors file; more than one could hold the same tensors. */
static ln_status find_only(const char *dir, char *path, size_t cap, ln_error *err) {
    char shown[LN_PATH_TEXT], text[LN_ERRNO_TEXT], first[256] = "";
    ln_status st = LN_OK;
    DIR *d = opendir(dir);
    if (!d) return ln_fail(err, LN_EIO, "%s: %s", ln_path_text(shown, dir), ln_errno_text(text, errno));
    for (struct dirent *e; st == LN_OK && (e = readdir(d));) {
        if (!is_weights(e->d_name)) continue;
        if (first[0])
            st = ln_fail(err, LN_EUNSUPPORTED,
                         "%s: expected one file of tensors, found %.200s and %.200s; keep the one to apply",
                         ln_path_text(shown, dir), first, e->d_name);
        else (void)snprintf(first, sizeof first, "%s", e->d_name);
    }
    (void)closedir(d);
    LN_TRY(st);
    if (!first[0])
        return ln_fail(err, LN_EIO, "%s: expected adapter.safetensors, found no safetensors file",
                       ln_path_text(shown, dir));
    (void)snprintf(path, cap, "%s/%s", dir, first);
    return LN_OK;
}

static ln_status find_file(const ln_adapter *a, char *path, size_t cap, ln_error *err) {
    static const char *const names[] = {"adapter_model.safetensors", "adapters.safetensors",
                                        "adapter.safetensors"};
    char shown[LN_PATH_TEXT];
    const char *more = "";
    (void)snprintf(path, cap, "%s/%s", a->path, names[a->layout]);
    if (ln_exists(path)) return LN_OK;
    if (a->layout == LN_ADAPTER_GO_MLX) return find_only(a->path, path, cap, err);
    (void)snprintf(path, cap, "%s/adapter_model.bin", a->path);
    if (ln_exists(path))
        more = "; adapter_model.bin is PyTorch's form: save the adapter with safe_serialization";
    return ln_fail(err, LN_EIO, "%s: by its adapter_config.json an adapter of %s, which needs %s%s",
                   ln_path_text(shown, a->path), layout_names[a->layout], names[a->layout], more);
}

/* ---- names ---- */

typedef struct half {
    const char *full, *path; /* of the module: as in the file without its end, and without prefixes */
    const ln_tensor *t;
    bool is_b;
} half;

static const char *const ends[][2] = {
    {".lora_A.weight", ".lora_B.weight"}, {".lora_a", ".lora_b"}, {".lora_a", ".lora_b"}};

static bool cut(const char *name, size_t n, const char *end, size_t *left) {
    const size_t m = strlen(end);
    *left = n > m ? n - m : 0;
    return n > m && memcmp(name + n - m, end, m) == 0;
}

/* The path without the prefixes of checkpoints, which may be several. */
static const char *without_prefixes(const char *path) {
    static const char *const prefixes[] = {"language_model.", "model."};
    for (bool again = true; again;) {
        again = false;
        for (size_t i = 0; i < LN_COUNT(prefixes); i++)
            if (strncmp(path, prefixes[i], strlen(prefixes[i])) == 0)
                path += strlen(prefixes[i]), again = true;
    }
    return path;
}

static ln_status refuse_tensor(const ln_adapter *a, const ln_tensor *t, ln_status st, const char *why,
                               ln_error *err) {
    char shown[80];
    return ln_fail(err, st, "%s: tensor %s: %s", a->tensors.files[t->file].path,
                   ln_excerpt(shown, t->name, t->name_bytes), why);
}

static ln_status read_name(ln_adapter *a, const ln_tensor *t, half *out, ln_error *err) {
    static const char base[] = "base_model.model.";
    size_t n = t->name_bytes, left = 0, from = 0;
    *out = (half){.t = t, .is_b = cut(t->name, n, ends[a->layout][1], &left)};
    if (!out->is_b && !cut(t->name, n, ends[a->layout][0], &left)) {
        if (strstr(t->name, "lora_magnitude_vector") || cut(t->name, n, ".m", &left))
            return refuse_tensor(a, t, LN_EUNSUPPORTED, "linnet applies plain LoRA, not DoRA", err);
        if (strstr(t->name, "lora_embedding_"))
            return refuse_tensor(a, t, LN_EUNSUPPORTED, "LoRA on the embedding is not applied", err);
        char why[160];
        (void)snprintf(why, sizeof why, "expected a name that ends in %s or %s, as %s writes it",
                       ends[a->layout][0], ends[a->layout][1], layout_names[a->layout]);
        return refuse_tensor(a, t, LN_EINVALID, why, err);
    }
    if (a->layout == LN_ADAPTER_PEFT) {
        if (n <= sizeof base || memcmp(t->name, base, sizeof base - 1) != 0)
            return refuse_tensor(a, t, LN_EINVALID, "expected a name that begins with base_model.model.",
                                 err);
        from = sizeof base - 1;
    }
    if (left <= from) return refuse_tensor(a, t, LN_EINVALID, "the name has no module", err);
    out->full = ln_arena_strndup(&a->arena, t->name + from, left - from);
    if (!out->full) return LN_OOM(err, "an adapter");
    out->path = without_prefixes(out->full);
    return LN_OK;
}

/* ---- pairs ---- */

static int by_path(const void *x, const void *y) {
    const half *a = x, *b = y;
    const int order = strcmp(a->path, b->path);
    return order ? order : (int)a->is_b - (int)b->is_b;
}

static bool dtype_is_known(const ln_tensor *t) {
    return t->dtype == LN_ST_F32 || t->dtype == LN_ST_BF16 || t->dtype == LN_ST_F16;
}

static ln_status check_half(const ln_adapter *a, const ln_tensor *t, ln_error *err) {
    if (t->n_dims != 2 || t->dims[0] < 1 || t->dims[1] < 1)
        return refuse_tensor(a, t, LN_EUNSUPPORTED,
                             t->n_dims == 3
                                 ? "expected a matrix, found three dimensions: LoRA on experts is not "
                                   "applied"
                                 : "expected a matrix",
                             err);
    if (dtype_is_known(t)) return LN_OK;
    return refuse_tensor(a, t, LN_EUNSUPPORTED, "expected f32, bf16 or f16", err);
}

/* Fills in one module from its two halves. */
static ln_status make_pair(ln_adapter *a, const ln_adapter_config *c, const half *x, const half *y,
                           ln_adapter_module *m, ln_error *err) {
    const bool turned = a->transposed;
    int64_t rank;
    LN_TRY(check_half(a, x->t, err));
    LN_TRY(check_half(a, y->t, err));
    *m = (ln_adapter_module){.path = x->path,
                             .a = x->t,
                             .b = y->t,
                             .rank = x->t->dims[turned],
                             .n_in = x->t->dims[!turned],
                             .n_out = y->t->dims[turned]};
    LN_TRY(ln_adapter_rank_of(c, x->full, &rank, err));
    if (m->rank != rank || y->t->dims[!turned] != rank)
        return ln_fail(err, LN_EINVALID,
                       "%s: %s: A is [%lld,%lld] and B is [%lld,%lld]; %s stores %s of rank %lld, which its "
                       "adapter_config.json states",
                       a->tensors.files[x->t->file].path, x->full, (long long)x->t->dims[0],
                       (long long)x->t->dims[1], (long long)y->t->dims[0], (long long)y->t->dims[1],
                       layout_names[a->layout], turned ? "[in,r] and [r,out]" : "[r,in] and [out,r]",
                       (long long)rank);
    if (!ln_adapter_targets(c, x->full, x->path))
        return ln_fail(err, LN_EINVALID, "%s: the module %s has tensors and is not among those that it names",
                       c->path, x->full);
    return ln_adapter_scale_of(c, x->full, rank, &m->scale, err);
}

static ln_status make_pairs(ln_adapter *a, const ln_adapter_config *c, half *halves, size_t n,
                            ln_error *err) {
    qsort(halves, n, sizeof *halves, by_path);
    for (size_t i = 0; i < n;) {
        const half *x = &halves[i], *y = i + 1 < n ? &halves[i + 1] : NULL;
        const bool pair = y && strcmp(x->path, y->path) == 0;
        if (pair && x->is_b == y->is_b)
            return refuse_tensor(a, y->t, LN_EINVALID, "the same module occurs twice, under two prefixes",
                                 err);
        if (!pair) {
            char why[100];
            (void)snprintf(why, sizeof why, "its other half, %s, is missing", ends[a->layout][!x->is_b]);
            return refuse_tensor(a, x->t, LN_EINVALID, why, err);
        }
        LN_TRY(make_pair(a, c, x, y, &a->modules[a->n++], err));
        i += 2;
    }
    return LN_OK;
}

static ln_status read_modules(ln_adapter *a, const ln_adapter_config *c, ln_error *err) {
    const size_t n = a->tensors.n;
    half *halves = ln_zalloc(n + 1, sizeof *halves);
    a->modules = ln_arena_alloc(&a->arena, (n / 2 + 1) * sizeof *a->modules);
    ln_status st = halves && a->modules ? LN_OK : LN_OOM(err, "an adapter");
    for (size_t i = 0; st == LN_OK && i < n; i++) st = read_name(a, &a->tensors.items[i], &halves[i], err);
    if (st == LN_OK && n == 0) st = ln_fail(err, LN_EINVALID, "%s: the adapter has no tensors", a->path);
    if (st == LN_OK) st = make_pairs(a, c, halves, n, err);
    ln_free(halves);
    return st;
}

/* ---- open ---- */

static ln_status open_parts(ln_adapter *a, const char *dir, ln_adapter_config *c, ln_error *err) {
    char path[4400], shown[LN_PATH_TEXT], text[LN_ERRNO_TEXT];
    bool is_dir = false;
    if (!realpath(dir, a->path))
        return ln_fail(err, LN_EIO, "%s: expected the directory of an adapter: %s", ln_path_text(shown, dir),
                       ln_errno_text(text, errno));
    LN_TRY(ln_look_dir(a->path, &is_dir, err));
    if (!is_dir)
        return ln_fail(err, LN_EINVALID, "%s: expected the directory of an adapter, found a file",
                       ln_path_text(shown, dir));
    LN_TRY(ln_adapter_config_open(c, a->path, err));
    a->layout = c->layout;
    a->transposed = c->layout == LN_ADAPTER_MLX_LM;
    a->n_last_layers = c->n_last_layers;
    LN_TRY(find_file(a, path, sizeof path, err));
    LN_TRY(ln_tensors_open_file(&a->tensors, path, err));
    return read_modules(a, c, err);
}

ln_status ln_adapter_open(ln_adapter **out, const char *dir, ln_error *err) {
    ln_adapter_config c = {0};
    ln_adapter *a = ln_zalloc(1, sizeof *a);
    *out = NULL;
    if (!a) return LN_OOM(err, "an adapter");
    const ln_status st = open_parts(a, dir, &c, err);
    ln_adapter_config_close(&c);
    if (st != LN_OK) ln_adapter_close(&a);
    *out = a;
    return st;
}

void ln_adapter_close(ln_adapter **adapter) {
    ln_adapter *a = *adapter;
    *adapter = NULL;
    if (!a) return;
    ln_tensors_close(&a->tensors);
    ln_arena_free(&a->arena);
    ln_free(a);
}

/* ---- values ---- */

static float value_at(const ln_tensor *t, size_t i) {
    uint16_t half_bits;
    float f;
    if (t->dtype == LN_ST_F32) {
        memcpy(&f, t->data + 4 * i, sizeof f);
        return f;
    }
    memcpy(&half_bits, t->data + 2 * i, sizeof half_bits);
    return t->dtype == LN_ST_BF16 ? ln_bf16_f32(half_bits) : ln_f16_f32(half_bits);
}

/* Writes a tensor as [rows, cols]; `turned`: it is stored [cols, rows]. */
static void read_matrix(const ln_tensor *t, bool turned, int64_t rows, int64_t cols, float *out) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++)
            out[i * cols + k] = value_at(t, (size_t)(turned ? k * rows + i : i * cols + k));
}

void ln_adapter_read(const ln_adapter *a, const ln_adapter_module *m, float *A, float *B) {
    read_matrix(m->a, a->transposed, m->rank, m->n_in, A);
    read_matrix(m->b, a->transposed, m->n_out, m->rank, B);
}

ln_status ln_adapter_digest(const ln_adapter *a, char digest[LN_SHA256_HEX], ln_error *err) {
    ln_sha256 h;
    ln_sha256_open(&h);
    for (size_t i = 0; i < a->n; i++) {
        const ln_adapter_module *m = &a->modules[i];
        ln_str s = {0};
        ln_str_addf(&s, "%s %d %d %lld %lld %lld ", m->path, m->a->dtype, m->b->dtype, (long long)m->rank,
                    (long long)m->n_in, (long long)m->n_out);
        ln_str_double(&s, m->scale);
        ln_str_addf(&s, " %d", a->transposed);
        if (!s.failed) ln_sha256_add_text(&h, s.data, s.len);
        const bool failed = s.failed;
        ln_str_free(&s);
        if (failed) return LN_OOM(err, "a digest");
        ln_sha256_add(&h, m->a->data, m->a->bytes);
        ln_sha256_add(&h, m->b->data, m->b->bytes);
    }
    ln_sha256_hex(&h, digest);
    return ln_tensors_check(&a->tensors, false, err);
}
