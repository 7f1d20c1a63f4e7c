/* Tests every op on every ISA level against the reference kernels: equality of bits, for odd sizes, types,
 * alignments and thread counts. */
/* run: quick */
#include "graph/graph.h"
#include "kernels.h"

/* ---- linear ---- */

typedef struct linear_case {
    int64_t rows, D, C;
    ln_dtype dtype;
    int bias; /* -1: no bias, else its type */
    bool at_end;
    size_t shift;
    bool special; /* NaN, infinities, denormals and negative zeros among the values */
} linear_case;

static const float specials[] = {NAN, INFINITY, -INFINITY, -0.0f, 1e-42f, 3e38f};

static void linear_check(const linear_case *t) {
    const int64_t size = ln_dtype_bytes(t->dtype), ldx = t->C + 3, ldy = t->D + 5;
    guarded w = guard((size_t)(t->D * t->C * size), t->at_end, t->shift),
            x = guard((size_t)((t->rows - 1) * ldx + t->C) * 4, true, 0);
    guarded b =
        guard(t->bias >= 0 ? (size_t)(t->D * ln_dtype_bytes((ln_dtype)t->bias)) : 0, t->at_end, t->shift);
    size_t y_count = (size_t)((t->rows - 1) * ldy + t->D);
    guarded want = guard(y_count * 4, true, 0), got = guard(y_count * 4, true, 0);
    for (int64_t i = 0; i < t->D * t->C; i++)
        weight_put(w.data, t->dtype, i,
                   t->special && random_u32() % 97 == 0 ? specials[random_u32() % 6] : random_f32());
    for (int64_t i = 0; t->bias >= 0 && i < t->D; i++) weight_put(b.data, (ln_dtype)t->bias, i, random_f32());
    fill_f32((float *)(void *)x.data, (t->rows - 1) * ldx + t->C);
    for (int i = 0; t->special && i < 3; i++)
        ((float *)(void *)x.data)[random_u32() % (uint32_t)t->C] = specials[random_u32() % 6];
    const bool fast = t->dtype == LN_BF16 && random_u32() % 2; /* x is bf16-valued */
    for (int64_t i = 0; fast && i < (t->rows - 1) * ldx + t->C; i++)
        ((float *)(void *)x.data)[i] = ln_bf16_f32(ln_f32_bf16(((float *)(void *)x.data)[i]));

    ln_pvalue values[2] = {{.n_dims = 2, .dims = {LN_DIM_T, t->C}, .format = bf16_if(fast)},
                           {.n_dims = 2, .dims = {t->D, t->C}, .dtype = t->dtype}};
    ln_pnode node = {.op = LN_OP_LINEAR, .n_in = t->bias >= 0 ? 3 : 2, .n_out = 1, .in = {0, 1}};
    ln_bounds bounds = {t->rows, t->rows, 1};
    ln_call c = {.node = &node};
    c.in[0] = (ln_arg){x.data, t->rows, t->C, ldx, LN_F32, bf16_if(fast)};
    c.in[1] = (ln_arg){w.data, t->D, t->C, t->C, t->dtype};
    c.in[2] = (ln_arg){b.data, 1, t->D, t->D, (ln_dtype)LN_MAX(t->bias, 0)};
    c.out[0] = (ln_arg){want.data, t->rows, t->D, ldy, LN_F32};
    run_kernel(-1, &c, &bounds, 2);
    c.out[0].data = got.data;
    for (int isa = 0; isa < LN_ISA_COUNT; isa++)
        for (size_t n = 0; n < LN_COUNT(thread_counts) && isa_available(isa); n++) {
            char what[160];
            snprintf(what, sizeof what,
                     "linear on %s: %lld rows%s, D %lld, C %lld, dtype %d, bias %d, %d threads",
                     ln_cpu_isa_name((ln_isa)isa), (long long)t->rows, fast ? " of bf16 numbers" : "",
                     (long long)t->D, (long long)t->C, (int)t->dtype, t->bias, thread_counts[n]);
            if (isa == 0 && n != 1) continue; /* the reference itself: one run is enough */
            if (own_order(isa, LN_OP_LINEAR, t->dtype)) continue;
            memset(got.data, 0xa5, got.bytes); /* the initial bytes of `want`: gaps between rows are
                                                  compared too */
            ln_call d = c;
            guarded packed = packed_for(isa, &d.in[1]);
            run_kernel_with(isa, &d, values, &bounds, thread_counts[n]);
            assert_same((float *)(void *)want.data, (float *)(void *)got.data, 1, (int64_t)y_count, 0, what);
            if (packed.map) unguard(&packed);
        }
    unguard(&w), unguard(&x), unguard(&b), unguard(&want), unguard(&got);
}

