/* GGUF files as models. Golden models that llama.cpp's converter wrote as GGUF have the spec and the weights
 * of their directories, to the bit: names, order of rows and dimensions, norms, biases, fused matrices, RoPE.
 * Types of blocks: values against the digests of gguf's dequantize, in whole and in slices; what is rejected,
 * by tensor name. Experts, columns of value heads and decays of recurrent layers. */
/* run: quick asan */
#include "../base/gguf_build.h"
#include "../io/io_test.h"

#include "base/gguf.h"
#include "base/sha256.h"
#include "base/thread_pool.h"
#include "checkpoint/gguf_blocks.h"
#include "checkpoint/scheme.h"
#include "model/spec.h"

#include <math.h>

#define DIR_GOLDEN LN_ROOT "/tests/golden/"

typedef struct model {
    ln_config c;
    ln_spec s;
    ln_tensors t;
    ln_weights w;
} model;

static ln_status model_open(model *m, const char *path, ln_error *err) {
    memset(m, 0, sizeof *m);
    LN_TRY(ln_config_open(&m->c, path, err));
    LN_TRY(ln_spec_open(&m->s, &m->c, err));
    LN_TRY(ln_tensors_open(&m->t, path, false, err));
    return ln_weights_bind(&m->w, &m->s, &m->t, err);
}
static void model_close(model *m) {
    ln_weights_close(&m->w);
    ln_tensors_close(&m->t);
    ln_spec_close(&m->s);
    ln_config_close(&m->c);
}

/* Decodes rows [row0, row0 + n) of a weight, or elements of a vector, into out. */
static ln_status decode(const model *m, const ln_weight *w, int64_t row0, int64_t n, float *out,
                        ln_error *err) {
    const ln_source_work threads = {ln_pool_default(), 2};
    const int64_t cols = w->d1 ? w->d1 : 1;
    void *buffer = aligned_alloc(64, ln_source_bytes(w, n) + 64);
    ln_encoded_rows rows;
    assert_non_null(buffer);
    const ln_status st = m->w.source->ops->rows(m->w.source, w, row0, n, &threads, buffer, &rows, err);
    for (int64_t r = 0; r < n && st == LN_OK; r++) ln_encoding_decode(w->enc, &rows, r, cols, out + r * cols);
    free(buffer);
    return st;
}

/* ---- models ---- */

/* The values that the program computes with: of norms with the offset. */
static float *values_of(const model *m, const ln_weight *w) {
    const int64_t n = w->d0 * (w->d1 ? w->d1 : 1), half = (w->d0 + 1) / 2, cols = n / w->d0;
    float *out = malloc((size_t)n * sizeof *out);
    assert_non_null(out);
    OK(decode(m, w, 0, half, out, err));
    OK(decode(m, w, half, w->d0 - half, out + half * cols, err));
    const int slot = w->slot;
    const bool norm = (slot == LN_W_NORM && !m->s.last_norm_plain) || slot == LN_W_ATTN_NORM ||
                      slot == LN_W_ATTN_POST || slot == LN_W_FFN_NORM || slot == LN_W_FFN_POST ||
                      slot == LN_W_Q_NORM || slot == LN_W_K_NORM || slot == LN_W_LAYER_NORM ||
                      slot == LN_W_IN_POST;
    for (int64_t i = 0; norm && i < n; i++) out[i] += m->s.norm_offset;
    return out;
}

static void check_weights(const model *a, const model *b) {
    assert_int_equal(a->w.n, b->w.n);
    for (size_t i = 0; i < a->w.n; i++) {
        const ln_weight *x = &a->w.items[i], *y = &b->w.items[i];
        assert_true(x->slot == y->slot && x->layer == y->layer && x->d0 == y->d0 && x->d1 == y->d1);
        float *p = values_of(a, x), *q = values_of(b, y);
        if (memcmp(p, q, (size_t)(x->d0 * (x->d1 ? x->d1 : 1)) * sizeof *p) != 0)
            fail_msg("%s: other values than in the directory", x->tensor->name);
        free(p);
        free(q);
    }
}

