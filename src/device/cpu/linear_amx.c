/* linear and linear_q on AMX, by tiles: bf16 weights, and affine groups where x holds bf16 numbers (fast). The others as on AVX-512. */
#include "cpu.h"
#include "simd_amx.h"
#include "tiles_tmpl.h"
#include "tiles_q_tmpl.h"

static void linear_run(const ln_call *c) {
    if (c->in[1].dtype == LN_BF16) tiles_run(c);
    else ln_cpu_linear_run_avx512(c);
}

static ln_kernel vectors(void) {
    ln_kernel table[LN_OP_COUNT];
    ln_cpu_linear_q_avx512(table);
    return table[LN_OP_LINEAR_Q];
}
static void linear_q_run(const ln_call *c) {
    if (c->in[0].bf16) tiles_q_run(c);
    else vectors().fn(c);
}
static size_t linear_q_scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    return values[n->in[0]].bf16 ? tiles_q_scratch(n, values, b) : vectors().scratch(n, values, b);
}

static const ln_kernel gated_linear = {linear_run, tiles_scratch};
#define GATED_LINEAR gated_linear
#define GATED_ROWS ln_cpu_rows_avx512
#include "gated_tmpl.h"

void ln_cpu_linear_amx(ln_kernel table[LN_OP_COUNT]) {
    table[LN_OP_LINEAR] = (ln_kernel){linear_run, tiles_scratch};
    table[LN_OP_LINEAR_SWIGLU] = table[LN_OP_LINEAR_GEGLU] = (ln_kernel){gated_run, gated_scratch};
    table[LN_OP_LINEAR_Q] = (ln_kernel){linear_q_run, linear_q_scratch};
}
