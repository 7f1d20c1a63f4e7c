/* What a client does that wants to hurt: guesses keys, takes all connections, descriptors or memory, leaves
 * at random, never reads. The server goes on answering the others and holds in the end what it held before.
 * Numbers in brackets are those of the catalogue of bad inputs. The loops are short; LN_LONG runs them whole.
 */
/* run: slow */
#include "server_test.h"

#include <netinet/tcp.h>
#include <sys/resource.h>

#define CHAT "/v1/chat/completions"
#define HELLO \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":%d,\"ignore_eos\":true%s}"

static bool is_long(void) { return getenv("LN_LONG") != NULL; }

static const char *hello(int n, const char *more) {
    static char body[400];
    (void)snprintf(body, sizeof body, HELLO, n, more);
    return body;
}

static int status_of(const char *method, const char *path, const char *fields, const char *body) {
    reply r = call(method, path, fields, body);
    const int status = r.status;
    drop_reply(&r);
    return status;
}

static int64_t resident(void) {
    char path[64], text[4096] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)server.pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    (void)close(fd);
    return atoll(strstr(text, "VmRSS:") + 6) * 1024;
}

/* Closes with a reset instead of an orderly end. */
static void reset(int fd) {
    const struct linger now = {1, 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    (void)close(fd);
}

/* ---- keys ---- */

/* P-32: after a hundred wrong keys a minute an address is told to wait; its right keys are answered all the
 * same. */
static void keys_are_not_guessed(void **state) {
    (void)state;
    START("--log-format", "none", "--api-key", "the-right-key");
    int n_told = 0;
    const int tries = is_long() ? 100000 : 300;
    const double start = ln_now();
    for (int i = 0; i < tries; i++) {
        char field[64];
        (void)snprintf(field, sizeof field, "x-api-key: guess-%d\r\n", i);
        reply r = call("GET", "/v1/models", field, NULL);
        assert_true(r.status == 401 || r.status == 429);
        n_told += r.status == 401;
        if (r.status == 429) {
            assert_string_equal(field_of(&r, "retry-after"), "60");
            assert_string_equal(field_of(&r, "connection"), "close");
        }
        drop_reply(&r);
        if (i % 20) continue;
        assert_int_equal(status_of("GET", "/health", "", NULL), 200);
        assert_int_equal(status_of("GET", "/v1/models", "x-api-key: the-right-key\r\n", NULL), 200);
        assert_int_equal(status_of("GET", "/v1/models", "api-key: the-right-key\r\n", NULL), 200);
    }
    assert_true(n_told >= 100 && n_told <= 100 * (1 + (int)((ln_now() - start) / 60)));
    assert_int_equal(stop(), 0);
}

/* ---- connections ---- */

/* P-37: 10,240 connections that say nothing, and one more, which is told to come again. */
static void connections_have_a_limit(void **state) {
    enum { MOST = 10240 };
    struct rlimit was, more;
    static int fd[MOST];
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    if (was.rlim_max < MOST + 200 || getenv("LN_SANITIZED")) skip(); /* all must come within ten seconds */
    more = (struct rlimit){MOST + 200, was.rlim_max};
    START("--log-format", "none");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &more), 0);
    for (int i = 0; i < MOST; i++) {
        fd[i] = dial();
        assert_true(fd[i] >= 0);
    }
    reply r = call("GET", "/health", "", NULL);
    assert_int_equal(r.status, 503);
    assert_string_equal(field_of(&r, "retry-after"), "1");
    drop_reply(&r);
    put_text(fd[77], "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ln_str rest = {0};
    r = read_reply(fd[77], &rest, false);
    assert_int_equal(r.status, 200);
    drop_reply(&r);
    ln_str_free(&rest);
    for (int i = 0; i < MOST; i++) (void)close(fd[i]);
    (void)usleep(100000);
    (void)seconds_until("connections", 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(stop(), 0);
}

/* P-38: no descriptor is left, once with the reserved one and once without. The server neither spins nor
 * ends. */
static void descriptors_run_out(void **state) {
    (void)state;
    enum { N = 60 };
    if (getenv("LN_SANITIZED")) skip(); /* a sanitizer needs descriptors of its own */
    START("--log-format", "none");
    for (int round = 0; round < 2; round++) {
        int fd[N];
        struct rlimit was;
        const struct rlimit few = {round ? 4 : 40, 20000};
        if (prlimit(server.pid, RLIMIT_NOFILE, NULL, &was) != 0) skip();
        struct rlimit set = {few.rlim_cur, was.rlim_max};
        assert_int_equal(prlimit(server.pid, RLIMIT_NOFILE, &set, NULL), 0);
        for (int i = 0; i < N; i++) fd[i] = dial();
        (void)usleep(300000);
        const double before = server_seconds();
        (void)usleep(400000);
        const double used = server_seconds() - before;
        if (used > 0.2) fail_msg("%g s of processor time in 0.4 s without descriptors", used);
        for (int i = 0; i < N; i++)
            if (fd[i] >= 0) (void)close(fd[i]);
        assert_int_equal(prlimit(server.pid, RLIMIT_NOFILE, &was, NULL), 0);
        const double start = ln_now();
        while (status_of("GET", "/health", "", NULL) != 200) assert_true(ln_now() - start < 5 * patience());
    }
    assert_int_equal(stop(), 0);
}

/* P-40, P-64, P-66: connections that are reset at any point of a request, and of its answer. */
static void leaving_at_random_leaks_nothing(void **state) {
    (void)state;
    uint64_t seed = 7;
    START("--log-format", "none", "--parallel", "4");
    const int n = is_long() ? 100000 : (int)fewer(1000, 300);
    int64_t allocated = -1;
    for (int i = 0; i < n; i++) {
        char body[400], text[700];
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint32_t draw = (uint32_t)(seed >> 33);
        (void)snprintf(body, sizeof body, HELLO, 1 + (int)(draw % 200),
                       draw & 1   ? ",\"stream\":true"
                       : draw & 2 ? ",\"n\":3"
                                  : "");
        const int bytes =
            snprintf(text, sizeof text,
                     "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\n" JSON "Content-Length: %zu\r\n\r\n%s",
                     strlen(body), body);
        const int fd = dial();
        assert_true(fd >= 0);
        const bool whole = draw >> 8 & 1;
        put(fd, text, whole ? (size_t)bytes : draw % (uint32_t)bytes);
        if (whole) (void)usleep(draw >> 10 & 4095);
        if (draw >> 9 & 1) reset(fd);
        else (void)close(fd);
        if (i != n / 2 && i != n - 1) continue;
        (void)seconds_until("connections", 1);
        (void)seconds_until("requests.running", 0);
        (void)seconds_until("requests.waiting", 0);
        (void)seconds_until("kv.used", 0);
        if (i == n / 2) allocated = status_at("memory.allocated_bytes");
    }
    /* The tables of the event loop keep their largest size: less than a page. */
    int64_t left = status_at("memory.allocated_bytes");
    for (const double start = ln_now(); left > allocated + 4096 && ln_now() - start < 5 * patience();) {
        (void)usleep(50000);
        left = status_at("memory.allocated_bytes");
    }
    if (left > allocated + 4096) fail_msg("%lld bytes more than before", (long long)(left - allocated));
    assert_int_equal(stop(), 0);
}

static int dial_v6(const struct in6_addr *to) {
    const struct sockaddr_in6 a = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)server.port), .sin6_addr = *to};
    const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof a) == 0) return fd;
    if (fd >= 0) (void)close(fd);
    return -1;
}

