/* The bytes of single tokens (ln_tok_bytes): those of a text's tokens, joined, are the text. */
/* run: quick */
#include "../base/cm.h"

#include "tokenizer/tokenizer.h"

#include <string.h>

static void add_bytes(ln_str *out, const ln_tok *tok, int32_t id) {
    ln_error err;
    if (ln_tok_bytes(tok, id, out, &err) != LN_OK) fail_msg("%s", err.message);
}

static void is(const ln_tok *tok, int32_t id, const char *bytes) {
    ln_str s = {0};
    add_bytes(&s, tok, id);
    assert_int_equal(s.len, strlen(bytes));
    if (s.len) assert_memory_equal(s.data, bytes, s.len);
    ln_str_free(&s);
}

/* Byte-level: tokens that end within a character have their own bytes. */
static void byte_level(void **state) {
    (void)state;
    static const char text[] = "Once upon a time \xe4\xb8\xad\xf0\x9f\x98\x80 there was  a caf\xc3\xa9.\n\t";
    ln_tok *tok;
    ln_error err;
    ln_ids ids = {0};
    ln_str s = {0};
    bool parts = false;
    if (ln_tok_open(&tok, LN_ROOT "/models/tiny", &err)) fail_msg("%s", err.message);
    assert_int_equal(ln_tok_encode(tok, text, strlen(text), false, &ids, &err), LN_OK);
    for (size_t i = 0; i < ids.n; i++) {
        size_t from = s.len;
        add_bytes(&s, tok, ids.data[i]);
        parts = parts || ln_utf8_valid(s.data + from, s.len - from) < s.len - from;
    }
    assert_int_equal(s.len, strlen(text));
    assert_memory_equal(s.data, text, s.len);
    assert_true(parts); /* the emoji is no token */
    is(tok, -1, "");
    is(tok, ln_tok_count(tok), "");
    ln_str_free(&s);
    ln_ids_free(&ids);
    ln_tok_close(&tok);
}

/* SentencePiece in tokenizer.json: the blank before a word is kept, bytes of the fallback are bytes. */
static void byte_fallback(void **state) {
    (void)state;
    static const char json[] =
        "{\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true,\"single_word\":false,\"lstrip\":"
        "false,"
        "\"rstrip\":false,\"normalized\":false}],\"normalizer\":null,\"pre_tokenizer\":null,\"post_"
        "processor\":null,"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
        "\"\xe2\x96\x81\"},"
        "\"content\":\" "
        "\"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \","
        "\"start\":1,\"stop\":0}]},\"model\":{\"type\":\"BPE\",\"unk_token\":null,\"byte_fallback\":true,"
        "\"vocab\":{\"<s>\":0,"
        "\"<0xE2>\":1,\"<0x82>\":2,\"\xe2\x96\x81\":3,\"a\":4,\"\xe2\x96\x81"
        "a\":5,\"\xe2\x82\xac\":6},\"merges\":[\"\xe2\x96\x81 a\"]}}";
    ln_tok *tok;
    ln_error err;
    if (ln_tok_open_memory(&tok, "tokenizer.json", json, strlen(json), &err)) fail_msg("%s", err.message);
    is(tok, 0, "<s>");
    is(tok, 1, "\xe2");
    is(tok, 2, "\x82");
    is(tok, 3, " ");
    is(tok, 4, "a");
    is(tok, 5, " a");
    is(tok, 6, "\xe2\x82\xac");
    ln_tok_close(&tok);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(byte_level), cmocka_unit_test(byte_fallback)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
