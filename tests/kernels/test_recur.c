/* Tests the kernels of recurrent mixers on every ISA level: outputs and pages have the bits of the reference
 * kernels, and the delta rule by chunks is the step-by-step rule in double, up to rounding. */
/* run: quick */
#include "kernels.h"

#include "ops/recur_layout.h"
#include "ops/scalar_type.h"

enum { MOST_SEQS = 3, BLOCKS = 6 };

static float test_normal(uint64_t *state) {
    float s = 0;
    for (int i = 0; i < 12; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        s += (float)(uint32_t)(*state >> 33) / 2147483648.0f;
    }
    return s - 6.0f;
}

/* Sequences whose rows begin at some positions, in steps of some rows each. */
typedef struct recur_case {
    int n_k_heads, n_v_heads, k_dim, v_dim, taps, page_len, n_seqs;
    ln_dtype dtype;
    bool apart;          /* q, k and v are operands of their own */
    int rows[MOST_SEQS]; /* of each sequence in a step */
    int steps, hole;     /* blocks that have no page: those whose number is `hole` modulo 3; -1: none */
} recur_case;

typedef struct recur_run {
    ln_p_recur p;
    int32_t pages[MOST_SEQS * BLOCKS], ids[512], pos[512], seq[512], row0[MOST_SEQS + 1];
    ln_step step;
    char *pool;
    size_t pool_bytes;
} recur_run;

static void run_open(recur_run *a, const recur_case *t) {
    memset(a, 0, sizeof *a);
    a->p = (ln_p_recur){.pages_per_block = 1,
                        .page_len = t->page_len,
                        .taps = t->taps,
                        .channels = 2 * t->n_k_heads * t->k_dim + t->n_v_heads * t->v_dim,
                        .n_k_heads = t->n_k_heads,
                        .n_v_heads = t->n_v_heads,
                        .k_dim = t->k_dim,
                        .v_dim = t->v_dim,
                        .dtype = t->dtype,
                        .silu = true};
    a->p.page_bytes = a->p.layer_bytes = ln_recur_parts_of(&a->p, sizeof(float)).bytes;
    a->pool_bytes = (size_t)(MOST_SEQS * BLOCKS * a->p.page_bytes);
    assert_int_equal(posix_memalign((void **)&a->pool, 64, a->pool_bytes), 0);
    memset(a->pool, 0, a->pool_bytes);
}

/* The step number `number` of a case: which blocks have pages, which rows there are. */
static void run_step(recur_run *a, const recur_case *t, int number) {
    int32_t rows = 0;
    for (int b = 0; b < t->n_seqs; b++) {
        const int first = number * t->rows[b], last = first + t->rows[b] - 1;
        for (int k = 0; k < BLOCKS; k++) {
            const bool inner = k > first / t->page_len && k < last / t->page_len;
            a->pages[b * BLOCKS + k] = t->hole >= 0 && k % 3 == t->hole && inner ? -1 : b * BLOCKS + k;
        }
        a->row0[b] = rows;
        for (int i = 0; i < t->rows[b]; i++, rows++) a->pos[rows] = first + i, a->seq[rows] = b;
    }
    a->row0[t->n_seqs] = rows;
    a->step = (ln_step){.n_rows = rows,
                        .n_seqs = t->n_seqs,
                        .ids = a->ids,
                        .pos = a->pos,
                        .seq = a->seq,
                        .row0 = a->row0,
                        .pages = {a->pages},
                        .pages_per_block = {1},
                        .n_blocks = BLOCKS};
}

