/* The op table: at most 62 ops and those of user graphs, a reference kernel for each of their variants, and
 * docs/ops.md, which is the table of ops.def and that of quant/formats.def for readers. */
/* run: quick */
#include "../common.h"
#include "base/file.h"
#include "ops/ops.h"

static void test_rails(void **s) {
    (void)s;
    assert_true(LN_OP_COUNT <= 30 + 28 + 4 + 16); /* of inference and training, collectives, user graphs */
    ln_kernel_table f, d;
    ln_ref_kernels_float(&f);
    ln_ref_kernels_double(&d);
    for (int i = 0; i < LN_OP_COUNT; i++) {
        int n = 0;
        for (int k = 0; k < LN_VARIANTS; k++) {
            assert_true((f.of[i][k].fn != NULL) == (d.of[i][k].fn != NULL));
            n += f.of[i][k].fn != NULL;
        }
        const bool product = i == LN_OP_LINEAR || i == LN_OP_LINEAR_GATED || i == LN_OP_EXPERTS;
        assert_int_equal(n, product ? LN_PRODUCT_COUNT
                            : i == LN_OP_EMBED || i == LN_OP_LINEAR_BACK || i == LN_OP_EXPERTS_BACK ||
                                    i == LN_OP_LINEAR_CROSS_ENTROPY
                                ? LN_STORED_COUNT
                            : i == LN_OP_CONVERT || i == LN_OP_MATMUL         ? 3
                            : i == LN_OP_ATTN_PAGED                           ? 4
                            : i == LN_OP_SHORT_CONV || i == LN_OP_GATED_DELTA ? 2
                                                                              : 1);
        assert_true(strlen(ln_ops[i].formula) > 10 &&
                    (ln_ops[i].grad == NULL) == (ln_ops[i].nograd != NULL) && ln_ops[i].shape &&
                    ln_ops[i].cost);
    }
}

/* docs/ops.md is the table of ops.def for readers; LN_WRITE_DOCS=1 writes the file. */
static void test_docs(void **s) {
    (void)s;
    static const struct {
        int bit;
        const char *name;
    } props[] = {{LN_PROP_ROWWISE, "rowwise"},
                 {LN_PROP_INPLACE, "in place"},
                 {LN_PROP_EFFECT, "effect"},
                 {LN_PROP_FUSED, "fused"},
                 {LN_PROP_ROUNDS, "rounds"}};
    ln_str want = {0};
    ln_str_adds(&want, "# Ops\n\nMade from `src/graph/ops.def` by `LN_WRITE_DOCS=1 test_ops_table`; a test "
                       "compares.\n\n"
                       "| op | inputs | formula | properties | gradient |\n|---|---|---|---|---|\n");
    for (int i = 0; i < LN_OP_COUNT; i++) {
        ln_str_addf(&want, "| `%s` | %d", ln_ops[i].name, ln_ops[i].in_min);
        if (ln_ops[i].in_max != ln_ops[i].in_min) ln_str_addf(&want, "..%d", ln_ops[i].in_max);
        ln_str_addf(&want, " | %s |", ln_ops[i].formula);
        const char *comma = " ";
        for (size_t k = 0; k < LN_COUNT(props); k++)
            if (ln_ops[i].props & props[k].bit)
                ln_str_addf(&want, "%s%s", comma, props[k].name), comma = ", ";
        ln_str_addf(&want, " | %s |\n", ln_ops[i].grad ? "yes" : ln_ops[i].nograd);
    }
    ln_str_adds(&want, "\n## Products of `linear` and `linear_gated`\n\nMade from `src/quant/formats.def`. "
                       "There is one for "
                       "each format of x and stored form of w for which there is a formula.\n\n"
                       "| product | x | w | formula |\n|---|---|---|---|\n");
    static const char *const formats[] = {"f32", "bf16", "block floating point", "int8 pairs"},
                             *const stored[] = {"f32 or f16", "bf16",     "affine groups", "fp8 e4m3",
                                                "fp8 e5m2",   "fp4 e2m1", "zero points"};
    for (int i = 0; i < LN_PRODUCT_COUNT; i++)
        ln_str_addf(&want, "| `%s` | %s | %s | %s |\n", ln_products[i].name, formats[ln_products[i].x],
                    stored[ln_products[i].w], ln_products[i].formula);
    const char *path = LN_ROOT "/docs/ops.md";
    ln_out o;
    if (getenv("LN_WRITE_DOCS")) {
        OK(ln_out_open(&o, path, true, err));
        OK(ln_out_write(&o, want.data, want.len, err));
        OK(ln_out_commit(&o, err));
    }
    char *have;
    size_t n;
    OK(ln_read_file(path, 1 << 20, &have, &n, err));
    if (strcmp(have, want.data) != 0)
        fail_msg("docs/ops.md is not what ops.def says: run LN_WRITE_DOCS=1 test_ops_table");
    ln_free(have);
    ln_str_free(&want);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rails), cmocka_unit_test(test_docs)};
    return cmocka_run_group_tests_name("ops table", tests, NULL, NULL);
}
