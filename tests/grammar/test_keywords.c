/* Keywords of JSON schemas that exclude, count or combine, in both readings of a schema. */
/* run: quick asan */
#include "grammar_test.h"

#define OPEN(s) "{\"schema\":" s ",\"open\":true}"

static const text_case cases[] = {
    /* formats in their whole grammars */
    {SCHEMA("{\"format\":\"uri\"}"),
     {"\"http://localhost:11434\"", "\"file:///etc/hosts\"", "\"mailto:a@b.co\"", "\"urn:isbn:1\"",
      "\"ftp://u:p@[::1]:21/x;y\"", "\"https://a-b-c-d.e/?q#f\""},
     {"\"x"},
     {"\"//a.b/\"", "\"a b:c\"", "\"http://[::1\""}},
    {SCHEMA("{\"format\":\"email\"}"),
     {"\"first.m.last@x.com\"", "\"a@x.photography\"", "\"o'neil+x@[127.0.0.1]\"", "\"\\\"a b\\\"@c.de\""},
     {"\"a"},
     {"\".a@b.c\"", "\"a.@b.c\"", "\"a@b..c\"", "\"a@-b.c\""}},
    {SCHEMA("{\"format\":\"ipv6\"}"),
     {"\"::1\"", "\"::\"", "\"fe80::1\"", "\"1:2:3:4:5:6:7:8\"", "\"::ffff:1.2.3.4\"", "\"1::8\"",
      "\"1:2::\""},
     {"\"1"},
     {"\"1:2:3:4:5:6:7:8:9\"", "\"1::2::3\"", "\"12345::\"", "\":::1\"", "\"1:2\""}},
    {SCHEMA("{\"format\":\"hostname\"}"),
     {"\"a.b.c.d.e\"", "\"your-mesos-master-host\"", "\"xn--4gbwdl\""},
     {"\"a"},
     {"\"-a\"", "\"a-\"", "\"a..b\"", "\"a_b\"", "\"a.\""}},
    {SCHEMA("{\"format\":\"date-time\",\"maxLength\":20}"),
     {"\"2024-02-29T23:59:60Z\"", "\"2024-02-28t00:00:00z\""},
     {"\"2024"},
     {"\"2024-02-29T00:00:00.1Z\"", "\"2024-02-30T00:00:00Z\"", "\"2024-02-29T12:59:60Z\""}},
    {SCHEMA("{\"format\":\"json-pointer\"}"),
     {"\"\"", "\"/a~0b/~1\"", "\"/\""},
     {"\"/a~"},
     {"\"a\"", "\"/~2\""}},
    {SCHEMA("{\"type\":\"string\",\"format\":\"uuid\",\"pattern\":\"^f\"}"),
     {"\"f23e4567-e89b-12d3-a456-426614174000\""},
     {"\"f"},
     {"\"1"}},
    {SCHEMA("{\"type\":\"string\",\"format\":\"color\"}"), {"\"any\""}, {"\""}, {"1"}}, /* not known */
    /* patterns: lengths, anchors anywhere, look-ahead */
    {SCHEMA("{\"pattern\":\"^([^ ]+ ){0,3}[^ ]+$\",\"minLength\":3,\"maxLength\":7}"),
     {"\"a b\"", "\"abcdefg\"", "\"\xc3\xa9 \xc3\xa9 \xc3\xa9\""},
     {"\"ab"},
     {"\"ab\"", "\"abcdefgh\"", "\"a b c d e\"", "\"abcdef "}}, /* nothing would end it in time */
    {SCHEMA("{\"pattern\":\"(^a|b$)\"}"), {"\"ax\"", "\"xb\"", "\"a\""}, {"\"x"}, {"\"xa\"", "\"bx\""}},
    {SCHEMA("{\"pattern\":\"^(?!admin$)(?=.*[0-9])[a-z0-9]{2,8}$\"}"),
     {"\"a1\"", "\"admin1\"", "\"1admin\""},
     {"\"a"},
     {"\"admin\"", "\"ab\"", "\"a1234567x\""}},
    {SCHEMA("{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"},{\"maxLength\":3}]}"),
     {"\"ab\"", "\"bxa\""},
     {"\"x"},
     {"\"a\"", "\"xxa\"", "\"xx", "\"abcd"}},
    /* numbers */
    {SCHEMA("{\"type\":\"number\",\"minimum\":0,\"maximum\":1}"),
     {"1e-06", "2.5E-10", "0.5", "1", "0"},
     {"1e-"},
     {"1e-0\"", "1.5", "1e1", "-1e-6"}},
    {SCHEMA("{\"type\":\"number\",\"multipleOf\":0.25,\"minimum\":-1,\"exclusiveMaximum\":1.5}"),
     {"0.25", "-0.75", "1.25", "-1", "0", "0.5"},
     {"0.2", "-1."},
     {"1.5", "0.3", "0.255", "-1.25"}},
    {SCHEMA("{\"type\":\"integer\",\"multipleOf\":3,\"minimum\":100}"), {"102", "300"}, {"1"}, {"99", "100"}},
    {OPEN("{\"type\":\"integer\"}"), {"2", "2.0", "-7.00"}, {"2."}, {"2.5", "2.01"}},
    {SCHEMA("{\"type\":\"integer\"}"), {"2"}, {"-"}, {"2.", "2.0"}},
    /* given values meet all that stands next to them */
    {SCHEMA("{\"enum\":[\"a\",\"bcd\",1,null],\"minLength\":2,\"not\":{\"type\":\"null\"}}"),
     {"\"bcd\"", "1"},
     {"\"b"},
     {"\"a\"", "null"}},
    {SCHEMA("{\"properties\":{\"a\":{\"type\":\"string\",\"enum\":[1]},\"b\":{}}}"),
     {"{\"b\":1}", "{}"},
     {"{"},
     {"{\"a\":"}},
    /* not */
    {SCHEMA("{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"bc\"]}}"),
     {"\"\"", "\"ab\"", "\"b\"", "\"bcd\"", "\"\\\"\""},
     {"\"a"},
     {"\"a\"", "\"bc\"", "\"\\u0061\"", "1"}},
    {SCHEMA("{\"type\":\"string\",\"not\":{\"pattern\":\"^[0-9]\"},\"maxLength\":2}"),
     {"\"a1\"", "\"\""},
     {"\"a"},
     {"\"1", "\"abc"}},
    {SCHEMA("{\"not\":{\"type\":[\"object\",\"array\",\"integer\"]}}"),
     {"\"x\"", "true", "null", "1.5"},
     {"1", "1."},
     {"{", "[", "1.0", "12"}},
    {SCHEMA("{\"type\":\"number\",\"not\":{\"const\":1}}"),
     {"10", "0", "1.5", "-1"},
     {"1"},
     {"1.0", "1e0", "1"}},
    {SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"not\":{\"required\":[\"a\",\"b\"]}}"),
     {"{\"a\":1}", "{\"b\":1}", "{}"},
     {"{"},
     {"{\"a\":1,\"b\":", "\"x\""}},
    {SCHEMA("{\"type\":\"array\",\"not\":{\"items\":{\"type\":\"string\"}}}"),
     {"[1]", "[\"a\",1]", "[[],\"a\"]"},
     {"[\"a\""},
     {"[]", "[\"a\"]"}},
    /* oneOf: branches that are told apart, and others */
    {SCHEMA("{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}],\"properties\":{\"a\":{},\"b\":{}}}"),
     {"{\"a\":1}", "{\"b\":1}"},
     {"{"},
     {"{}", "{\"a\":1,\"b\":"}},
    {SCHEMA("{\"oneOf\":[{\"properties\":{\"a\":{}},\"required\":[\"a\"]},{\"properties\":{\"b\":{}},"
            "\"required\":[\"b\"]}],\"required\":[\"a\"]}"),
     {"{\"a\":1}"},
     {"{"},
     {"{\"b\":1,\"a\":1}", "{\"a\":1,\"b\":1}", "{\"b\":1}"}},
    {SCHEMA("{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\",\"minimum\":2}]}"),
     {"1", "0", "2.5"},
     {"2", "3"},
     {"2", "3", "1.5", "2.0"}},
    {SCHEMA("{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"a\"},\"x\":{}},\"required\":[\"k\"]},{"
            "\"properties\":{"
            "\"k\":{\"const\":\"b\"},\"y\":{}},\"required\":[\"k\"]}]}"),
     {"{\"k\":\"a\",\"x\":1}", "{\"k\":\"b\",\"y\":1}"},
     {"{\"k\":\"a\""},
     {"{\"k\":\"a\",\"y\":", "{}"}},
    {SCHEMA("{\"oneOf\":[{\"type\":\"string\",\"pattern\":\"^a\"},{\"type\":\"string\",\"pattern\":\"b$\"}]"
            "}"),
     {"\"ax\"", "\"xb\""},
     {"\"ab"},
     {"\"ab\"", "\"x\""}},
    /* conditions */
    {SCHEMA("{\"properties\":{\"c\":{\"enum\":[\"US\",\"CA\"]},\"z\":{\"type\":\"string\"}},\"required\":["
            "\"c\",\"z\"],"
            "\"if\":{\"properties\":{\"c\":{\"const\":\"US\"}}},\"then\":{\"properties\":{\"z\":{\"pattern\":"
            "\"^[0-9]+$\"}}},"
            "\"else\":{\"properties\":{\"z\":{\"pattern\":\"^[A-Z]+$\"}}}}"),
     {"{\"c\":\"US\",\"z\":\"1\"}", "{\"c\":\"CA\",\"z\":\"A\"}"},
     {"{\"c\":\"CA\",\"z\":\"A"},
     {"{\"c\":\"CA\",\"z\":\"1", "{\"c\":\"US\",\"z\":\"A"}},
    {SCHEMA("{\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"dependentRequired\":{\"a\":[\"c\"]}}"),
     {"{\"b\":1}", "{\"a\":1,\"c\":2}", "{\"a\":1,\"b\":1,\"c\":2}", "{}"},
     {"{\"a\":1"},
     {"{\"a\":1}", "{\"a\":1,\"b\":1}"}},
    {SCHEMA("{\"properties\":{\"a\":{},\"b\":{}},\"dependencies\":{\"a\":{\"properties\":{\"b\":{\"type\":"
            "\"null\"}}},"
            "\"b\":[\"a\"]}}"),
     {"{\"a\":1,\"b\":null}", "{\"a\":1}", "{}"},
     {"{\"a\":1,\"b\":"},
     {"{\"b\":", "{\"a\":1,\"b\":1"}},
    /* names */
    {SCHEMA("{\"properties\":{\"a\":{\"type\":\"null\"}},\"patternProperties\":{\"^a\":{},\"b\":{\"type\":"
            "\"integer\"}},"
            "\"additionalProperties\":{\"type\":\"string\"}}"),
     {"{\"a\":null}", "{\"ax\":[]}", "{\"ab\":1,\"x\":\"\"}", "{\"\":\"\"}"},
     {"{\"a"},
     {"{\"a\":1", "{\"ab\":\"", "{\"x\":1", "{\"b\":\""}},
    {SCHEMA("{\"propertyNames\":{\"pattern\":\"^[a-z]+$\",\"maxLength\":3},\"properties\":{\"x\":{},\"Y\":{}}"
            ","
            "\"additionalProperties\":{\"type\":\"integer\"}}"),
     {"{\"x\":\"\",\"ab\":1}", "{}"},
     {"{\"ab"},
     {"{\"Y\":", "{\"abcd", "{\"ab\":\"\""}},
    {SCHEMA("{\"propertyNames\":{\"anyOf\":[{\"enum\":[\"a\",1]},{\"pattern\":\"^b\"}],\"not\":{\"const\":"
            "\"bb\"}}}"),
     {"{\"a\":1}", "{\"b\":1,\"bbb\":2}"},
     {"{\"bb"},
     {"{\"bb\":", "{\"c", "{\"ab"}},
    {SCHEMA("{\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"minProperties\":2,\"maxProperties\":2}"),
     {"{\"a\":1,\"b\":1}", "{\"a\":1,\"c\":1}", "{\"b\":1,\"c\":1}"},
     {"{\"a\":1"},
     {"{}", "{\"c\":", "{\"a\":1}", "{\"a\":1,\"b\":1,\"c\":"}},
    {SCHEMA("{\"properties\":{\"a\":true},\"anyOf\":[{\"required\":[\"a\"]}]}"),
     {"{\"a\":1}"},
     {"{"},
     {"{}"}},
    {SCHEMA("{\"allOf\":[{\"properties\":{\"foo\":true}},{\"properties\":{\"bar\":true}}]}"),
     {"{\"foo\":1,\"bar\":2}", "{}"},
     {"{"},
     {"{\"x"}},
    /* arrays */
    {SCHEMA("{\"type\":\"array\",\"contains\":{\"type\":\"string\"},\"minContains\":2,\"maxItems\":3}"),
     {"[\"a\",\"b\"]", "[\"a\",1,\"b\"]", "[1,\"a\",\"b\"]"},
     {"[\"a\""},
     {"[]", "[\"a\"]", "[1,2", "[1,\"a\",\"b\",", "[\"a\",1]"}},
    {SCHEMA("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"minimum\":5},"
            "\"maxContains\":1}"),
     {"[5]", "[1,7,2]"},
     {"[1"},
     {"[]", "[1]", "[5,6", "[\"a"}},
    {SCHEMA("{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"},{}],\"unevaluatedItems\":{\"type\":"
            "\"integer\"},"
            "\"minItems\":1}"),
     {"[null]", "[null,\"a\",1,2]"},
     {"[null"},
     {"[]", "[1", "[null,1,\"a"}},
    {SCHEMA("{\"allOf\":[{\"prefixItems\":[{}]},{\"items\":{\"type\":\"string\"}}]}"),
     {"[\"a\",\"b\"]", "[]"},
     {"[\"a\""},
     {"[1"}},
    {SCHEMA("{\"uniqueItems\":true,\"items\":{\"type\":\"boolean\"}}"),
     {"[]", "[false,true]", "[true]"},
     {"[true"},
     {"[true,true", "[true,false"}}, /* one order */
    /* open: as the standard reads a schema */
    {OPEN("{\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"a\"]}"),
     {"{\"a\":null,\"b\":1}", "{\"a\":null}", "1", "\"x\"", "[]"},
     {"{"},
     {"{\"a\":1", "{}"}},
    {OPEN("{\"maxLength\":1}"), {"\"a\"", "12", "{\"abc\":1}", "null"}, {"\""}, {"\"ab"}},
    {OPEN("{\"const\":[1]}"), {"[1]", "[1.0]"}, {"[1."}, {"[1.5", "[]", "1"}},
    {OPEN("{\"prefixItems\":[{\"type\":\"null\"}]}"), {"[null,1]", "[]"}, {"[null"}, {"[1"}},
};

