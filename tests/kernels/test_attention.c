/* Tests attn_paged on every ISA level against the reference kernel, and the kernel on tiles over bf16 pages
 * against its own formula (device/cpu/attention/attn_amx.inc.h), on a model of the tile instructions
 * everywhere and on the instructions if the machine has them: equality of bits.
 *
 * Pages are in shuffled order, two to a KV block and two layers to a page, with poison (NaN) everywhere
 * that no row of the step may read: positions after a sequence's last row, positions below every window,
 * the other layer, the other page of the block, spare pages. Blocks outside the visible positions have no
 * page at all: reading one touches the guard page before the pool. Tiles read positions beyond those that
 * a row attends to; for them, a page begins as the engine hands it out: zeroed, with the earlier positions
 * written. */
/* run: slow */
#include "kernels.h"

#include "tile_model.h"
#include "lanes_model.h"
#include "device/cpu/attention/attn_amx.inc.h"

enum { MAX_SEQS = 6 };

typedef struct attn_case {
    int n_heads, n_kv_heads, head_dim, page_len;
    int64_t window;
    ln_dtype dtype;
    int n_seqs, first[MAX_SEQS], count[MAX_SEQS]; /* each sequence's rows: first position, number of rows */
    int v_dim;                                    /* width of a value; 0: head_dim */
    float softcap;
    bool sinks, both_ways;
    bool q8;   /* pages of 8 bits, read as dtype */
    bool tiny; /* Adds denormals, which count as zero (thread_pool.h): among keys, with q so large that
                  they would show, and among values, of which a few would add up to a normal number. */
} attn_case;

/* The pool, its page table and the step over it. */
typedef struct attn_pool {
    guarded base;
    ln_p_attn p;
    int32_t *pages, pos[512], seq[512], row0[MAX_SEQS + 1];
    ln_step step;
    bool tiny;
    bool sinks;
    uint16_t sink[64]; /* bf16, one a head */
} attn_pool;

static float tiny_number(void) { return (float)random_in(-2, 2) * 4e-39f; }

static int v_dim_of(const attn_case *t) { return t->v_dim ? t->v_dim : t->head_dim; }

static void put_kv(attn_pool *a, int b, int64_t pos) {
    const ln_p_kv *kv = &a->p.kv;
    char *layer = (char *)(uintptr_t)ln_kv_layer(kv, a->base.data, &a->step, b, pos);
    int at = (int)(pos % kv->page_len);
    for (int h = 0; h < kv->n_kv_heads && kv->q8; h++)
        for (int v = 0; v < 2; v++)
            for (int width = v ? kv->v_dim : kv->head_dim, e = 0; e < width; e += LN_BLOCK_INT8) {
                float x[LN_BLOCK_INT8];
                for (int i = 0; i < LN_BLOCK_INT8; i++)
                    x[i] = random_f32() * (e / LN_BLOCK_INT8 % 2 ? 4 : 0.3f);
                ln_kv_put_q8(kv, layer, v, h, e, at, x, LN_MIN(width - e, LN_BLOCK_INT8));
            }
    for (int h = 0; h < kv->n_kv_heads && !kv->q8; h++)
        for (int e = 0; e < LN_MAX(kv->head_dim, kv->v_dim); e++) {
            if (e < kv->head_dim)
                weight_put(layer, kv->dtype, ln_kv_k_index(kv, h, e, at),
                           a->tiny && e == 0 ? tiny_number() : random_f32());
            if (e < kv->v_dim)
                weight_put(layer, kv->dtype, ln_kv_v_index(kv, h, e, at),
                           a->tiny && e % 4 == 1 ? 0x1.fp-127f : random_f32());
        }
}

