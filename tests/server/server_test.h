/* Tests of the server from outside: a real `linnet serve` on the bundled model, and a client of a few lines
 * that sends bytes as they are. */
#ifndef LN_TESTS_SERVER_H
#define LN_TESTS_SERVER_H

#include "../base/cm.h"
#include "../fewer.h"
#include "../test_device.h"

#include "base/json.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define JSON "Content-Type: application/json\r\n"

static struct {
    pid_t pid;
    int port, log; /* log: the read end of its stderr */
    char said[16384];
    size_t n_said;
    const char *key; /* header field with a key that it takes, for /v1/status */
} server = {.log = -1};

static const char *server_model = LN_ROOT "/models/tiny";

/* ---- the process ---- */

/* Reads what the server says until it says `text`; false when it ends first or takes longer than a minute. */
static bool wait_for(const char *text) {
    const double until = ln_now() + 60;
    while (!strstr(server.said, text)) {
        struct pollfd p = {.fd = server.log, .events = POLLIN};
        if (ln_now() > until || poll(&p, 1, 1000) < 0) return false;
        if (!(p.revents & (POLLIN | POLLHUP))) continue;
        if (server.n_said > sizeof server.said / 2) { /* keeps the newest half */
            const size_t drop = server.n_said - sizeof server.said / 4;
            memmove(server.said, server.said + drop, server.n_said - drop + 1);
            server.n_said -= drop;
        }
        const ssize_t n =
            read(server.log, server.said + server.n_said, sizeof server.said - 1 - server.n_said);
        if (n <= 0) return false;
        server.n_said += (size_t)n;
        server.said[server.n_said] = '\0';
    }
    return true;
}

/* Begins the server with more arguments, NULL at the end. Port 0 unless they name another. On the device that
 * LN_TEST_DEVICE names. */
static void spawn_with(const char *const *more) {
    int fd[2];
    const char *argv[32] = {"linnet", "serve", server_model, "--threads", "1", "--port", "0"};
    int n = 7;
    for (int i = 0; more[i]; i++)
        if (strcmp(more[i], "--port") == 0) n = 5;
    if (strcmp(test_device_name(), "cpu") != 0) argv[n++] = "--device", argv[n++] = test_device_name();
    while (*more && n < 31) argv[n++] = *more++;
    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    server.n_said = 0;
    server.said[0] = '\0';
    server.key = "";
    server.pid = fork();
    assert_true(server.pid >= 0);
    if (server.pid == 0) {
        (void)dup2(fd[1], STDERR_FILENO);
        (void)unsetenv("LINNET_LOG");
        (void)execv(LN_BIN "/linnet", (char **)(uintptr_t)argv);
        _exit(98);
    }
    (void)close(fd[1]);
    server.log = fd[0];
}
#define SPAWN(...) spawn_with((const char *const[]){__VA_ARGS__, NULL})

/* Waits until the server listens, and learns its port. */
static void wait_listening(void) {
    static const char text[] = "listening on http://";
    if (!wait_for(text)) fail_msg("the server did not start: %s", server.said);
    const char *at = strstr(server.said, text) + sizeof text - 1;
    if (*at == '[') at = strchr(at, ']');
    at = strchr(at, ':');
    assert_non_null(at);
    server.port = atoi(at + 1);
}

static void start_with(const char *const *more) {
    spawn_with(more);
    wait_listening();
}
#define START(...) start_with((const char *const[]){__VA_ARGS__, NULL})

