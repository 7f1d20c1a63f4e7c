/* linear_back and the cross-entropy of a product on AMX. Operands in f32, of exact numerics, go to the
 * kernels of AVX-512. */
#include "gemm_back.h"

#include "../simd/simd_avx512.h"
#include "../simd/simd_amx.h"
#include "gemm_bf16_amx.inc.h"
#include "gemm_back_amx.inc.h"

static const ln_kernel *f32_kernel(ln_op op) {
    const ln_kernel_row *row = ln_cpu_train_avx512;
    while (row->op != op) row++;
    return &row->kernel;
}
static size_t scratch_of(const ln_program *p, const ln_pnode *n, const ln_bounds *b,
                         size_t (*of_tiles)(const ln_program *, const ln_pnode *, const ln_bounds *)) {
    return ln_program_value(p, n->in[0])->format.kind == LN_FORMAT_BF16 ? of_tiles(p, n, b)
                                                                        : f32_kernel(n->op)->scratch(p, n, b);
}
static size_t back_scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    return scratch_of(p, n, b, back_amx_scratch);
}
static size_t loss_scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    return scratch_of(p, n, b, loss_amx_scratch);
}
static void back_run(const ln_call *c) {
    (ln_arg_is_bf16(&c->in[0]) ? back_amx_run : f32_kernel(LN_OP_LINEAR_BACK)->fn)(c);
}
static void loss_run(const ln_call *c) {
    (ln_arg_is_bf16(&c->in[0]) ? loss_amx_run : f32_kernel(LN_OP_LINEAR_CROSS_ENTROPY)->fn)(c);
}

const ln_kernel_row ln_cpu_train_amx[] = {
    {LN_OP_LINEAR_BACK, 1 << LN_STORED_BF16, {.fn = back_run, .scratch = back_scratch}},
    {LN_OP_LINEAR_CROSS_ENTROPY, 1 << LN_STORED_BF16, {.fn = loss_run, .scratch = loss_scratch}},
    {0},
};
