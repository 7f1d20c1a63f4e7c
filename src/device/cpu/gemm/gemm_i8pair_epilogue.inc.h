/* Epilogue of the int8 digit pair products: the two int32 sums of an output become its f32 value, and of a
 * gated pair (gate and up projections) the activation and the product of both.
 *
 *     t = fma((float)(high - z sum(h)), k, (float)(low - z sum(l) + correction))
 *     v = t (u e)                                u: scale of the row, e: output scale
 *     y = v, or act(v of gate) v of up
 *
 *     sums of a row tile:  | high[16 rows][16 outputs] | .. low_offset bytes on: low[16][16] |
 *
 * Every value is computed lane by lane in one order, so it does not depend on what else is in the tile. Part
 * of gemm_i8pair_amx.inc.h, whose names it uses; gemm_i8pair_vnni.inc.h uses it too. */
/* What the epilogue subtracts from both sums of row r, with the row's scale. zero_point: what H is too large
 * by. */
static ln_i8pair_sums row_sums_of(const i8pair_gemm *t, int64_t r, int32_t zero_point) {
    ln_i8pair_sums row_sums;
    const ln_i8pair_layout row = t->x_panels ? ln_i8pair_panel(t->x, t->x_rows, t->ldx, r)
                                             : ln_i8pair_row_layout(t->x + r * t->ldx, t->C);
    memcpy(&row_sums, row.terms, sizeof row_sums);
    return (ln_i8pair_sums){row_sums.u, zero_point * row_sums.h,
                            zero_point * row_sums.l - ln_i8pair_correction(t->w->code.bits, row_sums.l)};
}
/* The value of an output: 16 of one row. output_scale: e. */
INLINE vf epilogue_value(vf radix, vi sum_high, vi sum_low, const ln_i8pair_sums *row_sums, vf output_scale) {
    sum_high = vi_sub(sum_high, vi_set32(row_sums->h));
    sum_low = vi_sub(sum_low, vi_set32(row_sums->l));
    return vf_mul(vf_fma(vf_from_i32(sum_high), radix, vf_from_i32(sum_low)),
                  vf_mul(vf_set1(row_sums->u), output_scale));
}
/* What is done with a block's values. The activation is computed with the gate's block or with up's. */
typedef enum epilogue {
    STORE,          /* y = v */
    KEEP_GATE,      /* gate_out = v */
    KEEP_GATE_SILU, /* gate_out = silu(v) */
    KEEP_GATE_GELU, /* gate_out = gelu(v) */
    MUL_UP,         /* y = gate_out v */
    SILU_MUL_UP,    /* y = silu(gate_out) v */
    GELU_MUL_UP     /* y = gelu(gate_out) v */
} epilogue;
/* gate_early: the activation of these rows is computed with the gate's block. */
INLINE epilogue epilogue_of(const i8pair_gemm *t, int64_t b, bool gate_early) {
    if (!t->function) return STORE;
    return (epilogue)((int)(b % 2 ? MUL_UP : KEEP_GATE) + (gate_early != b % 2 ? (int)t->function : 0));
}

/* Rows of a block whose epilogue runs one after the other. */
typedef struct epilogue_state {
    const uint8_t *sums;            /* high sums of the next row */
    const ln_i8pair_sums *row_sums; /* of the next row */
    float *y, *gate_out;            /* where the next row's values go; where its gate values are */
    int64_t rows_left;
    int64_t low_offset; /* bytes from high to low sums */
    int64_t ldy;
    int64_t outputs; /* of the block: y may have no room for 16 in the last */
    vf radix, e;     /* e: output scales */
} epilogue_state;
/* The epilogue of n rows of block b from row r on, whose sums are at `sums`. */
INLINE epilogue_state epilogue_begin(const i8pair_gemm *t, const int32_t *sums, int64_t low_offset, int64_t r,
                                     int64_t n, int64_t b) {
    const int64_t d = output_block(t, b) * TILE_ROWS;
    return (epilogue_state){.sums = (const uint8_t *)sums,
                            .row_sums = t->row_sums + r,
                            .y = y_at(t, r, b),
                            .gate_out = t->gate_out + r * TILE_ROWS,
                            .rows_left = n,
                            .low_offset = low_offset,
                            .ldy = y_pitch(t),
                            .outputs = LN_MIN((int64_t)TILE_ROWS, t->D - d),
                            .radix = vf_set1(t->radix),
                            .e = output_scale_of(t, b)};
}
/* The next n rows. While the tile unit multiplies, the number of operations of any kind counts: those of the
 * next 64 columns enter the reorder window only when few enough are before them. */
INLINE void epilogue_next(const epilogue what, epilogue_state *f, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const vf v =
            epilogue_value(f->radix, vi_load(f->sums), vi_load(f->sums + f->low_offset), f->row_sums, f->e);
        const bool first = what >= KEEP_GATE && what < MUL_UP,
                   silu = what == KEEP_GATE_SILU || what == SILU_MUL_UP,
                   gelu = what == KEEP_GATE_GELU || what == GELU_MUL_UP;
        const vf arg = what >= MUL_UP ? vf_load(f->gate_out) : v, activated = silu   ? vf_silu(arg)
                                                                              : gelu ? vf_gelu_tanh(arg)
                                                                                     : arg;
        if (first) vf_store(f->gate_out, activated);
        else vf_store_n(f->y, f->outputs, what == STORE ? v : vf_mul(activated, v));
        f->sums += ROW_BYTES, f->row_sums++;
        if (what != STORE) f->gate_out += TILE_ROWS;
        if (!first) f->y += f->ldy;
    }
    f->rows_left -= n;
}

static void epilogue_run(epilogue what, epilogue_state *f) {
    switch (what) {
    case STORE: epilogue_next(STORE, f, f->rows_left); break;
    case KEEP_GATE: epilogue_next(KEEP_GATE, f, f->rows_left); break;
    case KEEP_GATE_SILU: epilogue_next(KEEP_GATE_SILU, f, f->rows_left); break;
    case KEEP_GATE_GELU: epilogue_next(KEEP_GATE_GELU, f, f->rows_left); break;
    case MUL_UP: epilogue_next(MUL_UP, f, f->rows_left); break;
    case SILU_MUL_UP: epilogue_next(SILU_MUL_UP, f, f->rows_left); break;
    case GELU_MUL_UP: epilogue_next(GELU_MUL_UP, f, f->rows_left); break;
    }
}
