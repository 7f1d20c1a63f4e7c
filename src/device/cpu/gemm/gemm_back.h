/* The backward products of the AMX level, as a list (ln_kernels_add; gemm_back_amx.inc.h). */
#ifndef LN_GEMM_BACK_H
#define LN_GEMM_BACK_H

#include "../cpu.h"

extern const ln_kernel_row ln_cpu_train_amx[];

#endif
