/* The HTTP reader: the rows of protocol errors (P-3 to P-29, if no socket is needed), each with every cut of
 * its bytes into two pieces, and byte by byte: the result must not depend on the cut. */
/* run: quick */
#include "../base/cm.h"

#include "serve/http.h"

#include <stdio.h>

enum { MOST_BODY = 1000 };

/* What the reader made of some bytes: "POST /path [body]" for each request, then the status of an error. */
static void read_cut(const char *data, size_t n, size_t cut, size_t step, ln_str *out) {
    http_reader r = {.most_body = MOST_BODY};
    http_reader_reset(&r);
    out->len = 0;
    ln_str_adds(out, "");
    for (size_t from = 0, to; from < n; from = to) {
        to = step ? LN_MIN(from + step, n) : from < cut ? cut : n;
        for (size_t at = from;;) {
            size_t used, where, piece;
            const http_event e = http_read(&r, data + at, to - at, &used, &where, &piece);
            assert_true(used <= to - at);
            if (e == HTTP_GOT_HEAD)
                ln_str_addf(out, "%s %.*s%s [", http_method_name(r.head.method), (int)r.head.path.n,
                            r.head.path.at, r.head.keep_alive ? "" : " close");
            if (e == HTTP_DATA) ln_str_add(out, data + at + where, piece);
            if (e == HTTP_END) {
                ln_str_adds(out, "] ");
                http_reader_reset(&r);
            }
            at += used;
            if (e == HTTP_MORE) {
                assert_int_equal(at, to);
                break;
            }
            if (e != HTTP_ERROR) continue;
            assert_non_null(r.why);
            ln_str_addf(out, "%d", r.status);
            http_reader_free(&r);
            return;
        }
    }
    http_reader_free(&r);
}

/* Asserts the result of all cuts. */
static void gives_bytes(const char *data, size_t n, const char *expected) {
    ln_str s = {0};
    read_cut(data, n, n, 0, &s);
    if (strcmp(s.data ? s.data : "", expected) != 0)
        fail_msg("'%.60s': '%s', expected '%s'", data, s.data, expected);
    const size_t stride = n > 4000 ? n / 97 + 1 : 1;
    for (size_t cut = 1; cut < n; cut += stride) {
        read_cut(data, n, cut, 0, &s);
        if (strcmp(s.data, expected) != 0)
            fail_msg("'%.60s' cut at %zu: '%s', expected '%s'", data, cut, s.data, expected);
    }
    for (size_t step = 1; step < 4; step++) {
        read_cut(data, n, 0, step, &s);
        if (strcmp(s.data, expected) != 0)
            fail_msg("'%.60s' in steps of %zu: '%s', expected '%s'", data, step, s.data, expected);
    }
    ln_str_free(&s);
}
static void gives(const char *text, const char *expected) { gives_bytes(text, strlen(text), expected); }

typedef struct row {
    const char *text, *expected;
} row;
static void check(const row *rows, size_t n) {
    for (size_t i = 0; i < n; i++) gives(rows[i].text, rows[i].expected);
}

#define H "Host: a\r\n"

