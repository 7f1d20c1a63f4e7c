/* Each function of a device does what device.h says: the CPU device, both reference devices, and the
 * reference device as a plug-in, and a plug-in that sees the headers of the interface alone. */
/* run: quick cuda */
#include "../common.h"
#include "device/registry.h"
#include "graph/graph.h"
#include "graph/state_pool.h"
#include "ops/ops.h"

static const ln_device_ops *ops; /* the device under test */
static ln_dev *dev;
static ln_dev_info info;

static ln_queue *new_queue(const ln_state_pool *kv, int n_slots, int n_blocks) {
    ln_queue *q;
    const ln_queue_options o = {.size = sizeof o, .n_slots = n_slots, .n_blocks = n_blocks, .kv = kv};
    OK(ops->queue_open(dev, &o, &q, err));
    return q;
}

static void check_open(void) {
    ln_dev *other = (ln_dev *)&info;
    assert_int_equal(ops->abi, LN_DEVICE_ABI);
    assert_int_equal(ops->size, sizeof *ops);
    const ln_dev_options second = {.size = sizeof second, .ordinal = 99, .n_threads = 1};
    FAILS(LN_EDEVICE, "number 99", ops->open(&other, &second, err));
    assert_null(other);
    assert_true(info.size == sizeof info && info.name[0] && info.isa[0] && info.quantised[0]);
    assert_true(info.real_bytes == 4 || info.real_bytes == 8);
    assert_true(info.n_threads >= 1 && info.upload_rows >= 1 && 16 % info.upload_rows == 0);
    ops->close(&other);
}

/* Memory is zeroed and aligned; copies go in, out and within, and fill with zeros. */
static void check_memory(void) {
    enum { BYTES = 100000 };
    static uint8_t in[BYTES], out[BYTES];
    void *p;
    ln_queue *q = new_queue(NULL, 0, 0);
    for (int i = 0; i < BYTES; i++) in[i] = (uint8_t)(i * 7 + 1);
    OK(ops->alloc(dev, BYTES, BYTES / 2, &p, err));
    assert_int_equal((uintptr_t)p % 16, 0);
    OK(ops->copy(q, out, p, BYTES, LN_COPY_OUT, err));
    for (int i = 0; i < BYTES; i++) assert_int_equal(out[i], 0);
    OK(ops->copy(q, p, in, BYTES, LN_COPY_IN, err));
    OK(ops->copy(q, (char *)p + 50000, p, 1000, LN_COPY_WITHIN, err));
    OK(ops->copy(q, (char *)p + 10, NULL, 77, LN_COPY_WITHIN, err));
    OK(ops->copy(q, out, p, BYTES, LN_COPY_OUT, err));
    memcpy(in + 50000, in, 1000);
    memset(in + 10, 0, 77);
    assert_memory_equal(in, out, BYTES);
    ops->free(dev, p, BYTES);
    ops->free(dev, NULL, 0);
    ops->queue_close(&q);
    assert_null(q);
}

