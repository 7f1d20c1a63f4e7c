/* The quantised formats of other tools (checkpoint/schemes.def): values of every matrix of the golden models
 * against the digests of the formats' own references, in whole and in slices. The encoding that holds them;
 * and what is rejected, by tensor name. */
/* run: quick asan */
#include "../io/io_test.h"

#include "base/sha256.h"
#include "base/thread_pool.h"
#include "model/spec.h"

#define DIR_OFFICIAL LN_ROOT "/tests/golden/official/"

static ln_source_work work(void) { return (ln_source_work){ln_pool_default(), 2}; }

/* Decodes rows [row0, row0 + n) of a weight into out[n][d1]. */
static ln_status decode(const ln_source *s, const ln_weight *w, int64_t row0, int64_t n, float *out,
                        ln_error *err) {
    void *buffer = aligned_alloc(64, ln_source_bytes(w, n) + 64);
    const ln_source_work threads = work();
    ln_encoded_rows rows;
    assert_non_null(buffer);
    ln_status st = s->ops->rows(s, w, row0, n, &threads, buffer, &rows, err);
    for (int64_t r = 0; r < n && st == LN_OK; r++)
        ln_encoding_decode(w->enc, &rows, r, w->d1, out + r * w->d1);
    free(buffer);
    return st;
}

/* ---- values ---- */

/* The digest that values.json has of a weight; NULL: it is dense. */
static const char *digest_of(const json_t *values, const ln_weight *w) {
    char name[256];
    (void)snprintf(name, sizeof name, "%s", w->tensor->name);
    *strrchr(name, '.') = 0;
    strcat(name, ".weight");
    return json_string_value(json_object_get(values, name));
}

static void check_values(const char *dir, const ln_source *s, const ln_weight *w, const char *digest) {
    const int64_t D = w->d0, C = w->d1, step = LN_MAX(1, D / 3);
    float *whole = malloc((size_t)(D * C) * sizeof *whole),
          *slices = malloc((size_t)(D * C) * sizeof *slices);
    char hex[LN_SHA256_HEX];
    ln_sha256 h;
    OK(decode(s, w, 0, D, whole, err));
    for (int64_t r = 0; r < D; r += step) OK(decode(s, w, r, LN_MIN(step, D - r), slices + r * C, err));
    assert_memory_equal(whole, slices, (size_t)(D * C) * sizeof *whole);
    ln_sha256_open(&h);
    ln_sha256_add(&h, whole, (size_t)(D * C) * sizeof *whole);
    ln_sha256_hex(&h, hex);
    if (strcmp(hex, digest) != 0) fail_msg("%s: %s: other values than the reference", dir, w->tensor->name);
    free(whole);
    free(slices);
}

static void check_model(const char *dir, size_t *n_checked) {
    char path[512];
    ln_config c;
    ln_spec spec;
    ln_tensors t;
    ln_weights w;
    json_t *values;
    size_t n = 0;
    (void)snprintf(path, sizeof path, DIR_OFFICIAL "%s", dir);
    OK(ln_config_open(&c, path, err));
    OK(ln_spec_open(&spec, &c, err));
    OK(ln_tensors_open(&t, path, false, err));
    OK(ln_weights_bind(&w, &spec, &t, err));
    (void)snprintf(path, sizeof path, DIR_OFFICIAL "%s/values.json", dir);
    OK(ln_json_load_file(&values, path, 1 << 20, err));
    for (size_t i = 0; i < w.n; i++) {
        const char *digest = w.items[i].d1 ? digest_of(values, &w.items[i]) : NULL;
        assert_int_equal(digest != NULL, w.items[i].made);
        if (digest) check_values(dir, w.source, &w.items[i], digest), n++;
    }
    assert_int_equal(n, json_object_size(values));
    *n_checked += n;
    json_decref(values);
    ln_weights_close(&w);
    ln_tensors_close(&t);
    ln_spec_close(&spec);
    ln_config_close(&c);
}

static void test_values(void **state) {
    (void)state;
    json_t *index;
    const json_t *row;
    size_t i, n = 0;
    OK(ln_json_load_file(&index, DIR_OFFICIAL "index.json", 1 << 20, err));
    json_array_foreach(index, i, row) {
        check_model(json_string_value(json_object_get(row, "dir")) + strlen("official/"), &n);
    }
    assert_true(n >= 19 * 7);
    json_decref(index);
}

