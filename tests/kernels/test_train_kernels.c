/* Kernels of training and of experts on every ISA level and number of threads against the reference device:
 * equality of bits, at sizes that are no multiples of tiles, for weights in every encoding. */
/* run: quick */
#include "train_cases.h"
#include "device/cpu/exec.h"
#include "kernels.h"

static void check_bits(const char *name, build_fn *build, int form) {
    case_output out[24];
    size_t n_out, n_got;
    float *want = outputs_of(build, form, &ln_device_ref, 1, LN_POLICY_EXACT, out, &n_out);
    const size_t n = out[n_out - 1].at + out[n_out - 1].n;
    for (int isa = 0; isa < LN_ISA_COUNT; isa++)
        for (int threads = isa == LN_ISA_PLAIN ? 3 : 1; threads <= 3 && ln_cpu_isa_here((ln_isa)isa);
             threads += fewer(1, 2)) {
            setenv("LINNET_CPU", ln_cpu_isa_name((ln_isa)isa), 1);
            float *got = outputs_of(build, form, &ln_device_cpu, threads, LN_POLICY_EXACT, out, &n_got);
            assert_int_equal(n_out, n_got);
            for (size_t i = 0; i < n; i++)
                if (memcmp(want + i, got + i, sizeof *got) != 0)
                    fail_msg("%s, form %d, on %s with %d threads: output %zu of %zu is %.9g, the reference "
                             "has %.9g",
                             name, form, ln_cpu_isa_name((ln_isa)isa), threads, i, n, (double)got[i],
                             (double)want[i]);
            free(got);
        }
    unsetenv("LINNET_CPU");
    free(want);
}

/* AMX adds products of experts with bf16 weights in another order. */
static bool has_bits(build_fn *build, int form) {
    return build != build_experts || stored[form].dtype != LN_BF16 || stored[form].bits;
}
static void test_case(void **s) {
    const size_t i = (size_t)(uintptr_t)*s;
    for (int form = 0; form < train_cases[i].forms; form++)
        if (has_bits(train_cases[i].build, form)) check_bits(train_cases[i].name, train_cases[i].build, form);
}

int main(void) {
    struct CMUnitTest tests[LN_COUNT(train_cases)];
    for (size_t i = 0; i < LN_COUNT(tests); i++)
        tests[i] = (struct CMUnitTest){
            .name = train_cases[i].name, .test_func = test_case, .initial_state = (void *)(uintptr_t)i};
    return cmocka_run_group_tests_name("train_kernels", tests, NULL, NULL);
}
