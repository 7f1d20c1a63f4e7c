/* GEMM of weights in coded rows (quant/coded.h) on a vector ISA level: y = x w^T + b, with the bits of the
 * reference (ops/linear_op.c, product_coded).
 *
 * What is computed. Each output is 16 lanes over C, each one chain of fused multiply-adds in ascending order,
 * which are added pairwise at the end (ops.h). Rows are read as they are stored: lanes run along columns.
 *
 *     for OUTPUTS outputs
 *         decode their rows to f32                 in scratch, which L2 holds
 *         for rows of x
 *             OUTPUTS x 16 lanes of sums           in registers; a row of x serves all of them
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
    PARTS = LANES / VL, /* vectors of the lanes */
    OUTPUTS = 4         /* that are decoded at a time */
};

/* n codes in fp8 as numbers times s, whole vectors; returns how many. By way of f16, whose denormals are
 * converted exactly in any floating-point environment: e5m2 is its upper byte, and e4m3 has exponents that
 * are 8 less. */
INLINE int64_t decode_fp8(const uint8_t *codes, int64_t n, const bool e4m3, float s, float *out) {
    enum { SOME = 64 };
    const vf scale = vf_set1(e4m3 ? s * 256 : s);
    uint16_t half[SOME];
    int64_t i = 0;
    for (int64_t some; (some = LN_MIN((int64_t)SOME, (n - i) / VL * VL)) > 0; i += some) {
        for (int64_t k = 0; k < some; k++) {
            const uint16_t c = codes[i + k];
            half[k] = (uint16_t)(e4m3 ? (c & 0x80) << 8 | (c & 0x7f) << 7 : c << 8);
        }
        for (int64_t k = 0; k < some; k += VL)
            vf_store(out + i + k, vf_mul(scale, vf_load_f16((const uint8_t *)(half + k))));
    }
    return i;
}
static void decode_fp8_row(const ln_coded *w, int64_t d, float *out) {
    const ln_row_bytes row = ln_encoding_row(w->enc, w->cols);
    const uint8_t *codes = (const uint8_t *)w->rows.data + d * row.data;
    const char *scales = (const char *)w->rows.scales + d * row.scales;
    const int64_t group = ln_coded_group(w);
    for (int64_t c = 0, g = 0; c < w->cols; c += group, g++) {
        const int64_t n = LN_MIN(group, w->cols - c);
        const float s = ln_num_load(scales, (ln_dtype)w->enc.scale, g);
        const int64_t done = w->enc.kind == LN_STORED_E4M3 ? decode_fp8(codes + c, n, true, s, out + c)
                                                           : decode_fp8(codes + c, n, false, s, out + c);
        ln_coded_load(w, d, c + done, n - done, out + c + done);
    }
}

/* A row with zero points. units: scales and zero points of its groups, as f32. */
static void decode_zeroed_row(const ln_coded *w, int64_t d, uint8_t *codes, float *units, float *out) {
    const ln_row_bytes row = ln_encoding_row(w->enc, w->cols);
    const int64_t n = ln_coded_units(w->enc, w->cols), group = ln_coded_group(w);
    const uint16_t *columns = w->rows.columns;
    float *s = units, *z = units + n;
    ln_coded_codes(w, d, codes);
    for (int64_t g = 0; g < n; g++) {
        s[g] = ln_num_load((const char *)w->rows.scales + d * row.scales, (ln_dtype)w->enc.scale, g);
        z[g] = ln_num_load((const char *)w->rows.offsets + d * row.offsets, (ln_dtype)w->enc.offset, g);
    }
    int64_t i = 0;
    for (; columns && i + VL <= w->cols; i += VL)
        vf_store(out + i, vf_mul(vf_gather(s, columns + i),
                                 vf_sub(vf_from_i32(vi_load_u8(codes + i)), vf_gather(z, columns + i))));
    for (int64_t g = 0; !columns && g < n; g++)
        for (const int64_t end = LN_MIN((g + 1) * group, w->cols); i < end; i++)
            out[i] = s[g] * ((float)codes[i] - z[g]);
    for (; i < w->cols; i++) out[i] = s[columns[i]] * ((float)codes[i] - z[columns[i]]);
}

