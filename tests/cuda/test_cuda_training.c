/* The kernels of training of the CUDA device against the reference device, each output within the tolerance
 * that the device declares, in the exact policy and in that of training, twice with the same bits. With
 * LN_QUICK (under compute-sanitizer) one variant of each, once, in the policy of training. Skipped if there
 * is no GPU. */
/* run: quick cuda */
#include "../kernels/train_cases.h"
#include "cuda_case.h"

static const ln_policy policies[] = {LN_POLICY_TRAIN, LN_POLICY_EXACT};
static bool is_quick(void) { return getenv("LN_QUICK") != NULL; }

static void check(const char *name, build_fn *build, int form, ln_policy policy) {
    case_output out[24], ref[24];
    size_t n_out, n_ref;
    char what[200];
    float *want = outputs_of(build, form, &ln_device_ref, 1, policy, ref, &n_ref),
          *got = outputs_of(build, form, cuda_ops, 1, policy, out, &n_out),
          *again = is_quick() ? got : outputs_of(build, form, cuda_ops, 1, policy, out, &n_out);
    assert_int_equal(n_out, n_ref);
    for (size_t i = 0; i < n_out; i++) {
        (void)snprintf(what, sizeof what, "%s, form %d, policy %d, %s", name, form, (int)policy, out[i].name);
        compare_outputs(what, want + out[i].at, got + out[i].at, (int64_t)out[i].n, out[i].tolerance);
        if (memcmp(got + out[i].at, again + out[i].at, out[i].n * sizeof *got) != 0)
            fail_msg("%s: other bits in the second run", what);
    }
    if (again != got) free(again);
    free(want), free(got);
}

static void test_case(void **s) {
    const size_t i = (size_t)(uintptr_t)*s;
    for (int form = 0; form < (is_quick() ? 1 : train_cases[i].forms); form++)
        for (size_t p = 0; p < (is_quick() ? 1 : LN_COUNT(policies)); p++)
            check(train_cases[i].name, train_cases[i].build, form, policies[p]);
}

int main(void) {
    struct CMUnitTest tests[LN_COUNT(train_cases)];
    int n = 0;
    if (!cuda_here()) return 0;
    for (size_t i = 0; i < LN_COUNT(train_cases); i++)
        if (!train_cases[i].experts)
            tests[n++] = (struct CMUnitTest){
                .name = train_cases[i].name, .test_func = test_case, .initial_state = (void *)(uintptr_t)i};
    return _cmocka_run_group_tests("cuda_training", tests, (size_t)n, NULL, NULL);
}