/* P-43: IPv6, and IPv4 on a socket of IPv6, whose clients have their IPv4 address. */
static void addresses_of_both_kinds_are_served(void **state) {
    (void)state;
    const int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const bool has_v6 = probe >= 0 && bind(probe, (const struct sockaddr *)&any, sizeof any) == 0;
    if (probe >= 0) (void)close(probe);
    if (!has_v6) skip();
    START("--log-format", "json", "--host", "::1");
    const int fd = dial_v6(&in6addr_loopback);
    assert_true(fd >= 0);
    put_text(fd, "GET /v1/models HTTP/1.1\r\nHost: [::1]\r\n\r\n");
    ln_str rest = {0};
    reply r = read_reply(fd, &rest, false);
    assert_int_equal(r.status, 200);
    drop_reply(&r);
    put_text(fd, "GET /v1/models HTTP/1.1\r\nHost: [2001:db8::1]\r\n\r\n");
    r = read_reply(fd, &rest, false);
    assert_int_equal(r.status, 403);
    drop_reply(&r);
    (void)close(fd);
    assert_true(wait_for("\"client\":\"::1\""));
    assert_int_equal(stop(), 0);
    START("--log-format", "json", "--host", "::");
    assert_non_null(strstr(server.said, "warning: every machine"));
    assert_int_equal(status_of("GET", "/v1/models", "", NULL), 200);
    assert_true(wait_for("\"client\":\"127.0.0.1\""));
    ln_str_free(&rest);
    assert_int_equal(stop(), 0);
}

