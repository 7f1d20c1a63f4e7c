/* Grammars of answers: which texts fit, which schemas are rejected, and masks against token by token. */
/* run: quick asan */
#include "grammar_test.h"

static const text_case cases[] = {
    {"{\"text\":\"a\\u00e9\"}", {"a\xc3\xa9"}, {"", "a", "a\xc3"}, {"b", "a\xc3\xa8", "a\xc3\xa9 "}},
    {"\"yes\"", {"yes"}, {"ye"}, {"no"}},
    {"{\"choice\":[\"yes\",\"no\",{\"text\":\"not at all\"}]}",
     {"yes", "no", "not at all"},
     {"n", "not"},
     {"nor", "yes "}},
    {"{\"repeat\":\"ab\",\"min\":1,\"max\":3}", {"ab", "abab", "ababab"}, {"a", "aba"}, {"abababa", "b"}},
    {"{\"repeat\":{\"repeat\":\"a\",\"min\":0,\"max\":2}}", {"", "a", "aaaaaaa"}, {NULL}, {"b"}},
    {"{\"sequence\":[\"<\",{\"schema\":{\"type\":\"integer\"}},\">\"]}",
     {"<12>", "<-7>"},
     {"<", "<1"},
     {"<>", "< 1>", "<01>"}},
    {"{\"regex\":\"[a-c]+\\\\d{2,3}\"}", {"a12", "abc123"}, {"a", "a1"}, {"d12", "a1234", "12"}},
    {"{\"regex\":\"(foo|ba[rz])?x|\\\\.\"}", {"x", "foox", "bazx", "."}, {"ba"}, {"bx", "fooxx"}},
    {"{\"regex\":\"[^\\\\w\\\\s]\"}", {"!", "\xe2\x82\xac"}, {"\xe2\x82"}, {"a", "_", "\xc2\xa0", " "}},
    {"{\"regex\":\"\\\\u00e9|\\\\x41|\\\\u{1F600}\"}",
     {"\xc3\xa9", "A", "\xf0\x9f\x98\x80"},
     {"\xc3"},
     {"B", "\xc3\xa8"}},
    {"{\"regex\":\"a*?b{0}c{,2}\"}", {"c{,2}", "aac{,2}"}, {"c"}, {"b", "cc"}},
    /* any JSON */
    {SCHEMA("{}"),
     {"null", "\"a\\u00e9\\n\"", "[1, -0.5e3,{}]", " {\"a\": [], \"b\":\n  {\"\": true}\n}",
      "\"\\ud83d\\ude00\"", "0"},
     {"[", "\"", "\"\\", "\"\\ud83d", "-"},
     {"nul1", "\"\n\"", "01", "[1,]", "{a:1}", "\"\\x\"", "\"\\ud83d\"", "\"\\ud83dx", "\"\\ude00\"", "1.",
      "1e", "--1", "[1 ,2]", "\"\x80\"", "\"\xed\xa0\x80\"", "\"\xc0\x80\""}},
    {SCHEMA("{\"type\":\"object\"}"),
     {"{}", "{\"a\":1}", "{\n  \"a\": {}\n}"},
     {"{", "{\"a\""},
     {"[]", "{,}", "{\"a\"}", "1"}},
    /* types */
    {SCHEMA("{\"type\":[\"integer\",\"null\"]}"),
     {"-12", "null", "0"},
     {"-", "nul"},
     {"1.5", "\"1\"", "-01"}},
    {SCHEMA("{\"type\":\"number\"}"), {"1.5", "-2e+10", "3"}, {"1."}, {"1.5.", "true", "1e100"}},
    {SCHEMA("{\"type\":\"boolean\"}"), {"true", "false"}, {"t"}, {"True", "1"}},
    {SCHEMA("{\"type\":\"string\",\"nullable\":true}"), {"null", "\"\""}, {"\""}, {"1"}},
    {SCHEMA("{\"enum\":[\"a\\\"b\",2,null,[1,{\"x\":false}]]}"),
     {"\"a\\\"b\"", "2", "null", "[1,{\"x\":false}]", "[1, {\"x\": false}]"},
     {"\"a", "[1"},
     {"3", "\"a\"", "[1]"}},
    {SCHEMA("{\"const\":\"x\"}"), {"\"x\""}, {"\""}, {"\"y\""}},
    {SCHEMA("{\"type\":\"string\",\"enum\":[\"a\",1]}"), {"\"a\""}, {"\""}, {"1"}},
    /* objects */
    {SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"},"
            "\"c\":{}},\"required\":[\"b\"]}"),
     {"{\"b\":\"\"}", "{\"a\": 1, \"b\": \"x\"}", "{\"b\":\"\",\"c\":[]}", "{\"a\":1,\"b\":\"\",\"c\":0}"},
     {"{", "{\"a\":1"},
     {"{}", "{\"a\":1}", "{\"b\":\"\",\"a\":1}", "{\"b\":\"\",\"d\":1}", "{\"c\":1}", "{\"a\":\"x\"",
      "{\"b\":\"\",}"}},
    {SCHEMA("{\"properties\":{\"a\":{},\"b\":{}}}"),
     {"{}", "{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":2}"},
     {"{\"a\":1"},
     {"{,", "{\"b\":1,\"a\":1}"}},
    {SCHEMA("{\"properties\":{\"a\":{\"type\":\"null\"},\"ab\":{\"type\":\"null\"}},\"additionalProperties\":"
            "{\"type\":\"integer\"}}"),
     {"{}", "{\"a\":null,\"b\":1}", "{\"abc\":1}", "{\"\":1}",
      "{\"a\":null,\"ab\":null,\"\xc3\xa9\":1,\"ac\":2}"},
     {"{\"a"},
     {"{\"a\":1", "{\"ab\":1", "{\"b\":null", "{\"a\":null,\"ab\":3"}},
    {SCHEMA("{\"type\":\"object\",\"additionalProperties\":false}"), {"{}", "{ }"}, {"{"}, {"{\"a\":1}"}},
    {SCHEMA("{\"type\":\"object\",\"required\":[\"x\"],\"additionalProperties\":{\"type\":\"integer\"}}"),
     {"{\"x\":1}", "{\"x\":1,\"y\":2}"},
     {"{"},
     {"{}", "{\"y\":2}"}},
    {SCHEMA("{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":2}"),
     {"{\"a\":1}", "{\"a\":1,\"b\":2}"},
     {"{"},
     {"{}", "{\"a\":1,\"b\":2,\"c\":3}"}},
    {SCHEMA("{\"type\":\"object\",\"patternProperties\":{\"^x_\":{\"type\":\"integer\"}}}"),
     {"{}", "{\"x_a\":1,\"x_\":2}"},
     {"{\"x"},
     {"{\"y\":1}", "{\"x_\":\"\"}"}},
    {SCHEMA("{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"a\",\"b\"]},\"additionalProperties\":{"
            "\"type\":\"null\"}}"),
     {"{}", "{\"a\":null}"},
     {"{\""},
     {"{\"c\":null}", "{\"a\":1}"}},
    /* arrays */
    {SCHEMA("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}"),
     {"[1]", "[1, 2,3]"},
     {"[", "[1,2"},
     {"[]", "[1,2,3,4]", "[\"\"]"}},
    {SCHEMA("{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"minItems\":2,\"items\":{"
            "\"type\":\"null\"}}"),
     {"[1,\"\"]", "[1,\"\",null,null]"},
     {"[1"},
     {"[]", "[1]", "[1,\"\",1]"}},
    {SCHEMA("{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"maxItems\":5}"),
     {"[]", "[1]", "[1,\"\"]"},
     {"["},
     {"[1,\"\",null]"}},
    {SCHEMA("{\"items\":[{\"type\":\"null\"}],\"additionalItems\":{\"type\":\"integer\"},\"maxItems\":2}"),
     {"[]", "[null]", "[null,1]"},
     {"["},
     {"[1]", "[null,1,2]"}},
    {SCHEMA("{\"type\":\"array\",\"items\":false}"), {"[]"}, {"["}, {"[1"}},
    /* strings */
    {SCHEMA("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}"),
     {"\"ab\"", "\"a\xc3\xa9\xf0\x9f\x98\x80\"", "\"\\ud83d\\ude00b\""},
     {"\"a"},
     {"\"a\"", "\"abcd\""}},
    {SCHEMA("{\"type\":\"string\",\"pattern\":\"^[a-z]+-\\\\d$\"}"),
     {"\"ab-1\""},
     {"\"a"},
     {"\"ab-\"", "\"A-1\"", "\"a-12\""}},
    {SCHEMA("{\"type\":\"string\",\"pattern\":\"b\\\"\"}"),
     {"\"b\\\"\"", "\"xxb\\\"y\\n\""},
     {"\"b\\\"", "\"a"},
     {"\"b\"", "\"bb\""}},
    {SCHEMA("{\"type\":\"string\",\"pattern\":\"^a|b$\"}"), {"\"ax\"", "\"xb\""}, {"\"x"}, {"\"x\""}},
    {SCHEMA("{\"type\":\"string\",\"format\":\"date\"}"),
     {"\"2024-02-29\""},
     {"\"2024-"},
     {"\"2024-13-01\"", "\"24\""}},
    {SCHEMA("{\"type\":\"string\",\"format\":\"date-time\"}"),
     {"\"2024-02-29T23:59:59.5Z\"", "\"2024-02-29T00:00:00+01:30\""},
     {"\"2024-02-29T"},
     {"\"2024-02-29\"", "\"2024-02-29T24:00:00Z\""}},
    {SCHEMA("{\"type\":\"string\",\"format\":\"uuid\"}"),
     {"\"123e4567-e89b-12d3-a456-426614174000\""},
     {"\"1"},
     {"\"123\""}},
    {SCHEMA("{\"type\":\"string\",\"format\":\"ipv4\"}"),
     {"\"1.2.3.4\"", "\"255.0.10.199\""},
     {"\"1."},
     {"\"256.1.1.1\"", "\"1.2.3\""}},
    {SCHEMA("{\"type\":\"string\",\"format\":\"no-such\"}"), {"\"any\""}, {"\""}, {"1"}},
    /* numbers */
    {SCHEMA("{\"type\":\"integer\",\"minimum\":-3,\"maximum\":12}"),
     {"-3", "0", "9", "10", "12", "-1"},
     {"-"},
     {"-4", "13", "100", "-0", "00"}},
    {SCHEMA("{\"type\":\"integer\",\"exclusiveMinimum\":99,\"exclusiveMaximum\":1002}"),
     {"100", "999", "1000", "1001"},
     {"1", "99"},
     {"1002", "12345"}},
    {SCHEMA("{\"type\":\"integer\",\"minimum\":5}"),
     {"5", "10", "123456789012345678"},
     {"1"},
     {"-1", "0", "1234567890123456789"}},
    {SCHEMA("{\"type\":\"integer\",\"maximum\":-10}"), {"-10", "-11", "-99999"}, {"-", "-9"}, {"1", "0"}},
    {SCHEMA("{\"type\":\"integer\",\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807}"),
     {"0", "-5"},
     {"-"},
     {"x"}},
    {SCHEMA("{\"type\":\"integer\",\"minimum\":-0.5,\"maximum\":0.5}"), {"0"}, {""}, {"1", "-"}},
    {SCHEMA("{\"type\":\"number\",\"minimum\":0,\"maximum\":1}"),
     {"0", "1", "0.5", "0.999", "1.0", "0.0"},
     {"0.", "1."},
     {"-", "1.01", "2", "1e0"}},
    {SCHEMA("{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":2.25}"),
     {"0.1", "1", "2", "2.2", "2.24999", "0.0001"},
     {"0", "0.0"},
     {"2.25", "2.3", "3", "-"}},
    {SCHEMA("{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":-0.25}"),
     {"-1.5", "-0.25", "-1", "-0.3", "-1.49", "-0.250"},
     {"-0", "-0.2"},
     {"0", "-1.51", "-2", "-0.24"}},
    {SCHEMA("{\"type\":\"number\",\"minimum\":1e-7}"),
     {"0.0000001", "1", "0.1"},
     {"0.000000", "0"},
     {"-", "0.00000001"}},
    {SCHEMA("{\"minimum\":10,\"multipleOf\":1}"), {"10", "11"}, {"1"}, {"9.", "10.5"}},
    /* combinations */
    {SCHEMA("{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\",\"minimum\":5,\"maximum\":7}]}"),
     {"\"\"", "5"},
     {"\""},
     {"4", "null"}},
    {SCHEMA("{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"string\"}},\"required\":[\"k\"],"
            "\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"a\"},\"x\":{\"type\":\"integer\"}},\"required\":["
            "\"x\"]},{\"properties\":{\"k\":{\"const\":\"b\"}}}]}"),
     {"{\"k\":\"a\",\"x\":1}", "{\"k\":\"b\"}"},
     {"{\"k\":\"a\""},
     {"{\"k\":\"a\"}", "{\"k\":\"c\"}", "{\"k\":\"b\",\"x\":1}"}},
    {SCHEMA("{\"allOf\":[{\"type\":\"integer\",\"minimum\":3},{\"type\":\"number\",\"maximum\":8},{"
            "\"maximum\":5}]}"),
     {"3", "5"},
     {""},
     {"2", "6", "3.5"}},
    {SCHEMA("{\"$ref\":\"#/$defs/"
            "n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":"
            "{\"anyOf\":[{\"$ref\":\"#/$defs/"
            "n\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"],\"additionalProperties\":false}}}"),
     {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"},
     {"{\"v\":1,\"next\":{"},
     {"{\"v\":1}", "{\"v\":1,\"next\":1}"}},
    {SCHEMA("{\"allOf\":[{\"$ref\":\"#/definitions/"
            "a~1b\"}],\"properties\":{\"y\":{\"type\":\"null\"}},\"required\":[\"y\"],\"definitions\":{\"a/"
            "b\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"null\"}}}}}"),
     {"{\"x\":null,\"y\":null}", "{\"y\":null}"},
     {"{"},
     {"{}", "{\"x\":null}"}},
    {SCHEMA("{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}"), {"[]", "[[],[[]]]"}, {"[["}, {"1", "[1"}},
    {SCHEMA("{\"anyOf\":[{\"$ref\":\"#/$defs/"
            "endless\"},{\"type\":\"null\"}],\"$defs\":{\"endless\":{\"type\":\"object\",\"properties\":{"
            "\"a\":{\"$ref\":\"#/$defs/endless\"}},\"required\":[\"a\"]}}}"),
     {"null"},
     {"n"},
     {"{"}},
    {SCHEMA("{\"title\":\"T\",\"description\":\"d\",\"x-order\":1,\"type\":\"object\",\"properties\":{\"a\":"
            "false,\"b\":true}}"),
     {"{}", "{\"b\":1}"},
     {"{"},
     {"{\"a\":1}"}},
};