/* ---- one matrix in memory ---- */

enum { D = 16, C = 64, MOST = 8 };
typedef struct part {
    const char *leaf; /* NULL: none */
    ln_st_dtype dtype;
    int64_t dims[2];
    uint8_t fill;   /* of every byte, unless `f` is given */
    float f;        /* of every element of a float type */
    int64_t bad_at; /* + 1: of the element with the value `bad`; 0: none */
    int64_t bad;
} part;
typedef struct matrix {
    const char *block; /* of quantization_config */
    part parts[MOST];
    int64_t rows, columns; /* 0: D, C */
} matrix;

static int bytes_of(ln_st_dtype t) {
    switch (t) {
    case LN_ST_I64: return 8;
    case LN_ST_F32:
    case LN_ST_I32:
    case LN_ST_U32: return 4;
    case LN_ST_BF16:
    case LN_ST_F16: return 2;
    default: return 1;
    }
}

/* Appends the data of a part. */
static void put_part(ln_str *s, const part *p) {
    const int64_t n = (p->dims[0] ? p->dims[0] : 1) * (p->dims[1] ? p->dims[1] : 1);
    const int size = bytes_of(p->dtype);
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = 0x0101010101010101u * p->fill;
        if (p->dtype == LN_ST_F32) bits = ln_f32_bits(p->f);
        if (p->dtype == LN_ST_F16) bits = ln_f32_f16(p->f);
        if (p->dtype == LN_ST_BF16) bits = ln_f32_bf16(p->f);
        if (p->bad_at == i + 1) bits = (uint64_t)p->bad;
        ln_str_add(s, (const char *)&bits, (size_t)size);
    }
}

/* Finds a.weight [D, C] in the matrix and computes its rows; *enc becomes its encoding. */
static ln_status read_matrix(const matrix *m, float *out, ln_encoding *enc, ln_error *err) {
    ln_tensor_spec specs[MOST];
    char names[MOST][64], json[2048];
    size_t n = 0;
    ln_str file = {0}, data = {0};
    ln_config c;
    ln_quant q;
    ln_tensors t;
    ln_arena arena = {0};
    const char *const ask_names[] = {"model.a.weight", "a.weight"};
    for (; n < MOST && m->parts[n].leaf; n++) {
        const part *p = &m->parts[n];
        (void)snprintf(names[n], sizeof names[n], "a%s", p->leaf);
        specs[n] = (ln_tensor_spec){.name = names[n],
                                    .dtype = p->dtype,
                                    .n_dims = p->dims[1]   ? 2
                                              : p->dims[0] ? 1
                                                           : 0,
                                    .dims = {p->dims[0], p->dims[1]}};
        put_part(&data, p);
    }
    OK(ln_tensors_header(&file, specs, n, err));
    ln_str_add(&file, data.data, data.len);
    (void)snprintf(json, sizeof json, "{\"model_type\":\"llama\",\"quantization_config\":%s}", m->block);
    put_text("c/config.json", json);
    OK(ln_config_open(&c, at("c"), err));
    OK(ln_tensors_open_memory(&t, "m.safetensors", (const uint8_t *)file.data, file.len, err));
    ln_bind_report report = {.t = &t};
    const ln_source_ask ask = {.names = ask_names, .n_names = 2, .report = &report};
    ln_weight w = {.d0 = m->rows ? m->rows : D, .d1 = m->columns ? m->columns : C, .uses = LN_WEIGHT_MATMUL};
    bool fits = false;
    ln_status st = ln_quant_open(&q, &c, err);
    const ln_source *s = st == LN_OK ? ln_source_of_tensors(&arena, &t, &q) : NULL;
    if (st == LN_OK) st = s->ops->find(s, &ask, &w, &fits, err);
    if (st == LN_OK && !w.tensor) st = ln_fail(err, LN_EINVALID, "no tensor");
    if (st == LN_OK) st = ln_report_end(&report, err);
    if (st == LN_OK) assert_true(fits);
    if (st == LN_OK) *enc = w.enc;
    if (st == LN_OK) st = decode(s, &w, 0, D, out, err);
    ln_quant_close(&q);
    ln_str_free(&report.list);
    ln_arena_free(&arena);
    ln_tensors_close(&t);
    ln_config_close(&c);
    ln_str_free(&file);
    ln_str_free(&data);
    return st;
}

