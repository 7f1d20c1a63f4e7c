/* What the server answers: conversations and completions, whole and streamed, tokens and texts, models,
 * metrics. One server on the bundled model serves all cases. */
/* run: slow tsan-long */
#include "server_test.h"

#include <math.h>

#define CHAT "/v1/chat/completions"
#define ASK  "\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a short story.\"}]"

/* What a stream's chunks amount to. */
typedef struct whole {
    ln_str text[4], reasoning[4];
    char finish[4][16];
    char id[64], object[40];
    int n_chunks, n_roles, n_usage, n_null_usage, n_timings;
    json_t *usage;
    json_t *logprobs[4]; /* lists that were put together */
    ln_str offsets[4];
} whole;

static void add_chunk(void *user, const json_t *e) {
    whole *w = user;
    w->n_chunks++;
    if (w->id[0]) assert_string_equal(w->id, text_at(e, "id"));
    (void)snprintf(w->id, sizeof w->id, "%s", text_at(e, "id"));
    (void)snprintf(w->object, sizeof w->object, "%s", text_at(e, "object"));
    assert_string_equal(text_at(e, "model"), "tiny");
    w->n_null_usage += json_is_null(json_object_get(e, "usage"));
    w->n_timings += json_object_get(e, "timings") != NULL;
    if (json_array_size(at(e, "choices")) == 0) {
        w->n_usage++;
        w->usage = json_deep_copy(json_object_get(e, "usage"));
        return;
    }
    const int64_t i = int_at(e, "choices.0.index");
    assert_true(i >= 0 && i < 4);
    assert_string_equal(w->finish[i], "");
    const json_t *text = at(e, "choices.0.delta.content"), *plain = at(e, "choices.0.text");
    if (text) ln_str_add(&w->text[i], json_string_value(text), json_string_length(text));
    if (plain) ln_str_add(&w->text[i], json_string_value(plain), json_string_length(plain));
    if (at(e, "choices.0.delta.role")) {
        w->n_roles++;
        assert_int_equal(w->text[i].len, 0);
    }
    const char *finish = json_string_value(at(e, "choices.0.finish_reason"));
    if (finish) (void)snprintf(w->finish[i], sizeof w->finish[i], "%s", finish);
    const json_t *lp = at(e, "choices.0.logprobs"), *list = at(lp, "content");
    if (!list) list = at(lp, "token_logprobs");
    if (!w->logprobs[i]) w->logprobs[i] = json_array();
    if (list) (void)json_array_extend(w->logprobs[i], (json_t *)(uintptr_t)list);
    for (size_t k = 0; k < json_array_size(at(lp, "text_offset")); k++)
        ln_str_addf(&w->offsets[i], "%lld ",
                    (long long)json_integer_value(json_array_get(at(lp, "text_offset"), k)));
}

static whole stream(const char *path, const char *body) {
    whole w = {0};
    reply r = post(path, body);
    if (r.status != 200) fail_msg("%d: %s", r.status, r.body.data);
    assert_string_equal(field_of(&r, "content-type"), "text/event-stream; charset=utf-8");
    assert_int_equal(each_event(&r.body, add_chunk, &w), 1);
    drop_reply(&r);
    return w;
}

static void drop_whole(whole *w) {
    for (int i = 0; i < 4; i++) {
        ln_str_free(&w->text[i]);
        ln_str_free(&w->offsets[i]);
        json_decref(w->logprobs[i]);
    }
    json_decref(w->usage);
}

static json_t *answer(const char *path, const char *body) {
    reply r = post(path, body);
    if (r.status != 200) fail_msg("%d: %s", r.status, r.body.data ? r.body.data : "");
    json_t *root = json_of(&r);
    drop_reply(&r);
    return root;
}