static void texts_fit(void **state) {
    (void)state;
    all_fit(cases, LN_COUNT(cases));
}

static void forms_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *form, *word;
    } refused[] = {
        {"{", "the grammar"},
        {"{}", "expected an object with one of schema, text"},
        {"{\"text\":\"a\",\"regex\":\"b\"}", "expected an object with one of schema, text"},
        {"{\"text\":1}", "text: expected a text, found 1"},
        {"{\"text\":\"a\",\"min\":1}", "unknown member \"min\""},
        {"{\"choice\":[]}", "choice: expected a list of at least one expression"},
        {"{\"sequence\":[\"a\",{\"x\":1}]}", "sequence[1]: expected an object"},
        {"{\"repeat\":\"a\",\"min\":3,\"max\":2}", "min is more than max"},
        {"{\"repeat\":\"a\",\"max\":-1}", ".max: expected 0 .. 65535, found -1"},
        {"{\"regex\":\"(a\"}", "the pattern '(a': character 3: the group has no end"},
        {"{\"regex\":\"a)\"}", "this parenthesis has no beginning"},
        {"{\"regex\":\"x(?=a)b\"}", "only groups (...)"},
        {"{\"regex\":\"\\\\bword\"}", "this escape is not supported"},
        {"{\"regex\":\"(a)\\\\1\"}", "this escape is not supported"},
        {"{\"regex\":\"a{3,2}\"}", "the counts are in the wrong order"},
        {"{\"regex\":\"[z-a]\"}", "the range of a class ends before it begins"},
        {"{\"regex\":\"[a\"}", "the class has no end"},
        {"{\"regex\":\"*a\"}", "there is nothing to repeat"},
        {"{\"regex\":\"a(^b)\"}", "no text matches this grammar"},
        {"{\"regex\":\"(a?){60000}\"}", "it needs more than 16384 states"},
        {"{\"regex\":\"(.{1,50}){1,50}\"}", "it needs more than 16384 states"},
        {SCHEMA("1"), "schema: expected a schema (an object), found 1"},
        {SCHEMA("false"), "no text matches this grammar"},
        {SCHEMA("{\"type\":\"text\"}"), "schema.type: expected object, array"},
        {SCHEMA("{\"type\":3}"), "schema.type: expected a type or a list of types"},
        {SCHEMA("{\"required\":[\"a\"],\"properties\":{\"a\":{\"not\":{}}}}"), "schema.properties.a.not: "
                                                                               "nothing is "
                                                                               "left"},
        {SCHEMA("{\"type\":\"array\",\"items\":{\"anyOf\":[{},{\"$dynamicRef\":\"#x\"}]}}"),
         "schema.items.anyOf[1].$dynamicRef: this keyword"},
        {SCHEMA("{\"type\":\"array\",\"uniqueItems\":true}"), "schema.uniqueItems: this keyword is "
                                                              "supported where"},
        {SCHEMA("{\"type\":\"number\",\"multipleOf\":0.01234}"), "schema.multipleOf: expected a number above "
                                                                 "0"},
        {SCHEMA("{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}"), "schema.minimum: no number meets the "
                                                                       "schema"},
        {SCHEMA("{\"type\":\"integer\",\"minimum\":\"3\"}"), "schema.minimum: expected a number, found "
                                                             "\"3\""},
        {SCHEMA("{\"type\":\"string\",\"minLength\":-1}"), "schema.minLength: expected an integer"},
        {SCHEMA("{\"type\":\"string\",\"pattern\":\"^(ab)*$\",\"minLength\":3,\"maxLength\":3}"),
         "schema.pattern: no string meets this schema"},
        {SCHEMA("{\"type\":\"object\",\"properties\":[]}"), "schema.properties: expected an object of "
                                                            "schemas"},
        {SCHEMA("{\"type\":\"object\",\"properties\":{},\"required\":[\"a\"],\"additionalProperties\":"
                "false}"),
         "\"a\" is not among the properties"},
        {SCHEMA("{\"properties\":{\"a\":false},\"required\":[\"a\"]}"), "\"a\" is required, and no value of "
                                                                        "it is allowed"},
        {SCHEMA("{\"$ref\":\"other.json\"}"), "schema.$ref: expected a reference within the schema"},
        {SCHEMA("{\"$ref\":\"#/$defs/a\"}"), "schema.$ref: the schema has no \"#/$defs/a\""},
        {SCHEMA("{\"$ref\":\"#\"}"), "contains itself without end"},
        {SCHEMA("{\"allOf\":[{\"$ref\":\"#\"}]}"), "without end"},
        {SCHEMA("{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}"), "no type in common"},
        {SCHEMA("{\"allOf\":[{\"pattern\":\"^a\"},{\"pattern\":\"^b\"}]}"), "pattern: no string meets"},
        {SCHEMA("{\"enum\":[]}"), "schema.enum: no value of it"},
        {SCHEMA("{\"type\":\"string\",\"enum\":[1]}"), "schema.enum: no value of it"},
        {SCHEMA("{\"enum\":[\"a\"],\"minLength\":2}"), "schema.enum: no value of it meets the schema"},
        {SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}"),
         "contains itself without end"},
    };
    for (size_t i = 0; i < LN_COUNT(refused); i++) {
        ln_grammar *g;
        FAILS(LN_EINVALID, refused[i].word,
              ln_grammar_open(&g, refused[i].form, strlen(refused[i].form), err));
        assert_null(g);
    }
}

