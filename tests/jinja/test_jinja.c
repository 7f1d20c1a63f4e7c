/* The Jinja engine and chat templates: limits, the origin of every byte (template or data), the files that
 * templates are read from, and which tokens the assistant wrote. */
/* run: quick asan */
#include "chat/chat_render.h"
#include "../tokenizer/vectors.h"

#include "base/file.h"

#include <sys/stat.h>
#include <unistd.h>

static const jinja_options chat = {.trim_blocks = true, .lstrip_blocks = true};

/* Renders `source` with s = `text` as data. *out is the output, *origins the origin of each byte: '.'
 * template, '#' data. */
static ln_status go(const char *source, const char *text, ln_str *out, ln_str *origins, ln_error *err) {
    jinja *t;
    jinja_run *r = NULL;
    jinja_text x = {0};
    out->len = origins->len = 0;
    ln_status st = jinja_compile(&t, "t", source, strlen(source), &chat, err);
    if (st != LN_OK) return st;
    st = jinja_begin(&r, t, NULL, err);
    if (st == LN_OK) st = jinja_set_text(r, "s", text, strlen(text), false, err);
    if (st == LN_OK) st = jinja_set_text(r, "bos_token", "<s>", 3, true, err);
    if (st == LN_OK) st = jinja_render(r, &x, err);
    if (st == LN_OK) {
        ln_str_add(out, x.text, x.bytes);
        for (size_t i = 0; i < x.bytes; i++)
            ln_str_adds(origins, (x.origin ? x.origin[i] : x.all_data) ? "#" : ".");
    }
    jinja_end(&r);
    jinja_free(&t);
    return st;
}

/* ---- the origin of every byte ---- */

static void origins(void **state) {
    (void)state;
    static const struct {
        const char *source, *text, *want, *origin;
    } rows[] = {{"a{{ s }}b", "XY", "aXYb", ".##."},
                {"{{ bos_token + s }}", "XY", "<s>XY", "...##"},
                {"{{ ('<' + s + '>')[1:] }}", "XY", "XY>", "##."},
                {"{{ ('<' + s + '>')[::-1] }}", "XY", ">YX<", ".##."},
                {"{{ s | upper }}{{ s | capitalize | trim }}", " \xc3\x9f", " SS\xc3\x9f", "#####"},
                {"{{ ('a' ~ s ~ 'a') | replace('a', '-') }}", "bab", "-b-b-", ".###."},
                {"{{ s | replace('b', '<|x|>') }}", "abc", "a<|x|>c",
                 "#######"}, /* a replacement of data counts as data */
                {"{{ s | e | replace('&lt;', '<') | replace('&gt;', '>') }}", "<x>", "<x>", "###"},
                {"{{ s.replace('', '-') }}{{ 'ab'.replace('', s) }}", "xy", "-x-y-xyaxybxy",
                 "#####"
                 "##.##.##"},
                {"{{ ('{s}' ~ '{t}').replace('{s}', s).replace('{t}', '<t>') }}", "xy", "xy<t>", "##..."},
                {"{{ ('<' ~ s ~ '>').replace('<x', '[').replace('>', ')') }}", "xy", "[y)", "##."},
                {"{{ s.split(',') | join(';') }}", "a,b", "a;b", "#.#"},
                {"{{ (s * 399) | int }}{{ '1.5.2' | float }}", ".", "00.0",
                 "...."}, /* more decimal points than a number has */
                {"{{ s | tojson }}", "a\"\n", "\"a\\\"\\n\"", ".#####."},
                {"{{ [s, 'k'] }}", "v", "['v', 'k']", "..#......."},
                {"{{ '%s=%d' % (s, 5) }}", "v", "v=5", "#.."},
                {"{{ {s: 1} | tojson }}", "v", "{\"v\": 1}", "..#....."},
                {"{% set x %}<{{ s }}>{% endset %}{{ x | indent(1, true) }}", "v", " <v>", "..#."},
                {"{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(s) }}", "v", "[v]", ".#."},
                {"{% for c in s %}{{ c }}.{% endfor %}", "ab", "a.b.", "#.#."},
                {"{{ s | from_json | join('+') }}", "[\"a\", \"b\"]", "a+b", "#.#"},
                {"{{ (s ~ 'z') | list | last }}{{ (s ~ 'z') | first }}", "ab", "za", ".#"},
                {"{{ s | e }}", "<", "&lt;", "####"},
                {"{{ s.center(5, '*') }}", "ab", "**ab*", "..##."},
                {"{{ s | title | truncate(4, true, '!') }}", "abcdefghijkl", "Abc!", "###."},
                {"{{ (s + ' x').split() | last }}", "ab", "x", "."},
                {"{{ s | int + 1 }}", "41", "42", ".."}};
    ln_str out = {0}, origin = {0};
    ln_error err = {0};
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        if (go(rows[i].source, rows[i].text, &out, &origin, &err) != LN_OK)
            fail_msg("%s: %s", rows[i].source, err.message);
        assert_string_equal(out.data, rows[i].want);
        assert_string_equal(origin.data, rows[i].origin);
    }
    ln_str_free(&out);
    ln_str_free(&origin);
}

