/* JSON: what is accepted, what is rejected and at which byte, agreement of the two readers, and every
 * allocation failing once. */
/* run: quick asan */
#include "cm.h"
#include "base/json.h"

#include <stdio.h>
#include <string.h>

#define T(s) \
    { s, sizeof(s) - 1 }
typedef struct text {
    const char *data;
    size_t bytes;
} text;

static const text accepted[] = {T("[]"),
                                T("{}"),
                                T("null"),
                                T("true"),
                                T("false"),
                                T("0"),
                                T("-0"),
                                T("-1.5e-10"),
                                T("\"\""),
                                T(" [ 1 , 2 ]\r\n\t"),
                                T("[[],[[]]]"),
                                T("{\"a\":{\"b\":[{}]}}"),
                                T("{\"\":0}"),
                                T("[\"\\u0000\\n\\\"\\\\\\/\\b\\f\\r\\t\"]"),
                                T("[\"\\ud83d\\ude00\"]"),
                                T("[\"\xf0\x9f\x98\x80\xed\x9f\xbf\"]"),
                                T("[\"\x7f\xc2\x80\"]"),
                                T("[1E22,1e+2,0.5,0e0,-0.0]"),
                                T("[\"\\uDBFF\\uDFFF\"]"),
                                T("[123456789012345678901234567890]"),
                                T("[\"        longer than eight bytes, plain\"]"),
                                T("[\"\\u2028\xe2\x80\xa8\"]"),
                                T("[\"a\\u00e9\\uffff\"]"),
                                T("{\"a\" : 1 , \"b\" : [ ] }"),
                                T("        [        ]        "),
                                T("\xef\xbb\xbf{}"),
                                T("\xef\xbb\xbf [1]")};

static const text refused[] = {T(""),
                               T(" "),
                               T("["),
                               T("]"),
                               T("{"),
                               T("}"),
                               T("[1,]"),
                               T("[,1]"),
                               T("[1,,2]"),
                               T("[1 2]"),
                               T("{\"a\"}"),
                               T("{\"a\":}"),
                               T("{\"a\":1,}"),
                               T("{a:1}"),
                               T("{'a':1}"),
                               T("{\"a\" 1}"),
                               T("{\"a\":1 \"b\":2}"),
                               T("{1:2}"),
                               T("{,}"),
                               T("[1}"),
                               T("{\"a\":1]"),
                               T("[] []"),
                               T("[]x"),
                               T("nul"),
                               T("nulll"),
                               T("True"),
                               T("NaN"),
                               T("[Infinity]"),
                               T("[-Infinity]"),
                               T("01"),
                               T("-01"),
                               T("-"),
                               T("+1"),
                               T(".5"),
                               T("1."),
                               T("1.e5"),
                               T("1e"),
                               T("1e+"),
                               T("0x1"),
                               T("1_000"),
                               T("[1e5.5]"),
                               T("\""),
                               T("\"a"),
                               T("\"\\"),
                               T("\"\\\""),
                               T("\"\\x\""),
                               T("\"\\u12\""),
                               T("\"\\u12g4\""),
                               T("\"\\U0041\""),
                               T("\"\\'\""),
                               T("\"a\nb\""),
                               T("\"a\tb\""),
                               T("\"\0\""),
                               T("\"\x1f\""),
                               T("[\"a\0b\"]"),
                               T("\"\\ud800\""),
                               T("\"\\ud800x\""),
                               T("\"\\ud800\\n\""),
                               T("\"\\ud800\\u0041\""),
                               T("\"\\udc00\""),
                               T("\"\\udc00\\ud800\""),
                               T("\"\\ud800\\ud800\""),
                               T("\"\\ud83d\\ude0\""),
                               T("\"\xff\""),
                               T("\"\xc0\x80\""),
                               T("\"\xed\xa0\x80\""),
                               T("\"\xf4\x90\x80\x80\""),
                               T("\"\xc3\""),
                               T("\"abcdefgh\xe2\x82\""),
                               T("[1]//c"),
                               T("/*c*/[1]"),
                               T("[\f1]"),
                               T("[\v1]"),
                               T("[1]\0"),
                               T("\xc2\xa0[]"),
                               T("[\"a\" \"b\"]"),
                               T("[tru]"),
                               T("\xff\xfe[\0]\0"),
                               T("{\"a\":1,\"b\"}"),
                               T("{\"a\":1,2}"),
                               T("[\"x\",\"y]"),
                               T("{\"a\"::1}"),
                               T("[--1]"),
                               T("[00000000000000000000000000000000000000000000000000000000000000000000001]"),
                               T("\xef\xbb\xbf"),
                               T("{}\xef\xbb\xbf"),
                               T(" \xef\xbb\xbf{}"),
                               T("\xef\xbb\xbf\xef\xbb\xbf{}")};