/* Keys and values come back as they were packed, in pages of both types; a copy keeps the first positions. */
static void check_pages(void) {
    enum { K = 2, E = 24, EV = 40, LEN = 64, LAYERS = 3, N = K * E * LEN, NV = K * EV * LEN };
    static float keys[N], values[NV], got_keys[N], got_values[NV];
    ln_queue *q = new_queue(NULL, 0, 0);
    for (int i = 0; i < N; i++) keys[i] = (float)(i % 251 + 1);
    for (int i = 0; i < NV; i++) values[i] = (float)(-(i % 127) - 1);
    for (int type = 0; type < 2; type++) {
        ln_page_job job = {.size = sizeof job,
                           .n_layers = 1,
                           .n_kv_heads = K,
                           .head_dim = E,
                           .v_dim = EV,
                           .page_len = LEN,
                           .dtype = type ? LN_BF16 : LN_F32};
        const int64_t bytes = ops->kv_bytes(dev, &job);
        assert_true(bytes >= (N + NV) * (type ? 2 : 4));
        job.layer_bytes = (bytes + 63) / 64 * 64;
        const int64_t page = job.layer_bytes * LAYERS;
        OK(ops->alloc(dev, (size_t)(2 * page), 0, &job.pool, err));
        for (int layer = 0; layer < LAYERS; layer++) {
            job.op = LN_PAGE_PACK, job.to = layer * job.layer_bytes, job.keys = keys, job.values = NULL;
            OK(ops->page(q, &job, err));
            job.keys = NULL, job.values = values;
            OK(ops->page(q, &job, err));
        }
        static const int kept[] = {LEN, 37, 1, 0};
        for (size_t c = 0; c < LN_COUNT(kept); c++) {
            job.op = LN_PAGE_COPY, job.from = 0, job.to = page, job.n = kept[c], job.n_layers = LAYERS;
            OK(ops->page(q, &job, err));
            job.op = LN_PAGE_UNPACK, job.keys = got_keys, job.values = got_values, job.n_layers = 1;
            for (int layer = 0; layer < LAYERS; layer++) {
                job.from = page + layer * job.layer_bytes;
                OK(ops->page(q, &job, err));
                for (int i = 0; i < N; i++) assert_true(got_keys[i] == (i % LEN < kept[c] ? keys[i] : 0));
                for (int i = 0; i < NV; i++)
                    assert_true(got_values[i] == (i / EV % LEN < kept[c] ? values[i] : 0));
            }
        }
        ops->free(dev, job.pool, (size_t)(2 * page));
        job.head_dim = job.page_len = 1 << 20, job.n_kv_heads = INT32_MAX;
        assert_int_equal(ops->kv_bytes(dev, &job), -1);
    }
    ops->queue_close(&q);
}

/* A program with one lookup and one product, in f32. */
typedef struct program {
    ln_graph g;
    ln_program p;
    ln_arena arena;
    ln_lowering lowering;
    ln_bounds b;
    ln_v x, y;
    void *temp, *buffer;
    ln_device_weight table;
    size_t buffer_bytes;
} program;
enum { V = 40, D = 32, ROWS = 9 };
static float table[V * D];

static void new_program(program *p) {
    *p = (program){.b = {ROWS, ROWS, 2}};
    ln_graph_open(&p->g);
    const ln_v w = ln_g_weight(&p->g, "table", LN_F32, 0, V, D);
    p->x = ln_g_embed(&p->g, "x", w, 1, 0);
    p->y = ln_g_linear(&p->g, "y", ln_g_gather_rows(&p->g, "rows", p->x), w, -1);
    ln_g_output(&p->g, p->y);
    OK(ln_graph_lower(&p->g, ops->lower, dev, ops->lower, dev, &p->b, info.real_bytes, &p->lowering, err));
    OK(ln_graph_check(&p->g, "lower", err));
    ln_temp_plan plan;
    OK(ln_graph_plan(&p->g, &p->lowering, &p->b, info.real_bytes, &plan, err));
    OK(ln_program_make(&p->g, &p->lowering, &plan, &p->arena, &p->p, err));
    ln_graph_close(&p->g); /* a program does not refer to it */
    OK(ops->alloc(dev, (size_t)p->p.temp_bytes, (size_t)p->p.temp_bytes, &p->temp, err));
    const ln_weight_desc desc = {.size = sizeof desc,
                                 .name = "table",
                                 .enc = ln_encoding_dense(LN_F32),
                                 .n_dims = 2,
                                 .dims = {V, D},
                                 .uses = LN_USE_F32 | LN_USE_GATHER};
    const ln_host_weight host = {.data = table, .n_rows = V, .n_cols = D};
    ln_weight_size size;
    OK(ops->weight_size(dev, &desc, &host, &size, err));
    assert_true(size.expected <= size.bound);
    p->buffer_bytes = size.bound + 1;
    OK(ops->alloc(dev, p->buffer_bytes, 0, &p->buffer, err));
    OK(ops->upload(dev, &desc, &host, p->buffer, &p->table, err));
    p->p.values[w].data = p->table.data;
}
static void close_program(program *p) {
    ops->free(dev, p->temp, (size_t)p->p.temp_bytes);
    ops->free(dev, p->buffer, p->buffer_bytes);
    ln_arena_free(&p->arena);
}

