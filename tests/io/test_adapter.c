/* Adapters of PEFT, mlx-lm and go-mlx: what the programs themselves add to a matrix (tests/golden/adapters,
 * made by tools/golden_adapters.py), and every mismatch rejected by name. */
/* run: quick */
#include "../base/cm.h"

#include "base/file.h"
#include "io/adapter.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOLDEN LN_ROOT "/tests/golden/adapters/"

/* ---- golden ---- */

/* The bound of a sum of `rank` products in f32, by the largest magnitude that can occur. */
static void check_delta(const char *name, const ln_adapter_file *a, const ln_tensor *want) {
    const ln_adapter_module *m = NULL;
    for (size_t i = 0; i < a->n && !m; i++)
        if (strlen(a->modules[i].path) == want->name_bytes &&
            memcmp(a->modules[i].path, want->name, want->name_bytes) == 0)
            m = &a->modules[i];
    if (!m) fail_msg("%s: no module %.*s", name, (int)want->name_bytes, want->name);
    assert_int_equal(want->dims[0], m->n_out);
    assert_int_equal(want->dims[1], m->n_in);
    float *A = ln_zalloc((size_t)(m->rank * m->n_in), sizeof *A),
          *B = ln_zalloc((size_t)(m->rank * m->n_out), sizeof *B);
    ln_adapter_file_read(a, m, A, B);
    for (int64_t o = 0; o < m->n_out; o++)
        for (int64_t i = 0; i < m->n_in; i++) {
            double sum = 0, most = 0;
            float got;
            for (int64_t r = 0; r < m->rank; r++) {
                const double x = m->scale * (double)B[o * m->rank + r] * (double)A[r * m->n_in + i];
                sum += x;
                most += fabs(x);
            }
            memcpy(&got, want->data + 4 * (o * m->n_in + i), sizeof got);
            const double bound =
                (strcmp(name, "peft-bf16") ? 0x1p-23 * (double)(m->rank + 2) : 0x1p-7) * most;
            if (!(fabs((double)got - sum) <= bound))
                fail_msg("%s: %s[%lld,%lld]: %.9g, expected %.9g", name, m->path, (long long)o, (long long)i,
                         sum, (double)got);
        }
    ln_free(A), ln_free(B);
}

static void what_the_programs_add(void **state) {
    (void)state;
    static const struct {
        const char *name;
        ln_adapter_layout layout;
        size_t n;
    } cases[] = {{"peft-default", LN_ADAPTER_PEFT, 4}, {"peft-rslora", LN_ADAPTER_PEFT, 14},
                 {"peft-bf16", LN_ADAPTER_PEFT, 4},    {"mlx", LN_ADAPTER_MLX_LM, 6},
                 {"mlx-last", LN_ADAPTER_MLX_LM, 7},   {"go-mlx", LN_ADAPTER_GO_MLX, 4}};
    char seen[LN_COUNT(cases)][LN_SHA256_HEX];
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        char path[256];
        ln_adapter_file *a;
        ln_tensors deltas;
        ln_error err = {0};
        (void)snprintf(path, sizeof path, GOLDEN "%s", cases[i].name);
        if (ln_adapter_file_open(&a, path, &err) != LN_OK) fail_msg("%s: %s", cases[i].name, err.message);
        assert_int_equal(a->layout, cases[i].layout);
        assert_int_equal(a->n, cases[i].n);
        (void)snprintf(path, sizeof path, GOLDEN "%s/delta.safetensors", cases[i].name);
        assert_int_equal(ln_tensors_open_file(&deltas, path, NULL), LN_OK);
        assert_true(deltas.n > 0);
        for (size_t k = 0; k < deltas.n; k++) check_delta(cases[i].name, a, &deltas.items[k]);
        ln_tensors_close(&deltas);
        assert_int_equal(ln_adapter_file_digest(a, seen[i], NULL), LN_OK);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(seen[i], seen[k]);
        ln_adapter_file_close(&a);
        ln_adapter_file_close(&a);
    }
}

/* ---- made adapters ---- */

static char dir[64];

typedef struct made {
    const char *name;
    int64_t dims[3];
    int n_dims; /* 0: 2 */
    ln_st_dtype dtype;
} made;

