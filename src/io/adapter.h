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
 * every B one. It may also save the model's embedding table and output head with the adapter
 * (save_embedding_layers): `copies`, which ln_adapter_match compares with the model's.
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

/* Matrices of the model that a file of PEFT may also have. */
typedef enum ln_adapter_copy { LN_COPY_EMBED, LN_COPY_HEAD, LN_ADAPTER_COPIES } ln_adapter_copy;

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
    const ln_tensor *copies[LN_ADAPTER_COPIES]; /* of the model's matrices, [V,D]; NULL: the file has none */
    size_t n_copies;
    size_t n_unused;   /* tensors of a vision or audio tower, which no module has */
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
    ln_name_pattern *target;  /* PEFT: target_modules as a regular expression; NULL: none */
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
/* Whether target_parameters names a parameter of this module. */
bool ln_adapter_names_parameter(const ln_adapter_config *c, const char *full);
/* Writes the names of the list of modules that the configuration has, except those that it excludes, to
 * `list` if no tensor has them in its name. */
void ln_adapter_find_absent(const ln_adapter_config *c, const ln_tensors *tensors, char list[256]);
/* The rank and the scale of a module. */
ln_status ln_adapter_rank_of(const ln_adapter_config *c, const char *full, int64_t *rank, ln_error *err);
ln_status ln_adapter_scale_of(const ln_adapter_config *c, const char *full, int64_t rank, double *scale,
                              ln_error *err);

#endif
