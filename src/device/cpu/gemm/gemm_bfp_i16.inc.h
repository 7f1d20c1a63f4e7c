/* GEMM of affine group-quantised weights with block floating point activations on a vector ISA level
 * (linear), for every code width and group size, with the bits of the reference.
 *
 * What is computed. The activations of a group share a power-of-two scale u and are int16 v
 * (quant/block_float.h), t = u sum(v):
 *
 *     y = sum over groups of  s u (float)(sum(q v)) + b t
 *
 * Products of a group are added as int32, exactly, so only the order of groups counts: one sequential FMA
 * chain. Lanes run along outputs.
 *
 *     packed group (pack.h), 16 outputs:
 *         | 32 bits of codes of output 0 | .. of output 15 |   bits x group / 32 such lines of 64 bytes
 *         | 16 scales | 16 biases |                            in 8 bits if factors follow the block's groups
 *     panel: the same form, its codes 16 bits each and in the order of x, scales and biases in f32
 *     x, a row: | int16 pairs of group 0 | of group 1 | .. | u of each group | t of each group |
 *
 * A line of codes is shifted and masked into PAIRS pairs of 16-bit elements, each of which meets a pair of
 * x, broadcast to all lanes, in one VPDPWSSD or VPMADDWD; columns of x are in the order that masking gives
 * (ops.h).
 *
 *     up to SMALL_M rows, 4 or 8 bits   packed codes
 *         for groups of blocks              SMALL_M_BLOCKS(M) for up to four rows, else NR_BLOCKS
 *           for tile of MR rows             micro_kernel over all groups
 *     otherwise                             a panel, unpacked once for all rows
 *         for NR_BLOCKS blocks of outputs
 *           for KC columns
 *             for tile of MR rows           chains rest in y between KC
 *
 * Threads partition blocks of outputs, never columns. Included once per ISA level, after its simd header, by
 * a file that defines the register geometry, LN_MR and LN_NR_BLOCKS. Other parameters are in tuning.def. */
#include "../../../base/thread_pool.h"
#include "../../../ops/ops.h"
#include "../cpu.h"
#include "../simd/simd_affine.inc.h"
#include "../pack/pack.h"
#include "../tuning.h"

enum {
    VECTORS_PER_LINE = LN_PACK_NR / VL,      /* vectors of a block's 16 outputs */
    NR_BLOCKS = LN_NR_BLOCKS,                /* blocks of outputs of the largest micro-kernel */
    MR = LN_MR,                              /* rows of it */
    KC = LN_ISA(tune_gemm_bfp_KC),           /* columns of a panel */
    SMALL_M = LN_ISA(tune_gemm_bfp_SMALL_M), /* rows that read packed codes */
    SMALLEST_M = 4,                          /* rows that memory bounds */
    MAX_VECTORS = 8,                         /* of outputs in a micro-kernel */
    REGISTER_CHAINS = 4,                     /* M x V up to which chains stay in registers */
    SUMS = MR > 4 * REGISTER_CHAINS ? MR : 4 * REGISTER_CHAINS, /* rows of sums, with their copies */
    EDGE_PITCH = MAX_VECTORS / VECTORS_PER_LINE * LN_PACK_NR,
    PREFETCH_BYTES = LN_ISA(tune_gemm_bfp_PREFETCH_BYTES),     /* distance in each of several blocks */
    PREFETCH_BYTES_1 = LN_ISA(tune_gemm_bfp_PREFETCH_BYTES_1), /* distance in a block alone */
    SPLIT_SUMS = LN_ISA(tune_gemm_bfp_SPLIT_SUMS),
    PANEL_BYTES = NR_BLOCKS * (KC / 2 * 64 + KC / 16 * 128)
};
#define SMALL_M_BLOCKS(M) ((int)LN_ISA(tune_gemm_bfp_SMALL_M_BLOCKS_##M)) /* blocks at once, M a literal */
/* Copies of the sums: of few sums each pair of a 32-bit lane has its own, which do not wait for each other.
 * They are integers, so order does not count. */
#define SUM_COPIES(M, V, PAIRS) (SPLIT_SUMS && (M) * (V) <= REGISTER_CHAINS ? (PAIRS) : 1)