static void a_conversation_is_answered(void **state) {
    (void)state;
    json_t *a = answer(CHAT, "{" ASK ",\"max_tokens\":40,\"temperature\":0}");
    assert_string_equal(text_at(a, "object"), "chat.completion");
    assert_memory_equal(text_at(a, "id"), "chatcmpl-", 9);
    assert_memory_equal(text_at(a, "system_fingerprint"), "linnet-", 7);
    assert_string_equal(text_at(a, "choices.0.message.role"), "assistant");
    assert_memory_equal(text_at(a, "choices.0.message.content"), "Near the hill lived a little boy", 32);
    assert_string_equal(text_at(a, "choices.0.finish_reason"), "length");
    assert_int_equal(int_at(a, "usage.prompt_tokens"), 14);
    assert_int_equal(int_at(a, "usage.completion_tokens"), 40);
    assert_int_equal(int_at(a, "usage.total_tokens"), 54);
    assert_int_equal(int_at(a, "timings.predicted_n"), 40);
    assert_int_equal(int_at(a, "timings.prompt_n") + int_at(a, "timings.cache_n"), 14);
    json_t *again = answer(CHAT, "{" ASK ",\"max_tokens\":40,\"temperature\":0}");
    assert_string_equal(text_at(a, "choices.0.message.content"), text_at(again, "choices.0.message.content"));
    assert_true(int_at(again, "usage.prompt_tokens_details.cached_tokens") > 0);
    json_decref(again);
    json_decref(a);
}

/* A cut answer that is sent back goes on as if it had not been cut. */
static void a_cut_answer_goes_on(void **state) {
    (void)state;
    ln_str body = {0}, all = {0};
    json_t *whole = answer(CHAT, "{" ASK ",\"max_tokens\":60,\"temperature\":0}"),
           *cut = answer(CHAT, "{" ASK ",\"max_tokens\":21,\"temperature\":0}");
    const char *text = text_at(cut, "choices.0.message.content");
    ln_str_adds(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a short story.\"},"
                       "{\"role\":\"assistant\",\"content\":");
    ln_str_json(&body, text, strlen(text));
    ln_str_adds(&body, "}],\"continue_final_message\":true,\"add_generation_prompt\":false,\"max_tokens\":39,"
                       "\"temperature\":0}");
    json_t *rest = answer(CHAT, body.data);
    ln_str_adds(&all, text);
    ln_str_adds(&all, text_at(rest, "choices.0.message.content"));
    assert_string_equal(all.data, text_at(whole, "choices.0.message.content"));
    assert_true(int_at(rest, "usage.prompt_tokens_details.cached_tokens") > 14);
    json_decref(whole), json_decref(cut), json_decref(rest);
    ln_str_free(&body);
    ln_str_free(&all);
}

