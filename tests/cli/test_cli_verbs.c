/* Tests of the other verbs: output and files of score, attention, tokenize, show, plan and quantize. */
/* run: slow */
#include "spawn.h"

#include <sys/resource.h>

/* ---- score, attention ---- */

/* Finds tensor `name` in a safetensors file; writes its shape and returns a pointer to its data. */
static const float *tensor(const char *data, size_t bytes, const char *name, int64_t shape[3]) {
    uint64_t n = 0;
    ln_error err;
    json_t *root;
    assert_true(bytes > 8);
    memcpy(&n, data, 8);
    assert_true(n < bytes && n % 8 == 0);
    if (ln_json_load(&root, "header", data + 8, n, &err)) fail_msg("%s", err.message);
    const json_t *t = json_object_get(root, name);
    if (!t) fail_msg("no tensor %s", name);
    assert_string_equal(text_of(t, "dtype"), "F32");
    size_t product = 4;
    for (size_t i = 0; i < json_array_size(json_object_get(t, "shape")); i++) {
        shape[i] = json_integer_value(json_array_get(json_object_get(t, "shape"), i));
        product *= (size_t)shape[i];
    }
    json_int_t from = json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 0));
    json_int_t to = json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 1));
    assert_int_equal(to - from, product);
    assert_true((size_t)to + 8 + n <= bytes);
    json_decref(root);
    return (const float *)(const void *)(data + 8 + n + from);
}

static void scores_and_logits_agree(void **state) {
    (void)state;
    char *file = at(0, "logits.st");
    json_t *o = json_of(RUN(S("score"), S(SMALL), S("--ids"), S("5,6,7,8"), S("--json"), S("--top"), S("3"),
                            S("--logits"), file));
    char *data;
    size_t bytes;
    int64_t shape[3];
    assert_int_equal(ln_read_file(file, 1 << 28, &data, &bytes, NULL), LN_OK);
    const float *l = tensor(data, bytes, "logits", shape);
    assert_int_equal(shape[0], 4);
    const json_t *lp = json_object_get(o, "logprobs"), *top = json_object_get(o, "top");
    assert_int_equal(json_array_size(lp), 4);
    assert_int_equal(json_array_size(top), 4);
    assert_true(json_is_null(json_array_get(lp, 0)));
    double sum = 0;
    for (int64_t t = 0; t < 4; t++) {
        const float *row = l + t * shape[1];
        double z = 0;
        int64_t best = 0;
        for (int64_t i = 0; i < shape[1]; i++) {
            z += exp((double)row[i]);
            if (row[i] > row[best]) best = i;
        }
        const json_t *first = json_array_get(json_array_get(top, (size_t)t), 0);
        assert_int_equal(json_array_size(json_array_get(top, (size_t)t)), 3);
        assert_int_equal(int_of(first, "id"), best);
        assert_true(fabs(json_number_value(json_object_get(first, "logprob")) -
                         ((double)row[best] - log(z))) < 1e-9);
        if (t == 3) break;
        double want = (double)row[5 + t + 1] - log(z);
        sum += want;
        assert_true(fabs(json_number_value(json_array_get(lp, (size_t)t + 1)) - want) < 1e-9);
    }
    assert_true(fabs(json_number_value(json_object_get(o, "sum_logprob")) - sum) < 1e-9);
    assert_true(fabs(json_number_value(json_object_get(o, "perplexity")) - exp(-sum / 3)) < 1e-6);
    json_decref(o);
    ln_free(data);
    /* An existing file is not replaced, and one token has no perplexity. */
    expect(RUN(S("score"), S(SMALL), S("--ids"), S("5"), S("--logits"), file), 5, "--force");
    o = json_of(RUN(S("score"), S(SMALL), S("--ids"), S("5"), S("--json"), S("--logits"), file,
                    S("--force")));
    assert_true(json_is_null(json_object_get(o, "perplexity")) && !json_object_get(o, "top"));
    json_decref(o);
    expect(RUN(S("score"), S(SMALL), S("--ids"), S("5"), S("--logits"), S("/dev/full")), 5, "/dev/full");
    expect(RUN(S("score"), S(SMALL), S("--ids"), S("5"), S("--logits"), S("/nowhere/x")), 5, "/nowhere/x");
    expect(RUN(S("score"), S(SMALL), S("--ids"), S("99999"), S("--logits"), at(1, "never.st")), 3, "99999");
    assert_false(ln_exists(at(1, "never.st")));
    assert_int_equal(RUN(S("score"), S(TINY), S("Hello world"))->code, 0);
    assert_non_null(strstr(last->out, "perplexity"));
}

