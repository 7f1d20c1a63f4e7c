/* How the types of GGUF's tensors are kept in memory: one row each (gguf_blocks.c), with the function that
 * rewrites a row of blocks in the encoding. The numbers stay those of `dequantize` in gguf's Python package,
 * to the bit, except for the sign of a zero. */
#ifndef LN_GGUF_BLOCKS_H
#define LN_GGUF_BLOCKS_H

#include "../base/gguf.h"
#include "../quant/encodings.h"

typedef struct ln_gguf_form {
    ln_ggml_type type;
    ln_encoding enc;
    ln_groups code; /* what ln_info says of a model in this type */
    /* Writes one row of `cols` columns, a multiple of the type's block. Returns false if a scale is NaN,
     * infinite, or too large for the encoding. */
    bool (*row)(const uint8_t *blocks, int64_t cols, uint8_t *codes, uint8_t *scales, uint8_t *offsets);
} ln_gguf_form;
/* gguf_super_blocks.c: the rows of types with two levels of scales, and with tables of values. */
enum { LN_GGUF_SUPER_FORMS = 8 };
extern const ln_gguf_form ln_gguf_super_forms[LN_GGUF_SUPER_FORMS];
/* Returns the row of a type; NULL: linnet does not read it. */
const ln_gguf_form *ln_gguf_form_of(uint32_t type);
/* Writes the names of the types that are read, F32 first. */
void ln_gguf_types_text(char out[160]);

#endif
