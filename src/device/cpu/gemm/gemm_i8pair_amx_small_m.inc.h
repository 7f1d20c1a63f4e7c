/* GEMM of int8 digit pairs on AMX, up to 16 rows: reading the codes from memory is the limit.
 *
 * Loop nest (MR = one row tile, NR = 2 blocks of 16 outputs, each a stream of its own through one half of
 * the thread's outputs; of a gated pair the block of gate and the same block of up):
 *
 *     for 2 blocks of outputs
 *       for 64 columns of x
 *         multiply tile t                    | dequantised two steps ago, in a ring of RING_SLOTS
 *         dequantise tile t + 2              | a tile cannot be loaded from stores that are still in flight
 *         epilogue of one row of the 2 blocks before
 *
 *     ring: | slot t: block 0 H, L; block 1 H, L | slot t + 1 | slot t + 2 |   (panel in scratch, 12 KB)
 *
 * Codes are prefetched PREFETCH_BYTES ahead. Part of gemm_i8pair_amx.inc.h, whose names it uses. */
/* dequant_tiles, which prefetches what comes PREFETCH_BYTES later. */
INLINE void small_m_dequant(const int bits, const int64_t group, const i8pair_gemm *t, dequant_stream *s,
                            bool is_first, int64_t k, uint8_t *h) {
    const uint8_t *prefetch_at =
        s->group + (k & (LN_MAX(group, ROW_BYTES) - 1)) * ROW_BYTES * bits / 32 + PREFETCH_BYTES;
    const int64_t bytes =
        group == ROW_BYTES ? 2 * ROW_BYTES * bits + ROW_BYTES /* and scales of two bytes */ : t->tile_bytes;
    for (int64_t i = 0; i < bytes; i += ROW_BYTES) prefetch_l1(prefetch_at + i);
    dequant_tiles(bits, group, t, s, is_first, k, h);
}
/* The products of 64 columns of x, whose high digits are at a and low digits at a_low, and a block's tiles at
 * w, into the sums in registers hi and lo. Macros, since registers are literals in the instruction. */
#define SMALL_M_ONE(hi, lo, a, a_low, row, w)  \
    tile_load(4, a, row);                      \
    tile_load(6, w, ROW_BYTES);                \
    tile_dpbsud(hi, 4, 6);                     \
    tile_load(7, (w) + TILE_BYTES, ROW_BYTES); \
    tile_dpbsud(lo, 4, 7);                     \
    tile_load(5, a_low, row);                  \
    tile_dpbsud(lo, 5, 6);
/* Those of two blocks, which share the A tiles, with two statements in between that overlap. */
#define SMALL_M_BOTH(a, a_low, row, w, overlap0, overlap1) \
    tile_load(4, a, row);                                  \
    tile_load(6, w, ROW_BYTES);                            \
    tile_dpbsud(0, 4, 6);                                  \
    tile_load(7, (w) + TILE_BYTES, ROW_BYTES);             \
    tile_dpbsud(1, 4, 7);                                  \
    tile_load(5, a_low, row);                              \
    tile_load(7, (w) + 2 * TILE_BYTES, ROW_BYTES);         \
    overlap0;                                              \
    tile_dpbsud(1, 5, 6);                                  \
    tile_dpbsud(2, 4, 7);                                  \
    tile_load(6, (w) + 3 * TILE_BYTES, ROW_BYTES);         \
    tile_dpbsud(3, 4, 6);                                  \
    overlap1;                                              \
    tile_dpbsud(3, 5, 7);
/* Up to two blocks, block_stride blocks from half other, whose complete sums are in `last`: their epilogue
 * runs beside the products of the next ones. */
typedef struct block_set {
    int64_t n, b, block_stride;
} block_set;
static void small_m_epilogue(const i8pair_gemm *t, const block_set *w, int64_t from, int64_t to) {
    for (int64_t j = 0; j < w->n; j++) {
        epilogue_state f =
            epilogue_begin(t, t->last + j * SUMS + from * TILE_ROWS, SUMS / 2 * sizeof(int32_t), from,
                           to - from, w->b + j * w->block_stride);
        epilogue_run(epilogue_of(t, w->b + j * w->block_stride, false), &f);
    }
}
/* All columns of N blocks from b, block_stride from half other; meanwhile the epilogue of the blocks before:
 * a row at half 64 columns, what is left at the last. */