static void pool_make(attn_pool *a, const attn_case *t, bool tiles) {
    memset(a, 0, sizeof *a);
    a->tiny = t->tiny;
    a->sinks = t->sinks;
    for (int h = 0; h < t->n_heads; h++) a->sink[h] = ln_f32_bf16(3 * random_f32());
    ln_p_kv *kv = &a->p.kv;
    *kv = (ln_p_kv){.window_group = 2,
                    .pages_per_block = 2,
                    .page_in_block = 1,
                    .layer_in_page = 1,
                    .n_kv_heads = t->n_kv_heads,
                    .head_dim = t->head_dim,
                    .v_dim = v_dim_of(t),
                    .page_len = t->page_len,
                    .dtype = t->dtype,
                    .q8 = t->q8};
    a->p.n_heads = t->n_heads;
    a->p.scale = 0.31f;
    a->p.window = t->window;
    a->p.softcap = t->softcap;
    a->p.both_ways = t->both_ways;
    kv->layer_bytes = ln_kv_layer_bytes(kv, 4);
    kv->page_bytes =
        2 * kv->layer_bytes; /* this layer is the last part of a page: the guard page follows the last page */
    int rows = 0, blocks = 0, used = 0;
    for (int b = 0; b < t->n_seqs; b++) {
        a->row0[b] = rows;
        for (int i = 0; i < t->count[b]; i++, rows++) a->pos[rows] = t->first[b] + i, a->seq[rows] = b;
        blocks = LN_MAX(blocks, (t->first[b] + t->count[b]) / t->page_len + 1);
    }
    a->row0[t->n_seqs] = rows;
    assert_true(rows <= 512);
    size_t entries = (size_t)(t->n_seqs * blocks * 2);
    a->pages = calloc(entries, sizeof *a->pages);
    assert_non_null(a->pages);
    for (size_t i = 0; i < entries; i++) a->pages[i] = -1;
    a->step = (ln_step){.n_rows = rows,
                        .n_seqs = t->n_seqs,
                        .pos = a->pos,
                        .seq = a->seq,
                        .row0 = a->row0,
                        .n_blocks = blocks};
    a->step.pages[2] = a->pages;
    a->step.pages_per_block[2] = 2;
    /* Numbers the blocks that the rows attend to, then assigns pages to them in shuffled order. */
    for (int b = 0; b < t->n_seqs; b++) {
        int64_t from = t->window > 0 ? LN_MAX((int64_t)0, t->first[b] - t->window + 1) : 0,
                last = t->first[b] + t->count[b] - 1;
        for (int64_t blk = from / t->page_len; t->count[b] > 0 && blk <= last / t->page_len; blk++)
            a->pages[(b * blocks + blk) * 2 + 1] = used++;
    }
    int32_t *order = calloc((size_t)used, sizeof *order);
    assert_non_null(order);
    for (int i = 0; i < used; i++) order[i] = i;
    for (int i = used - 1; i > 0; i--) {
        int k = random_in(0, i), o = order[i];
        order[i] = order[k], order[k] = o;
    }
    for (size_t i = 0; i < entries; i++)
        if (a->pages[i] >= 0) a->pages[i] = order[a->pages[i]];
    free(order);
    a->base = guard((size_t)(used * kv->page_bytes), true, 0);
    memset(a->base.data, 0xff, a->base.bytes); /* NaN in f32 and in bf16 */
    for (int b = 0; b < t->n_seqs; b++) {
        int64_t from = t->window > 0 ? LN_MAX((int64_t)0, t->first[b] - t->window + 1) : 0,
                to = t->first[b] + t->count[b];
        if (tiles && t->count[b] > 0) {
            from = from / t->page_len * t->page_len, to = (to + t->page_len - 1) / t->page_len * t->page_len;
            for (int64_t j = from; j < to; j += t->page_len)
                memset((void *)(uintptr_t)ln_kv_layer(kv, a->base.data, &a->step, b, j), 0,
                       (size_t)kv->layer_bytes);
        }
        for (int64_t j = from; t->count[b] > 0 && j < to; j++) put_kv(a, b, j);
    }
}

/* ---- the formula of the kernel on tiles, element by element ---- */

