/* Writes checkpoints: quantises a model into a new directory, or adds an adapter to its weights.
 *
 * The result of quantising equals that of mlx_lm.convert for the same model: names, dtypes, shapes and bytes
 * of the tensors, shards, index and configuration. The checkpoint is streamed: only a few MB of it are in
 * memory at any time, whatever its size. */
#ifndef LN_CONVERT_H
#define LN_CONVERT_H

#include <linnet_tools.h>

#include "../base/file.h"
#include "../io/adapter.h"
#include "../model/spec.h"

/* Tensors of a quantised matrix in the new model: codes, scales, biases. */
enum { LN_CONVERT_PARTS = 3 };
/* The initial values of a tensor of a new model: a constant, or normal numbers. */
typedef struct ln_initial {
    float constant;   /* of a vector */
    double deviation; /* of normal numbers of mean 0; 0: all values are the constant */
    uint64_t seed;    /* of these */
    uint32_t stream;  /* no two tensors have the same */
    int64_t zero_row; /* a row of zeros, -1: none */
} ln_initial;

/* One tensor of the source, and how it is stored in the new model. All items are determined before anything
 * is written. */
typedef struct ln_convert_item {
    const ln_weight *w; /* a tensor that holds the rows of several weights is one weight here */
    char name[192];     /* of the tensor in the new model, for example `model.layers.0.mlp.up_proj.weight` */
    bool same_name;     /* the new tensor has the name of the source's, not `name` */
    size_t path_bytes;  /* length of the module path: `name` without `.weight` or `.bias` */
    ln_groups code;     /* bits 0: the tensor stays dense */
    bool mxfp4;         /* experts that stay in mxfp4: `code` has its bits and columns */
    bool entry;         /* the quantization block has an entry for it, as its encoding is not the default */
    ln_dtype dtype;     /* of the new tensor if dense, else of its scales and biases */
    int shard[LN_CONVERT_PARTS]; /* of each part: the shard, and the byte offset in its data area */
    uint64_t at[LN_CONVERT_PARTS];
    uint64_t bytes;
    /* of the adapter: the modules whose B A are added to rows of the matrix, each from its first row on, or
     * of experts in one tensor to the rows of that half; or one whose bias changes the vector */
    const ln_adapter_module *modules[LN_FUSED_PARTS];
    int64_t first_rows[LN_FUSED_PARTS];
    int n_modules;
    uint8_t in; /* of experts in a tensor that is not mlx-lm's: how it holds them (ln_experts_in), else 0 */
    const ln_weight *halves[2]; /* of such a tensor with the rows of two weights: these */
    int64_t expert;             /* of a tensor with one expert alone: its number */
    const float *values;        /* of all rows of the tensor, instead of the source's; NULL: the source's */
    ln_initial initial;         /* of a new model: instead of the source's */
    bool computed;              /* its rows are computed in f32 first, whatever the source's dtype */
    float norm_shift;           /* of a norm: subtracted from its weight */
    /* a tensor that linnet does not use, copied as it is: w then has d0 bytes and no columns; else NULL */
    const ln_tensor *raw;
} ln_convert_item;

typedef struct ln_convert {
    char from[4096]; /* directory of the source model */
    ln_config config;
    ln_spec spec;
    ln_tensors tensors;
    ln_weights weights;
    bool tied_there;        /* spec.tied as config.json says, before the tensors decided */
    ln_groups code;         /* of matrices in the new model; bits 0: it is dense */
    ln_dtype dtype;         /* of a GGUF file's tensors in the new model */
    ln_convert_item *items; /* [n_items], in the order of the new model */
    size_t n_items;
    ln_adapter_file *adapter; /* that is added to the weights, or NULL; and a factor on its scales */
    double scale;
    ln_weight *shared;  /* [n_shared] weights of tensors that hold several */
    bool drops_head;    /* a head that is a copy of the embedding is not written */
    bool unties;        /* the adapter makes the head of a tied model a tensor of its own */
    bool grows;         /* the adapter has added tokens to the vocabulary */
    bool keeps_experts; /* they are copied as they are: fuse, unless it quantises */
    size_t n_shared;
    ln_weight *others; /* [n_others] weights of the items that are copied */
    size_t n_others;
    int n_shards;
    bool is_new;      /* it has no source but a configuration: all items have initial values */
    bool other_names; /* several shards are called model-b-1-of-N: model-1-of-N is in use */
    uint64_t bytes;
} ln_convert;

/* convert_item.c. Number of tensors that store an item: 1, or codes, scales and biases. */
static inline int ln_convert_parts(const ln_convert_item *x) {
    return x->mxfp4 ? LN_CONVERT_PARTS - 1 : x->code.bits ? LN_CONVERT_PARTS : 1;
}
/* Name, dtype and shape of part k. `name` is filled; the result borrows it. */
ln_tensor_spec ln_convert_part(const ln_convert_item *x, int k, char name[224]);
uint64_t ln_convert_part_bytes(const ln_convert_item *x, int k);
void ln_convert_shard_name(const ln_convert *c, int shard, char out[64]);
/* Adds the item of a tensor that holds the experts of a layer as files of the reference do, under the
 * source's name: of gate and up one, for the first of them. */
void ln_convert_add_joint(ln_convert *c, const ln_weight *w, ln_dtype dtype, uint8_t in);
/* Sorts the items into mlx-lm's order of modules and assigns shards and offsets. A shard ends before the
 * tensor that would make it larger than shard_bytes. */
void ln_convert_lay_out(ln_convert *c, uint64_t shard_bytes);

/* copy_config.c: writes everything except the tensors to directory `to`. Errors as in io.h and file.h. */
ln_status ln_convert_config(const ln_convert *c, const char *to,
                            ln_error *err); /* config.json and the index */
