/* The files of a model: finding the directory, reading tensors, config.json, generation_config.json and the
 * quantization block.
 *
 * A tensor set is the union of all shards, mapped read-only; its tensors are borrowed from the mappings and
 * may be unaligned. Every rule of the safetensors format is checked before a value is used, and no allocation
 * is larger than the file's size justifies. Unless said otherwise a function returns LN_EIO for a file that
 * is missing or cannot be read, LN_EINVALID for malformed content, LN_EUNSUPPORTED for valid content that
 * linnet does not support, or LN_EMEMORY. */
#ifndef LN_IO_H
#define LN_IO_H

#include "../quant/affine.h"
#include "../base/file.h"
#include "../base/json.h"
#include "../base/elementary.h"
#include "../base/public_limits.h"

/* ---- discovery ---- */

/* Resolves `model` (a path, a Hugging Face cache id org/name[@rev], or `tiny`) to the absolute path of a
 * directory with config.json, or of a GGUF file (a directory without config.json may hold one), written to
 * path[cap]. LN_EIO: no such path or id (the message has the `hf download` command). LN_EINVALID: another
 * file, a directory without config.json and GGUF file, or one with several GGUF files (the message lists
 * them). LN_EUSAGE: an empty name. */
ln_status ln_find_model(const char *model, char *path, size_t cap, ln_error *err);
/* The same for a directory that contains the file `needs` (for example `tokenizer.json`) instead of
 * config.json. NULL for `model` is the bundled model. */
ln_status ln_find_dir(const char *model, const char *needs, char *path, size_t cap, ln_error *err);
/* Resolves the directory of an adapter: a path, or a Hugging Face cache id. LN_EIO, LN_EINVALID: as above. */
ln_status ln_find_adapter(const char *dir, char path[4096], ln_error *err);
/* Stores the path of the chat template that lies next to an adapter; *found false: there is none. */
ln_status ln_adapter_template(const char *dir, char path[4096], bool *found, ln_error *err);
/* Stores the id and the revision that a snapshot of the Hugging Face cache has by its path. Returns false for
 * another directory. */
typedef struct ln_hub_name {
    char id[256], revision[128];
} ln_hub_name;
bool ln_hub_id(const char *path, ln_hub_name *out);
/* Calls fn for every model in dir_or_null and below it; NULL: in the Hugging Face cache, the folders of LM
 * Studio, llama.cpp and ollama, then the bundled model. A model is a directory with config.json and a
 * .safetensors file, a GGUF file (of a split the first, no vision tower), or a manifest of ollama. Symbolic
 * links are followed; every directory and file is visited once. A directory comes before what it holds, which
 * is sorted by name. Stops when fn fails and returns its status, but LN_OK for LN_ECANCELLED. */
typedef ln_status ln_dir_fn(void *user, const char *path, ln_error *err);
ln_status ln_each_model(const char *dir_or_null, ln_dir_fn *fn, void *user, ln_error *err);

/* ---- tensors ---- */

/* Storage types of the safetensors format. linnet computes with the first three. */
typedef enum ln_st_dtype {
    LN_ST_F32,
    LN_ST_BF16,
    LN_ST_F16,
    LN_ST_F64,
    LN_ST_I64,
    LN_ST_I32,
    LN_ST_I16,
    LN_ST_I8,
    LN_ST_U64,
    LN_ST_U32,
    LN_ST_U16,
    LN_ST_U8,
    LN_ST_BOOL,
    LN_ST_F8_E4M3,
    LN_ST_F8_E5M2,
    LN_ST_F8_E8M0,
    LN_ST_F8_E4M3FNUZ,
    LN_ST_F8_E5M2FNUZ,
    LN_ST_F4,
    LN_ST_F6_E2M3,
    LN_ST_F6_E3M2,
    LN_ST_C64,
    LN_ST_COUNT,
    LN_ST_UNKNOWN = LN_ST_COUNT, /* dtype of a tensor that was skipped; only its range is known */
    LN_ST_BLOCKS = 64            /* plus ln_ggml_type: rows of blocks of a GGUF file (base/gguf.h) */
} ln_st_dtype;
const char *ln_st_dtype_name(ln_st_dtype t);

/* The order of rows or columns in a GGUF file: from `first` on, in periods of n_outer x n_inner units, unit
 * (o, i) of the weight, number o * n_inner + i, is unit i * n_outer + o there. n_outer 0: as in the weight.
 */
