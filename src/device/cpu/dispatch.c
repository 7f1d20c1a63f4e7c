/* Dispatch: the instruction sets that this machine has, and the kernel table of each ISA level.
 *
 *     plain (reference kernels) -> avx2 -> avx512 -> amx          x86-64
 *     plain                     -> neon                           aarch64
 *
 * Each level starts from the one below and overwrites the ops that it computes faster, so an op without a
 * vector kernel still runs. All levels give the same bits (tests/kernels) except AMX, which uses tiles for
 * products with bf16 weights and, in `fast`, for products with quantised weights and for attention. The
 * choice therefore needs no option: LINNET_CPU exists for debugging and tests. */
#include "cpu.h"

#include <stdlib.h>
#ifdef LN_X86
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

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
/* Whether the processor has AMX tiles with bf16 and int8 products, and the operating system permits their
 * use. Permission for the 8 KB of tile registers is requested once and holds for all threads of the
 * process. */
static bool amx_here(void) {
    enum {
        LEAF = 7,
        BF16 = 1 << 22,
        TILE = 1 << 24,
        BYTES = 1 << 25,
        ALL = BF16 | TILE | BYTES,
        REQUEST_PERMISSION = 0x1023,
        TILE_DATA = 18
    };
    static _Atomic int state; /* 1: yes, 2: no */
    unsigned a, b, c, d = 0;
    if (!state)
        state = __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && (d & ALL) == ALL &&
                        !syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA)
                    ? 1
                    : 2;
    return state == 1;
}

/* F16C. __builtin_cpu_supports("f16c") is an error in clang before 15, so CPUID is read. The caller also
 * checks "avx2", which implies that the operating system saves vector registers. */
static bool f16c_here(void) {
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

bool ln_cpu_isa_here(ln_isa r) {
#ifdef LN_X86
    if (r == LN_ISA_PLAIN) return true;
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c_here();
    if (r == LN_ISA_AVX2) return avx2;
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return r == LN_ISA_AVX512 ? avx512 : avx512 && __builtin_cpu_supports("avx512vnni") && amx_here();
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
    ln_kernels_add(t, ln_cpu_bfp_avx2);
    ln_kernels_add(t, ln_cpu_attn_avx2);
    if (r < LN_ISA_AVX512) return;
    ln_kernels_add(t, ln_cpu_rowwise_avx512);
    ln_kernels_add(t, ln_cpu_dense_avx512);
    const bool amd = __builtin_cpu_is("amd"),
               bf16_dot = amd && __builtin_cpu_supports("avx512bf16"); /* Intel: half of FMA's throughput */
    if (bf16_dot) ln_kernels_add(t, ln_cpu_dense_vdpbf16);
    ln_kernels_add(t, ln_cpu_affine_avx512);
    ln_kernels_add(t, ln_cpu_bfp_avx512);
    if (__builtin_cpu_supports("avx512vnni")) ln_kernels_add(t, amd ? ln_cpu_bfp_vnni_amd : ln_cpu_bfp_vnni);
    ln_kernels_add(t, ln_cpu_attn_avx512);
    if (bf16_dot) ln_kernels_add(t, ln_cpu_attn_vdpbf16);
    if (r < LN_ISA_AMX) return;
    ln_kernels_add(t, ln_cpu_dense_amx);
    ln_kernels_add(t, ln_cpu_i8pair_amx);
    ln_kernels_add(t, ln_cpu_attn_amx);
#elif defined(LN_ARM64)
    if (r < LN_ISA_NEON) return;
    ln_kernels_add(t, ln_cpu_rowwise_neon);
    ln_kernels_add(t, ln_cpu_dense_neon);
    ln_kernels_add(t, ln_cpu_affine_neon);
    ln_kernels_add(t, ln_cpu_bfp_neon);
    ln_kernels_add(t, ln_cpu_attn_neon);
#else
    (void)r;
#endif
}

#ifdef LN_X86
static bool reads_bf16_weight(const ln_node *n, const ln_value *values) {
    return ln_stored_of(values[n->in[1]].dtype, values[n->in[1]].enc) == LN_STORED_BF16;
}
#endif
/* Relative tolerance of AMX. Its products with bf16 weights accumulate in another order: two sums of C terms
 * that are rounded to 24 bits at each step differ by a random walk. FAR times its mean distance was not
 * exceeded in a few million outputs. In a gated pair both factors differ, and the largest gate and the
 * largest up projection need not meet in one output, so PAIR is a further factor. */
double ln_cpu_tolerance(ln_isa r, const ln_node *n, const ln_value *values) {
#ifdef LN_X86
    enum {
        FAR = 8, /* tolerance in mean distances of the random walk */
        PAIR = 4 /* further factor of a gated pair */
    };
    if (r >= LN_ISA_AMX && n->op == LN_OP_ATTN_PAGED)
        return n->p.attn.kv.dtype == LN_BF16 ? 0x1p-8 : 0; /* a softmax weight rounded the other way */
    const bool gated = n->op == LN_OP_LINEAR_GATED;
    if (r < LN_ISA_AMX || (n->op != LN_OP_LINEAR && !gated) || !reads_bf16_weight(n, values)) return 0;
    return (gated ? PAIR : 1) * FAR * 0x1p-24 * sqrt((double)values[n->in[1]].dims[1]);
#else
    return (void)r, (void)n, (void)values, 0;
#endif
}

/* AMX tiles load bf16 rows from memory; vector kernels broadcast f32. */
bool ln_cpu_reads_bf16(ln_isa r, const ln_node *n, const ln_value *values, int k) {
#ifdef LN_X86
    if (r < LN_ISA_AMX || k > 0) return false;
    if (n->op == LN_OP_ATTN_PAGED) return n->p.attn.kv.dtype == LN_BF16;
    return (n->op == LN_OP_LINEAR || n->op == LN_OP_LINEAR_GATED) && reads_bf16_weight(n, values);
#else
    return (void)r, (void)n, (void)values, (void)k, false;
#endif
}

/* AMX tiles cannot scale partial sums, so scales by group would cost more than the products
 * (docs/decisions/013-int8-pair-products.md). */
bool ln_cpu_columns_per_row(ln_isa r, int64_t columns) {
#ifdef LN_X86
    return r >= LN_ISA_AMX && columns <= LN_I8PAIR_MAX_COLS;
#else
    return (void)r, (void)columns, false;
#endif
}
bool ln_cpu_per_row(ln_isa r, const ln_node *n, const ln_value *values) {
    return ln_cpu_columns_per_row(r, values[n->in[1]].dims[1]);
}

const char *ln_cpu_kernel_isa(ln_isa r, ln_op op, int variant) {
    ln_kernel_table mine, lower;
    ln_cpu_kernels(r, &mine);
    const ln_kernel *k = ln_kernel_of(&mine, op, variant);
    if (!k) return NULL;
    ln_isa low = LN_ISA_PLAIN;
    while (ln_cpu_kernels(low, &lower), lower.of[op][variant].fn != k->fn) low++;
    return names[low];
}