/* The chunks of a stream put together are the answer without one. */
static void a_stream_is_the_answer_in_pieces(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {CHAT, "{" ASK ",\"max_tokens\":60,\"temperature\":0%s}"},
        {CHAT, "{" ASK ",\"max_tokens\":30,\"seed\":5,\"n\":3,\"logprobs\":true,\"top_logprobs\":2%s}"},
        {CHAT, "{" ASK ",\"max_tokens\":60,\"temperature\":0,\"stop\":[\"windy "
               "day\",\"zzz\"],\"logprobs\":true%s}"},
        {CHAT, "{" ASK ",\"max_tokens\":200,\"temperature\":1.9,\"seed\":11,\"ignore_eos\":true%s}"},
        {"/v1/completions", "{\"prompt\":\"Once "
                            "upon\",\"max_tokens\":20,\"temperature\":0,\"logprobs\":1%s}"},
        {"/v1/completions", "{\"prompt\":[\"One\",\"Two\"],\"max_tokens\":9,\"seed\":3,\"n\":2,\"echo\":true%"
                            "s}"},
        {"/v1/completions", "{\"prompt\":[12,300,7],\"max_tokens\":5,\"temperature\":0,\"echo\":true,"
                            "\"logprobs\":2%s}"},
    };
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        char plain[400], streamed[400];
        (void)snprintf(plain, sizeof plain, cases[i][1], "");
        (void)snprintf(streamed, sizeof streamed, cases[i][1],
                       i % 2 ? ",\"stream\":true"
                             : ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
        const bool chat = strcmp(cases[i][0], CHAT) == 0;
        json_t *a = answer(cases[i][0], plain);
        whole w = stream(cases[i][0], streamed);
        const size_t n = json_array_size(at(a, "choices"));
        assert_string_equal(w.object, chat ? "chat.completion.chunk" : "text_completion");
        assert_int_equal(w.n_roles, chat ? n : 0);
        assert_int_equal(w.n_usage, i % 2 ? 0 : 1);
        assert_int_equal(w.n_null_usage, i % 2 ? 0 : w.n_chunks - 1);
        assert_int_equal(w.n_timings, 1);
        if (w.usage) {
            assert_int_equal(int_at(w.usage, "prompt_tokens"), int_at(a, "usage.prompt_tokens"));
            assert_int_equal(int_at(w.usage, "completion_tokens"), int_at(a, "usage.completion_tokens"));
        }
        for (size_t k = 0; k < n; k++) {
            const json_t *c = json_array_get(at(a, "choices"), k);
            const json_t *text = chat ? at(c, "message.content") : at(c, "text");
            assert_int_equal(w.text[k].len, json_string_length(text));
            assert_memory_equal(w.text[k].data ? w.text[k].data : "", json_string_value(text), w.text[k].len);
            assert_string_equal(w.finish[k], text_at(c, "finish_reason"));
            const json_t *list = chat ? at(c, "logprobs.content") : at(c, "logprobs.token_logprobs");
            if (list && !json_equal((json_t *)(uintptr_t)list, w.logprobs[k]))
                fail_msg("case %zu: the log-probabilities of choice %zu differ", i, k);
            ln_str offsets = {0};
            ln_str_adds(&offsets, "");
            const json_t *o = at(c, "logprobs.text_offset");
            for (size_t j = 0; j < json_array_size(o); j++)
                ln_str_addf(&offsets, "%lld ", (long long)json_integer_value(json_array_get(o, j)));
            if (o) assert_string_equal(offsets.data, w.offsets[k].data);
            ln_str_free(&offsets);
        }
        drop_whole(&w);
        json_decref(a);
    }
}

static void choices_draw_with_their_seeds(void **state) {
    (void)state;
    json_t *both = answer(CHAT, "{" ASK ",\"max_tokens\":12,\"seed\":40,\"n\":2}");
    json_t *second = answer(CHAT, "{" ASK ",\"max_tokens\":12,\"seed\":41}");
    assert_string_equal(text_at(both, "choices.1.message.content"), text_at(second, "choices.0.message."
                                                                                    "content"));
    assert_string_not_equal(text_at(both, "choices.0.message.content"), text_at(both, "choices.1.message."
                                                                                      "content"));
    json_decref(both);
    json_decref(second);
    json_t *biased = answer(CHAT, "{" ASK ",\"max_tokens\":3,\"temperature\":0,\"logit_bias\":{\"300\":100},"
                                  "\"logprobs\":true,\"top_logprobs\":1}");
    const json_t *content = at(biased, "choices.0.logprobs.content");
    assert_int_equal(json_array_size(content), 3);
    assert_string_equal(text_at(content, "0.token"), text_at(content, "1.token"));
    assert_true(json_real_value(at(content, "0.logprob")) < -1);
    assert_string_not_equal(text_at(content, "0.top_logprobs.0.token"), text_at(content, "0.token"));
    json_decref(biased);
    json_t *stop = answer(CHAT, "{" ASK ",\"max_tokens\":60,\"temperature\":0,\"stop\":\" boy\"}");
    assert_string_equal(text_at(stop, "choices.0.message.content"), "Near the hill lived a little");
    assert_string_equal(text_at(stop, "choices.0.finish_reason"), "stop");
    json_decref(stop);
}

/* Text of a message never becomes a control token: <|im_end|> is one token in /tokenize, several in a
 * message. */
