/* Tokenizers in the metadata of GGUF files: the ids and texts of the tokenizer.json that they were made of,
 * merges that follow from scores, types of tokens, and metadata that are rejected by their key. */
/* run: slow asan */
#include "vectors.h"

#include "../fewer.h"

#include "base/gguf.h"
#include "gguf_of_json.h"

#include <math.h>

/* Whether open_built opens the tokenizer.json that `convert` writes of the metadata. */
static bool through_json;

static ln_tok *open_written(const ln_gguf *g, ln_error *err) {
    json_t *tokenizer, *config;
    ln_tok *t = NULL;
    if (ln_tok_json_of_gguf(&tokenizer, &config, g, err) != LN_OK) return NULL;
    char *text = json_dumps(tokenizer, JSON_COMPACT);
    assert_non_null(text);
    assert_string_equal(json_string_value(json_object_get(config, "tokenizer_class")), "PreTrainedTokenizerFa"
                                                                                       "st");
    json_decref(tokenizer);
    json_decref(config);
    (void)ln_tok_open_memory(&t, "tokenizer.json", text, strlen(text), err);
    free(text);
    return t;
}

/* Opens the tokenizer of a file that is built in memory; NULL: it is rejected, and *err says why. */
static ln_tok *open_built(gguf_build *b, ln_error *err) {
    size_t bytes;
    uint8_t *file = gguf_finish(b, &bytes);
    ln_gguf *g;
    ln_tok *t = NULL;
    if (ln_gguf_open_memory(&g, "a.gguf", file, bytes, err) == LN_OK) {
        if (through_json) t = open_written(g, err);
        else (void)ln_tok_open_gguf(&t, g, err);
        ln_gguf_close(&g);
    }
    free(file);
    return t;
}

static void expect_ids(const ln_tok *t, const char *text, bool special, const char *want) {
    ln_ids ids = {0};
    ln_error err = {0};
    char got[512] = "";
    if (ln_tok_encode(t, text, strlen(text), special, &ids, &err) != LN_OK) fail_msg("%s", err.message);
    for (size_t i = 0, n = 0; i < ids.n && n < sizeof got; i++)
        n += (size_t)snprintf(got + n, sizeof got - n, "%s%d", i ? " " : "", ids.data[i]);
    if (strcmp(got, want) != 0) fail_msg("'%s': expected %s, found %s", text, want, got);
    ln_ids_free(&ids);
}

static void expect_text(const ln_tok *t, const int32_t *ids, size_t n, bool skip, const char *want) {
    ln_str out = {0};
    ln_error err = {0};
    assert_int_equal(ln_tok_decode(t, ids, n, skip, &out, &err), LN_OK);
    if (out.len != strlen(want) || memcmp(out.data ? out.data : "", want, out.len) != 0)
        fail_msg("expected '%s', found '%.*s'", want, (int)out.len, out.data ? out.data : "");
    ln_str_free(&out);
}

/* ---- the same as tokenizer.json ---- */

static void test_bundled_model(void **state) {
    static const char *const texts[] = {
        "Once upon a time, there was a little girl named Lily. She didn't like 1234 apples!\n\n  \n",
        "<|im_start|>user\nTell me a story.<|im_end|>\n<|im_start|>assistant\n",
        "Ångström naïve e\xcc\x81 日本語 🙂", "  \t x = y[3]  \r\n\r\n", ""};
    json_t *root = json_load_file(LN_ROOT "/models/tiny/tokenizer.json", 0, NULL);
    gguf_build b = {0};
    ln_error err = {0};
    ln_tok *json;
    (void)state;
    assert_non_null(root);
    assert_int_equal(ln_tok_open(&json, LN_ROOT "/models/tiny", &err), LN_OK);
    gguf_add_tokenizer(&b, root, "qwen2", -1, false);
    ln_tok *gguf = open_built(&b, &err);
    if (!gguf) fail_msg("%s", err.message);
    assert_int_equal(ln_tok_count(gguf), ln_tok_count(json));
    for (size_t i = 0; i < LN_COUNT(texts); i++) {
        ln_ids want = {0}, got = {0};
        assert_int_equal(ln_tok_encode(json, texts[i], strlen(texts[i]), true, &want, &err), LN_OK);
        assert_int_equal(ln_tok_encode(gguf, texts[i], strlen(texts[i]), true, &got, &err), LN_OK);
        assert_int_equal(got.n, want.n);
        if (want.n > 0) assert_memory_equal(got.data, want.data, want.n * sizeof *want.data);
        ln_ids_free(&want), ln_ids_free(&got);
    }
    for (int32_t id = 0; id < ln_tok_count(json); id++) {
        assert_int_equal(ln_tok_is_special(gguf, id), ln_tok_is_special(json, id));
        ln_str a = {0}, c = {0};
        assert_int_equal(ln_tok_decode(json, &id, 1, false, &a, &err), LN_OK);
        assert_int_equal(ln_tok_decode(gguf, &id, 1, false, &c, &err), LN_OK);
        assert_int_equal(a.len, c.len);
        if (a.len > 0) assert_memory_equal(a.data, c.data, a.len);
        ln_str_free(&a), ln_str_free(&c);
    }
    ln_tok_close(&json), ln_tok_close(&gguf);
    json_decref(root);
}