static void accepts_what_is_right(void **state) {
    (void)state;
    static const row rows[] = {
        {"GET / HTTP/1.1\r\n" H "\r\n", "GET / [] "},
        {"\r\nGET / HTTP/1.1\r\n" H "\r\n", "GET / [] "}, /* RFC 9112 2.2 */
        {"GET /a?b=%20c HTTP/1.1\r\nhOsT:a:8080\t \r\n\r\n", "GET /a [] "},
        {"GET / HTTP/1.1\r\nHost: [::1]:8\r\n\r\n", "GET / [] "},
        {"GET / HTTP/1.0\r\n\r\n", "GET / close [] "},
        {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET / [] "},
        {"GET / HTTP/1.1\r\n" H "Connection: x , close\r\n\r\n", "GET / close [] "},
        {"GET http://a/b HTTP/1.1\r\n" H "\r\n", "GET /b [] "},
        {"GET http://a HTTP/1.1\r\n" H "\r\n", "GET / [] "},
        {"OPTIONS * HTTP/1.1\r\n" H "\r\n", "OPTIONS * [] "},
        {"HEAD / HTTP/1.1\r\n" H "X: \xc3\xa9\t!\r\n\r\n", "HEAD / [] "},
        {"CONNECT a:443 HTTP/1.1\r\n" H "\r\n", "CONNECT a:443 [] "},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nabc", "POST / [abc] "},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\nGET /b HTTP/1.1\r\n" H "\r\n", "POST / [] GET /b "
                                                                                          "[] "},
        {"GET / HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n" H "\r\n", /* P-20 */
         "GET / [abc] GET /b [] "},
        {"POST / HTTP/1.1\r\n" H "Expect: 100-Continue\r\nContent-Length: 1\r\n\r\na", "POST / [a] "},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: "
         "Chunked\r\n\r\n3\r\nabc\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\n\r\n",
         "POST / [abc0123456789] "},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nAuthorization: x\r\n"
         "Content-Length: 7\r\n\r\nGET /b HTTP/1.1\r\n" H "\r\n",
         "POST / [a] GET /b [] "}, /* P-17: trailers are ignored */
    };
    check(rows, LN_COUNT(rows));
}

static void refuses_bad_lines(void **state) {
    (void)state;
    static const row rows[] = {
        {"\x16\x03\x01\x02", "400"}, /* P-3: TLS, SSH, HTTP/2, PROXY */
        {"SSH-2.0-OpenSSH_9.2\r\n", ""},
        {"SSH-2.0-OpenSSH_9.2\r\n\r\n", "400"},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"},
        {"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n" H "\r\n", "400"},
        {"GET / HTTP/1.2\r\n" H "\r\n", "505"}, /* P-4 */
        {"GET / HTTP/0.9\r\n" H "\r\n", "505"},
        {"GET / http/1.1\r\n" H "\r\n", "400"},
        {"GET / HTTP/1.1.1\r\n" H "\r\n", "400"},
        {"GET /\r\n" H "\r\n", "400"},
        {"GET\r\n" H "\r\n", "400"},
        {"BREW / HTTP/1.1\r\n" H "\r\n", "501"}, /* P-5 */
        {"get / HTTP/1.1\r\n" H "\r\n", "501"},
        {"G@T / HTTP/1.1\r\n" H "\r\n", "400"},
        {" GET / HTTP/1.1\r\n" H "\r\n", "400"},
        {"GET  / HTTP/1.1\r\n" H "\r\n", "400"},
        {"GET / x HTTP/1.1\r\n" H "\r\n", "400"},
        {"\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n", "400"},
        {"GET /%zz HTTP/1.1\r\n" H "\r\n", "400"}, /* P-27 */
        {"GET /%00 HTTP/1.1\r\n" H "\r\n", "400"},
        {"GET /%2 HTTP/1.1\r\n" H "\r\n", "400"},
        {"GET /#a HTTP/1.1\r\n" H "\r\n", "400"},
        {"GET /<a> HTTP/1.1\r\n" H "\r\n", "400"},
        {"GET a HTTP/1.1\r\n" H "\r\n", "400"},
        {"GET * HTTP/1.1\r\n" H "\r\n", "400"}, /* P-28 */
        {"GET ftp://a/ HTTP/1.1\r\n" H "\r\n", "400"},
        {"GET http:///x HTTP/1.1\r\n" H "\r\n", "400"},
        {"GET http://b/ HTTP/1.1\r\n" H "\r\n", "400"},
        {"CONNECT / HTTP/1.1\r\n" H "\r\n", "400"},
    };
    check(rows, LN_COUNT(rows));
    gives_bytes("GET /\0 HTTP/1.1\r\n", 17, "400");
}

