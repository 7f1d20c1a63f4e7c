/* Embeddings of directories with the files of sentence-transformers: the vectors that it computes
 * (sentence_cases.jsonl, written by tools/golden_sentence.py), what is rejected by name, what is warned
 * about.
 *
 * usage: test_sentence [FILE]   cases from another file, of `tools/golden_sentence.py --random` */
/* run: quick */
#include "../common.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOLDEN LN_ROOT "/tests/golden/"
#define MODEL  "llama-plain-f32"
enum { MOST_VALUES = 512 };

static const char *cases_path = LN_ROOT "/tests/engine/sentence_cases.jsonl";
static char dir[64];
static ln_str warnings;

static void on_log(void *user, ln_level level, const char *text) {
    (void)user;
    if (level == LN_LOG_WARN) ln_str_addf(&warnings, "%s\n", text);
}

/* ---- directories ---- */

static void make_dirs(char *path) {
    for (char *p = path + strlen(dir) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        (void)mkdir(path, 0700);
        *p = '/';
    }
}

static void write_bytes(const char *name, const void *data, size_t n) {
    char path[300];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    make_dirs(path);
    (void)unlink(path); /* a link to the golden model's file */
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, n), n);
    (void)close(fd);
}

static void write_text(const char *name, const char *text) { write_bytes(name, text, strlen(text)); }

static void write_base64(const char *name, const char *text) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char *out = malloc(strlen(text));
    size_t n = 0;
    uint32_t bits = 0;
    for (size_t i = 0; text[i] && text[i] != '='; i++) {
        bits = bits << 6 | (uint32_t)(strchr(digits, text[i]) - digits);
        if (i % 4 > 0) out[n++] = (unsigned char)(bits >> (6 - 2 * (i % 4)));
    }
    write_bytes(name, out, n);
    free(out);
}

/* Links to the golden model `base`, which has no files of sentence-transformers. */
static void make_dir_of(const char *base) {
    static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json"};
    char to[128], from[400];
    (void)snprintf(dir, sizeof dir, "/tmp/linnet-sentence-XXXXXX");
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < LN_COUNT(names); i++) {
        (void)snprintf(from, sizeof from, GOLDEN "%s/%s", base, names[i]);
        (void)snprintf(to, sizeof to, "%s/%s", dir, names[i]);
        assert_int_equal(symlink(from, to), 0);
    }
}

static void make_dir(void) { make_dir_of(MODEL); }

