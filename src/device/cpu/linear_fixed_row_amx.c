/* linear_fixed_row, linear_fixed_row_swiglu and linear_fixed_row_geglu on AMX, by tiles; up to four rows of codes of 4 and 8 bits by VNNI, which reads them as fast and needs no tile unit. */
#include "cpu.h"
#define LN_VNNI
#include "simd_avx512.h"
#include "simd_amx.h"
#define GATED_ROWS ln_cpu_rows_avx512
#include "tiles_row_tmpl.h"
#include "lines_row_tmpl.h"

static void linear_fixed_row_run(const ln_call *c) {
    if (lines_row_serves(c)) lines_row_run(c);
    else tiles_row_run(c);
}
/* Blocks of the share of rows that go in one pass; how many streams they are: of tiles each is a half of the share, of which the first is told. */
static int64_t row_share(const ln_call *c, int64_t *lo, int64_t *hi) {
    int64_t row, end;
    if (lines_row_serves(c)) return lines_share(c, lo, hi);
    share_of(c, &row, &end, lo, hi);
    return 1;
}
/* Weights of rows that go in one pass, a pair's first. */
static void linear_fixed_row_reads(const ln_call *c, ln_reads *out) {
    const ln_affine *w = c->in[1].data;
    int64_t lo, hi;
    const int64_t n = row_share(c, &lo, &hi);
    *out = ln_cpu_reads(w->codes, ln_pack_block_q(w->enc, w->dtype, c->in[0].cols), lo, hi, n);
}
static size_t linear_fixed_row_scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    return LN_MAX(lines_row_scratch(n, values, b), tiles_row_scratch(n, values, b));
}

static void gated_row_run(const ln_call *c) { tiles_gated_run(c, linear_fixed_row_run, row_share); }
static size_t gated_row_scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    return tiles_gated_bytes(n, values, b) + linear_fixed_row_scratch(n, values, b);
}

void ln_cpu_linear_fixed_row_amx(ln_kernel table[LN_OP_COUNT]) {
    table[LN_OP_LINEAR_FIXED_ROW] = (ln_kernel){.fn = linear_fixed_row_run, .scratch = linear_fixed_row_scratch, .pieces = 4, .reads = linear_fixed_row_reads};
    table[LN_OP_LINEAR_FIXED_ROW_SWIGLU] = table[LN_OP_LINEAR_FIXED_ROW_GEGLU] =
        (ln_kernel){.fn = gated_row_run, .scratch = gated_row_scratch, .pieces = 4, .reads = linear_fixed_row_reads};
}