/* ---- limits ---- */

static void repeat(ln_str *s, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) ln_str_adds(s, text);
}

static void refused(const char *source, const char *text, const char *want) {
    ln_str out = {0}, origin = {0};
    ln_error err = {0};
    double start = cpu_seconds();
    ln_status st = go(source, text, &out, &origin, &err);
    double ms = (cpu_seconds() - start) * 1e3,
           most = getenv("LN_SANITIZED") ? 3000 : 1000; /* ms; an idle host needs 100 */
    if (st != LN_EINVALID || !strstr(err.message, want) || ms > most)
        fail_msg("'%.60s': status %d after %.0f ms, wanted '%s': %s", source, st, ms, want, err.message);
    ln_str_free(&out);
    ln_str_free(&origin);
}

static void limits(void **state) {
    (void)state;
    static const char *const nests[][3] = {{"(", "1", ")"},   {"[", "1", "]"},   {"{1:", "1", "}"},
                                           {"not ", "1", ""}, {"-", "1", ""},    {"", "1", "+1"},
                                           {"", "x", ".a"},   {"", "1", "|abs"}, {"1 if 1 else ", "1", ""}};
    ln_str s = {0};
    for (size_t i = 0; i < LN_COUNT(nests); i++) {
        s.len = 0;
        ln_str_adds(&s, "{{ ");
        repeat(&s, nests[i][0], 60000);
        ln_str_adds(&s, nests[i][1]);
        repeat(&s, nests[i][2], 60000);
        ln_str_adds(&s, " }}");
        refused(s.data, "", i < 5 || i == 8 ? "nested deeper" : "on one way down");
    }
    s.len = 0;
    repeat(&s, "{% if 1 %}", 60000);
    refused(s.data, "", "nested deeper");
    refused("{{ 'x' * 10000000 }}", "", "8388608");
    refused("{% set n = namespace(s='x' * 1000) %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor "
            "%}",
            "", "8388608");
    s.len = 0;
    repeat(&s, "0123456789", 1000000);
    refused("{{ s }}", s.data, "8388608");
    refused(s.data, "", "1048576");
    refused("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "",
            "1000000 steps");
    refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "", "call itself");
    refused("{% set n = namespace(x=1) %}{% for i in range(100000) %}{% set n.x = [n.x] %}{% endfor %}", "",
            "nested deeper");
    refused("{% set n = namespace() %}{% set n.x = n %}{{ n }}", "", "contains itself");
    refused("{{ range(100001) }}", "", "100000 items");
    refused("{{ ('a' * 1000000).rfind('a' * 500000 ~ 'b') }}", "", "steps");
    static const char *const work[] = {"c == d",
                                       "c < d",
                                       "{c: 1}",
                                       "c in {c: 1}",
                                       "(c, 1) in {(d, 1): 1}",
                                       "c|upper",
                                       "c.title()",
                                       "c|replace('q', '')",
                                       "c.isalpha()",
                                       "c is lower",
                                       "c|wordcount",
                                       "c.split()",
                                       "c|e"};
    for (size_t i = 0; i < LN_COUNT(work); i++) { /* operations on long texts cost steps for all of the
                                                     bytes they touch */
        ln_str s = {0};
        ln_str_addf(&s,
                    "{%% set c = 'z' * 1000000 %%}{%% set d = 'z' * 1000000 %%}{%% for i in range(99999) "
                    "%%}{%% set x = %s %%}{%% endfor %%}",
                    work[i]);
        refused(s.data, "", "steps");
        ln_str_free(&s);
    }
    ln_str many = {0};
    ln_str_adds(&many, "{% macro m(");
    for (int i = 0; i < 60000; i++) ln_str_addf(&many, "%sa%d", i ? ", " : "", i);
    ln_str_adds(&many, ") %}{% endmacro %}{{ m() }}");
    refused(many.data, "", "at most 255 parameters");
    ln_str_free(&many);
    refused("{{ 2 ** 20000 }}", "", "16384 bits");
    refused("{{ 10 ** 4300 }}", "", "4300 digits");
    refused("{{ range(2 ** 64) }}", "", "at most 64 bits");
    refused("{{ 'a' * 2 ** 64 }}", "", "beyond 64 bits");
    refused("{{ '{:.5000f}'.format(0.5) }}", "", "precision");
    refused("{{ 'x'.encode() }}", "", "not supported");
    refused("{{ {}.keys().mapping }}", "", "'mapping' of dict_keys is not supported");
    refused("a\n  {{ 1 + }}", "", "line 2, column 10");
    refused("\xc3\xa9{{ nothing.x }}", "", "line 1, column 12: 'nothing' is undefined");
    refused("{% include 'etc' %}", "", "unknown tag 'include'");
    ln_str_free(&s);
}