static linear_case random_linear(int64_t rows, int64_t D, int64_t C) {
    return (linear_case){rows,
                         D,
                         C,
                         (ln_dtype)random_in(0, 2),
                         random_in(-3, 2),
                         random_u32() % 2 == 0,
                         (size_t)random_in(0, 5),
                         false};
}
static void test_linear_columns(void **state) {
    (void)state;
    for (int64_t C = 1; C <= 700; C += C < 80 ? 1 : 7)
        for (int dtype = 0; dtype < 3; dtype++) {
            linear_case t = random_linear(random_in(1, 20), random_in(1, 60), C);
            t.dtype = (ln_dtype)dtype;
            t.bias = LN_MAX(t.bias, -1);
            linear_check(&t);
        }
}
static void test_linear_rows(void **state) {
    (void)state;
    for (int64_t rows = 1; rows <= 33; rows++)
        for (int dtype = 0; dtype < 3; dtype++) {
            linear_case t = random_linear(rows, random_in(33, 120), random_in(30, 150));
            t.dtype = (ln_dtype)dtype;
            t.bias = LN_MAX(t.bias, -1);
            linear_check(&t);
        }
}
static void test_linear_outputs(void **state) {
    (void)state;
    for (int64_t D = 1; D <= 100; D++) {
        linear_case t = random_linear(random_in(1, 12), D, random_in(1, 100));
        t.bias = LN_MAX(t.bias, -1);
        linear_check(&t);
        t = random_linear(1, 2 * D, random_in(1, 600)); /* rows of few columns use another number of blocks */
        t.bias = LN_MAX(t.bias, -1);
        linear_check(&t);
    }
}
static void test_linear_long(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 2, 5, 8, 9, 33};
    for (int dtype = 0; dtype < 3; dtype++)
        for (size_t i = 0; i < LN_COUNT(rows); i++)
            linear_check(&(linear_case){rows[i], 70, 3000, (ln_dtype)dtype, -1, true, 1, false});
}
static void test_linear_special(void **state) {
    (void)state;
    for (int i = 0; i < 60; i++) {
        linear_case t = random_linear(random_in(1, 20), random_in(1, 60), random_in(1, 400));
        t.bias = LN_MAX(t.bias, -1);
        t.special = true;
        linear_check(&t);
    }
}

/* ---- row-wise ops ---- */

/* Compares the output in f32 or, for an op that ROUNDS, bf16-valued in f32 and stored as bf16, which
 * vector ISA levels support. */
static void row_check_as(ln_call *c, int64_t rows, int64_t cols, bool inplace, bool rounds,
                         const char *name) {
    const ln_bounds bounds = {rows, rows, 1};
    const int64_t ldy = cols + 7;
    size_t count = (size_t)((rows - 1) * ldy + cols);
    guarded want = guard(count * 4, true, 0), got = guard(count * 4, true, 0);
    c->out[0] = (ln_arg){want.data, rows, cols, ldy, LN_F32, bf16_if(rounds)};
    run_kernel(-1, c, &bounds, 1);
    for (int64_t r = 0; rounds && r < rows; r++)
        for (int64_t i = 0; i < cols; i++)
            assert_int_equal(ln_f32_bits(((float *)(void *)want.data)[r * ldy + i]) & 0xffff, 0);
    for (int isa = 0; isa < LN_ISA_COUNT; isa++)
        for (size_t n = 0; n < LN_COUNT(thread_counts) && isa_available(isa); n++)
            for (int on_input = 0; on_input <= (inplace ? 1 : 0); on_input++) {
                char what[120];
                ln_call d = *c;
                d.out[0].data = got.data;
                memset(got.data, 0xa5, got.bytes);
                if (on_input) { /* the output is in the buffer of input 0 */
                    for (int64_t r = 0; r < rows; r++)
                        memcpy((float *)(void *)got.data + r * ldy,
                               (const float *)c->in[0].data + r * c->in[0].pitch, (size_t)cols * 4);
                    d.in[0].data = got.data;
                    d.in[0].pitch = ldy;
                }
                guarded packed = d.node->op == LN_OP_EMBED ? packed_for(isa, &d.in[0]) : (guarded){0};
                run_kernel(isa, &d, &bounds, thread_counts[n]);
                if (packed.map) unguard(&packed);
                if (rounds && !on_input && isa > LN_ISA_PLAIN && n % 2) {
                    ln_kernel_table table;
                    memset(got.data, 0xa5, got.bytes);
                    run_narrow(&kernels_of(isa, &table)->of[d.node->op][call_variant(&d)], &d, NULL, &bounds,
                               thread_counts[n]);
                }
                snprintf(what, sizeof what, "%s on %s: %lld x %lld, %d threads, in place %d, rounded %d",
                         name, ln_cpu_isa_name((ln_isa)isa), (long long)rows, (long long)cols,
                         thread_counts[n], on_input, rounds);
                assert_same((float *)(void *)want.data, (float *)(void *)got.data, 1, (int64_t)count, 0,
                            what);
            }
    unguard(&want), unguard(&got);
}

