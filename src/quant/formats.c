/* Number formats as rows of bytes, and the table of products (formats.h). */
#include "formats.h"

#include <stdio.h>

const ln_product_info ln_products[LN_PRODUCT_COUNT] = {
#define LN_PRODUCT(NAME, x, w, kernel, x_unit, w_unit, rest, formula) \
    {#NAME, formula, LN_FORMAT_##x, LN_STORED_##w},
#include "formats.def"
#undef LN_PRODUCT
};

const char *ln_format_text(ln_format f, char out[16]) {
    static const char *const names[LN_FORMAT_COUNT] = {"f32", "bf16", "bfp", "i8pair"};
    if (f.kind < LN_FORMAT_BFP) (void)snprintf(out, 16, "%s", names[f.kind]);
    else (void)snprintf(out, 16, "%s%dg%d", names[f.kind], f.bits, f.group);
    return out;
}

int64_t ln_format_row_elements(ln_format f, int64_t cols) {
    return f.kind == LN_FORMAT_BFP      ? ln_bfp_words(cols, f.group)
           : f.kind == LN_FORMAT_I8PAIR ? ln_i8pair_words(cols)
                                        : cols;
}

void ln_format_encode(ln_format f, const float *x, int64_t cols, void *row) {
    if (f.kind == LN_FORMAT_BFP) ln_bfp_encode(x, cols, ln_format_groups(f), row);
    else if (f.kind == LN_FORMAT_I8PAIR) ln_i8pair_encode(x, cols, f.bits, row);
    else
        for (int64_t i = 0; i < cols; i++)
            ((float *)row)[i] = f.kind == LN_FORMAT_BF16 ? ln_bf16_f32(ln_f32_bf16(x[i])) : x[i];
}

void ln_format_decode(ln_format f, const void *row, int64_t cols, float *x) {
    if (f.kind == LN_FORMAT_BFP) ln_bfp_decode(row, cols, ln_format_groups(f), x);
    else if (f.kind == LN_FORMAT_I8PAIR) ln_i8pair_decode(row, cols, f.bits, x);
    else memcpy(x, row, (size_t)cols * sizeof *x);
}

ln_product ln_product_of(ln_format x, ln_stored w) {
    int p = 0;
    while (p < LN_PRODUCT_COUNT && (ln_products[p].x != x.kind || ln_products[p].w != w)) p++;
    return (ln_product)p;
}

/* The largest error of W, in units of d (ln_i8pair_weight). Radix 30: m is off by half a unit, which counts
 * as often as the distance of a code from the middle one, and c by half a unit. Radix 256: m by half a unit
 * for half of the codes' range, c and the rounding of their sum by half a unit each. */
static double weight_error(int bits) { return bits <= 4 ? 0.5 * ((double)(1 << bits) - 1) / 2 + 0.5 : 1.5; }
/* The largest |l (L - 128)|, which the formula leaves out, in units of u d. */
static double low_product(int bits) { return bits <= 4 ? 15.0 * 128 : 128.0 * 128; }

/* Operands in their units, products of both errors, what the formula leaves out, and the roundings of sums:
 * one for each column of a chain, of which each is relative to a partial sum of at most C products. The
 * factored formulas (those of affine groups but BF16_AFFINE) add s sum(q x) and b sum(x), whose terms
 * together are at most three times as large as those of (s q + b) x: |s q| is at most |b| + |s q + b|. */
double ln_product_bound(ln_product p, ln_groups e, int64_t C) {
    const int bits = e.bits;
    double x_unit = 0, w_unit = 0, rest = 0;
    switch (p) {
#define LN_PRODUCT(NAME, x, w, kernel, x_error, w_error, left_out, formula) \
    case LN_PRODUCT_##NAME:                                                 \
        x_unit = (x_error), w_unit = (w_error), rest = (left_out);          \
        break;
#include "formats.def"
#undef LN_PRODUCT
    default: break;
    }
    const bool factored = ln_products[p].w == LN_STORED_AFFINE && p != LN_PRODUCT_BF16_AFFINE;
    const double sums = factored ? 3.0 * (double)(C + 8) : (double)C;
    return x_unit + w_unit + x_unit * w_unit + rest + sums * 0x1p-24 * (1 + x_unit) * (1 + w_unit);
}
