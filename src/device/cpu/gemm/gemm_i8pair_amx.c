/* linear and linear_gated of int8 pairs on AMX: by tiles; up to four rows of
 * 4-bit and 8-bit codes by VNNI, which reads them as fast and does not wait for the tile unit. */
#include "../cpu.h"
#define LN_VNNI
#include "../simd/simd_avx512.h"
#include "../simd/simd_amx.h"
#include "gemm_i8pair_amx.inc.h"
#include "gemm_i8pair_vnni.inc.h"

static void i8pair_gemm_run(const ln_call *c) {
    if (i8pair_vnni_serves(c)) i8pair_vnni_run(c);
    else i8pair_amx_run(c);
}
/* The weights that one pass reads. By VNNI a gated pair's gate comes first; by tiles both weights are read as
 * two streams. */
static void i8pair_gemm_reads(const ln_call *c, ln_reads *out) {
    const ln_affine *w = c->in[1].data, *up = gate_act_of(c->node) ? c->in[2].data : NULL;
    int64_t row, end, lo, hi, n = 1;
    if (i8pair_vnni_serves(c)) n = vnni_partition(c, &lo, &hi);
    else partition(c, &row, &end, &lo, &hi);
    *out = ln_cpu_weight_reads(w->codes, ln_packed_block_bytes(w, c->in[0].cols), lo, hi, n);
    if (up && !i8pair_vnni_serves(c)) out->second = (int64_t)((uintptr_t)up->codes - (uintptr_t)w->codes);
}
static size_t i8pair_gemm_scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    return LN_MAX(i8pair_vnni_scratch(p, n, b), i8pair_amx_scratch(p, n, b));
}

void ln_cpu_i8pair_constants_amx(uint8_t *out, int64_t pitch, const float *numbers, int64_t n, int bits,
                                 const float *units) {
    pack_dequant_constants(out, pitch, numbers, n, bits, units);
}
#define I8PAIR_KERNEL                                                                                 \
    {                                                                                                 \
        .fn = i8pair_gemm_run, .scratch = i8pair_gemm_scratch, .pieces = tune_gemm_i8pair_CHUNKS_amx, \
        .reads = i8pair_gemm_reads                                                                    \
    }
const ln_kernel_row ln_cpu_i8pair_amx[] = {
    {LN_OP_LINEAR, 1 << LN_PRODUCT_I8PAIR_AFFINE, I8PAIR_KERNEL},
    {LN_OP_LINEAR_GATED, 1 << LN_PRODUCT_I8PAIR_AFFINE, I8PAIR_KERNEL},
    {0},
};