/* P-44: a server that closed connections itself can be started again at once on the same port. */
static void a_restart_binds_again(void **state) {
    (void)state;
    char port[16];
    START("--log-format", "none");
    (void)snprintf(port, sizeof port, "%d", server.port);
    for (int i = 0; i < 3; i++) {
        const int fd = dial();
        ln_str rest = {0};
        put_text(fd, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        reply r = read_reply(fd, &rest, false);
        assert_int_equal(r.status, 200);
        while (more(fd, &rest)) continue; /* the server closes first: TIME_WAIT is its own */
        drop_reply(&r);
        ln_str_free(&rest);
        (void)close(fd);
    }
    assert_int_equal(stop(), 0);
    START("--log-format", "none", "--port", port);
    assert_int_equal(server.port, atoi(port));
    assert_int_equal(status_of("GET", "/health", "", NULL), 200);
    assert_int_equal(stop(), 0);
}

static int free_port(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    (void)close(fd);
    return ntohs(a.sin_port);
}

/* P-45: before the model is loaded everything is 503 but what needs no model; then the same connection goes
 * on. */
static void a_server_that_loads_says_so(void **state) {
    (void)state;
    bool seen = false;
    for (int i = 0; i < 20 && !seen; i++) {
        char port[16];
        server.port = free_port();
        (void)snprintf(port, sizeof port, "%d", server.port);
        SPAWN("--log-format", "none", "--port", port, "--quantize", "4");
        int fd = -1;
        for (const double until = ln_now() + 30; fd < 0 && ln_now() < until;) fd = dial();
        assert_true(fd >= 0);
        ln_str rest = {0};
        put_text(fd, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: "
                     "localhost\r\n\r\n");
        reply health = read_reply(fd, &rest, false), models = read_reply(fd, &rest, false);
        if (models.status == 503) {
            seen = true;
            assert_int_equal(health.status, 503);
            assert_non_null(strstr(models.body.data, "\"code\":\"loading\""));
            assert_string_equal(field_of(&models, "retry-after"), "1");
        }
        drop_reply(&health);
        drop_reply(&models);
        wait_listening();
        (void)usleep(10000);
        put_text(fd, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
        models = read_reply(fd, &rest, false);
        assert_int_equal(models.status, 200);
        drop_reply(&models);
        ln_str_free(&rest);
        (void)close(fd);
        assert_int_equal(stop(), 0);
    }
    assert_true(seen);
}

/* P-42: a peer that vanishes without a word is asked by the kernel (timer 2 of /proc/net/tcp) whether it
 * lives. */
static void silent_peers_are_asked(void **state) {
    (void)state;
    char line[400], mine[32];
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    bool found = false;
    START("--log-format", "none");
    const int fd = dial();
    ln_str rest = {0};
    put_text(fd, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    reply r = read_reply(fd, &rest, false);
    drop_reply(&r);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    (void)snprintf(mine, sizeof mine, "0100007F:%04X 0100007F:%04X 01", (unsigned)server.port,
                   ntohs(a.sin_port));
    FILE *f = fopen("/proc/net/tcp", "re");
    while (f && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, mine);
        if (!at) continue;
        found = true;
        unsigned timer = 0;
        assert_int_equal(sscanf(at + strlen(mine), " %*x:%*x %x:", &timer), 1);
        assert_int_equal(timer, 2);
    }
    if (f) (void)fclose(f);
    (void)close(fd);
    ln_str_free(&rest);
    assert_int_equal(stop(), 0);
    if (!found) skip();
}

/* ---- bodies ---- */

/* A refusal before the body was read says that the connection ends, because it does: what follows must not be
 * read as a request. After a body that was read the connection goes on. */
static void unread_bodies_end_the_connection(void **state) {
    (void)state;
    START("--log-format", "none", "--api-key", "k");
    static const struct {
        const char *head;
        int status;
        bool closes;
    } rows[] = {
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" JSON, 401, true},
        {"POST /nothing HTTP/1.1\r\nHost: localhost\r\nx-api-key: k\r\n" JSON, 404, true},
        {"PUT /tokenize HTTP/1.1\r\nHost: localhost\r\nx-api-key: k\r\n" JSON, 405, true},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nx-api-key: k\r\n", 415, true},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nx-api-key: k\r\n" JSON, 400, false},
        {"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nx-api-key: k\r\n", 200, false},
    };
    static const char smuggled[] = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nx-api-key: k\r\n\r\n";
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        ln_str s = {0}, rest = {0};
        ln_str_addf(&s, "%sContent-Length: %zu\r\n\r\n%s%s", rows[i].head, sizeof smuggled - 1, smuggled,
                    smuggled);
        const int fd = dial();
        put(fd, s.data, s.len);
        reply r = read_reply(fd, &rest, false);
        assert_int_equal(r.status, rows[i].status);
        const char *field = field_of(&r, "connection");
        if (rows[i].closes != (field && strcmp(field, "close") == 0))
            fail_msg("%s: %s", rows[i].head, r.head.data);
        drop_reply(&r);
        if (rows[i].closes) {
            while (more(fd, &rest)) continue;
            assert_int_equal(rest.len, 0);
        } else {
            r = read_reply(fd, &rest, false);
            assert_int_equal(r.status, 200);
            assert_int_equal(rest.len, 0);
            drop_reply(&r);
        }
        (void)close(fd);
        ln_str_free(&s);
        ln_str_free(&rest);
    }
    assert_int_equal(stop(), 0);
}

