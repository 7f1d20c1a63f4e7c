/* Packing: a transpose of 16 rows into lanes, one cache line of each row at a time, so that all 16 lines
 * that are read and all that are written are in L1. The order is pack.h's. */
#include "pack.h"

#include "../../../quant/block_float.h"

#include <math.h>

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

/* The rows of a block: n_rows from `row` on, of `groups` groups each. */
typedef struct pack_rows {
    const ln_affine *w;
    ln_dtype unit; /* of scales and biases that have no factors */
    int64_t row, n_rows, groups;
} pack_rows;
static pack_rows rows_of_block(const ln_affine *w, int64_t D, int64_t C, int64_t b) {
    return (pack_rows){.w = w,
                       .unit = w->dtype == w->offset ? w->dtype : LN_F32,
                       .row = b * LN_PACK_NR,
                       .n_rows = LN_MIN((int64_t)LN_PACK_NR, D - b * LN_PACK_NR),
                       .groups = C / w->code.group};
}

/* The scales (which: 0) or the biases (1) of group g, in f32; 0 for rows that are missing. */
static void load_numbers(const pack_rows *p, int which, int64_t g, float to[LN_PACK_NR]) {
    const uint8_t *numbers = which ? p->w->biases : p->w->scales;
    const ln_dtype t = which ? p->w->offset : p->w->dtype;
    for (int64_t l = 0; l < LN_PACK_NR; l++)
        to[l] = l < p->n_rows ? ln_num_load(numbers, t, (p->row + l) * p->groups + g) : 0;
}

/* The same as they are packed without factors. */
static void pack_numbers(uint8_t *out, const pack_rows *p, int which, int64_t g) {
    const uint8_t *numbers = which ? p->w->biases : p->w->scales;
    const ln_dtype t = which ? p->w->offset : p->w->dtype;
    const int64_t size = ln_dtype_bytes(t);
    float some[LN_PACK_NR];
    if (t == p->unit) {
        transpose(out, numbers + (p->row * p->groups + g) * size, p->groups * size, p->n_rows, 1, (int)size);
        return;
    }
    load_numbers(p, which, g, some);
    for (int64_t l = 0; l < LN_PACK_NR; l++) ln_num_store(out, p->unit, l, some[l]);
}

/* ---- factors ---- */

enum { MOST_SHARED = 16 };

/* Numbers of 16 outputs, group by group, and the same in 8 bits. */
typedef float numbers16[LN_PACK_NR];
typedef int8_t bytes16[LN_PACK_NR];

/* Divides n numbers of each output by its factor, into integers. Returns the outputs of which one is no
 * multiple, or one too large, as a bit each. */
static uint32_t divide(const numbers16 *v, int n, const float factor[LN_PACK_NR], bytes16 *q) {
    const float whole = 12582912; /* its last place is 1 */
    float by[LN_PACK_NR];
    int32_t bad[LN_PACK_NR] = {0};
    uint32_t bits = 0;
    for (int l = 0; l < LN_PACK_NR; l++) by[l] = factor[l] != 0 ? 1 / factor[l] : 0;
    for (int i = 0; i < n; i++)
        for (int l = 0; l < LN_PACK_NR; l++) {
            const float k = (v[i][l] * by[l] + whole) - whole, in = k >= -128 && k <= 127 ? k : 0;
            q[i][l] = (int8_t)(int32_t)in;
            bad[l] |= in * factor[l] != v[i][l];
        }
    for (int l = 0; l < LN_PACK_NR; l++) bits |= (uint32_t)bad[l] << l;
    return bits;
}

/* The greatest common divisor of n numbers of output l, as integers times the last place of all. */
static float common_factor(const numbers16 *v, int l, int n) {
    int last = 1000;
    uint64_t d = 0;
    for (int i = 0; i < n; i++) {
        int e;
        const uint32_t m = (uint32_t)ldexpf(frexpf(fabsf(v[i][l]), &e), 24);
        if (m) last = LN_MIN(last, e - 24 + __builtin_ctz(m));
    }
    for (int i = 0; i < n; i++) {
        const double k = ldexp(fabs((double)v[i][l]), -last);
        uint64_t a = k < 0x1p60 ? (uint64_t)k : 1;
        while (a) {
            const uint64_t rest = d % a;
            d = a, a = rest;
        }
    }
    return ldexpf((float)d, last);
}

/* Finds factors of n numbers of each output, and the integers. The programs that write such files make the
 * largest number 63, 128, 32 or 15 times the factor. A factor may be negative, since -128 is an integer of 8
 * bits and 128 is not. */
