/* linnet convert: golden models that llama.cpp's converter wrote as GGUF become directories again, with the
 * tensors of the directories that they were made of, to the bit, and quantised with those of `quantize`. What
 * is written next to the tensors. */
/* run: quick */
#include "../base/gguf_build.h"
#include "../io/io_test.h"

#include "convert/convert.h"
#include "package/package.h"
#include "model/spec.h"

#define DIR_GOLDEN LN_ROOT "/tests/golden/"

static const struct {
    const char *dir, *file;
} pairs[] = {{"llama-llama3-bf16", "llama-llama3-bf16"},
             {"families/phi3-long-partial-bf16", "phi3-long-partial-bf16"},
             {"families/gemma2-base-bf16", "gemma2-base-bf16"},
             {"families/gemma4_text-shared-k-eq-v-bf16", "gemma4_text-shared-k-eq-v-bf16"},
             {"families/glm4_moe-base-bf16", "glm4_moe-base-bf16"},
             {"families/mixtral-base-bf16", "mixtral-base-bf16"},
             {"families/qwen3_5_text-last-linear-bf16", "qwen3_5_text-last-linear-bf16"}};

/* Fails unless each tensor of `got` is in `want` with the same bytes, and no other tensor is missing. */
static void same_tensors(const char *name, const char *got, const char *want, bool all) {
    ln_tensors a, b;
    OK(ln_tensors_open(&a, got, false, err));
    OK(ln_tensors_open(&b, want, false, err));
    for (size_t i = 0; i < a.n; i++) {
        const ln_tensor *x = &a.items[i], *y = ln_tensors_find(&b, x->name);
        if (!y) fail_msg("%s: %s is in no tensor of the directory", name, x->name);
        if (x->dtype != y->dtype || x->bytes != y->bytes || memcmp(x->data, y->data, (size_t)x->bytes) != 0)
            fail_msg("%s: %s has other bytes", name, x->name);
    }
    if (all && a.n != b.n) fail_msg("%s: %zu tensors, expected %zu", name, a.n, b.n);
    ln_tensors_close(&a);
    ln_tensors_close(&b);
}

static void test_dense(void **state) {
    (void)state;
    char file[512], dir[512];
    for (size_t i = 0; i < LN_COUNT(pairs); i++) {
        const ln_convert_options o = {.n_threads = 2};
        const char *out = at(pairs[i].file);
        (void)snprintf(file, sizeof file, DIR_GOLDEN "gguf/%s.gguf", pairs[i].file);
        (void)snprintf(dir, sizeof dir, DIR_GOLDEN "%s", pairs[i].dir);
        OK(ln_convert_gguf(file, out, &o, LN_CONVERT_SHARD_BYTES, NULL, NULL, err));
        same_tensors(pairs[i].file, out, dir, true);
        ln_config c;
        ln_spec s;
        OK(ln_config_open(&c, out, err));
        assert_false(c.of_gguf);
        assert_null(json_object_get(c.root, "quantization_config"));
        assert_string_equal(ln_config_text(&c, "dtype", ""), "bfloat16");
        OK(ln_spec_open(&s, &c, err));
        ln_spec_close(&s);
        ln_config_close(&c);
    }
}