/* Families of ../shared/data/tok, and what their files have in GGUF. Texts with one of `without` are left
 * out, because flags decide about them that GGUF does not have: Llama 2's special tokens match after
 * normalisation only, and Mistral puts a blank before the first text alone. */
static const struct {
    const char *family, *pre, *bos;
    bool prefix;
    const char *without[4];
} families[] = {
    {"gpt-2", "gpt-2", NULL, false, {0}},
    {"smollm2", "smollm", NULL, false, {0}},
    {"qwen3", "qwen2", NULL, false, {0}},
    {"deepseek-r1-distill-qwen", "deepseek-r1-qwen", NULL, false, {0}},
    {"deepseek-coder", "deepseek-coder", "<｜begin▁of▁sentence｜>", false, {0}},
    {"llama-3.1", "llama-bpe", "<|begin_of_text|>", false, {0}},
    {"gpt-oss", "gpt-4o", NULL, false, {0}},
    {"mistral-v0.3", NULL, "<s>", true, {"<", "[", "^ ", "^\xe2\x96\x81"}},
    {"llama-2", NULL, "<s>", true, {"<s>", "</s>", "<unk>"}},
    {"gemma-3", NULL, "<bos>", false, {0}},
};

typedef struct check {
    const char *const *without;
    ln_tok *t;
    size_t n, n_failed, n_left_out;
} check;

static bool is_left_out(const check *c, const char *text) {
    for (int i = 0; i < 4 && c->without[i]; i++) {
        const char *w = c->without[i];
        if (w[0] == '^' ? strncmp(text, w + 1, strlen(w + 1)) == 0 : strstr(text, w) != NULL) return true;
    }
    return false;
}

static void check_line(void *user, const json_t *line) {
    check *c = user;
    const json_t *text = json_object_get(line, "text"), *ids = json_object_get(line, "ids");
    ln_ids got = {0};
    ln_error err = {0};
    if (is_left_out(c, json_string_value(text))) {
        c->n_left_out++;
        return;
    }
    const ln_status st = ln_tok_encode(c->t, json_string_value(text), json_string_length(text),
                                       json_is_true(json_object_get(line, "add_special_tokens")), &got, &err);
    bool same = st == LN_OK && got.n == json_array_size(ids);
    for (size_t i = 0; same && i < got.n; i++)
        same = got.data[i] == json_integer_value(json_array_get(ids, i));
    char shown[80];
    if (!same && c->n_failed++ < 5)
        printf("other ids for '%s'\n", ln_excerpt(shown, json_string_value(text), json_string_length(text)));
    c->n++;
    ln_ids_free(&got);
}

static int64_t id_of(const json_t *root, const char *content) {
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(root, "added_tokens"), i,
                       item) if (content &&
                                 strcmp(json_string_value(json_object_get(item, "content")), content) ==
                                     0) return json_integer_value(json_object_get(item, "id"));
    return -1;
}

