/* Small tokenizers that cover every step and flag, compared with the reference (cases.jsonl, written by
 * make_cases.py), and every malformed file of the catalogue of bad inputs, under its id there. */
/* run: quick asan */
#include "tokenizer/tokenizer_internal.h"
#include "vectors.h"

#include <unistd.h>

#define CASES LN_ROOT "/tests/tokenizer/cases.jsonl"

/* ---- comparison with the reference ---- */

typedef struct golden {
    json_t *bases, *lines, *texts;
} golden;

static golden read_golden(void) {
    golden g = {json_object(), json_array(), NULL};
    FILE *f = fopen(CASES, "r");
    if (!f) fail_msg("%s: cannot be read", CASES);
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t n; (n = getline(&line, &cap, f)) > 0;) {
        json_t *o = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL);
        assert_non_null(o);
        if (json_object_get(o, "base") && json_object_get(o, "name")) json_array_append(g.lines, o);
        else if (json_object_get(o, "base"))
            json_object_set(g.bases, json_string_value(json_object_get(o, "base")),
                            json_object_get(o, "model"));
        else g.texts = json_incref(json_object_get(o, "texts"));
        json_decref(o);
    }
    free(line);
    fclose(f);
    return g;
}

static ln_tok *open_json(json_t *doc, const char *name) {
    ln_tok *t = NULL;
    ln_error err = {0};
    char *text = json_dumps(doc, 0);
    if (ln_tok_open_memory(&t, name, text, strlen(text), &err) != LN_OK)
        fail_msg("%s: %s", name, err.message);
    free(text);
    return t;
}

static json_t *document(const golden *g, const json_t *line) {
    json_t *doc = json_object(),
           *model = json_copy(json_object_get(g->bases, json_string_value(json_object_get(line, "base"))));
    json_object_update(doc, json_object_get(line, "with"));
    json_object_update(model, json_object_get(line, "model"));
    json_object_set_new(doc, "model", model);
    return doc;
}

static size_t n_wrong, n_checked;

static void wrong(const char *name, const char *what, const json_t *text) {
    char shown[80];
    if (n_wrong++ < 20)
        printf("%s: %s: '%s'\n", name, what,
               ln_excerpt(shown, json_string_value(text), json_string_length(text)));
}

static void check_encodings(const json_t *texts, const ln_tok *t, const char *name, const json_t *list,
                            bool special) {
    ln_ids want = {0}, got = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *text = json_array_get(texts, i);
        vector_ids(json_array_get(list, i), &want);
        got.n = 0;
        ln_error err = {0};
        ln_status st =
            ln_tok_encode(t, json_string_value(text), json_string_length(text), special, &got, &err);
        n_checked++;
        if (st != LN_OK || got.n != want.n ||
            (got.n > 0 && memcmp(got.data, want.data, got.n * sizeof *got.data) != 0))
            wrong(name, special ? "encoding with specials" : "encoding", text);
    }
    ln_ids_free(&want);
    ln_ids_free(&got);
}

static void check_decodings(const ln_tok *t, const char *name, const json_t *list) {
    ln_ids ids = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *line = json_array_get(list, i), *want = json_array_get(line, 2);
        bool skip_special = json_is_true(json_array_get(line, 1));
        ln_str whole = {0}, streamed = {0};
        ln_detok d;
        vector_ids(json_array_get(line, 0), &ids);
        assert_int_equal(ln_tok_decode(t, ids.data, ids.n, skip_special, &whole, NULL), LN_OK);
        ln_detok_open(&d, t, skip_special);
        for (size_t k = 0; k <= ids.n; k++) {
            assert_int_equal(k < ids.n ? ln_detok_push(&d, ids.data[k], NULL) : ln_detok_flush(&d, NULL),
                             LN_OK);
            assert_int_equal(ln_utf8_valid(d.text.data, d.text.len), d.text.len);
            ln_str_add(&streamed, d.text.data, d.text.len);
        }
        n_checked += 2;
        size_t n = json_string_length(want);
        if (whole.len != n || memcmp(whole.data, json_string_value(want), n) != 0)
            wrong(name, "decoding", want);
        if (streamed.len != n || (n > 0 && memcmp(streamed.data, json_string_value(want), n) != 0))
            wrong(name, "the stream", want);
        ln_detok_close(&d);
        ln_str_free(&whole);
        ln_str_free(&streamed);
    }
    ln_ids_free(&ids);
}

