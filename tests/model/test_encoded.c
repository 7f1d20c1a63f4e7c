/* Weights in affine groups: which combinations of the quantization block and the tensors are valid; every
 * disagreement is rejected with the name of the tensor. */
/* run: quick */
#include "../io/io_test.h"

#include "model/spec.h"

#define SIZES                                                                                             \
    "\"model_type\":\"llama\",\"vocab_size\":5,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_" \
    "layers\":1,\"num_attention_heads\":2,"                                                               \
    "\"num_key_value_heads\":1,\"head_dim\":32,\"tie_word_embeddings\":true"
#define BLOCK4 "\"quantization\":{\"bits\":4,\"group_size\":32"
#define DOWN   "model.layers.0.mlp.down_proj"

/* Columns of each matrix: 64, except 96 for down_proj. */
static const struct {
    const char *path;
    int64_t rows, cols;
} matrices[] = {{"model.embed_tokens", 5, 64},
                {"model.layers.0.self_attn.q_proj", 64, 64},
                {"model.layers.0.self_attn.k_proj", 32, 64},
                {"model.layers.0.self_attn.v_proj", 32, 64},
                {"model.layers.0.self_attn.o_proj", 64, 64},
                {"model.layers.0.mlp.gate_proj", 96, 64},
                {"model.layers.0.mlp.up_proj", 96, 64},
                {DOWN, 64, 96}};
static const char *const vectors[] = {"model.norm.weight", "model.layers.0.input_layernorm.weight",
                                      "model.layers.0.post_attention_layernorm.weight"};

typedef struct draft {
    ln_tensor_spec specs[64];
    char names[64][96];
    size_t n;
} draft;

