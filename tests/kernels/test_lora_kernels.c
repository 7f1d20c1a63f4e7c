/* Tests the kernels of adapters, lora_down and lora_up, on every ISA level: bits equal to the reference's,
 * for rows of several adapters and rows without one, in f32 and bf16, in any number of rows and threads. */
/* run: quick */
#include "kernels.h"

enum { SLOTS = 3, ROWS = 11 };

typedef struct pool {
    ln_p_lora p;
    guarded bytes;
} pool;

/* A pool whose slots have the ranks 0 (with a bias), max_rank (with gains) and less (with both). */
static pool make_pool(int64_t n_in, int64_t n_out, int max_rank, ln_dtype dtype) {
    pool a = {
        .p = {
            .at = 64, .n_slots = SLOTS, .max_rank = max_rank, .n_in = n_in, .n_out = n_out, .dtype = dtype}};
    const ln_lora_part o = ln_lora_part_of(&a.p);
    a.p.slot_bytes = a.p.at + o.bytes;
    a.bytes = guard((size_t)(SLOTS * a.p.slot_bytes), false, 0);
    memset(a.bytes.data, 0xff, a.bytes.bytes); /* NaN in what no adapter fills */
    for (int s = 0; s < SLOTS; s++) {
        uint8_t *part = a.bytes.data + s * a.p.slot_bytes + a.p.at;
        const int32_t rank = s == 0   ? 0
                             : s == 1 ? max_rank
                                      : (max_rank + 1) / 2,
                      head[2] = {rank, s == 0   ? LN_LORA_HAS_BIAS
                                       : s == 1 ? LN_LORA_HAS_GAIN
                                                : LN_LORA_HAS_BIAS | LN_LORA_HAS_GAIN};
        memcpy(part, head, sizeof head);
        fill_f32((float *)(void *)(part + o.scale), rank);
        if (head[1] & LN_LORA_HAS_BIAS) fill_f32((float *)(void *)(part + o.bias), n_out);
        if (head[1] & LN_LORA_HAS_GAIN) fill_f32((float *)(void *)(part + o.gain), n_out);
        for (int64_t i = 0; i < rank * n_in; i++) weight_put(part + o.a, dtype, i, random_f32());
        for (int64_t i = 0; i < rank * n_out; i++) weight_put(part + o.b, dtype, i, random_f32());
    }
    return a;
}

/* Compares all levels with the reference. `in_place`: output 0 has the buffer of input 0, whose values are
 * `rows` again before each run. */
static void compare(ln_call *c, const float *rows, const char *what) {
    const size_t n = (size_t)((c->out[0].rows - 1) * c->out[0].pitch + c->out[0].cols);
    const ln_bounds bounds = {c->out[0].rows, 1, 1};
    guarded want = guard(n * 4, true, 0), got = guard(n * 4, true, 0);
    memset(want.data, 0xa5, want.bytes);
    c->out[0].data = want.data;
    run_kernel(-1, c, &bounds, 1);
    for (int isa = 0; isa < LN_ISA_COUNT; isa++)
        for (size_t k = 0; isa_available(isa) && k < LN_COUNT(thread_counts); k++)
            for (int in_place = 0; in_place <= (rows != NULL); in_place++) {
                ln_call d = *c;
                d.out[0].data = got.data;
                memset(got.data, 0xa5, got.bytes);
                if (in_place) {
                    for (int64_t r = 0; r < d.out[0].rows; r++)
                        memcpy(got.data + 4 * r * d.out[0].pitch, rows + r * c->in[0].pitch,
                               4 * (size_t)d.out[0].cols);
                    d.in[0].data = got.data, d.in[0].pitch = d.out[0].pitch;
                }
                run_kernel(isa, &d, &bounds, thread_counts[k]);
                assert_same((float *)(void *)want.data, (float *)(void *)got.data, 1, (int64_t)n, 0, what);
            }
    unguard(&want), unguard(&got);
}

