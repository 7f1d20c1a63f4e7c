/* Answers that are messages with headers (gpt-oss): the splitter with the text cut at every pair of places,
 * the calls that the real template renders, answers chosen at random among the tokens that the grammar
 * allows, and the answers of a model whose vocabulary has the marks. */
/* run: quick asan */
#include "../common.h"
#include "../think_model.h"

#include "base/json_write.h"
#include "chat/tool_text.h"
#include "engine/constraint.h"

#define SHARED LN_ROOT "/../shared/data/tok/templates/"

/* ---- texts ---- */

#define S   "\xff<|start|>assistant"
#define C   "\xff<|channel|>"
#define M   "\xff<|message|>"
#define E   "\xff<|end|>"
#define J   " \xff<|constrain|>json"
#define ANA C "analysis" M

static const ln_reasoning_delims *delims_of_channels(void) {
    static const ln_reasoning_delims d = {"<|channel|>analysis<|message|>", "<|end|>",
                                          "<|end|><|start|>assistant", "<|channel|>final<|message|>", true};
    return &d;
}

static const ln_call_format *harmony(void) {
    for (size_t i = 0; ln_call_format_at(i); i++)
        if (strcmp(ln_call_format_at(i)->name, "harmony") == 0) return ln_call_format_at(i);
    fail_msg("no form harmony");
    return NULL;
}

static const ln_call_tool tools[] = {{"f", NULL, 0}, {"get.weather", NULL, 0}};

typedef struct row {
    const char *header, *text, *reasoning, *content, *calls;
    size_t malformed;
} row;

static const row rows[] = {
    {S, ANA "Why\nso." E S C "final" M "An\n swer\n", "Why\nso.", "An\n swer\n", "", 0},
    {S, C "final" M "x", "", "x", "", 0},
    {S, C "final" J M "{}", "", "{}", "", 0},
    /* the recipient in the channel's place, and in the author's */
    {S, ANA "t" E S C "commentary to=functions.f" J M "{\"a\": \"}\"}\xff<|call|>", "t", "",
     "f{\"a\": \"}\"}\n", 0},
    {S, " to=functions.f" C "commentary json" M "{\"a\": 1}", "", "", "f{\"a\": 1}\n", 0},
    {S, " to=functions.f" C "commentary" M "{}\xff<|call|>", "", "", "f{}\n", 0},
    {S, ANA "t" E S " to=get.weather" C "analysis code" M " {} \xff<|call|>", "t", "", "get.weather{}\n", 0},
    {S, C "commentary to=functions.get.weather" M "{\"\xc3\xa9\":\"\xe2\x82\xac\"}", "", "",
     "get.weather{\"\xc3\xa9\":\"\xe2\x82\xac\"}\n", 0},
    {S, C "commentary to=functions.f" M "{\"a\": 1, \"a\": 2}", "", "", "f{\"a\": 1, \"a\": 2}\n", 0},
    /* a text before the call, several messages of a kind */
    {S, ANA "a" E S C "commentary" M "Let me look." E S C "commentary to=functions.f" J M "{}", "a",
     "Let me look.", "f{}\n", 0},
    {S, ANA "a" E S ANA "b" E S C "commentary" M "c" E S C "final" M "d", "a\n\nb", "c\n\nd", "", 0},
    {S, C "commentary to=functions.f" M "{}\xff<|call|>" S C "commentary to=functions.f" M "{\"b\":2}", "",
     "", "f{}\nf{\"b\":2}\n", 0},
    /* what is no call stays text, and is counted */
    {S, C "commentary to=functions.g" J M "{\"a\": 1}\xff<|call|>" S C "final" M "x", "", "g {\"a\": 1}\n\nx",
     "", 1},
    {S, C "commentary to=python code" M "print(1)\xff<|call|>", "", "python print(1)", "", 1},
    {S, C "commentary to=functions.f" M "{\"a\": 1" E S C "final" M "x", "", "f {\"a\": 1\n\nx", "", 1},
    {S, C "commentary to=functions.f" M "{\"a\": \"x" E S C "commentary to=functions.f" M "{}", "",
     "f {\"a\": \"x", "f{}\n", 1},
    /* what the end cuts */
    {S, C "commentary to=functions.f" J M "{\"a\": ", "", "", "?f{\"a\": \n", 0},
    {S, C "commentary to=functions.f" J, "", "", "", 0},
    {S, ANA "wh", "wh", "", "", 0},
    {S, ANA "w\xc3", "w\xc3", "", "", 0},
    {S, C "final" M "a\xff<|en", "", "a", "", 0},
    /* marks that are spelled are text, and a call of a final message is none */
    {S, C "final" M "<|end|> <|channel|>commentary to=functions.f<|message|>{}", "",
     "<|end|> <|channel|>commentary to=functions.f<|message|>{}", "", 0},
    {S, ANA "<|end|><|start|>assistant<|channel|>final<|message|>no",
     "<|end|><|start|>assistant<|channel|>final<|message|>no", "", "", 0},
    /* models and prompts that write no header, or only a part of one */
    {S, "Hello <|you|>", "", "Hello <|you|>", "", 0},
    {"", "Hi", "", "Hi", "", 0},
    {S, " and to=functions.f", "", " and to=functions.f", "", 0},
    {S, M "text", "", "text", "", 0},
    {S C "final" M "Be", "gin" E, "", "gin", "", 0},
    {S ANA "Be", "gin" E S C "final" M "x", "gin", "x", "", 0},
    {S C "commentary", " to=functions.f" M "{}", "", "", "f{}\n", 0},
    {S,
     ANA "a" E "\xff<|start|>" C "final" M "x"
         "\xff<|return|>",
     "a", "x", "", 0},
};

