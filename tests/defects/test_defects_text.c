/* Old defects between text and ids: B5 to B8 (defects.h). The tokenizers are short documents in the format
 * of the real ones. */
/* run: quick */
#include "defects.h"
#include "chat/builtin_templates.h"

#define MARK "\xe2\x96\x81" /* SentencePiece's space, U+2581 */

static ln_tok *tokenizer(const char *doc) {
    ln_tok *t = NULL;
    OK(ln_tok_open_memory(&t, "t", doc, strlen(doc), err));
    return t;
}
/* Asserts that the ids of a text are those of these tokens. */
static void encodes(const ln_tok *t, const char *text, bool add_special, const char *const *tokens,
                    size_t n) {
    ln_ids ids = {0};
    OK(ln_tok_encode(t, text, strlen(text), add_special, &ids, err));
    for (size_t i = 0; i < LN_MAX(n, ids.n); i++) {
        size_t bytes = 0;
        const char *found = i < ids.n ? ln_tok_content(t, ids.data[i], &bytes) : "nothing";
        if (i >= ids.n) bytes = 7;
        if (i >= n || bytes != strlen(tokens[i]) || memcmp(found, tokens[i], bytes) != 0)
            fail_msg("'%s': token %zu: expected '%s', found '%.*s'", text, i, i < n ? tokens[i] : "nothing",
                     (int)bytes, found);
    }
    ln_ids_free(&ids);
}
#define ENCODES(t, text, special, ...)                         \
    do {                                                       \
        const char *const tokens_[] = {__VA_ARGS__};           \
        encodes(t, text, special, tokens_, LN_COUNT(tokens_)); \
    } while (0)

/* ---- B5: spaces ---- */

/* Gemma: spaces become U+2581, and nothing is put before the text. */
static void b5_blanks_become_marks(void **s) {
    (void)s;
    ln_tok *t = tokenizer("{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" "
                          "\"},\"content\":\"" MARK "\"},"
                          "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"" MARK "\":2,\"" MARK
                          "b\":3,\" \":4},\"merges\":[[\"" MARK "\",\"b\"]]}}");
    ENCODES(t, "a b", true, "a", MARK "b");
    ENCODES(t, " b b", true, MARK "b", MARK "b");
    ln_tok_close(&t);
}
/* Like Llama 2: one U+2581 before the text, none after a special token within it. */
static void b5_no_mark_after_a_special_token(void **s) {
    (void)s;
    ln_tok *t =
        tokenizer("{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}],"
                  "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK
                  "\",\"prepend_scheme\":\"first\",\"split\":false},"
                  "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"" MARK "\":2},\"merges\":[]}}");
    ENCODES(t, "a<s>b", true, MARK, "a", "<s>", "b");
    ENCODES(t, "<s>b", true, "<s>", "b");
    ln_tok_close(&t);
}

/* ---- B6, B7: tokens before a text ---- */

static void b6_no_bos_is_not_id_zero(void **s) {
    (void)s;
    ln_tok *t = tokenizer("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"!\":0,\"a\":1},\"merges\":[]}}");
    ENCODES(t, "a", true, "a");
    ln_tok_close(&t);
}