static void row_check(ln_call *c, int64_t rows, int64_t cols, bool inplace, const char *name) {
    row_check_as(c, rows, cols, inplace, false, name);
    if (ln_ops[c->node->op].props & LN_PROP_ROUNDS) row_check_as(c, rows, cols, inplace, true, name);
}

static guarded input_block(int64_t rows, int64_t cols, int64_t pitch, float stretch, bool special) {
    guarded g = guard((size_t)((rows - 1) * pitch + cols) * 4, true, 0);
    float *p = (float *)(void *)g.data;
    for (int64_t i = 0; i < (rows - 1) * pitch + cols; i++)
        p[i] = special && random_u32() % 23 == 0 ? specials[random_u32() % 6] : random_f32() * stretch;
    return g;
}

static void test_pointwise(void **state) {
    (void)state;
    static const struct {
        const char *name;
        ln_pnode node;
    } ops[] = {{"add", {.op = LN_OP_ADD, .n_in = 2}},
               {"mul", {.op = LN_OP_MUL, .n_in = 2}},
               {"silu", {.op = LN_OP_SILU, .n_in = 1}},
               {"gelu_tanh", {.op = LN_OP_GELU_TANH, .n_in = 1}},
               {"relu2", {.op = LN_OP_RELU2, .n_in = 1}},
               {"sigmoid", {.op = LN_OP_SIGMOID, .n_in = 1}},
               {"softcap", {.op = LN_OP_SOFTCAP, .n_in = 1, .p.scale = {2.5f}}},
               {"centre", {.op = LN_OP_CENTRE, .n_in = 1}},
               {"gated silu", {.op = LN_OP_GATED, .n_in = 2, .p.gate = {LN_ACT_SILU}}},
               {"gated gelu_tanh", {.op = LN_OP_GATED, .n_in = 2, .p.gate = {LN_ACT_GELU_TANH}}},
               {"convert to bf16", {.op = LN_OP_CONVERT, .n_in = 1, .p.convert = {{LN_FORMAT_BF16, 0, 0}}}}};
    static const int64_t cols[] = {1, 2, 7, 15, 16, 17, 31, 33, 64, 100, 257, 1000};
    for (size_t o = 0; o < LN_COUNT(ops); o++)
        for (size_t i = 0; i < LN_COUNT(cols); i++)
            for (int kind = 0; kind < 3; kind++) { /* usual values, large values (saturation), special
                                                      values */
                int64_t rows = random_in(1, 33), pitch = cols[i] + random_in(0, 5);
                guarded a = input_block(rows, cols[i], pitch, kind == 1 ? 60.0f : 1.5f, kind == 2);
                guarded b = input_block(rows, cols[i], cols[i], 1.0f, kind == 2);
                ln_pnode node = ops[o].node;
                node.n_out = 1;
                ln_call c = {.node = &node};
                c.in[0] = (ln_arg){a.data, rows, cols[i], pitch, LN_F32};
                c.in[1] = (ln_arg){b.data, rows, cols[i], cols[i], LN_F32};
                row_check(&c, rows, cols[i], true, ops[o].name);
                unguard(&a), unguard(&b);
            }
}