static void every_step_as_the_reference(void **state) {
    (void)state;
    golden g = read_golden();
    for (size_t i = 0; i < json_array_size(g.lines); i++) {
        const json_t *line = json_array_get(g.lines, i);
        const char *name = json_string_value(json_object_get(line, "name"));
        json_t *doc = document(&g, line);
        ln_tok *t = open_json(doc, name);
        const json_t *texts = json_object_get(line, "texts");
        if (!texts) texts = g.texts;
        check_encodings(texts, t, name, json_object_get(line, "encode"), false);
        check_encodings(texts, t, name, json_object_get(line, "encode_special"), true);
        check_decodings(t, name, json_object_get(line, "decode"));
        ln_tok_close(&t);
        json_decref(doc);
    }
    printf("%zu tokenizers, %zu comparisons, %zu wrong\n", json_array_size(g.lines), n_checked, n_wrong);
    assert_true(json_array_size(g.lines) > 110);
    json_decref(g.bases);
    json_decref(g.lines);
    json_decref(g.texts);
    assert_int_equal(n_wrong, 0);
}

/* ---- malformed files ---- */

#define MODEL(x) "{\"model\":{\"type\":\"BPE\"," x "}}"
#define VOCAB    "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
#define GOOD     "\"model\":{\"type\":\"BPE\"," VOCAB "\"merges\":[]}"
#define WITH(x)  "{" x "," GOOD "}"
#define TOKEN(x) WITH("\"added_tokens\":[" x "]")
#define POST(x)  WITH("\"post_processor\":" x)

