/* linear on AMX: bf16 weights by tiles; weights in f32 and f16 as on AVX-512. */
#include "cpu.h"
#include "simd_amx.h"
#include "tiles_tmpl.h"

static void linear_run(const ln_call *c) {
    if (c->in[1].dtype == LN_BF16) tiles_run(c);
    else ln_cpu_linear_run_avx512(c);
}

void ln_cpu_linear_amx(ln_kernel table[LN_OP_COUNT]) { table[LN_OP_LINEAR] = (ln_kernel){linear_run, tiles_scratch}; }
