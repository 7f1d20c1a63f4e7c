/* attn_paged over bf16 pages on AMX, by tiles. */
#include "../cpu.h"
#include "../simd/simd_avx512.h"
#include "../simd/simd_amx.h"
#include "attn_amx.inc.h"

const ln_kernel_row ln_cpu_attn_amx[] = {
    {LN_OP_ATTN_PAGED,
     1 << 1 | 1 << 3,
     {.fn = attn_amx_tiles_run, .scratch = attn_scratch, .pieces = tune_attn_CHUNKS_all}},
    {0},
};
