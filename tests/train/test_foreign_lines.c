/* Lines of training data that other tools write: what they become, and what is rejected. */
/* run: quick asan */
#include "../common.h"

#include "train/foreign_lines.h"

#include <string.h>

#define U  "{\"role\":\"user\",\"content\":\"q\"}"
#define A  "{\"role\":\"assistant\",\"content\":\"a\"}"
#define A0 "{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0}"

/* want NULL: the line is usual, and stays as it is. */
static const struct {
    const char *text, *want, *fields;
} cases[] = {
    {"{\"messages\":[" U "," A "]}", NULL, NULL},
    {"{\"prompt\":\"q\",\"completion\":\"a\"}", NULL, NULL},
    {"{\"text\":\"instruction\",\"instruction\":\"q\",\"output\":\"a\"}", NULL, NULL},
    {"{\"ids\":[1],\"input_ids\":[2]}", NULL, NULL},
    {"[1]", NULL, NULL},
    {"{}", NULL, NULL},
    {"{\"source\":1.0}", NULL, NULL},
    /* ShareGPT */
    {"{\"conversations\":[{\"from\":\"human\",\"value\":\"q\"},{\"from\":\"gpt\",\"value\":\"a\"}],\"id\":"
     "1e0}",
     "{\"messages\":[" U "," A "],\"id\":1e0}", NULL},
    {"{\"id\":\"x\",\"conversation\":[{\"role\":\"user\",\"content\":\"q\"},{\"value\":\"a\",\"from\":"
     "\"assistant\"}]}",
     "{\"messages\":[" U "," A "],\"id\":\"x\"}", NULL},
    {"{\"conversations\":[{\"from\":\"system\",\"value\":\"\\u0073\"},{\"from\":\"observation\",\"value\":\"{"
     "}\"}]}",
     "{\"messages\":[{\"role\":\"system\",\"content\":\"\\u0073\"},{\"role\":\"tool\",\"content\":\"{}\"}]}",
     NULL},
    {"{\"conversations\":[{\"from\":\"function_call\",\"value\":\"{\\\"name\\\": \\\"f\\\", "
     "\\\"arguments\\\": {}}\"}]}",
     "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\": "
     "\"f\", "
     "\"arguments\": {}}}]}]}",
     NULL},
    {"{\"conversations\":[{\"from\":\"function_call\",\"value\":\"[{\\\"name\\\":1},{\\\"name\\\":2}]\"}]}",
     "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":1}"
     "},{\"type\":"
     "\"function\",\"function\":{\"name\":2}}]}]}",
     NULL},
    {"{\"system\":\"s\",\"conversations\":[" U "]}",
     "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"}," U "]}", NULL},
    {"{\"system\":\"\",\"messages\":[" U "]}", "{\"messages\":[" U "]}", NULL},
    /* Messages of usual names with members that templates do not read. */
    {"{\"messages\":[" U ",{\"role\":\"assistant\",\"content\":\"a\",\"train\":false}]}",
     "{\"messages\":[" U "," A0 "]}", NULL},
    {"{\"messages\":[{\"role\":\"gpt\",\"content\":\"a\",\"training\":true,\"weight\":1}]}",
     "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"weight\":1}]}", NULL},
    {"{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"function_call\":{\"name\":\"f\","
     "\"arguments\":\"{}\"}}]}",
     "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"type\":\"function\","
     "\"function\":{"
     "\"name\":\"f\",\"arguments\":\"{}\"}}]}]}",
     NULL},
    {"{\"messages\":[{\"role\":\"function\",\"name\":\"f\",\"content\":\"2\"}]}",
     "{\"messages\":[{\"role\":\"tool\",\"content\":\"2\",\"name\":\"f\"}]}", NULL},
    /* tools */
    {"{\"messages\":[" U "],\"tools\":\"[{\\\"name\\\":\\\"f\\\"}]\"}",
     "{\"messages\":[" U "],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}", NULL},
    {"{\"messages\":[" U "],\"tools\":\"\"}", "{\"messages\":[" U "]}", NULL},
    {"{\"messages\":[" U "],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}", NULL, NULL},
    /* Alpaca and its like */
    {"{\"instruction\":\"i\",\"input\":\"\",\"output\":\"o\"}", "{\"prompt\":\"i\",\"completion\":\"o\"}",
     NULL},
    {"{\"output\":\"o\",\"input\":\"n\\n\",\"instruction\":\"i\"}",
     "{\"prompt\":\"i\\n\\nn\\n\",\"completion\":\"o\"}", NULL},
    {"{\"instruction\":\"i\",\"input\":\"n\",\"output\":\"o\",\"system\":\"s\",\"history\":[[\"q\",\"a\"]]}",
     "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"}," U "," A
     ",{\"role\":\"user\",\"content\":\"i\\n\\nn\"},{\"role\":\"assistant\",\"content\":\"o\"}]}",
     NULL},
    {"{\"instruction\":\"i\",\"output\":\"o\",\"history\":[],\"system\":null}",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"i\"},{\"role\":\"assistant\",\"content\":\"o\"}]}",
     NULL},
    {"{\"instruction\":\"i\",\"context\":\"c\",\"response\":\"r\",\"category\":\"x\"}",
     "{\"prompt\":\"i\\n\\nc\",\"completion\":\"r\",\"category\":\"x\"}", NULL},
    {"{\"question\":\"q\",\"answer\":\"a\"}", "{\"prompt\":\"q\",\"completion\":\"a\"}", NULL},
    {"{\"prompt\":\"q\",\"response\":\"a\"}", "{\"prompt\":\"q\",\"completion\":\"a\"}", NULL},
    {"{\"input\":\"q\",\"output\":\"a\"}", "{\"prompt\":\"q\",\"completion\":\"a\"}", NULL},
    {"{\"system\":\"s\",\"prompt\":\"q\",\"completion\":\"a\"}",
     "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"}," U "," A "]}", NULL},
    /* TRL */
    {"{\"prompt\":[" U "," A "," U "],\"completion\":[" A "]}",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"q\","
     "\"weight\":0}," A0 ",{\"role\":\"user\",\"content\":\"q\",\"weight\":0}," A "]}",
     NULL},
    {"{\"prompt\":\"q\",\"completion\":[" A "]}", "{\"messages\":[" U "," A "]}", NULL},
    /* input_ids */
    {"{\"input_ids\":[1,2,3],\"labels\":[-100,2,-100]}", "{\"ids\":[1,2,3],\"mask\":[0,1,0]}", NULL},
    {"{\"input_ids\":[0,1,2,0],\"attention_mask\":[0,1,1,0],\"labels\":null}",
     "{\"ids\":[1,2],\"mask\":[1,1]}", NULL},
    /* names */
    {"{\"body\":\"x\",\"text\":\"y\",\"z\":[ 1 ]}", "{\"text\":\"x\",\"z\":[ 1 ]}", "text=body"},
    {"{\"q\":\"x\",\"a\":\"y\"}", "{\"prompt\":\"x\",\"completion\":\"y\"}", "prompt=q,completion=a"},
    {"{\"dialog\":[{\"from\":\"human\",\"value\":\"q\"}]}", "{\"messages\":[" U "]}", "conversations=dialog"},
};