typedef struct ln_tensor_order {
    int64_t first;
    int64_t n_outer, n_inner, unit;
} ln_tensor_order;

/* How a tensor holds the rows of a weight in pieces: it has n_periods periods of `period` rows, and the
 * weight has, one piece after another, rows row0 .. row0 + n - 1 of each of them. */
enum { LN_PIECES = 3 };
typedef struct ln_row_pieces {
    int64_t n_periods, period;
    int n_pieces;
    struct {
        int64_t row0, n;
    } piece[LN_PIECES];
} ln_row_pieces;
/* Returns the row of the tensor that is row r of the weight. *n, if it is not NULL, becomes at most the
 * number of rows that follow each other in both. */
static inline int64_t ln_pieces_row(const ln_row_pieces *p, int64_t r, int64_t *n) {
    int i = 0;
    while (i < p->n_pieces - 1 && r >= p->piece[i].n * p->n_periods) r -= p->piece[i++].n * p->n_periods;
    const int64_t in_piece = r % p->piece[i].n, left = p->piece[i].n - in_piece;
    if (n && *n > left) *n = left;
    return r / p->piece[i].n * p->period + p->piece[i].row0 + in_piece;
}

typedef struct ln_tensor {
    const char *name;
    size_t name_bytes;
    ln_st_dtype dtype;
    int n_dims;
    int64_t dims[8];
    const uint8_t *data; /* borrowed from the mapping of its file */
    uint64_t bytes;
    int file;                      /* index into ln_tensors.files */
    bool copied;                   /* data is allocated memory: the file could not be mapped */
    ln_tensor_order rows, columns; /* of a GGUF file */
    bool is_decay;                 /* of a GGUF file: its numbers are -exp of the weight's */
} ln_tensor;

/* Returns the number in the tensor of row or column d of the weight. */
static inline int64_t ln_tensor_order_at(const ln_tensor_order *o, int64_t d) {
    if (!o->n_outer || d < o->first) return d;
    const int64_t k = (d - o->first) / o->unit, i = k % (o->n_outer * o->n_inner);
    return d + (i % o->n_inner * o->n_outer + i / o->n_inner - i) * o->unit;
}
/* Whether the weight is not the tensor's bytes as they are. */
static inline bool ln_tensor_is_remade(const ln_tensor *t) {
    return t->rows.n_outer || t->columns.n_outer || t->is_decay;
}

typedef struct ln_shard {
    char *path;
    ln_map map;
} ln_shard;

typedef struct ln_tensors {
    ln_arena arena;   /* owns names and paths */
    ln_tensor *items; /* sorted by name */
    size_t n, cap;
    ln_shard *files;
    size_t n_files, cap_files;
    uint64_t bytes; /* of all tensors */
    struct ln_absent {
        const char *name, *shard; /* a tensor, and the file in which the index places it */
        const char *found;        /* the file that has it instead; NULL: no file has it */
        bool no_file;             /* the file in which the index places it does not exist */
        /* [n_absent]: tensors of the index that are missing from its file; binding a weight to one fails */
    } * absent;
    size_t n_absent, cap_absent;
    bool skip_unknown; /* tensors of unknown dtypes become LN_ST_UNKNOWN; otherwise they are an error */
} ln_tensors;

/* Limits of the format and of linnet, each tested at and beyond the limit; comments give the largest known
 * value. */
#define LN_ST_MAX_HEADER        100000000u /* limit of the format; 130 KB for 1,138 tensors */
#define LN_ST_MAX_TENSORS       65536u     /* per file; 1,138 (Llama 3.1 405B), 3,400 when quantised by MLX */
#define LN_ST_MAX_MODEL_TENSORS 1048576u   /* per model; the same values */
#define LN_ST_MAX_NAME          1024u      /* bytes; less than 100 (a vision tower) */
#define LN_ST_MAX_RANK          8          /* 4 (a convolution of a vision tower) */
#define LN_ST_MAX_DIM           ((UINT64_C(1) << 48) - 1)
#define LN_ST_MAX_SHARDS        4096u /* 191 (Llama 3.1 405B) */

/* Opens the tensors of a directory: model.safetensors, or the shards of model.safetensors.index.json, or a
 * complete set of shards without an index. *out is released with ln_tensors_close. */
ln_status ln_tensors_open(ln_tensors *out, const char *dir, bool skip_unknown, ln_error *err);
void ln_tensors_close(ln_tensors *t);
/* LN_ECHANGED if a file has changed since it was opened. broken_only: reports only mappings that lost pages
 * on access, without a system call (ln_map_broken). */