/* One run of the micro-kernel: n groups of M rows. */
typedef struct kernel_args {
    const uint8_t *codes; /* of the first block and group */
    int64_t block, step;  /* bytes to the next block (0: all are the same one), to the next group */
    ln_pack_units units;  /* how scales and biases are stored; their factors, of the first block and group */
    const uint8_t *factors;
    const float *x, *u; /* pairs of int16; the groups' u, and their t `groups` elements on */
    float *y;
    int64_t ldx, ldy, groups, group, n;
    bool begins;                                  /* the chains over groups begin here */
    const uint8_t *prefetch_here, *prefetch_then; /* prefetched meanwhile: for n_here groups, and then */
    int64_t n_here;
    int64_t prefetch_line, prefetch_group; /* bytes on for each line, for each group */
} kernel_args;

/* One line of each block: PAIRS pairs of codes in each lane of w meet as many pairs of x. */
INLINE void multiply_line(const int M, const int BL, const int PAIRS, const kernel_args *s, const uint8_t *p,
                          const uint8_t *next, const float *x, vi acc[SUMS][MAX_VECTORS]) {
    const int V = BL * VECTORS_PER_LINE, bits = 16 / PAIRS, copies = SUM_COPIES(M, V, PAIRS);
    const uint32_t mask = 0x10001u * ((1u << bits) - 1);
    vi w[MAX_VECTORS], q[MAX_VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
        if (PAIRS > 1 && v % VECTORS_PER_LINE == 0) prefetch_l1(next + v / VECTORS_PER_LINE * s->block);
        w[v] = vi_load(p + v / VECTORS_PER_LINE * s->block + v % VECTORS_PER_LINE * 4 * VL);
    }
#pragma GCC unroll 4
    for (int j = 0; j < PAIRS; j++) {
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            q[v] = PAIRS == 1       ? w[v]
                   : j == PAIRS - 1 ? vi_shr16(w[v], 16 - bits)
                                    : vi_and32(j ? vi_shr32(w[v], j * bits) : w[v], mask);
#pragma GCC unroll 8
        for (int m = 0; m < M; m++) {
            const vi a = vi_broadcast32(x + m * s->ldx + j);
#pragma GCC unroll 8
            for (int v = 0; v < V; v++)
                acc[m * copies + j % copies][v] = vi_dot_i16(q[v], a, acc[m * copies + j % copies][v]);
        }
    }
}

/* The micro-kernel: M rows, BL blocks; PAIRS: of codes in a 32-bit lane. */
INLINE void micro_kernel(const int M, const int BL, const int PAIRS, const kernel_args *s) {
    const int V = BL * VECTORS_PER_LINE, copies = SUM_COPIES(M, V, PAIRS);
    const bool in_registers =
        M * V <= REGISTER_CHAINS; /* chains over groups in registers too, otherwise in y */
    const int64_t lines = s->group / (2 * PAIRS);
    const uint8_t *at = s->codes;
    vf chain[MR][MAX_VECTORS];
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            chain[m][v] = in_registers && !s->begins ? vf_load(s->y + m * s->ldy + v * VL) : vf_zero();
    for (int64_t g = 0; g < s->n; g++, at += s->step) {
        const float *x = s->x + g * (s->group / 2);
        const uint8_t *p = at, *next = g < s->n_here ? s->prefetch_here + g * s->prefetch_group
                                                     : s->prefetch_then + (g - s->n_here) * s->prefetch_group;
        vi acc[SUMS][MAX_VECTORS]; /* of which M copies x V are */
#pragma GCC unroll 16
        for (int m = 0; m < M * copies; m++)
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) acc[m][v] = vi_zero();
        if (in_registers) /* lines come by fours */
            for (int64_t i = 0; i < lines; i += 4)
#pragma GCC unroll 4
                for (int j = 0; j < 4; j++, p += 64, next += s->prefetch_line, x += PAIRS)
                    multiply_line(M, BL, PAIRS, s, p, next, x, acc);
        else
            for (int64_t i = 0; i < lines; i++, p += 64, next += s->prefetch_line, x += PAIRS)
                multiply_line(M, BL, PAIRS, s, p, next, x, acc);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            const int64_t block = v / VECTORS_PER_LINE * s->block;
            const int lane = v % VECTORS_PER_LINE * VL;
            const uint8_t *n = at + block + 64 * lines,
                          *factors = s->factors ? ln_pack_factors_at(s->units, s->factors, g) + block : NULL;
            const vf scale = load_unit(s->units.dtype, n, factors, lane),
                     bias = load_unit(s->units.dtype, n, factors, LN_PACK_NR + lane);
#pragma GCC unroll 8
            for (int m = 0; m < M; m++) {
                const float *u = s->u + m * s->ldx + g;
                vi total = acc[m * copies][v];
                for (int j = 1; j < copies; j++) total = vi_add(total, acc[m * copies + j][v]);
                float *y = s->y + m * s->ldy + v * VL;
                const vf sum = in_registers ? chain[m][v] : s->begins && g == 0 ? vf_zero() : vf_load(y);
                chain[m][v] = vf_fma(bias, vf_set1(u[s->groups]),
                                     vf_fma(scale, vf_mul(vf_from_i32(total), vf_set1(*u)), sum));
                if (!in_registers) vf_store(y, chain[m][v]);
            }
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 8
        for (int v = 0; v < V && in_registers; v++) vf_store(s->y + m * s->ldy + v * VL, chain[m][v]);
}

