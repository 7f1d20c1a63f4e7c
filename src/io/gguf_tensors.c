/* The tensors of a GGUF file as those of a checkpoint: names and order of dimensions as in safetensors.
 *
 * Blocks of quantised types stay as they are (LN_ST_BLOCKS), and so do the rows of q and k that stand in
 * pairs; checkpoint/gguf_source.c makes weights of both. A tensor without a row in gguf_names.def keeps its
 * name, so that it is among the unused ones that a warning counts. */
#include "directory.h"
#include "gguf_model.h"

#include <stdio.h>
#include <string.h>

enum { PLACE_LAYER, PLACE_MODEL };
typedef struct name_row {
    uint64_t archs;
    int place;
    const char *there, *name;
} name_row;

static const name_row *name_rows(size_t *n) {
    enum { LAYER = PLACE_LAYER, MODEL = PLACE_MODEL };
#define IS(NAME) LN_GGUF_BIT(NAME)
#define ALL      LN_GGUF_ALL
    static const name_row rows[] = {
#define LN_GGUF_NAME(archs, place, there, name) {archs, place, there, name},
#include "gguf_names.def"
#undef LN_GGUF_NAME
    };
#undef ALL
#undef IS
    *n = LN_COUNT(rows);
    return rows;
}

/* A name in parts: blk.LAYER.STEM.LEAF, or STEM.LEAF. */
typedef struct parts {
    int64_t layer; /* -1: outside the layers */
    const char *stem, *leaf;
    size_t stem_bytes;
} parts;

static parts split(const char *name) {
    parts p = {.layer = -1, .stem = name};
    if (strncmp(name, "blk.", 4) == 0) {
        const size_t digits = strspn(name + 4, "0123456789");
        if (name[4 + digits] == '.' && ln_parse_i64(name + 4, digits, &p.layer) && p.layer < INT32_MAX)
            p.stem = name + 4 + digits + 1;
        else p.layer = -1;
    }
    const char *dot = strrchr(p.stem, '.');
    p.stem_bytes = dot ? (size_t)(dot - p.stem) : strlen(p.stem);
    p.leaf = dot ? dot + 1 : "";
    return p;
}

static bool is_stem(const parts *p, const char *name) {
    return strlen(name) == p->stem_bytes && memcmp(name, p->stem, p->stem_bytes) == 0;
}

static const name_row *find_row(ln_gguf_arch_id arch, const parts *p) {
    size_t n;
    const name_row *rows = name_rows(&n);
    for (size_t i = 0; i < n; i++)
        if (rows[i].archs & UINT64_C(1) << arch && (rows[i].place == PLACE_LAYER) == (p->layer >= 0) &&
            (is_stem(p, rows[i].there) || strcmp(p->stem, rows[i].there) == 0))
            return &rows[i];
    return NULL;
}

/* Writes the name of a tensor in safetensors; false: it belongs to the configuration. */
static bool translate(ln_gguf_arch_id arch, const char *name, ln_str *out) {
    const parts p = split(name);
    const name_row *row = find_row(arch, &p);
    if (!row) ln_str_adds(out, name);
    if (!row || !row->name) return !row;
    if (p.layer >= 0) ln_str_addf(out, "model.layers.%lld.", (long long)p.layer);
    ln_str_adds(out, row->name);
    if (p.leaf[0] && is_stem(&p, row->there)) ln_str_addf(out, ".%s", p.leaf);
    return true;
}

static ln_st_dtype dtype_of(ln_ggml_type type) {
    switch (type) {
    case LN_GGML_F32: return LN_ST_F32;
    case LN_GGML_F16: return LN_ST_F16;
    case LN_GGML_BF16: return LN_ST_BF16;
    default: return (ln_st_dtype)(LN_ST_BLOCKS + (int)type);
    }
}

/* Sets the order of rows of heads that stand in pairs. */
static ln_status find_pairs(const ln_gguf *g, ln_gguf_arch_id arch, const ln_gguf_tensor *from, ln_tensor *x,
                            ln_error *err) {
    const parts p = split(from->name);
    char key[LN_GGUF_KEY_BYTES], path[LN_PATH_TEXT];
    int64_t heads = 0;
    bool found, is_q = is_stem(&p, "attn_q"), is_k = is_stem(&p, "attn_k");
    if (!ln_gguf_archs[arch].pairs || p.layer < 0 || (!is_q && !is_k)) return LN_OK;
    if (is_k)
        LN_TRY(ln_gguf_int(g, ln_gguf_arch_key(key, arch, "attention.head_count_kv"), 1, 65536, &heads,
                           &found, err));
    if (heads == 0)
        LN_TRY(ln_gguf_int(g, ln_gguf_arch_key(key, arch, "attention.head_count"), 1, 65536, &heads, &found,
                           err));
    if (heads == 0 || x->dims[0] % (2 * heads))
        return ln_fail(err, LN_EINVALID,
                       "%s: tensor %s: expected rows of %lld heads in pairs, found %lld rows",
                       ln_path_text(path, g->files[from->file].path), from->name, (long long)heads,
                       (long long)x->dims[0]);
    x->rows = (ln_tensor_order){.n_outer = 2, .n_inner = x->dims[0] / heads / 2, .unit = 1};
    return LN_OK;
}