static void put_file(const char *leaf, const void *data, size_t bytes) {
    char path[200];
    (void)snprintf(path, sizeof path, "%s/%s", dir, leaf);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
}

static void put_tensors(const char *leaf, const made *t, size_t n) {
    ln_tensor_spec specs[8] = {{0}};
    ln_str s = {0};
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        specs[i] =
            (ln_tensor_spec){.name = t[i].name, .dtype = t[i].dtype, .n_dims = t[i].n_dims ? t[i].n_dims : 2};
        size_t one = t[i].dtype == LN_ST_F64 ? 8 : t[i].dtype == LN_ST_F32 ? 4 : 2;
        for (int d = 0; d < specs[i].n_dims; d++) {
            specs[i].dims[d] = t[i].dims[d];
            one *= (size_t)t[i].dims[d];
        }
        bytes += one;
    }
    assert_int_equal(ln_tensors_header(&s, specs, n, NULL), LN_OK);
    for (size_t i = 0; i < bytes; i++) ln_str_add(&s, "", 1);
    put_file(leaf, s.data, s.len);
    ln_str_free(&s);
}

static void clear(void) {
    static const char *const leaves[] = {"adapter_config.json",  "adapter_model.safetensors",
                                         "adapters.safetensors", "adapter.safetensors",
                                         "other.safetensors",    "adapter_model.bin"};
    char path[200];
    for (size_t i = 0; i < LN_COUNT(leaves); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, leaves[i]);
        (void)unlink(path);
    }
}

#define Q "layers.0.self_attn.q_proj"
#define PEFT_A                                                  \
    {                                                           \
        "base_model.model.model." Q ".lora_A.weight", { 4, 16 } \
    }
#define PEFT_B                                                  \
    {                                                           \
        "base_model.model.model." Q ".lora_B.weight", { 16, 4 } \
    }
#define DORA_C    PEFT_C ",\"use_dora\":true"
#define EXPERTS_C DORA_C ",\"target_parameters\":[\"experts.up\"]"
#define PEFT_M_OF(N) \
    { "base_model.model.model." Q ".lora_magnitude_vector", {N}, 1 }
#define PEFT_M PEFT_M_OF(16)
#define PEFT_M_WEIGHT \
    { "base_model.model.model." Q ".lora_magnitude_vector.weight", {16}, 1 }
#define MLX_M \
    { "model." Q ".m", {16}, 1 }
#define PEFT_Q "base_model.model.model." Q
#define PEFT_BIAS \
    { PEFT_Q ".bias", {16}, 1 }
#define MLX_A                           \
    {                                   \
        "model." Q ".lora_a", { 16, 4 } \
    }
#define MLX_B                           \
    {                                   \
        "model." Q ".lora_b", { 4, 16 } \
    }
#define GO_A                   \
    {                          \
        Q ".lora_a", { 4, 16 } \
    }
#define GO_B                   \
    {                          \
        Q ".lora_b", { 16, 4 } \
    }
#define TOWER    "base_model.model.model.vision_tower.encoder.layers.0.self_attn.q_proj"
#define PEFT_C   "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8"
#define MLX_DORA "{\"fine_tune_type\":\"dora\",\"lora_parameters\":{\"rank\":4,\"scale\":2}}"
#define MLX_C    "{\"fine_tune_type\":\"lora\",\"num_layers\":-1,\"lora_parameters\":{\"rank\":4,\"scale\":2"

typedef struct refused {
    const char *config, *leaf, *word;
    ln_status status;
    made t[4];
    size_t n;
} refused;

static const char peft_file[] = "adapter_model.safetensors", mlx_file[] = "adapters.safetensors",
                  go_file[] = "adapter.safetensors";