typedef void micro_kernel_fn(const kernel_args *s);
#define KERNEL(M, BL, P, N) \
    static void kernel_##N##_##M##_##P(const kernel_args *s) { micro_kernel(M, BL, P, s); }
/* clang-format off */
#define KERNELS_6(P) \
    KERNEL(1, NR_BLOCKS, P, wide) KERNEL(2, NR_BLOCKS, P, wide) KERNEL(3, NR_BLOCKS, P, wide) \
    KERNEL(4, NR_BLOCKS, P, wide) KERNEL(5, NR_BLOCKS, P, wide) KERNEL(6, NR_BLOCKS, P, wide)
#define ROW_6(P) \
    kernel_wide_1_##P, kernel_wide_2_##P, kernel_wide_3_##P, kernel_wide_4_##P, kernel_wide_5_##P, \
    kernel_wide_6_##P
#if LN_MR == 8
#define KERNELS(P) KERNELS_6(P) KERNEL(7, NR_BLOCKS, P, wide) KERNEL(8, NR_BLOCKS, P, wide)
#define ROW(P) {ROW_6(P), kernel_wide_7_##P, kernel_wide_8_##P}
#else
#define KERNELS KERNELS_6
#define ROW(P) {ROW_6(P)}
#endif
KERNELS(1) KERNELS(2) KERNELS(4)
static micro_kernel_fn *const wide_kernels[3][MR] = {ROW(1), ROW(2), ROW(4)};
#if LN_NR_BLOCKS == 3 /* large M: what is left of a partition by threes; four blocks go as two and two */
KERNEL(1, 2, 1, two) KERNEL(2, 2, 1, two) KERNEL(3, 2, 1, two) KERNEL(4, 2, 1, two)
KERNEL(5, 2, 1, two) KERNEL(6, 2, 1, two) KERNEL(7, 2, 1, two) KERNEL(8, 2, 1, two)
enum { TWO_BLOCKS = 2 };
static micro_kernel_fn *const two_block_kernels[MR] = {
    kernel_two_1_1, kernel_two_2_1, kernel_two_3_1, kernel_two_4_1,
    kernel_two_5_1, kernel_two_6_1, kernel_two_7_1, kernel_two_8_1};
#else
enum { TWO_BLOCKS = 0 };
static micro_kernel_fn *const two_block_kernels[1];
#endif
#define KERNELS_SMALL_M(P) \
    KERNEL(1, SMALL_M_BLOCKS(1), P, small) KERNEL(2, SMALL_M_BLOCKS(2), P, small) \
    KERNEL(3, SMALL_M_BLOCKS(3), P, small) KERNEL(4, SMALL_M_BLOCKS(4), P, small)
#define SMALL_M_ROW(P) {kernel_small_1_##P, kernel_small_2_##P, kernel_small_3_##P, kernel_small_4_##P}
KERNELS_SMALL_M(4) KERNELS_SMALL_M(2)
/* [whether of 8 bits][rows - 1] */
static micro_kernel_fn *const small_m_kernels[2][SMALLEST_M] = {SMALL_M_ROW(4), SMALL_M_ROW(2)};
/* clang-format on */

typedef struct bfp_gemm {
    const ln_affine *w; /* packed */
    ln_pack_units units;
    int64_t block, group_bytes, groups;
    int64_t rows, D, C, ldx, ldy;
    const float *x;
    float *y;
} bfp_gemm;

/* ---- the panel ---- */

