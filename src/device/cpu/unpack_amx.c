/* Affine groups as tiles of bf16 numbers, by AVX-512 (contract: unpack.h). This decides decode from memory: 512 codes of 4 bits are 288 bytes,
 * which a core reads in 16 to 19 ns.
 *
 * A packed line holds one word each of 16 outputs, a tile's line 32 columns of one. 4 x 4 words are transposed within the lanes of four
 * lines and stored; a broadcast load then brings the 16 bytes of any one output into all four lanes. From there
 *   4 bits   lane i is shifted right by 4 i, so that nibble i of each of its 16-bit words comes first; vpermw looks at five bits of a word only, so
 *            with the 16 numbers that the codes of this group and output can be, twice, in a register, it takes them as they are
 *   others   bytes become floats, s q + b is computed and rounded; widths other than 8 are made bytes first
 * vcvtne2ps2bf16 rounds to nearest even and flushes denormals. */
#include "pack.h"
#include "unpack.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { OUTPUTS = LN_PACK_D, LINE = 64, TILE = OUTPUTS * LINE, AHEAD_BYTES = 1024 };

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
    for (int t = 0; t < n; t++) four_words(w + t * 4 * LINE, z + t * 4 * LINE);
    BY_MEMORY(z);
#pragma GCC unroll 16
    for (int o = 0; o < OUTPUTS; o++) {
        const __m512 v = _mm512_fmadd_ps(_mm512_set1_ps(s[o]), q, _mm512_set1_ps(b[o]));
        const __m512i table = (__m512i)_mm512_cvtne2ps_pbh(v, v);
        for (int t = 0; t < n; t++) {
            const __m512i code = _mm512_srlv_epi16(_mm512_broadcast_i32x4(words_of(z + t * 4 * LINE, o)), by);
            _mm512_store_si512(to + t * TILE + o * LINE, _mm512_permutexvar_epi16(code, table));
        }
    }
}

/* One tile of 8-bit codes. */
INLINE void bytes(const uint8_t *w, const float *s, const float *b, uint8_t *to) {
    uint8_t z[2 * 4 * LINE] __attribute__((aligned(64)));
    four_words(w, z);
    four_words(w + 4 * LINE, z + 4 * LINE);
    BY_MEMORY(z);
#pragma GCC unroll 16
    for (int o = 0; o < OUTPUTS; o++) {
        const __m512 so = _mm512_set1_ps(s[o]), bo = _mm512_set1_ps(b[o]);
        const __m512 lo = _mm512_fmadd_ps(so, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(words_of(z, o))), bo);
        const __m512 hi = _mm512_fmadd_ps(so, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(words_of(z + 4 * LINE, o))), bo);
        _mm512_store_si512(to + o * LINE, (__m512i)_mm512_cvtne2ps_pbh(hi, lo));
    }
}

/* The words of 32 columns of codes of another width as those of bytes. */
INLINE void widen(const int bits, const uint8_t *w, uint32_t to[8][OUTPUTS]) {
#pragma GCC unroll 32
    for (int c = 0; c < 32; c++) {
        const int at = c * bits, off = at % 32;
        uint32_t lo[OUTPUTS], hi[OUTPUTS] = {0};
        memcpy(lo, w + at / 32 * LINE, LINE);
        if (off + bits > 32) memcpy(hi, w + (at / 32 + 1) * LINE, LINE);
        for (int o = 0; o < OUTPUTS; o++) {
            const uint32_t q = (lo[o] >> off | (off + bits > 32 ? hi[o] << (32 - off) : 0)) & ((1u << bits) - 1);
            to[c / 4][o] = (c % 4 ? to[c / 4][o] : 0) | q << (c % 4 * 8);
        }
    }
}
#define WIDEN(B) \
    static void widen_##B(const uint8_t *w, uint32_t to[8][OUTPUTS]) { widen(B, w, to); }
WIDEN(2) WIDEN(3) WIDEN(5) WIDEN(6)

void ln_cpu_unpack_amx(const ln_affine *w, const uint8_t *group, int64_t t, int64_t n, uint8_t *to) {
    const int bits = w->enc.bits;
    const uint8_t *scales = group + w->enc.group / 32 * bits * LINE, *codes = group + t * bits * LINE;
    float s[OUTPUTS] __attribute__((aligned(64))), b[OUTPUTS] __attribute__((aligned(64)));
    for (int64_t i = 0; i < n * bits; i++) _mm_prefetch((const char *)codes + AHEAD_BYTES + i * LINE, _MM_HINT_T0);
    _mm512_store_ps(s, numbers(w->dtype, scales));
    _mm512_store_ps(b, numbers(w->dtype, scales + OUTPUTS * ln_dtype_bytes(w->dtype)));
    BY_MEMORY(s);
    BY_MEMORY(b);
    if (bits == 4 && n == 2) nibbles(codes, 2, s, b, to);
    else if (bits == 4 && n == 4) nibbles(codes, 4, s, b, to);
    else
        for (; n > 0; n--, codes += bits * LINE, to += TILE) {
            uint32_t wide[8][OUTPUTS];
            if (bits == 4) {
                nibbles(codes, 1, s, b, to);
            } else if (bits == 8) {
                bytes(codes, s, b, to);
            } else {
                (bits == 2 ? widen_2 : bits == 3 ? widen_3 : bits == 5 ? widen_5 : widen_6)(codes, wide);
                bytes((const uint8_t *)wide, s, b, to);
            }
        }
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