/* The file has quotients of frequencies in f32: with the division here two roundings of 2^-24 more. */
static void check_rope(const ln_rope *a, const ln_rope *b) {
    assert_int_equal(a->n, b->n);
    assert_true(a->interleaved == b->interleaved && a->scale == b->scale);
    for (int i = 0; i < a->n; i++)
        assert_true(fabsf(a->freqs[i] - b->freqs[i]) <= 0x1p-23f * fabsf(b->freqs[i]));
    if (b->beyond) assert_memory_equal(a->beyond, b->beyond, (size_t)a->n * sizeof *a->beyond);
}

static void check_experts(const ln_moe_spec *x, const ln_moe_spec *y) {
    const ln_p_route *p = &x->route, *q = &y->route;
    assert_int_equal(x->n_experts, y->n_experts);
    assert_true(x->F == y->F && x->shared_F == y->shared_F && x->bias == y->bias && x->beside == y->beside);
    assert_true(x->router_bias == y->router_bias && x->choice_bias == y->choice_bias);
    assert_true(x->router_norm == y->router_norm && x->expert_scale == y->expert_scale);
    assert_true(x->limit == y->limit && x->alpha == y->alpha);
    assert_true(p->kind == q->kind && p->top_k == q->top_k && p->normed == q->normed && p->eps == q->eps);
    assert_true(p->factor == q->factor && p->n_groups == q->n_groups && p->top_groups == q->top_groups);
}

/* `scale`: the file has the factor of attention, which GGUF leaves out and llama.cpp implies. */
static void check_spec(const ln_spec *a, const ln_spec *b, bool scale) {
    assert_true(a->D == b->D && a->V == b->V && a->L == b->L && a->n_ctx == b->n_ctx);
    assert_true((float)a->eps == (float)b->eps && a->tied == b->tied && a->dtype == b->dtype);
    assert_true(a->embed_scale == b->embed_scale && a->logit_scale == b->logit_scale);
    assert_true(a->residual_scale == b->residual_scale && a->logit_softcap == b->logit_softcap);
    assert_int_equal(a->n_attn, b->n_attn);
    for (int i = 0; i < a->n_attn; i++) {
        ln_attn_spec x = a->attn[i];
        if (!scale) x.scale = b->attn[i].scale;
        assert_true(ln_attn_equal(&x, &b->attn[i]));
    }
    assert_int_equal(a->n_recur, b->n_recur);
    for (int i = 0; i < a->n_recur; i++)
        assert_memory_equal(&a->recur[i].sizes, &b->recur[i].sizes, sizeof a->recur[i].sizes);
    assert_int_equal(a->n_ffn, b->n_ffn);
    for (int i = 0; i < a->n_ffn; i++) {
        const ln_ffn_spec *x = &a->ffn[i], *y = &b->ffn[i];
        assert_true(x->F == y->F && x->act == y->act && x->bias == y->bias && x->ungated == y->ungated);
        check_experts(&x->moe, &y->moe);
    }
    assert_int_equal(a->n_ropes, b->n_ropes);
    for (int i = 0; i < a->n_ropes; i++) check_rope(&a->ropes[i], &b->ropes[i]);
    for (int l = 0; l < a->L; l++) assert_memory_equal(&a->layers[l], &b->layers[l], sizeof a->layers[l]);
}