static void remove_dir(void) {
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

/* ---- calls ---- */

typedef struct answer {
    ln_status status;
    char error[400];
    int64_t n_values, n_tokens;
    float values[MOST_VALUES];
} answer;

static ln_status keep(void *user, const ln_embedding *e, ln_error *err) {
    answer *a = (answer *)user + e->index;
    (void)err;
    a->status = e->status;
    a->n_values = e->n_values;
    a->n_tokens = e->n_tokens;
    assert_true(e->n_values <= MOST_VALUES);
    if (e->error) (void)snprintf(a->error, sizeof a->error, "%s", e->error);
    if (e->values) memcpy(a->values, e->values, (size_t)e->n_values * sizeof(float));
    return LN_OK;
}

typedef struct opened {
    ln_model *model;
    ln_engine *engine;
    ln_info info;
} opened;

static opened open_dir(void) {
    ln_options o = ln_options_default();
    opened x = {.info = {.size = sizeof x.info}};
    o.n_threads = 2, o.n_ctx = 256;
    OK(ln_model_open(&x.model, dir, &o, err));
    OK(ln_model_info(x.model, &x.info, err));
    OK(ln_engine_open(&x.engine, x.model, &o, err));
    return x;
}

static void close_dir(opened *x) {
    ln_engine_close(&x->engine);
    ln_model_close(&x->model);
}

static ln_prompt text_of(const char *text) {
    return (ln_prompt){.size = sizeof(ln_prompt), .text = text, .text_bytes = strlen(text)};
}

/* ---- recorded vectors ---- */

static void check_vector(const json_t *c, const char *name, size_t i, const answer *a) {
    const json_t *want = json_array_get(json_object_get(c, "vectors"), i);
    const double bound = json_number_value(json_object_get(c, "bound"));
    if (a->status != LN_OK) fail_msg("%s, text %zu: %s", name, i, a->error);
    if ((size_t)a->n_values != json_array_size(want))
        fail_msg("%s, text %zu: %lld values, expected %zu", name, i, (long long)a->n_values,
                 json_array_size(want));
    for (size_t d = 0; d < json_array_size(want); d++) {
        const double w = json_number_value(json_array_get(want, d)), got = (double)a->values[d];
        /* in addition to the bound, the roundings to float and to the 9 digits of the file */
        if (!(fabs(got - w) <= bound + fabs(w) * 7e-8 + 1e-30))
            fail_msg("%s, text %zu, value %zu: %.9g, expected %.9g (%.3g)", name, i, d, got, w, bound);
    }
}

static void check_case(const json_t *c) {
    const char *name = json_string_value(json_object_get(c, "name")), *file;
    const json_t *texts = json_object_get(c, "texts"), *unit = json_object_get(c, "normalize");
    json_t *content;
    ln_prompt prompts[16];
    answer answers[16] = {0};
    ln_embed_options o = ln_embed_options_default();
    make_dir_of(json_string_value(json_object_get(c, "base")));
    json_object_foreach(json_object_get(c, "files"), file, content) {
        if (strstr(file, ".safetensors")) write_base64(file, json_string_value(content));
        else write_text(file, json_string_value(content));
    }
    const size_t n = json_array_size(texts);
    for (size_t i = 0; i < n; i++) prompts[i] = text_of(json_string_value(json_array_get(texts, i)));
    o.prompt_name = json_string_value(json_object_get(c, "prompt_name"));
    o.dimensions = json_integer_value(json_object_get(c, "dimensions"));
    if (json_is_boolean(unit)) o.normalize = json_is_true(unit) ? LN_UNIT_LENGTH_YES : LN_UNIT_LENGTH_NO;
    opened x = open_dir();
    ln_error e = {0};
    if (ln_embed(x.engine, prompts, n, &o, keep, answers, NULL, &e) != LN_OK)
        fail_msg("%s: %s", name, e.message);
    for (size_t i = 0; i < n; i++) check_vector(c, name, i, &answers[i]);
    if (!o.dimensions) assert_int_equal(x.info.embedding_width, answers[0].n_values);
    close_dir(&x);
    remove_dir();
}

static void vectors_are_those_of_sentence_transformers(void **state) {
    (void)state;
    char *line = NULL;
    size_t cap = 0, n = 0;
    FILE *in = fopen(cases_path, "r");
    assert_non_null(in);
    while (getline(&line, &cap, in) > 0) {
        json_t *c = json_loads(line, JSON_ALLOW_NUL, NULL);
        assert_non_null(c);
        check_case(c);
        json_decref(c);
        n++;
    }
    assert_true(n > 10);
    free(line);
    (void)fclose(in);
}

/* ---- what is rejected ---- */

#define MODULE(name, path, type)                                                                           \
    "{\"idx\":0,\"name\":\"" name "\",\"path\":\"" path "\",\"type\":\"sentence_transformers.models." type \
    "\"}"
#define FIRST MODULE("0", "", "Transformer")
#define POOL  MODULE("1", "1_Pooling", "Pooling")
#define BERT  "sentence_bert_config.json"
#define WHOLE "config_sentence_transformers.json"

static const struct refusal {
    const char *modules, *file, *text; /* modules NULL: Transformer and Pooling; file NULL: none is added */
    ln_status status;
    const char *says;
} refusals[] = {
    /* modules.json */
    {"{}", NULL, NULL, LN_EINVALID, "modules.json: expected a list"},
    {"[]", NULL, NULL, LN_EINVALID, "modules.json: expected a list"},
    {"[", NULL, NULL, LN_EINVALID, "modules.json"},
    {"[" FIRST "]", NULL, NULL, LN_EUNSUPPORTED, "no Pooling module"},
    {"[" POOL "]", NULL, NULL, LN_EUNSUPPORTED, "Pooling"},
    {"[" FIRST "," POOL "," MODULE("2", "1_Pooling", "Pooling") "]", NULL, NULL, LN_EUNSUPPORTED,
     "second Pool"},
    {"[" FIRST "," POOL "," MODULE("1", "", "Normalize") "]", NULL, NULL, LN_EINVALID, "found '1' twice"},
    {"[" FIRST "," MODULE("1", "q", "Pooling") "]", NULL, NULL, LN_EIO, "q/config.json"},
    {"[" FIRST "," MODULE("1", "../q", "Pooling") "]", NULL, NULL, LN_EINVALID,
     "[1].path: expected a path within"},
    {"[" FIRST "," MODULE("1", "/tmp", "Pooling") "]", NULL, NULL, LN_EINVALID, "[1].path"},
    {"[" FIRST "," MODULE("1", "a/../../q", "Pooling") "]", NULL, NULL, LN_EINVALID, "[1].path"},
    {"[" MODULE("0", "0_Transformer", "Transformer") "," POOL "]", NULL, NULL, LN_EUNSUPPORTED,
     "Transformer in another directory"},
    {"[" FIRST "," POOL "," MODULE("2", "", "CNN") "]", NULL, NULL, LN_EUNSUPPORTED, "'CNN'"},
    {"[" FIRST "," MODULE("2", "", "WeightedLayerPooling") "," POOL "]", NULL, NULL, LN_EUNSUPPORTED,
     "WeightedLayerPooling"},
    {"[" FIRST "," POOL ",{\"idx\":1,\"name\":\"2\",\"path\":\"\",\"type\":\"custom.Normalize\"}]", NULL,
     NULL, LN_EUNSUPPORTED, "'custom.Normalize'"},
    {"[" FIRST "," POOL "," MODULE("2", "d", "Dense") "]", NULL, NULL, LN_EIO, "d/config.json"},
    {"[" FIRST "," POOL "," MODULE("2", "d", "Dense") "]", "d/config.json", "{\"in_features\":31}",
     LN_EINVALID, "in_features: expected 32, the values of the module before, found 31"},
    {"[" FIRST "," POOL "," MODULE("2", "d", "Dense") "]", "d/config.json",
     "{\"in_features\":32,\"out_features\":4}", LN_EIO, "d/model.safetensors"},
    {"[" FIRST "," POOL "," MODULE("2", "d", "Dense") "]", "d/config.json",
     "{\"in_features\":32,\"out_features\":4,\"activation_function\":\"torch.nn.modules.activation.GLU\"}",
     LN_EUNSUPPORTED, "activation_function: expected Identity"},
    {"[" FIRST "," POOL "," MODULE("2", "d", "Dense") "]", "d/config.json",
     "{\"module_input_name\":\"token_embeddings\"}", LN_EUNSUPPORTED, "module_input_name"},
    {"[" FIRST "," POOL "," MODULE("2", "d", "Normalize") "]", "d/config.json",
     "{\"module_output_name\":\"other\"}", LN_EUNSUPPORTED, "module_output_name"},
    /* the pooling */
    {NULL, "1_Pooling/config.json", "{\"pooling_mode\":\"median\"}", LN_EINVALID,
     "pooling_mode: expected cls"},
    {NULL, "1_Pooling/config.json", "{\"pooling_mode\":[]}", LN_EINVALID, "pooling_mode: expected 1 to 16"},
    {NULL, "1_Pooling/config.json", "{\"pooling_mode\":[3]}", LN_EINVALID, "pooling_mode: expected a text"},
    {NULL, "1_Pooling/config.json", "{\"pooling_mode_mean_tokens\":1}", LN_EINVALID,
     "pooling_mode_mean_tokens: expected true or false, found 1"},
    {NULL, "1_Pooling/config.json", "{\"include_prompt\":null}", LN_EINVALID, "include_prompt"},
    {NULL, "1_Pooling/config.json", "{\"word_embedding_dimension\":33}", LN_EINVALID, "expected 32"},
    {NULL, "1_Pooling/config.json", "[", LN_EINVALID, "1_Pooling/config.json"},
    /* the whole model */
    {NULL, WHOLE, "{\"default_prompt_name\":\"x\",\"prompts\":{\"y\":\"\"}}", LN_EINVALID,
     "default_prompt_name: expected the name of a prompt (y, query, document), found 'x'"},
    {NULL, WHOLE, "{\"prompts\":[]}", LN_EINVALID, "prompts: expected an object"},
    {NULL, WHOLE, "{\"prompts\":{\"a\":1}}", LN_EINVALID, "prompts.a: expected a text, found 1"},
    {NULL, WHOLE, "{\"truncate_dim\":0}", LN_EINVALID, "truncate_dim"},
    {NULL, WHOLE, "{\"model_type\":\"SparseEncoder\"}", LN_EUNSUPPORTED, "model_type"},
    /* the transformer */
    {NULL, BERT, "{\"max_seq_length\":\"9\"}", LN_EINVALID, "max_seq_length"},
    {NULL, BERT, "{\"transformer_task\":\"text-generation\"}", LN_EUNSUPPORTED, "transformer_task"},
    {NULL, BERT, "{\"modality_config\":{\"message\":{}}}", LN_EUNSUPPORTED, "messages of a chat template"},
    {NULL, BERT,
     "{\"modality_config\":{\"text\":{\"method\":\"forward\",\"method_output_name\":\"logits\"}}}",
     LN_EUNSUPPORTED, "last_hidden_state"},
    {NULL, BERT, "{\"config_args\":{\"is_causal\":false}}", LN_EUNSUPPORTED, "config_args.is_causal"},
    {NULL, BERT, "{\"config_kwargs\":{\"rope_theta\":3}}", LN_EUNSUPPORTED, "config_kwargs.rope_theta"},
    {NULL, BERT, "{\"tokenizer_name_or_path\":\"x\"}", LN_EUNSUPPORTED, "tokenizer_name_or_path"},
    {NULL, BERT, "{\"processing_kwargs\":{\"text\":{\"truncation\":false}}}", LN_EUNSUPPORTED,
     "text.truncation"},
};

static void make_model(const struct refusal *r) {
    make_dir();
    write_text("modules.json", r->modules ? r->modules : "[" FIRST "," POOL "]");
    write_text("1_Pooling/config.json", "{\"pooling_mode\":\"mean\",\"embedding_dimension\":32}");
    if (r->file) write_text(r->file, r->text);
}

/* A request that names a way of pooling gets it without the files, and the model can be opened in any case.
 */
static void what_is_not_computed_is_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(refusals); i++) {
        const struct refusal *r = &refusals[i];
        const ln_prompt p = text_of("Hello");
        ln_embed_options o = ln_embed_options_default();
        answer a = {0};
        ln_error e = {0};
        make_model(r);
        opened x = open_dir();
        const ln_status st = ln_embed(x.engine, &p, 1, NULL, keep, &a, NULL, &e);
        if (st != r->status || !strstr(e.message, r->says))
            fail_msg("row %zu: status %d, expected %d: %s", i, (int)st, (int)r->status, e.message);
        assert_int_equal(x.info.embedding_width, 0);
        o.pooling = LN_POOLING_MEAN;
        OK(ln_embed(x.engine, &p, 1, &o, keep, &a, NULL, err));
        assert_int_equal(a.n_values, 32);
        close_dir(&x);
        remove_dir();
    }
}

