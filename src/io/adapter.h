/* LoRA adapters: the directories that PEFT, mlx-lm and go-mlx write and llama.cpp's files, read into one
 * representation.
 *
 * A module adds scale * B A x to the output of one matrix of the model, where A is [rank, n_in] and B is
 * [n_out, rank]. The configuration decides about the layout, because shapes cannot (a square matrix):
 *
 * PEFT: adapter_model.safetensors with base_model.model.*.lora_A.weight; A is stored [r,in], B [out,r]; the
 *   scale is alpha / r, or alpha / sqrt(r).
 * mlx-lm: adapters.safetensors with *.lora_a, [in,r] and [r,out]; lora_parameters.scale.
 * go-mlx: adapter.safetensors with *.lora_a, [r,in] and [out,r]; alpha / rank.
 *
 * GGUF: a file of llama.cpp, blk.N.STEM.weight.lora_a, [r,in] and [out,r]; alpha / rank. Rows of q and k may
 * stand in pairs, which ln_adapter_split puts in order.
 *
 * Of experts, whose matrices are [X, out, in], PEFT stores A [X r, in] and B [out, r X], the expert last, for
 * a parameter that target_parameters names; the module of a second parameter is called M.base_layer. mlx-lm
 * stores A [X, r, in] and B [X, out, r].
 *
 * PEFT may train biases too: `bias` all or lora_only puts biases of the model into the file, lora_bias gives
 * every B one. What a file of PEFT has for the model's own tensors, not for the output of a matrix of a
 * layer, are its `changes`: LoRA on the embedding table and the output head, modules that are saved whole
 * (modules_to_save, save_embedding_layers), and rows of trained tokens (trainable_token_indices).
 *
 * DoRA (PEFT's use_dora, fine_tune_type dora of mlx-lm): every module has magnitudes m[n_out], and the matrix
 * that it makes of W is W + scale B A, each row divided by its length and multiplied by its m.
 *
 * Nothing is skipped but what concerns images and sounds: a tensor that is no half of a pair, a rank that the
 * configuration does not have, a module that it does not name, and whatever else would change the result
 * is rejected by name. */
#ifndef LN_ADAPTER_H
#define LN_ADAPTER_H

#include "../base/sha256.h"
#include "io.h"
#include "name_pattern.h"

typedef enum ln_adapter_layout {
    LN_ADAPTER_PEFT,
    LN_ADAPTER_MLX_LM,
    LN_ADAPTER_GO_MLX,
    LN_ADAPTER_GGUF
} ln_adapter_layout;

typedef struct ln_adapter_module {
    /* of the matrix, without the prefix of the checkpoint: layers.3.self_attn.q_proj, lm_head */
    const char *path;
    const ln_tensor *a, *b;  /* NULL, with rank and n_in 0: the module has a bias alone */
    const ln_tensor *b_bias; /* [n_out] added to B A x, and scaled with it (PEFT's lora_bias); NULL: none */
    const ln_tensor *bias;   /* [n_out] in the place of the model's own bias (PEFT's bias); NULL: none */
    const ln_tensor *magnitude; /* [n_out] of DoRA; NULL: plain LoRA */
    int64_t n_in, n_out, rank;
    /* of a module for the matrices of experts, how many there are; else 0. each: their own modules, NULL if
     * one has none (ln_adapter_split); NULL: A and B have those of all */
    int64_t n_experts;
    const struct ln_adapter_module *const *each;
    int weight; /* of a part that has no name of its own (ln_adapter_split): the slot of its weight plus 1 */
    /* of a module that is a part of one of the file (ln_adapter_split): its first row of B and of the biases,
     * and how many rows these have; whole 0: the module has all of them */
    int64_t row0, whole;
    const ln_row_pieces *pieces; /* of such a part, if its rows do not follow each other; row0 is 0 then */
    int64_t row_step;            /* from one of its rows of B to the next; 0: 1 */
    const char *stored;          /* the path of that module of the file; of another module its own */
    ln_tensor_order rows;        /* of B */
    double scale;
    bool any_layer; /* mlx-lm: the configuration names the module with its layer, so that n_last_layers does
                       not count */
} ln_adapter_module;

/* What a file of PEFT has for a tensor of the model. A row of the result is that of the model, that of
 * `whole` if it is set, or that of `rows` if the row is listed; LoRA is added to it. */