/* ---- masks ---- */

static const char *const tokens[] = {" ",   "{\"",        "\":",    "\": ",     "\"a",
                                     "\"}", "a\":",       "},",     "true",     "null",
                                     "\\u", "00e9",       "12",     ".5",       " {",
                                     " \"", "abc",        "ab",     "abd",      "\n  ",
                                     "[[",  "]]",         "\", \"", "\xc3\xa9", "\xe2\x82",
                                     "e+1", "a\",\"b\":", "0000",   "-1",       "\xf0\x9f\x98\x80\""};

/* Generates with random choices among what the mask allows, compares masks with ln_matcher_allows, and says
 * whether the text came to an end. Bytes that end strings and brackets are preferred after some time. */
static bool generate(const ln_grammar *g, const ln_vocabulary *v, uint64_t seed, size_t most, ln_str *out) {
    ln_matcher *m;
    OK(ln_matcher_open(&m, g, v, err));
    out->len = 0;
    size_t step = 0;
    for (; step < most && !ln_matcher_final(m); step++) {
        const uint64_t *mask;
        int32_t chosen = -1;
        uint64_t n = 0;
        OK(ln_matcher_mask(m, &mask, err));
        for (int32_t id = 0; id < v->n_vocab; id++) {
            bool fits;
            const bool masked = mask[id / 64] >> (id % 64) & 1;
            if (step % 7 == 0) {
                OK(ln_matcher_allows(m, id, &fits, err));
                if (fits != masked) fail_msg("token %d: the mask says %d", id, masked);
                OK(ln_matcher_mask(m, &mask, err));
            }
            if (!masked) continue;
            const char *text = v->text + v->at[id];
            const bool closes = id < 256 && (text[0] == '"' || text[0] == '}' || text[0] == ']');
            const uint64_t weight = step > 30 && closes ? (text[0] == '"' ? 5000 : 1000) : 1;
            n += weight;
            if (test_random(&seed) % n < weight) chosen = id;
        }
        if (chosen < 0) {
            assert_true(ln_matcher_complete(m));
            break;
        }
        if (ln_matcher_complete(m) && test_random(&seed) % 4 == 0) break;
        bool fits;
        OK(ln_matcher_take(m, chosen, &fits, err));
        assert_true(fits);
        ln_str_add(out, v->text + v->at[chosen], v->at[chosen + 1] - v->at[chosen]);
    }
    ln_matcher_close(&m);
    return step < most;
}

