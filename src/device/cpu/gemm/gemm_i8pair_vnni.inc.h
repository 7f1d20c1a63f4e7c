/* GEMM of int8 digit pairs by VNNI, up to four rows, codes of 4 or 8 bits: packed codes are read once and
 * never stored dequantised; memory is the limit.
 *
 *     packed line, 64 bytes:  | 32 bits of codes of output 0 | .. of output 1 | .. | .. of output 15 |
 *                               4 codes of 8 bits, or 8 codes of 4 bits: 4 even and 4 odd nibbles
 *     x, broadcast 32 bits:   four int8 digits of the same four columns (ln_i8pair_column)
 *     VPDPBUSD:               16 outputs += 4 columns x 1 row
 *
 *   8 bits   W of even and of odd columns are 16-bit elements | L | H |, and meet elements of x in which
 *            the digits are arranged likewise: | 0 | h | for the high sum, | h | l | for the low sum
 *            (split_digits_8). So W is never split into bytes.
 *   4 bits   H and L are linear in the code, so it is enough to sum over the codes: of a group
 *            p = sum(h q) and r = sum(l q), and once a row sum(h) and sum(l) of the group. Then
 *                sum(h H)       = mh p + ch sum(h)
 *                sum(h L + l H) = ml p + cl sum(h) + mh r + ch sum(l)
 *            all of them integers below 2^24, exact as floats; ch is here H of code 0, zero point included.
 *
 * Loop nest (MR = rows, NR = N blocks of 16 outputs: one or two rows take 2 neighbouring blocks, one row of
 * 8 bits 4, more rows 1):
 *
 *     for weight of a gated pair            gate's values rest in y until up's come
 *       for N blocks of outputs
 *         for group of columns              constants once a group
 *           for line of 64 bytes            vnni_kernel: N x M x 2 VPDPBUSD
 *
 * Neighbouring blocks of one weight for long are read faster than two weights at once, or one block of each
 * in turn. The prefetch, VNNI_PREFETCH_BYTES ahead, goes on at a block's end where the next block begins, so
 * that memory is never idle between blocks, nor between the chunks of a partition.
 * Included once, after gemm_i8pair_amx.inc.h. */
enum {
    VNNI_MAX_M = 4,      /* rows */
    VNNI_MAX_BLOCKS = 4, /* blocks of outputs at once */
    VNNI_PREFETCH_BYTES =
        tune_gemm_i8pair_VNNI_PREFETCH_BYTES_amx /* distance in packed codes, rounded up to whole groups */
};

static bool i8pair_vnni_serves(const ln_call *c) {
    const ln_affine *w = c->in[1].data;
    return c->out[0].rows <= VNNI_MAX_M && (w->code.bits == 4 || w->code.bits == 8);
}
/* 4 bits: sums of the digits of each group as floats, [row][group][h, l]. 8 bits: elements of x, [row][0 h
 * even, 0 h odd, h l even, h l odd][columns / 4]. */
static size_t i8pair_vnni_scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    const ln_pvalue *x = ln_program_value(p, n->in[0]);
    (void)b;
    return gate_bytes(n, VNNI_MAX_M) +
           (size_t)VNNI_MAX_M * LN_MAX((size_t)(x->dims[1] / x->format.group * 2) * sizeof(float),
                                       (size_t)(4 * ln_i8pair_digit_bytes(x->dims[1])));
}
static void split_digits_8(const i8pair_gemm *t, int64_t rows, uint8_t *to) {
    const uint32_t even = 0x00ff00ff, odd = 0xff00ff00;
    for (int64_t r = 0; r < rows; r++, to += 4 * t->P)
        for (int64_t i = 0; i < t->P; i += ROW_BYTES) {
            const vi h = vi_load(t->x + r * t->ldx + i), l = vi_load(t->x + r * t->ldx + t->P + i);
            vi_store(to + i, vi_shl32(vi_and32(h, even), 8));
            vi_store(to + t->P + i, vi_and32(h, odd));
            vi_store(to + 2 * t->P + i, vi_or(vi_and32(h, even), vi_shl32(vi_and32(l, even), 8)));
            vi_store(to + 3 * t->P + i, vi_or(vi_shr32(vi_and32(h, odd), 8), vi_and32(l, odd)));
        }
}