static const refused cases[] = {
    /* what is well */
    {PEFT_C ",\"rank_pattern\":{\".*q_proj\":4,\"q_proj\":5}}", peft_file, NULL, LN_OK, {PEFT_A, PEFT_B}, 2},
    {PEFT_C ",\"alpha_pattern\":{\"^layers\":1,\"(q|v)_proj\":8}}",
     peft_file,
     NULL,
     LN_OK,
     {PEFT_A, PEFT_B},
     2},
    {PEFT_C ",\"target_modules\":\"all-linear\"}", peft_file, NULL, LN_OK, {PEFT_A, PEFT_B}, 2},
    {PEFT_C ",\"bias\":\"all\"}", peft_file, NULL, LN_OK, {PEFT_A, PEFT_B, PEFT_BIAS}, 3},
    {PEFT_C ",\"bias\":\"lora_only\"}",
     peft_file,
     NULL,
     LN_OK,
     {PEFT_A, PEFT_B, {PEFT_Q ".base_layer.bias", {16}, 1}},
     3},
    {PEFT_C ",\"bias\":\"all\"}", peft_file, NULL, LN_OK, {PEFT_A, PEFT_B}, 2},
    {PEFT_C ",\"lora_bias\":true}",
     peft_file,
     NULL,
     LN_OK,
     {PEFT_A, PEFT_B, {PEFT_Q ".lora_B.bias", {16}, 1}},
     3},
    {PEFT_C "}", peft_file, NULL, LN_OK, {PEFT_A, PEFT_B}, 2},
    {DORA_C "}", peft_file, NULL, LN_OK, {PEFT_A, PEFT_B, PEFT_M}, 3},
    {DORA_C "}", peft_file, NULL, LN_OK, {PEFT_A, PEFT_B, PEFT_M_WEIGHT}, 3},
    {MLX_DORA, mlx_file, NULL, LN_OK, {MLX_A, MLX_B, MLX_M}, 3},
    {PEFT_C ",\"target_modules\":\".*q_proj\"}", peft_file, NULL, LN_OK, {PEFT_A, PEFT_B}, 2},
    {PEFT_C ",\"target_modules\":[\"q_proj\"],\"bias\":\"none\",\"use_dora\":false}",
     peft_file,
     NULL,
     LN_OK,
     {PEFT_A, PEFT_B},
     2},
    {MLX_C "}}", mlx_file, NULL, LN_OK, {MLX_A, MLX_B}, 2},
    {"{\"rank\":4}", go_file, NULL, LN_OK, {GO_A, GO_B}, 2},
    {"{\"rank\":4,\"alpha\":0}", "other.safetensors", NULL, LN_OK, {GO_A, GO_B}, 2},
    {PEFT_C "}",
     peft_file,
     NULL,
     LN_OK,
     {{"base_model.model.model.language_model." Q ".lora_A.weight", {4, 16}},
      {"base_model.model.model.language_model." Q ".lora_B.weight", {16, 4}}},
     2},
    {MLX_C "}}",
     mlx_file,
     NULL,
     LN_OK,
     {{"language_model.model." Q ".lora_a", {16, 4}}, {"language_model.model." Q ".lora_b", {4, 16}}},
     2},
    {MLX_C "}}",
     mlx_file,
     NULL,
     LN_OK,
     {{"model." Q ".lora_a", {16, 4}, 2, LN_ST_BF16}, {"model." Q ".lora_b", {4, 16}, 2, LN_ST_F16}},
     2},
    {PEFT_C ",\"init_lora_weights\":\"gaussian\",\"use_rslora\":null,\"target_modules\":null}",
     peft_file,
     NULL,
     LN_OK,
     {PEFT_A, PEFT_B},
     2},
    {PEFT_C "}", peft_file, NULL, LN_OK, {PEFT_A, PEFT_B, {TOWER ".lora_A.weight", {9, 3, 2}, 3}}, 3},
    {MLX_C ",\"keys\":[\"model." Q "\"]}}", mlx_file, NULL, LN_OK, {MLX_A, MLX_B}, 2},
    /* files */
    {NULL, peft_file, "adapter_config.json", LN_EIO, {PEFT_A, PEFT_B}, 2},
    {PEFT_C "}",
     mlx_file,
     "an adapter of PEFT, which needs adapter_model.safetensors",
     LN_EIO,
     {PEFT_A, PEFT_B},
     2},
    {MLX_C "}}",
     peft_file,
     "an adapter of mlx-lm, which needs adapters.safetensors",
     LN_EIO,
     {MLX_A, MLX_B},
     2},
    {PEFT_C "}", "adapter_model.bin", "torch.load('adapter_model.bin'", LN_EIO, {PEFT_A, PEFT_B}, 2},
    {PEFT_C "}", peft_file, "no tensors", LN_EINVALID, {PEFT_A}, 0},
    {"[]", peft_file, "expected a JSON object", LN_EINVALID, {PEFT_A, PEFT_B}, 2},
    {"{\"r\":4}", go_file, "r without peft_type", LN_EINVALID, {GO_A, GO_B}, 2},
    {PEFT_C ",\"lora_parameters\":{}}", peft_file, "one of the two", LN_EINVALID, {PEFT_A, PEFT_B}, 2},
    /* halves, names */
    {PEFT_C "}",
     peft_file,
     "q_proj.lora_A.weight: its other half, .lora_B.weight, is missing",
     LN_EINVALID,
     {PEFT_A},
     1},
    {PEFT_C "}",
     peft_file,
     "q_proj.lora_B.weight: its other half, .lora_A.weight, is missing",
     LN_EINVALID,
     {PEFT_B},
     1},
    {PEFT_C "}",
     peft_file,
     "modules_to_save of adapter_config.json does not name it",
     LN_EINVALID,
     {PEFT_A, PEFT_B, {"base_model.model.score.weight", {4, 4}}},
     3},
    {PEFT_C "}", peft_file, "begins with base_model.model.", LN_EINVALID, {{Q ".lora_A.weight", {4, 16}}}, 1},
    {MLX_C "}}", mlx_file, "as mlx-lm writes it", LN_EINVALID, {PEFT_A, PEFT_B}, 2},
    {"{\"rank\":4}", go_file, "occurs twice", LN_EINVALID, {GO_A, {"model." Q ".lora_a", {4, 16}}, GO_B}, 3},
    {PEFT_C "}", peft_file, "does not say DoRA", LN_EINVALID, {PEFT_A, PEFT_B, PEFT_M}, 3},
    {MLX_C "}}", mlx_file, "does not say DoRA", LN_EINVALID, {MLX_A, MLX_B, MLX_M}, 3},
    {DORA_C "}", peft_file, "magnitudes of its module are missing", LN_EINVALID, {PEFT_A, PEFT_B}, 2},
    {DORA_C "}", peft_file, ".lora_A.weight, is missing", LN_EINVALID, {PEFT_M}, 1},
    {DORA_C "}", peft_file, "for each output", LN_EINVALID, {PEFT_A, PEFT_B, PEFT_M_OF(4)}, 3},
    {DORA_C ",\"lora_bias\":true}", peft_file, "lora_bias", LN_EINVALID, {PEFT_A, PEFT_B}, 2},
    {EXPERTS_C "}", peft_file, "DoRA on experts", LN_EUNSUPPORTED, {PEFT_A, PEFT_B, PEFT_M}, 3},
    {PEFT_C "}",
     peft_file,
     "stores [r,in] and [out,r] of rank 4",
     LN_EINVALID,
     {{"base_model.model.model." Q ".lora_A.weight", {16, 4}}, PEFT_B},
     2},
    {"{\"peft_type\":\"LORA\",\"r\":8}", peft_file, "rank 8", LN_EINVALID, {PEFT_A, PEFT_B}, 2},
    {PEFT_C ",\"rank_pattern\":{\"q_proj\":2}}", peft_file, "rank 2", LN_EINVALID, {PEFT_A, PEFT_B}, 2},
    {MLX_C "}}",
     mlx_file,
     "stores [in,r] and [r,out] of rank 4",
     LN_EINVALID,
     {{"model." Q ".lora_a", {4, 16}}, {"model." Q ".lora_b", {16, 4}}},
     2},
    {"{\"rank\":16}", go_file, "rank 16", LN_EINVALID, {GO_A, GO_B}, 2},
    {PEFT_C "}",
     peft_file,
     "A is [4,16] and B is [16,5]",
     LN_EINVALID,
     {PEFT_A, {"base_model.model.model." Q ".lora_B.weight", {16, 5}}},
     2},
    {MLX_C "}}", /* of two experts: whether the model has them is decided when the adapter meets it */
     mlx_file,
     NULL,
     LN_OK,
     {{"model." Q ".lora_a", {2, 4, 16}, 3}, {"model." Q ".lora_b", {2, 16, 4}, 3}},
     2},
    {MLX_C "}}",
     mlx_file,
     "A has 2 experts and B has 3",
     LN_EINVALID,
     {{"model." Q ".lora_a", {2, 4, 16}, 3}, {"model." Q ".lora_b", {3, 16, 4}, 3}},
     2},
    {PEFT_C "}",
     peft_file,
     "f32, bf16 or f16",
     LN_EUNSUPPORTED,
     {{"base_model.model.model." Q ".lora_A.weight", {4, 16}, 2, LN_ST_F64}, PEFT_B},
     2},
    /* the configuration */
    {PEFT_C ",\"target_modules\":[\"k_proj\"]}",
     peft_file,
     "not among those that it names",
     LN_EINVALID,
     {PEFT_A, PEFT_B},
     2},
    {PEFT_C ",\"target_modules\":[\"proj\"]}",
     peft_file,
     "not among those that it names",
     LN_EINVALID,
     {PEFT_A, PEFT_B},
     2},
    {MLX_C ",\"keys\":[\"mlp.down_proj\"]}}",
     mlx_file,
     "not among those that it names",
     LN_EINVALID,
     {MLX_A, MLX_B},
     2},
    {PEFT_C ",\"use_dora\":1}", peft_file, "use_dora", LN_EINVALID, {PEFT_A, PEFT_B}, 2},
    {PEFT_C ",\"bias\":\"some\"}", peft_file, "all and lora_only", LN_EUNSUPPORTED, {PEFT_A, PEFT_B}, 2},
    {PEFT_C "}", peft_file, "says of none", LN_EINVALID, {PEFT_A, PEFT_B, PEFT_BIAS}, 3},
    {PEFT_C ",\"bias\":\"all\"}",
     peft_file,
     "for each output",
     LN_EINVALID,
     {PEFT_A, PEFT_B, {PEFT_Q ".bias", {4}, 1}},
     3},
    {PEFT_C ",\"bias\":\"all\"}", peft_file, "no module has", LN_EINVALID, {PEFT_BIAS}, 1},
    {PEFT_C ",\"bias\":\"all\"}",
     peft_file,
     "occurs twice",
     LN_EINVALID,
     {PEFT_A, PEFT_B, PEFT_BIAS, {PEFT_Q ".base_layer.bias", {16}, 1}},
     4},
    {PEFT_C ",\"lora_bias\":true}", peft_file, "lora_B.bias is missing", LN_EINVALID, {PEFT_A, PEFT_B}, 2},
    {PEFT_C ",\"lora_bias\":true}",
     peft_file,
     "other half",
     LN_EINVALID,
     {{PEFT_Q ".lora_B.bias", {16}, 1}},
     1},
    {PEFT_C ",\"target_modules\":\"q_proj\"}",
     peft_file,
     "not among those that it names",
     LN_EINVALID,
     {PEFT_A, PEFT_B},
     2},
    {PEFT_C ",\"target_modules\":\".*(q_proj\"}",
     peft_file,
     "expected a regular expression",
     LN_EINVALID,
     {PEFT_A, PEFT_B},
     2},
    {PEFT_C ",\"target_modules\":\"(?:[a-z0-9._]+)+[^a-z0-9._]\"}",
     peft_file,
     "takes too long",
     LN_EINVALID,
     {PEFT_A, PEFT_B},
     2},
    {PEFT_C ",\"rank_pattern\":{\"layers\\\\.[1-9].*\":3,\"q_proj$\":2}}",
     peft_file,
     "rank 2",
     LN_EINVALID,
     {PEFT_A, PEFT_B},
     2},
    {PEFT_C ",\"rank_pattern\":{\"[\":2}}",
     peft_file,
     "rank_pattern: expected a regular expression",
     LN_EINVALID,
     {PEFT_A, PEFT_B},
     2},
    {PEFT_C ",\"modules_to_save\":\"lm_head\"}",
     peft_file,
     "modules_to_save: found",
     LN_EINVALID,
     {PEFT_A, PEFT_B},
     2},
    {PEFT_C ",\"fan_in_fan_out\":true}", peft_file, "fan_in_fan_out", LN_EUNSUPPORTED, {PEFT_A, PEFT_B}, 2},
    {PEFT_C ",\"init_lora_weights\":\"pissa_niter_16\"}",
     peft_file,
     "init_lora_weights",
     LN_EUNSUPPORTED,
     {PEFT_A, PEFT_B},
     2},
    {PEFT_C ",\"use_something_new\":true}",
     peft_file,
     "use_something_new",
     LN_EUNSUPPORTED,
     {PEFT_A, PEFT_B},
     2},
    {PEFT_C ",\"alpha_pattern\":{\"q_proj\":null}}",
     peft_file,
     "alpha_pattern: found null",
     LN_EINVALID,
     {PEFT_A, PEFT_B},
     2},
    {PEFT_C ",\"init_lora_weights\":\"lora_ga\"}",
     peft_file,
     "init_lora_weights",
     LN_EUNSUPPORTED,
     {PEFT_A, PEFT_B},
     2},
    {PEFT_C ",\"use_rslora\":\"true\"}",
     peft_file,
     "use_rslora: found \"true\"",
     LN_EINVALID,
     {PEFT_A, PEFT_B},
     2},
    {PEFT_C ",\"lora_bias\":1}", peft_file, "lora_bias: found 1", LN_EINVALID, {PEFT_A, PEFT_B}, 2},
    {PEFT_C ",\"target_modules\":[\"q_proj\",7]}",
     peft_file,
     "target_modules: found 7",
     LN_EINVALID,
     {PEFT_A, PEFT_B},
     2},
    {PEFT_C ",\"target_modules\":{\"q_proj\":1}}",
     peft_file,
     "target_modules: found",
     LN_EINVALID,
     {PEFT_A, PEFT_B},
     2},
    {MLX_C ",\"keys\":\"q_proj\"}}", mlx_file, "lora_parameters.keys: found", LN_EINVALID, {MLX_A, MLX_B}, 2},
    {"{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":null}",
     peft_file,
     "lora_alpha: found null",
     LN_EINVALID,
     {PEFT_A, PEFT_B},
     2},
    {"{\"fine_tune_type\":1,\"lora_parameters\":{\"rank\":4,\"scale\":2}}",
     mlx_file,
     "fine_tune_type: found 1",
     LN_EUNSUPPORTED,
     {MLX_A, MLX_B},
     2},
    {PEFT_C "}",
     peft_file,
     "does not concern texts",
     LN_EINVALID,
     {{TOWER ".lora_A.weight", {4, 16}}, {TOWER ".lora_B.weight", {16, 4}}},
     2},
    {MLX_C "}}",
     mlx_file,
     "embedding",
     LN_EUNSUPPORTED,
     {{"model.embed_tokens.lora_a", {16, 4}}, {"model.embed_tokens.lora_b", {4, 16}}},
     2},
    {"{\"peft_type\":\"LOHA\",\"r\":4}",
     peft_file,
     "found \"LOHA\"; linnet applies LORA; if PEFT can merge",
     LN_EUNSUPPORTED,
     {PEFT_A, PEFT_B},
     2},
    {"{\"peft_type\":\"LORA\",\"r\":0}", peft_file, "r: found 0", LN_EINVALID, {PEFT_A, PEFT_B}, 2},
    {"{\"peft_type\":\"LORA\",\"r\":\"4\"}", peft_file, "r: found", LN_EINVALID, {PEFT_A, PEFT_B}, 2},
    {"{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":\"x\"}",
     peft_file,
     "lora_alpha",
     LN_EINVALID,
     {PEFT_A, PEFT_B},
     2},
    {"{\"fine_tune_type\":\"loha\",\"lora_parameters\":{}}",
     mlx_file,
     "fine_tune_type",
     LN_EUNSUPPORTED,
     {MLX_A, MLX_B},
     2},
    {"{\"fine_tune_type\":\"full\"}", mlx_file, "fine_tune_type", LN_EUNSUPPORTED, {MLX_A, MLX_B}, 2},
    {"{\"fine_tune_type\":\"lora\"}", mlx_file, "lora_parameters", LN_EINVALID, {MLX_A, MLX_B}, 2},
    {"{\"lora_parameters\":{\"rank\":4}}", mlx_file, "lora_parameters.scale", LN_EINVALID, {MLX_A, MLX_B}, 2},
    {"{\"lora_parameters\":{\"scale\":4}}", mlx_file, "rank", LN_EINVALID, {MLX_A, MLX_B}, 2},
};