/* Fails unless the weights of two directories are the same numbers. */
static void same_weights(const char *got, const char *want) {
    static float rows[2][256];
    ln_package *m[2];
    OK(ln_package_open(&m[0], got, &(ln_options){0}, err));
    OK(ln_package_open(&m[1], want, &(ln_options){0}, err));
    const ln_source_work work = {ln_pool_default(), 1};
    OK(ln_pool_reserve(work.pool, 1, err));
    assert_int_equal(m[0]->weights.n, m[1]->weights.n);
    for (size_t i = 0; i < m[0]->weights.n; i++) {
        const ln_weight *w = &m[1]->weights.items[i];
        const int64_t cols = w->d1 ? w->d1 : 1;
        assert_true(cols <= 256 && w->slot == m[0]->weights.items[i].slot &&
                    w->d0 == m[0]->weights.items[i].d0);
        for (int64_t r = 0; r < w->d0; r++) {
            for (int k = 0; k < 2; k++) {
                const ln_weight *x = &m[k]->weights.items[i];
                const ln_source *s = m[k]->weights.source;
                ln_encoded_rows row;
                void *buffer = aligned_alloc(64, ln_source_bytes(x, 1) + 64);
                OK(s->ops->rows(s, x, r, 1, &work, buffer, &row, err));
                ln_encoding_decode(x->enc, &row, 0, cols, rows[k]);
                free(buffer);
            }
            if (memcmp(rows[0], rows[1], (size_t)cols * sizeof(float)) != 0)
                fail_msg("%s: slot %d of layer %d: row %lld differs", got, w->slot, w->layer, (long long)r);
        }
    }
    ln_package_close(&m[0]);
    ln_package_close(&m[1]);
}

/* Experts that directories of the family hold in one tensor: gate before up, and both in turn with outputs
 * as the last axis. */
static void test_joint_experts(void **state) {
    (void)state;
    static const struct {
        const char *name, *tensor;
        int64_t dims[3];
    } models[] = {{"granitemoe-base-f16", "model.layers.0.block_sparse_moe.input_linear.weight", {6, 48, 32}},
                  {"gpt_oss-mxfp4-bf16", "model.layers.0.mlp.experts.gate_up_proj", {6, 32, 128}}};
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        char file[512], dir[512];
        const ln_convert_options o = {.f32 = true, .n_threads = 2};
        const char *out = at(models[i].name);
        ln_tensors t;
        (void)snprintf(file, sizeof file, DIR_GOLDEN "gguf/%s.gguf", models[i].name);
        (void)snprintf(dir, sizeof dir, DIR_GOLDEN "families/%s", models[i].name);
        OK(ln_convert_gguf(file, out, &o, LN_CONVERT_SHARD_BYTES, NULL, NULL, err));
        OK(ln_tensors_open(&t, out, false, err));
        const ln_tensor *x = ln_tensors_find(&t, models[i].tensor);
        if (!x) fail_msg("%s has no %s", out, models[i].tensor);
        assert_memory_equal(x->dims, models[i].dims, sizeof models[i].dims);
        ln_tensors_close(&t);
        same_weights(out, dir);
    }
}

static void test_bits(void **state) {
    (void)state;
    const ln_convert_options o = {.bits = 4, .group = 32, .n_threads = 2};
    const ln_quantize_options q = {.bits = 4, .group = 32, .n_threads = 2};
    OK(ln_convert_gguf(DIR_GOLDEN "gguf/llama-llama3-bf16.gguf", at("c4"), &o, LN_CONVERT_SHARD_BYTES, NULL,
                       NULL, err));
    OK(ln_convert_quantize(DIR_GOLDEN "llama-llama3-bf16", at("q4"), &q, LN_CONVERT_SHARD_BYTES, NULL, NULL,
                           err));
    same_tensors("4 bits", at("c4"), at("q4"), true);
    OK(ln_convert_quantize(DIR_GOLDEN "gguf/llama-llama3-bf16.gguf", at("g4"), &q, LN_CONVERT_SHARD_BYTES,
                           NULL, NULL, err));
    same_tensors("4 bits by quantize", at("g4"), at("q4"), true);
}

static char *read_text(const char *name) {
    char *text;
    size_t n;
    OK(ln_read_file(at(name), 1 << 20, &text, &n, err));
    return text;
}

