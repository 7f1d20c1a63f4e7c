/* Reads GGUF files: the header, the metadata, the directory of tensors.
 *
 *     header    "GGUF", u32 version, u64 tensors, u64 values
 *     value     text key, u32 type, the value
 *     tensor    text name, u32 rank, u64 dims[rank], u32 type, u64 offset
 *     data      begin at the next multiple of general.alignment
 *     text      u64 bytes, bytes
 *
 * Offsets of tensors are relative to the data, and multiples of general.alignment too. All integers are
 * little-endian. A value that is an array has the type and the number of its elements in front of them. Texts
 * of an array lie one after another: the position of every LN_GGUF_MARK-th is kept, from which the others are
 * found. */
#include "gguf.h"

#include "c_locale.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The state of reading a file. `what` is what is read now, for messages. */
typedef struct reader {
    ln_gguf *g;
    ln_error *err;
    const uint8_t *data;
    uint64_t bytes, at;
    char path[LN_PATH_TEXT], what[96]; /* "key general.name"; "" outside */
} reader;

#define AGAIN "; download it again"

static ln_status refuse(const reader *r, ln_status code, const char *fmt, ...) LN_PRINTF(3, 4);
static ln_status refuse(const reader *r, ln_status code, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    const int n = ln_vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return ln_fail(r->err, code, "%s: %s%s%s", r->path, r->what, r->what[0] ? ": " : "", n < 0 ? "" : text);
}

static uint64_t number(const uint8_t *p, unsigned bytes) {
    uint64_t v = 0;
    while (bytes-- > 0) v = v << 8 | p[bytes];
    return v;
}

/* Advances past `bytes` bytes; *out is where they begin. */
static ln_status take(reader *r, uint64_t bytes, const uint8_t **out) {
    *out = r->data + r->at;
    if (bytes > r->bytes - r->at)
        return refuse(r, LN_EINVALID, "byte %llu: expected %llu more bytes, the file has %llu" AGAIN,
                      (unsigned long long)r->at, (unsigned long long)bytes,
                      (unsigned long long)(r->bytes - r->at));
    r->at += bytes;
    return LN_OK;
}

static ln_status take_number(reader *r, unsigned bytes, uint64_t *out) {
    const uint8_t *p;
    LN_TRY(take(r, bytes, &p));
    *out = number(p, bytes);
    return LN_OK;
}

static ln_status take_text(reader *r, ln_gguf_text *out) {
    const uint8_t *p;
    uint64_t n;
    LN_TRY(take_number(r, 8, &n));
    LN_TRY(take(r, n, &p));
    *out = (ln_gguf_text){(const char *)p, (size_t)n};
    return LN_OK;
}

/* Reads a key or the name of a tensor; `kind` becomes the beginning of messages. */
static ln_status take_name(reader *r, const char *kind, ln_gguf_text *out) {
    char shown[80];
    r->what[0] = '\0';
    LN_TRY(take_text(r, out));
    (void)snprintf(r->what, sizeof r->what, "%s %s", kind, ln_excerpt(shown, out->data, out->bytes));
    if (out->bytes > 0 && out->bytes <= LN_GGUF_MAX_NAME && !memchr(out->data, 0, out->bytes)) return LN_OK;
    return refuse(r, LN_EINVALID, "expected a name of 1 to %u bytes without U+0000, found one of %llu bytes",
                  LN_GGUF_MAX_NAME, (unsigned long long)out->bytes);
}

/* ---- metadata ---- */

static const struct {
    const char *name;
    unsigned bytes; /* 0: not of one size */
} types[LN_GGUF_TYPES] = {
    [LN_GGUF_U8] = {"u8", 1},          [LN_GGUF_I8] = {"i8", 1},     [LN_GGUF_U16] = {"u16", 2},
    [LN_GGUF_I16] = {"i16", 2},        [LN_GGUF_U32] = {"u32", 4},   [LN_GGUF_I32] = {"i32", 4},
    [LN_GGUF_F32] = {"f32", 4},        [LN_GGUF_BOOL] = {"bool", 1}, [LN_GGUF_TEXT] = {"a text", 0},
    [LN_GGUF_ARRAY] = {"an array", 0}, [LN_GGUF_U64] = {"u64", 8},   [LN_GGUF_I64] = {"i64", 8},
    [LN_GGUF_F64] = {"f64", 8},
};

