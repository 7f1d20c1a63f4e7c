/* linear_gated of bf16 weights on AMX: both products of the gated pair into scratch for a
 * strip of outputs, then the activation and the product of each pair, so that the sums never leave L2. The
 * kernels are those of linear (gemm_bf16_amx.inc.h) and of gated, and so are the bits.
 *
 *     for strip of 4 blocks of outputs (small M: all of the thread's)
 *       gate[rows][strip] = x w_gate^T        scratch, rows an odd number of cache lines apart
 *       up[rows][strip]   = x w_up^T
 *       y = act(gate) up                      row-wise kernel
 *
 * The op is made where x is read as it is stored (cpu_lower.c): otherwise every strip would convert it
 * anew, which is slow and still right. Included once, after gemm_bf16_amx.inc.h, with
 * GATED_ROWWISE_KERNEL, the row-wise kernel of gated. */

/* Blocks of outputs in a strip. For small M weights are read as streams, all that a thread has in one. */
static int64_t strip_blocks(int64_t rows, int64_t blocks) { return rows <= TILE_ROWS ? blocks : 4; }

/* Elements of scratch for one of the products; `rows` or fewer. */
static int64_t gated_elements(int64_t rows, int64_t blocks) {
    return LN_MAX(LN_MIN(rows, (int64_t)TILE_ROWS) * (blocks | 1), rows * (strip_blocks(rows, blocks) | 1)) *
           LN_PACK_NR;
}

static size_t gated_scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    const int64_t sums = 2 * gated_elements(ln_dim(ln_program_value(p, n->in[0])->dims[0], b),
                                            ln_pack_blocks(ln_program_value(p, n->in[1])->dims[0]));
    return (size_t)sums * sizeof(float) + bf16_amx_scratch(p, n, b);
}

/* Blocks [b, end) of both products, and their activation; x_is_near: not the first strip. Rows of sums are an
 * odd number of cache lines apart. */
static void gated_strip(const ln_call *c, int64_t b, int64_t end, bool x_is_near, float *sums,
                        void *scratch) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const int64_t d = b * LN_PACK_NR, cols = LN_MIN(end * LN_PACK_NR, y->cols) - d,
                  pitch = ((end - b) | 1) * LN_PACK_NR;
    const ln_pnode linear = {.op = LN_OP_LINEAR, .n_in = 2, .n_out = 1},
                   activation = {.op = LN_OP_GATED, .n_in = 2, .n_out = 1, .p.gate = c->node->p.gate};
    ln_call product = {.node = &linear, .in[0] = *x, .step = c->step, .n_threads = 1, .scratch = scratch};
    ln_call last = {.node = &activation, .out[0] = *y, .step = c->step, .n_threads = 1};
    for (int k = 0; k < 2; k++) {
        product.in[1] = c->in[1 + k];
        product.in[1].rows = cols;
        product.out[0] = last.in[k] = (ln_arg){.data = sums + k * y->rows * pitch,
                                               .rows = y->rows,
                                               .cols = cols,
                                               .pitch = pitch,
                                               .dtype = LN_F32};
        bf16_amx_product(&product, x_is_near || k > 0, b);
    }
    last.out[0].data = (char *)y->data + d * ln_dtype_bytes(y->dtype);
    last.out[0].cols = cols;
    GATED_ROWWISE_KERNEL(&last);
}

static void gated_run(const ln_call *c) {
    const ln_arg *y = &c->out[0];
    int64_t lo, hi;
    bf16_amx_partition(c, &lo, &hi);
    if (lo >= hi || y->rows < 1) return;
    const int64_t some = strip_blocks(y->rows, hi - lo);
    float *sums = c->scratch, *scratch = sums + 2 * gated_elements(y->rows, hi - lo);
    for (int64_t b = lo; b < hi; b += some) gated_strip(c, b, LN_MIN(b + some, hi), b > lo, sums, scratch);
}
