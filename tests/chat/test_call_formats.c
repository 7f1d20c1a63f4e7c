/* Every format of calls, constrained by its grammar: a model that chooses among the allowed tokens at random
 * writes valid calls only, whether an answer must be calls or may have some; and templates that show no
 * tools.
 *
 * LN_CALLS=n walks n times for each kind of answer, all formats together; `make test` 600 times. */
/* run: quick */
#include "../common.h"

#include "chat/tool_calls.h"
#include "chat/tool_text.h"
#include "engine/constraint.h"

#include <unistd.h>

/* ---- tools whose arguments are easy to judge ---- */

#define TOOLS                                                                                               \
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\","       \
    "\"properties\":{\"city\":{\"enum\":[\"Paris\",\"New York\"]},\"days\":{\"enum\":[1,2]}},"              \
    "\"required\":[\"city\",\"days\"]}}},"                                                                  \
    "{\"type\":\"function\",\"function\":{\"name\":\"write\",\"parameters\":{\"type\":\"object\","          \
    "\"properties\":{\"path\":{\"type\":\"string\",\"pattern\":\"^[a-z/]{1,9}$\"},"                         \
    "\"content\":{\"type\":\"string\"},\"mode\":{\"anyOf\":[{\"type\":\"string\",\"maxLength\":4},"         \
    "{\"type\":\"null\"}]}},\"required\":[\"path\",\"content\"]}}},"                                        \
    "{\"type\":\"function\",\"function\":{\"name\":\"write_all\",\"parameters\":{\"type\":\"object\","      \
    "\"$defs\":{\"Level\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":9}},"                             \
    "\"properties\":{\"n\":{\"$ref\":\"#/$defs/Level\"},\"ok\":{\"type\":\"boolean\"},"                     \
    "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"                                        \
    "\"o\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"}}," \
    "\"required\":[\"a\"]}}}}},"                                                                            \
    "{\"type\":\"function\",\"function\":{\"name\":\"stop\"}}]"

static const char *const names[] = {"weather", "write", "write_all", "stop"};

static size_t characters(const char *s) {
    size_t n = 0;
    for (; *s; s++) n += (*s & 0xc0) != 0x80;
    return n;
}

static bool is_city(const json_t *v) { return ln_json_is_text(v, "Paris") || ln_json_is_text(v, "New York"); }

static bool is_path(const json_t *v) {
    const char *s = json_string_value(v);
    return s && strlen(s) >= 1 && strlen(s) <= 9 && strspn(s, "abcdefghijklmnopqrstuvwxyz/") == strlen(s);
}

static bool is_mode(const json_t *v) {
    return !v || json_is_null(v) || (json_is_string(v) && characters(json_string_value(v)) <= 4);
}

static bool is_tags(const json_t *v) {
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!json_is_string(json_array_get(v, i))) return false;
    return !v || json_is_array(v);
}

static bool is_level(const json_t *v) {
    return !v || (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= 9);
}

static bool is_inner(const json_t *v) {
    const json_t *b = json_object_get(v, "b");
    return !v || (json_is_integer(json_object_get(v, "a")) && (!b || json_is_string(b)) &&
                  json_object_size(v) == 1 + (b != NULL));
}

static bool is_valid(const char *name, const json_t *a) {
    const size_t n = json_object_size(a);
    const json_t *days = json_object_get(a, "days"), *mode = json_object_get(a, "mode");
    const json_t *ok = json_object_get(a, "ok"), *tags = json_object_get(a, "tags");
    if (!json_is_object(a)) return false;
    if (strcmp(name, "weather") == 0)
        return is_city(json_object_get(a, "city")) && json_is_integer(days) &&
               json_integer_value(days) >= 1 && json_integer_value(days) <= 2 && n == 2;
    if (strcmp(name, "write") == 0)
        return is_path(json_object_get(a, "path")) && json_is_string(json_object_get(a, "content")) &&
               is_mode(mode) && n == 2 + (size_t)(mode != NULL);
    if (strcmp(name, "write_all") == 0)
        return is_level(json_object_get(a, "n")) && (!ok || json_is_boolean(ok)) && is_tags(tags) &&
               is_inner(json_object_get(a, "o")) && n <= 4;
    return strcmp(name, "stop") == 0 && n == 0;
}

/* ---- walks ---- */