static void add(draft *d, const char *path, const char *leaf, ln_st_dtype dtype, int64_t d0, int64_t d1) {
    (void)snprintf(d->names[d->n], sizeof d->names[0], "%s%s", path, leaf);
    d->specs[d->n] = (ln_tensor_spec){d->names[d->n], dtype, d1 ? 2 : 1, {d0, d1}};
    d->n++;
}
static void add_matrix(draft *d, const char *path, int64_t rows, int64_t cols, int bits, int group,
                       ln_st_dtype dtype) {
    add(d, path, ".weight", bits ? LN_ST_U32 : dtype, rows, bits ? cols * bits / 32 : cols);
    if (!bits) return;
    add(d, path, ".scales", dtype, rows, cols / group);
    add(d, path, ".biases", dtype, rows, cols / group);
}
/* Fills the draft with matrices of one encoding, except for down_proj. */
static void fill(draft *d, int bits, int group, int down_bits, int down_group, ln_st_dtype dtype) {
    d->n = 0;
    for (size_t i = 0; i < LN_COUNT(vectors); i++) add(d, vectors[i], "", dtype, 64, 0);
    for (size_t i = 0; i < LN_COUNT(matrices); i++) {
        bool down = strcmp(matrices[i].path, DOWN) == 0;
        add_matrix(d, matrices[i].path, matrices[i].rows, matrices[i].cols, down ? down_bits : bits,
                   down ? down_group : group, dtype);
    }
}
static ln_tensor_spec *get(draft *d, const char *name) {
    for (size_t i = 0; i < d->n; i++)
        if (strcmp(d->names[i], name) == 0) return &d->specs[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

typedef struct bound {
    ln_config c;
    ln_spec s;
    ln_tensors t;
    ln_weights w;
    uint8_t *mem;
} bound;
static void unbind(bound *b) {
    ln_weights_close(&b->w);
    ln_tensors_close(&b->t);
    ln_spec_close(&b->s);
    ln_config_close(&b->c);
    free(b->mem);
}
static ln_status bind(bound *b, const draft *d, const char *config, ln_error *err) {
    ln_str s = {0};
    size_t data = 0;
    memset(b, 0, sizeof *b);
    put_text("q/config.json", config);
    OK(ln_tensors_header(&s, d->specs, d->n, err));
    for (size_t i = 0; i < d->n; i++) {
        size_t n =
            d->specs[i].dtype == LN_ST_F32 || d->specs[i].dtype == LN_ST_U32 || d->specs[i].dtype == LN_ST_I32
                ? 4
            : d->specs[i].dtype == LN_ST_U8 ? 1
                                            : 2;
        for (int k = 0; k < d->specs[i].n_dims; k++) n *= (size_t)d->specs[i].dims[k];
        data += n;
    }
    b->mem = calloc(1, s.len + data + 1);
    memcpy(b->mem, s.data, s.len);
    OK(ln_tensors_open_memory(&b->t, "m.safetensors", b->mem, s.len + data, err));
    ln_str_free(&s);
    ln_status st = ln_config_open(&b->c, at("q"), err);
    if (st == LN_OK) st = ln_spec_open(&b->s, &b->c, err);
    if (st == LN_OK) st = ln_weights_bind(&b->w, &b->s, &b->t, err);
    return st;
}

static const ln_weight *down(const bound *b) { return &b->w.items[b->w.index_layer[0][LN_W_DOWN]]; }

static void test_forms(void **state) {
    (void)state;
    static const int widths[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64};
    static const ln_st_dtype dtypes[] = {LN_ST_F32, LN_ST_BF16, LN_ST_F16};
    static draft d;
    for (size_t w = 0; w < LN_COUNT(widths); w++)
        for (size_t g = 0; g < LN_COUNT(groups); g++)
            for (size_t t = 0; t < LN_COUNT(dtypes); t++) {
                char config[600];
                bound b;
                snprintf(config, sizeof config,
                         "{" SIZES ",\"quantization%s\":{\"bits\":%d,\"group_size\":%d,\"" DOWN
                         "\":{\"bits\":8,\"group_size\":32}}}",
                         w % 2 ? "_config" : "", widths[w], groups[g]);
                fill(&d, widths[w], groups[g], 8, 32, dtypes[t]);
                OK(bind(&b, &d, config, err));
                uint64_t bytes = 0;
                for (size_t i = 0; i < b.t.n; i++) bytes += b.t.items[i].bytes;
                assert_int_equal(b.w.bytes, bytes);
                assert_int_equal(b.w.n_parameters, 64 * 3 + 64 * (5 + 64 + 32 + 32 + 64 + 96 + 96 + 96));
                assert_true(b.w.code.bits == widths[w] && b.w.code.group == groups[g]);
                const ln_weight *k = &b.w.items[b.w.index_layer[0][LN_W_K]];
                assert_true(k->enc.bits == widths[w] && k->enc.group == groups[g] &&
                            (int)k->dtype == (int)dtypes[t] && k->d0 == 32 && k->d1 == 64);
                assert_string_equal(k->biases->name, "model.layers.0.self_attn.k_proj.biases");
                assert_true(down(&b)->enc.bits == 8 && down(&b)->enc.group == 32 && down(&b)->d1 == 96);
                assert_int_equal(b.s.dtype, k->dtype);
                unbind(&b);
            }
}

/* What an entry of the block may be; paths under other prefixes refer to the same weight. */
static void test_entries(void **state) {
    (void)state;
    static const struct {
        const char *entry;
        int bits, group;
    } rows[] = {{"", 4, 32},
                {",\"" DOWN "\":true", 4, 32},
                {",\"" DOWN "\":false", 0, 0},
                {",\"" DOWN "\":{\"bits\":3,\"group_size\":32}", 3, 32},
                {",\"" DOWN "\":{\"bits\":null,\"group_size\":32}", 4, 32},
                {",\"" DOWN "\":{\"group_size\":32,\"bits\":6,\"mode\":\"affine\"}", 6, 32},
                {",\"language_model.model.layers.0.mlp.down_proj\":{\"bits\":5,\"group_size\":32}", 5, 32},
                {",\"vision_tower.x\":{\"mode\":\"mxfp4\"}", 4, 32}};
    static draft d;
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        char config[600];
        bound b;
        snprintf(config, sizeof config, "{" SIZES "," BLOCK4 "%s}}", rows[i].entry);
        fill(&d, 4, 32, rows[i].bits, rows[i].group, LN_ST_BF16);
        OK(bind(&b, &d, config, err));
        assert_int_equal(down(&b)->enc.bits, rows[i].bits);
        assert_true((down(&b)->scales != NULL) == (rows[i].bits != 0));
        unbind(&b);
    }
    /* A quantization block without a quantised tensor: a dense model. */
    bound b;
    fill(&d, 0, 0, 0, 0, LN_ST_F16);
    OK(bind(&b, &d, "{" SIZES "," BLOCK4 "}}", err));
    assert_int_equal(b.w.code.bits, 0);
    unbind(&b);
}

/* A value that is absent from an entry is MLX's default (4 bits in groups of 64), not the block's value. */
static void test_entries_without_numbers(void **state) {
    (void)state;
    static const char *const entries[] = {"{\"bits\":null,\"group_size\":null,\"mode\":\"affine\"}",
                                          "{\"group_size\":null}", "{\"bits\":4}", "{\"group_size\":64}",
                                          "{}"};
    static draft d;
    for (size_t i = 0; i < LN_COUNT(entries); i++) {
        char config[600];
        bound b;
        snprintf(config, sizeof config,
                 "{" SIZES
                 ",\"quantization\":{\"bits\":8,\"group_size\":32,\"model.layers.0.self_attn.k_proj\":%s}}",
                 entries[i]);
        fill(&d, 8, 32, 8, 32, LN_ST_BF16);
        get(&d, "model.layers.0.self_attn.k_proj.weight")->dims[1] = 8;
        get(&d, "model.layers.0.self_attn.k_proj.scales")->dims[1] =
            get(&d, "model.layers.0.self_attn.k_proj.biases")->dims[1] = 1;
        OK(bind(&b, &d, config, err));
        const ln_weight *k = &b.w.items[b.w.index_layer[0][LN_W_K]];
        assert_true(k->enc.bits == 4 && k->enc.group == 64 && down(&b)->enc.bits == 8);
        unbind(&b);
    }
}

/* The shapes of tensors decide values that no entry gives, as in mlx-lm's infer_quant_config; they never
 * override a value of an entry. */
static void test_forms_from_shapes(void **state) {
    (void)state;
    static const struct {
        const char *entry;
        int bits;
    } rows[] = {{"", 8},
                {"", 6},
                {"", 5},
                {"", 3},
                {"", 2},
                {",\"" DOWN "\":{\"bits\":8}", 8},
                {",\"" DOWN "\":{\"group_size\":32}", 6},
                {",\"" DOWN "\":{}", 3}};
    static draft d;
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        char config[600];
        bound b;
        snprintf(config, sizeof config, "{" SIZES ",\"quantization\":{\"bits\":4,\"group_size\":64%s}}",
                 rows[i].entry);
        fill(&d, 4, 64, rows[i].bits, 32, LN_ST_BF16);
        OK(bind(&b, &d, config, err));
        assert_true(down(&b)->enc.bits == rows[i].bits && down(&b)->enc.group == 32);
        assert_true(b.w.items[b.w.index_layer[0][LN_W_K]].enc.bits == 4 && b.w.code.bits == 4 &&
                    b.w.code.group == 64);
        unbind(&b);
    }
    /* An embedding table in another encoding than the block's; it is the head as well. */
    bound b;
    fill(&d, 4, 32, 4, 32, LN_ST_BF16);
    get(&d, "model.embed_tokens.weight")->dims[1] = 12;
    get(&d, "model.embed_tokens.scales")->dims[1] = get(&d, "model.embed_tokens.biases")->dims[1] = 1;
    OK(bind(&b, &d, "{" SIZES "," BLOCK4 "}}", err));
    const ln_weight *table = &b.w.items[b.w.index_fixed[LN_W_EMBED]];
    assert_true(table->enc.bits == 6 && table->enc.group == 64 && b.s.tied);
    unbind(&b);
}