/* 200 messages in a template with namespaces, slices and a filter for each message, compiled once. */
static void two_hundred_messages(void **state) {
    (void)state;
    static const char source[] =
        "{% set ns = namespace(last=messages|length - 1) %}{% for m in messages[::-1] %}{% if m.role == "
        "'user' and ns.last < 0 %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
        "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ "
        "raise_exception('order') }}{% endif %}"
        "{{ '<|im_start|>' + m.role + '\\n' + m.content | trim + '<|im_end|>\\n' }}{% endfor %}{% if "
        "add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
    jinja *t;
    char text[201];
    ln_message m[200];
    double best = 1e9;
    memset(text, 'x', 200);
    for (size_t i = 0; i < 200; i++) m[i] = (ln_message){i % 2 ? "assistant" : "user", text, 200};
    assert_int_equal(jinja_compile(&t, "t", source, sizeof source - 1, &chat, NULL), LN_OK);
    for (int k = 0; k < 20 || (k < 200 && best >= 2); k++) { /* a loaded host has several tries */
        jinja_run *r;
        jinja_text x;
        double start = cpu_seconds();
        assert_int_equal(jinja_begin(&r, t, NULL, NULL), LN_OK);
        assert_int_equal(jinja_set_messages(r, m, 200, NULL), LN_OK);
        assert_int_equal(jinja_render(r, &x, NULL), LN_OK);
        assert_true(x.bytes > 200 * 200);
        jinja_end(&r);
        best = LN_MIN(best, (cpu_seconds() - start) * 1e3);
    }
    printf("200 messages: %.2f ms\n", best);
    if (!getenv("LN_SANITIZED")) assert_true(best < 2);
    jinja_free(&t);
}

/* Every allocation fails in turn: an error each time, and no memory is leaked. */
static void no_memory(void **state) {
    (void)state;
    static const char source[] = "{% macro f(x) %}{{ x | tojson }}{% endmacro %}{% for c in s.split(',') "
                                 "%}{{ f(c) ~ loop.last }}{% endfor %}";
    ln_str out = {0}, origin = {0};
    uint64_t held = ln_mem_bytes();
    ln_status st = LN_EMEMORY;
    for (int64_t n = 1; st != LN_OK; n++) {
        ln_error err = {0};
        ln_str_free(&out);
        ln_str_free(&origin);
        ln_mem_fail_at(n, true);
        st = go(source, "a,b", &out, &origin, &err);
        ln_mem_fail_at(-1, false);
        if (out.failed || origin.failed) st = LN_EMEMORY;
        if (st != LN_OK) assert_int_equal(st, LN_EMEMORY);
        assert_true(n < 1000);
    }
    ln_str_free(&out);
    ln_str_free(&origin);
    assert_int_equal(ln_mem_bytes(), held);
}

/* ---- files that templates are read from ---- */

static char dir[] = "/tmp/linnet-templates-XXXXXX";

