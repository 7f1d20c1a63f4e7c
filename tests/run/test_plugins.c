/* Devices as plug-ins: what is rejected, with which message, and that the reference device as a plug-in
 * gives the bits of the built-in one for every golden model, in both numerics modes. */
/* run: quick */
#include "../common.h"
#include "base/file.h"
#include "device/registry.h"
#include "inspect/inspect.h"

#include <unistd.h>

#define GOLDEN LN_ROOT "/tests/golden/"
#define REF    LN_BIN "/liblinnet-ref.so"

static void refusals(void **state) {
    (void)state;
    const ln_device_ops *ops = NULL;
    char message[96];
    (void)snprintf(message, sizeof message, "liblinnet-bad-abi.so: device ABI %d, expected %d",
                   LN_DEVICE_ABI + 41, LN_DEVICE_ABI);
    FAILS(LN_EDEVICE, message, ln_device_find("bad-abi", &ops, err));
    FAILS(LN_EDEVICE, "liblinnet-bad-function.so: the device lacks the function `upload`",
          ln_device_find("bad-function", &ops, err));
    FAILS(LN_EDEVICE, "liblinnet-bad-size.so: the device lacks the function `value`",
          ln_device_find("bad-size", &ops, err));
    FAILS(LN_EDEVICE, "liblinnet-bad-host.so: the plug-in refuses", ln_device_find("bad-host", &ops, err));
    FAILS(LN_EDEVICE, "liblinnet-bad-entry.so: no device", ln_device_find("bad-entry", &ops, err));
    FAILS(LN_EDEVICE, "liblinnet-bad-name.so: it has the device bad, expected bad-name",
          ln_device_find("bad-name", &ops, err));
    FAILS(LN_EDEVICE, "neither " LN_BIN "/liblinnet-absent.so nor ", ln_device_find("absent", &ops, err));
    FAILS(LN_EDEVICE, "expected a name", ln_device_find("../ref", &ops, err));
    FAILS(LN_EDEVICE, "cannot be loaded", ln_device_load(LN_ROOT "/README.md", &ops, err));
    FAILS(LN_EDEVICE, "/nowhere/device.so", ln_device_load("/nowhere/device.so", &ops, err));
    assert_null(ops);
    OK(ln_device_find("cpu", &ops, err));
    assert_ptr_equal(ops, &ln_device_cpu);
    OK(ln_device_find("ref-double", &ops, err));
    assert_ptr_equal(ops, &ln_device_ref_double);
}

/* No environment variable and no working directory decides which file is loaded. */
static void where_plugins_are_looked_for(void **state) {
    (void)state;
    const ln_device_ops *ops;
    char dir[] = "/tmp/linnet-plugins-XXXXXX", path[128], here[4096];
    assert_non_null(mkdtemp(dir));
    assert_non_null(getcwd(here, sizeof here));
    (void)snprintf(path, sizeof path, "%s/liblinnet-elsewhere.so", dir);
    assert_int_equal(symlink(REF, path), 0);
    assert_int_equal(chdir(dir), 0);
    setenv("LD_LIBRARY_PATH", dir, 1);
    FAILS(LN_EDEVICE, "neither", ln_device_find("elsewhere", &ops, err));
    unsetenv("LD_LIBRARY_PATH");
    assert_int_equal(chdir(here), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void list(void **state) {
    (void)state;
    ln_device_entry entries[8];
    assert_int_equal(ln_device_list(entries, 1), 1);
    const size_t n = ln_device_list(entries, LN_COUNT(entries));
    assert_int_equal(n, 4);
    assert_true(strcmp(entries[0].name, "cpu") == 0 && entries[0].available && !entries[0].reason[0]);
    assert_true(strcmp(entries[1].name, "ref") == 0 && entries[1].available);
    assert_true(strcmp(entries[2].name, "cuda") == 0 && !entries[2].available);
    assert_non_null(strstr(entries[2].reason, "device cuda"));
    assert_string_equal(entries[3].name, "mlx");
    if (!entries[3].available) assert_non_null(strstr(entries[3].reason, "mlx"));
}

/* All logits of a text, on ops. */
static float *logits_of(const ln_package *m, const ln_device_ops *ops, ln_numerics numerics,
                        const int32_t *ids, int n) {
    ln_eng *e;
    ln_run_options o = test_options(m, LN_DEVICE_REF, 1, 7, 1);
    o.numerics = numerics;
    o.n_logits = 7;
    o.page_len = 32;
    o.ops = ops;
    OK(ln_eng_open_with(&e, m, &o, err));
    assert_ptr_equal(e->run->ops, ops);
    const int64_t V = m->spec.V;
    float *out = malloc((size_t)(n * V) * sizeof *out);
    ln_seq *seq = test_seq(e, n, n);
    for (int at = 0; at < n; at += 7) {
        const int k = LN_MIN(7, n - at);
        OK(ln_eng_step(e, &(ln_batch_item){seq, ids + at, k, LN_LOGITS_ALL}, 1, err));
        for (int i = 0; i < k; i++) OK(ln_run_logits(e->run, i, out + (at + i) * V, err));
    }
    ln_seq_close(e, &seq);
    ln_eng_close(&e);
    return out;
}

static const ln_device_ops *plugin;

static void check_model(const char *dir) {
    enum { N = 17 };
    ln_package *m;
    OK(ln_package_open(&m, dir, &(ln_options){0}, err));
    int32_t *ids = ln_eng_random_ids(m, N);
    for (ln_numerics numerics = LN_EXACT; numerics <= LN_FAST; numerics++) {
        if (ln_run_numerics(&m->spec, numerics) != numerics) continue;
        float *want = logits_of(m, &ln_device_ref, numerics, ids, N),
              *got = logits_of(m, plugin, numerics, ids, N);
        if (memcmp(want, got, (size_t)(N * m->spec.V) * sizeof *got) != 0)
            fail_msg("%s, %s: the plug-in has other logits", dir, numerics == LN_FAST ? "fast" : "exact");
        free(want);
        free(got);
    }
    ln_free(ids);
    ln_package_close(&m);
}
static void check_index(const char *folder) {
    char path[512];
    json_t *index;
    const json_t *row;
    size_t i;
    (void)snprintf(path, sizeof path, "%sindex.json", folder);
    OK(ln_json_load_file(&index, path, 1 << 20, err));
    assert_true(json_array_size(index) >= 7);
    json_array_foreach(index, i, row) {
        (void)snprintf(path, sizeof path, GOLDEN "%s", json_string_value(json_object_get(row, "dir")));
        check_model(path);
    }
    json_decref(index);
}

static void goldens_through_the_plugin(void **state) {
    (void)state;
    const ln_device_ops *again;
    OK(ln_device_load(REF, &plugin, err));
    assert_ptr_not_equal(plugin, &ln_device_ref);
    assert_string_equal(plugin->name, "ref");
    OK(ln_device_load(REF, &again, err));
    assert_ptr_equal(plugin, again);
    check_index(GOLDEN);
    check_index(GOLDEN "quantised/");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(refusals),
                                       cmocka_unit_test(where_plugins_are_looked_for), cmocka_unit_test(list),
                                       cmocka_unit_test(goldens_through_the_plugin)};
    return cmocka_run_group_tests_name("plugins", tests, NULL, NULL);
}