/* P(a, b): the dot product of 32 elements. */
static float tile_sum(const float *a, const float *b) {
    float even = 0, odd = 0;
    for (int i = 0; i < 32; i += 2)
        even = model_fma(a[i], b[i], even), odd = model_fma(a[i + 1], b[i + 1], odd);
    return flushed(even + odd);
}
static float kv_number(const attn_pool *a, int b, int64_t pos, int head, int e, bool v) {
    const ln_p_kv *kv = &a->p.kv;
    const uint16_t *layer = ln_kv_layer(kv, a->base.data, &a->step, b, pos);
    int64_t at = pos % kv->page_len;
    if (kv->q8) return e < (v ? kv->v_dim : kv->head_dim) ? ln_kv_q8(kv, layer, v, head, e, at) : 0;
    return e < (v ? kv->v_dim : kv->head_dim)
               ? ln_bf16_f32(layer[v ? ln_kv_v_index(kv, head, e, at) : ln_kv_k_index(kv, head, e, at)])
               : 0;
}
static float halves(const float from[16]) {
    float lane[16];
    memcpy(lane, from, sizeof lane);
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}
/* The output y[Ev] of one row and head. */
static void formula(const attn_pool *a, int row, int h, const float *q, float *y) {
    const int E = a->p.kv.head_dim, Ev = a->p.kv.v_dim, kv_head = h / (a->p.n_heads / a->p.kv.n_kv_heads),
              b = a->seq[row];
    const int64_t pos = a->pos[row], first = a->p.window > 0 ? LN_MAX((int64_t)0, pos - a->p.window + 1) : 0;
    int64_t last = pos; /* of the keys: behind the row, those that are closer than a window */
    for (int r = row + 1; a->p.both_ways && r < a->step.n_rows && a->seq[r] == b; r++)
        if (a->p.window == 0 || a->pos[r] - pos < a->p.window) last = a->pos[r];
    float M = a->sinks ? ln_bf16_f32(a->sink[h]) : 0, L = a->sinks, x[32], k[32];
    for (int e = 0; e < Ev; e++) y[e] = 0;
    for (int64_t s0 = first / SPLIT * SPLIT; s0 <= last; s0 += SPLIT) {
        const int64_t from = LN_MAX(first, s0), to = LN_MIN(last + 1, s0 + SPLIT);
        float w[SPLIT] = {0}, lane[16] = {0}, m = -INFINITY;
        for (int64_t j = from; j < to; j++) {
            float s = 0;
            for (int e0 = 0; e0 < E; e0 += 32) {
                for (int i = 0; i < 32; i++)
                    x[i] = e0 + i < E ? ln_bf16_f32(ln_f32_bf16(q[e0 + i])) : 0,
                    k[i] = kv_number(a, b, j, kv_head, e0 + i, false);
                s = flushed(s + tile_sum(x, k));
            }
            w[j - s0] = s * a->p.scale;
            if (a->p.softcap > 0) w[j - s0] = ln_softcapf(w[j - s0], a->p.softcap);
            m = LN_MAX(m, w[j - s0]);
        }
        for (int64_t j = from; j < to; j++) {
            w[j - s0] = ln_bf16_f32(ln_f32_bf16(ln_expf(w[j - s0] - m)));
            lane[j % 16] += w[j - s0];
        }
        const bool begins = s0 <= first && !a->sinks;
        const float l = halves(lane), Mn = begins ? m : LN_MAX(M, m), keep = ln_expf(M - Mn),
                    f = ln_expf(m - Mn);
        for (int e = 0; e < Ev; e++) {
            float o = 0;
            for (int64_t j0 = (from - s0) / 32 * 32; j0 < to - s0; j0 += 32) {
                for (int i = 0; i < 32; i++)
                    k[i] = w[j0 + i] == 0 ? 0 : kv_number(a, b, s0 + j0 + i, kv_head, e, true);
                o = flushed(o + tile_sum(w + j0, k));
            }
            y[e] = begins ? o : fmaf(o, f, y[e] * keep);
        }
        L = begins ? l : L * keep + l * f;
        M = Mn;
    }
    for (int e = 0; e < Ev; e++) y[e] = y[e] * (1 / L) + 0.0f;
}

