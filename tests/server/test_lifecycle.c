/* Clients that leave, wait or read slowly; keys; the queue; the end of the server. */
/* run: slow */
#include "server_test.h"

#include <sys/stat.h>

#include <dirent.h>
#include <sys/un.h>

#define CHAT "/v1/chat/completions"
/* Answers of 60 and of 300 tokens. */
#define BRIEF                                                                                       \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":60,\"ignore_eos\":true," \
    "\"temperature\":0}"
#define LONG                                                               \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a "           \
    "story.\"}],\"max_tokens\":300,\"ignore_eos\":true,\"temperature\":0," \
    "\"seed\":1%s}"

static const char *long_body(const char *more) {
    static char body[300];
    (void)snprintf(body, sizeof body, LONG, more);
    return body;
}

/* Reads until the stream has sent a chunk with text. */
static void first_text(int fd) {
    ln_str s = {0};
    ln_str_adds(&s, "");
    while (!strstr(s.data, "\"delta\":{\"content\":")) assert_true(more(fd, &s));
    ln_str_free(&s);
}

/* Waits until a number of /v1/status has the value: within 100 ms, not counting those for which a thread had
 * to wait for a processor. */
static void noticed_at(const char *what, int64_t value) {
    double before[MOST_THREADS], after[MOST_THREADS], waited = 0;
    const int n = delays(before);
    const double seconds = seconds_until(what, value);
    const int n_after = delays(after);
    for (int i = 0; i < LN_MIN(n, n_after); i++) waited += after[i] - before[i];
    if (getenv("LN_SANITIZED") || seconds - waited <= 0.1) return;
    fail_msg("%s is %lld after %g s, %g of them without a processor", what, (long long)value, seconds,
             waited);
}

/* Leaving ends the answer within 100 ms, whether it streams or not, runs or waits; another client's goes on.
 */
static void leaving_cancels(void **state) {
    (void)state;
    START("--log-format", "none", "--parallel", "2");
    const int64_t pages = status_at("kv.used");
    for (int i = 0; i < 6; i++) {
        const bool streams = i % 2;
        const int other = begin(CHAT, long_body(",\"stream\":true"));
        first_text(other);
        const int fd = begin(CHAT, long_body(streams ? ",\"stream\":true" : ""));
        if (streams) first_text(fd);
        else (void)seconds_until("requests.running", 2);
        int waits = -1;
        if (i > 3) { /* one that waits behind the two */
            waits = begin(CHAT, long_body(""));
            (void)seconds_until("requests.waiting", 1);
        }
        if (waits >= 0) {
            (void)close(waits);
            noticed_at("requests.waiting", 0);
            assert_int_equal(status_at("requests.running"), 2);
        }
        (void)close(fd);
        noticed_at("requests.running", 1);
        ln_str rest = {0}, body = {0};
        ln_str_adds(&rest, "");
        while (!strstr(rest.data, "data: [DONE]")) assert_true(more(other, &rest));
        assert_non_null(strstr(rest.data, "\"finish_reason\":\"length\""));
        ln_str_free(&rest);
        ln_str_free(&body);
        (void)close(other);
        (void)seconds_until("requests.running", 0);
    }
    assert_int_equal(status_at("kv.used"), pages);
    assert_int_equal(stop(), 0);
}

/* A client that only stops sending still gets its answer, with interim answers before it at most (P-41). */
static void half_a_close_is_no_leaving(void **state) {
    (void)state;
    START("--log-format", "none");
    for (int i = 0; i < 2; i++) {
        ln_str rest = {0};
        const int fd = begin(CHAT, long_body(i ? ",\"stream\":true" : ""));
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
        reply r = read_reply(fd, &rest, false);
        assert_int_equal(r.status, 200);
        assert_non_null(strstr(r.body.data, "\"finish_reason\":\"length\""));
        drop_reply(&r);
        assert_false(more(fd, &rest)); /* then the connection ends */
        ln_str_free(&rest);
        (void)close(fd);
    }
    assert_int_equal(stop(), 0);
}

