/* Adapters of PEFT for modules that are no plain matrices of layers, on golden models: routers and parameters
 * of experts with the patterns of ranks that PEFT writes when it converts names of single experts, the gate
 * of a shared expert, and LoRA on a tied head above rows of trained tokens. Logits are those of peft 0.21.2
 * in f32; values of adapters are those of tools/golden_adapted.py. */
/* run: quick */
#include "../common.h"
#include "../test_dir.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { N_IDS = 20, N_LOGITS = 8, MOST = 32 };
typedef struct module_case {
    const char *model, *config;
    int layers;             /* with {} in names */
    const char *tensors[8]; /* "NAME rows columns" without base_model.model. */
    float logits[N_LOGITS]; /* the first of the row after ids 256, 1, 2, ... 19 */
} module_case;
static const module_case cases[] = {
    {"families/mixtral-base-bf16",
     "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 3, \"rank_pattern\": {\".*\\\\.gate_up_proj\": 4}, "
     "\"alpha_pattern\": {\".*\\\\.gate_up_proj\": 6}, \"target_modules\": [], "
     "\"target_parameters\": [\"gate.weight\", \"down_proj\", \"gate_up_proj\"]}",
     3,
     {"model.layers.{}.mlp.experts.base_layer.lora_A.weight 16 32",
      "model.layers.{}.mlp.experts.base_layer.lora_B.weight 80 16",
      "model.layers.{}.mlp.experts.lora_A.weight 8 40", "model.layers.{}.mlp.experts.lora_B.weight 32 8",
      "model.layers.{}.mlp.gate.lora_A.weight 2 32", "model.layers.{}.mlp.gate.lora_B.weight 4 2"},
     {2.05781f, 1.12751f, -1.6914f, 0.35983f, -0.10198f, -1.49752f, -2.0143f, 0.22772f}},
    {"families/qwen3_5_moe_text-bias-bf16",
     "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 3, \"target_modules\": [\"shared_expert_gate\"]}",
     3,
     {"model.layers.{}.mlp.shared_expert_gate.lora_A.weight 2 32", "model.layers.{}.mlp.shared_expert_gate."
                                                                   "lora_B.weight 1 2"},
     {-2.26459f, -1.76997f, -1.25634f, -3.24794f, 0.12017f, -2.70072f, -3.21842f, -0.44357f}},
    {"gemma3-text-f32",
     "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 3, \"target_modules\": [\"lm_head\"], "
     "\"trainable_token_indices\": [1, 5, 19]}",
     1,
     {"lm_head.lora_A.weight 2 24", "lm_head.lora_B.weight 265 2",
      "model.embed_tokens.token_adapter.trainable_tokens_delta 3 24"},
     {-2.80766f, 0.6627f, 3.64182f, 3.16005f, -1.23568f, -0.96654f, 2.47297f, 2.06026f}},
};

static void add_values(ln_str *s, const ln_tensor_spec *t) {
    uint32_t x = 2166136261u;
    for (const char *c = t->name; *c; c++) x = (x ^ (uint8_t)*c) * 16777619u;
    for (int64_t i = 0; i < t->dims[0] * t->dims[1]; i++) {
        x = x * 1664525u + 1013904223u;
        const float value = (float)(((double)(x >> 16) - 32768) / 32768 * 0.3);
        ln_str_add(s, (const char *)&value, sizeof value);
    }
}

/* Lists the tensors of all layers; returns how many there are. */
static size_t list_tensors(const module_case *c, char names[MOST][160], ln_tensor_spec *specs) {
    size_t n = 0;
    for (int l = 0; l < c->layers; l++)
        for (size_t i = 0; i < LN_COUNT(c->tensors) && c->tensors[i]; i++, n++) {
            const char *text = c->tensors[i], *brace = strstr(text, "{}"), *end = strchr(text, ' ');
            long long rows, cols;
            assert_int_equal(sscanf(end, "%lld %lld", &rows, &cols), 2);
            if (brace)
                (void)snprintf(names[n], 160, "base_model.model.%.*s%d%.*s", (int)(brace - text), text, l,
                               (int)(end - brace - 2), brace + 2);
            else (void)snprintf(names[n], 160, "base_model.model.%.*s", (int)(end - text), text);
            specs[n] = (ln_tensor_spec){
                .name = names[n], .dtype = LN_ST_F32, .n_dims = 2, .dims = {(int64_t)rows, (int64_t)cols}};
        }
    return n;
}
static void write_adapter(const module_case *c) {
    static char names[MOST][160];
    ln_tensor_spec specs[MOST] = {{0}};
    const size_t n = list_tensors(c, names, specs);
    ln_str s = {0};
    OK(ln_tensors_header(&s, specs, n, err));
    for (size_t i = 0; i < n; i++) add_values(&s, &specs[i]);
    put("adapter_model.safetensors", s.data, s.len);
    put("adapter_config.json", c->config, strlen(c->config));
    ln_str_free(&s);
}

static void last_row(const char *path, float **out) {
    const ln_adapter_part part = {test_dir, 1};
    const ln_options o = {.size = sizeof o,
                          .numerics = LN_EXACT,
                          .n_threads = 1,
                          .n_ctx = 64,
                          .adapter = &part,
                          .n_adapter_parts = 1};
    int32_t ids[N_IDS] = {256};
    ln_package *m;
    ln_eng *e;
    for (int i = 1; i < N_IDS; i++) ids[i] = i;
    OK(ln_package_open(&m, path, &o, err));
    OK(ln_eng_open(&e, m, &o, err));
    *out = malloc((size_t)m->spec.V * sizeof **out);
    ln_seq *s = test_seq(e, N_IDS, N_IDS);
    const ln_batch_item item = {s, ids, N_IDS, LN_LOGITS_LAST};
    OK(ln_eng_step(e, &item, 1, err));
    OK(ln_run_logits(e->run, 0, *out, err));
    ln_seq_close(e, &s);
    ln_eng_close(&e);
    ln_package_close(&m);
}

static void logits_are_those_of_peft(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        char path[300];
        float *got = NULL;
        (void)snprintf(path, sizeof path, LN_ROOT "/tests/golden/%s", cases[i].model);
        write_adapter(&cases[i]);
        last_row(path, &got);
        for (int k = 0; k < N_LOGITS; k++)
            if (!(fabsf(got[k] - cases[i].logits[k]) < 4e-4f)) /* 2e-4 of the deviation, 2 */
                fail_msg("%s: logit %d: expected %g, found %g", cases[i].model, k, (double)cases[i].logits[k],
                         (double)got[k]);
        free(got);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(logits_are_those_of_peft)};
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
