/* JSON schemas whose texts must not be more than the schema allows: combinations of keywords, bounds of
 * numbers as doubles, and what programs send. */
/* run: quick */
#include "grammar_test.h"

#include <time.h>

static const text_case cases[] = {
    /* patterns: a point after a backslash is a point */
    {"{\"regex\":\"a\\\\.b[\\\\.c]\"}", {"a.b.", "a.bc"}, {"a"}, {"axb.", "a.bx"}},
    {SCHEMA("{\"type\":\"string\",\"format\":\"email\"}"),
     {"\"a.b@c.de\""},
     {"\"a@b.c"},
     {"\"a@b.\"", "\"a@-b\"", "\"@b.cd\"", "\"a..b@c\""}},
    {SCHEMA("{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"minLength\":2,\"maxLength\":4}"),
     {"\"ab\"", "\"abcd\""},
     {"\"a"},
     {"\"a\"", "\"abcde", "\"A"}},
    {SCHEMA("{\"type\":\"string\",\"pattern\":\"^x|^(cd)c{0,9}\\\\.$|^[a-z]\\\\d*$\",\"maxLength\":4}"),
     {"\"x\"", "\"xabc\"", "\"cd.\"", "\"cdc.\"", "\"a123\"", "\"a\""},
     {"\"xa"},
     {"\"a1234", "\"xabcd", "\"cdcc"}},
    {SCHEMA("{\"type\":\"string\",\"pattern\":\"^(?!^[-+.]*$)[+-]?0*\\\\d*\\\\.?\\\\d*$\"}"),
     {"\"1\"", "\"-0.5\"", "\"+.25\"", "\"7.\""},
     {"\"-"},
     {"\"\"", "\"-.\"", "\".\"", "\"1e5"}},
    /* formats: days that exist, and bounded lengths */
    {SCHEMA("{\"type\":\"string\",\"format\":\"date\"}"),
     {"\"2024-02-29\"", "\"2023-02-28\"", "\"2000-02-29\"", "\"1999-12-31\"", "\"0001-04-30\""},
     {"\"2024-02-2"},
     {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-02-30\"", "\"2024-04-31\"", "\"0000-01-01\"",
      "\"2024-00-"}},
    {SCHEMA("{\"type\":\"string\",\"format\":\"uri\",\"minLength\":1,\"maxLength\":2083}"),
     {"\"https://en.wikipedia.org/wiki/A_(b)?q=1#x\"", "\"http://localhost:8080\"", "\"a://1.2.3.4/%20\""},
     {"\"https"},
     {"\"x\"", "\"http://a/%2\"", "\"http://a#b#c\"", "\"http://a b\""}},
    {SCHEMA("{\"type\":\"string\",\"format\":\"duration\"}"),
     {"\"PT1H30M\"", "\"P1D\"", "\"P1Y2M3DT4H5M6S\"", "\"P3W\""},
     {"\"P"},
     {"\"P\"", "\"PT\"", "\"P1DT\"", "\"1D\""}},
    {SCHEMA("{\"type\":\"string\",\"format\":\"ipv4\",\"minLength\":2,\"maxLength\":15}"),
     {"\"1.2.3.4\""},
     {"\"1"},
     {"\"12\"", "\"a"}},
    {SCHEMA("{\"type\":\"string\",\"format\":\"ipv4\",\"maxLength\":8}"),
     {"\"1.2.3.45\""},
     {"\"1.2.3.4"},
     {"\"1.2.3.456\"", "\"abc"}},
    {SCHEMA("{\"type\":\"string\",\"format\":\"uuid4\"}"),
     {"\"123e4567-e89b-42d3-a456-426614174000\""},
     {"\"1"},
     {"\"123e4567-e89b-12", "\"123e4567-e89b-42d3-c"}},
    /* what is excluded as a decimal is excluded as a double */
    {SCHEMA("{\"type\":\"number\",\"exclusiveMaximum\":1,\"exclusiveMinimum\":-1.5}"),
     {"0.99999999999999", "-1.49999999999999", "0"},
     {"0.", "-1."},
     {"0.99999999999999999", "-1.4999999999999999", "2"}},
    {SCHEMA("{\"type\":\"number\",\"exclusiveMinimum\":0.1}"),
     {"0.100000000000001", "0.2", "12345.75"},
     {"0.1"},
     {"0.10000000000000001", "0.1", "0"}},
    {SCHEMA("{\"type\":\"number\",\"minimum\":-1e18,\"maximum\":1e20}"), {"-5.5", "0", "17"}, {"-"}, {"x"}},
    /* multiples */
    {SCHEMA("{\"type\":\"integer\",\"multipleOf\":5,\"exclusiveMinimum\":-5,\"maximum\":20}"),
     {"0", "5", "10", "20"},
     {"1"},
     {"-5", "25", "7", "00"}},
    {SCHEMA("{\"type\":\"number\",\"multipleOf\":7}"),
     {"0", "7", "-14", "700", "123456789012345677"},
     {"1", "-"},
     {"8", "-0", "07", "7.0", "123456789012345678"}},
    {SCHEMA("{\"type\":\"integer\",\"multipleOf\":128,\"exclusiveMinimum\":0}"),
     {"128", "1280"},
     {"1"},
     {"0", "-"}},
    /* objects */
    {SCHEMA("{\"patternProperties\":{\"^s_\":{\"type\":\"string\"},\"^i_\":{\"type\":\"integer\"}}}"),
     {"{\"s_a\":\"\",\"i_\":1}"},
     {"{\"s"},
     {"{\"s_a\":1", "{\"x"}},
    {SCHEMA("{\"required\":[\"a\"],\"unevaluatedProperties\":{\"type\":\"integer\"}}"),
     {"{\"a\":1}", "{\"a\":1,\"b\":2}"},
     {"{"},
     {"{\"a\":\"", "{}"}},
    {SCHEMA("{\"properties\":{\"a\":{},\"b\":{}},\"minProperties\":1,\"maxProperties\":2}"),
     {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":2}"},
     {"{"},
     {"{}"}},
    {SCHEMA("{\"properties\":{\"a\":{}},\"minProperties\":1,\"additionalProperties\":{\"type\":\"null\"}}"),
     {"{\"a\":1}", "{\"b\":null}"},
     {"{"},
     {"{}", "{\"b\":1"}},
    /* items that differ come in the order of their enum */
    {SCHEMA("{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"$ref\":\"#/$defs/e\"},\"$defs\":{\"e\":{"
            "\"type\":\"string\",\"enum\":[\"a\",\"b\",\"a\",\"c\"]}}}"),
     {"[]", "[\"a\"]", "[\"a\",\"c\"]", "[\"a\", \"b\",\"c\"]", "[\"c\"]"},
     {"[", "[\"b\""},
     {"[\"a\",\"a", "[\"c\",", "[\"d"}},
    {SCHEMA("{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[1,1.0,2,null]},\"minItems\":2,"
            "\"maxItems\":2}"),
     {"[1,2]", "[1,null]", "[2,null]"},
     {"[1"},
     {"[1]", "[]", "[1,2,null]", "[1,1", "[null"}},
    /* joined: a property of one schema is a further property of the other */
    {SCHEMA("{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"additionalProperties\":{"
            "\"minimum\":5}},{\"properties\":{\"b\":{\"type\":\"integer\"}},\"required\":[\"b\"]}]}"),
     {"{\"a\":1,\"b\":5}"},
     {"{\"b\":1"},
     {"{\"b\":1}", "{\"b\":4}"}},
    {SCHEMA("{\"allOf\":[{\"properties\":{\"a\":{}},\"required\":[\"a\"]},{\"properties\":{\"b\":{}},"
            "\"required\":[\"b\"]}],\"unevaluatedProperties\":false}"),
     {"{\"a\":1,\"b\":2}"},
     {"{"},
     {"{\"a\":1}", "{\"a\":1,\"b\":2,\"c\":"}},
    {SCHEMA("{\"allOf\":[{\"properties\":{\"a\":{}},\"unevaluatedProperties\":false},{\"properties\":{\"b\":{"
            "}}"
            "}]}"),
     {"{\"a\":1}", "{}"},
     {"{"},
     {"{\"b\":"}},
    /* recursion through allOf, and through a $ref that has keywords next to it */
    {SCHEMA("{\"$ref\":\"#/$defs/"
            "n\",\"$defs\":{\"n\":{\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{"
            "\"allOf\":[{\"$ref\":\"#/$defs/n\"}],\"description\":\"d\"}},\"required\":[\"v\"]}}}"),
     {"{\"v\":1}", "{\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3}}}"},
     {"{"},
     {"{\"v\":1,\"next\":{}}"}},
    {SCHEMA("{\"$ref\":\"#/$defs/"
            "n\",\"$defs\":{\"n\":{\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{"
            "\"$ref\":\"#/$defs/n\",\"maxProperties\":2}},\"required\":[\"v\"]}}}"),
     {"{\"v\":1}", "{\"v\":1,\"next\":{\"v\":2}}"},
     {"{\"v\":1,\"next\":{\"v\":2,\"next\":{"},
     {"{\"v\":1,\"next\":{}}"}},
    /* keywords that say nothing of the values of an enum */
    {SCHEMA("{\"enum\":[\"a\",1],\"minItems\":2,\"enumNames\":[\"x\",\"y\"]}"),
     {"\"a\"", "1"},
     {"\""},
     {"2"}},
    {SCHEMA("{\"type\":\"string\",\"enum\":[\"a\"],\"nullable\":true}"), {"\"a\"", "null"}, {"n"}, {"\"b"}},
};