static void keys_have_their_shapes(void **state) {
    (void)state;
    char *file = at(0, "keys.st"), *data;
    size_t bytes;
    json_t *show = json_of(RUN(S("show"), S(SMALL), S("--json")));
    expect(RUN(S("attention"), S(SMALL), S("--ids"), S("1,2,3,4,5"), S("-o"), file), 0, NULL);
    assert_int_equal(last->out_bytes, 0);
    assert_int_equal(ln_read_file(file, 1 << 28, &data, &bytes, NULL), LN_OK);
    for (int64_t layer = 0; layer < int_of(show, "layers"); layer++) {
        char name[32];
        int64_t shape[3];
        (void)snprintf(name, sizeof name, "keys.%lld", (long long)layer);
        const float *k = tensor(data, bytes, name, shape);
        assert_int_equal(shape[0], int_of(show, "kv_heads"));
        assert_int_equal(shape[1], 5);
        assert_int_equal(shape[2], int_of(show, "head_dim"));
        double sum = 0;
        for (int64_t i = 0; i < shape[0] * shape[1] * shape[2]; i++) sum += fabs((double)k[i]);
        assert_true(sum > 0 && isfinite(sum));
    }
    ln_free(data);
    json_decref(show);
    expect(RUN(S("attention"), S(SMALL), S("--ids"), S("1"), S("-o"), file), 5, "--force");
}

/* ---- other verbs ---- */

static void tokenize_both_ways(void **state) {
    (void)state;
    expect(RUN_IN("Hello world", S("tokenize"), S(TINY)), 0, NULL);
    char *want = ln_strndup(last->out, last->out_bytes);
    expect(RUN(S("tokenize"), S(TINY), S("Hello world")), 0, NULL);
    assert_string_equal(last->out, want);
    expect(RUN_IN("{\"text\":\"Hello world\"}\n{\"text\":\"\"}\n", S("tokenize"), S(TINY), S("--jsonl")), 0,
           NULL);
    assert_int_equal(strncmp(last->out, want, strlen(want)), 0);
    assert_string_equal(last->out + strlen(want), "{\"ids\":[]}\n");
    char *ids = strchr(want, '[') + 1, line[200];
    *strchr(ids, ']') = '\0';
    expect(RUN(S("tokenize"), S(TINY), S("--ids"), ids), 0, NULL);
    assert_string_equal(last->out, "{\"text\":\"Hello world\"}\n");
    (void)snprintf(line, sizeof line, "{\"ids\":[%s]}", ids); /* the last line needs no newline */
    expect(RUN_IN(line, S("tokenize"), S(TINY), S("--jsonl"), S("--skip-special")), 0, NULL);
    assert_string_equal(last->out, "{\"text\":\"Hello world\"}\n");
    ln_free(want);
}

static void jsonl_answers_before_it_waits(void **state) {
    (void)state;
    int in[2], out[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    char *argv[] = {S("linnet"), S("tokenize"), S(TINY), S("--jsonl"), NULL}, text[100];
    pid_t pid = start(argv, in[0], out[1], null);
    close(in[0]);
    close(out[1]);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(write(in[1], "{\"text\":\"a\"}\n", 13), 13);
        assert_true(read(out[0], text, sizeof text) > 0); /* each line is answered before the next one is
                                                             sent */
    }
    close(in[1]);
    assert_int_equal(finish(pid), 0);
    close(out[0]);
    close(null);
}