/* Group g of a block: its codes as pairs, in the order of x; scales and biases in f32. */
static void unpack_group(const bfp_gemm *l, const uint8_t *block, int64_t g, uint8_t *to) {
    const uint8_t *from = block + g * l->group_bytes,
                  *factors = ln_pack_factors_at(l->units, block + l->groups * l->group_bytes, g);
    const int bits = l->w->code.bits, group = l->w->code.group;
    const bool by_mask = bits == 4 || bits == 8;
    const uint8_t *scales = from + 64 * (group * bits / 32);
    for (int at = 0; at < 64; at += 4 * VL)
        for (int i = 0; i < group / 2; i++) {
            const int per = 16 / bits; /* pairs of a 32-bit lane, if masks give them */
            if (at == 0 && i % per == 0) prefetch_l1(from + i / per * 64 + PREFETCH_BYTES);
            const vi pair = by_mask ? vi_and32(vi_shr32(vi_load(from + i / per * 64 + at), i % per * bits),
                                               0x10001u * ((1u << bits) - 1))
                                    : vi_or(load_code(from + at, bits, 2 * i),
                                            vi_shl32(load_code(from + at, bits, 2 * i + 1), 16));
            vi_store(to + i * 64 + at, pair);
        }
    for (int i = 0; i < 2 * LN_PACK_NR; i += VL)
        vf_store((float *)(void *)(to + 32 * group) + i, load_unit(l->units.dtype, scales, factors, i));
}

/* ---- all rows over n blocks from b: as many as a kernel takes at once, two for large M, or one ---- */

/* Rows [r, r + m) of the groups that s spans, of the outputs from d on. Where y has no room for all of a
 * kernel's outputs they go through `edge`. */
static void run_tile(const bfp_gemm *l, kernel_args *s, micro_kernel_fn *fn, int64_t r, int64_t m, int64_t d,
                     int64_t n_d, bool whole) {
    float *y = l->y + r * l->ldy + d, edge[MR][EDGE_PITCH];
    if (!whole) memset(edge, 0, sizeof edge);
    s->y = whole ? y : edge[0];
    s->ldy = whole ? l->ldy : EDGE_PITCH;
    for (int64_t i = 0; i < m && !whole && !s->begins; i++)
        memcpy(edge[i], y + i * l->ldy, (size_t)n_d * sizeof *y);
    fn(s);
    for (int64_t i = 0; i < m && !whole; i++) memcpy(y + i * l->ldy, edge[i], (size_t)n_d * sizeof *y);
}

/* The kernels of packed codes take four lines of codes at a time. */
static bool reads_packed_codes(const bfp_gemm *l) {
    const ln_groups e = l->w->code;
    return (e.bits == 4 || e.bits == 8) && e.group * e.bits >= 128 && l->rows <= SMALL_M;
}
static bool is_smallest_m(const bfp_gemm *l) { return reads_packed_codes(l) && l->rows <= SMALLEST_M; }
static int64_t blocks_at_once(const bfp_gemm *l) {
    static const int8_t blocks[SMALLEST_M] = {SMALL_M_BLOCKS(1), SMALL_M_BLOCKS(2), SMALL_M_BLOCKS(3),
                                              SMALL_M_BLOCKS(4)};
    return is_smallest_m(l) ? blocks[LN_MAX(l->rows, (int64_t)1) - 1] : NR_BLOCKS;
}