/* ---- what is warned about ---- */

static void keys_that_are_not_applied_are_named(void **state) {
    (void)state;
    static const struct refusal rows[] = {
        {NULL, WHOLE, "{\"similarity_fn_name\":\"maxsim\"}", 0, "similarity_fn_name: expected cosine"},
        {NULL, WHOLE, "{\"new_key\":3}", 0, "does not know and does not apply: new_key"},
        {NULL, "1_Pooling/config.json", "{\"pooling_mode\":\"mean\",\"extra\":1}", 0, "extra"},
        {NULL, BERT, "{\"query_length\":32}", 0, "query_length 32 (the longest text of encode_query)"},
        {NULL, BERT, "{\"model_args\":{\"rope_theta\":3}}", 0, "model_args.rope_theta"},
        {NULL, BERT, "{\"max_seq_length\":3}", 0, "1 of 1 texts to embed were cut to 3 tokens"},
        {NULL, WHOLE, "{}", 0, ""},
        {NULL, BERT, "{\"query_length\":null,\"max_seq_length\":200,\"unpad_inputs\":true}", 0, ""},
    };
    ln_log_set(on_log, NULL);
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        const ln_prompt p = text_of("Hello");
        answer a = {0};
        make_model(&rows[i]);
        opened x = open_dir();
        warnings.len = 0;
        OK(ln_embed(x.engine, &p, 1, NULL, keep, &a, NULL, err));
        const char *said = warnings.len ? warnings.data : "";
        if (*rows[i].says ? !strstr(said, rows[i].says) : *said) fail_msg("row %zu: %s", i, said);
        close_dir(&x);
        remove_dir();
    }
    ln_log_set(NULL, NULL);
    ln_str_free(&warnings);
}