static const struct {
    const char *row, *json;
    ln_status want;
    const char *says; /* a part of the message */
} files[] = {
    {"T-1 empty", "", LN_EINVALID, "byte 0"},
    {"T-1 cut off", "{\"model\":{\"vocab\":{\"a", LN_EINVALID, "closing quote"},
    {"T-1 no model", "{}", LN_EINVALID, "model"},
    {"T-1 garbage behind", "{" GOOD "} x", LN_EINVALID, "end of the document"},
    {"T-2 WordPiece", "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}", LN_EUNSUPPORTED,
     "WordPiece"},
    {"T-2 Unigram", "{\"model\":{\"vocab\":[[\"a\",0]],\"type\":\"Unigram\"}}", LN_EUNSUPPORTED, "Unigram"},
    {"T-2 none", "{\"model\":{\"vocab\":{\"a\":0}}}", LN_EUNSUPPORTED, "neither type nor merges"},
    {"T-2 none but merges", "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}", LN_OK, ""},
    {"T-3 empty", MODEL("\"vocab\":{},\"merges\":[]"), LN_EINVALID, "at least one token"},
    {"T-3 list", MODEL("\"vocab\":[\"a\"],\"merges\":[]"), LN_EINVALID, "a list"},
    {"T-3 twice", MODEL(VOCAB VOCAB "\"merges\":[]"), LN_EINVALID, "twice"},
    {"T-4 negative", MODEL("\"vocab\":{\"a\":-1},\"merges\":[]"), LN_EINVALID, "'a': expected an id"},
    {"T-4 real", MODEL("\"vocab\":{\"a\":1.0},\"merges\":[]"), LN_EINVALID, "expected an id"},
    {"T-4 2^31", MODEL("\"vocab\":{\"a\":2147483648},\"merges\":[]"), LN_EINVALID, "expected an id"},
    {"T-4 limit + 1", MODEL("\"vocab\":{\"a\":4194304},\"merges\":[]"), LN_EINVALID, "expected an id"},
    {"T-4 limit", MODEL("\"vocab\":{\"a\":4194303},\"merges\":[]"), LN_OK, ""},
    {"T-4 duplicate", MODEL("\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]"), LN_EINVALID, "id 1"},
    {"T-4 holes", MODEL("\"vocab\":{\"a\":1,\"b\":9},\"merges\":[]"), LN_OK, ""},
    {"T-5", MODEL("\"vocab\":{\"a\":1,\"\\u0061\":2},\"merges\":[]"), LN_EINVALID, "'a' twice"},
    {"T-6", MODEL(VOCAB "\"merges\":[\"ab b\"]"), LN_EINVALID, "merges[0]"},
    {"T-7 unknown", MODEL(VOCAB "\"merges\":[\"a b\",\"a q\"]"), LN_EINVALID, "merges[1]"},
    {"T-7 no blank", MODEL(VOCAB "\"merges\":[\"ab\"]"), LN_EINVALID, "one space"},
    {"T-7 two blanks", MODEL(VOCAB "\"merges\":[\"a  b\"]"), LN_EINVALID, "one space"},
    {"T-7 pair", MODEL(VOCAB "\"merges\":[[\"a\",\"b\"]]"), LN_OK, ""},
    {"T-7 one", MODEL(VOCAB "\"merges\":[[\"a\"]]"), LN_EINVALID, "pair of strings"},
    {"T-7 three", MODEL(VOCAB "\"merges\":[[\"a\",\"b\",\"a\"]]"), LN_EINVALID, "pair"},
    {"T-7 escaped", MODEL(VOCAB "\"merges\":[[\"\\u0061\",\"b\"],[\"a\",\"b\"]]"), LN_OK, ""},
    {"T-7 no UTF-8", MODEL(VOCAB "\"merges\":[[\"a\xff\",\"b\"]]"), LN_EINVALID, "UTF-8"},
    {"T-7 comma", MODEL(VOCAB "\"merges\":[[\"a\",\"b\"],]"), LN_EINVALID, "a value"},
    {"T-7 no comma", MODEL(VOCAB "\"merges\":[[\"a\",\"b\"][\"a\",\"b\"]]"), LN_EINVALID, "','"},
    {"T-7 number", MODEL(VOCAB "\"merges\":[7]"), LN_EINVALID, "a string or a pair"},
    {"T-7 before the vocabulary",
     MODEL("\"merges\":[\"a b\"],"
           "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}"),
     LN_OK, ""},
    {"T-7 none", MODEL("\"vocab\":{\"a\":0}"), LN_EINVALID, "merges"},
    {"T-8", MODEL("\"continuing_subword_prefix\":\"####\"," VOCAB "\"merges\":[\"a b\"]"), LN_EINVALID,
     "continuing_subword_prefix"},
    {"T-8 prefix behind", MODEL(VOCAB "\"merges\":[\"a b\"],\"continuing_subword_prefix\":\"####\""),
     LN_EINVALID, "continuing_subword_prefix"},
    {"dropout", MODEL("\"dropout\":0.1," VOCAB "\"merges\":[]"), LN_EUNSUPPORTED, "dropout"},
    {"dropout 0", MODEL("\"dropout\":0.0," VOCAB "\"merges\":[]"), LN_OK, ""},
    {"T-12 clash", TOKEN("{\"id\":1,\"content\":\"<x>\"}"), LN_EINVALID, "'<x>'"},
    {"T-12 other id", TOKEN("{\"id\":7,\"content\":\"a\"}"), LN_EINVALID, "'a'"},
    {"T-12 two ids", TOKEN("{\"id\":3,\"content\":\"x\"},{\"id\":4,\"content\":\"x\"}"), LN_EINVALID, "'x'"},
    {"T-12 same again", TOKEN("{\"id\":3,\"content\":\"x\"},{\"id\":3,\"content\":\"x\",\"special\":true}"),
     LN_OK, ""},
    {"T-12 empty", TOKEN("{\"id\":3,\"content\":\"\"}"), LN_EINVALID, "content"},
    {"T-12 no id", TOKEN("{\"content\":\"x\"}"), LN_EINVALID, "id"},
    {"T-12 flag", TOKEN("{\"id\":3,\"content\":\"x\",\"special\":1}"), LN_EINVALID, "true or false"},
    {"T-15 invalid",
     WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a\"},\"behavior\":\"Isolated\"}"),
     LN_EINVALID, "pattern"},
    {"T-15 set",
     WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a\"},\"behavior\":\"Isolated\"}"),
     LN_EINVALID, "closing bracket"},
    {"T-15 &&",
     WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},\"behavior\":"
          "\"Isolated\"}"),
     LN_EUNSUPPORTED, "&&"},
    {"T-15 property",
     WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{Nonsense}\"},\"behavior\":"
          "\"Isolated\"}"),
     LN_EUNSUPPORTED, "Nonsense"},
    {"T-15 lookbehind",
     WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?<=a)b\"},\"behavior\":"
          "\"Isolated\"}"),
     LN_OK, ""},
    {"T-15 variable lookbehind",
     WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?<=a+)b\"},\"behavior\":"
          "\"Isolated\"}"),
     LN_EUNSUPPORTED, "lookbehind"},
    {"T-15 behaviour",
     WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Sideways\"}"),
     LN_EUNSUPPORTED, "Sideways"},
    {"T-16", WITH("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"!\"}"),
     LN_EUNSUPPORTED, "Precompiled"},
    {"T-17", WITH("\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}"), LN_EINVALID,
     "start"},
    {"T-18 FixedLength", WITH("\"pre_tokenizer\":{\"type\":\"FixedLength\",\"length\":0}"), LN_EINVALID,
     "length"},
    {"T-19",
     POST("{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}}],\"special_"
          "tokens\":{}}"),
     LN_EINVALID, "<s>"},
    {"T-20 stride", WITH("\"truncation\":{\"max_length\":8,\"stride\":8}"), LN_EINVALID, "stride"},
    {"T-20 fine",
     WITH("\"truncation\":{\"max_length\":8,\"stride\":0},\"padding\":{\"strategy\":{\"Fixed\":8}}"), LN_OK,
     ""},
    {"T-20 padding", WITH("\"padding\":{\"strategy\":{\"Fixed\":9223372036854775808}}"), LN_EINVALID,
     "Fixed"},
    {"T-21",
     POST("{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}],\"special_"
          "tokens\":{\"x\":{\"ids\":[3]}}}"),
     LN_EINVALID, "found 3"},
    {"T-21 pair", POST("{\"type\":\"BertProcessing\",\"sep\":[\"a\",9],\"cls\":[\"a\",0]}"),
     LN_EINVALID, "found 9"},
    {"T-22", WITH("\"pre_tokenizer\":{\"type\":\"ByteLevel\"}"), LN_EINVALID, "byte-level alphabet"},
    {"unknown normalizer", WITH("\"normalizer\":{\"type\":\"Nmt\"}"), LN_EUNSUPPORTED, "'Nmt'"},
    {"unknown pre-tokenizer", WITH("\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}"), LN_EUNSUPPORTED,
     "'UnicodeScripts'"},
    {"unknown post-processor", POST("{\"type\":\"Other\"}"), LN_EUNSUPPORTED, "'Other'"},
    {"unknown decoder", WITH("\"decoder\":{\"type\":\"CTC\"}"), LN_EUNSUPPORTED, "'CTC'"},
    {"nested unknown", WITH("\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"CTC\"}]}"),
     LN_EUNSUPPORTED, "'CTC'"},
    {"type missing", WITH("\"normalizer\":{}"), LN_EINVALID, "type"},
    {"Metaspace contradiction",
     WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\","
          "\"add_prefix_space\":false}"),
     LN_EINVALID, "prepend_scheme"},
    {"Metaspace replacement", WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}"),
     LN_EINVALID, "one character"},
    {"a null everywhere",
     WITH("\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":null,\"added_"
          "tokens\":null,\"truncation\":null,\"padding\":null"),
     LN_OK, ""},
    {"section twice", WITH("\"decoder\":null,\"decoder\":null"), LN_EINVALID, "twice"},
};

