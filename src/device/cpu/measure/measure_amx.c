/* What a core can do at best with tiles: read memory as B tiles, and multiply and add bf16 pairs in
 * registers. */
#include "../cpu.h"
#include "../simd/simd_amx.h"

enum { TILE = 1024 };

static void all_tiles(void) {
    tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) c.rows[t] = 16, c.bytes[t] = 64;
    tile_configure(&c);
}

static void read_pass(const float *data, int64_t n, int64_t prefetch, float *sink) {
    const char *p = (const char *)data, *end = p + n * (int64_t)sizeof *data;
    all_tiles();
    for (; p + 4 * TILE <= end; p += 4 * TILE) {
        for (int64_t i = 0; prefetch && i < 4 * TILE; i += 64)
            prefetch_l2(p + prefetch * (int64_t)sizeof *data + i);
        tile_load(0, p, 64);
        tile_load(1, p + TILE, 64);
        tile_load(2, p + 2 * TILE, 64);
        tile_load(3, p + 3 * TILE, 64);
    }
    (void)sink; /* the loads are volatile instructions: none is dropped */
    tile_release();
}

static double multiply_pass(int64_t rounds, float *sink) {
    all_tiles();
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    tile_zero(4);
    tile_zero(5);
    rounds /= 16; /* a round of the vector levels is a few cycles */
    for (int64_t i = 0; i < rounds; i++) {
        tile_dpbf16(0, 4, 5);
        tile_dpbf16(1, 4, 5);
        tile_dpbf16(2, 4, 5);
        tile_dpbf16(3, 4, 5);
    }
    (void)sink;
    tile_release();
    return 4.0 * 2 * 16 * 16 * 32 * (double)rounds;
}

const ln_cpu_ceilings ln_cpu_ceilings_amx = {read_pass, multiply_pass};
