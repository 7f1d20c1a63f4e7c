/* What becomes of the sums of products by row: numbers of y, or a pair's, through its function. A part of gemm_i8pair_amx.inc.h, whose names it uses. */
/* Of a row; `middle`: what H is too large by in the sums. */
static ln_fixed_terms row_sums_of(const i8pair_gemm *t, int64_t r, int32_t middle) {
    ln_fixed_terms row_sums;
    const ln_fixed_place row = t->x_panels ? ln_fixed_panel(t->x, t->x_rows, t->ldx, r) : ln_fixed_row_place(t->x + r * t->ldx, t->C);
    memcpy(&row_sums, row.terms, sizeof row_sums);
    return (ln_fixed_terms){row_sums.u, middle * row_sums.h, middle * row_sums.l - ln_fixed_rest(t->w->enc.bits, row_sums.l)};
}
/* y of a row and a block. */
INLINE vf epilogue_value(vf radix, vi sum_high, vi sum_low, const ln_fixed_terms *row_sums, vf e) {
    sum_high = vi_sub(sum_high, vi_set32(row_sums->h));
    sum_low = vi_sub(sum_low, vi_set32(row_sums->l));
    return vf_mul(vf_fma(vf_from_i32(sum_high), radix, vf_from_i32(sum_low)), vf_mul(vf_set1(row_sums->u), e));
}
/* What becomes of a block's numbers: y; of a pair's first block what rests in `first`, of its second block y, times that. The pair's function is made with either of them. */
typedef enum epilogue { STORE, KEEP_GATE, KEEP_GATE_SILU, KEEP_GATE_GELU, MUL_UP, SILU_MUL_UP, GELU_MUL_UP } epilogue;
/* `early`: of these rows the function is made with the first block. */
INLINE epilogue epilogue_of(const i8pair_gemm *t, int64_t b, bool gate_early) {
    if (!t->function) return STORE;
    return (b % 2 ? MUL_UP : KEEP_GATE) + (gate_early != b % 2 ? (int)t->function : 0);
}

/* Rows of a block that become numbers, one after the other. */
typedef struct epilogue_state {
    const uint8_t *sums;     /* of the next one: upper; lower ones lie `lower` bytes on */
    const ln_fixed_terms *row_sums;
    float *y, *gate_out;        /* where its numbers go, and where a pair's first ones rest */
    int64_t rows_left, low_offset, ldy, outputs; /* outputs: of the block, y may have no room for 16 in the last */
    vf radix, e;
} epilogue_state;
/* n rows of block b from r on, whose sums are `sums`. */
INLINE epilogue_state epilogue_begin(const i8pair_gemm *t, const int32_t *sums, int64_t low_offset, int64_t r, int64_t n, int64_t b) {
    const int64_t d = output_block(t, b) * TILE_ROWS;
    return (epilogue_state){.sums = (const uint8_t *)sums, .row_sums = t->row_sums + r, .y = y_at(t, r, b), .gate_out = t->gate_out + r * TILE_ROWS, .rows_left = n, .low_offset = low_offset, .ldy = y_pitch(t),
                       .outputs = LN_MIN((int64_t)TILE_ROWS, t->D - d), .radix = vf_set1(t->radix), .e = output_scale_of(t, b)};
}
/* The next n. Beside products what counts are operations of any kind, since those of the next 64 columns are only seen when few enough lie before them. */
INLINE void epilogue_next(const epilogue what, epilogue_state *f, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const vf v = epilogue_value(f->radix, vi_load(f->sums), vi_load(f->sums + f->low_offset), f->row_sums, f->e);
        const bool first = what >= KEEP_GATE && what < MUL_UP, silu = what == KEEP_GATE_SILU || what == SILU_MUL_UP, gelu = what == KEEP_GATE_GELU || what == GELU_MUL_UP;
        const vf arg = what >= MUL_UP ? vf_load(f->gate_out) : v, activated = silu ? vf_silu(arg) : gelu ? vf_gelu_tanh(arg) : arg;
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