typedef struct ln_adapter_row {
    int32_t id, at; /* row `id` of the tensor is row `at` of `rows` */
} ln_adapter_row;
typedef struct ln_adapter_change {
    const char *path; /* of the module, as ln_adapter_module.path: embed_tokens, lm_head, norm */
    const char *full; /* with its prefix */
    bool is_bias;     /* `whole` stands in the place of the module's bias, not of its weight */
    /* PEFT saved the table of the model next to the adapter: `whole` may have the model's values. differs: it
     * was compared, and has others (ln_adapter_compare) */
    bool is_copy, differs;
    const ln_tensor *whole;       /* NULL: none */
    const ln_tensor *rows;        /* [n_listed, n_cols]; NULL: none */
    const ln_adapter_row *listed; /* [n_listed] ascending by id */
    int64_t n_listed;
    /* LoRA: A [rank, n_cols] and B [n_rows, rank] of the head, or A [rank, n_rows] and B [n_cols, rank] of
     * the embedding; NULL: none */
    const ln_tensor *a, *b;
    int64_t rank;
    double scale;
} ln_adapter_change;
/* Whether a change is for the embedding table, or for the output head. */
bool ln_adapter_is_embedding(const ln_adapter_change *x);
bool ln_adapter_is_head(const ln_adapter_change *x);

typedef struct ln_adapter_file {
    ln_arena arena;
    ln_tensors tensors;
    char path[4096]; /* absolute, of the directory */
    ln_adapter_layout layout;
    bool transposed;            /* A is stored [n_in, rank], B [rank, n_out] */
    ln_adapter_module *modules; /* [n], sorted by path */
    size_t n;
    const ln_adapter_module *in_file; /* [n_in_file] those of the file, before any was split */
    size_t n_in_file;
    ln_adapter_change *changes; /* [n_changes] of the model's own tensors */
    size_t n_changes;
    bool tied;       /* PEFT's ensure_weight_tying: what the embedding has is of a tied head, too */
    size_t n_copies; /* tensors that change nothing: copies of the model's tables, until they are compared */
    size_t n_unused; /* tensors of a vision or audio tower, which no module has */
    int n_last_layers; /* mlx-lm: only the last so many layers may have modules; 0: all */
    char absent[256]; /* modules that the configuration names and of which there are no tensors: "k_proj, fc1"
                       */
} ln_adapter_file;

/* Opens the adapter in `dir`. The caller owns *out; ln_adapter_file_close. LN_EIO: no such directory, or it
 * lacks a file. LN_EINVALID: the files contradict each other. LN_EUNSUPPORTED: valid, but not plain LoRA on
 * matrices. */
ln_status ln_adapter_file_open(ln_adapter_file **out, const char *dir, ln_error *err);
void ln_adapter_file_close(ln_adapter_file **a);
const char *ln_adapter_layout_name(ln_adapter_layout l);
/* Warns if the configuration names modules of which the file has no tensors. Programs write such names,
 * those of modules that a model lacks, and a file that is not whole looks alike. */
void ln_adapter_warn_absent(const ln_adapter_file *a);
/* Writes A, f32 [rank, n_in], and B, f32 [n_out, rank], of one module that has them. */
void ln_adapter_file_read(const ln_adapter_file *a, const ln_adapter_module *m, float *A, float *B);
/* Writes A and B of one expert of a module that has n_experts. Returns the module that the values are of,
 * whose rank and scale hold; NULL: there is none for this expert, and nothing is written. */
const ln_adapter_module *ln_adapter_read_expert(const ln_adapter_file *a, const ln_adapter_module *m,
                                                int64_t expert, float *A, float *B);
/* Tensors that are neither of a tower nor copies: those that an adapter adds. */
static inline size_t ln_adapter_applied(const ln_adapter_file *a) {
    return a->tensors.n - a->n_unused - a->n_copies;
}
/* Writes the n_out elements of a module's b_bias, bias or magnitude as f32. */
void ln_adapter_vector(const ln_adapter_module *m, const ln_tensor *t, float *out);
/* Element i of a tensor of f32, bf16 or f16. */
float ln_adapter_value(const ln_tensor *t, size_t i);
/* LN_EINVALID unless all values of a module are finite. */
ln_status ln_adapter_check_finite(const ln_adapter_file *a, const ln_adapter_module *m, ln_error *err);
/* The SHA-256 of layout, paths, scales, shapes and bytes of the file's modules. LN_ECHANGED: a file changed.
 */
ln_status ln_adapter_file_digest(const ln_adapter_file *a, char digest[LN_SHA256_HEX], ln_error *err);

/* ---- adapter_config.c ---- */