static size_t count(const ln_tok *t, const char *type, const char *token) {
    const ln_message m = {"user", "a", 1};
    ln_str text = {0};
    ln_ids ids = {0};
    bool special;
    size_t n = 0;
    OK(ln_chat_text(t, type, &m, 1, &text, &special, err));
    OK(ln_tok_encode(t, text.data, text.len, special, &ids, err));
    for (size_t i = 0; i < ids.n; i++) n += ids.data[i] == ln_tok_id(t, token, strlen(token));
    ln_str_free(&text);
    ln_ids_free(&ids);
    return n;
}
static void b7_one_bos_in_a_chat(void **s) {
    (void)s;
    static const char doc[] = "{\"added_tokens\":[{\"id\":1,\"content\":\"%s\",\"special\":true}],\"model\":{"
                              "\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},"
                              "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                              "\"SpecialToken\":{\"id\":\"%s\"}},{\"Sequence\":{\"id\":\"A\"}}],"
                              "\"special_tokens\":{\"%s\":{\"ids\":[1]}}}}";
    static const char *const cases[][2] = {{"llama", "<|begin_of_text|>"}, {"gemma3", "<bos>"}};
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        char text[sizeof doc + 100];
        (void)snprintf(text, sizeof text, doc, cases[i][1], cases[i][1], cases[i][1]);
        ln_tok *t = tokenizer(text);
        assert_int_equal(count(t, cases[i][0], cases[i][1]), 1);
        ln_tok_close(&t);
    }
}
static void b7_no_stray_mark_in_qwen(void **s) {
    (void)s;
    ln_tok *t = tokenizer("{\"added_tokens\":[{\"id\":1,\"content\":\"<|im_start|>\",\"special\":true}],"
                          "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
    ENCODES(t, "a", true, "a");
    assert_int_equal(count(t, "qwen3", "<|im_start|>"), 2); /* the user's and the assistant's */
    ln_tok_close(&t);
}

/* ---- B8: bytes, words, normalisation, streams ---- */

#define FALLBACK                                                                                           \
    "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}," \
    "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"a\":0,\"<0xC3>\":1,\"<0xA9>\":2},"    \
    "\"merges\":[]}}"

static void b8_bytes_of_unknown_characters(void **s) {
    (void)s;
    ln_tok *t = tokenizer(FALLBACK);
    ENCODES(t, "a\xc3\xa9", true, "a", "<0xC3>", "<0xA9>");
    ln_tok_close(&t);
}
static void b8_bytes_become_characters(void **s) {
    (void)s;
    ln_tok *t = tokenizer(FALLBACK);
    ln_str text = {0};
    OK(ln_tok_decode(t, (const int32_t[]){0, 1, 2}, 3, true, &text, err));
    assert_string_equal(text.data, "a\xc3\xa9");
    ln_str_free(&text);
    ln_tok_close(&t);
}
/* A merge that would cross the border of two words has the better rank, and must not be applied. */
static void b8_merges_stay_within_words(void **s) {
    (void)s;
    ln_tok *t = tokenizer("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\" "
                          "?[a-z]+\"},\"behavior\":\"Isolated\",\"invert\":false},"
                          "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\" \":2,\"a \":3,\" "
                          "b\":4},\"merges\":[[\"a\",\" \"],[\" \",\"b\"]]}}");
    ENCODES(t, "a b", true, "a", " b");
    ln_tok_close(&t);
}
static void b8_text_is_normalized(void **s) {
    (void)s;
    ln_tok *t = tokenizer("{\"normalizer\":{\"type\":\"NFC\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"e\":0,"
                          "\"\xcc\x81\":1,\"\xc3\xa9\":2},\"merges\":[]}}");
    ENCODES(t, "e\xcc\x81", true, "\xc3\xa9");
    ln_tok_close(&t);
}
/* Four tokens of one byte each are one character, which the stream gives with the last of them. */
static void b8_streams_hold_whole_characters(void **s) {
    (void)s;
    ln_tok *t = tokenizer("{\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"merges\":[],"
                          "\"vocab\":{\"\xc3\xb0\":0,\"\xc5\x81\":1,\"\xc4\xb3\":2,\"\xc2\xa9\":3,\"a\":4}}"
                          "}"); /* f0 9f 91 a9 in GPT-2's byte alphabet */
    ln_detok d;
    ln_str all = {0};
    static const int32_t ids[] = {4, 0, 1, 2, 3, 4};
    ln_detok_open(&d, t, true);
    for (size_t i = 0; i <= LN_COUNT(ids); i++) {
        if (i < LN_COUNT(ids)) OK(ln_detok_push(&d, ids[i], err));
        else OK(ln_detok_flush(&d, err));
        if (ln_utf8_valid(d.text.data, d.text.len) != d.text.len)
            fail_msg("token %zu gives half a character", i);
        ln_str_add(&all, d.text.data, d.text.len);
    }
    assert_string_equal(all.data, "a\xf0\x9f\x91\xa9"
                                  "a");
    ln_str_free(&all);
    ln_detok_close(&d);
    ln_tok_close(&t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b5_blanks_become_marks),     cmocka_unit_test(b5_no_mark_after_a_special_token),
        cmocka_unit_test(b6_no_bos_is_not_id_zero),   cmocka_unit_test(b7_one_bos_in_a_chat),
        cmocka_unit_test(b7_no_stray_mark_in_qwen),   cmocka_unit_test(b8_bytes_of_unknown_characters),
        cmocka_unit_test(b8_bytes_become_characters), cmocka_unit_test(b8_merges_stay_within_words),
        cmocka_unit_test(b8_text_is_normalized),      cmocka_unit_test(b8_streams_hold_whole_characters),
    };
    RUN_DEFECTS(argc, argv, tests);
}
