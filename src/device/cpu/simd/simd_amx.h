/* Wrappers of AMX's tile instructions: eight registers of 16 rows of 64 bytes.
 *
 * The tile kernels (gemm_bf16_amx.inc.h, gemm_i8pair_amx.inc.h, attn_amx.inc.h) are written in these;
 * tests/kernels/tile_model.h defines the same ones in plain C. A register is named by a literal number, so
 * they are macros. They are inline assembly and not the compiler's intrinsics, because those do not say
 * which memory they read: what was stored just before might not be there yet. */
#ifndef LN_SIMD_AMX_H
#define LN_SIMD_AMX_H

#include <stdint.h>

#include "prefetch.h"

#ifndef INLINE
#define INLINE static inline __attribute__((always_inline))
#endif

/* The argument of LDTILECFG: rows and bytes of a row of each register. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_config;

#define tile_configure(c) __asm__ volatile("ldtilecfg %0" : : "m"(*(c)))
#define tile_release()    __asm__ volatile("tilerelease")
#define tile_zero(t)      __asm__ volatile("tilezero %%tmm" #t ::)
/* Rows `stride` bytes apart. */
#define tile_load(t, p, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(p), "r"((int64_t)(stride)) : "memory")
/* The same by TILELOADDT1, for data that stays in L2 and shall not evict other data from L1. */
#define tile_load_t1(t, p, stride) \
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #t : : "r"(p), "r"((int64_t)(stride)) : "memory")
#define tile_store(t, p, stride) \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(p), "r"((int64_t)(stride)) : "memory")
/* y += a b over pairs of bf16 (TDPBF16PS). */
#define tile_dpbf16(y, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #y ::)
/* y += a b over fours of bytes, those of b unsigned, those of a signed or not (TDPBSUD, TDPBUUD). */
#define tile_dpbsud(y, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #y ::)
#define tile_dpbuud(y, a, b) __asm__ volatile("tdpbuud %%tmm" #b ", %%tmm" #a ", %%tmm" #y ::)

#endif
