/* Instruction sets of x86-64 processors. */
#ifndef LN_CPU_FEATURES_H
#define LN_CPU_FEATURES_H

#include <stdbool.h>

enum {
    LN_CPU_AVX2 = 1,        /* with FMA and F16C */
    LN_CPU_AVX512 = 2,      /* F, BW, DQ and VL */
    LN_CPU_AVX512_VNNI = 4, /* products of bytes */
    LN_CPU_AVX512_BF16 = 8, /* products of bf16 */
    LN_CPU_TILES = 16,      /* AMX tiles with products of bf16 and of bytes */
    LN_CPU_AMD = 32         /* made by AMD */
};

/* Returns whether the processor has all of `features` and the operating system saves the registers of AVX2
 * and AVX-512. Tiles need a permission in addition (ln_os_allow_tiles). False on other architectures. CPUID
 * is read once: __builtin_cpu_supports answers no to everything in programs that zig links. */
bool ln_cpu_has(unsigned features);

#endif
