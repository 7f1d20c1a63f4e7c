/* GEMM of weights in coded rows (quant/coded.h) on a vector ISA level: y = x w^T + b, with the bits of the
 * reference (ops/linear_op.c, product_coded).
 *
 * What is computed. Each output is 16 lanes over C, each one chain of fused multiply-adds in ascending order,
 * which are added pairwise at the end (ops.h). Rows are read as they are stored: lanes run along columns.
 *
 *     for OUTPUTS outputs                          fewer rows of x than TILE_M: TILE_N
 *         decode their rows to f32                 in scratch: in L2, or in L1
 *         for TILE_M rows of x                     they stay in L1 while the decoded rows pass
 *             for TILE_N outputs
 *                 TILE_M x TILE_N x 16 lanes       of sums in registers
 *
 * The decoding costs as much as a product with some rows of x, so that a prompt runs at the speed of dense
 * weights in f32 and a single row at a part of it; weights in affine groups have faster kernels.
 *
 * Included once per ISA level, after its simd header. */
#include "../../../base/thread_pool.h"
#include "../../../quant/coded.h"
#include "../cpu.h"

enum {
    LANES = 16,
    PARTS = LANES / VL,        /* vectors of the lanes */
    TILE_M = VL == 16 ? 4 : 1, /* 16 registers of sums, or 8 of 8 lanes: so many rows and outputs */
    TILE_N = 4,
    OUTPUTS = VL == 16 ? 16 : TILE_N /* that are decoded at a time */
};

/* n codes of floats as numbers times s, whole vectors; returns how many. By way of f16, whose denormals are
 * converted exactly in any floating-point environment: e5m2 is its upper byte, e4m3 has exponents that are 8
 * less, and e2m1 has exponents that are 14 less. s 2^14 could be infinite when s f is not. */
INLINE int64_t decode_floats(const uint8_t *codes, int64_t n, const ln_stored kind, float s, float *out) {
    enum { SOME = 64 };
    const vf scale = vf_set1(kind == LN_STORED_E4M3 ? s * 256 : s), lift = vf_set1(0x1p14f);
    uint16_t half[SOME];
    int64_t i = 0;
    for (int64_t some; (some = LN_MIN((int64_t)SOME, (n - i) / VL * VL)) > 0; i += some) {
        for (int64_t k = 0; k < some; k++) {
            const uint16_t c = codes[i + k];
            half[k] = (uint16_t)(kind == LN_STORED_E4M3   ? (c & 0x80) << 8 | (c & 0x7f) << 7
                                 : kind == LN_STORED_E5M2 ? c << 8
                                                          : (c & 8) << 12 | (c & 7) << 9);
        }
        for (int64_t k = 0; k < some; k += VL) {
            vf f = vf_load_f16((const uint8_t *)(half + k));
            if (kind == LN_STORED_E2M1) f = vf_mul(f, lift);
            vf_store(out + i + k, vf_mul(scale, f));
        }
    }
    return i;
}
/* A row in fp8 or fp4; codes: a byte each. */
INLINE void decode_float_row(const ln_coded *w, int64_t d, const uint8_t *codes, const ln_stored kind,
                             float *out) {
    const char *scales = (const char *)w->rows.scales + d * ln_encoding_row(w->enc, w->cols).scales;
    const int64_t group = ln_coded_group(w);
    for (int64_t c = 0, g = 0; c < w->cols; c += group, g++) {
        const int64_t n = LN_MIN(group, w->cols - c);
        const float s = ln_num_load(scales, (ln_dtype)w->enc.scale, g);
        const int64_t done = decode_floats(codes + c, n, kind, s, out + c);
        if (done < n) ln_coded_load(w, d, c + done, n - done, out + c + done);
    }
}

/* A row with zero points. units: scales and zero points of its groups, as f32. */
static void decode_zeroed_row(const ln_coded *w, int64_t d, const uint8_t *codes, float *units, float *out) {
    const ln_row_bytes row = ln_encoding_row(w->enc, w->cols);
    const int64_t n = ln_coded_units(w->enc, w->cols), group = ln_coded_group(w);
    const uint16_t *columns = w->rows.columns;
    float *s = units, *z = units + n;
    for (int64_t g = 0; g < n; g++) {
        s[g] = ln_num_load((const char *)w->rows.scales + d * row.scales, (ln_dtype)w->enc.scale, g);
        z[g] = ln_num_load((const char *)w->rows.offsets + d * row.offsets, (ln_dtype)w->enc.offset, g);
    }
    int64_t i = 0;
    for (; columns && i + VL <= w->cols; i += VL)
        vf_store(out + i, vf_mul(vf_gather(s, columns + i),
                                 vf_sub(vf_from_i32(vi_load_u8(codes + i)), vf_gather(z, columns + i))));
    for (int64_t g = 0; !columns && g < n; g++) {
        const int64_t end = LN_MIN((g + 1) * group, w->cols);
        const vf scale = vf_set1(s[g]), zero = vf_set1(z[g]);
        for (; i + VL <= end; i += VL)
            vf_store(out + i, vf_mul(scale, vf_sub(vf_from_i32(vi_load_u8(codes + i)), zero)));
        for (; i < end; i++) out[i] = s[g] * ((float)codes[i] - z[g]);
    }
    for (; i < w->cols; i++) out[i] = s[columns[i]] * ((float)codes[i] - z[columns[i]]);
}

