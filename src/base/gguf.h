/* GGUF files, versions 2 and 3: metadata by key, and the tensors.
 *
 *     ln_gguf *g;
 *     LN_TRY(ln_gguf_open(&g, path, err));
 *     LN_TRY(ln_gguf_int(g, "llama.block_count", 1, 1024, &n_layers, &found, err));
 *     LN_TRY(ln_gguf_array(g, "tokenizer.ggml.tokens", LN_GGUF_TEXT, &tokens, err));
 *     while (tokens && i < tokens->n) use(ln_gguf_text_at(tokens, i++));
 *
 * A model may be split into files NAME-00001-of-00003.gguf and so on; it is opened by the first, which has
 * the metadata. Files are mapped; everything but names of tensors is borrowed from the mappings and may be
 * unaligned. Every length, count and offset is checked before it is used, and no allocation is larger than
 * the size of the file justifies. Nothing here knows what a key or a tensor means. */
#ifndef LN_GGUF_H
#define LN_GGUF_H

#include "file.h"

enum { LN_GGUF_MARK = 16 };

/* Types of metadata values: the numbers of the format. */
typedef enum ln_gguf_type {
    LN_GGUF_U8,
    LN_GGUF_I8,
    LN_GGUF_U16,
    LN_GGUF_I16,
    LN_GGUF_U32,
    LN_GGUF_I32,
    LN_GGUF_F32,
    LN_GGUF_BOOL,
    LN_GGUF_TEXT,
    LN_GGUF_ARRAY,
    LN_GGUF_U64,
    LN_GGUF_I64,
    LN_GGUF_F64,
    LN_GGUF_TYPES
} ln_gguf_type;

/* A value of the metadata: one, or an array. */
typedef struct ln_gguf_value {
    const char *key; /* not terminated */
    size_t key_bytes;
    ln_gguf_type type; /* of the value, or of an array's elements, which are no arrays */
    bool is_array;
    uint64_t n; /* elements; 1 if it is no array */
    const uint8_t *data;
    uint32_t *marks; /* of an array of texts: the positions of every LN_GGUF_MARK-th in `data` */
} ln_gguf_value;
typedef struct ln_gguf_text {
    const char *data; /* not terminated; may hold any bytes */
    size_t bytes;
} ln_gguf_text;

/* Types of tensors, in which the elements of a row are stored in blocks: 18 bytes for 32 elements in Q4_0.
 * The numbers are those of the format, which has gaps. */
typedef enum ln_ggml_type {
#define LN_GGML(NAME, number, elements, bytes) LN_GGML_##NAME = (number),
#include "ggml_types.def"
#undef LN_GGML
} ln_ggml_type;
typedef struct ln_ggml_block {
    const char *name; /* NULL: there is no such type */
    uint32_t elements, bytes;
} ln_ggml_block;
ln_ggml_block ln_ggml_block_of(uint32_t type);

typedef struct ln_gguf_tensor {
    const char *name;
    ln_ggml_type type;
    int n_dims;
    int64_t dims[4]; /* dims[0] is the length of a row: the reverse of safetensors' order */
    const uint8_t *data;
    uint64_t bytes;
    int file; /* index into ln_gguf.files */
} ln_gguf_tensor;

typedef struct ln_gguf_file {
    const char *path;
    ln_map map;
} ln_gguf_file;
typedef struct ln_gguf {
    ln_gguf_value *values; /* of the first file, sorted by key */
    size_t n_values;
    ln_gguf_tensor *tensors; /* of all files, in the order of the files */
    size_t n_tensors, cap_tensors;
    ln_gguf_file *files;
    size_t n_files, cap_files;
    uint32_t version;
    ln_arena arena;
} ln_gguf;

/* Limits, each tested at and beyond it; comments give the largest known value. */
#define LN_GGUF_MAX_VALUES  65536u     /* 60 */
#define LN_GGUF_MAX_TENSORS 65536u     /* per file; 1,300 */
#define LN_GGUF_MAX_NAME    1024u      /* bytes of a key or name; 63 */
#define LN_GGUF_MAX_FILES   4096u      /* 60 */
#define LN_GGUF_MAX_ALIGN   (1u << 20) /* 32 */

/* Opens a file or, by its first file, a split model. The caller releases *out with ln_gguf_close. LN_EIO: a
 * file cannot be read, or is missing from a split. LN_EINVALID: the content is malformed; the message names
 * the key or tensor. LN_EUNSUPPORTED: version 1, big endian, an unknown type of tensor. LN_EMEMORY. */
ln_status ln_gguf_open(ln_gguf **out, const char *path, ln_error *err);
/* Opens a file in memory, which must outlive *out; `name` is for messages. */
ln_status ln_gguf_open_memory(ln_gguf **out, const char *name, const uint8_t *data, size_t bytes,
                              ln_error *err);
/* Releases a file and sets *g to NULL. */
void ln_gguf_close(ln_gguf **g);
/* Whether the file begins with GGUF's magic number, whatever its name; false if it cannot be read. */
bool ln_gguf_is_file(const char *path);
/* The number of a file and of all files of a split by the name NAME-00001-of-00003.gguf; returns false for
 * any other name. */
bool ln_gguf_split_name(const char *path, unsigned *number, unsigned *count);

/* Returns the value of a key; NULL: there is none. */
const ln_gguf_value *ln_gguf_find(const ln_gguf *g, const char *key);
/* Store the value of a key in *out; without the key *out stays as it is. found may be NULL.
 * LN_EINVALID: a value of another type or outside [lo, hi]. A real may be an integer. */
ln_status ln_gguf_int(const ln_gguf *g, const char *key, int64_t lo, int64_t hi, int64_t *out, bool *found,
                      ln_error *err);
ln_status ln_gguf_real(const ln_gguf *g, const char *key, double *out, bool *found, ln_error *err);
ln_status ln_gguf_bool(const ln_gguf *g, const char *key, bool *out, bool *found, ln_error *err);
ln_status ln_gguf_get_text(const ln_gguf *g, const char *key, ln_gguf_text *out, bool *found, ln_error *err);
/* Stores an array in *out; NULL: the key is missing. `of`: LN_GGUF_TEXT, LN_GGUF_BOOL, LN_GGUF_F64 for
 * numbers of any type, LN_GGUF_I64 for integers of any type. LN_EINVALID: no array of these. */
ln_status ln_gguf_array(const ln_gguf *g, const char *key, ln_gguf_type of, const ln_gguf_value **out,
                        ln_error *err);
/* Element i < v->n of a value or an array. Integers beyond the range of int64_t are INT64_MAX. A value of
 * another type is 0, or the empty text. */
int64_t ln_gguf_int_at(const ln_gguf_value *v, uint64_t i);
double ln_gguf_real_at(const ln_gguf_value *v, uint64_t i);
ln_gguf_text ln_gguf_text_at(const ln_gguf_value *v, uint64_t i);

/* Returns LN_EINVALID with a message that names file, key, what is expected and the value found. */
ln_status ln_gguf_fail(const ln_gguf *g, const char *key, const char *wanted, ln_error *err);
/* LN_ECHANGED if a file has changed since it was opened; see ln_map_check. */
ln_status ln_gguf_check(const ln_gguf *g, ln_error *err);
/* Returns the tensor of this name; NULL: there is none. */
const ln_gguf_tensor *ln_gguf_tensor_named(const ln_gguf *g, const char *name);

#endif
