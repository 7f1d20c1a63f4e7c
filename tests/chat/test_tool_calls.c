/* Separation of calls of tools from the text: the format of real templates, the splitter with the text cut
 * at every place, and the engine with a model whose output is fixed by biases. */
/* run: quick */
#include "../common.h"
#include "../think_model.h"
#include "call_cases.h"

/* ---- the format of a template ---- */

static void check_form(const char *source, const char *name) {
    const ln_call_format *f = ln_call_format_in(source);
    if (strcmp(f ? f->name : "", name) != 0) fail_msg("'%.60s': %s", source, f ? f->name : "none");
}

static void forms_of_templates(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"<tool_call>\\n{\\\"name\\\": <function-name>, \\\"arguments\\\": <args-json-object>}", "hermes"},
        {"<|start_header_id|>{{ '\"parameters\": ' }}", "llama3"},
        {"{{ '[TOOL_CALLS][' }}", "mistral"},
        {"<tool_call>\n<function=f>\n<parameter=arguments>", "qwen3-coder"},
        {"<tool_call>f\n<arg_key>k</arg_key>{{ arguments }}", "glm"},
        {"[TOOL_CALLS]f[ARGS]{}", "mistral-args"},
        {"[TOOL_CALLS]f[CALL_ID]1[ARGS]{}", "mistral-id"},
        {"<function=f>{\"a\": 1}</function>", "function-tag"},
        {"<|tool_call>call:f{}<tool_call|>", "gemma4"},
        {"<start_function_call>call:f{}", "functiongemma"},
        {"<｜tool▁calls▁begin｜>```json", "deepseek"},
        {"<｜tool▁calls▁begin｜><｜tool▁sep｜>", "deepseek31"},
        {"<|tool_calls_section_begin|>", "kimi"},
        {"<minimax:tool_call>\n<invoke name=", "minimax"},
        {"<TOOLCALL>[{\"name\": 1}]</TOOLCALL>", "nemotron"},
        {"<|tool|>{{ tools }}<|/tool|>", "phi4"},
        {"<|tool_call|>[{", "granite"},
        {"[func_name1(params_name1=params_value1...), func_name2(params)]", "pythonic"},
        {"[{\"name\": \"tool_call_name\", \"arguments\": {", "xlam"},
        {"<|channel|>commentary to=functions.f", "harmony"},
        {"<tool_calls>\n{\"name\": 1, \"arguments\": 2}\n</tool_calls>", "minimax-text"},
        {"<start_of_turn>user", ""},
        {"<|start_header_id|>user", ""},
    };
    for (size_t i = 0; i < LN_COUNT(rows); i++) check_form(rows[i][0], rows[i][1]);
    assert_string_equal(ln_call_format_generic()->name, "generic");
}

/* The formats of the templates that the reference data has. */
static void forms_of_real_templates(void **state) {
    (void)state;
    static const struct {
        const char *file, *name;
    } rows[] = {{"qwen2.5", "hermes"},
                {"qwen3", "hermes"},
                {"qwq-32b", "hermes"},
                {"gemma-2", ""},
                {"gemma-3", ""},
                {"hermes-2-pro-tool-use", "hermes"},
                {"llama-3.1", "llama3"},
                {"llama-3.2", "llama3"},
                {"mistral-nemo", "mistral"},
                {"zephyr-tinyllama", ""},
                {"deepseek-r1", "deepseek"},
                {"mistral-7b-v0.3", "mistral"},
                {"smollm2", ""},
                {"gpt-oss", "harmony"},
                {"deepseek-r1-distill-qwen", "deepseek"}};
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        char path[400], *text;
        size_t bytes;
        (void)snprintf(path, sizeof path, LN_ROOT "/../shared/data/tok/templates/%s.jinja", rows[i].file);
        if (access(path, R_OK) != 0) skip();
        OK(ln_read_file(path, 1 << 20, &text, &bytes, err));
        const ln_call_format *f = ln_call_format_in(text);
        if (strcmp(f ? f->name : "", rows[i].name) != 0) fail_msg("%s: %s", path, f ? f->name : "none");
        ln_free(text);
    }
}