/* Token ids and conversations get no prompt: the default one is warned about, one that is asked for is
 * rejected. A prompt of another name is rejected with the names. */
static void prompts_go_before_texts(void **state) {
    (void)state;
    static const struct refusal r = {
        NULL, WHOLE, "{\"prompts\":{\"query\":\"Find: \"},\"default_prompt_name\":\"query\"}", 0, NULL};
    static const int32_t ids[] = {72, 101};
    const ln_prompt p[2] = {{.size = sizeof *p, .ids = ids, .n_ids = 2}, text_of("He")};
    ln_embed_options o = ln_embed_options_default();
    answer a[2] = {0}, plain[2] = {0};
    ln_error e = {0};
    ln_log_set(on_log, NULL);
    make_model(&r);
    opened x = open_dir();
    OK(ln_embed(x.engine, p, 2, NULL, keep, a, NULL, err));
    assert_non_null(strstr(warnings.data, "1 of 2 inputs to embed were token ids"));
    assert_int_equal(a[0].n_tokens, 2);
    assert_true(a[1].n_tokens > 6);
    o.prompt_name = "document";
    OK(ln_embed(x.engine, p, 2, &o, keep, plain, NULL, err));
    assert_memory_equal(plain[0].values, a[0].values, 32 * sizeof(float));
    assert_int_equal(plain[1].n_tokens, 2);
    o.prompt_name = "query";
    OK(ln_embed(x.engine, p, 2, &o, keep, plain, NULL, err));
    assert_int_equal(plain[0].status, LN_EUSAGE);
    assert_non_null(strstr(plain[0].error, "prompt_name: expected texts"));
    assert_memory_equal(plain[1].values, a[1].values, 32 * sizeof(float));
    o.prompt_name = "title";
    assert_int_equal(ln_embed(x.engine, p, 2, &o, keep, plain, NULL, &e), LN_EUSAGE);
    assert_non_null(strstr(e.message, "prompt_name: expected the name of a prompt (query, document)"));
    close_dir(&x);
    remove_dir();
    ln_log_set(NULL, NULL);
    ln_str_free(&warnings);
}

