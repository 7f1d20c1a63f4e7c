/* Dispatch: the instruction sets that this machine has, and the kernel table of each ISA level.
 *
 *     plain (reference kernels) -> avx2 -> avx512 -> amx          x86-64
 *     plain                     -> neon                           aarch64
 *
 * Each level starts from the one below and overwrites the ops that it computes faster, so an op without a
 * vector kernel still runs. All levels give the same bits (tests/kernels) except AMX, which uses tiles for
 * products with bf16 weights and, in `fast`, for products with quantised weights and for attention. The
 * choice therefore needs no option: LINNET_CPU exists for debugging and tests. */
#include "../../base/cpu_features.h"
#include "../../base/os.h"
#include "cpu.h"
#include "gemm/gemm_back.h"

#include <stdlib.h>

#ifdef LN_X86
static const char *const names[LN_ISA_COUNT] = {"plain", "avx2", "avx512", "amx"};
#define NAMES "plain, avx2, avx512 or amx"
#elif defined(LN_ARM64)
static const char *const names[LN_ISA_COUNT] = {"plain", "neon"};
#define NAMES "plain or neon"
#else
static const char *const names[LN_ISA_COUNT] = {"plain"};
#define NAMES "plain"
#endif

const char *ln_cpu_isa_name(ln_isa r) { return names[r]; }

#ifdef LN_X86
/* Returns whether the processor has AMX tiles and the operating system permits their use. Permission for the
 * 8 KB of tile registers is requested once and holds for all threads of the process. */
static bool amx_here(void) {
    static _Atomic int state; /* 1: yes, 2: no */
    if (!state) state = ln_cpu_has(LN_CPU_TILES | LN_CPU_AVX512_VNNI) && ln_os_allow_tiles() ? 1 : 2;
    return state == 1;
}
#endif

bool ln_cpu_isa_here(ln_isa r) {
#ifdef LN_X86
    if (r == LN_ISA_PLAIN) return true;
    if (r == LN_ISA_AVX2) return ln_cpu_has(LN_CPU_AVX2);
    return ln_cpu_has(LN_CPU_AVX512) && (r == LN_ISA_AVX512 || amx_here());
#else
    return r < LN_ISA_COUNT; /* aarch64 always has NEON */
#endif
}

ln_status ln_cpu_isa_pick(ln_isa *out, ln_error *err) {
    const char *want = getenv("LINNET_CPU");
    ln_isa best = LN_ISA_PLAIN;
    while (best + 1 < LN_ISA_COUNT && ln_cpu_isa_here(best + 1)) best++;
    *out = best;
    if (!want || !*want) return LN_OK;
    for (ln_isa r = LN_ISA_PLAIN; r < LN_ISA_COUNT; r++) {
        if (strcmp(want, names[r])) continue;
        if (!ln_cpu_isa_here(r))
            return ln_fail(err, LN_EUNSUPPORTED,
                           "LINNET_CPU: this machine lacks %s; its best is %s; unset LINNET_CPU to take that",
                           want, names[best]);
        *out = r;
        return LN_OK;
    }
    char e[80];
    return ln_fail(err, LN_EUSAGE,
                   "LINNET_CPU: expected " NAMES ", found %s; unset it to take the best one (%s)",
                   ln_excerpt(e, want, strlen(want)), names[best]);
}

void ln_cpu_kernels(ln_isa r, ln_kernel_table *t) {
    ln_ref_kernels_float(t);
#ifdef LN_X86
    if (r < LN_ISA_AVX2) return;
    ln_kernels_add(t, ln_cpu_rowwise_avx2);
    ln_kernels_add(t, ln_cpu_dense_avx2);
    ln_kernels_add(t, ln_cpu_affine_avx2);
    ln_kernels_add(t, ln_cpu_coded_avx2);
    ln_kernels_add(t, ln_cpu_train_avx2);
    ln_kernels_add(t, ln_cpu_experts_avx2);
    ln_kernels_add(t, ln_cpu_bfp_avx2);
    ln_kernels_add(t, ln_cpu_attn_avx2);
    ln_kernels_add(t, ln_cpu_recur_avx2);
    if (r < LN_ISA_AVX512) return;
    ln_kernels_add(t, ln_cpu_rowwise_avx512);
    ln_kernels_add(t, ln_cpu_dense_avx512);
    const bool amd = ln_cpu_has(LN_CPU_AMD),
               bf16_dot = amd && ln_cpu_has(LN_CPU_AVX512_BF16); /* Intel: half of FMA's throughput */
    if (bf16_dot) ln_kernels_add(t, ln_cpu_dense_vdpbf16);
    ln_kernels_add(t, ln_cpu_affine_avx512);
    ln_kernels_add(t, ln_cpu_coded_avx512);
    ln_kernels_add(t, ln_cpu_train_avx512);
    ln_kernels_add(t, ln_cpu_experts_avx512);
    ln_kernels_add(t, ln_cpu_bfp_avx512);
    if (ln_cpu_has(LN_CPU_AVX512_VNNI)) ln_kernels_add(t, amd ? ln_cpu_bfp_vnni_amd : ln_cpu_bfp_vnni);
    ln_kernels_add(t, ln_cpu_attn_avx512);
    ln_kernels_add(t, ln_cpu_recur_avx512);
    if (bf16_dot) ln_kernels_add(t, ln_cpu_attn_vdpbf16);
    if (r < LN_ISA_AMX) return;
    ln_kernels_add(t, ln_cpu_dense_amx);
    ln_kernels_add(t, ln_cpu_train_amx);
    ln_kernels_add(t, ln_cpu_experts_amx);
    ln_kernels_add(t, ln_cpu_i8pair_amx);
    ln_kernels_add(t, ln_cpu_attn_amx);
#elif defined(LN_ARM64)
    if (r < LN_ISA_NEON) return;
    ln_kernels_add(t, ln_cpu_rowwise_neon);
    ln_kernels_add(t, ln_cpu_dense_neon);
    ln_kernels_add(t, ln_cpu_affine_neon);
    ln_kernels_add(t, ln_cpu_coded_neon);
    ln_kernels_add(t, ln_cpu_train_neon);
    ln_kernels_add(t, ln_cpu_experts_neon);
    ln_kernels_add(t, ln_cpu_bfp_neon);
    ln_kernels_add(t, ln_cpu_attn_neon);
#else
    (void)r;
#endif
}

void ln_cpu_kernel_levels(ln_isa r, const char *levels[LN_OP_COUNT][LN_VARIANTS]) {
    ln_kernel_table mine, lower;
    ln_cpu_kernels(r, &mine);
    memset(levels, 0, sizeof(const char *[LN_OP_COUNT][LN_VARIANTS]));
    for (ln_isa low = LN_ISA_PLAIN; low <= r; low++) {
        ln_cpu_kernels(low, &lower);
        for (int op = 0; op < LN_OP_COUNT; op++)
            for (int v = 0; v < LN_VARIANTS; v++)
                if (!levels[op][v] && mine.of[op][v].fn && lower.of[op][v].fn == mine.of[op][v].fn)
                    levels[op][v] = names[low];
    }
}

const char *ln_cpu_kernel_isa(ln_isa r, ln_op op, int variant) {
    const char *levels[LN_OP_COUNT][LN_VARIANTS];
    ln_cpu_kernel_levels(r, levels);
    return variant < 0 ? NULL : levels[op][variant];
}
