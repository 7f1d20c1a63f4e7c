/* linear_fixed on AMX, by tiles; a row or two as on AVX-512 with VNNI, which reads codes as fast and needs no tile unit. */
#include "cpu.h"
#include "simd_avx512.h"
#include "simd_amx.h"
#include "tiles_fixed_tmpl.h"

enum { ROWS_OF_VECTORS = 2 };

static ln_kernel vectors(void) {
    ln_kernel table[LN_OP_COUNT];
    ln_cpu_linear_fixed_vnni(table);
    return table[LN_OP_LINEAR_FIXED];
}
static void linear_fixed_run(const ln_call *c) {
    if (c->out[0].rows <= ROWS_OF_VECTORS) vectors().fn(c);
    else tiles_fixed_run(c);
}
static size_t linear_fixed_scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    return LN_MAX(vectors().scratch(n, values, b), tiles_fixed_scratch(n, values, b));
}

void ln_cpu_linear_fixed_amx(ln_kernel table[LN_OP_COUNT]) { table[LN_OP_LINEAR_FIXED] = (ln_kernel){linear_fixed_run, linear_fixed_scratch}; }
