/* Binding of experts: one by one, stacked, with gate and up in one tensor, and in turn with outputs last; the
 * same rows from each. Tensors that are missing, misshapen, in another format or there twice are rejected by
 * name. Models have dimensions of a few elements and are made in memory. */
/* run: quick asan */
#include "spec_of.h"

enum { X = 3, D = 4, F = 6, MOST = 128 };
#define SIZES                                                                                               \
    "\"vocab_size\":5,\"hidden_size\":4,\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_" \
    "heads\":1,\"head_dim\":8,"
#define QWEN                               \
    "{\"model_type\":\"qwen3_moe\"," SIZES \
    "\"num_experts\":3,\"num_experts_per_tok\":2,\"moe_intermediate_size\":6}"
#define OSS                              \
    "{\"model_type\":\"gpt_oss\"," SIZES \
    "\"num_local_experts\":3,\"num_experts_per_tok\":2,\"intermediate_size\":6,\"attention_bias\":false}"

/* A checkpoint under construction: f32 tensors, whose elements are written by name. */
typedef struct draft {
    ln_tensor_spec specs[MOST];
    char names[MOST][160];
    float *data[MOST];
    size_t n;
} draft;

static int64_t elements(const ln_tensor_spec *t) {
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++) n *= t->dims[i];
    return n;
}
static float *add(draft *d, const char *name, int64_t d0, int64_t d1, int64_t d2) {
    ln_tensor_spec *t = &d->specs[d->n];
    (void)snprintf(d->names[d->n], sizeof d->names[0], "model.%s", name);
    *t = (ln_tensor_spec){
        .name = d->names[d->n], .dtype = LN_ST_F32, .n_dims = 1 + (d1 > 0) + (d2 > 0), .dims = {d0, d1, d2}};
    return d->data[d->n++] = calloc((size_t)elements(t), sizeof(float));
}
static void take_out(draft *d, const char *name) {
    for (size_t i = 0; i < d->n; i++) {
        if (strcmp(d->names[i] + strlen("model."), name) != 0) continue;
        free(d->data[i]);
        for (size_t k = i; k + 1 < d->n; k++) {
            memcpy(d->names[k], d->names[k + 1], sizeof d->names[k]);
            d->specs[k] = d->specs[k + 1];
            d->specs[k].name = d->names[k];
            d->data[k] = d->data[k + 1];
        }
        d->n--;
        return;
    }
    fail_msg("no tensor %s", name);
}
static void free_draft(draft *d) {
    for (size_t i = 0; i < d->n; i++) free(d->data[i]);
}