INLINE void small_m_kernel(const int N, const int bits, const int64_t group, i8pair_gemm *t, int64_t rows,
                           int64_t b, int64_t block_stride, const block_set *pending) {
    const a_layout x = a_layout_of(LAYOUT_ANY, t, 0);
    const int64_t slot_bytes = SMALL_M_BLOCKS * 2 * TILE_BYTES;
    uint8_t *now = t->panel, *then = now + slot_bytes, *later = then + slot_bytes;
    dequant_stream s[SMALL_M_BLOCKS];
#pragma GCC unroll 2
    for (int j = 0; j < SMALL_M_BLOCKS; j++) {
        s[j] = stream_at(t, j < N ? b + j * block_stride : b, 0);
        if (j >= N) continue;
        small_m_dequant(bits, group, t, &s[j], true, 0, now + j * 2 * TILE_BYTES);
        if (ROW_BYTES < t->C)
            small_m_dequant(bits, group, t, &s[j], false, ROW_BYTES, then + j * 2 * TILE_BYTES);
    }
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    const uint8_t *a = t->x;
    for (int64_t k = 0, r = 0; k < t->C; k += ROW_BYTES, a += x.step) {
        const int64_t k_ahead = k + 2 * ROW_BYTES;
        if (N > 1 && bits <= 4) {
            SMALL_M_BOTH(a, a + x.low_offset, x.row, now,
                         if (k_ahead < t->C) small_m_dequant(bits, group, t, &s[0], false, k_ahead, later),
                         if (k_ahead < t->C)
                             small_m_dequant(bits, group, t, &s[1], false, k_ahead, later + 2 * TILE_BYTES))
        } else { /* at 8 bits sharing the A tiles is slower (docs/performance.md) */
            SMALL_M_ONE(0, 1, a, a + x.low_offset, x.row, now)
            if (k_ahead < t->C) small_m_dequant(bits, group, t, &s[0], false, k_ahead, later);
            if (N > 1) {
                SMALL_M_ONE(2, 3, a, a + x.low_offset, x.row, now + 2 * TILE_BYTES)
                if (k_ahead < t->C)
                    small_m_dequant(bits, group, t, &s[1], false, k_ahead, later + 2 * TILE_BYTES);
            }
        }
        const int64_t row_end = k + ROW_BYTES < t->C ? LN_MIN(r + 1, rows) : rows;
        small_m_epilogue(t, pending, r, row_end);
        r = row_end;
        uint8_t *done = now;
        now = then;
        then = later;
        later = done;
    }
    SUMS_STORE(0, 1, t->last, SUMS / 2)
    if (N > 1) SUMS_STORE(2, 3, t->last + SUMS, SUMS / 2)
}
#define SMALL_M_ARGS i8pair_gemm *t, int64_t rows, int64_t b, int64_t block_stride, const block_set *pending
typedef void small_m_fn(SMALL_M_ARGS);
#define SMALL_M_KERNELS(bits, name, group)                                 \
    static void small_m_1_##name(SMALL_M_ARGS) {                           \
        small_m_kernel(1, bits, group, t, rows, b, block_stride, pending); \
    }                                                                      \
    static void small_m_2_##name(SMALL_M_ARGS) {                           \
        small_m_kernel(2, bits, group, t, rows, b, block_stride, pending); \
    }
#define ANY_GROUP(bits) SMALL_M_KERNELS(bits, bits, t->w->code.group)
/* clang-format off */
ANY_GROUP(2) ANY_GROUP(3) ANY_GROUP(4) ANY_GROUP(5) ANY_GROUP(6) ANY_GROUP(8)
SMALL_M_KERNELS(4, 4_of_64, ROW_BYTES) SMALL_M_KERNELS(8, 8_of_64, ROW_BYTES)
#undef ANY_GROUP
#define SMALL_M_ROW(bits, name) [bits] = {small_m_1_##name, small_m_2_##name}
static small_m_fn *const small_m_kernels[9][SMALL_M_BLOCKS] = {
    SMALL_M_ROW(2, 2), SMALL_M_ROW(3, 3), SMALL_M_ROW(4, 4),
    SMALL_M_ROW(5, 5), SMALL_M_ROW(6, 6), SMALL_M_ROW(8, 8)};
/* groups of 64: constant loop bounds */
static small_m_fn *const small_m_kernels_g64[9][SMALL_M_BLOCKS] = {
    SMALL_M_ROW(4, 4_of_64), SMALL_M_ROW(8, 8_of_64)};
/* clang-format on */

static void run_small_m(i8pair_gemm *t, int64_t rows, int64_t lo, int64_t hi) {
    small_m_fn *const *fns = (t->w->code.group == ROW_BYTES && small_m_kernels_g64[t->w->code.bits][0]
                                  ? small_m_kernels_g64
                                  : small_m_kernels)[t->w->code.bits];
    const int64_t half = (hi - lo) / SMALL_M_BLOCKS, blocks = t->function ? hi - lo : half,
                  by = t->function ? SMALL_M_BLOCKS : 1, block_stride = t->function ? 1 : half;
    block_set pending = {0};
    configure_tiles(t, rows, rows);
    for (int64_t b = lo; b < lo + blocks; b += by) {
        fns[1](t, rows, b, block_stride, &pending);
        pending = (block_set){SMALL_M_BLOCKS, b, block_stride};
    }
    if ((hi - lo) % SMALL_M_BLOCKS) {
        fns[0](t, rows, hi - 1, 1, &pending);
        pending = (block_set){1, hi - 1, 1};
    }
    small_m_epilogue(t, &pending, 0, rows);
}
