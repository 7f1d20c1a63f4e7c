/* Grammars in GBNF and in Lark's EBNF as expressions. */
/* run: quick asan */
#include "grammar_test.h"

#define GRAMMAR(s) "{\"grammar\":\"" s "\"}"

static const text_case cases[] = {
    {GRAMMAR("root ::= \\\"yes\\\" | \\\"no\\\" [a-z]{2,3} # comment\\n"),
     {"yes", "noab", "noabc"},
     {"noa"},
     {"noabcd", "noA", "maybe"}},
    {GRAMMAR("# alternatives on lines of their own\\nroot ::= item (\\\", \\\" item)*\\nitem ::= "
             "[^,\\\\n\\\"]+ |\\n  "
             "\\\"\\\\\\\"\\\" .? \\\"\\\\\\\"\\\"\\n"),
     {"a, b", "\"x\"", "\"\"", "\xc3\xa9"},
     {"", "a,", "\"x"},
     {"a,b", "\"xy"}},
    {GRAMMAR("root ::= \\\"\\\\x41\\\\u00e9\\\" b-c?\\nb-c ::= root"),
     {"A\xc3\xa9", "A\xc3\xa9"
                   "A\xc3\xa9"},
     {"A"},
     {"a"}},
    /* what begins with itself */
    {GRAMMAR("?start: sum\\n?sum: product | sum \\\"+\\\" product -> add\\n    | sum \\\"-\\\" "
             "product\\n?product: atom | "
             "product \\\"*\\\" atom\\n?atom: NUMBER | \\\"(\\\" sum \\\")\\\"\\n%import "
             "common.NUMBER\\n%import "
             "common.WS\\n%ignore WS // end\\n"),
     {"1", "1+2 * (3-4)", " 1.5e3*2", "((1))"},
     {"1 +", "(1", ""},
     {"1++2", "1 2", "*1"}},
    {GRAMMAR("start: \\\"SELECT\\\"i \\\" \\\" CNAME (\\\",\\\" CNAME)~0..2 [\\\" WHERE \\\" "
             "/[a-z]+=\\\\d+/]\\n%import common "
             "(CNAME, INT)\\n"),
     {"select a,b", "SELECT x WHERE a=1", "sElEcT _1,b,c"},
     {"sel", "select a WHERE a="},
     {"select a,b,c,d", "select 1", "select a where"}},
    {GRAMMAR("start: \\\"a\\\"..\\\"f\\\"+ X~2\\nX.2: /[0-9]/\\n"), {"abf12"}, {"a1"}, {"g", "a123"}},
};

static void texts_fit(void **state) {
    (void)state;
    all_fit(cases, LN_COUNT(cases));
}

static void grammars_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *form, *word;
    } refused[] = {
        {"{\"grammar\":3}", "grammar: expected a text, found 3"},
        {GRAMMAR("root ::= a"), "grammar: the rule \"a\" is not defined"},
        {GRAMMAR("other ::= \\\"a\\\""), "the rule \"root\" is not defined"},
        {GRAMMAR("a: \\\"a\\\""), "the rule \"start\" is not defined"},
        {GRAMMAR("root ::= \\\"a\\\"\\nroot ::= \\\"b\\\""), "line 2: the rule is defined twice"},
        {GRAMMAR("root ::= (\\\"a\\\""), "line 1: the group has no end"},
        {GRAMMAR("root ::= \\\"a"), "line 1: the text has no end"},
        {GRAMMAR("root ::= a\\na ::= b \\\"x\\\"\\nb ::= a | \\\"y\\\""), "begins with itself by way of "
                                                                          "another one"},
        {GRAMMAR("root ::= (\\\"a\\\"{1,50} \\\"b\\\"){1,50}"), "multiply to more than 1,024"},
        {GRAMMAR("root ::= [z-a]"), "line 1: the pattern '[z-a]'"},
        {GRAMMAR("root ::= \\\"a\\\"{3,2}"), "in ascending order"},
        {GRAMMAR("start: x\\n%json {}"), "line 2: of Lark's directives"},
        {GRAMMAR("%import common.SECRET\\nstart: SECRET"), "line 1: the terminals of %import"},
        {GRAMMAR("start: /a/i"), "the flag i of an expression"},
        {GRAMMAR("root ::= \\\"\\\\ud800\\\""), "this is no character"},
        {GRAMMAR("root ::= root \\\"a\\\""), "no text matches this grammar"},
    };
    for (size_t i = 0; i < LN_COUNT(refused); i++) {
        ln_grammar *g;
        FAILS(LN_EINVALID, refused[i].word,
              ln_grammar_open(&g, refused[i].form, strlen(refused[i].form), err));
        assert_null(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts_fit), cmocka_unit_test(grammars_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