static void texts_fit(void **state) {
    (void)state;
    all_fit(cases, LN_COUNT(cases));
}

/* Schemas that no grammar of this kind meets. */
static void schemas_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *schema, *word;
    } refused[] = {
        {"{\"propertyNames\":{\"pattern\":\"^[a-z]+$\"},\"properties\":{\"A\":{}},\"required\":[\"A\"]}",
         "schema.required: \"A\" is required, and no value of it is allowed"},
        {"{\"required\":[\"a\"],\"unevaluatedProperties\":false}", "schema.required: \"a\" is not among"},
        {"{\"type\":\"object\",\"minProperties\":2}", "schema.minProperties: no object meets it"},
        {"{\"minProperties\":2,\"maxProperties\":1}", "schema.maxProperties: it is less than"},
        {"{\"allOf\":[{\"contains\":{}},{\"maxContains\":1}]}", "schema.allOf[1].contains: it cannot be "
                                                                "joined with maxContains"},
        {"{\"uniqueItems\":true,\"items\":{\"type\":\"string\"}}", "schema.uniqueItems: this keyword is "
                                                                   "supported where items is an enum"},
        {"{\"uniqueItems\":true,\"items\":{\"enum\":[1,2]},\"minItems\":3}", "schema.minItems: there are "
                                                                             "only 2 different values"},
        {"{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":1,\"maximum\":6}", "schema.multipleOf: no "
                                                                                "number"},
        {"{\"type\":[\"string\",3]}", "schema.type: expected a type or a list of types"},
        {"{\"enum\":[\"a\"],\"pattern\":\"b\"}", "schema.enum: no value of it meets the schema"},
        {"{\"allOf\":[{\"const\":1},{\"const\":2}]}", "const: the schemas that are joined here have no "
                                                      "value"},
        {"{\"type\":\"array\",\"contains\":{\"type\":\"string\"},\"items\":{\"type\":\"null\"}}",
         "schema.items.type: the schemas that are joined here have no type"},
        {"{\"not\":{\"uniqueItems\":true}}", "schema.not: nothing is left, or the keywords in it cannot be "
                                             "negated"},
        {"{\"format\":3}", "schema.format: expected a text, found 3"},
        {"{\"pattern\":\"(a|b)*a(a|b){14}$\"}", "schema.pattern: it needs more than 16384 states"},
    };
    for (size_t i = 0; i < LN_COUNT(refused); i++) {
        ln_grammar *g;
        ln_str form = {0};
        ln_str_addf(&form, "{\"schema\":%s}", refused[i].schema);
        assert_false(form.failed);
        FAILS(LN_EINVALID, refused[i].word, ln_grammar_open(&g, form.data, form.len, err));
        assert_null(g);
        ln_str_free(&form);
    }
}

