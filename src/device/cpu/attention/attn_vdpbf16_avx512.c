/* attn_paged on AVX-512 with AVX512_BF16: bf16 queries over bf16 pages by pairs, twice as many multiply-adds
 * an instruction, with the same bits; queries in f32, and calls that wait
 * for memory, as without it. */
#include "../simd/simd_avx512.h"
#undef LN_ISA
#define LN_ISA(name) name##_vdpbf16
#define LN_BF16_DOT
#include "attn_vector.inc.h"

/* One row of each sequence, and up to PREFETCH_M heads that share keys: bound by memory, a little longer by
 * pairs (docs/performance.md). */
static bool waits_for_memory(const ln_call *c) {
    return c->step->n_rows == c->step->n_seqs &&
           c->node->p.attn.n_heads <= PREFETCH_M * c->node->p.attn.kv.n_kv_heads;
}

static void run(const ln_call *c) {
    if (ln_arg_is_bf16(&c->in[0]) && !waits_for_memory(c)) attn_run(c);
    else ln_cpu_attn_kernel_avx512.fn(c);
}
static size_t scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    return LN_MAX(attn_scratch(p, n, b), ln_cpu_attn_kernel_avx512.scratch(p, n, b));
}

const ln_kernel_row ln_cpu_attn_vdpbf16[] = {
    {LN_OP_ATTN_PAGED, 1 << 1 | 1 << 3, {.fn = run, .scratch = scratch, .pieces = tune_attn_CHUNKS_all}},
    {0},
};
