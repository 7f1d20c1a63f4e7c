/* Text inside reasoning that looks like a call, and tools whose schemas calls cannot meet. */
/* run: quick asan */
#include "../common.h"
#include "../think_model.h"
#include "call_cases.h"

/* A schema that calls cannot be constrained to is an error, unless the tool's definition permits any
 * object. */
static void schemas_that_cannot_be_met(void **state) {
    (void)state;
    static const char before[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"}],\"tools\":[{\"type\":\"function\","
        "\"function\":{"
        "\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\","
        "\"uniqueItems\":true}}}";
    static const struct {
        const char *end, *name;
        bool good, required;
    } rows[] = {{"}}]}", NULL, false, false},
                {",\"strict\":true}}]}", NULL, false, false},
                {",\"strict\":false}}]}", NULL, true, false},
                {",\"strict\":false}}]}", NULL, false, true},
                {"}},{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]}", "g", true, false}};
    ln_model *model;
    ln_engine *engine;
    OK(ln_model_open(&model, LN_ROOT "/models/tiny", NULL, err));
    OK(ln_engine_open(&engine, model, NULL, err));
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        ln_str request = {0};
        ln_result out = {.size = sizeof out};
        ln_sampling how = {.size = sizeof how,
                           .top_p = 1,
                           .repeat_penalty = 1,
                           .n_max = 2,
                           .tool_choice = rows[i].required ? LN_TOOLS_REQUIRED : LN_TOOLS_AUTO};
        ln_str_addf(&request, "%s%s", before, rows[i].end);
        const ln_prompt p = {.size = sizeof p, .request = request.data, .request_bytes = request.len};
        how.tool_names = &rows[i].name;
        how.n_tool_names = rows[i].name ? 1 : 0;
        if (rows[i].good) OK(ln_generate(engine, &p, &how, NULL, NULL, &out, err));
        else
            FAILS(LN_EINVALID, "schema.properties.a.uniqueItems",
                  ln_generate(engine, &p, &how, NULL, NULL, &out, err));
        ln_result_free(&out);
        ln_str_free(&request);
    }
    ln_engine_close(&engine);
    ln_model_close(&model);
}

/* A template that shows tools and calls. */
#define SHOWN                                                                                            \
    "{{ messages[-1].content }}{% if tools %}{{ tools[0].function.name }}{% endif %}"                    \
    "{% for m in messages %}{{ m.tool_calls if m.tool_calls else '' }}{{ m.content if m.role == 'tool' " \
    "else '' }}{% endfor %}"

static bool same(const ln_str *s, const char *text) { return strcmp(s->data ? s->data : "", text) == 0; }

/* What looks like a call inside reasoning is reasoning; the call after it is one. */
static void calls_inside_reasoning(void **state) {
    (void)state;
    static const struct {
        const char *text, *reasoning, *content;
        size_t n_calls;
    } rows[] = {
        {"<think>I could write " CALL " here.</think>Hello", "I could write " CALL " here.", "Hello", 0},
        {"<think>" CALL "</think>\n\n" CALL, CALL, "", 1},
        {"<think><tool_call></think>ok</tool_call>", "<tool_call>", "ok</tool_call>", 0},
        {"<think>\n" CALL, CALL, "", 0}, /* reasoning that is cut */
        {CALL "<think>x</think>", "", "<think>x</think>", 1},
    };
    char dir[] = "/tmp/linnet-inside-XXXXXX", path[100];
    const ln_options options = ln_options_default();
    ln_package *package;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/m", dir);
    think_make(path, SHOWN "{# <think></think> <tool_call> arguments #}", true);
    OK(ln_package_open(&package, path, &options, err));
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        const ln_sampling how = {.size = sizeof how, .tool_choice = LN_TOOLS_AUTO};
        const ln_answer_tools list = {tools, LN_COUNT(tools)};
        const int32_t none[] = {'Q'};
        ln_ids ids = {0};
        ln_answer a;
        ln_str reasoning = {0}, content = {0};
        size_t n_calls = 0;
        OK(ln_tok_encode(package->tok, rows[i].text, strlen(rows[i].text), false, &ids, err));
        OK(ln_answer_open(&a, package, &how, &list, true, none, 1, err));
        for (size_t k = 0; k <= ids.n; k++) {
            if (k < ids.n) OK(ln_answer_push(&a, ids.data[k], err));
            else OK(ln_answer_flush(&a, err));
            if (a.reasoning.len > 0) ln_str_add(&reasoning, a.reasoning.data, a.reasoning.len);
            if (a.text.len > 0) ln_str_add(&content, a.text.data, a.text.len);
            for (size_t c = 0; c < a.n_calls; c++) n_calls += a.new_calls[c].kind == LN_EVENT_TOOL_CALL;
        }
        if (!same(&reasoning, rows[i].reasoning) || !same(&content, rows[i].content) ||
            n_calls != rows[i].n_calls)
            fail_msg("'%s': reasoning '%s', content '%s', %zu calls", rows[i].text, reasoning.data,
                     content.data, n_calls);
        ln_answer_close(&a);
        ln_ids_free(&ids);
        ln_str_free(&reasoning);
        ln_str_free(&content);
    }
    ln_package_close(&package);
    think_remove(path);
    assert_int_equal(rmdir(dir), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(schemas_that_cannot_be_met),
                                       cmocka_unit_test(calls_inside_reasoning)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