/* Checks a kernel on tiles: it has the formula's bits, and the formula is close to the reference. */
static void tiles_check(const attn_case *t) {
    attn_pool a;
    pool_make(&a, t, true);
    const int64_t rows = a.step.n_rows, cols = (int64_t)t->n_heads * t->head_dim, ldq = cols + 3,
                  cols_y = (int64_t)t->n_heads * v_dim_of(t), ldy = cols_y + 2, n_q = (rows - 1) * ldq + cols;
    const size_t y_count = (size_t)((rows - 1) * ldy + cols_y);
    guarded q = guard((size_t)n_q * 4, true, 0), want = guard(y_count * 4, true, 0),
            got = guard(y_count * 4, true, 0), ref = guard(y_count * 4, true, 0);
    float *pq = (float *)(void *)q.data, *py = (float *)(void *)want.data, *pr = (float *)(void *)ref.data;
    fill_f32(pq, n_q);
    for (int64_t i = 0; i < n_q; i++)
        pq[i] = ln_bf16_f32(ln_f32_bf16(t->tiny && i % ldq < cols && i % ldq % t->head_dim == 0
                                            ? (pq[i] < 0 ? -1e38f : 1e38f)
                                            : pq[i]));
    ln_pnode node = {.op = LN_OP_ATTN_PAGED, .n_in = t->sinks ? 3 : 2, .n_out = 1, .p.attn = a.p};
    ln_bounds bounds = {rows, 1, t->n_seqs};
    ln_call c = {.node = &node, .step = &a.step};
    c.in[0] = (ln_arg){q.data, rows, cols, ldq, LN_F32};
    c.in[1] = (ln_arg){a.base.data, 1, 1, 1, t->dtype};
    c.in[2] = (ln_arg){a.sink, 1, t->n_heads, t->n_heads, LN_BF16};
    c.out[0] = (ln_arg){ref.data, rows, cols_y, ldy, LN_F32};
    run_kernel(-1, &c, &bounds, 1);
    float most = 0, off = 0;
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < t->n_heads; h++) {
            const int64_t at = r * ldy + (int64_t)h * v_dim_of(t);
            formula(&a, r, h, pq + r * ldq + (int64_t)h * t->head_dim, py + at);
            for (int e = 0; e < v_dim_of(t); e++)
                most = LN_MAX(most, fabsf(pr[at + e])), off = LN_MAX(off, fabsf(pr[at + e] - py[at + e]));
        }
    if (!(off <= most * 0x1p-8f))
        fail_msg("the formula of tiles is off by %g, largest number %g", (double)off, (double)most);
    c.out[0].data = got.data;
    for (int hardware = 0; hardware < 2; hardware++)
        for (size_t n = 0; n < LN_COUNT(thread_counts); n++) {
            char what[200];
            snprintf(what, sizeof what,
                     "attn_paged by %s: H %d K %d E %d Ev %d page %d window %lld, %lld rows from %d, %d "
                     "threads",
                     hardware ? "tiles" : "the model of tiles", t->n_heads, t->n_kv_heads, t->head_dim,
                     v_dim_of(t), t->page_len, (long long)t->window, (long long)rows, t->first[0],
                     thread_counts[n]);
            memset(got.data, 0xa5, got.bytes);
#if defined(__x86_64__)
            if (hardware && !isa_available(LN_ISA_AMX)) continue;
            if (hardware) run_kernel(LN_ISA_AMX, &c, &bounds, thread_counts[n]);
#else
            if (hardware) continue;
#endif
            if (!hardware)
                run_this(&(ln_kernel){.fn = attn_amx_tiles_run, .scratch = attn_scratch}, &c, NULL, &bounds,
                         thread_counts[n]);
            assert_same(py, (float *)(void *)got.data, 1, (int64_t)y_count, 0, what);
        }
    /* Output rounded to bf16: q in f32 and in bf16, the output stored in f32 and in bf16. */
    ln_arg wide = c.in[0], narrow;
    guarded halved = narrow_of(&wide, &narrow);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < cols_y; i++) py[r * ldy + i] = ln_bf16_f32(ln_f32_bf16(py[r * ldy + i]));
    c.out[0].format = bf16_if(true);
    for (int kind = 0; kind < 4; kind++) {
        const int variant = t->q8 ? 3 : 1;
        ln_kernel_table table = {0};
        table.of[LN_OP_ATTN_PAGED][variant] = (ln_kernel){attn_amx_tiles_run, attn_scratch};
#if defined(__x86_64__)
        if (isa_available(LN_ISA_AMX)) ln_cpu_kernels(LN_ISA_AMX, &table);
#endif
        c.in[0] = kind % 2 ? narrow : wide;
        memset(got.data, 0xa5, got.bytes);
        if (kind / 2) run_narrow(&table.of[node.op][variant], &c, NULL, &bounds, 3);
        else run_this(&table.of[node.op][variant], &c, NULL, &bounds, 3);
        assert_same(py, (float *)(void *)got.data, 1, (int64_t)y_count, 0, "attn_paged by tiles, rounded");
    }
    unguard(&halved);
    unguard(&q), unguard(&want), unguard(&got), unguard(&ref), unguard(&a.base);
    free(a.pages);
}

