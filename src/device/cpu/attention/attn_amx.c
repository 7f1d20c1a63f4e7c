/* attn_paged on AMX: over bf16 pages by tiles, over f32 pages as on AVX-512. */
#include "../cpu.h"
#include "../simd/simd_avx512.h"
#include "../simd/simd_amx.h"
#include "attn_amx.inc.h"

static void attn_amx_run(const ln_call *c) {
    if (c->node->p.attn.kv.dtype == LN_BF16) attn_amx_tiles_run(c);
    else ln_cpu_attn_kernel_avx512.fn(c);
}
static size_t attn_amx_scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    return n->p.attn.kv.dtype == LN_BF16 ? attn_scratch(n, values, b)
                                         : ln_cpu_attn_kernel_avx512.scratch(n, values, b);
}

void ln_cpu_attn_amx(ln_kernel table[LN_OP_COUNT]) {
    table[LN_OP_ATTN_PAGED] =
        (ln_kernel){.fn = attn_amx_run, .scratch = attn_amx_scratch, .pieces = tune_attn_CHUNKS_all};
}