/* Reads the texts of an array, and keeps the positions of some. */
static ln_status take_texts(reader *r, ln_gguf_value *v) {
    ln_gguf_text text;
    if (v->n > (r->bytes - r->at) / 8)
        return refuse(r, LN_EINVALID, "%llu texts do not fit into the %llu bytes that follow" AGAIN,
                      (unsigned long long)v->n, (unsigned long long)(r->bytes - r->at));
    const uint64_t n_marks = v->n / LN_GGUF_MARK + 1, begin = r->at;
    v->marks = ln_arena_alloc(&r->g->arena, (size_t)n_marks * sizeof *v->marks);
    if (!v->marks) return LN_OOM(r->err, "the metadata of a GGUF file");
    for (uint64_t i = 0; i < v->n; i++) {
        if (r->at - begin > UINT32_MAX) return refuse(r, LN_EUNSUPPORTED, "more than 4 GiB of texts");
        if (i % LN_GGUF_MARK == 0) v->marks[i / LN_GGUF_MARK] = (uint32_t)(r->at - begin);
        LN_TRY(take_text(r, &text));
    }
    return LN_OK;
}

static ln_status take_elements(reader *r, ln_gguf_value *v) {
    v->data = r->data + r->at;
    if (v->type == LN_GGUF_TEXT && v->is_array) return take_texts(r, v);
    ln_gguf_text text;
    if (v->type == LN_GGUF_TEXT) return take_text(r, &text);
    uint64_t bytes;
    if (__builtin_mul_overflow(v->n, (uint64_t)types[v->type].bytes, &bytes)) bytes = UINT64_MAX;
    LN_TRY(take(r, bytes, &v->data));
    for (uint64_t i = 0; v->type == LN_GGUF_BOOL && i < v->n; i++)
        if (v->data[i] > 1) return refuse(r, LN_EINVALID, "expected a bool of 0 or 1, found %u", v->data[i]);
    return LN_OK;
}

static ln_status take_type(reader *r, bool inner, ln_gguf_type *out) {
    uint64_t type;
    LN_TRY(take_number(r, 4, &type));
    if (type >= LN_GGUF_TYPES)
        return refuse(r, LN_EINVALID, "expected a type from 0 to %d, found %llu", LN_GGUF_TYPES - 1,
                      (unsigned long long)type);
    if (inner && type == LN_GGUF_ARRAY) return refuse(r, LN_EUNSUPPORTED, "an array of arrays is not read");
    *out = (ln_gguf_type)type;
    return LN_OK;
}

static ln_status take_value(reader *r, ln_gguf_value *v) {
    ln_gguf_text key;
    LN_TRY(take_name(r, "key", &key));
    *v = (ln_gguf_value){.key = key.data, .key_bytes = key.bytes, .n = 1};
    LN_TRY(take_type(r, false, &v->type));
    v->is_array = v->type == LN_GGUF_ARRAY;
    if (v->is_array) LN_TRY(take_type(r, true, &v->type));
    if (v->is_array) LN_TRY(take_number(r, 8, &v->n));
    return take_elements(r, v);
}

static int compare_keys(const char *a, size_t n_a, const char *b, size_t n_b) {
    const int c = memcmp(a, b, LN_MIN(n_a, n_b));
    return c ? c : (n_a > n_b) - (n_a < n_b);
}
static int by_key(const void *a, const void *b) {
    const ln_gguf_value *x = a, *y = b;
    return compare_keys(x->key, x->key_bytes, y->key, y->key_bytes);
}

/* Reads and sorts n values into *out. */
static ln_status take_values(reader *r, uint64_t n, ln_gguf_value **out) {
    ln_gguf_value *v = ln_arena_alloc(&r->g->arena, (size_t)(n + 1) * sizeof *v);
    char shown[80];
    if (!v) return LN_OOM(r->err, "the metadata of a GGUF file");
    for (uint64_t i = 0; i < n; i++) LN_TRY(take_value(r, &v[i]));
    r->what[0] = '\0';
    if (n > 1) qsort(v, (size_t)n, sizeof *v, by_key);
    for (uint64_t i = 1; i < n; i++)
        if (by_key(&v[i - 1], &v[i]) == 0)
            return refuse(r, LN_EINVALID, "key %s occurs twice", ln_excerpt(shown, v[i].key, v[i].key_bytes));
    *out = v;
    return LN_OK;
}

/* ---- tensors ---- */