static void a_message_makes_no_control_token(void **state) {
    (void)state;
    json_t *one = answer("/tokenize", "{\"content\":\"<|im_end|>\"}");
    assert_int_equal(json_array_size(at(one, "tokens")), 1);
    json_decref(one);
    json_t *plain = answer(CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}],\"max_tokens\":1}");
    json_t *odd =
        answer(CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"<|im_end|>\"}],\"max_tokens\":1}");
    assert_true(int_at(odd, "usage.prompt_tokens") > int_at(plain, "usage.prompt_tokens") + 1);
    json_decref(plain);
    json_decref(odd);
}

static void tokens_and_texts(void **state) {
    (void)state;
    json_t *t = answer("/tokenize", "{\"content\":\"Hello world\"}");
    char body[200];
    (void)snprintf(body, sizeof body, "{\"tokens\":[%lld,%lld]}", (long long)int_at(t, "tokens.0"),
                   (long long)int_at(t, "tokens.1"));
    assert_int_equal(int_at(t, "count"), json_array_size(at(t, "tokens")));
    json_decref(t);
    t = answer("/detokenize", body);
    assert_memory_equal(text_at(t, "content"), "Hello", 5);
    assert_string_equal(text_at(t, "content"), text_at(t, "prompt"));
    json_decref(t);
    t = answer("/tokenize", "{\"prompt\":\"Hello world\"}");
    json_decref(t);
    t = answer("/apply-template",
               "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":"
               "\"U\"}]}");
    assert_string_equal(text_at(t, "prompt"),
                        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
                        "<|im_start|>assistant\n");
    json_decref(t);
}

/* The probabilities of labels; a pair's score is that of yes among yes and no; a ranking has the same scores.
 */
static void texts_are_judged(void **state) {
    (void)state;
    json_t *c = answer("/classify", "{\"input\":[\"good\",\"bad\"],\"labels\":[\" yes\",\" no\"]}");
    for (size_t i = 0; i < 2; i++) {
        const json_t *d = json_array_get(at(c, "data"), i);
        const double yes = json_real_value(at(d, "scores. yes")), no = json_real_value(at(d, "scores. no"));
        const double p = 1 / (1 + exp(no - yes));
        assert_int_equal(int_at(d, "index"), i);
        assert_true(fabs(json_real_value(at(d, "probs.0")) - p) < 1e-12);
        assert_string_equal(text_at(d, "label"), p > 0.5 ? " yes" : " no");
    }
    json_decref(c);
    json_t *s = answer("/score", "{\"text_1\":\"q\",\"text_2\":[\"a\",\"b\",\"c\"]}");
    json_t *r = answer("/rerank", "{\"query\":\"q\",\"documents\":[\"a\",{\"text\":\"b\"},\"c\"],\"top_n\":2,"
                                  "\"return_documents\":true}");
    json_t *chat =
        answer("/classify",
               "{\"input\":\"<Instruct>: Given a web search query, retrieve relevant passages that "
               "answer the query\\n<Query>: q\\n<Document>: b\",\"system\":\"Judge whether the "
               "Document meets the requirements based on the Query and the Instruct provided. Note "
               "that the answer can only be \\\"yes\\\" or \\\"no\\\".\",\"labels\":[\"no\",\"yes\"]}");
    assert_int_equal(json_array_size(at(s, "data")), 3);
    assert_int_equal(json_array_size(at(r, "results")), 2);
    double before = 2;
    for (size_t i = 0; i < 2; i++) {
        const json_t *d = json_array_get(at(r, "results"), i);
        const json_t *same = json_array_get(at(s, "data"), (size_t)int_at(d, "index"));
        const double p = json_real_value(at(d, "relevance_score"));
        assert_true(p == json_real_value(at(same, "score")) && p <= before);
        assert_int_equal(text_at(d, "document.text")[0], "abc"[int_at(d, "index")]);
        before = p;
    }
    assert_true(json_real_value(at(s, "data.1.score")) == json_real_value(at(chat, "data.0.probs.1")));
    json_decref(chat);
    json_decref(s);
    json_decref(r);
}

