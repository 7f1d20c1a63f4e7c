/* How a model directory says that texts become embeddings: the files of sentence-transformers.
 *
 * modules.json lists the modules that a text passes through: the Transformer, which is the model itself, one
 * Pooling, then any number of Normalize, Dense, LayerNorm and Dropout modules, each with a config.json in a
 * directory of its own. config_sentence_transformers.json has prompts that are put before texts,
 * sentence_bert_config.json the longest text. Without modules.json only 1_Pooling/config.json is read. */
#ifndef LN_EMBEDDING_FILES_H
#define LN_EMBEDDING_FILES_H

#include <linnet_tools.h>

#include "io.h"

enum { LN_EMB_MOST_WAYS = 16, LN_EMB_MOST_MODULES = 16 };

typedef enum ln_emb_kind { LN_EMB_NORMALIZE, LN_EMB_DENSE, LN_EMB_LAYER_NORM } ln_emb_kind;
typedef enum ln_emb_activation {
    LN_EMB_IDENTITY,
    LN_EMB_TANH,
    LN_EMB_RELU,
    LN_EMB_SIGMOID,
    LN_EMB_SILU,
    LN_EMB_GELU
} ln_emb_activation;

/* A module after the Pooling: n_in values become n_out. */
typedef struct ln_emb_module {
    ln_emb_kind kind;
    int64_t n_in, n_out;
    ln_emb_activation activation; /* of a Dense */
    bool adds_input;              /* a Dense with use_residual */
    /* Dense: [n_out, n_in], [n_out] or NULL, [n_out, n_in] or NULL (the input is added as it is);
     * LayerNorm: [n_out], [n_out]. Borrowed from `tensors`. */
    const ln_tensor *weight, *bias, *residual;
    ln_tensors tensors;
} ln_emb_module;

/* What the files are checked against. */
typedef struct ln_emb_model {
    int64_t width, n_ctx; /* of the hidden states; max_position_embeddings */
    bool causal_head;     /* the first of `architectures` is a class ...ForCausalLM */
} ln_emb_model;

typedef struct ln_emb_files {
    bool present;                               /* modules.json exists */
    ln_pooling pooling[LN_EMB_MOST_WAYS];       /* results are concatenated in this order */
    size_t n_pooling;                           /* at least 1 */
    bool skip_prompt;                           /* tokens of the prompt are not pooled */
    ln_emb_module modules[LN_EMB_MOST_MODULES]; /* applied in this order after the pooling */
    size_t n_modules;
    json_t *config;             /* config_sentence_transformers.json; NULL: absent */
    const json_t *prompts;      /* an object of texts (or null, which is ""), of `config`; or NULL */
    const char *default_prompt; /* a name of `prompts`; NULL: none */
    int64_t n_values;           /* that an embedding has after the last module */
    int64_t dimensions;         /* of these, the first ones that are kept: truncate_dim; 0: all */
    bool keep_length;           /* vectors are compared by more than their direction */
    int64_t max_tokens;         /* longer texts are cut to it; 0: no limit */
    bool cut_left;              /* a longer text loses its first tokens */
    bool lower_case;            /* texts are converted to lower case */
    ln_str warnings;            /* lines about keys that are not applied */
} ln_emb_files;

/* Reads the files of a directory. LN_EUNSUPPORTED: a module, a way of pooling or the value of a key that
 * linnet does not compute, by name. LN_EINVALID: a file is malformed, or contradicts the model. LN_EIO: a
 * file that modules.json needs is absent. The caller releases *out with ln_emb_files_close, after an error
 * too. */
ln_status ln_emb_files_open(ln_emb_files *out, const char *dir, const ln_emb_model *model, ln_error *err);
void ln_emb_files_close(ln_emb_files *f);
/* Frees what *f has, and sets it to a directory without files of sentence-transformers. */
void ln_emb_files_reset(ln_emb_files *f, const ln_emb_model *m);
/* Logs the warnings. */
void ln_emb_files_warn(const ln_emb_files *f);
/* Stores the text of a prompt. LN_EINVALID: the files name no such prompt; the message lists the names. */
ln_status ln_emb_prompt(const ln_emb_files *f, const char *name, const char **text, size_t *bytes,
                        ln_error *err);
/* Whether a path of modules.json stays within the directory, or is the directory itself. */
bool ln_emb_path_stays(const char *path);
bool ln_emb_path_is_here(const char *path);

/* ---- between the files that implement this header ---- */

/* Groups of embedding_keys.def: the object that a key belongs to. */
enum {
    EMB_ENTRY = 1,
    EMB_MODEL = 2,
    EMB_TRANSFORMER = 4,
    EMB_POOLING = 8,
    EMB_DENSE = 16,
    EMB_NORMALIZE = 32,
    EMB_LAYER_NORM = 64,
    EMB_DROPOUT = 128,
    EMB_MODEL_ARGS = 256,
    EMB_TOKENIZER_ARGS = 512,
    EMB_CONFIG_ARGS = 1024,
    EMB_PROCESSING = 2048,
    EMB_PROCESSING_TEXT = 4096
};
/* A JSON object that is read, and its file; `where` is the prefix of its keys in messages. */
typedef struct emb_object {
    ln_emb_files *files;
    const json_t *json;
    const char *path, *where;
} emb_object;
/* Checks the keys of an object; those that are not applied become a line of `warnings`. */
ln_status emb_check_keys(const emb_object *o, unsigned group, ln_error *err);
/* Returns LN_EINVALID: "path: key: expected `wanted`, found <the value>". */
ln_status emb_bad(const emb_object *o, const char *key, const char *wanted, ln_error *err);
/* Returns LN_EUNSUPPORTED with the text `what` of the file. */
ln_status emb_refuse(const char *path, const char *what, ln_error *err);
/* Typed values; an absent key gives `dflt`, null is accepted if null_too is set. */
ln_status emb_bool(const emb_object *o, const char *key, bool dflt, bool *out, ln_error *err);
ln_status emb_count(const emb_object *o, const char *key, bool null_too, int64_t *out, ln_error *err);
/* Loads a JSON object; *root NULL: the file does not exist. `path` receives its name. */
ln_status emb_load(json_t **root, char *path, const char *dir, const char *name, ln_error *err);

/* embedding_config.c */
ln_status emb_read_model_config(ln_emb_files *f, const char *dir, ln_error *err);
ln_status emb_read_transformer(ln_emb_files *f, const char *dir, const ln_emb_model *m, ln_error *err);
/* embedding_modules.c: reads the module of this type in `dir`, which follows the pooling. */
ln_status emb_read_module(ln_emb_files *f, const char *type, const char *dir, ln_error *err);

#endif
