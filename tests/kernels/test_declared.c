/* Tests the kernels that declared.def lists, on every ISA level, against the reference: equality of bits
 * at the sizes of real models, which bench/kernel_speed times. Kernels with a summation order of their own
 * (AMX) are tested by test_amx. */
/* run: slow */
#include "kernels.h"

#include "declared.h"

#define MOST_OUTPUTS \
    fewer(518, 134) /* of a product: the reference is slow, and more outputs cover nothing new */

/* The weight of a product, of random values: in affine groups or dense. */
typedef struct operand {
    weight groups;
    guarded dense;
} operand;

static operand operand_new(const ln_pvalue *v) {
    int64_t D = v->dims[0], C = v->dims[1];
    if (!ln_encoding_is_dense(v->enc))
        return (operand){.groups = weight_new(D, C, ln_encoding_groups(v->enc), v->dtype, false)};
    operand w = {.dense = guard((size_t)(D * C * ln_dtype_bytes(v->dtype)), true, 0)};
    for (int64_t i = 0; i < D * C; i++) weight_put(w.dense.data, v->dtype, i, random_f32());
    return w;
}

/* Whether this ISA level computes the op in a summation order of its own. That depends on the type of
 * dense weights, or, for other ops, on the type of x and pages. */
static bool apart(int isa, const declared *d, const declared_how *how) {
    return own_order(isa, d->op,
                     d->op != LN_OP_LINEAR ? (how->fast ? LN_BF16 : LN_F32)
                     : how->bits           ? LN_F32
                                           : how->dtype);
}

static void run_declared(int isa, const declared *d, const declared_call *m, const operand *w, float *out,
                         int n_threads) {
    ln_call c = declared_call_of(m);
    guarded packed = {0};
    ln_affine affine = w->groups.a;
    if (d->op == LN_OP_LINEAR) {
        c.in[1].data = w->dense.data;
        if (c.in[0].format.kind == LN_FORMAT_I8PAIR &&
            isa > LN_ISA_PLAIN) { /* the ISA levels that have the kernel */
            row_weight per_row = row_packed(&affine, c.in[1].rows, c.in[1].cols);
            c.in[1].data = &per_row.a;
            c.out[0].data = out;
            run_kernel_with(isa, &c, m->values, &m->bounds, n_threads);
            unguard(&per_row.codes), unguard(&per_row.units);
            return;
        }
        if (!ln_encoding_is_dense(m->values[1].enc))
            packed = packed_q_for(isa, &affine, c.in[1].rows, c.in[1].cols), c.in[1].data = &affine;
        else packed = packed_for(isa, &c.in[1]);
    }
    if (d->op != LN_OP_KV_WRITE) c.out[0].data = out;
    else c.in[0].data = c.out[0].data = out;
    run_kernel_with(isa, &c, m->values, &m->bounds, n_threads);
    if (packed.map) unguard(&packed);
}

/* Whether the ISA level can run the op: products of int8 pairs are only for levels with a kernel of their
 * own. */
static bool has(int isa, const declared_call *m) {
    const bool pairs = m->node.op == LN_OP_LINEAR && m->call.in[0].format.kind == LN_FORMAT_I8PAIR;
    const char *whose = isa > LN_ISA_PLAIN && pairs
                            ? ln_cpu_kernel_isa((ln_isa)isa, LN_OP_LINEAR, LN_PRODUCT_I8PAIR_AFFINE)
                            : "";
    return strcmp(whose, ln_cpu_isa_name(LN_ISA_PLAIN)) != 0;
}

/* Runs the call with no rows, as for the logits' product in a step that wants no logits: nothing is
 * written. */
static void check_none(int isa, const declared *d, const declared_call *m, const operand *w, guarded *got) {
    declared_call none = *m;
    ln_arg *args[] = {&none.call.in[0], &none.call.in[1], &none.call.out[0]};
    for (size_t i = 0; i < LN_COUNT(args); i++)
        if (args[i] != &none.call.in[1] || d->op != LN_OP_LINEAR)
            args[i]->rows = args[i]->rows == m->rows ? 0 : args[i]->rows;
    memset(got->data, 0xa5, got->bytes);
    run_declared(isa, d, &none, w, (float *)(void *)got->data, 2);
    for (size_t i = 0; i < got->bytes; i++)
        if (got->data[i] != 0xa5)
            fail_msg("%s on %s: no rows, and byte %zu was written", d->name, ln_cpu_isa_name((ln_isa)isa), i);
}

static void check(const declared *declared_there, const declared_how *how) {
    declared d = *declared_there;
    declared_call m;
    if (d.op == LN_OP_LINEAR) d.size[0] = LN_MIN(d.size[0], MOST_OUTPUTS);
    declared_make(&m, &d, how);
    operand w = d.op == LN_OP_LINEAR ? operand_new(&m.values[1]) : (operand){0};
    size_t bytes = d.op == LN_OP_KV_WRITE ? (size_t)m.pool_bytes
                                          : (size_t)((m.rows - 1) * m.call.out[0].pitch + m.cols) * 4;
    guarded want = guard(bytes, true, 0), got = guard(bytes, true, 0);
    run_declared(-1, &d, &m, &w, (float *)(void *)want.data, 2);
    for (int isa = 0; isa < LN_ISA_COUNT; isa++) {
        if (isa_available(isa) && has(isa, &m) && m.rows > 1 && !m.pool_bytes)
            check_none(isa, &d, &m, &w, &got);
        for (size_t n = 0;
             n < LN_COUNT(thread_counts) && isa_available(isa) && !apart(isa, &d, how) && has(isa, &m); n++) {
            memset(got.data, 0xa5, bytes);
            run_declared(isa, &d, &m, &w, (float *)(void *)got.data, thread_counts[n]);
            if (memcmp(want.data, got.data, bytes) != 0)
                fail_msg("%s on %s: %lld rows at %lld, %d bits, fast %d, %d threads: other bits than the "
                         "reference's",
                         d.name, ln_cpu_isa_name((ln_isa)isa), (long long)how->rows, (long long)how->depth,
                         how->bits, how->fast, thread_counts[n]);
        }
    }
    unguard(&want), unguard(&got);
    if (w.dense.map) unguard(&w.dense);
    if (w.groups.codes.map) weight_free(&w.groups);
    declared_free(&m);
}

static void test_declared(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 9}, depths[] = {0, 700};
    static const int widths[] = {0, 4, 8};
    for (size_t i = 0; i < LN_COUNT(all_declared); i++) {
        const declared *d = &all_declared[i];
        bool paged = d->op == LN_OP_ATTN_PAGED || d->op == LN_OP_KV_WRITE;
        for (size_t r = 0; r < LN_COUNT(rows); r++)
            for (size_t k = 0; k < LN_COUNT(widths) && (k == 0 || d->op == LN_OP_LINEAR); k++)
                for (size_t p = 0; p < LN_COUNT(depths) && (p == 0 || paged); p++)
                    for (int form = 0; form < (k ? 3 : 2); form++)
                        check(d,
                              &(declared_how){rows[r], depths[p], LN_BF16, widths[k], form > 0, form == 2});
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_declared)};
    return cmocka_run_group_tests_name("declared", tests, NULL, NULL);
}