/* Parses an exactly sized copy, so that ASan detects a read beyond the end. */
static ln_status walk(const char *data, size_t bytes, int depth, ln_error *err) {
    char *exact = ln_strndup(data, bytes), *tight = ln_alloc(bytes ? bytes : 1);
    memcpy(tight, exact, bytes);
    ln_free(exact);
    ln_json j;
    ln_json_open(&j, "t.json", tight, bytes, depth);
    ln_status st;
    do st = ln_json_next(&j, err);
    while (st == LN_OK && j.type != LN_J_END);
    ln_json_close(&j);
    ln_free(tight);
    return st;
}

static void strictness(void **state) {
    (void)state;
    ln_error err;
    json_t *root;
    for (size_t i = 0; i < LN_COUNT(accepted); i++) {
        if (walk(accepted[i].data, accepted[i].bytes, 64, &err))
            fail_msg("'%s' was refused: %s", accepted[i].data, err.message);
        if (ln_json_load(&root, "t.json", accepted[i].data, accepted[i].bytes, &err))
            fail_msg("'%s': %s", accepted[i].data, err.message);
        json_decref(root);
    }
    for (size_t i = 0; i < LN_COUNT(refused); i++) {
        err.message[0] = '\0';
        if (walk(refused[i].data, refused[i].bytes, 64, &err) != LN_EINVALID)
            fail_msg("'%s' was accepted", refused[i].data);
        if (strncmp(err.message, "t.json: byte ", 13) != 0)
            fail_msg("'%s': %s", refused[i].data, err.message);
        if (ln_json_load(&root, "t.json", refused[i].data, refused[i].bytes, &err) != LN_EINVALID)
            fail_msg("'%s' was loaded", refused[i].data);
        assert_null(root);
    }
}

/* Numbers of any length are read with all their digits: correctly rounded, and as integers if they fit into
 * 64 bits. */
static void long_numbers(void **state) {
    (void)state;
    enum { ZEROS = 3000 };
    static const struct {
        const char *head, *tail; /* with ZEROS zeros between them */
        double want;
    } rows[] = {{"0.", "25e3001", 2.5},
                {"1", "e-3000", 1},
                {"1", "e-2995", 1e5},
                {"-0.000", "", -0.0},
                {"9007199254740993.", "1", 9007199254740994.0}, /* above the midpoint by the last digit */
                {"9007199254740993.", "", 9007199254740992.0},
                {"1e", "4", 1e4}, /* leading zeros of an exponent are allowed */
                {"4e-", "324", 5e-324}};
    char *doc = malloc(ZEROS + 100);
    assert_non_null(doc);
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        ln_error err = {0};
        json_t *root;
        int n = sprintf(doc, "[%s%0*d%s]", rows[i].head, ZEROS, 0, rows[i].tail);
        double want = rows[i].want, got;
        if (ln_json_load(&root, "t.json", doc, (size_t)n, &err) != LN_OK)
            fail_msg("row %zu: %s", i, err.message);
        got = json_real_value(json_array_get(root, 0));
        if (memcmp(&got, &want, sizeof got) != 0) fail_msg("row %zu: %a instead of %a", i, got, want);
        json_decref(root);
    }
    free(doc);
}