ln_status ln_tensors_check(const ln_tensors *t, bool broken_only, ln_error *err);
/* Binary search by exact name; NULL if absent. The result is borrowed from the set. */
const ln_tensor *ln_tensors_find(const ln_tensors *t, const char *name);
/* Opens one file as a tensor set, for tests and for tools that read a single file. */
ln_status ln_tensors_open_file(ln_tensors *out, const char *path, ln_error *err);
/* The same for a file in memory, which must outlive *out. `name` is for messages. */
ln_status ln_tensors_open_memory(ln_tensors *out, const char *name, const uint8_t *data, size_t bytes,
                                 ln_error *err);
/* Appends the start of a safetensors file to *out: 8 bytes of header length and the header, padded so that
 * the data begin at a multiple of 8. The caller then writes the tensors' data without gaps, in the order of
 * `specs`. LN_EUSAGE: a shape or a header that exceeds the limits. */
typedef struct ln_tensor_spec {
    const char *name;
    ln_st_dtype dtype;
    int n_dims;
    int64_t dims[8];
} ln_tensor_spec;
ln_status ln_tensors_header(ln_str *out, const ln_tensor_spec *specs, size_t n, ln_error *err);
/* The same with n_meta pairs of key and value as `__metadata__`. */
ln_status ln_tensors_header_meta(ln_str *out, const char *const meta[][2], size_t n_meta,
                                 const ln_tensor_spec *specs, size_t n, ln_error *err);
/* The same with {"format": format} as `__metadata__`, which some readers require. */
ln_status ln_tensors_header_as(ln_str *out, const char *format, const ln_tensor_spec *specs, size_t n,
                               ln_error *err);

/* ---- configuration ---- */

/* config.json, and the object with the fields of the text model: text_config if there is one, else the
 * top-level object. */
typedef struct ln_config {
    json_t *root, *text;
    char path[4096]; /* of the file, for messages */
    /* of the top-level object: gemma3, gemma3_text, qwen3, ...; "" if the file names none */
    char model_type[64];
    bool of_gguf; /* made of the metadata of a GGUF file, which `path` names */
} ln_config;
ln_status ln_config_open(ln_config *out, const char *dir, ln_error *err);
/* Opens a configuration in a file of another name. */
ln_status ln_config_open_file(ln_config *out, const char *path, ln_error *err);
void ln_config_close(ln_config *c);
/* Typed fields of c->text. An absent field gives `dflt`. null, a wrong type or a value outside [lo, hi] is
 * LN_EINVALID, with file and field in the message; if the reference's class allows null, the caller checks
 * ln_config_has first. Integers must be written as integers (4096.0 is rejected, as by the reference); reals
 * may be. */
ln_status ln_config_int(const ln_config *c, const char *field, int64_t dflt, int64_t lo, int64_t hi,
                        int64_t *out, ln_error *err);
ln_status ln_config_real(const ln_config *c, const char *field, double dflt, double lo, double hi,
                         double *out, ln_error *err);
ln_status ln_config_bool(const ln_config *c, const char *field, bool dflt, bool *out, ln_error *err);
const char *ln_config_text(const ln_config *c, const char *field,
                           const char *dflt);              /* `dflt` if absent or not a string; borrowed */
bool ln_config_has(const ln_config *c, const char *field); /* present and not null */
/* The same for a value found elsewhere in the file; `where` names it in messages. */
ln_status ln_config_real_at(const ln_config *c, const json_t *value, const char *where, double lo, double hi,
                            double *out, ln_error *err);
ln_status ln_config_int_at(const ln_config *c, const json_t *value, const char *where, int64_t lo, int64_t hi,
                           int64_t *out, ln_error *err);
/* Returns LN_EINVALID with the message "where: expected `wanted`, found <the value>". */
ln_status ln_config_fail(const ln_config *c, const json_t *value, const char *where, const char *wanted,
                         ln_error *err);

/* ---- keys.c: tables of known keys ---- */

typedef enum ln_key_kind {
    LN_KEY_READ,     /* read by the code that reads the file */
    LN_KEY_HARMLESS, /* known; no value of it changes the results of linnet */
    LN_KEY_WARNED,   /* not applied; a value that is not among `same` is named in a warning */
    LN_KEY_REFUSED   /* a value that is not among `same` describes a different model: LN_EUNSUPPORTED */
} ln_key_kind;
/* A row of a table. `same`: the values that request what linnet does anyway, separated by |: null, true,
 * false, numbers, strings, [] and {} (empty), [1,...] (a list of ones), * (any value). `what`: what any other
 * value requests, for messages. */
