/* Checkpoints written anew: quantising one into another directory.
 *
 * What comes out is what mlx_lm.convert makes of the same model: tensors by name, dtype, shape and bytes, shards, index and configuration.
 * A checkpoint is streamed: at any time a few MB of it are in memory, whatever its size. */
#ifndef LN_CONVERT_H
#define LN_CONVERT_H

#include "../base/file.h"
#include "../model/spec.h"

/* Everything about a conversion that is decided before a byte is written. */
typedef struct ln_conv_item {
    const ln_weight *w;
    char name[192];        /* of the tensor in the new model, `model.layers.0.mlp.up_proj.weight` */
    size_t path_bytes;     /* of the name, without `.weight` or `.bias` */
    ln_enc enc;            /* bits 0: it stays dense */
    bool entry;            /* its form differs from the model's: it has an entry in the block */
    ln_dtype dtype;        /* of what is written: a dense tensor's, or the scales' */
    int shard[LN_WEIGHT_PARTS];   /* where its parts lie: the file, and from which byte of its data on */
    uint64_t at[LN_WEIGHT_PARTS];
    uint64_t bytes;
} ln_conv_item;

typedef struct ln_conv {
    char from[4096];       /* the model's directory */
    ln_config config;
    ln_spec spec;
    ln_tensors tensors;
    ln_weights weights;
    bool tied_there;       /* as its configuration has it */
    ln_enc enc;
    ln_conv_item *items;   /* [weights.n] in the order of the new model */
    int n_shards;
    uint64_t bytes;
} ln_conv;

/* The parts of an item, as tensors: their number (1 or 3), and number k. */
static inline int ln_conv_parts(const ln_conv_item *x) { return x->enc.bits ? LN_WEIGHT_PARTS : 1; }
/* `name` is filled and borrowed by the result. */
ln_tensor_spec ln_conv_part(const ln_conv_item *x, int k, char name[224]);
void ln_conv_shard_name(const ln_conv *c, int shard, char out[64]);

/* carry.c: everything but tensors, into directory `to`. */
ln_status ln_conv_config(const ln_conv *c, const char *to, ln_error *err); /* config.json and the index */
ln_status ln_conv_files(const ln_conv *c, const char *to, ln_error *err);  /* the tokenizer's files and what belongs to them, as they are */

/* quantise.c: see linnet.h, ln_quantize. A shard ends before the tensor that would take it beyond shard_bytes. */
#define LN_CONV_SHARD_BYTES ((uint64_t)5 << 30)
ln_status ln_conv_quantise(const char *model, const char *out, const ln_quantize_options *opt, uint64_t shard_bytes, ln_quantized_fn *fn, void *user,
                           ln_error *err);

#endif