/* Without modules.json: the last token of a class with a causal head, the mean of any other. */
static void a_directory_without_modules(void **state) {
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        char *text;
        size_t bytes;
        const ln_prompt p = text_of("Hello world");
        ln_embed_options o = ln_embed_options_default();
        answer a = {0}, want = {0};
        make_dir();
        OK(ln_read_file(GOLDEN MODEL "/config.json", 1 << 20, &text, &bytes, err));
        char *name = strstr(text, "ForCausalLM");
        assert_non_null(name);
        if (!causal) {
            memmove(name + 5, name + 11, strlen(name + 11) + 1);
            memcpy(name, "Model", 5);
        }
        write_text("config.json", text);
        ln_free(text);
        opened x = open_dir();
        OK(ln_embed(x.engine, &p, 1, NULL, keep, &a, NULL, err));
        o.pooling = causal ? LN_POOLING_LAST : LN_POOLING_MEAN;
        OK(ln_embed(x.engine, &p, 1, &o, keep, &want, NULL, err));
        assert_memory_equal(a.values, want.values, 32 * sizeof(float));
        close_dir(&x);
        remove_dir();
    }
}

/* A quantised copy has the modules of its source. */
static void a_converted_model_keeps_its_modules(void **state) {
    (void)state;
    static const char *const files[] = {"sub/pooling/config.json", BERT, WHOLE, "modules.json"};
    const struct refusal r = {"[" FIRST "," MODULE("1", "sub/pooling", "Pooling") "]",
                              "sub/pooling/config.json",
                              "{\"pooling_mode\":[\"max\",\"mean\"],\"embedding_dimension\":32}", 0, NULL};
    ln_quantize_options o = ln_quantize_options_default();
    char source[64], path[128], other[128];
    char *text, *same;
    size_t n, m;
    make_model(&r);
    write_text(BERT, "{\"max_seq_length\":20}");
    write_text(WHOLE, "{\"truncate_dim\":40}");
    memcpy(source, dir, sizeof source);
    (void)snprintf(path, sizeof path, "%s/q", source);
    o.bits = 8, o.group = 32;
    OK(ln_quantize(source, path, &o, NULL, NULL, err));
    memcpy(dir, path, strlen(path) + 1);
    opened x = open_dir();
    assert_int_equal(x.info.embedding_width, 40);
    close_dir(&x);
    for (size_t i = 0; i < LN_COUNT(files); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", source, files[i]);
        (void)snprintf(other, sizeof other, "%s/%s", dir, files[i]);
        OK(ln_read_file(path, 1 << 20, &text, &n, err));
        OK(ln_read_file(other, 1 << 20, &same, &m, err));
        assert_string_equal(text, same);
        ln_free(text);
        ln_free(same);
    }
    memcpy(dir, source, sizeof source);
    remove_dir();
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(vectors_are_those_of_sentence_transformers),
                                       cmocka_unit_test(what_is_not_computed_is_refused_by_name),
                                       cmocka_unit_test(keys_that_are_not_applied_are_named),
                                       cmocka_unit_test(prompts_go_before_texts),
                                       cmocka_unit_test(a_directory_without_modules),
                                       cmocka_unit_test(a_converted_model_keeps_its_modules)};
    if (argc > 1) cases_path = argv[1];
    return argc > 1 ? cmocka_run_group_tests_name("cases", (struct CMUnitTest[]){tests[0]}, NULL, NULL)
                    : cmocka_run_group_tests(tests, NULL, NULL);
}