static void test_models(void **state) {
    (void)state;
    static const struct {
        const char *dir, *file;
        bool scale;
    } pairs[] = {{"llama-llama3-bf16", "llama-llama3-bf16", true},
                 {"families/phi3-long-partial-bf16", "phi3-long-partial-bf16", true},
                 {"families/gemma2-base-bf16", "gemma2-base-bf16", false},
                 {"families/gemma4_text-shared-k-eq-v-bf16", "gemma4_text-shared-k-eq-v-bf16", true},
                 {"families/mixtral-base-bf16", "mixtral-base-bf16", true},
                 {"families/glm4_moe-base-bf16", "glm4_moe-base-bf16", true},
                 {"families/gpt_oss-mxfp4-bf16", "gpt_oss-mxfp4-bf16", true},
                 {"families/muse_glimmer-base-bf16", "muse_glimmer-base-bf16", true},
                 {"families/qwen3_5_text-last-linear-bf16", "qwen3_5_text-last-linear-bf16", true},
                 {"families/qwen3_5_moe_text-bias-bf16", "qwen3_5_moe_text-bias-bf16", true},
                 {"families/apertus-bias-bf16", "apertus-bias-bf16", true},
                 {"families/lfm2_moe-base-f16", "lfm2_moe-base-f16", true}};
    char path[512];
    for (size_t i = 0; i < LN_COUNT(pairs); i++) {
        model a, b;
        (void)snprintf(path, sizeof path, DIR_GOLDEN "gguf/%s.gguf", pairs[i].file);
        OK(model_open(&a, path, err));
        (void)snprintf(path, sizeof path, DIR_GOLDEN "%s", pairs[i].dir);
        OK(model_open(&b, path, err));
        check_spec(&a.s, &b.s, pairs[i].scale);
        check_weights(&a, &b);
        model_close(&a);
        model_close(&b);
    }
}

/* ---- files of this test: a model of one layer ---- */

enum { ROWS = 6, COLUMNS = 128, SUPER = 256 }; /* SUPER: columns of a block with two levels of scales */

/* Columns of a row of whole blocks of a type. */
static int64_t columns_of(ln_ggml_block block) { return block.elements == SUPER ? SUPER : COLUMNS; }

/* The blocks of tools/golden_gguf.py. */
static uint8_t *blocks_of(const char *type, int64_t *bytes) {
    ln_ggml_block block = {0};
    for (uint32_t i = 0; i < 64 && !block.name; i++)
        if (ln_ggml_block_of(i).name && strcmp(ln_ggml_block_of(i).name, type) == 0)
            block = ln_ggml_block_of(i);
    /* the places of f16 scales */
    static const struct {
        const char *type;
        int at, and_at;
    } scales[] = {{"Q4_1", 0, 2}, {"Q5_1", 0, 2}, {"Q2_K", 80, 82},  {"Q3_K", 108, 108},
                  {"Q4_K", 0, 2}, {"Q5_K", 0, 2}, {"Q6_K", 208, 208}};
    int at = 0, and_at = 0;
    for (size_t i = 0; i < LN_COUNT(scales); i++)
        if (strcmp(type, scales[i].type) == 0) at = scales[i].at, and_at = scales[i].and_at;
    uint32_t x = 1;
    const int64_t n = ROWS * columns_of(block) / block.elements;
    *bytes = n * block.bytes;
    uint8_t *out = malloc((size_t)*bytes);
    assert_non_null(out);
    for (int64_t i = 0; i < *bytes; i++) {
        x = x * 1664525u + 1013904223u;
        out[i] = (uint8_t)(x >> 24);
    }
    for (int64_t k = 0; k < n; k++) {
        uint8_t *here = out + k * block.bytes;
        if (strcmp(type, "MXFP4") == 0) { /* an exponent */
            here[0] = (here[0] & 0x3f) | 0x40;
            continue;
        }
        here[at + 1] &= 0xbb;
        if (and_at != at) here[and_at + 1] &= 0xbb;
    }
    return out;
}

/* Writes a model of width 128 or 256 with 6 tokens, one layer, one head of that width, whose table has the
 * type. */
