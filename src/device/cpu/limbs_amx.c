/* Limbs by AVX-512 (contract: limbs.h): within 16 bytes, the upper bytes of 8 numbers and then the lower ones, in the order wanted; then both halves of
 * all four together. Numbers of 12 bits are shifted up first and their lower limbs down again. */
#include "limbs.h"

#include <immintrin.h>

void ln_cpu_limbs_amx(int bits, int low, const int16_t *v, int64_t width, int64_t n, uint8_t *h, uint8_t *l, int64_t step) {
    const __m128i by = bits == 4 ? _mm_setr_epi8(1, 9, 3, 11, 5, 13, 7, 15, 0, 8, 2, 10, 4, 12, 6, 14)
                     : bits == 8 ? _mm_setr_epi8(1, 5, 3, 7, 9, 13, 11, 15, 0, 4, 2, 6, 8, 12, 10, 14)
                                 : _mm_setr_epi8(1, 3, 5, 7, 9, 11, 13, 15, 0, 2, 4, 6, 8, 10, 12, 14);
    const __m512i order = _mm512_broadcast_i32x4(by), halves = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    for (; n > 0; n--, h += step, l += step)
        for (int64_t i = 0; i < width; i += 32, v += 32) {
            const __m512i up = _mm512_slli_epi16(_mm512_loadu_si512(v), 8 - low);
            const __m512i x = _mm512_permutexvar_epi64(halves, _mm512_shuffle_epi8(up, order));
            const __m256i lower = _mm512_extracti64x4_epi64(x, 1);
            _mm256_storeu_si256((__m256i *)(void *)(h + i), _mm512_castsi512_si256(x));
            _mm256_storeu_si256((__m256i *)(void *)(l + i), low == 8 ? lower : _mm256_and_si256(_mm256_srli_epi16(lower, 4), _mm256_set1_epi8(15)));
        }
}
