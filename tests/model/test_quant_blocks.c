/* The quantization blocks of other tools (checkpoint/scheme_keys.def): what of them is rejected, and blocks
 * in files of their own. */
/* run: quick asan */
#include "../io/io_test.h"

#include "checkpoint/source.h"

/* Blocks: each is rejected, or read, by its keys. */
static void test_blocks(void **state) {
    (void)state;
    static const struct {
        const char *block;
        ln_status want;
        const char *word;
    } rows[] = {
        {"{\"quant_method\":\"hqq\"}", LN_EUNSUPPORTED, "quant_method hqq is not supported"},
        {"{\"quant_method\":\"fp8\",\"weight_block_size\":[128]}", LN_EINVALID, "weight_block_size"},
        {"{\"quant_method\":\"fp8\",\"weight_block_size\":[0,128]}", LN_EINVALID, "weight_block_size"},
        {"{\"quant_method\":\"fp8\",\"activation_scheme\":\"odd\"}", LN_EUNSUPPORTED, "activation_scheme"},
        {"{\"quant_method\":\"fp8\",\"fmt\":\"e3m4\"}", LN_EUNSUPPORTED, "fmt"},
        {"{\"quant_method\":\"gptq\",\"bits\":5}", LN_EUNSUPPORTED, "bits: expected 2, 3, 4 or 8, found 5"},
        {"{\"quant_method\":\"gptq\"}", LN_EINVALID, "bits"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"checkpoint_format\":\"marlin\"}", LN_EUNSUPPORTED,
         "marlin"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"pack_dtype\":\"int8\"}", LN_EUNSUPPORTED, "pack_dtype"},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"version\":\"gemv\"}", LN_EUNSUPPORTED,
         "version: expected gemm, found \"gemv\""},
        {"{\"quant_method\":\"awq\",\"bits\":8}", LN_EUNSUPPORTED, "bits"},
        {"{\"quant_method\":\"awq\",\"zero_point\":false}", LN_EUNSUPPORTED, "zero_point"},
        {"{\"quant_method\":\"compressed-tensors\"}", LN_EINVALID, "config_groups"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"nvfp4-pack-quantized\",\"config_groups\":{}}",
         LN_EUNSUPPORTED, "nvfp4"},
        {"{\"quant_method\":\"compressed-tensors\",\"config_groups\":{},\"sparsity_config\":{\"format\":"
         "\"sparse-24-bitmask\"}}",
         LN_EUNSUPPORTED, "sparse-24"},
        {"{\"quant_method\":\"compressed-tensors\",\"config_groups\":{},\"transform_config\":{\"a\":1}}",
         LN_EUNSUPPORTED, "transform"},
        {"{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"g\":{\"targets\":[],\"weights\":{"
         "\"num_bits\":16}}}}",
         LN_EUNSUPPORTED, "config_groups.g.weights.num_bits"},
        {"{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"g\":{\"targets\":[],\"weights\":{"
         "\"strategy\":\"attn_head\"}}}}",
         LN_EUNSUPPORTED, "attn_head"},
        {"{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"g\":3}}", LN_EINVALID,
         "config_groups.g"},
    };
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        char json[512];
        ln_error err = {0};
        ln_config c;
        ln_quant q;
        (void)snprintf(json, sizeof json, "{\"model_type\":\"llama\",\"quantization_config\":%s}",
                       rows[i].block);
        put_text("b/config.json", json);
        OK(ln_config_open(&c, at("b"), err));
        expect(rows[i].block, rows[i].want, rows[i].word, ln_quant_open(&q, &c, &err), &err);
        ln_config_close(&c);
    }
}

/* The block of AutoGPTQ and AutoAWQ is in a file of its own, unless config.json has one. */
static void test_tool_files(void **state) {
    (void)state;
    ln_config c;
    ln_quant q;
    ln_error why = {0};
    put_text("t/config.json", "{\"model_type\":\"llama\"}");
    put_text("t/quant_config.json", "{\"w_bit\":4,\"q_group_size\":64,\"version\":\"GEMM\",\"zero_point\":"
                                    "true}");
    OK(ln_config_open(&c, at("t"), err));
    OK(ln_quant_open(&q, &c, err));
    assert_string_equal(ln_quant_method(&q), "awq");
    assert_int_equal(q.code.group, 64);
    ln_quant_close(&q);
    put_text("t/quantize_config.json", "{\"bits\":3,\"group_size\":-1,\"desc_act\":true}");
    OK(ln_quant_open(&q, &c, err));
    assert_string_equal(ln_quant_method(&q), "gptq");
    assert_true(q.code.bits == 3 && q.code.group == 0);
    ln_quant_close(&q);
    put_text("t/quantize_config.json", "{\"bits\":\"3\"}");
    expect("a text", LN_EINVALID, "quantize_config.json", ln_quant_open(&q, &c, &why), &why);
    ln_config_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blocks), cmocka_unit_test(test_tool_files)};
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
