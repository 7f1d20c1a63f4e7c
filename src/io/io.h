/* Files of a model: where it lies, its configuration, its tensors.
 *
 * A tensor set is the union of all shards, mapped read-only; tensors are borrowed from the mapping and may be unaligned. Every rule of
 * the safetensors format is checked before anything is believed; nothing is allocated that the file's size does not justify. */
#ifndef LN_IO_H
#define LN_IO_H

#include "../base/affine.h"
#include "../base/file.h"
#include "../base/json.h"
#include "../base/num.h"

/* ---- discovery ---- */

/* Resolves MODEL (a path; a Hugging Face cache id org/name[@rev]; `tiny`) to a directory with config.json, an absolute path.
 * Absent path or id: LN_EIO, the message has the `hf download` line; a directory without config.json: LN_EINVALID. */
ln_status ln_find_model(const char *model, char *path, size_t cap, ln_error *err);
/* The same, but the directory must have `needs` (`tokenizer.json`, say) instead. NULL for `model` is the bundled model. */
ln_status ln_find_dir(const char *model, const char *needs, char *path, size_t cap, ln_error *err);
/* Calls fn for the models in DIR and all below it; NULL: in the Hugging Face cache, then the bundled model. What counts is a directory
 * with config.json and a .safetensors file. Links are followed, each directory is seen once. Order: a directory, then what lies in
 * it by name. Ends without error when fn returns LN_ECANCELLED, else with what it returns. */
typedef ln_status ln_dir_fn(void *user, const char *path, ln_error *err);
ln_status ln_each_model(const char *dir_or_null, ln_dir_fn *fn, void *user, ln_error *err);

/* ---- tensors ---- */

/* Storage types that the format knows; only the first ones can be computed with. */
typedef enum ln_st_dtype {
    LN_ST_F32, LN_ST_BF16, LN_ST_F16, LN_ST_F64, LN_ST_I64, LN_ST_I32, LN_ST_I16, LN_ST_I8, LN_ST_U64, LN_ST_U32, LN_ST_U16, LN_ST_U8, LN_ST_BOOL,
    LN_ST_F8_E4M3, LN_ST_F8_E5M2, LN_ST_F8_E8M0, LN_ST_F8_E4M3FNUZ, LN_ST_F8_E5M2FNUZ, LN_ST_F4, LN_ST_F6_E2M3, LN_ST_F6_E3M2, LN_ST_C64,
    LN_ST_COUNT,
    LN_ST_UNKNOWN = LN_ST_COUNT /* a tensor that was skipped: only its range is known */
} ln_st_dtype;
const char *ln_st_dtype_name(ln_st_dtype t);

typedef struct ln_tensor {
    const char *name;
    size_t name_bytes;
    ln_st_dtype dtype;
    int n_dims;
    int64_t dims[8];
    const uint8_t *data;   /* in the mapping */
    uint64_t bytes;
    int file;              /* index into files */
    bool copied;           /* data is in memory: the file could not be mapped */
} ln_tensor;

typedef struct ln_shard {
    char *path;
    ln_map map;
} ln_shard;

typedef struct ln_tensors {
    ln_arena arena;        /* names and paths */
    ln_tensor *items;      /* sorted by name */
    size_t n, cap;
    ln_shard *files;
    size_t n_files, cap_files;
    uint64_t bytes;        /* of all tensors */
    struct ln_absent {
        const char *name, *shard; /* the index places it there */
        const char *found;        /* the file that has it instead; NULL: none */
    } *absent;             /* what the index names and the set lacks; whoever needs it refuses */
    size_t n_absent, cap_absent;
    bool skip_unknown;     /* tensors of unknown dtypes are LN_ST_UNKNOWN instead of refusing the file */
} ln_tensors;

/* The format's limits and ours (all tested at the limit and beyond it), and the largest of real models. */
#define LN_ST_MAX_HEADER 100000000u        /* the format's own; 1,138 tensors take 130 KB */
#define LN_ST_MAX_TENSORS 65536u           /* in a file; 1,138 (Llama 3.1 405B), 3,400 in MLX's groups */
#define LN_ST_MAX_MODEL_TENSORS 1048576u   /* the same models */
#define LN_ST_MAX_NAME 1024u               /* bytes; under 100 (a vision tower's) */
#define LN_ST_MAX_RANK 8                   /* 4 (a vision tower's convolution) */
#define LN_ST_MAX_DIM ((UINT64_C(1) << 48) - 1)
#define LN_ST_MAX_SHARDS 4096u             /* 191 (Llama 3.1 405B) */