/* Checks every ISA level; narrow: q is bf16-valued, and some CPUs then multiply pairs of bf16. */
static void isas_check(const attn_case *t, bool narrow) {
    attn_pool a;
    pool_make(&a, t, false);
    int64_t rows = a.step.n_rows, cols = (int64_t)t->n_heads * t->head_dim, ldq = cols + 3,
            cols_y = (int64_t)t->n_heads * v_dim_of(t), ldy = cols_y + 2;
    size_t y_count = (size_t)((rows - 1) * ldy + cols_y);
    guarded q = guard((size_t)((rows - 1) * ldq + cols) * 4, true, 0), want = guard(y_count * 4, true, 0),
            got = guard(y_count * 4, true, 0);
    float *pq = (float *)(void *)q.data;
    fill_f32(pq, (rows - 1) * ldq + cols);
    for (int64_t i = 0; narrow && i < (rows - 1) * ldq + cols; i++) pq[i] = ln_bf16_f32(ln_f32_bf16(pq[i]));
    ln_pnode node = {.op = LN_OP_ATTN_PAGED, .n_in = t->sinks ? 3 : 2, .n_out = 1, .p.attn = a.p};
    ln_bounds bounds = {rows, 1, t->n_seqs};
    ln_call c = {.node = &node, .step = &a.step};
    c.in[0] = (ln_arg){q.data, rows, cols, ldq, LN_F32, bf16_if(narrow)};
    c.in[1] = (ln_arg){a.base.data, 1, 1, 1, t->dtype};
    c.in[2] = (ln_arg){a.sink, 1, t->n_heads, t->n_heads, LN_BF16};
    c.out[0] = (ln_arg){want.data, rows, cols_y, ldy, LN_F32, bf16_if(random_u32() % 2)};
    run_kernel(-1, &c, &bounds, 2);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < cols_y; i++)
            assert_true(((float *)(void *)want.data)[r * ldy + i] ==
                        ((float *)(void *)want.data)[r * ldy + i]);
    c.out[0].data = got.data;
    for (int isa = 1; isa < LN_ISA_COUNT; isa++)
        for (size_t n = 0;
             n < LN_COUNT(thread_counts) && isa_available(isa) && !own_order(isa, LN_OP_ATTN_PAGED, t->dtype);
             n++) {
            char what[200];
            snprintf(what, sizeof what,
                     "attn_paged on %s: H %d K %d E %d Ev %d page %d window %lld dtype %d q8 %d, %lld rows "
                     "from "
                     "%d, %d "
                     "threads",
                     ln_cpu_isa_name((ln_isa)isa), t->n_heads, t->n_kv_heads, t->head_dim, v_dim_of(t),
                     t->page_len, (long long)t->window, (int)t->dtype, t->q8, (long long)rows, t->first[0],
                     thread_counts[n]);
            memset(got.data, 0xa5, got.bytes);
            run_kernel(isa, &c, &bounds, thread_counts[n]);
            assert_same((float *)(void *)want.data, (float *)(void *)got.data, 1, (int64_t)y_count, 0, what);
        }
    unguard(&q), unguard(&want), unguard(&got), unguard(&a.base);
    free(a.pages);
}

static void attn_check_pages(const attn_case *t) {
    if (t->dtype == LN_BF16) tiles_check(t), isas_check(t, true);
    isas_check(t, false);
}
/* Over pages of dtype, and every third case over pages of 8 bits that are read as dtype, too. */
static void attn_check(const attn_case *t) {
    static int turn;
    attn_case q8 = *t;
    attn_check_pages(t);
    q8.q8 = true;
    if (!t->tiny && turn++ % 3 == 0) attn_check_pages(&q8);
}