INLINE vi broadcast_digits(const uint8_t *p) { return vi_broadcast32(p); }

INLINE void dot_line_8(const int M, const i8pair_gemm *t, const uint8_t *at, int64_t prefetch_distance,
                       const dequant *k, const uint8_t *x, vi *sums) {
    prefetch_l1(at + prefetch_distance);
    const vi w = vi_load(at), e = vi_add16(vi_mulrs16(even_of_8(w), k->a), k->b),
             o = vi_add16(vi_mulrs16(odd_of_8(w), k->a), k->b);
#pragma GCC unroll 4
    for (int m = 0; m < M; m++, x += 4 * t->P) {
        sums[2 * m] =
            vi_dot_u8i8(o, broadcast_digits(x + t->P), vi_dot_u8i8(e, broadcast_digits(x), sums[2 * m]));
        sums[2 * m + 1] = vi_dot_u8i8(o, broadcast_digits(x + 3 * t->P),
                                      vi_dot_u8i8(e, broadcast_digits(x + 2 * t->P), sums[2 * m + 1]));
    }
}
INLINE void dot_line_4(const int M, const i8pair_gemm *t, const uint8_t *at, int64_t prefetch_distance,
                       const uint8_t *x, vi *sums) {
    prefetch_l1(at + prefetch_distance);
    const vi w = vi_load(at), even = vi_and32(w, 0x0f0f0f0f), odd = vi_and32(vi_shr32(w, 4), 0x0f0f0f0f);
#pragma GCC unroll 4
    for (int m = 0; m < M; m++, x += t->ldx) {
        sums[2 * m] =
            vi_dot_u8i8(odd, broadcast_digits(x + 4), vi_dot_u8i8(even, broadcast_digits(x), sums[2 * m]));
        sums[2 * m + 1] = vi_dot_u8i8(odd, broadcast_digits(x + t->P + 4),
                                      vi_dot_u8i8(even, broadcast_digits(x + t->P), sums[2 * m + 1]));
    }
}
/* Adds to the sums of H and L what a group's sums over codes amount to. */
INLINE void apply_dequant_4(const int M, const uint8_t *constants, const float *digit_sums, int64_t groups,
                            const vi *p, vi *sums) {
    const vi at = vi_load(constants);
    const linear_digits k = {.mh = vf_from_i32(vi_byte_i32(at, 0)),
                             .ch = vf_from_i32(vi_and32(vi_shr32(at, 8), 0xff)),
                             .ml = vf_from_i32(vi_byte_i32(at, 2)),
                             .cl = vf_from_i32(vi_shr32(at, 24))};
#pragma GCC unroll 4
    for (int m = 0; m < M; m++, digit_sums += 2 * groups) {
        const vf ph = vf_from_i32(p[2 * m]), pl = vf_from_i32(p[2 * m + 1]), h = vf_set1(digit_sums[0]),
                 l = vf_set1(digit_sums[1]);
        sums[2 * m] = vi_add(sums[2 * m], vi_round_i32(vf_fma(k.mh, ph, vf_mul(k.ch, h))));
        sums[2 * m + 1] =
            vi_add(sums[2 * m + 1],
                   vi_round_i32(vf_fma(k.ml, ph, vf_fma(k.cl, h, vf_fma(k.mh, pl, vf_mul(k.ch, l))))));
    }
}

/* Stores the values of row r and block b: a gated pair's gate values rest in y until those of up come. */
INLINE void store_outputs(const i8pair_gemm *t, int64_t r, int64_t b, vf v) {
    const int64_t d = output_block(t, b) * TILE_ROWS, outputs = LN_MIN((int64_t)TILE_ROWS, t->D - d);
    float *y = y_at(t, r, b);
    if (t->function && b % 2) {
        float rest[TILE_ROWS] = {0};
        const float *first = outputs < TILE_ROWS ? memcpy(rest, y, (size_t)outputs * sizeof *y) : y;
        v = vf_mul(t->function == ACT_SILU ? vf_silu(vf_load(first)) : vf_gelu_tanh(vf_load(first)), v);
    }
    vf_store_n(y, outputs, v);
}
/* M rows times N blocks of one weight from block b on, numbered as in weight_of_block, so that those of one
 * weight of a gated pair are 2 apart; next: the block where the prefetch goes on. */
