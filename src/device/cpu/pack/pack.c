/* Packing: a transpose of 16 rows into lanes, one cache line of each row at a time, so that all 16 lines
 * that are read and all that are written are in L1. The order is pack.h's. */
#include "pack.h"

#include "../../../quant/block_float.h"

/* Four 32-bit elements of each of four rows, transposed: element i of row l goes to lane l of line i. */
typedef uint32_t words4 __attribute__((vector_size(16)));
static inline void transpose4x4(uint8_t *out, const uint8_t *rows, int64_t stride) {
    words4 r[4], lo[2], hi[2];
    for (int l = 0; l < 4; l++) memcpy(&r[l], rows + l * stride, 16);
    for (int l = 0; l < 2; l++) {
        lo[l] = __builtin_shufflevector(r[2 * l], r[2 * l + 1], 0, 4, 1, 5);
        hi[l] = __builtin_shufflevector(r[2 * l], r[2 * l + 1], 2, 6, 3, 7);
    }
    r[0] = __builtin_shufflevector(lo[0], lo[1], 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(lo[0], lo[1], 2, 3, 6, 7);
    r[2] = __builtin_shufflevector(hi[0], hi[1], 0, 1, 4, 5);
    r[3] = __builtin_shufflevector(hi[0], hi[1], 2, 3, 6, 7);
    for (int i = 0; i < 4; i++) memcpy(out + 64 * i, &r[i], 16);
}

/* n elements of `size` bytes from each of n_rows rows, `stride` bytes apart, to out[n][16]; missing rows
 * become zero. */
static void transpose(uint8_t *out, const uint8_t *rows, int64_t stride, int64_t n_rows, int64_t n,
                      int size) {
    int64_t i = 0;
    for (; size == 4 && n_rows == LN_PACK_NR && i + 4 <= n; i += 4)
        for (int64_t l = 0; l < LN_PACK_NR; l += 4)
            transpose4x4(out + 64 * i + 4 * l, rows + l * stride + 4 * i, stride);
    if (size == 4)
        for (; i < n; i++)
            for (int64_t l = 0; l < LN_PACK_NR; l++) {
                uint32_t u = 0;
                if (l < n_rows) memcpy(&u, rows + l * stride + 4 * i, 4);
                memcpy(out + 64 * i + 4 * l, &u, 4);
            }
    else
        for (; i < n; i++)
            for (int64_t l = 0; l < LN_PACK_NR; l++) {
                uint16_t u = 0;
                if (l < n_rows) memcpy(&u, rows + l * stride + 2 * i, 2);
                memcpy(out + 32 * i + 2 * l, &u, 2);
            }
}

/* The scales, or the biases, of one group of n_rows rows, in the dtype of the packed block: elements first,
 * first + groups, ... of a host's array of dtype t. */
static void pack_units(uint8_t *out, const uint8_t *units, ln_dtype t, ln_dtype unit, int64_t first,
                       int64_t groups, int64_t n_rows) {
    const int64_t size = ln_dtype_bytes(t);
    if (t == unit) transpose(out, units + first * size, groups * size, n_rows, 1, (int)size);
    else
        for (int64_t l = 0; l < LN_PACK_NR; l++)
            ln_num_store(out, unit, l, l < n_rows ? ln_num_load(units, t, first + l * groups) : 0);
}

void ln_pack_q(void *out, const ln_affine *w, int64_t D, int64_t C, int64_t lo, int64_t hi) {
    const ln_dtype unit = w->dtype == w->offset ? w->dtype : LN_F32;
    const int64_t words = w->code.group * w->code.bits / 32, groups = C / w->code.group,
                  row = words * 4 * groups;
    for (int64_t b = lo; b < hi; b++) {
        uint8_t *to = (uint8_t *)out + b * ln_pack_block_bytes_q(w->code, unit, C);
        const int64_t d = b * LN_PACK_NR, n_rows = LN_MIN((int64_t)LN_PACK_NR, D - d);
        for (int64_t g = 0; g < groups; g++, to += ln_pack_group_bytes_q(w->code, unit)) {
            uint8_t *scales = to + 64 * words, *biases = scales + LN_PACK_NR * ln_dtype_bytes(unit);
            transpose(to, w->codes + d * row + g * words * 4, row, n_rows, words, 4);
            pack_units(scales, w->scales, w->dtype, unit, d * groups + g, groups, n_rows);
            pack_units(biases, w->biases, w->offset, unit, d * groups + g, groups, n_rows);
        }
    }
}

void ln_pack_scales(void *out, const void *packed, ln_groups e, ln_dtype t, int64_t C, int64_t lo,
                    int64_t hi) {
    const int64_t group = ln_pack_group_bytes_q(e, t), bytes = ln_pack_scales_bytes_q(t),
                  groups = C / e.group;
    for (int64_t i = lo * groups; i < hi * groups; i++)
        memcpy((uint8_t *)out + i * bytes, (const uint8_t *)packed + (i + 1) * group - bytes, (size_t)bytes);
}

void ln_pack_output_scales(float *out, const ln_affine *w, int64_t D, int64_t C, int64_t lo, int64_t hi) {
    const int64_t groups = C / w->code.group, scales = groups * ln_dtype_bytes(w->dtype),
                  biases = groups * ln_dtype_bytes(w->offset);
    memset(out + lo * LN_PACK_OUTPUT_SCALES, 0, (size_t)((hi - lo) * LN_PACK_OUTPUT_SCALES) * sizeof *out);
    for (int64_t d = lo * LN_PACK_NR; d < LN_MIN(hi * LN_PACK_NR, D); d++) {
        float *to = out + d / LN_PACK_NR * LN_PACK_OUTPUT_SCALES + d % LN_PACK_NR;
        ln_i8pair_output_scale(w->scales + d * scales, w->biases + d * biases, w->dtype, w->offset, groups,
                               w->code.bits, to, to + LN_PACK_NR);
    }
}

void ln_pack(void *out, const void *w, ln_dtype t, int64_t D, int64_t C, int64_t lo, int64_t hi) {
    const int64_t stride = C * ln_dtype_bytes(t), unit = t == LN_F16 ? 2 : 4, units = stride / unit,
                  line = 64 / unit;
    for (int64_t b = lo; b < hi; b++) {
        const uint8_t *rows = (const uint8_t *)w + b * LN_PACK_NR * stride;
        uint8_t *to = (uint8_t *)out + b * ln_pack_block_bytes(t, C);
        int64_t n_rows = LN_MIN((int64_t)LN_PACK_NR, D - b * LN_PACK_NR);
        for (int64_t i = 0; i < units; i += line)
            transpose(to + i * LN_PACK_NR * unit, rows + i * unit, stride, n_rows, LN_MIN(line, units - i),
                      (int)unit);
        if (t == LN_BF16 && C % 2) /* half a pair */
            for (int64_t l = 0; l < LN_PACK_NR; l++) {
                uint32_t u = 0;
                if (l < n_rows) memcpy(&u, rows + l * stride + 4 * units, 2);
                memcpy(to + 64 * units + 4 * l, &u, 4);
            }
        int64_t used = t == LN_BF16 ? 64 * ((C + 1) / 2) : ln_pack_block_bytes(t, C);
        memset(to + used, 0, (size_t)(ln_pack_block_bytes(t, C) - used));
    }
}
