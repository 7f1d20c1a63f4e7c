/* Affine group quantisation by MLX's rules, so that both programs write the same bytes.
 *
 * The element of a group with the largest magnitude (`edge`) becomes the bias and is represented exactly. The
 * scale is adjusted so that the edge is an integer multiple of it, which represents 0 exactly too, where that
 * is possible. Values are rounded to nearest even by adding and subtracting 1.5 * 2^23, which is exact for
 * the values that occur: |edge / scale| <= 2^bits, and codes around 2^bits. */
#include "affine.h"

static inline float round_even(float x) {
    if (!(x > -4194304.0f && x < 4194304.0f)) return x; /* an integer already */
    return x + 12582912.0f - 12582912.0f;
}

static inline float rounded(float x, ln_dtype t) {
    return t == LN_F32 ? x : t == LN_BF16 ? ln_bf16_f32(ln_f32_bf16(x)) : ln_f16_f32(ln_f32_f16(x));
}

/* Maps a float to an integer with the same order, including denormals, independent of the thread's DAZ mode;
 * of_ordered is the inverse. */
static inline int32_t ordered(float x) {
    int32_t k = (int32_t)ln_f32_bits(x);
    return k ^ (k >> 31 & 0x7fffffff);
}
static inline float of_ordered(int32_t k) { return ln_bits_f32((uint32_t)(k ^ (k >> 31 & 0x7fffffff))); }

/* Quantises one group: codes q[n], scale and bias; `most` is the largest code. */
static inline void quantise_group(const float *x, int n, float most, uint8_t *q, float *scale, float *bias) {
    int32_t klo = INT32_MAX, khi = INT32_MIN;
    for (int i = 0; i < n; i++) {
        int32_t k = ordered(x[i]);
        klo = k < klo ? k : klo;
        khi = k > khi ? k : khi;
    }
    const float lo = of_ordered(klo), hi = of_ordered(khi);
    const bool low = (ln_f32_bits(lo) & 0x7fffffffu) > (ln_f32_bits(hi) & 0x7fffffffu);
    float s = (hi - lo) / most, b = 0, edge = low ? lo : hi;
    s = s > 1e-7f ? s : 1e-7f;
    s = low ? s : -s;
    float q0 = round_even(edge / s);
    if (q0 != 0) s = edge / q0, b = edge;
    for (int i = 0; i < n; i++) {
        float v = round_even((x[i] - b) / s);
        v = v > 0 ? v : 0;
        v = v < most ? v : most;
        q[i] = (uint8_t)(int32_t)v;
    }
    *scale = s;
    *bias = b;
}

/* Writes n codes, a multiple of 32, as a bit stream. */
static inline void pack(const uint8_t *q, int n, int bits, uint8_t *out) {
    uint64_t acc = 0;
    for (int i = 0, have = 0; i < n; i++) {
        acc |= (uint64_t)q[i] << have;
        have += bits;
        for (; have >= 8; have -= 8, acc >>= 8) *out++ = (uint8_t)acc;
    }
}

void ln_affine_quantize(const float *w, int64_t cols, ln_groups e, ln_dtype dtype, uint8_t *codes,
                        uint8_t *scales, uint8_t *biases) {
    const float most = (float)((1 << e.bits) - 1);
    uint8_t q[128];
    for (int64_t g = 0; g < cols / e.group; g++) {
        float s, b;
        quantise_group(w + g * e.group, e.group, most, q, &s, &b);
        pack(q, e.group, e.bits, codes + ln_affine_row_bytes(e, g * e.group));
        ln_num_store(scales, dtype, g, s);
        ln_num_store(biases, dtype, g, b);
    }
}

/* Adds the quantisation error of one row to *sum. */
static void measure(const float *w, int64_t cols, ln_groups e, ln_dtype dtype, const uint8_t *codes,
                    const uint8_t *scales, const uint8_t *biases, ln_affine_error *sum) {
    for (int64_t i = 0; i < cols; i++) {
        double s = (double)ln_num_load(scales, dtype, i / e.group),
               b = (double)ln_num_load(biases, dtype, i / e.group);
        double d = s * ln_affine_code(codes, e.bits, i) + b - (double)w[i];
        sum->lost2 += d * d;
        sum->all2 += (double)w[i] * (double)w[i];
        sum->most = LN_MAX(sum->most, d < 0 ? -d : d);
    }
}

bool ln_affine_rows(const ln_affine_job *j, int64_t from, int64_t to, float *row, ln_affine_error *sum) {
    const int64_t size = ln_dtype_bytes(j->stored), codes = ln_affine_row_bytes(j->code, j->cols);
    const int64_t numbers = j->cols / j->code.group * ln_dtype_bytes(j->dtype);
    for (int64_t r = from; r < to; r++) {
        const uint8_t *w = j->w + r * j->cols * size;
        uint8_t *q = j->codes + (r - j->row0) * codes, *s = j->scales + (r - j->row0) * numbers,
                *b = j->biases + (r - j->row0) * numbers;
        uint32_t beyond = 0;
        for (int64_t i = 0; i < j->cols; i++) {
            row[i] = ln_num_load(w, j->stored, i);
            if (j->dtype != j->stored) row[i] = rounded(row[i], j->dtype);
            beyond |= (ln_f32_bits(row[i]) & 0x7f800000u) == 0x7f800000u;
        }
        if (beyond) return false;
        ln_affine_quantize(row, j->cols, j->code, j->dtype, q, s, b);
        if (sum) measure(row, j->cols, j->code, j->dtype, q, s, b, sum);
    }
    return true;
}

void ln_affine_row(const uint8_t *codes, const uint8_t *scales, const uint8_t *biases, ln_dtype dtype,
                   ln_groups e, int64_t cols, void *out) {
    for (int64_t i = 0; i < cols; i++) {
        float s = ln_num_load(scales, dtype, i / e.group), b = ln_num_load(biases, dtype, i / e.group);
        ln_num_store(out, dtype, i, rounded(s * (float)ln_affine_code(codes, e.bits, i), dtype) + b);
    }
}
