/* The quantization block of config.json (quant_config.c). */
#ifndef LN_QUANT_CONFIG_H
#define LN_QUANT_CONFIG_H

#include "../io/io.h"
#include "../quant/encodings.h"

/* The quantization block of config.json: `quantization`, else `quantization_config`, of the top-level object
 * or of text_config. Borrows the configuration. */
/* The modes of MLX's block: affine groups, or floats of 4 or 8 bits with scales of one byte (mlx_float.c). */
typedef enum ln_mlx_mode {
    LN_MLX_AFFINE,
    LN_MLX_MXFP4,
    LN_MLX_MXFP8,
    LN_MLX_NVFP4,
    LN_MLX_MODES
} ln_mlx_mode;
extern const char *const ln_mlx_mode_names[LN_MLX_MODES];
extern const ln_groups ln_mlx_mode_groups[LN_MLX_MODES]; /* of affine: MLX's default */

typedef struct ln_scheme ln_scheme;
typedef struct ln_quant {
    /* Of quantised tensors without an entry of their own. Bits are 0 if the model is dense or in fp8, the
     * group is 0 if each row has one scale. */
    ln_groups code;
    ln_mlx_mode mode; /* of MLX's block */
    const json_t *block;
    const char *where;       /* name of the block, for messages */
    ln_config from;          /* the file that has it; its JSON is borrowed, or `own` */
    json_t *own;             /* quantize_config.json or quant_config.json, if that has the block */
    const ln_scheme *scheme; /* the format that quant_method names; NULL: dense, or MLX's */
    /* Settings of schemes: rows and columns of a block that has one scale, whether zero points are stored
     * minus 1, whether modules may have other bits than the block says. */
    int64_t block_rows, block_cols;
    bool zeros_less_one, by_shapes;
} ln_quant;
/* Reads the block; a missing block is a dense model. Without one in config.json, that of quantize_config.json
 * (AutoGPTQ) or quant_config.json (AutoAWQ). LN_EUNSUPPORTED: a quant_method, mode, width or group size that
 * linnet does not read. *out is released with ln_quant_close. */
ln_status ln_quant_open(ln_quant *out, const ln_config *c, ln_error *err);
void ln_quant_close(ln_quant *q);
/* Returns the quant_method, static: `mlx` for MLX's block, NULL if the model is dense. */
const char *ln_quant_method(const ln_quant *q);
/* Rejects tensors that a tool has packed in a layout of its own (GPTQ, AWQ, compressed-tensors, fp8 with
 * scales) although config.json has no block that says so: LN_EUNSUPPORTED, with the tensor and the tool. */
ln_status ln_quant_check_names(const ln_quant *q, const ln_tensors *t, ln_error *err);
/* The block's entry of one module. */
typedef struct ln_quant_entry {
    bool found; /* the block has an entry for the module */
    bool names_bits, names_group;
    ln_groups code; /* what the entry does not name is MLX's default; bits 0: no entry, or a dense module */
    ln_mlx_mode mode;
} ln_quant_entry;
/* `path`: the module's path, for example `model.layers.3.mlp.down_proj`. */
ln_status ln_quant_of(const ln_quant *q, const char *path, ln_quant_entry *out, ln_error *err);

#endif