/* Opens DIR's model.safetensors, or the shards of model.safetensors.index.json, or a gapless unindexed set. skip_unknown: see
 * ln_tensors. */
ln_status ln_tensors_open(ln_tensors *out, const char *dir, bool skip_unknown, ln_error *err);
void ln_tensors_close(ln_tensors *t);
/* LN_ECHANGED when a file is not as it was when it was opened; `broken_only`: without a system call, only what has already shown itself. */
ln_status ln_tensors_check(const ln_tensors *t, bool broken_only, ln_error *err);
/* By exact name; NULL when absent. */
const ln_tensor *ln_tensors_find(const ln_tensors *t, const char *name);
/* One file, for tests and for tools that read a single file. */
ln_status ln_tensors_open_file(ln_tensors *out, const char *path, ln_error *err);
/* One file that is already in memory, which must outlive *out. */
ln_status ln_tensors_open_memory(ln_tensors *out, const char *name, const uint8_t *data, size_t bytes, ln_error *err);
/* Writes one tensor file: *out becomes the 8 length bytes and the header, padded so that data begin at a multiple of 8; the caller
 * then streams the tensors' data in the order of `specs`, without gaps. */
typedef struct ln_tensor_spec { const char *name; ln_st_dtype dtype; int n_dims; int64_t dims[8]; } ln_tensor_spec;
ln_status ln_tensors_header(ln_str *out, const ln_tensor_spec *specs, size_t n, ln_error *err);
/* The same with {"format": format} as its metadata: readers ask for it. */
ln_status ln_tensors_header_as(ln_str *out, const char *format, const ln_tensor_spec *specs, size_t n, ln_error *err);

/* ---- configuration ---- */

/* config.json as it stands, and the object that holds the text model's fields (text_config when nested). */
typedef struct ln_config {
    json_t *root, *text;
    char path[4096];       /* of the file, for messages */
    char model_type[64];   /* the top one: gemma3, gemma3_text, qwen3, ...; "" when the file names none */
} ln_config;
ln_status ln_config_open(ln_config *out, const char *dir, ln_error *err);
void ln_config_close(ln_config *c);
/* Typed fields of c->text: absent -> `dflt`; null, a wrong type or a value outside [lo, hi] -> LN_EINVALID naming file and field. Where the
 * reference's class allows null, the caller asks ln_config_has first. An integer must be written as one (4096.0 is refused, as the
 * reference does); a real may be written as an integer. */
ln_status ln_config_int(const ln_config *c, const char *field, int64_t dflt, int64_t lo, int64_t hi, int64_t *out, ln_error *err);
ln_status ln_config_real(const ln_config *c, const char *field, double dflt, double lo, double hi, double *out, ln_error *err);
ln_status ln_config_bool(const ln_config *c, const char *field, bool dflt, bool *out, ln_error *err);
const char *ln_config_text(const ln_config *c, const char *field, const char *dflt); /* NULL dflt when absent or not a string */
bool ln_config_has(const ln_config *c, const char *field); /* present and not null */
/* The same reader for one value that lies elsewhere: `where` names it in messages. */
ln_status ln_config_real_at(const ln_config *c, const json_t *value, const char *where, double lo, double hi, double *out, ln_error *err);
ln_status ln_config_int_at(const ln_config *c, const json_t *value, const char *where, int64_t lo, int64_t hi, int64_t *out, ln_error *err);
/* LN_EINVALID: "where: expected `wanted`, found <the value>". */
ln_status ln_config_fail(const ln_config *c, const json_t *value, const char *where, const char *wanted, ln_error *err);

/* ---- keys.c: tables of keys ---- */

typedef enum ln_key_kind {
    LN_KEY_READ,           /* the code that reads the file uses it */
    LN_KEY_HARMLESS,       /* known; no value of it changes what linnet computes */
    LN_KEY_WARNED,         /* not applied: another value than `same` is named in a warning */
    LN_KEY_REFUSED         /* another value than `same` makes another model: LN_EUNSUPPORTED */
} ln_key_kind;
/* One row of a table. `same`: the values that ask for what linnet does anyway, with | between: null, true,
 * false, numbers, texts, [] and {} (empty), [1,...] (a list of ones), * (any). `what`: what another value
 * asks for, for messages. */