static void test_real_tokenizers(void **state) {
    (void)state;
    const size_t first = through_json ? 7 : 0; /* SentencePiece: its merges are derived */
    for (size_t i = first; i < LN_COUNT(families); i += (size_t)fewer(1, 5)) {
        char command[512];
        size_t bytes;
        snprintf(command, sizeof command, "xz -dkc '%s/tokenizers/%s/tokenizer.json.xz' 2>/dev/null",
                 TOK_DATA, families[i].family);
        char *json = vector_pipe(command, &bytes);
        if (!json) {
            printf("SKIP: %s: no data in %s or no xz: this family is NOT tested\n", families[i].family,
                   TOK_DATA);
            continue;
        }
        json_t *root = json_loadb(json, bytes, JSON_ALLOW_NUL, NULL);
        gguf_build b = {0};
        ln_error err = {0};
        gguf_add_tokenizer(&b, root, families[i].pre, id_of(root, families[i].bos), families[i].prefix);
        check c = {.t = open_built(&b, &err), .without = families[i].without};
        if (!c.t) fail_msg("%s: %s", families[i].family, err.message);
        vector_lines(families[i].family, ".jsonl", check_line, &c);
        printf("%s: %zu texts, %zu left out, %zu wrong\n", families[i].family, c.n, c.n_left_out, c.n_failed);
        assert_int_equal(c.n_failed, 0);
        assert_true(c.n > 300);
        ln_tok_close(&c.t);
        json_decref(root);
        free(json);
    }
}

/* ---- scores ---- */

/* A SentencePiece vocabulary: three special tokens, a byte, pieces with scores. */
static const char *const pieces[] = {"<unk>",
                                     "<s>",
                                     "</s>",
                                     "<0xC3>",
                                     "<0xA9>",
                                     "\xe2\x96\x81",
                                     "a",
                                     "b",
                                     "c",
                                     "ab",
                                     "bc",
                                     "abc",
                                     "  ",
                                     "<tag>",
                                     "\xe2\x96\x81"
                                     "a"};
static const int32_t piece_types[] = {2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 1, 4, 4, 1};
static const float piece_scores[] = {0, 0, 0, 0, 0, -1, -2, -3, -4, -11, -10, -12, -1000, -1000, -20};

static void add_pieces(gguf_build *b, const char *left_out) {
    static const char *const keys[] = {"tokenizer.ggml.model", "tokenizer.ggml.tokens",
                                       "tokenizer.ggml.scores", "tokenizer.ggml.token_type"};
    if (strcmp(left_out, keys[0]) != 0) gguf_text(b, keys[0], "llama");
    if (strcmp(left_out, keys[1]) != 0) gguf_texts(b, keys[1], pieces, LN_COUNT(pieces));
    if (strcmp(left_out, keys[2]) != 0) gguf_f32s(b, keys[2], piece_scores, LN_COUNT(pieces));
    if (strcmp(left_out, keys[3]) != 0) gguf_i32s(b, keys[3], piece_types, LN_COUNT(pieces));
}

static void test_scores(void **state) {
    gguf_build b = {0};
    ln_error err = {0};
    (void)state;
    add_pieces(&b, "");
    ln_tok *t = open_built(&b, &err);
    if (!t) fail_msg("%s", err.message);
    expect_ids(t, "b", true, "1 5 7");   /* bos, and a blank before the text, as SentencePiece does */
    expect_ids(t, "abc", false, "5 11"); /* a and bc, which comes before ab and before a blank and a */
    expect_ids(t, "ab", false, "5 9");
    expect_ids(t, "aab", false, "14 9");
    expect_ids(t, "b  c", false, "5 7 12 8");      /* the user-defined run of blanks */
    expect_ids(t, "b<tag>c", false, "5 7 13 5 8"); /* a blank before each part, as llama.cpp does */
    expect_ids(t, "b</s>", false, "5 7 2");
    expect_ids(t, "b\xc3\xa9", false, "5 7 3 4"); /* bytes */
    expect_ids(t, "bz", false, "5 7 0");          /* a byte that the vocabulary lacks */
    expect_text(t, (int32_t[]){1, 5, 7, 12, 8, 3, 4, 2}, 8, true, "b  c\xc3\xa9");
    expect_text(t, (int32_t[]){13, 2}, 2, true,
                "<tag>"); /* user-defined tokens are shown, control ones not */
    assert_true(ln_tok_is_special(t, 2) && ln_tok_is_special(t, 0) && !ln_tok_is_special(t, 13));
    ln_tok_close(&t);

    add_pieces(&b, "");
    gguf_bool(&b, "tokenizer.ggml.add_space_prefix", 0);
    gguf_bool(&b, "tokenizer.ggml.add_bos_token", 0);
    gguf_bool(&b, "tokenizer.ggml.add_eos_token", 1);
    t = open_built(&b, &err);
    if (!t) fail_msg("%s", err.message);
    expect_ids(t, "abc", true, "11 2");
    expect_text(t, (int32_t[]){5, 7}, 2, false, " b");
    ln_tok_close(&t);

    add_pieces(&b, "");
    gguf_bool(&b, "tokenizer.ggml.add_space_prefix", 0);
    gguf_bool(&b, "tokenizer.ggml.remove_extra_whitespaces", 1);
    t = open_built(&b, &err);
    if (!t) fail_msg("%s", err.message);
    expect_ids(t, " b   c ", false, "7 5 8");
    ln_tok_close(&t);
}