/* ---- recurrent layers ---- */

static bool has_value_heads(ln_gguf_arch_id arch) {
    return arch == LN_GGUF_ARCH_QWEN35 || arch == LN_GGUF_ARCH_QWEN35MOE;
}

/* Sizes of Qwen 3.5's recurrent layers. */
typedef struct recurrent {
    int64_t k_heads, v_heads, k_dim, v_dim;
} recurrent;

static ln_status read_recurrent(const ln_gguf *g, ln_gguf_arch_id arch, recurrent *r, ln_error *err) {
    char key[LN_GGUF_KEY_BYTES];
    int64_t values = 1;
    LN_TRY(ln_gguf_int(g, ln_gguf_arch_key(key, arch, "ssm.group_count"), 1, 65536, &r->k_heads, NULL, err));
    LN_TRY(ln_gguf_int(g, ln_gguf_arch_key(key, arch, "ssm.state_size"), 1, 65536, &r->k_dim, NULL, err));
    LN_TRY(ln_gguf_int(g, ln_gguf_arch_key(key, arch, "ssm.inner_size"), 1, INT32_MAX, &values, NULL, err));
    ln_gguf_arch_key(key, arch, "ssm.time_step_rank");
    LN_TRY(ln_gguf_int(g, key, 1, 65536, &r->v_heads, NULL, err));
    r->v_dim = values / r->v_heads;
    if (r->v_heads % r->k_heads || values % r->v_heads)
        return ln_gguf_fail(g, key, "a multiple of ssm.group_count and a divisor of ssm.inner_size", err);
    return LN_OK;
}

/* Value heads stand by their number within a key head, and not by key head; the kernel of the convolution has
 * two dimensions, and the logarithms of decays are stored as decays. */
static ln_status find_value_heads(const ln_gguf *g, ln_gguf_arch_id arch, const ln_gguf_tensor *from,
                                  ln_tensor *x, ln_error *err) {
    char path[LN_PATH_TEXT];
    recurrent r = {1, 1, 1, 1};
    const parts p = split(from->name);
    if (!has_value_heads(arch) || p.layer < 0) return LN_OK;
    LN_TRY(read_recurrent(g, arch, &r, err));
    const int64_t keys = 2 * r.k_heads * r.k_dim, per_key = r.v_heads / r.k_heads;
    ln_tensor_order heads = {.n_outer = r.k_heads, .n_inner = per_key, .unit = r.v_dim}, *to = &x->rows;
    int64_t n = r.v_heads * r.v_dim;
    if (is_stem(&p, "attn_qkv")) heads.first = keys;
    else if (is_stem(&p, "ssm_out")) to = &x->columns;
    else if (is_stem(&p, "ssm_alpha") || is_stem(&p, "ssm_beta") || is_stem(&p, "ssm_a") ||
             is_stem(&p, "ssm_dt"))
        heads.unit = 1, n = r.v_heads;
    else if (is_stem(&p, "ssm_conv1d") && x->n_dims == 2) {
        heads.first = keys * x->dims[1], heads.unit *= x->dims[1], n *= x->dims[1];
        x->n_dims = 3, x->dims[2] = x->dims[1], x->dims[1] = 1;
    } else if (!is_stem(&p, "attn_gate")) return LN_OK;
    const int64_t have = to == &x->columns ? x->dims[1]
                         : x->n_dims == 3  ? x->dims[0] * x->dims[2]
                                           : x->dims[0];
    if (have != heads.first + n)
        return ln_fail(err, LN_EINVALID, "%s: tensor %s: expected %lld values of %lld heads, found %lld",
                       ln_path_text(path, g->files[from->file].path), from->name,
                       (long long)(heads.first + n), (long long)r.v_heads, (long long)have);
    x->is_decay = is_stem(&p, "ssm_a");
    if (per_key > 1 && r.k_heads > 1) *to = heads;
    return LN_OK;
}

