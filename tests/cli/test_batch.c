/* linnet batch from outside: a file of requests is answered once each, with the bytes that `linnet run`
 * gives, whatever runs at the same time; killed at any answer and started again it loses and repeats
 * nothing. */
/* run: slow */
#include "../fewer.h"
#include "stop_at.h"

static void drop(const char *leaf) { (void)unlink(at(3, leaf)); }

static void drop_answers(void) {
    drop("out.jsonl");
    drop("out.jsonl.state");
}

static void write_in(const char *text, size_t bytes) {
    FILE *f = fopen(at(0, "in.jsonl"), "wb");
    assert_true(f && fwrite(text, 1, bytes, f) == bytes && fclose(f) == 0);
}

/* ---- reading answers ---- */

typedef struct answers {
    json_t *rows[512];
    size_t n;
} answers;

static answers read_answers(void) {
    answers a = {.n = 0};
    char *text;
    size_t bytes;
    ln_error err;
    assert_int_equal(ln_read_file(at(0, "out.jsonl"), 64 << 20, &text, &bytes, &err), LN_OK);
    assert_true(bytes > 0 && text[bytes - 1] == '\n');
    for (char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        assert_true(a.n < LN_COUNT(a.rows));
        if (ln_json_load(&a.rows[a.n++], "out.jsonl", line, (size_t)(end - line), &err) != LN_OK)
            fail_msg("line %zu: %s", a.n, err.message);
    }
    ln_free(text);
    return a;
}

static void free_answers(answers *a) {
    for (size_t i = 0; i < a->n; i++) json_decref(a->rows[i]);
    a->n = 0;
}

/* The answer to a request; fails unless there is exactly one. */
static const json_t *answer_to(const answers *a, const char *id) {
    const json_t *found = NULL;
    for (size_t i = 0; i < a->n; i++) {
        if (strcmp(text_of(a->rows[i], "custom_id"), id) != 0) continue;
        if (found) fail_msg("two answers to %s", id);
        found = a->rows[i];
    }
    if (!found) fail_msg("no answer to %s", id);
    return found;
}

static const json_t *body_of(const answers *a, const char *id) {
    const json_t *r = json_object_get(answer_to(a, id), "response");
    if (int_of(r, "status_code") != 200 || !json_is_null(json_object_get(answer_to(a, id), "error")))
        fail_msg("%s failed", id);
    return json_object_get(r, "body");
}

static const json_t *choice_of(const answers *a, const char *id, size_t i) {
    return json_array_get(json_object_get(body_of(a, id), "choices"), i);
}

static const char *error_of(const answers *a, const char *id, int status) {
    const json_t *row = answer_to(a, id), *r = json_object_get(row, "response");
    assert_int_equal(int_of(r, "status_code"), status);
    const json_t *error = json_object_get(json_object_get(r, "body"), "error");
    assert_string_equal(text_of(error, "message"), text_of(json_object_get(row, "error"), "message"));
    return text_of(error, "message");
}

/* ---- one file, request by request ---- */

