/* experts and experts_back on an ISA level: products of rows with the matrices of their experts, by the
 * level's own kernels for one matrix.
 *
 *     order the choices by expert                    counting sort, in scratch
 *     for the experts that have rows                 a partition is a range of blocks of outputs of several
 *       for TILE rows of the expert                    experts, by cost
 *         gather rows of x                           none if there is one row
 *         for COLS outputs
 *           linear                                   into scratch, then to the rows of y; one row directly
 *
 * Weights of experts without a row are not read. Packed weights of experts follow each other in whole blocks
 * of 16 outputs (pack/pack.h), so that any range of blocks is a packed matrix. A kernel of linear gives each
 * row the same bits whatever rows are next to it, and so does this one.
 *
 * Included once per ISA level by a file that defines LN_ISA and LN_EXPERTS_PRODUCTS, the products that the
 * level has for one matrix. */
#include "../cpu.h"
#include "../pack/pack.h"

enum {
    TILE = 256,     /* rows of an expert at a time */
    COLS = 1024,    /* outputs at a time */
    BLOCK_COST = 4, /* of reading a block of weights, in rows */
    MOST = LN_ROUTE_EXPERTS
};

/* The choices by expert: those of expert x are order[begin[x]] .. order[begin[x + 1] - 1], ascending. */
typedef struct choices {
    int32_t begin[MOST + 1];
    int32_t *order;
} choices;
static void sort_choices(const ln_arg *ids, int64_t n, int64_t X, choices *s) {
    const float *id = ids->data;
    memset(s->begin, 0, (size_t)(X + 1) * sizeof *s->begin);
    for (int64_t p = 0; p < n; p++) s->begin[(int64_t)id[p] + 1]++;
    for (int64_t x = 0; x < X; x++) s->begin[x + 1] += s->begin[x];
    int32_t next[MOST];
    memcpy(next, s->begin, (size_t)X * sizeof *next);
    for (int64_t p = 0; p < n; p++) s->order[next[(int64_t)id[p]]++] = (int32_t)p;
}

static size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }
static int64_t element_bytes(const ln_arg *a) { return a->dtype == LN_BF16 ? 2 : 4; }

/* The matrix of expert x from block `lo` on, `rows` outputs of it, as an operand of linear. */
typedef struct matrix {
    ln_arg arg;
    ln_affine affine;
    ln_coded coded;
} matrix;
static void matrix_of(const ln_arg *w, int64_t x, int64_t D, int64_t lo, int64_t rows, matrix *m) {
    const int64_t block = x * ln_pack_blocks(D) + lo, C = w->cols;
    m->arg = *w;
    m->arg.rows = rows;
    m->arg.pitch = C;
    if (w->coded) {
        m->coded = *(const ln_coded *)w->data;
        const int64_t row = x * D + lo * LN_PACK_NR;
        const ln_row_bytes bytes = ln_encoding_row(m->coded.enc, C);
        ln_encoded_rows *r = &m->coded.rows;
        r->data = (const char *)r->data + row * bytes.data;
        r->scales = (const char *)r->scales + row * bytes.scales;
        if (r->offsets) r->offsets = (const char *)r->offsets + row * bytes.offsets;
        m->arg.data = &m->coded;
    } else if (w->format.bits) {
        m->affine = *(const ln_affine *)w->data;
        m->affine.codes += block * ln_packed_block_bytes(&m->affine, C);
        if (m->affine.units) m->affine.units += block * LN_PACK_OUTPUT_SCALES;
        m->arg.data = &m->affine;
    } else m->arg.data = (char *)w->data + block * ln_pack_block_bytes((ln_dtype)w->dtype, C);
}
static ln_stored stored_as(const ln_arg *w) {
    if (w->coded) return (ln_stored)((const ln_coded *)w->data)->enc.kind;
    return w->format.bits ? LN_STORED_AFFINE : w->dtype == LN_BF16 ? LN_STORED_BF16 : LN_STORED_DENSE;
}

/* Scratch of a call: the order of choices, rows of x, rows of y, and that of the kernel of a matrix. */
typedef struct parts {
    size_t x, y, inner;
} parts;
static parts parts_of(int64_t n_choices, int64_t x_row_bytes, int64_t y_cols) {
    parts p = {.x = whole_lines((size_t)n_choices * sizeof(int32_t))};
    p.y = p.x + whole_lines((size_t)(TILE * x_row_bytes));
    p.inner = p.y + whole_lines((size_t)(TILE * y_cols) * sizeof(float));
    return p;
}