#define FP8  "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}"
#define GPTQ "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}"
#define AWQ  "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"version\":\"gemm\"}"
#define GROUPED(more)                                                                                   \
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{\"g\":{" \
    "\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\","     \
    "\"group_size\":32" more "}}}}"

static const matrix fp8 = {
    FP8, {{".weight", LN_ST_F8_E4M3, {D, C}, 0x38}, {".weight_scale_inv", LN_ST_F32, {1, 1}, .f = 2}}};
static const matrix gptq = {GPTQ,
                            {{".qweight", LN_ST_I32, {C / 8, D}, 0x99},
                             {".qzeros", LN_ST_I32, {2, D / 8}, 0x77},
                             {".scales", LN_ST_F16, {2, D}, .f = 2},
                             {".g_idx", LN_ST_I32, {C}, 0}}};
static const matrix awq = {AWQ,
                           {{".qweight", LN_ST_I32, {C, D / 8}, 0x99},
                            {".qzeros", LN_ST_I32, {2, D / 8}, 0x88},
                            {".scales", LN_ST_F16, {2, D}, .f = 2}}};
static const matrix packed = {
    GROUPED(""),
    {{".weight_packed", LN_ST_I32, {D, C / 8}, 0x99}, {".weight_scale", LN_ST_BF16, {D, 2}, .f = 2}}};

/* Every element is 2, in the encoding that the format is kept in. */
static void test_encodings(void **state) {
    (void)state;
    static float out[D * C];
    const struct {
        const char *what;
        const matrix *m;
        int kind;
    } rows[] = {{"fp8", &fp8, LN_STORED_E4M3},
                {"gptq with every column in group 0", &gptq, LN_STORED_ZEROED},
                {"awq", &awq, LN_STORED_AFFINE},
                {"packed", &packed, LN_STORED_AFFINE}};
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        ln_error err = {0};
        ln_encoding enc;
        expect(rows[i].what, LN_OK, "", read_matrix(rows[i].m, out, &enc, &err), &err);
        assert_int_equal(enc.kind, rows[i].kind);
        for (int k = 0; k < D * C; k++)
            if (out[k] != 2) fail_msg("%s: element %d is %g", rows[i].what, k, (double)out[k]);
    }
}

/* Zero points of GPTQ's first version: 15 stands for 16 and is read as 0, in 4 bits. */
static void test_zero_of_all_ones(void **state) {
    (void)state;
    static float out[D * C];
    matrix m = gptq;
    ln_encoding enc;
    m.parts[1].fill = 0xff;
    OK(read_matrix(&m, out, &enc, err));
    assert_true(out[0] == 18);
    m.block = "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"checkpoint_format\":\"gptq_v2\"}";
    OK(read_matrix(&m, out, &enc, err));
    assert_true(out[0] == -12);
}

/* ---- what is rejected ---- */

typedef struct fault {
    const char *id;
    const matrix *m;
    int k; /* the part that is replaced */
    part by;
    ln_status want;
    const char *word;
} fault;

static void check_faults(const fault *rows, size_t n) {
    static float out[D * C];
    for (size_t i = 0; i < n; i++) {
        ln_error err = {0};
        ln_encoding enc;
        matrix m = *rows[i].m;
        m.parts[rows[i].k] = rows[i].by;
        for (int k = rows[i].k; !rows[i].by.leaf && k + 1 < MOST; k++) m.parts[k] = m.parts[k + 1];
        expect(rows[i].id, rows[i].want, rows[i].word, read_matrix(&m, out, &enc, &err), &err);
    }
}