/* ---- the splitter ---- */

static const ln_call_format *form_of(const char *name) {
    for (size_t i = 0; ln_call_format_at(i); i++)
        if (strcmp(ln_call_format_at(i)->name, name) == 0) return ln_call_format_at(i);
    fail_msg("no form %s", name);
    return NULL;
}

/* Moves all pieces that are certain, each text to `content`, each call to `calls`. The pieces of a call are
 * the beginning of it. */
static void take_pieces(ln_calls *t, bool final, ln_str *calls, ln_str *content, ln_str *pieces) {
    for (ln_calls_piece piece = LN_CALLS_TEXT; piece != LN_CALLS_NOTHING;) {
        OK(ln_calls_next(t, final, &piece, err));
        if (piece == LN_CALLS_TEXT) {
            assert_true(t->text.len > 0);
            ln_str_add(content, t->text.data, t->text.len);
            pieces->len = 0; /* a call that has begun may turn out to be none */
        } else if (piece == LN_CALLS_ARGUMENTS) {
            assert_true(t->text.len > 0 && t->name.len > 0);
            ln_str_add(pieces, t->text.data, t->text.len);
        } else if (piece == LN_CALLS_CALL || piece == LN_CALLS_CUT) {
            assert_int_equal(pieces->len, t->told);
            assert_true(t->told <= t->arguments.len);
            assert_true(t->told == 0 || memcmp(pieces->data, t->arguments.data, t->told) == 0);
            ln_str_addf(calls, "%s%s%s\n", piece == LN_CALLS_CUT ? "?" : "", t->name.data,
                        t->arguments.data && t->arguments.len > 0 ? t->arguments.data : "");
            pieces->len = 0;
        }
    }
}

static bool same(const ln_str *s, const char *text) { return strcmp(s->data ? s->data : "", text) == 0; }

static void check_cut(const split *c, const size_t *cut, size_t n_cut) {
    ln_calls t;
    ln_str calls = {0}, content = {0}, pieces = {0};
    const size_t bytes = strlen(c->text);
    ln_calls_open(&t, form_of(c->form), tools, LN_COUNT(tools), false);
    for (size_t i = 0, from = 0; i <= n_cut; i++) {
        const size_t to = i < n_cut ? cut[i] : bytes;
        OK(ln_calls_push(&t, c->text + from, to - from, err));
        take_pieces(&t, false, &calls, &content, &pieces);
        from = to;
    }
    take_pieces(&t, true, &calls, &content, &pieces);
    if (!same(&calls, c->calls) || !same(&content, c->content) || t.n_malformed != c->malformed)
        fail_msg("%s '%s': calls '%s', content '%s', %zu malformed", c->form, c->text,
                 calls.data ? calls.data : "", content.data ? content.data : "", t.n_malformed);
    assert_int_equal(t.before + content.len, bytes);
    ln_calls_close(&t);
    ln_str_free(&calls);
    ln_str_free(&content);
    ln_str_free(&pieces);
}

static void every_cut_gives_the_same(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        size_t n = strlen(cases[i].text), all[400];
        assert_true(n < LN_COUNT(all));
        for (size_t k = 0; k < n; k++) all[k] = k + 1;
        check_cut(&cases[i], all, n);
        for (size_t a = 0; a <= n; a++)
            for (size_t b = a; b <= n; b++) check_cut(&cases[i], (const size_t[]){a, b}, 2);
    }
}

