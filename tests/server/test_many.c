/* 256 clients at once: most read their streams, some leave half-way, some read slowly, some send what is no
 * request. Every stream that is read to its end has the text that it has alone; afterwards the server holds
 * what it held before. A round takes 10 s, 3 s in a sample, 10 minutes with LN_LONG; after a third of one
 * come one to six rounds, until memory no longer grows: with LN_LONG 14 to 64 minutes. */
/* run: slow tsan-long */
#include "server_test.h"

enum { CLIENTS = 256, PROMPTS = 12, MOST_TEXT = 8192 };
/* If all prompts one after the other take longer (plain kernels, a busy machine), there are fewer clients.
 */
enum { SLOW_SECONDS = 3, FEW = 32 };
#define CHAT "/v1/chat/completions"

typedef enum kind { READS = 0, LEAVES, SLOW, MALFORMED } kind;

typedef struct client {
    int fd; /* -1: none */
    kind kind;
    int prompt;
    ln_str got;
    size_t leaves_at; /* bytes */
    double next_read;
} client;

static client clients[CLIENTS];
static int n_clients = CLIENTS;
static ln_str solo[PROMPTS];
static uint64_t seed = 1;
static int n_answers, n_left, n_malformed, n_refused;

static uint32_t draw(uint32_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static const char *body_of(int prompt) {
    static char body[300];
    (void)snprintf(body, sizeof body,
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell me story "
                   "%d.\"}],\"max_tokens\":%d,\"seed\":%d,"
                   "\"stream\":true%s}",
                   prompt % 5, 8 + 5 * prompt, prompt, prompt % 4 ? ",\"temperature\":0" : "");
    return body;
}

static void add_text(void *user, const json_t *e) {
    const json_t *text = at(e, "choices.0.delta.content");
    if (text) ln_str_add(user, json_string_value(text), json_string_length(text));
}

/* Judges a whole answer. */
static void judge(const client *c) {
    reply r = {0};
    ln_str text = {0};
    size_t used;
    const char *end = memmem(c->got.data, c->got.len, "\r\n\r\n", 4);
    assert_non_null(end);
    const int status = atoi(c->got.data + 9);
    if (c->kind == MALFORMED) {
        if (status < 400 || status > 431) fail_msg("a malformed request got %d", status);
        n_malformed++;
        return;
    }
    if (status == 503) {
        n_refused++;
        return;
    }
    assert_int_equal(status, 200);
    assert_true(unchunk(&c->got, (size_t)(end - c->got.data) + 4, &r.body, &used));
    assert_int_equal(each_event(&r.body, add_text, &text), 1);
    if (text.len != solo[c->prompt].len || memcmp(text.data, solo[c->prompt].data, text.len) != 0)
        fail_msg("story %d: '%.*s', alone '%s'", c->prompt, (int)text.len, text.data, solo[c->prompt].data);
    n_answers++;
    ln_str_free(&text);
    drop_reply(&r);
}

static void begin_client(client *c) {
    static const char *const bad[] = {
        "GET / HTTP/1.1.1\r\n\r\n", "\x16\x03\x01", "POST " CHAT " HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\n" JSON "Content-Length: 3\r\n\r\n{]}"};
    const uint32_t k = draw(10);
    c->kind = k < 7 ? READS : k == 7 ? LEAVES : k == 8 ? SLOW : MALFORMED;
    c->prompt = (int)draw(PROMPTS);
    c->got.len = 0;
    c->leaves_at = draw(3000);
    c->next_read = 0;
    if (c->kind == MALFORMED) {
        c->fd = dial();
        put_text(c->fd, bad[draw(LN_COUNT(bad))]);
    } else {
        c->fd = begin(CHAT, body_of(c->prompt));
    }
    assert_int_equal(fcntl(c->fd, F_SETFL, O_NONBLOCK), 0);
}

static void end_client(client *c) {
    (void)close(c->fd);
    c->fd = -1;
}

/* Whether the whole answer has come: the last chunk, or a body of its length. */
static bool is_whole(const client *c) {
    const char *end = c->got.len > 0 ? memmem(c->got.data, c->got.len, "\r\n\r\n", 4) : NULL;
    if (!end) return false;
    const char *length = strcasestr(c->got.data, "content-length: ");
    const size_t head = (size_t)(end - c->got.data) + 4;
    if (length && length < end) return c->got.len >= head + strtoul(length + 16, NULL, 10);
    return memcmp(c->got.data + c->got.len - 5, "0\r\n\r\n", 5) == 0;
}

static double heard; /* when bytes came last */

static void read_client(client *c, double now) {
    char buf[16384];
    const size_t most = c->kind == SLOW ? 300 : sizeof buf;
    const ssize_t n = recv(c->fd, buf, most, 0);
    if (n > 0) ln_str_add(&c->got, buf, (size_t)n), heard = now;
    if (c->kind == SLOW) c->next_read = now + 0.01;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (c->kind == LEAVES && c->got.len >= c->leaves_at) {
        n_left++;
        end_client(c);
    } else if (is_whole(c)) {
        judge(c);
        end_client(c);
    } else if (n <= 0) {
        fail_msg("the connection ended within an answer: '%.200s'", c->got.data ? c->got.data : "");
    }
}

/* Runs all clients until `until`, and then those that are at work to their end. */
static void run_until(double until) {
    for (bool any = true; any;) {
        struct pollfd p[CLIENTS];
        const double now = ln_now();
        any = false;
        for (int i = 0; i < n_clients; i++) {
            if (clients[i].fd < 0 && now < until) begin_client(&clients[i]);
            any |= clients[i].fd >= 0;
            p[i] = (struct pollfd){.fd = now < clients[i].next_read ? -1 : clients[i].fd, .events = POLLIN};
        }
        if (!any) return;
        assert_true(poll(p, (nfds_t)n_clients, 10) >= 0);
        for (int i = 0; i < n_clients; i++)
            if (clients[i].fd >= 0 && p[i].fd >= 0 && p[i].revents) read_client(&clients[i], now);
        if (now > LN_MAX(until, heard) + 60 * patience()) fail_msg("the answers do not end");
    }
}

static int64_t resident(void) {
    char path[64], text[4096] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)server.pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    (void)close(fd);
    return atoll(strstr(text, "VmRSS:") + 6) * 1024;
}

