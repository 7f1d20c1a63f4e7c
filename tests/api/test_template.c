/* Chat templates through the public API: `linnet template` and `linnet run` use the same template, with
 * one bos token; a request reaches the model as apply_chat_template would send it. The model is the
 * bundled one with another template and another post-processor. */
/* run: quick */
#include <linnet.h>
#include <linnet_tools.h>
#include <linnet_train.h>

#include "../test_dir.h"
#include "base/json.h"

#define FORM                                                                                              \
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}:{% if m.content is defined %}{{ m.content }}{% " \
    "endif %}|{{ m.thinking }}]{% endfor %}"

static const char *const linked[] = {"config.json", "generation_config.json", "model.safetensors"};

/* Writes the bundled tokenizer with a post-processor that puts <|endoftext|> before every text. */
static void write_tokenizer(void) {
    json_t *root = NULL;
    assert_int_equal(ln_json_load_file(&root, LN_ROOT "/models/tiny/tokenizer.json", 1 << 26, NULL), LN_OK);
    json_t *post = json_pack("{s:s, s:[{s:{s:s,s:i}},{s:{s:s,s:i}}], s:[], s:{s:{s:s,s:[i],s:[s]}}}", "type",
                             "TemplateProcessing", "single", "SpecialToken", "id", "<|endoftext|>", "type_id",
                             0, "Sequence", "id", "A", "type_id", 0, "pair", "special_tokens",
                             "<|endoftext|>", "id", "<|endoftext|>", "ids", 4093, "tokens", "<|endoftext|>");
    assert_non_null(post);
    assert_int_equal(json_object_set_new(root, "post_processor", post), 0);
    char *text = json_dumps(root, JSON_COMPACT);
    put_text("tokenizer.json", text);
    free(text);
    json_decref(root);
}

static int setup(void **s) {
    if (dir_make(s) != 0) return 1;
    for (size_t i = 0; i < sizeof linked / sizeof *linked; i++) {
        char from[600];
        (void)snprintf(from, sizeof from, LN_ROOT "/models/tiny/%s", linked[i]);
        link_to(from, linked[i]);
    }
    write_tokenizer();
    put_text("chat_template.jinja", FORM);
    return 0;
}

/* Asserts the text that a request renders to, and the text of the ids that the model receives. */
static void both_render(const char *config, const char *request, const char *rendered, const char *sent) {
    ln_chat_template *t;
    ln_rendering r;
    ln_model *m;
    ln_error err = {0};
    int32_t ids[200];
    char text[400];
    size_t n, bytes;
    put_text("tokenizer_config.json", config);
    if (ln_chat_template_open(&t, test_dir, NULL, &err) != LN_OK) fail_msg("%s", err.message);
    if (ln_chat_template_render(t, request, strlen(request), &r, &err) != LN_OK) fail_msg("%s", err.message);
    assert_string_equal(r.text, rendered);
    ln_rendering_free(&r);
    ln_chat_template_close(&t);
    if (ln_model_open(&m, test_dir, NULL, &err) != LN_OK) fail_msg("%s", err.message);
    ln_prompt p = {.size = sizeof(ln_prompt), .request = request, .request_bytes = strlen(request)};
    if (ln_prompt_ids(m, &p, ids, 200, &n, &err) != LN_OK) fail_msg("%s", err.message);
    ln_tokenizer *tok;
    assert_int_equal(ln_tokenizer_open(&tok, test_dir, &err), LN_OK);
    assert_int_equal(ln_detokenize(tok, ids, n, false, text, sizeof text, &bytes, &err), LN_OK);
    text[bytes] = '\0';
    assert_string_equal(text, sent);
    assert_int_equal(n > 0 && ids[0] == 4093, strncmp(sent, "<|endoftext|>", 13) == 0);
    ln_tokenizer_close(&tok);
    ln_model_close(&m);
}

/* A directory without tokenizer_config.json, as some conversions leave it. */
static void a_template_alone(void **s) {
    (void)s;
    static const char hi[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}";
    ln_chat_template *t;
    ln_rendering r;
    ln_error err = {0};
    (void)unlink(at("tokenizer_config.json"));
    if (ln_chat_template_open(&t, test_dir, NULL, &err) != LN_OK) fail_msg("%s", err.message);
    if (ln_chat_template_render(t, hi, strlen(hi), &r, &err) != LN_OK) fail_msg("%s", err.message);
    assert_string_equal(r.text, "<|endoftext|>[user:Hi|]");
    ln_rendering_free(&r);
    ln_chat_template_close(&t);
}

static void one_bos(void **s) {
    (void)s;
    static const char hi[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}";
    both_render("{}", hi, "<|endoftext|>[user:Hi|]", "<|endoftext|>[user:Hi|]");
    both_render("{\"bos_token\":null}", hi, "[user:Hi|]", "[user:Hi|]"); /* null: the configuration says that
                                                                            there is no bos token */
    both_render("{\"bos_token\":\"<|im_start|>\"}", hi, "<|im_start|>[user:Hi|]", "<|im_start|>[user:Hi|]");
    both_render("{}", "{\"bos_token\":\"\",\"messages\":[{}]}", "[:|]", "[:|]");
}

