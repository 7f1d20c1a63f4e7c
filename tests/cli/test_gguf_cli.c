/* What a GGUF file of K-quants can do from outside: planned, scored, continued, answered in a batch and by
 * the server, trained, used with the adapter, as a directory and as a file, and quantised again. Each against
 * the same model as a file of F32 whose numbers are the dequantised ones. */
/* run: quick */
#include "../base/gguf_build.h"
#include "../server/server_test.h"

#include "base/file.h"
#include "checkpoint/gguf_blocks.h"
#include "io/adapter.h"

#include <math.h>
#include <stdarg.h>
#include <sys/stat.h>

enum { D = 256, V = 266, LAYERS = 2 };
static char dir[64], quants[80], dense[80], lora_quants[80], lora_dense[80], data[80], other[80];

/* ---- the two files ---- */

static uint32_t seed = 1;
static uint8_t next_byte(void) {
    seed = seed * 1664525u + 1013904223u;
    return (uint8_t)(seed >> 24);
}

/* Blocks of a type whose f16 scales, at these bytes, are between 2^-11 and 2^-9. */
static uint8_t *random_blocks(uint32_t type, int64_t elements, uint64_t *bytes) {
    static const struct {
        uint32_t type;
        int at, and_at;
    } scales[] = {{LN_GGML_Q2_K, 80, 82}, {LN_GGML_Q3_K, 108, 108}, {LN_GGML_Q4_K, 0, 2},
                  {LN_GGML_Q5_K, 0, 2},   {LN_GGML_Q6_K, 208, 208}, {LN_GGML_IQ4_XS, 0, 0},
                  {LN_GGML_Q8_0, 0, 0}};
    const ln_ggml_block block = ln_ggml_block_of(type);
    size_t row = 0;
    while (scales[row].type != type) row++;
    *bytes = (uint64_t)(elements / block.elements * block.bytes);
    uint8_t *out = malloc(*bytes);
    assert_non_null(out);
    for (uint64_t i = 0; i < *bytes; i++) out[i] = next_byte();
    for (uint8_t *b = out; b < out + *bytes; b += block.bytes) {
        b[scales[row].at + 1] = (uint8_t)(0x08 | (next_byte() & 3));
        b[scales[row].and_at + 1] = (uint8_t)(0x08 | (next_byte() & 3));
    }
    return out;
}

/* The numbers of blocks, row by row, as they are loaded. */
static float *numbers_of(uint32_t type, const uint8_t *blocks, int64_t rows, int64_t cols) {
    const ln_gguf_form *form = ln_gguf_form_of(type);
    const ln_ggml_block block = ln_ggml_block_of(type);
    uint8_t codes[1024], scales[256], offsets[256];
    float *out = malloc((size_t)(rows * cols) * sizeof *out);
    assert_non_null(out);
    for (int64_t r = 0; r < rows; r++) {
        const ln_encoded_rows row = {.data = codes, .scales = scales, .offsets = offsets};
        assert_true(form->row(blocks + r * (cols / block.elements * block.bytes), cols, codes, scales,
                              offsets));
        ln_encoding_decode(form->enc, &row, 0, cols, out + r * cols);
    }
    return out;
}

/* Adds a matrix to both files. */
static void add_matrix(gguf_build *q, gguf_build *f, const char *name, uint32_t type, int64_t rows) {
    uint64_t bytes;
    const uint64_t dims[] = {D, (uint64_t)rows};
    uint8_t *blocks = random_blocks(type, rows * D, &bytes);
    float *numbers = numbers_of(type, blocks, rows, D);
    gguf_tensor_of(q, name, type, 2, dims, blocks, bytes);
    gguf_tensor_of(f, name, LN_GGML_F32, 2, dims, numbers, (uint64_t)(rows * D) * sizeof *numbers);
    free(numbers);
    free(blocks);
}

static void add_keys(gguf_build *b) {
    static const struct {
        const char *key;
        uint32_t v;
    } keys[] = {{"llama.block_count", LAYERS},         {"llama.embedding_length", D},
                {"llama.feed_forward_length", D},      {"llama.attention.head_count", 4},
                {"llama.attention.head_count_kv", 2},  {"llama.context_length", 128},
                {"tokenizer.ggml.eos_token_id", V - 1}};
    const char *tokens[V], *merges[] = {"t h"};
    char text[V][16];
    int32_t types[V];
    for (int i = 0, more = 256; i < V; i++) { /* GPT-2's characters for bytes */
        const bool shown = (i > 32 && i < 127) || (i > 160 && i < 256 && i != 173);
        const int c = i < 256 ? shown ? i : more++ : 0;
        types[i] = i < 256 ? 1 : 3;
        if (i >= 256) (void)snprintf(text[i], sizeof text[i], "<s%d>", i);
        else if (c < 128) text[i][0] = (char)c, text[i][1] = 0;
        else text[i][0] = (char)(0xc0 | c >> 6), text[i][1] = (char)(0x80 | (c & 63)), text[i][2] = 0;
        tokens[i] = text[i];
    }
    types[256] = 1, tokens[256] = "th";
    gguf_text(b, "general.architecture", "llama");
    for (size_t i = 0; i < LN_COUNT(keys); i++) gguf_u32(b, keys[i].key, keys[i].v);
    gguf_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_text(b, "tokenizer.ggml.model", "gpt2");
    gguf_text(b, "tokenizer.ggml.pre", "gpt-2");
    gguf_texts(b, "tokenizer.ggml.tokens", tokens, V);
    gguf_texts(b, "tokenizer.ggml.merges", merges, 1);
    gguf_i32s(b, "tokenizer.ggml.token_type", types, V);
    gguf_text(b, "tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}");
}