/* Text that is certain is not held back. */
static void nothing_is_held_longer_than_needed(void **state) {
    (void)state;
    ln_calls t;
    ln_calls_piece piece;
    static const struct {
        const char *push, *text;
    } steps[] = {{"Let ", "Let"}, {"me", " me"},    {" <", ""},
                 {"b", " <b"},    {"\n<tool_", ""}, {"x", "\n<tool_x"}};
    ln_calls_open(&t, form_of(H), tools, LN_COUNT(tools), false);
    for (size_t i = 0; i < LN_COUNT(steps); i++) {
        OK(ln_calls_push(&t, steps[i].push, strlen(steps[i].push), err));
        OK(ln_calls_next(&t, false, &piece, err));
        assert_int_equal(piece, steps[i].text[0] ? LN_CALLS_TEXT : LN_CALLS_NOTHING);
        assert_true(piece == LN_CALLS_NOTHING || same(&t.text, steps[i].text));
    }
    ln_calls_close(&t);
    ln_calls_open(&t, form_of(L), tools, LN_COUNT(tools), false);
    OK(ln_calls_push(&t, PLAIN, strlen(PLAIN), err)); /* the call is given with its last brace */
    OK(ln_calls_next(&t, false, &piece, err));
    assert_int_equal(piece, LN_CALLS_CALL);
    ln_calls_close(&t);
}

/* With `single` the text ends after the first call; without a format all of it passes through. */
static void ends_of_the_text(void **state) {
    (void)state;
    ln_calls t;
    ln_str calls = {0}, content = {0}, pieces = {0};
    static const char text[] = "Hm " CALL CALL " x";
    ln_calls_open(&t, form_of(H), tools, LN_COUNT(tools), true);
    for (int i = 0; i < 2; i++) {
        OK(ln_calls_push(&t, text, strlen(text), err));
        take_pieces(&t, i > 0, &calls, &content, &pieces);
        assert_true(t.ended);
    }
    assert_true(same(&calls, "f{\"a\": 1}\n") && same(&content, "Hm"));
    assert_int_equal(t.before + content.len, 2 * strlen(text));
    ln_calls_close(&t);
    content.len = 0;
    ln_calls_open(&t, NULL, NULL, 0, false);
    OK(ln_calls_push(&t, text, strlen(text), err));
    take_pieces(&t, false, &calls, &content, &pieces);
    assert_true(same(&content, text));
    ln_calls_close(&t);
    ln_str_free(&calls);
    ln_str_free(&content);
    ln_str_free(&pieces);
}

/* A text of tags that begin no call is read in linear time and passes through. */
static void many_tags(void **state) {
    (void)state;
    enum { TAGS = 50000 };
    ln_calls t;
    ln_str all = {0}, calls = {0}, content = {0}, pieces = {0};
    for (int i = 0; i < TAGS; i++) ln_str_adds(&all, "<tool_call>{\n");
    ln_calls_open(&t, form_of(H), tools, LN_COUNT(tools), false);
    for (size_t at = 0; at < all.len; at += 13) {
        OK(ln_calls_push(&t, all.data + at, 13, err));
        take_pieces(&t, false, &calls, &content, &pieces);
    }
    take_pieces(&t, true, &calls, &content, &pieces);
    assert_int_equal(content.len, all.len);
    assert_int_equal(memcmp(content.data, all.data, all.len), 0);
    ln_calls_close(&t);
    ln_str_free(&all);
    ln_str_free(&content);
    ln_str_free(&pieces);
}

/* ---- the engine ---- */

#define REQUEST                                                                                              \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"}],\"tools\":[{\"type\":\"function\",\"function\":{" \
    "\"name\":\"f\",\"parameters\":{}}},{\"name\":\"g\"}]}"
/* Templates that show tools, so that they are not described in the system text, and calls. */
#define SHOWN                                                                                            \
    "{{ messages[-1].content }}{% if tools %}{{ tools[0].function.name }}{% endif %}"                    \
    "{% for m in messages %}{{ m.tool_calls if m.tool_calls else '' }}{{ m.content if m.role == 'tool' " \
    "else '' }}{% endfor %}"
#define TEMPLATE SHOWN "{# <tool_call> arguments #}"

typedef struct fixture {
    char dir[64];
    ln_model *model;
    ln_engine *engine;
    ln_tokenizer *tok;
} fixture;