static void test_fp8_faults(void **state) {
    (void)state;
    static const fault rows[] = {
        {"a NaN code",
         &fp8,
         0,
         {".weight", LN_ST_F8_E4M3, {D, C}, 0x38, .bad_at = D * C, .bad = 0x7f},
         LN_ENUMERIC,
         "a.weight: expected numbers in fp8"},
        {"a negative NaN code",
         &fp8,
         0,
         {".weight", LN_ST_F8_E4M3, {D, C}, 0x38, .bad_at = 1, .bad = 0xff},
         LN_ENUMERIC,
         "a.weight"},
        {"an infinity of e5m2",
         &fp8,
         0,
         {".weight", LN_ST_F8_E5M2, {D, C}, 0x38, .bad_at = 7, .bad = 0x7c},
         LN_ENUMERIC,
         "a.weight"},
        {"no scale", &fp8, 1, {NULL}, LN_EINVALID, "a.weight_scale_inv is missing"},
        {"a NaN scale",
         &fp8,
         1,
         {".weight_scale_inv", LN_ST_F32, {1, 1}, .f = NAN},
         LN_ENUMERIC,
         "a.weight_scale_inv: expected finite"},
        {"an infinite scale",
         &fp8,
         1,
         {".weight_scale_inv", LN_ST_BF16, {1, 1}, .f = INFINITY},
         LN_ENUMERIC,
         "a.weight_scale_inv"},
        {"a scale whose weights exceed f32",
         &fp8,
         1,
         {".weight_scale_inv", LN_ST_F32, {1, 1}, .f = 1e37f},
         LN_ENUMERIC,
         "exceed f32"},
        {"exponent 255",
         &fp8,
         1,
         {".weight_scale_inv", LN_ST_F8_E8M0, {1, 1}, 0xff},
         LN_ENUMERIC,
         "a.weight_scale_inv"},
        {"another grid",
         &fp8,
         1,
         {".weight_scale_inv", LN_ST_F32, {2, 1}, .f = 1},
         LN_EINVALID,
         "a.weight_scale_inv: expected [1, 1]"},
        {"integer scales",
         &fp8,
         1,
         {".weight_scale_inv", LN_ST_I32, {1, 1}, 1},
         LN_EUNSUPPORTED,
         "a.weight_scale_inv is stored as I32"},
        {"another shape",
         &fp8,
         0,
         {".weight", LN_ST_F8_E4M3, {D, C / 2}, 0x38},
         LN_EINVALID,
         "a.weight: expected [16, 64]"},
        {"fnuz", &fp8, 0, {".weight", LN_ST_F8_E4M3FNUZ, {D, C}, 0x38}, LN_EUNSUPPORTED, "a.weight"},
    };
    check_faults(rows, LN_COUNT(rows));
}

static void test_gptq_faults(void **state) {
    (void)state;
    static const fault rows[] = {
        {"a group that does not exist",
         &gptq,
         3,
         {".g_idx", LN_ST_I32, {C}, 0, .bad_at = 3, .bad = 2},
         LN_EINVALID,
         "a.g_idx: column 2 is in group 2; expected 0 to 1"},
        {"a negative group",
         &gptq,
         3,
         {".g_idx", LN_ST_I32, {C}, 0, .bad_at = C, .bad = -1},
         LN_EINVALID,
         "a.g_idx: column 63"},
        {"too few groups",
         &gptq,
         3,
         {".g_idx", LN_ST_I32, {C - 1}, 0},
         LN_EINVALID,
         "a.g_idx: expected [64]"},
        {"groups in I64", &gptq, 3, {".g_idx", LN_ST_I64, {C}, 0}, LN_EUNSUPPORTED, "a.g_idx"},
        {"no scales", &gptq, 2, {NULL}, LN_EINVALID, "a.scales is missing"},
        {"no zero points", &gptq, 1, {NULL}, LN_EINVALID, "a.qzeros is missing"},
        {"a NaN scale",
         &gptq,
         2,
         {".scales", LN_ST_F16, {2, D}, .f = 2, .bad_at = 5, .bad = 0x7e00},
         LN_ENUMERIC,
         "a.scales: expected finite"},
        {"an infinite scale",
         &gptq,
         2,
         {".scales", LN_ST_F16, {2, D}, .f = INFINITY},
         LN_ENUMERIC,
         "a.scales"},
        {"other bits than the block's",
         &gptq,
         0,
         {".qweight", LN_ST_I32, {C / 4, D}, 0},
         LN_EINVALID,
         "a.qweight: 16 rows of words hold codes of 8 bits; quantization_config says 4"},
        {"no whole codes",
         &gptq,
         0,
         {".qweight", LN_ST_I32, {C / 8 + 1, D}, 0},
         LN_EINVALID,
         "a.qweight: 9 rows"},
        {"other outputs",
         &gptq,
         0,
         {".qweight", LN_ST_I32, {C / 8, D + 8}, 0},
         LN_EINVALID,
         "a.qweight: expected [8, 16]"},
        {"codes in a vector", &gptq, 0, {".qweight", LN_ST_I32, {C}, 0}, LN_EUNSUPPORTED, "a.qweight"},
        {"scales of other groups",
         &gptq,
         2,
         {".scales", LN_ST_F16, {1, D}, .f = 2},
         LN_EINVALID,
         "a.scales: expected [2, 16]"},
    };
    check_faults(rows, LN_COUNT(rows));
}

