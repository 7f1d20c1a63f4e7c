#include "cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

enum { KNOWN = 1u << 31 };

/* Returns the extended control register 0: the register sets that the operating system saves. */
static uint32_t saved_registers(void) {
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* Bit numbers: Intel, Software Developer's Manual, volume 2, CPUID, and volume 1, 13.3. */
static unsigned read_features(void) {
    enum { FMA = 1 << 12, OSXSAVE = 1 << 27, F16C = 1 << 29, VECTORS = FMA | OSXSAVE | F16C };
    enum { AVX2 = 1 << 5, F = 1 << 16, DQ = 1 << 17, BW = 1 << 30, VNNI = 1 << 11, BF16 = 1 << 5 };
    enum { TILE_BF16 = 1 << 22, TILE = 1 << 24, TILE_BYTES = 1 << 25, TILES = TILE_BF16 | TILE | TILE_BYTES };
    enum { SAVES_YMM = 6, SAVES_ZMM = 0xe6 };
    const uint32_t vl = 1u << 31, wide = (uint32_t)F | DQ | BW | vl;
    uint32_t a, b, c, d, unused;
    unsigned found = KNOWN;
    if (!__get_cpuid(0, &a, &b, &c, &d)) return found;
    if (b == signature_AMD_ebx && c == signature_AMD_ecx && d == signature_AMD_edx) found |= LN_CPU_AMD;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & VECTORS) != VECTORS) return found;
    const uint32_t saved = saved_registers();
    if ((saved & SAVES_YMM) != SAVES_YMM || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & AVX2))
        return found;
    found |= LN_CPU_AVX2;
    if ((d & TILES) == TILES) found |= LN_CPU_TILES;
    if ((saved & SAVES_ZMM) != SAVES_ZMM || (b & wide) != wide) return found;
    found |= LN_CPU_AVX512;
    if (c & VNNI) found |= LN_CPU_AVX512_VNNI;
    if (__get_cpuid_count(7, 1, &a, &b, &unused, &d) && (a & BF16)) found |= LN_CPU_AVX512_BF16;
    return found;
}

bool ln_cpu_has(unsigned features) {
    static _Atomic unsigned cached;
    unsigned found = atomic_load_explicit(&cached, memory_order_relaxed);
    if (!found) {
        found = read_features();
        atomic_store_explicit(&cached, found, memory_order_relaxed);
    }
    return (found & features) == features;
}
#else
bool ln_cpu_has(unsigned features) { return features == 0; }
#endif