/* Activation functions of values of every magnitude and sign, and of all values near the points where
 * their approximations meet. */
static void test_functions(void **state) {
    (void)state;
    static const float edges[] = {88.72f,    -88.72f,
                                  87.33f,    -87.33f,
                                  0x1p-126f, 10.0606f /* the same two points of gelu */,
                                  -10.0606f, 10.0005f,
                                  -10.0005f, 10.0f /* of softcap, times 16 */,
                                  -10.0f,    160.0f,
                                  -160.0f};
    enum { COLS = 1000, NEAR = 2 * COLS, SWEEP = 96 * COLS, ROWS = 96 + 2 * LN_COUNT(edges) };
    static const ln_op ops[] = {LN_OP_SILU, LN_OP_GELU_TANH, LN_OP_RELU2, LN_OP_SIGMOID, LN_OP_SOFTCAP};
    guarded a = guard(ROWS * COLS * sizeof(float), true, 0);
    float *x = (float *)(void *)a.data;
    for (uint32_t i = 0; i < SWEEP; i++) x[i] = ln_bits_f32(i * 44739u + random_u32() % 44739u);
    for (size_t e = 0; e < LN_COUNT(edges); e++)
        for (uint32_t i = 0; i < NEAR; i++)
            x[SWEEP + e * NEAR + i] = ln_bits_f32(ln_f32_bits(edges[e]) + i - NEAR / 2);
    for (size_t o = 0; o < LN_COUNT(ops); o++) {
        ln_pnode node = {.op = ops[o], .n_in = 1, .n_out = 1};
        if (node.op == LN_OP_SOFTCAP) node.p.scale.factor = 16;
        ln_call c = {.node = &node};
        c.in[0] = (ln_arg){a.data, ROWS, COLS, COLS, LN_F32};
        row_check(&c, ROWS, COLS, true, ln_op_name(node.op));
    }
    unguard(&a);
}

static void test_rmsnorm(void **state) {
    (void)state;
    static const int64_t widths[] = {1, 3, 15, 16, 17, 32, 33, 64, 100, 128, 255, 1024, 3000};
    for (size_t i = 0; i < LN_COUNT(widths); i++)
        for (int dtype = 0; dtype < 3; dtype++)
            for (int special = 0; special < 2; special++) {
                int64_t n = widths[i], groups = random_in(1, n < 64 ? 40 : 5), rows = random_in(1, 12),
                        pitch = n * groups + random_in(0, 4);
                guarded x = input_block(rows, n * groups, pitch, 1.0f, special),
                        w = guard((size_t)(n * ln_dtype_bytes((ln_dtype)dtype)), true,
                                  (size_t)random_in(0, 3));
                for (int64_t k = 0; k < n; k++) weight_put(w.data, (ln_dtype)dtype, k, random_f32());
                ln_pnode node = {.op = LN_OP_RMSNORM,
                                 .n_in = 2,
                                 .n_out = 1,
                                 .p.norm = {.eps = 1e-6f, .offset = dtype == 1 ? 1.0f : 0.0f}};
                ln_call c = {.node = &node};
                c.in[0] = (ln_arg){x.data, rows, n * groups, pitch, LN_F32};
                c.in[1] = (ln_arg){w.data, 1, n, n, (ln_dtype)dtype};
                row_check(&c, rows, n * groups, true, "rmsnorm");
                node.n_in = 1, node.p.norm = (ln_p_norm){.eps = 1e-6f, .width = n};
                row_check(&c, rows, n * groups, true, "rmsnorm without a weight");
                unguard(&x), unguard(&w);
            }
}

static void test_embed(void **state) {
    (void)state;
    static const int64_t cols[] = {1, 5, 16, 17, 33, 200};
    for (size_t i = 0; i < LN_COUNT(cols); i++)
        for (int dtype = 0; dtype < 3; dtype++) {
            enum { V = 9, T = 21 };
            guarded w = guard((size_t)(V * cols[i] * ln_dtype_bytes((ln_dtype)dtype)), i % 2 == 0, i % 3);
            for (int64_t k = 0; k < V * cols[i]; k++) weight_put(w.data, (ln_dtype)dtype, k, random_f32());
            int32_t ids[T];
            for (int k = 0; k < T; k++) ids[k] = random_in(0, V - 1);
            ids[0] = V - 1;
            ln_step step = {.n_rows = T, .ids = ids};
            ln_pnode node = {.op = LN_OP_EMBED, .n_in = 1, .n_out = 1, .p.embed.scale = 33.94f};
            ln_call c = {.node = &node, .step = &step};
            c.in[0] = (ln_arg){w.data, V, cols[i], cols[i], (ln_dtype)dtype};
            row_check(&c, T, cols[i], false, "embed");
            unguard(&w);
        }
}