static void put(const char *name, const char *text) {
    char path[200];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void drop(const char *name) {
    char path[200];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    (void)remove(path);
}

static void source_is(const char *choice, const char *want, ln_status code) {
    ln_model_template *t = NULL;
    ln_error err = {0};
    size_t n;
    ln_status st = ln_model_template_open(&t, dir, choice, &err);
    if (st != code) fail_msg("status %d, wanted %d: %s", st, code, err.message);
    if (want && !t) fail_msg("no template, wanted '%s'", want);
    if (want) assert_string_equal(ln_model_template_source(t, &n), want);
    if (!want) assert_null(t);
    ln_model_template_close(&t);
}

static void renders(const char *request, const char *want) {
    ln_model_template *t;
    ln_rendered r;
    ln_error err = {0};
    assert_int_equal(ln_model_template_open(&t, dir, NULL, &err), LN_OK);
    if (ln_model_template_request(t, request, strlen(request), &r, &err) != LN_OK)
        fail_msg("%s", err.message);
    assert_int_equal(r.text.bytes, strlen(want));
    assert_memory_equal(r.text.text, want, r.text.bytes);
    ln_rendered_free(&r);
    ln_model_template_close(&t);
}

/* Renders a request with the model's template. `want` NULL: opening or rendering must fail with a message
 * that says what to do. */
static void renders_or_not(size_t row, const char *request, const char *want) {
    ln_model_template *t;
    ln_rendered r = {0};
    ln_error err = {0};
    ln_status st = ln_model_template_open(&t, dir, NULL, &err);
    if (st == LN_OK) st = ln_model_template_request(t, request, strlen(request), &r, &err);
    if (!want && (st != LN_EINVALID || !strstr(err.message, "(ln_options.chat_template)")))
        fail_msg("row %zu, %s: status %d, %s", row, request, st, err.message);
    if (want && st != LN_OK) fail_msg("row %zu, %s: %s", row, request, err.message);
    if (want && (r.text.bytes != strlen(want) || memcmp(r.text.text, want, r.text.bytes) != 0))
        fail_msg("row %zu, %s: '%.*s' instead of '%s'", row, request, (int)r.text.bytes, r.text.text, want);
    ln_rendered_free(&r);
    ln_model_template_close(&t);
}

static void sources(void **state) {
    (void)state;
    char file[200];
    assert_non_null(mkdtemp(dir));
    source_is(NULL, NULL, LN_OK);
    source_is("tool_use", NULL, LN_EIO);
    put("tokenizer_config.json", "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"</s>\", "
                                 "\"chat_template\": \"{{ bos_token }}one{{ eos_token }}\"}");
    source_is(NULL, "{{ bos_token }}one{{ eos_token }}", LN_OK);
    source_is("default", "{{ bos_token }}one{{ eos_token }}", LN_OK);
    source_is("other", NULL, LN_EIO);
    renders("{\"messages\": []}", "<s>one</s>");
    renders("{\"messages\": [], \"bos_token\": \"B\"}", "Bone</s>");
    put("special_tokens_map.json", "{\"bos_token\": \"<b>\", \"unk_token\": \"<u>\"}");
    put("tokenizer_config.json", "{\"eos_token\": \"</s>\", \"unk_token\": {\"content\": \"?\"}, "
                                 "\"chat_template\": \"{{ bos_token }}{{ unk_token }}{{ eos_token }}\"}");
    renders("{\"messages\": []}", "<b>?</s>");
    drop("special_tokens_map.json");
    put("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\", \"template\": \"plain\"}, "
                                 "{\"name\": \"tool_use\", \"template\": \"tools\"}, {\"name\": \"rag\", "
                                 "\"template\": \"{{ x }}\"}]}");
    source_is(NULL, "plain", LN_OK);
    source_is("rag", "{{ x }}", LN_OK);
    renders("{\"messages\": []}", "plain");
    renders("{\"messages\": [], \"tools\": []}", "tools");
    put("tokenizer_config.json", /* transformers makes a dictionary of the list: a later entry replaces an
                                    earlier one */
        "{\"chat_template\": [{\"name\": \"default\", \"template\": \"old\"}, {\"name\": \"tool_use\", "
        "\"template\": \"old tools\"}, "
        "{\"name\": \"tool_use\", \"template\": \"tools\"}, {\"name\": \"rag\", \"template\": \"old {{ x "
        "}}\"}, "
        "{\"name\": \"default\", \"template\": \"plain\"}, {\"name\": \"rag\", \"template\": \"{{ x }}\"}]}");
    source_is(NULL, "plain", LN_OK);
    source_is("rag", "{{ x }}", LN_OK);
    renders("{\"messages\": []}", "plain");
    renders("{\"messages\": [], \"tools\": []}", "tools");
    put("chat_template.jinja", "of a file{{ y }}");
    source_is(NULL, "of a file{{ y }}", LN_OK);
    source_is("rag", "{{ x }}", LN_OK);
    renders("{\"messages\": [], \"kwargs\": {\"y\": [1]}}", "of a file[1]");
    (void)snprintf(file, sizeof file, "%s/own.jinja", dir);
    put("own.jinja", "mine");
    source_is(file, "mine", LN_OK);
    source_is("/nowhere/x.jinja", NULL, LN_EIO);
    put("chat_template.jinja", "{% if %}");
    source_is(NULL, NULL, LN_EINVALID);
    drop("chat_template.jinja"), drop("tokenizer_config.json"), drop("own.jinja");
    put("chat_template.json", "{\"chat_template\": \"json\"}");
    source_is(NULL, "json", LN_OK);
    drop("chat_template.json");
    put("tokenizer_config.json", "{\"chat_template\": 5}");
    source_is(NULL, NULL, LN_EINVALID);
    drop("tokenizer_config.json");
    assert_int_equal(rmdir(dir), 0);
}

/* Which template is used for conversations without tools and with them, of every combination of sources.
 * NULL: rejected. The values are those of apply_chat_template in transformers 5.24, except for
 * chat_templates/, which it does not read. */
static void precedence(void **state) {
    (void)state;
    static const char text[] = "\"config\"",
                      list[] = "[{\"name\":\"default\",\"template\":\"listed\"},{\"name\":"
                               "\"tool_use\",\"template\":\"listed tools\"}]",
                      tools[] = "[{\"name\":\"tool_use\",\"template\":\"listed tools\"}]",
                      other[] = "[{\"name\":\"rag\",\"template\":\"listed rag\"}]";
    static const struct {
        const char *file, *additional[3], *older, *config, *plain, *tools;
    } rows[] = {{"file", {0}, NULL, text, "file", "file"},
                {"file", {0}, NULL, list, "file", "file"},
                {"file", {"additional"}, NULL, text, "additional", "additional"},
                {NULL, {"additional"}, NULL, text, "additional", "additional"},
                {"file", {NULL, "tools"}, NULL, NULL, "file", "tools"},
                {"file", {"additional", "tools"}, NULL, list, "additional", "tools"},
                {NULL, {NULL, "tools"}, NULL, text, NULL, "tools"},
                {NULL, {NULL, "tools"}, NULL, list, NULL, "tools"},
                {NULL, {NULL, "tools"}, NULL, NULL, NULL, "tools"},
                {NULL, {NULL, NULL, "rag"}, NULL, text, NULL, NULL},
                {"file", {NULL, NULL, "rag"}, NULL, text, "file", "file"},
                {NULL, {0}, NULL, list, "listed", "listed tools"},
                {NULL, {0}, NULL, tools, NULL, "listed tools"},
                {NULL, {0}, NULL, other, NULL, NULL},
                {NULL, {0}, "older", text, "config", "config"},
                {NULL, {0}, "older", NULL, "older", "older"}};
    static const char *const names[] = {"additional_chat_templates/default.jinja",
                                        "additional_chat_templates/tool_use.jinja",
                                        "additional_chat_templates/rag.jinja"};
    char config[300], folder[2][200];
    (void)snprintf(dir, sizeof dir, "/tmp/linnet-chat-XXXXXX");
    assert_non_null(mkdtemp(dir));
    (void)snprintf(folder[0], sizeof folder[0], "%s/additional_chat_templates", dir);
    (void)snprintf(folder[1], sizeof folder[1], "%s/chat_templates", dir);
    assert_int_equal(mkdir(folder[0], 0700) | mkdir(folder[1], 0700), 0);
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        if (rows[i].file) put("chat_template.jinja", rows[i].file);
        for (size_t k = 0; k < LN_COUNT(names); k++)
            if (rows[i].additional[k]) put(names[k], rows[i].additional[k]);
        if (rows[i].older) put("chat_templates/default.jinja", rows[i].older);
        (void)snprintf(config, sizeof config, "{\"chat_template\": %s}", rows[i].config);
        if (rows[i].config) put("tokenizer_config.json", config);
        renders_or_not(i, "{\"messages\": []}", rows[i].plain);
        renders_or_not(i, "{\"messages\": [], \"tools\": []}", rows[i].tools);
        drop("chat_template.jinja"), drop("tokenizer_config.json"), drop("chat_templates/default.jinja");
        for (size_t k = 0; k < LN_COUNT(names); k++) drop(names[k]);
    }
    assert_int_equal(rmdir(folder[0]) | rmdir(folder[1]) | rmdir(dir), 0);
}