/* A row in fp4. */
static void decode_fp4_row(const ln_coded *w, int64_t d, uint8_t *codes, float *out) {
    const ln_row_bytes row = ln_encoding_row(w->enc, w->cols);
    const int64_t group = ln_coded_group(w);
    ln_coded_codes(w, d, codes);
    for (int64_t c = 0, g = 0; c < w->cols; c += group, g++) {
        const float s = ln_num_load((const char *)w->rows.scales + d * row.scales, (ln_dtype)w->enc.scale, g);
        float numbers[16];
        for (uint32_t v = 0; v < 16; v++) numbers[v] = s * ln_e2m1_f32(v);
        for (int64_t i = c; i < LN_MIN(c + group, w->cols); i++) out[i] = numbers[codes[i]];
    }
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
    uint8_t *codes = (uint8_t *)scratch + OUTPUTS * decoded_bytes(w->cols);
    if (w->enc.kind == LN_STORED_ZEROED)
        decode_zeroed_row(w, d, codes, (float *)(void *)(codes + decoded_bytes(w->cols)), out);
    else if (w->enc.kind == LN_STORED_E2M1) decode_fp4_row(w, d, codes, out);
    else decode_fp8_row(w, d, out);
}

/* n outputs of one row of x: w has n decoded rows. */
INLINE void dots(const int n, const float *x, const float *w, int64_t pitch, int64_t C, float *y) {
    vf acc[OUTPUTS][PARTS];
    for (int k = 0; k < n; k++)
        for (int v = 0; v < PARTS; v++) acc[k][v] = vf_zero();
    int64_t i = 0;
    for (; i + LANES <= C; i += LANES)
#pragma GCC unroll 4
        for (int v = 0; v < PARTS; v++) {
            const vf a = vf_load(x + i + v * VL);
#pragma GCC unroll 4
            for (int k = 0; k < n; k++) acc[k][v] = vf_fma(vf_load(w + k * pitch + i + v * VL), a, acc[k][v]);
        }
    for (int k = 0; k < n; k++) {
        float lane[LANES];
        for (int v = 0; v < PARTS; v++) vf_store(lane + v * VL, acc[k][v]);
        for (int64_t l = 0; i + l < C; l++) lane[l] = fmaf(w[k * pitch + i + l], x[i + l], lane[l]);
        for (int v = 0; v < PARTS; v++) acc[k][v] = vf_load(lane + v * VL);
        y[k] = vf_reduce_add16(acc[k]);
    }
}

static void coded_run(const ln_call *c) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_coded *w = c->in[1].data;
    const int64_t pitch = (int64_t)(decoded_bytes(w->cols) / sizeof(float));
    float *rows = c->scratch;
    int64_t lo, hi;
    ln_partition(y->cols, OUTPUTS, c->thread, c->n_threads, &lo, &hi);
    for (int64_t d = lo; d < hi && y->rows > 0; d += OUTPUTS) {
        const int64_t n = LN_MIN((int64_t)OUTPUTS, hi - d);
        for (int64_t k = 0; k < n; k++) decode_row(w, d + k, c->scratch, rows + k * pitch);
        for (int64_t r = 0; r < y->rows; r++) {
            const float *from = (const float *)x->data + r * x->pitch;
            float *to = (float *)y->data + r * y->pitch + d;
            if (n == OUTPUTS) dots(OUTPUTS, from, rows, pitch, w->cols, to);
            else
                for (int64_t k = 0; k < n; k++) dots(1, from, rows + k * pitch, pitch, w->cols, to + k);
        }
    }
    if (c->node->n_in > 2 && lo < hi) ln_cpu_add_bias(&c->in[2], (float *)y->data, y->pitch, y->rows, lo, hi);
}

const ln_kernel_row LN_ISA(ln_cpu_coded)[] = {
    {LN_OP_LINEAR, LN_CODED_PRODUCTS, {.fn = coded_run, .scratch = coded_scratch, .pieces = 4}},
    {0},
};