static void every_mismatch_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        const refused *c = &cases[i];
        ln_adapter_file *a = NULL;
        ln_error err = {0};
        const uint64_t bytes = ln_mem_bytes();
        clear();
        if (c->config) put_file("adapter_config.json", c->config, strlen(c->config));
        put_tensors(c->leaf, c->t, c->n);
        const ln_status st = ln_adapter_file_open(&a, dir, &err);
        if (st != c->status || (c->word && !strstr(err.message, c->word)))
            fail_msg("case %zu (%s): status %d, expected %d with '%s': %s", i, c->config ? c->config : "none",
                     st, c->status, c->word ? c->word : "", err.message);
        if (st == LN_OK) {
            assert_int_equal(a->n, 1);
            assert_string_equal(a->modules[0].path, Q);
            assert_int_equal(a->modules[0].rank, 4);
            assert_int_equal(a->modules[0].n_in, 16);
            assert_true(a->modules[0].scale == 2);
        }
        ln_adapter_file_close(&a);
        assert_int_equal(ln_mem_bytes(), bytes);
    }
    clear();
    put_file("adapter_config.json", "{\"rank\":4}", 10);
    put_tensors("other.safetensors", cases[4].t, 2);
    put_tensors("adapters.safetensors", cases[4].t, 2);
    ln_adapter_file *a = NULL;
    ln_error err = {0};
    assert_int_equal(ln_adapter_file_open(&a, dir, &err), LN_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "expected one file of tensors"));
    assert_int_equal(ln_adapter_file_open(&a, "/nonexistent", &err), LN_EIO);
    assert_int_equal(ln_adapter_file_open(&a, LN_ROOT "/README.md", &err), LN_EINVALID);
    assert_int_equal(ln_adapter_file_open(&a, LN_ROOT "/tests/golden/gguf/gemma2-base-bf16.gguf", &err),
                     LN_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "expected LoRA (general.type adapter, adapter.type lora), found "
                                        "another GGUF file"));
    assert_int_equal(ln_adapter_file_open(&a, LN_ROOT "/models/tiny", &err), LN_EIO);
    assert_non_null(strstr(err.message, "this one has config.json, as a model has"));
    assert_int_equal(ln_adapter_file_open(&a, LN_ROOT "/tests", &err), LN_EIO);
    assert_non_null(strstr(err.message, "such as that of a checkpoint"));
}

static void failing_allocations(void **state) {
    (void)state;
    const uint64_t bytes = ln_mem_bytes();
    bool done = false;
    for (int64_t n = 1; !done; n++) {
        ln_adapter_file *a = NULL;
        char digest[LN_SHA256_HEX];
        ln_mem_fail_at(n, false);
        ln_status st = ln_adapter_file_open(&a, GOLDEN "peft-rslora", NULL);
        if (st == LN_OK) st = ln_adapter_file_digest(a, digest, NULL);
        (void)ln_mem_fail_at(0, false);
        if (st != LN_OK && st != LN_EMEMORY) fail_msg("allocation %lld: status %d", (long long)n, st);
        done = st == LN_OK;
        ln_adapter_file_close(&a);
        assert_int_equal(ln_mem_bytes(), bytes);
    }
}

static int make_dir(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/test_adapter_XXXXXX");
    return mkdtemp(dir) ? 0 : 1;
}
static int remove_dir(void **state) {
    (void)state;
    clear();
    return rmdir(dir);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_the_programs_add),
                                       cmocka_unit_test(every_mismatch_by_name),
                                       cmocka_unit_test(failing_allocations)};
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* for tools/mutants */
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