/* The elements of an array, further apart: as a later version with longer structs stores them. */
static void *farther_apart(program *p, const void *from, int n, uint32_t *size) {
    const size_t old = *size, wide = old + 72;
    char *to = ln_arena_alloc(&p->arena, (size_t)n * wide);
    assert_non_null(to);
    memset(to, 0xa5, (size_t)n * wide);
    for (int i = 0; i < n; i++) memcpy(to + (size_t)i * wide, (const char *)from + (size_t)i * old, old);
    *size = (uint32_t)wide;
    return to;
}

static ln_step_block *new_step(const program *p, int rows) {
    ln_step_block *s = calloc(1, (size_t)ln_step_bytes(&p->b, 0));
    ln_step_init(s, &p->b, 0);
    s->n_rows = s->n_out = rows, s->n_seqs = 1;
    ln_step_row0(s)[1] = rows;
    for (int i = 0; i < rows; i++) {
        ln_step_ids(s)[i] = (i * 11 + 3) % V;
        ln_step_pos(s)[i] = i;
        ln_step_adapter(s)[i] = -1;
        ln_step_out_rows(s)[i] = i;
    }
    return s;
}

static float expected(int row, int out) {
    double sum = 0;
    for (int c = 0; c < D; c++) sum += (double)table[(row * 11 + 3) % V * D + c] * (double)table[out * D + c];
    return (float)sum; /* exact: all numbers are small integers */
}

typedef struct trace_state {
    ln_exec *exec;
    const program *p;
    int n, rows;
} trace_state;
/* Reads the first value back as soon as it is stored, and overwrites its row 1 by row 0. */
static void on_node(void *user, int i, double seconds) {
    trace_state *t = user;
    float rows[ROWS * D];
    assert_int_equal(i, t->n++);
    assert_true(seconds >= 0);
    if (i > 0) return;
    OK(ops->value(t->exec, t->p->x, 0, t->rows, rows, false, err));
    for (int r = 0; r < t->rows; r++)
        assert_memory_equal(rows + r * D, table + (r * 11 + 3) % V * D, D * sizeof(float));
    OK(ops->value(t->exec, t->p->x, 1, 1, rows, true, err));
}

static void check_rows(ln_exec *exec, const program *p, int rows, bool second_is_first) {
    float got[V];
    int32_t ids[ROWS];
    for (int r = 0; r < rows; r++) {
        OK(ops->value(exec, p->y, r, 1, got, false, err));
        for (int d = 0; d < V; d++) assert_true(got[d] == expected(second_is_first && r == 1 ? 0 : r, d));
    }
    FAILS(LN_EINTERNAL, "rows", ops->value(exec, p->y, rows, 1, got, false, err));
    FAILS(LN_EINTERNAL, "value", ops->value(exec, -1, 0, 1, got, false, err));
    FAILS(LN_EINTERNAL, "value", ops->value(exec, 0, 0, 1, got, false, err)); /* a weight */
    if (!ops->argmax) return;
    OK(ops->argmax(exec, p->y, 0, rows, ids, err));
    for (int r = 0; r < rows; r++) {
        int best = 0;
        const int row = second_is_first && r == 1 ? 0 : r;
        for (int d = 1; d < V; d++) best = expected(row, d) > expected(row, best) ? d : best;
        assert_int_equal(ids[r], best);
    }
    FAILS(LN_EINTERNAL, "argmax", ops->argmax(exec, p->y, 0, rows + 1, ids, err));
    FAILS(LN_EINTERNAL, "argmax", ops->argmax(exec, 0, 0, 1, ids, err));
}

/* Two queues of a device run the same program, each with its own memory; the second program has longer
 * elements, whose distance a device must read from the program. */