/* Every prefix and every single-byte change of a document: the pull reader and jansson must agree, and
 * neither may crash. */
static void agrees_with_jansson_on_mutations(void **state) {
    (void)state;
    static const char doc[] = "{\"k\\u00e9y\":[1,-2.5e3,true,false,null,\"\xe2\x82\xac \\ud83d\\ude00 plain "
                              "text\"],\"o\":{\"x\":\"\"}}";
    const size_t n = sizeof doc - 1;
    char m[sizeof doc];
    long disagreements = 0, tried = 0;
    for (size_t at = 0; at < n; at++) {
        for (int c = 0; c < 256; c++) {
            memcpy(m, doc, n);
            m[at] = (char)c;
            json_error_t je;
            json_t *j = json_loadb(m, n, JSON_ALLOW_NUL | JSON_DECODE_ANY, &je);
            ln_status st = walk(m, n, 64, NULL);
            tried++;
            if ((j != NULL) != (st == LN_OK)) {
                /* the pull reader does not check for a NUL in a key or for a real number out of range */
                enum json_error_code code = j ? json_error_unknown : json_error_code(&je);
                if (code == json_error_null_byte_in_key || code == json_error_numeric_overflow) continue;
                disagreements++;
                print_message("byte %zu = 0x%02x: jansson %s, pull reader %s\n", at, (unsigned)c,
                              j ? "accepts" : "refuses", st ? "refuses" : "accepts");
            }
            json_decref(j);
        }
        assert_int_equal(walk(doc, at, 64, NULL), LN_EINVALID);
    }
    assert_int_equal(disagreements, 0);
    assert_int_equal(tried, (long)n * 256);
}

static void values_and_zero_copy(void **state) {
    (void)state;
    static const char doc[] = "{\"plain\":\"zero copy "
                              "\xc3\xa9\",\"esc\\u0061ped\":\"a\\u0000b\\ud83d\\ude00\",\"n\":-12.50e1,"
                              "\"list\":[1,{\"skip\":[[],{}]},3],\"t\":true}";
    ln_json j;
    ln_error err;
    bool more, flag;
    uint64_t u;
    ln_json_open(&j, "d", doc, sizeof doc - 1, 64);
    assert_int_equal(ln_json_want(&j, LN_J_OBJECT, &err), LN_OK);
    assert_int_equal(ln_json_key(&j, &more, &err), LN_OK);
    assert_true(more && ln_json_is(&j, "plain") && !ln_json_is(&j, "plai") && !ln_json_is(&j, "plain2"));
    assert_int_equal(ln_json_want(&j, LN_J_STRING, &err), LN_OK);
    assert_true(j.text >= doc && j.text < doc + sizeof doc);
    assert_true(ln_json_is(&j, "zero copy \xc3\xa9"));
    assert_int_equal(ln_json_key(&j, &more, &err), LN_OK);
    assert_true(ln_json_is(&j, "escaped"));
    assert_int_equal(ln_json_want(&j, LN_J_STRING, &err), LN_OK);
    assert_int_equal(j.text_bytes, 7);
    assert_memory_equal(j.text, "a\0b\xf0\x9f\x98\x80", 7);
    assert_int_equal(ln_json_key(&j, &more, &err), LN_OK);
    assert_int_equal(ln_json_want(&j, LN_J_NUMBER, &err), LN_OK);
    assert_memory_equal(j.text, "-12.50e1", j.text_bytes);
    assert_int_equal(ln_json_u64(&j, "n", &u, &err), LN_EINVALID);
    assert_non_null(strstr(err.message, "n: expected an integer"));
    assert_int_equal(ln_json_key(&j, &more, &err), LN_OK);
    assert_int_equal(ln_json_want(&j, LN_J_ARRAY, &err), LN_OK);
    int items = 0;
    for (;;) {
        assert_int_equal(ln_json_item(&j, &more, &err), LN_OK);
        if (!more) break;
        items++;
        if (items == 1) assert_true(ln_json_u64(&j, "x", &u, &err) == LN_OK && u == 1);
        assert_int_equal(ln_json_skip(&j, &err), LN_OK);
    }
    assert_int_equal(items, 3);
    assert_int_equal(ln_json_key(&j, &more, &err), LN_OK);
    assert_int_equal(ln_json_next(&j, &err), LN_OK);
    assert_true(ln_json_bool(&j, "t", &flag, &err) == LN_OK && flag);
    assert_int_equal(ln_json_key(&j, &more, &err), LN_OK);
    assert_false(more);
    assert_int_equal(ln_json_want(&j, LN_J_END, &err), LN_OK);
    assert_int_equal(ln_json_want(&j, LN_J_END, &err), LN_OK);
    ln_json_close(&j);
}