/* Rows [from, to) of an expert's choices, and a kernel for a matrix. */
typedef struct tile {
    const ln_call *c;
    const choices *chosen;
    const ln_kernel *kernel;
    const ln_pnode *node;
    int64_t x, from, to;
    parts at;
    ln_arg rows; /* of x */
} tile;
static int64_t row_of_choice(const ln_call *c, int64_t choice) {
    return c->node->p.experts.shared ? choice / c->node->p.experts.top_k : choice;
}
/* Gathers the rows of x. A single one is not copied. */
static void gather(tile *t) {
    const ln_arg *x = &t->c->in[0];
    const int64_t bytes = x->pitch * element_bytes(x);
    char *to = (char *)t->c->scratch + t->at.x;
    t->rows = *x;
    t->rows.rows = t->to - t->from;
    if (t->rows.rows > 1) t->rows.data = to;
    for (int64_t i = t->from; i < t->to; i++, to += bytes) {
        const char *row = (const char *)x->data + row_of_choice(t->c, t->chosen->order[i]) * bytes;
        if (t->rows.rows > 1) memcpy(to, row, (size_t)bytes);
        else t->rows.data = (void *)(uintptr_t)row;
    }
}
/* Columns [col, col + cols) of y of these rows, with a matrix and perhaps its bias. */
static void multiply(const tile *t, const ln_arg *w, const ln_arg *bias, int64_t col, int64_t cols) {
    const ln_arg *y = &t->c->out[0];
    const int64_t n = t->to - t->from;
    const int32_t *order = t->chosen->order + t->from;
    float *scratch = (float *)(void *)((char *)t->c->scratch + t->at.y),
          *first = (float *)y->data + order[0] * y->pitch + col;
    ln_call inner = {.node = t->node, .step = t->c->step, .n_threads = 1};
    inner.in[0] = t->rows;
    inner.in[1] = *w;
    if (bias) inner.in[2] = *bias;
    inner.out[0] = *y;
    inner.out[0].rows = n;
    inner.out[0].cols = cols;
    inner.out[0].data = n > 1 ? scratch : first;
    if (n > 1) inner.out[0].pitch = cols;
    inner.scratch = (char *)t->c->scratch + t->at.inner;
    t->kernel->fn(&inner);
    for (int64_t i = 0; n > 1 && i < n; i++)
        memcpy((float *)y->data + order[i] * y->pitch + col, scratch + i * cols,
               (size_t)cols * sizeof(float));
}

/* Blocks [lo, hi) of outputs of the tile's expert. */
static void run_blocks(tile *t, int64_t lo, int64_t hi) {
    const ln_call *c = t->c;
    const int64_t D = c->out[0].cols, end = t->to;
    for (; t->from < end; t->from = t->to) {
        t->to = LN_MIN(t->from + TILE, end);
        gather(t);
        for (int64_t b = lo; b < hi; b += COLS / LN_PACK_NR) {
            const int64_t col = b * LN_PACK_NR, last = LN_MIN(hi, b + COLS / LN_PACK_NR) * LN_PACK_NR,
                          cols = LN_MIN(last, D) - col;
            matrix m;
            ln_arg bias = c->in[3];
            matrix_of(&c->in[1], t->x, D, b, cols, &m);
            if (c->node->n_in > 3)
                bias.data = (char *)bias.data + (t->x * D + col) * ln_dtype_bytes((ln_dtype)bias.dtype);
            multiply(t, &m.arg, c->node->n_in > 3 ? &bias : NULL, col, cols);
        }
    }
}

static void experts_run(const ln_call *c) {
    const ln_arg *w = &c->in[1], *y = &c->out[0];
    const int64_t X = w->rows, blocks = ln_pack_blocks(y->cols);
    const ln_pnode node = {.op = LN_OP_LINEAR, .n_in = c->node->n_in - 1, .n_out = 1};
    choices s = {.order = c->scratch};
    if (y->rows < 1) return;
    sort_choices(&c->in[2], y->rows, X, &s);
    int64_t total = 0, at = 0;
    for (int64_t x = 0; x < X; x++) {
        const int64_t n = s.begin[x + 1] - s.begin[x];
        total += n ? blocks * (n + BLOCK_COST) : 0;
    }
    const int64_t from = total * c->thread / c->n_threads, to = total * (c->thread + 1) / c->n_threads;
    tile t = {.c = c,
              .chosen = &s,
              .kernel = ln_kernel_of(c->table, LN_OP_LINEAR,
                                     ln_variant_of(LN_OP_LINEAR, NULL, c->in[0].format, stored_as(w))),
              .node = &node,
              .at = parts_of(y->rows, c->in[0].pitch * element_bytes(&c->in[0]),
                             LN_MIN(COLS, blocks * LN_PACK_NR))};
    for (int64_t x = 0; x < X && at < to; x++) {
        const int64_t n = s.begin[x + 1] - s.begin[x], cost = n + BLOCK_COST;
        if (!n) continue;
        const int64_t lo = LN_MAX(from - at, 0) / cost, hi = LN_MIN((to - at) / cost, blocks);
        at += blocks * cost;
        if (lo >= hi) continue;
        t.x = x, t.from = s.begin[x], t.to = s.begin[x + 1];
        run_blocks(&t, lo, hi);
    }
}

