/* The floating-point environment in which the library computes: rounding to nearest, all exceptions masked.
 *
 * A process may have changed its own (fesetround, feenableexcept, the start code of -ffast-math), and a new
 * thread inherits that of the thread that starts it. Results must not depend on it. Therefore each public
 * function that computes sets the default environment (ENTER and ARG of args/args.h), the engine's thread
 * and the workers of a thread pool set it when they start, and each job of a pool runs in that of
 * ln_float_env_flush. A public function restores exactly what it has found, the flags of exceptions included.
 *
 * On x86-64 the environment is the x87 control and status words, which the C library's conversions between
 * numbers and texts read, and MXCSR; on aarch64 it is FPCR and FPSR. */
#ifndef LN_FLOAT_ENV_H
#define LN_FLOAT_ENV_H

#include "base.h"

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <fenv.h>
#endif

typedef struct ln_float_env {
#if defined(__x86_64__)
    uint32_t x87[7]; /* as fnstenv stores it */
    uint32_t mxcsr;
#elif defined(__aarch64__)
    uint64_t fpcr, fpsr;
#else
    fenv_t all;
#endif
} ln_float_env;

/* Stores the environment of the calling thread in *old and sets the default one, which keeps denormals. */
static inline void ln_float_env_default(ln_float_env *old) {
#if defined(__x86_64__)
    const uint16_t x87_default = 0x37f;
    const uint32_t mxcsr_default = 0x1f80;
    __asm__ volatile("fnstenv %0\n\tfnclex\n\tfldcw %2\n\tstmxcsr %1\n\tldmxcsr %3"
                     : "=m"(old->x87), "=m"(old->mxcsr)
                     : "m"(x87_default), "m"(mxcsr_default)
                     : "memory");
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr\n\tmsr fpcr, xzr\n\tmsr fpsr, xzr"
                     : "=&r"(old->fpcr), "=&r"(old->fpsr)
                     :
                     : "memory");
#else
    (void)fegetenv(&old->all);
    (void)fesetenv(FE_DFL_ENV);
#endif
}

/* The same environment, but denormals are zero (FTZ and DAZ, FZ on aarch64): that of kernels. It does not set
 * the x87 words, which no kernel uses, and is cheap enough for every job. */
static inline void ln_float_env_flush(ln_float_env *old) {
#if defined(__x86_64__)
    const uint32_t mxcsr_flush = 0x9fc0;
    __asm__ volatile("stmxcsr %0\n\tldmxcsr %1" : "=m"(old->mxcsr) : "m"(mxcsr_flush) : "memory");
#elif defined(__aarch64__)
    const uint64_t fpcr_flush = 1u << 24;
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr\n\tmsr fpcr, %2"
                     : "=&r"(old->fpcr), "=&r"(old->fpsr)
                     : "r"(fpcr_flush)
                     : "memory");
#else
    ln_float_env_default(old);
#endif
}

/* Restores what ln_float_env_flush stored. */
static inline void ln_float_env_unflush(const ln_float_env *old) {
#if defined(__x86_64__)
    __asm__ volatile("ldmxcsr %0" : : "m"(old->mxcsr) : "memory");
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0\n\tmsr fpsr, %1" : : "r"(old->fpcr), "r"(old->fpsr) : "memory");
#else
    (void)fesetenv(&old->all);
#endif
}

/* Restores what ln_float_env_default stored. */
static inline void ln_float_env_restore(const ln_float_env *old) {
#if defined(__x86_64__)
    __asm__ volatile("fldenv %0" : : "m"(old->x87) : "memory");
#endif
    ln_float_env_unflush(old);
}

#endif