static void masks_agree_with_tokens(void **state) {
    (void)state;
    ln_vocabulary v;
    ln_str text = {0};
    int n_endless = 0; /* a pattern that is to occur somewhere is hardly found by chance */
    open_vocabulary(&v, tokens, LN_COUNT(tokens), false);
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        ln_grammar *g;
        OK(ln_grammar_open(&g, cases[i].form, strlen(cases[i].form), err));
        for (uint64_t seed = 1; seed <= 3; seed++) {
            const bool ended = generate(g, &v, seed + 100 * i, 2000, &text);
            assert_int_equal(judge(cases[i].form, text.data ? text.data : "", text.len),
                             ended ? WHOLE : BEGINS);
            n_endless += !ended;
            if (!ended || strncmp(cases[i].form, "{\"schema\"", 9) != 0) continue;
            json_error_t why; /* what a schema generates is JSON */
            json_t *v_json = json_loadb(text.data, text.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
            if (!v_json && !strstr(why.text, "NUL byte in object key"))
                fail_msg("%s: %s", text.data, why.text);
            json_decref(v_json);
        }
        ln_grammar_close(&g);
    }
    assert_true(n_endless <= 6);
    ln_str_free(&text);
    ln_vocabulary_free(&v);
}

/* A string of bounded length has a state for each length, so that a matcher runs out of states and drops
 * them. */