/* Adds the dimension of 1 that files leave out. */
static void find_dimensions(const ln_gguf_tensor *from, ln_tensor *x) {
    const parts p = split(from->name);
    if (is_stem(&p, "shortconv.conv") && x->n_dims == 2)
        x->n_dims = 3, x->dims[2] = x->dims[1], x->dims[1] = 1;
    if (is_stem(&p, "ffn_gate_inp_shexp") && x->n_dims == 1)
        x->n_dims = 2, x->dims[1] = x->dims[0], x->dims[0] = 1;
}

/* Returns a tensor of a file without its name; dimensions in the order of safetensors. */
static ln_tensor tensor_of(const ln_tensors *t, const ln_gguf_tensor *from) {
    ln_tensor x = {.dtype = dtype_of(from->type),
                   .n_dims = from->n_dims,
                   .data = from->data,
                   .bytes = from->bytes,
                   .file = from->file,
                   .copied = t->files[from->file].map.copied};
    for (int d = 0; d < from->n_dims; d++) x.dims[d] = from->dims[from->n_dims - 1 - d];
    return x;
}

static ln_status add_tensor(ln_tensors *t, const ln_gguf *g, ln_gguf_arch_id arch, const ln_gguf_tensor *from,
                            ln_error *err) {
    ln_str name = {0};
    if (!translate(arch, from->name, &name) && !name.failed) return LN_OK;
    ln_tensor x = tensor_of(t, from);
    x.name = name.failed ? NULL : ln_arena_strndup(&t->arena, name.data, name.len);
    x.name_bytes = name.len;
    ln_str_free(&name);
    if (!x.name) return LN_OOM(err, "a tensor's name");
    LN_TRY(find_pairs(g, arch, from, &x, err));
    LN_TRY(find_value_heads(g, arch, from, &x, err));
    find_dimensions(from, &x);
    t->items[t->n++] = x;
    t->bytes += x.bytes;
    return LN_OK;
}

/* ---- numbers ---- */

enum { MOST_LAYERS = 4096 };
/* Numbers of layers that are tensors of directories, and metadata of GGUF files: those of xIELU. */
static const struct {
    const char *key, *name;
} numbers[] = {
    {"xielu.alpha_p", "alpha_p"}, {"xielu.alpha_n", "alpha_n"}, {"xielu.beta", "beta"}, {"xielu.eps", "eps"}};

/* Adds a tensor for each layer, which is an element of the array in the file. A single value is that of all
 * layers. */
static ln_status add_numbers(ln_tensors *t, const ln_gguf *g, size_t i, int64_t layers, ln_error *err) {
    char name[80];
    const ln_gguf_value *v = ln_gguf_find(g, numbers[i].key);
    if (!v) return LN_OK;
    if (v->type != LN_GGUF_F32 || (v->is_array && v->n != (uint64_t)layers))
        return ln_gguf_fail(g, numbers[i].key, "a number of f32 for each layer", err);
    for (int64_t l = 0; l < layers; l++) {
        const int n =
            snprintf(name, sizeof name, "model.layers.%lld.mlp.act_fn.%s", (long long)l, numbers[i].name);
        ln_tensor x = {.dtype = LN_ST_F32,
                       .n_dims = 1,
                       .dims = {1},
                       .data = v->data + (v->is_array ? 4 * l : 0),
                       .bytes = 4,
                       .copied = t->files[0].map.copied,
                       .name = ln_arena_strndup(&t->arena, name, (size_t)n),
                       .name_bytes = (size_t)n};
        if (!x.name) return LN_OOM(err, "a tensor's name");
        LN_TRY(ln_grow((void **)&t->items, &t->cap, t->n + 1, sizeof *t->items, err));
        t->items[t->n++] = x;
        t->bytes += x.bytes;
    }
    return LN_OK;
}

static ln_status add_all_numbers(ln_tensors *t, const ln_gguf *g, ln_gguf_arch_id arch, ln_error *err) {
    char key[LN_GGUF_KEY_BYTES];
    int64_t layers = 0;
    if (arch != LN_GGUF_ARCH_APERTUS) return LN_OK;
    ln_gguf_arch_key(key, arch, "block_count");
    LN_TRY(ln_gguf_int(g, key, 1, MOST_LAYERS, &layers, NULL, err));
    for (size_t i = 0; i < LN_COUNT(numbers); i++) LN_TRY(add_numbers(t, g, i, layers, err));
    return LN_OK;
}

