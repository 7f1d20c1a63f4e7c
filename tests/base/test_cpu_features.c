/* run: quick asan */
/* The processor's instruction sets against those that the compiler's own function reports. */
#include "../../src/base/cpu_features.h"
#include "cm.h"

static void the_compiler_reports_the_same(void **state) {
    (void)state;
    assert_true(ln_cpu_has(0));
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    assert_int_equal(ln_cpu_has(LN_CPU_AVX2), avx2);
    assert_int_equal(ln_cpu_has(LN_CPU_AVX512), avx512);
    assert_int_equal(ln_cpu_has(LN_CPU_AVX512_VNNI), avx512 && __builtin_cpu_supports("avx512vnni"));
    assert_int_equal(ln_cpu_has(LN_CPU_AVX512_BF16), avx512 && __builtin_cpu_supports("avx512bf16"));
    assert_int_equal(ln_cpu_has(LN_CPU_AMD), __builtin_cpu_is("amd") != 0);
    assert_true(!ln_cpu_has(LN_CPU_TILES) || ln_cpu_has(LN_CPU_AVX2));
#else
    assert_false(ln_cpu_has(LN_CPU_AVX2));
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_compiler_reports_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