static void texts_fit(void **state) {
    (void)state;
    all_fit(cases, LN_COUNT(cases));
}

/* Words without anchors need as many states as their automaton, at bytes and at tokens: a grammar of 28
 * words failed in the middle of an answer. */
static void words_have_few_states(void **state) {
    (void)state;
    static const char form[] = SCHEMA("{\"pattern\":\"Red|Blue|Yellow|Gold|Silver|Crystal|Ruby|Sapphire|"
                                      "Emerald|FireRed|LeafGreen|Diamond|"
                                      "Pearl|Platinum|HeartGold|SoulSilver|Black|White|Black 2|White "
                                      "2|X|Y|Omega Ruby|Alpha Sapphire|Sun|"
                                      "Moon|Ultra Sun|Ultra Moon\"}");
    static const char text[] = "\"LeafGoldSilvSoulSilvePlatiOmega RAlpha SapphireUltra";
    ln_grammar *g;
    ln_matcher *m;
    ln_vocabulary v;
    const uint64_t *mask;
    bool fits = true;
    open_vocabulary(&v, NULL, 0, false);
    OK(ln_grammar_open(&g, form, strlen(form), err));
    OK(ln_matcher_open(&m, g, &v, err));
    for (size_t i = 0; text[i]; i++) {
        OK(ln_matcher_mask(m, &mask, err));
        OK(ln_matcher_take(m, (unsigned char)text[i], &fits, err));
        assert_true(fits);
    }
    assert_true(ln_grammar_bytes(g) < 100000);
    ln_matcher_close(&m);
    ln_grammar_close(&g);
    ln_vocabulary_free(&v);
    assert_int_equal(judge(form, "\"no word\"", 9), WRONG);
    assert_int_equal(judge(form, "\"a Moon b\"", 10), WHOLE);
}

/* A grammar that becomes too large while the rules of a counted text are made is rejected. */
static void too_large_while_counted(void **state) {
    (void)state;
    ln_str form = {0};
    ln_grammar *g;
    ln_str_adds(&form, "{\"schema\":{\"properties\":{\"a\":{}");
    for (int i = 0; i < 120; i++)
        ln_str_addf(&form, ",\"p%d\":{\"format\":\"email\",\"maxLength\":%d}", i, 200 + i);
    ln_str_adds(&form, "}}}");
    assert_false(form.failed);
    FAILS(LN_EINVALID, "the grammar is too large", ln_grammar_open(&g, form.data, form.len, err));
    assert_null(g);
    ln_str_free(&form);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts_fit), cmocka_unit_test(words_have_few_states),
                                       cmocka_unit_test(too_large_while_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
