/* Encodings: how a weight is stored (encodings.def). Dense elements, or codes with scales and offsets.
 *
 * An encoding is a fact of a weight that its source decides (checkpoint/) and every module passes on. Which
 * products exist for a kind says formats.def. Only quant/ and checkpoint/ look at the bits of an encoding;
 * the others ask for its kind, or for the groups that a format of activations depends on. */
#ifndef LN_ENCODINGS_H
#define LN_ENCODINGS_H

#include "affine.h"

typedef enum ln_stored {
#define LN_ENCODING(KIND, name, row_bytes, scales, offsets, decode) LN_STORED_##KIND,
#include "encodings.def"
#undef LN_ENCODING
    LN_STORED_COUNT
} ln_stored;

typedef struct ln_encoding {
    uint8_t kind;   /* ln_stored */
    uint8_t bits;   /* of a code; 0: the elements are numbers, or bytes in fp8 */
    uint8_t scale;  /* ln_dtype of the scales; without codes, of the elements */
    uint8_t offset; /* ln_dtype of the offsets: the biases of affine groups, zero points */
    uint8_t shared; /* of affine groups: in so many in sequence the scales are multiples, by integers of 8
                     * bits, of one number, and the offsets of another; 0: nothing is known */
    int16_t group;  /* columns that share a scale; of coded rows 0: all columns of a row */
} ln_encoding;

static inline ln_encoding ln_encoding_dense(ln_dtype dtype) {
    return (ln_encoding){.kind = dtype == LN_BF16 ? LN_STORED_BF16 : LN_STORED_DENSE,
                         .scale = (uint8_t)dtype};
}
static inline ln_encoding ln_encoding_affine(ln_groups code, ln_dtype scale, ln_dtype offset) {
    return (ln_encoding){.kind = LN_STORED_AFFINE,
                         .bits = (uint8_t)code.bits,
                         .scale = (uint8_t)scale,
                         .offset = (uint8_t)offset,
                         .group = (int16_t)code.group};
}
/* Affine groups whose scales and biases have one dtype, or a dense weight of it where bits is 0. */
static inline ln_encoding ln_encoding_of(ln_dtype dtype, ln_groups code) {
    return code.bits ? ln_encoding_affine(code, dtype, dtype) : ln_encoding_dense(dtype);
}
/* Coded rows (coded.h), in groups of `group` columns. */
static inline ln_encoding ln_encoding_floats(ln_stored kind, ln_dtype scale, int group) {
    return (ln_encoding){.kind = (uint8_t)kind, .scale = (uint8_t)scale, .group = (int16_t)group};
}
static inline ln_encoding ln_encoding_zeroed(int bits, ln_dtype scale, int group) {
    return (ln_encoding){.kind = LN_STORED_ZEROED,
                         .bits = (uint8_t)bits,
                         .scale = (uint8_t)scale,
                         .offset = LN_F16, /* zero points are integers up to 256 */
                         .group = (int16_t)group};
}
static inline bool ln_encoding_is_dense(ln_encoding e) {
    return e.kind == LN_STORED_DENSE || e.kind == LN_STORED_BF16;
}
static inline bool ln_encoding_is_coded(ln_encoding e) { return e.kind >= LN_STORED_E4M3; }
static inline bool ln_encoding_is_fp8(ln_encoding e) {
    return e.kind == LN_STORED_E4M3 || e.kind == LN_STORED_E5M2;
}
/* Columns of a group and bits of a code of a coded weight. */
static inline int64_t ln_coded_width(ln_encoding e, int64_t cols) { return e.group ? e.group : cols; }
static inline int ln_coded_bits(ln_encoding e) {
    return e.kind == LN_STORED_ZEROED ? e.bits : e.kind == LN_STORED_E2M1 ? 4 : 8;
}
/* Groups of a row of a coded weight. */
static inline int64_t ln_coded_units(ln_encoding e, int64_t cols) {
    return e.group ? (cols + e.group - 1) / e.group : 1;
}
/* The groups of affine groups; {0, 0}: another encoding. */
static inline ln_groups ln_encoding_groups(ln_encoding e) {
    return e.kind == LN_STORED_AFFINE ? (ln_groups){e.bits, e.group} : (ln_groups){0, 0};
}
static inline bool ln_encoding_same(ln_encoding a, ln_encoding b) {
    return a.kind == b.kind && a.bits == b.bits && a.scale == b.scale && a.offset == b.offset &&
           a.group == b.group && a.shared == b.shared;
}
/* Whether rows of so many columns are whole groups, which affine groups must be. */
static inline bool ln_encoding_fits(ln_encoding e, int64_t cols) {
    return e.kind != LN_STORED_AFFINE || cols % e.group == 0;
}
/* The dtype in which one block of memory stores scales next to offsets: that of both, or f32, which
 * represents either exactly. Of a dense weight, the dtype of its elements. */
static inline ln_dtype ln_encoding_unit_dtype(ln_encoding e) {
    return e.kind == LN_STORED_AFFINE && e.scale != e.offset ? LN_F32 : (ln_dtype)e.scale;
}

/* Bytes of a row of `cols` columns: of its elements or codes; of its scales; of its offsets. */
typedef struct ln_row_bytes {
    int64_t data, scales, offsets;
} ln_row_bytes;
ln_row_bytes ln_encoding_row(ln_encoding e, int64_t cols);
/* `dense`, `affine`: the name of a kind. Static. */
const char *ln_stored_name(int kind);
/* Writes the `cols` elements of row r as f32 to `out`, of affine groups unrounded: s q + b by one fma. data,
 * scales, offsets: of row 0. */
typedef struct ln_encoded_rows {
    const void *data, *scales, *offsets;
    const uint16_t
        *columns; /* of zero points: the group of each column; NULL: the groups follow each other */
} ln_encoded_rows;
void ln_encoding_decode(ln_encoding e, const ln_encoded_rows *w, int64_t r, int64_t cols, float *out);

#endif