static void refuses_bad_fields(void **state) {
    (void)state;
    static const row rows[] = {
        {"GET / HTTP/1.1\r\n\r\n", "400"}, /* P-6 */
        {"GET / HTTP/1.1\r\n" H H "\r\n", "400"},
        {"GET / HTTP/1.1\r\nHost:\r\n\r\n", "400"},
        {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "400"},
        {"GET / HTTP/1.1\r\nHost: a:x\r\n\r\n", "400"},
        {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "400"},
        {"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", "400"},
        {"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", "400"},
        {"GET / HTTP/1.1\n" H "\r\n", "400"}, /* P-9 */
        {"GET / HTTP/1.1\r" H "\r\n", "400"},
        {"GET / HTTP/1.1\r\n" H "X: a\n\r\n", "400"},
        {"GET / HTTP/1.1\r\n" H "X: a\rb\r\n\r\n", "400"},
        {"GET / HTTP/1.1\r\n" H "X: a\r\n b\r\n\r\n", "400"},
        {"GET / HTTP/1.1\r\n" H "X : a\r\n\r\n", "400"},
        {"GET / HTTP/1.1\r\n" H ": a\r\n\r\n", "400"},
        {"GET / HTTP/1.1\r\n" H "X(: a\r\n\r\n", "400"},
        {"GET / HTTP/1.1\r\n" H "X\r\n\r\n", "400"},
        {"GET / HTTP/1.1\r\n" H "X: a\x01\r\n\r\n", "400"},
        {"GET / HTTP/1.1\r\n" H "X: \x7f\r\n\r\n", "400"},
        {"GET / HTTP/1.1\r\n Host: a\r\n\r\n", "400"},
        {"POST / HTTP/1.1\r\n" H "Expect: x\r\nContent-Length: 0\r\n\r\n", "417"}, /* P-22 */
        {"POST / HTTP/1.1\r\n" H "\r\n", "411"},
    };
    check(rows, LN_COUNT(rows));
    gives_bytes("GET / HTTP/1.1\r\nX: \0a\r\n", 23, "400");
}

static void refuses_bad_lengths(void **state) {
    (void)state;
    static const char *const values[] = {"+1",
                                         "-1",
                                         "1 1",
                                         "0x10",
                                         "1,1",
                                         "1, 1",
                                         "1e3",
                                         "1.0",
                                         "",
                                         "18446744073709551616",
                                         "x",
                                         "1x",
                                         "1111111111111111111111111111111111111111"};
    char text[200];
    for (size_t i = 0; i < LN_COUNT(values); i++) { /* P-10 */
        (void)snprintf(text, sizeof text, "POST / HTTP/1.1\r\n" H "Content-Length: %s\r\n\r\na", values[i]);
        gives(text, "400");
    }
    static const row rows[] = {
        {"POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 1\r\n\r\na", "400"}, /* P-11 */
        {"POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 2\r\n\r\na", "400"},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "400"}, /* P-12 */
        {"POST / HTTP/1.1\r\n" H "Content-Length: 1001\r\n\r\n", "413"},                            /* P-19 */
        {"POST / HTTP/1.1\r\n" H "Content-Length: 18446744073709551615\r\n\r\n", "413"},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, gzip\r\n\r\n", "501"}, /* P-13 */
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n\r\n", "501"},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked;x\r\n\r\n", "501"},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: identity\r\n\r\n", "501"},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "400"},
        {"POST / HTTP/1.0\r\n" H "Transfer-Encoding: chunked\r\n\r\n", "400"}, /* P-14 */
    };
    check(rows, LN_COUNT(rows));
}