static void run_blocks(const bfp_gemm *l, int64_t b, int64_t n, uint8_t *panel) {
    const ln_groups e = l->w->code;
    const bool direct = reads_packed_codes(l);
    const int64_t tiles = (l->rows + MR - 1) / MR, d = b * LN_PACK_NR, n_d = LN_MIN(n * LN_PACK_NR, l->D - d),
                  groups_per_panel = direct ? l->groups : KC / e.group;
    const uint8_t *codes = l->w->codes + b * l->block, *next = codes + n * l->block;
    const bool two = n == TWO_BLOCKS && !direct;
    micro_kernel_fn *const *fns = two                ? two_block_kernels
                                  : is_smallest_m(l) ? small_m_kernels[e.bits == 8]
                                                     : wide_kernels[!direct       ? 0
                                                                    : e.bits == 8 ? 1
                                                                                  : 2];
    for (int64_t g = 0; g < l->groups; g += groups_per_panel) {
        kernel_args s = {.codes = panel,
                         .step = 32 * e.group + 128,
                         .units = {LN_F32, 0},
                         .ldx = l->ldx,
                         .groups = l->groups,
                         .group = e.group,
                         .n = LN_MIN(groups_per_panel, l->groups - g),
                         .begins = g == 0,
                         .prefetch_here = next,
                         .prefetch_then = next};
        s.block = n > 1 ? groups_per_panel * s.step : 0;
        if (direct) {
            s.codes = codes, s.step = l->group_bytes, s.units = l->units;
            s.factors = ln_pack_factors_at(l->units, codes + l->groups * l->group_bytes, 0);
            s.block = n > 1 ? l->block : 0;
            if (tiles == 1) { /* soon the same blocks, at their end the beginnings of the next */
                const int64_t ahead =
                    LN_MIN((n > 1 ? PREFETCH_BYTES : PREFETCH_BYTES_1) / s.step + 1, l->groups);
                s.prefetch_here = codes + ahead * s.step;
                s.n_here = l->groups - ahead;
            }
        }
        s.prefetch_line = 64 / tiles, s.prefetch_group = s.step / tiles;
        for (int64_t i = 0; i < n * s.n && !direct; i++)
            unpack_group(l, codes + i / s.n * l->block, g + i % s.n,
                         panel + i / s.n * s.block + i % s.n * s.step);
        for (int64_t i = 0; i < tiles; i++) {
            const int64_t r = l->rows * i / tiles, m = l->rows * (i + 1) / tiles - r;
            const float *x = l->x + r * l->ldx;
            s.x = x + g * e.group / 2;
            s.u = x + l->C / 2 + g;
            if (tiles > 1) s.prefetch_then = next + i * l->block / tiles;
            run_tile(l, &s, fns[m - 1], r, m, d, n_d, n_d == (two ? 2 : blocks_at_once(l)) * LN_PACK_NR);
        }
    }
}

static size_t bfp_gemm_scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    (void)n, (void)p, (void)b;
    return PANEL_BYTES;
}

static bfp_gemm gemm_of_call(const ln_call *c) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_affine *w = c->in[1].data;
    return (bfp_gemm){.w = w,
                      .units = ln_packed_units(w),
                      .block = ln_packed_block_bytes(w, x->cols),
                      .group_bytes = ln_packed_group_bytes(w),
                      .groups = x->cols / w->code.group,
                      .rows = y->rows,
                      .D = y->cols,
                      .C = x->cols,
                      .ldx = x->pitch,
                      .ldy = y->pitch,
                      .x = x->data,
                      .y = y->data};
}

/* A thread's blocks; for small M whole groups of those that are taken at once. */
static void partition(const bfp_gemm *l, const ln_call *c, int64_t *lo, int64_t *hi) {
    ln_partition(ln_pack_blocks(l->D), reads_packed_codes(l) ? blocks_at_once(l) : 1, c->thread, c->n_threads,
                 lo, hi);
}
static void bfp_gemm_reads(const ln_call *c, ln_reads *out) {
    const bfp_gemm l = gemm_of_call(c);
    int64_t lo, hi;
    partition(&l, c, &lo, &hi);
    *out = ln_cpu_weight_reads(l.w->codes, l.block, lo, hi, blocks_at_once(&l));
}

static void bfp_gemm_run(const ln_call *c) {
    const bfp_gemm l = gemm_of_call(c);
    if (l.rows == 0) return;
    int64_t lo, hi;
    partition(&l, c, &lo, &hi);
    const int64_t wide = blocks_at_once(&l), n = hi - lo < wide ? 1 : wide;
    if (TWO_BLOCKS > 0 && !reads_packed_codes(&l))
        for (int64_t b = lo, some; b < hi; b += some)
            run_blocks(&l, b, some = hi - b == 4 ? 2 : LN_MIN(wide, hi - b), c->scratch);
    else
        for (int64_t b = lo; b < hi; b += n)
            run_blocks(&l, LN_MIN(b, hi - n), n, c->scratch); /* the last ones may be computed twice */
    if (c->node->n_in > 2)
        ln_cpu_add_bias(&c->in[2], l.y, l.ldy, l.rows, lo * LN_PACK_NR, LN_MIN(hi * LN_PACK_NR, l.D));
}

const ln_kernel_row LN_ISA(ln_cpu_bfp)[] = {
    {LN_OP_LINEAR,
     1 << LN_PRODUCT_BFP_AFFINE,
     {.fn = bfp_gemm_run,
      .scratch = bfp_gemm_scratch,
      .pieces = LN_ISA(tune_gemm_bfp_CHUNKS),
      .reads = bfp_gemm_reads}},
    {0},
};