static void a_full_queue_refuses(void **state) {
    (void)state;
    START("--log-format", "none", "--parallel", "1", "--max-queue", "1", "--ctx", "400");
    reply many = post(CHAT, long_body(",\"n\":3")); /* more than could ever wait */
    assert_int_equal(many.status, 400);
    assert_non_null(strstr(many.body.data, "\"param\":\"n\""));
    drop_reply(&many);
    ln_str words = {0};
    ln_str_adds(&words, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < 500; i++) ln_str_adds(&words, "word ");
    ln_str_adds(&words, "\"}]}");
    reply long_prompt = post(CHAT, words.data); /* the message names the flag, not the library's field */
    assert_int_equal(long_prompt.status, 400);
    assert_non_null(strstr(long_prompt.body.data, "context_length_exceeded"));
    assert_non_null(strstr(long_prompt.body.data, "--ctx"));
    assert_null(strstr(long_prompt.body.data, "ln_"));
    drop_reply(&long_prompt);
    ln_str_free(&words);
    const int runs = begin(CHAT, long_body(""));
    (void)seconds_until("requests.running", 1);
    const int waits = begin(CHAT, long_body(",\"n\":1"));
    (void)seconds_until("requests.waiting", 1);
    for (int i = 0; i < 3; i++) {
        reply r = post(CHAT, long_body(i == 1 ? ",\"stream\":true" : ""));
        assert_int_equal(r.status, 503);
        assert_non_null(field_of(&r, "retry-after"));
        drop_reply(&r);
    }
    (void)close(runs);
    ln_str rest = {0};
    reply r = read_reply(waits, &rest, false);
    assert_int_equal(r.status, 200);
    drop_reply(&r);
    ln_str_free(&rest);
    (void)close(waits);
    assert_int_equal(stop(), 0);
}

static int status_of(const char *method, const char *path, const char *fields, const char *body) {
    reply r = call(method, path, fields, body);
    const int status = r.status;
    drop_reply(&r);
    return status;
}

static void keys_are_asked_for(void **state) {
    (void)state;
    char path[] = "/tmp/linnet-keys-XXXXXX", flag[64];
    const int fd = mkstemp(path);
    static const char keys[] = "# keys\nsecret-one\r\n\nsecret-two\nsecret,four";
    assert_int_equal(write(fd, keys, sizeof keys - 1), sizeof keys - 1);
    (void)close(fd);
    (void)snprintf(flag, sizeof flag, "@%s", path);
    START("--log-format", "json", "--api-key", flag);
    static const char *const wrong[] = {"",
                                        "Authorization: Bearer secret-three\r\n",
                                        "Authorization: Bearer secret-one2\r\n",
                                        "Authorization: Bearer secret-on\r\n",
                                        "Authorization: secret-one\r\n",
                                        "Authorization: Basic secret-one\r\n",
                                        "Authorization: Bearer secret-one\r\nAuthorization: Bearer "
                                        "secret-one\r\n",
                                        "x-api-key: # keys\r\n",
                                        "x-api-key: secret\r\n",
                                        "Authorization: Bearer \r\n",
                                        "x-api-key:\r\n"};
    static const char *const paths[] = {"/v1/models", "/metrics", "/v1/status", "/nothing",
                                        "/v1/models/tiny"};
    for (size_t i = 0; i < LN_COUNT(wrong); i++) /* P-30, P-31 */
        for (size_t k = 0; k < LN_COUNT(paths); k++)
            assert_int_equal(status_of("GET", paths[k], wrong[i], NULL), 401);
    assert_int_equal(status_of("POST", CHAT, JSON, "{}"), 401);
    assert_int_equal(status_of("GET", "/health", "", NULL), 200);
    assert_int_equal(status_of("GET", "/v1/models", "Authorization: Bearer secret-one\r\n", NULL), 200);
    assert_int_equal(status_of("GET", "/v1/models", "Authorization: bearer secret-two\r\n", NULL), 200);
    assert_int_equal(status_of("GET", "/v1/models", "x-api-key: secret-two\r\n", NULL), 200);
    assert_int_equal(status_of("GET", "/v1/models", "x-api-key: secret,four\r\n", NULL), 200);
    assert_int_equal(status_of("GET", "/nothing", "x-api-key: secret-two\r\n", NULL), 404);
    assert_int_equal(status_of("POST", CHAT, JSON "x-api-key: secret-two\r\n", "{}"), 400);
    (void)unlink(path);
    assert_int_equal(stop(), 0);
}