static void refuses_bad_chunks(void **state) {
    (void)state;
    static const row rows[] = {
        {"-2\r\n", "400"},
        {"0x1\r\na\r\n", "400"},
        {"+1\r\na\r\n", "400"},
        {" 1\r\na\r\n", "400"},
        {"1 \r\na", "400"},
        {"\r\n", "400"},
        {"00000000000000001\r\n", "400"},
        {"1\na\r\n", "400"},
        {"1;a\x01\r\n", "400"},
        {"ffffffffffffffff\r\n", "413"}, /* P-15: cpp-httplib's CVE-2026-45352 */
        {"3e9\r\n", "413"},
    };
    char text[400];
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        (void)snprintf(text, sizeof text, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n%s",
                       rows[i].text);
        char expected[20];
        (void)snprintf(expected, sizeof expected, "POST / [%s", rows[i].expected);
        gives(text, expected);
    }
    static const row after[] = {
        {"1\r\nab\r\n", "POST / [a400"}, /* P-16: no CRLF after the data */
        {"1\r\na\n", "POST / [a400"},
        {"1\r\na\r\r", "POST / [a400"},
        {"1\r\na\r\n0\r\nX\r\n\r\n", "POST / [a400"},
        {"1\r\na\r\n0\r\n\n", "POST / [a400"},
    };
    for (size_t i = 0; i < LN_COUNT(after); i++) {
        (void)snprintf(text, sizeof text, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n%s",
                       after[i].text);
        gives(text, after[i].expected);
    }
}

/* A text of n bytes between two others. */
static char *filled(const char *before, char c, size_t n, const char *after, size_t *bytes) {
    const size_t a = strlen(before), b = strlen(after);
    char *text = ln_alloc(a + n + b + 1);
    memcpy(text, before, a);
    memset(text + a, c, n);
    memcpy(text + a + n, after, b + 1);
    *bytes = a + n + b;
    return text;
}

static void expects(const char *before, char c, size_t n, const char *after, const char *expected) {
    size_t bytes;
    char *text = filled(before, c, n, after, &bytes);
    ln_str s = {0};
    for (size_t step = 0; step < 2; step++) {
        read_cut(text, bytes, bytes, step * 777, &s);
        if (strcmp(s.data, expected) != 0)
            fail_msg("'%.40s' + %zu: '%.60s', expected '%.60s'", before, n, s.data, expected);
    }
    ln_str_free(&s);
    ln_free(text);
}

/* Each limit at its value and one beyond. */
static void keeps_its_limits(void **state) {
    (void)state;
    static const char tail[] = " HTTP/1.1\r\n" H "\r\n";
    size_t n;
    char *path = filled("", 'a', HTTP_MOST_LINE - 14, "", &n);
    ln_str expected = {0};
    ln_str_addf(&expected, "GET /%s [] ", path);
    expects("GET /", 'a', HTTP_MOST_LINE - 14, tail, expected.data);
    ln_str_free(&expected);
    ln_free(path);
    expects("GET /", 'a', HTTP_MOST_LINE - 13, tail, "414");
    expects("", 'A', 1 << 20, "", "400");
    const size_t most = HTTP_MOST_HEAD - sizeof H + 1 - 7;
    expects("GET / HTTP/1.1\r\n" H "X: ", 'a', most, "\r\n\r\n", "GET / [] ");
    expects("GET / HTTP/1.1\r\n" H "X: ", 'a', most + 1, "\r\n\r\n", "431");
    expects("GET / HTTP/1.1\r\n" H "X: ", 'a', 1 << 20, "", "431"); /* P-8 */
    for (int fields = 99; fields <= 100; fields++) {                /* in addition to Host */
        ln_str s = {0};
        ln_str_adds(&s, "GET / HTTP/1.1\r\n" H);
        for (int i = 0; i < fields; i++) ln_str_adds(&s, "X: a\r\n");
        ln_str_adds(&s, "\r\n");
        gives(s.data, fields == 99 ? "GET / [] " : "431");
        ln_str_free(&s);
    }
    static const char chunked[] = "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n";
    ln_str s = {0};
    ln_str_addf(&s, "%s1;", chunked);
    expects(s.data, 'a', 1 << 20, "\r\n", "POST / [400"); /* P-16 */
    expects(s.data, 'a', HTTP_MOST_CHUNK_LINE - 4, "\r\na\r\n0\r\n\r\n", "POST / [a] ");
    expects(s.data, 'a', HTTP_MOST_CHUNK_LINE - 3, "\r\na\r\n0\r\n\r\n", "POST / [400");
    s.len = 0;
    ln_str_addf(&s, "%s0\r\nX: ", chunked);
    expects(s.data, 'a', 1 << 20, "\r\n", "POST / [431"); /* P-17 */
    ln_str_free(&s);
}