/* A burst of a body does not pay for silence after it. */
static void a_body_that_stops_ends(void **state) {
    (void)state;
    if (!is_long()) skip();
    START("--log-format", "none");
    const int fd = dial();
    ln_str s = {0}, rest = {0};
    ln_str_adds(&s, "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" JSON "Content-Length: 9000000\r\n\r\n");
    for (int i = 0; i < 100000; i++) ln_str_adds(&s, "          ");
    put(fd, s.data, s.len);
    const double start = ln_now();
    reply r = read_reply(fd, &rest, false);
    assert_int_equal(r.status, 408);
    assert_true(ln_now() - start < 25 * patience());
    drop_reply(&r);
    ln_str_free(&s);
    ln_str_free(&rest);
    (void)close(fd);
    assert_int_equal(stop(), 0);
}

/* P-41 in HTTP/1.0, which has no interim answers: a half-closed client gets its answer. */
static void half_a_close_is_no_leaving(void **state) {
    (void)state;
    START("--log-format", "none");
    for (int i = 0; i < 2; i++) {
        const char *body = hello(200, i ? ",\"stream\":true" : "");
        ln_str s = {0}, all = {0};
        ln_str_addf(&s, "POST " CHAT " HTTP/1.0\r\n" JSON "Content-Length: %zu\r\n\r\n%s", strlen(body),
                    body);
        const int fd = dial();
        put(fd, s.data, s.len);
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
        while (more(fd, &all)) continue;
        ln_str_adds(&all, "");
        assert_memory_equal(all.data, "HTTP/1.1 200", 12);
        assert_non_null(strstr(all.data, "\"finish_reason\":\"length\""));
        ln_str_free(&s);
        ln_str_free(&all);
        (void)close(fd);
    }
    assert_int_equal(stop(), 0);
}

/* ---- readers ---- */