static const ln_ggml_block blocks[] = {
#define LN_GGML(NAME, number, elements, bytes) [number] = {#NAME, elements, bytes},
#include "ggml_types.def"
#undef LN_GGML
};

ln_ggml_block ln_ggml_block_of(uint32_t type) {
    return type < LN_COUNT(blocks) ? blocks[type] : (ln_ggml_block){0};
}

/* Reads the dimensions and sets the size in bytes. */
static ln_status take_shape(reader *r, ln_gguf_tensor *x) {
    uint64_t rank, v, n = 1;
    LN_TRY(take_number(r, 4, &rank));
    if (rank > LN_COUNT(x->dims))
        return refuse(r, LN_EINVALID, "expected at most %zu dimensions, found %llu", LN_COUNT(x->dims),
                      (unsigned long long)rank);
    for (x->n_dims = 0; x->n_dims < (int)rank; x->n_dims++) {
        LN_TRY(take_number(r, 8, &v));
        if (v == 0 || v > INT64_MAX || __builtin_mul_overflow(n, v, &n))
            return refuse(r, LN_EINVALID,
                          "dimension %d is %llu: expected 1 or more, and a product below 2^64", x->n_dims,
                          (unsigned long long)v);
        x->dims[x->n_dims] = (int64_t)v;
    }
    LN_TRY(take_number(r, 4, &v));
    const ln_ggml_block block = ln_ggml_block_of((uint32_t)v);
    if (!block.name)
        return refuse(r, LN_EUNSUPPORTED, "type %llu is none that linnet knows", (unsigned long long)v);
    x->type = (ln_ggml_type)v;
    const uint64_t row = rank > 0 ? (uint64_t)x->dims[0] : 1;
    if (row % block.elements)
        return refuse(r, LN_EINVALID, "expected rows of whole blocks of %u elements (%s), found %llu",
                      block.elements, block.name, (unsigned long long)row);
    if (__builtin_mul_overflow(n / block.elements, (uint64_t)block.bytes, &x->bytes))
        return refuse(r, LN_EINVALID, "its size overflows");
    return LN_OK;
}

typedef struct range {
    uint64_t begin, end;
    size_t item;
} range;