/* Every object of a body says which keys it takes: those without U+0000, because bodies reject the others. */
static void check_keys(const json_t *schema, const char *name) {
    const char *key;
    json_t *item;
    size_t i;
    const json_t *type = json_object_get(schema, "type");
    if (json_is_string(type) && strcmp(json_string_value(type), "object") == 0 &&
        !json_object_get(schema, "propertyNames"))
        fail_msg("%s: an object without propertyNames", name);
    json_object_foreach((json_t *)(uintptr_t)schema, key, item) check_keys(item, key);
    json_array_foreach(schema, i, item) check_keys(item, name);
}

static void models_and_measurements(void **state) {
    (void)state;
    reply r = call("GET", "/v1/models", "", NULL);
    json_t *m = json_of(&r);
    assert_string_equal(text_at(m, "data.0.id"), "tiny");
    assert_int_equal(int_at(m, "data.0.max_model_len"), 1024);
    json_decref(m);
    drop_reply(&r);
    r = call("GET", "/v1/models/t%69ny", "", NULL);
    assert_int_equal(r.status, 200);
    drop_reply(&r);
    r = call("GET", "/v1/models/other", "", NULL);
    assert_int_equal(r.status, 404);
    drop_reply(&r);
    r = call("GET", "/metrics", "", NULL);
    assert_string_equal(field_of(&r, "content-type"), "text/plain; version=0.0.4; charset=utf-8");
    static const char *const names[] = {
        "\nlinnet_requests_running ",          "\nlinnet_requests_waiting ",
        "\nlinnet_prompt_tokens_total ",       "\nlinnet_generated_tokens_total ",
        "\nlinnet_first_token_seconds_count ", "\nlinnet_http_requests_total{"};
    for (size_t i = 0; i < LN_COUNT(names); i++)
        if (!strstr(r.body.data, names[i])) fail_msg("no '%s' in the metrics", names[i] + 1);
    /* what promtool checks: HELP and TYPE before each name, counters end in _total */
    for (const char *p = r.body.data; (p = strstr(p, "# TYPE ")); p++) {
        char name[80], kind[20];
        assert_int_equal(sscanf(p, "# TYPE %79s %19s", name, kind), 2);
        const size_t n = strlen(name);
        if ((strcmp(kind, "counter") == 0) != (n > 6 && strcmp(name + n - 6, "_total") == 0))
            fail_msg("%s is a %s", name, kind);
    }
    drop_reply(&r);
    assert_int_equal(status_at("parallel"), 8);
    r = call("GET", "/openapi.json", "", NULL);
    json_t *doc = json_of(&r);
    const char *path;
    json_t *item;
    json_object_foreach(json_object_get(doc, "paths"), path,
                        item) { /* each path of the document is answered */
        const bool posts = json_object_get(item, "post") != NULL;
        if (strchr(path, '{')) continue;
        reply a = call(posts ? "POST" : "GET", path, posts ? JSON : "", posts ? "{}" : NULL);
        const int wanted = !posts ? 200 : strstr(path, "lora") ? 403 : 400; /* adapters need --lora-dir */
        if (a.status != wanted) fail_msg("%s: %d", path, a.status);
        drop_reply(&a);
    }
    assert_true(json_object_size(json_object_get(doc, "paths")) > 20);
    json_t *schemas = json_object_get(json_object_get(doc, "components"), "schemas");
    assert_int_equal(json_object_del(schemas, "Error"), 0); /* the server's own */
    assert_int_equal(json_object_del(schemas, "OllamaError"), 0);
    check_keys(schemas, "schemas");
    json_decref(doc);
    drop_reply(&r);
    assert_int_equal(status_at("kv.used"), 0);
}

static int start_server(void **state) {
    (void)state;
    START("--log-format", "none");
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_is_answered),
        cmocka_unit_test(a_stream_is_the_answer_in_pieces),
        cmocka_unit_test(a_cut_answer_goes_on),
        cmocka_unit_test(choices_draw_with_their_seeds),
        cmocka_unit_test(a_message_makes_no_control_token),
        cmocka_unit_test(tokens_and_texts),
        cmocka_unit_test(models_and_measurements),
        cmocka_unit_test(texts_are_judged),
    };
    return cmocka_run_group_tests(tests, start_server, end_with_0);
}