INLINE void vnni_kernel(const int M, const int N, const int bits, const i8pair_gemm *t,
                        const void *x_prepared, int64_t b, const uint8_t *next) {
    const int64_t group = t->w->code.group, groups = t->C / group, lines = group * bits / 32;
    const int64_t y_prefetch_bytes =
                      LN_MIN((VNNI_PREFETCH_BYTES + t->group_bytes - 1) / t->group_bytes, groups),
                  turn = groups - y_prefetch_bytes;
    const int64_t by = t->function ? 2 : 1,
                  over = (int64_t)((uintptr_t)next - (uintptr_t)codes_of_block(t, b)) -
                         groups *
                             t->group_bytes; /* from the end of a block's codes to the beginning of `next` */
    const uint8_t *at[VNNI_MAX_BLOCKS], *x = bits == 8 ? x_prepared : t->x;
    const float *digit_sums = x_prepared;
    vi sums[VNNI_MAX_BLOCKS][2 * VNNI_MAX_M];
    vf inverse_scale[VNNI_MAX_BLOCKS];
#pragma GCC unroll 4
    for (int j = 0; j < N; j++) {
        at[j] = codes_of_block(t, b + j * by);
        inverse_scale[j] = inverse_scale_of(t, b + j * by);
#pragma GCC unroll 8
        for (int i = 0; i < 2 * M; i++) sums[j][i] = vi_zero();
    }
    for (int64_t g = 0; g < groups; g++, digit_sums += 2) {
        const int64_t codes_bytes = lines * ROW_BYTES,
                      prefetch_distance = y_prefetch_bytes * t->group_bytes + (g < turn ? 0 : over);
        if (bits == 8) {
            dequant k[VNNI_MAX_BLOCKS];
#pragma GCC unroll 4
            for (int j = 0; j < N; j++)
                k[j] = load_dequant(8, t->w->dtype, at[j] + codes_bytes, factors_of_group(t, b + j * by, g),
                                    inverse_scale[j]);
            for (int64_t i = 0; i < lines; i++, x += 4)
#pragma GCC unroll 4
                for (int j = 0; j < N; j++)
                    dot_line_8(M, t, at[j] + i * ROW_BYTES, prefetch_distance, &k[j], x, sums[j]);
        } else {
            vi p[VNNI_MAX_BLOCKS][2 * VNNI_MAX_M];
#pragma GCC unroll 4
            for (int j = 0; j < N; j++)
#pragma GCC unroll 8
                for (int i = 0; i < 2 * M; i++) p[j][i] = vi_zero();
            for (int64_t i = 0; i < lines; i++, x += 8)
#pragma GCC unroll 4
                for (int j = 0; j < N; j++)
                    dot_line_4(M, t, at[j] + i * ROW_BYTES, prefetch_distance, x, p[j]);
#pragma GCC unroll 4
            for (int j = 0; j < N; j++)
                apply_dequant_4(M, at[j] + codes_bytes, digit_sums, groups, p[j], sums[j]);
        }
#pragma GCC unroll 4
        for (int j = 0; j < N; j++)
            prefetch_l1(at[j] + codes_bytes + prefetch_distance), at[j] += t->group_bytes;
    }
#pragma GCC unroll 4
    for (int j = 0; j < N; j++)
#pragma GCC unroll 4
        for (int m = 0; m < M; m++) {
            const vf v = epilogue_value(vf_set1((float)ln_i8pair_radix(bits)), sums[j][2 * m],
                                        sums[j][2 * m + 1], &t->row_sums[m], output_scale_of(t, b + j * by));
            store_outputs(t, m, b + j * by, v);
        }
}
typedef void vnni_kernel_fn(const i8pair_gemm *t, const void *x_prepared, int64_t b, const uint8_t *next);
#define VNNI_KERNEL(M, N, bits)                                                                   \
    static void lines_##M##_##N##_##bits(const i8pair_gemm *t, const void *x_prepared, int64_t b, \
                                         const uint8_t *next) {                                   \
        vnni_kernel(M, N, bits, t, x_prepared, b, next);                                          \
    }