static void a_matcher_forgets(void **state) {
    (void)state;
    static const char form[] = SCHEMA("{\"type\":\"string\",\"minLength\":20000,\"maxLength\":20001}");
    ln_vocabulary v;
    ln_grammar *g;
    ln_matcher *m;
    const uint64_t *mask;
    bool fits;
    open_vocabulary(&v, tokens, LN_COUNT(tokens), false);
    OK(ln_grammar_open(&g, form, strlen(form), err));
    OK(ln_matcher_open(&m, g, &v, err));
    OK(ln_matcher_take(m, '"', &fits, err));
    for (int i = 0; i < 20001; i++) {
        if (i % 100 == 0) {
            OK(ln_matcher_mask(m, &mask, err));
            assert_int_equal(mask['"' / 64] >> ('"' % 64) & 1, i >= 20000);
            assert_int_equal(mask['x' / 64] >> ('x' % 64) & 1, 1);
        }
        OK(ln_matcher_take(m, 'x', &fits, err));
        assert_true(fits);
    }
    OK(ln_matcher_mask(m, &mask, err));
    assert_int_equal(mask['x' / 64] >> ('x' % 64) & 1, 0);
    OK(ln_matcher_take(m, '"', &fits, err));
    assert_true(fits && ln_matcher_final(m));
    ln_matcher_close(&m);
    ln_grammar_close(&g);
    ln_vocabulary_free(&v);
}