typedef struct parts {
    ln_str reasoning, content, calls;
    size_t told; /* bytes of arguments in pieces */
} parts;

static void free_parts(parts *p) {
    ln_str_free(&p->reasoning);
    ln_str_free(&p->content);
    ln_str_free(&p->calls);
}

static void take(parts *p, ln_reasoning *r, ln_calls *t, bool final) {
    if (r->reasoning.len > 0) ln_str_add(&p->reasoning, r->reasoning.data, r->reasoning.len);
    OK(ln_calls_push(t, r->answer.data, r->answer.len, err));
    for (ln_calls_piece piece = LN_CALLS_TEXT; piece != LN_CALLS_NOTHING;) {
        OK(ln_calls_next(t, final, &piece, err));
        if (piece == LN_CALLS_TEXT) {
            assert_true(t->text.len > 0);
            ln_str_add(&p->content, t->text.data, t->text.len);
        }
        if (piece == LN_CALLS_ARGUMENTS) p->told += t->text.len;
        if (piece == LN_CALLS_CALL || piece == LN_CALLS_CUT)
            ln_str_addf(&p->calls, "%s%s%s\n", piece == LN_CALLS_CUT ? "?" : "", t->name.data,
                        t->arguments.data ? t->arguments.data : "");
    }
}

static bool same(const ln_str *s, const char *text) { return strcmp(s->data ? s->data : "", text) == 0; }

static void check_cut(const row *c, const size_t *cut, size_t n_cut) {
    ln_reasoning r;
    ln_calls t;
    parts p = {0};
    const size_t bytes = strlen(c->text);
    OK(ln_reasoning_open_channels(&r, delims_of_channels(), c->header, strlen(c->header), true, err));
    ln_calls_open(&t, harmony(), tools, LN_COUNT(tools), false);
    for (size_t i = 0, from = 0; i <= n_cut; i++) {
        const size_t to = i < n_cut ? cut[i] : bytes;
        OK(ln_reasoning_push(&r, c->text + from, to - from, err));
        take(&p, &r, &t, false);
        from = to;
    }
    OK(ln_reasoning_flush(&r, err));
    take(&p, &r, &t, true);
    if (!same(&p.reasoning, c->reasoning) || !same(&p.content, c->content) || !same(&p.calls, c->calls) ||
        t.n_malformed != c->malformed)
        fail_msg("'%s': reasoning '%s', content '%s', calls '%s', %zu malformed", c->text,
                 p.reasoning.data ? p.reasoning.data : "", p.content.data ? p.content.data : "",
                 p.calls.data ? p.calls.data : "", t.n_malformed);
    assert_int_equal(r.before + t.before + p.content.len, bytes); /* no byte is lost */
    ln_reasoning_close(&r);
    ln_calls_close(&t);
    free_parts(&p);
}