/* dx of an expert's rows at a time; experts are divided among partitions. */
static void experts_back_run(const ln_call *c) {
    const ln_arg *w = &c->in[1], *dx = &c->out[0];
    const int64_t X = w->rows, D = c->in[0].cols;
    const ln_pnode node = {.op = LN_OP_LINEAR_BACK, .n_in = 2, .n_out = 1};
    choices s = {.order = c->scratch};
    if (dx->rows < 1) return;
    sort_choices(&c->in[2], dx->rows, X, &s);
    tile t = {.c = c,
              .chosen = &s,
              .kernel = ln_kernel_of(c->table, LN_OP_LINEAR_BACK, (int)stored_as(w)),
              .node = &node,
              .at = parts_of(dx->rows, c->in[0].pitch * element_bytes(&c->in[0]), dx->cols)};
    for (int64_t x = 0; x < X; x++) {
        if (x % c->n_threads != c->thread) continue;
        matrix m;
        matrix_of(w, x, D, 0, D, &m);
        const int64_t end = s.begin[x + 1];
        t.x = x;
        for (t.from = s.begin[x]; t.from < end; t.from = t.to) {
            t.to = LN_MIN(t.from + TILE, end);
            gather(&t);
            multiply(&t, &m.arg, NULL, 0, dx->cols);
        }
    }
}

/* Scratch of the kernel of one matrix, for a node of these two values. */
static size_t scratch_of(const ln_kernel_table *table, ln_op op, const ln_program *p, const ln_pnode *n,
                         const ln_bounds *b) {
    ln_pvalue v[3] = {*ln_program_value(p, n->in[0]), *ln_program_value(p, n->in[1]),
                      *ln_program_value(p, n->out[0])};
    const ln_program one = {.abi = p->abi,
                            .size = p->size,
                            .value_size = sizeof *v,
                            .node_size = p->node_size,
                            .n_values = 3,
                            .values = v,
                            .bounds = *b,
                            .real_bytes = p->real_bytes};
    const ln_pnode node = {.op = op, .n_in = 2, .n_out = 1, .in = {0, 1}, .out = {2}};
    v[0].dims[0] = v[2].dims[0] = TILE;
    v[1].n_dims = 2;
    v[1].dims[0] = v[1].dims[1], v[1].dims[1] = v[1].dims[2];
    const ln_kernel *k = ln_kernel_of(table, op, ln_node_variant(&one, &node));
    return k && k->scratch ? k->scratch(&one, &node, b) : 0;
}
static size_t experts_scratch(const ln_kernel_table *table, const ln_program *p, const ln_pnode *n,
                              const ln_bounds *b) {
    const ln_pvalue *x = ln_program_value(p, n->in[0]), *y = ln_program_value(p, n->out[0]);
    const int64_t blocks = ln_pack_blocks(y->dims[1]) * LN_PACK_NR,
                  cols = n->op == LN_OP_EXPERTS ? LN_MIN((int64_t)COLS, blocks) : y->dims[1];
    return parts_of(ln_dim(y->dims[0], b), x->row_bytes, cols).inner +
           scratch_of(table, n->op == LN_OP_EXPERTS ? LN_OP_LINEAR : LN_OP_LINEAR_BACK, p, n, b);
}

#define EXPERTS_KERNEL \
    { .fn = experts_run, .composed_scratch = experts_scratch, .pieces = 4 }
const ln_kernel_row LN_ISA(ln_cpu_experts)[] = {
    {LN_OP_EXPERTS, LN_EXPERTS_PRODUCTS, EXPERTS_KERNEL},
    {LN_OP_EXPERTS_BACK,
     LN_ANY_STORED | LN_CODED,
     {.fn = experts_back_run, .composed_scratch = experts_scratch}},
    {0},
};
