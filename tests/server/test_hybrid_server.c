/* A model with recurrent layers behind the server: how many tokens of a text that goes on are not computed
 * again, and what /metrics and /v1/status say of the pool of its state. Another one with tokens computed
 * ahead. */
/* run: slow */
#include "server_test.h"

/* The value of a metric. */
static long long metric(const char *name) {
    char line[100];
    reply r = call("GET", "/metrics", "", NULL);
    assert_int_equal(r.status, 200);
    (void)snprintf(line, sizeof line, "\nlinnet_%s ", name);
    const char *found = strstr(r.body.data, line);
    if (!found) fail_msg("no %s in the metrics", name);
    const long long value = atoll(found + strlen(line));
    drop_reply(&r);
    return value;
}

static json_t *complete(const char *prompt, int n) {
    ln_str body = {0};
    ln_str_adds(&body, "{\"prompt\":");
    ln_str_json(&body, prompt, strlen(prompt));
    ln_str_addf(&body, ",\"max_tokens\":%d,\"temperature\":0,\"ignore_eos\":true}", n);
    reply r = post("/v1/completions", body.data);
    assert_int_equal(r.status, 200);
    json_t *a = json_of(&r);
    drop_reply(&r);
    ln_str_free(&body);
    return a;
}

static void tokens_and_state_are_counted(void **state) {
    (void)state;
    char text[300];
    server_model = LN_ROOT "/tests/golden/families/qwen3_5_text-last-linear-bf16";
    START("--log-format", "none", "--ctx", "512", "--parallel", "2");
    const long long pages = metric("state_pages"), bytes = metric("state_page_bytes");
    assert_true(pages >= 4 && bytes > 0); /* two of each sequence */
    assert_int_equal(metric("state_pages_used"), 0);
    assert_int_equal(metric("state_pages_cached"), 0);
    assert_true(metric("memory_kv_bytes") >= pages * bytes);
    for (int i = 0; i < 200; i++) text[i] = (char)('a' + i * 7 % 26);
    text[200] = 0;
    json_t *first = complete(text, 1);
    const int64_t n = int_at(first, "usage.prompt_tokens");
    assert_true(n >= 200);
    assert_int_equal(int_at(first, "usage.prompt_tokens_details.cached_tokens"), 0);
    const long long kept = metric("state_pages_cached");
    assert_true(kept > 0 && kept <= pages);
    (void)snprintf(text + 200, sizeof text - 200, " and what comes after it");
    json_t *second = complete(text, 1);
    assert_int_equal(int_at(second, "usage.prompt_tokens_details.cached_tokens"), n);
    assert_int_equal(metric("cached_tokens_total"), n);
    assert_int_equal(metric("prompt_tokens_total"), n + int_at(second, "usage.prompt_tokens"));
    text[20] = '#'; /* no snapshot is near: everything is computed, and counted so */
    json_t *other = complete(text, 1);
    assert_int_equal(int_at(other, "usage.prompt_tokens_details.cached_tokens"), 0);
    assert_int_equal(metric("cached_tokens_total"), n);
    assert_int_equal(metric("state_pages_used"), 0);
    reply r = call("GET", "/v1/status", "", NULL);
    json_t *status = json_of(&r);
    assert_int_equal(int_at(status, "state.pages"), pages);
    assert_int_equal(int_at(status, "state.page_bytes"), bytes);
    assert_int_equal(int_at(status, "state.cached"), metric("state_pages_cached"));
    drop_reply(&r);
    json_decref(first), json_decref(second), json_decref(other), json_decref(status);
    assert_int_equal(stop(), 0);
}

static void tokens_ahead_are_counted(void **state) {
    (void)state;
    server_model = LN_ROOT "/models/tiny";
    START("--log-format", "none", "--parallel", "2", "--lookup", "8");
    reply r = post("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":60,\"guided_regex\":\"(yes no maybe "
                                      "){12}\"}");
    assert_int_equal(r.status, 200);
    json_t *a = json_of(&r);
    const int64_t kept = int_at(a, "usage.completion_tokens_details.accepted_prediction_tokens"),
                  rejected = int_at(a, "usage.completion_tokens_details.rejected_prediction_tokens");
    assert_true(kept > 9 && rejected >= 0);
    assert_int_equal(int_at(a, "timings.draft_n_accepted"), kept);
    assert_int_equal(int_at(a, "timings.draft_n"), kept + rejected);
    assert_int_equal(metric("accepted_tokens_total"), kept);
    assert_int_equal(metric("proposed_tokens_total"), kept + rejected);
    drop_reply(&r);
    json_decref(a);
    r = call("GET", "/v1/status", "", NULL);
    a = json_of(&r);
    assert_int_equal(int_at(a, "tokens.accepted"), kept);
    drop_reply(&r);
    json_decref(a);
    r = call("GET", "/slots", "", NULL);
    assert_non_null(strstr(r.body.data, "\"speculative\":true"));
    drop_reply(&r);
    assert_int_equal(stop(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tokens_and_state_are_counted, NULL, kill_server),
        cmocka_unit_test_setup_teardown(tokens_ahead_are_counted, NULL, kill_server)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
