/* What a core can do at best with the vectors of an ISA level (simd_*.h): read memory once, line after line,
 * and multiply and add in registers, in enough chains to hide the latency. measure.c runs both on all
 * threads and takes the best of many runs. */
#include "../cpu.h"

static void read_pass(const float *data, int64_t n, int64_t prefetch, float *sink) {
    vf s[8];
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) s[k] = vf_zero();
    for (int64_t i = 0; i + 8 * VL <= n; i += 8 * VL) {
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            if (prefetch) __builtin_prefetch(data + i + k * VL + prefetch);
            s[k] = vf_add(s[k], vf_load(data + i + k * VL));
        }
    }
#pragma GCC unroll 8
    for (int k = 1; k < 8; k++) s[0] = vf_add(s[0], s[k]);
    vf_store(sink, s[0]);
}

static double multiply_pass(int64_t rounds, float *sink) {
    enum { CHAINS = 12 };
    vf a[CHAINS], x = vf_set1(0.999f), y = vf_set1(1e-3f);
#pragma GCC unroll 12
    for (int k = 0; k < CHAINS; k++) a[k] = vf_set1((float)k);
    for (int64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (int k = 0; k < CHAINS; k++) a[k] = vf_fma(a[k], x, y);
        __asm__ volatile("" ::: "memory"); /* a round is not to be folded into the next */
    }
#pragma GCC unroll 12
    for (int k = 1; k < CHAINS; k++) a[0] = vf_add(a[0], a[k]);
    vf_store(sink, a[0]);
    return (double)(2 * (int)CHAINS * (int)VL) * (double)rounds;
}

const ln_cpu_ceilings LN_ISA(ln_cpu_ceilings) = {read_pass, multiply_pass};