/* Further properties in addition to listed ones, of more first characters than one byte has digits: no
 * listed name comes with a further property's value. */
static void listed_names_are_not_further_ones(void **state) {
    (void)state;
    enum { N = 300 };
    ln_str form = {0}, text = {0};
    ln_str_adds(&form, "{\"schema\":{\"additionalProperties\":{\"type\":\"string\"},\"properties\":{");
    for (int i = 0; i < N; i++)
        ln_str_addf(&form, "%s\"\\u%04xx\":{\"type\":\"null\"}", i ? "," : "", 0x4e00 + i);
    ln_str_adds(&form, "}}}");
    assert_false(form.failed);
    for (int i = 0; i < N; i += 13) {
        const int c = 0x4e00 + i;
        text.len = 0;
        ln_str_addf(&text, "{\"%c%c%cx\":", 0xe0 | c >> 12, 0x80 | (c >> 6 & 63), 0x80 | (c & 63));
        ln_str_adds(&text, "null}");
        assert_int_equal(judge(form.data, text.data, text.len), WHOLE);
        text.len -= 5;
        ln_str_adds(&text, "\"\"}");
        assert_int_equal(judge(form.data, text.data, text.len), WRONG);
    }
    assert_int_equal(judge(form.data, "{\"x\":\"\"}", 8), WHOLE);
    ln_str_free(&form);
    ln_str_free(&text);
}

