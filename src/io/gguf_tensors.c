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
    unsigned archs;
    int place;
    const char *there, *name;
} name_row;

static const name_row *name_rows(size_t *n) {
    enum {
#define LN_GGUF_ARCH(NAME, arch, model_type, class, order) NAME = LN_GGUF_BIT_##NAME,
#include "gguf_archs.def"
#undef LN_GGUF_ARCH
        ALL = (1 << LN_GGUF_ARCH_COUNT) - 1,
        LAYER = PLACE_LAYER,
        MODEL = PLACE_MODEL
    };
    static const name_row rows[] = {
#define LN_GGUF_NAME(archs, place, there, name) {archs, place, there, name},
#include "gguf_names.def"
#undef LN_GGUF_NAME
    };
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

static const name_row *find_row(ln_gguf_arch_id arch, const parts *p) {
    size_t n;
    const name_row *rows = name_rows(&n);
    for (size_t i = 0; i < n; i++)
        if (rows[i].archs & 1u << arch && (rows[i].place == PLACE_LAYER) == (p->layer >= 0) &&
            strlen(rows[i].there) == p->stem_bytes && memcmp(rows[i].there, p->stem, p->stem_bytes) == 0)
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
    if (strcmp(row->there, "attn_sinks") == 0 || strcmp(row->there, "layer_output_scale") == 0)
        return true; /* parameters of a layer without a module of their own */
    if (p.leaf[0]) ln_str_addf(out, ".%s", p.leaf);
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

/* Sets the number of heads whose rows stand in pairs. */
static ln_status find_pairs(const ln_gguf *g, ln_gguf_arch_id arch, const ln_gguf_tensor *from, ln_tensor *x,
                            ln_error *err) {
    const parts p = split(from->name);
    char key[LN_GGUF_KEY_BYTES], path[LN_PATH_TEXT];
    int64_t heads = 0;
    bool found, is_q = p.stem_bytes == 6 && memcmp(p.stem, "attn_q", 6) == 0,
                is_k = p.stem_bytes == 6 && memcmp(p.stem, "attn_k", 6) == 0;
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
    x->pairs_of_heads = (int)heads;
    return LN_OK;
}

static ln_status add_tensor(ln_tensors *t, const ln_gguf *g, ln_gguf_arch_id arch, const ln_gguf_tensor *from,
                            ln_error *err) {
    ln_str name = {0};
    if (!translate(arch, from->name, &name) && !name.failed) return LN_OK;
    ln_tensor x = {.dtype = dtype_of(from->type),
                   .n_dims = from->n_dims,
                   .data = from->data,
                   .bytes = from->bytes,
                   .file = from->file,
                   .copied = g->files[from->file].map.copied};
    for (int d = 0; d < from->n_dims; d++) x.dims[d] = from->dims[from->n_dims - 1 - d];
    x.name = name.failed ? NULL : ln_arena_strndup(&t->arena, name.data, name.len);
    x.name_bytes = name.len;
    ln_str_free(&name);
    if (!x.name) return LN_OOM(err, "a tensor's name");
    LN_TRY(find_pairs(g, arch, from, &x, err));
    t->items[t->n++] = x;
    t->bytes += x.bytes;
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
    if (st == LN_OK) st = ln_tensors_finish(out, err);
    ln_gguf_close(&g);
    return st;
}