/* Lists of many texts, with common beginnings and one inside another, keep states small. */
static void long_lists(void **state) {
    (void)state;
    ln_str form = {0};
    char text[40];
    for (int kind = 0; kind < 2; kind++) {
        form.len = 0;
        ln_str_adds(&form, kind ? "{\"schema\":{\"enum\":[[1],null" : "{\"choice\":[\"\"");
        for (int i = 0; i < 30000; i++) ln_str_addf(&form, ",\"%d\"", i);
        ln_str_adds(&form, kind ? ",1.5]}}" : "]}");
        assert_false(form.failed);
        for (int i = 0; i < 30000; i += 4999) {
            const int n = snprintf(text, sizeof text, kind ? "\"%d\"" : "%d", i);
            assert_int_equal(judge(form.data, text, (size_t)n), WHOLE);
        }
        assert_int_equal(judge(form.data, kind ? "\"30000" : "30000", kind ? 6 : 5), WRONG);
        assert_int_equal(judge(form.data, kind ? "\"299" : "x", kind ? 4 : 1), kind ? BEGINS : WRONG);
        assert_int_equal(judge(form.data, kind ? "[1]" : "", kind ? 3 : 0), WHOLE);
        assert_int_equal(judge(form.data, kind ? "1.5" : "007", 3), kind ? WHOLE : WRONG);
    }
    ln_str_free(&form);
}