/* Gemma's rounded factor of embeddings is stated if values may be compared with the reference's in f32. */
static void rounded_embedding_scale(void **state) {
    (void)state;
    static const struct {
        const char *model, *scale; /* scale NULL: it is not rounded */
    } of[] = {{"gemma3-dynamic-bf16", "5.28125"},
              {"quantised/gemma3-text-q4-g32-bf16", "9.8125"},
              {"gemma3-text-f32", NULL},
              {"qwen2-f32", NULL}};
    for (size_t i = 0; i < LN_COUNT(of); i++) {
        char path[512];
        (void)snprintf(path, sizeof path, LN_ROOT "/tests/golden/%s", of[i].model);
        json_t *o = json_of(RUN(S("show"), path, S("--json")));
        assert_true(!of[i].scale ||
                    json_number_value(json_object_get(o, "embed_scale")) == strtod(of[i].scale, NULL));
        json_decref(o);
        expect(RUN(S("show"), path), 0, NULL);
        assert_true(!strstr(last->out, "rounded to") == !of[i].scale);
        assert_true(!of[i].scale || strstr(last->out, of[i].scale));
        expect(RUN(S("score"), path, S("--ids"), S("1,2,3"), S("--numerics"), S("exact")), 0, of[i].scale);
        assert_true(!strstr(last->err, "rounded") == !of[i].scale);
        expect(RUN(S("eval"), path, S(LN_ROOT "/LICENSE"), S("--numerics"), S("exact")), 0, of[i].scale);
        assert_true(!strstr(last->err, "rounded") == !of[i].scale);
    }
    char path
        [512]; /* in fast, which is compared with transformers in the checkpoint's dtype, nothing is said */
    (void)snprintf(path, sizeof path, LN_ROOT "/tests/golden/%s", of[0].model);
    expect(RUN(S("score"), path, S("--ids"), S("1,2,3")), 0, NULL);
    assert_null(strstr(last->err, "rounded"));
}

static void facts(void **state) {
    (void)state;
    json_t *o = json_of(RUN(S("show"), S(TINY), S("--json")));
    assert_string_equal(text_of(o, "model_type"), "qwen3");
    assert_string_equal(text_of(o, "numerics"), "fast");
    assert_true(int_of(o, "layers") > 0 && int_of(o, "width") > 0 && int_of(o, "parameters") > 1000000 &&
                json_is_boolean(json_object_get(o, "template")));
    json_decref(o);
    static struct {
        const char *model;
        char asked[8], used[8]; /* the numerics that a load uses, by checkpoint and requested mode */
    } of[] = {{"gemma3-text-f16", "", "fast"},
              {"gemma3-text-f16", "exact", "exact"},
              {"gemma3-text-f32", "", "exact"},
              {"gemma3-text-f32", "fast", "exact"},
              {"quantised/qwen2-q3-g64-f32", "", "fast"}};
    for (size_t i = 0; i < LN_COUNT(of); i++) {
        char path[512];
        (void)snprintf(path, sizeof path, LN_ROOT "/tests/golden/%s", of[i].model);
        o = json_of(of[i].asked[0] ? RUN(S("plan"), path, S("--numerics"), of[i].asked, S("--json"))
                                   : RUN(S("plan"), path, S("--json")));
        assert_string_equal(text_of(o, "numerics"), of[i].used);
        json_decref(o);
    }
    expect(RUN(S("show"), S(TINY)), 0, NULL);
    o = json_of(RUN(S("ls"), S(LN_ROOT "/tests/golden"), S("--json")));
    assert_true(json_array_size(json_object_get(o, "models")) >= 10);
    assert_true(int_of(json_array_get(json_object_get(o, "models"), 0), "bytes") > 0);
    json_decref(o);
    o = json_of(RUN(S("doctor"), S("--json")));
    assert_true(int_of(o, "cores") >= 1 && int_of(o, "memory_bytes") > 0 && strlen(text_of(o, "isa")) > 0);
    assert_null(strstr(text_of(o, "gpu"), "ln_options")); /* the library's fields are flags here, too */
    json_decref(o);
    expect(RUN(S("doctor")), 0, NULL);
}

