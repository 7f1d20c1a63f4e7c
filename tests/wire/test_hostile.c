/* Hostile values for every field of a request's body, every pair of fields at the ends of their ranges
 * and bodies that are small as texts and large as trees. A body is accepted with values
 * in range or rejected with the name of a field; memory is bounded and all of it is freed. */
/* run: quick */
#include "wire_test.h"

#include "wire/body.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHAT = 1, COMPLETION = 2, BOTH = 3 };

static const struct {
    const char *name;
    int kinds;
} fields[] = {
#define READ(name, kinds, fn)                {name, kinds},
#define SAFE(name, kinds)                    {name, kinds},
#define REFUSED(name, kinds, values, advice) {name, kinds},
#include "wire/body_fields.def"
#undef READ
#undef SAFE
#undef REFUSED
};

static bool in_range(double v, double lo, double hi) { return v >= lo && v <= hi; }

/* What holds of every request that was accepted. */
static void check_accepted(const char *body) {
    const ln_sampling *s = &q.sampling;
    bool good = in_range(s->temperature, 0, 2) && in_range(s->top_p, 0, 1) && in_range(s->min_p, 0, 1) &&
                in_range(s->presence_penalty, -2, 2) && in_range(s->frequency_penalty, -2, 2) &&
                in_range(s->repeat_penalty, 1e-6, 1e6) && s->top_k >= 0 && s->n_max >= 0 && s->min_new >= 0 &&
                s->repeat_last >= -1 && s->n_stop <= 16 && s->n_bias <= 1024 && s->n_stop_ids <= 1024 &&
                q.n >= 1 && q.n <= WIRE_MOST_N && q.n_logprobs >= -1 && q.n_logprobs <= WIRE_MOST_LOGPROBS &&
                wire_n_choices(&q) >= 1 && wire_n_choices(&q) <= WIRE_MOST_CHOICES && q.model < 3;
    for (size_t i = 0; i < s->n_stop; i++) good &= s->stop[i][0] && strlen(s->stop[i]) <= 1024;
    for (size_t i = 0; i < s->n_bias; i++)
        good &= s->bias[i].id >= 0 && s->bias[i].id < target.n_vocab && fabs(s->bias[i].bias) <= 100;
    for (size_t i = 0; i < s->n_stop_ids; i++) good &= s->stop_ids[i] >= 0 && s->stop_ids[i] < target.n_vocab;
    for (size_t i = 0; i < q.n_prompts; i++)
        for (size_t k = 0; k < q.prompts[i].n_ids; k++)
            good &= q.prompts[i].ids[k] >= 0 && q.prompts[i].ids[k] < target.n_vocab;
    if (!good) fail_msg("accepted out of range: %s", body);
}

/* Reads a body; returns whether it was accepted. A refusal names `a` or `b` (or a member of it); NULL: the
 * text is no JSON, and no field is named. */
static bool read_hostile(wire_kind kind, const char *body, const char *a, const char *b) {
    const ln_status st = read_body(kind, body);
    if (st == LN_OK) {
        check_accepted(body);
        return true;
    }
    assert_int_equal(st, LN_EINVALID);
    if (why.http != 400 && !(why.http == 404 && strcmp(why.param, "model") == 0))
        fail_msg("%s: status %d", body, why.http);
    const bool named =
        a ? strncmp(why.param, a, strlen(a)) == 0 || (b && strncmp(why.param, b, strlen(b)) == 0)
          : why.param[0] == '\0';
    if (!named) fail_msg("%s: the error names '%s': %s", body, why.param, why.error.message);
    for (const char *c = why.error.message; *c; c++) assert_true((unsigned char)*c >= 0x20 && *c != 0x7f);
    return false;
}

