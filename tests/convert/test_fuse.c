/* ln_fuse: a fused weight is W + scale * B A, as the programs that wrote the golden adapters compute it;
 * everything else stays, and nothing remains after an error. */
/* run: quick */
#include "../common.h"
#include "../test_dir.h"

#include <dirent.h>
#include <math.h>
#include <string.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convert/convert.h"

#define BASE     LN_ROOT "/tests/golden/qwen2-f32"
#define ADAPTERS LN_ROOT "/tests/golden/adapters/"
static int entries(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}
static ln_fuse_options options(void) {
    ln_fuse_options o = ln_fuse_options_default();
    o.force = true;
    o.n_threads = 2;
    return o;
}

/* Writes an adapter's two files: random values, but `first`, unless it is 0, as the very first one. */
static void write_adapter(const char *name, const ln_tensor_spec *specs, size_t n, const char *config,
                          float first) {
    char path[100];
    ln_str s = {0};
    uint64_t seed = 5;
    mkdir(at(name), 0777);
    OK(ln_tensors_header(&s, specs, n, err));
    for (size_t i = 0; i < n; i++)
        for (int64_t k = 0; k < specs[i].dims[0] * specs[i].dims[1]; k++) {
            const float v = i == 0 && k == 0 && first != 0 ? first : 0.1f * test_normal(&seed);
            ln_str_add(&s, (const char *)&v, sizeof v);
        }
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", name);
    put(path, s.data, s.len);
    snprintf(path, sizeof path, "%s/adapter_config.json", name);
    put(path, config, strlen(config));
    ln_str_free(&s);
}