static void skipping_the_value_of_a_key(void **state) {
    (void)state;
    static const char doc[] = "{\"a\":{\"b\":[1,2,{\"c\":3}]},\"d\":\"x\",\"e\":5}";
    ln_json j;
    bool more;
    int keys = 0;
    ln_json_open(&j, "d", doc, sizeof doc - 1, 64);
    assert_int_equal(ln_json_want(&j, LN_J_OBJECT, NULL), LN_OK);
    for (;; keys++) {
        assert_int_equal(ln_json_key(&j, &more, NULL), LN_OK);
        if (!more) break;
        assert_int_equal(ln_json_skip(&j, NULL), LN_OK);
    }
    assert_int_equal(keys, 3);
    ln_json_close(&j);
}

static void wrong_types_name_both(void **state) {
    (void)state;
    ln_json j;
    ln_error err;
    bool flag;
    ln_json_open(&j, "dir/a\nb.json", "[1]", 3, 64);
    assert_int_equal(ln_json_want(&j, LN_J_OBJECT, &err), LN_EINVALID);
    assert_string_equal(err.message, "dir/a\\nb.json: byte 0: expected an object, found an array");
    assert_int_equal(ln_json_next(&j, &err), LN_OK);
    assert_int_equal(ln_json_bool(&j, "flag", &flag, &err), LN_EINVALID);
    assert_string_equal(err.message, "dir/a\\nb.json: byte 1: flag: expected true or false, found 1");
    ln_json_close(&j);
}

static void depth_is_bounded(void **state) {
    (void)state;
    ln_error err;
    char deep[300];
    for (size_t d = 60; d < 70; d++) {
        memset(deep, '[', d);
        memset(deep + d, ']', d);
        assert_int_equal(walk(deep, 2 * d, 64, &err), d <= 64 ? LN_OK : LN_EINVALID);
        json_t *root;
        assert_int_equal(ln_json_load(&root, "x", deep, 2 * d, &err), d <= 64 ? LN_OK : LN_EINVALID);
        json_decref(root);
    }
    assert_int_equal(walk("{\"a\":{\"b\":[]}}", 14, 3, &err), LN_OK);
    assert_int_equal(walk("{\"a\":{\"b\":[]}}", 14, 2, &err), LN_EINVALID);
    assert_int_equal(walk("1", 1, 0, &err), LN_OK);
    assert_int_equal(walk("[]", 2, 0, &err), LN_EINVALID);
    size_t n = 1 << 20; /* rejected at the 65th byte, before a megabyte of stack is used */
    char *flood = ln_alloc(n);
    memset(flood, '[', n);
    assert_int_equal(walk(flood, n, 64, &err), LN_EINVALID);
    ln_free(flood);
}