/* Scratch: OUTPUTS rows as f32, the codes of one, scales and zero points of its groups. */
static size_t decoded_bytes(int64_t C) { return (size_t)((C + LANES - 1) / LANES * LANES) * sizeof(float); }
static size_t coded_scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    const ln_pvalue *w = ln_program_value(p, n->in[1]);
    const int64_t C = w->dims[w->n_dims - 1];
    (void)b;
    return (OUTPUTS + 1) * decoded_bytes(C) + 2 * (size_t)ln_coded_units(w->enc, C) * sizeof(float);
}
static void decode_row(const ln_coded *w, int64_t d, char *scratch, float *out) {
    const uint8_t *stored = (const uint8_t *)w->rows.data + d * ln_encoding_row(w->enc, w->cols).data;
    uint8_t *codes = (uint8_t *)scratch + OUTPUTS * decoded_bytes(w->cols);
    switch (w->enc.kind) {
    case LN_STORED_E4M3: decode_float_row(w, d, stored, LN_STORED_E4M3, out); break;
    case LN_STORED_E5M2: decode_float_row(w, d, stored, LN_STORED_E5M2, out); break;
    case LN_STORED_E2M1:
        ln_coded_codes(w, d, codes);
        decode_float_row(w, d, codes, LN_STORED_E2M1, out);
        break;
    default:
        ln_coded_codes(w, d, codes);
        decode_zeroed_row(w, d, codes, (float *)(void *)(codes + decoded_bytes(w->cols)), out);
    }
}

/* Rows of x and of y, decoded rows of a weight: what a tile works on. */
typedef struct tile_args {
    const float *x, *w;
    float *y;
    int64_t ldx, ldw, ldy, C;
} tile_args;

/* n outputs of m rows. */
INLINE void tile(const int m, const int n, const tile_args *t) {
    vf acc[TILE_M][TILE_N][PARTS];
    for (int r = 0; r < m; r++)
        for (int k = 0; k < n; k++)
            for (int v = 0; v < PARTS; v++) acc[r][k][v] = vf_zero();
    int64_t i = 0;
    for (; i + LANES <= t->C; i += LANES)
#pragma GCC unroll 4
        for (int v = 0; v < PARTS; v++) {
            vf w[TILE_N];
#pragma GCC unroll 4
            for (int k = 0; k < n; k++) w[k] = vf_load(t->w + k * t->ldw + i + v * VL);
#pragma GCC unroll 4
            for (int r = 0; r < m; r++) {
                const vf x = vf_load(t->x + r * t->ldx + i + v * VL);
#pragma GCC unroll 4
                for (int k = 0; k < n; k++) acc[r][k][v] = vf_fma(w[k], x, acc[r][k][v]);
            }
        }
    for (int r = 0; r < m; r++)
        for (int k = 0; k < n; k++) {
            const float *x = t->x + r * t->ldx, *w = t->w + k * t->ldw;
            float lane[LANES];
            for (int v = 0; v < PARTS; v++) vf_store(lane + v * VL, acc[r][k][v]);
            for (int64_t l = 0; i + l < t->C; l++) lane[l] = fmaf(w[i + l], x[i + l], lane[l]);
            for (int v = 0; v < PARTS; v++) acc[r][k][v] = vf_load(lane + v * VL);
            t->y[r * t->ldy + k] = vf_reduce_add16(acc[r][k]);
        }
}
/* m rows, at most TILE_M, and n outputs, whose rows are decoded. */
static void tiles(int64_t m, int64_t n, tile_args t) {
    int64_t k = 0;
    for (; k + TILE_N <= n; k += TILE_N, t.w += TILE_N * t.ldw, t.y += TILE_N) {
        if (m == TILE_M) {
            tile(TILE_M, TILE_N, &t);
            continue;
        }
        tile_args one = t;
        for (int64_t r = 0; r < m; r++, one.x += t.ldx, one.y += t.ldy) tile(1, TILE_N, &one);
    }
    for (; k < n; k++, t.w += t.ldw, t.y++) {
        tile_args one = t;
        for (int64_t r = 0; r < m; r++, one.x += t.ldx, one.y += t.ldy) tile(1, 1, &one);
    }
}

static void coded_run(const ln_call *c) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_coded *w = c->in[1].data;
    const int64_t pitch = (int64_t)(decoded_bytes(w->cols) / sizeof(float));
    float *rows = c->scratch;
    int64_t lo, hi;
    const int64_t most = y->rows < TILE_M ? TILE_N : OUTPUTS;
    ln_partition(y->cols, most, c->thread, c->n_threads, &lo, &hi);
    for (int64_t d = lo; d < hi && y->rows > 0; d += most) {
        const int64_t n = LN_MIN(most, hi - d);
        for (int64_t k = 0; k < n; k++) decode_row(w, d + k, c->scratch, rows + k * pitch);
        for (int64_t r = 0; r < y->rows; r += TILE_M)
            tiles(LN_MIN((int64_t)TILE_M, y->rows - r), n,
                  (tile_args){.x = (const float *)x->data + r * x->pitch,
                              .w = rows,
                              .y = (float *)y->data + r * y->pitch + d,
                              .ldx = x->pitch,
                              .ldw = pitch,
                              .ldy = y->pitch,
                              .C = w->cols});
    }
    if (c->node->n_in > 2 && lo < hi) ln_cpu_add_bias(&c->in[2], (float *)y->data, y->pitch, y->rows, lo, hi);
}

const ln_kernel_row LN_ISA(ln_cpu_coded)[] = {
    {LN_OP_LINEAR, LN_CODED_PRODUCTS, {.fn = coded_run, .scratch = coded_scratch, .pieces = 4}},
    {0},
};
