/* Golden models and adapters, node by node, on a device against the reference device. */
#ifndef LN_TESTS_NODE_CHECKS_H
#define LN_TESTS_NODE_CHECKS_H

#include "common.h"
#include "inspect/inspect.h"

#define DIR_GOLDEN LN_ROOT "/tests/golden/"

static inline ln_status count_bounded(void *user, const ln_node_report *r, ln_error *err) {
    (void)err;
    *(int *)user += r->bound > 0;
    return LN_OK;
}

/* Asserts that every node of the model in `dir` is within its bound, exact and fast. adapter: its directory;
 * NULL: none. Numerics that the model or the device does not have are left out. */
static inline void check_nodes(ln_device device, const char *dir, const char *adapter) {
    const ln_adapter_part part = {adapter, 1};
    ln_package *m;
    OK(ln_package_open(&m, dir, &(ln_options){0}, err));
    for (ln_numerics numerics = LN_EXACT; numerics <= LN_FAST; numerics++) {
        const ln_options o = {
            .numerics = numerics, .device = device, .adapter = &part, .n_adapter_parts = adapter != NULL};
        ln_error why = {0};
        int with_bound = 0;
        if (device_lacks(device, m) || ln_run_numerics(&m->spec, numerics) != numerics) continue;
        if (ln_diff_model(m, &o, NULL, 0, count_bounded, &with_bound, &why) != LN_OK)
            fail_msg("%s, %s: %s", dir, numerics == LN_FAST ? "fast" : "exact", why.message);
        assert_true(with_bound > 0);
    }
    ln_package_close(&m);
}

/* Checks every `step`-th golden model, dense and quantised. */
static inline void check_golden_nodes(ln_device device, size_t step) {
    static const char *const folders[] = {DIR_GOLDEN, DIR_GOLDEN "quantised/"};
    for (size_t f = 0; f < LN_COUNT(folders); f++) {
        char path[512];
        json_t *index;
        (void)snprintf(path, sizeof path, "%sindex.json", folders[f]);
        OK(ln_json_load_file(&index, path, 1 << 20, err));
        for (size_t i = 0; i < json_array_size(index); i += step) {
            (void)snprintf(path, sizeof path, DIR_GOLDEN "%s",
                           json_string_value(json_object_get(json_array_get(index, i), "dir")));
            check_nodes(device, path, NULL);
        }
        json_decref(index);
    }
}

static inline void check_adapted_nodes(ln_device device) {
    check_nodes(device, DIR_GOLDEN "llama-plain-f32", DIR_GOLDEN "lora/llama-all");
    check_nodes(device, DIR_GOLDEN "llama-bias-bf16", DIR_GOLDEN "lora/llama-bias-all");
    check_nodes(device, DIR_GOLDEN "quantised/gemma3-text-q4-g32-bf16", DIR_GOLDEN "lora/gemma3-q4");
}

#endif