/* Writes an adapter of PEFT with rank 2 and scale 4 for q_proj [q,d] and down_proj [d,f] of layer 0. */
static void make_adapter(const char *name, int d, int q, int f, float first) {
    const ln_tensor_spec specs[] = {
        {"base_model.model.model.layers.0.mlp.down_proj.lora_A.weight", LN_ST_F32, 2, {2, f}},
        {"base_model.model.model.layers.0.mlp.down_proj.lora_B.weight", LN_ST_F32, 2, {d, 2}},
        {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", LN_ST_F32, 2, {2, d}},
        {"base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight", LN_ST_F32, 2, {q, 2}}};
    static const char config[] = "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":8,\"target_modules\":[\"q_"
                                 "proj\",\"down_proj\"]}";
    write_adapter(name, specs, LN_COUNT(specs), config, first);
}

static const ln_adapter_module *module_of(const ln_adapter_file *a, const char *tensor) {
    for (size_t i = 0; i < a->n; i++) {
        const char *found = strstr(tensor, a->modules[i].path);
        if (found && strcmp(found + strlen(a->modules[i].path), ".weight") == 0) return &a->modules[i];
    }
    return NULL;
}

/* The element [r, k] of scale * B A, in double. */
static const ln_adapter_module *held; /* whose matrices delta_at has read */
static double delta_at(const ln_adapter_file *a, const ln_adapter_module *m, double scale, int64_t r,
                       int64_t k) {
    static float A[1 << 16], B[1 << 16];
    double sum = 0;
    if (held != m) ln_adapter_file_read(a, m, A, B), held = m;
    for (int64_t i = 0; i < m->rank; i++) sum += (double)B[r * m->rank + i] * (double)A[i * m->n_in + k];
    return scale * m->scale * sum;
}

/* Compares all weights of a fused model: rounded once if the adapter has a module, else unchanged. */
static void check_fused(const char *base, const char *adapter, double scale, const char *fused) {
    ln_package *m, *f;
    ln_adapter_file *a;
    size_t n_changed = 0;
    held = NULL;
    const ln_options o = ln_options_default();
    OK(ln_package_open(&m, base, &o, err));
    OK(ln_package_open(&f, fused, &o, err));
    OK(ln_adapter_file_open(&a, adapter, err));
    assert_int_equal(m->weights.n, f->weights.n);
    assert_int_equal(f->weights.code.bits, 0);
    for (size_t i = 0; i < m->weights.n; i++) {
        const ln_weight *w = &m->weights.items[i], *x = &f->weights.items[i];
        const ln_adapter_module *mod = module_of(a, w->tensor->name);
        assert_int_equal(w->dtype, x->dtype);
        assert_string_equal(w->tensor->name, x->tensor->name);
        if (!mod && !w->scales) {
            assert_memory_equal(w->tensor->data, x->tensor->data, w->tensor->bytes);
            continue;
        }
        n_changed += mod != NULL;
        for (int64_t r = 0; r < w->d0; r++)
            for (int64_t k = 0; k < LN_MAX(w->d1, 1); k++) {
                float want = w->scales ? 0 : ln_num_load(w->tensor->data, w->dtype, r * LN_MAX(w->d1, 1) + k);
                uint8_t bytes[4];
                if (w->scales) {
                    const ln_groups code = ln_encoding_groups(w->enc);
                    const int64_t g = r * (w->d1 / code.group) + k / code.group;
                    const uint8_t *row = w->tensor->data + r * ln_affine_row_bytes(code, w->d1);
                    want =
                        ln_num_load(w->scales->data, w->dtype, g) * (float)ln_affine_code(row, code.bits, k) +
                        ln_num_load(w->biases->data, w->dtype, g);
                }
                if (mod) want = (float)((double)want + delta_at(a, mod, scale, r, k));
                ln_num_store(bytes, w->dtype, 0, want);
                assert_memory_equal(x->tensor->data + (r * LN_MAX(w->d1, 1) + k) * ln_dtype_bytes(w->dtype),
                                    bytes, (size_t)ln_dtype_bytes(w->dtype));
            }
    }
    assert_int_equal(n_changed, a->n);
    ln_adapter_file_close(&a);
    ln_package_close(&m);
    ln_package_close(&f);
}

/* The golden deltas: what peft, mlx-lm and go-mlx themselves add. */
static void check_delta(const char *adapter) {
    char path[300];
    ln_tensors d, base, fused;
    snprintf(path, sizeof path, "%s/delta.safetensors", adapter);
    OK(ln_tensors_open_file(&d, path, err));
    OK(ln_tensors_open(&base, BASE, false, err));
    OK(ln_tensors_open(&fused, at("f"), false, err));
    for (size_t i = 0; i < d.n; i++) {
        snprintf(path, sizeof path, "model.%.*s.weight", (int)d.items[i].name_bytes, d.items[i].name);
        const ln_tensor *w = ln_tensors_find(&base, path), *f = ln_tensors_find(&fused, path);
        assert_true(w && f);
        const double bound = strstr(adapter, "bf16") ? 0x1p-6 : 0x1p-20; /* deltas of the file are rounded */
        for (int64_t k = 0; k < (int64_t)(w->bytes / 4); k++) {
            const double delta = (double)ln_num_load(d.items[i].data, LN_F32, k),
                         got = (double)ln_num_load(f->data, LN_F32, k) -
                               (double)ln_num_load(w->data, LN_F32, k);
            assert_true(fabs(got - delta) <= bound * (1 + fabs(delta)));
        }
    }
    ln_tensors_close(&d), ln_tensors_close(&base), ln_tensors_close(&fused);
}

static void every_layout(void **state) {
    (void)state;
    static const char *const names[] = {"peft-default", "peft-rslora", "peft-bf16",
                                        "mlx",          "mlx-last",    "go-mlx"};
    for (size_t i = 0; i < LN_COUNT(names); i++) {
        char adapter[300];
        ln_fuse_options o = options();
        snprintf(adapter, sizeof adapter, ADAPTERS "%s", names[i]);
        OK(ln_fuse(BASE, adapter, at("f"), &o, NULL, NULL, NULL, err));
        check_fused(BASE, adapter, 1, at("f"));
        check_delta(adapter);
        o.scale = -0.25;
        OK(ln_fuse(BASE, adapter, at("f"), &o, NULL, NULL, NULL, err));
        check_fused(BASE, adapter, -0.25, at("f"));
    }
    assert_int_equal(entries(test_dir), 1);
    assert_true(ln_exists(at("f/tokenizer.json")) && ln_exists(at("f/config.json")) &&
                !ln_exists(at("f/model.safetensors.index.json")));
}

static void other_dtypes_and_quantised_bases(void **state) {
    (void)state;
    const ln_fuse_options o = options();
    make_adapter("a", 84, 84, 40, 0);
    OK(ln_fuse(LN_ROOT "/tests/golden/qwen2-bf16", at("a"), at("f"), &o, NULL, NULL, NULL, err));
    check_fused(LN_ROOT "/tests/golden/qwen2-bf16", at("a"), 1, at("f"));
    make_adapter("a", 64, 64, 96, 0);
    OK(ln_fuse(LN_ROOT "/tests/golden/quantised/qwen3-q8-g32-f16", at("a"), at("f"), &o, NULL, NULL, NULL,
               err));
    check_fused(LN_ROOT "/tests/golden/quantised/qwen3-q8-g32-f16", at("a"), 1, at("f"));
}

/* The bias of a fused model: that of the adapter in its place, by the factor of the scale, rounded once. */
static void check_biases(const char *base, const char *adapter, double scale, int n_expected) {
    static const char *const leaves[] = {"bias", "base_layer.bias", "lora_B.bias"};
    char path[400];
    ln_tensors b, f, a;
    int n = 0;
    OK(ln_tensors_open(&b, base, false, err));
    OK(ln_tensors_open(&f, at("f"), false, err));
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", adapter);
    OK(ln_tensors_open_file(&a, path, err));
    for (size_t i = 0; i < b.n; i++) {
        const ln_tensor *w = &b.items[i], *x = ln_tensors_find(&f, w->name), *v = NULL;
        const int module = (int)strlen(w->name) - (int)strlen("bias");
        int leaf = 0;
        if (module < 0 || strcmp(w->name + module, "bias") != 0) continue;
        for (; leaf < 3 && !v; leaf++) {
            snprintf(path, sizeof path, "base_model.model.%.*s%s", module, w->name, leaves[leaf]);
            v = ln_tensors_find(&a, path);
        }
        assert_non_null(x);
        n += v != NULL;
        for (int64_t k = 0; k < w->dims[0]; k++) {
            const ln_dtype type = w->dtype == LN_ST_F32 ? LN_F32 : LN_BF16;
            const double old = (double)ln_num_load(w->data, type, k),
                         new = v ? (double)ln_num_load(v->data, LN_F32, k) : old;
            uint8_t bytes[4]; /* the scale of make_bias_adapter is 4 */
            ln_num_store(bytes, type, 0, (float)(old + scale * (leaf == 3 && v ? 4 * new : new - old)));
            assert_memory_equal(x->data + k * ln_dtype_bytes(type), bytes, (size_t)ln_dtype_bytes(type));
        }
    }
    assert_int_equal(n, n_expected);
    ln_tensors_close(&b), ln_tensors_close(&f), ln_tensors_close(&a);
}

/* Writes an adapter of PEFT with lora_bias, rank 2 and scale 4, for q_proj [q,d] of layer 0. */
static void make_bias_adapter(const char *name, int d, int q) {
#define Q_PROJ "base_model.model.model.layers.0.self_attn.q_proj."
    const ln_tensor_spec specs[] = {{Q_PROJ "lora_A.weight", LN_ST_F32, 2, {2, d}},
                                    {Q_PROJ "lora_B.bias", LN_ST_F32, 1, {q, 1}},
                                    {Q_PROJ "lora_B.weight", LN_ST_F32, 2, {q, 2}}};
    static const char config[] = "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":8,\"lora_bias\":true,"
                                 "\"target_modules\":[\"q_proj\"]}";
    write_adapter(name, specs, LN_COUNT(specs), config, 0);
}

/* bias all and lora_only of PEFT (three layers), and lora_bias. */
static void biases(void **state) {
    (void)state;
    static const char *const names[] = {"llama-bias-all", "llama-bias-only"};
    const char *base = LN_ROOT "/tests/golden/llama-bias-bf16";
    ln_fuse_options o = options();
    for (int i = 0; i < 2; i++)
        for (int half = 0; half < 2; half++) {
            char adapter[300];
            snprintf(adapter, sizeof adapter, LN_ROOT "/tests/golden/lora/%s", names[i]);
            o.scale = half ? 0.5 : 1;
            OK(ln_fuse(base, adapter, at("f"), &o, NULL, NULL, NULL, err));
            check_biases(base, adapter, o.scale, i ? 6 : 21);
        }
    make_bias_adapter("b", 40, 40);
    o.scale = -0.75;
    OK(ln_fuse(BASE, at("b"), at("f"), &o, NULL, NULL, NULL, err));
    check_biases(BASE, at("b"), -0.75, 1);
    FAILS(LN_EUNSUPPORTED, "has a bias, and the model has none",
          ln_fuse(LN_ROOT "/tests/golden/llama-plain-f32", LN_ROOT "/tests/golden/lora/llama-lora-bias",
                  at("g"), &o, NULL, NULL, NULL, err));
}

/* A quantised result is what quantising the dense one gives, byte for byte. */
static void quantised_results(void **state) {
    (void)state;
    ln_fuse_options o = options();
    const ln_quantize_options q = {.size = sizeof q, .bits = 4, .group = 32, .force = true};
    ln_tensors x, y;
    ln_info info = {.size = sizeof info};
    OK(ln_show("tiny", NULL, &info, err));
    make_adapter("a", (int)info.width, info.n_heads * info.head_dim, (int)info.ffn_width, 0);
    OK(ln_fuse("tiny", at("a"), at("f"), &o, NULL, NULL, NULL, err));
    OK(ln_quantize(at("f"), at("q"), &q, NULL, NULL, err));
    o.bits = 4, o.group = 32;
    OK(ln_fuse("tiny", at("a"), at("f4"), &o, NULL, NULL, NULL, err));
    OK(ln_tensors_open(&x, at("q"), false, err));
    OK(ln_tensors_open(&y, at("f4"), false, err));
    assert_int_equal(x.n, y.n);
    for (size_t i = 0; i < x.n; i++) {
        assert_string_equal(x.items[i].name, y.items[i].name);
        assert_memory_equal(x.items[i].data, y.items[i].data, x.items[i].bytes);
    }
    ln_tensors_close(&x), ln_tensors_close(&y);
}

/* Tensors that linnet does not use are copied; several shards get an index. */
static void other_tensors_stay(void **state) {
    (void)state;
    ln_tensors base, f;
    ln_str s = {0};
    char *config;
    size_t bytes;
    const ln_fuse_options o = options();
    OK(ln_tensors_open(&base, BASE, false, err));
    ln_tensor_spec *specs = calloc(base.n + 2, sizeof *specs);
    for (size_t i = 0; i < base.n; i++) {
        specs[i] = (ln_tensor_spec){base.items[i].name, base.items[i].dtype, base.items[i].n_dims, {0}};
        memcpy(specs[i].dims, base.items[i].dims, sizeof specs[i].dims);
    }
    specs[base.n] = (ln_tensor_spec){"vision.patch", LN_ST_BF16, 3, {2, 3, 5}};
    specs[base.n + 1] = (ln_tensor_spec){"vision.ids", LN_ST_I64, 1, {3}};
    OK(ln_tensors_header(&s, specs, base.n + 2, err));
    for (size_t i = 0; i < base.n; i++) ln_str_add(&s, (const char *)base.items[i].data, base.items[i].bytes);
    for (int i = 0; i < 60 + 24; i++) ln_str_add(&s, (const char *)&i, 1);
    mkdir(at("m"), 0777);
    put("m/model.safetensors", s.data, s.len);
    static const char *const leaves[] = {"config.json", "tokenizer.json"};
    for (int i = 0; i < 2; i++) {
        char from[300], to[100];
        snprintf(from, sizeof from, BASE "/%s", leaves[i]);
        snprintf(to, sizeof to, "m/%s", leaves[i]);
        OK(ln_read_file(from, 64 << 20, &config, &bytes, err));
        put(to, config, bytes);
        ln_free(config);
    }
    put("m/preprocessor_config.json", "{}", 2);
    int n = 0;
    OK(ln_convert_fuse(at("m"), ADAPTERS "peft-default", at("f"), &o, 40000, NULL, NULL, &n, NULL, NULL,
                       err));
    check_fused(at("m"), ADAPTERS "peft-default", 1, at("f"));
    OK(ln_tensors_open(&f, at("f"), false, err));
    assert_true(f.n_files > 1 && f.n == base.n + 2);
    for (int i = 0; i < 2; i++) {
        const ln_tensor *t = ln_tensors_find(&f, specs[base.n + i].name);
        assert_true(t && t->dtype == specs[base.n + i].dtype && t->n_dims == specs[base.n + i].n_dims);
        assert_memory_equal(t->data, s.data + s.len - (i ? 24 : 84), i ? 24 : 60);
    }
    assert_true(ln_exists(at("f/preprocessor_config.json")));
    ln_tensors_close(&f), ln_tensors_close(&base), ln_str_free(&s), free(specs);
}

static ln_status refuse(void *user, const char *dir, ln_error *err) {
    assert_true(ln_exists(dir) && !ln_exists(user));
    return ln_fail(err, LN_EINTERNAL, "the check failed");
}

/* Begins to write a directory in a process of its own, which then dies, or with `stays` waits to be killed;
 * returns once the directory exists. */
static pid_t begin_to_write(const char *path, bool stays) {
    int ready[2];
    char c;
    assert_int_equal(pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        ln_out_dir o;
        char file[600];
        if (ln_out_dir_open(&o, path, true, NULL) != LN_OK) _exit(1);
        (void)snprintf(file, sizeof file, "%s/config.json", o.tmp);
        FILE *f = fopen(file, "w");
        if (!f || fclose(f) != 0 || write(ready[1], "", 1) != 1) _exit(1);
        if (stays) (void)pause();
        _exit(0);
    }
    assert_true(pid > 0 && read(ready[0], &c, 1) == 1);
    close(ready[0]), close(ready[1]);
    if (!stays) assert_int_equal(waitpid(pid, NULL, 0), pid);
    return pid;
}

/* A run that was killed leaves its temporary directory: the next one to the same target removes it, and
 * nothing else. */
static void a_killed_run_leaves_nothing(void **state) {
    (void)state;
    static const char *const others[] = {"into/out.tmp", "into/out.1-.tmp", "into/out2.1-1.tmp",
                                         "into/out.1-1.tmp.old", "into/out.1-1.tmp2"};
    const ln_fuse_options o = options();
    mkdir(at("into"), 0777);
    for (size_t i = 0; i < LN_COUNT(others); i++) assert_int_equal(mkdir(at(others[i]), 0777), 0);
    put("into/out.1-1.tmp", "a file", 6);
    assert_int_equal(symlink(at("into/out2.1-1.tmp"), at("into/out.2-1.tmp")), 0);
    const int before = entries(at("into"));
    (void)begin_to_write(at("into/out"), false);
    assert_int_equal(entries(at("into")), before + 1);
    const pid_t pid = begin_to_write(at("into/out"), true); /* removes the first, and is at work */
    assert_int_equal(entries(at("into")), before + 1);
    OK(ln_fuse(BASE, ADAPTERS "peft-default", at("into/out"), &o, NULL, NULL, NULL, err));
    assert_int_equal(entries(at("into")), before + 2);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    OK(ln_fuse(BASE, ADAPTERS "peft-default", at("into/out"), &o, NULL, NULL, NULL, err));
    assert_int_equal(entries(at("into")), before + 1); /* the others, and the result */
}

static void refusals(void **state) {
    (void)state;
    ln_fuse_options o = options();
    const char *good = ADAPTERS "peft-default";
    make_adapter("nan", 40, 40, 44, NAN);
    make_adapter("large", 40, 40, 44, 3e38f);
    make_adapter("other", 64, 64, 96, 0);
    const int before = entries(test_dir);
    int n = 0;
    FAILS(LN_ENUMERIC, "mlp.down_proj", ln_fuse(BASE, at("nan"), at("x"), &o, NULL, NULL, NULL, err));
    FAILS(LN_ENUMERIC, "no finite number",
          ln_fuse(BASE, at("large"), at("x"), &(ln_fuse_options){.size = sizeof o, .scale = 1e20}, NULL, NULL,
                  NULL, err));
    FAILS(LN_EINVALID, "another model", ln_fuse(BASE, at("other"), at("x"), &o, NULL, NULL, NULL, err));
    FAILS(LN_EIO, "no-adapter", ln_fuse(BASE, "/no-adapter", at("x"), &o, NULL, NULL, NULL, err));
    FAILS(LN_EUSAGE, "holds the model", ln_fuse(BASE, good, BASE, &o, NULL, NULL, NULL, err));
    FAILS(LN_EIO, "not a model's directory", ln_fuse(BASE, good, at("nan"), &o, NULL, NULL, NULL, err));
    FAILS(LN_EINTERNAL, "the check failed",
          ln_convert_fuse(BASE, good, at("x"), &o, 1 << 30, NULL, NULL, &n, refuse,
                          (void *)(uintptr_t)at("x"), err));
    o.scale = INFINITY;
    FAILS(LN_EUSAGE, "finite", ln_fuse(BASE, good, at("x"), &o, NULL, NULL, NULL, err));
    o.scale = 1, o.group = 32;
    FAILS(LN_EUSAGE, "groups", ln_fuse(BASE, good, at("x"), &o, NULL, NULL, NULL, err));
    o.bits = 7;
    FAILS(LN_EUSAGE, "found 7", ln_fuse(BASE, good, at("x"), &o, NULL, NULL, NULL, err));
    assert_int_equal(entries(test_dir), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout),
        cmocka_unit_test(other_dtypes_and_quantised_bases),
        cmocka_unit_test(biases),
        cmocka_unit_test(quantised_results),
        cmocka_unit_test(other_tensors_stay),
        cmocka_unit_test(a_killed_run_leaves_nothing),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
