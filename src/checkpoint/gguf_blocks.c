/* Types of GGUF's tensors as affine groups of 32 columns, with scales and offsets in f16:
 *
 *              a block, in bytes                                  w          offset
 *     Q4_0     f16 d, 16 of codes                                 d (q - 8)  -8 d
 *     Q4_1     f16 d, f16 m, 16 of codes                          d q + m    m
 *     Q5_0     f16 d, 4 of fifth bits, 16 of codes                d (q - 16) -16 d
 *     Q5_1     f16 d, f16 m, 4 of fifth bits, 16 of codes         d q + m    m
 *     Q8_0     f16 d, 32 of codes with a sign                     d q        -128 d
 *
 * A byte of codes has those of columns i and i + 16. The offset of a type without m is a power of two times
 * d, which is exact, and d times a code has at most 19 bits: the sum is rounded once, as in gguf. */
#include "gguf_blocks.h"

#include <stdio.h>
#include <string.h>

static uint16_t load16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static bool finite16(uint16_t h) { return (h & 0x7c00) != 0x7c00; }

/* Stores d and `factor` d in f16. */
static bool store_units(uint16_t d, float factor, int64_t g, uint8_t *scales, uint8_t *offsets) {
    const uint16_t b = ln_f32_f16(factor * ln_f16_f32(d));
    memcpy(scales + 2 * g, &d, 2);
    memcpy(offsets + 2 * g, &b, 2);
    return finite16(d) && finite16(b);
}
static bool store_both(uint16_t d, uint16_t m, int64_t g, uint8_t *scales, uint8_t *offsets) {
    memcpy(scales + 2 * g, &d, 2);
    memcpy(offsets + 2 * g, &m, 2);
    return finite16(d) && finite16(m);
}

/* Writes 32 codes of 4 bits in the order of their columns. */
static void store_nibbles(const uint8_t *codes, uint8_t *out) {
    for (int k = 0; k < 8; k++) {
        const uint8_t a = codes[2 * k], b = codes[2 * k + 1];
        out[k] = (uint8_t)((a & 15) | b << 4);
        out[8 + k] = (uint8_t)(a >> 4 | (b & 0xf0));
    }
}
/* Writes 32 codes of 5 bits, whose fifth ones are in `high`. */
static void store_fives(const uint8_t *codes, const uint8_t *high, uint8_t *out) {
    for (int k = 0; k < 4; k++) {
        uint64_t bits = 0;
        for (int i = 7; i >= 0; i--) {
            const int c = 8 * k + i;
            const unsigned low = c < 16 ? codes[c] & 15u : codes[c - 16] >> 4;
            bits = bits << 5 | low | (unsigned)(high[c / 8] >> c % 8 & 1) << 4;
        }
        for (int i = 0; i < 5; i++) out[5 * k + i] = (uint8_t)(bits >> 8 * i);
    }
}

static bool row_q4_0(const uint8_t *x, int64_t cols, uint8_t *codes, uint8_t *scales, uint8_t *offsets) {
    bool good = true;
    for (int64_t g = 0; g < cols / 32; g++, x += 18) {
        good &= store_units(load16(x), -8, g, scales, offsets);
        store_nibbles(x + 2, codes + 16 * g);
    }
    return good;
}
static bool row_q4_1(const uint8_t *x, int64_t cols, uint8_t *codes, uint8_t *scales, uint8_t *offsets) {
    bool good = true;
    for (int64_t g = 0; g < cols / 32; g++, x += 20) {
        good &= store_both(load16(x), load16(x + 2), g, scales, offsets);
        store_nibbles(x + 4, codes + 16 * g);
    }
    return good;
}
static bool row_q5_0(const uint8_t *x, int64_t cols, uint8_t *codes, uint8_t *scales, uint8_t *offsets) {
    bool good = true;
    for (int64_t g = 0; g < cols / 32; g++, x += 22) {
        good &= store_units(load16(x), -16, g, scales, offsets);
        store_fives(x + 6, x + 2, codes + 20 * g);
    }
    return good;
}
static bool row_q5_1(const uint8_t *x, int64_t cols, uint8_t *codes, uint8_t *scales, uint8_t *offsets) {
    bool good = true;
    for (int64_t g = 0; g < cols / 32; g++, x += 24) {
        good &= store_both(load16(x), load16(x + 2), g, scales, offsets);
        store_fives(x + 8, x + 4, codes + 20 * g);
    }
    return good;
}
static bool row_q8_0(const uint8_t *x, int64_t cols, uint8_t *codes, uint8_t *scales, uint8_t *offsets) {
    bool good = true;
    for (int64_t g = 0; g < cols / 32; g++, x += 34) {
        good &= store_units(load16(x), -128, g, scales, offsets);
        for (int i = 0; i < 32; i++) codes[32 * g + i] = x[2 + i] ^ 0x80;
    }
    return good;
}

#define AFFINE(bits_) \
    { .kind = LN_STORED_AFFINE, .bits = (bits_), .scale = LN_F16, .offset = LN_F16, .group = 32 }
static const ln_gguf_form forms[] = {
    {LN_GGML_Q4_0, AFFINE(4), {4, 32}, row_q4_0}, {LN_GGML_Q4_1, AFFINE(4), {4, 32}, row_q4_1},
    {LN_GGML_Q5_0, AFFINE(5), {5, 32}, row_q5_0}, {LN_GGML_Q5_1, AFFINE(5), {5, 32}, row_q5_1},
    {LN_GGML_Q8_0, AFFINE(8), {8, 32}, row_q8_0},
};

static const ln_gguf_form *form_at(size_t i) {
    return i < LN_COUNT(forms)                         ? &forms[i]
           : i < LN_COUNT(forms) + LN_GGUF_SUPER_FORMS ? &ln_gguf_super_forms[i - LN_COUNT(forms)]
                                                       : NULL;
}

const ln_gguf_form *ln_gguf_form_of(uint32_t type) {
    size_t i = 0;
    while (form_at(i) && (uint32_t)form_at(i)->type != type) i++;
    return form_at(i);
}

void ln_gguf_types_text(char out[160]) {
    size_t n = (size_t)snprintf(out, 160, "F32, F16, BF16");
    for (size_t i = 0; form_at(i) && n < 160; i++)
        n += (size_t)snprintf(out + n, 160 - n, ", %s", ln_ggml_block_of((uint32_t)form_at(i)->type).name);
}