/* ---- metadata that are rejected ---- */

typedef void change_fn(gguf_build *b);
static void no_model(gguf_build *b) { add_pieces(b, "tokenizer.ggml.model"); }
static void no_tokens(gguf_build *b) { add_pieces(b, "tokenizer.ggml.tokens"); }
static void no_scores(gguf_build *b) { add_pieces(b, "tokenizer.ggml.scores"); }
static void few_scores(gguf_build *b) {
    add_pieces(b, "tokenizer.ggml.scores");
    gguf_f32s(b, "tokenizer.ggml.scores", piece_scores, LN_COUNT(pieces) - 1);
}
static void nan_score(gguf_build *b) {
    float s[LN_COUNT(pieces)];
    memcpy(s, piece_scores, sizeof s);
    s[7] = nanf("");
    add_pieces(b, "tokenizer.ggml.scores");
    gguf_f32s(b, "tokenizer.ggml.scores", s, LN_COUNT(pieces));
}
static void many_types(gguf_build *b) {
    const int32_t types[LN_COUNT(pieces) + 1] = {1};
    add_pieces(b, "tokenizer.ggml.token_type");
    gguf_i32s(b, "tokenizer.ggml.token_type", types, LN_COUNT(types));
}
static void other_type(gguf_build *b) {
    int32_t types[LN_COUNT(pieces)];
    memcpy(types, piece_types, sizeof types);
    types[6] = 7;
    add_pieces(b, "tokenizer.ggml.token_type");
    gguf_i32s(b, "tokenizer.ggml.token_type", types, LN_COUNT(types));
}
static void two_equal(gguf_build *b) {
    const char *texts[LN_COUNT(pieces)];
    memcpy(texts, pieces, sizeof texts);
    texts[8] = "a";
    add_pieces(b, "tokenizer.ggml.tokens");
    gguf_texts(b, "tokenizer.ggml.tokens", texts, LN_COUNT(texts));
}
static void no_utf8(gguf_build *b) {
    const char *texts[LN_COUNT(pieces)];
    memcpy(texts, pieces, sizeof texts);
    texts[8] = "a\xff";
    add_pieces(b, "tokenizer.ggml.tokens");
    gguf_texts(b, "tokenizer.ggml.tokens", texts, LN_COUNT(texts));
}
static void far_bos(gguf_build *b) {
    add_pieces(b, "");
    gguf_u32(b, "tokenizer.ggml.bos_token_id", LN_COUNT(pieces));
}
static void other_model(gguf_build *b) {
    add_pieces(b, "tokenizer.ggml.model");
    gguf_text(b, "tokenizer.ggml.model", "rwkv");
}
static void add_bytes(gguf_build *b, const char *pre, const char *const *merges, size_t n) {
    static const char *const texts[] = {"a", "b", "ab"};
    gguf_text(b, "tokenizer.ggml.model", "gpt2");
    gguf_text(b, "tokenizer.ggml.pre", pre);
    gguf_texts(b, "tokenizer.ggml.tokens", texts, LN_COUNT(texts));
    if (merges) gguf_texts(b, "tokenizer.ggml.merges", merges, n);
}
static void other_pre(gguf_build *b) { add_bytes(b, "gpt-7", (const char *const[]){"a b"}, 1); }
static void no_merges(gguf_build *b) { add_bytes(b, "gpt-2", NULL, 0); }
static void part_unknown(gguf_build *b) { add_bytes(b, "gpt-2", (const char *const[]){"a b", "a x"}, 2); }
static void no_result(gguf_build *b) { add_bytes(b, "gpt-2", (const char *const[]){"b a"}, 1); }
static void one_part(gguf_build *b) { add_bytes(b, "gpt-2", (const char *const[]){"ab"}, 1); }
static void too_few_bytes(gguf_build *b) { add_bytes(b, "gpt-2", (const char *const[]){"a b"}, 1); }