/* Moves the mappings of the files to *t. */
static ln_status take_files(ln_tensors *t, ln_gguf *g, ln_error *err) {
    t->files = ln_zalloc(g->n_files, sizeof *t->files);
    t->items = ln_zalloc(g->n_tensors + 1, sizeof *t->items);
    if (!t->files || !t->items) return LN_OOM(err, "the tensors of a GGUF file");
    t->cap_files = g->n_files;
    t->cap = g->n_tensors + 1;
    for (size_t i = 0; i < g->n_files; i++) {
        char *path = ln_arena_strndup(&t->arena, g->files[i].path, strlen(g->files[i].path));
        if (!path) return LN_OOM(err, "a file's name");
        t->files[t->n_files++] = (ln_shard){.path = path, .map = g->files[i].map};
        g->files[i].map = (ln_map){0};
    }
    return LN_OK;
}

ln_status ln_tensors_of_gguf(ln_tensors *out, const char *path, ln_error *err) {
    ln_gguf *g;
    ln_gguf_arch_id arch = LN_GGUF_ARCH_LLAMA;
    LN_TRY(ln_gguf_open(&g, path, err));
    ln_status st = ln_gguf_find_arch(g, &arch, err);
    if (st == LN_OK) st = take_files(out, g, err);
    for (size_t i = 0; i < g->n_tensors && st == LN_OK; i++)
        st = add_tensor(out, g, arch, &g->tensors[i], err);
    if (st == LN_OK) st = add_all_numbers(out, g, arch, err);
    if (st == LN_OK) st = ln_tensors_finish(out, err);
    ln_gguf_close(&g);
    return st;
}

/* ---- LoRA ---- */

/* Adds blk.N.STEM.weight.lora_a or .lora_b. */
static ln_status add_lora(ln_tensors *t, const ln_gguf *g, ln_gguf_arch_id arch, const ln_gguf_tensor *from,
                          ln_error *err) {
    static const char weight[] = ".weight";
    char base[LN_GGUF_MAX_NAME + 1], path[LN_PATH_TEXT];
    ln_str name = {0};
    const char *end = strrchr(from->name, '.');
    const size_t n = end ? (size_t)(end - from->name) : 0;
    ln_path_text(path, g->files[from->file].path);
    if (!end || (strcmp(end, ".lora_a") != 0 && strcmp(end, ".lora_b") != 0))
        return ln_fail(err, LN_EUNSUPPORTED, "%s: tensor %s: expected a name that ends in .lora_a or .lora_b",
                       path, from->name);
    memcpy(base, from->name, n);
    base[n] = '\0';
    const parts p = split(base);
    if (has_value_heads(arch) &&
        (is_stem(&p, "attn_qkv") || is_stem(&p, "attn_gate") || strncmp(p.stem, "ssm_", 4) == 0))
        return ln_fail(err, LN_EUNSUPPORTED, "%s: tensor %s: LoRA on recurrent layers is not applied", path,
                       from->name);
    (void)translate(arch, base, &name);
    if (name.len > sizeof weight - 1 &&
        memcmp(name.data + name.len - (sizeof weight - 1), weight, sizeof weight - 1) == 0)
        name.len -= sizeof weight - 1;
    ln_str_adds(&name, end);
    ln_tensor x = tensor_of(t, from);
    if (ln_gguf_archs[arch].pairs && strcmp(end, ".lora_b") == 0 &&
        (is_stem(&p, "attn_q") || is_stem(&p, "attn_k")))
        x.rows = (ln_tensor_order){.n_outer = 2, .unit = 1};
    x.name = name.failed ? NULL : ln_arena_strndup(&t->arena, name.data, name.len);
    x.name_bytes = name.len;
    ln_str_free(&name);
    if (!x.name) return LN_OOM(err, "a tensor's name");
    t->items[t->n++] = x;
    t->bytes += x.bytes;
    return LN_OK;
}

ln_status ln_tensors_of_gguf_lora(ln_tensors *out, const char *path, double *alpha, ln_error *err) {
    ln_gguf *g;
    ln_gguf_arch_id arch = LN_GGUF_ARCH_LLAMA;
    *alpha = 0;
    LN_TRY(ln_gguf_open(&g, path, err));
    ln_status st = ln_gguf_find_lora_arch(g, &arch, err);
    if (st == LN_OK) st = ln_gguf_real(g, "adapter.lora.alpha", alpha, NULL, err);
    if (st == LN_OK) st = take_files(out, g, err);
    for (size_t i = 0; i < g->n_tensors && st == LN_OK; i++) st = add_lora(out, g, arch, &g->tensors[i], err);
    if (st == LN_OK) st = ln_tensors_finish(out, err);
    ln_gguf_close(&g);
    return st;
}
