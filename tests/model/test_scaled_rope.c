/* Scaled RoPE: the factor that a configuration gives for cos and sin, the context length, and frequencies
 * that change with the length of the text (dynamic). The frequencies themselves are compared in
 * test_rope.c and test_golden.c. */
/* run: quick */
#include "../io/io_test.h"

#include "model/spec.h"

#define LLAMA "\"model_type\":\"llama\""
#define QWEN  "\"model_type\":\"qwen3\",\"num_hidden_layers\":2"
#define GEMMA "\"model_type\":\"gemma3_text\""

static void read_spec(const char *json, ln_spec *s) {
    ln_config c;
    put_text("c/config.json", json);
    OK(ln_config_open(&c, at("c"), err));
    OK(ln_spec_open(s, &c, err));
    ln_config_close(&c);
}

/* The factor of cos and sin, the context length, and the length from which frequencies change; values of
 * transformers 5.24 if it computes them. */
static void test_scaled_ropes(void **state) {
    (void)state;
#define YARN ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0"
    static const struct {
        const char *json;
        double scale;
        int64_t n_ctx, grows_from;
    } cases[] = {
        {"{" LLAMA "}", 1, 2048, 0},
        {"{" LLAMA YARN "}}", 1.138629436111989, 8192, 0},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}}", 1.138629436111989, 8192, 0},
        {"{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4,\"rope_theta\":1e6}}",
         1.138629436111989, 8192, 0},
        {"{" QWEN YARN ",\"original_max_position_embeddings\":32768},\"max_position_embeddings\":40960}",
         1.138629436111989, 131072, 0},
        {"{" QWEN YARN ",\"original_max_position_embeddings\":32768},\"max_position_embeddings\":262144}",
         1.138629436111989, 262144, 0},
        {"{" LLAMA YARN ",\"attention_factor\":0.5}}", 0.5, 8192, 0},
        {"{" LLAMA YARN ",\"attention_factor\":null,\"mscale\":null,\"beta_fast\":null,\"beta_slow\":0}}",
         1.138629436111989, 8192, 0},
        {"{" LLAMA YARN ",\"mscale\":1.4,\"mscale_all_dim\":0.6}}", 1.1023872193956545, 8192, 0},
        {"{" LLAMA YARN ",\"mscale\":0.7,\"mscale_all_dim\":0}}", 1.138629436111989, 8192, 0},
        {"{" LLAMA YARN ",\"mscale\":1.4}}", 1.138629436111989, 8192, 0},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":null,\"original_max_position_"
         "embeddings\":512}}",
         1.138629436111989, 2048, 0},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":1}}", 1, 2048, 0},
        /* original_max_position_embeddings outside the object has priority */
        {"{" LLAMA YARN ",\"original_max_position_embeddings\":4096},\"original_max_position_embeddings\":"
         "1024}",
         1.138629436111989, 4096, 0},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4}}", 1, 8192, 2048},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2.5,\"original_max_position_"
         "embeddings\":7}}",
         1, 5120, 2048},
        {"{" GEMMA ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"yarn\",\"factor\":4,\"rope_"
         "theta\":1e6}}}",
         1.138629436111989, 524288, 0},
        {"{" GEMMA YARN "}}", 1.138629436111989, 524288, 0},
        {"{\"model_type\":\"gemma4_unified_text\",\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":"
         "\"yarn\",\"factor\":4,\"rope_theta\":1e4}}}",
         1.138629436111989, 1048576, 0},
    };
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        ln_spec s;
        read_spec(cases[i].json, &s);
        const ln_rope *r = &s.ropes[0];
        if (r->scale != (float)cases[i].scale)
            fail_msg("%s: cos and sin times %.9g", cases[i].json, (double)r->scale);
        if (s.n_ctx != cases[i].n_ctx) fail_msg("%s: a context of %lld", cases[i].json, (long long)s.n_ctx);
        if (r->ntk.positions != cases[i].grows_from)
            fail_msg("%s: frequencies grow from %lld on", cases[i].json, (long long)r->ntk.positions);
        if (s.n_ropes == 2) assert_true(s.ropes[1].scale == 1);
        ln_spec_close(&s);
    }
}

/* The reference reads `truncate` from rope_parameters itself, also if the parameters are given for each
 * type of layer. */
static void test_truncate(void **state) {
    (void)state;
#define BY_KIND                                                                                         \
    "\"full_attention\":{\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":100," \
    "\"rope_theta\":500"
    static const char *const configs[] = {"{" GEMMA ",\"rope_parameters\":{" BY_KIND "}}}",
                                          "{" GEMMA ",\"rope_parameters\":{" BY_KIND ",\"truncate\":false}}}",
                                          "{" GEMMA ",\"rope_parameters\":{" BY_KIND "},\"truncate\":false}}",
                                          "{" GEMMA ",\"rope_parameters\":{" BY_KIND "},\"truncate\":null}}"};
    float freqs[LN_COUNT(configs)][128];
    for (size_t i = 0; i < LN_COUNT(configs); i++) {
        ln_spec s;
        read_spec(configs[i], &s);
        memcpy(freqs[i], s.ropes[0].freqs, sizeof freqs[i]);
        ln_spec_close(&s);
    }
    assert_memory_equal(freqs[0], freqs[1], sizeof freqs[0]);
    assert_memory_not_equal(freqs[0], freqs[2], sizeof freqs[0]);
    assert_memory_equal(freqs[2], freqs[3], sizeof freqs[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scaled_ropes), cmocka_unit_test(test_truncate)};
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