static void every_field_takes_hostile_values(void **state) {
    (void)state;
    static const char *const values[] = {"null",
                                         "true",
                                         "\"\"",
                                         "\"1\"",
                                         "[]",
                                         "{}",
                                         "0",
                                         "-0",
                                         "-1",
                                         "1",
                                         "1.0",
                                         "1.5",
                                         "1e0",
                                         "1e308",
                                         "2147483647",
                                         "2147483648",
                                         "4294967296",
                                         "9007199254740993",
                                         "-9223372036854775808",
                                         "18446744073709551616",
                                         "10000000000000000000000000000000000000000",
                                         "[[]]",
                                         "[{}]",
                                         "{\"\":null}",
                                         "\"\\u0000\"",
                                         "[null]",
                                         "\"\\ud83d\\ude00\"",
                                         "[1e308]",
                                         "{\"1\":1e308}",
                                         "{\"01\":1}",
                                         "{\"-0\":1}"};
    static const char *const broken[] = {"1e309", "-1e309", "NaN",    "Infinity", "-Infinity", "01",
                                         "+1",    ".5",     "1.",     "0x1",      "'a'",       "tru",
                                         "\"",    "[1,",    "{\"a\"", ""};
    int n_good = 0, n_bad = 0;
    ln_log_set(on_log, NULL);
    for (size_t i = 0; i < LN_COUNT(fields); i++)
        for (int kind = 0; kind < 2; kind++) {
            char body[400];
            const bool is_prompt = strcmp(fields[i].name, kind ? "prompt" : "messages") == 0;
            const char *rest = is_prompt ? "\"user\":\"\""
                               : kind    ? "\"prompt\":\"Hi\""
                                         : "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]";
            for (size_t v = 0; v < LN_COUNT(values); v++) {
                (void)snprintf(body, sizeof body, "{%s,\"%s\":%s}", rest, fields[i].name, values[v]);
                const bool good = read_hostile((wire_kind)kind, body, fields[i].name, NULL);
                n_good += good;
                n_bad += !good;
            }
            for (size_t v = 0; v < LN_COUNT(broken); v++) {
                (void)snprintf(body, sizeof body, "{%s,\"%s\":%s}", rest, fields[i].name, broken[v]);
                assert_false(read_hostile((wire_kind)kind, body, NULL, NULL));
            }
        }
    ln_log_set(NULL, NULL);
    assert_true(n_good > 1000 && n_bad > 1000);
}

/* All pairs of fields that are read, each at the ends of its range and beyond. */
static void every_pair_of_fields_is_judged(void **state) {
    (void)state;
    static const struct {
        const char *name, *values[4];
    } rows[] = {
        {"temperature", {"0", "2", "2.01", "-1"}},
        {"top_p", {"0", "1", "1.01", "null"}},
        {"top_k", {"-1", "0", "2147483647", "2147483648"}},
        {"min_p", {"0", "1", "1.01", "false"}},
        {"presence_penalty", {"-2", "2", "2.01", "[]"}},
        {"frequency_penalty", {"-2", "2", "-2.01", "{}"}},
        {"repetition_penalty", {"1e-6", "1e6", "0", "-1"}},
        {"repeat_last_n", {"-1", "0", "2147483647", "-2"}},
        {"max_tokens", {"0", "1", "9223372036854775807", "-2"}},
        {"max_completion_tokens", {"0", "1", "9223372036854775807", "-2"}},
        {"min_tokens", {"0", "1", "2147483647", "-1"}},
        {"n", {"1", "128", "129", "0"}},
        {"best_of", {"1", "128", "129", "0"}},
        {"seed", {"-1", "18446744073709551615", "-9223372036854775808", "1.5"}},
        {"stop", {"\"a\"", "[]", "[\"\"]", "\"\""}},
        {"stop_token_ids", {"[0]", "[299]", "[300]", "[-1]"}},
        {"ignore_eos", {"true", "false", "null", "1"}},
        {"logit_bias", {"{}", "{\"299\":100}", "{\"300\":1}", "{\"0\":101}"}},
        {"stream", {"true", "false", "null", "\"yes\""}},
        {"stream_options", {"{\"include_usage\":true}", "{}", "null", "1"}},
        {"logprobs", {"true", "false", "20", "21"}},
        {"top_logprobs", {"0", "20", "21", "true"}},
        {"tool_choice", {"\"none\"", "\"auto\"", "null", "7"}},
        {"chat_template_kwargs", {"{}", "{\"a\":1}", "null", "[]"}},
        {"reasoning_effort", {"\"low\"", "\"\"", "null", "1"}},
    };
    int n = 0, n_good = 0;
    ln_log_set(on_log, NULL);
    for (int kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < LN_COUNT(rows); i++)
            for (size_t k = 0; k < i; k++)
                for (size_t v = 0; v < 16; v++) {
                    char body[600];
                    (void)snprintf(body, sizeof body, "{%s,\"%s\":%s,\"%s\":%s}",
                                   kind ? "\"prompt\":\"Hi\""
                                        : "\"messages\":[{\"role\":\"user\",\"content\":\"\"}]",
                                   rows[i].name, rows[i].values[v / 4], rows[k].name, rows[k].values[v % 4]);
                    n_good += read_hostile((wire_kind)kind, body, rows[i].name, rows[k].name);
                    n++;
                }
    ln_log_set(NULL, NULL);
    assert_true(n > 9000 && n_good > 1000);
}