static void requests_are_tidied(void **s) {
    (void)s;
    both_render("{\"bos_token\":null}",
                "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"reasoning\":\"R\"}]}",
                "[assistant:None|]", "[assistant:|R]");
}

/* A request without messages is rejected, as there is nothing to answer; the template alone may be rendered
 * without. */
static void requests_have_messages(void **s) {
    (void)s;
    static const struct {
        const char *request, *word;
    } rows[] = {{"{\"messages\":[]}", "at least one message"},
                {"{\"messages\":{}}", "expected an array"},
                {"{\"messages\":5}", "expected an array"},
                {"{}", "one of \"messages\" and \"context\""},
                {"[]", "expected an object"},
                {"{\"messages\":[{}", "expected"}};
    ln_model *m;
    ln_token_mask marked;
    ln_error err = {0};
    size_t n;
    put_text("tokenizer_config.json", "{}");
    assert_int_equal(ln_model_open(&m, test_dir, NULL, &err), LN_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ln_prompt p = {
            .size = sizeof(ln_prompt), .request = rows[i].request, .request_bytes = strlen(rows[i].request)};
        assert_int_equal(ln_prompt_ids(m, &p, NULL, 0, &n, &err), LN_EINVALID);
        if (!strstr(err.message, rows[i].word)) fail_msg("%s: %s", rows[i].request, err.message);
        assert_int_equal(ln_assistant_mask(m, &p, &marked, &err), LN_EINVALID);
    }
    ln_model_close(&m);
}

/* A template can be opened without a model next to it; a missing tokenizer changes nothing. */
static void templates_alone(void **s) {
    (void)s;
    static const char own[] = "{\"template\":\"{{ x }}\",\"context\":{\"x\":1}}",
                      refused[] = "{\"template\":\"{{ raise_exception('no') }}\",\"context\":{}}";
    char source[200];
    ln_chat_template *t;
    ln_rendering r;
    ln_error err = {0};
    size_t bytes;
    put_text("tokenizer_config.json", "{}");
    assert_int_equal(rename(at("tokenizer.json"), at("elsewhere")), 0);
    assert_int_equal(ln_chat_template_open(&t, test_dir, NULL, &err), LN_OK);
    assert_int_equal(ln_chat_template_source(t, source, sizeof source, &bytes, &err), LN_OK);
    assert_int_equal(bytes, strlen(FORM));
    assert_memory_equal(source, FORM, bytes);
    assert_int_equal(ln_chat_template_render(t, "{\"messages\":[]}", 15, &r, &err), LN_OK);
    assert_string_equal(r.text, "");
    ln_rendering_free(&r);
    ln_chat_template_close(&t);
    assert_int_equal(rename(at("elsewhere"), at("tokenizer.json")), 0);
    assert_int_equal(ln_chat_template_render(NULL, own, sizeof own - 1, &r, &err), LN_OK);
    assert_string_equal(r.text, "1");
    ln_rendering_free(&r);
    assert_int_equal(ln_chat_template_render(NULL, refused, sizeof refused - 1, &r, &err), LN_EINVALID);
    assert_string_equal(r.refused, "no");
    ln_rendering_free(&r);
}

/* The texts of the tokens that the assistant wrote, each followed by `bar`. */
static void marked_texts(const ln_model *m, const char *request, const char *bar, char out[200]) {
    const ln_prompt p = {.size = sizeof p, .request = request, .request_bytes = strlen(request)};
    ln_token_mask marked;
    ln_error err = {0};
    size_t n = 0, bytes;
    if (ln_assistant_mask(m, &p, &marked, &err) != LN_OK) fail_msg("%s: %s", request, err.message);
    for (size_t i = 0; i < marked.n_ids; i++) {
        if (!marked.mask[i]) continue;
        assert_int_equal(ln_detokenize(ln_model_tokenizer(m), &marked.ids[i], 1, false, out + n, 199 - n,
                                       &bytes, &err),
                         LN_OK);
        n += bytes;
        assert_true(n + strlen(bar) < 199);
        memcpy(out + n, bar, strlen(bar));
        n += strlen(bar);
    }
    out[n] = '\0';
    ln_token_mask_free(&marked);
}

#define TURNS(answer)                                                                                \
    "{% for m in messages %}{% if m.role == 'assistant' %}A: " answer "{% else %}U: {{ m.content }}" \
    "{% endif %}{{ '\n' }}{% endfor %}"
#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define SAYS(text) ",{\"role\":\"assistant\",\"content\":\"" text "\"}"