/* ---- messages as apply_chat_template passes them ---- */

static void tidied(void **state) {
    (void)state;
    static const char form[] = "{% for m in messages %}{{ m.items() | list }}{% endfor %}";
    static const struct {
        const char *messages, *raw, *tidy;
    } rows[] = {
        {"[{'role': 'a', 'content': null, 'tool_calls': [null]}]",
         "[('role', 'a'), ('content', None), ('tool_calls', [None])]",
         "[('role', 'a'), ('tool_calls', [None])]"},
        {"[{'role': 'a', 'reasoning': 'r'}, 5]", NULL, NULL},
        {"[{'role': 'a', 'reasoning': 'r'}]", "[('role', 'a'), ('reasoning', 'r')]",
         "[('thinking', 'r'), ('role', 'a'), ('reasoning', 'r'), ('reasoning_content', 'r')]"},
        {"[{'thinking': 't', 'reasoning': 'r'}]", "[('thinking', 't'), ('reasoning', 'r')]",
         "[('thinking', 't'), ('reasoning', 'r'), ('reasoning_content', 't')]"},
        {"[{'reasoning_content': 'c', 'thinking': 't'}]", "[('reasoning_content', 'c'), ('thinking', 't')]",
         "[('thinking', 't'), ('reasoning_content', 'c')]"},
        {"[{'reasoning_content': null, 'thinking': ''}]", "[('reasoning_content', None), ('thinking', '')]",
         "[('thinking', ''), ('reasoning_content', '')]"}};
    for (size_t i = 0; i < LN_COUNT(rows); i++)
        for (int tidy = 0; tidy < 2; tidy++) {
            char json[200];
            (void)snprintf(json, sizeof json, "%s", rows[i].messages);
            for (char *c = json; *c; c++) *c = *c == '\'' ? '"' : *c;
            jinja *t;
            jinja_run *r;
            jinja_text x;
            ln_json j;
            const char *want = tidy ? rows[i].tidy : rows[i].raw;
            assert_int_equal(jinja_compile(&t, "t", form, sizeof form - 1, &chat, NULL), LN_OK);
            assert_int_equal(jinja_begin(&r, t, NULL, NULL), LN_OK);
            ln_json_open(&j, "messages", json, strlen(json), 9);
            assert_int_equal(jinja_set_json(r, "messages", 8, &j, false, NULL), LN_OK);
            if (tidy) assert_int_equal(jinja_tidy_messages(r, NULL), LN_OK);
            assert_int_equal(jinja_render(r, &x, NULL), want ? LN_OK : LN_EINVALID);
            if (want && (x.bytes != strlen(want) || memcmp(x.text, want, x.bytes) != 0))
                fail_msg("%s\n%.*s", want, (int)x.bytes, x.text);
            ln_json_close(&j);
            jinja_end(&r);
            jinja_free(&t);
        }
}