/* Turns the added token with this content into one that texts have. */
static void show_token(char *json, const char *content) {
    char *at = strstr(json, content);
    assert_non_null(at);
    at = strstr(at, "\"special\": true");
    assert_non_null(at);
    memcpy(at, "\"special\":false", 15);
}

/* A model that can write a call in two tokens: '{' of a plan begins one, '}' ends it. */
static void enter(fixture *r, const char *tmpl, bool listed) {
    char dir[] = "/tmp/linnet-calls-XXXXXX", path[100], *json;
    size_t bytes;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(r->dir, sizeof r->dir, "%s/m", dir);
    think_make(r->dir, tmpl, false);
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", r->dir);
    OK(ln_read_file(path, 1 << 20, &json, &bytes, err));
    show_token(json, "\"<s5>\"");
    if (listed) { /* the tag is a special token */
        json = think_rename(json, "\"<s4>\"", "\"[TOOL_CALLS]\"");
        json = think_rename(json, "\"<s5>\"",
                            "\"[{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 1}}]\"");
    } else {
        show_token(json, "\"<s4>\"");
        json = think_rename(json, "\"<s4>\"", "\"<tool_call>\\n{\\\"name\\\": \\\"f\\\", \"");
        json = think_rename(json, "\"<s5>\"", "\"\\\"arguments\\\": {\\\"a\\\": 1}}\\n</tool_call>\"");
    }
    think_write(r->dir, "tokenizer.json", json, strlen(json));
    ln_free(json);
    OK(ln_model_open(&r->model, r->dir, NULL, err));
    OK(ln_engine_open(&r->engine, r->model, NULL, err));
    OK(ln_tokenizer_open(&r->tok, r->dir, err));
}

static void leave(fixture *r) {
    ln_engine_close(&r->engine);
    ln_model_close(&r->model);
    ln_tokenizer_close(&r->tok);
    think_remove(r->dir);
    *strrchr(r->dir, '/') = '\0';
    assert_int_equal(rmdir(r->dir), 0);
}

typedef struct wanted {
    const char *plan, *text;
    size_t n_calls, n_ids;     /* n_ids 0: not compared */
    const char *stop, *events; /* events: t for a text, c for a call, of two in a row one is shown */
    const char *name;          /* that may be called; NULL: all */
    bool single, off;
    int64_t n_max;
    size_t malformed;
} wanted;

static ln_sampling sampling_of(const fixture *r, const wanted *w, ln_logit_bias *bias) {
    const size_t n = strlen(w->plan);
    for (size_t i = 0; i < n; i++) bias[i] = (ln_logit_bias){think_id(r->tok, w->plan[i]), think_bias(i)};
    return (ln_sampling){.size = sizeof(ln_sampling),
                         .top_p = 1,
                         .repeat_penalty = 1,
                         .presence_penalty = 100,
                         .frequency_penalty = 100,
                         .bias = bias,
                         .n_bias = n,
                         .stop = &w->stop,
                         .n_stop = w->stop ? 1 : 0,
                         .n_max = w->n_max ? w->n_max : 60,
                         .tool_choice = w->off ? LN_TOOLS_OFF : LN_TOOLS_AUTO,
                         .tool_names = &w->name,
                         .n_tool_names = w->name ? 1 : 0,
                         .single_tool_call = w->single};
}

static const ln_prompt prompt = {
    .size = sizeof(ln_prompt), .request = REQUEST, .request_bytes = sizeof REQUEST - 1};