static bool find_factors(const numbers16 *v, int n, float factor[LN_PACK_NR], bytes16 *q) {
    static const float largest[] = {63, 128, 32, 15};
    float most[LN_PACK_NR] = {0}, some[LN_PACK_NR];
    bytes16 of[MOST_SHARED];
    uint32_t left = (1u << LN_PACK_NR) - 1;
    for (int i = 0; i < n; i++)
        for (int l = 0; l < LN_PACK_NR; l++) most[l] = fabsf(v[i][l]) > fabsf(most[l]) ? v[i][l] : most[l];
    for (size_t k = 0; k < LN_COUNT(largest) + 2 && left; k++) {
        for (int l = 0; l < LN_PACK_NR; l++)
            if (k < LN_COUNT(largest)) some[l] = most[l] / -largest[k];
            else if (k > LN_COUNT(largest)) some[l] = -some[l];
            else some[l] = left >> l & 1 ? common_factor(v, l, n) : 0;
        const uint32_t now = left & ~divide(v, n, some, of);
        for (int l = 0; l < LN_PACK_NR; l++)
            if (now >> l & 1) {
                factor[l] = some[l];
                for (int i = 0; i < n; i++) q[i][l] = of[i][l];
            }
        left &= ~now;
    }
    return left == 0;
}

/* Stores scales or biases of the groups from g on that share factors: 8 bits each to units, which are `pitch`
 * bytes apart, and the factors. */
static bool pack_shared(uint8_t *units, int64_t pitch, uint8_t *factors, const pack_rows *p, int which,
                        int64_t g) {
    const int n = p->w->shared;
    numbers16 v[MOST_SHARED];
    bytes16 q[MOST_SHARED];
    float factor[LN_PACK_NR];
    bool ok = n <= MOST_SHARED;
    for (int i = 0; i < n && ok; i++) load_numbers(p, which, g + i, v[i]);
    ok = ok && find_factors((const numbers16 *)v, n, factor, q);
    for (int i = 0; i < n && ok; i++) memcpy(units + i * pitch + which * LN_PACK_NR, q[i], LN_PACK_NR);
    if (ok) memcpy(factors + which * (int64_t)sizeof factor, factor, sizeof factor);
    return ok;
}

/* Stores scales and biases of all groups of a block, `pitch` bytes apart, and its factors. */
static bool pack_block_units(uint8_t *units, int64_t pitch, uint8_t *factors, const pack_rows *p) {
    const int shared = p->w->shared;
    bool ok = true;
    for (int which = 0; which < 2; which++)
        for (int64_t g = 0; g < p->groups && ok; g += shared ? shared : 1)
            if (shared)
                ok = pack_shared(units + g * pitch, pitch, factors + g / shared * LN_PACK_FACTOR_BYTES, p,
                                 which, g);
            else pack_numbers(units + g * pitch + which * LN_PACK_NR * ln_dtype_bytes(p->unit), p, which, g);
    return ok;
}

static ln_pack_units units_of(const pack_rows *p) { return (ln_pack_units){p->unit, p->w->shared}; }

void ln_pack_codes(void *out, const ln_affine *w, int64_t gap, int64_t D, int64_t C, int64_t lo, int64_t hi) {
    const int64_t words = w->code.group * w->code.bits / 32, groups = C / w->code.group,
                  row = words * 4 * groups;
    uint8_t *to = out;
    for (int64_t b = lo; b < hi; b++) {
        const int64_t d = b * LN_PACK_NR;
        for (int64_t g = 0; g < groups; g++, to += 64 * words + gap)
            transpose(to, w->codes + d * row + g * words * 4, row, LN_MIN((int64_t)LN_PACK_NR, D - d), words,
                      4);
    }
}

bool ln_pack_q(void *out, const ln_affine *w, int64_t D, int64_t C, int64_t lo, int64_t hi) {
    bool ok = true;
    for (int64_t b = lo; b < hi && ok; b++) {
        const pack_rows p = rows_of_block(w, D, C, b);
        const ln_pack_units u = units_of(&p);
        const int64_t group = ln_pack_group_bytes_q(w->code, u);
        uint8_t *to = (uint8_t *)out + b * ln_pack_block_bytes_q(w->code, u, C);
        ln_pack_codes(to, w, ln_pack_units_bytes(u), D, C, b, b + 1);
        ok = pack_block_units(to + ln_pack_codes_bytes(w->code), group, to + p.groups * group, &p);
    }
    return ok;
}

void ln_pack_numbers(float *out, const ln_affine *w, int64_t D, int64_t C, int64_t b, int64_t g, int64_t n) {
    const pack_rows p = rows_of_block(w, D, C, b);
    for (int64_t i = 0; i < 2 * n; i++) load_numbers(&p, (int)(i % 2), g + i / 2, out + i * LN_PACK_NR);
}

bool ln_pack_scales(void *out, const ln_affine *w, int64_t D, int64_t C, int64_t lo, int64_t hi) {
    bool ok = true;
    for (int64_t b = lo; b < hi && ok; b++) {
        const pack_rows p = rows_of_block(w, D, C, b);
        const ln_pack_units u = units_of(&p);
        const int64_t bytes = ln_pack_units_bytes(u);
        uint8_t *to = (uint8_t *)out + b * (p.groups * bytes + ln_pack_factors_bytes(u, p.groups));
        ok = pack_block_units(to, bytes, to + p.groups * bytes, &p);
    }
    return ok;
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