static void whole_documents(void **state) {
    (void)state;
    ln_error err;
    json_t *root;
    static const char big[] =
        "{\"model_max_length\":1000000000000000019884624838656,\"i\":9223372036854775807,\"m\":-"
        "9223372036854775808,\"j\":9223372036854775808,\"z\":-0,\"s\":\"a\\u0000b\"}";
    assert_int_equal(ln_json_load(&root, "c", big, sizeof big - 1, &err), LN_OK);
    assert_true(json_real_value(json_object_get(root, "model_max_length")) == 1e30);
    assert_true(json_integer_value(json_object_get(root, "i")) == INT64_MAX);
    assert_true(json_integer_value(json_object_get(root, "m")) == INT64_MIN);
    assert_true(json_is_real(json_object_get(root, "j")));
    assert_int_equal(json_string_length(json_object_get(root, "s")), 3);
    json_decref(root);
    static const char twice[] = "{\"a\":1,\"b\":{\"a\":1,\"a\":2}}";
    assert_int_equal(ln_json_load(&root, "c", twice, sizeof twice - 1, &err), LN_EINVALID);
    assert_non_null(strstr(err.message, "duplicate"));
    assert_int_equal(ln_json_load(&root, "c", "[1e400]", 7, &err), LN_EINVALID);
    assert_int_equal(ln_json_load(&root, "c", "{\"a\\u0000\":1}", 13, &err), LN_EINVALID);
    assert_int_equal(ln_json_load(&root, "c", "\xef\xbb\xbf{\"a\":1}", 10, &err), LN_OK);
    assert_int_equal(json_integer_value(json_object_get(root, "a")), 1);
    json_decref(root);
    static const text other[] = {T("\xff\xfe{\0}\0"), T("\xfe\xff\0{\0}"), T("{\0}\0"), T("\0{\0}"),
                                 T("\xff\xfe\0\0{\0\0\0")};
    for (size_t i = 0; i < LN_COUNT(other); i++) {
        assert_int_equal(ln_json_load(&root, "c", other[i].data, other[i].bytes, &err), LN_EINVALID);
        assert_non_null(strstr(err.message, i == 4 ? "UTF-32LE" : i % 2 ? "UTF-16BE" : "UTF-16LE"));
    }
    assert_int_equal(ln_json_load_file(&root, "/nowhere/x.json", 100, &err), LN_EIO);
    assert_int_equal(ln_json_load_file(&root, "/", 100, &err), LN_EINVALID);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    static const char doc[] = "{\"a\":[1,2.5,\"x\\ny\",{\"b\":null,\"big\":1000000000000000019884624838656}],"
                              "\"c\":\"long \\u00e9 text that has to be copied somewhere\"}";
    ln_error err;
    json_t *root;
    assert_int_equal(ln_json_load(&root, "c", doc, sizeof doc - 1, &err), LN_OK);
    json_decref(root);
    uint64_t before = ln_mem_bytes();
    int n = 1;
    for (;; n++) {
        assert_true(n < 1000);
        for (int persistent = 0; persistent < 2; persistent++) {
            ln_mem_fail_at(n, persistent);
            ln_status st = ln_json_load(&root, "c", doc, sizeof doc - 1, &err);
            ln_mem_fail_at(-1, false);
            json_decref(root);
            assert_int_equal(ln_mem_bytes(), before);
            if (st == LN_OK) goto done;
            assert_int_equal(st, LN_EMEMORY);
        }
    }
done:
    assert_true(n > 10);
    ln_mem_fail_at(1, true);
    ln_json j;
    ln_json_open(&j, "d", "\"a\\n\"", 5, 1);
    assert_int_equal(ln_json_next(&j, &err), LN_EMEMORY);
    ln_json_close(&j);
    ln_mem_fail_at(-1, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(strictness),
                                       cmocka_unit_test(long_numbers),
                                       cmocka_unit_test(agrees_with_jansson_on_mutations),
                                       cmocka_unit_test(values_and_zero_copy),
                                       cmocka_unit_test(skipping_the_value_of_a_key),
                                       cmocka_unit_test(wrong_types_name_both),
                                       cmocka_unit_test(depth_is_bounded),
                                       cmocka_unit_test(whole_documents),
                                       cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