static void put_model(const char *name, const char *arch, uint32_t type, const uint8_t *table, size_t bytes) {
    const uint32_t D = (uint32_t)columns_of(ln_ggml_block_of(type));
    const struct {
        const char *name;
        uint64_t d0, d1;
    } rest[] = {{"output_norm.weight", D, 0},       {"blk.0.attn_norm.weight", D, 0},
                {"blk.0.ffn_norm.weight", D, 0},    {"blk.0.attn_q.weight", D, D},
                {"blk.0.attn_k.weight", D, D},      {"blk.0.attn_v.weight", D, D},
                {"blk.0.attn_output.weight", D, D}, {"blk.0.ffn_gate.weight", D, 64},
                {"blk.0.ffn_up.weight", D, 64},     {"blk.0.ffn_down.weight", 64, D}};
    static const float zeros[SUPER * SUPER];
    gguf_build b = {0};
    size_t n;
    char key[64];
    const struct {
        const char *key;
        uint32_t v;
    } keys[] = {{"block_count", 1},
                {"embedding_length", D},
                {"feed_forward_length", 64},
                {"attention.head_count", 1},
                {"context_length", 64}};
    gguf_text(&b, "general.architecture", arch);
    for (size_t i = 0; i < LN_COUNT(keys); i++) {
        (void)snprintf(key, sizeof key, "%s.%s", arch, keys[i].key);
        gguf_u32(&b, key, keys[i].v);
    }
    (void)snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_f32(&b, key, 1e-5f);
    gguf_tensor_of(&b, "token_embd.weight", type, 2, (uint64_t[]){D, ROWS}, table, bytes);
    for (size_t i = 0; i < LN_COUNT(rest); i++)
        gguf_tensor_of(&b, rest[i].name, LN_GGML_F32, rest[i].d1 ? 2 : 1,
                       (uint64_t[]){rest[i].d0, rest[i].d1}, zeros,
                       4 * rest[i].d0 * (rest[i].d1 ? rest[i].d1 : 1));
    uint8_t *file = gguf_finish(&b, &n);
    put(name, file, n);
    free(file);
}

static void check_type(const char *type, const char *digest) {
    uint32_t number = 0;
    while (!ln_ggml_block_of(number).name || strcmp(ln_ggml_block_of(number).name, type) != 0) number++;
    const int64_t cols = columns_of(ln_ggml_block_of(number));
    int64_t bytes;
    uint8_t *blocks = blocks_of(type, &bytes);
    float whole[ROWS * SUPER], slices[ROWS * SUPER];
    const size_t n = (size_t)(ROWS * cols);
    char hex[LN_SHA256_HEX];
    ln_sha256 h;
    model m;
    put_model("blocks.gguf", "llama", number, blocks, (size_t)bytes);
    OK(model_open(&m, at("blocks.gguf"), err));
    free(blocks);
    const ln_weight *w = &m.w.items[m.w.index_fixed[LN_W_EMBED]];
    assert_true(w->d1 == cols && w->d0 == ROWS);
    OK(decode(&m, w, 0, ROWS, whole, err));
    for (int64_t r = 0; r < ROWS; r += 4) OK(decode(&m, w, r, LN_MIN(4, ROWS - r), slices + r * cols, err));
    assert_memory_equal(whole, slices, n * sizeof *whole);
    for (size_t i = 0; i < n; i++) whole[i] += 0.0f; /* -0 becomes 0 */
    ln_sha256_open(&h);
    ln_sha256_add(&h, whole, n * sizeof *whole);
    ln_sha256_hex(&h, hex);
    if (strcmp(hex, digest) != 0) fail_msg("%s: other values than gguf's dequantize", type);
    model_close(&m);
}

static void test_types(void **state) {
    (void)state;
    json_t *values, *digest;
    const char *type;
    size_t n = 0;
    OK(ln_json_load_file(&values, DIR_GOLDEN "gguf/blocks.json", 1 << 20, err));
    json_object_foreach(values, type, digest) {
        check_type(type, json_string_value(digest));
        n++;
    }
    assert_int_equal(n, 13);
    json_decref(values);
}

