/* The golden models of the families (tests/golden/families, or with LN_GOLDEN=DIR those of that folder, as
 * tools/golden_families.py --sweep makes them), one after another, for tests of every one of them. */
#ifndef LN_TESTS_FAMILY_MODELS_H
#define LN_TESTS_FAMILY_MODELS_H

#include "../common.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { FAMILY_MOST = 80 };

typedef struct family_model {
    char name[100], path[600];
    bool is_f32, is_adapted, has_experts; /* there is an adapted.safetensors, an experts.safetensors */
    int32_t ids[FAMILY_MOST];
    int64_t T, V;
    ln_package *m;
    ln_tensors golden;           /* golden.safetensors */
    ln_tensors adapted, experts; /* adapted.safetensors, experts.safetensors of tools/golden_adapted.py */
} family_model;

static inline const ln_tensor *family_tensor(const ln_tensors *t, const char *name) {
    const ln_tensor *x = ln_tensors_find(t, name);
    if (!x) fail_msg("%s lacks %s", t->files[0].path, name);
    return x;
}
static inline float family_float(const ln_tensor *t, int64_t i) {
    float f;
    memcpy(&f, t->data + 4 * i, sizeof f);
    return f;
}

static inline void family_open(family_model *f, const char *folder, const json_t *row) {
    char path[700];
    const ln_options o = {0};
    memset(f, 0, sizeof *f);
    (void)snprintf(f->name, sizeof f->name, "%s", json_string_value(json_object_get(row, "dir")));
    (void)snprintf(f->path, sizeof f->path, "%s/%s", folder, f->name);
    f->is_f32 = strcmp(json_string_value(json_object_get(row, "dtype")), "f32") == 0;
    OK(ln_package_open(&f->m, f->path, &o, err));
    (void)snprintf(path, sizeof path, "%s/golden.safetensors", f->path);
    OK(ln_tensors_open_file(&f->golden, path, err));
    (void)snprintf(path, sizeof path, "%s/adapted.safetensors", f->path);
    f->is_adapted = access(path, F_OK) == 0;
    if (f->is_adapted) OK(ln_tensors_open_file(&f->adapted, path, err));
    (void)snprintf(path, sizeof path, "%s/experts.safetensors", f->path);
    f->has_experts = access(path, F_OK) == 0;
    if (f->has_experts) OK(ln_tensors_open_file(&f->experts, path, err));
    const ln_tensor *ids = family_tensor(&f->golden, "ids");
    f->T = LN_MIN(ids->dims[0], FAMILY_MOST), f->V = f->m->spec.V;
    memcpy(f->ids, ids->data, (size_t)f->T * sizeof *f->ids);
}
static inline void family_close(family_model *f) {
    if (f->is_adapted) ln_tensors_close(&f->adapted);
    if (f->has_experts) ln_tensors_close(&f->experts);
    ln_tensors_close(&f->golden);
    ln_package_close(&f->m);
}

/* Calls fn for every model; `adapted`: for those that have an adapted.safetensors. LN_FAMILY=TEXT: of those
 * whose name has that text in it. Under a sanitizer, which takes fifty times as long, every fifth model; in
 * .ci/run every third (test_golden has all there). */
static inline void each_family(void (*fn)(family_model *f), bool adapted) {
    const char *other = getenv("LN_GOLDEN"), *folder = other ? other : LN_ROOT "/tests/golden/families";
    const char *only = getenv("LN_FAMILY");
    const size_t step = only || other ? 1 : getenv("LN_SANITIZED") ? 5 : (size_t)fewer(1, 3);
    char index_file[600];
    json_t *index;
    size_t i, n = 0;
    const json_t *row;
    (void)snprintf(index_file, sizeof index_file, "%s/index.json", folder);
    OK(ln_json_load_file(&index, index_file, 1 << 20, err));
    json_array_foreach(index, i, row) {
        family_model f;
        if (i % step != 0) continue;
        if (only && !strstr(json_string_value(json_object_get(row, "dir")), only)) continue;
        family_open(&f, folder, row);
        const bool lacks = device_lacks(test_device(), f.m), asked = !lacks && (f.is_adapted || !adapted);
        if (lacks) print_message("SKIP: %s: the device has no kernels for it\n", f.name);
        else if (!asked)
            print_message("SKIP: %s has no adapted.safetensors (tools/golden_adapted.py)\n", f.name);
        if (asked) fn(&f), n++;
        family_close(&f);
    }
    assert_true(n >= (other || only ? 1 : 20 / step));
    print_message("%zu models\n", n);
    json_decref(index);
}

/* An engine of a package for texts of these models. */
static inline ln_eng *family_engine(ln_package *m, ln_device device, ln_numerics numerics, int threads,
                                    int seqs) {
    ln_run_options r = test_options(m, device, threads, FAMILY_MOST, seqs);
    ln_eng *e;
    r.numerics = numerics, r.n_ctx = FAMILY_MOST + 16, r.page_len = 32, r.n_logits = FAMILY_MOST;
    OK(ln_eng_open_with(&e, m, &r, err));
    return e;
}

#endif