typedef struct bench {
    ln_tok *tok;
    ln_vocabulary v;
    json_t *tools;
    ln_arena arena;
    const ln_call_tool *list;
    size_t n_list;
    uint64_t seed;
    size_t n_calls, n_cut;
} bench;

static uint64_t next_random(bench *b) {
    b->seed ^= b->seed << 13;
    b->seed ^= b->seed >> 7;
    b->seed ^= b->seed << 17;
    return b->seed;
}

/* One of the allowed tokens; of those that have a byte which ends something, more often. */
static int32_t draw(bench *b, const uint64_t *mask) {
    int32_t chosen = -1;
    const bool ends = next_random(b) % 3 == 0;
    for (int attempt = 0; attempt < 2 && chosen < 0; attempt++) {
        uint64_t n = 0;
        for (int32_t id = 0; id < b->v.n_vocab; id++) {
            if (!(mask[id / 64] >> (id % 64) & 1)) continue;
            const char *text = b->v.text + b->v.at[id];
            const size_t bytes = b->v.at[id + 1] - b->v.at[id];
            if (ends && attempt == 0 && !(bytes > 0 && memchr("\"}])<|", text[0], 7))) continue;
            if (next_random(b) % ++n == 0) chosen = id;
        }
    }
    return chosen;
}

/* Reads the pieces that are certain. */
static void read_pieces(bench *b, ln_calls *t, bool final) {
    for (ln_calls_piece piece = LN_CALLS_TEXT; piece != LN_CALLS_NOTHING;) {
        OK(ln_calls_next(t, final, &piece, err));
        if (piece == LN_CALLS_CUT) b->n_cut++;
        if (piece != LN_CALLS_CALL) continue;
        json_t *a = NULL;
        OK(ln_json_load(&a, "arguments", t->arguments.data, t->arguments.len, err));
        if (!is_valid(t->name.data, a))
            fail_msg("%s: %s%s", t->format->name, t->name.data, t->arguments.data);
        json_decref(a);
        b->n_calls++;
    }
}

/* Writes an answer token by token and reads it. The tag of an answer that may have calls is pushed, because
 * no random model would begin one. */
static void walk(bench *b, const ln_call_format *f, const ln_grammar *g, bool may) {
    enum { MOST_TOKENS = 300 };
    ln_matcher *m;
    ln_calls t;
    ln_str all = {0};
    bool fits, ended = false;
    const uint64_t *mask;
    OK(ln_matcher_open(&m, g, &b->v, err));
    ln_calls_open(&t, f, b->list, b->n_list, false);
    for (int i = 0; i < MOST_TOKENS && !ended; i++) {
        if (may && i == 2 && f->place == LN_CALLS_ANYWHERE) {
            OK(ln_matcher_push(m, f->tag, strlen(f->tag), &fits, err));
            if (fits) OK(ln_calls_push(&t, f->tag, strlen(f->tag), err));
        }
        if (may && i == 0 && f->place == LN_CALLS_AT_START) {
            ln_str begin = {0};
            ln_str_addf(&begin, f->body == LN_CALLS_PYTHON ? "%sweather(" : "%s{\"name\":\"", f->open);
            OK(ln_matcher_push(m, begin.data, begin.len, &fits, err));
            assert_true(fits);
            OK(ln_calls_push(&t, begin.data, begin.len, err));
            ln_str_add(&all, begin.data, begin.len);
            ln_str_free(&begin);
        }
        OK(ln_matcher_mask(m, &mask, err));
        const int32_t id = draw(b, mask);
        ended = id < 0 || (ln_matcher_complete(m) && next_random(b) % 4 == 0);
        if (ended) break;
        const char *text = b->v.text + b->v.at[id];
        const size_t bytes = b->v.at[id + 1] - b->v.at[id];
        OK(ln_matcher_take(m, id, &fits, err));
        assert_true(fits);
        if (*text == '\xff') continue; /* a special token has no text */
        OK(ln_calls_push(&t, text, bytes, err));
        ln_str_add(&all, text, bytes);
        read_pieces(b, &t, false);
    }
    const bool whole = ln_matcher_complete(m);
    read_pieces(b, &t, true);
    if (whole && t.n_malformed > 0) fail_msg("%s: '%.*s'", f->name, (int)all.len, all.data);
    if (whole && !may && t.n == 0) fail_msg("%s: no call in '%.*s'", f->name, (int)all.len, all.data);
    ln_calls_close(&t);
    ln_matcher_close(&m);
    ln_str_free(&all);
}