static void lines(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        ln_str s = {0};
        OK(train_names_check(cases[i].fields, err));
        OK(train_line_translate(cases[i].fields, cases[i].text, strlen(cases[i].text), &s, err));
        if (!cases[i].want && s.len > 0) fail_msg("%s became %s", cases[i].text, s.data);
        if (cases[i].want && (s.len == 0 || strcmp(s.data, cases[i].want) != 0))
            fail_msg("%s\nbecame %s\nnot    %s", cases[i].text, s.len ? s.data : "nothing", cases[i].want);
        ln_str_free(&s);
    }
}

static void rejected(void **state) {
    (void)state;
    static const struct {
        const char *word, *text;
    } bad[] = {
        {"\"conversations\": expected a list of messages, found \"x\"", "{\"conversations\":\"x\"}"},
        {"\"conversations\": item 1: expected a message, found null", "{\"conversations\":[" U ",null]}"},
        {"\"messages\": item 0: expected a message, found 3", "{\"messages\":[3]}"},
        {"\"from\": expected human, gpt, system, observation, function_call or a usual role, found "
         "\"narrator\"",
         "{\"conversations\":[{\"from\":\"narrator\",\"value\":\"x\"}]}"},
        {"item 0: \"from\": expected the name of a role, found 3", "{\"conversations\":[{\"from\":3,"
                                                                   "\"value\":\"x\"}]}"},
        {"item 0: \"value\": expected a call as JSON", "{\"conversations\":[{\"from\":\"function_call\","
                                                       "\"value\":\"f()\"}]}"},
        {"item 0: \"value\": expected a call as JSON", "{\"conversations\":[{\"from\":\"function_call\","
                                                       "\"value\":\"{} x\"}]}"},
        {"\"train\": expected true or false, found 0", "{\"messages\":[{\"role\":\"assistant\",\"content\":"
                                                       "\"a\",\"train\":0}]}"},
        {"\"function_call\": expected an object, found \"f\"", "{\"messages\":[{\"role\":\"assistant\","
                                                               "\"function_call\":\"f\"}]}"},
        {"\"tools\": expected a list of tools, found an object", "{\"messages\":[" U "],\"tools\":\"{}\"}"},
        {"\"system\": expected a text, found 1", "{\"messages\":[" U "],\"system\":1}"},
        {"\"output\": expected a text, found null", "{\"instruction\":\"i\",\"output\":null}"},
        {"\"input\": expected a text, found 5", "{\"instruction\":\"i\",\"input\":5,\"output\":\"o\"}"},
        {"\"history\": item 1: expected a pair of texts", "{\"instruction\":\"i\",\"output\":\"o\","
                                                          "\"history\":[[\"q\",\"a\"],[\"q\"]]}"},
        {"\"labels\": item 1: expected -100 or 2, as \"input_ids\" has, found 3", "{\"input_ids\":[1,2],"
                                                                                  "\"labels\":[1,3]}"},
        {"\"labels\": expected as many items as \"input_ids\" has, found fewer than 2", "{\"input_ids\":[1,2]"
                                                                                        ",\"labels\":[1]}"},
        {"\"attention_mask\": expected as many items as \"input_ids\" has, found more than 1",
         "{\"input_ids\":[1],\"attention_mask\":[1,1]}"},
        {"\"attention_mask\": item 2: expected 0 at the beginning and at the end only",
         "{\"input_ids\":[1,2,3],\"attention_mask\":[1,0,1]}"},
        {"\"input_ids\": item 0: expected a number, found \"1\"", "{\"input_ids\":[\"1\"]}"},
        {"expected \"instruction\" once, found it twice", "{\"instruction\":\"a\",\"instruction\":\"b\"}"},
        {"JSON", "{\"text\":\"a\",}"},
    };
    for (size_t i = 0; i < LN_COUNT(bad); i++) {
        ln_str s = {0};
        FAILS(LN_EINVALID, bad[i].word,
              train_line_translate(NULL, bad[i].text, strlen(bad[i].text), &s, err));
        ln_str_free(&s);
    }
    ln_str s = {0};
    FAILS(LN_EINVALID, "\"q\": expected a text, found 3",
          train_line_translate("prompt=q", "{\"q\":3,\"response\":\"a\"}", 22, &s, err));
    ln_str_free(&s);
    FAILS(LN_EUSAGE, "found \"body\"", train_names_check("body=text", err));
    FAILS(LN_EUSAGE, "NAME=MEMBER", train_names_check("text", err));
    FAILS(LN_EUSAGE, "NAME=MEMBER", train_names_check("text=", err));
    FAILS(LN_EUSAGE, "one member for \"text\"", train_names_check("text=a,text=b", err));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lines), cmocka_unit_test(rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