/* A model with a template and ids, in Q8_0, whose f32 directory has the numbers of the file. */
static void test_files(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint64_t d0, d1;
    } rest[] = {{"output_norm.weight", 32, 0},        {"blk.0.attn_norm.weight", 32, 0},
                {"blk.0.ffn_norm.weight", 32, 0},     {"blk.0.attn_q.weight", 32, 32},
                {"blk.0.attn_k.weight", 32, 32},      {"blk.0.attn_v.weight", 32, 32},
                {"blk.0.attn_output.weight", 32, 32}, {"blk.0.ffn_gate.weight", 32, 32},
                {"blk.0.ffn_up.weight", 32, 32},      {"blk.0.ffn_down.weight", 32, 32}};
    static const char *const keys[] = {"llama.block_count", "llama.attention.head_count"};
    static const char *const sizes[] = {"llama.embedding_length", "llama.feed_forward_length",
                                        "llama.context_length"};
    static const float zeros[32 * 32];
    uint8_t blocks[2 * 34];
    gguf_build b = {0};
    size_t n;
    for (size_t i = 0; i < sizeof blocks; i++)
        blocks[i] = i % 34 == 1 ? 0x34 : (uint8_t)(i % 34 == 0 ? 0 : i);
    gguf_text(&b, "general.architecture", "llama");
    for (size_t i = 0; i < LN_COUNT(keys); i++) gguf_u32(&b, keys[i], 1);
    for (size_t i = 0; i < LN_COUNT(sizes); i++) gguf_u32(&b, sizes[i], 32);
    gguf_f32(&b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_text(&b, "tokenizer.chat_template", "{{ messages }}");
    gguf_u32(&b, "tokenizer.ggml.bos_token_id", 0);
    gguf_u32(&b, "tokenizer.ggml.eos_token_id", 1);
    gguf_u32(&b, "tokenizer.ggml.eot_token_id", 1);
    gguf_tensor_of(&b, "token_embd.weight", 8, 2, (uint64_t[]){32, 2}, blocks, sizeof blocks);
    for (size_t i = 0; i < LN_COUNT(rest); i++)
        gguf_tensor_of(&b, rest[i].name, 0, rest[i].d1 ? 2 : 1, (uint64_t[]){rest[i].d0, rest[i].d1}, zeros,
                       4 * rest[i].d0 * (rest[i].d1 ? rest[i].d1 : 1));
    uint8_t *file = gguf_finish(&b, &n);
    put("m.gguf", file, n);
    free(file);
    const ln_convert_options o = {.f32 = true, .n_threads = 1};
    OK(ln_convert_gguf(at("m.gguf"), at("out"), &o, LN_CONVERT_SHARD_BYTES, NULL, NULL, err));
    char *text = read_text("out/chat_template.jinja");
    assert_string_equal(text, "{{ messages }}");
    ln_free(text);
    text = read_text("out/generation_config.json");
    assert_non_null(strstr(text, "\"bos_token_id\": 0"));
    assert_non_null(strstr(text, "\"eos_token_id\": [\n        1\n    ]"));
    ln_free(text);
    text = read_text("out/config.json");
    assert_non_null(strstr(text, "\"rms_norm_eps\": 0.00001")); /* not the f32 that is nearest to it */
    ln_free(text);
    ln_tensors t;
    OK(ln_tensors_open(&t, at("out"), false, err));
    const ln_tensor *x = ln_tensors_find(&t, "model.embed_tokens.weight");
    assert_true(x && x->dtype == LN_ST_F32);
    float v;
    memcpy(&v, x->data + 4 * 3, 4);
    assert_true(v == 0.25f * 5); /* d = 0.25, the code of column 3 is its byte's number */
    ln_tensors_close(&t);
}

static void test_rejected(void **state) {
    (void)state;
    const ln_convert_options o = {.n_threads = 1};
    ln_error err;
    expect("a directory", LN_EUSAGE, "a model directory already",
           ln_convert_gguf(DIR_GOLDEN "llama-llama3-bf16", at("x"), &o, LN_CONVERT_SHARD_BYTES, NULL, NULL,
                           &err),
           &err);
    assert_false(ln_exists(at("x")));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dense), cmocka_unit_test(test_joint_experts),
                                       cmocka_unit_test(test_bits), cmocka_unit_test(test_files),
                                       cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