static void check(fixture *r, const wanted *w) {
    ln_logit_bias bias[40];
    ln_result out = {.size = sizeof out};
    ln_request *req;
    ln_event ev = {.size = sizeof ev};
    ln_str text = {0}, events = {0};
    const ln_sampling how = sampling_of(r, w, bias);
    ln_request_options o = ln_request_options_default();
    size_t n_calls = 0;
    o.sampling = &how;
    OK(ln_request_open(&req, r->engine, &prompt, &o, err));
    do {
        OK(ln_request_next(req, -1, &ev, err));
        const char kind = ev.kind == LN_EVENT_TEXT ? 't' : ev.kind == LN_EVENT_TOOL_CALL ? 'c' : 0;
        if (kind == 't') ln_str_add(&text, ev.text, ev.bytes);
        if (kind && (events.len == 0 || events.data[events.len - 1] != kind)) ln_str_add(&events, &kind, 1);
        if (kind != 'c') continue;
        assert_string_equal(ev.name, "f");
        assert_int_equal(ev.bytes, 8);
        assert_memory_equal(ev.text, "{\"a\": 1}", 8);
        n_calls++;
    } while (ev.kind != LN_EVENT_FINISH);
    OK(ln_request_result(req, &out, err));
    ln_request_close(&req);
    if (strcmp(out.text, w->text) != 0 || !same(&text, w->text) || n_calls != w->n_calls ||
        out.n_tool_calls != w->n_calls || !same(&events, w->events))
        fail_msg("'%s': '%s', %zu calls, events %s", w->plan, out.text, out.n_tool_calls, events.data);
    for (size_t i = 0; i < out.n_tool_calls; i++) {
        assert_string_equal(out.tool_calls[i].name, "f");
        assert_string_equal(out.tool_calls[i].arguments, "{\"a\": 1}");
        assert_int_equal(out.tool_calls[i].arguments_bytes, 8);
    }
    assert_int_equal(out.finish, w->n_max ? LN_FINISH_LENGTH : LN_FINISH_STOP);
    if (w->n_ids && out.n_ids != w->n_ids) fail_msg("%s: %zu ids", w->plan, out.n_ids);
    assert_int_equal(out.n_malformed_calls, w->malformed);
    assert_null(out.cut_tool_call);
    ln_result_free(&out);
    assert_null(out.tool_calls);
    ln_str_free(&text);
    ln_str_free(&events);
}

static void calls_of_a_model(void **state) {
    (void)state;
    fixture r;
    enter(&r, TEMPLATE, false);
    static const wanted wishes[] = {
        {.plan = "a{}.", .text = "a", .n_calls = 1, .n_ids = 3, .events = "tc"},
        {.plan = "{}bc.", .text = "bc", .n_calls = 1, .n_ids = 4, .events = "ct"},
        {.plan = "ab.", .text = "ab", .events = "t"},
        {.plan = "a{}bcd.", .text = "ab", .n_calls = 1, .n_ids = 4, .stop = "c", .events = "tct"},
        {.plan = "a{}bc.", .text = "abc", .n_calls = 1, .stop = "ab", .events = "tct"}, /* none across a call
                                                                                         */
        {.plan = "x{}abc.", .text = "xa", .n_calls = 1, .n_ids = 4, .stop = "bc", .events = "tct"},
        {.plan = "a{}bc.", .text = "a", .n_calls = 1, .n_ids = 3, .events = "tc", .single = true},
        {.plan = "a{}bc.", .text = "a", .n_calls = 1, .n_ids = 3, .events = "tc", .n_max = 3},
        /* what has begun becomes a call: no other token may follow it */
        {.plan = "a{b}.", .text = "ab", .n_calls = 1, .n_ids = 4, .events = "tct"},
        {.plan = "a{bc.",
         .text = "a<tool_call>\n{\"name\": \"f\", ",
         .events = "t",
         .n_max = 2,
         .malformed = 1},
        {.plan = "{}.",
         .text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
         .events = "t",
         .off = true},
        /* no call begins with the name of another tool */
        {.plan = "{}.", .text = "\"arguments\": {\"a\": 1}}\n</tool_call>", .events = "t", .name = "g"},
    };
    for (size_t i = 0; i < LN_COUNT(wishes); i++) check(&r, &wishes[i]);
    leave(&r);
}