static const char mixed[] =
    "{\"custom_id\":\"chat\",\"method\":\"POST\",\"url\":\"/v1/chat/"
    "completions\",\"body\":{\"model\":\"tiny\",\"messages\":["
    "{\"role\":\"user\",\"content\":\"Tell me a short "
    "story.\"}],\"max_tokens\":30,\"temperature\":0.9,\"seed\":11,\"n\":2}}\n"
    "{\"custom_id\":\"text\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"Once "
    "upon a time\","
    "\"max_tokens\":25,\"temperature\":0.8,\"top_k\":40,\"seed\":5}}\n"
    "{\"custom_id\":\"greedy\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"Once "
    "upon a time\","
    "\"max_tokens\":12,\"temperature\":0,\"logprobs\":2,\"stream\":true}}\n"
    "{\"custom_id\":\"several\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":[\"The "
    "cat\",[1,2,3]],"
    "\"n\":2,\"max_tokens\":5,\"seed\":3}}\n"
    "{\"custom_id\":\"scored\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"The "
    "cat sat.\","
    "\"max_tokens\":0,\"echo\":true,\"logprobs\":0}}\n"
    "{\"custom_id\":\"long\",\"method\":\"POST\",\"url\":\"/v1/chat/"
    "completions\",\"body\":{\"messages\":[{\"role\":\"user\","
    "\"content\":\"Hi\"}],\"max_tokens\":1000000,\"ignore_eos\":true,\"temperature\":0}}\n";

/* The text that `linnet run` gives with these flags. */
static void same_as_run(const char *text, const char *prompt, bool raw, char *n, char *seed, char *temp,
                        char *top_k) {
    char p[100];
    (void)snprintf(p, sizeof p, "%s", prompt);
    json_t *one = json_of(RUN(S("run"), S(TINY), S("-p"), p, S("-n"), n, S("--seed"), seed, S("--temp"), temp,
                              S("--top-k"), top_k, S("--json"), raw ? S("--raw") : S("-v")));
    assert_string_equal(text, text_of(one, "text"));
    json_decref(one);
}

static void check_mixed(void) {
    answers a = read_answers();
    assert_int_equal(a.n, 6);
    const json_t *chat = body_of(&a, "chat");
    assert_string_equal(text_of(chat, "object"), "chat.completion");
    assert_string_equal(text_of(chat, "model"), "tiny");
    same_as_run(text_of(json_object_get(choice_of(&a, "chat", 0), "message"), "content"), STORY, false,
                S("30"), S("11"), S("0.9"), S("0"));
    same_as_run(text_of(json_object_get(choice_of(&a, "chat", 1), "message"), "content"), STORY, false,
                S("30"), S("12"), S("0.9"), S("0"));
    same_as_run(text_of(choice_of(&a, "text", 0), "text"), "Once upon a time", true, S("25"), S("5"),
                S("0.8"), S("40"));
    same_as_run(text_of(choice_of(&a, "greedy", 0), "text"), "Once upon a time", true, S("12"), S("0"),
                S("0"), S("0"));
    const json_t *logprobs = json_object_get(choice_of(&a, "greedy", 0), "logprobs");
    assert_int_equal(json_array_size(json_object_get(logprobs, "tokens")), 12);
    assert_int_equal(json_object_size(json_array_get(json_object_get(logprobs, "top_logprobs"), 3)), 2);
    assert_int_equal(json_array_size(json_object_get(body_of(&a, "several"), "choices")), 4);
    same_as_run(text_of(choice_of(&a, "several", 1), "text"), "The cat", true, S("5"), S("4"), S("1"),
                S("0"));
    assert_string_equal(text_of(choice_of(&a, "long", 0), "finish_reason"), "length");
    const json_t *usage = json_object_get(body_of(&a, "long"), "usage");
    assert_int_equal(int_of(usage, "total_tokens"), 1024 + 1); /* the last token needs no position */
    free_answers(&a);
}

/* The log-probabilities of an echoed prompt are those of `linnet score`. */
static void check_scored(void) {
    answers a = read_answers();
    const json_t *logprobs =
        json_object_get(json_object_get(choice_of(&a, "scored", 0), "logprobs"), "token_logprobs");
    assert_string_equal(text_of(choice_of(&a, "scored", 0), "text"), "The cat sat.");
    json_t *score = json_of(RUN(S("score"), S(TINY), S("The cat sat."), S("--json")));
    assert_true(json_equal(logprobs, json_object_get(score, "logprobs")));
    json_decref(score);
    free_answers(&a);
}

static void answers_of_run(void **state) {
    (void)state;
    static const char *const parallel[] = {"1", "3", "8"};
    for (size_t i = 0; i < LN_COUNT(parallel); i++) {
        char n[8];
        (void)snprintf(n, sizeof n, "%s", parallel[i]);
        drop_answers();
        write_in(mixed, strlen(mixed));
        json_t *report = json_of(RUN(S("batch"), S("tiny"), at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl"),
                                     S("--json"), S("--parallel"), n));
        assert_non_null(strstr(last->err, "stream"));
        assert_int_equal(int_of(report, "requests"), 6);
        assert_int_equal(int_of(report, "done"), 6);
        assert_int_equal(int_of(report, "failed"), 0);
        json_decref(report);
        assert_false(ln_exists(at(0, "out.jsonl.state")));
        check_mixed();
        check_scored();
    }
    expect(RUN(S("batch"), S("tiny"), at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl")), 5, "--force");
    drop_answers();
}

/* ---- errors ---- */

static void rows_that_fail(void **state) {
    (void)state;
    ln_str s = {0};
    ln_str_adds(&s, "{\"custom_id\":\"good\",\"method\":\"POST\",\"url\":\"/v1/"
                    "completions\",\"body\":{\"prompt\":\"a\",\"max_tokens\":2}}\n"
                    "{\"custom_id\":\"model\",\"method\":\"POST\",\"url\":\"/v1/"
                    "completions\",\"body\":{\"prompt\":\"a\",\"model\":\"gpt-4\"}}\n"
                    "{\"custom_id\":\"field\",\"method\":\"POST\",\"url\":\"/v1/"
                    "completions\",\"body\":{\"prompt\":\"a\",\"top_p\":2}}\n"
                    "{\"custom_id\":\"form\",\"method\":\"POST\",\"url\":\"/v1/chat/"
                    "completions\",\"body\":{\"messages\":[{\"role\":\"user\","
                    "\"content\":\"a\"}],\"response_format\":{\"type\":\"xml\"}}}\n"
                    "{\"custom_id\":\"url\",\"method\":\"POST\",\"url\":\"/v1/embeddings\",\"body\":{}}\n"
                    "{\"custom_id\":\"method\",\"method\":\"GET\",\"url\":\"/v1/completions\",\"body\":{}}\n"
                    "{\"custom_id\":\"empty\",\"method\":\"POST\",\"url\":\"/v1/"
                    "completions\",\"body\":{\"prompt\":\"\"}}\n"
                    "{\"custom_id\":\"long\",\"method\":\"POST\",\"url\":\"/v1/"
                    "completions\",\"body\":{\"prompt\":[0");
    for (int i = 0; i < 1500; i++) ln_str_adds(&s, ",5");
    ln_str_adds(&s, "]}}\n{\"custom_id\":\"last\",\"method\":\"POST\",\"url\":\"/v1/"
                    "completions\",\"body\":{\"prompt\":\"b\"}}\n");
    write_in(s.data, s.len);
    ln_str_free(&s);
    drop_answers();
    outcome *o = RUN(S("batch"), S("tiny"), at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl"));
    expect(o, 3, "7 of 9 requests failed");
    assert_non_null(strstr(o->out, "out.jsonl: 9 of 9 requests answered, 7 with an error\n"));
    answers a = read_answers();
    assert_int_equal(a.n, 9);
    (void)body_of(&a, "good");
    (void)body_of(&a, "last");
    assert_non_null(strstr(error_of(&a, "model", 404), "known: tiny"));
    assert_non_null(strstr(error_of(&a, "field", 400), "top_p"));
    assert_non_null(strstr(error_of(&a, "form", 400), "response_format"));
    assert_non_null(strstr(error_of(&a, "url", 404), "/v1/embeddings"));
    assert_non_null(strstr(error_of(&a, "method", 405), "GET"));
    (void)error_of(&a, "empty", 400);
    assert_non_null(strstr(error_of(&a, "long", 400), "1501"));
    assert_non_null(strstr(error_of(&a, "long", 400), "context"));
    free_answers(&a);
    drop_answers();
}

static void files_that_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *said;
    } rows[] = {{"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/"
                 "completions\",\"body\":{\"prompt\":\"a\"}}\n{bad\n",
                 "line 2"},
                {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}\n"
                 "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}\n",
                 "line 2: the custom_id 'a'"},
                {"", "expected a request"}};
    drop_answers();
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        write_in(rows[i].text, strlen(rows[i].text));
        expect(RUN(S("batch"), S("tiny"), at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl")), 3, rows[i].said);
        assert_false(ln_exists(at(0, "out.jsonl")));
        assert_false(ln_exists(at(0, "out.jsonl.state")));
    }
    expect(RUN(S("batch"), S("tiny"), at(0, "absent"), S("-o"), at(1, "out.jsonl")), 5, "absent");
    expect(RUN(S("batch"), S("tiny"), S("-"), S("-o"), at(1, "out.jsonl")), 2, "save them to a file");
    expect(RUN(S("batch"), S("tiny"), at(0, "in.jsonl")), 2, "-o");
    expect(RUN(S("batch"), S("tiny"), S("-o"), at(1, "out.jsonl")), 2, "IN.jsonl");
    expect(RUN(S("batch")), 2, "MODEL");
}

/* A file that was written for another service names a model that is not here: it is rejected before anything
 * is loaded, by its first such line; --name and --alias accept the name. If other bodies are for the model,
 * the line gets its error (rows_that_fail). */
static void names_of_other_services(void **state) {
    (void)state;
    static const char text[] =
        "\n"
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/"
        "completions\",\"body\":{\"model\":\"gpt-4o-mini\","
        "\"prompt\":\"a\",\"max_tokens\":1}}\n"
        "{\"custom_id\":\"b\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"model\":\"o3\","
        "\"prompt\":\"a\",\"max_tokens\":1}}\n";
    write_in(text, sizeof text - 1);
    drop_answers();
    outcome *o = RUN(S("batch"), S("tiny"), at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl"));
    expect(o, 3,
           "in.jsonl: line 2: model: there is no model 'gpt-4o-mini' here; known: tiny; --name or --alias");
    assert_false(ln_exists(at(1, "out.jsonl")) || ln_exists(at(1, "out.jsonl.state")));
    expect(RUN(S("batch"), S("tiny"), at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl"), S("--alias"), S("*")),
           0, NULL);
    answers a = read_answers();
    assert_int_equal(a.n, 2);
    assert_string_equal(text_of(body_of(&a, "b"), "model"), "tiny");
    free_answers(&a);
    drop_answers();
    expect(RUN(S("batch"), S("tiny"), at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl"), S("--name"), S("o3"),
               S("--alias"), S("gpt-4o-mini"), S("--alias"), S("tiny")),
           0, NULL);
    drop_answers();
    expect(RUN(S("batch"), S("tiny"), at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl"), S("--name"), S("o3")),
           3, "1 of 2 requests failed");
    drop_answers();
    expect(RUN(S("batch"), S("tiny"), at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl"), S("--alias"), S("")), 2,
           "--alias");
}

static int64_t planned(const char *what, char *parallel) {
    json_t *p = json_of(RUN(S("plan"), S("tiny"), at(0, "in.jsonl"), S("--for"), S("batch"), S("--parallel"),
                            parallel, S("--json")));
    const int64_t bytes = int_of(p, what);
    json_decref(p);
    return bytes;
}

/* The context and the pool are those that the requests need: not a context of the model for each that may
 * run. A request without a limit of tokens needs more than one with a limit. */
static void sized_by_its_requests(void **state) {
    (void)state;
    ln_str s = {0};
    for (int i = 0; i < 20; i++)
        ln_str_addf(&s,
                    "{\"custom_id\":\"%d\",\"method\":\"POST\",\"url\":\"/v1/"
                    "completions\",\"body\":{\"prompt\":"
                    "\"Once upon a time\",\"max_tokens\":20}}\n",
                    i);
    write_in(s.data, s.len);
    assert_int_equal(planned("ctx", S("8")), 512); /* rows of a step */
    const int64_t one = planned("kv_bytes", S("1"));
    assert_int_equal(planned("kv_bytes", S("8")), one); /* eight requests of a page */
    assert_int_equal(planned("kv_bytes", S("16")), 2 * one);
    drop_answers();
    outcome *o = RUN(S("batch"), S("tiny"), at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl"), S("-v"));
    expect(o, 0, NULL);
    assert_non_null(strstr(o->err, "requests of up to 512 positions, 8 at once; the pool of keys and values "
                                   "has "
                                   "512 positions"));
    drop_answers();
    ln_str_adds(&s, "{\"custom_id\":\"open\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{"
                    "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}}\n");
    write_in(s.data, s.len);
    assert_int_equal(planned("ctx", S("8")), 1024); /* the model's maximum */
    assert_in_range(planned("kv_bytes", S("8")), 2 * one, 4 * one);
    ln_str_free(&s);
}

/* A line that needs more memory than there is gets no answer, and the others get theirs. */
static void lines_that_lack_memory(void **state) {
    (void)state;
    if (getenv("LN_SANITIZED")) skip(); /* a sanitizer's own memory counts */
    ln_str s = {0};
    char memory[40];
    static const char small[] =
        "{\"custom_id\":\"%s\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{"
        "\"prompt\":\"a\",\"max_tokens\":2}}\n";
    ln_str_addf(&s, small, "first");
    write_in(s.data, s.len);
    (void)snprintf(memory, sizeof memory, "%lld", (long long)planned("peak_bytes", S("1")) + (30 << 20));
    ln_str_adds(&s, "{\"custom_id\":\"large\",\"method\":\"POST\",\"url\":\"/v1/"
                    "completions\",\"body\":{\"prompt\":\"");
    while (s.len < 20 << 20) ln_str_adds(&s, "Once upon a time ");
    ln_str_adds(&s, "\"}}\n");
    ln_str_addf(&s, small, "last");
    write_in(s.data, s.len);
    ln_str_free(&s);
    drop_answers();
    outcome *o = RUN(S("batch"), S("tiny"), at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl"), S("--parallel"),
                     S("1"), S("--memory"), memory);
    expect(o, 6, "1 of 3 requests need more memory");
    assert_non_null(strstr(o->err, "takes "));
    assert_non_null(strstr(o->err, " or more, and --memory leaves "));
    answers a = read_answers();
    assert_int_equal(a.n, 2);
    (void)body_of(&a, "first");
    (void)body_of(&a, "last");
    free_answers(&a);
    drop_answers();
    /* one that is too long even to be found rejects the file */
    (void)snprintf(memory, sizeof memory, "%lld", atoll(memory) - (24 << 20));
    expect(RUN(S("batch"), S("tiny"), at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl"), S("--memory"), memory),
           6, "in.jsonl: line 2: reading this text takes ");
    assert_false(ln_exists(at(1, "out.jsonl")));
}

/* ---- killed and started again ---- */

enum { MANY = 40 };

static void write_many(void) {
    ln_str s = {0};
    for (int i = 0; i < MANY; i++)
        ln_str_addf(&s,
                    "{\"custom_id\":\"r%d\",\"method\":\"POST\",\"url\":\"/v1/"
                    "completions\",\"body\":{\"prompt\":\"Story %d. Once\","
                    "\"max_tokens\":%d,\"seed\":%d,\"n\":%d,\"temperature\":%s}}\n",
                    i, i, 5 + i * 7 % 40, i, 1 + (i % 5 == 0) * 2, i % 11 == 3 ? "\"hot\"" : "0.7");
    write_in(s.data, s.len);
    ln_str_free(&s);
}

/* Answers the file, and sends the command a signal at the n-th answer of this run. */
static int run_until(int n, int number) {
    return run_to_answer((char *const[]){S("linnet"), S("batch"), S("tiny"), at(0, "in.jsonl"), S("-o"),
                                         at(1, "out.jsonl"), S("--parallel"), S("4"), NULL},
                         n, number);
}

/* Appends the beginning of a line to the answers, as a machine that stops may leave it. */
static void tear(void) {
    FILE *f = fopen(at(0, "out.jsonl"), "ab");
    assert_true(f && fputs("{\"id\":\"batch_req_0\",\"custom_id\":\"r", f) >= 0 && fclose(f) == 0);
}

/* Kills each run at its n-th answer until one ends by itself; returns the number of runs that were killed. */
static int run_to_the_end(int n) {
    int kills = 0, code;
    while ((code = run_until(n, SIGKILL)) == 1000 + SIGKILL) {
        assert_true(++kills <= MANY);
        if (kills % 2) tear();
    }
    assert_int_equal(code, 3); /* rows failed */
    return kills;
}

static void compare(const answers *a, const answers *b) {
    char id[20];
    assert_int_equal(a->n, MANY);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(id, sizeof id, "r%d", i);
        if (i % 11 == 3) {
            assert_string_equal(error_of(a, id, 400), error_of(b, id, 400));
            continue;
        }
        if (!json_equal(json_object_get(body_of(a, id), "choices"), json_object_get(body_of(b, id), "choice"
                                                                                                    "s")))
            fail_msg("the answers to %s differ", id);
    }
}

static void check_answers(const answers *whole) {
    answers a = read_answers();
    compare(&a, whole);
    free_answers(&a);
    assert_false(ln_exists(at(0, "out.jsonl.state")));
    drop_answers();
}

static void killed_anywhere(void **state) {
    (void)state;
    static const int counts[] = {13, 2, 5, 8, 40};
    write_many();
    drop_answers();
    expect(RUN(S("batch"), S("tiny"), at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl")), 3,
           "4 of 40 requests failed");
    answers whole = read_answers();
    assert_int_equal(whole.n, MANY);
    drop_answers();
    for (size_t i = 0; i < (size_t)fewer(LN_COUNT(counts), 1); i++) {
        /* the answer at which a run is killed is not written */
        assert_int_equal(run_to_the_end(counts[i]), (MANY - 1) / (counts[i] - 1));
        check_answers(&whole);
    }
    assert_int_equal(run_until(4, SIGINT), 130);
    assert_int_equal(run_until(MANY, SIGINT), 3);
    check_answers(&whole);
    free_answers(&whole);
}

/* OUT goes on under its own conditions only. */
static void other_conditions(void **state) {
    (void)state;
    write_many();
    drop_answers();
    assert_int_equal(run_until(3, SIGKILL), 1000 + SIGKILL);
    expect(RUN(S("batch"), S("tiny"), at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl"), S("--numerics"),
               S("exact")),
           3, "numerics fast");
    expect(RUN(S("batch"), S("tiny"), at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl"), S("--ctx"), S("256")),
           3, "--force");
    expect(RUN(S("batch"), S(SMALL), at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl")), 3, "another model");
    expect(RUN(S("batch"), S("tiny"), at(0, "in.jsonl"), S("-o"), at(1, "out.jsonl"), S("--ctx"), S("256"),
               S("--force")),
           3, "requests failed");
    answers a = read_answers();
    assert_int_equal(a.n, MANY);
    free_answers(&a);
    drop_answers();
}

/* ---- the page ---- */

/* Runs the example of docs/batch.md, whose report and first answer stand there. */
static void the_page(void **state) {
    (void)state;
    char *page, *line;
    size_t bytes;
    ln_str text = {0};
    assert_int_equal(ln_read_file(LN_ROOT "/docs/batch.md", 1 << 20, &page, &bytes, &(ln_error){0}), LN_OK);
    drop_answers();
    outcome *o =
        RUN(S("batch"), S("tiny"), S(LN_ROOT "/examples/requests.jsonl"), S("-o"), at(1, "out.jsonl"));
    expect(o, 0, NULL);
    line = strstr(o->out, "out.jsonl: ");
    assert_non_null(line);
    if (!strstr(page, line + strlen("out.jsonl: "))) fail_msg("docs/batch.md lacks '%s'", line);
    answers a = read_answers();
    const char *story = text_of(json_object_get(choice_of(&a, "story", 0), "message"), "content");
    ln_str_json(&text, story, strlen(story));
    if (!strstr(page, text.data)) fail_msg("docs/batch.md lacks %s", text.data);
    ln_str_free(&text);
    free_answers(&a);
    ln_free(page);
    drop_answers();
}

static int clean(void **state) {
    drop_answers();
    drop("in.jsonl");
    return remove_dir(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_of_run),
                                       cmocka_unit_test(rows_that_fail),
                                       cmocka_unit_test(files_that_are_refused),
                                       cmocka_unit_test(killed_anywhere),
                                       cmocka_unit_test(names_of_other_services),
                                       cmocka_unit_test(sized_by_its_requests),
                                       cmocka_unit_test(lines_that_lack_memory),
                                       cmocka_unit_test(other_conditions),
                                       cmocka_unit_test(the_page)};
    return cmocka_run_group_tests(tests, make_dir, clean);
}