static void check_steps(void) {
    program p[2];
    ln_queue *q[2];
    ln_exec *exec[2];
    ln_trace trace = {on_node, NULL};
    for (int i = 0; i < V * D; i++) table[i] = (float)((i * 37 + i / D) % 15 - 7);
    for (int i = 0; i < 2; i++) {
        new_program(&p[i]);
        q[i] = new_queue(NULL, 2, 1);
        ln_program *wide = &p[1].p;
        if (i == 1) {
            wide->values = farther_apart(&p[1], wide->values, wide->n_values, &wide->value_size);
            wide->nodes = farther_apart(&p[1], wide->nodes, wide->n_nodes, &wide->node_size);
        }
        (void)ops->scratch_bytes(dev, &p[i].p);
        OK(ops->prepare(q[i], &p[i].p, p[i].temp, &exec[i], err));
    }
    for (int i = 0; i < p[0].p.n_nodes; i++) {
        const char *kernel = ln_program_node(&p[0].p, i)->kernel;
        assert_true(kernel && kernel[0]);
    }
    static const int counts[] = {ROWS, 1, 5, 5};
    for (size_t k = 0; k < LN_COUNT(counts); k++) {
        uint64_t fence[2];
        ln_step_block *s[2] = {new_step(&p[0], counts[k]), new_step(&p[1], ROWS + 1 - counts[k])};
        const bool traced = counts[k] > 1 && k % 2 == 0;
        trace_state t = {exec[0], &p[0], 0, counts[k]};
        trace.user = &t;
        for (int i = 0; i < 2; i++)
            OK(ops->submit(exec[i], s[i], traced && i == 0 ? &trace : NULL, &fence[i], err));
        for (int i = 1; i >= 0; i--) OK(ops->wait(q[i], fence[i], err));
        assert_int_equal(t.n, traced ? p[0].p.n_nodes : 0);
        for (int i = 0; i < 2; i++) {
            check_rows(exec[i], &p[i], s[i]->n_rows, traced && i == 0);
            s[i]->n_rows = 0; /* changes nothing */
            OK(ops->submit(exec[i], s[i], NULL, &fence[i], err));
            OK(ops->wait(q[i], fence[i], err));
            check_rows(exec[i], &p[i], s[i]->n_out, traced && i == 0);
            free(s[i]);
        }
    }
    FAILS(LN_EINTERNAL, "fence", ops->wait(q[0], 1000, err));
    for (int i = 0; i < 2; i++) {
        ops->release(&exec[i]);
        assert_null(exec[i]);
        ops->queue_close(&q[i]);
        close_program(&p[i]);
    }
}

static void check_device(const ln_device_ops *device) {
    ops = device;
    const ln_dev_options o = {.size = sizeof o, .n_threads = 3};
    OK(ops->open(&dev, &o, err));
    info = (ln_dev_info){.size = sizeof info};
    ops->describe(dev, &info);
    check_open();
    check_memory();
    check_pages();
    check_steps();
    ops->close(&dev);
    assert_null(dev);
}

static void cpu(void **state) { (void)state, check_device(&ln_device_cpu); }
static void ref(void **state) { (void)state, check_device(&ln_device_ref); }
static void ref_double(void **state) { (void)state, check_device(&ln_device_ref_double); }
static void plugin(void **state) {
    (void)state;
    const ln_device_ops *loaded;
    OK(ln_device_load(LN_BIN "/liblinnet-ref.so", &loaded, err));
    check_device(loaded);
}

/* A device that was compiled from the headers of the interface alone (tests/plugins/flat_plugin.c). */
static void plugin_of_the_headers(void **state) {
    (void)state;
    const ln_device_ops *loaded;
    OK(ln_device_load(LN_BIN "/liblinnet-flat.so", &loaded, err));
    check_device(loaded);
}

static void cuda(void **state) {
    (void)state;
    const ln_device_ops *found;
    OK(ln_device_find("cuda", &found, err));
    check_device(found);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* for tools/mutants */
    const struct CMUnitTest gpu[] = {cmocka_unit_test(cuda)};
    if (test_device() == LN_DEVICE_CUDA) return cmocka_run_group_tests_name("device_abi", gpu, NULL, NULL);
    const struct CMUnitTest tests[] = {cmocka_unit_test(cpu), cmocka_unit_test(ref),
                                       cmocka_unit_test(ref_double), cmocka_unit_test(plugin),
                                       cmocka_unit_test(plugin_of_the_headers)};
    return cmocka_run_group_tests_name("device_abi", tests, NULL, NULL);
}