static void test_awq_and_packed_faults(void **state) {
    (void)state;
    static const fault rows[] = {
        {"awq, other outputs",
         &awq,
         0,
         {".qweight", LN_ST_I32, {C, D / 4}, 0},
         LN_EINVALID,
         "a.qweight: expected [64, 2]"},
        {"awq, no zero points", &awq, 1, {NULL}, LN_EINVALID, "a.qzeros is missing"},
        {"awq, an infinite scale",
         &awq,
         2,
         {".scales", LN_ST_F16, {2, D}, .f = INFINITY},
         LN_ENUMERIC,
         "a.scales: expected finite"},
        {"awq, scales of other groups",
         &awq,
         2,
         {".scales", LN_ST_F16, {1, D}, .f = 1},
         LN_EINVALID,
         "a.scales: expected [2, 16]"},
        {"packed, an infinite scale",
         &packed,
         1,
         {".weight_scale", LN_ST_BF16, {D, 2}, .f = INFINITY},
         LN_ENUMERIC,
         "a.weight_scale: expected finite"},
        {"awq, a NaN scale", &awq, 2, {".scales", LN_ST_F16, {2, D}, .f = NAN}, LN_ENUMERIC, "a.scales"},
        {"awq, scales as integers", &awq, 2, {".scales", LN_ST_I32, {2, D}, 0}, LN_EUNSUPPORTED, "a.scales"},
        {"packed, no scale", &packed, 1, {NULL}, LN_EINVALID, "a.weight_scale is missing"},
        {"packed, a NaN scale",
         &packed,
         1,
         {".weight_scale", LN_ST_BF16, {D, 2}, .f = NAN},
         LN_ENUMERIC,
         "a.weight_scale"},
        {"packed, another shape",
         &packed,
         2,
         {".weight_shape", LN_ST_I64, {2}, 0},
         LN_EINVALID,
         "a.weight_shape: expected [16, 64], found [0, 0]"},
        {"packed, scales of other groups",
         &packed,
         1,
         {".weight_scale", LN_ST_BF16, {D, 4}, .f = 1},
         LN_EINVALID,
         "a.weight_scale: expected [16, 2]"},
        {"packed, g_idx of another group",
         &packed,
         2,
         {".weight_g_idx", LN_ST_I32, {C}, 0, .bad_at = 1, .bad = 9},
         LN_EINVALID,
         "a.weight_g_idx: column 0 is in group 9"},
        {"packed as U8", &packed, 0, {".weight", LN_ST_U8, {D, C}, 0}, LN_EUNSUPPORTED, "a.weight"},
    };
    check_faults(rows, LN_COUNT(rows));
    static float out[D * C];
    matrix m = packed;
    ln_error err = {0};
    ln_encoding enc;
    m.block = GROUPED(",\"symmetric\":false");
    expect("no zero points", LN_EINVALID, "a.weight_zero_point is missing", read_matrix(&m, out, &enc, &err),
           &err);
    m.block = "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"g\":{\"targets\":[\"re:b\"],"
              "\"weights\":{\"num_bits\":4}}}}";
    expect("no target", LN_EINVALID, "a.weight_packed: is quantised, and no group",
           read_matrix(&m, out, &enc, &err), &err);
    m.block = "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"g\":{\"targets\":[\"re:(\"],"
              "\"weights\":{\"num_bits\":4}}}}";
    expect("a bad pattern", LN_EINVALID, "config_groups", read_matrix(&m, out, &enc, &err), &err);
    m.block = "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"g\":{\"targets\":[\"Linear\"],"
              "\"weights\":{\"num_bits\":8,\"type\":\"float\"}}}}";
    expect("floats", LN_EINVALID, "a.weight_packed: holds integers", read_matrix(&m, out, &enc, &err), &err);
}