/* A call of an op with random operands of a seed; y: its output, [rows, cols]. */
static ln_call call_of(recur_run *a, const recur_case *t, ln_pnode *node, ln_op op, uint64_t seed, float *x,
                       float *gates, float *w, float *y) {
    const int64_t rows = a->step.n_rows, C = a->p.channels, keys = (int64_t)t->n_k_heads * t->k_dim,
                  values = (int64_t)t->n_v_heads * t->v_dim, H = t->n_v_heads;
    for (int64_t i = 0; i < rows * C; i++) x[i] = test_normal(&seed);
    for (int64_t i = 0; i < rows * 2 * H; i++)
        gates[i] = i % (2 * H) < H ? -0.2f * fabsf(test_normal(&seed)) : 0.5f + 0.2f * test_normal(&seed);
    for (int64_t i = 0; i < C * t->taps; i++) w[i] = test_normal(&seed);
    *node = (ln_pnode){.op = op, .n_in = op == LN_OP_SHORT_CONV ? 3 : t->apart ? 5 : 3, .n_out = 2};
    node->p.recur = a->p;
    ln_call c = {.node = node, .step = &a->step, .n_threads = 1};
    c.in[0] = (ln_arg){a->pool, 1, 1, 1, LN_F32};
    if (op == LN_OP_SHORT_CONV) {
        c.in[1] = (ln_arg){x, rows, C, C, LN_F32};
        c.in[2] = (ln_arg){w, 1, C * t->taps, C * t->taps, LN_F32};
        c.out[1] = (ln_arg){y, rows, C, C, LN_F32};
        return c;
    }
    c.in[1] = (ln_arg){gates, rows, 2 * H, 2 * H, LN_F32};
    c.in[2] = (ln_arg){x, rows, t->apart ? keys : C, C, LN_F32};
    c.in[3] = (ln_arg){x + keys, rows, keys, C, LN_F32};
    c.in[4] = (ln_arg){x + 2 * keys, rows, values, C, LN_F32};
    c.out[1] = (ln_arg){y, rows, values, values, LN_F32};
    return c;
}

static const ln_kernel *kernel_at(int isa, const ln_call *c, ln_kernel_table *table) {
    if (isa < 0) ln_ref_kernels_float(table);
    else ln_cpu_kernels((ln_isa)isa, table);
    const int variant = ln_variant_of(c->node->op, &c->node->p, (ln_format){0}, LN_STORED_DENSE);
    return ln_kernel_of(table, c->node->op, variant);
}
static void run_on(int isa, ln_call c, int threads) {
    static ln_kernel_table table;
    const ln_kernel *k = kernel_at(isa, &c, &table);
    const ln_bounds bounds = {512, 1, MOST_SEQS};
    const size_t bytes = k->scratch ? k->scratch(NULL, c.node, &bounds) : 0;
    c.n_threads = threads;
    for (c.thread = 0; c.thread < threads; c.thread++) {
        c.scratch = NULL;
        if (bytes) assert_int_equal(posix_memalign(&c.scratch, 64, bytes), 0);
        if (bytes) memset(c.scratch, 0xa5, bytes);
        k->fn(&c);
        free(c.scratch);
    }
}

static void check_case(const recur_case *t, ln_op op) {
    enum { MOST = 512 * 512 };
    static float x[MOST], gates[MOST], w[MOST], want[MOST], got[MOST];
    recur_run ref, fast;
    for (int isa = 1; isa < LN_ISA_COUNT; isa++)
        for (int threads = 1; threads < 4 && isa_available(isa); threads += 2) {
            run_open(&ref, t);
            run_open(&fast, t);
            for (int s = 0; s < t->steps; s++) {
                ln_pnode node;
                run_step(&ref, t, s);
                run_step(&fast, t, s);
                run_on(-1, call_of(&ref, t, &node, op, (uint64_t)s, x, gates, w, want), 1);
                const ln_call c = call_of(&fast, t, &node, op, (uint64_t)s, x, gates, w, got);
                run_on(isa, c, threads);
                if (memcmp(want, got, (size_t)(c.out[1].rows * c.out[1].cols) * sizeof *got) != 0)
                    fail_msg("%s on %s: heads %d %d of %d %d, page %d, step %d: other bits", ln_op_name(op),
                             ln_cpu_isa_name((ln_isa)isa), t->n_k_heads, t->n_v_heads, t->k_dim, t->v_dim,
                             t->page_len, s);
                if (memcmp(ref.pool, fast.pool, ref.pool_bytes) != 0)
                    fail_msg("%s on %s: step %d: other pages", ln_op_name(op), ln_cpu_isa_name((ln_isa)isa),
                             s);
            }
            free(ref.pool);
            free(fast.pool);
        }
}