static void every_cut_gives_the_same(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        size_t n = strlen(rows[i].text), all[400];
        assert_true(n < LN_COUNT(all));
        for (size_t k = 0; k < n; k++) all[k] = k + 1;
        check_cut(&rows[i], all, n);
        for (size_t a = 0; a <= n; a++)
            for (size_t b = a; b <= n; b++) check_cut(&rows[i], (const size_t[]){a, b}, 2);
    }
}

/* Text and arguments come as soon as they are certain. */
static void nothing_is_held_longer_than_needed(void **state) {
    (void)state;
    ln_reasoning r;
    ln_calls t;
    parts p = {0};
    static const struct {
        const char *push, *reasoning, *content;
        size_t told;
    } steps[] = {{ANA "wh", "wh", "", 0},
                 {"y\xff<|e", "why", "", 0},
                 {"nd|>" S C "commentary" M "Now", "why", "Now", 0},
                 {" then" E S C "commentary to=functions.f" M "{\"a", "why", "Now then", 3},
                 {"\": ", "why", "Now then", 6}};
    OK(ln_reasoning_open_channels(&r, delims_of_channels(), S, sizeof S - 1, true, err));
    ln_calls_open(&t, harmony(), tools, LN_COUNT(tools), false);
    for (size_t i = 0; i < LN_COUNT(steps); i++) {
        OK(ln_reasoning_push(&r, steps[i].push, strlen(steps[i].push), err));
        take(&p, &r, &t, false);
        assert_true(same(&p.reasoning, steps[i].reasoning) && same(&p.content, steps[i].content));
        assert_int_equal(p.told, steps[i].told);
    }
    ln_reasoning_close(&r);
    ln_calls_close(&t);
    free_parts(&p);
}

/* ---- the real template ---- */

/* Appends a rendered text with the byte of a mark before each special token. */
static void put_marked(ln_str *out, const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (bytes - i > 1 && text[i] == '<' && text[i + 1] == '|') ln_str_adds(out, "\xff");
        ln_str_add(out, text + i, 1);
    }
}

/* Reads the answers of a rendered conversation; returns how many calls it has. */
static int read_rendered(const json_t *c, const ln_call_tool *list, size_t n) {
    const char *text = json_string_value(json_object_get(c, "expected"));
    const json_t *messages = json_object_get(c, "messages");
    static const char begin[] = "<|start|>assistant";
    ln_str want = {0}, found = {0};
    int calls = 0;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *call = json_array_get(json_object_get(json_array_get(messages, i), "tool_calls"), 0);
        const json_t *f = json_object_get(call, "function");
        if (!json_is_object(json_object_get(f, "arguments"))) continue;
        ln_str_addf(&want, "%s", json_string_value(json_object_get(f, "name")));
        ln_str_json_value(&want, json_object_get(f, "arguments"));
        calls++;
    }
    for (const char *at = text; at && (at = strstr(at, begin));) {
        at += sizeof begin - 1;
        const char *end = strstr(at, "<|start|>");
        ln_reasoning r;
        ln_calls t;
        parts p = {0};
        ln_str marked = {0};
        put_marked(&marked, at, end ? (size_t)(end - at) : strlen(at));
        OK(ln_reasoning_open_channels(&r, delims_of_channels(), S, sizeof S - 1, true, err));
        ln_calls_open(&t, harmony(), list, n, true);
        OK(ln_reasoning_push(&r, marked.data, marked.len, err));
        take(&p, &r, &t, true);
        if (p.calls.len > 0) {
            json_t *a = json_loads(t.arguments.data, 0, NULL);
            assert_non_null(a);
            ln_str_adds(&found, t.name.data);
            ln_str_json_value(&found, a);
            json_decref(a);
        }
        ln_reasoning_close(&r);
        ln_calls_close(&t);
        free_parts(&p);
        ln_str_free(&marked);
    }
    assert_string_equal(found.data ? found.data : "", want.data ? want.data : "");
    ln_str_free(&want);
    ln_str_free(&found);
    return calls;
}

