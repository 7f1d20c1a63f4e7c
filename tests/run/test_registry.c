/* Devices of a process: engines with the same options share one open device, and the last one closes it. */
/* run: quick */
#include "../common.h"
#include "device/registry.h"

struct ln_dev {
    ln_dev_options opt;
};
static int n_open, n_refusals;
static ln_status fake_open(ln_dev **out, const ln_dev_options *opt, ln_error *err) {
    if (n_refusals > 0 && n_refusals--) return ln_fail(err, LN_EDEVICE, "no such device");
    *out = malloc(sizeof **out);
    (*out)->opt = *opt;
    n_open++;
    return LN_OK;
}
static void fake_close(ln_dev **dev) {
    free(*dev);
    *dev = NULL;
    n_open--;
}
static const ln_device_ops fake = {.name = "fake", .open = fake_open, .close = fake_close},
                           other = {.name = "other", .open = fake_open, .close = fake_close};

static void devices_are_shared(void **state) {
    (void)state;
    const ln_dev_options two = {.n_threads = 2}, three = {.n_threads = 3},
                         locked = {.n_threads = 2, .mlock = true};
    ln_dev *d[5], *none = NULL;
    n_refusals = 1;
    FAILS(LN_EDEVICE, "no such", ln_device_acquire(&fake, &two, &none, err));
    assert_null(none);
    OK(ln_device_acquire(&fake, &two, &d[0], err));
    OK(ln_device_acquire(&fake, &two, &d[1], err));
    OK(ln_device_acquire(&fake, &three, &d[2], err));
    OK(ln_device_acquire(&fake, &locked, &d[3], err));
    OK(ln_device_acquire(&other, &two, &d[4], err));
    assert_ptr_equal(d[0], d[1]);
    for (int i = 2; i < 5; i++)
        for (int k = 0; k < i; k++) assert_ptr_not_equal(d[i], d[k]);
    assert_true(d[2]->opt.n_threads == 3 && d[3]->opt.mlock);
    assert_int_equal(n_open, 4);
    ln_device_release(&d[0]);
    assert_null(d[0]);
    assert_int_equal(n_open, 4);
    ln_device_release(&d[1]);
    assert_int_equal(n_open, 3);
    ln_device_release(&none);
    for (int i = 2; i < 5; i++) ln_device_release(&d[i]);
    assert_int_equal(n_open, 0);
}

/* An engine that is opened with another LINNET_CPU gets a device with the kernels of that level, although one
 * with the same options is open. */
static void devices_of_other_levels_are_not_shared(void **state) {
    (void)state;
    const ln_dev_options two = {.n_threads = 2};
    const char *const levels[] = {"plain", "avx2", NULL, "plain"};
    ln_dev *d[LN_COUNT(levels)];
    for (size_t i = 0; i < LN_COUNT(levels); i++) {
        if (levels[i]) assert_int_equal(setenv("LINNET_CPU", levels[i], 1), 0);
        else assert_int_equal(unsetenv("LINNET_CPU"), 0);
        OK(ln_device_acquire(&fake, &two, &d[i], err));
    }
    assert_true(d[0] != d[1] && d[1] != d[2] && d[0] != d[2]);
    assert_ptr_equal(d[3], d[0]);
    assert_int_equal(n_open, 3);
    assert_int_equal(unsetenv("LINNET_CPU"), 0);
    for (size_t i = 0; i < LN_COUNT(levels); i++) ln_device_release(&d[i]);
    assert_int_equal(n_open, 0);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* for tools/mutants */
    const struct CMUnitTest tests[] = {cmocka_unit_test(devices_are_shared),
                                       cmocka_unit_test(devices_of_other_levels_are_not_shared)};
    return cmocka_run_group_tests_name("registry", tests, NULL, NULL);
}
