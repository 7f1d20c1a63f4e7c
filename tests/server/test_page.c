/* The page at / as a client gets it: without a key, whole, with a policy that names its one style and its one
 * script by their digests. tests/server/page.sh uses it in a browser, which rejects wrong digests. */
/* run: slow */
#include "server_test.h"

#include "base/base64.h"
#include "base/sha256.h"

/* The policy's source for the text between two tags, each of which occurs once. */
static char *source_of(const reply *r, const char *open, const char *close) {
    uint8_t digest[LN_SHA256_BYTES];
    ln_str s = {0};
    ln_sha256 h;
    const char *from = strstr(r->body.data, open), *to = strstr(r->body.data, close);
    assert_non_null(from);
    assert_non_null(to);
    assert_null(strstr(from + 1, open));
    assert_null(strstr(to + 1, close));
    from += strlen(open);
    ln_sha256_open(&h);
    ln_sha256_add(&h, from, (size_t)(to - from));
    ln_sha256_end(&h, digest);
    ln_str_adds(&s, "-src 'sha256-");
    ln_str_base64(&s, digest, sizeof digest);
    ln_str_adds(&s, "';");
    assert_false(s.failed);
    return s.data;
}

static void the_page_is_whole(void **state) {
    (void)state;
    START("--api-key", "secret");
    reply r = call("GET", "/", "", NULL), head = call("HEAD", "/", "", NULL);
    assert_int_equal(r.status, 200);
    assert_int_equal(head.status, 200);
    assert_string_equal(field_of(&r, "content-type"), "text/html; charset=utf-8");
    assert_int_equal(head.body.len, 0);
    assert_memory_equal(r.body.data, "<!doctype html>", 15);
    const char *tags[][2] = {{"<script>", "</script>"}, {"<style>", "</style>"}};
    for (size_t i = 0; i < LN_COUNT(tags); i++) {
        char *source = source_of(&r, tags[i][0], tags[i][1]);
        if (!strstr(r.head.data, source)) fail_msg("the policy lacks %s", source);
        ln_free(source);
    }
    const char *fields[] = {"default-src 'none'", "frame-ancestors 'none'", "trusted-types 'none'",
                            "nosniff"};
    for (size_t i = 0; i < LN_COUNT(fields); i++)
        if (!strstr(r.head.data, fields[i])) fail_msg("a field lacks %s", fields[i]);
    assert_null(strstr(r.head.data, "unsafe"));
    const char *outside[] = {" src=", "@import", "url(", "innerHTML =", "<script ", " style=", " onclick="};
    for (size_t i = 0; i < LN_COUNT(outside); i++)
        if (strstr(r.body.data, outside[i])) fail_msg("the page has %s", outside[i]);
    drop_reply(&r);
    drop_reply(&head);
    r = call("POST", "/", "", "");
    assert_int_equal(r.status, 405);
    drop_reply(&r);
    r = call("GET", "/page.css", "Authorization: Bearer secret\r\n", NULL);
    assert_int_equal(r.status, 404);
    drop_reply(&r);
    assert_int_equal(stop(), 0);
}

/* The page of a proxy has an https origin; that of another site is rejected. */
static void origins_are_compared(void **state) {
    (void)state;
    START("--log-format", "none");
    const struct {
        const char *scheme, *host;
        int status;
    } rows[] = {{"http", "127.0.0.1", 200},     {"https", "127.0.0.1", 200}, {"http", "127.0.0.2", 403},
                {"https", "evil.example", 403}, {"ftp", "127.0.0.1", 403},   {"httpss", "127.0.0.1", 403}};
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        char fields[160];
        (void)snprintf(fields, sizeof fields, JSON "Origin: %s://%s:%d\r\n", rows[i].scheme, rows[i].host,
                       server.port);
        reply r = call("POST", "/tokenize", fields, "{\"content\":\"a\"}");
        if (r.status != rows[i].status) fail_msg("%s://%s: %d", rows[i].scheme, rows[i].host, r.status);
        drop_reply(&r);
    }
    assert_int_equal(stop(), 0);
}

/* Every name in the dashboard of examples/ is one of /metrics. */
static void the_dashboard_knows_the_metrics(void **state) {
    (void)state;
    char *text = NULL;
    size_t bytes = 0, n = 0;
    FILE *in = fopen(LN_ROOT "/examples/grafana-dashboard.json", "r");
    assert_non_null(in);
    assert_true(getdelim(&text, &bytes, '\0', in) > 0);
    (void)fclose(in);
    json_t *dashboard = parse(text, strlen(text));
    assert_true(json_array_size(at(dashboard, "panels")) >= 10);
    json_decref(dashboard);
    START("--log-format", "none");
    reply r = call("GET", "/health", "", NULL); /* the first answer that is counted */
    drop_reply(&r);
    r = call("GET", "/metrics", "", NULL);
    assert_int_equal(r.status, 200);
    for (const char *p = text; (p = strstr(p, "linnet_")) != NULL; p++, n++) {
        char line[120];
        const int length = (int)strspn(p, "abcdefghijklmnopqrstuvwxyz_");
        (void)snprintf(line, sizeof line, "\n%.*s", length, p);
        if (!strstr(r.body.data, line)) fail_msg("/metrics has no %s", line + 1);
    }
    assert_true(n > 20);
    drop_reply(&r);
    free(text);
    assert_int_equal(stop(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_page_is_whole, kill_server),
        cmocka_unit_test_teardown(origins_are_compared, kill_server),
        cmocka_unit_test_teardown(the_dashboard_knows_the_metrics, kill_server)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