static void random_answers(void **state) {
    (void)state;
    bench b = {.seed = 88172645463325252u};
    const char *wanted = getenv("LN_CALLS");
    size_t n_forms = 0;
    OK(ln_tok_open(&b.tok, LN_ROOT "/models/tiny", err));
    OK(ln_grammar_vocabulary(&b.v, b.tok, ln_tok_count(b.tok), err));
    b.tools = json_loads(TOOLS, 0, NULL);
    OK(ln_call_tools(&b.arena, b.tools, names, LN_COUNT(names), &b.list, &b.n_list, err));
    while (ln_call_format_at(n_forms)) n_forms++;
    const int n = (wanted ? atoi(wanted) : 600) / (int)n_forms + 1;
    for (size_t i = 0; i < n_forms; i++) {
        const ln_call_format *f = ln_call_format_at(i);
        b.n_calls = b.n_cut = 0;
        if (f->place == LN_CALLS_IN_CHANNEL) continue; /* test_channels has a vocabulary with its marks */
        for (int may = 0; may < 2; may++) {
            ln_str form = {0};
            ln_grammar *g;
            ln_call_grammar_put(&form, f, b.tok, b.tools, names, LN_COUNT(names), NULL,
                                may ? LN_CALLS_MAY : LN_CALLS_MUST, false);
            assert_false(form.failed);
            OK(ln_grammar_open(&g, form.data, form.len, err));
            for (int k = 0; k < n; k++) walk(&b, f, g, may);
            ln_grammar_close(&g);
            ln_str_free(&form);
        }
        printf("%s: %d answers, %zu calls, %zu cut\n", f->name, 2 * n, b.n_calls, b.n_cut);
        assert_true(b.n_calls > 0);
    }
    ln_vocabulary_free(&b.v);
    ln_arena_free(&b.arena);
    json_decref(b.tools);
    ln_tok_close(&b.tok);
}

/* ---- templates that show no tools ---- */

static const char *support_of(const char *source, ln_tool_support *out, char shown[64]) {
    char path[] = "/tmp/linnet-support-XXXXXX.jinja";
    ln_model_template *t;
    const int fd = mkstemps(path, 6);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, source, strlen(source)), strlen(source));
    (void)close(fd);
    OK(ln_model_template_open_file(&t, path, err));
    OK(ln_tool_support_find(out, t, err));
    ln_model_template_close(&t);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(shown, 64, "%s%s%s%s%s%s%s", out->format->name, out->shows_tools ? " tools" : "",
                   out->shows_calls ? " calls" : "", out->several ? " several" : "",
                   out->takes_system ? " system" : "", out->null_content ? " null" : "",
                   out->text_arguments ? " text" : "");
    return shown;
}

/* What the templates of real models show of tools and calls. */
static void support_of_real_templates(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"qwen2.5", "hermes tools calls several system"},
        {"qwen3", "hermes tools calls several system"},
        {"hermes-2-pro-tool-use", "hermes tools calls several"},
        {"llama-3.1", "llama3 tools calls system"},
        {"llama-3.2", "llama3 tools calls system"},
        {"mistral-nemo", "mistral tools calls several system"},
        {"deepseek-r1", "deepseek calls several system text"},
        {"gemma-3", "generic several system"},
        {"gemma-2", "generic several"},
        {"smollm2", "generic several system"},
        {"zephyr-tinyllama", "generic several system"},
    };
    ln_tool_support s;
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        char path[400], shown[64], *text;
        size_t bytes;
        (void)snprintf(path, sizeof path, LN_ROOT "/../shared/data/tok/templates/%s.jinja", rows[i][0]);
        if (access(path, R_OK) != 0) skip();
        OK(ln_read_file(path, 1 << 20, &text, &bytes, err));
        if (strcmp(support_of(text, &s, shown), rows[i][1]) != 0) fail_msg("%s: %s", rows[i][0], shown);
        ln_free(text);
    }
}

#define TURNS "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}"
#define USERS                                                                                  \
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}" \
    "{{ m.content }};{% endfor %}"