/* Everything but the experts. */
static void fill(draft *d, bool oss) {
    d->n = 0;
    add(d, "embed_tokens.weight", 5, D, 0);
    add(d, "norm.weight", D, 0, 0);
    add(d, "layers.0.input_layernorm.weight", D, 0, 0);
    add(d, "layers.0.post_attention_layernorm.weight", D, 0, 0);
    add(d, "layers.0.self_attn.q_proj.weight", 16, D, 0);
    add(d, "layers.0.self_attn.k_proj.weight", 8, D, 0);
    add(d, "layers.0.self_attn.v_proj.weight", 8, D, 0);
    add(d, "layers.0.self_attn.o_proj.weight", D, 16, 0);
    if (oss) {
        add(d, "layers.0.self_attn.sinks", 2, 0, 0);
        add(d, "layers.0.mlp.router.weight", X, D, 0);
        add(d, "layers.0.mlp.router.bias", X, 0, 0);
        return;
    }
    add(d, "layers.0.self_attn.q_norm.weight", 8, 0, 0);
    add(d, "layers.0.self_attn.k_norm.weight", 8, 0, 0);
    add(d, "layers.0.mlp.gate.weight", X, D, 0);
}
/* Element c of row r of a matrix of expert x: 0 gate, 1 up, 2 down; 3 to 5 their biases. */
static float element(int which, int64_t x, int64_t r, int64_t c) {
    return (float)(1000 * which + 100 * x + 10 * r + c);
}
static void each(draft *d) {
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
    for (int which = 0; which < 3; which++)
        for (int64_t x = 0; x < X; x++) {
            char name[96];
            const int64_t rows = which == 2 ? D : F, cols = which == 2 ? F : D;
            (void)snprintf(name, sizeof name, "layers.0.mlp.experts.%d.%s.weight", (int)x, names[which]);
            float *to = add(d, name, rows, cols, 0);
            for (int64_t i = 0; i < rows * cols; i++) to[i] = element(which, x, i / cols, i % cols);
        }
}
static void fused(draft *d) {
    float *to = add(d, "layers.0.mlp.experts.gate_up_proj", X, 2 * F, D);
    for (int64_t i = 0; i < X * 2 * F * D; i++) {
        const int64_t x = i / (2 * F * D), r = i / D % (2 * F);
        to[i] = element(r >= F, x, r % F, i % D);
    }
    to = add(d, "layers.0.mlp.experts.down_proj", X, D, F);
    for (int64_t i = 0; i < X * D * F; i++) to[i] = element(2, i / (D * F), i / F % D, i % F);
}
static void stacked(draft *d) {
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
    for (int which = 0; which < 3; which++) {
        char name[96];
        const int64_t rows = which == 2 ? D : F, cols = which == 2 ? F : D;
        (void)snprintf(name, sizeof name, "layers.0.mlp.switch_mlp.%s.weight", names[which]);
        float *to = add(d, name, X, rows, cols);
        for (int64_t i = 0; i < X * rows * cols; i++)
            to[i] = element(which, i / (rows * cols), i / cols % rows, i % cols);
    }
}
/* As gpt-oss: [X,D,2F] with gate and up in turn, [X,F,D], and biases. */
static void in_turn(draft *d) {
    float *to = add(d, "layers.0.mlp.experts.gate_up_proj", X, D, 2 * F);
    for (int64_t i = 0; i < X * D * 2 * F; i++) {
        const int64_t r = i % (2 * F);
        to[i] = element(r % 2 == 1, i / (2 * F * D), r / 2, i / (2 * F) % D);
    }
    to = add(d, "layers.0.mlp.experts.down_proj", X, F, D);
    for (int64_t i = 0; i < X * F * D; i++) to[i] = element(2, i / (D * F), i % D, i / D % F);
    to = add(d, "layers.0.mlp.experts.gate_up_proj_bias", X, 2 * F, 0);
    for (int64_t i = 0; i < X * 2 * F; i++) to[i] = element(3 + i % 2, i / (2 * F), i % (2 * F) / 2, 0);
    to = add(d, "layers.0.mlp.experts.down_proj_bias", X, D, 0);
    for (int64_t i = 0; i < X * D; i++) to[i] = element(5, i / D, i % D, 0);
}

typedef struct bound {
    ln_spec s;
    ln_tensors t;
    ln_weights w;
    uint8_t *file;
} bound;
/* Binds the draft's tensors. */
static ln_status bind(bound *b, const draft *d, const char *json, ln_error *err) {
    ln_str head = {0};
    spec_of(json, &b->s);
    OK(ln_tensors_header(&head, d->specs, d->n, err));
    size_t bytes = head.len;
    for (size_t i = 0; i < d->n; i++) bytes += (size_t)elements(&d->specs[i]) * sizeof(float);
    b->file = calloc(1, bytes);
    memcpy(b->file, head.data, head.len);
    for (size_t i = 0, at = head.len; i < d->n; i++) {
        const size_t n = (size_t)elements(&d->specs[i]) * sizeof(float);
        memcpy(b->file + at, d->data[i], n);
        at += n;
    }
    ln_str_free(&head);
    OK(ln_tensors_open_memory(&b->t, "m.safetensors", b->file, bytes, err));
    return ln_weights_bind(&b->w, &b->s, &b->t, err);
}
static void close_bound(bound *b) {
    ln_weights_close(&b->w);
    ln_tensors_close(&b->t);
    ln_spec_close(&b->s);
    free(b->file);
}

/* Compares n rows of a weight from row0 on with what they are made of. */
static void compare_rows(const bound *b, int slot, int which, int64_t row0, int64_t n) {
    const ln_weight *w = &b->w.items[b->w.index_layer[0][slot]];
    const int64_t cols = w->d1 ? w->d1 : 1, rows = w->d0 / w->n_experts;
    const ln_source_work work = {.pool = ln_pool_default(), .n_threads = 1};
    void *buffer = ln_alloc(ln_source_bytes(w, n) + 1);
    ln_encoded_rows got;
    OK(b->w.source->ops->rows(b->w.source, w, row0, n, &work, buffer, &got, err));
    for (int64_t i = 0; i < n * cols; i++) {
        const int64_t r = row0 + i / cols;
        assert_true(ln_num_load(got.data, LN_F32, i) == element(which, r / rows, r % rows, i % cols));
    }
    ln_free(buffer);
}
static void compare_all(const bound *b, bool biases) {
    static const int slots[] = {LN_W_X_GATE,      LN_W_X_UP,      LN_W_X_DOWN,
                                LN_W_X_GATE_BIAS, LN_W_X_UP_BIAS, LN_W_X_DOWN_BIAS};
    for (int k = 0; k < (biases ? 6 : 3); k++) {
        const int64_t rows = k % 3 == 2 ? D : F;
        compare_rows(b, slots[k], k, 0, X * rows);
        compare_rows(b, slots[k], k, rows, rows);
        compare_rows(b, slots[k], k, rows + 1, 2);
        compare_rows(b, slots[k], k, rows - 1, rows + 2);
    }
}