/* 300 chunks are as many calls; the body may have MOST_BODY bytes in all. */
static void counts_all_chunks(void **state) {
    (void)state;
    for (int n = MOST_BODY / 4; n <= MOST_BODY / 4 + 1; n++) {
        ln_str s = {0}, got = {0};
        ln_str_adds(&s, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n");
        for (int i = 0; i < n; i++) ln_str_adds(&s, "4\r\nabcd\r\n");
        ln_str_adds(&s, "0\r\n\r\n");
        read_cut(s.data, s.len, s.len, 0, &got);
        assert_int_equal(memcmp(got.data, "POST / [abcd", 12), 0);
        assert_string_equal(got.data + got.len - (n > MOST_BODY / 4 ? 3 : 2),
                            n > MOST_BODY / 4 ? "413" : "] ");
        ln_str_free(&s);
        ln_str_free(&got);
    }
}

static void reads_a_pipeline(void **state) {
    (void)state;
    ln_str s = {0}, got = {0};
    for (int i = 0; i < 1000; i++) ln_str_addf(&s, "GET /%d HTTP/1.1\r\n" H "\r\n", i);
    read_cut(s.data, s.len, s.len, 0, &got);
    assert_int_equal(memcmp(got.data, "GET /0 [] GET /1 [] ", 20), 0);
    assert_string_equal(got.data + got.len - 12, "GET /999 [] ");
    ln_str_free(&s);
    ln_str_free(&got);
}

static void finds_fields(void **state) {
    (void)state;
    static const char text[] =
        "GET /v1/models/a%2fb%20 HTTP/1.1\r\n" H "X-Api-Key: \t k k \r\nx-api-key:2\r\n\r\n";
    http_reader r = {.most_body = 1};
    size_t used, at, piece;
    http_reader_reset(&r);
    assert_true(http_reader_idle(&r));
    assert_int_equal(http_read(&r, text, sizeof text - 1, &used, &at, &piece), HTTP_GOT_HEAD);
    assert_true(http_is(http_field(&r.head, "x-api-key"), "k k"));
    assert_int_equal(http_count(&r.head, "x-api-key"), 2);
    assert_null(http_field(&r.head, "x-api").at);
    char path[40];
    assert_int_equal(http_decode(r.head.path, path), 15);
    assert_string_equal(path, "/v1/models/a/b ");
    http_reader_free(&r);
}

static void writes_heads(void **state) {
    (void)state;
    ln_str s = {0};
    http_put_date(&s, 784111777);
    assert_string_equal(s.data, "Sun, 06 Nov 1994 08:49:37 GMT");
    s.len = 0;
    http_put_head(&s,
                  &(http_reply){
                      .status = 503, .type = "a/b", .length = 3, .minor = 1, .more = "Retry-After: 1\r\n"});
    assert_non_null(strstr(s.data, "HTTP/1.1 503 Service Unavailable\r\nDate: "));
    assert_non_null(strstr(s.data, "\r\nContent-Type: a/b\r\nContent-Length: 3\r\nConnection: "
                                   "close\r\nRetry-After: 1\r\n\r\n"));
    s.len = 0;
    http_put_head(&s,
                  &(http_reply){.status = 200, .type = "a/b", .length = -1, .minor = 1, .keep_alive = true});
    http_put_chunk(&s, "", 0);
    http_put_chunk(&s, "0123456789abcdef", 16);
    http_put_last_chunk(&s);
    assert_non_null(strstr(s.data, "a/b\r\nTransfer-Encoding: "
                                   "chunked\r\n\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n"));
    ln_str_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_what_is_right), cmocka_unit_test(refuses_bad_lines),
        cmocka_unit_test(refuses_bad_fields),    cmocka_unit_test(refuses_bad_lengths),
        cmocka_unit_test(refuses_bad_chunks),    cmocka_unit_test(keeps_its_limits),
        cmocka_unit_test(counts_all_chunks),     cmocka_unit_test(reads_a_pipeline),
        cmocka_unit_test(finds_fields),          cmocka_unit_test(writes_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