static const struct {
    change_fn *change;
    ln_status status;
    const char *message;
} rejected[] = {
    {no_model, LN_EIO, "tokenizer.ggml.model is missing"},
    {no_tokens, LN_EINVALID, "tokenizer.ggml.tokens: expected an array, found nothing"},
    {no_scores, LN_EINVALID, "tokenizer.ggml.scores: expected an array, found nothing"},
    {few_scores, LN_EINVALID, "tokenizer.ggml.scores: expected 15 elements, one for each token, found 14"},
    {nan_score, LN_EINVALID, "tokenizer.ggml.scores[7]: expected a number, found NaN"},
    {many_types, LN_EINVALID,
     "tokenizer.ggml.token_type: expected 15 elements, one for each token, found 16"},
    {other_type, LN_EINVALID, "tokenizer.ggml.token_type[6]"},
    {two_equal, LN_EINVALID, "tokenizer.ggml.tokens: expected each text once, found 'a' twice"},
    {no_utf8, LN_EINVALID, "tokenizer.ggml.tokens[8]: byte 1: expected UTF-8"},
    {far_bos, LN_EINVALID, "tokenizer.ggml.bos_token_id"},
    {other_model, LN_EUNSUPPORTED, "tokenizer.ggml.model: the tokenizer 'rwkv' is not supported"},
    {other_pre, LN_EUNSUPPORTED, "tokenizer.ggml.pre: the pre-tokenizer 'gpt-7' is not supported"},
    {no_merges, LN_EINVALID, "tokenizer.ggml.merges: expected an array, found nothing"},
    {part_unknown, LN_EINVALID, "tokenizer.ggml.merges[1]: expected tokens of the vocabulary, found 'x'"},
    {no_result, LN_EINVALID, "tokenizer.ggml.merges[0]: expected 'b' + 'a' to give a token"},
    {one_part, LN_EINVALID, "tokenizer.ggml.merges[0]: expected two tokens with one space between"},
    {too_few_bytes, LN_EINVALID, "expected all bytes of the byte-level alphabet"},
};

static void test_rejected(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(rejected); i++) {
        gguf_build b = {0};
        ln_error err = {0};
        rejected[i].change(&b);
        ln_tok *t = open_built(&b, &err);
        if (t || err.code != rejected[i].status || !strstr(err.message, rejected[i].message))
            fail_msg("expected '%s', found '%s'", rejected[i].message, t ? "no error" : err.message);
    }
}

/* Every name of a splitter opens: its patterns compile. */
static void test_names(void **state) {
    static const char *const names[] = {
#define SPLITTER(NAME, nfc, digits, gpt2, ...)
#define PRE(name, SPLITTER, whole, bos) name,
#include "tokenizer/pre_tokenizers.def"
#undef SPLITTER
#undef PRE
    };
    json_t *root = json_load_file(LN_ROOT "/models/tiny/tokenizer.json", 0, NULL);
    (void)state;
    for (size_t i = 0; i < LN_COUNT(names); i++) {
        gguf_build b = {0};
        ln_error err = {0};
        gguf_add_tokenizer(&b, root, names[i], -1, false);
        ln_tok *t = open_built(&b, &err);
        if (!t) fail_msg("%s: %s", names[i], err.message);
        ln_ids ids = {0};
        static const char text[] =
            "It's Hello WORLD, isn't  it? 12345 x=3;\r\n\n  \xe4\xbd\xa0\xe5\xa5\xbd e\xcc\x81t\xc3\xa9 ";
        if (ln_tok_encode(t, text, strlen(text), false, &ids, &err) != LN_OK) fail_msg("%s", err.message);
        ln_str out = {0};
        assert_int_equal(ln_tok_decode(t, ids.data, ids.n, false, &out, &err), LN_OK);
        assert_true(out.len + 1 >= strlen(text)); /* NFC joins the e and its accent */
        ln_str_free(&out);
        ln_ids_free(&ids);
        ln_tok_close(&t);
    }
    json_decref(root);
}

/* The same with the tokenizer.json that `convert` writes. */
static void test_written(void **state) {
    through_json = true;
    test_bundled_model(state);
    test_scores(state);
    test_real_tokenizers(state);
    through_json = false;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bundled_model),   cmocka_unit_test(test_scores),
        cmocka_unit_test(test_rejected),        cmocka_unit_test(test_names),
        cmocka_unit_test(test_real_tokenizers), cmocka_unit_test(test_written)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
