/* Texts of models and what the splitter makes of them, for each format of calls. */
#ifndef LN_CALL_CASES_H
#define LN_CALL_CASES_H

#include "chat/tool_calls.h"

static const ln_call_param params[] = {{"t", LN_PARAM_TEXT},
                                       {"n", LN_PARAM_INTEGER},
                                       {"o", LN_PARAM_OBJECT},
                                       {"b", LN_PARAM_BOOL},
                                       {"x", LN_PARAM_TEXT | LN_PARAM_NULL}};
static const ln_call_tool tools[] = {{"f", params, LN_COUNT(params)}, {"get_weather", NULL, 0}};

typedef struct split {
    const char *form;
    const char *text,
        *calls; /* calls: name, arguments and a newline of each, a question mark before one that is cut */
    const char *content;
    size_t malformed;
} split;

#define CALL    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"
#define PLAIN   "{\"name\": \"f\", \"parameters\": {}}"
#define DS_F    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n" DS_JSON
#define DS_JSON "```json\n{\"a\": 1}\n```<｜tool▁call▁end｜>"
#define H       "hermes"
#define L       "llama3"
#define M       "mistral"
#define Q       "qwen3-coder"
static const split cases[] = {
    {H, CALL, "f{\"a\": 1}\n", "", 0},
    {H, "Now.\n" CALL, "f{\"a\": 1}\n", "Now.", 0},
    {H, "a <b \n\n" CALL "\n", "f{\"a\": 1}\n", "a <b", 0},
    {H, CALL "\n<tool_call>{\"arguments\":{},\"name\":\"get_weather\"}</tool_call>",
     "f{\"a\": 1}\nget_weather{}\n", "", 0},
    {H, CALL " And\nso.\n", "f{\"a\": 1}\n", "And\nso.\n", 0},
    /* one of the blanks around calls stays between two texts */
    {H, "Let me look.\n" CALL "\nand\n" CALL "\nDone.", "f{\"a\": 1}\nf{\"a\": 1}\n",
     "Let me look.\nand\nDone.", 0},
    {H, "a " CALL "b" CALL " c", "f{\"a\": 1}\nf{\"a\": 1}\n", "a b c", 0},
    {H, "a" CALL "b", "f{\"a\": 1}\n", "ab", 0},
    {H, "a\n" CALL "\n" CALL "\n", "f{\"a\": 1}\nf{\"a\": 1}\n", "a", 0},
    {H, "<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":\"}</tool_call>\\\"{\"}}</tool_call>",
     "f{\"x\":\"}</tool_call>\\\"{\"}\n", "", 0},
    {H, "<tool_call>{\"name\":\"f\",\"arguments\":{\"w\":[{}],\"\xc3\xa9\":\"\xe2\x82\xac\"}}",
     "f{\"w\":[{}],\"\xc3\xa9\":\"\xe2\x82\xac\"}\n", "", 0}, /* the object is whole */
    {H, "<tool_call>{\"name\":\"f\",\"arguments\":{}}\n</tool", "f{}\n", "", 0},
    {H, "<tool_call>{\"name\":\"f\",\"id\":[1],\"parameters\":{}}</tool_call>", "f{}\n", "", 0},
    /* as others read them: no arguments, arguments as a text, several calls in one tag, or a list */
    {H, "<tool_call>{\"name\": \"f\"}</tool_call>", "f{}\n", "", 0},
    {H, "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", "f{}\n", "", 0},
    {H, "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}</tool_call>", "f{\"a\":1}\n", "", 0},
    {H,
     "<tool_call>\n{\"name\":\"f\",\"arguments\":{}}\n{\"name\":\"get_weather\",\"arguments\":{}}\n</"
     "tool_call> x",
     "f{}\nget_weather{}\n", "x", 0},
    {H, "<tool_call>[{\"name\":\"f\",\"arguments\":{}}, {\"name\":\"f\",\"arguments\":{}}]</tool_call>" CALL,
     "f{}\nf{}\nf{\"a\": 1}\n", "", 0},
    /* no calls */
    {H, "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>", "",
     "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>", 1},
    {H, " <tool_call>{\"name\":\"f\",\"arguments\":{}}x", "",
     " <tool_call>{\"name\":\"f\",\"arguments\":{}}x", 1},
    {H, "<tool_call>{\"name\":\"f\",\"arguments\":\"no\"}</tool_call>", "",
     "<tool_call>{\"name\":\"f\",\"arguments\":\"no\"}</tool_call>", 1},
    {H, "<tool_call>{]\n</tool_call> ", "", "<tool_call>{]\n</tool_call> ", 1},
    {H, "<tool_call>{\"name\":\"f\",\"name\":\"f\",\"arguments\":{}}</tool_call>", "",
     "<tool_call>{\"name\":\"f\",\"name\":\"f\",\"arguments\":{}}</tool_call>", 1},
    {H, "<tool_call>f()</tool_call>" CALL, "f{\"a\": 1}\n", "<tool_call>f()</tool_call>", 1},
    {H, "<tool_call> <tool_call>{\"name\":\"f\",\"arguments\":{}}", "f{}\n", "<tool_call>", 1},
    {H, "<tool_call>{\"b " CALL, "f{\"a\": 1}\n", "<tool_call>{\"b", 1},
    {H, "<tool_", "", "<tool_", 0},
    {H, "a \n <tool_call> \n", "", "a \n <tool_call> \n", 1},
    {H, " \n", "", " \n", 0},
    {H, "", "", "", 0},
    {H, PLAIN, "", PLAIN, 0},
    /* calls that the end cuts */
    {H, "a <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", "?f{\"a\":\n", "a", 0},
    {H, "<tool_call>{\"name\": \"f\", \"arguments\": {", "?f{\n", "", 0},
    {H, "<tool_call>{\"name\": \"f\", \"argum", "", "<tool_call>{\"name\": \"f\", \"argum", 1},
    {L, PLAIN, "f{}\n", "", 0},
    {L, "\n" PLAIN "\n", "f{}\n", "", 0},
    {L, "<|python_tag|>" PLAIN, "f{}\n", "", 0},
    {L, PLAIN "; " PLAIN ";\n<|python_tag|>" PLAIN " ;", "f{}\nf{}\nf{}\n", "", 0},
    {L, PLAIN "\nDone.", "f{}\n", "Done.", 0},
    {L, PLAIN ";x " PLAIN, "f{}\n", ";x " PLAIN, 0},
    {L, "{\"type\":\"function\",\"name\":\"f\",\"parameters\":{\"a\":{}}}", "f{\"a\":{}}\n", "", 0},
    {L, "{\"name\":\"f\",\"arguments\":{}}", "f{}\n", "", 0},
    {L, "It is " PLAIN, "", "It is " PLAIN, 0},
    {L, " {\"answer\":5}\n", "", " {\"answer\":5}\n", 0},
    {L, "{\"name\":\"f\",\"age\":5}", "", "{\"name\":\"f\",\"age\":5}", 0},
    {L, "{\"name\":\"g\",\"parameters\":{}}", "", "{\"name\":\"g\",\"parameters\":{}}", 0},
    {L, "{\"name\": \"f\", \"parameters\": {\"a", "?f{\"a\n", "", 0},
    {L, "<|python_tag|>print(1)", "", "<|python_tag|>print(1)", 0},
    {L, "<|py", "", "<|py", 0},
    {M, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": [1]}, \"id\": \"123456789\"}] ",
     "f{\"a\": [1]}\n", "", 0},
    {M, "Hm. [TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}} , {\"name\":\"f\",\"arguments\":{\"b\":2}}]",
     "f{}\nf{\"b\":2}\n", "Hm.", 0},
    {M, "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}", "f{}\n", "", 0},
    {M, "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}, {\"name\":\"g\",\"arguments\":{}}]", "f{}\n",
     ", {\"name\":\"g\",\"arguments\":{}}]", 1},
    {M, "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}] So.", "f{}\n", "So.", 0},
    {M, "[TOOL_CALLS]f{}", "", "[TOOL_CALLS]f{}", 1},
    {M, "[TOOL_CALLS] [", "", "[TOOL_CALLS] [", 1},
    {M, "[TOOL_CALLS][]", "", "[TOOL_CALLS][]", 1},
    /* values in tags: texts as they are, others as JSON or as Python prints them */
    {Q,
     "Hm\n<tool_call>\n<function=f>\n<parameter=t>\n  "
     "a\n<b>\n</parameter>\n<parameter=n>\n5\n</parameter>\n</function>\n</tool_call>",
     "f{\"t\": \"  a\\n<b>\", \"n\": 5}\n", "Hm", 0},
    {Q,
     "<tool_call><function=f><parameter=t>12</parameter><parameter=b>True</parameter><parameter=o>{\"c\": "
     "[1]}</parameter></function></tool_call>",
     "f{\"t\": \"12\", \"b\": true, \"o\": {\"c\": [1]}}\n", "", 0},
    {Q,
     "<tool_call>\n<function=f>\n<parameter=x>\nnull\n</parameter>\n<parameter=y>\n7\n</parameter>\n</"
     "function>\n</tool_call>",
     "f{\"x\": null, \"y\": 7}\n", "", 0},
    {Q,
     "<tool_call>\n<function=f>\n</function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n</"
     "function>\n</tool_call>",
     "f{}\nget_weather{}\n", "", 0},
    {Q, "<tool_call>\n<function=f>\n<parameter=t>\n\xe2\x82\xac\n\n</parameter>\n<parameter=n>\n1",
     "?f{\"t\": \"\xe2\x82\xac\\n\"\n", "", 0},
    {Q, "<tool_call>\n<function=g>\n</function>\n</tool_call>", "",
     "<tool_call>\n<function=g>\n</function>\n</tool_call>", 1},
    {"glm",
     "<tool_call>f\n<arg_key>t</arg_key>\n<arg_value> a "
     "</arg_value>\n<arg_key>n</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
     "f{\"t\": \" a \", \"n\": 2}\n", "", 0},
    {"glm",
     "<tool_call>get_weather</tool_call><tool_call>f<arg_key>t</arg_key><arg_value>x</arg_value></tool_call>",
     "get_weather{}\nf{\"t\": \"x\"}\n", "", 0},
    {"minimax",
     "a\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"t\">a\nb</parameter>\n<parameter "
     "name=\"n\">3</parameter>\n</invoke>\n<invoke name=\"get_weather\">\n</invoke>\n</minimax:tool_call>",
     "f{\"t\": \"a\\nb\", \"n\": 3}\nget_weather{}\n", "a", 0},
    {"function-tag", "<function=f>{\"a\": \"</function>\"}</function> x", "f{\"a\": \"</function>\"}\n", "x",
     0},
    {"function-tag", "<function=f>{\"a\":", "?f{\"a\":\n", "", 0},
    {"function-tag", "<function=f>no</function>", "", "<function=f>no</function>", 1},
    {"mistral-args", "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]get_weather[ARGS]{}",
     "f{\"a\": 1}\nget_weather{}\n", "", 0},
    {"mistral-id", "[TOOL_CALLS]f[CALL_ID]a1B2c3D4e[ARGS]{\"a\": 1}", "f{\"a\": 1}\n", "", 0},
    {"mistral-id", "[TOOL_CALLS]f[CALL_ID]a1B2c3D4e[AR", "", "[TOOL_CALLS]f[CALL_ID]a1B2c3D4e[AR", 1},
    {"deepseek", "x<｜tool▁calls▁begin｜>" DS_F "\n" DS_F "<｜tool▁calls▁end｜>",
     "f{\"a\": 1}\nf{\"a\": 1}\n", "x", 0},
    {"deepseek", "<｜tool▁calls▁begin｜>" DS_F, "f{\"a\": 1}\n", "", 0},
    {"deepseek31",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}"
     "<｜tool▁call▁end｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{}"
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "f{\"a\": 1}\nget_weather{}\n", "", 0},
    {"kimi",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": "
     "1}<|tool_call_end|><|tool_call_begin|>functions.f:12<|tool_call_argument_begin|>{}<|tool_call_end|><|"
     "tool_calls_section_end|>",
     "f{\"a\": 1}\nf{}\n", "", 0},
    {"nemotron",
     "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"f\", \"arguments\": {\"a\": "
     "1}}]</TOOLCALL> ok",
     "f{}\nf{\"a\": 1}\n", "ok", 0},
    {"phi4", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>", "f{}\n", "", 0},
    {"granite", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]", "f{}\n", "", 0},
    {"granite", "<|tool_call|> [ {\"arguments\": {}, \"name\": \"f\"}, {\"name\": \"f\"} ]", "f{}\nf{}\n", "",
     0},
    {"xlam", "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"get_weather\", \"arguments\": {}}]",
     "f{}\nget_weather{}\n", "", 0},
    {"xlam", "[1, 2]", "", "[1, 2]", 0},
    {"pythonic", "[f(a=1, b='it\\'s', c=[True, None, {'d': (2, 3)}]), get_weather()]",
     "f{\"a\":1,\"b\":\"it's\",\"c\":[true,null,{\"d\":[2,3]}]}\nget_weather{}\n", "", 0},
    {"pythonic", "<|python_start|>[f(t=\")],\")]<|python_end|>", "f{\"t\":\")],\"}\n", "<|python_end|>", 0},
    {"pythonic", "[g(a=1)]", "", "[g(a=1)]", 0},
    {"pythonic", "[f(a=)]", "", "[f(a=)]", 1},
    {"pythonic", "[f](x)", "", "[f](x)", 0},
    {"functiongemma",
     "<start_function_call>call:f{t:<escape>a \"}<escape>,n:5,l:[<escape>x<escape>,true]}<end_function_call>",
     "f{\"t\":\"a \\\"}\",\"n\":5,\"l\":[\"x\",true]}\n", "", 0},
    {"gemma4",
     "ok<|tool_call>call:f{t:<|\"|>a, "
     "{b}<|\"|>,o:{k:<|\"|>v<|\"|>}}<tool_call|><|tool_call>call:get_weather{}<tool_call|>",
     "f{\"t\":\"a, {b}\",\"o\":{\"k\":\"v\"}}\nget_weather{}\n", "ok", 0},
    {"gemma4", "<|tool_call>call:f{t:<|\"|>a", "?f\n", "", 0},
    {"minimax-text",
     "<tool_calls>\n{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"f\", \"arguments\": "
     "{}}\n</tool_calls>\n",
     "f{}\nf{}\n", "", 0},
    {"generic", "a\n" CALL, "f{\"a\": 1}\n", "a", 0},
};

#endif