/* Tokens that cross the ends of a {% generation %} block count, as return_assistant_tokens_mask of
 * transformers has them: ' Y' begins before it, '.\n' ends after it. */
static void tokens_across_a_block(void **s) {
    (void)s;
    static const struct {
        const char *messages, *marked;
    } rows[] = {{USER("Hi.") SAYS("Yes."), " Y|es|.\n|"},
                {USER("Hi") SAYS("Yes") "," USER("And?") SAYS("No!!"), " Y|es| No|!|!\n|"},
                {USER("a") SAYS("\\\"\\\""), " \"|\"|"},
                {USER("a") SAYS(""), ""},
                {USER("a.") SAYS("b.") "," USER("."), " b|.\n|"}};
    ln_model *m;
    ln_error err = {0};
    char request[400], got[200];
    put_text("tokenizer_config.json", "{}");
    put_text("chat_template.jinja", TURNS("{% generation %}{{ m.content }}{% endgeneration %}"));
    assert_int_equal(ln_model_open(&m, test_dir, NULL, &err), LN_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        (void)snprintf(request, sizeof request, "{\"messages\":[%s]}", rows[i].messages);
        marked_texts(m, request, "|", got);
        assert_string_equal(got, rows[i].marked);
    }
    ln_model_close(&m);
    put_text("chat_template.jinja", FORM);
}

#define THINKS                                                                                            \
    "{% for m in messages %}{% if m.role == 'assistant' %}[A]{{ m.content.split('</think>')[-1] }}[E]{% " \
    "else "                                                                                               \
    "%}[U]{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}[A]<think>\n{% endif %}"
#define ROLES                                                                                         \
    "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}{% if add_generation_prompt %}" \
    "[assistant]<think>\n{% endif %}"

/* A template that writes <think> before an answer, and turns without it, as DeepSeek R1's: a turn begins
 * where the two part, also if its text begins as the header goes on. */
static void turns_without_the_header(void **s) {
    (void)s;
    static const struct {
        const char *form, *messages, *marked;
    } rows[] = {{THINKS, USER("a") SAYS("Yes."), "Yes.[E]"},
                {THINKS, USER("a") SAYS("<think>r</think>Yes") "," USER("b") SAYS("No"), "Yes[E]No[E]"},
                {THINKS, USER("a") SAYS("<this>"), "<this>[E]"},
                {THINKS, USER("a") SAYS(""), "[E]"},
                {ROLES, USER("a") SAYS("<t") "," USER("b") SAYS("No"), "<t;No;"}};
    ln_model *m;
    ln_error err = {0};
    char request[400], got[200];
    put_text("tokenizer_config.json", "{}");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_text("chat_template.jinja", rows[i].form);
        assert_int_equal(ln_model_open(&m, test_dir, NULL, &err), LN_OK);
        (void)snprintf(request, sizeof request, "{\"messages\":[%s]}", rows[i].messages);
        marked_texts(m, request, "", got);
        assert_string_equal(got, rows[i].marked);
        ln_model_close(&m);
    }
    put_text("chat_template.jinja", FORM);
}

/* Messages about a chat template and a post-processor name the file that has them. */
static void messages_name_the_file(void **state) {
    (void)state;
    ln_error err = {0};
    ln_chat_template *t = NULL;
    ln_tokenizer *tok = NULL;
    drop("chat_template.jinja");
    put_text("tokenizer_config.json", "{\"chat_template\":{\"a\":1}}");
    assert_int_equal(ln_chat_template_open(&t, test_dir, NULL, &err), LN_EINVALID);
    assert_non_null(strstr(err.message, "tokenizer_config.json: chat_template: expected a text"));
    put_text("tokenizer_config.json", "{\"chat_template\":\"{% if %}\"}");
    assert_int_equal(ln_chat_template_open(&t, test_dir, NULL, &err), LN_EINVALID);
    assert_non_null(strstr(err.message, "tokenizer_config.json: chat_template"));
    put_text("chat_template.jinja", "{% if %}");
    assert_int_equal(ln_chat_template_open(&t, test_dir, NULL, &err), LN_EINVALID);
    assert_non_null(strstr(err.message, "chat_template.jinja"));
    put_text("tokenizer.json", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},"
                               "\"post_processor\":{\"type\":\"Unknown\"}}");
    assert_int_equal(ln_tokenizer_open(&tok, test_dir, &err), LN_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "tokenizer.json: post_processor: the type 'Unknown'"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_bos),
                                       cmocka_unit_test(a_template_alone),
                                       cmocka_unit_test(requests_are_tidied),
                                       cmocka_unit_test(requests_have_messages),
                                       cmocka_unit_test(templates_alone),
                                       cmocka_unit_test(tokens_across_a_block),
                                       cmocka_unit_test(turns_without_the_header),
                                       cmocka_unit_test(messages_name_the_file)};
    return cmocka_run_group_tests(tests, setup, dir_remove);
}