static void write_file(gguf_build *b, const char *path) {
    size_t n;
    uint8_t *file = gguf_finish(b, &n);
    FILE *f = fopen(path, "wb");
    assert_true(f && fwrite(file, 1, n, f) == n && fclose(f) == 0);
    free(file);
}

static void write_models(void) {
    static const struct {
        const char *name;
        uint32_t type;
        int64_t rows;
    } matrices[] = {{"attn_q", LN_GGML_Q4_K, D},     {"attn_k", LN_GGML_Q5_K, D / 2},
                    {"attn_v", LN_GGML_Q6_K, D / 2}, {"attn_output", LN_GGML_Q3_K, D},
                    {"ffn_gate", LN_GGML_Q2_K, D},   {"ffn_up", LN_GGML_IQ4_XS, D},
                    {"ffn_down", LN_GGML_Q4_K, D}};
    static const char *const norms[] = {"attn_norm", "ffn_norm"};
    float ones[D];
    char name[64];
    gguf_build q = {0}, f = {0};
    for (int i = 0; i < D; i++) ones[i] = 1 + (float)(i % 5) / 8;
    add_keys(&q), add_keys(&f);
    add_matrix(&q, &f, "token_embd.weight", LN_GGML_Q6_K, V);
    add_matrix(&q, &f, "output.weight", LN_GGML_Q8_0, V);
    gguf_tensor_of(&q, "output_norm.weight", LN_GGML_F32, 1, (uint64_t[]){D}, ones, sizeof ones);
    gguf_tensor_of(&f, "output_norm.weight", LN_GGML_F32, 1, (uint64_t[]){D}, ones, sizeof ones);
    for (int l = 0; l < LAYERS; l++) {
        for (size_t i = 0; i < LN_COUNT(norms); i++) {
            (void)snprintf(name, sizeof name, "blk.%d.%s.weight", l, norms[i]);
            gguf_tensor_of(&q, name, LN_GGML_F32, 1, (uint64_t[]){D}, ones, sizeof ones);
            gguf_tensor_of(&f, name, LN_GGML_F32, 1, (uint64_t[]){D}, ones, sizeof ones);
        }
        for (size_t i = 0; i < LN_COUNT(matrices); i++) {
            (void)snprintf(name, sizeof name, "blk.%d.%s.weight", l, matrices[i].name);
            add_matrix(&q, &f, name, matrices[i].type, matrices[i].rows);
        }
    }
    write_file(&q, quants);
    write_file(&f, dense);
}

/* ---- the command ---- */

/* Runs the command and returns its output, which the caller frees. */
static char *output_of(const char *arguments) {
    char command[700];
    size_t n = 0, got;
    char *out = calloc(1, 1 << 20);
    assert_non_null(out);
    (void)snprintf(command, sizeof command, LN_BIN "/linnet %s 2>%s/stderr", arguments, dir);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    while ((got = fread(out + n, 1, (1 << 20) - 1 - n, p)) > 0) n += got;
    if (pclose(p) != 0) fail_msg("failed: %s", command);
    return out;
}
#define OUTPUT(...) output_of(formatted(__VA_ARGS__))
static const char *formatted(const char *form, ...) {
    static char text[600];
    va_list args;
    va_start(args, form);
    (void)vsnprintf(text, sizeof text, form, args);
    va_end(args);
    return text;
}
static json_t *object_of(char *text) {
    json_t *o = parse(text, strlen(text));
    free(text);
    return o;
}

static double score_of(const char *model, const char *more) {
    json_t *o =
        object_of(OUTPUT("score %s --ids 5,70,33,12,200,8,99,41 --numerics exact --json %s", model, more));
    const double sum = json_number_value(json_object_get(o, "sum_logprob"));
    assert_true(sum < -1 && sum > -1000);
    json_decref(o);
    return sum;
}
static void same_scores(const char *more_quants, const char *more_dense) {
    const double a = score_of(quants, more_quants), b = score_of(dense, more_dense);
    if (fabs(a - b) > 1e-5 * fabs(b)) fail_msg("%.9g, and %.9g dequantised", a, b);
}

