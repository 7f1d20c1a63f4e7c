/* Calls of tools as the templates of real models show them: what a template renders of a call, the parser
 * finds again, and the grammar of a required call accepts. The cases are those of the reference data
 * (../shared/data/tok/templates), which have been rendered by Jinja2. */
/* run: quick */
#include "../common.h"

#include "base/file.h"
#include "chat/tool_calls.h"
#include "grammar/grammar.h"

#include <unistd.h>

#define SHARED LN_ROOT "/../shared/data/tok/templates/"

typedef struct family {
    const char *name, *begin, *end; /* of an answer in the rendered text; begin "": the whole text is read */
    bool exact;                     /* an answer is what a model may write: it has no ids */
} family;

static const family families[] = {
    {"qwen2.5", "<|im_start|>assistant\n", "<|im_end|>", true},
    {"qwen3", "<|im_start|>assistant\n", "<|im_end|>", true},
    {"qwq-32b", "<|im_start|>assistant\n", "<|im_end|>", true},
    {"hermes-2-pro-tool-use", "<|im_start|>assistant\n", "<|im_end|>", true},
    {"llama-3.1", "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>", true},
    {"llama-3.2", "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>", true},
    {"mistral-nemo", "", "", false},
    {"mistral-7b-v0.3", "", "", false},
    {"deepseek-r1", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", true},
};

typedef struct bench {
    const ln_call_format *format;
    ln_tok *tok; /* in which no tag is a token */
    ln_vocabulary bytes;
    const char *names[16];
    size_t n_names;
    ln_arena arena;
    json_t *own; /* tools of cases without a list of them */
    const ln_call_tool *list;
    size_t n_list;
    const json_t *tools;
    json_t *found; /* calls: [[name, arguments]] */
    int n_calls, n_exact;
} bench;

static void find_calls(bench *b, const char *text, size_t bytes) {
    ln_calls t;
    ln_calls_piece piece = LN_CALLS_TEXT;
    ln_calls_open(&t, b->format, b->list, b->n_list, false);
    OK(ln_calls_push(&t, text, bytes, err));
    while (piece != LN_CALLS_NOTHING) {
        json_t *arguments;
        OK(ln_calls_next(&t, true, &piece, err));
        if (piece != LN_CALLS_CALL) continue;
        OK(ln_json_load(&arguments, "arguments", t.arguments.data, t.arguments.len, err));
        json_array_append_new(b->found, json_pack("[s, o]", t.name.data, arguments));
    }
    ln_calls_close(&t);
}

/* Whether the grammar of a required call matches a text. */
static bool fits(const bench *b, const char *text, size_t bytes) {
    ln_grammar *g;
    ln_matcher *m;
    ln_str form = {0};
    bool so_far;
    ln_call_grammar_put(&form, b->format, b->tok, b->tools, b->names, b->n_names, NULL, LN_CALLS_MUST, false);
    assert_false(form.failed);
    OK(ln_grammar_open(&g, form.data, form.len, err));
    OK(ln_matcher_open(&m, g, &b->bytes, err));
    OK(ln_matcher_push(m, text, bytes, &so_far, err));
    so_far = so_far && ln_matcher_complete(m);
    ln_matcher_close(&m);
    ln_grammar_close(&g);
    ln_str_free(&form);
    return so_far;
}

/* Finds the calls of a rendered conversation, answer by answer. */
static void read_text(bench *b, const family *f, const char *text) {
    if (!f->begin[0]) {
        find_calls(b, text, strlen(text));
        return;
    }
    for (const char *at = text; (at = strstr(at, f->begin));) {
        at += strlen(f->begin);
        const char *end = strstr(at, f->end);
        const size_t n = end ? (size_t)(end - at) : strlen(at), before = json_array_size(b->found);
        find_calls(b, at, n);
        if (json_array_size(b->found) == before || (*at != '<' && *at != '{')) continue; /* text before it */
        if (!fits(b, at, n)) fail_msg("%s: the form has no room for '%.*s'", f->name, (int)n, at);
        b->n_exact++;
    }
}

/* The calls of the messages, [[name, arguments]]; NULL: arguments are texts, which most templates quote. */
static json_t *expected_calls(const json_t *messages, bool texts) {
    json_t *all = json_array(), *m, *call;
    size_t i, k;
    json_array_foreach((json_t *)(uintptr_t)messages, i, m)
        json_array_foreach(json_object_get(m, "tool_calls"), k, call) {
        json_t *f = json_object_get(call, "function"), *arguments = json_object_get(f, "arguments");
        json_t *read = json_is_string(arguments) && texts ? json_loads(json_string_value(arguments), 0, NULL)
                                                          : json_incref(arguments);
        if (!json_is_object(read)) {
            json_decref(read);
            json_decref(all);
            return NULL;
        }
        json_array_append_new(all, json_pack("[O, o]", json_object_get(f, "name"), read));
    }
    return all;
}

static void one_case(bench *b, const family *f, const json_t *c) {
    const char *text = json_string_value(json_object_get(c, "expected"));
    json_t *want = expected_calls(json_object_get(c, "messages"), strstr(f->name, "deepseek"));
    b->tools = json_object_get(c, "tools");
    b->n_names = 0;
    for (size_t i = 0; i < json_array_size(b->tools); i++)
        b->names[b->n_names++] = json_string_value(ln_call_tool_name(json_array_get(b->tools, i)));
    OK(ln_call_tools(&b->arena, b->tools, b->names, b->n_names, &b->list, &b->n_list, err));
    if (text && b->n_names == 0 && strstr(f->name, "deepseek")) { /* a template that takes no tools */
        static const ln_call_tool add[] = {{"add", NULL, 0}, {"get_current_weather", NULL, 0}};
        static const char *const names[] = {"add", "get_current_weather"};
        b->list = add;
        b->n_list = LN_COUNT(add);
        b->tools = b->own;
        memcpy(b->names, names, sizeof names);
        b->n_names = LN_COUNT(names);
    }
    if (text && b->n_names > 0 && json_array_size(want) > 0) {
        b->found = json_array();
        read_text(b, f, text);
        if (!json_equal(b->found, want))
            fail_msg("%s: found %s", json_string_value(json_object_get(c, "id")), json_dumps(b->found, 0));
        b->n_calls += (int)json_array_size(want);
        json_decref(b->found);
    }
    json_decref(want);
}

static void calls_are_found_again(void **state) {
    (void)state;
    bench b = {0};
    OK(ln_tok_open(&b.tok, LN_ROOT "/models/tiny", err));
    b.bytes =
        (ln_vocabulary){.n_vocab = 1, .at = ln_zalloc(2, sizeof *b.bytes.at), .text = ln_strndup("a", 1)};
    b.bytes.at[1] = 1;
    OK(ln_vocabulary_sort(&b.bytes, err));
    b.own = json_loads("[{\"name\": \"add\", \"parameters\": {}},"
                       " {\"name\": \"get_current_weather\", \"parameters\": {}}]",
                       0, NULL);
    for (size_t i = 0; i < LN_COUNT(families); i++) {
        char path[400], *text;
        size_t bytes;
        (void)snprintf(path, sizeof path, SHARED "%s.jinja", families[i].name);
        if (access(path, R_OK) != 0) skip();
        OK(ln_read_file(path, 1 << 20, &text, &bytes, err));
        b.format = ln_call_format_in(text);
        assert_non_null(b.format);
        ln_free(text);
        (void)snprintf(path, sizeof path, SHARED "%s.cases.jsonl", families[i].name);
        OK(ln_read_file(path, 64 << 20, &text, &bytes, err));
        b.n_calls = b.n_exact = 0;
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
            json_t *c = NULL;
            if (ln_json_load(&c, "a case", line, strlen(line), NULL) == LN_OK) one_case(&b, &families[i], c);
            json_decref(c);
        }
        printf("%s: %d calls, %d answers that the form has room for\n", families[i].name, b.n_calls,
               b.n_exact);
        assert_true(b.n_calls > 0 && (b.n_exact > 0 || !families[i].exact));
        ln_free(text);
    }
    ln_arena_free(&b.arena);
    json_decref(b.own);
    ln_vocabulary_free(&b.bytes);
    ln_tok_close(&b.tok);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_are_found_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
