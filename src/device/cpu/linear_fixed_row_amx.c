/* linear_fixed_row on AMX, by tiles; up to four rows of codes of 4 and 8 bits by VNNI, which reads them as fast and needs no tile unit. */
#include "cpu.h"
#define LN_VNNI
#include "simd_avx512.h"
#include "simd_amx.h"
#include "tiles_row_tmpl.h"
#include "lines_row_tmpl.h"

static void linear_fixed_row_run(const ln_call *c) {
    if (lines_row_serves(c)) lines_row_run(c);
    else tiles_row_run(c);
}
/* Weights of up to SIDE rows. */
static void linear_fixed_row_reads(const ln_call *c, ln_reads *out) {
    const ln_affine *w = c->in[1].data;
    const int64_t block = ln_pack_block_q(w->enc, w->dtype, c->in[0].cols);
    int64_t lo, hi;
    const bool lines = lines_row_serves(c);
    const int n = lines ? (int)lines_blocks(w->enc.bits, c->out[0].rows) : FEW;
    ln_share(ln_pack_blocks(c->out[0].cols), n, c->thread, c->n_threads, &lo, &hi);
    *out = (ln_reads){w->codes + lo * block, w->codes + hi * block, block, lines ? n : 1}; /* tiles: each stream is a half of the share */
}
static size_t linear_fixed_row_scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    return LN_MAX(lines_row_scratch(n, values, b), tiles_row_scratch(n, values, b));
}

void ln_cpu_linear_fixed_row_amx(ln_kernel table[LN_OP_COUNT]) {
    table[LN_OP_LINEAR_FIXED_ROW] = (ln_kernel){.fn = linear_fixed_row_run, .scratch = linear_fixed_row_scratch, .pieces = 4, .reads = linear_fixed_row_reads};
}