/* Waits for the end; returns the exit code, or 1000 and the signal. */
static int wait_end(void) {
    int status;
    while (read(server.log, server.said, sizeof server.said - 1) > 0) continue;
    assert_int_equal(waitpid(server.pid, &status, 0), server.pid);
    (void)close(server.log);
    server.pid = 0;
    server.log = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int stop(void) {
    (void)kill(server.pid, SIGTERM);
    return wait_end();
}

/* For the teardown of a test that failed half-way. */
static int kill_server(void **state) {
    (void)state;
    if (server.pid > 0) {
        (void)kill(server.pid, SIGKILL);
        (void)wait_end();
    }
    return 0;
}
/* Teardown: ends the server, which must exit with 0. */
static int end_with_0(void **state) {
    if (server.pid > 0 && stop() != 0) fail_msg("the server did not end with 0");
    return kill_server(state);
}

/* ---- connections ---- */

/* Factor of limits of time. Under ThreadSanitizer a step of the server takes tens of times as long, and on a
 * busy machine everything takes as many times longer as threads wait for each processor. */
static double patience(void) {
#ifdef __SANITIZE_THREAD__
    const double slow = 20;
#else
    const double slow = 1;
#endif
    double load = 0;
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return slow * (getloadavg(&load, 1) == 1 && load > (double)n ? 2 * load / (double)LN_MAX(n, 1) : 1);
}

/* After which more() looks whether the engine still makes steps; times patience(), because a step of a few
 * hundred rows takes longer than this under ThreadSanitizer. */
enum { SILENT_SECONDS = 30 };

static int dial(void) {
    const struct sockaddr_in a = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)server.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct timeval wait = {(time_t)(SILENT_SECONDS * patience()), 0};
    assert_true(fd >= 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    if (connect(fd, (const struct sockaddr *)&a, sizeof a) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* Sends all bytes; a server that has closed is no error. */
static void put(int fd, const char *data, size_t n) {
    while (n > 0) {
        const ssize_t k = send(fd, data, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return;
        data += k;
        n -= (size_t)k;
    }
}
static void put_text(int fd, const char *text) { put(fd, text, strlen(text)); }

/* An answer. The body of a chunked one is put together. */
typedef struct reply {
    int status; /* 0: the connection ended before a whole answer */
    ln_str head, body;
    bool closed; /* the connection ended after it */
} reply;

static void drop_reply(reply *r) {
    ln_str_free(&r->head);
    ln_str_free(&r->body);
    *r = (reply){0};
}

/* Whether the engine has made a step since the last call: a server that works is waited for, however slow the
 * machine is. */
static bool engine_moves(void);

/* Reads more bytes into *s; false at the end, and when the server says nothing and makes no step. */
static bool more(int fd, ln_str *s) {
    static char buf[65536];
    ssize_t k;
    do k = recv(fd, buf, sizeof buf, 0);
    while (k < 0 && (errno == EINTR || (errno == EAGAIN && engine_moves())));
    if (k > 0) ln_str_add(s, buf, (size_t)k);
    return k > 0;
}

static const char *field_of(const reply *r, const char *name) {
    static char value[256];
    const size_t n = strlen(name);
    for (const char *line = r->head.data; line && *line;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncasecmp(line, name, n) != 0 || line[n] != ':') continue;
        (void)snprintf(value, sizeof value, "%.*s", (int)strcspn(line + n + 2, "\r"), line + n + 2);
        return value;
    }
    return NULL;
}

/* Decodes the chunked body at raw[from); false: it is not whole. *used: its end. */
static bool unchunk(const ln_str *raw, size_t from, ln_str *body, size_t *used) {
    body->len = 0;
    for (size_t at = from;;) {
        const char *end = at < raw->len ? memmem(raw->data + at, raw->len - at, "\r\n", 2) : NULL;
        if (!end) return false;
        const size_t n = strtoul(raw->data + at, NULL, 16), data = (size_t)(end - raw->data) + 2;
        if (data + n + 2 > raw->len) return false;
        if (n == 0) {
            *used = data + 2;
            return true;
        }
        ln_str_add(body, raw->data + data, n);
        at = data + n + 2;
    }
}

/* Reads one answer; *rest keeps bytes of the next one. Interim answers are passed over. `head`: to HEAD. */
static reply read_reply(int fd, ln_str *rest, bool head) {
    reply r = {0};
    for (;;) {
        const char *end = rest->len > 0 ? memmem(rest->data, rest->len, "\r\n\r\n", 4) : NULL;
        if (!end) {
            if (!more(fd, rest)) return r;
            continue;
        }
        size_t from = (size_t)(end - rest->data) + 4, used = 0;
        ln_str_free(&r.head);
        ln_str_add(&r.head, rest->data, from);
        const int status = atoi(r.head.data + 9);
        const char *length = field_of(&r, "content-length");
        const size_t n = length ? strtoul(length, NULL, 10) : 0;
        const bool chunked = field_of(&r, "transfer-encoding") != NULL;
        const bool none = head || status < 200 || status == 204;
        bool whole = none || (!chunked && length && rest->len >= from + n);
        if (whole) used = none ? from : from + n;
        if (whole && !none) ln_str_add(&r.body, rest->data + from, n);
        const bool ends = rest->len > 5 && memcmp(rest->data + rest->len - 5, "0\r\n\r\n", 5) == 0;
        if (!none && chunked) whole = ends && unchunk(rest, from, &r.body, &used);
        if (whole) {
            rest->len -= used;
            memmove(rest->data, rest->data + used, rest->len);
            if (status < 200) continue;
            r.status = status;
            return r;
        }
        if (!more(fd, rest)) return r;
    }
}

/* Sends raw bytes on a connection of their own and reads one answer. */
static reply raw(const char *bytes, size_t n) {
    const int fd = dial();
    ln_str rest = {0};
    assert_true(fd >= 0);
    put(fd, bytes, n);
    reply r = read_reply(fd, &rest, strncmp(bytes, "HEAD", 4) == 0);
    ln_str_free(&rest);
    (void)close(fd);
    return r;
}

static void request_text(ln_str *s, const char *method, const char *path, const char *fields,
                         const char *body) {
    ln_str_addf(s, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%s", method, path, server.port, fields);
    if (body) ln_str_addf(s, "Content-Length: %zu\r\n", strlen(body));
    ln_str_adds(s, "\r\n");
    if (body) ln_str_adds(s, body);
}

static reply call(const char *method, const char *path, const char *fields, const char *body) {
    ln_str s = {0};
    request_text(&s, method, path, fields, body);
    reply r = raw(s.data, s.len);
    ln_str_free(&s);
    return r;
}
static reply post(const char *path, const char *body) { return call("POST", path, JSON, body); }

/* Opens a connection and sends a request without waiting for its answer. */
static int begin(const char *path, const char *body) {
    ln_str s = {0};
    const int fd = dial();
    assert_true(fd >= 0);
    request_text(&s, "POST", path, JSON, body);
    put(fd, s.data, s.len);
    ln_str_free(&s);
    return fd;
}

static json_t *parse(const char *text, size_t n) {
    json_t *root = NULL;
    ln_error err = {0};
    if (ln_json_load(&root, "answer", text, n, &err) != LN_OK) fail_msg("%s in '%.300s'", err.message, text);
    return root;
}
static json_t *json_of(const reply *r) { return parse(r->body.data ? r->body.data : "", r->body.len); }

/* The value at a path like "choices.0.message.content"; NULL: there is none. */
static const json_t *at(const json_t *root, const char *path) {
    char key[64];
    while (root && *path) {
        const size_t n = strcspn(path, ".");
        (void)snprintf(key, sizeof key, "%.*s", (int)n, path);
        root = json_is_array(root) ? json_array_get(root, (size_t)atoi(key)) : json_object_get(root, key);
        path += n + (path[n] == '.');
    }
    return root;
}
static const char *text_at(const json_t *root, const char *path) {
    const char *text = json_string_value(at(root, path));
    return text ? text : "(none)";
}
static int64_t int_at(const json_t *root, const char *path) {
    const json_t *v = at(root, path);
    if (!json_is_integer(v)) fail_msg("there is no integer at %s", path);
    return json_integer_value(v);
}

/* A number of /v1/status. */
static int64_t status_at(const char *path) {
    reply r = call("GET", "/v1/status", server.key, NULL);
    assert_int_equal(r.status, 200);
    json_t *root = json_of(&r);
    const int64_t n = int_at(root, path);
    json_decref(root);
    drop_reply(&r);
    return n;
}

/* Posts a body; returns the answer, whose status must be 200. The caller releases it. */
static json_t *answer_to(const char *path, const char *body) {
    reply r = post(path, body);
    if (r.status != 200) fail_msg("%s %s: %d %s", path, body, r.status, r.body.data);
    json_t *root = json_of(&r);
    drop_reply(&r);
    return root;
}

/* Checks the text at a path of an answer. */
static void text_is(const json_t *root, const char *path, const char *text) {
    if (strcmp(text_at(root, path), text) != 0)
        fail_msg("%s: '%s', expected '%s'", path, text_at(root, path), text);
}

/* Seconds of processor time that the server has used. */
static double server_seconds(void) {
    char path[64], text[1024] = "";
    unsigned long user = 0, system = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)server.pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    (void)close(fd);
    const char *after = strrchr(text, ')');
    assert_int_equal(sscanf(after, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system),
                     2);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static bool engine_moves(void) {
    static int64_t last = -1;
    static bool asking; /* the answer that tells it does not come either */
    if (asking || server.pid == 0 || kill(server.pid, 0) != 0) return false;
    asking = true;
    const int fd = dial();
    /* one that stops takes no connection: whether it runs at all is what can be seen of it */
    const int64_t n = fd >= 0 ? status_at("steps") : (int64_t)(server_seconds() * 100);
    if (fd >= 0) (void)close(fd);
    asking = false;
    const bool moves = n != last;
    last = n;
    return moves;
}

/* Seconds until a number of /v1/status is at least `least` and at most `most`; fails after ten in which the
 * engine made no step. */
static double seconds_until_in(const char *path, int64_t least, int64_t most) {
    const double start = ln_now();
    double since = start;
    for (int64_t now; (now = status_at(path)) < least || now > most;) {
        const double limit = 10 * patience();
        if (ln_now() - since > limit) {
            if (!engine_moves())
                fail_msg("%s is %lld, not %lld to %lld, after %g s", path, (long long)now, (long long)least,
                         (long long)most, limit);
            since = ln_now();
        }
        (void)usleep(1000);
    }
    return ln_now() - start;
}
static inline double seconds_until(const char *path, int64_t value) {
    return seconds_until_in(path, value, value);
}

/* ---- how busy the machine is ---- */

/* Seconds that a thread could have run and did not, because others had the processors (schedstat). */
static double delay_of(const char *path) {
    char text[100] = "";
    unsigned long long ran = 0, waited = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    return n > 0 && sscanf(text, "%llu %llu", &ran, &waited) == 2 ? (double)waited * 1e-9 : 0;
}

enum { MOST_THREADS = 64 };
/* Does so for this process and each thread of the server. Returns how many. */
static int delays(double all[MOST_THREADS]) {
    char path[400];
    int n = 0;
    all[n++] = delay_of("/proc/self/schedstat");
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)server.pid);
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d)) && n < MOST_THREADS;) {
        (void)snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", (int)server.pid, e->d_name);
        if (e->d_name[0] != '.') all[n++] = delay_of(path);
    }
    if (d) (void)closedir(d);
    return n;
}

/* Calls fn for each event of a stream but [DONE], whose number is returned. */
static int each_event(const ln_str *body, void (*fn)(void *user, const json_t *event), void *user) {
    int done = 0;
    for (const char *p = body->data; p && *p;) {
        const char *end = strstr(p, "\n\n");
        if (!end) fail_msg("an event does not end: '%s'", p);
        if (strncmp(p, "data: [DONE]", 12) == 0) {
            done++;
        } else if (*p != ':') {
            assert_memory_equal(p, "data: ", 6);
            assert_int_equal(done, 0);
            json_t *event = parse(p + 6, (size_t)(end - p - 6));
            fn(user, event);
            json_decref(event);
        }
        p = end + 2;
    }
    return done;
}

#endif