static void calls_of_the_real_template(void **state) {
    (void)state;
    char *text;
    size_t bytes;
    int n_calls = 0;
    if (access(SHARED "gpt-oss.cases.jsonl", R_OK) != 0) skip();
    OK(ln_read_file(SHARED "gpt-oss.cases.jsonl", 64 << 20, &text, &bytes, err));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *c = NULL;
        ln_arena arena = {0};
        const ln_call_tool *list;
        const char *names[16];
        size_t n = 0, n_names = 0;
        if (ln_json_load(&c, "a case", line, strlen(line), NULL) != LN_OK) continue;
        const json_t *all = json_object_get(c, "tools");
        for (size_t i = 0; i < json_array_size(all); i++)
            names[n_names++] = json_string_value(ln_call_tool_name(json_array_get(all, i)));
        OK(ln_call_tools(&arena, all, names, n_names, &list, &n, err));
        if (n > 0 && json_object_get(c, "expected")) n_calls += read_rendered(c, list, n);
        ln_arena_free(&arena);
        json_decref(c);
    }
    printf("%d calls of the template\n", n_calls);
    assert_true(n_calls > 0);
    ln_free(text);
}

/* What the template requires is added: a description, and one text next to a call. */
static void the_template_takes_every_conversation(void **state) {
    (void)state;
    static const char talk[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":\"Look.\","
        "\"reasoning_content\":\"Why.\",\"thinking\":\"Why.\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
        "\"arguments\":{\"a\":1}}}]},{\"role\":\"tool\",\"content\":\"R\"}],\"tools\":[{\"type\":"
        "\"function\","
        "\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"
        "\"integer\"}}}}}],\"add_generation_prompt\":true}";
    ln_model_template *t;
    ln_tool_support s;
    ln_rendered r;
    ln_str out = {0};
    if (access(SHARED "gpt-oss.jinja", R_OK) != 0) skip();
    OK(ln_model_template_open_file(&t, SHARED "gpt-oss.jinja", err));
    OK(ln_tool_support_find(&s, t, err));
    assert_string_equal(s.format->name, "harmony");
    assert_true(s.shows_tools && s.shows_calls && !s.several && s.one_text && s.wants_about);
    OK(ln_tool_text(&s, talk, strlen(talk), &out, err));
    OK(ln_model_template_request(t, out.data, out.len, &r, err));
    assert_non_null(strstr(r.text.text,
                           "<|channel|>analysis<|message|>Why.\n\nLook.<|end|><|start|>assistant "
                           "to=functions.f<|channel|>commentary json<|message|>{\"a\": 1}<|call|>"
                           "<|start|>functions.f to=assistant"));
    ln_rendered_free(&r);
    ln_str_free(&out);
    ln_model_template_close(&t);
}

/* ---- a model ---- */

#define TEMPLATE                                                                                            \
    "{% if tools %}{{ tools[0].function.name }}{% endif %}{% for m in messages %}<|start|>{{ m.role }}"     \
    "{% if m.tool_calls %}{% set c = m.tool_calls[0].function %}{{ ' to=functions.' + c.name }}<|channel|>" \
    "commentary json<|message|>{{ c.arguments|tojson }}<|call|>{% else %}<|message|>{{ m.content }}<|end|>" \
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant{{ begin }}{% endif %}"         \
    "{# <|channel|>analysis<|message|> #}"
#define TOOLS                                                                                             \
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"\",\"parameters\":{\"type\":" \
    "\"object\",\"properties\":{\"a\":{\"enum\":[1,2]}},\"required\":[\"a\"]}}},{\"type\":\"function\","  \
    "\"function\":{\"name\":\"g\",\"description\":\"\",\"parameters\":{\"type\":\"object\"}}}]"
#define REQUEST "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"}],\"tools\":" TOOLS "}"

typedef struct fixture {
    char dir[64];
    ln_package *package;
} fixture;

static const char *const renames[][2] = {
    {"<bos>", "<|start|>"},  {"<eos>", "<|return|>"}, {"<end>", "<|end|>"},     {"<pad>", "<|call|>"},
    {"<s4>", "<|channel|>"}, {"<s5>", "<|message|>"}, {"<s6>", "<|constrain|>"}};

static void make_model(fixture *r) {
    char dir[] = "/tmp/linnet-channels-XXXXXX", path[100], *json;
    size_t bytes;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(r->dir, sizeof r->dir, "%s/m", dir);
    think_make(r->dir, TEMPLATE, false);
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", r->dir);
    OK(ln_read_file(path, 1 << 20, &json, &bytes, err));
    for (size_t i = 0; i < LN_COUNT(renames); i++) {
        char from[40], to[40];
        (void)snprintf(from, sizeof from, "\"%s\"", renames[i][0]);
        (void)snprintf(to, sizeof to, "\"%s\"", renames[i][1]);
        json = think_rename(json, from, to);
    }
    think_write(r->dir, "tokenizer.json", json, strlen(json));
    ln_free(json);
}

static void remove_model(fixture *r) {
    think_remove(r->dir);
    *strrchr(r->dir, '/') = '\0';
    assert_int_equal(rmdir(r->dir), 0);
}

static void open_fixture(fixture *r) {
    const ln_options o = ln_options_default();
    make_model(r);
    OK(ln_package_open(&r->package, r->dir, &o, err));
    assert_string_equal(r->package->tools.format->name, "harmony");
    assert_true(r->package->delims && r->package->delims->channels);
}

static void close_fixture(fixture *r) {
    ln_package_close(&r->package);
    remove_model(r);
}

/* The answer to a prompt, as ids that the model would generate. */
static void check_ids(const fixture *r, const char *args, const char *generated, const char *reasoning,
                      const char *content, const char *calls) {
    const ln_tok *tok = r->package->tok;
    const ln_prompt p = {.size = sizeof p,
                         .request = REQUEST,
                         .request_bytes = sizeof REQUEST - 1,
                         .template_args = args,
                         .template_args_bytes = args ? strlen(args) : 0};
    const ln_sampling how = {.size = sizeof how, .tool_choice = LN_TOOLS_AUTO, .single_tool_call = true};
    const ln_answer_tools list = {tools, LN_COUNT(tools)};
    ln_ids prompt = {0}, ids = {0};
    ln_answer a;
    ln_str all[3] = {{0}};
    OK(ln_package_encode_prompt(r->package, &p, &prompt, err));
    OK(ln_tok_encode(tok, generated, strlen(generated), false, &ids, err));
    OK(ln_answer_open(&a, r->package, &how, &list, true, prompt.data, prompt.n, err));
    for (size_t i = 0; i <= ids.n && !a.calls.ended; i++) {
        if (i < ids.n) OK(ln_answer_push(&a, ids.data[i], err));
        else OK(ln_answer_flush(&a, err));
        if (a.reasoning.len > 0) ln_str_add(&all[0], a.reasoning.data, a.reasoning.len);
        if (a.text.len > 0) ln_str_add(&all[1], a.text.data, a.text.len);
        for (size_t k = 0; k < a.n_calls; k++)
            if (a.new_calls[k].kind == LN_EVENT_TOOL_CALL) {
                const char *name = a.found.data + a.new_calls[k].name;
                ln_str_addf(&all[2], "%s%s", name, name + strlen(name) + 1);
            }
    }
    const char *const want[] = {reasoning, content, calls};
    for (size_t i = 0; i < 3; i++)
        if (!same(&all[i], want[i])) fail_msg("'%s': %zu is '%s'", generated, i, all[i].data);
    for (size_t i = 0; i < 3; i++) ln_str_free(&all[i]);
    ln_answer_close(&a);
    ln_ids_free(&prompt);
    ln_ids_free(&ids);
}

static void answers_of_a_model(void **state) {
    (void)state;
    fixture r;
    open_fixture(&r);
    check_ids(&r, NULL,
              "<|channel|>analysis<|message|>W\xc3\xa9<|end|><|start|>assistant<|channel|>final"
              "<|message|>A <|you|>",
              "W\xc3\xa9", "A <|you|>", "");
    check_ids(&r, NULL, " to=functions.f<|channel|>commentary json<|message|>{\"a\": 1} and more", "", "",
              "f{\"a\": 1}"); /* the answer ends with its one call */
    check_ids(&r, NULL, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 2}", "", "",
              "f{\"a\": 2}");
    check_ids(&r, "{\"begin\": \"<|channel|>final<|message|>Be\"}", "gin", "", "gin", "");
    close_fixture(&r);
}

/* ---- held answers ---- */

typedef struct bench {
    fixture r;
    ln_vocabulary v;
    json_t *tools;
    const ln_call_tool *list;
    size_t n_list;
    ln_arena arena;
    uint64_t seed;
    int n_calls, n_cut;
} bench;

/* One of the allowed tokens; special tokens and what ends something more often. */
static int32_t choose(bench *b, const uint64_t *mask) {
    int32_t chosen = -1;
    const bool ends = test_random(&b->seed) % 3 == 0;
    for (int attempt = 0; attempt < 2 && chosen < 0; attempt++) {
        uint32_t n = 0;
        for (int32_t id = 0; id < b->v.n_vocab; id++) {
            const char *text = b->v.text + b->v.at[id];
            if (!(mask[id / 64] >> (id % 64) & 1)) continue;
            if (ends && attempt == 0 && !memchr("\"}\xff", text[0], 3)) continue;
            if (test_random(&b->seed) % ++n == 0) chosen = id;
        }
    }
    return chosen;
}

static void check_call(bench *b, const ln_calls *t) {
    json_t *a = json_loads(t->arguments.data, 0, NULL);
    const json_t *v = json_object_get(a, "a");
    assert_true(json_is_object(a));
    if (strcmp(t->name.data, "f") == 0)
        assert_true(json_object_size(a) == 1 && (json_integer_value(v) == 1 || json_integer_value(v) == 2));
    else assert_true(strcmp(t->name.data, "g") == 0);
    json_decref(a);
    b->n_calls++;
}

/* Writes an answer of random tokens; the header of a call is written for the model, which would hardly begin
 * one. */
static void walk(bench *b, const ln_grammar *g, ln_call_need need, const char *header) {
    ln_matcher *m;
    ln_reasoning r;
    ln_calls t;
    ln_calls_piece piece;
    bool fits, ended = false;
    OK(ln_matcher_open(&m, g, &b->v, err));
    OK(ln_matcher_push(m, S, sizeof S - 1, &fits, err));
    assert_true(fits);
    OK(ln_reasoning_open_channels(&r, delims_of_channels(), S, sizeof S - 1, true, err));
    ln_calls_open(&t, harmony(), b->list, b->n_list, true);
    for (int i = 0; i < 200 && !ended && !t.ended; i++) {
        const uint64_t *mask;
        const char *text = header;
        size_t bytes = strlen(header);
        if (i > 0 || need == LN_CALLS_MUST) {
            OK(ln_matcher_mask(m, &mask, err));
            const int32_t id = choose(b, mask);
            if (id < 0) break;
            text = b->v.text + b->v.at[id];
            bytes = b->v.at[id + 1] - b->v.at[id];
        }
        OK(ln_matcher_push(m, text, bytes, &fits, err));
        assert_true(fits);
        OK(ln_reasoning_push(&r, text, bytes, err));
        OK(ln_calls_push(&t, r.answer.data, r.answer.len, err));
        for (piece = LN_CALLS_TEXT; piece != LN_CALLS_NOTHING;) {
            OK(ln_calls_next(&t, false, &piece, err));
            if (piece == LN_CALLS_CALL) check_call(b, &t);
        }
        ended = ln_matcher_final(m);
    }
    if (!t.ended) b->n_cut++;
    if (t.n_malformed > 0) fail_msg("'%s%s' is no call", t.text.data, t.held.data);
    assert_true(!ended || t.n == 1);
    ln_matcher_close(&m);
    ln_reasoning_close(&r);
    ln_calls_close(&t);
}

static void random_answers(void **state) {
    (void)state;
    static const char *const names[] = {"f", "g"};
    static const char *const headers[] = {C "commentary to=", " to=", ANA "x" E S C "analysis to=",
                                          ANA "x" E S " to=", C "final" M "x" E S C "commentary to="};
    const char *wanted = getenv("LN_CALLS");
    const int n = wanted ? atoi(wanted) : 100;
    bench b = {.seed = 7};
    open_fixture(&b.r);
    OK(ln_grammar_vocabulary(&b.v, b.r.package->tok, ln_tok_count(b.r.package->tok), err));
    b.tools = json_loads(TOOLS, 0, NULL);
    OK(ln_call_tools(&b.arena, b.tools, names, 2, &b.list, &b.n_list, err));
    for (int need = LN_CALLS_MUST; need <= LN_CALLS_MAY; need++) {
        ln_str form = {0};
        ln_grammar *g;
        b.n_calls = b.n_cut = 0;
        ln_call_grammar_put(&form, harmony(), b.r.package->tok, b.tools, names, 2, NULL, (ln_call_need)need,
                            true);
        OK(ln_grammar_open(&g, form.data, form.len, err));
        for (int i = 0; i < n; i++) walk(&b, g, (ln_call_need)need, headers[i % (int)LN_COUNT(headers)]);
        printf("%s: %d answers, %d calls, %d cut\n", need == LN_CALLS_MUST ? "must" : "may", n, b.n_calls,
               b.n_cut);
        assert_true(b.n_calls > n / 4);
        ln_grammar_close(&g);
        ln_str_free(&form);
    }
    ln_vocabulary_free(&b.v);
    ln_arena_free(&b.arena);
    json_decref(b.tools);
    close_fixture(&b.r);
}

/* A model of random weights, through the engine: calls that are required, a schema, a budget of reasoning. */
static void the_engine(void **state) {
    (void)state;
    static const char schema[] = "{\"schema\":{\"type\":\"object\",\"properties\":{\"b\":{\"enum\":[true]}},"
                                 "\"required\":[\"b\"]}}";
    fixture r;
    ln_model *model;
    ln_engine *engine;
    const ln_prompt p = {.size = sizeof p, .request = REQUEST, .request_bytes = sizeof REQUEST - 1};
    int n_calls = 0, n_answers = 0;
    make_model(&r);
    OK(ln_model_open(&model, r.dir, NULL, err));
    OK(ln_engine_open(&engine, model, NULL, err));
    for (uint64_t seed = 1; seed <= 12; seed++) {
        ln_logit_bias bias[] = {{258, 6}, {260, 6}, {261, 6}, {'}', 5}}; /* ends of messages, of objects */
        ln_result out = {.size = sizeof out};
        ln_sampling how = {.size = sizeof how,
                           .temperature = 1,
                           .top_p = 1,
                           .repeat_penalty = 1,
                           .has_seed = true,
                           .seed = seed,
                           .n_max = 180,
                           .bias = bias,
                           .n_bias = LN_COUNT(bias),
                           .has_think_budget = seed % 2,
                           .think_budget = 5,
                           .tool_choice = seed % 3 ? LN_TOOLS_REQUIRED : LN_TOOLS_OFF,
                           .grammar = seed % 3 ? NULL : schema,
                           .grammar_bytes = seed % 3 ? 0 : sizeof schema - 1};
        OK(ln_generate(engine, &p, &how, NULL, NULL, &out, err));
        assert_int_equal(out.n_malformed_calls, 0);
        if (how.has_think_budget) assert_true(out.metrics.reasoning_tokens <= 5 + 2);
        if (out.finish == LN_FINISH_STOP && how.grammar) {
            json_t *v = json_loads(out.text, 0, NULL);
            assert_true(json_is_true(json_object_get(v, "b")));
            json_decref(v);
            n_answers++;
        }
        if (out.finish == LN_FINISH_STOP && !how.grammar) assert_int_equal(out.n_tool_calls, 1);
        n_calls += (int)out.n_tool_calls;
        ln_result_free(&out);
    }
    assert_true(n_calls > 0 && n_answers > 0);
    ln_engine_close(&engine);
    ln_model_close(&model);
    remove_model(&r);
}

int main(void) {
    const struct CMUnitTest all[] = {cmocka_unit_test(every_cut_gives_the_same),
                                     cmocka_unit_test(nothing_is_held_longer_than_needed),
                                     cmocka_unit_test(calls_of_the_real_template),
                                     cmocka_unit_test(the_template_takes_every_conversation),
                                     cmocka_unit_test(answers_of_a_model),
                                     cmocka_unit_test(random_answers),
                                     cmocka_unit_test(the_engine)};
    return cmocka_run_group_tests(all, NULL, NULL);
}