typedef void change_fn(draft *d);
static void none(draft *d) { (void)d; }
static void no_scales(draft *d) { snprintf(d->names[get(d, DOWN ".scales") - d->specs], 96, "x"); }
static void no_biases(draft *d) { snprintf(d->names[get(d, DOWN ".biases") - d->specs], 96, "x"); }
static void short_scales(draft *d) { get(d, DOWN ".scales")->dims[1] = 1; }
static void long_biases(draft *d) { get(d, DOWN ".biases")->dims[0] = 65; }
static void flat_scales(draft *d) { get(d, DOWN ".scales")->n_dims = 1; }
static void narrow_words(draft *d) { get(d, DOWN ".weight")->dims[1] = 11; }
static void seven_bits(draft *d) { get(d, DOWN ".weight")->dims[1] = 21; }
static void wide_group(draft *d) {
    get(d, "model.layers.0.mlp.up_proj.scales")->dims[1] =
        get(d, "model.layers.0.mlp.up_proj.biases")->dims[1] = 4;
}
static void byte_scales(draft *d) { get(d, DOWN ".scales")->dtype = LN_ST_U8; }
static void other_biases(draft *d) { get(d, DOWN ".biases")->dtype = LN_ST_U32; }
static void signed_words(draft *d) { get(d, DOWN ".weight")->dtype = LN_ST_I32; }
static void dense_down(draft *d) { fill(d, 4, 32, 0, 0, LN_ST_BF16); }
static void two(draft *d) { short_scales(d), get(d, "model.embed_tokens.weight")->dims[0] = 6; }

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        change_fn *change;
        const char *block, *word;
        ln_status status;
    } rows[] = {
        {none, NULL, ".scales: config.json has no quantization block", LN_EINVALID},
        {none, "{\"bits\":4,\"group_size\":32,\"" DOWN "\":false}",
         DOWN ".scales: config.json says that it is dense", LN_EINVALID},
        {none, "{\"bits\":4,\"group_size\":32,\"" DOWN "\":{\"group_size\":64}}",
         DOWN ".weight: its 96 columns are no whole groups of 64", LN_EINVALID},
        {none, "{\"bits\":4,\"group_size\":32,\"" DOWN "\":{\"bits\":8,\"group_size\":32}}",
         DOWN ".weight: expected [64, 24] for 8 bits in groups of 32, found [64, 12]", LN_EINVALID},
        {none, "{\"bits\":4,\"group_size\":32,\"" DOWN "\":{\"bits\":3,\"group_size\":32}}",
         "expected [64, 9] for 3 bits", LN_EINVALID},
        {none, "{\"bits\":4,\"group_size\":32,\"" DOWN "\":{\"mode\":\"mxfp6\"}}",
         "quantization." DOWN ": mode mxfp6", LN_EUNSUPPORTED},
        {none, "{\"bits\":4,\"group_size\":32,\"" DOWN "\":{\"mode\":\"mxfp4\"}}", "stored as BF16",
         LN_EUNSUPPORTED},
        {none, "{\"bits\":4,\"group_size\":32,\"" DOWN "\":7}",
         "quantization." DOWN ": expected true, false or an object", LN_EINVALID},
        {none, "{\"bits\":4,\"group_size\":32,\"" DOWN "\":{\"bits\":9}}", "weights of 9 bits",
         LN_EUNSUPPORTED},
        {no_scales, "{\"bits\":4,\"group_size\":32}", DOWN ".scales is missing", LN_EINVALID},
        {no_scales, NULL, "config.json has no quantization block", LN_EINVALID},
        {no_biases, "{\"bits\":4,\"group_size\":32}", DOWN ".biases is missing", LN_EINVALID},
        {short_scales, "{\"bits\":4,\"group_size\":32}",
         DOWN ".scales: expected [64, 3] for 4 bits in groups of 32, found [64, 1]", LN_EINVALID},
        {flat_scales, "{\"bits\":4,\"group_size\":32}", DOWN ".scales: expected [64, 3]", LN_EINVALID},
        {long_biases, "{\"bits\":4,\"group_size\":32}", DOWN ".biases: expected [64, 3]", LN_EINVALID},
        {narrow_words, "{\"bits\":4,\"group_size\":32}", DOWN ".weight: expected [64, 12]", LN_EINVALID},
        {seven_bits, "{\"bits\":4,\"group_size\":32}",
         DOWN ".weight: expected [64, 12] for 4 bits in groups of 32, found [64, 21]", LN_EINVALID},
        {wide_group, "{\"bits\":4,\"group_size\":32}", "model.layers.0.mlp.up_proj.scales: expected [96, 2]",
         LN_EINVALID},
        {two, "{\"bits\":4,\"group_size\":32}", "2 tensors do not match", LN_EINVALID},
        {byte_scales, "{\"bits\":4,\"group_size\":32}", DOWN ".scales is stored as U8", LN_EUNSUPPORTED},
        {other_biases, "{\"bits\":4,\"group_size\":32}", DOWN ".biases is stored as U32", LN_EUNSUPPORTED},
        {signed_words, "{\"bits\":4,\"group_size\":32}", DOWN ".weight is stored as I32", LN_EUNSUPPORTED},
        {dense_down, "{\"bits\":4,\"group_size\":32,\"" DOWN "\":true}", DOWN ".scales is missing",
         LN_EINVALID},
    };
    static draft d;
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        char config[700];
        bound b;
        ln_error err = {0};
        snprintf(config, sizeof config, "{" SIZES "%s%s}", rows[i].block ? ",\"quantization\":" : "",
                 rows[i].block ? rows[i].block : "");
        fill(&d, 4, 32, 4, 32, LN_ST_BF16);
        rows[i].change(&d);
        expect(rows[i].word, rows[i].status, rows[i].word, bind(&b, &d, config, &err), &err);
        unbind(&b);
    }
}

