/* Every test vector of eleven real tokenizers: the same ids, the same text, and the streamed text equal to
 * the whole. Known differences of the reference that do not follow from a tokenizer.json are listed in
 * known_differences.jsonl and are in no family's file. */
/* run: slow */
#include "vectors.h"

typedef struct check {
    const char *family;
    ln_tok *t;
    ln_ids want, got;
    ln_str text;
    size_t n_encoded, n_decoded, n_failed;
} check;

static void report(check *c, const char *what, const char *text, size_t bytes) {
    char shown[80];
    if (c->n_failed++ < 5)
        printf("%s: %s differs for '%s'\n", c->family, what, ln_excerpt(shown, text, bytes));
}

static void check_text(check *c, const char *what, bool skip_special, const json_t *want) {
    ln_error err = {0};
    c->text.len = 0;
    ln_status st = ln_tok_decode(c->t, c->want.data, c->want.n, skip_special, &c->text, &err);
    c->n_decoded++;
    size_t n = json_string_length(want);
    if (st != LN_OK || c->text.len != n || memcmp(c->text.data, json_string_value(want), n) != 0)
        report(c, what, json_string_value(want), n);
    ln_detok d;
    ln_str all = {0};
    ln_detok_open(&d, c->t, skip_special);
    for (size_t i = 0; i <= c->want.n; i++) {
        assert_int_equal(i < c->want.n ? ln_detok_push(&d, c->want.data[i], &err) : ln_detok_flush(&d, &err),
                         LN_OK);
        assert_int_equal(ln_utf8_valid(d.text.data, d.text.len), d.text.len);
        ln_str_add(&all, d.text.data, d.text.len);
    }
    if (all.len != n || memcmp(all.data, json_string_value(want), n) != 0)
        report(c, "the stream", json_string_value(want), n);
    ln_detok_close(&d);
    ln_str_free(&all);
}

static void encode_line(void *user, const json_t *line) {
    check *c = user;
    const json_t *text = json_object_get(line, "text"), *decoded = json_object_get(line, "decoded"),
                 *bare = json_object_get(line, "decoded_skip_special");
    ln_error err = {0};
    vector_ids(json_object_get(line, "ids"), &c->want);
    c->got.n = 0;
    ln_status st = ln_tok_encode(c->t, json_string_value(text), json_string_length(text),
                                 json_is_true(json_object_get(line, "add_special_tokens")), &c->got, &err);
    c->n_encoded++;
    if (st != LN_OK || c->got.n != c->want.n ||
        (c->got.n > 0 && memcmp(c->got.data, c->want.data, c->got.n * sizeof *c->got.data) != 0))
        report(c, "encoding", json_string_value(text), json_string_length(text));
    if (json_is_string(decoded)) check_text(c, "decoding", false, decoded);
    if (json_is_string(bare)) check_text(c, "decoding without specials", true, bare);
}

static void decode_line(void *user, const json_t *line) {
    check *c = user;
    vector_ids(json_object_get(line, "ids"), &c->want);
    check_text(c, "decoding", json_is_true(json_object_get(line, "skip_special_tokens")),
               json_object_get(line, "text"));
}

static void family(void **state) {
    check c = {.family = *state};
    c.t = vector_tokenizer(c.family);
    if (!c.t) skip();
    vector_lines(c.family, ".jsonl", encode_line, &c);
    vector_lines(c.family, ".decode.jsonl", decode_line, &c);
    printf("%s: %zu texts, %zu decodings, %zu wrong\n", c.family, c.n_encoded, c.n_decoded, c.n_failed);
    assert_true(c.n_encoded > 400 && c.n_decoded > 400);
    ln_tok_close(&c.t);
    ln_ids_free(&c.want);
    ln_ids_free(&c.got);
    ln_str_free(&c.text);
    assert_int_equal(c.n_failed, 0);
}

int main(void) {
    struct CMUnitTest tests[sizeof vector_families / sizeof *vector_families];
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tests[i] = (struct CMUnitTest){.name = vector_families[i],
                                       .test_func = family,
                                       .initial_state = (void *)(uintptr_t)vector_families[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