/* A scale that is not finite, or whose offset f16 cannot hold, is rejected when rows are made. */
static void test_scales(void **state) {
    (void)state;
    static const uint16_t scales[] = {0x7c00, 0x7e00, 0x6000 /* 512 */};
    static const float last = 511.5f;
    int64_t bytes;
    float out[ROWS * COLUMNS];
    model m;
    ln_error err;
    for (size_t i = 0; i <= LN_COUNT(scales); i++) {
        uint8_t *blocks = blocks_of("Q8_0", &bytes);
        const bool good = i == LN_COUNT(scales);
        const uint16_t d = good ? ln_f32_f16(last) : scales[i];
        memcpy(blocks + 34 * 5, &d, 2);
        put_model("scales.gguf", "llama", LN_GGML_Q8_0, blocks, (size_t)bytes);
        free(blocks);
        OK(model_open(&m, at("scales.gguf"), err));
        const ln_weight *w = &m.w.items[m.w.index_fixed[LN_W_EMBED]];
        expect("a scale", good ? LN_OK : LN_ENUMERIC, "model.embed_tokens.weight",
               decode(&m, w, 0, ROWS, out, &err), &err);
        model_close(&m);
    }
}

static void test_rejected(void **state) {
    (void)state;
    static const uint8_t table[SUPER * ROWS * 4];
    static const struct {
        const char *arch;
        uint32_t type;
        ln_status want;
        const char *word;
    } rows[] = {
        {"mamba", LN_GGML_F32, LN_EUNSUPPORTED,
         "general.architecture mamba is not supported; linnet knows llama"},
        {"clip", LN_GGML_F32, LN_EUNSUPPORTED, "mmproj"},
        {"llama", LN_GGML_IQ3_S, LN_EUNSUPPORTED,
         "stored as IQ3_S; linnet computes with F32, F16, BF16, Q4_0"},
        {"llama", LN_GGML_I32, LN_EUNSUPPORTED, "stored as I32"},
        {"qwen2", LN_GGML_F32, LN_EINVALID, "self_attn.q_proj.bias is missing"},
        {"llama", LN_GGML_F32, LN_OK, ""},
    };
    ln_error err;
    model m;
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        const ln_ggml_block block = ln_ggml_block_of(rows[i].type);
        put_model("r.gguf", rows[i].arch, rows[i].type, table,
                  (size_t)(columns_of(block) * ROWS / block.elements * block.bytes));
        expect(rows[i].word, rows[i].want, rows[i].word, model_open(&m, at("r.gguf"), &err), &err);
        model_close(&m);
    }
}

/* ---- experts, and orders of columns ---- */