/* A separate head in a tied configuration: if its three tensors equal the table's, the model stays tied,
 * otherwise it is untied. */
static void test_head(void **state) {
    (void)state;
    static draft d;
    for (int differs = 0; differs < 3; differs++) {
        bound b;
        fill(&d, 4, 32, 4, 32, LN_ST_BF16);
        if (differs < 2) add_matrix(&d, "lm_head", 5, 64, 4, 32, LN_ST_BF16);
        else add_matrix(&d, "lm_head", 5, 64, 0, 0, LN_ST_BF16);
        if (differs == 1) { /* scales of zeros in another type, and therefore other bytes */
            get(&d, "lm_head.scales")->dtype = LN_ST_F16;
            get(&d, "lm_head.biases")->dtype = LN_ST_F16;
        }
        OK(bind(&b, &d, "{" SIZES "," BLOCK4 "}}", err));
        assert_int_equal(b.s.tied, differs == 0);
        assert_int_equal(b.w.index_fixed[LN_W_HEAD] >= 0, differs > 0);
        unbind(&b);
    }
    /* A tied model that is stored under the head's name only. */
    bound b;
    fill(&d, 4, 32, 4, 32, LN_ST_BF16);
    for (size_t i = 0; i < d.n; i++) {
        char leaf[16];
        if (!strstr(d.names[i], "model.embed_tokens")) continue;
        snprintf(leaf, sizeof leaf, "%s", strrchr(d.names[i], '.'));
        snprintf(d.names[i], sizeof d.names[0], "lm_head%s", leaf);
    }
    OK(bind(&b, &d, "{" SIZES "," BLOCK4 "}}", err));
    const ln_weight *table = &b.w.items[b.w.index_fixed[LN_W_EMBED]];
    assert_true(b.s.tied && b.w.index_fixed[LN_W_HEAD] < 0 && table->enc.bits == 4);
    assert_string_equal(table->scales->name, "lm_head.scales");
    unbind(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms),
                                       cmocka_unit_test(test_entries),
                                       cmocka_unit_test(test_entries_without_numbers),
                                       cmocka_unit_test(test_forms_from_shapes),
                                       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_head)};
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