/* Starts the server with two keys, secret-one and secret-two, which the flag separates by commas. */
static void start_with_keys(const char *queue) {
    START("--log-format", "none", "--parallel", "1", "--max-queue", queue, "--api-key",
          "secret-one,,secret-two");
    assert_int_equal(status_of("GET", "/v1/models", "x-api-key: secret-one,,secret-two\r\n", NULL), 401);
    assert_int_equal(status_of("GET", "/v1/models", "x-api-key: secret-one\r\n", NULL), 200);
    server.key = "x-api-key: secret-two\r\n";
}

static int begin_as(const char *key, const char *body) {
    ln_str s = {0};
    char fields[120];
    const int fd = dial();
    (void)snprintf(fields, sizeof fields, JSON "x-api-key: %s\r\n", key);
    request_text(&s, "POST", CHAT, fields, body);
    put(fd, s.data, s.len);
    ln_str_free(&s);
    return fd;
}

/* One key floods the queue, another asks once: it does not wait for all of the first one's (LT-9). Half of
 * the queue is the most that one key may fill. */
static void a_flood_of_one_key_leaves_capacity(void **state) {
    (void)state;
    enum { FLOOD = 20 };
    int fd[FLOOD], n_done = 0, n_refused = 0;
    start_with_keys("24");
    for (int i = 0; i < FLOOD; i++) fd[i] = begin_as("secret-one", long_body(""));
    (void)seconds_until("requests.waiting", 12);
    const int other = begin_as("secret-two", long_body(""));
    ln_str rest = {0};
    reply r = read_reply(other, &rest, false);
    assert_int_equal(r.status, 200);
    drop_reply(&r);
    (void)close(other);
    for (int i = 0; i < FLOOD; i++) { /* those that have their answer now were before it */
        struct pollfd p = {.fd = fd[i], .events = POLLIN};
        char status[13] = "";
        if (poll(&p, 1, 0) > 0 && recv(fd[i], status, 12, MSG_PEEK) == 12) n_done++;
        n_refused += strcmp(status, "HTTP/1.1 429") == 0;
    }
    n_done -= n_refused;
    assert_int_equal(n_refused, FLOOD - 12 - 1);
    if (n_done > 8) fail_msg("%d of 13 were answered before the other key's one", n_done);
    for (int i = 0; i < FLOOD; i++) (void)close(fd[i]);
    ln_str_free(&rest);
    assert_int_equal(stop(), 0);
}

/* Once it listens, every thread of the server has the filter of system calls; systemd is told. */
static void the_server_is_fenced(void **state) {
    (void)state;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char path[64], text[8192];
    int n_threads = 0;
    (void)snprintf(a.sun_path, sizeof a.sun_path, "/tmp/linnet-notify-%d", (int)getpid());
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof a), 0);
    (void)setenv("NOTIFY_SOCKET", a.sun_path, 1);
    START("--log-format", "none");
    (void)unsetenv("NOTIFY_SOCKET");
    ssize_t n = recv(fd, text, sizeof text - 1, 0);
    assert_int_equal(n, 7);
    assert_memory_equal(text, "READY=1", 7);
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)server.pid);
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d));) {
        char file[400];
        (void)snprintf(file, sizeof file, "%s/%s/status", path, e->d_name);
        const int status = e->d_name[0] == '.' ? -1 : open(file, O_RDONLY | O_CLOEXEC);
        if (status < 0) continue;
        n = read(status, text, sizeof text - 1);
        text[n > 0 ? n : 0] = '\0';
        (void)close(status);
        n_threads++;
        if (!getenv("LN_SANITIZED") && strstr(text, "Seccomp:") && !strstr(text, "Seccomp:\t2"))
            fail_msg("a thread has no filter");
    }
    if (d) (void)closedir(d);
    assert_true(n_threads >= 4);
    assert_int_equal(stop(), 0);
    n = recv(fd, text, sizeof text - 1, 0);
    assert_int_equal(n, 10);
    assert_memory_equal(text, "STOPPING=1", 10);
    (void)close(fd);
    (void)unlink(a.sun_path);
}