/* The bound of the histogram's bucket that holds the q-th part of the gaps between tokens, as the server saw
 * them; interpolated within the bucket. */
static double gap(double q) {
    reply r = call("GET", "/metrics", "", NULL);
    static const char name[] = "\nlinnet_between_tokens_seconds_bucket{le=\"";
    double bounds[40], counts[40], result = 0;
    int n = 0;
    for (const char *at = r.body.data; (at = strstr(at, name)) && n < 40; n++) {
        at += sizeof name - 1;
        bounds[n] = *at == '+' ? 1e9 : strtod(at, NULL);
        counts[n] = strtod(strchr(at, '}') + 1, NULL);
    }
    assert_true(n > 2);
    const double wanted = q * counts[n - 1];
    for (int i = 0; i < n && result == 0; i++) {
        const double below = i ? counts[i - 1] : 0, from = i ? bounds[i - 1] : 0;
        if (counts[i] >= wanted)
            result = from + (bounds[i] - from) * (wanted - below) / LN_MAX(counts[i] - below, 1);
    }
    drop_reply(&r);
    return result;
}

static void many_clients_are_served(void **state) {
    (void)state;
    const double seconds = getenv("LN_LONG") ? 600 : (double)fewer(10, 3);
    START("--log-format", "none", "--parallel", "64", "--ctx", "256");
    const double solo_start = ln_now();
    for (int i = 0; i < PROMPTS; i++) {
        reply r = post(CHAT, body_of(i));
        assert_int_equal(each_event(&r.body, add_text, &solo[i]), 1);
        ln_str_adds(&solo[i], "");
        drop_reply(&r);
    }
    if (ln_now() - solo_start > SLOW_SECONDS) n_clients = FEW; /* a round of all would take minutes */
    for (int i = 0; i < CLIENTS; i++) clients[i].fd = -1;
    const double start = ln_now();
    double was[MOST_THREADS], is[MOST_THREADS], waited = 0;
    const int n_threads = delays(was);
    run_until(ln_now() + seconds); /* every worker has warmed its heap and stack */
    (void)seconds_until("requests.running", 0);
    /* MLX keeps freed arrays for the next ones, at most as many as its cache may hold (docs/mlx.md). */
    const int64_t kept = test_device() == LN_DEVICE_MLX ? 64 << 20 : 0, rss = resident() + kept;
    /* A leak grows in every round; buffers that are kept grow until they were once as large as they need to
     * be. */
    int64_t allocated = status_at("memory.allocated_bytes"), before = -1,
            heap = status_at("memory.heap_bytes");
    for (int round = 0; round < 6 && allocated != before; round++) {
        before = allocated;
        run_until(ln_now() + seconds);
        (void)seconds_until("requests.running", 0);
        (void)seconds_until("requests.waiting", 0);
        assert_int_equal(status_at("kv.used"), 0);
        assert_int_equal(status_at("connections"), 1);
        allocated = status_at("memory.allocated_bytes");
    }
    assert_int_equal(allocated, before);
    /* what was freed goes back to the system soon after the last answer; a leak does not */
    for (const double from = ln_now(); resident() > rss + (1 << 20) && ln_now() - from < 5 * patience();)
        (void)poll(NULL, 0, 100);
    if (!getenv("LN_SANITIZED") && resident() > rss + (1 << 20))
        fail_msg("resident memory grew by %lld bytes", (long long)(resident() + kept - rss));
    /* The C library keeps freed blocks of threads for them, and counts them as in use. */
    const int64_t heap_grown = status_at("memory.heap_bytes") - heap;
    if (!getenv("LN_SANITIZED") && heap_grown > kept + (1 << 18))
        fail_msg("the heap grew by %lld bytes", (long long)heap_grown);
    const double median = gap(0.5), late = gap(0.99);
    print_message("%d answers, %d left, %d malformed, %d refused; heap %+lld bytes, resident %+lld; gaps "
                  "between tokens: "
                  "median %.1f ms, p99 %.1f ms\n",
                  n_answers, n_left, n_malformed, n_refused, (long long)heap_grown,
                  (long long)(resident() + kept - rss), 1e3 * median, 1e3 * late);
    /* On a machine that others use, the gaps are theirs. */
    for (int i = 0; i < LN_MIN(n_threads, delays(is)); i++) waited = LN_MAX(waited, is[i] - was[i]);
    const bool alone = waited < 0.05 * (ln_now() - start);
    if (!alone) print_message("the gaps are not judged: a thread waited %g s for a processor\n", waited);
    if (alone && !getenv("LN_SANITIZED")) assert_true(late < 10 * median);
    assert_true(n_answers > n_clients / 3 && n_left > 0 && n_malformed > 0);
    for (int i = 0; i < PROMPTS; i++) ln_str_free(&solo[i]);
    for (int i = 0; i < CLIENTS; i++) ln_str_free(&clients[i].got);
    assert_int_equal(stop(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(many_clients_are_served, kill_server)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