static void test_rope(void **state) {
    (void)state;
    static const int widths[] = {2, 6, 16, 30, 64, 80, 128, 256};
    for (size_t i = 0; i < LN_COUNT(widths); i++) {
        enum { T = 13 };
        int E = widths[i], heads = random_in(1, 5);
        float freqs[128];
        int32_t pos[T];
        for (int k = 0; k < E / 2; k++) freqs[k] = 1.0f / (1.0f + (float)k * (float)k);
        for (int k = 0; k < T; k++) pos[k] = random_in(0, 40000);
        ln_step step = {.n_rows = T, .pos = pos};
        ln_pnode make = {.op = LN_OP_ROPE_TABLE,
                         .n_out = 1,
                         .p.freqs = {.freqs = freqs, .n = E / 2, .scale = i % 2 ? 1.1386294f : 1}};
        ln_call c = {.node = &make, .step = &step};
        row_check(&c, T, E, false, "rope_table");
        guarded x = input_block(T, E * heads, E * heads + 2, 1.0f, i % 2),
                table = input_block(T, E, E, 0.5f, false);
        for (int form = 0; form < 4; form++) { /* halves and neighbours; whole heads and a part of each */
            const int d = form < 2 ? E : LN_MAX(E / 4 * 2, 2);
            ln_pnode node = {.op = LN_OP_ROPE, .n_in = 2, .n_out = 1, .p.heads = {heads, E, form % 2 == 1}};
            c = (ln_call){.node = &node, .step = &step};
            c.in[0] = (ln_arg){x.data, T, E * heads, E * heads + 2, LN_F32};
            c.in[1] = (ln_arg){table.data, T, d, E, LN_F32};
            row_check(&c, T, E * heads, true, "rope");
        }
        unguard(&x), unguard(&table);
    }
}

static void test_gather_rows(void **state) {
    (void)state;
    int32_t rows[] = {4, 0, 4, 2};
    ln_step step = {.n_rows = 5, .n_out = 4, .out_rows = rows};
    ln_pnode node = {.op = LN_OP_GATHER_ROWS, .n_in = 1, .n_out = 1};
    guarded x = input_block(5, 37, 40, 1.0f, true);
    ln_call c = {.node = &node, .step = &step};
    c.in[0] = (ln_arg){x.data, 5, 37, 40, LN_F32};
    row_check(&c, 4, 37, false, "gather_rows");
    unguard(&x);
}