/* The log has a line of JSON for each request and never its text or a key. */
static void the_log_tells_no_text(void **state) {
    (void)state;
    START("--log-format", "json", "--api-key", "hush-hush");
    reply r = call("POST", CHAT, JSON "x-api-key: hush-hush\r\n",
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"xyzzy\\n\\u001b[31m\"}],\"max_tokens\":3,"
                   "\"user\":\"plugh\",\"ignore_eos\":true}");
    assert_int_equal(r.status, 200);
    char id[64];
    (void)snprintf(id, sizeof id, "%s", field_of(&r, "x-request-id"));
    drop_reply(&r);
    assert_true(wait_for("\"generated_tokens\":3"));
    assert_null(strstr(server.said, "xyzzy"));
    assert_null(strstr(server.said, "hush"));
    assert_null(strstr(server.said, "plugh"));
    assert_null(strstr(server.said, "\033"));
    const char *line = strstr(server.said, "{\"time\":");
    assert_non_null(line);
    json_t *root = parse(line, strcspn(line, "\n"));
    assert_string_equal(text_at(root, "request_id"), id);
    assert_string_equal(text_at(root, "client"), "key-1");
    assert_string_equal(text_at(root, "path"), CHAT);
    assert_int_equal(int_at(root, "status"), 200);
    json_decref(root);
    assert_int_equal(stop(), 0);
}