static void levels(void **state) {
    static const recur_case cases[] = {
        {2, 4, 16, 32, 4, 64, 2, LN_F32, false, {64, 1, 0}, 5, -1},
        {2, 4, 16, 32, 4, 64, 2, LN_BF16, false, {70, 13, 0}, 5, -1},
        {1, 3, 32, 16, 2, 32, 3, LN_BF16, true, {9, 31, 1}, 6, -1},
        {2, 2, 16, 48, 4, 32, 1, LN_F32, true, {150, 0, 0}, 1, 1},
        {1, 1, 128, 128, 4, 64, 1, LN_BF16, false, {100, 0, 0}, 3, 2},
        {2, 4, 8, 12, 3, 32, 2, LN_F32, false, {33, 5, 0}, 4, -1}, /* widths of no kernel but the reference */
    };
    (void)state;
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        check_case(&cases[i], LN_OP_SHORT_CONV);
        check_case(&cases[i], LN_OP_GATED_DELTA);
    }
}

/* The step-by-step rule of one head, as transformers' torch_recurrent_gated_delta_rule states it. */
static void step_by_step(const recur_case *t, const float *x, const float *gates, int64_t rows, int head,
                         double *y) {
    const int group = t->n_v_heads / t->n_k_heads, E = t->k_dim, Ev = t->v_dim;
    const int64_t C = 2 * t->n_k_heads * E + t->n_v_heads * Ev;
    double *s = calloc((size_t)(E * Ev), sizeof *s), *u = calloc((size_t)Ev, sizeof *u);
    for (int64_t r = 0; r < rows; r++) {
        const float *q = x + r * C + head / group * E, *k = q + t->n_k_heads * E,
                    *v = x + r * C + 2 * t->n_k_heads * E + head * Ev;
        double qq = 1e-6, kk = 1e-6, decay = exp((double)gates[r * 2 * t->n_v_heads + head]),
               beta = (double)gates[r * 2 * t->n_v_heads + t->n_v_heads + head];
        for (int i = 0; i < E; i++) qq += (double)q[i] * (double)q[i], kk += (double)k[i] * (double)k[i];
        for (int e = 0; e < Ev; e++) {
            u[e] = (double)v[e];
            for (int i = 0; i < E; i++)
                s[i * Ev + e] *= decay, u[e] -= s[i * Ev + e] * (double)k[i] / sqrt(kk);
        }
        for (int e = 0; e < Ev; e++) {
            y[r * Ev + e] = 0;
            for (int i = 0; i < E; i++) {
                s[i * Ev + e] += (double)k[i] / sqrt(kk) * beta * u[e];
                y[r * Ev + e] += s[i * Ev + e] * (double)q[i] / sqrt(qq * E);
            }
        }
    }
    free(s), free(u);
}

static void rule(void **state) {
    static const recur_case t = {2, 4, 16, 32, 4, 64, 1, LN_F32, false, {300, 0, 0}, 1, 1};
    static float x[300 * 256], gates[300 * 8], w[1024], y[300 * 128];
    static double want[300 * 32];
    recur_run a;
    ln_pnode node;
    (void)state;
    run_open(&a, &t);
    run_step(&a, &t, 0);
    run_on(-1, call_of(&a, &t, &node, LN_OP_GATED_DELTA, 5, x, gates, w, y), 1);
    for (int head = 0; head < 4; head++) {
        double most = 0, off = 0;
        step_by_step(&t, x, gates, 300, head, want);
        for (int r = 0; r < 300; r++)
            for (int e = 0; e < 32; e++) {
                most = fmax(most, fabs(want[r * 32 + e]));
                off = fmax(off, fabs(want[r * 32 + e] - (double)y[r * 128 + head * 32 + e]));
            }
        if (!(off < 1e-5 * most)) fail_msg("head %d is off by %g of %g", head, off, most);
    }
    free(a.pool);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(levels), cmocka_unit_test(rule)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