#define VNNI_KERNELS(bits)  \
    VNNI_KERNEL(1, 1, bits) \
    VNNI_KERNEL(1, 2, bits) \
    VNNI_KERNEL(2, 1, bits) VNNI_KERNEL(2, 2, bits) VNNI_KERNEL(3, 1, bits) VNNI_KERNEL(4, 1, bits)
VNNI_KERNELS(4)
VNNI_KERNELS(8)
VNNI_KERNEL(1, 4, 8)
#define VNNI_KERNEL_ROW(bits, ...)                                                                     \
    {                                                                                                  \
        [1] = {lines_1_1_##bits, lines_1_2_##bits, __VA_ARGS__}, {lines_2_1_##bits, lines_2_2_##bits}, \
        {lines_3_1_##bits}, {                                                                          \
            lines_4_1_##bits                                                                           \
        }                                                                                              \
    }
static vnni_kernel_fn *const vnni_kernels[2][VNNI_MAX_M + 1][VNNI_MAX_BLOCKS] = {
    VNNI_KERNEL_ROW(4, NULL), VNNI_KERNEL_ROW(8, NULL, lines_1_4_8)}; /* [bits == 8][rows][blocks - 1] */
static int64_t vnni_blocks(int bits, int64_t rows) {
    return rows > 2 ? 1 : rows > 1 || bits == 4 ? 2 : VNNI_MAX_BLOCKS;
}

/* Sums of a row's digits, group by group. */
static void digit_group_sums(const i8pair_gemm *t, int64_t rows, float *to) {
    const int64_t group = t->w->code.group, groups = t->C / group;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < groups; g++, to += 2)
            for (int digit = 0; digit < 2; digit++) {
                const int8_t *x = (const int8_t *)(t->x + r * t->ldx + digit * t->P + g * group);
                int32_t sum = 0;
                for (int64_t i = 0; i < group; i++) sum += x[i];
                to[digit] = (float)sum;
            }
}

/* Blocks of y in a thread's partition; returns how many are taken at once. */
static int64_t vnni_partition(const ln_call *c, int64_t *lo, int64_t *hi) {
    const ln_affine *w = c->in[1].data;
    const int64_t n = vnni_blocks(w->code.bits, c->out[0].rows);
    ln_partition(ln_pack_blocks(c->out[0].cols), n, c->thread, c->n_threads, lo, hi);
    return n;
}

static void i8pair_vnni_run(const ln_call *c) {
    const ln_arg *y = &c->out[0];
    if (y->rows < 1) return;
    ln_i8pair_sums row_sums[VNNI_MAX_M];
    i8pair_gemm t = gemm_of_call(c);
    t.row_sums = row_sums;
    for (int64_t r = 0; r < y->rows; r++)
        row_sums[r] = row_sums_of(&t, r, ln_i8pair_zero_point(t.w->code.bits));
    void *x_prepared = t.panel;
    int64_t lo, hi, n = vnni_partition(c, &lo, &hi);
    if (lo >= hi) return;
    vnni_kernel_fn *const *fns = vnni_kernels[t.w->code.bits == 8][y->rows];
    if (t.w->code.bits == 4) digit_group_sums(&t, y->rows, x_prepared);
    else split_digits_8(&t, y->rows, x_prepared);
    const int of = t.function ? 2 : 1; /* weight blocks for each block of y */
    for (int which = 0; which < of; which++) {
        const uint8_t *codes = which ? t.up->codes : t.w->codes,
                      *then = which + 1 < of ? t.up->codes + lo * t.block : codes + hi * t.block;
        for (int64_t b = lo, some = n; b < hi; b += some) {
            while (b + some > hi) some /= 2;
            fns[some - 1](&t, x_prepared, of * b + which,
                          b + some < hi ? codes + (b + some) * t.block : then);
        }
    }
    if (!t.function && c->node->n_in > 2)
        ln_cpu_add_bias(&c->in[2], y->data, t.ldy, y->rows, lo * TILE_ROWS, LN_MIN(hi * TILE_ROWS, t.D));
}