static void check(int64_t n_in, int64_t n_out, int max_rank, ln_dtype dtype, bool of_outputs) {
    char what[120];
    int32_t slots[2 * ROWS], out_rows[ROWS];
    pool a = make_pool(n_in, n_out, max_rank, dtype);
    a.p.of_outputs = of_outputs;
    for (int r = 0; r < 2 * ROWS; r++) slots[r] = r % 5 == 4 ? -1 : r / 2 % SLOTS;
    for (int r = 0; r < ROWS; r++) out_rows[r] = 2 * ROWS - 1 - 2 * r;
    const ln_step step = {.n_rows = 2 * ROWS, .n_out = ROWS, .adapter = slots, .out_rows = out_rows};
    const int64_t pitch = n_in + 3, y_pitch = n_out + 1, t_pitch = max_rank + 2;
    guarded x = guard((size_t)(ROWS * pitch) * 4, true, 0), y = guard((size_t)(ROWS * y_pitch) * 4, true, 0),
            t = guard((size_t)(ROWS * t_pitch) * 4, true, 0);
    fill_f32((float *)(void *)x.data, ROWS * pitch);
    fill_f32((float *)(void *)y.data, ROWS * y_pitch);
    fill_f32((float *)(void *)t.data, ROWS * t_pitch);
    snprintf(what, sizeof what, "C %lld, D %lld, rank %d, dtype %d", (long long)n_in, (long long)n_out,
             max_rank, (int)dtype);
    const ln_pnode down = {.op = LN_OP_LORA_DOWN, .n_in = 2, .n_out = 1, .p.lora = a.p},
                   up = {.op = LN_OP_LORA_UP, .n_in = 3, .n_out = 1, .p.lora = a.p};
    const ln_arg state = {a.bytes.data, 1, 1, 1, LN_F32};
    ln_call c = {.node = &down, .step = &step};
    c.in[0] = (ln_arg){x.data, ROWS, n_in, pitch, LN_F32};
    c.in[1] = state;
    c.out[0] = (ln_arg){NULL, ROWS, max_rank, t_pitch, LN_F32};
    compare(&c, NULL, what);
    c = (ln_call){.node = &up, .step = &step};
    c.in[0] = (ln_arg){y.data, ROWS, n_out, y_pitch, LN_F32};
    c.in[1] = (ln_arg){t.data, ROWS, max_rank, t_pitch, LN_F32};
    c.in[2] = state;
    c.out[0] = (ln_arg){NULL, ROWS, n_out, n_out + 2, LN_F32};
    compare(&c, (float *)(void *)y.data, what);
    unguard(&x), unguard(&y), unguard(&t), unguard(&a.bytes);
}

static void test_sizes(void **state) {
    (void)state;
    static const int64_t in[] = {1, 15, 16, 33, 64, 200}, out[] = {1, 7, 8, 31, 64, 129};
    static const int ranks[] = {1, 4, 7, 16};
    for (size_t i = 0; i < LN_COUNT(in); i++)
        for (size_t k = 0; k < LN_COUNT(out); k++)
            for (size_t r = 0; r < LN_COUNT(ranks); r++)
                for (int f32 = 0; f32 < 2; f32++)
                    check(in[i], out[k], ranks[r], f32 ? LN_F32 : LN_BF16, (i + k) % 2);
}

/* x as two-byte bf16 gives what the same values in f32 give. */
static void test_narrow(void **state) {
    (void)state;
    enum { C = 70, D = 9, RANK = 5 };
    int32_t slots[ROWS];
    pool a = make_pool(C, D, RANK, LN_BF16);
    for (int r = 0; r < ROWS; r++) slots[r] = r % (SLOTS + 1) - 1;
    const ln_step step = {.n_rows = ROWS, .adapter = slots};
    const ln_pnode node = {.op = LN_OP_LORA_DOWN, .n_in = 2, .n_out = 1, .p.lora = a.p};
    const ln_bounds bounds = {ROWS, 1, 1};
    guarded x = guard(ROWS * C * 4, true, 0);
    float *v = (float *)(void *)x.data, want[ROWS * RANK], got[ROWS * RANK];
    fill_f32(v, ROWS * C);
    for (int i = 0; i < ROWS * C; i++) v[i] = ln_bf16_f32(ln_f32_bf16(v[i]));
    ln_call c = {.node = &node, .step = &step};
    c.in[0] = (ln_arg){x.data, ROWS, C, C, LN_F32, bf16_if(true)};
    c.in[1] = (ln_arg){a.bytes.data, 1, 1, 1, LN_F32};
    c.out[0] = (ln_arg){want, ROWS, RANK, RANK, LN_F32};
    ln_arg narrow;
    guarded n = narrow_of(&c.in[0], &narrow);
    run_kernel(-1, &c, &bounds, 1);
    for (int isa = LN_ISA_PLAIN + 1; isa < LN_ISA_COUNT; isa++) {
        if (!isa_available(isa)) continue;
        ln_call d = c;
        d.in[0] = narrow, d.out[0].data = got;
        run_kernel(isa, &d, &bounds, 1);
        assert_memory_equal(want, got, sizeof want);
    }
    unguard(&x), unguard(&n), unguard(&a.bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes), cmocka_unit_test(test_narrow)};
    return cmocka_run_group_tests_name("lora", tests, NULL, NULL);
}