static ln_status open_text(const char *json, size_t bytes, ln_error *err) {
    ln_tok *t = NULL;
    *err = (ln_error){0};
    char *copy = malloc(bytes + 1); /* a block of the exact size, so that a sanitizer detects a read beyond
                                       it */
    memcpy(copy, json, bytes);
    ln_status st = ln_tok_open_memory(&t, "t.json", copy, bytes, err);
    assert_true((st == LN_OK) == (t != NULL));
    ln_tok_close(&t);
    free(copy);
    return st;
}

static void malformed_files(void **state) {
    (void)state;
    uint64_t before = ln_mem_bytes();
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ln_error err;
        ln_status st = open_text(files[i].json, strlen(files[i].json), &err);
        if (st != files[i].want || !strstr(err.message, files[i].says))
            fail_msg("%s: expected %d with '%s', got %d: %s", files[i].row, files[i].want, files[i].says, st,
                     err.message);
    }
    assert_int_equal(ln_mem_bytes(), before);
}

static char *repeated(const char *head, const char *unit, size_t n, const char *tail, size_t *bytes) {
    size_t h = strlen(head), u = strlen(unit), t = strlen(tail);
    char *s = malloc(h + u * n + t + 1);
    memcpy(s, head, h);
    for (size_t i = 0; i < n; i++) memcpy(s + h + i * u, unit, u);
    memcpy(s + h + u * n, tail, t + 1);
    *bytes = h + u * n + t;
    return s;
}

