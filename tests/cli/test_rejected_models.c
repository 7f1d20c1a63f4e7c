/* Directories that are no model for linnet: `show` and `run` reject each with the same message, which says
 * why and what it would need. The directories are those that people give: models of other kinds, formats of
 * other tools, adapters, pipelines. */
/* run: quick */
#include "spawn.h"

#define QWEN(more) "{\"model_type\":\"qwen3\",\"num_hidden_layers\":2" more "}"
#define QUANT(q)   QWEN(",\"quantization_config\":" q)

typedef struct model {
    const char *leaf, *text; /* a file of the directory */
    int code;
    const char *says, *needs;
} model;

static const model models[] = {
    {"config.json", "{\"model_type\":\"deepseek_v3\"}", 4, "model_type deepseek_v3 is not supported",
     "it needs latent attention (MLA)"},
    {"config.json", "{\"model_type\":\"mamba2\"}", 4, "model_type mamba2 is not supported",
     "it needs state-space layers"},
    {"config.json", "{\"model_type\":\"bert\"}", 4, "model_type bert is not supported",
     "an encoder, which predicts no next token"},
    {"config.json", "{\"model_type\":\"whisper\"}", 4, "model_type whisper", "an encoder of sound"},
    {"config.json", "{\"model_type\":\"another\"}", 4, "model_type another is not supported",
     "linnet knows apertus, arcee"},
    {"config.json", "{\"architectures\":[\"FooForCausalLM\"]}", 4, "names no model_type", "linnet knows"},
    {"config.json", "{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"mamba\"}}", 4,
     "text_config.model_type mamba", "expected mistral or ministral3"},
    {"config.json", QUANT("{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true}"), 4,
     "quant_method bitsandbytes is not supported", "linnet reads fp8, gptq, awq"},
    {"config.json", QUANT("{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":64,\"version\":\"gemv\"}"), 4,
     "quantization_config.version", "expected gemm"},
    {"config.json", QUANT("{\"quant_method\":\"compressed-tensors\",\"format\":\"marlin-24\"}"), 4,
     "quantization_config.format", "expected pack-quantized, int-quantized"},
    {"config.json", QWEN(",\"layer_types\":[\"chunked_attention\",\"full_attention\"]"), 4,
     "layer_types: chunked_attention", "linnet knows full_attention and sliding_attention"},
    {"config.json", QWEN(",\"rope_scaling\":{\"rope_type\":\"spiral\"}"), 4, "rope_type spiral",
     "linnet knows default, linear"},
    {"config.json", QWEN(",\"hidden_act\":\"mish\""), 4, "hidden_act mish", "linnet knows silu"},
    {"config.json", QWEN(",\"attn_logit_softcapping\":50.0"), 4, "attn_logit_softcapping", "expected"},
    {"config.json", QWEN(",\"architectures\":[\"Qwen3ForSequenceClassification\"]"), 4, "a classifier",
     "ends in ForCausalLM"},
    {"adapter_config.json", "{\"peft_type\":\"LORA\",\"r\":8}", 3, "an adapter, not a model",
     "give its base model"},
    {"model_index.json", "{}", 3, "a pipeline of diffusers", "no config.json there"},
    {"params.json", "{\"dim\":64}", 3, "the layout of its makers", "Hugging Face layout"},
    {"other.txt", "", 3, "no config.json there", "expected a model directory in Hugging Face layout"}};

static char folder[300], file[400];

static void make_model(const char *leaf, const char *text) {
    (void)snprintf(folder, sizeof folder, "%s/model", dir);
    assert_int_equal(mkdir(folder, 0700), 0);
    (void)snprintf(file, sizeof file, "%s/%s", folder, leaf);
    FILE *f = fopen(file, "wb");
    assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void check(const model *m) {
    char shown[1200];
    const outcome *o = RUN(S("show"), folder);
    expect(o, m->code, m->says);
    expect(o, m->code, m->needs);
    (void)snprintf(shown, sizeof shown, "%s", o->err);
    expect(RUN(S("run"), folder, S("Hi"), S("-n"), S("1")), m->code, shown);
}

static void a_rejected_directory_says_what_it_needs(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        make_model(models[i].leaf, models[i].text);
        check(&models[i]);
        assert_true(unlink(file) == 0 && rmdir(folder) == 0);
    }
}

/* A whole configuration whose weights are in a format that is not read. */
static void weights_in_another_format_are_named(void **state) {
    (void)state;
    static const model rows[] = {
        {"model.onnx", "", 4, "no safetensors but model.onnx, which is not read", "or a GGUF file"},
        {"weights.npz", "", 4, "no safetensors but weights.npz", "expected the model's safetensors"},
        {"pytorch_model.bin", "", 4, "only pytorch_model.bin, which is pickle", "save_pretrained"},
        {"README.md", "", 5, "no model.safetensors", "hf download"}};
    char config[420];
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        make_model(rows[i].leaf, rows[i].text);
        (void)snprintf(config, sizeof config, "%s/config.json", folder);
        FILE *f = fopen(config, "wb");
        assert_true(f && fputs(QWEN(""), f) >= 0 && fclose(f) == 0);
        check(&rows[i]);
        assert_true(unlink(config) == 0 && unlink(file) == 0 && rmdir(folder) == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_rejected_directory_says_what_it_needs),
                                       cmocka_unit_test(weights_in_another_format_are_named)};
    return cmocka_run_group_tests_name("rejected models", tests, make_dir, remove_dir);
}
