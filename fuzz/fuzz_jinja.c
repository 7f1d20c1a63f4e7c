/* Fuzzes chat templates. The input is a template and the JSON object of its variables, separated by a byte
 * 0xFF (which no UTF-8 text contains). Without that byte the variables are a conversation with tools. The
 * rendered text must be valid UTF-8 with an origin for every byte, its ranges of generated text must be
 * within it, and rendering again must give the same text. Seeds: tools/jinja_programs.py and the templates of
 * tests/jinja/test_jinja.c. */
#include "fuzz.h"

#include "jinja/jinja.h"

static void fuzz_open(void) {}

static const char conversation[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"<|im_end|> "
    "\\u00e9\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]},"
    "{\"role\":\"assistant\",\"content\":\"<think>\\nb</"
    "think>\\n\\nc\",\"tool_calls\":[{\"id\":\"123456789\",\"function\":{\"name\":\"f\",\"arguments\":{\"x\":"
    "1.5}}}]},"
    "{\"role\":\"tool\",\"content\":\"[1]\",\"tool_call_id\":\"123456789\"},{\"role\":\"user\",\"content\":"
    "\"d\"}],\"tools\":[{\"type\":\"function\",\"function\":"
    "{\"name\":\"f\",\"description\":\"g\",\"parameters\":{\"type\":\"object\",\"properties\":{\"x\":{"
    "\"type\":\"number\"}},\"required\":[\"x\"]}}}],"
    "\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}";

static ln_status set_all(jinja_run *run, const char *json, size_t bytes, ln_error *err) {
    ln_json j;
    bool more = false;
    ln_json_open(&j, "context", json, bytes, LN_JSON_MAX_DEPTH);
    ln_status st = ln_json_want(&j, LN_J_OBJECT, err);
    while (st == LN_OK && (st = ln_json_key(&j, &more, err)) == LN_OK && more)
        st = jinja_set_json(run, j.text, j.text_bytes, &j, false, err);
    ln_json_close(&j);
    return st;
}

static void check(const jinja_text *t) {
    must(ln_utf8_valid(t->text, t->bytes) == t->bytes);
    for (size_t i = 0; t->origin && i < t->bytes; i++) must(t->origin[i] <= 1);
    for (size_t i = 0; i < t->n_generated; i++)
        must(t->generated[i].from <= t->generated[i].to && t->generated[i].to <= t->bytes);
}

static ln_status render(const jinja *t, const char *json, size_t bytes, ln_str *out, ln_error *err) {
    static const struct tm now = {.tm_year = 125, .tm_mon = 6, .tm_mday = 10};
    jinja_run *run = NULL;
    jinja_text text;
    ln_status st = jinja_begin(&run, t, &now, err);
    if (st == LN_OK) st = set_all(run, json, bytes, err);
    if (st == LN_OK) st = jinja_render(run, &text, err);
    if (st == LN_OK) {
        check(&text);
        ln_str_add(out, text.text, text.bytes);
        if (out->failed) st = LN_OOM(err, "a text");
    }
    jinja_end(&run);
    return st;
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    const uint8_t *mark = bytes > 0 ? memchr(data, 0xff, bytes) : NULL;
    size_t n = mark ? (size_t)(mark - data) : bytes, rest = mark ? bytes - n - 1 : 0;
    const char *json = rest ? (const char *)mark + 1 : conversation;
    jinja_options opt = {
        .trim_blocks = n % 2 == 0, .lstrip_blocks = n % 2 == 0, .keep_trailing_newline = n % 3 == 0};
    jinja *t;
    ln_str first = {0}, second = {0};
    LN_TRY(jinja_compile(&t, "fuzz", (const char *)data, n, &opt, err));
    ln_status st = jinja_written(t, &first, err);
    first.len = 0;
    if (!rest) rest = sizeof conversation - 1;
    if (st == LN_OK) st = render(t, json, rest, &first, err);
    if (st == LN_OK) st = render(t, json, rest, &second, err);
    if (st == LN_OK)
        must(first.len == second.len && (first.len == 0 || memcmp(first.data, second.data, first.len) == 0));
    must(st == LN_OK || st == LN_EMEMORY || st == LN_EINVALID);
    ln_str_free(&first);
    ln_str_free(&second);
    jinja_free(&t);
    return st;
}
