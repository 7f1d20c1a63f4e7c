/* What becomes of the sums of products by row: numbers of y, or a pair's, through its function. A part of gemm_i8pair_amx.inc.h, whose names it uses. */
/* Of a row; `middle`: what H is too large by in the sums. */
static ln_fixed_terms terms_of(const tiles *t, int64_t r, int32_t middle) {
    ln_fixed_terms terms;
    const ln_fixed_place row = t->x_panels ? ln_fixed_panel(t->x, t->x_rows, t->ldx, r) : ln_fixed_row_place(t->x + r * t->ldx, t->C);
    memcpy(&terms, row.terms, sizeof terms);
    return (ln_fixed_terms){terms.u, middle * terms.h, middle * terms.l - ln_fixed_rest(t->w->enc.bits, terms.l)};
}
/* y of a row and a block. */
INLINE vf finished(vf radix, vi upper, vi lower, const ln_fixed_terms *terms, vf e) {
    upper = vi_sub(upper, vi_int(terms->h));
    lower = vi_sub(lower, vi_int(terms->l));
    return vf_mul(vf_fma(vf_int(upper), radix, vf_int(lower)), vf_mul(vf_set1(terms->u), e));
}
/* What becomes of a block's numbers: y; of a pair's first block what rests in `first`, of its second block y, times that. The pair's function is made with either of them. */
typedef enum becomes { Y, FIRST, FIRST_SILU, FIRST_GELU, SECOND, SECOND_SILU, SECOND_GELU } becomes;
/* `early`: of these rows the function is made with the first block. */
INLINE becomes becomes_of(const tiles *t, int64_t b, bool early) {
    if (!t->function) return Y;
    return (b % 2 ? SECOND : FIRST) + (early != b % 2 ? (int)t->function : 0);
}

/* Rows of a block that become numbers, one after the other. */
typedef struct finishing {
    const uint8_t *sums;     /* of the next one: upper; lower ones lie `lower` bytes on */
    const ln_fixed_terms *terms;
    float *y, *first;        /* where its numbers go, and where a pair's first ones rest */
    int64_t left, lower, ldy, outputs; /* outputs: of the block, y may have no room for 16 in the last */
    vf radix, e;
} finishing;
/* n rows of block b from r on, whose sums are `sums`. */
INLINE finishing finishing_of(const tiles *t, const int32_t *sums, int64_t lower, int64_t r, int64_t n, int64_t b) {
    const int64_t d = block_of(t, b) * SIDE;
    return (finishing){.sums = (const uint8_t *)sums, .terms = t->terms + r, .y = y_at(t, r, b), .first = t->first + r * SIDE, .left = n, .lower = lower, .ldy = y_apart(t),
                       .outputs = LN_MIN((int64_t)SIDE, t->D - d), .radix = vf_set1(t->radix), .e = e_of(t, b)};
}
/* The next n. Beside products what counts are operations of any kind, since those of the next 64 columns are only seen when few enough lie before them. */
INLINE void finish(const becomes what, finishing *f, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const vf v = finished(f->radix, vi_load(f->sums), vi_load(f->sums + f->lower), f->terms, f->e);
        const bool first = what >= FIRST && what < SECOND, silu = what == FIRST_SILU || what == SECOND_SILU, gelu = what == FIRST_GELU || what == SECOND_GELU;
        const vf of = what >= SECOND ? vf_load(f->first) : v, made = silu ? silu_of(of) : gelu ? gelu_of(of) : of;
        if (first) vf_store(f->first, made);
        else vf_store_first(f->y, f->outputs, what == Y ? v : vf_mul(made, v));
        f->sums += LINE, f->terms++;
        if (what != Y) f->first += SIDE;
        if (!first) f->y += f->ldy;
    }
    f->left -= n;
}

static void finish_as(becomes what, finishing *f) {
    switch (what) {
    case Y: finish(Y, f, f->left); break;
    case FIRST: finish(FIRST, f, f->left); break;
    case FIRST_SILU: finish(FIRST_SILU, f, f->left); break;
    case FIRST_GELU: finish(FIRST_GELU, f, f->left); break;
    case SECOND: finish(SECOND, f, f->left); break;
    case SECOND_SILU: finish(SECOND_SILU, f, f->left); break;
    case SECOND_GELU: finish(SECOND_GELU, f, f->left); break;
    }
}