/* ---- tokens that the assistant wrote ---- */

static void marked(const char *template, const char *request, const char *want, size_t want_left) {
    ln_tok *tok = vector_tokenizer("qwen2.5");
    ln_model_template *t;
    ln_ids ids = {0}, mine = {0};
    ln_str mask = {0}, text = {0};
    ln_error err = {0};
    ln_mask_report report;
    if (!tok) return;
    ln_conversation talk = {.json = request, .json_bytes = strlen(request)};
    char path[600];
    if (strchr(template, '{')) {
        (void)snprintf(path, sizeof path, "/tmp/linnet-marked-XXXXXX.jinja");
        FILE *f = fdopen(mkstemps(path, 6), "w");
        assert_non_null(f);
        fputs(template, f);
        fclose(f);
    } else {
        (void)snprintf(path, sizeof path, TOK_DATA "/templates/%s.jinja", template);
    }
    assert_int_equal(ln_model_template_open_file(&t, path, &err), LN_OK);
    if (strchr(template, '{')) unlink(path);
    assert_int_equal(ln_model_template_bind(t, tok, &err), LN_OK);
    if (ln_model_template_assistant_mask(t, tok, &talk, &ids, &mask, NULL, &report, &err) != LN_OK)
        fail_msg("%s", err.message);
    assert_int_equal(mask.len, ids.n);
    for (size_t i = 0; i < ids.n; i++)
        if (mask.data[i]) assert_int_equal(ln_ids_add(&mine, ids.data[i], NULL), LN_OK);
    assert_int_equal(ln_tok_decode(tok, mine.data, mine.n, false, &text, &err), LN_OK);
    ln_str_add(&text, "", 0);
    assert_string_equal(text.data ? text.data : "", want);
    assert_int_equal(report.n_unmatched, want_left);
    ln_ids_free(&ids);
    ln_ids_free(&mine);
    ln_str_free(&mask);
    ln_str_free(&text);
    ln_model_template_close(&t);
    ln_tok_close(&tok);
}