/* Whole pools are compared, so that a store outside the rows' own positions shows. */
static void test_kv_write(void **state) {
    (void)state;
    for (int i = 0; i < 60; i++) {
        enum { T = 53, FIRST = 22, BLOCKS = 5, PAGES = 12 };
        static const int heads[] = {1, 2, 8}, widths[] = {7, 16, 64, 10, 48};
        ln_p_kv p = {.layer = 3,
                     .window_group = 1,
                     .pages_per_block = 2,
                     .page_in_block = 1,
                     .layer_in_page = 1,
                     .n_kv_heads = heads[i % 3],
                     .head_dim = widths[i % 5],
                     .v_dim = widths[(i + i / 15) % 5],
                     .page_len = i % 2 ? 64 : 32,
                     .dtype = i / 2 % 2 ? LN_F32 : LN_BF16,
                     .q8 = i % 7 < 3};
        int64_t n = (int64_t)p.n_kv_heads * p.head_dim, n_v = (int64_t)p.n_kv_heads * p.v_dim;
        p.layer_bytes = ln_kv_layer_bytes(&p, 4);
        p.page_bytes = 2 * p.layer_bytes;
        size_t bytes = (size_t)(PAGES * p.page_bytes);
        guarded want = guard(bytes, true, 0), got = guard(bytes, true, 0);
        int32_t pages[2 * BLOCKS * 2], pos[T], seq[T], row0[] = {0, FIRST, T};
        for (int k = 0; k < 2 * BLOCKS * 2; k++)
            pages[k] = k % 2 ? (k * 7 / 2) % PAGES : -1; /* only page 1 of each block is this layer's */
        for (int k = 0; k < T; k++) seq[k] = k >= FIRST, pos[k] = k < FIRST ? 3 + k : 16 + k - FIRST;
        ln_step step = {.n_rows = T, .n_seqs = 2, .pos = pos, .seq = seq, .row0 = row0, .n_blocks = BLOCKS};
        step.pages[1] = pages;
        step.pages_per_block[1] = 2;
        guarded k = input_block(T, n, n, 1.0f, i % 5 == 4), v = input_block(T, n_v, n_v, 1.0f, i % 5 == 4);
        ln_pnode node = {.op = LN_OP_KV_WRITE, .n_in = 3, .n_out = 1, .p.kv = p};
        ln_bounds bounds = {T, 1, 2};
        ln_call c = {.node = &node, .step = &step};
        c.in[0] = (ln_arg){want.data, 1, 1, 1, p.dtype};
        c.in[1] = (ln_arg){k.data, T, n, n, LN_F32};
        c.in[2] = (ln_arg){v.data, T, n_v, n_v, LN_F32};
        c.out[0] = c.in[0];
        run_kernel(-1, &c, &bounds, 1);
        c.in[0].data = c.out[0].data = got.data;
        for (int isa = 0; isa < LN_ISA_COUNT; isa++)
            for (size_t t = 0; t < LN_COUNT(thread_counts) && isa_available(isa); t++) {
                memset(got.data, 0xa5, bytes);
                run_kernel(isa, &c, &bounds, thread_counts[t]);
                assert_memory_equal(want.data, got.data, bytes);
            }
        unguard(&want), unguard(&got), unguard(&k), unguard(&v);
    }
}

#if defined(__x86_64__)
/* Checks that the ISA level's table has (or has not) the kernels of a list. */
static void holds(ln_isa isa, const ln_kernel_row *own, bool wanted) {
    ln_kernel_table table;
    int n = 0;
    ln_cpu_kernels(isa, &table);
    for (; own->variants; own++)
        for (int v = 0; v < LN_VARIANTS; v++)
            if (own->variants >> v & 1)
                assert_true((table.of[own->op][v].fn == own->kernel.fn) == wanted), n++;
    assert_true(n > 0);
}
/* Kernels that use instructions of only some machines of an ISA level are chosen if and only if the machine
 * has them. The bits of results do not show which kernel ran. */
static void test_optional(void **state) {
    (void)state;
    if (!isa_available(LN_ISA_AVX512)) return;
    const bool amd = __builtin_cpu_is("amd"), dot = amd && __builtin_cpu_supports("avx512bf16"),
               vnni = __builtin_cpu_supports("avx512vnni");
    holds(LN_ISA_AVX512, ln_cpu_dense_vdpbf16, dot);
    holds(LN_ISA_AVX512, ln_cpu_attn_vdpbf16, dot);
    holds(LN_ISA_AVX512, ln_cpu_bfp_vnni, vnni && !amd);
    holds(LN_ISA_AVX512, ln_cpu_bfp_vnni_amd, vnni && amd);
    if (!isa_available(LN_ISA_AMX)) return;
    holds(LN_ISA_AMX, ln_cpu_dense_amx, true);
    holds(LN_ISA_AMX, ln_cpu_i8pair_amx, true);
    holds(LN_ISA_AMX, ln_cpu_attn_amx, true);
}
#else
static void test_optional(void **state) { (void)state; }
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_columns), cmocka_unit_test(test_linear_rows),
        cmocka_unit_test(test_linear_outputs), cmocka_unit_test(test_linear_long),
        cmocka_unit_test(test_linear_special), cmocka_unit_test(test_pointwise),
        cmocka_unit_test(test_functions),      cmocka_unit_test(test_rmsnorm),
        cmocka_unit_test(test_embed),          cmocka_unit_test(test_rope),
        cmocka_unit_test(test_gather_rows),    cmocka_unit_test(test_kv_write),
        cmocka_unit_test(test_optional),
    };
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