/* A key in the arguments is overwritten, because every user can list them; the option itself stays. */
static void a_key_is_not_in_the_list_of_processes(void **state) {
    (void)state;
    char path[64], text[4096] = "";
    START("--log-format", "none", "--api-key", "hush-one,hush-two", "--max-queue", "7");
    (void)snprintf(path, sizeof path, "/proc/%d/cmdline", (int)server.pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    assert_true(n > 0);
    assert_null(memmem(text, (size_t)n, "hush", 4));
    assert_non_null(memmem(text, (size_t)n, "--api-key\0xxxx", 14));
    assert_non_null(memmem(text, (size_t)n, "--max-queue", 11));
    assert_int_equal(status_of("GET", "/v1/models", "Authorization: Bearer hush-two\r\n", NULL), 200);
    assert_int_equal(stop(), 0);
}

static void a_key_file_that_others_may_read_is_named(void **state) {
    (void)state;
    char path[] = "/tmp/linnet-keys-XXXXXX", flag[64];
    const int fd = mkstemp(path);
    assert_int_equal(write(fd, "secret", 6), 6);
    (void)snprintf(flag, sizeof flag, "@%s", path);
    for (int open_to_all = 0; open_to_all < 2; open_to_all++) {
        assert_int_equal(fchmod(fd, open_to_all ? 0644 : 0600), 0);
        START("--log-format", "none", "--api-key", flag);
        const char *warning = strstr(server.said, "can be read by other users (mode 0644)");
        assert_int_equal(warning != NULL, open_to_all);
        assert_int_equal(stop(), 0);
    }
    (void)close(fd);
    (void)unlink(path);
}

/* SIGTERM: no new connection, running and waiting answers end properly, exit 0 (LT-11). */
static void a_signal_drains(void **state) {
    (void)state;
    START("--log-format", "none", "--parallel", "4", "--drain", "600");
    enum { N = 8 };
    int fd[N];
    for (int i = 0; i < N; i++) fd[i] = begin(CHAT, long_body(i % 2 ? ",\"stream\":true" : ""));
    (void)seconds_until("requests.running", 4);
    const int idle = dial();
    assert_int_equal(kill(server.pid, SIGTERM), 0);
    assert_true(wait_for("stopping"));
    const int late = dial();
    assert_int_equal(late, -1);
    put_text(idle, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"); /* P-46 */
    ln_str rest = {0};
    reply r = read_reply(idle, &rest, false);
    assert_true(r.status == 503 || r.status == 0);
    drop_reply(&r);
    ln_str_free(&rest);
    (void)close(idle);
    for (int i = 0; i < N; i++) {
        r = read_reply(fd[i], &rest, false);
        assert_int_equal(r.status, 200);
        assert_non_null(strstr(r.body.data, "\"finish_reason\":\"length\""));
        if (i % 2) assert_non_null(strstr(r.body.data, "data: [DONE]"));
        drop_reply(&r);
        ln_str_free(&rest);
        (void)close(fd[i]);
    }
    assert_int_equal(wait_end(), 0);
}

/* A second signal, or the deadline: each stream gets an error and its end, the others a 503. */
static void a_second_signal_cuts(void **state) {
    (void)state;
    for (int deadline = 0; deadline < 2; deadline++) {
        START("--log-format", "none", "--parallel", "1", "--drain", deadline ? "1" : "30");
        int fd[3];
        const char *const how[] = {",\"stream\":true", ",\"stream\":true", ""};
        for (int i = 0; i < 3; i++) {
            char body[300];
            (void)snprintf(body, sizeof body,
                           "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"n\":120,\"temperature\":"
                           "0,"
                           "\"max_tokens\":900,\"ignore_eos\":true%s}",
                           how[i]);
            fd[i] = begin(CHAT, body);
            /* The first body is opened before the others, and its 120 requests run for far longer than it
             * takes to open those. Of bodies that are sent together any may be opened first. */
            if (i == 0) first_text(fd[0]);
        }
        /* All three bodies are read: 359 requests wait, or fewer if the first ones have ended already. */
        (void)seconds_until_in("requests.waiting", 240, 359);
        assert_int_equal(kill(server.pid, SIGTERM), 0);
        assert_true(wait_for("stopping"));
        (void)usleep(50000);
        const double start = ln_now();
        if (!deadline) assert_int_equal(kill(server.pid, SIGTERM), 0);
        for (int i = 0; i < 3; i++) {
            ln_str rest = {0};
            ln_str_adds(&rest, "");
            while (more(fd[i], &rest)) continue;
            assert_non_null(strstr(rest.data, "\"code\":\"shutting_down\""));
            if (i < 2) assert_non_null(strstr(rest.data, "data: [DONE]\n\n"));
            else assert_memory_equal(rest.data, "HTTP/1.1 503", 12);
            ln_str_free(&rest);
            (void)close(fd[i]);
        }
        assert_int_equal(wait_end(), 0);
        assert_true(ln_now() - start < (deadline ? 4 : 2) * patience());
    }
}

/* A call that waits for the engine ends at a second signal, too, with an answer. */
static void a_second_signal_ends_calls(void **state) {
    (void)state;
    START("--log-format", "none");
    ln_str body = {0}, rest = {0};
    ln_str_adds(&body, "{\"labels\":[\"a\",\"b\",\"c\",\"d\"],\"input\":[");
    for (int i = 0; i < 1024; i++)
        ln_str_addf(&body, "%s\"the text with number %d is long enough\"", i ? "," : "", i);
    ln_str_adds(&body, "]}");
    const int fd = begin("/classify", body.data);
    (void)seconds_until("requests.running", 8);
    assert_int_equal(kill(server.pid, SIGTERM), 0);
    assert_true(wait_for("stopping"));
    assert_int_equal(kill(server.pid, SIGTERM), 0);
    reply r = read_reply(fd, &rest, false);
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.body.data, "\"code\":\"shutting_down\""));
    drop_reply(&r);
    ln_str_free(&rest);
    ln_str_free(&body);
    (void)close(fd);
    assert_int_equal(wait_end(), 0);
}