static void limits(void **state) {
    (void)state;
    static const struct {
        const char *row, *head, *unit, *tail;
        size_t n;
        ln_status want;
    } big[] = {
        {"T-9", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[\"a a\"", ",\"a a\"",
         "]}}", 1 << 23, LN_EINVALID},
        {"T-9 below", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[\"a a\"",
         ",\"a a\"", "]}}", 1 << 16, LN_OK},
        {"T-12 64 KiB + 1", "{\"added_tokens\":[{\"id\":3,\"content\":\"", "x", "\"}]," GOOD "}",
         (1 << 16) + 1, LN_EINVALID},
        {"T-12 64 KiB", "{\"added_tokens\":[{\"id\":3,\"content\":\"", "x", "\"}]," GOOD "}", 1 << 16, LN_OK},
        {"T-14 deep", "{\"normalizer\":", "{\"type\":\"Sequence\",\"normalizers\":[", "1", 100000,
         LN_EINVALID},
        {"T-14 long", "{" GOOD ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}",
         ",{\"type\":\"NFC\"}", "]}}", 100000, LN_EINVALID},
        {"T-14 256", "{" GOOD ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}",
         ",{\"type\":\"NFC\"}", "]}}", 255, LN_OK},
        {"T-15 1 MiB",
         "{" GOOD ",\"normalizer\":{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{\"Regex\":\"", "a",
         "\"}}}", 1 << 20, LN_EINVALID},
        {"token of 64 KiB + 1", "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"", "x", "\":0}}}",
         (1 << 16) + 1, LN_EINVALID},
    };
    for (size_t i = 0; i < sizeof big / sizeof *big; i++) {
        size_t bytes;
        ln_error err;
        char *json = repeated(big[i].head, big[i].unit, big[i].n, big[i].tail, &bytes);
        ln_status st = open_text(json, bytes, &err);
        if (st != big[i].want)
            fail_msg("%s: expected %d, got %d: %s", big[i].row, big[i].want, st, err.message);
        free(json);
    }
}