static void assistant_tokens(void **state) {
    (void)state;
    static const char turns[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":"
                                "\"assistant\",\"content\":\"Hello there\"},"
                                "{\"role\":\"user\",\"content\":\"Bye\"},{\"role\":\"assistant\",\"content\":"
                                "\"\\n\\nSo long.\"}],\"add_generation_prompt\":true}";
    /* The header's newline and the answer's first two are one token, which counts as the answer's. */
    marked("qwen2.5", turns, "Hello there<|im_end|>\n\n\n\nSo long.<|im_end|>\n", 0);
    marked("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}{% "
           "generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}"
           "{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}",
           turns, "Hello there<|im_end|>\n\n\nSo long.<|im_end|>", 0);
    marked("qwen2.5",
           "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"\","
           "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{}}}]}]}",
           "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call><|im_end|>\n", 0);
    /* Llama 3 takes the system message off `messages`. */
    marked("{% if messages[0].role == 'system' %}{{ messages[0].content }}{% set messages = messages[1:] "
           "%}{% endif %}"
           "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' }}{% endfor "
           "%}"
           "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
           "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"Hi\"},"
           "{\"role\":\"assistant\",\"content\":\"Hello\"}]}",
           "Hello<|im_end|>", 0);
    /* A greeting, before which nothing can be rendered: its header is that of later answers. */
    marked("qwen2.5",
           "{\"messages\":[{\"role\":\"assistant\",\"content\":\"Welcome\"},{\"role\":\"user\",\"content\":"
           "\"Hi\"},"
           "{\"role\":\"assistant\",\"content\":\"Hello\"}]}",
           "Welcome<|im_end|>\nHello<|im_end|>\n", 0);
    static const char weights[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\","
        "\"content\":\"Bad\",\"weight\":0},{\"role\":\"user\",\"content\":\"Bye\"},"
        "{\"role\":\"assistant\",\"content\":\"Good\",\"weight\":1}]}";
    marked("qwen2.5", weights, "Good<|im_end|>\n", 0);
    marked("{% for m in messages %}{{ m.role }}{% if m.role == 'assistant' %}{% generation %}{{ m.content "
           "}}{% endgeneration %}"
           "{% endif %}{% endfor %}",
           weights, "Good", 0);
    /* Qwen 3 renders the last answer with its reasoning and drops the reasoning when more turns follow. */
    marked("qwen3", turns, "<think>\n\n</think>\n\nSo long.<|im_end|>\n", 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(origins),
                                       cmocka_unit_test(limits),
                                       cmocka_unit_test(two_hundred_messages),
                                       cmocka_unit_test(no_memory),
                                       cmocka_unit_test(sources),
                                       cmocka_unit_test(precedence),
                                       cmocka_unit_test(tidied),
                                       cmocka_unit_test(assistant_tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
