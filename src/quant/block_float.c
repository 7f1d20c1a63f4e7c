/* Block floating point and int8-pair rows, one element at a time: the specification that every optimised
 * kernel must match (formats: block_float.h). */
#include "block_float.h"

#include <math.h>
#include <string.h>

void ln_bfp_group(const float *x, ln_groups e, int16_t *v, float *u, float *t) {
    uint32_t most = 0;
    int32_t sum = 0;
    for (int i = 0; i < e.group; i++) most = LN_MAX(most, ln_f32_bits(x[i]) & 0x7fffffffu);
    *u = ln_bfp_scale(most, ln_bfp_bits(e.bits));
    const float by = *u > 0 ? 1 / *u : 0; /* exact: a power of two */
    for (int p = 0; p < e.group; p++) {
        v[p] = by > 0 ? (int16_t)rintf(x[ln_bfp_column(e.bits, p)] * by) : 0;
        sum += v[p];
    }
    *t = *u * (float)sum;
}

void ln_bfp_encode(const float *x, int64_t cols, ln_groups e, void *row) {
    for (int64_t g = 0; g < cols / e.group; g++)
        ln_bfp_group(x + g * e.group, e, (int16_t *)row + g * e.group, ln_bfp_scales(row, cols) + g,
                     ln_bfp_sums(row, cols, e.group) + g);
}

void ln_bfp_decode(const void *row, int64_t cols, ln_groups e, float *x) {
    const int16_t *v = row;
    const float *scales = ln_bfp_scales(row, cols);
    for (int64_t i = 0; i < cols; i++) {
        const int64_t g = i / e.group;
        x[g * e.group + ln_bfp_column(e.bits, i % e.group)] = (float)v[i] * scales[g];
    }
}

void ln_i8pair_block(const float *x, int n, int bits, float by, int8_t *h, int8_t *l, ln_i8pair_sums *sums) {
    for (int p = 0; p < 64; p++) {
        const int32_t v = p < n && by > 0 ? (int32_t)rintf(x[ln_i8pair_column(bits, p)] * by) : 0;
        h[p] = (int8_t)ln_i8pair_high(bits, v);
        l[p] = (int8_t)(v - ln_i8pair_radix(bits) * h[p]);
        sums->h += h[p];
        sums->l += l[p];
    }
}

void ln_i8pair_encode_at(const float *x, int64_t cols, int bits, ln_i8pair_layout to) {
    ln_i8pair_sums sums = {0};
    uint32_t most = 0;
    float by;
    for (int64_t i = 0; i < cols; i++) most = LN_MAX(most, ln_f32_bits(x[i]) & 0x7fffffffu);
    ln_i8pair_scale(most, bits, &sums.u, &by);
    for (int64_t p = 0; p < cols; p += 64, to.digits += to.step)
        ln_i8pair_block(x + p, (int)LN_MIN((int64_t)64, cols - p), bits, by, to.digits, to.digits + to.lower,
                        &sums);
    memcpy(to.terms, &sums, sizeof sums);
}

void ln_i8pair_decode_at(ln_i8pair_layout from, int64_t cols, int bits, float *x) {
    ln_i8pair_sums terms;
    memcpy(&terms, from.terms, sizeof terms);
    for (int64_t p = 0; p < cols; p++) {
        const int8_t *h = from.digits + p / 64 * from.step + p % 64;
        x[ln_i8pair_column(bits, p)] = (float)(ln_i8pair_radix(bits) * *h + h[from.lower]) * terms.u;
    }
}

/* Flushes denormals, so that packed scales do not depend on the flush-to-zero mode of the packing thread. */
static float no_denormal(float x) { return fabsf(x) < 0x1p-126f ? 0 : x; }

void ln_i8pair_output_scale(const void *scales, const void *biases, ln_dtype dtype, ln_dtype offset,
                            int64_t groups, int bits, float *by, float *e) {
    const float k = (float)ln_i8pair_radix(bits), n = ln_i8pair_weight_max(bits),
                q = (float)((1 << bits) - 1);
    uint32_t most = 0;
    for (int64_t g = 0; g < groups; g++) {
        const float s = no_denormal(ln_num_load(scales, dtype, g)),
                    b = no_denormal(ln_num_load(biases, offset, g)), last = fmaf(s, q, b);
        const uint32_t first = ln_f32_bits(b) & 0x7fffffffu, other = ln_f32_bits(last) & 0x7fffffffu;
        most = LN_MAX(most, LN_MAX(first, other));
    }
    const bool some = most >= ln_f32_bits(LN_BFP_TINY) && most < 0x7f800000u;
    *by = some ? n / ln_bits_f32(most) : 0;
    *e = most >= 0x7f800000u ? ln_bits_f32(0x7fc00000u) : some ? ln_bits_f32(most) / n * k : 0;
}

/* S and B are s and b in units of d. Radix 30: m and c are the nearest integers to S and B, c corrected for
 * the rounding of m at the middle code; with m = 30 mh + ml, H = mh q + ch and L = ml q + cl, centred around
 * 128. Radix 256: the value c of the middle code plus the distance of q from it, rounded as by VPMULHRSW. */
void ln_i8pair_weight(int bits, float s, float b, float by, uint32_t q, int *h, int *l) {
    const float S = by > 0 ? s * by : 0,
                B = by > 0 ? b * by : 0; /* no or non-finite weights: e is then 0 or NaN */
    if (bits <= 4) {
        const float top = (float)((1 << bits) - 1), m = rintf(S), c = rintf(fmaf(S - m, top / 2, B)),
                    mh = rintf(m * (1 / 30.0f)), ml = fmaf(-30, mh, m);
        const float ch = floorf((c - fmaf(-top / 2, ml, 113)) * (1 / 30.0f)), cl = fmaf(-30, ch, c);
        *h = (int)mh * (int)q + (int)ch + ln_i8pair_zero_point(bits);
        *l = (int)ml * (int)q + (int)cl;
        return;
    }
    const float half = (float)(1 << (bits - 1));
    const int m = (int)rintf(S * half), c = (int)rintf(fmaf(S, half, B)),
              above = ((int)q - (1 << (bits - 1))) * (1 << (16 - bits));
    const int W = ((above * m + 0x4000) >> 15) + c + 0x8000;
    *h = W >> 8;
    *l = W & 255;
}