/* Sizes that an encoding or the words of a file cannot hold are rejected when the tensors are found. */
static void test_sizes(void **state) {
    (void)state;
    static float out[D * C];
    static const matrix words = {GPTQ,
                                 {{".qweight", LN_ST_I32, {C / 8, 20}, 0x99},
                                  {".qzeros", LN_ST_I32, {2, 2}, 0x77},
                                  {".scales", LN_ST_F16, {2, 20}, .f = 2}},
                                 .rows = 20};
    static const matrix wide = {"{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"g\":{"
                                "\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":4,\"group_size\":49152,"
                                "\"symmetric\":false}}}}",
                                {{".weight_packed", LN_ST_I32, {1, 12288}, 0x99},
                                 {".weight_scale", LN_ST_F32, {1, 2}, .f = 2},
                                 {".weight_zero_point", LN_ST_I32, {1, 2}, 0x88}},
                                .rows = 1,
                                .columns = 98304};
    ln_error err = {0};
    ln_encoding enc;
    expect("zero points in parts of words", LN_EINVALID, "a.qzeros: zero points of 20 outputs in 4 bits",
           read_matrix(&words, out, &enc, &err), &err);
    expect("groups of more columns than an encoding has", LN_EUNSUPPORTED, "at most 32767 columns",
           read_matrix(&wide, out, &enc, &err), &err);
}

static const matrix mxfp8 = {"{\"mode\":\"mxfp8\"}",
                             {{".weight", LN_ST_U32, {D, C / 4}, 0x38}, {".scales", LN_ST_U8, {D, 2}, 128}}};
static const matrix nvfp4 = {"{\"mode\":\"nvfp4\",\"bits\":4,\"group_size\":16}",
                             {{".weight", LN_ST_U32, {D, C / 8}, 0x44}, {".scales", LN_ST_U8, {D, 4}, 0x38}}};

static void test_modes_of_floats(void **state) {
    (void)state;
    static float out[D * C];
    static const fault rows[] = {
        {"a NaN code",
         &mxfp8,
         0,
         {".weight", LN_ST_U32, {D, C / 4}, 0x38, .bad_at = 9, .bad = 0x387f3838},
         LN_ENUMERIC,
         "a.weight: expected numbers in fp8"},
        {"a NaN scale",
         &mxfp8,
         1,
         {".scales", LN_ST_U8, {D, 2}, 128, .bad_at = 3, .bad = 255},
         LN_ENUMERIC,
         "a.scales: expected finite"},
        {"a NaN scale in fp8",
         &nvfp4,
         1,
         {".scales", LN_ST_U8, {D, 4}, 0x38, .bad_at = 1, .bad = 0x7f},
         LN_ENUMERIC,
         "a.scales"},
        {"no scales", &mxfp8, 1, {NULL}, LN_EINVALID, "a.scales is missing"},
        {"scales in F16",
         &nvfp4,
         1,
         {".scales", LN_ST_F16, {D, 4}, .f = 1},
         LN_EUNSUPPORTED,
         "a.scales is stored as F16"},
        {"scales of other groups",
         &nvfp4,
         1,
         {".scales", LN_ST_U8, {D, 2}, 0x38},
         LN_EINVALID,
         "a.scales: expected [16, 4] for nvfp4"},
        {"a scale of the tensor",
         &nvfp4,
         2,
         {".global_scale", LN_ST_F32, {1}, .f = 1},
         LN_EUNSUPPORTED,
         "a.global_scale"},
        {"codes of 8 bits",
         &nvfp4,
         0,
         {".weight", LN_ST_U32, {D, C / 4}, 0},
         LN_EINVALID,
         "a.weight: expected [16, 8] for nvfp4"},
    };
    ln_encoding enc;
    check_faults(rows, LN_COUNT(rows));
    OK(read_matrix(&mxfp8, out, &enc, err));
    assert_true(enc.kind == LN_STORED_E4M3 && out[0] == 2); /* 1 times 2^(128 - 127) */
    OK(read_matrix(&nvfp4, out, &enc, err));
    assert_true(enc.kind == LN_STORED_E2M1 && out[D * C - 1] == 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),           cmocka_unit_test(test_encodings),
        cmocka_unit_test(test_zero_of_all_ones), cmocka_unit_test(test_fp8_faults),
        cmocka_unit_test(test_gptq_faults),      cmocka_unit_test(test_awq_and_packed_faults),
        cmocka_unit_test(test_modes_of_floats),  cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