/* However deep a text nests, it can be completed: here an object that needs more brackets than its beginning.
 */
static void deep_texts_end(void **state) {
    (void)state;
    static const char form[] =
        SCHEMA("{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"properties\":{\"a\":{\"anyOf\":[{\"$ref\":\"#/"
               "$defs/"
               "n\"},{\"type\":\"null\"}]},\"b\":{\"properties\":{\"c\":{\"properties\":{\"d\":{\"enum\":[[[["
               "1]]]]}},"
               "\"required\":[\"d\"]}},\"required\":[\"c\"]}},\"required\":[\"a\",\"b\"]}}}");
    static const char open[] = "{\"a\":", rest[] = ",\"b\":{\"c\":{\"d\":[[[1]]]}}}";
    ln_vocabulary v;
    ln_grammar *g;
    ln_matcher *m;
    bool fits = true;
    int depth = 0;
    open_vocabulary(&v, NULL, 0, false);
    OK(ln_grammar_open(&g, form, sizeof form - 1, err));
    OK(ln_matcher_open(&m, g, &v, err));
    for (; depth < 1000 && fits; depth += fits) OK(ln_matcher_push(m, open, sizeof open - 1, &fits, err));
    assert_in_range(depth, 50, 500);
    OK(ln_matcher_push(m, "null", 4, &fits, err));
    for (; depth > 0 && fits; depth--) OK(ln_matcher_push(m, rest, sizeof rest - 1, &fits, err));
    assert_true(fits && ln_matcher_final(m));
    ln_matcher_close(&m);
    ln_grammar_close(&g);
    ln_vocabulary_free(&v);
}

/* Long expressions are not deep: sequences of a pattern, items of a constant, characters of a text. */
static void long_forms(void **state) {
    (void)state;
    ln_str form = {0}, text = {0};
    for (int kind = 0; kind < 3; kind++) {
        form.len = text.len = 0;
        ln_str_adds(&form, kind == 0   ? "{\"regex\":\""
                           : kind == 1 ? "{\"text\":\""
                                       : "{\"schema\":{\"const\":[");
        if (kind == 2) ln_str_adds(&text, "[");
        for (int i = 0; i < 3000; i++) {
            ln_str_addf(&form, kind == 2 ? "%s%d" : "%.0sa", kind == 2 && i ? "," : "", i);
            ln_str_addf(&text, kind == 2 ? "%s%d" : "%.0sa", kind == 2 && i ? "," : "", i);
        }
        ln_str_adds(&form, kind == 2 ? "]}}" : "\"}");
        if (kind == 2) ln_str_adds(&text, "]");
        assert_false(form.failed || text.failed);
        assert_int_equal(judge(form.data, text.data, text.len), WHOLE);
    }
    ln_str_free(&form);
    ln_str_free(&text);
}