static void conversations_become_texts(void **state) {
    (void)state;
    static const char talk[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"Q\"},"
        "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\","
        "\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}},{\"id\":\"2\",\"type\":\"function\","
        "\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]},"
        "{\"role\":\"tool\",\"content\":\"R1\"},{\"role\":\"tool\",\"content\":\"R2\"},"
        "{\"role\":\"user\",\"content\":\"Q2\"}],"
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]}";
    static const char calls[] = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n</tool_call>\n"
                                "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";
    static const char results[] = "<tool_response>\nR1\n</tool_response>\n<tool_response>\nR2\n"
                                  "</tool_response>\nQ2";
    static const char *const sources[] = {TURNS, USERS};
    for (size_t i = 0; i < LN_COUNT(sources); i++) {
        ln_tool_support s;
        char shown[64];
        ln_str out = {0};
        json_t *root = NULL;
        (void)support_of(sources[i], &s, shown);
        assert_int_equal(s.takes_system, i == 0);
        OK(ln_tool_text(&s, talk, strlen(talk), &out, err));
        OK(ln_json_load(&root, "request", out.data, out.len, err));
        const json_t *m = json_object_get(root, "messages");
        const size_t first = s.takes_system ? 1 : 0;
        assert_null(json_object_get(root, "tools"));
        assert_int_equal(json_array_size(m), 3 + first);
        const char *told = json_string_value(json_object_get(json_array_get(m, 0), "content"));
        assert_non_null(strstr(told, "S\n\n# Tools"));
        assert_non_null(strstr(told, "{\"name\":\"f\",\"parameters\":{}}"));
        assert_non_null(strstr(told, "<tool_call>\n{\"name\": \"NAME\", \"arguments\": {"));
        if (!s.takes_system) assert_string_equal(told + strlen(told) - 3, "\n\nQ");
        assert_string_equal(json_string_value(json_object_get(json_array_get(m, 1 + first), "content")),
                            calls);
        assert_string_equal(json_string_value(json_object_get(json_array_get(m, 2 + first), "content")),
                            results);
        assert_true(ln_json_is_text(json_object_get(json_array_get(m, 2 + first), "role"), "user"));
        json_decref(root);
        ln_str_free(&out);
    }
}

/* ---- the bundled model, whose template knows nothing of tools ---- */

#define ASK "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"tools\":" TOOLS "}"

/* Calls that are required, and calls of a named tool, are valid whatever the model is. */
static void the_bundled_model(void **state) {
    (void)state;
    ln_model *model;
    ln_engine *engine;
    ln_info info = {.size = sizeof info};
    const ln_prompt p = {.size = sizeof p, .request = ASK, .request_bytes = sizeof ASK - 1};
    OK(ln_model_open(&model, LN_ROOT "/models/tiny", NULL, err));
    OK(ln_model_info(model, &info, err));
    assert_string_equal(info.tool_format, "generic");
    assert_false(info.single_tool_call);
    OK(ln_engine_open(&engine, model, NULL, err));
    for (uint64_t seed = 1; seed <= 8; seed++) {
        const char *const only = seed % 2 ? names[seed % LN_COUNT(names)] : NULL;
        ln_result out = {.size = sizeof out};
        ln_sampling how;
        how.size = sizeof how;
        OK(ln_sampling_default(model, &how, err));
        how.has_seed = true;
        how.seed = seed;
        how.temperature = 1;
        how.n_max = 300;
        how.tool_choice = seed == 8 ? LN_TOOLS_AUTO : LN_TOOLS_REQUIRED;
        how.tool_names = &only;
        how.n_tool_names = only ? 1 : 0;
        how.single_tool_call = true;
        OK(ln_generate(engine, &p, &how, NULL, NULL, &out, err));
        assert_true(out.n_malformed_calls == 0 || out.finish == LN_FINISH_LENGTH);
        assert_true(seed == 8 || out.n_tool_calls == 1 || out.finish == LN_FINISH_LENGTH);
        for (size_t i = 0; i < out.n_tool_calls; i++) {
            json_t *a = NULL;
            OK(ln_json_load(&a, "arguments", out.tool_calls[i].arguments, out.tool_calls[i].arguments_bytes,
                            err));
            assert_true(is_valid(out.tool_calls[i].name, a));
            assert_true(!only || strcmp(only, out.tool_calls[i].name) == 0);
            json_decref(a);
        }
        ln_result_free(&out);
    }
    ln_engine_close(&engine);
    ln_model_close(&model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_answers), cmocka_unit_test(support_of_real_templates),
        cmocka_unit_test(conversations_become_texts), cmocka_unit_test(the_bundled_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