/* `ulimit -f`: a failed write is reported with its reason; the process is not killed by SIGXFSZ, and no
 * file is left behind. */
static void a_file_over_the_limit_is_an_error(void **state) {
    (void)state;
    struct rlimit was, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small = was;
    small.rlim_cur = 65536;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    outcome *o = RUN(S("score"), S(TINY), S("--ids"), S("1,2,3,4,5,6,7,8"), S("--logits"), at(0, "large.st"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    expect(o, 5, "large.st: cannot write: File too large");
}

/* "-" is no name of a result, neither of a file nor of a directory, and nothing is written under it. */
static void a_dash_is_no_result(void **state) {
    (void)state;
    static const char what[] = "found '-', which is not stdout";
    expect(RUN(S("score"), S(TINY), S("a"), S("--logits"), S("-")), 2, what);
    expect(RUN(S("run"), S(TINY), S("a"), S("-n"), S("1"), S("--save-kv"), S("-")), 2, what);
    expect(RUN(S("attention"), S(TINY), S("a"), S("-o"), S("-")), 2, what);
    expect(RUN(S("quantize"), S(TINY), S("--bits"), S("4"), S("-o"), S("-")), 2, what);
    expect(RUN(S("batch"), S(TINY), S("in.jsonl"), S("--output=-")), 2, what);
    assert_false(ln_exists("-"));
}

/* A file of keys is taken whole or rejected: the keys after a NUL are not left out in silence. */
static void keys_that_no_client_can_send(void **state) {
    (void)state;
    static const char with_nul[] = "key-one-long\nkey-two\0x\nkey-three\n";
    char flag[320];
    FILE *f = fopen(at(0, "keys.txt"), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(with_nul, 1, sizeof with_nul - 1, f), sizeof with_nul - 1);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(at(0, "keys.txt"), 0600), 0); /* else there is a warning, too */
    (void)snprintf(flag, sizeof flag, "@%s", at(0, "keys.txt"));
    expect(RUN(S("serve"), S(TINY), S("--port"), S("0"), S("--api-key"), flag), 3,
           "byte 20 of the file is NUL");
    expect(RUN(S("serve"), S(TINY), S("--port"), S("0"), S("--api-key"), S("a, b")), 2,
           "key 2 has a character");
    expect(RUN(S("serve"), S(TINY), S("--port"), S("0"), S("--api-key"), S(",")), 2, "no key in ','");
    assert_int_equal(unlink(at(0, "keys.txt")), 0);
}

/* Every member of a result is named on the page of its verb. */
static void check_named(char *verb, json_t *result) {
    const char *key;
    json_t *v;
    expect(RUN(S("help"), verb), 0, NULL);
    json_object_foreach(result, key, v) {
        char quoted[64];
        (void)snprintf(quoted, sizeof quoted, "\"%s\"", key);
        if (!strstr(last->out, quoted)) fail_msg("help %s does not name %s", verb, quoted);
    }
    json_decref(result);
}
static void members_are_on_the_page(void **state) {
    (void)state;
    check_named(S("plan"), json_of(RUN(S("plan"), S(TINY), S("--json"))));
    check_named(S("plan"),
                json_of(RUN(S("plan"), S(TINY), S("--for"), S("train"), S("--data"),
                            S(LN_ROOT "/tests/golden/trainer/qwen2-f32/rows.jsonl"), S("--json"))));
    check_named(S("run"), json_of(RUN(S("run"), S(TINY), S("--ids"), S("5"), S("-n"), S("1"), S("--json"))));
    check_named(S("score"),
                json_of(RUN(S("score"), S(TINY), S("--ids"), S("5,6"), S("--top"), S("1"), S("--json"))));
    check_named(S("tokenize"), json_of(RUN(S("tokenize"), S(TINY), S("a"), S("--json"))));
}

static void plans_follow_the_flags(void **state) {
    (void)state;
    json_t *a = json_of(RUN(S("plan"), S(TINY), S("--ctx"), S("512"), S("--json"))),
           *b = json_of(RUN(S("plan"), S(TINY), S("--ctx"), S("1k"), S("--numerics"), S("exact"),
                            S("--json"))),
           *c = json_of(RUN(S("plan"), S(TINY), S("--ids"), S("1,2,3"), S("-n"), S("20"), S("--ctx"), S("1k"),
                            S("--chunk"), S("16"), S("--temp"), S("0"), S("--ignore-eos"), S("--json")));
    assert_int_equal(int_of(a, "ctx"), 512);
    assert_int_equal(int_of(b, "ctx"), 1024);
    assert_true(int_of(b, "kv_bytes") == 4 * int_of(a, "kv_bytes")); /* twice as many positions, in f32
                                                                        instead of bf16 */
    assert_true(int_of(c, "kv_bytes") < int_of(b, "kv_bytes") &&
                int_of(c, "activation_bytes") < int_of(b, "activation_bytes"));
    assert_string_equal(text_of(c, "numerics"), "fast");
    assert_int_equal(int_of(a, "peak_bytes"), int_of(a, "weights_bytes") + int_of(a, "kv_bytes") +
                                                  int_of(a, "activation_bytes") + int_of(a, "text_bytes") +
                                                  int_of(a, "other_bytes"));
    json_decref(a);
    json_decref(b);
    json_decref(c);
    for (int bits = 4; bits <= 8; bits += 4) { /* Codes, and a scale and a bias in bf16 for 64 columns; the
                                                  head is the embedding table. Only exact: `fast` on AMX
                                                  needs some additional values. */
        json_t *q = json_of(RUN(S("plan"), S(TINY), S("--quantize"), bits == 4 ? S("4") : S("8"), S("--ctx"),
                                S("512"), S("--numerics"), S("exact"), S("--json")));
        json_t *m = json_of(RUN(S("show"), S(TINY), S("--json")));
        assert_true(int_of(q, "weights_bytes") < int_of(m, "parameters") * (bits + 0.5) / 8 * 1.02);
        assert_true(int_of(q, "weights_bytes") > int_of(m, "parameters") * (bits + 0.5) / 8);
        json_decref(q);
        json_decref(m);
    }
    expect(RUN(S("run"), S(TINY), S(STORY), S("--quantize"), S("8"), S("-n"), S("3")), 0, NULL);
    expect(RUN(S("plan"), S(TINY), S(STORY)), 0, NULL);
    assert_non_null(strstr(last->out, "peak"));
    /* The rows of logits that score holds, and the keys that attention keeps. */
    a = json_of(RUN(S("plan"), S(TINY), S("--ctx"), S("512"), S("--chunk"), S("64"), S("--json")));
    b = json_of(RUN(S("plan"), S(TINY), S("--ctx"), S("512"), S("--chunk"), S("64"), S("--for"), S("score"),
                    S("--json")));
    c = json_of(RUN(S("plan"), S(TINY), S("--ctx"), S("512"), S("--chunk"), S("64"), S("--for"),
                    S("attention"), S("--json")));
    assert_true(int_of(b, "activation_bytes") > int_of(a, "activation_bytes") &&
                int_of(b, "kv_bytes") == int_of(a, "kv_bytes"));
    json_t *tiny = json_of(RUN(S("show"), S(TINY), S("--json")));
    assert_true(int_of(c, "activation_bytes") ==
                int_of(a, "activation_bytes") +
                    512 * int_of(tiny, "kv_heads") * int_of(tiny, "head_dim") * 4);
    json_decref(tiny);
    json_decref(a);
    json_decref(b);
    json_decref(c);
}

/* A model quantised from the command line: the output and the files, and that no file remains after an
 * error. */
static void quantizes(void **state) {
    (void)state;
    expect(RUN(S("quantize"), S(TINY)), 2, "needs -o DIR");
    expect(RUN(S("quantize"), S(TINY), S("-o"), at(0, "q"), S("--bits"), S("7")), 2, "2|3|4|5|6|8");
    expect(RUN(S("quantize"), S(TINY), S("-o"), at(0, "q"), S("--keep"), S("lm_head")), 2, "NAME=BITS");
    expect(RUN(S("quantize"), S(TINY), S("-o"), at(0, "q"), S("--keep"), S("lm_head=7")), 2, "NAME=BITS");
    expect(RUN(S("quantize"), S(TINY), S("-o"), at(0, "q"), S("--keep"), S("nobody=8")), 2, "nobody");
    expect(RUN(S("show"), at(0, "q")), 5, "q");
    json_t *q = json_of(RUN(S("quantize"), S(TINY), S("-o"), at(0, "q"), S("--bits"), S("3"), S("--group"),
                            S("32"), S("--keep"), S("lm_head=8"), S("--json")));
    json_t *first = json_array_get(json_object_get(q, "tensors"), 0);
    assert_string_equal(text_of(first, "name"), "model.embed_tokens.weight");
    assert_int_equal(int_of(first, "bits"), 8);
    assert_int_equal(int_of(q, "bits"), 3);
    json_t *m = json_of(RUN(S("show"), at(0, "q"), S("--json"))),
           *plan = json_of(RUN(S("plan"), at(0, "q"), S("--ctx"), S("512"), S("--numerics"), S("exact"),
                               S("--json")));
    assert_int_equal(int_of(m, "bits"), 3);
    assert_int_equal(int_of(m, "group"), 32);
    assert_int_equal(int_of(m, "bytes"), int_of(q, "bytes"));
    assert_true(int_of(plan, "weights_bytes") <= int_of(q, "bytes") * 1.02);
    json_decref(q), json_decref(m), json_decref(plan);
    expect(RUN(S("run"), at(0, "q"), S(STORY), S("-n"), S("3")), 0, NULL);
    assert_string_equal(last->err, "linnet: cut at 3 tokens (-n)\n");
    expect(RUN(S("quantize"), at(0, "q"), S("-o"), at(1, "r")), 4, "quantised already");
    expect(RUN(S("run"), at(0, "q"), S(STORY), S("--quantize"), S("4")), 2, "quantised already");
    expect(RUN(S("quantize"), S(TINY), S("-o"), at(0, "q")), 5, "--force");
    expect(RUN(S("quantize"), S(TINY), S("-o"), at(0, "q"), S("--force")), 0, NULL);
    assert_non_null(strstr(last->out, "4 bit g64"));
    assert_non_null(strstr(last->out, "bits a weight"));
    static const char *const files[] = {"LICENSE",
                                        "config.json",
                                        "generation_config.json",
                                        "model.safetensors",
                                        "model.safetensors.index.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json"};
    for (size_t i = 0; i < LN_COUNT(files); i++) { /* these files, and nothing else */
        char name[80];
        snprintf(name, sizeof name, "q/%s", files[i]);
        assert_int_equal(unlink(at(0, name)), 0);
    }
    assert_int_equal(rmdir(at(0, "q")), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(quantizes),
                                       cmocka_unit_test(scores_and_logits_agree),
                                       cmocka_unit_test(keys_have_their_shapes),
                                       cmocka_unit_test(tokenize_both_ways),
                                       cmocka_unit_test(jsonl_answers_before_it_waits),
                                       cmocka_unit_test(rounded_embedding_scale),
                                       cmocka_unit_test(facts),
                                       cmocka_unit_test(a_file_over_the_limit_is_an_error),
                                       cmocka_unit_test(a_dash_is_no_result),
                                       cmocka_unit_test(keys_that_no_client_can_send),
                                       cmocka_unit_test(members_are_on_the_page),
                                       cmocka_unit_test(plans_follow_the_flags)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