/* Every prefix of a document and every single flipped byte: the result is an error or a tokenizer. */
static void broken_documents(void **state) {
    (void)state;
    static const char doc[] =
        "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}],\"normalizer\":{\"type\":"
        "\"Replace\",\"pattern\":{\"Regex\":\"\\\\s[a\\\\S]+\"},"
        "\"content\":\"_\"},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"},\"post_"
        "processor\":{\"type\":\"BertProcessing\",\"sep\":[\"a\",0],"
        "\"cls\":[\"<s>\",3]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
        "\"ByteFallback\"},{\"type\":\"Strip\",\"content\":\"a\",\"start\":1,"
        "\"stop\":1}]},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[[\"a\","
        "\"b\"]]}}";
    ln_error err;
    assert_int_equal(open_text(doc, sizeof doc - 1, &err), LN_OK);
    char copy[sizeof doc];
    for (size_t i = 0; i + 1 < sizeof doc; i++) {
        assert_int_not_equal(open_text(doc, i, &err), LN_OK);
        for (int bit = 0; bit < 8; bit++) {
            memcpy(copy, doc, sizeof doc);
            copy[i] = (char)(copy[i] ^ 1 << bit);
            (void)open_text(copy, sizeof doc - 1, &err);
        }
    }
}

static void failing_allocations(void **state) {
    (void)state;
    static const char doc[] =
        "{\"added_tokens\":[{\"id\":3,\"content\":\"<S>\",\"normalized\":true}],\"normalizer\":{\"type\":"
        "\"Lowercase\"},\"pre_tokenizer\":{\"type\":"
        "\"Split\",\"pattern\":{\"Regex\":\"\\\\w+\"},\"behavior\":\"Isolated\"}," GOOD "}";
    uint64_t before = ln_mem_bytes();
    bool done = false;
    for (int64_t n = 1; !done && n < 2000; n++) {
        ln_tok *t = NULL;
        ln_ids ids = {0};
        ln_str text = {0};
        ln_error err = {0};
        ln_mem_fail_at(n, true);
        ln_status st = ln_tok_open_memory(&t, "t", doc, sizeof doc - 1, &err);
        if (st == LN_OK) st = ln_tok_encode(t, "Ab<S>\xff", 6, true, &ids, &err);
        if (st == LN_OK) st = ln_tok_decode(t, ids.data, ids.n, false, &text, &err);
        done = st == LN_OK;
        ln_mem_fail_at(-1, false);
        if (!done && st != LN_EMEMORY) fail_msg("allocation %d: %d %s", (int)n, st, err.message);
        ln_tok_close(&t);
        ln_ids_free(&ids);
        ln_str_free(&text);
        assert_int_equal(ln_mem_bytes(), before);
    }
    assert_true(done);
    done = false;
    for (int64_t n = 1; !done && n < 2000; n++) { /* the n-th allocation alone: a pattern needs each of its
                                                     allocations, also that of its machine code */
        tok_regex re;
        ln_mem_fail_at(n, false);
        ln_status st = regex_open(&re, "t", "\\w+", 3, false, NULL);
        done = ln_mem_fail_at(-1, false) >= 0;
        if (st != (done ? LN_OK : LN_EMEMORY)) fail_msg("allocation %d alone: %d", (int)n, st);
        regex_close(&re);
        assert_int_equal(ln_mem_bytes(), before);
    }
    assert_true(done);
}

/* ---- texts ---- */

static ln_tok *chars(void) {
    ln_tok *t = NULL;
    static const char doc[] = "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,"
                              "\"\xef\xbf\xbd\":2,\"\\u0000\":3},\"merges\":[]}}";
    assert_int_equal(ln_tok_open_memory(&t, "chars", doc, sizeof doc - 1, NULL), LN_OK);
    return t;
}

