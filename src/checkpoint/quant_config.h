/* The quantization block of config.json (quant_config.c). */
#ifndef LN_QUANT_CONFIG_H
#define LN_QUANT_CONFIG_H

#include "../io/io.h"
#include "../quant/encodings.h"

/* The quantization block of config.json: `quantization`, else `quantization_config`, of the top-level object
 * or of text_config. Borrows the configuration. */
typedef struct ln_quant {
    ln_groups code; /* of quantised tensors without an entry of their own; bits 0: the model is dense */
    const json_t *block;
    const char *where; /* name of the block, for messages */
    const ln_config *config;
} ln_quant;
/* Reads the block; a missing block is a dense model. LN_EUNSUPPORTED: a quant_method, mode, width or group
 * size that linnet does not read. */
ln_status ln_quant_open(ln_quant *out, const ln_config *c, ln_error *err);
/* Rejects tensors that a tool has packed in a layout of its own (GPTQ, AWQ, compressed-tensors, fp8 with
 * scales) although config.json has no block that says so: LN_EUNSUPPORTED, with the tensor and the tool. */
ln_status ln_quant_check_names(const ln_quant *q, const ln_tensors *t, ln_error *err);
/* The block's entry of one module. */
typedef struct ln_quant_entry {
    bool found; /* the block has an entry for the module */
    bool names_bits, names_group;
    ln_groups code; /* what the entry does not name is MLX's default; bits 0: no entry, or a dense module */
} ln_quant_entry;
/* `path`: the module's path, for example `model.layers.3.mlp.down_proj`. */
ln_status ln_quant_of(const ln_quant *q, const char *path, ln_quant_entry *out, ln_error *err);

#endif