static const int head_shapes[][2] = {{1, 1}, {4, 1}, {7, 1}, {8, 2}, {16, 8}, {6, 3}, {14, 2}, {60, 1}};

static void test_head_widths(void **state) {
    (void)state;
    static const int widths[] = {1, 7, 8, 10, 15, 16, 17, 32, 33, 40, 64, 72, 80, 96, 100, 128, 256};
    for (size_t i = 0; i < LN_COUNT(widths); i += (size_t)fewer(1, 3))
        for (int dtype = 0; dtype < 2; dtype++) {
            const int *h = head_shapes[(i + (size_t)dtype) % 7];
            attn_check(&(attn_case){
                h[0], h[1], widths[i], i % 2 ? 64 : 32, 0, (ln_dtype)dtype, 2, {0, 250}, {19, 9}});
        }
}
/* Values that are wider than keys, and narrower ones: by less than a tile, by several. */
static void test_value_widths(void **state) {
    (void)state;
    static const int widths[][2] = {{16, 40}, {40, 16}, {64, 128},  {128, 64}, {33, 32},
                                    {32, 33}, {8, 256}, {192, 128}, {1, 17},   {100, 7}};
    for (size_t i = 0; i < LN_COUNT(widths); i++)
        for (int dtype = 0; dtype < 2; dtype++) {
            const int *h = head_shapes[(i + (size_t)dtype) % 7];
            attn_check(&(attn_case){h[0],
                                    h[1],
                                    widths[i][0],
                                    i % 2 ? 64 : 32,
                                    i % 3 ? 0 : 70,
                                    (ln_dtype)dtype,
                                    4,
                                    {0, 250, 20, 300},
                                    {19, 40, 1, 1},
                                    .v_dim = widths[i][1]});
        }
}
/* A softcap, sinks, and both: over one split and several, with a window, by tiles of all kinds. */
static void test_softcaps_and_sinks(void **state) {
    (void)state;
    for (int kind = 0; kind < 3; kind++)
        for (int dtype = 0; dtype < 2; dtype++)
            for (size_t i = 0; i < LN_COUNT(head_shapes) - 1; i += (size_t)fewer(1, 3))
                attn_check(&(attn_case){head_shapes[i][0],
                                        head_shapes[i][1],
                                        i % 2 ? 40 : 64,
                                        i % 3 ? 64 : 32,
                                        i % 2 ? 0 : 100,
                                        (ln_dtype)dtype,
                                        4,
                                        {0, 240, 20, 600},
                                        {19, 40, 1, 1},
                                        .softcap = kind != 1 ? (i % 2 ? 50.0f : 0.7f) : 0,
                                        .sinks = kind > 0});
}
static void test_windows(void **state) {
    (void)state;
    static const int windows[] = {0, 1, 2, 15, 16, 17, 100, 255, 256, 257, 300, 512, 5000};
    static const int pages[] = {32, 64, 128, 256};
    for (size_t i = 0; i < LN_COUNT(windows); i += (size_t)fewer(1, 3))
        for (int dtype = 0; dtype < 2; dtype++)
            attn_check(&(attn_case){
                4, 2, 20, pages[i % 4], windows[i], (ln_dtype)dtype, 4, {0, 90, 500, 240}, {33, 17, 40, 30}});
}
/* Whole sequences whose rows attend to later ones, too: alone and in company, over one split and several. */
static void test_both_ways(void **state) {
    (void)state;
    static const int windows[] = {0, 1, 2, 15, 16, 17, 100, 255, 256, 257, 300, 5000};
    for (size_t i = 0; i < LN_COUNT(windows); i += (size_t)fewer(1, 7))
        for (int dtype = 0; dtype < 2; dtype++) {
            const int *h = head_shapes[i % (LN_COUNT(head_shapes) - 1)];
            attn_check(&(attn_case){h[0],
                                    h[1],
                                    i % 2 ? 40 : 64,
                                    i % 3 ? 64 : 32,
                                    windows[i],
                                    (ln_dtype)dtype,
                                    4,
                                    {0, 0, 0, 0},
                                    {33, 1, 270, 64},
                                    .both_ways = true});
            attn_check(&(attn_case){
                4, 2, 20, 64, windows[i], (ln_dtype)dtype, 1, {0}, {510}, .both_ways = true, .sinks = i % 2});
        }
}
/* Four splits and more, one row and many, several sequences of very different lengths in one batch. */
static void test_long(void **state) {
    (void)state;
    for (int dtype = 0; dtype < 2; dtype++) {
        attn_check(&(attn_case){4, 1, 64, 32, 0, (ln_dtype)dtype, 1, {1500}, {1}});
        attn_check(&(attn_case){
            8, 4, 32, 32, 0, (ln_dtype)dtype, 6, {1300, 0, 3, 1023, 1024, 700}, {1, 1, 1, 1, 1, 1}});
        attn_check(&(attn_case){6, 2, 24, 32, 0, (ln_dtype)dtype, 3, {1100, 1000, 0}, {29, 1, 60}});
        attn_check(&(attn_case){6, 2, 24, 32, 700, (ln_dtype)dtype, 3, {1100, 1000, 0}, {29, 1, 60}});
        attn_check(&(attn_case){2, 1, 48, 32, 0, (ln_dtype)dtype, 1, {0}, {300}});
        attn_check(&(attn_case){4, 1, 33, 128, 7, (ln_dtype)dtype, 3, {300, 750, 9}, {3, 0, 1}});
    }
}
static void test_many_heads(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(head_shapes); i++)
        attn_check(&(attn_case){
            head_shapes[i][0], head_shapes[i][1], 16, 32, i % 2 ? 40 : 0, LN_F32, 2, {255, 3}, {5, 3}});
}
/* Numbers of rows that fill a unit of the kernel and more, and each smaller number. */
static void test_rows(void **state) {
    (void)state;
    for (int rows = 1; rows <= 34; rows += (int)fewer(1, 3))
        attn_check(&(attn_case){2, 1, 32, 64, rows % 3 ? 0 : 37, LN_BF16, 1, {rows * 29 % 300}, {rows}});
    attn_check(&(attn_case){3, 1, 24, 64, 0, LN_BF16, 2, {0, 40}, {210, 50}});
}
/* A row of decode at contexts up to and just above SMALL_CONTEXT, with 1 to 5 query heads a key/value
 * head. */