static void test_score(void **state) {
    (void)state;
    same_scores("", "");
}

/* The plan counts the bytes that a run has. */
static void test_plan(void **state) {
    (void)state;
    json_t *plan = object_of(OUTPUT("plan %s --json", quants)),
           *whole = object_of(OUTPUT("plan %s --json", dense));
    const int64_t bytes = json_integer_value(json_object_get(plan, "weights_bytes"));
    assert_true(bytes > 0 && 3 * bytes < json_integer_value(json_object_get(whole, "weights_bytes")));
    assert_true(json_is_true(json_object_get(plan, "fits")));
    json_decref(plan);
    json_decref(whole);
}

/* run, a batch and the server give the same text. The server calls the model by the name of its file. */
static void test_answers(void **state) {
    (void)state;
    static const char body[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"the one\"}],\"temperature\":0,"
        "\"max_tokens\":6}";
    json_t *run = object_of(OUTPUT("run %s 'the one' -n 6 --temp 0 --numerics exact --json", quants)),
           *of_dense = object_of(OUTPUT("run %s 'the one' -n 6 --temp 0 --numerics exact --json", dense));
    const char *text = json_string_value(json_object_get(run, "text"));
    assert_true(text && text[0]);
    assert_true(json_equal(json_object_get(run, "ids"), json_object_get(of_dense, "ids")));
    server_model = quants;
    START("--numerics", "exact");
    json_t *answer = answer_to("/v1/chat/completions", body);
    text_is(answer, "choices.0.message.content", text);
    json_decref(answer);
    reply r = call("GET", "/v1/models", "", NULL);
    json_t *models = json_of(&r);
    text_is(models, "data.0.id", strrchr(quants, '/') + 1);
    json_decref(models);
    drop_reply(&r);
    r = post("/v1/chat/completions", "{\"model\":\"other\",\"messages\":[]}");
    assert_int_equal(r.status, 404);
    assert_non_null(strstr(r.body.data, formatted("known: %s\"", strrchr(quants, '/') + 1)));
    drop_reply(&r);
    assert_int_equal(stop(), 0);
    FILE *f = fopen(data, "w");
    assert_non_null(f);
    fprintf(f, "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":%s}\n",
            body);
    assert_int_equal(fclose(f), 0);
    free(OUTPUT("batch %s %s -o %s/out.jsonl --numerics exact", quants, data, dir));
    json_t *row;
    ln_error err;
    assert_int_equal(ln_json_load_file(&row, formatted("%s/out.jsonl", dir), 1 << 20, &err), LN_OK);
    text_is(row, "response.body.choices.0.message.content", text);
    json_decref(row);
    json_decref(run);
    json_decref(of_dense);
}

/* Loss and norm of the gradient of each step on quantised weights are those on the dequantised ones, and so
 * is what the adapter does. */
static void test_train(void **state) {
    (void)state;
    FILE *f = fopen(data, "w");
    assert_non_null(f);
    for (int i = 0; i < 4; i++)
        fprintf(f, "{\"prompt\":\"one %d \",\"completion\":\"the answer is %d\"}\n", i, i);
    assert_int_equal(fclose(f), 0);
    char *a = OUTPUT("train %s --data %s -o %s --steps 3 --lr 1e-3 --json", quants, data, lora_quants),
         *b = OUTPUT("train %s --data %s -o %s --steps 3 --lr 1e-3 --json", dense, data, lora_dense);
    static const char *const fields[] = {"\"loss\":", "\"grad_norm\":"};
    for (size_t i = 0; i < LN_COUNT(fields); i++) {
        int n = 0;
        for (const char *p = a, *q = b; (p = strstr(p, fields[i])) && (q = strstr(q, fields[i])); n++) {
            const double x = atof(p += strlen(fields[i])), y = atof(q += strlen(fields[i]));
            assert_true(y > 0);
            if (fabs(x - y) > 1e-3 * y)
                fail_msg("step %d: %s%.9g, and %.9g dequantised", n + 1, fields[i], x, y);
        }
        assert_true(n >= 3);
    }
    free(a);
    free(b);
    char more[100];
    (void)snprintf(more, sizeof more, "--adapter %s", lora_quants);
    same_scores(more, more);
    assert_true(fabs(score_of(quants, more) - score_of(quants, "")) > 1e-3);
}

