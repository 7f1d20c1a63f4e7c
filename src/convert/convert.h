/* Writes checkpoints: quantises a model into a new directory.
 *
 * The result equals that of mlx_lm.convert for the same model: names, dtypes, shapes and bytes of the
 * tensors, shards, index and configuration. The checkpoint is streamed: only a few MB of it are in memory at
 * any time, whatever its size. */
#ifndef LN_CONVERT_H
#define LN_CONVERT_H

#include "../base/file.h"
#include "../model/spec.h"

/* One tensor of the source, and how it is stored in the new model. All items are determined before anything
 * is written. */
typedef struct ln_convert_item {
    const ln_weight *w;
    char name[192];    /* of the tensor in the new model, for example `model.layers.0.mlp.up_proj.weight` */
    size_t path_bytes; /* length of the module path: `name` without `.weight` or `.bias` */
    ln_enc enc;        /* bits 0: the tensor stays dense */
    bool entry;        /* the quantization block has an entry for it, as its encoding is not the default */
    ln_dtype dtype;    /* of the new tensor if dense, else of its scales and biases */
    int shard[LN_WEIGHT_PARTS]; /* of each part: the shard, and the byte offset in its data area */
    uint64_t at[LN_WEIGHT_PARTS];
    uint64_t bytes;
} ln_convert_item;

typedef struct ln_convert {
    char from[4096]; /* directory of the source model */
    ln_config config;
    ln_spec spec;
    ln_tensors tensors;
    ln_weights weights;
    bool tied_there; /* spec.tied as config.json says, before the tensors decided */
    ln_enc enc;
    ln_convert_item *items; /* [weights.n], in the order of the new model */
    int n_shards;
    uint64_t bytes;
} ln_convert;

/* Number of tensors that store an item: 1, or codes, scales and biases. */
static inline int ln_convert_parts(const ln_convert_item *x) { return x->enc.bits ? LN_WEIGHT_PARTS : 1; }
/* Name, dtype and shape of part k. `name` is filled; the result borrows it. */
ln_tensor_spec ln_convert_part(const ln_convert_item *x, int k, char name[224]);
void ln_convert_shard_name(const ln_convert *c, int shard, char out[64]);

/* copy_config.c: writes everything except the tensors to directory `to`. Errors as in io.h and file.h. */
ln_status ln_convert_config(const ln_convert *c, const char *to,
                            ln_error *err); /* config.json and the index */
ln_status ln_convert_files(const ln_convert *c, const char *to,
                           ln_error *err); /* tokenizer, chat templates and the like, unchanged */

/* quantize.c: implements ln_quantize (linnet.h). A shard ends before the tensor that would make it larger
 * than shard_bytes. */
#define LN_CONVERT_SHARD_BYTES ((uint64_t)5 << 30)
ln_status ln_convert_quantize(const char *model, const char *out, const ln_quantize_options *opt,
                              uint64_t shard_bytes, ln_quantized_fn *fn, void *user, ln_error *err);

#endif
