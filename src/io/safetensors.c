/* Reads and writes one safetensors file: 8 bytes of header length, a JSON header, the data.
 *
 * The reader checks everything before it uses it: lengths against the size of the mapping, products and sums
 * for overflow, names for uniqueness, and that the data ranges tile the data area exactly (the first begins
 * at 0, each begins where the previous one ends, the last ends with the file), which excludes overlaps, gaps
 * and appended bytes. The format does not guarantee alignment, so nothing is read through a pointer wider
 * than a byte.
 *
 * If the reference implementation and its documentation differ, the reader follows the implementation (white
 * space before the header's brace is accepted), except that duplicate names are rejected: two readers could
 * disagree about them. A tensor of any known dtype is accepted; whether linnet can compute with it is
 * decided when a weight is bound to it. A file with an unknown dtype is rejected because its sizes cannot be
 * checked, unless the caller chose to skip such tensors: their ranges are then still checked and they get
 * the type LN_ST_UNKNOWN. */
#include "../base/c_locale.h"
#include "../base/gguf.h"
#include "directory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN "download it again, or write it again if it was written on this machine"

static const struct {
    const char *name;
    unsigned bits;
} dtypes[LN_ST_COUNT] = {
    [LN_ST_F32] = {"F32", 32},
    [LN_ST_BF16] = {"BF16", 16},
    [LN_ST_F16] = {"F16", 16},
    [LN_ST_F64] = {"F64", 64},
    [LN_ST_I64] = {"I64", 64},
    [LN_ST_I32] = {"I32", 32},
    [LN_ST_I16] = {"I16", 16},
    [LN_ST_I8] = {"I8", 8},
    [LN_ST_U64] = {"U64", 64},
    [LN_ST_U32] = {"U32", 32},
    [LN_ST_U16] = {"U16", 16},
    [LN_ST_U8] = {"U8", 8},
    [LN_ST_BOOL] = {"BOOL", 8},
    [LN_ST_F8_E4M3] = {"F8_E4M3", 8},
    [LN_ST_F8_E5M2] = {"F8_E5M2", 8},
    [LN_ST_F8_E8M0] = {"F8_E8M0", 8},
    [LN_ST_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [LN_ST_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [LN_ST_F4] = {"F4", 4},
    [LN_ST_F6_E2M3] = {"F6_E2M3", 6},
    [LN_ST_F6_E3M2] = {"F6_E3M2", 6},
    [LN_ST_C64] = {"C64", 64},
};

const char *ln_st_dtype_name(ln_st_dtype t) {
    const ln_ggml_block block = ln_ggml_block_of((uint32_t)t - LN_ST_BLOCKS);
    return (unsigned)t < LN_ST_COUNT ? dtypes[t].name
           : block.name              ? block.name
                                     : "a dtype that linnet does not know";
}

/* State of reading a header. Ranges are relative to the data area, whose size is known before the first range
 * is read. */
typedef struct reader {
    ln_tensors *t;
    ln_json j;
    ln_error *err;
    int file;
    size_t first; /* index in t->items of this file's first tensor */
    uint64_t data_bytes;
    char tensor[80]; /* excerpt of the name of the current tensor, for messages; "" outside an entry */
    bool has_metadata, warned, skipped;
    struct range {
        uint64_t begin, end;
        size_t item;
    } * ranges;
    size_t n_ranges, cap_ranges;
} reader;

/* Fails at the token read last; the message names the current tensor. */
static ln_status refuse(reader *r, const char *fmt, ...) LN_PRINTF(2, 3);
static ln_status refuse(reader *r, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    int n = ln_vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return ln_json_fail(&r->j, r->err, "%s%s%s%s", r->tensor[0] ? "tensor " : "", r->tensor,
                        r->tensor[0] ? ": " : "", n < 0 ? "" : text);
}

typedef struct key {
    const char *p;
    size_t n;
} key;

static int by_key(const void *a, const void *b) {
    const key *x = a, *y = b;
    int c = memcmp(x->p, y->p, LN_MIN(x->n, y->n));
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

/* Reads `__metadata__`, a map of strings; only checks it, since linnet uses no metadata. */
static ln_status read_entries(reader *r, ln_arena *arena, key **keys, size_t *cap) {
    char name[80], found[80];
    size_t n = 0;
    for (bool more;; n++) {
        LN_TRY(ln_json_key(&r->j, &more, r->err));
        if (!more) break;
        if (n >= LN_ST_MAX_TENSORS)
            return ln_json_fail(&r->j, r->err, "`__metadata__`: more than %u entries", LN_ST_MAX_TENSORS);
        LN_TRY(ln_grow((void **)keys, cap, n + 1, sizeof **keys, r->err));
        (*keys)[n] = (key){ln_arena_strndup(arena, r->j.text, r->j.text_bytes), r->j.text_bytes};
        if (!(*keys)[n].p) return LN_OOM(r->err, "metadata");
        ln_excerpt(name, r->j.text, r->j.text_bytes);
        LN_TRY(ln_json_next(&r->j, r->err));
        if (r->j.type != LN_J_STRING)
            return ln_json_fail(&r->j, r->err,
                                "`__metadata__`: %s: expected a string (a tensor cannot have that name), "
                                "found %s",
                                name, ln_json_found(&r->j, found));
    }
    if (n > 1) qsort(*keys, n, sizeof **keys, by_key);
    for (size_t i = 1; i < n; i++)
        if (by_key(&(*keys)[i - 1], &(*keys)[i]) == 0)
            return ln_json_fail(&r->j, r->err, "`__metadata__`: duplicate key `%s`",
                                ln_excerpt(name, (*keys)[i].p, (*keys)[i].n));
    return LN_OK;
}

/* Reads the value of `__metadata__`. As in the reference, null means no metadata. */
static ln_status read_metadata(reader *r) {
    char found[80];
    if (r->has_metadata) return ln_json_fail(&r->j, r->err, "duplicate key `__metadata__`");
    r->has_metadata = true;
    LN_TRY(ln_json_next(&r->j, r->err));
    if (r->j.type == LN_J_NULL) return LN_OK;
    if (r->j.type != LN_J_OBJECT)
        return ln_json_fail(&r->j, r->err, "`__metadata__`: expected an object of strings, found %s",
                            ln_json_found(&r->j, found));
    ln_arena arena = {0};
    key *keys = NULL;
    size_t cap = 0;
    ln_status st = read_entries(r, &arena, &keys, &cap);
    ln_free(keys);
    ln_arena_free(&arena);
    return st;
}

static ln_status read_dtype(reader *r, ln_tensor *x) {
    char text[80];
    LN_TRY(ln_json_next(&r->j, r->err));
    if (r->j.type != LN_J_STRING)
        return refuse(r, "`dtype`: expected a string, found %s", ln_json_found(&r->j, text));
    for (int i = 0; i < LN_ST_COUNT; i++)
        if (ln_json_is(&r->j, dtypes[i].name)) {
            x->dtype = (ln_st_dtype)i;
            return LN_OK;
        }
    ln_excerpt(text, r->j.text, r->j.text_bytes);
    if (r->t->skip_unknown) {
        if (!r->skipped)
            ln_log(LN_LOG_WARN, "%s: tensor %s: unknown dtype \"%s\"; such tensors are skipped", r->j.name,
                   r->tensor, text);
        r->skipped = true;
        x->dtype = LN_ST_UNKNOWN;
        return LN_OK;
    }
    (void)refuse(r,
                 "unknown dtype \"%s\": linnet cannot tell how large such tensors are; "
                 "ln_options.skip_unknown loads the rest",
                 text);
    if (r->err) r->err->code = LN_EUNSUPPORTED;
    return LN_EUNSUPPORTED;
}

/* Reads a plain unsigned integer. A sign, a fraction or an exponent is rejected although JSON allows it. */
static ln_status read_size(reader *r, const char *what, uint64_t *out) {
    char text[80];
    if (r->j.type != LN_J_NUMBER || !ln_parse_u64(r->j.text, r->j.text_bytes, out))
        return refuse(r, "%s: expected an integer, found %s", what, ln_json_found(&r->j, text));
    if (*out > LN_ST_MAX_DIM)
        return refuse(r, "%s: expected at most 2^48 - 1, the format's limit, found %s", what,
                      ln_json_found(&r->j, text));
    return LN_OK;
}

static ln_status read_shape(reader *r, ln_tensor *x) {
    char found[80];
    LN_TRY(ln_json_next(&r->j, r->err));
    if (r->j.type != LN_J_ARRAY)
        return refuse(r, "`shape`: expected an array, found %s", ln_json_found(&r->j, found));
    for (bool more;;) {
        LN_TRY(ln_json_item(&r->j, &more, r->err));
        if (!more) return LN_OK;
        if (x->n_dims == LN_ST_MAX_RANK)
            return refuse(r, "`shape`: expected at most %d dimensions, found more", LN_ST_MAX_RANK);
        uint64_t d;
        LN_TRY(read_size(r, "`shape`", &d));
        x->dims[x->n_dims++] = (int64_t)d;
    }
}

static ln_status read_offsets(reader *r, struct range *range) {
    char found[80];
    LN_TRY(ln_json_next(&r->j, r->err));
    if (r->j.type != LN_J_ARRAY)
        return refuse(r, "`data_offsets`: expected an array, found %s", ln_json_found(&r->j, found));
    uint64_t at[2];
    for (int n = 0;; n++) {
        bool more;
        LN_TRY(ln_json_item(&r->j, &more, r->err));
        if (!more && n == 2) break;
        if (!more) return refuse(r, "`data_offsets`: expected exactly 2 numbers, found %d", n);
        if (n == 2) return refuse(r, "`data_offsets`: expected exactly 2 numbers, found more");
        LN_TRY(read_size(r, "`data_offsets`", &at[n]));
    }
    if (at[1] < at[0])
        return refuse(r, "`data_offsets`: expected an end that is not before the begin, found [%llu, %llu]",
                      (unsigned long long)at[0], (unsigned long long)at[1]);
    range->begin = at[0];
    range->end = at[1];
    return LN_OK;
}

/* The size in bytes of a tensor from its shape and dtype. */
static ln_status tensor_bytes(reader *r, const ln_tensor *x, uint64_t *out) {
    uint64_t n = 1;
    bool over = false;
    for (int i = 0; i < x->n_dims; i++) over |= __builtin_mul_overflow(n, (uint64_t)x->dims[i], &n);
    over |= __builtin_mul_overflow(n, dtypes[x->dtype].bits, &n);
    if (over) {
        char shape[192] = "";
        for (int i = 0, at = 0; i < x->n_dims; i++)
            at += snprintf(shape + at, sizeof shape - (size_t)at, "%s%lld", i ? ", " : "",
                           (long long)x->dims[i]);
        return ln_fail(r->err, LN_EINVALID, "%s: tensor %s: `shape`: the size of [%s] in %s overflows",
                       r->j.name, r->tensor, shape, dtypes[x->dtype].name);
    }
    if (n % 8)
        return ln_fail(r->err, LN_EINVALID, "%s: tensor %s: %llu bits of %s do not fill whole bytes",
                       r->j.name, r->tensor, (unsigned long long)n, dtypes[x->dtype].name);
    *out = n / 8;
    return LN_OK;
}

static ln_status check_entry(reader *r, ln_tensor *x, const struct range *range, unsigned seen) {
    uint64_t given = range->end - range->begin;
    if (seen != 7)
        return refuse(r, "expected dtype, shape and data_offsets, found no `%s`",
                      !(seen & 1)   ? "dtype"
                      : !(seen & 2) ? "shape"
                                    : "data_offsets");
    x->bytes = given;
    if (x->dtype == LN_ST_UNKNOWN) return LN_OK;
    LN_TRY(tensor_bytes(r, x, &x->bytes));
    if (given == x->bytes) return LN_OK;
    return ln_fail(r->err, LN_EINVALID,
                   "%s: tensor %s: shape and dtype %s need %llu bytes, `data_offsets` give %llu", r->j.name,
                   r->tensor, dtypes[x->dtype].name, (unsigned long long)x->bytes, (unsigned long long)given);
}

static ln_status read_fields(reader *r, ln_tensor *x, struct range *range) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    unsigned seen = 0;
    char text[80];
    LN_TRY(ln_json_next(&r->j, r->err));
    if (r->j.type != LN_J_OBJECT)
        return refuse(r, "expected an object with dtype, shape and data_offsets, found %s",
                      ln_json_found(&r->j, text));
    for (bool more;;) {
        LN_TRY(ln_json_key(&r->j, &more, r->err));
        if (!more) return check_entry(r, x, range, seen);
        unsigned k = 0;
        while (k < LN_COUNT(keys) && !ln_json_is(&r->j, keys[k])) k++;
        if (k < LN_COUNT(keys)) {
            if (seen & 1u << k) return refuse(r, "duplicate key `%s`", keys[k]);
            seen |= 1u << k;
            LN_TRY(k == 0 ? read_dtype(r, x) : k == 1 ? read_shape(r, x) : read_offsets(r, range));
            continue;
        }
        if (!r->warned)
            ln_log(LN_LOG_WARN, "%s: unknown key \"%s\" in the header is ignored", r->j.name,
                   ln_excerpt(text, r->j.text, r->j.text_bytes));
        r->warned = true;
        LN_TRY(ln_json_next(&r->j, r->err));
        LN_TRY(ln_json_skip(&r->j, r->err));
    }
}

static ln_status read_tensor(reader *r) {
    ln_tensors *t = r->t;
    if (t->n - r->first >= LN_ST_MAX_TENSORS)
        return ln_json_fail(&r->j, r->err, "more than %u tensors in a file", LN_ST_MAX_TENSORS);
    if (t->n >= LN_ST_MAX_MODEL_TENSORS)
        return ln_json_fail(&r->j, r->err, "more than %u tensors in a model", LN_ST_MAX_MODEL_TENSORS);
    ln_excerpt(r->tensor, r->j.text, r->j.text_bytes);
    if (r->j.text_bytes > LN_ST_MAX_NAME)
        return refuse(r, "a name of %zu bytes, the limit is %u", r->j.text_bytes, LN_ST_MAX_NAME);
    if (r->j.text_bytes == 0) return ln_json_fail(&r->j, r->err, "a tensor with an empty name");
    if (memchr(r->j.text, 0, r->j.text_bytes)) return refuse(r, "a name with U+0000");
    LN_TRY(ln_grow((void **)&t->items, &t->cap, t->n + 1, sizeof *t->items, r->err));
    LN_TRY(ln_grow((void **)&r->ranges, &r->cap_ranges, r->n_ranges + 1, sizeof *r->ranges, r->err));
    ln_tensor x = {.name = ln_arena_strndup(&t->arena, r->j.text, r->j.text_bytes),
                   .name_bytes = r->j.text_bytes,
                   .file = r->file};
    if (!x.name) return LN_OOM(r->err, "a tensor's name");
    struct range range = {.item = t->n};
    LN_TRY(read_fields(r, &x, &range));
    r->ranges[r->n_ranges++] = range;
    t->items[t->n++] = x;
    t->bytes += x.bytes;
    r->tensor[0] = '\0';
    return LN_OK;
}

static int by_begin(const void *a, const void *b) {
    const struct range *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Checks that the ranges tile the data area, which must reach the end of the file, and sets the tensors' data
 * pointers. */
static ln_status place(reader *r, const uint8_t *data) {
    char text[80];
    if (r->n_ranges > 1) qsort(r->ranges, r->n_ranges, sizeof *r->ranges, by_begin);
    uint64_t at = 0;
    for (size_t i = 0; i < r->n_ranges; i++) {
        ln_tensor *x = &r->t->items[r->ranges[i].item];
        if (r->ranges[i].begin != at)
            return ln_fail(r->err, LN_EINVALID,
                           "%s: tensor %s: its data begin at %llu, expected %llu (no %s allowed)", r->j.name,
                           ln_excerpt(text, x->name, x->name_bytes), (unsigned long long)r->ranges[i].begin,
                           (unsigned long long)at, r->ranges[i].begin < at ? "overlap is" : "gap is");
        at = r->ranges[i].end;
        x->data = data + r->ranges[i].begin;
        x->copied = r->t->files[r->file].map.copied;
    }
    if (at > r->data_bytes)
        return ln_fail(r->err, LN_EINVALID,
                       "%s: the file is truncated: it has %llu bytes of data, needs %llu; " AGAIN, r->j.name,
                       (unsigned long long)r->data_bytes, (unsigned long long)at);
    if (at < r->data_bytes)
        return ln_fail(r->err, LN_EINVALID, "%s: %llu bytes follow the last tensor, expected none", r->j.name,
                       (unsigned long long)(r->data_bytes - at));
    return LN_OK;
}

static ln_status read_header(reader *r) {
    char found[80];
    LN_TRY(ln_json_next(&r->j, r->err));
    if (r->j.type != LN_J_OBJECT)
        return ln_json_fail(&r->j, r->err, "the header must be an object, found %s",
                            ln_json_found(&r->j, found));
    for (bool more;;) {
        LN_TRY(ln_json_key(&r->j, &more, r->err));
        if (!more) break;
        LN_TRY(ln_json_is(&r->j, "__metadata__") ? read_metadata(r) : read_tensor(r));
    }
    return ln_json_want(&r->j, LN_J_END, r->err);
}

/* The message for an impossible header length. Files that are often taken for safetensors by mistake are
 * named. */
static ln_status refuse_length(const char *path, const char *text, const uint8_t *data, size_t bytes,
                               uint64_t n, ln_error *err) {
    LN_TRY(ln_refuse_pointer(path, (const char *)data, bytes, err));
    if (memcmp(data, "PK\3\4", 4) == 0 || (data[0] == 0x80 && data[1] >= 2 && data[1] <= 5))
        return ln_fail(err, LN_EINVALID,
                       "%s: not safetensors (looks like a zip or pickle file); linnet never loads pickle",
                       text);
    if (memcmp(data, "GGUF", 4) == 0) return ln_fail(err, LN_EINVALID, "%s: not safetensors but GGUF", text);
    if (memcmp(data, "<!DOCTYP", 8) == 0 || memcmp(data, "<!doctyp", 8) == 0 || memcmp(data, "<html", 5) == 0)
        return ln_fail(err, LN_EINVALID, "%s: not safetensors but an HTML page; download the file again",
                       text);
    if (n > LN_ST_MAX_HEADER)
        return ln_fail(err, LN_EINVALID,
                       "%s: a header of %llu bytes, the limit is %u; not a safetensors file?", text,
                       (unsigned long long)n, LN_ST_MAX_HEADER);
    return ln_fail(err, LN_EINVALID,
                   "%s: the header of %llu bytes goes beyond the end of the file (%zu bytes); " AGAIN, text,
                   (unsigned long long)n, bytes);
}

/* Reads a file of `bytes` bytes at `data` and appends its tensors to *t. */
static ln_status read_file(ln_tensors *t, int file, const char *path, const uint8_t *data, size_t bytes,
                           ln_error *err) {
    char text[LN_PATH_TEXT];
    ln_path_text(text, path);
    if (bytes < 8)
        return ln_fail(err, LN_EINVALID, "%s: the file is %zu bytes, a safetensors file needs 8 and a header",
                       text, bytes);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | data[i];
    if (n == 0) return ln_fail(err, LN_EINVALID, "%s: empty header", text);
    if (n > LN_ST_MAX_HEADER || n > bytes - 8) return refuse_length(path, text, data, bytes, n, err);
    if (n >= 3 && memcmp(data + 8, "\xef\xbb\xbf", 3) == 0)
        return ln_fail(err, LN_EINVALID,
                       "%s: byte 0: expected a JSON header, found a byte order mark; a header is no text "
                       "file",
                       text);
    reader r = {.t = t, .err = err, .file = file, .first = t->n, .data_bytes = bytes - 8 - n};
    ln_json_open(&r.j, text, (const char *)data + 8, (size_t)n, 3);
    ln_status st = read_header(&r);
    if (st == LN_OK) st = place(&r, data + 8 + n);
    ln_json_close(&r.j);
    ln_free(r.ranges);
    return st;
}

static int by_name(const void *a, const void *b) {
    const ln_tensor *x = a, *y = b;
    int c = strcmp(x->name, y->name);
    return c ? c : (x->file > y->file) - (x->file < y->file);
}

ln_status ln_tensors_finish(ln_tensors *t, ln_error *err) {
    if (t->n > 1) qsort(t->items, t->n, sizeof *t->items, by_name);
    for (size_t i = 1; i < t->n; i++) {
        const ln_tensor *a = &t->items[i - 1], *b = &t->items[i];
        if (strcmp(a->name, b->name) != 0) continue;
        char name[80], path[LN_PATH_TEXT];
        ln_excerpt(name, a->name, a->name_bytes);
        ln_path_text(path, t->files[b->file].path);
        if (a->file == b->file)
            return ln_fail(err, LN_EINVALID, "%s: duplicate key: tensor %s occurs twice", path, name);
        const char *slash = strrchr(t->files[a->file].path, '/');
        char other[80];
        slash = slash ? slash + 1 : t->files[a->file].path;
        return ln_fail(err, LN_EINVALID, "%s: tensor %s is also in %s; expected it in one shard", path, name,
                       ln_excerpt(other, slash, strlen(slash)));
    }
    return LN_OK;
}

static ln_status add_shard(ln_tensors *t, const char *path, ln_map map, ln_error *err) {
    ln_status st = ln_grow((void **)&t->files, &t->cap_files, t->n_files + 1, sizeof *t->files, err);
    if (st != LN_OK) return st;
    char *copy = ln_arena_strndup(&t->arena, path, strlen(path));
    if (!copy) return LN_OOM(err, "a file's name");
    t->files[t->n_files++] = (ln_shard){.path = copy, .map = map};
    return LN_OK;
}

ln_status ln_tensors_add_file(ln_tensors *t, const char *path, const char *real, ln_error *err) {
    ln_map map = {0};
    char text[LN_PATH_TEXT];
    ln_status st = ln_map_open(&map, real, err);
    if (st != LN_OK) return strcmp(path, real) == 0 ? st : ln_prefix(err, st, "%s", ln_path_text(text, path));
    st = add_shard(t, path, map, err);
    if (st != LN_OK) {
        ln_map_close(&map);
        return st;
    }
    return read_file(t, (int)t->n_files - 1, path, map.data, map.bytes, err);
}

ln_status ln_tensors_open_file(ln_tensors *out, const char *path, ln_error *err) {
    *out = (ln_tensors){0};
    ln_status st = ln_tensors_add_file(out, path, path, err);
    if (st == LN_OK) st = ln_tensors_finish(out, err);
    if (st != LN_OK) ln_tensors_close(out);
    return st;
}

ln_status ln_tensors_open_memory(ln_tensors *out, const char *name, const uint8_t *data, size_t bytes,
                                 ln_error *err) {
    *out = (ln_tensors){0};
    ln_status st = add_shard(out, name, (ln_map){0}, err);
    if (st == LN_OK) st = read_file(out, 0, name, data, bytes, err);
    if (st == LN_OK) st = ln_tensors_finish(out, err);
    if (st != LN_OK) ln_tensors_close(out);
    return st;
}

void ln_tensors_close(ln_tensors *t) {
    for (size_t i = 0; i < t->n_files; i++) ln_map_close(&t->files[i].map);
    ln_free(t->files);
    ln_free(t->items);
    ln_free(t->absent);
    ln_arena_free(&t->arena);
    *t = (ln_tensors){0};
}

ln_status ln_tensors_check(const ln_tensors *t, bool broken_only, ln_error *err) {
    for (size_t i = 0; i < t->n_files; i++)
        if (!broken_only || ln_map_broken(&t->files[i].map))
            LN_TRY(ln_map_check(&t->files[i].map, t->files[i].path, err));
    return LN_OK;
}

const ln_tensor *ln_tensors_find(const ln_tensors *t, const char *name) {
    size_t lo = 0, hi = t->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(t->items[mid].name, name);
        if (c == 0) return &t->items[mid];
        if (c < 0) lo = mid + 1;
        else hi = mid;
    }
    return NULL;
}

ln_status ln_tensors_header(ln_str *out, const ln_tensor_spec *specs, size_t n, ln_error *err) {
    return ln_tensors_header_as(out, NULL, specs, n, err);
}

ln_status ln_tensors_header_as(ln_str *out, const char *format, const ln_tensor_spec *specs, size_t n,
                               ln_error *err) {
    const char *const meta[][2] = {{"format", format}};
    return ln_tensors_header_meta(out, meta, format != NULL, specs, n, err);
}

ln_status ln_tensors_header_meta(ln_str *out, const char *const meta[][2], size_t n_meta,
                                 const ln_tensor_spec *specs, size_t n, ln_error *err) {
    uint64_t at = 0;
    ln_str_add(out, "\0\0\0\0\0\0\0\0", 8);
    size_t begin = out->len;
    ln_str_adds(out, "{");
    for (size_t i = 0; i < n_meta; i++) {
        ln_str_adds(out, i ? "," : "\"__metadata__\":{");
        ln_str_json(out, meta[i][0], strlen(meta[i][0]));
        ln_str_adds(out, ":");
        ln_str_json(out, meta[i][1], strlen(meta[i][1]));
    }
    if (n_meta > 0) ln_str_adds(out, n ? "}," : "}");
    for (size_t i = 0; i < n; i++) {
        const ln_tensor_spec *s = &specs[i];
        if (s->n_dims < 0 || s->n_dims > LN_ST_MAX_RANK || (unsigned)s->dtype >= LN_ST_COUNT)
            return ln_fail(err, LN_EUSAGE, "a tensor to be written has a rank of %d or an unknown dtype",
                           s->n_dims);
        uint64_t size = dtypes[s->dtype].bits;
        ln_str_adds(out, i ? "," : "");
        ln_str_json(out, s->name, strlen(s->name));
        ln_str_addf(out, ":{\"dtype\":\"%s\",\"shape\":[", dtypes[s->dtype].name);
        for (int d = 0; d < s->n_dims; d++) {
            if (s->dims[d] < 0 || (uint64_t)s->dims[d] > LN_ST_MAX_DIM ||
                __builtin_mul_overflow(size, (uint64_t)s->dims[d], &size))
                return ln_fail(err, LN_EUSAGE, "tensor %s: its shape is too large to be written", s->name);
            ln_str_addf(out, "%s%lld", d ? "," : "", (long long)s->dims[d]);
        }
        uint64_t end;
        if (size % 8 || __builtin_add_overflow(at, size / 8, &end) || end > LN_ST_MAX_DIM)
            return ln_fail(err, LN_EUSAGE, "tensor %s: its data cannot be placed", s->name);
        ln_str_addf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at, (unsigned long long)end);
        at = end;
    }
    ln_str_adds(out, "}");
    while (!out->failed && (out->len - begin) % 8) ln_str_add(out, " ", 1);
    if (out->failed) return LN_OOM(err, "a safetensors header");
    uint64_t bytes = out->len - begin;
    if (bytes > LN_ST_MAX_HEADER)
        return ln_fail(err, LN_EUSAGE, "too many tensors for one file: the header would take %llu bytes",
                       (unsigned long long)bytes);
    for (int i = 0; i < 8; i++) out->data[begin - 8 + (size_t)i] = (char)(bytes >> 8 * i);
    return LN_OK;
}