static void a_blank_is_stripped_once(void **state) {
    (void)state;
    ln_vocabulary v;
    ln_grammar *g;
    ln_matcher *m;
    bool fits;
    const uint64_t *mask;
    open_vocabulary(&v, tokens, LN_COUNT(tokens), true);
    OK(ln_grammar_open(&g, "\"abc abc\"", 9, err));
    OK(ln_matcher_open(&m, g, &v, err));
    OK(ln_matcher_mask(m, &mask, err));
    assert_int_equal(mask[' ' / 64] >> (' ' % 64) & 1, 1); /* it is dropped */
    assert_true(ln_matcher_begins(m));
    OK(ln_matcher_take(m, ' ', &fits, err));
    assert_true(fits && !ln_matcher_begins(m));
    OK(ln_matcher_allows(m, ' ', &fits, err));
    assert_false(fits);
    OK(ln_matcher_push(m, "abc", 3, &fits, err));
    assert_true(fits);
    OK(ln_matcher_take(m, ' ', &fits, err));
    assert_true(fits);
    OK(ln_matcher_take(m, 'a', &fits, err));
    assert_true(fits && !ln_matcher_complete(m));
    ln_matcher_close(&m);
    OK(ln_matcher_open(&m, g, &v, err));
    ln_matcher_follows(m);
    OK(ln_matcher_allows(m, ' ', &fits, err));
    assert_false(fits);
    ln_matcher_close(&m);
    ln_grammar_close(&g);
    ln_vocabulary_free(&v);
}

/* The n-th allocation fails, for every n: an error and nothing lost. */
static void without_memory(void **state) {
    (void)state;
    static const char form[] =
        SCHEMA("{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":3,"
               "\"maximum\":17}}},"
               "{\"properties\":{\"b\":{\"$ref\":\"#/$defs/s\"}},\"additionalProperties\":{}}],"
               "\"$defs\":{\"s\":{\"type\":\"string\",\"pattern\":\"^[a-z]{2,4}$\"}}}");
    const uint64_t before = ln_mem_bytes();
    for (int64_t n = 1;; n++) {
        ln_vocabulary v = {0};
        ln_grammar *g = NULL;
        ln_matcher *m = NULL;
        ln_error why;
        bool fits = false;
        (void)ln_mem_fail_at(0, false);
        open_vocabulary(&v, tokens, LN_COUNT(tokens), false);
        (void)ln_mem_fail_at(n, false);
        ln_status st = ln_grammar_open(&g, form, sizeof form - 1, &why);
        const uint64_t *mask;
        if (st == LN_OK) st = ln_matcher_open(&m, g, &v, &why);
        if (st == LN_OK) st = ln_matcher_push(m, "{\"a\": 12, \"", 11, &fits, &why);
        if (st == LN_OK) st = ln_matcher_mask(m, &mask, &why);
        const int64_t left = ln_mem_fail_at(0, false);
        ln_matcher_close(&m);
        ln_grammar_close(&g);
        ln_vocabulary_free(&v);
        assert_int_equal(ln_mem_bytes(), before);
        if (st == LN_OK) {
            assert_true(fits);
            if (left > 0) break; /* the failure was never reached */
        } else {
            if (st != LN_EMEMORY) fail_msg("%d: %s", st, why.message);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts_fit),
                                       cmocka_unit_test(forms_are_refused),
                                       cmocka_unit_test(masks_agree_with_tokens),
                                       cmocka_unit_test(a_matcher_forgets),
                                       cmocka_unit_test(long_forms),
                                       cmocka_unit_test(long_lists),
                                       cmocka_unit_test(deep_texts_end),
                                       cmocka_unit_test(a_blank_is_stripped_once),
                                       cmocka_unit_test(without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