static int by_begin(const void *a, const void *b) {
    const range *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static void name_tensor(reader *r, const char *name) {
    char shown[80];
    (void)snprintf(r->what, sizeof r->what, "tensor %s", ln_excerpt(shown, name, strlen(name)));
}

/* Sets the tensors' data: the ranges, whose positions are offsets, lie in the file and do not overlap. */
static ln_status place(reader *r, range *ranges, size_t n, uint64_t alignment) {
    const uint64_t rest = r->at % alignment, skip = rest ? alignment - rest : 0;
    const uint64_t first = r->at + LN_MIN(skip, r->bytes - r->at), available = r->bytes - first;
    uint64_t end = 0;
    if (n > 1) qsort(ranges, n, sizeof *ranges, by_begin);
    for (size_t i = 0; i < n; i++) {
        ln_gguf_tensor *x = &r->g->tensors[ranges[i].item];
        name_tensor(r, x->name);
        if (ranges[i].begin % alignment)
            return refuse(r, LN_EINVALID, "expected an offset that is a multiple of %llu, found %llu",
                          (unsigned long long)alignment, (unsigned long long)ranges[i].begin);
        if (ranges[i].begin < end)
            return refuse(r, LN_EINVALID, "begins at %llu, before the tensor in front of it ends (%llu)",
                          (unsigned long long)ranges[i].begin, (unsigned long long)end);
        if (ranges[i].end > available)
            return refuse(r, LN_EINVALID,
                          "the file is truncated: it has %llu bytes of data, the tensor ends at %llu" AGAIN,
                          (unsigned long long)available, (unsigned long long)ranges[i].end);
        end = ranges[i].end;
        x->data = r->data + first + ranges[i].begin;
    }
    return LN_OK;
}

static ln_status take_tensor(reader *r, range *where) {
    ln_gguf *g = r->g;
    ln_gguf_text name;
    LN_TRY(take_name(r, "tensor", &name));
    LN_TRY(ln_grow((void **)&g->tensors, &g->cap_tensors, g->n_tensors + 1, sizeof *g->tensors, r->err));
    ln_gguf_tensor *x = &g->tensors[g->n_tensors];
    *x = (ln_gguf_tensor){.name = ln_arena_strndup(&g->arena, name.data, name.bytes),
                          .file = (int)g->n_files - 1};
    if (!x->name) return LN_OOM(r->err, "a tensor's name");
    LN_TRY(take_shape(r, x));
    *where = (range){.item = g->n_tensors};
    LN_TRY(take_number(r, 8, &where->begin));
    if (__builtin_add_overflow(where->begin, x->bytes, &where->end))
        return refuse(r, LN_EINVALID, "its offset of %llu and %llu bytes overflow",
                      (unsigned long long)where->begin, (unsigned long long)x->bytes);
    g->n_tensors++;
    return LN_OK;
}

static ln_status take_tensors(reader *r, uint64_t n, uint64_t alignment) {
    range *ranges = ln_zalloc((size_t)n + 1, sizeof *ranges);
    ln_status st = ranges ? LN_OK : LN_OOM(r->err, "the tensors of a GGUF file");
    for (uint64_t i = 0; i < n && st == LN_OK; i++) st = take_tensor(r, &ranges[i]);
    r->what[0] = '\0';
    if (st == LN_OK) st = place(r, ranges, (size_t)n, alignment);
    ln_free(ranges);
    return st;
}

/* ---- one file ---- */

static ln_status check_magic(reader *r) {
    static const uint8_t swapped[4] = {0, 0, 0, 3};
    if (r->bytes < 8 || memcmp(r->data, "GGUF", 4) != 0) {
        if (r->bytes >= 19 && memcmp(r->data, "version https://git", 19) == 0)
            return refuse(r, LN_EINVALID,
                          "this is a Git LFS pointer, not the file itself; run `git lfs pull` in the clone, "
                          "or fetch it with `hf download`");
        return refuse(r, LN_EINVALID, "not a GGUF file: it does not begin with GGUF and a version");
    }
    const uint64_t version = number(r->data + 4, 4);
    if (memcmp(r->data + 4, swapped, 3) == 0 && r->data[7] > 0)
        return refuse(r, LN_EUNSUPPORTED,
                      "a big-endian file; convert it with gguf_convert_endian.py of llama.cpp");
    if (version != 2 && version != 3)
        return refuse(r, LN_EUNSUPPORTED, "GGUF version %llu is not read; expected 2 or 3",
                      (unsigned long long)version);
    r->g->version = (uint32_t)version;
    r->at = 8;
    return LN_OK;
}

static ln_status check_count(const reader *r, const char *what, uint64_t n, uint64_t limit, uint64_t least) {
    if (n > limit)
        return refuse(r, LN_EINVALID, "expected at most %llu %s, found %llu", (unsigned long long)limit, what,
                      (unsigned long long)n);
    if (n > (r->bytes - r->at) / least)
        return refuse(r, LN_EINVALID, "%llu %s do not fit into a file of %llu bytes" AGAIN,
                      (unsigned long long)n, what, (unsigned long long)r->bytes);
    return LN_OK;
}

/* Looks keys up in `values`, which need not be those of the first file. */
static const ln_gguf_value *find(const ln_gguf_value *values, size_t n, const char *key) {
    const size_t bytes = strlen(key);
    size_t lo = 0, hi = n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        const int c = compare_keys(values[mid].key, values[mid].key_bytes, key, bytes);
        if (c == 0) return &values[mid];
        if (c < 0) lo = mid + 1;
        else hi = mid;
    }
    return NULL;
}

static ln_status alignment_of(reader *r, const ln_gguf_value *values, size_t n, uint64_t *out) {
    const ln_gguf_value *v = find(values, n, "general.alignment");
    *out = 32;
    if (!v) return LN_OK;
    *out = v->type == LN_GGUF_U32 && !v->is_array ? (uint64_t)ln_gguf_int_at(v, 0) : 0;
    if (*out > 0 && *out <= LN_GGUF_MAX_ALIGN && (*out & (*out - 1)) == 0) return LN_OK;
    return refuse(r, LN_EINVALID,
                  "key general.alignment: expected a power of two up to %u as u32, found %llu",
                  LN_GGUF_MAX_ALIGN, (unsigned long long)*out);
}