static void every_way_has_the_same_rows(void **state) {
    (void)state;
    void (*const ways[])(draft *) = {each, fused, stacked};
    static draft d;
    for (size_t i = 0; i < LN_COUNT(ways); i++) {
        bound b = {0};
        fill(&d, false);
        ways[i](&d);
        OK(bind(&b, &d, QWEN, err));
        compare_all(&b, false);
        assert_int_equal(b.w.n_parameters - b.w.n_active, 3 * D * F); /* one of three experts is not chosen */
        close_bound(&b);
        free_draft(&d);
    }
    bound b = {0};
    fill(&d, true);
    in_turn(&d);
    OK(bind(&b, &d, OSS, err));
    compare_all(&b, true);
    close_bound(&b);
    free_draft(&d);
}

static void what_is_wrong_is_named(void **state) {
    (void)state;
    static draft d;
    for (int i = 0; i < 6; i++) {
        bound b = {0};
        fill(&d, false);
        if (i < 5) each(&d);
        if (i == 0) take_out(&d, "layers.0.mlp.experts.0.gate_proj.weight");
        if (i == 1) take_out(&d, "layers.0.mlp.experts.2.down_proj.weight");
        if (i == 2) fused(&d);
        if (i == 3) {
            take_out(&d, "layers.0.mlp.experts.1.up_proj.weight");
            add(&d, "layers.0.mlp.experts.1.up_proj.weight", F + 1, D, 0);
        }
        if (i == 4) { /* the same bytes as numbers in half as many columns of another type */
            take_out(&d, "layers.0.mlp.experts.1.up_proj.weight");
            add(&d, "layers.0.mlp.experts.1.up_proj.weight", F, D, 0);
            d.specs[d.n - 1].dtype = LN_ST_I32;
        }
        const char *const wanted[] = {"model.layers.0.mlp.experts.0.gate_proj.weight is missing",
                                      "model.layers.0.mlp.experts.2.down_proj.weight is missing",
                                      "model.layers.0.mlp.experts.gate_up_proj, too",
                                      "model.layers.0.mlp.experts.1.up_proj.weight: expected [6, 4]",
                                      "model.layers.0.mlp.experts.1.up_proj.weight is stored as I32",
                                      "model.layers.0.mlp.experts.0.gate_proj.weight is missing"};
        ln_error why = {0};
        assert_int_not_equal(bind(&b, &d, QWEN, &why), LN_OK);
        if (!strstr(why.message, wanted[i]))
            fail_msg("%d: expected %s, found: %s", i, wanted[i], why.message);
        close_bound(&b);
        free_draft(&d);
    }
}

static void more_choices_than_experts(void **state) {
    (void)state;
    put_text("c/config.json", "{\"model_type\":\"qwen3_moe\",\"num_experts\":3,\"num_experts_per_tok\":4}");
    ln_config c;
    ln_spec s;
    OK(ln_config_open(&c, at("c"), err));
    ln_error why = {0};
    expect("choices", LN_EINVALID, "num_experts_per_tok", ln_spec_open(&s, &c, &why), &why);
    ln_config_close(&c);
}

/* Widths of MLPs that published files of lfm2 give, and those of their weights. */
static void adjusted_widths(void **state) {
    static const struct {
        const char *keys;
        int64_t F;
    } cases[] = {
        {"\"intermediate_size\":6656", 4608},
        {"\"block_ff_dim\":10240,\"intermediate_size\":7", 6912},
        {"\"block_ff_dim\":12288,\"block_ffn_dim_multiplier\":1.0", 8192},
        {"\"intermediate_size\":10752,\"block_auto_adjust_ff_dim\":false", 10752},
        {"\"intermediate_size\":1000,\"block_ffn_dim_multiplier\":null", 666},
        {"\"intermediate_size\":1000,\"block_ffn_dim_multiplier\":1.5,\"block_multiple_of\":7", 1001}};
    (void)state;
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        char json[200];
        ln_spec s;
        (void)snprintf(json, sizeof json, "{\"model_type\":\"lfm2\",%s}", cases[i].keys);
        spec_of(json, &s);
        assert_int_equal(s.ffn[0].F, cases[i].F);
        ln_spec_close(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_has_the_same_rows), cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(more_choices_than_experts), cmocka_unit_test(adjusted_widths)};
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
