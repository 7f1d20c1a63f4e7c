/* Number formats of activations, stored forms of weights, and the products between them.
 *
 * A format says which numbers the elements of a value can be: it is a part of the arithmetic, and the bits of
 * a program are a function of its ops and formats. Where the bytes of a value are is its layout, which is no
 * part of the arithmetic (graph/graph.h). formats.def lists the pairs of a format and a stored form that have
 * a formula; an op over such a pair (linear, linear_gated) has a kernel for each. */
#ifndef LN_FORMATS_H
#define LN_FORMATS_H

#include "block_float.h"
#include "encodings.h"

typedef enum ln_format_kind {
    LN_FORMAT_F32,    /* the device's scalar type: float, or double on the double reference device */
    LN_FORMAT_BF16,   /* numbers that bf16 represents exactly, in f32 or in two bytes: the layout decides */
    LN_FORMAT_BFP,    /* block floating point */
    LN_FORMAT_I8PAIR, /* pairs of int8 digits, one scale for each row */
    LN_FORMAT_COUNT
} ln_format_kind;
typedef struct ln_format {
    uint8_t kind;        /* ln_format_kind */
    uint8_t bits, group; /* of BFP and I8PAIR: the encoding of the weights that they are multiplied with */
} ln_format;
static inline ln_format ln_format_of(ln_format_kind kind, ln_groups weights) {
    return (ln_format){(uint8_t)kind, (uint8_t)weights.bits, (uint8_t)weights.group};
}
static inline ln_groups ln_format_groups(ln_format f) { return (ln_groups){f.bits, f.group}; }
static inline bool ln_format_same(ln_format a, ln_format b) {
    return a.kind == b.kind && a.bits == b.bits && a.group == b.group;
}
/* `f32`, `bf16`, `bfp4g64`: the format as text in `out`, which it returns. */
const char *ln_format_text(ln_format f, char out[16]);

/* The size of a row of `cols` elements in elements of real_bytes bytes, the size of an F32 element: cols, or
 * the number of 4-byte words of a row of BFP or int8 pairs. */
int64_t ln_format_row_elements(ln_format f, int64_t cols);
/* Convert one row to or from f32, in the layout of rows. Rows of F32 and BF16 are f32 here. */
void ln_format_encode(ln_format f, const float *x, int64_t cols, void *row);
void ln_format_decode(ln_format f, const void *row, int64_t cols, float *x);

typedef enum ln_product {
#define LN_PRODUCT(NAME, x, w, kernel, x_unit, w_unit, rest, formula) LN_PRODUCT_##NAME,
#include "formats.def"
#undef LN_PRODUCT
    LN_PRODUCT_COUNT
} ln_product;
typedef struct ln_product_info {
    const char *name, *formula;
    ln_format_kind x;
    ln_stored w;
} ln_product_info;
extern const ln_product_info ln_products[LN_PRODUCT_COUNT];
/* The product of x in a format with a weight in a stored form; LN_PRODUCT_COUNT: there is none. */
ln_product ln_product_of(ln_format x, ln_stored w);
/* The largest |y - exact y| / (C max|x| max|w|) of a product of C columns without a bias, as the reference
 * kernel in float computes it: exact y is the sum of the products of x before its conversion and of w, and
 * max|w| is the largest magnitude that a code of one of the output's groups represents. `e`: of an affine
 * weight. */
double ln_product_bound(ln_product p, ln_groups e, int64_t C);

#endif