typedef struct ln_key {
    unsigned groups;       /* bits: to which model families (or kinds of generation) the row applies */
    const char *name;
    ln_key_kind kind;
    const char *same, *what;
} ln_key;
typedef struct ln_keys {
    const ln_key *rows;
    size_t n;
    const struct ln_keys *also; /* keys that this table leaves to another one; or NULL */
    bool modules;          /* objects and booleans under other keys are entries for modules, not keys */
} ln_keys;
/* What was found in one file. Zero-initialise; ln_key_report_free. */
typedef struct ln_key_report {
    ln_str warned, unknown;
    size_t n_warned, n_unknown;
} ln_key_report;
/* The row of a key for one of the groups; NULL: the table does not know the key. */
const ln_key *ln_key_find(const ln_keys *table, unsigned group, const char *name);
bool ln_key_is_same(const ln_key *key, const json_t *value);
/* Compares every key of `object` with the table. `path` names the file in messages, `where` what the object
 * is in it ("text_config."). */
ln_status ln_keys_check(const ln_keys *table, unsigned group, const json_t *object, const char *path,
                        const char *where, ln_key_report *report, ln_error *err);
/* One warning for what is not applied; the unknown keys at the level of `-v`. */
void ln_key_report_say(const ln_key_report *report, const char *path);
void ln_key_report_free(ln_key_report *report);
/* The tables of generation_config.json, tokenizer_config.json and quantization blocks. */
/* Groups of generation_config.json: without and with do_sample. */
enum { LN_KEYS_GREEDY = 1, LN_KEYS_DRAWN = 2 };
extern const ln_keys ln_generation_keys, ln_tokenizer_keys, ln_quantization_keys;

/* The quantization block: `quantization`, else `quantization_config`, at the top or in text_config. Borrows the configuration. */
typedef struct ln_quant {
    ln_enc enc;            /* of every quantised tensor without an entry of its own; bits 0: the model is dense */
    const json_t *block;
    const char *where;     /* the block's name, for messages */
    const ln_config *config;
} ln_quant;
/* LN_EUNSUPPORTED names a quant_method, mode, width or group that linnet does not read. */
ln_status ln_quant_open(ln_quant *out, const ln_config *c, ln_error *err);
/* The block's entry for one module path. What the entry does not name is MLX's default in `enc`. */
typedef struct ln_quant_entry {
    bool found;            /* the block has an entry for the path */
    bool names_bits, names_group;
    ln_enc enc;            /* bits 0: there is no entry, or it says that the module is dense */
} ln_quant_entry;
/* `path` is a module's, `model.layers.3.mlp.down_proj` for instance. */
ln_status ln_quant_of(const ln_quant *q, const char *path, ln_quant_entry *out, ln_error *err);

/* generation_config.json and the stop set (the union over config.json, generation_config.json and tokenizer_config.json's eos). */
typedef struct ln_genconfig {
    bool present, do_sample;
    double temperature, top_p, min_p, repeat_penalty;
    int top_k;
    int32_t eos[32];       /* real models have 3 at most (Llama 3.1) */
    int n_eos;
    int32_t bos;           /* -1: none */
    /* what generation_config.json forbids and ends texts by: the fields of ln_sampling with these names, in
     * the arena */
    int32_t *suppress, *begin_suppress;
    ln_id_list *bad_words;
    const char **stop;
    size_t n_suppress, n_begin_suppress, n_bad_words, n_stop;
    int64_t no_repeat_ngram, min_new;
    ln_arena arena;
} ln_genconfig;
#define LN_STOP_MOST 1024      /* bytes of a stop text, and stop texts of a file */
/* `vocab` bounds the ids. The tokenizer's eos text is looked up by the caller's function (may be NULL). */
ln_status ln_genconfig_open(ln_genconfig *out, const char *dir, const ln_config *c, int64_t vocab,
                            int32_t (*token_id)(void *user, const char *text, size_t bytes), void *user, ln_error *err);
void ln_genconfig_close(ln_genconfig *g);
/* Says which keys of DIR/tokenizer_config.json are not applied or not known. The tokenizer does not need the
 * file: one that cannot be read is passed over. */
ln_status ln_check_tokenizer_keys(const char *dir, ln_error *err);
/* Whether the directory ships a chat template (chat_template.jinja, chat_templates/, chat_template.json, or tokenizer_config.json's). */
ln_status ln_has_template(const char *dir, bool *out, ln_error *err);
/* Why DIR has no tokenizer.json that can be read: only tokenizer.model, or vocab.json with merges.txt (LN_EUNSUPPORTED, with the line
 * that converts them), a Git LFS pointer (LN_EINVALID), or nothing (LN_EIO). LN_OK when there is one. */
ln_status ln_check_tokenizer(const char *dir, ln_error *err);

#endif