static void test_near(void **state) {
    (void)state;
    static const int widths[] = {8, 32, 33, 64, 128, 256};
    for (int heads = 1; heads <= 5; heads++)
        for (size_t i = 0; i < LN_COUNT(widths); i += (size_t)fewer(1, 3)) {
            const int limit = SMALL_CONTEXT / (int)ln_kv_width(widths[i]);
            attn_check(&(attn_case){2 * heads,
                                    2,
                                    widths[i],
                                    64,
                                    0,
                                    LN_BF16,
                                    4,
                                    {0, limit - 1, limit, 31 * limit / 32},
                                    {1, 1, 1, 1}});
            attn_check(&(attn_case){heads,
                                    1,
                                    widths[i],
                                    32,
                                    limit / 2 + 3,
                                    LN_BF16,
                                    3,
                                    {limit / 2, 256 + limit / 4, 511},
                                    {1, 1, 1}});
        }
    attn_check(&(attn_case){2, 2, 32, 64, 0, LN_BF16, 2, {20, 124}, {3, 4}});
}
static void test_denormals(void **state) {
    (void)state;
    for (int heads = 1; heads <= 5; heads++)
        attn_check(&(attn_case){
            heads, 1, 20 * heads, 32, 0, LN_BF16, 3, {20, 300, 0}, {1, 1, 40}, .tiny = true});
}
static void test_empty_sequence(void **state) {
    (void)state;
    attn_check(&(attn_case){4, 2, 16, 32, 0, LN_F32, 3, {10, 0, 40}, {3, 0, 2}});
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_head_widths),
                                       cmocka_unit_test(test_value_widths),
                                       cmocka_unit_test(test_softcaps_and_sinks),
                                       cmocka_unit_test(test_windows),
                                       cmocka_unit_test(test_both_ways),
                                       cmocka_unit_test(test_long),
                                       cmocka_unit_test(test_many_heads),
                                       cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_near),
                                       cmocka_unit_test(test_denormals),
                                       cmocka_unit_test(test_empty_sequence)};
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
