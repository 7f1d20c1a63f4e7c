/* Affine groups as tiles of bf16 numbers, by AVX-512 (contract: unpack.h). This decides decode from memory: a core reads the 288 or 544 bytes of
 * 512 weights of 4 or 8 bits in 16 or 30 ns.
 *
 *   B tiles          a packed line holds one word each of 16 outputs, and a line of a B tile a pair of columns of them: codes are shifted and masked out of
 *                    the words, made floats, s q + b is computed with 16 scales and biases in vectors, and the upper halves of two are put together. A byte
 *                    is a float once it lies in bits 8 to 15 below the exponent of 2^15: a mask, and no conversion
 *   lines, 4 bits    a line is 32 columns of one output. 4 x 4 words are transposed within the lanes of four packed lines and stored; a broadcast
 *                    load brings the 16 bytes of any one output into all four lanes. Lane i is shifted right by 4 i, so that nibble i of each of
 *                    its 16-bit words comes first. vpermw looks at five bits of a word only, so with the 16 numbers that codes of this group and
 *                    output can be, twice, in a register, it takes them as they are: two operations for 32 weights, where the other way takes ten
 *
 * Numbers are cut and not rounded: what that takes off on average is in s and b before (unpack.h). vcvtne2ps2bf16 costs as much as four of these steps. */
#include "pack.h"
#include "unpack.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { OUTPUTS = LN_PACK_D, LINE = 64, TILE = OUTPUTS * LINE, NEAR = 1024, FAR = 3072 };

/* What was stored is read back from memory: broadcast loads cost the shuffle port nothing, and the shuffles that a compiler would make of them do. */
#define BY_MEMORY(p) __asm__ volatile("" : : "r"(p) : "memory")

INLINE __m512i line_at(const uint8_t *p) { return _mm512_loadu_si512(p); }