/* Qwen 3's experts have no golden model: llama.cpp knows no dense layers among them. */
static void test_qwen3moe(void **state) {
    (void)state;
    enum { D = 64, X = 4, F = 32 };
    static const float zeros[D * D * X];
    static const struct {
        const char *name;
        uint64_t d0, d1, d2;
    } tensors[] = {{"token_embd.weight", D, ROWS, 0},      {"output_norm.weight", D, 0, 0},
                   {"blk.0.attn_norm.weight", D, 0, 0},    {"blk.0.ffn_norm.weight", D, 0, 0},
                   {"blk.0.attn_q.weight", D, D, 0},       {"blk.0.attn_k.weight", D, D, 0},
                   {"blk.0.attn_v.weight", D, D, 0},       {"blk.0.attn_output.weight", D, D, 0},
                   {"blk.0.attn_q_norm.weight", D, 0, 0},  {"blk.0.attn_k_norm.weight", D, 0, 0},
                   {"blk.0.ffn_gate_inp.weight", D, X, 0}, {"blk.0.ffn_gate_exps.weight", D, F, X},
                   {"blk.0.ffn_up_exps.weight", D, F, X},  {"blk.0.ffn_down_exps.weight", F, D, X}};
    static const struct {
        const char *key;
        uint32_t v;
    } keys[] = {{"qwen3moe.block_count", 1},
                {"qwen3moe.embedding_length", D},
                {"qwen3moe.attention.head_count", 1},
                {"qwen3moe.context_length", 64},
                {"qwen3moe.expert_count", X},
                {"qwen3moe.expert_used_count", 2},
                {"qwen3moe.expert_feed_forward_length", F}};
    gguf_build b = {0};
    size_t n;
    model m;
    gguf_text(&b, "general.architecture", "qwen3moe");
    for (size_t i = 0; i < LN_COUNT(keys); i++) gguf_u32(&b, keys[i].key, keys[i].v);
    gguf_f32(&b, "qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f);
    for (size_t i = 0; i < LN_COUNT(tensors); i++) {
        const uint64_t d[] = {tensors[i].d0, tensors[i].d1, tensors[i].d2};
        gguf_tensor_of(&b, tensors[i].name, LN_GGML_F32,
                       d[2]   ? 3
                       : d[1] ? 2
                              : 1,
                       d, zeros, 4 * d[0] * (d[1] ? d[1] : 1) * (d[2] ? d[2] : 1));
    }
    uint8_t *file = gguf_finish(&b, &n);
    put("moe.gguf", file, n);
    free(file);
    OK(model_open(&m, at("moe.gguf"), err));
    const ln_moe_spec *x = &m.s.ffn[0].moe;
    assert_true(x->n_experts == X && x->F == F && x->shared_F == 0 && x->route.top_k == 2);
    assert_true(x->route.kind == LN_ROUTE_SOFTMAX && x->route.normed); /* llama.cpp implies it */
    assert_int_equal(m.w.items[m.w.index_layer[0][LN_W_X_DOWN]].n_experts, X);
    model_close(&m);
}

/* The columns of a row that stands in another order are those of the row in order, for each type. */
static void check_columns(uint32_t type) {
    const ln_gguf_form *form = ln_gguf_form_of(type);
    const ln_ggml_block block = ln_ggml_block_of(type);
    enum { UNIT = 128, OUTER = 2, INNER = 3, COLS = UNIT * OUTER * INNER };
    const ln_source_work threads = {ln_pool_default(), 1};
    int64_t bytes;
    uint8_t *blocks = blocks_of(block.name, &bytes), *buffer = aligned_alloc(64, 1 << 16);
    float straight[COLS], moved[COLS];
    ln_tensor x = {
        .data = blocks, .dtype = (ln_st_dtype)(LN_ST_BLOCKS + (int)type), .n_dims = 2, .dims = {1, COLS}};
    const ln_weight w = {.tensor = &x, .enc = form->enc, .made = true, .d0 = 1, .d1 = COLS};
    ln_encoded_rows rows;
    assert_non_null(buffer);
    assert_true(bytes >= COLS / block.elements * block.bytes);
    OK(ln_gguf_ops.rows(NULL, &w, 0, 1, &threads, buffer, &rows, err));
    ln_encoding_decode(w.enc, &rows, 0, COLS, straight);
    x.columns = (ln_tensor_order){.n_outer = OUTER, .n_inner = INNER, .unit = UNIT};
    OK(ln_gguf_ops.rows(NULL, &w, 0, 1, &threads, buffer, &rows, err));
    ln_encoding_decode(w.enc, &rows, 0, COLS, moved);
    for (int o = 0; o < OUTER; o++)
        for (int i = 0; i < INNER; i++)
            assert_memory_equal(moved + (o * INNER + i) * UNIT, straight + (i * OUTER + o) * UNIT,
                                UNIT * sizeof *moved);
    free(buffer);
    free(blocks);
}
static void test_columns(void **state) {
    (void)state;
    int n = 0;
    for (uint32_t type = 0; type < 64; type++)
        if (ln_gguf_form_of(type)) check_columns(type), n++;
    assert_int_equal(n, 13);
}

/* A decay is -exp of the weight: the source takes it back, and rejects what is no decay. */
static void test_decays(void **state) {
    (void)state;
    static const float logs[] = {-3, 0, 0.5f, 2.7265625f}, bad[] = {-1, -1, 0, -1};
    const ln_source_work threads = {ln_pool_default(), 1};
    float decays[4], buffer[64];
    ln_encoded_rows rows;
    ln_error why;
    for (int i = 0; i < 4; i++) decays[i] = (float)-exp((double)logs[i]);
    ln_tensor x = {.name = "a",
                   .data = (const uint8_t *)decays,
                   .dtype = LN_ST_F32,
                   .n_dims = 1,
                   .dims = {4},
                   .is_decay = true};
    const ln_weight w = {.tensor = &x, .enc = ln_encoding_dense(LN_F32), .made = true, .d0 = 4};
    OK(ln_gguf_ops.rows(NULL, &w, 0, 4, &threads, buffer, &rows, err));
    for (int i = 0; i < 4; i++) assert_true(fabsf(((const float *)rows.data)[i] - logs[i]) <= 0x1p-23f * 3);
    x.data = (const uint8_t *)bad;
    expect("a decay", LN_ENUMERIC, "finite numbers below 0",
           ln_gguf_ops.rows(NULL, &w, 0, 4, &threads, buffer, &rows, &why), &why);
}

/* Granite's layers with windows and those with RoPE, from two lists; keys alone make a configuration. */
static void test_turning_layers(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t v;
    } keys[] = {{"granite_swa.block_count", 4},          {"granite_swa.embedding_length", 64},
                {"granite_swa.feed_forward_length", 64}, {"granite_swa.attention.head_count", 2},
                {"granite_swa.context_length", 64},      {"granite_swa.attention.sliding_window", 16}};
    static const int32_t windows[] = {0, 1, 1, 0}, turning[] = {1, 0, 1, 0};
    gguf_build b = {0};
    size_t n;
    ln_config c;
    ln_spec spec;
    gguf_text(&b, "general.architecture", "granite_swa");
    for (size_t i = 0; i < LN_COUNT(keys); i++) gguf_u32(&b, keys[i].key, keys[i].v);
    gguf_f32(&b, "granite_swa.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_f32(&b, "granite_swa.logit_scale", 8);
    gguf_f32(&b, "granite_swa.attention.scale", 0.5f);
    gguf_f32(&b, "granite_swa.rope.freq_base", 5000);
    gguf_i32s(&b, "granite_swa.attention.sliding_window_pattern", windows, 4);
    gguf_i32s(&b, "granite_swa.attention.rope_pattern", turning, 4);
    gguf_tensor(&b, "token_embd.weight", LN_GGML_F32, 2, (uint64_t[]){64, ROWS}, 4 * 64 * ROWS);
    uint8_t *file = gguf_finish(&b, &n);
    put("turning.gguf", file, n);
    free(file);
    OK(ln_config_open(&c, at("turning.gguf"), err));
    OK(ln_spec_open(&spec, &c, err));
    assert_int_equal(spec.L, 4);
    for (int l = 0; l < 4; l++) {
        const ln_attn_spec *a = &spec.attn[spec.layers[l].attn];
        assert_true(a->sinks && a->scale == 0.5f && a->window == (windows[l] ? 16 : 0));
        assert_true((a->rope >= 0) == turning[l]);
    }
    assert_true(spec.logit_scale == 0.125f && spec.n_ropes == 1);
    ln_spec_close(&spec);
    ln_config_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),         cmocka_unit_test(test_types),
        cmocka_unit_test(test_qwen3moe),       cmocka_unit_test(test_columns),
        cmocka_unit_test(test_decays),         cmocka_unit_test(test_scales),
        cmocka_unit_test(test_turning_layers), cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