static void invalid_utf8_is_replaced(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t bytes;
        const char *ids; /* one digit an id */
    } cases[] = {{"a\xff"
                  "a",
                  3, "121"},
                 {"\xe2\x96", 2, "2"},
                 {"\xe2\x96"
                  "a",
                  3, "21"},
                 {"\xf0\x9f\x91", 3, "2"},
                 {"\xed\xa0\x80", 3, "222"},
                 {"\xc0\xaf", 2, "22"},
                 {"\xf4\x90\x80\x80", 4, "2222"},
                 {"\xf0\x80\x80\x80", 4, "2222"},
                 {"a\0a", 3, "131"},
                 {"\xe2\xe2\x96\x81", 4, "20"},
                 {"\x80", 1, "2"},
                 {"", 0, ""}};
    ln_tok *t = chars();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ln_ids ids = {0};
        assert_int_equal(ln_tok_encode(t, cases[i].text, cases[i].bytes, false, &ids, NULL), LN_OK);
        assert_int_equal(ids.n, strlen(cases[i].ids));
        for (size_t k = 0; k < ids.n; k++) assert_int_equal(ids.data[k], cases[i].ids[k] - '0');
        ln_ids_free(&ids);
    }
    ln_tok_close(&t);
}

static void ids_without_a_text(void **state) {
    (void)state;
    ln_tok *t = NULL;
    static const char doc[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":7},\"merges\":[]}}";
    static const int32_t ids[] = {0, 3, 8, INT32_MAX, 7}, bad[] = {-1, INT32_MIN};
    assert_int_equal(ln_tok_open_memory(&t, "holes", doc, sizeof doc - 1, NULL), LN_OK);
    assert_int_equal(ln_tok_count(t), 8);
    size_t bytes;
    assert_null(ln_tok_content(t, 3, &bytes));
    assert_string_equal(ln_tok_content(t, 7, &bytes), "b");
    assert_int_equal(ln_tok_id(t, "b", 1), 7);
    assert_int_equal(ln_tok_id(t, "c", 1), -1);
    ln_str whole = {0};
    assert_int_equal(ln_tok_decode(t, ids, sizeof ids / sizeof *ids, false, &whole, NULL), LN_OK);
    assert_string_equal(whole.data, "a b");
    ln_str_free(&whole);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ln_str s = {0};
        ln_error err = {0};
        assert_int_equal(ln_tok_decode(t, &bad[i], 1, false, &s, &err), LN_EINVALID);
        assert_non_null(strstr(err.message, "ids[0]"));
        ln_str_free(&s);
    }
    ln_tok_close(&t);
}

static void a_costly_pattern_ends(void **state) {
    (void)state;
    ln_tok *t = NULL;
    static const char doc[] = WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a+)+$\"},"
                                   "\"behavior\":\"Isolated\"}");
    assert_int_equal(ln_tok_open_memory(&t, "costly", doc, sizeof doc - 1, NULL), LN_OK);
    ln_ids ids = {0};
    ln_error err = {0};
    double from = cpu_seconds();
    ln_status st = ln_tok_encode(t, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", 45, false, &ids, &err);
    assert_true(st == LN_OK || st == LN_EINVALID);
    assert_true(cpu_seconds() - from < 20);
    assert_int_equal(st == LN_OK ? 0 : ids.n, 0);
    ln_ids_free(&ids);
    ln_tok_close(&t);
}

static void opens_from_a_directory(void **state) {
    (void)state;
    ln_tok *t = NULL;
    ln_error err = {0};
    assert_int_equal(ln_tok_open(&t, LN_ROOT "/tests/text/nowhere", &err), LN_EIO);
    assert_non_null(strstr(err.message, "tokenizer.json"));
    char dir[] = "/tmp/linnet-tok-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{" GOOD "}", f);
    fclose(f);
    assert_int_equal(ln_tok_open(&t, dir, &err), LN_OK);
    ln_tok_close(&t);
    f = fopen(path, "w");
    fclose(f);
    assert_int_equal(ln_tok_open(&t, dir, &err), LN_EINVALID);
    assert_non_null(strstr(err.message, path));
    remove(path);
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_as_the_reference),
        cmocka_unit_test(malformed_files),
        cmocka_unit_test(limits),
        cmocka_unit_test(broken_documents),
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(invalid_utf8_is_replaced),
        cmocka_unit_test(ids_without_a_text),
        cmocka_unit_test(a_costly_pattern_ends),
        cmocka_unit_test(opens_from_a_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