typedef struct ln_key {
    unsigned groups; /* bit mask: the model families, or kinds of generation, to which the row applies */
    const char *name;
    ln_key_kind kind;
    const char *same, *what;
} ln_key;
typedef struct ln_keys {
    const ln_key *rows;
    size_t n;
    /* a table of keys that are valid in this file but judged elsewhere; or NULL */
    const struct ln_keys *also;
    bool modules; /* unknown keys with an object or a boolean are entries of modules */
    /* names, separated by blanks, of keys that are read, or of no effect, whatever the rows say; or NULL */
    const char *known[2];
} ln_keys;
/* The findings of one or more checks. Initialise with zeros; release with ln_key_report_free. */
typedef struct ln_key_report {
    ln_str warned, unknown;
    size_t n_warned, n_unknown;
} ln_key_report;
/* The row of a key that applies to one of the groups; NULL if the key is unknown. */
const ln_key *ln_key_find(const ln_keys *table, unsigned group, const char *name);
/* Whether `names`, separated by blanks, has this name. NULL: no. */
bool ln_key_listed(const char *names, const char *name);
bool ln_key_is_same(const ln_key *key, const json_t *value);
/* Checks every key of `object` against the table and adds the findings to *report. `path` names the file in
 * messages, `where` is the prefix of the keys ("text_config."). LN_EUNSUPPORTED for the first rejected
 * key. */
ln_status ln_keys_check(const ln_keys *table, unsigned group, const json_t *object, const char *path,
                        const char *where, ln_key_report *report, ln_error *err);
/* Logs one warning that lists the keys not applied, and one info message that lists the unknown keys. */
void ln_key_report_say(const ln_key_report *report, const char *path);
void ln_key_report_free(ln_key_report *report);
/* Tables of generation_config.json, tokenizer_config.json and the quantization block, and the groups of the
 * first: without and with do_sample. */
enum { LN_KEYS_GREEDY = 1, LN_KEYS_DRAWN = 2 };
extern const ln_keys ln_generation_keys, ln_tokenizer_keys, ln_quantization_keys;

/* The sampling parameters of generation_config.json, and the stop set: the union of the eos ids of
 * config.json, generation_config.json and tokenizer_config.json. */
typedef struct ln_genconfig {
    bool present, do_sample;
    double temperature, top_p, min_p, repeat_penalty;
    int top_k;
    int32_t eos[32]; /* at most 3 in known models (Llama 3.1) */
    int n_eos;
    int32_t bos; /* -1: none */
    /* Constraints on generation. They correspond to the fields of ln_sampling with the same names and are
     * allocated in the arena. */
    int32_t *suppress, *begin_suppress;
    ln_id_list *bad_words;
    const char **stop;
    size_t n_suppress, n_begin_suppress, n_bad_words, n_stop;
    int64_t no_repeat_ngram, min_new;
    ln_arena arena;
} ln_genconfig;
/* Reads the files of `dir`; missing files give the reference's defaults. `vocab`: exclusive upper bound of
 * the ids. token_id maps the text of the eos token to its id (negative: none); NULL skips
 * tokenizer_config.json. */
ln_status ln_genconfig_open(ln_genconfig *out, const char *dir, const ln_config *c, int64_t vocab,
                            int32_t (*token_id)(void *user, const char *text, size_t bytes), void *user,
                            ln_error *err);
void ln_genconfig_close(ln_genconfig *g);
/* Logs which keys of tokenizer_config.json are not applied or unknown. A file that cannot be read is ignored,
 * because the tokenizer does not need it; the only error is LN_EMEMORY. */
ln_status ln_check_tokenizer_keys(const char *dir, ln_error *err);
/* Whether the directory contains a chat template: chat_template.jinja, a file in additional_chat_templates/
 * or chat_templates/, chat_template.json, or a field of tokenizer_config.json. */
ln_status ln_has_template(const char *dir, bool *out, ln_error *err);
/* LN_OK if the directory has a tokenizer.json; otherwise the reason why not. LN_EUNSUPPORTED: only
 * tokenizer.model, or vocab.json and merges.txt (the message has the command that converts them).
 * LN_EINVALID: a Git LFS pointer. LN_EIO: no tokenizer. */
ln_status ln_check_tokenizer(const char *dir, ln_error *err);

#endif