/* The tag is a special token, which texts leave out unless calls are split off. */
static void a_tag_that_is_special(void **state) {
    (void)state;
    fixture r;
    static const wanted wishes[] = {
        {.plan = "a{}b.", .text = "ab", .n_calls = 1, .events = "tct"},
        {.plan = "a{bc.", .text = "a[TOOL_CALLS]", .events = "t", .n_max = 2, .malformed = 1},
        {.plan = "a{bc.", .text = "abc", .events = "t", .off = true},
        {.plan = "{}bcd.", .text = "b", .n_calls = 1, .n_ids = 3, .stop = "c", .events = "ct"},
    };
    enter(&r, SHOWN "{# [TOOL_CALLS] #}", true);
    for (size_t i = 0; i < LN_COUNT(wishes); i++) check(&r, &wishes[i]);
    leave(&r);
}

/* What cannot be: a prompt without tools, a name that no tool has. */
static void refusals(void **state) {
    (void)state;
    fixture r;
    ln_logit_bias bias[4];
    ln_result out = {.size = sizeof out};
    ln_prompt p = prompt;
    const wanted plain = {.plan = "a."}, other = {.plan = "a.", .name = "h"};
    ln_sampling how;
    enter(&r, TEMPLATE, false);
    how = sampling_of(&r, &other, bias);
    FAILS(LN_EUSAGE, "found 'h'", ln_generate(r.engine, &p, &how, NULL, NULL, &out, err));
    how = sampling_of(&r, &plain, bias);
    p.request = "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"}]}";
    p.request_bytes = strlen(p.request);
    FAILS(LN_EUSAGE, "needs tools", ln_generate(r.engine, &p, &how, NULL, NULL, &out, err));
    p = (ln_prompt){.size = sizeof p, .text = "Q", .text_bytes = 1};
    FAILS(LN_EUSAGE, "needs tools", ln_generate(r.engine, &p, &how, NULL, NULL, &out, err));
    how.tool_choice = (ln_tool_choice)9;
    FAILS(LN_EUSAGE, "tool_choice", ln_generate(r.engine, &p, &how, NULL, NULL, &out, err));
    leave(&r);
}

/* ---- calls that are required ---- */

#define WEATHER                                                                                              \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"}],\"tools\":[{\"type\":\"function\",\"function\":{" \
    "\"name\":\"weather\",\"parameters\":{\"properties\":{\"city\":{\"enum\":[\"Paris\",\"Rome\"]},"         \
    "\"days\":{"                                                                                             \
    "\"enum\":[1,2]}},\"required\":[\"city\",\"days\"],\"additionalProperties\":false}}},{\"type\":"         \
    "\"function\","                                                                                          \
    "\"function\":{\"name\":\"say "                                                                          \
    "\\\"x\\\"\",\"parameters\":{\"type\":\"object\",\"additionalProperties\":false}}}]}"

static void check_arguments(const ln_tool_call *c) {
    json_t *a = NULL;
    OK(ln_json_load(&a, "arguments", c->arguments, c->arguments_bytes, err));
    if (strcmp(c->name, "weather") == 0) {
        const char *city = json_string_value(json_object_get(a, "city"));
        const int64_t days = json_integer_value(json_object_get(a, "days"));
        assert_true(city && (strcmp(city, "Paris") == 0 || strcmp(city, "Rome") == 0));
        assert_true(days == 1 || days == 2);
        assert_int_equal(json_object_size(a), 2);
    } else {
        assert_string_equal(c->name, "say \"x\"");
        assert_true(json_is_object(a) && json_object_size(a) == 0);
    }
    json_decref(a);
}

