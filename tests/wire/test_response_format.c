/* The grammar of an answer in bodies: response_format, and other engines' names. */
/* run: quick */
#include "wire_test.h"

/* Asserts that the body is accepted, and which grammar it asks for. */
static void form_is(wire_kind kind, const char *members, const char *form) {
    good(kind, members);
    if (!form) {
        assert_null(q.sampling.grammar);
        assert_int_equal(q.sampling.grammar_bytes, 0);
        return;
    }
    assert_non_null(q.sampling.grammar);
    assert_int_equal(q.sampling.grammar_bytes, strlen(form));
    assert_memory_equal(q.sampling.grammar, form, strlen(form));
    ln_prompt p;
    ln_sampling how;
    ln_request_options o = {.size = sizeof o};
    wire_choice(&q, 0, &p, &how, &o);
    assert_ptr_equal(how.grammar, q.sampling.grammar);
}

static void names_of_a_form(void **state) {
    (void)state;
    static const char integer[] = "{\"schema\":{\"type\":\"integer\"}}",
                      object[] = "{\"schema\":{\"type\":\"object\"}}";
    for (int kind = WIRE_CHAT; kind <= WIRE_COMPLETION; kind++) {
        const wire_kind k = (wire_kind)kind;
        form_is(k, "\"response_format\":{\"type\":\"text\"}", NULL);
        form_is(k, "\"response_format\":null", NULL);
        form_is(k, "\"response_format\":{\"type\":\"json_object\"}", object);
        form_is(k, "\"response_format\":{\"type\":\"json_object\",\"value\":{\"type\":\"integer\"}}",
                "{\"schema\":{\"type\":\"integer\"}}");
        form_is(k, "\"response_format\":{\"type\":\"json\",\"value\":{\"type\":\"integer\"}}",
                "{\"schema\":{\"type\":\"integer\"}}");
        form_is(k, "\"response_format\":{\"type\":\"regex\",\"value\":\"a+\"}", "{\"regex\":\"a+\"}");
        form_is(k, "\"response_format\":{\"type\":\"json_object\",\"schema\":{\"type\":\"integer\"}}",
                integer);
        form_is(k,
                "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":"
                "true,"
                "\"schema\":{\"type\":\"integer\"}}}",
                integer);
        form_is(k, "\"response_format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"integer\"}}",
                integer);
        form_is(k, "\"json_schema\":{\"type\":\"integer\"}", integer);
        form_is(k, "\"guided_json\":\"{\\\"type\\\": \\\"integer\\\"}\"", integer);
        form_is(k, "\"guided_regex\":\"a+\"", "{\"regex\":\"a+\"}");
        form_is(k, "\"guided_choice\":[\"a\",\"b\"]", "{\"choice\":[\"a\",\"b\"]}");
        form_is(k, "\"structured_outputs\":{\"json\":{\"type\":\"integer\"},\"regex\":null}", integer);
        form_is(k, "\"structured_outputs\":{\"json_object\":true}", object);
        form_is(k,
                "\"structured_outputs\":{\"json\":{\"type\":\"integer\"},\"disable_additional_properties\":"
                "false}",
                "{\"schema\":{\"type\":\"integer\"},\"open\":true}");
        form_is(k, "\"grammar\":\"root ::= [a]\"", "{\"grammar\":\"root ::= [a]\"}");
        form_is(k, "\"guided_grammar\":\"start: /a/\",\"grammar\":\"\"", "{\"grammar\":\"start: /a/\"}");
        form_is(k, "\"structured_outputs\":{\"choice\":[\"a\"]}", "{\"choice\":[\"a\"]}");
        form_is(k, "\"form\":{\"schema\":{\"type\":\"integer\"}}", integer);
        form_is(k, "\"grammar\":{\"schema\":{\"type\":\"integer\"}}", integer);
        form_is(k, "\"grammar\":{\"text\":\"a\"}", "{\"sequence\":[{\"text\":\"a\"}]}");
        form_is(k, "\"form\":{\"repeat\":\"a\",\"max\":3}", "{\"sequence\":[{\"repeat\":\"a\",\"max\":3}]}");
    }
    wire_request_trim(&q);
    assert_null(q.sampling.grammar);
}

static void forms_are_refused(void **state) {
    (void)state;
    static const char place[] = "response_format.json_schema.schema";
    bad(WIRE_CHAT, "\"response_format\":\"json\"", "response_format", "expected an object, found \"json\"");
    bad(WIRE_CHAT, "\"response_format\":{\"type\":\"xml\"}", "response_format.type", "found \"xml\"");
    bad(WIRE_CHAT, "\"response_format\":{}", "response_format.type", "found nothing");
    bad(WIRE_CHAT,
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":{},\"schema\":{}}}",
        "response_format.json_schema.name", "expected a text");
    bad(WIRE_CHAT, "\"response_format\":{\"type\":\"json_schema\"}", "response_format.json_schema",
        "found nothing");
    bad(WIRE_CHAT, "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\"}}", place,
        "found nothing");
    bad(WIRE_CHAT,
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"properties\":{\"a\":{"
        "\"uniqueItems\":true}}}}}",
        place, "schema.properties.a.uniqueItems: this keyword is supported where");
    bad(WIRE_CHAT, "\"guided_json\":\"{\"", "guided_json", "the schema");
    bad(WIRE_CHAT, "\"guided_json\":3", "guided_json", "expected a JSON schema (an object), found 3");
    bad(WIRE_CHAT, "\"guided_regex\":\"(a\"", "guided_regex", "the group has no end");
    bad(WIRE_CHAT, "\"guided_regex\":[]", "guided_regex", "expected a regular expression");
    bad(WIRE_CHAT, "\"guided_choice\":[]", "guided_choice", "expected a list of texts");
    bad(WIRE_CHAT, "\"guided_choice\":[1]", "guided_choice", "expected a list of texts");
    bad(WIRE_CHAT, "\"structured_outputs\":[]", "structured_outputs", "expected an object");
    bad(WIRE_CHAT, "\"structured_outputs\":{\"structural_tag\":\"x\"}", "structured_outputs.structural_tag",
        "is not supported");
    bad(WIRE_CHAT, "\"form\":{\"gbnf\":\"x\"}", "form", "expected an object with one of schema");
    bad(WIRE_CHAT, "\"guided_regex\":\"a\",\"guided_choice\":[\"b\"]", "guided_choice", "given twice");
    bad(WIRE_CHAT, "\"grammar\":\"root ::= x\"", "grammar", "the rule \"x\" is not defined");
    bad(WIRE_CHAT, "\"guided_grammar\":3", "guided_grammar", "expected a grammar in GBNF");
    bad(WIRE_CHAT, "\"grammar\":{\"gbnf\":\"x\"}", "grammar", "expected an object with one of schema");
    bad(WIRE_CHAT, "\"grammar\":{\"text\":\"a\"},\"form\":\"b\"", "form", "given twice");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(names_of_a_form, close_last),
                                       cmocka_unit_test_teardown(forms_are_refused, close_last)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