/* Writes an adapter as llama.cpp's converter does: rows of q and k in pairs, as in the model. */
static void write_lora(const char *from, const char *path, const char *type) {
    static const struct {
        const char *module, *stem;
        int heads;
    } names[] = {{"self_attn.q_proj", "attn_q", 4}, {"self_attn.k_proj", "attn_k", 2},
                 {"self_attn.v_proj", "attn_v", 0}, {"self_attn.o_proj", "attn_output", 0},
                 {"mlp.gate_proj", "ffn_gate", 0},  {"mlp.up_proj", "ffn_up", 0},
                 {"mlp.down_proj", "ffn_down", 0}};
    ln_adapter_file *a;
    ln_error err;
    gguf_build b = {0};
    if (ln_adapter_file_open(&a, from, &err) != LN_OK) fail_msg("%s", err.message);
    gguf_text(&b, "general.architecture", "llama");
    gguf_text(&b, "general.type", "adapter");
    gguf_text(&b, "adapter.type", type);
    gguf_f32(&b, "adapter.lora.alpha", (float)(a->modules[0].scale * (double)a->modules[0].rank));
    for (size_t i = 0; i < a->n; i++) {
        const ln_adapter_module *m = &a->modules[i];
        const size_t r = (size_t)m->rank, n_in = (size_t)m->n_in, n_out = (size_t)m->n_out;
        float *A = calloc(r * n_in, sizeof *A), *B = calloc(n_out * r, sizeof *B),
              *stored = calloc(n_out * r, sizeof *B);
        char name[64];
        size_t k = 0;
        assert_true(A && B && stored);
        while (k < LN_COUNT(names) && !strstr(m->path, names[k].module)) k++;
        assert_true(k < LN_COUNT(names));
        ln_adapter_file_read(a, m, A, B);
        for (size_t row = 0; row < n_out; row++) {
            const size_t E = names[k].heads ? n_out / (size_t)names[k].heads : 0, e = E ? row % E : 0;
            const size_t to = !E ? row : row - e + (e < E / 2 ? 2 * e : 2 * (e - E / 2) + 1);
            memcpy(stored + to * r, B + row * r, r * sizeof *B);
        }
        (void)snprintf(name, sizeof name, "blk.%d.%s.weight.lora_a", atoi(m->path + strlen("layers.")),
                       names[k].stem);
        gguf_tensor_of(&b, name, LN_GGML_F32, 2, (uint64_t[]){n_in, r}, A, r * n_in * sizeof *A);
        name[strlen(name) - 1] = 'b';
        gguf_tensor_of(&b, name, LN_GGML_F32, 2, (uint64_t[]){r, n_out}, stored, r * n_out * sizeof *B);
        free(A), free(B), free(stored);
    }
    ln_adapter_file_close(&a);
    write_file(&b, path);
}

/* LoRA in a GGUF file does what the adapter does that it was made of. */
static void test_lora_file(void **state) {
    (void)state;
    char path[100], more[120];
    (void)snprintf(path, sizeof path, "%s/lora.gguf", dir);
    write_lora(lora_quants, path, "lora");
    (void)snprintf(more, sizeof more, "--adapter %s", lora_quants);
    const double want = score_of(quants, more);
    (void)snprintf(more, sizeof more, "--adapter %s", path);
    const double got = score_of(quants, more);
    if (got != want) fail_msg("%.9g, and %.9g with the adapter itself", got, want);
    free(OUTPUT("show %s --adapter %s", quants, path));
    write_lora(lora_quants, path, "control");
    ln_adapter_file *a;
    ln_error err;
    assert_int_equal(ln_adapter_file_open(&a, path, &err), LN_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "expected LoRA"));
    assert_int_equal(ln_adapter_file_open(&a, quants, &err), LN_EUNSUPPORTED);
}

/* Quantised again it is a directory that opens. */
static void test_quantise(void **state) {
    (void)state;
    free(OUTPUT("quantize %s -o %s --bits 8 --group 32", quants, other));
    const double a = score_of(other, ""), b = score_of(quants, "");
    assert_true(fabs(a - b) < 0.05 * fabs(b));
}

static int make_dir(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/linnet-gguf-cli-%ld", (long)getpid());
    assert_int_equal(mkdir(dir, 0700), 0);
    const struct {
        char *path;
        const char *leaf;
    } paths[] = {{quants, "q.gguf"}, {dense, "f.gguf"},  {lora_quants, "lq"},
                 {lora_dense, "lf"}, {data, "in.jsonl"}, {other, "quantised"}};
    for (size_t i = 0; i < LN_COUNT(paths); i++)
        (void)snprintf(paths[i].path, 80, "%s/%s", dir, paths[i].leaf);
    write_models();
    return 0;
}
static int remove_dir(void **state) {
    (void)state;
    char command[100];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_score),
                                       cmocka_unit_test(test_plan),
                                       cmocka_unit_test_teardown(test_answers, kill_server),
                                       cmocka_unit_test(test_train),
                                       cmocka_unit_test(test_lora_file),
                                       cmocka_unit_test(test_quantise)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