/* The answers of seeds; returns how many of them had more than one call. */
static int check_required(ln_engine *engine, const char *name, bool single) {
    ln_prompt p = prompt;
    ln_sampling how = {.size = sizeof how,
                       .temperature = 1,
                       .top_p = 1,
                       .repeat_penalty = 1,
                       .has_seed = true,
                       .n_max = 300,
                       .tool_choice = LN_TOOLS_REQUIRED,
                       .tool_names = &name,
                       .n_tool_names = name ? 1 : 0,
                       .single_tool_call = single};
    int several = 0;
    p.request = WEATHER;
    p.request_bytes = sizeof WEATHER - 1;
    for (how.seed = 1; how.seed <= 6; how.seed++) {
        ln_result out = {.size = sizeof out};
        OK(ln_generate(engine, &p, &how, NULL, NULL, &out, err));
        if (out.finish == LN_FINISH_STOP && (out.text_bytes > 0 || out.n_tool_calls == 0))
            fail_msg("seed %d: %zu calls and '%s'", (int)how.seed, out.n_tool_calls, out.text);
        assert_true(out.n_tool_calls > 0); /* of many calls the last may be cut */
        for (size_t i = 0; i < out.n_tool_calls; i++) {
            check_arguments(&out.tool_calls[i]);
            assert_true(!name || strcmp(out.tool_calls[i].name, name) == 0);
        }
        assert_true(!single || (out.n_tool_calls == 1 && out.finish == LN_FINISH_STOP));
        several += out.n_tool_calls > 1;
        ln_result_free(&out);
    }
    return several;
}

static void required_calls(void **state) {
    (void)state;
    static const struct {
        const char *tag;
        bool several;
    } forms[] = {{"<tool_call> arguments", true},
                 {"<|start_header_id|> \"parameters\": ", false},
                 {"[TOOL_CALLS]", true}};
    for (size_t i = 0; i < LN_COUNT(forms); i++) {
        char path[] = "/tmp/linnet-required-XXXXXX.jinja";
        ln_options o = ln_options_default();
        ln_model *model;
        ln_engine *engine;
        const int fd = mkstemps(path, 6);
        assert_true(fd >= 0);
        (void)dprintf(fd, "{{ messages[-1].content }}{# %s #}", forms[i].tag);
        (void)close(fd);
        o.chat_template = path;
        OK(ln_model_open(&model, LN_ROOT "/models/tiny", &o, err));
        OK(ln_engine_open(&engine, model, &o, err));
        assert_int_equal(check_required(engine, NULL, true), 0);
        assert_int_equal(check_required(engine, "weather", true), 0);
        assert_true((check_required(engine, NULL, false) > 0) == forms[i].several);
        ln_engine_close(&engine);
        ln_model_close(&model);
        assert_int_equal(unlink(path), 0);
    }
}

/* An answer with a grammar of its own may also be a call; one that must be a call has no other grammar. */
static void calls_beside_a_form(void **state) {
    (void)state;
    static const struct {
        wanted how;
        const char *text;
        size_t n_calls;
    } rows[] = {{{.plan = "{}."}, "", 1}, {{.plan = "xaby."}, "ab", 0}};
    fixture r;
    ln_logit_bias bias[8];
    ln_result out = {.size = sizeof out};
    ln_sampling how;
    enter(&r, TEMPLATE, false);
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        how = sampling_of(&r, &rows[i].how, bias);
        how.single_tool_call = true;
        how.grammar = "{\"text\":\"ab\"}";
        how.grammar_bytes = strlen(how.grammar);
        OK(ln_generate(r.engine, &prompt, &how, NULL, NULL, &out, err));
        assert_string_equal(out.text, rows[i].text);
        assert_int_equal(out.n_tool_calls, rows[i].n_calls);
        assert_int_equal(out.finish, LN_FINISH_STOP);
        ln_result_free(&out);
    }
    how.tool_choice = LN_TOOLS_REQUIRED;
    FAILS(LN_EUSAGE, "exclude each other", ln_generate(r.engine, &prompt, &how, NULL, NULL, &out, err));
    leave(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(forms_of_templates),
                                       cmocka_unit_test(forms_of_real_templates),
                                       cmocka_unit_test(every_cut_gives_the_same),
                                       cmocka_unit_test(nothing_is_held_longer_than_needed),
                                       cmocka_unit_test(ends_of_the_text),
                                       cmocka_unit_test(many_tags),
                                       cmocka_unit_test(calls_of_a_model),
                                       cmocka_unit_test(a_tag_that_is_special),
                                       cmocka_unit_test(required_calls),
                                       cmocka_unit_test(calls_beside_a_form),

                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