ln_status ln_convert_files(const ln_convert *c, const char *to,
                           ln_error *err); /* tokenizer, chat templates and the like, unchanged */
/* Copies a file unchanged; does nothing for a directory. */
ln_status ln_convert_copy(const char *from, const char *to, const char *name, ln_error *err);
/* copy_modules.c: copies the directories of the modules that modules.json lists. */
ln_status ln_convert_modules(const ln_convert *c, const char *to, ln_error *err);

/* convert_gguf.c: writes a GGUF file as a model directory; see ln_convert_model. */
ln_status ln_convert_gguf(const char *model, const char *out, const ln_convert_options *opt,
                          uint64_t shard_bytes, ln_quantized_fn *fn, void *user, ln_error *err);
/* Marks the items of a GGUF file as computed, and sets what norms have too much. */
void ln_convert_compute(ln_convert *c);
/* quantize.c. Sets the tensor's name in the new model, which does not depend on the prefix in the source. */
void ln_convert_name(const ln_convert *c, ln_convert_item *x);
/* Writes the files next to the tensors that the metadata of the file describe. */
ln_status ln_convert_gguf_files(const ln_convert *c, const char *to, ln_error *err);
/* copy_config.c: writes a text to the file `name` in directory `to`; one of JSON, indented. */
ln_status ln_convert_text(const char *to, const char *name, const char *text, size_t bytes, ln_error *err);
ln_status ln_convert_json(const char *to, const char *name, const json_t *v, ln_error *err);

/* quantize.c. Opens the source model: config.json, spec, tensors, weights. ln_convert_close, after an error
 * too. */
ln_status ln_convert_open(ln_convert *c, const char *model, ln_error *err);
void ln_convert_close(ln_convert *c);
/* Rejects weights in formats that are not read here; takes_fp8: fp8 is. */
ln_status ln_convert_check_stored(const ln_convert *c, bool takes_fp8, ln_error *err);
/* Returns what is written for weights.items[i]: the weight, the whole tensor for the first of those that it
 * holds, and NULL for the others. */
const ln_weight *ln_convert_stored(ln_convert *c, size_t i);
/* Returns how many tensors are written for a weight: one, or one for each expert; and what the k-th of them
 * holds. */
int64_t ln_convert_tensors(const ln_convert *c, const ln_weight *w);
const ln_weight *ln_convert_tensor(ln_convert *c, const ln_weight *w, int64_t k);
/* Decides how each weight is quantised, and lays the tensors out. Errors: see ln_quantize. */
ln_status ln_convert_decide(ln_convert *c, const ln_quantize_options *opt, uint64_t shard_bytes,
                            ln_error *err);
/* LN_EUSAGE if the output directory is the source model or contains it. */
ln_status ln_convert_check_out(const ln_convert *c, const char *out, ln_error *err);

/* write_tensors.c: writes all files of the new model to the directory `to`. */
ln_status ln_convert_write(const ln_convert *c, const char *to, int n_threads, ln_quantized_fn *fn,
                           void *user, ln_error *err);

/* The same to a directory that appears under its name `out` when all files are written. LN_EIO: it exists and
 * is not to be replaced (`force`). LN_EUSAGE: it holds the model that is read. */
ln_status ln_convert_save(const ln_convert *c, const char *out, bool force, int n_threads,
                          ln_quantized_fn *fn, void *user, ln_error *err);

/* quantize.c: implements ln_quantize (linnet.h). A shard ends before the tensor that would make it larger
 * than shard_bytes. */
#define LN_CONVERT_SHARD_BYTES ((uint64_t)5 << 30)
ln_status ln_convert_quantize(const char *model, const char *out, const ln_quantize_options *opt,
                              uint64_t shard_bytes, ln_quantized_fn *fn, void *user, ln_error *err);

/* fuse.c: lists and lays out the items of a dense result, which has the names and dtypes of the source. The
 * weights come first, then the other tensors. LN_EMEMORY. */
ln_status ln_convert_decide_dense(ln_convert *c, uint64_t shard_bytes, ln_error *err);

/* trained.c: writes the model with other values of some tensors, f32 and of the same shapes, into `dir`,
 * which exists. An earlier model there is replaced at once. A shard ends before the tensor that would make it
 * larger than shard_bytes. LN_EINVALID: the model has no such tensor. LN_ENUMERIC: a value is not finite in
 * the tensor's dtype. */
typedef struct ln_convert_values {
    const char *name; /* of the tensor in the model's files */
    const float *values;
} ln_convert_values;
ln_status ln_convert_trained(const char *model, const char *dir, const ln_convert_values *values, size_t n,
                             uint64_t shard_bytes, int n_threads, ln_error *err);

/* new_model.c: implements ln_init_model; `check` is called with the temporary directory before that becomes
 * `out`. */
typedef ln_status ln_convert_check_fn(void *user, const char *dir, ln_error *err);
ln_status ln_convert_new(const char *config, const char *out, const ln_init_options *opt,
                         uint64_t shard_bytes, ln_quantized_fn *fn, void *user, ln_convert_check_fn *check,
                         void *check_user, ln_error *err);
/* Writes the initial values of row r, of `cols` elements. */
void ln_initial_row(const ln_initial *x, int64_t r, int64_t cols, float *out);

/* fuse.c: implements ln_fuse except the comparison of logits, which `check` makes. `check` is called with
 * the temporary directory before that becomes `out`. *n_modules: of the adapter. check may be NULL. */
ln_status ln_convert_fuse(const char *model, const char *adapter, const char *out, const ln_fuse_options *opt,
                          uint64_t shard_bytes, ln_quantized_fn *fn, void *user, int *n_modules,
                          ln_convert_check_fn *check, void *check_user, ln_error *err);

#endif
