/* Streaming detokenisation: the pieces together are the whole text, and every piece consists of whole
 * characters, whatever the ids are. Also the built-in chat formats, and the time that hard texts take. */
/* run: slow asan */
#include "vectors.h"
#include "chat/builtin_templates.h"

static uint64_t seed = 1;
static uint32_t draw(uint32_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % n);
}

/* Streams ids and compares the text with decoding them at once. */
static void stream(const ln_tok *t, const ln_ids *ids, bool skip_special, const char *family) {
    ln_str whole = {0}, all = {0};
    ln_detok d;
    assert_int_equal(ln_tok_decode(t, ids->data, ids->n, skip_special, &whole, NULL), LN_OK);
    ln_detok_open(&d, t, skip_special);
    for (size_t i = 0; i <= ids->n; i++) {
        assert_int_equal(i < ids->n ? ln_detok_push(&d, ids->data[i], NULL) : ln_detok_flush(&d, NULL),
                         LN_OK);
        if (ln_utf8_valid(d.text.data, d.text.len) != d.text.len) fail_msg("%s: half a character", family);
        ln_str_add(&all, d.text.data, d.text.len);
    }
    if (all.len != whole.len || (all.len > 0 && memcmp(all.data, whole.data, all.len) != 0)) {
        for (size_t i = 0; i < ids->n; i++) printf("%d ", (int)ids->data[i]);
        fail_msg("%s: streamed '%s', whole '%s'", family, all.data, whole.data);
    }
    ln_detok_close(&d);
    ln_str_free(&whole);
    ln_str_free(&all);
}

static void random_ids(const ln_tok *t, ln_ids *ids, bool mostly_bytes) {
    size_t bytes;
    ids->n = 0;
    for (uint32_t n = 1 + draw(24); n > 0;) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", draw(256));
        int32_t id = mostly_bytes && draw(3) ? ln_tok_id(t, name, 6) : -1;
        if (id < 0) id = (int32_t)draw((uint32_t)ln_tok_count(t));
        if (!ln_tok_content(t, id, &bytes)) continue;
        assert_int_equal(ln_ids_add(ids, id, NULL), LN_OK);
        n--;
    }
}

static void family(void **state) {
    const char *name = *state;
    ln_tok *t = vector_tokenizer(name);
    if (!t) skip();
    ln_ids ids = {0};
    for (int i = 0; i < 4000; i++) {
        random_ids(t, &ids, i % 2 == 0);
        stream(t, &ids, i % 3 == 0, name);
    }
    /* Characters of two, three and four bytes that are tokens of single bytes in some vocabularies: every
     * tokenizer must reproduce them. */
    static const char text[] =
        "a \xc3\xa9\xe2\x96\x81\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7 \xf0\x93\x83\xa0\xe1\x9a\xa0 z";
    ids.n = 0;
    assert_int_equal(ln_tok_encode(t, text, sizeof text - 1, false, &ids, NULL), LN_OK);
    stream(t, &ids, false, name);
    for (size_t cut = 1; cut < ids.n; cut++) { /* cut between any two tokens */
        ln_ids part = {.data = ids.data, .n = cut};
        stream(t, &part, false, name);
        part = (ln_ids){.data = ids.data + cut, .n = ids.n - cut};
        stream(t, &part, false, name);
    }
    ln_ids_free(&ids);
    ln_tok_close(&t);
}

/* A character that consists of four tokens is held until the last one; an incomplete one becomes U+FFFD at
 * the end; an id without a text gives nothing. */