/* Checks that a file of a split says that it is the one that its name says. */
static ln_status check_split(reader *r, const ln_gguf_value *values, size_t n, unsigned number_of_file,
                             unsigned count) {
    static const char *const keys[2] = {"split.no", "split.count"};
    const int64_t want[2] = {number_of_file, count};
    for (int i = 0; i < 2; i++) {
        const ln_gguf_value *v = find(values, n, keys[i]);
        const int64_t found = v && !v->is_array ? ln_gguf_int_at(v, 0) : i;
        if (found == want[i]) continue;
        if (!v)
            return refuse(r, LN_EINVALID, "expected file %u of %u of a split, found no key %s",
                          number_of_file + 1, count, keys[i]);
        return refuse(r, LN_EINVALID, "key %s: expected %lld, found %lld", keys[i], (long long)want[i],
                      (long long)found);
    }
    return LN_OK;
}

/* Reads the file that was added last: number `no` of `count`. */
static ln_status read_file(ln_gguf *g, unsigned no, unsigned count, const uint8_t *data, size_t bytes,
                           ln_error *err) {
    reader r = {.g = g, .err = err, .data = data, .bytes = bytes};
    ln_gguf_value *values = NULL;
    uint64_t n_tensors = 0, n_values = 0, alignment = 32;
    ln_path_text(r.path, g->files[g->n_files - 1].path);
    LN_TRY(check_magic(&r));
    LN_TRY(take_number(&r, 8, &n_tensors));
    LN_TRY(take_number(&r, 8, &n_values));
    LN_TRY(check_count(&r, "tensors", n_tensors, LN_GGUF_MAX_TENSORS, 24));
    LN_TRY(check_count(&r, "keys", n_values, LN_GGUF_MAX_VALUES, 13));
    LN_TRY(take_values(&r, n_values, &values));
    LN_TRY(alignment_of(&r, values, (size_t)n_values, &alignment));
    if (count > 0) LN_TRY(check_split(&r, values, (size_t)n_values, no, count));
    if (no == 0) g->values = values, g->n_values = (size_t)n_values;
    return take_tensors(&r, n_tensors, alignment);
}

/* ---- all files ---- */

/* Adds a file, which takes ownership of the mapping. */
static ln_status add_file(ln_gguf *g, const char *path, ln_map map, ln_error *err) {
    const char *copy = ln_arena_strndup(&g->arena, path, strlen(path));
    ln_status st = copy ? ln_grow((void **)&g->files, &g->cap_files, g->n_files + 1, sizeof *g->files, err)
                        : LN_OOM(err, "a file's name");
    if (st != LN_OK) ln_map_close(&map);
    else g->files[g->n_files++] = (ln_gguf_file){copy, map};
    return st;
}