/* Time is bounded: references that stand for 2^40 schemas, and names of a length that calls would follow. */
static void hostile_schemas_are_refused(void **state) {
    (void)state;
    static const char *const links[] = {"{\"allOf\":[{\"$ref\":\"#/$defs/%d\"},{\"$ref\":\"#/$defs/%d\"}]}",
                                        "{\"properties\":{\"a\":{\"$ref\":\"#/$defs/"
                                        "%d\",\"maxProperties\":9},"
                                        "\"b\":{\"allOf\":[{\"$ref\":\"#/$defs/%d\"},{\"x\":1}]}}}"};
    ln_str form = {0};
    ln_grammar *g;
    ln_str_adds(&form, "{\"schema\":{\"$ref\":\"#/$defs/0\",\"$defs\":{");
    for (int i = 0; i < 40; i++) {
        ln_str_addf(&form, "\"%d\":", i);
        ln_str_addf(&form, links[0], i + 1, i + 1);
        ln_str_adds(&form, ",");
    }
    ln_str_adds(&form, "\"40\":{}}}}");
    ln_error why;
    assert_int_equal(ln_grammar_open(&g, form.data, form.len, &why), LN_EINVALID);
    assert_non_null(strstr(why.message, "too large once its references"));
    assert_true(strlen(why.message) < 300); /* the middle of the place is left out */
    form.len = 0;
    ln_str_adds(&form, "{\"schema\":{\"$ref\":\"#/$defs/0\",\"$defs\":{");
    for (int i = 0; i < 30; i++) {
        ln_str_addf(&form, "\"%d\":", i);
        ln_str_addf(&form, links[1], i + 1, i + 1);
        ln_str_adds(&form, ",");
    }
    ln_str_adds(&form, "\"30\":{}}}}");
    OK(ln_grammar_open(&g, form.data, form.len, err)); /* each schema is read once */
    assert_true(ln_grammar_bytes(g) < 1 << 20);
    ln_grammar_close(&g);
    form.len = 0;
    ln_str_adds(&form, "{\"schema\":{\"additionalProperties\":{},\"properties\":{\"");
    for (int i = 0; i < 100000; i++) ln_str_adds(&form, "abcdefghij");
    ln_str_adds(&form, "\":{}}}}");
    FAILS(LN_EINVALID, "the grammar is too large", ln_grammar_open(&g, form.data, form.len, err));
    ln_str_free(&form);
}

/* Each set of bytes is stored once, without a comparison with all others: those of 80,000 classes took
 * seconds. */
static void many_classes(void **state) {
    (void)state;
    static const char c[] =
        "!#$%&'()*+,./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ_`abcdefghijklmnopqrstuvwxyz{|}~";
    ln_str form = {0};
    ln_grammar *g;
    ln_str_adds(&form, "{\"regex\":\"");
    for (size_t i = 0; i < 80; i++)
        for (size_t j = i + 1; j < 80; j++)
            for (size_t k = j + 1; k < 80; k++) ln_str_addf(&form, "[%c%c%c]", c[i], c[j], c[k]);
    ln_str_adds(&form, "\"}");
    assert_false(form.failed);
    const clock_t before = clock();
    OK(ln_grammar_open(&g, form.data, form.len, err));
    assert_true(clock() - before < 2 * CLOCKS_PER_SEC);
    ln_grammar_close(&g);
    ln_str_free(&form);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts_fit), cmocka_unit_test(schemas_are_refused),
                                       cmocka_unit_test(listed_names_are_not_further_ones),
                                       cmocka_unit_test(hostile_schemas_are_refused),
                                       cmocka_unit_test(many_classes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