/* The numbers of 16 outputs as f32. */
INLINE __m512 numbers(ln_dtype t, const uint8_t *p) {
    if (t == LN_F32) return _mm512_loadu_ps(p);
    const __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return t == LN_F16 ? _mm512_cvtph_ps(h) : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* Four lines, a word of each output, to z[4][64]: output o's four words lie at 64 (o % 4) + 16 (o / 4). */
INLINE void four_words(const uint8_t *w, uint8_t *z) {
    const __m512i l0 = line_at(w), l1 = line_at(w + LINE), l2 = line_at(w + 2 * LINE), l3 = line_at(w + 3 * LINE);
    const __m512i a = _mm512_unpacklo_epi32(l0, l1), b = _mm512_unpackhi_epi32(l0, l1), c = _mm512_unpacklo_epi32(l2, l3), d = _mm512_unpackhi_epi32(l2, l3);
    _mm512_store_si512(z, _mm512_unpacklo_epi64(a, c));
    _mm512_store_si512(z + LINE, _mm512_unpackhi_epi64(a, c));
    _mm512_store_si512(z + 2 * LINE, _mm512_unpacklo_epi64(b, d));
    _mm512_store_si512(z + 3 * LINE, _mm512_unpackhi_epi64(b, d));
}
INLINE __m128i words_of(const uint8_t *z, int o) { return _mm_load_si128((const __m128i *)(const void *)(z + LINE * (o % 4) + 16 * (o / 4))); }

/* n tiles of 4-bit codes that share scale and bias. */
INLINE void nibbles(const uint8_t *w, const int n, const float *s, const float *b, uint8_t *to) {
    uint8_t z[4 * 4 * LINE] __attribute__((aligned(64)));
    const __m512 q = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i by = _mm512_set_epi64(0x000c000c000c000c, 0x000c000c000c000c, 0x0008000800080008, 0x0008000800080008, 0x0004000400040004, 0x0004000400040004, 0, 0);
    uint16_t halves[32];
    for (int i = 0; i < 32; i++) halves[i] = (uint16_t)(i % 16 * 2 + 1);
    const __m512i upper = line_at((const uint8_t *)halves);
    for (int t = 0; t < n; t++) four_words(w + t * 4 * LINE, z + t * 4 * LINE);
    BY_MEMORY(z);
#pragma GCC unroll 16
    for (int o = 0; o < OUTPUTS; o++) {
        const __m512 v = _mm512_fmadd_ps(_mm512_set1_ps(s[o]), q, _mm512_set1_ps(b[o]));
        const __m512i table = _mm512_permutexvar_epi16(upper, _mm512_castps_si512(v)); /* twice */
        for (int t = 0; t < n; t++) {
            const __m512i code = _mm512_srlv_epi16(_mm512_broadcast_i32x4(words_of(z + t * 4 * LINE, o)), by);
            _mm512_store_si512(to + t * TILE + o * LINE, _mm512_permutexvar_epi16(code, table));
        }
    }
}

/* Column c of a tile, 16 outputs. Its place is a constant: 32 columns repeat the same shifts. */
INLINE __m512i column(const int bits, const uint8_t *w, const int64_t c, __m512 s, __m512 b) {
    const int at = (int)c * bits, off = at % 32;
    __m512i q = line_at(w + at / 32 * LINE);
    if (bits == 8) {
        q = off == 0 ? _mm512_slli_epi32(q, 8) : _mm512_srli_epi32(q, (unsigned)off - 8);
        q = _mm512_ternarylogic_epi32(q, _mm512_set1_epi32(0xff00), _mm512_set1_epi32(0x47000000), 0xea); /* q & ff00 | 2^15 */
        return _mm512_castps_si512(_mm512_fmadd_ps(s, _mm512_castsi512_ps(q), b));
    }
    q = _mm512_srli_epi32(q, (unsigned)off);
    if (off + bits > 32) q = _mm512_or_si512(q, _mm512_slli_epi32(line_at(w + (at / 32 + 1) * LINE), (unsigned)(32 - off)));
    if (off + bits != 32) q = _mm512_and_si512(q, _mm512_set1_epi32((1 << bits) - 1));
    return _mm512_castps_si512(_mm512_fmadd_ps(s, _mm512_cvtepi32_ps(q), b));
}
INLINE void b_tiles(const int bits, const uint8_t *w, int64_t n, __m512 s, __m512 b, uint8_t *to) {
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    for (; n > 0; n--, w += bits * LINE, to += TILE)
#pragma GCC unroll 16
        for (int p = 0; p < 16; p++) {
            const __m512i even = column(bits, w, ln_tile_column(bits, 2 * p), s, b), odd = column(bits, w, ln_tile_column(bits, 2 * p + 1), s, b);
            _mm512_store_si512(to + p * LINE, _mm512_ternarylogic_epi32(_mm512_srli_epi32(even, 16), odd, upper, 0xf8)); /* even >> 16 | odd & upper */
        }
}
#define B_TILES(B) \
    static void b_tiles_##B(const uint8_t *w, int64_t n, __m512 s, __m512 b, uint8_t *to) { b_tiles(B, w, n, s, b, to); }
B_TILES(2) B_TILES(3) B_TILES(4) B_TILES(5) B_TILES(6) B_TILES(8)

/* Where tile t of a group begins; what lies behind n of them is asked for, from memory and from L2. */
INLINE const uint8_t *codes_at(const ln_affine *w, const uint8_t *group, int64_t t, int64_t n) {
    const uint8_t *codes = group + t * w->enc.bits * LINE;
    for (int64_t i = 0; i < n * w->enc.bits * LINE; i += LINE) {
        _mm_prefetch((const char *)codes + FAR + i, _MM_HINT_T1);
        _mm_prefetch((const char *)codes + NEAR + i, _MM_HINT_T0);
    }
    return codes;
}
/* Scales and biases as unpack.h takes them. */
INLINE void terms_of(const ln_affine *w, const uint8_t *group, __m512 *s, __m512 *b) {
    const uint8_t *at = group + w->enc.group / 32 * w->enc.bits * LINE;
    *s = _mm512_mul_ps(numbers(w->dtype, at), _mm512_set1_ps(LN_TILE_CUT));
    *b = _mm512_mul_ps(numbers(w->dtype, at + OUTPUTS * ln_dtype_bytes(w->dtype)), _mm512_set1_ps(LN_TILE_CUT));
    if (w->enc.bits == 8) *b = _mm512_fnmadd_ps(*s, _mm512_set1_ps(LN_TILE_BYTE), *b);
}

void ln_cpu_unpack_amx(const ln_affine *w, const uint8_t *group, int64_t t, int64_t n, uint8_t *to) {
    const uint8_t *codes = codes_at(w, group, t, n);
    __m512 s, b;
    terms_of(w, group, &s, &b);
    switch (w->enc.bits) {
    case 2: b_tiles_2(codes, n, s, b, to); break;
    case 3: b_tiles_3(codes, n, s, b, to); break;
    case 4: b_tiles_4(codes, n, s, b, to); break;
    case 5: b_tiles_5(codes, n, s, b, to); break;
    case 6: b_tiles_6(codes, n, s, b, to); break;
    default: b_tiles_8(codes, n, s, b, to);
    }
}

void ln_cpu_unpack_lines_amx(const ln_affine *w, const uint8_t *group, int64_t n, uint8_t *to) {
    const uint8_t *codes = codes_at(w, group, 0, n);
    float s[OUTPUTS] __attribute__((aligned(64))), b[OUTPUTS] __attribute__((aligned(64)));
    __m512 scales, biases;
    terms_of(w, group, &scales, &biases);
    _mm512_store_ps(s, scales);
    _mm512_store_ps(b, biases);
    BY_MEMORY(s);
    BY_MEMORY(b);
    if (n == 1) nibbles(codes, 1, s, b, to);
    else if (n == 2) nibbles(codes, 2, s, b, to);
    else nibbles(codes, 4, s, b, to);
}

void ln_cpu_places_amx(int bits, uint8_t *lines, int64_t n) {
    uint16_t from[32];
    if (bits != 4) return;
    for (int p = 0; p < 32; p++) from[p] = (uint16_t)ln_tile_column(bits, p);
    const __m512i order = line_at((const uint8_t *)from);
    for (int64_t i = 0; i < n; i++, lines += LINE) _mm512_storeu_si512(lines, _mm512_permutexvar_epi16(order, line_at(lines)));
}

void ln_cpu_transpose_amx(const uint8_t *from, uint8_t *to) {
    uint8_t z[4 * 4 * LINE] __attribute__((aligned(64)));
    for (int i = 0; i < 4; i++) four_words(from + i * 4 * LINE, z + i * 4 * LINE);
    BY_MEMORY(z);
#pragma GCC unroll 16
    for (int o = 0; o < OUTPUTS; o++) {
        __m512i x = _mm512_castsi128_si512(words_of(z, o));
        x = _mm512_inserti32x4(x, words_of(z + 4 * LINE, o), 1);
        x = _mm512_inserti32x4(x, words_of(z + 8 * LINE, o), 2);
        _mm512_storeu_si512(to + o * LINE, _mm512_inserti32x4(x, words_of(z + 12 * LINE, o), 3));
    }
}