static void whole_characters_only(void **state) {
    (void)state;
    ln_tok *t = NULL;
    static const char doc[] = "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},"
                              "{\"type\":\"Fuse\"}]},\"model\":{\"type\":\"BPE\",\"merges\":[],"
                              "\"vocab\":{\"<0xF0>\":0,\"<0x9F>\":1,\"<0x91>\":2,\"<0xA9>\":3,\"a\":4}}}";
    assert_int_equal(ln_tok_open_memory(&t, "t", doc, sizeof doc - 1, NULL), LN_OK);
    static const struct {
        int32_t ids[8];
        const char *pieces[8]; /* the last one is the flush */
    } cases[] = {{{4, 0, 1, 2, 3, 4, -1},
                  {"a", "", "", "", "",
                   "\xf0\x9f\x91\xa9"
                   "a",
                   ""}},
                 {{0, 1, 2, 3, -1}, {"", "", "", "", "\xf0\x9f\x91\xa9"}},
                 {{0, 1, -1}, {"", "", "\xef\xbf\xbd\xef\xbf\xbd"}},
                 {{0, 0, 1, 4, -1}, {"", "\xef\xbf\xbd\xef\xbf\xbd", "\xef\xbf\xbd", "a", ""}},
                 {{77, 4, 99, -1}, {"", "a", "", ""}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ln_detok d;
        ln_detok_open(&d, t, true);
        size_t k = 0;
        for (; cases[i].ids[k] >= 0; k++) {
            assert_int_equal(ln_detok_push(&d, cases[i].ids[k], NULL), LN_OK);
            assert_string_equal(d.text.data, cases[i].pieces[k]);
        }
        assert_int_equal(ln_detok_flush(&d, NULL), LN_OK);
        assert_string_equal(d.text.data, cases[i].pieces[k]);
        assert_int_equal(ln_detok_push(&d, 4, NULL), LN_OK); /* the stream starts again after a flush */
        assert_string_equal(d.text.data, "a");
        assert_int_equal(ln_detok_push(&d, -1, NULL), LN_EINVALID);
        ln_detok_close(&d);
    }
    ln_tok_close(&t);
}

/* ---- built-in chat formats ---- */

static void form(const ln_tok *t, const char *type, const char *system, const char *want, bool want_special) {
    ln_str s = {0};
    bool special;
    ln_error err = {0};
    const ln_message m[] = {{"system", system, system ? strlen(system) : 0}, {"user", "Hi", 2}};
    assert_int_equal(ln_chat_text(t, type, system ? m : m + 1, system ? 2 : 1, &s, &special, &err), LN_OK);
    assert_string_equal(s.data, want);
    assert_int_equal(special, want_special);
    ln_str_free(&s);
}

static size_t count_of(const ln_tok *t, const char *type, const char *token) {
    ln_str s = {0};
    ln_ids ids = {0};
    bool special;
    size_t n = 0;
    const ln_message m[] = {
        {"system", "Be brief.", 9}, {"user", "Hi", 2}, {"assistant", "Yes?", 4}, {"user", "Bye", 3}};
    assert_int_equal(ln_chat_text(t, type, m, LN_COUNT(m), &s, &special, NULL), LN_OK);
    assert_int_equal(ln_tok_encode(t, s.data, s.len, special, &ids, NULL), LN_OK);
    for (size_t i = 0; i < ids.n; i++) n += ids.data[i] == ln_tok_id(t, token, strlen(token));
    ln_str_free(&s);
    ln_ids_free(&ids);
    return n;
}

static void chat_forms(void **state) {
    (void)state;
    ln_tok *t = NULL;
    static const char doc[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
    assert_int_equal(ln_tok_open_memory(&t, "t", doc, sizeof doc - 1, NULL), LN_OK);
    form(t, "gemma3", NULL, "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n", true);
    form(t, "gemma3_text", "S", "<start_of_turn>user\nS\n\nHi<end_of_turn>\n<start_of_turn>model\n", true);
    form(t, "qwen3", NULL, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", false);
    form(t, "qwen2", "S",
         "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", false);
    form(t, "llama", "S",
         "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|"
         "end_header_id|>\n\nHi<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\n",
         false);
    ln_str s = {0};
    bool special;
    ln_error err = {0};
    const ln_message hi = {"user", "Hi", 2};
    assert_int_equal(ln_chat_text(t, "mamba", &hi, 1, &s, &special, &err), LN_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "mamba"));
    ln_str_free(&s);
    ln_tok_close(&t);
}

/* Formats a conversation given as one letter a message: s, u, a, and x for an unknown role. A message's
 * text is its letter and its number. */
static ln_status converse(const ln_tok *t, const char *type, const char *letters, ln_str *out,
                          ln_error *err) {
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    ln_message m[8];
    char text[8][3];
    size_t n = strlen(letters);
    bool special;
    for (size_t i = 0; i < n; i++) {
        text[i][0] = letters[i], text[i][1] = (char)('1' + i), text[i][2] = 0;
        m[i] = (ln_message){roles[letters[i] == 's'   ? 0
                                  : letters[i] == 'u' ? 1
                                  : letters[i] == 'a' ? 2
                                                      : 3],
                            text[i], 2};
    }
    out->len = 0;
    return ln_chat_text(t, type, m, n, out, &special, err);
}

static void conversations(void **state) {
    (void)state;
    ln_tok *t = NULL;
    ln_str s = {0};
    ln_error err;
    static const char doc[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
    assert_int_equal(ln_tok_open_memory(&t, "t", doc, sizeof doc - 1, NULL), LN_OK);
    assert_int_equal(converse(t, "gemma3", "suau", &s, &err), LN_OK);
    assert_string_equal(s.data, "<start_of_turn>user\ns1\n\nu2<end_of_turn>\n<start_of_turn>model\na3<end_of_"
                                "turn>\n<start_of_turn>user\nu4<end_of_turn>\n"
                                "<start_of_turn>model\n");
    assert_int_equal(converse(t, "qwen3", "suau", &s, &err), LN_OK);
    assert_string_equal(s.data, "<|im_start|>system\ns1<|im_end|>\n<|im_start|>user\nu2<|im_end|>\n<|im_"
                                "start|>assistant\na3<|im_end|>\n"
                                "<|im_start|>user\nu4<|im_end|>\n<|im_start|>assistant\n");
    assert_int_equal(converse(t, "llama", "uau", &s, &err), LN_OK);
    assert_string_equal(s.data, "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nu1<|eot_id|><|"
                                "start_header_id|>assistant<|end_header_id|>\n\n"
                                "a2<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nu3<|eot_id|><|start_"
                                "header_id|>assistant<|end_header_id|>\n\n");
    assert_int_equal(converse(t, "qwen2", "auus", &s, &err),
                     LN_OK); /* this format allows any order of roles */
    static const struct {
        const char *type, *letters;
        ln_status code;
        const char *said;
    } bad[] = {{"qwen3", "", LN_EUSAGE, "empty"},
               {"gemma3", "", LN_EUSAGE, "empty"},
               {"qwen3", "ux", LN_EINVALID, "message 2: role"},
               {"llama", "xu", LN_EINVALID, "found 'tool'"},
               {"gemma3", "a", LN_EINVALID, "message 1: role: expected user, found assistant"},
               {"gemma3", "s", LN_EINVALID, "message 2"},
               {"gemma3", "sa", LN_EINVALID, "message 2: role: expected user"},
               {"gemma3", "uu", LN_EINVALID, "message 2: role: expected assistant"},
               {"gemma3", "uas", LN_EINVALID, "message 3: role: expected user, found system"},
               {"gemma3", "ssu", LN_EINVALID, "message 2: role: expected user, found system"}};
    for (size_t i = 0; i < LN_COUNT(bad); i++) {
        ln_status st = converse(t, bad[i].type, bad[i].letters, &s, &err);
        if (st != bad[i].code || !strstr(err.message, bad[i].said))
            fail_msg("%s %s: %d, %s", bad[i].type, bad[i].letters, st, err.message);
    }
    ln_str_free(&s);
    ln_tok_close(&t);
}

static void one_bos_never_two(void **state) {
    (void)state;
    static const struct {
        const char *family, *type, *bos;
        size_t want;
    } cases[] = {{"gemma-3", "gemma3", "<bos>", 1},
                 {"llama-3.1", "llama", "<|begin_of_text|>", 1},
                 {"qwen3", "qwen3", "<|im_start|>", 5},
                 {"qwen3", "qwen3", "<|endoftext|>", 0},
                 {"smollm2", "llama", "<|im_start|>", 5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ln_tok *t = vector_tokenizer(cases[i].family);
        if (!t) skip();
        assert_int_equal(count_of(t, cases[i].type, cases[i].bos), cases[i].want);
        ln_tok_close(&t);
    }
}

/* ---- time ---- */

/* The CPU time of an encoding; returns the smaller of `best` and this measurement. */
static double time_of(const ln_tok *t, const char *unit, size_t bytes, double best) {
    size_t u = strlen(unit), n = bytes / u * u;
    char *s = malloc(n);
    ln_ids ids = {0};
    for (size_t i = 0; i < n; i += u) memcpy(s + i, unit, u);
    double from = cpu_seconds();
    assert_int_equal(ln_tok_encode(t, s, n, false, &ids, NULL), LN_OK);
    best = LN_MIN(best, cpu_seconds() - from);
    ln_ids_free(&ids);
    free(s);
    return best;
}

/* A text of eight times the length takes about eight times as long (a quadratic step would take sixty-four
 * times). The bound allows for caches that overflow, and a loaded host has several tries. bench/tok_speed
 * prints the ratio for twice the length. */
static void hard_texts_take_linear_time(void **state) {
    (void)state;
    static const char *const units[] = {"a",
                                        "_",
                                        "7",
                                        "\n",
                                        " ",
                                        "\xe2\x80\x8d",
                                        "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7\xe2\x80\x8d",
                                        "\xe7\x8e\x8b",
                                        "QmFzZTY0+/9zdHJpbmc",
                                        "\xcc\x81\xcc\xa3"};
    static const char *const names[] = {"qwen3", "llama-3.1", "gemma-3"};
    for (size_t f = 0; f < sizeof names / sizeof *names; f++) {
        ln_tok *t = vector_tokenizer(names[f]);
        if (!t) skip();
        for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
            double small = 1e9, large = 1e9;
            for (int tries = 0; tries < 3 || (tries < 20 && large > 24 * small + 0.002); tries++) {
                small = time_of(t, units[i], 1 << 15, small);
                large = time_of(t, units[i], 1 << 18, large);
            }
            if (large > 24 * small + 0.002)
                fail_msg("%s: unit %zu: %.2f ms, eight times as much %.2f ms", names[f], i, small * 1e3,
                         large * 1e3);
        }
        ln_tok_close(&t);
    }
}

int main(void) {
    enum { N = sizeof vector_families / sizeof *vector_families };
    struct CMUnitTest tests[N + 4] = {cmocka_unit_test(whole_characters_only), cmocka_unit_test(chat_forms),
                                      cmocka_unit_test(conversations), cmocka_unit_test(one_bos_never_two),
                                      cmocka_unit_test(hard_texts_take_linear_time)};
    for (size_t i = 0; i < N; i++)
        tests[4 + i] = (struct CMUnitTest){.name = vector_families[i],
                                           .test_func = family,
                                           .initial_state = (void *)(uintptr_t)vector_families[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