static int by_name(const void *a, const void *b) {
    const ln_gguf_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static ln_status check_names(const ln_gguf *g, ln_error *err) {
    const ln_gguf_tensor **all = ln_alloc((g->n_tensors + 1) * sizeof *all);
    char path[LN_PATH_TEXT], shown[80];
    ln_status st = all ? LN_OK : LN_OOM(err, "the tensors of a GGUF file");
    for (size_t i = 0; all && i < g->n_tensors; i++) all[i] = &g->tensors[i];
    if (all && g->n_tensors > 1) qsort(all, g->n_tensors, sizeof(ln_gguf_tensor *), by_name);
    for (size_t i = 1; i < g->n_tensors && st == LN_OK; i++)
        if (by_name(&all[i - 1], &all[i]) == 0)
            st = ln_fail(err, LN_EINVALID, "%s: tensor %s occurs twice",
                         ln_path_text(path, g->files[all[i]->file].path),
                         ln_excerpt(shown, all[i]->name, strlen(all[i]->name)));
    ln_free(all);
    return st;
}

bool ln_gguf_split_name(const char *path, unsigned *number_of_file, unsigned *count) {
    unsigned part[2] = {0, 0};
    const size_t n = strlen(path), tail = strlen("-00001-of-00003.gguf");
    if (n <= tail) return false;
    const char *p = path + n - tail;
    if (p[0] != '-' || strncmp(p + 6, "-of-", 4) != 0 || strcmp(p + 15, ".gguf") != 0) return false;
    for (int i = 0; i < 10; i++) {
        const char c = p[i < 5 ? 1 + i : 5 + i];
        if (c < '0' || c > '9') return false;
        part[i / 5] = 10 * part[i / 5] + (unsigned)(c - '0');
    }
    *number_of_file = part[0];
    *count = part[1];
    return part[0] > 0 && part[0] <= part[1];
}

static ln_status open_file(ln_gguf *g, const char *path, unsigned no, unsigned count, ln_error *err) {
    ln_map map;
    LN_TRY(ln_map_open(&map, path, err));
    LN_TRY(add_file(g, path, map, err));
    return read_file(g, no, count, map.data, map.bytes, err);
}

/* Opens the other files of a split, whose names follow from the first one's. */
static ln_status open_others(ln_gguf *g, const char *path, unsigned count, ln_error *err) {
    const size_t n = strlen(path), tail = strlen("-00001-of-00003.gguf");
    char *other = ln_alloc(n + 8);
    ln_status st = other ? LN_OK : LN_OOM(err, "a file's name");
    for (unsigned no = 1; no < count && st == LN_OK; no++) {
        (void)snprintf(other, n + 8, "%.*s-%05u-of-%05u.gguf", (int)(n - tail), path, no + 1, count);
        st = open_file(g, other, no, count, err);
        if (st == LN_EIO) st = ln_prefix(err, st, "file %u of a split of %u", no + 1, count);
    }
    ln_free(other);
    return st;
}

static ln_status open_all(ln_gguf *g, const char *path, ln_error *err) {
    unsigned no = 1, count = 0;
    char shown[LN_PATH_TEXT];
    const bool named = ln_gguf_split_name(path, &no, &count);
    if (no > 1)
        return ln_fail(err, LN_EINVALID, "%s: file %u of a split of %u; give the first, whose name has 00001",
                       ln_path_text(shown, path), no, count);
    if (count > LN_GGUF_MAX_FILES)
        return ln_fail(err, LN_EINVALID, "%s: a split of %u files, the limit is %u",
                       ln_path_text(shown, path), count, LN_GGUF_MAX_FILES);
    LN_TRY(open_file(g, path, 0, count, err));
    const ln_gguf_value *split = ln_gguf_find(g, "split.count");
    if (!named && split && ln_gguf_int_at(split, 0) > 1)
        return ln_fail(err, LN_EINVALID,
                       "%s: a file of a split of %lld, expected the name NAME-00001-of-%05lld.gguf",
                       ln_path_text(shown, path), (long long)ln_gguf_int_at(split, 0),
                       (long long)ln_gguf_int_at(split, 0));
    if (count > 1) LN_TRY(open_others(g, path, count, err));
    return check_names(g, err);
}

ln_status ln_gguf_open(ln_gguf **out, const char *path, ln_error *err) {
    *out = NULL;
    ln_gguf *g = ln_zalloc(1, sizeof *g);
    if (!g) return LN_OOM(err, "a GGUF file");
    const ln_status st = open_all(g, path, err);
    if (st != LN_OK) ln_gguf_close(&g);
    *out = g;
    return st;
}

ln_status ln_gguf_open_memory(ln_gguf **out, const char *name, const uint8_t *data, size_t bytes,
                              ln_error *err) {
    *out = NULL;
    ln_gguf *g = ln_zalloc(1, sizeof *g);
    ln_status st = g ? add_file(g, name, (ln_map){0}, err) : LN_OOM(err, "a GGUF file");
    if (st == LN_OK) st = read_file(g, 0, 0, data, bytes, err);
    if (st == LN_OK) st = check_names(g, err);
    if (st != LN_OK && g) ln_gguf_close(&g);
    *out = g;
    return st;
}

void ln_gguf_close(ln_gguf **g) {
    if (!*g) return;
    for (size_t i = 0; i < (*g)->n_files; i++) ln_map_close(&(*g)->files[i].map);
    ln_free((*g)->files);
    ln_free((*g)->tensors);
    ln_arena_free(&(*g)->arena);
    ln_free(*g);
    *g = NULL;
}

ln_status ln_gguf_check(const ln_gguf *g, ln_error *err) {
    for (size_t i = 0; i < g->n_files; i++) LN_TRY(ln_map_check(&g->files[i].map, g->files[i].path, err));
    return LN_OK;
}

bool ln_gguf_is_file(const char *path) {
    char magic[4];
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) return false;
    const bool yes = pread(fd, magic, 4, 0) == 4 && memcmp(magic, "GGUF", 4) == 0;
    close(fd);
    return yes;
}

const ln_gguf_tensor *ln_gguf_tensor_named(const ln_gguf *g, const char *name) {
    for (size_t i = 0; i < g->n_tensors; i++)
        if (strcmp(g->tensors[i].name, name) == 0) return &g->tensors[i];
    return NULL;
}

const ln_gguf_value *ln_gguf_find(const ln_gguf *g, const char *key) {
    return find(g->values, g->n_values, key);
}