static int64_t metric(const char *name) {
    reply r = call("GET", "/metrics", "", NULL);
    char line[100];
    (void)snprintf(line, sizeof line, "\nlinnet_%s ", name);
    const char *at = strstr(r.body.data, line);
    assert_non_null(at);
    const int64_t v = atoll(at + strlen(line));
    drop_reply(&r);
    return v;
}

static double slowest_of(int n) {
    double most = 0;
    for (int i = 0; i < n; i++) {
        const double start = ln_now();
        assert_int_equal(status_of("POST", CHAT, JSON, hello(5, "")), 200);
        most = LN_MAX(most, ln_now() - start);
    }
    return most;
}

/* P-68, P-70: readers that take nothing cost memory within bounds, delay no other client, and are closed
 * after 30 s.
 */
static void stalled_readers_are_closed(void **state) {
    (void)state;
    if (!is_long()) skip();
    enum { N = 1000 };
    static int fd[N];
    const int small = 4096;
    START("--log-format", "none", "--parallel", "16", "--max-queue", "2000");
    const double alone = slowest_of(50);
    const int64_t before = resident();
    for (int i = 0; i < N; i++) {
        ln_str s = {0};
        fd[i] = dial();
        assert_true(fd[i] >= 0);
        (void)setsockopt(fd[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        request_text(&s, "POST", CHAT, JSON,
                     hello(300, ",\"stream\":true,\"logprobs\":true,\"top_logprobs\":20"));
        put(fd[i], s.data, s.len);
        ln_str_free(&s);
    }
    int64_t most = 0;
    double beside = 0;
    int64_t n_done = -1;
    for (double since = ln_now(); metric("stalled_total") < N && ln_now() - since < 60 * patience();) {
        const int64_t done = metric("stalled_total") + metric("generated_tokens_total");
        if (done != n_done) n_done = done, since = ln_now();
        most = LN_MAX(most, resident());
        if (beside == 0 && status_at("requests.running") == 0) beside = slowest_of(50);
        (void)usleep(200000);
    }
    assert_int_equal(metric("stalled_total"), N);
    print_message("%d stalled readers: %lld MiB more at most; the slowest of 50 answers %g s alone, %g s "
                  "beside\n",
                  N, (long long)((most - before) >> 20), alone, beside);
    assert_true(most - before < 256 << 20);
    (void)seconds_until("connections", 1);
    (void)seconds_until("kv.used", 0);
    for (int i = 0; i < N; i++) (void)close(fd[i]);
    assert_int_equal(stop(), 0);
}

/* P-74: a stream that waits for its turn says so after 15 silent seconds. */
static void silence_is_filled(void **state) {
    (void)state;
    if (!is_long()) skip();
    START("--log-format", "none", "--parallel", "1");
    const int busy = begin(CHAT, hello(1000, ",\"n\":128"));
    (void)seconds_until("requests.running", 1);
    const int fd = begin(CHAT, hello(3, ",\"stream\":true"));
    ln_str s = {0};
    ln_str_adds(&s, "");
    const double start = ln_now();
    while (!strstr(s.data, ": keep-alive\n\n") && ln_now() - start < 40)
        if (!more(fd, &s)) break;
    assert_non_null(strstr(s.data, ": keep-alive\n\n"));
    assert_true(ln_now() - start > 14);
    (void)close(busy);
    while (!strstr(s.data, "data: [DONE]")) assert_true(more(fd, &s));
    (void)close(fd);
    ln_str_free(&s);
    assert_int_equal(stop(), 0);
}

#define SERVED(fn) cmocka_unit_test_teardown(fn, kill_server)

int main(void) {
    const struct CMUnitTest tests[] = {
        SERVED(keys_are_not_guessed),
        SERVED(connections_have_a_limit),
        SERVED(descriptors_run_out),
        SERVED(leaving_at_random_leaks_nothing),
        SERVED(addresses_of_both_kinds_are_served),
        SERVED(a_restart_binds_again),
        SERVED(a_server_that_loads_says_so),
        SERVED(silent_peers_are_asked),
        SERVED(unread_bodies_end_the_connection),
        SERVED(half_a_close_is_no_leaving),
        SERVED(a_body_that_stops_ends),
        SERVED(stalled_readers_are_closed),
        SERVED(silence_is_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