/* Appends `n` times `item`, with commas. */
static void repeat(ln_str *s, const char *item, size_t n) {
    for (size_t i = 0; i < n; i++) {
        ln_str_adds(s, i ? "," : "");
        ln_str_adds(s, item);
    }
}

static void expect_limit(const char *before, const char *item, size_t n, const char *after, const char *param,
                         const char *text) {
    ln_str s = {0};
    ln_str_adds(&s, before);
    repeat(&s, item, n);
    ln_str_adds(&s, after);
    const ln_status st = read_body(WIRE_CHAT, s.data);
    if (text) {
        assert_int_equal(st, LN_EINVALID);
        assert_int_equal(why.http, 400);
        assert_string_equal(why.param, param);
        if (!strstr(why.error.message, text)) fail_msg("'%s' lacks '%s'", why.error.message, text);
    } else if (st != LN_OK) {
        fail_msg("%zu times %s: %s", n, item, why.error.message);
    }
    ln_str_free(&s);
}

#define HI   "{\"role\":\"user\",\"content\":\"Hi\"}"
#define BODY "{\"messages\":[" HI "],"

static void lists_have_limits(void **state) {
    (void)state;
    expect_limit("{\"messages\":[", HI, 4096, "]}", "", NULL);
    expect_limit("{\"messages\":[", HI, 4097, "]}", "messages", "at most 4096");
    static const char tools[] = BODY "\"tool_choice\":\"none\",\"tools\":[";
    expect_limit(tools, "{\"type\":\"function\"}", 128, "]}", "", NULL);
    expect_limit(tools, "{\"type\":\"function\"}", 129, "]}", "tools", "at most 128");
    expect_limit(BODY "\"stop\":[", "\"a\"", 16, "]}", "", NULL);
    expect_limit(BODY "\"stop\":[", "\"a\"", 17, "]}", "stop", "at most 16");
    expect_limit(BODY "\"stop_token_ids\":[", "1", 1024, "]}", "", NULL);
    expect_limit(BODY "\"stop_token_ids\":[", "1", 1025, "]}", "stop_token_ids", "at most 1024");
    for (int n = 1024; n <= 1025; n++) { /* one vocabulary has fewer tokens: the count is judged first */
        ln_str s = {0};
        ln_str_adds(&s, BODY "\"logit_bias\":{");
        for (int i = 0; i < n; i++) ln_str_addf(&s, "%s\"%d\":-100", i ? "," : "", i);
        ln_str_adds(&s, "}}");
        assert_int_equal(read_body(WIRE_CHAT, s.data), LN_EINVALID);
        assert_non_null(strstr(why.error.message, n == 1024 ? "found \"300\"" : "at most 1024"));
        ln_str_free(&s);
    }
    for (size_t n = 1024; n <= 1025; n++) {
        char stop[1100] = "";
        memset(stop, 'a', n);
        ln_str s = {0};
        ln_str_addf(&s, BODY "\"stop\":\"%s\"}", stop);
        assert_int_equal(read_body(WIRE_CHAT, s.data), n == 1024 ? LN_OK : LN_EINVALID);
        ln_str_free(&s);
    }
}

/* */
static void tools_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *tools, *param;
    } rows[] = {
        {"{\"function\":{\"name\":\"get_weather-2.x\",\"parameters\":{\"type\":\"object\"}}}", NULL},
        {"{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"g\",\"parameters\":null}}", NULL},
        {"{\"function\":{\"name\":\"a b\"}}", "tools[0].function.name"},
        {"{\"function\":{\"name\":\"\"}}", "tools[0].function.name"},
        {"{\"function\":{\"name\":7}}", "tools[0].function.name"},
        {"{\"function\":{}}", "tools[0].function.name"},
        {"{\"function\":7}", "tools[0].function"},
        {"{},{\"function\":{\"name\":\"f\",\"parameters\":[]}}", "tools[1].function.parameters"},
        {"{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"f\"}}", "tools[1].function.name"},
    };
    char body[400];
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        (void)snprintf(body, sizeof body, BODY "\"tool_choice\":\"none\",\"tools\":[%s]}", rows[i].tools);
        const ln_status st = read_body(WIRE_CHAT, body);
        if (!rows[i].param) assert_int_equal(st, LN_OK);
        else assert_string_equal(why.param, rows[i].param);
    }
}