/* A reader that takes nothing delays no other client, and gets all of its answer once it reads (P-67,
 * P-69). */
static void a_slow_reader_is_waited_for(void **state) {
    (void)state;
    START("--log-format", "none");
    const int small = 65536;
    ln_str slow = {0}, body = {0};
    /* The server waits 30 s for a reader: if that is short for all choices, one has to do. */
    const double start = ln_now();
    assert_int_equal(status_of("POST", CHAT, JSON, BRIEF), 200);
    const int n_choices = ln_now() - start > 0.3 ? 1 : 3;
    const int fd = dial();
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    request_text(&body, "POST", CHAT, JSON,
                 long_body(n_choices == 1 ? ",\"stream\":true,\"n\":1,\"logprobs\":true,\"top_logprobs\":20"
                                          : ",\"stream\":true,\"n\":3,\"logprobs\":true,\"top_logprobs\":"
                                            "20"));
    put(fd, body.data, body.len);
    ln_str_free(&body);
    (void)seconds_until("requests.running", n_choices);
    (void)seconds_until("requests.running", 0); /* all is generated although no client reads */
    assert_int_equal(status_of("POST", CHAT, JSON, n_choices == 1 ? BRIEF : long_body("")), 200);
    reply r = read_reply(fd, &slow, false);
    assert_int_equal(r.status, 200);
    int n = 0;
    for (const char *p = r.body.data; (p = strstr(p, "\"finish_reason\":\"length\"")); p++) n++;
    assert_int_equal(n, n_choices);
    assert_true(r.body.len > (size_t)n_choices * 300 * 1000); /* twenty likely tokens with each */
    assert_memory_equal(r.body.data + r.body.len - 14, "data: [DONE]\n\n", 14);
    drop_reply(&r);
    ln_str_free(&slow);
    (void)close(fd);
    assert_int_equal(stop(), 0);
}

/* Deadlines: nothing sent, a head that drips, a body that drips (P-1, P-2, P-18). They run at once. */
static void slow_requests_end(void **state) {
    (void)state;
    if (getenv("LN_QUICK")) skip();
    START("--log-format", "none");
    const int silent = dial(), head = dial(), body = dial();
    const double start = ln_now();
    put_text(body, "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" JSON "Content-Length: 90000\r\n\r\n{");
    for (int i = 0; ln_now() - start < 11; i++) {
        put_text(head, i ? "x" : "GET / HTTP/1.1\r\nHost: localhost\r\nX: ");
        put_text(body, " ");
        (void)usleep(500000);
    }
    ln_str rest = {0};
    reply r = read_reply(head, &rest, false);
    assert_int_equal(r.status, 408);
    drop_reply(&r);
    ln_str_free(&rest);
    r = read_reply(body, &rest, false);
    assert_int_equal(r.status, 408);
    drop_reply(&r);
    ln_str_free(&rest);
    assert_false(more(silent, &rest));
    (void)close(silent), (void)close(head), (void)close(body);
    ln_str_free(&rest);
    assert_int_equal(stop(), 0);
}

#define SERVED(fn) cmocka_unit_test_teardown(fn, kill_server)

int main(void) {
    const struct CMUnitTest tests[] = {
        SERVED(leaving_cancels),
        SERVED(half_a_close_is_no_leaving),
        SERVED(a_full_queue_refuses),
        SERVED(keys_are_asked_for),
        SERVED(the_log_tells_no_text),
        SERVED(a_key_is_not_in_the_list_of_processes),
        SERVED(a_key_file_that_others_may_read_is_named),
        SERVED(the_server_is_fenced),
        SERVED(a_flood_of_one_key_leaves_capacity),
        SERVED(a_signal_drains),
        SERVED(a_second_signal_cuts),
        SERVED(a_second_signal_ends_calls),
        SERVED(a_slow_reader_is_waited_for),
        SERVED(slow_requests_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
