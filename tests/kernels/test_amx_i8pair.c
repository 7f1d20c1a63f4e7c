/* Tests linear and linear_gated of int8 pairs on int8 tiles (device/cpu/gemm/gemm_i8pair_amx.inc.h) against
 * the reference kernel: equality of bits for every bit width, group size, type of scales and number of rows,
 * between guard pages. The kernel runs on models of the tile and vector instructions, with smaller blocks
 * than in the library; test_linear_i8pair runs it on the instructions if the machine has them. */
/* run: slow */
#define LN_I8PAIR_KC        320 /* KC blocks that begin within a group of 128 */
#define LN_I8PAIR_LARGE_KC  192
#define LN_I8PAIR_A_BYTES   (96 << 10)
#define LN_I8PAIR_MIN_MC    64
#define LN_I8PAIR_LARGE_MC  64
#define LN_I8PAIR_NC_BLOCKS 3
#include "tile_model.h"
#include "lanes_model.h"
#include "device/cpu/gemm/gemm_i8pair_amx.inc.h"

#define ROW_COEFFICIENTS pack_dequant_constants
#include "row_check.h"

static void check(int64_t rows, int64_t D, int64_t C, ln_groups enc, ln_dtype dtype, int bias, bool special) {
    const ln_kernel tiles = {.fn = i8pair_amx_run, .scratch = i8pair_amx_scratch};
    row_check(&tiles, "tiles in C", rows, D, C, enc, dtype, bias, special);
}
#define SUITE "amx row"
#include "row_cases.h"