/* A pattern of rank_pattern or alpha_pattern with its value. */
typedef struct ln_adapter_pattern {
    ln_name_pattern *name;
    double value;
} ln_adapter_pattern;
typedef struct ln_adapter_patterns {
    ln_adapter_pattern *items; /* [n], in the order of the file: the first that matches holds */
    size_t n;
} ln_adapter_patterns;

/* adapter_config.json, as far as it decides what the tensors mean. Texts are borrowed from `root`. */
typedef struct ln_adapter_config {
    json_t *root;
    char path[4200];
    ln_adapter_layout layout;
    int64_t rank; /* of modules without an entry of their own; 0: the file does not say */
    double alpha, scale;
    bool rslora;
    bool lora_bias, biases;   /* PEFT: every B has a bias; the file may have biases of the model */
    bool dora;                /* every module has magnitudes */
    const json_t *targets;    /* list of names; NULL: any module, or those that `target` matches */
    const json_t *parameters; /* PEFT: list of parameters of experts, or NULL */
    const json_t *saved;      /* PEFT: list of modules that are saved whole, or NULL */
    const json_t *tokens; /* PEFT: ids of trained tokens, or an object with those of each module, or NULL */
    bool tied;            /* PEFT: ensure_weight_tying */
    ln_name_pattern *target; /* PEFT: target_modules as a regular expression; NULL: none */
    /* PEFT: what is left out of the modules that are named. exclude_modules is a list or a regular
     * expression; layers_to_transform has the numbers of the only layers, of modules called layers_pattern.
     * NULL: none */
    const json_t *excluded, *layers, *layers_pattern;
    ln_name_pattern *exclude;
    ln_adapter_patterns rank_pattern, alpha_pattern; /* PEFT */
    int n_last_layers;
} ln_adapter_config;
ln_status ln_adapter_config_open(ln_adapter_config *out, const char *dir, ln_error *err);
void ln_adapter_config_close(ln_adapter_config *c);
/* Sets *named: whether the configuration names this module; `full` is its path with the checkpoint's prefix.
 * *whole: whether it names it by that path, with the number of its layer. */
ln_status ln_adapter_targets(const ln_adapter_config *c, const char *full, const char *path, bool *named,
                             bool *whole, ln_error *err);
/* Whether modules_to_save names this module, as PEFT finds it: by the end of its name. */
bool ln_adapter_saves(const ln_adapter_config *c, const char *full);
/* The ids of the trained tokens of a module; NULL: none. */
const json_t *ln_adapter_token_ids(const ln_adapter_config *c, const char *full);
/* Whether target_parameters names a parameter of this module. */
bool ln_adapter_names_parameter(const ln_adapter_config *c, const char *full);
/* Writes the names of the list of modules that the configuration has, except those that it excludes, to
 * `list` if no tensor has them in its name. */
void ln_adapter_find_absent(const ln_adapter_config *c, const ln_tensors *tensors, char list[256]);
/* The rank and the scale of a module. */
ln_status ln_adapter_rank_of(const ln_adapter_config *c, const char *full, int64_t *rank, ln_error *err);
ln_status ln_adapter_scale_of(const ln_adapter_config *c, const char *full, int64_t rank, double *scale,
                              ln_error *err);

/* ---- adapter_changes.c ---- */

/* Stores a tensor of a file of PEFT if it is a part of a change. *taken: it is. LN_EUNSUPPORTED: it is one
 * that is not applied. */
ln_status ln_adapter_take_change(ln_adapter_file *a, const ln_adapter_config *c, const ln_tensor *t,
                                 bool *taken, ln_error *err);
/* Checks the changes when all tensors have been taken, and reads their ids, ranks and scales. */
ln_status ln_adapter_check_changes(ln_adapter_file *a, const ln_adapter_config *c, ln_error *err);
/* Returns the path of a module without the prefixes of checkpoints, which may be several. */
const char *ln_adapter_path(const char *full);
/* Whether the adapter changes tensors of the model itself, as far as is known without the model. */
bool ln_adapter_changes_model(const ln_adapter_file *a);
/* Writes the values of row r that a change makes of `base`, the model's row of `cols` elements, to out. The
 * row is one of the model, or one that the change has. */
void ln_adapter_changed_row(const ln_adapter_change *x, int64_t r, int64_t cols, const float *base,
                            double *out);
/* Whether a change has row r by itself, not as a sum with the model's. */
bool ln_adapter_has_row(const ln_adapter_change *x, int64_t r);
/* The number of rows that a change reaches: that of the largest vocabulary that it knows. */
int64_t ln_adapter_rows_of(const ln_adapter_change *x);

#endif
