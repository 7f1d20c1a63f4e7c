/* ln_quantize: a model that it writes has the bits of --quantize at load, shards and entries are as
 * requested, and no file remains after an error. That the bytes are those of MLX is checked by
 * tools/compare_mlx.py, and for the values by test_affine. */
/* run: quick */
#include "../common.h"
#include "../test_dir.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread_pool.h"
#include "convert/convert.h"

#define TINY LN_ROOT "/models/tiny"
/* The number of entries of a directory, without hidden ones. */
static int entries(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* Writes a dense llama of one layer in bf16, with 96 columns in the feed-forward layer; `nan`: one element
 * of one matrix is NaN. */
static void make_model(const char *name, bool nan, const char *more) {
    enum { D = 64, F = 96, V = 40 };
    static const struct {
        const char *name;
        int d0, d1;
    } w[] = {{"model.embed_tokens.weight", V, D},
             {"model.norm.weight", D, 0},
             {"model.layers.0.input_layernorm.weight", D, 0},
             {"model.layers.0.post_attention_layernorm.weight", D, 0},
             {"model.layers.0.self_attn.q_proj.weight", 64, D},
             {"model.layers.0.self_attn.k_proj.weight", 32, D},
             {"model.layers.0.self_attn.v_proj.weight", 32, D},
             {"model.layers.0.self_attn.o_proj.weight", D, 64},
             {"model.layers.0.mlp.gate_proj.weight", F, D},
             {"model.layers.0.mlp.up_proj.weight", F, D},
             {"model.layers.0.mlp.down_proj.weight", D, F}};
    ln_tensor_spec specs[LN_COUNT(w)];
    ln_str s = {0};
    uint64_t seed = 3;
    char path[128], config[600];
    mkdir(at(name), 0777);
    for (size_t i = 0; i < LN_COUNT(w); i++)
        specs[i] = (ln_tensor_spec){w[i].name, LN_ST_BF16, w[i].d1 ? 2 : 1, {w[i].d0, w[i].d1}};
    OK(ln_tensors_header(&s, specs, LN_COUNT(w), err));
    for (size_t i = 0; i < LN_COUNT(w); i++)
        for (int k = 0; k < w[i].d0 * LN_MAX(w[i].d1, 1); k++) {
            uint16_t h = ln_f32_bf16(nan && i == 9 && k == 1000 ? NAN : 0.1f * test_normal(&seed));
            ln_str_add(&s, (const char *)&h, 2);
        }
    snprintf(path, sizeof path, "%s/model.safetensors", name);
    put(path, s.data, s.len);
    ln_str_free(&s);
    snprintf(config, sizeof config,
             "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":96,\"vocab_size\":40,\"num_"
             "hidden_layers\":1,\"num_attention_heads\":2,"
             "\"num_key_value_heads\":1,\"head_dim\":32,\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-06,"
             "\"_name_or_path\":\"x\",\"eos_token_id\":1%s}",
             more);
    snprintf(path, sizeof path, "%s/config.json", name);
    put_text(path, config);
    ln_str_adds(&s, "{\"added_tokens\":[],\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int i = 0; i < V; i++) ln_str_addf(&s, "%s\"t%d\":%d", i ? "," : "", i, i);
    ln_str_adds(&s, "},\"merges\":[]}}");
    snprintf(path, sizeof path, "%s/tokenizer.json", name);
    put(path, s.data, s.len);
    ln_str_free(&s);
    snprintf(path, sizeof path, "%s/generation_config.json", name);
    put_text(path, "{\"eos_token_id\":[1,39]}");
    snprintf(path, sizeof path, "%s/notes.txt", name);
    put_text(path, "not carried");
}

static ln_status quantise(const char *from, const char *to, const ln_quantize_options *o, ln_error *err) {
    return ln_quantize(from, to, o, NULL, NULL, err);
}

/* Computes the logits of the last of n ids. */
static void logits_of(const char *path, const ln_options *o, const int32_t *ids, int n, float *out) {
    ln_package *m;
    ln_eng *e;
    ln_options with = *o;
    with.n_threads = 2, with.n_ctx = 64;
    OK(ln_package_open(&m, path, &with, err));
    OK(ln_eng_open(&e, m, &with, err));
    OK(ln_eng_prefill(e, test_seq(e, n, n), ids, n, true, err));
    OK(ln_run_logits(e->run, 0, out, err));
    ln_eng_close(&e);
    ln_package_close(&m);
}

static void test_same_as_at_load(void **state) {
    (void)state;
    static const int32_t ids[] = {5, 900, 17, 2044, 33, 1, 77};
    static float a[4096], b[4096];
    for (int bits = 4; bits <= 8; bits += 4) {
        const ln_quantize_options o = {
            .size = sizeof(ln_quantize_options), .bits = bits, .force = true, .n_threads = bits == 4 ? 1 : 3};
        OK(quantise(TINY, at("tiny"), &o, err));
        logits_of(at("tiny"), &(ln_options){.size = sizeof(ln_options)}, ids, 7, a);
        logits_of(TINY, &(ln_options){.size = sizeof(ln_options), .quantize_bits = bits}, ids, 7, b);
        assert_memory_equal(a, b, sizeof a);
        logits_of(TINY, &(ln_options){.size = sizeof(ln_options)}, ids, 7, b);
        assert_true(memcmp(a, b, sizeof a) != 0);
    }
    assert_true(ln_exists(at("tiny/tokenizer_config.json")) && ln_exists(at("tiny/LICENSE")) &&
                !ln_exists(at("tiny/README.md")));
    assert_int_equal(entries(test_dir), 1); /* no temporary file is left */
}

typedef struct seen {
    int n, stop_after;
    uint64_t bytes;
    double worst;
} seen;
static ln_status on_tensor(void *user, const ln_quantized *t, ln_error *err) {
    seen *s = user;
    s->n++;
    s->bytes += t->bytes;
    s->worst = LN_MAX(s->worst, t->rms_error);
    if (s->n == s->stop_after) return ln_fail(err, LN_ECANCELLED, "stopped");
    return LN_OK;
}

static void test_entries_and_config(void **state) {
    (void)state;
    static const ln_quantize_override keep[] = {{"mlp", 8}, {"layers.0.mlp.up_proj", 16}, {"lm_head", 3}};
    const ln_quantize_options o = {
        .size = sizeof(ln_quantize_options), .bits = 4, .group = 32, .overrides = keep, .n_overrides = 3};
    ln_package *m;
    seen s = {0};
    make_model("dense", false, ",\"torch_dtype\":\"float32\"");
    OK(ln_quantize(at("dense"), at("q"), &o, on_tensor, &s, err));
    OK(ln_package_open(&m, at("q"), &(ln_options){.size = sizeof(ln_options)}, err));
    const ln_weights *w = &m->weights;
    const int slots[] = {LN_W_GATE, LN_W_UP, LN_W_DOWN, LN_W_Q}, bits[] = {8, 0, 8, 4};
    for (int i = 0; i < 4; i++) assert_int_equal(w->items[w->index_layer[0][slots[i]]].enc.bits, bits[i]);
    assert_int_equal(w->items[w->index_fixed[LN_W_EMBED]].enc.bits, 3); /* the head is the embedding table */
    assert_int_equal(w->items[w->index_fixed[LN_W_EMBED]].dtype, LN_F32); /* converted to the type that
                                                                             torch_dtype gives */
    assert_int_equal(w->items[w->index_layer[0][LN_W_ATTN_NORM]].dtype, LN_F32);
    assert_int_equal(w->items[w->index_layer[0][LN_W_UP]].dtype, LN_F32);
    assert_int_equal(w->bytes, s.bytes);
    assert_int_equal(s.n, 11);
    assert_true(s.worst > 0.01 && s.worst < 0.3);
    const json_t *c = m->config.root, *q = json_object_get(c, "quantization");
    assert_int_equal(json_object_size(q), 6); /* three keys of the block itself, and three modules */
    assert_true(json_equal((json_t *)(uintptr_t)q, json_object_get(c, "quantization_config")));
    assert_null(json_object_get(c, "_name_or_path"));
    assert_int_equal(json_array_size(json_object_get(c, "eos_token_id")), 2);
    assert_true(json_is_real(json_object_get(c, "rms_norm_eps")) &&
                json_real_value(json_object_get(c, "rms_norm_eps")) == 1e-6);
    assert_false(ln_exists(at("q/notes.txt")));
    assert_true(ln_exists(at("q/generation_config.json")) && ln_exists(at("q/tokenizer.json")));
    ln_package_close(&m);
    FAILS(LN_EUNSUPPORTED, "is quantised already", quantise(at("q"), at("q2"), &o, err));
    FAILS(LN_EUSAGE, "quantised already",
          ln_package_open(&m, at("q"), &(ln_options){.size = sizeof(ln_options), .quantize_bits = 8}, err));
    assert_false(ln_exists(at("q2")));
}

/* Shards are filled in mlx-lm's order, tensor by tensor, and the index gives the shard of each. */
static void test_shards(void **state) {
    (void)state;
    const ln_quantize_options o = {.size = sizeof(ln_quantize_options), .bits = 4, .group = 32};
    ln_tensors one, many;
    make_model("dense", false, "");
    OK(quantise(at("dense"), at("one"), &o, err));
    OK(ln_convert_quantize(at("dense"), at("many"), &o, 5000, NULL, NULL, err));
    OK(ln_tensors_open(&one, at("one"), false, err));
    OK(ln_tensors_open(&many, at("many"), false, err));
    assert_int_equal(one.n_files, 1);
    assert_true(many.n_files >= 3 && many.n == one.n && many.n == 11 + 2 * 8);
    for (size_t i = 0; i < one.n; i++) {
        assert_string_equal(one.items[i].name, many.items[i].name);
        assert_int_equal(one.items[i].bytes, many.items[i].bytes);
        assert_memory_equal(one.items[i].data, many.items[i].data, one.items[i].bytes);
    }
    for (size_t f = 0; f < many.n_files; f++) { /* only a shard of a single tensor exceeds the limit */
        uint64_t bytes = 0, n = 0;
        for (size_t i = 0; i < many.n; i++)
            if (many.items[i].file == (int)f) bytes += many.items[i].bytes, n++;
        assert_true(n > 0 && (bytes <= 5000 || n == 1));
    }
    ln_tensors_close(&one);
    ln_tensors_close(&many);
}

/* Vectors of several dimensions keep them: the kernels of convolutions. */
static void test_convolutions(void **state) {
    (void)state;
    const ln_quantize_options o = {.size = sizeof(ln_quantize_options), .bits = 4, .group = 32};
    ln_package *m;
    OK(quantise(LN_ROOT "/tests/golden/families/qwen3_5_text-last-linear-bf16", at("conv"), &o, err));
    OK(ln_package_open(&m, at("conv"), &(ln_options){.size = sizeof(ln_options)}, err));
    const ln_tensor *x = m->weights.items[m->weights.index_layer[0][LN_W_CONV]].tensor;
    assert_true(x->n_dims == 3 && x->dims[1] == 1 && x->dims[2] == 4);
    ln_package_close(&m);
}

static void test_refusals(void **state) {
    (void)state;
    static const ln_quantize_override none[] = {{"no_proj", 8}}, half[] = {{"down", 8}},
                                      odd[] = {{"lm_head", 7}};
    make_model("dense", false, "");
    make_model("nan", true, "");
    int before = entries(test_dir);
    const ln_quantize_options o = {.size = sizeof(ln_quantize_options), .bits = 4, .group = 32};
    FAILS(LN_EUSAGE, "no_proj",
          quantise(at("dense"), at("x"),
                   &(ln_quantize_options){
                       .size = sizeof(ln_quantize_options), .overrides = none, .n_overrides = 1},
                   err));
    FAILS(LN_EUSAGE, "ln_quantize_options.overrides down:",
          quantise(at("dense"), at("x"),
                   &(ln_quantize_options){
                       .size = sizeof(ln_quantize_options), .overrides = half, .n_overrides = 1},
                   err));
    FAILS(LN_EUSAGE, "found 7",
          quantise(at("dense"), at("x"),
                   &(ln_quantize_options){
                       .size = sizeof(ln_quantize_options), .overrides = odd, .n_overrides = 1},
                   err));
    FAILS(LN_EUSAGE, "bits",
          quantise(at("dense"), at("x"),
                   &(ln_quantize_options){.size = sizeof(ln_quantize_options), .bits = 7}, err));
    FAILS(LN_EUSAGE, "group",
          quantise(at("dense"), at("x"),
                   &(ln_quantize_options){.size = sizeof(ln_quantize_options), .group = 16}, err));
    FAILS(LN_EUNSUPPORTED, "whole groups of 128",
          quantise(at("dense"), at("x"),
                   &(ln_quantize_options){.size = sizeof(ln_quantize_options), .group = 128}, err));
    FAILS(LN_ENUMERIC, "model.layers.0.mlp.up_proj.weight", quantise(at("nan"), at("x"), &o, err));
    FAILS(LN_EIO, "exists already", quantise(at("dense"), at("nan"), &o, err));
    FAILS(LN_EUSAGE, "holds the model",
          quantise(at("dense"), at("dense"),
                   &(ln_quantize_options){.size = sizeof(ln_quantize_options), .force = true}, err));
    FAILS(LN_EUSAGE, "holds the model",
          quantise(at("dense"), test_dir,
                   &(ln_quantize_options){.size = sizeof(ln_quantize_options), .force = true}, err));
    FAILS(LN_EIO, "cannot create", quantise(at("dense"), at("no/such/parent"), &o, err));
    FAILS(LN_EIO, "is not a directory",
          quantise(at("dense"), at("dense/config.json"),
                   &(ln_quantize_options){.size = sizeof(ln_quantize_options), .force = true}, err));
    FAILS(LN_EIO, "", quantise(at("nowhere"), at("x"), &o, err));
    FAILS(LN_EUSAGE, "quantize_bits",
          ln_plan_memory(TINY, &(ln_options){.size = sizeof(ln_options), .quantize_bits = 3},
                         &(ln_plan){.size = sizeof(ln_plan)}, err));
    mkdir(at("other"), 0777);
    put_text("other/precious.txt", "x");
    FAILS(LN_EIO, "is not a model's directory",
          quantise(at("dense"), at("other"),
                   &(ln_quantize_options){.size = sizeof(ln_quantize_options), .force = true, .group = 32},
                   err));
    assert_true(ln_exists(at("other/precious.txt")));
    for (int n = 1; n <= 11; n++) {
        seen s = {.stop_after = n};
        FAILS(LN_ECANCELLED, "stopped", ln_quantize(at("dense"), at("x"), &o, on_tensor, &s, err));
    }
    struct rlimit was, small = {3000, 3000};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    ln_error e = {0};
    ln_status st = quantise(at("dense"), at("x"), &o, &e);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(st, LN_EIO);
    assert_int_equal(entries(test_dir), before + 1); /* `other`, and nothing else */
}

/* An empty directory is used as if it did not exist; a model's directory is replaced with force, and kept
 * if quantisation fails. */
static void test_replace(void **state) {
    (void)state;
    const ln_quantize_options o = {.size = sizeof(ln_quantize_options), .bits = 4, .group = 32},
                              force = {
                                  .size = sizeof(ln_quantize_options), .bits = 8, .group = 32, .force = true};
    ln_package *m;
    make_model("dense", false, "");
    make_model("nan", true, "");
    mkdir(at("r"), 0777);
    int before = entries(test_dir);
    OK(quantise(at("dense"), at("r/"), &o, err));
    FAILS(LN_EIO, "exists already", quantise(at("dense"), at("r"), &o, err));
    FAILS(LN_ENUMERIC, "up_proj", quantise(at("nan"), at("r"), &force, err));
    OK(ln_package_open(&m, at("r"), &(ln_options){.size = sizeof(ln_options)}, err));
    assert_int_equal(m->weights.code.bits, 4);
    ln_package_close(&m);
    OK(quantise(at("dense"), at("r"), &force, err));
    OK(ln_package_open(&m, at("r"), &(ln_options){.size = sizeof(ln_options)}, err));
    assert_int_equal(m->weights.code.bits, 8);
    ln_package_close(&m);
    assert_int_equal(entries(test_dir), before);
}

/* Rows of a weight that is quantised at load, or in place; the caller frees *buffer. */
static ln_encoded_rows rows_of(const ln_package *m, const ln_weight *w, void **buffer) {
    const ln_source_work work = {ln_pool_default(), 1};
    ln_encoded_rows out;
    *buffer = malloc(ln_source_bytes(w, w->d0) + 64);
    OK(m->weights.source->ops->rows(m->weights.source, w, 0, w->d0, &work, *buffer, &out, err));
    return out;
}

/* From fp8 quantize writes what quantising at load gives: the numbers are rounded to 16 bits first. Other
 * formats, and fp8 if an adapter is to be added, are rejected by name. */
static void test_fp8(void **state) {
    (void)state;
    static const char *const names[] = {"fp8-block", "fp8-small-block", "fp8-tensor", "fp8-e5m2-ue8m0",
                                        "ct-fp8-block"};
    const ln_groups code = {4, 32};
    const ln_quantize_options o = {.size = sizeof o, .bits = 4, .group = 32, .force = true, .n_threads = 2};
    OK(ln_pool_reserve(ln_pool_default(), 2, err));
    for (size_t i = 0; i < LN_COUNT(names); i++) {
        char from[300];
        ln_package *at_load, *written;
        size_t n = 0;
        (void)snprintf(from, sizeof from, LN_ROOT "/tests/golden/official/%s", names[i]);
        OK(quantise(from, at("fp8"), &o, err));
        OK(ln_package_open(&at_load, from, &(ln_options){0}, err));
        OK(ln_weights_encode(&at_load->weights, &at_load->spec, code, err));
        OK(ln_package_open(&written, at("fp8"), &(ln_options){0}, err));
        assert_int_equal(at_load->weights.n, written->weights.n);
        for (size_t k = 0; k < written->weights.n; k++) {
            const ln_weight *a = &at_load->weights.items[k], *b = &written->weights.items[k];
            void *buffers[2];
            if (!a->quantised) continue;
            const ln_encoded_rows x = rows_of(at_load, a, &buffers[0]), y = rows_of(written, b, &buffers[1]);
            const ln_row_bytes row = ln_encoding_row(a->enc, a->d1);
            assert_true(a->d0 == b->d0 && a->d1 == b->d1 && b->code.bits == 4);
            assert_memory_equal(x.data, y.data, (size_t)(a->d0 * row.data));
            assert_memory_equal(x.scales, y.scales, (size_t)(a->d0 * row.scales));
            assert_memory_equal(x.offsets, y.offsets, (size_t)(a->d0 * row.offsets));
            free(buffers[0]), free(buffers[1]);
            n++;
        }
        assert_true(n > 0);
        ln_package_close(&at_load);
        ln_package_close(&written);
    }
    FAILS(LN_EUNSUPPORTED, "is stored as gptq",
          quantise(LN_ROOT "/tests/golden/official/gptq-4", at("x"), &o, err));
    const ln_fuse_options fuse = ln_fuse_options_default();
    FAILS(LN_EUNSUPPORTED, "is stored as fp8",
          ln_fuse(LN_ROOT "/tests/golden/official/fp8-block", LN_ROOT "/tests/golden/lora/llama-all", at("x"),
                  &fuse, NULL, NULL, NULL, err));
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    const ln_quantize_options o = {
        .size = sizeof(ln_quantize_options), .bits = 4, .group = 32, .n_threads = 1};
    make_model("dense", false, "");
    OK(ln_pool_reserve(ln_pool_default(), 1, err));
    int before = entries(test_dir), refused = 0;
    uint64_t held = ln_mem_bytes();
    for (int64_t n = 1;; n++) {
        ln_error e = {0};
        ln_mem_fail_at(n, false);
        ln_status st = quantise(at("dense"), at("x"), &o, &e);
        ln_mem_fail_at(-1, false);
        assert_int_equal(ln_mem_bytes(), held);
        if (st == LN_OK) break;
        if (st != LN_EMEMORY) fail_msg("allocation %lld failed: status %d: %s", (long long)n, st, e.message);
        assert_int_equal(entries(test_dir), before);
        refused++;
        assert_true(n < 20000);
    }
    print_message("  %d allocations failed one by one\n", refused);
    assert_true(refused > 30);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_same_as_at_load, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(test_entries_and_config, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(test_shards, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(test_convolutions, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(test_refusals, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(test_replace, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(test_every_allocation_may_fail, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(test_fp8, dir_make, dir_remove)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