/* By how many bytes the resident memory of a process grows that reads the body, which must be rejected. */
static uint64_t growth(const char *body) {
    int fd[2], status;
    uint64_t grown = 0;
    assert_int_equal(pipe(fd), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rusage before, after;
        (void)getrusage(RUSAGE_SELF, &before);
        const bool refused = read_body(WIRE_CHAT, body) == LN_EINVALID;
        (void)getrusage(RUSAGE_SELF, &after);
        grown = (uint64_t)(after.ru_maxrss - before.ru_maxrss) * 1024;
        _exit(refused && write(fd[1], &grown, sizeof grown) == sizeof grown ? 0 : 1);
    }
    (void)close(fd[1]);
    assert_int_equal(read(fd[0], &grown, sizeof grown), sizeof grown);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    (void)close(fd[0]);
    return grown;
}

/* An empty array is two bytes of text and 130 of memory: 32 MiB of them would take 1.5 GB. What is rejected
 * has not been built beyond the limit (O4: at most twice the input and 64 MiB). */
static void trees_are_bounded(void **state) {
    (void)state;
    enum { TEXT = 8 << 20 };
    static const char *const items[] = {"[]", "{}", "0", "\"\"", "[[[[]]]]", "{\"a\":{}}"};
    for (size_t i = 0; i < LN_COUNT(items); i++) {
        ln_str s = {0};
        ln_str_adds(&s, BODY "\"metadata\":[");
        repeat(&s, items[i], TEXT / (strlen(items[i]) + 1));
        ln_str_adds(&s, "]}");
        assert_int_equal(read_body(WIRE_CHAT, s.data), LN_EINVALID);
        assert_non_null(strstr(why.error.message, "expected at most"));
        const uint64_t grown = getenv("LN_SANITIZED") ? 0 : growth(s.data);
        if (grown > 2 * (uint64_t)TEXT + (64 << 20))
            fail_msg("%s: %llu bytes for a body of %d", items[i], (unsigned long long)grown, TEXT);
        ln_str_free(&s);
    }
    ln_str s = {0};
    ln_str_adds(&s, BODY "\"");
    for (int i = 0; i < 1 << 20; i++) ln_str_adds(&s, "k");
    ln_str_adds(&s, "\":1}");
    assert_int_equal(read_body(WIRE_CHAT, s.data), LN_EINVALID); /* */
    assert_non_null(strstr(why.error.message, "keys of at most 4096 bytes"));
    s.len = 0;
    ln_str_adds(&s, BODY "\"a\":0");
    for (int i = 0; i < 1000000; i++) ln_str_addf(&s, ",\"%x\":0", i);
    ln_str_adds(&s, "}");
    const double start = ln_now();
    ln_log_set(on_log, NULL);
    assert_int_equal(read_body(WIRE_CHAT, s.data), LN_EINVALID);
    ln_log_set(NULL, NULL);
    if (!getenv("LN_SANITIZED")) assert_true(ln_now() - start < 5);
    ln_str_free(&s);
}

/* Once the requests are opened, nothing of the body is kept but what the answer needs. */
static void a_trimmed_request_is_small(void **state) {
    (void)state;
    wire_request_close(&q);
    ln_str s = {0};
    ln_str_adds(&s, "\"metadata\":[");
    repeat(&s, "\"some text\"", 100000);
    ln_str_adds(&s, "]}");
    for (int echo = 0; echo < 2; echo++) {
        ln_str body = {0};
        ln_str_addf(&body, "{\"prompt\":[\"Once\",\"upon\"],\"echo\":%s,", echo ? "true" : "false");
        ln_str_add(&body, s.data, s.len);
        wire_request_close(&q);
        const uint64_t before = ln_mem_bytes();
        assert_int_equal(read_body(WIRE_COMPLETION, body.data), LN_OK);
        assert_true(ln_mem_bytes() - before > 1000000);
        wire_request_trim(&q);
        assert_true(ln_mem_bytes() - before < 100000);
        assert_int_equal(wire_n_choices(&q), 2);
        if (echo) assert_string_equal(q.prompts[1].text, "upon");
        ln_str_free(&body);
    }
    ln_str_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_takes_hostile_values),
        cmocka_unit_test(every_pair_of_fields_is_judged),
        cmocka_unit_test(lists_have_limits),
        cmocka_unit_test(tools_are_checked),
        cmocka_unit_test(trees_are_bounded),
        cmocka_unit_test(a_trimmed_request_is_small),
    };
    return cmocka_run_group_tests(tests, NULL, close_last);
}
